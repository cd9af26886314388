/*
 * A file to a client: found, judged, and sent as its socket takes it, as many
 * bytes as its HEAD promised.  And what the other operations on files share:
 * how they are entered, heard, and answered.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "agent_file.h"


#define AGENT_FILE_SENDS   8             /* pieces in one round */
#define AGENT_FILE_FIELDS  1024          /* bytes of HEAD or RESULT */
#define AGENT_FILE_TICKS   (SANDBOX_WIRE_REQUEST_WAIT                         \
                            / SANDBOX_WIRE_PING_INTERVAL + 1)
#define AGENT_FILE_STALLED (AGENT_SEND_WAIT / SANDBOX_WIRE_PING_INTERVAL)


static void agent_file_read(agent_connection_t *c);
static void agent_file_answer(agent_connection_t *c, unsigned status,
    uint64_t first, uint64_t last);
static void agent_file_send(agent_connection_t *c);
static void agent_file_finish(agent_connection_t *c, uint64_t bytes);


void
agent_file_enter(agent_connection_t *c)
{
    int           flags;
    const char   *code, *detail;
    agent_file_t *file;

    file = calloc(1, sizeof(agent_file_t));

    /* sendfile has no flag of its own that says not to wait */

    flags = fcntl(c->watch.fd, F_GETFL);

    if (file == NULL || flags == -1
        || fcntl(c->watch.fd, F_SETFL, flags|O_NONBLOCK) == -1)
    {
        free(file);
        agent_connection_error(c, "too_many_pending", "The sandbox has no "
                               "memory left.", 1);
        return;
    }

    file->fd = -1;
    c->file = file;

    code = agent_file_request_read(&file->request,
                                   c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                                   c->preamble.head, &detail);
    if (code != NULL) {
        agent_connection_error(c, code, detail, 0);
        return;
    }

    agent_timer_set(&c->timer, SANDBOX_WIRE_PING_INTERVAL);
    c->state = AGENT_CONNECTION_FILE;

    switch (c->preamble.operation) {

    case SANDBOX_OPERATION_FILE_READ:
        agent_file_read(c);
        break;

    case SANDBOX_OPERATION_FILE_WRITE:
        agent_file_write_start(c);
        break;

    case SANDBOX_OPERATION_FILE_SEARCH:
        agent_search_start(c);
        break;

    default:
        agent_file_remove_start(c);
    }
}


void
agent_file_event(agent_connection_t *c)
{
    c->file->work(c);
}


void
agent_file_tick(agent_connection_t *c)
{
    agent_file_t  *file;

    file = c->file;
    file->ticks++;

    if (c->reading) {
        if (file->ticks >= AGENT_FILE_TICKS) {
            agent_file_failed(c, "slow_request", "The request did not come "
                              "within 10 s.");
        }

    } else if (file->ticks >= AGENT_FILE_STALLED) {
        agent_connection_close(c);
    }
}


void
agent_file_lost(agent_connection_t *c)
{
    agent_file_t  *file;

    file = c->file;
    c->file = NULL;

    if (file->end != NULL) {
        file->end(file);
    }

    if (file->fd != -1) {
        close(file->fd);
    }

    free(file);
}


void
agent_file_error(agent_connection_t *c, int error)
{
    const char  *code, *detail;

    code = agent_root_code(error, &detail);
    agent_connection_error(c, code, detail,
                           strcmp(code, "too_many_pending") == 0);
}


int
agent_file_head(agent_connection_t *c, unsigned status, const uint64_t *range)
{
    uint8_t            frame[SANDBOX_WIRE_FRAME_SIZE + AGENT_FILE_FIELDS];
    agent_file_t      *file;
    sandbox_writer_t   w;

    file = c->file;
    sandbox_writer_init(&w, frame + SANDBOX_WIRE_FRAME_SIZE,
                        AGENT_FILE_FIELDS);

    sandbox_write_number(&w, SANDBOX_TAG_STATUS, status);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);

    /* of a FILE_WRITE it would be the file before */

    if (file->etag[0]
        && c->preamble.operation != SANDBOX_OPERATION_FILE_WRITE)
    {
        sandbox_write_number(&w, SANDBOX_TAG_FILE_TYPE,
                             agent_file_type(file->st.st_mode));
        sandbox_write_number(&w, SANDBOX_TAG_FILE_SIZE, file->st.st_size);
        sandbox_write_number(&w, SANDBOX_TAG_FILE_MODE,
                             file->st.st_mode & 07777);
        sandbox_write_number(&w, SANDBOX_TAG_MODIFIED_NS,
                             agent_file_modified(&file->st));
        sandbox_write_string(&w, SANDBOX_TAG_ETAG, file->etag);
    }

    if (range != NULL) {
        sandbox_write_number(&w, SANDBOX_TAG_RANGE_FIRST, range[0]);
        sandbox_write_number(&w, SANDBOX_TAG_RANGE_LAST, range[1]);
    }

    sandbox_frame_write(frame, SANDBOX_FRAME_HEAD, w.pos - w.start);

    if (agent_connection_send(c, frame, w.pos - frame) == -1) {
        agent_connection_close(c);
        return -1;
    }

    c->head_sent = 1;

    return 0;
}


void
agent_file_result(agent_connection_t *c, const sandbox_writer_t *w)
{
    size_t   size;
    uint8_t  frame[SANDBOX_WIRE_FRAME_SIZE + AGENT_FILE_FIELDS];

    size = w != NULL ? w->pos - w->start : 0;

    sandbox_frame_write(frame, SANDBOX_FRAME_RESULT, size);

    if (size) {
        memcpy(frame + SANDBOX_WIRE_FRAME_SIZE, w->start, size);
    }

    agent_connection_finish(c, frame, SANDBOX_WIRE_FRAME_SIZE + size);
}


void
agent_file_failed(agent_connection_t *c, const char *code, const char *detail)
{
    uint8_t           fields[AGENT_FILE_FIELDS];
    sandbox_writer_t  w;

    if (!c->head_sent) {
        agent_connection_error(c, code, detail, 0);
        return;
    }

    sandbox_writer_init(&w, fields, sizeof(fields));
    sandbox_write_number(&w, SANDBOX_TAG_STATUS,
                         sandbox_code_status(code, strlen(code)));
    sandbox_write_string(&w, SANDBOX_TAG_CODE, code);
    sandbox_write_string(&w, SANDBOX_TAG_DETAIL, detail);
    agent_file_result(c, &w);
}


unsigned
agent_file_type(mode_t mode)
{
    return S_ISREG(mode) ? SANDBOX_FILE_REGULAR
           : S_ISDIR(mode) ? SANDBOX_FILE_DIRECTORY
           : S_ISLNK(mode) ? SANDBOX_FILE_LINK : SANDBOX_FILE_OTHER;
}


uint64_t
agent_file_modified(const struct stat *st)
{
    if (st->st_mtim.tv_sec < 0
        || (uint64_t) st->st_mtim.tv_sec > UINT64_MAX / 1000000000 - 1)
    {
        return 0;
    }

    return (uint64_t) st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}


int
agent_file_open(agent_connection_t *c)
{
    int            found, error;
    agent_file_t  *file;

    file = c->file;

    agent_directory_user(1);
    found = agent_root_find(file->request.root, file->request.path, &file->st,
                            NULL, NULL);
    error = errno;

    /* the type is known before it is opened: a FIFO would hear of that */

    if (found != -1 && (S_ISDIR(file->st.st_mode)
                        || S_ISREG(file->st.st_mode)))
    {
        file->fd = agent_root_reopen(found, S_ISDIR(file->st.st_mode)
                                            ? O_RDONLY|O_DIRECTORY
                                            : O_RDONLY);
        error = errno;
    }

    agent_directory_user(0);

    if (found == -1) {
        agent_file_error(c, error);
        return -1;
    }

    close(found);

    if (file->request.list && S_ISREG(file->st.st_mode)) {
        agent_connection_error(c, "not_a_directory", "It is not a "
                               "directory.", 0);
        return -1;
    }

    if (!S_ISDIR(file->st.st_mode) && !S_ISREG(file->st.st_mode)) {
        agent_connection_error(c, "not_a_file", "It is a FIFO, a socket or a "
                               "device, not a file.", 0);
        return -1;
    }

    if (file->fd == -1) {
        agent_file_error(c, error);
        return -1;
    }

    if (fstat(file->fd, &file->st) == -1) {
        agent_file_error(c, errno);
        return -1;
    }

    agent_file_etag(file->etag, &file->st);

    return 0;
}


static void
agent_file_read(agent_connection_t *c)
{
    uint64_t       first, last;
    unsigned       status;
    agent_file_t  *file;

    file = c->file;

    if (agent_file_open(c) == -1) {
        return;
    }

    if (S_ISDIR(file->st.st_mode)) {
        agent_listing_start(c);
        return;
    }

    first = 0;
    last = 0;
    status = agent_file_status(&file->request, file->etag, file->st.st_size,
                               &first, &last);
    agent_file_answer(c, status, first, last);
}


static void
agent_file_answer(agent_connection_t *c, unsigned status, uint64_t first,
    uint64_t last)
{
    uint64_t       range[2];
    agent_file_t  *file;

    file = c->file;
    range[0] = first;
    range[1] = last;

    if (agent_file_head(c, status, status == 206 ? range : NULL) == -1) {
        return;
    }

    if (status == 200) {
        file->left = file->st.st_size;

    } else if (status == 206) {
        file->offset = first;
        file->left = last - first + 1;
    }

    if (file->request.no_body || file->left == 0) {
        agent_file_finish(c, 0);
        return;
    }

    posix_fadvise(file->fd, file->offset, file->left, POSIX_FADV_SEQUENTIAL);

    file->work = agent_file_send;
    agent_file_send(c);
}


/* Some pieces; each is a frame, whose bytes the kernel copies. */

static void
agent_file_send(agent_connection_t *c)
{
    off_t          offset;
    ssize_t        n;
    uint8_t        frame[SANDBOX_WIRE_FRAME_SIZE];
    unsigned       i;
    agent_file_t  *file;

    file = c->file;

    for (i = 0; i < AGENT_FILE_SENDS && file->left; i++) {

        n = agent_connection_out(c);

        if (n == -1) {
            goto lost;
        }

        if (n == 0) {
            return;
        }

        if (file->frame == 0) {
            file->frame = file->left < AGENT_FILE_PIECE ? file->left
                                                        : AGENT_FILE_PIECE;
            sandbox_frame_write(frame, SANDBOX_FRAME_DATA, file->frame);

            if (agent_connection_send(c, frame, sizeof(frame)) == -1) {
                goto lost;
            }

            continue;
        }

        offset = file->offset;
        n = sendfile(c->watch.fd, file->fd, &offset, file->frame);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }

        if (n <= 0) {

            /* it is shorter than promised, or can't be read, or nobody reads */

            goto lost;
        }

        file->ticks = 0;
        file->offset += n;
        file->bytes += n;
        file->left -= n;
        file->frame -= n;
    }

    if (file->left == 0) {
        agent_file_finish(c, file->bytes);
        return;
    }

    if (agent_connection_look(c, 1) == 0) {
        return;
    }

lost:

    agent_connection_close(c);
}


static void
agent_file_finish(agent_connection_t *c, uint64_t bytes)
{
    uint8_t           fields[32];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, fields, sizeof(fields));
    sandbox_write_number(&w, SANDBOX_TAG_BYTES, bytes);
    agent_file_result(c, &w);
}
