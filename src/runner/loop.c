/*
 * The event loop: epoll and a heap of timers.  Knows no sandboxes.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/epoll.h>

#include "file.h"
#include "loop.h"


#define RUNNER_LOOP_EVENTS  64
#define RUNNER_LOOP_TIMERS  1024


static void runner_timer_up(runner_loop_t *loop, size_t i);
static void runner_timer_down(runner_loop_t *loop, size_t i);
static void runner_timer_put(runner_loop_t *loop, size_t i,
    runner_timer_t *timer);


int
runner_loop_init(runner_loop_t *loop)
{
    loop->done = 0;
    loop->ntimers = 0;
    loop->size = RUNNER_LOOP_TIMERS;
    loop->later = NULL;
    loop->now = runner_now_ms();

    loop->timers = calloc(loop->size + 1, sizeof(runner_timer_t *));
    if (loop->timers == NULL) {
        return -1;
    }

    loop->epoll = epoll_create1(EPOLL_CLOEXEC);

    return loop->epoll == -1 ? -1 : 0;
}


void
runner_loop_free(runner_loop_t *loop)
{
    close(loop->epoll);
    free(loop->timers);
}


int
runner_event_add(runner_loop_t *loop, runner_event_t *event, uint32_t events)
{
    struct epoll_event  e;

    e.events = events;
    e.data.ptr = event;

    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, event->fd, &e);
}


int
runner_event_change(runner_loop_t *loop, runner_event_t *event,
    uint32_t events)
{
    struct epoll_event  e;

    e.events = events;
    e.data.ptr = event;

    return epoll_ctl(loop->epoll, EPOLL_CTL_MOD, event->fd, &e);
}


void
runner_event_remove(runner_loop_t *loop, runner_event_t *event)
{
    /*
     * The description may live on elsewhere after a hand-over; only DEL makes
     * sure that its events do not come back to us.
     */

    if (event->handler != NULL) {
        (void) epoll_ctl(loop->epoll, EPOLL_CTL_DEL, event->fd, NULL);
        event->handler = NULL;
    }
}


int
runner_timer_start(runner_loop_t *loop, runner_timer_t *timer, uint64_t ms)
{
    size_t            size;
    runner_timer_t  **timers;

    runner_timer_stop(loop, timer);

    if (loop->ntimers == loop->size) {
        size = 2 * loop->size;
        timers = realloc(loop->timers, (size + 1) * sizeof(runner_timer_t *));

        if (timers == NULL) {
            return -1;
        }

        loop->timers = timers;
        loop->size = size;
    }

    timer->when = loop->now + ms;

    runner_timer_put(loop, ++loop->ntimers, timer);
    runner_timer_up(loop, loop->ntimers);

    return 0;
}


void
runner_timer_stop(runner_loop_t *loop, runner_timer_t *timer)
{
    size_t           i;
    runner_timer_t  *last;

    i = timer->index;

    if (i == 0) {
        return;
    }

    timer->index = 0;
    last = loop->timers[loop->ntimers--];

    if (last != timer) {
        runner_timer_put(loop, i, last);
        runner_timer_up(loop, i);
        runner_timer_down(loop, last->index);
    }
}


static void
runner_timer_put(runner_loop_t *loop, size_t i, runner_timer_t *timer)
{
    loop->timers[i] = timer;
    timer->index = i;
}


static void
runner_timer_up(runner_loop_t *loop, size_t i)
{
    runner_timer_t  *timer;

    timer = loop->timers[i];

    while (i > 1 && loop->timers[i / 2]->when > timer->when) {
        runner_timer_put(loop, i, loop->timers[i / 2]);
        i /= 2;
    }

    runner_timer_put(loop, i, timer);
}


static void
runner_timer_down(runner_loop_t *loop, size_t i)
{
    size_t           child;
    runner_timer_t  *timer;

    timer = loop->timers[i];

    while (2 * i <= loop->ntimers) {
        child = 2 * i;

        if (child < loop->ntimers
            && loop->timers[child + 1]->when < loop->timers[child]->when)
        {
            child++;
        }

        if (loop->timers[child]->when >= timer->when) {
            break;
        }

        runner_timer_put(loop, i, loop->timers[child]);
        i = child;
    }

    runner_timer_put(loop, i, timer);
}


void
runner_loop_free_later(runner_loop_t *loop, runner_later_t *later)
{
    later->next = loop->later;
    loop->later = later;
}


void
runner_loop_turn(runner_loop_t *loop)
{
    int                  i, n, timeout;
    uint64_t             when;
    runner_event_t      *event;
    runner_later_t      *later;
    runner_timer_t      *timer;
    struct epoll_event   events[RUNNER_LOOP_EVENTS];

    timeout = -1;

    if (loop->ntimers) {
        when = loop->timers[1]->when;
        loop->now = runner_now_ms();
        timeout = when <= loop->now ? 0 : (int) (when - loop->now);
    }

    n = epoll_wait(loop->epoll, events, RUNNER_LOOP_EVENTS, timeout);

    loop->now = runner_now_ms();

    for (i = 0; i < n; i++) {
        event = events[i].data.ptr;

        if (event->handler != NULL) {
            event->handler(event, events[i].events);
        }
    }

    while (loop->ntimers && loop->timers[1]->when <= loop->now) {
        timer = loop->timers[1];
        runner_timer_stop(loop, timer);
        timer->handler(timer->data);
    }

    while (loop->later != NULL) {
        later = loop->later;
        loop->later = later->next;
        free(later);
    }
}
