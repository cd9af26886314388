/*
 * Method and path to operation: one table.  Reads the decoded URI only; looks
 * at the raw target just to refuse spellings that a proxy before or behind us
 * could read another way.  Knows no identity.
 */

#include "ngx_http_sandbox_conversations.h"
#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_openapi.h"
#include "ngx_http_sandbox_skills.h"


static ngx_int_t ngx_http_sandbox_route_raw(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_route_path(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_uint_t ngx_http_sandbox_route_match(const ngx_str_t *pattern,
    const ngx_str_t *path, ngx_str_t *parts);


static const ngx_http_sandbox_route_t  ngx_http_sandbox_routes[] = {

    { ngx_string("health"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("health"), NGX_HTTP_SANDBOX_PUBLIC,
      ngx_http_sandbox_health_handler },

    { ngx_string("openapi.json"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("openapi"), NGX_HTTP_SANDBOX_PUBLIC,
      ngx_http_sandbox_openapi_handler },

    { ngx_string("v1/limits"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("limits"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_limits_handler },

    { ngx_string("v1/conversations"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("conversation.list"), NGX_HTTP_SANDBOX_READERS,
      ngx_http_sandbox_conversations_handler },

    { ngx_string("v1/conversations/*"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("conversation.get"), NGX_HTTP_SANDBOX_READERS,
      ngx_http_sandbox_status_handler },

    { ngx_string("v1/conversations/*"),
      NGX_HTTP_DELETE,
      ngx_string("conversation.delete"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_delete_handler },

    { ngx_string("v1/conversations/*/reset"),
      NGX_HTTP_POST,
      ngx_string("conversation.reset"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_reset_handler },

    { ngx_string("v1/conversations/*/commands"),
      NGX_HTTP_POST,
      ngx_string("command.run"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_command_handler },

    { ngx_string("v1/conversations/*/commands"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("command.list"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_history_handler },

    { ngx_string("v1/conversations/*/commands/*"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("command.get"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_attach_handler },

    { ngx_string("v1/conversations/*/commands/*"),
      NGX_HTTP_DELETE,
      ngx_string("command.cancel"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_cancel_handler },

    { ngx_string("v1/conversations/*/commands/*/stdin"),
      NGX_HTTP_POST,
      ngx_string("command.stdin"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_stdin_handler },

    { ngx_string("dl/+"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("file.link.get"), NGX_HTTP_SANDBOX_PUBLIC,
      ngx_http_sandbox_download_handler },

    { ngx_string("v1/conversations/*/attachments"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("attachment.list"), NGX_HTTP_SANDBOX_READERS,
      ngx_http_sandbox_files_list_handler },

    { ngx_string("v1/conversations/*/attachments"),
      NGX_HTTP_POST,
      ngx_string("attachment.add"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_upload_handler },

    { ngx_string("v1/conversations/*/attachments/+"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("attachment.get"), NGX_HTTP_SANDBOX_READERS,
      ngx_http_sandbox_files_get_handler },

    { ngx_string("v1/conversations/*/attachments/+"),
      NGX_HTTP_PUT,
      ngx_string("attachment.put"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_upload_handler },

    { ngx_string("v1/conversations/*/attachments/+"),
      NGX_HTTP_DELETE,
      ngx_string("attachment.delete"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_files_remove_handler },

    { ngx_string("v1/conversations/*/files"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("file.list"), NGX_HTTP_SANDBOX_READERS,
      ngx_http_sandbox_files_list_handler },

    { ngx_string("v1/conversations/*/files"),
      NGX_HTTP_POST,
      ngx_string("file.save"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_save_handler },

    { ngx_string("v1/conversations/*/files/+"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("file.get"), NGX_HTTP_SANDBOX_READERS,
      ngx_http_sandbox_files_get_handler },

    { ngx_string("v1/conversations/*/files/+"),
      NGX_HTTP_PUT,
      ngx_string("file.put"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_upload_handler },

    { ngx_string("v1/conversations/*/files/+"),
      NGX_HTTP_DELETE,
      ngx_string("file.delete"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_files_remove_handler },

    { ngx_string("v1/conversations/*/files/+/link"),
      NGX_HTTP_POST,
      ngx_string("file.link"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_link_handler },

    { ngx_string("v1/conversations/*/skills"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("skill.list"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_skills_list_handler },

    { ngx_string("v1/conversations/*/skills"),
      NGX_HTTP_POST,
      ngx_string("skill.load"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_skills_add_handler },

    { ngx_string("v1/conversations/*/skills/+"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("skill.get"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_skills_get_handler },

    { ngx_string("v1/conversations/*/skills/+"),
      NGX_HTTP_PUT,
      ngx_string("skill.put"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_upload_handler },

    { ngx_string("v1/conversations/*/skills/+"),
      NGX_HTTP_DELETE,
      ngx_string("skill.delete"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_skills_remove_handler },

    { ngx_string("v1/conversations/*/fs"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("fs.get"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_fs_get_handler },

    { ngx_string("v1/conversations/*/fs/~"),
      NGX_HTTP_GET|NGX_HTTP_HEAD,
      ngx_string("fs.get"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_fs_get_handler },

    { ngx_string("v1/conversations/*/fs/~"),
      NGX_HTTP_PUT,
      ngx_string("fs.put"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_fs_put_handler },

    { ngx_string("v1/conversations/*/fs/~"),
      NGX_HTTP_DELETE,
      ngx_string("fs.delete"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_fs_delete_handler },

    { ngx_string("mcp"),
      NGX_HTTP_POST,
      ngx_string("mcp"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_mcp_handler },

    { ngx_string("mcp"),
      NGX_HTTP_OPTIONS,
      ngx_string("mcp.preflight"), NGX_HTTP_SANDBOX_PUBLIC,
      ngx_http_sandbox_mcp_preflight },

    { ngx_string("v1/conversations/*/mcp"),
      NGX_HTTP_OPTIONS,
      ngx_string("mcp.preflight"), NGX_HTTP_SANDBOX_PUBLIC,
      ngx_http_sandbox_mcp_preflight },

    { ngx_string("v1/conversations/*/mcp"),
      NGX_HTTP_POST,
      ngx_string("mcp"), NGX_HTTP_SANDBOX_EXECUTE,
      ngx_http_sandbox_mcp_handler },

    { ngx_null_string, 0, ngx_null_string, 0, NULL }
};


/* in the order in which Allow names them */

static const struct {
    ngx_uint_t  method;
    ngx_str_t   name;
} ngx_http_sandbox_methods[] = {
    { NGX_HTTP_GET, ngx_string("GET") },
    { NGX_HTTP_HEAD, ngx_string("HEAD") },
    { NGX_HTTP_POST, ngx_string("POST") },
    { NGX_HTTP_PUT, ngx_string("PUT") },
    { NGX_HTTP_DELETE, ngx_string("DELETE") },
    { 0, ngx_null_string }
};


void
ngx_http_sandbox_route(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t                        path, tried[2], parts[2];
    ngx_http_sandbox_problem_t      *refusal;
    ngx_http_sandbox_loc_conf_t     *slcf;
    const ngx_http_sandbox_route_t  *route, *found;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    /* a rewrite may have led to another location or path */

    if (ctx->routed == slcf && ctx->uri.data == r->uri.data
        && ctx->uri.len == r->uri.len)
    {
        return;
    }

    ctx->routed = slcf;
    ctx->uri = r->uri;

    ctx->route = NULL;
    ngx_str_null(&ctx->conversation);
    ngx_str_null(&ctx->name);
    ngx_memzero(parts, sizeof(parts));

    refusal = &ctx->refusal;
    ngx_memzero(refusal, sizeof(ngx_http_sandbox_problem_t));

    if (ngx_http_sandbox_route_raw(r) != NGX_OK) {
        refusal->status = NGX_HTTP_BAD_REQUEST;
        ngx_str_set(&refusal->code, "bad_path");
        ngx_str_set(&refusal->detail, "The path must have neither an encoded "
                                      "\"/\" nor a \"..\" or an encoded "
                                      "\".\" segment.");
        return;
    }

    found = NULL;

    if (ngx_http_sandbox_route_path(r, &path) == NGX_OK) {

        for (route = ngx_http_sandbox_routes; route->pattern.len; route++) {

            if (!ngx_http_sandbox_route_match(&route->pattern, &path, tried)) {
                continue;
            }

            found = route;
            ngx_memcpy(parts, tried, sizeof(parts));

            if (route->methods & r->method) {
                break;
            }
        }
    }

    if (found == NULL) {
        ngx_http_sandbox_route_missing(refusal);
        return;
    }

    if (parts[0].data && !ngx_http_sandbox_route_conversation(&parts[0]))
    {
        refusal->status = NGX_HTTP_NOT_FOUND;
        ngx_str_set(&refusal->code, "not_found");
        ngx_str_set(&refusal->detail, "A conversation id has 1 to 128 "
                                      "characters of A-Z a-z 0-9 . _ : and "
                                      "-.");
        return;
    }

    if ((found->methods & r->method) == 0) {
        refusal->status = NGX_HTTP_NOT_ALLOWED;
        ngx_str_set(&refusal->code, "method_not_allowed");
        ngx_str_set(&refusal->detail, "This path does not have that method, "
                                      "the Allow header names those it has.");
        return;
    }

    if (parts[1].data
        && strpbrk((char *) found->pattern.data, "+~") == NULL
        && !sandbox_command_id_valid(parts[1].data, parts[1].len))
    {
        refusal->status = NGX_HTTP_NOT_FOUND;
        ngx_str_set(&refusal->code, "command_not_found");
        ngx_str_set(&refusal->detail, "A command id has 1 to 64 characters of "
                                      "A-Z a-z 0-9 . _ and -.");
        return;
    }

    /* to ignore it could cost somebody his file */

    if ((r->method & (NGX_HTTP_PUT|NGX_HTTP_DELETE))
        && r->headers_in.if_unmodified_since && !r->headers_in.if_match)
    {
        refusal->status = NGX_HTTP_BAD_REQUEST;
        ngx_str_set(&refusal->code, "bad_request");
        ngx_str_set(&refusal->detail, "If-Unmodified-Since is not understood "
                                      "here: a change takes If-Match.");
        return;
    }

    ctx->route = found;
    ctx->conversation = parts[0];
    ctx->name = parts[1];
}


void
ngx_http_sandbox_route_missing(ngx_http_sandbox_problem_t *problem)
{
    ngx_memzero(problem, sizeof(ngx_http_sandbox_problem_t));

    problem->status = NGX_HTTP_NOT_FOUND;
    ngx_str_set(&problem->code, "not_found");
    ngx_str_set(&problem->detail, "There is nothing at this path.");
}


ngx_int_t
ngx_http_sandbox_route_allow(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *allow)
{
    u_char                          *p;
    ngx_str_t                        path, parts[2];
    ngx_uint_t                       i, methods;
    const ngx_http_sandbox_route_t  *route;

    methods = 0;

    if (ngx_http_sandbox_route_path(r, &path) == NGX_OK) {
        for (route = ngx_http_sandbox_routes; route->pattern.len; route++) {
            if (ngx_http_sandbox_route_match(&route->pattern, &path, parts)) {
                methods |= route->methods;
            }
        }
    }

    p = ngx_pnalloc(r->pool, sizeof("GET, HEAD, POST, PUT, DELETE"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    allow->data = p;

    for (i = 0; ngx_http_sandbox_methods[i].method; i++) {

        if ((methods & ngx_http_sandbox_methods[i].method) == 0) {
            continue;
        }

        if (p != allow->data) {
            *p++ = ',';
            *p++ = ' ';
        }

        p = ngx_cpymem(p, ngx_http_sandbox_methods[i].name.data,
                       ngx_http_sandbox_methods[i].name.len);
    }

    allow->len = p - allow->data;

    return NGX_OK;
}


/*
 * nginx has resolved these by now, and rightly; but a target with an encoded
 * slash, a ".." or an encoded "." was made to be understood in two ways.
 */

static ngx_int_t
ngx_http_sandbox_route_raw(ngx_http_request_t *r)
{
    u_char      *p, *last, c;
    ngx_uint_t   dots, other, encoded;

    p = r->unparsed_uri.data;
    last = p + r->unparsed_uri.len;

    dots = 0;
    other = 0;
    encoded = 0;

    for ( ;; ) {

        c = (p < last) ? *p++ : '/';

        if (c == '?' || c == '#') {
            p = last;
            c = '/';
        }

        if (c == '%' && last - p >= 2) {

            if (p[0] == '2' && (p[1] | 0x20) == 'f') {
                return NGX_ERROR;
            }

            if (p[0] == '2' && (p[1] | 0x20) == 'e') {
                c = '.';
                p += 2;
                encoded = 1;
            }
        }

        if (c == '/') {

            if (!other && (dots == 2 || (dots == 1 && encoded))) {
                return NGX_ERROR;
            }

            if (p == last) {
                return NGX_OK;
            }

            dots = 0;
            other = 0;
            encoded = 0;

        } else if (c == '.') {
            dots++;

        } else {
            other = 1;
        }
    }
}


static ngx_int_t
ngx_http_sandbox_route_path(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_str_t                    *prefix;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    prefix = &slcf->prefix;

    if (r->uri.len < prefix->len
        || ngx_strncmp(r->uri.data, prefix->data, prefix->len) != 0)
    {
        return NGX_DECLINED;
    }

    path->data = r->uri.data + prefix->len;
    path->len = r->uri.len - prefix->len;

    if (prefix->len && prefix->data[prefix->len - 1] == '/') {
        return NGX_OK;
    }

    if (path->len == 0 || path->data[0] != '/') {
        return NGX_DECLINED;
    }

    path->data++;
    path->len--;

    return NGX_OK;
}


/*
 * What stands at the place of the first "*" and the second, which is a "+"
 * where any bytes may be a name; none is empty.  A "~" is the rest of a path,
 * whatever it is.
 */

static ngx_uint_t
ngx_http_sandbox_route_match(const ngx_str_t *pattern, const ngx_str_t *path,
    ngx_str_t *parts)
{
    u_char     *p, *last, *s, *end;
    ngx_str_t  *part;

    part = parts;
    ngx_str_null(&parts[0]);
    ngx_str_null(&parts[1]);

    p = pattern->data;
    last = p + pattern->len;
    s = path->data;
    end = s + path->len;

    while (p < last) {

        if (*p == '~') {
            parts[1].data = s;
            parts[1].len = end - s;
            return 1;
        }

        if (*p == '*' || *p == '+') {

            if (*p == '+') {
                part = &parts[1];
            }

            part->data = s;

            while (s < end && *s != '/') {
                s++;
            }

            part->len = s - part->data;

            if (part->len == 0) {
                return 0;
            }

            part++;
            p++;
            continue;
        }

        if (s == end || *s != *p) {
            return 0;
        }

        p++;
        s++;
    }

    return s == end;
}


ngx_uint_t
ngx_http_sandbox_route_conversation(const ngx_str_t *id)
{
    u_char  c;
    size_t  i;

    if (id->len == 0 || id->len > NGX_HTTP_SANDBOX_MAX_CONVERSATION) {
        return 0;
    }

    for (i = 0; i < id->len; i++) {
        c = id->data[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
              || (c >= '0' && c <= '9')
              || c == '.' || c == '_' || c == ':' || c == '-'))
        {
            return 0;
        }
    }

    return !(id->data[0] == '.'
             && (id->len == 1 || (id->len == 2 && id->data[1] == '.')));
}


ngx_int_t
ngx_http_sandbox_argument(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    size_t   len;
    u_char  *p, *last, *next;

    len = ngx_strlen(name);
    p = r->args.data;
    last = p + r->args.len;

    while (p < last) {

        next = ngx_strlchr(p, last, '&');
        if (next == NULL) {
            next = last;
        }

        if ((size_t) (next - p) >= len && ngx_strncmp(p, name, len) == 0) {

            if ((size_t) (next - p) == len) {
                value->data = next;
                value->len = 0;
                return NGX_OK;
            }

            if (p[len] == '=') {
                value->data = p + len + 1;
                value->len = next - value->data;
                return NGX_OK;
            }
        }

        p = next + 1;
    }

    return NGX_DECLINED;
}
