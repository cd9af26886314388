/*
 * The table of policies: on the disk for the next start, and what changes
 * when another one comes.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "control.h"
#include "egress_core.h"
#include "file.h"
#include "sandbox.h"
#include "sandbox_sha256.h"


#define RUNNER_EGRESS_FILE  "egress"     /* in the state directory */


static uint8_t *runner_egress_file(const char *state, size_t *size);
static void runner_egress_keep_job(runner_job_t *job);
static void runner_egress_kept(runner_job_t *job);


void
runner_egress_load(runner_egress_t *egress)
{
    size_t    size;
    uint8_t  *p, digest[SANDBOX_WIRE_DIGEST_SIZE];

    p = runner_egress_file(egress->runner->host.state, &size);

    if (p == NULL) {
        return;
    }

    if (sandbox_egress_check(p, size) != SANDBOX_OK) {
        runner_log(RUNNER_LOG_WARN, "the egress policies in \"%s\" can't be "
                   "read; nginx sends them again",
                   egress->runner->host.state);
        free(p);
        return;
    }

    sandbox_sha256(p, size, digest);
    runner_egress_take(egress, p, size, digest);
}


/* NULL: there is none, or it can't be one */

static uint8_t *
runner_egress_file(const char *state, size_t *size)
{
    int          dir, fd;
    uint8_t     *p;
    ssize_t      n;
    struct stat  st;

    dir = open(state, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    if (dir == -1) {
        return NULL;
    }

    fd = openat(dir, RUNNER_EGRESS_FILE, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);
    close(dir);

    if (fd == -1) {
        return NULL;
    }

    p = NULL;

    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
        && st.st_size <= SANDBOX_WIRE_MAX_TABLE)
    {
        p = malloc(st.st_size + 1);
    }

    n = p ? pread(fd, p, st.st_size, 0) : -1;
    close(fd);

    if (p == NULL || n != st.st_size) {
        free(p);
        return NULL;
    }

    *size = n;

    return p;
}


void
runner_egress_take(runner_egress_t *egress, uint8_t *p, size_t size,
    const uint8_t *digest)
{
    unsigned             i;
    runner_t            *runner;
    runner_sandbox_t    *sandbox, *next;
    runner_container_t  *container;

    runner = egress->runner;

    free(egress->table);
    egress->table = p;
    egress->table_size = size;
    memcpy(egress->digest, digest, sizeof(egress->digest));

    for (i = 0; i < egress->nca; i++) {
        close(egress->ca_fd[i]);
    }

    egress->nca = 0;
    egress->missed = 0;
    runner_egress_send_table(egress);

    /* its index, or its certificates, may be others now */

    for (container = runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->egress_told) {
            container->egress_tell = 1;
            runner_control_flush(container);
        }
    }

    runner_timer_stop(&runner->loop, &egress->held);

    for (sandbox = runner->used_first; sandbox != NULL; sandbox = next) {
        next = sandbox->used_next;

        if (sandbox->waiting.n && sandbox->container != NULL) {
            (void) runner_sandbox_flush(sandbox);
        }
    }
}


/*
 * If the host goes down before it is written nginx notices by the digest, so
 * nobody waits for it.
 */

void
runner_egress_keep(runner_egress_t *egress)
{
    if (egress->writing != NULL) {
        egress->again = 1;
        return;
    }

    egress->writing = malloc(egress->table_size + 1);

    if (egress->writing == NULL) {
        return;
    }

    memcpy(egress->writing, egress->table, egress->table_size);
    egress->writing_size = egress->table_size;
    egress->again = 0;

    egress->job.data = egress;
    egress->job.run = runner_egress_keep_job;
    egress->job.done = runner_egress_kept;

    runner_jobs_add(&egress->runner->jobs, &egress->job);
}


static void
runner_egress_keep_job(runner_job_t *job)
{
    int               dir;
    runner_egress_t  *egress;

    egress = job->data;
    job->rc = -1;

    dir = open(egress->runner->host.state, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir != -1) {
        job->rc = runner_file_replace(dir, RUNNER_EGRESS_FILE,
                                      egress->writing, egress->writing_size,
                                      1);
        if (job->rc == -1) {
            runner_log(RUNNER_LOG_ERROR, "the egress policies can't be kept "
                       "in \"%s\": %s.  Remedy: make room there",
                       egress->runner->host.state, strerror(errno));
        }

        close(dir);
    }
}


static void
runner_egress_kept(runner_job_t *job)
{
    runner_egress_t  *egress;

    egress = job->data;

    free(egress->writing);
    egress->writing = NULL;

    if (egress->again) {
        runner_egress_keep(egress);
    }
}
