/*
 * One connection of a client: its request in, its answer out, each within a
 * bound and a deadline.  What a command is it leaves to the queue.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox_control.h"


#define AGENT_CONNECTION_START  (8 * 1024)       /* bytes of the first read */
#define AGENT_CONNECTION_READS  32               /* in one round */
#define AGENT_CONNECTION_OUT    (8 * 1024)       /* small frames that wait */


static void agent_connection_event(agent_watch_t *watch, uint32_t events);
static void agent_connection_timeout(agent_timer_t *timer);
static void agent_connection_read(agent_connection_t *c);
static int agent_connection_load(agent_connection_t *c, int memfd);
static int agent_connection_parse(agent_connection_t *c);
static int agent_connection_chunks(agent_connection_t *c);
static uint64_t agent_connection_whole(const agent_connection_t *c);
static int agent_connection_room(agent_connection_t *c);
static int agent_connection_resize(agent_connection_t *c, size_t size);
static void agent_connection_flush(agent_connection_t *c);
static ssize_t agent_connection_write(agent_connection_t *c,
    const uint8_t *data, size_t size);
static void agent_connection_linger(agent_connection_t *c);
static void agent_connection_drain(agent_connection_t *c);


static const char           agent_connection_memory[] =
    "Standard input of a command is at most a quarter of the sandbox's memory.";
static agent_connection_t  *agent_connections;
static uint64_t             agent_connection_sequence;


agent_connection_t *
agent_connection_new(int fd, int memfd, uint32_t serial, unsigned flags)
{
    agent_connection_t  *c;

    c = NULL;

    if (agent.connections < AGENT_MAX_CONNECTIONS) {
        c = calloc(1, sizeof(agent_connection_t));
    }

    if (c == NULL) {
        return NULL;
    }

    c->watch.fd = fd;
    c->watch.handler = agent_connection_event;
    c->watch.data = c;
    c->timer.handler = agent_connection_timeout;
    c->timer.data = c;
    c->serial = serial;
    c->sequence = ++agent_connection_sequence;
    c->accepted = agent_now_us();
    c->granted = (flags & SANDBOX_CONN_GRANTED) != 0;
    c->fresh = (flags & SANDBOX_CONN_FRESH) != 0;
    c->returned = memfd != -1;
    c->input_left = memfd == -1;

    c->next = agent_connections;

    if (agent_connections != NULL) {
        agent_connections->prev = c;
    }

    agent_connections = c;
    agent.connections++;

    if (memfd != -1 && agent_connection_load(c, memfd) == -1) {
        agent_log("a returned request could not be read");
        c->in_have = 0;
    }

    return c;
}


void
agent_connection_refuse(int fd)
{
    int      i;
    size_t   size;
    uint8_t  frame[512], buffer[4096];

    size = sandbox_error_frame(frame, sizeof(frame), "too_many_pending",
                               "The sandbox has too many connections.", 1);

    (void) !send(fd, frame, size, MSG_DONTWAIT|MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);

    /* on TCP, what is left unread would overtake the ERROR as a reset */

    for (i = 0; i < AGENT_CONNECTION_READS; i++) {
        if (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) <= 0) {
            break;
        }
    }

    agent_log("a connection was refused: %u are open", agent.connections);
}


void
agent_connection_begin(agent_connection_t *c)
{
    c->state = AGENT_CONNECTION_READ;
    agent_connection_read(c);
}


void
agent_connection_error(agent_connection_t *c, const char *code,
    const char *detail, unsigned retry_after)
{
    size_t   size;
    uint8_t  frame[SANDBOX_WIRE_FRAME_SIZE + SANDBOX_WIRE_MAX_ERROR];

    if (c->head_sent) {

        /* an answer has begun: only its absence can say that it failed */

        agent_connection_close(c);
        return;
    }

    size = sandbox_error_frame(frame, sizeof(frame), code, detail,
                               retry_after);

    c->state = AGENT_CONNECTION_ANSWER;
    agent_timer_set(&c->timer, SANDBOX_WIRE_LINGER_WAIT);

    if (agent_connection_send(c, frame, size) == -1) {
        agent_connection_close(c);
        return;
    }

    agent_connection_flush(c);
}


int
agent_connection_send(agent_connection_t *c, const uint8_t *data, size_t size)
{
    ssize_t  n;

    n = 0;

    if (c->out_size == c->out_sent) {
        n = agent_connection_write(c, data, size);

        if (n == -1) {
            return -1;
        }
    }

    if ((size_t) n == size) {
        return 0;
    }

    if (c->out == NULL) {
        c->out = malloc(AGENT_CONNECTION_OUT);

        if (c->out == NULL) {
            return -1;
        }
    }

    if (c->out_size + size - n > AGENT_CONNECTION_OUT) {
        return -1;
    }

    memcpy(c->out + c->out_size, data + n, size - n);
    c->out_size += size - n;

    return agent_watch_set(&c->watch, EPOLLOUT);
}


void
agent_connection_answer(agent_connection_t *c, agent_answer_t *answer)
{
    c->command = NULL;
    c->answer = answer;
    c->answer_sent = c->head_sent ? answer->head : 0;
    c->head_sent = 1;
    c->state = AGENT_CONNECTION_ANSWER;
    answer->references++;

    agent_timer_set(&c->timer, AGENT_SEND_WAIT);
    agent_connection_flush(c);
}


void
agent_connection_wait(agent_connection_t *c)
{
    c->state = AGENT_CONNECTION_WAIT;
    agent_timer_set(&c->timer, SANDBOX_WIRE_PING_INTERVAL);
}


void
agent_connection_close(agent_connection_t *c)
{
    int  fd;

    if (c->command != NULL) {
        agent_queue_lost(c);
    }

    fd = agent_connection_detach(c);

    if (fd != -1) {
        close(fd);
    }
}


int
agent_connection_detach(agent_connection_t *c)
{
    int  fd;

    agent_watch_clear(&c->watch);
    agent_timer_clear(&c->timer);
    fd = c->watch.fd;

    if (c->prev != NULL) {
        c->prev->next = c->next;

    } else {
        agent_connections = c->next;
    }

    if (c->next != NULL) {
        c->next->prev = c->prev;
    }

    if (c->answer != NULL) {
        agent_answer_release(c->answer);
    }

    agent.request_bytes -= c->in_size;
    agent.connections--;

    free(c->in);
    free(c->out);
    free(c);

    return fd;
}


agent_connection_t *
agent_connection_first(void)
{
    return agent_connections;
}


agent_connection_t *
agent_connection_by_serial(uint32_t serial)
{
    agent_connection_t  *c;

    for (c = agent_connections; c != NULL; c = c->next) {
        if (c->state == AGENT_CONNECTION_TAKE && c->serial == serial) {
            break;
        }
    }

    return c;
}


unsigned
agent_connection_reading(void)
{
    unsigned             n;
    agent_connection_t  *c;

    n = 0;

    for (c = agent_connections; c != NULL; c = c->next) {
        n += c->state == AGENT_CONNECTION_TAKE
             || c->state == AGENT_CONNECTION_READ;
    }

    return n;
}


static void
agent_connection_event(agent_watch_t *watch, uint32_t events)
{
    agent_connection_t  *c;

    c = watch->data;

    switch (c->state) {

    case AGENT_CONNECTION_TAKE:
        break;

    case AGENT_CONNECTION_READ:
        agent_connection_read(c);
        break;

    case AGENT_CONNECTION_WAIT:
        if (events & (EPOLLHUP|EPOLLERR)) {
            agent_connection_close(c);
            break;
        }

        /* fall through */

    case AGENT_CONNECTION_ANSWER:
        agent_connection_flush(c);
        break;

    case AGENT_CONNECTION_LINGER:
        agent_connection_drain(c);
        break;
    }
}


static void
agent_connection_timeout(agent_timer_t *timer)
{
    uint8_t              frame[SANDBOX_WIRE_FRAME_SIZE];
    agent_connection_t  *c;

    c = timer->data;

    if (c->state == AGENT_CONNECTION_READ) {
        agent_connection_error(c, "slow_request",
                               "The request did not come within 10 s.", 0);
        agent_queue_process();
        return;
    }

    if (c->state != AGENT_CONNECTION_WAIT) {
        agent_connection_close(c);
        return;
    }

    /* events 0: a hang-up is reported from now on, input is not */

    sandbox_frame_write(frame, SANDBOX_FRAME_PING, 0);

    if ((c->out_size == c->out_sent
         && agent_connection_send(c, frame, sizeof(frame)) == -1)
        || (!c->watch.active && agent_watch_set(&c->watch, 0) == -1))
    {
        agent_connection_close(c);
        return;
    }

    agent_timer_set(&c->timer, SANDBOX_WIRE_PING_INTERVAL);
}


static void
agent_connection_read(agent_connection_t *c)
{
    int      i, rc, progress;
    ssize_t  n;

    progress = 0;

    for (i = 0; i < AGENT_CONNECTION_READS; i++) {

        rc = agent_connection_parse(c);

        if (rc == SANDBOX_BAD) {
            return;
        }

        if (rc == SANDBOX_OK) {
            agent_timer_clear(&c->timer);
            agent_queue_enter(c);
            return;
        }

        if (agent_connection_room(c) == -1) {
            agent_connection_error(c, "too_many_pending",
                                   "The sandbox holds too many requests.", 2);
            agent_queue_process();
            return;
        }

        n = recv(c->watch.fd, c->in + c->in_have, c->in_size - c->in_have,
                 MSG_DONTWAIT);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }

        if (n <= 0) {

            /* it never was a whole request: nothing is done for it */

            agent_connection_close(c);
            agent_queue_process();
            return;
        }

        c->in_have += n;
        progress = 1;
    }

    if (agent_watch_set(&c->watch, EPOLLIN) == -1) {
        agent_connection_close(c);
        return;
    }

    if (progress || !c->timer.active) {
        agent_timer_set(&c->timer, SANDBOX_WIRE_REQUEST_WAIT);
    }
}


/* Reads what the agent before us had taken; closes memfd. */

static int
agent_connection_load(agent_connection_t *c, int memfd)
{
    int          rc;
    size_t       size;
    ssize_t      n;
    struct stat  st;

    rc = -1;

    if (fstat(memfd, &st) == -1 || !S_ISREG(st.st_mode)
        || st.st_size < SANDBOX_WIRE_PREAMBLE_SIZE
        || (uint64_t) st.st_size > SANDBOX_WIRE_PREAMBLE_SIZE
                                   + SANDBOX_WIRE_MAX_HEAD + AGENT_MAX_BODY)
    {
        goto done;
    }

    size = st.st_size;

    if (agent_connection_resize(c, size) == -1) {
        goto done;
    }

    while (c->in_have < size) {
        n = pread(memfd, c->in + c->in_have, size - c->in_have, c->in_have);
        if (n <= 0) {
            goto done;
        }

        c->in_have += n;
    }

    rc = 0;

done:

    close(memfd);

    return rc;
}


/*
 * SANDBOX_OK: the request is complete.  SANDBOX_BAD: it was refused, c may
 * be gone.  SANDBOX_AGAIN: it needs more bytes.
 */

static int
agent_connection_parse(agent_connection_t *c)
{
    int          rc;
    size_t       whole;
    const char  *code, *detail;

    if (c->in_have < SANDBOX_WIRE_PREAMBLE_SIZE) {
        if (!c->returned) {
            return SANDBOX_AGAIN;
        }

        code = "internal";
        detail = "The request was lost when the sandbox was replaced.";
        goto refused;
    }

    if (!c->parsed) {
        if (sandbox_preamble_read(c->in, &c->preamble) != SANDBOX_OK) {
            code = "bad_request";
            detail = "The preamble is malformed.";
            goto refused;
        }

        code = agent_sandbox_admit(&c->preamble, c->returned, &detail);

        if (code != NULL) {
            goto refused;
        }

        if (c->preamble.body != SANDBOX_WIRE_BODY_CHUNKED
            && c->preamble.body > AGENT_MAX_BODY)
        {
            code = "command_too_large";
            detail = "Standard input of a command is at most 64 MiB.";
            goto refused;
        }

        if (agent_connection_whole(c) > agent.request_limit) {
            code = "command_too_large";
            detail = agent_connection_memory;
            goto refused;
        }

        c->parsed = 1;
    }

    whole = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;

    if (c->preamble.body == SANDBOX_WIRE_BODY_CHUNKED) {
        if (c->in_have < whole) {
            rc = SANDBOX_AGAIN;

        } else {
            rc = agent_connection_chunks(c);
        }

        if (rc == SANDBOX_BAD) {
            code = "bad_request";
            detail = "The body is malformed, or over 64 MiB.";
            goto refused;
        }

        if (rc == SANDBOX_AGAIN
            && agent_connection_whole(c) > agent.request_limit)
        {
            code = "command_too_large";
            detail = agent_connection_memory;
            goto refused;
        }

    } else {
        whole += c->preamble.body;
        rc = c->in_have < whole ? SANDBOX_AGAIN : SANDBOX_OK;

        if (rc == SANDBOX_OK) {
            c->in_have = whole;
            c->input_left = 0;
        }
    }

    if (rc == SANDBOX_AGAIN && c->returned) {
        code = "internal";
        detail = "The request was cut short when the sandbox was replaced.";
        goto refused;
    }

    return rc;

refused:

    agent_connection_error(c, code, detail, 0);
    agent_queue_process();

    return SANDBOX_BAD;
}


/*
 * Takes the lengths out of a chunked body, in place: decoded bytes first,
 * then what is not decoded yet.  At its end the preamble gets the length.
 */

static int
agent_connection_chunks(agent_connection_t *c)
{
    size_t    n, start, pos;
    uint8_t  *p;

    start = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;
    pos = start + c->body;
    p = c->in;

    while (pos < c->in_have) {

        if (c->chunk) {
            n = c->in_have - pos;

            if (n > c->chunk) {
                n = c->chunk;
            }

            memmove(p + start + c->body, p + pos, n);
            c->body += n;
            c->chunk -= n;
            pos += n;
            continue;
        }

        if (c->in_have - pos < SANDBOX_WIRE_CHUNK_SIZE) {
            break;
        }

        c->chunk = sandbox_get32(p + pos);
        pos += SANDBOX_WIRE_CHUNK_SIZE;

        if (c->chunk == 0) {
            c->preamble.body = c->body;
            c->in_have = start + c->body;
            c->input_left = 0;
            sandbox_preamble_write(p, &c->preamble);
            return SANDBOX_OK;
        }

        if (c->chunk > SANDBOX_WIRE_MAX_CHUNK
            || c->chunk > AGENT_MAX_BODY - c->body)
        {
            return SANDBOX_BAD;
        }
    }

    n = c->in_have - pos;
    memmove(p + start + c->body, p + pos, n);
    c->in_have = start + c->body + n;

    return SANDBOX_AGAIN;
}


/* Bytes of a whole request, as far as that is known; and a read more. */

static uint64_t
agent_connection_whole(const agent_connection_t *c)
{
    uint64_t  whole;

    whole = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;

    if (c->preamble.body == SANDBOX_WIRE_BODY_CHUNKED) {
        return whole + c->body + c->chunk + SANDBOX_WIRE_CHUNK_SIZE
               + 64 * 1024;
    }

    return whole + c->preamble.body;
}


/* Makes room for the next read: what is known to come, step by step. */

static int
agent_connection_room(agent_connection_t *c)
{
    size_t    size;
    uint64_t  whole;

    if (!c->parsed) {
        return agent_connection_resize(c, AGENT_CONNECTION_START);
    }

    /* memory follows what has arrived, not what was announced */

    size = c->in_have < AGENT_CONNECTION_START ? AGENT_CONNECTION_START
                                               : 2 * c->in_have;
    whole = agent_connection_whole(c);

    if (size > whole) {
        size = whole;
    }

    return agent_connection_resize(c, size);
}


static int
agent_connection_resize(agent_connection_t *c, size_t size)
{
    uint8_t  *grown;

    if (size <= c->in_size) {
        return 0;
    }

    if (agent.request_bytes + size - c->in_size > agent.request_limit) {
        return -1;
    }

    grown = realloc(c->in, size);
    if (grown == NULL) {
        return -1;
    }

    agent.request_bytes += size - c->in_size;
    c->in = grown;
    c->in_size = size;

    return 0;
}


/* Sends what waits; at the end of an answer it closes, or lingers. */

static void
agent_connection_flush(agent_connection_t *c)
{
    int              again;
    ssize_t          n;
    agent_answer_t  *answer;

    answer = c->answer;
    again = 0;

    if (c->out_sent < c->out_size) {
        n = agent_connection_write(c, c->out + c->out_sent,
                                   c->out_size - c->out_sent);
        if (n == -1) {
            goto lost;
        }

        c->out_sent += n;
        again = c->out_sent < c->out_size;

        if (!again) {
            c->out_size = 0;
            c->out_sent = 0;
        }
    }

    if (!again && answer != NULL && c->answer_sent < answer->size) {
        n = agent_connection_write(c, answer->data + c->answer_sent,
                                   answer->size - c->answer_sent);
        if (n == -1) {
            goto lost;
        }

        c->answer_sent += n;
        again = c->answer_sent < answer->size;

        if (n && again) {
            agent_timer_set(&c->timer, AGENT_SEND_WAIT);
        }
    }

    if (again) {
        if (agent_watch_set(&c->watch, EPOLLOUT) == -1) {
            goto lost;
        }

        return;
    }

    if (c->state == AGENT_CONNECTION_WAIT) {
        agent_watch_set(&c->watch, 0);
        return;
    }

    if (c->input_left) {
        agent_connection_linger(c);
        return;
    }

lost:

    agent_connection_close(c);
}


/* The bytes that the socket took, 0 if it is full, -1 if it is broken. */

static ssize_t
agent_connection_write(agent_connection_t *c, const uint8_t *data,
    size_t size)
{
    size_t   sent;
    ssize_t  n;

    for (sent = 0; sent < size; sent += n) {
        n = send(c->watch.fd, data + sent, size - sent,
                 MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1) {
            if (errno == EINTR) {
                n = 0;
                continue;
            }

            return errno == EAGAIN ? (ssize_t) sent : -1;
        }
    }

    return sent;
}


/*
 * A client that still sends would get a broken pipe instead of our ERROR:
 * its input is read away for a while.
 */

static void
agent_connection_linger(agent_connection_t *c)
{
    c->state = AGENT_CONNECTION_LINGER;
    shutdown(c->watch.fd, SHUT_WR);
    agent_timer_set(&c->timer, SANDBOX_WIRE_LINGER_WAIT);
    agent_connection_drain(c);
}


static void
agent_connection_drain(agent_connection_t *c)
{
    int      i;
    ssize_t  n;
    uint8_t  buffer[16 * 1024];

    for (i = 0; i < AGENT_CONNECTION_READS; i++) {
        n = recv(c->watch.fd, buffer, sizeof(buffer), MSG_DONTWAIT);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }

        if (n <= 0) {
            agent_connection_close(c);
            return;
        }

        c->lingered += n;

        if (c->lingered >= SANDBOX_WIRE_LINGER_BYTES) {
            agent_connection_close(c);
            return;
        }
    }

    if (agent_watch_set(&c->watch, EPOLLIN) == -1) {
        agent_connection_close(c);
    }
}
