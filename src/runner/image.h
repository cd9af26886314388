/*
 * The disk of a sandbox: a sparse ext4 image with a hard size, copied from a
 * template, attached to a loop device that detaches itself.
 */

#ifndef RUNNER_IMAGE_H
#define RUNNER_IMAGE_H

#include <stdint.h>

#include "error.h"


#define RUNNER_IMAGE_DEVICE  32                  /* bytes of "/dev/loopN" */


/*
 * Makes `name` in `dir` from the template of this size (MiB) in `templates`,
 * which is made when it is missing.  Blocking, several threads.
 */
int runner_image_create(int templates, uint32_t disk, int dir,
    const char *name, runner_error_t *err);

/*
 * Attaches `name` in `dir`; writes the device's path.  The descriptor that is
 * returned keeps it attached until it is mounted; -1 on error.
 */
int runner_image_attach(int dir, const char *name, char *device,
    runner_error_t *err);

/*
 * Waits at most `ms` until no loop device holds the file any more: its last
 * mount goes a moment after the last process.  0, or -1.
 */
int runner_image_released(int dir, const char *name, unsigned ms);

/* Reads which loop devices exist; once, before the first is attached. */
void runner_loops_start(void);

/* Removes the device nodes that runners had added and that are free. */
void runner_loops_remove(void);


#endif /* RUNNER_IMAGE_H */
