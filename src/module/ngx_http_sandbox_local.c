/*
 * The backend "local": sandbox-runner on a unix socket.  One entry of the
 * table of backends; what runs behind the socket is none of its business.
 */

#include "ngx_http_sandbox_egress.h"


static ngx_int_t ngx_http_sandbox_local_init(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *location);
static ngx_http_sandbox_status_e ngx_http_sandbox_local_status(
    const ngx_http_sandbox_loc_conf_t *slcf);
static void ngx_http_sandbox_local_health(
    const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_health_t *health);
static void ngx_http_sandbox_local_preamble(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_preamble_t *preamble);
static void ngx_http_sandbox_local_report(ngx_http_request_t *r,
    ngx_http_sandbox_status_e status, const char *reason);
static ngx_int_t ngx_http_sandbox_local_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_local_ended(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_local_notice(ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *code, ngx_str_t *detail);
static const char *const *ngx_http_sandbox_local_unsupported(
    const ngx_http_sandbox_loc_conf_t *slcf);
static u_char *ngx_http_sandbox_local_limits(u_char *p,
    const ngx_http_sandbox_loc_conf_t *slcf);
static ngx_uint_t ngx_http_sandbox_local_egress(
    const ngx_http_sandbox_loc_conf_t *slcf);


static const ngx_http_sandbox_hooks_t  ngx_http_sandbox_local_hooks = {
    ngx_http_sandbox_local_preamble,
    ngx_http_sandbox_local_report,
    ngx_http_sandbox_local_refused,
    ngx_http_sandbox_local_ended,
    NULL,
    NULL,
    ngx_http_sandbox_local_notice
};


ngx_http_sandbox_backend_t  ngx_http_sandbox_local = {
    ngx_string("local"),
    1,
    ngx_http_sandbox_local_init,
    ngx_http_sandbox_upstream_start,
    ngx_http_sandbox_local_status,
    ngx_http_sandbox_local_health,
    ngx_http_sandbox_local_unsupported,
    ngx_http_sandbox_local_limits,
    &ngx_http_sandbox_local_hooks,
    ngx_http_sandbox_local_egress
};


static ngx_int_t
ngx_http_sandbox_local_init(ngx_conf_t *cf, ngx_http_sandbox_loc_conf_t *slcf,
    ngx_str_t *location)
{
    if (slcf->socket.data == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox\" is on in location \"%V\", but there "
                           "is no \"sandbox_runner\"; add \"sandbox_runner "
                           "unix:/run/sandbox/runner.sock;\"", location);
        return NGX_ERROR;
    }

    if (slcf->key == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox\" is on in location \"%V\", but there "
                           "is no \"sandbox_runner_key\"; add the file of 64 "
                           "hexadecimal digits that sandbox-runner reads",
                           location);
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_runner(cf, slcf, &slcf->socket, slcf->key, 0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_sandbox_runner_upstream(slcf, &slcf->runner->upstream);

    return NGX_OK;
}


void
ngx_http_sandbox_runner_upstream(ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_upstream_srv_conf_t *upstream)
{
    ngx_http_upstream_conf_t  *u;

    u = &slcf->upstream;

    u->upstream = upstream;
    u->connect_timeout = slcf->connect_timeout;
    u->send_timeout = slcf->send_timeout;
    u->read_timeout = SANDBOX_WIRE_READ_TIMEOUT;
    u->buffer_size = 32 * 1024;

    /* the peers of ours say whether there is a second attempt */

    u->next_upstream = NGX_HTTP_UPSTREAM_FT_ERROR
                       |NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT;
    u->next_upstream_tries = 0;
    u->next_upstream_timeout = 0;

    u->hide_headers = NGX_CONF_UNSET_PTR;
    u->pass_headers = NGX_CONF_UNSET_PTR;
    u->intercept_errors = 0;
    u->ignore_client_abort = 0;
    u->buffering = 0;

    ngx_str_set(&u->module, "sandbox");

    /*
     * When the answer is complete, only the client is waited for, and
     * "send_timeout" limits that.
     */

    slcf->answering = *u;
    slcf->answering.read_timeout = 86400 * 1000;
}


ngx_int_t
ngx_http_sandbox_runner(ngx_conf_t *cf, ngx_http_sandbox_loc_conf_t *slcf,
    ngx_str_t *socket, const u_char *key, ngx_uint_t engines)
{
    ngx_url_t                    u;
    ngx_uint_t                   i;
    ngx_http_sandbox_runner_t  **runners, *runner;

    runners = slcf->main->runners.elts;

    for (i = 0; i < slcf->main->runners.nelts; i++) {

        if (runners[i]->name.len == socket->len
            && ngx_strncmp(runners[i]->name.data, socket->data, socket->len)
               == 0
            && ngx_memcmp(runners[i]->key, key, SANDBOX_WIRE_KEY_SIZE) == 0)
        {
            if (runners[i]->engines != engines) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "\"%V\" in \"sandbox_runner\" directive "
                                   "can't be of backend \"local\" in one "
                                   "location and of \"dagger\" in another: "
                                   "these are two daemons, each with a socket "
                                   "of its own", socket);
                return NGX_ERROR;
            }

            goto found;
        }
    }

    if (i == NGX_HTTP_SANDBOX_MAX_RUNNERS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many runners, \"%V\" would be the %ui.",
                           socket, i + 1);
        return NGX_ERROR;
    }

    runner = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_runner_t));
    if (runner == NULL) {
        return NGX_ERROR;
    }

    runner->name = *socket;
    runner->path.data = socket->data + 5;
    runner->path.len = socket->len - 5;
    runner->zone = &slcf->main->zone;
    runner->engines = engines;
    ngx_memcpy(runner->key, key, SANDBOX_WIRE_KEY_SIZE);

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *socket;
    u.no_resolve = 1;

    /* "sandbox_runner" has looked at it */

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        return NGX_ERROR;
    }

    runner->addr = u.addrs[0];

    /*
     * A copy with peers of our own; others may use the same upstream.  The
     * upstream module comes first, so its init_main_conf has run by now.
     */

    if (!engines) {
        runner->origin = slcf->origin;
        runner->upstream = *slcf->origin;
        runner->upstream.peer.init = ngx_http_sandbox_upstream_init_peer;
    }

    runners = ngx_array_push(&slcf->main->runners);
    if (runners == NULL) {
        return NGX_ERROR;
    }

    *runners = runner;

    i = slcf->main->runners.nelts - 1;
    runners = slcf->main->runners.elts;

found:

    slcf->runner = runners[i];
    slcf->runner->wall_time = ngx_max(slcf->runner->wall_time,
                                      slcf->caps.wall_time);

    return NGX_OK;
}


static ngx_http_sandbox_status_e
ngx_http_sandbox_local_status(const ngx_http_sandbox_loc_conf_t *slcf)
{
    return ngx_http_sandbox_slot_status(slcf->runner);
}


static void
ngx_http_sandbox_local_health(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_health_t *health)
{
    ngx_http_sandbox_slot_read(slcf->runner, health);
}


/* it does all that there is */

static const char *const *
ngx_http_sandbox_local_unsupported(const ngx_http_sandbox_loc_conf_t *slcf)
{
    static const char *const  none[] = { NULL };

    return none;
}


static u_char *
ngx_http_sandbox_local_limits(u_char *p,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    return ngx_sprintf(p, ",\"route\":null,\"engines\":null");
}


static void
ngx_http_sandbox_local_preamble(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_preamble_t *preamble)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    preamble->base = (uint16_t) slcf->base_number;
    ngx_memcpy(preamble->key, slcf->runner->key, SANDBOX_WIRE_KEY_SIZE);
}


static void
ngx_http_sandbox_local_report(ngx_http_request_t *r,
    ngx_http_sandbox_status_e status, const char *reason)
{
    ngx_http_sandbox_health_t     health;
    ngx_http_sandbox_status_e     before;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    before = ngx_http_sandbox_slot_status(slcf->runner);

    if (before == status) {
        return;
    }

    ngx_memzero(&health, sizeof(ngx_http_sandbox_health_t));

    health.status = status;
    health.reason.data = (u_char *) reason;
    health.reason.len = ngx_strlen(reason);

    ngx_http_sandbox_slot_write(slcf->runner, &health, 0);

    /* why one is unreachable was told by who has met it */

    if (before == NGX_HTTP_SANDBOX_UNREACHABLE) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "sandbox runner \"%V\" is %s", &slcf->runner->name,
                      ngx_http_sandbox_status_name(status));
    }
}


/* what a runner refuses, it would refuse again */

static ngx_int_t
ngx_http_sandbox_local_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return NGX_DECLINED;
}


static void
ngx_http_sandbox_local_ended(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sandbox operation ended");
}


static ngx_int_t
ngx_http_sandbox_local_notice(ngx_http_sandbox_ctx_t *ctx, ngx_str_t *code,
    ngx_str_t *detail)
{
    return NGX_DECLINED;
}


/* a sandbox has no way out but the listener inside */

static ngx_uint_t
ngx_http_sandbox_local_egress(const ngx_http_sandbox_loc_conf_t *slcf)
{
    return NGX_HTTP_SANDBOX_EGRESS_HARD
           | (slcf->runner && ngx_http_sandbox_slot_egress(slcf->runner, NULL)
              ? NGX_HTTP_SANDBOX_EGRESS_IN_FORCE : 0);
}
