/*
 * The overlay of a sandbox.
 *
 * Its options are relative paths of one letter, so /proc/self/mountinfo tells
 * nobody inside where things lie on the host.  Each layer is an idmapped clone:
 * files of the base keep their owners, and the disk keeps the ids seen inside,
 * so it fits any id range.
 *
 * Knows no sandboxes, only directories.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "idmap.h"
#include "image.h"
#include "log.h"
#include "overlay.h"


#define RUNNER_OVERLAY_HISTORY  "h"              /* beside u and w */
#define RUNNER_OVERLAY_OPTIONS                                                \
    "lowerdir=a:l,upperdir=d/u,workdir=d/w,"                                  \
    "redirect_dir=on,metacopy=off,index=off"


static int runner_overlay_clone(const char *path, const char *point, int ids,
    runner_error_t *err);
static int runner_overlay_disk(const char *device, const char *point, int ids,
    int *history, runner_error_t *err);
static int runner_overlay_filesystem(const char *device, int readonly,
    runner_error_t *err);
static int runner_overlay_open(int tree, int flags);
static int runner_overlay_idmap(int tree, uint64_t attributes, int ids,
    const char *path, runner_error_t *err);


int
runner_overlay_mount(int bundle, int slot, const char *base,
    const char *agent, uint32_t ids, int *history, runner_error_t *err)
{
    int   namespace, device, rc;
    char  path[RUNNER_IMAGE_DEVICE];

    *history = -1;

    namespace = runner_ids_namespace(ids, err);
    if (namespace == -1) {
        return -1;
    }

    device = runner_image_attach(slot, "disk.img", path, err);
    if (device == -1) {
        close(namespace);
        return -1;
    }

    if (fchdir(bundle) == -1) {
        rc = runner_error(err, "internal", errno, "fchdir");

    } else {
        rc = runner_overlay_clone(base, "l", namespace, err);

        if (rc == 0) {
            rc = runner_overlay_clone(agent, "a", namespace, err);
        }

        if (rc == 0) {
            rc = runner_overlay_disk(path, "d", namespace, history, err);
        }

        if (rc == 0
            && mount("overlay", "r", "overlay", MS_NOSUID|MS_NODEV,
                     RUNNER_OVERLAY_OPTIONS) == -1)
        {
            rc = runner_error(err, "no_overlay", errno, "can't mount an "
                              "overlay.  Remedy: Linux 5.19 or later with "
                              "overlayfs (modprobe overlay)");
        }

        umount2("l", MNT_DETACH|UMOUNT_NOFOLLOW);
        umount2("a", MNT_DETACH|UMOUNT_NOFOLLOW);
        umount2("d", MNT_DETACH|UMOUNT_NOFOLLOW);
    }

    (void) !chdir("/");

    close(device);
    close(namespace);

    return rc;
}


void
runner_overlay_detach(int bundle)
{
    if (fchdir(bundle) == 0) {
        umount2("r", MNT_DETACH|UMOUNT_NOFOLLOW);
        (void) !chdir("/");
    }
}


static int
runner_overlay_clone(const char *path, const char *point, int ids,
    runner_error_t *err)
{
    int  tree, rc;

    tree = syscall(SYS_open_tree, AT_FDCWD, path,
                   OPEN_TREE_CLONE|OPEN_TREE_CLOEXEC);
    if (tree == -1) {
        return runner_error(err, "no_base", errno, "can't clone the mount of "
                            "\"%s\"", path);
    }

    rc = runner_overlay_idmap(tree, MOUNT_ATTR_RDONLY, ids, path, err);

    if (rc == 0
        && syscall(SYS_move_mount, tree, "", AT_FDCWD, point,
                   MOVE_MOUNT_F_EMPTY_PATH) == -1)
    {
        rc = runner_error(err, "internal", errno, "can't mount \"%s\"", path);
    }

    close(tree);

    return rc;
}


static int
runner_overlay_disk(const char *device, const char *point, int ids,
    int *history, runner_error_t *err)
{
    int  tree, rc;

    tree = runner_overlay_filesystem(device, 0, err);
    if (tree == -1) {
        return -1;
    }

    /*
     * Made where root is root, opened when the ids are set for good.  Not by
     * open: a process that is just being made would hold it, and the mount
     * would be busy.
     */

    (void) mknodat(tree, RUNNER_OVERLAY_HISTORY, S_IFREG|0600, 0);

    rc = runner_overlay_idmap(tree,
                              MOUNT_ATTR_NOSUID|MOUNT_ATTR_NODEV
                              |MOUNT_ATTR_NOATIME,
                              ids, "the disk", err);

    if (rc == 0) {
        *history = runner_overlay_open(tree, O_RDWR);
    }

    if (rc == 0
        && syscall(SYS_move_mount, tree, "", AT_FDCWD, point,
                   MOVE_MOUNT_F_EMPTY_PATH) == -1)
    {
        rc = runner_error(err, "internal", errno, "can't mount the disk");
    }

    close(tree);

    return rc;
}


/* a mount of the disk that is nowhere yet; or -1 */

static int
runner_overlay_filesystem(const char *device, int readonly,
    runner_error_t *err)
{
    int     fs, tree, rc;
    size_t  i;

    static const char  *flags[] = { "discard", "noinit_itable" };

    fs = syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC);
    if (fs == -1) {
        return runner_error(err, "no_ext4", errno, "no ext4.  Remedy: "
                            "modprobe ext4");
    }

    rc = syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", device, 0);

    if (readonly) {
        rc |= syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "ro", NULL, 0);

    } else {
        rc |= syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "commit", "30",
                      0);

        for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
            rc |= syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, flags[i], NULL,
                          0);
        }
    }

    rc |= syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);

    tree = rc == 0 ? syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                             MOUNT_ATTR_NOSUID|MOUNT_ATTR_NODEV) : -1;

    if (tree == -1) {
        runner_error(err, "no_ext4", errno, "can't mount the disk of the "
                     "sandbox; if it was damaged by a power failure: "
                     "e2fsck -p on its disk.img");
    }

    close(fs);

    return tree;
}


int
runner_overlay_history(int slot)
{
    int             device, tree, fd;
    char            path[RUNNER_IMAGE_DEVICE];
    runner_error_t  err;

    runner_error_init(&err);
    device = runner_image_attach(slot, "disk.img", path, &err);

    if (device == -1) {
        runner_log(RUNNER_LOG_WARN, "a history is lost: %s", err.text);
        return -1;
    }

    tree = runner_overlay_filesystem(path, 1, &err);
    fd = -1;

    if (tree == -1) {
        runner_log(RUNNER_LOG_WARN, "a history is lost: %s", err.text);

    } else {
        fd = runner_overlay_open(tree, O_RDONLY);
        close(tree);
    }

    close(device);

    return fd;
}


/*
 * Outside of the overlay: no path inside leads to it, and a descriptor of a
 * file leads nowhere else.  A sandbox works without it, too.
 */

static int
runner_overlay_open(int tree, int flags)
{
    int          fd;
    struct stat  st;

    fd = openat(tree, RUNNER_OVERLAY_HISTORY,
                flags|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK, 0600);

    if (fd != -1 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        return fd;
    }

    runner_log(RUNNER_LOG_WARN, "the file of a sandbox's history can't be "
               "opened: %s; it is kept in memory",
               fd == -1 ? strerror(errno) : "it is no file");

    if (fd != -1) {
        close(fd);
    }

    return -1;
}


static int
runner_overlay_idmap(int tree, uint64_t attributes, int ids, const char *path,
    runner_error_t *err)
{
    struct mount_attr  attr;

    memset(&attr, 0, sizeof(attr));
    attr.attr_set = MOUNT_ATTR_IDMAP|MOUNT_ATTR_NOSUID|MOUNT_ATTR_NODEV
                    |attributes;
    attr.userns_fd = ids;

    if (attributes & MOUNT_ATTR_NOATIME) {
        attr.attr_clr = MOUNT_ATTR__ATIME;
    }

    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr,
                sizeof(attr)) == -1)
    {
        return runner_error(err, "no_idmap", errno, "can't map the ids of "
                            "\"%s\".  Remedy: Linux 5.19 or later, and base "
                            "and state on ext4, xfs or btrfs", path);
    }

    return 0;
}
