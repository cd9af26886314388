/*
 * Foreign bytes as an HTTP/1.1 answer: in pieces of any size it is the same
 * answer, within its bounds, and what is missing is never taken for an end.
 */

/* link: src/wire/sandbox_answer.c */
/* covers: src/wire/sandbox_answer.c */

#include <stdlib.h>
#include <string.h>

#include "sandbox_answer.h"
#include "sandbox_wire.h"


#define MAX    200
#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static int fuzz_take(const uint8_t *p, size_t size, size_t piece,
    uint8_t *body, sandbox_answer_t *answer, size_t *used);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    int               rc;
    size_t            used, other;
    uint8_t           whole[MAX], pieces[MAX];
    sandbox_answer_t  answer, again;

    if (size == 0) {
        return 0;
    }

    rc = fuzz_take(p + 1, size - 1, size, whole, &answer, &used);

    check(rc == fuzz_take(p + 1, size - 1, p[0] % 37 + 1, pieces, &again,
                          &other));
    check(used == other);
    check(answer.size == again.size);
    check(memcmp(whole, pieces, answer.size) == 0);
    check((rc == SANDBOX_BAD) == (answer.problem != NULL));
    check(answer.problem == again.problem);

    if (rc == SANDBOX_OK) {
        check(answer.status >= 200 && answer.status <= 599);
        check(answer.json == again.json);

        /* the last byte was needed */

        check(fuzz_take(p + 1, used - 1, size, pieces, &again, &other)
              == SANDBOX_AGAIN);
    }

    return 0;
}


static int
fuzz_take(const uint8_t *p, size_t size, size_t piece, uint8_t *body,
    sandbox_answer_t *answer, size_t *used)
{
    int             rc;
    size_t          n, have, got, at;
    const uint8_t  *part, *from;

    memset(answer, 0, sizeof(sandbox_answer_t));
    answer->max = MAX;
    *used = 0;
    have = 0;
    rc = SANDBOX_AGAIN;

    while (*used < size && rc == SANDBOX_AGAIN) {

        n = (size - *used < piece) ? size - *used : piece;
        from = p + *used;
        at = n;

        do {
            rc = sandbox_answer_take(answer, &from, &n, &part, &got);

            check(have + got <= MAX);
            check(got == 0 || (part >= p && part + got <= p + size));

            memcpy(body + have, part, got);
            have += got;
        } while (rc == SANDBOX_AGAIN && n);

        *used += at - n;
    }

    check(have == answer->size);

    return rc;
}
