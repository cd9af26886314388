/*
 * Names, tags and sizes of what a conversation's commands bring along, in the
 * shared zone; and which conversations of a user have anything on the disk, so
 * that the first command of a new one need not ask, either.  The disk is the
 * truth: each change of it by this nginx counts up a generation that its
 * conversation shares with some others, and what was learned under another one
 * is not believed.  A change that never ended, since its worker died, keeps
 * its generation from being used for a while; what somebody else did to the
 * disk is seen after as long.  Knows no request.
 */

#include "ngx_http_sandbox_known.h"


#define NGX_HTTP_SANDBOX_KNOWN_SLOTS   256       /* generations */
#define NGX_HTTP_SANDBOX_KNOWN_TIME    60000     /* ms */
#define NGX_HTTP_SANDBOX_KNOWN_MAX     (64 * 1024)   /* bytes of one */
#define NGX_HTTP_SANDBOX_KNOWN_SHARE   4         /* of the zone, 1 / this */

/* size, SHA-256, length of the name, then the name */

#define NGX_HTTP_SANDBOX_KNOWN_FIXED   (8 + SANDBOX_STORE_SHA256 + 1)

/* instead of a number of conversations: there are too many */

#define NGX_HTTP_SANDBOX_KNOWN_MANY    0xffff


typedef struct {
    uint32_t                       generation;
    uint32_t                       changing;     /* changes on their way */
    ngx_msec_t                     until;        /* they are believed */
} ngx_http_sandbox_known_slot_t;


typedef struct {
    ngx_rbtree_node_t              node;         /* key: head of it */
    ngx_queue_t                    queue;
    u_char                         key[SANDBOX_STORE_SHA256];
    ngx_msec_t                     until;        /* monotonic */
    size_t                         size;         /* bytes of data */
    uint32_t                       generation;
    uint16_t                       n;            /* of these, or of hashes */
    uint16_t                       attachments;
    u_char                         data[1];
} ngx_http_sandbox_known_node_t;


/* in the zone; no function of a module may be pointed to from there */

struct ngx_http_sandbox_known_s {
    ngx_rbtree_t                   rbtree;
    ngx_rbtree_node_t              sentinel;
    ngx_queue_t                    queue;        /* last used first */
    size_t                         bytes;
    size_t                         max;
    ngx_http_sandbox_known_slot_t *slots;
};


static ngx_int_t ngx_http_sandbox_known_name(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, ngx_http_sandbox_known_mark_t *mark);
static ngx_int_t ngx_http_sandbox_known_digest(const char *path,
    ngx_http_sandbox_known_place_t *place);
static void ngx_http_sandbox_known_mark(ngx_http_sandbox_known_t *known,
    ngx_http_sandbox_known_place_t *place);
static ngx_http_sandbox_known_slot_t *ngx_http_sandbox_known_slot(
    ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place);
static ngx_http_sandbox_known_node_t *ngx_http_sandbox_known_valid(
    ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place);
static ngx_uint_t ngx_http_sandbox_known_folder(
    const ngx_http_sandbox_known_node_t *kn, const char *conversation);
static ngx_http_sandbox_known_node_t *ngx_http_sandbox_known_add(
    ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_place_t *place, size_t size);
static void ngx_http_sandbox_known_begun(ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place);
static void ngx_http_sandbox_known_ended(ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place);
static ngx_http_sandbox_known_node_t *ngx_http_sandbox_known_lookup(
    ngx_http_sandbox_known_t *known, ngx_rbtree_key_t key);
static ngx_rbtree_key_t ngx_http_sandbox_known_key(const u_char *key);
static void ngx_http_sandbox_known_delete(ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_known_node_t *kn);
static ngx_int_t ngx_http_sandbox_known_read(const u_char *p, ngx_uint_t n,
    sandbox_store_list_t *list);


ngx_http_sandbox_known_t *
ngx_http_sandbox_known_create(ngx_slab_pool_t *shpool, size_t size)
{
    ngx_http_sandbox_known_t  *known;

    known = ngx_slab_calloc(shpool, sizeof(ngx_http_sandbox_known_t));
    if (known == NULL) {
        return NULL;
    }

    known->slots = ngx_slab_calloc(shpool,
                                   NGX_HTTP_SANDBOX_KNOWN_SLOTS
                                   * sizeof(ngx_http_sandbox_known_slot_t));
    if (known->slots == NULL) {
        ngx_slab_free(shpool, known);
        return NULL;
    }

    ngx_rbtree_init(&known->rbtree, &known->sentinel, ngx_rbtree_insert_value);
    ngx_queue_init(&known->queue);

    known->max = size / NGX_HTTP_SANDBOX_KNOWN_SHARE;

    return known;
}


ngx_int_t
ngx_http_sandbox_known_find(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, sandbox_store_list_t *list,
    ngx_uint_t *attachments, ngx_http_sandbox_known_mark_t *mark)
{
    ngx_uint_t                      n;
    ngx_http_sandbox_known_t       *known;
    ngx_http_sandbox_known_node_t  *kn;
    static u_char                   data[NGX_HTTP_SANDBOX_KNOWN_MAX];

    if (ngx_http_sandbox_known_name(zone, place, mark) != NGX_OK) {
        return NGX_DECLINED;
    }

    known = zone->known;

    ngx_shmtx_lock(&zone->shpool->mutex);

    ngx_http_sandbox_known_mark(known, &mark->conversation);
    ngx_http_sandbox_known_mark(known, &mark->user);

    kn = ngx_http_sandbox_known_valid(known, &mark->conversation);

    if (kn) {
        n = kn->n;
        *attachments = kn->attachments;

        ngx_memcpy(data, kn->data, kn->size);

        ngx_shmtx_unlock(&zone->shpool->mutex);

        return ngx_http_sandbox_known_read(data, n, list);
    }

    kn = ngx_http_sandbox_known_valid(known, &mark->user);

    if (kn && !ngx_http_sandbox_known_folder(kn, place->conversation)) {
        ngx_shmtx_unlock(&zone->shpool->mutex);

        *attachments = 0;

        return ngx_http_sandbox_known_read(data, 0, list);
    }

    mark->learn = (kn == NULL);

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return NGX_DECLINED;
}


void
ngx_http_sandbox_known_look(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, ngx_http_sandbox_known_mark_t *mark)
{
    if (ngx_http_sandbox_known_name(zone, place, mark) != NGX_OK) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    ngx_http_sandbox_known_mark(zone->known, &mark->conversation);

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


void
ngx_http_sandbox_known_keep(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_mark_t *mark,
    const sandbox_store_list_t *list, ngx_uint_t attachments)
{
    u_char                         *p;
    size_t                          i, size;
    sandbox_store_entry_t          *entry;
    ngx_http_sandbox_known_node_t  *kn;

    if (!mark->named) {
        return;
    }

    size = 0;

    for (i = 0; i < list->n; i++) {
        size += NGX_HTTP_SANDBOX_KNOWN_FIXED + list->entries[i].name_len;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    kn = ngx_http_sandbox_known_add(zone, &mark->conversation, size);

    if (kn) {
        kn->n = (uint16_t) list->n;
        kn->attachments = (uint16_t) attachments;

        p = kn->data;

        for (i = 0; i < list->n; i++) {
            entry = &list->entries[i];

            sandbox_put64(p, entry->size);
            p = ngx_cpymem(p + 8, entry->sha256, SANDBOX_STORE_SHA256);
            *p++ = (u_char) entry->name_len;
            p = ngx_cpymem(p, entry->name, entry->name_len);
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


void
ngx_http_sandbox_known_keep_folders(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_mark_t *mark, const uint64_t *folders,
    ngx_int_t n)
{
    size_t                          size;
    ngx_http_sandbox_known_node_t  *kn;

    if (!mark->named || !mark->learn || n < 0) {
        return;
    }

    size = (n > NGX_HTTP_SANDBOX_KNOWN_FOLDERS) ? 0 : n * sizeof(uint64_t);

    ngx_shmtx_lock(&zone->shpool->mutex);

    kn = ngx_http_sandbox_known_add(zone, &mark->user, size);

    if (kn) {
        kn->attachments = 0;
        kn->n = (n > NGX_HTTP_SANDBOX_KNOWN_FOLDERS)
                ? NGX_HTTP_SANDBOX_KNOWN_MANY : (uint16_t) n;

        ngx_memcpy(kn->data, folders, size);
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


void
ngx_http_sandbox_known_begin(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, ngx_http_sandbox_known_mark_t *mark)
{
    if (ngx_http_sandbox_known_name(zone, place, mark) != NGX_OK) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    ngx_http_sandbox_known_begun(zone->known, &mark->conversation);
    ngx_http_sandbox_known_begun(zone->known, &mark->user);

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


void
ngx_http_sandbox_known_end(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_mark_t *mark)
{
    if (!mark->named) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    ngx_http_sandbox_known_ended(zone->known, &mark->conversation);
    ngx_http_sandbox_known_ended(zone->known, &mark->user);

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


ngx_uint_t
ngx_http_sandbox_known_evict(ngx_http_sandbox_zone_t *zone)
{
    ngx_queue_t  *q;

    if (zone->known == NULL || ngx_queue_empty(&zone->known->queue)) {
        return 0;
    }

    q = ngx_queue_last(&zone->known->queue);

    ngx_http_sandbox_known_delete(zone,
                                  ngx_queue_data(q,
                                                 ngx_http_sandbox_known_node_t,
                                                 queue));

    return 1;
}


/* a place is where it is on the disk, whichever location leads there */

static ngx_int_t
ngx_http_sandbox_known_name(ngx_http_sandbox_zone_t *zone,
    const sandbox_store_place_t *place, ngx_http_sandbox_known_mark_t *mark)
{
    ngx_memzero(mark, sizeof(ngx_http_sandbox_known_mark_t));

    if (zone->known == NULL || place->conversation[0] == '\0'
        || ngx_http_sandbox_known_digest(place->conversation,
                                         &mark->conversation)
           != NGX_OK
        || ngx_http_sandbox_known_digest(place->user, &mark->user) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    mark->named = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_known_digest(const char *path,
    ngx_http_sandbox_known_place_t *place)
{
    if (EVP_Digest(path, ngx_strlen(path), place->key, NULL, EVP_sha256(),
                   NULL)
        != 1)
    {
        ERR_clear_error();
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_known_mark(ngx_http_sandbox_known_t *known,
    ngx_http_sandbox_known_place_t *place)
{
    ngx_http_sandbox_known_slot_t  *slot;

    slot = ngx_http_sandbox_known_slot(known, place);

    if (slot->changing
        && (ngx_msec_int_t) (ngx_current_msec - slot->until) >= 0)
    {
        /* what has not ended by now never will, or says so when it does */

        slot->changing = 0;
        slot->generation++;
    }

    place->generation = slot->generation;
    place->quiet = (slot->changing == 0);
}


static ngx_http_sandbox_known_slot_t *
ngx_http_sandbox_known_slot(ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place)
{
    return &known->slots[place->key[SANDBOX_STORE_SHA256 - 1]
                         % NGX_HTTP_SANDBOX_KNOWN_SLOTS];
}


static void
ngx_http_sandbox_known_begun(ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place)
{
    ngx_http_sandbox_known_slot_t  *slot;

    slot = ngx_http_sandbox_known_slot(known, place);

    slot->changing++;
    slot->until = ngx_current_msec + NGX_HTTP_SANDBOX_KNOWN_TIME;
}


static void
ngx_http_sandbox_known_ended(ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place)
{
    ngx_http_sandbox_known_slot_t  *slot;

    slot = ngx_http_sandbox_known_slot(known, place);

    slot->generation++;

    if (slot->changing) {
        slot->changing--;
    }
}


/* what is remembered of a place, if that is still to be believed */

static ngx_http_sandbox_known_node_t *
ngx_http_sandbox_known_valid(ngx_http_sandbox_known_t *known,
    const ngx_http_sandbox_known_place_t *place)
{
    ngx_http_sandbox_known_node_t  *kn;

    kn = ngx_http_sandbox_known_lookup(known,
                                     ngx_http_sandbox_known_key(place->key));

    if (kn == NULL || !place->quiet || kn->generation != place->generation
        || (ngx_msec_int_t) (ngx_current_msec - kn->until) >= 0
        || ngx_memcmp(kn->key, place->key, SANDBOX_STORE_SHA256) != 0)
    {
        return NULL;
    }

    ngx_queue_remove(&kn->queue);
    ngx_queue_insert_head(&known->queue, &kn->queue);

    return kn;
}


/* 1: that conversation may be among them */

static ngx_uint_t
ngx_http_sandbox_known_folder(const ngx_http_sandbox_known_node_t *kn,
    const char *conversation)
{
    uint64_t    hash;
    ngx_uint_t  i;

    if (kn->n == NGX_HTTP_SANDBOX_KNOWN_MANY) {
        return 1;
    }

    hash = sandbox_store_folder_hash(strrchr(conversation, '/') + 1);

    for (i = 0; i < kn->n; i++) {
        if (ngx_memcmp(kn->data + i * sizeof(uint64_t), &hash,
                       sizeof(uint64_t))
            == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* room for what was learned of a place, unless it has changed since */

static ngx_http_sandbox_known_node_t *
ngx_http_sandbox_known_add(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_known_place_t *place, size_t size)
{
    size_t                          whole;
    ngx_http_sandbox_known_t       *known;
    ngx_http_sandbox_known_node_t  *kn;
    ngx_http_sandbox_known_slot_t  *slot;

    known = zone->known;
    slot = ngx_http_sandbox_known_slot(known, place);
    whole = offsetof(ngx_http_sandbox_known_node_t, data) + size;

    if (!place->quiet || slot->generation != place->generation
        || slot->changing || size > NGX_HTTP_SANDBOX_KNOWN_MAX
        || whole > known->max)
    {
        return NULL;
    }

    kn = ngx_http_sandbox_known_lookup(known,
                                     ngx_http_sandbox_known_key(place->key));
    if (kn) {
        ngx_http_sandbox_known_delete(zone, kn);
    }

    while (known->bytes + whole > known->max) {
        if (!ngx_http_sandbox_known_evict(zone)) {
            break;
        }
    }

    kn = ngx_slab_alloc_locked(zone->shpool, whole);

    if (kn == NULL && ngx_http_sandbox_known_evict(zone)) {
        kn = ngx_slab_alloc_locked(zone->shpool, whole);
    }

    if (kn == NULL) {
        return NULL;
    }

    ngx_memcpy(kn->key, place->key, SANDBOX_STORE_SHA256);

    kn->node.key = ngx_http_sandbox_known_key(place->key);
    kn->until = ngx_current_msec + NGX_HTTP_SANDBOX_KNOWN_TIME;
    kn->size = size;
    kn->generation = place->generation;

    ngx_rbtree_insert(&known->rbtree, &kn->node);
    ngx_queue_insert_head(&known->queue, &kn->queue);

    known->bytes += whole;

    return kn;
}


static ngx_http_sandbox_known_node_t *
ngx_http_sandbox_known_lookup(ngx_http_sandbox_known_t *known,
    ngx_rbtree_key_t key)
{
    ngx_rbtree_node_t  *node, *sentinel;

    node = known->rbtree.root;
    sentinel = known->rbtree.sentinel;

    while (node != sentinel) {

        if (key == node->key) {
            return (ngx_http_sandbox_known_node_t *) node;
        }

        node = (key < node->key) ? node->left : node->right;
    }

    return NULL;
}


static ngx_rbtree_key_t
ngx_http_sandbox_known_key(const u_char *key)
{
    ngx_rbtree_key_t  head;

    ngx_memcpy(&head, key, sizeof(ngx_rbtree_key_t));

    return head;
}


/* names of people's files do not stay behind in memory that is free */

static void
ngx_http_sandbox_known_delete(ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_known_node_t *kn)
{
    size_t                     whole;
    ngx_http_sandbox_known_t  *known;

    known = zone->known;
    whole = offsetof(ngx_http_sandbox_known_node_t, data) + kn->size;

    ngx_rbtree_delete(&known->rbtree, &kn->node);
    ngx_queue_remove(&kn->queue);

    known->bytes -= whole;

    ngx_explicit_memzero(kn, whole);

    ngx_slab_free_locked(zone->shpool, kn);
}


static ngx_int_t
ngx_http_sandbox_known_read(const u_char *p, ngx_uint_t n,
    sandbox_store_list_t *list)
{
    ngx_uint_t              i;
    sandbox_store_entry_t  *entry;

    sandbox_store_list_free(list);

    if (n == 0) {
        return NGX_OK;
    }

    list->entries = calloc(n, sizeof(sandbox_store_entry_t));
    if (list->entries == NULL) {
        return NGX_DECLINED;
    }

    list->n = n;

    for (i = 0; i < n; i++) {
        entry = &list->entries[i];

        entry->size = sandbox_get64(p);
        ngx_memcpy(entry->sha256, p + 8, SANDBOX_STORE_SHA256);
        p += 8 + SANDBOX_STORE_SHA256;

        entry->name_len = *p++;
        ngx_memcpy(entry->name, p, entry->name_len);
        p += entry->name_len;
    }

    return NGX_OK;
}
