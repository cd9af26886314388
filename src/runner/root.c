/*
 * The root of the runner's mount namespace.  Knows no control groups.
 *
 * The kernel lets nobody in a chroot make a user namespace (EPERM), since
 * that would be a way out of it.  The runner is root and could leave anyway;
 * so it makes the chroot's directory the real root of a namespace of its own.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "root.h"


static int runner_root_enter(int ns);
static int runner_root_move(int root, int ns);


int
runner_root_own(runner_error_t *err)
{
    int   rc, ns, root;
    char  cwd[PATH_MAX];

    if (getcwd(cwd, sizeof(cwd)) == NULL || cwd[0] != '/') {
        return runner_error(err, "no_mount_namespace", errno, "the working "
                            "directory has no path.  Remedy: start it in /");
    }

    if (unshare(CLONE_NEWNS) == -1) {
        return runner_error(err, "no_mount_namespace", errno, "can't make a "
                            "mount namespace.  Remedy: run as root, with "
                            "CAP_SYS_ADMIN");
    }

    root = open("/", O_PATH|O_DIRECTORY|O_CLOEXEC);
    ns = open("/proc/self/ns/mnt", O_RDONLY|O_CLOEXEC);

    if (root == -1 || ns == -1) {
        rc = runner_error(err, "no_mount_namespace", errno, "no /proc.  "
                          "Remedy: mount -t proc proc /proc");

    } else if (runner_root_move(root, ns) == -1 || chdir(cwd) == -1) {
        rc = runner_error(err, "no_mount_namespace", errno, "can't make / "
                          "the root of a mount namespace.  Remedy: run as "
                          "root, with CAP_SYS_ADMIN and CAP_SYS_CHROOT");

    } else {
        rc = 0;
    }

    if (root != -1) {
        close(root);
    }

    if (ns != -1) {
        close(ns);
    }

    return rc;
}


static int
runner_root_move(int root, int ns)
{
    struct stat  here, real;

    if (fstat(root, &here) == -1
        || runner_root_enter(ns) == -1
        || mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) == -1
        || stat("/", &real) == -1)
    {
        return -1;
    }

    if (here.st_dev == real.st_dev && here.st_ino == real.st_ino) {
        return 0;
    }

    if (fchdir(root) == -1
        || mount(".", "/", NULL, MS_BIND|MS_REC, NULL) == -1)
    {
        return -1;
    }

    return runner_root_enter(ns);
}


/* entering the namespace one is in sets "/" to what is topmost there */

static int
runner_root_enter(int ns)
{
    return setns(ns, CLONE_NEWNS);
}
