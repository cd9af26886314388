/*
 * An operation on its way to an engine: which one, whether its agent is known,
 * what to do when one of both does not answer.  Each wait has a deadline, and
 * ends with the request.  Knows no GraphQL, no socket.
 */

#include "ngx_http_sandbox_dagger_start.h"


/* ms */

#define NGX_HTTP_SANDBOX_DAGGER_WAIT     3000    /* for an engine, in all */
#define NGX_HTTP_SANDBOX_DAGGER_DOUBT    1000    /* that an engine is another */
#define NGX_HTTP_SANDBOX_DAGGER_LOOK     50
#define NGX_HTTP_SANDBOX_DAGGER_LOOKS    400     /* at most */
#define NGX_HTTP_SANDBOX_DAGGER_ANSWERS  2       /* one may be of before */
#define NGX_HTTP_SANDBOX_DAGGER_COMING   12000   /* an agent, after its start */
#define NGX_HTTP_SANDBOX_DAGGER_PAUSE    10

/* an agent that is given up is one, the question for another one too */

#define NGX_HTTP_SANDBOX_DAGGER_ATTEMPTS 6

#define NGX_HTTP_SANDBOX_DAGGER_QUIET    60      /* seconds, after the longest
                                                    command */


static void ngx_http_sandbox_dagger_cleanup(void *data);
static const ngx_http_sandbox_engine_t *ngx_http_sandbox_dagger_engine(
    ngx_http_sandbox_session_t *s, ngx_uint_t number);
static const ngx_http_sandbox_engine_t *ngx_http_sandbox_dagger_hash(
    ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_dagger_go(ngx_http_sandbox_session_t *s);
static ngx_uint_t ngx_http_sandbox_dagger_direct(
    ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_dagger_wait(ngx_http_sandbox_session_t *s,
    const ngx_http_sandbox_engine_t *engine);
static ngx_int_t ngx_http_sandbox_dagger_ask(ngx_http_sandbox_session_t *s);
static void ngx_http_sandbox_dagger_volumes(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q);
static void ngx_http_sandbox_dagger_service(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q);
static ngx_int_t ngx_http_sandbox_dagger_answered(
    ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_dagger_started(
    ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_dagger_changed(
    ngx_http_sandbox_session_t *s);
static ngx_uint_t ngx_http_sandbox_dagger_doubts(
    const ngx_http_sandbox_session_t *s,
    const ngx_http_sandbox_engine_state_t *now);
static ngx_int_t ngx_http_sandbox_dagger_failed(ngx_http_sandbox_session_t *s,
    const char *what);
static void ngx_http_sandbox_dagger_event(ngx_event_t *ev);
static void ngx_http_sandbox_dagger_finish(ngx_http_sandbox_session_t *s,
    ngx_int_t rc);


ngx_int_t
ngx_http_sandbox_dagger_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_session_t  *s;

    s = ngx_http_sandbox_dagger_session(r, ctx);
    if (s == NULL) {
        return NGX_ERROR;
    }

    /* what was sent before has been answered */

    ngx_http_sandbox_upstream_leave(r);

    if (ctx->wire.operation == SANDBOX_OPERATION_COMMAND && !s->running) {

        if (ngx_http_sandbox_run_take(s->zone) != NGX_OK) {
            return ngx_http_sandbox_dagger_refuse(s,
                                              NGX_HTTP_SERVICE_UNAVAILABLE,
                                              "too_many_running",
                                              "As many commands run as may "
                                              "at a time; nothing was "
                                              "started.");
        }

        s->running = 1;
    }

    s->attempts = 0;
    s->sends = 0;
    s->fresh |= ((ctx->wire.flags & SANDBOX_FLAG_FRESH) != 0);

    if (s->fresh || ctx->wire.operation == SANDBOX_OPERATION_RESET) {
        ngx_http_sandbox_agent_change(s->zone, ctx->session,
                                      NGX_HTTP_SANDBOX_AGENT_FRESH, &s->agent);
    }

    s->until = ngx_current_msec + NGX_HTTP_SANDBOX_DAGGER_WAIT;

    return ngx_http_sandbox_dagger_choose(s);
}


/* one for a request, whatever it starts after another */

ngx_http_sandbox_session_t *
ngx_http_sandbox_dagger_session(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_cleanup_t            *cln;
    ngx_http_sandbox_session_t    *s;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ctx->dagger) {
        return ctx->dagger;
    }

    s = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_session_t));
    cln = s ? ngx_http_cleanup_add(r, 0) : NULL;

    if (cln == NULL) {
        return NULL;
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    s->request = r;
    s->ctx = ctx;
    s->zone = &smcf->zone;
    s->event.handler = ngx_http_sandbox_dagger_event;
    s->event.data = s;
    s->event.log = r->connection->log;

    cln->handler = ngx_http_sandbox_dagger_cleanup;
    cln->data = s;

    ctx->dagger = s;

    return s;
}


static void
ngx_http_sandbox_dagger_cleanup(void *data)
{
    ngx_http_sandbox_session_t *s = data;

    ngx_http_sandbox_peer_cancel(s);
    ngx_http_sandbox_dagger_give(s);
}


/* the engine that has its files, else the first of those that are ready */

ngx_int_t
ngx_http_sandbox_dagger_choose(ngx_http_sandbox_session_t *s)
{
    ngx_uint_t                        known;
    ngx_http_sandbox_loc_conf_t      *slcf;
    const ngx_http_sandbox_engine_t  *engine, *other;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    known = (ngx_http_sandbox_agent_find(s->zone, s->ctx->session, &s->agent,
                                         1)
             == NGX_OK);

    if (!known) {

        if (slcf->store && s->ctx->conversation.len && s->record == NULL) {
            return ngx_http_sandbox_dagger_watch(s) == NGX_OK
                   ? ngx_http_sandbox_record_read(s) : NGX_ERROR;
        }

        s->agent = s->found;
        known = s->recorded;
    }

    engine = known ? ngx_http_sandbox_dagger_engine(s, s->agent.engine)
                   : NULL;

    if (engine) {
        ngx_http_sandbox_engine_read(s->zone, engine, &s->state);

        if (s->state.ready) {
            s->engine = engine;
            return ngx_http_sandbox_dagger_go(s);
        }

        if (ngx_current_msec - s->state.since < slcf->dagger->move) {
            return ngx_http_sandbox_dagger_wait(s, engine);
        }
    }

    other = ngx_http_sandbox_dagger_hash(s);

    if (other == NULL) {
        return ngx_http_sandbox_dagger_wait(s, NULL);
    }

    if (known) {

        /* or it is not configured any more */

        if (engine) {
            ngx_http_sandbox_engine_count(s->zone, engine,
                                          NGX_HTTP_SANDBOX_ENGINE_MOVES);
        }

        ngx_log_error(NGX_LOG_WARN, s->request->connection->log, 0,
                      "sandbox: a conversation moves to engine \"%V\", its "
                      "own is gone, and its files with it", &other->name);

        s->agent.lost = NGX_HTTP_SANDBOX_MOVED;
        s->agent.instance = 0;
        s->agent.stored = 0;
        s->agent.address = 0;
    }

    ngx_http_sandbox_engine_read(s->zone, other, &s->state);

    if (!s->state.ready) {
        return ngx_http_sandbox_dagger_wait(s, NULL);
    }

    s->engine = other;

    return ngx_http_sandbox_dagger_go(s);
}


static const ngx_http_sandbox_engine_t *
ngx_http_sandbox_dagger_engine(ngx_http_sandbox_session_t *s,
    ngx_uint_t number)
{
    ngx_uint_t                     i;
    ngx_http_sandbox_engine_t    **engines;
    ngx_http_sandbox_loc_conf_t   *slcf;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);
    engines = slcf->dagger->engines->elts;

    for (i = 0; i < slcf->dagger->engines->nelts; i++) {
        if (engines[i]->number == number) {
            return engines[i];
        }
    }

    return NULL;
}


/* rendezvous: an engine that goes or comes changes none of the others' */

static const ngx_http_sandbox_engine_t *
ngx_http_sandbox_dagger_hash(ngx_http_sandbox_session_t *s)
{
    u_char                        text[SANDBOX_WIRE_SESSION_SIZE
                                       + NGX_HTTP_SANDBOX_ENGINE_NAME];
    uint32_t                      hash, most;
    ngx_str_t                    *name;
    ngx_uint_t                    i;
    ngx_http_sandbox_engine_t   **engines, *best;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);
    engines = slcf->dagger->engines->elts;

    ngx_memcpy(text, s->ctx->session, SANDBOX_WIRE_SESSION_SIZE);

    best = NULL;
    most = 0;

    for (i = 0; i < slcf->dagger->engines->nelts; i++) {

        if (!ngx_http_sandbox_engine_ready(s->zone, engines[i])) {
            continue;
        }

        name = &engines[i]->name;
        ngx_memcpy(text + SANDBOX_WIRE_SESSION_SIZE, name->data, name->len);

        hash = ngx_murmur_hash2(text, SANDBOX_WIRE_SESSION_SIZE + name->len);

        if (best == NULL || hash > most) {
            best = engines[i];
            most = hash;
        }
    }

    return best;
}


/* straight to the agent, if it is where the zone has it */

static ngx_int_t
ngx_http_sandbox_dagger_go(ngx_http_sandbox_session_t *s)
{
    ngx_int_t                     rc;
    uint32_t                      definition;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    definition = slcf->dagger->image_hash ^ (uint32_t) s->engine->isolated;

    if (s->agent.lost) {
        s->lost = s->agent.lost;
    }

    rc = ngx_http_sandbox_dagger_egress(s->request, s->ctx, s->engine,
                                        &s->state.proxy);

    if (rc == NGX_DECLINED) {
        return ngx_http_sandbox_dagger_refuse(s,
                                         NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                         "body_too_large",
                                         "Command and environment are too "
                                         "large together with what the "
                                         "egress policy adds.");
    }

    if (rc != NGX_OK
        || ngx_http_sandbox_ask_secret(s) != NGX_OK
        || ngx_http_sandbox_dagger_watch(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (s->agent.address
        && s->agent.engine == s->engine->number
        && s->agent.generation == s->state.generation
        && s->agent.definition == definition)
    {
        s->cached = 1;
        s->near = 1;
        s->exec = 0;
        return ngx_http_sandbox_peer_connect(s);
    }

    s->exec = !ngx_http_sandbox_dagger_direct(s);

    s->agent.engine = s->engine->number;
    s->agent.generation = s->state.generation;
    s->agent.definition = definition;
    s->agent.address = 0;

    return ngx_http_sandbox_dagger_ask(s);
}


/*
 * An engine whose containers are out of reach is tried again by and by, but
 * not by a session that something may run in: two ways to it exclude another.
 */

static ngx_uint_t
ngx_http_sandbox_dagger_direct(ngx_http_sandbox_session_t *s)
{
    ngx_uint_t                    reached, busy;
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (s->engine->resolver == NULL) {
        return 0;
    }

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    reached = ngx_http_sandbox_engine_reached(s->zone, s->engine);
    busy = (ngx_time() - s->agent.used
            <= (time_t) (slcf->caps.wall_time / 1000)
               + NGX_HTTP_SANDBOX_DAGGER_QUIET);

    if (reached || busy) {
        return reached && !(busy && s->agent.exec);
    }

    return ngx_http_sandbox_engine_direct(s->zone, s->engine);
}


/*
 * Not ready: an engine whose session has just been lost is back in a moment.
 * engine NULL: none of them is.
 */

static ngx_int_t
ngx_http_sandbox_dagger_wait(ngx_http_sandbox_session_t *s,
    const ngx_http_sandbox_engine_t *engine)
{
    ngx_msec_t                    gone;
    ngx_uint_t                    starting;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    ngx_http_sandbox_engines_doubt(s->zone);

    starting = (slcf->backend->status(slcf) == NGX_HTTP_SANDBOX_INITIALIZING);
    gone = engine ? ngx_current_msec - s->state.since
                  : NGX_HTTP_SANDBOX_DAGGER_WAIT;

    if ((starting || gone < NGX_HTTP_SANDBOX_DAGGER_WAIT)
        && (ngx_msec_int_t) (s->until - ngx_current_msec) > 0)
    {
        if (ngx_http_sandbox_dagger_watch(s) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_http_sandbox_dagger_later(s, NGX_HTTP_SANDBOX_DAGGER_LOOK,
                                      ngx_http_sandbox_dagger_choose);
        return NGX_OK;
    }

    if (engine) {
        return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_SERVICE_UNAVAILABLE,
                                              "engine_unreachable",
                                              "The engine that has the files "
                                              "of this conversation does not "
                                              "answer; nothing was started.");
    }

    return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_SERVICE_UNAVAILABLE,
                                          "runner_unreachable",
                                          "No engine for sandboxes is ready; "
                                          "nothing was started. \"reason\" "
                                          "of v1/limits says why; try again.");
}


static ngx_int_t
ngx_http_sandbox_dagger_ask(ngx_http_sandbox_session_t *s)
{
    if (s->attempts++ >= NGX_HTTP_SANDBOX_DAGGER_ATTEMPTS) {
        return ngx_http_sandbox_dagger_failed(s, "agents that it starts end "
                                                 "at once");
    }

    s->cached = 0;
    s->coming = 0;

    return ngx_http_sandbox_ask_volumes(s, ngx_http_sandbox_dagger_volumes);
}


static void
ngx_http_sandbox_dagger_volumes(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q)
{
    ngx_http_sandbox_dagger_run(q->data, ngx_http_sandbox_dagger_answered);
}


static void
ngx_http_sandbox_dagger_service(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q)
{
    ngx_http_sandbox_dagger_run(q->data, ngx_http_sandbox_dagger_started);
}


static ngx_int_t
ngx_http_sandbox_dagger_answered(ngx_http_sandbox_session_t *s)
{
    ngx_int_t  rc;

    if (s->query.status != NGX_OK) {
        return ngx_http_sandbox_dagger_changed(s);
    }

    rc = ngx_http_sandbox_ask_volumes_read(s);

    if (rc == NGX_OK) {
        return s->exec ? ngx_http_sandbox_exec(s)
                       : ngx_http_sandbox_ask_service(s,
                                             ngx_http_sandbox_dagger_service);
    }

    return rc == NGX_ERROR ? NGX_ERROR
                           : ngx_http_sandbox_dagger_failed(s, "its answer "
                                                    "has no ids of volumes");
}


static ngx_int_t
ngx_http_sandbox_dagger_started(ngx_http_sandbox_session_t *s)
{
    ngx_int_t  rc;

    if (s->query.status != NGX_OK) {
        return ngx_http_sandbox_dagger_changed(s);
    }

    rc = ngx_http_sandbox_ask_service_read(s);

    if (rc != NGX_OK) {
        return rc == NGX_ERROR ? NGX_ERROR
                               : ngx_http_sandbox_dagger_failed(s, "its "
                                           "answer has no name of a service");
    }

    if (!s->coming) {
        s->coming = 1;

        ngx_http_sandbox_engine_count(s->zone, s->engine,
                                      NGX_HTTP_SANDBOX_ENGINE_STARTS);

        s->until = ngx_current_msec + NGX_HTTP_SANDBOX_DAGGER_COMING;
        s->pause = NGX_HTTP_SANDBOX_DAGGER_PAUSE;
    }

    return ngx_http_sandbox_peer_resolve(s);
}


/*
 * A question failed.  The session that it was asked in may be over, and the
 * engine, or another one, have a new one in a moment.  Looks are counted, not
 * time: when a machine stands still nobody has had any.
 */

static ngx_int_t
ngx_http_sandbox_dagger_changed(ngx_http_sandbox_session_t *s)
{
    ngx_msec_int_t                    left;
    ngx_http_sandbox_engine_state_t   now;

    ngx_http_sandbox_engine_read(s->zone, s->engine, &now);

    if (s->step != ngx_http_sandbox_dagger_changed) {

        left = (ngx_msec_int_t) (s->until - ngx_current_msec);

        if (s->query.status == NGX_DECLINED
            || left < NGX_HTTP_SANDBOX_DAGGER_DOUBT)
        {
            left = NGX_HTTP_SANDBOX_DAGGER_DOUBT;
        }

        s->heard = now.heard;
        s->looks = 0;
        s->least = left / NGX_HTTP_SANDBOX_DAGGER_LOOK;
    }

    if (now.generation != s->state.generation || !now.ready) {
        s->step = NULL;
        s->until = ngx_current_msec + NGX_HTTP_SANDBOX_DAGGER_WAIT;
        return s->attempts < NGX_HTTP_SANDBOX_DAGGER_ATTEMPTS
               ? ngx_http_sandbox_dagger_choose(s)
               : ngx_http_sandbox_dagger_failed(s, "its sessions end at once");
    }

    if (ngx_http_sandbox_dagger_doubts(s, &now)) {
        s->looks++;

        ngx_http_sandbox_engines_doubt(s->zone);
        ngx_http_sandbox_dagger_later(s, NGX_HTTP_SANDBOX_DAGGER_LOOK,
                                      ngx_http_sandbox_dagger_changed);
        return NGX_OK;
    }

    if (s->query.status == NGX_DECLINED) {
        return ngx_http_sandbox_dagger_failed(s, NULL);
    }

    return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_SERVICE_UNAVAILABLE,
                                          "engine_unreachable",
                                          "The engine of this conversation "
                                          "does not answer; nothing was "
                                          "started.");
}


/* not before the owner has been asked once more, and has answered */

static ngx_uint_t
ngx_http_sandbox_dagger_doubts(const ngx_http_sandbox_session_t *s,
    const ngx_http_sandbox_engine_state_t *now)
{
    if (s->looks < s->least) {
        return 1;
    }

    return now->heard - s->heard < NGX_HTTP_SANDBOX_DAGGER_ANSWERS
           && s->looks < NGX_HTTP_SANDBOX_DAGGER_LOOKS;
}


ngx_int_t
ngx_http_sandbox_dagger_again(ngx_http_sandbox_session_t *s)
{
    ngx_http_sandbox_upstream_leave(s->request);

    if (s->attempts++ >= NGX_HTTP_SANDBOX_DAGGER_ATTEMPTS) {
        return ngx_http_sandbox_dagger_failed(s, "agents that it starts end "
                                                 "at once");
    }

    s->until = ngx_current_msec + NGX_HTTP_SANDBOX_DAGGER_WAIT;

    return ngx_http_sandbox_dagger_choose(s);
}


ngx_int_t
ngx_http_sandbox_dagger_restart(ngx_http_sandbox_session_t *s)
{
    return ngx_http_sandbox_ask_service(s, ngx_http_sandbox_dagger_service);
}


ngx_int_t
ngx_http_sandbox_dagger_unreached(ngx_http_sandbox_session_t *s)
{
    s->coming = 0;

    /* it is there, or was: it is not the network */

    if (s->near || (!s->silent && s->agent.address)) {
        return ngx_http_sandbox_dagger_failed(s, "what it starts can't be "
                                                 "connected to");
    }

    ngx_http_sandbox_engine_route(s->zone, s->engine, 0);

    s->exec = 1;

    return ngx_http_sandbox_exec(s);
}


/* what NULL: the engine has said it, and nothing secret is left in that */

static ngx_int_t
ngx_http_sandbox_dagger_failed(ngx_http_sandbox_session_t *s,
    const char *what)
{
    if (what) {
        ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                      "sandbox: engine \"%V\" gave no agent: %s; look at "
                      "the engine's own log, and at "
                      "\"sandbox_dagger_image\"", &s->engine->name, what);

    } else {
        ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                      "sandbox: engine \"%V\" gave no agent, it says: %V "
                      "(its own log may say more; \"sandboxctl doctor "
                      "--dagger\" looks for the image)", &s->engine->name,
                      &s->query.message);
    }

    return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_BAD_GATEWAY,
                                          "engine_failed",
                                          "The engine could not start the "
                                          "sandbox; nothing was started.");
}


ngx_int_t
ngx_http_sandbox_dagger_refuse(ngx_http_sandbox_session_t *s,
    ngx_uint_t status, const char *code, const char *detail)
{
    ngx_http_sandbox_refuse(s->ctx, status, code, detail);

    if (status == NGX_HTTP_SERVICE_UNAVAILABLE) {
        s->ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
    }

    return ngx_http_sandbox_dagger_problem(s);
}


ngx_int_t
ngx_http_sandbox_dagger_problem(ngx_http_sandbox_session_t *s)
{
    /* it is one answer, whatever was asked for */

    s->ctx->answer = NULL;
    s->ctx->stream = NULL;

    ngx_http_sandbox_dagger_finish(s,
                                   ngx_http_sandbox_send_problem(s->request,
                                                                 s->ctx));
    return NGX_OK;
}


static void
ngx_http_sandbox_dagger_finish(ngx_http_sandbox_session_t *s, ngx_int_t rc)
{
    ngx_http_sandbox_peer_cancel(s);
    ngx_http_sandbox_dagger_give(s);
    ngx_http_sandbox_upstream_leave(s->request);

    ngx_http_finalize_request(s->request, rc);
}


/* as nginx's upstream does it before it connects */

ngx_int_t
ngx_http_sandbox_dagger_watch(ngx_http_sandbox_session_t *s)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = s->request;
    c = r->connection;

    if (r->read_event_handler == ngx_http_test_reading) {
        return NGX_OK;
    }

    if (c->read->timer_set) {
        ngx_del_timer(c->read);
    }

    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);

    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

#if (NGX_HTTP_V2)

    /* a stream may be told by either event that it is closed */

    if (r->stream) {
        r->write_event_handler = ngx_http_test_reading;
    }

#endif

    return NGX_OK;
}


void
ngx_http_sandbox_dagger_later(ngx_http_sandbox_session_t *s, ngx_msec_t ms,
    ngx_http_sandbox_step_pt step)
{
    s->step = step;

    if (ms) {
        ngx_add_timer(&s->event, ms);

    } else {
        ngx_post_event(&s->event, &ngx_posted_events);
    }
}


static void
ngx_http_sandbox_dagger_event(ngx_event_t *ev)
{
    ngx_http_sandbox_session_t *s = ev->data;

    ngx_http_sandbox_dagger_run(s, s->step);
}


void
ngx_http_sandbox_dagger_run(ngx_http_sandbox_session_t *s,
    ngx_http_sandbox_step_pt step)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = s->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (step(s) != NGX_OK) {
        ngx_http_sandbox_dagger_finish(s, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    ngx_http_run_posted_requests(c);
}


void
ngx_http_sandbox_dagger_give(ngx_http_sandbox_session_t *s)
{
    if (s->running) {
        s->running = 0;
        ngx_http_sandbox_run_give(s->zone);
    }
}
