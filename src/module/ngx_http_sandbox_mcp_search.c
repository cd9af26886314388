/*
 * search_files: records of the agent in, matches out, as many as a model can
 * use; how many there were beyond those is told.
 */

#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_records.h"


#define NGX_HTTP_SANDBOX_MCP_MATCHES  100        /* if none are asked for */
#define NGX_HTTP_SANDBOX_MCP_RECORD   (SANDBOX_WIRE_MAX_PATH                 \
                                       + SANDBOX_WIRE_MAX_TEXT + 512)


struct ngx_http_sandbox_mcp_search_s {
    uint64_t                       limit;
    uint64_t                       count;
    uint64_t                       shown;
    ngx_http_sandbox_mcp_text_t    text;
    ngx_http_sandbox_mcp_text_t    matches;
    ngx_http_sandbox_records_t     records;
    u_char                         record[NGX_HTTP_SANDBOX_MCP_RECORD];
};


/* one record; what is not there has no length */

typedef struct {
    ngx_str_t                      name;
    ngx_str_t                      text;
    uint64_t                       line;
    uint64_t                       type;
    uint64_t                       size;
    unsigned                       matched:1;    /* it has a line */
    unsigned                       typed:1;
} ngx_http_sandbox_mcp_match_t;


static const char *ngx_http_sandbox_mcp_search_accepted(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_mcp_search_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static const char *ngx_http_sandbox_mcp_search_record(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_mcp_search_fields(
    ngx_http_sandbox_mcp_match_t *match, u_char *p, size_t n);
static void ngx_http_sandbox_mcp_search_name(
    ngx_http_sandbox_mcp_text_t *text, ngx_str_t *base, ngx_str_t *name);
static ngx_uint_t ngx_http_sandbox_mcp_search_more(
    ngx_http_sandbox_result_t *result);
static ngx_int_t ngx_http_sandbox_mcp_render_search(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


ngx_int_t
ngx_http_sandbox_mcp_search_files(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t                          i, size;
    json_t                         *arguments, *pattern, *globs, *value;
    ngx_int_t                       rc;
    sandbox_writer_t                w;
    ngx_http_sandbox_mcp_search_t  *search;

    arguments = ctx->mcp->arguments;

    search = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_mcp_search_t));
    if (search == NULL) {
        return NGX_ERROR;
    }

    ctx->mcp->search = search;

    value = json_object_get(arguments, "limit");
    search->limit = value ? (uint64_t) json_integer_value(value)
                          : NGX_HTTP_SANDBOX_MCP_MATCHES;

    ngx_http_sandbox_mcp_text(&search->text, r->pool);
    ngx_http_sandbox_mcp_text(&search->matches, r->pool);

    search->records.in.max = NGX_HTTP_SANDBOX_MCP_RECORD;
    search->records.in.data = search->record;

    pattern = json_object_get(arguments, "pattern");
    globs = json_object_get(arguments, "glob");

    size = json_string_length(pattern);

    json_array_foreach(globs, i, value) {
        size += SANDBOX_WIRE_FIELD_SIZE + json_string_length(value);
    }

    if (json_string_length(pattern) > SANDBOX_WIRE_MAX_PATTERN
        || size > SANDBOX_WIRE_MAX_HEAD / 2)
    {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_pattern",
                                "\"pattern\" may have at most 4096 bytes, and "
                                "\"glob\" not more than some of them.");
        return NGX_DECLINED;
    }

    rc = ngx_http_sandbox_mcp_file(r, ctx, &w, SANDBOX_OPERATION_FILE_SEARCH,
                                   size);
    if (rc != NGX_OK) {
        return rc;
    }

    if (pattern) {
        sandbox_write_bytes(&w, SANDBOX_TAG_PATTERN,
                            json_string_value(pattern),
                            json_string_length(pattern));
    }

    json_array_foreach(globs, i, value) {
        sandbox_write_bytes(&w, SANDBOX_TAG_GLOB, json_string_value(value),
                            json_string_length(value));
    }

    if (json_is_true(json_object_get(arguments, "literal"))) {
        sandbox_write_number(&w, SANDBOX_TAG_LITERAL, 1);
    }

    if (json_is_true(json_object_get(arguments, "ignoreCase"))) {
        sandbox_write_number(&w, SANDBOX_TAG_IGNORE_CASE, 1);
    }

    /* all that the agent gives, so that those left out can be counted */

    sandbox_write_number(&w, SANDBOX_TAG_LIMIT, SANDBOX_WIRE_MAX_LISTING);

    ctx->wire.accepted = ngx_http_sandbox_mcp_search_accepted;
    ctx->wire.data = ngx_http_sandbox_mcp_search_data;
    ctx->wire.render = ngx_http_sandbox_mcp_render_search;

    return ngx_http_sandbox_mcp_send(r, ctx, &w);
}


static const char *
ngx_http_sandbox_mcp_search_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return ctx->wire.result.number[SANDBOX_TAG_STATUS] == NGX_HTTP_OK
           ? NULL : "a search with a status that none has";
}


static const char *
ngx_http_sandbox_mcp_search_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    return ngx_http_sandbox_records_data(r, ctx, &ctx->mcp->search->records,
                                         ngx_http_sandbox_mcp_search_record,
                                         p, n);
}


static const char *
ngx_http_sandbox_mcp_search_record(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    const char                     *what;
    ngx_http_sandbox_mcp_text_t    *text, *matches;
    ngx_http_sandbox_mcp_match_t    match;
    ngx_http_sandbox_mcp_search_t  *search;

    search = ctx->mcp->search;

    if (search->count == SANDBOX_WIRE_MAX_LISTING) {
        return "more matches than it was asked for";
    }

    what = ngx_http_sandbox_mcp_search_fields(&match, search->record,
                                              search->records.in.size);
    if (what) {
        return what;
    }

    search->count++;

    text = &search->text;
    matches = &search->matches;

    if (search->shown == search->limit
        || text->len > NGX_HTTP_SANDBOX_MCP_TEXT)
    {
        return NULL;
    }

    ngx_http_sandbox_mcp_search_name(text, &ctx->mcp->shown, &match.name);

    if (match.matched) {
        ngx_http_sandbox_mcp_format(text, ":%uL:", match.line);
        ngx_http_sandbox_mcp_escape(text, match.text.data, match.text.len);
    }

    ngx_http_sandbox_mcp_words(text, "\\n");

    ngx_http_sandbox_mcp_format(matches, "%s{\"path\":\"",
                                search->shown ? "," : "");
    ngx_http_sandbox_mcp_search_name(matches, &ctx->mcp->shown, &match.name);

    if (match.matched) {
        ngx_http_sandbox_mcp_format(matches, "\",\"line\":%uL,\"text\":\"",
                                    match.line);
        ngx_http_sandbox_mcp_escape(matches, match.text.data,
                                    match.text.len);
        ngx_http_sandbox_mcp_words(matches, "\",");

    } else {
        ngx_http_sandbox_mcp_words(matches, "\",\"line\":null,"
                                   "\"text\":null,");
    }

    if (match.typed) {
        ngx_http_sandbox_mcp_format(matches, "\"type\":\"%s\","
                                    "\"size\":%uL}",
                                    sandbox_file_type_name(
                                                     (unsigned) match.type),
                                    match.size);

    } else {
        ngx_http_sandbox_mcp_words(matches, "\"type\":null,\"size\":null}");
    }

    search->shown++;

    return (text->failed || matches->failed) ? "there is no memory" : NULL;
}


static const char *
ngx_http_sandbox_mcp_search_fields(ngx_http_sandbox_mcp_match_t *match,
    u_char *p, size_t n)
{
    int               rc;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    ngx_memzero(match, sizeof(ngx_http_sandbox_mcp_match_t));

    sandbox_fields_init(&fields, p, n);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        switch (field.tag) {

        case SANDBOX_TAG_FILE_NAME:
            if (field.length >= SANDBOX_WIRE_MAX_PATH) {
                return "a match in a file whose path is too long";
            }

            match->name.data = (u_char *) field.data;
            match->name.len = field.length;
            break;

        case SANDBOX_TAG_TEXT:
            if (field.length > SANDBOX_WIRE_MAX_TEXT) {
                return "a match with too much text";
            }

            match->text.data = (u_char *) field.data;
            match->text.len = field.length;
            break;

        case SANDBOX_TAG_LINE:
            if (sandbox_field_number(&field, INT64_MAX, &match->line)
                != SANDBOX_OK)
            {
                return "a number out of its range";
            }

            match->matched = 1;
            break;

        case SANDBOX_TAG_FILE_TYPE:
            if (sandbox_field_number(&field, SANDBOX_FILE_LAST - 1,
                                     &match->type)
                != SANDBOX_OK)
            {
                return "a number out of its range";
            }

            match->typed = 1;
            break;

        case SANDBOX_TAG_FILE_SIZE:
            if (sandbox_field_number(&field, ((uint64_t) 1 << 53) - 1,
                                     &match->size)
                != SANDBOX_OK)
            {
                return "a number out of its range";
            }

            break;
        }
    }

    if (rc == SANDBOX_BAD || match->name.data == NULL) {
        return "a match in no file";
    }

    return NULL;
}


/* a path that read_file takes; of what is one file the name is empty */

static void
ngx_http_sandbox_mcp_search_name(ngx_http_sandbox_mcp_text_t *text,
    ngx_str_t *base, ngx_str_t *name)
{
    ngx_http_sandbox_mcp_escape(text, base->data, base->len);

    if (name->len) {

        if (base->len > 1) {
            ngx_http_sandbox_mcp_words(text, "/");
        }

        ngx_http_sandbox_mcp_escape(text, name->data, name->len);
    }
}


static ngx_uint_t
ngx_http_sandbox_mcp_search_more(ngx_http_sandbox_result_t *result)
{
    uint64_t          more;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, result->fields.data, result->fields.len);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag == SANDBOX_TAG_MORE
            && sandbox_field_number(&field, 1, &more) == SANDBOX_OK)
        {
            return (ngx_uint_t) more;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_mcp_render_search(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                        left;
    ngx_uint_t                      more;
    ngx_http_sandbox_mcp_text_t     text, structured;
    ngx_http_sandbox_mcp_search_t  *search;

    search = ctx->mcp->search;
    left = search->count - search->shown;
    more = ngx_http_sandbox_mcp_search_more(&ctx->wire.result);

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_OPEN);
    ngx_http_sandbox_mcp_put(&text, search->text.data, search->text.len);

    if (search->count == 0) {
        ngx_http_sandbox_mcp_words(&text, more ? "[nothing found before the "
                                                 "time was over]"
                                               : "[nothing found]");

    } else if (left || more) {
        ngx_http_sandbox_mcp_format(&text, "[%uL shown, %s%uL more left out: "
                                    "narrow path, pattern or glob, or raise "
                                    "limit]", search->shown,
                                    more ? "at least " : "",
                                    left + (left == 0));
    }

    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_CLOSE);

    ngx_http_sandbox_mcp_text(&structured, r->pool);
    ngx_http_sandbox_mcp_words(&structured, "{\"path\":\"");
    ngx_http_sandbox_mcp_escape(&structured, ctx->mcp->shown.data,
                                ctx->mcp->shown.len);
    ngx_http_sandbox_mcp_words(&structured, "\",\"matches\":[");
    ngx_http_sandbox_mcp_put(&structured, search->matches.data,
                             search->matches.len);
    ngx_http_sandbox_mcp_format(&structured, "],\"shown\":%uL,"
                                "\"leftOut\":%uL,\"more\":%s}",
                                search->shown, left, more ? "true"
                                                          : "false");

    return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
}
