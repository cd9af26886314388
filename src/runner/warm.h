/*
 * The base in the page cache: what the first command reads comes from memory.
 */

#ifndef RUNNER_WARM_H
#define RUNNER_WARM_H

#include "runner.h"


/* Begins, with low priority; ends early when the runner does. */
void runner_warm_start(runner_t *runner);


#endif /* RUNNER_WARM_H */
