/*
 * Standard input of a command: the body of its request, then what STDINs
 * bring, one after the other.  Of these only a small buffer is held; while the
 * command does not read, neither are they read.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>


#define AGENT_STDIN_ROUNDS  64           /* reads and writes at a time */
#define AGENT_STDIN_TICKS   (SANDBOX_WIRE_REQUEST_WAIT                        \
                             / SANDBOX_WIRE_PING_INTERVAL)


typedef enum {
    AGENT_STDIN_MORE = 0,                /* there is something to go on with */
    AGENT_STDIN_FULL,                    /* the command does not read */
    AGENT_STDIN_EMPTY,                   /* the client does not send */
    AGENT_STDIN_CLOSED                   /* nobody will ever read it */
} agent_stdin_e;


static void agent_stdin_pump(agent_command_t *command);
static agent_stdin_e agent_stdin_body(agent_command_t *command);
static agent_stdin_e agent_stdin_pass(agent_connection_t *c,
    agent_command_t *command);
static agent_stdin_e agent_stdin_receive(agent_connection_t *c);
static agent_stdin_e agent_stdin_write(agent_command_t *command,
    const uint8_t *data, size_t size, size_t *taken);
static void agent_stdin_head(agent_connection_t *c);
static void agent_stdin_close(agent_command_t *command);
static void agent_stdin_answer(agent_connection_t *c, const char *code,
    const char *detail);
static void agent_stdin_unlink(agent_connection_t *c);


void
agent_stdin_start(agent_command_t *command)
{
    agent_stdin_pump(command);
}


void
agent_stdin_event(agent_watch_t *watch, uint32_t events)
{
    if (events & EPOLLERR) {
        agent_stdin_close(watch->data);
        return;
    }

    agent_stdin_pump(watch->data);
}


void
agent_stdin_enter(agent_connection_t *c, const agent_request_t *request)
{
    size_t                whole;
    const char           *code;
    agent_command_t      *command;
    agent_connection_t  **p;

    command = agent_queue_find(request->id, request->id_size);

    if (command == NULL) {
        code = NULL;

        if (agent_history_find(request->id, request->id_size, &code) != NULL) {
            code = "command_ended";
        }

        agent_connection_error(c, code, "The command does not run.", 0);
        return;
    }

    if (command->killed) {
        agent_connection_error(c, "command_ended", "The command is being "
                               "ended.", 0);
        return;
    }

    if (!command->input_open) {
        agent_connection_error(c, "stdin_closed", "Standard input of the "
                               "command is at its end.", 0);
        return;
    }

    /* what came with the head is the first of the body */

    whole = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;
    c->in_have -= whole;
    memmove(c->in, c->in + whole, c->in_have);

    c->eof = request->stdin_eof;
    c->body_end = c->preamble.body != SANDBOX_WIRE_BODY_CHUNKED;
    c->chunk = c->body_end ? c->preamble.body : 0;

    /* without memory for a larger one the buffer it has will do */

    (void) agent_receive_resize(c, AGENT_MAX_INPUT);

    for (p = &command->writers; *p != NULL; p = &(*p)->peer) { /* void */ }

    *p = c;
    c->peer = NULL;
    c->command = command;
    c->state = AGENT_CONNECTION_INPUT;
    agent_timer_set(&c->timer, SANDBOX_WIRE_PING_INTERVAL);

    if (agent_connection_look(c, 0) == -1) {
        agent_connection_close(c);
        return;
    }

    agent_stdin_pump(command);
}


void
agent_stdin_read(agent_connection_t *c)
{
    if (c->reading) {
        agent_stdin_pump(c->command);
    }
}


void
agent_stdin_tick(agent_connection_t *c)
{
    if (!c->reading || ++c->ticks < AGENT_STDIN_TICKS) {
        return;
    }

    agent_stdin_unlink(c);
    agent_stdin_answer(c, "slow_request", "The request did not come within "
                       "10 s.");
}


void
agent_stdin_lost(agent_connection_t *c)
{
    agent_stdin_unlink(c);
}


void
agent_stdin_end(agent_command_t *command, const char *code)
{
    agent_connection_t  *c;

    while ((c = command->writers) != NULL) {
        agent_stdin_unlink(c);
        agent_stdin_answer(c, code, "The command reads no more.");
    }
}


/* As much as goes now, of the body and of every STDIN in its turn. */

static void
agent_stdin_pump(agent_command_t *command)
{
    unsigned             i;
    agent_stdin_e        rc;
    agent_connection_t  *c;

    rc = AGENT_STDIN_MORE;

    for (i = 0; i < AGENT_STDIN_ROUNDS && rc == AGENT_STDIN_MORE; i++) {

        if (command->in.fd == -1) {
            return;
        }

        if (command->input_sent < command->input_size) {
            rc = agent_stdin_body(command);
            continue;
        }

        if (!command->input_open) {
            agent_watch_close(&command->in);
            return;
        }

        /* a client hears HEAD of the command before it hears of its input */

        c = command->writers;

        if (c == NULL || command->state != AGENT_COMMAND_RUNNING) {
            rc = AGENT_STDIN_EMPTY;
            break;
        }

        rc = agent_stdin_pass(c, command);
    }

    if (rc == AGENT_STDIN_CLOSED) {
        agent_stdin_close(command);
        return;
    }

    /* even when there is nothing to write, the end of its reader is heard */

    if (agent_watch_set(&command->in, rc == AGENT_STDIN_EMPTY ? 0 : EPOLLOUT)
        == -1)
    {
        agent_stdin_close(command);
    }
}


static agent_stdin_e
agent_stdin_body(agent_command_t *command)
{
    size_t         n;
    agent_stdin_e  rc;

    rc = agent_stdin_write(command, command->input + command->input_sent,
                           command->input_size - command->input_sent, &n);
    command->input_sent += n;

    return rc;
}


/* One step of a STDIN: c may be answered and gone afterwards. */

static agent_stdin_e
agent_stdin_pass(agent_connection_t *c, agent_command_t *command)
{
    size_t         n;
    agent_stdin_e  rc;

    if (c->chunk == 0 && c->body_end) {

        c->input_left = 0;
        agent_stdin_unlink(c);

        if (c->eof) {
            command->input_open = 0;
        }

        agent_stdin_answer(c, NULL, NULL);

        if (!command->input_open) {
            agent_stdin_end(command, "stdin_closed");
        }

        return AGENT_STDIN_MORE;
    }

    n = c->in_have - c->in_at;

    if (c->chunk == 0 && n >= SANDBOX_WIRE_CHUNK_SIZE) {

        c->chunk = sandbox_get32(c->in + c->in_at);
        c->in_at += SANDBOX_WIRE_CHUNK_SIZE;
        c->body_end = c->chunk == 0;

        if (c->chunk > SANDBOX_WIRE_MAX_CHUNK) {
            agent_stdin_unlink(c);
            agent_stdin_answer(c, "bad_request", "The body is malformed.");
        }

        return AGENT_STDIN_MORE;
    }

    if (n == 0 || c->chunk == 0) {
        return agent_stdin_receive(c);
    }

    if (n > c->chunk) {
        n = c->chunk;
    }

    rc = agent_stdin_write(command, c->in + c->in_at, n, &n);
    c->in_at += n;
    c->chunk -= n;
    c->passed += n;

    if (n && !c->head_sent) {
        agent_stdin_head(c);
    }

    return rc;
}


static agent_stdin_e
agent_stdin_receive(agent_connection_t *c)
{
    ssize_t  n;

    c->in_have -= c->in_at;
    memmove(c->in, c->in + c->in_at, c->in_have);
    c->in_at = 0;

    n = recv(c->watch.fd, c->in + c->in_have, c->in_size - c->in_have,
             MSG_DONTWAIT);

    if (n > 0) {
        c->in_have += n;
        c->ticks = 0;

    } else if (n == -1 && (errno == EAGAIN || errno == EINTR)) {

        if (!c->reading) {
            c->reading = 1;

            if (agent_connection_look(c, c->out_sent < c->out_size) == 0) {
                return AGENT_STDIN_EMPTY;
            }

            agent_connection_close(c);
            return AGENT_STDIN_MORE;
        }

        return AGENT_STDIN_EMPTY;

    } else {

        /* it went away in the middle: what came has been passed on */

        agent_connection_close(c);
        return AGENT_STDIN_MORE;
    }

    if (c->reading) {
        c->reading = 0;

        if (agent_connection_look(c, c->out_sent < c->out_size) == -1) {
            agent_connection_close(c);
        }
    }

    return AGENT_STDIN_MORE;
}


static agent_stdin_e
agent_stdin_write(agent_command_t *command, const uint8_t *data, size_t size,
    size_t *taken)
{
    ssize_t  n;

    *taken = 0;
    n = write(command->in.fd, data, size);

    if (n == -1) {
        return errno == EAGAIN || errno == EINTR ? AGENT_STDIN_FULL
                                                 : AGENT_STDIN_CLOSED;
    }

    *taken = n;

    return AGENT_STDIN_MORE;
}


/* From its first byte on it is too late for an ERROR. */

static void
agent_stdin_head(agent_connection_t *c)
{
    size_t   size;
    uint8_t  head[512];

    size = agent_answer_head(head, sizeof(head), c->command->id);

    if (agent_connection_send(c, head, size) == -1) {
        agent_connection_close(c);
        return;
    }

    c->head_sent = 1;
}


/* The command has closed it, or its last reader is gone. */

static void
agent_stdin_close(agent_command_t *command)
{
    agent_watch_close(&command->in);
    command->input_open = 0;
    agent_stdin_end(command, "stdin_closed");
}


/* Without a code all was taken; with one it matters whether anything was. */

static void
agent_stdin_answer(agent_connection_t *c, const char *code,
    const char *detail)
{
    char             id[SANDBOX_WIRE_MAX_COMMAND_ID + 1];
    agent_answer_t  *answer;

    strcpy(id, c->command->id);
    c->command = NULL;

    if (code != NULL && !c->head_sent) {
        agent_connection_error(c, code, detail, 0);
        return;
    }

    answer = agent_answer_taken(id, c->passed);

    if (answer == NULL) {
        agent_log("no memory for the answer of a STDIN");
        agent_connection_close(c);
        return;
    }

    agent_connection_answer(c, answer);
    agent_answer_release(answer);
}


/* Out of the row; it still knows its command.  The next one has its turn. */

static void
agent_stdin_unlink(agent_connection_t *c)
{
    agent_command_t      *command;
    agent_connection_t  **p;

    command = c->command;

    for (p = &command->writers; *p != NULL; p = &(*p)->peer) {
        if (*p == c) {
            *p = c->peer;
            break;
        }
    }

    c->peer = NULL;
    c->reading = 0;
    c->state = AGENT_CONNECTION_ANSWER;

    if (command->in.fd != -1 && command->writers != NULL) {
        (void) agent_watch_set(&command->in, EPOLLOUT);
    }
}
