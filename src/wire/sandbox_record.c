/*
 * Puts records together from pieces of any size.  Knows nothing of what is in
 * them, but for the first field of one kind.
 */

#include <string.h>

#include "sandbox_record.h"
#include "sandbox_wire.h"


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
