/*
 * The runner between nginx and agents, with neither: connections are socket
 * pairs, an agent is the other end of a control channel, slots are made up.
 */

/* link: src/runner/admit.c src/runner/base.c src/runner/conn.c src/runner/container.c */
/* link: src/runner/bound.c src/runner/control.c src/runner/drain.c */
/* link: src/runner/tell.c src/runner/words.c */
/* link: src/runner/error.c src/runner/file.c src/runner/grants.c */
/* link: src/runner/jobs.c src/runner/listen.c src/runner/log.c */
/* link: src/runner/loop.c */
/* link: src/runner/message.c src/runner/operation.c src/runner/peer.c */
/* link: src/runner/pool.c */
/* link: src/runner/queue.c src/runner/sandbox.c src/runner/session.c */
/* link: src/runner/version.c src/runner/child.c src/runner/egress.c */
/* link: src/runner/egress_listen.c src/runner/egress_proxy.c */
/* link: src/runner/egress_child.c src/runner/egress_fields.c */
/* link: src/runner/egress_spawn.c */
/* link: src/runner/egress_table.c src/wire/sandbox_egress.c */
/* link: src/wire/sandbox_sha256.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c -lpthread */
/* flags: -U_GNU_SOURCE */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "test.h"
#include "bound.h"
#include "conn.h"
#include "container.h"
#include "control.h"
#include "room.h"
#include "pool.h"
#include "sandbox.h"


#define MAX_AGENTS  24
#define TURNS       20000


typedef struct {
    int  control;
    int  death;
} agent_t;


/* the other ends of what the slots below opened, in that order */

static agent_t             agents[MAX_AGENTS];
static unsigned            nagents;
static runner_t            runner;
static runner_options_t    options;
static struct sockaddr_un  address;
static unsigned            wanted;       /* base of the next client */

static runner_base_t  bases[] = {
    { "default", 0, "/base" },
    { "data", 0x1001, "/data" }
};


static void start(void);
static void clean(void);
static void finish(void);
static int client(char session, uint8_t operation);
static void serve(void);
static void nothing(void *data);
static void due(runner_timer_t *timer);
static void until_agent(unsigned n);
static unsigned made(void);
static void say(unsigned agent, uint8_t type, uint32_t serial, uint16_t tag,
    uint64_t value);
static void be_ready(unsigned agent);
static unsigned heard(unsigned agent, uint32_t *serial);
static unsigned take(unsigned agent);
static void die(unsigned agent);
static int refused(int fd, const char *code);
static runner_sandbox_t *sandbox_of(char session);

static void silent(void);
static void slow(void);
static void returned(void);
static void wrong_fresh(void);
static void reset_limits(void);
static void uncounted(void);
static void claims(void);
static void based(void);
static void bounds(void);
static void in_line(void);
static void wait_for_end(runner_job_t *job);
static void forget(runner_job_t *job);
static runner_container_t *bound_agent(char session);
static void give_back(unsigned agent, int flood);


int
main(void)
{
    signal(SIGPIPE, SIG_IGN);

    start();

    silent();
    slow();
    returned();
    wrong_fresh();
    reset_limits();
    uncounted();
    claims();
    based();
    bounds();
    in_line();

    finish();

    return test_done();
}


/* the agent that takes nothing is ended, and another one gets it all */

static void
silent(void)
{
    int                  fd;
    uint32_t             serial;
    runner_container_t  *container;

    fd = client('a', SANDBOX_OPERATION_COMMAND);
    until_agent(1);
    be_ready(0);

    is_number(heard(0, &serial), SANDBOX_CONTROL_CLAIM, "whose it is");
    is_number(heard(0, &serial), SANDBOX_CONTROL_CONN, "the connection");

    container = sandbox_of('a')->container;
    ok(container->timer.index != 0, "its TAKEN has a deadline");
    is_number(runner.grants.used, 1, "it has a run slot");

    due(&container->timer);
    is_number(container->state, RUNNER_CONTAINER_READY,
              "it gets time when it is seen for the first time");

    container->slot.record.pid = getpid();
    due(&container->timer);
    is_number(container->state, RUNNER_CONTAINER_READY,
              "it gets more when it would run if it could");

    container->slot.record.pid = 0;
    due(&container->timer);
    until_agent(2);
    be_ready(1);

    is_number(heard(1, &serial), SANDBOX_CONTROL_CLAIM, "there is a new one");
    is_number(heard(1, &serial), SANDBOX_CONTROL_CONN, "and gets it");
    is_number(runner.grants.used, 1, "the slot of the first came back");

    say(1, SANDBOX_CONTROL_TAKEN, serial, 0, 0);
    is_number(container->timer.index, 0, "nothing is waited for any more");

    say(1, SANDBOX_CONTROL_DONE, 0, 0, 0);
    is_number(runner.grants.used, 0, "no run slot is in use");

    close(fd);
}


/* each TAKEN gives all of the time anew */

static void
slow(void)
{
    int                  fds[2];
    uint32_t             serial;
    runner_container_t  *container;

    container = sandbox_of('a')->container;

    fds[0] = client('a', SANDBOX_OPERATION_COMMAND);
    fds[1] = client('a', SANDBOX_OPERATION_COMMAND);
    serve();
    is_number(container->sent.n, 2, "two were handed over");

    due(&container->timer);
    is_number(heard(1, &serial), SANDBOX_CONTROL_CONN, "the first");
    say(1, SANDBOX_CONTROL_TAKEN, serial, 0, 0);
    due(&container->timer);
    is_number(container->state, RUNNER_CONTAINER_READY, "it lives");

    is_number(take(1), 1, "it takes the second");
    is_number(container->timer.index, 0, "nothing is waited for");

    say(1, SANDBOX_CONTROL_DONE, 0, 0, 0);
    close(fds[0]);
    close(fds[1]);
}


/* a command that was accepted keeps its place when its client is gone */

static void
returned(void)
{
    int                  ends[2], memfd;
    uint8_t              p[SANDBOX_WIRE_PREAMBLE_SIZE];
    runner_conn_t       *conn;
    runner_sandbox_t    *sandbox;
    sandbox_preamble_t   preamble;

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_COMMAND;
    memset(preamble.key, 'k', sizeof(preamble.key));
    sandbox_preamble_write(p, &preamble);

    memfd = memfd_create("request", MFD_CLOEXEC);

    if (write(memfd, p, sizeof(p)) != sizeof(p)
        || socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0,
                      ends) == -1)
    {
        exit(1);
    }

    sandbox = sandbox_of('a');
    conn = runner_conn_returned(&runner, ends[0], memfd);

    if (!ok(conn != NULL, "it is taken back")) {
        exit(1);
    }

    is_number(conn->preamble.key[0], 0, "the key is not kept");

    runner_conn_wait(conn, &sandbox->returned, sandbox);
    close(ends[1]);
    serve();
    is_number(sandbox->returned.n, 1, "it waits after a hang-up");

    due(&conn->timer);
    is_number(sandbox->returned.n, 1, "also when a PING is due");

    conn->deadline = 1;
    due(&conn->timer);
    is_number(sandbox->returned.n, 0, "but not for ever");
}


/* what comes after a FRESH command that was lost did not ask for it */

static void
wrong_fresh(void)
{
    int                fd;
    runner_sandbox_t  *sandbox;

    fd = client('a', SANDBOX_OPERATION_COMMAND);
    serve();

    sandbox = sandbox_of('a');
    is_number(sandbox->container->sent.n, 1, "one was handed over");

    say(1, SANDBOX_CONTROL_REPLACE, 0, 0, 0);
    until_agent(3);
    die(1);

    is_number(sandbox->waiting.n, 1, "it waits for the next one");
    is_number(sandbox->waiting.first->fresh, 0, "and is not the fresh one");

    be_ready(2);
    is_number(take(2), 1, "the next one takes it");
    say(2, SANDBOX_CONTROL_DONE, 0, 0, 0);
    close(fd);
}


/* RESET makes a container run: it asks for room, too */

static void
reset_limits(void)
{
    int                fds[2];
    unsigned           n;
    runner_sandbox_t  *sandbox;

    sandbox = sandbox_of('a');
    runner_container_end(sandbox->container, SANDBOX_OUTCOME_LOST, 0);
    die(2);

    for (n = 0; n < TURNS && sandbox->live; n++) {
        serve();
    }

    is_number(sandbox->live, 0, "it is stopped");

    runner.max_per_tenant = 1;
    fds[0] = client('b', SANDBOX_OPERATION_COMMAND);
    until_agent(4);
    be_ready(3);
    is_number(runner.live, 1, "another one of the same tenant runs");

    fds[1] = client('a', SANDBOX_OPERATION_RESET);
    serve();
    ok(refused(fds[1], "too_many_sandboxes"), "there is no room for a RESET");
    is_number(runner.live, 1, "nothing was made");

    runner.max_per_tenant = 10;
    is_number(take(3), 1, "the other one takes its request");
    say(3, SANDBOX_CONTROL_DONE, 0, 0, 0);
    close(fds[0]);
    close(fds[1]);
}


/* a command that changes no report is not counted for ever */

static void
uncounted(void)
{
    int                fds[2];
    runner_sandbox_t  *sandbox;

    sandbox = sandbox_of('b');
    is_number(runner.queued, 0, "no command waits");

    runner.grants.used = runner.grants.total;
    fds[0] = client('b', SANDBOX_OPERATION_COMMAND);
    serve();
    is_number(runner.queued, 1, "one was sent without a run slot");

    is_number(take(3), 1, "it is taken");
    is_number(runner.queued, 1, "and waits");

    runner_session_tick(&runner);
    is_number(runner.queued, 1, "for a moment");
    runner_session_tick(&runner);
    is_number(runner.queued, 0, "but not for ever");
    ok(runner_session_busy(sandbox), "its request may still come in");

    runner.loop.now += SANDBOX_WIRE_REQUEST_WAIT;
    ok(!runner_session_busy(sandbox), "not for ever, either");

    fds[1] = client('b', SANDBOX_OPERATION_COMMAND);
    serve();
    is_number(take(3), 1, "another one");
    say(3, SANDBOX_CONTROL_STATE, 0, SANDBOX_TAG_QUEUED, 1);
    is_number(runner.queued, 1, "it is counted once");
    say(3, SANDBOX_CONTROL_STATE, 0, SANDBOX_TAG_QUEUED, 0);
    is_number(runner.queued, 0, "it waits no more");
    ok(!runner_session_busy(sandbox), "the sandbox can be stopped");

    runner.grants.used = 0;
    close(fds[0]);
    close(fds[1]);
}


/* nobody has run slots that we did not give */

static void
claims(void)
{
    int  fd;

    fd = client('c', SANDBOX_OPERATION_COMMAND);
    until_agent(5);

    say(4, SANDBOX_CONTROL_READY, 0, SANDBOX_TAG_SLOTS, 1);
    until_agent(6);
    is_number(runner.grants.used, 0, "it got none, and is ended");

    be_ready(5);
    is_number(take(5), 1, "its successor works");
    close(fd);
}


/* only what makes a sandbox needs a base, and no pool has named ones */

static void
based(void)
{
    int                fd;
    runner_record_t   *record;
    runner_sandbox_t  *sandbox;

    wanted = 7;
    fd = client('d', SANDBOX_OPERATION_COMMAND);
    serve();
    ok(refused(fd, "unknown_base"), "a base that is not there");
    close(fd);

    fd = client('c', SANDBOX_OPERATION_COMMAND);
    serve();
    is_number(take(5), 1, "who has a sandbox needs none");
    say(5, SANDBOX_CONTROL_DONE, 0, 0, 0);
    close(fd);

    fd = client('c', SANDBOX_OPERATION_RESET);
    serve();
    ok(refused(fd, "unknown_base"), "but for a fresh one");
    close(fd);

    sandbox = sandbox_of('c');
    record = &sandbox->container->slot.record;
    is_string(record->base_name, "", "it is on the default");

    wanted = bases[1].number;
    fd = client('c', SANDBOX_OPERATION_COMMAND);
    serve();
    is_number(take(5), 1, "it keeps that");
    is_string(record->base_name, "", "whatever others ask for");
    say(5, SANDBOX_CONTROL_DONE, 0, 0, 0);
    close(fd);

    is_number(runner_pool_take(&runner, 64, 64, wanted) == NULL, 1,
              "the pool has none of them");

    fd = client('c', SANDBOX_OPERATION_RESET);
    until_agent(7);
    be_ready(6);
    record = &sandbox->container->slot.record;
    is_string(record->base_name, "data", "a fresh one is on the other");
    close(fd);

    /* whose name has gone from the command line */

    runner.host.bases.n = 1;
    fd = client('c', SANDBOX_OPERATION_COMMAND);
    serve();
    is_number(take(6), 1, "and goes on when its name is gone");
    say(6, SANDBOX_CONTROL_DONE, 0, 0, 0);
    close(fd);
    wanted = 0;
}


/* what an agent that is its user's creature can't take from others */

static void
bounds(void)
{
    unsigned             n, i;
    runner_container_t  *container;

    container = bound_agent('e');
    n = made() - 1;
    is_number(take(n), 1, "it takes the command");
    is_number(container->held, 1, "and has a run slot");

    runner.run_ms = 5000;
    options.run_grace = 4;
    runner.loop.now = container->held_since
                      + 5000 + 4000 + 1000;      /* a disk of 64 MiB */
    runner_bound_tick(&runner);
    runner_bound_tick(&runner);
    is_number(container->state, RUNNER_CONTAINER_READY,
              "as long as a command may run, and a grace");

    runner.loop.now++;
    runner_bound_tick(&runner);
    is_number(container->state, RUNNER_CONTAINER_READY,
              "not when it is seen for the first time");
    runner_bound_tick(&runner);
    is_number(container->state, RUNNER_CONTAINER_CLEANING,
              "then it is ended");
    is_number(runner.grants.used, 0, "and the run slot is back");
    die(n);
    serve();

    /* it says more than there is to say */

    container = bound_agent('f');
    n = made() - 1;
    is_number(take(n), 1, "another one");

    for (i = 0; i < 100; i++) {
        give_back(n, 1);
        serve();
    }

    is_number(container->paused, 1, "a flood is not read to its end");
    runner_bound_tick(&runner);
    is_number(container->paused, 0, "but in the next second");
    serve();
    is_number(container->state, RUNNER_CONTAINER_READY, "and it lives");

    for (i = 0; i < 100; i++) {
        give_back(n, 1);
        serve();
    }

    is_number(container->paused, 1, "it goes on");
    die(n);
    shutdown(agents[n].control, SHUT_RDWR);

    for (i = 0; i < TURNS && container->state == RUNNER_CONTAINER_READY; i++) {
        serve();
    }

    ok(container->state != RUNNER_CONTAINER_READY, "its end is seen");

    /* connections that are none of nginx's */

    container = bound_agent('g');
    n = made() - 1;
    is_number(take(n), 1, "a third one");
    runner.max_conns = 32;

    for (i = 0; i < 20; i++) {
        give_back(n, 0);
        serve();
    }

    is_number(container->sandbox->returned.n, 4, "few of them are kept");
    is_number(runner.returned, 4, "all are counted");
    is_number(container->sandbox->tenant->returned, 4, "for its tenant");
    runner.max_conns = 1000;
    say(n, SANDBOX_CONTROL_DONE, 0, 0, 0);

    /* a fresh sandbox for nobody, and again */

    container = bound_agent('h');
    n = made() - 1;
    say(n, SANDBOX_CONTROL_REPLACE, 0, 0, 0);
    ok(container->state != RUNNER_CONTAINER_READY,
       "who has taken nothing asks for no successor");
    die(n);
    until_agent(n + 2);
    be_ready(n + 1);
    is_number(take(n + 1), 1, "the command goes to the next one");
    say(n + 1, SANDBOX_CONTROL_DONE, 0, 0, 0);
}


/* a container that is ready for the command of a new session, which waits */

static runner_container_t *
bound_agent(char session)
{
    unsigned  n;

    n = made();
    (void) client(session, SANDBOX_OPERATION_COMMAND);
    until_agent(n + 1);
    be_ready(n);

    return sandbox_of(session)->container;
}


/* as many messages as have room; or a connection and its request */

static void
give_back(unsigned agent, int flood)
{
    int                 fds[2], pair[2];
    uint8_t             p[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    if (flood) {
        while (runner_message_send(agents[agent].control,
                                   SANDBOX_CONTROL_STATE, 0, 0, NULL, 0, NULL,
                                   0) == 0)
        {
            /* void */
        }

        return;
    }

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_COMMAND;
    sandbox_preamble_write(p, &preamble);

    fds[1] = memfd_create("request", MFD_CLOEXEC);

    if (write(fds[1], p, sizeof(p)) != sizeof(p)
        || socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1)
    {
        exit(1);
    }

    fds[0] = pair[0];
    (void) runner_message_send(agents[agent].control, SANDBOX_CONTROL_RETURN,
                               0, 0, NULL, 0, fds, 2);
    close(pair[0]);
    close(pair[1]);
    close(fds[1]);
}


/* of many that come at once each has its time when it is its turn */

static void
in_line(void)
{
    int                fd, ends[2];
    uint8_t            ping[SANDBOX_WIRE_FRAME_SIZE];
    unsigned           i, n;
    runner_job_t       jobs[sizeof(runner.jobs.threads)
                            / sizeof(runner.jobs.threads[0])];
    runner_conn_t     *conn;
    runner_sandbox_t  *sandbox;

    n = made();

    if (pipe2(ends, O_CLOEXEC) == -1) {
        exit(1);
    }

    for (i = 0; i < runner.jobs.nthreads; i++) {
        memset(&jobs[i], 0, sizeof(jobs[i]));
        jobs[i].run = wait_for_end;
        jobs[i].done = forget;
        jobs[i].data = &ends[0];
        runner_jobs_add(&runner.jobs, &jobs[i]);
    }

    fd = client('z', SANDBOX_OPERATION_COMMAND);
    serve();

    sandbox = sandbox_of('z');
    conn = sandbox->waiting.first;

    if (!ok(conn != NULL, "it waits for its sandbox")) {
        exit(1);
    }

    conn->deadline = 1;
    due(&conn->timer);
    is_number(sandbox->waiting.n, 1, "it waits longer, as others come first");
    ok(conn->deadline > runner.loop.now, "and has its time from now on");
    is_number(recv(fd, ping, sizeof(ping), MSG_DONTWAIT), sizeof(ping),
              "it has a sign of life");
    is_number(ping[4], SANDBOX_FRAME_PING, "which is a PING");

    conn->deadline = 1;
    conn->last = 1;
    due(&conn->timer);
    is_number(sandbox->waiting.n, 0, "but not for ever");
    ok(refused(fd, "sandbox_failed"), "it is told so");
    close(fd);

    close(ends[1]);
    until_agent(n + 1);
    close(ends[0]);
}


static void
wait_for_end(runner_job_t *job)
{
    char  byte;

    while (read(*(int *) job->data, &byte, 1) == -1 && errno == EINTR) {
        /* void */
    }
}


static void
forget(runner_job_t *job)
{
}


static void
start(void)
{
    runner_error_t  err;

    runner_error_init(&err);

    options.listen_fd = -1;
    options.group = (gid_t) -1;
    options.memory = 64;
    options.disk = 64;
    options.processes = 64;
    memset(options.key, 'k', sizeof(options.key));

    snprintf(address.sun_path, sizeof(address.sun_path),
             "/tmp/runner-unit.%d", (int) getpid());
    address.sun_family = AF_UNIX;
    options.socket = address.sun_path;
    atexit(clean);

    runner.options = &options;
    runner.host.bases.all = bases;
    runner.host.bases.n = 2;
    runner.max_conns = 1000;
    runner.max_live = 100;
    runner.max_per_tenant = 10;
    runner.max_queued = 100;
    runner.idle_ms = 100000;
    runner_grants_init(&runner.grants, 4);

    if (runner_loop_init(&runner.loop) == -1
        || runner_jobs_init(&runner.jobs, &runner.loop) == -1
        || runner_server_open(&runner, &err) == -1)
    {
        printf("# %s\n", err.text);
        exit(1);
    }

    runner_pool_init(&runner);
}


static void
clean(void)
{
    (void) unlink(address.sun_path);
}


static void
finish(void)
{
    unsigned             i, n;
    runner_sandbox_t    *sandbox;

    for (i = 0; i < RUNNER_BUCKETS; i++) {
        while ((sandbox = runner.sessions[i]) != NULL) {
            (void) runner_sandbox_delete(sandbox);
        }
    }

    for (i = 0; i < made(); i++) {
        die(i);
    }

    for (n = 0; n < TURNS && (runner.containers != NULL || runner.conns);
         n++)
    {
        serve();
    }

    for (i = 0; i < made(); i++) {
        close(agents[i].control);
        close(agents[i].death);
    }

    ok(runner.containers == NULL, "all containers have ended");
    is_number(runner.conns, 0, "all connections are closed");
    is_number(runner.grants.used, 0, "all run slots came back");
    is_number(runner.queued, 0, "nothing waits");

    runner_server_close(&runner);
    runner_jobs_free(&runner.jobs);
    runner_loop_free(&runner.loop);
}


/* a connection with the 128 bytes of a request sent */

static int
client(char session, uint8_t operation)
{
    int                 fd;
    uint8_t             p[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = operation;
    preamble.base = wanted;
    memcpy(preamble.key, options.key, sizeof(preamble.key));
    memset(preamble.session, session, sizeof(preamble.session));
    sandbox_preamble_write(p, &preamble);

    fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (fd == -1
        || connect(fd, (struct sockaddr *) &address, sizeof(address)) == -1
        || write(fd, p, sizeof(p)) != sizeof(p))
    {
        printf("# client: %s\n", strerror(errno));
        exit(1);
    }

    return fd;
}


/* all that can be done now is done, timers that are due included */

static void
serve(void)
{
    struct pollfd          p;
    static runner_timer_t  timer = { .handler = nothing };

    p.fd = runner.loop.epoll;
    p.events = POLLIN;

    do {
        if (runner_timer_start(&runner.loop, &timer, 0) == -1) {
            exit(1);
        }

        runner_loop_turn(&runner.loop);
    } while (poll(&p, 1, 5) == 1);
}


static void
nothing(void *data)
{
}


static void
due(runner_timer_t *timer)
{
    if (runner_timer_start(&runner.loop, timer, 0) == -1) {
        exit(1);
    }

    serve();
}


/* the agents that were made are `n`, and all jobs are done */

static void
until_agent(unsigned n)
{
    unsigned  i;

    for (i = 0; i < TURNS; i++) {
        serve();

        if (made() == n && runner.jobs.pending == 0) {
            return;
        }
    }

    printf("# %u agents, not %u\n", made(), n);
    exit(1);
}


static unsigned
made(void)
{
    return __atomic_load_n(&nagents, __ATOMIC_ACQUIRE);
}


static void
say(unsigned agent, uint8_t type, uint32_t serial, uint16_t tag,
    uint64_t value)
{
    uint8_t           b[64];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));

    if (tag) {
        sandbox_write_number(&w, tag, value);
    }

    ok(runner_message_send(agents[agent].control, type, 0, serial, b,
                           w.pos - b, NULL, 0) == 0,
       "agent %u says %u", agent, type);
    serve();
}


static void
be_ready(unsigned agent)
{
    uint8_t           b[64];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MIN, SANDBOX_WIRE_VERSION);
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MAX, SANDBOX_WIRE_VERSION);

    ok(runner_message_send(agents[agent].control, SANDBOX_CONTROL_READY, 0, 0,
                           b, w.pos - b, NULL, 0) == 0,
       "agent %u is ready", agent);
    serve();
}


/* the type of its next message; descriptors are closed.  0: there is none */

static unsigned
heard(unsigned agent, uint32_t *serial)
{
    runner_message_t  message;

    if (runner_message_receive(agents[agent].control, &message) != 1) {
        return 0;
    }

    *serial = message.serial;
    runner_message_close(&message);

    return message.type;
}


/* it takes all that it was given; how many these were */

static unsigned
take(unsigned agent)
{
    unsigned  type, n;
    uint32_t  serial;

    n = 0;

    while ((type = heard(agent, &serial)) != 0) {
        if (type == SANDBOX_CONTROL_CONN) {
            say(agent, SANDBOX_CONTROL_TAKEN, serial, 0, 0);
            n++;
        }
    }

    return n;
}


static void
die(unsigned agent)
{
    uint64_t  one;

    one = 1;
    (void) !write(agents[agent].death, &one, sizeof(one));
}


static int
refused(int fd, const char *code)
{
    ssize_t  n;
    uint8_t  b[1024];

    n = recv(fd, b, sizeof(b), MSG_DONTWAIT);

    return n > SANDBOX_WIRE_FRAME_SIZE && b[4] == SANDBOX_FRAME_ERROR
           && memmem(b, n, code, strlen(code)) != NULL;
}


static runner_sandbox_t *
sandbox_of(char session)
{
    uint8_t            key[SANDBOX_WIRE_SESSION_SIZE];
    runner_sandbox_t  *sandbox;

    memset(key, session, sizeof(key));
    sandbox = runner_sandbox_find(&runner, key);

    if (sandbox == NULL) {
        printf("# there is no sandbox\n");
        exit(1);
    }

    return sandbox;
}


/* slots, as the runner sees them; on threads of its own */

void
runner_slot_init(runner_slot_t *slot)
{
    memset(slot, 0, sizeof(*slot));
    slot->pidfd = -1;
    slot->control = -1;
}


int
runner_room_denied(runner_host_t *host, runner_error_t *err)
{
    return 0;
}


int
runner_slot_create(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    int       ends[2];
    unsigned  n;

    n = made();

    if (n == MAX_AGENTS
        || socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC, 0,
                      ends) == -1)
    {
        return runner_error(err, "internal", errno, "no agent");
    }

    slot->record.pid = 1;
    slot->pidfd = eventfd(0, EFD_CLOEXEC);
    slot->control = ends[0];
    agents[n].control = ends[1];
    agents[n].death = dup(slot->pidfd);

    __atomic_store_n(&nagents, n + 1, __ATOMIC_RELEASE);

    return 0;
}


int
runner_slot_start(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    return runner_slot_create(host, slot, err);
}


int
runner_slot_history(const runner_slot_t *slot)
{
    return -1;
}


int
runner_slot_history_stopped(runner_host_t *host, const runner_slot_t *slot)
{
    return -1;
}


int
runner_slot_stop(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    if (slot->control != -1) {
        close(slot->control);
        close(slot->pidfd);
    }

    slot->record.pid = 0;
    slot->control = -1;
    slot->pidfd = -1;

    return 0;
}


int
runner_slot_destroy(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    return runner_slot_stop(host, slot, err);
}


int
runner_slot_adopt(runner_host_t *host, runner_slot_t *slot)
{
    return -1;
}


int
runner_slot_save(runner_host_t *host, const runner_slot_t *slot, int sync)
{
    return 0;
}


uint64_t
runner_slot_disk(runner_host_t *host, const runner_slot_t *slot)
{
    return 0;
}


void
runner_slot_processes(const runner_slot_t *slot)
{
    (void) slot;
}


int
runner_cgroup_limit(runner_cgroups_t *cgroups, uint32_t number,
    uint32_t memory, uint32_t processes)
{
    return 0;
}


int
runner_cgroup_usage(runner_cgroups_t *cgroups, uint32_t number,
    runner_cgroup_usage_t *usage)
{
    return 0;
}
