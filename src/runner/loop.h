/*
 * The event loop: descriptors, timers, work done later.
 */

#ifndef RUNNER_LOOP_H
#define RUNNER_LOOP_H

#include <stddef.h>
#include <stdint.h>


typedef struct runner_event_s  runner_event_t;
typedef struct runner_timer_s  runner_timer_t;
typedef struct runner_later_s  runner_later_t;


/*
 * One descriptor.  The handler is NULL while it is not in the loop; an event
 * that was removed gets no more calls, also of the same turn.
 */

struct runner_event_s {
    void      (*handler)(runner_event_t *event, uint32_t events);
    void       *data;
    int         fd;
};


/* index is 0 while it does not run; start with a zeroed structure */

struct runner_timer_s {
    uint64_t    when;                            /* ms, monotonic */
    size_t      index;
    void      (*handler)(void *data);
    void       *data;
};


/* memory that events of this turn may still point to */

struct runner_later_s {
    runner_later_t  *next;
};


typedef struct {
    int               epoll;
    int               done;
    runner_timer_t  **timers;                    /* a heap, from 1 on */
    size_t            ntimers;
    size_t            size;
    runner_later_t   *later;
    uint64_t          now;                       /* ms, of this turn */
} runner_loop_t;


/* 0, or -1 and errno. */
int runner_loop_init(runner_loop_t *loop);
void runner_loop_free(runner_loop_t *loop);

/* Watches event->fd for EPOLL* events.  0, or -1 and errno. */
int runner_event_add(runner_loop_t *loop, runner_event_t *event,
    uint32_t events);
int runner_event_change(runner_loop_t *loop, runner_event_t *event,
    uint32_t events);

/* Before the descriptor is closed, always; no harm if it is not watched. */
void runner_event_remove(runner_loop_t *loop, runner_event_t *event);

/* (Re)starts a timer.  0, or -1 without memory for it. */
int runner_timer_start(runner_loop_t *loop, runner_timer_t *timer,
    uint64_t ms);
void runner_timer_stop(runner_loop_t *loop, runner_timer_t *timer);

/* free()s after this turn what begins with a runner_later_t. */
void runner_loop_free_later(runner_loop_t *loop, runner_later_t *later);

/* Waits once and calls handlers; returns when they are through. */
void runner_loop_turn(runner_loop_t *loop);


#endif /* RUNNER_LOOP_H */
