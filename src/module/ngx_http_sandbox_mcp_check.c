/*
 * A tool's fields as JSON Schema, and calls judged by the same fields: what
 * the one accepts, so does the other.  Knows no tool by name.  Calls may be
 * judged in a thread: nothing is logged here.
 */

#include "ngx_http_sandbox_mcp.h"


typedef struct {
    const char                    *pattern;      /* as JSON; NULL: none */
    const char                    *expected;
} ngx_http_sandbox_mcp_rule_t;


static void ngx_http_sandbox_mcp_schema(ngx_http_sandbox_mcp_text_t *text,
    const ngx_http_sandbox_mcp_field_t *field);
static void ngx_http_sandbox_mcp_properties(
    ngx_http_sandbox_mcp_text_t *text,
    const ngx_http_sandbox_mcp_tool_t *tool, ngx_uint_t conversation);
static const ngx_http_sandbox_mcp_field_t *ngx_http_sandbox_mcp_field(
    const ngx_http_sandbox_mcp_tool_t *tool, const char *name,
    ngx_uint_t conversation);
static ngx_int_t ngx_http_sandbox_mcp_unknown(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const char *name, ngx_uint_t conversation);
static ngx_int_t ngx_http_sandbox_mcp_missing(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_mcp_field_t *field);
static ngx_int_t ngx_http_sandbox_mcp_value(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_mcp_field_t *field,
    json_t *value);
static ngx_uint_t ngx_http_sandbox_mcp_string(json_t *value,
    ngx_http_sandbox_mcp_rule_e rule);
static ngx_uint_t ngx_http_sandbox_mcp_base64(const char *p, size_t n);
static ngx_int_t ngx_http_sandbox_mcp_integer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_mcp_field_t *field,
    json_t *value);
static ngx_uint_t ngx_http_sandbox_mcp_environment(json_t *value,
    int64_t max);
static const char *ngx_http_sandbox_mcp_target(json_t *value);


/* "\\u0000" is written by JSON, and read by regular expressions */

static const ngx_http_sandbox_mcp_rule_t  ngx_http_sandbox_mcp_rules[] = {
    { NULL, "a string" },
    { "^[^\\\\u0000]*$", "a string without NUL" },
    { "^[^\\\\u0000]+$", "a string that is not empty, without NUL" },
    { "^[A-Za-z0-9._-]{1,64}$", "1 to 64 characters of A-Z a-z 0-9 . _ -" },
    { "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]=="
      "|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$",
      "base64, padded with \"=\"" },
    { "^(?!\\\\.{1,2}$)[A-Za-z0-9._:-]{1,128}$",
      "1 to 128 characters of A-Z a-z 0-9 . _ : and -" }
};


/* with "sandbox_mcp_conversation argument", in each tool */

static const ngx_http_sandbox_mcp_field_t
    ngx_http_sandbox_mcp_conversation_field =
{
    "conversation", NGX_HTTP_SANDBOX_MCP_STRING, 1,
    NGX_HTTP_SANDBOX_MCP_CONVERSATION, 0, 0,
    "The id of the conversation whose sandbox it is."
};


void
ngx_http_sandbox_mcp_schemas(ngx_http_sandbox_mcp_text_t *text,
    const ngx_http_sandbox_mcp_tool_t *tool, ngx_uint_t conversation)
{
    ngx_uint_t                            n;
    const ngx_http_sandbox_mcp_member_t  *member;

    ngx_http_sandbox_mcp_properties(text, tool, conversation);

    ngx_http_sandbox_mcp_words(text, ",\"outputSchema\":{\"type\":\"object\","
                               "\"properties\":{");

    for (member = tool->output; member->name; member++) {
        ngx_http_sandbox_mcp_format(text, "%s\"%s\":",
                                    member == tool->output ? "" : ",",
                                    member->name);
        ngx_http_sandbox_mcp_words(text, member->schema);
    }

    ngx_http_sandbox_mcp_words(text, "},\"required\":[");

    for (n = 0, member = tool->output; member->name; member++) {
        if (member->required) {
            ngx_http_sandbox_mcp_format(text, "%s\"%s\"", n++ ? "," : "",
                                        member->name);
        }
    }

    ngx_http_sandbox_mcp_words(text, "],\"additionalProperties\":false}");
}


static void
ngx_http_sandbox_mcp_properties(ngx_http_sandbox_mcp_text_t *text,
    const ngx_http_sandbox_mcp_tool_t *tool, ngx_uint_t conversation)
{
    ngx_uint_t                           n;
    const ngx_http_sandbox_mcp_field_t  *field;

    ngx_http_sandbox_mcp_words(text, "\"inputSchema\":{\"type\":\"object\","
                               "\"properties\":{");

    for (field = tool->input; field->name; field++) {

        if (field != tool->input) {
            ngx_http_sandbox_mcp_words(text, ",");
        }

        ngx_http_sandbox_mcp_schema(text, field);
    }

    if (conversation) {
        ngx_http_sandbox_mcp_words(text, ",");
        ngx_http_sandbox_mcp_schema(text,
                                    &ngx_http_sandbox_mcp_conversation_field);
    }

    ngx_http_sandbox_mcp_words(text, "},\"required\":[");

    for (n = 0, field = tool->input; field->name; field++) {
        if (field->required) {
            ngx_http_sandbox_mcp_format(text, "%s\"%s\"", n++ ? "," : "",
                                        field->name);
        }
    }

    if (conversation) {
        ngx_http_sandbox_mcp_format(text, "%s\"conversation\"",
                                    n ? "," : "");
    }

    ngx_http_sandbox_mcp_words(text, "],\"additionalProperties\":false}");
}


static void
ngx_http_sandbox_mcp_schema(ngx_http_sandbox_mcp_text_t *text,
    const ngx_http_sandbox_mcp_field_t *field)
{
    const char  *pattern;

    pattern = ngx_http_sandbox_mcp_rules[field->rule].pattern;

    ngx_http_sandbox_mcp_format(text, "\"%s\":{\"description\":\"",
                                field->name);
    ngx_http_sandbox_mcp_escape(text, field->description,
                                ngx_strlen(field->description));
    ngx_http_sandbox_mcp_words(text, "\",");

    switch (field->type) {

    case NGX_HTTP_SANDBOX_MCP_STRING:
        ngx_http_sandbox_mcp_words(text, "\"type\":\"string\"");

        if (pattern) {
            ngx_http_sandbox_mcp_format(text, ",\"pattern\":\"%s\"", pattern);
        }

        break;

    case NGX_HTTP_SANDBOX_MCP_INTEGER:
        ngx_http_sandbox_mcp_format(text, "\"type\":\"integer\","
                                    "\"minimum\":%L", field->min);

        if (field->max) {
            ngx_http_sandbox_mcp_format(text, ",\"maximum\":%L", field->max);
        }

        break;

    case NGX_HTTP_SANDBOX_MCP_BOOLEAN:
        ngx_http_sandbox_mcp_words(text, "\"type\":\"boolean\"");
        break;

    case NGX_HTTP_SANDBOX_MCP_STRINGS:
        ngx_http_sandbox_mcp_format(text, "\"type\":\"array\",\"maxItems\":%L,"
                                    "\"items\":{\"type\":\"string\","
                                    "\"pattern\":\"%s\"}", field->max,
                                    pattern);
        break;

    case NGX_HTTP_SANDBOX_MCP_ENVIRONMENT:
        ngx_http_sandbox_mcp_format(text, "\"type\":\"object\","
                                    "\"maxProperties\":%L,"
                                    "\"propertyNames\":{\"pattern\":"
                                    "\"^[A-Za-z_][A-Za-z0-9_]*$\"},"
                                    "\"additionalProperties\":{\"type\":"
                                    "\"string\",\"pattern\":\"%s\"}",
                                    field->max, pattern);
        break;

    default: /* NGX_HTTP_SANDBOX_MCP_TARGET */
        ngx_http_sandbox_mcp_words(text, "\"type\":\"object\","
                                   "\"properties\":{\"fresh\":{\"type\":"
                                   "\"boolean\"},\"id\":{\"type\":["
                                   "\"string\",\"null\"]}},"
                                   "\"additionalProperties\":false");
    }

    ngx_http_sandbox_mcp_words(text, "}");
}


static const ngx_http_sandbox_mcp_field_t *
ngx_http_sandbox_mcp_field(const ngx_http_sandbox_mcp_tool_t *tool,
    const char *name, ngx_uint_t conversation)
{
    const ngx_http_sandbox_mcp_field_t  *field;

    for (field = tool->input; field->name; field++) {
        if (ngx_strcmp(field->name, name) == 0) {
            return field;
        }
    }

    field = &ngx_http_sandbox_mcp_conversation_field;

    return conversation && ngx_strcmp(field->name, name) == 0 ? field : NULL;
}


ngx_int_t
ngx_http_sandbox_mcp_check(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_uint_t conversation)
{
    void                                *next;
    json_t                              *arguments, *value;
    ngx_int_t                            rc;
    const char                          *name;
    const ngx_http_sandbox_mcp_tool_t   *tool;
    const ngx_http_sandbox_mcp_field_t  *field;

    tool = ctx->mcp->tool;
    arguments = ctx->mcp->arguments;

    json_object_foreach_safe(arguments, next, name, value) {

        field = ngx_http_sandbox_mcp_field(tool, name, conversation);

        if (field == NULL) {
            return ngx_http_sandbox_mcp_unknown(r, ctx, name, conversation);
        }

        rc = ngx_http_sandbox_mcp_value(r, ctx, field, value);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    for (field = tool->input; field->name; field++) {

        if (field->required && !json_object_get(arguments, field->name)) {
            return ngx_http_sandbox_mcp_missing(r, ctx, field);
        }
    }

    if (conversation && !json_object_get(arguments, "conversation")) {
        return ngx_http_sandbox_mcp_missing(r, ctx,
                                  &ngx_http_sandbox_mcp_conversation_field);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_mcp_unknown(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const char *name, ngx_uint_t conversation)
{
    size_t                               len;
    u_char                               names[512], *p, *last;
    const ngx_http_sandbox_mcp_field_t  *field;

    len = ngx_strlen(name);

    if (len > 64) {
        len = sandbox_utf8_head((u_char *) name, 64);
    }

    p = names;
    last = names + sizeof(names);

    for (field = ctx->mcp->tool->input; field->name; field++) {
        p = ngx_slprintf(p, last, "%s%s", p == names ? "" : ", ",
                         field->name);
    }

    if (conversation) {
        p = ngx_slprintf(p, last, ", conversation");
    }

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_BAD_REQUEST,
                                       "unknown_field",
                                       "\"%*s\" is no field of %V, which has "
                                       "%*s.", len, name,
                                       &ctx->mcp->tool->name,
                                       (size_t) (p - names), names)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_mcp_missing(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_mcp_field_t *field)
{
    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_BAD_REQUEST,
                                       "bad_request",
                                       "\"%s\" is missing: %V can't do "
                                       "without.", field->name,
                                       &ctx->mcp->tool->name)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_mcp_value(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_mcp_field_t *field, json_t *value)
{
    size_t       i;
    json_t      *item;
    ngx_uint_t   good;
    const char  *expected;

    expected = ngx_http_sandbox_mcp_rules[field->rule].expected;

    switch (field->type) {

    case NGX_HTTP_SANDBOX_MCP_STRING:
        good = ngx_http_sandbox_mcp_string(value, field->rule);
        break;

    case NGX_HTTP_SANDBOX_MCP_INTEGER:
        return ngx_http_sandbox_mcp_integer(r, ctx, field, value);

    case NGX_HTTP_SANDBOX_MCP_BOOLEAN:
        good = json_is_boolean(value);
        expected = "true or false";
        break;

    case NGX_HTTP_SANDBOX_MCP_STRINGS:
        good = json_is_array(value)
               && (int64_t) json_array_size(value) <= field->max;
        expected = "an array of at most 16 strings that are not empty";

        if (good) {
            json_array_foreach(value, i, item) {
                good = good && ngx_http_sandbox_mcp_string(item, field->rule);
            }
        }

        break;

    case NGX_HTTP_SANDBOX_MCP_ENVIRONMENT:
        good = ngx_http_sandbox_mcp_environment(value, field->max);
        expected = "an object of at most 512 strings without NUL, whose names "
                   "are letters, digits and \"_\" and begin with no digit";
        break;

    default: /* NGX_HTTP_SANDBOX_MCP_TARGET */
        expected = ngx_http_sandbox_mcp_target(value);
        good = (expected == NULL);
    }

    if (good) {
        return NGX_OK;
    }

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_BAD_REQUEST,
                                       "bad_request", "\"%s\" must be %s.",
                                       field->name, expected)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_sandbox_mcp_string(json_t *value, ngx_http_sandbox_mcp_rule_e rule)
{
    size_t       n;
    ngx_str_t    id;
    const char  *p;

    if (!json_is_string(value)) {
        return 0;
    }

    p = json_string_value(value);
    n = json_string_length(value);

    switch (rule) {

    case NGX_HTTP_SANDBOX_MCP_FILLED:
        if (n == 0) {
            return 0;
        }

        /* fall through */

    case NGX_HTTP_SANDBOX_MCP_PLAIN:
        return ngx_strlen(p) == n;

    case NGX_HTTP_SANDBOX_MCP_ID:
        return sandbox_command_id_valid((u_char *) p, n);

    case NGX_HTTP_SANDBOX_MCP_BASE64:
        return ngx_http_sandbox_mcp_base64(p, n);

    case NGX_HTTP_SANDBOX_MCP_CONVERSATION:
        id.data = (u_char *) p;
        id.len = n;
        return ngx_http_sandbox_route_conversation(&id);

    default: /* NGX_HTTP_SANDBOX_MCP_ANY */
        return 1;
    }
}


static ngx_uint_t
ngx_http_sandbox_mcp_base64(const char *p, size_t n)
{
    u_char  c;
    size_t  i, pad;

    pad = 0;

    while (pad < 2 && pad < n && p[n - 1 - pad] == '=') {
        pad++;
    }

    for (i = 0; i < n - pad; i++) {
        c = p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
              || (c >= '0' && c <= '9') || c == '+' || c == '/'))
        {
            return 0;
        }
    }

    /* bits that no byte has must not be set: there is one way to write it */

    if (pad && n > pad
        && strchr(pad == 1 ? "AEIMQUYcgkosw048" : "AQgw", p[n - 1 - pad])
           == NULL)
    {
        return 0;
    }

    return n % 4 == 0;
}


/* to JSON Schema 3.0 is an integer; from here on it is one to us, too */

static ngx_int_t
ngx_http_sandbox_mcp_integer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_mcp_field_t *field,
    json_t *value)
{
    double   real;
    int64_t  n;

    n = field->min - 1;

    if (json_is_integer(value)) {
        n = json_integer_value(value);

    } else if (json_is_real(value)) {
        real = json_real_value(value);

        /* beyond 2^53 all of them are whole, and none is meant exactly */

        real = ngx_min(real, 9007199254740992.0);

        if (real >= field->min && real == (double) (int64_t) real) {
            n = (int64_t) real;

            if (json_object_set_new(ctx->mcp->arguments, field->name,
                                    json_integer(n))
                != 0)
            {
                return NGX_ERROR;
            }
        }
    }

    if (n >= field->min && (field->max == 0 || n <= field->max)) {
        return NGX_OK;
    }

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_BAD_REQUEST,
                                       "bad_request",
                                       field->max ? "\"%s\" must be a whole "
                                       "number from %L to %L." : "\"%s\" must "
                                       "be a whole number from %L on.",
                                       field->name, field->min, field->max)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_sandbox_mcp_environment(json_t *value, int64_t max)
{
    size_t       i, n;
    json_t      *text;
    const char  *name;

    if (!json_is_object(value) || (int64_t) json_object_size(value) > max) {
        return 0;
    }

    json_object_foreach(value, name, text) {

        n = ngx_strlen(name);

        for (i = 0; i < n; i++) {
            if (!((name[i] >= 'a' && name[i] <= 'z')
                  || (name[i] >= 'A' && name[i] <= 'Z') || name[i] == '_'
                  || (i && name[i] >= '0' && name[i] <= '9')))
            {
                return 0;
            }
        }

        if (n == 0
            || !ngx_http_sandbox_mcp_string(text, NGX_HTTP_SANDBOX_MCP_PLAIN))
        {
            return 0;
        }
    }

    return 1;
}


static const char *
ngx_http_sandbox_mcp_target(json_t *value)
{
    json_t      *member;
    const char  *name;

    if (!json_is_object(value)) {
        return "an object, or not there";
    }

    json_object_foreach(value, name, member) {

        if (ngx_strcmp(name, "fresh") == 0) {

            if (!json_is_boolean(member)) {
                return "an object whose \"fresh\" is true or false";
            }

        } else if (ngx_strcmp(name, "id") == 0) {

            if (!json_is_string(member) && !json_is_null(member)) {
                return "an object whose \"id\" is a string";
            }

        } else {
            return "an object with nothing but \"fresh\" and \"id\"";
        }
    }

    return NULL;
}
