/*
 * What leaves the module: problems and answers with the headers that each has,
 * and the filter that gives nginx's own error pages the same shape where the
 * module serves.  Knows no operation.
 */

#include "ngx_http_sandbox_mcp.h"


static ngx_int_t ngx_http_sandbox_command_headers(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_header(ngx_http_request_t *r,
    const char *key, ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static void ngx_http_sandbox_default_problem(ngx_http_sandbox_ctx_t *ctx,
    ngx_uint_t status);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* for what nginx refuses by itself in our locations */

static const struct {
    ngx_uint_t   status;
    const char  *code;
    const char  *detail;
} ngx_http_sandbox_defaults[] = {
    { NGX_HTTP_BAD_REQUEST, "bad_request",
      "The request could not be read." },
    { NGX_HTTP_UNAUTHORIZED, "unauthorized",
      "The request needs credentials." },
    { NGX_HTTP_FORBIDDEN, "forbidden",
      "The server does not let this client in." },
    { NGX_HTTP_NOT_FOUND, "not_found",
      "There is nothing at this path." },
    { NGX_HTTP_NOT_ALLOWED, "method_not_allowed",
      "This path does not have that method." },
    { NGX_HTTP_PRECONDITION_FAILED, "precondition_failed",
      "If-Match or If-Unmodified-Since does not hold." },
    { NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "body_too_large",
      "The request body is too large." },
    { NGX_HTTP_TOO_MANY_REQUESTS, "too_many_requests",
      "Too many requests, try again later." },
    { NGX_HTTP_SERVICE_UNAVAILABLE, "unavailable",
      "The server can't take this request now." },
    { NGX_HTTP_INTERNAL_SERVER_ERROR, "internal",
      "The server met an error, its log says which." },
    { 0, "bad_request",
      "The server does not take this request." }
};


ngx_int_t
ngx_http_sandbox_refuse(ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status,
    const char *code, const char *detail)
{
    ngx_memzero(&ctx->problem, sizeof(ngx_http_sandbox_problem_t));

    ctx->problem.status = status;
    ctx->problem.code.data = (u_char *) code;
    ctx->problem.code.len = ngx_strlen(code);
    ctx->problem.detail.data = (u_char *) detail;
    ctx->problem.detail.len = ngx_strlen(detail);

    return (ngx_int_t) status;
}


ngx_int_t
ngx_http_sandbox_refuse_format(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status, const char *code,
    const char *fmt, ...)
{
    u_char   *p, *last;
    va_list   args;

    p = ngx_pnalloc(r->pool, 1024);
    if (p == NULL) {
        return NGX_ERROR;
    }

    va_start(args, fmt);
    last = ngx_vslprintf(p, p + 1023, fmt, args);
    va_end(args);

    *last = '\0';

    return ngx_http_sandbox_refuse(ctx, status, code, (char *) p);
}


ngx_int_t
ngx_http_sandbox_send_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    if (ctx->problem.status == 0) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_sandbox_render_problem(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* as nginx has it: who waits to be asked for a body is not asked now */

    r->expect_tested = 1;

    return ngx_http_sandbox_send_answer(r, ctx);
}


ngx_int_t
ngx_http_sandbox_send_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (ngx_http_discard_request_body(r) != NGX_OK) {
        r->keepalive = 0;
    }

    r->headers_out.status = ctx->answer_status;

    /* conditions are about files, and an answer is none */

    r->disable_not_modified = 1;

    if (ngx_http_sandbox_set_headers(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->answer == NULL) {
        r->header_only = 1;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, ctx->answer);
}


ngx_int_t
ngx_http_sandbox_set_headers(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                      *p;
    ngx_str_t                    value;
    ngx_list_part_t             *part;
    ngx_http_sandbox_problem_t  *problem;

    ngx_str_t  no_store = ngx_string("no-store");
    ngx_str_t  nosniff = ngx_string("nosniff");

    ctx->own = 1;
    problem = &ctx->problem;

    /*
     * Before the end of the body, or instead of an answer that was begun:
     * nginx will close, so it is said.
     */

    if (r->reading_body || r->filter_finalize) {
        r->keepalive = 0;
    }

    r->headers_out.content_length_n = ctx->answer_size;

    if (r->headers_out.content_length) {
        r->headers_out.content_length->hash = 0;
        r->headers_out.content_length = NULL;
    }

    if (ngx_http_sandbox_fs_file(ctx)) {
        r->headers_out.content_type_lowcase = NULL;
        ngx_str_null(&r->headers_out.charset);

        return ngx_http_sandbox_fs_headers(r, ctx);
    }

    if (ctx->stream && problem->status == 0) {
        ngx_http_sandbox_stream_type(ctx, &r->headers_out.content_type);

    } else if (ctx->answer == NULL && !(ctx->mcp && ctx->mcp->waiting)) {
        ngx_str_null(&r->headers_out.content_type);
        r->headers_out.content_type_len = 0;

    } else if (problem->status) {
        ngx_str_set(&r->headers_out.content_type, "application/problem+json");

    } else {
        ngx_str_set(&r->headers_out.content_type, "application/json");
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_str_null(&r->headers_out.charset);

    if (ngx_http_sandbox_header(r, "Cache-Control", &no_store) != NGX_OK
        || ngx_http_sandbox_header(r, "X-Content-Type-Options", &nosniff)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (problem->status == 0) {
        return ngx_http_sandbox_command_headers(r, ctx);
    }

    if (problem->challenge.len) {

        if (r->headers_out.www_authenticate) {
            r->headers_out.www_authenticate->hash = 0;
            r->headers_out.www_authenticate = NULL;
        }

        if (ngx_http_sandbox_header(r, "WWW-Authenticate",
                                    &problem->challenge)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        /* "auth_request" takes it from there: it is what was added last */

        part = r->headers_out.headers.last;
        r->headers_out.www_authenticate = (ngx_table_elt_t *) part->elts
                                          + part->nelts - 1;
    }

    if (problem->status == NGX_HTTP_NOT_ALLOWED) {

        if (ngx_http_sandbox_route_allow(r, ctx, &value) != NGX_OK
            || ngx_http_sandbox_header(r, "Allow", &value) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (problem->retry_after) {

        p = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
        if (p == NULL) {
            return NGX_ERROR;
        }

        value.data = p;
        value.len = ngx_sprintf(p, "%ui", problem->retry_after) - p;

        if (ngx_http_sandbox_header(r, "Retry-After", &value) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * Where a command is to be found that has not ended with its answer; and that
 * proxies must not collect its events.
 */

static ngx_int_t
ngx_http_sandbox_command_headers(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                       *p;
    ngx_str_t                     value, *id;
    ngx_http_sandbox_loc_conf_t  *slcf;

    ngx_str_t  no = ngx_string("no");

    if (ctx->stream == NULL
        && (ctx->answer_status != NGX_HTTP_ACCEPTED || ctx->mcp))
    {
        return NGX_OK;
    }

    if (ctx->stream
        && ngx_http_sandbox_header(r, "X-Accel-Buffering", &no) != NGX_OK)
    {
        return NGX_ERROR;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    id = &ctx->wire.result.command_id;

    if (id->len == 0) {
        id = &ctx->command_id;
    }

    if (id->len == 0) {
        return NGX_OK;
    }

    /* ids are of letters that need no escape in a path */

    value.len = slcf->prefix.len
                + 2 * ngx_escape_uri(NULL, slcf->prefix.data,
                                     slcf->prefix.len, NGX_ESCAPE_URI)
                + sizeof("/v1/conversations/") - 1 + ctx->conversation.len
                + sizeof("/commands/") - 1 + id->len;

    value.data = ngx_pnalloc(r->pool, value.len);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    p = (u_char *) ngx_escape_uri(value.data, slcf->prefix.data,
                                  slcf->prefix.len, NGX_ESCAPE_URI);

    if (p[-1] != '/') {
        *p++ = '/';
    }

    p = ngx_sprintf(p, "v1/conversations/%V/commands/%V", &ctx->conversation,
                    id);
    value.len = p - value.data;

    return ngx_http_sandbox_header(r, "Content-Location", &value);
}


static ngx_int_t
ngx_http_sandbox_header(ngx_http_request_t *r, const char *key,
    ngx_str_t *value)
{
    return ngx_http_sandbox_serve_header(r, key, value) ? NGX_OK : NGX_ERROR;
}


/*
 * Errors that nginx answers by itself (access rules, limits, a lost upstream)
 * come through here as HTML.  A recorded problem says more than their status;
 * so does a result of a command whose runner was lost.
 */

static ngx_int_t
ngx_http_sandbox_header_filter(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (r->err_status < NGX_HTTP_BAD_REQUEST || (ctx && ctx->own)) {
        return ngx_http_next_header_filter(r);
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (!slcf->serves) {
        return ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_sandbox_get_ctx(r);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    if (ctx->answer == NULL) {

        if (ctx->problem.status == 0) {
            ngx_http_sandbox_default_problem(ctx, r->headers_out.status);
        }

        if (ngx_http_sandbox_render_problem(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ctx->replace = 1;

    r->err_status = ctx->answer_status;
    r->headers_out.status = ctx->answer_status;
    r->headers_out.status_line.len = 0;

    if (ngx_http_sandbox_set_headers(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}


static ngx_int_t
ngx_http_sandbox_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_chain_t             *cl, end;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx == NULL || !ctx->replace || in == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    for (cl = in; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->last;
        cl->buf->file_pos = cl->buf->file_last;
    }

    if (ctx->replaced) {
        return NGX_OK;
    }

    ctx->replaced = 1;

    if (ctx->answer) {
        return ngx_http_next_body_filter(r, ctx->answer);
    }

    /* 202 has no body, but an end */

    end.buf = ngx_calloc_buf(r->pool);
    if (end.buf == NULL) {
        return NGX_ERROR;
    }

    end.next = NULL;
    end.buf->last_buf = (r == r->main);
    end.buf->last_in_chain = 1;

    return ngx_http_next_body_filter(r, &end);
}


static void
ngx_http_sandbox_default_problem(ngx_http_sandbox_ctx_t *ctx,
    ngx_uint_t status)
{
    ngx_uint_t  i, row;

    /* one row for what else may be wrong with us */

    row = (status > NGX_HTTP_INTERNAL_SERVER_ERROR
           && status != NGX_HTTP_SERVICE_UNAVAILABLE)
          ? NGX_HTTP_INTERNAL_SERVER_ERROR : status;

    for (i = 0; ngx_http_sandbox_defaults[i].status; i++) {
        if (ngx_http_sandbox_defaults[i].status == row) {
            break;
        }
    }

    ngx_http_sandbox_refuse(ctx, status, ngx_http_sandbox_defaults[i].code,
                            ngx_http_sandbox_defaults[i].detail);

    if (status == NGX_HTTP_TOO_MANY_REQUESTS
        || status == NGX_HTTP_SERVICE_UNAVAILABLE)
    {
        ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
    }
}


ngx_int_t
ngx_http_sandbox_filter_init(ngx_conf_t *cf)
{
    /* before all others: errors must have their shape before gzip sees them */

    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sandbox_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_sandbox_body_filter;

    return NGX_OK;
}
