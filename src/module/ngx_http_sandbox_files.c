/*
 * Attachments and the Files panel, but for uploads: lists, downloads, removal,
 * and how a file is told in JSON.  The two differ by their folder only.
 */

#include "ngx_http_sandbox_store.h"


#define NGX_HTTP_SANDBOX_FILES_LIMIT  100    /* of a list that names none */


static ngx_http_sandbox_store_op_t *ngx_http_sandbox_files_start(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_store_pt handler, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_files_name(ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_files_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_files_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_files_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_files_removed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);


sandbox_store_kind_e
ngx_http_sandbox_files_kind(ngx_http_sandbox_ctx_t *ctx)
{
    switch (ctx->route->operation.data[0]) {

    case 'a':
        return SANDBOX_STORE_ATTACHMENTS;

    case 's':
        return SANDBOX_STORE_SKILLS;

    default:
        return SANDBOX_STORE_FILES;
    }
}


void
ngx_http_sandbox_files_condition(ngx_http_request_t *r,
    sandbox_store_condition_t *condition)
{
    ngx_table_elt_t  *h;

    h = r->headers_in.if_match;

    if (h) {
        condition->match = (char *) h->value.data;
        condition->match_len = h->value.len;
    }

    h = r->headers_in.if_none_match;

    if (h) {
        condition->none_match = (char *) h->value.data;
        condition->none_match_len = h->value.len;
    }
}


/* NULL: *rc is what the content handler is to return */

static ngx_http_sandbox_store_op_t *
ngx_http_sandbox_files_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_pt handler,
    ngx_int_t *rc)
{
    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK) {
        *rc = ngx_http_sandbox_send_problem(r, ctx);
        return NULL;
    }

    *rc = ngx_http_discard_request_body(r);

    if (*rc != NGX_OK) {
        return NULL;
    }

    *rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    return ngx_http_sandbox_store_op(r, ctx, ngx_http_sandbox_files_kind(ctx),
                                     handler);
}


ngx_int_t
ngx_http_sandbox_files_list_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t                        limit;
    ngx_int_t                     rc;
    ngx_str_t                     after;
    ngx_http_sandbox_store_op_t  *op;

    rc = ngx_http_sandbox_files_page(r, ctx, &after, &limit);

    if (rc != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    op = ngx_http_sandbox_files_start(r, ctx, ngx_http_sandbox_files_listed,
                                      &rc);
    if (op == NULL) {
        return rc;
    }

    if (ngx_http_sandbox_store_list(op, &after, limit) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


/* a cursor is the last name there was, in base64url */

ngx_int_t
ngx_http_sandbox_files_page(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *after, size_t *limit)
{
    uint64_t   n;
    ngx_str_t  value;

    ngx_str_null(after);
    *limit = NGX_HTTP_SANDBOX_FILES_LIMIT;

    if (ngx_http_sandbox_argument(r, "limit", &value) == NGX_OK) {

        if (ngx_http_sandbox_decimal(&value, SANDBOX_STORE_MAX_LIST, &n)
            != NGX_OK
            || n == 0)
        {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "\"limit\" must be a number from 1 to "
                                    "1000.");
            return NGX_DECLINED;
        }

        *limit = (size_t) n;
    }

    if (ngx_http_sandbox_argument(r, "cursor", &value) != NGX_OK) {
        return NGX_OK;
    }

    if (value.len <= ngx_base64_encoded_length(SANDBOX_STORE_MAX_NAME)) {

        after->data = ngx_pnalloc(r->pool,
                                  ngx_base64_decoded_length(value.len) + 1);

        if (after->data && ngx_decode_base64url(after, &value) == NGX_OK
            && after->len)
        {
            return NGX_OK;
        }
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                            "\"cursor\" must be the \"next\" of an answer.");

    return NGX_DECLINED;
}


static void
ngx_http_sandbox_files_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    if (ngx_http_sandbox_files_render(r, ctx, op) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_send_answer(r, ctx));
}


static ngx_int_t
ngx_http_sandbox_files_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    size_t                  i, size;
    ngx_buf_t              *b;
    ngx_str_t               next, name;
    ngx_uint_t              ignored;
    sandbox_store_entry_t  *entry;

    entry = op->list.entries;
    size = sizeof("{\"attachments\":[],\"next\":\"\"}\n")
           + ngx_base64_encoded_length(SANDBOX_STORE_MAX_NAME);

    for (i = 0; i < op->list.n; i++) {
        size += 512 + ngx_http_sandbox_escape(NULL, (u_char *) entry[i].name,
                                              entry[i].name_len, &ignored)
                + 2 * entry[i].name_len;
    }

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"%s\":[",
                          op->kind == SANDBOX_STORE_ATTACHMENTS
                          ? "attachments" : "files");

    for (i = 0; i < op->list.n; i++) {

        if (i) {
            *b->last++ = ',';
        }

        b->last = ngx_http_sandbox_files_entry(b->last, &entry[i]);
    }

    b->last = ngx_cpymem(b->last, "],\"next\":", sizeof("],\"next\":") - 1);

    if (op->list.more && i) {
        name.data = (u_char *) entry[i - 1].name;
        name.len = entry[i - 1].name_len;

        *b->last++ = '"';
        next.data = b->last;
        ngx_encode_base64url(&next, &name);
        b->last += next.len;
        b->last = ngx_cpymem(b->last, "\"}\n", 3);

    } else {
        b->last = ngx_cpymem(b->last, "null}\n", 6);
    }

    return ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b);
}


u_char *
ngx_http_sandbox_files_entry(u_char *p, const sandbox_store_entry_t *entry)
{
    char        etag[SANDBOX_STORE_ETAG_TEXT + 1];
    ngx_str_t   name, base64;
    ngx_uint_t  stripped;
    unsigned    shown;

    stripped = 0;
    sandbox_store_etag(entry->sha256, etag);

    p = ngx_cpymem(p, "{\"name\":\"", sizeof("{\"name\":\"") - 1);
    p += ngx_http_sandbox_escape(p, (u_char *) entry->name, entry->name_len,
                                 &stripped);
    *p++ = '"';

    if (stripped) {
        name.data = (u_char *) entry->name;
        name.len = entry->name_len;

        p = ngx_cpymem(p, ",\"nameBase64\":\"",
                       sizeof(",\"nameBase64\":\"") - 1);
        base64.data = p;
        ngx_encode_base64(&base64, &name);
        p += base64.len;
        *p++ = '"';
    }

    /* the tag as headers have it, with its quotes */

    p = ngx_sprintf(p, ",\"size\":%uL,\"type\":\"%s\",\"etag\":\"\\\"%*s\\\"\""
                    ",\"createdAt\":", entry->size,
                    sandbox_store_type(entry->type, &shown),
                    (size_t) SANDBOX_STORE_ETAG_TEXT - 2, etag + 1);
    p = ngx_http_sandbox_time(p, entry->created_ms);

    p = ngx_cpymem(p, ",\"modifiedAt\":", sizeof(",\"modifiedAt\":") - 1);
    p = ngx_http_sandbox_time(p, entry->modified_ms);

    if (entry->command_len) {
        p = ngx_cpymem(p, ",\"commandId\":\"",
                       sizeof(",\"commandId\":\"") - 1);
        p += ngx_http_sandbox_escape(p, (u_char *) entry->command,
                                     entry->command_len, &stripped);
        *p++ = '"';
    }

    *p++ = '}';

    return p;
}


ngx_int_t
ngx_http_sandbox_files_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_buf_t  *b;
    ngx_str_t   etag;

    b = ngx_create_temp_buf(r->pool, NGX_HTTP_SANDBOX_FILES_ENTRY + 1);
    etag.data = ngx_pnalloc(r->pool, SANDBOX_STORE_ETAG_TEXT + 1);

    if (b == NULL || etag.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_http_sandbox_files_entry(b->last, &op->entry);
    *b->last++ = LF;

    sandbox_store_etag(op->entry.sha256, (char *) etag.data);
    etag.len = SANDBOX_STORE_ETAG_TEXT;

    if (ngx_http_sandbox_serve_header(r, "ETag", &etag) == NULL
        || (op->created
            && ngx_http_sandbox_files_location(r, ctx, op) != NGX_OK)
        || ngx_http_sandbox_render_buffer(r, ctx, op->created
                                                  ? NGX_HTTP_CREATED
                                                  : NGX_HTTP_OK, b)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_send_answer(r, ctx);
}


/* where it is now, under the name that it got */

ngx_int_t
ngx_http_sandbox_files_location(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    u_char                       *p;
    ngx_str_t                     value;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    value.data = ngx_pnalloc(r->pool, 3 * slcf->prefix.len + 64
                                      + ctx->conversation.len
                                      + 3 * op->entry.name_len);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    p = (u_char *) ngx_escape_uri(value.data, slcf->prefix.data,
                                  slcf->prefix.len, NGX_ESCAPE_URI);

    if (p[-1] != '/') {
        *p++ = '/';
    }

    p = ngx_sprintf(p, "v1/conversations/%V/%s/", &ctx->conversation,
                    op->kind == SANDBOX_STORE_ATTACHMENTS ? "attachments"
                    : op->kind == SANDBOX_STORE_SKILLS ? "skills" : "files");
    p = (u_char *) ngx_escape_uri(p, (u_char *) op->entry.name,
                                  op->entry.name_len,
                                  NGX_ESCAPE_URI_COMPONENT);
    value.len = p - value.data;

    return ngx_http_sandbox_serve_header(r, "Location", &value) ? NGX_OK
                                                                : NGX_ERROR;
}


/* what can't be a name is none of those that are there */

static ngx_int_t
ngx_http_sandbox_files_name(ngx_http_sandbox_ctx_t *ctx)
{
    const char  *wrong;

    wrong = sandbox_store_name_wrong((char *) ctx->name.data, ctx->name.len);

    if (wrong == NULL) {
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_name", wrong);

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_sandbox_files_get_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_store_op_t  *op;

    if (ngx_http_sandbox_files_name(ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    op = ngx_http_sandbox_files_start(r, ctx, ngx_http_sandbox_files_found,
                                      &rc);
    if (op == NULL) {
        return rc;
    }

    if (ngx_http_sandbox_store_lookup(op, &ctx->name, 1) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


static void
ngx_http_sandbox_files_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_serve(r, ctx, op));
}


ngx_int_t
ngx_http_sandbox_files_remove_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_store_op_t  *op;

    if (ngx_http_sandbox_files_name(ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    op = ngx_http_sandbox_files_start(r, ctx, ngx_http_sandbox_files_removed,
                                      &rc);
    if (op == NULL) {
        return rc;
    }

    ngx_http_sandbox_files_condition(r, &op->condition);

    if (ngx_http_sandbox_store_remove(op, &ctx->name) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


static void
ngx_http_sandbox_files_removed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    ctx->answer = NULL;
    ctx->answer_size = -1;
    ctx->answer_status = NGX_HTTP_NO_CONTENT;

    ngx_http_finalize_request(r, ngx_http_sandbox_send_answer(r, ctx));
}
