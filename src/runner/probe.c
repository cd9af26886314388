/*
 * The start-up probe: one sandbox as any other, used by the runner itself.
 * What the host lacks shows here, with the remedy, and not at the first user.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

#include "file.h"
#include "image.h"
#include "log.h"
#include "message.h"
#include "probe.h"
#include "slot.h"
#include "words.h"


#define RUNNER_PROBE_WAIT    10000               /* ms for each answer */
#define RUNNER_PROBE_SLOT    0                   /* nobody else's number */
#define RUNNER_PROBE_FRAMES  64


static int runner_probe_runtime(runner_host_t *host, const char *name,
    runner_error_t *err);
static int runner_probe_sandbox(runner_host_t *host, runner_error_t *err);
static int runner_probe_agent(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);
static int runner_probe_ready(runner_slot_t *slot, runner_error_t *err);
static int runner_probe_claim(runner_slot_t *slot, const uint8_t *session,
    runner_error_t *err);
static int runner_probe_command(runner_slot_t *slot, const uint8_t *session,
    runner_error_t *err);
static int runner_probe_request(int fd, const uint8_t *session);
static int runner_probe_answer(int fd, runner_error_t *err);
static int runner_probe_result(const uint8_t *p, size_t size,
    runner_error_t *err);
static int runner_probe_read(int fd, uint8_t *p, size_t size);


int
runner_probe(runner_host_t *host, int verbose, runner_error_t *err)
{
    unsigned        i;
    runner_error_t  first;

    if (verbose) {
        printf("ok   cgroup: %s, memory pids cpu%s\n",
               runner_cgroup_layout_name(host->cgroups.layout),
               host->cgroups.swap ? " swap" : "");

        for (i = 0; i < host->bases.n; i++) {
            printf("ok   base: %s%s%s\n", host->bases.all[i].path,
                   host->bases.all[i].number ? ", for sandbox_base " : "",
                   host->bases.all[i].number ? host->bases.all[i].name : "");
        }

        fflush(stdout);
    }

    runner_error_init(&first);

    if (runner_probe_runtime(host, host->options->runtime
                                   ? host->options->runtime : "crun", err)
        == -1)
    {
        /* another runtime helps only if it was the runtime */

        if (host->options->runtime != NULL
            || (strcmp(err->code, "no_runtime") != 0
                && strcmp(err->code, "runtime_failed") != 0))
        {
            return -1;
        }

        first = *err;
        runner_error_init(err);

        if (runner_probe_runtime(host, "runc", err) == -1) {
            if (strcmp(first.code, "runtime_failed") == 0
                || strcmp(err->code, "no_runtime") == 0)
            {
                *err = first;
            }

            return -1;
        }

        runner_log(RUNNER_LOG_WARN, "using runc, since crun is of no use: %s",
                   first.text);
    }

    if (verbose) {
        printf("ok   user namespaces, idmapped mounts, overlay, disk image, "
               "seccomp\n"
               "ok   runtime: %s ran a command in a sandbox\n",
               host->runtime.version);
    }

    return 0;
}


int
runner_probe_again(runner_host_t *host, runner_error_t *err)
{
    return runner_probe_sandbox(host, err);
}


const char *
runner_probe_title(const runner_error_t *err)
{
    size_t  i;

    static const struct {
        const char  *code;
        const char  *title;
    } titles[] = {
        { "no_user_namespaces", "user namespaces" },
        { "no_namespaces", "namespaces" },
        { "no_mount_namespace", "mount namespace" },
        { "no_idmap", "idmapped mounts" },
        { "no_overlay", "overlay" },
        { "no_ext4", "disk image" },
        { "no_mkfs", "disk image" },
        { "no_loop", "loop devices" },
        { "disk_full", "disk" },
        { "no_cgroups", "cgroup" },
        { "no_controllers", "cgroup" },
        { "no_base", "base" },
        { "no_agent", "agent" },
        { "agent", "agent" },
        { "no_runtime", "runtime" },
        { "runtime_failed", "runtime" },
        { "no_ids", "id ranges" },
        { "no_state", "state" },
        { "state_in_use", "state" },
        { "not_root", "root" },
        { "bad_key_file", "key" },
        { "bad_option", "options" }
    };

    for (i = 0; i < sizeof(titles) / sizeof(titles[0]); i++) {
        if (strcmp(titles[i].code, err->code) == 0) {
            return titles[i].title;
        }
    }

    return "sandbox";
}


static int
runner_probe_runtime(runner_host_t *host, const char *name,
    runner_error_t *err)
{
    if (runner_runtime_find(&host->runtime, name, err) == -1) {
        return -1;
    }

    return runner_probe_sandbox(host, err);
}


static int
runner_probe_sandbox(runner_host_t *host, runner_error_t *err)
{
    int             rc;
    runner_slot_t   slot;
    runner_error_t  ignored;

    /* one that was interrupted may have left something */

    runner_slot_init(&slot);
    slot.record.number = RUNNER_PROBE_SLOT;

    runner_error_init(&ignored);
    (void) runner_slot_destroy(host, &slot, &ignored);

    runner_slot_init(&slot);
    slot.record.number = RUNNER_PROBE_SLOT;
    slot.record.memory = host->options->memory;
    slot.record.disk = host->options->disk;
    slot.record.processes = host->options->processes;

    if (runner_slot_create(host, &slot, err) == -1) {
        return -1;
    }

    rc = runner_probe_agent(host, &slot, err);

    runner_error_init(&ignored);

    if (runner_slot_destroy(host, &slot, &ignored) == -1) {
        runner_log(RUNNER_LOG_WARN, "the probe left something: %s",
                   ignored.text);
    }

    return rc;
}


static int
runner_probe_agent(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    char      words[512];
    uint8_t   session[SANDBOX_WIRE_SESSION_SIZE];

    runner_random(session, sizeof(session));

    if (runner_probe_ready(slot, err) == 0
        && runner_probe_claim(slot, session, err) == 0
        && runner_probe_command(slot, session, err) == 0)
    {
        return 0;
    }

    runner_words_read(slot->words, words, sizeof(words));

    return runner_error_context(err, "the agent said \"%s\"", words);
}


static int
runner_probe_ready(runner_slot_t *slot, runner_error_t *err)
{
    int               n;
    struct pollfd     p;
    runner_report_t   report;
    runner_message_t  message;

    p.fd = slot->control;
    p.events = POLLIN;

    do {
        n = poll(&p, 1, RUNNER_PROBE_WAIT);
    } while (n == -1 && errno == EINTR);

    if (n != 1 || runner_message_receive(slot->control, &message) != 1) {
        return runner_error(err, "agent", n == 0 ? ETIMEDOUT : errno,
                            "the agent is not ready");
    }

    runner_message_close(&message);

    if (message.type != SANDBOX_CONTROL_READY
        || runner_message_report(&message, &report) == -1
        || report.version_min > SANDBOX_WIRE_VERSION
        || report.version_max < SANDBOX_WIRE_VERSION
        || report.instance != 0)
    {
        return runner_error(err, "agent", 0, "the agent speaks another "
                            "version.  Remedy: build agent and runner "
                            "together");
    }

    return 0;
}


static int
runner_probe_claim(runner_slot_t *slot, const uint8_t *session,
    runner_error_t *err)
{
    uint8_t           b[256];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_bytes(&w, SANDBOX_TAG_SESSION, session,
                        SANDBOX_WIRE_SESSION_SIZE);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, 1);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID,
                         "sbx_00000000000000000000");
    sandbox_write_number(&w, SANDBOX_TAG_CREATED, 1);

    if (runner_message_send(slot->control, SANDBOX_CONTROL_CLAIM, 0, 0,
                            w.start, w.pos - w.start, NULL, 0) == -1)
    {
        return runner_error(err, "agent", errno, "the agent can't be claimed");
    }

    return 0;
}


static int
runner_probe_command(runner_slot_t *slot, const uint8_t *session,
    runner_error_t *err)
{
    int  ends[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends) == -1) {
        return runner_error(err, "internal", errno, "socketpair");
    }

    if (runner_probe_request(ends[0], session) == -1
        || runner_message_send(slot->control, SANDBOX_CONTROL_CONN,
                               SANDBOX_CONN_GRANTED, 1, NULL, 0, &ends[1], 1)
           == -1)
    {
        rc = runner_error(err, "agent", errno, "a connection can't be handed "
                          "over");
        close(ends[1]);

    } else {
        close(ends[1]);
        rc = runner_probe_answer(ends[0], err);
    }

    close(ends[0]);

    return rc;
}


static int
runner_probe_request(int fd, const uint8_t *session)
{
    size_t              size;
    uint8_t             b[SANDBOX_WIRE_PREAMBLE_SIZE + 256];
    sandbox_writer_t    w;
    sandbox_preamble_t  preamble;

    sandbox_writer_init(&w, b + SANDBOX_WIRE_PREAMBLE_SIZE, 256);
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND,
                         "test \"$(id -u)\" = 1000 && test -w /home/sandbox");
    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, RUNNER_PROBE_WAIT);
    sandbox_write_number(&w, SANDBOX_TAG_CPU_MS, RUNNER_PROBE_WAIT);
    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT, 4096);
    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT_TOTAL, 1024 * 1024);
    sandbox_write_number(&w, SANDBOX_TAG_OPEN_FILES, 1024);
    sandbox_write_number(&w, SANDBOX_TAG_PENDING, 1);

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_COMMAND;
    preamble.head = w.pos - w.start;
    memcpy(preamble.session, session, SANDBOX_WIRE_SESSION_SIZE);
    sandbox_preamble_write(b, &preamble);

    size = SANDBOX_WIRE_PREAMBLE_SIZE + preamble.head;

    return send(fd, b, size, MSG_NOSIGNAL) == (ssize_t) size ? 0 : -1;
}


static int
runner_probe_answer(int fd, runner_error_t *err)
{
    int              rc;
    uint8_t         *b;
    unsigned         n;
    sandbox_frame_t  frame;

    b = malloc(SANDBOX_WIRE_MAX_OUTPUT + 64);
    if (b == NULL) {
        return runner_error(err, "internal", ENOMEM, "the probe");
    }

    rc = -1;

    for (n = 0; n < RUNNER_PROBE_FRAMES; n++) {

        if (runner_probe_read(fd, b, SANDBOX_WIRE_FRAME_SIZE) == -1
            || sandbox_frame_read(b, &frame) != SANDBOX_OK
            || runner_probe_read(fd, b, frame.length) == -1)
        {
            runner_error(err, "agent", 0, "the agent does not answer");
            break;
        }

        if (frame.type == SANDBOX_FRAME_RESULT
            || frame.type == SANDBOX_FRAME_ERROR)
        {
            rc = runner_probe_result(b, frame.length, err);
            break;
        }
    }

    free(b);

    return rc;
}


static int
runner_probe_result(const uint8_t *p, size_t size, runner_error_t *err)
{
    char              code[64], detail[256];
    uint64_t          status, outcome;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    code[0] = '\0';
    detail[0] = '\0';
    status = UINT64_MAX;
    outcome = SANDBOX_OUTCOME_LAST;

    sandbox_fields_init(&fields, p, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        switch (field.tag) {

        case SANDBOX_TAG_EXIT_CODE:
            (void) sandbox_field_number(&field, UINT64_MAX, &status);
            break;

        case SANDBOX_TAG_OUTCOME:
            (void) sandbox_field_number(&field, UINT64_MAX, &outcome);
            break;

        case SANDBOX_TAG_CODE:
            snprintf(code, sizeof(code), "%.*s", (int) field.length,
                     (const char *) field.data);
            break;

        case SANDBOX_TAG_DETAIL:
            snprintf(detail, sizeof(detail), "%.*s", (int) field.length,
                     (const char *) field.data);
            break;
        }
    }

    if (status == 0 && outcome == SANDBOX_OUTCOME_EXIT) {
        return 0;
    }

    return runner_error(err, "agent", 0, "the first command in the container "
                        "failed: status %llu, outcome %s %s %s.  Remedy: is "
                        "the base complete? make base",
                        (unsigned long long) status,
                        outcome < SANDBOX_OUTCOME_LAST
                        ? sandbox_outcome_name(outcome) : "none",
                        code, detail);
}


static int
runner_probe_read(int fd, uint8_t *p, size_t size)
{
    int            n;
    size_t         have;
    ssize_t        got;
    struct pollfd  poll_;

    poll_.fd = fd;
    poll_.events = POLLIN;

    for (have = 0; have < size; have += got) {

        do {
            n = poll(&poll_, 1, RUNNER_PROBE_WAIT);
        } while (n == -1 && errno == EINTR);

        if (n != 1) {
            return -1;
        }

        got = recv(fd, p + have, size - have, MSG_DONTWAIT);

        if (got <= 0) {
            return -1;
        }
    }

    return 0;
}
