/*
 * load_skill: a skill of the library, or of the user, into the conversation,
 * and what it says of itself to the model.
 */

#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_skills.h"


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
    ngx_http_sandbox_mcp_words(&structured, "\",\"title\":");

    if (known->title_len) {
        ngx_http_sandbox_mcp_words(&structured, "\"");
        ngx_http_sandbox_mcp_escape(&structured, known->title,
                                    known->title_len);
        ngx_http_sandbox_mcp_words(&structured, "\"");

    } else {
        ngx_http_sandbox_mcp_words(&structured, "null");
    }

    ngx_http_sandbox_mcp_words(&structured, ",\"description\":");

    if (known->description_len) {
        ngx_http_sandbox_mcp_words(&structured, "\"");
        ngx_http_sandbox_mcp_escape(&structured, known->description,
                                    known->description_len);
        ngx_http_sandbox_mcp_words(&structured, "\"");

    } else {
        ngx_http_sandbox_mcp_words(&structured, "null");
    }

    ngx_http_sandbox_mcp_words(&structured, ",\"paths\":[");

    if (skill->reader->named) {
        ngx_http_sandbox_mcp_words(&structured, "\"");
        ngx_http_sandbox_mcp_paths(&structured, skill, "\",\"");
        ngx_http_sandbox_mcp_words(&structured, "\"");
    }

    ngx_http_sandbox_mcp_format(&structured, "],\"files\":%uL,\"bytes\":%uL,"
                                "\"loaded\":%s,\"truncated\":%s,"
                                "\"instructions\":", known->files,
                                known->bytes,
                                skill->op->created ? "true" : "false",
                                skill->text_size > skill->text.len
                                ? "true" : "false");

    if (skill->text.len) {
        ngx_http_sandbox_mcp_words(&structured, "\"");
        ngx_http_sandbox_mcp_escape(&structured, skill->text.data,
                                    skill->text.len);
        ngx_http_sandbox_mcp_words(&structured, "\"}");

    } else {
        ngx_http_sandbox_mcp_words(&structured, "null}");
    }

    return ngx_http_sandbox_mcp_content(r, ctx, &text, &structured);
}
