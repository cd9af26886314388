/*
 * The agent as it is, until a command of its user's says "lie: NAME": from
 * then on the container's PID 1 is that user's creature, and NAME says what
 * it does.  Linked with the agent's own objects, of which two functions are
 * wrapped.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent.h"
#include "agent_request.h"
#include "sandbox_control.h"


#define SIZE  (128 * 1024)


void __real_agent_queue_enter(agent_connection_t *c,
    agent_request_t *request);
void __wrap_agent_queue_enter(agent_connection_t *c,
    agent_request_t *request);
int __real_accept4(int fd, struct sockaddr *address, socklen_t *size,
    int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size,
    int flags);


static int      control = -1;            /* to the runner */
static int      client;                  /* who asked for the lie */
static uint8_t  message[SIZE];


int
__wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    int  got;

    got = __real_accept4(fd, address, size, flags);

    if (got != -1) {
        control = got;
    }

    return got;
}


/* a message with one number; 1: it went */

static int
say(uint8_t type, uint32_t serial, uint16_t tag, uint64_t value)
{
    uint8_t           b[64];
    sandbox_writer_t  w;

    memset(b, 0, SANDBOX_CONTROL_SIZE);
    b[0] = type;
    sandbox_put32(b + 4, serial);
    sandbox_writer_init(&w, b + SANDBOX_CONTROL_SIZE,
                        sizeof(b) - SANDBOX_CONTROL_SIZE);

    if (tag) {
        sandbox_write_number(&w, tag, value);
    }

    return send(control, b, w.pos - b, MSG_DONTWAIT|MSG_NOSIGNAL) != -1;
}


static void
give(uint8_t type, const int *fds, unsigned n)
{
    struct iovec    iov = { message, SANDBOX_CONTROL_SIZE };
    struct msghdr   m;

    union {
        char            data[CMSG_SPACE(16 * sizeof(int))];
        struct cmsghdr  align;
    } u;

    memset(&m, 0, sizeof(m));
    memset(&u, 0, sizeof(u));
    memset(message, 0, SANDBOX_CONTROL_SIZE);
    message[0] = type;

    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = u.data;
    m.msg_controllen = CMSG_SPACE(n * sizeof(int));
    u.align.cmsg_level = SOL_SOCKET;
    u.align.cmsg_type = SCM_RIGHTS;
    u.align.cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(&u.align), fds, n * sizeof(int));

    (void) sendmsg(control, &m, MSG_DONTWAIT|MSG_NOSIGNAL);
}


/* nothing is read of what the runner says, and nobody is answered */

static void
sleep_on(void)
{
    for ( ;; ) {
        pause();
    }
}


static void
wait_for_room(void)
{
    struct pollfd  p = { control, POLLOUT, 0 };

    (void) poll(&p, 1, 1000);
}


static void
flood(uint8_t type, uint16_t tag)
{
    for ( ;; ) {
        if (!say(type, 0, tag, 1)) {

            if (errno != EAGAIN) {
                exit(1);
            }

            wait_for_room();
        }
    }
}


/* asks for run slots, and gives them back, as fast as it goes */

static void
slots(void)
{
    uint8_t        b[SANDBOX_CONTROL_MAX];
    struct pollfd  p = { control, POLLIN, 0 };

    (void) say(SANDBOX_CONTROL_DONE, 0, 0, 0);

    for ( ;; ) {
        (void) say(SANDBOX_CONTROL_WANT, 0, 0, 0);

        if (poll(&p, 1, 100) == 1) {
            if (recv(control, b, sizeof(b), 0) <= 0) {
                exit(1);
            }

            if (b[0] == SANDBOX_CONTROL_GRANT) {
                (void) say(SANDBOX_CONTROL_DONE, 0, 0, 0);
            }
        }
    }
}


/* a request that looks like one, and a connection to nobody; 0: half of it */

static int
request(int whole, int pair[2])
{
    int                 memory;
    uint8_t             b[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    memset(&preamble, 0xff, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_COMMAND;
    preamble.flags = SANDBOX_FLAG_FRESH;
    preamble.head = 0;
    preamble.body = 0;
    sandbox_preamble_write(b, &preamble);

    memory = memfd_create("request", MFD_CLOEXEC);
    (void) !socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair);
    (void) !write(memory, b, whole ? sizeof(b) : 60);

    return memory;
}


/* connections that nobody has asked for, with all kinds of descriptors */

static void
returns(int replace)
{
    int       i, fds[16], pair[2], memory, pipes[2];
    unsigned  n;

    for (n = 0; !replace || n < 20; n++) {
        memory = request(n % 3 != 0, pair);

        if (pipe(pipes) == -1) {
            exit(1);
        }

        fds[0] = n % 5 == 1 ? control : n % 5 == 2 ? pipes[0] : pair[0];
        fds[1] = n % 7 == 1 ? pair[0] : n % 7 == 2 ? pipes[1] : memory;

        for (i = 2; i < 16; i++) {
            fds[i] = memory;
        }

        give(SANDBOX_CONTROL_RETURN, fds, n == 3000 ? 7 : 2);

        close(memory);
        close(pair[0]);
        close(pair[1]);
        close(pipes[0]);
        close(pipes[1]);

        if (n % 16 == 15) {
            wait_for_room();
        }
    }

    (void) say(SANDBOX_CONTROL_REPLACE, 0, 0, 0);
    sleep_on();
}


/* standard error that never ends; it goes on when it is refused */

static void
words(void)
{
    unsigned  n;

    memset(message, '\n', sizeof(message));

    for (n = 0; n < 4096; n++) {
        (void) lseek(STDERR_FILENO, 0, SEEK_END);
        (void) !write(STDERR_FILENO, message, sizeof(message));
        (void) !ftruncate(STDERR_FILENO, (off_t) n << 30);
    }

    exit(1);
}


/* an ending whose words are a line of somebody else's log */

static void
forged(void)
{
    dprintf(STDERR_FILENO, "\n2026-01-01 00:00:00.000 error: \033[2Jforged "
            "\r\x9b\xe2\x80\xae line\n");
    exit(1);
}


static void
descriptors(void)
{
    int  fd;

    for (fd = 3; fd < 1024; fd++) {
        if (fd != client) {
            close(fd);
        }
    }

    sleep_on();
}


/* malformed in one way each; the runner ends who sends it */

static void
malformed(const char *how)
{
    int              fds[16], i;
    static uint64_t  n;

    for (i = 0; i < 16; i++) {
        fds[i] = client;
    }

    memset(message, 0, sizeof(message));
    message[0] = SANDBOX_CONTROL_STATE;

    switch (*how) {

    case '0':
        n = 0;
        break;

    case '1':
        n = SANDBOX_CONTROL_SIZE - 1;
        break;

    case '2':
        n = sizeof(message);
        break;

    case '3':
        message[1] = 0xff;
        n = SANDBOX_CONTROL_SIZE;
        break;

    case '4':
        message[3] = 1;
        n = SANDBOX_CONTROL_SIZE;
        break;

    case '5':
        message[0] = 99;
        n = SANDBOX_CONTROL_SIZE;
        break;

    case '6':
        (void) say(SANDBOX_CONTROL_READY, 0, SANDBOX_TAG_VERSION_MAX, 1);
        sleep_on();
        return;

    case '7':
        (void) say(SANDBOX_CONTROL_TAKEN, 0xfffffff0, 0, 0);
        sleep_on();
        return;

    case '8':
        (void) say(SANDBOX_CONTROL_STATE, 0, SANDBOX_TAG_RUNNING,
                   UINT64_MAX);
        sleep_on();
        return;

    case '9':
        (void) say(SANDBOX_CONTROL_STATE, 0, SANDBOX_TAG_COMMANDS,
                   UINT64_MAX);
        sleep_on();
        return;

    case 'a':
        give(SANDBOX_CONTROL_STATE, fds, 1);
        sleep_on();
        return;

    case 'b':
        give(SANDBOX_CONTROL_RETURN, fds, 16);
        sleep_on();
        return;

    case 'c':
        (void) say(SANDBOX_CONTROL_DONE, 0, 0, 0);
        (void) say(SANDBOX_CONTROL_DONE, 0, 0, 0);
        (void) say(SANDBOX_CONTROL_DONE, 0, 0, 0);
        sleep_on();
        return;

    default:
        sandbox_put16(message + SANDBOX_CONTROL_SIZE, SANDBOX_TAG_RUNNING);
        sandbox_put32(message + SANDBOX_CONTROL_SIZE + 2, 0x7fffffff);
        n = SANDBOX_CONTROL_SIZE + SANDBOX_WIRE_FIELD_SIZE;
    }

    /* of no bytes is the end of the channel */

    (void) send(control, message, n, MSG_NOSIGNAL);
    sleep_on();
}


/* the client's answer, of frames that say too much or nothing */

static void
frames(const char *how)
{
    unsigned  n;
    uint8_t   b[512];

    sandbox_writer_t  w;

    (void) fcntl(client, F_SETFL, 0);
    sandbox_writer_init(&w, b + SANDBOX_WIRE_FRAME_SIZE, 400);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, *how == 's' ? 99 : 200);
    sandbox_frame_write(b, SANDBOX_FRAME_HEAD, w.pos - w.start);

    if (*how != 'p') {
        (void) send(client, b, w.pos - b, MSG_NOSIGNAL);
    }

    memset(message, 'x', sizeof(message));

    for (n = 0; n < 1000000; n++) {

        switch (*how) {

        case 'p':
            sandbox_frame_write(message, SANDBOX_FRAME_PING, 0);

            if (send(client, message, SANDBOX_WIRE_FRAME_SIZE, MSG_NOSIGNAL)
                == -1)
            {
                sleep_on();
            }

            continue;

        case 'o':
            sandbox_frame_write(message, SANDBOX_FRAME_STDOUT, 8 + 65536);
            sandbox_put64(message + SANDBOX_WIRE_FRAME_SIZE, n + 1);

            if (send(client, message, SANDBOX_WIRE_FRAME_SIZE + 8 + 65536,
                     MSG_NOSIGNAL)
                == -1)
            {
                sleep_on();
            }

            continue;

        default:
            exit(1);
        }
    }
}


void
__wrap_agent_queue_enter(agent_connection_t *c, agent_request_t *r)
{
    char  name[64];

    if (r->command_size < 5 || r->command_size > sizeof(name)
        || memcmp(r->command, "lie: ", 5) != 0)
    {
        __real_agent_queue_enter(c, r);
        return;
    }

    memset(name, 0, sizeof(name));
    memcpy(name, r->command + 5, r->command_size - 5);
    client = c->watch.fd;

    if (strcmp(name, "keep") == 0 || strcmp(name, "deaf") == 0) {
        sleep_on();

    } else if (strcmp(name, "states") == 0) {
        flood(SANDBOX_CONTROL_STATE, SANDBOX_TAG_RUNNING);

    } else if (strcmp(name, "wants") == 0) {
        flood(SANDBOX_CONTROL_WANT, 0);

    } else if (strcmp(name, "slots") == 0) {
        slots();

    } else if (strcmp(name, "returns") == 0) {
        returns(0);

    } else if (strcmp(name, "replace") == 0) {
        returns(1);

    } else if (strcmp(name, "words") == 0) {
        words();

    } else if (strcmp(name, "forged") == 0) {
        forged();

    } else if (strcmp(name, "descriptors") == 0) {
        descriptors();

    } else if (strncmp(name, "bad ", 4) == 0) {
        malformed(name + 4);

    } else if (strncmp(name, "frames ", 7) == 0) {
        frames(name + 7);
    }

    exit(1);
}
