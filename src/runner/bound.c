/*
 * Bounds for each agent.  Knows nothing of what its messages are for.
 */

#include <sys/epoll.h>

#include "bound.h"
#include "container.h"


#define RUNNER_BOUND_SAID    4096    /* messages in a second: an agent that
                                        answers as fast as it can has fewer */
#define RUNNER_BOUND_ALL     4       /* of all connections, one in so many */
#define RUNNER_BOUND_TENANT  8
#define RUNNER_BOUND_DISK    256     /* MiB that take as long as the grace */


static void runner_bound_overheld(runner_container_t *container);


void
runner_bound_held(runner_container_t *container)
{
    container->held_since = container->runner->loop.now;
    container->overheld = 0;
}


int
runner_bound_said(runner_container_t *container)
{
    if (++container->said < RUNNER_BOUND_SAID) {
        return 0;
    }

    container->paused = 1;
    (void) runner_event_change(&container->runner->loop, &container->control,
                               0);

    return 1;
}


int
runner_bound_return(const runner_container_t *container)
{
    runner_t          *runner;
    runner_sandbox_t  *sandbox;

    runner = container->runner;
    sandbox = container->sandbox;

    return sandbox->returned.n < RUNNER_MAX_SENT
           && sandbox->returned.n + sandbox->waiting.n
              < RUNNER_MAX_SENT + RUNNER_MAX_WAITING
           && runner->returned < runner->max_conns / RUNNER_BOUND_ALL
           && sandbox->tenant->returned
              < runner->max_conns / RUNNER_BOUND_TENANT;
}


void
runner_bound_returned(runner_conn_t *conn,
    const runner_container_t *container)
{
    conn->giver = container->sandbox->tenant;
    conn->giver->references++;
    conn->giver->returned++;
    conn->runner->returned++;
}


void
runner_bound_closed(runner_conn_t *conn)
{
    if (conn->giver != NULL) {
        conn->runner->returned--;
        conn->giver->returned--;
        runner_tenant_put(&conn->runner->grants, conn->giver);
        conn->giver = NULL;
    }
}


void
runner_bound_told(runner_t *runner, uint64_t ms)
{
    /* what runs may have begun under a cap that was higher */

    if (!runner->run_known || ms > runner->run_ms) {
        runner->run_ms = ms;
        runner->run_known = 1;
    }
}


void
runner_bound_tick(runner_t *runner)
{
    runner_container_t  *container, *next;

    for (container = runner->containers; container != NULL; container = next) {
        next = container->next;
        container->said = 0;

        if (container->paused) {
            container->paused = 0;

            if (container->control.handler != NULL) {
                (void) runner_event_change(&runner->loop, &container->control,
                                           EPOLLIN|EPOLLRDHUP
                                           |(container->out ? EPOLLOUT : 0));
            }
        }

        if (container->held && container->state == RUNNER_CONTAINER_READY) {
            runner_bound_overheld(container);
        }
    }
}


/*
 * A run slot is for one command, which its agent ends in time, and for what is
 * staged before it, which has room on its disk.  Who keeps it longer keeps it
 * from others.  Not at the first time: if it was us who did not run for a
 * while, its DONE may be there and not be read.
 */

static void
runner_bound_overheld(runner_container_t *container)
{
    uint64_t   grace;
    runner_t  *runner;

    runner = container->runner;

    grace = (uint64_t) runner->options->run_grace * 1000;
    grace += grace * container->slot.record.disk / RUNNER_BOUND_DISK;

    if (runner->loop.now - container->held_since <= runner->run_ms + grace) {
        return;
    }

    if (!container->overheld) {
        container->overheld = 1;
        return;
    }

    runner_container_kill(container, "its agent keeps a run slot for longer "
                          "than any command may run");
}
