/*
 * read_file and edit_file: a file of the sandbox into memory, as lines of a
 * window, as an image, or as a whole that is changed and written back.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_mcp.h"


#define NGX_HTTP_SANDBOX_MCP_LINES   2000        /* if none are asked for */
#define NGX_HTTP_SANDBOX_MCP_SNIFF   16          /* bytes that tell an image */
#define NGX_HTTP_SANDBOX_MCP_HELD    3           /* times a file's size */


struct ngx_http_sandbox_mcp_read_s {
    uint64_t                       size;         /* of the file */
    uint64_t                       got;
    ngx_str_t                      etag;

    /* a window, in lines from 1 on */
    uint64_t                       first;
    uint64_t                       last;
    uint64_t                       line;         /* of the next byte */
    u_char                        *data;
    size_t                         len;
    size_t                         room;

    u_char                         head[NGX_HTTP_SANDBOX_MCP_SNIFF];
    const char                    *image;        /* its type, or NULL */

    /* to be replaced, and by what; both live in the arguments */
    ngx_str_t                      old;
    ngx_str_t                      new;
    ngx_str_t                      edited;
    uint64_t                       count;        /* of old in the file */

    unsigned                       all:1;        /* each of them */
    unsigned                       told:1;       /* head is full, or all */
    unsigned                       large:1;      /* an image, but too large */
    unsigned                       binary:1;
    unsigned                       newline:1;    /* the last byte is one */
    unsigned                       cut:1;        /* within a line */
    unsigned                       more:1;       /* lines behind the window */
};


static const char *ngx_http_sandbox_mcp_read_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_mcp_hold(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t n);
static const char *ngx_http_sandbox_mcp_read_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static const char *ngx_http_sandbox_mcp_kind(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_read_t *read);
static const char *ngx_http_sandbox_mcp_image(const u_char *p);
static void ngx_http_sandbox_mcp_window(ngx_http_sandbox_ctx_t *ctx,
    u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_mcp_render_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_mcp_picture(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_mcp_read_t *read);
static void ngx_http_sandbox_mcp_hint(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_mcp_read_t *read, uint64_t next);

static const char *ngx_http_sandbox_mcp_edit_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_mcp_edit_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static void ngx_http_sandbox_mcp_edit_free(void *data);
static void ngx_http_sandbox_mcp_edit(ngx_http_sandbox_store_op_t *op);
static u_char *ngx_http_sandbox_mcp_find(u_char *p, u_char *last,
    ngx_str_t *text);
static void ngx_http_sandbox_mcp_edited(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_mcp_edit_wrong(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_render_edit(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


ngx_int_t
ngx_http_sandbox_mcp_read_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t                       *value;
    uint64_t                      limit;
    ngx_int_t                     rc;
    sandbox_writer_t              w;
    ngx_http_sandbox_mcp_read_t  *read;

    read = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_mcp_read_t));
    if (read == NULL) {
        return NGX_ERROR;
    }

    ctx->mcp->read = read;

    value = json_object_get(ctx->mcp->arguments, "offset");
    read->first = value ? (uint64_t) json_integer_value(value) : 1;

    value = json_object_get(ctx->mcp->arguments, "limit");
    limit = value ? (uint64_t) json_integer_value(value)
                  : NGX_HTTP_SANDBOX_MCP_LINES;

    read->last = read->first + limit - 1;
    read->line = 1;

    rc = ngx_http_sandbox_mcp_file(r, ctx, &w, SANDBOX_OPERATION_FILE_READ,
                                   0);
    if (rc != NGX_OK) {
        return rc;
    }

    sandbox_write_number(&w, SANDBOX_TAG_LIMIT, 1);

    ctx->wire.accepted = ngx_http_sandbox_mcp_read_accepted;
    ctx->wire.data = ngx_http_sandbox_mcp_read_data;
    ctx->wire.render = ngx_http_sandbox_mcp_render_read;

    return ngx_http_sandbox_mcp_send(r, ctx, &w);
}


static const char *
ngx_http_sandbox_mcp_read_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_result_t    *result;
    ngx_http_sandbox_mcp_read_t  *read;

    read = ctx->mcp->read;
    result = &ctx->wire.result;

    if (result->number[SANDBOX_TAG_STATUS] != NGX_HTTP_OK
        || !result->seen[SANDBOX_TAG_FILE_TYPE]
        || !result->seen[SANDBOX_TAG_FILE_SIZE])
    {
        return "a file without a status, a type or a size";
    }

    read->size = result->number[SANDBOX_TAG_FILE_SIZE];
    read->etag = result->etag;

    if (result->number[SANDBOX_TAG_FILE_TYPE] == SANDBOX_FILE_DIRECTORY) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_CONFLICT, "is_a_directory",
                                "That is a folder; search_files with its path "
                                "and without a pattern tells what is in "
                                "it.");
        ctx->wire.done = 1;
        return NULL;
    }

    /* what an image takes, with its base64, until it is known to be text */

    if (ctx->mcp->op == NULL) {
        return ngx_http_sandbox_mcp_hold(r, ctx,
                                   NGX_HTTP_SANDBOX_MCP_HELD
                                   * (size_t) ngx_min(read->size,
                                                NGX_HTTP_SANDBOX_MCP_IMAGE));
    }

    return NULL;
}


/* memory for an answer, of which its tenant has a share */

static const char *
ngx_http_sandbox_mcp_hold(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    size_t n)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_budget_take(r, ctx, n);

    if (rc == NGX_DECLINED) {
        ctx->wire.done = 1;
    }

    return rc == NGX_ERROR ? "there is no memory" : NULL;
}


static const char *
ngx_http_sandbox_mcp_read_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    size_t                        m;
    const char                   *what;
    ngx_http_sandbox_mcp_read_t  *read;

    read = ctx->mcp->read;

    if (p == NULL) {

        if (read->got != read->size) {
            return "less of a file than its size";
        }

        return read->told ? NULL : ngx_http_sandbox_mcp_kind(r, read);
    }

    if (n > read->size - read->got) {
        return "more of a file than its size";
    }

    if (!read->told) {
        m = ngx_min(n, NGX_HTTP_SANDBOX_MCP_SNIFF - (size_t) read->got);
        ngx_memcpy(read->head + read->got, p, m);

        read->got += m;
        p += m;
        n -= m;

        if (read->got < NGX_HTTP_SANDBOX_MCP_SNIFF
            && read->got < read->size)
        {
            return NULL;
        }

        what = ngx_http_sandbox_mcp_kind(r, read);
        if (what) {
            return what;
        }

        ngx_http_sandbox_mcp_window(ctx, read->head, (size_t) read->got);
    }

    if (n && !ctx->wire.done) {
        read->got += n;
        ngx_http_sandbox_mcp_window(ctx, p, n);
    }

    return NULL;
}


/* what it is, and room for what is to be told of it */

static const char *
ngx_http_sandbox_mcp_kind(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_read_t *read)
{
    ngx_http_sandbox_ctx_t  *ctx;

    read->told = 1;

    if (read->got == NGX_HTTP_SANDBOX_MCP_SNIFF) {
        read->image = ngx_http_sandbox_mcp_image(read->head);
    }

    read->room = (size_t) ngx_min(read->size, NGX_HTTP_SANDBOX_MCP_TEXT);

    if (read->image) {
        read->large = (read->size > NGX_HTTP_SANDBOX_MCP_IMAGE);
        read->room = read->large ? 0 : (size_t) read->size;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (read->room < read->size) {
        ngx_http_sandbox_budget_give(ctx, NGX_HTTP_SANDBOX_MCP_HELD
                                     * (size_t) (ngx_min(read->size,
                                                 NGX_HTTP_SANDBOX_MCP_IMAGE)
                                                 - read->room));
    }

    read->data = ngx_pnalloc(r->pool, read->room + 1);

    return read->data ? NULL : "there is no memory";
}


static const char *
ngx_http_sandbox_mcp_image(const u_char *p)
{
    if (ngx_memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0) {
        return "image/png";
    }

    if (ngx_memcmp(p, "\xff\xd8\xff", 3) == 0) {
        return "image/jpeg";
    }

    if (ngx_memcmp(p, "GIF87a", 6) == 0 || ngx_memcmp(p, "GIF89a", 6) == 0) {
        return "image/gif";
    }

    return (ngx_memcmp(p, "RIFF", 4) == 0 && ngx_memcmp(p + 8, "WEBP", 4) == 0)
           ? "image/webp" : NULL;
}


/*
 * Bytes of the lines that are wanted.  When there is no need for more, or too
 * much was looked through, nobody waits for the rest of the file.
 */

static void
ngx_http_sandbox_mcp_window(ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    u_char                       *last, *end;
    size_t                        size;
    ngx_http_sandbox_loc_conf_t  *slcf;
    ngx_http_sandbox_mcp_read_t  *read;

    slcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_sandbox_module);
    read = ctx->mcp->read;

    if (read->large) {
        ctx->wire.done = 1;
        return;
    }

    if (read->image) {
        ngx_memcpy(read->data + read->len, p, n);
        read->len += n;
        return;
    }

    for (last = p + n; p < last; p = end) {

        if (read->line > read->last || read->cut) {
            read->more = 1;
            ctx->wire.done = 1;
            return;
        }

        end = ngx_strlchr(p, last, LF);
        size = (end ? ++end : last) - p;

        if (end == NULL) {
            end = last;
        }

        if (read->line >= read->first) {

            if (ngx_strlchr(p, p + size, '\0')) {
                read->binary = 1;
                ctx->wire.done = 1;
                return;
            }

            if (size > read->room - read->len) {
                size = read->room - read->len;
                read->cut = 1;
            }

            ngx_memcpy(read->data + read->len, p, size);
            read->len += size;

            if (read->cut) {
                read->len = sandbox_utf8_head(read->data, read->len);
                read->more = 1;
                ctx->wire.done = 1;
                return;
            }
        }

        read->newline = (end[-1] == LF);
        read->line += read->newline;
    }

    if (read->got > (uint64_t) ngx_http_sandbox_max_stdin(slcf)
        && read->len == 0)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                "file_too_large",
                                "These lines are too far into the file; cut "
                                "them out with run_command, such as: sed -n "
                                "'5000000,5000100p' FILE");
        ctx->wire.done = 1;
    }
}


static ngx_int_t
ngx_http_sandbox_mcp_render_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                      ended, next;
    ngx_http_sandbox_mcp_t       *mcp;
    ngx_http_sandbox_mcp_read_t  *read;
    ngx_http_sandbox_mcp_text_t   text, structured;

    mcp = ctx->mcp;
    read = mcp->read;

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_text(&structured, r->pool);

    ngx_http_sandbox_mcp_words(&structured, "{\"path\":\"");
    ngx_http_sandbox_mcp_escape(&structured, mcp->shown.data,
                                mcp->shown.len);
    ngx_http_sandbox_mcp_format(&structured, "\",\"size\":%uL,\"etag\":"
                                "\"\\\"%V\\\"\"", read->size, &read->etag);

    if (read->image || read->binary) {
        ngx_http_sandbox_mcp_picture(&text, read);
        ngx_http_sandbox_mcp_format(&structured, ",\"type\":\"%s\","
                                    "\"text\":null,\"firstLine\":null,"
                                    "\"lastLine\":null,\"nextOffset\":null,"
                                    "\"truncated\":%s}",
                                    read->image ? read->image
                                          : "application/octet-stream",
                                    read->image && !read->large ? "false"
                                                                : "true");

        return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
    }

    /* of a line that was cut the rest is not to be had by lines */

    ended = read->line;
    next = read->cut ? read->line + 1 : read->line;

    if (!read->cut && (read->len == 0 || read->data[read->len - 1] == LF)) {
        ended--;
    }

    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_OPEN);
    ngx_http_sandbox_mcp_escape(&text, read->data, read->len);

    if (read->more || read->len == 0) {
        ngx_http_sandbox_mcp_hint(&text, read, next);
    }

    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_CLOSE);

    ngx_http_sandbox_mcp_words(&structured, ",\"type\":\"text/plain\","
                               "\"text\":\"");
    ngx_http_sandbox_mcp_escape(&structured, read->data, read->len);
    ngx_http_sandbox_mcp_words(&structured, "\"");

    if (read->len) {
        ngx_http_sandbox_mcp_format(&structured, ",\"firstLine\":%uL,"
                                    "\"lastLine\":%uL", read->first, ended);

    } else {
        ngx_http_sandbox_mcp_words(&structured, ",\"firstLine\":null,"
                                   "\"lastLine\":null");
    }

    if (read->more) {
        ngx_http_sandbox_mcp_format(&structured, ",\"nextOffset\":%uL,"
                                    "\"truncated\":true}", next);

    } else {
        ngx_http_sandbox_mcp_words(&structured, ",\"nextOffset\":null,"
                                   "\"truncated\":false}");
    }

    return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
}


static void
ngx_http_sandbox_mcp_picture(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_mcp_read_t *read)
{
    u_char     *p;
    ngx_str_t   raw, base64;

    if (read->image == NULL) {
        ngx_http_sandbox_mcp_format(text, NGX_HTTP_SANDBOX_MCP_OPEN
                                    "This is no text: a file of %uL bytes. "
                                    "Look into it with run_command (file, "
                                    "xxd, python3), or save it for the user "
                                    "with download_file."
                                    NGX_HTTP_SANDBOX_MCP_CLOSE, read->size);
        return;
    }

    if (read->large) {
        ngx_http_sandbox_mcp_format(text, NGX_HTTP_SANDBOX_MCP_OPEN
                                    "An image (%s) of %uL bytes, too large to "
                                    "be shown: at most %d. Make a smaller one "
                                    "with run_command, or save it for the "
                                    "user with download_file."
                                    NGX_HTTP_SANDBOX_MCP_CLOSE, read->image,
                                    read->size, NGX_HTTP_SANDBOX_MCP_IMAGE);
        return;
    }

    ngx_http_sandbox_mcp_format(text, NGX_HTTP_SANDBOX_MCP_OPEN
                                "An image (%s) of %uL bytes."
                                NGX_HTTP_SANDBOX_MCP_CLOSE
                                ",{\"type\":\"image\",\"mimeType\":\"%s\","
                                "\"data\":\"", read->image, read->size,
                                read->image);

    raw.data = read->data;
    raw.len = read->len;

    p = ngx_http_sandbox_mcp_room(text, ngx_base64_encoded_length(raw.len));

    if (p) {
        base64.data = p;
        ngx_encode_base64(&base64, &raw);
        text->len += base64.len;
    }

    ngx_http_sandbox_mcp_words(text, "\"}");
}


static void
ngx_http_sandbox_mcp_hint(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_mcp_read_t *read, uint64_t next)
{
    if (read->size == 0) {
        ngx_http_sandbox_mcp_words(text, "[the file is empty]");
        return;
    }

    if (read->len == 0) {
        ngx_http_sandbox_mcp_format(text, "[the file has %uL lines, nothing "
                                    "from line %uL on]",
                                    read->line - read->newline, read->first);
        return;
    }

    if (read->cut) {
        ngx_http_sandbox_mcp_format(text, "\\n[cut within line %uL, which is "
                                    "long: look at it with run_command, such "
                                    "as cut -c; the next line is offset "
                                    "%uL]", read->line, next);
        return;
    }

    ngx_http_sandbox_mcp_format(text, "\\n[there is more: go on with offset "
                                "%uL]", next);
}


/* the whole of it, since what is there twice must be found */

ngx_int_t
ngx_http_sandbox_mcp_edit_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t                       *arguments, *value;
    ngx_int_t                     rc;
    sandbox_writer_t              w;
    ngx_pool_cleanup_t           *cln;
    ngx_http_sandbox_mcp_t       *mcp;
    ngx_http_sandbox_mcp_read_t  *read;

    mcp = ctx->mcp;
    arguments = mcp->arguments;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_mcp_read_t));
    mcp->op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_FILES,
                                        ngx_http_sandbox_mcp_edited);

    if (cln == NULL || mcp->op == NULL) {
        return NGX_ERROR;
    }

    read = cln->data;
    ngx_memzero(read, sizeof(ngx_http_sandbox_mcp_read_t));
    cln->handler = ngx_http_sandbox_mcp_edit_free;

    mcp->read = read;
    mcp->op->work = ngx_http_sandbox_mcp_edit;
    mcp->op->data = read;

    value = json_object_get(arguments, "old_string");
    read->old.data = (u_char *) json_string_value(value);
    read->old.len = json_string_length(value);

    value = json_object_get(arguments, "new_string");
    read->new.data = (u_char *) json_string_value(value);
    read->new.len = json_string_length(value);

    read->all = json_is_true(json_object_get(arguments, "replace_all"));

    if (read->old.len == read->new.len
        && ngx_memcmp(read->old.data, read->new.data, read->old.len) == 0)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "edit_same",
                                "\"old_string\" and \"new_string\" are the "
                                "same: there is nothing to change.");
        return NGX_DECLINED;
    }

    rc = ngx_http_sandbox_mcp_file(r, ctx, &w, SANDBOX_OPERATION_FILE_READ,
                                   0);
    if (rc != NGX_OK) {
        return rc;
    }

    sandbox_write_number(&w, SANDBOX_TAG_LIMIT, 1);

    ctx->wire.accepted = ngx_http_sandbox_mcp_edit_accepted;
    ctx->wire.data = ngx_http_sandbox_mcp_edit_data;

    return ngx_http_sandbox_mcp_send(r, ctx, &w);
}


static const char *
ngx_http_sandbox_mcp_edit_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    off_t                         most;
    const char                   *what;
    ngx_http_sandbox_loc_conf_t  *slcf;
    ngx_http_sandbox_mcp_read_t  *read;

    what = ngx_http_sandbox_mcp_read_accepted(r, ctx);

    if (what || ctx->problem.status) {
        return what;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    read = ctx->mcp->read;

    most = ngx_http_sandbox_max_stdin(slcf);

    /* all of it will be in memory */

    if (read->size > (uint64_t) most) {
        ctx->wire.done = 1;
        return ngx_http_sandbox_mcp_too_large(r, ctx, most) == NGX_ERROR
               ? "there is no memory" : NULL;
    }

    what = ngx_http_sandbox_mcp_hold(r, ctx, 2 * (size_t) read->size);

    if (what || ctx->problem.status) {
        return what;
    }

    read->data = ngx_pnalloc(r->pool, (size_t) read->size + 1);

    return read->data ? NULL : "there is no memory";
}


static const char *
ngx_http_sandbox_mcp_edit_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    ngx_http_sandbox_mcp_read_t  *read;

    read = ctx->mcp->read;

    if (p == NULL) {
        return read->got == read->size ? NULL
                                       : "less of a file than its size";
    }

    if (n > read->size - read->got) {
        return "more of a file than its size";
    }

    ngx_memcpy(read->data + read->got, p, n);
    read->got += n;

    return NULL;
}


static void
ngx_http_sandbox_mcp_edit_free(void *data)
{
    ngx_http_sandbox_mcp_read_t *read = data;

    free(read->edited.data);
}


/* in a thread: the pool is not its own, the client may go meanwhile */

static void
ngx_http_sandbox_mcp_edit(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_mcp_read_t *read = op->data;

    u_char    *p, *q, *last, *to;
    uint64_t   size;

    p = read->data;
    last = p + read->size;

    while ((p = ngx_http_sandbox_mcp_find(p, last, &read->old)) != NULL) {
        read->count++;
        p += read->old.len;
    }

    if (read->count == 0 || (read->count > 1 && !read->all)) {
        return;
    }

    /* each factor has its bound, being in memory; their product may not */

    size = read->size - read->count * read->old.len;

    if (read->new.len
        && read->count > (SANDBOX_WIRE_MAX_BODY - 1) / read->new.len)
    {
        op->fault.status = SANDBOX_STORE_TOO_LARGE;
        return;
    }

    size += read->count * read->new.len;

    if (size > SANDBOX_WIRE_MAX_BODY) {
        op->fault.status = SANDBOX_STORE_TOO_LARGE;
        return;
    }

    to = malloc((size_t) size + 1);

    if (to == NULL) {
        op->fault.status = SANDBOX_STORE_FAILED;
        return;
    }

    read->edited.data = to;
    read->edited.len = (size_t) size;

    p = read->data;

    while ((q = ngx_http_sandbox_mcp_find(p, last, &read->old)) != NULL) {
        to = ngx_cpymem(to, p, q - p);
        to = ngx_cpymem(to, read->new.data, read->new.len);
        p = q + read->old.len;
    }

    ngx_memcpy(to, p, last - p);
}


static u_char *
ngx_http_sandbox_mcp_find(u_char *p, u_char *last, ngx_str_t *text)
{
    return memmem(p, last - p, text->data, text->len);
}


static void
ngx_http_sandbox_mcp_edited(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_mcp_read_t *read = op->data;

    ngx_int_t  rc;

    if (op->fault.status == SANDBOX_STORE_TOO_LARGE) {
        rc = ngx_http_sandbox_mcp_too_large(r, ctx, SANDBOX_WIRE_MAX_BODY);

    } else if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, NGX_ENOMEM,
                      "sandbox: there is no memory for a file that is edited: "
                      "the host needs more, or \"sandbox_file_size\" less");
        rc = NGX_ERROR;

    } else if (read->edited.data == NULL) {
        rc = ngx_http_sandbox_mcp_edit_wrong(r, ctx);

    } else {

        /* who changed it meanwhile is not overwritten */

        rc = ngx_http_sandbox_mcp_write(r, ctx, &read->edited, &read->etag,
                                        ngx_http_sandbox_mcp_render_edit);
    }

    if (rc == NGX_OK) {
        return;
    }

    ngx_http_sandbox_upstream_leave(r);
    ngx_http_finalize_request(r, rc == NGX_DECLINED
                                 ? ngx_http_sandbox_send_problem(r, ctx)
                                 : NGX_HTTP_INTERNAL_SERVER_ERROR);
}


static ngx_int_t
ngx_http_sandbox_mcp_edit_wrong(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t  count;

    count = ctx->mcp->read->count;

    if (count == 0) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_CONFLICT, "edit_not_found",
                                "\"old_string\" is in the file 0 times: it "
                                "must be there exactly as given, with the "
                                "same blanks and line ends; nothing was "
                                "changed.");
        return NGX_DECLINED;
    }

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_CONFLICT,
                                       "edit_ambiguous",
                                       "\"old_string\" is in the file %uL "
                                       "times: take more of the lines around "
                                       "it, or set \"replace_all\" to true; "
                                       "nothing was changed.", count)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_mcp_render_edit(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t                    status;
    ngx_http_sandbox_mcp_read_t  *read;
    ngx_http_sandbox_mcp_text_t   text, structured;

    read = ctx->mcp->read;
    status = (ngx_uint_t) ctx->wire.result.number[SANDBOX_TAG_STATUS];

    if (status != NGX_HTTP_OK && status != NGX_HTTP_CREATED) {
        return ngx_http_sandbox_render_failed(r, ctx);
    }

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_format(&text, NGX_HTTP_SANDBOX_MCP_OPEN
                                "Replaced %uL place%s in ", read->count,
                                read->count == 1 ? "" : "s");
    ngx_http_sandbox_mcp_escape(&text, ctx->mcp->shown.data,
                                ctx->mcp->shown.len);
    ngx_http_sandbox_mcp_format(&text, ", now %uL bytes."
                                NGX_HTTP_SANDBOX_MCP_CLOSE,
                                ctx->wire.result.number[
                                                   SANDBOX_TAG_FILE_SIZE]);

    ngx_http_sandbox_mcp_text(&structured, r->pool);
    ngx_http_sandbox_mcp_written(&structured, ctx);
    ngx_http_sandbox_mcp_format(&structured, ",\"replacements\":%uL}",
                                read->count);

    return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
}
