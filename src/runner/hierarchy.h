/*
 * Control groups for a namespace of our own where nobody mounted them.
 */

#ifndef RUNNER_HIERARCHY_H
#define RUNNER_HIERARCHY_H


/*
 * Mounts below /sys/fs/cgroup what /proc/self/cgroup names, as v1 or v2 as
 * the host has it.  Only for a private mount namespace: the mounts go with
 * it.  0, or -1 and errno.
 */
int runner_hierarchy_mount(void);


#endif /* RUNNER_HIERARCHY_H */
