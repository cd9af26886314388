/*
 * Sandboxes.  The order of a session's requests is kept whatever happens to
 * its containers: what was handed over and not taken goes before what waits,
 * what an agent returned goes before that.
 *
 * Knows no bytes of requests but the preamble.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "admit.h"
#include "conn.h"
#include "container.h"
#include "control.h"
#include "file.h"
#include "operation.h"
#include "pool.h"
#include "sandbox.h"
#include "version.h"


#define RUNNER_SANDBOX_QUIET  60000              /* ms between two lines */


static runner_sandbox_t *runner_sandbox_create(runner_conn_t *conn);
static void runner_sandbox_instance(runner_sandbox_t *sandbox);
static void runner_sandbox_caps(runner_sandbox_t *sandbox,
    const sandbox_preamble_t *preamble);
static int runner_sandbox_base(runner_conn_t *conn);
static int runner_sandbox_obtain(runner_sandbox_t *sandbox);
static int runner_sandbox_claim(runner_sandbox_t *sandbox);
static void runner_sandbox_wake(runner_sandbox_t *sandbox);
static runner_container_t *runner_sandbox_detach(runner_sandbox_t *sandbox);
static void runner_sandbox_history(runner_sandbox_t *sandbox);
static void runner_sandbox_wait_again(runner_sandbox_t *sandbox,
    runner_queue_t *queue);
static void runner_sandbox_failure(runner_sandbox_t *sandbox,
    const runner_error_t *err);
static void runner_sandbox_refuse(runner_sandbox_t *sandbox, const char *code,
    const char *detail, unsigned retry_after);
static void runner_sandbox_drop(runner_sandbox_t *sandbox);
static uint32_t runner_sandbox_bound(uint32_t value, uint32_t min,
    uint32_t max);


void
runner_sandbox_route(runner_conn_t *conn)
{
    runner_t            *runner;
    runner_refusal_t     refusal;
    runner_sandbox_t    *sandbox;
    runner_container_t  *container;
    sandbox_preamble_t  *preamble;

    runner = conn->runner;
    preamble = &conn->preamble;
    sandbox = runner_sandbox_find(runner, preamble->session);

    if (preamble->instance
        && (sandbox == NULL || sandbox->instance != preamble->instance))
    {
        runner_conn_refuse(conn, "gone", "This instance of the sandbox is "
                           "gone.", 0);
        return;
    }

    if (sandbox == NULL && (preamble->flags & SANDBOX_FLAG_NO_CREATE)) {
        runner_conn_refuse(conn, "no_sandbox", "The conversation has no "
                           "sandbox; its first command makes one.", 0);
        return;
    }

    if ((sandbox == NULL || (preamble->flags & SANDBOX_FLAG_FRESH))
        && runner_sandbox_base(conn) == -1)
    {
        return;
    }

    if (preamble->operation == SANDBOX_OPERATION_COMMAND
        && runner_admit_command(runner, preamble->tenant, &refusal) == -1)
    {
        runner_conn_refuse(conn, refusal.code, refusal.detail,
                           refusal.retry_after);
        return;
    }

    if (sandbox == NULL) {
        sandbox = runner_sandbox_create(conn);

        if (sandbox == NULL) {
            return;
        }

        runner_conn_wait(conn, &sandbox->waiting, sandbox);
        runner_session_load(sandbox);

        if (runner_sandbox_obtain(sandbox) == -1) {
            runner_sandbox_drop(sandbox);
        }

        return;
    }

    container = sandbox->container;

    if (sandbox->failed_until > runner->loop.now) {
        runner_conn_refuse(conn, "sandbox_failed", "The sandbox could not be "
                           "started; it is tried again soon.", 10);
        return;
    }

    if (sandbox->waiting.n >= RUNNER_MAX_WAITING) {
        runner_conn_refuse(conn, "too_many_pending", "Too many requests wait "
                           "for this sandbox.", 5);
        return;
    }

    if (runner_admit_sandbox(sandbox, &refusal) == -1) {
        runner_conn_refuse(conn, refusal.code, refusal.detail,
                           refusal.retry_after);
        return;
    }

    runner_session_touch(sandbox);
    runner_sandbox_caps(sandbox, preamble);
    sandbox->dirty = 1;
    container->slot.record.used_ms = runner_wall_ms();

    if (sandbox->waiting.n == 0 && runner_container_usable(container)
        && runner_version_speaks(container, conn)
        && container->sent.n < RUNNER_MAX_SENT
        && runner_control_conn(container, conn) == RUNNER_CONTROL_OK)
    {
        runner_session_load(sandbox);
        return;
    }

    runner_conn_wait(conn, &sandbox->waiting, sandbox);
    runner_session_load(sandbox);
    runner_sandbox_wake(sandbox);
}


/* an entry for a session that has none; refuses conn and returns NULL */

static runner_sandbox_t *
runner_sandbox_create(runner_conn_t *conn)
{
    runner_t          *runner;
    runner_refusal_t   refusal;
    runner_sandbox_t  *sandbox;

    runner = conn->runner;

    sandbox = runner_session_add(runner, conn->preamble.session,
                                 conn->preamble.tenant);
    if (sandbox == NULL) {
        runner_conn_refuse(conn, "at_capacity", "The runner has no memory.",
                           10);
        return NULL;
    }

    if (runner_admit_sandbox(sandbox, &refusal) == -1) {
        runner_session_remove(sandbox);
        runner_conn_refuse(conn, refusal.code, refusal.detail,
                           refusal.retry_after);
        return NULL;
    }

    runner_sandbox_caps(sandbox, &conn->preamble);
    runner_sandbox_instance(sandbox);

    if (conn->preamble.flags & SANDBOX_FLAG_FRESH) {
        conn->fresh = 1;
    }

    return sandbox;
}


static void
runner_sandbox_instance(runner_sandbox_t *sandbox)
{
    uint8_t  random[10];

    runner_random(random, sizeof(random));

    strcpy(sandbox->id, "sbx_");
    runner_hex(sandbox->id + 4, random, sizeof(random));

    sandbox->instance = runner_session_instance(sandbox->runner);
    sandbox->created = 1;
    sandbox->dirty = 1;
}


/*
 * Only from preambles that we have read off the connection: what an agent
 * returns could say anything.
 */

static void
runner_sandbox_caps(runner_sandbox_t *sandbox,
    const sandbox_preamble_t *preamble)
{
    sandbox->memory = runner_sandbox_bound(preamble->memory,
                                           SANDBOX_WIRE_MIN_MEMORY,
                                           SANDBOX_WIRE_MAX_MEMORY);
    sandbox->disk = runner_sandbox_bound(preamble->disk,
                                         SANDBOX_WIRE_MIN_DISK,
                                         SANDBOX_WIRE_MAX_DISK);
    sandbox->processes = runner_sandbox_bound(preamble->processes,
                                              SANDBOX_WIRE_MIN_PROCESSES,
                                              SANDBOX_WIRE_MAX_PROCESSES);

    /* with one that is not there only what makes no sandbox comes here */

    if (runner_base_find(&sandbox->runner->host.bases, preamble->base)) {
        sandbox->base = preamble->base;
    }
}


/* a base that the runner has, for a new instance.  -1: conn is refused */

static int
runner_sandbox_base(runner_conn_t *conn)
{
    char      names[512];
    uint64_t  now;

    static uint64_t  quiet;

    if (runner_base_find(&conn->runner->host.bases, conn->preamble.base)) {
        return 0;
    }

    now = conn->runner->loop.now;

    if (now >= quiet) {
        quiet = now + RUNNER_SANDBOX_QUIET;

        runner_bases_names(&conn->runner->host.bases, names, sizeof(names));
        runner_log(RUNNER_LOG_ERROR, "nginx asks for a base that is none of "
                   "%s (number %u).  Remedy: start sandbox-runner with --base "
                   "NAME=DIR, with the NAME of nginx's \"sandbox_base\"",
                   names, conn->preamble.base);
    }

    runner_conn_refuse(conn, "unknown_base", "The runner has no base image of "
                       "the name that the gateway asks for.", 30);

    return -1;
}


/* a container for a new instance: from the pool, or made for it.  0, or -1 */

static int
runner_sandbox_obtain(runner_sandbox_t *sandbox)
{
    int                  pooled;
    uint32_t             processes;
    runner_t            *runner;
    runner_record_t     *record;
    runner_container_t  *container;
    const runner_base_t *base;

    runner = sandbox->runner;

    base = runner_base_find(&runner->host.bases, sandbox->base);

    if (base == NULL) {
        runner_log(RUNNER_LOG_ERROR, "sandbox %s can't be made anew: its base "
                   "is no more among --base", sandbox->id);
        return -1;
    }

    container = runner_pool_take(runner, sandbox->memory, sandbox->disk,
                                 base->number);
    pooled = container != NULL;

    if (container == NULL) {
        container = runner_container_new(runner, sandbox->memory,
                                         sandbox->disk, sandbox->processes);

        if (container == NULL) {
            return -1;
        }

        if (base->number) {
            strcpy(container->slot.record.base_name, base->name);
        }
    }

    container->sandbox = sandbox;
    sandbox->container = container;

    record = &container->slot.record;
    memcpy(record->session, sandbox->session, SANDBOX_WIRE_SESSION_SIZE);
    memcpy(record->tenant, sandbox->tenant->digest, SANDBOX_WIRE_TENANT_SIZE);
    strcpy(record->id, sandbox->id);
    record->instance = sandbox->instance;
    record->created_ms = runner_wall_ms();
    record->used_ms = record->created_ms;

    if (!pooled) {
        runner_container_create(container);
        return 0;
    }

    processes = sandbox->processes ? sandbox->processes
                                   : runner->options->processes;

    if (processes != record->processes
        && runner_cgroup_limit(&runner->host.cgroups, record->number,
                               record->memory, processes) == -1)
    {
        runner_log(RUNNER_LOG_ERROR, "the limits of slot %u can't be set",
                   record->number);
        runner_container_end(runner_sandbox_detach(sandbox),
                             SANDBOX_OUTCOME_LOST, 1);
        return -1;
    }

    if (processes != record->processes) {
        record->processes = processes;
        runner_slot_processes(&container->slot);
    }

    runner_sandbox_ready(sandbox);

    return 0;
}


static uint32_t
runner_sandbox_bound(uint32_t value, uint32_t min, uint32_t max)
{
    return value == 0 ? 0 : value < min ? min : value > max ? max : value;
}


void
runner_sandbox_ready(runner_sandbox_t *sandbox)
{
    if (sandbox->renew) {
        runner_sandbox_renew(sandbox);
        return;
    }

    if (!sandbox->container->claimed
        && runner_sandbox_claim(sandbox) == -1)
    {
        return;
    }

    runner_operation_reset_done(sandbox);
    (void) runner_sandbox_flush(sandbox);
    runner_session_touch(sandbox);
}


/* what is on disk comes before what an agent is told.  -1: it is gone */

static int
runner_sandbox_claim(runner_sandbox_t *sandbox)
{
    int                  rc, error;
    runner_container_t  *container;

    container = sandbox->container;

    if (runner_slot_save(&sandbox->runner->host, &container->slot, 0) == -1) {
        error = errno;

        runner_log(RUNNER_LOG_ERROR, "the record of sandbox %s can't be "
                   "written: %s.  Remedy: make room below \"%s\"", sandbox->id,
                   strerror(error), sandbox->runner->host.state);

        runner_sandbox_refuse(sandbox, error == ENOSPC ? "disk_full"
                                                       : "sandbox_failed",
                              "the state of the sandbox can't be written",
                              30);

        if (sandbox->created) {
            runner_container_end(runner_sandbox_detach(sandbox),
                                 SANDBOX_OUTCOME_LOST, 1);
            runner_session_remove(sandbox);

        } else {
            runner_container_clean(container);
        }

        return -1;
    }

    rc = runner_control_claim(container);

    if (rc != RUNNER_CONTROL_OK) {

        /* it died just now; what waits goes to its successor */

        container->claimed = 0;

        if (rc == RUNNER_CONTROL_AGAIN) {
            runner_container_kill(container, "there is no room for its first "
                                  "message");
        }

        return -1;
    }

    sandbox->created = 0;

    return 0;
}


static void
runner_sandbox_wake(runner_sandbox_t *sandbox)
{
    if (sandbox->container->state == RUNNER_CONTAINER_STOPPED) {
        runner_container_start(sandbox->container);
        return;
    }

    (void) runner_sandbox_flush(sandbox);
}


int
runner_sandbox_flush(runner_sandbox_t *sandbox)
{
    int                  rc;
    runner_conn_t       *conn;
    runner_container_t  *container;

    container = sandbox->container;
    rc = RUNNER_CONTROL_OK;

    while (runner_container_usable(container) && container->claimed
           && container->sent.n < RUNNER_MAX_SENT
           && (conn = sandbox->waiting.first) != NULL)
    {
        if (!runner_version_speaks(container, conn)) {

            runner_version_renew(sandbox);
            break;
        }

        rc = runner_control_conn(container, conn);

        if (rc != RUNNER_CONTROL_OK) {
            break;
        }
    }

    runner_session_load(sandbox);

    return rc;
}


void
runner_sandbox_conn_left(runner_sandbox_t *sandbox)
{
    runner_session_load(sandbox);
}


void
runner_sandbox_want(runner_sandbox_t *sandbox)
{
    runner_t  *runner;

    runner = sandbox->runner;

    /*
     * It runs one at a time.  A run slot may just have gone out with another
     * connection; and nobody gets all of them by asking again and again.
     */

    if (sandbox->container->held) {
        return;
    }

    runner_grants_wait(&runner->grants, &sandbox->container->waiter,
                       sandbox->tenant, sandbox->container);
    runner_sandbox_grant(runner);
}


void
runner_sandbox_grant(runner_t *runner)
{
    runner_waiter_t  *waiter;

    while ((waiter = runner_grants_next(&runner->grants)) != NULL) {
        runner_control_grant(waiter->data);
    }
}


void
runner_sandbox_report(runner_sandbox_t *sandbox,
    const runner_report_t *report)
{
    uint64_t  max;

    sandbox->report = *report;

    /* a wrong number must not fill the queue of all others */

    max = sandbox->container->serial < RUNNER_MAX_WAITING
          ? sandbox->container->serial : RUNNER_MAX_WAITING;

    if (sandbox->report.queued > max) {
        sandbox->report.queued = max;
    }

    /* what was sent and not taken is not in its numbers yet */

    runner_session_settled(sandbox);
    runner_session_touch(sandbox);
    sandbox->dirty = 1;
    sandbox->container->slot.record.used_ms = runner_wall_ms();

    runner_version_settled(sandbox);
}


void
runner_sandbox_lost(runner_sandbox_t *sandbox, int failed)
{
    runner_container_t  *container;

    container = sandbox->container;

    container->slot.record.commands += sandbox->report.commands;

    if (container->slot.record.commands > RUNNER_MAX_COMMANDS) {
        container->slot.record.commands = RUNNER_MAX_COMMANDS;
    }

    memset(&sandbox->report, 0, sizeof(sandbox->report));
    runner_session_sent_none(sandbox);

    runner_sandbox_wait_again(sandbox, &container->sent);
    runner_queue_move_before(&sandbox->waiting, &sandbox->returned);
    runner_session_load(sandbox);

    if (failed) {
        runner_sandbox_failure(sandbox, NULL);
    }
}


/* all of a line of connections becomes the first of those that wait */

static void
runner_sandbox_wait_again(runner_sandbox_t *sandbox, runner_queue_t *queue)
{
    runner_conn_t  *conn, *next;

    for (conn = queue->first; conn != NULL; conn = next) {
        next = conn->link.next;
        runner_conn_wait_again(conn, sandbox);
    }

    runner_queue_move_before(&sandbox->waiting, queue);
}


void
runner_sandbox_stopped(runner_sandbox_t *sandbox)
{
    runner_refusal_t  refusal;

    if (sandbox->renew && sandbox->runner->mode == RUNNER_RUNNING) {
        sandbox->renew = 0;
        runner_container_history(sandbox->container);
        return;
    }

    if (sandbox->waiting.n && sandbox->runner->mode == RUNNER_RUNNING) {
        if (runner_admit_sandbox(sandbox, &refusal) == 0) {
            runner_container_start(sandbox->container);
            return;
        }

        runner_sandbox_refuse(sandbox, refusal.code, refusal.detail,
                              refusal.retry_after);
    }

    runner_session_live(sandbox, 0);
}


void
runner_sandbox_not_created(runner_sandbox_t *sandbox,
    const runner_error_t *err)
{
    runner_sandbox_failure(sandbox, err);

    if (sandbox->failed_until > sandbox->runner->loop.now
        || sandbox->runner->mode != RUNNER_RUNNING
        || (sandbox->waiting.n == 0 && sandbox->resets.n == 0)
        || runner_sandbox_obtain(sandbox) == -1)
    {
        runner_sandbox_drop(sandbox);
    }
}


void
runner_sandbox_not_started(runner_sandbox_t *sandbox,
    const runner_error_t *err)
{
    runner_sandbox_failure(sandbox, err);

    if (sandbox->renew) {
        runner_sandbox_stopped(sandbox);
        return;
    }

    if (sandbox->failed_until > sandbox->runner->loop.now
        || sandbox->waiting.n == 0)
    {
        runner_session_live(sandbox, 0);
        return;
    }

    runner_container_start(sandbox->container);
}


/*
 * Counts a start that failed, or a death.  A full disk, or a base that is not
 * there, does not get better by trying; too many of the others in a short
 * time: nobody waits any longer.
 */

static void
runner_sandbox_failure(runner_sandbox_t *sandbox, const runner_error_t *err)
{
    int        full, unknown;
    uint64_t   now;

    now = sandbox->runner->loop.now;
    unknown = err != NULL && strcmp(err->code, "unknown_base") == 0;
    full = err != NULL && strcmp(err->code, "disk_full") == 0;

    memmove(sandbox->failures + 1, sandbox->failures,
            sizeof(sandbox->failures) - sizeof(sandbox->failures[0]));
    sandbox->failures[0] = now;

    if (!full && !unknown
        && (sandbox->failures[RUNNER_FAILURES - 1] == 0
            || now - sandbox->failures[RUNNER_FAILURES - 1]
               > RUNNER_FAILURES_MS))
    {
        return;
    }

    memset(sandbox->failures, 0, sizeof(sandbox->failures));
    sandbox->failed_until = now + (full ? 1000 : RUNNER_FAILURES_MS);

    if (err != NULL || runner_log_allowed(&runner_log_sandboxes)) {
        runner_log(RUNNER_LOG_ERROR, "sandbox %s failed: %s", sandbox->id,
                   err ? err->text
                       : "its agent dies before it does anything");
    }

    if (full) {
        runner_sandbox_refuse(sandbox, "disk_full", "the runner's disk is "
                              "full", 30);
        return;
    }

    if (unknown) {
        runner_sandbox_refuse(sandbox, "unknown_base", "The runner has no "
                              "base image of the name that this sandbox was "
                              "made from.", 30);
        return;
    }

    runner_sandbox_refuse(sandbox, "sandbox_failed", "the sandbox could not "
                          "be started", 10);
}


static void
runner_sandbox_refuse(runner_sandbox_t *sandbox, const char *code,
    const char *detail, unsigned retry_after)
{
    runner_conn_t  *conn;

    while ((conn = sandbox->returned.first) != NULL
           || (conn = sandbox->waiting.first) != NULL
           || (conn = sandbox->resets.first) != NULL)
    {
        runner_queue_remove(conn);
        runner_conn_refuse(conn, code, detail, retry_after);
    }
}


/* it has no container and gets none */

static void
runner_sandbox_drop(runner_sandbox_t *sandbox)
{
    runner_sandbox_refuse(sandbox, "sandbox_failed", "the sandbox could not "
                          "be made", 10);
    runner_session_remove(sandbox);
}


/*
 * Takes the container away from it: a tombstone, since its successor, if any,
 * starts from nothing.
 */

static runner_container_t *
runner_sandbox_detach(runner_sandbox_t *sandbox)
{
    runner_container_t  *container;

    container = sandbox->container;

    runner_grants_leave(&sandbox->runner->grants, &container->waiter);

    memset(&sandbox->report, 0, sizeof(sandbox->report));
    runner_session_sent_none(sandbox);

    container->sandbox = NULL;
    container->destroy = 1;
    sandbox->container = NULL;

    /* while a job has it, the job that destroys it writes the tombstone */

    if (container->state != RUNNER_CONTAINER_STARTING
        && container->state != RUNNER_CONTAINER_CLEANING)
    {
        container->slot.record.deleted = 1;

        if (runner_slot_save(&sandbox->runner->host, &container->slot, 0)
            == -1)
        {
            runner_log(RUNNER_LOG_ERROR, "the tombstone of sandbox %s can't "
                       "be written: %s", sandbox->id, strerror(errno));
        }
    }

    return container;
}


runner_container_t *
runner_sandbox_delete(runner_sandbox_t *sandbox)
{
    runner_container_t  *container;

    container = runner_sandbox_detach(sandbox);

    runner_sandbox_refuse(sandbox, "gone", "the sandbox was deleted", 0);
    runner_session_remove(sandbox);

    runner_container_end(container, SANDBOX_OUTCOME_DELETED, 1);

    return container;
}


void
runner_sandbox_reset(runner_conn_t *conn, runner_sandbox_t *sandbox)
{
    runner_refusal_t     refusal;
    runner_container_t  *container;

    container = NULL;

    if ((sandbox != NULL || !(conn->preamble.flags & SANDBOX_FLAG_NO_CREATE))
        && runner_sandbox_base(conn) == -1)
    {
        return;
    }

    if (runner_admit(conn->runner, &refusal) == -1) {
        runner_conn_refuse(conn, refusal.code, refusal.detail,
                           refusal.retry_after);
        return;
    }

    if (sandbox == NULL) {
        if (conn->preamble.flags & SANDBOX_FLAG_NO_CREATE) {
            runner_conn_refuse(conn, "no_sandbox", "The conversation has no "
                               "sandbox; its first command makes one.", 0);
            return;
        }

        sandbox = runner_sandbox_create(conn);

        if (sandbox == NULL) {
            return;
        }

    } else {
        if (runner_admit_sandbox(sandbox, &refusal) == -1) {
            runner_conn_refuse(conn, refusal.code, refusal.detail,
                               refusal.retry_after);
            return;
        }

        container = sandbox->container;
        runner_sandbox_caps(sandbox, &conn->preamble);
    }

    runner_conn_wait(conn, &sandbox->resets, NULL);

    if (container == NULL) {
        if (runner_sandbox_obtain(sandbox) == -1) {
            runner_sandbox_drop(sandbox);
        }

        return;
    }

    switch (container->state) {

    case RUNNER_CONTAINER_STOPPED:
        runner_container_history(container);
        return;

    case RUNNER_CONTAINER_OPENING:
    case RUNNER_CONTAINER_READY:
        break;

    default:

        /* its history is nowhere at present, if it ever had one */

        if (!sandbox->created) {
            sandbox->renew = 1;
            return;
        }
    }

    runner_sandbox_renew(sandbox);
}


void
runner_sandbox_renew(runner_sandbox_t *sandbox)
{
    runner_container_t  *container;

    sandbox->renew = 0;
    runner_sandbox_history(sandbox);
    container = runner_sandbox_detach(sandbox);

    sandbox->failed_until = 0;
    runner_sandbox_instance(sandbox);

    /*
     * The new one first: the old one's disk is in use until it has read the
     * history, so its job must not go before the other's.
     */

    if (runner_sandbox_obtain(sandbox) == -1) {
        runner_sandbox_drop(sandbox);
    }

    runner_container_end(container, SANDBOX_OUTCOME_DELETED, 1);
}


/* What the conversation knows of its commands outlives the sandbox. */

static void
runner_sandbox_history(runner_sandbox_t *sandbox)
{
    runner_container_state_e  state;

    state = sandbox->container->state;

    /* a job that makes it or takes it apart has the slot for itself */

    if (sandbox->history == -1
        && state != RUNNER_CONTAINER_STARTING
        && state != RUNNER_CONTAINER_CLEANING)
    {
        sandbox->history = runner_slot_history(&sandbox->container->slot);
    }
}


void
runner_sandbox_replace(runner_sandbox_t *sandbox)
{
    runner_conn_t       *conn;
    runner_container_t  *container;

    runner_sandbox_history(sandbox);
    container = runner_sandbox_detach(sandbox);

    runner_sandbox_wait_again(sandbox, &container->sent);
    runner_queue_move_before(&sandbox->waiting, &sandbox->returned);
    runner_session_load(sandbox);

    /* it may have been refused or lost; then this is for nobody's command */

    conn = sandbox->waiting.first;

    if (conn != NULL && (conn->preamble.flags & SANDBOX_FLAG_FRESH)) {
        conn->fresh = 1;
    }

    runner_sandbox_instance(sandbox);

    if (runner_sandbox_obtain(sandbox) == -1) {
        runner_sandbox_drop(sandbox);
    }

    runner_container_end(container, SANDBOX_OUTCOME_DELETED, 1);
}


unsigned
runner_sandbox_state(const runner_sandbox_t *sandbox)
{
    if (sandbox == NULL || sandbox->container == NULL) {
        return SANDBOX_STATE_NONE;
    }

    switch (sandbox->container->state) {

    case RUNNER_CONTAINER_STARTING:
    case RUNNER_CONTAINER_OPENING:
        return SANDBOX_STATE_CREATING;

    case RUNNER_CONTAINER_READY:
        return SANDBOX_STATE_RUNNING;

    default:
        if (sandbox->failed_until > sandbox->runner->loop.now) {
            return SANDBOX_STATE_FAILED;
        }

        return sandbox->waiting.n ? SANDBOX_STATE_CREATING
                                  : SANDBOX_STATE_IDLE;
    }
}


runner_sandbox_t *
runner_sandbox_found(runner_container_t *container)
{
    runner_t          *runner;
    runner_record_t   *record;
    runner_sandbox_t  *sandbox;

    runner = container->runner;
    record = &container->slot.record;

    sandbox = runner_session_add(runner, record->session, record->tenant);
    if (sandbox == NULL) {
        return NULL;
    }

    sandbox->instance = record->instance;
    strcpy(sandbox->id, record->id);
    sandbox->memory = record->memory;
    sandbox->disk = record->disk;
    sandbox->processes = record->processes;
    sandbox->base = record->base_name[0]
                    ? sandbox_base_number(record->base_name,
                                          strlen(record->base_name))
                    : 0;

    if (runner->instance < record->instance) {
        runner->instance = record->instance;
    }

    container->sandbox = sandbox;
    sandbox->container = container;

    return sandbox;
}
