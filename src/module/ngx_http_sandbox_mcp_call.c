/*
 * A tool is called: whose conversation it is, run_command, and commands that
 * are ended by notifications/cancelled.  Steps of a tool that has several
 * follow each other as upstreams of one request.
 */

#include "ngx_http_sandbox_mcp.h"

#include <openssl/err.h>
#include <openssl/evp.h>


static ngx_int_t ngx_http_sandbox_mcp_conversation(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_label(json_t *id, u_char *label);
static ngx_int_t ngx_http_sandbox_mcp_status(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_mcp_pause(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_mcp_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_mcp_render_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_mcp_cut(ngx_http_sandbox_capture_t *c);
static void ngx_http_sandbox_mcp_stream(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_capture_t *c, const char *title);
static void ngx_http_sandbox_mcp_ending(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_mcp_notices(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_render_cancel(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


void
ngx_http_sandbox_mcp_call(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t  rc;

    ctx->mcp->calling = 1;

    rc = ctx->problem.status ? NGX_DECLINED
                             : ngx_http_sandbox_mcp_conversation(r, ctx);

    if (rc == NGX_OK) {
        rc = ctx->mcp->tool->start(r, ctx);
    }

    if (rc == NGX_OK) {
        return;
    }

    ngx_http_finalize_request(r, rc == NGX_DECLINED
                                 ? ngx_http_sandbox_send_problem(r, ctx)
                                 : NGX_HTTP_INTERNAL_SERVER_ERROR);
}


/* by the token, else the path, else the header; by an argument if that may */

static ngx_int_t
ngx_http_sandbox_mcp_conversation(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_str_t                     header;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    rc = ngx_http_sandbox_mcp_header(r, "Sandbox-Conversation", &header);

    if (rc != NGX_DECLINED) {

        if (rc != NGX_OK || !ngx_http_sandbox_route_conversation(&header)) {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST,
                                    "conversation_needed",
                                    "The header Sandbox-Conversation must be "
                                    "there once, with 1 to 128 characters of "
                                    "A-Z a-z 0-9 . _ : and -.");
            return NGX_DECLINED;
        }

        if (ctx->conversation.len == 0) {
            ctx->conversation = header;
        }
    }

    /* what token, path and header say must not differ */

    if (slcf->conversation_claim.path) {

        if (ctx->conversation.len == 0) {
            ctx->conversation = ctx->principal.conversation;
        }

        if (!ngx_http_sandbox_route_conversation(&ctx->conversation)
            || ngx_http_sandbox_own_conversation(r, ctx) != NGX_OK)
        {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_NOT_FOUND, "not_found",
                                    "The token is for no conversation, or "
                                    "for another one.");
            return NGX_DECLINED;
        }
    }

    if (rc == NGX_OK
        && (header.len != ctx->conversation.len
            || ngx_memcmp(header.data, ctx->conversation.data, header.len)
               != 0))
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_NOT_FOUND, "not_found",
                                "The header Sandbox-Conversation names "
                                "another conversation than the path.");
        return NGX_DECLINED;
    }

    if (ctx->conversation.len) {
        return NGX_OK;
    }

    if (ctx->mcp->wanted.len) {
        ctx->conversation = ctx->mcp->wanted;
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "conversation_needed",
                            "Nothing says which conversation this is: "
                            "configure the client with the URL "
                            "\".../v1/conversations/ID/mcp\", or with a header "
                            "\"Sandbox-Conversation: ID\".");

    return NGX_DECLINED;
}


ngx_uint_t
ngx_http_sandbox_mcp_argument(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t                     header;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    return slcf->mcp_argument
           && ctx->conversation.len == 0
           && slcf->conversation_claim.path == NULL
           && ngx_http_sandbox_mcp_header(r, "Sandbox-Conversation", &header)
              == NGX_DECLINED;
}


ngx_int_t
ngx_http_sandbox_mcp_send(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    sandbox_writer_t *w)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (w->failed) {
        return NGX_ERROR;
    }

    ctx->wire.head.len = w->pos - w->start;

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return slcf->backend->start(r, ctx);
}


/* of an id with its type, as it came: 1 and "1" are two */

static ngx_int_t
ngx_http_sandbox_mcp_label(json_t *id, u_char *label)
{
    char       *text;
    u_char      digest[EVP_MAX_MD_SIZE];
    ngx_int_t   rc;

    text = json_dumps(id, JSON_ENCODE_ANY);
    if (text == NULL) {
        return NGX_ERROR;
    }

    rc = EVP_Digest(text, ngx_strlen(text), digest, NULL, EVP_sha256(), NULL)
         == 1 ? NGX_OK : NGX_ERROR;

    free(text);

    if (rc != NGX_OK) {
        ERR_clear_error();
        return NGX_ERROR;
    }

    ngx_hex_dump(label, digest, NGX_HTTP_SANDBOX_MCP_LABEL / 2);

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_mcp_prepare_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                   label[NGX_HTTP_SANDBOX_MCP_LABEL];
    json_t                  *target, *id, *arguments;
    ngx_str_t                name;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;
    arguments = mcp->arguments;

    /*
     * Closing the connection is how a client of this revision cancels; one
     * that named its command means to come back for it.
     */

    ctx->cancel = mcp->modern && !json_object_get(arguments, "commandId");

    target = json_object_get(arguments, "target");
    id = json_object_get(target, "id");

    if (json_is_true(json_object_get(target, "fresh"))) {

        if (json_object_set_new(arguments, "fresh", json_true()) != 0) {
            return NGX_ERROR;
        }

    } else if (json_string_length(id)
               && !json_is_true(json_object_get(arguments, "fresh")))
    {
        mcp->target.len = json_string_length(id);
        mcp->target.data = ngx_pnalloc(r->pool, mcp->target.len);

        if (mcp->target.data == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(mcp->target.data, json_string_value(id), mcp->target.len);
    }

    (void) json_object_del(arguments, "target");

    if (ngx_http_sandbox_mcp_label(json_object_get(mcp->root, "id"), label)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /*
     * What runs in the background was answered long before its end: a number
     * that comes again some day must not end it.
     */

    name.data = label;
    name.len = json_is_true(json_object_get(arguments, "background"))
               ? 0 : NGX_HTTP_SANDBOX_MCP_LABEL;

    return ngx_http_sandbox_request_object(r, ctx, arguments, &name);
}


ngx_int_t
ngx_http_sandbox_mcp_run_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    if (ctx->mcp->target.len) {
        return ngx_http_sandbox_mcp_status(r, ctx);
    }

    ctx->wire.render = ngx_http_sandbox_mcp_render_command;

    ngx_http_sandbox_stage_start(r, ctx);

    return NGX_OK;
}


/* a sandbox that was named must be the one that there is */

static ngx_int_t
ngx_http_sandbox_mcp_status(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    sandbox_writer_t         w;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;

    mcp->op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_FILES,
                                        ngx_http_sandbox_mcp_found);

    mcp->head = ctx->wire.head;
    mcp->body = ctx->wire.body;
    mcp->flags = ctx->wire.flags;

    if (mcp->op == NULL
        || ngx_http_sandbox_head_begin(r, ctx, &w, 64) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_null(&ctx->wire.body);
    ctx->wire.operation = SANDBOX_OPERATION_STATUS;
    ctx->wire.render = NULL;

    return ngx_http_sandbox_mcp_send(r, ctx, &w);
}


ngx_int_t
ngx_http_sandbox_mcp_step(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;

    if (mcp == NULL || mcp->op == NULL || ctx->wire.render) {
        return NGX_DECLINED;
    }

    /* an upstream can't be left from within: a thread has work, or a pause */

    if (ngx_http_sandbox_store_look(mcp->op, mcp->op->work
                                             ? mcp->op->work
                                             : ngx_http_sandbox_mcp_pause)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ngx_http_sandbox_stage_silence(r);

    return NGX_OK;
}


static void
ngx_http_sandbox_mcp_pause(ngx_http_sandbox_store_op_t *op)
{
    op->fault.status = SANDBOX_STORE_OK;
}


static void
ngx_http_sandbox_mcp_found(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_store_op_t *op)
{
    ngx_str_t                  *id;
    ngx_http_sandbox_mcp_t     *mcp;
    ngx_http_sandbox_result_t  *result;

    mcp = ctx->mcp;
    result = &ctx->wire.result;
    id = &result->sandbox_id;

    if (id->len != mcp->target.len
        || ngx_memcmp(id->data, mcp->target.data, id->len) != 0)
    {
        ngx_http_sandbox_refuse(ctx, 410, "gone",
                                "The sandbox of that id is not there any "
                                "more, or never was; without \"target\" the "
                                "command runs in the one that there is.");
        ngx_http_sandbox_upstream_leave(r);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    ctx->wire.head = mcp->head;
    ctx->wire.body = mcp->body;
    ctx->wire.flags = mcp->flags;
    ctx->wire.instance = result->number[SANDBOX_TAG_INSTANCE];
    ctx->wire.operation = SANDBOX_OPERATION_COMMAND;
    ctx->wire.render = ngx_http_sandbox_mcp_render_command;

    ngx_http_sandbox_stage_start(r, ctx);
}


/* for models as text, for programs as HTTP has it; both cut the same way */

static ngx_int_t
ngx_http_sandbox_mcp_render_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_mcp_text_t  text;

    ngx_http_sandbox_mcp_cut(&ctx->wire.stream[0]);
    ngx_http_sandbox_mcp_cut(&ctx->wire.stream[1]);

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_OPEN);
    ngx_http_sandbox_mcp_stream(&text, &ctx->wire.stream[0], "");
    ngx_http_sandbox_mcp_stream(&text, &ctx->wire.stream[1],
                                "[stderr]\\n");
    ngx_http_sandbox_mcp_ending(&text, ctx);
    ngx_http_sandbox_mcp_notices(&text, ctx);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_CLOSE);

    if (ngx_http_sandbox_render_command(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_mcp_content(r, ctx, &text, NULL);
}


/* head and tail, at borders of characters; what was left out is counted */

static void
ngx_http_sandbox_mcp_cut(ngx_http_sandbox_capture_t *c)
{
    size_t  half, head, tail, keep;

    if (c->gap == 0) {
        c->head = c->len;
    }

    if (c->len <= NGX_HTTP_SANDBOX_MCP_OUTPUT) {
        return;
    }

    half = NGX_HTTP_SANDBOX_MCP_OUTPUT / 2;

    head = ngx_min(c->head, half);
    tail = c->gap ? ngx_min(c->len - c->head, half) : half;

    if (head < c->head) {
        head = sandbox_utf8_head(c->data, head);
    }

    keep = c->len - tail;

    /* a tail must not begin within a character */

    while (keep < c->len && c->len - keep > tail - 4
           && (c->data[keep] & 0xc0) == 0x80)
    {
        keep++;
    }

    c->gap += keep - head;

    ngx_memmove(c->data + head, c->data + keep, c->len - keep);

    c->head = head;
    c->len = head + (c->len - keep);
}


static void
ngx_http_sandbox_mcp_stream(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_capture_t *c, const char *title)
{
    if (c->len == 0 && c->gap == 0) {
        return;
    }

    ngx_http_sandbox_mcp_words(text, title);
    ngx_http_sandbox_mcp_escape(text, c->data, c->head);

    if (c->gap) {
        ngx_http_sandbox_mcp_format(text, "\\n[%uL bytes left out; send the "
                                    "output to a file and look into it with "
                                    "read_file or search_files]\\n", c->gap);
    }

    ngx_http_sandbox_mcp_escape(text, c->data + c->head, c->len - c->head);

    if (c->len && c->data[c->len - 1] != LF) {
        ngx_http_sandbox_mcp_words(text, "\\n");
    }
}


static void
ngx_http_sandbox_mcp_ending(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                    *number;
    const char                  *outcome;
    ngx_http_sandbox_result_t   *result;
    ngx_http_sandbox_capture_t  *stream;

    result = &ctx->wire.result;
    number = result->number;
    stream = ctx->wire.stream;

    if (ctx->wire.lost) {
        ngx_http_sandbox_mcp_words(text, "[runner_lost: its sandbox went away "
                                   "while it ran]");
        return;
    }

    if (!result->seen[SANDBOX_TAG_OUTCOME]) {
        ngx_http_sandbox_mcp_format(text, "[%s in the background, commandId "
                                    "%V: ask for its result with the same "
                                    "call and commandId]",
                                    sandbox_command_state_name(
                                        number[SANDBOX_TAG_COMMAND_STATE]),
                                    &result->command_id);
        return;
    }

    if (number[SANDBOX_TAG_OUTPUT_EXPIRED]) {
        ngx_http_sandbox_mcp_words(text, "[its output is kept no more]\\n");

    } else if (stream[0].len == 0 && stream[1].len == 0) {
        ngx_http_sandbox_mcp_words(text, "[no output]\\n");
    }

    outcome = sandbox_outcome_name(number[SANDBOX_TAG_OUTCOME]);

    ngx_http_sandbox_mcp_format(text, "[exit code %uL",
                                number[SANDBOX_TAG_EXIT_CODE]);

    if (number[SANDBOX_TAG_OUTCOME] != SANDBOX_OUTCOME_EXIT) {
        ngx_http_sandbox_mcp_format(text, ", %s", outcome);
    }

    if (number[SANDBOX_TAG_OUTCOME] == SANDBOX_OUTCOME_TIMEOUT) {
        ngx_http_sandbox_mcp_format(text, " after %uL s",
                                    number[SANDBOX_TAG_WALL_MS] / 1000);
    }

    if (number[SANDBOX_TAG_BACKGROUND]) {
        ngx_http_sandbox_mcp_format(text, ", %uL processes left running",
                                    number[SANDBOX_TAG_BACKGROUND]);
    }

    ngx_http_sandbox_mcp_words(text, "]");

    if (result->detail.len) {
        ngx_http_sandbox_mcp_words(text, "\\n");
        ngx_http_sandbox_mcp_escape(text, result->detail.data,
                                    result->detail.len);
    }
}


static void
ngx_http_sandbox_mcp_notices(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t      size;
    u_char     *p, *last;
    ngx_str_t   notices;

    static const char  empty[] = ",\"stagingNotices\":[]";

    size = ngx_http_sandbox_stage_size(ctx, &ctx->wire.result);

    p = ngx_pnalloc(text->pool, size);
    if (p == NULL) {
        text->failed = 1;
        return;
    }

    last = ngx_http_sandbox_stage_notices(p, ctx, &ctx->wire.result);

    if ((size_t) (last - p) > sizeof(empty) - 1) {
        notices.data = p + sizeof(",\"stagingNotices\":") - 1;
        notices.len = last - notices.data;

        ngx_http_sandbox_mcp_words(text, "\\n[attachments: ");
        ngx_http_sandbox_mcp_escape(text, notices.data, notices.len);
        ngx_http_sandbox_mcp_words(text, "]");
    }
}


/* what is not there, or over, needs no end: 202 whatever comes of it */

void
ngx_http_sandbox_mcp_cancel(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char             label[NGX_HTTP_SANDBOX_MCP_LABEL];
    json_t            *id;
    ngx_int_t          rc;
    sandbox_writer_t   w;

    ctx->mcp->calling = 1;
    ctx->mcp->cancelling = 1;

    id = json_object_get(ctx->mcp->params, "requestId");

    if ((!json_is_string(id) && !json_is_integer(id))
        || ngx_http_sandbox_mcp_conversation(r, ctx) != NGX_OK)
    {
        ngx_http_sandbox_mcp_nothing(ctx);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_answer(r, ctx));
        return;
    }

    ngx_str_null(&ctx->name);

    rc = ngx_http_sandbox_mcp_label(id, label);

    if (rc == NGX_OK) {
        rc = ngx_http_sandbox_head_begin(r, ctx, &w, 128);
    }

    if (rc == NGX_OK) {
        sandbox_write_bytes(&w, SANDBOX_TAG_LABEL, label,
                            NGX_HTTP_SANDBOX_MCP_LABEL);

        ctx->wire.operation = SANDBOX_OPERATION_CANCEL;
        ctx->wire.render = ngx_http_sandbox_mcp_render_cancel;

        rc = ngx_http_sandbox_mcp_send(r, ctx, &w);
    }

    if (rc != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


static ngx_int_t
ngx_http_sandbox_mcp_render_cancel(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_mcp_nothing(ctx);

    return NGX_OK;
}
