/*
 * A search for a client: ripgrep as the user, in a cgroup of its own, outside
 * the queue.  What it says is a hint only: each file is opened once more
 * beneath the directory that was asked for, and only what stands there too is
 * passed on, whatever was moved meanwhile.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_file.h"
#include "agent_search.h"


#define AGENT_SEARCHES         2         /* at a time */
#define AGENT_SEARCH_WAIT      10000     /* ms, then it has found what it has */
#define AGENT_SEARCH_GONE      5000      /* ms, for its process to be gone */
#define AGENT_SEARCH_READ      (16 * 1024)
#define AGENT_SEARCH_READS     8         /* in one round */
#define AGENT_SEARCH_RECORDS   256       /* in one round */
#define AGENT_SEARCH_HEAD      (8 * 1024)    /* looked at for a NUL */
#define AGENT_SEARCH_SEND      (32 * 1024)   /* then a frame goes out */
#define AGENT_SEARCH_RECORD    (AGENT_SEARCH_ROOM + 1024)


typedef struct {
    unsigned               used:1;
    unsigned               eof:1;        /* all it wrote was read */
    unsigned               more:1;       /* not all was found, or not sent */
    unsigned               stopped:1;    /* only its end is waited for */
    unsigned               opened:1;     /* a file, for this path */
    unsigned               binary:1;     /* that file is */
    unsigned               told:1;       /* a line of it, or its name */
    unsigned               single:1;     /* PATH is a file */
    agent_connection_t    *c;            /* NULL: nobody waits for it */
    agent_tree_t           tree;
    agent_watch_t          out;
    int                    err;
    agent_timer_t          timer;        /* deadline, or death of the tree */
    pid_t                  pid;          /* 0: reaped */
    unsigned               report;
    int                    status;       /* of wait */
    uint64_t               count;        /* records */
    size_t                 marked;       /* bytes of a mark before its text */
    int                    fd;           /* the file of `path` */
    struct stat            st;
    char                   path[AGENT_SEARCH_ROOM];
    agent_search_record_t  record;
    const uint8_t         *pos;          /* of what was read */
    const uint8_t         *last;
    uint8_t                buffer[AGENT_SEARCH_READ];
} agent_search_t;


static agent_search_t *agent_search_free(void);
static void agent_search_work(agent_connection_t *c);
static void agent_search_output(agent_watch_t *watch, uint32_t events);
static void agent_search_run(agent_search_t *s);
static int agent_search_read(agent_search_t *s);
static void agent_search_found(agent_search_t *s);
static int agent_search_same(agent_search_t *s);
static int agent_search_file(agent_search_t *s, const char *path);
static void agent_search_look(agent_search_t *s);
static int agent_search_send(agent_search_t *s);
static void agent_search_check(agent_search_t *s);
static void agent_search_stop(agent_search_t *s);
static void agent_search_judge(agent_search_t *s);
static void agent_search_finish(agent_search_t *s);
static agent_connection_t *agent_search_detach(agent_search_t *s);
static void agent_search_end(agent_file_t *file);
static void agent_search_leave(agent_search_t *s);
static void agent_search_timeout(agent_timer_t *timer);


static agent_search_t  agent_searches[AGENT_SEARCHES];

/* records of one round, behind room for the start of a frame */

static size_t   agent_search_filled;
static uint8_t  agent_search_frame[SANDBOX_WIRE_FRAME_SIZE + AGENT_SEARCH_SEND
                                   + AGENT_SEARCH_RECORD];


void
agent_search_start(agent_connection_t *c)
{
    int              error;
    agent_file_t    *file;
    agent_search_t  *s;
    agent_program_t  started;

    file = c->file;
    s = agent_search_free();

    if (s == NULL) {
        agent_connection_error(c, "too_many_pending", "Two searches are on "
                               "their way already.", 1);
        return;
    }

    if (agent_file_open(c) == -1) {
        return;
    }

    memset(s, 0, offsetof(agent_search_t, buffer));
    s->single = !S_ISDIR(file->st.st_mode);
    s->out.fd = -1;
    s->err = -1;
    s->fd = -1;
    s->tree.directory = -1;
    s->pos = s->buffer;
    s->last = s->buffer;
    agent_search_init(&s->record, file->request.pattern == NULL);

    if (s->single && file->request.pattern == NULL) {

        /* its name is all there is */

        s->c = c;
        file->data = s;
        file->end = agent_search_end;
        agent_search_found(s);

        if (agent_search_send(s) == 0) {
            agent_search_finish(s);
        }

        return;
    }

    memset(&started, 0, sizeof(started));
    error = agent_search_program(&started, &s->tree, &file->request, file->fd,
                                 s->single);

    if (error) {
        if (error == EAGAIN) {
            agent_connection_error(c, "too_many_pending", "The sandbox has "
                                   "too many processes for a search.", 1);
            return;
        }

        agent_file_error(c, error);
        return;
    }

    s->used = 1;
    s->c = c;
    s->pid = started.pid;
    s->report = started.report;
    s->out.fd = started.out;
    s->out.handler = agent_search_output;
    s->out.data = s;
    s->err = started.err;
    s->timer.handler = agent_search_timeout;
    s->timer.data = s;
    agent_timer_set(&s->timer, AGENT_SEARCH_WAIT);

    file->data = s;
    file->end = agent_search_end;
    file->work = agent_search_work;

    if (agent_watch_set(&s->out, EPOLLIN) == -1
        || agent_connection_look(c, 0) == -1)
    {
        agent_connection_close(c);
    }
}


int
agent_search_reaped(pid_t pid, int status)
{
    unsigned         i;
    agent_search_t  *s;

    for (i = 0; i < AGENT_SEARCHES; i++) {
        s = &agent_searches[i];

        if (s->used && s->pid == pid) {
            s->pid = 0;
            s->status = status;
            agent_search_check(s);
            return 1;
        }
    }

    return 0;
}


static agent_search_t *
agent_search_free(void)
{
    unsigned  i;

    for (i = 0; i < AGENT_SEARCHES; i++) {
        if (!agent_searches[i].used) {
            return &agent_searches[i];
        }
    }

    return NULL;
}


/* The client has taken what was sent: more of it. */

static void
agent_search_work(agent_connection_t *c)
{
    int              rc;
    agent_search_t  *s;

    s = c->file->data;
    rc = agent_connection_out(c);

    if (rc == 0) {
        return;
    }

    if (rc == -1 || agent_connection_look(c, 0) == -1
        || (!s->eof && agent_watch_set(&s->out, EPOLLIN) == -1))
    {
        agent_connection_close(c);
        return;
    }

    agent_search_run(s);
}


static void
agent_search_output(agent_watch_t *watch, uint32_t events)
{
    agent_search_run(watch->data);
}


/* Records out of the pipe, as long as the client takes them. */

static void
agent_search_run(agent_search_t *s)
{
    int       rc;
    unsigned  reads, records;

    if (s->stopped) {
        agent_search_check(s);
        return;
    }

    reads = 0;
    records = 0;

    while (!s->more && agent_search_filled < AGENT_SEARCH_SEND
           && records++ < AGENT_SEARCH_RECORDS)
    {

        rc = agent_search_next(&s->record, &s->pos, s->last);

        if (rc == SANDBOX_OK) {
            agent_search_found(s);

        } else if (rc == SANDBOX_BAD) {
            agent_log("a search wrote what ripgrep does not");
            s->more = 1;

        } else if (reads++ == AGENT_SEARCH_READS || agent_search_read(s)) {
            break;
        }
    }

    if (agent_search_send(s) == -1) {
        return;
    }

    if (s->more) {
        agent_search_stop(s);
        return;
    }

    if (s->pos < s->last || s->c->out_sent < s->c->out_size) {

        /* the pipe waits for the client, who is heard when he is ready */

        agent_watch_clear(&s->out);

        if (agent_connection_look(s->c, 1) == -1) {
            agent_connection_close(s->c);
        }

        return;
    }

    agent_search_check(s);
}


/* 0: some bytes came; else there are none now, or at all. */

static int
agent_search_read(agent_search_t *s)
{
    ssize_t  n;

    if (s->eof) {
        return -1;
    }

    n = read(s->out.fd, s->buffer, sizeof(s->buffer));

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return -1;
    }

    if (n <= 0) {
        agent_watch_close(&s->out);
        s->eof = 1;
        return -1;
    }

    s->pos = s->buffer;
    s->last = s->buffer + n;

    return 0;
}


/* A record, if it is true. */

static void
agent_search_found(agent_search_t *s)
{
    int                    same;
    size_t                 here;
    uint8_t               *p;
    const char            *path;
    sandbox_writer_t       w;
    agent_search_record_t *r;

    r = &s->record;
    here = sizeof(AGENT_SEARCH_HERE) - 1;
    path = r->path;

    if (s->single) {
        path = "";

    } else if (strncmp(path, AGENT_SEARCH_HERE, here) == 0) {
        path += here;
    }

    agent_directory_user(1);

    same = agent_search_file(s, path) == 0;

    if (same) {
        s->binary |= r->binary;
        same = r->names || s->binary || agent_search_same(s);
    }

    agent_directory_user(0);

    if (!same || (s->told && (s->binary || r->names))) {
        return;
    }

    if (s->count == s->c->file->request.limit) {
        s->more = 1;
        return;
    }

    p = agent_search_frame + SANDBOX_WIRE_FRAME_SIZE + agent_search_filled;

    sandbox_writer_init(&w, p + 4, AGENT_SEARCH_RECORD - 4);
    sandbox_write_string(&w, SANDBOX_TAG_FILE_NAME, path);

    if (!s->record.names && !s->binary) {
        sandbox_write_number(&w, SANDBOX_TAG_LINE, r->line);
        sandbox_write_bytes(&w, SANDBOX_TAG_TEXT, r->text,
                            agent_search_text(r));

    } else {
        sandbox_write_number(&w, SANDBOX_TAG_FILE_TYPE,
                             agent_file_type(s->st.st_mode));
        sandbox_write_number(&w, SANDBOX_TAG_FILE_SIZE, s->st.st_size);
        sandbox_write_number(&w, SANDBOX_TAG_FILE_MODE,
                             s->st.st_mode & 07777);
        sandbox_write_number(&w, SANDBOX_TAG_MODIFIED_NS,
                             agent_file_modified(&s->st));
    }

    sandbox_put32(p, w.pos - w.start);
    agent_search_filled += 4 + (w.pos - w.start);
    s->told = 1;
    s->count++;
}


/* 1: the text of the match stands in the file, where it was found. */

static int
agent_search_same(agent_search_t *s)
{
    uint64_t                offset;
    uint8_t                 text[sizeof(s->record.text)];
    agent_search_record_t  *r;

    r = &s->record;
    offset = r->offset + s->marked;

    /* ripgrep reads over a mark at the start and does not count it */

    if (r->line == 0 || offset < r->offset || offset > INT64_MAX) {
        return 0;
    }

    if (memchr(r->text, '\0', r->text_size) != NULL) {
        s->binary = 1;
        return 1;
    }

    return pread(s->fd, text, r->text_size, offset) == (ssize_t) r->text_size
           && memcmp(text, r->text, r->text_size) == 0;
}


/* Opens the file of that path, unless it is open.  -1: it is no longer so. */

static int
agent_search_file(agent_search_t *s, const char *path)
{
    int  found;

    if (s->opened && strcmp(path, s->path) == 0) {
        return 0;
    }

    if (s->fd != -1) {
        close(s->fd);
        s->fd = -1;
    }

    s->opened = 1;
    s->binary = 0;
    s->told = 0;
    s->marked = 0;
    strcpy(s->path, path);

    if (s->single) {
        s->st = s->c->file->st;
        s->fd = fcntl(s->c->file->fd, F_DUPFD_CLOEXEC, 0);

    } else {
        found = agent_root_open_at(s->c->file->fd, path, O_PATH, 0);

        if (found == -1 || fstat(found, &s->st) == -1
            || !S_ISREG(s->st.st_mode))
        {
            if (found != -1) {
                close(found);
            }

            s->opened = 0;
            return -1;
        }

        if (!s->record.names) {
            s->fd = agent_root_reopen(found, O_RDONLY);
        }

        close(found);
    }

    if (s->record.names) {
        return 0;
    }

    if (s->fd == -1) {
        s->opened = 0;
        return -1;
    }

    agent_search_look(s);

    return 0;
}


/* A NUL near its start makes a file binary, as for ripgrep itself. */

static void
agent_search_look(agent_search_t *s)
{
    ssize_t         n;
    static uint8_t  head[AGENT_SEARCH_HEAD];

    n = pread(s->fd, head, sizeof(head), 0);

    if (n > 0 && memchr(head, '\0', n) != NULL) {
        s->binary = 1;
    }

    if (n >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0) {
        s->marked = 3;
    }
}


/* What was found goes out, HEAD before it.  -1: the connection is closed. */

static int
agent_search_send(agent_search_t *s)
{
    size_t               size;
    agent_connection_t  *c;

    c = s->c;
    size = agent_search_filled;
    agent_search_filled = 0;

    if (size == 0) {
        return 0;
    }

    c->file->ticks = 0;

    if (!c->head_sent && agent_file_head(c, 200, NULL) == -1) {
        return -1;
    }

    sandbox_frame_write(agent_search_frame, SANDBOX_FRAME_DATA, size);

    if (agent_connection_send(c, agent_search_frame,
                              SANDBOX_WIRE_FRAME_SIZE + size) == -1)
    {
        agent_connection_close(c);
        return -1;
    }

    return 0;
}


/* It has ended, and all it wrote is read and taken. */

static void
agent_search_check(agent_search_t *s)
{
    if (s->c == NULL) {

        /* nobody waits: only that it is gone */

        if (s->pid == 0) {
            agent_search_leave(s);
        }

        return;
    }

    if (s->stopped) {
        if (s->pid == 0) {
            agent_search_finish(s);
        }

        return;
    }

    if (s->pid || !s->eof || s->pos < s->last
        || s->c->out_sent < s->c->out_size)
    {
        return;
    }

    agent_search_judge(s);
}


/*
 * It has found enough, or had time enough.  Who hears that it is over may ask
 * for the next one at once, so its process is to be gone by then.
 */

static void
agent_search_stop(agent_search_t *s)
{
    s->more = 1;
    s->stopped = 1;
    s->eof = 1;
    agent_watch_close(&s->out);

    if (s->pid == 0) {
        agent_search_finish(s);
        return;
    }

    agent_tree_kill(&s->tree);
    agent_timer_set(&s->timer, AGENT_SEARCH_GONE);

    if (agent_connection_look(s->c, s->c->out_sent < s->c->out_size) == -1) {
        agent_connection_close(s->c);
    }
}


static void
agent_search_judge(agent_search_t *s)
{
    int                  error, directory;
    char                 said[2048], sentence[AGENT_SEARCH_SENTENCE];
    char                 detail[AGENT_SEARCH_SENTENCE + 64];
    ssize_t              n;
    agent_connection_t  *c;

    error = agent_spawn_error(&s->report, &directory);

    if (directory) {
        c = agent_search_detach(s);
        agent_file_error(c, error);
        return;
    }

    if (error || (WIFEXITED(s->status) && WEXITSTATUS(s->status) == 127)) {
        agent_log(AGENT_SEARCH_PROGRAM " can't be run: error %d; the base "
                  "image must have it for searches", error);
        c = agent_search_detach(s);
        agent_connection_error(c, "not_available", "The base image of this "
                               "sandbox has no ripgrep ("
                               AGENT_SEARCH_PROGRAM ").", 0);
        return;
    }

    if (WIFSIGNALED(s->status)) {

        /* no memory, a file that shrank under it, or the user's own doing */

        agent_log("a search was ended by signal %d", WTERMSIG(s->status));
        s->more = 1;

    } else if (WEXITSTATUS(s->status) == 2 && !s->c->head_sent
               && (n = read(s->err, said, sizeof(said))) > 0)
    {
        agent_search_sentence(sentence, said, n);
        snprintf(detail, sizeof(detail), "The pattern or glob can't be used"
                 "%s%s.", sentence[0] ? ": " : "", sentence);
        c = agent_search_detach(s);
        agent_connection_error(c, "bad_pattern", detail, 0);
        return;
    }

    agent_search_finish(s);
}


static void
agent_search_finish(agent_search_t *s)
{
    uint8_t              fields[64];
    sandbox_writer_t     w;
    agent_connection_t  *c;

    sandbox_writer_init(&w, fields, sizeof(fields));
    sandbox_write_number(&w, SANDBOX_TAG_MORE, s->more);
    c = agent_search_detach(s);

    if (c->head_sent || agent_file_head(c, 200, NULL) == 0) {
        agent_file_result(c, &w);
    }
}


/* The connection goes on without it. */

static agent_connection_t *
agent_search_detach(agent_search_t *s)
{
    agent_connection_t  *c;

    c = s->c;
    c->file->data = NULL;
    c->file->end = NULL;
    agent_search_leave(s);

    return c;
}


/* The client is gone. */

static void
agent_search_end(agent_file_t *file)
{
    agent_search_t  *s;

    s = file->data;

    if (s != NULL) {
        agent_search_leave(s);
    }
}


/* Ends it: it can be used again once its processes are gone. */

static void
agent_search_leave(agent_search_t *s)
{
    int  directory;

    s->c = NULL;
    agent_search_filled = 0;
    agent_watch_close(&s->out);

    if (s->err != -1) {
        close(s->err);
        s->err = -1;
    }

    if (s->fd != -1) {
        close(s->fd);
        s->fd = -1;
    }

    if (s->pid == 0 && agent_tree_release(&s->tree)) {
        (void) agent_spawn_error(&s->report, &directory);
        agent_timer_clear(&s->timer);
        s->used = 0;
        return;
    }

    agent_tree_kill(&s->tree);
    agent_timer_set(&s->timer, AGENT_KILL_WAIT);
}


static void
agent_search_timeout(agent_timer_t *timer)
{
    agent_search_t  *s;

    s = timer->data;

    if (s->c == NULL) {
        agent_search_leave(s);
        return;
    }

    if (s->stopped) {
        agent_search_finish(s);
        return;
    }

    agent_search_stop(s);
}
