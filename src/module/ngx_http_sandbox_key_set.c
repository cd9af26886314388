/*
 * Key sets by URL.  Worker 0 has them fetched, and puts what is good into the
 * shared zone as it came; every worker makes keys of it when it needs them.
 * The last good set is kept for ever, whatever the server does.  Knows no
 * libcurl, no requests.
 */

#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_KEY_POLL      1000    /* ms */
#define NGX_HTTP_SANDBOX_KEY_BACKOFF   1000    /* ms, doubled each time */
#define NGX_HTTP_SANDBOX_KEY_FORGOTTEN (300 * 1000)

/* kinds of problems that are not the fetch's */

#define NGX_HTTP_SANDBOX_KEY_NO_FETCH  1
#define NGX_HTTP_SANDBOX_KEY_NO_ROOM   2
#define NGX_HTTP_SANDBOX_KEY_UNUSABLE  ((uint64_t) 1 << 32)


/* a set as it came; never changed, another one takes its place */

typedef struct {
    uint64_t                       generation;
    size_t                         size;
    u_char                         data[1];
} ngx_http_sandbox_jwks_t;


typedef struct {
    ngx_queue_t                    slots;
    uint64_t                       generation;   /* the last one given */
} ngx_http_sandbox_key_zone_t;


/* the place of one URL in the zone; once made it stays there */

struct ngx_http_sandbox_key_slot_s {
    ngx_queue_t                    queue;
    ngx_http_sandbox_key_zone_t   *zone;
    ngx_atomic_t                   generation;   /* 0: nothing came yet */
    ngx_atomic_t                   want;
    ngx_atomic_t                   seen;         /* by worker 0, ms */
    ngx_http_sandbox_jwks_t       *jwks;
    u_char                         id[32];

    /* these are worker 0's alone */
    ngx_msec_t                     started;      /* the last fetch */
    time_t                         fetched;      /* the last good one */
    ngx_uint_t                     attempts;
    ngx_uint_t                     failures;     /* since a good one */
    uint64_t                       kind;         /* of what was told last */
    ngx_msec_t                     told;
};


/* what a process has of a set */

struct ngx_http_sandbox_key_work_s {
    sandbox_jose_key_t            *keys[SANDBOX_JOSE_MAX_JWKS_KEYS];
    size_t                         nkeys;
    uint64_t                       generation;   /* 0: no keys yet */
    ngx_msec_t                     retry;        /* after a failure */
    ngx_msec_t                     next;         /* fetch, worker 0 */
    unsigned                       fetching:1;
};


typedef struct {
    ngx_event_t                    timer;
    ngx_connection_t               fake;         /* for the timer's log */
    ngx_cycle_t                   *cycle;        /* NULL: not this process */
} ngx_http_sandbox_key_poll_t;


static void ngx_http_sandbox_key_set_refresh(ngx_http_sandbox_key_set_t *set);
static void ngx_http_sandbox_key_set_free(void *data);
static ngx_msec_int_t ngx_http_sandbox_key_age(ngx_msec_t time);
static ngx_http_sandbox_key_slot_t *ngx_http_sandbox_key_slot(
    ngx_http_sandbox_key_set_t *set, ngx_http_sandbox_key_zone_t *zone);
static void ngx_http_sandbox_key_poll_handler(ngx_event_t *ev);
static void ngx_http_sandbox_key_set_poll(ngx_http_sandbox_key_set_t *set);
static void ngx_http_sandbox_key_set_fetch(ngx_http_sandbox_key_set_t *set);
static void ngx_http_sandbox_key_set_fetched(ngx_http_sandbox_key_set_t *set,
    ngx_http_sandbox_fetched_t *fetched);
static ngx_int_t ngx_http_sandbox_key_set_known(
    ngx_http_sandbox_key_set_t *set, const ngx_str_t *body);
static ngx_int_t ngx_http_sandbox_key_set_judge(const ngx_str_t *body,
    size_t *n, unsigned *crowded, char *error);
static ngx_int_t ngx_http_sandbox_key_set_store(
    ngx_http_sandbox_key_set_t *set, const ngx_str_t *body);
static void *ngx_http_sandbox_key_alloc(ngx_http_sandbox_zone_t *zone,
    size_t size);
static void ngx_http_sandbox_key_zone_sweep(ngx_slab_pool_t *shpool,
    ngx_http_sandbox_key_zone_t *zone);
static void ngx_http_sandbox_key_set_good(ngx_http_sandbox_key_set_t *set);
static void ngx_http_sandbox_key_set_failed(ngx_http_sandbox_key_set_t *set,
    uint64_t kind, const char *problem, const char *remedy);

/* the polling of this process, which is worker 0's */

static ngx_http_sandbox_key_poll_t  ngx_http_sandbox_key_poll;


ngx_int_t
ngx_http_sandbox_key_set_keys(ngx_http_sandbox_key_set_t *set,
    const sandbox_jose_key_t **keys, ngx_uint_t max, ngx_uint_t *n,
    uint64_t *generation)
{
    ngx_http_sandbox_key_work_t  *work;

    work = set->work;

    if (work->generation != set->slot->generation
        && ngx_http_sandbox_key_age(work->retry) >= 0)
    {
        ngx_http_sandbox_key_set_refresh(set);
    }

    *generation = work->generation;

    if (work->generation == 0) {
        return NGX_DECLINED;
    }

    if (work->nkeys > max - *n) {
        return NGX_ERROR;
    }

    ngx_memcpy(keys + *n, work->keys,
               work->nkeys * sizeof(sandbox_jose_key_t *));
    *n += work->nkeys;

    return NGX_OK;
}


void
ngx_http_sandbox_key_set_want(ngx_http_sandbox_key_set_t *set)
{
    if (!set->slot->want) {
        set->slot->want = 1;
    }
}


/*
 * Makes keys of what is in the zone.  No request holds on to keys over a
 * return to the event loop, so the old ones can go.
 */

static void
ngx_http_sandbox_key_set_refresh(ngx_http_sandbox_key_set_t *set)
{
    char                          error[SANDBOX_JOSE_ERROR_SIZE];
    u_char                       *data;
    size_t                        n, size;
    uint64_t                      generation;
    ngx_slab_pool_t              *shpool;
    sandbox_jose_key_t           *keys[SANDBOX_JOSE_MAX_JWKS_KEYS];
    ngx_http_sandbox_key_slot_t  *slot;
    ngx_http_sandbox_key_work_t  *work;

    work = set->work;
    slot = set->slot;
    shpool = (ngx_slab_pool_t *) set->zone->shm_zone->shm.addr;

    /* unless it goes well */

    work->retry = ngx_current_msec + NGX_HTTP_SANDBOX_KEY_POLL;

    data = ngx_alloc(SANDBOX_JOSE_MAX_JWKS, ngx_cycle->log);
    if (data == NULL) {
        return;
    }

    size = 0;
    generation = 0;

    ngx_shmtx_lock(&shpool->mutex);

    /* long after a reload, the place may be another set's */

    if (slot->jwks
        && slot->jwks->size <= SANDBOX_JOSE_MAX_JWKS
        && ngx_memcmp(slot->id, set->id, sizeof(set->id)) == 0)
    {
        size = slot->jwks->size;
        generation = slot->jwks->generation;
        ngx_memcpy(data, slot->jwks->data, size);
    }

    ngx_shmtx_unlock(&shpool->mutex);

    if (generation == 0) {
        ngx_free(data);
        return;
    }

    if (sandbox_jose_jwks(data, size, 0, keys, SANDBOX_JOSE_MAX_JWKS_KEYS, &n,
                          error)
        == 0)
    {
        ngx_http_sandbox_key_set_free(work);

        ngx_memcpy(work->keys, keys, n * sizeof(sandbox_jose_key_t *));
        work->nkeys = n;
        work->generation = generation;
        work->retry = ngx_current_msec;

    } else {

        /* worker 0 could read it */

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "sandbox key set \"%V\" can't be used by this worker: "
                      "%s; it goes on with the keys that it has, if any, "
                      "and tries again", &set->name, error);
    }

    ngx_free(data);
}


static void
ngx_http_sandbox_key_set_free(void *data)
{
    ngx_http_sandbox_key_work_t *work = data;

    size_t  i;

    for (i = 0; i < work->nkeys; i++) {
        sandbox_jose_key_free(work->keys[i]);
    }

    work->nkeys = 0;
    work->generation = 0;
}


/* the clock of another worker may be a little ahead of this one's */

static ngx_msec_int_t
ngx_http_sandbox_key_age(ngx_msec_t time)
{
    return (ngx_msec_int_t) (ngx_current_msec - time);
}


ngx_int_t
ngx_http_sandbox_key_set_init(ngx_conf_t *cf, ngx_http_sandbox_key_set_t *set)
{
    ngx_pool_cleanup_t  *cln;

    set->work = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_key_work_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (set->work == NULL || cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_sandbox_key_set_free;
    cln->data = set->work;

    return NGX_OK;
}


/* a set keeps its place over a reload, and so serves at once after it */

ngx_int_t
ngx_http_sandbox_key_set_init_zone(ngx_shm_zone_t *shm_zone,
    ngx_http_sandbox_main_conf_t *smcf, void **shared)
{
    ngx_uint_t                     i;
    ngx_slab_pool_t               *shpool;
    ngx_http_sandbox_key_set_t   **set;
    ngx_http_sandbox_key_zone_t   *zone;
    ngx_http_sandbox_key_slot_t   *slot;

    set = smcf->key_sets.elts;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    zone = *shared;

    if (zone == NULL) {
        zone = ngx_slab_calloc_locked(shpool,
                                      sizeof(ngx_http_sandbox_key_zone_t));
        if (zone == NULL) {
            goto failed;
        }

        ngx_queue_init(&zone->slots);
        *shared = zone;
    }

    for (i = 0; i < smcf->key_sets.nelts; i++) {

        if (!set[i]->used) {
            continue;
        }

        slot = ngx_http_sandbox_key_slot(set[i], zone);
        if (slot == NULL) {
            goto failed;
        }

        set[i]->slot = slot;
    }

    ngx_shmtx_unlock(&shpool->mutex);

    return NGX_OK;

failed:

    ngx_shmtx_unlock(&shpool->mutex);

    ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                  "\"sandbox_zone %V\" has no room for the key sets of "
                  "\"sandbox_jwks_url\", give it a larger size",
                  &shm_zone->shm.name);

    return NGX_ERROR;
}


/*
 * Called with the mutex locked.  The place of a set that nobody has looked
 * after for long is given to another one; its workers notice by the id.
 */

static ngx_http_sandbox_key_slot_t *
ngx_http_sandbox_key_slot(ngx_http_sandbox_key_set_t *set,
    ngx_http_sandbox_key_zone_t *zone)
{
    ngx_queue_t                  *q;
    ngx_http_sandbox_jwks_t      *jwks;
    ngx_http_sandbox_key_slot_t  *slot, *unused;

    unused = NULL;

    for (q = ngx_queue_head(&zone->slots);
         q != ngx_queue_sentinel(&zone->slots);
         q = ngx_queue_next(q))
    {
        slot = ngx_queue_data(q, ngx_http_sandbox_key_slot_t, queue);

        if (ngx_memcmp(slot->id, set->id, sizeof(slot->id)) == 0) {
            slot->seen = ngx_current_msec;
            return slot;
        }

        if (ngx_http_sandbox_key_age(slot->seen)
            > NGX_HTTP_SANDBOX_KEY_FORGOTTEN)
        {
            unused = slot;
        }
    }

    slot = unused;

    if (slot) {
        jwks = slot->jwks;
        slot->jwks = NULL;

        if (jwks) {
            ngx_slab_free_locked(set->zone->shpool, jwks);
        }

        slot->generation = 0;
        slot->want = 0;
        slot->started = 0;
        slot->fetched = 0;
        slot->attempts = 0;
        slot->failures = 0;
        slot->kind = 0;
        slot->told = 0;

    } else {
        slot = ngx_http_sandbox_key_alloc(set->zone,
                                          sizeof(ngx_http_sandbox_key_slot_t));
        if (slot == NULL) {
            return NULL;
        }

        ngx_memzero(slot, sizeof(ngx_http_sandbox_key_slot_t));

        slot->zone = zone;
        ngx_queue_insert_tail(&zone->slots, &slot->queue);
    }

    slot->seen = ngx_current_msec;
    ngx_memcpy(slot->id, set->id, sizeof(slot->id));

    return slot;
}


ngx_int_t
ngx_http_sandbox_key_set_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i, n;
    ngx_http_sandbox_key_set_t    **set;
    ngx_http_sandbox_key_poll_t    *poll;
    ngx_http_sandbox_main_conf_t   *smcf;

    if ((ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
        || ngx_worker != 0)
    {
        return NGX_OK;
    }

    smcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_sandbox_module);

    if (smcf == NULL) {
        return NGX_OK;
    }

    set = smcf->key_sets.elts;
    n = 0;

    for (i = 0; i < smcf->key_sets.nelts; i++) {

        if (set[i]->slot == NULL) {
            continue;
        }

        n++;

        /* at once; after a worker that died in a fetch, not at once again */

        set[i]->work->next = ngx_current_msec;

        if (set[i]->slot->attempts
            && ngx_http_sandbox_key_age(set[i]->slot->started)
               < NGX_HTTP_SANDBOX_KEY_BACKOFF)
        {
            set[i]->work->next += NGX_HTTP_SANDBOX_KEY_BACKOFF;
        }
    }

    if (n == 0) {
        return NGX_OK;
    }

    poll = &ngx_http_sandbox_key_poll;

    ngx_memzero(poll, sizeof(ngx_http_sandbox_key_poll_t));

    poll->cycle = cycle;
    poll->fake.fd = (ngx_socket_t) -1;

    poll->timer.handler = ngx_http_sandbox_key_poll_handler;
    poll->timer.data = &poll->fake;
    poll->timer.log = cycle->log;
    poll->timer.cancelable = 1;

    ngx_add_timer(&poll->timer, 1);

    return NGX_OK;
}


void
ngx_http_sandbox_key_set_exit_process(void)
{
    ngx_http_sandbox_key_poll_t  *poll;

    poll = &ngx_http_sandbox_key_poll;

    if (poll->cycle == NULL) {
        return;
    }

    if (poll->timer.timer_set) {
        ngx_del_timer(&poll->timer);
    }

    poll->cycle = NULL;

    ngx_http_sandbox_fetch_exit();
}


static void
ngx_http_sandbox_key_poll_handler(ngx_event_t *ev)
{
    ngx_uint_t                      i;
    ngx_http_sandbox_key_set_t    **set;
    ngx_http_sandbox_main_conf_t   *smcf;

    /*
     * The worker of the next cycle is at it already; or this is a process
     * without a master that has read its configuration anew, and the old one
     * will be gone.
     */

    if (ngx_exiting || ngx_quit || ngx_terminate
        || ngx_http_sandbox_key_poll.cycle != ngx_cycle)
    {
        ngx_http_sandbox_key_set_exit_process();
        return;
    }

    smcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_sandbox_module);

    set = smcf->key_sets.elts;

    for (i = 0; i < smcf->key_sets.nelts; i++) {
        if (set[i]->slot) {
            ngx_http_sandbox_key_set_poll(set[i]);
        }
    }

    ngx_add_timer(ev, NGX_HTTP_SANDBOX_KEY_POLL);
}


static void
ngx_http_sandbox_key_set_poll(ngx_http_sandbox_key_set_t *set)
{
    ngx_http_sandbox_key_slot_t  *slot;

    slot = set->slot;

    slot->seen = ngx_current_msec;

    if (set->work->fetching) {
        return;
    }

    if (ngx_http_sandbox_key_age(set->work->next) >= 0
        || (slot->want
            && ngx_http_sandbox_key_age(slot->started)
               >= (ngx_msec_int_t) set->cooldown))
    {
        ngx_http_sandbox_key_set_fetch(set);
    }
}


static void
ngx_http_sandbox_key_set_fetch(ngx_http_sandbox_key_set_t *set)
{
    ngx_http_sandbox_key_slot_t  *slot;

    slot = set->slot;

    slot->want = 0;
    slot->started = ngx_current_msec;
    slot->attempts++;

    /* a little early, so that many gateways do not ask at the same moment */

    set->work->next = ngx_current_msec + set->interval
                      - ngx_random() % (set->interval / 20);

    if (ngx_http_sandbox_fetch_start(set, ngx_http_sandbox_key_set_fetched,
                                     ngx_cycle->log)
        != NGX_OK)
    {
        ngx_http_sandbox_key_set_failed(set, NGX_HTTP_SANDBOX_KEY_NO_FETCH,
                                        "the fetch can't be started",
                                        "nginx has no memory for it");
        return;
    }

    set->work->fetching = 1;
}


static void
ngx_http_sandbox_key_set_fetched(ngx_http_sandbox_key_set_t *set,
    ngx_http_sandbox_fetched_t *fetched)
{
    char        error[SANDBOX_JOSE_ERROR_SIZE];
    char        text[SANDBOX_JOSE_ERROR_SIZE + 64];
    size_t      n, size;
    unsigned    crowded;
    ngx_shm_t  *shm;

    set->work->fetching = 0;

    /* another worker has taken over */

    if (ngx_exiting || ngx_quit || ngx_terminate) {
        return;
    }

    if (fetched->kind) {
        ngx_http_sandbox_key_set_failed(set, fetched->kind, fetched->problem,
                                        fetched->remedy);
        return;
    }

    if (ngx_http_sandbox_key_set_known(set, &fetched->body) == NGX_OK) {
        ngx_http_sandbox_key_set_good(set);
        return;
    }

    if (ngx_http_sandbox_key_set_judge(&fetched->body, &n, &crowded, error)
        != NGX_OK)
    {

        (void) ngx_snprintf((u_char *) text, sizeof(text),
                            "it sends no key set that can be used: %s%Z",
                            error);

        ngx_http_sandbox_key_set_failed(set,
                                        NGX_HTTP_SANDBOX_KEY_UNUSABLE
                                        | ngx_crc32_short((u_char *) error,
                                                          ngx_strlen(error)),
                                        text, "look at what this URL sends");
        return;
    }

    if (ngx_http_sandbox_key_set_store(set, &fetched->body) != NGX_OK) {

        /* half is for verified tokens, and for a while there are two sets */

        shm = &set->zone->shm_zone->shm;
        size = (shm->size + 4 * SANDBOX_JOSE_MAX_JWKS + 0xfffff) >> 20;

        (void) ngx_snprintf((u_char *) text, sizeof(text),
                            "there is no room for its %uz bytes in "
                            "\"sandbox_zone\", %uzm would do%Z",
                            fetched->body.len, size);

        ngx_http_sandbox_key_set_failed(set, NGX_HTTP_SANDBOX_KEY_NO_ROOM,
                                        text, "give the zone that size and "
                                        "reload nginx");
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "sandbox key set \"%V\" is new: %uz keys", &set->name, n);

    if (crowded) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "sandbox key set \"%V\" has more than %d keys for %s "
                      "without a \"kid\", or with one and the same, and no "
                      "more are tried for a token: its server should give "
                      "each a \"kid\"", &set->name, SANDBOX_JOSE_MAX_TRIES,
                      sandbox_jose_algorithm_name(crowded & -crowded));
    }

    ngx_http_sandbox_key_set_good(set);
}


/* most often it is the same as before, and nobody need parse anything */

static ngx_int_t
ngx_http_sandbox_key_set_known(ngx_http_sandbox_key_set_t *set,
    const ngx_str_t *body)
{
    ngx_int_t                     rc;
    ngx_slab_pool_t              *shpool;
    ngx_http_sandbox_jwks_t      *jwks;
    ngx_http_sandbox_key_slot_t  *slot;

    slot = set->slot;
    shpool = (ngx_slab_pool_t *) set->zone->shm_zone->shm.addr;
    rc = NGX_DECLINED;

    ngx_shmtx_lock(&shpool->mutex);

    ngx_http_sandbox_key_zone_sweep(shpool, slot->zone);

    jwks = slot->jwks;

    if (jwks
        && jwks->size == body->len
        && ngx_memcmp(jwks->data, body->data, body->len) == 0
        && ngx_memcmp(slot->id, set->id, sizeof(set->id)) == 0)
    {
        /* a worker may have died between the two */

        slot->generation = jwks->generation;
        rc = NGX_OK;
    }

    ngx_shmtx_unlock(&shpool->mutex);

    return rc;
}


static ngx_int_t
ngx_http_sandbox_key_set_judge(const ngx_str_t *body, size_t *n,
    unsigned *crowded, char *error)
{
    size_t               i;
    sandbox_jose_key_t  *keys[SANDBOX_JOSE_MAX_JWKS_KEYS];

    if (sandbox_jose_jwks(body->data, body->len, 0, keys,
                          SANDBOX_JOSE_MAX_JWKS_KEYS, n, error)
        != 0)
    {
        return NGX_DECLINED;
    }

    *crowded = sandbox_jose_crowded((const sandbox_jose_key_t *const *) keys,
                                    *n);

    for (i = 0; i < *n; i++) {
        sandbox_jose_key_free(keys[i]);
    }

    return NGX_OK;
}


/* NGX_ERROR: there is no room */

static ngx_int_t
ngx_http_sandbox_key_set_store(ngx_http_sandbox_key_set_t *set,
    const ngx_str_t *body)
{
    ngx_slab_pool_t              *shpool;
    ngx_http_sandbox_jwks_t      *jwks, *old;
    ngx_http_sandbox_key_slot_t  *slot;
    ngx_http_sandbox_key_zone_t  *zone;

    slot = set->slot;
    zone = slot->zone;
    shpool = (ngx_slab_pool_t *) set->zone->shm_zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    if (ngx_memcmp(slot->id, set->id, sizeof(set->id)) != 0) {
        ngx_shmtx_unlock(&shpool->mutex);
        return NGX_ERROR;
    }

    jwks = ngx_http_sandbox_key_alloc(set->zone,
                                      offsetof(ngx_http_sandbox_jwks_t, data)
                                      + body->len);
    if (jwks == NULL) {
        ngx_shmtx_unlock(&shpool->mutex);
        return NGX_ERROR;
    }

    jwks->generation = ++zone->generation;
    jwks->size = body->len;
    ngx_memcpy(jwks->data, body->data, body->len);

    /* in this order, so that a worker killed in here leaves one or the other */

    ngx_memory_barrier();

    old = slot->jwks;
    slot->jwks = jwks;

    ngx_memory_barrier();

    slot->generation = jwks->generation;

    if (old) {
        ngx_slab_free_locked(shpool, old);
    }

    ngx_shmtx_unlock(&shpool->mutex);

    return NGX_OK;
}


/*
 * With the mutex locked.  Tokens can be verified again, so they make way for
 * keys: who holds one on each page must not keep a withdrawn key in use.
 */

static void *
ngx_http_sandbox_key_alloc(ngx_http_sandbox_zone_t *zone, size_t size)
{
    void        *p;
    ngx_uint_t   i, n;

    p = ngx_slab_alloc_locked(zone->shpool, size);

    for (n = 1; p == NULL; n *= 2) {

        for (i = 0; i < n; i++) {
            if (!ngx_http_sandbox_cache_evict(zone)) {
                break;
            }
        }

        if (i == 0) {
            return NULL;
        }

        p = ngx_slab_alloc_locked(zone->shpool, size);
    }

    return p;
}


/* called with the mutex locked: sets that are no longer configured */

static void
ngx_http_sandbox_key_zone_sweep(ngx_slab_pool_t *shpool,
    ngx_http_sandbox_key_zone_t *zone)
{
    ngx_queue_t                  *q;
    ngx_http_sandbox_jwks_t      *jwks;
    ngx_http_sandbox_key_slot_t  *slot;

    for (q = ngx_queue_head(&zone->slots);
         q != ngx_queue_sentinel(&zone->slots);
         q = ngx_queue_next(q))
    {
        slot = ngx_queue_data(q, ngx_http_sandbox_key_slot_t, queue);

        if (slot->jwks
            && ngx_http_sandbox_key_age(slot->seen)
               > NGX_HTTP_SANDBOX_KEY_FORGOTTEN)
        {
            jwks = slot->jwks;
            slot->jwks = NULL;

            /* should it be configured again, it begins as a new one does */

            slot->generation = 0;

            ngx_slab_free_locked(shpool, jwks);
        }
    }
}


static void
ngx_http_sandbox_key_set_good(ngx_http_sandbox_key_set_t *set)
{
    ngx_http_sandbox_key_slot_t  *slot;

    slot = set->slot;

    if (slot->failures) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "sandbox key set \"%V\" is fetched again, after %ui "
                      "failures", &set->name, slot->failures);
    }

    slot->fetched = ngx_time();
    slot->failures = 0;
    slot->kind = 0;
}


/* the same problem is told once in an interval, another one at once */

static void
ngx_http_sandbox_key_set_failed(ngx_http_sandbox_key_set_t *set, uint64_t kind,
    const char *problem, const char *remedy)
{
    u_char                        state[128];
    ngx_msec_t                    delay;
    ngx_http_sandbox_key_slot_t  *slot;

    slot = set->slot;

    delay = set->cooldown;

    if (slot->generation == 0 && slot->failures < 12) {
        delay = ngx_min(delay, (ngx_msec_t) NGX_HTTP_SANDBOX_KEY_BACKOFF
                               << slot->failures);
    }

    set->work->next = ngx_current_msec + ngx_min(delay, set->interval);

    slot->failures++;

    if (slot->kind == kind
        && ngx_http_sandbox_key_age(slot->told)
           < (ngx_msec_int_t) set->interval)
    {
        return;
    }

    slot->kind = kind;
    slot->told = ngx_current_msec;

    if (slot->generation) {
        (void) ngx_snprintf(state, sizeof(state),
                            "the keys of %T s ago stay in use%Z",
                            ngx_time() - slot->fetched);
    } else {
        (void) ngx_snprintf(state, sizeof(state),
                            "there are no keys yet, who needs them gets 503%Z");
    }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "sandbox key set \"%V\" can't be fetched: %s; %s; %s",
                  &set->name, problem, remedy, state);
}
