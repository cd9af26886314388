/*
 * One wire operation of the runner: connect, ask, read frames until RESULT or
 * ERROR.  Knows no HTTP.
 */

#include "ctl.h"
#include "host.h"
#include "measure.h"
#include "sandbox_record.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/un.h>


#define CTL_HOST_HEAD     256
#define CTL_HOST_FRAMES   100000                 /* PINGs of a long wait */
#define CTL_HOST_STATE    "run"


static int ctl_host_find(const ctl_host_options_t *options,
    const char *state, int quiet, char *path, size_t size, uint8_t *key);
static int ctl_host_key(const char *name, int quiet, uint8_t *key);
static int ctl_host_connect(const char *path, int quiet);
static int ctl_host_read(int fd, void *data, size_t size, unsigned wait);
static int ctl_host_answer(int fd, unsigned wait, ctl_host_t *host);
static void ctl_host_result(ctl_host_t *host, const uint8_t *p, size_t size);
static void ctl_host_egress(ctl_egress_t *egress,
    const sandbox_field_t *field);
static void ctl_host_engine(ctl_engine_t *engine,
    const sandbox_field_t *field);
static int ctl_host_error(const uint8_t *p, size_t size);
static void ctl_host_print_egress(const ctl_egress_t *egress);
static void ctl_host_text(char *text, size_t size,
    const sandbox_field_t *field);


int
ctl_host_call(const ctl_host_options_t *options, const char *state,
    uint8_t operation, const sandbox_writer_t *head, unsigned wait,
    int quiet, ctl_host_t *host)
{
    int                 fd, rc;
    char                path[sizeof(((struct sockaddr_un *) 0)->sun_path)];
    size_t              size;
    uint8_t             b[SANDBOX_WIRE_PREAMBLE_SIZE + CTL_HOST_HEAD];
    sandbox_preamble_t  preamble;

    memset(host, 0, sizeof(*host));
    memset(&preamble, 0, sizeof(preamble));

    size = head != NULL ? (size_t) (head->pos - head->start) : 0;

    if (size > CTL_HOST_HEAD
        || ctl_host_find(options, state, quiet, path, sizeof(path),
                         preamble.key)
           == -1)
    {
        return -1;
    }

    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = operation;
    preamble.head = (uint32_t) size;

    sandbox_preamble_write(b, &preamble);

    if (size) {
        memcpy(b + SANDBOX_WIRE_PREAMBLE_SIZE, head->start, size);
    }

    fd = ctl_host_connect(path, quiet);

    if (fd == -1) {
        return -1;
    }

    size += SANDBOX_WIRE_PREAMBLE_SIZE;

    if (send(fd, b, size, MSG_NOSIGNAL) != (ssize_t) size) {
        rc = ctl_fault("the runner at %s takes nothing: %s", path,
                       strerror(errno));

    } else {
        rc = ctl_host_answer(fd, wait, host);
    }

    close(fd);

    return rc;
}


/* as given; of a state directory that was given, or is here; the system's */

static int
ctl_host_find(const ctl_host_options_t *options, const char *state,
    int quiet, char *path, size_t size, uint8_t *key)
{
    char         name[4096];
    size_t       n;
    uint8_t     *text;
    const char  *socket, *file;

    socket = ctl_value(&options->socket, NULL);
    file = ctl_value(&options->key, NULL);
    text = NULL;

    snprintf(name, sizeof(name), "%s/socket", state ? state : CTL_HOST_STATE);

    if (socket == NULL && (state != NULL || access(name, R_OK) == 0)) {

        if (quiet && access(name, R_OK) == -1) {
            return -1;
        }

        if (ctl_file_read(name, size, &text, &n) == -1) {
            return -1;
        }

        socket = strtok((char *) text, "\r\n");
        snprintf(name, sizeof(name), "%s/runner.key",
                 state ? state : CTL_HOST_STATE);
        file = file ? file : name;
    }

    socket = socket ? socket : CTL_HOST_SOCKET;
    file = file ? file : CTL_HOST_KEY;

    n = strlen(socket);

    if (n >= size) {
        free(text);
        return ctl_fault("the path of the runner's socket is too long");
    }

    memcpy(path, socket, n + 1);
    free(text);

    return ctl_host_key(file, quiet, key);
}


static int
ctl_host_key(const char *name, int quiet, uint8_t *key)
{
    size_t    i, size;
    uint8_t  *text;
    unsigned  byte;

    if (quiet && access(name, R_OK) == -1) {
        return -1;
    }

    if (ctl_file_read(name, 1024, &text, &size) == -1) {
        return -1;
    }

    while (size && isspace(text[size - 1])) {
        size--;
    }

    for (i = 0; i < SANDBOX_WIRE_KEY_SIZE; i++) {
        if (size != 2 * SANDBOX_WIRE_KEY_SIZE
            || !isxdigit(text[2 * i]) || !isxdigit(text[2 * i + 1])
            || sscanf((char *) text + 2 * i, "%2x", &byte) != 1)
        {
            break;
        }

        key[i] = (uint8_t) byte;
    }

    explicit_bzero(text, size);
    free(text);

    return i == SANDBOX_WIRE_KEY_SIZE
           ? 0 : ctl_fault("%s has no 64 hexadecimal digits", name);
}


static int
ctl_host_connect(const char *path, int quiet)
{
    int                 fd, error;
    struct sockaddr_un  address;

    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path);

    fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (fd != -1
        && connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0)
    {
        return fd;
    }

    error = errno;

    if (fd != -1) {
        close(fd);
    }

    if (!quiet) {
        ctl_fault("no runner answers at %s: %s", path, strerror(error));
    }

    return -1;
}


static int
ctl_host_read(int fd, void *data, size_t size, unsigned wait)
{
    size_t         have;
    ssize_t        n;
    struct pollfd  p;

    p.fd = fd;
    p.events = POLLIN;

    for (have = 0; have < size; have += n) {

        if (poll(&p, 1, (int) wait * 1000) != 1) {
            return ctl_fault("the runner has said nothing for %u s", wait);
        }

        n = recv(fd, (uint8_t *) data + have, size - have, 0);

        if (n <= 0) {
            return ctl_fault("the runner closed the connection");
        }
    }

    return 0;
}


static int
ctl_host_answer(int fd, unsigned wait, ctl_host_t *host)
{
    int              i;
    uint8_t          start[SANDBOX_WIRE_FRAME_SIZE];
    sandbox_frame_t  frame;
    static uint8_t   payload[SANDBOX_WIRE_MAX_RESULT];

    for (i = 0; i < CTL_HOST_FRAMES; i++) {

        if (ctl_host_read(fd, start, sizeof(start), wait) == -1) {
            return -1;
        }

        if (sandbox_frame_read(start, &frame) != SANDBOX_OK
            || frame.length > sizeof(payload))
        {
            break;
        }

        if (ctl_host_read(fd, payload, frame.length, wait) == -1) {
            return -1;
        }

        switch (frame.type) {

        case SANDBOX_FRAME_PING:
        case SANDBOX_FRAME_HEAD:
            continue;

        case SANDBOX_FRAME_RESULT:
            ctl_host_result(host, payload, frame.length);
            return 0;

        case SANDBOX_FRAME_ERROR:
            return ctl_host_error(payload, frame.length);
        }

        break;
    }

    return ctl_fault("the runner's answer can't be understood");
}


static void
ctl_host_result(ctl_host_t *host, const uint8_t *p, size_t size)
{
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, p, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag == SANDBOX_TAG_RUNTIME) {
            ctl_host_text(host->runtime, sizeof(host->runtime), &field);

        } else if (field.tag == SANDBOX_TAG_VERSION) {
            ctl_host_text(host->version, sizeof(host->version), &field);

        } else if (field.tag == SANDBOX_TAG_EGRESS_COUNT
                   && host->negress < SANDBOX_WIRE_MAX_POLICIES)
        {
            ctl_host_egress(&host->egress[host->negress++], &field);

        } else if (field.tag == SANDBOX_TAG_ENGINE
                   && host->nengines < CTL_HOST_ENGINES)
        {
            ctl_host_engine(&host->engines[host->nengines++], &field);

        } else if (field.tag < SANDBOX_TAG_FILE_NAME) {
            (void) sandbox_field_number(&field, UINT64_MAX,
                                        &host->number[field.tag]);
        }
    }
}


static void
ctl_host_egress(ctl_egress_t *egress, const sandbox_field_t *field)
{
    sandbox_field_t   part;
    sandbox_fields_t  parts;

    sandbox_fields_init(&parts, field->data, field->length);

    while (sandbox_fields_next(&parts, &part) == SANDBOX_OK) {

        if (part.tag == SANDBOX_TAG_EGRESS_ID) {
            (void) sandbox_field_number(&part, UINT32_MAX, &egress->id);

        } else if (part.tag == SANDBOX_TAG_EGRESS_NAME
                   && sandbox_command_id_valid(part.data, part.length))
        {
            ctl_host_text(egress->name, sizeof(egress->name), &part);

        } else if (part.tag >= SANDBOX_TAG_EGRESS_OPEN
                   && part.tag <= SANDBOX_TAG_EGRESS_DOWN)
        {
            (void) sandbox_field_number(&part, UINT64_MAX,
                      &egress->number[part.tag - SANDBOX_TAG_EGRESS_OPEN]);
        }
    }
}


static void
ctl_host_engine(ctl_engine_t *engine, const sandbox_field_t *field)
{
    sandbox_engine_t  told;

    /* one that nginx would not take for ready is not shown as such */

    (void) sandbox_record_engine(&told, field->data, field->length);

    ctl_host_text(engine->name, sizeof(engine->name), &told.name);
    ctl_host_text(engine->detail, sizeof(engine->detail), &told.detail);
    engine->ready = told.ready;
}


static int
ctl_host_error(const uint8_t *p, size_t size)
{
    char              code[64], detail[512];
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    code[0] = '\0';
    detail[0] = '\0';

    sandbox_fields_init(&fields, p, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag == SANDBOX_TAG_CODE) {
            ctl_host_text(code, sizeof(code), &field);

        } else if (field.tag == SANDBOX_TAG_DETAIL) {
            ctl_host_text(detail, sizeof(detail), &field);
        }
    }

    return ctl_fault("the runner refuses: %s (%s)", detail, code);
}


static void
ctl_host_text(char *text, size_t size, const sandbox_field_t *field)
{
    size_t  n;

    n = field->length < size - 1 ? field->length : size - 1;

    if (n) {
        memcpy(text, field->data, n);
    }

    text[n] = '\0';
}


void
ctl_host_print(const ctl_host_t *host)
{
    unsigned         i;
    uint64_t         none, n;
    const uint64_t  *number;

    for (i = 0; i < host->nengines; i++) {
        printf("%-28s %s%s%s\n", host->engines[i].name,
               host->engines[i].ready ? "ready" : "not ready",
               host->engines[i].detail[0] ? ": " : "",
               host->engines[i].detail);
    }

    /* who holds sessions of engines makes no sandboxes */

    if (host->nengines) {
        return;
    }

    number = host->number;
    none = number[SANDBOX_TAG_SANDBOXES];
    n = number[SANDBOX_TAG_LIVE] + number[SANDBOX_TAG_CREATING]
        + number[SANDBOX_TAG_FAILED];
    none = none > n ? none - n : 0;

    printf("%-28s %s%s\n", "host.runtime", host->runtime,
           number[SANDBOX_TAG_DRAINING] ? ", draining" : "");
    printf("%-28s %llu running, %llu idle, %llu creating, %llu failed\n",
           "host.sandboxes",
           (unsigned long long) number[SANDBOX_TAG_LIVE],
           (unsigned long long) none,
           (unsigned long long) number[SANDBOX_TAG_CREATING],
           (unsigned long long) number[SANDBOX_TAG_FAILED]);
    printf("%-28s %llu ready\n", "host.pool",
           (unsigned long long) number[SANDBOX_TAG_POOL]);
    printf("%-28s %llu of %llu running, %llu of %llu queued\n",
           "host.commands",
           (unsigned long long) number[SANDBOX_TAG_RUNNING],
           (unsigned long long) number[SANDBOX_TAG_MAX_RUNNING],
           (unsigned long long) number[SANDBOX_TAG_QUEUED],
           (unsigned long long) number[SANDBOX_TAG_MAX_QUEUED]);
    printf("%-28s %llu sandboxes, %llu a tenant\n", "host.most",
           (unsigned long long) number[SANDBOX_TAG_MAX_SANDBOXES],
           (unsigned long long) number[SANDBOX_TAG_MAX_PER_TENANT]);
    printf("%-28s %llu s", "host.idle",
           (unsigned long long) number[SANDBOX_TAG_IDLE_MS] / 1000);

    if (number[SANDBOX_TAG_EXPIRE_MS]) {
        printf(", removed after %llu s",
               (unsigned long long) number[SANDBOX_TAG_EXPIRE_MS] / 1000);
    }

    putchar('\n');

    for (i = 0; i < host->negress; i++) {
        ctl_host_print_egress(&host->egress[i]);
    }
}


static void
ctl_host_print_egress(const ctl_egress_t *egress)
{
    char             name[sizeof("host.egress.") + sizeof(egress->name)];
    char             up[CTL_MEASURE_TEXT], down[CTL_MEASURE_TEXT];
    const uint64_t  *number;

    if (egress->name[0] != '\0') {
        snprintf(name, sizeof(name), "host.egress.%s", egress->name);

    } else {
        snprintf(name, sizeof(name), "host.egress.%08llx",
                 (unsigned long long) egress->id);
    }

    number = egress->number;

    printf("%-28s %llu open, %llu opened, %llu refused, %llu failed, %s sent, "
           "%s received\n", name, (unsigned long long) number[0],
           (unsigned long long) number[1], (unsigned long long) number[2],
           (unsigned long long) number[3], ctl_size_text(up, number[4]),
           ctl_size_text(down, number[5]));
}
