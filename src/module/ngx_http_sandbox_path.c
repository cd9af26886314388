/*
 * A path in the container as clients write it, into the form that agents
 * take.  What it leads to, and whether it may, only the agent knows.
 */

#include "ngx_http_sandbox_fs.h"


/* "./a//b/" is "a/b"; what a ".." means is not for us to say */

ngx_int_t
ngx_http_sandbox_path(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *path)
{
    size_t       n;
    u_char      *p, *last, *slash, *out;
    const char  *wrong;

    out = ngx_pnalloc(r->pool, path->len + 1);
    if (out == NULL) {
        return NGX_ERROR;
    }

    p = path->data;
    last = p + path->len;

    path->data = out;
    wrong = NULL;

    for ( /* void */ ; p < last; p = slash + 1) {

        slash = ngx_strlchr(p, last, '/');
        if (slash == NULL) {
            slash = last;
        }

        n = slash - p;

        if (n == 0 || (n == 1 && *p == '.')) {
            continue;
        }

        if (n > SANDBOX_STORE_MAX_NAME) {
            wrong = "The path has a name of more than 255 bytes.";
        }

        if (ngx_strlchr(p, slash, '\0') != NULL) {
            wrong = "The path has a NUL in it.";
        }

        if (out != path->data) {
            *out++ = '/';
        }

        out = ngx_cpymem(out, p, n);
    }

    path->len = out - path->data;

    if (path->len >= SANDBOX_WIRE_MAX_PATH) {
        wrong = "The path is longer than 4095 bytes.";
    }

    if (wrong) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_path", wrong);
        return NGX_DECLINED;
    }

    return NGX_OK;
}
