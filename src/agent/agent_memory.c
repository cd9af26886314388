/*
 * What the memory cgroup of the whole sandbox says: processes ended for lack
 * of memory, and the highest use.  Both by descriptors that the runner
 * opened; without them there is nothing to say.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_caps.h"


static uint64_t agent_memory_oom_kills(void);


static int  agent_memory_oom = -1;
static int  agent_memory_peak = -1;
static int  agent_memory_reset = 1;      /* the peak can be set back */


void
agent_memory_init(int oom, int peak)
{
    agent_memory_oom = oom;
    agent_memory_peak = peak;
}


void
agent_memory_start(agent_command_t *command)
{
    agent_command_t  *other;

    /* the peak is the whole sandbox's: others must know it before it goes */

    for (other = agent_background_first(); other != NULL; other = other->next) {
        agent_memory_look(other);
    }

    command->oom_kills = agent_memory_oom_kills();
    agent_caps_start();

    if (agent_memory_peak != -1 && agent_memory_reset
        && pwrite(agent_memory_peak, "0", 1, 0) != 1)
    {
        agent_memory_reset = 0;
    }
}


void
agent_memory_look(agent_command_t *command)
{
    char      text[32];
    ssize_t   n;
    uint64_t  peak;

    if (agent_memory_peak == -1) {
        return;
    }

    n = pread(agent_memory_peak, text, sizeof(text) - 1, 0);

    if (n > 0) {
        text[n] = '\0';
        peak = strtoull(text, NULL, 10);

        if (peak > command->memory_peak) {
            command->memory_peak = peak;
        }
    }
}


int
agent_memory_end(agent_command_t *command)
{
    agent_memory_look(command);

    return agent_memory_oom_kills() > command->oom_kills;
}


/* "oom_kill N" on a line of its own, in both versions of the file. */

static uint64_t
agent_memory_oom_kills(void)
{
    char     text[512], *p;
    ssize_t  n;

    if (agent_memory_oom == -1) {
        return 0;
    }

    n = pread(agent_memory_oom, text + 1, sizeof(text) - 2, 0);
    if (n <= 0) {
        return 0;
    }

    text[0] = '\n';
    text[n + 1] = '\0';

    p = strstr(text, "\noom_kill ");

    return p == NULL ? 0 : strtoull(p + 10, NULL, 10);
}
