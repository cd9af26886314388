/*
 * From one sandbox to the next, and to none, in place: its processes end, its
 * files go, the home is filled from the base.  What is under way stands in the
 * state before it begins, so an agent that comes after a crash goes on with
 * it.  Nothing starts meanwhile; a step takes some milliseconds.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_engine.h"
#include "agent_file.h"
#include "agent_stage.h"


#define AGENT_FRESH_SWEEP  30000         /* ms, until all have ended */
#define AGENT_FRESH_AGAIN  2             /* ms, between two looks */


typedef enum {
    AGENT_FRESH_IDLE = 0,
    AGENT_FRESH_SWEEPING,
    AGENT_FRESH_EMPTYING,
    AGENT_FRESH_SEEDING
} agent_fresh_step_e;


static void agent_engine_fresh_claim(void);
static void agent_engine_fresh_begin(void);
static void agent_engine_fresh_cut(void);
static void agent_engine_fresh_work(agent_timer_t *timer);
static int agent_engine_fresh_sweep(void);
static int agent_engine_fresh_emptied(void);
static int agent_engine_fresh_seeded(void);
static void agent_engine_fresh_fail(int error);


static agent_fresh_step_e  agent_engine_fresh_step;
static uint64_t            agent_engine_fresh_deadline;
static agent_timer_t       agent_engine_fresh_timer = {
    .handler = agent_engine_fresh_work
};


int
agent_engine_fresh(agent_engine_phase_e phase)
{
    int                   error;
    agent_engine_state_t  before;

    before = agent_engine_state;

    if (phase != AGENT_ENGINE_DELETING && agent_engine_state_next() == -1) {
        return -1;
    }

    agent_engine_state.phase = phase;

    if (phase == AGENT_ENGINE_DELETING && before.phase == AGENT_ENGINE_NONE
        && agent_engine_state_next() == -1)
    {
        agent_engine_state = before;
        return -1;
    }

    if (agent_engine_state_write(agent_engine_meta()) == -1) {
        error = errno;
        agent_log("the state can't be written to " AGENT_PLACE ": error %d",
                  error);
        agent_engine_state = before;
        errno = error;
        return -1;
    }

    if (phase != AGENT_ENGINE_DELETING) {
        agent_engine_fresh_claim();
    }

    agent_engine_fresh_begin();

    return 0;
}


void
agent_engine_resume(void)
{
    if (agent_engine_fresh_step != AGENT_FRESH_IDLE) {
        return;
    }

    switch (agent_engine_state.phase) {

    case AGENT_ENGINE_READY:
        if (agent_engine_volume_known(AGENT_HOME, &agent_engine_state.home)
            || agent_engine_volume_known("/skills",
                                         &agent_engine_state.skills))
        {
            agent_log("a volume of the sandbox is not the one that it had: "
                      "it becomes another sandbox");

            if (agent_engine_fresh(AGENT_ENGINE_SEEDING) == 0) {
                return;
            }
        }

        agent_engine_fresh_claim();
        break;

    case AGENT_ENGINE_EMPTYING:
    case AGENT_ENGINE_SEEDING:
        agent_engine_fresh_claim();

        /* fall through */

    case AGENT_ENGINE_DELETING:
        agent_engine_fresh_begin();
        break;

    default:
        break;
    }
}


/* All that wait stay where they are, behind the one that wants it. */

void
agent_engine_replace(void)
{
    int                  rc;
    agent_command_t     *front;
    sandbox_preamble_t   preamble;

    front = agent_queue_first();
    front->fresh = 0;

    if (agent_engine_unused()) {

        /* the sandbox was made for it just now */

        return;
    }

    if (sandbox_preamble_read(front->raw, &preamble) == SANDBOX_OK) {
        agent_caps_take(&preamble);
    }

    agent_queue_leave(SANDBOX_OUTCOME_DELETED);
    rc = agent_engine_fresh(AGENT_ENGINE_EMPTYING);

    if (rc == -1) {
        agent_queue_refuse(errno == ENOSPC ? "disk_full" : "sandbox_failed",
                           "The state of the sandbox can't be written.");
        return;
    }

    front->created = 1;
    agent.created = 0;
}


int
agent_engine_delete_all(void)
{
    int  rc;

    /* nothing runs yet, and nobody is heard */

    do {
        rc = agent_engine_empty(1);
    } while (rc == EAGAIN);

    agent_engine_empty_end();

    if (rc == 0 && unlinkat(agent_engine_meta(), "state", 0) == -1) {
        rc = errno;
    }

    if (rc == 0) {
        memset(&agent_engine_state, 0, sizeof(agent_engine_state));
    }

    return rc;
}


/* The agent's own idea of the sandbox is that of the state. */

static void
agent_engine_fresh_claim(void)
{
    agent_engine_state_t  *state;

    state = &agent_engine_state;

    if (!agent.claimed) {
        (void) agent_sandbox_claim(agent.session, state->instance,
                                   (uint8_t *) state->id,
                                   SANDBOX_WIRE_SANDBOX_ID_SIZE,
                                   !state->told, agent.caps.memory);
        agent_history_load(-1);
        return;
    }

    if (agent.instance != state->instance) {
        agent_sandbox_renew(state->instance, state->id, agent.caps.memory);
        agent_caps_removed();
    }
}


static void
agent_engine_fresh_begin(void)
{
    agent.preparing = 1;
    agent_engine_empty_end();
    agent_engine_seed_end();
    agent_stage_forget();

    if (agent_engine_state.phase != AGENT_ENGINE_SEEDING) {
        agent_engine_fresh_cut();
    }

    agent_engine_fresh_step = AGENT_FRESH_SWEEPING;
    agent_engine_fresh_deadline = agent_now_ms() + AGENT_FRESH_SWEEP;
    agent_timer_set(&agent_engine_fresh_timer, 1);
}


/* Who works with files that go hears of it. */

static void
agent_engine_fresh_cut(void)
{
    agent_connection_t  *c, *next;

    for (c = agent_connection_first(); c != NULL; c = next) {
        next = c->next;

        if (c->state == AGENT_CONNECTION_FILE) {
            agent_connection_error(c, "gone", "The sandbox was ended "
                                   "meanwhile.", 0);
        }
    }
}


static void
agent_engine_fresh_work(agent_timer_t *timer)
{
    int  rc;

    rc = 0;

    switch (agent_engine_fresh_step) {

    case AGENT_FRESH_IDLE:
        return;

    case AGENT_FRESH_SWEEPING:
        rc = agent_engine_fresh_sweep();

        if (rc == 0) {
            agent_engine_fresh_step
                = agent_engine_state.phase == AGENT_ENGINE_SEEDING
                  ? AGENT_FRESH_SEEDING : AGENT_FRESH_EMPTYING;
            rc = EAGAIN;
        }

        break;

    case AGENT_FRESH_EMPTYING:
        rc = agent_engine_empty(agent_engine_state.phase
                                == AGENT_ENGINE_DELETING);

        if (rc == 0) {
            rc = agent_engine_fresh_emptied();
        }

        break;

    case AGENT_FRESH_SEEDING:
        rc = agent_engine_seed();

        if (rc == 0) {
            rc = agent_engine_fresh_seeded();
        }

        break;
    }

    if (rc == EAGAIN) {
        agent_timer_set(timer, agent_engine_fresh_step == AGENT_FRESH_SWEEPING
                               ? AGENT_FRESH_AGAIN : 1);

    } else if (rc) {
        agent_engine_fresh_fail(rc);
    }
}


/*
 * There is no cgroup: all in this namespace but the agent is the sandbox's.
 * Who can't be ended must not see the next one: then the container goes.
 */

static int
agent_engine_fresh_sweep(void)
{
    int  rc;

    rc = agent_guard_sweep();

    if (rc == -1 && errno != ESRCH) {
        return errno;
    }

    agent_reap();
    agent_left_look();

    if (rc == -1 && agent.running == NULL && agent.background == 0
        && agent.left == 0)
    {
        agent_engine_ipc();
        return 0;
    }

    if (agent_now_ms() > agent_engine_fresh_deadline) {
        agent_log("a process of the sandbox does not end within 30 s: its "
                  "container ends");
        exit(1);
    }

    return EAGAIN;
}


static int
agent_engine_fresh_emptied(void)
{
    int  meta;

    meta = agent_engine_meta();

    if (agent_engine_state.phase == AGENT_ENGINE_DELETING) {

        if (unlinkat(meta, "state", 0) == -1 && errno != ENOENT) {
            return errno;
        }

        agent_engine_state.phase = AGENT_ENGINE_NONE;
        agent_engine_fresh_step = AGENT_FRESH_IDLE;
        agent_engine_deleted();

        return 0;
    }

    agent_engine_state.phase = AGENT_ENGINE_SEEDING;

    if (agent_engine_state_write(meta) == -1) {
        agent_engine_state.phase = AGENT_ENGINE_EMPTYING;
        return errno;
    }

    agent_engine_fresh_step = AGENT_FRESH_SEEDING;

    return EAGAIN;
}


static int
agent_engine_fresh_seeded(void)
{
    agent_engine_volume_mark(AGENT_HOME, &agent_engine_state.home);
    agent_engine_volume_mark("/skills", &agent_engine_state.skills);
    agent_engine_state.phase = AGENT_ENGINE_READY;

    if (agent_engine_state_write(agent_engine_meta()) == -1) {
        agent_engine_state.phase = AGENT_ENGINE_SEEDING;
        return errno;
    }

    agent_engine_fresh_step = AGENT_FRESH_IDLE;
    agent.preparing = 0;
    agent_engine_ready();
    agent_queue_process();

    return 0;
}


/* The next operation tries once more, from the phase that the state has. */

static void
agent_engine_fresh_fail(int error)
{
    agent_log("the sandbox can't be prepared, or removed: error %d, %s",
              error, strerror(error));

    agent_engine_fresh_step = AGENT_FRESH_IDLE;
    agent.preparing = 0;
    agent_engine_empty_end();
    agent_engine_seed_end();

    agent_engine_failed(error == ENOSPC || error == EDQUOT
                        ? "disk_full" : "sandbox_failed");
}
