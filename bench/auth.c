/*
 * What authorisation costs: worker CPU per request, of the module and of
 * plain proxy_pass, in blocks that take turns, on one backend that gives
 * canned answers.  Knows the wire protocol and HTTP, not the module.
 *
 *   auth backend WIRE-SOCKET HTTP-SOCKET
 *   auth tokens ALGORITHM KEY-FILE COUNT > FILE
 *   auth run PORT WORKER-PID REQUESTS BLOCK JSON NAME=PATH:TOKENS...
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include "sandbox_wire.h"


#define MAX_ROWS      8
#define MAX_TOKENS    20000
#define MAX_TOKEN     4096
#define MAX_REQUEST   8192
#define RESULT        "{\"state\":\"none\"}"


typedef struct {
    const char  *name;
    const char  *path;
    char       **tokens;
    int          ntokens;
    int          next;
    int          n;
    double       cpu_ns;
    double       wall_ns;
} row_t;


static row_t  rows[MAX_ROWS];
static int    nrows, http_fd;


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


static int
listen_at(const char *path)
{
    int                 fd;
    struct sockaddr_un  sun;

    memset(&sun, 0, sizeof(sun));
    sun.sun_family = AF_UNIX;

    if (strlen(path) >= sizeof(sun.sun_path)) {
        die("the path is too long: %s", path);
    }

    strcpy(sun.sun_path, path);
    unlink(path);

    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd == -1 || bind(fd, (struct sockaddr *) &sun, sizeof(sun)) == -1
        || listen(fd, 4096) == -1)
    {
        die("can't listen at %s: %s", path, strerror(errno));
    }

    return fd;
}


static size_t
wire_answer(uint8_t *p, size_t size, uint8_t operation)
{
    uint8_t           *start;
    sandbox_writer_t   w;

    start = p;

    sandbox_writer_init(&w, p + SANDBOX_WIRE_FRAME_SIZE, size / 2);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, 200);
    sandbox_frame_write(p, SANDBOX_FRAME_HEAD,
                        (uint32_t) (w.pos - p - SANDBOX_WIRE_FRAME_SIZE));
    p = w.pos;

    sandbox_writer_init(&w, p + SANDBOX_WIRE_FRAME_SIZE, size / 2 - 16);

    if (operation == SANDBOX_OPERATION_PING) {
        sandbox_write_number(&w, SANDBOX_TAG_READY, 1);

    } else {
        sandbox_write_number(&w, SANDBOX_TAG_STATE, SANDBOX_STATE_NONE);
    }

    sandbox_frame_write(p, SANDBOX_FRAME_RESULT,
                        (uint32_t) (w.pos - p - SANDBOX_WIRE_FRAME_SIZE));

    return (size_t) (w.pos - start);
}


static void
answer_one(int fd, int wire)
{
    int      timeout;
    char     in[MAX_REQUEST];
    size_t   have, size;
    ssize_t  n;
    uint8_t  out[512];

    struct pollfd  pfd = { .fd = fd, .events = POLLIN };

    have = 0;
    timeout = 1000;

    for ( ;; ) {
        n = recv(fd, in + have, sizeof(in) - 1 - have, MSG_DONTWAIT);

        if (n == -1 && errno == EAGAIN) {
            if (poll(&pfd, 1, timeout) != 1) {
                return;
            }
            continue;
        }

        if (n <= 0) {
            return;
        }

        have += (size_t) n;
        in[have] = '\0';

        if (wire ? have >= SANDBOX_WIRE_PREAMBLE_SIZE
                 : strstr(in, "\r\n\r\n") != NULL)
        {
            break;
        }

        if (have == sizeof(in) - 1) {
            return;
        }
    }

    if (wire) {
        size = wire_answer(out, sizeof(out), (uint8_t) in[8]);

    } else {
        size = (size_t) snprintf((char *) out, sizeof(out),
                                 "HTTP/1.1 200 OK\r\n"
                                 "Content-Type: application/json\r\n"
                                 "Content-Length: %zu\r\n"
                                 "Connection: close\r\n\r\n%s",
                                 sizeof(RESULT) - 1, RESULT);
    }

    (void) send(fd, out, size, MSG_NOSIGNAL);
}


static void
backend(const char *wire_path, const char *http_path)
{
    int            i, fd;
    struct pollfd  pfd[2];

    pfd[0].fd = listen_at(wire_path);
    pfd[1].fd = listen_at(http_path);
    pfd[0].events = pfd[1].events = POLLIN;

    for ( ;; ) {
        if (poll(pfd, 2, -1) == -1 && errno != EINTR) {
            die("poll: %s", strerror(errno));
        }

        for (i = 0; i < 2; i++) {
            fd = accept4(pfd[i].fd, NULL, NULL, SOCK_CLOEXEC);

            if (fd != -1) {
                answer_one(fd, i == 0);
                close(fd);
            }
        }
    }
}


static size_t
base64url(char *dst, const uint8_t *src, size_t size)
{
    size_t  n, i;

    n = (size_t) EVP_EncodeBlock((uint8_t *) dst, src, (int) size);

    while (n > 0 && dst[n - 1] == '=') {
        n--;
    }

    for (i = 0; i < n; i++) {
        if (dst[i] == '+') {
            dst[i] = '-';

        } else if (dst[i] == '/') {
            dst[i] = '_';
        }
    }

    dst[n] = '\0';

    return n;
}


/* DER as OpenSSL makes it into the two numbers of RFC 7518, section 3.4 */

static size_t
ecdsa_raw(uint8_t *signature, size_t size)
{
    ECDSA_SIG      *sig;
    const uint8_t  *p;

    p = signature;
    sig = d2i_ECDSA_SIG(NULL, &p, (long) size);

    if (sig == NULL
        || BN_bn2binpad(ECDSA_SIG_get0_r(sig), signature, 32) != 32
        || BN_bn2binpad(ECDSA_SIG_get0_s(sig), signature + 32, 32) != 32)
    {
        die("the signature is not what was expected");
    }

    ECDSA_SIG_free(sig);

    return 64;
}


static size_t
sign(EVP_PKEY *pkey, const char *text, size_t size, uint8_t *signature,
    size_t room)
{
    size_t       n;
    EVP_MD_CTX  *ctx;

    n = room;
    ctx = EVP_MD_CTX_new();

    if (ctx == NULL
        || EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, pkey) != 1
        || EVP_DigestSign(ctx, signature, &n, (const uint8_t *) text, size)
           != 1)
    {
        die("signing failed");
    }

    EVP_MD_CTX_free(ctx);

    return EVP_PKEY_get_base_id(pkey) == EVP_PKEY_EC ? ecdsa_raw(signature, n)
                                                     : n;
}


static void
tokens(const char *algorithm, const char *path, int count)
{
    int        i;
    FILE      *f;
    char       json[512], text[MAX_TOKEN];
    size_t     n, m;
    uint8_t    key[4096], signature[1024];
    unsigned   size;
    EVP_PKEY  *pkey;

    f = fopen(path, "r");
    if (f == NULL) {
        die("can't open %s: %s", path, strerror(errno));
    }

    pkey = NULL;
    m = 0;

    if (strcmp(algorithm, "HS256") == 0) {
        m = fread(key, 1, sizeof(key), f);

    } else {
        pkey = PEM_read_PrivateKey(f, NULL, NULL, NULL);
        if (pkey == NULL) {
            die("there is no private key in %s", path);
        }
    }

    fclose(f);

    for (i = 0; i < count; i++) {
        n = (size_t) snprintf(json, sizeof(json),
                              "{\"alg\":\"%s\",\"typ\":\"JWT\"}", algorithm);
        n = base64url(text, (uint8_t *) json, n);
        text[n++] = '.';

        size = (unsigned) snprintf(json, sizeof(json),
                                   "{\"sub\":\"alice\",\"jti\":\"%d\","
                                   "\"iss\":\"https://id.example/\","
                                   "\"aud\":\"gateway\",\"exp\":%ld,"
                                   "\"permissions\":[\"files:read\","
                                   "\"sandbox:execute\",\"chat\"]}",
                                   i, (long) time(NULL) + 86400);
        n += base64url(text + n, (uint8_t *) json, size);

        if (pkey == NULL) {
            if (HMAC(EVP_sha256(), key, (int) m, (uint8_t *) text, n,
                     signature, &size)
                == NULL)
            {
                die("signing failed");
            }

        } else {
            size = (unsigned) sign(pkey, text, n, signature,
                                   sizeof(signature));
        }

        text[n++] = '.';
        base64url(text + n, signature, size);
        puts(text);
    }

    EVP_PKEY_free(pkey);
}


static void
row_add(char *arg)
{
    char   *path, *file, line[MAX_TOKEN];
    FILE   *f;
    row_t  *row;

    path = strchr(arg, '=');
    file = path ? strchr(path, ':') : NULL;

    if (file == NULL || nrows == MAX_ROWS) {
        die("unexpected argument \"%s\"", arg);
    }

    *path++ = '\0';
    *file++ = '\0';

    row = &rows[nrows++];
    row->name = arg;
    row->path = path;
    row->tokens = calloc(MAX_TOKENS, sizeof(char *));

    f = fopen(file, "r");
    if (f == NULL || row->tokens == NULL) {
        die("can't read %s", file);
    }

    while (row->ntokens < MAX_TOKENS && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        row->tokens[row->ntokens++] = strdup(line);
    }

    fclose(f);

    if (row->ntokens == 0) {
        die("%s is empty", file);
    }
}


static double
cpu_ns(const char *pid)
{
    char                 path[64];
    FILE                *f;
    unsigned long long   ns;

    snprintf(path, sizeof(path), "/proc/%s/schedstat", pid);

    f = fopen(path, "r");
    if (f == NULL || fscanf(f, "%llu", &ns) != 1) {
        die("can't read %s", path);
    }

    fclose(f);

    return (double) ns;
}


static double
wall_ns(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_MONOTONIC, &t);

    return t.tv_sec * 1e9 + t.tv_nsec;
}


static void
call(row_t *row)
{
    int      size;
    char     buf[MAX_REQUEST], *end;
    size_t   have;
    ssize_t  n;

    size = snprintf(buf, sizeof(buf),
                    "GET %s HTTP/1.1\r\nHost: bench\r\n"
                    "Authorization: Bearer %s\r\n\r\n", row->path,
                    row->tokens[row->next++ % row->ntokens]);

    if (size >= (int) sizeof(buf)
        || send(http_fd, buf, (size_t) size, MSG_NOSIGNAL) != size)
    {
        die("can't send a request");
    }

    /* the answer is short and of known length: the JSON's end is its end */

    have = 0;

    do {
        n = recv(http_fd, buf + have, sizeof(buf) - 1 - have, 0);

        if (n <= 0 || have + (size_t) n >= sizeof(buf) - 1) {
            die("no answer to %s", row->path);
        }

        have += (size_t) n;
        buf[have] = '\0';
        end = strstr(buf, "\r\n\r\n");

    } while (end == NULL || strchr(end, '}') == NULL);

    if (strncmp(buf, "HTTP/1.1 200 ", 13) != 0) {
        die("%s: unexpected answer: %.300s", row->name, buf);
    }
}


static void
http_connect(int port)
{
    int                 one;
    struct sockaddr_in  sin;

    one = 1;
    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    http_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (http_fd == -1
        || connect(http_fd, (struct sockaddr *) &sin, sizeof(sin)) == -1)
    {
        die("can't connect to nginx: %s", strerror(errno));
    }

    setsockopt(http_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}


static void
run(const char *pid, int requests, int block, const char *json)
{
    int      i, n, k;
    FILE    *f;
    row_t   *row;
    double   cpu, wall, floor;

    for (n = 0; n < requests; n += block) {
        for (i = 0; i < nrows; i++) {
            row = &rows[i];
            cpu = cpu_ns(pid);
            wall = wall_ns();

            for (k = 0; k < block; k++) {
                call(row);
            }

            /* the first block warms up */

            if (n > 0) {
                row->cpu_ns += cpu_ns(pid) - cpu;
                row->wall_ns += wall_ns() - wall;
                row->n += block;
            }
        }
    }

    f = fopen(json, "w");
    if (f == NULL) {
        die("can't write %s: %s", json, strerror(errno));
    }

    floor = rows[0].cpu_ns / rows[0].n;

    printf("%-36s %10s %8s %10s\n", "", "CPU us", "ratio", "wall us");
    fprintf(f, "{\n");

    for (i = 0; i < nrows; i++) {
        row = &rows[i];
        cpu = row->cpu_ns / row->n;
        wall = row->wall_ns / row->n;

        printf("%-36s %10.1f %7.2fx %10.1f\n", row->name, cpu / 1e3,
               cpu / floor, wall / 1e3);
        fprintf(f, "  \"%s\": {\"requests\": %d, \"cpu_us\": %.2f, "
                "\"ratio\": %.3f, \"wall_us\": %.2f}%s\n", row->name, row->n,
                cpu / 1e3, cpu / floor, wall / 1e3,
                i + 1 < nrows ? "," : "");
    }

    fprintf(f, "}\n");

    if (fclose(f) != 0) {
        die("can't write %s: %s", json, strerror(errno));
    }
}


int
main(int argc, char **argv)
{
    int  i;

    if (argc == 4 && strcmp(argv[1], "backend") == 0) {
        backend(argv[2], argv[3]);

    } else if (argc == 5 && strcmp(argv[1], "tokens") == 0) {
        tokens(argv[2], argv[3], atoi(argv[4]));

    } else if (argc > 7 && strcmp(argv[1], "run") == 0) {
        for (i = 7; i < argc; i++) {
            row_add(argv[i]);
        }

        http_connect(atoi(argv[2]));
        run(argv[3], atoi(argv[4]), atoi(argv[5]), argv[6]);

    } else {
        die("see the head of bench/auth.c");
    }

    return 0;
}
