/*
 * A conversation's sandbox as a whole: its state, its end, a fresh one.  Each
 * is one operation on the wire without head or body, and a few fields back.
 */

#include "ngx_http_sandbox.h"


static ngx_int_t ngx_http_sandbox_conversation(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t operation,
    ngx_int_t (*render)(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx));
static ngx_int_t ngx_http_sandbox_render_status(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_render_delete(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_render_reset(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static u_char *ngx_http_sandbox_time(u_char *p, uint64_t ms);
static void ngx_http_sandbox_field(ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b,
    const char *name, ngx_uint_t tag, uint64_t divisor);


ngx_int_t
ngx_http_sandbox_status_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return ngx_http_sandbox_conversation(r, ctx, SANDBOX_OPERATION_STATUS,
                                         ngx_http_sandbox_render_status);
}


ngx_int_t
ngx_http_sandbox_delete_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return ngx_http_sandbox_conversation(r, ctx, SANDBOX_OPERATION_DELETE,
                                         ngx_http_sandbox_render_delete);
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
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    ctx->wire.operation = operation;
    ctx->wire.render = render;

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->main->count++;

    if (slcf->backend->start(r, ctx) != NGX_OK) {
        r->main->count--;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_DONE;
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

    b->last = ngx_sprintf(b->last, "{\"conversationId\":\"%V\","
                          "\"state\":\"%s\"", &ctx->conversation,
                          sandbox_state_name(
                                      result->number[SANDBOX_TAG_STATE]));

    if (result->number[SANDBOX_TAG_STATE] == SANDBOX_STATE_NONE) {
        b->last = ngx_cpymem(b->last, "}\n", 2);

        return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
    }

    if (result->sandbox_id.len) {
        b->last = ngx_sprintf(b->last, ",\"sandboxId\":\"%V\"",
                              &result->sandbox_id);
    }

    b->last = ngx_cpymem(b->last, ",\"createdAt\":",
                         sizeof(",\"createdAt\":") - 1);
    b->last = ngx_http_sandbox_time(b->last,
                                    result->number[SANDBOX_TAG_CREATED_MS]);
    b->last = ngx_cpymem(b->last, ",\"lastUsedAt\":",
                         sizeof(",\"lastUsedAt\":") - 1);
    b->last = ngx_http_sandbox_time(b->last,
                                    result->number[SANDBOX_TAG_USED_MS]);

    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "commands", SANDBOX_TAG_COMMANDS, 1);
    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "running", SANDBOX_TAG_RUNNING, 1);
    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "queued", SANDBOX_TAG_QUEUED, 1);
    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "backgroundProcesses",
                           SANDBOX_TAG_BACKGROUND, 1);

    b->last = ngx_cpymem(b->last, ",\"usage\":{", sizeof(",\"usage\":{") - 1);
    ngx_http_sandbox_field(ctx, b, "diskBytes", SANDBOX_TAG_DISK_BYTES, 1);
    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "memoryBytes", SANDBOX_TAG_MEMORY_BYTES, 1);
    *b->last++ = ',';
    ngx_http_sandbox_field(ctx, b, "cpuMs", SANDBOX_TAG_CPU_TOTAL_US, 1000);

    b->last = ngx_cpymem(b->last, "}}\n", 3);

    return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
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


/* RFC 3339, in UTC; 0 is never */

static u_char *
ngx_http_sandbox_time(u_char *p, uint64_t ms)
{
    ngx_tm_t  tm;

    /* until the year 9999: four digits are all there is */

    if (ms == 0 || ms / 1000 > 253402300799) {
        return ngx_cpymem(p, "null", 4);
    }

    ngx_gmtime((time_t) (ms / 1000), &tm);

    return ngx_sprintf(p, "\"%4d-%02d-%02dT%02d:%02d:%02d.%03dZ\"",
                       tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                       tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec,
                       (int) (ms % 1000));
}


static void
ngx_http_sandbox_field(ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b,
    const char *name, ngx_uint_t tag, uint64_t divisor)
{
    b->last = ngx_sprintf(b->last, "\"%s\":%uL", name,
                          ctx->wire.result.number[tag] / divisor);
}
