/*
 * The commands of this conversation: one at a time, in the order in which
 * their connections were accepted.  Knows who waits for what and how many
 * run slots are held; how a command runs is not its concern.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>

#include "agent_stage.h"


static int agent_queue_known(agent_connection_t *c, agent_request_t *request);
static unsigned agent_queue_detached(void);
static void agent_queue_insert(agent_command_t *command);
static int agent_queue_place(const agent_command_t *front);
static void agent_queue_again(agent_timer_t *timer);
static void agent_queue_slots(int startable);
static void agent_queue_exit(agent_timer_t *timer);
static void agent_queue_exit_commands(void);


static agent_command_t  *agent_queue;
static agent_timer_t     agent_queue_timer;
static agent_timer_t     agent_queue_exit_timer;


void
agent_queue_enter(agent_connection_t *c, agent_request_t *request)
{
    const char       *code, *detail;
    agent_command_t  *command;

    if (agent_queue_known(c, request)) {
        agent_queue_process();
        return;
    }

    if (agent.tcp && agent.host == NULL
        && (c->preamble.flags & SANDBOX_FLAG_FRESH))
    {
        code = "not_on_this_backend";
        detail = "This agent can't replace its sandbox.";
        goto refused;
    }

    /* one runs or is about to; PENDING is how many may be behind it */

    if (!c->returned
        && agent.queued + (agent.running != NULL) > request->pending)
    {
        agent_connection_error(c, "too_many_pending",
                               "Too many commands of this conversation wait "
                               "already.", 2);
        agent_queue_process();
        return;
    }

    if (!c->returned && request->detach
        && agent.background + agent_queue_detached() >= AGENT_MAX_BACKGROUND)
    {
        agent_connection_error(c, "too_many_pending",
                               "Sixteen background commands of this "
                               "conversation run or wait already.", 2);
        agent_queue_process();
        return;
    }

    command = agent_command_new(c, request);

    if (command == NULL) {
        code = "spawn_failed";
        detail = "The sandbox has no memory for the command.";
        goto refused;
    }

    /* of a new command there is nothing that was had before */

    command->request.after = 0;

    agent_queue_insert(command);
    agent_operation_attach(c, command, &command->request);
    agent_queue_process();

    return;

refused:

    agent_connection_error(c, code, detail, 0);
    agent_queue_process();
}


void
agent_queue_process(void)
{
    int               startable;
    agent_command_t  *front;

    for ( ;; ) {
        front = agent_queue;
        startable = front != NULL && agent.running == NULL && !agent.stopping
                    && !agent.replacing && !agent.replaced && !agent.preparing;

        if (!startable) {
            break;
        }

        if (!agent_queue_place(front)) {
            agent_control_state();
            return;
        }

        if (front->fresh && agent.host != NULL) {
            agent.host->replace();
            continue;
        }

        if (front->fresh) {
            agent.replacing = 1;
            startable = 0;
            break;
        }

        if (!agent.tcp && agent.slots == 0) {
            break;
        }

        agent_queue_remove(front);
        agent.running = front;
        agent_command_start(front);

        /* one that was refused is gone, and the slot is for the next */
    }

    agent_queue_slots(startable);
    agent_control_state();

    if (agent.replacing) {
        agent_replace();
    }
}


void
agent_queue_lost(agent_connection_t *c)
{
    agent_connection_t  **p;

    for (p = &c->command->waiting; *p != NULL; p = &(*p)->peer) {
        if (*p == c) {
            *p = c->peer;
            break;
        }
    }

    c->command = NULL;
    c->peer = NULL;
}


void
agent_queue_ended(void)
{
    /* what is left running is known before the slot no longer says "busy" */

    agent_control_state();

    /* the next one asks again, so that slots go round over all sandboxes */

    if (!agent.tcp && agent.slots) {
        agent.slots--;
        agent_control_done(1);
    }
}


void
agent_queue_stop(unsigned outcome)
{
    agent_connection_t  *c, *next;

    if (agent.stopping) {
        return;
    }

    agent.stopping = 1;
    agent_log("stops: %u commands wait, %s runs", agent.queued,
              agent.running != NULL ? "one" : "none");

    agent_queue_end(outcome);

    for (c = agent_connection_first(); c != NULL; c = next) {
        next = c->next;

        if (c->state == AGENT_CONNECTION_READ) {
            agent_connection_error(c, agent.host != NULL
                                      ? agent.host->stopping : "gone",
                                   "The sandbox was ended while the request "
                                   "was on its way.", 0);
        }
    }

    agent_queue_exit_timer.handler = agent_queue_exit;
    agent_queue_exit_timer.data = NULL;
    agent_timer_set(&agent_queue_exit_timer, 1);
}


void
agent_queue_end(unsigned outcome)
{
    agent_command_t  *command;

    while ((command = agent_queue) != NULL) {
        agent_queue_remove(command);
        agent_end_cancel(command, outcome);
    }

    agent_queue_leave(outcome);

    if (agent.running != NULL) {
        agent_command_kill(agent.running, outcome);
    }
}


void
agent_queue_leave(unsigned outcome)
{
    agent_left_kill();
    agent_background_kill(outcome);
}


void
agent_queue_refuse(const char *code, const char *detail)
{
    agent_command_t     *command;
    agent_connection_t  *c;

    while ((command = agent_queue) != NULL) {
        agent_queue_remove(command);
        agent.created |= command->created;

        while ((c = command->waiting) != NULL) {
            command->waiting = c->peer;
            c->command = NULL;
            agent_connection_error(c, code, detail, 0);
        }

        agent_command_free(command);
    }
}


agent_command_t *
agent_queue_first(void)
{
    return agent_queue;
}


agent_command_t *
agent_queue_find(const uint8_t *id, size_t length)
{
    unsigned          i;
    agent_command_t  *command, *lists[2];

    command = agent.running;

    if (command != NULL && strlen(command->id) == length
        && memcmp(command->id, id, length) == 0)
    {
        return command;
    }

    lists[0] = agent_queue;
    lists[1] = agent_background_first();

    for (i = 0; i < 2; i++) {
        for (command = lists[i]; command != NULL; command = command->next) {
            if (strlen(command->id) == length
                && memcmp(command->id, id, length) == 0)
            {
                return command;
            }
        }
    }

    return NULL;
}


agent_command_t *
agent_queue_labelled(const uint8_t *label, size_t length)
{
    unsigned          i;
    agent_command_t  *command, *newest, *lists[3];

    newest = NULL;
    lists[0] = agent.running;            /* it is in no list: alone */
    lists[1] = agent_queue;
    lists[2] = agent_background_first();

    for (i = 0; i < 3; i++) {
        for (command = lists[i]; command != NULL; command = command->next) {
            if (command->request.label_size == length
                && memcmp(command->request.label, label, length) == 0
                && (newest == NULL || command->ordinal > newest->ordinal))
            {
                newest = command;
            }
        }
    }

    return newest;
}


void
agent_queue_remove(agent_command_t *command)
{
    if (command->prev != NULL) {
        command->prev->next = command->next;

    } else {
        agent_queue = command->next;
    }

    if (command->next != NULL) {
        command->next->prev = command->prev;
    }

    command->prev = NULL;
    command->next = NULL;
    agent.queued--;
}


/* 1: c was attached to a command that was there before, or refused. */

static int
agent_queue_known(agent_connection_t *c, agent_request_t *request)
{
    const char       *code;
    const uint8_t    *digest;
    agent_command_t  *command;
    agent_history_t  *h;

    if (request->id == NULL) {
        return 0;
    }

    h = NULL;
    command = agent_queue_find(request->id, request->id_size);

    if (command != NULL) {
        digest = command->request.digest;

    } else {
        h = agent_history_find(request->id, request->id_size, &code);

        if (h == NULL) {
            if (strcmp(code, "expired") != 0) {
                return 0;
            }

            agent_connection_error(c, code, "The command is no longer kept; "
                                   "it is not run again.", 0);
            return 1;
        }

        digest = agent_history_digest(h);
    }

    if (!sandbox_equal(digest, request->digest, SANDBOX_WIRE_DIGEST_SIZE)) {
        agent_connection_error(c, "command_id_reused",
                               "The command id belongs to another request.",
                               0);

    } else if (command != NULL) {
        agent_operation_attach(c, command, request);

    } else {
        agent_operation_known(c, h, request);
    }

    return 1;
}


/* Background commands that wait for their turn. */

static unsigned
agent_queue_detached(void)
{
    unsigned          n;
    agent_command_t  *command;

    n = agent.running != NULL && agent.running->request.detach;

    for (command = agent_queue; command != NULL; command = command->next) {
        n += command->request.detach;
    }

    return n;
}


static void
agent_queue_insert(agent_command_t *command)
{
    agent_command_t  *prev, *next;

    prev = NULL;

    for (next = agent_queue; next != NULL; next = next->next) {
        if (next->sequence > command->sequence) {
            break;
        }

        prev = next;
    }

    command->prev = prev;
    command->next = next;

    if (prev != NULL) {
        prev->next = command;

    } else {
        agent_queue = command;
    }

    if (next != NULL) {
        next->prev = command;
    }

    agent.queued++;
}


/*
 * A request that is still being read keeps its place before later ones, but
 * not for long: it is not known to ever be complete.  1: the front may go.
 */

static int
agent_queue_place(const agent_command_t *front)
{
    uint64_t             now, age;
    agent_connection_t  *c;

    /* one that was asked for its files is about to come back with them */

    if (agent_stage_held(front->sequence, &age)) {
        agent_queue_timer.handler = agent_queue_again;
        agent_timer_set(&agent_queue_timer, age);
        return 0;
    }

    now = agent_now_us();

    for (c = agent_connection_first(); c != NULL; c = c->next) {

        if (c->sequence > front->sequence
            || (c->state != AGENT_CONNECTION_TAKE
                && c->state != AGENT_CONNECTION_READ))
        {
            continue;
        }

        /* on TCP anybody can connect: a place is for who knows the secret */

        if (agent.tcp && !c->parsed) {
            continue;
        }

        age = (now - c->accepted) / 1000;

        if (age < AGENT_PLACE_WAIT) {
            agent_queue_timer.handler = agent_queue_again;
            agent_timer_set(&agent_queue_timer, AGENT_PLACE_WAIT - age);
            return 0;
        }
    }

    return 1;
}


static void
agent_queue_again(agent_timer_t *timer)
{
    agent_queue_process();
}


/*
 * Asks for one slot if only that is missing; gives back those that neither
 * the running command nor a request that is still being read can use.
 */

static void
agent_queue_slots(int startable)
{
    unsigned             keep;
    agent_connection_t  *c;

    if (agent.tcp) {
        return;
    }

    if (startable && agent.slots == 0 && !agent.wanted) {
        agent.wanted = 1;
        agent_control_want();
    }

    keep = (agent.running != NULL || startable);

    if (agent.slots <= keep) {
        return;
    }

    for (c = agent_connection_first(); c != NULL; c = c->next) {
        keep += c->granted && (c->state == AGENT_CONNECTION_TAKE
                               || c->state == AGENT_CONNECTION_READ);
    }

    if (agent.slots > keep) {
        agent_control_done(agent.slots - keep);
        agent.slots = keep;
    }
}


/*
 * Exits as soon as every answer is out.  There is a second for what was killed
 * to be seen dead, and one more for the answers.
 */

static void
agent_queue_exit(agent_timer_t *timer)
{
    uint64_t         now;
    static unsigned  ended;
    static uint64_t  deadline;

    now = agent_now_ms();

    if (deadline == 0) {
        deadline = now + AGENT_STOP_WAIT;
    }

    if (!ended && now >= deadline) {
        ended = 1;
        deadline = now + AGENT_STOP_WAIT;
        agent_queue_exit_commands();
    }

    if (now < deadline
        && (agent.running != NULL || agent.background != 0
            || agent.connections != 0))
    {
        agent_timer_set(timer, 5);
        return;
    }

    exit(0);
}


/*
 * A busy host may need long to reap what is dead already, and does nothing
 * any more: who waits must hear of its end all the same.
 */

static void
agent_queue_exit_commands(void)
{
    unsigned          i;
    agent_command_t  *command;

    (void) agent_guard_sweep();
    agent_reap();

    for (i = 0; i <= AGENT_MAX_BACKGROUND; i++) {
        command = agent.running != NULL ? agent.running
                                        : agent_background_first();

        if (command == NULL) {
            return;
        }

        agent_log("a command that was killed is not yet gone: it is answered "
                  "now");
        agent_end(command);
    }
}
