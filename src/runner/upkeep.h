/*
 * What happens without being asked: taking over what an earlier runner left,
 * idle stops, syncs, the end.
 */

#ifndef RUNNER_UPKEEP_H
#define RUNNER_UPKEEP_H

#include "runner.h"


/*
 * Reads all records: takes over living agents, keeps stopped sandboxes,
 * finishes deletions, clears what belongs to nobody.  Once at start.
 */
void runner_upkeep_found(runner_t *runner);

/* Starts the clock. */
void runner_upkeep_start(runner_t *runner);

/*
 * Ends everything as `mode` says.  0 when that is done, -1 if it was not in
 * time: then a job may hang, and to wait for it could be for ever.
 */
int runner_upkeep_end(runner_t *runner, runner_mode_e mode);


#endif /* RUNNER_UPKEEP_H */
