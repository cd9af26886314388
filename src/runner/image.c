/*
 * Disk images and loop devices.  Knows no sandboxes and no overlays.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "child.h"
#include "file.h"
#include "idmap.h"
#include "image.h"


#define RUNNER_LOOPS          4096
#define RUNNER_LOOP_ATTEMPTS  64
#define RUNNER_MKFS_WAIT      60000              /* ms, the lock is held */
#define RUNNER_TEMPLATE       "disk-2-%u.img"    /* format, MiB */


static int runner_image_control(void);
static int runner_template_open(int templates, uint32_t disk,
    runner_error_t *err);
static int runner_template_make(int templates, const char *name,
    uint32_t disk, runner_error_t *err);
static int runner_template_format(int templates, const char *name,
    runner_error_t *err);
static int runner_template_fill(int templates, const char *name,
    runner_error_t *err);
static int runner_image_copy(int from, int to);
static void runner_loop_added(int number);
static int runner_loop_holds(int number, const char *path);


extern char  **environ;

static pthread_mutex_t  runner_template_lock = PTHREAD_MUTEX_INITIALIZER;

/* loop devices that were there before us, or are in the shared list */

static pthread_mutex_t  runner_loops_lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t          runner_loops_known[RUNNER_LOOPS];


int
runner_image_create(int templates, uint32_t disk, int dir, const char *name,
    runner_error_t *err)
{
    int  from, to, rc;

    from = runner_template_open(templates, disk, err);
    if (from == -1) {
        return -1;
    }

    to = openat(dir, name, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600);

    if (to == -1) {
        runner_error(err, errno == ENOSPC ? "disk_full" : "internal", errno,
                     "can't make a disk image");
        close(from);
        return -1;
    }

    rc = 0;

    if (ioctl(to, FICLONE, from) == -1 && runner_image_copy(from, to) == -1) {
        rc = runner_error(err, errno == ENOSPC ? "disk_full" : "internal",
                          errno, "can't copy the disk template");
    }

    close(to);
    close(from);

    return rc;
}


/* only the parts that hold data, some 100 KiB */

static int
runner_image_copy(int from, int to)
{
    off_t        data, hole, end;
    ssize_t      n;
    struct stat  st;

    if (fstat(from, &st) == -1 || ftruncate(to, st.st_size) == -1) {
        return -1;
    }

    for (end = 0; end < st.st_size; end = hole) {
        data = lseek(from, end, SEEK_DATA);

        if (data == -1) {
            return errno == ENXIO ? 0 : -1;
        }

        hole = lseek(from, data, SEEK_HOLE);
        if (hole == -1) {
            return -1;
        }

        end = data;

        while (data < hole) {
            n = copy_file_range(from, &data, to, &end, hole - data, 0);

            if (n <= 0) {
                errno = n == 0 ? EIO : errno;
                return -1;
            }
        }
    }

    return 0;
}


static int
runner_template_open(int templates, uint32_t disk, runner_error_t *err)
{
    int   fd;
    char  name[64];

    snprintf(name, sizeof(name), RUNNER_TEMPLATE, disk);

    fd = openat(templates, name, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);
    if (fd != -1) {
        return fd;
    }

    pthread_mutex_lock(&runner_template_lock);

    fd = openat(templates, name, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1 && runner_template_make(templates, name, disk, err) == 0) {
        fd = openat(templates, name, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);

        if (fd == -1) {
            runner_error(err, "internal", errno, "can't open \"%s\"", name);
        }
    }

    pthread_mutex_unlock(&runner_template_lock);

    return fd;
}


static int
runner_template_make(int templates, const char *name, uint32_t disk,
    runner_error_t *err)
{
    int   fd, rc;
    char  temporary[80];

    snprintf(temporary, sizeof(temporary), "%s.new", name);

    (void) unlinkat(templates, temporary, 0);

    fd = openat(templates, temporary, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600);

    if (fd == -1 || ftruncate(fd, (off_t) disk << 20) == -1) {
        rc = runner_error(err, "internal", errno, "can't make a disk template "
                          "of %u MiB", disk);

    } else {
        rc = runner_template_format(templates, temporary, err);
    }

    if (fd != -1) {
        close(fd);
    }

    if (rc == 0) {
        rc = runner_template_fill(templates, temporary, err);
    }

    if (rc == 0 && renameat(templates, temporary, templates, name) == -1) {
        rc = runner_error(err, "internal", errno, "can't rename \"%s\"",
                          temporary);
    }

    if (rc == -1) {
        (void) unlinkat(templates, temporary, 0);
    }

    return rc;
}


static int
runner_template_format(int templates, const char *name, runner_error_t *err)
{
    int                          rc, status;
    char                         path[128];
    pid_t                        pid;
    posix_spawn_file_actions_t   actions;

    char  *argv[] = {
        "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-i", "16384",
        "-J", "size=4", "-O", "^resize_inode,^metadata_csum_seed",
        "-E", "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0",
        path, NULL
    };
    char  *env[] = { "PATH=/usr/sbin:/sbin:/usr/bin:/bin", NULL };

    snprintf(path, sizeof(path), "/proc/self/fd/100/%s", name);

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, templates, 100);

    runner_child_begin();

    rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, env);
    status = -1;

    if (rc == 0) {
        status = runner_child_wait(pid, RUNNER_MKFS_WAIT);
    }

    runner_child_end();

    posix_spawn_file_actions_destroy(&actions);

    if (rc != 0) {
        return runner_error(err, "no_mkfs", rc, "mkfs.ext4 can't be run.  "
                            "Remedy: apt-get install e2fsprogs");
    }

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return runner_error(err, "no_mkfs", 0, "mkfs.ext4 failed with status "
                            "%d, see its words above; is the disk full?",
                            status);
    }

    return 0;
}


/* the two directories of an overlay */

static int
runner_template_fill(int templates, const char *name, runner_error_t *err)
{
    int   device, dir, rc;
    char  path[RUNNER_IMAGE_DEVICE], point[] = "/tmp/.sandbox-XXXXXX";

    device = runner_image_attach(templates, name, path, err);
    if (device == -1) {
        return -1;
    }

    if (mkdtemp(point) == NULL) {
        close(device);
        return runner_error(err, "internal", errno, "mkdtemp");
    }

    rc = 0;

    if (mount(path, point, "ext4", MS_NOSUID|MS_NODEV|MS_NOEXEC,
              "noinit_itable") == -1)
    {
        rc = runner_error(err, "no_ext4", errno, "can't mount an ext4 image.  "
                          "Remedy: a kernel with ext4 and loop devices "
                          "(modprobe loop ext4)");

    } else {
        dir = open(point, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

        if (dir == -1
            || mkdirat(dir, "u", 0755) == -1
            || mkdirat(dir, "w", 0700) == -1
            || unlinkat(dir, "lost+found", AT_REMOVEDIR) == -1)
        {
            rc = runner_error(err, "internal", errno, "can't fill the disk "
                              "template");
        }

        if (dir != -1) {
            close(dir);
        }

        if (umount2(point, 0) == -1) {
            umount2(point, MNT_DETACH);
            rc = runner_error(err, "internal", errno, "can't unmount the disk "
                              "template");
        }
    }

    rmdir(point);
    close(device);

    if (runner_image_released(templates, name, 5000) == -1) {
        rc = runner_error(err, "internal", 0, "the disk template stays busy");
    }

    return rc;
}


/*
 * A chroot's /dev may hold a few nodes only.  This mount namespace is ours
 * alone, so the kernel's own devices can be put there.
 */

static int
runner_image_control(void)
{
    int  fd;

    fd = open("/dev/loop-control", O_RDWR|O_CLOEXEC);

    if (fd == -1 && errno == ENOENT
        && mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID|MS_NOEXEC, NULL)
           == 0)
    {
        fd = open("/dev/loop-control", O_RDWR|O_CLOEXEC);
    }

    return fd;
}


int
runner_image_attach(int dir, const char *name, char *device,
    runner_error_t *err)
{
    int                 control, backing, fd, number, error;
    unsigned            i;
    struct loop_config  config;

    control = runner_image_control();
    if (control == -1) {
        return runner_error(err, "no_loop", errno, "/dev/loop-control can't "
                            "be opened.  Remedy: modprobe loop");
    }

    backing = openat(dir, name, O_RDWR|O_CLOEXEC|O_NOFOLLOW);
    if (backing == -1) {
        close(control);
        return runner_error(err, "no_disk", errno, "the disk image of the "
                            "sandbox can't be opened");
    }

    memset(&config, 0, sizeof(config));
    config.fd = backing;
    config.block_size = 4096;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    snprintf((char *) config.info.lo_file_name,
             sizeof(config.info.lo_file_name), "%s", name);

    fd = -1;
    error = EBUSY;

    /* somebody else may take the free one first */

    for (i = 0; i < RUNNER_LOOP_ATTEMPTS; i++) {
        number = ioctl(control, LOOP_CTL_GET_FREE);

        if (number == -1 || number >= RUNNER_LOOPS) {
            error = number == -1 ? errno : ENOSPC;
            break;
        }

        runner_loop_added(number);

        snprintf(device, RUNNER_IMAGE_DEVICE, "/dev/loop%d", number);
        fd = open(device, O_RDWR|O_CLOEXEC);

        if (fd == -1) {
            error = errno;

            if (error == ENOENT || error == ENXIO) {
                continue;
            }

            break;
        }

        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
            break;
        }

        error = errno;
        close(fd);
        fd = -1;

        if (error != EBUSY) {
            break;
        }
    }

    close(backing);
    close(control);

    if (fd == -1) {
        return runner_error(err, "no_loop", error, "no loop device can be "
                            "attached.  Remedy: Linux 5.8 or later, and a "
                            "/dev that is devtmpfs");
    }

    return fd;
}


int
runner_image_released(int dir, const char *name, unsigned ms)
{
    int              number, held;
    DIR             *d;
    char             path[PATH_MAX], link[64];
    ssize_t          n;
    uint64_t         deadline;
    struct dirent   *entry;
    struct timespec  nap = { 0, 2 * 1000 * 1000 };

    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    n = readlink(link, path, sizeof(path) - 128);

    if (n <= 0) {
        return -1;
    }

    snprintf(path + n, sizeof(path) - n, "/%s", name);

    deadline = runner_now_ms() + ms;

    for ( ;; ) {
        held = 0;

        d = opendir("/sys/block");
        if (d == NULL) {
            return -1;
        }

        while (!held && (entry = readdir(d)) != NULL) {
            if (sscanf(entry->d_name, "loop%d", &number) == 1) {
                held = runner_loop_holds(number, path);
            }
        }

        closedir(d);

        if (!held) {
            return 0;
        }

        if (runner_now_ms() >= deadline) {
            return -1;
        }

        nanosleep(&nap, NULL);
    }
}


static int
runner_loop_holds(int number, const char *path)
{
    char     name[64], text[PATH_MAX + 16];
    ssize_t  n;

    snprintf(name, sizeof(name), "/sys/block/loop%d/loop/backing_file",
             number);

    n = runner_file_read(AT_FDCWD, name, text, sizeof(text));

    if (n > 0 && text[n - 1] == '\n') {
        text[n - 1] = '\0';
    }

    return n > 0 && strcmp(text, path) == 0;
}


void
runner_loops_start(void)
{
    int             number;
    DIR            *d;
    struct dirent  *entry;

    d = opendir("/sys/block");
    if (d == NULL) {
        return;
    }

    while ((entry = readdir(d)) != NULL) {
        if (sscanf(entry->d_name, "loop%d", &number) == 1
            && number >= 0 && number < RUNNER_LOOPS)
        {
            runner_loops_known[number] = 1;
        }
    }

    closedir(d);
}


/* the kernel keeps a node it once made: remember whom to remove at the end */

static void
runner_loop_added(int number)
{
    int      fd;
    uint8_t  one;

    pthread_mutex_lock(&runner_loops_lock);

    if (!runner_loops_known[number]) {
        runner_loops_known[number] = 1;
        one = 1;

        fd = runner_shared_lock("loops");

        if (fd != -1) {
            (void) !pwrite(fd, &one, 1, number);
            close(fd);
        }
    }

    pthread_mutex_unlock(&runner_loops_lock);
}


void
runner_loops_remove(void)
{
    int      fd, control, number;
    uint8_t  added[RUNNER_LOOPS], zero;
    ssize_t  n;

    fd = runner_shared_lock("loops");
    if (fd == -1) {
        return;
    }

    control = runner_image_control();
    n = pread(fd, added, sizeof(added), 0);
    zero = 0;

    for (number = 0; control != -1 && number < n; number++) {

        if (added[number]
            && (ioctl(control, LOOP_CTL_REMOVE, number) != -1
                || errno == ENODEV))
        {
            (void) !pwrite(fd, &zero, 1, number);
        }
    }

    if (control != -1) {
        close(control);
    }

    close(fd);
}
