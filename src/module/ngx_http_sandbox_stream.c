/*
 * A command's events to the client as they come.  nginx's own loop between
 * upstream and client reads on while its buffer lasts and then forgets what
 * was not sent; here bytes are read only when what was read is written, and
 * written only where there is room, so that a client that does not read costs
 * some buffers and nothing else.  What events look like, and what frames mean,
 * is the concern of other files.
 */

#include "ngx_http_sandbox_fs.h"


/* reads in one turn, then others have theirs */

#define NGX_HTTP_SANDBOX_STREAM_TURN   32

/* ms, that a connection of HTTP/2 may outlive its stream's last chance */

#define NGX_HTTP_SANDBOX_STREAM_AFTER  1000


static void ngx_http_sandbox_stream_room(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_stream_read(ngx_http_request_t *r,
    ngx_http_upstream_t *u);
static void ngx_http_sandbox_stream_write(ngx_http_request_t *r);
static ngx_uint_t ngx_http_sandbox_stream_reads(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_stream_process(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_stream_fill(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t *turns);
static ngx_int_t ngx_http_sandbox_stream_receive(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_stream_flush(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_uint_t ngx_http_sandbox_stream_unsent(ngx_http_request_t *r);
static void ngx_http_sandbox_stream_wait(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t blocked);
static ngx_msec_t ngx_http_sandbox_stream_patience(ngx_http_request_t *r,
    ngx_http_sandbox_stream_t *stream);
static void ngx_http_sandbox_stream_end(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_stream_fail(ngx_http_request_t *r);


/* HEAD has no use for events: it is told what GET for JSON would be */

ngx_int_t
ngx_http_sandbox_stream_init(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t  format;

    format = ngx_http_sandbox_accept(r);

    if (format == NGX_HTTP_SANDBOX_JSON || r->method == NGX_HTTP_HEAD) {
        return NGX_OK;
    }

    ctx->stream = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_stream_t));
    if (ctx->stream == NULL) {
        return NGX_ERROR;
    }

    ctx->stream->format = format;

    return NGX_OK;
}


void
ngx_http_sandbox_stream_type(ngx_http_sandbox_ctx_t *ctx, ngx_str_t *type)
{
    if (ctx->stream->format == NGX_HTTP_SANDBOX_SSE) {
        ngx_str_set(type, "text/event-stream");

    } else {
        ngx_str_set(type, "application/x-ndjson");
    }
}


u_char *
ngx_http_sandbox_stream_piece(ngx_http_request_t *r,
    ngx_http_sandbox_stream_t *stream, size_t size)
{
    if (size <= stream->size) {
        return stream->piece;
    }

    /* a frame has at most 64 KiB, frames.c has seen to it */

    size = ngx_max(size, 2 * stream->size);
    size = ngx_max(size, 1024);
    size = ngx_min(size, SANDBOX_WIRE_MAX_OUTPUT);

    if (stream->piece) {
        ngx_pfree(r->pool, stream->piece);
    }

    stream->size = 0;

    stream->piece = ngx_pnalloc(r->pool, size);
    if (stream->piece == NULL) {
        return NULL;
    }

    stream->size = size;

    return stream->piece;
}


/*
 * Called when nginx is about to send the header and to begin its loop, which
 * is left with a buffer of no bytes: it sends the header, and reads nothing.
 */

void
ngx_http_sandbox_stream_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_connection_t           *c;
    ngx_http_upstream_t        *u;
    ngx_http_sandbox_stream_t  *stream;

    u = r->upstream;
    c = u->peer.connection;
    stream = ctx->stream;

    stream->in = u->buffer;

    if (stream->format == NGX_HTTP_SANDBOX_BYTES) {
        ngx_http_sandbox_stream_room(r, ctx);
    }

    stream->seq = ctx->wire.seq;
    stream->named = (ctx->wire.result.command_id.len || ctx->command_id.len);

    u->buffer.start = u->buffer.end;
    u->buffer.pos = u->buffer.end;
    u->buffer.last = u->buffer.end;

    u->length = 1;

    stream->read = u->read_event_handler;
    stream->write = r->write_event_handler;

    u->read_event_handler = ngx_http_sandbox_stream_read;
    r->write_event_handler = ngx_http_sandbox_stream_write;

    /*
     * A worker that begins to leave calls the read handlers of all that are
     * idle; nobody else asks for this bit of a connection to an upstream.
     */

    c->idle = 1;

    ngx_post_event(c->read, &ngx_posted_events);
}


/* a large file in large pieces; without memory for that, in small ones */

static void
ngx_http_sandbox_stream_room(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                 *p;
    size_t                  size;
    ngx_buf_t              *b;
    ngx_http_sandbox_fs_t  *fs;

    b = &ctx->stream->in;
    fs = ctx->fs;

    size = (size_t) ngx_min(fs->promised, NGX_HTTP_SANDBOX_STREAM_FILE);

    if (size <= (size_t) (b->end - b->start)) {
        return;
    }

    p = ngx_palloc(r->pool, size);
    if (p == NULL) {
        return;
    }

    b->last = ngx_cpymem(p, b->pos, b->last - b->pos);
    b->start = p;
    b->pos = p;
    b->end = p + size;
}


static void
ngx_http_sandbox_stream_read(ngx_http_request_t *r, ngx_http_upstream_t *u)
{
    ngx_connection_t        *c;
    ngx_http_sandbox_ctx_t  *ctx;

    c = u->peer.connection;

    if (c->close) {

        /* the worker leaves; connections of HTTP/2 are to hear it first */

        c->close = 0;
        ngx_post_event(c->read, &ngx_posted_events);
        return;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    r->connection->log->action = "reading events";

    ngx_http_sandbox_stream_process(r, ctx);
}


static void
ngx_http_sandbox_stream_write(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t     *ctx;
    ngx_http_sandbox_stream_t  *stream;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    stream = ctx->stream;

    r->connection->log->action = "sending events to client";

    if (r->connection->write->timedout) {

        if ((ngx_msec_int_t) (stream->until - ngx_current_msec) <= 0) {

            if (!ngx_http_sandbox_stream_reads(r, ctx)) {
                stream->write(r);
                return;
            }

            stream->waiting = 0;
        }

        r->connection->write->timedout = 0;
    }

    ngx_http_sandbox_stream_process(r, ctx);
}


/*
 * A socket takes more only when a good part of what it holds is gone, and of
 * a slow client that may be long after it has read something.
 */

static ngx_uint_t
ngx_http_sandbox_stream_reads(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
#ifdef TIOCOUTQ

    int  queued, before;

    before = ctx->stream->queued;

    if (ioctl(r->connection->fd, TIOCOUTQ, &queued) == 0) {
        ctx->stream->queued = queued;
        return queued < before;
    }

#endif

    return 0;
}


static void
ngx_http_sandbox_stream_process(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t   rc, flushed;
    ngx_uint_t  turns;

    turns = 0;

    for ( ;; ) {

        rc = ngx_http_sandbox_stream_fill(r, ctx, &turns);

        if (rc == NGX_ERROR) {
            ngx_http_sandbox_stream_fail(r);
            return;
        }

        flushed = ngx_http_sandbox_stream_flush(r, ctx);

        if (flushed == NGX_ERROR) {
            ngx_http_sandbox_stream_fail(r);
            return;
        }

        if (rc == NGX_DONE) {
            ctx->ended = 1;

            if (ngx_http_sandbox_stream_unsent(r)) {
                break;
            }

            ngx_http_sandbox_stream_end(r, ctx);
            return;
        }

        if (rc == NGX_AGAIN || flushed == NGX_BUSY) {
            break;
        }

        if (turns >= NGX_HTTP_SANDBOX_STREAM_TURN) {
            ngx_post_event(r->upstream->peer.connection->read,
                           &ngx_posted_next_events);
            break;
        }
    }

    ngx_http_sandbox_stream_wait(r, ctx, rc == NGX_BUSY || rc == NGX_DONE);
}


/*
 * Events into buffers.  NGX_DONE: the last one is in, NGX_BUSY: there is no
 * room, NGX_AGAIN: nothing came, NGX_OK: it was enough for one turn.
 */

static ngx_int_t
ngx_http_sandbox_stream_fill(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t *turns)
{
    ngx_int_t                   rc;
    ngx_http_upstream_t        *u;
    ngx_http_sandbox_stream_t  *stream;

    u = r->upstream;
    stream = ctx->stream;

    for ( ;; ) {

        if (stream->event) {

            rc = ngx_http_sandbox_event_write(r, ctx);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        if (stream->last) {
            return NGX_DONE;
        }

        /*
         * A command that is on its way, or whose id the client does not know,
         * could not be found again.
         */

        if (ngx_exiting && ctx->wire.head_seen && stream->named) {
            ngx_http_sandbox_event_leave(ctx);
            continue;
        }

        if (stream->format == NGX_HTTP_SANDBOX_BYTES && u->free_bufs == NULL
            && stream->bufs >= NGX_HTTP_SANDBOX_STREAM_PIECES)
        {
            return NGX_BUSY;
        }

        rc = ngx_http_sandbox_frames(r, ctx, &stream->in);

        if (rc == NGX_OK) {

            rc = ngx_http_sandbox_event(r, ctx, u->out_bufs == NULL
                                                && u->busy_bufs == NULL);
            if (rc != NGX_OK) {
                return NGX_ERROR;
            }

            continue;
        }

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_AGAIN) {

            if (*turns >= NGX_HTTP_SANDBOX_STREAM_TURN) {
                return NGX_OK;
            }

            if (stream->format == NGX_HTTP_SANDBOX_BYTES) {

                /* what was read is still on its way */

                if (u->out_bufs || u->busy_bufs) {
                    return NGX_BUSY;
                }

                *turns += NGX_HTTP_SANDBOX_STREAM_READS - 1;
            }

            (*turns)++;

            rc = ngx_http_sandbox_stream_receive(r, ctx);

            if (rc == NGX_AGAIN) {
                return NGX_AGAIN;
            }

            if (rc == NGX_OK) {
                continue;
            }
        }

        /* the connection is broken, or the protocol is */

        if (ctx->wire.head_seen) {
            rc = ngx_http_sandbox_event_lost(r, ctx);

        } else {
            ngx_http_sandbox_upstream_lost(ctx);
            rc = ngx_http_sandbox_event_refused(r, ctx);
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }
}


/* all that was in the buffer has been taken; NGX_DECLINED: it is over */

static ngx_int_t
ngx_http_sandbox_stream_receive(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ssize_t               n;
    ngx_buf_t            *b;
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    c = u->peer.connection;
    b = &ctx->stream->in;

    if (c->read->timedout) {
        c->read->timedout = 0;
        ctx->wire.timedout = 1;
        ngx_log_error(NGX_LOG_ERR, c->log, NGX_ETIMEDOUT,
                      "sandbox agent sent neither events nor pings");
        return NGX_DECLINED;
    }

    if (!c->read->ready) {
        return NGX_AGAIN;
    }

    b->pos = b->start;
    b->last = b->start;

    n = c->recv(c, b->last, b->end - b->last);

    if (n == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    if (n == 0 || n == NGX_ERROR) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox agent closed the connection before the result");
        return NGX_DECLINED;
    }

    b->last += n;
    u->state->bytes_received += n;

    return NGX_OK;
}


/* NGX_BUSY: the client has not taken any of what it is to have */

static ngx_int_t
ngx_http_sandbox_stream_flush(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_chain_t                *cl;
    ngx_connection_t           *c;
    ngx_http_upstream_t        *u;
    ngx_http_sandbox_stream_t  *stream;

    u = r->upstream;
    c = r->connection;
    stream = ctx->stream;

    if (u->out_bufs == NULL && u->busy_bufs == NULL && !c->buffered) {
        return NGX_OK;
    }

    for (cl = u->out_bufs; cl; cl = cl->next) {
        u->state->response_length += cl->buf->last - cl->buf->pos;
    }

    if (ngx_http_output_filter(r, u->out_bufs) == NGX_ERROR) {
        return NGX_ERROR;
    }

    ngx_chain_update_chains(r->pool, &u->free_bufs, &u->busy_bufs,
                            &u->out_bufs, u->output.tag);

    stream->tail = NULL;

    if (stream->format == NGX_HTTP_SANDBOX_BYTES) {
        return u->busy_bufs ? NGX_BUSY : NGX_OK;
    }

    return (u->free_bufs || stream->bufs < NGX_HTTP_SANDBOX_STREAM_BUFS)
           ? NGX_OK : NGX_BUSY;
}


/* Is anything left that the client's socket has no room for? */

static ngx_uint_t
ngx_http_sandbox_stream_unsent(ngx_http_request_t *r)
{
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    c = r->connection;

    return !c->write->ready && (u->out_bufs || u->busy_bufs || c->buffered);
}


/*
 * As nginx's loop ends, but for two things: the time that a client may take
 * begins anew only when it took something, and the agent's runs only while we
 * would read what it has to say.
 */

static void
ngx_http_sandbox_stream_wait(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t blocked)
{
    ngx_uint_t                    progress, events;
    ngx_connection_t             *c, *upstream;
    ngx_http_upstream_t          *u;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_sandbox_stream_t    *stream;
    ngx_http_sandbox_loc_conf_t  *slcf;

    u = r->upstream;
    c = r->connection;
    upstream = u->peer.connection;
    stream = ctx->stream;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (c->data == r
        && ngx_handle_write_event(c->write, clcf->send_lowat) != NGX_OK)
    {
        ngx_http_sandbox_stream_fail(r);
        return;
    }

    progress = (c->sent != stream->sent);
    stream->sent = c->sent;

    if (ngx_exiting && !stream->leaving) {
        stream->leaving = 1;
        progress = 1;
    }

    if (!c->write->active || c->write->ready) {
        if (c->write->timer_set) {
            ngx_del_timer(c->write);
        }

        stream->waiting = 0;

    } else {
        if (progress || !stream->waiting) {
            (void) ngx_http_sandbox_stream_reads(r, ctx);
            events = !stream->leaving
                     && stream->format != NGX_HTTP_SANDBOX_BYTES;
            stream->until = ngx_current_msec + (events ? slcf->send_timeout
                                                       : clcf->send_timeout);
            stream->waiting = 1;
            progress = 1;
        }

        if (progress || !c->write->timer_set) {
            ngx_add_timer(c->write,
                          ngx_http_sandbox_stream_patience(r, stream));
        }
    }

    if (ngx_handle_read_event(upstream->read, 0) != NGX_OK) {
        ngx_http_sandbox_stream_fail(r);
        return;
    }

    if (!blocked && upstream->read->active && !upstream->read->ready) {
        ngx_add_timer(upstream->read, u->conf->read_timeout);

    } else if (upstream->read->timer_set) {
        ngx_del_timer(upstream->read);
    }
}


/*
 * How long to wait for the client now.  A connection of HTTP/2 has a timer of
 * its own, for "send_timeout" of its server, that would end it before; so it
 * is looked after in shorter steps.
 */

static ngx_msec_t
ngx_http_sandbox_stream_patience(ngx_http_request_t *r,
    ngx_http_sandbox_stream_t *stream)
{
    ngx_msec_t                 left;
#if (NGX_HTTP_V2)
    ngx_msec_t                 step;
    ngx_event_t               *wev;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_v2_connection_t  *h2c;
#endif

    left = (ngx_msec_int_t) (stream->until - ngx_current_msec) > 0
           ? stream->until - ngx_current_msec : 1;

#if (NGX_HTTP_V2)

    if (r->stream && !stream->leaving) {
        h2c = r->stream->connection;
        wev = h2c->connection->write;

        clcf = ngx_http_get_module_loc_conf(h2c->http_connection->conf_ctx,
                                            ngx_http_core_module);
        step = ngx_max(clcf->send_timeout / 2, 1);

        if (wev->timer_set) {
            ngx_add_timer(wev, left + NGX_HTTP_SANDBOX_STREAM_AFTER);
        }

        return ngx_min(left, step);
    }

#endif

    return left;
}


/* nginx's loop finds nothing to send, and then the request is over */

static void
ngx_http_sandbox_stream_end(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_upstream_t          *u;
    ngx_http_sandbox_loc_conf_t  *slcf;

    u = r->upstream;
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    u->length = 0;
    u->conf = &slcf->answering;
    u->peer.connection->idle = 0;

    u->read_event_handler = ctx->stream->read;
    r->write_event_handler = ctx->stream->write;

    r->write_event_handler(r);
}


/*
 * Only nginx can end the upstream in the right order, and it does when it
 * hears that the client is gone.
 */

static void
ngx_http_sandbox_stream_fail(ngx_http_request_t *r)
{
    r->connection->error = 1;
    r->read_event_handler(r);
}
