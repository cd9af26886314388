/*
 * The caps that a preamble brings.  Knows nothing of how they are held.
 */

#include "agent.h"

#include "agent_caps.h"


#define AGENT_CAPS_MIB         ((uint64_t) 1024 * 1024)

/* where the preamble has none */

#define AGENT_CAPS_MEMORY      (1024 * AGENT_CAPS_MIB)
#define AGENT_CAPS_DISK        (1024 * AGENT_CAPS_MIB)
#define AGENT_CAPS_PROCESSES   256


void
agent_caps_take(const sandbox_preamble_t *preamble)
{
    agent.caps.memory = preamble->memory * AGENT_CAPS_MIB;
    agent.caps.disk = preamble->disk * AGENT_CAPS_MIB;
    agent.caps.processes = preamble->processes;

    if (agent.caps.memory == 0) {
        agent.caps.memory = AGENT_CAPS_MEMORY;
    }

    if (agent.caps.disk == 0) {
        agent.caps.disk = AGENT_CAPS_DISK;
    }

    if (agent.caps.processes == 0) {
        agent.caps.processes = AGENT_CAPS_PROCESSES;
    }
}
