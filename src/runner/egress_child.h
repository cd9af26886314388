/*
 * The egress proxy as a child, for whoever has one: its start, and what it
 * counts for each policy.
 */

#ifndef RUNNER_EGRESS_CHILD_H
#define RUNNER_EGRESS_CHILD_H

#include <stddef.h>
#include <stdint.h>

#include "loop.h"
#include "message.h"
#include "options.h"


#define RUNNER_EGRESS_COUNTS  256


/* counters of a policy, of all proxies since the runner started */

typedef struct {
    uint32_t               id;
    uint64_t               before[5];    /* of proxies that ended */
    uint64_t               now[5];       /* tunnels, refused, failed, up, down
                                            of this one */
    uint64_t               open;
} runner_egress_count_t;


/* one proxy; the first part is the parent's to fill */

typedef struct {
    runner_loop_t           *loop;
    const runner_options_t  *options;
    void                    *data;
    void                   (*tell)(void *data);  /* it started: all there is */
    void                   (*ready)(void *data); /* or NULL */
    void                   (*lost)(void *data);  /* its tunnels, too; or NULL */
    int                    (*wanted)(void *data);  /* 1: again; NULL: always */

    runner_event_t           channel;    /* fd -1: there is none */
    int                      process;    /* its pidfd, or -1 */
    runner_timer_t           restart;
    unsigned                 attempts;
    uint64_t                 started;    /* ms, monotonic */
    runner_egress_count_t    counts[RUNNER_EGRESS_COUNTS];
} runner_egress_child_t;


/* egress_child.c */

void runner_egress_child_init(runner_egress_child_t *child);

/* Starts it if it does not run, and is not about to. */
void runner_egress_child_start(runner_egress_child_t *child);

/* Ends it for good; or it has ended, and is started again. */
void runner_egress_child_end(runner_egress_child_t *child);
void runner_egress_child_lost(runner_egress_child_t *child, const char *why);

/* Tells it, if it is there: the table (NULL: none), and anything else. */
void runner_egress_child_table(runner_egress_child_t *child,
    const uint8_t *table, size_t size);
void runner_egress_child_send(runner_egress_child_t *child, uint8_t type,
    uint32_t serial, const sandbox_writer_t *w, int fd);


/* egress_spawn.c */

/*
 * Starts the program with its end of the channel, which is the caller's to
 * close.  Its pidfd, or -1 and a line.
 */
int runner_egress_spawn(const runner_options_t *options, int channel);

/* A sealed memfd with these bytes, or -1. */
int runner_egress_memfd(const void *p, size_t size);


/* egress_fields.c; counts are all of RUNNER_EGRESS_COUNTS */

/*
 * Head and body of an EGRESS: 0 and the digest, or -1 and a line.  And a line
 * where it is not the table of before (NULL: there was none).
 */
int runner_egress_table(const uint8_t *head, size_t head_size,
    const uint8_t *table, size_t size, uint8_t *digest);
void runner_egress_taken(const uint8_t *digest, const uint8_t *before,
    size_t size);

/* A message of the proxy.  0, or -1: it is no EGRESS_CHANNEL_COUNT. */
int runner_egress_counted(runner_egress_count_t *counts,
    runner_message_t *message);

/* The proxy ended. */
void runner_egress_counts_keep(runner_egress_count_t *counts);

/*
 * EGRESS_DIGEST of a table (NULL: none came, nothing is written) and
 * EGRESS_COUNTs of its policies, as many as have room.
 */
void runner_egress_write(const runner_egress_count_t *counts,
    const uint8_t *digest, const uint8_t *table, size_t size,
    sandbox_writer_t *w);


#endif /* RUNNER_EGRESS_CHILD_H */
