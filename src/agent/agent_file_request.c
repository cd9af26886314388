/*
 * The head of a FILE_*, read strictly; conditions and ranges; etags.  Knows
 * bytes and numbers, no file.
 */

#include "agent_file.h"

#include <stdio.h>
#include <string.h>

#include "sandbox_utf8.h"


static const char *agent_file_field(agent_file_request_t *request,
    const sandbox_field_t *field, const char **detail);
static const char *agent_file_pattern(agent_file_request_t *request,
    const sandbox_field_t *field, const char **detail);
static const char *agent_file_number(agent_file_request_t *request,
    const sandbox_field_t *field, const char **detail);
static int agent_file_match(const agent_file_etag_t *list, unsigned count,
    const char *etag);
static uint64_t agent_file_mix(uint64_t h, uint64_t value);


const char *
agent_file_request_read(agent_file_request_t *request, const uint8_t *head,
    size_t size, const char **detail)
{
    int               rc;
    uint64_t          seen, bit;
    const char       *code;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    memset(request, 0, sizeof(agent_file_request_t));
    request->limit = SANDBOX_WIRE_MAX_LISTING;

    seen = 0;
    sandbox_fields_init(&fields, head, size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        if (field.tag < 64 && field.tag != SANDBOX_TAG_IF_MATCH
            && field.tag != SANDBOX_TAG_IF_NONE_MATCH
            && field.tag != SANDBOX_TAG_GLOB)
        {
            bit = (uint64_t) 1 << field.tag;

            if (seen & bit) {
                *detail = "A field of the request comes twice.";
                return "bad_request";
            }

            seen |= bit;
        }

        code = agent_file_field(request, &field, detail);

        if (code != NULL) {
            return code;
        }
    }

    if (rc == SANDBOX_BAD) {
        *detail = "The head of the request is malformed.";
        return "bad_request";
    }

    if (request->has_suffix && (request->has_first || request->has_last)) {
        *detail = "A range is either from the start or from the end.";
        return "bad_request";
    }

    if (request->has_last && !request->has_first) {
        *detail = "RANGE_LAST without RANGE_FIRST.";
        return "bad_request";
    }

    return NULL;
}


unsigned
agent_file_status(const agent_file_request_t *request, const char *etag,
    uint64_t size, uint64_t *first, uint64_t *last)
{
    if (request->match_count
        && !agent_file_match(request->match, request->match_count, etag))
    {
        return 412;
    }

    if (request->none_match_count
        && agent_file_match(request->none_match, request->none_match_count,
                            etag))
    {
        return 304;
    }

    if (!request->has_first && !request->has_suffix) {
        return 200;
    }

    if (request->if_range.data != NULL
        && !agent_file_match(&request->if_range, 1, etag))
    {
        return 200;
    }

    if (request->has_suffix) {
        if (request->suffix == 0 || size == 0) {
            return 416;
        }

        *first = request->suffix < size ? size - request->suffix : 0;
        *last = size - 1;

        return 206;
    }

    /* a range that ends before it begins is none */

    if (request->has_last && request->last < request->first) {
        return 200;
    }

    if (request->first >= size) {
        return 416;
    }

    *first = request->first;
    *last = request->has_last && request->last < size ? request->last
                                                      : size - 1;
    return 206;
}


int
agent_file_allowed(const agent_file_request_t *request, const char *etag)
{
    if (request->match_count
        && !agent_file_match(request->match, request->match_count, etag))
    {
        return 0;
    }

    return !request->none_match_count
           || !agent_file_match(request->none_match,
                                request->none_match_count, etag);
}


void
agent_file_etag(char *out, const struct stat *st)
{
    unsigned  i;
    uint64_t  h;

    for (i = 0; i < 2; i++) {
        h = agent_file_mix(0x9e3779b97f4a7c15ULL + i, st->st_ino);
        h = agent_file_mix(h, st->st_size);
        h = agent_file_mix(h, st->st_mtim.tv_sec);
        h = agent_file_mix(h, st->st_mtim.tv_nsec);
        h = agent_file_mix(h, st->st_ctim.tv_sec);
        h = agent_file_mix(h, st->st_ctim.tv_nsec);

        snprintf(out + 16 * i, 17, "%016llx", (unsigned long long) h);
    }
}


static const char *
agent_file_field(agent_file_request_t *request, const sandbox_field_t *field,
    const char **detail)
{
    unsigned           *count;
    agent_file_etag_t  *list;

    switch (field->tag) {

    case SANDBOX_TAG_PATH:
        if (agent_path_check(field->data, field->length, detail) != NULL) {
            return agent_path_check(field->data, field->length, detail);
        }

        memcpy(request->path, field->data, field->length);
        request->path[field->length] = '\0';
        request->path_size = field->length;
        return NULL;

    case SANDBOX_TAG_CURSOR:
        if (field->length > SANDBOX_WIRE_MAX_NAME) {
            *detail = "CURSOR is longer than 255 bytes.";
            return "bad_request";
        }

        request->cursor = field->data;
        request->cursor_size = field->length;
        return NULL;

    case SANDBOX_TAG_PATTERN:
    case SANDBOX_TAG_GLOB:
        return agent_file_pattern(request, field, detail);

    case SANDBOX_TAG_IF_RANGE:
        request->if_range.data = field->data;
        request->if_range.length = field->length;
        break;

    case SANDBOX_TAG_IF_MATCH:
    case SANDBOX_TAG_IF_NONE_MATCH:
        if (field->tag == SANDBOX_TAG_IF_MATCH) {
            list = request->match;
            count = &request->match_count;

        } else {
            list = request->none_match;
            count = &request->none_match_count;
        }

        if (*count == SANDBOX_WIRE_MAX_ETAGS) {
            *detail = "A condition has more than 16 etags.";
            return "bad_request";
        }

        list[*count].data = field->data;
        list[*count].length = field->length;
        (*count)++;
        break;

    default:
        return agent_file_number(request, field, detail);
    }

    if (field->length > SANDBOX_WIRE_MAX_ETAG) {
        *detail = "An etag is longer than 64 bytes.";
        return "bad_request";
    }

    return NULL;
}


/* What becomes an argument of a program, which takes UTF-8 only. */

static const char *
agent_file_pattern(agent_file_request_t *request,
    const sandbox_field_t *field, const char **detail)
{
    if (field->tag == SANDBOX_TAG_PATTERN) {
        if (field->length > SANDBOX_WIRE_MAX_PATTERN) {
            *detail = "PATTERN is longer than 4096 bytes.";
            return "bad_pattern";
        }

        request->pattern = field->data;
        request->pattern_size = field->length;

    } else {
        if (request->globs == SANDBOX_WIRE_MAX_GLOBS) {
            *detail = "There are more than 16 GLOBs.";
            return "bad_pattern";
        }

        if (field->length == 0 || field->length > SANDBOX_WIRE_MAX_GLOB) {
            *detail = "A GLOB is empty or longer than 1024 bytes.";
            return "bad_pattern";
        }

        request->glob[request->globs].data = field->data;
        request->glob[request->globs++].length = field->length;
    }

    if (!sandbox_utf8_text(field->data, field->length)) {
        *detail = "PATTERN or GLOB is not UTF-8, or has a NUL in it.";
        return "bad_pattern";
    }

    return NULL;
}


static const char *
agent_file_number(agent_file_request_t *request, const sandbox_field_t *field,
    const char **detail)
{
    uint64_t  value, most;

    switch (field->tag) {

    case SANDBOX_TAG_ROOT:
        most = SANDBOX_ROOT_LAST - 1;
        break;

    case SANDBOX_TAG_NO_BODY:
    case SANDBOX_TAG_LIST:
    case SANDBOX_TAG_RECURSIVE:
    case SANDBOX_TAG_LITERAL:
    case SANDBOX_TAG_IGNORE_CASE:
        most = 1;
        break;

    case SANDBOX_TAG_LIMIT:
        most = SANDBOX_WIRE_MAX_LISTING;
        break;

    case SANDBOX_TAG_FILE_MODE:
        most = 0777;
        break;

    case SANDBOX_TAG_RANGE_FIRST:
    case SANDBOX_TAG_RANGE_LAST:
    case SANDBOX_TAG_RANGE_SUFFIX:
        most = UINT64_MAX;
        break;

    default:
        return NULL;
    }

    if (sandbox_field_number(field, most, &value) != SANDBOX_OK
        || (field->tag == SANDBOX_TAG_LIMIT && value == 0))
    {
        *detail = "A number of the request is not within its range.";
        return "bad_request";
    }

    switch (field->tag) {

    case SANDBOX_TAG_ROOT:
        request->root = value;
        break;

    case SANDBOX_TAG_NO_BODY:
        request->no_body = value;
        break;

    case SANDBOX_TAG_LIST:
        request->list = value;
        break;

    case SANDBOX_TAG_RECURSIVE:
        request->recursive = value;
        break;

    case SANDBOX_TAG_LITERAL:
        request->literal = value;
        break;

    case SANDBOX_TAG_IGNORE_CASE:
        request->ignore_case = value;
        break;

    case SANDBOX_TAG_LIMIT:
        request->limit = value;
        break;

    case SANDBOX_TAG_FILE_MODE:
        request->mode = value;
        request->has_mode = 1;
        break;

    case SANDBOX_TAG_RANGE_FIRST:
        request->first = value;
        request->has_first = 1;
        break;

    case SANDBOX_TAG_RANGE_LAST:
        request->last = value;
        request->has_last = 1;
        break;

    case SANDBOX_TAG_RANGE_SUFFIX:
        request->suffix = value;
        request->has_suffix = 1;
        break;
    }

    return NULL;
}


/* "*" is any that there is. */

static int
agent_file_match(const agent_file_etag_t *list, unsigned count,
    const char *etag)
{
    unsigned  i;

    if (etag == NULL) {
        return 0;
    }

    for (i = 0; i < count; i++) {
        if ((list[i].length == 1 && list[i].data[0] == '*')
            || (list[i].length == strlen(etag)
                && memcmp(list[i].data, etag, list[i].length) == 0))
        {
            return 1;
        }
    }

    return 0;
}


static uint64_t
agent_file_mix(uint64_t h, uint64_t value)
{
    h ^= value;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdULL;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;

    return h ^ (h >> 33);
}
