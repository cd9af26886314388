/*
 * Host ids of sandboxes: each running one has 65536 of its own, shared out
 * among all runners of the host.  Disks hold the ids as seen inside, so a
 * range is only needed while a container runs.
 */

#ifndef RUNNER_IDMAP_H
#define RUNNER_IDMAP_H

#include <stdint.h>

#include "error.h"


#define RUNNER_IDS_FIRST   0x70000000u   /* nobody's by systemd's list */
#define RUNNER_IDS_SIZE    65536u
#define RUNNER_IDS_RANGES  4096u

#define RUNNER_SHARED_DIR  "/run/sandbox"        /* of all runners */


/*
 * Takes a free range for `owner`, the hash of a state directory; returns its
 * first id, 0 on error.  Blocking, several threads and processes.
 */
uint32_t runner_ids_take(uint64_t owner, runner_error_t *err);

/* Takes this range for `owner` unless somebody else has it.  0, or -1. */
int runner_ids_keep(uint64_t owner, uint32_t first, runner_error_t *err);

/* Gives a range back; `first` 0: all ranges of the owner. */
void runner_ids_give(uint64_t owner, uint32_t first);

/*
 * A user namespace that maps 0..65535 to the range, and 65536 to root, who
 * makes the work files of overlays.  A descriptor, or -1.
 */
int runner_ids_namespace(uint32_t first, runner_error_t *err);

/*
 * The user namespace of a container: the range and nothing else.  It belongs
 * to the last id of the range, not to root: the kernel counts what its users
 * have (inotify instances and watches, message queues, pending signals, locked
 * memory) once more for its owner, so all sandboxes, and root's own programs,
 * would share one limit.  A descriptor, or -1.
 */
int runner_ids_container(uint32_t first, runner_error_t *err);

/*
 * Opens a file below RUNNER_SHARED_DIR and locks it; closing unlocks.
 * A descriptor, or -1 and errno; EAGAIN: another process holds it for 10 s.
 */
int runner_shared_lock(const char *name);


#endif /* RUNNER_IDMAP_H */
