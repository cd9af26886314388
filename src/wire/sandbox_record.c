/*
 * Puts records together from pieces of any size, and reads those that are the
 * same for all who ask.  Knows no session and no engine.
 */

#include <string.h>

#include "sandbox_record.h"
#include "sandbox_wire.h"


static int sandbox_record_engine_fields(sandbox_engine_t *engine,
    const uint8_t *p, size_t size);
static int sandbox_record_plain(const sandbox_field_t *field, size_t max,
    const char *marks);


int
sandbox_record_take(sandbox_record_t *record, const uint8_t **p, size_t *n)
{
    size_t  m;

    while (*n) {

        if (record->have < 4) {

            record->length[record->have++] = *(*p)++;
            (*n)--;

            if (record->have < 4) {
                continue;
            }

            record->size = sandbox_get32(record->length);
            record->got = 0;

            if (record->size == 0 || record->size > record->max) {
                return SANDBOX_BAD;
            }
        }

        m = record->size - record->got;

        if (m > *n) {
            m = *n;
        }

        memcpy(record->data + record->got, *p, m);

        record->got += m;
        *p += m;
        *n -= m;

        if (record->got == record->size) {
            record->have = 0;
            return SANDBOX_OK;
        }
    }

    return SANDBOX_AGAIN;
}


const uint8_t *
sandbox_record_session(const uint8_t *p, size_t size)
{
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, p, size);

    if (sandbox_fields_next(&fields, &field) != SANDBOX_OK
        || field.tag != SANDBOX_TAG_SESSION
        || field.length != SANDBOX_WIRE_SESSION_SIZE)
    {
        return NULL;
    }

    return field.data;
}


int
sandbox_record_engine(sandbox_engine_t *engine, const uint8_t *p, size_t size)
{
    int  rc;

    memset(engine, 0, sizeof(*engine));

    rc = sandbox_record_engine_fields(engine, p, size);

    if (engine->name.length == 0) {
        rc = SANDBOX_BAD;
    }

    /* they go into a header and a name */

    if (engine->ready
        && (engine->generation == 0
            || !sandbox_record_plain(&engine->metadata,
                                     SANDBOX_ENGINE_MAX_METADATA, "+/=-_")
            || !sandbox_record_plain(&engine->domain,
                                     SANDBOX_ENGINE_MAX_DOMAIN, ".-")))
    {
        rc = SANDBOX_BAD;
    }

    if (engine->proxy.length
        && !sandbox_record_plain(&engine->proxy, SANDBOX_WIRE_MAX_PROXY,
                                 ".:[]"))
    {
        rc = SANDBOX_BAD;
    }

    if (rc == SANDBOX_BAD) {
        engine->ready = 0;
        engine->proxy.length = 0;
    }

    return rc;
}


static int
sandbox_record_engine_fields(sandbox_engine_t *engine, const uint8_t *p,
    size_t size)
{
    int               rc, result;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    result = SANDBOX_OK;
    sandbox_fields_init(&fields, p, size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        switch (field.tag) {

        case SANDBOX_TAG_ENGINE_NAME:
            engine->name = field;
            break;

        case SANDBOX_TAG_READY:
            rc = sandbox_field_number(&field, 1, &engine->ready);
            break;

        case SANDBOX_TAG_ENGINE_GENERATION:
            rc = sandbox_field_number(&field, INT64_MAX, &engine->generation);
            break;

        case SANDBOX_TAG_ENGINE_METADATA:
            engine->metadata = field;
            break;

        case SANDBOX_TAG_ENGINE_DOMAIN:
            engine->domain = field;
            break;

        case SANDBOX_TAG_DETAIL:
            engine->detail = field;
            break;

        case SANDBOX_TAG_EGRESS_PROXY:
            engine->proxy = field;
            break;
        }

        /* who it is is told all the same */

        if (rc != SANDBOX_OK) {
            result = SANDBOX_BAD;
        }
    }

    return rc == SANDBOX_END ? result : SANDBOX_BAD;
}


/* letters, digits and marks, one at least */

static int
sandbox_record_plain(const sandbox_field_t *field, size_t max,
    const char *marks)
{
    size_t   i;
    uint8_t  ch;

    if (field->length > max) {
        return 0;
    }

    for (i = 0; i < field->length; i++) {
        ch = field->data[i];

        if (!((ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z')
              || (ch >= 'A' && ch <= 'Z')
              || (ch != '\0' && strchr(marks, ch) != NULL)))
        {
            return 0;
        }
    }

    return field->length != 0;
}
