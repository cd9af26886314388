/*
 * Who may call MCP: Host and Origin, against pages that a browser has from
 * somewhere else (DNS rebinding), and the two directives.  Knows no message.
 */

#include "ngx_http_sandbox_mcp.h"


static ngx_int_t ngx_http_sandbox_mcp_share(ngx_http_request_t *r,
    ngx_str_t *origin);
static char *ngx_http_sandbox_mcp_origin_wrong(ngx_str_t *origin,
    ngx_str_t *host);
static ngx_uint_t ngx_http_sandbox_mcp_host(ngx_http_request_t *r,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *host);
static ngx_uint_t ngx_http_sandbox_mcp_named(ngx_http_request_t *r,
    ngx_str_t *host);
static ngx_uint_t ngx_http_sandbox_mcp_local(ngx_str_t *host);
static ngx_uint_t ngx_http_sandbox_mcp_listed(
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *value, ngx_uint_t host);
static ngx_uint_t ngx_http_sandbox_mcp_same(ngx_http_request_t *r,
    ngx_str_t *origin);


char *
ngx_http_sandbox_conf_mcp_origins(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    char        *wrong;
    ngx_str_t   *value, *origin, host;
    ngx_uint_t   i, n;

    if (slcf->mcp_origins != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "none") == 0) {
        slcf->mcp_origins = NULL;
        return NGX_CONF_OK;
    }

    slcf->mcp_origins = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                         sizeof(ngx_str_t));
    if (slcf->mcp_origins == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        ngx_strlow(value[i].data, value[i].data, value[i].len);

        wrong = ngx_http_sandbox_mcp_origin_wrong(&value[i], &host);

        if (wrong) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid origin \"%V\" in "
                               "\"sandbox_mcp_origins\" directive: %s, it must "
                               "be as a browser sends it, such as "
                               "\"https://chat.example.com\" or "
                               "\"http://localhost:3000\"", &value[i], wrong);
            return NGX_CONF_ERROR;
        }

        origin = slcf->mcp_origins->elts;

        for (n = 0; n < slcf->mcp_origins->nelts; n++) {
            if (origin[n].len == value[i].len
                && ngx_strncmp(origin[n].data, value[i].data, value[i].len)
                   == 0)
            {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "origin \"%V\" stands twice in "
                                   "\"sandbox_mcp_origins\" directive",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }
        }

        origin = ngx_array_push(slcf->mcp_origins);
        if (origin == NULL) {
            return NGX_CONF_ERROR;
        }

        *origin = value[i];
    }

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_conf_mcp_conversation(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t  *value;

    if (slcf->mcp_argument != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "argument") == 0) {
        slcf->mcp_argument = 1;

    } else if (ngx_strcmp(value[1].data, "header") == 0) {
        slcf->mcp_argument = 0;

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in "
                           "\"sandbox_mcp_conversation\" directive, it must "
                           "be \"header\" or \"argument\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* nginx forgets them when it has read its configuration */

ngx_int_t
ngx_http_sandbox_mcp_names(ngx_conf_t *cf, ngx_http_sandbox_loc_conf_t *conf)
{
    ngx_array_t               *names;
    ngx_http_server_name_t    *sn;
    ngx_http_core_srv_conf_t  *cscf;

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);

    names = ngx_array_create(cf->pool, cscf->server_names.nelts + 1,
                             sizeof(ngx_http_server_name_t));
    if (names == NULL) {
        return NGX_ERROR;
    }

    sn = ngx_array_push_n(names, cscf->server_names.nelts);
    if (sn == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(sn, cscf->server_names.elts,
               cscf->server_names.nelts * sizeof(ngx_http_server_name_t));

    conf->mcp_names = names;

    return NGX_OK;
}


/* NULL: scheme, host and maybe a port, of which host is set */

static char *
ngx_http_sandbox_mcp_origin_wrong(ngx_str_t *origin, ngx_str_t *host)
{
    u_char  *p, *last, *colon;

    last = origin->data + origin->len;

    p = (u_char *) ngx_strstr(origin->data, "://");

    if (p == NULL || p == origin->data) {
        return "it has no scheme";
    }

    p += 3;
    host->data = p;

    if (p < last && *p == '[') {

        while (p < last && *p != ']') {
            p++;
        }
    }

    for (colon = NULL; p < last; p++) {

        if (*p == '/' || *p == '?' || *p == '#' || *p == '@' || *p == '*'
            || *p <= ' ' || *p >= 0x7f)
        {
            return "it has more than scheme, host and port";
        }

        if (colon) {
            if (*p < '0' || *p > '9') {
                return "its port is no number";
            }

        } else if (*p == ':') {
            colon = p;
        }
    }

    if (colon && (colon + 1 == last || last - colon > 6)) {
        return "its port is no number";
    }

    host->len = (colon ? colon : last) - host->data;

    return host->len ? NULL : "it has no host";
}


/*
 * Without a browser neither matters: there is no Origin, and who can set Host
 * needs no page for it.  A page of elsewhere has an Origin, or its own name in
 * Host, which resolves to us.
 */

ngx_int_t
ngx_http_sandbox_mcp_origin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_str_t                     host, origin, name;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    host = r->headers_in.server;

    if (host.len && !ngx_http_sandbox_mcp_host(r, slcf, &host)) {

        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "sandbox: MCP was called as host \"%V\", which is none "
                      "of this server: name it in \"server_name\", or an "
                      "origin of it in \"sandbox_mcp_origins\"", &host);

        ngx_http_sandbox_refuse(ctx, NGX_HTTP_FORBIDDEN, "foreign_origin",
                                "This server does not answer MCP under that "
                                "Host.");
        return NGX_DECLINED;
    }

    rc = ngx_http_sandbox_mcp_header(r, "Origin", &origin);

    if (rc == NGX_DECLINED
        || (rc == NGX_OK && ngx_http_sandbox_mcp_same(r, &origin)))
    {
        return NGX_OK;
    }

    /* pages of this machine may call what is called as this machine */

    if (rc == NGX_OK
        && (ngx_http_sandbox_mcp_listed(slcf, &origin, 0)
            || (ngx_http_sandbox_mcp_origin_wrong(&origin, &name) == NULL
                && ngx_http_sandbox_mcp_local(&name)
                && ngx_http_sandbox_mcp_local(&host))))
    {
        return ngx_http_sandbox_mcp_share(r, &origin);
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "sandbox: MCP was called by a page of origin \"%V\", which "
                  "\"sandbox_mcp_origins\" does not name", &origin);

    ngx_http_sandbox_refuse(ctx, NGX_HTTP_FORBIDDEN, "foreign_origin",
                            "Pages of that Origin may not call MCP here.");

    return NGX_DECLINED;
}


/* a browser asks before it lets a page of elsewhere send a token */

ngx_int_t
ngx_http_sandbox_mcp_preflight(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t    rc;
    ngx_uint_t   i;

    static const struct {
        const char  *name;
        ngx_str_t    value;
    } headers[] = {
        { "Access-Control-Allow-Methods", ngx_string("POST") },
        { "Access-Control-Allow-Headers",
          ngx_string("Accept, Authorization, Content-Type, Last-Event-ID, "
                     "MCP-Protocol-Version, Mcp-Method, Mcp-Name, "
                     "Mcp-Session-Id, Sandbox-Conversation") },
        { "Access-Control-Max-Age", ngx_string("600") },
        { NULL, ngx_null_string }
    };

    rc = ngx_http_sandbox_mcp_origin(r, ctx);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? ngx_http_sandbox_send_problem(r, ctx)
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    for (i = 0; headers[i].name; i++) {
        if (ngx_http_sandbox_serve_header(r, headers[i].name,
                                          (ngx_str_t *) &headers[i].value)
            == NULL)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ctx->answer = NULL;
    ctx->answer_size = -1;
    ctx->answer_status = NGX_HTTP_NO_CONTENT;

    return ngx_http_sandbox_send_answer(r, ctx);
}


/* the page may read the answer */

static ngx_int_t
ngx_http_sandbox_mcp_share(ngx_http_request_t *r, ngx_str_t *origin)
{
    ngx_str_t  vary = ngx_string("Origin");

    return ngx_http_sandbox_serve_header(r, "Access-Control-Allow-Origin",
                                         origin)
           && ngx_http_sandbox_serve_header(r, "Vary", &vary)
           ? NGX_OK : NGX_ERROR;
}


static ngx_uint_t
ngx_http_sandbox_mcp_host(ngx_http_request_t *r,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *host)
{
    u_char     text[NGX_SOCKADDR_STRLEN];
    ngx_str_t  address;

    if (ngx_http_sandbox_mcp_local(host)
        || ngx_http_sandbox_mcp_named(r, host)
        || ngx_http_sandbox_mcp_listed(slcf, host, 1))
    {
        return 1;
    }

    /* its own address: no name that somebody else could hand out */

    address.data = text;
    address.len = NGX_SOCKADDR_STRLEN;

    if (ngx_connection_local_sockaddr(r->connection, &address, 0) != NGX_OK) {
        return 0;
    }

    if (host->len > 2 && host->data[0] == '[') {
        return address.len == host->len - 2
               && ngx_strncasecmp(address.data, host->data + 1, address.len)
                  == 0;
    }

    return address.len == host->len
           && ngx_strncmp(address.data, host->data, address.len) == 0;
}


/* nginx takes the default server for a name that none has */

static ngx_uint_t
ngx_http_sandbox_mcp_named(ngx_http_request_t *r, ngx_str_t *host)
{
    ngx_str_t                     name;
    ngx_uint_t                    i;
    ngx_http_server_name_t       *sn;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    sn = slcf->mcp_names->elts;

    for (i = 0; i < slcf->mcp_names->nelts; i++) {

#if (NGX_PCRE)

        if (sn[i].regex) {

            if (ngx_regex_exec(sn[i].regex->regex, host, NULL, 0) >= 0) {
                return 1;
            }

            continue;
        }

#endif

        name = sn[i].name;

        if (name.len == 0) {
            continue;
        }

        if (name.len == host->len
            && ngx_strncasecmp(name.data, host->data, name.len) == 0)
        {
            return 1;
        }

        /* "*.example.com", ".example.com", and "www.example.*" */

        if (name.data[0] == '*' && name.len > 1) {
            name.data++;
            name.len--;
        }

        if (name.data[0] == '.') {

            if (host->len > name.len
                && ngx_strncasecmp(host->data + host->len - name.len,
                                   name.data, name.len) == 0)
            {
                return 1;
            }

            if (sn[i].name.data[0] == '.' && host->len == name.len - 1
                && ngx_strncasecmp(host->data, name.data + 1, host->len) == 0)
            {
                return 1;
            }

        } else if (name.data[name.len - 1] == '*'
                   && host->len >= name.len
                   && ngx_strncasecmp(host->data, name.data, name.len - 1)
                      == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* all spellings of this machine; names below "localhost" are its own, too */

static ngx_uint_t
ngx_http_sandbox_mcp_local(ngx_str_t *host)
{
    in_addr_t  address;

    if (host->len >= 9
        && ngx_strncasecmp(host->data + host->len - 9,
                           (u_char *) "localhost", 9) == 0
        && (host->len == 9 || host->data[host->len - 10] == '.'))
    {
        return 1;
    }

    if (host->len == 5 && ngx_strncmp(host->data, "[::1]", 5) == 0) {
        return 1;
    }

    address = ngx_inet_addr(host->data, host->len);

    return address != INADDR_NONE && ntohl(address) >> 24 == 127;
}


static ngx_uint_t
ngx_http_sandbox_mcp_listed(ngx_http_sandbox_loc_conf_t *slcf,
    ngx_str_t *value, ngx_uint_t host)
{
    ngx_str_t   *origin, part;
    ngx_uint_t   i;

    if (slcf->mcp_origins == NULL) {
        return 0;
    }

    origin = slcf->mcp_origins->elts;

    for (i = 0; i < slcf->mcp_origins->nelts; i++) {

        part = origin[i];

        if (host) {
            (void) ngx_http_sandbox_mcp_origin_wrong(&origin[i], &part);
        }

        if (part.len == value->len
            && ngx_strncasecmp(part.data, value->data, part.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* the page is of this very server, whose Host was looked at */

static ngx_uint_t
ngx_http_sandbox_mcp_same(ngx_http_request_t *r, ngx_str_t *origin)
{
    size_t      n;
    ngx_str_t  *host;

    if (r->headers_in.host == NULL) {
        return 0;
    }

    host = &r->headers_in.host->value;

    n = 7;

    if (origin->len > 8
        && ngx_strncasecmp(origin->data, (u_char *) "https://", 8) == 0)
    {
        n = 8;

    } else if (origin->len <= 7
               || ngx_strncasecmp(origin->data, (u_char *) "http://", 7) != 0)
    {
        return 0;
    }

    /* the scheme may be another one behind a proxy that ends TLS */

    return origin->len - n == host->len
           && ngx_strncasecmp(origin->data + n, host->data, host->len) == 0;
}
