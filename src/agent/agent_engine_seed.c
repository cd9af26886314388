/*
 * The home of a new sandbox is that of the base, which the image has at
 * another place, since a volume hides it.  What is there already is left as
 * it is: it may be the user's, or made by an agent that did not come to its
 * end.  No file is there before it is whole.
 */

#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_engine.h"


#define AGENT_SEED         "/usr/share/sandbox/home"
#define AGENT_SEED_HIDDEN  ".sandbox-seed"       /* without O_TMPFILE */
#define AGENT_SEED_DEPTH   64
#define AGENT_SEED_NAMES   256           /* in one step */
#define AGENT_SEED_PIECE   (1024 * 1024)         /* bytes, likewise */
#define AGENT_SEED_READ    (64 * 1024)


typedef struct {
    DIR    *from;
    int     to;
} agent_seed_level_t;


/* the file that is being copied */

typedef struct {
    int          from;                   /* -1: none */
    int          to;
    int          hidden;                 /* it has that name */
    struct stat  st;
    char         name[256];
} agent_seed_file_t;


static int agent_engine_seed_start(void);
static int agent_engine_seed_push(int from, const char *name, int to);
static int agent_engine_seed_name(const char *name);
static int agent_engine_seed_directory(const char *name,
    const struct stat *st);
static int agent_engine_seed_link(const char *name);
static int agent_engine_seed_open(const char *name, const struct stat *st);
static int agent_engine_seed_copy(void);
static int agent_engine_seed_commit(void);
static int agent_engine_seed_end_file(int rc);


static agent_seed_level_t  agent_engine_levels[AGENT_SEED_DEPTH];
static unsigned            agent_engine_depth;
static agent_seed_file_t   agent_engine_file = { .from = -1 };


int
agent_engine_seed(void)
{
    int                  rc;
    unsigned             n;
    struct dirent       *d;
    agent_seed_level_t  *level;

    if (agent_engine_depth == 0) {
        rc = agent_engine_seed_start();

        if (rc) {
            return rc == ENOENT ? 0 : rc;
        }
    }

    for (n = 0; n < AGENT_SEED_NAMES; n++) {

        if (agent_engine_file.from != -1) {
            rc = agent_engine_seed_copy();

            if (rc) {
                return rc;
            }

            continue;
        }

        level = &agent_engine_levels[agent_engine_depth - 1];
        d = readdir(level->from);

        if (d != NULL) {
            rc = agent_engine_seed_name(d->d_name);

            if (rc) {
                agent_log("%s of the base's home can't be copied: error %d",
                          d->d_name, rc);
                return rc;
            }

            continue;
        }

        closedir(level->from);
        close(level->to);

        if (--agent_engine_depth == 0) {
            return 0;
        }
    }

    return EAGAIN;
}


void
agent_engine_seed_end(void)
{
    (void) agent_engine_seed_end_file(0);

    while (agent_engine_depth) {
        agent_engine_depth--;
        closedir(agent_engine_levels[agent_engine_depth].from);
        close(agent_engine_levels[agent_engine_depth].to);
    }
}


/* ENOENT: the image has none, and the home begins empty. */

static int
agent_engine_seed_start(void)
{
    int  home;

    home = open(AGENT_HOME, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (home == -1) {
        return errno == ENOENT ? EIO : errno;
    }

    if (fchown(home, AGENT_UID, AGENT_GID) == -1 || fchmod(home, 0755) == -1) {
        close(home);
        return errno;
    }

    /* one that was not finished */

    (void) !unlinkat(home, AGENT_SEED_HIDDEN, 0);

    return agent_engine_seed_push(AT_FDCWD, AGENT_SEED, home);
}


/* Takes over `to`. */

static int
agent_engine_seed_push(int from, const char *name, int to)
{
    int   fd, rc;
    DIR  *dir;

    rc = ENAMETOOLONG;
    fd = agent_engine_depth == AGENT_SEED_DEPTH ? -1
         : openat(from, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        rc = agent_engine_depth == AGENT_SEED_DEPTH ? rc : errno;
        close(to);
        return rc;
    }

    dir = fdopendir(fd);

    if (dir == NULL) {
        close(fd);
        close(to);
        return ENOMEM;
    }

    agent_engine_levels[agent_engine_depth].from = dir;
    agent_engine_levels[agent_engine_depth].to = to;
    agent_engine_depth++;

    return 0;
}


static int
agent_engine_seed_name(const char *name)
{
    struct stat          st;
    agent_seed_level_t  *level;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return 0;
    }

    level = &agent_engine_levels[agent_engine_depth - 1];

    if (fstatat(dirfd(level->from), name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return errno;
    }

    switch (st.st_mode & S_IFMT) {

    case S_IFDIR:
        return agent_engine_seed_directory(name, &st);

    case S_IFLNK:
        return agent_engine_seed_link(name);

    case S_IFREG:
        return agent_engine_seed_open(name, &st);
    }

    return 0;
}


/* One that is root's was made by us: nobody else can have. */

static int
agent_engine_seed_directory(const char *name, const struct stat *st)
{
    int                  fd;
    struct stat          there;
    agent_seed_level_t  *level;

    level = &agent_engine_levels[agent_engine_depth - 1];

    if (mkdirat(level->to, name, 0700) == -1 && errno != EEXIST) {
        return errno;
    }

    fd = openat(level->to, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return errno == ENOTDIR || errno == ELOOP ? 0 : errno;
    }

    if (fstat(fd, &there) == -1
        || (there.st_uid == 0
            && (fchmod(fd, st->st_mode & 0777) == -1
                || fchown(fd, AGENT_UID, AGENT_GID) == -1)))
    {
        close(fd);
        return errno;
    }

    return agent_engine_seed_push(dirfd(level->from), name, fd);
}


static int
agent_engine_seed_link(const char *name)
{
    char                 target[SANDBOX_WIRE_MAX_PATH];
    ssize_t              n;
    struct stat          there;
    agent_seed_level_t  *level;

    level = &agent_engine_levels[agent_engine_depth - 1];
    n = readlinkat(dirfd(level->from), name, target, sizeof(target) - 1);

    if (n == -1) {
        return errno;
    }

    target[n] = '\0';

    if (symlinkat(target, level->to, name) == -1 && errno != EEXIST) {
        return errno;
    }

    if (fstatat(level->to, name, &there, AT_SYMLINK_NOFOLLOW) == 0
        && there.st_uid == 0 && S_ISLNK(there.st_mode)
        && fchownat(level->to, name, AGENT_UID, AGENT_GID,
                    AT_SYMLINK_NOFOLLOW)
           == -1)
    {
        return errno;
    }

    return 0;
}


static int
agent_engine_seed_open(const char *name, const struct stat *st)
{
    int                  home;
    struct stat          there;
    agent_seed_level_t  *level;
    agent_seed_file_t   *file;

    file = &agent_engine_file;
    level = &agent_engine_levels[agent_engine_depth - 1];

    if (fstatat(level->to, name, &there, AT_SYMLINK_NOFOLLOW) == 0) {
        return 0;
    }

    file->from = openat(dirfd(level->from), name,
                        O_RDONLY|O_NOFOLLOW|O_CLOEXEC);

    if (file->from == -1) {
        return errno;
    }

    file->st = *st;
    strcpy(file->name, name);
    file->hidden = 0;
    file->to = openat(level->to, ".", O_WRONLY|O_TMPFILE|O_CLOEXEC, 0600);

    if (file->to == -1 && (errno == EOPNOTSUPP || errno == EISDIR
                           || errno == EINVAL))
    {
        home = agent_engine_levels[0].to;
        file->hidden = 1;
        file->to = openat(home, AGENT_SEED_HIDDEN, O_WRONLY|O_CREAT|O_EXCL
                                                   |O_NOFOLLOW|O_CLOEXEC,
                          0600);
    }

    return file->to == -1 ? agent_engine_seed_end_file(errno) : 0;
}


/* EAGAIN: there is more of it; 0: it is in its place; or an errno. */

static int
agent_engine_seed_copy(void)
{
    size_t           done;
    ssize_t          n;
    static uint8_t   buffer[AGENT_SEED_READ];

    for (done = 0; done < AGENT_SEED_PIECE; done += n) {
        n = read(agent_engine_file.from, buffer, sizeof(buffer));

        if (n == -1) {
            return agent_engine_seed_end_file(errno);
        }

        if (n == 0) {
            return agent_engine_seed_end_file(agent_engine_seed_commit());
        }

        if (write(agent_engine_file.to, buffer, n) != n) {
            return agent_engine_seed_end_file(ENOSPC);
        }
    }

    return EAGAIN;
}


static int
agent_engine_seed_commit(void)
{
    int                  rc, to;
    char                 link[32];
    struct timespec      times[2];
    agent_seed_file_t   *file;

    file = &agent_engine_file;
    to = agent_engine_levels[agent_engine_depth - 1].to;
    times[0] = file->st.st_mtim;
    times[1] = file->st.st_mtim;

    if (fchown(file->to, AGENT_UID, AGENT_GID) == -1
        || fchmod(file->to, file->st.st_mode & 0777) == -1
        || futimens(file->to, times) == -1)
    {
        return errno;
    }

    if (file->hidden) {
        rc = syscall(SYS_renameat2, agent_engine_levels[0].to,
                     AGENT_SEED_HIDDEN, to, file->name, RENAME_NOREPLACE);

    } else {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", file->to);
        rc = linkat(AT_FDCWD, link, to, file->name, AT_SYMLINK_FOLLOW);
    }

    return rc == -1 && errno != EEXIST ? errno : 0;
}


static int
agent_engine_seed_end_file(int rc)
{
    if (agent_engine_file.from == -1) {
        return rc;
    }

    close(agent_engine_file.from);
    agent_engine_file.from = -1;

    if (agent_engine_file.to != -1) {
        close(agent_engine_file.to);
    }

    if (agent_engine_file.hidden && agent_engine_depth) {
        (void) !unlinkat(agent_engine_levels[0].to, AGENT_SEED_HIDDEN, 0);
    }

    return rc;
}
