/*
 * Run slots: how many commands may run at once on this host, and whose turn
 * it is.  Tenants take turns; within one, first come, first served.
 */

#ifndef RUNNER_GRANTS_H
#define RUNNER_GRANTS_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


#define RUNNER_TENANT_BUCKETS  256


typedef struct runner_tenant_s  runner_tenant_t;
typedef struct runner_waiter_s  runner_waiter_t;


struct runner_waiter_s {
    runner_waiter_t   *next;
    runner_waiter_t  **prev;             /* NULL: does not wait */
    runner_tenant_t   *tenant;
    void              *data;
};


struct runner_tenant_s {
    uint8_t            digest[SANDBOX_WIRE_TENANT_SIZE];
    runner_tenant_t   *hash_next;
    unsigned           references;
    unsigned           sandboxes;        /* containers of it, for the limit */
    unsigned           queued;           /* commands of it that wait */
    unsigned           returned;         /* connections, by its agents */

    runner_waiter_t   *first;
    runner_waiter_t  **last;
    runner_tenant_t   *turn_next;        /* ring of those that wait */
    runner_tenant_t   *turn_prev;
};


typedef struct {
    unsigned           total;
    unsigned           used;             /* may be over a lowered total */
    unsigned           waiting;
    runner_tenant_t   *turn;             /* whose turn is next */
    runner_tenant_t   *tenants[RUNNER_TENANT_BUCKETS];
} runner_grants_t;


void runner_grants_init(runner_grants_t *grants, unsigned total);

/* The tenant of a digest with one reference more; NULL without memory. */
runner_tenant_t *runner_tenant_get(runner_grants_t *grants,
    const uint8_t *digest);

/* The same without a reference; NULL if there is none. */
runner_tenant_t *runner_tenant_find(runner_grants_t *grants,
    const uint8_t *digest);

/* Gives a reference back; the last one frees it. */
void runner_tenant_put(runner_grants_t *grants, runner_tenant_t *tenant);

/* Takes a run slot at once: 1, or 0 if none is free or somebody waits. */
int runner_grants_take(runner_grants_t *grants);

/* A run slot that its holder had already, after a restart of ours. */
void runner_grants_hold(runner_grants_t *grants, unsigned n);

/* Gives `n` run slots back; then look at runner_grants_next(). */
void runner_grants_give(runner_grants_t *grants, unsigned n);

/* Waits in the line of its tenant; no harm if it does already. */
void runner_grants_wait(runner_grants_t *grants, runner_waiter_t *waiter,
    runner_tenant_t *tenant, void *data);

/* Waits no more. */
void runner_grants_leave(runner_grants_t *grants, runner_waiter_t *waiter);

/* Takes a free run slot for whose turn it is; NULL if there is none. */
runner_waiter_t *runner_grants_next(runner_grants_t *grants);


#endif /* RUNNER_GRANTS_H */
