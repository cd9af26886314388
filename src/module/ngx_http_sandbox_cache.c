/*
 * Verified tokens in the shared zone: of whom a token speaks, for as long as
 * it holds.  A cache, of at most half of the zone: what is not found here is
 * verified again.  Sees digests, never a token; knows no HTTP.
 */

#include "ngx_http_sandbox_known.h"


/* who was locked out at the issuer is so here, too, after as long */

#define NGX_HTTP_SANDBOX_CACHE_TIME    (300 * 1000)
#define NGX_HTTP_SANDBOX_CACHE_TRIES   32          /* evictions for one */

#define NGX_HTTP_SANDBOX_CACHE_FIELDS  4
#define NGX_HTTP_SANDBOX_CACHE_ABSENT  0xffff

#define NGX_HTTP_SANDBOX_CACHE_MAX                                           \
    (SANDBOX_JOSE_MAX_ISSUER + 2 * SANDBOX_JOSE_MAX_NAME                     \
     + NGX_HTTP_SANDBOX_MAX_CONVERSATION)


typedef struct {
    ngx_rbtree_node_t              node;         /* key: head of digest */
    ngx_queue_t                    queue;
    u_char                         digest[SANDBOX_JOSE_SESSION_SIZE];
    int64_t                        expires;      /* by the clock */
    ngx_msec_t                     until;        /* monotonic */
    size_t                         size;         /* of all of this */
    ngx_uint_t                     permissions;
    uint16_t                       len[NGX_HTTP_SANDBOX_CACHE_FIELDS];
    u_char                         data[1];
} ngx_http_sandbox_cache_node_t;


/* in the zone; no function of a module may be pointed to from there */

struct ngx_http_sandbox_cache_s {
    ngx_rbtree_t                   rbtree;
    ngx_rbtree_node_t              sentinel;
    ngx_queue_t                    queue;        /* last used first */
    size_t                         max;          /* bytes */
    ngx_http_sandbox_counters_t    counters;
};


static ngx_http_sandbox_cache_node_t *ngx_http_sandbox_cache_lookup(
    ngx_http_sandbox_cache_t *cache, ngx_rbtree_key_t key);
static void ngx_http_sandbox_cache_delete(ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_cache_node_t *cn);
static void ngx_http_sandbox_cache_expire(ngx_http_sandbox_zone_t *zone);
static ngx_uint_t ngx_http_sandbox_cache_over(
    const ngx_http_sandbox_cache_node_t *cn);
static ngx_rbtree_key_t ngx_http_sandbox_cache_key(const u_char *digest);
static size_t ngx_http_sandbox_cache_room(size_t size);
static void ngx_http_sandbox_cache_fields(
    ngx_http_sandbox_principal_t *principal, ngx_str_t **field);


ngx_http_sandbox_cache_t *
ngx_http_sandbox_cache_create(ngx_slab_pool_t *shpool, size_t size)
{
    ngx_http_sandbox_cache_t  *cache;

    cache = ngx_slab_calloc(shpool, sizeof(ngx_http_sandbox_cache_t));
    if (cache == NULL) {
        return NULL;
    }

    ngx_rbtree_init(&cache->rbtree, &cache->sentinel, ngx_rbtree_insert_value);
    ngx_queue_init(&cache->queue);

    cache->max = size / 2;

    return cache;
}


ngx_int_t
ngx_http_sandbox_cache_find(ngx_http_sandbox_zone_t *zone,
    const u_char *digest, ngx_pool_t *pool,
    ngx_http_sandbox_principal_t *principal)
{
    u_char                         *p;
    size_t                          size;
    uint16_t                        len[NGX_HTTP_SANDBOX_CACHE_FIELDS];
    ngx_str_t                      *field[NGX_HTTP_SANDBOX_CACHE_FIELDS];
    ngx_uint_t                      i;
    ngx_http_sandbox_cache_t       *cache;
    ngx_http_sandbox_cache_node_t  *cn;
    u_char                          data[NGX_HTTP_SANDBOX_CACHE_MAX];

    cache = zone->cache;

    ngx_shmtx_lock(&zone->shpool->mutex);

    cn = ngx_http_sandbox_cache_lookup(cache,
                                       ngx_http_sandbox_cache_key(digest));

    if (cn && ngx_http_sandbox_cache_over(cn)) {
        ngx_http_sandbox_cache_delete(zone, cn);
        cn = NULL;
    }

    if (cn == NULL
        || ngx_memcmp(cn->digest, digest, SANDBOX_JOSE_SESSION_SIZE) != 0)
    {
        cache->counters.misses++;
        ngx_shmtx_unlock(&zone->shpool->mutex);
        return NGX_DECLINED;
    }

    ngx_queue_remove(&cn->queue);
    ngx_queue_insert_head(&cache->queue, &cn->queue);

    cache->counters.hits++;

    size = cn->size - offsetof(ngx_http_sandbox_cache_node_t, data);

    ngx_memcpy(data, cn->data, size);
    ngx_memcpy(len, cn->len, sizeof(len));

    principal->permissions = cn->permissions;
    principal->expires = cn->expires;

    ngx_shmtx_unlock(&zone->shpool->mutex);

    /* a byte more: there is a pointer also to a name of no length */

    p = ngx_pnalloc(pool, size + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, data, size);

    ngx_http_sandbox_cache_fields(principal, field);

    for (i = 0; i < NGX_HTTP_SANDBOX_CACHE_FIELDS; i++) {

        if (len[i] == NGX_HTTP_SANDBOX_CACHE_ABSENT) {
            ngx_str_null(field[i]);
            continue;
        }

        field[i]->data = p;
        field[i]->len = len[i];
        p += len[i];
    }

    return NGX_OK;
}


void
ngx_http_sandbox_cache_add(ngx_http_sandbox_zone_t *zone,
    const u_char *digest, ngx_http_sandbox_principal_t *principal)
{
    u_char                         *p;
    size_t                          size, room;
    ngx_str_t                      *field[NGX_HTTP_SANDBOX_CACHE_FIELDS];
    ngx_uint_t                      i;
    ngx_rbtree_key_t                key;
    ngx_http_sandbox_cache_t       *cache;
    ngx_http_sandbox_cache_node_t  *cn;

    cache = zone->cache;
    key = ngx_http_sandbox_cache_key(digest);

    ngx_http_sandbox_cache_fields(principal, field);

    size = offsetof(ngx_http_sandbox_cache_node_t, data);

    for (i = 0; i < NGX_HTTP_SANDBOX_CACHE_FIELDS; i++) {
        size += field[i]->len;
    }

    if (size > offsetof(ngx_http_sandbox_cache_node_t, data)
               + NGX_HTTP_SANDBOX_CACHE_MAX)
    {
        return;
    }

    room = ngx_http_sandbox_cache_room(size);

    ngx_shmtx_lock(&zone->shpool->mutex);

    /* another worker was faster, or 64 bits of two digests are the same */

    cn = ngx_http_sandbox_cache_lookup(cache, key);

    if (cn) {
        ngx_http_sandbox_cache_delete(zone, cn);
    }

    ngx_http_sandbox_cache_expire(zone);

    while (cache->counters.bytes + room > cache->max) {
        if (!ngx_http_sandbox_cache_evict(zone)) {
            break;
        }
    }

    cn = ngx_slab_alloc_locked(zone->shpool, size);

    /* what one of another size leaves is often no room for this one */

    for (i = 0; cn == NULL && i < NGX_HTTP_SANDBOX_CACHE_TRIES; i++) {

        if (!ngx_http_sandbox_cache_evict(zone)) {
            break;
        }

        cn = ngx_slab_alloc_locked(zone->shpool, size);
    }

    if (cn == NULL) {
        cache->counters.refused++;
        ngx_shmtx_unlock(&zone->shpool->mutex);
        return;
    }

    ngx_memcpy(cn->digest, digest, SANDBOX_JOSE_SESSION_SIZE);

    cn->node.key = key;
    cn->expires = principal->expires;
    cn->until = ngx_current_msec + NGX_HTTP_SANDBOX_CACHE_TIME;
    cn->size = size;
    cn->permissions = principal->permissions;

    p = cn->data;

    for (i = 0; i < NGX_HTTP_SANDBOX_CACHE_FIELDS; i++) {

        if (field[i]->data == NULL) {
            cn->len[i] = NGX_HTTP_SANDBOX_CACHE_ABSENT;
            continue;
        }

        cn->len[i] = (uint16_t) field[i]->len;
        p = ngx_cpymem(p, field[i]->data, field[i]->len);
    }

    ngx_rbtree_insert(&cache->rbtree, &cn->node);
    ngx_queue_insert_head(&cache->queue, &cn->queue);

    cache->counters.entries++;
    cache->counters.bytes += room;

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


void
ngx_http_sandbox_cache_read(const ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_counters_t *counters)
{
    ngx_shmtx_lock(&zone->shpool->mutex);

    *counters = zone->cache->counters;

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


static ngx_http_sandbox_cache_node_t *
ngx_http_sandbox_cache_lookup(ngx_http_sandbox_cache_t *cache,
    ngx_rbtree_key_t key)
{
    ngx_rbtree_node_t  *node, *sentinel;

    node = cache->rbtree.root;
    sentinel = cache->rbtree.sentinel;

    while (node != sentinel) {

        if (key == node->key) {
            return (ngx_http_sandbox_cache_node_t *) node;
        }

        node = (key < node->key) ? node->left : node->right;
    }

    return NULL;
}


/* names of people do not stay behind in memory that is free */

static void
ngx_http_sandbox_cache_delete(ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_cache_node_t *cn)
{
    ngx_http_sandbox_cache_t  *cache;

    cache = zone->cache;

    ngx_rbtree_delete(&cache->rbtree, &cn->node);
    ngx_queue_remove(&cn->queue);

    cache->counters.entries--;
    cache->counters.bytes -= ngx_http_sandbox_cache_room(cn->size);

    ngx_explicit_memzero(cn, cn->size);

    ngx_slab_free_locked(zone->shpool, cn);
}


/* two for each that comes: what nobody asks for goes without a timer */

static void
ngx_http_sandbox_cache_expire(ngx_http_sandbox_zone_t *zone)
{
    ngx_uint_t                      i;
    ngx_queue_t                    *q;
    ngx_http_sandbox_cache_node_t  *cn;

    for (i = 0; i < 2 && !ngx_queue_empty(&zone->cache->queue); i++) {

        q = ngx_queue_last(&zone->cache->queue);
        cn = ngx_queue_data(q, ngx_http_sandbox_cache_node_t, queue);

        if (!ngx_http_sandbox_cache_over(cn)) {
            return;
        }

        ngx_http_sandbox_cache_delete(zone, cn);
    }
}


ngx_uint_t
ngx_http_sandbox_cache_evict(ngx_http_sandbox_zone_t *zone)
{
    ngx_queue_t  *q;

    if (ngx_queue_empty(&zone->cache->queue)) {
        return ngx_http_sandbox_known_evict(zone);
    }

    q = ngx_queue_last(&zone->cache->queue);

    ngx_http_sandbox_cache_delete(zone,
                                  ngx_queue_data(q,
                                                 ngx_http_sandbox_cache_node_t,
                                                 queue));

    zone->cache->counters.evictions++;

    return 1;
}


static ngx_uint_t
ngx_http_sandbox_cache_over(const ngx_http_sandbox_cache_node_t *cn)
{
    return (int64_t) ngx_time() >= cn->expires
           || (ngx_msec_int_t) (ngx_current_msec - cn->until) >= 0;
}


static ngx_rbtree_key_t
ngx_http_sandbox_cache_key(const u_char *digest)
{
    ngx_rbtree_key_t  key;

    ngx_memcpy(&key, digest, sizeof(ngx_rbtree_key_t));

    return key;
}


/* what the slab allocator takes for it */

static size_t
ngx_http_sandbox_cache_room(size_t size)
{
    size_t  room;

    if (size > ngx_pagesize / 2) {
        return (size + ngx_pagesize - 1) & ~(ngx_pagesize - 1);
    }

    for (room = 8; room < size; room *= 2) { /* void */ }

    return room;
}


static void
ngx_http_sandbox_cache_fields(ngx_http_sandbox_principal_t *principal,
    ngx_str_t **field)
{
    field[0] = &principal->issuer;
    field[1] = &principal->tenant;
    field[2] = &principal->user;
    field[3] = &principal->conversation;
}
