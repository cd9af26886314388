/*
 * Egress: what its own files share.
 */

#ifndef RUNNER_EGRESS_CORE_H
#define RUNNER_EGRESS_CORE_H

#include "egress.h"
#include "egress_child.h"
#include "sandbox_egress.h"


struct runner_egress_s {
    runner_t              *runner;

    uint8_t               *table;        /* checked; NULL: none came yet */
    size_t                 table_size;
    uint8_t                digest[SANDBOX_WIRE_DIGEST_SIZE];
    runner_conn_t         *upload;       /* brings the next one, or NULL */
    runner_timer_t         held;         /* connections wait for a table */
    uint32_t               missed;       /* a policy that none came for, */
    uint64_t               missed_until; /* ms: nobody waits for it again */

    runner_job_t           job;          /* writes the table to the disk */
    uint8_t               *writing;      /* its copy; NULL: it does not run */
    size_t                 writing_size;
    int                    again;        /* another table came meanwhile */

    unsigned               nca;          /* certificates for agents, by */
    uint32_t               ca_id[SANDBOX_EGRESS_MAX_POLICIES];  /* policy */
    int                    ca_fd[SANDBOX_EGRESS_MAX_POLICIES];

    runner_egress_child_t  child;        /* the proxy */
};


#define RUNNER_EGRESS_ATTEMPTS  3        /* then nobody waits for the proxy */


/* egress.c */

/* Makes the listener of a sandbox, and the proxy know of it. */
void runner_egress_open(runner_container_t *container);

/* egress_listen.c */

/*
 * Listens on the proxy's port inside the network namespace of a process.  A
 * descriptor, or -1 and errno; EADDRINUSE: somebody in there has the port.
 */
int runner_egress_listen(int pidfd);

/* egress_proxy.c */

void runner_egress_proxy_init(runner_egress_t *egress);

/* Starts it if it does not run, and is not about to. */
void runner_egress_proxy(runner_egress_t *egress);

/* The table, a listener, another policy for it, and its end. */
void runner_egress_send_table(runner_egress_t *egress);
void runner_egress_send_open(runner_egress_t *egress,
    runner_container_t *container);
void runner_egress_send_policy(runner_egress_t *egress,
    runner_container_t *container);
void runner_egress_send_close(runner_egress_t *egress,
    runner_container_t *container);

/* egress_table.c */

/* Reads what was kept, writes what came. */
void runner_egress_load(runner_egress_t *egress);
void runner_egress_keep(runner_egress_t *egress);

/* A table that was checked is in force; owns p. */
void runner_egress_take(runner_egress_t *egress, uint8_t *p, size_t size,
    const uint8_t *digest);


#endif /* RUNNER_EGRESS_CORE_H */
