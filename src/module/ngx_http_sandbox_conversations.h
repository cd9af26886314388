/*
 * The conversations of a user: their list, and that one is in it from the
 * first use of its sandbox on.
 */

#ifndef _NGX_HTTP_SANDBOX_CONVERSATIONS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_CONVERSATIONS_H_INCLUDED_


#include "ngx_http_sandbox_store.h"


#define NGX_HTTP_SANDBOX_MARKS  512              /* in the zone */


/* of sessions of which it is known that the store has them, by hashes */

typedef struct ngx_http_sandbox_marks_s {
    ngx_atomic_t                   mark[NGX_HTTP_SANDBOX_MARKS];
} ngx_http_sandbox_marks_t;


typedef struct ngx_http_sandbox_conversations_s
                                           ngx_http_sandbox_conversations_t;


ngx_int_t ngx_http_sandbox_conversations_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/*
 * An operation begins that may make a sandbox, with ctx->session: its
 * conversation is put into the list, if there is a store.  Nobody waits.
 */
void ngx_http_sandbox_conversations_mark(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/*
 * ngx_http_sandbox_conversation.c: members of a sandbox as STATUS told it,
 * from "state" on.
 */
u_char *ngx_http_sandbox_render_sandbox(u_char *p,
    ngx_http_sandbox_result_t *result);

/* What is `dropped` once it is: for a thread that is to write its mark. */
ngx_atomic_t *ngx_http_sandbox_conversations_state(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_atomic_uint_t *dropped);

/* It is being taken out of the store, or was: marks on their way end. */
void ngx_http_sandbox_conversations_unmark(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


#endif /* _NGX_HTTP_SANDBOX_CONVERSATIONS_H_INCLUDED_ */
