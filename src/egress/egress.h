/*
 * sandbox-egress: the way out of sandboxes.  What its files share.
 *
 * One process without rights and one thread: takes connections from listeners
 * that the runner made inside of sandboxes, or from a gate that sandboxes on
 * engines share, connects to what their policies allow, and carries bytes.
 * Nothing a sandbox sends is believed.
 */

#ifndef EGRESS_H
#define EGRESS_H

#include <stdint.h>
#include <sys/types.h>

#include "egress_address.h"
#include "egress_channel.h"
#include "egress_request.h"
#include "log.h"
#include "loop.h"
#include "sandbox_egress.h"


#define EGRESS_BUCKETS         1024              /* of sandboxes */
#define EGRESS_MAX_CONNECTIONS 256               /* of a sandbox, where its
                                                    policy says nothing */
#define EGRESS_MOST_CONNECTIONS 1024             /* whatever it says */
#define EGRESS_MAX_REFUSED     64                /* of a sandbox: over that,
                                                    closed without a word */
#define EGRESS_MAX_TUNNELS     4096              /* of all */
#define EGRESS_MAX_LOOKUPS     512               /* at a time */
#define EGRESS_MAX_CANDIDATES  8                 /* addresses of a name */
#define EGRESS_MAX_PORTS       16
#define EGRESS_MAX_COUNTERS    256               /* of policies */
#define EGRESS_MAX_SESSIONS    8192              /* that came by a gate */
#define EGRESS_MAX_STRANGERS   1024              /* at gates: connections that
                                                    didn't say whose they are */
#define EGRESS_PLACES          4096              /* where they are from */
#define EGRESS_PLACE_MAX       256               /* of them, from one place */
#define EGRESS_PLACE_RATE      32                /* likewise, a second, */
#define EGRESS_PLACE_BURST     512               /* and so many at once */
#define EGRESS_BUFFER          65536             /* bytes on their way */
#define EGRESS_ANSWER          1024              /* bytes of a refusal */
#define EGRESS_ACCEPT_TURN     32                /* connections a turn */
#define EGRESS_PUMP_TURN       4                 /* buffers a turn */

/* milliseconds */

#define EGRESS_REQUEST_WAIT    10000
#define EGRESS_LOOKUP_WAIT     8000
#define EGRESS_CONNECT_WAIT    5000              /* of one address */
#define EGRESS_LINGER_WAIT     2000
#define EGRESS_IDLE_WAIT       600000            /* no byte either way */
#define EGRESS_HALF_WAIT       120000            /* and one end is through */
#define EGRESS_ACCEPT_PAUSE    100               /* without descriptors */
#define EGRESS_COUNT_WAIT      100               /* between two reports */
#define EGRESS_SESSION_IDLE    3600000           /* then its bytes are new */

/* log lines of one sandbox: so many a second, and so many at once */

#define EGRESS_LOG_RATE        10
#define EGRESS_LOG_BURST       100


typedef struct egress_s          egress_t;
typedef struct egress_sandbox_s  egress_sandbox_t;
typedef struct egress_tunnel_s   egress_tunnel_t;
typedef struct egress_lookup_s   egress_lookup_t;
typedef struct egress_place_s    egress_place_t;


/* as in the wire's EGRESS_COUNT */

typedef struct {
    uint32_t   id;                       /* of the policy, 0: not in use */
    uint64_t   open;
    uint64_t   tunnels;
    uint64_t   refused;
    uint64_t   failed;
    uint64_t   up;
    uint64_t   down;
    int        dirty;                    /* the runner knows other ones */
} egress_counter_t;


/* an address, or some, that connections to a gate come from */

struct egress_place_s {
    uint64_t            at;              /* ms: `left` is as of then */
    unsigned            left;            /* it may still begin */
    unsigned            strangers;
};


/*
 * A sandbox with a listener of its own; or a gate, whose connections are
 * strangers until they say whose they are; or one of a session and a policy
 * that came by a gate, which has no listener.
 */

struct egress_sandbox_s {
    runner_later_t      later;
    egress_t           *egress;
    egress_sandbox_t   *next;            /* in its bucket */
    uint32_t            number;          /* of its slot */
    char                id[2 * SANDBOX_WIRE_SESSION_SIZE + 1];
    uint8_t             session[SANDBOX_WIRE_SESSION_SIZE];
    uint64_t            used;            /* ms, by a gate: the last time */
    int                 gate;
    uint32_t            policy;
    runner_event_t      listener;
    runner_timer_t      timer;           /* accepts again */
    egress_tunnel_t    *tunnels;
    unsigned            connections;     /* of them, not refused ones */
    unsigned            refused;         /* of them, that are being told */
    uint64_t            bytes;           /* carried since it is there */
    uint64_t            max_bytes;       /* of its policy; 0: no bound */
    uint64_t            log_at;          /* ms: lines are counted from here */
    unsigned            log_left;
    unsigned            log_left_out;
};


typedef enum {
    EGRESS_TUNNEL_REQUEST = 0,           /* its head is being read */
    EGRESS_TUNNEL_LOOKUP,
    EGRESS_TUNNEL_CONNECT,
    EGRESS_TUNNEL_OPEN,
    EGRESS_TUNNEL_LINGER,                /* refused, reads input away */
    EGRESS_TUNNEL_CLOSED                 /* freed after this turn */
} egress_tunnel_e;


typedef enum {
    EGRESS_LOOKUP_OK = 0,
    EGRESS_LOOKUP_NONE,                  /* there is no such name */
    EGRESS_LOOKUP_FAILED                 /* the resolver does not say */
} egress_lookup_e;


/* one end of a tunnel, and what comes from it and is not yet at the other */

typedef struct {
    egress_tunnel_t    *tunnel;
    runner_event_t      event;           /* fd -1: there is none */
    uint32_t            interest;        /* EPOLL* as registered */
    uint8_t            *buffer;          /* NULL: nothing waits */
    size_t              at;
    size_t              size;
    uint64_t            bytes;
    unsigned            eof:1;           /* nothing more comes from it */
    unsigned            shut:1;          /* nothing more goes to it */
    unsigned            hup:1;           /* not watched any more */
} egress_side_t;


struct egress_tunnel_s {
    runner_later_t      later;
    egress_sandbox_t   *sandbox;
    egress_tunnel_t    *next;
    egress_tunnel_t   **prev;
    egress_tunnel_e     state;
    runner_timer_t      timer;
    uint64_t            began;           /* ms */
    uint64_t            active;          /* ms: the last byte */
    uint64_t            until;           /* ms: its time is over; 0: never */
    uint64_t            expires;         /* ms: likewise, by its token */
    egress_place_t     *place;           /* of a stranger; NULL: it is none */
    egress_address_t    from;            /* of what came by a gate */
    uint32_t            policy;          /* that it was opened by */
    egress_side_t       inner;           /* the sandbox */
    egress_side_t       outer;           /* the world */
    egress_request_t    request;
    egress_lookup_t    *lookup;
    egress_address_t    candidates[EGRESS_MAX_CANDIDATES];
    unsigned            ncandidates;
    unsigned            candidate;       /* that is tried */
    int                 error;           /* errno of the last one */
    size_t              lingered;
};


struct egress_s {
    runner_loop_t       loop;
    runner_event_t      channel;         /* to the runner */

    /* from the command line */

    egress_range_t      allowed[EGRESS_MAX_ALLOWED];
    unsigned            nallowed;
    unsigned            ports[EGRESS_MAX_PORTS];
    unsigned            nports;
    const char         *resolver;        /* NULL: /etc/resolv.conf */
    const char         *root;            /* an empty directory */
    uid_t               uid;
    gid_t               gid;

    uint8_t            *table;           /* that was checked; NULL: none */
    size_t              table_size;
    egress_sandbox_t   *sandboxes[EGRESS_BUCKETS];
    egress_sandbox_t   *sessions[EGRESS_BUCKETS];
    unsigned            nsessions;
    unsigned            strangers;
    uint8_t             key[SANDBOX_WIRE_KEY_SIZE];   /* of tokens */
    egress_place_t      places[EGRESS_PLACES];
    unsigned            tunnels;         /* all connections */
    egress_counter_t    counters[EGRESS_MAX_COUNTERS];
    runner_timer_t      count_timer;
};


/* egress_confine.c */

/* Gives up all that the process can do but its work.  0, or -1 and a line. */
int egress_confine(egress_t *egress);

/* egress_control.c */

/* Begins with the runner's messages on that descriptor. */
int egress_control_start(egress_t *egress, int fd);

/* Hears what the runner has said by now; may end any tunnel. */
void egress_control_hear(egress_t *egress);

/* 1: the policy of a sandbox, as the table has it. */
int egress_policy(egress_t *egress, uint32_t id,
    sandbox_egress_policy_t *policy);

/* The counters of a policy, told to the runner soon; never NULL. */
egress_counter_t *egress_count(egress_t *egress, uint32_t id);

/* 1: this sandbox may have a line in the log now. */
int egress_log_allowed(egress_sandbox_t *sandbox);

/* egress_gate.c */

/* 1: one more from that address may come in, as a stranger. */
int egress_gate_room(egress_sandbox_t *gate, const egress_address_t *from);
void egress_gate_enter(egress_tunnel_t *tunnel, const egress_address_t *from);
void egress_gate_leave(egress_tunnel_t *tunnel);

/*
 * Its head is there: NULL, and it is one of a session, or why it stays a
 * stranger.  1 in *full: of that session there are as many as there may be.
 */
const char *egress_gate_admit(egress_tunnel_t *tunnel, int *full);

/* egress_lookup.c */

/* Reads what the system says of resolvers.  0, or -1 and a line. */
int egress_lookup_init(egress_t *egress);

/*
 * Asks for the addresses of the tunnel's host and calls egress_tunnel_found(),
 * perhaps at once.  -1: it can't be asked, and the tunnel is as it was.
 * egress_lookup_forget() if the tunnel ends before the answer is there.
 */
int egress_lookup_start(egress_tunnel_t *tunnel);
void egress_lookup_forget(egress_tunnel_t *tunnel);

/* egress_tunnel.c */

/* Handlers of a sandbox's listener, and of a side. */
void egress_tunnel_accept(runner_event_t *event, uint32_t events);
void egress_tunnel_event(runner_event_t *event, uint32_t events);

/* The answer is in: candidates, or why there are none. */
void egress_tunnel_found(egress_tunnel_t *tunnel, egress_lookup_e rc,
    const egress_address_t *candidates, unsigned n);

/* It is over: a line in the log, its counters, all of it is freed. */
void egress_tunnel_end(egress_tunnel_t *tunnel, const char *why);

/* Puts it among those of a sandbox; takes it from there. */
void egress_tunnel_link(egress_tunnel_t *tunnel, egress_sandbox_t *sandbox);
void egress_tunnel_unlink(egress_tunnel_t *tunnel);

/* 1: the policy of the sandbox has no room for one more. */
int egress_tunnel_full(const egress_sandbox_t *sandbox);

/* Keeps what the other end does not take.  0, or -1 without memory. */
int egress_tunnel_keep(egress_side_t *side, const uint8_t *p, size_t size);

/* (Re)starts the timer of an open one. */
void egress_tunnel_wait(egress_tunnel_t *tunnel);

/* Ends those of a sandbox whose policy, as it is now, has no room for them. */
void egress_tunnel_check(egress_sandbox_t *sandbox);

/* egress_relay.c */

/* Connected: carries bytes until both ends are through, or one is lost. */
void egress_relay_start(egress_tunnel_t *tunnel);
void egress_relay_event(egress_side_t *side, uint32_t events);

/* Watches one end for these events.  0, or -1. */
int egress_relay_watch(egress_side_t *side, uint32_t interest);


#endif /* EGRESS_H */
