/*
 * What is told of sandboxes: of one, of many, and of the host in numbers.
 */

#ifndef RUNNER_TELL_H
#define RUNNER_TELL_H

#include "runner.h"


/* All fields of STATUS; sandbox NULL: there is none. */
void runner_tell_status(runner_sandbox_t *sandbox, sandbox_writer_t *w);

/* How many there are of what, and the limits in force. */
void runner_tell_host(runner_t *runner, sandbox_writer_t *w);

/* SESSIONS: answers conn. */
void runner_tell_sessions(runner_conn_t *conn, const uint8_t *head);


#endif /* RUNNER_TELL_H */
