/*
 * Threads for work that blocks.  Knows no sandboxes.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <linux/capability.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "file.h"
#include "jobs.h"


#define RUNNER_JOBS_STACK  (256 * 1024)
#define RUNNER_JOBS_LOW    10                    /* more nice than others */


static void *runner_jobs_thread(void *data);
static int runner_jobs_can_nice(void);
static void runner_jobs_ended(runner_event_t *event, uint32_t events);
static void runner_job_append(runner_job_list_t *list, runner_job_t *job);
static runner_job_t *runner_job_take(runner_job_list_t *list);


int
runner_jobs_init(runner_jobs_t *jobs, runner_loop_t *loop)
{
    int              rc;
    size_t           i;
    sigset_t         all, old;
    pthread_attr_t   attr;

    jobs->loop = loop;
    jobs->nthreads = 0;
    jobs->pending = 0;
    jobs->stop = 0;
    jobs->nice = getpriority(PRIO_PROCESS, 0);
    jobs->can_nice = runner_jobs_can_nice();
    jobs->waiting.first = NULL;
    jobs->waiting.last = &jobs->waiting.first;
    jobs->ended.first = NULL;
    jobs->ended.last = &jobs->ended.first;

    pthread_mutex_init(&jobs->lock, NULL);
    pthread_cond_init(&jobs->wake, NULL);

    jobs->event.fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
    jobs->event.handler = runner_jobs_ended;
    jobs->event.data = jobs;

    if (jobs->event.fd == -1
        || runner_event_add(loop, &jobs->event, EPOLLIN) == -1)
    {
        return -1;
    }

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, RUNNER_JOBS_STACK);

    /* signals are the loop's */

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);

    rc = 0;

    for (i = 0; i < sizeof(jobs->threads) / sizeof(jobs->threads[0]); i++) {
        rc = pthread_create(&jobs->threads[i], &attr, runner_jobs_thread,
                            jobs);
        if (rc != 0) {
            break;
        }

        jobs->nthreads++;
    }

    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);

    errno = rc;

    return jobs->nthreads ? 0 : -1;
}


void
runner_jobs_free(runner_jobs_t *jobs)
{
    unsigned  i;

    pthread_mutex_lock(&jobs->lock);
    jobs->stop = 1;
    pthread_cond_broadcast(&jobs->wake);
    pthread_mutex_unlock(&jobs->lock);

    for (i = 0; i < jobs->nthreads; i++) {
        pthread_join(jobs->threads[i], NULL);
    }

    runner_event_remove(jobs->loop, &jobs->event);
    close(jobs->event.fd);
}


void
runner_jobs_add(runner_jobs_t *jobs, runner_job_t *job)
{
    runner_error_init(&job->err);
    job->rc = 0;
    job->begun = 0;
    jobs->pending++;

    pthread_mutex_lock(&jobs->lock);
    runner_job_append(&jobs->waiting, job);
    pthread_cond_signal(&jobs->wake);
    pthread_mutex_unlock(&jobs->lock);
}


uint64_t
runner_jobs_begun(runner_jobs_t *jobs, const runner_job_t *job)
{
    uint64_t  begun;

    pthread_mutex_lock(&jobs->lock);
    begun = job->begun;
    pthread_mutex_unlock(&jobs->lock);

    return begun;
}


static void *
runner_jobs_thread(void *data)
{
    uint64_t        one;
    runner_job_t   *job;
    runner_jobs_t  *jobs;

    jobs = data;
    one = 1;

    /* a working directory of its own, for mounts with relative options */

    (void) unshare(CLONE_FS);

    pthread_mutex_lock(&jobs->lock);

    for ( ;; ) {
        job = runner_job_take(&jobs->waiting);

        if (job == NULL) {
            if (jobs->stop) {
                break;
            }

            pthread_cond_wait(&jobs->wake, &jobs->lock);
            continue;
        }

        job->begun = runner_now_ms();
        pthread_mutex_unlock(&jobs->lock);

        if (job->low && jobs->can_nice) {
            (void) setpriority(PRIO_PROCESS, 0, jobs->nice + RUNNER_JOBS_LOW);
            job->run(job);
            (void) setpriority(PRIO_PROCESS, 0, jobs->nice);

        } else {
            job->run(job);
        }

        pthread_mutex_lock(&jobs->lock);

        runner_job_append(&jobs->ended, job);
        (void) !write(jobs->event.fd, &one, sizeof(one));
    }

    pthread_mutex_unlock(&jobs->lock);

    return NULL;
}


/* a thread has a priority of its own; who can't raise it must not lower it */

static int
runner_jobs_can_nice(void)
{
    struct __user_cap_data_struct    data[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
    struct __user_cap_header_struct  header = { _LINUX_CAPABILITY_VERSION_3,
                                                0 };

    return syscall(SYS_capget, &header, data) == 0
           && (data[0].effective & 1u << CAP_SYS_NICE);
}


void
runner_jobs_raise(const runner_jobs_t *jobs, pid_t pid)
{
    if (jobs->can_nice) {
        (void) setpriority(PRIO_PROCESS, pid, jobs->nice);
    }
}


static void
runner_jobs_ended(runner_event_t *event, uint32_t events)
{
    uint64_t        n;
    runner_job_t   *job;
    runner_jobs_t  *jobs;

    jobs = event->data;

    (void) !read(event->fd, &n, sizeof(n));

    for ( ;; ) {
        pthread_mutex_lock(&jobs->lock);
        job = runner_job_take(&jobs->ended);
        pthread_mutex_unlock(&jobs->lock);

        if (job == NULL) {
            return;
        }

        jobs->pending--;
        job->done(job);
    }
}


static void
runner_job_append(runner_job_list_t *list, runner_job_t *job)
{
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}


static runner_job_t *
runner_job_take(runner_job_list_t *list)
{
    runner_job_t  *job;

    job = list->first;

    if (job != NULL) {
        list->first = job->next;

        if (list->first == NULL) {
            list->last = &list->first;
        }
    }

    return job;
}
