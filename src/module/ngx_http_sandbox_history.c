/*
 * GET .../commands: receipts of a conversation, newest first.  They come as
 * records of fields in DATA frames, cut anywhere, and leave as one JSON array.
 */

#include "ngx_http_sandbox_records.h"


#define NGX_HTTP_SANDBOX_HISTORY_LIMIT   100     /* if none is asked for */
#define NGX_HTTP_SANDBOX_HISTORY_RECORD  (SANDBOX_WIRE_MAX_RESULT + 4096)

/* what an agent can make of a page, if it wants to */

#define NGX_HTTP_SANDBOX_HISTORY_SIZE    (8 * 1024 * 1024)


struct ngx_http_sandbox_history_s {
    uint64_t                       limit;
    uint64_t                       count;
    ngx_http_sandbox_records_t     records;
    u_char                         record[NGX_HTTP_SANDBOX_HISTORY_RECORD];
};


static ngx_int_t ngx_http_sandbox_history_arguments(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uint64_t *before);
static const char *ngx_http_sandbox_history_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static const char *ngx_http_sandbox_history_record(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_render_history(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


ngx_int_t
ngx_http_sandbox_history_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t          before;
    sandbox_writer_t  w;

    ctx->history = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_history_t));
    if (ctx->history == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->history->records.in.max = NGX_HTTP_SANDBOX_HISTORY_RECORD;
    ctx->history->records.limit = NGX_HTTP_SANDBOX_HISTORY_SIZE;
    ctx->history->records.opening = "{\"commands\":[";
    ctx->history->records.in.data = ctx->history->record;

    if (ngx_http_sandbox_history_arguments(r, ctx, &before) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_head_begin(r, ctx, &w, 256) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    sandbox_write_number(&w, SANDBOX_TAG_LIMIT, ctx->history->limit);
    sandbox_write_number(&w, SANDBOX_TAG_BEFORE, before);

    ctx->wire.head.len = w.pos - w.start;
    ctx->wire.operation = SANDBOX_OPERATION_HISTORY;
    ctx->wire.render = ngx_http_sandbox_render_history;
    ctx->wire.data = ngx_http_sandbox_history_data;

    return ngx_http_sandbox_start(r, ctx);
}


static ngx_int_t
ngx_http_sandbox_history_arguments(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uint64_t *before)
{
    uint64_t   limit;
    ngx_str_t  value;

    *before = 0;
    limit = NGX_HTTP_SANDBOX_HISTORY_LIMIT;

    if (ngx_http_sandbox_argument(r, "limit", &value) == NGX_OK
        && (ngx_http_sandbox_decimal(&value, SANDBOX_WIRE_MAX_HISTORY, &limit)
            != NGX_OK
            || limit == 0))
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"limit\" must be a number from 1 to 1000.");
        return NGX_DECLINED;
    }

    if (ngx_http_sandbox_argument(r, "cursor", &value) == NGX_OK
        && (ngx_http_sandbox_decimal(&value, ((uint64_t) 1 << 53) - 1, before)
            != NGX_OK
            || *before == 0))
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"cursor\" must be \"next\" of a page before "
                                "this one.");
        return NGX_DECLINED;
    }

    ctx->history->limit = limit;

    return NGX_OK;
}


static const char *
ngx_http_sandbox_history_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    return ngx_http_sandbox_records_data(r, ctx, &ctx->history->records,
                                         ngx_http_sandbox_history_record,
                                         p, n);
}


static const char *
ngx_http_sandbox_history_record(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                      *p;
    size_t                       size, len;
    ngx_buf_t                   *b;
    const char                  *what;
    ngx_uint_t                   ignored;
    ngx_http_sandbox_result_t    result;
    ngx_http_sandbox_history_t  *history;

    history = ctx->history;

    if (history->count == history->limit) {
        return "more receipts than it was asked for";
    }

    ngx_memzero(&result, sizeof(ngx_http_sandbox_result_t));

    what = ngx_http_sandbox_result_read(&result, history->record,
                                        history->records.in.size);
    if (what) {
        return what;
    }

    if (!result.seen[SANDBOX_TAG_COMMAND_STATE]) {
        return "a receipt without a state";
    }

    /* a part of a command ends before a character that was cut */

    len = sandbox_utf8_head(result.command.data, result.command.len);

    size = 256 + ngx_http_sandbox_receipt_size(ctx, &result)
           + ngx_http_sandbox_escape(NULL, result.command.data, len,
                                     &ignored);

    b = ngx_http_sandbox_records_room(r, &history->records, size);
    if (b == NULL) {
        return "more receipts than there is room for";
    }

    p = ngx_sprintf(b->last, "%s{", history->count++ ? "," : "");

    p = ngx_http_sandbox_render_receipt(p, ctx, &result);

    p = ngx_sprintf(p, ",\"state\":\"%s\",\"command\":\"",
                    sandbox_command_state_name(
                               result.number[SANDBOX_TAG_COMMAND_STATE]));
    p += ngx_http_sandbox_escape(p, result.command.data, len, &ignored);

    p = ngx_sprintf(p, "\",\"background\":%s,\"outputExpired\":%s",
                    result.number[SANDBOX_TAG_DETACHED] ? "true" : "false",
                    result.number[SANDBOX_TAG_OUTPUT_EXPIRED] ? "true"
                                                              : "false");
    p = ngx_http_sandbox_receipt_times(p, &result);

    *p++ = '}';

    b->last = p;

    return NULL;
}


static ngx_int_t
ngx_http_sandbox_render_history(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                     next;
    ngx_buf_t                   *b;
    ngx_chain_t                 *cl;
    ngx_http_sandbox_history_t  *history;

    history = ctx->history;
    next = ctx->wire.result.number[SANDBOX_TAG_NEXT];

    b = ngx_http_sandbox_records_room(r, &history->records, 128);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = next ? ngx_sprintf(b->last, "],\"next\":\"%uL\"}\n", next)
                   : ngx_sprintf(b->last, "],\"next\":null}\n");

    if (ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->answer = history->records.out;
    ctx->answer_size = 0;

    for (cl = history->records.out; cl; cl = cl->next) {
        ctx->answer_size += cl->buf->last - cl->buf->pos;
    }

    return NGX_OK;
}
