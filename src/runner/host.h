/*
 * The host as the runner sees it: directories, control groups, runtime, base.
 * Filled once at start, read by all threads.
 */

#ifndef RUNNER_HOST_H
#define RUNNER_HOST_H

#include <limits.h>
#include <stdint.h>

#include "base.h"
#include "cgroup.h"
#include "error.h"
#include "options.h"
#include "idmap.h"
#include "runtime.h"


/* the folder that hides others; nobody may look into it */

#define RUNNER_HOST_EMPTY  RUNNER_SHARED_DIR "/bundles/empty"


typedef struct {
    const runner_options_t  *options;

    uint64_t           owner;            /* hash of the state directory */
    char               name[40];         /* "sandbox-HASH" */

    char               state[PATH_MAX];
    int                slots;            /* descriptor of STATE/slots */
    int                templates;        /* of STATE/templates */
    int                lock;             /* of STATE/lock, locked */

    int                unproven;         /* the probe is still to come */
    int                bundles;          /* of a directory only we can see */
    uint64_t           masks;            /* that are folders, see bundle.h */
    char               runtime_dir[PATH_MAX];
    int                sockets;          /* of the runtime directory */

    runner_bases_t     bases;
    char               agent[PATH_MAX];  /* directory with the agent in it */

    runner_cgroups_t   cgroups;
    runner_runtime_t   runtime;
} runner_host_t;


/*
 * Directories, lock and base, in the mount namespace that is the runner's own:
 * nothing can be mounted on a directory that was opened in another one.
 */
int runner_host_open(runner_host_t *host, const runner_options_t *options,
    runner_error_t *err);

/* Copies the agent into a layer of its own below the state. */
int runner_host_agent(runner_host_t *host, runner_error_t *err);

/* Removes the runtime directory, which must be empty but for ours. */
void runner_host_close(runner_host_t *host);

/* 1: so much is free below the state that a sandbox may be made. */
int runner_host_space(const runner_host_t *host, uint64_t *free_mib);


#endif /* RUNNER_HOST_H */
