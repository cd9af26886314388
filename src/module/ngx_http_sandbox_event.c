/*
 * A command's events as text: server-sent events, or JSON a line.  An event
 * is written piece by piece into a few buffers of fixed size, as they become
 * free; how they get to the client is no concern of this file.
 */

#include "ngx_http_sandbox_metrics.h"
#include "ngx_http_sandbox_stream.h"


/* the most bytes that one character takes when it is escaped */

#define NGX_HTTP_SANDBOX_ESCAPED   6
#define NGX_HTTP_SANDBOX_SEQUENCE  4


static void ngx_http_sandbox_event_begin(ngx_http_sandbox_stream_t *stream,
    const char *type, uint64_t seq);
static void ngx_http_sandbox_event_end(ngx_http_sandbox_stream_t *stream);
static void ngx_http_sandbox_event_started(ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_event_output(ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_event_gap(ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_event_ping(ngx_http_sandbox_stream_t *stream);
static ngx_int_t ngx_http_sandbox_event_result(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uint64_t seq, ngx_uint_t numbered);
static u_char *ngx_http_sandbox_event_start(u_char *p,
    ngx_http_sandbox_stream_t *stream, const char *type, uint64_t seq,
    ngx_uint_t numbered);
static ngx_buf_t *ngx_http_sandbox_event_room(ngx_http_request_t *r,
    ngx_http_sandbox_stream_t *stream, ngx_int_t *rc);
static void ngx_http_sandbox_event_text(ngx_buf_t *b, ngx_str_t *text);
static void ngx_http_sandbox_event_piece(ngx_buf_t *b,
    ngx_http_sandbox_stream_t *stream);


ngx_int_t
ngx_http_sandbox_event(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_uint_t quiet)
{
    uint64_t                    seq;
    ngx_http_sandbox_wire_t    *wire;
    ngx_http_sandbox_stream_t  *stream;

    wire = &ctx->wire;
    stream = ctx->stream;

    if (stream->format == NGX_HTTP_SANDBOX_BYTES) {

        /* a file's are no events, they go as they are */

        stream->last = (wire->frame.type == SANDBOX_FRAME_RESULT);
        return NGX_OK;
    }

    if (wire->frame.type != SANDBOX_FRAME_PING
        && wire->frame.type != SANDBOX_FRAME_RESULT
        && wire->frame.type != SANDBOX_FRAME_ERROR
        && wire->seq <= wire->seen && ctx->command_id.len)
    {
        /* the client has it, from the connection before this one */

        stream->seq = wire->seq;
        return NGX_OK;
    }

    switch (wire->frame.type) {

    case SANDBOX_FRAME_STARTED:
        ngx_http_sandbox_event_started(ctx);
        break;

    case SANDBOX_FRAME_STDOUT:
    case SANDBOX_FRAME_STDERR:
        ngx_http_sandbox_event_output(ctx);
        break;

    case SANDBOX_FRAME_GAP:
        ngx_http_sandbox_event_gap(ctx);
        break;

    case SANDBOX_FRAME_PING:

        /* whoever has something to read needs no sign of life */

        if (quiet) {
            ngx_http_sandbox_event_ping(stream);
        }

        break;

    case SANDBOX_FRAME_ERROR:
        return ngx_http_sandbox_event_refused(r, ctx);

    case SANDBOX_FRAME_RESULT:
        seq = wire->result.number[SANDBOX_TAG_SEQ];

        /* who knows the last event is told it again */

        if (seq < wire->seq || (seq == wire->seq && seq != wire->after)) {
            seq = wire->seq + 1;
        }

        wire->seq = seq;
        stream->last = 1;

        return ngx_http_sandbox_event_result(r, ctx, seq, 1);
    }

    return NGX_OK;
}


/*
 * The header had been sent when the agent said no: the command had to wait
 * before that, and the client was to see that somebody is there.
 */

ngx_int_t
ngx_http_sandbox_event_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                      *p;
    ngx_uint_t                   ignored;
    ngx_http_sandbox_stream_t   *stream;
    ngx_http_sandbox_problem_t  *problem;

    stream = ctx->stream;
    problem = &ctx->problem;

    p = ngx_pnalloc(r->pool, 512 + problem->code.len
                             + ngx_http_sandbox_escape(NULL,
                                                       problem->detail.data,
                                                       problem->detail.len,
                                                       &ignored));
    if (p == NULL) {
        return NGX_ERROR;
    }

    stream->before.data = p;

    p = ngx_http_sandbox_event_start(p, stream, "refused", stream->seq, 0);

    p = ngx_sprintf(p, "\"status\":%ui,\"code\":\"%V\",\"detail\":\"",
                    problem->status, &problem->code);
    p += ngx_http_sandbox_escape(p, problem->detail.data, problem->detail.len,
                                 &ignored);
    *p++ = '"';
    p = ngx_http_sandbox_render_number(p, "retryAfter",
                                       problem->retry_after != 0,
                                       problem->retry_after);

    stream->before.len = p - stream->before.data;

    stream->event = 1;
    stream->last = 1;
    stream->len = 0;
    stream->told = 0;

    ngx_http_sandbox_event_end(stream);

    return NGX_OK;
}


/*
 * Made up here, so it has no number of its own: who asks for what came after
 * it misses nothing that the agent may have, after all.
 */

ngx_int_t
ngx_http_sandbox_event_lost(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    if (ctx->stream->format == NGX_HTTP_SANDBOX_BYTES) {

        /* half a file must not look like one: the connection breaks off */

        return NGX_ERROR;
    }

    ctx->wire.lost = 1;
    ngx_http_sandbox_metrics_lost(r, ctx);
    ctx->stream->last = 1;

    return ngx_http_sandbox_event_result(r, ctx, ctx->stream->seq, 0);
}


void
ngx_http_sandbox_event_leave(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_stream_t  *stream;

    stream = ctx->stream;

    stream->event = 1;
    stream->last = 1;
    stream->len = 0;
    stream->told = 0;
    stream->after.len = 0;

    if (stream->format == NGX_HTTP_SANDBOX_SSE) {
        ngx_str_set(&stream->before, "retry: 1000\n\n");

    } else {
        stream->before.len = 0;
    }
}


static void
ngx_http_sandbox_event_begin(ngx_http_sandbox_stream_t *stream,
    const char *type, uint64_t seq)
{
    u_char  *p;

    p = ngx_http_sandbox_event_start(stream->text, stream, type, seq, 1);

    stream->event = 1;
    stream->told = 0;
    stream->seq = seq;

    stream->before.data = stream->text;
    stream->before.len = p - stream->text;
    stream->after.len = 0;
}


static u_char *
ngx_http_sandbox_event_start(u_char *p, ngx_http_sandbox_stream_t *stream,
    const char *type, uint64_t seq, ngx_uint_t numbered)
{
    if (stream->format == NGX_HTTP_SANDBOX_SSE) {

        if (numbered) {
            p = ngx_sprintf(p, "id: %uL\n", seq);
        }

        p = ngx_sprintf(p, "event: %s\ndata: ", type);
    }

    return ngx_sprintf(p, "{\"type\":\"%s\",\"seq\":%uL,", type, seq);
}


static void
ngx_http_sandbox_event_end(ngx_http_sandbox_stream_t *stream)
{
    /* an event of the one kind ends with a blank line */

    if (stream->format == NGX_HTTP_SANDBOX_SSE) {
        ngx_str_set(&stream->after, "}\n\n");

    } else {
        ngx_str_set(&stream->after, "}\n");
    }
}


static void
ngx_http_sandbox_event_started(ngx_http_sandbox_ctx_t *ctx)
{
    u_char                     *p;
    uint64_t                    wall;
    ngx_http_sandbox_wire_t    *wire;
    ngx_http_sandbox_stream_t  *stream;

    wire = &ctx->wire;
    stream = ctx->stream;

    ngx_http_sandbox_event_begin(stream, "started", wire->seq);
    p = stream->before.data + stream->before.len;

    p = ngx_http_sandbox_render_id(p, "commandId", &wire->result.command_id);
    *p++ = ',';
    p = ngx_http_sandbox_render_id(p, "sandboxId", &wire->result.sandbox_id);

    p = ngx_sprintf(p, ",\"startedAt\":");
    p = ngx_http_sandbox_time(p, sandbox_get64(wire->number + 8));

    wall = wire->result.seen[SANDBOX_TAG_WALL_MS]
           ? wire->result.number[SANDBOX_TAG_WALL_MS] : ctx->wall_time;

    p = ngx_http_sandbox_render_number(p, "timeoutSeconds", wall != 0,
                                       wall / 1000);

    stream->before.len = p - stream->before.data;
    stream->len = 0;
    stream->named = 1;

    ngx_http_sandbox_event_end(stream);
}


static void
ngx_http_sandbox_event_output(ngx_http_sandbox_ctx_t *ctx)
{
    u_char                     *p;
    ngx_http_sandbox_stream_t  *stream;

    stream = ctx->stream;

    ngx_http_sandbox_event_begin(stream,
                                 ctx->wire.frame.type == SANDBOX_FRAME_STDOUT
                                 ? "stdout" : "stderr", ctx->wire.seq);

    stream->len = ctx->wire.payload_len;

    /* NUL is UTF-8, but many who read JSON can't bear it */

    stream->base64 = !sandbox_utf8_text(stream->piece, stream->len);

    p = stream->before.data + stream->before.len;
    p = ngx_sprintf(p, "\"data%s\":\"", stream->base64 ? "Base64" : "");
    stream->before.len = p - stream->before.data;

    if (stream->format == NGX_HTTP_SANDBOX_SSE) {
        ngx_str_set(&stream->after, "\"}\n\n");

    } else {
        ngx_str_set(&stream->after, "\"}\n");
    }
}


static void
ngx_http_sandbox_event_gap(ngx_http_sandbox_ctx_t *ctx)
{
    u_char                     *p;
    ngx_http_sandbox_stream_t  *stream;

    stream = ctx->stream;

    ngx_http_sandbox_event_begin(stream, "gap", ctx->wire.seq);

    p = stream->before.data + stream->before.len;
    p = ngx_sprintf(p, "\"stream\":\"%s\",\"bytes\":%uL",
                    ctx->wire.number[8] == SANDBOX_FRAME_STDOUT
                    ? "stdout" : "stderr",
                    sandbox_get64(ctx->wire.number + 9));

    stream->before.len = p - stream->before.data;
    stream->len = 0;

    ngx_http_sandbox_event_end(stream);
}


static void
ngx_http_sandbox_event_ping(ngx_http_sandbox_stream_t *stream)
{
    stream->event = 1;
    stream->len = 0;
    stream->told = 0;
    stream->after.len = 0;

    if (stream->format == NGX_HTTP_SANDBOX_SSE) {
        ngx_str_set(&stream->before, ": ping\n\n");

    } else {
        ngx_str_set(&stream->before, "\n");
    }
}


static ngx_int_t
ngx_http_sandbox_event_result(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uint64_t seq, ngx_uint_t numbered)
{
    u_char                     *p;
    ngx_http_sandbox_stream_t  *stream;

    stream = ctx->stream;

    p = ngx_pnalloc(r->pool, 256 + ngx_http_sandbox_receipt_size(ctx,
                                                         &ctx->wire.result));
    if (p == NULL) {
        return NGX_ERROR;
    }

    stream->before.data = p;

    p = ngx_http_sandbox_event_start(p, stream, "result", seq, numbered);
    p = ngx_http_sandbox_render_receipt(p, ctx, &ctx->wire.result);

    stream->before.len = p - stream->before.data;

    stream->event = 1;
    stream->seq = seq;
    stream->len = 0;
    stream->told = 0;

    ngx_http_sandbox_event_end(stream);

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_event_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_buf_t                  *b;
    ngx_http_sandbox_stream_t  *stream;

    stream = ctx->stream;

    while (stream->before.len || stream->told < stream->len
           || stream->after.len)
    {
        b = ngx_http_sandbox_event_room(r, stream, &rc);
        if (b == NULL) {
            return rc;
        }

        if (stream->before.len) {
            ngx_http_sandbox_event_text(b, &stream->before);

        } else if (stream->told < stream->len) {
            ngx_http_sandbox_event_piece(b, stream);

        } else {
            ngx_http_sandbox_event_text(b, &stream->after);
        }
    }

    stream->event = 0;

    return NGX_OK;
}


/* a buffer in which one character has room, however it is written */

static ngx_buf_t *
ngx_http_sandbox_event_room(ngx_http_request_t *r,
    ngx_http_sandbox_stream_t *stream, ngx_int_t *rc)
{
    ngx_buf_t            *b;
    ngx_chain_t          *cl, **ll;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    b = stream->tail;

    if (b && b->end - b->last
             >= NGX_HTTP_SANDBOX_ESCAPED * NGX_HTTP_SANDBOX_SEQUENCE)
    {
        return b;
    }

    if (u->free_bufs == NULL
        && stream->bufs == NGX_HTTP_SANDBOX_STREAM_BUFS)
    {
        *rc = NGX_BUSY;
        return NULL;
    }

    *rc = NGX_ERROR;

    cl = ngx_chain_get_free_buf(r->pool, &u->free_bufs);
    if (cl == NULL) {
        return NULL;
    }

    b = cl->buf;

    if (b->start == NULL) {

        b->start = ngx_palloc(r->pool, NGX_HTTP_SANDBOX_STREAM_BUF);
        if (b->start == NULL) {
            return NULL;
        }

        b->end = b->start + NGX_HTTP_SANDBOX_STREAM_BUF;
        stream->bufs++;
    }

    b->pos = b->start;
    b->last = b->start;
    b->temporary = 1;
    b->flush = 1;
    b->tag = u->output.tag;

    for (ll = &u->out_bufs; *ll; ll = &(*ll)->next) { /* void */ }

    *ll = cl;
    stream->tail = b;

    return b;
}


static void
ngx_http_sandbox_event_text(ngx_buf_t *b, ngx_str_t *text)
{
    size_t  n;

    n = ngx_min(text->len, (size_t) (b->end - b->last));

    b->last = ngx_cpymem(b->last, text->data, n);

    text->data += n;
    text->len -= n;
}


static void
ngx_http_sandbox_event_piece(ngx_buf_t *b, ngx_http_sandbox_stream_t *stream)
{
    u_char      *p;
    size_t       n, room;
    ngx_str_t    src, dst;
    ngx_uint_t   ignored;

    p = stream->piece + stream->told;
    n = stream->len - stream->told;
    room = b->end - b->last;

    if (stream->base64) {
        n = ngx_min(n, room / 4 * 3);

        src.data = p;
        src.len = n;
        dst.data = b->last;

        ngx_encode_base64(&dst, &src);

        b->last += dst.len;

    } else {
        if (n > room / NGX_HTTP_SANDBOX_ESCAPED) {
            n = sandbox_utf8_head(p, room / NGX_HTTP_SANDBOX_ESCAPED);
        }

        b->last += ngx_http_sandbox_escape(b->last, p, n, &ignored);
    }

    stream->told += n;
}


ngx_int_t
ngx_http_sandbox_event_bytes(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    ngx_buf_t                  *b;
    ngx_chain_t                *cl;
    ngx_http_upstream_t        *u;
    ngx_http_sandbox_stream_t  *stream;

    u = r->upstream;
    stream = ctx->stream;

    if (u->free_bufs == NULL) {
        stream->bufs++;
    }

    cl = ngx_chain_get_free_buf(r->pool, &u->free_bufs);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    b = cl->buf;

    b->start = p;
    b->pos = p;
    b->last = p + n;
    b->end = b->last;
    b->memory = 1;
    b->flush = 1;
    b->tag = u->output.tag;

    if (u->out_bufs == NULL) {
        stream->out = &u->out_bufs;
    }

    *stream->out = cl;
    stream->out = &cl->next;

    return NGX_OK;
}
