/*
 * Commands by their id: asking for one, as a result or as events from some
 * number on, and ending it.  Also what such calls have in common.
 */

#include "ngx_http_sandbox_budget.h"


static ngx_int_t ngx_http_sandbox_attach_after(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_after(ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *value, uint64_t *seq);
static ngx_int_t ngx_http_sandbox_last_event_id(ngx_http_request_t *r,
    ngx_str_t *value);


ngx_int_t
ngx_http_sandbox_attach_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    sandbox_writer_t  w;

    if (ngx_http_sandbox_encoding(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_stream_init(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->stream && ngx_http_sandbox_attach_after(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_head_begin(r, ctx, &w, 256) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->stream) {
        sandbox_write_number(&w, SANDBOX_TAG_STREAM, 1);
        sandbox_write_number(&w, SANDBOX_TAG_AFTER, ctx->wire.after);
    }

    ctx->wire.head.len = w.pos - w.start;
    ctx->wire.operation = SANDBOX_OPERATION_ATTACH;
    ctx->wire.render = ngx_http_sandbox_render_command;

    return ngx_http_sandbox_start(r, ctx);
}


ngx_int_t
ngx_http_sandbox_cancel_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    sandbox_writer_t  w;

    if (ngx_http_sandbox_encoding(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_head_begin(r, ctx, &w, 256) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->wire.head.len = w.pos - w.start;
    ctx->wire.operation = SANDBOX_OPERATION_CANCEL;
    ctx->wire.render = ngx_http_sandbox_render_command;

    return ngx_http_sandbox_start(r, ctx);
}


/*
 * A browser that comes back has the same address as before, and a newer
 * number in the header: so that one counts.
 */

static ngx_int_t
ngx_http_sandbox_attach_after(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t  value;

    if (ngx_http_sandbox_last_event_id(r, &value) != NGX_OK
        && ngx_http_sandbox_argument(r, "after", &value) != NGX_OK)
    {
        return NGX_OK;
    }

    return ngx_http_sandbox_after(ctx, &value, &ctx->wire.after);
}


/*
 * Some who stream a POST come back with the same POST.  It attaches if it
 * names its command, and then begins with "started", which they have seen.
 */

ngx_int_t
ngx_http_sandbox_attach_seen(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uint64_t *seen)
{
    ngx_str_t  value;

    if (ngx_http_sandbox_last_event_id(r, &value) != NGX_OK) {
        return NGX_OK;
    }

    return ngx_http_sandbox_after(ctx, &value, seen);
}


static ngx_int_t
ngx_http_sandbox_after(ngx_http_sandbox_ctx_t *ctx, ngx_str_t *value,
    uint64_t *seq)
{
    if (ngx_http_sandbox_decimal(value, ((uint64_t) 1 << 53) - 1, seq)
        != NGX_OK)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"after\" and Last-Event-ID must be the "
                                "number of an event.");
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* an empty one is none: so says the specification of event streams */

static ngx_int_t
ngx_http_sandbox_last_event_id(ngx_http_request_t *r, ngx_str_t *value)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return NGX_DECLINED;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == sizeof("Last-Event-ID") - 1
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Last-Event-ID",
                               h[i].key.len)
               == 0)
        {
            *value = h[i].value;
            return value->len ? NGX_OK : NGX_DECLINED;
        }
    }
}


ngx_int_t
ngx_http_sandbox_encoding(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t  value;

    if (ngx_http_sandbox_argument(r, "encoding", &value) != NGX_OK) {
        return NGX_OK;
    }

    if (value.len == 6 && ngx_strncmp(value.data, "base64", 6) == 0) {
        ctx->base64 = 1;
        return NGX_OK;
    }

    if (value.len == 4 && ngx_strncmp(value.data, "text", 4) == 0) {
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                            "\"encoding\" must be \"text\" or \"base64\".");

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_sandbox_decimal(ngx_str_t *text, uint64_t max, uint64_t *value)
{
    size_t    i;
    uint64_t  n;

    if (text->len == 0 || text->len > 18) {
        return NGX_ERROR;
    }

    n = 0;

    for (i = 0; i < text->len; i++) {

        if (text->data[i] < '0' || text->data[i] > '9') {
            return NGX_ERROR;
        }

        n = n * 10 + (text->data[i] - '0');
    }

    if (n > max) {
        return NGX_ERROR;
    }

    *value = n;

    return NGX_OK;
}


/* with the id of the path, if there is one */

ngx_int_t
ngx_http_sandbox_head_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w, size_t size)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, SANDBOX_WIRE_PREAMBLE_SIZE + size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ctx->wire.head.data = p + SANDBOX_WIRE_PREAMBLE_SIZE;
    ctx->wire.flags = SANDBOX_FLAG_NO_CREATE;

    sandbox_writer_init(w, ctx->wire.head.data, size);

    if (ctx->name.len) {
        ctx->command_id = ctx->name;
        sandbox_write_bytes(w, SANDBOX_TAG_COMMAND_ID, ctx->name.data,
                            ctx->name.len);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_start(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_sandbox_budget_enter(r, ctx);

    if (rc == NGX_DECLINED) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (rc != NGX_OK || ngx_http_sandbox_session_keys(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->main->count++;

    if (slcf->backend->start(r, ctx) != NGX_OK) {
        r->main->count--;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_DONE;
}
