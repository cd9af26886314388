/*
 * A command's events on their way to a client: what the file that moves bytes
 * and the one that writes events have in common.
 */

#ifndef _NGX_HTTP_SANDBOX_STREAM_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_STREAM_H_INCLUDED_


#include "ngx_http_sandbox.h"


/*
 * What a client that does not read costs: these, one frame's output (64 KiB)
 * and the buffer that frames are read into.
 */

#define NGX_HTTP_SANDBOX_STREAM_BUFS   4
#define NGX_HTTP_SANDBOX_STREAM_BUF    (16 * 1024)

/* bytes of a file go out of the buffer that they were read into, in pieces */

#define NGX_HTTP_SANDBOX_STREAM_FILE   (256 * 1024)
#define NGX_HTTP_SANDBOX_STREAM_PIECES 32
#define NGX_HTTP_SANDBOX_STREAM_READS  4         /* such a read counts as */


struct ngx_http_sandbox_stream_s {
    ngx_uint_t                     format;       /* SSE or NDJSON */

    /* in */
    ngx_buf_t                      in;           /* read, not looked at yet */
    u_char                        *piece;        /* output of one frame */
    size_t                         len;
    size_t                         size;

    /* the event that is being written: text, the piece, text */
    ngx_str_t                      before;
    ngx_str_t                      after;
    size_t                         told;         /* bytes of the piece */
    uint64_t                       seq;          /* of the last whole event */
    u_char                         text[512];

    /* out */
    ngx_buf_t                     *tail;         /* last of u->out_bufs */
    ngx_chain_t                  **out;          /* end of it, of a file */
    ngx_uint_t                     bufs;         /* there are, of all kinds */
    off_t                          sent;
    int                            queued;       /* bytes in the socket */
    ngx_msec_t                     until;        /* the client is waited for */

    /* nginx's own, for the end */
    ngx_http_event_handler_pt      write;
    void                         (*read)(ngx_http_request_t *r,
                                         ngx_http_upstream_t *u);

    unsigned                       event:1;      /* one is being written */
    unsigned                       base64:1;     /* its piece is no text */
    unsigned                       last:1;       /* nothing comes after it */
    unsigned                       named:1;      /* the client has the id */
    unsigned                       leaving:1;    /* the worker is */
    unsigned                       waiting:1;    /* for the client */
};


/* ngx_http_sandbox_event.c */

/*
 * The frame that is complete becomes the event to be written; a PING becomes
 * one only if `quiet`.  NGX_OK, or NGX_ERROR (no memory).
 */
ngx_int_t ngx_http_sandbox_event(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t quiet);

/* The last event: ctx->problem; nothing was started. */
ngx_int_t ngx_http_sandbox_event_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The last event: a result that the agent could not send. */
ngx_int_t ngx_http_sandbox_event_lost(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The last thing instead of an event: the client is to ask again. */
void ngx_http_sandbox_event_leave(ngx_http_sandbox_ctx_t *ctx);

/*
 * Writes the event into u->out_bufs.  NGX_OK: all of it, NGX_BUSY: there is
 * room again when the client has read, NGX_ERROR.
 */
ngx_int_t ngx_http_sandbox_event_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Bytes of a file, in stream->in, where they stay until they are sent. */
ngx_int_t ngx_http_sandbox_event_bytes(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);


#endif /* _NGX_HTTP_SANDBOX_STREAM_H_INCLUDED_ */
