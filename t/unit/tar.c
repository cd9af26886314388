/*
 * A tar, header by header: what is read, and what is refused.
 */

/* link: src/tar/sandbox_tar.c */

#include "sandbox_tar.h"

#include <stdlib.h>

#include "test.h"


static uint8_t  archive[256 * 1024];
static size_t   archive_size;


static void
sum(uint8_t *block)
{
    size_t    i;
    unsigned  n;

    memset(block + 148, ' ', 8);

    for (n = 0, i = 0; i < SANDBOX_TAR_BLOCK; i++) {
        n += block[i];
    }

    snprintf((char *) block + 148, 7, "%06o", n);
}


static uint8_t *
add(const char *name, char type, const void *data, size_t size)
{
    uint8_t  *block;

    block = archive + archive_size;
    memset(block, 0, SANDBOX_TAR_BLOCK);
    memcpy(block, name, strlen(name) < 100 ? strlen(name) : 100);
    memcpy(block + 100, "0000644", 8);
    snprintf((char *) block + 124, 12, "%011o", (unsigned) size);
    block[156] = type;
    memcpy(block + 257, "ustar\0" "00", 8);
    sum(block);

    archive_size += SANDBOX_TAR_BLOCK;
    memset(archive + archive_size, 0, (size + 511) / 512 * 512);

    if (data != NULL) {
        memcpy(archive + archive_size, data, size);
    }

    archive_size += (size + 511) / 512 * 512;

    return block;
}


static void
end(void)
{
    memset(archive + archive_size, 0, 1024);
    archive_size += 1024;
}


/* Reads it in pieces; what came, as a line, or what is wrong with it. */

static const char *
readout(size_t piece)
{
    int             rc;
    size_t          at, n, length;
    const uint8_t  *p, *data;

    static char           out[64 * 1024];
    static sandbox_tar_t  tar;

    sandbox_tar_init(&tar);
    out[0] = '\0';
    at = 0;

    for ( ;; ) {
        n = archive_size - at < piece ? archive_size - at : piece;

        if (n == 0) {
            return "cut short";
        }

        p = archive + at;
        at += n;

        for ( ;; ) {
            rc = sandbox_tar_next(&tar, &p, &n, &data, &length);

            if (rc == SANDBOX_TAR_BAD) {
                return tar.error;
            }

            if (rc == SANDBOX_TAR_DONE) {
                return out;
            }

            if (rc == SANDBOX_TAR_AGAIN) {
                break;
            }

            if (rc == SANDBOX_TAR_DATA) {
                strncat(out, (const char *) data, length);

            } else {
                sprintf(out + strlen(out), "[%c %s %o%s%s]",
                        "FDL"[tar.entry.type], tar.entry.path,
                        tar.entry.mode,
                        tar.entry.type == SANDBOX_TAR_LINK ? " " : "",
                        tar.entry.type == SANDBOX_TAR_LINK ? tar.entry.target
                                                           : "");
            }
        }
    }
}


static void
start(void)
{
    archive_size = 0;
}


static void
test_good(void)
{
    size_t    i;
    uint8_t  *block;
    char      pax[256];

    static const size_t  pieces[] = { 1, 7, 511, 512, 513, 100000 };

    start();
    add("./", '5', NULL, 0);
    add("./a.txt", '0', "one", 3);
    add("empty", '\0', NULL, 0);
    add("d/", '5', NULL, 0);
    block = add("d/l", '2', NULL, 0);
    strcpy((char *) block + 157, "../a.txt");
    sum(block);
    snprintf(pax, sizeof(pax), "15 path=d/long\n13 comment=x\n");
    add("PaxHeader", 'x', pax, strlen(pax));
    add("short", '0', "two", 3);
    add("././@LongLink", 'L', "gnu/name", 9);
    add("cut", '0', "x", 1);
    add("pax_global", 'g', "14 comment=no\n", 14);
    block = add("file", '0', "y", 1);
    strcpy((char *) block + 345, "pre/fix");
    sum(block);
    end();

    for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        is_string(readout(pieces[i]),
                  "[D  644][F a.txt 644]one[F empty 644][D d 644]"
                  "[L d/l 644 ../a.txt][F d/long 644]two[F gnu/name 644]x"
                  "[F pre/fix/file 644]y", "in pieces of %u",
                  (unsigned) pieces[i]);
    }

    start();
    end();
    is_string(readout(512), "", "one with nothing in it");

    start();
    add("a", '0', NULL, 0);
    is_string(readout(512), "cut short", "without an end");
    archive_size += 0;
    memset(archive + archive_size, 0, 512);
    archive_size += 512;
    is_string(readout(512), "cut short", "half an end");
}


static void
one(const char *name, char type, const char *target, const char *error)
{
    uint8_t  *block;

    start();
    block = add(name, type, NULL, 0);

    if (target != NULL) {
        memcpy(block + 157, target, strlen(target));
        sum(block);
    }

    end();
    ok(strstr(readout(512), error) != NULL, "\"%s\" of type %c: %s", name,
       type, readout(512));
}


static void
test_bad(void)
{
    unsigned  i;
    uint8_t  *block;
    char      name[SANDBOX_TAR_MAX_NAME * 2], pax[64];

    one("/etc/x", '0', NULL, "absolute");
    one("../x", '0', NULL, "..");
    one("a/../../x", '0', NULL, "..");
    one("a//b", '0', NULL, "A path");
    one("", '0', NULL, "no name");
    one(".", '0', NULL, "no name");
    one("x", '1', "a", "something else");
    one("x", '3', NULL, "something else");
    one("x", '4', NULL, "something else");
    one("x", '6', NULL, "something else");
    one("x", 'S', NULL, "something else");
    one("x", '2', "/etc/passwd", "leads out");
    one("x", '2', "..", "leads out");
    one("a/x", '2', "../..", "leads out");
    one("a/x", '2', "b/../../../c", "leads out");
    one("x", '2', "", "leads out");

    start();
    block = add("a", '0', NULL, 0);
    block[0] = 'b';
    end();
    ok(strstr(readout(512), "no plain tar") != NULL, "a wrong sum");

    start();
    block = add("a", '0', NULL, 0);
    memcpy(block + 124, "zzzzzzzzzzz", 11);
    sum(block);
    end();
    ok(strstr(readout(512), "size") != NULL, "a size that is none");

    start();
    block = add("a", '0', NULL, 0);
    block[124] = 0x80;
    sum(block);
    end();
    ok(strstr(readout(512), "size") != NULL, "a binary size");

    start();
    block = add("a", '0', NULL, 0);
    memcpy(block + 124, "77777777777", 11);
    sum(block);
    end();
    ok(strstr(readout(512), "256 MiB") != NULL, "eight gigabytes");

    start();
    block = add("a", '5', NULL, 0);
    memcpy(block + 124, "00000000001", 11);
    sum(block);
    end();
    ok(strstr(readout(512), "no file") != NULL, "a directory with bytes");

    start();
    block = add("x", 'x', NULL, 0);
    memcpy(block + 124, "00000200000", 11);
    sum(block);
    end();
    ok(strstr(readout(512), "too long") != NULL, "64 KiB of pax");

    for (i = 0; i < 6; i++) {
        static const char  *records[] = {
            "99 path=x\n", "path=x\n", "9 path=x", "5 xx\n", "12 pathxxxx\n",
            "18 size=123x\n"
        };

        start();
        add("x", 'x', records[i], strlen(records[i]));
        add("a", '0', NULL, 0);
        end();
        ok(readout(512)[0] != '[', "pax %u: %s", i, readout(512));
    }

    start();
    add("x", 'x', "26 GNU.sparse.major=1.....\n", 27);
    add("a", '0', NULL, 0);
    end();
    ok(readout(512)[0] != '[', "sparse: %s", readout(512));

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    start();
    add("x", 'L', name, sizeof(name));
    add("a", '0', NULL, 0);
    end();
    ok(strstr(readout(512), "too long") != NULL, "a name of 2 KiB");

    for (i = 0; i < 3; i++) {
        static const char  *records[] = {
            "9 path=x\n", "9 size=1\n", "14 linkpath=x\n"
        };

        start();
        add("x", 'g', records[i], strlen(records[i]));
        add("a", '0', NULL, 0);
        end();
        ok(strstr(readout(512), "for all entries") != NULL, "global %u: %s",
           i, readout(512));
    }

    for (i = 0; i < 6; i++) {
        static const char  types[][4] = {
            "xx0", "xL0", "LL0", "Kx0", "Lg0", "LKL"
        };

        start();
        add("one", types[i][0], "9 path=x\n", 9);
        add("two", types[i][1], "9 path=y\n", 9);
        add("three", types[i][2], "9 path=y\n", 9);
        end();
        ok(strstr(readout(512), "two headers") != NULL, "\"%s\": %s",
           types[i], readout(512));
    }

    start();
    add("a", '0', NULL, 0);
    add("one", 'x', "11 mtime=1\n", 11);
    end();
    ok(strstr(readout(512), "no entry") != NULL, "a header of nothing");

    start();
    add("one", 'L', "name", 4);
    add("one", 'K', "a", 1);
    add("x", '2', NULL, 0);
    end();
    is_string(readout(512), "[L name 644 a]", "a long name and a long link");

    start();
    add("one", 'L', NULL, 0);
    add("x", '0', NULL, 0);
    end();
    ok(strstr(readout(512), "malformed") != NULL, "a long name that is empty");

    start();
    snprintf(pax, sizeof(pax), "16 path=../../x\n");
    add("x", 'x', pax, strlen(pax));
    add("a", '0', NULL, 0);
    end();
    ok(strstr(readout(512), "..") != NULL, "a pax name that leads out");

    start();
    snprintf(pax, sizeof(pax), "20 size=1000000000\n");
    add("x", 'x', pax, strlen(pax));
    add("a", '0', NULL, 0);
    end();
    ok(readout(512)[0] != '[', "a pax size of a gigabyte: %s", readout(512));

    start();
    memset(archive, 0, 512);
    archive_size = 512;
    add("a", '0', NULL, 0);
    end();
    ok(strstr(readout(512), "follows") != NULL, "more behind a zero block");
}


static void
test_many(void)
{
    int             rc;
    size_t          size, length;
    unsigned        n;
    const uint8_t  *p, *data;

    static sandbox_tar_t  tar;

    start();
    add("a", '0', NULL, 0);
    sandbox_tar_init(&tar);

    for (n = 0; n <= SANDBOX_TAR_MAX_ENTRIES; n++) {
        p = archive;
        size = 512;
        rc = sandbox_tar_next(&tar, &p, &size, &data, &length);

        if (rc != SANDBOX_TAR_ENTRY) {
            break;
        }
    }

    is_number(n, SANDBOX_TAR_MAX_ENTRIES, "so many entries, then no more");
    is_number(rc, SANDBOX_TAR_BAD, "refused");

    start();
    add("x", 'x', NULL, 0);
    sandbox_tar_init(&tar);

    for (n = 0; n < 10 * SANDBOX_TAR_MAX_ENTRIES; n++) {
        p = archive;
        size = 512;

        if (sandbox_tar_next(&tar, &p, &size, &data, &length)
            == SANDBOX_TAR_BAD)
        {
            break;
        }
    }

    ok(n < 10 * SANDBOX_TAR_MAX_ENTRIES, "headers without end are refused");
}


static void
test_paths(void)
{
    char      out[SANDBOX_TAR_MAX_NAME], deep[256];
    unsigned  i;

    is_number(sandbox_tar_path(out, "./a/./b/", 8) == NULL, 1, "a clean path");
    is_string(out, "a/b", "without dots and slashes around it");
    is_number(sandbox_tar_path(out, "", 0) == NULL, 1, "nothing");
    is_string(out, "", "is the top");
    is_number(sandbox_tar_path(out, "a\0b", 3) == NULL, 0, "a NUL");

    for (i = 0; i < sizeof(deep); i += 2) {
        deep[i] = 'd';
        deep[i + 1] = '/';
    }

    is_number(sandbox_tar_path(out, deep, 2 * SANDBOX_TAR_MAX_DEPTH) == NULL, 1,
              "as deep as may be");
    is_number(sandbox_tar_path(out, deep, 2 * SANDBOX_TAR_MAX_DEPTH + 2) == NULL,
              0, "one deeper");

    ok(sandbox_tar_inside("a/b", "../c"), "a link beside");
    ok(sandbox_tar_inside("a/b/c", ".././../x/./y"), "a link up and down");

    /* x could be a link to a place that is not so deep */

    ok(!sandbox_tar_inside("a/b", "./x/../y"), "a link to and fro");
    ok(!sandbox_tar_inside("q", "x/y/z/k/.."), "a link through a link");
    ok(!sandbox_tar_inside("a/b", "../../c"), "a link above");
    ok(!sandbox_tar_inside("b", "x/../../y"), "a link above in between");
}


int
main(void)
{
    test_good();
    test_bad();
    test_many();
    test_paths();

    return test_done();
}
