/*
 * The control channel: what an agent says is checked here, and turned into
 * calls; what it is told is sent without ever waiting for it.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>

#include "bound.h"
#include "conn.h"
#include "container.h"
#include "control.h"
#include "egress.h"
#include "pool.h"
#include "sandbox.h"
#include "version.h"


#define RUNNER_CONTROL_TURN   64                 /* messages a turn */
#define RUNNER_CONTROL_DRAIN  2048


static int runner_control_message(runner_container_t *container,
    runner_message_t *message, int drain);
static int runner_control_ready(runner_container_t *container,
    runner_message_t *message);
static int runner_control_taken(runner_container_t *container,
    uint32_t serial);
static int runner_control_state(runner_container_t *container,
    runner_message_t *message);
static int runner_control_returned(runner_container_t *container,
    runner_message_t *message);
static int runner_control_send(runner_container_t *container, uint8_t type,
    uint8_t flags, uint32_t serial, sandbox_writer_t *fields, const int *fds,
    unsigned nfds);
static void runner_control_room(runner_container_t *container, int out);


void
runner_control_event(runner_event_t *event, uint32_t events)
{
    int                  rc, n;
    runner_message_t     message;
    runner_container_t  *container;

    container = event->data;

    /* it hung up meanwhile: what it has said before is read after all */

    if (container->paused) {
        events |= EPOLLIN;
    }

    for (n = 0; (events & EPOLLIN) && n < RUNNER_CONTROL_TURN; n++) {

        rc = runner_message_receive(event->fd, &message);

        if (rc == -1 && errno == EAGAIN) {
            break;
        }

        if (rc == 0 || (rc == -1 && errno != EPROTO)) {
            runner_container_broken(container);
            return;
        }

        if (rc == -1
            || runner_control_message(container, &message, 0) == -1)
        {
            runner_container_kill(container, "its agent sent what is no "
                                  "message of the control channel");
            return;
        }

        if (event->handler == NULL) {
            return;
        }

        if (message.type != SANDBOX_CONTROL_TAKEN && !container->paused
            && runner_bound_said(container))
        {
            return;
        }
    }

    /* all that was said before the end has been read: see the end itself */

    if (!(events & EPOLLIN) && (events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR))) {
        runner_container_broken(container);
        return;
    }

    if (events & EPOLLOUT) {
        runner_control_flush(container);
    }
}


/*
 * Who has an answer of an agent may ask us before it is the turn of what that
 * agent has told us first.  The sandbox may be gone afterwards.
 */

void
runner_control_hear(runner_container_t *container)
{
    if (container->control.handler != NULL && !container->paused) {
        runner_control_event(&container->control, EPOLLIN);
    }
}


void
runner_control_drain(runner_container_t *container)
{
    int               n;
    runner_message_t  message;

    for (n = 0; n < RUNNER_CONTROL_DRAIN; n++) {
        if (runner_message_receive(container->control.fd, &message) != 1
            || runner_control_message(container, &message, 1) == -1)
        {
            return;
        }
    }
}


/* -1: the message is malformed, or makes no sense at this time */

static int
runner_control_message(runner_container_t *container,
    runner_message_t *message, int drain)
{
    int  rc, returned;

    returned = message->type == SANDBOX_CONTROL_RETURN;

    if (message->flags != 0
        || message->nfds != (returned ? SANDBOX_CONTROL_MAX_FDS : 0))
    {
        runner_message_close(message);
        return -1;
    }

    if (drain
        && (message->type == SANDBOX_CONTROL_READY
            || message->type == SANDBOX_CONTROL_WANT
            || message->type == SANDBOX_CONTROL_REPLACE))
    {
        return 0;
    }

    if ((message->type == SANDBOX_CONTROL_READY)
        != (container->state == RUNNER_CONTAINER_OPENING))
    {
        runner_message_close(message);

        /* while it opens only READY; afterwards READY never again */

        return -1;
    }

    switch (message->type) {

    case SANDBOX_CONTROL_READY:
        rc = runner_control_ready(container, message);
        break;

    case SANDBOX_CONTROL_TAKEN:
        rc = runner_control_taken(container, message->serial);
        break;

    case SANDBOX_CONTROL_WANT:
        rc = 0;

        if (container->sandbox != NULL && !container->end) {
            runner_sandbox_want(container->sandbox);
        }

        break;

    case SANDBOX_CONTROL_DONE:
        rc = container->held ? 0 : -1;

        if (rc == 0) {
            container->held--;
            runner_bound_held(container);
            runner_grants_give(&container->runner->grants, 1);

            if (!drain) {
                runner_sandbox_grant(container->runner);
                runner_version_settled(container->sandbox);
            }
        }

        break;

    case SANDBOX_CONTROL_STATE:
        rc = runner_control_state(container, message);
        break;

    case SANDBOX_CONTROL_RETURN:
        rc = runner_control_returned(container, message);
        break;

    case SANDBOX_CONTROL_REPLACE:

        /* for a command that it has taken; or it would make them for ever */

        rc = container->proven || container->adopted ? 0 : -1;

        if (rc == -1) {
            break;
        }

        if (container->sandbox != NULL && !container->end) {
            runner_sandbox_replace(container->sandbox);
        }

        break;

    default:
        rc = -1;
    }

    runner_message_close(message);

    return rc;
}


static int
runner_control_ready(runner_container_t *container, runner_message_t *message)
{
    runner_t         *runner;
    runner_report_t   report;

    runner = container->runner;

    if (runner_message_report(message, &report) == -1
        || report.version_min > report.version_max
        || report.slots > (report.instance ? RUNNER_MAX_HELD : 0))
    {
        return -1;
    }

    /*
     * One that was made just now is of our release; one that only knows newer
     * versions was left by a release that was taken back.
     */

    if (report.version_min > SANDBOX_WIRE_VERSION
        || (report.instance == 0
            && report.version_max < SANDBOX_WIRE_VERSION_MIN))
    {
        runner_log(RUNNER_LOG_ERROR, "the agent of slot %u speaks versions %u "
                   "to %u, this release %d to %d: its sandbox is stopped, the "
                   "files stay", container->slot.record.number,
                   (unsigned) report.version_min,
                   (unsigned) report.version_max, SANDBOX_WIRE_VERSION_MIN,
                   SANDBOX_WIRE_VERSION);
        return -1;
    }

    /* never claimed, or claimed for the instance that our record has */

    if (report.instance != 0
        && (!container->claimed
            || report.instance != container->slot.record.instance))
    {
        return -1;
    }

    container->claimed = report.instance != 0;
    container->told = report.instance == 0;
    container->version_min = report.version_min;
    container->version_max = report.version_max;
    container->held = report.slots;
    runner_bound_held(container);
    runner_grants_hold(&runner->grants, report.slots);

    runner_timer_stop(&runner->loop, &container->timer);
    container->state = RUNNER_CONTAINER_READY;
    runner_egress_ready(container);

    if (container->sandbox != NULL) {
        runner_sandbox_ready(container->sandbox);

        if (report.wanted && container->sandbox != NULL) {
            runner_sandbox_want(container->sandbox);
        }

    } else {
        runner_pool_ready(container);
    }

    return 0;
}


static int
runner_control_taken(runner_container_t *container, uint32_t serial)
{
    runner_conn_t  *conn;

    /* they are taken in their order, so it is the first but for a bug */

    for (conn = container->sent.first; conn != NULL; conn = conn->link.next) {
        if (conn->serial == serial) {
            container->proven = 1;

            if (container->sandbox != NULL) {
                runner_session_taken(container->sandbox, conn);
            }

            runner_conn_close(conn);
            runner_container_watch(container, 1);

            /* there is room for one more that is not taken */

            if (container->sandbox != NULL && container->sandbox->waiting.n) {
                (void) runner_sandbox_flush(container->sandbox);
            }

            return 0;
        }
    }

    return -1;
}


static int
runner_control_state(runner_container_t *container, runner_message_t *message)
{
    runner_report_t  report;

    if (runner_message_report(message, &report) == -1) {
        return -1;
    }

    if (container->sandbox != NULL) {
        container->told = 1;
        runner_sandbox_report(container->sandbox, &report);
    }

    return 0;
}


static int
runner_control_returned(runner_container_t *container,
    runner_message_t *message)
{
    runner_conn_t     *conn;
    runner_sandbox_t  *sandbox;

    sandbox = container->sandbox;

    if (sandbox == NULL) {
        return 0;
    }

    if (!runner_bound_return(container)) {

        /* nginx sees it end before any answer, and sends it once more */

        if (runner_log_allowed(&runner_log_sandboxes)) {
            runner_log(RUNNER_LOG_WARN, "the agent of sandbox %s gives back "
                       "more connections than have room: one is closed",
                       sandbox->id);
        }

        return 0;
    }

    conn = runner_conn_returned(container->runner, message->fds[0],
                                message->fds[1]);
    message->nfds = 0;

    if (conn == NULL) {
        return 0;
    }

    runner_bound_returned(conn, container);
    runner_conn_wait(conn, &sandbox->returned, sandbox);

    return 0;
}


int
runner_control_claim(runner_container_t *container)
{
    int                rc;
    uint8_t            b[256];
    sandbox_writer_t   w;
    runner_sandbox_t  *sandbox;

    sandbox = container->sandbox;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_bytes(&w, SANDBOX_TAG_SESSION, sandbox->session,
                        SANDBOX_WIRE_SESSION_SIZE);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, sandbox->instance);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, sandbox->id);
    sandbox_write_number(&w, SANDBOX_TAG_CREATED, sandbox->created);
    sandbox_write_number(&w, SANDBOX_TAG_MEMORY_BYTES,
                         (uint64_t) container->slot.record.memory
                         * 1024 * 1024);

    container->claimed = 1;

    /* what was known before goes along, once */

    rc = runner_control_send(container, SANDBOX_CONTROL_CLAIM, 0, 0, &w,
                             &sandbox->history, sandbox->history != -1);

    if (rc == RUNNER_CONTROL_OK && sandbox->history != -1) {
        close(sandbox->history);
        sandbox->history = -1;
    }

    return rc;
}


int
runner_control_conn(runner_container_t *container, runner_conn_t *conn)
{
    int              fds[2], rc;
    uint8_t          flags;
    unsigned         nfds;
    runner_grants_t *grants;

    rc = runner_egress_conn(container, conn);

    if (rc != RUNNER_CONTROL_OK) {
        return rc;
    }

    grants = &container->runner->grants;
    flags = conn->fresh ? SANDBOX_CONN_FRESH : 0;

    fds[0] = conn->event.fd;
    nfds = 1;

    if (conn->memfd != -1) {
        flags |= SANDBOX_CONN_RETURNED;
        fds[nfds++] = conn->memfd;
    }

    if (conn->preamble.operation == SANDBOX_OPERATION_COMMAND
        && container->held == 0 && !container->grant
        && runner_grants_take(grants))
    {
        flags |= SANDBOX_CONN_GRANTED;
    }

    conn->serial = ++container->serial;

    rc = runner_control_send(container, SANDBOX_CONTROL_CONN, flags,
                             conn->serial, NULL, fds, nfds);

    if (flags & SANDBOX_CONN_GRANTED) {
        if (rc == RUNNER_CONTROL_OK) {
            container->held++;
            runner_bound_held(container);

        } else {
            runner_grants_give(grants, 1);
        }
    }

    if (rc != RUNNER_CONTROL_OK) {
        return rc;
    }

    if (conn->preamble.operation == SANDBOX_OPERATION_COMMAND
        && !(flags & SANDBOX_CONN_GRANTED))
    {
        runner_session_sent(container->sandbox, conn);
    }

    runner_conn_sent(conn, &container->sent);
    runner_container_watch(container, 0);

    return RUNNER_CONTROL_OK;
}


int
runner_control_egress(runner_container_t *container,
    sandbox_writer_t *fields, int fd)
{
    return runner_control_send(container, SANDBOX_CONTROL_EGRESS, 0, 0,
                               fields, &fd, fd != -1);
}


void
runner_control_grant(runner_container_t *container)
{
    container->held++;
    runner_bound_held(container);
    container->grant++;

    runner_control_flush(container);
}


void
runner_control_flush(runner_container_t *container)
{
    int               rc;
    uint8_t           b[32];
    sandbox_writer_t  w;

    if (container->control.handler == NULL) {
        return;
    }

    while (container->grant) {
        rc = runner_control_send(container, SANDBOX_CONTROL_GRANT, 0, 0, NULL,
                                 NULL, 0);
        if (rc != RUNNER_CONTROL_OK) {
            return;
        }

        container->grant--;
    }

    if (container->stop) {
        sandbox_writer_init(&w, b, sizeof(b));
        sandbox_write_number(&w, SANDBOX_TAG_OUTCOME, container->stop - 1);

        rc = runner_control_send(container, SANDBOX_CONTROL_STOP, 0, 0, &w,
                                 NULL, 0);
        if (rc != RUNNER_CONTROL_OK) {
            return;
        }

        container->stop = 0;
    }

    if (container->egress_tell
        && runner_egress_tell(container) != RUNNER_CONTROL_OK)
    {
        return;
    }

    if (container->sandbox != NULL && runner_container_usable(container)
        && runner_sandbox_flush(container->sandbox) == RUNNER_CONTROL_AGAIN)
    {
        return;
    }

    if (container->control.handler != NULL) {
        runner_control_room(container, 0);
    }
}


static int
runner_control_send(runner_container_t *container, uint8_t type,
    uint8_t flags, uint32_t serial, sandbox_writer_t *fields, const int *fds,
    unsigned nfds)
{
    if (container->control.handler == NULL) {
        return RUNNER_CONTROL_BROKEN;
    }

    if (runner_message_send(container->control.fd, type, flags, serial,
                            fields ? fields->start : NULL,
                            fields ? fields->pos - fields->start : 0,
                            fds, nfds) == 0)
    {
        return RUNNER_CONTROL_OK;
    }

    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) {
        runner_control_room(container, 1);
        return RUNNER_CONTROL_AGAIN;
    }

    /* it died: what it said last is still to be read, its death comes soon */

    return RUNNER_CONTROL_BROKEN;
}


/* asks to be told when the socket has room, or no more */

static void
runner_control_room(runner_container_t *container, int out)
{
    if (container->out == out) {
        return;
    }

    container->out = out;

    if (container->paused) {
        return;
    }

    (void) runner_event_change(&container->runner->loop, &container->control,
                               out ? EPOLLIN|EPOLLRDHUP|EPOLLOUT
                                   : EPOLLIN|EPOLLRDHUP);
}
