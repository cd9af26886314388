/*
 * A command as JSON: its result, with its output or without, and what is
 * known of one that has not ended.  Fields come checked from frames.c; knows
 * no frames and no events.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_stage.h"


static u_char *ngx_http_sandbox_receipt_head(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_result_t *result);
static u_char *ngx_http_sandbox_receipt_outcome(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_result_t *result);
static u_char *ngx_http_sandbox_receipt_tail(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_result_t *result,
    ngx_uint_t stripped);
static u_char *ngx_http_sandbox_receipt_usage(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_result_t *result);
static u_char *ngx_http_sandbox_receipt_text(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, const char *name, ngx_str_t *text);
static u_char *ngx_http_sandbox_receipt_flag(u_char *p, const char *name,
    uint64_t value);
static u_char *ngx_http_sandbox_receipt_timeout(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_result_t *result);
static ngx_int_t ngx_http_sandbox_receipt_output(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t i, ngx_str_t *text,
    ngx_uint_t *stripped);
static void ngx_http_sandbox_receipt_release(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *out, ngx_str_t *err);
static ngx_int_t ngx_http_sandbox_render_state(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* names and numbers take less than a kilobyte */

#define NGX_HTTP_SANDBOX_RECEIPT_SIZE  2048


/*
 * The answer of whatever ends with a command's receipt.  A command that has
 * no outcome yet is in the background, or was only asked about.
 */

ngx_int_t
ngx_http_sandbox_render_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t                      size;
    ngx_buf_t                  *b;
    ngx_str_t                   out, err;
    ngx_uint_t                  stripped;
    ngx_http_sandbox_result_t  *result;

    result = &ctx->wire.result;

    if (!ctx->wire.lost && !result->seen[SANDBOX_TAG_OUTCOME]) {
        return ngx_http_sandbox_render_state(r, ctx);
    }

    stripped = 0;

    if (ngx_http_sandbox_receipt_output(r, ctx, 0, &out, &stripped) != NGX_OK
        || ngx_http_sandbox_receipt_output(r, ctx, 1, &err, &stripped)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    size = ngx_http_sandbox_receipt_size(ctx, result) + out.len + err.len;

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_ERROR;
    }

    ngx_http_sandbox_budget_add(ctx, size);

    *b->last++ = '{';

    b->last = ngx_http_sandbox_receipt_head(b->last, ctx, result);
    b->last = ngx_http_sandbox_receipt_text(b->last, ctx, "stdout", &out);
    b->last = ngx_http_sandbox_receipt_text(b->last, ctx, "stderr", &err);
    b->last = ngx_http_sandbox_receipt_tail(b->last, ctx, result, stripped);

    if (result->number[SANDBOX_TAG_OUTPUT_EXPIRED]) {
        b->last = ngx_http_sandbox_receipt_flag(b->last, "outputExpired", 1);
    }

    b->last = ngx_cpymem(b->last, "}\n", 2);

    ngx_http_sandbox_receipt_release(r, ctx, &out, &err);

    return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
}


/*
 * The answer has its own copy.  A client may be slow to read that, and must
 * not hold the output three times.
 */

static void
ngx_http_sandbox_receipt_release(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *out, ngx_str_t *err)
{
    ngx_uint_t  i;

    if (out->data) {
        ngx_pfree(r->pool, out->data);
    }

    if (err->data) {
        ngx_pfree(r->pool, err->data);
    }

    for (i = 0; i < 2; i++) {
        if (ctx->wire.stream[i].data) {
            ngx_pfree(r->pool, ctx->wire.stream[i].data);
            ngx_http_sandbox_budget_give(ctx, ctx->wire.stream[i].size);
        }
    }

    ngx_memzero(ctx->wire.stream, sizeof(ctx->wire.stream));
}


/*
 * Text that is not there is null: no longer kept, or not sent by an agent of
 * before, which answered a cancellation by the receipt alone.
 */

static ngx_int_t
ngx_http_sandbox_receipt_output(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t i, ngx_str_t *text,
    ngx_uint_t *stripped)
{
    uint64_t                    written;
    ngx_http_sandbox_result_t  *result;

    result = &ctx->wire.result;

    written = result->number[i ? SANDBOX_TAG_STDERR_BYTES
                               : SANDBOX_TAG_STDOUT_BYTES];

    if (result->number[SANDBOX_TAG_OUTPUT_EXPIRED]
        || (ctx->wire.operation == SANDBOX_OPERATION_CANCEL
            && written && ctx->wire.stream[i].len == 0))
    {
        ngx_str_null(text);
        return NGX_OK;
    }

    return ngx_http_sandbox_render_output(r, &ctx->wire.stream[i],
                                          ctx->base64, text, stripped);
}


static ngx_int_t
ngx_http_sandbox_render_state(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                     *p;
    ngx_buf_t                  *b;
    ngx_str_t                  *cwd;
    ngx_uint_t                  ignored;
    ngx_http_sandbox_result_t  *result;

    result = &ctx->wire.result;
    cwd = result->cwd.len ? &result->cwd : &ctx->cwd;

    b = ngx_create_temp_buf(r->pool,
                            ngx_http_sandbox_receipt_size(ctx, result));
    if (b == NULL) {
        return NGX_ERROR;
    }

    p = b->last;

    *p++ = '{';
    p = ngx_http_sandbox_render_id(p, "commandId", &result->command_id);
    *p++ = ',';
    p = ngx_http_sandbox_render_id(p, "sandboxId", &result->sandbox_id);

    if (cwd->len) {
        p = ngx_sprintf(p, ",\"cwd\":\"");
        p += ngx_http_sandbox_escape(p, cwd->data, cwd->len, &ignored);
        *p++ = '"';

    } else {
        p = ngx_sprintf(p, ",\"cwd\":null");
    }

    p = ngx_sprintf(p, ",\"state\":\"%s\"",
                    sandbox_command_state_name(
                              result->number[SANDBOX_TAG_COMMAND_STATE]));

    /* a stream from the start has come to the present with this event */

    p = ngx_http_sandbox_render_number(p, "seq",
                                       result->seen[SANDBOX_TAG_SEQ],
                                       result->number[SANDBOX_TAG_SEQ]);

    p = ngx_http_sandbox_receipt_timeout(p, ctx, result);
    p = ngx_http_sandbox_render_number(p, "queuedMs",
                                       result->seen[SANDBOX_TAG_QUEUED_US],
                                       (result->number[SANDBOX_TAG_QUEUED_US]
                                        + 500) / 1000);
    p = ngx_http_sandbox_receipt_flag(p, "sandboxCreated",
                                      result->number[SANDBOX_TAG_CREATED]);
    p = ngx_http_sandbox_receipt_times(p, result);
    p = ngx_http_sandbox_stage_notices(p, ctx, result);
    p = ngx_sprintf(p, "}\n");

    b->last = p;

    /* accepted: it runs, and its result is to be had later */

    return ngx_http_sandbox_render_buffer(r, ctx,
                                          ctx->wire.operation
                                          == SANDBOX_OPERATION_COMMAND
                                          ? NGX_HTTP_ACCEPTED : NGX_HTTP_OK,
                                          b);
}


size_t
ngx_http_sandbox_receipt_size(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    ngx_str_t   *cwd;
    ngx_uint_t   ignored;

    cwd = result->cwd.len ? &result->cwd : &ctx->cwd;

    return NGX_HTTP_SANDBOX_RECEIPT_SIZE
           + ngx_http_sandbox_escape(NULL, cwd->data, cwd->len, &ignored)
           + ngx_http_sandbox_stage_size(ctx, result);
}


u_char *
ngx_http_sandbox_render_receipt(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    p = ngx_http_sandbox_receipt_head(p, ctx, result);

    return ngx_http_sandbox_receipt_tail(p, ctx, result, 0);
}


static u_char *
ngx_http_sandbox_receipt_head(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    ngx_str_t   *cwd;
    ngx_uint_t   ignored;

    cwd = result->cwd.len ? &result->cwd : &ctx->cwd;

    p = ngx_http_sandbox_render_id(p, "commandId", &result->command_id);
    *p++ = ',';
    p = ngx_http_sandbox_render_id(p, "sandboxId", &result->sandbox_id);

    p = ngx_sprintf(p, ",\"cwd\":\"");
    p += ngx_http_sandbox_escape(p, cwd->data, cwd->len, &ignored);
    *p++ = '"';

    return ngx_http_sandbox_receipt_outcome(p, ctx, result);
}


static u_char *
ngx_http_sandbox_receipt_outcome(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    ngx_str_t   outcome;
    ngx_uint_t  lost;

    lost = ctx->wire.lost;
    ngx_str_null(&outcome);

    if (lost || result->seen[SANDBOX_TAG_OUTCOME]) {
        outcome.data = (u_char *) sandbox_outcome_name(
                                      lost ? SANDBOX_OUTCOME_LOST
                                      : result->number[SANDBOX_TAG_OUTCOME]);
        outcome.len = ngx_strlen(outcome.data);
    }

    if (result == &ctx->wire.result) {
        ctx->outcome = outcome;
    }

    p = ngx_http_sandbox_render_number(p, "exitCode",
                                       !lost
                                       && result->seen[SANDBOX_TAG_EXIT_CODE],
                                       result->number[SANDBOX_TAG_EXIT_CODE]);
    *p++ = ',';
    p = ngx_http_sandbox_render_id(p, "signal", &result->signal);
    *p++ = ',';

    return ngx_http_sandbox_render_id(p, "outcome", &outcome);
}


static u_char *
ngx_http_sandbox_receipt_tail(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result, ngx_uint_t stripped)
{
    ngx_uint_t                   i, tag;
    ngx_http_sandbox_capture_t  *stream;

    stream = ctx->wire.stream;

    for (i = 0; i < 2; i++) {
        tag = i ? SANDBOX_TAG_STDERR_BYTES : SANDBOX_TAG_STDOUT_BYTES;

        p = ngx_http_sandbox_render_number(p,
                                           i ? "stderrBytes" : "stdoutBytes",
                                           1, result->seen[tag]
                                              ? result->number[tag]
                                              : stream[i].len);
    }

    p = ngx_http_sandbox_receipt_flag(p, "truncated",
                                      result->number[SANDBOX_TAG_TRUNCATED]
                                      || stream[0].gap || stream[1].gap);
    p = ngx_http_sandbox_receipt_flag(p, "binaryStripped", stripped);

    p = ngx_http_sandbox_receipt_usage(p, ctx, result);

    return ngx_http_sandbox_stage_notices(p, ctx, result);
}


/* what a command used is known when it has ended, of a lost one to nobody */

static u_char *
ngx_http_sandbox_receipt_usage(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    uint64_t    duration, *number;
    ngx_uint_t  known, lost;

    lost = ctx->wire.lost;
    number = result->number;
    known = !lost && result->seen[SANDBOX_TAG_OUTCOME];

    duration = lost ? ngx_current_msec - ctx->wire.started
                    : (number[SANDBOX_TAG_DURATION_US] + 500) / 1000;

    p = ngx_http_sandbox_receipt_flag(p, "timedOut",
                                      known && number[SANDBOX_TAG_OUTCOME]
                                               == SANDBOX_OUTCOME_TIMEOUT);

    p = ngx_http_sandbox_receipt_timeout(p, ctx, result);

    p = ngx_http_sandbox_render_number(p, "durationMs", known || lost,
                                       duration);
    p = ngx_http_sandbox_render_number(p, "queuedMs",
                                       known
                                       || (!lost
                                        && result->seen[SANDBOX_TAG_QUEUED_US]),
                                       (number[SANDBOX_TAG_QUEUED_US] + 500)
                                       / 1000);
    p = ngx_http_sandbox_render_number(p, "cpuMs", known,
                                       (number[SANDBOX_TAG_CPU_US] + 500)
                                       / 1000);
    p = ngx_http_sandbox_render_number(p, "memoryPeakBytes", known,
                                       number[SANDBOX_TAG_MEMORY_PEAK]);
    p = ngx_http_sandbox_render_number(p, "backgroundProcesses", known,
                                       number[SANDBOX_TAG_BACKGROUND]);

    return ngx_http_sandbox_receipt_flag(p, "sandboxCreated",
                                         number[SANDBOX_TAG_CREATED]);
}


static u_char *
ngx_http_sandbox_receipt_timeout(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    uint64_t  wall;

    wall = result->seen[SANDBOX_TAG_WALL_MS]
           ? result->number[SANDBOX_TAG_WALL_MS] : ctx->wall_time;

    return ngx_http_sandbox_render_number(p, "timeoutSeconds", wall != 0,
                                          wall / 1000);
}


/* base64 says so in its name; data NULL is what is kept no more */

static u_char *
ngx_http_sandbox_receipt_text(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    const char *name, ngx_str_t *text)
{
    p = ngx_sprintf(p, ",\"%s%s\":", name, ctx->base64 ? "Base64" : "");

    if (text->data == NULL) {
        return ngx_cpymem(p, "null", 4);
    }

    *p++ = '"';
    p = ngx_cpymem(p, text->data, text->len);
    *p++ = '"';

    return p;
}


static u_char *
ngx_http_sandbox_receipt_flag(u_char *p, const char *name, uint64_t value)
{
    return ngx_sprintf(p, ",\"%s\":%s", name, value ? "true" : "false");
}


u_char *
ngx_http_sandbox_receipt_times(u_char *p, ngx_http_sandbox_result_t *result)
{
    uint64_t  *number;

    number = result->number;

    p = ngx_sprintf(p, ",\"acceptedAt\":");
    p = ngx_http_sandbox_time(p, number[SANDBOX_TAG_ACCEPTED_MS]);
    p = ngx_sprintf(p, ",\"startedAt\":");
    p = ngx_http_sandbox_time(p, number[SANDBOX_TAG_STARTED_MS]);
    p = ngx_sprintf(p, ",\"endedAt\":");

    return ngx_http_sandbox_time(p, number[SANDBOX_TAG_ENDED_MS]);
}


/* letters only, frames.c has seen to it; null where there is none */

u_char *
ngx_http_sandbox_render_id(u_char *p, const char *name, ngx_str_t *id)
{
    return id->len ? ngx_sprintf(p, "\"%s\":\"%V\"", name, id)
                   : ngx_sprintf(p, "\"%s\":null", name);
}


u_char *
ngx_http_sandbox_render_number(u_char *p, const char *name, ngx_uint_t seen,
    uint64_t value)
{
    return seen ? ngx_sprintf(p, ",\"%s\":%uL", name, value)
                : ngx_sprintf(p, ",\"%s\":null", name);
}


/* RFC 3339, in UTC; 0 is never */

u_char *
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
