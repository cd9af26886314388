/*
 * Files on their way.  On the mount of the spool they have a name in there:
 * in a directory where everybody may write, behind one where nobody but root
 * may pass.  Elsewhere they have no name (O_TMPFILE), or a hidden one.
 */

#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_file.h"
#include "agent_remove.h"
#include "agent_spool.h"


#define AGENT_SPOOL_TRASH  "old."


static uint64_t agent_spool_mount(int fd);
static int agent_spool_beside(agent_spool_t *spool, int beside);
static int agent_spool_link(agent_spool_t *spool, int directory,
    const char *name);
static int agent_spool_rename(agent_spool_t *spool, int directory,
    const char *name, unsigned flags);
static int agent_spool_exchange(agent_spool_t *spool, int directory,
    const char *name, const struct stat *old);
static void agent_spool_clean(agent_timer_t *timer);
static int agent_spool_next(int place, char *name);
static void agent_spool_trees_close(void);
static void agent_spool_trees_left(void);


static int             agent_spool_place_fd = -1;
static int             agent_spool_fd = -1;
static uint64_t        agent_spool_mount_id;
static int             agent_spool_trees_fd = -1;
static int             agent_spool_cleaning;
static agent_remove_t  agent_spool_remove;
static agent_timer_t   agent_spool_timer = { .handler = agent_spool_clean };


void
agent_spool_init(void)
{
    if (access(AGENT_PLACE, F_OK) == 0) {
        (void) agent_spool_dir();
    }

    if (access("/skills/" AGENT_SPOOL_TREES, F_OK) == 0) {
        (void) agent_spool_trees();
    }
}


int
agent_spool_place(void)
{
    int              fd, error;
    static unsigned  said;

    if (agent_spool_place_fd != -1) {
        return agent_spool_place_fd;
    }

    /* its parents are root's: nobody else can have made it */

    (void) !mkdir(AGENT_PLACE, 0700);
    fd = open(AGENT_PLACE, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1 || fchmod(fd, 0700) == -1) {
        error = errno;

        if (!said++) {
            agent_log(AGENT_PLACE " can't be used, error %d: what was staged "
                      "is forgotten at the agent's end", error);
        }

        if (fd != -1) {
            close(fd);
        }

        errno = error;

        return -1;
    }

    agent_spool_place_fd = fd;

    return fd;
}


int
agent_spool_dir(void)
{
    int   fd, place;
    char  name[AGENT_SPOOL_NAME];

    if (agent_spool_fd != -1) {
        return agent_spool_fd;
    }

    place = agent_spool_place();

    if (place == -1 || agent_spool_random(name, AGENT_SPOOL_TRASH) == -1) {
        return -1;
    }

    /* what is in there was on its way when another agent died */

    if (renameat(place, "spool", place, name) == -1 && errno != ENOENT) {
        agent_log("the spool can't be emptied: error %d", errno);
        return -1;
    }

    if (mkdirat(place, "spool", 0777) == -1) {
        return -1;
    }

    fd = openat(place, "spool", O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return -1;
    }

    if (fchmod(fd, 0777) == -1) {
        close(fd);
        return -1;
    }

    agent_spool_fd = fd;
    agent_spool_mount_id = agent_spool_mount(fd);
    agent_timer_set(&agent_spool_timer, 1);

    return fd;
}


/*
 * On the mount of the place, or, where /skills is another one, behind a
 * directory of root's in there.
 */

int
agent_spool_trees(void)
{
    int          fd, skills, spool;
    struct stat  st;
    static int   seen;

    if (agent_spool_trees_fd != -1) {
        return agent_spool_trees_fd;
    }

    spool = agent_spool_dir();
    skills = agent_root_open(AGENT_ROOT_SKILLS, ".", O_RDONLY|O_DIRECTORY, 0);

    if (spool == -1 || skills == -1 || agent_spool_mount_id == 0
        || agent_spool_mount(skills) == agent_spool_mount_id)
    {
        if (skills != -1) {
            close(skills);
        }

        return spool;
    }

    (void) !mkdirat(skills, AGENT_SPOOL_TREES, 0700);
    fd = openat(skills, AGENT_SPOOL_TREES,
                O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
    close(skills);

    if (fd == -1) {
        return -1;
    }

    if (fstat(fd, &st) == -1 || st.st_uid != 0 || fchmod(fd, 0700) == -1) {
        close(fd);
        errno = EPERM;
        return -1;
    }

    agent_spool_trees_fd = fd;

    if (!seen) {
        seen = 1;
        agent_spool_trees_left();
        agent_timer_set(&agent_spool_timer, 1);
    }

    return fd;
}


void
agent_spool_tidy(void)
{
    agent_spool_trees_close();

    if (agent_spool_trees_fd != -1) {
        agent_timer_set(&agent_spool_timer, 1);
    }
}


int
agent_spool_random(char *name, const char *prefix)
{
    uint64_t  number;

    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
        errno = EAGAIN;
        return -1;
    }

    snprintf(name, AGENT_SPOOL_NAME, "%s%016llx", prefix,
             (unsigned long long) number);

    return 0;
}


int
agent_spool_create(agent_spool_t *spool, int beside)
{
    int  dir, rc;

    spool->fd = -1;
    spool->name[0] = '\0';
    dir = agent_spool_dir();
    rc = errno;

    if (beside != -1
        && (dir == -1 || agent_spool_mount_id == 0
            || agent_spool_mount(beside) != agent_spool_mount_id))
    {
        return agent_spool_beside(spool, beside);
    }

    if (dir == -1) {
        return rc;
    }

    if (agent_spool_random(spool->name, "") == -1) {
        return errno;
    }

    spool->dir = dir;

    agent_directory_user(1);
    spool->fd = openat(dir, spool->name,
                       O_RDWR|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0600);
    rc = errno;
    agent_directory_user(0);

    if (spool->fd == -1) {
        spool->name[0] = '\0';
        return rc;
    }

    return 0;
}


/*
 * With `old`, that version is replaced, and ECANCELED is the answer where it
 * has become another one.
 */

int
agent_spool_commit(agent_spool_t *spool, int directory, const char *name,
    int replace, const struct stat *old)
{
    int  rc;

    agent_directory_user(1);

    rc = 0;

    if (spool->name[0] == '\0') {
        rc = agent_spool_link(spool, directory, name);

        if (rc == 0) {
            goto done;
        }

        /* a link can't take another's place, a name can */

        if (rc == EEXIST && replace) {
            rc = agent_spool_random(spool->name, ".sandbox-") == -1 ? errno
                 : agent_spool_link(spool, directory, spool->name);

            spool->dir = directory;

            if (rc) {
                spool->name[0] = '\0';
            }
        }
    }

    if (rc == 0) {
        rc = (old != NULL)
             ? agent_spool_exchange(spool, directory, name, old)
             : agent_spool_rename(spool, directory, name,
                                  replace ? 0 : RENAME_NOREPLACE);
    }

    if (rc && spool->dir == directory && spool->name[0]) {
        unlinkat(spool->dir, spool->name, 0);
    }

    if (rc == 0) {
        spool->name[0] = '\0';
    }

done:

    agent_directory_user(0);

    return rc;
}


static int
agent_spool_rename(agent_spool_t *spool, int directory, const char *name,
    unsigned flags)
{
    return syscall(SYS_renameat2, spool->dir, spool->name, directory, name,
                   flags)
           == -1 ? errno : 0;
}


/*
 * Between a look at a file and the rename a command may have put another one
 * in its place: the two change places, and what came out is looked at.
 */

static int
agent_spool_exchange(agent_spool_t *spool, int directory, const char *name,
    const struct stat *old)
{
    int          rc;
    struct stat  out, mine, now;

    rc = agent_spool_rename(spool, directory, name, RENAME_EXCHANGE);

    if (rc == EINVAL || rc == ENOSYS) {

        /* a file system that has no such call */

        return agent_spool_rename(spool, directory, name, 0);
    }

    if (rc) {
        return rc == ENOENT ? ECANCELED : rc;
    }

    /* not by its inode: that of a file of the base may become another one */

    if (fstatat(spool->dir, spool->name, &out, AT_SYMLINK_NOFOLLOW) == 0
        && out.st_size == old->st_size
        && out.st_mtim.tv_sec == old->st_mtim.tv_sec
        && out.st_mtim.tv_nsec == old->st_mtim.tv_nsec)
    {
        agent_directory_user(0);
        unlinkat(spool->dir, spool->name, 0);

        return 0;
    }

    /* it goes back, unless there is a newer one by now */

    if (fstat(spool->fd, &mine) == 0
        && fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW) == 0
        && now.st_ino == mine.st_ino && now.st_dev == mine.st_dev)
    {
        (void) agent_spool_rename(spool, directory, name, RENAME_EXCHANGE);
    }

    return ECANCELED;
}


void
agent_spool_keep(agent_spool_t *spool)
{
    if (spool->name[0]) {
        close(spool->fd);
        spool->fd = -1;
    }
}


int
agent_spool_stat(const agent_spool_t *spool, struct stat *st)
{
    int  rc;

    if (spool->fd != -1) {
        return fstat(spool->fd, st) == -1 ? errno : 0;
    }

    rc = fstatat(spool->dir, spool->name, st, AT_SYMLINK_NOFOLLOW);

    return rc == -1 ? errno : 0;
}


void
agent_spool_drop(agent_spool_t *spool)
{
    if (spool->fd != -1) {
        close(spool->fd);
        spool->fd = -1;
    }

    if (spool->name[0]) {
        agent_directory_user(1);
        unlinkat(spool->dir, spool->name, 0);
        agent_directory_user(0);
        spool->name[0] = '\0';
    }
}


int
agent_spool_discard(int directory, const char *name)
{
    int   place;
    char  trash[AGENT_SPOOL_NAME];

    place = agent_spool_place();

    if (place == -1 || agent_spool_random(trash, AGENT_SPOOL_TRASH) == -1) {
        return errno;
    }

    if (renameat(directory, name, place, trash) == -1
        && (errno != EXDEV
            || renameat(directory, name, agent_spool_trees(), trash) == -1))
    {
        return errno;
    }

    agent_timer_set(&agent_spool_timer, 1);

    return 0;
}


/* 0: the kernel does not say. */

static uint64_t
agent_spool_mount(int fd)
{
    struct statx  st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) == -1
        || !(st.stx_mask & STATX_MNT_ID))
    {
        return 0;
    }

    return st.stx_mnt_id;
}


static int
agent_spool_beside(agent_spool_t *spool, int beside)
{
    int  rc;

    agent_directory_user(1);

    spool->dir = beside;
    spool->fd = agent_root_open_at(beside, ".", O_RDWR|O_TMPFILE, 0600);
    rc = errno;

    if (spool->fd == -1 && (rc == EOPNOTSUPP || rc == EISDIR || rc == EINVAL)
        && agent_spool_random(spool->name, ".sandbox-") == 0)
    {
        spool->fd = agent_root_open_at(beside, spool->name,
                                       O_RDWR|O_CREAT|O_EXCL, 0600);
        rc = errno;
    }

    agent_directory_user(0);

    if (spool->fd == -1) {
        spool->name[0] = '\0';
        return rc;
    }

    return 0;
}


static int
agent_spool_link(agent_spool_t *spool, int directory, const char *name)
{
    char  link[32];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", spool->fd);

    return linkat(AT_FDCWD, link, directory, name, AT_SYMLINK_FOLLOW) == -1
           ? errno : 0;
}


/* One step of removing what was discarded, then the next tree. */

static void
agent_spool_clean(agent_timer_t *timer)
{
    int          rc;
    char         name[AGENT_SPOOL_NAME];
    static int   place;

    if (!agent_spool_cleaning) {
        place = agent_spool_place_fd;

        if (agent_spool_next(place, name) == -1) {
            place = agent_spool_trees_fd;

            if (agent_spool_next(place, name) == -1) {
                agent_spool_trees_close();
                return;
            }
        }

        rc = agent_remove_start(&agent_spool_remove, place, name, 0);
        agent_spool_cleaning = rc == 0;

        if (rc) {
            agent_remove_end(&agent_spool_remove);

            if (rc != ENOTDIR || unlinkat(place, name, 0) == -1) {
                agent_log("\"%s\" of the agent's places can't be removed: "
                          "error %d", name, rc);
                return;
            }
        }

    } else {
        rc = agent_remove_step(&agent_spool_remove);

        if (rc != EAGAIN) {
            agent_remove_end(&agent_spool_remove);
            agent_spool_cleaning = 0;

            if (rc) {
                agent_log("something in the agent's places can't be removed: "
                          "error %d", rc);
                return;
            }
        }
    }

    agent_timer_set(timer, 1);
}


/* A name in the place that is to be removed. */

static int
agent_spool_next(int place, char *name)
{
    int             fd;
    DIR            *dir;
    struct dirent  *d;

    if (place == -1) {
        return -1;
    }

    fd = openat(place, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = fd != -1 ? fdopendir(fd) : NULL;

    if (dir == NULL) {
        if (fd != -1) {
            close(fd);
        }

        return -1;
    }

    while ((d = readdir(dir)) != NULL) {
        if (strncmp(d->d_name, AGENT_SPOOL_TRASH,
                    sizeof(AGENT_SPOOL_TRASH) - 1) == 0
            && strlen(d->d_name) < AGENT_SPOOL_NAME)
        {
            strcpy(name, d->d_name);
            break;
        }
    }

    closedir(dir);

    return d != NULL ? 0 : -1;
}


/* It is seen in /skills: it goes while there is nothing in it. */

static void
agent_spool_trees_close(void)
{
    int  skills;

    if (agent_spool_trees_fd == -1) {
        return;
    }

    skills = agent_root_open(AGENT_ROOT_SKILLS, ".", O_RDONLY|O_DIRECTORY, 0);

    if (skills == -1) {
        return;
    }

    if (unlinkat(skills, AGENT_SPOOL_TREES, AT_REMOVEDIR) == 0) {
        close(agent_spool_trees_fd);
        agent_spool_trees_fd = -1;
    }

    close(skills);
}


/* What was on its way when another agent died. */

static void
agent_spool_trees_left(void)
{
    int             fd;
    DIR            *dir;
    char            trash[AGENT_SPOOL_NAME];
    struct dirent  *d;

    fd = openat(agent_spool_trees_fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = fd != -1 ? fdopendir(fd) : NULL;

    if (dir == NULL) {
        if (fd != -1) {
            close(fd);
        }

        return;
    }

    while ((d = readdir(dir)) != NULL) {
        if (strncmp(d->d_name, AGENT_SPOOL_TREE,
                    sizeof(AGENT_SPOOL_TREE) - 1) == 0
            && agent_spool_random(trash, AGENT_SPOOL_TRASH) == 0)
        {
            (void) !renameat(agent_spool_trees_fd, d->d_name,
                             agent_spool_trees_fd, trash);
        }
    }

    closedir(dir);
}
