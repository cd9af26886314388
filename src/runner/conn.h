/*
 * Connections of nginx: accepted, looked at, handed on or refused.
 */

#ifndef RUNNER_CONN_H
#define RUNNER_CONN_H

#include "runner.h"


/* Opens the socket, or takes the one that was passed. */
int runner_server_open(runner_t *runner, runner_error_t *err);

/* Accepts no more; removes the socket's file if it is ours. */
void runner_server_close(runner_t *runner);

/*
 * A connection with a descriptor and a request that an agent returned; owns
 * both then.  NULL if it can't be, and both are closed.
 */
runner_conn_t *runner_conn_returned(runner_t *runner, int fd, int memfd);

/*
 * Puts it at the end of a line: PINGs go out, a hang-up takes it away unless
 * an agent returned it, and after RUNNER_CREATE_WAIT it is refused (without
 * a sandbox: RUNNER_REMOVE_WAIT).
 */
void runner_conn_wait(runner_conn_t *conn, runner_queue_t *queue,
    runner_sandbox_t *sandbox);

/* The same for all of a line that an agent has not taken, in their places. */
void runner_conn_wait_again(runner_conn_t *conn, runner_sandbox_t *sandbox);

/* Our copy was sent to an agent: no events any more, it stays in `queue`. */
void runner_conn_sent(runner_conn_t *conn, runner_queue_t *queue);

/* Writes ERROR, reads input away, closes. */
void runner_conn_refuse(runner_conn_t *conn, const char *code,
    const char *detail, unsigned retry_after);

/* Writes HEAD and a RESULT with the fields, closes. */
void runner_conn_answer(runner_conn_t *conn, sandbox_writer_t *fields);

/* Sends whole frames of its own, which it frees, and closes. */
void runner_conn_send(runner_conn_t *conn, uint8_t *frames, size_t size);

/* 1: the peer is root. */
int runner_conn_root(const runner_conn_t *conn);

/* Closes it without a word: the peer may try again. */
void runner_conn_close(runner_conn_t *conn);


#endif /* RUNNER_CONN_H */
