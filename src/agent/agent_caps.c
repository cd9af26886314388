/*
 * The caps of a sandbox that no cgroup holds: what they are, and who is to
 * end when one is exceeded.  What is used it asks others.
 */

#include "agent.h"

#include "agent_caps.h"


void
agent_caps_take(const sandbox_preamble_t *preamble)
{
    agent.caps.memory = (uint64_t) preamble->memory << 20;
    agent.caps.disk = (uint64_t) preamble->disk << 20;
    agent.caps.processes = preamble->processes;
}
