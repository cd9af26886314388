/*
 * Is this host able to run a sandbox?  The only proof is to run one.
 */

#ifndef RUNNER_PROBE_H
#define RUNNER_PROBE_H

#include "host.h"


/*
 * Chooses the runtime (crun, then runc, or the one that was asked for) by
 * running a whole sandbox with it: agent, claim, hand-over, one command.
 * With `verbose` what works is told on stdout, a line each: "ok   ...".
 * Blocking; before any thread is started.
 */
int runner_probe(runner_host_t *host, int verbose, runner_error_t *err);

/* That one sandbox, with the runtime that was chosen; on any thread. */
int runner_probe_again(runner_host_t *host, runner_error_t *err);

/* What an error is about, in a word or two. */
const char *runner_probe_title(const runner_error_t *err);


#endif /* RUNNER_PROBE_H */
