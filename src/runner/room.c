/*
 * The probe that had no room, later.  Knows of sandboxes only that there are
 * some.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"
#include "room.h"


#define RUNNER_ROOM_PAUSE  30000                 /* ms, after a failure */


static void runner_room_job(runner_job_t *job);
static void runner_room_done(runner_job_t *job);


static runner_job_t  runner_room;
static int           runner_room_busy;
static uint64_t      runner_room_next;           /* ms, monotonic */


int
runner_room_wanted(runner_host_t *host, runner_error_t *err)
{
    int             fd, found;
    DIR            *dir;
    struct dirent  *entry;

    fd = openat(host->slots, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = fd == -1 ? NULL : fdopendir(fd);
    found = 0;

    if (dir == NULL) {
        if (fd != -1) {
            close(fd);
        }

        return -1;
    }

    while (!found && (entry = readdir(dir)) != NULL) {
        found = entry->d_name[0] != '.';
    }

    closedir(dir);

    if (!found) {
        return -1;
    }

    runner_log(RUNNER_LOG_ERROR, "%s.  Sandboxes that live go on, none is "
               "made or woken before there is room", err->text);

    runner_error_init(err);
    host->unproven = 1;

    return 0;
}


int
runner_room_denied(runner_host_t *host, runner_error_t *err)
{
    if (!__atomic_load_n(&host->unproven, __ATOMIC_RELAXED)) {
        return 0;
    }

    return runner_error(err, "disk_full", 0, "there was no room below \"%s\" "
                        "for the probe of this host.  Remedy: make some",
                        host->state);
}


void
runner_room_tick(runner_t *runner)
{
    uint64_t  left;

    if (!runner->host.unproven || runner_room_busy
        || runner->loop.now < runner_room_next
        || !runner_host_space(&runner->host, &left))
    {
        return;
    }

    runner_room.data = runner;
    runner_room.run = runner_room_job;
    runner_room.done = runner_room_done;
    runner_error_init(&runner_room.err);
    runner_room_busy = 1;

    runner_jobs_add(&runner->jobs, &runner_room);
}


static void
runner_room_job(runner_job_t *job)
{
    runner_t  *runner;

    runner = job->data;
    job->rc = runner_probe_again(&runner->host, &job->err);
}


static void
runner_room_done(runner_job_t *job)
{
    runner_t  *runner;

    runner = job->data;
    runner_room_busy = 0;

    if (job->rc == -1) {
        runner_room_next = runner->loop.now + RUNNER_ROOM_PAUSE;
        runner_log(RUNNER_LOG_ERROR, "no sandbox is made or woken: %s",
                   job->err.text);
        return;
    }

    __atomic_store_n(&runner->host.unproven, 0, __ATOMIC_RELAXED);
    runner_log(RUNNER_LOG_NOTICE, "there is room again for sandboxes");
}
