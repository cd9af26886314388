/*
 * Entries of a tar into files.  Each is made new, below a directory that is
 * opened without following any link: what comes twice, or through a link, is
 * refused, and all of the tar with it.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_file.h"
#include "agent_unpack.h"
#include "sandbox_tar.h"


#define AGENT_UNPACK_ENTRIES  64         /* in one step */
#define AGENT_UNPACK_READ     (64 * 1024)
#define AGENT_UNPACK_READS    16         /* in one step */


struct agent_unpack_s {
    int              from;
    int              top;
    int              file;               /* being written; -1: none */
    char             name[AGENT_SPOOL_NAME];
    size_t           size;               /* in the buffer */
    const uint8_t   *at;
    sandbox_tar_t    tar;
    uint8_t          buffer[AGENT_UNPACK_READ];
};


static int agent_unpack_entry(agent_unpack_t *u);
static int agent_unpack_parent(agent_unpack_t *u, char *path,
    const char **name);
static int agent_unpack_write(int fd, const uint8_t *p, size_t size);


agent_unpack_t *
agent_unpack_start(int fd)
{
    int              spool;
    agent_unpack_t  *u;

    spool = agent_spool_trees();

    if (spool == -1 || lseek(fd, 0, SEEK_SET) == -1) {
        return NULL;
    }

    u = malloc(sizeof(agent_unpack_t));

    if (u == NULL) {
        return NULL;
    }

    u->from = fd;
    u->file = -1;
    u->size = 0;
    u->at = u->buffer;
    sandbox_tar_init(&u->tar);

    if (agent_spool_random(u->name, AGENT_SPOOL_TREE) == -1
        || mkdirat(spool, u->name, 0755) == -1)
    {
        free(u);
        return NULL;
    }

    u->top = agent_root_open_at(spool, u->name,
                                O_RDONLY|O_DIRECTORY|O_NOFOLLOW, 0);

    if (u->top == -1) {
        unlinkat(spool, u->name, AT_REMOVEDIR);
        free(u);
        return NULL;
    }

    return u;
}


int
agent_unpack_step(agent_unpack_t *u, const char **detail)
{
    int             rc;
    size_t          length;
    ssize_t         n;
    unsigned        entries, reads;
    const uint8_t  *data;

    reads = 0;

    for (entries = 0; entries < AGENT_UNPACK_ENTRIES; /* void */ ) {

        rc = sandbox_tar_next(&u->tar, &u->at, &u->size, &data, &length);

        switch (rc) {

        case SANDBOX_TAR_AGAIN:
            if (reads++ == AGENT_UNPACK_READS) {
                return EAGAIN;
            }

            n = read(u->from, u->buffer, sizeof(u->buffer));

            if (n == -1) {
                return errno == EINTR ? EAGAIN : errno;
            }

            if (n == 0) {
                *detail = "The tar is cut short.";
                return EBADMSG;
            }

            u->at = u->buffer;
            u->size = n;
            break;

        case SANDBOX_TAR_ENTRY:
            entries++;
            rc = agent_unpack_entry(u);

            if (rc == EEXIST || rc == ELOOP || rc == ENOTDIR) {
                *detail = "The tar has two entries of one name, or one below "
                          "a link or a file.";
                return EBADMSG;
            }

            if (rc) {
                return rc;
            }

            break;

        case SANDBOX_TAR_DATA:
            rc = agent_unpack_write(u->file, data, length);

            if (rc) {
                return rc;
            }

            break;

        case SANDBOX_TAR_DONE:
            return 0;

        default:
            *detail = u->tar.error;
            return EBADMSG;
        }
    }

    return EAGAIN;
}


void
agent_unpack_end(agent_unpack_t *u, char *name)
{
    if (u->file != -1) {
        close(u->file);
    }

    close(u->top);

    if (name != NULL) {
        strcpy(name, u->name);

    } else {
        (void) agent_spool_discard(agent_spool_trees(), u->name);
    }

    free(u);
}


/* 0, or an errno. */

static int
agent_unpack_entry(agent_unpack_t *u)
{
    int                   dir, rc;
    const char           *name;
    struct stat           st;
    sandbox_tar_entry_t  *e;

    if (u->file != -1) {
        close(u->file);
        u->file = -1;
    }

    e = &u->tar.entry;

    if (e->path[0] == '\0') {
        return 0;                        /* the top */
    }

    dir = agent_unpack_parent(u, e->path, &name);

    if (dir == -1) {
        return errno;
    }

    rc = 0;

    switch (e->type) {

    case SANDBOX_TAR_FILE:
        u->file = agent_root_open_at(dir, name, O_WRONLY|O_CREAT|O_EXCL,
                                     e->mode & 0111 ? 0755 : 0644);
        rc = u->file == -1 ? errno : 0;
        break;

    case SANDBOX_TAR_DIRECTORY:
        if (mkdirat(dir, name, 0755) == -1) {
            rc = errno;

            if (rc == EEXIST
                && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0
                && S_ISDIR(st.st_mode))
            {
                rc = 0;
            }
        }

        break;

    case SANDBOX_TAR_LINK:
        rc = symlinkat(e->target, dir, name) == -1 ? errno : 0;
        break;
    }

    close(dir);

    return rc;
}


/* Its directory, which is made if need be; ends the path there. */

static int
agent_unpack_parent(agent_unpack_t *u, char *path, const char **name)
{
    int    fd, next;
    char  *part, *slash;

    slash = strrchr(path, '/');

    if (slash == NULL) {
        *name = path;
        return fcntl(u->top, F_DUPFD_CLOEXEC, 0);
    }

    *slash = '\0';
    *name = slash + 1;
    fd = agent_root_open_at(u->top, path, O_PATH|O_DIRECTORY|O_NOFOLLOW, 0);

    if (fd != -1 || errno != ENOENT) {
        return fd;
    }

    fd = fcntl(u->top, F_DUPFD_CLOEXEC, 0);

    for (part = path; fd != -1 && part != NULL; part = slash) {
        slash = strchr(part, '/');

        if (slash != NULL) {
            *slash++ = '\0';
        }

        if (mkdirat(fd, part, 0755) == -1 && errno != EEXIST) {
            close(fd);
            return -1;
        }

        next = agent_root_open_at(fd, part, O_PATH|O_DIRECTORY|O_NOFOLLOW, 0);
        close(fd);
        fd = next;
    }

    return fd;
}


static int
agent_unpack_write(int fd, const uint8_t *p, size_t size)
{
    ssize_t  n;

    while (size) {
        n = write(fd, p, size);

        if (n == -1) {
            if (errno == EINTR) {
                continue;
            }

            return errno;
        }

        p += n;
        size -= n;
    }

    return 0;
}
