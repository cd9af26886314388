/*
 * The socket that nginx asks: where the engines are, and by which session to
 * speak to them; and tells: the egress policies.  Two questions, PING and
 * EGRESS; commands never come this way.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "dagger.h"
#include "listen.h"
#include "log.h"
#include "peer.h"


#define DAGGER_SERVE_CONNS  256
#define DAGGER_SERVE_HEAD   4096
#define DAGGER_SERVE_WAIT   5000         /* ms, for all of a question, */
#define DAGGER_SERVE_TABLE  10000        /* of a table of policies */


/* HEAD is one number; behind it and a frame's start are a RESULT's fields */

#define DAGGER_SERVE_STATUS  (SANDBOX_WIRE_FIELD_SIZE + 8)
#define DAGGER_SERVE_START   (DAGGER_SERVE_STATUS                            \
                              + 2 * SANDBOX_WIRE_FRAME_SIZE)


typedef struct {
    runner_later_t      later;
    runner_event_t      event;
    runner_timer_t      timer;
    dagger_t           *dagger;
    int                 answered;
    sandbox_preamble_t  preamble;
    size_t              size;
    size_t              lingered;
    uint8_t            *table;           /* of EGRESS; NULL: not begun */
    size_t              have;            /* bytes of it */
    uint8_t             in[SANDBOX_WIRE_PREAMBLE_SIZE + DAGGER_SERVE_HEAD];
} dagger_conn_t;


static void dagger_serve_accept(runner_event_t *event, uint32_t events);
static void dagger_serve_event(runner_event_t *event, uint32_t events);
static void dagger_serve_late(void *data);
static void dagger_serve_request(dagger_conn_t *conn);
static const char *dagger_serve_detail(const char *code);
static const char *dagger_serve_check(dagger_conn_t *conn);
static void dagger_serve_refuse(dagger_conn_t *conn, const char *code,
    const char *detail);
static void dagger_serve_upload(dagger_conn_t *conn);
static void dagger_serve_body(dagger_conn_t *conn);
static void dagger_serve_taken(dagger_conn_t *conn);
static void dagger_serve_answer(dagger_conn_t *conn);
static void dagger_serve_result(dagger_conn_t *conn, uint8_t *b, size_t size);
static void dagger_serve_engine(sandbox_writer_t *w, dagger_engine_t *engine,
    const char *proxy);
static void dagger_serve_close(dagger_conn_t *conn);


int
dagger_serve_start(dagger_t *dagger, runner_error_t *err)
{
    if (runner_listen_check(dagger->options, err) == -1) {
        return -1;
    }

    dagger->listener.fd = runner_listen(dagger->options, &dagger->listening,
                                        err);

    if (dagger->listener.fd == -1) {
        return -1;
    }

    dagger->listener.handler = dagger_serve_accept;
    dagger->listener.data = dagger;

    if (runner_event_add(&dagger->loop, &dagger->listener, EPOLLIN) == -1) {
        return runner_error(err, "internal", errno, "epoll");
    }

    return 0;
}


void
dagger_serve_end(dagger_t *dagger)
{
    runner_event_remove(&dagger->loop, &dagger->listener);
    close(dagger->listener.fd);

    if (dagger->listening) {
        (void) unlink(dagger->options->socket);
    }
}


static void
dagger_serve_accept(runner_event_t *event, uint32_t events)
{
    int             fd;
    dagger_t       *dagger;
    dagger_conn_t  *conn;

    dagger = event->data;

    /* who comes then waits: those before have some seconds at most */

    if (dagger->conns >= DAGGER_SERVE_CONNS) {
        (void) runner_event_change(&dagger->loop, event, 0);
        return;
    }

    fd = accept4(event->fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
    if (fd == -1) {
        return;
    }

    conn = calloc(1, sizeof(dagger_conn_t));

    if (conn == NULL) {
        close(fd);
        return;
    }

    dagger->conns++;

    conn->dagger = dagger;
    conn->event.fd = fd;
    conn->event.handler = dagger_serve_event;
    conn->event.data = conn;
    conn->timer.handler = dagger_serve_late;
    conn->timer.data = conn;

    if (runner_event_add(&dagger->loop, &conn->event, EPOLLIN) == -1
        || runner_timer_start(&dagger->loop, &conn->timer, DAGGER_SERVE_WAIT)
           == -1)
    {
        dagger_serve_close(conn);
    }
}


static void
dagger_serve_late(void *data)
{
    dagger_serve_close(data);
}


static void
dagger_serve_event(runner_event_t *event, uint32_t events)
{
    size_t          size;
    ssize_t         n;
    dagger_conn_t  *conn;

    conn = event->data;

    if (conn->answered) {

        /* reads away what would turn the close into a reset */

        n = recv(event->fd, conn->in, sizeof(conn->in), 0);

        if (n > 0) {
            conn->lingered += (size_t) n;
        }

        if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)
            || conn->lingered > SANDBOX_WIRE_LINGER_BYTES)
        {
            dagger_serve_close(conn);
        }

        return;
    }

    if (conn->table != NULL) {
        dagger_serve_body(conn);
        return;
    }

    size = SANDBOX_WIRE_PREAMBLE_SIZE;

    if (conn->size >= size) {
        size += conn->preamble.head;
    }

    n = recv(event->fd, conn->in + conn->size, size - conn->size, 0);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }

    if (n <= 0) {
        dagger_serve_close(conn);
        return;
    }

    conn->size += (size_t) n;

    if (conn->size == size) {
        dagger_serve_request(conn);
    }
}


static void
dagger_serve_request(dagger_conn_t *conn)
{
    const char  *code;

    if (conn->size == SANDBOX_WIRE_PREAMBLE_SIZE) {

        code = dagger_serve_check(conn);

        if (code != NULL) {
            dagger_serve_refuse(conn, code, dagger_serve_detail(code));
            return;
        }

        if (conn->preamble.head != 0) {
            return;
        }
    }

    if (conn->preamble.operation == SANDBOX_OPERATION_EGRESS) {
        dagger_serve_upload(conn);
        return;
    }

    /* limits of a zone, for a runner that has sandboxes: not for this one */

    dagger_serve_answer(conn);
}


static const char *
dagger_serve_detail(const char *code)
{
    if (strcmp(code, "unauthorized_peer") == 0) {
        return "sandbox-runner --dagger does not take this user or key: "
               "sandbox_runner_key and its --key-file must be the same; its "
               "log says which.";
    }

    if (strcmp(code, "not_on_this_backend") == 0) {
        return "sandbox-runner --dagger holds sessions of engines, nothing "
               "else; an engine is drained by taking it out of "
               "sandbox_dagger.";
    }

    return "The request is not for the owner of engine sessions.";
}


/* NULL, or the code of what is wrong */

static const char *
dagger_serve_check(dagger_conn_t *conn)
{
    const uint8_t     *p;
    runner_options_t  *options;

    p = conn->in;
    options = conn->dagger->options;

    if (!runner_peer_allowed(options, conn->event.fd)) {
        runner_peer_refused(conn->event.fd, "user");
        return "unauthorized_peer";
    }

    if (memcmp(p, SANDBOX_WIRE_MAGIC, SANDBOX_WIRE_MAGIC_SIZE) != 0) {
        return "bad_request";
    }

    if (!sandbox_equal(p + 32, options->key, SANDBOX_WIRE_KEY_SIZE)) {
        runner_peer_refused(conn->event.fd, "key");
        return "unauthorized_peer";
    }

    if (p[7] < SANDBOX_WIRE_VERSION_MIN || p[7] > SANDBOX_WIRE_VERSION) {
        return "version_mismatch";
    }

    if (sandbox_preamble_read(p, &conn->preamble) != SANDBOX_OK
        || conn->preamble.head > DAGGER_SERVE_HEAD
        || conn->preamble.body
           > (conn->preamble.operation == SANDBOX_OPERATION_EGRESS
              ? SANDBOX_WIRE_MAX_TABLE : 0))
    {
        return "bad_request";
    }

    explicit_bzero(conn->preamble.key, sizeof(conn->preamble.key));
    explicit_bzero(conn->in + 32, SANDBOX_WIRE_KEY_SIZE);

    return conn->preamble.operation == SANDBOX_OPERATION_PING
           || conn->preamble.operation == SANDBOX_OPERATION_EGRESS
           ? NULL : "not_on_this_backend";
}


/* one at a time, as nobody sends it more often */

static void
dagger_serve_upload(dagger_conn_t *conn)
{
    dagger_t  *dagger;

    dagger = conn->dagger;
    conn->table = dagger_egress_room(dagger, conn->preamble.body);

    if (conn->table == NULL) {
        dagger_serve_refuse(conn, "at_capacity", "Another table of egress "
                            "policies is being read, or there is no memory.");
        return;
    }

    if (runner_timer_start(&dagger->loop, &conn->timer, DAGGER_SERVE_TABLE)
        == -1)
    {
        dagger_serve_close(conn);
        return;
    }

    dagger_serve_body(conn);
}


static void
dagger_serve_body(dagger_conn_t *conn)
{
    ssize_t  n;

    if (conn->have < conn->preamble.body) {
        n = recv(conn->event.fd, conn->table + conn->have,
                 conn->preamble.body - conn->have, 0);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }

        if (n <= 0) {
            dagger_serve_close(conn);
            return;
        }

        conn->have += (size_t) n;
    }

    if (conn->have == conn->preamble.body) {
        dagger_serve_taken(conn);
    }
}


/* in force as a whole, or refused as a whole */

static void
dagger_serve_taken(dagger_conn_t *conn)
{
    int               rc;
    uint8_t          *table, b[DAGGER_SERVE_START + 64];
    const uint8_t    *digest;
    sandbox_writer_t  w;

    table = conn->table;
    conn->table = NULL;

    rc = dagger_egress_take(conn->dagger,
                            conn->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                            conn->preamble.head, table, conn->have, &digest);
    if (rc == -1) {
        dagger_serve_refuse(conn, "bad_request", "The table of egress "
                            "policies is malformed.");
        return;
    }

    sandbox_writer_init(&w, b + DAGGER_SERVE_START, 64);
    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_DIGEST, digest,
                        SANDBOX_WIRE_DIGEST_SIZE);

    dagger_serve_result(conn, b, (size_t) (w.pos - w.start));
}


static void
dagger_serve_refuse(dagger_conn_t *conn, const char *code, const char *detail)
{
    size_t   n;
    uint8_t  frame[1024];

    n = sandbox_error_frame(frame, sizeof(frame), code, detail, 0);

    (void) !send(conn->event.fd, frame, n, MSG_DONTWAIT|MSG_NOSIGNAL);

    shutdown(conn->event.fd, SHUT_WR);
    conn->answered = 1;
}


static void
dagger_serve_answer(dagger_conn_t *conn)
{
    uint8_t           b[DAGGER_SERVE_START + SANDBOX_WIRE_MAX_RESULT];
    unsigned          i, ready;
    dagger_t         *dagger;
    sandbox_writer_t  w;

    dagger = conn->dagger;

    sandbox_writer_init(&w, b + DAGGER_SERVE_START, SANDBOX_WIRE_MAX_RESULT);

    ready = 0;

    for (i = 0; i < dagger->nengines; i++) {
        ready += dagger->engines[i].state == DAGGER_READY;
    }

    sandbox_write_number(&w, SANDBOX_TAG_READY, ready != 0);
    sandbox_write_string(&w, SANDBOX_TAG_VERSION, RUNNER_VERSION);

    if (ready == 0) {
        sandbox_write_string(&w, SANDBOX_TAG_DETAIL,
                             dagger->engines[0].detail);
    }

    for (i = 0; i < dagger->nengines; i++) {
        dagger_serve_engine(&w, &dagger->engines[i],
                            dagger_egress_proxy(dagger, i));
    }

    dagger_egress_fields(dagger, &w);

    if (w.failed) {
        dagger_serve_refuse(conn, "internal", "The answer is too long.");
        return;
    }

    dagger_serve_result(conn, b, (size_t) (w.pos - w.start));
}


/* HEAD, then RESULT with that many bytes of fields at DAGGER_SERVE_START */

static void
dagger_serve_result(dagger_conn_t *conn, uint8_t *b, size_t size)
{
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b + SANDBOX_WIRE_FRAME_SIZE,
                        DAGGER_SERVE_STATUS);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, 200);
    sandbox_frame_write(b, SANDBOX_FRAME_HEAD, DAGGER_SERVE_STATUS);
    sandbox_frame_write(b + DAGGER_SERVE_START - SANDBOX_WIRE_FRAME_SIZE,
                        SANDBOX_FRAME_RESULT, (uint32_t) size);

    /* some thousand bytes fit into the empty buffer of a socket */

    (void) !send(conn->event.fd, b, DAGGER_SERVE_START + size,
                 MSG_DONTWAIT|MSG_NOSIGNAL);

    dagger_serve_close(conn);
}


static void
dagger_serve_engine(sandbox_writer_t *w, dagger_engine_t *engine,
    const char *proxy)
{
    uint8_t           b[DAGGER_MAX_NAME + DAGGER_MAX_METADATA
                        + DAGGER_MAX_DETAIL + DAGGER_DOMAIN_SIZE
                        + SANDBOX_WIRE_MAX_PROXY + 128];
    sandbox_writer_t  fields;

    sandbox_writer_init(&fields, b, sizeof(b));

    sandbox_write_string(&fields, SANDBOX_TAG_ENGINE_NAME, engine->name);
    sandbox_write_number(&fields, SANDBOX_TAG_READY,
                         engine->state == DAGGER_READY);

    if (engine->state == DAGGER_READY) {
        sandbox_write_number(&fields, SANDBOX_TAG_ENGINE_GENERATION,
                             engine->session.generation);
        sandbox_write_string(&fields, SANDBOX_TAG_ENGINE_METADATA,
                             engine->session.metadata);
        sandbox_write_string(&fields, SANDBOX_TAG_ENGINE_DOMAIN,
                             engine->session.domain);

    } else {
        sandbox_write_string(&fields, SANDBOX_TAG_DETAIL, engine->detail);
    }

    if (proxy != NULL) {
        sandbox_write_string(&fields, SANDBOX_TAG_EGRESS_PROXY, proxy);
    }

    sandbox_write_bytes(w, SANDBOX_TAG_ENGINE, fields.start,
                        (size_t) (fields.pos - fields.start));
}


static void
dagger_serve_close(dagger_conn_t *conn)
{
    runner_loop_t  *loop;

    loop = &conn->dagger->loop;

    runner_timer_stop(loop, &conn->timer);
    runner_event_remove(loop, &conn->event);
    close(conn->event.fd);

    dagger_egress_leave(conn->dagger, conn->table);

    if (conn->dagger->conns-- == DAGGER_SERVE_CONNS
        && conn->dagger->listener.handler != NULL)
    {
        (void) runner_event_change(loop, &conn->dagger->listener, EPOLLIN);
    }

    runner_loop_free_later(loop, &conn->later);
}
