/*
 * A tree of files, removed with few descriptors however deep it is: down by
 * names, up by those that were kept, or by "..", which must be the directory
 * it came from.  Whoever moves it about meanwhile ends the work, he does not
 * lead it elsewhere.
 */

#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_file.h"
#include "agent_remove.h"


#define AGENT_REMOVE_NAMES  512          /* in one step */
#define AGENT_REMOVE_READ   (16 * 1024)
#define AGENT_REMOVE_OPEN   32           /* directories, at a time */


static int agent_remove_directory(agent_remove_t *r, unsigned *names);
static int agent_remove_name(agent_remove_t *r, const char *name, off_t next);
static int agent_remove_down(agent_remove_t *r, int fd, const char *name);
static int agent_remove_up(agent_remove_t *r);


int
agent_remove_start(agent_remove_t *r, int base, const char *name, int user)
{
    int  rc;

    memset(r, 0, sizeof(agent_remove_t));
    r->base = base;
    r->user = user;
    strcpy(r->name, name);

    if (user) {
        agent_directory_user(1);
    }

    rc = agent_remove_down(r, base, name);

    if (user) {
        agent_directory_user(0);
    }

    return rc;
}


int
agent_remove_step(agent_remove_t *r)
{
    int       rc;
    unsigned  names;

    if (r->user) {
        agent_directory_user(1);
    }

    rc = 0;
    names = 0;

    while (rc == 0 && r->depth && names < AGENT_REMOVE_NAMES) {
        rc = agent_remove_directory(r, &names);
    }

    if (r->depth == 0 && rc == 0) {
        rc = unlinkat(r->base, r->name, AT_REMOVEDIR) == -1 ? errno : 0;

    } else if (rc == 0) {
        rc = EAGAIN;
    }

    if (r->user) {
        agent_directory_user(0);
    }

    return rc;
}


void
agent_remove_end(agent_remove_t *r)
{
    while (r->depth) {
        if (r->places[--r->depth].fd != -1) {
            close(r->places[r->depth].fd);
        }
    }

    free(r->places);
    r->places = NULL;
}


/* What one read says of it; up again, if it has nothing in it at all. */

static int
agent_remove_directory(agent_remove_t *r, unsigned *names)
{
    int                    rc;
    long                   n, at;
    unsigned               depth;
    struct stat            st;
    struct dirent64       *d;
    agent_remove_place_t  *place;
    uint8_t                buffer[AGENT_REMOVE_READ]
                               __attribute__((aligned(16)));

    depth = r->depth;
    place = &r->places[depth - 1];
    n = syscall(SYS_getdents64, place->fd, buffer, sizeof(buffer));

    if (n == -1) {

        /* it is removed, or was moved just now, which an overlay says so */

        if (errno == ENOENT && fstat(place->fd, &st) == 0) {
            if (st.st_nlink == 0) {
                return agent_remove_up(r);
            }

            if (r->tries++ < AGENT_FILE_TRIES) {
                (*names)++;
                return 0;
            }

            errno = EBUSY;
        }

        return errno;
    }

    (*names)++;

    if (n == 0) {
        if (!place->handled) {
            return agent_remove_up(r);
        }

        place->handled = 0;

        return lseek(place->fd, 0, SEEK_SET) == -1 ? errno : 0;
    }

    for (at = 0; at < n; at += d->d_reclen) {
        d = (struct dirent64 *) (buffer + at);

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) {
            continue;
        }

        r->places[depth - 1].handled = 1;
        rc = agent_remove_name(r, d->d_name, d->d_off);
        (*names)++;

        if (rc || r->depth != depth) {
            return rc;
        }
    }

    return 0;
}


static int
agent_remove_name(agent_remove_t *r, const char *name, off_t next)
{
    int  fd;

    fd = r->places[r->depth - 1].fd;

    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }

    if (errno != EISDIR && errno != EPERM) {
        return errno;
    }

    if (unlinkat(fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
        return 0;
    }

    if (errno != ENOTEMPTY && errno != EEXIST) {
        return errno;
    }

    /* it goes on behind this one; a second pass takes what is empty then */

    if (lseek(fd, next, SEEK_SET) == -1) {
        return errno;
    }

    return agent_remove_down(r, fd, name);
}


static int
agent_remove_down(agent_remove_t *r, int fd, const char *name)
{
    int                    down;
    unsigned               room, most;
    struct stat            st;
    agent_remove_place_t  *place;

    down = agent_root_open_at(fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW, 0);

    if (down == -1) {

        /* somebody else removes it as well */

        return errno == ENOENT && r->depth ? 0 : errno;
    }

    if (fstat(down, &st) == -1) {
        close(down);
        return errno;
    }

    if (r->depth == r->room) {
        room = r->room ? 2 * r->room : 64;
        most = r->user ? AGENT_REMOVE_DEPTH : AGENT_REMOVE_MOST;
        place = room > most ? NULL
                : realloc(r->places, room * sizeof(agent_remove_place_t));

        if (place == NULL) {
            close(down);
            return room > most ? ENAMETOOLONG : ENOMEM;
        }

        r->places = place;
        r->room = room;
    }

    if (r->depth > AGENT_REMOVE_OPEN) {
        place = &r->places[r->depth - 1];
        close(place->fd);
        place->fd = -1;
    }

    place = &r->places[r->depth++];
    place->ino = st.st_ino;
    place->dev = st.st_dev;
    place->fd = down;
    place->handled = 0;

    return 0;
}


static int
agent_remove_up(agent_remove_t *r)
{
    int                    up;
    struct stat            st;
    agent_remove_place_t  *from, *place;

    from = &r->places[--r->depth];

    if (r->depth == 0) {
        close(from->fd);
        return 0;
    }

    place = from - 1;

    if (place->fd != -1) {
        close(from->fd);
        return 0;
    }

    up = openat(from->fd, "..", O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
    close(from->fd);

    if (up == -1) {
        return errno;
    }

    if (fstat(up, &st) == -1 || st.st_ino != place->ino
        || st.st_dev != place->dev)
    {
        close(up);
        return EBUSY;
    }

    place->fd = up;
    place->handled = 0;

    return 0;
}
