/*
 * Sandboxes and the host as fields of the wire.  Only reads, what agents have
 * said as well.
 */

#include <stdlib.h>
#include <string.h>

#include "conn.h"
#include "control.h"
#include "sandbox.h"
#include "session.h"
#include "tell.h"


#define RUNNER_TELL_RECORD  512                  /* of a session, at most */


static void runner_tell_known(runner_sandbox_t *sandbox,
    sandbox_writer_t *w);
static size_t runner_tell_record(runner_conn_t *conn,
    const sandbox_field_t *asked, uint8_t *p);
static uint8_t *runner_tell_frames(const uint8_t *records, size_t n,
    size_t *size);


void
runner_tell_status(runner_sandbox_t *sandbox, sandbox_writer_t *w)
{
    runner_host_t          *host;
    runner_slot_t          *slot;
    runner_cgroup_usage_t   usage;

    if (sandbox == NULL) {
        sandbox_write_number(w, SANDBOX_TAG_STATE, SANDBOX_STATE_NONE);
        return;
    }

    host = &sandbox->runner->host;
    slot = &sandbox->container->slot;

    runner_tell_known(sandbox, w);

    if (sandbox->container->state == RUNNER_CONTAINER_STARTING) {

        /* it belongs to a job; there is nothing to measure yet */

        return;
    }

    memset(&usage, 0, sizeof(usage));

    if (slot->record.pid) {
        (void) runner_cgroup_usage(&host->cgroups, slot->record.number,
                                   &usage);
    }

    sandbox_write_number(w, SANDBOX_TAG_DISK_BYTES,
                         runner_slot_disk(host, slot));
    sandbox_write_number(w, SANDBOX_TAG_MEMORY_BYTES, usage.memory);
    sandbox_write_number(w, SANDBOX_TAG_CPU_TOTAL_US, usage.cpu_us);
}


/* what is known without asking the kernel */

static void
runner_tell_known(runner_sandbox_t *sandbox, sandbox_writer_t *w)
{
    runner_t         *runner;
    runner_record_t  *record;

    runner = sandbox->runner;
    record = &sandbox->container->slot.record;

    sandbox_write_number(w, SANDBOX_TAG_STATE, runner_sandbox_state(sandbox));
    sandbox_write_string(w, SANDBOX_TAG_SANDBOX_ID, sandbox->id);
    sandbox_write_number(w, SANDBOX_TAG_INSTANCE, sandbox->instance);
    sandbox_write_number(w, SANDBOX_TAG_CREATED_MS, record->created_ms);
    sandbox_write_number(w, SANDBOX_TAG_USED_MS, record->used_ms);
    sandbox_write_number(w, SANDBOX_TAG_COMMANDS,
                         record->commands + sandbox->report.commands);
    sandbox_write_number(w, SANDBOX_TAG_RUNNING, sandbox->report.running);
    sandbox_write_number(w, SANDBOX_TAG_QUEUED, sandbox->load);
    sandbox_write_number(w, SANDBOX_TAG_BACKGROUND,
                         sandbox->report.background);

    if (runner->expire_ms) {
        sandbox_write_number(w, SANDBOX_TAG_EXPIRES_MS,
                             record->used_ms + runner->expire_ms);
    }
}


void
runner_tell_host(runner_t *runner, sandbox_writer_t *w)
{
    unsigned           i, n[SANDBOX_STATE_LAST];
    runner_sandbox_t  *sandbox;

    memset(n, 0, sizeof(n));

    for (i = 0; i < RUNNER_BUCKETS; i++) {
        for (sandbox = runner->sessions[i];
             sandbox != NULL;
             sandbox = sandbox->hash_next)
        {
            n[runner_sandbox_state(sandbox)]++;
        }
    }

    sandbox_write_number(w, SANDBOX_TAG_SANDBOXES, runner->sandboxes);
    sandbox_write_number(w, SANDBOX_TAG_LIVE, n[SANDBOX_STATE_RUNNING]);
    sandbox_write_number(w, SANDBOX_TAG_CREATING, n[SANDBOX_STATE_CREATING]);
    sandbox_write_number(w, SANDBOX_TAG_FAILED, n[SANDBOX_STATE_FAILED]);
    sandbox_write_number(w, SANDBOX_TAG_POOL, runner->pool.ready);
    sandbox_write_number(w, SANDBOX_TAG_RUNNING, runner->grants.used);
    sandbox_write_number(w, SANDBOX_TAG_QUEUED, runner->queued);
    sandbox_write_number(w, SANDBOX_TAG_DRAINING, runner->draining);

    sandbox_write_number(w, SANDBOX_TAG_MAX_SANDBOXES, runner->max_live);
    sandbox_write_number(w, SANDBOX_TAG_MAX_PER_TENANT,
                         runner->max_per_tenant);
    sandbox_write_number(w, SANDBOX_TAG_MAX_RUNNING, runner->grants.total);
    sandbox_write_number(w, SANDBOX_TAG_MAX_QUEUED, runner->max_queued);
    sandbox_write_number(w, SANDBOX_TAG_IDLE_MS, runner->idle_ms);
    sandbox_write_number(w, SANDBOX_TAG_EXPIRE_MS, runner->expire_ms);
}


void
runner_tell_sessions(runner_conn_t *conn, const uint8_t *head)
{
    int               rc;
    size_t            n, size;
    uint8_t          *records, *frames;
    unsigned          asked;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    records = malloc(RUNNER_MAX_ASKED * RUNNER_TELL_RECORD);

    if (records == NULL) {
        runner_conn_refuse(conn, "at_capacity", "The runner has no memory.",
                           10);
        return;
    }

    n = 0;
    asked = 0;
    sandbox_fields_init(&fields, head, conn->preamble.head);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        if (field.tag != SANDBOX_TAG_SESSION) {
            continue;
        }

        if (field.length != SANDBOX_WIRE_SESSION_SIZE
            || ++asked > RUNNER_MAX_ASKED)
        {
            break;
        }

        n += runner_tell_record(conn, &field, records + n);
    }

    if (rc != SANDBOX_END) {
        free(records);
        runner_conn_refuse(conn, "bad_request", "the head is malformed", 0);
        return;
    }

    frames = runner_tell_frames(records, n, &size);
    free(records);

    if (frames == NULL) {
        runner_conn_refuse(conn, "at_capacity", "The runner has no memory.",
                           10);
        return;
    }

    runner_conn_send(conn, frames, size);
}


/* NULL for what there is not, or is another tenant's */

static runner_sandbox_t *
runner_tell_find(runner_conn_t *conn, const sandbox_field_t *asked)
{
    runner_sandbox_t  *sandbox;

    sandbox = runner_sandbox_find(conn->runner, asked->data);

    if (sandbox == NULL || sandbox->container == NULL
        || memcmp(sandbox->tenant->digest, conn->preamble.tenant,
                  SANDBOX_WIRE_TENANT_SIZE)
           != 0)
    {
        return NULL;
    }

    return sandbox;
}


/* the bytes of it, or none */

static size_t
runner_tell_record(runner_conn_t *conn, const sandbox_field_t *asked,
    uint8_t *p)
{
    size_t             n;
    sandbox_writer_t   w;
    runner_sandbox_t  *sandbox;

    sandbox = runner_tell_find(conn, asked);

    if (sandbox == NULL) {
        return 0;
    }

    runner_control_hear(sandbox->container);

    sandbox = runner_tell_find(conn, asked);

    if (sandbox == NULL) {
        return 0;
    }

    sandbox_writer_init(&w, p + 4, RUNNER_TELL_RECORD - 4);
    sandbox_write_bytes(&w, SANDBOX_TAG_SESSION, asked->data, asked->length);
    runner_tell_known(sandbox, &w);

    n = w.pos - w.start;
    sandbox_put32(p, n);

    return 4 + n;
}


/* HEAD, the records as DATA, an empty RESULT */

static uint8_t *
runner_tell_frames(const uint8_t *records, size_t n, size_t *size)
{
    size_t            part;
    uint8_t          *frames, *p;
    sandbox_writer_t  w;

    frames = malloc(64 + n + SANDBOX_WIRE_FRAME_SIZE
                             * (n / SANDBOX_WIRE_MAX_OUTPUT + 3));
    if (frames == NULL) {
        return NULL;
    }

    sandbox_writer_init(&w, frames + SANDBOX_WIRE_FRAME_SIZE, 64);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, 200);
    sandbox_frame_write(frames, SANDBOX_FRAME_HEAD, w.pos - w.start);

    for (p = w.pos; n; n -= part) {
        part = n < SANDBOX_WIRE_MAX_OUTPUT ? n : SANDBOX_WIRE_MAX_OUTPUT;

        sandbox_frame_write(p, SANDBOX_FRAME_DATA, part);
        memcpy(p + SANDBOX_WIRE_FRAME_SIZE, records, part);
        p += SANDBOX_WIRE_FRAME_SIZE + part;
        records += part;
    }

    sandbox_frame_write(p, SANDBOX_FRAME_RESULT, 0);
    *size = p + SANDBOX_WIRE_FRAME_SIZE - frames;

    return frames;
}
