/*
 * What is known of each engine, in the shared zone: written by worker 0 as the
 * owner of their sessions tells it, read by all.  Knows no query.
 */

#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_metrics.h"


#define NGX_HTTP_SANDBOX_ENGINES         64      /* over the life of a zone */
#define NGX_HTTP_SANDBOX_ENGINE_RETRY    (60 * 1000)  /* ms, of its network */
#define NGX_HTTP_SANDBOX_ENGINE_LINES    8       /* of metrics */
#define NGX_HTTP_SANDBOX_ENGINE_LINE     256     /* bytes, without a name */


/* one in shared memory; all but words that are ..._atomic_t under the mutex */

typedef struct {
    ngx_atomic_t                   ready;
    ngx_atomic_t                   far;          /* containers are out of
                                                    reach */
    ngx_atomic_t                   tried;        /* ..._msec, when last */
    ngx_atomic_t                   counters[NGX_HTTP_SANDBOX_ENGINE_COUNTERS];
    ngx_msec_t                     since;
    ngx_uint_t                     heard;
    uint64_t                       generation;
    size_t                         name_len;
    size_t                         metadata_len;
    size_t                         domain_len;
    size_t                         reason_len;
    size_t                         proxy_len;
    u_char                         name[NGX_HTTP_SANDBOX_ENGINE_NAME];
    u_char                         metadata[SANDBOX_ENGINE_MAX_METADATA];
    u_char                         domain[SANDBOX_ENGINE_MAX_DOMAIN];
    u_char                         reason[NGX_HTTP_SANDBOX_MAX_REASON];
    u_char                         proxy[SANDBOX_WIRE_MAX_PROXY];
} ngx_http_sandbox_engine_place_t;


struct ngx_http_sandbox_engines_s {
    ngx_atomic_t                   doubted;
    ngx_uint_t                     n;
    ngx_http_sandbox_engine_place_t  *place[NGX_HTTP_SANDBOX_ENGINES];
};


static ngx_http_sandbox_engine_place_t *ngx_http_sandbox_engine_place(
    ngx_http_sandbox_zone_t *zone, const ngx_http_sandbox_engine_t *engine);
static void ngx_http_sandbox_engine_why(sandbox_engine_t *told,
    const char *why);
static void ngx_http_sandbox_engine_write(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine, const sandbox_engine_t *told,
    ngx_log_t *log);


ngx_int_t
ngx_http_sandbox_engines_init_zone(ngx_shm_zone_t *shm_zone,
    ngx_http_sandbox_main_conf_t *smcf, void **shared)
{
    ngx_uint_t                        i, n;
    ngx_slab_pool_t                  *shpool;
    ngx_http_sandbox_engine_t       **engine;
    ngx_http_sandbox_engines_t       *engines;
    ngx_http_sandbox_engine_place_t  *place;

    shpool = smcf->zone.shpool;
    engines = *shared;
    engine = smcf->engines.elts;

    for (i = 0; i < smcf->engines.nelts; i++) {

        if (engine[i]->owner == NULL) {
            continue;
        }

        if (engines == NULL) {
            engines = ngx_slab_calloc(shpool,
                                      sizeof(ngx_http_sandbox_engines_t));
            if (engines == NULL) {
                goto full;
            }

            *shared = engines;
        }

        for (n = 0; n < engines->n; n++) {
            place = engines->place[n];

            if (place->name_len == engine[i]->name.len
                && ngx_memcmp(place->name, engine[i]->name.data,
                              place->name_len)
                   == 0)
            {
                break;
            }
        }

        if (n == NGX_HTTP_SANDBOX_ENGINES) {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "\"sandbox_zone %V\" has seen %ui engines since "
                          "nginx was started, restart it",
                          &shm_zone->shm.name, n);
            return NGX_ERROR;
        }

        if (n == engines->n) {
            place = ngx_slab_calloc(shpool,
                                    sizeof(ngx_http_sandbox_engine_place_t));
            if (place == NULL) {
                goto full;
            }

            place->since = ngx_current_msec;
            place->name_len = engine[i]->name.len;
            ngx_memcpy(place->name, engine[i]->name.data, place->name_len);

            engines->place[n] = place;
            ngx_memory_barrier();
            engines->n = n + 1;
        }

        engine[i]->number = n;
    }

    smcf->zone.engines = engines;

    return NGX_OK;

full:

    ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                  "\"sandbox_zone %V\" has no room for engines: make it "
                  "larger", &shm_zone->shm.name);

    return NGX_ERROR;
}


static ngx_http_sandbox_engine_place_t *
ngx_http_sandbox_engine_place(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine)
{
    return zone->engines->place[engine->number];
}


ngx_uint_t
ngx_http_sandbox_engine_ready(const ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine)
{
    return zone->engines->place[engine->number]->ready != 0;
}


void
ngx_http_sandbox_engine_read(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine,
    ngx_http_sandbox_engine_state_t *state)
{
    ngx_http_sandbox_engine_place_t  *place;

    place = ngx_http_sandbox_engine_place(zone, engine);

    ngx_shmtx_lock(&zone->shpool->mutex);

    state->ready = place->ready;
    state->since = place->since;
    state->heard = place->heard;
    state->generation = place->generation;

    state->metadata.len = place->metadata_len;
    state->metadata.data = state->data;
    ngx_memcpy(state->metadata.data, place->metadata, place->metadata_len);

    state->domain.len = place->domain_len;
    state->domain.data = state->data + place->metadata_len;
    ngx_memcpy(state->domain.data, place->domain, place->domain_len);

    state->proxy.len = place->proxy_len;
    state->proxy.data = state->domain.data + place->domain_len;
    ngx_memcpy(state->proxy.data, place->proxy, place->proxy_len);

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


ngx_uint_t
ngx_http_sandbox_engine_proxied(const ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine)
{
    return zone->engines->place[engine->number]->proxy_len != 0;
}


size_t
ngx_http_sandbox_engine_reason(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine, u_char *reason)
{
    size_t                            n;
    ngx_http_sandbox_engine_place_t  *place;

    place = ngx_http_sandbox_engine_place(zone, engine);

    ngx_shmtx_lock(&zone->shpool->mutex);

    n = place->reason_len;
    ngx_memcpy(reason, place->reason, n);

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return n;
}


void
ngx_http_sandbox_engines_learned(ngx_http_sandbox_main_conf_t *smcf,
    const ngx_http_sandbox_runner_t *owner, u_char *p, size_t n,
    ngx_log_t *log)
{
    int                              rc;
    ngx_uint_t                       i, seen[NGX_HTTP_SANDBOX_MAX_ENGINES];
    sandbox_field_t                  field, name;
    sandbox_engine_t                 told;
    sandbox_fields_t                 fields;
    ngx_http_sandbox_engine_t      **engine;

    if (smcf->zone.engines == NULL) {
        return;
    }

    engine = smcf->engines.elts;

    ngx_memzero(seen, sizeof(seen));

    sandbox_fields_init(&fields, p, n);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag != SANDBOX_TAG_ENGINE) {
            continue;
        }

        rc = sandbox_record_engine(&told, field.data, field.length);
        name = told.name;

        if (rc != SANDBOX_OK) {
            ngx_http_sandbox_engine_why(&told, "sandbox-runner --dagger "
                                        "breaks the protocol: is it of the "
                                        "same release as the module?");
        }

        for (i = 0; i < smcf->engines.nelts; i++) {

            if (engine[i]->owner == owner && !seen[i]
                && engine[i]->name.len == name.length
                && ngx_memcmp(engine[i]->name.data, name.data, name.length)
                   == 0)
            {
                seen[i] = 1;
                ngx_http_sandbox_engine_write(&smcf->zone, engine[i], &told,
                                              log);
            }
        }
    }

    ngx_http_sandbox_engine_why(&told,
                                "sandbox-runner --dagger was not told of it");

    for (i = 0; i < smcf->engines.nelts; i++) {
        if (engine[i]->owner == owner && !seen[i]) {
            ngx_http_sandbox_engine_write(&smcf->zone, engine[i], &told, log);
        }
    }
}


void
ngx_http_sandbox_engines_lost(ngx_http_sandbox_main_conf_t *smcf,
    const ngx_http_sandbox_runner_t *owner, ngx_log_t *log)
{
    ngx_uint_t                       i;
    sandbox_engine_t                 told;
    ngx_http_sandbox_engine_t      **engine;

    if (smcf->zone.engines == NULL) {
        return;
    }

    ngx_http_sandbox_engine_why(&told,
                                "sandbox-runner --dagger does not answer");

    engine = smcf->engines.elts;

    for (i = 0; i < smcf->engines.nelts; i++) {
        if (engine[i]->owner == owner) {
            ngx_http_sandbox_engine_write(&smcf->zone, engine[i], &told, log);
        }
    }
}


/* no fields of an ENGINE, but not ready, for this reason */

static void
ngx_http_sandbox_engine_why(sandbox_engine_t *told, const char *why)
{
    ngx_memzero(told, sizeof(sandbox_engine_t));

    told->detail.data = (const uint8_t *) why;
    told->detail.length = (uint32_t) ngx_strlen(why);
}


/* the log has every change once */

static void
ngx_http_sandbox_engine_write(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine, const sandbox_engine_t *told,
    ngx_log_t *log)
{
    size_t                            n;
    u_char                            reason[NGX_HTTP_SANDBOX_MAX_REASON];
    uint64_t                          before;
    ngx_uint_t                        ready, again, other;
    ngx_http_sandbox_engine_place_t  *place;

    reason[0] = '\0';
    n = told->ready ? 0 : told->detail.length;

    if (n > sizeof(reason)) {
        n = sandbox_utf8_head(told->detail.data, sizeof(reason));
    }

    if (n) {
        ngx_memcpy(reason, told->detail.data, n);
        sandbox_utf8_blank(reason, n);
    }

    place = ngx_http_sandbox_engine_place(zone, engine);

    ngx_shmtx_lock(&zone->shpool->mutex);

    ready = place->ready;
    before = place->generation;

    again = told->ready && before && told->generation != before;
    other = n != place->reason_len || ngx_memcmp(reason, place->reason, n);

    if (ready != told->ready) {
        place->since = ngx_current_msec;
    }

    place->heard++;

    place->reason_len = n;
    ngx_memcpy(place->reason, reason, n);

    place->proxy_len = told->proxy.length;

    if (told->proxy.length) {
        ngx_memcpy(place->proxy, told->proxy.data, told->proxy.length);
    }

    if (told->ready) {

        if (told->generation != before) {
            place->counters[NGX_HTTP_SANDBOX_ENGINE_SESSIONS]++;

            /* an engine that was started anew may have another network */

            place->far = 0;
        }

        place->generation = told->generation;

        place->metadata_len = told->metadata.length;
        ngx_memcpy(place->metadata, told->metadata.data,
                   told->metadata.length);

        place->domain_len = told->domain.length;
        ngx_memcpy(place->domain, told->domain.data, told->domain.length);
    }

    place->ready = (ngx_atomic_uint_t) told->ready;

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (told->ready && (!ready || again)) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "sandbox engine \"%V\" is ready%s", &engine->name,
                      again ? ", with a new session: what ran there has ended"
                            : "");

        if (told->generation < before) {
            ngx_log_error(NGX_LOG_ERR, log, 0,
                          "the session of sandbox engine \"%V\" is older than "
                          "the one before, so agents that are newer refuse "
                          "it: is the clock of sandbox-runner's host right?",
                          &engine->name);
        }

    } else if (!told->ready && (ready || other)) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "sandbox engine \"%V\" is not ready: %*s",
                      &engine->name, n, reason);
    }
}


void
ngx_http_sandbox_engines_doubt(ngx_http_sandbox_zone_t *zone)
{
    zone->engines->doubted = 1;
}


ngx_uint_t
ngx_http_sandbox_engines_doubted(ngx_http_sandbox_zone_t *zone)
{
    return zone->engines->doubted
           && ngx_atomic_cmp_set(&zone->engines->doubted, 1, 0);
}


ngx_uint_t
ngx_http_sandbox_engine_direct(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine)
{
    ngx_atomic_uint_t                 tried;
    ngx_http_sandbox_engine_place_t  *place;

    if (engine->resolver == NULL) {
        return 0;
    }

    place = ngx_http_sandbox_engine_place(zone, engine);

    if (!place->far) {
        return 1;
    }

    tried = place->tried;

    return (ngx_msec_t) (ngx_current_msec - tried)
           >= NGX_HTTP_SANDBOX_ENGINE_RETRY
           && ngx_atomic_cmp_set(&place->tried, tried, ngx_current_msec);
}


void
ngx_http_sandbox_engine_route(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine, ngx_uint_t direct)
{
    ngx_http_sandbox_engine_place_t  *place;

    place = ngx_http_sandbox_engine_place(zone, engine);

    if (!direct) {
        place->tried = ngx_current_msec;
    }

    if (place->far == direct) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      direct ? "containers of sandbox engine \"%V\" can be "
                               "reached again"
                             : "containers of sandbox engine \"%V\" can't be "
                               "reached, so operations go by execs of the "
                               "engine, with less (see \"unsupported\" in "
                               "v1/limits): is there a route to its network, "
                               "and does \"resolver=\" know their names?",
                      &engine->name);
    }

    place->far = !direct;
}


ngx_uint_t
ngx_http_sandbox_engine_reached(const ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine)
{
    return engine->resolver && !zone->engines->place[engine->number]->far;
}


void
ngx_http_sandbox_engine_count(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine,
    ngx_http_sandbox_engine_counter_e counter)
{
    ngx_http_sandbox_engine_place_t  *place;

    place = ngx_http_sandbox_engine_place(zone, engine);

    (void) ngx_atomic_fetch_add(&place->counters[counter], 1);
}


size_t
ngx_http_sandbox_engines_metrics_size(ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_uint_t                   i;
    size_t                       size;
    ngx_http_sandbox_engine_t  **engine;

    size = NGX_HTTP_SANDBOX_ENGINE_LINES * NGX_HTTP_SANDBOX_ENGINE_LINE;
    engine = smcf->engines.elts;

    /* each byte of a name may be escaped */

    for (i = 0; i < smcf->engines.nelts; i++) {
        size += NGX_HTTP_SANDBOX_ENGINE_LINES
                * (NGX_HTTP_SANDBOX_ENGINE_LINE + 2 * engine[i]->name.len);
    }

    return size;
}


u_char *
ngx_http_sandbox_engines_metrics(u_char *p,
    ngx_http_sandbox_main_conf_t *smcf)
{
    u_char                           *s, *last;
    ngx_uint_t                        i, k;
    ngx_http_sandbox_engine_t       **engine;
    ngx_http_sandbox_engine_place_t  *place;

    static const struct {
        const char   *name;
        const char   *help;
        ngx_int_t     counter;           /* -1: a gauge, ready; -2: reached */
    } lines[] = {
        { "sandbox_engine_ready", "Whether the engine's session is held.",
          -1 },
        { "sandbox_engine_reached", "Whether the engine's containers are "
          "connected to; else everything goes by execs.", -2 },
        { "sandbox_engine_sessions_total", "Sessions that were begun on the "
          "engine.", NGX_HTTP_SANDBOX_ENGINE_SESSIONS },
        { "sandbox_engine_queries_total", "Queries to the engine.",
          NGX_HTTP_SANDBOX_ENGINE_QUERIES },
        { "sandbox_engine_failures_total", "Queries without the answer that "
          "was wanted.", NGX_HTTP_SANDBOX_ENGINE_FAILURES },
        { "sandbox_engine_starts_total", "Agents that were asked for.",
          NGX_HTTP_SANDBOX_ENGINE_STARTS },
        { "sandbox_engine_execs_total", "Operations by an exec.",
          NGX_HTTP_SANDBOX_ENGINE_EXECS },
        { "sandbox_engine_moves_total", "Conversations that went to another "
          "engine, as this one was gone.", NGX_HTTP_SANDBOX_ENGINE_MOVES }
    };

    if (smcf->zone.engines == NULL) {
        return p;
    }

    engine = smcf->engines.elts;

    for (k = 0; k < sizeof(lines) / sizeof(lines[0]); k++) {

        p = ngx_http_sandbox_metrics_help(p, lines[k].name,
                                          lines[k].counter < 0 ? "gauge"
                                                               : "counter",
                                          lines[k].help);

        for (i = 0; i < smcf->engines.nelts; i++) {

            if (engine[i]->owner == NULL) {
                continue;
            }

            place = ngx_http_sandbox_engine_place(&smcf->zone, engine[i]);

            p = ngx_sprintf(p, "%s{engine=\"", lines[k].name);

            s = engine[i]->name.data;
            last = s + engine[i]->name.len;

            for ( /* void */ ; s < last; s++) {
                if (*s == '"' || *s == '\\') {
                    *p++ = '\\';
                }

                *p++ = *s;
            }

            p = ngx_sprintf(p, "\"} %uA\n",
                            lines[k].counter == -1 ? place->ready
                            : lines[k].counter == -2
                            ? (ngx_atomic_uint_t)
                              ngx_http_sandbox_engine_reached(&smcf->zone,
                                                              engine[i])
                            : place->counters[lines[k].counter]);
        }
    }

    return p;
}
