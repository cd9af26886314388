/*
 * Work that blocks: done by a few threads, its end told to the event loop.
 */

#ifndef RUNNER_JOBS_H
#define RUNNER_JOBS_H

#include <pthread.h>
#include <sys/types.h>

#include "error.h"
#include "loop.h"


typedef struct runner_job_s  runner_job_t;


/*
 * The owner keeps the job in memory of its own until done() was called.
 * run() is called on a thread, done() later by the loop.
 */

struct runner_job_s {
    void           (*run)(runner_job_t *job);
    void           (*done)(runner_job_t *job);
    void            *data;
    int              low;                /* it may take its time */
    uint64_t         begun;              /* ms, by a thread; under the lock */
    int              rc;                 /* for run() to leave to done() */
    runner_error_t   err;
    runner_job_t    *next;
};


typedef struct {
    runner_job_t    *first;
    runner_job_t   **last;
} runner_job_list_t;


typedef struct {
    runner_loop_t      *loop;
    runner_event_t      event;           /* of an eventfd */
    pthread_mutex_t     lock;
    pthread_cond_t      wake;
    pthread_t           threads[8];
    unsigned            nthreads;
    unsigned            pending;         /* given and not yet done(); loop's */
    int                 stop;
    int                 nice;            /* of the threads */
    int                 can_nice;        /* and back again */
    runner_job_list_t   waiting;
    runner_job_list_t   ended;
} runner_jobs_t;


/* Starts the threads.  0, or -1 and errno. */
int runner_jobs_init(runner_jobs_t *jobs, runner_loop_t *loop);

/* Ends the threads after the work they are at. */
void runner_jobs_free(runner_jobs_t *jobs);

/* The priority of all others, for a process that a low job has started. */
void runner_jobs_raise(const runner_jobs_t *jobs, pid_t pid);

/* From the loop only. */
void runner_jobs_add(runner_jobs_t *jobs, runner_job_t *job);

/* When, in ms; 0: it waits for a thread that has time for it. */
uint64_t runner_jobs_begun(runner_jobs_t *jobs, const runner_job_t *job);


#endif /* RUNNER_JOBS_H */
