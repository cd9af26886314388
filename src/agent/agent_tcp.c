/*
 * Without a runner, where a container engine has started the agent: clients
 * come over TCP and prove themselves by a secret in each preamble.
 */

#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>


#define AGENT_TCP_BACKLOG  256
#define AGENT_TCP_ROUND    64
#define AGENT_TCP_UNKNOWN  256           /* have not shown the secret yet */
#define AGENT_TCP_SILENT   1000          /* ms, then it makes room */


static int agent_tcp_secret(const char *path);
static int agent_tcp_digit(char c);
static int agent_tcp_address(const char *text, struct sockaddr_storage *sa,
    socklen_t *size);
static void agent_tcp_accept(agent_watch_t *watch, uint32_t events);
static void agent_tcp_bound(void);


static agent_watch_t  agent_tcp_watch = { .fd = -1 };


int
agent_tcp_init(const char *address, const char *secret_file)
{
    if (agent_tcp_secret(secret_file) == -1) {
        fprintf(stderr, "sandbox-agent: %s is not a file of 64 hex digits\n",
                secret_file);
        return -1;
    }

    return agent_tcp_listen(address);
}


int
agent_tcp_listen(const char *address)
{
    int                      fd, on;
    socklen_t                size;
    struct sockaddr_storage  sa;

    if (agent_tcp_address(address, &sa, &size) == -1) {
        fprintf(stderr, "sandbox-agent: \"%s\" is not ADDRESS:PORT or "
                "[ADDRESS]:PORT\n", address);
        return -1;
    }

    on = 1;
    fd = socket(sa.ss_family, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);

    if (fd == -1
        || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1
        || bind(fd, (struct sockaddr *) &sa, size) == -1
        || listen(fd, AGENT_TCP_BACKLOG) == -1)
    {
        fprintf(stderr, "sandbox-agent: can't listen on %s: %s\n", address,
                strerror(errno));
        return -1;
    }

    agent.tcp = 1;
    agent_tcp_watch.fd = fd;
    agent_tcp_watch.handler = agent_tcp_accept;

    return agent_watch_set(&agent_tcp_watch, EPOLLIN);
}


int
agent_tcp_hex(const char *text, uint8_t *p, size_t size)
{
    int     high, low;
    size_t  i;

    if (strlen(text) != 2 * size) {
        return -1;
    }

    for (i = 0; i < size; i++) {
        high = agent_tcp_digit(text[2 * i]);
        low = agent_tcp_digit(text[2 * i + 1]);

        if (high == -1 || low == -1) {
            return -1;
        }

        p[i] = (uint8_t) (high << 4 | low);
    }

    return 0;
}


void
agent_tcp_close(void)
{
    agent_watch_close(&agent_tcp_watch);
}


static int
agent_tcp_secret(const char *path)
{
    int      fd, rc;
    char     text[2 * SANDBOX_WIRE_KEY_SIZE + 2];
    ssize_t  n;

    fd = open(path, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    n = read(fd, text, sizeof(text));
    close(fd);

    if (n == 2 * SANDBOX_WIRE_KEY_SIZE + 1 && text[n - 1] == '\n') {
        n--;
    }

    if (n != 2 * SANDBOX_WIRE_KEY_SIZE) {
        return -1;
    }

    text[n] = '\0';
    rc = agent_tcp_hex(text, agent.secret, sizeof(agent.secret));

    explicit_bzero(text, sizeof(text));

    return rc;
}


static int
agent_tcp_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }

    c |= 0x20;

    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}


static int
agent_tcp_address(const char *text, struct sockaddr_storage *sa,
    socklen_t *size)
{
    char                  host[64], *end;
    size_t                n;
    const char           *colon;
    unsigned long         port;
    struct sockaddr_in   *sin;
    struct sockaddr_in6  *sin6;

    colon = strrchr(text, ':');

    if (colon == NULL || colon[1] < '0' || colon[1] > '9') {
        return -1;
    }

    port = strtoul(colon + 1, &end, 10);
    n = colon - text;

    if (*end != '\0' || port == 0 || port > 65535 || n == 0
        || n >= sizeof(host))
    {
        return -1;
    }

    memcpy(host, text, n);
    host[n] = '\0';
    memset(sa, 0, sizeof(*sa));

    if (host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        sin6 = (struct sockaddr_in6 *) sa;
        sin6->sin6_family = AF_INET6;
        sin6->sin6_port = htons((uint16_t) port);
        *size = sizeof(*sin6);

        return inet_pton(AF_INET6, host + 1, &sin6->sin6_addr) == 1 ? 0 : -1;
    }

    sin = (struct sockaddr_in *) sa;
    sin->sin_family = AF_INET;
    sin->sin_port = htons((uint16_t) port);
    *size = sizeof(*sin);

    return inet_pton(AF_INET, host, &sin->sin_addr) == 1 ? 0 : -1;
}


static void
agent_tcp_accept(agent_watch_t *watch, uint32_t events)
{
    int                  i, fd, on;
    agent_connection_t  *c;

    for (i = 0; i < AGENT_TCP_ROUND; i++) {
        fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK|SOCK_CLOEXEC);

        if (fd == -1) {
            return;
        }

        if (agent.stopping) {
            close(fd);
            continue;
        }

        on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));

        if (agent.connections >= AGENT_MAX_CONNECTIONS) {
            agent_tcp_bound();
        }

        c = agent_connection_new(fd, -1, 0, 0);

        if (c == NULL) {
            agent_connection_refuse(fd);
            close(fd);
            continue;
        }

        agent_connection_begin(c);
        agent_tcp_bound();
    }
}


/*
 * Anybody may connect, and then say nothing.  Who knows the secret shows it
 * at once, or when all that came with it are connected: the one that has said
 * nothing for longest goes.  So it does where there is no place for others.
 */

static void
agent_tcp_bound(void)
{
    unsigned             n;
    agent_connection_t  *c, *first;

    n = 0;
    first = NULL;

    for (c = agent_connection_first(); c != NULL; c = c->next) {
        if (c->parsed || c->state != AGENT_CONNECTION_READ) {
            continue;
        }

        n++;

        if (first == NULL || c->sequence < first->sequence) {
            first = c;
        }
    }

    if (n > AGENT_TCP_UNKNOWN
        || (n && agent.connections >= AGENT_MAX_CONNECTIONS
            && agent_now_us() - first->accepted >= AGENT_TCP_SILENT * 1000))
    {
        agent_connection_close(first);
    }
}
