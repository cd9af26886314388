/*
 * A session's sandbox: requests come in, containers come and go below it.
 */

#ifndef RUNNER_SANDBOX_H
#define RUNNER_SANDBOX_H

#include "runner.h"
#include "session.h"


/*
 * A request for an agent, with its preamble checked: hands it over, lets it
 * wait while a sandbox is made or woken, or refuses it.
 */
void runner_sandbox_route(runner_conn_t *conn);

/* A connection that waited has left; counts anew. */
void runner_sandbox_conn_left(runner_sandbox_t *sandbox);

/* Hands over what waits.  RUNNER_CONTROL_AGAIN: not all of it went. */
int runner_sandbox_flush(runner_sandbox_t *sandbox);

/* Told by its container. */
void runner_sandbox_ready(runner_sandbox_t *sandbox);
void runner_sandbox_lost(runner_sandbox_t *sandbox, int failed);
void runner_sandbox_stopped(runner_sandbox_t *sandbox);
void runner_sandbox_not_created(runner_sandbox_t *sandbox,
    const runner_error_t *err);
void runner_sandbox_not_started(runner_sandbox_t *sandbox,
    const runner_error_t *err);

/* Told by its agent. */
void runner_sandbox_want(runner_sandbox_t *sandbox);
void runner_sandbox_report(runner_sandbox_t *sandbox,
    const runner_report_t *report);
void runner_sandbox_replace(runner_sandbox_t *sandbox);

/* Gives free run slots to those whose turn it is. */
void runner_sandbox_grant(runner_t *runner);

/* sandbox_state_e; NULL is "none". */
unsigned runner_sandbox_state(const runner_sandbox_t *sandbox);

/* Ends the session's sandbox, files and all.  The container that is going. */
runner_container_t *runner_sandbox_delete(runner_sandbox_t *sandbox);

/* A fresh one for the session (sandbox is NULL: the first); answers conn. */
void runner_sandbox_reset(runner_conn_t *conn, runner_sandbox_t *sandbox);

/* The same, now that its history is open; answers those that wait for it. */
void runner_sandbox_renew(runner_sandbox_t *sandbox);

/* One that an earlier runner left; its container is stopped. */
runner_sandbox_t *runner_sandbox_found(runner_container_t *container);


#endif /* RUNNER_SANDBOX_H */
