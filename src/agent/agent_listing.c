/*
 * A directory to a client: the first names after a given one, in the order of
 * their bytes.  However many there are, only so many are kept, in a heap, and
 * only these are looked at; it is read a little at a time.
 */

#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_file.h"


#define AGENT_LISTING_READ     (32 * 1024)       /* bytes, in one round */
#define AGENT_LISTING_RECORDS  64                /* in one round */
#define AGENT_LISTING_DATA     (16 * 1024)
#define AGENT_LISTING_RECORD   (SANDBOX_WIRE_MAX_PATH + 512)


typedef struct {
    uint8_t           length;
    char              name[SANDBOX_WIRE_MAX_NAME];
} agent_listing_name_t;

typedef struct {
    size_t                  count;       /* kept, the greatest first */
    size_t                  sent;
    unsigned                more:1;      /* there are others behind these */
    unsigned                tries;       /* to read on */
    agent_listing_name_t   *names;
    agent_listing_name_t  **heap;        /* sorted, in the end */
} agent_listing_t;


static void agent_listing_read(agent_connection_t *c);
static void agent_listing_add(agent_listing_t *l,
    const agent_file_request_t *request, const char *name);
static int agent_listing_compare(const agent_listing_name_t *a,
    const char *name, size_t length);
static void agent_listing_up(agent_listing_t *l, size_t i);
static void agent_listing_down(agent_listing_t *l, size_t i, size_t count);
static void agent_listing_sort(agent_listing_t *l);
static void agent_listing_send(agent_connection_t *c);
static size_t agent_listing_record(uint8_t *p, int fd,
    const agent_listing_name_t *n);
static void agent_listing_finish(agent_connection_t *c);
static void agent_listing_end(agent_file_t *file);


void
agent_listing_start(agent_connection_t *c)
{
    agent_file_t     *file;
    agent_listing_t  *l;

    file = c->file;

    if (!file->request.no_body) {
        l = calloc(1, sizeof(agent_listing_t));

        file->data = l;
        file->end = agent_listing_end;

        if (l != NULL) {
            l->names = malloc(file->request.limit
                              * sizeof(agent_listing_name_t));
            l->heap = malloc(file->request.limit
                             * sizeof(agent_listing_name_t *));
        }

        if (l == NULL || l->names == NULL || l->heap == NULL) {
            agent_file_error(c, ENOMEM);
            return;
        }
    }

    if (agent_file_head(c, 200, NULL) == -1) {
        return;
    }

    if (file->request.no_body) {
        agent_file_result(c, NULL);
        return;
    }

    file->work = agent_listing_read;
    agent_listing_read(c);
}


/* A buffer of names; the next one when others have had their turn. */

static void
agent_listing_read(agent_connection_t *c)
{
    long               n, at;
    agent_file_t      *file;
    agent_listing_t   *l;
    struct dirent64   *d;
    static uint8_t     buffer[AGENT_LISTING_READ]
                           __attribute__((aligned(16)));

    file = c->file;
    l = file->data;
    file->ticks = 0;

    n = syscall(SYS_getdents64, file->fd, buffer, sizeof(buffer));

    if (n == -1 && errno == ENOENT) {

        /* it is removed, or was moved just now, which an overlay says so */

        if (fstat(file->fd, &file->st) == 0 && file->st.st_nlink == 0) {
            n = 0;

        } else if (l->tries++ < AGENT_FILE_TRIES) {
            n = -1;
            errno = EAGAIN;
        }
    }

    if (n == -1 && errno != EAGAIN) {
        agent_log("a directory could not be read: error %d", errno);
        agent_connection_close(c);
        return;
    }

    for (at = 0; at < n; at += d->d_reclen) {
        d = (struct dirent64 *) (buffer + at);
        agent_listing_add(l, &file->request, d->d_name);
    }

    if (n == 0) {
        agent_listing_sort(l);
        file->work = agent_listing_send;
    }

    if (agent_connection_look(c, 1) == -1) {
        agent_connection_close(c);
    }
}


static void
agent_listing_add(agent_listing_t *l, const agent_file_request_t *request,
    const char *name)
{
    size_t                 length, least;
    int                    rc;
    agent_listing_name_t  *n;

    length = strlen(name);

    if (length == 0 || length > SANDBOX_WIRE_MAX_NAME
        || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    {
        return;
    }

    if (request->cursor != NULL) {
        least = length < request->cursor_size ? length : request->cursor_size;
        rc = memcmp(name, request->cursor, least);

        if (rc < 0 || (rc == 0 && length <= request->cursor_size)) {
            return;
        }
    }

    if (l->count < request->limit) {
        n = &l->names[l->count];
        l->heap[l->count] = n;
        n->length = length;
        memcpy(n->name, name, length);
        agent_listing_up(l, l->count++);
        return;
    }

    l->more = 1;
    n = l->heap[0];

    if (agent_listing_compare(n, name, length) > 0) {
        n->length = length;
        memcpy(n->name, name, length);
        agent_listing_down(l, 0, l->count);
    }
}


static int
agent_listing_compare(const agent_listing_name_t *a, const char *name,
    size_t length)
{
    int     rc;
    size_t  least;

    least = a->length < length ? a->length : length;
    rc = memcmp(a->name, name, least);

    return rc ? rc : (int) a->length - (int) length;
}


static void
agent_listing_up(agent_listing_t *l, size_t i)
{
    size_t                 parent;
    agent_listing_name_t  *n;

    while (i) {
        parent = (i - 1) / 2;
        n = l->heap[i];

        if (agent_listing_compare(l->heap[parent], n->name, n->length) >= 0) {
            return;
        }

        l->heap[i] = l->heap[parent];
        l->heap[parent] = n;
        i = parent;
    }
}


static void
agent_listing_down(agent_listing_t *l, size_t i, size_t count)
{
    size_t                 child;
    agent_listing_name_t  *n;

    while ((child = 2 * i + 1) < count) {

        if (child + 1 < count
            && agent_listing_compare(l->heap[child],
                                     l->heap[child + 1]->name,
                                     l->heap[child + 1]->length) < 0)
        {
            child++;
        }

        n = l->heap[i];

        if (agent_listing_compare(l->heap[child], n->name, n->length) <= 0) {
            return;
        }

        l->heap[i] = l->heap[child];
        l->heap[child] = n;
        i = child;
    }
}


static void
agent_listing_sort(agent_listing_t *l)
{
    size_t                 count;
    agent_listing_name_t  *n;

    for (count = l->count; count > 1; count--) {
        n = l->heap[0];
        l->heap[0] = l->heap[count - 1];
        l->heap[count - 1] = n;
        agent_listing_down(l, 0, count - 1);
    }
}


/* A frame of records, as long as the socket takes them. */

static void
agent_listing_send(agent_connection_t *c)
{
    int               rc;
    size_t            size;
    uint8_t          *p;
    unsigned          i;
    agent_file_t     *file;
    agent_listing_t  *l;
    static uint8_t    frame[SANDBOX_WIRE_FRAME_SIZE + AGENT_LISTING_DATA
                            + AGENT_LISTING_RECORD];

    file = c->file;
    l = file->data;
    rc = agent_connection_out(c);

    if (rc == 0) {
        return;
    }

    p = frame + SANDBOX_WIRE_FRAME_SIZE;

    if (rc == 1) {
        agent_directory_user(1);

        for (i = 0; i < AGENT_LISTING_RECORDS && l->sent < l->count
                    && p < frame + AGENT_LISTING_DATA; i++)
        {
            p += agent_listing_record(p, file->fd, l->heap[l->sent++]);
        }

        agent_directory_user(0);

        size = p - frame - SANDBOX_WIRE_FRAME_SIZE;
        file->ticks = 0;

        if (size) {
            sandbox_frame_write(frame, SANDBOX_FRAME_DATA, size);
            rc = agent_connection_send(c, frame, p - frame);
        }
    }

    if (rc == -1) {
        agent_connection_close(c);
        return;
    }

    if (l->sent == l->count) {
        agent_listing_finish(c);
        return;
    }

    if (agent_connection_look(c, 1) == -1) {
        agent_connection_close(c);
    }
}


/* One name as it is now; 0 if it is gone. */

static size_t
agent_listing_record(uint8_t *p, int fd, const agent_listing_name_t *n)
{
    char              name[SANDBOX_WIRE_MAX_NAME + 1];
    char              target[SANDBOX_WIRE_MAX_PATH];
    ssize_t           length;
    struct stat       st;
    sandbox_writer_t  w;

    memcpy(name, n->name, n->length);
    name[n->length] = '\0';

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        if (errno == ENOENT) {
            return 0;
        }

        memset(&st, 0, sizeof(st));      /* no right to know more */
    }

    sandbox_writer_init(&w, p + 4, AGENT_LISTING_RECORD - 4);
    sandbox_write_bytes(&w, SANDBOX_TAG_FILE_NAME, name, n->length);
    sandbox_write_number(&w, SANDBOX_TAG_FILE_TYPE,
                         agent_file_type(st.st_mode));
    sandbox_write_number(&w, SANDBOX_TAG_FILE_SIZE, st.st_size);
    sandbox_write_number(&w, SANDBOX_TAG_FILE_MODE, st.st_mode & 07777);
    sandbox_write_number(&w, SANDBOX_TAG_MODIFIED_NS,
                         agent_file_modified(&st));

    if (S_ISLNK(st.st_mode)) {
        length = readlinkat(fd, name, target, sizeof(target));

        if (length > 0) {
            sandbox_write_bytes(&w, SANDBOX_TAG_TARGET, target, length);
        }
    }

    sandbox_put32(p, w.pos - w.start);

    return 4 + (w.pos - w.start);
}


static void
agent_listing_finish(agent_connection_t *c)
{
    uint8_t                fields[SANDBOX_WIRE_MAX_NAME + 32];
    agent_listing_t       *l;
    sandbox_writer_t       w;
    agent_listing_name_t  *last;

    l = c->file->data;
    sandbox_writer_init(&w, fields, sizeof(fields));

    if (l->more) {
        last = l->heap[l->count - 1];
        sandbox_write_bytes(&w, SANDBOX_TAG_NEXT_NAME, last->name,
                            last->length);
    }

    agent_file_result(c, &w);
}


static void
agent_listing_end(agent_file_t *file)
{
    agent_listing_t  *l;

    l = file->data;

    if (l != NULL) {
        free(l->names);
        free(l->heap);
        free(l);
    }
}
