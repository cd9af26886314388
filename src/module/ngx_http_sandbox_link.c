/*
 * Signed links of the Files panel: for whoever holds one, that content of that
 * file, without a token, for ten minutes at most.  The key comes from the
 * runner's, so all workers, reloads and restarts agree.
 */

#include "ngx_http_sandbox_mcp.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>


#define NGX_HTTP_SANDBOX_LINK_TIME   600         /* seconds, the most */
#define NGX_HTTP_SANDBOX_LINK_MAC    32
#define NGX_HTTP_SANDBOX_LINK_GONE   410         /* nginx has no name for it */
#define NGX_HTTP_SANDBOX_LINK_MAX                                            \
    (SANDBOX_STORE_MAX_LINK + NGX_HTTP_SANDBOX_LINK_MAC)


static void ngx_http_sandbox_link_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_link_time(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uint64_t *seconds);
static ngx_int_t ngx_http_sandbox_link_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_link_mac(
    const ngx_http_sandbox_loc_conf_t *slcf, const u_char *p, size_t n,
    u_char *mac);
static ngx_int_t ngx_http_sandbox_link_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_store_link_t *link);
static void ngx_http_sandbox_download_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);


ngx_int_t
ngx_http_sandbox_link_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                      seconds;
    ngx_int_t                     rc;
    const char                   *wrong;
    ngx_http_sandbox_store_op_t  *op;

    wrong = sandbox_store_name_wrong((char *) ctx->name.data, ctx->name.len);

    if (wrong) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_name", wrong);
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK
        || ngx_http_sandbox_link_time(r, ctx, &seconds) != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_FILES,
                                   ngx_http_sandbox_link_found);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->most = seconds;

    if (ngx_http_sandbox_store_lookup(op, &ctx->name, 0) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_link_time(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    uint64_t *seconds)
{
    ngx_str_t  value;

    *seconds = NGX_HTTP_SANDBOX_LINK_TIME;

    if (ngx_http_sandbox_argument(r, "seconds", &value) != NGX_OK) {
        return NGX_OK;
    }

    if (ngx_http_sandbox_decimal(&value, NGX_HTTP_SANDBOX_LINK_TIME, seconds)
        == NGX_OK
        && *seconds > 0)
    {
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                            "\"seconds\" must be a number from 1 to 600.");

    return NGX_DECLINED;
}


static void
ngx_http_sandbox_link_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    if (ngx_http_sandbox_link_render(r, ctx, op) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_send_answer(r, ctx));
}


static ngx_int_t
ngx_http_sandbox_link_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    uint64_t    expires;
    ngx_buf_t  *b;
    ngx_str_t   url;

    expires = (uint64_t) ngx_time() + op->most;

    if (ngx_http_sandbox_link_sign(r, ctx, &ctx->name, op->entry.sha256,
                                   expires, &url)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    b = ngx_create_temp_buf(r->pool, 128 + url.len);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"url\":\"%V\",\"expiresAt\":", &url);
    b->last = ngx_http_sandbox_time(b->last, expires * 1000);
    b->last = ngx_cpymem(b->last, "}\n", 2);

    return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
}


ngx_int_t
ngx_http_sandbox_link_sign(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *name, const uint8_t *sha256, uint64_t expires, ngx_str_t *url)
{
    size_t                        n;
    u_char                        bytes[NGX_HTTP_SANDBOX_LINK_MAX], *p;
    char                          id[SANDBOX_STORE_ID + 1];
    ngx_str_t                     src, dst;
    sandbox_store_link_t          link;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    ngx_memzero(&link, sizeof(sandbox_store_link_t));

    link.expires = expires;
    ngx_memcpy(link.tenant, ctx->digest, sizeof(link.tenant));
    ngx_memcpy(link.etag, sha256, sizeof(link.etag));
    ngx_memcpy(link.conversation, ctx->conversation.data,
               ctx->conversation.len);
    link.conversation_len = (unsigned) ctx->conversation.len;

    sandbox_store_id((char *) name->data, name->len, id);

    for (n = 0; n < sizeof(link.id); n++) {
        link.id[n] = (uint8_t) ngx_hextoi((u_char *) id + 2 * n, 2);
    }

    if (ngx_http_sandbox_store_user(ctx, link.user) != NGX_OK) {
        return NGX_ERROR;
    }

    n = sandbox_store_write_link(&link, bytes);

    if (ngx_http_sandbox_link_mac(slcf, bytes, n, bytes + n) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox: a link could not be signed");
        return NGX_ERROR;
    }

    src.data = bytes;
    src.len = n + NGX_HTTP_SANDBOX_LINK_MAC;

    url->data = ngx_pnalloc(r->pool, 3 * slcf->prefix.len + 16
                                     + ngx_base64_encoded_length(src.len));
    if (url->data == NULL) {
        return NGX_ERROR;
    }

    /* escaped for a URI: no quote and no control is left for JSON */

    p = (u_char *) ngx_escape_uri(url->data, slcf->prefix.data,
                                  slcf->prefix.len, NGX_ESCAPE_URI);

    if (p[-1] != '/') {
        *p++ = '/';
    }

    p = ngx_cpymem(p, "dl/", 3);

    dst.data = p;
    ngx_encode_base64url(&dst, &src);

    url->len = p + dst.len - url->data;

    return NGX_OK;
}


/* by a key that is good for nothing but links of this realm */

static ngx_int_t
ngx_http_sandbox_link_mac(const ngx_http_sandbox_loc_conf_t *slcf,
    const u_char *p, size_t n, u_char *mac)
{
    u_char        key[NGX_HTTP_SANDBOX_LINK_MAC], text[64];
    u_char        digest[NGX_HTTP_SANDBOX_LINK_MAC];
    ngx_int_t     rc;
    unsigned int  len;

    rc = NGX_ERROR;

    ngx_memcpy(text, "sandbox link, of realm ", 23);

    if (slcf->key
        && EVP_Digest(slcf->realm.data, slcf->realm.len, digest, NULL,
                      EVP_sha256(), NULL)
           == 1)
    {
        ngx_memcpy(text + 23, digest, sizeof(digest));

        if (HMAC(EVP_sha256(), slcf->key, SANDBOX_WIRE_KEY_SIZE, text,
                 23 + sizeof(digest), key, &len)
            != NULL
            && HMAC(EVP_sha256(), key, sizeof(key), p, n, mac, &len) != NULL)
        {
            rc = NGX_OK;
        }
    }

    if (rc != NGX_OK) {
        ERR_clear_error();
    }

    OPENSSL_cleanse(key, sizeof(key));

    return rc;
}


ngx_int_t
ngx_http_sandbox_download_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    char                         *id;
    ngx_int_t                     rc;
    ngx_uint_t                    n;
    ngx_str_t                    *root;
    sandbox_store_link_t         *link;
    ngx_http_sandbox_loc_conf_t  *slcf;
    ngx_http_sandbox_store_op_t  *op;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    link = ngx_pcalloc(r->pool, sizeof(sandbox_store_link_t));
    id = ngx_pnalloc(r->pool, SANDBOX_STORE_ID + 1);

    if (link == NULL || id == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (slcf->disabled) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "sandbox_disabled",
                                "The code runtime is switched off here.");
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK
        || ngx_http_sandbox_link_read(r, ctx, link) != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_FILES,
                                   ngx_http_sandbox_download_found);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    root = ngx_http_sandbox_store_name(slcf->store);

    if (sandbox_store_place(&op->place, (char *) root->data,
                            (char *) slcf->realm.data, slcf->realm.len,
                            link->tenant, link->user, link->conversation,
                            link->conversation_len)
        != 0)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    for (n = 0; n < sizeof(link->id); n++) {
        (void) ngx_sprintf((u_char *) id + 2 * n, "%02xd%Z",
                           (ngx_int_t) link->id[n]);
    }

    op->id = id;
    op->data = link;

    /* for the access log */

    ctx->conversation.data = (u_char *) link->conversation;
    ctx->conversation.len = link->conversation_len;

    if (ngx_http_sandbox_store_lookup(op, &ctx->name, 1) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_link_read(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    sandbox_store_link_t *link)
{
    u_char                        mac[NGX_HTTP_SANDBOX_LINK_MAC];
    u_char                        bytes[NGX_HTTP_SANDBOX_LINK_MAX + 3];
    ngx_str_t                     dst;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    dst.data = bytes;
    dst.len = 0;

    if (ctx->name.len > ngx_base64_encoded_length(NGX_HTTP_SANDBOX_LINK_MAX)
        || ngx_decode_base64url(&dst, &ctx->name) != NGX_OK
        || dst.len <= NGX_HTTP_SANDBOX_LINK_MAC)
    {
        goto bad;
    }

    dst.len -= NGX_HTTP_SANDBOX_LINK_MAC;

    if (ngx_http_sandbox_link_mac(slcf, bytes, dst.len, mac) != NGX_OK
        || CRYPTO_memcmp(mac, bytes + dst.len, sizeof(mac)) != 0
        || sandbox_store_read_link(bytes, dst.len, link) != 0)
    {
        goto bad;
    }

    if (link->expires <= (uint64_t) ngx_time()) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SANDBOX_LINK_GONE, "link_expired",
                                "The link was good for a while; ask for "
                                "another one.");
        return NGX_DECLINED;
    }

    return NGX_OK;

bad:

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_FORBIDDEN, "bad_link",
                            "The link is not one that was made here.");

    return NGX_DECLINED;
}


static void
ngx_http_sandbox_download_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    sandbox_store_link_t *link = op->data;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    /* what it was made for, not what came into its place */

    if (ngx_memcmp(link->etag, op->entry.sha256, sizeof(link->etag)) != 0) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SANDBOX_LINK_GONE, "link_expired",
                                "The file has changed since the link was "
                                "made; ask for another one.");
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_serve(r, ctx, op));
}
