/*
 * Draining: before work on the host all sandboxes stop, and their files stay.
 */

#ifndef RUNNER_DRAIN_H
#define RUNNER_DRAIN_H

#include "runner.h"


/*
 * No sandbox starts from now on; those that are busy have `ms` to come to an
 * end.  The connection is answered when all have stopped.
 */
void runner_drain(runner_conn_t *conn, uint64_t ms);

/* All is as before. */
void runner_drain_end(runner_t *runner);

/* Once a second. */
void runner_drain_tick(runner_t *runner);


#endif /* RUNNER_DRAIN_H */
