/*
 * The module between two sides that it does not trust: a client's request,
 * and what an agent answers to it.  A request as lines of text (its method and
 * target, headers, an empty line, the body up to a line of "----"), then bytes
 * of the answer.  What goes to the agent must be what the agent's own readers
 * accept; what goes to the client must be JSON.  Each allocation of a pool is
 * its own (NGX_DEBUG_PALLOC), so that the sanitizer sees its ends.
 */

/* nginx: src/core/ngx_string.c src/core/ngx_palloc.c src/core/ngx_array.c */
/* nginx: src/core/ngx_list.c src/core/ngx_buf.c src/core/ngx_times.c */
/* nginx: src/core/ngx_parse_time.c src/os/unix/ngx_alloc.c */
/* nginx: src/os/unix/ngx_time.c src/http/ngx_http_parse.c */
/* link: src/module/ngx_http_sandbox_accept.c */
/* link: src/module/ngx_http_sandbox_attach.c */
/* link: src/module/ngx_http_sandbox_conversation.c */
/* link: src/module/ngx_http_sandbox_frames.c */
/* link: src/module/ngx_http_sandbox_fs.c */
/* link: src/module/ngx_http_sandbox_head.c */
/* link: src/module/ngx_http_sandbox_history.c */
/* link: src/module/ngx_http_sandbox_listing.c */
/* link: src/module/ngx_http_sandbox_mcp.c */
/* link: src/module/ngx_http_sandbox_mcp_call.c */
/* link: src/module/ngx_http_sandbox_mcp_check.c */
/* link: src/module/ngx_http_sandbox_mcp_files.c */
/* link: src/module/ngx_http_sandbox_mcp_read.c */
/* link: src/module/ngx_http_sandbox_mcp_reply.c */
/* link: src/module/ngx_http_sandbox_mcp_search.c */
/* link: src/module/ngx_http_sandbox_mcp_tools.c */
/* link: src/module/ngx_http_sandbox_path.c */
/* link: src/module/ngx_http_sandbox_receipt.c */
/* link: src/module/ngx_http_sandbox_records.c */
/* link: src/module/ngx_http_sandbox_render.c */
/* link: src/module/ngx_http_sandbox_request.c */
/* link: src/module/ngx_http_sandbox_route.c */
/* link: src/module/ngx_http_sandbox_stage.c */
/* link: src/agent/agent_file_request.c src/agent/agent_path.c */
/* link: src/agent/agent_request.c */
/* link: src/wire/sandbox_record.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* link: -ljansson -lcrypto */

#include "ngx_http_sandbox.h"
#include "ngx_http_sandbox_fs.h"
#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_metrics.h"
#include "ngx_http_sandbox_stage.h"
#include "ngx_http_sandbox_stream.h"

#include <setjmp.h>

#include "../agent/agent_file.h"
#include "../agent/agent_request.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static ngx_int_t fuzz_request(ngx_http_request_t *r, u_char **p,
    u_char *last);
static ngx_int_t fuzz_target(ngx_http_request_t *r, u_char *p, u_char *last);
static ngx_int_t fuzz_header(ngx_http_request_t *r, u_char *p, u_char *last);
static void fuzz_body(ngx_http_sandbox_ctx_t *ctx, u_char *p, u_char *last);
static void fuzz_handle(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t fuzz_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void fuzz_head(ngx_http_sandbox_ctx_t *ctx);
static void fuzz_answer(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    u_char *p, u_char *last);
static void fuzz_rendered(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);
static void fuzz_problem(ngx_http_sandbox_problem_t *problem);
void fuzz_unwanted(void);


/* what a handler came to */

static jmp_buf                       fuzz_end;
static ngx_uint_t                    fuzz_started;
static ngx_uint_t                    fuzz_step;  /* bytes at once */

static ngx_log_t                     fuzz_log;
static ngx_connection_t              fuzz_connection;
static ngx_http_sandbox_loc_conf_t   fuzz_conf;
static ngx_http_sandbox_main_conf_t  fuzz_main;
static ngx_http_sandbox_backend_t    fuzz_backend;
static ngx_http_sandbox_hooks_t      fuzz_hooks;
static ngx_http_sandbox_runner_t     fuzz_runner;


/* t/fuzz/run lets all calls of what is not linked come here */

void
fuzz_unwanted(void)
{
    longjmp(fuzz_end, 1);
}


/* of nginx and of files of the module that are not wanted here */

ngx_module_t     ngx_http_sandbox_module;
ngx_module_t     ngx_http_core_module;
volatile ngx_cycle_t  *ngx_cycle;
ngx_pid_t        ngx_pid;


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
    (void) level;
    (void) log;
    (void) err;
    (void) fmt;
}


ngx_int_t
ngx_http_discard_request_body(ngx_http_request_t *r)
{
    (void) r;

    return NGX_OK;
}


void
ngx_http_finalize_request(ngx_http_request_t *r, ngx_int_t rc)
{
    (void) r;
    (void) rc;
}


ngx_http_sandbox_ctx_t *
ngx_http_sandbox_get_ctx(ngx_http_request_t *r)
{
    return ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
}


ngx_int_t
ngx_http_sandbox_session_keys(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    (void) r;
    check(ctx->conversation.len > 0 && ctx->conversation.len <= 128);

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_refuse(ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status,
    const char *code, const char *detail)
{
    ngx_memzero(&ctx->problem, sizeof(ngx_http_sandbox_problem_t));

    ctx->problem.status = status;
    ctx->problem.code.data = (u_char *) code;
    ctx->problem.code.len = ngx_strlen(code);
    ctx->problem.detail.data = (u_char *) detail;
    ctx->problem.detail.len = ngx_strlen(detail);

    return (ngx_int_t) status;
}


ngx_int_t
ngx_http_sandbox_refuse_format(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status, const char *code,
    const char *fmt, ...)
{
    u_char   *p, *last;
    va_list   args;

    p = ngx_pnalloc(r->pool, 1024);
    check(p != NULL);

    va_start(args, fmt);
    last = ngx_vslprintf(p, p + 1023, fmt, args);
    va_end(args);

    *last = '\0';

    return ngx_http_sandbox_refuse(ctx, status, code, (char *) p);
}


ngx_int_t
ngx_http_sandbox_send_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    fuzz_problem(&ctx->problem);

    if (ngx_http_sandbox_render_problem(r, ctx) == NGX_OK) {
        fuzz_rendered(r, ctx);
    }

    return ctx->problem.status;
}


ngx_int_t
ngx_http_sandbox_send_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    fuzz_rendered(r, ctx);

    return NGX_OK;
}


/* who may have how many at once needs shared memory */

ngx_int_t ngx_http_sandbox_budget_enter(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

ngx_int_t
ngx_http_sandbox_budget_enter(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    (void) r;
    (void) ctx;

    return NGX_OK;
}


/* a stream needs nginx's loop */

ngx_int_t
ngx_http_sandbox_stream_init(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    (void) ctx;
    (void) ngx_http_sandbox_accept(r);

    return NGX_OK;
}


u_char *
ngx_http_sandbox_stream_piece(ngx_http_request_t *r,
    ngx_http_sandbox_stream_t *stream, size_t size)
{
    (void) r;
    (void) stream;
    (void) size;
    abort();
}


ngx_int_t
ngx_http_sandbox_stdin_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return fuzz_start(r, ctx);
}


static void
fuzz_ended(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    check(ctx->request == r);
}


/* now and then there is one: a byte of the answer says it */

static ngx_int_t
fuzz_notice(ngx_http_sandbox_ctx_t *ctx, ngx_str_t *code, ngx_str_t *detail)
{
    if (ctx->wire.pings % 2) {
        return NGX_DECLINED;
    }

    ngx_str_set(code, "sandbox_lost");
    ngx_str_set(detail, "what \"was\" there is lost");

    return NGX_OK;
}


off_t
ngx_http_sandbox_max_stdin(const ngx_http_sandbox_loc_conf_t *slcf)
{
    return slcf->caps.file_size;
}


void
ngx_http_sandbox_metrics_result(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    (void) r;
    (void) ctx;
}


void
ngx_http_sandbox_metrics_refusal(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    (void) r;
    (void) ctx;
}


ngx_http_variable_value_t *
ngx_http_get_indexed_variable(ngx_http_request_t *r, ngx_uint_t index)
{
    (void) r;
    (void) index;

    return NULL;
}


void
ngx_http_sandbox_metrics_lost(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    (void) r;
    (void) ctx;
}


void
ngx_http_sandbox_upstream_lost(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_GATEWAY, "bad_upstream",
                            "It can't be understood.");
}


/* ---- */

static void
fuzz_init(void)
{
    static void  *main_conf[1];

    ngx_cacheline_size = 64;
    ngx_pagesize = 4096;

    ngx_time_init();

    fuzz_connection.log = &fuzz_log;

    fuzz_hooks.ended = fuzz_ended;
    fuzz_hooks.notice = fuzz_notice;
    fuzz_backend.hooks = &fuzz_hooks;
    fuzz_backend.start = fuzz_start;
    ngx_str_set(&fuzz_backend.name, "local");

    fuzz_main.request_id = NGX_ERROR;
    main_conf[0] = &fuzz_main;
    (void) main_conf;

    ngx_str_set(&fuzz_conf.prefix, "/sandbox/");
    fuzz_conf.main = &fuzz_main;
    fuzz_conf.backend = &fuzz_backend;
    fuzz_conf.runner = &fuzz_runner;
    fuzz_conf.serves = 1;
    fuzz_conf.caps.memory = 1024 * 1024 * 1024;
    fuzz_conf.caps.output = 4096;
    fuzz_conf.caps.output_total = 1024 * 1024;
    fuzz_conf.caps.file_size = 65536;
    fuzz_conf.caps.command_size = 4096;
    fuzz_conf.caps.disk = 1024 * 1024 * 1024;
    fuzz_conf.caps.cpu_time = 30000;
    fuzz_conf.caps.wall_time = 120000;
    fuzz_conf.caps.background_time = 600000;
    fuzz_conf.caps.processes = 256;
    fuzz_conf.caps.open_files = 1024;
    fuzz_conf.caps.pending = 10;
}


/* the first byte: how many bytes of the answer come at once, and encodings */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char  *p, *last;

    static int                      once;
    static void                    *contexts[1], *confs[1];
    static u_char                  *copy;
    static ngx_pool_t              *pool;
    static ngx_http_request_t      *r;
    static ngx_http_sandbox_ctx_t  *ctx;

    if (!once) {
        once = 1;
        fuzz_init();
    }

    if (size < 2 || size > 65536) {
        return 0;
    }

    copy = malloc(size);
    check(copy != NULL);
    ngx_memcpy(copy, data, size);
    p = copy + 1;
    last = copy + size;

    pool = ngx_create_pool(4096, &fuzz_log);
    check(pool != NULL);

    r = ngx_pcalloc(pool, sizeof(ngx_http_request_t));
    ctx = ngx_pcalloc(pool, sizeof(ngx_http_sandbox_ctx_t));
    check(r != NULL && ctx != NULL);

    r->pool = pool;
    r->main = r;
    r->connection = &fuzz_connection;
    fuzz_connection.pool = pool;
    confs[0] = &fuzz_conf;
    contexts[0] = ctx;
    r->loc_conf = confs;
    r->main_conf = confs;
    r->ctx = contexts;
    ctx->request = r;
    ctx->body.last = &ctx->body.chain;

    check(ngx_list_init(&r->headers_in.headers, pool, 8,
                        sizeof(ngx_table_elt_t)) == NGX_OK);
    check(ngx_list_init(&r->headers_out.headers, pool, 8,
                        sizeof(ngx_table_elt_t)) == NGX_OK);

    fuzz_started = 0;
    fuzz_step = 1 + (copy[0] >> 1);

    if (setjmp(fuzz_end) == 0 && fuzz_request(r, &p, last) == NGX_OK) {
        ngx_http_sandbox_route(r, ctx);

        if (ctx->route == NULL) {
            fuzz_problem(&ctx->refusal);

        } else {
            fuzz_body(ctx, p, last);

            for ( /* void */ ; p < last; p++) {
                if (last - p >= 6 && ngx_memcmp(p, "\n----\n", 6) == 0) {
                    p += 6;
                    break;
                }
            }

            fuzz_handle(r, ctx);

            if (fuzz_started) {
                fuzz_head(ctx);
                fuzz_answer(r, ctx, p, last);
            }
        }
    }

    if (ctx->mcp) {
        json_decref(ctx->mcp->root);
    }

    ngx_destroy_pool(pool);
    free(copy);

    return 0;
}


static ngx_int_t
fuzz_request(ngx_http_request_t *r, u_char **p, u_char *last)
{
    u_char      *end;
    ngx_uint_t   n;

    for (n = 0; n < 32; n++) {
        end = ngx_strlchr(*p, last, '\n');

        if (end == NULL) {
            return NGX_ERROR;
        }

        if (end == *p && n) {
            *p = end + 1;
            return NGX_OK;
        }

        if ((n ? fuzz_header(r, *p, end) : fuzz_target(r, *p, end)) != NGX_OK)
        {
            return NGX_ERROR;
        }

        *p = end + 1;
    }

    return NGX_ERROR;
}


/* a letter for the method, then the target; it is decoded once, as nginx does */

static ngx_int_t
fuzz_target(ngx_http_request_t *r, u_char *p, u_char *last)
{
    u_char  *src, *dst, *args;

    if (last - p < 3 || p[1] != '/' || memchr(p, '\0', last - p)) {
        return NGX_ERROR;
    }

    switch (p[0]) {
    case 'P': r->method = NGX_HTTP_POST;    break;
    case 'U': r->method = NGX_HTTP_PUT;     break;
    case 'D': r->method = NGX_HTTP_DELETE;  break;
    case 'H': r->method = NGX_HTTP_HEAD;    break;
    default:  r->method = NGX_HTTP_GET;     break;
    }

    p++;
    r->unparsed_uri.data = p;
    r->unparsed_uri.len = last - p;

    args = ngx_strlchr(p, last, '?');

    if (args) {
        r->args.data = args + 1;
        r->args.len = last - r->args.data;
        last = args;
    }

    dst = ngx_pnalloc(r->pool, last - p + 1);
    check(dst != NULL);

    r->uri.data = dst;
    src = p;
    ngx_unescape_uri(&dst, &src, last - p, 0);
    r->uri.len = dst - r->uri.data;

    return memchr(r->uri.data, '\0', r->uri.len) ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
fuzz_header(ngx_http_request_t *r, u_char *p, u_char *last)
{
    u_char           *colon;
    ngx_uint_t        i;
    ngx_table_elt_t  *h;

    static const struct {
        const char  *name;
        size_t       offset;
    } known[] = {
        { "Range", offsetof(ngx_http_headers_in_t, range) },
        { "If-Range", offsetof(ngx_http_headers_in_t, if_range) },
        { "If-Match", offsetof(ngx_http_headers_in_t, if_match) },
        { "If-None-Match", offsetof(ngx_http_headers_in_t, if_none_match) },
        { "If-Modified-Since",
          offsetof(ngx_http_headers_in_t, if_modified_since) },
        { "If-Unmodified-Since",
          offsetof(ngx_http_headers_in_t, if_unmodified_since) },
        { "Content-Type", offsetof(ngx_http_headers_in_t, content_type) },
        { "Content-Range", offsetof(ngx_http_headers_in_t, content_range) }
    };

    colon = ngx_strlchr(p, last, ':');

    if (colon == NULL || colon == p || memchr(p, '\0', last - p)) {
        return NGX_ERROR;
    }

    h = ngx_list_push(&r->headers_in.headers);
    check(h != NULL);
    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key.data = p;
    h->key.len = colon - p;

    for (colon++; colon < last && *colon == ' '; colon++) { /* void */ }

    /* nginx's own are ended by NUL */

    h->value.len = last - colon;
    h->value.data = ngx_pnalloc(r->pool, h->value.len + 1);
    check(h->value.data != NULL);
    ngx_memcpy(h->value.data, colon, h->value.len);
    h->value.data[h->value.len] = '\0';

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (h->key.len == ngx_strlen(known[i].name)
            && ngx_strncasecmp(h->key.data, (u_char *) known[i].name,
                               h->key.len)
               == 0)
        {
            *(ngx_table_elt_t **) ((u_char *) &r->headers_in
                                   + known[i].offset) = h;
        }
    }

    return NGX_OK;
}


/* two buffers, as of a body that came in two pieces */

static void
fuzz_body(ngx_http_sandbox_ctx_t *ctx, u_char *p, u_char *last)
{
    size_t        n, part;
    u_char       *end;
    ngx_buf_t    *b;
    ngx_uint_t    i;
    ngx_chain_t  *cl;
    ngx_pool_t   *pool;

    pool = ctx->request->pool;

    for (end = p; end < last; end++) {
        if (last - end >= 6 && ngx_memcmp(end, "\n----\n", 6) == 0) {
            break;
        }
    }

    ctx->body.size = end - p;
    ctx->body.nul = memchr(p, '\0', end - p) != NULL;

    for (i = 0; i < 2; i++) {
        n = end - p;
        part = i ? n : n / 3;

        b = ngx_create_temp_buf(pool, part + 1);
        cl = ngx_alloc_chain_link(pool);
        check(b != NULL && cl != NULL);

        b->last = ngx_cpymem(b->last, p, part);
        p += part;
        cl->buf = b;
        cl->next = NULL;
        *ctx->body.last = cl;
        ctx->body.last = &cl->next;
    }
}


static void
fuzz_handle(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                rc;
    ngx_http_sandbox_mcp_t  *mcp;

    if (ctx->route->handler == ngx_http_sandbox_mcp_handler) {
        mcp = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_mcp_t));
        check(mcp != NULL);
        ctx->mcp = mcp;

        check(ngx_http_sandbox_mcp_parse(r, ctx) == NGX_OK);
        ngx_http_sandbox_mcp_run(r, ctx);
        return;
    }

    /* what is not linked has no address to tell it by */

    if (ngx_strcmp(ctx->route->operation.data, "command.run") == 0) {

        if (ctx->body.nul) {
            return;
        }

        rc = ngx_http_sandbox_request_parse(r, ctx);
        check(rc == NGX_OK || rc == NGX_DECLINED);

        if (rc == NGX_DECLINED) {
            fuzz_problem(&ctx->problem);
            return;
        }

        ngx_http_sandbox_stage_start(r, ctx);
        return;
    }

    if (ctx->route->handler == ngx_http_sandbox_fs_get_handler
        || ctx->route->handler == ngx_http_sandbox_fs_put_handler
        || ctx->route->handler == ngx_http_sandbox_fs_delete_handler
        || ctx->route->handler == ngx_http_sandbox_history_handler
        || ctx->route->handler == ngx_http_sandbox_attach_handler
        || ctx->route->handler == ngx_http_sandbox_cancel_handler
        || ctx->route->handler == ngx_http_sandbox_status_handler
        || ctx->route->handler == ngx_http_sandbox_reset_handler)
    {
        (void) ctx->route->handler(r, ctx);
    }
}


static ngx_int_t
fuzz_start(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    (void) r;
    (void) ctx;
    fuzz_started = 1;

    return NGX_OK;
}


/* what is sent, by those who read it */

static void
fuzz_head(ngx_http_sandbox_ctx_t *ctx)
{
    int                    rc;
    const char            *code, *detail;
    sandbox_field_t        field;
    sandbox_fields_t       fields;
    agent_request_t        request;
    agent_file_request_t   file;

    detail = NULL;
    code = NULL;

    switch (ctx->wire.operation) {

    case SANDBOX_OPERATION_COMMAND:
    case SANDBOX_OPERATION_ATTACH:
    case SANDBOX_OPERATION_CANCEL:
        code = agent_request_read(&request, ctx->wire.operation,
                                  ctx->wire.head.data, ctx->wire.head.len,
                                  &detail);
        break;

    case SANDBOX_OPERATION_FILE_READ:
    case SANDBOX_OPERATION_FILE_WRITE:
    case SANDBOX_OPERATION_FILE_REMOVE:
    case SANDBOX_OPERATION_FILE_SEARCH:
        code = agent_file_request_read(&file, ctx->wire.head.data,
                                       ctx->wire.head.len, &detail);
        break;

    default:
        sandbox_fields_init(&fields, ctx->wire.head.data, ctx->wire.head.len);

        do {
            rc = sandbox_fields_next(&fields, &field);
        } while (rc == SANDBOX_OK);

        check(rc == SANDBOX_END);
    }

    if (code != NULL) {
        fprintf(stderr, "the agent refuses the head of operation %u: %s, "
                "%s\n", (unsigned) ctx->wire.operation, code, detail);
        abort();
    }
}


static void
fuzz_answer(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx, u_char *p,
    u_char *last)
{
    size_t      n;
    u_char     *piece;
    ngx_buf_t   b;
    ngx_int_t   rc;

    ngx_http_sandbox_frames_reset(ctx);
    ctx->wire.started = ngx_current_msec;
    rc = NGX_AGAIN;

    while (p < last && (rc == NGX_AGAIN
                        || (rc == NGX_OK && !ctx->wire.done
                            && ctx->problem.status == 0)))
    {
        n = ngx_min((size_t) (last - p), fuzz_step);

        piece = ngx_pnalloc(r->pool, n);
        check(piece != NULL);
        ngx_memcpy(piece, p, n);

        ngx_memzero(&b, sizeof(ngx_buf_t));
        b.start = b.pos = piece;
        b.last = b.end = piece + n;

        /* of a file that goes on as it comes NGX_OK is any frame */

        do {
            rc = ngx_http_sandbox_frames(r, ctx, &b);
            check(rc != NGX_ERROR);
            check(b.pos <= b.last);
        } while (rc == NGX_OK && b.pos < b.last && !ctx->wire.done);

        ngx_pfree(r->pool, piece);
        p += n;
    }

    if (rc == NGX_OK && ctx->wire.done && ctx->problem.status == 0) {

        if (ctx->answer == NULL) {
            rc = ctx->wire.render(r, ctx);
        }

        check(rc == NGX_OK || rc == NGX_ERROR);

        if (rc == NGX_OK) {
            fuzz_rendered(r, ctx);
        }
    }

    if (ctx->problem.status) {
        fuzz_problem(&ctx->problem);
    }
}


/* one JSON document, as large as it says */

static void
fuzz_rendered(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    off_t         size;
    u_char       *text, *p;
    json_t       *root;
    ngx_chain_t  *cl;

    (void) r;

    /* none at all */

    if (ctx->answer == NULL) {
        return;
    }

    size = 0;

    for (cl = ctx->answer; cl; cl = cl->next) {
        check(cl->buf->last >= cl->buf->pos && cl->buf->last <= cl->buf->end);
        size += cl->buf->last - cl->buf->pos;
    }

    check(size == ctx->answer_size);

    if (size == 0 || (ctx->fs && ctx->fs->listing == NULL
                      && ctx->wire.operation == SANDBOX_OPERATION_FILE_READ))
    {
        return;
    }

    text = malloc(size);
    check(text != NULL);
    p = text;

    for (cl = ctx->answer; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    root = json_loadb((char *) text, size, JSON_REJECT_DUPLICATES, NULL);

    if (root == NULL) {
        fprintf(stderr, "no JSON: %.*s\n", (int) size, text);
        abort();
    }

    json_decref(root);
    free(text);
}


static void
fuzz_problem(ngx_http_sandbox_problem_t *problem)
{
    check(problem->status >= 400 && problem->status < 600);
    check(problem->code.len > 0);
    check(problem->detail.len == 0
          || sandbox_utf8_head(problem->detail.data, problem->detail.len)
             <= problem->detail.len);
}
