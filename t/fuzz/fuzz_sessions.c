/*
 * Foreign bytes as the records of SESSIONS, as the module reads them: put
 * together they are the same in pieces of any size, within their bounds, and
 * each has the session that it begins with or is refused.
 */

/* link: src/wire/sandbox_record.c src/wire/sandbox_wire.c */
/* covers: src/wire/sandbox_record.c */

#include <stdlib.h>
#include <string.h>

#include "sandbox_record.h"
#include "sandbox_wire.h"


#define MAX    600
#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static uint64_t fuzz_records(const uint8_t *p, size_t size, size_t piece,
    size_t *bytes);
static uint64_t fuzz_one(const sandbox_record_t *record, uint64_t h);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    size_t    whole, pieces, at, n;
    uint64_t  h;

    if (size == 0) {
        return 0;
    }

    h = fuzz_records(p + 1, size - 1, size, &whole);
    check(fuzz_records(p + 1, size - 1, p[0] % 37 + 1, &pieces) == h);
    check(whole == pieces);

    /* as many bytes as their lengths say */

    p++;
    size--;

    for (at = 0; size - at >= 4; at += 4 + n) {
        n = sandbox_get32(p + at);

        if (n == 0 || n > MAX || size - at - 4 < n) {
            break;
        }
    }

    check(whole == at);

    return 0;
}


static uint64_t
fuzz_records(const uint8_t *p, size_t size, size_t piece, size_t *bytes)
{
    int                rc;
    size_t             n;
    uint64_t           h;
    uint8_t           *copy;
    const uint8_t     *pos;
    sandbox_record_t   record;

    h = 0xcbf29ce484222325;
    *bytes = 0;

    memset(&record, 0, sizeof(record));
    record.max = MAX;
    record.data = malloc(MAX);
    check(record.data != NULL);

    rc = SANDBOX_AGAIN;

    while (size && rc != SANDBOX_BAD) {

        /* a copy each, so that no byte beyond is read unseen */

        n = piece < size ? piece : size;
        copy = malloc(n);
        check(copy != NULL);
        memcpy(copy, p, n);

        p += n;
        size -= n;
        pos = copy;

        for ( ;; ) {
            rc = sandbox_record_take(&record, &pos, &n);

            if (rc != SANDBOX_OK) {
                break;
            }

            check(record.size > 0 && record.size <= MAX);
            *bytes += 4 + record.size;
            h = fuzz_one(&record, h);
        }

        check(rc == SANDBOX_BAD || n == 0);
        free(copy);
    }

    free(record.data);

    return h;
}


static uint64_t
fuzz_one(const sandbox_record_t *record, uint64_t h)
{
    size_t          i;
    uint8_t        *copy;
    const uint8_t  *session;

    copy = malloc(record->size);
    check(copy != NULL);
    memcpy(copy, record->data, record->size);

    session = sandbox_record_session(copy, record->size);

    if (session != NULL) {
        check(record->size >= SANDBOX_WIRE_FIELD_SIZE
                              + SANDBOX_WIRE_SESSION_SIZE);
        check(session == copy + SANDBOX_WIRE_FIELD_SIZE);
        check(sandbox_get16(copy) == SANDBOX_TAG_SESSION);
        check(sandbox_get32(copy + 2) == SANDBOX_WIRE_SESSION_SIZE);
    }

    for (i = 0; i < record->size; i++) {
        h = (h ^ copy[i]) * 0x100000001b3;
    }

    free(copy);

    return (h ^ (session != NULL)) * 0x100000001b3;
}
