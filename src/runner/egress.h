/*
 * Egress: which policy a sandbox has, the listener inside of it, and the proxy
 * that serves all of them.  docs/wire.md, "Egress".
 */

#ifndef RUNNER_EGRESS_H
#define RUNNER_EGRESS_H

#include "runner.h"


/* Reads the table that was kept.  0, or -1 without memory. */
int runner_egress_start(runner_t *runner, runner_error_t *err);

/* Ends the proxy. */
void runner_egress_end(runner_t *runner);

/*
 * Before a connection is handed over: its sandbox gets the policy that it
 * came with, and the agent is told of it.  RUNNER_CONTROL_OK, ..._AGAIN,
 * ..._BROKEN, or ..._HELD: it waits for the table, and will be tried again.
 */
int runner_egress_conn(runner_container_t *container, runner_conn_t *conn);

/* Tells its agent, as that.  Called while container->egress_tell is set. */
int runner_egress_tell(runner_container_t *container);

/* Its READY came; one that was taken over gets its listener anew. */
void runner_egress_ready(runner_container_t *container);

/* Nobody is in there any more. */
void runner_egress_closed(runner_container_t *container);

/* EGRESS: begins, more of it may be there, and its connection is closed. */
void runner_egress_operation(runner_conn_t *conn);
void runner_egress_read(runner_conn_t *conn);
void runner_egress_left(runner_conn_t *conn);

/* EGRESS_DIGEST and EGRESS_COUNTs, of a PING. */
void runner_egress_fields(runner_t *runner, sandbox_writer_t *w);


#endif /* RUNNER_EGRESS_H */
