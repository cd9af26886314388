/*
 * What a command leaves running: kept, with its pipes read away, until it is
 * gone or the command's own limits end it.  The answer was given before.
 */

#include "agent.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>


#define AGENT_LEFT_POLL  1000            /* ms, where no event will come */


static void agent_left_events(agent_watch_t *watch, uint32_t events);
static void agent_left_gone(agent_command_t *command);


static agent_command_t  *agent_left;     /* the latest first */


void
agent_left_add(agent_command_t *command)
{
    unsigned          i;
    agent_command_t  *oldest;

    command->state = AGENT_COMMAND_LEFT;

    /* the answer has all that counts of these */

    agent.request_bytes -= command->raw_size;
    free(command->raw);
    command->raw = NULL;
    command->raw_size = 0;

    for (i = 0; i < 2; i++) {
        free(command->output[i].head);
        free(command->output[i].tail);
        command->output[i].head = NULL;
        command->output[i].tail = NULL;
    }

    command->prev = NULL;
    command->next = agent_left;

    if (agent_left != NULL) {
        agent_left->prev = command;
    }

    agent_left = command;
    agent.left++;

    command->events.fd = agent_tree_events(&command->tree);
    command->events.handler = agent_left_events;
    command->events.data = command;

    if (command->events.fd == -1
        || agent_watch_set(&command->events, EPOLLPRI) == -1
        || command->killed)
    {
        agent_timer_set(&command->wait, AGENT_LEFT_POLL);
    }

    if (agent.left > AGENT_MAX_LEFT) {
        for (oldest = agent_left; oldest->next != NULL; ) {
            oldest = oldest->next;
        }

        agent_log("more than %d commands have left processes running: the "
                  "oldest ones end", AGENT_MAX_LEFT);
        agent_command_kill(oldest, SANDBOX_OUTCOME_TIMEOUT);
    }
}


void
agent_left_check(agent_command_t *command)
{
    if (agent_tree_count(&command->tree) == 0) {
        agent_left_gone(command);
        return;
    }

    if (command->killed) {
        agent_tree_kill(&command->tree);
    }

    agent_timer_set(&command->wait, AGENT_LEFT_POLL);
}


void
agent_left_kill(void)
{
    agent_command_t  *command;

    for (command = agent_left; command != NULL; command = command->next) {
        agent_tree_kill(&command->tree);
    }
}


unsigned
agent_left_processes(void)
{
    unsigned          n;
    agent_command_t  *command;

    n = 0;

    for (command = agent_left; command != NULL; command = command->next) {
        n += command->processes;
    }

    return n;
}


/* The tree has become empty, or has got processes again. */

static void
agent_left_events(agent_watch_t *watch, uint32_t events)
{
    char              text[128];
    agent_command_t  *command;

    command = watch->data;

    (void) !pread(watch->fd, text, sizeof(text), 0);

    if (agent_tree_count(&command->tree) == 0) {
        agent_left_gone(command);
    }
}


static void
agent_left_gone(agent_command_t *command)
{
    if (command->prev != NULL) {
        command->prev->next = command->next;

    } else {
        agent_left = command->next;
    }

    if (command->next != NULL) {
        command->next->prev = command->prev;
    }

    agent.left--;
    agent_command_free(command);
    agent_control_state();
}
