/*
 * Carrying bytes between the two ends of a tunnel: what one end does not take
 * is kept, at most one buffer, and nothing more is read from the other until
 * it is gone.  The end of one direction is passed on; the other goes on.
 *
 * Knows no hosts and no policies but their bound of bytes.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "egress.h"


static int egress_relay_pump(egress_side_t *from, egress_side_t *to);
static int egress_relay_write(egress_side_t *from, egress_side_t *to);
static int egress_relay_keep(egress_side_t *from, egress_side_t *to,
    const uint8_t *p, size_t size);
static int egress_relay_bytes(egress_side_t *from, size_t n);
static void egress_relay_go(egress_tunnel_t *tunnel);
static uint32_t egress_relay_interest(const egress_side_t *side,
    const egress_side_t *other);


static uint8_t  egress_relay_scratch[EGRESS_BUFFER];


int
egress_relay_watch(egress_side_t *side, uint32_t interest)
{
    int             rc;
    runner_loop_t  *loop;

    loop = &side->tunnel->sandbox->egress->loop;

    if (side->hup) {
        return 0;
    }

    if (side->event.handler == NULL) {
        side->event.handler = egress_tunnel_event;
        side->event.data = side;
        rc = runner_event_add(loop, &side->event, interest);

        if (rc == -1) {
            side->event.handler = NULL;
        }

    } else if (side->interest != interest) {
        rc = runner_event_change(loop, &side->event, interest);

    } else {
        rc = 0;
    }

    side->interest = interest;

    return rc;
}


void
egress_relay_start(egress_tunnel_t *tunnel)
{
    egress_relay_go(tunnel);
}


/* both directions, as far as they go now; then what is to be waited for */

static void
egress_relay_go(egress_tunnel_t *tunnel)
{
    egress_side_t  *inner, *outer;

    inner = &tunnel->inner;
    outer = &tunnel->outer;

    if (egress_relay_pump(inner, outer) == -1
        || egress_relay_pump(outer, inner) == -1)
    {
        return;
    }

    if (inner->shut && outer->shut) {
        egress_tunnel_end(tunnel, "closed");
        return;
    }

    if (egress_relay_watch(inner, egress_relay_interest(inner, outer)) == -1
        || egress_relay_watch(outer, egress_relay_interest(outer, inner))
           == -1)
    {
        egress_tunnel_end(tunnel, "no memory");
    }
}


static uint32_t
egress_relay_interest(const egress_side_t *side, const egress_side_t *other)
{
    return (side->buffer == NULL && !side->eof ? EPOLLIN : 0)
           | (other->buffer != NULL ? EPOLLOUT : 0);
}


/* -1: the tunnel is no more */

static int
egress_relay_pump(egress_side_t *from, egress_side_t *to)
{
    int               turn, rc;
    ssize_t           n;
    egress_tunnel_t  *tunnel;

    tunnel = from->tunnel;

    /* what is not watched any more has said all that it will */

    for (turn = 0; turn < EGRESS_PUMP_TURN || from->hup; turn++) {

        if (from->buffer != NULL) {
            switch (egress_relay_write(from, to)) {

            case 0:
                return 0;

            case -1:
                return -1;
            }
        }

        if (from->eof) {
            break;
        }

        n = recv(from->event.fd, egress_relay_scratch,
                 sizeof(egress_relay_scratch), MSG_DONTWAIT);

        if (n == -1) {
            if (errno == EAGAIN && !from->hup) {
                return 0;
            }

            if (errno == EINTR) {
                continue;
            }

            egress_tunnel_end(tunnel, from == &tunnel->inner
                                      ? "reset by the sandbox"
                                      : "reset by the host");
            return -1;
        }

        if (n == 0) {
            from->eof = 1;
            egress_tunnel_wait(tunnel);
            break;
        }

        if (egress_relay_bytes(from, n) == -1) {
            return -1;
        }

        rc = egress_relay_keep(from, to, egress_relay_scratch, n);

        if (rc != 1) {
            return rc;
        }
    }

    if (from->eof && from->buffer == NULL && !to->shut) {
        to->shut = 1;
        (void) shutdown(to->event.fd, SHUT_WR);
    }

    return 0;
}


/*
 * What was read goes out at once, and only what does not is kept.  1: it is
 * all out, 0: not all of it, -1: the tunnel is no more.
 */

static int
egress_relay_keep(egress_side_t *from, egress_side_t *to, const uint8_t *p,
    size_t size)
{
    ssize_t           n;
    egress_tunnel_t  *tunnel;

    tunnel = from->tunnel;

    do {
        n = send(to->event.fd, p, size, MSG_DONTWAIT|MSG_NOSIGNAL);
    } while (n == -1 && errno == EINTR);

    if (n == -1 && errno != EAGAIN) {
        egress_tunnel_end(tunnel, to == &tunnel->inner
                                  ? "reset by the sandbox"
                                  : "reset by the host");
        return -1;
    }

    n = n == -1 ? 0 : n;

    if ((size_t) n == size) {
        return 1;
    }

    if (egress_tunnel_keep(from, p + n, size - n) == -1) {
        egress_tunnel_end(tunnel, "no memory");
        return -1;
    }

    return 0;
}


/* 1: all that was kept is out, 0: not yet, -1: the tunnel is no more */

static int
egress_relay_write(egress_side_t *from, egress_side_t *to)
{
    ssize_t           n;
    egress_tunnel_t  *tunnel;

    tunnel = from->tunnel;

    while (from->at < from->size) {

        n = send(to->event.fd, from->buffer + from->at, from->size - from->at,
                 MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1) {
            if (errno == EINTR) {
                continue;
            }

            if (errno == EAGAIN) {
                return 0;
            }

            egress_tunnel_end(tunnel, to == &tunnel->inner
                                      ? "reset by the sandbox"
                                      : "reset by the host");
            return -1;
        }

        from->at += n;
    }

    free(from->buffer);
    from->buffer = NULL;

    return 1;
}


static int
egress_relay_bytes(egress_side_t *from, size_t n)
{
    egress_t          *egress;
    egress_tunnel_t   *tunnel;
    egress_counter_t  *counter;
    egress_sandbox_t  *sandbox;

    tunnel = from->tunnel;
    sandbox = tunnel->sandbox;
    egress = sandbox->egress;

    counter = egress_count(egress, tunnel->policy);

    if (from == &tunnel->inner) {
        counter->up += n;

    } else {
        counter->down += n;
    }

    from->bytes += n;
    sandbox->bytes += n;
    tunnel->active = egress->loop.now;

    if (sandbox->max_bytes && sandbox->bytes > sandbox->max_bytes) {
        egress_tunnel_end(tunnel, "the sandbox has carried all the bytes of "
                          "its policy");
        return -1;
    }

    return 0;
}


void
egress_relay_event(egress_side_t *side, uint32_t events)
{
    egress_tunnel_t  *tunnel;

    tunnel = side->tunnel;

    if (events & EPOLLERR) {
        egress_tunnel_end(tunnel, side == &tunnel->inner
                                  ? "reset by the sandbox"
                                  : "reset by the host");
        return;
    }

    /*
     * An end that is through in both directions says so whether one listens
     * or not, again and again; what it sent before can still be read.
     */

    if ((events & EPOLLHUP) && !(events & side->interest)) {
        runner_event_remove(&tunnel->sandbox->egress->loop, &side->event);
        side->hup = 1;
    }

    egress_relay_go(tunnel);
}
