/*
 * Paths on the file system: opened beneath a root, with the rights of the
 * caller, never across a mount, never by a magic link.  A symbolic link may
 * lead from one root into another; then what was found is opened once more,
 * beneath that one and without any link.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_file.h"


#define AGENT_ROOT_TRIES    8            /* while names are being moved */
#define AGENT_ROOT_BENEATH                                                    \
    (RESOLVE_BENEATH|RESOLVE_NO_MAGICLINKS|RESOLVE_NO_XDEV)


static agent_root_e agent_root_pick(unsigned root, const char *path,
    const char **rest);
static int agent_root_once(unsigned root, agent_root_e at, const char *rest,
    struct stat *st, agent_root_e *where, char *real);
static int agent_root_links(unsigned root, agent_root_e at, const char *rest,
    struct stat *st, agent_root_e *where, char *real);
static int agent_root_openat2(int fd, const char *path, uint64_t flags,
    unsigned mode, uint64_t resolve);
static int agent_root_name(int fd, char *name);
static int agent_root_fail(int fd, int error);


static int          agent_root_fds[AGENT_ROOT_LAST] = { -1, -1, -1, -1, -1 };
static struct stat  agent_root_stats[AGENT_ROOT_LAST];


int
agent_root_init(void)
{
    char      name[64];
    unsigned  i;

    for (i = 0; i < AGENT_ROOT_LAST; i++) {
        snprintf(name, sizeof(name), "%s/", agent_path_root_name(i));

        agent_root_fds[i] = open(name, O_PATH|O_DIRECTORY|O_CLOEXEC);

        if (agent_root_fds[i] != -1
            && fstat(agent_root_fds[i], &agent_root_stats[i]) == 0)
        {
            continue;
        }

        /* without /skills or /dev/shm there is nothing to be had there */

        if (i == AGENT_ROOT_HOME || i == AGENT_ROOT_ALL) {
            agent_log("%s can't be opened: error %d", name, errno);
            return -1;
        }
    }

    return 0;
}


int
agent_root_find(unsigned root, const char *path, struct stat *st,
    agent_root_e *where, char *real)
{
    int            i, fd;
    const char    *rest;
    agent_root_e   at;

    at = agent_root_pick(root, path, &rest);

    if (at == AGENT_ROOT_LAST) {
        errno = EXDEV;
        return -1;
    }

    if (agent_root_fds[at] == -1) {
        errno = ENOENT;
        return -1;
    }

    for (i = 0; i < AGENT_ROOT_TRIES; i++) {
        fd = agent_root_once(root, at, rest, st, where, real);

        if (fd != -1 || errno != EAGAIN) {
            return fd;
        }
    }

    errno = EBUSY;

    return -1;
}


int
agent_root_parent(unsigned root, const char *path, const char **name,
    agent_root_e *where, char *real)
{
    char         parent[SANDBOX_WIRE_MAX_PATH];
    size_t       length;
    struct stat  st;
    const char  *slash;

    if (agent_root_pick(root, path, &slash) == AGENT_ROOT_LAST) {
        errno = EXDEV;
        return -1;
    }

    slash = strrchr(path, '/');
    length = slash != NULL ? slash - path : 0;
    *name = slash != NULL ? slash + 1 : path;

    memcpy(parent, path, length);
    parent[length] = '\0';

    return agent_root_find(root, parent, &st, where, real);
}


int
agent_root_open(agent_root_e root, const char *path, uint64_t flags,
    unsigned mode)
{
    return agent_root_open_at(agent_root_fds[root], path, flags, mode);
}


int
agent_root_open_at(int fd, const char *path, uint64_t flags, unsigned mode)
{
    return agent_root_openat2(fd, path, flags, mode,
                              AGENT_ROOT_BENEATH|RESOLVE_NO_SYMLINKS);
}


int
agent_root_reopen(int fd, int flags)
{
    char  name[32];

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);

    return open(name, flags|O_CLOEXEC|O_NONBLOCK|O_NOCTTY);
}


int
agent_root_is(const struct stat *st)
{
    unsigned  i;

    for (i = 0; i < AGENT_ROOT_LAST; i++) {
        if (agent_root_fds[i] != -1
            && agent_root_stats[i].st_ino == st->st_ino
            && agent_root_stats[i].st_dev == st->st_dev)
        {
            return 1;
        }
    }

    return 0;
}


const char *
agent_root_code(int error, const char **detail)
{
    size_t  i;

    static const struct {
        int          error;
        const char  *code;
        const char  *detail;
    } codes[] = {
        { ENOENT, "file_not_found", "There is no such file." },
        { ENOTDIR, "not_a_directory",
          "A part of the path is not a directory." },
        { EISDIR, "is_a_directory", "It is a directory." },
        { ENOTEMPTY, "not_empty", "The directory is not empty." },
        { EEXIST, "not_empty", "There is something already." },
        { EXDEV, "path_outside", "The path leads out of its root." },
        { ELOOP, "not_a_file", "The symbolic links of the path don't end." },
        { ENXIO, "not_a_file", "It is not a file." },
        { ENODEV, "not_a_file", "It is not a file." },
        { EACCES, "not_permitted", "The sandbox's user may not do that." },
        { EPERM, "not_permitted", "The sandbox's user may not do that." },
        { EROFS, "not_permitted", "The sandbox's user may not do that." },
        { ENAMETOOLONG, "bad_request",
          "A name is longer than 255 bytes, or the path than 4095." },
        { EAGAIN, "file_busy", "A process in the sandbox has a lease on the "
          "file." },
        { EBUSY, "file_busy", "The file is being changed." },
        { ETXTBSY, "file_busy", "The file is being changed." },
        { ESTALE, "file_busy", "The file is being changed." },
        { ENOSPC, "disk_full", "The disk of the sandbox is full." },
        { EDQUOT, "disk_full", "The disk of the sandbox is full." },
        { EFBIG, "disk_full", "The file is too large for the disk." },
        { EMFILE, "too_many_pending", "Too many files are open." },
        { ENFILE, "too_many_pending", "Too many files are open." },
        { ENOMEM, "too_many_pending", "The sandbox has no memory left." }
    };

    for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (codes[i].error == error) {
            *detail = codes[i].detail;
            return codes[i].code;
        }
    }

    agent_log("a file could not be handled: error %d, %s", error,
              strerror(error));
    *detail = "The file could not be handled.";

    return "internal";
}


static agent_root_e
agent_root_pick(unsigned root, const char *path, const char **rest)
{
    if (root == SANDBOX_ROOT_ALL) {
        return agent_path_root(path, rest);
    }

    *rest = path;

    return AGENT_ROOT_HOME;
}


static int
agent_root_once(unsigned root, agent_root_e at, const char *rest,
    struct stat *st, agent_root_e *where, char *real)
{
    int  fd;

    fd = agent_root_openat2(agent_root_fds[at], *rest ? rest : ".", O_PATH, 0,
                            AGENT_ROOT_BENEATH);

    if (fd == -1) {
        if (errno == EXDEV) {
            return agent_root_links(root, at, rest, st, where, real);
        }

        return -1;
    }

    if (fstat(fd, st) == -1) {
        return agent_root_fail(fd, errno);
    }

    if (where == NULL) {
        return fd;
    }

    /* by links within the root it may be somewhere else than it was named */

    close(fd);

    return agent_root_links(root, at, rest, st, where, real);
}


/*
 * The kernel finds the place as the user would; it counts only if the same
 * thing is there beneath a root, without links.
 */

static int
agent_root_links(unsigned root, agent_root_e at, const char *rest,
    struct stat *st, agent_root_e *where, char *real)
{
    int            fd, found, length;
    char           name[SANDBOX_WIRE_MAX_PATH + 64];
    const char    *below;
    struct stat    seen;
    agent_root_e   place;

    length = snprintf(name, sizeof(name), "%s/%s", agent_path_root_name(at),
                      rest);

    if (length < 0 || (size_t) length >= SANDBOX_WIRE_MAX_PATH) {
        errno = ENAMETOOLONG;
        return -1;
    }

    found = agent_root_openat2(agent_root_fds[AGENT_ROOT_ALL], name, O_PATH,
                               0, RESOLVE_IN_ROOT|RESOLVE_NO_MAGICLINKS);

    if (found == -1) {

        /* here it is a magic link, since other loops were seen before */

        if (errno == ELOOP) {
            errno = EXDEV;
        }

        return -1;
    }

    if (fstat(found, &seen) == -1 || agent_root_name(found, name) == -1) {
        return agent_root_fail(found, errno);
    }

    close(found);

    place = agent_path_root(name + 1, &below);

    if (place == AGENT_ROOT_LAST || agent_root_fds[place] == -1
        || (place == AGENT_ROOT_ALL && root != SANDBOX_ROOT_ALL))
    {
        errno = EXDEV;
        return -1;
    }

    fd = agent_root_open(place, *below ? below : ".", O_PATH|O_NOFOLLOW, 0);

    if (fd == -1) {
        if (errno == ELOOP || errno == ENOENT) {
            errno = EAGAIN;              /* moved meanwhile */
        }

        return -1;
    }

    if (fstat(fd, st) == -1) {
        return agent_root_fail(fd, errno);
    }

    if (st->st_ino != seen.st_ino || st->st_dev != seen.st_dev) {
        return agent_root_fail(fd, EAGAIN);
    }

    if (where != NULL) {
        *where = place;
        memmove(real, below, strlen(below) + 1);
    }

    return fd;
}


static int
agent_root_openat2(int fd, const char *path, uint64_t flags, unsigned mode,
    uint64_t resolve)
{
    struct open_how  how;

    memset(&how, 0, sizeof(how));
    how.flags = flags|O_CLOEXEC;
    how.mode = mode;
    how.resolve = resolve;

    return syscall(SYS_openat2, fd, path, &how, sizeof(how));
}


/* Where it is, into SANDBOX_WIRE_MAX_PATH bytes or more. */

static int
agent_root_name(int fd, char *name)
{
    char     link[32];
    ssize_t  n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, name, SANDBOX_WIRE_MAX_PATH);

    if (n <= 0 || n >= SANDBOX_WIRE_MAX_PATH || name[0] != '/') {
        errno = n == -1 ? errno : ENAMETOOLONG;
        return -1;
    }

    name[n] = '\0';

    return 0;
}


static int
agent_root_fail(int fd, int error)
{
    close(fd);
    errno = error;

    return -1;
}
