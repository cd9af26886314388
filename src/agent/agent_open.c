/*
 * Whether clients are being served, and for longer than a moment: the runner,
 * which is not on their way, stops no sandbox below them.  What takes less is
 * never told, so that the short ones cost nothing.
 */

#include "agent.h"

#include <stddef.h>


#define AGENT_OPEN_MOMENT  200           /* ms */


static void agent_open_timer(agent_timer_t *timer);


static agent_timer_t  agent_open_clock = { .handler = agent_open_timer };
static unsigned       agent_open_told;


unsigned
agent_open(void)
{
    return agent_open_told;
}


void
agent_open_begin(void)
{
    if (!agent.tcp && agent_open_told == 0 && !agent_open_clock.active) {
        agent_timer_set(&agent_open_clock, AGENT_OPEN_MOMENT);
    }
}


void
agent_open_end(void)
{
    if (agent_open_told) {
        agent_open_timer(&agent_open_clock);

    } else if (agent.connections == 0) {
        agent_timer_clear(&agent_open_clock);
    }
}


/* counts them, and looks again as long as that may come to be more than 0 */

static void
agent_open_timer(agent_timer_t *timer)
{
    unsigned             n;
    uint64_t             now;
    agent_connection_t  *c;

    n = 0;
    now = agent_now_us();

    for (c = agent_connection_first(); c != NULL; c = c->next) {
        n += c->state != AGENT_CONNECTION_LINGER
             && now - c->accepted >= AGENT_OPEN_MOMENT * 1000;
    }

    if (n == 0 && agent.connections) {
        agent_timer_set(&agent_open_clock, AGENT_OPEN_MOMENT);
    }

    if (n != agent_open_told) {
        agent_open_told = n;
        agent_control_state();
    }
}
