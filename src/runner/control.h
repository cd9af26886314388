/*
 * The control channel to one agent.
 */

#ifndef RUNNER_CONTROL_H
#define RUNNER_CONTROL_H

#include "runner.h"


#define RUNNER_CONTROL_OK      0
#define RUNNER_CONTROL_AGAIN  -1                 /* flush() will be called */
#define RUNNER_CONTROL_BROKEN -2                 /* and dealt with */
#define RUNNER_CONTROL_HELD   -3                 /* it will be tried again */


/* Handler of the socket's events. */
void runner_control_event(runner_event_t *event, uint32_t events);

/* Tells an agent whose sandbox it is; once in its life. */
int runner_control_claim(runner_container_t *container);

/* Hands a connection over; a run slot goes with it if one is free. */
int runner_control_conn(runner_container_t *container, runner_conn_t *conn);

/* Tells it of its policy: fields of EGRESS, and a descriptor or -1. */
int runner_control_egress(runner_container_t *container,
    sandbox_writer_t *fields, int fd);

/* One run slot; it goes out when the socket has room. */
void runner_control_grant(runner_container_t *container);

/* Sends what waits: STOP, GRANT, connections. */
void runner_control_flush(runner_container_t *container);

/* Reads what its agent has said, before others are told of it. */
void runner_control_hear(runner_container_t *container);

/* Reads the last words of an agent that is being ended. */
void runner_control_drain(runner_container_t *container);


#endif /* RUNNER_CONTROL_H */
