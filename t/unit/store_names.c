/*
 * Names of the store, the block at a file's start, types by content,
 * conditions, Content-Disposition, links: no disk is touched.
 */

/* link: src/store/sandbox_store.c src/store/sandbox_store_type.c */
/* link: src/wire/sandbox_utf8.c -lcrypto */

#include <stdlib.h>

#include "test.h"
#include "sandbox_store.h"


static void names(void);
static void components(void);
static void free_names(void);
static void blocks(void);
static void types(void);
static void pieces(void);
static void conditions(void);
static void ranges(void);
static void dispositions(void);
static void links(void);
static unsigned type_of(const void *p, size_t n);


int
main(void)
{
    names();
    components();
    free_names();
    blocks();
    types();
    pieces();
    conditions();
    ranges();
    dispositions();
    links();

    return test_done();
}


static void
names(void)
{
    unsigned  i;
    char      long_name[257];

    static const char *const  good[] = {
        "report (1).txt", "it's.txt", "отчёт.xlsx", "🤣.txt", "a$b`c\"d.txt",
        "-rf", "trailing.", "trailing ", "new\nline", "...", ".hidden",
        "back\\slash", "\xff\xfe", "a?b=c", "#x", "%41.txt", " ", NULL
    };

    for (i = 0; good[i]; i++) {
        ok(sandbox_store_name_wrong(good[i], strlen(good[i])) == NULL,
           "files/names-odd: %u may be a name", i);
    }

    memset(long_name, 'x', sizeof(long_name));

    ok(sandbox_store_name_wrong(long_name, 255) == NULL,
       "files/names-odd: 255 bytes");
    ok(sandbox_store_name_wrong(long_name, 256) != NULL,
       "files/names-odd: 256 bytes are refused");
    ok(sandbox_store_name_wrong("", 0) != NULL, "no name");
    ok(sandbox_store_name_wrong(".", 1) != NULL, "files/traversal: .");
    ok(sandbox_store_name_wrong("..", 2) != NULL, "files/traversal: ..");
    ok(sandbox_store_name_wrong("a/b", 3) != NULL, "files/traversal: a/b");
    ok(sandbox_store_name_wrong("a\0b", 3) != NULL, "files/traversal: NUL");
}


static void
components(void)
{
    char      out[SANDBOX_STORE_MAX_COMPONENT + 1], other[sizeof(out)];
    char      big[400];
    size_t    n;
    unsigned  i;

    sandbox_store_component("https://idp.example/", 20, out);
    is_string(out, "https:%2F%2Fidp.example%2F", "an issuer");

    sandbox_store_component("..", 2, out);
    is_string(out, "%2E.", "files/traversal: dots are no parent");

    sandbox_store_component("", 0, out);
    ok(strlen(out) == 65 && out[0] == '=', "nothing has a name, too");

    memset(big, '/', sizeof(big));

    for (n = 60; n < sizeof(big); n++) {
        sandbox_store_component(big, n, out);
        sandbox_store_component(big, n - 1, other);

        if (strlen(out) > SANDBOX_STORE_MAX_COMPONENT || strchr(out, '/')
            || strcmp(out, other) == 0)
        {
            break;
        }
    }

    is_number(n, sizeof(big), "long ones stay short, and apart");

    for (i = 0; i < 256; i++) {
        big[0] = 'a';
        big[1] = (char) i;
        sandbox_store_component(big, 2, out);

        if (strpbrk(out, "/\n\"'\\ ") || strlen(out) < 2) {
            break;
        }
    }

    is_number(i, 256, "any byte is safe");

    sandbox_store_id("x", 1, out);
    is_string(out, "2d711642b726b04401627ca9fbac32f5c8530fb1",
              "a file's name on the disk");
}


static void
free_names(void)
{
    char    out[SANDBOX_STORE_MAX_NAME + 1], big[SANDBOX_STORE_MAX_NAME];
    size_t  n;

    static const struct {
        const char  *name;
        unsigned     n;
        const char  *free;
    } rows[] = {
        { "image.png", 2, "image (2).png" },
        { "image.png", 999, "image (999).png" },
        { "README", 3, "README (3)" },
        { ".bashrc", 2, ".bashrc (2)" },
        { "trailing.", 2, "trailing (2)." },
        { "отчёт.xlsx", 2, "отчёт (2).xlsx" },
        { "a.tar.gz", 2, "a.tar (2).gz" },
        { NULL, 0, NULL }
    };

    for (n = 0; rows[n].name; n++) {
        out[sandbox_store_free_name(rows[n].name, strlen(rows[n].name),
                                    rows[n].n, out)] = '\0';
        is_string(out, rows[n].free, "files/attachments-same-name: %s",
                  rows[n].name);
    }

    memset(big, 'x', sizeof(big));
    memcpy(big + 251, ".txt", 4);
    out[sandbox_store_free_name(big, 255, 2, out)] = '\0';
    is_number(strlen(out), 255, "255 bytes stay 255");
    is_string(out + 247, " (2).txt", "their end is kept");

    for (n = 0; n < 255; n += 3) {
        memcpy(big + n, "\xe2\x82\xac", 3);
    }

    n = sandbox_store_free_name(big, 255, 2, out);
    is_number(n, 4 + 249, "no sequence is split");
}


static void
blocks(void)
{
    size_t                 i, used;
    size_t                 size;
    uint8_t                block[SANDBOX_STORE_BLOCK], bad[sizeof(block)];
    const uint8_t         *record;
    unsigned               n;
    sandbox_store_entry_t  entry, read;

    memset(&entry, 0, sizeof(entry));
    entry.name_len = (unsigned) sprintf(entry.name, "отчёт.xlsx");
    entry.command_len = (unsigned) sprintf(entry.command, "cmd_1");
    entry.size = 12345678901;
    entry.created_ms = 1764450000123;
    entry.modified_ms = 1764450000456;
    entry.type = SANDBOX_STORE_TYPE_XLSX;
    memset(entry.sha256, 0xa5, sizeof(entry.sha256));

    sandbox_store_write_block(&entry, block);
    ok(sandbox_store_read_block(block, sizeof(block), &read) == 0, "a block");
    is_bytes(&read, sizeof(read), &entry, sizeof(entry), "reads the same");
    ok(sandbox_store_read_block(block, 1024, &read) == 0, "its first KiB do");

    n = 0;
    used = 16 + block[11];

    for (i = 0; i < used; i++) {
        memcpy(bad, block, sizeof(bad));
        bad[i] ^= 0x10;
        n += (sandbox_store_read_block(bad, sizeof(bad), &read) == 0);
    }

    is_number(n, 0, "any flipped bit in it is found");

    n = 0;

    for (i = 0; i < used; i++) {
        n += (sandbox_store_read_block(block, i, &read) == 0);
    }

    is_number(n, 0, "a block cut short is none");

    memset(bad, 0, sizeof(bad));
    ok(sandbox_store_read_block(bad, sizeof(bad), &read) == -1,
       "files/atomic-upload: a file without its block is none");

    ok(sandbox_store_read_record(block, &size) == NULL, "no record in it");
    memset(bad, 'r', sizeof(bad));
    sandbox_store_write_record(block, bad, SANDBOX_STORE_MAX_RECORD);
    ok(sandbox_store_read_block(block, sizeof(block), &read) == 0
       && read.size == entry.size, "a block with a record is one");
    record = sandbox_store_read_record(block, &size);
    is_bytes(record, size, bad, SANDBOX_STORE_MAX_RECORD,
             "the largest record");
}


static unsigned
type_of(const void *p, size_t n)
{
    sandbox_store_sniff_t  sniff;

    sandbox_store_sniff_init(&sniff);
    sandbox_store_sniff(&sniff, p, n);

    return sandbox_store_sniff_end(&sniff);
}


static void
types(void)
{
    size_t    n;
    char      zip[128];
    unsigned  shown;

    static const struct {
        unsigned     type;
        unsigned     len;
        const char  *bytes;
    } rows[] = {
        { SANDBOX_STORE_TYPE_EMPTY, 0, "" },
        { SANDBOX_STORE_TYPE_TEXT, 1, "a" },
        { SANDBOX_STORE_TYPE_TEXT, 15, "<html><script>\n" },
        { SANDBOX_STORE_TYPE_TEXT, 5, "<svg>" },
        { SANDBOX_STORE_TYPE_TEXT, 10, "отчёт" },
        { SANDBOX_STORE_TYPE_BINARY, 3, "a\0b" },
        { SANDBOX_STORE_TYPE_BINARY, 3, "a\xff" "b" },
        { SANDBOX_STORE_TYPE_BINARY, 3, "a\xd0" },
        { SANDBOX_STORE_TYPE_BINARY, 9, "12345678\0" },
        { SANDBOX_STORE_TYPE_PNG, 9, "\x89PNG\r\n\x1a\n<" },
        { SANDBOX_STORE_TYPE_BINARY, 7, "\x89PNG\r\n\x1a" },
        { SANDBOX_STORE_TYPE_JPEG, 4, "\xff\xd8\xff\xe0" },
        { SANDBOX_STORE_TYPE_GIF, 6, "GIF89a" },
        { SANDBOX_STORE_TYPE_WEBP, 12, "RIFF\1\2\3\4WEBP" },
        { SANDBOX_STORE_TYPE_PDF, 8, "%PDF-1.7" },
        { SANDBOX_STORE_TYPE_GZIP, 4, "\x1f\x8b\x08\0" },
        { SANDBOX_STORE_TYPE_ZIP, 4, "PK\5\6" },
        { SANDBOX_STORE_TYPE_LAST, 0, NULL }
    };

    for (n = 0; rows[n].bytes; n++) {
        is_number(type_of(rows[n].bytes, rows[n].len), rows[n].type,
                  "type %zu", n);
    }

    memset(zip, 0, sizeof(zip));
    memcpy(zip, "PK\3\4", 4);
    zip[26] = 5;
    memcpy(zip + 30, "docPr", 5);
    is_number(type_of(zip, sizeof(zip)), SANDBOX_STORE_TYPE_ZIP, "a zip");

    memcpy(zip + 60, "PK\3\4", 4);
    zip[86] = 11;
    memcpy(zip + 90, "xl/work.xml", 11);
    is_number(type_of(zip, sizeof(zip)), SANDBOX_STORE_TYPE_XLSX, "a sheet");

    for (n = 0; n < SANDBOX_STORE_TYPE_LAST; n++) {
        if (strstr(sandbox_store_type((unsigned) n, &shown), "html")
            || (shown && strncmp(sandbox_store_type((unsigned) n, &shown),
                                 "image/", 6) != 0
                && n != SANDBOX_STORE_TYPE_TEXT))
        {
            break;
        }
    }

    is_number(n, SANDBOX_STORE_TYPE_LAST,
              "only pictures and text are shown, HTML is text");
}


/* whatever the pieces, the answer is that of the whole */

static void
pieces(void)
{
    size_t                 i, cut, n;
    uint8_t                text[64];
    unsigned               round, bad;
    sandbox_store_sniff_t  sniff;

    static const char *const  parts[] = {
        "a", "\xd0\xbe", "\xe2\x82\xac", "\xf0\x9f\xa4\xa3", "\xff", "\xd0",
        "12345678901234567890", "\0"
    };

    bad = 0;
    srand(7);

    for (round = 0; round < 20000; round++) {
        n = 0;

        while (n < 40) {
            i = (size_t) (rand() % (round % 3 ? 4 : 8));
            cut = i == 7 ? 1 : strlen(parts[i]);
            memcpy(text + n, parts[i], cut);
            n += cut;
        }

        sandbox_store_sniff_init(&sniff);

        for (i = 0; i < n; i += cut) {
            cut = 1 + (size_t) (rand() % 9);
            cut = cut > n - i ? n - i : cut;
            sandbox_store_sniff(&sniff, text + i, cut);
        }

        bad += (sandbox_store_sniff_end(&sniff) != type_of(text, n));
    }

    is_number(bad, 0, "a type does not depend on the pieces");
}


static void
conditions(void)
{
    unsigned  i;

    static const struct {
        const char  *list;
        const char  *etag;
        unsigned     weak;
        int          listed;
    } rows[] = {
        { "*", "\"a\"", 0, 1 },
        { "*", NULL, 0, 0 },
        { "\"a\"", "\"a\"", 0, 1 },
        { "\"a\"", "\"b\"", 0, 0 },
        { "\"x\", \"a\"", "\"a\"", 0, 1 },
        { "\"x\",\"a\",\"y\"", "\"a\"", 0, 1 },
        { "W/\"a\"", "\"a\"", 0, 0 },
        { "W/\"a\"", "\"a\"", 1, 1 },
        { "\"a", "\"a\"", 0, 0 },
        { "a", "\"a\"", 0, 0 },
        { "", "\"a\"", 0, 0 },
        { "\"x\" garbage \"a\"", "\"a\"", 0, 0 },
        { NULL, NULL, 0, 0 }
    };

    for (i = 0; rows[i].list; i++) {
        is_number(sandbox_store_listed(rows[i].list, strlen(rows[i].list),
                                       rows[i].etag, rows[i].weak),
                  rows[i].listed, "files/etag: list %u", i);
    }
}


static void
ranges(void)
{
    unsigned  i;

    static const struct {
        const char  *list;
        int          good;
    } rows[] = {
        { "0-0", 1 }, { "5-", 1 }, { "-5", 1 }, { "0-1,5-6", 1 },
        { "0-1 , 5-", 1 }, { "0-99999999999999999999999", 1 }, { "7-7", 1 },
        { "5-4", 0 }, { "0-1,5-4", 0 }, { "", 0 }, { "-", 0 }, { "5", 0 },
        { "a-b", 0 }, { "0-1,", 0 }, { ",0-1", 0 }, { "0--1", 0 },
        { "0x1-2", 0 }, { "99999999999999999999-5", 0 }, { NULL, 0 }
    };

    for (i = 0; rows[i].list; i++) {
        is_number(sandbox_store_ranges(rows[i].list, strlen(rows[i].list)),
                  rows[i].good, "files/range: \"%s\"", rows[i].list);
    }
}


static void
dispositions(void)
{
    char      out[SANDBOX_STORE_DISPOSITION + 1], name[256];
    size_t    n, i;
    unsigned  bad, round;

    static const struct {
        const char  *name;
        const char  *value;
    } rows[] = {
        { "a.txt", "attachment; filename=\"a.txt\"" },
        { "a b;c.txt", "attachment; filename=\"a b;c.txt\"" },
        { "a\"b\\.txt", "attachment; filename=\"a_b_.txt\"; "
                        "filename*=UTF-8''a%22b%5C.txt" },
        { "\xd0\xbe.csv", "attachment; filename=\"_.csv\"; "
                          "filename*=UTF-8''%D0%BE.csv" },
        { "a\r\nX: y", "attachment; filename=\"a__X: y\"; "
                       "filename*=UTF-8''a%0D%0AX%3A%20y" },
        { "100%.txt", "attachment; filename=\"100_.txt\"; "
                      "filename*=UTF-8''100%25.txt" },
        { "\xff.txt", "attachment; filename=\"_.txt\"" },
        { NULL, NULL }
    };

    for (i = 0; rows[i].name; i++) {
        out[sandbox_store_disposition(1, rows[i].name, strlen(rows[i].name),
                                      out)] = '\0';
        is_string(out, rows[i].value, "files/content-disposition: %zu", i);
    }

    bad = 0;
    srand(3);

    for (round = 0; round < 5000; round++) {
        for (i = 0; i < 255; i++) {
            name[i] = (char) (rand() % 256);
        }

        n = sandbox_store_disposition(round % 2, name, 255, out);

        for (i = 0; i < n; i++) {
            bad += (out[i] < 0x20 || out[i] == 0x7f);
        }

        bad += (n > SANDBOX_STORE_DISPOSITION);
    }

    is_number(bad, 0, "files/content-disposition: one line of ASCII");
}


static void
links(void)
{
    size_t                i, n;
    uint8_t               out[SANDBOX_STORE_MAX_LINK];
    unsigned              bad;
    sandbox_store_link_t  link, read;

    memset(&link, 0, sizeof(link));
    link.expires = 1764450000;
    memset(link.tenant, 1, sizeof(link.tenant));
    memset(link.user, 2, sizeof(link.user));
    memset(link.id, 3, sizeof(link.id));
    memset(link.etag, 4, sizeof(link.etag));
    link.conversation_len = 128;
    memset(link.conversation, 'c', 128);

    n = sandbox_store_write_link(&link, out);
    is_number(n, SANDBOX_STORE_MAX_LINK, "the longest link");
    ok(sandbox_store_read_link(out, n, &read) == 0, "reads");
    is_bytes(&read, sizeof(read), &link, sizeof(link), "the same");

    bad = 0;

    for (i = 0; i <= SANDBOX_STORE_LINK_FIXED; i++) {
        bad += (sandbox_store_read_link(out, i, &read) == 0);
    }

    bad += (sandbox_store_read_link(out, n + 1, &read) == 0);
    is_number(bad, 0, "none is too short or too long");
}
