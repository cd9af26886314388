/*
 * The life of a container, as a state machine:
 *
 *   STARTING -> OPENING -> READY -> ENDING -> CLEANING -> STOPPED, or gone
 *
 * A death at any time leads to CLEANING; what comes after depends on whether
 * its disk is kept.  Knows of sandboxes only whom to tell.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>

#include "conn.h"
#include "container.h"
#include "control.h"
#include "egress.h"
#include "file.h"
#include "operation.h"
#include "pool.h"
#include "room.h"
#include "sandbox.h"
#include "words.h"


#define RUNNER_CLEAN_ATTEMPTS  5
#define RUNNER_CLEAN_PAUSE     2000              /* ms */


static runner_container_t *runner_container_alloc(runner_t *runner);
static void runner_container_create_job(runner_job_t *job);
static void runner_container_start_job(runner_job_t *job);
static void runner_container_started(runner_job_t *job);
static int runner_container_open(runner_container_t *container,
    uint64_t wait);
static void runner_container_death(runner_event_t *event, uint32_t events);
static void runner_container_overdue(runner_container_t *container);
static int runner_container_runnable(const runner_container_t *container);
static void runner_container_timer(void *data);
static void runner_container_release(runner_container_t *container);
static void runner_container_clean_job(runner_job_t *job);
static void runner_container_cleaned(runner_job_t *job);
static void runner_container_history_job(runner_job_t *job);
static void runner_container_history_done(runner_job_t *job);
static void runner_container_free(runner_container_t *container, int failed);


static runner_container_t *
runner_container_alloc(runner_t *runner)
{
    runner_container_t  *container;

    container = calloc(1, sizeof(*container));
    if (container == NULL) {
        return NULL;
    }

    container->runner = runner;
    container->job.data = container;
    container->timer.handler = runner_container_timer;
    container->timer.data = container;

    runner_slot_init(&container->slot);
    runner_queue_init(&container->sent);
    runner_queue_init(&container->gone);

    container->next = runner->containers;
    container->prev = &runner->containers;

    if (container->next != NULL) {
        container->next->prev = &container->next;
    }

    runner->containers = container;

    return container;
}


runner_container_t *
runner_container_new(runner_t *runner, uint32_t memory, uint32_t disk,
    uint32_t processes)
{
    runner_container_t  *container;

    container = runner_container_alloc(runner);
    if (container == NULL) {
        return NULL;
    }

    container->slot.record.number = ++runner->number;
    container->slot.record.memory = memory ? memory
                                           : runner->options->memory;
    container->slot.record.disk = disk ? disk : runner->options->disk;
    container->slot.record.processes = processes ? processes
                                                 : runner->options->processes;
    return container;
}


runner_container_t *
runner_container_found(runner_t *runner, const runner_record_t *record)
{
    runner_container_t  *container;

    container = runner_container_alloc(runner);

    if (container != NULL) {
        container->slot.record = *record;
        container->state = RUNNER_CONTAINER_STOPPED;
    }

    return container;
}


void
runner_container_create(runner_container_t *container)
{
    container->state = RUNNER_CONTAINER_STARTING;
    container->job.low = container->pooled;
    container->job.run = runner_container_create_job;
    container->job.done = runner_container_started;

    runner_jobs_add(&container->runner->jobs, &container->job);
}


void
runner_container_start(runner_container_t *container)
{
    container->state = RUNNER_CONTAINER_STARTING;
    container->job.run = runner_container_start_job;
    container->job.done = runner_container_started;

    runner_jobs_add(&container->runner->jobs, &container->job);
}


static void
runner_container_create_job(runner_job_t *job)
{
    runner_container_t  *container;

    container = job->data;
    job->rc = runner_room_denied(&container->runner->host, &job->err);

    if (job->rc == 0) {
        job->rc = runner_slot_create(&container->runner->host,
                                     &container->slot, &job->err);
    }

    if (job->rc == 0 && job->low) {
        runner_jobs_raise(&container->runner->jobs,
                          container->slot.record.pid);
    }
}


static void
runner_container_start_job(runner_job_t *job)
{
    runner_container_t  *container;

    container = job->data;
    job->rc = runner_room_denied(&container->runner->host, &job->err);

    if (job->rc == 0) {
        job->rc = runner_slot_start(&container->runner->host,
                                    &container->slot, &job->err);
    }
}


static void
runner_container_started(runner_job_t *job)
{
    int                  created;
    runner_sandbox_t    *sandbox;
    runner_container_t  *container;

    container = job->data;
    created = job->run == runner_container_create_job;
    job->low = 0;

    if (job->rc == 0) {
        if (container->end) {
            runner_container_clean(container);
            return;
        }

        /* from here on what goes wrong counts as a failure of its sandbox */

        container->state = RUNNER_CONTAINER_OPENING;

        if (runner_container_open(container, RUNNER_READY_WAIT) == -1) {
            runner_container_kill(container, "no memory or watches for it; "
                                  "see fs.epoll.max_user_watches");
        }

        return;
    }

    runner_log(RUNNER_LOG_ERROR, "slot %u could not be started: %s",
               container->slot.record.number, job->err.text);

    sandbox = container->sandbox;

    /* a failed creation has left nothing, a failed start has left the disk */

    if (created || container->destroy) {
        container->sandbox = NULL;

        if (sandbox != NULL) {
            runner_sandbox_not_created(sandbox, &job->err);

        } else if (container->pooled) {
            runner_pool_lost(container);
        }

        if (created) {
            runner_container_free(container, 0);

        } else {
            runner_container_clean(container);
        }

        return;
    }

    container->state = RUNNER_CONTAINER_STOPPED;
    container->end = 0;

    if (sandbox != NULL) {
        runner_sandbox_not_started(sandbox, &job->err);
    }
}


/* pidfd and control socket are there; READY comes next, within `wait` ms */

static int
runner_container_open(runner_container_t *container, uint64_t wait)
{
    runner_loop_t  *loop;

    loop = &container->runner->loop;

    container->process.fd = container->slot.pidfd;
    container->process.handler = runner_container_death;
    container->process.data = container;

    if (runner_event_add(loop, &container->process, EPOLLIN) == -1) {
        container->process.handler = NULL;
        return -1;
    }

    container->control.fd = container->slot.control;
    container->control.handler = runner_control_event;
    container->control.data = container;
    container->out = 0;

    if (runner_event_add(loop, &container->control, EPOLLIN|EPOLLRDHUP)
        == -1)
    {
        container->control.handler = NULL;
        return -1;
    }

    return runner_timer_start(loop, &container->timer, wait);
}


int
runner_container_adopt(runner_container_t *container)
{
    if (runner_slot_adopt(&container->runner->host, &container->slot) == -1
        || runner_container_open(container, RUNNER_ADOPT_WAIT) == -1)
    {
        return -1;
    }

    container->state = RUNNER_CONTAINER_OPENING;
    container->claimed = 1;
    container->adopted = 1;

    return 0;
}


int
runner_container_usable(const runner_container_t *container)
{
    return container->state == RUNNER_CONTAINER_READY
           && container->control.handler != NULL
           && !container->end;
}


uint64_t
runner_container_due(const runner_container_t *container)
{
    uint64_t   begun;
    runner_t  *runner;

    runner = container->runner;

    if (container->state != RUNNER_CONTAINER_STARTING
        && container->state != RUNNER_CONTAINER_OPENING)
    {
        return 0;
    }

    begun = runner_jobs_begun(&runner->jobs, &container->job);

    return (begun ? begun : runner->loop.now) + RUNNER_CREATE_WAIT;
}


void
runner_container_end(runner_container_t *container, sandbox_outcome_e outcome,
    int destroy)
{
    container->destroy |= destroy;

    switch (container->state) {

    case RUNNER_CONTAINER_STARTING:
        container->end = 1;
        return;

    case RUNNER_CONTAINER_OPENING:
        runner_container_clean(container);
        return;

    case RUNNER_CONTAINER_READY:
        if (!container->claimed || container->control.handler == NULL) {
            runner_container_clean(container);
            return;
        }

        container->end = 1;
        container->state = RUNNER_CONTAINER_ENDING;
        container->stop = outcome + 1;

        if (runner_timer_start(&container->runner->loop, &container->timer,
                               RUNNER_STOP_WAIT) == -1)
        {
            runner_container_clean(container);
            return;
        }

        runner_control_flush(container);
        return;

    case RUNNER_CONTAINER_STOPPED:
        if (container->destroy) {
            runner_container_clean(container);
        }

        return;

    default: /* ENDING, CLEANING: on the way */
        return;
    }
}


void
runner_container_kill(runner_container_t *container, const char *why)
{
    if (runner_log_allowed(&runner_log_sandboxes)) {
        runner_log(RUNNER_LOG_ERROR, "ending the container of slot %u: %s",
                   container->slot.record.number, why);
    }

    runner_container_clean(container);
}


void
runner_container_watch(runner_container_t *container, int taken)
{
    runner_loop_t  *loop;

    loop = &container->runner->loop;

    /* the timer is for other things in all other states */

    if (container->state != RUNNER_CONTAINER_READY
        || container->control.handler == NULL)
    {
        return;
    }

    if (container->sent.first == NULL) {
        runner_timer_stop(loop, &container->timer);
        return;
    }

    if (taken || container->timer.index == 0) {
        container->overdue = 0;
        (void) runner_timer_start(loop, &container->timer, RUNNER_TAKE_WAIT);
    }
}


/*
 * Not at the first time: if it was us who did not run for a while, its TAKEN
 * may be there and not be read.  And not soon if it would run, but waits for a
 * processor, or for memory: a busy host is no reason to end anything.
 */

static void
runner_container_overdue(runner_container_t *container)
{
    unsigned  most;

    most = runner_container_runnable(container) ? RUNNER_TAKE_STARVED : 1;

    if (container->overdue < most
        && runner_timer_start(&container->runner->loop, &container->timer,
                              RUNNER_TAKE_WAIT) == 0)
    {
        container->overdue++;
        return;
    }

    runner_container_kill(container, "its agent takes no connections");
}


/* its state in /proc; what is before may hold blanks and parentheses */

static int
runner_container_runnable(const runner_container_t *container)
{
    char  path[64], text[2048], *p;

    snprintf(path, sizeof(path), "/proc/%d/stat", container->slot.record.pid);

    if (runner_file_read(AT_FDCWD, path, text, sizeof(text)) == -1) {
        return 0;
    }

    p = strrchr(text, ')');

    return p != NULL && (p[2] == 'R' || p[2] == 'D');
}


void
runner_container_broken(runner_container_t *container)
{
    runner_event_remove(&container->runner->loop, &container->control);

    /* its death comes a moment later, if it died */

    if (container->state == RUNNER_CONTAINER_READY
        || container->state == RUNNER_CONTAINER_OPENING)
    {
        if (runner_timer_start(&container->runner->loop, &container->timer,
                               RUNNER_DEATH_WAIT) == -1)
        {
            runner_container_clean(container);
        }
    }
}


static void
runner_container_timer(void *data)
{
    char                 words[512];
    runner_container_t  *container;

    container = data;

    switch (container->state) {

    case RUNNER_CONTAINER_OPENING:
        if (runner_log_allowed(&runner_log_sandboxes)) {
            runner_words_read(container->slot.words, words, sizeof(words));
            runner_log(RUNNER_LOG_ERROR, "the agent of slot %u said: %s",
                       container->slot.record.number, words);
        }

        runner_container_kill(container, "its agent was not ready in time");
        return;

    case RUNNER_CONTAINER_READY:
        if (container->control.handler != NULL) {
            runner_container_overdue(container);
            return;
        }

        runner_container_kill(container, "its agent closed the control "
                              "channel and lives on");
        return;

    case RUNNER_CONTAINER_CLEANING:
        runner_jobs_add(&container->runner->jobs, &container->job);
        return;

    default: /* ENDING */
        runner_container_clean(container);
        return;
    }
}


static void
runner_container_death(runner_event_t *event, uint32_t events)
{
    char                 words[256];
    runner_container_t  *container;

    container = event->data;

    if ((container->state == RUNNER_CONTAINER_READY
         || container->state == RUNNER_CONTAINER_OPENING)
        && runner_log_allowed(&runner_log_sandboxes))
    {
        runner_words_read(container->slot.words, words, sizeof(words));
        runner_log(RUNNER_LOG_WARN, "the agent of slot %u (sandbox %s) died; "
                   "its last words: %s", container->slot.record.number,
                   container->sandbox ? container->sandbox->id : "-", words);
    }

    runner_container_clean(container);
}


/* what it holds of ours goes back */

static void
runner_container_release(runner_container_t *container)
{
    runner_t  *runner;

    runner = container->runner;

    runner_event_remove(&runner->loop, &container->control);
    runner_event_remove(&runner->loop, &container->process);
    runner_timer_stop(&runner->loop, &container->timer);

    runner_egress_closed(container);

    runner_grants_leave(&runner->grants, &container->waiter);
    runner_grants_give(&runner->grants, container->held);

    container->held = 0;
    container->grant = 0;
    container->stop = 0;
    container->claimed = 0;
    container->proven = 0;
    container->adopted = 0;
    container->paused = 0;
    container->overdue = 0;
}


void
runner_container_clean(runner_container_t *container)
{
    int              lost;
    runner_t        *runner;
    runner_conn_t   *conn;

    runner = container->runner;

    if (container->state == RUNNER_CONTAINER_CLEANING) {
        return;
    }

    /* the last messages may tell what it has taken */

    if (container->control.handler != NULL) {
        runner_control_drain(container);
    }

    /* one that never did anything for anybody may never do */

    lost = !container->proven
           && (container->state == RUNNER_CONTAINER_READY
               || container->state == RUNNER_CONTAINER_OPENING);

    runner_container_release(container);

    container->state = RUNNER_CONTAINER_CLEANING;
    container->end = 0;

    if (container->pooled) {
        runner_pool_lost(container);
    }

    if (container->sandbox != NULL) {
        runner_sandbox_lost(container->sandbox, lost);

    } else {
        container->destroy = 1;
    }

    /* handed over, and nobody is left who could take it */

    while ((conn = container->sent.first) != NULL) {
        runner_queue_remove(conn);
        runner_conn_refuse(conn, "gone", "The sandbox was deleted before the "
                           "request was taken.", 0);
    }

    container->attempts = 0;
    container->job.run = runner_container_clean_job;
    container->job.done = runner_container_cleaned;

    if (container->destroy) {
        container->slot.record.deleted = 1;
    }

    runner_jobs_add(&runner->jobs, &container->job);

    runner_sandbox_grant(runner);
}


static void
runner_container_clean_job(runner_job_t *job)
{
    runner_container_t  *container;

    container = job->data;

    job->rc = container->slot.record.deleted
              ? runner_slot_destroy(&container->runner->host,
                                    &container->slot, &job->err)
              : runner_slot_stop(&container->runner->host, &container->slot,
                                 &job->err);
}


static void
runner_container_cleaned(runner_job_t *job)
{
    int                  busy;
    runner_t            *runner;
    runner_container_t  *container;

    container = job->data;
    runner = container->runner;

    if (job->rc == -1) {
        runner_log(RUNNER_LOG_ERROR, "slot %u: %s",
                   container->slot.record.number, job->err.text);

        /* a disk that is still in use must never be mounted a second time */

        busy = strcmp(job->err.code, "disk_busy") == 0
               && !container->slot.record.deleted;

        if ((++container->attempts < RUNNER_CLEAN_ATTEMPTS || busy)
            && runner_timer_start(&runner->loop, &container->timer,
                                  RUNNER_CLEAN_PAUSE) == 0)
        {
            return;
        }
    }

    if (container->slot.record.deleted) {
        runner_container_free(container, job->rc == -1);
        return;
    }

    if (container->destroy || container->sandbox == NULL) {
        container->slot.record.deleted = 1;
        container->attempts = 0;
        runner_jobs_add(&runner->jobs, &container->job);
        return;
    }

    container->state = RUNNER_CONTAINER_STOPPED;
    runner_sandbox_stopped(container->sandbox);
}


void
runner_container_history(runner_container_t *container)
{
    container->state = RUNNER_CONTAINER_CLEANING;
    container->job.run = runner_container_history_job;
    container->job.done = runner_container_history_done;

    runner_jobs_add(&container->runner->jobs, &container->job);
}


static void
runner_container_history_job(runner_job_t *job)
{
    runner_container_t  *container;

    container = job->data;
    job->rc = runner_slot_history_stopped(&container->runner->host,
                                          &container->slot);
}


static void
runner_container_history_done(runner_job_t *job)
{
    runner_sandbox_t    *sandbox;
    runner_container_t  *container;

    container = job->data;
    sandbox = container->sandbox;
    container->state = RUNNER_CONTAINER_STOPPED;

    if (sandbox != NULL && !container->destroy
        && container->runner->mode == RUNNER_RUNNING)
    {
        sandbox->history = job->rc;
        runner_sandbox_renew(sandbox);
        return;
    }

    /* nobody waits for it any more */

    if (job->rc != -1) {
        close(job->rc);
    }

    if (sandbox == NULL || container->destroy) {
        runner_container_clean(container);
        return;
    }

    runner_sandbox_stopped(sandbox);
}


static void
runner_container_free(runner_container_t *container, int failed)
{
    runner_t  *runner;

    runner = container->runner;

    runner_operation_delete_done(container, failed);
    runner_timer_stop(&runner->loop, &container->timer);

    *container->prev = container->next;

    if (container->next != NULL) {
        container->next->prev = container->prev;
    }

    runner_loop_free_later(&runner->loop, &container->later);

    runner_pool_fill(runner);
}


runner_container_t *
runner_container_dying(runner_t *runner, const uint8_t *session)
{
    runner_container_t  *container;

    for (container = runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->sandbox == NULL && !container->pooled
            && memcmp(container->slot.record.session, session,
                      SANDBOX_WIRE_SESSION_SIZE) == 0)
        {
            return container;
        }
    }

    return NULL;
}
