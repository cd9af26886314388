/*
 * GET v1/conversations: names and order are the store's, read in a thread;
 * states are the runner's, asked for with one operation for the whole page,
 * or what the backend remembers of them.
 */

#include "ngx_http_sandbox_conversations.h"
#include "ngx_http_sandbox_records.h"
#include "sandbox_store_conversations.h"


#define NGX_HTTP_SANDBOX_CONVERSATIONS_LIMIT   100
#define NGX_HTTP_SANDBOX_CONVERSATIONS_RECORD  4096

/* the most room for one of them, and for all of a page */

#define NGX_HTTP_SANDBOX_CONVERSATIONS_ENTRY   1024
#define NGX_HTTP_SANDBOX_CONVERSATIONS_SIZE                                  \
    (SANDBOX_STORE_MAX_LIST * (NGX_HTTP_SANDBOX_CONVERSATIONS_ENTRY          \
                               + sizeof(ngx_buf_t)) + 65536)

/* what no hour is: the same one, after its DELETE */

#define ngx_http_sandbox_mark_dropped(value)                                  \
    (((value) & ~(ngx_atomic_uint_t) 0xff) | 0x80)


struct ngx_http_sandbox_conversations_s {
    size_t                         limit;
    sandbox_store_conversation_t   after;
    sandbox_store_conversations_t  list;
    u_char                        *sessions;     /* in the list's order */
    ngx_uint_t                     next;         /* of the list, to be told */
    ngx_uint_t                     told;
    ngx_http_sandbox_records_t     records;
    u_char                         record[
                                     NGX_HTTP_SANDBOX_CONVERSATIONS_RECORD];
    unsigned                       page:1;       /* there is an `after` */
};


#if (NGX_THREADS)

/* outlives its request */

typedef struct {
    sandbox_store_place_t          place;
    sandbox_store_fault_t          fault;
    ngx_pool_t                    *pool;
    ngx_atomic_t                  *mark;
    ngx_atomic_uint_t              dropped;      /* there after a DELETE */
    uint64_t                       limit;        /* of the tenant's bytes */
} ngx_http_sandbox_mark_t;

static void ngx_http_sandbox_mark_thread(void *data, ngx_log_t *log);
static void ngx_http_sandbox_mark_done(ngx_event_t *ev);

#endif

static ngx_atomic_t *ngx_http_sandbox_mark_of(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_atomic_uint_t *value);
static ngx_int_t ngx_http_sandbox_conversations_page(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_conversations_cursor(ngx_str_t *text,
    sandbox_store_conversation_t *after);
static void ngx_http_sandbox_conversations_cleanup(void *data);
static void ngx_http_sandbox_conversations_list(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_conversations_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_conversations_ask(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_conversations_known(ngx_http_request_t *r,
    ngx_http_sandbox_conversations_t *list);
static const char *ngx_http_sandbox_conversations_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static const char *ngx_http_sandbox_conversations_record(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_conversations_entry(
    ngx_http_request_t *r, ngx_http_sandbox_conversations_t *list,
    sandbox_store_conversation_t *entry, ngx_http_sandbox_result_t *result);
static ngx_int_t ngx_http_sandbox_conversations_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


ngx_int_t
ngx_http_sandbox_conversations_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                          rc;
    ngx_pool_cleanup_t                *cln;
    ngx_http_sandbox_loc_conf_t       *slcf;
    ngx_http_sandbox_store_op_t       *op;
    ngx_http_sandbox_conversations_t  *list;

    static const ngx_str_t  any = ngx_string("-");

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->store == NULL) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_NOT_IMPLEMENTED, "no_store",
                                "This server keeps no list of conversations: "
                                "it has no \"sandbox_store\".");
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    cln = ngx_pool_cleanup_add(r->pool,
                               sizeof(ngx_http_sandbox_conversations_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    list = cln->data;
    ngx_memzero(list, sizeof(ngx_http_sandbox_conversations_t));
    cln->handler = ngx_http_sandbox_conversations_cleanup;
    ctx->conversations = list;

    if (ngx_http_sandbox_conversations_page(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_FILES,
                                   ngx_http_sandbox_conversations_listed);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* of the place only the user's part is of interest */

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK
        || ngx_http_sandbox_store_place(r, ctx, &any, &op->place) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->data = list;

    if (ngx_http_sandbox_store_look(op, ngx_http_sandbox_conversations_list)
        != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_conversations_page(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                           n;
    ngx_str_t                          value;
    ngx_http_sandbox_conversations_t  *list;

    list = ctx->conversations;
    n = NGX_HTTP_SANDBOX_CONVERSATIONS_LIMIT;

    if (ngx_http_sandbox_argument(r, "limit", &value) == NGX_OK
        && (ngx_http_sandbox_decimal(&value, SANDBOX_STORE_MAX_LIST, &n)
            != NGX_OK
            || n == 0))
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"limit\" must be a number from 1 to 1000.");
        return NGX_DECLINED;
    }

    list->limit = (size_t) n;

    if (ngx_http_sandbox_argument(r, "cursor", &value) != NGX_OK) {
        return NGX_OK;
    }

    list->page = 1;

    if (ngx_http_sandbox_conversations_cursor(&value, &list->after)
        != NGX_OK)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"cursor\" must be the \"next\" of an "
                                "answer.");
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* base64url of 8 bytes of time and the id */

static ngx_int_t
ngx_http_sandbox_conversations_cursor(ngx_str_t *text,
    sandbox_store_conversation_t *after)
{
    u_char     buffer[8 + SANDBOX_STORE_MAX_CONVERSATION + 4];
    ngx_str_t  value;

    value.data = buffer;

    if (text->len > ngx_base64_encoded_length(
                                          8 + SANDBOX_STORE_MAX_CONVERSATION)
        || ngx_decode_base64url(&value, text) != NGX_OK
        || value.len <= 8 || value.len > 8 + SANDBOX_STORE_MAX_CONVERSATION)
    {
        return NGX_DECLINED;
    }

    after->created_ns = sandbox_get64(value.data);
    after->name_len = (unsigned) (value.len - 8);
    ngx_memcpy(after->name, value.data + 8, after->name_len);

    return NGX_OK;
}


static void
ngx_http_sandbox_conversations_cleanup(void *data)
{
    ngx_http_sandbox_conversations_t *list = data;

    free(list->list.entries);
}


/* in a thread */

static void
ngx_http_sandbox_conversations_list(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_conversations_t *list = op->data;

    (void) sandbox_store_conversations(&op->place,
                                       list->page ? &list->after : NULL,
                                       list->limit, &list->list, &op->fault);
}


static void
ngx_http_sandbox_conversations_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_int_t                          rc;
    ngx_http_sandbox_loc_conf_t       *slcf;
    ngx_http_sandbox_conversations_t  *list;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    list = ctx->conversations;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    rc = ngx_http_sandbox_conversations_ask(r, ctx);

    if (rc == NGX_OK && slcf->backend->hooks->listed) {
        rc = ngx_http_sandbox_conversations_known(r, list);
    }

    if (rc == NGX_OK && list->next == list->list.n) {

        rc = ngx_http_sandbox_conversations_render(r, ctx);

        if (rc == NGX_OK) {
            rc = ngx_http_sandbox_send_answer(r, ctx);
            ngx_http_finalize_request(r, rc);
            return;
        }
    }

    if (rc != NGX_OK || slcf->backend->start(r, ctx) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


/* SESSIONS for the page; of a token for one conversation only that counts */

static ngx_int_t
ngx_http_sandbox_conversations_ask(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                            *p;
    ngx_str_t                          own;
    ngx_uint_t                         i, n;
    sandbox_writer_t                   w;
    ngx_http_sandbox_loc_conf_t       *slcf;
    sandbox_store_conversation_t      *entry;
    ngx_http_sandbox_conversations_t  *list;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    list = ctx->conversations;
    entry = list->list.entries;

    list->records.in.max = NGX_HTTP_SANDBOX_CONVERSATIONS_RECORD;
    list->records.limit = NGX_HTTP_SANDBOX_CONVERSATIONS_SIZE;
    list->records.opening = "{\"conversations\":[";
    list->records.in.data = list->record;

    if (slcf->conversation_claim.path) {
        own = ctx->principal.conversation;

        for (i = 0, n = 0; i < list->list.n; i++) {
            if (entry[i].name_len == own.len
                && ngx_memcmp(entry[i].name, own.data, own.len) == 0)
            {
                entry[n++] = entry[i];
            }
        }

        list->list.n = n;
        list->list.more &= (n == 0);
    }

    n = list->list.n;

    if (n == 0) {
        return NGX_OK;
    }

    list->sessions = ngx_pnalloc(r->pool, n * SANDBOX_WIRE_SESSION_SIZE);

    if (list->sessions == NULL
        || ngx_http_sandbox_head_begin(r, ctx, &w,
                                       n * (SANDBOX_WIRE_FIELD_SIZE
                                            + SANDBOX_WIRE_SESSION_SIZE))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0, p = list->sessions; i < n; i++) {
        ctx->conversation.data = (u_char *) entry[i].name;
        ctx->conversation.len = entry[i].name_len;

        if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        p = ngx_cpymem(p, ctx->session, SANDBOX_WIRE_SESSION_SIZE);
        sandbox_write_bytes(&w, SANDBOX_TAG_SESSION, ctx->session,
                            SANDBOX_WIRE_SESSION_SIZE);
    }

    ngx_str_null(&ctx->conversation);
    ngx_memzero(ctx->session, SANDBOX_WIRE_SESSION_SIZE);

    ctx->wire.head.len = w.pos - w.start;
    ctx->wire.operation = SANDBOX_OPERATION_SESSIONS;
    ctx->wire.render = ngx_http_sandbox_conversations_render;
    ctx->wire.data = ngx_http_sandbox_conversations_data;

    return NGX_OK;
}


/* a mark says that there was a sandbox, and it stays until it is deleted */

static ngx_int_t
ngx_http_sandbox_conversations_known(ngx_http_request_t *r,
    ngx_http_sandbox_conversations_t *list)
{
    u_char                        *p;
    time_t                         used;
    ngx_buf_t                     *b;
    ngx_str_t                      name;
    ngx_http_sandbox_loc_conf_t   *slcf;
    sandbox_store_conversation_t  *entry;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    for ( /* void */ ; list->next < list->list.n; list->next++) {

        entry = &list->list.entries[list->next];
        used = slcf->backend->hooks->listed(r, list->sessions
                                               + list->next
                                                 * SANDBOX_WIRE_SESSION_SIZE);

        if (used == -1 && !entry->marked) {

            if (ngx_http_sandbox_conversations_entry(r, list, entry, NULL)) {
                return NGX_ERROR;
            }

            continue;
        }

        b = ngx_http_sandbox_records_room(r, &list->records,
                                          NGX_HTTP_SANDBOX_CONVERSATIONS_ENTRY);
        if (b == NULL) {
            return NGX_ERROR;
        }

        name.data = (u_char *) entry->name;
        name.len = entry->name_len;

        p = ngx_sprintf(b->last, "%s{\"conversationId\":\"%V\","
                        "\"state\":\"idle\",\"createdAt\":",
                        list->told++ ? "," : "", &name);
        p = ngx_http_sandbox_time(p, entry->created_ns / 1000000);

        if (used != -1) {
            p = ngx_sprintf(p, ",\"lastUsedAt\":");
            p = ngx_http_sandbox_time(p, (uint64_t) used * 1000);
        }

        *p++ = '}';
        b->last = p;
    }

    return NGX_OK;
}


static const char *
ngx_http_sandbox_conversations_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    return ngx_http_sandbox_records_data(r, ctx, &ctx->conversations->records,
                                         ngx_http_sandbox_conversations_record,
                                         p, n);
}


/* they come in the order of the list; those between have no sandbox */

static const char *
ngx_http_sandbox_conversations_record(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t                         i;
    const char                        *what;
    const uint8_t                     *session;
    ngx_http_sandbox_result_t          result;
    ngx_http_sandbox_conversations_t  *list;

    list = ctx->conversations;

    ngx_memzero(&result, sizeof(ngx_http_sandbox_result_t));

    what = ngx_http_sandbox_result_read(&result, list->record,
                                        list->records.in.size);
    if (what) {
        return what;
    }

    session = sandbox_record_session(list->record, list->records.in.size);

    if (session == NULL) {
        return "a record of no session";
    }

    for (i = list->next; i < list->list.n; i++) {

        if (ngx_memcmp(list->sessions + i * SANDBOX_WIRE_SESSION_SIZE,
                       session, SANDBOX_WIRE_SESSION_SIZE)
            == 0)
        {
            list->next = i + 1;

            return ngx_http_sandbox_conversations_entry(r, list,
                                                    &list->list.entries[i],
                                                    &result);
        }

        what = ngx_http_sandbox_conversations_entry(r, list,
                                                    &list->list.entries[i],
                                                    NULL);
        if (what) {
            return what;
        }
    }

    return "a session that it was not asked for";
}


/* result NULL: there is no sandbox; without files neither is there anything */

static const char *
ngx_http_sandbox_conversations_entry(ngx_http_request_t *r,
    ngx_http_sandbox_conversations_t *list,
    sandbox_store_conversation_t *entry, ngx_http_sandbox_result_t *result)
{
    u_char     *p;
    ngx_buf_t  *b;
    ngx_str_t   name;

    if (result == NULL && !entry->files) {
        return NULL;
    }

    b = ngx_http_sandbox_records_room(r, &list->records,
                                      NGX_HTTP_SANDBOX_CONVERSATIONS_ENTRY);
    if (b == NULL) {
        return "more sessions than there is room for";
    }

    /* an id has nothing in it that JSON would escape */

    name.data = (u_char *) entry->name;
    name.len = entry->name_len;

    p = b->last;

    if (list->told++) {
        *p++ = ',';
    }

    p = ngx_sprintf(p, "{\"conversationId\":\"%V\",", &name);

    if (result == NULL) {
        p = ngx_sprintf(p, "\"state\":\"none\"}");

    } else {
        p = ngx_http_sandbox_render_sandbox(p, result);
        *p++ = '}';
    }

    b->last = p;

    return NULL;
}


static ngx_int_t
ngx_http_sandbox_conversations_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                             buffer[8
                                              + SANDBOX_STORE_MAX_CONVERSATION];
    ngx_buf_t                         *b;
    ngx_str_t                          next, value;
    ngx_chain_t                       *cl;
    sandbox_store_conversation_t      *last;
    ngx_http_sandbox_conversations_t  *list;

    list = ctx->conversations;

    for ( /* void */ ; list->next < list->list.n; list->next++) {
        if (ngx_http_sandbox_conversations_entry(r, list,
                                           &list->list.entries[list->next],
                                           NULL))
        {
            return NGX_ERROR;
        }
    }

    b = ngx_http_sandbox_records_room(r, &list->records, 1024);
    if (b == NULL) {
        return NGX_ERROR;
    }

    if (list->list.more && list->list.n) {
        last = &list->list.entries[list->list.n - 1];

        sandbox_put64(buffer, last->created_ns);
        ngx_memcpy(buffer + 8, last->name, last->name_len);
        value.data = buffer;
        value.len = 8 + last->name_len;

        b->last = ngx_sprintf(b->last, "],\"next\":\"");
        next.data = b->last;
        ngx_encode_base64url(&next, &value);
        b->last += next.len;
        b->last = ngx_sprintf(b->last, "\"}\n");

    } else {
        b->last = ngx_sprintf(b->last, "],\"next\":null}\n");
    }

    if (ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->answer = list->records.out;
    ctx->answer_size = 0;

    for (cl = list->records.out; cl; cl = cl->next) {
        ctx->answer_size += cl->buf->last - cl->buf->pos;
    }

    return NGX_OK;
}


/*
 * Its place in the zone, and what stands there if it was told this hour.
 * Others have that place, too, and may write there at any time.
 */

static ngx_atomic_t *
ngx_http_sandbox_mark_of(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_atomic_uint_t *value)
{
    uint64_t                       n;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    n = sandbox_get64(ctx->session);

    *value = (ngx_atomic_uint_t) ((n & ~(uint64_t) 0xff)
                                  | ((ngx_time() / 3600) & 0x7f));

    return &smcf->zone.marks->mark[sandbox_get16(ctx->session + 8)
                                   % NGX_HTTP_SANDBOX_MARKS];
}


ngx_atomic_t *
ngx_http_sandbox_conversations_state(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_atomic_uint_t *dropped)
{
    ngx_atomic_t       *mark;
    ngx_atomic_uint_t   value;

    mark = ngx_http_sandbox_mark_of(r, ctx, &value);
    *dropped = ngx_http_sandbox_mark_dropped(value);

    return mark;
}


void
ngx_http_sandbox_conversations_unmark(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_atomic_t       *mark;
    ngx_atomic_uint_t   dropped;

    mark = ngx_http_sandbox_conversations_state(r, ctx, &dropped);
    *mark = dropped;
}


void
ngx_http_sandbox_conversations_mark(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
#if (NGX_THREADS)

    ngx_pool_t                   *pool;
    ngx_atomic_t                 *mark;
    ngx_atomic_uint_t             value;
    ngx_thread_task_t            *task;
    ngx_http_sandbox_mark_t      *m;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->store == NULL || ctx->conversation.len == 0) {
        return;
    }

    mark = ngx_http_sandbox_mark_of(r, ctx, &value);

    if (*mark == value) {
        return;
    }

    pool = ngx_create_pool(16384, ngx_cycle->log);
    task = pool ? ngx_thread_task_alloc(pool, sizeof(ngx_http_sandbox_mark_t))
                : NULL;

    if (task == NULL) {
        goto failed;
    }

    m = task->ctx;
    m->pool = pool;
    m->mark = mark;
    m->dropped = ngx_http_sandbox_mark_dropped(value);
    m->limit = slcf->quota.tenant_size;

    if (ngx_http_sandbox_store_place(r, ctx, &ctx->conversation, &m->place)
        != NGX_OK)
    {
        goto failed;
    }

    task->handler = ngx_http_sandbox_mark_thread;
    task->event.data = m;
    task->event.handler = ngx_http_sandbox_mark_done;

    *mark = value;

    if (ngx_thread_task_post(slcf->main->thread_pool, task) == NGX_OK) {
        return;
    }

    *mark = 0;

failed:

    if (pool) {
        ngx_destroy_pool(pool);
    }

#endif
}


#if (NGX_THREADS)

static void
ngx_http_sandbox_mark_thread(void *data, ngx_log_t *log)
{
    ngx_http_sandbox_mark_t *m = data;

    (void) sandbox_store_mark(&m->place, m->limit, m->mark, m->dropped,
                              &m->fault);
}


static void
ngx_http_sandbox_mark_done(ngx_event_t *ev)
{
    ngx_http_sandbox_mark_t *m = ev->data;

    static time_t  logged;

    if (m->fault.status != SANDBOX_STORE_OK) {

        /* the next use tries again */

        *m->mark = 0;

        if (ngx_time() - logged < 60) {
            /* void */

        } else if (m->fault.status == SANDBOX_STORE_TENANT_FULL) {
            logged = ngx_time();

            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "sandbox: a conversation is not listed, its tenant "
                          "has all of the \"tenant_size\" of "
                          "\"sandbox_store\"");

        } else {
            logged = ngx_time();

            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, m->fault.error,
                          "sandbox: a conversation could not be listed in "
                          "\"sandbox_store\", %s \"%s\" failed: the user of "
                          "nginx's workers must own all of it, and its disk "
                          "have room",
                          m->fault.call, m->fault.path);
        }
    }

    ngx_destroy_pool(m->pool);
}

#endif
