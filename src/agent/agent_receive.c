/*
 * The request of a connection: preamble, head and body, read within a bound
 * and a deadline, in memory that follows what has come.  What is asked for it
 * leaves to others; the body of a STDIN, too.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_stage.h"


#define AGENT_RECEIVE_START  (8 * 1024)          /* bytes of the first read */
#define AGENT_RECEIVE_READS  32                  /* in one round */


static int agent_receive_parse(agent_connection_t *c);
static int agent_receive_passes(const agent_connection_t *c);
static int agent_receive_chunks(agent_connection_t *c);
static void agent_receive_extra(agent_connection_t *c, size_t at);
static int agent_receive_large(const agent_connection_t *c);
static uint64_t agent_receive_whole(const agent_connection_t *c);
static int agent_receive_room(agent_connection_t *c);


static const char  agent_receive_memory[] =
    "Standard input of a command is at most 64 MiB, and a quarter of the "
    "sandbox's memory.";


void
agent_receive(agent_connection_t *c)
{
    int      i, rc, progress;
    ssize_t  n;

    progress = 0;

    if (c->stage != NULL && (c->stage->streaming || c->stage->working)) {
        agent_stage_receive(c);
        return;
    }

    for (i = 0; i < AGENT_RECEIVE_READS; i++) {

        rc = agent_receive_parse(c);

        if (rc == SANDBOX_END) {
            agent_stage_receive(c);
            return;
        }

        if (rc == SANDBOX_BAD) {

            /* a run slot that came with it is for another one */

            agent_queue_process();
            return;
        }

        if (rc == SANDBOX_OK) {
            agent_timer_clear(&c->timer);
            agent_operation_enter(c);
            return;
        }

        if (agent_receive_room(c) == -1) {
            agent_connection_error(c, "too_many_pending",
                                   "The sandbox holds too many requests.", 2);
            agent_queue_process();
            return;
        }

        n = recv(c->watch.fd, c->in + c->in_have, c->in_size - c->in_have,
                 MSG_DONTWAIT);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }

        if (n <= 0) {

            /* it never was a whole request: nothing is done for it */

            agent_connection_close(c);
            agent_queue_process();
            return;
        }

        c->in_have += n;
        progress = 1;
    }

    if (agent_watch_set(&c->watch, EPOLLIN) == -1) {
        agent_connection_close(c);
        return;
    }

    if (progress || !c->timer.active) {
        agent_timer_set(&c->timer, SANDBOX_WIRE_REQUEST_WAIT);
    }
}


void
agent_receive_timeout(agent_connection_t *c)
{
    if (agent_stage_work(c)) {
        return;
    }

    agent_connection_error(c, "slow_request",
                           "The request did not come within 10 s.", 0);
    agent_queue_process();
}


int
agent_receive_load(agent_connection_t *c, int memfd)
{
    int          rc;
    size_t       size;
    ssize_t      n;
    struct stat  st;

    rc = -1;

    if (fstat(memfd, &st) == -1 || !S_ISREG(st.st_mode)
        || st.st_size < SANDBOX_WIRE_PREAMBLE_SIZE
        || (uint64_t) st.st_size > SANDBOX_WIRE_PREAMBLE_SIZE
                                   + SANDBOX_WIRE_MAX_HEAD + AGENT_MAX_BODY)
    {
        goto done;
    }

    size = st.st_size;

    if (agent_receive_resize(c, size) == -1) {
        goto done;
    }

    while (c->in_have < size) {
        n = pread(memfd, c->in + c->in_have, size - c->in_have, c->in_have);
        if (n <= 0) {
            goto done;
        }

        c->in_have += n;
    }

    rc = 0;

done:

    close(memfd);

    return rc;
}


/*
 * SANDBOX_OK: the request is complete.  SANDBOX_BAD: it was refused, c may
 * be gone.  SANDBOX_AGAIN: it needs more bytes.  SANDBOX_END: its files come.
 */

static int
agent_receive_parse(agent_connection_t *c)
{
    int          rc;
    size_t       whole;
    const char  *code, *detail;

    if (c->in_have < SANDBOX_WIRE_PREAMBLE_SIZE) {
        if (!c->returned) {
            return SANDBOX_AGAIN;
        }

        code = "internal";
        detail = "The request was lost when the sandbox was replaced.";
        goto refused;
    }

    if (!c->parsed) {
        if (sandbox_preamble_read(c->in, &c->preamble) != SANDBOX_OK) {
            code = "bad_request";
            detail = "The preamble is malformed.";
            goto refused;
        }

        code = agent_sandbox_admit(&c->preamble, c->returned, &detail);

        if (code != NULL) {
            goto refused;
        }

        c->parsed = 1;

        if (agent.host != NULL && agent.host->park(c)) {
            return SANDBOX_BAD;
        }
    }

    whole = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;

    if (!c->judged) {
        if (c->in_have >= whole) {
            c->judged = 1;

            if (c->preamble.operation == SANDBOX_OPERATION_COMMAND) {
                rc = agent_stage_begin(c);

                if (rc) {
                    return rc == -1 ? SANDBOX_BAD : SANDBOX_END;
                }
            }
        }

        /* the body of a command may be files that don't stay in memory */

        if ((c->judged || c->preamble.operation != SANDBOX_OPERATION_COMMAND)
            && agent_receive_large(c))
        {
            code = "command_too_large";
            detail = agent_receive_memory;
            goto refused;
        }
    }

    if (agent_receive_passes(c)) {

        /* its body goes on to the command, or the file, as it comes */

        rc = c->in_have < whole ? SANDBOX_AGAIN : SANDBOX_OK;

    } else if (c->preamble.body == SANDBOX_WIRE_BODY_CHUNKED) {
        if (c->in_have < whole) {
            rc = SANDBOX_AGAIN;

        } else {
            rc = agent_receive_chunks(c);
        }

        if (rc == SANDBOX_BAD) {
            code = "bad_request";
            detail = "The body is malformed, or over 64 MiB.";
            goto refused;
        }

        if (rc == SANDBOX_AGAIN
            && agent_receive_whole(c) > agent.request_limit)
        {
            code = "command_too_large";
            detail = agent_receive_memory;
            goto refused;
        }

    } else {
        whole += c->preamble.body;
        rc = c->in_have < whole ? SANDBOX_AGAIN : SANDBOX_OK;

        if (rc == SANDBOX_OK) {
            agent_receive_extra(c, whole);
            c->in_have = whole;
            c->input_left = 0;
        }
    }

    if (rc == SANDBOX_AGAIN && c->returned) {
        code = "internal";
        detail = "The request was cut short when the sandbox was replaced.";
        goto refused;
    }

    return rc;

refused:

    agent_connection_error(c, code, detail, 0);

    return SANDBOX_BAD;
}


/* 1: only its head is read here. */

static int
agent_receive_passes(const agent_connection_t *c)
{
    return c->preamble.operation == SANDBOX_OPERATION_STDIN
           || c->preamble.operation == SANDBOX_OPERATION_FILE_WRITE;
}


/*
 * Takes the lengths out of a chunked body, in place: decoded bytes first,
 * then what is not decoded yet.  At its end the preamble gets the length.
 */

static int
agent_receive_chunks(agent_connection_t *c)
{
    size_t    n, start, pos;
    uint8_t  *p;

    start = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;
    pos = start + c->body;
    p = c->in;

    while (pos < c->in_have) {

        if (c->chunk) {
            n = c->in_have - pos;

            if (n > c->chunk) {
                n = c->chunk;
            }

            memmove(p + start + c->body, p + pos, n);
            c->body += n;
            c->chunk -= n;
            pos += n;
            continue;
        }

        if (c->in_have - pos < SANDBOX_WIRE_CHUNK_SIZE) {
            break;
        }

        c->chunk = sandbox_get32(p + pos);
        pos += SANDBOX_WIRE_CHUNK_SIZE;

        if (c->chunk == 0) {
            agent_receive_extra(c, pos);
            c->preamble.body = c->body;
            c->in_have = start + c->body;
            c->input_left = 0;
            sandbox_preamble_write(p, &c->preamble);
            return SANDBOX_OK;
        }

        if (c->chunk > SANDBOX_WIRE_MAX_CHUNK
            || c->chunk > AGENT_MAX_BODY - c->body)
        {
            return SANDBOX_BAD;
        }
    }

    n = c->in_have - pos;
    memmove(p + start + c->body, p + pos, n);
    c->in_have = start + c->body + n;

    return SANDBOX_AGAIN;
}


/* What the client sent behind its request: a frame, or the start of one. */

static void
agent_receive_extra(agent_connection_t *c, size_t at)
{
    size_t  n;

    n = c->in_have - at;

    if (n > sizeof(c->frame)) {
        n = sizeof(c->frame);
    }

    memcpy(c->frame, c->in + at, n);
    c->frame_have = n;
}


/* More than may be kept of one request in memory. */

static int
agent_receive_large(const agent_connection_t *c)
{
    return agent_receive_whole(c) > agent.request_limit
           || (!agent_receive_passes(c)
               && c->preamble.body != SANDBOX_WIRE_BODY_CHUNKED
               && c->preamble.body > AGENT_MAX_BODY);
}


/* Bytes of a whole request, as far as that is known; and a read more. */

static uint64_t
agent_receive_whole(const agent_connection_t *c)
{
    uint64_t  whole;

    whole = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;

    if (agent_receive_passes(c)) {
        return whole;
    }

    if (c->preamble.body == SANDBOX_WIRE_BODY_CHUNKED) {
        return whole + c->body + c->chunk + SANDBOX_WIRE_CHUNK_SIZE
               + 64 * 1024;
    }

    return whole + c->preamble.body;
}


/* Makes room for the next read: what is known to come, step by step. */

static int
agent_receive_room(agent_connection_t *c)
{
    size_t    size;
    uint64_t  whole;

    if (!c->parsed) {
        return agent_receive_resize(c, AGENT_RECEIVE_START);
    }

    /* memory follows what has arrived, not what was announced */

    size = c->in_have < AGENT_RECEIVE_START ? AGENT_RECEIVE_START
                                               : 2 * c->in_have;
    whole = agent_receive_whole(c);

    if (size > whole) {
        size = whole;
    }

    return agent_receive_resize(c, size);
}


int
agent_receive_resize(agent_connection_t *c, size_t size)
{
    uint8_t  *grown;

    if (size <= c->in_size) {
        return 0;
    }

    if (agent.request_bytes + size - c->in_size > agent.request_limit) {
        return -1;
    }

    grown = realloc(c->in, size);
    if (grown == NULL) {
        return -1;
    }

    agent.request_bytes += size - c->in_size;
    c->in = grown;
    c->in_size = size;

    return 0;
}
