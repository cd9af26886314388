/*
 * The background commands that run: beside the queue, each until its own end.
 * How one runs and ends is the same as for any other.
 */

#include "agent.h"

#include <stdlib.h>


static agent_command_t  *agent_background;       /* the latest first */


void
agent_background_add(agent_command_t *command)
{
    command->prev = NULL;
    command->next = agent_background;

    if (agent_background != NULL) {
        agent_background->prev = command;
    }

    agent_background = command;
    agent.background++;
}


void
agent_background_remove(agent_command_t *command)
{
    if (command->prev != NULL) {
        command->prev->next = command->next;

    } else {
        agent_background = command->next;
    }

    if (command->next != NULL) {
        command->next->prev = command->prev;
    }

    command->prev = NULL;
    command->next = NULL;
    agent.background--;
}


agent_command_t *
agent_background_first(void)
{
    return agent_background;
}


void
agent_background_kill(sandbox_outcome_e outcome)
{
    agent_command_t  *command;

    for (command = agent_background; command != NULL; command = command->next)
    {
        agent_command_kill(command, outcome);
    }
}


unsigned
agent_background_processes(void)
{
    unsigned          n;
    agent_command_t  *command;

    n = 0;

    for (command = agent_background; command != NULL; command = command->next)
    {
        n += agent_background_count(command);
    }

    return n;
}


unsigned
agent_background_count(agent_command_t *command)
{
    unsigned  n;

    /* one of which nothing is to be seen is not over all the same */

    n = agent_tree_count(&command->tree);

    return n ? n : 1;
}
