/*
 * Foreign bytes as the bodies of STDINs: chunked or not, in any pieces, while
 * the command reads as it likes.  What comes out of its pipe is what a second,
 * simple reader of the same bytes finds, and each client gets one answer.
 */

/* link: src/wire/sandbox_wire.c */

#include "../../src/agent/agent_stdin.c"

#include <fcntl.h>


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)

#define FUZZ_MAX  (1024 * 1024)


static agent_connection_t *fuzz_client(uint8_t flags, const uint8_t *p,
    size_t size);
static size_t fuzz_expect(uint8_t flags, const uint8_t *p, size_t size,
    size_t have);
static void fuzz_drain(void);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);


agent_t                    agent;

static agent_command_t     fuzz_command;
static int                 fuzz_pipe[2];
static int                 fuzz_other[2];        /* the clients' ends */
static agent_connection_t *fuzz_clients[2];
static unsigned            fuzz_answers[2];
static size_t              fuzz_have;
static uint8_t             fuzz_got[FUZZ_MAX];
static uint8_t             fuzz_expected[FUZZ_MAX];
static agent_answer_t      fuzz_answer;


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    size_t    n, half, sent[2], at, want;
    uint8_t   flags;
    unsigned  i;

    if (size < 3) {
        return 0;
    }

    flags = p[0];
    half = 2 + (size - 2) * p[1] / 256;

    memset(&fuzz_command, 0, sizeof(fuzz_command));
    check(pipe2(fuzz_pipe, O_NONBLOCK) == 0);
    strcpy(fuzz_command.id, "id");
    fuzz_command.in.fd = fuzz_pipe[1];
    fuzz_command.in.data = &fuzz_command;
    fuzz_command.input_open = 1;
    fuzz_command.state = AGENT_COMMAND_RUNNING;
    fuzz_have = 0;
    fuzz_answers[0] = 0;
    fuzz_answers[1] = 0;

    /* two at once, each with its part of the bytes */

    for (i = 0; i < 2; i++) {
        fuzz_other[i] = -1;
    }

    fuzz_clients[0] = fuzz_client(flags, p + 2, half - 2);
    fuzz_clients[1] = fuzz_client(flags >> 4, p + half, size - half);

    sent[0] = 0;
    sent[1] = 0;

    for (n = 0; n < 2 * size + 20; n++) {
        i = n & 1;
        at = i ? half : 2;
        want = (i ? size : half) - at - sent[i];

        if (want > (size_t) (p[n % size] & 63)) {
            want = p[n % size] & 63;
        }

        if (want && fuzz_other[i] != -1) {
            want = send(fuzz_other[i], p + at + sent[i], want,
                        MSG_DONTWAIT|MSG_NOSIGNAL);

            if ((ssize_t) want > 0) {
                sent[i] += want;
            }
        }

        if (fuzz_clients[i] != NULL
            && fuzz_clients[i]->state == AGENT_CONNECTION_INPUT)
        {
            agent_stdin_read(fuzz_clients[i]);
        }

        if (p[n % size] & 64) {
            fuzz_drain();
        }

        if (fuzz_command.in.fd != -1) {
            agent_stdin_event(&fuzz_command.in, EPOLLOUT);
        }
    }

    /* the clients hang up, then the command ends */

    for (n = 0; n < 8; n++) {
        for (i = 0; i < 2; i++) {
            if (fuzz_other[i] != -1) {
                shutdown(fuzz_other[i], SHUT_WR);
            }

            if (fuzz_clients[i] != NULL
                && fuzz_clients[i]->state == AGENT_CONNECTION_INPUT)
            {
                agent_stdin_read(fuzz_clients[i]);
            }
        }

        fuzz_drain();

        if (fuzz_command.in.fd != -1) {
            agent_stdin_event(&fuzz_command.in, EPOLLOUT);
        }
    }

    fuzz_drain();
    agent_stdin_end(&fuzz_command, "command_ended");
    check(fuzz_command.writers == NULL);
    check(fuzz_clients[0] == NULL && fuzz_clients[1] == NULL);
    check(fuzz_answers[0] == 1 && fuzz_answers[1] == 1);

    n = fuzz_expect(flags, p + 2, sent[0], 0);

    if (!(flags & 2) || !(flags & 8)) {
        n = fuzz_expect(flags >> 4, p + half, sent[1], n);
        check(fuzz_have == n);
        check(memcmp(fuzz_got, fuzz_expected, n) == 0);
    }

    if (fuzz_command.in.fd != -1) {
        close(fuzz_command.in.fd);
    }

    close(fuzz_pipe[0]);

    for (i = 0; i < 2; i++) {
        if (fuzz_other[i] != -1) {
            close(fuzz_other[i]);
        }
    }

    return 0;
}


/* flags: 1 chunked, 2 eof (with 8: said so) */

static agent_connection_t *
fuzz_client(uint8_t flags, const uint8_t *p, size_t size)
{
    int                  fds[2];
    unsigned             i;
    agent_request_t      request;
    agent_connection_t  *c;

    i = fuzz_other[0] != -1;
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    fuzz_other[i] = fds[1];

    c = calloc(1, sizeof(agent_connection_t));
    c->watch.fd = fds[0];
    c->serial = i;
    c->in_size = 256;
    c->in = malloc(c->in_size);
    c->in_have = SANDBOX_WIRE_PREAMBLE_SIZE;
    c->preamble.body = flags & 1 ? SANDBOX_WIRE_BODY_CHUNKED : size;
    c->input_left = 1;
    fuzz_clients[i] = c;

    memset(&request, 0, sizeof(request));
    request.id = (const uint8_t *) "id";
    request.id_size = 2;
    request.stdin_eof = (flags & 2) && (flags & 8);
    agent_stdin_enter(c, &request);

    return fuzz_clients[i];
}


/* The payload of such a body behind `have` bytes; as far as it is right. */

static size_t
fuzz_expect(uint8_t flags, const uint8_t *p, size_t size, size_t have)
{
    size_t  n;

    if (!(flags & 1)) {
        memcpy(fuzz_expected + have, p, size);
        return have + size;
    }

    while (size >= 4) {
        n = sandbox_get32(p);
        p += 4;
        size -= 4;

        if (n == 0 || n > SANDBOX_WIRE_MAX_CHUNK) {
            break;
        }

        if (n > size) {
            n = size;
        }

        memcpy(fuzz_expected + have, p, n);
        have += n;
        p += n;
        size -= n;
    }

    return have;
}


static void
fuzz_drain(void)
{
    ssize_t  n;

    while ((n = read(fuzz_pipe[0], fuzz_got + fuzz_have, FUZZ_MAX - fuzz_have))
           > 0)
    {
        fuzz_have += n;
    }
}


/* --- the others ---------------------------------------------------------- */

static void
fuzz_done(agent_connection_t *c)
{
    fuzz_answers[c->serial]++;
    fuzz_clients[c->serial] = NULL;
    close(c->watch.fd);
    free(c->in);
    free(c);
}


void
agent_connection_answer(agent_connection_t *c, agent_answer_t *answer)
{
    fuzz_done(c);
}


void
agent_connection_error(agent_connection_t *c, const char *code,
    const char *detail, unsigned retry_after)
{
    check(!c->head_sent);
    fuzz_done(c);
}


void
agent_connection_close(agent_connection_t *c)
{
    check(c->state == AGENT_CONNECTION_INPUT);
    agent_stdin_lost(c);
    fuzz_done(c);
}


int
agent_connection_send(agent_connection_t *c, const uint8_t *data, size_t size)
{
    return 0;
}


int
agent_connection_look(agent_connection_t *c, int out)
{
    return 0;
}


int
agent_receive_resize(agent_connection_t *c, size_t size)
{
    return -1;
}


agent_command_t *
agent_queue_find(const uint8_t *id, size_t length)
{
    return &fuzz_command;
}


agent_history_t *
agent_history_find(const uint8_t *id, size_t length, const char **code)
{
    return NULL;
}


size_t
agent_answer_head(uint8_t *p, size_t size, const char *id)
{
    return 1;
}


agent_answer_t *
agent_answer_taken(const char *id, uint64_t bytes)
{
    return &fuzz_answer;
}


void
agent_answer_release(agent_answer_t *answer)
{
}


void
agent_log(const char *format, ...)
{
}


int
agent_watch_set(agent_watch_t *watch, uint32_t events)
{
    return 0;
}


void
agent_watch_close(agent_watch_t *watch)
{
    close(watch->fd);
    watch->fd = -1;
}


void
agent_timer_set(agent_timer_t *timer, uint64_t delay)
{
}
