/*
 * FILE_WRITE: a body into a file that has its name only when it is complete.
 * It is judged before the body is read, and once more when the file takes its
 * place; directories that are missing are made then.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_body.h"
#include "agent_caps.h"
#include "agent_file.h"
#include "agent_spool.h"


#define AGENT_FILE_READS  4              /* pieces in one round */
#define AGENT_FILE_MODE   0644


typedef struct {
    agent_spool_t  spool;
    int            directory;            /* that is there; O_PATH */
    agent_body_t   body;
    uint64_t       size;                 /* of it, as yet */
    char           path[SANDBOX_WIRE_MAX_PATH];      /* from there */
} agent_file_write_t;


static int agent_file_write_find(agent_file_t *file, agent_file_write_t *w);
static int agent_file_write_missing(agent_file_t *file,
    agent_file_write_t *w);
static int agent_file_write_link(agent_file_t *file);
static int agent_file_write_room(const agent_file_write_t *w);
static void agent_file_write_body(agent_connection_t *c);
static int agent_file_write_feed(agent_file_write_t *w, const uint8_t *p,
    size_t size);
static int agent_file_write_bytes(agent_file_write_t *w, const uint8_t *p,
    size_t size);
static void agent_file_write_done(agent_connection_t *c);
static int agent_file_write_commit(agent_file_t *file, agent_file_write_t *w,
    int *replaced);
static int agent_file_write_parents(agent_file_write_t *w, const char **name);
static void agent_file_write_end(agent_file_t *file);


void
agent_file_write_start(agent_connection_t *c)
{
    int                  rc;
    size_t               whole;
    agent_file_t        *file;
    agent_file_write_t  *w;

    file = c->file;
    w = malloc(sizeof(agent_file_write_t));

    if (w == NULL) {
        agent_file_error(c, ENOMEM);
        return;
    }

    w->spool.fd = -1;
    w->spool.name[0] = '\0';
    w->directory = -1;
    w->size = 0;
    agent_body_init(&w->body, c->preamble.body);

    file->data = w;
    file->end = agent_file_write_end;

    agent_directory_user(1);
    rc = agent_file_write_find(file, w);
    agent_directory_user(0);

    if (rc == 0 && !agent_file_allowed(&file->request, file->etag[0]
                                                       ? file->etag : NULL))
    {
        agent_connection_error(c, "precondition_failed", file->etag[0]
                               ? "The file is there, or has changed."
                               : "There is no such file.", 0);
        return;
    }

    if (rc == 0) {
        rc = agent_file_write_room(w);
    }

    if (rc == 0) {
        rc = agent_spool_create(&w->spool, w->directory);
    }

    if (rc) {
        agent_file_error(c, rc);
        return;
    }

    if (agent_file_head(c, 200, NULL) == -1) {
        return;
    }

    /* what came with the head is the first of the body */

    whole = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;
    c->in_at = whole;
    c->reading = 1;

    file->work = agent_file_write_body;
    agent_file_write_body(c);
}


/* 0, or an errno. */

static int
agent_file_write_find(agent_file_t *file, agent_file_write_t *w)
{
    int                    fd;
    size_t                 length;
    const char            *slash;
    static char            real[SANDBOX_WIRE_MAX_PATH + 64];
    agent_root_e           where;
    agent_file_request_t  *request;

    request = &file->request;

    fd = agent_root_find(request->root, request->path, &file->st, &where,
                         real);

    if (fd == -1) {
        if (errno != ENOENT) {
            return errno;
        }

        return agent_file_write_missing(file, w);
    }

    close(fd);

    if (S_ISDIR(file->st.st_mode)) {
        return EISDIR;
    }

    if (!S_ISREG(file->st.st_mode)) {
        return ENXIO;
    }

    agent_file_etag(file->etag, &file->st);

    /* links are resolved: what is replaced is the file that they lead to */

    slash = strrchr(real, '/');
    length = slash != NULL ? (size_t) (slash - real) : 0;
    strcpy(w->path, slash != NULL ? slash + 1 : real);
    real[length] = '\0';

    w->directory = agent_root_open(where, length ? real : ".",
                                   O_PATH|O_DIRECTORY|O_NOFOLLOW, 0);

    return w->directory == -1 ? errno == ENOENT ? EBUSY : errno : 0;
}


/* It is not there: as much of its directory as is. */

static int
agent_file_write_missing(agent_file_t *file, agent_file_write_t *w)
{
    int           fd, rc;
    char          path[SANDBOX_WIRE_MAX_PATH];
    size_t        low, high, middle, length;
    struct stat   st;
    const char   *whole, *rest;

    whole = file->request.path;
    rc = agent_file_write_link(file);

    if (rc) {
        return rc;
    }

    /* the first `low` parts are there, `high` are all that can be */

    low = 0;
    high = agent_path_parts(whole) - 1;

    if (file->request.root == SANDBOX_ROOT_ALL) {
        (void) agent_path_root(whole, &rest);
        low = agent_path_parts(whole) - agent_path_parts(rest);
    }

    for ( ;; ) {
        middle = low + (high - low + 1) / 2;
        length = agent_path_part(whole, middle);
        memcpy(path, whole, length);
        path[length ? length - 1 : 0] = '\0';

        fd = agent_root_find(file->request.root, path, &st, NULL, NULL);

        if (fd != -1 && low == high) {
            break;
        }

        if (fd != -1) {
            close(fd);
            low = middle;
            continue;
        }

        if (errno != ENOENT) {
            return errno;
        }

        if (low == high) {
            return EBUSY;
        }

        high = middle - 1;
    }

    if (!S_ISDIR(st.st_mode)) {
        close(fd);
        return ENOTDIR;
    }

    strcpy(w->path, whole + agent_path_part(whole, low));
    w->directory = fd;

    return 0;
}


/* A link that leads nowhere is not a name that is free. */

static int
agent_file_write_link(agent_file_t *file)
{
    int          fd, rc;
    const char  *name;
    struct stat  st;

    if (file->request.path[0] == '\0') {
        return EISDIR;
    }

    fd = agent_root_parent(file->request.root, file->request.path, &name,
                           NULL, NULL);

    if (fd == -1) {
        return errno == ENOENT ? 0 : errno;
    }

    rc = fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW);
    close(fd);

    return rc == 0 ? ENOENT : 0;
}


/* Whether the user may write there, and the disk has room. */

static int
agent_file_write_room(const agent_file_write_t *w)
{
    int            rc;
    struct statfs  fs;

    agent_directory_user(1);
    rc = syscall(SYS_faccessat2, w->directory, "", W_OK|X_OK,
                 AT_EMPTY_PATH|AT_EACCESS) == -1 ? errno : 0;
    agent_directory_user(0);

    if (rc) {
        return rc;
    }

    if (fstatfs(w->directory, &fs) == -1) {
        return errno;
    }

    if (!agent_caps_room(w->body.chunked ? 0 : w->body.left)) {
        return ENOSPC;
    }

    return fs.f_bsize > 0 && w->body.left / fs.f_bsize > fs.f_bavail
           ? ENOSPC : 0;
}


static void
agent_file_write_body(agent_connection_t *c)
{
    int                  rc;
    size_t               size;
    ssize_t              n;
    unsigned             i;
    const char          *code, *detail;
    const uint8_t       *p;
    agent_file_write_t  *w;
    static uint8_t       buffer[AGENT_FILE_PIECE];

    w = c->file->data;
    rc = agent_connection_out(c);

    for (i = 0; rc != -1; i++) {

        if (w->body.end) {
            c->input_left = 0;
            agent_file_write_done(c);
            return;
        }

        if (i == AGENT_FILE_READS) {
            break;
        }

        if (c->in_at < c->in_have) {
            p = c->in + c->in_at;
            n = c->in_have - c->in_at;
            c->in_at = c->in_have;

        } else {
            size = w->body.chunked || w->body.left > sizeof(buffer)
                   ? sizeof(buffer) : w->body.left;
            p = buffer;
            n = recv(c->watch.fd, buffer, size, MSG_DONTWAIT);
        }

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }

        if (n <= 0) {

            /* it never was a whole file: nothing remains of it */

            rc = -1;
            break;
        }

        c->file->ticks = 0;
        n = agent_file_write_feed(w, p, n);

        if (n == -1) {
            agent_file_failed(c, "bad_request", "The body is malformed, or "
                              "over 4 GiB.");
            return;
        }

        if (n) {
            code = agent_root_code(n, &detail);
            agent_file_failed(c, code, detail);
            return;
        }
    }

    if (rc == -1 || agent_connection_look(c, c->out_sent < c->out_size) == -1)
    {
        agent_connection_close(c);
    }
}


/* 0, an errno, or -1: it is no body. */

static int
agent_file_write_feed(agent_file_write_t *w, const uint8_t *p, size_t size)
{
    int             rc, error;
    size_t          n;
    const uint8_t  *data;

    while ((rc = agent_body_next(&w->body, &p, &size, &data, &n)) == 1) {

        if (n > SANDBOX_WIRE_MAX_FILE - w->size) {
            return -1;
        }

        w->size += n;

        if (!agent_caps_room(w->size)) {
            return ENOSPC;
        }

        error = agent_file_write_bytes(w, data, n);

        if (error) {
            return error;
        }
    }

    return rc;
}


static int
agent_file_write_bytes(agent_file_write_t *w, const uint8_t *p, size_t size)
{
    ssize_t  n;

    while (size) {
        n = write(w->spool.fd, p, size);

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


static void
agent_file_write_done(agent_connection_t *c)
{
    int               rc, replaced;
    uint8_t           fields[256];
    const char       *code, *detail;
    agent_file_t     *file;
    sandbox_writer_t  w;

    file = c->file;

    agent_directory_user(1);
    rc = agent_file_write_commit(file, file->data, &replaced);
    agent_directory_user(0);

    if (rc == ECANCELED) {
        agent_file_failed(c, "precondition_failed", "The file was made or "
                          "changed meanwhile.");
        return;
    }

    if (rc) {
        code = agent_root_code(rc, &detail);
        agent_file_failed(c, code, detail);
        return;
    }

    sandbox_writer_init(&w, fields, sizeof(fields));
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, replaced ? 200 : 201);
    sandbox_write_number(&w, SANDBOX_TAG_FILE_SIZE, file->st.st_size);
    sandbox_write_number(&w, SANDBOX_TAG_FILE_MODE, file->st.st_mode & 07777);
    sandbox_write_number(&w, SANDBOX_TAG_MODIFIED_NS,
                         agent_file_modified(&file->st));
    sandbox_write_string(&w, SANDBOX_TAG_ETAG, file->etag);
    agent_file_result(c, &w);
}


/* 0, an errno, or ECANCELED: a condition does not hold any more. */

static int
agent_file_write_commit(agent_file_t *file, agent_file_write_t *w,
    int *replaced)
{
    int                    rc, alone;
    char                   etag[AGENT_FILE_ETAG + 1];
    mode_t                 mode;
    const char            *name;
    struct stat            st;
    agent_file_request_t  *request;

    name = w->path;
    request = &file->request;
    rc = agent_file_write_parents(w, &name);

    if (rc) {
        return rc;
    }

    mode = request->has_mode ? (mode_t) request->mode : AGENT_FILE_MODE;
    *replaced = fstatat(w->directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0;

    if (*replaced) {
        if (!S_ISREG(st.st_mode)) {
            return S_ISDIR(st.st_mode) ? EISDIR : EBUSY;
        }

        if (!request->has_mode) {
            mode = st.st_mode & 0777;
        }

        agent_file_etag(etag, &st);
    }

    if (!agent_file_allowed(request, *replaced ? etag : NULL)) {
        return ECANCELED;
    }

    /*
     * A kernel with fine timestamps gives one to the change of a file that
     * was looked at: so no two versions have the same.
     */

    if (fchmod(w->spool.fd, mode) == -1
        || fstat(w->spool.fd, &file->st) == -1)
    {
        return errno;
    }

    /* "*" in If-None-Match: not over one that was made just now */

    alone = request->none_match_count && !*replaced;
    rc = agent_spool_commit(&w->spool, w->directory, name, !alone,
                            request->match_count && *replaced ? &st : NULL);

    if (rc) {
        return rc == EEXIST && alone ? ECANCELED : rc;
    }

    if (fstat(w->spool.fd, &file->st) == -1) {
        return errno;
    }

    agent_file_etag(file->etag, &file->st);
    agent_caps_written(w->size);

    return 0;
}


/* Down to the directory of the file, making what is missing. */

static int
agent_file_write_parents(agent_file_write_t *w, const char **name)
{
    int    fd;
    char  *part, *slash;

    for (part = w->path; (slash = strchr(part, '/')) != NULL; part = slash + 1)
    {
        *slash = '\0';

        if (mkdirat(w->directory, part, 0755) == -1 && errno != EEXIST) {
            return errno;
        }

        fd = agent_root_open_at(w->directory, part,
                                O_PATH|O_DIRECTORY|O_NOFOLLOW, 0);
        if (fd == -1) {
            return errno;
        }

        close(w->directory);
        w->directory = fd;
    }

    *name = part;

    return 0;
}


static void
agent_file_write_end(agent_file_t *file)
{
    agent_file_write_t  *w;

    w = file->data;
    agent_spool_drop(&w->spool);

    if (w->directory != -1) {
        close(w->directory);
    }

    free(w);
}
