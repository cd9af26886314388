/*
 * From an agent's name to an upstream: its address by DNS, a connection that
 * is made before the upstream is, so that a dead agent costs another start and
 * no request, and the peers that hand it over.  An agent that ends before it
 * has accepted anything is noticed where its connection is read.  Knows no
 * question to an engine.
 */

#include "ngx_http_sandbox_dagger_start.h"


/* ms */

#define NGX_HTTP_SANDBOX_PEER_RESOLVE  1000
#define NGX_HTTP_SANDBOX_PEER_CONNECT  500
#define NGX_HTTP_SANDBOX_PEER_PAUSE    10        /* doubled each time */
#define NGX_HTTP_SANDBOX_PEER_PAUSES   160
#define NGX_HTTP_SANDBOX_PEER_SILENT   4000      /* sooner, without a word */


static void ngx_http_sandbox_peer_resolved(ngx_resolver_ctx_t *resolving);
static ngx_uint_t ngx_http_sandbox_peer_astray(ngx_http_sandbox_session_t *s,
    in_addr_t address);
static ngx_int_t ngx_http_sandbox_peer_found(ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_peer_retry(ngx_http_sandbox_session_t *s);
static void ngx_http_sandbox_peer_event(ngx_event_t *ev);
static ngx_int_t ngx_http_sandbox_peer_refused(ngx_http_sandbox_session_t *s,
    ngx_err_t err);
static ngx_int_t ngx_http_sandbox_peer_connected(
    ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_peer_get(ngx_peer_connection_t *pc,
    void *data);
static void ngx_http_sandbox_peer_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static ssize_t ngx_http_sandbox_peer_recv(ngx_connection_t *c, u_char *buf,
    size_t size);
static ngx_chain_t *ngx_http_sandbox_peer_send_chain(ngx_connection_t *c,
    ngx_chain_t *in, off_t limit);
static ngx_uint_t ngx_http_sandbox_peer_unheard(
    ngx_http_sandbox_session_t *s);


ngx_int_t
ngx_http_sandbox_peer_resolve(ngx_http_sandbox_session_t *s)
{
    ngx_resolver_ctx_t  *resolving;

    if (s->engine->resolver == NULL) {
        return ngx_http_sandbox_dagger_unreached(s);
    }

    resolving = ngx_resolve_start(s->engine->resolver, NULL);

    if (resolving == NULL) {
        return NGX_ERROR;
    }

    if (resolving == NGX_NO_RESOLVER) {
        return ngx_http_sandbox_dagger_unreached(s);
    }

    resolving->name = s->host;
    resolving->handler = ngx_http_sandbox_peer_resolved;
    resolving->data = s;
    resolving->timeout = NGX_HTTP_SANDBOX_PEER_RESOLVE;

    s->resolving = resolving;
    s->request->connection->log->action = "looking for an agent";

    /* it may have been called by now, and the request be gone */

    if (ngx_resolve_name(resolving) != NGX_OK) {
        s->resolving = NULL;
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_peer_resolved(ngx_resolver_ctx_t *resolving)
{
    ngx_http_sandbox_session_t *s = resolving->data;

    ngx_int_t            state;
    ngx_uint_t           i;
    struct sockaddr_in  *sin;

    ngx_http_set_log_request(s->request->connection->log, s->request);

    state = resolving->state;
    s->agent.address = 0;

    for (i = 0; state == NGX_OK && i < resolving->naddrs; i++) {

        if (resolving->addrs[i].sockaddr->sa_family == AF_INET) {
            sin = (struct sockaddr_in *) resolving->addrs[i].sockaddr;

            if (ngx_http_sandbox_peer_astray(s, sin->sin_addr.s_addr)) {
                s->name.data = s->text;
                s->name.len = ngx_sock_ntop((struct sockaddr *) sin,
                                            sizeof(struct sockaddr_in),
                                            s->text, NGX_SOCKADDR_STRLEN, 0);

                ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                              "sandbox: \"resolver=\" of engine \"%V\" has "
                              "for an agent the address %V, which is no "
                              "container's: it is not connected to",
                              &s->engine->name, &s->name);
                continue;
            }

            s->agent.address = sin->sin_addr.s_addr;
            break;
        }
    }

    s->silent = (state == NGX_RESOLVE_TIMEDOUT);

    ngx_resolve_name_done(resolving);
    s->resolving = NULL;

    /* what follows may end the request: from an event of its own */

    ngx_http_sandbox_dagger_later(s, 0, ngx_http_sandbox_peer_found);
}


/*
 * Whoever answers for an engine must not lead us to services of this host, or
 * to those that a cloud has for it.  On loopback itself he may be trusted.
 */

static ngx_uint_t
ngx_http_sandbox_peer_astray(ngx_http_sandbox_session_t *s, in_addr_t address)
{
    uint32_t                    host, own;
    struct sockaddr            *sa;
    ngx_resolver_connection_t  *rec;

    host = ntohl(address);

    if (host >> 24 != 127) {
        return host >> 24 == 0 || host >> 16 == 0xa9fe || host >> 28 >= 0xe;
    }

    rec = s->engine->resolver->connections.elts;
    sa = rec[0].sockaddr;

    if (sa->sa_family != AF_INET) {
        return 1;
    }

    own = ntohl(((struct sockaddr_in *) sa)->sin_addr.s_addr);

    return own >> 24 != 127;
}


/* an engine tells its resolver of an agent at about the time of its start */

static ngx_int_t
ngx_http_sandbox_peer_found(ngx_http_sandbox_session_t *s)
{
    if (s->agent.address == 0) {
        return ngx_http_sandbox_peer_retry(s);
    }

    s->agent.exec = 0;
    ngx_http_sandbox_agent_place(s->zone, s->ctx->session, &s->agent);

    return ngx_http_sandbox_peer_connect(s);
}


/*
 * The agent is about to listen, or it is the one that has just ended: an
 * engine needs some tenths of a second to see that, and tells of the old one
 * meanwhile.  So it is asked again each time, which costs it nothing.
 */

static ngx_int_t
ngx_http_sandbox_peer_retry(ngx_http_sandbox_session_t *s)
{
    ngx_msec_int_t  left;

    left = (ngx_msec_int_t) (s->until - ngx_current_msec);

    if (s->silent) {

        /* who is busy is silent, too: where others are reached it may be so */

        left -= ngx_http_sandbox_engine_reached(s->zone, s->engine)
                ? NGX_HTTP_SANDBOX_PEER_SILENT
                : 2 * NGX_HTTP_SANDBOX_PEER_SILENT;
    }

    if (left <= 0) {
        return ngx_http_sandbox_dagger_unreached(s);
    }

    ngx_http_sandbox_dagger_later(s, s->pause, ngx_http_sandbox_dagger_restart);

    s->pause = ngx_min(2 * s->pause, NGX_HTTP_SANDBOX_PEER_PAUSES);

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_peer_connect(ngx_http_sandbox_session_t *s)
{
    ngx_int_t               rc;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *pc;

    ngx_memzero(&s->sockaddr, sizeof(struct sockaddr_in));

    s->sockaddr.sin_family = AF_INET;
    s->sockaddr.sin_port = htons(NGX_HTTP_SANDBOX_AGENT_PORT);
    s->sockaddr.sin_addr.s_addr = s->agent.address;

    s->name.data = s->text;
    s->name.len = ngx_sock_ntop((struct sockaddr *) &s->sockaddr,
                                sizeof(struct sockaddr_in), s->text,
                                NGX_SOCKADDR_STRLEN, 1);

    pc = &s->peer;
    ngx_memzero(pc, sizeof(ngx_peer_connection_t));

    pc->sockaddr = (struct sockaddr *) &s->sockaddr;
    pc->socklen = sizeof(struct sockaddr_in);
    pc->name = &s->name;
    pc->get = ngx_event_get_peer;
    pc->log = s->request->connection->log;
    pc->log_error = NGX_ERROR_INFO;

    pc->log->action = "connecting to an agent";

    rc = ngx_event_connect_peer(pc);

    if (rc == NGX_ERROR) {
        ngx_http_sandbox_peer_cancel(s);
        return NGX_ERROR;
    }

    if (rc == NGX_BUSY || rc == NGX_DECLINED) {
        return ngx_http_sandbox_peer_refused(s, ngx_socket_errno);
    }

    c = pc->connection;
    c->data = s;
    c->log = pc->log;
    c->read->log = c->log;
    c->write->log = c->log;

    if (rc == NGX_AGAIN) {
        c->read->handler = ngx_http_sandbox_peer_event;
        c->write->handler = ngx_http_sandbox_peer_event;

        ngx_add_timer(c->write, NGX_HTTP_SANDBOX_PEER_CONNECT);

        return NGX_OK;
    }

    return ngx_http_sandbox_peer_connected(s);
}


static void
ngx_http_sandbox_peer_event(ngx_event_t *ev)
{
    ngx_connection_t            *c;
    ngx_http_sandbox_session_t  *s;

    c = ev->data;
    s = c->data;

    ngx_http_sandbox_dagger_run(s, ngx_http_sandbox_peer_connected);
}


static ngx_int_t
ngx_http_sandbox_peer_connected(ngx_http_sandbox_session_t *s)
{
    int                err;
    socklen_t          len;
    ngx_connection_t  *c;

    c = s->peer.connection;

    if (c->write->timedout) {
        return ngx_http_sandbox_peer_refused(s, NGX_ETIMEDOUT);
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        return ngx_http_sandbox_peer_refused(s, err);
    }

    if (!c->write->ready) {
        return NGX_OK;
    }

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }

    (void) ngx_tcp_nodelay(c);

    ngx_http_sandbox_engine_route(s->zone, s->engine, 1);

    return ngx_http_sandbox_peer_send(s);
}


ngx_int_t
ngx_http_sandbox_peer_send(ngx_http_sandbox_session_t *s)
{
    s->sends++;
    s->coming = 0;
    s->told = 0;

    /* from here on it is the upstream's */

    return ngx_http_sandbox_upstream_start(s->request, s->ctx);
}


/* nothing was sent yet */

static ngx_int_t
ngx_http_sandbox_peer_refused(ngx_http_sandbox_session_t *s, ngx_err_t err)
{
    ngx_http_sandbox_peer_cancel(s);

    if (s->cached) {
        ngx_log_error(NGX_LOG_INFO, s->request->connection->log, err,
                      "sandbox: the agent at %V of engine \"%V\" is gone, "
                      "it is started again", &s->name, &s->engine->name);
    }

    ngx_http_sandbox_agent_change(s->zone, s->ctx->session,
                                  NGX_HTTP_SANDBOX_AGENT_SILENT, &s->agent);

    s->silent = (err != NGX_ECONNREFUSED && err != NGX_ECONNRESET);

    if (s->cached) {
        return ngx_http_sandbox_dagger_again(s);
    }

    return ngx_http_sandbox_peer_retry(s);
}


void
ngx_http_sandbox_peer_cancel(ngx_http_sandbox_session_t *s)
{
    if (s->event.timer_set) {
        ngx_del_timer(&s->event);
    }

    if (s->event.posted) {
        ngx_delete_posted_event(&s->event);
    }

    if (s->resolving) {
        ngx_resolve_name_done(s->resolving);
        s->resolving = NULL;
    }

    if (s->peer.connection) {
        ngx_close_connection(s->peer.connection);
        s->peer.connection = NULL;
    }
}


ngx_int_t
ngx_http_sandbox_dagger_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_http_upstream_t     *u;
    ngx_http_sandbox_ctx_t  *ctx;

    u = r->upstream;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    u->peer.data = ctx->dagger;
    u->peer.get = ngx_http_sandbox_peer_get;
    u->peer.free = ngx_http_sandbox_peer_free;
    u->peer.tries = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_peer_get(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_sandbox_session_t *s = data;

    ngx_connection_t  *c;

    c = s->peer.connection;

    if (c == NULL) {
        return NGX_BUSY;
    }

    s->peer.connection = NULL;

    pc->connection = c;
    pc->sockaddr = (struct sockaddr *) &s->sockaddr;
    pc->socklen = sizeof(struct sockaddr_in);
    pc->name = &s->name;

    s->recv = c->recv;
    s->send_chain = c->send_chain;

    c->recv = ngx_http_sandbox_peer_recv;
    c->send_chain = ngx_http_sandbox_peer_send_chain;

    return NGX_DONE;
}


/* what can be sent again is so by us, never by nginx */

static void
ngx_http_sandbox_peer_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_http_sandbox_session_t *s = data;

    ngx_connection_t         *c;
    ngx_http_sandbox_wire_t  *wire;

    pc->tries = 0;

    if (!(state & NGX_PEER_FAILED)) {
        return;
    }

    c = pc->connection;
    wire = &s->ctx->wire;

    wire->connected = 1;
    wire->timedout = s->told || (c != NULL && (c->read->timedout
                                               || c->write->timedout));

    ngx_http_sandbox_agent_change(s->zone, s->ctx->session,
                                  NGX_HTTP_SANDBOX_AGENT_SILENT, &s->agent);
}


/* an agent that goes because it was idle may have us in its backlog */

static ssize_t
ngx_http_sandbox_peer_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    ssize_t                      n;
    ngx_http_request_t          *r;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_session_t  *s;

    r = c->data;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    s = ctx->dagger;

    n = s->recv(c, buf, size);

    if (n > 0 || n == NGX_AGAIN) {
        return n;
    }

    ngx_http_sandbox_agent_change(s->zone, ctx->session,
                                  NGX_HTTP_SANDBOX_AGENT_SILENT, &s->agent);

    if (s->sends > 1 || !ngx_http_sandbox_peer_unheard(s)
        || !ngx_http_sandbox_peer_repeatable(s))
    {
        return n;
    }

    ngx_http_sandbox_peer_repeat(s);

    return NGX_AGAIN;
}


/* an answer may have come before it was closed: reading tells */

static ngx_chain_t *
ngx_http_sandbox_peer_send_chain(ngx_connection_t *c, ngx_chain_t *in,
    off_t limit)
{
    ngx_chain_t                 *cl;
    ngx_http_request_t          *r;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_session_t  *s;

    r = c->data;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    s = ctx->dagger;

    cl = s->send_chain(c, in, limit);

    if (cl != NGX_CHAIN_ERROR || !ngx_http_sandbox_peer_unheard(s)) {
        return cl;
    }

    c->write->ready = 0;
    c->read->ready = 1;
    c->read->available = -1;

    ngx_post_event(c->read, &ngx_posted_events);

    return in;
}


/* no HEAD, no ERROR: nothing was started */

static ngx_uint_t
ngx_http_sandbox_peer_unheard(ngx_http_sandbox_session_t *s)
{
    ngx_http_sandbox_wire_t  *wire;

    wire = &s->ctx->wire;

    return !wire->head_seen && !wire->done && !wire->bad && !s->told
           && !s->request->upstream->header_sent;
}


ngx_uint_t
ngx_http_sandbox_peer_repeatable(ngx_http_sandbox_session_t *s)
{
    return !ngx_http_sandbox_stage_sent(s->ctx)
           && (!s->request->request_body_no_buffering
               || !s->request->upstream->request_sent);
}


void
ngx_http_sandbox_peer_repeat(ngx_http_sandbox_session_t *s)
{
    ngx_http_sandbox_stage_silence(s->request);

    /* it is nobody's to cancel */

    s->ctx->wire.done = 1;
    ngx_memzero(&s->ctx->problem, sizeof(ngx_http_sandbox_problem_t));

    ngx_http_sandbox_dagger_later(s, 0, ngx_http_sandbox_dagger_again);
}
