/*
 * The backend "local": sandbox-runner on a unix socket.  One entry of the
 * table of backends; what runs behind the socket is none of its business.
 */

#include "ngx_http_sandbox.h"


static ngx_int_t ngx_http_sandbox_local_init(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *location);
static ngx_int_t ngx_http_sandbox_local_runner(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf);
static ngx_http_sandbox_status_e ngx_http_sandbox_local_status(
    const ngx_http_sandbox_loc_conf_t *slcf);
static void ngx_http_sandbox_local_health(
    const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_health_t *health);


/* it does all that there is */

static const char *const  ngx_http_sandbox_local_unsupported[] = {
    NULL
};


ngx_http_sandbox_backend_t  ngx_http_sandbox_local = {
    ngx_string("local"),
    ngx_http_sandbox_local_init,
    ngx_http_sandbox_upstream_start,
    ngx_http_sandbox_local_status,
    ngx_http_sandbox_local_health,
    ngx_http_sandbox_local_unsupported
};


static ngx_int_t
ngx_http_sandbox_local_init(ngx_conf_t *cf, ngx_http_sandbox_loc_conf_t *slcf,
    ngx_str_t *location)
{
    ngx_http_upstream_conf_t  *u;

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

    if (ngx_http_sandbox_local_runner(cf, slcf) != NGX_OK) {
        return NGX_ERROR;
    }

    slcf->runner->wall_time = ngx_max(slcf->runner->wall_time,
                                      slcf->caps.wall_time);

    u = &slcf->upstream;

    u->upstream = &slcf->runner->upstream;
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

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_local_runner(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_uint_t                   i;
    ngx_http_sandbox_runner_t  **runners, *runner;

    runners = slcf->main->runners.elts;

    for (i = 0; i < slcf->main->runners.nelts; i++) {

        if (runners[i]->name.len == slcf->socket.len
            && ngx_strncmp(runners[i]->name.data, slcf->socket.data,
                           slcf->socket.len)
               == 0
            && ngx_memcmp(runners[i]->key, slcf->key, SANDBOX_WIRE_KEY_SIZE)
               == 0)
        {
            slcf->runner = runners[i];
            return NGX_OK;
        }
    }

    if (i == NGX_HTTP_SANDBOX_MAX_RUNNERS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many runners, \"%V\" would be the %ui.",
                           &slcf->socket, i + 1);
        return NGX_ERROR;
    }

    runner = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_runner_t));
    if (runner == NULL) {
        return NGX_ERROR;
    }

    runner->name = slcf->socket;
    runner->path.data = slcf->socket.data + 5;
    runner->path.len = slcf->socket.len - 5;
    runner->zone = &slcf->main->zone;
    runner->origin = slcf->origin;
    ngx_memcpy(runner->key, slcf->key, SANDBOX_WIRE_KEY_SIZE);

    runner->addr = ((ngx_http_upstream_server_t *)
                    slcf->origin->servers->elts)->addrs[0];

    /*
     * A copy with peers of our own; others may use the same upstream.  The
     * upstream module comes first, so its init_main_conf has run by now.
     */

    runner->upstream = *slcf->origin;
    runner->upstream.peer.init = ngx_http_sandbox_upstream_init_peer;

    runners = ngx_array_push(&slcf->main->runners);
    if (runners == NULL) {
        return NGX_ERROR;
    }

    *runners = runner;
    slcf->runner = runner;

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
