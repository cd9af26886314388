/*
 * Operations of the store on behalf of requests: each runs in a thread of
 * nginx's pool, and its request waits for it.  What they do is src/store's
 * concern, what their answers become is the handlers'.
 */

#include "ngx_http_sandbox_store.h"


static ngx_int_t ngx_http_sandbox_store_post(ngx_http_sandbox_store_op_t *op,
    void (*work)(ngx_http_sandbox_store_op_t *op));
static void ngx_http_sandbox_store_cleanup(void *data);

#if (NGX_THREADS)
static void ngx_http_sandbox_store_thread(void *data, ngx_log_t *log);
static void ngx_http_sandbox_store_done(ngx_event_t *ev);
static void ngx_http_sandbox_store_wait(ngx_http_request_t *r);
static void ngx_http_sandbox_store_slow(ngx_event_t *ev);
static void ngx_http_sandbox_store_abort(sandbox_store_writer_t *writer,
    ngx_thread_pool_t *tp);
static void ngx_http_sandbox_store_abort_thread(void *data, ngx_log_t *log);
static void ngx_http_sandbox_store_aborted(ngx_event_t *ev);
#endif

static void ngx_http_sandbox_store_work_lookup(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_list(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_remove(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_drop(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_notice(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_notices(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_room(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_write(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_store_work_commit(
    ngx_http_sandbox_store_op_t *op);

static void ngx_http_sandbox_store_log(ngx_http_request_t *r,
    ngx_http_sandbox_store_op_t *op);


#define NGX_HTTP_SANDBOX_STORE_SLOW  60000       /* ms */


#if (NGX_THREADS)

typedef struct {
    sandbox_store_writer_t         writer;
} ngx_http_sandbox_store_left_t;

#endif


ngx_int_t
ngx_http_sandbox_store_here(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->store) {
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_NOT_IMPLEMENTED, "no_store",
                            "This server keeps no attachments and no files: "
                            "it has no \"sandbox_store\".");

    return NGX_DECLINED;
}


ngx_http_sandbox_store_op_t *
ngx_http_sandbox_store_op(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    sandbox_store_kind_e kind, ngx_http_sandbox_store_pt handler)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_sandbox_loc_conf_t  *slcf;
    ngx_http_sandbox_store_op_t  *op;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_store_op_t));
    if (cln == NULL) {
        return NULL;
    }

    op = cln->data;
    ngx_memzero(op, sizeof(ngx_http_sandbox_store_op_t));

    op->request = r;
    op->handler = handler;
    op->kind = kind;
    op->quota = slcf->quota;
    op->fd = NGX_INVALID_FILE;
    sandbox_store_writer_init(&op->writer, slcf->caps.file_size);

    cln->handler = ngx_http_sandbox_store_cleanup;

    if (ctx->conversation.len == 0 || slcf->store == NULL) {
        return op;
    }

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK
        || ngx_http_sandbox_store_place(r, ctx, &ctx->conversation,
                                        &op->place)
           != NGX_OK)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox: a conversation's place in \"sandbox_store\" "
                      "could not be computed");
        return NULL;
    }

    return op;
}


ngx_int_t
ngx_http_sandbox_store_place(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_str_t *conversation,
    sandbox_store_place_t *place)
{
    u_char                        user[SANDBOX_STORE_DIGEST];
    ngx_str_t                    *root;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    root = ngx_http_sandbox_store_name(slcf->store);

    if (ngx_http_sandbox_store_user(ctx, user) != NGX_OK
        || sandbox_store_place(place, (char *) root->data,
                               (char *) slcf->realm.data, slcf->realm.len,
                               ctx->digest, user, (char *) conversation->data,
                               conversation->len)
           != 0)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_store_user(ngx_http_sandbox_ctx_t *ctx,
    u_char digest[SANDBOX_STORE_DIGEST])
{
    u_char                  full[SANDBOX_JOSE_SESSION_SIZE];
    sandbox_jose_session_t  session;

    /* the session key of no realm and no conversation is the person's */

    ngx_memzero(&session, sizeof(sandbox_jose_session_t));

    session.issuer.data = ctx->principal.issuer.data;
    session.issuer.size = ctx->principal.issuer.len;
    session.tenant.data = ctx->principal.tenant.data;
    session.tenant.size = ctx->principal.tenant.len;
    session.user.data = ctx->principal.user.data;
    session.user.size = ctx->principal.user.len;

    if (sandbox_jose_session_key(&session, full) != 0) {
        return NGX_ERROR;
    }

    ngx_memcpy(digest, full, SANDBOX_STORE_DIGEST);

    return NGX_OK;
}


#if (NGX_THREADS)

static ngx_int_t
ngx_http_sandbox_store_post(ngx_http_sandbox_store_op_t *op,
    void (*work)(ngx_http_sandbox_store_op_t *op))
{
    ngx_http_request_t           *r;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    r = op->request;
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    op->work = work;

    if (op->task == NULL) {
        op->task = ngx_thread_task_alloc(r->pool, 0);
    }

    if (op->task) {
        op->task->ctx = op;
        op->task->handler = ngx_http_sandbox_store_thread;
        op->task->event.data = op;
        op->task->event.handler = ngx_http_sandbox_store_done;
    }

    if (op->changes) {
        ngx_http_sandbox_known_begin(&slcf->main->zone, &op->place,
                                     &op->mark);
    }

    if (op->task == NULL
        || ngx_thread_task_post(slcf->main->thread_pool, op->task) != NGX_OK)
    {
        if (op->changes) {
            op->changes = 0;
            ngx_http_sandbox_known_end(&slcf->main->zone, &op->mark);
        }

        ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "unavailable",
                                "The server has too much to write now.");
        ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
        return NGX_ERROR;
    }

    /*
     * Nothing of the request is freed before the thread is done.  A worker
     * that is told to leave stays for timers only, so there is one.
     */

    op->timer.data = r->connection;
    op->timer.handler = ngx_http_sandbox_store_slow;
    op->timer.log = r->connection->log;

    ngx_add_timer(&op->timer, NGX_HTTP_SANDBOX_STORE_SLOW);

    r->main->blocked++;
    op->busy = 1;
    op->write = r->write_event_handler;
    r->write_event_handler = ngx_http_sandbox_store_wait;

    return NGX_OK;
}


static void
ngx_http_sandbox_store_thread(void *data, ngx_log_t *log)
{
    ngx_http_sandbox_store_op_t *op = data;

    op->work(op);
}


static void
ngx_http_sandbox_store_wait(ngx_http_request_t *r)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sandbox waits for the store");
}


static void
ngx_http_sandbox_store_slow(ngx_event_t *ev)
{
    ngx_log_error(NGX_LOG_WARN, ev->log, 0,
                  "sandbox: \"sandbox_store\" has not answered for %d s, its "
                  "disk is slow or broken",
                  NGX_HTTP_SANDBOX_STORE_SLOW / 1000);

    ngx_add_timer(ev, NGX_HTTP_SANDBOX_STORE_SLOW);
}


static void
ngx_http_sandbox_store_done(ngx_event_t *ev)
{
    ngx_http_sandbox_store_op_t *op = ev->data;

    ngx_connection_t             *c;
    ngx_http_request_t           *r;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    r = op->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "http sandbox store: %ui",
                   (ngx_uint_t) op->fault.status);

    if (op->timer.timer_set) {
        ngx_del_timer(&op->timer);
    }

    r->main->blocked--;
    op->busy = 0;

    /* before anybody is told, and whoever may still be there to hear it */

    if (op->changes) {
        op->changes = 0;
        slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
        ngx_http_sandbox_known_end(&slcf->main->zone, &op->mark);
    }

    if (r->write_event_handler == ngx_http_sandbox_store_wait) {
        r->write_event_handler = op->write;

        ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
        op->handler(r, ctx, op);

    } else {

        /* the request has ended meanwhile, and waited for us to go */

        r->write_event_handler(r);
    }

    ngx_http_run_posted_requests(c);
}


/* removing a large file takes a disk its time: that has its own memory */

static void
ngx_http_sandbox_store_abort(sandbox_store_writer_t *writer,
    ngx_thread_pool_t *tp)
{
    ngx_pool_t                     *pool;
    ngx_thread_task_t              *task;
    ngx_http_sandbox_store_left_t  *left;

    pool = ngx_create_pool(16384, ngx_cycle->log);
    task = pool ? ngx_thread_task_alloc(pool,
                                        sizeof(ngx_http_sandbox_store_left_t))
                : NULL;

    if (task) {
        left = task->ctx;
        left->writer = *writer;

        task->handler = ngx_http_sandbox_store_abort_thread;
        task->event.data = pool;
        task->event.handler = ngx_http_sandbox_store_aborted;

        if (ngx_thread_task_post(tp, task) == NGX_OK) {
            sandbox_store_writer_init(writer, 0);
            return;
        }
    }

    sandbox_store_writer_abort(writer);

    if (pool) {
        ngx_destroy_pool(pool);
    }
}


static void
ngx_http_sandbox_store_abort_thread(void *data, ngx_log_t *log)
{
    ngx_http_sandbox_store_left_t *left = data;

    sandbox_store_writer_abort(&left->writer);
}


static void
ngx_http_sandbox_store_aborted(ngx_event_t *ev)
{
    ngx_pool_t *pool = ev->data;

    ngx_destroy_pool(pool);
}

#else

/* the configuration is refused, so there is no store */

static ngx_int_t
ngx_http_sandbox_store_post(ngx_http_sandbox_store_op_t *op,
    void (*work)(ngx_http_sandbox_store_op_t *op))
{
    return NGX_ERROR;
}

#endif


static void
ngx_http_sandbox_store_cleanup(void *data)
{
    ngx_http_sandbox_store_op_t *op = data;

#if (NGX_THREADS)
    ngx_http_sandbox_loc_conf_t  *slcf;
#endif

    sandbox_store_list_free(&op->list);

    if (op->fd != NGX_INVALID_FILE && ngx_close_file(op->fd) == NGX_FILE_ERROR)
    {
        ngx_log_error(NGX_LOG_ALERT, op->request->connection->log, ngx_errno,
                      ngx_close_file_n " of a sandbox's file failed");
    }

#if (NGX_THREADS)

    if (op->writer.fd != -1 || op->writer.path[0] || op->writer.md) {
        slcf = ngx_http_get_module_loc_conf(op->request,
                                            ngx_http_sandbox_module);
        ngx_http_sandbox_store_abort(&op->writer, slcf->main->thread_pool);
    }

#endif
}


ngx_int_t
ngx_http_sandbox_store_lookup(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, ngx_uint_t open)
{
    op->name = *name;
    op->mode = open;

    return ngx_http_sandbox_store_post(op,
                                       ngx_http_sandbox_store_work_lookup);
}


static void
ngx_http_sandbox_store_work_lookup(ngx_http_sandbox_store_op_t *op)
{
    int  fd;

    if (sandbox_store_lookup(&op->place, op->kind, (char *) op->name.data,
                             op->name.len, op->id, &op->entry,
                             op->mode ? &fd : NULL, &op->fault)
        == SANDBOX_STORE_OK
        && op->mode)
    {
        op->fd = fd;
    }
}


ngx_int_t
ngx_http_sandbox_store_list(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *after, size_t limit)
{
    op->name = *after;
    op->limit = limit;

    return ngx_http_sandbox_store_post(op, ngx_http_sandbox_store_work_list);
}


static void
ngx_http_sandbox_store_work_list(ngx_http_sandbox_store_op_t *op)
{
    sandbox_store_list_free(&op->list);

    (void) sandbox_store_list(&op->place, op->kind, (char *) op->name.data,
                              op->name.len, op->limit, &op->list, &op->fault);
}


ngx_int_t
ngx_http_sandbox_store_remove(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name)
{
    op->name = *name;
    op->changes = (op->kind != SANDBOX_STORE_FILES);

    return ngx_http_sandbox_store_post(op,
                                       ngx_http_sandbox_store_work_remove);
}


static void
ngx_http_sandbox_store_work_remove(ngx_http_sandbox_store_op_t *op)
{
    (void) sandbox_store_remove(&op->place, op->kind, (char *) op->name.data,
                                op->name.len, &op->condition, &op->fault);
}


ngx_int_t
ngx_http_sandbox_store_drop(ngx_http_sandbox_store_op_t *op)
{
    op->changes = 1;

    return ngx_http_sandbox_store_post(op, ngx_http_sandbox_store_work_drop);
}


static void
ngx_http_sandbox_store_work_drop(ngx_http_sandbox_store_op_t *op)
{
    (void) sandbox_store_drop(&op->place, &op->fault);
}


ngx_int_t
ngx_http_sandbox_store_notice(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, uint64_t most)
{
    op->name = *name;
    op->most = most;
    op->changes = 1;

    return ngx_http_sandbox_store_post(op,
                                       ngx_http_sandbox_store_work_notice);
}


static void
ngx_http_sandbox_store_work_notice(ngx_http_sandbox_store_op_t *op)
{
    (void) sandbox_store_notice(&op->place, (char *) op->name.data,
                                op->name.len, op->most, &op->fault);
}


ngx_int_t
ngx_http_sandbox_store_take_notices(ngx_http_sandbox_store_op_t *op)
{
    return ngx_http_sandbox_store_post(op,
                                       ngx_http_sandbox_store_work_notices);
}


static void
ngx_http_sandbox_store_work_notices(ngx_http_sandbox_store_op_t *op)
{
    sandbox_store_list_free(&op->list);

    (void) sandbox_store_take_notices(&op->place, &op->list, &op->fault);
}


ngx_int_t
ngx_http_sandbox_store_write(ngx_http_sandbox_store_op_t *op, u_char *p,
    size_t n)
{
    op->bytes = p;
    op->size = n;

    return ngx_http_sandbox_store_post(op, ngx_http_sandbox_store_work_write);
}


void
ngx_http_sandbox_store_expect(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, sandbox_store_mode_e mode, uint64_t size)
{
    op->name = *name;
    op->mode = mode;
    op->expected = size;
    op->expects = 1;
}


ngx_int_t
ngx_http_sandbox_store_room(ngx_http_sandbox_store_op_t *op)
{
    return ngx_http_sandbox_store_post(op, ngx_http_sandbox_store_work_room);
}


static void
ngx_http_sandbox_store_work_room(ngx_http_sandbox_store_op_t *op)
{
    op->expects = 0;

    (void) sandbox_store_expect(&op->writer, &op->place, op->kind, &op->quota,
                                (sandbox_store_mode_e) op->mode,
                                (char *) op->name.data, op->name.len,
                                op->expected, &op->fault);
}


static void
ngx_http_sandbox_store_work_write(ngx_http_sandbox_store_op_t *op)
{
    if (op->expects) {
        ngx_http_sandbox_store_work_room(op);

        if (op->fault.status != SANDBOX_STORE_OK) {
            return;
        }
    }

    (void) sandbox_store_write(&op->writer, op->place.root, op->bytes,
                               op->size, &op->fault);
}


ngx_int_t
ngx_http_sandbox_store_commit(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, sandbox_store_mode_e mode, u_char *p, size_t n)
{
    op->bytes = p;
    op->size = n;
    op->mode = mode;
    op->changes = (op->kind != SANDBOX_STORE_FILES);

    ngx_memcpy(op->entry.name, name->data, name->len);
    op->entry.name_len = (unsigned) name->len;

    return ngx_http_sandbox_store_post(op,
                                       ngx_http_sandbox_store_work_commit);
}


static void
ngx_http_sandbox_store_work_commit(ngx_http_sandbox_store_op_t *op)
{
    unsigned  created;

    if (op->size
        && sandbox_store_write(&op->writer, op->place.root, op->bytes,
                               op->size, &op->fault)
           != SANDBOX_STORE_OK)
    {
        sandbox_store_writer_abort(&op->writer);
        return;
    }

    if (sandbox_store_commit(&op->writer, &op->place, op->kind, &op->quota,
                             op->mode, &op->condition, &op->entry, &created,
                             &op->fault)
        == SANDBOX_STORE_OK)
    {
        op->created = created;
    }
}


ngx_int_t
ngx_http_sandbox_store_run(ngx_http_sandbox_store_op_t *op,
    void (*work)(ngx_http_sandbox_store_op_t *op))
{
    op->changes = 1;

    return ngx_http_sandbox_store_post(op, work);
}


ngx_int_t
ngx_http_sandbox_store_look(ngx_http_sandbox_store_op_t *op,
    void (*work)(ngx_http_sandbox_store_op_t *op))
{
    return ngx_http_sandbox_store_post(op, work);
}


void
ngx_http_sandbox_store_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    sandbox_store_fault_t  *fault;

    fault = &op->fault;

    switch (fault->status) {

    case SANDBOX_STORE_MISSING:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_NOT_FOUND, "file_not_found",
                                "There is no file of that name.");
        return;

    case SANDBOX_STORE_EXISTS:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_CONFLICT, "file_exists",
                                "There is a file of that name: choose "
                                "another \"name\", or set \"overwrite\" "
                                "to true.");
        return;

    case SANDBOX_STORE_PRECONDITION:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_PRECONDITION_FAILED,
                                "precondition_failed",
                                "If-Match or If-None-Match does not hold: the "
                                "file is another one by now.");
        return;

    case SANDBOX_STORE_TOO_LARGE:
        (void) ngx_http_sandbox_refuse_format(r, ctx,
                                              NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                              "file_too_large",
                                              "A file may have at most %uL "
                                              "bytes.", fault->limit);
        return;

    case SANDBOX_STORE_TOO_MANY:
        (void) ngx_http_sandbox_refuse_format(r, ctx,
                                              NGX_HTTP_INSUFFICIENT_STORAGE,
                                              "disk_full",
                                              "There may be at most %uL files "
                                              "here; delete some.",
                                              fault->limit);
        return;

    case SANDBOX_STORE_FULL:
        (void) ngx_http_sandbox_refuse_format(r, ctx,
                                              NGX_HTTP_INSUFFICIENT_STORAGE,
                                              "disk_full",
                                              "The files of a conversation "
                                              "may have at most %uL bytes; "
                                              "delete some.", fault->limit);
        return;

    case SANDBOX_STORE_TENANT_FULL:
        (void) ngx_http_sandbox_refuse_format(r, ctx,
                                              NGX_HTTP_INSUFFICIENT_STORAGE,
                                              "disk_full",
                                              "All your files together may "
                                              "have at most %uL bytes; delete "
                                              "some, or whole conversations.",
                                              fault->limit);
        return;

    case SANDBOX_STORE_NO_SPACE:
        ngx_http_sandbox_store_log(r, op);
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_INSUFFICIENT_STORAGE,
                                "disk_full", "The server's disk is full.");
        return;

    case SANDBOX_STORE_BUSY:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "unavailable",
                                "Others write too much at the same time.");
        ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
        return;

    default:
        ngx_http_sandbox_store_log(r, op);
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                "internal",
                                "The server met an error, its log says "
                                "which.");
    }
}


static void
ngx_http_sandbox_store_log(ngx_http_request_t *r,
    ngx_http_sandbox_store_op_t *op)
{
    const char             *advice;
    sandbox_store_fault_t  *fault;

    fault = &op->fault;

    if (fault->status == SANDBOX_STORE_DAMAGED) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox: the file \"%s\" is damaged, or not of "
                      "\"sandbox_store\"; restore it, or let its user "
                      "delete or replace it", fault->path);
        return;
    }

    switch (fault->error) {

    case NGX_ENOSPC:
    case EDQUOT:
        advice = "its disk, or a quota on it, is full";
        break;

    case NGX_EACCES:
    case NGX_EPERM:
        advice = "the user of nginx's workers must own all of it and be able "
                 "to enter the folders above it";
        break;

    case EROFS:
        advice = "it is on a file system that can only be read";
        break;

    case NGX_ENFILE:
    case EMFILE:
        advice = "raise \"worker_rlimit_nofile\"";
        break;

    default:
        advice = "look after its disk";
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, fault->error,
                  "sandbox: %s of \"%s\" in \"sandbox_store\" failed: %s",
                  fault->call, fault->path, advice);
}
