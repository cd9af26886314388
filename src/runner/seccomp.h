/*
 * The system calls that programs in a sandbox may make.
 */

#ifndef RUNNER_SECCOMP_H
#define RUNNER_SECCOMP_H

#include <jansson.h>


/*
 * The "seccomp" object of an OCI configuration; owned by the caller, NULL
 * without memory.
 */
json_t *runner_seccomp(void);


#endif /* RUNNER_SECCOMP_H */
