/*
 * Skills of a conversation: from the administrator's library ("sandbox_skills")
 * or uploaded as a plain tar, kept in the store beside attachments.
 *
 * For others, the tool load_skill of MCP among them:
 *
 *     skill = ngx_http_sandbox_skill_load(r, ctx, &name,
 *                                         SANDBOX_STORE_SKILL_ANY, handler,
 *                                         data);
 * puts the skill of that name into ctx->conversation, where the next command
 * stages it, and calls the handler with the text of its SKILL.md.
 */

#ifndef _NGX_HTTP_SANDBOX_SKILLS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_SKILLS_H_INCLUDED_


#include "ngx_http_sandbox_store.h"
#include "sandbox_store_skill.h"


typedef struct ngx_http_sandbox_skill_s  ngx_http_sandbox_skill_t;

typedef void (*ngx_http_sandbox_skill_pt)(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);


struct ngx_http_sandbox_skill_s {
    ngx_http_sandbox_store_op_t   *op;           /* op->entry, op->created */
    ngx_http_sandbox_skill_pt      handler;
    void                          *data;         /* the caller's */

    ngx_str_t                      library;      /* empty: there is none */
    ngx_uint_t                     mode;         /* of a load, of a list */
    sandbox_store_skills_t         list;

    /* answered, and freed with the request */

    sandbox_skill_reader_t        *reader;
    sandbox_skill_t               *skill;        /* what is told of it */
    ngx_str_t                      text;         /* SKILL.md, any bytes; its
                                                    first 64 KiB, or empty */
    uint64_t                       text_size;    /* of all of it */
};


/* ngx_http_sandbox_skill.c */

/*
 * The library's skill of that name into ctx->conversation, after the identity.
 * With SANDBOX_STORE_SKILL_ANY one that the user uploaded under that name is
 * the one, and stays as it is; else that is the problem "skill_exists".
 * The handler finds a problem set (ctx->problem.status is not 0), logged where
 * the operator must know: or skill->op->entry, ->created, skill->skill, ->text.
 * As with the store's operations: the name lives as long as r, the request
 * must not be finalized before the handler, and it is not called if the client
 * has ended the request meanwhile.  A content handler adds to r->main->count.
 *
 * NULL: it did not start, a problem is set (or there is no memory, and
 * ctx->problem.status is 0), and no handler is called.
 */
ngx_http_sandbox_skill_t *ngx_http_sandbox_skill_load(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *name,
    sandbox_store_skill_mode_e mode, ngx_http_sandbox_skill_pt handler,
    void *data);

/* One of its own for an op of the store; NULL: no memory. */
ngx_http_sandbox_skill_t *ngx_http_sandbox_skill_create(
    ngx_http_request_t *r, ngx_http_sandbox_store_op_t *op);

/*
 * What op has written, and the last bytes of it, becomes the skill of that
 * name; the request is answered.  NGX_ERROR: not started, a problem is set.
 */
ngx_int_t ngx_http_sandbox_skill_commit(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, u_char *p, size_t n);

/* op->fault as a problem, in the words of skills. */
void ngx_http_sandbox_skill_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);

/* "sandbox_skills" */
char *ngx_http_sandbox_conf_skills(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* When "user" is known: warns of libraries that the workers can't read. */
void ngx_http_sandbox_skills_init_module(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf);


/* ngx_http_sandbox_skills.c: the routes, and how a skill is told in JSON */

ngx_int_t ngx_http_sandbox_skills_list_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_skills_add_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_skills_get_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_skills_remove_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The body of a POST is in ctx->body. */
void ngx_http_sandbox_skills_add(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* 201 or 200 with the skill; for ngx_http_finalize_request(). */
ngx_int_t ngx_http_sandbox_skills_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);

/*
 * What a user should know of a skill that is there: "requirements.txt" in it.
 * One sentence for the i-th of skill->paths; what is written, at most
 * NGX_HTTP_SANDBOX_SKILL_DETAIL bytes.
 */
#define NGX_HTTP_SANDBOX_SKILL_DETAIL  (256 + 2 * SANDBOX_SKILL_MAX_PATH)

size_t ngx_http_sandbox_skills_required(u_char *p, ngx_str_t *name,
    sandbox_skill_t *skill, ngx_uint_t i);


#endif /* _NGX_HTTP_SANDBOX_SKILLS_H_INCLUDED_ */
