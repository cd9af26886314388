/*
 * Reading the table of egress policies, strictly, and finding in it.
 * Knows what a policy says, not what is done about it.
 */

#include <string.h>

#include "sandbox_egress.h"


/* bits of what was seen in a policy */

enum {
    SEEN_ID = 1, SEEN_NAME = 2, SEEN_CONNECTIONS = 4, SEEN_BYTES = 8,
    SEEN_TIME = 16, SEEN_INDEX = 32, SEEN_CA = 64
};


static uint32_t sandbox_egress_id(const sandbox_field_t *policy);
static int sandbox_egress_read(const sandbox_field_t *field,
    sandbox_egress_policy_t *policy);
static int sandbox_egress_field(const sandbox_field_t *field,
    sandbox_egress_policy_t *policy, unsigned *bit);
static int sandbox_egress_entry(const uint8_t *host, size_t length);
static int sandbox_egress_index(const uint8_t *p, size_t length);
static int sandbox_egress_pem(const uint8_t *p, size_t length);


int
sandbox_egress_check(const uint8_t *p, size_t size)
{
    int                       rc;
    unsigned                  i, n;
    uint32_t                  ids[SANDBOX_EGRESS_MAX_POLICIES];
    sandbox_field_t           field;
    sandbox_fields_t          fields;
    sandbox_egress_policy_t   policy;

    if (size > SANDBOX_WIRE_MAX_TABLE) {
        return SANDBOX_BAD;
    }

    n = 0;
    sandbox_fields_init(&fields, p, size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        if (field.tag != SANDBOX_TAG_EGRESS_POLICY
            || n == SANDBOX_EGRESS_MAX_POLICIES
            || sandbox_egress_read(&field, &policy) != SANDBOX_OK)
        {
            return SANDBOX_BAD;
        }

        for (i = 0; i < n; i++) {
            if (ids[i] == policy.id) {
                return SANDBOX_BAD;
            }
        }

        ids[n++] = policy.id;
    }

    return rc == SANDBOX_END ? SANDBOX_OK : SANDBOX_BAD;
}


int
sandbox_egress_next(sandbox_fields_t *table, sandbox_egress_policy_t *policy)
{
    int              rc;
    sandbox_field_t  field;

    rc = sandbox_fields_next(table, &field);

    return rc == SANDBOX_OK ? sandbox_egress_read(&field, policy) : rc;
}


int
sandbox_egress_find(const uint8_t *p, size_t size, uint32_t id,
    sandbox_egress_policy_t *policy)
{
    sandbox_field_t   field;
    sandbox_fields_t  table;

    sandbox_fields_init(&table, p, size);

    /* each command asks: names and certificates of others are passed over */

    while (sandbox_fields_next(&table, &field) == SANDBOX_OK) {
        if (sandbox_egress_id(&field) == id) {
            return sandbox_egress_read(&field, policy) == SANDBOX_OK;
        }
    }

    return 0;
}


/* of one that was checked; 0: it has none */

static uint32_t
sandbox_egress_id(const sandbox_field_t *policy)
{
    uint64_t          id;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, policy->data, policy->length);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if (field.tag == SANDBOX_TAG_EGRESS_ID) {
            return sandbox_field_number(&field, UINT32_MAX, &id) == SANDBOX_OK
                   ? (uint32_t) id : 0;
        }
    }

    return 0;
}


static int
sandbox_egress_read(const sandbox_field_t *field,
    sandbox_egress_policy_t *policy)
{
    int               rc;
    unsigned          seen, bit;
    sandbox_field_t   part;
    sandbox_fields_t  fields;

    memset(policy, 0, sizeof(*policy));
    policy->fields = field->data;
    policy->size = field->length;

    seen = 0;
    sandbox_fields_init(&fields, field->data, field->length);

    while ((rc = sandbox_fields_next(&fields, &part)) == SANDBOX_OK) {

        bit = 0;

        if (sandbox_egress_field(&part, policy, &bit) == SANDBOX_BAD
            || (seen & bit))
        {
            return SANDBOX_BAD;
        }

        seen |= bit;
    }

    bit = SEEN_ID|SEEN_NAME|SEEN_CONNECTIONS|SEEN_BYTES|SEEN_TIME;

    return rc == SANDBOX_END && (seen & bit) == bit ? SANDBOX_OK : SANDBOX_BAD;
}


static int
sandbox_egress_field(const sandbox_field_t *field,
    sandbox_egress_policy_t *policy, unsigned *bit)
{
    uint64_t  id;

    switch (field->tag) {

    case SANDBOX_TAG_EGRESS_ID:
        *bit = SEEN_ID;

        if (sandbox_field_number(field, UINT32_MAX, &id) != SANDBOX_OK
            || id == 0)
        {
            return SANDBOX_BAD;
        }

        policy->id = (uint32_t) id;
        return SANDBOX_OK;

    case SANDBOX_TAG_EGRESS_NAME:
        *bit = SEEN_NAME;
        policy->name = field->data;
        policy->name_length = field->length;

        /* it goes into logs and answers */

        return field->length <= SANDBOX_WIRE_MAX_POLICY_NAME
               && sandbox_command_id_valid(field->data, field->length)
               ? SANDBOX_OK : SANDBOX_BAD;

    case SANDBOX_TAG_EGRESS_HOST:
        return ++policy->hosts <= SANDBOX_EGRESS_MAX_HOSTS
               && sandbox_egress_entry(field->data, field->length)
               ? SANDBOX_OK : SANDBOX_BAD;

    case SANDBOX_TAG_EGRESS_CONNECTIONS:
        *bit = SEEN_CONNECTIONS;
        return sandbox_field_number(field, UINT32_MAX, &policy->connections);

    case SANDBOX_TAG_EGRESS_BYTES:
        *bit = SEEN_BYTES;
        return sandbox_field_number(field, UINT64_MAX, &policy->bytes);

    case SANDBOX_TAG_EGRESS_TIME_MS:
        *bit = SEEN_TIME;
        return sandbox_field_number(field, UINT32_MAX, &policy->time_ms);

    case SANDBOX_TAG_EGRESS_INDEX:
        *bit = SEEN_INDEX;
        policy->index = field->data;
        policy->index_length = field->length;

        return sandbox_egress_index(field->data, field->length)
               ? SANDBOX_OK : SANDBOX_BAD;

    case SANDBOX_TAG_EGRESS_CA:
        *bit = SEEN_CA;
        policy->ca = field->data;
        policy->ca_length = field->length;

        return sandbox_egress_pem(field->data, field->length)
               ? SANDBOX_OK : SANDBOX_BAD;

    default:
        return SANDBOX_BAD;
    }
}


int
sandbox_egress_allows(const sandbox_egress_policy_t *policy,
    const uint8_t *host, size_t length)
{
    size_t            n;
    const uint8_t    *p;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, policy->fields, policy->size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag != SANDBOX_TAG_EGRESS_HOST || field.length == 0) {
            continue;
        }

        p = field.data;
        n = field.length;

        if (p[0] == '*') {

            /* the dot is part of what must be equal */

            p++;
            n--;

            if (length > n && memcmp(host + length - n, p, n) == 0) {
                return 1;
            }

        } else if (length == n && memcmp(host, p, n) == 0) {
            return 1;
        }
    }

    return 0;
}


/* an entry of a policy: a name, or "*." before one */

static int
sandbox_egress_entry(const uint8_t *host, size_t length)
{
    if (length > SANDBOX_WIRE_MAX_HOST) {
        return 0;
    }

    if (length > 2 && host[0] == '*' && host[1] == '.') {
        host += 2;
        length -= 2;
    }

    return sandbox_egress_host(host, length);
}


int
sandbox_egress_host(const uint8_t *host, size_t length)
{
    int     digits, hex;
    size_t  i, label;

    if (length == 0 || length > SANDBOX_EGRESS_MAX_NAME) {
        return 0;
    }

    label = 0;
    digits = 1;
    hex = 1;

    for (i = 0; i < length; i++) {

        if (host[i] == '.') {
            if (label == 0 || host[i - 1] == '-') {
                return 0;
            }

            label = 0;
            digits = 1;
            hex = 1;
            continue;
        }

        if (!((host[i] >= 'a' && host[i] <= 'z')
              || (host[i] >= '0' && host[i] <= '9')
              || (host[i] == '-' && label != 0))
            || ++label > 63)
        {
            return 0;
        }

        digits &= host[i] >= '0' && host[i] <= '9';

        /* "0x" with or without digits after it is a number to some */

        hex &= label == 1 ? host[i] == '0'
               : label == 2 ? host[i] == 'x'
               : (host[i] >= '0' && host[i] <= '9')
                 || (host[i] >= 'a' && host[i] <= 'f');
    }

    return label != 0 && host[length - 1] != '-' && !digits && !hex;
}


/* it becomes the value of an environment variable */

static int
sandbox_egress_index(const uint8_t *p, size_t length)
{
    size_t  i;

    if (length > SANDBOX_WIRE_MAX_INDEX
        || length < sizeof("https://") || memcmp(p, "https://", 8) != 0)
    {
        return 0;
    }

    for (i = 0; i < length; i++) {
        if (p[i] <= 0x20 || p[i] >= 0x7f) {
            return 0;
        }
    }

    return 1;
}


/* text with a certificate in it; whether it is a good one its readers say */

static int
sandbox_egress_pem(const uint8_t *p, size_t length)
{
    size_t  i;

    static const char  start[] = "-----BEGIN CERTIFICATE-----";

    if (length > SANDBOX_WIRE_MAX_CA || memchr(p, '\0', length) != NULL) {
        return 0;
    }

    for (i = 0; i + sizeof(start) - 1 <= length; i++) {
        if (p[i] == '-' && memcmp(p + i, start, sizeof(start) - 1) == 0) {
            return 1;
        }
    }

    return 0;
}
