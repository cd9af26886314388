/*
 * Fields of a head into a request: each at most once (ENV apart),
 * every number within its range, nothing that could end a string early.
 */

#include <string.h>

#include "agent_request.h"
#include "sandbox_token.h"


static const char *agent_request_field(agent_request_t *request,
    const sandbox_field_t *field, const char **detail);
static const char *agent_request_egress(agent_request_t *request,
    const sandbox_field_t *field);
static int agent_request_repeats(unsigned tag);
static const char *agent_request_bytes(const sandbox_field_t *field,
    size_t most, const uint8_t **data, size_t *size);
static const char *agent_request_number(agent_request_t *request,
    const sandbox_field_t *field);


/* the numbers of a request, with their ranges */

static const struct {
    uint16_t     tag;
    uint64_t     min;
    uint64_t     max;
    size_t       offset;
    const char  *detail;
} agent_numbers[] = {
    { SANDBOX_TAG_WALL_MS, 1, SANDBOX_WIRE_MAX_TIME,
      offsetof(agent_request_t, wall_ms),
      "WALL_MS is not between 1 ms and 24 hours." },

    { SANDBOX_TAG_CPU_MS, 1, SANDBOX_WIRE_MAX_TIME,
      offsetof(agent_request_t, cpu_ms),
      "CPU_MS is not between 1 ms and 24 hours." },

    { SANDBOX_TAG_OUTPUT, 0, SANDBOX_WIRE_MAX_CAPTURE,
      offsetof(agent_request_t, output),
      "OUTPUT is more than 4 MiB." },

    { SANDBOX_TAG_OUTPUT_TOTAL, 1, SANDBOX_WIRE_MAX_WRITTEN,
      offsetof(agent_request_t, output_total),
      "OUTPUT_TOTAL is not between 1 byte and 1 TiB." },

    { SANDBOX_TAG_OPEN_FILES, SANDBOX_WIRE_MIN_OPEN_FILES,
      SANDBOX_WIRE_MAX_OPEN_FILES,
      offsetof(agent_request_t, open_files),
      "OPEN_FILES is not between 16 and 1048576." },

    { SANDBOX_TAG_PENDING, 0, SANDBOX_WIRE_MAX_PENDING,
      offsetof(agent_request_t, pending),
      "PENDING is more than 1000." },

    { SANDBOX_TAG_STREAM, 0, 1, offsetof(agent_request_t, stream),
      "STREAM is neither 0 nor 1." },

    { SANDBOX_TAG_DETACH, 0, 1, offsetof(agent_request_t, detach),
      "DETACH is neither 0 nor 1." },

    { SANDBOX_TAG_STDIN_OPEN, 0, 1, offsetof(agent_request_t, stdin_open),
      "STDIN_OPEN is neither 0 nor 1." },

    { SANDBOX_TAG_AFTER, 0, UINT64_MAX, offsetof(agent_request_t, after),
      "AFTER is no number." },

    { SANDBOX_TAG_STDIN_EOF, 0, 1, offsetof(agent_request_t, stdin_eof),
      "STDIN_EOF is neither 0 nor 1." }
};


const char *
agent_request_read(agent_request_t *request, unsigned operation,
    const uint8_t *head, size_t size, const char **detail)
{
    int               rc;
    uint64_t          seen;
    const char       *code;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    memset(request, 0, sizeof(agent_request_t));

    request->head = head;
    request->head_size = size;
    request->wall_ms = AGENT_DEFAULT_WALL;
    request->cpu_ms = AGENT_DEFAULT_CPU;
    request->output = AGENT_DEFAULT_OUTPUT;
    request->output_total = AGENT_DEFAULT_TOTAL;
    request->open_files = AGENT_DEFAULT_OPEN_FILES;
    request->pending = AGENT_DEFAULT_PENDING;

    seen = 0;
    sandbox_fields_init(&fields, head, size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        if (field.tag < 64 && !agent_request_repeats(field.tag)) {
            if (seen & (uint64_t) 1 << field.tag) {
                *detail = "A field of the command comes twice.";
                return "bad_request";
            }

            seen |= (uint64_t) 1 << field.tag;
        }

        code = agent_request_field(request, &field, detail);

        if (code != NULL) {
            return code;
        }
    }

    if (rc == SANDBOX_BAD) {
        *detail = "The head of the request is malformed.";
        return "bad_request";
    }

    if (operation == SANDBOX_OPERATION_CANCEL && request->label != NULL) {
        return NULL;
    }

    if (operation != SANDBOX_OPERATION_COMMAND) {
        *detail = "COMMAND_ID is missing.";
        return request->id == NULL ? "bad_request" : NULL;
    }

    if (request->command == NULL) {
        *detail = "COMMAND is missing.";
        return "bad_request";
    }

    if (request->id != NULL
        && !(seen & (uint64_t) 1 << SANDBOX_TAG_DIGEST))
    {
        *detail = "COMMAND_ID without DIGEST.";
        return "bad_request";
    }

    return NULL;
}


int
agent_request_env(sandbox_fields_t *fields, sandbox_field_t *field)
{
    while (sandbox_fields_next(fields, field) == SANDBOX_OK) {
        if (field->tag == SANDBOX_TAG_ENV) {
            return 1;
        }
    }

    return 0;
}


int
agent_request_env_valid(const uint8_t *p, size_t size)
{
    size_t   i;
    uint8_t  c;

    for (i = 0; i < size && p[i] != '='; i++) {
        c = p[i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'
              || (i && c >= '0' && c <= '9')))
        {
            return 0;
        }
    }

    return i > 0 && i < size && memchr(p, '\0', size) == NULL;
}


static const char *
agent_request_field(agent_request_t *request, const sandbox_field_t *field,
    const char **detail)
{
    *detail = NULL;

    switch (field->tag) {

    case SANDBOX_TAG_COMMAND:
        if (field->length > SANDBOX_WIRE_MAX_COMMAND) {
            *detail = "The command is longer than 512 KiB.";
            return "command_too_large";
        }

        *detail = agent_request_bytes(field, SANDBOX_WIRE_MAX_COMMAND,
                                      &request->command,
                                      &request->command_size);
        break;

    case SANDBOX_TAG_CWD:
        *detail = agent_request_bytes(field, SANDBOX_WIRE_MAX_CWD - 1,
                                      &request->cwd, &request->cwd_size);
        break;

    case SANDBOX_TAG_ENV:
        /* more can't be one string of exec, whose NUL counts, too */

        if (field->length >= SANDBOX_WIRE_MAX_ENV
            || !agent_request_env_valid(field->data, field->length))
        {
            *detail = "ENV is not NAME=VALUE, has a NUL, or is longer "
                      "than 131071 bytes.";
            return "bad_request";
        }

        request->env_count++;
        request->env_size += field->length + 1;
        break;

    case SANDBOX_TAG_COMMAND_ID:
        if (!sandbox_command_id_valid(field->data, field->length)) {
            *detail = "COMMAND_ID is not 1-64 of [A-Za-z0-9._-].";
            return "bad_request";
        }

        request->id = field->data;
        request->id_size = field->length;
        break;

    case SANDBOX_TAG_LABEL:
        if (field->length == 0 || field->length > SANDBOX_WIRE_MAX_LABEL) {
            *detail = "LABEL is not 1-64 bytes.";
            return "bad_request";
        }

        request->label = field->data;
        request->label_size = field->length;
        break;

    case SANDBOX_TAG_DIGEST:
        if (field->length != SANDBOX_WIRE_DIGEST_SIZE) {
            *detail = "DIGEST is not 32 bytes.";
            return "bad_request";
        }

        memcpy(request->digest, field->data, SANDBOX_WIRE_DIGEST_SIZE);
        break;

    case SANDBOX_TAG_EGRESS_PROXY:
    case SANDBOX_TAG_EGRESS_TOKEN:
    case SANDBOX_TAG_EGRESS_INDEX:
    case SANDBOX_TAG_EGRESS_CA:
        *detail = agent_request_egress(request, field);
        break;

    default:
        *detail = agent_request_number(request, field);
    }

    return *detail != NULL ? "bad_request" : NULL;
}


/* parts of a URL, which nothing may leave */

static const char *
agent_request_egress(agent_request_t *request, const sandbox_field_t *field)
{
    size_t           i, most, *size;
    const char      *bytes;
    const uint8_t  **data;

    bytes = NULL;

    switch (field->tag) {

    case SANDBOX_TAG_EGRESS_PROXY:
        data = &request->proxy;
        size = &request->proxy_size;
        most = SANDBOX_WIRE_MAX_PROXY;
        bytes = "0123456789abcdef.:[]";
        break;

    case SANDBOX_TAG_EGRESS_TOKEN:
        data = &request->token;
        size = &request->token_size;
        most = SANDBOX_TOKEN_LENGTH;
        bytes = "0123456789abcdef:";
        break;

    case SANDBOX_TAG_EGRESS_INDEX:
        data = &request->index;
        size = &request->index_size;
        most = SANDBOX_WIRE_MAX_INDEX;
        break;

    default: /* SANDBOX_TAG_EGRESS_CA */
        data = &request->ca;
        size = &request->ca_size;
        most = SANDBOX_WIRE_MAX_COMMAND_CA;
    }

    if (*data != NULL || field->length == 0) {
        return "A field of the egress policy is empty, or comes twice.";
    }

    for (i = 0; bytes != NULL && i < field->length; i++) {
        if (field->data[i] == '\0' || strchr(bytes, field->data[i]) == NULL) {
            return "The egress proxy, or its token, can't be one.";
        }
    }

    return agent_request_bytes(field, most, data, size);
}


/* What is staged is read by agent_stage_request.c. */

static int
agent_request_repeats(unsigned tag)
{
    return tag == SANDBOX_TAG_ENV || tag == SANDBOX_TAG_STAGE
           || tag == SANDBOX_TAG_STAGE_BODY;
}


static const char *
agent_request_bytes(const sandbox_field_t *field, size_t most,
    const uint8_t **data, size_t *size)
{
    if (field->length > most) {
        return "A field of the command is too long.";
    }

    if (memchr(field->data, '\0', field->length) != NULL) {
        return "The command or its directory has a NUL byte.";
    }

    *data = field->data;
    *size = field->length;

    return NULL;
}


static const char *
agent_request_number(agent_request_t *request, const sandbox_field_t *field)
{
    size_t    i;
    uint64_t  value;

    for (i = 0; i < sizeof(agent_numbers) / sizeof(agent_numbers[0]); i++) {
        if (agent_numbers[i].tag != field->tag) {
            continue;
        }

        if (sandbox_field_number(field, agent_numbers[i].max, &value)
            != SANDBOX_OK
            || value < agent_numbers[i].min)
        {
            return agent_numbers[i].detail;
        }

        memcpy((uint8_t *) request + agent_numbers[i].offset, &value,
               sizeof(value));
        return NULL;
    }

    return NULL;
}
