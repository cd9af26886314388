/*
 * What is asked of the agent, by operation; ATTACH and CANCEL themselves.
 * Both are about a command that waits, runs, has ended, or has left processes
 * running, and neither ever waits in the queue.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>

#include "agent_file.h"


static void agent_operation_attach_to(agent_connection_t *c,
    const agent_request_t *request);
static void agent_operation_cancel_it(agent_connection_t *c,
    const agent_request_t *request);
static void agent_operation_wait(agent_connection_t *c,
    agent_command_t *command);
static void agent_operation_state(agent_connection_t *c,
    agent_command_t *command);
static int agent_operation_follow(agent_connection_t *c, agent_history_t *h,
    uint64_t seq, uint64_t after);
static void agent_operation_send(agent_connection_t *c,
    agent_answer_t *answer);


static const char  agent_operation_gone[] =
    "The command is not known here, or no longer kept.";


void
agent_operation_enter(agent_connection_t *c)
{
    const char       *code, *detail;
    agent_request_t   request;

    if (c->preamble.operation < SANDBOX_OPERATION_COMMAND) {
        agent.host->enter(c);
        agent_queue_process();
        return;
    }

    if (c->preamble.operation >= SANDBOX_OPERATION_FILE_READ) {
        if (agent.preparing) {
            agent_connection_park(c);

        } else {
            agent_file_enter(c);
        }

        agent_queue_process();
        return;
    }

    if (c->preamble.operation == SANDBOX_OPERATION_HISTORY) {
        agent_history_list(c);
        agent_queue_process();
        return;
    }

    code = agent_request_read(&request, c->preamble.operation,
                              c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                              c->preamble.head, &detail);

    if (code != NULL) {
        agent_connection_error(c, code, detail, 0);
        agent_queue_process();
        return;
    }

    switch (c->preamble.operation) {

    case SANDBOX_OPERATION_COMMAND:
        agent_queue_enter(c, &request);
        return;

    case SANDBOX_OPERATION_ATTACH:
        agent_operation_attach_to(c, &request);
        break;

    case SANDBOX_OPERATION_CANCEL:
        agent_operation_cancel_it(c, &request);
        break;

    case SANDBOX_OPERATION_STDIN:
        agent_stdin_enter(c, &request);
        break;

    default:
        agent_connection_error(c, "bad_request", "The agent does not know "
                               "this operation.", 0);
    }

    agent_queue_process();
}


void
agent_operation_attach(agent_connection_t *c, agent_command_t *command,
    const agent_request_t *request)
{
    size_t   size;
    uint8_t  head[512];

    /* a background command that runs is all the answer there is */

    if (!request->stream && command->state != AGENT_COMMAND_QUEUED
        && command->state != AGENT_COMMAND_STARTING
        && command->request.detach)
    {
        agent_operation_state(c, command);
        return;
    }

    if (request->stream
        && agent_connection_follow(c, command->events, request->after) == -1)
    {
        agent_connection_error(c, "seq_unknown", "There is no event of that "
                               "number yet.", 0);
        return;
    }

    agent_operation_wait(c, command);

    if (command->state == AGENT_COMMAND_QUEUED) {
        return;
    }

    agent_connection_forget(c);
    size = agent_answer_head(head, sizeof(head), command->id);

    if (size == 0 || agent_connection_send(c, head, size) == -1) {
        agent_connection_close(c);
        return;
    }

    c->head_sent = 1;
    agent_connection_push(c);
}


void
agent_operation_known(agent_connection_t *c, agent_history_t *h,
    const agent_request_t *request)
{
    char             id[SANDBOX_WIRE_MAX_COMMAND_ID + 1];
    uint64_t         seq;
    agent_answer_t  *answer, *receipt;

    answer = agent_history_answer(h);

    if (answer == NULL) {
        agent_connection_error(c, "internal", "The agent has no memory for "
                               "the answer.", 0);
        return;
    }

    if (request->stream) {
        (void) agent_answer_result(answer, &seq);

        if (agent_operation_follow(c, h, seq, request->after) == -1) {
            agent_answer_release(answer);
            return;
        }

        /* a slow reader of events holds no captured output as well */

        memcpy(id, request->id, request->id_size);
        id[request->id_size] = '\0';
        receipt = agent_answer_receipt(answer, id, SANDBOX_COMMAND_ENDED);
        agent_answer_release(answer);
        answer = receipt;
    }

    agent_operation_send(c, answer);
}


void
agent_operation_cancel(agent_command_t *command)
{
    if (command->state == AGENT_COMMAND_QUEUED) {
        agent_queue_remove(command);
        agent_end_cancel(command, SANDBOX_OUTCOME_CANCELLED);
        agent_queue_process();
        return;
    }

    agent_command_kill(command, SANDBOX_OUTCOME_CANCELLED);
}


void
agent_operation_cancelled(agent_connection_t *c, const agent_answer_t *answer)
{
    agent_operation_send(c, agent_answer_found(answer, c->was));
}


static void
agent_operation_attach_to(agent_connection_t *c,
    const agent_request_t *request)
{
    const char       *code;
    agent_command_t  *command;
    agent_history_t  *h;

    command = agent_queue_find(request->id, request->id_size);

    if (command != NULL) {
        if (request->stream) {
            agent_operation_attach(c, command, request);

        } else {
            agent_operation_state(c, command);
        }

        return;
    }

    h = agent_history_find(request->id, request->id_size, &code);

    if (h == NULL) {
        agent_connection_error(c, code, agent_operation_gone, 0);
        return;
    }

    agent_operation_known(c, h, request);
}


/* Whatever it is that still runs of it is gone before this is answered. */

static void
agent_operation_cancel_it(agent_connection_t *c,
    const agent_request_t *request)
{
    const char       *code;
    agent_answer_t   *answer;
    agent_command_t  *command;
    agent_history_t  *h;

    if (request->id != NULL) {
        command = agent_queue_find(request->id, request->id_size);

    } else {
        command = agent_queue_labelled(request->label, request->label_size);

        if (command == NULL) {
            agent_connection_error(c, "command_not_found", "No command with "
                                   "that label waits or runs.", 0);
            return;
        }
    }

    c->was = SANDBOX_COMMAND_RUNNING;

    if (command != NULL && command->state == AGENT_COMMAND_QUEUED) {
        c->was = SANDBOX_COMMAND_QUEUED;
    }

    if (command == NULL) {
        command = agent_left_find(request->id, request->id_size);
        c->was = SANDBOX_COMMAND_ENDED;
    }

    if (command != NULL) {
        agent_operation_wait(c, command);
        agent_operation_cancel(command);
        return;
    }

    h = agent_history_find(request->id, request->id_size, &code);

    if (h == NULL) {
        agent_connection_error(c, code, agent_operation_gone, 0);
        return;
    }

    answer = agent_history_answer(h);

    if (answer == NULL) {
        agent_connection_error(c, "internal", "The agent has no memory for "
                               "the answer.", 0);
        return;
    }

    agent_operation_cancelled(c, answer);
    agent_answer_release(answer);
}


/* The last of those that wait for the end of a command. */

static void
agent_operation_wait(agent_connection_t *c, agent_command_t *command)
{
    agent_connection_t  **p;

    for (p = &command->waiting; *p != NULL; p = &(*p)->peer) { /* void */ }

    *p = c;
    c->peer = NULL;
    c->command = command;
    agent_connection_wait(c);
}


static void
agent_operation_state(agent_connection_t *c, agent_command_t *command)
{
    agent_operation_send(c, agent_answer_state(command));
}


/* The events of one that has ended; -1: it was refused, c may be gone. */

static int
agent_operation_follow(agent_connection_t *c, agent_history_t *h,
    uint64_t seq, uint64_t after)
{
    int              rc;
    agent_events_t  *events;

    /* its agent died: this is all that is known of it */

    if (seq == 0) {
        c->stream = 1;
        return 0;
    }

    if (after > seq) {
        agent_connection_error(c, "seq_unknown", "The command has ended with "
                               "an event before that.", 0);
        return -1;
    }

    if (after == seq) {

        /* the RESULT alone, again */

        c->stream = 1;
        return 0;
    }

    events = agent_history_events(h);

    if (events == NULL) {
        agent_connection_error(c, "expired", "The events of the command are "
                               "no longer kept.", 0);
        return -1;
    }

    rc = agent_connection_follow(c, events, after);
    agent_events_release(events);

    if (rc == -1) {
        agent_connection_error(c, "seq_unknown", "There is no event of that "
                               "number.", 0);
    }

    return rc;
}


/* Sends the answer, which is ours; NULL: there was no memory for it. */

static void
agent_operation_send(agent_connection_t *c, agent_answer_t *answer)
{
    if (answer == NULL) {
        agent_connection_error(c, "internal", "The agent has no memory for "
                               "the answer.", 0);
        return;
    }

    agent_connection_answer(c, answer);
    agent_answer_release(answer);
}
