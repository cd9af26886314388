/*
 * The table of sessions and its limits.  Knows of containers only how to stop
 * one.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "container.h"
#include "file.h"
#include "sandbox.h"
#include "session.h"
#include "version.h"


#define RUNNER_SESSION_EXPIRES  16               /* in a second */


static runner_sandbox_t **runner_session_bucket(runner_t *runner,
    const uint8_t *session);
static void runner_session_unlink(runner_sandbox_t *sandbox);


static runner_sandbox_t **
runner_session_bucket(runner_t *runner, const uint8_t *session)
{
    uint64_t  h;

    h = runner_hash(session, SANDBOX_WIRE_SESSION_SIZE);

    return &runner->sessions[h % RUNNER_BUCKETS];
}


runner_sandbox_t *
runner_sandbox_find(runner_t *runner, const uint8_t *session)
{
    runner_sandbox_t  *sandbox;

    for (sandbox = *runner_session_bucket(runner, session);
         sandbox != NULL;
         sandbox = sandbox->hash_next)
    {
        if (memcmp(sandbox->session, session, SANDBOX_WIRE_SESSION_SIZE)
            == 0)
        {
            return sandbox;
        }
    }

    return NULL;
}


runner_sandbox_t *
runner_session_add(runner_t *runner, const uint8_t *session,
    const uint8_t *tenant)
{
    runner_sandbox_t  *sandbox, **bucket;

    sandbox = calloc(1, sizeof(*sandbox));
    if (sandbox == NULL) {
        return NULL;
    }

    sandbox->tenant = runner_tenant_get(&runner->grants, tenant);

    if (sandbox->tenant == NULL) {
        free(sandbox);
        return NULL;
    }

    sandbox->runner = runner;
    sandbox->history = -1;
    memcpy(sandbox->session, session, SANDBOX_WIRE_SESSION_SIZE);
    runner_queue_init(&sandbox->waiting);
    runner_queue_init(&sandbox->returned);
    runner_queue_init(&sandbox->resets);

    bucket = runner_session_bucket(runner, session);
    sandbox->hash_next = *bucket;
    *bucket = sandbox;
    runner->sandboxes++;

    return sandbox;
}


void
runner_session_remove(runner_sandbox_t *sandbox)
{
    runner_t          *runner;
    runner_sandbox_t **p;

    runner = sandbox->runner;

    p = runner_session_bucket(runner, sandbox->session);

    while (*p != sandbox) {
        p = &(*p)->hash_next;
    }

    *p = sandbox->hash_next;
    runner->sandboxes--;

    if (sandbox->history != -1) {
        close(sandbox->history);
        sandbox->history = -1;
    }

    runner_session_live(sandbox, 0);
    runner->queued -= sandbox->load;
    sandbox->tenant->queued -= sandbox->load;
    runner_tenant_put(&runner->grants, sandbox->tenant);

    runner_loop_free_later(&runner->loop, &sandbox->later);
}


void
runner_session_live(runner_sandbox_t *sandbox, int live)
{
    if (sandbox->live == live) {
        return;
    }

    sandbox->live = live;

    if (live) {
        sandbox->runner->live++;
        sandbox->tenant->sandboxes++;
        runner_session_touch(sandbox);
        return;
    }

    sandbox->runner->live--;
    sandbox->tenant->sandboxes--;
    runner_session_unlink(sandbox);
}


static void
runner_session_unlink(runner_sandbox_t *sandbox)
{
    runner_t  *runner;

    runner = sandbox->runner;

    if (sandbox->used_prev != NULL) {
        sandbox->used_prev->used_next = sandbox->used_next;

    } else if (runner->used_first == sandbox) {
        runner->used_first = sandbox->used_next;

    } else {
        return;
    }

    if (sandbox->used_next != NULL) {
        sandbox->used_next->used_prev = sandbox->used_prev;

    } else {
        runner->used_last = sandbox->used_prev;
    }

    sandbox->used_next = NULL;
    sandbox->used_prev = NULL;
}


void
runner_session_touch(runner_sandbox_t *sandbox)
{
    runner_t  *runner;

    runner = sandbox->runner;
    sandbox->used = runner->loop.now;

    if (!sandbox->live || runner->used_last == sandbox) {
        return;
    }

    runner_session_unlink(sandbox);

    sandbox->used_prev = runner->used_last;

    if (runner->used_last != NULL) {
        runner->used_last->used_next = sandbox;

    } else {
        runner->used_first = sandbox;
    }

    runner->used_last = sandbox;
}


int
runner_session_works(const runner_sandbox_t *sandbox)
{
    return sandbox->report.running || sandbox->report.queued
           || sandbox->report.background || sandbox->report.open
           || sandbox->ungranted
           || sandbox->open_until > sandbox->runner->loop.now
           || sandbox->taken_until > sandbox->runner->loop.now
           || sandbox->returned.n || sandbox->container->sent.n
           || sandbox->container->held
           || sandbox->container->state != RUNNER_CONTAINER_READY;
}


int
runner_session_busy(const runner_sandbox_t *sandbox)
{
    return runner_session_works(sandbox) || sandbox->waiting.n
           || sandbox->resets.n;
}


void
runner_session_idle(runner_t *runner)
{
    runner_sandbox_t  *sandbox;

    while ((sandbox = runner->used_first) != NULL
           && runner->loop.now - sandbox->used >= runner->idle_ms)
    {
        if (runner_session_busy(sandbox)) {

            /* not before it has been idle for as long */

            if (runner->used_last == sandbox) {
                sandbox->used = runner->loop.now;
                return;
            }

            runner_session_touch(sandbox);
            continue;
        }

        runner_log(RUNNER_LOG_INFO, "stopping sandbox %s, it is idle",
                   sandbox->id);
        runner_session_live(sandbox, 0);
        runner_container_end(sandbox->container, SANDBOX_OUTCOME_LOST, 0);
    }
}


/*
 * Who trusts a clock deletes files by it: a sandbox goes only if the wall
 * clock has told the same time as the monotonic one for a while.
 */

void
runner_session_expire(runner_t *runner)
{
    int64_t            gone;
    uint64_t           now, wait;
    unsigned           i, n;
    runner_sandbox_t  *sandbox, *next;

    if (runner->expire_ms == 0) {
        return;
    }

    now = runner_wall_ms();
    gone = (int64_t) (now - runner->clock_wall)
           - (int64_t) (runner->loop.now - runner->clock);

    if (gone > RUNNER_CLOCK_STEP || gone < -RUNNER_CLOCK_STEP) {

        if (runner->clock_wall) {
            runner_log(RUNNER_LOG_WARN, "the clock was set: no sandbox "
                       "expires for a while");
        }

        wait = runner->clock_wall ? RUNNER_CLOCK_WAIT : 0;
        wait = wait < runner->expire_ms ? wait : runner->expire_ms;

        runner->clock_wall = now;
        runner->clock = runner->loop.now;
        runner->expire_from = runner->loop.now + wait;
    }

    if (runner->loop.now < runner->expire_from) {
        return;
    }

    n = 0;

    for (i = 0; i < RUNNER_BUCKETS; i++) {
        for (sandbox = runner->sessions[i]; sandbox != NULL; sandbox = next) {
            next = sandbox->hash_next;

            if (sandbox->live
                || sandbox->container->state != RUNNER_CONTAINER_STOPPED
                || sandbox->waiting.n || sandbox->resets.n || sandbox->renew
                || sandbox->container->slot.record.used_ms
                   + runner->expire_ms > now)
            {
                continue;
            }

            runner_log(RUNNER_LOG_NOTICE, "removing sandbox %s with its "
                       "files: nobody has used it for %u s", sandbox->id,
                       (unsigned) (runner->expire_ms / 1000));
            (void) runner_sandbox_delete(sandbox);

            if (++n == RUNNER_SESSION_EXPIRES) {
                return;
            }
        }
    }
}


void
runner_session_load(runner_sandbox_t *sandbox)
{
    unsigned        load, untold;
    runner_conn_t  *conn;

    /*
     * What the agent has taken and not told of yet it mostly answers at once
     * or refuses, and so it may be with what waits for an agent: whoever asks
     * often must not fill the queue of all others.
     */

    untold = sandbox->ungranted + sandbox->taken[0] + sandbox->taken[1];

    for (conn = sandbox->waiting.first;
         conn != NULL && untold < RUNNER_MAX_UNTOLD;
         conn = conn->link.next)
    {
        untold += conn->preamble.operation == SANDBOX_OPERATION_COMMAND;
    }

    if (untold > RUNNER_MAX_UNTOLD) {
        untold = RUNNER_MAX_UNTOLD;
    }

    load = sandbox->report.queued + untold;

    sandbox->tenant->queued += load - sandbox->load;
    sandbox->runner->queued += load - sandbox->load;
    sandbox->load = load;
}


void
runner_session_sent(runner_sandbox_t *sandbox, runner_conn_t *conn)
{
    conn->ungranted = 1;
    sandbox->ungranted++;
}


void
runner_session_taken(runner_sandbox_t *sandbox, runner_conn_t *conn)
{
    /* if it takes longer, the agent says so; of commands it tells anyway */

    if (conn->preamble.operation != SANDBOX_OPERATION_COMMAND) {
        sandbox->open_until = sandbox->runner->loop.now + RUNNER_OPEN_WAIT;
    }

    if (!conn->ungranted) {
        return;
    }

    conn->ungranted = 0;
    sandbox->ungranted--;
    sandbox->taken[0]++;

    /* it is no sandbox to be stopped for others while a request comes in */

    sandbox->taken_until = sandbox->runner->loop.now
                           + SANDBOX_WIRE_REQUEST_WAIT;
}


void
runner_session_settled(runner_sandbox_t *sandbox)
{
    sandbox->taken[0] = 0;
    sandbox->taken[1] = 0;
    sandbox->taken_until = 0;

    runner_session_load(sandbox);
}


void
runner_session_sent_none(runner_sandbox_t *sandbox)
{
    runner_conn_t  *conn;

    for (conn = sandbox->container->sent.first;
         conn != NULL;
         conn = conn->link.next)
    {
        conn->ungranted = 0;
    }

    sandbox->ungranted = 0;
    runner_session_settled(sandbox);
}


void
runner_session_tick(runner_t *runner)
{
    runner_sandbox_t  *sandbox;

    for (sandbox = runner->used_first;
         sandbox != NULL;
         sandbox = sandbox->used_next)
    {
        if (sandbox->taken[0] || sandbox->taken[1]) {
            sandbox->taken[1] = sandbox->taken[0];
            sandbox->taken[0] = 0;
            runner_session_load(sandbox);
        }

        runner_version_settled(sandbox);
    }
}


/*
 * Microseconds since 1970: it rises over restarts and deletions, so a number
 * that was once given out never means another sandbox.
 */

uint64_t
runner_session_instance(runner_t *runner)
{
    uint64_t  now;

    now = runner_wall_ms() * 1000;
    runner->instance = now > runner->instance ? now : runner->instance + 1;

    return runner->instance;
}
