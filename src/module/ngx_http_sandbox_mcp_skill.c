/*
 * load_skill: a skill of the library, or of the user, into the conversation,
 * and what it says of itself to the model; without a name which there are.
 */

#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_skills.h"


#define NGX_HTTP_SANDBOX_MCP_SKILLS  100         /* of each kind, in a list */


/* what the conversation has; what the library has is in skill->list */

typedef struct {
    ngx_http_sandbox_skill_t      *skill;
    sandbox_store_skills_t         own;
} ngx_http_sandbox_mcp_skills_t;


static ngx_int_t ngx_http_sandbox_mcp_list_skills(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_mcp_skills_free(void *data);
static void ngx_http_sandbox_mcp_skills_thread(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_mcp_skills_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_uint_t ngx_http_sandbox_mcp_owned(sandbox_store_skills_t *own,
    sandbox_store_skill_t *one);
static void ngx_http_sandbox_mcp_told(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_mcp_text_t *list, sandbox_store_skill_t *one,
    ngx_uint_t loaded);
static void ngx_http_sandbox_mcp_words_or_null(
    ngx_http_sandbox_mcp_text_t *text, const char *name, const void *p,
    size_t n);
static void ngx_http_sandbox_mcp_loaded(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);
static void ngx_http_sandbox_mcp_paths(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_skill_t *skill, const char *between);
static ngx_int_t ngx_http_sandbox_mcp_render_skill(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);


ngx_int_t
ngx_http_sandbox_mcp_load_skill(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t     *value;
    ngx_str_t  *name;

    value = json_object_get(ctx->mcp->arguments, "name");

    if (value == NULL) {
        return ngx_http_sandbox_mcp_list_skills(r, ctx);
    }

    name = &ctx->mcp->shown;
    name->data = (u_char *) json_string_value(value);
    name->len = json_string_length(value);

    if (ngx_http_sandbox_skill_load(r, ctx, name, SANDBOX_STORE_SKILL_ANY,
                                    ngx_http_sandbox_mcp_loaded, NULL)
        == NULL)
    {
        return ctx->problem.status ? NGX_DECLINED : NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_mcp_loaded(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill)
{
    ngx_int_t  rc;

    if (ctx->problem.status) {
        rc = ngx_http_sandbox_send_problem(r, ctx);

    } else if (ngx_http_sandbox_mcp_render_skill(r, ctx, skill) == NGX_OK) {
        rc = ngx_http_sandbox_send_answer(r, ctx);

    } else {
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_finalize_request(r, rc);
}


static void
ngx_http_sandbox_mcp_paths(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_skill_t *skill, const char *between)
{
    size_t       n;
    const char  *p, *last;

    p = skill->reader->names;
    last = p + skill->reader->names_len;

    while (p < last) {
        n = ngx_strlen(p);
        ngx_http_sandbox_mcp_escape(text, p, n);
        p += n + 1;

        if (p < last) {
            ngx_http_sandbox_mcp_words(text, between);
        }
    }
}


static ngx_int_t
ngx_http_sandbox_mcp_render_skill(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill)
{
    ngx_str_t                    *name;
    sandbox_skill_t              *known;
    ngx_http_sandbox_mcp_text_t   text, structured;

    name = &ctx->mcp->shown;
    known = skill->skill;

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_OPEN
                               "[the skill is in /skills/");
    ngx_http_sandbox_mcp_escape(&text, name->data, name->len);
    ngx_http_sandbox_mcp_format(&text, ", %uL files, from the next command "
                                "on; its Python modules can be imported as "
                                "they are]\\n\\n", known->files);
    ngx_http_sandbox_mcp_escape(&text, skill->text.data, skill->text.len);

    if (skill->text.len == 0) {
        ngx_http_sandbox_mcp_words(&text, "[it has no SKILL.md]");

    } else if (skill->text_size > skill->text.len) {
        ngx_http_sandbox_mcp_format(&text, "\\n[%uL bytes more: read_file "
                                    "SKILL.md in that folder]",
                                    skill->text_size - skill->text.len);
    }

    ngx_http_sandbox_mcp_words(&text, "\\n\\n[files: ");
    ngx_http_sandbox_mcp_paths(&text, skill, ", ");

    if (known->files > skill->reader->named) {
        ngx_http_sandbox_mcp_format(&text, ", and %uL more",
                                    known->files - skill->reader->named);
    }

    ngx_http_sandbox_mcp_words(&text, "]" NGX_HTTP_SANDBOX_MCP_CLOSE);

    ngx_http_sandbox_mcp_text(&structured, r->pool);
    ngx_http_sandbox_mcp_words(&structured, "{\"name\":\"");
    ngx_http_sandbox_mcp_escape(&structured, name->data, name->len);
    ngx_http_sandbox_mcp_words(&structured, "\",\"path\":\"/skills/");
    ngx_http_sandbox_mcp_escape(&structured, name->data, name->len);
    ngx_http_sandbox_mcp_words(&structured, "\"");
    ngx_http_sandbox_mcp_words_or_null(&structured, "title", known->title,
                                       known->title_len);
    ngx_http_sandbox_mcp_words_or_null(&structured, "description",
                                       known->description,
                                       known->description_len);

    ngx_http_sandbox_mcp_words(&structured, ",\"paths\":[");

    if (skill->reader->named) {
        ngx_http_sandbox_mcp_words(&structured, "\"");
        ngx_http_sandbox_mcp_paths(&structured, skill, "\",\"");
        ngx_http_sandbox_mcp_words(&structured, "\"");
    }

    ngx_http_sandbox_mcp_format(&structured, "],\"files\":%uL,\"bytes\":%uL,"
                                "\"loaded\":%s,\"truncated\":%s",
                                known->files, known->bytes,
                                skill->op->created ? "true" : "false",
                                skill->text_size > skill->text.len
                                ? "true" : "false");
    ngx_http_sandbox_mcp_words_or_null(&structured, "instructions",
                                       skill->text.data, skill->text.len);
    ngx_http_sandbox_mcp_words(&structured, "}");

    return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
}


static ngx_int_t
ngx_http_sandbox_mcp_list_skills(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_pool_cleanup_t             *cln;
    ngx_http_sandbox_store_op_t    *op;
    ngx_http_sandbox_mcp_skills_t  *skills;

    op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_SKILLS,
                                   ngx_http_sandbox_mcp_skills_listed);
    cln = ngx_pool_cleanup_add(r->pool,
                               sizeof(ngx_http_sandbox_mcp_skills_t));

    if (op == NULL || cln == NULL) {
        return NGX_ERROR;
    }

    skills = cln->data;
    ngx_memzero(skills, sizeof(ngx_http_sandbox_mcp_skills_t));
    cln->handler = ngx_http_sandbox_mcp_skills_free;

    skills->skill = ngx_http_sandbox_skill_create(r, op);
    if (skills->skill == NULL) {
        return NGX_ERROR;
    }

    op->data = skills;

    return ngx_http_sandbox_store_look(op, ngx_http_sandbox_mcp_skills_thread)
           == NGX_OK ? NGX_OK : NGX_DECLINED;
}


static void
ngx_http_sandbox_mcp_skills_free(void *data)
{
    ngx_http_sandbox_mcp_skills_t *skills = data;

    sandbox_store_skills_free(&skills->own);
}


static void
ngx_http_sandbox_mcp_skills_thread(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_mcp_skills_t *skills = op->data;

    ngx_http_sandbox_skill_t  *skill;

    skill = skills->skill;

    if (sandbox_store_skill_list(&op->place, "", 0,
                                 NGX_HTTP_SANDBOX_MCP_SKILLS, &skills->own,
                                 &op->fault)
        != SANDBOX_STORE_OK
        || skill->library.len == 0)
    {
        return;
    }

    (void) sandbox_store_library_list((char *) skill->library.data, "", 0,
                                      NGX_HTTP_SANDBOX_MCP_SKILLS,
                                      &skill->list, &op->fault);
}


static void
ngx_http_sandbox_mcp_skills_listed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_mcp_skills_t *skills = op->data;

    size_t                        i;
    ngx_int_t                     rc;
    sandbox_store_skills_t       *library;
    ngx_http_sandbox_mcp_text_t   text, list;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_skill_problem(r, ctx, skills->skill);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    library = &skills->skill->list;

    ngx_http_sandbox_mcp_text(&text, r->pool);
    ngx_http_sandbox_mcp_text(&list, r->pool);
    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_OPEN);

    for (i = 0; i < skills->own.n; i++) {
        ngx_http_sandbox_mcp_told(&text, &list, &skills->own.skills[i], 1);
    }

    for (i = 0; i < library->n; i++) {
        if (!ngx_http_sandbox_mcp_owned(&skills->own, &library->skills[i])) {
            ngx_http_sandbox_mcp_told(&text, &list, &library->skills[i], 0);
        }
    }

    if (list.len == 0) {
        ngx_http_sandbox_mcp_words(&text, "[there are no skills]");

    } else if (skills->own.more || library->more) {
        ngx_http_sandbox_mcp_words(&text, "[and others]");
    }

    ngx_http_sandbox_mcp_words(&text, NGX_HTTP_SANDBOX_MCP_CLOSE);
    ngx_http_sandbox_mcp_words(&list, "]}");

    if (list.len == 2) {
        list.len = 0;
        ngx_http_sandbox_mcp_words(&list, "{\"skills\":[]}");
    }

    rc = ngx_http_sandbox_mcp_content(r, ctx, &text, &list) == NGX_OK
         ? ngx_http_sandbox_send_answer(r, ctx)
         : NGX_HTTP_INTERNAL_SERVER_ERROR;

    ngx_http_finalize_request(r, rc);
}


static ngx_uint_t
ngx_http_sandbox_mcp_owned(sandbox_store_skills_t *own,
    sandbox_store_skill_t *one)
{
    size_t  i;

    for (i = 0; i < own->n; i++) {
        if (own->skills[i].name_len == one->name_len
            && ngx_memcmp(own->skills[i].name, one->name, one->name_len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_sandbox_mcp_told(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_mcp_text_t *list, sandbox_store_skill_t *one,
    ngx_uint_t loaded)
{
    ngx_http_sandbox_mcp_escape(text, one->name, one->name_len);

    if (one->skill.description_len) {
        ngx_http_sandbox_mcp_words(text, ": ");
        ngx_http_sandbox_mcp_escape(text, one->skill.description,
                                    one->skill.description_len);
    }

    ngx_http_sandbox_mcp_words(text, loaded ? " [loaded]\\n" : "\\n");

    ngx_http_sandbox_mcp_words(list, list->len ? ",{\"name\":\""
                                               : "{\"skills\":["
                                                 "{\"name\":\"");
    ngx_http_sandbox_mcp_escape(list, one->name, one->name_len);
    ngx_http_sandbox_mcp_words(list, "\"");
    ngx_http_sandbox_mcp_words_or_null(list, "title", one->skill.title,
                                       one->skill.title_len);
    ngx_http_sandbox_mcp_words_or_null(list, "description",
                                       one->skill.description,
                                       one->skill.description_len);
    ngx_http_sandbox_mcp_format(list, ",\"loaded\":%s}",
                                loaded ? "true" : "false");
}


static void
ngx_http_sandbox_mcp_words_or_null(ngx_http_sandbox_mcp_text_t *text,
    const char *name, const void *p, size_t n)
{
    ngx_http_sandbox_mcp_format(text, ",\"%s\":", name);

    if (n == 0) {
        ngx_http_sandbox_mcp_words(text, "null");
        return;
    }

    ngx_http_sandbox_mcp_words(text, "\"");
    ngx_http_sandbox_mcp_escape(text, p, n);
    ngx_http_sandbox_mcp_words(text, "\"");
}
