/*
 * Host id ranges and user namespaces for mounts.
 * Knows no sandboxes, only who owns which range.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <linux/securebits.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "child.h"
#include "file.h"
#include "idmap.h"


#define RUNNER_SHARED_ATTEMPTS  5000
#define RUNNER_SHARED_PAUSE     2                /* ms */
#define RUNNER_IDS_WAIT         10000            /* ms */


static int runner_ids_load(int fd, uint64_t *owners);
static int runner_ids_store(int fd, uint32_t i, uint64_t owner);
static void runner_ids_reclaim(int fd, uint64_t *owners);
static int runner_ids_make(uint32_t owner, const char *map,
    runner_error_t *err);
static void runner_ids_child(pid_t parent, uint32_t owner, int ready);
static int runner_ids_open(pid_t pid, const char *map, int ready);


int
runner_shared_lock(const char *name)
{
    int  dir, fd, n;

    if (runner_mkdirs(RUNNER_SHARED_DIR, 0711) == -1) {
        return -1;
    }

    dir = open(RUNNER_SHARED_DIR, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
    if (dir == -1) {
        return -1;
    }

    fd = openat(dir, name, O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW, 0600);
    close(dir);

    if (fd == -1) {
        return -1;
    }

    /* it is held for a moment only, but by any runner of this host */

    for (n = 0; flock(fd, LOCK_EX|LOCK_NB) == -1; n++) {
        if ((errno != EINTR && errno != EWOULDBLOCK)
            || n == RUNNER_SHARED_ATTEMPTS)
        {
            close(fd);
            return -1;
        }

        (void) poll(NULL, 0, RUNNER_SHARED_PAUSE);
    }

    return fd;
}


static int
runner_ids_load(int fd, uint64_t *owners)
{
    ssize_t  n;

    memset(owners, 0, RUNNER_IDS_RANGES * sizeof(uint64_t));
    n = pread(fd, owners, RUNNER_IDS_RANGES * sizeof(uint64_t), 0);

    return n == -1 ? -1 : 0;
}


static int
runner_ids_store(int fd, uint32_t i, uint64_t owner)
{
    return pwrite(fd, &owner, sizeof(owner), (off_t) i * sizeof(owner))
           == sizeof(owner) ? 0 : -1;
}


uint32_t
runner_ids_take(uint64_t owner, runner_error_t *err)
{
    int       fd;
    uint32_t  i, first;
    uint64_t  owners[RUNNER_IDS_RANGES];

    fd = runner_shared_lock("ranges");

    if (fd == -1 || runner_ids_load(fd, owners) == -1) {
        runner_error(err, "no_ids", errno, "can't read " RUNNER_SHARED_DIR
                     "/ranges");

        if (fd != -1) {
            close(fd);
        }

        return 0;
    }

    first = 0;

    for (i = 0; i < RUNNER_IDS_RANGES && owners[i] != 0; i++) { /* void */ }

    if (i == RUNNER_IDS_RANGES) {
        runner_ids_reclaim(fd, owners);
    }

    for (i = 0; i < RUNNER_IDS_RANGES; i++) {
        if (owners[i] != 0) {
            continue;
        }

        if (runner_ids_store(fd, i, owner) == -1) {
            runner_error(err, "no_ids", errno, "can't write "
                         RUNNER_SHARED_DIR "/ranges");
            break;
        }

        first = RUNNER_IDS_FIRST + i * RUNNER_IDS_SIZE;
        break;
    }

    close(fd);

    if (i == RUNNER_IDS_RANGES) {
        runner_error(err, "no_ids", 0, "all %u id ranges are taken.  Remedy: "
                     "end runners that are not needed; if none runs, remove "
                     RUNNER_SHARED_DIR "/ranges", RUNNER_IDS_RANGES);
    }

    return first;
}


/*
 * Ranges of runners that were killed and never started again: nothing of
 * theirs lives if their control group is gone.
 */

static void
runner_ids_reclaim(int fd, uint64_t *owners)
{
    char      v1[64], v2[64];
    uint32_t  i;

    for (i = 0; i < RUNNER_IDS_RANGES; i++) {
        snprintf(v1, sizeof(v1), "/sys/fs/cgroup/memory/sandbox-%012llx",
                 (unsigned long long) owners[i] >> 16);
        snprintf(v2, sizeof(v2), "/sys/fs/cgroup/sandbox-%012llx",
                 (unsigned long long) owners[i] >> 16);

        if (access(v1, F_OK) == -1 && access(v2, F_OK) == -1) {
            owners[i] = 0;
            (void) runner_ids_store(fd, i, 0);
        }
    }
}


int
runner_ids_keep(uint64_t owner, uint32_t first, runner_error_t *err)
{
    int       fd, rc;
    uint32_t  i;
    uint64_t  owners[RUNNER_IDS_RANGES];

    if (first < RUNNER_IDS_FIRST
        || (first - RUNNER_IDS_FIRST) % RUNNER_IDS_SIZE != 0
        || (first - RUNNER_IDS_FIRST) / RUNNER_IDS_SIZE >= RUNNER_IDS_RANGES)
    {
        return runner_error(err, "no_ids", 0, "id range %u is not one of ours",
                            first);
    }

    i = (first - RUNNER_IDS_FIRST) / RUNNER_IDS_SIZE;

    fd = runner_shared_lock("ranges");

    if (fd == -1 || runner_ids_load(fd, owners) == -1) {
        rc = runner_error(err, "no_ids", errno, "can't read "
                          RUNNER_SHARED_DIR "/ranges");

    } else if (owners[i] != 0 && owners[i] != owner) {
        rc = runner_error(err, "no_ids", 0, "id range %u belongs to another "
                          "runner", first);

    } else {
        rc = runner_ids_store(fd, i, owner);
    }

    if (fd != -1) {
        close(fd);
    }

    return rc;
}


void
runner_ids_give(uint64_t owner, uint32_t first)
{
    int       fd;
    uint32_t  i;
    uint64_t  owners[RUNNER_IDS_RANGES];

    fd = runner_shared_lock("ranges");
    if (fd == -1) {
        return;
    }

    if (runner_ids_load(fd, owners) == 0) {
        for (i = 0; i < RUNNER_IDS_RANGES; i++) {
            if (owners[i] == owner
                && (first == 0
                    || first == RUNNER_IDS_FIRST + i * RUNNER_IDS_SIZE))
            {
                (void) runner_ids_store(fd, i, 0);
            }
        }
    }

    close(fd);
}


int
runner_ids_namespace(uint32_t first, runner_error_t *err)
{
    char  map[96];

    snprintf(map, sizeof(map), "0 %u %u\n%u 0 1\n", first, RUNNER_IDS_SIZE,
             RUNNER_IDS_SIZE);

    return runner_ids_make(0, map, err);
}


int
runner_ids_container(uint32_t first, runner_error_t *err)
{
    char  map[96];

    snprintf(map, sizeof(map), "0 %u %u\n", first, RUNNER_IDS_SIZE);

    return runner_ids_make(first + RUNNER_IDS_SIZE - 1, map, err);
}


static int
runner_ids_make(uint32_t owner, const char *map, runner_error_t *err)
{
    int    fd, error, ends[2];
    pid_t  pid, parent;

    if (pipe2(ends, O_CLOEXEC) == -1) {
        return runner_error(err, "no_descriptors", errno, "pipe");
    }

    parent = getpid();

    runner_child_begin();

    /* a child that does nothing until a descriptor holds its namespace */

    pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0) {
        runner_ids_child(parent, owner, ends[1]);
    }

    error = errno;
    fd = -1;

    close(ends[1]);

    if (pid != -1) {
        fd = runner_ids_open(pid, map, ends[0]);
        error = errno;

        (void) kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) == -1 && errno == EINTR) { /* void */ }
    }

    runner_child_end();

    close(ends[0]);

    if (fd == -1) {
        return runner_error(err, "no_user_namespaces", error, "can't make a "
                            "user namespace.  Remedy: sysctl -w "
                            "user.max_user_namespaces=10000, and a kernel "
                            "with CONFIG_USER_NS");
    }

    return fd;
}


/*
 * It must hold no descriptor but this one: connections and locks of the runner
 * would stay as long as it does.
 */

static void
runner_ids_child(pid_t parent, uint32_t owner, int ready)
{
    uint8_t  error;

    if (dup2(ready, 0) == -1) {
        _exit(1);
    }

    (void) syscall(SYS_close_range, 1, ~0U, 0);

    /* who is not root may make no namespaces on some hosts: keep the rights */

    if ((owner != 0
         && (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) == -1
             || syscall(SYS_setresuid, -1, owner, -1) == -1))
        || unshare(CLONE_NEWUSER) == -1)
    {
        error = errno;
        (void) !write(0, &error, 1);
        _exit(1);
    }

    /* ends with the parent; a change of ids would have undone it */

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);

    error = 0;

    if (write(0, &error, 1) == 1 && getppid() == parent) {
        pause();
    }

    _exit(0);
}


static int
runner_ids_open(pid_t pid, const char *map, int ready)
{
    char           path[64];
    size_t         i;
    uint8_t        error;
    struct pollfd  p;

    static const char  *names[] = { "uid_map", "gid_map" };

    p.fd = ready;
    p.events = POLLIN;
    p.revents = 0;
    error = ETIMEDOUT;

    while (poll(&p, 1, RUNNER_IDS_WAIT) == -1 && errno == EINTR) { /* void */ }

    if (p.revents == 0 || read(ready, &error, 1) != 1 || error != 0) {
        errno = error;
        return -1;
    }

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", pid, names[i]);

        if (runner_file_write(AT_FDCWD, path, map) == -1) {
            return -1;
        }
    }

    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);

    return open(path, O_RDONLY|O_CLOEXEC);
}
