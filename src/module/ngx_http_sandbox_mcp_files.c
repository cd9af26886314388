/*
 * Tools that write, remove and save files of the sandbox: save_file,
 * upload_file, delete_file, download_file.  Paths, and what files share.
 */

#include "ngx_http_sandbox_fs.h"
#include "ngx_http_sandbox_mcp.h"


#define NGX_HTTP_SANDBOX_MCP_LINK    600         /* seconds, of a link */


static ngx_int_t ngx_http_sandbox_mcp_render_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_render_remove(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_mcp_url(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *path, ngx_str_t *url);


/* "/a", "~/a" and "a"; without one it is the home */

ngx_int_t
ngx_http_sandbox_mcp_path(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    u_char                  *p;
    json_t                  *value;
    ngx_int_t                rc;
    ngx_str_t               *path;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;
    path = &mcp->path;

    value = json_object_get(mcp->arguments, "path");

    if (value) {
        path->data = (u_char *) json_string_value(value);
        path->len = json_string_length(value);

    } else {
        ngx_str_set(path, "");
    }

    if (path->len && path->data[0] == '/') {
        mcp->root_id = SANDBOX_ROOT_ALL;

    } else if (path->len && path->data[0] == '~'
               && (path->len == 1 || path->data[1] == '/'))
    {
        path->data++;
        path->len--;
    }

    rc = ngx_http_sandbox_path(r, ctx, path);
    if (rc != NGX_OK) {
        return rc;
    }

    mcp->shown.data = ngx_pnalloc(r->pool, path->len
                                           + sizeof("/home/sandbox/"));
    if (mcp->shown.data == NULL) {
        return NGX_ERROR;
    }

    p = mcp->shown.data;

    if (mcp->root_id == SANDBOX_ROOT_ALL) {
        *p++ = '/';

    } else {
        p = ngx_cpymem(p, "/home/sandbox", 13);

        if (path->len) {
            *p++ = '/';
        }
    }

    p = ngx_cpymem(p, path->data, path->len);
    mcp->shown.len = p - mcp->shown.data;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_mcp_file(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    sandbox_writer_t *w, ngx_uint_t operation, size_t size)
{
    ngx_int_t                rc;
    ngx_http_sandbox_mcp_t  *mcp;

    mcp = ctx->mcp;

    rc = ngx_http_sandbox_mcp_path(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_sandbox_head_begin(r, ctx, w, 256 + mcp->path.len + size)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    sandbox_write_bytes(w, SANDBOX_TAG_PATH, mcp->path.data, mcp->path.len);
    sandbox_write_number(w, SANDBOX_TAG_ROOT, mcp->root_id);

    /* only what writes makes a sandbox */

    ctx->wire.flags = (operation == SANDBOX_OPERATION_FILE_WRITE)
                      ? 0 : SANDBOX_FLAG_NO_CREATE;
    ctx->wire.operation = operation;
    ctx->wire.accepted = NULL;
    ctx->wire.data = NULL;
    ctx->wire.render = NULL;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_mcp_save_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t     *value;
    ngx_str_t   content;

    value = json_object_get(ctx->mcp->arguments, "content");

    content.data = (u_char *) json_string_value(value);
    content.len = json_string_length(value);

    return ngx_http_sandbox_mcp_write(r, ctx, &content, NULL,
                                      ngx_http_sandbox_mcp_render_write);
}


ngx_int_t
ngx_http_sandbox_mcp_prepare_upload(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t     *value;
    ngx_str_t   text;

    value = json_object_get(ctx->mcp->arguments, "contentBase64");

    text.data = (u_char *) json_string_value(value);
    text.len = json_string_length(value);

    ctx->mcp->body.data = ngx_pnalloc(r->pool,
                                      ngx_base64_decoded_length(text.len)
                                      + 1);
    if (ctx->mcp->body.data == NULL) {
        return NGX_ERROR;
    }

    if (ngx_decode_base64(&ctx->mcp->body, &text) != NGX_OK) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"contentBase64\" must be base64.");
        return NGX_DECLINED;
    }

    (void) json_object_del(ctx->mcp->arguments, "contentBase64");

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_mcp_upload_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return ngx_http_sandbox_mcp_write(r, ctx, &ctx->mcp->body, NULL,
                                      ngx_http_sandbox_mcp_render_write);
}


ngx_int_t
ngx_http_sandbox_mcp_write(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *content, ngx_str_t *etag,
    ngx_int_t (*render)(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx))
{
    ngx_int_t                     rc;
    sandbox_writer_t              w;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if ((off_t) content->len > slcf->caps.file_size) {
        return ngx_http_sandbox_mcp_too_large(r, ctx, slcf->caps.file_size);
    }

    rc = ngx_http_sandbox_mcp_file(r, ctx, &w, SANDBOX_OPERATION_FILE_WRITE,
                                   SANDBOX_WIRE_MAX_ETAG);
    if (rc != NGX_OK) {
        return rc;
    }

    if (etag) {
        sandbox_write_bytes(&w, SANDBOX_TAG_IF_MATCH, etag->data, etag->len);
    }

    ctx->wire.body = *content;
    ctx->wire.render = render;

    return ngx_http_sandbox_mcp_send(r, ctx, &w);
}


ngx_int_t
ngx_http_sandbox_mcp_too_large(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, off_t most)
{
    if (ngx_http_sandbox_refuse_format(r, ctx,
                                       NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                       "file_too_large",
                                       "A file may have at most %O bytes "
                                       "here.", most)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_mcp_render_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t                    status;
    ngx_http_sandbox_result_t    *result;
    ngx_http_sandbox_mcp_text_t   text, structured;

    result = &ctx->wire.result;
    status = (ngx_uint_t) result->number[SANDBOX_TAG_STATUS];

    if (status != NGX_HTTP_OK && status != NGX_HTTP_CREATED) {
        return ngx_http_sandbox_render_failed(r, ctx);
    }

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_format(&text, NGX_HTTP_SANDBOX_MCP_OPEN "%s ",
                                status == NGX_HTTP_CREATED ? "Made"
                                                           : "Replaced");
    ngx_http_sandbox_mcp_escape(&text, ctx->mcp->shown.data,
                                ctx->mcp->shown.len);
    ngx_http_sandbox_mcp_format(&text, ", %uL bytes."
                                NGX_HTTP_SANDBOX_MCP_CLOSE,
                                result->number[SANDBOX_TAG_FILE_SIZE]);

    ngx_http_sandbox_mcp_text(&structured, r->pool);
    ngx_http_sandbox_mcp_written(&structured, ctx);
    ngx_http_sandbox_mcp_format(&structured, ",\"created\":%s}",
                                status == NGX_HTTP_CREATED ? "true"
                                                           : "false");

    return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
}


void
ngx_http_sandbox_mcp_written(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                      time[64];
    ngx_http_sandbox_result_t  *result;

    result = &ctx->wire.result;

    ngx_http_sandbox_mcp_words(text, "{\"path\":\"");
    ngx_http_sandbox_mcp_escape(text, ctx->mcp->shown.data,
                                ctx->mcp->shown.len);

    *ngx_http_sandbox_time(time, result->number[SANDBOX_TAG_MODIFIED_NS]
                                 / 1000000) = '\0';

    ngx_http_sandbox_mcp_format(text, "\",\"size\":%uL,\"etag\":"
                                "\"\\\"%V\\\"\",\"modifiedAt\":%s",
                                result->number[SANDBOX_TAG_FILE_SIZE],
                                &result->etag, time);
}


ngx_int_t
ngx_http_sandbox_mcp_delete_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t         rc;
    sandbox_writer_t  w;

    rc = ngx_http_sandbox_mcp_file(r, ctx, &w, SANDBOX_OPERATION_FILE_REMOVE,
                                   0);
    if (rc != NGX_OK) {
        return rc;
    }

    if (json_is_true(json_object_get(ctx->mcp->arguments, "recursive"))) {
        sandbox_write_number(&w, SANDBOX_TAG_RECURSIVE, 1);
    }

    ctx->wire.render = ngx_http_sandbox_mcp_render_remove;

    return ngx_http_sandbox_mcp_send(r, ctx, &w);
}


static ngx_int_t
ngx_http_sandbox_mcp_render_remove(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    const char                   *type;
    ngx_http_sandbox_result_t    *result;
    ngx_http_sandbox_mcp_text_t   text, structured;

    result = &ctx->wire.result;

    if (result->seen[SANDBOX_TAG_STATUS]
        && result->number[SANDBOX_TAG_STATUS] >= NGX_HTTP_BAD_REQUEST)
    {
        return ngx_http_sandbox_render_failed(r, ctx);
    }

    type = sandbox_file_type_name(
                           (unsigned) result->number[SANDBOX_TAG_FILE_TYPE]);

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_OPEN "Removed ");
    ngx_http_sandbox_mcp_escape(&text, ctx->mcp->shown.data,
                                ctx->mcp->shown.len);
    ngx_http_sandbox_mcp_format(&text, ", a %s." NGX_HTTP_SANDBOX_MCP_CLOSE,
                                type);

    ngx_http_sandbox_mcp_text(&structured, r->pool);
    ngx_http_sandbox_mcp_words(&structured, "{\"path\":\"");
    ngx_http_sandbox_mcp_escape(&structured, ctx->mcp->shown.data,
                                ctx->mcp->shown.len);
    ngx_http_sandbox_mcp_format(&structured, "\",\"type\":\"%s\"}", type);

    return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
}


ngx_int_t
ngx_http_sandbox_mcp_download_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t     *value;
    ngx_int_t   rc;
    ngx_str_t   name, *path;

    rc = ngx_http_sandbox_mcp_path(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    /* one of the home stays one: links do not lead out of it */

    path = (ctx->mcp->root_id == SANDBOX_ROOT_ALL || ctx->mcp->path.len == 0)
           ? &ctx->mcp->shown : &ctx->mcp->path;
    ngx_str_null(&name);
    value = json_object_get(ctx->mcp->arguments, "name");

    if (value) {
        name.data = (u_char *) json_string_value(value);
        name.len = json_string_length(value);
    }

    if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_save_begin(r, ctx, path, &name,
                          json_is_true(json_object_get(ctx->mcp->arguments,
                                                       "overwrite"))
                          ? SANDBOX_STORE_REPLACE : SANDBOX_STORE_CREATE);
}


/* it is in the Files panel: with a link, for who reads the answer */

ngx_int_t
ngx_http_sandbox_mcp_saved(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_store_op_t *op)
{
    u_char                        time[64], entry[NGX_HTTP_SANDBOX_FILES_ENTRY];
    uint64_t                      expires;
    ngx_str_t                     name, path, url;
    ngx_http_sandbox_mcp_text_t   text, structured;

    name.data = (u_char *) op->entry.name;
    name.len = op->entry.name_len;

    expires = (uint64_t) ngx_time() + NGX_HTTP_SANDBOX_MCP_LINK;

    if (ngx_http_sandbox_link_sign(r, ctx, &name, op->entry.sha256, expires,
                                   &path)
        != NGX_OK
        || ngx_http_sandbox_mcp_url(r, ctx, &path, &url) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    *ngx_http_sandbox_time(time, expires * 1000) = '\0';

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_OPEN "Saved ");
    ngx_http_sandbox_mcp_escape(&text, name.data, name.len);
    ngx_http_sandbox_mcp_format(&text, ", %uL bytes, to the user's Files "
                                "panel. Link, good for 10 minutes: ",
                                op->entry.size);
    ngx_http_sandbox_mcp_escape(&text, url.data, url.len);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_CLOSE);

    /* as in a list, and with the link before its last brace */

    ngx_http_sandbox_mcp_text(&structured, r->pool);
    ngx_http_sandbox_mcp_put(&structured, entry,
                             ngx_http_sandbox_files_entry(entry, &op->entry)
                             - entry - 1);
    ngx_http_sandbox_mcp_format(&structured, ",\"created\":%s,\"link\":"
                                "{\"url\":\"", op->created ? "true"
                                                           : "false");
    ngx_http_sandbox_mcp_escape(&structured, url.data, url.len);
    ngx_http_sandbox_mcp_format(&structured, "\",\"expiresAt\":%s}}", time);

    if (ngx_http_sandbox_mcp_content(r, ctx, &text, &structured) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_send_answer(r, ctx);
}


/* whole, since nobody who reads it has a page of ours; Host was looked at */

static ngx_int_t
ngx_http_sandbox_mcp_url(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *path, ngx_str_t *url)
{
    ngx_str_t    host;
    const char  *scheme;

    if (r->headers_in.host == NULL) {
        *url = *path;
        return NGX_OK;
    }

    host = r->headers_in.host->value;
    scheme = "http";

#if (NGX_HTTP_SSL)

    if (r->connection->ssl) {
        scheme = "https";
    }

#endif

    url->data = ngx_pnalloc(r->pool, sizeof("https://") + host.len
                                     + path->len);
    if (url->data == NULL) {
        return NGX_ERROR;
    }

    url->len = ngx_sprintf(url->data, "%s://%V%V", scheme, &host, path)
               - url->data;

    return NGX_OK;
}
