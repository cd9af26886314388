/*
 * Policies of sandboxes: each connection that is handed over brings one along,
 * and the sandbox has it from then on.
 *
 * Knows no hosts; the proxy does.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

#include "conn.h"
#include "container.h"
#include "control.h"
#include "egress_core.h"
#include "sandbox.h"


#define RUNNER_EGRESS_HELD    5000               /* ms, for the table */
#define RUNNER_EGRESS_MISSED  60000


static int runner_egress_known(runner_egress_t *egress, uint32_t id);
static int runner_egress_hold(runner_egress_t *egress, runner_conn_t *conn);
static void runner_egress_held(void *data);
static void runner_egress_set(runner_container_t *container, uint32_t id);
static int runner_egress_ca(runner_egress_t *egress,
    const sandbox_egress_policy_t *policy);
static void runner_egress_body(runner_conn_t *conn);


static runner_log_limit_t  runner_egress_log;


int
runner_egress_start(runner_t *runner, runner_error_t *err)
{
    runner_egress_t  *egress;

    egress = calloc(1, sizeof(*egress));
    if (egress == NULL) {
        return runner_error(err, "internal", errno, "egress");
    }

    egress->runner = runner;
    runner_egress_proxy_init(egress);
    egress->held.data = egress;
    egress->held.handler = runner_egress_held;

    runner->egress = egress;
    runner_egress_load(egress);

    return 0;
}


void
runner_egress_end(runner_t *runner)
{
    if (runner->egress != NULL) {
        runner_timer_stop(&runner->loop, &runner->egress->held);
        runner_egress_child_end(&runner->egress->child);
    }
}


int
runner_egress_conn(runner_container_t *container, runner_conn_t *conn)
{
    uint32_t           id;
    runner_egress_t   *egress;
    runner_sandbox_t  *sandbox;

    sandbox = container->sandbox;
    egress = container->runner->egress;

    /* what an agent gave back could say anything */

    if (conn->memfd == -1) {
        id = conn->preamble.egress;

        if (id && !runner_egress_known(egress, id)
            && runner_egress_hold(egress, conn))
        {
            return RUNNER_CONTROL_HELD;
        }

        sandbox->egress = id;
    }

    id = sandbox->egress;

    if (id != container->slot.record.egress) {
        runner_egress_set(container, id);
    }

    if (id && !container->egress_open) {
        runner_egress_open(container);
    }

    return container->egress_tell || container->egress_told != id
           ? runner_egress_tell(container) : RUNNER_CONTROL_OK;
}


int
runner_egress_tell(runner_container_t *container)
{
    int                       rc, fd;
    uint8_t                   b[SANDBOX_WIRE_MAX_INDEX + 64];
    uint32_t                  id;
    runner_egress_t          *egress;
    sandbox_writer_t          w;
    sandbox_egress_policy_t   policy;

    if (!runner_container_usable(container) || !container->claimed) {
        return RUNNER_CONTROL_OK;
    }

    fd = -1;
    id = container->slot.record.egress;
    egress = container->runner->egress;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_EGRESS_ID, id);

    if (id && egress->table != NULL
        && sandbox_egress_find(egress->table, egress->table_size, id, &policy))
    {
        if (policy.index != NULL) {
            sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_INDEX, policy.index,
                                policy.index_length);
        }

        if (policy.ca != NULL) {
            fd = runner_egress_ca(egress, &policy);
        }
    }

    rc = runner_control_egress(container, &w, fd);

    if (rc == RUNNER_CONTROL_OK) {
        container->egress_told = id;
        container->egress_tell = 0;

    } else {
        container->egress_tell = 1;
    }

    return rc;
}


/* its certificates, as one file for all agents that it is sent to */

static int
runner_egress_ca(runner_egress_t *egress,
    const sandbox_egress_policy_t *policy)
{
    int       fd;
    unsigned  i;

    for (i = 0; i < egress->nca; i++) {
        if (egress->ca_id[i] == policy->id) {
            return egress->ca_fd[i];
        }
    }

    fd = runner_egress_memfd(policy->ca, policy->ca_length);

    if (fd == -1) {
        if (runner_log_allowed(&runner_egress_log)) {
            runner_log(RUNNER_LOG_WARN, "no memory for the certificates of "
                       "egress policy \"%.*s\"", (int) policy->name_length,
                       (const char *) policy->name);
        }

        return -1;
    }

    egress->ca_id[egress->nca] = policy->id;
    egress->ca_fd[egress->nca++] = fd;

    return fd;
}


static int
runner_egress_known(runner_egress_t *egress, uint32_t id)
{
    sandbox_egress_policy_t  policy;

    return egress->table != NULL
           && sandbox_egress_find(egress->table, egress->table_size, id,
                                  &policy);
}


/* 1: nginx has a policy that we don't know yet: its table is on the way */

static int
runner_egress_hold(runner_egress_t *egress, runner_conn_t *conn)
{
    runner_loop_t  *loop;

    loop = &egress->runner->loop;

    if (conn->held_until == 0) {
        conn->held_until = loop->now + RUNNER_EGRESS_HELD;
    }

    if (loop->now >= conn->held_until) {
        egress->missed = conn->preamble.egress;
        egress->missed_until = loop->now + RUNNER_EGRESS_MISSED;
        return 0;
    }

    if (egress->missed == conn->preamble.egress
        && loop->now < egress->missed_until)
    {
        return 0;
    }

    return egress->held.index != 0
           || runner_timer_start(loop, &egress->held,
                                 conn->held_until - loop->now) == 0;
}


/* no table came: those that waited long enough go on without */

static void
runner_egress_held(void *data)
{
    runner_t          *runner;
    runner_sandbox_t  *sandbox, *next;

    runner = ((runner_egress_t *) data)->runner;

    for (sandbox = runner->used_first; sandbox != NULL; sandbox = next) {
        next = sandbox->used_next;

        if (sandbox->waiting.n && sandbox->container != NULL) {
            (void) runner_sandbox_flush(sandbox);
        }
    }
}


static void
runner_egress_set(runner_container_t *container, uint32_t id)
{
    runner_t  *runner;

    runner = container->runner;
    container->slot.record.egress = id;

    /* for who takes it over, so that what runs in it keeps its policy */

    if (runner_slot_save(&runner->host, &container->slot, 0) == -1
        && runner_log_allowed(&runner_egress_log))
    {
        runner_log(RUNNER_LOG_WARN, "the record of slot %u can't be written: "
                   "%s", container->slot.record.number, strerror(errno));
    }

    if (container->egress_open) {
        runner_egress_send_policy(runner->egress, container);
    }
}


void
runner_egress_open(runner_container_t *container)
{
    int               fd;
    runner_t         *runner;
    runner_egress_t  *egress;

    runner = container->runner;
    egress = runner->egress;

    /*
     * A proxy that can't be started serves nobody: refused at once is better
     * than to wait.  If it ever is ready all listeners are made.
     */

    if (egress->child.channel.fd == -1 && egress->child.restart.index != 0
        && egress->child.attempts >= RUNNER_EGRESS_ATTEMPTS)
    {
        return;
    }

    fd = runner_egress_listen(container->slot.pidfd);

    if (fd == -1) {
        if (runner_log_allowed(&runner_egress_log)) {
            runner_log(RUNNER_LOG_WARN, "sandbox %s gets no network: its port "
                       "%u can't be listened on: %s",
                       container->slot.record.id, SANDBOX_EGRESS_PORT,
                       errno == EADDRINUSE ? "something in it has it"
                                           : strerror(errno));
        }

        return;
    }

    container->egress_fd = fd;
    container->egress_open = 1;

    if (egress->child.channel.fd == -1) {

        /* it is told of all when it starts */

        runner_egress_proxy(egress);
        return;
    }

    runner_egress_send_open(egress, container);
}


void
runner_egress_ready(runner_container_t *container)
{
    runner_sandbox_t  *sandbox;

    sandbox = container->sandbox;

    /* never claimed: nothing is in it that could have a policy */

    if (sandbox == NULL || !container->claimed) {
        container->slot.record.egress = 0;
        return;
    }

    sandbox->egress = container->slot.record.egress;

    /* what its agent was told by the runner before us is not known */

    container->egress_tell = 1;

    if (sandbox->egress) {
        runner_egress_open(container);
    }
}


void
runner_egress_closed(runner_container_t *container)
{
    /* a proxy that is lost by this closes all that are open: not this one */

    if (container->egress_open) {
        container->egress_open = 0;
        close(container->egress_fd);
        runner_egress_send_close(container->runner->egress, container);
    }

    container->egress_told = 0;
    container->egress_tell = 0;
}


void
runner_egress_operation(runner_conn_t *conn)
{
    runner_egress_t  *egress;

    egress = conn->runner->egress;

    if (conn->preamble.body > SANDBOX_WIRE_MAX_TABLE
        || conn->preamble.head > RUNNER_MAX_HEAD
        || (conn->preamble.flags & SANDBOX_FLAG_FRESH))
    {
        runner_conn_refuse(conn, "bad_request", "a table of egress policies "
                           "has at most 4 MiB and a short head", 0);
        return;
    }

    if (egress->upload != NULL) {
        runner_conn_refuse(conn, "at_capacity", "Another table of egress "
                           "policies is being read.", 1);
        return;
    }

    conn->out_size = SANDBOX_WIRE_PREAMBLE_SIZE + conn->preamble.head
                     + conn->preamble.body;
    conn->out_sent = 0;
    conn->out = malloc(conn->out_size);

    if (conn->out == NULL) {
        runner_conn_refuse(conn, "at_capacity", "The runner has no memory.",
                           10);
        return;
    }

    egress->upload = conn;
    conn->state = RUNNER_CONN_BODY;
    runner_egress_read(conn);
}


void
runner_egress_read(runner_conn_t *conn)
{
    ssize_t  n;

    while (conn->out_sent < conn->out_size) {
        n = recv(conn->event.fd, conn->out + conn->out_sent,
                 conn->out_size - conn->out_sent, MSG_DONTWAIT);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1 && errno == EAGAIN) {
            return;
        }

        if (n <= 0) {
            runner_conn_close(conn);
            return;
        }

        conn->out_sent += n;
    }

    runner_timer_stop(&conn->runner->loop, &conn->timer);
    runner_egress_body(conn);
}


void
runner_egress_left(runner_conn_t *conn)
{
    if (conn->runner->egress != NULL && conn->runner->egress->upload == conn) {
        conn->runner->egress->upload = NULL;
    }
}


/* all of it is there: in force as a whole, or refused as a whole */

static void
runner_egress_body(runner_conn_t *conn)
{
    size_t            size;
    uint8_t          *head, *body, *table, b[64];
    uint8_t           digest[SANDBOX_WIRE_DIGEST_SIZE];
    runner_egress_t  *egress;
    sandbox_writer_t  w;

    egress = conn->runner->egress;
    runner_egress_left(conn);

    head = conn->out + SANDBOX_WIRE_PREAMBLE_SIZE;
    body = head + conn->preamble.head;
    size = conn->preamble.body;

    if (runner_egress_table(head, conn->preamble.head, body, size, digest)
        == -1)
    {
        runner_conn_refuse(conn, "bad_request", "the table of egress policies "
                           "is malformed", 0);
        return;
    }

    table = malloc(size + 1);

    if (table == NULL) {
        runner_conn_refuse(conn, "at_capacity", "The runner has no memory.",
                           10);
        return;
    }

    memcpy(table, body, size);

    runner_egress_taken(digest, egress->table ? egress->digest : NULL, size);
    runner_egress_take(egress, table, size, digest);
    runner_egress_keep(egress);

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_DIGEST, digest,
                        sizeof(digest));

    runner_conn_answer(conn, &w);
}


void
runner_egress_fields(runner_t *runner, sandbox_writer_t *w)
{
    runner_egress_t  *egress;

    egress = runner->egress;

    runner_egress_write(egress->child.counts, egress->digest, egress->table,
                        egress->table_size, w);
}
