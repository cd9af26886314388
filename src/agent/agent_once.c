/*
 * The way through an engine's exec, where nobody can connect: one request
 * comes as base64 on standard input, the frames of its answer go out as base64
 * on standard output.  In between it is a connection like any other.
 *
 * The engine gives the output back only when this program has ended: what
 * lives on after its answer, or is steered meanwhile, has no place here.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_base64.h"
#include "agent_caps.h"
#include "agent_engine.h"
#include "agent_once.h"


#define AGENT_ONCE_TEXT     (88 * 1024 * 1024)   /* bytes of base64 */
#define AGENT_ONCE_READ     (64 * 1024)
#define AGENT_ONCE_FLUSH    10000        /* ms, at the end */
#define AGENT_ONCE_DRAIN    4096         /* reads at the end */
#define AGENT_ONCE_FIRST    10           /* descriptors of its own, from */
#define AGENT_ONCE_HEAD     (SANDBOX_WIRE_PREAMBLE_SIZE                      \
                             + SANDBOX_WIRE_MAX_HEAD)


typedef struct {
    agent_watch_t      in;
    agent_watch_t      out;
    agent_watch_t      socket;
    agent_timer_t      timer;            /* in place of events of `in` */
    unsigned           judged:1;         /* the head may go on */
    unsigned           in_end:1;
    unsigned           done:1;           /* the last frame is out */
    unsigned           gone:1;           /* nobody reads it */
    unsigned           begun:1;          /* frames of the agent's are */
    unsigned           in_ready:1;       /* they can be waited for */
    unsigned           out_ready:1;

    /* request: its characters, then bytes for the socket */

    agent_base64_t     base64;
    uint64_t           taken;            /* characters */
    size_t             size;
    size_t             sent;

    /* answer: the frame that comes, bytes that make no characters yet, text */

    uint8_t            frame[SANDBOX_WIRE_FRAME_SIZE];
    unsigned           have;
    uint32_t           left;
    uint8_t            carry[3];
    unsigned           carried;
    size_t             text_size;
    size_t             text_sent;
} agent_once_t;


static void agent_once_in(agent_watch_t *watch, uint32_t events);
static void agent_once_again(agent_timer_t *timer);
static void agent_once_read(void);
static void agent_once_judge(void);
static int agent_once_refused(const sandbox_preamble_t *preamble);
static void agent_once_pass(void);
static void agent_once_in_done(void);
static void agent_once_look(void);
static void agent_once_socket(agent_watch_t *watch, uint32_t events);
static int agent_once_answer(void);
static void agent_once_frames(const uint8_t *p, size_t size);
static void agent_once_encode(const uint8_t *p, size_t size);
static void agent_once_put(unsigned n);
static void agent_once_out(agent_watch_t *watch, uint32_t events);
static int agent_once_flush(void);
static void agent_once_lost(void);
static void agent_once_error(const char *code, const char *detail,
    unsigned retry_after);
static void agent_once_end(void);
static void agent_once_exit(void);


static agent_once_t  agent_once;
static uint8_t       agent_once_request[AGENT_ONCE_HEAD + AGENT_ONCE_READ];
static char          agent_once_text[AGENT_ONCE_READ / 3 * 4 + 64];


int
agent_once_init(void)
{
    int  in, out;

    in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, AGENT_ONCE_FIRST);
    out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, AGENT_ONCE_FIRST);

    /* nothing else is to write there by accident */

    if (in == -1 || out == -1 || dup2(STDERR_FILENO, STDOUT_FILENO) == -1) {
        return -1;
    }

    agent.once = 1;
    agent_once.in.fd = in;
    agent_once.in.handler = agent_once_in;
    agent_once.out.fd = out;
    agent_once.out.handler = agent_once_out;
    agent_once.socket.fd = -1;
    agent_once.socket.handler = agent_once_socket;
    agent_once.timer.handler = agent_once_again;

    return 0;
}


int
agent_once_over(void)
{
    sigset_t       set;
    struct pollfd  p;

    p.fd = agent_once.out.fd;
    p.events = 0;

    if (poll(&p, 1, 0) == 1 && (p.revents & (POLLERR|POLLHUP|POLLNVAL))) {
        agent_once.gone = 1;
        return 1;
    }

    return sigpending(&set) == 0
           && (sigismember(&set, SIGTERM) || sigismember(&set, SIGINT));
}


void
agent_once_failed(int status)
{
    switch (status) {

    case AGENT_ENGINE_FENCED:
        agent_once_error("fenced", "A newer session of the engine has the "
                         "volumes.", 0);
        break;

    case AGENT_ENGINE_BUSY:
        agent_once_error("too_many_pending", "Another operation of this "
                         "conversation takes longer than this one waits.", 2);
        break;

    default:
        agent_once_error("sandbox_failed", "The sandbox's volumes can't be "
                         "used; see the agent's log.", 0);
    }

    agent_once_end();
    (void) agent_once_flush();
}


int
agent_once_start(void)
{
    int                  fds[2];
    struct stat          st;
    agent_connection_t  *c;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, fds)
        == -1
        || atexit(agent_once_exit) != 0)
    {
        return -1;
    }

    c = agent_connection_new(fds[0], -1, 0, 0);

    if (c == NULL) {
        return -1;
    }

    agent_once.socket.fd = fds[1];

    if (agent_watch_set(&agent_once.socket, EPOLLIN) == -1) {
        return -1;
    }

    /* what is no pipe is always ready, and can't be waited for */

    if (fstat(agent_once.out.fd, &st) == 0
        && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))
        && fcntl(agent_once.out.fd, F_SETFL, O_WRONLY|O_NONBLOCK) == 0
        && agent_watch_set(&agent_once.out, 0) == 0)
    {
        agent_once.out_ready = 1;
    }

    agent_once.in_ready = fstat(agent_once.in.fd, &st) == 0
                          && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))
                          && fcntl(agent_once.in.fd, F_SETFL,
                                   O_RDONLY|O_NONBLOCK) == 0;

    agent_once_look();
    agent_connection_begin(c);

    return 0;
}


static void
agent_once_in(agent_watch_t *watch, uint32_t events)
{
    agent_once_read();
}


static void
agent_once_again(agent_timer_t *timer)
{
    agent_once_read();
}


static void
agent_once_read(void)
{
    ssize_t  n;
    uint8_t  buffer[AGENT_ONCE_READ];

    /* only when the socket has taken what came before */

    if (agent_once.in.fd == -1
        || (agent_once.judged && agent_once.size > agent_once.sent))
    {
        return;
    }

    n = read(agent_once.in.fd, buffer, sizeof(buffer));

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }

    if (n <= 0) {
        agent_once.in_end = 1;
        agent_once_in_done();

    } else {
        agent_once.taken += n;

        if (agent_once.taken > AGENT_ONCE_TEXT) {
            agent_once_error("command_too_large", "The request is over 88 MiB "
                             "of base64.", 0);
            agent_once_end();
            exit(0);
        }

        n = agent_base64_decode(&agent_once.base64, buffer, n,
                                agent_once_request + agent_once.size);

        if (n == -1) {
            agent_once_error("bad_request", "The request is no base64.", 0);
            agent_once_end();
            exit(0);
        }

        agent_once.size += n;
    }

    agent_once_judge();
    agent_once_pass();
    agent_once_look();
}


/* The head is held back until all of it is here, or nothing more comes. */

static void
agent_once_judge(void)
{
    sandbox_preamble_t  preamble;

    if (agent_once.judged) {
        return;
    }

    if (agent_once.size >= SANDBOX_WIRE_PREAMBLE_SIZE
        && sandbox_preamble_read(agent_once_request, &preamble) == SANDBOX_OK)
    {
        if (agent_once.size - SANDBOX_WIRE_PREAMBLE_SIZE < preamble.head
            && !agent_once.in_end)
        {
            return;
        }

        if (agent_once_refused(&preamble)) {
            agent_once_error("not_on_this_backend", "The engine of this "
                             "conversation can only be reached for one "
                             "operation at a time: no streams, no open "
                             "standard input, no background.", 0);
            agent_once_end();
            exit(0);
        }

        /* there was no time to look before, and there is none later */

        if (preamble.operation == SANDBOX_OPERATION_FILE_WRITE) {
            agent_caps_now();
        }

    } else if (agent_once.size < SANDBOX_WIRE_PREAMBLE_SIZE
               && !agent_once.in_end)
    {
        return;
    }

    agent_once.judged = 1;
}


static int
agent_once_refused(const sandbox_preamble_t *preamble)
{
    size_t            size;
    uint64_t          value;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    if (preamble->operation == SANDBOX_OPERATION_ATTACH
        || preamble->operation == SANDBOX_OPERATION_STDIN)
    {
        return 1;
    }

    if (preamble->operation != SANDBOX_OPERATION_COMMAND) {
        return 0;
    }

    size = agent_once.size - SANDBOX_WIRE_PREAMBLE_SIZE;

    if (size > preamble->head) {
        size = preamble->head;
    }

    sandbox_fields_init(&fields, agent_once_request
                                 + SANDBOX_WIRE_PREAMBLE_SIZE, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if ((field.tag == SANDBOX_TAG_STREAM || field.tag == SANDBOX_TAG_DETACH
             || field.tag == SANDBOX_TAG_STDIN_OPEN)
            && sandbox_field_number(&field, UINT64_MAX, &value) == SANDBOX_OK
            && value != 0)
        {
            return 1;
        }
    }

    return 0;
}


/* To the agent, as it takes it. */

static void
agent_once_pass(void)
{
    ssize_t  n;

    while (agent_once.judged && agent_once.sent < agent_once.size
           && agent_once.socket.fd != -1)
    {
        n = send(agent_once.socket.fd, agent_once_request + agent_once.sent,
                 agent_once.size - agent_once.sent, MSG_NOSIGNAL);

        if (n == -1) {
            if (errno == EAGAIN || errno == EINTR) {
                return;
            }

            /* it needs no more of it, and says why */

            agent_once_in_done();
            agent_once.sent = agent_once.size;
            break;
        }

        agent_once.sent += n;
    }

    if (!agent_once.judged) {
        return;
    }

    agent_once.size = 0;
    agent_once.sent = 0;

    if (agent_once.in_end && agent_once.socket.fd != -1) {
        (void) shutdown(agent_once.socket.fd, SHUT_WR);
    }
}


static void
agent_once_in_done(void)
{
    agent_timer_clear(&agent_once.timer);
    agent_watch_close(&agent_once.in);
}


/* Each side is heard while the other one has room; who hangs up says it. */

static void
agent_once_look(void)
{
    uint32_t  events;

    events = (agent_once.text_size ? 0 : EPOLLIN)
             | (agent_once.judged && agent_once.sent < agent_once.size
                ? EPOLLOUT : 0);

    if (events == 0) {
        agent_watch_clear(&agent_once.socket);

    } else {
        (void) agent_watch_set(&agent_once.socket, events);
    }

    if (agent_once.in.fd == -1) {
        return;
    }

    if (events & EPOLLOUT) {
        agent_watch_clear(&agent_once.in);
        agent_timer_clear(&agent_once.timer);

    } else if (!agent_once.in_ready
               || agent_watch_set(&agent_once.in, EPOLLIN) == -1)
    {
        agent_timer_set(&agent_once.timer, 1);
    }
}


static void
agent_once_socket(agent_watch_t *watch, uint32_t events)
{
    if (events & EPOLLOUT) {
        agent_once_pass();
    }

    /* an answer that was cut short ends here, too */

    if (((events & (EPOLLIN|EPOLLHUP|EPOLLERR)) && agent_once.text_size == 0
         && agent_once_answer() == 0)
        || agent_once.done)
    {
        exit(0);
    }

    agent_once_look();
}


/* One read of it.  1: there may be more; 0: its end; -1: nothing now. */

static int
agent_once_answer(void)
{
    ssize_t  n;
    uint8_t  buffer[AGENT_ONCE_READ - 64];

    n = recv(agent_once.socket.fd, buffer, sizeof(buffer), MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return -1;
    }

    if (n <= 0) {
        return 0;
    }

    agent_once_frames(buffer, n);
    (void) agent_once_flush();

    return 1;
}


/* All frames but PING, which nobody would see in time. */

static void
agent_once_frames(const uint8_t *p, size_t size)
{
    size_t           n;
    sandbox_frame_t  frame;

    while (size && !agent_once.done) {

        if (agent_once.have < SANDBOX_WIRE_FRAME_SIZE) {
            agent_once.frame[agent_once.have++] = *p++;
            size--;

            if (agent_once.have < SANDBOX_WIRE_FRAME_SIZE) {
                continue;
            }

            agent_once.begun = 1;
            agent_once.left = sandbox_get32(agent_once.frame);

            if (agent_once.frame[4] != SANDBOX_FRAME_PING) {
                agent_once_encode(agent_once.frame, SANDBOX_WIRE_FRAME_SIZE);
            }
        }

        n = size < agent_once.left ? size : agent_once.left;

        if (agent_once.frame[4] != SANDBOX_FRAME_PING) {
            agent_once_encode(p, n);
        }

        p += n;
        size -= n;
        agent_once.left -= n;

        if (agent_once.left == 0) {
            frame.type = agent_once.frame[4];
            agent_once.have = 0;
            agent_once.done = frame.type == SANDBOX_FRAME_RESULT
                              || frame.type == SANDBOX_FRAME_ERROR;
        }
    }
}


static void
agent_once_encode(const uint8_t *p, size_t size)
{
    while (size--) {
        agent_once.carry[agent_once.carried++] = *p++;

        if (agent_once.carried == 3) {
            agent_once_put(3);
        }
    }
}


/* Four characters for 1 to 3 bytes. */

static void
agent_once_put(unsigned n)
{
    if (agent_once.text_size + 4 > sizeof(agent_once_text)) {
        return;
    }

    agent_base64_encode(agent_once_text + agent_once.text_size,
                        agent_once.carry, n);
    agent_once.text_size += 4;
    agent_once.carried = 0;
}


static void
agent_once_out(agent_watch_t *watch, uint32_t events)
{
    if (events & (EPOLLERR|EPOLLHUP)) {
        agent_once_lost();
        return;
    }

    (void) agent_once_flush();
    agent_once_look();
}


/* 1: all is out; 0: it says when there is room; -1: nobody reads it. */

static int
agent_once_flush(void)
{
    ssize_t  n;

    while (agent_once.text_sent < agent_once.text_size) {
        n = agent_once.gone ? -1
            : write(agent_once.out.fd, agent_once_text + agent_once.text_sent,
                    agent_once.text_size - agent_once.text_sent);

        if (n == -1 && !agent_once.gone
            && (errno == EAGAIN || errno == EINTR))
        {
            if (agent_once.out_ready) {
                (void) agent_watch_set(&agent_once.out, EPOLLOUT);
            }

            return 0;
        }

        if (n <= 0) {
            agent_once_lost();
            return -1;
        }

        agent_once.text_sent += n;
    }

    agent_once.text_size = 0;
    agent_once.text_sent = 0;

    if (agent_once.out_ready && !agent_once.gone) {
        (void) agent_watch_set(&agent_once.out, 0);
    }

    return 1;
}


/* Whoever asked has gone: what was begun for him ends. */

static void
agent_once_lost(void)
{
    if (agent_once.gone) {
        return;
    }

    agent_once.gone = 1;
    agent_once.text_size = 0;
    agent_once.text_sent = 0;
    agent_watch_clear(&agent_once.out);
    agent_log("nobody waits for the answer any more");
    agent_engine_stop();
}


/* One of its own, when no other can be on its way. */

static void
agent_once_error(const char *code, const char *detail, unsigned retry_after)
{
    size_t   size;
    uint8_t  frame[SANDBOX_WIRE_FRAME_SIZE + SANDBOX_WIRE_MAX_ERROR];

    /* behind others it would be none: that nothing follows says it then */

    if (agent_once.begun) {
        return;
    }

    size = sandbox_error_frame(frame, sizeof(frame), code, detail,
                               retry_after);
    agent_once_encode(frame, size);
}


/* The text has its end; nothing can come behind that. */

static void
agent_once_end(void)
{
    agent_once.done = 1;

    if (agent_once.carried) {
        agent_once_put(agent_once.carried);
    }
}


/* What is still on its way goes out, unless nobody takes it. */

static void
agent_once_exit(void)
{
    int            i, rc;
    uint64_t       deadline;
    struct pollfd  p;

    deadline = agent_now_ms() + AGENT_ONCE_FLUSH;

    for (i = 0; i < AGENT_ONCE_DRAIN && !agent_once.gone; i++) {

        if (agent_once_flush() == 0) {
            p.fd = agent_once.out.fd;
            p.events = POLLOUT;

            if (agent_now_ms() > deadline || poll(&p, 1, 100) == -1) {
                return;
            }

            continue;
        }

        rc = agent_once.done ? 0 : agent_once_answer();

        if (rc != 1) {
            break;
        }
    }

    agent_once_end();

    while (agent_once_flush() == 0 && agent_now_ms() < deadline) {
        p.fd = agent_once.out.fd;
        p.events = POLLOUT;
        (void) poll(&p, 1, 100);
    }
}
