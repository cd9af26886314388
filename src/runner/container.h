/*
 * A container's life in the event loop: made, opened, ended, taken apart.
 * What blocks is done by jobs.
 */

#ifndef RUNNER_CONTAINER_H
#define RUNNER_CONTAINER_H

#include "runner.h"


/*
 * A container that does not exist yet: limits are MiB, MiB, a count; 0 is the
 * runner's default.  NULL without memory.
 */
runner_container_t *runner_container_new(runner_t *runner, uint32_t memory,
    uint32_t disk, uint32_t processes);

/* One that an earlier runner left, described by its record. */
runner_container_t *runner_container_found(runner_t *runner,
    const runner_record_t *record);

/* Makes it from nothing; or from the disk that it has. */
void runner_container_create(runner_container_t *container);
void runner_container_start(runner_container_t *container);

/* Takes over the living agent.  0, or -1: there is none. */
int runner_container_adopt(runner_container_t *container);

/*
 * Ends it: commands with this outcome.  Its disk goes, too, with `destroy`.
 * It may be called in any state, and again.
 */
void runner_container_end(runner_container_t *container,
    sandbox_outcome_e outcome, int destroy);

/* What is left of one that has no living agent is taken apart. */
void runner_container_clean(runner_container_t *container);

/*
 * Opens the history on the disk of a stopped one, then tells its sandbox;
 * until then it is as if it were taken apart.
 */
void runner_container_history(runner_container_t *container);

/* The agent misbehaves or is of no use: ends it at once. */
void runner_container_kill(runner_container_t *container, const char *why);

/*
 * A connection was handed over; or, with `taken`, one was taken.  An agent that
 * takes none for 2 * RUNNER_TAKE_WAIT while some are there is killed, later if
 * it only waits for a processor, and they go to its successor.
 */
void runner_container_watch(runner_container_t *container, int taken);

/* The control channel has ended; the agent should, too. */
void runner_container_broken(runner_container_t *container);

/* One that is being deleted for this session, NULL if there is none. */
runner_container_t *runner_container_dying(runner_t *runner,
    const uint8_t *session);

/* 1: connections can be handed to it. */
int runner_container_usable(const runner_container_t *container);

/* Until when, in ms, it may be made: others may come first.  0: it is not. */
uint64_t runner_container_due(const runner_container_t *container);


#endif /* RUNNER_CONTAINER_H */
