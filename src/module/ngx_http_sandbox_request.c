/*
 * A command's JSON to the head and body of its wire request: a strict reader
 * in which each field has a type, bounds and a refusal that names it.  Knows
 * no sockets; the text of a command is never logged.
 */

#include "ngx_http_sandbox_mcp.h"


typedef ngx_int_t (*ngx_http_sandbox_field_pt)(ngx_http_sandbox_request_t *req,
    json_t *value);


typedef struct {
    const char                    *name;
    ngx_http_sandbox_field_pt      handler;
} ngx_http_sandbox_request_field_t;


typedef struct {
    const char                    *alias;
    const char                    *name;
} ngx_http_sandbox_request_alias_t;


static ngx_int_t ngx_http_sandbox_request_take(
    ngx_http_sandbox_request_t *req);
static size_t ngx_http_sandbox_request_feed(void *buffer, size_t size,
    void *data);
static void ngx_http_sandbox_request_free(void *data);
static ngx_int_t ngx_http_sandbox_request_fields(
    ngx_http_sandbox_request_t *req);
static ngx_int_t ngx_http_sandbox_request_unknown(
    ngx_http_sandbox_request_t *req, const char *name);
static ngx_uint_t ngx_http_sandbox_distance(const char *a, const char *b);
static ngx_int_t ngx_http_sandbox_field_text(ngx_http_sandbox_request_t *req,
    const char *name, json_t *value);
static ngx_int_t ngx_http_sandbox_field_command(
    ngx_http_sandbox_request_t *req, json_t *value);
static ngx_int_t ngx_http_sandbox_field_cwd(ngx_http_sandbox_request_t *req,
    json_t *value);
static ngx_int_t ngx_http_sandbox_field_timeout(
    ngx_http_sandbox_request_t *req, json_t *value);
static ngx_int_t ngx_http_sandbox_field_env(ngx_http_sandbox_request_t *req,
    json_t *value);
static ngx_int_t ngx_http_sandbox_field_stdin(ngx_http_sandbox_request_t *req,
    json_t *value);
static ngx_int_t ngx_http_sandbox_field_stdin_base64(
    ngx_http_sandbox_request_t *req, json_t *value);
static ngx_int_t ngx_http_sandbox_field_background(
    ngx_http_sandbox_request_t *req, json_t *value);
static ngx_int_t ngx_http_sandbox_field_fresh(ngx_http_sandbox_request_t *req,
    json_t *value);
static ngx_int_t ngx_http_sandbox_field_command_id(
    ngx_http_sandbox_request_t *req, json_t *value);
static ngx_int_t ngx_http_sandbox_field_disconnect(
    ngx_http_sandbox_request_t *req, json_t *value);
static ngx_int_t ngx_http_sandbox_field_stdin_open(
    ngx_http_sandbox_request_t *req, json_t *value);


static const ngx_http_sandbox_request_field_t
    ngx_http_sandbox_request_table[] =
{
    { "command", ngx_http_sandbox_field_command },
    { "cwd", ngx_http_sandbox_field_cwd },
    { "timeoutSeconds", ngx_http_sandbox_field_timeout },
    { "env", ngx_http_sandbox_field_env },
    { "stdin", ngx_http_sandbox_field_stdin },
    { "stdinBase64", ngx_http_sandbox_field_stdin_base64 },
    { "background", ngx_http_sandbox_field_background },
    { "fresh", ngx_http_sandbox_field_fresh },
    { "commandId", ngx_http_sandbox_field_command_id },
    { "onDisconnect", ngx_http_sandbox_field_disconnect },
    { "stdinOpen", ngx_http_sandbox_field_stdin_open },
    { NULL, NULL }
};


/* what others call them; letter by letter too far away to be found */

static const ngx_http_sandbox_request_alias_t
    ngx_http_sandbox_request_aliases[] =
{
    { "cmd", "command" },
    { "script", "command" },
    { "code", "command" },
    { "shell", "command" },
    { "workdir", "cwd" },
    { "workingDirectory", "cwd" },
    { "directory", "cwd" },
    { "timeout", "timeoutSeconds" },
    { "timeoutMs", "timeoutSeconds" },
    { "environment", "env" },
    { "input", "stdin" },
    { "id", "commandId" },
    { NULL, NULL }
};


ngx_int_t
ngx_http_sandbox_request_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_sandbox_request_t   req;

    ngx_memzero(&req, sizeof(ngx_http_sandbox_request_t));

    req.r = r;
    req.ctx = ctx;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    req.root = ngx_http_sandbox_request_load(r, ctx);
    if (req.root == NULL) {
        return NGX_DECLINED;
    }

    /* stdin is sent from where the parser put it */

    cln->handler = ngx_http_sandbox_request_free;
    cln->data = req.root;

    if (!json_is_object(req.root)) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "The body must be one JSON object, such as "
                                "{\"command\":\"ls\"}.");
        return NGX_DECLINED;
    }

    return ngx_http_sandbox_request_take(&req);
}


ngx_int_t
ngx_http_sandbox_request_object(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, json_t *object, ngx_str_t *label)
{
    ngx_http_sandbox_request_t  req;

    ngx_memzero(&req, sizeof(ngx_http_sandbox_request_t));

    req.r = r;
    req.ctx = ctx;
    req.root = object;
    req.label = *label;

    return ngx_http_sandbox_request_take(&req);
}


static ngx_int_t
ngx_http_sandbox_request_take(ngx_http_sandbox_request_t *req)
{
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = req->ctx;

    rc = ngx_http_sandbox_request_fields(req);

    if (rc == NGX_OK) {
        rc = ngx_http_sandbox_head_stdin(req);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_sandbox_head_write(req);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    ctx->wire.operation = SANDBOX_OPERATION_COMMAND;
    ctx->wire.flags = req->fresh ? SANDBOX_FLAG_FRESH : 0;
    ctx->wire.body = req->stdin_data;
    ctx->wire.render = ngx_http_sandbox_render_command;

    return NGX_OK;
}


json_t *
ngx_http_sandbox_request_load(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t        *root;
    ngx_chain_t   *cl, *next;
    json_error_t   error;

    cl = ctx->body.chain;

    root = json_load_callback(ngx_http_sandbox_request_feed, &cl,
                              JSON_REJECT_DUPLICATES|JSON_ALLOW_NUL, &error);

    /* it has been copied: do not hold it for as long as the command takes */

    for (cl = ctx->body.chain; cl; cl = next) {
        next = cl->next;
        ngx_pfree(r->pool, cl->buf->start);
    }

    ctx->body.chain = NULL;

    if (root == NULL) {

        switch (json_error_code(&error)) {

        case json_error_null_byte_in_key:
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "A name in the body must not contain "
                                    "NUL.");
            break;

        case json_error_duplicate_key:
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "The body names a field twice.");
            break;

        case json_error_invalid_utf8:
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "The body must be JSON in UTF-8, it is "
                                    "not UTF-8.");
            break;

        default:
            (void) ngx_http_sandbox_refuse_format(r, ctx,
                NGX_HTTP_BAD_REQUEST, "bad_request",
                "The body must be one JSON object and nothing else; it can't "
                "be read as one at line %d, column %d.", error.line,
                error.column);
        }

        return NULL;
    }

    return root;
}


static size_t
ngx_http_sandbox_request_feed(void *buffer, size_t size, void *data)
{
    ngx_chain_t **cl = data;

    size_t      n;
    ngx_buf_t  *b;

    while (*cl) {
        b = (*cl)->buf;

        n = ngx_min(size, (size_t) (b->last - b->pos));

        if (n == 0) {
            *cl = (*cl)->next;
            continue;
        }

        ngx_memcpy(buffer, b->pos, n);
        b->pos += n;

        return n;
    }

    return 0;
}


static void
ngx_http_sandbox_request_free(void *data)
{
    json_decref(data);
}


static ngx_int_t
ngx_http_sandbox_request_fields(ngx_http_sandbox_request_t *req)
{
    json_t      *value;
    ngx_int_t    rc;
    const char  *name;

    const ngx_http_sandbox_request_field_t  *field;

    json_object_foreach(req->root, name, value) {

        for (field = ngx_http_sandbox_request_table; field->name; field++) {
            if (ngx_strcmp(field->name, name) == 0) {
                break;
            }
        }

        if (field->name == NULL) {
            return ngx_http_sandbox_request_unknown(req, name);
        }

        rc = field->handler(req, value);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (req->command == NULL) {
        return ngx_http_sandbox_bad(req, "The field \"%s\" is missing.",
                                    "command");
    }

    if (req->input && req->input_base64) {
        return ngx_http_sandbox_bad(req, "There may be \"stdin\" or \"%s\", "
                                    "not both.", "stdinBase64");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_request_unknown(ngx_http_sandbox_request_t *req,
    const char *name)
{
    size_t        len;
    ngx_uint_t    distance, best;
    const char   *nearest;

    const ngx_http_sandbox_request_field_t  *field;
    const ngx_http_sandbox_request_alias_t  *alias;

    len = ngx_strlen(name);

    if (len > 64) {
        len = sandbox_utf8_head((u_char *) name, 64);
    }

    nearest = NULL;
    best = NGX_MAX_UINT32_VALUE;

    for (field = ngx_http_sandbox_request_table; field->name; field++) {

        distance = ngx_http_sandbox_distance(name, field->name);

        if (distance < best) {
            best = distance;
            nearest = field->name;
        }
    }

    for (alias = ngx_http_sandbox_request_aliases; alias->alias; alias++) {

        distance = ngx_http_sandbox_distance(name, alias->alias);

        if (distance < best) {
            best = distance;
            nearest = alias->name;
        }
    }

    if (ngx_http_sandbox_refuse_format(req->r, req->ctx, NGX_HTTP_BAD_REQUEST,
                                       "unknown_field",
                                       "The field \"%*s\" is unknown; the "
                                       "nearest known one is \"%s\".",
                                       len, name, nearest)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


/* edits from a to b, without regard to case and underscores */

static ngx_uint_t
ngx_http_sandbox_distance(const char *a, const char *b)
{
    u_char      x[33], y[33];
    size_t      i, j, n, m;
    ngx_uint_t  row[33], above, left, cost;

    for (n = 0; *a && n < 32; a++) {
        if (*a != '_' && *a != '-') {
            x[n++] = ngx_tolower((u_char) *a);
        }
    }

    for (m = 0; *b && m < 32; b++) {
        y[m++] = ngx_tolower((u_char) *b);
    }

    for (j = 0; j <= m; j++) {
        row[j] = j;
    }

    for (i = 1; i <= n; i++) {

        above = row[0];
        row[0] = i;

        for (j = 1; j <= m; j++) {
            left = row[j - 1];
            cost = above + (x[i - 1] != y[j - 1]);
            above = row[j];
            row[j] = ngx_min(cost, ngx_min(left, above) + 1);
        }
    }

    return row[m];
}


/* a string, not empty of meaning: no NUL; jansson has seen to UTF-8 */

static ngx_int_t
ngx_http_sandbox_field_text(ngx_http_sandbox_request_t *req, const char *name,
    json_t *value)
{
    if (!json_is_string(value)) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be a string.", name);
    }

    if (ngx_strlen(json_string_value(value)) != json_string_length(value)) {
        return ngx_http_sandbox_bad(req, "\"%s\" must not contain NUL.", name);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_command(ngx_http_sandbox_request_t *req, json_t *value)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    rc = ngx_http_sandbox_field_text(req, "command", value);
    if (rc != NGX_OK) {
        return rc;
    }

    if (json_string_length(value) == 0) {
        return ngx_http_sandbox_bad(req, "\"%s\" must not be empty.",
                                    "command");
    }

    slcf = ngx_http_get_module_loc_conf(req->r, ngx_http_sandbox_module);

    if ((off_t) json_string_length(value) > slcf->caps.command_size) {

        if (ngx_http_sandbox_refuse_format(req->r, req->ctx,
                                           NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                           "command_too_large",
                                           "\"command\" may have at most %O "
                                           "bytes, this one has %uz.",
                                           slcf->caps.command_size,
                                           json_string_length(value))
            == NGX_ERROR)
        {
            return NGX_ERROR;
        }

        return NGX_DECLINED;
    }

    req->command = value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_cwd(ngx_http_sandbox_request_t *req, json_t *value)
{
    size_t        len;
    ngx_int_t     rc;
    const char   *path;

    rc = ngx_http_sandbox_field_text(req, "cwd", value);
    if (rc != NGX_OK) {
        return rc;
    }

    path = json_string_value(value);
    len = json_string_length(value);

    if (len == 0 || len >= SANDBOX_WIRE_MAX_CWD) {
        return ngx_http_sandbox_bad(req, "\"%s\" must have 1 to 4095 bytes.",
                                    "cwd");
    }

    if (path[0] != '/') {
        ngx_http_sandbox_refuse(req->ctx, 422, "cwd_outside",
                                "\"cwd\" must be an absolute path below "
                                "/home/sandbox, /skills or /tmp.");
        return NGX_DECLINED;
    }

    req->cwd = value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_timeout(ngx_http_sandbox_request_t *req, json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be a whole number of "
                                    "seconds, at least 1.", "timeoutSeconds");
    }

    req->timeout = value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_env(ngx_http_sandbox_request_t *req, json_t *value)
{
    size_t        i, len;
    json_t       *text;
    const char   *name;

    if (!json_is_object(value)) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be an object of "
                                    "strings.", "env");
    }

    if (json_object_size(value) > NGX_HTTP_SANDBOX_MAX_ENVIRONMENT) {
        return ngx_http_sandbox_bad(req, "\"%s\" may have at most 512 names.",
                                    "env");
    }

    json_object_foreach(value, name, text) {

        len = ngx_strlen(name);

        for (i = 0; i < len; i++) {
            if (!((name[i] >= 'a' && name[i] <= 'z')
                  || (name[i] >= 'A' && name[i] <= 'Z')
                  || name[i] == '_'
                  || (i && name[i] >= '0' && name[i] <= '9')))
            {
                break;
            }
        }

        if (len == 0 || i < len) {
            return ngx_http_sandbox_bad(req, "A name in \"%s\" must be "
                                        "letters, digits and \"_\", and not "
                                        "begin with a digit.", "env");
        }

        if (!json_is_string(text)) {
            return ngx_http_sandbox_bad(req, "Every value in \"%s\" must be "
                                        "a string.", "env");
        }

        if (ngx_strlen(json_string_value(text)) != json_string_length(text)) {
            return ngx_http_sandbox_bad(req, "A value in \"%s\" must not "
                                        "contain NUL.", "env");
        }

        if (len + 1 + json_string_length(text) >= SANDBOX_WIRE_MAX_ENV) {
            return ngx_http_sandbox_bad(req, "A name and its value in \"%s\" "
                                        "may have at most 131071 bytes.",
                                        "env");
        }
    }

    req->env = value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_stdin(ngx_http_sandbox_request_t *req, json_t *value)
{
    req->input = value;

    return ngx_http_sandbox_field_text(req, "stdin", value);
}


static ngx_int_t
ngx_http_sandbox_field_stdin_base64(ngx_http_sandbox_request_t *req,
    json_t *value)
{
    req->input_base64 = value;

    return ngx_http_sandbox_field_text(req, "stdinBase64", value);
}


static ngx_int_t
ngx_http_sandbox_field_background(ngx_http_sandbox_request_t *req,
    json_t *value)
{
    if (!json_is_boolean(value)) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be true or false.",
                                    "background");
    }

    req->background = json_is_true(value);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_fresh(ngx_http_sandbox_request_t *req, json_t *value)
{
    if (!json_is_boolean(value)) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be true or false.",
                                    "fresh");
    }

    req->fresh = json_is_true(value);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_command_id(ngx_http_sandbox_request_t *req,
    json_t *value)
{
    if (!json_is_string(value)
        || !sandbox_command_id_valid((u_char *) json_string_value(value),
                                     json_string_length(value)))
    {
        return ngx_http_sandbox_bad(req, "\"%s\" must be a string of 1 to 64 "
                                    "characters of A-Z a-z 0-9 . _ and -.",
                                    "commandId");
    }

    req->command_id = value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_field_disconnect(ngx_http_sandbox_request_t *req,
    json_t *value)
{
    const char  *word;

    word = json_is_string(value) ? json_string_value(value) : "";

    if (ngx_strcmp(word, "continue") == 0) {
        return NGX_OK;
    }

    if (ngx_strcmp(word, "cancel") == 0) {
        req->ctx->cancel = 1;
        return NGX_OK;
    }

    return ngx_http_sandbox_bad(req, "\"%s\" must be \"continue\" or "
                                "\"cancel\".", "onDisconnect");
}


static ngx_int_t
ngx_http_sandbox_field_stdin_open(ngx_http_sandbox_request_t *req,
    json_t *value)
{
    if (!json_is_boolean(value)) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be true or false.",
                                    "stdinOpen");
    }

    req->stdin_open = value;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_bad(ngx_http_sandbox_request_t *req, const char *fmt,
    const char *name)
{
    if (ngx_http_sandbox_refuse_format(req->r, req->ctx, NGX_HTTP_BAD_REQUEST,
                                       "bad_request", fmt, name)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}
