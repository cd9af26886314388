/*
 * Attachments on their way into a sandbox with a command, for the files that
 * send it and tell its result.
 */

#ifndef _NGX_HTTP_SANDBOX_STAGE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_STAGE_H_INCLUDED_


#include "ngx_http_sandbox_store.h"


/* Names the conversation's attachments in the head, and sends the command. */
void ngx_http_sandbox_stage_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* 1: there are files, so the agent may ask for them before HEAD. */
ngx_uint_t ngx_http_sandbox_stage_named(ngx_http_sandbox_ctx_t *ctx);

/*
 * ctx->problem is "stage_needed".  NGX_OK: the command is sent once more from
 * an event, and the upstream is silent until then.  NGX_DECLINED: the problem
 * is another one now, for the client.
 */
ngx_int_t ngx_http_sandbox_stage_needed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/*
 * The upstream hears nothing more, so that its request can wait for another
 * one; the next start, or ngx_http_sandbox_upstream_leave(), ends it.
 */
void ngx_http_sandbox_stage_silence(ngx_http_request_t *r);

/* ngx_http_sandbox_upstream.c: it ends here, its request goes on. */
void ngx_http_sandbox_upstream_leave(ngx_http_request_t *r);

/* 1: files follow stdin in the body, so it can't be sent again as it is. */
ngx_uint_t ngx_http_sandbox_stage_bodies(ngx_http_sandbox_ctx_t *ctx);

/* 1: some of them are closed, as all was sent: there is no second time. */
ngx_uint_t ngx_http_sandbox_stage_sent(ngx_http_sandbox_ctx_t *ctx);

/* Length of a command's body, for the preamble. */
uint64_t ngx_http_sandbox_stage_length(ngx_http_sandbox_ctx_t *ctx);

/* stdin and the files, after `last`. */
ngx_int_t ngx_http_sandbox_stage_send(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_chain_t *last);

/* "stagingNotices":[...], and the most room for it */
size_t ngx_http_sandbox_stage_size(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result);
u_char *ngx_http_sandbox_stage_notices(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_result_t *result);


#endif /* _NGX_HTTP_SANDBOX_STAGE_H_INCLUDED_ */
