/*
 * What commands of a conversation are to bring along, as the zone remembers
 * it, so that none has to ask the disk.
 */

#ifndef _NGX_HTTP_SANDBOX_KNOWN_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_KNOWN_H_INCLUDED_


#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_KNOWN_FOLDERS  256      /* conversations of a user */


/* a folder, and what of it had happened by then */

typedef struct {
    u_char                         key[SANDBOX_STORE_SHA256];
    uint32_t                       generation;
    unsigned                       quiet:1;      /* nobody changes it now */
} ngx_http_sandbox_known_place_t;


typedef struct {
    ngx_http_sandbox_known_place_t conversation;
    ngx_http_sandbox_known_place_t user;         /* what conversations are */
    unsigned                       named:1;      /* there are keys */
    unsigned                       learn:1;      /* ..._keep_folders() */
} ngx_http_sandbox_known_mark_t;


/* When the zone is made; NULL: no room, and then nothing is remembered. */
ngx_http_sandbox_known_t *ngx_http_sandbox_known_create(
    ngx_slab_pool_t *shpool, size_t size);

/*
 * NGX_OK: the list (of malloc(), for sandbox_store_list_free()), attachments
 * first, and no notices.  NGX_DECLINED: the disk is to be asked.  *mark is
 * for ngx_http_sandbox_known_keep() in any case.
 */
ngx_int_t ngx_http_sandbox_known_find(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, sandbox_store_list_t *list,
    ngx_uint_t *attachments, ngx_http_sandbox_known_mark_t *mark);

/*
 * What conversations there are on the disk, if mark->learn: as told by
 * sandbox_store_folders(), NGX_HTTP_SANDBOX_KNOWN_FOLDERS at most.  A
 * conversation that is not among them has nothing to bring along.
 */
void ngx_http_sandbox_known_keep_folders(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_mark_t *mark, const uint64_t *folders,
    ngx_int_t n);

/* *mark only, before the disk is asked. */
void ngx_http_sandbox_known_look(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, ngx_http_sandbox_known_mark_t *mark);

/* What the disk said, unless something has changed since the mark. */
void ngx_http_sandbox_known_keep(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_mark_t *mark,
    const sandbox_store_list_t *list, ngx_uint_t attachments);

/* Around each change, before it begins and when it is on the disk. */
void ngx_http_sandbox_known_begin(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, ngx_http_sandbox_known_mark_t *mark);
void ngx_http_sandbox_known_end(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_mark_t *mark);

/* With the mutex locked: forgets one; 0 if there is none. */
ngx_uint_t ngx_http_sandbox_known_evict(ngx_http_sandbox_zone_t *zone);


#endif /* _NGX_HTTP_SANDBOX_KNOWN_H_INCLUDED_ */
