/*
 * The event loop: descriptors, timers, clocks.  Knows nothing of sandboxes.
 */

#ifndef AGENT_EVENT_H
#define AGENT_EVENT_H

#include <stdint.h>


typedef struct agent_watch_s  agent_watch_t;
typedef struct agent_timer_s  agent_timer_t;

struct agent_watch_s {
    int               fd;                /* -1: none */
    uint32_t          events;
    unsigned          active:1;          /* known to epoll */
    void            (*handler)(agent_watch_t *watch, uint32_t events);
    void             *data;
};

struct agent_timer_s {
    uint64_t          when;              /* ms, monotonic */
    agent_timer_t    *prev;
    agent_timer_t    *next;
    unsigned          active:1;
    void            (*handler)(agent_timer_t *timer);
    void             *data;
};


int agent_event_init(void);

/* Waits for events or the next timer, and handles them once. */
void agent_event_round(void);

uint64_t agent_now_ms(void);
uint64_t agent_now_us(void);

/* Watches for EPOLL* events; 0 only for hang-up and error.  -1: can't. */
int agent_watch_set(agent_watch_t *watch, uint32_t events);

/* Forgets it; an event of this round that has not been handled is dropped. */
void agent_watch_clear(agent_watch_t *watch);
void agent_watch_close(agent_watch_t *watch);

/* Calls the handler once, `delay` milliseconds from now. */
void agent_timer_set(agent_timer_t *timer, uint64_t delay);
void agent_timer_clear(agent_timer_t *timer);


#endif /* AGENT_EVENT_H */
