/*
 * Stopping all sandboxes of the host, by and by, and telling when that is
 * done.  Admission knows by itself that none may start.
 */

#include "conn.h"
#include "container.h"
#include "drain.h"
#include "pool.h"
#include "session.h"


static int runner_drain_done(const runner_t *runner);
static void runner_drain_answer(runner_t *runner);


void
runner_drain(runner_conn_t *conn, uint64_t ms)
{
    runner_t  *runner;

    runner = conn->runner;

    if (!runner->draining) {
        runner_log(RUNNER_LOG_NOTICE, "draining: %u sandboxes are to stop, "
                   "what runs has %u s", runner->live, (unsigned) (ms / 1000));
    }

    runner->draining = 1;
    runner->drain_until = runner->loop.now + ms;

    conn->deadline = runner->drain_until + RUNNER_REMOVE_WAIT;
    runner_conn_wait(conn, &runner->drains, NULL);

    runner_pool_drop(runner);
    runner_drain_tick(runner);
}


void
runner_drain_end(runner_t *runner)
{
    if (runner->draining) {
        runner_log(RUNNER_LOG_NOTICE, "draining is over, sandboxes start "
                   "again");
    }

    runner->draining = 0;
    runner_drain_answer(runner);
    runner_pool_fill(runner);
}


void
runner_drain_tick(runner_t *runner)
{
    int                late;
    runner_sandbox_t  *sandbox, *next;

    if (!runner->draining) {
        return;
    }

    late = runner->loop.now >= runner->drain_until;

    for (sandbox = runner->used_first; sandbox != NULL; sandbox = next) {
        next = sandbox->used_next;

        if (late || !runner_session_busy(sandbox)) {
            runner_container_end(sandbox->container, SANDBOX_OUTCOME_LOST, 0);
        }
    }

    if (runner_drain_done(runner)) {
        runner_drain_answer(runner);
    }
}


/* also those that no longer count, or never did, have stopped */

static int
runner_drain_done(const runner_t *runner)
{
    runner_container_t  *container;

    for (container = runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->state != RUNNER_CONTAINER_STOPPED) {
            return 0;
        }
    }

    return 1;
}


static void
runner_drain_answer(runner_t *runner)
{
    uint8_t            b[64];
    runner_conn_t     *conn;
    sandbox_writer_t   w;

    while ((conn = runner->drains.first) != NULL) {

        runner_queue_remove(conn);

        sandbox_writer_init(&w, b, sizeof(b));
        sandbox_write_number(&w, SANDBOX_TAG_SANDBOXES, runner->sandboxes);
        sandbox_write_number(&w, SANDBOX_TAG_DRAINING, runner->draining);

        runner_conn_answer(conn, &w);
    }
}
