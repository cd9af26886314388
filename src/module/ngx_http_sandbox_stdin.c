/*
 * POST .../stdin: raw bytes of the client to a command that runs, sent on as
 * they come; so are those of PUT .../fs/PATH.  A body whose length is not
 * known goes in the wire's chunks.
 */

#include "ngx_http_sandbox.h"


static void ngx_http_sandbox_stdin_start(ngx_http_request_t *r);
static off_t ngx_http_sandbox_stdin_most(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_stdin_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_uint_t ngx_http_sandbox_stdin_chunked(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_stdin_filter(void *data, ngx_chain_t *in);
static ngx_chain_t *ngx_http_sandbox_stdin_length(ngx_http_request_t *r,
    uint32_t length);
static ngx_int_t ngx_http_sandbox_stdin_write(ngx_http_request_t *r,
    ngx_chain_t *out);
static ngx_int_t ngx_http_sandbox_render_stdin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


ngx_int_t
ngx_http_sandbox_stdin_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t         value;
    sandbox_writer_t  w;

    if (ngx_http_sandbox_head_begin(r, ctx, &w, 256) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_sandbox_argument(r, "eof", &value) == NGX_OK) {

        if (value.len != 1 || (value.data[0] != '0' && value.data[0] != '1')) {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "\"eof\" must be 1 or 0.");
            return ngx_http_sandbox_send_problem(r, ctx);
        }

        if (value.data[0] == '1') {
            sandbox_write_number(&w, SANDBOX_TAG_STDIN_EOF, 1);
        }
    }

    ctx->wire.head.len = w.pos - w.start;
    ctx->wire.operation = SANDBOX_OPERATION_STDIN;
    ctx->wire.render = ngx_http_sandbox_render_stdin;

    return ngx_http_sandbox_stdin_read(r, ctx);
}


ngx_int_t
ngx_http_sandbox_stdin_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (r->headers_in.content_length_n > ngx_http_sandbox_stdin_most(r, ctx)) {
        if (ngx_http_sandbox_stdin_refuse(r, ctx) == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->request_body_no_buffering = 1;

    rc = ngx_http_read_client_request_body(r, ngx_http_sandbox_stdin_start);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    return NGX_DONE;
}


static void
ngx_http_sandbox_stdin_start(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK
        || slcf->backend->start(r, ctx) != NGX_OK)
    {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


static off_t
ngx_http_sandbox_stdin_most(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    return ctx->wire.operation == SANDBOX_OPERATION_FILE_WRITE
           ? slcf->caps.file_size : ngx_http_sandbox_max_stdin(slcf);
}


static ngx_int_t
ngx_http_sandbox_stdin_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    off_t  most;

    most = ngx_http_sandbox_stdin_most(r, ctx);

    if (ctx->wire.operation == SANDBOX_OPERATION_FILE_WRITE) {
        return ngx_http_sandbox_refuse_format(r, ctx,
                                              NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                              "file_too_large",
                                              "A file may have at most %O "
                                              "bytes.", most);
    }

    return ngx_http_sandbox_refuse_format(r, ctx,
                                          NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                          "body_too_large",
                                          "stdin may have at most %O bytes "
                                          "a request.", most);
}


/* once it is all here, its length is known */

static ngx_uint_t
ngx_http_sandbox_stdin_chunked(ngx_http_request_t *r)
{
    return r->request_body_no_buffering
           && (r->headers_in.chunked || r->headers_in.content_length_n < 0);
}


uint64_t
ngx_http_sandbox_stdin_body(ngx_http_request_t *r)
{
    uint64_t      size;
    ngx_chain_t  *cl;

    if (ngx_http_sandbox_stdin_chunked(r)) {
        return SANDBOX_WIRE_BODY_CHUNKED;
    }

    if (r->request_body_no_buffering) {
        return r->headers_in.content_length_n;
    }

    size = 0;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    return size;
}


/* a body that is all here nginx leaves to us; of another it takes care */

ngx_int_t
ngx_http_sandbox_stdin_send(ngx_http_request_t *r, ngx_chain_t *last)
{
    ngx_chain_t          *cl;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (ngx_http_sandbox_stdin_chunked(r)) {
        u->output.output_filter = ngx_http_sandbox_stdin_filter;
        u->output.filter_ctx = r;
    }

    if (r->request_body_no_buffering) {
        return NGX_OK;
    }

    for (cl = r->request_body->bufs; cl; cl = cl->next) {

        last->next = ngx_alloc_chain_link(r->pool);
        last = last->next;

        if (last == NULL) {
            return NGX_ERROR;
        }

        last->buf = ngx_calloc_buf(r->pool);
        if (last->buf == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(last->buf, cl->buf, sizeof(ngx_buf_t));

        /* a second attempt begins at `start` */

        last->buf->start = cl->buf->pos;
        last->buf->flush = 1;
        last->next = NULL;
    }

    return NGX_OK;
}


/*
 * Bytes of the client as chunks: the first call has the request's head before
 * them.  No buffer of a body has more bytes than a chunk may have, the
 * configuration sees to it.
 */

static ngx_int_t
ngx_http_sandbox_stdin_filter(void *data, ngx_chain_t *in)
{
    ngx_http_request_t  *r = data;

    off_t                    size;
    ngx_buf_t               *b;
    ngx_uint_t               last;
    ngx_chain_t             *out, *cl, **ll;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    out = NULL;
    ll = &out;
    last = 0;

    for ( /* void */ ; in; in = in->next) {

        b = in->buf;
        size = ngx_buf_size(b);

        if (b->last_buf) {
            last = 1;
        }

        if (size == 0) {
            continue;
        }

        if (ctx->input_begun) {

            ctx->input += size;

            if (ctx->input > ngx_http_sandbox_stdin_most(r, ctx)) {
                ctx->input_refused = 1;
                (void) ngx_http_sandbox_stdin_refuse(r, ctx);
                return NGX_ERROR;
            }

            if (size > SANDBOX_WIRE_MAX_CHUNK) {
                ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                              "another module (\"mirror\"?) put the body of "
                              "a sandbox request into a file: switch it off "
                              "here");
                return NGX_ERROR;
            }

            *ll = ngx_http_sandbox_stdin_length(r, (uint32_t) size);
            if (*ll == NULL) {
                return NGX_ERROR;
            }

            ll = &(*ll)->next;
        }

        ctx->input_begun = 1;

        cl = ngx_alloc_chain_link(r->pool);
        if (cl == NULL) {
            return NGX_ERROR;
        }

        cl->buf = b;
        cl->next = NULL;
        *ll = cl;
        ll = &cl->next;
    }

    if (last) {
        *ll = ngx_http_sandbox_stdin_length(r, 0);
        if (*ll == NULL) {
            return NGX_ERROR;
        }
    }

    return ngx_http_sandbox_stdin_write(r, out);
}


static ngx_chain_t *
ngx_http_sandbox_stdin_length(ngx_http_request_t *r, uint32_t length)
{
    ngx_buf_t               *b;
    ngx_chain_t             *cl;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    cl = ngx_chain_get_free_buf(r->pool, &ctx->input_free);
    if (cl == NULL) {
        return NULL;
    }

    b = cl->buf;

    if (b->start == NULL) {

        b->start = ngx_palloc(r->pool, SANDBOX_WIRE_CHUNK_SIZE);
        if (b->start == NULL) {
            return NULL;
        }

        b->end = b->start + SANDBOX_WIRE_CHUNK_SIZE;
    }

    b->tag = (ngx_buf_tag_t) &ngx_http_sandbox_stdin_filter;
    b->temporary = 1;
    b->flush = 1;
    b->pos = b->start;
    b->last = b->end;

    sandbox_put32(b->pos, length);

    cl->next = NULL;

    return cl;
}


static ngx_int_t
ngx_http_sandbox_stdin_write(ngx_http_request_t *r, ngx_chain_t *out)
{
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    rc = ngx_chain_writer(&r->upstream->writer, out);

    ngx_chain_update_chains(r->pool, &ctx->input_free, &ctx->input_busy, &out,
                            (ngx_buf_tag_t) &ngx_http_sandbox_stdin_filter);

    return rc;
}


static ngx_int_t
ngx_http_sandbox_render_stdin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_buf_t  *b;

    b = ngx_create_temp_buf(r->pool, 64);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"bytes\":%uL}\n",
                          ctx->wire.result.number[SANDBOX_TAG_BYTES]);

    return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
}
