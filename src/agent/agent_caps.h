/*
 * The caps of a sandbox that no cgroup holds, as in a container of an engine:
 * the agent watches memory, processes and disk itself.  Best effort: what is
 * over a cap is found some moments later, and ended then.
 */

#ifndef AGENT_CAPS_H
#define AGENT_CAPS_H

#include <stdint.h>
#include <sys/resource.h>

#include "agent.h"
#include "sandbox_wire.h"


/*
 * Those of a preamble hold from now on: of the first operation in the agent's
 * life that may create, and of each that makes the sandbox a fresh one.
 */
void agent_caps_take(const sandbox_preamble_t *preamble);

/* A command is about to start: something is to be watched. */
void agent_caps_start(void);

/*
 * What its keeper says: the most memory that one of its processes had, and
 * what all of them wrote to disks.
 */
void agent_caps_ended(pid_t keeper, uint64_t memory, uint64_t written);

/* 1: it failed, and the disk is looked at, which may be why: not for long. */
int agent_caps_settle(agent_command_t *command);

/* Looks at the disk at once, and for a while, where there is no time later. */
void agent_caps_now(void);

/* 1: the disk of the sandbox is full, as far as that is known. */
int agent_caps_full(void);

/* 1: it has room for so many bytes more, as far as that is known. */
int agent_caps_room(uint64_t bytes);

/* So many were written: it is looked at again. */
void agent_caps_written(uint64_t bytes);

/* Something was removed, or may be: it is not known how full the disk is. */
void agent_caps_removed(void);

/* Bytes that a file of a command's may have. */
rlim_t agent_caps_file(void);

/* How many tasks the user of commands may have, of all containers. */
rlim_t agent_caps_tasks(void);


#endif /* AGENT_CAPS_H */
