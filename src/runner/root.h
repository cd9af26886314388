/*
 * The root of the runner's mount namespace.
 */

#ifndef RUNNER_ROOT_H
#define RUNNER_ROOT_H

#include "error.h"


/*
 * Gives the process a mount namespace of its own, private to the rest, whose
 * root is what is "/" now, also in a chroot.  Call it before there are
 * threads.  The working directory stays.
 */
int runner_root_own(runner_error_t *err);


#endif /* RUNNER_ROOT_H */
