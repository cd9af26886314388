/*
 * The shared zone: what is known of each runner, for all workers, and room for
 * other files' caches.  Whatever is in it can be lost, and work goes on.
 * Knows no wire, no HTTP.
 */

#include "ngx_http_sandbox_conf.h"
#include "ngx_http_sandbox_conversations.h"
#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_dagger_session.h"
#include "ngx_http_sandbox_egress.h"
#include "ngx_http_sandbox_known.h"


#define NGX_HTTP_SANDBOX_ZONE_VERSION  7


/* what PING told of one runner, or why there was no answer */

struct ngx_http_sandbox_slot_s {
    ngx_atomic_t                   status;       /* ..._status_e */
    uint64_t                       hard_caps;
    ngx_http_sandbox_host_t        host;
    ngx_uint_t                     egress_in_force;
    ngx_atomic_t                   egress_turn;  /* whose table counts */
    ngx_http_sandbox_egress_counts_t  *egress;   /* NULL: no policies yet, or
                                                    no room for it */
    u_char                         path_len;
    u_char                         reason_len;
    u_char                         runtime_len;
    u_char                         version_len;
    u_char                         path[sizeof(
                                     ((struct sockaddr_un *) 0)->sun_path)];
    u_char                         key[SANDBOX_WIRE_KEY_SIZE];
    u_char                         reason[NGX_HTTP_SANDBOX_MAX_REASON];
    u_char                         runtime[NGX_HTTP_SANDBOX_MAX_WORD];
    u_char                         version[NGX_HTTP_SANDBOX_MAX_WORD];
};


typedef struct {
    ngx_uint_t                     version;
    ngx_uint_t                     slot_size;
    ngx_uint_t                     nslots;
    ngx_http_sandbox_cache_t      *cache;
    ngx_http_sandbox_known_t      *known;        /* NULL: no room for it */
    void                          *key_sets;     /* NULL: none yet */
    void                          *engines;      /* likewise */
    struct ngx_http_sandbox_agents_s  *agents;   /* NULL: likewise */
    ngx_http_sandbox_marks_t       marks;
    ngx_http_sandbox_metrics_t     metrics;
    ngx_http_sandbox_slot_t        slots[NGX_HTTP_SANDBOX_MAX_RUNNERS];
} ngx_http_sandbox_shctx_t;


typedef struct {
    ngx_http_sandbox_shctx_t      *sh;
    ngx_slab_pool_t               *shpool;
    ngx_http_sandbox_main_conf_t  *main;
} ngx_http_sandbox_zone_ctx_t;


static ngx_int_t ngx_http_sandbox_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_sandbox_init_slots(ngx_shm_zone_t *shm_zone,
    ngx_http_sandbox_zone_ctx_t *zctx);
static u_char ngx_http_sandbox_slot_copy(u_char *dst, const ngx_str_t *src,
    size_t max);
static void ngx_http_sandbox_zone_defaults(ngx_http_sandbox_zone_t *zone);
static ngx_int_t ngx_http_sandbox_zone_add(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name, size_t size);
static ngx_int_t ngx_http_sandbox_zone_option(ngx_conf_t *cf,
    ngx_http_sandbox_zone_t *zone, ngx_str_t *value);


/* one aligned word: no lock, for what every request asks */

ngx_http_sandbox_status_e
ngx_http_sandbox_slot_status(const ngx_http_sandbox_runner_t *runner)
{
    return (ngx_http_sandbox_status_e) runner->slot->status;
}


void
ngx_http_sandbox_slot_read(const ngx_http_sandbox_runner_t *runner,
    ngx_http_sandbox_health_t *health)
{
    ngx_http_sandbox_slot_t      *slot;
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = runner->zone->shm_zone->data;
    slot = runner->slot;

    ngx_shmtx_lock(&zctx->shpool->mutex);

    health->status = (ngx_http_sandbox_status_e) slot->status;
    health->hard_caps = slot->hard_caps;

    health->reason.len = slot->reason_len;
    health->runtime.len = slot->runtime_len;
    health->version.len = slot->version_len;

    ngx_memcpy(health->reason_data, slot->reason, slot->reason_len);
    ngx_memcpy(health->runtime_data, slot->runtime, slot->runtime_len);
    ngx_memcpy(health->version_data, slot->version, slot->version_len);

    ngx_shmtx_unlock(&zctx->shpool->mutex);

    health->reason.data = health->reason_data;
    health->runtime.data = health->runtime_data;
    health->version.data = health->version_data;
}


void
ngx_http_sandbox_slot_write(const ngx_http_sandbox_runner_t *runner,
    const ngx_http_sandbox_health_t *health, ngx_uint_t full)
{
    ngx_http_sandbox_slot_t      *slot;
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = runner->zone->shm_zone->data;
    slot = runner->slot;

    ngx_shmtx_lock(&zctx->shpool->mutex);

    slot->status = health->status;
    slot->reason_len = ngx_http_sandbox_slot_copy(slot->reason,
                                                  &health->reason,
                                                  sizeof(slot->reason));

    if (full) {
        slot->hard_caps = health->hard_caps;
        slot->runtime_len = ngx_http_sandbox_slot_copy(slot->runtime,
                                                       &health->runtime,
                                                       sizeof(slot->runtime));
        slot->version_len = ngx_http_sandbox_slot_copy(slot->version,
                                                       &health->version,
                                                       sizeof(slot->version));
    }

    ngx_shmtx_unlock(&zctx->shpool->mutex);
}


void
ngx_http_sandbox_slot_host(const ngx_http_sandbox_runner_t *runner,
    ngx_http_sandbox_host_t *host)
{
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = runner->zone->shm_zone->data;

    ngx_shmtx_lock(&zctx->shpool->mutex);
    *host = runner->slot->host;
    ngx_shmtx_unlock(&zctx->shpool->mutex);
}


void
ngx_http_sandbox_slot_set_host(const ngx_http_sandbox_runner_t *runner,
    const ngx_http_sandbox_host_t *host)
{
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = runner->zone->shm_zone->data;

    ngx_shmtx_lock(&zctx->shpool->mutex);
    runner->slot->host = *host;
    ngx_shmtx_unlock(&zctx->shpool->mutex);
}


ngx_uint_t
ngx_http_sandbox_slot_egress(const ngx_http_sandbox_runner_t *runner,
    ngx_http_sandbox_egress_counts_t *counts)
{
    ngx_uint_t                    in_force;
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = runner->zone->shm_zone->data;

    ngx_shmtx_lock(&zctx->shpool->mutex);

    in_force = runner->slot->egress_in_force;

    if (counts) {
        counts->n = 0;

        if (runner->slot->egress) {
            *counts = *runner->slot->egress;
        }
    }

    ngx_shmtx_unlock(&zctx->shpool->mutex);

    return in_force;
}


void
ngx_http_sandbox_slot_set_egress(const ngx_http_sandbox_runner_t *runner,
    ngx_uint_t in_force, const ngx_http_sandbox_egress_counts_t *counts)
{
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = runner->zone->shm_zone->data;

    ngx_shmtx_lock(&zctx->shpool->mutex);

    runner->slot->egress_in_force = in_force;

    if (counts && runner->slot->egress) {
        *runner->slot->egress = *counts;
    }

    ngx_shmtx_unlock(&zctx->shpool->mutex);
}


ngx_uint_t
ngx_http_sandbox_slot_egress_take(const ngx_http_sandbox_runner_t *runner)
{
    return (ngx_uint_t) ngx_atomic_fetch_add(&runner->slot->egress_turn, 1)
           + 1;
}


ngx_uint_t
ngx_http_sandbox_slot_egress_taken(const ngx_http_sandbox_runner_t *runner)
{
    return (ngx_uint_t) runner->slot->egress_turn;
}


static u_char
ngx_http_sandbox_slot_copy(u_char *dst, const ngx_str_t *src, size_t max)
{
    size_t  len;

    len = src->len;

    if (len > max) {
        len = sandbox_utf8_head(src->data, max);
    }

    if (len) {
        ngx_memcpy(dst, src->data, len);

        /* it goes into the log, and is not ours */

        sandbox_utf8_blank(dst, len);
    }

    return (u_char) len;
}


static ngx_int_t
ngx_http_sandbox_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_sandbox_zone_ctx_t  *octx = data;

    size_t                        len;
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = shm_zone->data;

    if (octx) {
        zctx->sh = octx->sh;
        zctx->shpool = octx->shpool;

    } else {
        zctx->shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

        if (shm_zone->shm.exists) {
            zctx->sh = zctx->shpool->data;
        }
    }

    if (zctx->sh) {

        if (zctx->sh->version != NGX_HTTP_SANDBOX_ZONE_VERSION
            || zctx->sh->slot_size != sizeof(ngx_http_sandbox_slot_t))
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "\"sandbox_zone %V\" has another layout, restart "
                          "nginx", &shm_zone->shm.name);
            return NGX_ERROR;
        }

        return ngx_http_sandbox_init_slots(shm_zone, zctx);
    }

    zctx->sh = ngx_slab_calloc(zctx->shpool, sizeof(ngx_http_sandbox_shctx_t));
    if (zctx->sh == NULL) {
        return NGX_ERROR;
    }

    zctx->sh->version = NGX_HTTP_SANDBOX_ZONE_VERSION;
    zctx->sh->slot_size = sizeof(ngx_http_sandbox_slot_t);

    zctx->sh->cache = ngx_http_sandbox_cache_create(zctx->shpool,
                                                    shm_zone->shm.size);
    if (zctx->sh->cache == NULL) {
        return NGX_ERROR;
    }

    zctx->sh->known = ngx_http_sandbox_known_create(zctx->shpool,
                                                    shm_zone->shm.size);

    len = sizeof(" in sandbox zone \"\"") + shm_zone->shm.name.len;

    zctx->shpool->log_ctx = ngx_slab_alloc(zctx->shpool, len);
    if (zctx->shpool->log_ctx == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(zctx->shpool->log_ctx, " in sandbox zone \"%V\"%Z",
                &shm_zone->shm.name);

    zctx->shpool->log_nomem = 0;
    zctx->shpool->data = zctx->sh;

    return ngx_http_sandbox_init_slots(shm_zone, zctx);
}


/* runners keep their slot over a reload; those gone leave theirs unused */

static ngx_int_t
ngx_http_sandbox_init_slots(ngx_shm_zone_t *shm_zone,
    ngx_http_sandbox_zone_ctx_t *zctx)
{
    ngx_uint_t                   i, n;
    ngx_http_sandbox_slot_t     *slot;
    ngx_http_sandbox_runner_t  **runner;

    zctx->main->zone.shpool = zctx->shpool;
    zctx->main->zone.cache = zctx->sh->cache;
    zctx->main->zone.marks = &zctx->sh->marks;
    zctx->main->zone.metrics = &zctx->sh->metrics;
    zctx->main->zone.known = zctx->sh->known;

    if (zctx->main->engines.nelts && zctx->sh->agents == NULL) {
        zctx->sh->agents = ngx_http_sandbox_agents_create(zctx->shpool,
                                                      shm_zone->shm.size);
    }

    zctx->main->zone.agents = zctx->sh->agents;

    runner = zctx->main->runners.elts;

    ngx_shmtx_lock(&zctx->shpool->mutex);

    for (i = 0; i < zctx->main->runners.nelts; i++) {

        for (n = 0; n < zctx->sh->nslots; n++) {
            slot = &zctx->sh->slots[n];

            if (slot->path_len == runner[i]->path.len
                && ngx_memcmp(slot->path, runner[i]->path.data,
                              slot->path_len)
                   == 0
                && ngx_memcmp(slot->key, runner[i]->key,
                              SANDBOX_WIRE_KEY_SIZE)
                   == 0)
            {
                break;
            }
        }

        if (n == NGX_HTTP_SANDBOX_MAX_RUNNERS) {
            ngx_shmtx_unlock(&zctx->shpool->mutex);

            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "\"sandbox_zone %V\" has seen %ui runners since "
                          "nginx was started, restart it", &shm_zone->shm.name,
                          n);
            return NGX_ERROR;
        }

        slot = &zctx->sh->slots[n];

        if (n == zctx->sh->nslots) {
            ngx_memzero(slot, sizeof(ngx_http_sandbox_slot_t));

            /* shorter than sun_path, "sandbox_runner" has seen to it */

            slot->path_len = (u_char) runner[i]->path.len;
            ngx_memcpy(slot->path, runner[i]->path.data, slot->path_len);
            ngx_memcpy(slot->key, runner[i]->key, SANDBOX_WIRE_KEY_SIZE);

            zctx->sh->nslots++;
        }

        if (zctx->main->egress && slot->egress == NULL) {
            slot->egress = ngx_slab_calloc_locked(zctx->shpool,
                                    sizeof(ngx_http_sandbox_egress_counts_t));

            if (slot->egress == NULL) {
                ngx_log_error(NGX_LOG_WARN, shm_zone->shm.log, 0,
                              "\"sandbox_zone %V\" has no room for what "
                              "runners count of egress, so \"sandbox_metrics\" "
                              "won't tell it: make it larger",
                              &shm_zone->shm.name);
            }
        }

        runner[i]->slot = slot;
    }

    ngx_shmtx_unlock(&zctx->shpool->mutex);

    if (ngx_http_sandbox_engines_init_zone(shm_zone, zctx->main,
                                           &zctx->sh->engines)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_key_set_init_zone(shm_zone, zctx->main,
                                              &zctx->sh->key_sets);
}


/* NAME:SIZE [max=N] [per_tenant=N] [running=N] [queue=N] and two times */

char *
ngx_http_sandbox_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t *smcf = conf;

    u_char                       *p;
    ssize_t                       size;
    ngx_str_t                    *value, name, s;
    ngx_uint_t                    i;

    if (smcf->zone.shm_zone) {
        return "is duplicate";
    }

    value = cf->args->elts;

    ngx_http_sandbox_zone_defaults(&smcf->zone);

    p = (u_char *) ngx_strchr(value[1].data, ':');

    size = NGX_ERROR;
    name = value[1];

    if (p && p != name.data) {
        name.len = p - name.data;

        s.data = p + 1;
        s.len = value[1].data + value[1].len - s.data;

        size = ngx_parse_size(&s);
    }

    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone \"%V\" in \"sandbox_zone\" "
                           "directive, it must be NAME:SIZE, such as "
                           "\"sandbox:1m\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (size < (ssize_t) (32 * ngx_pagesize)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" in \"sandbox_zone\" directive is too "
                           "small, it must have at least %uzk", &value[1],
                           32 * ngx_pagesize / 1024);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_sandbox_conf_once(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_sandbox_zone_option(cf, &smcf->zone, &value[i])
            != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    if (smcf->zone.expire && smcf->zone.expire < smcf->zone.idle) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"sandbox_zone\" directive is less "
                           "than \"idle=\" (%Ms): a sandbox that is to be "
                           "removed must have been stopped before",
                           ngx_http_sandbox_conf_parameter(cf, "expire="),
                           smcf->zone.idle / 1000);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_sandbox_zone_add(cf, smcf, &name, size) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_sandbox_zone_default(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_str_t  name = ngx_string("sandbox");

    ngx_http_sandbox_zone_defaults(&smcf->zone);

    return ngx_http_sandbox_zone_add(cf, smcf, &name, 1024 * 1024);
}


static void
ngx_http_sandbox_zone_defaults(ngx_http_sandbox_zone_t *zone)
{
    zone->running = 10;
    zone->queue = 200;
    zone->idle = 600 * 1000;
}


static ngx_int_t
ngx_http_sandbox_zone_add(ngx_conf_t *cf, ngx_http_sandbox_main_conf_t *smcf,
    ngx_str_t *name, size_t size)
{
    ngx_http_sandbox_zone_ctx_t  *zctx;

    zctx = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_zone_ctx_t));
    if (zctx == NULL) {
        return NGX_ERROR;
    }

    zctx->main = smcf;

    smcf->zone.shm_zone = ngx_shared_memory_add(cf, name, size,
                                                &ngx_http_sandbox_module);
    if (smcf->zone.shm_zone == NULL) {
        return NGX_ERROR;
    }

    smcf->zone.shm_zone->init = ngx_http_sandbox_init_zone;
    smcf->zone.shm_zone->data = zctx;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_zone_option(ngx_conf_t *cf, ngx_http_sandbox_zone_t *zone,
    ngx_str_t *value)
{
    ngx_int_t     n;
    ngx_str_t     s;
    ngx_uint_t    i;

    static const struct {
        ngx_str_t   name;
        size_t      offset;
        ngx_int_t   min;
    } options[] = {
        { ngx_string("max="), offsetof(ngx_http_sandbox_zone_t, max), 1 },
        { ngx_string("per_tenant="),
          offsetof(ngx_http_sandbox_zone_t, per_tenant), 1 },
        { ngx_string("running="),
          offsetof(ngx_http_sandbox_zone_t, running), 1 },
        { ngx_string("queue="), offsetof(ngx_http_sandbox_zone_t, queue), 0 },
        { ngx_null_string, 0, 0 }
    };

    static const struct {
        ngx_str_t    name;
        size_t       offset;
        ngx_uint_t   days;
        const char  *example;
    } times[] = {
        { ngx_string("idle="), offsetof(ngx_http_sandbox_zone_t, idle), 30,
          "idle=10m" },
        { ngx_string("expire="), offsetof(ngx_http_sandbox_zone_t, expire),
          3650, "expire=30d" },
        { ngx_null_string, 0, 0, NULL }
    };

    for (i = 0; times[i].name.len; i++) {

        if (value->len < times[i].name.len
            || ngx_strncmp(value->data, times[i].name.data,
                           times[i].name.len)
               != 0)
        {
            continue;
        }

        s.len = value->len - times[i].name.len;
        s.data = value->data + times[i].name.len;

        n = ngx_parse_time(&s, 0);

        if (n == NGX_ERROR || n < 1000
            || n > (ngx_int_t) times[i].days * 86400 * 1000)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in \"sandbox_zone\" "
                               "directive, it must be a time from 1s to "
                               "%uid, such as \"%s\"", value, times[i].days,
                               times[i].example);
            return NGX_ERROR;
        }

        *(ngx_msec_t *) ((char *) zone + times[i].offset) = (ngx_msec_t) n;

        return NGX_OK;
    }

    for (i = 0; options[i].name.len; i++) {

        if (value->len < options[i].name.len
            || ngx_strncmp(value->data, options[i].name.data,
                           options[i].name.len)
               != 0)
        {
            continue;
        }

        n = ngx_atoi(value->data + options[i].name.len,
                     value->len - options[i].name.len);

        if (n == NGX_ERROR || n < options[i].min || n > 100000) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in \"sandbox_zone\" "
                               "directive, it must be a number from %i to "
                               "100000", value, options[i].min);
            return NGX_ERROR;
        }

        *(ngx_uint_t *) ((char *) zone + options[i].offset) = n;

        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown parameter \"%V\" in \"sandbox_zone\" "
                       "directive, there are \"max=\", \"per_tenant=\", "
                       "\"running=\", \"queue=\", \"idle=\" and "
                       "\"expire=\"", value);

    return NGX_ERROR;
}
