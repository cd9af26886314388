/*
 * A fresh sandbox for the command at the front of the queue: all that waits
 * is handed back to the runner, in order, with the bytes that were read.
 * The runner destroys this sandbox and gives everything to the next one.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>


static int agent_replace_command(agent_command_t *command);
static int agent_replace_send(agent_connection_t *c, const uint8_t *request,
    size_t size);
static int agent_replace_memfd(const uint8_t *request, size_t size);
static int agent_replace_nobody(void);
static void agent_replace_slow(void);
static void agent_replace_again(agent_timer_t *timer);


static agent_timer_t  agent_replace_timer;
static uint64_t       agent_replace_deadline;


void
agent_replace(void)
{
    agent_command_t  *command;

    if (!agent.replacing || !agent_control_connected()) {
        return;
    }

    /*
     * New connections are not taken any more.  Those whose request is under
     * way become complete soon, or are refused.
     */

    if (agent_connection_reading()) {
        if (agent_replace_deadline == 0) {
            agent_replace_deadline = agent_now_ms() + AGENT_PLACE_WAIT;
        }

        if (agent_now_ms() < agent_replace_deadline) {
            agent_replace_timer.handler = agent_replace_again;
            agent_timer_set(&agent_replace_timer, 20);
            return;
        }

        agent_replace_slow();
    }

    agent.replacing = 0;
    agent.replaced = 1;
    agent_timer_clear(&agent_replace_timer);
    agent_log("%u commands go back to the runner for a fresh sandbox",
              agent.queued);

    while ((command = agent_queue_first()) != NULL) {
        agent_queue_remove(command);

        if (agent_replace_command(command) == -1) {
            agent_log("a command could not be handed back: error %d", errno);
        }

        agent_command_free(command);
    }

    /* the next one reads it from our file */

    agent_history_flush();

    if (agent_control_replace() == -1) {
        agent_log("the runner could not be asked for a fresh sandbox");
    }
}


/*
 * The command goes first, on the connection that brought it or, when that one
 * has gone, on one that nobody hears: it must run all the same.  Others that
 * wait for it follow with requests of their own, and attach to it by its id.
 * STDINs are closed unheard: their clients send them once more.
 */

static int
agent_replace_command(agent_command_t *command)
{
    int                   rc;
    agent_connection_t   *c, *next, **p;

    while ((c = command->writers) != NULL) {
        agent_connection_close(c);
    }

    for (p = &command->waiting; *p != NULL; p = &(*p)->peer) {
        if ((*p)->in == NULL) {
            break;
        }
    }

    c = *p;

    if (c != NULL) {
        *p = c->peer;
    }

    rc = agent_replace_send(c, command->raw, command->raw_have);

    for (c = command->waiting; c != NULL && rc == 0; c = next) {
        next = c->peer;
        command->waiting = next;
        rc = agent_replace_send(c, c->in, c->in_have);
    }

    return rc;
}


static int
agent_replace_send(agent_connection_t *c, const uint8_t *request, size_t size)
{
    int       fd, memfd;
    uint32_t  serial;

    memfd = agent_replace_memfd(request, size);

    if (memfd == -1) {
        if (c != NULL) {
            c->command = NULL;
            agent_connection_close(c);
        }

        return -1;
    }

    if (c != NULL) {
        c->command = NULL;
        serial = c->serial;
        fd = agent_connection_detach(c);

    } else {
        serial = 0;
        fd = agent_replace_nobody();
    }

    if (fd == -1) {
        close(memfd);
        return -1;
    }

    return agent_control_return(serial, fd, memfd);
}


static int
agent_replace_memfd(const uint8_t *request, size_t size)
{
    int      fd;
    size_t   sent;
    ssize_t  n;

    fd = memfd_create("request", MFD_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    for (sent = 0; sent < size; sent += n) {
        n = write(fd, request + sent, size - sent);

        if (n <= 0) {
            close(fd);
            return -1;
        }
    }

    return fd;
}


/* A socket whose other end is closed. */

static int
agent_replace_nobody(void)
{
    int  fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, fds) == -1) {
        return -1;
    }

    close(fds[1]);

    return fds[0];
}


static void
agent_replace_slow(void)
{
    agent_connection_t  *c, *next;

    for (c = agent_connection_first(); c != NULL; c = next) {
        next = c->next;

        if (c->state == AGENT_CONNECTION_READ) {
            agent_connection_error(c, "slow_request", "The sandbox is being "
                                   "replaced and the request is not complete.",
                                   0);
        }
    }
}


static void
agent_replace_again(agent_timer_t *timer)
{
    agent_replace();
}
