/*
 * What is asked of a runner elsewhere: who may come in, the state of the
 * sandbox, a fresh one, its end.  Who has to wait for one of these is parked.
 */

#include "agent.h"

#include <errno.h>
#include <string.h>

#include "agent_caps.h"
#include "agent_engine.h"


#define AGENT_ENGINE_HEAD  (4 * 1024)    /* bytes of a head, at most */


static const char *agent_engine_need(const sandbox_preamble_t *preamble,
    const char **detail);
static int agent_engine_fields(agent_connection_t *c);
static void agent_engine_ping(agent_connection_t *c);
static void agent_engine_status(agent_connection_t *c);
static void agent_engine_reset(agent_connection_t *c);
static void agent_engine_delete(agent_connection_t *c);
static unsigned agent_engine_word(void);
static agent_connection_t *agent_engine_parked(void);
static void agent_engine_answer(agent_connection_t *c,
    const sandbox_writer_t *fields);
static void agent_engine_renewed(agent_connection_t *c);


static uint64_t  agent_engine_admitted;  /* since the sandbox was made */
static int       agent_engine_capped;    /* caps are those of an operation */


const char *
agent_engine_admit(const sandbox_preamble_t *preamble, const char **detail)
{
    if (!sandbox_equal(preamble->key, agent.secret, sizeof(agent.secret))
        || !sandbox_equal(preamble->session, agent.session,
                          sizeof(agent.session)))
    {
        *detail = "The secret of the agent, or its session, is another one.";
        return "unauthorized_peer";
    }

    if (agent.stopping || !agent_engine_owned()) {
        *detail = "Another agent has the volumes of the session.";

        /* not at once: whoever calls is at work with a connection */

        if (!agent.stopping) {
            agent_engine_look();
        }

        return "fenced";
    }

    agent_engine_may_idle(preamble->base);

    /* who only looks does not keep it awake */

    if (preamble->operation == SANDBOX_OPERATION_PING
        || preamble->operation == SANDBOX_OPERATION_STATUS)
    {
        return NULL;
    }

    agent_engine_use();

    /* what failed before is tried once more */

    agent_engine_resume();

    if (preamble->operation < SANDBOX_OPERATION_COMMAND) {
        return NULL;
    }

    return agent_engine_need(preamble, detail);
}


int
agent_engine_park(agent_connection_t *c)
{
    unsigned  operation;

    operation = c->preamble.operation;

    if (agent_engine_state.phase != AGENT_ENGINE_DELETING
        || operation == SANDBOX_OPERATION_PING
        || operation == SANDBOX_OPERATION_STATUS
        || operation == SANDBOX_OPERATION_DELETE)
    {
        return 0;
    }

    agent_connection_park(c);

    return 1;
}


int
agent_engine_unused(void)
{
    return agent_engine_admitted == 1;
}


void
agent_engine_enter(agent_connection_t *c)
{
    if (c->preamble.operation == SANDBOX_OPERATION_SESSIONS
        || c->preamble.operation == SANDBOX_OPERATION_DRAIN
        || c->preamble.operation == SANDBOX_OPERATION_EGRESS)
    {
        agent_connection_error(c, "not_on_this_backend", "The agent of an "
                               "engine knows its own session only.", 0);
        return;
    }

    if (c->preamble.body != 0 || c->preamble.head > AGENT_ENGINE_HEAD
        || (c->preamble.flags & SANDBOX_FLAG_FRESH)
        || agent_engine_fields(c) == -1)
    {
        agent_connection_error(c, "bad_request", "The operation takes no "
                               "body, no flag \"fresh\", and a short head of "
                               "fields.", 0);
        return;
    }

    if (c->preamble.operation != SANDBOX_OPERATION_PING
        && c->preamble.instance
        && (!agent.claimed || c->preamble.instance != agent.instance))
    {
        agent_connection_error(c, "gone", "This instance of the sandbox is "
                               "gone.", 0);
        return;
    }

    switch (c->preamble.operation) {

    case SANDBOX_OPERATION_PING:
        agent_engine_ping(c);
        break;

    case SANDBOX_OPERATION_STATUS:
        agent_engine_status(c);
        break;

    case SANDBOX_OPERATION_RESET:
        agent_engine_reset(c);
        break;

    case SANDBOX_OPERATION_DELETE:
        agent_engine_delete(c);
        break;

    default:
        agent_connection_error(c, "bad_request", "The agent does not know "
                               "this operation.", 0);
    }
}


void
agent_engine_ready(void)
{
    agent_connection_t  *c;

    while ((c = agent_engine_parked()) != NULL) {
        agent_connection_release(c);

        if (c->preamble.operation == SANDBOX_OPERATION_RESET) {
            agent_engine_renewed(c);

        } else {
            agent_operation_enter(c);
        }
    }
}


void
agent_engine_failed(const char *code)
{
    const char          *detail;
    agent_connection_t  *c;

    detail = agent_engine_state.phase == AGENT_ENGINE_DELETING
             ? "Not all of the sandbox could be removed; see the agent's log."
             : "The sandbox could not be made; see the agent's log.";

    while ((c = agent_engine_parked()) != NULL) {
        c->parked = 0;
        agent_connection_error(c, code, detail, 5);
    }

    agent_queue_refuse(code, detail);
}


void
agent_engine_deleted(void)
{
    uint8_t              b[64];
    sandbox_writer_t     w;
    agent_connection_t  *c, *next;

    for (c = agent_connection_first(); c != NULL; c = next) {
        next = c->next;

        if (c->parked && c->preamble.operation == SANDBOX_OPERATION_DELETE) {
            agent_connection_release(c);

            sandbox_writer_init(&w, b, sizeof(b));
            sandbox_write_number(&w, SANDBOX_TAG_STATE, c->was);
            agent_engine_answer(c, &w);
        }
    }

    agent_log("the sandbox was deleted: its agent ends");
    agent_engine_stop();
}


void
agent_engine_refuse(void)
{
    agent_connection_t  *c;

    while ((c = agent_engine_parked()) != NULL) {
        c->parked = 0;
        agent_connection_error(c, "fenced", "The agent has ended meanwhile.",
                               0);
    }
}


/* For an operation that needs a sandbox: there is one, or one is made. */

static const char *
agent_engine_need(const sandbox_preamble_t *preamble, const char **detail)
{
    if (preamble->operation > SANDBOX_OPERATION_FILE_SEARCH) {
        *detail = "The agent does not know this operation.";
        return "bad_request";
    }

    if (agent_engine_state.phase == AGENT_ENGINE_DELETING) {

        /* it is parked, and then asked for elsewhere */

        return NULL;
    }

    if (agent_engine_state.phase == AGENT_ENGINE_NONE) {

        if (preamble->instance) {
            *detail = "The sandbox has been replaced by a fresh one.";
            return "gone";
        }

        if (preamble->flags & SANDBOX_FLAG_NO_CREATE) {
            *detail = "The conversation has no sandbox; its first command "
                      "makes one.";
            return "no_sandbox";
        }

        agent_caps_take(preamble);
        agent_engine_capped = 1;
        agent_engine_admitted = 0;

        if (agent_engine_fresh(AGENT_ENGINE_SEEDING) == -1) {
            *detail = "The state of the sandbox can't be written.";
            return errno == ENOSPC ? "disk_full" : "sandbox_failed";
        }
    }

    if (preamble->instance && preamble->instance != agent.instance) {
        *detail = "The sandbox has been replaced by a fresh one.";
        return "gone";
    }

    if (!agent_engine_capped) {
        agent_caps_take(preamble);
        agent_sandbox_memory(agent.caps.memory);
        agent_engine_capped = 1;
        agent_engine_admitted = 1;
    }

    agent_engine_admitted++;

    return NULL;
}


/* They have none that mean anything here, but must be some. */

static int
agent_engine_fields(agent_connection_t *c)
{
    int               rc;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                        c->preamble.head);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {
        /* void */
    }

    return rc == SANDBOX_END ? 0 : -1;
}


static void
agent_engine_ping(agent_connection_t *c)
{
    uint8_t           b[64];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_READY, 1);
    agent_engine_answer(c, &w);
}


static void
agent_engine_status(agent_connection_t *c)
{
    uint8_t           b[512];
    unsigned          state;
    sandbox_writer_t  w;

    state = agent_engine_word();
    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_STATE, state);

    if (state != SANDBOX_STATE_NONE) {
        sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
        sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);
        sandbox_write_number(&w, SANDBOX_TAG_CREATED_MS,
                             agent_engine_state.created_ms);
        sandbox_write_number(&w, SANDBOX_TAG_USED_MS,
                             agent_engine_state.used_ms);
        sandbox_write_number(&w, SANDBOX_TAG_COMMANDS,
                             agent_engine_commands());
        sandbox_write_number(&w, SANDBOX_TAG_RUNNING, agent.running != NULL);
        sandbox_write_number(&w, SANDBOX_TAG_QUEUED, agent.queued);
        sandbox_write_number(&w, SANDBOX_TAG_BACKGROUND,
                             agent_left_processes()
                             + agent_background_processes());

        if (state == SANDBOX_STATE_RUNNING) {
            sandbox_write_number(&w, SANDBOX_TAG_DISK_BYTES, agent.used.disk);
            sandbox_write_number(&w, SANDBOX_TAG_MEMORY_BYTES,
                                 agent.used.memory);
            sandbox_write_number(&w, SANDBOX_TAG_CPU_TOTAL_US, agent.cpu_us);
        }
    }

    agent_engine_answer(c, &w);
}


static void
agent_engine_reset(agent_connection_t *c)
{
    if (agent_engine_state.phase == AGENT_ENGINE_NONE
        && (c->preamble.flags & SANDBOX_FLAG_NO_CREATE))
    {
        agent_connection_error(c, "no_sandbox", "The conversation has no "
                               "sandbox; its first command makes one.", 0);
        return;
    }

    agent_queue_end(SANDBOX_OUTCOME_DELETED);
    agent_caps_take(&c->preamble);
    agent_engine_capped = 1;
    agent_engine_admitted = 2;

    /* of one that is being made nothing has been used: it is fresh */

    if (!agent.preparing
        && agent_engine_fresh(agent_engine_state.phase == AGENT_ENGINE_NONE
                              ? AGENT_ENGINE_SEEDING : AGENT_ENGINE_EMPTYING)
           == -1)
    {
        agent_connection_error(c, errno == ENOSPC ? "disk_full"
                                                  : "sandbox_failed",
                               "The state of the sandbox can't be written.",
                               5);
        return;
    }

    agent_connection_park(c);
}


static void
agent_engine_delete(agent_connection_t *c)
{
    c->was = agent_engine_word();

    if (agent_engine_state.phase == AGENT_ENGINE_DELETING) {
        agent_connection_park(c);
        return;
    }

    if (agent_engine_fresh(AGENT_ENGINE_DELETING) == -1) {
        agent_connection_error(c, "internal", "The state of the sandbox can't "
                               "be written.", 5);
        return;
    }

    agent_queue_end(SANDBOX_OUTCOME_DELETED);
    agent_connection_park(c);
}


static unsigned
agent_engine_word(void)
{
    switch (agent_engine_state.phase) {

    case AGENT_ENGINE_EMPTYING:
    case AGENT_ENGINE_SEEDING:
        return agent.preparing ? SANDBOX_STATE_CREATING
                               : SANDBOX_STATE_FAILED;

    case AGENT_ENGINE_READY:
        return SANDBOX_STATE_RUNNING;

    default:

        /* what is being deleted is nobody's any more */

        return SANDBOX_STATE_NONE;
    }
}


/* The one that was accepted first. */

static agent_connection_t *
agent_engine_parked(void)
{
    agent_connection_t  *c, *first;

    first = NULL;

    for (c = agent_connection_first(); c != NULL; c = c->next) {
        if (c->parked && (first == NULL || c->sequence < first->sequence)) {
            first = c;
        }
    }

    return first;
}


/* HEAD and RESULT, and that is all. */

static void
agent_engine_answer(agent_connection_t *c, const sandbox_writer_t *fields)
{
    size_t            head, size;
    uint8_t           b[1024];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b + SANDBOX_WIRE_FRAME_SIZE, 64);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, 200);
    head = w.pos - w.start;
    sandbox_frame_write(b, SANDBOX_FRAME_HEAD, (uint32_t) head);
    head += SANDBOX_WIRE_FRAME_SIZE;

    size = fields->pos - fields->start;
    sandbox_frame_write(b + head, SANDBOX_FRAME_RESULT, (uint32_t) size);
    head += SANDBOX_WIRE_FRAME_SIZE;
    memcpy(b + head, fields->start, size);

    c->input_left = 0;
    agent_connection_finish(c, b, head + size);
}


static void
agent_engine_renewed(agent_connection_t *c)
{
    uint8_t           b[256];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_STATE, SANDBOX_STATE_RUNNING);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);
    agent_engine_answer(c, &w);
}
