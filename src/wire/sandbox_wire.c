/*
 * Preamble, frames and fields of the wire protocol: bytes in, numbers out.
 * Knows no sockets, no nginx, no allocation.
 */

#include <string.h>

#include "sandbox_wire.h"


/* payload bounds of each frame type, in bytes */

static const struct {
    uint32_t  min;
    uint32_t  max;
} sandbox_frame_bounds[] = {
    { 0, 0 },
    { 0, SANDBOX_WIRE_MAX_ERROR },               /* HEAD */
    { 9, 8 + SANDBOX_WIRE_MAX_OUTPUT },          /* STDOUT */
    { 9, 8 + SANDBOX_WIRE_MAX_OUTPUT },          /* STDERR */
    { 17, 17 },                                  /* GAP */
    { 1, SANDBOX_WIRE_MAX_OUTPUT },              /* DATA */
    { 0, 0 },                                    /* PING */
    { 0, SANDBOX_WIRE_MAX_RESULT },              /* RESULT */
    { 0, SANDBOX_WIRE_MAX_ERROR },               /* ERROR */
    { 16, 16 },                                  /* STARTED */
    { 0, 0 }                                     /* CANCEL */
};


static const char  *sandbox_outcome_names[] = {
    "exit", "signal", "timeout", "cpu_limit", "oom", "output_limit",
    "disk_full", "cancelled", "sandbox_deleted", "runner_lost"
};


static const char  *sandbox_state_names[] = {
    "none", "creating", "running", "idle", "failed"
};


static const char  *sandbox_command_state_names[] = {
    "queued", "running", "ended"
};


static const char  *sandbox_file_type_names[] = {
    "file", "directory", "link", "other"
};


/* every code that runner and agent may send, with its HTTP status */

static const struct {
    const char  *code;
    unsigned     status;
} sandbox_codes[] = {
    { "bad_request",        400 },       /* preamble, head or body malformed */
    { "bad_pattern",        400 },       /* of a search */
    { "seq_unknown",        400 },       /* AFTER an event not there yet */
    { "slow_request",       408 },       /* no progress within the deadline */
    { "no_sandbox",         404 },
    { "command_not_found",  404 },
    { "file_not_found",     404 },
    { "expired",            410 },       /* the command is no longer kept */
    { "gone",               410 },       /* instance is not the current one */
    { "command_id_reused",  409 },       /* same id, another request */
    { "command_ended",      409 },       /* it can't read any more */
    { "stdin_closed",       409 },
    { "file_busy",          409 },       /* leased, or changed meanwhile */
    { "is_a_directory",     409 },
    { "not_a_directory",    409 },
    { "not_empty",          409 },
    { "stage_needed",       409 },       /* NEEDED says what is missing */
    { "precondition_failed", 412 },
    { "command_too_large",  413 },
    { "not_a_file",         422 },       /* a FIFO, device, socket */
    { "path_outside",       422 },       /* outside the allowed roots */
    { "not_permitted",      422 },       /* to the sandbox's user */
    { "cwd_missing",        422 },       /* not there, or not a directory */
    { "cwd_outside",        422 },       /* outside the allowed roots */
    { "too_many_pending",   429 },
    { "too_many_sandboxes", 429 },       /* per tenant */
    { "spawn_failed",       503 },       /* no process, no descriptor */
    { "not_on_this_backend", 501 },
    { "not_available",      501 },       /* the base has no such program */
    { "unauthorized_peer",  503 },       /* wrong runner key or peer uid */
    { "fenced",             503 },       /* another agent has the volumes */
    { "version_mismatch",   503 },
    { "at_capacity",        503 },
    { "runner_stopping",    503 },
    { "sandbox_failed",     503 },       /* it could not be started */
    { "unknown_base",       503 },       /* the runner has no such image */
    { "runner_lost",        503 },
    { "disk_full",          507 },
    { "internal",           500 }
};


int
sandbox_preamble_read(const uint8_t *p, sandbox_preamble_t *preamble)
{
    if (memcmp(p, SANDBOX_WIRE_MAGIC, SANDBOX_WIRE_MAGIC_SIZE) != 0) {
        return SANDBOX_BAD;
    }

    preamble->version = p[7];
    preamble->operation = p[8];
    preamble->base = sandbox_get16(p + 9);
    preamble->flags = p[11];
    preamble->head = sandbox_get32(p + 12);
    preamble->body = sandbox_get64(p + 16);
    preamble->instance = sandbox_get64(p + 24);
    memcpy(preamble->key, p + 32, SANDBOX_WIRE_KEY_SIZE);
    memcpy(preamble->session, p + 64, SANDBOX_WIRE_SESSION_SIZE);
    memcpy(preamble->tenant, p + 96, SANDBOX_WIRE_TENANT_SIZE);
    preamble->memory = sandbox_get32(p + 112);
    preamble->disk = sandbox_get32(p + 116);
    preamble->processes = sandbox_get32(p + 120);
    preamble->egress = sandbox_get32(p + 124);

    if (preamble->version < SANDBOX_WIRE_VERSION_MIN
        || preamble->version > SANDBOX_WIRE_VERSION
        || (preamble->flags & ~(SANDBOX_FLAG_FRESH|SANDBOX_FLAG_NO_CREATE))
        || preamble->head > SANDBOX_WIRE_MAX_HEAD
        || (preamble->body > sandbox_body_max(preamble->operation)
            && preamble->body != SANDBOX_WIRE_BODY_CHUNKED))
    {
        return SANDBOX_BAD;
    }

    return SANDBOX_OK;
}


uint64_t
sandbox_body_max(uint8_t operation)
{
    switch (operation) {

    case SANDBOX_OPERATION_FILE_WRITE:
        return SANDBOX_WIRE_MAX_FILE;

    case SANDBOX_OPERATION_COMMAND:
        return SANDBOX_WIRE_MAX_BROUGHT;

    default:
        return SANDBOX_WIRE_MAX_BODY;
    }
}


void
sandbox_preamble_write(uint8_t *p, const sandbox_preamble_t *preamble)
{
    memset(p, 0, SANDBOX_WIRE_PREAMBLE_SIZE);
    memcpy(p, SANDBOX_WIRE_MAGIC, SANDBOX_WIRE_MAGIC_SIZE);

    p[7] = preamble->version;
    p[8] = preamble->operation;
    sandbox_put16(p + 9, preamble->base);
    p[11] = preamble->flags;
    sandbox_put32(p + 12, preamble->head);
    sandbox_put64(p + 16, preamble->body);
    sandbox_put64(p + 24, preamble->instance);
    memcpy(p + 32, preamble->key, SANDBOX_WIRE_KEY_SIZE);
    memcpy(p + 64, preamble->session, SANDBOX_WIRE_SESSION_SIZE);
    memcpy(p + 96, preamble->tenant, SANDBOX_WIRE_TENANT_SIZE);
    sandbox_put32(p + 112, preamble->memory);
    sandbox_put32(p + 116, preamble->disk);
    sandbox_put32(p + 120, preamble->processes);
    sandbox_put32(p + 124, preamble->egress);
}


int
sandbox_frame_read(const uint8_t *p, sandbox_frame_t *frame)
{
    frame->length = sandbox_get32(p);
    frame->type = p[4];

    if (frame->type < SANDBOX_FRAME_HEAD
        || frame->type > SANDBOX_FRAME_CANCEL
        || frame->length < sandbox_frame_bounds[frame->type].min
        || frame->length > sandbox_frame_bounds[frame->type].max)
    {
        return SANDBOX_BAD;
    }

    return SANDBOX_OK;
}


void
sandbox_frame_write(uint8_t *p, uint8_t type, uint32_t length)
{
    sandbox_put32(p, length);
    p[4] = type;
}


uint32_t
sandbox_frame_max(uint8_t type)
{
    if (type > SANDBOX_FRAME_CANCEL) {
        return 0;
    }

    return sandbox_frame_bounds[type].max;
}


void
sandbox_fields_init(sandbox_fields_t *fields, const uint8_t *p, size_t size)
{
    fields->pos = p;
    fields->last = p + size;
    fields->count = 0;
}


int
sandbox_fields_next(sandbox_fields_t *fields, sandbox_field_t *field)
{
    size_t  left;

    left = fields->last - fields->pos;

    if (left == 0) {
        return SANDBOX_END;
    }

    if (left < SANDBOX_WIRE_FIELD_SIZE
        || fields->count == SANDBOX_WIRE_MAX_FIELDS)
    {
        return SANDBOX_BAD;
    }

    field->tag = sandbox_get16(fields->pos);
    field->length = sandbox_get32(fields->pos + 2);
    field->data = fields->pos + SANDBOX_WIRE_FIELD_SIZE;

    if (field->length > left - SANDBOX_WIRE_FIELD_SIZE) {
        return SANDBOX_BAD;
    }

    fields->pos += SANDBOX_WIRE_FIELD_SIZE + field->length;
    fields->count++;

    return SANDBOX_OK;
}


int
sandbox_field_number(const sandbox_field_t *field, uint64_t max,
    uint64_t *value)
{
    if (field->length != 8) {
        return SANDBOX_BAD;
    }

    *value = sandbox_get64(field->data);

    return *value <= max ? SANDBOX_OK : SANDBOX_BAD;
}


void
sandbox_writer_init(sandbox_writer_t *w, uint8_t *p, size_t size)
{
    w->start = p;
    w->pos = p;
    w->end = p + size;
    w->failed = 0;
}


void
sandbox_write_bytes(sandbox_writer_t *w, uint16_t tag, const void *data,
    size_t length)
{
    size_t  left;

    left = w->end - w->pos;

    if (w->failed
        || left < SANDBOX_WIRE_FIELD_SIZE
        || left - SANDBOX_WIRE_FIELD_SIZE < length
        || length > UINT32_MAX)
    {
        w->failed = 1;
        return;
    }

    sandbox_put16(w->pos, tag);
    sandbox_put32(w->pos + 2, (uint32_t) length);
    w->pos += SANDBOX_WIRE_FIELD_SIZE;

    if (length) {
        memcpy(w->pos, data, length);
        w->pos += length;
    }
}


void
sandbox_write_number(sandbox_writer_t *w, uint16_t tag, uint64_t value)
{
    uint8_t  b[8];

    sandbox_put64(b, value);
    sandbox_write_bytes(w, tag, b, 8);
}


void
sandbox_write_string(sandbox_writer_t *w, uint16_t tag, const char *s)
{
    sandbox_write_bytes(w, tag, s, strlen(s));
}


size_t
sandbox_error_frame(uint8_t *p, size_t size, const char *code,
    const char *detail, unsigned retry_after)
{
    size_t            length;
    sandbox_writer_t  w;

    if (size < SANDBOX_WIRE_FRAME_SIZE) {
        return 0;
    }

    length = size - SANDBOX_WIRE_FRAME_SIZE;
    if (length > SANDBOX_WIRE_MAX_ERROR) {
        length = SANDBOX_WIRE_MAX_ERROR;
    }

    sandbox_writer_init(&w, p + SANDBOX_WIRE_FRAME_SIZE, length);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS,
                         sandbox_code_status(code, strlen(code)));
    sandbox_write_string(&w, SANDBOX_TAG_CODE, code);
    sandbox_write_string(&w, SANDBOX_TAG_DETAIL, detail);

    if (retry_after) {
        sandbox_write_number(&w, SANDBOX_TAG_RETRY_AFTER, retry_after);
    }

    if (w.failed) {
        return 0;
    }

    length = w.pos - w.start;
    sandbox_frame_write(p, SANDBOX_FRAME_ERROR, (uint32_t) length);

    return SANDBOX_WIRE_FRAME_SIZE + length;
}


unsigned
sandbox_code_status(const char *code, size_t length)
{
    size_t  i;

    for (i = 0; i < sizeof(sandbox_codes) / sizeof(sandbox_codes[0]); i++) {
        if (strlen(sandbox_codes[i].code) == length
            && memcmp(sandbox_codes[i].code, code, length) == 0)
        {
            return sandbox_codes[i].status;
        }
    }

    return 500;
}


int
sandbox_code_known(const char *code, size_t length)
{
    size_t  i;

    for (i = 0; i < sizeof(sandbox_codes) / sizeof(sandbox_codes[0]); i++) {
        if (strlen(sandbox_codes[i].code) == length
            && memcmp(sandbox_codes[i].code, code, length) == 0)
        {
            return 1;
        }
    }

    return 0;
}


int
sandbox_equal(const void *a, const void *b, size_t size)
{
    size_t                   i;
    const volatile uint8_t  *p, *q;
    uint8_t                  difference;

    p = a;
    q = b;
    difference = 0;

    for (i = 0; i < size; i++) {
        difference |= p[i] ^ q[i];
    }

    return difference == 0;
}


const char *
sandbox_outcome_name(unsigned outcome)
{
    return outcome < SANDBOX_OUTCOME_LAST ? sandbox_outcome_names[outcome]
                                          : NULL;
}


const char *
sandbox_state_name(unsigned state)
{
    return state < SANDBOX_STATE_LAST ? sandbox_state_names[state] : NULL;
}


const char *
sandbox_command_state_name(unsigned state)
{
    return state < SANDBOX_COMMAND_LAST ? sandbox_command_state_names[state]
                                        : NULL;
}


const char *
sandbox_file_type_name(unsigned type)
{
    return type < SANDBOX_FILE_LAST ? sandbox_file_type_names[type] : NULL;
}


int
sandbox_command_id_valid(const uint8_t *p, size_t length)
{
    size_t   i;
    uint8_t  c;

    if (length == 0 || length > SANDBOX_WIRE_MAX_COMMAND_ID) {
        return 0;
    }

    for (i = 0; i < length; i++) {
        c = p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
              || (c >= '0' && c <= '9')
              || c == '.' || c == '_' || c == '-'))
        {
            return 0;
        }
    }

    return 1;
}


unsigned
sandbox_base_number(const char *name, size_t length)
{
    size_t    i;
    uint32_t  hash;

    if (length == sizeof("default") - 1 && memcmp(name, "default", length) == 0)
    {
        return 0;
    }

    hash = 2166136261;

    for (i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t) name[i]) * 16777619;
    }

    return 1 + hash % UINT16_MAX;
}


uint16_t
sandbox_get16(const uint8_t *p)
{
    return (uint16_t) (p[0] << 8 | p[1]);
}


uint32_t
sandbox_get32(const uint8_t *p)
{
    return (uint32_t) p[0] << 24 | (uint32_t) p[1] << 16
           | (uint32_t) p[2] << 8 | (uint32_t) p[3];
}


uint64_t
sandbox_get64(const uint8_t *p)
{
    return (uint64_t) sandbox_get32(p) << 32 | sandbox_get32(p + 4);
}


void
sandbox_put16(uint8_t *p, uint16_t value)
{
    p[0] = (uint8_t) (value >> 8);
    p[1] = (uint8_t) value;
}


void
sandbox_put32(uint8_t *p, uint32_t value)
{
    sandbox_put16(p, (uint16_t) (value >> 16));
    sandbox_put16(p + 2, (uint16_t) value);
}


void
sandbox_put64(uint8_t *p, uint64_t value)
{
    sandbox_put32(p, (uint32_t) (value >> 32));
    sandbox_put32(p + 4, (uint32_t) value);
}
