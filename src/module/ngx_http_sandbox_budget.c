/*
 * One tenant must not take all of a worker's memory, nor of its descriptors,
 * by answers that nobody reads, bodies that come slowly, and sandboxes that do
 * not take what they asked for.  Of this process only; knows no operation.
 */

#include "ngx_http_sandbox_budget.h"

#include <sys/resource.h>


/* of the largest body and answer: so many for a tenant, and for all of them */

#define NGX_HTTP_SANDBOX_BUDGET_TENANT  4
#define NGX_HTTP_SANDBOX_BUDGET_ALL     16

/* each byte of output may become six in JSON, there are two streams */

#define NGX_HTTP_SANDBOX_BUDGET_OUTPUT  12

/* of the files that a worker may have open, one in so many */

#define NGX_HTTP_SANDBOX_BUDGET_SHARE   4

#define NGX_HTTP_SANDBOX_BUDGET_QUIET   60       /* s between two lines */
#define NGX_HTTP_SANDBOX_BUDGET_HASH    251


typedef struct ngx_http_sandbox_tenant_s  ngx_http_sandbox_tenant_t;


struct ngx_http_sandbox_tenant_s {
    ngx_http_sandbox_tenant_t     *next;
    u_char                         digest[SANDBOX_WIRE_TENANT_SIZE];
    ngx_uint_t                     requests;     /* that hold something */
    ngx_uint_t                     files;
    size_t                         bytes;
};


struct ngx_http_sandbox_share_s {
    ngx_http_sandbox_tenant_t     *tenant;
    ngx_uint_t                     files;
    size_t                         bytes;
};


static ngx_http_sandbox_share_t *ngx_http_sandbox_budget_share(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);
static ngx_http_sandbox_tenant_t **ngx_http_sandbox_budget_find(
    const u_char *digest);
static void ngx_http_sandbox_budget_cleanup(void *data);
static size_t ngx_http_sandbox_budget_largest(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_budget_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t own);
static ngx_uint_t ngx_http_sandbox_budget_loud(void);


static ngx_http_sandbox_tenant_t
    *ngx_http_sandbox_tenants[NGX_HTTP_SANDBOX_BUDGET_HASH];

static size_t      ngx_http_sandbox_budget_bytes;        /* of all */
static ngx_uint_t  ngx_http_sandbox_budget_open;
static time_t      ngx_http_sandbox_budget_logged;


ngx_int_t
ngx_http_sandbox_budget_enter(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return ngx_http_sandbox_budget_take(r, ctx, 0);
}


ngx_int_t
ngx_http_sandbox_budget_take(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t n)
{
    size_t                     largest;
    ngx_http_sandbox_share_t  *share;

    share = ngx_http_sandbox_budget_share(r, ctx);
    if (share == NULL) {
        return NGX_ERROR;
    }

    largest = ngx_http_sandbox_budget_largest(r);

    if (share->tenant->bytes + n > NGX_HTTP_SANDBOX_BUDGET_TENANT * largest) {
        return ngx_http_sandbox_budget_refuse(r, ctx, 1);
    }

    if (ngx_http_sandbox_budget_bytes + n
        > NGX_HTTP_SANDBOX_BUDGET_ALL * largest)
    {
        return ngx_http_sandbox_budget_refuse(r, ctx, 0);
    }

    ngx_http_sandbox_budget_add(ctx, n);

    return NGX_OK;
}


void
ngx_http_sandbox_budget_add(ngx_http_sandbox_ctx_t *ctx, size_t n)
{
    if (ctx->share) {
        ctx->share->bytes += n;
        ctx->share->tenant->bytes += n;
        ngx_http_sandbox_budget_bytes += n;
    }
}


void
ngx_http_sandbox_budget_give(ngx_http_sandbox_ctx_t *ctx, size_t n)
{
    if (ctx->share) {
        n = ngx_min(n, ctx->share->bytes);

        ctx->share->bytes -= n;
        ctx->share->tenant->bytes -= n;
        ngx_http_sandbox_budget_bytes -= n;
    }
}


ngx_int_t
ngx_http_sandbox_budget_files(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t n)
{
    rlim_t                      most;
    ngx_uint_t                  own;
    struct rlimit               limit;
    ngx_http_sandbox_share_t   *share;
    ngx_http_sandbox_tenant_t  *tenant;

    share = ngx_http_sandbox_budget_share(r, ctx);
    if (share == NULL) {
        return NGX_ERROR;
    }

    tenant = share->tenant;

    ngx_http_sandbox_budget_open -= share->files;
    tenant->files -= share->files;
    share->files = 0;

    if (n == 0) {
        return NGX_OK;
    }

    /* each of two tenants can have the most that a command may name */

    most = 2 * SANDBOX_WIRE_MAX_STAGED;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0
        && limit.rlim_cur / NGX_HTTP_SANDBOX_BUDGET_SHARE > most)
    {
        most = limit.rlim_cur / NGX_HTTP_SANDBOX_BUDGET_SHARE;
    }

    own = (tenant->files + n > most / 2);

    if (!own && ngx_http_sandbox_budget_open + n <= most) {
        share->files = n;
        tenant->files += n;
        ngx_http_sandbox_budget_open += n;

        return NGX_OK;
    }

    if (ngx_http_sandbox_budget_loud()) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox: %ui attachments are open to be brought to "
                      "sandboxes, %ui of one tenant; no more are opened: "
                      "raise \"worker_rlimit_nofile\", of which they get a "
                      "quarter, and a tenant half of that",
                      ngx_http_sandbox_budget_open, tenant->files);
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE, "at_capacity",
                            own ? "Too many attachments of this tenant are on "
                                  "their way to sandboxes; nothing was "
                                  "started."
                                : "Too many attachments are on their way to "
                                  "sandboxes; nothing was started.");
    ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;

    return NGX_DECLINED;
}


static ngx_http_sandbox_share_t *
ngx_http_sandbox_budget_share(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                      digest[SANDBOX_WIRE_TENANT_SIZE];
    ngx_pool_cleanup_t         *cln;
    ngx_http_sandbox_tenant_t  *tenant, **place;

    if (ctx->share) {
        return ctx->share;
    }

    if (ngx_http_sandbox_tenant_digest(r, ctx, digest) != NGX_OK) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_share_t));
    if (cln == NULL) {
        return NULL;
    }

    place = ngx_http_sandbox_budget_find(digest);

    if (*place == NULL) {
        tenant = ngx_calloc(sizeof(ngx_http_sandbox_tenant_t),
                            r->connection->log);
        if (tenant == NULL) {
            return NULL;
        }

        ngx_memcpy(tenant->digest, digest, SANDBOX_WIRE_TENANT_SIZE);
        *place = tenant;
    }

    ctx->share = cln->data;
    ngx_memzero(ctx->share, sizeof(ngx_http_sandbox_share_t));

    ctx->share->tenant = *place;
    ctx->share->tenant->requests++;

    cln->handler = ngx_http_sandbox_budget_cleanup;

    return ctx->share;
}


/* where it is, or where it would be put */

static ngx_http_sandbox_tenant_t **
ngx_http_sandbox_budget_find(const u_char *digest)
{
    ngx_uint_t                   i;
    ngx_http_sandbox_tenant_t  **place;

    i = (digest[0] << 8 | digest[1]) % NGX_HTTP_SANDBOX_BUDGET_HASH;

    for (place = &ngx_http_sandbox_tenants[i]; *place; place = &(*place)->next)
    {
        if (ngx_memcmp((*place)->digest, digest, SANDBOX_WIRE_TENANT_SIZE)
            == 0)
        {
            break;
        }
    }

    return place;
}


static void
ngx_http_sandbox_budget_cleanup(void *data)
{
    ngx_http_sandbox_share_t *share = data;

    ngx_http_sandbox_tenant_t  *tenant, **place;

    tenant = share->tenant;

    ngx_http_sandbox_budget_bytes -= share->bytes;
    ngx_http_sandbox_budget_open -= share->files;
    tenant->bytes -= share->bytes;
    tenant->files -= share->files;

    if (--tenant->requests == 0) {
        place = ngx_http_sandbox_budget_find(tenant->digest);
        *place = tenant->next;
        ngx_free(tenant);
    }
}


static size_t
ngx_http_sandbox_budget_largest(ngx_http_request_t *r)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    return ngx_http_sandbox_max_body(slcf)
           + NGX_HTTP_SANDBOX_BUDGET_OUTPUT * (size_t) slcf->caps.output;
}


static ngx_int_t
ngx_http_sandbox_budget_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t own)
{
    if (own) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_TOO_MANY_REQUESTS,
                                "too_many_pending",
                                "Requests of this tenant that are still on "
                                "their way, and answers that are not read, "
                                "have all the memory that they may have.");

    } else {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "at_capacity",
                                "Requests that are still on their way, and "
                                "answers that are not read, have all the "
                                "memory that they may have.");

        if (ngx_http_sandbox_budget_loud()) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "sandbox: requests and answers hold %uz bytes of "
                          "this worker, no more are taken: \"limit_conn\" "
                          "bounds how many there are of one caller",
                          ngx_http_sandbox_budget_bytes);
        }
    }

    ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_sandbox_budget_loud(void)
{
    if (ngx_time() - ngx_http_sandbox_budget_logged
        < NGX_HTTP_SANDBOX_BUDGET_QUIET)
    {
        return 0;
    }

    ngx_http_sandbox_budget_logged = ngx_time();

    return 1;
}
