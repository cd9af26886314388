/*
 * What one agent can take from all others, if it is its user's creature: how
 * long it keeps a run slot, how much it says, how many connections it gives
 * back.
 */

#ifndef RUNNER_BOUND_H
#define RUNNER_BOUND_H

#include "runner.h"


/* The number of its run slots has changed. */
void runner_bound_held(runner_container_t *container);

/*
 * It has said something that nobody asked for.  1: that was enough for this
 * second, nothing is read of it until the next one.
 */
int runner_bound_said(runner_container_t *container);

/* 1: it may give a connection back; else there are too many of those. */
int runner_bound_return(const runner_container_t *container);

/* Such a connection counts until it is closed, and does not any more. */
void runner_bound_returned(runner_conn_t *conn,
    const runner_container_t *container);
void runner_bound_closed(runner_conn_t *conn);

/* The longest that nginx lets a command run, in ms; again and again. */
void runner_bound_told(runner_t *runner, uint64_t ms);

/* Once a second. */
void runner_bound_tick(runner_t *runner);


#endif /* RUNNER_BOUND_H */
