/*
 * Whose sandbox this is, and who may use it.  Claimed once in a life; every
 * request must name the same session.
 */

#include "agent.h"

#include <string.h>
#include <sys/random.h>

#include "agent_caps.h"


static int agent_sandbox_claim_self(const sandbox_preamble_t *preamble);


agent_t  agent = { .request_limit = AGENT_MAX_REQUESTS };


int
agent_sandbox_claim(const uint8_t *session, uint64_t instance,
    const uint8_t *id, size_t id_size, int created, uint64_t memory)
{
    if (agent.claimed) {

        /* a runner that adopts us may say again what holds already */

        return sandbox_equal(agent.session, session, sizeof(agent.session))
               && agent.instance == instance ? 0 : -1;
    }

    if (instance == 0 || id_size == 0
        || id_size > SANDBOX_WIRE_SANDBOX_ID_SIZE
        || memchr(id, '\0', id_size) != NULL)
    {
        return -1;
    }

    memcpy(agent.session, session, sizeof(agent.session));
    memcpy(agent.sandbox_id, id, id_size);
    agent.sandbox_id[id_size] = '\0';
    agent.instance = instance;
    agent.created = created;
    agent.claimed = 1;

    agent_sandbox_memory(memory);

    return 0;
}


void
agent_sandbox_renew(uint64_t instance, const char *id, uint64_t memory)
{
    strcpy(agent.sandbox_id, id);
    agent.instance = instance;
    agent.created = 1;
    agent_sandbox_memory(memory);
}


void
agent_sandbox_memory(uint64_t memory)
{
    uint64_t  limit;

    agent.memory = memory;

    if (memory == 0) {
        agent.request_limit = AGENT_MAX_REQUESTS;
        return;
    }

    /* requests lie in the sandbox's own memory, with what they start */

    limit = memory / AGENT_REQUESTS_SHARE;
    agent.request_limit = limit < AGENT_MIN_REQUESTS ? AGENT_MIN_REQUESTS
                          : limit > AGENT_MAX_REQUESTS ? AGENT_MAX_REQUESTS
                          : (size_t) limit;
}


int
agent_sandbox_id(char *id)
{
    char               *p;
    uint8_t             random[10];
    unsigned            i;
    static const char   hex[] = "0123456789abcdef";

    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        return -1;
    }

    memcpy(id, "sbx_", 4);
    p = id + 4;

    for (i = 0; i < sizeof(random); i++) {
        *p++ = hex[random[i] >> 4];
        *p++ = hex[random[i] & 15];
    }

    *p = '\0';

    return 0;
}


const char *
agent_sandbox_admit(const sandbox_preamble_t *preamble, int returned,
    const char **detail)
{
    if (agent.host != NULL) {
        return agent.host->admit(preamble, detail);
    }

    if (agent.tcp) {
        if (!sandbox_equal(preamble->key, agent.secret,
                           sizeof(agent.secret)))
        {
            *detail = "The secret of the agent is another one.";
            return "unauthorized_peer";
        }

        if (!agent.claimed
            && agent_sandbox_claim_self(preamble) == -1)
        {
            *detail = "No random numbers for an id of the sandbox.";
            return "internal";
        }
    }

    if (!agent.claimed) {
        *detail = "The sandbox belongs to no session yet.";
        return "sandbox_failed";
    }

    if (!sandbox_equal(preamble->session, agent.session,
                       sizeof(agent.session)))
    {
        *detail = "The sandbox belongs to another session.";
        return "bad_request";
    }

    /* one that was handed back had the instance of the agent before us */

    if (preamble->instance && preamble->instance != agent.instance
        && !returned)
    {
        *detail = "The sandbox has been replaced by a fresh one.";
        return "gone";
    }

    if (preamble->operation < SANDBOX_OPERATION_COMMAND
        || preamble->operation > SANDBOX_OPERATION_FILE_SEARCH)
    {
        *detail = "The agent does not know this operation.";
        return "bad_request";
    }

    return NULL;
}


static int
agent_sandbox_claim_self(const sandbox_preamble_t *preamble)
{
    char  id[SANDBOX_WIRE_SANDBOX_ID_SIZE + 1];

    if (agent_sandbox_id(id) == -1) {
        return -1;
    }

    agent_caps_take(preamble);

    return agent_sandbox_claim(preamble->session, 1, (uint8_t *) id,
                               SANDBOX_WIRE_SANDBOX_ID_SIZE, 1,
                               agent.caps.memory);
}
