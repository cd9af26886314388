/*
 * The event loop: timers fire in their order, what was removed gets no call.
 */

/* link: src/runner/loop.c src/runner/file.c src/runner/jobs.c src/runner/error.c -lpthread */
/* flags: -U_GNU_SOURCE */

#include <stdlib.h>
#include <unistd.h>
#include <sys/epoll.h>

#include "test.h"
#include "jobs.h"
#include "loop.h"


#define TIMERS  3000


static runner_loop_t   loop;
static runner_timer_t  timers[TIMERS];
static unsigned        fired;
static unsigned        disorder;
static uint64_t        last;
static runner_event_t  events[2];
static unsigned        calls;
static unsigned        done;


static void fire(void *data);
static void handle(runner_event_t *event, uint32_t what);
static void many_timers(void);
static void removed(void);
static void jobs(void);


int
main(void)
{
    if (runner_loop_init(&loop) == -1) {
        return 1;
    }

    many_timers();
    removed();
    jobs();

    runner_loop_free(&loop);

    return test_done();
}


static void
fire(void *data)
{
    runner_timer_t  *timer = data;

    fired++;
    disorder += timer->when < last;
    last = timer->when;
}


static void
many_timers(void)
{
    unsigned  i, stopped;

    srand(7);
    stopped = 0;

    for (i = 0; i < TIMERS; i++) {
        timers[i].handler = fire;
        timers[i].data = &timers[i];
        (void) runner_timer_start(&loop, &timers[i], rand() % 40);
    }

    for (i = 0; i < TIMERS; i += 3) {
        runner_timer_stop(&loop, &timers[i]);
        runner_timer_stop(&loop, &timers[i]);
        stopped++;
    }

    /* a second start moves it */

    (void) runner_timer_start(&loop, &timers[1], 45);

    while (loop.ntimers) {
        runner_loop_turn(&loop);
    }

    is_number(fired, TIMERS - stopped, "each that was not stopped, once");
    is_number(disorder, 0, "in the order of their times");
    ok(last == timers[1].when, "the one that was moved comes last");
}


static void
handle(runner_event_t *event, uint32_t what)
{
    calls++;
    runner_event_remove(&loop, &events[0]);
    runner_event_remove(&loop, &events[1]);
}


static void
removed(void)
{
    int       i, fds[2];
    unsigned  n;

    if (pipe(fds) == -1) {
        return;
    }

    (void) !write(fds[1], "x", 1);

    for (i = 0; i < 2; i++) {
        events[i].fd = dup(fds[0]);
        events[i].handler = handle;
        (void) runner_event_add(&loop, &events[i], EPOLLIN);
    }

    timers[0].handler = fire;
    (void) runner_timer_start(&loop, &timers[0], 20);

    for (n = 0; n < 50 && timers[0].index; n++) {
        runner_loop_turn(&loop);
    }

    is_number(calls, 1, "an event that another one removed gets no call");

    for (i = 0; i < 2; i++) {
        close(events[i].fd);
        close(fds[i]);
    }
}


static void
run(runner_job_t *job)
{
    job->rc = *(int *) job->data * 2;
}


static void
job_done(runner_job_t *job)
{
    done += job->rc == *(int *) job->data * 2;
}


static void
jobs(void)
{
    int            i, numbers[100];
    runner_job_t   list[100];
    runner_jobs_t  pool;

    if (runner_jobs_init(&pool, &loop) == -1) {
        ok(0, "threads can be started");
        return;
    }

    for (i = 0; i < 100; i++) {
        numbers[i] = i;
        list[i].run = run;
        list[i].done = job_done;
        list[i].data = &numbers[i];
        runner_jobs_add(&pool, &list[i]);
    }

    while (pool.pending) {
        runner_loop_turn(&loop);
    }

    is_number(done, 100, "each job is done, and the loop is told");

    runner_jobs_free(&pool);
}
