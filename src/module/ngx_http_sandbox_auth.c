/*
 * From the Authorization header to a principal and the keys of its session.
 * The token is verified once a request and location; it is never logged, and
 * nothing of it is kept but three names.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox.h"


/* what a worker verifies with now: files' keys, and those that URLs brought */

typedef struct {
    ngx_uint_t                     n;
    ngx_uint_t                     missing;      /* sets not fetched yet */
    uint64_t                       generation[NGX_HTTP_SANDBOX_MAX_KEY_SETS];
    const sandbox_jose_key_t      *key[NGX_HTTP_SANDBOX_MAX_KEYS
                                       + NGX_HTTP_SANDBOX_MAX_KEY_SETS
                                         * SANDBOX_JOSE_MAX_JWKS_KEYS];
} ngx_http_sandbox_keys_t;


static ngx_int_t ngx_http_sandbox_token(ngx_http_request_t *r,
    ngx_str_t *token);
static ngx_int_t ngx_http_sandbox_known(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_loc_conf_t *slcf);
static ngx_uint_t ngx_http_sandbox_needed(ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf);
static ngx_int_t ngx_http_sandbox_authenticate(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_loc_conf_t *slcf);
static ngx_int_t ngx_http_sandbox_verify(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *token,
    ngx_http_sandbox_keys_t *keys);
static void ngx_http_sandbox_keys(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_keys_t *keys);
static ngx_int_t ngx_http_sandbox_digest(
    const ngx_http_sandbox_loc_conf_t *slcf, ngx_http_sandbox_keys_t *keys,
    ngx_str_t *token, u_char *digest);
static ngx_int_t ngx_http_sandbox_claims(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_loc_conf_t *slcf,
    json_t *claims);
static ngx_int_t ngx_http_sandbox_copy(ngx_http_request_t *r, ngx_str_t *dst,
    const char *src);
static ngx_int_t ngx_http_sandbox_refuse_token(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const char *fmt, const char *why);
static ngx_int_t ngx_http_sandbox_challenge(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const char *error, ngx_str_t *scope);
static void ngx_http_sandbox_session_parts(ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf, sandbox_jose_session_t *session);


ngx_int_t
ngx_http_sandbox_identity(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                           rc;
    ngx_str_t                           permission;
    ngx_uint_t                          needed;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    rc = ngx_http_sandbox_known(r, ctx, slcf);

    if (rc != NGX_OK) {
        ctx->problem = ctx->refused;
        return rc;
    }

    needed = ngx_http_sandbox_needed(ctx, slcf);

    if (ctx->principal.permissions & needed) {
        return NGX_OK;
    }

    permission = (needed & NGX_HTTP_SANDBOX_READ) ? slcf->permission_read
                                              : slcf->permission;

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "sandbox token lacks the permission \"%V\"", &permission);

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_FORBIDDEN,
                                       "insufficient_scope",
                                       "The token does not grant \"%V\".",
                                       &permission)
        == NGX_ERROR)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_challenge(r, ctx, "insufficient_scope",
                                      &permission);
}


const ngx_http_sandbox_principal_t *
ngx_http_sandbox_principal(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                           rc;
    ngx_http_sandbox_problem_t          problem;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    problem = ctx->problem;

    rc = ngx_http_sandbox_known(r, ctx, slcf);

    ctx->problem = problem;

    if (rc != NGX_OK
        || (ctx->principal.permissions & ngx_http_sandbox_needed(ctx, slcf))
           == 0)
    {
        return NULL;
    }

    return &ctx->principal;
}


/* once for a location, for another one may have another policy */

static ngx_int_t
ngx_http_sandbox_known(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    if (ctx->verified == slcf) {
        return ctx->identity;
    }

    ngx_memzero(&ctx->principal, sizeof(ngx_http_sandbox_principal_t));
    ngx_str_null(&ctx->token_cache);

    ctx->identity = ngx_http_sandbox_authenticate(r, ctx, slcf);
    ctx->verified = slcf;

    if (ctx->identity != NGX_OK) {
        ctx->refused = ctx->problem;
        ngx_memzero(&ctx->principal, sizeof(ngx_http_sandbox_principal_t));
    }

    return ctx->identity;
}


/* what is not marked as open to readers needs the whole permission */

static ngx_uint_t
ngx_http_sandbox_needed(ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    if (ctx->route && slcf->permission_read.len) {
        return ctx->route->access;
    }

    return NGX_HTTP_SANDBOX_EXECUTE;
}


static ngx_int_t
ngx_http_sandbox_authenticate(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_loc_conf_t *slcf)
{
    u_char                    digest[SANDBOX_JOSE_SESSION_SIZE];
    ngx_int_t                 rc;
    ngx_str_t                 token;
    ngx_http_sandbox_keys_t   keys;

    rc = ngx_http_sandbox_token(r, &token);

    if (rc == NGX_DECLINED) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_UNAUTHORIZED, "unauthorized",
                                "A bearer token is needed, in the header "
                                "\"Authorization: Bearer TOKEN\".");
        return ngx_http_sandbox_challenge(r, ctx, NULL, NULL);
    }

    if (rc == NGX_ERROR) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_UNAUTHORIZED, "invalid_token",
                                "The Authorization header must be "
                                "\"Bearer\", one space and a token.");
        return ngx_http_sandbox_challenge(r, ctx, "invalid_token", NULL);
    }

    ngx_http_sandbox_keys(slcf, &keys);

    /* too long for a token is too long to be hashed */

    if (token.len > SANDBOX_JOSE_MAX_TOKEN) {
        return ngx_http_sandbox_verify(r, ctx, &token, &keys);
    }

    if (ngx_http_sandbox_digest(slcf, &keys, &token, digest) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox token could not be looked at, no memory");
        return ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                       "internal", "The token could not be "
                                       "looked at.");
    }

    rc = ngx_http_sandbox_cache_find(&slcf->main->zone, digest, r->pool,
                                     &ctx->principal);
    if (rc == NGX_OK) {
        ngx_str_set(&ctx->token_cache, "hit");
        return NGX_OK;
    }

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&ctx->token_cache, "miss");

    rc = ngx_http_sandbox_verify(r, ctx, &token, &keys);

    if (rc == NGX_OK) {
        ngx_http_sandbox_cache_add(&slcf->main->zone, digest,
                                   &ctx->principal);
    }

    return rc;
}


static ngx_int_t
ngx_http_sandbox_verify(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *token, ngx_http_sandbox_keys_t *keys)
{
    ngx_int_t                           rc;
    ngx_uint_t                          i;
    sandbox_jose_token_t                verified;
    sandbox_jose_policy_t               policy;
    sandbox_jose_status_t               status;
    ngx_http_sandbox_key_set_t        **set;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    policy.algorithms = slcf->accepted;
    policy.awaited = keys->missing ? sandbox_jose_supported()
                                     & ~SANDBOX_JOSE_HS : 0;
    policy.leeway = (unsigned) (slcf->leeway / 1000);
    policy.issuer = slcf->issuer.len ? (char *) slcf->issuer.data : NULL;
    policy.audiences = slcf->audiences ? slcf->audiences->elts : NULL;
    policy.naudiences = slcf->audiences ? slcf->audiences->nelts : 0;

    status = sandbox_jose_verify(keys->key, keys->n, token->data, token->len,
                                 &policy, (int64_t) ngx_time(), &verified);

    switch (status) {

    case SANDBOX_JOSE_OK:
        ctx->principal.expires = verified.expires;

        rc = ngx_http_sandbox_claims(r, ctx, slcf, verified.claims);
        json_decref(verified.claims);

        return rc;

    case SANDBOX_JOSE_FAILED:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox token could not be looked at, no memory");
        return ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                       "internal", "The token could not be "
                                       "looked at.");

    case SANDBOX_JOSE_AWAITED:
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "sandbox token could not be verified, no key set "
                      "was fetched yet");
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "keys_unavailable",
                                "The keys that verify tokens are not here "
                                "yet.");
        ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
        return ctx->problem.status;

    case SANDBOX_JOSE_UNKNOWN_KID:

        if (slcf->key_sets) {
            set = slcf->key_sets->elts;

            for (i = 0; i < slcf->key_sets->nelts; i++) {
                ngx_http_sandbox_key_set_want(set[i]);
            }
        }

        /* fall through */

    default:
        return ngx_http_sandbox_refuse_token(r, ctx, "%s",
                                             sandbox_jose_reason(status));
    }
}


/*
 * NGX_DECLINED: no bearer token was sent, maybe something else was.
 * NGX_ERROR: it is not in this shape.
 */

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

    if (value->len < sizeof("Bearer") - 1
        || ngx_strncasecmp(value->data, (u_char *) "Bearer", 6) != 0)
    {
        return NGX_DECLINED;
    }

    if (value->len == 6 || value->data[6] != ' ') {
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


static void
ngx_http_sandbox_keys(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_keys_t *keys)
{
    ngx_uint_t                    i;
    sandbox_jose_key_t          **key;
    ngx_http_sandbox_key_set_t  **set;

    keys->n = 0;
    keys->missing = 0;

    if (slcf->keys) {
        key = slcf->keys->elts;

        for (i = 0; i < slcf->keys->nelts; i++) {
            keys->key[keys->n++] = key[i];
        }
    }

    if (slcf->key_sets == NULL) {
        return;
    }

    set = slcf->key_sets->elts;

    for (i = 0; i < slcf->key_sets->nelts; i++) {

        keys->generation[i] = 0;

        if (ngx_http_sandbox_key_set_keys(set[i], keys->key,
                                          sizeof(keys->key)
                                          / sizeof(keys->key[0]),
                                          &keys->n, &keys->generation[i])
            != NGX_OK)
        {
            keys->missing++;
        }
    }
}


/* the name of a verified token: other keys or another policy, another name */

static ngx_int_t
ngx_http_sandbox_digest(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_keys_t *keys, ngx_str_t *token, u_char *digest)
{
    sandbox_jose_bytes_t  parts[3];

    parts[0].data = slcf->policy;
    parts[0].size = sizeof(slcf->policy);
    parts[1].data = keys->generation;
    parts[1].size = slcf->key_sets ? slcf->key_sets->nelts * sizeof(uint64_t)
                                   : 0;
    parts[2].data = token->data;
    parts[2].size = token->len;

    return sandbox_jose_digest(parts, 3, digest) == 0 ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_sandbox_claims(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf, json_t *claims)
{
    size_t                             n;
    const char                        *conversation;
    ngx_http_sandbox_principal_t      *principal;
    sandbox_jose_principal_t           names;
    const sandbox_jose_path_t *const  *paths;

    principal = &ctx->principal;
    conversation = NULL;

    if (sandbox_jose_principal(claims, NULL, &names) != SANDBOX_JOSE_OK) {
        return ngx_http_sandbox_refuse_token(r, ctx, "its claims %s name "
                                             "nobody", "sub and iss");
    }

    if (sandbox_jose_principal(claims, slcf->tenant_claim.path, &names)
        != SANDBOX_JOSE_OK)
    {
        return ngx_http_sandbox_refuse_token(r, ctx, "its claim %s names no "
                                             "tenant",
                                       (char *) slcf->tenant_claim.name.data);
    }

    if (slcf->conversation_claim.path
        && sandbox_jose_conversation(claims, slcf->conversation_claim.path,
                                     &conversation)
           != SANDBOX_JOSE_OK)
    {
        return ngx_http_sandbox_refuse_token(r, ctx, "its claim %s names no "
                                             "conversation",
                                 (char *) slcf->conversation_claim.name.data);
    }

    paths = slcf->permission_paths ? slcf->permission_paths->elts : NULL;
    n = slcf->permission_paths ? slcf->permission_paths->nelts : 0;

    principal->permissions = 0;

    if (sandbox_jose_permitted(claims, paths, n,
                               (char *) slcf->permission.data))
    {
        principal->permissions |= NGX_HTTP_SANDBOX_EXECUTE;
    }

    if (slcf->permission_read.len
        && sandbox_jose_permitted(claims, paths, n,
                                  (char *) slcf->permission_read.data))
    {
        principal->permissions |= NGX_HTTP_SANDBOX_READ;
    }

    if (ngx_http_sandbox_copy(r, &principal->issuer, names.issuer) != NGX_OK
        || ngx_http_sandbox_copy(r, &principal->tenant, names.tenant)
           != NGX_OK
        || ngx_http_sandbox_copy(r, &principal->user, names.user) != NGX_OK
        || ngx_http_sandbox_copy(r, &principal->conversation, conversation)
           != NGX_OK)
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


/*
 * By the same words as for a path that there never is: nobody learns from it
 * whether somebody has that conversation.
 */

ngx_int_t
ngx_http_sandbox_own_conversation(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t                          *claim, *path;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->conversation_claim.path == NULL
        || ctx->conversation.data == NULL)
    {
        return NGX_OK;
    }

    claim = &ctx->principal.conversation;
    path = &ctx->conversation;

    if (claim->len == path->len
        && ngx_memcmp(claim->data, path->data, path->len) == 0)
    {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "sandbox token is for another conversation");

    ngx_http_sandbox_route_missing(&ctx->problem);

    return NGX_DECLINED;
}


/* why has no part of the token in it */

static ngx_int_t
ngx_http_sandbox_refuse_token(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const char *fmt, const char *why)
{
    u_char  reason[512];

    *ngx_snprintf(reason, sizeof(reason) - 1, fmt, why) = '\0';

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "sandbox token refused: %s", reason);

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_UNAUTHORIZED,
                                       "invalid_token",
                                       "The token was refused: %s.", reason)
        == NGX_ERROR)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_challenge(r, ctx, "invalid_token", NULL);
}


/* WWW-Authenticate for the problem; it is sent when the problem is */

static ngx_int_t
ngx_http_sandbox_challenge(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const char *error, ngx_str_t *scope)
{
    u_char                             *p;
    size_t                              len;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    len = sizeof("Bearer realm=\"\", error=\"insufficient_scope\", scope=\"\"")
          + slcf->realm.len + (scope ? scope->len : 0);

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->problem.challenge.data = p;

    p = ngx_sprintf(p, "Bearer realm=\"%V\"", &slcf->realm);

    if (error) {
        p = ngx_sprintf(p, ", error=\"%s\"", error);
    }

    if (scope) {
        p = ngx_sprintf(p, ", scope=\"%V\"", scope);
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


ngx_int_t
ngx_http_sandbox_tenant_digest(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *digest)
{
    sandbox_jose_session_t              session;
    const ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    ngx_http_sandbox_session_parts(ctx, slcf, &session);

    return sandbox_jose_tenant_digest(&session, digest) == 0 ? NGX_OK
                                                             : NGX_ERROR;
}


static void
ngx_http_sandbox_session_parts(ngx_http_sandbox_ctx_t *ctx,
    const ngx_http_sandbox_loc_conf_t *slcf, sandbox_jose_session_t *session)
{
    session->realm.data = slcf->realm.data;
    session->realm.size = slcf->realm.len;
    session->issuer.data = ctx->principal.issuer.data;
    session->issuer.size = ctx->principal.issuer.len;
    session->tenant.data = ctx->principal.tenant.data;
    session->tenant.size = ctx->principal.tenant.len;
    session->user.data = ctx->principal.user.data;
    session->user.size = ctx->principal.user.len;
    session->conversation.data = ctx->conversation.data;
    session->conversation.size = ctx->conversation.len;
}
