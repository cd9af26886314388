/*
 * The warm pool: containers that are ready and were never used.
 */

#ifndef RUNNER_POOL_H
#define RUNNER_POOL_H

#include "runner.h"


void runner_pool_init(runner_t *runner);

/* Makes one more if some are missing; one at a time, in the background. */
void runner_pool_fill(runner_t *runner);

/*
 * One with so much memory, on which the size of its /tmp depends, and disk
 * (MiB; 0: the default), or NULL; no more the pool's.  All are of the default
 * base.
 */
runner_container_t *runner_pool_take(runner_t *runner, uint32_t memory,
    uint32_t disk, unsigned base);

/* One of the pool's has become ready; it died, or could not be made. */
void runner_pool_ready(runner_container_t *container);
void runner_pool_lost(runner_container_t *container);

/* Ends all of them. */
void runner_pool_drop(runner_t *runner);


#endif /* RUNNER_POOL_H */
