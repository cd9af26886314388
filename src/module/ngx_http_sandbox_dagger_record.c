/*
 * Where a session's files are, beyond the zone: engine and instance in the
 * conversation's mark of the store.  It is read when the zone does not know
 * the session, and written when something of it changes; nobody waits for that.
 */

#include "ngx_http_sandbox_conversations.h"
#include "ngx_http_sandbox_dagger_start.h"
#include "sandbox_store_engine.h"


#if (NGX_THREADS)

/* outlives its request */

typedef struct {
    sandbox_store_place_t          place;
    sandbox_store_engine_t         engine;
    sandbox_store_fault_t          fault;
    ngx_pool_t                    *pool;
    ngx_atomic_t                  *state;
    ngx_atomic_uint_t              dropped;      /* there after a DELETE */
    uint64_t                       limit;        /* of the tenant's bytes */
} ngx_http_sandbox_record_work_t;

static void ngx_http_sandbox_record_thread(void *data, ngx_log_t *log);
static void ngx_http_sandbox_record_done(ngx_event_t *ev);

#endif

static void ngx_http_sandbox_record_look(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_record_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_record_take(ngx_http_sandbox_session_t *s);


ngx_int_t
ngx_http_sandbox_record_read(ngx_http_sandbox_session_t *s)
{
    ngx_http_sandbox_store_op_t  *op;

    op = ngx_http_sandbox_store_op(s->request, s->ctx, SANDBOX_STORE_FILES,
                                   ngx_http_sandbox_record_found);
    s->record = ngx_palloc(s->request->pool, sizeof(sandbox_store_engine_t));

    if (op == NULL || s->record == NULL) {
        return NGX_ERROR;
    }

    op->data = s;

    if (ngx_http_sandbox_store_look(op, ngx_http_sandbox_record_look)
        != NGX_OK)
    {
        return ngx_http_sandbox_dagger_problem(s);
    }

    return NGX_OK;
}


/* in a thread */

static void
ngx_http_sandbox_record_look(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_session_t *s = op->data;

    (void) sandbox_store_engine_read(&op->place, s->record, &op->fault);
}


static void
ngx_http_sandbox_record_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_session_t *s = op->data;

    if (op->fault.status != SANDBOX_STORE_OK
        && op->fault.status != SANDBOX_STORE_MISSING)
    {
        ngx_http_sandbox_store_problem(r, ctx, op);
        (void) ngx_http_sandbox_dagger_problem(s);
        return;
    }

    s->recorded = (op->fault.status == SANDBOX_STORE_OK);

    ngx_http_sandbox_dagger_run(s, ngx_http_sandbox_record_take);
}


static ngx_int_t
ngx_http_sandbox_record_take(ngx_http_sandbox_session_t *s)
{
    ngx_http_sandbox_record_known(s);

    return ngx_http_sandbox_dagger_choose(s);
}


void
ngx_http_sandbox_record_known(ngx_http_sandbox_session_t *s)
{
    ngx_uint_t                     i;
    ngx_http_sandbox_engine_t    **engines;
    ngx_http_sandbox_loc_conf_t   *slcf;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);
    engines = slcf->dagger->engines->elts;

    s->found.engine = NGX_HTTP_SANDBOX_NO_ENGINE;

    if (!s->recorded) {
        return;
    }

    for (i = 0; i < slcf->dagger->engines->nelts; i++) {

        if (engines[i]->name.len == s->record->name_len
            && ngx_memcmp(engines[i]->name.data, s->record->name,
                          s->record->name_len)
               == 0)
        {
            s->found.engine = engines[i]->number;
            break;
        }
    }

    s->found.instance = s->record->instance;
    s->found.stored = 1;
}


void
ngx_http_sandbox_record_write(ngx_http_sandbox_session_t *s,
    uint64_t instance)
{
#if (NGX_THREADS)

    ngx_pool_t                      *pool;
    ngx_thread_task_t               *task;
    ngx_http_sandbox_ctx_t          *ctx;
    ngx_http_sandbox_loc_conf_t     *slcf;
    ngx_http_sandbox_record_work_t  *work;

    ctx = s->ctx;
    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    if (slcf->store == NULL || ctx->conversation.len == 0
        || s->engine->name.len > SANDBOX_STORE_MAX_ENGINE)
    {
        return;
    }

    pool = ngx_create_pool(16384, ngx_cycle->log);
    task = pool ? ngx_thread_task_alloc(pool,
                                     sizeof(ngx_http_sandbox_record_work_t))
                : NULL;

    if (task == NULL) {
        goto failed;
    }

    work = task->ctx;
    work->pool = pool;
    work->state = ngx_http_sandbox_conversations_state(s->request, ctx,
                                                       &work->dropped);
    work->limit = slcf->quota.tenant_size;
    work->engine.instance = instance;
    work->engine.name_len = (unsigned) s->engine->name.len;
    ngx_memcpy(work->engine.name, s->engine->name.data, s->engine->name.len);

    if (ngx_http_sandbox_store_place(s->request, ctx, &ctx->conversation,
                                     &work->place)
        != NGX_OK)
    {
        goto failed;
    }

    task->handler = ngx_http_sandbox_record_thread;
    task->event.data = work;
    task->event.handler = ngx_http_sandbox_record_done;

    if (ngx_thread_task_post(slcf->main->thread_pool, task) == NGX_OK) {
        return;
    }

failed:

    ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                  "sandbox: no memory to note the engine of a conversation");

    if (pool) {
        ngx_destroy_pool(pool);
    }

#endif
}


#if (NGX_THREADS)

static void
ngx_http_sandbox_record_thread(void *data, ngx_log_t *log)
{
    ngx_http_sandbox_record_work_t *work = data;

    (void) sandbox_store_engine_write(&work->place, &work->engine,
                                      work->limit, work->state, work->dropped,
                                      &work->fault);
}


static void
ngx_http_sandbox_record_done(ngx_event_t *ev)
{
    ngx_http_sandbox_record_work_t *work = ev->data;

    static time_t  logged;

    /* a tenant's full disk is told where the conversation is marked */

    if (work->fault.status != SANDBOX_STORE_OK
        && work->fault.status != SANDBOX_STORE_TENANT_FULL
        && ngx_time() - logged >= 60)
    {
        logged = ngx_time();

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, work->fault.error,
                      "sandbox: the engine of a conversation could not be "
                      "noted in \"sandbox_store\", %s \"%s\" failed: the user "
                      "of nginx's workers must own all of it, and its disk "
                      "have room",
                      work->fault.call, work->fault.path);
    }

    ngx_destroy_pool(work->pool);
}

#endif
