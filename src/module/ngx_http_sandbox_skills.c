/*
 * Skills over HTTP: the list of a conversation's, and of what the library
 * offers; loading, downloads, removal; how a skill is told in JSON.  A PUT is
 * an upload like others until all of it is there.
 */

#include "ngx_http_sandbox_skills.h"


#define NGX_HTTP_SANDBOX_SKILLS_BODY   (64 * 1024)   /* of the JSON */


static ngx_int_t ngx_http_sandbox_skills_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *name);
static void ngx_http_sandbox_skills_added(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);
static ngx_http_sandbox_skill_t *ngx_http_sandbox_skills_start(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_store_pt handler, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_skills_name(ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_skills_library(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_skills_list_thread(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_skills_library_thread(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_skills_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_skills_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);
static size_t ngx_http_sandbox_skills_size(sandbox_skill_t *skill);
static u_char *ngx_http_sandbox_skills_entry(u_char *p,
    sandbox_store_skill_t *skill, ngx_uint_t kept);
static u_char *ngx_http_sandbox_skills_notes(u_char *p, ngx_str_t *name,
    sandbox_skill_t *skill);
static void ngx_http_sandbox_skills_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_skills_removed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);


ngx_int_t
ngx_http_sandbox_skills_add_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    return ngx_http_sandbox_body_handler(r, ctx);
}


void
ngx_http_sandbox_skills_add(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                  rc;
    ngx_str_t                  name;
    ngx_http_sandbox_skill_t  *skill;

    rc = ngx_http_sandbox_skills_parse(r, ctx, &name);

    if (rc == NGX_OK) {

        skill = ngx_http_sandbox_skill_load(r, ctx, &name,
                                            SANDBOX_STORE_SKILL_ONLY_LIBRARY,
                                            ngx_http_sandbox_skills_added,
                                            NULL);
        if (skill) {
            return;
        }
    }

    if (rc == NGX_ERROR) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
}


static ngx_int_t
ngx_http_sandbox_skills_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *name)
{
    json_t  *root, *value;

    if (ctx->body.size > NGX_HTTP_SANDBOX_SKILLS_BODY) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                "body_too_large",
                                "The body may have at most 65536 bytes.");
        return NGX_DECLINED;
    }

    root = ngx_http_sandbox_request_load(r, ctx);
    if (root == NULL) {
        return NGX_DECLINED;
    }

    value = json_object_get(root, "name");

    if (!json_is_string(value)) {
        json_decref(root);
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "The body must be a JSON object with "
                                "\"name\": that of a skill of the library.");
        return NGX_DECLINED;
    }

    if (json_object_size(root) != 1) {
        json_decref(root);
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "unknown_field",
                                "The only field that there is: \"name\".");
        return NGX_DECLINED;
    }

    name->len = json_string_length(value);
    name->data = ngx_pnalloc(r->pool, name->len + 1);

    if (name->data) {
        ngx_memcpy(name->data, json_string_value(value), name->len);
    }

    json_decref(root);

    return name->data ? NGX_OK : NGX_ERROR;
}


static void
ngx_http_sandbox_skills_added(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill)
{
    ngx_http_finalize_request(r, ctx->problem.status
                                 ? ngx_http_sandbox_send_problem(r, ctx)
                                 : ngx_http_sandbox_skills_answer(r, ctx,
                                                                  skill));
}


/* NULL: *rc is what the content handler is to return */

static ngx_http_sandbox_skill_t *
ngx_http_sandbox_skills_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_pt handler,
    ngx_int_t *rc)
{
    ngx_http_sandbox_store_op_t  *op;

    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK) {
        *rc = ngx_http_sandbox_send_problem(r, ctx);
        return NULL;
    }

    *rc = ngx_http_discard_request_body(r);

    if (*rc != NGX_OK) {
        return NULL;
    }

    *rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_SKILLS, handler);

    return op ? ngx_http_sandbox_skill_create(r, op) : NULL;
}


static ngx_int_t
ngx_http_sandbox_skills_name(ngx_http_sandbox_ctx_t *ctx)
{
    const char  *wrong;

    wrong = sandbox_skill_name_wrong((char *) ctx->name.data, ctx->name.len);

    if (wrong == NULL) {
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_name", wrong);

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_sandbox_skills_list_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t                     limit;
    ngx_int_t                  rc;
    ngx_str_t                  after;
    ngx_uint_t                 library;
    ngx_http_sandbox_skill_t  *skill;

    if (ngx_http_sandbox_files_page(r, ctx, &after, &limit) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    rc = ngx_http_sandbox_skills_library(r, ctx);

    if (rc == NGX_DECLINED) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    library = (rc == NGX_OK);

    skill = ngx_http_sandbox_skills_start(r, ctx,
                                          ngx_http_sandbox_skills_listed,
                                          &rc);
    if (skill == NULL) {
        return rc;
    }

    skill->mode = library;
    skill->op->name = after;
    skill->op->limit = limit;

    if (ngx_http_sandbox_store_look(skill->op,
                                    library
                                    ? ngx_http_sandbox_skills_library_thread
                                    : ngx_http_sandbox_skills_list_thread)
        != NGX_OK)
    {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


/* NGX_OK: it is asked for; NGX_DONE: it is not; NGX_DECLINED: what? */

static ngx_int_t
ngx_http_sandbox_skills_library(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t  value;

    if (ngx_http_sandbox_argument(r, "library", &value) != NGX_OK
        || (value.len == 1 && value.data[0] == '0'))
    {
        return NGX_DONE;
    }

    if (value.len == 1 && value.data[0] == '1') {
        return NGX_OK;
    }

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                            "\"library\" must be 1, for what the library "
                            "offers, or 0.");

    return NGX_DECLINED;
}


static void
ngx_http_sandbox_skills_list_thread(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_skill_t *skill = op->data;

    (void) sandbox_store_skill_list(&op->place, (char *) op->name.data,
                                    op->name.len, op->limit, &skill->list,
                                    &op->fault);
}


static void
ngx_http_sandbox_skills_library_thread(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_skill_t *skill = op->data;

    if (skill->library.len == 0) {
        op->fault.status = SANDBOX_STORE_OK;
        return;
    }

    (void) sandbox_store_library_list((char *) skill->library.data,
                                      (char *) op->name.data, op->name.len,
                                      op->limit, &skill->list, &op->fault);
}


static void
ngx_http_sandbox_skills_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_skill_t *skill = op->data;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_skill_problem(r, ctx, skill);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    if (ngx_http_sandbox_skills_render(r, ctx, skill) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_send_answer(r, ctx));
}


static ngx_int_t
ngx_http_sandbox_skills_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill)
{
    size_t                   i, size;
    ngx_buf_t               *b;
    ngx_str_t                next, name;
    sandbox_store_skills_t  *list;

    list = &skill->list;
    size = sizeof("{\"skills\":[],\"next\":\"\"}\n")
           + ngx_base64_encoded_length(SANDBOX_SKILL_MAX_NAME);

    for (i = 0; i < list->n; i++) {
        size += 1 + ngx_http_sandbox_skills_size(&list->skills[i].skill);
    }

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_cpymem(b->last, "{\"skills\":[", sizeof("{\"skills\":[") - 1);

    for (i = 0; i < list->n; i++) {

        if (i) {
            *b->last++ = ',';
        }

        b->last = ngx_http_sandbox_skills_entry(b->last, &list->skills[i],
                                                !skill->mode);
    }

    b->last = ngx_cpymem(b->last, "],\"next\":", sizeof("],\"next\":") - 1);

    if (list->more && i) {
        name.data = (u_char *) list->skills[i - 1].name;
        name.len = list->skills[i - 1].name_len;

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


/* the most room for one */

static size_t
ngx_http_sandbox_skills_size(sandbox_skill_t *skill)
{
    size_t      size;
    ngx_uint_t  i, ignored;

    size = 1024 + SANDBOX_SKILL_MAX_NAME
           + ngx_http_sandbox_escape(NULL, (u_char *) skill->title,
                                     skill->title_len, &ignored)
           + ngx_http_sandbox_escape(NULL, (u_char *) skill->description,
                                     skill->description_len, &ignored);

    for (i = 0; i < skill->paths; i++) {
        size += 64 + 6 * (skill->path[i].len + NGX_HTTP_SANDBOX_SKILL_DETAIL);
    }

    return size;
}


static u_char *
ngx_http_sandbox_skills_entry(u_char *p, sandbox_store_skill_t *one,
    ngx_uint_t kept)
{
    char              etag[SANDBOX_STORE_ETAG_TEXT + 1];
    ngx_str_t         name;
    ngx_uint_t        ignored;
    sandbox_skill_t  *skill;

    skill = &one->skill;
    name.data = (u_char *) one->name;
    name.len = one->name_len;

    p = ngx_sprintf(p, "{\"name\":\"%V\",\"size\":%uL"
                    ",\"type\":\"application/x-tar\"", &name, one->size);

    if (kept) {
        sandbox_store_etag(one->entry.sha256, etag);
        p = ngx_sprintf(p, ",\"etag\":\"\\\"%*s\\\"\",\"createdAt\":",
                        (size_t) SANDBOX_STORE_ETAG_TEXT - 2, etag + 1);
        p = ngx_http_sandbox_time(p, one->entry.created_ms);
    }

    p = ngx_sprintf(p, ",\"modifiedAt\":");
    p = ngx_http_sandbox_time(p, one->modified_ms);

    p = ngx_sprintf(p, ",\"source\":\"%s\"",
                    skill->source == SANDBOX_SKILL_LIBRARY ? "library"
                                                           : "upload");

    if (kept) {
        p = ngx_sprintf(p, ",\"files\":%uL,\"unpackedBytes\":%uL",
                        skill->files, skill->bytes);
    }

    if (skill->title_len || skill->description_len) {
        p = ngx_sprintf(p, ",\"manifest\":{\"name\":\"");
        p += ngx_http_sandbox_escape(p, (u_char *) skill->title,
                                     skill->title_len, &ignored);
        p = ngx_sprintf(p, "\",\"description\":\"");
        p += ngx_http_sandbox_escape(p, (u_char *) skill->description,
                                     skill->description_len, &ignored);
        p = ngx_sprintf(p, "\"}");

    } else {
        p = ngx_sprintf(p, ",\"manifest\":null");
    }

    if (kept) {
        p = ngx_http_sandbox_skills_notes(p, &name, skill);
    }

    *p++ = '}';

    return p;
}


static u_char *
ngx_http_sandbox_skills_notes(u_char *p, ngx_str_t *name,
    sandbox_skill_t *skill)
{
    u_char      detail[NGX_HTTP_SANDBOX_SKILL_DETAIL];
    size_t      len;
    ngx_uint_t  i, n, ignored;

    p = ngx_sprintf(p, ",\"notes\":[");
    n = 0;

    if (skill->inner) {
        n++;
        p = ngx_sprintf(p, "{\"code\":\"one_folder\",\"detail\":\"All of it is "
                        "in one folder of the tar, so it is below "
                        "/skills/%V/ with that folder's name, and its modules "
                        "can't be imported by their own names: pack what is "
                        "in the folder instead.\"}", name);
    }

    for (i = 0; i < skill->paths; i++) {
        p = ngx_sprintf(p, "%s{\"code\":\"requirements\",\"path\":\"",
                        n++ ? "," : "");
        p += ngx_http_sandbox_escape(p, (u_char *) skill->path[i].data,
                                     skill->path[i].len, &ignored);
        p = ngx_sprintf(p, "\",\"detail\":\"");
        len = ngx_http_sandbox_skills_required(detail, name, skill, i);
        p += ngx_http_sandbox_escape(p, detail, len, &ignored);
        p = ngx_sprintf(p, "\"}");
    }

    *p++ = ']';

    return p;
}


size_t
ngx_http_sandbox_skills_required(u_char *p, ngx_str_t *name,
    sandbox_skill_t *skill, ngx_uint_t i)
{
    u_char     *last;
    ngx_str_t   path;

    path.data = (u_char *) skill->path[i].data;
    path.len = skill->path[i].len;

    last = ngx_sprintf(p, "The packages of its %V are not installed with it: "
                       "\"uv add -r /skills/%V/%V\" does it, where the network "
                       "allows it.", &path, name, &path);

    if (i + 1 == SANDBOX_SKILL_PATHS && skill->required > i + 1) {
        last = ngx_sprintf(last, " There are %ui more of them.",
                           (ngx_uint_t) skill->required - i - 1);
    }

    return last - p;
}


ngx_int_t
ngx_http_sandbox_skills_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill)
{
    ngx_buf_t                    *b;
    ngx_str_t                     etag;
    sandbox_store_skill_t         one;
    ngx_http_sandbox_store_op_t  *op;

    op = skill->op;

    one.entry = op->entry;
    one.size = op->entry.size;
    one.modified_ms = op->entry.modified_ms;
    one.name_len = op->entry.name_len;
    ngx_memcpy(one.name, op->entry.name, one.name_len);
    one.skill = *skill->skill;

    b = ngx_create_temp_buf(r->pool,
                            ngx_http_sandbox_skills_size(&one.skill) + 1);
    etag.data = ngx_pnalloc(r->pool, SANDBOX_STORE_ETAG_TEXT + 1);

    if (b == NULL || etag.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_http_sandbox_skills_entry(b->last, &one, 1);
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


ngx_int_t
ngx_http_sandbox_skills_get_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                  rc;
    ngx_http_sandbox_skill_t  *skill;

    if (ngx_http_sandbox_skills_name(ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    skill = ngx_http_sandbox_skills_start(r, ctx,
                                          ngx_http_sandbox_skills_found, &rc);
    if (skill == NULL) {
        return rc;
    }

    if (ngx_http_sandbox_store_lookup(skill->op, &ctx->name, 1) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


/* a file on the other side has its ending */

static void
ngx_http_sandbox_skills_found(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    sandbox_store_entry_t  *entry;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_skill_problem(r, ctx, op->data);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    entry = &op->entry;
    entry->type = SANDBOX_STORE_TYPE_TAR;

    if (entry->name_len <= SANDBOX_SKILL_MAX_NAME) {
        ngx_memcpy(entry->name + entry->name_len, ".tar", 4);
        entry->name_len += 4;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_serve(r, ctx, op));
}


ngx_int_t
ngx_http_sandbox_skills_remove_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                  rc;
    ngx_http_sandbox_skill_t  *skill;

    if (ngx_http_sandbox_skills_name(ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    skill = ngx_http_sandbox_skills_start(r, ctx,
                                          ngx_http_sandbox_skills_removed,
                                          &rc);
    if (skill == NULL) {
        return rc;
    }

    ngx_http_sandbox_files_condition(r, &skill->op->condition);

    if (ngx_http_sandbox_store_remove(skill->op, &ctx->name) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


static void
ngx_http_sandbox_skills_removed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_skill_problem(r, ctx, op->data);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    ctx->answer = NULL;
    ctx->answer_size = -1;
    ctx->answer_status = NGX_HTTP_NO_CONTENT;

    ngx_http_finalize_request(r, ngx_http_sandbox_send_answer(r, ctx));
}
