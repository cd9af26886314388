/*
 * What requests hold of a worker, by tenant: memory for bodies and answers,
 * and descriptors of files on their way to sandboxes.
 */

#ifndef _NGX_HTTP_SANDBOX_BUDGET_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_BUDGET_H_INCLUDED_


#include "ngx_http_sandbox.h"


typedef struct ngx_http_sandbox_share_s  ngx_http_sandbox_share_t;


/*
 * The 16 bytes of the tenant, or of the user where tokens name none.  In
 * ngx_http_sandbox_auth.c.
 */
ngx_int_t ngx_http_sandbox_tenant_digest(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *digest);


/*
 * What is taken belongs to the request and goes back at its end at the latest.
 * NGX_DECLINED with the refusal in ctx->problem; NGX_ERROR: no memory.
 */

/* Before anything is begun: its tenant has not more than it may already. */
ngx_int_t ngx_http_sandbox_budget_enter(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Bytes that may be refused, and those that are there in any case. */
ngx_int_t ngx_http_sandbox_budget_take(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t n);
void ngx_http_sandbox_budget_add(ngx_http_sandbox_ctx_t *ctx, size_t n);
void ngx_http_sandbox_budget_give(ngx_http_sandbox_ctx_t *ctx, size_t n);

/* Files, none of which the request has; 0: it has none any more. */
ngx_int_t ngx_http_sandbox_budget_files(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t n);


#endif /* _NGX_HTTP_SANDBOX_BUDGET_H_INCLUDED_ */
