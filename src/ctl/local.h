/*
 * A file here that is there as a whole or not at all.
 */

#ifndef SANDBOX_CTL_LOCAL_H
#define SANDBOX_CTL_LOCAL_H

#include <stdint.h>
#include <sys/types.h>


typedef struct {
    int            fd;                           /* of what is written */
    int            file;                         /* a file; else a device, a
                                                    pipe: written as it is */
    uint64_t       have;                         /* bytes of an earlier time */

    char          *target;
    char          *part;                         /* until it is complete */
    int            force;
    mode_t         mode;
} ctl_local_t;


/*
 * Opens what will be `path`; one that is there is an error without `force`.
 * `key` (NULL: none): what an earlier time with the same key has left is
 * gone on with.  0, or -1 after a sentence; ctl_local_drop() is for both
 * cases.
 */
int ctl_local_open(ctl_local_t *local, const char *path, int force,
    const char *key);

/* On the disk, and under its name.  0, or -1 after a sentence. */
int ctl_local_commit(ctl_local_t *local);

/* Closes it; what was not committed goes, unless `keep`. */
void ctl_local_drop(ctl_local_t *local, int keep);


#endif /* SANDBOX_CTL_LOCAL_H */
