/*
 * Addresses of names, by c-ares in our loop.  Names are whole: no search list,
 * no file of hosts.  Nothing is remembered: each tunnel asks once.
 */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <ares.h>

#include "egress.h"


#define EGRESS_LOOKUP_TIMEOUT  1500              /* ms, of the first try */
#define EGRESS_LOOKUP_TRIES    3
#define EGRESS_LOOKUP_TICK     200               /* ms, at least */


struct egress_lookup_s {
    egress_tunnel_t    *tunnel;          /* NULL: nobody waits any more */
};


/* a socket of c-ares */

typedef struct egress_socket_s  egress_socket_t;

struct egress_socket_s {
    runner_later_t      later;
    runner_event_t      event;
    egress_socket_t    *next;
};


static void egress_lookup_done(void *data, int status, int timeouts,
    struct ares_addrinfo *info);
static void egress_lookup_socket(void *data, ares_socket_t fd, int readable,
    int writable);
static void egress_lookup_event(runner_event_t *event, uint32_t events);
static void egress_lookup_tick(void *data);
static void egress_lookup_arm(void);


static egress_t         *egress_lookup;
static ares_channel      egress_lookup_channel;
static egress_socket_t  *egress_lookup_sockets;
static runner_timer_t    egress_lookup_timer;
static unsigned          egress_lookups;


int
egress_lookup_init(egress_t *egress)
{
    int                   rc, mask;
    struct ares_options   options;

    egress_lookup = egress;
    egress_lookup_timer.handler = egress_lookup_tick;

    memset(&options, 0, sizeof(options));
    options.flags = ARES_FLAG_NOSEARCH|ARES_FLAG_NOALIASES;
    options.timeout = EGRESS_LOOKUP_TIMEOUT;
    options.tries = EGRESS_LOOKUP_TRIES;
    options.lookups = "b";
    options.sock_state_cb = egress_lookup_socket;

    mask = ARES_OPT_FLAGS|ARES_OPT_TIMEOUTMS|ARES_OPT_TRIES|ARES_OPT_LOOKUPS
           |ARES_OPT_SOCK_STATE_CB;

    rc = ares_library_init(ARES_LIB_INIT_ALL);

    if (rc == ARES_SUCCESS) {
        rc = ares_init_options(&egress_lookup_channel, &options, mask);
    }

    if (rc == ARES_SUCCESS && egress->resolver != NULL) {
        rc = ares_set_servers_ports_csv(egress_lookup_channel,
                                        egress->resolver);
    }

    if (rc != ARES_SUCCESS) {
        runner_log(RUNNER_LOG_ERROR, "egress: no resolver: %s.  Remedy: a "
                   "\"nameserver\" in /etc/resolv.conf, or --resolver",
                   ares_strerror(rc));
        return -1;
    }

    return 0;
}


int
egress_lookup_start(egress_tunnel_t *tunnel)
{
    char                        name[SANDBOX_EGRESS_MAX_NAME + 2];
    egress_lookup_t            *lookup;
    struct ares_addrinfo_hints  hints;

    if (egress_lookups >= EGRESS_MAX_LOOKUPS) {
        return -1;
    }

    lookup = calloc(1, sizeof(*lookup));
    if (lookup == NULL) {
        return -1;
    }

    lookup->tunnel = tunnel;
    tunnel->lookup = lookup;
    egress_lookups++;

    memset(&hints, 0, sizeof(hints));
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = ARES_AI_NOSORT;

    snprintf(name, sizeof(name), "%s.", tunnel->request.host);

    ares_getaddrinfo(egress_lookup_channel, name, NULL, &hints,
                     egress_lookup_done, lookup);
    egress_lookup_arm();

    return 0;
}


void
egress_lookup_forget(egress_tunnel_t *tunnel)
{
    if (tunnel->lookup != NULL) {
        tunnel->lookup->tunnel = NULL;
        tunnel->lookup = NULL;
    }
}


static void
egress_lookup_done(void *data, int status, int timeouts,
    struct ares_addrinfo *info)
{
    unsigned                    n;
    egress_lookup_e             rc;
    egress_lookup_t            *lookup;
    egress_tunnel_t            *tunnel;
    egress_address_t            found[EGRESS_MAX_CANDIDATES];
    struct ares_addrinfo_node  *node;

    lookup = data;
    tunnel = lookup->tunnel;
    egress_lookups--;
    free(lookup);
    n = 0;

    if (status == ARES_SUCCESS && info != NULL) {
        for (node = info->nodes;
             node != NULL && n < EGRESS_MAX_CANDIDATES;
             node = node->ai_next)
        {
            if ((node->ai_family == AF_INET
                 && node->ai_addrlen >= sizeof(struct sockaddr_in))
                || (node->ai_family == AF_INET6
                    && node->ai_addrlen >= sizeof(struct sockaddr_in6)))
            {
                memset(&found[n], 0, sizeof(found[n]));
                memcpy(&found[n], node->ai_addr,
                       node->ai_family == AF_INET
                       ? sizeof(struct sockaddr_in)
                       : sizeof(struct sockaddr_in6));
                egress_address_plain(&found[n++]);
            }
        }
    }

    if (info != NULL) {
        ares_freeaddrinfo(info);
    }

    if (tunnel == NULL) {
        return;
    }

    tunnel->lookup = NULL;

    rc = n ? EGRESS_LOOKUP_OK
         : status == ARES_SUCCESS || status == ARES_ENOTFOUND
           || status == ARES_ENODATA || status == ARES_EBADNAME
         ? EGRESS_LOOKUP_NONE
         : EGRESS_LOOKUP_FAILED;

    egress_tunnel_found(tunnel, rc, found, n);
}


static void
egress_lookup_socket(void *data, ares_socket_t fd, int readable, int writable)
{
    uint32_t          events;
    runner_loop_t    *loop;
    egress_socket_t  *socket, **place;

    loop = &egress_lookup->loop;

    for (place = &egress_lookup_sockets;
         *place != NULL;
         place = &(*place)->next)
    {
        if ((*place)->event.fd == fd) {
            break;
        }
    }

    socket = *place;
    events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);

    if (events == 0) {
        if (socket != NULL) {
            *place = socket->next;
            runner_event_remove(loop, &socket->event);
            runner_loop_free_later(loop, &socket->later);
        }

        return;
    }

    if (socket != NULL) {
        (void) runner_event_change(loop, &socket->event, events);
        return;
    }

    /* unwatched it is as a resolver that does not answer */

    socket = calloc(1, sizeof(*socket));
    if (socket == NULL) {
        return;
    }

    socket->event.fd = fd;
    socket->event.handler = egress_lookup_event;

    if (runner_event_add(loop, &socket->event, events) == -1) {
        free(socket);
        return;
    }

    socket->next = egress_lookup_sockets;
    egress_lookup_sockets = socket;
}


static void
egress_lookup_event(runner_event_t *event, uint32_t events)
{
    int  fd;

    fd = event->fd;

    ares_process_fd(egress_lookup_channel,
                    events & (EPOLLIN|EPOLLHUP|EPOLLERR) ? fd
                                                         : ARES_SOCKET_BAD,
                    events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
    egress_lookup_arm();
}


static void
egress_lookup_tick(void *data)
{
    ares_process_fd(egress_lookup_channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    egress_lookup_arm();
}


/* it is called when its next time-out may be due, while anything is asked */

static void
egress_lookup_arm(void)
{
    if (egress_lookups == 0) {
        runner_timer_stop(&egress_lookup->loop, &egress_lookup_timer);
        return;
    }

    if (egress_lookup_timer.index == 0) {
        (void) runner_timer_start(&egress_lookup->loop, &egress_lookup_timer,
                                  EGRESS_LOOKUP_TICK);
    }
}
