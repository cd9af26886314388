/*
 * The warm pool.  A container leaves it once and never comes back.
 */

#include "container.h"
#include "pool.h"


#define RUNNER_POOL_BUSY       4                 /* jobs that come first */
#define RUNNER_POOL_PAUSE      100               /* ms, then look again */
#define RUNNER_POOL_PACE       2                 /* pauses for so many times
                                                    as long as one took */
#define RUNNER_POOL_MAX_PAUSE  30000


static void runner_pool_timer(void *data);


void
runner_pool_init(runner_t *runner)
{
    runner->pool.memory = runner->options->memory;
    runner->pool.disk = runner->options->disk;
    runner->pool.timer.handler = runner_pool_timer;
    runner->pool.timer.data = runner;
}


static void
runner_pool_timer(void *data)
{
    runner_pool_fill(data);
}


void
runner_pool_fill(runner_t *runner)
{
    runner_pool_t       *pool;
    runner_container_t  *container;

    pool = &runner->pool;

    if (runner->mode != RUNNER_RUNNING || runner->draining || pool->pending
        || pool->ready >= runner->options->pool || pool->timer.index)
    {
        return;
    }

    if (runner->jobs.pending >= RUNNER_POOL_BUSY) {
        (void) runner_timer_start(&runner->loop, &pool->timer,
                                  RUNNER_POOL_PAUSE);
        return;
    }

    container = runner_container_new(runner, pool->memory, pool->disk, 0);

    if (container != NULL) {
        container->pooled = 1;
        pool->pending = 1;
        pool->began = runner->loop.now;
        runner_container_create(container);
    }
}


runner_container_t *
runner_pool_take(runner_t *runner, uint32_t memory, uint32_t disk,
    unsigned base)
{
    runner_pool_t        *pool;
    runner_container_t   *container, **p, *other;

    pool = &runner->pool;
    memory = memory ? memory : runner->options->memory;
    disk = disk ? disk : runner->options->disk;
    other = NULL;

    if (base) {
        return NULL;
    }

    for (p = &pool->first; (container = *p) != NULL;
         p = &container->pool_next)
    {
        if (!runner_container_usable(container)) {
            continue;
        }

        if (container->slot.record.disk != disk
            || container->slot.record.memory != memory)
        {
            other = container;
            continue;
        }

        *p = container->pool_next;
        container->pooled = 0;
        pool->ready--;

        /* whoever takes it runs a command now: do not compete with that */

        (void) runner_timer_start(&runner->loop, &pool->timer,
                                  RUNNER_POOL_PAUSE);

        return container;
    }

    /* the pool follows what is asked for */

    if (pool->disk != disk || pool->memory != memory) {
        pool->disk = disk;
        pool->memory = memory;

        if (other != NULL) {
            runner_container_end(other, SANDBOX_OUTCOME_LOST, 1);
        }
    }

    return NULL;
}


void
runner_pool_ready(runner_container_t *container)
{
    uint64_t        pause;
    runner_t       *runner;
    runner_pool_t  *pool;

    runner = container->runner;
    pool = &runner->pool;

    pool->pending = 0;
    pool->failures = 0;
    pool->ready++;
    container->pool_next = pool->first;
    pool->first = container;

    /* commands have the processors for most of the time */

    pause = RUNNER_POOL_PACE * (runner->loop.now - pool->began);

    (void) runner_timer_start(&runner->loop, &pool->timer,
                              pause < RUNNER_POOL_PAUSE ? RUNNER_POOL_PAUSE
                              : pause > RUNNER_POOL_MAX_PAUSE
                                ? RUNNER_POOL_MAX_PAUSE : pause);
}


void
runner_pool_lost(runner_container_t *container)
{
    uint64_t              pause;
    runner_pool_t        *pool;
    runner_container_t  **p;

    pool = &container->runner->pool;
    container->pooled = 0;

    for (p = &pool->first; *p != NULL; p = &(*p)->pool_next) {
        if (*p == container) {
            *p = container->pool_next;
            pool->ready--;
            return;
        }
    }

    /* it was still being made */

    pool->pending = 0;

    pause = (uint64_t) 1000 << pool->failures;

    if (pause < RUNNER_POOL_MAX_PAUSE) {
        pool->failures++;

    } else {
        pause = RUNNER_POOL_MAX_PAUSE;
    }

    (void) runner_timer_start(&container->runner->loop, &pool->timer, pause);
}


void
runner_pool_drop(runner_t *runner)
{
    runner_container_t  *container, *next;

    runner_timer_stop(&runner->loop, &runner->pool.timer);

    for (container = runner->containers; container != NULL; container = next) {
        next = container->next;

        if (container->pooled) {
            runner_container_end(container, SANDBOX_OUTCOME_LOST, 1);
        }
    }
}
