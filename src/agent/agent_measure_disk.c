/*
 * What files take on the disk, where no quota counts it: by looking at all of
 * them, in a process of its own, within a time.  Who moves directories about
 * meanwhile has less counted; he is not followed elsewhere.
 */

#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_measure.h"


#define AGENT_WALK_READ    (32 * 1024)
#define AGENT_WALK_OPEN    64            /* directories, at a time */
#define AGENT_WALK_DEPTH   (64 * 1024)
#define AGENT_WALK_NAME    512           /* bytes for each: an inode, a name */
#define AGENT_WALK_ROUND   256           /* names between looks at the clock */

#define AGENT_NAMELESS_MOST   4096       /* that are told apart */
#define AGENT_NAMELESS_FILES  65536      /* descriptors of one process */


typedef struct {
    int       fd;                        /* -1: by ".." from below */
    dev_t     device;
    ino_t     inode;
    off_t     next;                      /* where it goes on */
} agent_walk_level_t;


typedef struct {
    agent_walk_level_t  *levels;
    unsigned             room;
    unsigned             depth;
    unsigned             names;
    uint64_t             bytes;
    uint64_t             deadline;
} agent_walk_t;


typedef struct {
    dev_t     device;
    ino_t     inode;
} agent_nameless_t;


typedef struct {
    agent_measured_t  *measured;
    uint64_t           deadline;
} agent_nameless_sum_t;


static int agent_walk_down(agent_walk_t *w, int fd);
static int agent_walk_up(agent_walk_t *w);
static int agent_walk_directory(agent_walk_t *w);
static int agent_walk_name(agent_walk_t *w, const char *name, off_t next);
static int agent_nameless_process(int proc, pid_t pid, void *data);
static void agent_nameless_file(int dir, const char *name,
    agent_measured_t *measured);
static int agent_nameless_known(const struct stat *st);


static agent_nameless_t  agent_nameless[AGENT_NAMELESS_MOST];
static unsigned          agent_nameless_count;


uint64_t
agent_measure_walk(const char *path, uint64_t deadline)
{
    int            fd;
    agent_walk_t   w;
    struct statfs  fs;

    memset(&w, 0, sizeof(w));
    w.deadline = deadline;

    fd = open(path, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return 0;
    }

    /* what is memory is counted there, but home is home wherever it is */

    if (fstatfs(fd, &fs) == -1
        || (fs.f_type == TMPFS_MAGIC && strcmp(path, AGENT_HOME) != 0))
    {
        close(fd);
        return 0;
    }

    if (agent_walk_down(&w, fd) == 0) {
        while (w.depth && agent_walk_directory(&w) == 0) {
            continue;
        }
    }

    while (w.depth) {
        if (w.levels[--w.depth].fd != -1) {
            close(w.levels[w.depth].fd);
        }
    }

    free(w.levels);

    return w.bytes;
}


/* Owns fd. */

static int
agent_walk_down(agent_walk_t *w, int fd)
{
    unsigned             room;
    struct stat          st;
    agent_walk_level_t  *level, *levels;

    if (w->depth == w->room) {
        room = w->room ? 2 * w->room : 64;
        levels = room > AGENT_WALK_DEPTH ? NULL
                 : realloc(w->levels, room * sizeof(agent_walk_level_t));

        if (levels == NULL) {
            close(fd);
            return -1;
        }

        w->levels = levels;
        w->room = room;
    }

    if (fstat(fd, &st) == -1) {
        close(fd);
        return -1;
    }

    if (w->depth >= AGENT_WALK_OPEN) {
        level = &w->levels[w->depth - AGENT_WALK_OPEN];

        if (level->fd != -1) {
            close(level->fd);
            level->fd = -1;
        }
    }

    level = &w->levels[w->depth++];
    level->fd = fd;
    level->device = st.st_dev;
    level->inode = st.st_ino;
    level->next = 0;

    w->bytes += (uint64_t) st.st_blocks * 512 + AGENT_WALK_NAME;

    return 0;
}


/* Back where it came from, which must be the same directory still. */

static int
agent_walk_up(agent_walk_t *w)
{
    int                  fd;
    struct stat          st;
    agent_walk_level_t  *level;

    fd = w->levels[--w->depth].fd;

    if (w->depth == 0) {
        close(fd);
        return 0;
    }

    level = &w->levels[w->depth - 1];

    if (level->fd == -1) {
        level->fd = openat(fd, "..", O_RDONLY|O_DIRECTORY|O_CLOEXEC);

        if (level->fd == -1 || fstat(level->fd, &st) == -1
            || st.st_dev != level->device || st.st_ino != level->inode
            || lseek(level->fd, level->next, SEEK_SET) == -1)
        {
            close(fd);
            return -1;
        }
    }

    close(fd);

    return 0;
}


/* One read of the directory where it is; 0, or -1: no more. */

static int
agent_walk_directory(agent_walk_t *w)
{
    int               fd, rc;
    long              n, at;
    struct dirent64  *d;
    uint8_t           buffer[AGENT_WALK_READ] __attribute__((aligned(16)));

    fd = w->levels[w->depth - 1].fd;
    n = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));

    if (n <= 0) {
        return agent_walk_up(w);
    }

    for (at = 0; at < n; at += d->d_reclen) {
        d = (struct dirent64 *) (buffer + at);

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) {
            continue;
        }

        if (++w->names % AGENT_WALK_ROUND == 0
            && agent_now_ms() > w->deadline)
        {
            return -1;
        }

        rc = agent_walk_name(w, d->d_name, d->d_off);

        if (rc) {
            return rc == 1 ? 0 : -1;
        }
    }

    return 0;
}


/* 1: it went down. */

static int
agent_walk_name(agent_walk_t *w, const char *name, off_t next)
{
    int                  fd;
    struct stat          st;
    agent_walk_level_t  *level;

    level = &w->levels[w->depth - 1];

    if (fstatat(level->fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return 0;
    }

    if (!S_ISDIR(st.st_mode)) {

        /* one of several names has its part of it */

        w->bytes += (uint64_t) st.st_blocks * 512
                    / (st.st_nlink ? st.st_nlink : 1) + AGENT_WALK_NAME;
        return 0;
    }

    if (st.st_dev != level->device) {
        return 0;
    }

    fd = openat(level->fd, name,
                O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
    if (fd == -1) {
        return 0;
    }

    if (lseek(level->fd, next, SEEK_SET) == -1) {
        close(fd);
        return -1;
    }

    level->next = next;

    return agent_walk_down(w, fd) == 0 ? 1 : -1;
}


void
agent_measure_nameless(agent_measured_t *measured, uint64_t deadline)
{
    agent_nameless_sum_t  sum;

    sum.measured = measured;
    sum.deadline = deadline;

    /* the kernel lets him see them to whom they belong */

    agent_directory_user(1);
    agent_measure_each(agent_nameless_process, &sum, deadline);
    agent_directory_user(0);
}


static int
agent_nameless_process(int proc, pid_t pid, void *data)
{
    int                    fd;
    DIR                   *dir;
    char                   path[32];
    unsigned               n;
    struct dirent         *entry;
    agent_nameless_sum_t  *sum;

    sum = data;

    /* of one whose first thread has ended only another one has them */

    pid = agent_measure_speaker(proc, pid);
    snprintf(path, sizeof(path), "%d/fd", (int) pid);
    fd = openat(proc, path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = fd != -1 ? fdopendir(fd) : NULL;

    if (dir == NULL) {
        if (fd != -1) {
            close(fd);
        }

        return 1;
    }

    for (n = 1; n < AGENT_NAMELESS_FILES; n++) {
        entry = readdir(dir);

        if (entry == NULL
            || (n % AGENT_WALK_ROUND == 0 && agent_now_ms() > sum->deadline))
        {
            break;
        }

        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') {
            agent_nameless_file(fd, entry->d_name, sum->measured);
        }
    }

    closedir(dir);

    return 1;
}


static void
agent_nameless_file(int dir, const char *name, agent_measured_t *measured)
{
    int            fd;
    struct stat    st;
    struct statfs  fs;

    if (fstatat(dir, name, &st, 0) == -1 || !S_ISREG(st.st_mode)
        || st.st_nlink != 0 || st.st_blocks == 0
        || agent_nameless_known(&st))
    {
        return;
    }

    fd = openat(dir, name, O_PATH|O_CLOEXEC);

    if (fd == -1) {
        return;
    }

    if (fstatfs(fd, &fs) == -1 || fs.f_type != TMPFS_MAGIC) {
        measured->removed += (uint64_t) st.st_blocks * 512;

    } else if (!agent_measure_memory(st.st_dev)) {
        measured->nameless += (uint64_t) st.st_blocks * 512;
    }

    close(fd);
}


/* 1: it was seen before; what there is no room for counts each time. */

static int
agent_nameless_known(const struct stat *st)
{
    unsigned  i;

    for (i = 0; i < agent_nameless_count; i++) {
        if (agent_nameless[i].inode == st->st_ino
            && agent_nameless[i].device == st->st_dev)
        {
            return 1;
        }
    }

    if (i < AGENT_NAMELESS_MOST) {
        agent_nameless[i].inode = st->st_ino;
        agent_nameless[i].device = st->st_dev;
        agent_nameless_count++;
    }

    return 0;
}
