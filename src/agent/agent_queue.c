/*
 * The commands of this conversation: one at a time, in the order in which
 * their connections were accepted.  Knows who waits for what and how many
 * run slots are held; how a command runs is not its concern.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>


static agent_command_t *agent_queue_find(const agent_request_t *request);
static int agent_queue_known(agent_connection_t *c, agent_request_t *request);
static void agent_queue_attach(agent_connection_t *c,
    agent_command_t *command);
static void agent_queue_insert(agent_command_t *command);
static int agent_queue_place(const agent_command_t *front);
static void agent_queue_again(agent_timer_t *timer);
static void agent_queue_slots(int startable);
static void agent_queue_exit(agent_timer_t *timer);


static agent_command_t  *agent_queue;
static agent_timer_t     agent_queue_timer;
static agent_timer_t     agent_queue_exit_timer;


void
agent_queue_enter(agent_connection_t *c)
{
    const char       *code, *detail;
    agent_command_t  *command;
    agent_request_t   request;

    if (c->preamble.operation == SANDBOX_OPERATION_HISTORY) {
        agent_history_list(c);
        agent_queue_process();
        return;
    }

    code = agent_request_read(&request, c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                              c->preamble.head, &detail);

    if (code != NULL) {
        goto refused;
    }

    if (agent_queue_known(c, &request)) {
        agent_queue_process();
        return;
    }

    if (agent.tcp && (c->preamble.flags & SANDBOX_FLAG_FRESH)) {
        code = "not_on_this_backend";
        detail = "This agent can't replace its sandbox.";
        goto refused;
    }

    /* one runs or is about to; PENDING is how many may be behind it */

    if (!c->returned
        && agent.queued + (agent.running != NULL) > request.pending)
    {
        agent_connection_error(c, "too_many_pending",
                               "Too many commands of this conversation wait "
                               "already.", 2);
        agent_queue_process();
        return;
    }

    command = agent_command_new(c, &request);

    if (command == NULL) {
        code = "spawn_failed";
        detail = "The sandbox has no memory for the command.";
        goto refused;
    }

    agent_queue_insert(command);
    agent_queue_attach(c, command);
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
                    && !agent.replacing && !agent.replaced;

        if (!startable) {
            break;
        }

        if (!agent_queue_place(front)) {
            agent_control_state();
            return;
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
    agent.running = NULL;
    agent.commands++;

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
    agent_command_t     *command;
    agent_connection_t  *c, *next;

    if (agent.stopping) {
        return;
    }

    agent.stopping = 1;
    agent_log("stops: %u commands wait, %s runs", agent.queued,
              agent.running != NULL ? "one" : "none");

    while ((command = agent_queue) != NULL) {
        agent_queue_remove(command);
        agent_command_cancel(command, outcome);
    }

    for (c = agent_connection_first(); c != NULL; c = next) {
        next = c->next;

        if (c->state == AGENT_CONNECTION_READ) {
            agent_connection_error(c, "gone", "The sandbox was ended while "
                                   "the request was on its way.", 0);
        }
    }

    agent_left_kill();

    if (agent.running != NULL) {
        agent_command_kill(agent.running, outcome);
    }

    agent_queue_exit_timer.handler = agent_queue_exit;
    agent_queue_exit_timer.data = NULL;
    agent_timer_set(&agent_queue_exit_timer, 1);
}


agent_command_t *
agent_queue_first(void)
{
    return agent_queue;
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
    agent_answer_t   *answer;
    agent_command_t  *command;
    agent_history_t  *h;

    if (request->id == NULL) {
        return 0;
    }

    h = NULL;
    command = agent_queue_find(request);

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
        agent_queue_attach(c, command);

    } else {
        answer = agent_history_answer(h);

        if (answer == NULL) {
            agent_connection_error(c, "internal", "The agent has no memory "
                                   "for the answer.", 0);
            return 1;
        }

        agent_connection_answer(c, answer);
        agent_answer_release(answer);
    }

    return 1;
}


static agent_command_t *
agent_queue_find(const agent_request_t *request)
{
    agent_command_t  *command;

    command = agent.running;

    if (command != NULL && strlen(command->id) == request->id_size
        && memcmp(command->id, request->id, request->id_size) == 0)
    {
        return command;
    }

    for (command = agent_queue; command != NULL; command = command->next) {
        if (strlen(command->id) == request->id_size
            && memcmp(command->id, request->id, request->id_size) == 0)
        {
            break;
        }
    }

    return command;
}


static void
agent_queue_attach(agent_connection_t *c, agent_command_t *command)
{
    size_t               size;
    uint8_t              head[512];
    agent_connection_t **p;

    for (p = &command->waiting; *p != NULL; p = &(*p)->peer) { /* void */ }

    *p = c;
    c->peer = NULL;
    c->command = command;
    agent_connection_wait(c);

    if (command->state == AGENT_COMMAND_QUEUED) {
        return;
    }

    size = agent_answer_head(head, sizeof(head), command->id);

    if (size == 0 || agent_connection_send(c, head, size) == -1) {
        agent_connection_close(c);
        return;
    }

    c->head_sent = 1;
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


/* Exits as soon as every answer is out, at the latest after one second. */

static void
agent_queue_exit(agent_timer_t *timer)
{
    static uint64_t  deadline;

    if (deadline == 0) {
        deadline = agent_now_ms() + AGENT_STOP_WAIT;
    }

    if (agent_now_ms() < deadline
        && (agent.running != NULL || agent.connections != 0))
    {
        agent_timer_set(timer, 5);
        return;
    }

    exit(0);
}
