/*
 * GET openapi.json: the description of this interface for programs, as it
 * stands beside this file, with the location's own prefix in it.
 */

#include "ngx_http_sandbox_openapi.h"


/* the assembler finds it where the compiler finds this module's headers */

__asm__(
    "    .pushsection .rodata\n"
    "    .globl ngx_http_sandbox_openapi\n"
    "    .hidden ngx_http_sandbox_openapi\n"
    "ngx_http_sandbox_openapi:\n"
    "    .incbin \"openapi.json\"\n"
    "    .byte 0\n"
    "    .popsection\n"
);

extern const u_char  ngx_http_sandbox_openapi[];

#define NGX_HTTP_SANDBOX_OPENAPI_SERVER  "\"servers\": [{\"url\": \"/sandbox\""


ngx_int_t
ngx_http_sandbox_openapi_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    size_t                        len;
    u_char                       *p;
    ngx_buf_t                    *head, *server, *tail;
    ngx_str_t                     prefix;
    ngx_uint_t                    ignored;
    ngx_chain_t                  *cl, *last;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    /* paths begin with a slash, so this does not end with one */

    prefix = slcf->prefix;

    while (prefix.len > 1 && prefix.data[prefix.len - 1] == '/') {
        prefix.len--;
    }

    p = (u_char *) strstr((char *) ngx_http_sandbox_openapi,
                          NGX_HTTP_SANDBOX_OPENAPI_SERVER);

    head = ngx_calloc_buf(r->pool);
    server = ngx_create_temp_buf(r->pool, 6 * prefix.len + 1);
    tail = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);
    last = ngx_alloc_chain_link(r->pool);

    if (p == NULL || head == NULL || server == NULL || tail == NULL
        || cl == NULL || last == NULL)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    len = sizeof("/sandbox\"") - 1;

    head->memory = 1;
    head->pos = (u_char *) ngx_http_sandbox_openapi;
    head->last = p + sizeof(NGX_HTTP_SANDBOX_OPENAPI_SERVER) - 1 - len;

    server->last += ngx_http_sandbox_escape(server->last, prefix.data,
                                            prefix.len, &ignored);

    tail->memory = 1;
    tail->pos = head->last + len - 1;
    tail->last = tail->pos + ngx_strlen(tail->pos);

    if (ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, tail) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    last->buf = server;
    last->next = ctx->answer;
    cl->buf = head;
    cl->next = (server->last != server->pos) ? last : ctx->answer;

    ctx->answer = cl;
    ctx->answer_size += (head->last - head->pos)
                        + (server->last - server->pos);

    return ngx_http_sandbox_send_answer(r, ctx);
}
