/*
 * Where backends differ while an operation is on the wire; part of the table
 * of backends.
 */

#ifndef _NGX_HTTP_SANDBOX_HOOKS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_HOOKS_H_INCLUDED_


#include "ngx_http_sandbox.h"
#include "sandbox_store_engine.h"


struct ngx_http_sandbox_hooks_s {
    /* what of the preamble is theirs: key, base */
    void                         (*preamble)(ngx_http_request_t *r,
                                             ngx_http_sandbox_ctx_t *ctx,
                                             sandbox_preamble_t *preamble);

    /* whether there was an answer */
    void                         (*report)(ngx_http_request_t *r,
                                           ngx_http_sandbox_status_e status,
                                           const char *reason);

    /*
     * ctx->problem is an ERROR.  NGX_OK: it is sent once more from an event,
     * and the upstream is silent until then.  NGX_DECLINED: it is the answer.
     */
    ngx_int_t                    (*refused)(ngx_http_request_t *r,
                                            ngx_http_sandbox_ctx_t *ctx);

    /* RESULT or ERROR is here */
    void                         (*ended)(ngx_http_request_t *r,
                                          ngx_http_sandbox_ctx_t *ctx);

    /*
     * What the store knew of a conversation that is being deleted, before the
     * operation starts.  NULL: nobody asks.
     */
    ngx_int_t                    (*recorded)(ngx_http_request_t *r,
                                          ngx_http_sandbox_ctx_t *ctx,
                                          sandbox_store_engine_t *record);

    /*
     * Of a list of conversations, without asking anybody: when one's sandbox
     * was used last, or -1.  NULL: SESSIONS is asked.
     */
    time_t                       (*listed)(ngx_http_request_t *r,
                                           const u_char *session);

    /* what the result is to tell beside it: NGX_OK, or NGX_DECLINED */
    ngx_int_t                    (*notice)(ngx_http_sandbox_ctx_t *ctx,
                                           ngx_str_t *code,
                                           ngx_str_t *detail);
};


#endif /* _NGX_HTTP_SANDBOX_HOOKS_H_INCLUDED_ */
