/*
 * Control groups: which layout the host has, the start sequence it needs, and
 * the groups of one sandbox.  Blocking; safe to call from several threads.
 */

#ifndef RUNNER_CGROUP_H
#define RUNNER_CGROUP_H

#include <stdint.h>
#include <sys/types.h>

#include "error.h"


#define RUNNER_CGROUP_PATH    128
#define RUNNER_CGROUP_MOUNTS  16

#define RUNNER_CGROUP_MEMORY  0x01
#define RUNNER_CGROUP_PIDS    0x02
#define RUNNER_CGROUP_CPU     0x04
#define RUNNER_CGROUP_NEEDED  0x07


typedef enum {
    RUNNER_CGROUP_NONE = 0,
    RUNNER_CGROUP_V1,                    /* controllers in v1, no cgroup2 */
    RUNNER_CGROUP_HYBRID,                /* controllers in v1, and cgroup2 */
    RUNNER_CGROUP_V2
} runner_cgroup_layout_e;


typedef struct {
    runner_cgroup_layout_e  layout;
    unsigned                controllers; /* RUNNER_CGROUP_MEMORY, ... */
    int                     swap;        /* swap can be limited */

    char   unified[RUNNER_CGROUP_PATH];  /* where cgroup2 is, "" if nowhere */
    char   memory[RUNNER_CGROUP_PATH];   /* where v1 memory is */
    char   cpuacct[RUNNER_CGROUP_PATH];
    char   pids[RUNNER_CGROUP_PATH];
    char   mounts[RUNNER_CGROUP_MOUNTS][RUNNER_CGROUP_PATH];   /* of v1 */
    uint8_t                 hidden[RUNNER_CGROUP_MOUNTS];      /* at start */
    unsigned                nmounts;

    int    root;                         /* descriptor of the cgroup2 root */
    char   name[64];                     /* our group: "sandbox-HASH" */
} runner_cgroups_t;


/* descriptors of one sandbox's groups, -1 where there is none */

typedef struct {
    int    dir;                          /* cgroup2, delegated */
    int    leaf;                         /* v2: "agent" in it */
    int    oom;                          /* SANDBOX_FD_OOM */
    int    peak;                         /* SANDBOX_FD_PEAK */
} runner_cgroup_t;


typedef struct {
    uint64_t  memory;                    /* bytes in use */
    uint64_t  cpu_us;
} runner_cgroup_usage_t;


/*
 * Tells the layout from the text of a mountinfo file: fills layout,
 * controllers (v1 only), paths.  0, or -1 if there are no control groups.
 */
int runner_cgroups_parse(runner_cgroups_t *cgroups, const char *mountinfo);

/*
 * Looks at this host, opens the cgroup2 root, makes a mount namespace for
 * this process, hides cgroup2 on hybrid hosts (crun refuses to run there),
 * and checks that memory, pids and cpu can be limited.  Once, before any
 * thread is started and before any directory is opened that is mounted on.
 */
int runner_cgroups_start(runner_cgroups_t *cgroups, runner_error_t *err);

/* Makes our group in each hierarchy; removes it, if it is empty. */
int runner_cgroups_create(runner_cgroups_t *cgroups, const char *name,
    runner_error_t *err);
void runner_cgroups_remove(runner_cgroups_t *cgroups);

/* The groups of sandbox `number`, delegated to host id `uid`. */
int runner_cgroup_create(runner_cgroups_t *cgroups, unsigned number,
    uid_t uid, unsigned cpus, runner_cgroup_t *group, runner_error_t *err);

/* The container runs: v2 moves its first process into a group of its own. */
int runner_cgroup_started(runner_cgroups_t *cgroups,
    const runner_cgroup_t *group, pid_t pid, runner_error_t *err);

/* Closes the descriptors. */
void runner_cgroup_close(runner_cgroup_t *group);

/* Sets memory (MiB) and processes of a running sandbox.  0, or -1. */
int runner_cgroup_limit(runner_cgroups_t *cgroups, unsigned number,
    uint32_t memory, uint32_t processes);

/* Ends every process in the sandbox's groups. */
void runner_cgroup_kill(runner_cgroups_t *cgroups, unsigned number);

/* Removes its groups; waits at most 5 s for the dead to leave.  0, or -1. */
int runner_cgroup_remove(runner_cgroups_t *cgroups, unsigned number,
    runner_error_t *err);

int runner_cgroup_usage(runner_cgroups_t *cgroups, unsigned number,
    runner_cgroup_usage_t *usage);

/* Path of the group for the runtime's configuration, e.g. "/a/7". */
void runner_cgroup_path(const runner_cgroups_t *cgroups, unsigned number,
    char *path, size_t size);

/* "cgroup v2", ... */
const char *runner_cgroup_layout_name(runner_cgroup_layout_e layout);


#endif /* RUNNER_CGROUP_H */
