/*
 * The devices of a sandbox.
 *
 * Those of the host's /dev would be the same files in all sandboxes and on the
 * host: who watches or locks one knows what the others do with it.  So each
 * sandbox has some of its own; in a user namespace nobody can make any, and so
 * they are made on the outside.
 *
 * Knows no sandboxes, only a mount namespace to do it in.
 */

#define _GNU_SOURCE
#include <stddef.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "devices.h"


int
runner_devices_mount(void)
{
    size_t  i;

    static const struct {
        const char  *path;
        unsigned     major, minor;
    } devices[] = {
        { "/dev/null", 1, 3 },
        { "/dev/zero", 1, 5 },
        { "/dev/full", 1, 7 },
        { "/dev/random", 1, 8 },
        { "/dev/urandom", 1, 9 },
        { "/dev/tty", 5, 0 }
    };

    static const char  *links[][2] = {
        { "/proc/self/fd", "/dev/fd" },
        { "/proc/self/fd/0", "/dev/stdin" },
        { "/proc/self/fd/1", "/dev/stdout" },
        { "/proc/self/fd/2", "/dev/stderr" },
        { "/proc/kcore", "/dev/core" },
        { "pts/ptmx", "/dev/ptmx" }
    };

    if (mount("tmpfs", "/dev", "tmpfs", MS_NOSUID|MS_NOEXEC,
              "mode=755,size=4k,nr_inodes=16")
        == -1)
    {
        return -1;
    }

    for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {

        if (mknod(devices[i].path, S_IFCHR|0666,
                  makedev(devices[i].major, devices[i].minor))
            == -1
            || chmod(devices[i].path, 0666) == -1)
        {
            return -1;
        }
    }

    for (i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        if (symlink(links[i][0], links[i][1]) == -1) {
            return -1;
        }
    }

    return mkdir("/dev/pts", 0755) == -1 || mkdir("/dev/shm", 0755) == -1
           ? -1 : 0;
}
