/*
 * Keepers of commands' processes, and what is found below them.
 */

#ifndef AGENT_KEEPER_H
#define AGENT_KEEPER_H

#include "agent.h"


/* in the shell's process; never returns */
typedef void (*agent_keeper_shell_t)(const agent_program_t *program);


/* 0, or -1 and errno.  Without it nobody has a keeper. */
int agent_keeper_init(void);

/* The keeper's pid, or -1 and errno. */
pid_t agent_keeper_start(const agent_program_t *program,
    agent_keeper_shell_t shell);

/* Takes what keepers have said; before anything is waited for. */
void agent_keeper_read(void);


/* agent_descendants.c: by /proc, with a bound of 8,192 processes. */

/* How many there are that have not ended, the keeper not among them. */
unsigned agent_descendants_count(pid_t keeper);

/* Kills them all; they are stopped before, so that nobody forks meanwhile. */
void agent_descendants_kill(pid_t keeper);

/* Microseconds of all that ever were, those that the keeper has buried too. */
uint64_t agent_descendants_cpu(pid_t keeper);


#endif /* AGENT_KEEPER_H */
