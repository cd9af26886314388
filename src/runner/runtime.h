/*
 * The OCI runtime, crun or runc, run as a program.
 */

#ifndef RUNNER_RUNTIME_H
#define RUNNER_RUNTIME_H

#include <limits.h>
#include <stdint.h>

#include "cgroup.h"
#include "error.h"


typedef struct {
    char      path[PATH_MAX];
    char      version[64];               /* "crun 1.8.1" */
    char      state[PATH_MAX];           /* its --root directory */
    char      prefix[48];                /* of container names */
    uint64_t  descriptors;               /* RLIMIT_NOFILE of containers */
} runner_runtime_t;


/*
 * Finds the program by name or path and asks for its version.
 */
int runner_runtime_find(runner_runtime_t *runtime, const char *name,
    runner_error_t *err);

/*
 * Runs the bundle in a directory (config.json), detached; the pid of the
 * container goes into the file "pid" there, what runtime and agent say into
 * the descriptor `log`.  `control`, the descriptors of `group` and `history`
 * become 3 to 7 inside.  Blocking, at most 30 s.  Returns the pid, or -1.
 */
pid_t runner_runtime_run(runner_runtime_t *runtime, unsigned number,
    int bundle, int log, int control, int history,
    const runner_cgroup_t *group, runner_error_t *err);

/* Ends and forgets a container; no error if there is none. */
void runner_runtime_delete(runner_runtime_t *runtime, unsigned number);


#endif /* RUNNER_RUNTIME_H */
