/*
 * Foreign bytes as the records of an answer, as the module reads them.  The
 * first byte chooses: those of SESSIONS, which put together are the same in
 * pieces of any size, within their bounds, and each has the session that it
 * begins with or is refused; or one ENGINE, which is ready only with what may
 * go into a header and a name, and is the same when it is told again.
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

static void fuzz_sessions(const uint8_t *p, size_t size, size_t piece);
static void fuzz_engine(const uint8_t *p, size_t size);
static void fuzz_text(const sandbox_field_t *field, const uint8_t *p,
    size_t size);
static void fuzz_plain(const sandbox_field_t *field, size_t max,
    const char *letters);
static void fuzz_again(const sandbox_engine_t *engine, int result);
static uint64_t fuzz_records(const uint8_t *p, size_t size, size_t piece,
    size_t *bytes);
static uint64_t fuzz_one(const sandbox_record_t *record, uint64_t h);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    if (size == 0) {
        return 0;
    }

    if (p[0] & 0x80) {
        fuzz_engine(p + 1, size - 1);

    } else {
        fuzz_sessions(p + 1, size - 1, p[0] % 37 + 1);
    }

    return 0;
}


static void
fuzz_sessions(const uint8_t *p, size_t size, size_t piece)
{
    size_t    whole, pieces, at, n;
    uint64_t  h;

    h = fuzz_records(p, size, size, &whole);
    check(fuzz_records(p, size, piece, &pieces) == h);
    check(whole == pieces);

    /* as many bytes as their lengths say */

    for (at = 0; size - at >= 4; at += 4 + n) {
        n = sandbox_get32(p + at);

        if (n == 0 || n > MAX || size - at - 4 < n) {
            break;
        }
    }

    check(whole == at);
}


static void
fuzz_engine(const uint8_t *p, size_t size)
{
    int                rc;
    uint8_t           *copy;
    sandbox_engine_t   engine;

    copy = malloc(size + 1);
    check(copy != NULL);
    memcpy(copy + 1, p, size);

    memset(&engine, 0xaa, sizeof(engine));
    rc = sandbox_record_engine(&engine, copy + 1, size);
    check(rc == SANDBOX_OK || rc == SANDBOX_BAD);

    fuzz_text(&engine.name, copy + 1, size);
    fuzz_text(&engine.metadata, copy + 1, size);
    fuzz_text(&engine.domain, copy + 1, size);
    fuzz_text(&engine.detail, copy + 1, size);
    fuzz_text(&engine.proxy, copy + 1, size);

    if (rc == SANDBOX_BAD) {
        check(engine.ready == 0 && engine.proxy.length == 0);

    } else {
        check(engine.name.length != 0 && engine.ready <= 1);
    }

    if (engine.ready) {
        check(engine.generation != 0 && engine.generation <= INT64_MAX);
        fuzz_plain(&engine.metadata, SANDBOX_ENGINE_MAX_METADATA, "+/=-_");
        fuzz_plain(&engine.domain, SANDBOX_ENGINE_MAX_DOMAIN, ".-");
    }

    if (engine.proxy.length) {
        fuzz_plain(&engine.proxy, SANDBOX_WIRE_MAX_PROXY, ".:[]");
    }

    fuzz_again(&engine, rc);
    free(copy);
}


static void
fuzz_text(const sandbox_field_t *field, const uint8_t *p, size_t size)
{
    if (field->length) {
        check(field->data >= p && field->length <= size
              && (size_t) (field->data - p) <= size - field->length);
    }
}


/* nothing that ends a line, a header's value or a host's name */

static void
fuzz_plain(const sandbox_field_t *field, size_t max, const char *letters)
{
    char    text[SANDBOX_ENGINE_MAX_METADATA + 128];
    size_t  n;

    check(field->length >= 1 && field->length <= max && max < sizeof(text));
    memcpy(text, field->data, field->length);
    text[field->length] = '\0';

    n = strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ+/=-_.:[]");
    check(n == field->length);
    check(strcspn(text, "+/=-_.:[]") == field->length
          || strpbrk(text, letters) != NULL);
}


/* as the owner of the sessions writes it */

static void
fuzz_again(const sandbox_engine_t *engine, int result)
{
    uint8_t           *b;
    sandbox_writer_t   w;
    sandbox_engine_t   other;

    static const size_t  room = 16384;

    b = malloc(room);
    check(b != NULL);

    sandbox_writer_init(&w, b, room);
    sandbox_write_bytes(&w, SANDBOX_TAG_ENGINE_NAME, engine->name.data,
                        engine->name.length);
    sandbox_write_number(&w, SANDBOX_TAG_READY, engine->ready);

    if (engine->ready) {
        sandbox_write_number(&w, SANDBOX_TAG_ENGINE_GENERATION,
                             engine->generation);
        sandbox_write_bytes(&w, SANDBOX_TAG_ENGINE_METADATA,
                            engine->metadata.data, engine->metadata.length);
        sandbox_write_bytes(&w, SANDBOX_TAG_ENGINE_DOMAIN,
                            engine->domain.data, engine->domain.length);

    } else {
        sandbox_write_bytes(&w, SANDBOX_TAG_DETAIL, engine->detail.data,
                            engine->detail.length);
    }

    if (engine->proxy.length) {
        sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_PROXY, engine->proxy.data,
                            engine->proxy.length);
    }

    if (!w.failed) {
        check(sandbox_record_engine(&other, b, w.pos - b)
              == (engine->name.length ? SANDBOX_OK : SANDBOX_BAD));
        check(result == SANDBOX_BAD || other.ready == engine->ready);
        check(other.name.length == engine->name.length);
        check(engine->name.length == 0
              || memcmp(other.name.data, engine->name.data,
                        engine->name.length)
                 == 0);

        if (other.ready) {
            check(other.generation == engine->generation
                  && other.metadata.length == engine->metadata.length
                  && other.domain.length == engine->domain.length);
        }
    }

    free(b);
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
