/*
 * GET, PUT and DELETE .../fs/PATH: requests and conditions onto the wire, and
 * what the agent says of a file as headers.  Bytes of a download go through
 * ngx_http_sandbox_stream.c, those of an upload through ..._stdin.c.
 */

#include "ngx_http_sandbox_fs.h"


static ngx_int_t ngx_http_sandbox_fs_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w);
static void ngx_http_sandbox_fs_range(ngx_http_request_t *r,
    ngx_http_sandbox_fs_t *fs, sandbox_writer_t *w);
static ngx_int_t ngx_http_sandbox_fs_conditions(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w);
static ngx_int_t ngx_http_sandbox_fs_tags(ngx_http_sandbox_ctx_t *ctx,
    sandbox_writer_t *w, ngx_uint_t tag, ngx_str_t *list);
static ngx_int_t ngx_http_sandbox_fs_flag(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const char *name, ngx_uint_t *flag);
static const char *ngx_http_sandbox_fs_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_fs_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_fs_render_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_fs_render_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_fs_render_remove(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_fs_unchanged(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_fs_etag(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_fs_range_header(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static unsigned ngx_http_sandbox_fs_type(ngx_str_t *name);


/* by the name: the bytes come only after the header */

static const struct {
    const char  *ending;
    unsigned     type;                           /* sandbox_store_type_e */
} ngx_http_sandbox_fs_types[] = {
    { "png",  SANDBOX_STORE_TYPE_PNG },
    { "jpg",  SANDBOX_STORE_TYPE_JPEG },
    { "jpeg", SANDBOX_STORE_TYPE_JPEG },
    { "gif",  SANDBOX_STORE_TYPE_GIF },
    { "webp", SANDBOX_STORE_TYPE_WEBP },
    { "txt",  SANDBOX_STORE_TYPE_TEXT },
    { "md",   SANDBOX_STORE_TYPE_TEXT },
    { "csv",  SANDBOX_STORE_TYPE_TEXT },
    { "tsv",  SANDBOX_STORE_TYPE_TEXT },
    { "log",  SANDBOX_STORE_TYPE_TEXT },
    { "json", SANDBOX_STORE_TYPE_TEXT },
    { "yaml", SANDBOX_STORE_TYPE_TEXT },
    { "yml",  SANDBOX_STORE_TYPE_TEXT },
    { "py",   SANDBOX_STORE_TYPE_TEXT },
    { "sh",   SANDBOX_STORE_TYPE_TEXT },
    { "sql",  SANDBOX_STORE_TYPE_TEXT },
    { "pdf",  SANDBOX_STORE_TYPE_PDF },
    { "zip",  SANDBOX_STORE_TYPE_ZIP },
    { "xlsx", SANDBOX_STORE_TYPE_XLSX },
    { "docx", SANDBOX_STORE_TYPE_DOCX },
    { "pptx", SANDBOX_STORE_TYPE_PPTX },
    { "gz",   SANDBOX_STORE_TYPE_GZIP },
    { NULL,   SANDBOX_STORE_TYPE_BINARY }
};


ngx_int_t
ngx_http_sandbox_fs_get_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t               value;
    sandbox_writer_t        w;
    ngx_http_sandbox_fs_t  *fs;

    if (ngx_http_sandbox_fs_begin(r, ctx, &w) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    fs = ctx->fs;

    ctx->wire.flags = SANDBOX_FLAG_NO_CREATE;
    ctx->wire.operation = SANDBOX_OPERATION_FILE_READ;
    ctx->wire.accepted = ngx_http_sandbox_fs_accepted;
    ctx->wire.data = ngx_http_sandbox_fs_data;
    ctx->wire.render = ngx_http_sandbox_fs_render_read;

    if (ngx_http_sandbox_argument(r, "list", &value) == NGX_OK) {
        fs->list = 1;
        sandbox_write_number(&w, SANDBOX_TAG_LIST, 1);
    }

    if (ngx_http_sandbox_listing_ask(r, ctx, &w) != NGX_OK
        || ngx_http_sandbox_fs_conditions(r, ctx, &w) != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (r->method == NGX_HTTP_HEAD) {
        sandbox_write_number(&w, SANDBOX_TAG_NO_BODY, 1);

    } else if (!fs->list) {
        ngx_http_sandbox_fs_range(r, fs, &w);
    }

    if (w.failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->wire.head.len = w.pos - w.start;

    return ngx_http_sandbox_start(r, ctx);
}


ngx_int_t
ngx_http_sandbox_fs_put_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t            i;
    ngx_str_t         value;
    ngx_uint_t        mode;
    sandbox_writer_t  w;

    if (ngx_http_sandbox_fs_begin(r, ctx, &w) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    ctx->wire.flags = 0;
    ctx->wire.operation = SANDBOX_OPERATION_FILE_WRITE;
    ctx->wire.render = ngx_http_sandbox_fs_render_write;

    if (r->headers_in.content_range) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "A file is written as a whole, without "
                                "Content-Range.");
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (ngx_http_sandbox_argument(r, "mode", &value) == NGX_OK) {

        mode = 0;

        for (i = 0; i < value.len && i < 4; i++) {

            if (value.data[i] < '0' || value.data[i] > '7') {
                break;
            }

            mode = mode * 8 + (value.data[i] - '0');
        }

        if (value.len == 0 || i < value.len || mode > 0777) {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "\"mode\" must be octal, from 0 to 777.");
            return ngx_http_sandbox_send_problem(r, ctx);
        }

        sandbox_write_number(&w, SANDBOX_TAG_FILE_MODE, mode);
    }

    if (ngx_http_sandbox_fs_conditions(r, ctx, &w) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (w.failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->wire.head.len = w.pos - w.start;

    return ngx_http_sandbox_stdin_read(r, ctx);
}


ngx_int_t
ngx_http_sandbox_fs_delete_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t        recursive;
    sandbox_writer_t  w;

    if (ngx_http_sandbox_fs_begin(r, ctx, &w) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    ctx->wire.flags = SANDBOX_FLAG_NO_CREATE;
    ctx->wire.operation = SANDBOX_OPERATION_FILE_REMOVE;
    ctx->wire.render = ngx_http_sandbox_fs_render_remove;

    recursive = 0;

    if (ngx_http_sandbox_fs_flag(r, ctx, "recursive", &recursive) != NGX_OK
        || ngx_http_sandbox_fs_conditions(r, ctx, &w) != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (recursive) {
        sandbox_write_number(&w, SANDBOX_TAG_RECURSIVE, 1);
    }

    if (w.failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->wire.head.len = w.pos - w.start;

    return ngx_http_sandbox_start(r, ctx);
}


/* NGX_OK, or NGX_DECLINED with the refusal; without one there is no memory */

static ngx_int_t
ngx_http_sandbox_fs_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w)
{
    ngx_int_t               rc;
    ngx_str_t               value;
    ngx_http_sandbox_fs_t  *fs;

    fs = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_fs_t));
    if (fs == NULL) {
        return NGX_ERROR;
    }

    ctx->fs = fs;
    fs->path = ctx->name;

    rc = ngx_http_sandbox_path(r, ctx, &fs->path);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_sandbox_argument(r, "root", &value) == NGX_OK) {

        if (!(value.len == 1 && value.data[0] == '/')
            && !(value.len == 3
                 && ngx_strncasecmp(value.data, (u_char *) "%2f", 3) == 0))
        {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "\"root\" must be \"/\", or not there.");
            return NGX_DECLINED;
        }

        fs->root = SANDBOX_ROOT_ALL;
    }

    /* the id of a command is not what it is */

    ngx_str_null(&ctx->name);

    if (ngx_http_sandbox_head_begin(r, ctx, w, fs->path.len + 1024
                                    + 3 * SANDBOX_WIRE_MAX_ETAGS
                                      * (SANDBOX_WIRE_MAX_ETAG
                                         + SANDBOX_WIRE_FIELD_SIZE))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    sandbox_write_bytes(w, SANDBOX_TAG_PATH, fs->path.data, fs->path.len);
    sandbox_write_number(w, SANDBOX_TAG_ROOT, fs->root);

    return NGX_OK;
}


/* one range of bytes; several, or what is none, are the whole file */

static void
ngx_http_sandbox_fs_range(ngx_http_request_t *r, ngx_http_sandbox_fs_t *fs,
    sandbox_writer_t *w)
{
    u_char     *p, *dash;
    uint64_t    first, last;
    ngx_str_t   range, if_range, text;

    if (r->headers_in.range == NULL) {
        return;
    }

    range = r->headers_in.range->value;

    if (range.len < 7
        || ngx_strncasecmp(range.data, (u_char *) "bytes=", 6) != 0)
    {
        return;
    }

    p = range.data + 6;
    last = 0;
    dash = ngx_strlchr(p, range.data + range.len, '-');

    if (dash == NULL) {
        return;
    }

    text.data = dash + 1;
    text.len = range.data + range.len - text.data;

    if (text.len && ngx_http_sandbox_decimal(&text, INT64_MAX, &last)
                    != NGX_OK)
    {
        return;
    }

    range.data = p;
    range.len = dash - p;

    if (range.len == 0 && text.len == 0) {
        return;
    }

    if (range.len
        && (ngx_http_sandbox_decimal(&range, INT64_MAX, &first) != NGX_OK
            || (text.len && last < first)))
    {
        return;
    }

    /* a time, or a weak tag, is never the same as a tag: the whole file */

    if (r->headers_in.if_range) {

        if_range = r->headers_in.if_range->value;

        if (if_range.len < 2 || if_range.len > SANDBOX_WIRE_MAX_ETAG + 2
            || if_range.data[0] != '"'
            || if_range.data[if_range.len - 1] != '"')
        {
            return;
        }

        sandbox_write_bytes(w, SANDBOX_TAG_IF_RANGE, if_range.data + 1,
                            if_range.len - 2);
    }

    fs->ranged = 1;

    if (range.len == 0) {
        fs->suffix = 1;
        fs->first = last;
        sandbox_write_number(w, SANDBOX_TAG_RANGE_SUFFIX, last);
        return;
    }

    fs->first = first;
    sandbox_write_number(w, SANDBOX_TAG_RANGE_FIRST, first);

    if (text.len) {
        sandbox_write_number(w, SANDBOX_TAG_RANGE_LAST, last);
    }
}


static ngx_int_t
ngx_http_sandbox_fs_conditions(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w)
{
    if (r->headers_in.if_match
        && ngx_http_sandbox_fs_tags(ctx, w, SANDBOX_TAG_IF_MATCH,
                                    &r->headers_in.if_match->value)
           != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (r->headers_in.if_none_match) {
        return ngx_http_sandbox_fs_tags(ctx, w, SANDBOX_TAG_IF_NONE_MATCH,
                                        &r->headers_in.if_none_match->value);
    }

    return NGX_OK;
}


/* "*", or tags in quotes divided by commas; weak ones are never If-Match's */

static ngx_int_t
ngx_http_sandbox_fs_tags(ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w,
    ngx_uint_t tag, ngx_str_t *list)
{
    u_char      *p, *last, *end;
    ngx_uint_t   n, weak;

    p = list->data;
    last = p + list->len;

    if (list->len == 1 && *p == '*') {
        sandbox_write_bytes(w, (uint16_t) tag, p, 1);
        return NGX_OK;
    }

    for (n = 0; n < SANDBOX_WIRE_MAX_ETAGS; n++) {

        while (p < last && (*p == ' ' || *p == '\t' || *p == ',')) {
            p++;
        }

        if (p == last) {
            break;
        }

        weak = 0;

        if (last - p > 2 && p[0] == 'W' && p[1] == '/') {
            weak = 1;
            p += 2;
        }

        end = (*p == '"') ? ngx_strlchr(p + 1, last, '"') : NULL;

        if (end == NULL || end - p - 1 > SANDBOX_WIRE_MAX_ETAG) {
            p = list->data;
            break;
        }

        /* no tag of ours is empty: that one holds for nothing */

        if (weak && tag == SANDBOX_TAG_IF_MATCH) {
            sandbox_write_bytes(w, (uint16_t) tag, p, 0);

        } else {
            sandbox_write_bytes(w, (uint16_t) tag, p + 1, end - p - 1);
        }

        p = end + 1;
    }

    if (n && p == last) {
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                            "If-Match and If-None-Match must be \"*\", or 1 "
                            "to 16 tags in quotes of at most 64 characters.");
    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_fs_flag(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const char *name, ngx_uint_t *flag)
{
    ngx_str_t  value;

    if (ngx_http_sandbox_argument(r, name, &value) != NGX_OK) {
        return NGX_OK;
    }

    if (value.len == 1 && (value.data[0] == '0' || value.data[0] == '1')) {
        *flag = (value.data[0] == '1');
        return NGX_OK;
    }

    if (ngx_http_sandbox_refuse_format(r, ctx, NGX_HTTP_BAD_REQUEST,
                                       "bad_request",
                                       "\"%s\" must be 1 or 0.", name)
        == NGX_ERROR)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                "internal", "There is no memory.");
    }

    return NGX_DECLINED;
}


/* HEAD is here: what follows is a file to be passed on, names, or nothing */

static const char *
ngx_http_sandbox_fs_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                    first, last, size;
    ngx_http_sandbox_fs_t      *fs;
    ngx_http_sandbox_result_t  *result;

    fs = ctx->fs;
    result = &ctx->wire.result;

    if (!result->seen[SANDBOX_TAG_STATUS]
        || !result->seen[SANDBOX_TAG_FILE_TYPE]
        || !result->seen[SANDBOX_TAG_FILE_SIZE])
    {
        return "a file without a status, a type or a size";
    }

    size = result->number[SANDBOX_TAG_FILE_SIZE];
    ctx->answer_status = (ngx_uint_t) result->number[SANDBOX_TAG_STATUS];

    switch (ctx->answer_status) {

    case NGX_HTTP_NOT_MODIFIED:
        return r->headers_in.if_none_match
               ? NULL : "an answer to a condition that there was not";

    case NGX_HTTP_PRECONDITION_FAILED:
        return r->headers_in.if_match
               ? NULL : "an answer to a condition that there was not";

    case NGX_HTTP_RANGE_NOT_SATISFIABLE:
        return fs->ranged ? NULL : "a range that nobody asked for";

    case NGX_HTTP_OK:
        break;

    case NGX_HTTP_PARTIAL_CONTENT:
        first = result->number[SANDBOX_TAG_RANGE_FIRST];
        last = result->number[SANDBOX_TAG_RANGE_LAST];

        if (first > last || last >= size) {
            return "a range that is not in the file";
        }

        if (!fs->ranged
            || (fs->suffix ? last + 1 != size
                             || (fs->first < size && size - first != fs->first)
                           : first != fs->first))
        {
            return "a range that nobody asked for";
        }

        size = last - first + 1;
        break;

    default:
        return "a status that no file has";
    }

    if (result->number[SANDBOX_TAG_FILE_TYPE] == SANDBOX_FILE_DIRECTORY) {

        fs->listing = ngx_http_sandbox_listing_begin(r);

        return fs->listing ? NULL : "there is no memory";
    }

    if (fs->list || result->etag.len == 0) {
        return fs->list ? "a file, but names were asked for"
                        : "a file without an etag";
    }

    fs->file = 1;
    ctx->answer_size = (off_t) size;

    if (r->method == NGX_HTTP_HEAD) {
        return NULL;
    }

    fs->promised = size;
    fs->stream.format = NGX_HTTP_SANDBOX_BYTES;
    ctx->stream = &fs->stream;

    return NULL;
}


static const char *
ngx_http_sandbox_fs_data(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    u_char *p, size_t n)
{
    ngx_http_sandbox_fs_t  *fs;

    fs = ctx->fs;

    if (fs->listing) {
        return ngx_http_sandbox_listing_data(r, ctx, p, n);
    }

    if (p == NULL) {
        return fs->passed == fs->promised ? NULL
                                          : "less of a file than its size";
    }

    if (n > fs->promised - fs->passed) {
        return "more of a file than its size";
    }

    fs->passed += n;

    return NULL;
}


/* what has no bytes of a file */

static ngx_int_t
ngx_http_sandbox_fs_render_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_fs_t  *fs;

    fs = ctx->fs;

    switch (ctx->answer_status) {

    case NGX_HTTP_NOT_MODIFIED:
    case NGX_HTTP_PRECONDITION_FAILED:
    case NGX_HTTP_RANGE_NOT_SATISFIABLE:
        return ngx_http_sandbox_fs_unchanged(r, ctx);
    }

    if (fs->listing == NULL) {
        ctx->answer = NULL;
        return NGX_OK;
    }

    if (ngx_http_sandbox_listing_render(r, ctx, fs->listing) != NGX_OK) {
        return NGX_ERROR;
    }

    if (r->method == NGX_HTTP_HEAD) {
        ctx->answer_size = -1;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_fs_unchanged(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t  value;

    switch (ctx->answer_status) {

    case NGX_HTTP_NOT_MODIFIED:
        ctx->fs->file = 1;
        ctx->answer = NULL;
        ctx->answer_size = -1;

        return NGX_OK;

    case NGX_HTTP_PRECONDITION_FAILED:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_PRECONDITION_FAILED,
                                "precondition_failed",
                                "If-Match does not hold: the file is another "
                                "one by now.");
        break;

    default:
        value.data = ngx_pnalloc(r->pool, sizeof("bytes */")
                                          + NGX_INT64_LEN);
        if (value.data == NULL) {
            return NGX_ERROR;
        }

        value.len = ngx_sprintf(value.data, "bytes */%uL",
                                ctx->wire.result.number[
                                                 SANDBOX_TAG_FILE_SIZE])
                    - value.data;

        if (ngx_http_sandbox_serve_header(r, "Content-Range", &value)
            == NULL)
        {
            return NGX_ERROR;
        }

        ngx_http_sandbox_refuse(ctx, NGX_HTTP_RANGE_NOT_SATISFIABLE,
                                "range_not_satisfiable",
                                "The range begins after the end of the "
                                "file.");
    }

    return ngx_http_sandbox_render_problem(r, ctx);
}


static ngx_int_t
ngx_http_sandbox_fs_render_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_buf_t                  *b;
    ngx_uint_t                  status;
    ngx_http_sandbox_fs_t      *fs;
    ngx_http_sandbox_result_t  *result;

    fs = ctx->fs;
    result = &ctx->wire.result;
    status = (ngx_uint_t) result->number[SANDBOX_TAG_STATUS];

    if (status != NGX_HTTP_OK && status != NGX_HTTP_CREATED) {
        return ngx_http_sandbox_render_failed(r, ctx);
    }

    b = ngx_create_temp_buf(r->pool, 512 + 8 * fs->path.len);
    if (b == NULL || ngx_http_sandbox_fs_etag(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    *b->last++ = '{';
    b->last = ngx_http_sandbox_listing_bytes(b->last, "path", &fs->path);
    b->last = ngx_sprintf(b->last, ",\"size\":%uL,\"etag\":\"\\\"%V\\\"\","
                          "\"modifiedAt\":",
                          result->number[SANDBOX_TAG_FILE_SIZE],
                          &result->etag);
    b->last = ngx_http_sandbox_time(b->last,
                                    result->number[SANDBOX_TAG_MODIFIED_NS]
                                    / 1000000);
    b->last = ngx_sprintf(b->last, "}\n");

    return ngx_http_sandbox_render_buffer(r, ctx, status, b);
}


static ngx_int_t
ngx_http_sandbox_fs_render_remove(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_result_t  *result;

    result = &ctx->wire.result;

    if (result->seen[SANDBOX_TAG_STATUS]
        && result->number[SANDBOX_TAG_STATUS] >= NGX_HTTP_BAD_REQUEST)
    {
        return ngx_http_sandbox_render_failed(r, ctx);
    }

    ctx->answer = NULL;
    ctx->answer_size = -1;
    ctx->answer_status = NGX_HTTP_NO_CONTENT;

    return NGX_OK;
}


ngx_uint_t
ngx_http_sandbox_fs_file(ngx_http_sandbox_ctx_t *ctx)
{
    return ctx->fs && ctx->fs->file && ctx->problem.status == 0;
}


ngx_int_t
ngx_http_sandbox_fs_headers(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                     *p;
    unsigned                    shown, type;
    ngx_str_t                   name, disposition;
    const char                 *text;
    ngx_http_sandbox_fs_t      *fs;
    ngx_http_sandbox_result_t  *result;

    ngx_str_t  cache = ngx_string("private, no-cache");
    ngx_str_t  policy = ngx_string("sandbox");
    ngx_str_t  nosniff = ngx_string("nosniff");
    ngx_str_t  bytes = ngx_string("bytes");

    fs = ctx->fs;
    result = &ctx->wire.result;

    if (ngx_http_sandbox_fs_etag(r, ctx) != NGX_OK
        || !ngx_http_sandbox_serve_header(r, "Cache-Control", &cache)
        || !ngx_http_sandbox_serve_header(r, "X-Content-Type-Options",
                                          &nosniff))
    {
        return NGX_ERROR;
    }

    r->headers_out.last_modified_time =
          (time_t) (result->number[SANDBOX_TAG_MODIFIED_NS] / 1000000000);

    if (ctx->answer_status == NGX_HTTP_NOT_MODIFIED) {
        ngx_str_null(&r->headers_out.content_type);
        r->headers_out.content_type_len = 0;
        return NGX_OK;
    }

    name = fs->path;

    for (p = name.data + name.len; p > name.data && p[-1] != '/'; p--) {
        /* void */
    }

    name.len = ngx_min((size_t) (name.data + name.len - p),
                       SANDBOX_STORE_MAX_NAME);
    name.data = p;

    type = ngx_http_sandbox_fs_type(&name);
    text = sandbox_store_type(type, &shown);

    r->headers_out.content_type.data = (u_char *) text;
    r->headers_out.content_type.len = ngx_strlen(text);
    r->headers_out.content_type_len = strcspn(text, ";");

    disposition.data = ngx_pnalloc(r->pool, SANDBOX_STORE_DISPOSITION);
    if (disposition.data == NULL) {
        return NGX_ERROR;
    }

    disposition.len = sandbox_store_disposition(!shown, (char *) name.data,
                                                name.len,
                                                (char *) disposition.data);

    if (!ngx_http_sandbox_serve_header(r, "Content-Disposition", &disposition)
        || !ngx_http_sandbox_serve_header(r, "Content-Security-Policy",
                                          &policy)
        || !ngx_http_sandbox_serve_header(r, "Accept-Ranges", &bytes))
    {
        return NGX_ERROR;
    }

    return ctx->answer_status == NGX_HTTP_PARTIAL_CONTENT
           ? ngx_http_sandbox_fs_range_header(r, ctx) : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_fs_etag(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t         value;
    ngx_table_elt_t  *h;

    value.data = ngx_pnalloc(r->pool, SANDBOX_WIRE_MAX_ETAG + 2);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, "\"%V\"", &ctx->wire.result.etag)
                - value.data;

    h = ngx_http_sandbox_serve_header(r, "ETag", &value);

    if (h == NULL) {
        return NGX_ERROR;
    }

    /* "gzip" makes it a weak one */

    r->headers_out.etag = h;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_fs_range_header(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t   *number;
    ngx_str_t   value;

    number = ctx->wire.result.number;

    value.data = ngx_pnalloc(r->pool, sizeof("bytes -/")
                                      + 3 * NGX_INT64_LEN);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, "bytes %uL-%uL/%uL",
                            number[SANDBOX_TAG_RANGE_FIRST],
                            number[SANDBOX_TAG_RANGE_LAST],
                            number[SANDBOX_TAG_FILE_SIZE])
                - value.data;

    return ngx_http_sandbox_serve_header(r, "Content-Range", &value)
           ? NGX_OK : NGX_ERROR;
}


static unsigned
ngx_http_sandbox_fs_type(ngx_str_t *name)
{
    size_t      n;
    u_char     *p;
    ngx_uint_t  i;

    for (p = name->data + name->len; p > name->data && p[-1] != '.'; p--) {
        /* void */
    }

    n = name->data + name->len - p;

    for (i = 0; p > name->data && ngx_http_sandbox_fs_types[i].ending; i++) {

        if (ngx_strlen(ngx_http_sandbox_fs_types[i].ending) == n
            && ngx_strncasecmp(p, (u_char *)
                               ngx_http_sandbox_fs_types[i].ending, n)
               == 0)
        {
            return ngx_http_sandbox_fs_types[i].type;
        }
    }

    return SANDBOX_STORE_TYPE_BINARY;
}
