/*
 * The life of a connection from a sandbox:
 *
 *   REQUEST -> LOOKUP -> CONNECT -> OPEN, or at any time before: LINGER
 *
 * A name is checked against the policy before anybody is asked about it, and
 * only an address that was checked is connected to.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "egress.h"
#include "egress_answer.h"


static void egress_tunnel_new(egress_sandbox_t *sandbox, int fd,
    const egress_address_t *from);
static void egress_tunnel_timer(void *data);
static void egress_tunnel_read(egress_tunnel_t *tunnel);
static void egress_tunnel_requested(egress_tunnel_t *tunnel,
    egress_request_e rc);
static int egress_tunnel_port(egress_t *egress, unsigned port);
static const char *egress_tunnel_forbidden(egress_t *egress,
    egress_address_t *address);
static int egress_tunnel_own(const egress_address_t *address);
static void egress_tunnel_connect(egress_tunnel_t *tunnel);
static void egress_tunnel_connected(egress_tunnel_t *tunnel);
static void egress_tunnel_next(egress_tunnel_t *tunnel);
static void egress_tunnel_open(egress_tunnel_t *tunnel);
static void egress_tunnel_refuse(egress_tunnel_t *tunnel, egress_answer_e why,
    const char *detail);
static void egress_tunnel_linger(egress_tunnel_t *tunnel);
static void egress_tunnel_until(egress_tunnel_t *tunnel, uint64_t from,
    uint64_t ms);
static uint64_t egress_tunnel_idle(const egress_tunnel_t *tunnel);
static void egress_tunnel_free(egress_tunnel_t *tunnel);
static void egress_tunnel_drop(egress_t *egress, egress_side_t *side);


void
egress_tunnel_accept(runner_event_t *event, uint32_t events)
{
    int                fd, n;
    egress_t          *egress;
    socklen_t          size;
    egress_address_t   from;
    egress_sandbox_t  *sandbox;

    sandbox = event->data;
    egress = sandbox->egress;

    for (n = 0; n < EGRESS_ACCEPT_TURN; n++) {

        if (egress->tunnels >= EGRESS_MAX_TUNNELS) {
            fd = -1;
            errno = EMFILE;

        } else {
            memset(&from, 0, sizeof(from));
            size = sizeof(from);
            fd = accept4(event->fd, &from.any, &size,
                         SOCK_NONBLOCK|SOCK_CLOEXEC);
        }

        if (fd == -1) {
            if (errno == EINTR || errno == ECONNABORTED) {
                continue;
            }

            if (errno == EAGAIN) {
                return;
            }

            if (egress_log_allowed(sandbox)) {
                runner_log(RUNNER_LOG_ERROR, "egress: no room for a "
                           "connection of sandbox %s, %u are open: %s",
                           sandbox->id, egress->tunnels, strerror(errno));
            }

            (void) runner_event_change(&egress->loop, event, 0);
            (void) runner_timer_start(&egress->loop, &sandbox->timer,
                                      EGRESS_ACCEPT_PAUSE);
            return;
        }

        egress_address_plain(&from);
        egress_tunnel_new(sandbox, fd, &from);

        /* the runner may have closed it meanwhile */

        if (event->handler == NULL) {
            return;
        }
    }
}


static void
egress_tunnel_new(egress_sandbox_t *sandbox, int fd,
    const egress_address_t *from)
{
    int               on, full;
    egress_t         *egress;
    egress_tunnel_t  *tunnel;

    egress = sandbox->egress;

    if (sandbox->gate && !egress_gate_room(sandbox, from)) {
        close(fd);
        return;
    }

    full = !sandbox->gate && egress_tunnel_full(sandbox);

    tunnel = full && sandbox->refused >= EGRESS_MAX_REFUSED
             ? NULL : calloc(1, sizeof(*tunnel));

    if (tunnel == NULL) {
        egress_count(egress, sandbox->policy)->refused++;
        close(fd);
        return;
    }

    tunnel->began = egress->loop.now;
    tunnel->timer.data = tunnel;
    tunnel->timer.handler = egress_tunnel_timer;
    tunnel->inner.tunnel = tunnel;
    tunnel->inner.event.fd = fd;
    tunnel->outer.tunnel = tunnel;
    tunnel->outer.event.fd = -1;

    egress_tunnel_link(tunnel, sandbox);
    egress->tunnels++;

    if (sandbox->gate) {
        egress_gate_enter(tunnel, from);
    }

    on = 1;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));

    if (full) {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_CONNECTIONS, NULL);
        return;
    }

    if (egress_relay_watch(&tunnel->inner, EPOLLIN) == -1
        || runner_timer_start(&egress->loop, &tunnel->timer,
                              EGRESS_REQUEST_WAIT) == -1)
    {
        egress_tunnel_end(tunnel, "no memory");
        return;
    }

    egress_tunnel_read(tunnel);
}


int
egress_tunnel_full(const egress_sandbox_t *sandbox)
{
    uint64_t                 max;
    sandbox_egress_policy_t  policy;

    max = egress_policy(sandbox->egress, sandbox->policy, &policy)
          && policy.connections
          ? policy.connections : EGRESS_MAX_CONNECTIONS;

    return sandbox->connections >= max
           || sandbox->connections >= EGRESS_MOST_CONNECTIONS;
}


void
egress_tunnel_link(egress_tunnel_t *tunnel, egress_sandbox_t *sandbox)
{
    tunnel->sandbox = sandbox;
    tunnel->policy = sandbox->policy;
    tunnel->next = sandbox->tunnels;
    tunnel->prev = &sandbox->tunnels;

    if (tunnel->next != NULL) {
        tunnel->next->prev = &tunnel->next;
    }

    sandbox->tunnels = tunnel;
    sandbox->connections++;
}


void
egress_tunnel_unlink(egress_tunnel_t *tunnel)
{
    *tunnel->prev = tunnel->next;

    if (tunnel->next != NULL) {
        tunnel->next->prev = tunnel->prev;
    }

    if (tunnel->state == EGRESS_TUNNEL_LINGER) {
        tunnel->sandbox->refused--;

    } else {
        tunnel->sandbox->connections--;
    }
}


void
egress_tunnel_event(runner_event_t *event, uint32_t events)
{
    egress_side_t    *side;
    egress_tunnel_t  *tunnel;

    side = event->data;
    tunnel = side->tunnel;

    switch (tunnel->state) {

    case EGRESS_TUNNEL_REQUEST:
        egress_tunnel_read(tunnel);
        return;

    case EGRESS_TUNNEL_LOOKUP:
        egress_tunnel_end(tunnel, "given up by the sandbox");
        return;

    case EGRESS_TUNNEL_CONNECT:
        if (side == &tunnel->inner) {
            egress_tunnel_end(tunnel, "given up by the sandbox");
            return;
        }

        egress_tunnel_connected(tunnel);
        return;

    case EGRESS_TUNNEL_OPEN:
        egress_relay_event(side, events);
        return;

    case EGRESS_TUNNEL_LINGER:
        egress_tunnel_linger(tunnel);
        return;

    default: /* EGRESS_TUNNEL_CLOSED */
        return;
    }
}


static void
egress_tunnel_timer(void *data)
{
    egress_t         *egress;
    egress_tunnel_t  *tunnel;

    tunnel = data;
    egress = tunnel->sandbox->egress;

    switch (tunnel->state) {

    case EGRESS_TUNNEL_REQUEST:
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_SLOW, NULL);
        return;

    case EGRESS_TUNNEL_LOOKUP:
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_RESOLVER, NULL);
        return;

    case EGRESS_TUNNEL_CONNECT:
        tunnel->error = ETIMEDOUT;
        egress_tunnel_next(tunnel);
        return;

    case EGRESS_TUNNEL_OPEN:
        if (tunnel->until && egress->loop.now >= tunnel->until) {
            egress_tunnel_end(tunnel, "its time is over");
            return;
        }

        if (egress->loop.now - tunnel->active >= egress_tunnel_idle(tunnel)) {
            egress_tunnel_end(tunnel, "idle for too long");
            return;
        }

        egress_tunnel_wait(tunnel);
        return;

    default: /* EGRESS_TUNNEL_LINGER */
        egress_tunnel_free(tunnel);
        return;
    }
}


/* the head of the request: it lies in the buffer until it is complete */

static void
egress_tunnel_read(egress_tunnel_t *tunnel)
{
    ssize_t           n;
    egress_side_t    *inner;
    egress_request_e  rc;

    inner = &tunnel->inner;

    if (inner->buffer == NULL) {
        inner->buffer = malloc(EGRESS_MAX_HEAD);

        if (inner->buffer == NULL) {
            egress_tunnel_end(tunnel, "no memory");
            return;
        }
    }

    do {
        n = recv(inner->event.fd, inner->buffer + inner->size,
                 EGRESS_MAX_HEAD - inner->size, MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    if (n == -1 && errno == EAGAIN) {
        return;
    }

    if (n <= 0) {
        egress_tunnel_end(tunnel, NULL);
        return;
    }

    inner->size += n;

    rc = egress_request_read(&tunnel->request, inner->buffer, inner->size);

    if (rc != EGRESS_REQUEST_AGAIN) {
        egress_tunnel_requested(tunnel, rc);
    }
}


static void
egress_tunnel_requested(egress_tunnel_t *tunnel, egress_request_e rc)
{
    int                       full;
    egress_t                 *egress;
    const char               *why;
    egress_side_t            *inner;
    egress_sandbox_t         *sandbox;
    sandbox_egress_policy_t   policy;

    static const egress_answer_e  answers[] = {
        EGRESS_ANSWER_OK, EGRESS_ANSWER_MALFORMED, EGRESS_ANSWER_MALFORMED,
        EGRESS_ANSWER_LONG, EGRESS_ANSWER_METHOD, EGRESS_ANSWER_LITERAL,
        EGRESS_ANSWER_HOST
    };

    inner = &tunnel->inner;
    egress = tunnel->sandbox->egress;

    /* a table that nginx was told is in force is, for who asks now, too */

    egress_control_hear(egress);

    if (tunnel->state != EGRESS_TUNNEL_REQUEST) {
        return;
    }

    /* whose it is comes first, where it could be read at all */

    if (tunnel->sandbox->gate && rc != EGRESS_REQUEST_MALFORMED
        && rc != EGRESS_REQUEST_TOO_LONG)
    {
        why = egress_gate_admit(tunnel, &full);

        if (why != NULL || full) {
            egress_tunnel_refuse(tunnel, full ? EGRESS_ANSWER_CONNECTIONS
                                              : EGRESS_ANSWER_TOKEN, why);
            return;
        }
    }

    sandbox = tunnel->sandbox;

    if (rc != EGRESS_REQUEST_OK) {
        egress_tunnel_refuse(tunnel, answers[rc], NULL);
        return;
    }

    /* the policy of this moment; what came after the head is the tunnel's */

    tunnel->policy = sandbox->policy;
    inner->at = tunnel->request.head;
    inner->bytes = inner->size - inner->at;

    if (!egress_policy(egress, tunnel->policy, &policy)) {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_POLICY, NULL);
        return;
    }

    if (!sandbox_egress_allows(&policy, (uint8_t *) tunnel->request.host,
                               tunnel->request.length))
    {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_NAME, NULL);
        return;
    }

    if (!egress_tunnel_port(egress, tunnel->request.port)) {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_PORT, NULL);
        return;
    }

    if (policy.bytes && sandbox->bytes > policy.bytes) {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_BYTES, NULL);
        return;
    }

    /* from here on only that it goes away is of interest */

    tunnel->state = EGRESS_TUNNEL_LOOKUP;

    if (egress_relay_watch(inner, EPOLLRDHUP) == -1
        || runner_timer_start(&egress->loop, &tunnel->timer,
                              EGRESS_LOOKUP_WAIT) == -1
        || egress_lookup_start(tunnel) == -1)
    {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_BUSY, NULL);
    }
}


static int
egress_tunnel_port(egress_t *egress, unsigned port)
{
    unsigned  i;

    for (i = 0; i < egress->nports; i++) {
        if (egress->ports[i] == port) {
            return 1;
        }
    }

    return 0;
}


void
egress_tunnel_found(egress_tunnel_t *tunnel, egress_lookup_e rc,
    const egress_address_t *candidates, unsigned n)
{
    char               detail[128], text[EGRESS_ADDRESS_SIZE];
    egress_t          *egress;
    unsigned           i;
    const char        *kind;
    egress_address_t   address;

    egress = tunnel->sandbox->egress;

    if (rc != EGRESS_LOOKUP_OK) {
        egress_tunnel_refuse(tunnel, rc == EGRESS_LOOKUP_NONE
                                     ? EGRESS_ANSWER_UNKNOWN
                                     : EGRESS_ANSWER_RESOLVER, NULL);
        return;
    }

    detail[0] = '\0';

    for (i = 0; i < n; i++) {
        address = candidates[i];
        egress_address_port(&address, tunnel->request.port);
        kind = egress_tunnel_forbidden(egress, &address);

        if (kind == NULL) {
            tunnel->candidates[tunnel->ncandidates++] = address;

        } else if (detail[0] == '\0') {
            egress_address_text(&address, text);
            snprintf(detail, sizeof(detail), "%s, %s", text, kind);
        }
    }

    if (tunnel->ncandidates == 0) {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_ADDRESS, detail);
        return;
    }

    tunnel->state = EGRESS_TUNNEL_CONNECT;
    egress_tunnel_connect(tunnel);
}


/* NULL: it may be connected to; else what it is */

static const char *
egress_tunnel_forbidden(egress_t *egress, egress_address_t *address)
{
    const char  *kind;

    if (egress_range_has(egress->allowed, egress->nallowed, address)) {
        return NULL;
    }

    kind = egress_address_kind(address);

    if (kind == NULL && egress_tunnel_own(address)) {
        kind = "an address of this host";
    }

    return kind;
}


/*
 * Is it one of the host's own?  Then it is what the kernel would connect to it
 * from.  Nothing is sent by this.
 */

static int
egress_tunnel_own(const egress_address_t *address)
{
    int               fd, own;
    socklen_t         size;
    egress_address_t  from;

    fd = socket(address->any.sa_family, SOCK_DGRAM|SOCK_CLOEXEC, 0);
    if (fd == -1) {
        return 1;
    }

    own = 0;
    size = sizeof(from);
    memset(&from, 0, sizeof(from));

    if (connect(fd, &address->any, egress_address_size(address)) == 0
        && getsockname(fd, &from.any, &size) == 0)
    {
        own = address->any.sa_family == AF_INET
              ? from.in.sin_addr.s_addr == address->in.sin_addr.s_addr
              : memcmp(&from.in6.sin6_addr, &address->in6.sin6_addr, 16) == 0;
    }

    close(fd);

    return own;
}


static void
egress_tunnel_connect(egress_tunnel_t *tunnel)
{
    int                fd, on, rc;
    egress_t          *egress;
    egress_address_t  *address;

    egress = tunnel->sandbox->egress;
    address = &tunnel->candidates[tunnel->candidate];

    fd = socket(address->any.sa_family,
                SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);

    if (fd == -1) {
        tunnel->error = errno;
        egress_tunnel_next(tunnel);
        return;
    }

    on = 1;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));

    tunnel->outer.event.fd = fd;
    rc = connect(fd, &address->any, egress_address_size(address));

    if (rc == -1 && errno != EINPROGRESS) {
        tunnel->error = errno;
        egress_tunnel_next(tunnel);
        return;
    }

    if (egress_relay_watch(&tunnel->outer, EPOLLOUT) == -1
        || runner_timer_start(&egress->loop, &tunnel->timer,
                              EGRESS_CONNECT_WAIT) == -1)
    {
        egress_tunnel_refuse(tunnel, EGRESS_ANSWER_BUSY, NULL);
    }
}


static void
egress_tunnel_connected(egress_tunnel_t *tunnel)
{
    socklen_t  size;

    size = sizeof(tunnel->error);

    if (getsockopt(tunnel->outer.event.fd, SOL_SOCKET, SO_ERROR,
                   &tunnel->error, &size) == -1)
    {
        tunnel->error = errno;
    }

    if (tunnel->error) {
        egress_tunnel_next(tunnel);
        return;
    }

    egress_tunnel_open(tunnel);
}


/* the address that was tried is none; the next one, if there is one */

static void
egress_tunnel_next(egress_tunnel_t *tunnel)
{
    egress_tunnel_drop(tunnel->sandbox->egress, &tunnel->outer);

    if (++tunnel->candidate < tunnel->ncandidates) {
        egress_tunnel_connect(tunnel);
        return;
    }

    tunnel->candidate--;

    egress_tunnel_refuse(tunnel, tunnel->error == ETIMEDOUT
                                 ? EGRESS_ANSWER_TIMEOUT
                                 : EGRESS_ANSWER_UNREACHED,
                         strerror(tunnel->error));
}


static void
egress_tunnel_open(egress_tunnel_t *tunnel)
{
    egress_t                 *egress;
    egress_side_t            *inner;
    egress_counter_t         *counter;
    sandbox_egress_policy_t   policy;

    static const char  answer[] = "HTTP/1.1 200 Connection established\r\n"
                                  "\r\n";

    inner = &tunnel->inner;
    egress = tunnel->sandbox->egress;

    /* the first bytes on a new connection: there is room for them */

    if (send(inner->event.fd, answer, sizeof(answer) - 1,
             MSG_DONTWAIT|MSG_NOSIGNAL) != sizeof(answer) - 1)
    {
        egress_tunnel_end(tunnel, "reset by the sandbox");
        return;
    }

    counter = egress_count(egress, tunnel->policy);
    counter->tunnels++;
    counter->open++;
    counter->up += inner->bytes;
    tunnel->sandbox->bytes += inner->bytes;

    tunnel->state = EGRESS_TUNNEL_OPEN;
    tunnel->active = egress->loop.now;

    if (egress_policy(egress, tunnel->policy, &policy)) {
        tunnel->sandbox->max_bytes = policy.bytes;
        egress_tunnel_until(tunnel, egress->loop.now, policy.time_ms);
    }

    if (inner->at == inner->size) {
        free(inner->buffer);
        inner->buffer = NULL;
    }

    egress_tunnel_wait(tunnel);
    egress_relay_start(tunnel);
}


/* as long as its policy says, and never longer than its token */

static void
egress_tunnel_until(egress_tunnel_t *tunnel, uint64_t from, uint64_t ms)
{
    tunnel->until = ms ? from + ms : 0;

    if (tunnel->expires
        && (tunnel->until == 0 || tunnel->expires < tunnel->until))
    {
        tunnel->until = tunnel->expires;
    }
}


static uint64_t
egress_tunnel_idle(const egress_tunnel_t *tunnel)
{
    return tunnel->inner.eof || tunnel->outer.eof ? EGRESS_HALF_WAIT
                                                  : EGRESS_IDLE_WAIT;
}


/* the timer of an open one: until it was idle for too long, or its time */

void
egress_tunnel_wait(egress_tunnel_t *tunnel)
{
    uint64_t        when;
    runner_loop_t  *loop;

    loop = &tunnel->sandbox->egress->loop;
    when = tunnel->active + egress_tunnel_idle(tunnel);

    if (tunnel->until && tunnel->until < when) {
        when = tunnel->until;
    }

    (void) runner_timer_start(loop, &tunnel->timer,
                              when > loop->now ? when - loop->now : 0);
}


void
egress_tunnel_check(egress_sandbox_t *sandbox)
{
    int                       known;
    egress_t                 *egress;
    egress_tunnel_t          *tunnel, *next;
    sandbox_egress_policy_t   policy;

    egress = sandbox->egress;
    known = egress_policy(egress, sandbox->policy, &policy);
    sandbox->max_bytes = known ? policy.bytes : 0;

    for (tunnel = sandbox->tunnels; tunnel != NULL; tunnel = next) {
        next = tunnel->next;

        if (tunnel->state == EGRESS_TUNNEL_REQUEST
            || tunnel->state == EGRESS_TUNNEL_LINGER)
        {
            continue;
        }

        if (!known
            || !sandbox_egress_allows(&policy,
                                      (uint8_t *) tunnel->request.host,
                                      tunnel->request.length))
        {
            egress_tunnel_end(tunnel, "its policy does not allow it any "
                              "more");
            continue;
        }

        if (tunnel->state == EGRESS_TUNNEL_OPEN) {
            egress_tunnel_until(tunnel, tunnel->began, policy.time_ms);
            egress_tunnel_wait(tunnel);
        }
    }
}


static void
egress_tunnel_refuse(egress_tunnel_t *tunnel, egress_answer_e why,
    const char *detail)
{
    size_t                    n;
    char                      answer[EGRESS_ANSWER], line[512];
    char                      from[EGRESS_ADDRESS_SIZE];
    egress_t                 *egress;
    egress_sandbox_t         *sandbox;
    egress_counter_t         *counter;
    egress_refusal_t          refusal;
    sandbox_egress_policy_t   policy;

    sandbox = tunnel->sandbox;
    egress = sandbox->egress;
    egress_lookup_forget(tunnel);
    egress_tunnel_drop(egress, &tunnel->outer);

    memset(&refusal, 0, sizeof(refusal));
    refusal.why = why;
    refusal.detail = detail;
    refusal.host = tunnel->request.host;
    refusal.port = tunnel->request.port;

    if (egress_policy(egress, tunnel->policy, &policy)) {
        refusal.policy = (const char *) policy.name;
        refusal.policy_length = policy.name_length;
    }

    n = egress_answer_write(&refusal, answer, sizeof(answer));

    counter = egress_count(egress, tunnel->policy);

    if (egress_answer_failed(why)) {
        counter->failed++;

    } else {
        counter->refused++;
    }

    if (egress_log_allowed(sandbox)) {
        egress_answer_line(&refusal, line, sizeof(line));

        if (sandbox->gate) {
            egress_address_text(&tunnel->from, from);
        }

        runner_log(RUNNER_LOG_NOTICE, "egress: %s %s, %s",
                   sandbox->gate ? "connection from" : "sandbox",
                   sandbox->gate ? from : sandbox->id, line);
    }

    tunnel->state = EGRESS_TUNNEL_LINGER;
    sandbox->connections--;
    sandbox->refused++;

    free(tunnel->inner.buffer);
    tunnel->inner.buffer = NULL;

    /* closing with unread input would be a reset, which can overtake it */

    (void) !send(tunnel->inner.event.fd, answer, n,
                 MSG_DONTWAIT|MSG_NOSIGNAL);
    (void) shutdown(tunnel->inner.event.fd, SHUT_WR);

    /* the many of one sandbox would take the room of all */

    if (sandbox->refused > EGRESS_MAX_REFUSED
        || egress_relay_watch(&tunnel->inner, EPOLLIN) == -1
        || runner_timer_start(&egress->loop, &tunnel->timer,
                              EGRESS_LINGER_WAIT) == -1)
    {
        egress_tunnel_free(tunnel);
    }
}


static void
egress_tunnel_linger(egress_tunnel_t *tunnel)
{
    ssize_t         n;
    static uint8_t  b[EGRESS_BUFFER];

    n = recv(tunnel->inner.event.fd, b, sizeof(b), MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }

    if (n > 0) {
        tunnel->lingered += n;

        if (tunnel->lingered < EGRESS_BUFFER) {
            return;
        }
    }

    egress_tunnel_free(tunnel);
}


void
egress_tunnel_end(egress_tunnel_t *tunnel, const char *why)
{
    char                      address[EGRESS_ADDRESS_SIZE];
    egress_t                 *egress;
    egress_counter_t         *counter;
    sandbox_egress_policy_t   policy;

    egress = tunnel->sandbox->egress;

    if (tunnel->state == EGRESS_TUNNEL_OPEN) {
        counter = egress_count(egress, tunnel->policy);
        counter->open--;

        if (egress_log_allowed(tunnel->sandbox)) {
            egress_address_text(&tunnel->candidates[tunnel->candidate],
                                address);

            if (!egress_policy(egress, tunnel->policy, &policy)) {
                memset(&policy, 0, sizeof(policy));
            }

            runner_log(RUNNER_LOG_NOTICE, "egress: sandbox %s, policy "
                       "\"%.*s\", tunnel to %s:%u (%s), %llu bytes out, "
                       "%llu in, %llu ms: %s",
                       tunnel->sandbox->id, (int) policy.name_length,
                       policy.name ? (const char *) policy.name : "",
                       tunnel->request.host,
                       tunnel->request.port, address,
                       (unsigned long long) tunnel->inner.bytes,
                       (unsigned long long) tunnel->outer.bytes,
                       (unsigned long long) (egress->loop.now
                                             - tunnel->began),
                       why);
        }

    } else if (tunnel->state == EGRESS_TUNNEL_LOOKUP
               || tunnel->state == EGRESS_TUNNEL_CONNECT)
    {
        egress_count(egress, tunnel->policy)->failed++;
    }

    egress_tunnel_free(tunnel);
}


static void
egress_tunnel_free(egress_tunnel_t *tunnel)
{
    egress_t          *egress;
    egress_sandbox_t  *sandbox;

    if (tunnel->state == EGRESS_TUNNEL_CLOSED) {
        return;
    }

    sandbox = tunnel->sandbox;
    egress = sandbox->egress;

    egress_gate_leave(tunnel);
    egress_tunnel_unlink(tunnel);
    tunnel->state = EGRESS_TUNNEL_CLOSED;
    sandbox->used = egress->loop.now;

    egress_lookup_forget(tunnel);
    runner_timer_stop(&egress->loop, &tunnel->timer);
    egress_tunnel_drop(egress, &tunnel->inner);
    egress_tunnel_drop(egress, &tunnel->outer);

    egress->tunnels--;
    runner_loop_free_later(&egress->loop, &tunnel->later);
}


int
egress_tunnel_keep(egress_side_t *side, const uint8_t *p, size_t size)
{
    side->buffer = malloc(size);

    if (side->buffer == NULL) {
        return -1;
    }

    memcpy(side->buffer, p, size);
    side->at = 0;
    side->size = size;

    return 0;
}


static void
egress_tunnel_drop(egress_t *egress, egress_side_t *side)
{
    if (side->event.fd == -1) {
        return;
    }

    runner_event_remove(&egress->loop, &side->event);
    close(side->event.fd);
    side->event.fd = -1;

    free(side->buffer);
    side->buffer = NULL;
}
