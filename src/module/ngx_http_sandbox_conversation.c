/*
 * A conversation's sandbox as a whole: its state, its end, a fresh one.  Each
 * is one operation on the wire without head or body, and a few fields back.
 */

#include "ngx_http_sandbox_conversations.h"
#include "sandbox_store_engine.h"


static ngx_int_t ngx_http_sandbox_conversation(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t operation,
    ngx_int_t (*render)(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx));
static void ngx_http_sandbox_delete_drop(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_delete_dropped(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_render_status(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_render_delete(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_render_reset(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_field(ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b,
    const char *name, ngx_uint_t tag, uint64_t divisor);


ngx_int_t
ngx_http_sandbox_status_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return ngx_http_sandbox_conversation(r, ctx, SANDBOX_OPERATION_STATUS,
                                         ngx_http_sandbox_render_status);
}


/* its files first: whoever dies in between, they do not come back */

ngx_int_t
ngx_http_sandbox_delete_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;
    ngx_http_sandbox_store_op_t  *op;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->store == NULL) {
        return ngx_http_sandbox_conversation(r, ctx, SANDBOX_OPERATION_DELETE,
                                             ngx_http_sandbox_render_delete);
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_FILES,
                                   ngx_http_sandbox_delete_dropped);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->data = ngx_pcalloc(r->pool, sizeof(sandbox_store_engine_t));
    if (op->data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* a mark that no thread has come to would be made behind the drop */

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_sandbox_conversations_unmark(r, ctx);

    if (ngx_http_sandbox_store_run(op, ngx_http_sandbox_delete_drop)
        != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


/* in a thread; where its sandbox is goes with the rest, so it is read first */

static void
ngx_http_sandbox_delete_drop(ngx_http_sandbox_store_op_t *op)
{
    (void) sandbox_store_engine_read(&op->place, op->data, &op->fault);
    (void) sandbox_store_drop(&op->place, &op->fault);
}


static void
ngx_http_sandbox_delete_dropped(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    ngx_http_sandbox_store_sweep_soon(slcf->store);

    ctx->wire.operation = SANDBOX_OPERATION_DELETE;
    ctx->wire.render = ngx_http_sandbox_render_delete;

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK
        || (slcf->backend->hooks->recorded
            && slcf->backend->hooks->recorded(r, ctx, op->data) != NGX_OK))
    {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_sandbox_conversations_unmark(r, ctx);

    if (slcf->backend->start(r, ctx) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


ngx_int_t
ngx_http_sandbox_reset_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return ngx_http_sandbox_conversation(r, ctx, SANDBOX_OPERATION_RESET,
                                         ngx_http_sandbox_render_reset);
}


static ngx_int_t
ngx_http_sandbox_conversation(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t operation,
    ngx_int_t (*render)(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx))
{
    ctx->wire.operation = operation;
    ctx->wire.render = render;

    return ngx_http_sandbox_start(r, ctx);
}


static ngx_int_t
ngx_http_sandbox_render_status(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_buf_t                  *b;
    ngx_http_sandbox_result_t  *result;

    result = &ctx->wire.result;

    b = ngx_create_temp_buf(r->pool, 1024 + ctx->conversation.len);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"conversationId\":\"%V\",",
                          &ctx->conversation);

    if (result->number[SANDBOX_TAG_STATE] == SANDBOX_STATE_NONE) {
        b->last = ngx_sprintf(b->last, "\"state\":\"none\"}\n");

        return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
    }

    b->last = ngx_http_sandbox_render_sandbox(b->last, result);

    b->last = ngx_cpymem(b->last, ",\"usage\":{", sizeof(",\"usage\":{") - 1);
    ngx_http_sandbox_field(ctx, b, "diskBytes", SANDBOX_TAG_DISK_BYTES, 1);
    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "memoryBytes", SANDBOX_TAG_MEMORY_BYTES, 1);
    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "cpuMs", SANDBOX_TAG_CPU_TOTAL_US, 1000);

    b->last = ngx_cpymem(b->last, "}}\n", 3);

    return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
}


u_char *
ngx_http_sandbox_render_sandbox(u_char *p, ngx_http_sandbox_result_t *result)
{
    p = ngx_sprintf(p, "\"state\":\"%s\"",
                    sandbox_state_name(result->number[SANDBOX_TAG_STATE]));

    if (result->sandbox_id.len) {
        p = ngx_sprintf(p, ",\"sandboxId\":\"%V\"", &result->sandbox_id);
    }

    p = ngx_sprintf(p, ",\"createdAt\":");
    p = ngx_http_sandbox_time(p, result->number[SANDBOX_TAG_CREATED_MS]);
    p = ngx_sprintf(p, ",\"lastUsedAt\":");
    p = ngx_http_sandbox_time(p, result->number[SANDBOX_TAG_USED_MS]);

    if (result->seen[SANDBOX_TAG_EXPIRES_MS]) {
        p = ngx_sprintf(p, ",\"expiresAt\":");
        p = ngx_http_sandbox_time(p, result->number[SANDBOX_TAG_EXPIRES_MS]);
    }

    return ngx_sprintf(p, ",\"commands\":%uL,\"running\":%uL,"
                       "\"queued\":%uL,\"backgroundProcesses\":%uL",
                       result->number[SANDBOX_TAG_COMMANDS],
                       result->number[SANDBOX_TAG_RUNNING],
                       result->number[SANDBOX_TAG_QUEUED],
                       result->number[SANDBOX_TAG_BACKGROUND]);
}


static ngx_int_t
ngx_http_sandbox_render_delete(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ctx->answer = NULL;
    ctx->answer_size = -1;
    ctx->answer_status = NGX_HTTP_NO_CONTENT;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_render_reset(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_buf_t                  *b;
    ngx_http_sandbox_result_t  *result;

    result = &ctx->wire.result;

    b = ngx_create_temp_buf(r->pool, 256);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last,
                          "{\"state\":\"%s\",\"sandboxId\":\"%V\"}\n",
                          sandbox_state_name(
                                      result->number[SANDBOX_TAG_STATE]),
                          &result->sandbox_id);

    return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
}


static void
ngx_http_sandbox_field(ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b,
    const char *name, ngx_uint_t tag, uint64_t divisor)
{
    b->last = ngx_sprintf(b->last, "\"%s\":%uL", name,
                          ctx->wire.result.number[tag] / divisor);
}
