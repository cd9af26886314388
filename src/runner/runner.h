/*
 * The running daemon: what the files of the event loop share.  Only the loop's
 * thread touches any of it; a slot belongs to a job while that is pending.
 */

#ifndef RUNNER_H
#define RUNNER_H

#include <stdint.h>

#include "error.h"
#include "grants.h"
#include "host.h"
#include "jobs.h"
#include "log.h"
#include "loop.h"
#include "message.h"
#include "options.h"
#include "queue.h"
#include "sandbox_control.h"
#include "sandbox_wire.h"
#include "slot.h"


#define RUNNER_BUCKETS         1024              /* of sessions */
#define RUNNER_MAX_WAITING     128               /* connections a sandbox */
#define RUNNER_MAX_SENT        256               /* handed over, not taken */
#define RUNNER_MAX_UNTOLD      8                 /* of both, in the queue */
#define RUNNER_MAX_HELD        2                 /* run slots: one that is in
                                                    use, one on its way */
#define RUNNER_MAX_HEAD        4096              /* of the runner's own */
#define RUNNER_MAX_ASKED       1000              /* in one SESSIONS */
#define RUNNER_MAX_SESSIONS    (RUNNER_MAX_ASKED                             \
                                * (SANDBOX_WIRE_FIELD_SIZE                   \
                                   + SANDBOX_WIRE_SESSION_SIZE))
#define RUNNER_FAILURES        3                 /* in ... */
#define RUNNER_FAILURES_MS     10000

#define RUNNER_CREATE_WAIT     30000             /* ms */
#define RUNNER_CREATE_LINE     90000             /* more, behind others */
#define RUNNER_REMOVE_WAIT     120000            /* DELETE, RESET: whatever */
#define RUNNER_READY_WAIT      5000
#define RUNNER_ADOPT_WAIT      30000             /* a host that just boots */
#define RUNNER_STOP_WAIT       6000              /* it needs up to 2 s */
#define RUNNER_DEATH_WAIT      1000              /* after the channel broke */
#define RUNNER_OPEN_WAIT       2000              /* until an agent tells of a
                                                    client that it serves */
#define RUNNER_TAKE_WAIT       5000              /* twice, without a TAKEN */
#define RUNNER_TAKE_STARVED    11                /* more, if it would run */
#define RUNNER_SYNC_INTERVAL   30000
#define RUNNER_CLOCK_STEP      60000             /* the clock was set */
#define RUNNER_CLOCK_WAIT      3600000           /* then nothing expires */


typedef struct runner_s            runner_t;
typedef struct runner_sandbox_s    runner_sandbox_t;
typedef struct runner_container_s  runner_container_t;
typedef struct runner_egress_s     runner_egress_t;


typedef enum {
    RUNNER_CONN_PREAMBLE = 0,            /* waits for its 128 bytes */
    RUNNER_CONN_HEAD,                    /* an operation of the runner */
    RUNNER_CONN_BODY,                    /* EGRESS: its table */
    RUNNER_CONN_WAITING,                 /* for a sandbox, or for its end */
    RUNNER_CONN_SENT,                    /* handed over, not yet taken */
    RUNNER_CONN_ANSWER,                  /* a long answer goes out */
    RUNNER_CONN_LINGER,                  /* refused, reads input away */
    RUNNER_CONN_CLOSED                   /* freed after this turn */
} runner_conn_state_e;


struct runner_conn_s {
    runner_later_t        later;
    runner_event_t        event;
    runner_timer_t        timer;
    runner_queue_link_t   link;
    runner_t             *runner;
    runner_sandbox_t     *sandbox;       /* in whose line it waits, or NULL */

    runner_conn_state_e   state;
    int                   watched;
    int                   memfd;         /* a returned request, or -1 */
    int                   fresh;         /* the instance was made for it */
    int                   ungranted;     /* sent without a run slot */
    uint32_t              serial;
    uint64_t              deadline;      /* ms, of all its waiting */
    uint64_t              last;          /* ms, of its waiting in line, too */
    size_t                lingered;      /* bytes read away */
    unsigned              before;        /* DELETE: the state it found */
    uint64_t              held_until;    /* ms, for its policy; 0: not yet */
    uint8_t              *out;           /* a long answer, or a table coming
                                            in, or NULL */
    size_t                out_size;
    size_t                out_sent;
    runner_tenant_t      *giver;         /* whose agent gave it back, or NULL */

    sandbox_preamble_t    preamble;      /* without the key */
};


typedef enum {
    RUNNER_CONTAINER_STARTING = 0,       /* a job makes it */
    RUNNER_CONTAINER_OPENING,            /* its READY is awaited */
    RUNNER_CONTAINER_READY,
    RUNNER_CONTAINER_ENDING,             /* its death is awaited */
    RUNNER_CONTAINER_CLEANING,           /* a job takes it apart */
    RUNNER_CONTAINER_STOPPED             /* only its disk is left */
} runner_container_state_e;


/* a slot and its agent; in the pool it has no sandbox, nor when it is dying */

struct runner_container_s {
    runner_later_t            later;
    runner_t                 *runner;
    runner_container_t       *next;      /* all containers */
    runner_container_t      **prev;
    runner_container_t       *pool_next;
    runner_sandbox_t         *sandbox;

    runner_container_state_e  state;
    runner_slot_t             slot;
    runner_event_t            control;
    runner_event_t            process;
    runner_timer_t            timer;
    runner_job_t              job;

    int                       claimed;
    int                       pooled;
    int                       end;       /* as soon as its job is done */
    int                       destroy;   /* at its end, with the disk */
    int                       told;      /* a STATE came after its READY */
    unsigned                  version_min;       /* of the wire, that its */
    unsigned                  version_max;       /* agent speaks */
    int                       grant;     /* to be sent when there is room */
    int                       stop;      /* likewise; outcome + 1 */
    int                       out;       /* waits for room in the socket */
    unsigned                  overdue;   /* so often: it takes nothing */
    unsigned                  attempts;  /* to clean up */

    uint32_t                  serial;
    int                       proven;    /* it has taken a request */
    int                       adopted;   /* it may have, from who was before */
    int                       paused;    /* it says too much */
    int                       overheld;  /* a run slot, was seen once */
    unsigned                  said;      /* unasked, in this second */
    unsigned                  held;      /* run slots */
    uint64_t                  held_since;        /* ms, monotonic */
    runner_waiter_t           waiter;
    runner_queue_t            sent;      /* handed over, not yet taken */
    runner_queue_t            gone;      /* wait for its end */

    int                       egress_open;       /* there is a listener */
    int                       egress_fd;
    int                       egress_tell;       /* its agent, anew */
    uint32_t                  egress_told;       /* the policy it knows of */
};


/* a session that has a sandbox */

struct runner_sandbox_s {
    runner_later_t        later;
    runner_t             *runner;
    runner_sandbox_t     *hash_next;
    runner_sandbox_t     *used_next;     /* least recently used first */
    runner_sandbox_t     *used_prev;

    uint8_t               session[SANDBOX_WIRE_SESSION_SIZE];
    runner_tenant_t      *tenant;
    runner_container_t   *container;     /* NULL only between two */
    uint64_t              instance;
    char                  id[SANDBOX_WIRE_SANDBOX_ID_SIZE + 1];
    uint32_t              memory;        /* what nginx asked for last */
    uint32_t              disk;
    uint32_t              processes;
    unsigned              base;          /* its number; 0: the default */
    uint32_t              egress;        /* its policy; 0: none */
    int                   created;       /* no agent was told of it yet */
    int                   live;          /* counted against the limits */
    int                   dirty;         /* used since the last sync */
    int                   history;       /* of its container before, or -1 */
    int                   renew;         /* when its container can be asked */
    uint64_t              used;          /* ms, monotonic */

    runner_queue_t        waiting;       /* for an agent, in order */
    runner_queue_t        returned;      /* by one that will be replaced */
    runner_queue_t        resets;        /* RESET, answered when ready */

    runner_report_t       report;        /* the agent's last STATE */
    unsigned              ungranted;     /* commands sent without a slot */
    unsigned              taken[2];      /* of them, in this second and the
                                            last one; not in a report yet */
    uint64_t              taken_until;   /* ms, it reads their requests */
    uint64_t              open_until;    /* ms, its report has it then */
    unsigned              load;          /* counted in runner->queued */

    uint64_t              failures[RUNNER_FAILURES];
    uint64_t              failed_until;  /* ms, monotonic */
};


typedef struct {
    runner_container_t   *first;         /* ready and never used */
    unsigned              ready;
    unsigned              pending;       /* being made: 0 or 1 */
    unsigned              failures;
    uint64_t              began;         /* ms, monotonic: the last one */
    uint32_t              memory;        /* MiB that were asked for last */
    uint32_t              disk;
    runner_timer_t        timer;
} runner_pool_t;


typedef enum {
    RUNNER_RUNNING = 0,
    RUNNER_LEAVE,                        /* ends, sandboxes go on */
    RUNNER_STOP,                         /* sandboxes stop, files stay */
    RUNNER_DESTROY                       /* nothing stays */
} runner_mode_e;


struct runner_s {
    runner_options_t     *options;
    runner_host_t         host;
    runner_loop_t         loop;
    runner_jobs_t         jobs;
    runner_mode_e         mode;
    int                   listening;     /* 1: the socket file is ours */
    int                   accepting;

    runner_event_t        listener;
    runner_event_t        signals;
    runner_timer_t        accept_timer;
    runner_queue_t        coming;        /* their preambles are not whole */
    runner_timer_t        tick;
    uint64_t              synced;        /* ms, monotonic */
    int                   syncing;

    unsigned              conns;
    unsigned              max_conns;

    unsigned              returned;      /* of conns, by agents */
    int                   run_known;     /* nginx has told the next one */
    uint64_t              run_ms;        /* the longest that a command runs */

    runner_grants_t       grants;
    unsigned              queued;        /* commands that wait anywhere */
    unsigned              max_queued;
    unsigned              live;          /* containers of sandboxes */
    unsigned              max_live;
    unsigned              max_per_tenant;
    uint64_t              idle_ms;
    uint64_t              expire_ms;     /* 0: never */
    uint64_t              expire_from;   /* ms, monotonic; not before */
    uint64_t              clock_wall;    /* both clocks, at one moment */
    uint64_t              clock;

    int                   draining;
    uint64_t              drain_until;   /* ms, monotonic; then also busy */
    runner_queue_t        drains;        /* DRAIN, answered when all is done */

    uint64_t              instance;      /* the last one that was given */
    uint32_t              number;        /* the last slot */
    unsigned              sandboxes;
    runner_sandbox_t     *sessions[RUNNER_BUCKETS];
    runner_sandbox_t     *used_first;
    runner_sandbox_t     *used_last;
    runner_container_t   *containers;
    runner_pool_t         pool;
    runner_egress_t      *egress;
};


#endif /* RUNNER_H */
