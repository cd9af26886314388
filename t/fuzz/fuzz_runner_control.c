/*
 * What an agent that was taken over tells the runner, as a conversation: many
 * messages, in any order, with any descriptors.  Run slots are counted as they
 * were given, what was not handed over is not taken, no more comes back than
 * has room, no descriptor stays, and who breaks the rules is ended.
 */

/* link: src/runner/control.c src/runner/message.c src/runner/bound.c */
/* link: src/runner/grants.c src/runner/queue.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* link: -no-pie -Wl,--unresolved-symbols=ignore-all */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "bound.h"
#include "container.h"
#include "control.h"
#include "log.h"
#include "sandbox.h"
#include "session.h"


#define CONNS     3                      /* handed over, not taken */
#define INSTANCE  7
#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_begin(unsigned how);
static size_t fuzz_one(const uint8_t *p, size_t size, uint8_t *type);
static void fuzz_send(const uint8_t *p, size_t size, unsigned fds);
static int fuzz_free(void);


static int                 ends[2] = { -1, -1 };     /* runner's, agent's */
static runner_t            runner;
static runner_container_t  container;
static runner_sandbox_t    sandbox;
static runner_tenant_t     tenant;
static runner_conn_t       conns[CONNS];
static runner_conn_t       given;        /* by the agent; one is enough */
static unsigned            granted;      /* run slots of others */
static int                 ended;

runner_log_limit_t         runner_log_sandboxes;


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    int       before, opening;
    size_t    n;
    uint8_t   type;
    unsigned  held, left;

    if (size < 2) {
        return 0;
    }

    fuzz_begin(p[0]);
    before = fuzz_free();
    p++;
    size--;

    while (size && !ended) {
        held = container.held;
        left = container.sent.n;
        opening = container.state == RUNNER_CONTAINER_OPENING;
        container.said = 0;

        n = fuzz_one(p, size, &type);
        p += n;
        size -= n;

        container.control.handler(&container.control, EPOLLIN);
        check(fuzz_free() == before);

        if (ended) {
            break;
        }

        /* only what its state allows was no reason to end it */

        check(opening == (type == SANDBOX_CONTROL_READY));
        check(container.state == RUNNER_CONTAINER_READY);
        check(container.held <= RUNNER_MAX_HELD);
        check(runner.grants.used == granted + container.held);
        check(container.held == held - (type == SANDBOX_CONTROL_DONE)
              || opening);
        check(container.sent.n == left - (type == SANDBOX_CONTROL_TAKEN));
        check(sandbox.returned.n <= RUNNER_MAX_SENT);
    }

    return 0;
}


/* the first byte of an input: what there is when it begins */

static void
fuzz_begin(unsigned how)
{
    int      i;
    uint8_t  b[SANDBOX_CONTROL_MAX];

    if (ends[0] == -1) {
        check(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC,
                         0, ends) == 0);
    }

    /* what the one before was not asked for */

    while (recv(ends[0], b, sizeof(b), MSG_DONTWAIT) != -1) { /* void */ }

    memset(&runner, 0, sizeof(runner));
    memset(&container, 0, sizeof(container));
    memset(&sandbox, 0, sizeof(sandbox));
    memset(&tenant, 0, sizeof(tenant));
    memset(conns, 0, sizeof(conns));
    ended = 0;

    runner.max_conns = 64;
    runner_grants_init(&runner.grants, 4);
    granted = (how & 1) ? 3 : 0;
    runner_grants_hold(&runner.grants, granted);

    container.runner = &runner;
    container.control.handler = runner_control_event;
    container.control.data = &container;
    container.control.fd = ends[0];
    container.slot.record.instance = INSTANCE;
    container.claimed = (how & 2) != 0;
    container.adopted = (how & 4) != 0;
    container.state = RUNNER_CONTAINER_READY;
    runner_queue_init(&container.sent);

    if (how & 8) {
        container.state = RUNNER_CONTAINER_OPENING;

    } else {
        container.held = (how >> 6) % (RUNNER_MAX_HELD + 1);
        runner_grants_hold(&runner.grants, container.held);
    }

    if (how & 16) {
        container.sandbox = &sandbox;
        sandbox.runner = &runner;
        sandbox.container = &container;
        sandbox.tenant = &tenant;
        tenant.references = 1;
        runner_queue_init(&sandbox.waiting);
        runner_queue_init(&sandbox.returned);
    }

    for (i = 0; i < CONNS; i++) {
        conns[i].runner = &runner;
        conns[i].serial = ++container.serial;
        runner_queue_append(&container.sent, &conns[i]);
    }
}


/* type, descriptors, flags and serial in four bytes, length, then fields */

static size_t
fuzz_one(const uint8_t *p, size_t size, uint8_t *type)
{
    size_t   n;
    uint8_t  b[SANDBOX_CONTROL_SIZE + 255], start[5];

    memset(start, 0, sizeof(start));
    memcpy(start, p, size < sizeof(start) ? size : sizeof(start));

    n = size > sizeof(start) ? size - sizeof(start) : 0;

    if (n > start[4]) {
        n = start[4];
    }

    *type = start[0];

    b[0] = start[0];
    b[1] = start[2];
    sandbox_put16(b + 2, 0);
    sandbox_put32(b + 4, start[3]);

    if (n) {
        memcpy(b + SANDBOX_CONTROL_SIZE, p + sizeof(start), n);
    }

    fuzz_send(b, SANDBOX_CONTROL_SIZE + n, start[1] % 5);

    return size < sizeof(start) ? size : sizeof(start) + n;
}


static void
fuzz_send(const uint8_t *p, size_t size, unsigned fds)
{
    int              i, out[4];
    struct iovec     iov;
    struct msghdr    m;

    union {
        char            data[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr  align;
    } u;

    memset(&m, 0, sizeof(m));
    iov.iov_base = (void *) p;
    iov.iov_len = size;
    m.msg_iov = &iov;
    m.msg_iovlen = 1;

    if (fds) {
        memset(&u, 0, sizeof(u));

        for (i = 0; i < (int) fds; i++) {
            out[i] = ends[1];
        }

        m.msg_control = u.data;
        m.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        u.align.cmsg_level = SOL_SOCKET;
        u.align.cmsg_type = SCM_RIGHTS;
        u.align.cmsg_len = CMSG_LEN(fds * sizeof(int));
        memcpy(CMSG_DATA(&u.align), out, fds * sizeof(int));
    }

    check(sendmsg(ends[1], &m, MSG_DONTWAIT|MSG_NOSIGNAL) == (ssize_t) size);
}


/* the lowest number that is free */

static int
fuzz_free(void)
{
    int  fd;

    fd = open("/dev/null", O_RDONLY|O_CLOEXEC);
    check(fd != -1);
    close(fd);

    return fd;
}


/* --- the others ---------------------------------------------------------- */

void
runner_container_kill(runner_container_t *c, const char *why)
{
    check(c == &container && why != NULL);
    ended = 1;
}


void
runner_conn_close(runner_conn_t *conn)
{
    check(conn >= conns && conn < conns + CONNS && conn->link.queue != NULL);
    runner_queue_remove(conn);
}


runner_conn_t *
runner_conn_returned(runner_t *r, int fd, int memfd)
{
    check(r == &runner && close(fd) == 0 && close(memfd) == 0);
    memset(&given, 0, sizeof(given));
    given.runner = r;

    return &given;
}


void
runner_conn_wait(runner_conn_t *conn, runner_queue_t *queue,
    runner_sandbox_t *s)
{
    check(conn == &given && queue == &sandbox.returned && s == &sandbox);
    queue->n++;
    check(runner.returned <= runner.max_conns && queue->n == runner.returned);
}


void
runner_sandbox_report(runner_sandbox_t *s, const runner_report_t *report)
{
    check(s == &sandbox && report->commands <= RUNNER_MAX_COMMANDS);
}


void
runner_sandbox_replace(runner_sandbox_t *s)
{
    check(s == &sandbox && (container.proven || container.adopted));
}


int
runner_event_change(runner_loop_t *loop, runner_event_t *event,
    uint32_t events)
{
    return 0;
}


void
runner_timer_stop(runner_loop_t *loop, runner_timer_t *timer)
{
}


void
runner_log(runner_log_level_e level, const char *format, ...)
{
}


int
runner_log_allowed(runner_log_limit_t *limit)
{
    return 0;
}


void
runner_container_watch(runner_container_t *c, int taken)
{
    check(c == &container && taken == 1);
}


void
runner_sandbox_want(runner_sandbox_t *s)
{
    check(s == &sandbox);
}


void
runner_sandbox_ready(runner_sandbox_t *s)
{
    check(s == &sandbox);
}


void
runner_sandbox_grant(runner_t *r)
{
}


void
runner_version_settled(runner_sandbox_t *s)
{
}


void
runner_session_taken(runner_sandbox_t *s, runner_conn_t *conn)
{
    check(s == &sandbox);
}


int
runner_sandbox_flush(runner_sandbox_t *s)
{
    return RUNNER_CONTROL_OK;
}


void
runner_pool_ready(runner_container_t *c)
{
    check(c->sandbox == NULL);
}


void
runner_egress_ready(runner_container_t *c)
{
}
