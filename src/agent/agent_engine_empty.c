/*
 * All that a sandbox has written goes, a little at a time: what is in its
 * places, never these themselves.  Nothing of the sandbox runs meanwhile.
 */

#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent_engine.h"
#include "agent_file.h"
#include "agent_remove.h"
#include "agent_spool.h"


#define AGENT_EMPTY_NAMES    512         /* in one step */
#define AGENT_ENGINE_QUEUES  "/dev/mqueue"


static int agent_engine_empty_open(int all);
static int agent_engine_empty_keep(const char *name, int all);
static int agent_engine_empty_name(const char *name);


/* root's own, so that nobody can have put another one there */

static const char  *agent_engine_places[] = {
    AGENT_HOME, "/skills", "/tmp", "/var/tmp", "/dev/shm", "/run/lock",
    AGENT_ENGINE_QUEUES,                 /* if it is the container's */
    AGENT_PLACE                          /* last: of a deletion only */
};

#define AGENT_EMPTY_PLACES                                                    \
    (sizeof(agent_engine_places) / sizeof(agent_engine_places[0]))

static size_t          agent_engine_place;
static DIR            *agent_engine_dir;
static int             agent_engine_found;       /* in this pass */
static int             agent_engine_removing;
static agent_remove_t  agent_engine_remove;


int
agent_engine_empty(int all)
{
    int             rc;
    unsigned        n;
    struct dirent  *d;

    for (n = 0; n < AGENT_EMPTY_NAMES; n++) {

        if (agent_engine_removing) {
            rc = agent_remove_step(&agent_engine_remove);

            if (rc == EAGAIN) {
                return EAGAIN;
            }

            agent_remove_end(&agent_engine_remove);
            agent_engine_removing = 0;

            return rc && rc != ENOENT ? rc : EAGAIN;
        }

        rc = agent_engine_empty_open(all);

        if (rc) {
            return rc == ENOENT ? 0 : rc;
        }

        d = readdir(agent_engine_dir);

        if (d == NULL) {
            if (agent_engine_found) {

                /* what was removed may have hidden others */

                agent_engine_found = 0;
                rewinddir(agent_engine_dir);
                continue;
            }

            closedir(agent_engine_dir);
            agent_engine_dir = NULL;
            agent_engine_place++;
            continue;
        }

        if (agent_engine_empty_keep(d->d_name, all)) {
            continue;
        }

        rc = agent_engine_empty_name(d->d_name);

        if (rc) {
            return rc;
        }
    }

    return EAGAIN;
}


void
agent_engine_empty_end(void)
{
    if (agent_engine_removing) {
        agent_remove_end(&agent_engine_remove);
        agent_engine_removing = 0;
    }

    if (agent_engine_dir != NULL) {
        closedir(agent_engine_dir);
        agent_engine_dir = NULL;
    }

    agent_engine_place = 0;
    agent_engine_found = 0;
}


/* 0: one is open; ENOENT: that was the last; or an errno. */

static int
agent_engine_empty_open(int all)
{
    int     fd;
    size_t  most;

    most = all ? AGENT_EMPTY_PLACES : AGENT_EMPTY_PLACES - 1;

    while (agent_engine_dir == NULL && agent_engine_place < most) {

        fd = open(agent_engine_places[agent_engine_place],
                  O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

        if (fd == -1) {
            if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) {
                return errno;
            }

            /* the base has no such place */

            agent_engine_place++;
            continue;
        }

        agent_engine_dir = fdopendir(fd);

        if (agent_engine_dir == NULL) {
            close(fd);
            return ENOMEM;
        }

        agent_engine_found = 0;
    }

    return agent_engine_dir != NULL ? 0 : ENOENT;
}


/* What is needed until the end: by us, or by those that wait. */

static int
agent_engine_empty_keep(const char *name, int all)
{
    size_t       i;
    const char  *place;

    static const char  *meta[] = {
        "lock", "owner", "owner.new", "owner.lock", "state"
    };

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return 1;
    }

    place = agent_engine_places[agent_engine_place];

    if (strcmp(place, AGENT_ENGINE_QUEUES) == 0) {
        return !agent_engine_ipc_own();
    }

    if (strcmp(place, "/skills") == 0) {
        return !all && strcmp(name, AGENT_SPOOL_TREES) == 0;
    }

    if (strcmp(place, AGENT_PLACE) != 0) {
        return 0;
    }

    for (i = 0; i < sizeof(meta) / sizeof(meta[0]); i++) {
        if (strcmp(name, meta[i]) == 0) {
            return 1;
        }
    }

    return 0;
}


static int
agent_engine_empty_name(const char *name)
{
    int  fd, rc;

    fd = dirfd(agent_engine_dir);

    if (unlinkat(fd, name, 0) == 0) {
        agent_engine_found = 1;
        return 0;
    }

    if (errno != EISDIR && errno != EPERM) {
        rc = errno;

    } else {
        rc = agent_remove_start(&agent_engine_remove, fd, name, 0);

        if (rc == 0) {
            agent_engine_removing = 1;
            agent_engine_found = 1;
            return 0;
        }

        agent_remove_end(&agent_engine_remove);
    }

    /* a mount of the engine's is not the sandbox's */

    if (rc == ENOENT || rc == EBUSY || rc == EXDEV) {
        return 0;
    }

    agent_log("something in %s can't be removed: error %d",
              agent_engine_places[agent_engine_place], rc);

    return rc;
}
