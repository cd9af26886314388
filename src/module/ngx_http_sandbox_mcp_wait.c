/*
 * Calls that take long: the status of an answer is known before the answer is,
 * so after the agent's first PING the header goes out, and a line end with
 * each of the next, which JSON lets stand before it.  Proxies and clients that
 * wait for bytes see some.
 */

#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_metrics.h"


static void ngx_http_sandbox_mcp_event(ngx_http_request_t *r,
    ngx_http_upstream_t *u);
static ssize_t ngx_http_sandbox_mcp_recv(ngx_connection_t *c, u_char *buf,
    size_t size);
static ngx_int_t ngx_http_sandbox_mcp_last(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_int_t rc);
static ngx_int_t ngx_http_sandbox_mcp_blank(ngx_http_request_t *r);
static void ngx_http_sandbox_mcp_append(ngx_http_request_t *r,
    ngx_chain_t *chain);


ngx_uint_t
ngx_http_sandbox_mcp_waits(ngx_http_sandbox_ctx_t *ctx)
{
    return ctx->mcp && ctx->mcp->calling && !ctx->mcp->cancelling
           && ctx->wire.operation == SANDBOX_OPERATION_COMMAND
           && ctx->wire.head_seen && ctx->wire.pings;
}


/* nginx is about to send the header, and to begin its loop */

void
ngx_http_sandbox_mcp_wait(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    u->out_bufs = NULL;
    u->length = 1;

    ctx->mcp->recv = u->peer.connection->recv;
    ctx->mcp->event = u->read_event_handler;

    u->peer.connection->recv = ngx_http_sandbox_mcp_recv;
    u->read_event_handler = ngx_http_sandbox_mcp_event;
}


/* silence is no time-out of nginx's, which would cut the answer short */

static void
ngx_http_sandbox_mcp_event(ngx_http_request_t *r, ngx_http_upstream_t *u)
{
    ngx_connection_t        *c;
    ngx_http_sandbox_ctx_t  *ctx;

    c = u->peer.connection;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (c->read->timedout) {
        c->read->timedout = 0;
        c->read->ready = 1;
        ctx->wire.timedout = 1;
    }

    ctx->mcp->event(r, u);
}


/* an end that comes too early has an answer, too: a byte that calls for it */

static ssize_t
ngx_http_sandbox_mcp_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    ssize_t                  n;
    ngx_http_request_t      *r;
    ngx_http_sandbox_ctx_t  *ctx;

    r = c->data;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx->wire.timedout) {
        ngx_log_error(NGX_LOG_ERR, c->log, NGX_ETIMEDOUT,
                      "sandbox agent sent neither a result nor pings");

    } else {
        n = ctx->mcp->recv(c, buf, size);

        if (n > 0 || n == NGX_AGAIN) {
            return n;
        }

        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox agent closed the connection before the result");
    }

    ctx->wire.lost = 1;
    buf[0] = '\0';

    return 1;
}


/* bytes that came are behind u->buffer.last, and need not stay */

ngx_int_t
ngx_http_sandbox_mcp_filter(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t bytes)
{
    ngx_buf_t                 b;
    ngx_int_t                 rc;
    ngx_uint_t                pings;
    ngx_http_sandbox_wire_t  *wire;

    wire = &ctx->wire;

    if (wire->lost) {
        return ngx_http_sandbox_mcp_last(r, ctx, NGX_OK);
    }

    ngx_memzero(&b, sizeof(ngx_buf_t));

    b.pos = r->upstream->buffer.last;
    b.last = b.pos + bytes;

    pings = wire->pings;

    rc = ngx_http_sandbox_frames(r, ctx, &b);

    if (rc == NGX_AGAIN) {
        return wire->pings == pings ? NGX_OK : ngx_http_sandbox_mcp_blank(r);
    }

    wire->lost = (rc == NGX_DECLINED);

    return ngx_http_sandbox_mcp_last(r, ctx, rc);
}


static ngx_int_t
ngx_http_sandbox_mcp_last(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_int_t rc)
{
    ngx_chain_t  *cl;

    if (ctx->wire.lost) {
        ngx_http_sandbox_metrics_lost(r, ctx);
    }

    if (rc == NGX_ERROR || ctx->wire.render(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    for (cl = ctx->answer; cl; cl = cl->next) {

        /* the upstream sends the last buffer itself */

        if (cl->next == NULL) {
            cl->buf->last_buf = 0;
            cl->buf->last_in_chain = 0;
            cl->buf->flush = 1;
        }
    }

    ngx_http_sandbox_mcp_append(r, ctx->answer);

    ctx->ended = 1;
    r->upstream->length = 0;
    r->upstream->state->response_length = ctx->answer_size;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_mcp_blank(ngx_http_request_t *r)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NGX_ERROR;
    }

    b->pos = (u_char *) "\n";
    b->last = b->pos + 1;
    b->memory = 1;
    b->flush = 1;

    cl->buf = b;
    cl->next = NULL;

    ngx_http_sandbox_mcp_append(r, cl);

    return NGX_OK;
}


static void
ngx_http_sandbox_mcp_append(ngx_http_request_t *r, ngx_chain_t *chain)
{
    ngx_chain_t  **ll;

    for (ll = &r->upstream->out_bufs; *ll; ll = &(*ll)->next) { /* void */ }

    *ll = chain;
}
