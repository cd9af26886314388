/*
 * The root of a sandbox: base and agent below, its disk above.
 */

#ifndef RUNNER_OVERLAY_H
#define RUNNER_OVERLAY_H

#include <stdint.h>

#include "error.h"


#define RUNNER_AGENT_PATH  "/usr/libexec/sandbox-agent"  /* inside */


/*
 * Mounts on "r" in the directory `bundle`, which needs the empty directories
 * a, d, l, r; the disk is "disk.img" in the directory `slot`.  Every id is
 * shifted to the range `ids`.  All other mounts are gone when this returns, and
 * "r" may be detached once a container has been started from it.
 *
 * *history: a file of the disk that is not in the overlay, open for reading
 * and writing; the caller's to close.  -1 where it could not be had.
 *
 * Changes the working directory of the calling thread, which must have one of
 * its own.  Blocking.
 */
int runner_overlay_mount(int bundle, int slot, const char *base,
    const char *agent, uint32_t ids, int *history, runner_error_t *err);

/*
 * The file that was given as *history, from a disk that is not mounted; for
 * reading.  The disk is in use until it is closed.  -1: there is none.
 */
int runner_overlay_history(int slot);

/* Detaches "r" in `bundle`; no harm if it is not mounted. */
void runner_overlay_detach(int bundle);


#endif /* RUNNER_OVERLAY_H */
