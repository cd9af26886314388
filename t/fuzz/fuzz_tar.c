/*
 * Foreign bytes as a tar, in pieces of any size.  With a leading odd byte the
 * sums of its headers are put right first, or nothing would come far.
 */

/* link: src/tar/sandbox_tar.c */
/* covers: src/tar/sandbox_tar.c */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox_tar.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_sums(uint8_t *p, size_t size);
static void fuzz_entry(const sandbox_tar_entry_t *entry);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    int             rc;
    size_t          piece, n, length;
    uint8_t        *copy;
    uint64_t        left, bytes;
    unsigned        entries;
    const uint8_t  *at, *from, *data;

    static sandbox_tar_t  tar;

    if (size < 2) {
        return 0;
    }

    copy = malloc(size - 2 + 1);
    check(copy != NULL);
    memcpy(copy, p + 2, size - 2);

    if (p[0] & 1) {
        fuzz_sums(copy, size - 2);
    }

    piece = 1 + 4 * p[1];
    size -= 2;
    at = copy;
    left = 0;
    bytes = 0;
    entries = 0;
    rc = SANDBOX_TAR_AGAIN;
    sandbox_tar_init(&tar);

    while (size && rc != SANDBOX_TAR_BAD && rc != SANDBOX_TAR_DONE) {
        n = size < piece ? size : piece;
        size -= n;
        from = at;
        at += n;

        do {
            rc = sandbox_tar_next(&tar, &from, &n, &data, &length);
            check(from + n == at);

            switch (rc) {

            case SANDBOX_TAR_ENTRY:
                check(left == 0);
                fuzz_entry(&tar.entry);
                left = tar.entry.size;
                bytes += left;
                check(++entries <= SANDBOX_TAR_MAX_ENTRIES);
                check(bytes <= SANDBOX_TAR_MAX_BYTES);
                break;

            case SANDBOX_TAR_DATA:
                check(length > 0 && length <= left);
                check(data >= copy && data + length <= at);
                left -= length;
                break;

            case SANDBOX_TAR_AGAIN:
                check(n == 0);
                break;

            case SANDBOX_TAR_DONE:
                check(left == 0);
                break;

            default:
                check(rc == SANDBOX_TAR_BAD && tar.error != NULL);
            }

        } while (rc == SANDBOX_TAR_ENTRY || rc == SANDBOX_TAR_DATA);
    }

    free(copy);

    return 0;
}


static void
fuzz_sums(uint8_t *p, size_t size)
{
    size_t    at, i;
    unsigned  sum;

    static const uint8_t  zero[SANDBOX_TAR_BLOCK];

    for (at = 0; at + SANDBOX_TAR_BLOCK <= size; at += SANDBOX_TAR_BLOCK) {
        if (memcmp(p + at, zero, SANDBOX_TAR_BLOCK) == 0) {
            continue;
        }

        memset(p + at + 148, ' ', 8);

        for (sum = 0, i = 0; i < SANDBOX_TAR_BLOCK; i++) {
            sum += p[at + i];
        }

        snprintf((char *) p + at + 148, 8, "%06o", sum);
    }
}


/* Whoever unpacks it may rely on this. */

static void
fuzz_entry(const sandbox_tar_entry_t *entry)
{
    size_t       n;
    unsigned     parts;
    const char  *part;

    parts = 0;
    check(strlen(entry->path) < SANDBOX_TAR_MAX_NAME);
    check(entry->mode <= 0777);
    check(entry->path[0] != '\0' || entry->type == SANDBOX_TAR_DIRECTORY);
    check(entry->type == SANDBOX_TAR_FILE || entry->size == 0);

    for (part = entry->path; *part; part += n + (part[n] == '/')) {
        n = strcspn(part, "/");
        check(n > 0 && n <= 255 && ++parts <= SANDBOX_TAR_MAX_DEPTH);
        check(!(n == 1 && part[0] == '.'));
        check(!(n == 2 && part[0] == '.' && part[1] == '.'));
    }

    if (entry->type == SANDBOX_TAR_LINK) {
        check(strlen(entry->target) < SANDBOX_TAR_MAX_NAME);
        check(entry->target[0] != '/' && entry->target[0] != '\0');
    }
}
