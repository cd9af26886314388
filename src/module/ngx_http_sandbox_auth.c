/*
 * From the Authorization header to a principal and the keys of its session.
 * The token is verified once a request and location; it is never logged, and
 * nothing of it is kept but three names.
 */

#include "ngx_http_sandbox.h"


static ngx_int_t ngx_http_sandbox_token(ngx_http_request_t *r,
    ngx_str_t *token);
static ngx_int_t ngx_http_sandbox_verify(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_loc_conf_t *slcf);
static ngx_int_t ngx_http_sandbox_principal(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_loc_conf_t *slcf,
    json_t *claims);
static ngx_int_t ngx_http_sandbox_copy(ngx_http_request_t *r, ngx_str_t *dst,
    const char *src);
static ngx_int_t ngx_http_sandbox_challenge(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t sent);
static void ngx_http_sandbox_session_parts(ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf, sandbox_jose_session_t *session);


/*
 * Says only yes or no to "satisfy"; whatever it says, the content handler
 * wants a principal.
 */

ngx_int_t
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

    if (ctx->route && ctx->route->public) {
        return NGX_DECLINED;
    }

    return ngx_http_sandbox_identity(r, ctx);
}


ngx_int_t
ngx_http_sandbox_identity(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    /* another location may have another policy */

    if (ctx->verified != slcf) {

        ngx_str_null(&ctx->issuer);
        ngx_str_null(&ctx->tenant);
        ngx_str_null(&ctx->user);

        ctx->identity = ngx_http_sandbox_verify(r, ctx, slcf);
        ctx->verified = slcf;

        if (ctx->identity != NGX_OK) {
            ctx->refused = ctx->problem;

            ngx_str_null(&ctx->issuer);
            ngx_str_null(&ctx->tenant);
            ngx_str_null(&ctx->user);
        }
    }

    if (ctx->identity != NGX_OK) {
        ctx->problem = ctx->refused;
    }

    return ctx->identity;
}


static ngx_int_t
ngx_http_sandbox_verify(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_int_t               rc;
    ngx_str_t               token;
    const char             *audience;
    sandbox_jose_token_t    verified;
    sandbox_jose_policy_t   policy;
    sandbox_jose_status_t   status;

    rc = ngx_http_sandbox_token(r, &token);

    if (rc != NGX_OK) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_UNAUTHORIZED,
                                rc == NGX_DECLINED ? "unauthorized"
                                                   : "invalid_token",
                                rc == NGX_DECLINED
                                ? "A bearer token is needed."
                                : "The Authorization header must be "
                                  "\"Bearer\", one space and a token.");
        return ngx_http_sandbox_challenge(r, ctx, rc != NGX_DECLINED);
    }

    policy.algorithms = slcf->algorithms;
    policy.leeway = (unsigned) (slcf->leeway / 1000);
    policy.issuer = slcf->issuer.len ? (char *) slcf->issuer.data : NULL;
    audience = (char *) slcf->audience.data;
    policy.audiences = &audience;
    policy.naudiences = slcf->audience.len != 0;

    status = sandbox_jose_verify((const sandbox_jose_key_t *const *)
                                 slcf->keys->elts, slcf->keys->nelts,
                                 token.data, token.len, &policy,
                                 (int64_t) ngx_time(), &verified);

    if (status == SANDBOX_JOSE_OK) {
        rc = ngx_http_sandbox_principal(r, ctx, slcf, verified.claims);
        json_decref(verified.claims);

        if (rc != NGX_DECLINED) {
            return rc;
        }

        status = SANDBOX_JOSE_CLAIMS;
    }

    if (status == SANDBOX_JOSE_FAILED) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox token could not be looked at, no memory");
        return ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                       "internal", "The token could not be "
                                       "looked at.");
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "sandbox token refused: %s", sandbox_jose_reason(status));

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_UNAUTHORIZED,
                                       "invalid_token",
                                       "The token was refused: %s.",
                                       sandbox_jose_reason(status))
        == NGX_ERROR)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_challenge(r, ctx, 1);
}


/* NGX_DECLINED: there is none; NGX_ERROR: not in this shape */

static ngx_int_t
ngx_http_sandbox_token(ngx_http_request_t *r, ngx_str_t *token)
{
    size_t            i;
    ngx_str_t        *value;
    ngx_table_elt_t  *h;

    h = r->headers_in.authorization;

    if (h == NULL) {
        return NGX_DECLINED;
    }

#if (nginx_version >= 1023000)
    if (h->next) {
        return NGX_ERROR;
    }
#endif

    value = &h->value;

    if (value->len < sizeof("Bearer x") - 1
        || ngx_strncasecmp(value->data, (u_char *) "Bearer ", 7) != 0)
    {
        return NGX_ERROR;
    }

    token->data = value->data + 7;
    token->len = value->len - 7;

    for (i = 0; i < token->len; i++) {
        if (token->data[i] <= ' ' || token->data[i] >= 0x7f
            || token->data[i] == ',')
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* NGX_DECLINED: the claims name nobody */

static ngx_int_t
ngx_http_sandbox_principal(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf, json_t *claims)
{
    sandbox_jose_principal_t  principal;

    if (sandbox_jose_principal(claims, NULL, &principal) != SANDBOX_JOSE_OK) {
        return NGX_DECLINED;
    }

    if (!sandbox_jose_permitted(claims, NULL, 0,
                                (char *) slcf->permission.data))
    {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "sandbox token lacks the permission \"%V\"",
                      &slcf->permission);

        if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_FORBIDDEN,
                                           "insufficient_scope",
                                           "The token does not grant "
                                           "\"%V\".", &slcf->permission)
            == NGX_ERROR)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_sandbox_challenge(r, ctx, 1);
    }

    if (ngx_http_sandbox_copy(r, &ctx->issuer, principal.issuer) != NGX_OK
        || ngx_http_sandbox_copy(r, &ctx->tenant, principal.tenant) != NGX_OK
        || ngx_http_sandbox_copy(r, &ctx->user, principal.user) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_copy(ngx_http_request_t *r, ngx_str_t *dst, const char *src)
{
    if (src == NULL) {
        return NGX_OK;
    }

    dst->len = ngx_strlen(src);
    dst->data = ngx_pnalloc(r->pool, dst->len + 1);
    if (dst->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(dst->data, src, dst->len + 1);

    return NGX_OK;
}


/* WWW-Authenticate for the problem; it is sent when the problem is */

static ngx_int_t
ngx_http_sandbox_challenge(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_uint_t sent)
{
    u_char                             *p;
    size_t                              len;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    len = sizeof("Bearer realm=\"\", error=\"insufficient_scope\", scope=\"\"")
          + slcf->realm.len + slcf->permission.len;

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->problem.challenge.data = p;

    p = ngx_sprintf(p, "Bearer realm=\"%V\"", &slcf->realm);

    if (ctx->problem.status == NGX_HTTP_FORBIDDEN) {
        p = ngx_sprintf(p, ", error=\"insufficient_scope\", scope=\"%V\"",
                        &slcf->permission);

    } else if (sent) {
        p = ngx_sprintf(p, ", error=\"invalid_token\"");
    }

    ctx->problem.challenge.len = p - ctx->problem.challenge.data;

    return ctx->problem.status;
}


ngx_int_t
ngx_http_sandbox_session_keys(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    sandbox_jose_session_t              session;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    ngx_http_sandbox_session_parts(ctx, slcf, &session);

    if (sandbox_jose_session_key(&session, ctx->session) != 0
        || sandbox_jose_tenant_digest(&session, ctx->digest) != 0)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox session key could not be computed");
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_session_parts(ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf, sandbox_jose_session_t *session)
{
    session->realm.data = slcf->realm.data;
    session->realm.size = slcf->realm.len;
    session->issuer.data = ctx->issuer.data;
    session->issuer.size = ctx->issuer.len;
    session->tenant.data = ctx->tenant.data;
    session->tenant.size = ctx->tenant.len;
    session->user.data = ctx->user.data;
    session->user.size = ctx->user.len;
    session->conversation.data = ctx->conversation.data;
    session->conversation.size = ctx->conversation.len;
}
