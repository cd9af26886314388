/*
 * Which sessions have a sandbox, and who used theirs last.
 */

#ifndef RUNNER_SESSION_H
#define RUNNER_SESSION_H

#include "runner.h"


/* A session's sandbox, NULL if it has none. */
runner_sandbox_t *runner_sandbox_find(runner_t *runner,
    const uint8_t *session);

/* A new entry without container; NULL without memory. */
runner_sandbox_t *runner_session_add(runner_t *runner, const uint8_t *session,
    const uint8_t *tenant);

/* Forgets it; no connection waits for it, and it has no container. */
void runner_session_remove(runner_sandbox_t *sandbox);

/* Its container counts against the limits, or no more. */
void runner_session_live(runner_sandbox_t *sandbox, int live);

/* It is in use now. */
void runner_session_touch(runner_sandbox_t *sandbox);

/* 1: something runs in it, or waits there; and one that waits for it, too. */
int runner_session_works(const runner_sandbox_t *sandbox);
int runner_session_busy(const runner_sandbox_t *sandbox);

/* Stops those that have been idle for too long. */
void runner_session_idle(runner_t *runner);

/* Removes those that nobody has used for so long, where that is wanted. */
void runner_session_expire(runner_t *runner);

/* Counts its waiting commands anew. */
void runner_session_load(runner_sandbox_t *sandbox);

/*
 * A command that was handed over without a run slot waits from then on: until
 * the agent's next report, which has it, or some seconds after it was taken,
 * since one that was refused or known already changes no report.
 */
void runner_session_sent(runner_sandbox_t *sandbox, runner_conn_t *conn);
void runner_session_taken(runner_sandbox_t *sandbox, runner_conn_t *conn);
void runner_session_settled(runner_sandbox_t *sandbox);
void runner_session_sent_none(runner_sandbox_t *sandbox);

/* Once a second: forgets what was taken long enough ago. */
void runner_session_tick(runner_t *runner);

/* A number that no instance has had. */
uint64_t runner_session_instance(runner_t *runner);


#endif /* RUNNER_SESSION_H */
