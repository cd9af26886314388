/*
 * The way of an operation where no agent can be connected to: its request is
 * gathered, goes with one exec of the engine as base64, and so comes what the
 * agent answers.  To the upstream all this is a connection, the other end of a
 * pair of sockets, so that nothing of it has to know.  Knows no operation but
 * for those that it can't have.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_dagger_start.h"
#include "ngx_http_sandbox_stream.h"


#define NGX_HTTP_SANDBOX_EXEC_PIECE    (48 * 1024)   /* a multiple of 3 */
#define NGX_HTTP_SANDBOX_EXEC_SPARE    (512 * 1024)  /* of logs and fields */
#define NGX_HTTP_SANDBOX_EXEC_WAIT     90000     /* ms, for those before it */
#define NGX_HTTP_SANDBOX_EXEC_FILES    60000     /* ms, without a command */
#define NGX_HTTP_SANDBOX_EXEC_LOOK     5000
#define NGX_HTTP_SANDBOX_EXEC_PAUSE    200


/* what is read of the request */

typedef enum {
    NGX_HTTP_SANDBOX_EXEC_PREAMBLE = 0,
    NGX_HTTP_SANDBOX_EXEC_BYTES,                 /* x->left of them */
    NGX_HTTP_SANDBOX_EXEC_LENGTH,                /* of a chunk */
    NGX_HTTP_SANDBOX_EXEC_WHOLE
} ngx_http_sandbox_exec_state_e;


typedef struct {
    ngx_http_sandbox_session_t    *session;
    ngx_connection_t              *connection;   /* our end; NULL: closed */
    ngx_event_t                    timer;
    ngx_chain_t                   *text;         /* base64 */
    ngx_chain_t                   *last;
    ngx_buf_t                     *answer;

    ngx_uint_t                     state;        /* ..._exec_state_e */
    u_char                         start[SANDBOX_WIRE_PREAMBLE_SIZE];
    size_t                         have;         /* bytes of start */
    uint64_t                       left;
    uint64_t                       size;         /* of all */
    u_char                         carry[3];
    size_t                         carried;

    unsigned                       chunked:1;
    unsigned                       asked:1;

    u_char                         piece[NGX_HTTP_SANDBOX_EXEC_PIECE];
} ngx_http_sandbox_exec_t;


static ngx_uint_t ngx_http_sandbox_exec_unfit(ngx_http_sandbox_session_t *s);
static ngx_connection_t *ngx_http_sandbox_exec_end(
    ngx_http_sandbox_session_t *s, ngx_socket_t fd);
static void ngx_http_sandbox_exec_cleanup(void *data);
static void ngx_http_sandbox_exec_close(ngx_http_sandbox_exec_t *x);
static void ngx_http_sandbox_exec_read(ngx_event_t *rev);
static ngx_int_t ngx_http_sandbox_exec_gather(ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_exec_take(ngx_http_sandbox_exec_t *x,
    u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_exec_begin(ngx_http_sandbox_exec_t *x);
static void ngx_http_sandbox_exec_next(ngx_http_sandbox_exec_t *x);
static ngx_int_t ngx_http_sandbox_exec_encode(ngx_http_sandbox_exec_t *x,
    u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_exec_text(ngx_http_sandbox_exec_t *x,
    u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_exec_ask(ngx_http_sandbox_exec_t *x);
static void ngx_http_sandbox_exec_alive(ngx_event_t *ev);
static void ngx_http_sandbox_exec_answered(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q);
static ngx_int_t ngx_http_sandbox_exec_done(ngx_http_sandbox_session_t *s);
static ngx_int_t ngx_http_sandbox_exec_failed(ngx_http_sandbox_session_t *s);
static void ngx_http_sandbox_exec_write(ngx_event_t *wev);


ngx_int_t
ngx_http_sandbox_exec(ngx_http_sandbox_session_t *s)
{
    ngx_socket_t              fd[2];
    ngx_connection_t         *c;
    ngx_http_cleanup_t       *cln;
    ngx_http_sandbox_exec_t  *x;

    if (ngx_http_sandbox_exec_unfit(s)) {
        return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_NOT_IMPLEMENTED,
                                              "not_on_this_backend",
                                              "The engine's containers are "
                                              "out of this server's reach: "
                                              "streams, stdin, background "
                                              "commands and commands by "
                                              "their id are not to be had.");
    }

    x = ngx_pcalloc(s->request->pool, sizeof(ngx_http_sandbox_exec_t));
    cln = x ? ngx_http_cleanup_add(s->request, 0) : NULL;

    if (cln == NULL) {
        return NGX_ERROR;
    }

    /* one before it may have something left that nobody reads */

    if (s->execution) {
        ngx_http_sandbox_exec_close(s->execution);
    }

    x->session = s;
    s->execution = x;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, fd)
        == -1)
    {
        ngx_log_error(NGX_LOG_ALERT, s->request->connection->log, ngx_errno,
                      "socketpair() failed");
        return NGX_ERROR;
    }

    x->connection = ngx_http_sandbox_exec_end(s, fd[0]);

    if (x->connection == NULL) {
        ngx_close_socket(fd[1]);
        return NGX_ERROR;
    }

    cln->handler = ngx_http_sandbox_exec_cleanup;
    cln->data = x;

    c = x->connection;
    c->data = x;
    c->read->handler = ngx_http_sandbox_exec_read;
    c->write->handler = ngx_http_sandbox_exec_write;

    x->timer.handler = ngx_http_sandbox_exec_alive;
    x->timer.data = x;
    x->timer.log = s->request->connection->log;

    s->peer.connection = ngx_http_sandbox_exec_end(s, fd[1]);

    if (s->peer.connection == NULL) {
        return NGX_ERROR;
    }

    /* for logs, and as the zone has it */

    s->name = s->engine->name;
    s->agent.address = 0;
    s->agent.exec = 1;

    ngx_http_sandbox_agent_place(s->zone, s->ctx->session, &s->agent);

    return ngx_http_sandbox_peer_send(s);
}


/* what needs somebody who lives on, or is heard meanwhile */

static ngx_uint_t
ngx_http_sandbox_exec_unfit(ngx_http_sandbox_session_t *s)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = s->ctx;

    switch (ctx->wire.operation) {

    case SANDBOX_OPERATION_ATTACH:
    case SANDBOX_OPERATION_CANCEL:
    case SANDBOX_OPERATION_STDIN:
        return 1;

    case SANDBOX_OPERATION_COMMAND:
        return ctx->stream != NULL || ctx->background;

    default:
        return 0;
    }
}


/* as nginx makes one that is connected */

static ngx_connection_t *
ngx_http_sandbox_exec_end(ngx_http_sandbox_session_t *s, ngx_socket_t fd)
{
    ngx_log_t         *log;
    ngx_connection_t  *c;

    log = s->request->connection->log;

    c = ngx_get_connection(fd, log);

    if (c == NULL) {
        ngx_close_socket(fd);
        return NULL;
    }

    c->type = SOCK_STREAM;
    c->recv = ngx_recv;
    c->send = ngx_send;
    c->recv_chain = ngx_recv_chain;
    c->send_chain = ngx_send_chain;
    c->sendfile = 1;
    c->log_error = NGX_ERROR_ERR;
    c->tcp_nopush = NGX_TCP_NOPUSH_DISABLED;
    c->tcp_nodelay = NGX_TCP_NODELAY_DISABLED;
    c->log = log;
    c->read->log = log;
    c->write->log = log;
    c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);
    c->start_time = ngx_current_msec;

    if (ngx_add_conn) {

        if (ngx_add_conn(c) == NGX_ERROR) {
            ngx_close_connection(c);
            return NULL;
        }

    } else if (ngx_add_event(c->read, NGX_READ_EVENT,
                             (ngx_event_flags & NGX_USE_CLEAR_EVENT)
                             ? NGX_CLEAR_EVENT : NGX_LEVEL_EVENT)
               != NGX_OK)
    {
        ngx_close_connection(c);
        return NULL;
    }

    c->write->ready = 1;

    return c;
}


static void
ngx_http_sandbox_exec_cleanup(void *data)
{
    ngx_http_sandbox_exec_t *x = data;

    ngx_http_sandbox_exec_close(x);
}


static void
ngx_http_sandbox_exec_close(ngx_http_sandbox_exec_t *x)
{
    if (x->timer.timer_set) {
        ngx_del_timer(&x->timer);
    }

    if (x->connection) {
        ngx_close_connection(x->connection);
        x->connection = NULL;
    }
}


static void
ngx_http_sandbox_exec_read(ngx_event_t *rev)
{
    ngx_connection_t         *c;
    ngx_http_sandbox_exec_t  *x;

    c = rev->data;
    x = c->data;

    ngx_http_sandbox_dagger_run(x->session, ngx_http_sandbox_exec_gather);
}


static ngx_int_t
ngx_http_sandbox_exec_gather(ngx_http_sandbox_session_t *s)
{
    ssize_t                   n;
    ngx_int_t                 rc;
    ngx_connection_t         *c;
    ngx_http_sandbox_exec_t  *x;

    x = s->execution;
    c = x->connection;

    for ( ;; ) {

        n = c->recv(c, x->piece, NGX_HTTP_SANDBOX_EXEC_PIECE);

        if (n == NGX_AGAIN) {
            return ngx_handle_read_event(c->read, 0);
        }

        if (n <= 0) {

            /* the upstream is gone, and with it who wanted this */

            ngx_http_sandbox_exec_close(x);
            return NGX_OK;
        }

        /* CANCEL comes with the end of the request, which ends the query */

        if (x->asked) {
            continue;
        }

        rc = ngx_http_sandbox_exec_take(x, x->piece, (size_t) n);

        /* the answer ends the request: nothing more is read for it */

        if (rc == NGX_DECLINED) {
            ngx_http_sandbox_exec_close(x);
            return ngx_http_sandbox_dagger_refuse(s,
                                              NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                              "body_too_large",
                                              "By this way to the engine a "
                                              "request may have at most "
                                              "67108864 bytes.");
        }

        if (rc == NGX_OK && x->state == NGX_HTTP_SANDBOX_EXEC_WHOLE) {
            x->asked = 1;
            rc = ngx_http_sandbox_exec_ask(x);
        }

        if (rc != NGX_OK) {
            ngx_http_sandbox_exec_close(x);
            return rc == NGX_BUSY ? ngx_http_sandbox_dagger_problem(s)
                                  : NGX_ERROR;
        }
    }
}


/*
 * It is our own, so it is only counted.  NGX_DECLINED: too much; NGX_BUSY: its
 * tenant has no memory for it, which ctx->problem says.
 */

static ngx_int_t
ngx_http_sandbox_exec_take(ngx_http_sandbox_exec_t *x, u_char *p, size_t n)
{
    size_t     m, want;
    ngx_int_t  rc;

    x->size += n;

    if (x->size > SANDBOX_WIRE_MAX_BODY) {
        return NGX_DECLINED;
    }

    rc = ngx_http_sandbox_exec_encode(x, p, n);

    if (rc != NGX_OK) {
        return rc;
    }

    while (n && x->state != NGX_HTTP_SANDBOX_EXEC_WHOLE) {

        if (x->state == NGX_HTTP_SANDBOX_EXEC_BYTES) {
            m = (size_t) ngx_min((uint64_t) n, x->left);
            x->left -= m;
            p += m;
            n -= m;

            if (x->left == 0) {
                ngx_http_sandbox_exec_next(x);
            }

            continue;
        }

        want = (x->state == NGX_HTTP_SANDBOX_EXEC_PREAMBLE)
               ? SANDBOX_WIRE_PREAMBLE_SIZE : SANDBOX_WIRE_CHUNK_SIZE;

        m = ngx_min(n, want - x->have);
        ngx_memcpy(x->start + x->have, p, m);
        x->have += m;
        p += m;
        n -= m;

        if (x->have < want) {
            continue;
        }

        x->have = 0;

        if (x->state == NGX_HTTP_SANDBOX_EXEC_LENGTH) {
            x->left = sandbox_get32(x->start);
            x->state = x->left ? NGX_HTTP_SANDBOX_EXEC_BYTES
                               : NGX_HTTP_SANDBOX_EXEC_WHOLE;
            continue;
        }

        if (ngx_http_sandbox_exec_begin(x) != NGX_OK) {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_exec_begin(ngx_http_sandbox_exec_t *x)
{
    sandbox_preamble_t  preamble;

    if (sandbox_preamble_read(x->start, &preamble) != SANDBOX_OK) {
        return NGX_DECLINED;
    }

    x->chunked = (preamble.body == SANDBOX_WIRE_BODY_CHUNKED);
    x->left = preamble.head;

    if (!x->chunked) {

        if (preamble.body > SANDBOX_WIRE_MAX_BODY) {
            return NGX_DECLINED;
        }

        x->left += preamble.body;
    }

    x->state = NGX_HTTP_SANDBOX_EXEC_BYTES;

    if (x->left == 0) {
        ngx_http_sandbox_exec_next(x);
    }

    return NGX_OK;
}


/* head, or a chunk, is over */

static void
ngx_http_sandbox_exec_next(ngx_http_sandbox_exec_t *x)
{
    x->state = x->chunked ? NGX_HTTP_SANDBOX_EXEC_LENGTH
                          : NGX_HTTP_SANDBOX_EXEC_WHOLE;
}


/* three bytes are four letters: what is left over waits */

static ngx_int_t
ngx_http_sandbox_exec_encode(ngx_http_sandbox_exec_t *x, u_char *p, size_t n)
{
    size_t     m;
    ngx_int_t  rc;

    while (n && x->carried && x->carried < 3) {
        x->carry[x->carried++] = *p++;
        n--;
    }

    if (x->carried == 3) {
        x->carried = 0;
        rc = ngx_http_sandbox_exec_text(x, x->carry, 3);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    m = n - n % 3;
    rc = m ? ngx_http_sandbox_exec_text(x, p, m) : NGX_OK;

    if (rc != NGX_OK) {
        return rc;
    }

    for ( /* void */ ; m < n; m++) {
        x->carry[x->carried++] = p[m];
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_exec_text(ngx_http_sandbox_exec_t *x, u_char *p, size_t n)
{
    size_t                       size;
    ngx_int_t                    rc;
    ngx_buf_t                   *b;
    ngx_str_t                    src, dst;
    ngx_chain_t                 *cl;
    ngx_http_sandbox_session_t  *s;

    s = x->session;
    src.data = p;
    src.len = n;

    size = ngx_base64_encoded_length(n);
    b = x->last ? x->last->buf : NULL;

    if (b == NULL || (size_t) (b->end - b->last) < size) {

        size = ngx_max(size, 4096);
        rc = ngx_http_sandbox_budget_take(s->request, s->ctx, size);

        if (rc != NGX_OK) {
            return rc == NGX_DECLINED ? NGX_BUSY : NGX_ERROR;
        }

        b = ngx_create_temp_buf(s->request->pool, size);
        cl = ngx_alloc_chain_link(s->request->pool);

        if (b == NULL || cl == NULL) {
            return NGX_ERROR;
        }

        cl->buf = b;
        cl->next = NULL;

        if (x->last) {
            x->last->next = cl;

        } else {
            x->text = cl;
        }

        x->last = cl;
    }

    dst.data = b->last;
    ngx_encode_base64(&dst, &src);
    b->last += dst.len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_exec_ask(ngx_http_sandbox_exec_t *x)
{
    size_t                        max;
    ngx_int_t                     rc;
    ngx_msec_t                    timeout;
    ngx_uint_t                    command;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_session_t   *s;
    ngx_http_sandbox_loc_conf_t  *slcf;

    s = x->session;
    ctx = s->ctx;
    slcf = ngx_http_get_module_loc_conf(s->request, ngx_http_sandbox_module);

    rc = x->carried ? ngx_http_sandbox_exec_text(x, x->carry, x->carried)
                    : NGX_OK;

    if (rc != NGX_OK) {
        return rc;
    }

    command = (ctx->wire.operation == SANDBOX_OPERATION_COMMAND);

    max = command ? 2 * (size_t) slcf->caps.output
                  : (size_t) SANDBOX_WIRE_MAX_BODY;
    max = ngx_base64_encoded_length(max) + NGX_HTTP_SANDBOX_EXEC_SPARE;

    timeout = NGX_HTTP_SANDBOX_EXEC_WAIT
              + (command ? slcf->caps.wall_time
                         : NGX_HTTP_SANDBOX_EXEC_FILES);

    ngx_http_sandbox_engine_count(s->zone, s->engine,
                                  NGX_HTTP_SANDBOX_ENGINE_EXECS);

    ngx_add_timer(&x->timer, NGX_HTTP_SANDBOX_EXEC_LOOK);

    /* a lost connection ends no command, unless its client wants that */

    return ngx_http_sandbox_ask_exec(s, x->text, x->last, max, timeout,
                                     command && !ctx->cancel,
                                     ngx_http_sandbox_exec_answered);
}


/* nobody sends PING meanwhile; the query has a deadline of its own */

static void
ngx_http_sandbox_exec_alive(ngx_event_t *ev)
{
    ngx_http_sandbox_exec_t *x = ev->data;

    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = x->session->request->upstream;
    c = u ? u->peer.connection : NULL;

    if (c && c->read->timer_set) {
        ngx_add_timer(c->read, u->conf->read_timeout);
    }

    ngx_add_timer(&x->timer, NGX_HTTP_SANDBOX_EXEC_LOOK);
}


static void
ngx_http_sandbox_exec_answered(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q)
{
    ngx_http_sandbox_dagger_run(q->data, ngx_http_sandbox_exec_done);
}


static ngx_int_t
ngx_http_sandbox_exec_done(ngx_http_sandbox_session_t *s)
{
    json_t                    *text;
    ngx_str_t                  src, dst;
    ngx_http_sandbox_exec_t   *x;
    ngx_http_sandbox_query_t  *q;

    x = s->execution;
    q = &s->query;

    if (x->timer.timer_set) {
        ngx_del_timer(&x->timer);
    }

    /* the upstream has gone: the request has its answer */

    if (x->connection == NULL) {
        return NGX_OK;
    }

    if (q->status == NGX_BUSY) {
        ngx_http_sandbox_exec_close(x);
        return ngx_http_sandbox_dagger_problem(s);
    }

    if (q->status != NGX_OK && !(q->status == NGX_DECLINED && q->exec_error)) {
        return ngx_http_sandbox_exec_failed(s);
    }

    if (q->status == NGX_OK) {
        text = ngx_http_sandbox_ask_exec_read(s);
        src.data = (u_char *) json_string_value(text);
        src.len = json_string_length(text);

    } else {
        src = q->output;
    }

    while (src.len && (src.data[src.len - 1] == '\n'
                       || src.data[src.len - 1] == '\r'))
    {
        src.len--;
    }

    /* of one that was killed the end is missing, perhaps that of HEAD */

    s->told = (src.len != 0);
    src.len -= src.len % 4;

    x->answer = ngx_create_temp_buf(s->request->pool,
                                    ngx_base64_decoded_length(src.len) + 1);
    if (x->answer == NULL) {
        return NGX_ERROR;
    }

    ngx_http_sandbox_budget_add(s->ctx, x->answer->end - x->answer->start);

    dst.data = x->answer->pos;
    dst.len = 0;

    if (src.len && ngx_decode_base64(&dst, &src) != NGX_OK) {
        dst.len = 0;
    }

    /* an agent that could say so much may have done it: not once more */

    if (s->told && dst.len == 0) {
        q->status = NGX_ERROR;
    }

    if (dst.len == 0) {
        ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                      "sandbox: an agent by an exec of engine \"%V\" gave no "
                      "answer: is the agent of \"sandbox_dagger_image\" of "
                      "this release?", &s->engine->name);
    }

    if (q->status == NGX_ERROR) {
        return ngx_http_sandbox_exec_failed(s);
    }

    x->answer->last = dst.data + dst.len;

    ngx_http_sandbox_exec_write(x->connection->write);

    return NGX_OK;
}


/* nothing has reached the client; a command that may have begun is lost */

static ngx_int_t
ngx_http_sandbox_exec_failed(ngx_http_sandbox_session_t *s)
{
    ngx_uint_t                 again;
    ngx_http_sandbox_query_t  *q;

    q = &s->query;
    again = (s->sends < 2 && ngx_http_sandbox_peer_repeatable(s));

    ngx_http_sandbox_engines_doubt(s->zone);
    ngx_http_sandbox_exec_close(s->execution);

    if (q->status == NGX_ERROR
        || (q->begun && s->ctx->wire.operation == SANDBOX_OPERATION_COMMAND))
    {
        return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_SERVICE_UNAVAILABLE,
                                              "runner_lost",
                                              "The engine stopped answering; "
                                              "what was asked for may still "
                                              "happen.");
    }

    if (again) {
        ngx_http_sandbox_stage_silence(s->request);
        s->ctx->wire.done = 1;
        ngx_http_sandbox_dagger_later(s, NGX_HTTP_SANDBOX_EXEC_PAUSE,
                                      ngx_http_sandbox_dagger_again);
        return NGX_OK;
    }

    if (q->status == NGX_DECLINED) {
        return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_BAD_GATEWAY,
                                              "engine_failed",
                                              "The engine could not start "
                                              "the sandbox; nothing was "
                                              "started.");
    }

    return ngx_http_sandbox_dagger_refuse(s, NGX_HTTP_SERVICE_UNAVAILABLE,
                                          "engine_unreachable",
                                          "The engine of this conversation "
                                          "does not answer; nothing was "
                                          "started.");
}


static void
ngx_http_sandbox_exec_write(ngx_event_t *wev)
{
    ssize_t                   n;
    ngx_buf_t                *b;
    ngx_connection_t         *c;
    ngx_http_sandbox_exec_t  *x;

    c = wev->data;
    x = c->data;
    b = x->answer;

    if (b == NULL) {
        return;
    }

    while (b->pos < b->last) {

        n = c->send(c, b->pos, b->last - b->pos);

        if (n == NGX_AGAIN) {
            if (ngx_handle_write_event(wev, 0) != NGX_OK) {
                ngx_http_sandbox_exec_close(x);
            }

            return;
        }

        if (n <= 0) {
            break;
        }

        b->pos += n;
    }

    /* what was sent stays there to be read */

    ngx_http_sandbox_exec_close(x);
}
