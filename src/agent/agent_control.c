/*
 * The channel to the runner: connections in, run slots to and fro, state out.
 * The newest connection wins; without one the work goes on.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_control.h"


#define AGENT_CONTROL_ROUND     64       /* messages read in one round */
#define AGENT_CONTROL_WAITING   1024     /* messages that wait to be sent */
#define AGENT_CONTROL_MESSAGE   256      /* bytes of one of ours */
#define AGENT_CONTROL_INTERVAL  100      /* ms between STATEs */


/* a message that the socket did not take; its descriptors are ours */

typedef struct agent_message_s  agent_message_t;

struct agent_message_s {
    agent_message_t   *next;
    int                fds[2];           /* -1: none */
    size_t             size;
    uint8_t            data[AGENT_CONTROL_MESSAGE];
};


/* descriptors of one of theirs, until somebody takes them */

typedef struct {
    int                fds[SANDBOX_CONTROL_MAX_FDS];
    unsigned           count;
} agent_received_t;


static void agent_control_accept(agent_watch_t *watch, uint32_t events);
static void agent_control_end(void);
static void agent_control_begin(agent_connection_t *c);
static void agent_control_drop(void);
static void agent_control_event(agent_watch_t *watch, uint32_t events);
static int agent_control_receive(void);
static int agent_control_descriptors(struct msghdr *m, agent_received_t *r);
static void agent_control_close(agent_received_t *r);
static int agent_control_handle(const agent_told_t *told,
    agent_received_t *r);
static int agent_control_claim(const agent_told_t *told, agent_received_t *r);
static void agent_control_conn(const agent_told_t *told, agent_received_t *r);
static void agent_control_ready(void);
static int agent_control_taken(uint32_t serial);
static void agent_control_start(sandbox_writer_t *w, uint8_t *data,
    uint8_t type, uint32_t serial);
static int agent_control_send(const uint8_t *data, size_t size, int fd,
    int memfd);
static int agent_control_write(const uint8_t *data, size_t size,
    const int *fds);
static void agent_control_flush(void);
static void agent_control_state_timer(agent_timer_t *timer);
static void agent_control_state_send(void);


static agent_watch_t     agent_control_listener;
static agent_watch_t     agent_control = { .fd = -1 };   /* TCP: never */
static agent_message_t  *agent_control_first;
static agent_message_t  *agent_control_last;
static unsigned          agent_control_waiting;
static int               agent_control_broken;   /* a message was lost */
static agent_timer_t     agent_control_timer;

/* RUNNING, QUEUED, BACKGROUND, COMMANDS as the runner knows them */

static uint64_t          agent_control_told[5];


int
agent_control_init(int fd)
{
    agent_control.handler = agent_control_event;
    agent_control_timer.handler = agent_control_state_timer;

    agent_control_listener.fd = fd;
    agent_control_listener.handler = agent_control_accept;

    return agent_watch_set(&agent_control_listener, EPOLLIN);
}


int
agent_control_connected(void)
{
    return agent_control.fd != -1;
}


void
agent_control_want(void)
{
    uint8_t           data[AGENT_CONTROL_MESSAGE];
    sandbox_writer_t  w;

    agent_control_start(&w, data, SANDBOX_CONTROL_WANT, 0);
    agent_control_send(data, w.pos - data, -1, -1);
}


void
agent_control_done(unsigned slots)
{
    uint8_t           data[AGENT_CONTROL_MESSAGE];
    sandbox_writer_t  w;

    while (slots--) {
        agent_control_start(&w, data, SANDBOX_CONTROL_DONE, 0);
        agent_control_send(data, w.pos - data, -1, -1);
    }
}


int
agent_control_return(uint32_t serial, int fd, int memfd)
{
    uint8_t           data[AGENT_CONTROL_MESSAGE];
    sandbox_writer_t  w;

    agent_control_start(&w, data, SANDBOX_CONTROL_RETURN, serial);

    return agent_control_send(data, w.pos - data, fd, memfd) == SANDBOX_BAD
           ? -1 : 0;
}


int
agent_control_replace(void)
{
    uint8_t           data[AGENT_CONTROL_MESSAGE];
    sandbox_writer_t  w;

    agent_control_start(&w, data, SANDBOX_CONTROL_REPLACE, 0);

    return agent_control_send(data, w.pos - data, -1, -1) == SANDBOX_BAD
           ? -1 : 0;
}


void
agent_control_state(void)
{
    uint64_t  now[5];

    if (agent.host != NULL) {
        agent.host->state();
    }

    /* what waits goes first, and then there is one state to tell, not many */

    if (agent_control.fd == -1 || !agent.claimed
        || agent_control_first != NULL)
    {
        return;
    }

    now[0] = agent.running != NULL;
    now[1] = agent.queued;
    now[2] = agent.left + agent.background;
    now[3] = agent.commands;
    now[4] = agent_open();

    if (memcmp(now, agent_control_told, sizeof(now)) == 0) {
        agent_timer_clear(&agent_control_timer);
        return;
    }

    /*
     * A busy sandbox is no news: the runner knows of what it handed over.
     * An idle one is, and one that only what was left running keeps busy.
     */

    if ((now[0] == 0 && now[1] == 0
         && (now[2] == 0 || agent_control_told[0]))
        || (now[2] && (agent_control_told[2] == 0
                       || agent_control_told[2] == UINT64_MAX))
        || (now[4] == 0) != (agent_control_told[4] == 0))
    {
        agent_control_state_send();

    } else if (!agent_control_timer.active) {
        agent_timer_set(&agent_control_timer, AGENT_CONTROL_INTERVAL);
    }
}


static void
agent_control_accept(agent_watch_t *watch, uint32_t events)
{
    int  i, fd;

    fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK|SOCK_CLOEXEC);
    if (fd == -1) {
        return;
    }

    if (agent_control.fd != -1) {

        /* clients that are still in the old one must not be lost */

        for (i = 0; i < AGENT_CONTROL_WAITING; i++) {
            if (agent_control.fd == -1
                || agent_control_receive() != SANDBOX_OK)
            {
                break;
            }
        }

        agent_control_drop();
    }

    agent_control.fd = fd;
    agent_control_broken = 0;

    if (agent_watch_set(&agent_control, EPOLLIN) == -1) {
        agent_control_drop();
        return;
    }

    agent_control_ready();

    if (agent.replaced) {

        /* the one before may have ended before it did anything about it */

        agent_control_replace();
    }

    agent_queue_process();
}


/* Nothing more goes out; what is still to be read comes first, then the end. */

static void
agent_control_end(void)
{
    shutdown(agent_control.fd, SHUT_RDWR);
    agent_watch_set(&agent_control, EPOLLIN);
}


static void
agent_control_drop(void)
{
    agent_message_t     *message;
    agent_connection_t  *c, *next;

    agent_watch_close(&agent_control);
    agent_timer_clear(&agent_control_timer);

    while ((message = agent_control_first) != NULL) {
        agent_control_first = message->next;

        if (message->fds[0] != -1) {
            close(message->fds[0]);
            close(message->fds[1]);
        }

        free(message);
    }

    agent_control_last = NULL;
    agent_control_waiting = 0;

    for (c = agent_connection_first(); c != NULL; c = next) {
        next = c->next;

        if (c->state == AGENT_CONNECTION_TAKE) {
            agent_control_begin(c);
            next = agent_connection_first();
        }
    }
}


/*
 * TAKEN was sent, or the runner is gone: nobody else has it.  Only where a
 * TAKEN was lost the runner has it still, for the agent after this one.
 */

static void
agent_control_begin(agent_connection_t *c)
{
    if (agent_control_broken) {
        agent_connection_close(c);
        return;
    }

    agent_connection_begin(c);
}


static void
agent_control_event(agent_watch_t *watch, uint32_t events)
{
    int  i, rc;

    if (events & EPOLLOUT) {
        agent_control_flush();
    }

    for (i = 0; i < AGENT_CONTROL_ROUND && agent_control.fd != -1; i++) {
        rc = agent_control_receive();

        if (rc == SANDBOX_AGAIN) {
            return;
        }

        if (rc == SANDBOX_BAD) {
            agent_log("the runner is gone; work goes on");
            agent_control_drop();
            return;
        }
    }
}


/* One message; SANDBOX_AGAIN: none there, SANDBOX_BAD: the end. */

static int
agent_control_receive(void)
{
    ssize_t           n;
    uint8_t           data[SANDBOX_CONTROL_MAX];
    struct iovec      iov;
    agent_told_t      told;
    struct msghdr     m;
    agent_received_t  r;

    union {
        struct cmsghdr  align;
        char            space[CMSG_SPACE(SANDBOX_CONTROL_MAX_FDS
                                         * sizeof(int))];
    } control;

    memset(&m, 0, sizeof(m));
    iov.iov_base = data;
    iov.iov_len = sizeof(data);
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = control.space;
    m.msg_controllen = sizeof(control.space);

    n = recvmsg(agent_control.fd, &m, MSG_DONTWAIT|MSG_CMSG_CLOEXEC);

    if (n == -1) {

        /*
         * A runner that died with messages of ours unread: this is said
         * once, and what it had sent comes after it.
         */

        if (errno == ECONNRESET) {
            return SANDBOX_OK;
        }

        return errno == EAGAIN || errno == EINTR ? SANDBOX_AGAIN
                                                 : SANDBOX_BAD;
    }

    if (n == 0) {
        return SANDBOX_BAD;
    }

    if (agent_control_descriptors(&m, &r) == -1
        || (m.msg_flags & (MSG_TRUNC|MSG_CTRUNC))
        || agent_control_read(&told, data, n, r.count) == -1
        || agent_control_handle(&told, &r) == -1)
    {
        agent_log("message %u of the runner was refused", data[0]);
    }

    agent_control_close(&r);

    return SANDBOX_OK;
}


/*
 * The descriptors of a message.  The kernel may give more than were meant to
 * fit, because the space is rounded up; -1: surplus ones, all are closed.
 */

static int
agent_control_descriptors(struct msghdr *m, agent_received_t *r)
{
    int              fd, rc;
    size_t           i, n;
    struct cmsghdr  *h;

    rc = 0;
    r->count = 0;

    for (h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) {
            continue;
        }

        n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (i = 0; i < n; i++) {
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));

            if (r->count < SANDBOX_CONTROL_MAX_FDS) {
                r->fds[r->count++] = fd;

            } else {
                close(fd);
                rc = -1;
            }
        }
    }

    return rc;
}


static void
agent_control_close(agent_received_t *r)
{
    while (r->count) {
        close(r->fds[--r->count]);
    }
}


/* What is taken of r is no longer there; -1: not what holds already. */

static int
agent_control_handle(const agent_told_t *told, agent_received_t *r)
{
    switch (told->type) {

    case SANDBOX_CONTROL_CLAIM:
        return agent_control_claim(told, r);

    case SANDBOX_CONTROL_CONN:
        agent_control_conn(told, r);
        break;

    case SANDBOX_CONTROL_GRANT:
        agent.wanted = 0;
        agent.slots++;
        agent_queue_process();
        break;

    case SANDBOX_CONTROL_STOP:
        agent_queue_stop((unsigned) told->outcome);
        break;

    case SANDBOX_CONTROL_EGRESS:
        agent_egress_set((uint32_t) told->policy, told->index.data,
                         told->index.length, r->count ? r->fds[0] : -1);
        break;
    }

    return 0;
}


static int
agent_control_claim(const agent_told_t *told, agent_received_t *r)
{
    if (agent_sandbox_claim(told->session.data, told->instance, told->id.data,
                            told->id.length, (int) told->created, told->memory)
        == -1)
    {
        return -1;
    }

    agent_history_load(r->count ? r->fds[0] : -1);
    r->count = 0;

    return 0;
}


static void
agent_control_conn(const agent_told_t *told, agent_received_t *r)
{
    int                  rc, memfd;
    agent_connection_t  *c;

    if (told->flags & SANDBOX_CONN_GRANTED) {
        agent.slots++;
        agent.wanted = 0;
    }

    memfd = r->count == 2 ? r->fds[1] : -1;

    if (agent.stopping || agent.replacing || agent.replaced) {

        /* not taken: the runner still has it, for the one after us */

        agent_control_close(r);
        agent_queue_process();
        return;
    }

    c = agent_connection_new(r->fds[0], memfd, told->serial, told->flags);
    rc = agent_control_taken(told->serial);

    if (c == NULL) {

        /* taken all the same, or the runner would keep it for ever */

        if (!agent_control_broken) {
            agent_connection_refuse(r->fds[0]);
        }

        agent_control_close(r);
        agent_queue_process();
        return;
    }

    r->count = 0;

    if (rc != SANDBOX_AGAIN) {
        agent_control_begin(c);
    }
}


static void
agent_control_ready(void)
{
    uint8_t           data[AGENT_CONTROL_MESSAGE];
    sandbox_writer_t  w;

    agent_control_start(&w, data, SANDBOX_CONTROL_READY, 0);
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MIN,
                         SANDBOX_WIRE_VERSION_MIN);
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MAX, SANDBOX_WIRE_VERSION);
    sandbox_write_number(&w, SANDBOX_TAG_SLOTS, agent.slots);
    sandbox_write_number(&w, SANDBOX_TAG_WANTED, agent.wanted);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);
    agent_control_send(data, w.pos - data, -1, -1);

    /* the new one knows nothing of what the old one was told */

    memset(agent_control_told, 0xff, sizeof(agent_control_told));

    if (agent.claimed) {
        agent_control_state_send();
    }
}


/*
 * TAKEN goes out before the first byte is read.  SANDBOX_AGAIN: the socket is
 * full, the connection waits for agent_control_flush() in its state TAKE.
 */

static int
agent_control_taken(uint32_t serial)
{
    uint8_t           data[AGENT_CONTROL_MESSAGE];
    sandbox_writer_t  w;

    agent_control_start(&w, data, SANDBOX_CONTROL_TAKEN, serial);

    return agent_control_send(data, w.pos - data, -1, -1);
}


static void
agent_control_start(sandbox_writer_t *w, uint8_t *data, uint8_t type,
    uint32_t serial)
{
    memset(data, 0, SANDBOX_CONTROL_SIZE);
    data[0] = type;
    sandbox_put32(data + 4, serial);

    sandbox_writer_init(w, data + SANDBOX_CONTROL_SIZE,
                        AGENT_CONTROL_MESSAGE - SANDBOX_CONTROL_SIZE);
}


/*
 * SANDBOX_AGAIN: it waits for room.  SANDBOX_BAD: there is no runner; the
 * descriptors are closed.  A message that is lost ends the channel, so that
 * no run slot and no connection is forgotten: the next one begins with READY.
 */

static int
agent_control_send(const uint8_t *data, size_t size, int fd, int memfd)
{
    int               fds[2];
    agent_message_t  *message;

    fds[0] = fd;
    fds[1] = memfd;

    if (agent_control.fd == -1 || agent_control_broken) {
        goto failed;
    }

    if (agent_control_first == NULL) {
        switch (agent_control_write(data, size, fds)) {

        case SANDBOX_OK:
            return SANDBOX_OK;

        case SANDBOX_BAD:
            goto failed;
        }
    }

    message = NULL;

    if (agent_control_waiting < AGENT_CONTROL_WAITING) {
        message = malloc(sizeof(agent_message_t));
    }

    if (message == NULL) {
        agent_log("%u messages wait for the runner and there is no room for "
                  "another: the channel is given up", agent_control_waiting);
        agent_control_broken = 1;
        agent_control_end();
        goto failed;
    }

    message->next = NULL;
    message->fds[0] = fd;
    message->fds[1] = memfd;
    message->size = size;
    memcpy(message->data, data, size);

    if (agent_control_last != NULL) {
        agent_control_last->next = message;

    } else {
        agent_control_first = message;
    }

    agent_control_last = message;
    agent_control_waiting++;

    agent_watch_set(&agent_control, EPOLLIN|EPOLLOUT);

    return SANDBOX_AGAIN;

failed:

    if (fd != -1) {
        close(fd);
        close(memfd);
    }

    return SANDBOX_BAD;
}


/* SANDBOX_OK: sent, its descriptors are closed here. */

static int
agent_control_write(const uint8_t *data, size_t size, const int *fds)
{
    struct iovec     iov;
    struct msghdr    m;
    struct cmsghdr  *h;

    union {
        struct cmsghdr  align;
        char            space[CMSG_SPACE(2 * sizeof(int))];
    } control;

    memset(&m, 0, sizeof(m));
    iov.iov_base = (void *) data;
    iov.iov_len = size;
    m.msg_iov = &iov;
    m.msg_iovlen = 1;

    if (fds[0] != -1) {
        memset(&control, 0, sizeof(control));
        m.msg_control = control.space;
        m.msg_controllen = sizeof(control.space);

        h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(2 * sizeof(int));
        memcpy(CMSG_DATA(h), fds, 2 * sizeof(int));
    }

    if (sendmsg(agent_control.fd, &m, MSG_DONTWAIT|MSG_NOSIGNAL) == -1) {
        switch (errno) {

        case EAGAIN:
        case EINTR:
        case ENOBUFS:
        case ENOMEM:
        case ETOOMANYREFS:
            return SANDBOX_AGAIN;

        case EPIPE:
        case ECONNRESET:
        case ENOTCONN:
            return SANDBOX_BAD;
        }

        agent_log("a message for the runner could not be sent: error %d",
                  errno);
        agent_control_broken = 1;
        agent_control_end();

        return SANDBOX_BAD;
    }

    if (fds[0] != -1) {
        close(fds[0]);
        close(fds[1]);
    }

    return SANDBOX_OK;
}


static void
agent_control_flush(void)
{
    int                  rc;
    agent_message_t     *message;
    agent_connection_t  *c;

    while ((message = agent_control_first) != NULL) {
        rc = agent_control_write(message->data, message->size, message->fds);

        if (rc == SANDBOX_AGAIN) {
            return;
        }

        if (rc == SANDBOX_BAD) {
            agent_control_end();
            return;
        }

        agent_control_first = message->next;
        agent_control_waiting--;

        if (agent_control_first == NULL) {
            agent_control_last = NULL;
        }

        c = NULL;

        if (message->data[0] == SANDBOX_CONTROL_TAKEN) {
            c = agent_connection_by_serial(sandbox_get32(message->data + 4));
        }

        free(message);

        if (c != NULL) {
            agent_connection_begin(c);
        }
    }

    if (agent_control.fd != -1) {
        agent_watch_set(&agent_control, EPOLLIN);
        agent_control_state();
    }
}


static void
agent_control_state_timer(agent_timer_t *timer)
{
    agent_control_state_send();
}


static void
agent_control_state_send(void)
{
    uint8_t           data[AGENT_CONTROL_MESSAGE];
    sandbox_writer_t  w;

    agent_timer_clear(&agent_control_timer);

    if (agent_control_first != NULL) {
        return;
    }

    agent_control_told[0] = agent.running != NULL;
    agent_control_told[1] = agent.queued;
    agent_control_told[2] = agent.left + agent.background;
    agent_control_told[3] = agent.commands;
    agent_control_told[4] = agent_open();

    agent_control_start(&w, data, SANDBOX_CONTROL_STATE, 0);
    sandbox_write_number(&w, SANDBOX_TAG_RUNNING, agent_control_told[0]);
    sandbox_write_number(&w, SANDBOX_TAG_QUEUED, agent_control_told[1]);
    sandbox_write_number(&w, SANDBOX_TAG_BACKGROUND,
                         agent_left_processes()
                         + agent_background_processes());
    sandbox_write_number(&w, SANDBOX_TAG_COMMANDS, agent_control_told[3]);
    sandbox_write_number(&w, SANDBOX_TAG_OPEN, agent_control_told[4]);
    agent_control_send(data, w.pos - data, -1, -1);
}
