/*
 * One connection of a client: its answer out, within a bound and a deadline,
 * and what the client may say meanwhile.  Events it sends straight from the
 * ring of their command, as fast as its client reads and no faster.  What a
 * command is it leaves to others.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_file.h"
#include "agent_stage.h"
#include "sandbox_control.h"


#define AGENT_CONNECTION_READS  32               /* in one round */
#define AGENT_CONNECTION_SENDS  8                /* of events, in one round */
#define AGENT_CONNECTION_SEND   (64 * 1024)      /* bytes of each */
#define AGENT_CONNECTION_STUCK  5000            /* ms, then it may go */
#define AGENT_CONNECTION_OUT    (48 * 1024)      /* the longest of frames */


static void agent_connection_event(agent_watch_t *watch, uint32_t events);
static int agent_connection_frames(agent_connection_t *c);
static void agent_connection_timeout(agent_timer_t *timer);
static void agent_connection_flush(agent_connection_t *c);
static int agent_connection_events(agent_connection_t *c);
static int agent_connection_keep(agent_connection_t *c, const uint8_t *data,
    size_t size);
static ssize_t agent_connection_write(agent_connection_t *c,
    const uint8_t *data, size_t size);
static void agent_connection_linger(agent_connection_t *c);
static void agent_connection_drain(agent_connection_t *c);


static agent_connection_t  *agent_connections;
static uint64_t             agent_connection_sequence;


agent_connection_t *
agent_connection_new(int fd, int memfd, uint32_t serial, unsigned flags)
{
    agent_connection_t  *c;

    c = NULL;

    if (agent.connections < AGENT_MAX_CONNECTIONS
        || agent_connection_make_room())
    {
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
    agent_open_begin();

    if (memfd != -1 && agent_receive_load(c, memfd) == -1) {
        agent_log("a returned request could not be read");
        c->in_have = 0;
    }

    return c;
}


/*
 * Who lets his clients stand and read nothing must not be locked out by them:
 * what such a one had to hear can be asked for again.
 */

int
agent_connection_make_room(void)
{
    uint64_t             now;
    agent_connection_t  *c, *first;

    now = agent_now_us();
    first = NULL;

    for (c = agent_connections; c != NULL; c = c->next) {
        if ((c->watch.events & EPOLLOUT)
            && now - c->stuck >= AGENT_CONNECTION_STUCK * 1000
            && (first == NULL || c->stuck < first->stuck))
        {
            first = c;
        }
    }

    if (first == NULL) {
        return 0;
    }

    agent_log("a connection that takes nothing was closed: %u are open",
              agent.connections);
    agent_connection_close(first);

    return 1;
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
    agent_receive(c);
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

    if (agent_connection_keep(c, data + n, size - n) == -1) {
        return -1;
    }

    return agent_connection_look(c, 1);
}


/* Only where nothing waits: whoever has not read that is not told more. */

void
agent_connection_ping(agent_connection_t *c)
{
    ssize_t  n;
    uint8_t  frame[SANDBOX_WIRE_FRAME_SIZE];

    if (c->out_size != c->out_sent) {
        return;
    }

    sandbox_frame_write(frame, SANDBOX_FRAME_PING, 0);
    n = agent_connection_write(c, frame, sizeof(frame));

    if (n > 0 && n < (ssize_t) sizeof(frame)) {
        (void) agent_connection_keep(c, frame + n, sizeof(frame) - n);
    }
}


void
agent_connection_answer(agent_connection_t *c, agent_answer_t *answer)
{
    c->command = NULL;
    c->answer = answer;
    c->answer_sent = c->head_sent ? answer->head : 0;
    c->state = AGENT_CONNECTION_ANSWER;
    answer->references++;

    agent_timer_set(&c->timer, AGENT_SEND_WAIT);

    if (c->stream) {

        /* in place of the captured output it gets, or got, the events */

        if (!c->head_sent
            && agent_connection_send(c, answer->data, answer->head) == -1)
        {
            agent_connection_close(c);
            return;
        }

        c->answer_sent = agent_answer_result(answer, NULL);
    }

    c->head_sent = 1;
    agent_connection_flush(c);
}


int
agent_connection_out(agent_connection_t *c)
{
    ssize_t  n;

    if (c->out_sent < c->out_size) {
        n = agent_connection_write(c, c->out + c->out_sent,
                                   c->out_size - c->out_sent);
        if (n == -1) {
            return -1;
        }

        c->out_sent += n;

        if (n && c->answer != NULL) {
            agent_timer_set(&c->timer, AGENT_SEND_WAIT);
        }

        if (c->out_sent < c->out_size) {
            return agent_connection_look(c, 1);
        }

        free(c->out);
        c->out = NULL;
        c->out_room = 0;
        c->out_size = 0;
        c->out_sent = 0;
    }

    return 1;
}


void
agent_connection_finish(agent_connection_t *c, const uint8_t *data,
    size_t size)
{
    if (agent_connection_send(c, data, size) == -1) {
        agent_connection_close(c);
        return;
    }

    c->reading = 0;
    c->state = AGENT_CONNECTION_ANSWER;
    agent_timer_set(&c->timer, AGENT_SEND_WAIT);
    agent_connection_flush(c);
}


void
agent_connection_wait(agent_connection_t *c)
{
    c->state = AGENT_CONNECTION_WAIT;

    /* what came behind the request is looked at when all is in its place */

    agent_timer_set(&c->timer, c->frame_have == sizeof(c->frame)
                               ? 1 : SANDBOX_WIRE_PING_INTERVAL);

    (void) agent_connection_look(c, 0);
}


int
agent_connection_follow(agent_connection_t *c, agent_events_t *events,
    uint64_t after)
{
    if (agent_events_seek(events, &c->cursor, after) == -1) {
        return -1;
    }

    agent_events_follow(events);
    c->events = events;
    c->stream = 1;

    return 0;
}


void
agent_connection_push(agent_connection_t *c)
{
    /* a full socket says itself when it has room again */

    if (c->events != NULL && c->state == AGENT_CONNECTION_WAIT
        && c->head_sent && !(c->watch.events & EPOLLOUT))
    {
        agent_connection_flush(c);
    }
}


int
agent_connection_look(agent_connection_t *c, int out)
{
    uint32_t  events;

    events = out ? EPOLLOUT : 0;

    if (out && !(c->watch.events & EPOLLOUT)) {
        c->stuck = agent_now_us();
    }

    if ((c->state == AGENT_CONNECTION_WAIT && !c->silent)
        || ((c->state == AGENT_CONNECTION_INPUT
             || c->state == AGENT_CONNECTION_FILE) && c->reading))
    {
        events |= EPOLLIN;
    }

    return agent_watch_set(&c->watch, events);
}


void
agent_connection_forget(agent_connection_t *c)
{
    agent.request_bytes -= c->in_size;
    free(c->in);
    c->in = NULL;
    c->in_size = 0;
    c->in_have = 0;
}


void
agent_connection_park(agent_connection_t *c)
{
    c->parked = 1;

    /* what comes behind the head is read when its turn has come */

    c->silent = 1;
    agent_connection_wait(c);
}


void
agent_connection_release(agent_connection_t *c)
{
    c->parked = 0;
    c->silent = 0;
    c->state = AGENT_CONNECTION_READ;
    agent_timer_clear(&c->timer);
}


void
agent_connection_close(agent_connection_t *c)
{
    int  fd;

    if (c->state == AGENT_CONNECTION_INPUT) {
        agent_stdin_lost(c);

    } else if (c->command != NULL) {
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

    if (c->events != NULL) {
        agent_events_leave(c->events);
    }

    if (c->file != NULL) {
        agent_file_lost(c);
    }

    if (c->stage != NULL) {
        agent_stage_free(c->stage);
    }

    agent_connection_forget(c);
    agent.connections--;
    agent_open_end();

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

    if (events & EPOLLOUT) {
        c->stuck = agent_now_us();
    }

    switch (c->state) {

    case AGENT_CONNECTION_TAKE:
        break;

    case AGENT_CONNECTION_READ:
        agent_receive(c);
        break;

    case AGENT_CONNECTION_INPUT:
        if (!c->reading && (events & (EPOLLHUP|EPOLLERR))) {
            agent_connection_close(c);

        } else if (events & EPOLLOUT) {
            agent_connection_flush(c);

        } else {
            agent_stdin_read(c);
        }

        break;

    case AGENT_CONNECTION_FILE:
        if (events & (EPOLLHUP|EPOLLERR)) {
            agent_connection_close(c);

        } else {
            agent_file_event(c);
        }

        break;

    case AGENT_CONNECTION_WAIT:

        /* a client may cancel as the last thing it does */

        if ((events & EPOLLIN) && agent_connection_frames(c) == -1) {
            break;
        }

        if (events & (EPOLLHUP|EPOLLERR)) {
            agent_connection_close(c);
            break;
        }

        if (!(events & EPOLLOUT)) {
            break;
        }

        /* fall through */

    case AGENT_CONNECTION_ANSWER:
        agent_connection_flush(c);
        break;

    case AGENT_CONNECTION_LINGER:

        /* enough was read, so this is its end */

        if (c->lingered >= SANDBOX_WIRE_LINGER_BYTES) {
            agent_connection_close(c);
            break;
        }

        agent_connection_drain(c);
        break;
    }
}


/*
 * A frame of the client, which can only be CANCEL.  -1: the connection is not
 * to be touched any more, or the command is; what the socket says comes again.
 */

static int
agent_connection_frames(agent_connection_t *c)
{
    ssize_t          n;
    sandbox_frame_t  frame;

    if (c->silent) {
        return 0;
    }

    while (c->frame_have < sizeof(c->frame)) {
        n = recv(c->watch.fd, c->frame + c->frame_have,
                 sizeof(c->frame) - c->frame_have, MSG_DONTWAIT);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }

        if (n <= 0) {

            /* it says nothing more; that it is gone is said by the socket */

            break;
        }

        c->frame_have += n;
    }

    c->silent = 1;

    if (agent_connection_look(c, c->watch.events & EPOLLOUT) == -1) {
        agent_connection_close(c);
        return -1;
    }

    if (c->frame_have < sizeof(c->frame)) {
        return 0;
    }

    if (sandbox_frame_read(c->frame, &frame) != SANDBOX_OK
        || frame.type != SANDBOX_FRAME_CANCEL)
    {
        agent_log("a client sent something else than CANCEL behind its "
                  "request");
        agent_connection_close(c);
        return -1;
    }

    if (c->command != NULL) {
        agent_operation_cancel(c->command);
    }

    return -1;
}


static void
agent_connection_timeout(agent_timer_t *timer)
{
    uint8_t              frame[SANDBOX_WIRE_FRAME_SIZE];
    agent_connection_t  *c;

    c = timer->data;

    if (c->state == AGENT_CONNECTION_READ) {
        agent_receive_timeout(c);
        return;
    }

    if (c->state == AGENT_CONNECTION_WAIT
        && c->frame_have == sizeof(c->frame) && !c->silent)
    {
        agent_timer_set(&c->timer, SANDBOX_WIRE_PING_INTERVAL);
        (void) agent_connection_frames(c);
        return;
    }

    if (c->state != AGENT_CONNECTION_WAIT
        && c->state != AGENT_CONNECTION_INPUT
        && c->state != AGENT_CONNECTION_FILE)
    {
        agent_connection_close(c);
        return;
    }

    sandbox_frame_write(frame, SANDBOX_FRAME_PING, 0);

    if (c->out_size == c->out_sent
        && (c->file == NULL || c->file->frame == 0)
        && agent_connection_send(c, frame, sizeof(frame)) == -1)
    {
        agent_connection_close(c);
        return;
    }

    agent_timer_set(&c->timer, SANDBOX_WIRE_PING_INTERVAL);

    if (c->state == AGENT_CONNECTION_INPUT) {
        agent_stdin_tick(c);

    } else if (c->state == AGENT_CONNECTION_FILE) {
        agent_file_tick(c);
    }
}


/* Sends what waits; at the end of an answer it closes, or lingers. */

static void
agent_connection_flush(agent_connection_t *c)
{
    int              again;
    ssize_t          n;
    agent_answer_t  *answer;

    answer = c->answer;
    n = agent_connection_out(c);

    if (n == -1) {
        goto lost;
    }

    again = n == 0;

    if (!again && c->events != NULL) {
        again = agent_connection_events(c);

        if (again == -1) {
            goto lost;
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

    if (again || c->state != AGENT_CONNECTION_ANSWER) {
        if (agent_connection_look(c, again) == -1) {
            goto lost;
        }

        return;
    }

    if (c->input_left) {
        agent_connection_linger(c);
        return;
    }

    /* a CANCEL that came too late must not look like an abort to the client */

    if (c->watch.active && !c->silent) {
        (void) !recv(c->watch.fd, c->frame, sizeof(c->frame), MSG_DONTWAIT);
    }

lost:

    agent_connection_close(c);
}


/* Events from where it is.  1: there are more when it is writable. */

static int
agent_connection_events(agent_connection_t *c)
{
    size_t          n;
    ssize_t         sent;
    unsigned        i;
    uint8_t         lost[AGENT_EVENTS_LOST];
    struct iovec    iov[2];
    struct msghdr   m;
    static uint8_t  rest[AGENT_EVENTS_REST];

    memset(&m, 0, sizeof(m));
    m.msg_iov = iov;

    for (i = 0; i < AGENT_CONNECTION_SENDS; i++) {

        n = agent_events_lost(c->events, &c->cursor, lost);

        if (n && agent_connection_send(c, lost, n) == -1) {
            return -1;
        }

        if (c->out_sent < c->out_size) {
            return 1;
        }

        m.msg_iovlen = agent_events_peek(c->events, &c->cursor, iov,
                                         AGENT_CONNECTION_SEND);
        if (m.msg_iovlen == 0) {
            return 0;
        }

        sent = sendmsg(c->watch.fd, &m, MSG_DONTWAIT|MSG_NOSIGNAL);

        if (sent == -1) {
            return errno == EAGAIN || errno == EINTR ? 1 : -1;
        }

        /* the ring may lose a frame whose half is out: its rest is kept */

        n = agent_events_taken(c->events, &c->cursor, sent, rest);

        if (n && agent_connection_keep(c, rest, n) == -1) {
            return -1;
        }

        if (c->answer != NULL) {
            agent_timer_set(&c->timer, AGENT_SEND_WAIT);
        }

        if (n) {
            return 1;
        }
    }

    return 1;
}


/* What the socket did not take now. */

static int
agent_connection_keep(agent_connection_t *c, const uint8_t *data, size_t size)
{
    uint8_t  *grown;

    if (c->out_size + size > AGENT_CONNECTION_OUT) {
        return -1;
    }

    if (c->out_size + size > c->out_room) {
        grown = realloc(c->out, c->out_size + size);

        if (grown == NULL) {
            return -1;
        }

        c->out = grown;
        c->out_room = c->out_size + size;
    }

    memcpy(c->out + c->out_size, data, size);
    c->out_size += size;

    return 0;
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
 * A client that still sends would get a broken pipe instead of our ERROR: its
 * input is read away for a while.  After that it may stay unread, but closing
 * is the client's, or the timer's: a reset can overtake the ERROR.
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
            break;
        }
    }

    /* a hang-up is told in any case */

    if (agent_watch_set(&c->watch,
                        c->lingered < SANDBOX_WIRE_LINGER_BYTES ? EPOLLIN : 0)
        == -1)
    {
        agent_connection_close(c);
    }
}
