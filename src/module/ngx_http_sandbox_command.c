/*
 * POST .../commands up to the wire: content type, and the body, which is read
 * here, after the token, in memory and never beyond its maximum.  What is in
 * the JSON is the next file's concern.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_skills.h"


#define NGX_HTTP_SANDBOX_BODY_PIECE   (64 * 1024)

/* from this on a thread does it: a worker has others to serve */

#define NGX_HTTP_SANDBOX_BODY_LARGE   (32 * 1024)

/* commas and brackets outside of strings: each may cost a parser 100 bytes */

#define NGX_HTTP_SANDBOX_BODY_TOKENS  4096

#define NGX_HTTP_SANDBOX_BODY_SLOW    60000      /* ms */


#if (NGX_THREADS)

/* while a thread reads it */

typedef struct {
    ngx_http_request_t            *request;
    ngx_event_t                    timer;        /* holds a worker that exits */
} ngx_http_sandbox_body_work_t;

#endif


static ngx_int_t ngx_http_sandbox_content_type(ngx_http_request_t *r);
static void ngx_http_sandbox_body_start(ngx_http_request_t *r);
static void ngx_http_sandbox_body_read(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_body_take(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_body_append(ngx_http_request_t *r,
    ngx_http_sandbox_body_t *body, u_char *p, size_t n);
static void ngx_http_sandbox_body_scan(ngx_http_sandbox_body_t *body,
    u_char *p, size_t n);
static void ngx_http_sandbox_body_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_body_done(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
#if (NGX_THREADS)
static ngx_int_t ngx_http_sandbox_body_post(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_body_thread(void *data, ngx_log_t *log);
static void ngx_http_sandbox_body_slow(ngx_event_t *ev);
static void ngx_http_sandbox_body_thread_event(ngx_event_t *ev);
static void ngx_http_sandbox_body_resume(ngx_http_request_t *r);
#endif
static void ngx_http_sandbox_body_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_body_run(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


ngx_int_t
ngx_http_sandbox_command_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    if (ngx_http_sandbox_encoding(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_stream_init(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->stream
        && ngx_http_sandbox_attach_seen(r, ctx, &ctx->wire.seen) != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    return ngx_http_sandbox_body_handler(r, ctx);
}


ngx_int_t
ngx_http_sandbox_body_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t                        max;
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    max = ngx_http_sandbox_max_body(slcf);

    if (ngx_http_sandbox_content_type(r) != NGX_OK) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                "unsupported_media_type",
                                "The body must be sent as "
                                "\"Content-Type: application/json\", in "
                                "UTF-8.");
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (r->headers_in.content_length_n > (off_t) max) {
        ngx_http_sandbox_body_refuse(r, ctx);
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    rc = ngx_http_sandbox_budget_enter(r, ctx);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? ngx_http_sandbox_send_problem(r, ctx)
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->body.last = &ctx->body.chain;

    r->request_body_no_buffering = 1;

    rc = ngx_http_read_client_request_body(r, ngx_http_sandbox_body_start);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    return NGX_DONE;
}


/*
 * A command and its environment can be all escapes of six bytes; stdin may be
 * base64, or text in which every other character is escaped.
 */

size_t
ngx_http_sandbox_max_body(const ngx_http_sandbox_loc_conf_t *slcf)
{
    return 6 * slcf->caps.command_size + 2 * ngx_http_sandbox_max_stdin(slcf)
           + 1024 * 1024;
}


off_t
ngx_http_sandbox_max_stdin(const ngx_http_sandbox_loc_conf_t *slcf)
{
    return ngx_min(slcf->caps.file_size, (off_t) SANDBOX_WIRE_MAX_BODY);
}


static ngx_int_t
ngx_http_sandbox_content_type(ngx_http_request_t *r)
{
    u_char     *p, *last;
    ngx_str_t   type;

    if (r->headers_in.content_type == NULL) {
        return NGX_DECLINED;
    }

    type = r->headers_in.content_type->value;

    if (type.len < sizeof("application/json") - 1
        || ngx_strncasecmp(type.data, (u_char *) "application/json",
                           sizeof("application/json") - 1)
           != 0)
    {
        return NGX_DECLINED;
    }

    p = type.data + sizeof("application/json") - 1;
    last = type.data + type.len;

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    if (p == last) {
        return NGX_OK;
    }

    if (*p++ != ';') {
        return NGX_DECLINED;
    }

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    while (last > p && (last[-1] == ' ' || last[-1] == '\t')) {
        last--;
    }

    if ((last - p == 13
         && ngx_strncasecmp(p, (u_char *) "charset=utf-8", 13) == 0)
        || (last - p == 15
            && ngx_strncasecmp(p, (u_char *) "charset=\"utf-8\"", 15) == 0))
    {
        return NGX_OK;
    }

    return NGX_DECLINED;
}


static void
ngx_http_sandbox_body_start(ngx_http_request_t *r)
{
    r->read_event_handler = ngx_http_sandbox_body_read;

    ngx_http_sandbox_body_read(r);
}


static void
ngx_http_sandbox_body_read(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    for ( ;; ) {

        rc = ngx_http_sandbox_body_take(r, ctx);

        if (rc == NGX_ERROR) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
            return;
        }

        if (rc == NGX_DECLINED || rc == NGX_BUSY) {

            if (rc == NGX_DECLINED) {
                ngx_http_sandbox_body_refuse(r, ctx);
            }

            ngx_http_finalize_request(r,
                                      ngx_http_sandbox_send_problem(r, ctx));
            return;
        }

        if (!r->reading_body) {
            break;
        }

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            ngx_http_finalize_request(r, rc);
            return;
        }

        if (r->request_body->bufs == NULL && rc == NGX_AGAIN) {
            return;
        }
    }

    /* whole, and in our memory; the upstream may send it twice */

    r->request_body_no_buffering = 0;
    r->read_event_handler = ngx_http_block_reading;

    if (r->connection->read->timer_set) {
        ngx_del_timer(r->connection->read);
    }

    ngx_http_sandbox_body_done(r, ctx);
}


/*
 * Moves what nginx has read; its own small buffer is free for more.
 * NGX_DECLINED: it is too large; NGX_BUSY: the refusal is there.
 */

static ngx_int_t
ngx_http_sandbox_body_take(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    size_t                        n, max;
    ngx_int_t                     rc;
    ngx_buf_t                    *b;
    ngx_chain_t                  *cl;
    ngx_http_sandbox_body_t      *body;
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    max = ngx_http_sandbox_max_body(slcf);
    body = &ctx->body;

    while (r->request_body->bufs) {

        cl = r->request_body->bufs;
        b = cl->buf;

        if (b->in_file) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "another module (\"mirror\"?) put the body of a "
                          "sandbox request into a file: raise "
                          "\"client_body_buffer_size\" or switch it off here");
            return NGX_ERROR;
        }

        n = b->last - b->pos;

        if (n > max - body->size) {
            return NGX_DECLINED;
        }

        rc = ngx_http_sandbox_budget_take(r, ctx, n);

        if (rc != NGX_OK) {
            return rc == NGX_DECLINED ? NGX_BUSY : NGX_ERROR;
        }

        ngx_http_sandbox_body_scan(body, b->pos, n);

        if (ngx_http_sandbox_body_append(r, body, b->pos, n) != NGX_OK) {
            return NGX_ERROR;
        }

        b->pos = b->last;

        r->request_body->bufs = cl->next;
        ngx_free_chain(r->pool, cl);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_body_append(ngx_http_request_t *r,
    ngx_http_sandbox_body_t *body, u_char *p, size_t n)
{
    size_t        m, size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = body->tail;

    while (n) {

        if (b == NULL || b->last == b->end) {

            /* the first piece is as small as most requests are */

            size = b ? NGX_HTTP_SANDBOX_BODY_PIECE : ngx_max(n, 2048);
            size = ngx_min(size, NGX_HTTP_SANDBOX_BODY_PIECE);

            b = ngx_create_temp_buf(r->pool, size);
            cl = ngx_alloc_chain_link(r->pool);

            if (b == NULL || cl == NULL) {
                return NGX_ERROR;
            }

            cl->buf = b;
            cl->next = NULL;

            *body->last = cl;
            body->last = &cl->next;
            body->tail = b;
        }

        m = ngx_min(n, (size_t) (b->end - b->last));

        b->last = ngx_cpymem(b->last, p, m);
        body->size += m;

        p += m;
        n -= m;
    }

    return NGX_OK;
}


/* counts what a parser would make values of, before it sees any of it */

static void
ngx_http_sandbox_body_scan(ngx_http_sandbox_body_t *body, u_char *p, size_t n)
{
    u_char  *last;

    if (ngx_strlchr(p, p + n, '\0')) {
        body->nul = 1;
    }

    for (last = p + n; p < last; p++) {

        if (body->string) {

            if (body->escape) {
                body->escape = 0;

            } else if (*p == '\\') {
                body->escape = 1;

            } else if (*p == '"') {
                body->string = 0;
            }

            continue;
        }

        switch (*p) {

        case '"':
            body->string = 1;
            break;

        case ',':
        case '[':
        case '{':
            body->tokens++;
            break;
        }
    }
}


static void
ngx_http_sandbox_body_refuse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (ngx_http_sandbox_refuse_format(r, ctx,
                                       NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                       "body_too_large",
                                       "The body may have at most %uz bytes.",
                                       ngx_http_sandbox_max_body(slcf))
        == NGX_ERROR)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                "body_too_large",
                                "The body is too large.");
    }
}


static void
ngx_http_sandbox_body_done(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    if (ctx->body.tokens > NGX_HTTP_SANDBOX_BODY_TOKENS) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "The JSON has too many values.");
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    /* the parser skips it where it follows a number */

    if (ctx->body.nul && ctx->mcp == NULL) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "The body must be JSON, which has no NUL "
                                "bytes.");
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    if (ctx->save) {
        ngx_http_sandbox_save_start(r, ctx);
        return;
    }

    if (ctx->route->handler == ngx_http_sandbox_skills_add_handler) {
        ngx_http_sandbox_skills_add(r, ctx);
        return;
    }

#if (NGX_THREADS)

    if (ctx->body.size > NGX_HTTP_SANDBOX_BODY_LARGE
        && ngx_http_sandbox_body_post(r, ctx) == NGX_OK)
    {
        return;
    }

#endif

    ngx_http_sandbox_body_parse(r, ctx);
    ngx_http_sandbox_body_run(r, ctx);
}


#if (NGX_THREADS)

static ngx_int_t
ngx_http_sandbox_body_post(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_thread_task_t             *task;
    ngx_http_sandbox_loc_conf_t   *slcf;
    ngx_http_sandbox_body_work_t  *work;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    task = ngx_thread_task_alloc(r->pool,
                                 sizeof(ngx_http_sandbox_body_work_t));
    if (task == NULL) {
        return NGX_ERROR;
    }

    work = task->ctx;
    ngx_memzero(work, sizeof(ngx_http_sandbox_body_work_t));

    work->request = r;

    task->handler = ngx_http_sandbox_body_thread;
    task->event.data = work;
    task->event.handler = ngx_http_sandbox_body_thread_event;

    if (ngx_thread_task_post(slcf->main->thread_pool, task) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a worker that is told to leave stays for timers only, so there is one */

    work->timer.data = r->connection;
    work->timer.handler = ngx_http_sandbox_body_slow;
    work->timer.log = r->connection->log;

    ngx_add_timer(&work->timer, NGX_HTTP_SANDBOX_BODY_SLOW);

    r->main->blocked++;
    r->aio = 1;
    r->write_event_handler = ngx_http_sandbox_body_resume;

    return NGX_OK;
}


static void
ngx_http_sandbox_body_thread(void *data, ngx_log_t *log)
{
    ngx_http_sandbox_body_work_t *work = data;

    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(work->request, ngx_http_sandbox_module);

    ngx_http_sandbox_body_parse(work->request, ctx);
}


static void
ngx_http_sandbox_body_slow(ngx_event_t *ev)
{
    ngx_log_error(NGX_LOG_WARN, ev->log, 0,
                  "sandbox: a request's JSON has not been read for %d s, the "
                  "thread pool \"default\" may be too small",
                  NGX_HTTP_SANDBOX_BODY_SLOW / 1000);

    ngx_add_timer(ev, NGX_HTTP_SANDBOX_BODY_SLOW);
}


static void
ngx_http_sandbox_body_thread_event(ngx_event_t *ev)
{
    ngx_http_sandbox_body_work_t *work = ev->data;

    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = work->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (work->timer.timer_set) {
        ngx_del_timer(&work->timer);
    }

    r->main->blocked--;
    r->aio = 0;

    /* ours, or nginx's own if the client is gone by now */

    r->write_event_handler(r);

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_sandbox_body_resume(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    if (r->aio) {
        return;
    }

    r->write_event_handler = ngx_http_request_empty_handler;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    ngx_http_sandbox_body_run(r, ctx);
}

#endif


static void
ngx_http_sandbox_body_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ctx->parsed = ctx->mcp ? ngx_http_sandbox_mcp_parse(r, ctx)
                           : ngx_http_sandbox_request_parse(r, ctx);
}


static void
ngx_http_sandbox_body_run(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    if (ctx->parsed == NGX_DECLINED) {
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    if (ctx->parsed != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    if (ctx->mcp) {
        ngx_http_sandbox_mcp_run(r, ctx);
        return;
    }

    ngx_http_sandbox_stage_start(r, ctx);
}
