/*
 * The control channel, with this file as the runner: nothing that either
 * side has handed over gets lost, whichever ends at whatever moment.
 */

/* link: src/agent/agent_control.c src/agent/agent_control_read.c */
/* link: src/agent/agent_connection.c */
/* link: src/agent/agent_receive.c src/agent/agent_events.c */
/* link: src/agent/agent_open.c src/agent/agent_egress.c */
/* link: src/agent/agent_sandbox.c src/agent/agent_caps_take.c src/agent/agent_event.c */
/* link: src/wire/sandbox_utf8.c */
/* link: src/agent/agent_log.c src/wire/sandbox_wire.c src/wire/sandbox_sha256.c */

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"
#include "agent_file.h"
#include "agent_stage.h"
#include "sandbox_control.h"
#include "test.h"


static void replaced(void);
static void refused(void);
static void killed(void);
static void states(void);
static void deaf(void);
static void memory(void);
static void begin(void);
static void turn(void);
static void nothing(agent_timer_t *timer);
static int receive(void);
static uint64_t number(uint16_t tag);
static int hand_over(uint32_t serial);
static const char *refusal(int client);


static int                 listener;
static int                 runner = -1;
static struct sockaddr_un  address;
static socklen_t           address_size;
static uint8_t             message[SANDBOX_CONTROL_MAX];
static ssize_t             message_size;
static char                code[64];
static agent_timer_t       clock_timer;


int
main(void)
{
    agent_event_init();
    clock_timer.handler = nothing;

    listener = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK, 0);
    address.sun_family = AF_UNIX;
    ok(bind(listener, (struct sockaddr *) &address, sizeof(sa_family_t)) == 0
       && listen(listener, 8) == 0, "a socket to listen on");
    address_size = sizeof(address);
    getsockname(listener, (struct sockaddr *) &address, &address_size);

    agent_control_init(listener);

    replaced();
    refused();
    killed();
    states();
    deaf();
    memory();

    return test_done();
}


/* The runner may end between RETURN and what it does about REPLACE. */

static void
replaced(void)
{
    begin();
    is_number(receive(), SANDBOX_CONTROL_READY, "READY is the first");
    is_number(receive(), 0, "and all, before there was a claim");

    agent.replaced = 1;
    begin();
    is_number(receive(), SANDBOX_CONTROL_READY, "the next runner is told");
    is_number(receive(), SANDBOX_CONTROL_REPLACE, "REPLACE once more");
    is_number(receive(), 0, "and nothing else");
    agent.replaced = 0;
}


/* What there is no room for is no longer the runner's, and is answered. */

static void
refused(void)
{
    int      client;
    uint8_t  frame[512];
    ssize_t  n;

    begin();
    is_number(receive(), SANDBOX_CONTROL_READY, "READY");
    agent.connections = AGENT_MAX_CONNECTIONS;

    client = hand_over(7);
    turn();
    is_number(receive(), SANDBOX_CONTROL_TAKEN, "a refused one is taken");
    is_number(sandbox_get32(message + 4), 7, "that one");

    n = recv(client, frame, sizeof(frame), MSG_DONTWAIT);
    ok(n > SANDBOX_WIRE_FRAME_SIZE && frame[4] == SANDBOX_FRAME_ERROR,
       "its client has an ERROR");
    is_number(recv(client, frame, sizeof(frame), MSG_DONTWAIT), 0,
              "and the end");
    is_number(agent.connections, AGENT_MAX_CONNECTIONS, "it is not kept");

    close(client);
    agent.connections = 0;
}


/* Who was handed over by a runner that dies then is not lost. */

static void
killed(void)
{
    int  i, clients[3];

    /* READY and STATE are unread there, which makes the end a reset */

    begin();
    clients[0] = hand_over(1);
    clients[1] = hand_over(2);
    close(runner);
    runner = -1;
    turn();
    is_number(agent.connections, 2, "both are here");
    ok(!agent_control_connected(), "and the runner's end was seen");

    /* the same while messages of the agent wait for room */

    begin();
    for (i = 0; i < 1000; i++) {
        agent_control_want();
    }

    clients[2] = hand_over(3);
    close(runner);
    runner = -1;
    turn();
    is_number(agent.connections, 3, "the third one, too");
    ok(!agent_control_connected(), "and the end");

    for (i = 0; i < 3; i++) {
        close(clients[i]);
    }

    turn();
    is_number(agent.connections, 0, "they leave");
}


/* STATE: at once where the runner must not believe that it is idle. */

static void
states(void)
{
    begin();
    agent.claimed = 1;
    agent_control_state();
    is_number(receive(), SANDBOX_CONTROL_READY, "READY");
    is_number(receive(), SANDBOX_CONTROL_STATE, "STATE of an idle one");

    agent.queued = 1;
    agent_control_state();
    is_number(receive(), 0, "one that is busy may come later");

    agent.queued = 0;
    agent.left = 1;
    agent_control_state();
    is_number(receive(), SANDBOX_CONTROL_STATE, "what is left comes at once");
    is_number(number(SANDBOX_TAG_BACKGROUND), 1, "with its number");

    agent.left = 2;
    agent_control_state();
    is_number(receive(), 0, "more of it is no news");

    agent.left = 0;
    agent_control_state();
    is_number(receive(), SANDBOX_CONTROL_STATE, "that it is idle is");
    is_number(number(SANDBOX_TAG_BACKGROUND), 0, "with its number");

    agent.claimed = 0;
}


/* A runner that does not read: bounded, and nothing is lost in silence. */

static void
deaf(void)
{
    int       i, type, client, done, state;
    uint64_t  commands;

    begin();
    agent.claimed = 1;

    for (i = 0; i < 3000; i++) {
        agent.commands++;
        agent_control_state();
    }

    turn();
    ok(agent_control_connected(), "states alone do not fill it");

    commands = 0;
    state = 0;

    for (i = 0; i < 3000; i++) {
        type = receive();

        if (type == 0) {
            turn();
            type = receive();
        }

        if (type != SANDBOX_CONTROL_STATE && type != SANDBOX_CONTROL_READY) {
            break;
        }

        if (type == SANDBOX_CONTROL_STATE) {
            commands = number(SANDBOX_TAG_COMMANDS);
            state++;
        }
    }

    is_number(type, 0, "only states came");
    is_number(commands, agent.commands, "the last one is the present one");
    ok(state < 3000, "not each of them");
    agent.claimed = 0;

    /* DONE can't be left out */

    begin();
    client = hand_over(4);
    agent_control_done(3000);
    turn();
    ok(!agent_control_connected(), "it is given up when there is no room");
    is_number(agent.connections, 0, "who was not taken is left to others");

    done = 0;

    while ((type = receive()) > 0) {
        done += type == SANDBOX_CONTROL_DONE;
    }

    is_number(type, -1, "the runner sees the end");
    ok(done > 0 && done < 3000, "after what was sent before");

    agent.slots = 2;
    begin();
    is_number(receive(), SANDBOX_CONTROL_READY, "the next one is told");
    is_number(number(SANDBOX_TAG_SLOTS), 2, "how many slots are held");
    agent.slots = 0;
    close(client);
}


/* A request that would fill the sandbox's memory is refused, not begun. */

static void
memory(void)
{
    int                 i, client;
    uint8_t             data[SANDBOX_WIRE_MAX_CHUNK];
    sandbox_writer_t    w;
    sandbox_preamble_t  preamble;

    memset(data, 0, SANDBOX_CONTROL_SIZE);
    data[0] = SANDBOX_CONTROL_CLAIM;
    sandbox_writer_init(&w, data + SANDBOX_CONTROL_SIZE, 256);
    sandbox_write_bytes(&w, SANDBOX_TAG_SESSION, data + 128,
                        SANDBOX_WIRE_SESSION_SIZE);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, 1);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, "sbx_");
    sandbox_write_number(&w, SANDBOX_TAG_MEMORY_BYTES, 64 * 1024 * 1024);

    begin();
    send(runner, data, w.pos - data, 0);
    turn();
    is_number(agent.request_limit, 16 * 1024 * 1024, "a quarter of it");

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_COMMAND;
    memcpy(preamble.session, agent.session, sizeof(agent.session));

    client = hand_over(5);
    preamble.body = 10 * 1024 * 1024;
    sandbox_preamble_write(data, &preamble);
    send(client, data, SANDBOX_WIRE_PREAMBLE_SIZE, MSG_NOSIGNAL);
    turn();
    is_string(refusal(client), "", "a body that has room is read");
    close(client);

    client = hand_over(6);
    preamble.body = 17 * 1024 * 1024;
    sandbox_preamble_write(data, &preamble);
    send(client, data, SANDBOX_WIRE_PREAMBLE_SIZE, MSG_NOSIGNAL);
    turn();
    is_string(refusal(client), "command_too_large", "a longer one is not");
    close(client);

    agent.request_limit = 2 * 1024 * 1024;
    client = hand_over(7);
    preamble.body = SANDBOX_WIRE_BODY_CHUNKED;
    sandbox_preamble_write(data, &preamble);
    send(client, data, SANDBOX_WIRE_PREAMBLE_SIZE, MSG_NOSIGNAL);

    for (i = 0; i < 40 && refusal(client)[0] == '\0'; i++) {
        sandbox_put32(data, 100 * 1024);
        memset(data + SANDBOX_WIRE_CHUNK_SIZE, 'x', 100 * 1024);
        send(client, data, SANDBOX_WIRE_CHUNK_SIZE + 100 * 1024,
             MSG_NOSIGNAL|MSG_DONTWAIT);
        turn();
    }

    ok(i > 15 && i < 22, "as much as there is room for");
    is_string(code, "command_too_large", "then a chunked one is refused");
    close(client);
    turn();

    is_number(agent.request_bytes, 0, "all room is given back");
    agent.request_limit = AGENT_MAX_REQUESTS;
}


/* A new runner connects. */

static void
begin(void)
{
    struct timeval  wait;

    if (runner != -1) {
        close(runner);
    }

    wait.tv_sec = 10;
    wait.tv_usec = 0;
    runner = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    setsockopt(runner, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    ok(connect(runner, (struct sockaddr *) &address, address_size) == 0,
       "a runner connects");
    turn();
}


/* The agent does all that there is to do. */

static void
turn(void)
{
    int  i;

    for (i = 0; i < 8; i++) {
        agent_timer_set(&clock_timer, 1);
        agent_event_round();
    }
}


static void
nothing(agent_timer_t *timer)
{
}


/* The type of the next message to the runner; 0: there is none, -1: end. */

static int
receive(void)
{
    message_size = recv(runner, message, sizeof(message), MSG_DONTWAIT);

    if (message_size == 0) {
        return -1;
    }

    return message_size < SANDBOX_CONTROL_SIZE ? 0 : message[0];
}


/* A number of the last message; -1: it has none. */

static uint64_t
number(uint16_t tag)
{
    uint64_t          value;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, message + SANDBOX_CONTROL_SIZE,
                        message_size - SANDBOX_CONTROL_SIZE);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if (field.tag == tag
            && sandbox_field_number(&field, UINT64_MAX, &value) == SANDBOX_OK)
        {
            return value;
        }
    }

    return UINT64_MAX;
}


/* CODE of the ERROR that a client has got; "": none yet. */

static const char *
refusal(int client)
{
    ssize_t           n;
    uint8_t           frame[512];
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    code[0] = '\0';
    n = recv(client, frame, sizeof(frame), MSG_DONTWAIT);

    if (n <= SANDBOX_WIRE_FRAME_SIZE) {
        return code;
    }

    sandbox_fields_init(&fields, frame + SANDBOX_WIRE_FRAME_SIZE,
                        n - SANDBOX_WIRE_FRAME_SIZE);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if (field.tag == SANDBOX_TAG_CODE && field.length < sizeof(code)) {
            memcpy(code, field.data, field.length);
            code[field.length] = '\0';
        }
    }

    return code;
}


/* CONN with a new connection; the client's end of it. */

static int
hand_over(uint32_t serial)
{
    int              fds[2];
    uint8_t          data[SANDBOX_CONTROL_SIZE];
    struct iovec     iov;
    struct msghdr    m;
    struct cmsghdr  *h;

    union {
        struct cmsghdr  align;
        char            space[CMSG_SPACE(sizeof(int))];
    } control;

    socketpair(AF_UNIX, SOCK_STREAM, 0, fds);

    memset(data, 0, sizeof(data));
    data[0] = SANDBOX_CONTROL_CONN;
    sandbox_put32(data + 4, serial);

    memset(&m, 0, sizeof(m));
    iov.iov_base = data;
    iov.iov_len = sizeof(data);
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = control.space;
    m.msg_controllen = sizeof(control.space);

    memset(&control, 0, sizeof(control));
    h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fds[0], sizeof(int));

    ok(sendmsg(runner, &m, MSG_NOSIGNAL) == sizeof(data), "CONN %u", serial);
    close(fds[0]);

    return fds[1];
}


/* --- the others ---------------------------------------------------------- */

void
agent_environment_network(int on, const char *index, const char *ca)
{
    (void) on;
    (void) index;
    (void) ca;
}


void
agent_operation_enter(agent_connection_t *c)
{
}


void
agent_operation_cancel(agent_command_t *command)
{
}


void
agent_stdin_read(agent_connection_t *c)
{
}


void
agent_stdin_tick(agent_connection_t *c)
{
}


void
agent_stdin_lost(agent_connection_t *c)
{
}


int
agent_stage_begin(agent_connection_t *c)
{
    return 0;
}


void
agent_stage_receive(agent_connection_t *c)
{
}


int
agent_stage_work(agent_connection_t *c)
{
    return 0;
}


void
agent_stage_free(agent_stage_t *stage)
{
}


void
agent_file_lost(agent_connection_t *c)
{
}


void
agent_file_event(agent_connection_t *c)
{
}


void
agent_file_tick(agent_connection_t *c)
{
}


size_t
agent_answer_result(const agent_answer_t *answer, uint64_t *seq)
{
    return answer->size;
}


unsigned
agent_background_processes(void)
{
    return agent.background;
}


void
agent_queue_process(void)
{
}


void
agent_queue_lost(agent_connection_t *c)
{
}


void
agent_history_load(int before)
{
}


void
agent_queue_stop(unsigned outcome)
{
}


unsigned
agent_left_processes(void)
{
    return agent.left;
}


void
agent_answer_release(agent_answer_t *answer)
{
}
