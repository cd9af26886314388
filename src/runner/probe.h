/*
 * Is this host able to run a sandbox?  The only proof is to run one.
 */

#ifndef RUNNER_PROBE_H
#define RUNNER_PROBE_H

#include "host.h"


/*
 * Chooses the runtime (crun, then runc, or the one that was asked for) by
 * running a whole sandbox with it: agent, claim, hand-over, one command.
 * With `verbose` each step is a line on stdout, "ok   ..." or "FAIL ...".
 * Blocking; before any thread is started.
 */
int runner_probe(runner_host_t *host, int verbose, runner_error_t *err);


#endif /* RUNNER_PROBE_H */
