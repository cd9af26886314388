/*
 * Verified tokens in shared memory.  Of ngx_http_sandbox.h, whose types it
 * needs and which includes it.
 */

#ifndef _NGX_HTTP_SANDBOX_CACHE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_CACHE_H_INCLUDED_


/* of the cache of verified tokens, since the zone was made */

typedef struct {
    uint64_t                       hits;
    uint64_t                       misses;
    uint64_t                       evictions;    /* for want of room */
    uint64_t                       refused;      /* there was no room */
    uint64_t                       entries;      /* now */
    uint64_t                       bytes;        /* now */
} ngx_http_sandbox_counters_t;


/* ngx_http_sandbox_cache.c: verified tokens, by a digest */

/* In shared memory, of at most half of `size`; NULL: no room. */
ngx_http_sandbox_cache_t *ngx_http_sandbox_cache_create(
    ngx_slab_pool_t *shpool, size_t size);

/* NGX_DECLINED: not there, or no longer good.  NGX_ERROR: no memory. */
ngx_int_t ngx_http_sandbox_cache_find(ngx_http_sandbox_zone_t *zone,
    const u_char *digest, ngx_pool_t *pool,
    ngx_http_sandbox_principal_t *principal);

/* Works without memory: then it is not kept. */
void ngx_http_sandbox_cache_add(ngx_http_sandbox_zone_t *zone,
    const u_char *digest, ngx_http_sandbox_principal_t *principal);

/* With the mutex locked: makes room, least used first; 0 if there is none. */
ngx_uint_t ngx_http_sandbox_cache_evict(ngx_http_sandbox_zone_t *zone);

void ngx_http_sandbox_cache_read(const ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_counters_t *counters);


#endif /* _NGX_HTTP_SANDBOX_CACHE_H_INCLUDED_ */
