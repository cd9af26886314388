/*
 * A file of the store as an answer.  Ranges, conditions and sending are done
 * by nginx's own filters; here are the headers, and those that keep a browser
 * from running what it was sent.
 */

#include "ngx_http_sandbox_store.h"


#define NGX_HTTP_SANDBOX_SERVE_HEADERS  5


static ngx_int_t ngx_http_sandbox_serve_headers(ngx_http_request_t *r,
    ngx_http_sandbox_store_op_t *op, ngx_table_elt_t **headers);
static ngx_int_t ngx_http_sandbox_serve_unsatisfiable(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_table_elt_t **headers);


ngx_int_t
ngx_http_sandbox_serve(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_store_op_t *op)
{
    ngx_buf_t        *b;
    ngx_int_t         rc;
    ngx_chain_t       out;
    ngx_table_elt_t  *headers[NGX_HTTP_SANDBOX_SERVE_HEADERS];

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->file = ngx_pcalloc(r->pool, sizeof(ngx_file_t));
    if (b->file == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_sandbox_serve_headers(r, op, headers) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* nginx has 416 for ranges that make no sense, the standard ignores them */

    if (r->headers_in.range
        && r->headers_in.range->value.len > 6
        && ngx_strncasecmp(r->headers_in.range->value.data,
                           (u_char *) "bytes=", 6)
           == 0
        && !sandbox_store_ranges((char *) r->headers_in.range->value.data + 6,
                                 r->headers_in.range->value.len - 6))
    {
        r->headers_in.range = NULL;
    }

    r->allow_ranges = 1;

    rc = ngx_http_send_header(r);

    if (rc == NGX_HTTP_RANGE_NOT_SATISFIABLE) {
        return ngx_http_sandbox_serve_unsatisfiable(r, ctx, headers);
    }

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

#if (NGX_HTTP_V2)

    /*
     * A stream that is reset while a thread is in sendfile() stops the whole
     * connection (seen with nginx 1.22): threads read, the worker sends.
     */

    if (r->stream) {
        r->connection->sendfile = 0;
    }

#endif

    b->file->fd = op->fd;
    b->file->name.data = (u_char *) "sandbox file";
    b->file->name.len = sizeof("sandbox file") - 1;
    b->file->log = r->connection->log;

    b->file_pos = SANDBOX_STORE_BLOCK;
    b->file_last = SANDBOX_STORE_BLOCK + (off_t) op->entry.size;
    b->in_file = (op->entry.size != 0);
    b->last_buf = (r == r->main);
    b->last_in_chain = 1;

    /* of a subrequest, an empty one must still be something */

    b->sync = (!b->in_file && !b->last_buf);

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


static ngx_int_t
ngx_http_sandbox_serve_headers(ngx_http_request_t *r,
    ngx_http_sandbox_store_op_t *op, ngx_table_elt_t **headers)
{
    u_char                 *p;
    unsigned                shown;
    ngx_str_t               etag, disposition;
    const char             *type;
    sandbox_store_entry_t  *entry;

    ngx_str_t  cache = ngx_string("private, no-cache");
    ngx_str_t  policy = ngx_string("sandbox");
    ngx_str_t  nosniff = ngx_string("nosniff");

    entry = &op->entry;
    type = sandbox_store_type(entry->type, &shown);

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = (off_t) entry->size;
    r->headers_out.last_modified_time = (time_t) (entry->modified_ms / 1000);

    r->headers_out.content_type.data = (u_char *) type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = strcspn(type, ";");
    r->headers_out.content_type_lowcase = NULL;
    ngx_str_null(&r->headers_out.charset);

    p = ngx_pnalloc(r->pool, SANDBOX_STORE_ETAG_TEXT + 1
                             + SANDBOX_STORE_DISPOSITION);
    if (p == NULL) {
        return NGX_ERROR;
    }

    etag.data = p;
    etag.len = SANDBOX_STORE_ETAG_TEXT;
    sandbox_store_etag(entry->sha256, (char *) p);

    disposition.data = p + SANDBOX_STORE_ETAG_TEXT + 1;
    disposition.len = sandbox_store_disposition(!shown, entry->name,
                                                entry->name_len,
                                                (char *) disposition.data);

    headers[0] = ngx_http_sandbox_serve_header(r, "ETag", &etag);
    headers[1] = ngx_http_sandbox_serve_header(r, "Content-Disposition",
                                               &disposition);
    headers[2] = ngx_http_sandbox_serve_header(r, "Cache-Control", &cache);
    headers[3] = ngx_http_sandbox_serve_header(r, "Content-Security-Policy",
                                               &policy);
    headers[4] = ngx_http_sandbox_serve_header(r, "X-Content-Type-Options",
                                               &nosniff);

    if (headers[0] == NULL || headers[1] == NULL || headers[2] == NULL
        || headers[3] == NULL || headers[4] == NULL)
    {
        return NGX_ERROR;
    }

    r->headers_out.etag = headers[0];

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_serve_unsatisfiable(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_table_elt_t **headers)
{
    ngx_uint_t  i;

    /* all but Content-Range, which says how long the file is */

    for (i = 0; i < NGX_HTTP_SANDBOX_SERVE_HEADERS; i++) {
        headers[i]->hash = 0;
    }

    r->headers_out.etag = NULL;
    r->headers_out.last_modified_time = -1;
    r->allow_ranges = 0;

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_RANGE_NOT_SATISFIABLE,
                            "range_not_satisfiable",
                            "The range begins after the end of the file.");

    return ngx_http_sandbox_send_problem(r, ctx);
}


ngx_table_elt_t *
ngx_http_sandbox_serve_header(ngx_http_request_t *r, const char *key,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
    h->key.data = (u_char *) key;
    h->key.len = ngx_strlen(key);
    h->value = *value;
    h->lowcase_key = NULL;

#if (nginx_version >= 1023000)
    h->next = NULL;
#endif

    return h;
}
