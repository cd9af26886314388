/*
 * What nginx calls as a request goes through its phases: access, content, and
 * those before a subrequest's location is found.  Each only says in which order
 * others decide; knows no token, no wire, no JSON.
 */

#include "ngx_http_sandbox_metrics.h"


static ngx_int_t ngx_http_sandbox_access_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_subrequest_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_subrequest_found_handler(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_sandbox_subrequest(ngx_http_request_t *r);


/*
 * Says only yes or no to "satisfy"; whatever it says, the content handler
 * wants a principal.
 */

static ngx_int_t
ngx_http_sandbox_access_handler(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (!slcf->serves || slcf->disabled) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_sandbox_get_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_sandbox_route(r, ctx);

    if (ctx->route && ctx->route->access == NGX_HTTP_SANDBOX_PUBLIC) {
        return NGX_DECLINED;
    }

    return ngx_http_sandbox_identity(r, ctx);
}


/*
 * The route says whether the path is public; what else is wrong with it is
 * told only to those whose identity is known.
 */

ngx_int_t
ngx_http_sandbox_handler(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    ctx = ngx_http_sandbox_get_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_sandbox_route(r, ctx);

    if (ctx->route && ctx->route->access == NGX_HTTP_SANDBOX_PUBLIC) {
        return ctx->route->handler(r, ctx);
    }

    if (slcf->disabled) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "sandbox_disabled",
                                "The code runtime is switched off here.");
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_identity(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ctx->route == NULL) {
        ctx->problem = ctx->refusal;
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    /* somebody else's is told apart from what is not there by nothing */

    if (ngx_http_sandbox_own_conversation(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    return ctx->route->handler(r, ctx);
}


/*
 * A subrequest of ours, such as that of "auth_request", has no body of its own,
 * but it would be refused for ours by "client_max_body_size" of its location.
 * Whose body is discarded is not asked, and until that location is found that
 * is so.
 */

static ngx_int_t
ngx_http_sandbox_subrequest_handler(ngx_http_request_t *r)
{
    if (ngx_http_sandbox_subrequest(r)) {
        r->discard_body = 1;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_subrequest_found_handler(ngx_http_request_t *r)
{
    if (ngx_http_sandbox_subrequest(r)) {
        r->discard_body = r->parent->discard_body;
    }

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_sandbox_subrequest(ngx_http_request_t *r)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (r == r->main) {
        return 0;
    }

    slcf = ngx_http_get_module_loc_conf(r->parent, ngx_http_sandbox_module);

    return slcf->serves;
}


ngx_int_t
ngx_http_sandbox_phases_init(ngx_conf_t *cf)
{
    ngx_uint_t                  i;
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    static const struct {
        ngx_uint_t           phase;
        ngx_http_handler_pt  handler;
    } handlers[] = {
        { NGX_HTTP_SERVER_REWRITE_PHASE, ngx_http_sandbox_subrequest_handler },
        { NGX_HTTP_REWRITE_PHASE, ngx_http_sandbox_subrequest_found_handler },
        { NGX_HTTP_ACCESS_PHASE, ngx_http_sandbox_access_handler },
        { NGX_HTTP_LOG_PHASE, ngx_http_sandbox_metrics_log },
        { 0, NULL }
    };

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    for (i = 0; handlers[i].handler; i++) {

        h = ngx_array_push(&cmcf->phases[handlers[i].phase].handlers);
        if (h == NULL) {
            return NGX_ERROR;
        }

        *h = handlers[i].handler;
    }

    return NGX_OK;
}
