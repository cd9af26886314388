/*
 * The wire client: an nginx upstream that sends preamble, head and body, and
 * eats frames until RESULT or ERROR.  Until then the client has seen nothing,
 * so each way to fail has a status of its own.  Knows no JSON.
 */

#include "ngx_http_sandbox_conversations.h"
#include "ngx_http_sandbox_egress.h"
#include "ngx_http_sandbox_metrics.h"
#include "ngx_http_sandbox_mcp.h"


#define NGX_HTTP_SANDBOX_UNREACHED_QUIET  60     /* s between two lines */


static ngx_int_t ngx_http_sandbox_create_request(ngx_http_request_t *r);
static ngx_uint_t ngx_http_sandbox_passes(ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_reinit_request(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_process_header(ngx_http_request_t *r);
static void ngx_http_sandbox_rearm(ngx_http_upstream_t *u,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_filter_start(void *data);
static ngx_int_t ngx_http_sandbox_filter(void *data, ssize_t bytes);
static void ngx_http_sandbox_abort_request(ngx_http_request_t *r);
static void ngx_http_sandbox_finalize_request(ngx_http_request_t *r,
    ngx_int_t rc);
static void ngx_http_sandbox_cancel(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_int_t rc);
static void ngx_http_sandbox_failed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_get_peer(ngx_peer_connection_t *pc,
    void *data);
static void ngx_http_sandbox_free_peer(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static void ngx_http_sandbox_unreached(ngx_http_request_t *r, ngx_err_t err);


/*
 * Called with the reference to the request that the upstream will give back:
 * from a body handler, or after r->main->count++.
 */

ngx_int_t
ngx_http_sandbox_upstream_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_upstream_t          *u;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (ngx_http_upstream_create(r) != NGX_OK) {
        return NGX_ERROR;
    }

    u = r->upstream;

    ngx_str_set(&u->schema, "sandbox://");
    u->output.tag = (ngx_buf_tag_t) &ngx_http_sandbox_module;
    u->conf = &slcf->upstream;
    u->buffering = 0;

    u->create_request = ngx_http_sandbox_create_request;
    u->reinit_request = ngx_http_sandbox_reinit_request;
    u->process_header = ngx_http_sandbox_process_header;
    u->abort_request = ngx_http_sandbox_abort_request;
    u->finalize_request = ngx_http_sandbox_finalize_request;

    u->input_filter_init = ngx_http_sandbox_filter_start;
    u->input_filter = ngx_http_sandbox_filter;
    u->input_filter_ctx = r;

    ngx_http_sandbox_frames_reset(ctx);
    ctx->wire.attempts = 0;

    if ((ctx->wire.operation == SANDBOX_OPERATION_COMMAND
         || ctx->wire.operation == SANDBOX_OPERATION_FILE_WRITE
         || ctx->wire.operation == SANDBOX_OPERATION_RESET)
        && !(ctx->wire.flags & SANDBOX_FLAG_NO_CREATE))
    {
        ngx_http_sandbox_conversations_mark(r, ctx);
    }

    ngx_http_upstream_init(r);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_create_request(ngx_http_request_t *r)
{
    u_char                       *p;
    ngx_buf_t                    *b;
    ngx_chain_t                  *cl;
    sandbox_preamble_t            preamble;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_wire_t      *wire;
    ngx_http_sandbox_loc_conf_t  *slcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    wire = &ctx->wire;

    ngx_memzero(&preamble, sizeof(sandbox_preamble_t));

    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = (uint8_t) wire->operation;
    preamble.flags = (uint8_t) wire->flags;
    preamble.head = (uint32_t) wire->head.len;
    preamble.body = ngx_http_sandbox_passes(ctx)
                    ? ngx_http_sandbox_stdin_body(r)
                    : ngx_http_sandbox_stage_length(ctx);
    preamble.instance = wire->instance;
    preamble.memory = (uint32_t) (slcf->caps.memory >> 20);
    preamble.disk = (uint32_t) (slcf->caps.disk >> 20);
    preamble.processes = (uint32_t) slcf->caps.processes;
    preamble.egress = ngx_http_sandbox_egress_id(r, ctx);

    slcf->backend->hooks->preamble(r, ctx, &preamble);

    ngx_memcpy(preamble.session, ctx->session, SANDBOX_WIRE_SESSION_SIZE);
    ngx_memcpy(preamble.tenant, ctx->digest, SANDBOX_WIRE_TENANT_SIZE);

    p = wire->head.len ? wire->head.data - SANDBOX_WIRE_PREAMBLE_SIZE
                       : ngx_pnalloc(r->pool, SANDBOX_WIRE_PREAMBLE_SIZE);
    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (p == NULL || b == NULL || cl == NULL) {
        return NGX_ERROR;
    }

    sandbox_preamble_write(p, &preamble);

    b->memory = 1;
    b->start = p;
    b->pos = p;
    b->last = p + SANDBOX_WIRE_PREAMBLE_SIZE + wire->head.len;
    b->end = b->last;

    cl->buf = b;
    cl->next = NULL;
    r->upstream->request_bufs = cl;

    if (ngx_http_sandbox_passes(ctx)) {
        b->flush = 1;
        return ngx_http_sandbox_stdin_send(r, cl);
    }

    if (ngx_http_sandbox_stage_send(r, ctx, cl) != NGX_OK) {
        return NGX_ERROR;
    }

    while (cl->next) {
        cl = cl->next;
    }

    cl->buf->flush = 1;

    return NGX_OK;
}


/* 1: the client's body goes on as it comes; others are in memory, or files */

static ngx_uint_t
ngx_http_sandbox_passes(ngx_http_sandbox_ctx_t *ctx)
{
    return ctx->mcp == NULL
           && (ctx->wire.operation == SANDBOX_OPERATION_STDIN
               || ctx->wire.operation == SANDBOX_OPERATION_FILE_WRITE);
}


static ngx_int_t
ngx_http_sandbox_reinit_request(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    ngx_http_sandbox_frames_reset(ctx);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_process_header(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_buf_t                    *b;
    ngx_uint_t                    known, pinged, named;
    ngx_http_upstream_t          *u;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    u = r->upstream;
    b = &u->buffer;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    known = ctx->wire.head_seen;
    pinged = 0;

    for ( ;; ) {
        rc = ngx_http_sandbox_frames(r, ctx, b);

        if (rc != NGX_OK || ctx->wire.head_seen || ctx->wire.done) {
            break;
        }

        pinged = 1;
    }

    /* who may be asked for files can't be told yet that it goes well */

    named = ngx_http_sandbox_stage_named(ctx) && !ctx->wire.head_seen
            && !ctx->wire.done;

    if (rc == NGX_AGAIN && pinged && !named) {
        rc = NGX_OK;
    }

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_DECLINED) {
        return NGX_HTTP_UPSTREAM_INVALID_HEADER;
    }

    if (!known && ctx->wire.head_seen) {
        slcf->backend->hooks->report(r, NGX_HTTP_SANDBOX_READY, "");
    }

    if (rc == NGX_OK && ctx->stream && !ctx->problem.status) {

        return ngx_http_sandbox_accepted(r, ctx);
    }

    /* otherwise a full buffer would be a header that is too big */

    b->pos = b->start;
    b->last = b->start;

    if (rc == NGX_OK && ctx->problem.status == 0
        && (ngx_http_sandbox_save_whole(r, ctx) == NGX_OK
            || ngx_http_sandbox_mcp_step(r, ctx) == NGX_OK))
    {
        return NGX_AGAIN;
    }

    if (rc == NGX_OK && ctx->problem.code.len == 12
        && ngx_strncmp(ctx->problem.code.data, "stage_needed", 12) == 0
        && ngx_http_sandbox_stage_needed(r, ctx) == NGX_OK)
    {
        return NGX_AGAIN;
    }

    if (rc == NGX_OK && ctx->problem.status
        && slcf->backend->hooks->refused(r, ctx) == NGX_OK)
    {
        return NGX_AGAIN;
    }

    if (rc == NGX_AGAIN && ngx_http_sandbox_mcp_waits(ctx)) {
        ctx->mcp->waiting = 1;
        return ngx_http_sandbox_accepted(r, ctx);
    }

    if (rc == NGX_AGAIN) {
        ngx_http_sandbox_rearm(u, ctx);
        return NGX_AGAIN;
    }

    /* a problem is one answer, whatever was asked for */

    ctx->stream = NULL;

    rc = ctx->problem.status ? ngx_http_sandbox_render_problem(r, ctx)
                             : ctx->wire.render(r, ctx);

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    u->headers_in.status_n = ctx->answer_status;
    u->headers_in.content_length_n = ctx->answer_size;
    u->state->status = ctx->answer_status;

    if (ngx_http_sandbox_set_headers(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    u->conf = &slcf->answering;

    /*
     * With nothing in its buffer nginx would send the header by itself, and
     * the answer in a second packet.  This byte calls the filter at once.
     */

    b->last = b->start + 1;

    return NGX_OK;
}


/*
 * nginx arms it once: without this it would limit the operation.  An agent
 * that lets stdin wait says that it is alive, too.
 */

static void
ngx_http_sandbox_rearm(ngx_http_upstream_t *u, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_connection_t  *c;

    c = u->peer.connection;

    if (u->request_body_sent) {
        ngx_add_timer(c->read, u->conf->read_timeout);

    } else if (c->write->timer_set && !ngx_http_sandbox_stage_bodies(ctx)) {

        /* a file is taken as fast as it comes, a command's input may wait */

        ngx_add_timer(c->write, u->conf->send_timeout);
    }
}


/*
 * Accepted, or made to wait: proxies want to see something meanwhile.  What
 * else has come are events, or bytes of a file; they stay in the buffer.
 */

static ngx_int_t
ngx_http_sandbox_accepted(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;
    ctx->answer = NULL;

    if (!ngx_http_sandbox_fs_file(ctx)) {
        ctx->answer_size = -1;
        ctx->answer_status = NGX_HTTP_OK;
    }

    u->headers_in.status_n = ctx->answer_status;
    u->headers_in.content_length_n = ctx->answer_size;
    u->state->status = ctx->answer_status;

    return ngx_http_sandbox_set_headers(r, ctx);
}


static ngx_int_t
ngx_http_sandbox_filter_start(void *data)
{
    ngx_http_request_t  *r = data;

    ngx_chain_t             *cl;
    ngx_http_upstream_t     *u;
    ngx_http_sandbox_ctx_t  *ctx;

    u = r->upstream;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx->stream) {
        ngx_http_sandbox_stream_start(r, ctx);
        return NGX_OK;
    }

    if (ctx->mcp && ctx->mcp->waiting) {
        ngx_http_sandbox_mcp_wait(r, ctx);
        return NGX_OK;
    }

    for (cl = ctx->answer; cl; cl = cl->next) {

        /* the upstream sends the last buffer itself */

        if (cl->next == NULL) {
            cl->buf->last_buf = 0;
            cl->buf->last_in_chain = 0;
            cl->buf->flush = 1;
        }
    }

    u->out_bufs = ctx->answer;
    u->length = 0;

    return NGX_OK;
}


/*
 * Called for the byte that process_header left; nothing comes after the last
 * frame, and a full buffer ends the reading.
 */

static ngx_int_t
ngx_http_sandbox_filter(void *data, ssize_t bytes)
{
    ngx_http_request_t  *r = data;

    ngx_http_upstream_t     *u;
    ngx_http_sandbox_ctx_t  *ctx;

    u = r->upstream;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx->mcp && ctx->mcp->waiting) {
        return ngx_http_sandbox_mcp_filter(r, ctx, (size_t) bytes);
    }

    u->state->response_length = ctx->answer_size;
    u->buffer.last = u->buffer.end;

    return NGX_OK;
}


static void
ngx_http_sandbox_abort_request(ngx_http_request_t *r)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "abort sandbox request");
}


static void
ngx_http_sandbox_finalize_request(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "finalize sandbox request: %i", rc);

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx == NULL) {
        return;
    }

    if (ctx->cancel) {
        ngx_http_sandbox_cancel(r, ctx, rc);
    }

    if (ctx->own) {
        return;
    }

    /* the rest is about the client, or no memory */

    if (rc == NGX_HTTP_BAD_GATEWAY || rc == NGX_HTTP_GATEWAY_TIME_OUT) {
        ngx_http_sandbox_failed(r, ctx);
    }
}


/*
 * The client is gone, and wanted its command to go with it.  A request that
 * is not whole on its way is no command yet; a worker that is told to end
 * leaves all of them alone.
 */

static void
ngx_http_sandbox_cancel(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_int_t rc)
{
    u_char                    frame[SANDBOX_WIRE_FRAME_SIZE];
    ngx_uint_t                closing;
    ngx_connection_t         *c;
    ngx_http_upstream_t      *u;
    ngx_http_sandbox_wire_t  *wire;

    u = r->upstream;
    c = u->peer.connection;
    wire = &ctx->wire;

    closing = ngx_terminate || r->connection->close;

#if (NGX_HTTP_V2)

    /* "worker_shutdown_timeout" looks like a client that hung up */

    if (r->stream && ngx_exiting) {
        closing |= r->stream->connection->connection->error;
    }

#endif

    if (rc != NGX_HTTP_CLIENT_CLOSED_REQUEST && rc != NGX_HTTP_REQUEST_TIME_OUT
        && rc != NGX_ERROR && rc != NGX_DONE)
    {
        return;
    }

    if (closing || wire->operation != SANDBOX_OPERATION_COMMAND || wire->done
        || wire->bad || ctx->ended || c == NULL || !u->request_body_sent)
    {
        return;
    }

    sandbox_frame_write(frame, SANDBOX_FRAME_CANCEL, 0);

    if (c->send(c, frame, SANDBOX_WIRE_FRAME_SIZE)
        != SANDBOX_WIRE_FRAME_SIZE)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox command could not be cancelled when its "
                      "client was gone; it goes on");
    }
}


/* what nginx sends as an error of its own now becomes this */

static void
ngx_http_sandbox_failed(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_wire_t  *wire;

    wire = &ctx->wire;
    ctx->answer = NULL;
    ctx->stream = NULL;

    if (ctx->input_refused) {
        return;
    }

    if (!wire->connected) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "runner_unreachable",
                                "The runner of the sandboxes does not answer; "
                                "nothing was started.");
        ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
        return;
    }

    if (wire->head_seen && wire->operation == SANDBOX_OPERATION_COMMAND) {

        ngx_memzero(&ctx->problem, sizeof(ngx_http_sandbox_problem_t));
        wire->lost = 1;
        ngx_http_sandbox_metrics_lost(r, ctx);

        if (wire->render(r, ctx) == NGX_OK) {
            return;
        }

        ctx->answer = NULL;
    }

    ngx_http_sandbox_upstream_lost(ctx);
}


void
ngx_http_sandbox_upstream_lost(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_wire_t  *wire;

    wire = &ctx->wire;

    if (wire->bad) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_GATEWAY, "bad_upstream",
                                "The runner's answer could not be "
                                "understood.");
        return;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE, "runner_lost",
                            wire->head_seen || wire->timedout
                            ? "The runner of the sandboxes stopped answering; "
                              "what was asked for may still happen."
                            : "The runner of the sandboxes closed the "
                              "connection; nothing was started.");

    ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
}


void
ngx_http_sandbox_upstream_leave(ngx_http_request_t *r)
{
    if (r->upstream && r->upstream->cleanup) {
        r->main->count++;
        (*r->upstream->cleanup)(r);
    }
}


ngx_int_t
ngx_http_sandbox_upstream_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_log_t                     *quiet;
    ngx_http_upstream_t           *u;
    ngx_http_sandbox_ctx_t        *ctx;
    ngx_http_sandbox_loc_conf_t   *slcf;
    ngx_http_upstream_srv_conf_t  *origin;

    u = r->upstream;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    origin = slcf->runner->origin;

    if (origin->peer.init(r, origin) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->wire.peer = u->peer.data;
    ctx->wire.get = u->peer.get;
    ctx->wire.free = u->peer.free;

    u->peer.data = ctx;
    u->peer.get = ngx_http_sandbox_get_peer;
    u->peer.free = ngx_http_sandbox_free_peer;

    /* of the connect() only; a runner that is away is told once, in words */

    quiet = ngx_palloc(r->pool, sizeof(ngx_log_t));
    if (quiet == NULL) {
        return NGX_ERROR;
    }

    *quiet = *u->peer.log;
    quiet->next = NULL;
    quiet->log_level = NGX_LOG_ALERT;

    u->peer.log = quiet;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_get_peer(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_sandbox_ctx_t *ctx = data;

    ctx->wire.attempts++;

    return ctx->wire.get(pc, ctx->wire.peer);
}


/*
 * nginx can't tell by itself what may be sent again: whatever ended before
 * HEAD or ERROR was not started, unless time ran out.  Such is the protocol,
 * so also a body that came to its end may be repeated.
 */

static void
ngx_http_sandbox_free_peer(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_http_sandbox_ctx_t *ctx = data;

    ngx_err_t                 err;
    ngx_uint_t                safe;
    ngx_connection_t         *c;
    ngx_http_sandbox_wire_t  *wire;

    err = ngx_socket_errno;
    wire = &ctx->wire;
    c = pc->connection;

    if (c != NULL) {
        err = 0;                         /* of something else: it connected */
    }

    /* a single peer has no tries left after this */

    wire->free(pc, wire->peer, state);

    if (!(state & NGX_PEER_FAILED)) {
        return;
    }

    wire->connected = (c != NULL && (c->sent || c->read->timedout));
    wire->timedout = (c != NULL && (c->read->timedout || c->write->timedout));

    /* nginx would send files from their first byte on, which is not theirs */

    safe = !ngx_http_sandbox_stage_bodies(ctx) && !wire->head_seen
           && !wire->done && !wire->bad && !wire->timedout;

    if (!wire->connected) {
        ngx_http_sandbox_unreached(ctx->request, err);
    }

    /* a connect() that failed would fail once more: no time has passed */

    pc->tries = (safe && c && wire->attempts < 2) ? 1 : 0;
}


/*
 * Every request tries, so that the first one after a restart is served; the
 * log has the change, and the others only where it has "info".
 */

static void
ngx_http_sandbox_unreached(ngx_http_request_t *r, ngx_err_t err)
{
    ngx_uint_t                    level;
    const char                   *reason;
    ngx_http_sandbox_loc_conf_t  *slcf;

    static time_t  logged;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    reason = ngx_http_sandbox_unreached_reason(err, 0);
    level = NGX_LOG_INFO;

    /* a full backlog is a runner that has much to do */

    if (err == NGX_EAGAIN) {

        if (ngx_time() - logged >= NGX_HTTP_SANDBOX_UNREACHED_QUIET) {
            logged = ngx_time();
            level = NGX_LOG_ERR;
        }

    } else if (slcf->backend->status(slcf) != NGX_HTTP_SANDBOX_UNREACHABLE) {
        level = NGX_LOG_ERR;
        slcf->backend->hooks->report(r, NGX_HTTP_SANDBOX_UNREACHABLE, reason);
    }

    ngx_log_error(level, r->connection->log, err,
                  "sandbox runner \"%V\" is %s: %s", &slcf->runner->name,
                  ngx_http_sandbox_status_name(NGX_HTTP_SANDBOX_UNREACHABLE),
                  reason);
}
