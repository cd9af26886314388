/*
 * Latency of the live path as ratios against the floor of the same run: each
 * round takes one sample of every row, so that noise hits all alike.  Knows
 * the HTTP interface and the wire protocol, not how either is served.
 *
 *   bench URL TOKEN SOCKET KEY ROOTFS FLOOR ROUNDS NEW JSON
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandbox_wire.h"


#define MAX_SAMPLES  5000
#define COMMAND      "true"


enum {
    ROW_FLOOR, ROW_RUNNER, ROW_NGINX, ROW_HEALTH, ROW_NEW_RUNNER, ROW_NEW,
    ROW_LAST
};


typedef struct {
    const char  *name;
    double       ms[MAX_SAMPLES];
    int          n;
} row_t;


static row_t  rows[ROW_LAST] = {
    { .name = "floor: posix_spawn bash -c true" },
    { .name = "live command, runner's socket" },
    { .name = "live command, nginx keep-alive" },
    { .name = "nginx alone (health)" },
    { .name = "first command, new sandbox, socket" },
    { .name = "first command, new conversation, nginx" },
};


static int       http_fd, floor_in, floor_out;
static char     *base_url, *token, *socket_path, *prefix;
static uint8_t   key[SANDBOX_WIRE_KEY_SIZE];


static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *format, ...)
{
    va_list  args;

    va_start(args, format);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}


static double
now_ms(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_MONOTONIC, &t);

    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}


static void
http_connect(char *url)
{
    int                 port, one;
    struct sockaddr_in  sin;

    /* http://127.0.0.1:PORT/PREFIX, as `make run` writes it */

    prefix = strchr(url + 7, '/');
    if (sscanf(url, "http://127.0.0.1:%d/", &port) != 1 || prefix == NULL) {
        die("unexpected URL %s", url);
    }

    one = 1;
    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons(port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    http_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (http_fd == -1
        || connect(http_fd, (struct sockaddr *) &sin, sizeof(sin)) == -1)
    {
        die("can't connect to %s: %s", url, strerror(errno));
    }

    setsockopt(http_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}


/* one request over the kept connection; the whole answer must say `expect` */

static double
http_call(const char *method, const char *path, const char *body,
    const char *expect)
{
    int      n, size;
    char    *end, *p, buf[65536];
    double   start;

    size = snprintf(buf, sizeof(buf),
                    "%s %s/%s HTTP/1.1\r\nHost: bench\r\n"
                    "Authorization: Bearer %s\r\n"
                    "Content-Type: application/json\r\n"
                    "Content-Length: %zu\r\n\r\n%s",
                    method, prefix, path, token, strlen(body), body);

    start = now_ms();

    if (send(http_fd, buf, size, MSG_NOSIGNAL) != size) {
        die("send: %s", strerror(errno));
    }

    for (size = 0; /* void */ ; size += n) {
        n = recv(http_fd, buf + size, sizeof(buf) - 1 - size, 0);
        if (n <= 0) {
            die("the gateway closed the connection");
        }

        buf[size + n] = '\0';

        end = strstr(buf, "\r\n\r\n");
        if (end == NULL) {
            continue;
        }

        p = strcasestr(buf, "content-length:");
        if (p == NULL || p > end) {
            if (strncmp(buf + 9, "204", 3) == 0) {
                return now_ms() - start;
            }
            die("no content-length: %.200s", buf);
        }

        if (size + n >= end + 4 - buf + atoi(p + 15)) {
            break;
        }
    }

    start = now_ms() - start;

    if (strstr(end, expect) == NULL) {
        die("%s %s: %s", method, path, buf);
    }

    /* nginx ends a connection after keepalive_requests */

    if (strcasestr(buf, "connection: close") != NULL) {
        close(http_fd);
        http_connect(base_url);
    }

    return start;
}


static void
wire_read(int fd, uint8_t *p, size_t size)
{
    ssize_t  n;

    while (size) {
        n = recv(fd, p, size, 0);
        if (n <= 0) {
            die("the runner closed the connection");
        }
        p += n;
        size -= n;
    }
}


static double
wire_call(const uint8_t *session, uint8_t operation)
{
    int                  fd;
    double               start;
    uint8_t              buf[SANDBOX_WIRE_PREAMBLE_SIZE + 256];
    uint8_t              payload[SANDBOX_WIRE_MAX_OUTPUT + 8];
    struct sockaddr_un   sun;
    sandbox_frame_t      frame;
    sandbox_writer_t     w;
    sandbox_preamble_t   preamble;

    memset(&sun, 0, sizeof(sun));
    sun.sun_family = AF_UNIX;
    snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", socket_path);

    sandbox_writer_init(&w, buf + SANDBOX_WIRE_PREAMBLE_SIZE, 256);

    if (operation == SANDBOX_OPERATION_COMMAND) {
        sandbox_write_string(&w, SANDBOX_TAG_COMMAND, COMMAND);
    }

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = operation;
    preamble.head = w.pos - w.start;
    memcpy(preamble.key, key, sizeof(key));
    memcpy(preamble.session, session, SANDBOX_WIRE_SESSION_SIZE);
    sandbox_preamble_write(buf, &preamble);

    start = now_ms();

    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || connect(fd, (struct sockaddr *) &sun, sizeof(sun)) == -1) {
        die("can't connect to %s: %s", socket_path, strerror(errno));
    }

    if (send(fd, buf, w.pos - buf, MSG_NOSIGNAL) != w.pos - buf) {
        die("send: %s", strerror(errno));
    }

    do {
        wire_read(fd, payload, SANDBOX_WIRE_FRAME_SIZE);

        if (sandbox_frame_read(payload, &frame) != SANDBOX_OK) {
            die("a bad frame from the agent");
        }

        wire_read(fd, payload, frame.length);

        if (frame.type == SANDBOX_FRAME_ERROR) {
            die("ERROR from runner or agent: %.*s", (int) frame.length,
                payload);
        }

    } while (frame.type != SANDBOX_FRAME_RESULT);

    start = now_ms() - start;
    close(fd);

    return start;
}


static void
floor_start(char *program, char *rootfs)
{
    int                          in[2], out[2];
    pid_t                        pid;
    char                        *argv[] = { program, rootfs, COMMAND, NULL };
    posix_spawn_file_actions_t   actions;

    if (pipe(in) == -1 || pipe(out) == -1) {
        die("pipe: %s", strerror(errno));
    }

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    posix_spawn_file_actions_addclose(&actions, out[0]);

    if (posix_spawn(&pid, program, &actions, NULL, argv, environ) != 0) {
        die("can't start %s", program);
    }

    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    floor_in = in[1];
    floor_out = out[0];
}


static double
floor_call(void)
{
    uint64_t  ns;

    if (write(floor_in, "x", 1) != 1
        || read(floor_out, &ns, sizeof(ns)) != sizeof(ns))
    {
        die("the floor ended");
    }

    return ns / 1e6;
}


static void
sample(int row, double ms)
{
    if (rows[row].n < MAX_SAMPLES) {
        rows[row].ms[rows[row].n++] = ms;
    }
}


static int
compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return x < y ? -1 : x > y;
}


static double
percentile(row_t *row, double q)
{
    int  i;

    i = (int) (row->n * q);

    return row->ms[i < row->n ? i : row->n - 1];
}


static void
report(const char *path)
{
    int      i;
    FILE    *f;
    double   floor;

    for (i = 0; i < ROW_LAST; i++) {
        qsort(rows[i].ms, rows[i].n, sizeof(double), compare);
    }

    f = fopen(path, "we");
    if (f == NULL) {
        die("can't write %s: %s", path, strerror(errno));
    }

    floor = percentile(&rows[ROW_FLOOR], 0.5);
    fprintf(f, "{\"unit\":\"ms\",\"rows\":[");
    printf("%-42s %5s %9s %9s %9s\n", "", "n", "median", "p95", "x floor");

    for (i = 0; i < ROW_LAST; i++) {
        if (rows[i].n == 0) {
            continue;
        }

        printf("%-42s %5d %9.3f %9.3f %9.2f\n", rows[i].name, rows[i].n,
               percentile(&rows[i], 0.5), percentile(&rows[i], 0.95),
               percentile(&rows[i], 0.5) / floor);
        fprintf(f, "%s\n{\"name\":\"%s\",\"n\":%d,\"median\":%.4f,"
                "\"p95\":%.4f,\"ratio\":%.3f}", i ? "," : "", rows[i].name,
                rows[i].n, percentile(&rows[i], 0.5),
                percentile(&rows[i], 0.95),
                percentile(&rows[i], 0.5) / floor);
    }

    fprintf(f, "\n]}\n");
    fclose(f);
}


static void
read_key(const char *path)
{
    int       i;
    FILE     *f;
    unsigned  byte;

    f = fopen(path, "re");

    for (i = 0; f != NULL && i < SANDBOX_WIRE_KEY_SIZE; i++) {
        if (fscanf(f, "%2x", &byte) != 1) {
            die("%s is not a runner key", path);
        }
        key[i] = (uint8_t) byte;
    }

    if (f == NULL) {
        die("can't read %s", path);
    }

    fclose(f);
}


int
main(int argc, char **argv)
{
    int                i, rounds, fresh;
    char               path[256];
    uint8_t            session[SANDBOX_WIRE_SESSION_SIZE];
    struct timespec    pause;
    static const char  body[] = "{\"command\":\"" COMMAND "\"}";

    if (argc != 10) {
        fprintf(stderr, "usage: bench URL TOKEN SOCKET KEY ROOTFS FLOOR "
                "ROUNDS NEW JSON\n");
        return 2;
    }

    token = argv[2];
    socket_path = argv[3];
    read_key(argv[4]);
    rounds = atoi(argv[7]);
    fresh = atoi(argv[8]);

    base_url = argv[1];
    http_connect(base_url);
    floor_start(argv[6], argv[5]);

    if (getrandom(session, sizeof(session), 0) != sizeof(session)) {
        die("getrandom: %s", strerror(errno));
    }

    /* 20 rounds to warm up, not counted */

    for (i = -20; i < rounds; i++) {
        double  ms[4];

        ms[0] = floor_call();
        ms[1] = wire_call(session, SANDBOX_OPERATION_COMMAND);
        ms[2] = http_call("POST", "v1/conversations/bench/commands", body,
                          "\"exitCode\":0");
        ms[3] = http_call("GET", "health", "", "ready");

        if (i >= 0) {
            sample(ROW_FLOOR, ms[0]);
            sample(ROW_RUNNER, ms[1]);
            sample(ROW_NGINX, ms[2]);
            sample(ROW_HEALTH, ms[3]);
        }
    }

    wire_call(session, SANDBOX_OPERATION_DELETE);

    /* new conversations, one at a time, with time for the pool to refill */

    pause.tv_sec = 0;
    pause.tv_nsec = 150 * 1000000;

    for (i = 0; i < fresh; i++) {
        nanosleep(&pause, NULL);
        snprintf(path, sizeof(path), "v1/conversations/bench-%d/commands", i);
        sample(ROW_FLOOR, floor_call());
        sample(ROW_NEW, http_call("POST", path, body, "\"exitCode\":0"));

        snprintf(path, sizeof(path), "v1/conversations/bench-%d", i);
        http_call("DELETE", path, "", "");

        if (getrandom(session, sizeof(session), 0) != sizeof(session)) {
            die("getrandom: %s", strerror(errno));
        }

        nanosleep(&pause, NULL);
        sample(ROW_FLOOR, floor_call());
        sample(ROW_NEW_RUNNER, wire_call(session, SANDBOX_OPERATION_COMMAND));
        wire_call(session, SANDBOX_OPERATION_DELETE);
    }

    report(argv[9]);

    return 0;
}
