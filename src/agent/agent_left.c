/*
 * What a command leaves running: kept, with its pipes read away, until it is
 * gone or the command's own limits end it.  The answer was given before.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>


#define AGENT_LEFT_POLL  1000            /* ms, where no event will come */
#define AGENT_LEFT_KILLS 10              /* tries, then a CANCEL is answered */


static void agent_left_events(agent_watch_t *watch, uint32_t events);
static void agent_left_cancelled(agent_command_t *command);
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

    if (command->events != NULL) {
        agent_events_release(command->events);
        command->events = NULL;
    }

    command->prev = NULL;
    command->next = agent_left;

    if (agent_left != NULL) {
        agent_left->prev = command;
    }

    agent_left = command;
    agent.left++;

    command->emptied.fd = agent_tree_events(&command->tree);
    command->emptied.handler = agent_left_events;
    command->emptied.data = command;

    if (command->emptied.fd == -1
        || agent_watch_set(&command->emptied, EPOLLPRI) == -1
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
    agent_connection_t  *c;

    if (agent_tree_count(&command->tree) == 0) {
        agent_left_gone(command);
        return;
    }

    if (command->killed) {
        agent_tree_kill(&command->tree);

        if (++command->attempts == AGENT_LEFT_KILLS) {
            agent_log("processes of a cancelled command do not end");
        }

        /* also those that ask when it has been tried for long */

        if (command->attempts >= AGENT_LEFT_KILLS) {
            while ((c = command->waiting) != NULL) {
                command->waiting = c->peer;
                c->command = NULL;
                agent_connection_error(c, "internal", "A process of the "
                                       "command does not end.", 0);
            }
        }
    }

    agent_timer_set(&command->wait, AGENT_LEFT_POLL);
}


agent_command_t *
agent_left_first(void)
{
    return agent_left;
}


agent_command_t *
agent_left_find(const uint8_t *id, size_t length)
{
    agent_command_t  *command;

    for (command = agent_left; command != NULL; command = command->next) {
        if (strlen(command->id) == length
            && memcmp(command->id, id, length) == 0)
        {
            break;
        }
    }

    return command;
}


void
agent_left_look(void)
{
    agent_command_t  *command, *next;

    for (command = agent_left; command != NULL; command = next) {
        next = command->next;
        agent_left_check(command);
    }
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
        n += agent_background_count(command);
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


/* Who waited for this has the receipt, which says what it always said. */

static void
agent_left_cancelled(agent_command_t *command)
{
    const char          *code;
    agent_answer_t      *answer;
    agent_history_t     *h;
    agent_connection_t  *c;

    if (command->waiting == NULL) {
        return;
    }

    h = agent_history_find((const uint8_t *) command->id, strlen(command->id),
                           &code);
    answer = h != NULL ? agent_history_answer(h) : NULL;

    while ((c = command->waiting) != NULL) {
        command->waiting = c->peer;
        c->command = NULL;

        if (answer != NULL) {
            agent_operation_cancelled(c, answer);

        } else {
            agent_connection_error(c, "expired", "The command was ended; its "
                                   "receipt is no longer kept.", 0);
        }
    }

    if (answer != NULL) {
        agent_answer_release(answer);
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
    agent_control_state();
    agent_left_cancelled(command);
    agent_command_free(command);
}
