/*
 * Operations that end at the runner: PING, STATUS, DELETE, RESET.
 */

#ifndef RUNNER_OPERATION_H
#define RUNNER_OPERATION_H

#include "runner.h"


/*
 * Begins with a connection whose preamble has been checked; its state is
 * RUNNER_CONN_HEAD afterwards if the head has not come yet.
 */
void runner_operation_start(runner_conn_t *conn);

/* More of the head may be there. */
void runner_operation_read(runner_conn_t *conn);

/* The sandbox is ready: answers its RESETs. */
void runner_operation_reset_done(runner_sandbox_t *sandbox);

/* Container and files are gone: answers DELETEs; failed: they are not. */
void runner_operation_delete_done(runner_container_t *container, int failed);


#endif /* RUNNER_OPERATION_H */
