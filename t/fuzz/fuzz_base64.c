/*
 * Base64 in pieces: what is taken is, written again, the same bytes; and all
 * at once is no different.
 */

/* link: src/agent/agent_base64.c */
/* covers: src/agent/agent_base64.c */

#include <stdlib.h>
#include <string.h>

#include "agent_base64.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)

#define FUZZ_MOST  4096


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    char            text[FUZZ_MOST * 2];
    size_t          at, n, piece;
    ssize_t         rc, whole, sum;
    uint8_t         *one, *other;
    agent_base64_t  b;

    if (size < 1 || size > FUZZ_MOST) {
        return 0;
    }

    piece = p[0] % 16 + 1;
    p++;
    size--;

    /* no more room than is promised */

    one = malloc(size / 4 * 3 + 3);
    other = malloc(size / 4 * 3 + 3);
    check(one != NULL && other != NULL);

    memset(&b, 0, sizeof(b));
    whole = agent_base64_decode(&b, p, size, one);

    memset(&b, 0, sizeof(b));
    sum = 0;

    for (at = 0; at < size && sum != -1; at += n) {
        n = size - at < piece ? size - at : piece;
        rc = agent_base64_decode(&b, p + at, n, other + sum);
        sum = rc == -1 ? -1 : sum + rc;
    }

    check(sum == whole);

    if (whole > 0) {
        check((size_t) whole <= size / 4 * 3 + 3);
        check(memcmp(one, other, whole) == 0);

        for (at = 0, n = 0; at < (size_t) whole; at += 3, n += 4) {
            agent_base64_encode(text + n, one + at,
                                whole - at < 3 ? (unsigned) (whole - at) : 3);
        }

        memset(&b, 0, sizeof(b));
        check(agent_base64_decode(&b, (uint8_t *) text, n, other) == whole);
        check(memcmp(one, other, whole) == 0);
    }

    free(one);
    free(other);

    return 0;
}
