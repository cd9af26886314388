/*
 * What is done inside a new container's namespaces before anybody may use it.
 */

#ifndef RUNNER_INSIDE_H
#define RUNNER_INSIDE_H

#include "error.h"


/*
 * Brings the loopback interface up and forbids namespaces of any kind below
 * this one, by a child that enters.  Blocking, some ms.
 */
int runner_inside_prepare(int pidfd, runner_error_t *err);


#endif /* RUNNER_INSIDE_H */
