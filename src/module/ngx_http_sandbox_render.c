/*
 * JSON out: text, captured output, a problem.  Bytes come from a sandbox and
 * may be anything; what leaves is valid JSON.
 */

#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_metrics.h"


static ngx_str_t ngx_http_sandbox_render_marker(ngx_http_sandbox_capture_t *c,
    u_char *data);
static ngx_str_t *ngx_http_sandbox_title(ngx_uint_t status);


static const struct {
    ngx_uint_t  status;
    ngx_str_t   title;
} ngx_http_sandbox_titles[] = {
    { 400, ngx_string("Bad Request") },
    { 401, ngx_string("Unauthorized") },
    { 403, ngx_string("Forbidden") },
    { 404, ngx_string("Not Found") },
    { 405, ngx_string("Method Not Allowed") },
    { 408, ngx_string("Request Timeout") },
    { 409, ngx_string("Conflict") },
    { 410, ngx_string("Gone") },
    { 412, ngx_string("Precondition Failed") },
    { 413, ngx_string("Content Too Large") },
    { 415, ngx_string("Unsupported Media Type") },
    { 416, ngx_string("Range Not Satisfiable") },
    { 422, ngx_string("Unprocessable Content") },
    { 429, ngx_string("Too Many Requests") },
    { 500, ngx_string("Internal Server Error") },
    { 501, ngx_string("Not Implemented") },
    { 502, ngx_string("Bad Gateway") },
    { 503, ngx_string("Service Unavailable") },
    { 504, ngx_string("Gateway Timeout") },
    { 507, ngx_string("Insufficient Storage") },
    { 0, ngx_string("Error") }
};


size_t
ngx_http_sandbox_escape(u_char *dst, const u_char *src, size_t size,
    ngx_uint_t *stripped)
{
    size_t         n, len;
    u_char         c;
    const u_char  *last;

    static const u_char  hex[] = "0123456789abcdef";

    len = 0;
    last = src + size;

    while (src < last) {

        c = *src;

        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {

            /* most of what there is */

            if (dst) {
                *dst++ = c;
            }

            len++;
            src++;
            continue;
        }

        if (c == '\0') {
            *stripped = 1;
            src++;
            continue;
        }

        if (c == '"' || c == '\\' || c == LF || c == CR || c == '\t') {

            if (dst) {
                *dst++ = '\\';
                *dst++ = (c == LF) ? 'n' : (c == CR) ? 'r'
                         : (c == '\t') ? 't' : c;
            }

            len += 2;
            src++;
            continue;
        }

        if (c < 0x20 || c == 0x7f) {

            if (dst) {
                dst = ngx_cpymem(dst, "\\u00", 4);
                *dst++ = hex[c >> 4];
                *dst++ = hex[c & 0x0f];
            }

            len += 6;
            src++;
            continue;
        }

        n = sandbox_utf8_sequence(src, last - src);

        if (n == 0) {
            *stripped = 1;

            if (dst) {
                dst = ngx_cpymem(dst, "\xef\xbf\xbd", 3);
            }

            len += 3;
            src++;
            continue;
        }

        if (dst) {
            dst = ngx_cpymem(dst, src, n);
        }

        len += n;
        src += n;
    }

    return len;
}


ngx_int_t
ngx_http_sandbox_render_output(ngx_http_request_t *r,
    ngx_http_sandbox_capture_t *c, ngx_uint_t base64, ngx_str_t *text,
    ngx_uint_t *stripped)
{
    u_char     *p;
    ngx_str_t   raw, marker;
    u_char      data[sizeof("\xe2\x80\xa6 [ bytes left out] \xe2\x80\xa6")
                     + NGX_INT64_LEN];

    marker = ngx_http_sandbox_render_marker(c, data);

    if (base64) {

        /* what would be the text, byte for byte */

        raw.len = c->len + marker.len;
        raw.data = c->data;

        if (marker.len) {
            raw.data = ngx_pnalloc(r->pool, raw.len);
            if (raw.data == NULL) {
                return NGX_ERROR;
            }

            p = ngx_cpymem(raw.data, c->data, c->head);
            p = ngx_cpymem(p, marker.data, marker.len);
            ngx_memcpy(p, c->data + c->head, c->len - c->head);
        }

        text->len = ngx_base64_encoded_length(raw.len);
        text->data = ngx_pnalloc(r->pool, text->len + 1);
        if (text->data == NULL) {
            return NGX_ERROR;
        }

        ngx_encode_base64(text, &raw);

        return NGX_OK;
    }

    text->len = ngx_http_sandbox_escape(NULL, c->data, c->head, stripped)
                + ngx_http_sandbox_escape(NULL, marker.data, marker.len,
                                          stripped)
                + ngx_http_sandbox_escape(NULL, c->data + c->head,
                                          c->len - c->head, stripped);

    text->data = ngx_pnalloc(r->pool, text->len + 1);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    p = text->data;
    p += ngx_http_sandbox_escape(p, c->data, c->head, stripped);
    p += ngx_http_sandbox_escape(p, marker.data, marker.len, stripped);
    ngx_http_sandbox_escape(p, c->data + c->head, c->len - c->head, stripped);

    return NGX_OK;
}


static ngx_str_t
ngx_http_sandbox_render_marker(ngx_http_sandbox_capture_t *c, u_char *data)
{
    ngx_str_t  marker;

    data[0] = '\0';

    marker.data = data;
    marker.len = 0;

    if (c->gap == 0) {
        c->head = c->len;
        return marker;
    }

    marker.len = ngx_sprintf(data, "\xe2\x80\xa6 [%uL bytes left out] "
                             "\xe2\x80\xa6", c->gap)
                 - data;

    return marker;
}


ngx_int_t
ngx_http_sandbox_render_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t                          size;
    ngx_buf_t                      *b;
    ngx_str_t                      *title;
    ngx_uint_t                      ignored;
    ngx_http_variable_value_t      *id;
    ngx_http_sandbox_problem_t     *problem;
    ngx_http_sandbox_main_conf_t   *smcf;

    /* nobody is told what came of a message that cancels */

    if (ctx->mcp == NULL || !ctx->mcp->cancelling) {
        ngx_http_sandbox_metrics_refusal(r, ctx);
    }

    if (ctx->mcp && ctx->mcp->calling) {
        return ngx_http_sandbox_mcp_failure(r, ctx);
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    problem = &ctx->problem;

    id = ngx_http_get_indexed_variable(r, smcf->request_id);
    title = ngx_http_sandbox_title(problem->status);

    size = sizeof("{\"type\":\"about:blank\",\"title\":\"\",\"status\":,"
                  "\"detail\":\"\",\"code\":\"\",\"requestId\":\"\"}\n")
           + title->len + NGX_INT_T_LEN + problem->code.len
           + ngx_http_sandbox_escape(NULL, problem->detail.data,
                                     problem->detail.len, &ignored)
           + ((id && !id->not_found) ? id->len : 0);

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"type\":\"about:blank\",\"title\":\"%V\""
                          ",\"status\":%ui,\"detail\":\"", title,
                          problem->status);
    b->last += ngx_http_sandbox_escape(b->last, problem->detail.data,
                                       problem->detail.len, &ignored);
    b->last = ngx_sprintf(b->last, "\",\"code\":\"%V\",\"requestId\":\"",
                          &problem->code);

    if (id && !id->not_found) {
        b->last = ngx_cpymem(b->last, id->data, id->len);
    }

    *b->last++ = '"';
    *b->last++ = '}';
    *b->last++ = LF;

    return ngx_http_sandbox_render_buffer(r, ctx, problem->status, b);
}


ngx_int_t
ngx_http_sandbox_render_buffer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status, ngx_buf_t *b)
{
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    ctx->answer = ngx_alloc_chain_link(r->pool);
    if (ctx->answer == NULL) {
        return NGX_ERROR;
    }

    ctx->answer->buf = b;
    ctx->answer->next = NULL;
    ctx->answer_size = b->last - b->pos;
    ctx->answer_status = status;

    return NGX_OK;
}


static ngx_str_t *
ngx_http_sandbox_title(ngx_uint_t status)
{
    ngx_uint_t  i;

    for (i = 0; ngx_http_sandbox_titles[i].status; i++) {
        if (ngx_http_sandbox_titles[i].status == status) {
            break;
        }
    }

    return (ngx_str_t *) &ngx_http_sandbox_titles[i].title;
}
