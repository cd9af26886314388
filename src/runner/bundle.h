/*
 * The OCI configuration of one sandbox.
 */

#ifndef RUNNER_BUNDLE_H
#define RUNNER_BUNDLE_H

#include <stdint.h>
#include <jansson.h>


#define RUNNER_BUNDLE_ENV  64                    /* variables at most */


typedef struct {
    uint32_t     ids;                            /* first host id */
    uint32_t     memory;                         /* MiB */
    uint32_t     processes;
    unsigned     cpus;
    int          swap;                           /* swap can be limited */
    int          limits;                         /* the runtime sets them */
    char         user[64];                       /* its user namespace */
    const char  *cgroup;                         /* path of the group */
    const char  *env;                            /* NAME=VALUE lines */
    const char  *empty;                          /* a folder to mask with */
    uint64_t     folders;                        /* masks it is for, bits */
} runner_bundle_t;


/*
 * The whole config.json: the caller's, NULL without memory.  Paths in it are
 * those inside, and "r" for the root beside it.
 */
json_t *runner_bundle(const runner_bundle_t *bundle);

/* What is masked, from 0 on; NULL after the last, which is below 64. */
const char *runner_bundle_mask(unsigned n);


#endif /* RUNNER_BUNDLE_H */
