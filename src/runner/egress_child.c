/*
 * The proxy as a child of the runner, or of the owner of engines' sessions:
 * started, told, heard, and started again when it ends.
 *
 * It is a process without rights that reads what sandboxes send: what it says
 * is checked like what an agent says.  Knows no sandboxes and no policies.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>

#include "egress_channel.h"
#include "egress_child.h"
#include "log.h"


#define RUNNER_EGRESS_BUFFER  (16 * 1024 * 1024) /* bytes of messages */
#define RUNNER_EGRESS_TURN    64                 /* messages a turn */
#define RUNNER_EGRESS_PAUSE   100                /* ms, the first time */
#define RUNNER_EGRESS_LONGEST 10000
#define RUNNER_EGRESS_GOOD    60000              /* ms: it was no bad start */


static void runner_egress_child_event(runner_event_t *event, uint32_t events);
static int runner_egress_child_message(runner_egress_child_t *child,
    runner_message_t *message);
static void runner_egress_child_again(void *data);


void
runner_egress_child_init(runner_egress_child_t *child)
{
    child->channel.fd = -1;
    child->process = -1;
    child->restart.data = child;
    child->restart.handler = runner_egress_child_again;
}


void
runner_egress_child_start(runner_egress_child_t *child)
{
    int  pair[2], size;

    if (child->channel.fd != -1 || child->restart.index != 0) {
        return;
    }

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0,
                   pair) == -1)
    {
        runner_egress_child_lost(child, strerror(errno));
        return;
    }

    /* all that there may be to tell at once has room */

    size = RUNNER_EGRESS_BUFFER;
    (void) setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size,
                      sizeof(size));

    child->started = child->loop->now;
    child->process = runner_egress_spawn(child->options, pair[1]);
    close(pair[1]);

    child->channel.fd = pair[0];
    child->channel.data = child;
    child->channel.handler = runner_egress_child_event;

    if (child->process == -1
        || runner_event_add(child->loop, &child->channel, EPOLLIN|EPOLLRDHUP)
           == -1)
    {
        child->channel.handler = NULL;
        runner_egress_child_lost(child, "it can't be started");
        return;
    }

    child->tell(child->data);
}


static void
runner_egress_child_event(runner_event_t *event, uint32_t events)
{
    int                     rc, n;
    runner_message_t        message;
    runner_egress_child_t  *child;

    child = event->data;

    for (n = 0; n < RUNNER_EGRESS_TURN; n++) {

        rc = runner_message_receive(event->fd, &message);

        if (rc == -1 && errno == EAGAIN) {
            return;
        }

        if (rc != 1) {
            runner_egress_child_lost(child, "it ended");
            return;
        }

        rc = message.nfds ? -1 : runner_egress_child_message(child, &message);
        runner_message_close(&message);

        /* it may be lost by what it was told in return */

        if (event->handler == NULL) {
            return;
        }

        if (rc == -1) {
            runner_egress_child_lost(child, "it said what makes no sense");
            return;
        }
    }
}


static int
runner_egress_child_message(runner_egress_child_t *child,
    runner_message_t *message)
{
    if (message->type != EGRESS_CHANNEL_READY) {
        return runner_egress_counted(child->counts, message);
    }

    runner_log(RUNNER_LOG_INFO, "the egress proxy is ready");

    if (child->ready != NULL) {
        child->ready(child->data);
    }

    return 0;
}


/* it is gone, or will be: its end of the channel is all that holds it */

void
runner_egress_child_lost(runner_egress_child_t *child, const char *why)
{
    uint64_t  pause;

    if (child->loop->now - child->started >= RUNNER_EGRESS_GOOD) {
        child->attempts = 0;
    }

    pause = RUNNER_EGRESS_PAUSE << (child->attempts < 7 ? child->attempts : 7);
    child->attempts++;

    if (pause > RUNNER_EGRESS_LONGEST) {
        pause = RUNNER_EGRESS_LONGEST;
    }

    runner_log(RUNNER_LOG_ERROR, "the egress proxy is lost: %s.  All its "
               "tunnels ended; it is started again in %u ms", why,
               (unsigned) pause);

    runner_egress_child_end(child);
    runner_egress_counts_keep(child->counts);

    if (child->lost != NULL) {
        child->lost(child->data);
    }

    (void) runner_timer_start(child->loop, &child->restart, pause);
}


static void
runner_egress_child_again(void *data)
{
    runner_egress_child_t  *child;

    child = data;

    if (child->wanted == NULL || child->wanted(child->data)) {
        runner_egress_child_start(child);
    }
}


void
runner_egress_child_end(runner_egress_child_t *child)
{
    runner_timer_stop(child->loop, &child->restart);

    if (child->channel.fd != -1) {
        runner_event_remove(child->loop, &child->channel);
        close(child->channel.fd);
        child->channel.fd = -1;
    }

    if (child->process != -1) {
        (void) pidfd_send_signal(child->process, SIGKILL, NULL, 0);
        close(child->process);
        child->process = -1;
    }
}


void
runner_egress_child_table(runner_egress_child_t *child, const uint8_t *table,
    size_t size)
{
    int  fd;

    if (child->channel.fd == -1 || table == NULL) {
        return;
    }

    fd = runner_egress_memfd(table, size);

    if (fd == -1) {
        runner_egress_child_lost(child, "no memory for the table");
        return;
    }

    runner_egress_child_send(child, EGRESS_CHANNEL_TABLE, 0, NULL, fd);
    close(fd);
}


/* one that has no room for a message has not read thousands: it is stuck */

void
runner_egress_child_send(runner_egress_child_t *child, uint8_t type,
    uint32_t serial, const sandbox_writer_t *w, int fd)
{
    if (child->channel.fd == -1) {
        return;
    }

    if (runner_message_send(child->channel.fd, type, 0, serial,
                            w ? w->start : NULL, w ? w->pos - w->start : 0,
                            &fd, fd != -1) == -1)
    {
        runner_egress_child_lost(child, strerror(errno));
    }
}
