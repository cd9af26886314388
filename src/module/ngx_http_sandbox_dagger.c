/*
 * The backend "dagger": engines that run the agent as a service.  One entry
 * of the table of backends: what a location needs for it, and how it is.  How
 * an operation gets to its agent is none of its business.
 */

#include "ngx_http_sandbox_dagger.h"


static ngx_int_t ngx_http_sandbox_dagger_init(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *location);
static ngx_http_sandbox_status_e ngx_http_sandbox_dagger_status(
    const ngx_http_sandbox_loc_conf_t *slcf);
static void ngx_http_sandbox_dagger_health(
    const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_health_t *health);
static ngx_uint_t ngx_http_sandbox_dagger_count(
    const ngx_http_sandbox_loc_conf_t *slcf, ngx_uint_t *reached);
static const char *const *ngx_http_sandbox_dagger_unsupported(
    const ngx_http_sandbox_loc_conf_t *slcf);
static u_char *ngx_http_sandbox_dagger_limits(u_char *p,
    const ngx_http_sandbox_loc_conf_t *slcf);


ngx_http_sandbox_backend_t  ngx_http_sandbox_dagger = {
    ngx_string("dagger"),
    0,
    ngx_http_sandbox_dagger_init,
    ngx_http_sandbox_dagger_start,
    ngx_http_sandbox_dagger_status,
    ngx_http_sandbox_dagger_health,
    ngx_http_sandbox_dagger_unsupported,
    ngx_http_sandbox_dagger_limits,
    &ngx_http_sandbox_dagger_hooks,
    ngx_http_sandbox_dagger_egress_state
};


static ngx_int_t
ngx_http_sandbox_dagger_init(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *location)
{
    ngx_uint_t                      i;
    ngx_http_sandbox_dagger_t      *dagger;
    ngx_http_sandbox_engine_t     **engine;

    dagger = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_dagger_t));
    if (dagger == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_dagger_settle(cf, slcf, dagger, location) != NGX_OK
        || ngx_http_sandbox_dagger_owner(cf, slcf, location) != NGX_OK)
    {
        return NGX_ERROR;
    }

    engine = dagger->engines->elts;

    for (i = 0; i < dagger->engines->nelts; i++) {

        if (engine[i]->owner && engine[i]->owner != slcf->runner) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "engine \"%V\" of location \"%V\" has another "
                               "\"sandbox_runner\" or \"sandbox_runner_key\" "
                               "elsewhere: one \"sandbox-runner --dagger\" "
                               "holds the session of an engine",
                               &engine[i]->name, location);
            return NGX_ERROR;
        }

        engine[i]->owner = slcf->runner;
    }

    /* peers of ours, whose addresses come with each request */

    ngx_str_set(&dagger->upstream.host, "sandbox_agents");
    dagger->upstream.peer.init = ngx_http_sandbox_dagger_init_peer;

    ngx_http_sandbox_runner_upstream(slcf, &dagger->upstream);

    slcf->dagger = dagger;

    return NGX_OK;
}


/* any engine is enough: conversations of others wait, or move */

static ngx_http_sandbox_status_e
ngx_http_sandbox_dagger_status(const ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_uint_t                   i;
    ngx_array_t                 *engines;
    ngx_http_sandbox_engine_t  **engine;

    engines = slcf->dagger->engines;
    engine = engines->elts;

    for (i = 0; i < engines->nelts; i++) {
        if (ngx_http_sandbox_engine_ready(&slcf->main->zone, engine[i])) {
            return NGX_HTTP_SANDBOX_READY;
        }
    }

    return ngx_http_sandbox_slot_status(slcf->runner)
           == NGX_HTTP_SANDBOX_INITIALIZING ? NGX_HTTP_SANDBOX_INITIALIZING
                                            : NGX_HTTP_SANDBOX_UNREACHABLE;
}


static void
ngx_http_sandbox_dagger_health(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_health_t *health)
{
    u_char                      *p, *last;
    size_t                       n;
    ngx_array_t                 *engines;
    ngx_http_sandbox_engine_t  **engine;
    u_char                       reason[NGX_HTTP_SANDBOX_MAX_REASON];

    ngx_http_sandbox_slot_read(slcf->runner, health);

    engines = slcf->dagger->engines;
    engine = engines->elts;

    /*
     * The agent counts the CPU time of the whole tree, and without a policy
     * makes no internet socket; with one the egress says how hard that is.
     */

    health->hard_caps = SANDBOX_CAP_CPU|SANDBOX_CAP_NETWORK;

    if (health->status == NGX_HTTP_SANDBOX_READY) {
        health->reason.len = 0;
    }

    health->status = ngx_http_sandbox_dagger_status(slcf);

    if (health->status == NGX_HTTP_SANDBOX_READY) {
        health->reason.len = 0;
        return;
    }

    if (health->status == NGX_HTTP_SANDBOX_INITIALIZING
        || health->reason.len)
    {
        return;
    }

    /* the owner is there, so it has told of each of them */

    n = ngx_http_sandbox_engine_reason(&slcf->main->zone, engine[0], reason);

    last = health->reason_data + NGX_HTTP_SANDBOX_MAX_REASON;

    p = ngx_slprintf(health->reason_data, last,
                     engines->nelts == 1
                     ? "the engine is not ready%s%*s"
                     : "no engine is ready, the first of them%s%*s",
                     n ? ": " : "", n, reason);

    health->reason.data = health->reason_data;
    health->reason.len = sandbox_utf8_head(health->reason_data,
                                           p - health->reason_data);
}


/* how many are ready, and of these those whose containers were reached */

static ngx_uint_t
ngx_http_sandbox_dagger_count(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_uint_t *reached)
{
    ngx_uint_t                   i, ready;
    ngx_array_t                 *engines;
    ngx_http_sandbox_engine_t  **engine;

    engines = slcf->dagger->engines;
    engine = engines->elts;

    ready = 0;
    *reached = 0;

    for (i = 0; i < engines->nelts; i++) {

        if (ngx_http_sandbox_engine_ready(&slcf->main->zone, engine[i])) {
            ready++;
            *reached += ngx_http_sandbox_engine_reached(&slcf->main->zone,
                                                        engine[i]);
        }
    }

    return ready;
}


/* what some conversation may not have, as its engine is out of reach */

static const char *const *
ngx_http_sandbox_dagger_unsupported(const ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_uint_t  ready, reached;

    static const char *const  none[] = { NULL };
    static const char *const  exec[] = {
        "stream", "stdin", "background", "resume", NULL
    };

    if (slcf->dagger == NULL) {
        return none;
    }

    ready = ngx_http_sandbox_dagger_count(slcf, &reached);

    return reached < ready ? exec : none;
}


static u_char *
ngx_http_sandbox_dagger_limits(u_char *p,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_uint_t   ready, reached;
    const char  *route;

    if (slcf->dagger == NULL) {
        return ngx_sprintf(p, ",\"route\":null,\"engines\":null");
    }

    ready = ngx_http_sandbox_dagger_count(slcf, &reached);

    route = (ready == 0) ? "null"
            : (reached == ready) ? "\"service\""
            : reached ? "\"mixed\"" : "\"exec\"";

    return ngx_sprintf(p, ",\"route\":%s,\"engines\":{\"ready\":%ui"
                       ",\"total\":%ui}", route, ready,
                       slcf->dagger->engines->nelts);
}
