/*
 * What may be: one more container, one more command that waits.
 */

#ifndef RUNNER_ADMIT_H
#define RUNNER_ADMIT_H

#include "runner.h"


#define RUNNER_ADMIT_DETAIL  256


/* a refusal; code NULL: there is none */

typedef struct {
    const char  *code;
    unsigned     retry_after;
    char         detail[RUNNER_ADMIT_DETAIL];
} runner_refusal_t;


/*
 * May a container of this sandbox run?  It is counted then, and for it the
 * least recently used idle ones may be stopped.  0, or -1 and the refusal.
 */
int runner_admit_sandbox(runner_sandbox_t *sandbox,
    runner_refusal_t *refusal);

/* May anything start?  0, or -1 and the refusal. */
int runner_admit(runner_t *runner, runner_refusal_t *refusal);

/* May a command of this tenant wait?  0, or -1 and the refusal. */
int runner_admit_command(runner_t *runner, const uint8_t *tenant,
    runner_refusal_t *refusal);


#endif /* RUNNER_ADMIT_H */
