/*
 * Listings of the container's folders: records of fields, cut anywhere, that
 * leave as one JSON array.  Their order is the agent's.
 */

#include "ngx_http_sandbox_fs.h"
#include "ngx_http_sandbox_records.h"


#define NGX_HTTP_SANDBOX_LISTING_LIMIT  100      /* if none is asked for */

/* a thousand of the longest links there can be */

#define NGX_HTTP_SANDBOX_LISTING_SIZE   (32 * 1024 * 1024)


struct ngx_http_sandbox_listing_s {
    uint64_t                       count;
    ngx_http_sandbox_records_t     records;
    u_char                         record[NGX_HTTP_SANDBOX_FS_RECORD];
};


static const char *ngx_http_sandbox_listing_record(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* a cursor is the last name there was, in base64url */

ngx_int_t
ngx_http_sandbox_listing_ask(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w)
{
    u_char     name[SANDBOX_WIRE_MAX_NAME + 4];
    uint64_t   limit;
    ngx_str_t  value, after;

    limit = NGX_HTTP_SANDBOX_LISTING_LIMIT;

    if (ngx_http_sandbox_argument(r, "limit", &value) == NGX_OK
        && (ngx_http_sandbox_decimal(&value, SANDBOX_WIRE_MAX_LISTING, &limit)
            != NGX_OK
            || limit == 0))
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"limit\" must be a number from 1 to 1000.");
        return NGX_DECLINED;
    }

    sandbox_write_number(w, SANDBOX_TAG_LIMIT, limit);

    if (ngx_http_sandbox_argument(r, "cursor", &value) != NGX_OK) {
        return NGX_OK;
    }

    after.data = name;

    if (value.len > ngx_base64_encoded_length(SANDBOX_WIRE_MAX_NAME)
        || ngx_decode_base64url(&after, &value) != NGX_OK
        || after.len == 0 || after.len > SANDBOX_WIRE_MAX_NAME)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"cursor\" must be the \"next\" of an "
                                "answer.");
        return NGX_DECLINED;
    }

    sandbox_write_bytes(w, SANDBOX_TAG_CURSOR, after.data, after.len);

    return NGX_OK;
}


ngx_http_sandbox_listing_t *
ngx_http_sandbox_listing_begin(ngx_http_request_t *r)
{
    ngx_http_sandbox_listing_t  *listing;

    listing = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_listing_t));
    if (listing == NULL) {
        return NULL;
    }

    listing->records.in.max = NGX_HTTP_SANDBOX_FS_RECORD;
    listing->records.limit = NGX_HTTP_SANDBOX_LISTING_SIZE;
    listing->records.opening = "{\"entries\":[";
    listing->records.in.data = listing->record;

    return listing;
}


const char *
ngx_http_sandbox_listing_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    return ngx_http_sandbox_records_data(r, ctx, &ctx->fs->listing->records,
                                         ngx_http_sandbox_listing_record,
                                         p, n);
}


static const char *
ngx_http_sandbox_listing_record(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                      *p;
    ngx_buf_t                   *b;
    ngx_uint_t                   mode;
    const char                  *what;
    ngx_http_sandbox_result_t    result;
    ngx_http_sandbox_listing_t  *listing;

    listing = ctx->fs->listing;

    if (listing->count == SANDBOX_WIRE_MAX_LISTING) {
        return "more names than it was asked for";
    }

    ngx_memzero(&result, sizeof(ngx_http_sandbox_result_t));

    what = ngx_http_sandbox_result_read(&result, listing->record,
                                        listing->records.in.size);
    if (what) {
        return what;
    }

    if (result.file_name.len == 0 || !result.seen[SANDBOX_TAG_FILE_TYPE]) {
        return "a file without a name or a type";
    }

    /* six bytes for each that is escaped, and base64 beside it */

    b = ngx_http_sandbox_records_room(r, &listing->records,
                                      512 + 8 * result.file_name.len
                                      + 8 * result.target.len);
    if (b == NULL) {
        return "more names than there is room for";
    }

    p = b->last;

    if (listing->count++) {
        *p++ = ',';
    }

    *p++ = '{';
    p = ngx_http_sandbox_listing_bytes(p, "name", &result.file_name);
    mode = (ngx_uint_t) result.number[SANDBOX_TAG_FILE_MODE];

    p = ngx_sprintf(p, ",\"type\":\"%s\",\"size\":%uL,"
                    "\"mode\":\"%ui%ui%ui%ui\",\"modifiedAt\":",
                    sandbox_file_type_name(
                        (unsigned) result.number[SANDBOX_TAG_FILE_TYPE]),
                    result.number[SANDBOX_TAG_FILE_SIZE], mode >> 9 & 7,
                    mode >> 6 & 7, mode >> 3 & 7, mode & 7);
    p = ngx_http_sandbox_time(p, result.number[SANDBOX_TAG_MODIFIED_NS]
                                 / 1000000);

    if (result.target.len) {
        *p++ = ',';
        p = ngx_http_sandbox_listing_bytes(p, "target", &result.target);
    }

    *p++ = '}';

    b->last = p;

    return NULL;
}


/* a name that is not UTF-8 comes once more, as it is */

u_char *
ngx_http_sandbox_listing_bytes(u_char *p, const char *name, ngx_str_t *text)
{
    ngx_str_t   base64;
    ngx_uint_t  stripped;

    stripped = 0;

    p = ngx_sprintf(p, "\"%s\":\"", name);
    p += ngx_http_sandbox_escape(p, text->data, text->len, &stripped);
    *p++ = '"';

    if (stripped) {
        p = ngx_sprintf(p, ",\"%sBase64\":\"", name);
        base64.data = p;
        ngx_encode_base64(&base64, text);
        p += base64.len;
        *p++ = '"';
    }

    return p;
}


ngx_int_t
ngx_http_sandbox_listing_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_listing_t *listing)
{
    ngx_buf_t    *b;
    ngx_str_t     next, *name;
    ngx_chain_t  *cl;

    name = &ctx->wire.result.next_name;

    b = ngx_http_sandbox_records_room(r, &listing->records, 1024);
    if (b == NULL) {
        return NGX_ERROR;
    }

    if (name->len) {
        b->last = ngx_sprintf(b->last, "],\"next\":\"");
        next.data = b->last;
        ngx_encode_base64url(&next, name);
        b->last += next.len;
        b->last = ngx_sprintf(b->last, "\"}\n");

    } else {
        b->last = ngx_sprintf(b->last, "],\"next\":null}\n");
    }

    if (ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->answer = listing->records.out;
    ctx->answer_size = 0;

    for (cl = listing->records.out; cl; cl = cl->next) {
        ctx->answer_size += cl->buf->last - cl->buf->pos;
    }

    return NGX_OK;
}
