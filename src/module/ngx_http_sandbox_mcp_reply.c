/*
 * What MCP answers: results, errors and JSON that is put together piece by
 * piece.  Bytes may be anything, what leaves is valid JSON.  Knows no tool.
 */

#include "ngx_http_sandbox_mcp.h"


#define NGX_HTTP_SANDBOX_MCP_FIRST   2048        /* bytes of a text at first */
#define NGX_HTTP_SANDBOX_MCP_PIECE   512         /* that is formatted */

/* an image, and text beside it */

#define NGX_HTTP_SANDBOX_MCP_LIMIT   (32 * 1024 * 1024)

#define NGX_HTTP_SANDBOX_MCP_MODERN_MEMBERS                                  \
    "\"resultType\":\"complete\",\"_meta\":{"                                \
    "\"io.modelcontextprotocol/serverInfo\":"                                \
    "{\"name\":\"sandbox-for-nginx\",\"version\":\"1\"}},"


static void ngx_http_sandbox_mcp_begin(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_mcp_text_t *text);
static ngx_int_t ngx_http_sandbox_mcp_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status,
    ngx_http_sandbox_mcp_text_t *text);
static ngx_chain_t *ngx_http_sandbox_mcp_link(
    ngx_http_sandbox_mcp_text_t *text);


void
ngx_http_sandbox_mcp_text(ngx_http_sandbox_mcp_text_t *text,
    ngx_pool_t *pool)
{
    ngx_memzero(text, sizeof(ngx_http_sandbox_mcp_text_t));

    text->pool = pool;
}


u_char *
ngx_http_sandbox_mcp_room(ngx_http_sandbox_mcp_text_t *text, size_t n)
{
    u_char  *data;
    size_t   size;

    if (text->failed) {
        return NULL;
    }

    if (n > text->size - text->len) {

        if (n > NGX_HTTP_SANDBOX_MCP_LIMIT - text->len) {
            text->failed = 1;
            return NULL;
        }

        size = ngx_max(2 * text->size, NGX_HTTP_SANDBOX_MCP_FIRST);
        size = ngx_max(size, text->len + n);
        size = ngx_min(size, NGX_HTTP_SANDBOX_MCP_LIMIT);

        data = ngx_pnalloc(text->pool, size);
        if (data == NULL) {
            text->failed = 1;
            return NULL;
        }

        if (text->data) {
            ngx_memcpy(data, text->data, text->len);
            (void) ngx_pfree(text->pool, text->data);
        }

        text->data = data;
        text->size = size;
    }

    return text->data + text->len;
}


void
ngx_http_sandbox_mcp_put(ngx_http_sandbox_mcp_text_t *text, const void *p,
    size_t n)
{
    u_char  *to;

    to = ngx_http_sandbox_mcp_room(text, n);

    if (to && n) {
        ngx_memcpy(to, p, n);
        text->len += n;
    }
}


void
ngx_http_sandbox_mcp_words(ngx_http_sandbox_mcp_text_t *text,
    const char *words)
{
    ngx_http_sandbox_mcp_put(text, words, ngx_strlen(words));
}


void
ngx_http_sandbox_mcp_format(ngx_http_sandbox_mcp_text_t *text,
    const char *fmt, ...)
{
    u_char   *p;
    va_list   args;

    p = ngx_http_sandbox_mcp_room(text, NGX_HTTP_SANDBOX_MCP_PIECE);

    if (p) {
        va_start(args, fmt);
        text->len = ngx_vslprintf(p, p + NGX_HTTP_SANDBOX_MCP_PIECE, fmt,
                                  args)
                    - text->data;
        va_end(args);
    }
}


ngx_uint_t
ngx_http_sandbox_mcp_escape(ngx_http_sandbox_mcp_text_t *text, const void *p,
    size_t n)
{
    size_t       size;
    u_char      *to;
    ngx_uint_t   stripped;

    stripped = 0;
    size = ngx_http_sandbox_escape(NULL, p, n, &stripped);

    to = ngx_http_sandbox_mcp_room(text, size);

    if (to) {
        text->len += ngx_http_sandbox_escape(to, p, n, &stripped);
    }

    return stripped;
}


static void
ngx_http_sandbox_mcp_begin(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_mcp_text_t *text)
{
    ngx_http_sandbox_mcp_put(text, "{\"jsonrpc\":\"2.0\"", 16);

    if (ctx->mcp->id.len) {
        ngx_http_sandbox_mcp_put(text, ",\"id\":", 6);
        ngx_http_sandbox_mcp_put(text, ctx->mcp->id.data, ctx->mcp->id.len);
    }
}


static ngx_int_t
ngx_http_sandbox_mcp_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status,
    ngx_http_sandbox_mcp_text_t *text)
{
    ctx->answer = ngx_http_sandbox_mcp_link(text);

    if (ctx->answer == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_render_buffer(r, ctx, status, ctx->answer->buf);
}


static ngx_chain_t *
ngx_http_sandbox_mcp_link(ngx_http_sandbox_mcp_text_t *text)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(text->pool);
    cl = ngx_alloc_chain_link(text->pool);

    if (b == NULL || cl == NULL || text->failed) {
        return NULL;
    }

    b->temporary = 1;
    b->start = text->data;
    b->pos = text->data;
    b->last = text->data + text->len;
    b->end = text->data + text->size;

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


ngx_int_t
ngx_http_sandbox_mcp_result(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_mcp_text_t *members)
{
    ngx_http_sandbox_mcp_text_t  text;

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_begin(ctx, &text);
    ngx_http_sandbox_mcp_put(&text, ",\"result\":{", 11);

    if (ctx->mcp->modern) {
        ngx_http_sandbox_mcp_put(&text, NGX_HTTP_SANDBOX_MCP_MODERN_MEMBERS,
                          sizeof(NGX_HTTP_SANDBOX_MCP_MODERN_MEMBERS) - 1
                          - (members->len == 0));
    }

    ngx_http_sandbox_mcp_put(&text, members->data, members->len);
    ngx_http_sandbox_mcp_put(&text, "}}\n", 3);

    text.failed |= members->failed;

    return ngx_http_sandbox_mcp_answer(r, ctx, NGX_HTTP_OK, &text);
}


/* what is large is not copied once more: three or four buffers of a chain */

ngx_int_t
ngx_http_sandbox_mcp_content(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_mcp_text_t *content,
    ngx_http_sandbox_mcp_text_t *structured)
{
    ngx_buf_t                    *b;
    ngx_chain_t                  *cl, *rendered, *chain, **ll;
    ngx_http_sandbox_mcp_text_t   before, after;

    ngx_http_sandbox_mcp_text(&before, r->pool);
    ngx_http_sandbox_mcp_begin(ctx, &before);
    ngx_http_sandbox_mcp_put(&before, ",\"result\":{", 11);

    if (ctx->mcp->modern) {
        ngx_http_sandbox_mcp_put(&before, NGX_HTTP_SANDBOX_MCP_MODERN_MEMBERS,
                          sizeof(NGX_HTTP_SANDBOX_MCP_MODERN_MEMBERS) - 1);
    }

    ngx_http_sandbox_mcp_put(&before, "\"content\":[", 11);
    ngx_http_sandbox_mcp_put(content, "],\"structuredContent\":",
                             sizeof("],\"structuredContent\":") - 1);

    ngx_http_sandbox_mcp_text(&after, r->pool);
    ngx_http_sandbox_mcp_put(&after, ",\"isError\":false}}\n", 19);

    rendered = structured ? ngx_http_sandbox_mcp_link(structured)
                          : ctx->answer;

    chain = ngx_http_sandbox_mcp_link(&before);

    if (chain == NULL || rendered == NULL) {
        return NGX_ERROR;
    }

    ll = &chain->next;

    *ll = ngx_http_sandbox_mcp_link(content);
    if (*ll == NULL) {
        return NGX_ERROR;
    }

    ll = &(*ll)->next;
    *ll = rendered;

    while (*ll) {
        ll = &(*ll)->next;
    }

    *ll = ngx_http_sandbox_mcp_link(&after);
    if (*ll == NULL) {
        return NGX_ERROR;
    }

    b = (*ll)->buf;

    if (ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->answer = chain;
    ctx->answer_size = 0;

    for (cl = chain; cl; cl = cl->next) {

        if (cl->buf != b) {
            cl->buf->last_buf = 0;
            cl->buf->last_in_chain = 0;
        }

        ctx->answer_size += cl->buf->last - cl->buf->pos;
    }

    return NGX_OK;
}


/*
 * A tool that failed has a result, of which the model is told.  For machines
 * its code is in _meta; structuredContent is for what the schema promises.
 */

ngx_int_t
ngx_http_sandbox_mcp_failure(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_problem_t   *problem;
    ngx_http_sandbox_mcp_text_t   text;

    problem = &ctx->problem;

    if (ctx->mcp->cancelling) {
        ngx_memzero(problem, sizeof(ngx_http_sandbox_problem_t));
        ngx_http_sandbox_mcp_nothing(ctx);
        return NGX_OK;
    }

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_begin(ctx, &text);
    ngx_http_sandbox_mcp_format(&text, ",\"result\":{%s\"content\":["
                                NGX_HTTP_SANDBOX_MCP_OPEN,
                                ctx->mcp->modern ? "\"resultType\":"
                                                   "\"complete\"," : "");
    ngx_http_sandbox_mcp_escape(&text, problem->code.data, problem->code.len);
    ngx_http_sandbox_mcp_put(&text, ": ", 2);
    ngx_http_sandbox_mcp_escape(&text, problem->detail.data,
                                problem->detail.len);

    if (problem->retry_after) {
        ngx_http_sandbox_mcp_format(&text, " Try again in %ui seconds.",
                                    problem->retry_after);
    }

    ngx_http_sandbox_mcp_put(&text, NGX_HTTP_SANDBOX_MCP_CLOSE, 2);
    ngx_http_sandbox_mcp_format(&text, "],\"isError\":true,\"_meta\":{"
                                "\"code\":\"%V\",\"status\":%ui",
                                &problem->code, problem->status);

    if (problem->retry_after) {
        ngx_http_sandbox_mcp_format(&text, ",\"retryAfterSeconds\":%ui",
                                    problem->retry_after);
    }

    if (ctx->mcp->modern) {
        ngx_http_sandbox_mcp_format(&text, ",\"io.modelcontextprotocol/"
                                    "serverInfo\":{\"name\":"
                                    "\"sandbox-for-nginx\",\"version\":"
                                    "\"1\"}");
    }

    ngx_http_sandbox_mcp_put(&text, "}}}\n", 4);

    /* from here on it is an answer like others */

    ngx_memzero(problem, sizeof(ngx_http_sandbox_problem_t));

    return ngx_http_sandbox_mcp_answer(r, ctx, NGX_HTTP_OK, &text);
}


ngx_int_t
ngx_http_sandbox_mcp_error(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_mcp_t       *mcp;
    ngx_http_sandbox_mcp_text_t   text;

    mcp = ctx->mcp;

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_begin(ctx, &text);
    ngx_http_sandbox_mcp_format(&text, ",\"error\":{\"code\":%i,"
                                "\"message\":\"", mcp->error);
    ngx_http_sandbox_mcp_escape(&text, mcp->message.data, mcp->message.len);
    ngx_http_sandbox_mcp_put(&text, "\"", 1);

    if (mcp->data.len) {
        ngx_http_sandbox_mcp_put(&text, ",\"data\":", 8);
        ngx_http_sandbox_mcp_put(&text, mcp->data.data, mcp->data.len);
    }

    ngx_http_sandbox_mcp_put(&text, "}}\n", 3);

    return ngx_http_sandbox_mcp_answer(r, ctx, mcp->status, &text);
}


void
ngx_http_sandbox_mcp_nothing(ngx_http_sandbox_ctx_t *ctx)
{
    ctx->answer = NULL;
    ctx->answer_size = 0;
    ctx->answer_status = NGX_HTTP_ACCEPTED;
}
