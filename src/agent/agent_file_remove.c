/*
 * FILE_REMOVE: the name itself, never what a link leads to, never a root; a
 * directory with what is in it only when that is asked for, a little at a
 * time.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_file.h"
#include "agent_remove.h"


static int agent_file_remove_find(agent_file_t *file, const char **name);
static void agent_file_remove_work(agent_connection_t *c);
static void agent_file_remove_done(agent_connection_t *c);
static void agent_file_remove_end(agent_file_t *file);


void
agent_file_remove_start(agent_connection_t *c)
{
    int              rc, directory;
    const char      *name, *code, *detail;
    agent_file_t    *file;
    agent_remove_t  *remove;

    file = c->file;
    rc = agent_file_remove_find(file, &name);

    if (rc) {
        agent_file_error(c, rc);
        return;
    }

    if (agent_root_is(&file->st)) {
        agent_connection_error(c, "path_outside", "A root is not removed.",
                               0);
        return;
    }

    agent_file_etag(file->etag, &file->st);

    if (!agent_file_allowed(&file->request, file->etag)) {
        agent_connection_error(c, "precondition_failed", "It has changed.",
                               0);
        return;
    }

    directory = S_ISDIR(file->st.st_mode);

    agent_directory_user(1);
    rc = unlinkat(file->fd, name, directory ? AT_REMOVEDIR : 0) == -1
         ? errno : 0;
    agent_directory_user(0);

    if (rc == 0) {
        if (agent_file_head(c, 200, NULL) == 0) {
            agent_file_remove_done(c);
        }

        return;
    }

    if (!directory || (rc != ENOTEMPTY && rc != EEXIST)
        || !file->request.recursive)
    {
        if (rc == EBUSY) {
            agent_connection_error(c, "path_outside", "A mount is not "
                                   "removed.", 0);
            return;
        }

        agent_file_error(c, rc);
        return;
    }

    remove = malloc(sizeof(agent_remove_t));

    if (remove == NULL) {
        agent_file_error(c, ENOMEM);
        return;
    }

    rc = agent_remove_start(remove, file->fd, name, 1);
    file->data = remove;
    file->end = agent_file_remove_end;
    file->work = agent_file_remove_work;

    if (rc) {
        code = agent_root_code(rc, &detail);
        agent_connection_error(c, code, detail, 0);
        return;
    }

    if (agent_file_head(c, 200, NULL) == 0) {
        agent_file_remove_work(c);
    }
}


/* What is there, without following it; fd is where it is.  0, or an errno. */

static int
agent_file_remove_find(agent_file_t *file, const char **name)
{
    int                    rc;
    static char            real[SANDBOX_WIRE_MAX_PATH + 64];
    agent_file_request_t  *request;

    request = &file->request;

    if (request->path[0] == '\0') {
        return EXDEV;
    }

    agent_directory_user(1);

    rc = 0;
    file->fd = agent_root_parent(request->root, request->path, name, NULL,
                                 real);

    if (file->fd == -1
        || fstatat(file->fd, *name, &file->st, AT_SYMLINK_NOFOLLOW) == -1)
    {
        rc = errno;
    }

    agent_directory_user(0);

    return rc;
}


static void
agent_file_remove_work(agent_connection_t *c)
{
    int              rc;
    const char      *code, *detail;
    agent_file_t    *file;

    file = c->file;
    file->ticks = 0;

    rc = agent_remove_step(file->data);

    if (rc == 0) {
        agent_file_remove_done(c);
        return;
    }

    if (rc != EAGAIN) {
        code = agent_root_code(rc, &detail);
        agent_file_failed(c, code, detail);
        return;
    }

    if (agent_connection_out(c) == -1 || agent_connection_look(c, 1) == -1) {
        agent_connection_close(c);
    }
}


static void
agent_file_remove_done(agent_connection_t *c)
{
    uint8_t           fields[32];
    sandbox_writer_t  w;

    agent_caps_removed();

    sandbox_writer_init(&w, fields, sizeof(fields));
    sandbox_write_number(&w, SANDBOX_TAG_FILE_TYPE,
                         agent_file_type(c->file->st.st_mode));
    agent_file_result(c, &w);
}


static void
agent_file_remove_end(agent_file_t *file)
{
    agent_remove_end(file->data);
    free(file->data);
}
