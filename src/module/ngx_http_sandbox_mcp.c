/*
 * POST .../mcp: a JSON-RPC message and what of it needs no sandbox.  Two
 * revisions' worth of rules: one that begins with a handshake, of which nothing
 * is kept, and one in which each message says all of it.  Knows no tool.
 */

#include "ngx_http_sandbox_mcp.h"


#define NGX_HTTP_SANDBOX_MCP_META       "io.modelcontextprotocol/"
#define NGX_HTTP_SANDBOX_MCP_MAX_ID     512      /* bytes, as JSON */
#define NGX_HTTP_SANDBOX_MCP_TTL        "300000" /* ms that a list is good */

#define NGX_HTTP_SANDBOX_MCP_SUPPORTED                                       \
    "[\"2026-07-28\",\"2025-11-25\",\"2025-06-18\",\"2025-03-26\"]"


/* in the order of ngx_http_sandbox_mcp_methods */

enum {
    NGX_HTTP_SANDBOX_MCP_INITIALIZE = 0,
    NGX_HTTP_SANDBOX_MCP_PING,
    NGX_HTTP_SANDBOX_MCP_DISCOVER,
    NGX_HTTP_SANDBOX_MCP_LIST,
    NGX_HTTP_SANDBOX_MCP_CALL,
    NGX_HTTP_SANDBOX_MCP_CANCELLED,
    NGX_HTTP_SANDBOX_MCP_UNKNOWN
};


static ngx_int_t ngx_http_sandbox_mcp_envelope(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_id(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp);
static ngx_int_t ngx_http_sandbox_mcp_revision(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp);
static ngx_int_t ngx_http_sandbox_mcp_modern(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp, ngx_str_t *header);
static ngx_int_t ngx_http_sandbox_mcp_mirror(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp, const char *name, const char *value,
    ngx_uint_t encoded);
static ngx_int_t ngx_http_sandbox_mcp_arguments(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp, ngx_int_t error, ngx_uint_t status,
    const char *fmt, ...);
static ngx_uint_t ngx_http_sandbox_mcp_supported(ngx_str_t *version);
static ngx_int_t ngx_http_sandbox_mcp_initialize(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_discover(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_list(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_mcp_free(void *data);


static const char *const  ngx_http_sandbox_mcp_methods[] = {
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "notifications/cancelled"
};


static const char  ngx_http_sandbox_mcp_instructions[] =
    "A private Linux sandbox for this conversation. run_command runs shell "
    "commands and Python in it; read_file, save_file, edit_file, delete_file "
    "and search_files work on its files; what the user is to have goes to the "
    "Files panel by download_file. The user's attachments lie in "
    "/home/sandbox/attachments.";


ngx_int_t
ngx_http_sandbox_mcp_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t            rc;
    ngx_pool_cleanup_t  *cln;

    rc = ngx_http_sandbox_mcp_origin(r, ctx);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? ngx_http_sandbox_send_problem(r, ctx)
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_mcp_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->mcp = cln->data;
    ngx_memzero(ctx->mcp, sizeof(ngx_http_sandbox_mcp_t));
    cln->handler = ngx_http_sandbox_mcp_free;

    return ngx_http_sandbox_body_handler(r, ctx);
}


static void
ngx_http_sandbox_mcp_free(void *data)
{
    ngx_http_sandbox_mcp_t *mcp = data;

    json_decref(mcp->root);
}


ngx_int_t
ngx_http_sandbox_mcp_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    size_t            len;
    ngx_int_t         rc;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    rc = NGX_DECLINED;
    len = ngx_strlen(name);
    ngx_str_null(value);

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == len
            && ngx_strncasecmp(h[i].key.data, (u_char *) name, len) == 0)
        {
            if (rc == NGX_OK) {
                return NGX_ERROR;
            }

            *value = h[i].value;
            rc = NGX_OK;
        }
    }

    return rc;
}


/* maybe in a thread: no logging, no events */

ngx_int_t
ngx_http_sandbox_mcp_parse(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                rc;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;
    mcp->method = NGX_HTTP_SANDBOX_MCP_UNKNOWN;

    if (!ctx->body.nul) {
        mcp->root = ngx_http_sandbox_request_load(r, ctx);

    } else {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "The body must be JSON, which has no NUL "
                                "bytes.");
    }

    if (mcp->root == NULL) {
        rc = ngx_http_sandbox_mcp_refuse(r, mcp, NGX_HTTP_SANDBOX_MCP_PARSE,
                                         NGX_HTTP_BAD_REQUEST, "%V",
                                         &ctx->problem.detail);
        ngx_memzero(&ctx->problem, sizeof(ngx_http_sandbox_problem_t));

    } else {
        rc = ngx_http_sandbox_mcp_envelope(r, ctx);
    }

    /* what was refused is told by mcp->error, or by ctx->problem */

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_mcp_envelope(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t                  *value;
    ngx_int_t                rc;
    ngx_uint_t               i;
    const char              *method;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;

    if (!json_is_object(mcp->root)) {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_INVALID,
                                     NGX_HTTP_BAD_REQUEST,
                                     "The body must be one JSON-RPC message, "
                                     "an object; batches are not taken.");
    }

    rc = ngx_http_sandbox_mcp_id(r, mcp);

    if (rc != NGX_OK) {
        return rc;
    }

    value = json_object_get(mcp->root, "jsonrpc");

    if (json_string_length(value) != 3
        || ngx_strncmp(json_string_value(value), "2.0", 3) != 0)
    {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_INVALID,
                                     NGX_HTTP_BAD_REQUEST,
                                     "\"jsonrpc\" must be \"2.0\".");
    }

    value = json_object_get(mcp->root, "method");

    if (value == NULL && (json_object_get(mcp->root, "result")
                          || json_object_get(mcp->root, "error")))
    {
        /* nothing was asked of the client */

        mcp->response = 1;
        return NGX_OK;
    }

    method = json_string_value(value);

    if (method == NULL || ngx_strlen(method) != json_string_length(value)) {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_INVALID,
                                     NGX_HTTP_BAD_REQUEST,
                                     "\"method\" must be a string.");
    }

    for (i = 0; i < NGX_HTTP_SANDBOX_MCP_UNKNOWN; i++) {
        if (ngx_strcmp(ngx_http_sandbox_mcp_methods[i], method) == 0) {
            break;
        }
    }

    mcp->method = i;
    mcp->params = json_object_get(mcp->root, "params");

    if (mcp->params && !json_is_object(mcp->params)) {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_INVALID,
                                     NGX_HTTP_BAD_REQUEST,
                                     "\"params\" must be an object.");
    }

    rc = ngx_http_sandbox_mcp_revision(r, mcp);

    if (rc == NGX_OK) {
        rc = ngx_http_sandbox_mcp_mirror(r, mcp, "Mcp-Method", method, 0);
    }

    if (rc == NGX_OK && i == NGX_HTTP_SANDBOX_MCP_CALL && mcp->id.len) {
        rc = ngx_http_sandbox_mcp_arguments(r, ctx);
    }

    return rc;
}


/* as it came, whatever it is; a message without one is a notification */

static ngx_int_t
ngx_http_sandbox_mcp_id(ngx_http_request_t *r, ngx_http_sandbox_mcp_t *mcp)
{
    char    *text;
    size_t   len;
    json_t  *id;

    id = json_object_get(mcp->root, "id");

    if (id == NULL) {
        return NGX_OK;
    }

    if (json_is_string(id) || json_is_integer(id)) {

        text = json_dumps(id, JSON_ENCODE_ANY);
        if (text == NULL) {
            return NGX_ERROR;
        }

        len = ngx_strlen(text);

        if (len <= NGX_HTTP_SANDBOX_MCP_MAX_ID) {
            mcp->id.data = ngx_pnalloc(r->pool, len);

            if (mcp->id.data) {
                ngx_memcpy(mcp->id.data, text, len);
                mcp->id.len = len;
            }

            free(text);

            return mcp->id.data ? NGX_OK : NGX_ERROR;
        }

        free(text);
    }

    return ngx_http_sandbox_mcp_refuse(r, mcp, NGX_HTTP_SANDBOX_MCP_INVALID,
                                       NGX_HTTP_BAD_REQUEST,
                                       "\"id\" must be a string of at most "
                                       "512 bytes, or a whole number.");
}


/*
 * Who says 2026-07-28 in a header or in _meta is held to it; of all others
 * only the header is looked at.
 */

static ngx_int_t
ngx_http_sandbox_mcp_revision(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp)
{
    json_t     *meta;
    ngx_int_t   rc;
    ngx_str_t   version, session;

    rc = ngx_http_sandbox_mcp_header(r, "MCP-Protocol-Version", &version);

    meta = json_object_get(json_object_get(mcp->params, "_meta"),
                           NGX_HTTP_SANDBOX_MCP_META "protocolVersion");

    if (rc == NGX_ERROR || (rc == NGX_OK && meta == NULL
                            && !ngx_http_sandbox_mcp_supported(&version)))
    {
        mcp->data.data = (u_char *) "{\"supported\":"
                                    NGX_HTTP_SANDBOX_MCP_SUPPORTED "}";
        mcp->data.len = ngx_strlen(mcp->data.data);

        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_VERSION,
                                     NGX_HTTP_BAD_REQUEST,
                                     "MCP-Protocol-Version names a revision "
                                     "that is not spoken here.");
    }

    mcp->modern = (meta != NULL)
                  || (rc == NGX_OK
                      && ngx_strcmp(version.data, NGX_HTTP_SANDBOX_MCP_MODERN)
                         == 0);

    if (mcp->modern) {
        return ngx_http_sandbox_mcp_modern(r, mcp, &version);
    }

    /* no session was ever begun here; the client is to begin anew */

    if (mcp->method != NGX_HTTP_SANDBOX_MCP_INITIALIZE
        && ngx_http_sandbox_mcp_header(r, "Mcp-Session-Id", &session)
           != NGX_DECLINED)
    {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_INVALID,
                                     NGX_HTTP_NOT_FOUND,
                                     "There is no such session: initialize "
                                     "anew, without Mcp-Session-Id.");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_mcp_modern(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp, ngx_str_t *header)
{
    char       *text;
    json_t     *meta, *version;
    ngx_str_t   asked;

    /* the revision asks nothing of notifications */

    if (mcp->id.len == 0) {
        return NGX_OK;
    }

    meta = json_object_get(mcp->params, "_meta");
    version = json_object_get(meta, NGX_HTTP_SANDBOX_MCP_META
                              "protocolVersion");

    if (!json_is_string(version)
        || !json_is_object(json_object_get(meta, NGX_HTTP_SANDBOX_MCP_META
                                           "clientCapabilities")))
    {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_PARAMS,
                                     NGX_HTTP_BAD_REQUEST,
                                     "\"_meta\" of \"params\" must have "
                                     NGX_HTTP_SANDBOX_MCP_META
                                     "protocolVersion, a string, and "
                                     NGX_HTTP_SANDBOX_MCP_META
                                     "clientCapabilities, an object.");
    }

    asked.data = (u_char *) json_string_value(version);
    asked.len = json_string_length(version);

    if (header->data == NULL || header->len != asked.len
        || ngx_memcmp(header->data, asked.data, asked.len) != 0)
    {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_HEADERS,
                                     NGX_HTTP_BAD_REQUEST,
                                     "Header mismatch: MCP-Protocol-Version "
                                     "must be there, and be what \"_meta\" "
                                     "has.");
    }

    if (asked.len == sizeof(NGX_HTTP_SANDBOX_MCP_MODERN) - 1
        && ngx_memcmp(asked.data, NGX_HTTP_SANDBOX_MCP_MODERN, asked.len) == 0)
    {
        return NGX_OK;
    }

    text = json_dumps(version, JSON_ENCODE_ANY);
    if (text == NULL) {
        return NGX_ERROR;
    }

    mcp->data.data = ngx_pnalloc(r->pool, ngx_strlen(text) + 128);

    if (mcp->data.data) {
        mcp->data.len = ngx_sprintf(mcp->data.data, "{\"supported\":"
                                    NGX_HTTP_SANDBOX_MCP_SUPPORTED
                                    ",\"requested\":%s}", text)
                        - mcp->data.data;
    }

    free(text);

    if (mcp->data.data == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_mcp_refuse(r, mcp, NGX_HTTP_SANDBOX_MCP_VERSION,
                                       NGX_HTTP_BAD_REQUEST,
                                       "Unsupported protocol version");
}


/*
 * A header that says what the body says, for those between who do not read
 * the body: they must not be told something else than we do.
 */

static ngx_int_t
ngx_http_sandbox_mcp_mirror(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp, const char *name, const char *value,
    ngx_uint_t encoded)
{
    size_t      n;
    ngx_int_t   rc;
    ngx_str_t   header, text;

    rc = ngx_http_sandbox_mcp_header(r, name, &header);

    if (rc == NGX_DECLINED && (!mcp->modern || mcp->id.len == 0)) {
        return NGX_OK;
    }

    n = sizeof("=?base64?") - 1;

    if (rc == NGX_OK && encoded && header.len >= n + 2
        && ngx_strncmp(header.data, "=?base64?", n) == 0
        && ngx_strncmp(header.data + header.len - 2, "?=", 2) == 0)
    {
        text.data = header.data + n;
        text.len = header.len - n - 2;

        header.data = ngx_pnalloc(r->pool,
                                  ngx_base64_decoded_length(text.len) + 1);
        if (header.data == NULL) {
            return NGX_ERROR;
        }

        if (ngx_decode_base64(&header, &text) != NGX_OK) {
            rc = NGX_ERROR;
        }
    }

    if (rc == NGX_OK && header.len == ngx_strlen(value)
        && ngx_memcmp(header.data, value, header.len) == 0)
    {
        return NGX_OK;
    }

    return ngx_http_sandbox_mcp_refuse(r, mcp, NGX_HTTP_SANDBOX_MCP_HEADERS,
                                       NGX_HTTP_BAD_REQUEST,
                                       "Header mismatch: %s must be there "
                                       "once, and be what the body has.",
                                       name);
}


static ngx_int_t
ngx_http_sandbox_mcp_arguments(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t                  *name;
    ngx_int_t                rc;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;
    name = json_object_get(mcp->params, "name");

    if (!json_is_string(name)) {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_PARAMS,
                                     NGX_HTTP_OK,
                                     "\"name\" of \"params\" must be the name "
                                     "of a tool.");
    }

    rc = ngx_http_sandbox_mcp_mirror(r, mcp, "Mcp-Name",
                                     json_string_value(name), 1);
    if (rc != NGX_OK) {
        return rc;
    }

    mcp->tool = ngx_http_sandbox_mcp_tool(r, json_string_value(name),
                                          json_string_length(name));
    if (mcp->tool == NULL) {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_PARAMS,
                                     NGX_HTTP_OK,
                                     "Unknown tool; tools/list has those that "
                                     "there are.");
    }

    mcp->arguments = json_object_get(mcp->params, "arguments");

    if (mcp->arguments == NULL) {
        mcp->arguments = json_object();

        if (mcp->arguments == NULL
            || json_object_set_new(mcp->params, "arguments", mcp->arguments)
               != 0)
        {
            return NGX_ERROR;
        }
    }

    if (!json_is_object(mcp->arguments)) {
        return ngx_http_sandbox_mcp_refuse(r, mcp,
                                     NGX_HTTP_SANDBOX_MCP_PARAMS,
                                     NGX_HTTP_OK,
                                     "\"arguments\" of \"params\" must be an "
                                     "object.");
    }

    rc = ngx_http_sandbox_mcp_check(r, ctx,
                                    ngx_http_sandbox_mcp_argument(r, ctx));
    if (rc != NGX_OK) {
        return rc;
    }

    name = json_object_get(mcp->arguments, "conversation");

    if (name) {
        mcp->wanted.len = json_string_length(name);
        mcp->wanted.data = ngx_pnalloc(r->pool, mcp->wanted.len);

        if (mcp->wanted.data == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(mcp->wanted.data, json_string_value(name),
                   mcp->wanted.len);
        (void) json_object_del(mcp->arguments, "conversation");
    }

    return mcp->tool->prepare ? mcp->tool->prepare(r, ctx) : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_mcp_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_t *mcp, ngx_int_t error, ngx_uint_t status,
    const char *fmt, ...)
{
    va_list  args;

    mcp->error = error;
    mcp->status = status;

    mcp->message.data = ngx_pnalloc(r->pool, 512);
    if (mcp->message.data == NULL) {
        return NGX_ERROR;
    }

    va_start(args, fmt);
    mcp->message.len = ngx_vslprintf(mcp->message.data,
                                     mcp->message.data + 512, fmt, args)
                       - mcp->message.data;
    va_end(args);

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_sandbox_mcp_supported(ngx_str_t *version)
{
    ngx_uint_t  i;

    static const char  versions[][11] = {
        NGX_HTTP_SANDBOX_MCP_MODERN, NGX_HTTP_SANDBOX_MCP_LEGACY,
        "2025-06-18", NGX_HTTP_SANDBOX_MCP_ASSUMED
    };

    for (i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        if (version->len == 10
            && ngx_memcmp(versions[i], version->data, 10) == 0)
        {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_sandbox_mcp_run(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                rc;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;

    if (mcp->error) {
        rc = ngx_http_sandbox_mcp_error(r, ctx);

    } else if (mcp->response || mcp->id.len == 0) {

        if (mcp->method == NGX_HTTP_SANDBOX_MCP_CANCELLED) {
            ngx_http_sandbox_mcp_cancel(r, ctx);
            return;
        }

        ngx_http_sandbox_mcp_nothing(ctx);
        rc = NGX_OK;

    } else if (mcp->method == NGX_HTTP_SANDBOX_MCP_CALL) {
        ngx_http_sandbox_mcp_call(r, ctx);
        return;

    } else if (mcp->method == NGX_HTTP_SANDBOX_MCP_LIST) {
        rc = ngx_http_sandbox_mcp_list(r, ctx);

    } else if (mcp->modern
               ? mcp->method == NGX_HTTP_SANDBOX_MCP_DISCOVER : 0)
    {
        rc = ngx_http_sandbox_mcp_discover(r, ctx);

    } else if (!mcp->modern && mcp->method == NGX_HTTP_SANDBOX_MCP_INITIALIZE)
    {
        rc = ngx_http_sandbox_mcp_initialize(r, ctx);

    } else if (!mcp->modern && mcp->method == NGX_HTTP_SANDBOX_MCP_PING) {
        ngx_http_sandbox_mcp_text_t  empty;

        ngx_http_sandbox_mcp_text(&empty, r->pool);
        rc = ngx_http_sandbox_mcp_result(r, ctx, &empty);

    } else {
        rc = ngx_http_sandbox_mcp_refuse(r, mcp,
                                   NGX_HTTP_SANDBOX_MCP_NO_METHOD,
                                   mcp->modern ? NGX_HTTP_NOT_FOUND
                                               : NGX_HTTP_OK,
                                   "Method not found");

        if (rc == NGX_DECLINED) {
            rc = ngx_http_sandbox_mcp_error(r, ctx);
        }
    }

    if (rc != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_send_answer(r, ctx));
}


static ngx_int_t
ngx_http_sandbox_mcp_initialize(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t                       *value;
    ngx_int_t                     rc;
    ngx_str_t                     version;
    ngx_http_sandbox_mcp_text_t   text;

    value = json_object_get(ctx->mcp->params, "protocolVersion");

    if (!json_is_string(value)) {
        rc = ngx_http_sandbox_mcp_refuse(r, ctx->mcp,
                                   NGX_HTTP_SANDBOX_MCP_PARAMS, NGX_HTTP_OK,
                                   "\"protocolVersion\" must be a string.");

        return rc == NGX_DECLINED ? ngx_http_sandbox_mcp_error(r, ctx) : rc;
    }

    /* the one that was asked for, if it has a handshake, or the latest */

    version.data = (u_char *) json_string_value(value);
    version.len = json_string_length(value);

    if (!ngx_http_sandbox_mcp_supported(&version)
        || ngx_strcmp(version.data, NGX_HTTP_SANDBOX_MCP_MODERN) == 0)
    {
        ngx_str_set(&version, NGX_HTTP_SANDBOX_MCP_LEGACY);
    }

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_format(&text, "\"protocolVersion\":\"%V\","
                                "\"capabilities\":{\"tools\":{}},"
                                "\"serverInfo\":{\"name\":"
                                "\"sandbox-for-nginx\",\"version\":\"1\"},"
                                "\"instructions\":\"", &version);
    ngx_http_sandbox_mcp_words(&text, ngx_http_sandbox_mcp_instructions);
    ngx_http_sandbox_mcp_words(&text, "\"");

    return ngx_http_sandbox_mcp_result(r, ctx, &text);
}


static ngx_int_t
ngx_http_sandbox_mcp_discover(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_mcp_text_t  text;

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_words(&text, "\"supportedVersions\":"
                               NGX_HTTP_SANDBOX_MCP_SUPPORTED ","
                               "\"capabilities\":{\"tools\":{}},"
                               "\"instructions\":\"");
    ngx_http_sandbox_mcp_words(&text, ngx_http_sandbox_mcp_instructions);
    ngx_http_sandbox_mcp_words(&text, "\",\"ttlMs\":"
                               NGX_HTTP_SANDBOX_MCP_TTL
                               ",\"cacheScope\":\"private\"");

    return ngx_http_sandbox_mcp_result(r, ctx, &text);
}


/* all of them at once: there are few, and a cursor would be none of ours */

static ngx_int_t
ngx_http_sandbox_mcp_list(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                    rc;
    ngx_http_sandbox_mcp_text_t  text;

    if (json_object_get(ctx->mcp->params, "cursor")) {
        rc = ngx_http_sandbox_mcp_refuse(r, ctx->mcp,
                                   NGX_HTTP_SANDBOX_MCP_PARAMS, NGX_HTTP_OK,
                                   "No \"cursor\" was given out: all tools "
                                   "are on one page.");

        return rc == NGX_DECLINED ? ngx_http_sandbox_mcp_error(r, ctx) : rc;
    }

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_tools(r, &text,
                               ngx_http_sandbox_mcp_argument(r, ctx));

    if (ctx->mcp->modern) {
        ngx_http_sandbox_mcp_words(&text, ",\"ttlMs\":"
                                   NGX_HTTP_SANDBOX_MCP_TTL
                                   ",\"cacheScope\":\"private\"");
    }

    return ngx_http_sandbox_mcp_result(r, ctx, &text);
}
