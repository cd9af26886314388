/*
 * Foreign bytes as the block of a file, a name, a list of tags, a link; and
 * entries made of them, which must come back as they went.
 */

/* link: src/store/sandbox_store_type.c src/wire/sandbox_utf8.c -lcrypto */
/* covers: src/store/sandbox_store.c */

#include "../../src/store/sandbox_store.c"

#include <stdlib.h>


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


static void fuzz_block(const uint8_t *p, size_t size);
static void fuzz_entry(const uint8_t *p, size_t size);
static void fuzz_name(const char *p, size_t size);
static void fuzz_link(const uint8_t *p, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    if (size < 2) {
        return 0;
    }

    switch (p[0] % 4) {

    case 0:
        fuzz_block(p + 1, size - 1);
        break;

    case 1:
        fuzz_entry(p + 1, size - 1);
        break;

    case 2:
        fuzz_name((const char *) p + 1, size - 1);
        break;

    default:
        fuzz_link(p + 1, size - 1);
    }

    return 0;
}


/* as it is, and with the checksum that fits */

static void
fuzz_block(const uint8_t *p, size_t size)
{
    size_t                 n;
    uint8_t                block[SANDBOX_STORE_BLOCK];
    const uint8_t         *record;
    sandbox_store_entry_t  entry;

    (void) sandbox_store_read_block(p, size, &entry);

    if (size > sizeof(block) - SANDBOX_STORE_START) {
        size = sizeof(block) - SANDBOX_STORE_START;
    }

    memcpy(block, SANDBOX_STORE_MAGIC, 8);
    memcpy(block + SANDBOX_STORE_START, p, size);
    sandbox_store_put64(block + 8, (uint64_t) size << 32
                                   | sandbox_store_checksum(p, size));

    if (sandbox_store_read_block(block, SANDBOX_STORE_START + size, &entry)
        == 0)
    {
        check(sandbox_store_name_wrong(entry.name, entry.name_len) == NULL);
        check(entry.command_len <= SANDBOX_STORE_MAX_COMMAND);
        check(entry.type < SANDBOX_STORE_TYPE_LAST);

        record = sandbox_store_read_record(block, &n);
        check(record == NULL
              || (n <= SANDBOX_STORE_MAX_RECORD && record > block
                  && record + n <= block + SANDBOX_STORE_START + size));
    }
}


static void
fuzz_entry(const uint8_t *p, size_t size)
{
    size_t                 n;
    uint8_t                block[SANDBOX_STORE_BLOCK];
    const uint8_t         *record;
    sandbox_store_entry_t  entry, read;
    sandbox_store_sniff_t  sniff;

    memset(&entry, 0, sizeof(entry));

    n = size < SANDBOX_STORE_MAX_NAME ? size : SANDBOX_STORE_MAX_NAME;
    memcpy(entry.name, p, n);
    entry.name_len = (unsigned) n;

    n = size < SANDBOX_STORE_MAX_COMMAND ? size : SANDBOX_STORE_MAX_COMMAND;
    memcpy(entry.command, p, n);
    entry.command_len = (unsigned) n;

    sandbox_store_sniff_init(&sniff);
    sandbox_store_sniff(&sniff, p, size / 2);
    sandbox_store_sniff(&sniff, p + size / 2, size - size / 2);
    entry.type = sandbox_store_sniff_end(&sniff);
    entry.size = size;
    entry.modified_ms = entry.created_ms = p[0];

    sandbox_store_write_block(&entry, block);

    if (sandbox_store_name_wrong(entry.name, entry.name_len)) {
        check(sandbox_store_read_block(block, sizeof(block), &read) == -1);
        return;
    }

    check(sandbox_store_read_block(block, sizeof(block), &read) == 0);
    check(memcmp(&read, &entry, sizeof(entry)) == 0);
    check(sandbox_store_read_record(block, &n) == NULL);

    /* with bytes of others behind it */

    size = size < SANDBOX_STORE_MAX_RECORD ? size : SANDBOX_STORE_MAX_RECORD;
    sandbox_store_write_record(block, p, size);

    check(sandbox_store_read_block(block, sizeof(block), &read) == 0);
    check(memcmp(&read, &entry, sizeof(entry)) == 0);

    record = sandbox_store_read_record(block, &n);
    check(record != NULL && n == size && memcmp(record, p, n) == 0);
}


static void
fuzz_name(const char *p, size_t size)
{
    char      out[SANDBOX_STORE_DISPOSITION], id[SANDBOX_STORE_ID + 1];
    char      part[SANDBOX_STORE_MAX_COMPONENT + 1];
    char      name[SANDBOX_STORE_MAX_NAME], etag[SANDBOX_STORE_ETAG_TEXT + 1];
    size_t    i, n;
    uint8_t   sum[SANDBOX_STORE_SHA256];
    unsigned  shown;

    sandbox_store_component(p, size, part);
    check(part[0] && part[0] != '.' && strchr(part, '/') == NULL);
    check(strlen(part) <= SANDBOX_STORE_MAX_COMPONENT);

    memset(sum, 0xab, sizeof(sum));
    sandbox_store_etag(sum, etag);
    (void) sandbox_store_listed(p, size, etag, p[0] & 1);
    (void) sandbox_store_listed(p, size, NULL, 0);
    (void) sandbox_store_ranges(p, size);
    check(sandbox_store_type((unsigned char) p[0], &shown) != NULL);

    if (sandbox_store_name_wrong(p, size)) {
        return;
    }

    sandbox_store_id(p, size, id);
    check(strlen(id) == SANDBOX_STORE_ID);

    n = sandbox_store_free_name(p, size, 2 + (unsigned char) p[0], name);
    check(n > 0 && n <= SANDBOX_STORE_MAX_NAME);
    check(sandbox_store_name_wrong(name, n) == NULL);

    n = sandbox_store_disposition(p[0] & 1, p, size, out);
    check(n <= sizeof(out));

    for (i = 0; i < n; i++) {
        check(out[i] >= 0x20 && out[i] < 0x7f);
    }
}


static void
fuzz_link(const uint8_t *p, size_t size)
{
    uint8_t               again[SANDBOX_STORE_MAX_LINK];
    sandbox_store_link_t  link;

    if (sandbox_store_read_link(p, size, &link) == 0) {
        check(sandbox_store_write_link(&link, again) == size);
        check(memcmp(again, p, size) == 0);
    }
}
