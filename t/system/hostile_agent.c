/*
 * An agent that its own user has taken over: behaves for the runner's probe
 * (instance 1), then says at random what a control channel can carry, true or
 * not, with descriptors of any kind, and leaves at any time.
 */

#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "message.h"


#define CONNECTIONS  64


static int       control;
static uint64_t  instance;
static int       connections[CONNECTIONS];
static unsigned  nconnections;


static void
say(uint8_t type, uint8_t flags, uint32_t serial, sandbox_writer_t *w,
    const int *fds, unsigned nfds)
{
    struct pollfd  p = { control, POLLOUT, 0 };

    (void) poll(&p, 1, 200);
    (void) runner_message_send(control, type, flags, serial,
                               w ? w->start : NULL,
                               w ? w->pos - w->start : 0, fds, nfds);
}


static void
ready(void)
{
    uint8_t           b[128];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MIN, SANDBOX_WIRE_VERSION);
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MAX, SANDBOX_WIRE_VERSION);
    say(SANDBOX_CONTROL_READY, 0, 0, &w, NULL, 0);
}


/* the probe's command: an honest answer */

static void
answer(int fd)
{
    char              request[4096];
    uint8_t           b[256];
    sandbox_writer_t  w;

    (void) !recv(fd, request, sizeof(request), 0);

    sandbox_writer_init(&w, b + SANDBOX_WIRE_FRAME_SIZE, 200);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, 200);
    sandbox_frame_write(b, SANDBOX_FRAME_HEAD, w.pos - w.start);
    (void) !send(fd, b, w.pos - b, MSG_NOSIGNAL);

    sandbox_writer_init(&w, b + SANDBOX_WIRE_FRAME_SIZE, 200);
    sandbox_write_number(&w, SANDBOX_TAG_EXIT_CODE, 0);
    sandbox_write_number(&w, SANDBOX_TAG_OUTCOME, SANDBOX_OUTCOME_EXIT);
    sandbox_frame_write(b, SANDBOX_FRAME_RESULT, w.pos - w.start);
    (void) !send(fd, b, w.pos - b, MSG_NOSIGNAL);

    close(fd);
}


static void
hear(runner_message_t *message)
{
    sandbox_field_t  field;

    switch (message->type) {

    case SANDBOX_CONTROL_CLAIM:
        while (sandbox_fields_next(&message->fields, &field) == SANDBOX_OK) {
            if (field.tag == SANDBOX_TAG_INSTANCE) {
                (void) sandbox_field_number(&field, UINT64_MAX, &instance);
            }
        }

        return;

    case SANDBOX_CONTROL_CONN:
        if (instance == 1 || rand() % 3) {
            say(SANDBOX_CONTROL_TAKEN, 0, message->serial, NULL, NULL, 0);
        }

        if (message->nfds == 2) {
            close(message->fds[1]);
        }

        if (instance == 1) {
            answer(message->fds[0]);

        } else if (nconnections < CONNECTIONS) {
            connections[nconnections++] = message->fds[0];

        } else {
            close(message->fds[0]);
        }

        return;

    case SANDBOX_CONTROL_STOP:
        if (rand() % 4) {
            exit(0);
        }

        return;
    }
}


/* what looks like a connection and a request, now and then */

static void
give_back(void)
{
    int                 fds[2], memory, pair[2];
    uint8_t             b[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    memory = memfd_create("request", 0);
    (void) !socketpair(AF_UNIX, SOCK_STREAM, 0, pair);

    memset(&preamble, rand() % 2 ? 0 : 0xff, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_COMMAND;
    preamble.flags = rand() % 4;
    preamble.head = 0;
    preamble.body = 0;
    sandbox_preamble_write(b, &preamble);

    if (rand() % 5) {
        (void) !write(memory, b, sizeof(b));
    }

    fds[0] = nconnections && rand() % 2 ? connections[--nconnections]
             : rand() % 4 ? pair[0] : memory;
    fds[1] = rand() % 6 ? memory : pair[1];

    say(SANDBOX_CONTROL_RETURN, 0, 0, NULL, fds, 2);

    close(memory);
    close(pair[0]);
    close(pair[1]);
}


static void
lie(void)
{
    uint8_t           b[256];
    struct pollfd     p = { SANDBOX_FD_CONTROL, POLLIN, 0 };
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));

    switch (rand() % 40) {

    case 0: case 1: case 2: case 3: case 4: case 5:
        say(SANDBOX_CONTROL_WANT, 0, 0, NULL, NULL, 0);
        return;

    case 6:
        say(SANDBOX_CONTROL_DONE, 0, 0, NULL, NULL, 0);
        return;

    case 7: case 8: case 9: case 10: case 11: case 12: case 13: case 14:
        sandbox_write_number(&w, SANDBOX_TAG_RUNNING, rand() % 3);
        sandbox_write_number(&w, SANDBOX_TAG_QUEUED, rand() % 100000);
        sandbox_write_number(&w, SANDBOX_TAG_BACKGROUND, rand() % 2);
        sandbox_write_number(&w, SANDBOX_TAG_COMMANDS, rand());
        say(SANDBOX_CONTROL_STATE, 0, 0, &w, NULL, 0);
        return;

    case 15: case 16: case 17: case 18: case 19: case 20:
        give_back();
        return;

    case 21:
        say(SANDBOX_CONTROL_REPLACE, 0, 0, NULL, NULL, 0);
        return;

    case 22:
        say(SANDBOX_CONTROL_TAKEN, 0, rand() % 5, NULL, NULL, 0);
        return;

    case 23:
        (void) !getrandom(b, 64, 0);
        w.pos = b + rand() % 64;
        say(rand() % 30, rand() % 2, rand(), &w, NULL, 0);
        return;

    case 24:
        if (nconnections) {
            close(connections[--nconnections]);
        }

        return;

    case 25:
        if (rand() % 4 == 0) {
            exit(1);
        }

        return;

    case 26:
        if (rand() % 4 == 0) {
            close(control);

            if (poll(&p, 1, 3000) != 1) {
                exit(0);
            }

            control = accept4(p.fd, NULL, NULL, SOCK_CLOEXEC);
        }

        return;
    }
}


int
main(void)
{
    int               rc;
    unsigned          seed;
    struct pollfd     p = { SANDBOX_FD_CONTROL, POLLIN, 0 };
    runner_message_t  message;

    (void) !getrandom(&seed, sizeof(seed), 0);
    srand(seed);

    (void) poll(&p, 1, -1);
    control = accept4(p.fd, NULL, NULL, SOCK_CLOEXEC);
    ready();

    for ( ;; ) {
        p.fd = control;

        if (poll(&p, 1, instance > 1 ? rand() % 20 : -1) == 1) {
            rc = runner_message_receive(control, &message);

            if (rc == 0) {
                return 0;
            }

            if (rc == 1) {
                hear(&message);
            }
        }

        if (instance > 1) {
            lie();
        }
    }
}
