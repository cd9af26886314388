/*
 * The live path's first half: accept, peek at the preamble, check who asks.
 * Nothing is consumed before it is known where the request belongs, so an
 * agent reads the same bytes as if nginx had connected to it.
 *
 * Knows no sandboxes but as the place where a connection waits.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "bound.h"
#include "conn.h"
#include "container.h"
#include "egress.h"
#include "file.h"
#include "listen.h"
#include "operation.h"
#include "peer.h"
#include "sandbox.h"
#include "version.h"


#define RUNNER_ACCEPT_TURN   256                 /* connections a turn */
#define RUNNER_COMING_TURN   64                  /* that are looked at again */
#define RUNNER_ACCEPT_PAUSE  100                 /* ms without descriptors */

/* who has connected may have to wait for his turn on a busy host */
#define RUNNER_PREAMBLE_WAIT (5 * SANDBOX_WIRE_PREAMBLE_WAIT)


static void runner_server_accept(runner_event_t *event, uint32_t events);
static void runner_server_resume(void *data);

static runner_conn_t *runner_conn_create(runner_t *runner, int fd);
static void runner_conn_event(runner_event_t *event, uint32_t events);
static void runner_conn_timer(void *data);
static int runner_conn_watch(runner_conn_t *conn);
static void runner_conn_peek(runner_conn_t *conn);
static void runner_conn_peek_again(runner_t *runner);
static void runner_conn_check(runner_conn_t *conn, const uint8_t *p);
static void runner_conn_unauthorized(runner_conn_t *conn, const char *why);
static void runner_conn_waited(runner_conn_t *conn);
static void runner_conn_ping(runner_conn_t *conn, int now);
static void runner_conn_hung_up(runner_conn_t *conn);
static void runner_conn_linger(runner_conn_t *conn);
static void runner_conn_out(runner_conn_t *conn);


static runner_log_limit_t  runner_conn_log;


int
runner_server_open(runner_t *runner, runner_error_t *err)
{
    runner->listener.fd = runner_listen(runner->options, &runner->listening,
                                        err);
    if (runner->listener.fd == -1) {
        return -1;
    }

    runner->listener.handler = runner_server_accept;
    runner->listener.data = runner;
    runner->accept_timer.handler = runner_server_resume;
    runner->accept_timer.data = runner;
    runner_queue_init(&runner->coming);

    if (runner_event_add(&runner->loop, &runner->listener, EPOLLIN) == -1) {
        return runner_error(err, "internal", errno, "epoll");
    }

    runner->accepting = 1;

    return 0;
}


void
runner_server_close(runner_t *runner)
{
    if (runner->listener.fd == -1) {
        return;
    }

    runner_timer_stop(&runner->loop, &runner->accept_timer);
    runner_event_remove(&runner->loop, &runner->listener);

    if (runner->listening) {
        (void) unlink(runner->options->socket);
    }

    close(runner->listener.fd);
    runner->listener.fd = -1;
    runner->accepting = 0;
}


static void
runner_server_accept(runner_event_t *event, uint32_t events)
{
    int             fd;
    runner_t       *runner;
    unsigned        n;
    runner_conn_t  *conn;

    runner = event->data;

    for (n = 0; n < RUNNER_ACCEPT_TURN; n++) {

        if (runner->conns >= runner->max_conns) {
            fd = -1;
            errno = EMFILE;

        } else {
            fd = accept4(event->fd, NULL, NULL, SOCK_NONBLOCK|SOCK_CLOEXEC);
        }

        if (fd == -1) {
            if (errno == EINTR || errno == ECONNABORTED) {
                continue;
            }

            if (errno == EAGAIN) {
                return;
            }

            if (runner_log_allowed(&runner_conn_log)) {
                runner_log(RUNNER_LOG_ERROR, "no descriptor for a connection "
                           "(%u are open): raise LimitNOFILE", runner->conns);
            }

            (void) runner_event_change(&runner->loop, event, 0);
            (void) runner_timer_start(&runner->loop, &runner->accept_timer,
                                      RUNNER_ACCEPT_PAUSE);
            return;
        }

        runner_conn_peek_again(runner);

        conn = runner_conn_create(runner, fd);

        if (conn != NULL) {
            runner_conn_peek(conn);
        }
    }
}


/*
 * Who came first has his turn first, also where his preamble and the next
 * client came between two turns of the loop.  Many that are silent have no
 * order to keep.
 */

static void
runner_conn_peek_again(runner_t *runner)
{
    unsigned  n;

    n = runner->coming.n;

    if (n > RUNNER_COMING_TURN) {
        return;
    }

    while (n-- && runner->coming.first != NULL) {
        runner_conn_peek(runner->coming.first);
    }
}


static void
runner_server_resume(void *data)
{
    runner_t  *runner;

    runner = data;

    (void) runner_event_change(&runner->loop, &runner->listener, EPOLLIN);
}


/* owns fd, also when it fails */

static runner_conn_t *
runner_conn_create(runner_t *runner, int fd)
{
    runner_conn_t  *conn;

    conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        close(fd);
        return NULL;
    }

    conn->runner = runner;
    conn->event.fd = fd;
    conn->event.data = conn;
    conn->timer.handler = runner_conn_timer;
    conn->timer.data = conn;
    conn->memfd = -1;

    runner->conns++;

    return conn;
}


runner_conn_t *
runner_conn_returned(runner_t *runner, int fd, int memfd)
{
    int             domain, type;
    uint8_t         p[SANDBOX_WIRE_PREAMBLE_SIZE];
    socklen_t       size;
    runner_conn_t  *conn;

    conn = runner_conn_create(runner, fd);

    if (conn == NULL) {
        close(memfd);
        return NULL;
    }

    conn->memfd = memfd;

    /* by an agent: it may be anything, also what would make us wait */

    size = sizeof(domain);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == -1
        || domain != AF_UNIX
        || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == -1
        || type != SOCK_STREAM
        || fcntl(memfd, F_GET_SEALS) == -1)
    {
        runner_conn_close(conn);
        return NULL;
    }

    if (pread(memfd, p, sizeof(p), 0) != sizeof(p)
        || sandbox_preamble_read(p, &conn->preamble) != SANDBOX_OK
        || conn->preamble.operation < SANDBOX_OPERATION_COMMAND)
    {
        explicit_bzero(p, sizeof(p));
        runner_conn_close(conn);
        return NULL;
    }

    explicit_bzero(p, sizeof(p));
    explicit_bzero(conn->preamble.key, sizeof(conn->preamble.key));

    return conn;
}


static int
runner_conn_watch(runner_conn_t *conn)
{
    /*
     * Edge-triggered: a preamble that has come in part stays readable, and
     * each further piece is a new edge.
     */

    if (conn->event.handler != NULL) {
        return 0;
    }

    conn->event.handler = runner_conn_event;

    if (runner_event_add(&conn->runner->loop, &conn->event,
                         EPOLLIN|EPOLLRDHUP|EPOLLET) == -1)
    {
        conn->event.handler = NULL;
        return -1;
    }

    return 0;
}


static void
runner_conn_event(runner_event_t *event, uint32_t events)
{
    runner_conn_t  *conn;

    conn = event->data;

    switch (conn->state) {

    case RUNNER_CONN_PREAMBLE:
        runner_conn_peek(conn);
        break;

    case RUNNER_CONN_HEAD:
        runner_operation_read(conn);
        break;

    case RUNNER_CONN_BODY:
        runner_egress_read(conn);
        return;

    case RUNNER_CONN_WAITING:
        if (events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR)) {
            runner_conn_hung_up(conn);
        }

        return;

    case RUNNER_CONN_ANSWER:
        runner_conn_out(conn);
        return;

    case RUNNER_CONN_LINGER:

        if (conn->lingered < SANDBOX_WIRE_LINGER_BYTES) {
            runner_conn_linger(conn);

        } else if (events & (EPOLLHUP|EPOLLERR)) {
            runner_conn_close(conn);
        }

        return;

    default: /* RUNNER_CONN_SENT is not watched */
        return;
    }

    /* hung up in the middle: there will be no further edge */

    if ((events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR))
        && event->handler != NULL
        && (conn->state == RUNNER_CONN_PREAMBLE
            || conn->state == RUNNER_CONN_HEAD))
    {
        runner_conn_close(conn);
    }
}


static void
runner_conn_timer(void *data)
{
    runner_conn_t  *conn;

    conn = data;

    switch (conn->state) {

    case RUNNER_CONN_PREAMBLE:

        /* it may be us who were late */

        runner_conn_peek(conn);

        if (conn->link.queue != &conn->runner->coming) {
            return;
        }

        /* fall through */

    case RUNNER_CONN_HEAD:
    case RUNNER_CONN_BODY:
        runner_conn_refuse(conn, "slow_request", "The request did not come "
                           "in time.", 0);
        return;

    case RUNNER_CONN_WAITING:
        runner_conn_waited(conn);
        return;

    default:
        runner_conn_close(conn);
        return;
    }
}


/* the whole hot path, up to runner_sandbox_route() */

static void
runner_conn_peek(runner_conn_t *conn)
{
    ssize_t  n;
    uint8_t  p[SANDBOX_WIRE_PREAMBLE_SIZE];

    do {
        n = recv(conn->event.fd, p, sizeof(p), MSG_PEEK|MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    runner_queue_remove(conn);

    if (n == sizeof(p)) {
        runner_timer_stop(&conn->runner->loop, &conn->timer);
        runner_conn_check(conn, p);
        return;
    }

    if (n == 0 || (n == -1 && errno != EAGAIN)) {
        runner_conn_close(conn);
        return;
    }

    runner_queue_append(&conn->runner->coming, conn);

    if (conn->event.handler != NULL) {
        return;
    }

    if (runner_conn_watch(conn) == -1
        || runner_timer_start(&conn->runner->loop, &conn->timer,
                              RUNNER_PREAMBLE_WAIT) == -1)
    {
        runner_conn_close(conn);
    }
}


static void
runner_conn_check(runner_conn_t *conn, const uint8_t *p)
{
    runner_t            *runner;
    sandbox_preamble_t  *preamble;

    runner = conn->runner;
    preamble = &conn->preamble;

    if (!runner_peer_allowed(runner->options, conn->event.fd)) {
        runner_conn_unauthorized(conn, "user");
        return;
    }

    if (memcmp(p, SANDBOX_WIRE_MAGIC, SANDBOX_WIRE_MAGIC_SIZE) != 0) {
        runner_conn_refuse(conn, "bad_request", "this is not the sandbox wire "
                           "protocol", 0);
        return;
    }

    if (!sandbox_equal(p + 32, runner->options->key, SANDBOX_WIRE_KEY_SIZE)) {
        runner_conn_unauthorized(conn, "key");
        return;
    }

    if (p[7] < SANDBOX_WIRE_VERSION_MIN || p[7] > SANDBOX_WIRE_VERSION) {
        runner_conn_refuse(conn, "version_mismatch", "the runner does not "
                           "speak this version of the wire protocol", 0);
        return;
    }

    if (sandbox_preamble_read(p, preamble) != SANDBOX_OK) {
        runner_conn_refuse(conn, "bad_request", "the preamble is malformed",
                           0);
        return;
    }

    explicit_bzero(preamble->key, sizeof(preamble->key));

    if (preamble->operation >= SANDBOX_OPERATION_COMMAND) {
        runner_sandbox_route(conn);
        return;
    }

    runner_operation_start(conn);

    if ((conn->state == RUNNER_CONN_HEAD || conn->state == RUNNER_CONN_BODY)
        && (runner_conn_watch(conn) == -1
            || runner_timer_start(&runner->loop, &conn->timer,
                                  SANDBOX_WIRE_REQUEST_WAIT) == -1))
    {
        runner_conn_close(conn);
    }
}


int
runner_conn_root(const runner_conn_t *conn)
{
    socklen_t     size;
    struct ucred  peer;

    size = sizeof(peer);

    return getsockopt(conn->event.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)
           == 0 && peer.uid == 0;
}


static void
runner_conn_unauthorized(runner_conn_t *conn, const char *why)
{
    runner_peer_refused(conn->event.fd, why);

    runner_conn_refuse(conn, "unauthorized_peer", "the runner does not accept "
                       "this peer", 0);
}


void
runner_conn_wait(runner_conn_t *conn, runner_queue_t *queue,
    runner_sandbox_t *sandbox)
{
    runner_queue_append(queue, conn);
    runner_conn_wait_again(conn, sandbox);
}


void
runner_conn_wait_again(runner_conn_t *conn, runner_sandbox_t *sandbox)
{
    int             sent;
    runner_loop_t  *loop;

    loop = &conn->runner->loop;
    sent = conn->state == RUNNER_CONN_SENT;

    conn->state = RUNNER_CONN_WAITING;
    conn->sandbox = sandbox;

    if (conn->deadline == 0) {
        conn->deadline = loop->now + (sandbox != NULL ? RUNNER_CREATE_WAIT
                                                      : RUNNER_REMOVE_WAIT);
        conn->last = conn->deadline + RUNNER_CREATE_LINE;
    }

    if (runner_conn_watch(conn) == -1) {
        runner_conn_refuse(conn, "at_capacity", "The runner has no memory.", 5);
        return;
    }

    /* while an agent had it nobody sent a PING: nginx may not wait longer */

    runner_conn_ping(conn, sent);
}


static void
runner_conn_waited(runner_conn_t *conn)
{
    uint64_t  due;

    if (conn->runner->loop.now >= conn->deadline) {

        if (conn->sandbox == NULL) {
            runner_conn_refuse(conn, "internal", "It was not done in time; "
                               "see the runner's log.", 0);
            return;
        }

        if (runner_version_outdated(conn->sandbox)) {
            runner_conn_refuse(conn, "version_mismatch", "The sandbox is at "
                               "work with an agent of another release; it is "
                               "started again when it is idle.", 10);
            return;
        }

        /* of many that come at once each has his time when it is his turn */

        due = conn->sandbox->container != NULL
              ? runner_container_due(conn->sandbox->container) : 0;

        if (due > conn->runner->loop.now
            && conn->last > conn->runner->loop.now)
        {
            conn->deadline = due < conn->last ? due : conn->last;
            runner_conn_ping(conn, 1);
            return;
        }

        runner_conn_refuse(conn, "sandbox_failed", "The sandbox did not "
                           "become ready in time.", 10);
        return;
    }

    runner_conn_ping(conn, 1);
}


/* starts the timer of the next one; sends one at once with `now` */

static void
runner_conn_ping(runner_conn_t *conn, int now)
{
    uint8_t  frame[SANDBOX_WIRE_FRAME_SIZE];

    if (runner_timer_start(&conn->runner->loop, &conn->timer,
                           SANDBOX_WIRE_PING_INTERVAL) == -1)
    {
        runner_conn_close(conn);
        return;
    }

    if (!now || conn->event.handler == NULL) {
        return;
    }

    sandbox_frame_write(frame, SANDBOX_FRAME_PING, 0);

    if (send(conn->event.fd, frame, sizeof(frame), MSG_DONTWAIT|MSG_NOSIGNAL)
        != sizeof(frame))
    {
        runner_conn_hung_up(conn);
    }
}


/*
 * A command that was accepted runs although nobody waits for it any more; its
 * connection is a place in the line.  All others are forgotten.
 */

static void
runner_conn_hung_up(runner_conn_t *conn)
{
    if (conn->memfd == -1) {
        runner_conn_close(conn);
        return;
    }

    runner_event_remove(&conn->runner->loop, &conn->event);
}


void
runner_conn_sent(runner_conn_t *conn, runner_queue_t *queue)
{
    runner_timer_stop(&conn->runner->loop, &conn->timer);
    runner_event_remove(&conn->runner->loop, &conn->event);

    conn->state = RUNNER_CONN_SENT;
    conn->sandbox = NULL;

    runner_queue_append(queue, conn);
}


void
runner_conn_refuse(runner_conn_t *conn, const char *code, const char *detail,
    unsigned retry_after)
{
    size_t          n;
    uint8_t         frame[1024];
    runner_loop_t  *loop;

    loop = &conn->runner->loop;

    runner_log(RUNNER_LOG_INFO, "refused a request: %s", code);

    n = sandbox_error_frame(frame, sizeof(frame), code, detail, retry_after);

    (void) !send(conn->event.fd, frame, n, MSG_DONTWAIT|MSG_NOSIGNAL);

    /*
     * Closing with unread input would turn into a reset for a peer that still
     * writes, and it would never read the ERROR.
     */

    shutdown(conn->event.fd, SHUT_WR);

    runner_queue_remove(conn);
    conn->state = RUNNER_CONN_LINGER;

    if (conn->sandbox != NULL) {
        runner_sandbox_conn_left(conn->sandbox);
        conn->sandbox = NULL;
    }

    if (runner_conn_watch(conn) == -1
        || runner_timer_start(loop, &conn->timer, SANDBOX_WIRE_LINGER_WAIT)
           == -1)
    {
        runner_conn_close(conn);
        return;
    }

    runner_conn_linger(conn);
}


static void
runner_conn_linger(runner_conn_t *conn)
{
    ssize_t  n;
    uint8_t  b[16384];

    for ( ;; ) {
        n = recv(conn->event.fd, b, sizeof(b), MSG_DONTWAIT);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1 && errno == EAGAIN) {
            return;
        }

        if (n <= 0) {
            break;
        }

        conn->lingered += n;

        /*
         * Enough; what else comes may stay unread, but closing is the peer's,
         * or the timer's: a reset can overtake the ERROR.
         */

        if (conn->lingered >= SANDBOX_WIRE_LINGER_BYTES) {
            return;
        }
    }

    runner_conn_close(conn);
}


void
runner_conn_answer(runner_conn_t *conn, sandbox_writer_t *fields)
{
    size_t            head, result;
    uint8_t           b[SANDBOX_WIRE_FRAME_SIZE * 2 + 64
                        + SANDBOX_WIRE_MAX_RESULT];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b + SANDBOX_WIRE_FRAME_SIZE, 64);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, 200);
    head = w.pos - w.start;
    sandbox_frame_write(b, SANDBOX_FRAME_HEAD, head);

    result = fields->pos - fields->start;
    head += SANDBOX_WIRE_FRAME_SIZE;

    if (fields->failed || result > SANDBOX_WIRE_MAX_RESULT) {
        runner_conn_refuse(conn, "internal", "the answer is too long", 0);
        return;
    }

    sandbox_frame_write(b + head, SANDBOX_FRAME_RESULT, result);
    memcpy(b + head + SANDBOX_WIRE_FRAME_SIZE, fields->start, result);

    /* some thousand bytes fit into the empty buffer of a socket */

    (void) !send(conn->event.fd, b, head + SANDBOX_WIRE_FRAME_SIZE + result,
                 MSG_DONTWAIT|MSG_NOSIGNAL);

    runner_conn_close(conn);
}


void
runner_conn_send(runner_conn_t *conn, uint8_t *frames, size_t size)
{
    runner_loop_t  *loop;

    loop = &conn->runner->loop;

    conn->state = RUNNER_CONN_ANSWER;
    conn->out = frames;
    conn->out_size = size;

    if (runner_conn_watch(conn) == -1
        || runner_event_change(loop, &conn->event, EPOLLOUT|EPOLLET) == -1
        || runner_timer_start(loop, &conn->timer, SANDBOX_WIRE_READ_TIMEOUT)
           == -1)
    {
        runner_conn_close(conn);
        return;
    }

    runner_conn_out(conn);
}


static void
runner_conn_out(runner_conn_t *conn)
{
    ssize_t  n;

    while (conn->out_sent < conn->out_size) {
        n = send(conn->event.fd, conn->out + conn->out_sent,
                 conn->out_size - conn->out_sent, MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1 && errno == EAGAIN) {
            return;
        }

        if (n <= 0) {
            break;
        }

        conn->out_sent += n;
    }

    runner_conn_close(conn);
}


void
runner_conn_close(runner_conn_t *conn)
{
    runner_t          *runner;
    runner_sandbox_t  *sandbox;

    if (conn->state == RUNNER_CONN_CLOSED) {
        return;
    }

    runner = conn->runner;
    sandbox = conn->sandbox;
    conn->state = RUNNER_CONN_CLOSED;

    runner_queue_remove(conn);
    runner_timer_stop(&runner->loop, &conn->timer);
    runner_event_remove(&runner->loop, &conn->event);

    close(conn->event.fd);

    if (conn->memfd != -1) {
        close(conn->memfd);
    }

    runner_bound_closed(conn);
    runner_egress_left(conn);
    free(conn->out);
    conn->out = NULL;
    conn->sandbox = NULL;
    runner->conns--;

    runner_loop_free_later(&runner->loop, &conn->later);

    if (sandbox != NULL) {
        runner_sandbox_conn_left(sandbox);
    }
}
