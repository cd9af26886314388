/*
 * The caps of a sandbox that no cgroup holds, as in a container of an engine:
 * the agent watches memory, processes and disk itself.  Best effort: what is
 * over a cap is found some moments later, and ended then.
 */

#ifndef AGENT_CAPS_H
#define AGENT_CAPS_H

#include <stdint.h>

#include "sandbox_wire.h"


/*
 * Those of a preamble hold from now on: of the first operation in the agent's
 * life that may create, and of each that makes the sandbox a fresh one.
 */
void agent_caps_take(const sandbox_preamble_t *preamble);


#endif /* AGENT_CAPS_H */
