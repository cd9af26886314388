/*
 * Foreign bytes in place of what ripgrep writes: records keep within their
 * bounds, and are the same in pieces of any size.
 */

/* link: src/agent/agent_search_record.c src/wire/sandbox_wire.c */
/* link: src/wire/sandbox_utf8.c */
/* covers: src/agent/agent_search_record.c */

#include <stdlib.h>
#include <string.h>

#include "agent_search.h"
#include "sandbox_utf8.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static uint64_t fuzz_records(const uint8_t *p, size_t size, size_t piece,
    int names);
static void fuzz_sentence(const uint8_t *p, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    uint64_t  whole;
    unsigned  names;

    if (size < 2) {
        return 0;
    }

    names = p[0] & 1;
    whole = fuzz_records(p + 2, size - 2, size, names);
    check(fuzz_records(p + 2, size - 2, p[1] + 1, names) == whole);

    fuzz_sentence(p + 1, size - 1);

    return 0;
}


/* A hash of all that was found. */

static uint64_t
fuzz_records(const uint8_t *p, size_t size, size_t piece, int names)
{
    int                           rc;
    size_t                        i, n, length;
    uint64_t                      h;
    uint8_t                      *copy;
    const uint8_t                *pos;
    static agent_search_record_t  r;

    h = 0xcbf29ce484222325;
    agent_search_init(&r, names);

    while (size) {
        n = size < piece ? size : piece;
        copy = malloc(n);
        check(copy != NULL);
        memcpy(copy, p, n);
        pos = copy;

        while ((rc = agent_search_next(&r, &pos, copy + n)) == SANDBOX_OK) {
            length = agent_search_text(&r);

            check(pos > copy && pos <= copy + n);
            check(r.path_size > 0 && strlen(r.path) == r.path_size);
            check(length <= SANDBOX_WIRE_MAX_TEXT && length <= r.text_size);
            check(!(names || r.binary) || r.text_size == 0);
            check(memchr(r.text, '\n', r.text_size) == NULL);

            for (i = 0; i < r.path_size; i++) {
                h = (h ^ (uint8_t) r.path[i]) * 0x100000001b3;
            }

            for (i = 0; i < length; i++) {
                h = (h ^ r.text[i]) * 0x100000001b3;
            }

            h = (h ^ r.line ^ r.offset << 20 ^ r.binary) * 0x100000001b3;
        }

        free(copy);

        if (rc == SANDBOX_BAD) {
            return h + 1;
        }

        p += n;
        size -= n;
    }

    return h;
}


static void
fuzz_sentence(const uint8_t *p, size_t size)
{
    char  out[AGENT_SEARCH_SENTENCE], *copy;

    copy = malloc(size);
    check(copy != NULL);
    memcpy(copy, p, size);
    agent_search_sentence(out, copy, size);
    free(copy);

    check(strlen(out) < AGENT_SEARCH_SENTENCE);
    check(sandbox_utf8_text((uint8_t *) out, strlen(out)));
    check(strchr(out, '\n') == NULL);
}
