/*
 * What a service manager is told.  Without one nothing happens.
 */

#ifndef RUNNER_NOTIFY_H
#define RUNNER_NOTIFY_H


/*
 * Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them, and
 * those of socket activation, out of the environment: they are for us alone.
 */
void runner_notify_start(void);

void runner_notify_ready(void);
void runner_notify_stopping(void);

/* At least twice in the time that the manager wants. */
void runner_notify_alive(void);


#endif /* RUNNER_NOTIFY_H */
