/*
 * The socket that nginx connects to: our own, or one that somebody holds
 * for us and that outlives us.  Knows no event loop.
 */

#ifndef RUNNER_LISTEN_H
#define RUNNER_LISTEN_H

#include "error.h"
#include "options.h"


/* One that was passed is ours alone from here on.  -1: nginx can't use it. */
int runner_listen_check(const runner_options_t *options, runner_error_t *err);

/*
 * The listening socket, nonblocking.  `ours` is set where its file is to be
 * removed at the end.  -1 with a text that says what to do.
 */
int runner_listen(const runner_options_t *options, int *ours,
    runner_error_t *err);


#endif /* RUNNER_LISTEN_H */
