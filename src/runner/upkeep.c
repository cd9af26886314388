/*
 * The housekeeping of the runner.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bound.h"
#include "child.h"
#include "conn.h"
#include "container.h"
#include "drain.h"
#include "file.h"
#include "idmap.h"
#include "notify.h"
#include "pool.h"
#include "room.h"
#include "sandbox.h"
#include "upkeep.h"


#define RUNNER_TICK      1000                    /* ms; the watchdog's, too */
#define RUNNER_END_WAIT  60000                   /* ms for all to end */


typedef struct {
    runner_job_t     job;
    runner_t        *runner;
    size_t           n;
    runner_slot_t    slots[];                    /* copies: pids only */
} runner_sync_t;


static void runner_found_slot(runner_t *runner, uint32_t number);
static void runner_found_damaged(runner_t *runner, uint32_t number);
static void runner_found_sandbox(runner_t *runner,
    const runner_record_t *record);
static void runner_found_rest(runner_t *runner, int dir, const char *prefix);
static void runner_found_clear(runner_t *runner, uint32_t number);
static runner_container_t *runner_found_known(runner_t *runner,
    uint32_t number);
static int runner_list(int dir, const char *prefix, uint32_t **numbers,
    size_t *n);
static void runner_upkeep_tick(void *data);
static void runner_upkeep_sync(runner_t *runner);
static void runner_upkeep_sync_job(runner_job_t *job);
static void runner_upkeep_synced(runner_job_t *job);
static void runner_end_waiting(runner_t *runner, runner_queue_t *queue);
static int runner_end_pending(runner_t *runner);


void
runner_upkeep_found(runner_t *runner)
{
    int        dir;
    size_t     i, n;
    uint32_t  *numbers;

    /* those of living containers are taken again below */

    runner_ids_give(runner->host.owner, 0);

    if (runner_list(runner->host.slots, "", &numbers, &n) == -1) {
        runner_log(RUNNER_LOG_ERROR, "can't read \"%s/slots\": %s",
                   runner->host.state, strerror(errno));
        return;
    }

    for (i = 0; i < n; i++) {
        if (numbers[i] > runner->number) {
            runner->number = numbers[i];
        }
    }

    for (i = 0; i < n; i++) {
        runner_found_slot(runner, numbers[i]);
    }

    free(numbers);

    /* containers whose directories somebody removed */

    dir = openat(runner->host.cgroups.root, runner->host.name,
                 O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir != -1) {
        runner_found_rest(runner, dir, "");
        close(dir);
    }

    runner_found_rest(runner, runner->host.sockets, "");

    dir = open(runner->host.runtime.state, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir != -1) {
        runner_found_rest(runner, dir, runner->host.runtime.prefix);
        close(dir);
    }
}


/* the numbers of entries "PREFIXnumber"; the caller frees them */

static int
runner_list(int dir, const char *prefix, uint32_t **numbers, size_t *n)
{
    int             fd;
    DIR            *d;
    size_t          length, size;
    uint32_t       *list;
    uint64_t        number;
    struct dirent  *entry;

    *numbers = NULL;
    *n = 0;
    size = 0;
    length = strlen(prefix);

    fd = openat(dir, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    d = fd == -1 ? NULL : fdopendir(fd);

    if (d == NULL) {
        return -1;
    }

    while ((entry = readdir(d)) != NULL) {

        if (strncmp(entry->d_name, prefix, length) != 0
            || runner_number(entry->d_name + length, UINT32_MAX, &number)
               == -1)
        {
            continue;
        }

        if (*n == size) {
            size = size ? 2 * size : 64;
            list = realloc(*numbers, size * sizeof(uint32_t));

            if (list == NULL) {
                break;
            }

            *numbers = list;
        }

        (*numbers)[(*n)++] = number;
    }

    closedir(d);

    return 0;
}


static void
runner_found_slot(runner_t *runner, uint32_t number)
{
    char             path[32], text[RUNNER_RECORD_SIZE];
    runner_record_t  record;

    snprintf(path, sizeof(path), "%u/record", number);

    if (runner_file_read(runner->host.slots, path, text, sizeof(text)) == -1) {

        if (errno == ENOENT) {

            /* nobody ever used it */

            runner_found_clear(runner, number);
            return;
        }

        runner_found_damaged(runner, number);
        return;
    }

    if (runner_record_read(&record, text) == -1 || record.number != number) {
        runner_found_damaged(runner, number);
        return;
    }

    if (record.deleted) {
        runner_log(RUNNER_LOG_NOTICE, "finishing the deletion of sandbox %s",
                   record.id);
        runner_found_clear(runner, number);
        return;
    }

    if (runner_sandbox_find(runner, record.session) != NULL) {
        runner_log(RUNNER_LOG_ERROR, "slots say twice that they are of one "
                   "session: %u stays aside", number);
        runner_found_damaged(runner, number);
        return;
    }

    runner_found_sandbox(runner, &record);
}


/* a user's files are never removed because we can't read a record */

static void
runner_found_damaged(runner_t *runner, uint32_t number)
{
    char            name[16], aside[32];
    runner_slot_t   slot;
    runner_error_t  err;

    runner_slot_init(&slot);
    slot.record.number = number;
    runner_error_init(&err);

    (void) runner_slot_clean(&runner->host, &slot, &err);

    snprintf(name, sizeof(name), "%u", number);
    snprintf(aside, sizeof(aside), "%u.damaged", number);

    (void) renameat(runner->host.slots, name, runner->host.slots, aside);

    runner_log(RUNNER_LOG_ERROR, "the record of slot %u can't be read; its "
               "disk is kept in \"%s/slots/%s\".  Remedy: remove it, or mount "
               "disk.img and copy the files", number, runner->host.state,
               aside);
}


static void
runner_found_sandbox(runner_t *runner, const runner_record_t *record)
{
    int                  running;
    runner_error_t       err;
    runner_sandbox_t    *sandbox;
    runner_container_t  *container;

    container = runner_container_found(runner, record);
    sandbox = container ? runner_sandbox_found(container) : NULL;

    if (sandbox == NULL) {
        runner_log(RUNNER_LOG_ERROR, "no memory for sandbox %s", record->id);
        return;
    }

    running = record->pid != 0 || record->ids != 0;

    if (running && runner_container_adopt(container) == 0) {
        runner_error_init(&err);

        if (runner_ids_keep(runner->host.owner, record->ids, &err) == -1) {
            runner_log(RUNNER_LOG_WARN, "sandbox %s: %s", record->id,
                       err.text);
        }

        runner_log(RUNNER_LOG_NOTICE, "took over sandbox %s", record->id);
        runner_session_live(sandbox, 1);
        sandbox->dirty = 1;
        return;
    }

    if (running) {
        runner_log(RUNNER_LOG_NOTICE, "sandbox %s ended without us; its files "
                   "are kept", record->id);

        /* somebody else may have the range by now */

        container->slot.record.ids = 0;
        runner_container_clean(container);
    }
}


static void
runner_found_clear(runner_t *runner, uint32_t number)
{
    runner_record_t      record;
    runner_container_t  *container;

    memset(&record, 0, sizeof(record));
    record.number = number;

    container = runner_container_found(runner, &record);

    if (container != NULL) {
        runner_log(RUNNER_LOG_NOTICE, "clearing slot %u", number);
        runner_container_clean(container);
    }
}


static void
runner_found_rest(runner_t *runner, int dir, const char *prefix)
{
    size_t               i, n;
    uint32_t            *numbers;
    runner_container_t  *container;

    if (runner_list(dir, prefix, &numbers, &n) == -1) {
        return;
    }

    for (i = 0; i < n; i++) {
        container = runner_found_known(runner, numbers[i]);

        if (container == NULL) {
            runner_found_clear(runner, numbers[i]);

            if (numbers[i] > runner->number) {
                runner->number = numbers[i];
            }

        } else if (container->state == RUNNER_CONTAINER_STOPPED) {

            /* its record does not know of it: it may have the disk in use */

            runner_log(RUNNER_LOG_NOTICE, "sandbox %s was about to wake or to "
                       "stop when the runner before us ended",
                       container->slot.record.id);
            runner_container_clean(container);
        }
    }

    free(numbers);
}


static runner_container_t *
runner_found_known(runner_t *runner, uint32_t number)
{
    runner_container_t  *container;

    for (container = runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->slot.record.number == number) {
            return container;
        }
    }

    return NULL;
}


void
runner_upkeep_start(runner_t *runner)
{
    runner->synced = runner->loop.now;
    runner->tick.handler = runner_upkeep_tick;
    runner->tick.data = runner;

    (void) runner_timer_start(&runner->loop, &runner->tick, RUNNER_TICK);
}


static void
runner_upkeep_tick(void *data)
{
    runner_t  *runner;

    runner = data;

    (void) runner_timer_start(&runner->loop, &runner->tick, RUNNER_TICK);

    runner_notify_alive();
    runner_child_reap();

    if (runner->mode != RUNNER_RUNNING) {
        return;
    }

    runner_bound_tick(runner);
    runner_room_tick(runner);
    runner_session_tick(runner);
    runner_session_idle(runner);
    runner_session_expire(runner);
    runner_drain_tick(runner);
    runner_pool_fill(runner);

    if (runner->loop.now - runner->synced >= RUNNER_SYNC_INTERVAL) {
        runner->synced = runner->loop.now;
        runner_upkeep_sync(runner);
    }
}


/* what was written is on the disk 30 s later, whatever happens to the host */

static void
runner_upkeep_sync(runner_t *runner)
{
    size_t             n;
    runner_sync_t     *sync;
    runner_sandbox_t  *sandbox;

    if (runner->syncing) {
        return;
    }

    n = 0;

    for (sandbox = runner->used_first;
         sandbox != NULL;
         sandbox = sandbox->used_next)
    {
        n += sandbox->dirty;
    }

    if (n == 0) {
        return;
    }

    sync = calloc(1, sizeof(*sync) + n * sizeof(sync->slots[0]));
    if (sync == NULL) {
        return;
    }

    for (sandbox = runner->used_first;
         sandbox != NULL;
         sandbox = sandbox->used_next)
    {
        if (!sandbox->dirty
            || sandbox->container->state != RUNNER_CONTAINER_READY)
        {
            continue;
        }

        sandbox->dirty = runner_session_busy(sandbox);
        sync->slots[sync->n++].record = sandbox->container->slot.record;
        (void) runner_slot_save(&runner->host, &sandbox->container->slot, 0);
    }

    sync->runner = runner;
    sync->job.data = sync;
    sync->job.run = runner_upkeep_sync_job;
    sync->job.done = runner_upkeep_synced;

    runner->syncing = 1;
    runner_jobs_add(&runner->jobs, &sync->job);
}


static void
runner_upkeep_sync_job(runner_job_t *job)
{
    size_t          i;
    runner_sync_t  *sync;

    sync = job->data;

    for (i = 0; i < sync->n; i++) {
        runner_slot_sync(&sync->slots[i]);
    }

    (void) syncfs(sync->runner->host.slots);
}


static void
runner_upkeep_synced(runner_job_t *job)
{
    runner_sync_t  *sync;

    sync = job->data;
    sync->runner->syncing = 0;
    free(sync);
}


int
runner_upkeep_end(runner_t *runner, runner_mode_e mode)
{
    int                  rc;
    unsigned             i;
    uint64_t             deadline;
    runner_sandbox_t    *sandbox, *next;
    runner_container_t  *container;

    runner->mode = mode;
    runner_server_close(runner);

    for (i = 0; i < RUNNER_BUCKETS; i++) {
        for (sandbox = runner->sessions[i]; sandbox != NULL; sandbox = next) {
            next = sandbox->hash_next;

            runner_end_waiting(runner, &sandbox->returned);
            runner_end_waiting(runner, &sandbox->waiting);
            runner_end_waiting(runner, &sandbox->resets);

            container = sandbox->container;

            if (mode == RUNNER_DESTROY
                || (mode == RUNNER_LEAVE && sandbox->created))
            {
                (void) runner_sandbox_delete(sandbox);

            } else if (mode == RUNNER_STOP) {
                runner_container_end(container, SANDBOX_OUTCOME_LOST, 0);
            }
        }
    }

    runner_end_waiting(runner, &runner->drains);
    runner_pool_drop(runner);

    rc = 0;
    deadline = runner_now_ms() + RUNNER_END_WAIT;

    while (runner_end_pending(runner)) {
        if (runner_now_ms() >= deadline) {
            runner_log(RUNNER_LOG_ERROR, "not everything ended in time; the "
                       "next start clears it");
            rc = -1;
            break;
        }

        runner_loop_turn(&runner->loop);
    }

    if (mode != RUNNER_LEAVE) {
        return rc;
    }

    for (container = runner->containers;
         container != NULL;
         container = container->next)
    {
        /* one that a job still has is the job's */

        if (container->sandbox != NULL
            && container->state != RUNNER_CONTAINER_STARTING
            && container->state != RUNNER_CONTAINER_CLEANING)
        {
            (void) runner_slot_save(&runner->host, &container->slot, 0);
        }
    }

    (void) syncfs(runner->host.slots);

    return rc;
}


static void
runner_end_waiting(runner_t *runner, runner_queue_t *queue)
{
    runner_conn_t  *conn;

    while ((conn = queue->first) != NULL) {
        runner_queue_remove(conn);

        if (runner->options->listen_fd != -1) {

            /* the socket stays: a second try waits there for the next one */

            runner_conn_close(conn);
            continue;
        }

        runner_conn_refuse(conn, "runner_stopping", "The runner stops.", 2);
    }
}


static int
runner_end_pending(runner_t *runner)
{
    runner_container_t  *container;

    if (runner->jobs.pending) {
        return 1;
    }

    for (container = runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->state == RUNNER_CONTAINER_STARTING
            || container->state == RUNNER_CONTAINER_ENDING
            || container->state == RUNNER_CONTAINER_CLEANING
            || (runner->mode != RUNNER_LEAVE
                && container->state != RUNNER_CONTAINER_STOPPED))
        {
            return 1;
        }
    }

    return 0;
}
