/*
 * A start while the disk of the state is full.
 */

#ifndef RUNNER_ROOM_H
#define RUNNER_ROOM_H

#include "runner.h"


/*
 * The probe had no room.  Where there are sandboxes the runner starts
 * nevertheless: those that live are served, and deleting makes room; none is
 * made or woken before the probe has passed.  -1: there are none, so `err`
 * stays.
 */
int runner_room_wanted(runner_host_t *host, runner_error_t *err);

/* In a job: not before the probe has passed.  0, or -1. */
int runner_room_denied(runner_host_t *host, runner_error_t *err);

/* Each second: the probe again, once there is room for it. */
void runner_room_tick(runner_t *runner);


#endif /* RUNNER_ROOM_H */
