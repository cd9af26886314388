/*
 * What is done inside a new container's namespaces before anybody may use it.
 */

#ifndef RUNNER_INSIDE_H
#define RUNNER_INSIDE_H

#include <stdint.h>
#include <sys/types.h>

#include "error.h"


/*
 * Brings the loopback interface up and forbids namespaces of any kind below
 * this one, by a child that enters.  Blocking, some ms.
 */
int runner_inside_prepare(int pidfd, runner_error_t *err);

/*
 * Sets the limit of its user's processes where root lacks CAP_SYS_RESOURCE:
 * who has entered has all rights there.  0, or -1 and errno.
 */
int runner_inside_processes(int pidfd, pid_t pid, uint32_t processes);


#endif /* RUNNER_INSIDE_H */
