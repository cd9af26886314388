/*
 * What an engine is asked for, as GraphQL: the volumes of a session, and its
 * agent as a service.  The definition of the service is a function of image,
 * session and generation only, so an engine starts one, however often and by
 * however many workers it is asked.  Knows no connection, no upstream.
 */

#include "ngx_http_sandbox_dagger_start.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>


/* ms: an engine makes volumes at once, but may have an image to pull */

#define NGX_HTTP_SANDBOX_ASK_VOLUMES   20000
#define NGX_HTTP_SANDBOX_ASK_SERVICE   60000

#define NGX_HTTP_SANDBOX_ASK_DEPTH     32        /* objects in one another */

/* of "container", "from", three volumes, four variables, and of all */

#define NGX_HTTP_SANDBOX_ASK_END       "}}}}}}}}}\"}"


static ngx_int_t ngx_http_sandbox_ask(ngx_http_sandbox_session_t *s,
    u_char *start, u_char *end, ngx_msec_t timeout,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q));
static ngx_int_t ngx_http_sandbox_ask_mac(ngx_http_sandbox_session_t *s,
    u_char *text, size_t size, u_char *mac);
static ngx_chain_t *ngx_http_sandbox_ask_buf(ngx_http_sandbox_session_t *s,
    u_char *start, u_char *end);
static size_t ngx_http_sandbox_ask_size(ngx_http_sandbox_session_t *s);
static u_char *ngx_http_sandbox_ask_container(ngx_http_sandbox_session_t *s,
    u_char *p);
static json_t *ngx_http_sandbox_ask_find(json_t *root, const char *name);


static const char *const  ngx_http_sandbox_ask_names[] = {
    "home", "skills", "meta"
};


/*
 * Gateways with keys of their own may share an engine: their volumes are not
 * the same, even where users and conversations have the same names.
 */

ngx_int_t
ngx_http_sandbox_ask_volumes(ngx_http_sandbox_session_t *s,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q))
{
    u_char      *p, *start;
    u_char       text[SANDBOX_WIRE_SESSION_SIZE + 6];
    u_char       mac[SANDBOX_WIRE_KEY_SIZE], hex[2 * SANDBOX_WIRE_KEY_SIZE];
    ngx_str_t    session;
    ngx_uint_t   i;

    p = ngx_cpymem(text, s->ctx->session, SANDBOX_WIRE_SESSION_SIZE);
    ngx_memcpy(p, "volume", 6);

    if (ngx_http_sandbox_ask_mac(s, text, sizeof(text), mac) != NGX_OK) {
        return NGX_ERROR;
    }

    start = ngx_pnalloc(s->request->pool,
                        64 + NGX_HTTP_SANDBOX_VOLUMES * (128 + sizeof(hex)));
    if (start == NULL) {
        return NGX_ERROR;
    }

    ngx_hex_dump(hex, mac, SANDBOX_WIRE_KEY_SIZE);
    session.data = hex;
    session.len = sizeof(hex);

    p = ngx_sprintf(start, "{\"query\":\"{");

    for (i = 0; i < NGX_HTTP_SANDBOX_VOLUMES; i++) {
        p = ngx_sprintf(p, "%s:cacheVolume(key:\\\"sandbox/%V/%s\\\","
                        "owner:\\\"%s\\\"){id} ",
                        ngx_http_sandbox_ask_names[i], &session,
                        ngx_http_sandbox_ask_names[i],
                        i == 0 ? "1000:1000" : "0:0");
    }

    p = ngx_sprintf(p, "}\"}");

    return ngx_http_sandbox_ask(s, start, p, NGX_HTTP_SANDBOX_ASK_VOLUMES,
                                handler);
}


/* ids go into the next question as they are, so they have to be such */

ngx_int_t
ngx_http_sandbox_ask_volumes_read(ngx_http_sandbox_session_t *s)
{
    json_t      *data, *id;
    u_char      *p;
    ngx_str_t   *volume;
    ngx_uint_t   i, n;

    data = json_object_get(s->query.root, "data");

    for (i = 0; i < NGX_HTTP_SANDBOX_VOLUMES; i++) {
        id = json_object_get(json_object_get(data,
                                             ngx_http_sandbox_ask_names[i]),
                             "id");

        volume = &s->volumes[i];
        volume->len = json_string_length(id);
        p = (u_char *) json_string_value(id);

        if (volume->len == 0 || volume->len > NGX_HTTP_SANDBOX_VOLUME_ID) {
            return NGX_DECLINED;
        }

        for (n = 0; n < volume->len; n++) {
            if (p[n] <= ' ' || p[n] >= 0x7f || p[n] == '"' || p[n] == '\\') {
                return NGX_DECLINED;
            }
        }

        volume->data = ngx_pstrdup(s->request->pool,
                                   &(ngx_str_t) { volume->len, p });
        if (volume->data == NULL) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_ask_service(ngx_http_sandbox_session_t *s,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q))
{
    u_char  *p, *start;

    start = ngx_pnalloc(s->request->pool, ngx_http_sandbox_ask_size(s));
    if (start == NULL) {
        return NGX_ERROR;
    }

    p = ngx_http_sandbox_ask_container(s, start);

    p = ngx_sprintf(p, "{withExposedPort(port:%d,"
                    "experimentalSkipHealthcheck:true)"
                    "{asService(args:[\\\"/usr/libexec/sandbox/sandbox-agent"
                    "\\\",\\\"--engine\\\",\\\"0.0.0.0:%d\\\"],noInit:true)"
                    "{start hostname}}}" NGX_HTTP_SANDBOX_ASK_END,
                    NGX_HTTP_SANDBOX_AGENT_PORT, NGX_HTTP_SANDBOX_AGENT_PORT);

    return ngx_http_sandbox_ask(s, start, p, NGX_HTTP_SANDBOX_ASK_SERVICE,
                                handler);
}


/* an engine answers what it was asked before, without doing it: a nonce */

ngx_int_t
ngx_http_sandbox_ask_exec(ngx_http_sandbox_session_t *s, ngx_chain_t *in,
    ngx_chain_t *last, size_t max, ngx_msec_t timeout, ngx_uint_t stays,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q))
{
    u_char                    *p, *start, nonce[12];
    ngx_str_t                  text;
    u_char                     hex[2 * sizeof(nonce)];
    ngx_chain_t               *cl;
    ngx_http_sandbox_query_t  *q;

    static u_char  end[] = "\\\",expect:ANY,noInit:true)"
                           "{exitCode stdout stderr}}}"
                           NGX_HTTP_SANDBOX_ASK_END;

    start = ngx_pnalloc(s->request->pool, ngx_http_sandbox_ask_size(s));

    if (start == NULL || RAND_bytes(nonce, sizeof(nonce)) != 1) {
        ERR_clear_error();
        return NGX_ERROR;
    }

    text.data = hex;
    text.len = ngx_hex_dump(hex, nonce, sizeof(nonce)) - hex;

    p = ngx_http_sandbox_ask_container(s, start);

    p = ngx_sprintf(p, "{withEnvVariable(name:\\\"SANDBOX_ENGINE_NONCE\\\","
                    "value:\\\"%V\\\")"
                    "{withExec(args:[\\\"/usr/libexec/sandbox/sandbox-agent"
                    "\\\",\\\"--once\\\"],stdin:\\\"", &text);

    q = &s->query;
    ngx_memzero(q, sizeof(ngx_http_sandbox_query_t));

    q->body = ngx_http_sandbox_ask_buf(s, start, p);
    cl = ngx_http_sandbox_ask_buf(s, end, end + sizeof(end) - 1);

    if (q->body == NULL || cl == NULL) {
        return NGX_ERROR;
    }

    q->body->next = in;
    last->next = cl;

    q->engine = s->engine;
    q->metadata = s->state.metadata;
    q->max = max;
    q->timeout = timeout;
    q->stays = stays;

    /* what a command did is not to be had once more */

    q->needed = (s->ctx->wire.operation == SANDBOX_OPERATION_COMMAND);
    q->handler = handler;
    q->data = s;

    return ngx_http_sandbox_query(s->request, q);
}


json_t *
ngx_http_sandbox_ask_exec_read(ngx_http_sandbox_session_t *s)
{
    return ngx_http_sandbox_ask_find(s->query.root, "stdout");
}


/* the container of a session, from which all begins; most bytes of it */

static size_t
ngx_http_sandbox_ask_size(ngx_http_sandbox_session_t *s)
{
    size_t                        size;
    ngx_uint_t                    i;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    size = 2048 + slcf->dagger->image.len;

    for (i = 0; i < NGX_HTTP_SANDBOX_VOLUMES; i++) {
        size += s->volumes[i].len;
    }

    return size;
}


static u_char *
ngx_http_sandbox_ask_container(ngx_http_sandbox_session_t *s, u_char *p)
{
    ngx_str_t                     session, secret;
    ngx_uint_t                    i;
    ngx_http_sandbox_loc_conf_t  *slcf;
    u_char                        hex[2][2 * SANDBOX_WIRE_SESSION_SIZE];

    static const char *const  paths[] = {
        "/home/sandbox", "/skills", "/var/lib/sandbox"
    };

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    ngx_hex_dump(hex[0], s->ctx->session, SANDBOX_WIRE_SESSION_SIZE);
    ngx_hex_dump(hex[1], s->secret, SANDBOX_WIRE_KEY_SIZE);
    session.data = hex[0];
    session.len = sizeof(hex[0]);
    secret.data = hex[1];
    secret.len = sizeof(hex[1]);

    p = ngx_sprintf(p, "{\"query\":\"{container{from(address:\\\"%V\\\")",
                    &slcf->dagger->image);

    for (i = 0; i < NGX_HTTP_SANDBOX_VOLUMES; i++) {
        p = ngx_sprintf(p, "{withMountedCache(path:\\\"%s\\\","
                        "cache:\\\"%V\\\")", paths[i], &s->volumes[i]);
    }

    return ngx_sprintf(p, "{withEnvVariable(name:\\\"SANDBOX_ENGINE_SECRET"
                       "\\\",value:\\\"%V\\\")"
                       "{withEnvVariable(name:\\\"SANDBOX_ENGINE_SESSION"
                       "\\\",value:\\\"%V\\\")"
                       "{withEnvVariable(name:\\\"SANDBOX_ENGINE_EPOCH"
                       "\\\",value:\\\"%uL\\\")"
                       "{withEnvVariable(name:\\\"SANDBOX_ENGINE_NETWORK"
                       "\\\",value:\\\"%s\\\")",
                       &secret, &session, s->state.generation,
                       s->engine->isolated ? "open" : "none");
}


ngx_int_t
ngx_http_sandbox_ask_service_read(ngx_http_sandbox_session_t *s)
{
    u_char      *p;
    json_t      *name;
    ngx_str_t   *domain;
    ngx_uint_t   i, n;

    name = ngx_http_sandbox_ask_find(s->query.root, "hostname");

    p = (u_char *) json_string_value(name);
    n = json_string_length(name);

    if (n == 0 || n > NGX_HTTP_SANDBOX_HOST_NAME) {
        return NGX_DECLINED;
    }

    for (i = 0; i < n; i++) {
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= '0' && p[i] <= '9')
              || (p[i] == '-' && i)))
        {
            return NGX_DECLINED;
        }
    }

    domain = &s->state.domain;

    s->host.data = ngx_pnalloc(s->request->pool, n + 1 + domain->len);
    if (s->host.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(s->host.data, p, n);

    if (domain->len) {
        *p++ = '.';
        p = ngx_cpymem(p, domain->data, domain->len);
    }

    s->host.len = p - s->host.data;

    return NGX_OK;
}


/* a chain of objects with one member each, as the question was */

static json_t *
ngx_http_sandbox_ask_find(json_t *root, const char *name)
{
    json_t      *object, *value;
    ngx_uint_t   i;

    object = json_object_get(root, "data");

    for (i = 0; i < NGX_HTTP_SANDBOX_ASK_DEPTH; i++) {

        value = json_object_get(object, name);
        if (value) {
            return value;
        }

        object = json_object_iter_value(json_object_iter(object));

        if (!json_is_object(object)) {
            break;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_sandbox_ask(ngx_http_sandbox_session_t *s, u_char *start,
    u_char *end, ngx_msec_t timeout,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q))
{
    ngx_http_sandbox_query_t  *q;

    q = &s->query;
    ngx_memzero(q, sizeof(ngx_http_sandbox_query_t));

    q->body = ngx_http_sandbox_ask_buf(s, start, end);
    if (q->body == NULL) {
        return NGX_ERROR;
    }

    q->engine = s->engine;
    q->metadata = s->state.metadata;
    q->max = NGX_HTTP_SANDBOX_QUERY_ANSWER;
    q->timeout = timeout;
    q->handler = handler;
    q->data = s;

    return ngx_http_sandbox_query(s->request, q);
}


static ngx_chain_t *
ngx_http_sandbox_ask_buf(ngx_http_sandbox_session_t *s, u_char *start,
    u_char *end)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(s->request->pool);
    cl = ngx_alloc_chain_link(s->request->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    b->memory = 1;
    b->start = start;
    b->pos = start;
    b->last = end;
    b->end = end;

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


ngx_int_t
ngx_http_sandbox_ask_secret(ngx_http_sandbox_session_t *s)
{
    u_char  text[SANDBOX_WIRE_SESSION_SIZE + 8];

    ngx_memcpy(text, s->ctx->session, SANDBOX_WIRE_SESSION_SIZE);
    sandbox_put64(text + SANDBOX_WIRE_SESSION_SIZE, s->state.generation);

    return ngx_http_sandbox_ask_mac(s, text, sizeof(text), s->secret);
}


/* by the gateway's key, 32 bytes; what is asked for differs in size */

static ngx_int_t
ngx_http_sandbox_ask_mac(ngx_http_sandbox_session_t *s, u_char *text,
    size_t size, u_char *mac)
{
    unsigned                      n;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    n = SANDBOX_WIRE_KEY_SIZE;

    if (HMAC(EVP_sha256(), slcf->runner->key, SANDBOX_WIRE_KEY_SIZE, text,
             size, mac, &n)
        == NULL)
    {
        ERR_clear_error();
        return NGX_ERROR;
    }

    return NGX_OK;
}
