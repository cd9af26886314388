/*
 * The queue of one conversation: order, one at a time, run slots asked for
 * once and given back, the limit of waiting ones, known ids.  Commands,
 * connections and the runner are played by this file.
 */

/* link: src/agent/agent_queue.c src/agent/agent_operation.c */
/* link: src/agent/agent_background.c src/agent/agent_sandbox.c src/agent/agent_caps_take.c */
/* link: src/agent/agent_events.c src/wire/sandbox_utf8.c */
/* link: src/agent/agent_request.c src/agent/agent_event.c */
/* link: src/agent/agent_log.c src/wire/sandbox_wire.c */

#include <stdlib.h>
#include <unistd.h>

#include "agent.h"
#include "agent_file.h"
#include "agent_stage.h"
#include "test.h"


static void granted(void);
static void wanted(void);
static void order(void);
static void place(void);
static void pending(void);
static void known(void);
static void refused(void);
static void fresh(void);
static void lost(void);
static void cancelled(void);
static void detached(void);
static void ask(unsigned operation, const char *id);
static agent_connection_t *reading(int granted);
static void complete(agent_connection_t *c, const char *text, const char *id,
    uint8_t digest, uint64_t pending);
static agent_connection_t *enter(int granted, const char *text,
    const char *id);
static void end(void);
static void reset(void);


static char                 events[1024];        /* what happened, in words */
static agent_connection_t  *connections;
static uint64_t             sequence;
static int                  refuse;              /* the next at its start */
static unsigned             detach;              /* the next ones */
static agent_history_t      receipt;
static agent_answer_t       kept;


int
main(void)
{
    agent_event_init();

    granted();
    wanted();
    order();
    place();
    pending();
    known();
    refused();
    fresh();
    lost();
    cancelled();
    detached();

    return test_done();
}


static void
granted(void)
{
    agent.slots = 1;
    enter(1, "a", NULL);
    is_string(events, "start a.", "a granted one starts at once");

    agent.slots = 2;
    enter(1, "b", NULL);
    is_string(events, "start a.done.", "a second slot goes back");
    is_number(agent.slots, 1, "one is held while one runs");

    end();
    is_string(events, "start a.done.done.want.",
              "its slot goes back, and the next one asks");
    is_number(agent.slots, 0, "none is held");
    reset();

    agent.slots = 3;
    agent_queue_process();
    is_string(events, "done.done.done.", "slots without work go back");
    reset();
}


static void
wanted(void)
{
    enter(0, "a", NULL);
    enter(0, "b", NULL);
    is_string(events, "want.", "one WANT, however many wait");

    agent.wanted = 0;
    agent.slots = 1;
    agent_queue_process();
    is_string(events, "want.start a.", "the first one gets it");

    end();
    is_string(events, "want.start a.done.want.", "the next one asks anew");
    reset();

    agent.tcp = 1;
    enter(0, "a", NULL);
    end();
    is_string(events, "start a.", "without a runner nobody asks");
    agent.tcp = 0;
    reset();
}


static void
order(void)
{
    agent_connection_t  *first, *second, *third;

    agent.tcp = 1;
    first = reading(0);
    second = reading(0);
    third = reading(0);

    complete(third, "3", NULL, 0, 10);
    complete(second, "2", NULL, 0, 10);
    is_string(events, "", "later ones wait for one that is being read");

    complete(first, "1", NULL, 0, 10);
    is_string(events, "start 1.", "the first accepted is the first");
    end();
    end();
    end();
    is_string(events, "start 1.start 2.start 3.", "and so on");
    agent.tcp = 0;
    reset();
}


static void
place(void)
{
    agent_connection_t  *first, *stranger;

    agent.tcp = 1;
    first = reading(0);
    enter(0, "2", NULL);
    is_string(events, "", "a slow one keeps its place");

    first->accepted -= (AGENT_PLACE_WAIT + 1) * 1000;
    agent_queue_process();
    is_string(events, "start 2.", "but not for long");
    reset();

    agent.tcp = 1;
    stranger = reading(0);
    stranger->parsed = 0;
    enter(0, "2", NULL);
    is_string(events, "start 2.", "who said no secret yet has none on TCP");
    reset();

    stranger = reading(0);
    stranger->parsed = 0;
    agent.slots = 1;
    enter(0, "2", NULL);
    is_string(events, "", "who comes from the runner has");
    reset();
}


static void
pending(void)
{
    agent_connection_t  *c;

    agent.tcp = 1;

    c = reading(0);
    complete(c, "1", NULL, 0, 0);
    is_string(events, "start 1.", "with 0 pending one runs");

    c = reading(0);
    complete(c, "2", NULL, 0, 0);
    is_string(events, "start 1.too_many_pending.", "and none waits");

    c = reading(0);
    complete(c, "3", NULL, 0, 2);
    c = reading(0);
    complete(c, "4", NULL, 0, 2);
    c = reading(0);
    complete(c, "5", NULL, 0, 2);
    is_string(events, "start 1.too_many_pending.too_many_pending.",
              "with 2 pending the third one is refused");
    is_number(agent.queued, 2, "two wait");

    c = reading(0);
    c->returned = 1;
    complete(c, "6", NULL, 0, 2);
    is_number(agent.queued, 3, "what was handed back is never refused");
    agent.tcp = 0;
    reset();
}


static void
known(void)
{
    agent_connection_t  *c, *again;

    agent.tcp = 1;
    c = enter(0, "1", "id");
    again = enter(0, "1", "id");
    ok(again->command == c->command && again->head_sent,
       "the id of the running one attaches, with HEAD");

    c = enter(0, "2", "other");
    again = enter(0, "2", "other");
    ok(again->command == c->command && !again->head_sent,
       "the id of a waiting one attaches, without");
    is_number(agent.queued, 1, "and is no second command");

    again = reading(0);
    complete(again, "1", "id", 99, 10);
    is_string(events, "start 1.command_id_reused.", "another request is not");

    enter(0, "x", "forgotten");
    is_string(events, "start 1.command_id_reused.expired.",
              "one that was known is not run again");

    memcpy(receipt.id, "old", 3);
    receipt.length = 3;
    receipt.digest[0] = 1;
    kept.references = 1;
    enter(0, "x", "old");
    is_string(events, "start 1.command_id_reused.expired.answer.",
              "one that is kept is answered");

    again = reading(0);
    complete(again, "x", "old", 99, 10);
    is_string(events, "start 1.command_id_reused.expired.answer."
                      "command_id_reused.", "another request with that id");
    receipt.length = 0;
    agent.tcp = 0;
    reset();

    agent.slots = 1;
    enter(1, "1", "id");
    agent.slots = 2;
    enter(1, "1", "id");
    is_string(events, "start 1.done.", "attaching gives its slot back");
    reset();
}


/* refused at its start: the slot is for the next, or goes back */

static void
refused(void)
{
    refuse = 1;
    agent.slots = 1;
    enter(1, "1", NULL);
    is_string(events, "refuse 1.done.", "the slot goes back");
    reset();

    enter(0, "1", NULL);
    enter(0, "2", NULL);
    refuse = 1;
    agent.wanted = 0;
    agent.slots = 1;
    agent_queue_process();
    is_string(events, "want.refuse 1.start 2.", "the next one takes it");
    reset();
}


static void
fresh(void)
{
    agent_connection_t  *c;

    agent.slots = 1;
    enter(1, "1", NULL);
    c = reading(0);
    c->preamble.flags = SANDBOX_FLAG_FRESH;
    complete(c, "2", NULL, 0, 10);
    enter(0, "3", NULL);
    is_string(events, "start 1.", "a fresh one keeps its place");

    end();
    is_string(events, "start 1.done.replace.", "at the front it replaces");
    ok(agent.replacing && agent.queued == 2, "nothing else starts");
    reset();

    agent.slots = 1;
    c = reading(1);
    c->preamble.flags = SANDBOX_FLAG_FRESH;
    c->fresh = 1;
    complete(c, "1", NULL, 0, 10);
    is_string(events, "start 1.", "in its own fresh sandbox it starts");
    reset();

    agent.tcp = 1;
    c = reading(0);
    c->preamble.flags = SANDBOX_FLAG_FRESH;
    complete(c, "1", NULL, 0, 10);
    is_string(events, "not_on_this_backend.", "on TCP there is none");
    agent.tcp = 0;
    reset();
}


static void
lost(void)
{
    agent_command_t     *command;
    agent_connection_t  *c, *again;

    agent.tcp = 1;
    enter(0, "1", NULL);
    c = enter(0, "2", "id");
    again = enter(0, "2", "id");
    command = c->command;

    agent_queue_lost(c);
    ok(c->command == NULL && command->waiting == again, "one of two leaves");
    agent_queue_lost(again);
    ok(command->waiting == NULL && agent.queued == 1, "a command stays");
    end();
    is_string(events, "start 1.start 2.", "and runs for nobody");
    agent.tcp = 0;
    reset();
}


static void
cancelled(void)
{
    agent.tcp = 1;
    enter(0, "1", "a");
    enter(0, "2", "b");
    enter(0, "3", "c");

    ask(SANDBOX_OPERATION_CANCEL, "b");
    is_string(events, "start 1.cancel 2.", "one that waits ends at once");
    is_number(agent.queued, 1, "the others wait on");

    ask(SANDBOX_OPERATION_CANCEL, "a");
    is_string(events, "start 1.cancel 2.kill 1.", "one that runs is killed");

    ask(SANDBOX_OPERATION_ATTACH, "c");
    ask(SANDBOX_OPERATION_CANCEL, "nothing");
    ask(SANDBOX_OPERATION_ATTACH, "forgotten");
    is_string(events, "start 1.cancel 2.kill 1.state.answer."
                      "command_not_found.expired.",
              "one that waits is told of at once, one that is not there is not");

    ask(SANDBOX_OPERATION_STDIN, "a");
    ask(SANDBOX_OPERATION_HISTORY, "a");
    is_string(events, "start 1.cancel 2.kill 1.state.answer."
                      "command_not_found.expired.stdin.history.",
              "others go where they belong");

    ask(SANDBOX_OPERATION_ATTACH, NULL);
    is_string(strrchr(events, 'y') + 2, "bad_request.", "and none without id");
    agent.tcp = 0;
    reset();
}


/* background commands: the queue goes on, but there is a limit */

static void
detached(void)
{
    unsigned  i;
    char      id[8];

    agent.tcp = 1;
    detach = 1;

    for (i = 0; i < AGENT_MAX_BACKGROUND; i++) {
        snprintf(id, sizeof(id), "n%u", i);
        enter(0, "b", id);
    }

    is_number(agent.background, AGENT_MAX_BACKGROUND, "all run at once");
    ok(agent.running == NULL && agent.queued == 0, "and none holds the queue");
    events[0] = '\0';
    enter(0, "b", NULL);
    is_string(events, "too_many_pending.", "one more is refused");

    detach = 0;
    enter(0, "f", NULL);
    is_string(events, "too_many_pending.start f.", "but no other command");

    events[0] = '\0';
    ask(SANDBOX_OPERATION_CANCEL, "n3");
    is_string(events, "kill b.", "each is known by its id");
    agent.tcp = 0;

    while (agent_background_first() != NULL) {
        agent_command_t  *command;

        command = agent_background_first();
        agent_background_remove(command);
        free(command->raw);
        free(command);
    }

    reset();
}


static void
ask(unsigned operation, const char *id)
{
    agent_connection_t  *c;
    sandbox_writer_t     w;

    c = reading(0);
    c->preamble.operation = operation;
    c->in = calloc(1, 1024);
    sandbox_writer_init(&w, c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                        1024 - SANDBOX_WIRE_PREAMBLE_SIZE);

    if (id != NULL) {
        sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, id);
    }

    c->preamble.head = w.pos - w.start;
    agent_operation_enter(c);
}


static agent_connection_t *
reading(int granted)
{
    agent_connection_t  *c;

    c = calloc(1, sizeof(agent_connection_t));
    c->state = AGENT_CONNECTION_READ;
    c->accepted = agent_now_us();
    c->sequence = ++sequence;
    c->granted = granted;
    c->parsed = 1;
    c->preamble.operation = SANDBOX_OPERATION_COMMAND;
    c->next = connections;
    connections = c;

    return c;
}


static void
complete(agent_connection_t *c, const char *text, const char *id,
    uint8_t digest, uint64_t pending)
{
    uint8_t           bytes[SANDBOX_WIRE_DIGEST_SIZE];
    sandbox_writer_t  w;

    memset(bytes, 0, sizeof(bytes));
    bytes[0] = digest;

    c->in = calloc(1, 1024);
    sandbox_writer_init(&w, c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                        1024 - SANDBOX_WIRE_PREAMBLE_SIZE);
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND, text);
    sandbox_write_number(&w, SANDBOX_TAG_PENDING, pending);
    sandbox_write_number(&w, SANDBOX_TAG_DETACH, detach);
    sandbox_write_bytes(&w, SANDBOX_TAG_DIGEST, bytes, sizeof(bytes));

    if (id != NULL) {
        sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, id);
    }

    c->preamble.head = w.pos - w.start;
    agent_operation_enter(c);
}


static agent_connection_t *
enter(int granted, const char *text, const char *id)
{
    agent_connection_t  *c;

    c = reading(granted);
    complete(c, text, id, 1, 10);

    return c;
}


/* the running command ends */

static void
end(void)
{
    agent_command_t  *command;

    command = agent.running;
    agent.running = NULL;
    agent_queue_ended();
    agent_queue_process();
    free(command->raw);
    free(command);
}


static void
reset(void)
{
    agent_command_t     *command;
    agent_connection_t  *c;

    while ((command = agent_queue_first()) != NULL) {
        agent_queue_remove(command);
        free(command->raw);
        free(command);
    }

    if (agent.running != NULL) {
        free(agent.running->raw);
        free(agent.running);
    }

    while ((c = connections) != NULL) {
        connections = c->next;
        free(c->in);
        free(c);
    }

    memset(&agent, 0, sizeof(agent));
    events[0] = '\0';
    refuse = 0;
}


/* --- the others ---------------------------------------------------------- */

static void
event(const char *what, const agent_command_t *command)
{
    size_t  n;

    n = strlen(events);

    if (command == NULL) {
        snprintf(events + n, sizeof(events) - n, "%s.", what);

    } else {
        snprintf(events + n, sizeof(events) - n, "%s %.*s.", what,
                 (int) command->request.command_size,
                 (const char *) command->request.command);
    }
}


agent_command_t *
agent_command_new(agent_connection_t *c, const agent_request_t *request)
{
    agent_command_t  *command;

    command = calloc(1, sizeof(agent_command_t));
    command->request = *request;
    command->sequence = c->sequence;
    command->raw = c->in;
    command->fresh = (c->preamble.flags & SANDBOX_FLAG_FRESH) && !c->fresh;
    c->in = NULL;

    if (request->id != NULL) {
        memcpy(command->id, request->id, request->id_size);
    }

    return command;
}


void
agent_command_start(agent_command_t *command)
{
    event(refuse ? "refuse" : "start", command);

    if (refuse) {
        refuse = 0;
        agent.running = NULL;
        free(command->raw);
        free(command);
        return;
    }

    command->state = AGENT_COMMAND_RUNNING;

    if (command->request.detach) {
        agent.running = NULL;
        agent_background_add(command);
        agent_queue_ended();
    }
}


void
agent_command_kill(agent_command_t *command, sandbox_outcome_e outcome)
{
    event("kill", command);
}


void
agent_command_free(agent_command_t *command)
{
    event("free", command);
    free(command->raw);
    free(command);
}


void
agent_end_cancel(agent_command_t *command, sandbox_outcome_e outcome)
{
    event("cancel", command);
    free(command->raw);
    free(command);
}


void
agent_end(agent_command_t *command)
{
    event("end", command);
}


void
agent_reap(void)
{
}


int
agent_guard_sweep(void)
{
    return 0;
}


void
agent_stdin_enter(agent_connection_t *c, const agent_request_t *request)
{
    c->state = AGENT_CONNECTION_ANSWER;
    event("stdin", NULL);
}


agent_command_t *
agent_left_find(const uint8_t *id, size_t length)
{
    return NULL;
}


unsigned
agent_tree_count(agent_tree_t *tree)
{
    return 1;
}


void
agent_left_kill(void)
{
    event("kill left", NULL);
}


void
agent_connection_park(agent_connection_t *c)
{
    c->parked = 1;
}


void
agent_connection_wait(agent_connection_t *c)
{
    c->state = AGENT_CONNECTION_WAIT;
}


int
agent_connection_follow(agent_connection_t *c, agent_events_t *events,
    uint64_t after)
{
    return 0;
}


void
agent_connection_push(agent_connection_t *c)
{
}


void
agent_connection_forget(agent_connection_t *c)
{
    free(c->in);
    c->in = NULL;
}


int
agent_connection_send(agent_connection_t *c, const uint8_t *data, size_t size)
{
    return 0;
}


void
agent_connection_close(agent_connection_t *c)
{
    event("close", NULL);
}


void
agent_connection_error(agent_connection_t *c, const char *code,
    const char *detail, unsigned retry_after)
{
    c->state = AGENT_CONNECTION_ANSWER;
    event(code, NULL);
}


void
agent_connection_answer(agent_connection_t *c, agent_answer_t *answer)
{
    c->state = AGENT_CONNECTION_ANSWER;
    event("answer", NULL);
}


agent_connection_t *
agent_connection_first(void)
{
    return connections;
}


size_t
agent_answer_head(uint8_t *p, size_t size, const char *id)
{
    return 1;
}


size_t
agent_answer_result(const agent_answer_t *answer, uint64_t *seq)
{
    return answer->size;
}


agent_answer_t *
agent_answer_state(agent_command_t *command)
{
    event("state", NULL);
    kept.references++;

    return &kept;
}


agent_answer_t *
agent_answer_receipt(const agent_answer_t *answer, const char *id,
    unsigned state)
{
    kept.references++;

    return &kept;
}


agent_answer_t *
agent_answer_found(const agent_answer_t *answer, unsigned state)
{
    kept.references++;

    return &kept;
}


agent_history_t *
agent_history_find(const uint8_t *id, size_t length, const char **code)
{
    *code = length == 9 ? "expired" : "command_not_found";

    return receipt.length == length && memcmp(receipt.id, id, length) == 0
           ? &receipt : NULL;
}


int
agent_stage_held(uint64_t sequence, uint64_t *wait)
{
    return 0;
}


void
agent_file_enter(agent_connection_t *c)
{
    event("file", NULL);
}


void
agent_history_list(agent_connection_t *c)
{
    event("history", NULL);
}


const uint8_t *
agent_history_digest(const agent_history_t *h)
{
    return h->digest;
}


agent_answer_t *
agent_history_answer(agent_history_t *h)
{
    kept.references++;

    return &kept;
}


agent_events_t *
agent_history_events(agent_history_t *h)
{
    return NULL;
}


void
agent_answer_release(agent_answer_t *answer)
{
    answer->references--;
}


void
agent_control_want(void)
{
    event("want", NULL);
}


void
agent_control_done(unsigned slots)
{
    while (slots--) {
        event("done", NULL);
    }
}


void
agent_control_state(void)
{
}


void
agent_replace(void)
{
    event("replace", NULL);
}
