/*
 * A listener that sandboxes on engines share.  Who connects is a stranger
 * until a token says of which session and policy it is; from then on it is as
 * one that came by a listener of its own.  Strangers are few, from one place
 * and of all, and the oldest makes room, so who sends at once gets in whoever
 * else only waits.
 *
 * Knows no hosts.
 */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "egress.h"
#include "sandbox_token.h"


static egress_place_t *egress_gate_place(egress_t *egress,
    const egress_address_t *from);
static void egress_gate_oldest(egress_sandbox_t *gate,
    const egress_place_t *place);
static const char *egress_gate_token(egress_tunnel_t *tunnel,
    sandbox_token_t *token);
static egress_sandbox_t *egress_gate_session(egress_t *egress,
    const sandbox_token_t *token);
static egress_sandbox_t *egress_gate_new(egress_t *egress,
    egress_sandbox_t **place, const sandbox_token_t *token);
static void egress_gate_forget(egress_t *egress);
static unsigned egress_gate_bucket(const uint8_t *session);


int
egress_gate_room(egress_sandbox_t *gate, const egress_address_t *from)
{
    egress_t        *egress;
    uint64_t         more;
    egress_place_t  *place;

    egress = gate->egress;
    place = egress_gate_place(egress, from);

    more = (egress->loop.now - place->at) * EGRESS_PLACE_RATE / 1000;

    if (more) {
        place->at = egress->loop.now;
        place->left = place->left + more < EGRESS_PLACE_BURST
                      ? place->left + more : EGRESS_PLACE_BURST;
    }

    if (place->left == 0) {
        return 0;
    }

    if (place->strangers >= EGRESS_PLACE_MAX) {
        egress_gate_oldest(gate, place);
    }

    if (egress->strangers >= EGRESS_MAX_STRANGERS) {
        egress_gate_oldest(gate, NULL);
    }

    /* of several gates it may be another one's that are so many */

    return place->strangers < EGRESS_PLACE_MAX
           && egress->strangers < EGRESS_MAX_STRANGERS;
}


void
egress_gate_enter(egress_tunnel_t *tunnel, const egress_address_t *from)
{
    egress_t  *egress;

    egress = tunnel->sandbox->egress;

    tunnel->from = *from;
    tunnel->place = egress_gate_place(egress, from);
    tunnel->place->left--;
    tunnel->place->strangers++;
    egress->strangers++;
}


void
egress_gate_leave(egress_tunnel_t *tunnel)
{
    if (tunnel->place != NULL) {
        tunnel->place->strangers--;
        tunnel->place = NULL;
        tunnel->sandbox->egress->strangers--;
    }
}


/* two that share a place share its bounds */

static egress_place_t *
egress_gate_place(egress_t *egress, const egress_address_t *from)
{
    size_t          n, i;
    uint32_t        hash;
    const uint8_t  *p;

    if (from->any.sa_family == AF_INET) {
        p = (const uint8_t *) &from->in.sin_addr;
        n = sizeof(from->in.sin_addr);

    } else {

        /* who has one address of IPv6 has all of its network */

        p = (const uint8_t *) &from->in6.sin6_addr;
        n = 8;
    }

    hash = 2166136261u;

    for (i = 0; i < n; i++) {
        hash = (hash ^ p[i]) * 16777619u;
    }

    return &egress->places[(hash ^ hash >> 16) % EGRESS_PLACES];
}


static void
egress_gate_oldest(egress_sandbox_t *gate, const egress_place_t *place)
{
    egress_tunnel_t  *tunnel, *oldest;

    oldest = NULL;

    for (tunnel = gate->tunnels; tunnel != NULL; tunnel = tunnel->next) {
        if (tunnel->place != NULL
            && (place == NULL || tunnel->place == place))
        {
            oldest = tunnel;
        }
    }

    if (oldest != NULL) {
        egress_tunnel_end(oldest, NULL);
    }
}


const char *
egress_gate_admit(egress_tunnel_t *tunnel, int *full)
{
    egress_t          *egress;
    const char        *why;
    sandbox_token_t    token;
    egress_sandbox_t  *sandbox;

    egress = tunnel->sandbox->egress;
    *full = 0;

    why = egress_gate_token(tunnel, &token);

    if (why != NULL) {
        return why;
    }

    sandbox = egress_gate_session(egress, &token);

    if (sandbox == NULL) {
        return "the proxy has no memory";
    }

    *full = egress_tunnel_full(sandbox);

    /* it costs its place nothing that it was a stranger */

    tunnel->place->left++;
    egress_gate_leave(tunnel);

    egress_tunnel_unlink(tunnel);
    egress_tunnel_link(tunnel, sandbox);

    return NULL;
}


/* NULL: it is good */

static const char *
egress_gate_token(egress_tunnel_t *tunnel, sandbox_token_t *token)
{
    egress_t          *egress;
    uint64_t           left;
    struct timespec    now;
    egress_request_t  *request;

    egress = tunnel->sandbox->egress;
    request = &tunnel->request;

    if (request->auth == 0) {
        return "no credentials";
    }

    if (sandbox_token_read(token, tunnel->inner.buffer + request->auth,
                           request->auth_length) != SANDBOX_OK)
    {
        return "credentials that are none of ours";
    }

    if (!sandbox_token_signed(token, egress->key)) {
        return "wrong credentials";
    }

    clock_gettime(CLOCK_REALTIME, &now);

    if (!sandbox_token_good(token, egress->key, (uint64_t) now.tv_sec)) {

        /* known all the same: it counts for its policy */

        tunnel->policy = token->policy;
        return "expired credentials";
    }

    left = token->expires - (uint64_t) now.tv_sec;

    if (left > SANDBOX_WIRE_MAX_TIME) {
        left = SANDBOX_WIRE_MAX_TIME;
    }

    tunnel->expires = egress->loop.now + left * 1000;

    return NULL;
}


/* one for each policy of a session: its caps are the policy's */

static egress_sandbox_t *
egress_gate_session(egress_t *egress, const sandbox_token_t *token)
{
    egress_sandbox_t  **place, *sandbox;

    place = &egress->sessions[egress_gate_bucket(token->session)];

    for (sandbox = *place; sandbox != NULL; sandbox = sandbox->next) {

        if (sandbox->policy == token->policy
            && memcmp(sandbox->session, token->session,
                      SANDBOX_WIRE_SESSION_SIZE) == 0)
        {
            break;
        }
    }

    if (sandbox == NULL) {
        return egress_gate_new(egress, place, token);
    }

    if (sandbox->tunnels == NULL
        && egress->loop.now - sandbox->used >= EGRESS_SESSION_IDLE)
    {
        sandbox->bytes = 0;
    }

    return sandbox;
}


static egress_sandbox_t *
egress_gate_new(egress_t *egress, egress_sandbox_t **place,
    const sandbox_token_t *token)
{
    unsigned           i;
    egress_sandbox_t  *sandbox;

    if (egress->nsessions >= EGRESS_MAX_SESSIONS) {
        egress_gate_forget(egress);
    }

    sandbox = calloc(1, sizeof(*sandbox));
    if (sandbox == NULL) {
        return NULL;
    }

    sandbox->egress = egress;
    sandbox->policy = token->policy;
    sandbox->used = egress->loop.now;
    sandbox->log_left = EGRESS_LOG_BURST;
    sandbox->log_at = egress->loop.now;
    sandbox->listener.fd = -1;
    memcpy(sandbox->session, token->session, SANDBOX_WIRE_SESSION_SIZE);

    for (i = 0; i < SANDBOX_WIRE_SESSION_SIZE; i++) {
        snprintf(sandbox->id + 2 * i, 3, "%02x", token->session[i]);
    }

    sandbox->next = *place;
    *place = sandbox;
    egress->nsessions++;

    return sandbox;
}


/* the one that was used least of late; more of them than connections */

static void
egress_gate_forget(egress_t *egress)
{
    unsigned           i;
    egress_sandbox_t  *sandbox, **place, **oldest;

    oldest = NULL;

    for (i = 0; i < EGRESS_BUCKETS; i++) {
        for (place = &egress->sessions[i];
             *place != NULL;
             place = &(*place)->next)
        {
            if ((*place)->tunnels == NULL
                && (oldest == NULL || (*place)->used < (*oldest)->used))
            {
                oldest = place;
            }
        }
    }

    if (oldest == NULL) {
        return;
    }

    sandbox = *oldest;
    *oldest = sandbox->next;
    egress->nsessions--;
    runner_loop_free_later(&egress->loop, &sandbox->later);
}


/* it is a hash */

static unsigned
egress_gate_bucket(const uint8_t *session)
{
    return sandbox_get32(session) % EGRESS_BUCKETS;
}
