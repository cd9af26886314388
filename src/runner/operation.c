/*
 * The runner's own operations: their heads in, their results out.
 * Knows sandboxes by the functions of sandbox.h only.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "bound.h"
#include "conn.h"
#include "container.h"
#include "control.h"
#include "drain.h"
#include "egress.h"
#include "operation.h"
#include "sandbox.h"
#include "tell.h"


#define RUNNER_RESULT_SIZE  2048
#define RUNNER_LIMITS_QUIET 60000                /* ms between two lines */


static void runner_operation_run(runner_conn_t *conn, const uint8_t *head);
static void runner_operation_ping(runner_conn_t *conn, const uint8_t *head);
static int runner_operation_limits(runner_t *runner, const uint8_t *head,
    size_t size);
static int runner_operation_find(runner_conn_t *conn,
    runner_sandbox_t **sandbox);
static void runner_operation_status(runner_conn_t *conn);
static void runner_operation_delete(runner_conn_t *conn);
static void runner_operation_reset(runner_conn_t *conn);
static void runner_operation_drain(runner_conn_t *conn, const uint8_t *head);


static uint64_t  runner_operation_logged;        /* ms, monotonic; 0: never */


void
runner_operation_start(runner_conn_t *conn)
{
    sandbox_preamble_t  *preamble;

    preamble = &conn->preamble;

    if (preamble->operation < SANDBOX_OPERATION_PING
        || preamble->operation > SANDBOX_OPERATION_EGRESS)
    {
        runner_conn_refuse(conn, "bad_request", "there is no such operation",
                           0);
        return;
    }

    if (preamble->operation == SANDBOX_OPERATION_EGRESS) {
        runner_egress_operation(conn);
        return;
    }

    if (preamble->body != 0
        || preamble->head > (preamble->operation == SANDBOX_OPERATION_SESSIONS
                             ? RUNNER_MAX_SESSIONS : RUNNER_MAX_HEAD)
        || (preamble->flags & SANDBOX_FLAG_FRESH))
    {
        runner_conn_refuse(conn, "bad_request", "the operation takes no body, "
                           "no flag \"fresh\" and a short head", 0);
        return;
    }

    conn->state = RUNNER_CONN_HEAD;
    runner_operation_read(conn);
}


void
runner_operation_read(runner_conn_t *conn)
{
    size_t          size;
    ssize_t         n;
    static uint8_t  b[SANDBOX_WIRE_PREAMBLE_SIZE + RUNNER_MAX_SESSIONS];

    size = SANDBOX_WIRE_PREAMBLE_SIZE + conn->preamble.head;

    do {
        n = recv(conn->event.fd, b, size, MSG_PEEK|MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    if (n == 0 || (n == -1 && errno != EAGAIN)) {
        runner_conn_close(conn);
        return;
    }

    if (n != (ssize_t) size) {
        return;
    }

    (void) !recv(conn->event.fd, b, size, MSG_DONTWAIT);

    runner_timer_stop(&conn->runner->loop, &conn->timer);
    runner_operation_run(conn, b + SANDBOX_WIRE_PREAMBLE_SIZE);
}


static void
runner_operation_run(runner_conn_t *conn, const uint8_t *head)
{
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    switch (conn->preamble.operation) {

    case SANDBOX_OPERATION_PING:
        runner_operation_ping(conn, head);
        return;

    case SANDBOX_OPERATION_SESSIONS:
        runner_tell_sessions(conn, head);
        return;

    case SANDBOX_OPERATION_DRAIN:
        runner_operation_drain(conn, head);
        return;
    }

    /* the others have no fields of their own, but what is there must be one */

    sandbox_fields_init(&fields, head, conn->preamble.head);

    for ( ;; ) {
        switch (sandbox_fields_next(&fields, &field)) {

        case SANDBOX_OK:
            continue;

        case SANDBOX_END:
            break;

        default:
            runner_conn_refuse(conn, "bad_request", "the head is malformed",
                               0);
            return;
        }

        break;
    }

    switch (conn->preamble.operation) {

    case SANDBOX_OPERATION_STATUS:
        runner_operation_status(conn);
        return;

    case SANDBOX_OPERATION_DELETE:
        runner_operation_delete(conn);
        return;

    default:
        runner_operation_reset(conn);
        return;
    }
}


static void
runner_operation_ping(runner_conn_t *conn, const uint8_t *head)
{
    uint8_t           b[SANDBOX_WIRE_MAX_RESULT];
    runner_t         *runner;
    sandbox_writer_t  w;

    runner = conn->runner;

    if (runner_operation_limits(runner, head, conn->preamble.head) == -1) {
        runner_conn_refuse(conn, "bad_request", "the head is malformed", 0);
        return;
    }

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_READY, !runner->draining);

    if (runner->draining) {
        sandbox_write_string(&w, SANDBOX_TAG_DETAIL, "the sandboxes of this "
                             "host are being stopped by \"sandboxctl "
                             "drain\"");
    }

    sandbox_write_string(&w, SANDBOX_TAG_VERSION, RUNNER_VERSION);
    sandbox_write_string(&w, SANDBOX_TAG_RUNTIME,
                         runner->host.runtime.version);
    sandbox_write_number(&w, SANDBOX_TAG_HARD_CAPS,
                         SANDBOX_CAP_MEMORY|SANDBOX_CAP_PROCESSES
                         |SANDBOX_CAP_CPU|SANDBOX_CAP_DISK
                         |SANDBOX_CAP_NETWORK);
    runner_tell_host(runner, &w);
    runner_egress_fields(runner, &w);

    runner_conn_answer(conn, &w);
}


/*
 * All of it is checked before any of it counts.  What a zone does not name is
 * as the runner was started; who names nothing only asks.
 */

static int
runner_operation_limits(runner_t *runner, const uint8_t *head, size_t size)
{
    int               rc, changed;
    uint64_t          live, tenant, running, queued, idle, expire, wall, *value;
    uint64_t          min, max;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    if (size == 0) {
        return 0;
    }

    live = runner->options->sandboxes;
    tenant = runner->options->per_tenant;
    running = runner->options->running;
    queued = runner->options->queue;
    idle = (uint64_t) runner->options->idle * 1000;
    expire = (uint64_t) runner->options->expire * 1000;
    wall = SANDBOX_WIRE_MAX_TIME;

    sandbox_fields_init(&fields, head, size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {
        min = 1;
        max = 100000;

        switch (field.tag) {

        case SANDBOX_TAG_MAX_SANDBOXES:
            value = &live;
            break;

        case SANDBOX_TAG_MAX_PER_TENANT:
            value = &tenant;
            break;

        case SANDBOX_TAG_MAX_RUNNING:
            value = &running;
            break;

        case SANDBOX_TAG_MAX_QUEUED:
            value = &queued;
            min = 0;
            max = 1000000;
            break;

        case SANDBOX_TAG_IDLE_MS:
            value = &idle;
            min = 500;
            max = (uint64_t) 365 * 86400 * 1000;
            break;

        case SANDBOX_TAG_EXPIRE_MS:
            value = &expire;
            min = 0;
            max = (uint64_t) 3650 * 86400 * 1000;
            break;

        case SANDBOX_TAG_WALL_MS:
            value = &wall;
            max = SANDBOX_WIRE_MAX_TIME;
            break;

        default:
            continue;
        }

        if (sandbox_field_number(&field, max, value) != SANDBOX_OK
            || *value < min)
        {
            return -1;
        }
    }

    if (rc != SANDBOX_END) {
        return -1;
    }

    /* there are no more id ranges and loop devices than for these */

    if (live > RUNNER_MAX_SANDBOXES) {
        live = RUNNER_MAX_SANDBOXES;
    }

    /* of two zones that do not agree each changes them every few seconds */

    changed = live != runner->max_live || tenant != runner->max_per_tenant
              || running != runner->grants.total
              || queued != runner->max_queued || idle != runner->idle_ms
              || expire != runner->expire_ms;

    if (changed
        && (runner_operation_logged == 0
            || runner->loop.now - runner_operation_logged
               >= RUNNER_LIMITS_QUIET))
    {
        runner_operation_logged = runner->loop.now;

        runner_log(RUNNER_LOG_NOTICE, "limits are now those of nginx: %u "
                   "sandboxes, %u a tenant, %u commands run, %u wait, idle "
                   "after %u s, removed after %u s (0: never).  If this comes "
                   "again and again, zones do not agree", (unsigned) live,
                   (unsigned) tenant, (unsigned) running, (unsigned) queued,
                   (unsigned) (idle / 1000), (unsigned) (expire / 1000));
    }

    runner->max_live = live;
    runner->max_per_tenant = tenant;
    runner->grants.total = running;
    runner->max_queued = queued;
    runner->idle_ms = idle;
    runner->expire_ms = expire;

    runner_bound_told(runner, wall);

    runner_sandbox_grant(runner);

    return 0;
}


/* the session's sandbox, NULL if there is none.  -1: conn is refused */

static int
runner_operation_find(runner_conn_t *conn, runner_sandbox_t **sandbox)
{
    uint64_t  instance;

    instance = conn->preamble.instance;
    *sandbox = runner_sandbox_find(conn->runner, conn->preamble.session);

    if (instance && (*sandbox == NULL || (*sandbox)->instance != instance)) {
        runner_conn_refuse(conn, "gone", "This instance of the sandbox is "
                           "gone.", 0);
        return -1;
    }

    return 0;
}


static void
runner_operation_status(runner_conn_t *conn)
{
    uint8_t            b[RUNNER_RESULT_SIZE];
    sandbox_writer_t   w;
    runner_sandbox_t  *sandbox;

    sandbox = runner_sandbox_find(conn->runner, conn->preamble.session);

    if (sandbox != NULL && sandbox->container != NULL) {
        runner_control_hear(sandbox->container);
    }

    if (runner_operation_find(conn, &sandbox) == -1) {
        return;
    }

    sandbox_writer_init(&w, b, sizeof(b));
    runner_tell_status(sandbox, &w);

    runner_conn_answer(conn, &w);
}


static void
runner_operation_drain(runner_conn_t *conn, const uint8_t *head)
{
    int               rc;
    uint64_t          wait, draining;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    if (!runner_conn_root(conn)) {
        runner_conn_refuse(conn, "unauthorized_peer", "only root may do that",
                           0);
        return;
    }

    wait = 0;
    draining = 1;
    sandbox_fields_init(&fields, head, conn->preamble.head);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        if ((field.tag == SANDBOX_TAG_WALL_MS
             && sandbox_field_number(&field, SANDBOX_WIRE_MAX_TIME, &wait)
                != SANDBOX_OK)
            || (field.tag == SANDBOX_TAG_DRAINING
                && sandbox_field_number(&field, 1, &draining) != SANDBOX_OK))
        {
            break;
        }
    }

    if (rc != SANDBOX_END) {
        runner_conn_refuse(conn, "bad_request", "the head is malformed", 0);
        return;
    }

    if (draining) {
        runner_drain(conn, wait);
        return;
    }

    runner_queue_append(&conn->runner->drains, conn);
    runner_drain_end(conn->runner);
}


static void
runner_operation_delete(runner_conn_t *conn)
{
    uint8_t              b[64];
    sandbox_writer_t     w;
    runner_sandbox_t    *sandbox;
    runner_container_t  *container;

    if (runner_operation_find(conn, &sandbox) == -1) {
        return;
    }

    conn->before = runner_sandbox_state(sandbox);

    container = sandbox ? runner_sandbox_delete(sandbox)
                        : runner_container_dying(conn->runner,
                                                 conn->preamble.session);

    if (container != NULL) {
        runner_conn_wait(conn, &container->gone, NULL);
        return;
    }

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_STATE, SANDBOX_STATE_NONE);

    runner_conn_answer(conn, &w);
}


void
runner_operation_delete_done(runner_container_t *container, int failed)
{
    uint8_t            b[64];
    runner_conn_t     *conn;
    sandbox_writer_t   w;

    while ((conn = container->gone.first) != NULL) {

        runner_queue_remove(conn);

        if (failed) {
            runner_conn_refuse(conn, "internal", "Not all of the sandbox "
                               "could be removed; see the runner's log.", 0);
            continue;
        }

        sandbox_writer_init(&w, b, sizeof(b));
        sandbox_write_number(&w, SANDBOX_TAG_STATE, conn->before);

        runner_conn_answer(conn, &w);
    }
}


static void
runner_operation_reset(runner_conn_t *conn)
{
    runner_sandbox_t  *sandbox;

    if (runner_operation_find(conn, &sandbox) == -1) {
        return;
    }

    runner_sandbox_reset(conn, sandbox);
}


void
runner_operation_reset_done(runner_sandbox_t *sandbox)
{
    uint8_t            b[256];
    runner_conn_t     *conn;
    sandbox_writer_t   w;

    while ((conn = sandbox->resets.first) != NULL) {

        runner_queue_remove(conn);

        sandbox_writer_init(&w, b, sizeof(b));
        sandbox_write_number(&w, SANDBOX_TAG_STATE, SANDBOX_STATE_RUNNING);
        sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, sandbox->id);
        sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, sandbox->instance);

        runner_conn_answer(conn, &w);
    }
}
