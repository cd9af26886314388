/*
 * The event loop: epoll, a list of timers, two clocks.
 * Knows nothing of connections or commands.
 */

#include "agent.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>


#define AGENT_EVENTS       64
#define AGENT_EVENTS_LONG  1000          /* ms, of a round */


static uint64_t agent_event_poll(int timeout);
static void agent_timer_expire(void);
static int agent_timer_next(void);


static int                 agent_epoll = -1;
static int                 agent_pending;
static agent_timer_t      *agent_timers;
static struct epoll_event  agent_events[AGENT_EVENTS];


int
agent_event_init(void)
{
    agent_epoll = epoll_create1(EPOLL_CLOEXEC);

    return agent_epoll == -1 ? -1 : 0;
}


void
agent_event_round(void)
{
    uint64_t  start;

    start = agent_event_poll(agent_timer_next());

    /*
     * A slow disk may have held us up: whoever sent something meanwhile is
     * heard before his time is over.
     */

    if (agent_now_ms() - start > AGENT_EVENTS_LONG) {
        (void) agent_event_poll(0);
    }

    agent_timer_expire();
}


/* Handles what happens within `timeout` ms; when it did. */

static uint64_t
agent_event_poll(int timeout)
{
    int             i, n;
    uint64_t        start;
    agent_watch_t  *watch;

    n = epoll_wait(agent_epoll, agent_events, AGENT_EVENTS, timeout);
    start = agent_now_ms();

    if (n == -1) {
        if (errno != EINTR) {
            agent_log("epoll_wait: error %d", errno);
            _exit(1);
        }

        n = 0;
    }

    agent_pending = n;

    for (i = 0; i < n; i++) {
        watch = agent_events[i].data.ptr;

        /* a handler before this one may have closed it */

        if (watch != NULL) {
            agent_events[i].data.ptr = NULL;
            watch->handler(watch, agent_events[i].events);
        }
    }

    agent_pending = 0;

    return start;
}


uint64_t
agent_now_ms(void)
{
    return agent_now_us() / 1000;
}


uint64_t
agent_now_us(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_MONOTONIC, &t);

    return (uint64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}


int
agent_watch_set(agent_watch_t *watch, uint32_t events)
{
    int                 operation;
    struct epoll_event  e;

    if (watch->active && watch->events == events) {
        return 0;
    }

    operation = watch->active ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    e.events = events;
    e.data.ptr = watch;

    if (epoll_ctl(agent_epoll, operation, watch->fd, &e) == -1) {
        agent_log("epoll_ctl of descriptor %d: error %d", watch->fd, errno);
        return -1;
    }

    watch->active = 1;
    watch->events = events;

    return 0;
}


void
agent_watch_clear(agent_watch_t *watch)
{
    int  i;

    if (!watch->active) {
        return;
    }

    epoll_ctl(agent_epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->active = 0;

    for (i = 0; i < agent_pending; i++) {
        if (agent_events[i].data.ptr == watch) {
            agent_events[i].data.ptr = NULL;
        }
    }
}


void
agent_watch_close(agent_watch_t *watch)
{
    if (watch->fd == -1) {
        return;
    }

    agent_watch_clear(watch);
    close(watch->fd);
    watch->fd = -1;
}


void
agent_timer_set(agent_timer_t *timer, uint64_t delay)
{
    /* never too early, and never within this round, so that a round ends */

    timer->when = (agent_now_us() + 999) / 1000 + (delay ? delay : 1);

    if (timer->active) {
        return;
    }

    timer->active = 1;
    timer->prev = NULL;
    timer->next = agent_timers;

    if (agent_timers != NULL) {
        agent_timers->prev = timer;
    }

    agent_timers = timer;
}


void
agent_timer_clear(agent_timer_t *timer)
{
    if (!timer->active) {
        return;
    }

    timer->active = 0;

    if (timer->prev != NULL) {
        timer->prev->next = timer->next;

    } else {
        agent_timers = timer->next;
    }

    if (timer->next != NULL) {
        timer->next->prev = timer->prev;
    }
}


/* Milliseconds to the first timer, -1 if there is none. */

static int
agent_timer_next(void)
{
    uint64_t        now, first;
    agent_timer_t  *timer;

    if (agent_timers == NULL) {
        return -1;
    }

    first = UINT64_MAX;

    for (timer = agent_timers; timer != NULL; timer = timer->next) {
        if (timer->when < first) {
            first = timer->when;
        }
    }

    now = agent_now_ms();

    if (first <= now) {
        return 0;
    }

    /* the clock is cut to milliseconds: one more is not too early */

    return first - now < 60000 ? (int) (first - now) + 1 : 60000;
}


static void
agent_timer_expire(void)
{
    uint64_t        now;
    agent_timer_t  *timer;

    if (agent_timers == NULL) {
        return;
    }

    now = agent_now_ms();

    /* a handler may clear any other timer: begin again after each */

    for (timer = agent_timers; timer != NULL; ) {
        if (timer->when > now) {
            timer = timer->next;
            continue;
        }

        agent_timer_clear(timer);
        timer->handler(timer);
        timer = agent_timers;
    }
}
