/*
 * A temporary name, fsync(), rename(): whoever looks finds the old file, none,
 * or the new one.  Knows nothing of where the bytes come from.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* renameat2(), asprintf() */
#endif

#include "ctl.h"
#include "live.h"
#include "local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/file.h>
#include <sys/stat.h>


/* of any length that is left: a name itself may have 255 bytes already */

#define CTL_LOCAL_PART  ".sandboxctl-"


static int ctl_local_target(ctl_local_t *local, const char *path);
static int ctl_local_part(ctl_local_t *local, const char *key);
static int ctl_local_again(ctl_local_t *local);
static int ctl_local_name(ctl_local_t *local);
static size_t ctl_local_folder(const char *path);


int
ctl_local_open(ctl_local_t *local, const char *path, int force,
    const char *key)
{
    int  rc;

    memset(local, 0, sizeof(ctl_local_t));

    local->fd = -1;
    local->force = force;
    local->mode = umask(0);
    (void) umask(local->mode);
    local->mode = 0666 & ~local->mode;

    /* 1: it is written as it is */

    rc = ctl_local_target(local, path);

    return rc == 0 ? ctl_local_part(local, key) : rc == 1 ? 0 : -1;
}


static int
ctl_local_target(ctl_local_t *local, const char *path)
{
    struct stat  status;

    if (stat(path, &status) == -1) {

        if (errno != ENOENT) {
            return ctl_fault("can't write %s: %s", path, strerror(errno));
        }

        /* a link that leads nowhere */

        if (lstat(path, &status) == 0 && !local->force) {
            return ctl_fault("%s is there already: -f replaces it", path);
        }

        local->target = strdup(path);

        return local->target == NULL ? ctl_fault("no memory") : 0;
    }

    if (S_ISREG(status.st_mode)) {

        if (!local->force) {
            return ctl_fault("%s is there already: -f replaces it", path);
        }

        /* what a link leads to is replaced, not the link */

        local->mode = status.st_mode & 0777;
        local->target = realpath(path, NULL);

        return local->target == NULL
               ? ctl_fault("can't write %s: %s", path, strerror(errno)) : 0;
    }

    local->fd = open(path, O_WRONLY|O_CLOEXEC|O_NOCTTY);

    if (local->fd == -1) {
        return ctl_fault("can't write %s: %s", path, strerror(errno));
    }

    return 1;
}


static int
ctl_local_part(ctl_local_t *local, const char *key)
{
    int  rc;

    local->file = 1;

    rc = asprintf(&local->part, "%.*s" CTL_LOCAL_PART "%s",
                  (int) ctl_local_folder(local->target), local->target,
                  key != NULL ? key : "XXXXXX");

    if (rc == -1) {
        local->part = NULL;
        return ctl_fault("no memory");
    }

    if (key != NULL) {
        return ctl_local_again(local);
    }

    local->fd = mkostemp(local->part, O_CLOEXEC);

    if (local->fd == -1) {
        ctl_fault("can't write %s: %s", local->target, strerror(errno));
        free(local->part);
        local->part = NULL;
        return -1;
    }

    ctl_live_signal_file(local->part);

    return 0;
}


static int
ctl_local_again(ctl_local_t *local)
{
    off_t        end;
    struct stat  status;

    local->fd = open(local->part,
                     O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW|O_NOCTTY, 0600);

    /* in a folder of everybody it could be anybody's */

    if (local->fd == -1 || fstat(local->fd, &status) == -1
        || !S_ISREG(status.st_mode) || status.st_uid != geteuid()
        || status.st_nlink != 1)
    {
        ctl_fault("can't write %s: %s", local->part, local->fd == -1
                  ? strerror(errno) : "it is no file of yours");
        goto failed;
    }

    if (flock(local->fd, LOCK_EX|LOCK_NB) == -1) {
        ctl_fault("another sandboxctl is getting it at this moment");
        goto failed;
    }

    end = lseek(local->fd, 0, SEEK_END);

    if (end == -1) {
        ctl_fault("can't read %s: %s", local->part, strerror(errno));
        goto failed;
    }

    local->have = (uint64_t) end;

    return 0;

failed:

    /* it is somebody else's */

    free(local->part);
    local->part = NULL;

    return -1;
}


int
ctl_local_commit(ctl_local_t *local)
{
    int     fd;
    size_t  n;

    if (!local->file) {
        return 0;
    }

    if (fchmod(local->fd, local->mode) == -1 || fsync(local->fd) == -1
        || ctl_local_name(local) == -1)
    {
        if (errno == EEXIST) {
            return ctl_fault("%s is there already, since a moment: -f "
                             "replaces it", local->target);
        }

        return ctl_fault("can't write %s: %s", local->target,
                         strerror(errno));
    }

    /* the name, too; where a folder can't be synced it needs not be */

    n = ctl_local_folder(local->target);
    local->part[n] = '\0';

    fd = open(n > 0 ? local->part : ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (fd != -1) {
        (void) fsync(fd);
        close(fd);
    }

    ctl_live_signal_file(NULL);
    free(local->part);
    local->part = NULL;

    return 0;
}


/* 0, or -1 with errno. */

static int
ctl_local_name(ctl_local_t *local)
{
    if (local->force) {
        return rename(local->part, local->target);
    }

    if (renameat2(AT_FDCWD, local->part, AT_FDCWD, local->target,
                  RENAME_NOREPLACE)
        == 0)
    {
        return 0;
    }

    if (errno != EINVAL && errno != ENOSYS) {
        return -1;
    }

    /* a file system that has no such thing */

    if (link(local->part, local->target) == -1) {
        return -1;
    }

    (void) unlink(local->part);

    return 0;
}


void
ctl_local_drop(ctl_local_t *local, int keep)
{
    if (local->part != NULL && !keep) {
        (void) unlink(local->part);
    }

    ctl_live_signal_file(NULL);

    if (local->fd != -1) {
        close(local->fd);
        local->fd = -1;
    }

    free(local->part);
    free(local->target);
    local->part = NULL;
    local->target = NULL;
}


/* Bytes of the folder in a path, with its slash. */

static size_t
ctl_local_folder(const char *path)
{
    const char  *slash;

    slash = strrchr(path, '/');

    return slash != NULL ? (size_t) (slash + 1 - path) : 0;
}
