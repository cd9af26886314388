/*
 * The way out of sandboxes on engines: the policies that nginx tells the
 * owner, and, with --egress-listen, the proxy as its child, which gets
 * listeners and a key that signs tokens and nothing else.
 *
 * The table is kept in memory only: what engines run ends with the owner, and
 * nginx hears of the next one, and tells it, before it starts anything there.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "dagger.h"
#include "egress_address.h"
#include "egress_channel.h"
#include "egress_child.h"
#include "file.h"
#include "log.h"
#include "sandbox_token.h"


#define DAGGER_EGRESS_BACKLOG   1024
#define DAGGER_EGRESS_ATTEMPTS  3        /* then nginx hears of no proxy */


/* where containers of an engine reach the proxy */

typedef struct {
    int                    fd;
    char                   address[EGRESS_ADDRESS_SIZE];
} dagger_gate_t;


struct dagger_egress_s {
    uint8_t               *table;        /* checked; NULL: none came yet */
    size_t                 table_size;
    uint8_t                digest[SANDBOX_WIRE_DIGEST_SIZE];
    uint8_t               *upload;       /* the next one; NULL: none comes */
    uint8_t                key[SANDBOX_WIRE_KEY_SIZE];    /* of tokens */
    dagger_gate_t          gates[DAGGER_MAX_GATES];
    unsigned               ngates;
    runner_egress_child_t  child;
};


static int dagger_egress_listen(dagger_gate_t *gate, const char *text,
    runner_error_t *err);
static int dagger_egress_bind(int fd, const egress_address_t *address,
    const char *text);
static int dagger_egress_address(const char *text, egress_address_t *address);
static void dagger_egress_tell(void *data);


int
dagger_egress_start(dagger_t *dagger, runner_error_t *err)
{
    unsigned           i;
    dagger_egress_t   *egress;
    runner_options_t  *options;

    options = dagger->options;

    egress = calloc(1, sizeof(*egress));
    if (egress == NULL) {
        return runner_error(err, "internal", errno, "egress");
    }

    dagger->egress = egress;
    runner_egress_child_init(&egress->child);

    egress->child.loop = &dagger->loop;
    egress->child.options = options;
    egress->child.data = egress;
    egress->child.tell = dagger_egress_tell;

    if (options->negress_listen == 0) {
        return 0;
    }

    if (geteuid() != 0) {
        return runner_error(err, "bad_option", 0, "--egress-listen needs "
                            "root, which the proxy gives up: it has a user "
                            "and an empty root of its own");
    }

    for (i = 0; i < options->negress_listen; i++) {
        if (dagger_egress_listen(&egress->gates[i], options->egress_listen[i],
                                 err)
            == -1)
        {
            return -1;
        }

        egress->ngates++;
    }

    sandbox_token_key(options->key, egress->key);

    /* nobody else is a child of the owner, and nobody waits for it */

    signal(SIGCHLD, SIG_IGN);

    runner_egress_child_start(&egress->child);

    return 0;
}


void
dagger_egress_end(dagger_t *dagger)
{
    runner_egress_child_end(&dagger->egress->child);
}


static int
dagger_egress_listen(dagger_gate_t *gate, const char *text,
    runner_error_t *err)
{
    int               fd, on;
    socklen_t         size;
    egress_address_t  address;

    if (dagger_egress_address(text, &address) == -1) {
        return runner_error(err, "bad_option", 0, "--egress-listen \"%s\" "
                            "must be the address of this host that containers "
                            "of the engine reach, and a port, such as "
                            "10.87.0.1:3128 or [fd00::1]:3128", text);
    }

    fd = socket(address.any.sa_family, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC,
                0);
    on = 1;
    size = sizeof(address);

    if (fd == -1
        || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1
        || dagger_egress_bind(fd, &address, text) == -1
        || listen(fd, DAGGER_EGRESS_BACKLOG) == -1
        || getsockname(fd, &address.any, &size) == -1)
    {
        (void) runner_error(err, "bad_option", errno, "--egress-listen "
                            "\"%s\" can't be listened on", text);

        if (fd != -1) {
            close(fd);
        }

        return -1;
    }

    gate->fd = fd;
    egress_address_text(&address, gate->address);

    return 0;
}


/* the bridge of an engine may come later than its owner */

static int
dagger_egress_bind(int fd, const egress_address_t *address, const char *text)
{
    int  on, level, option;

    if (bind(fd, &address->any, egress_address_size(address)) == 0) {
        return 0;
    }

    if (errno != EADDRNOTAVAIL) {
        return -1;
    }

    on = 1;
    level = address->any.sa_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    option = address->any.sa_family == AF_INET ? IP_FREEBIND : IPV6_FREEBIND;

    if (setsockopt(fd, level, option, &on, sizeof(on)) == -1
        || bind(fd, &address->any, egress_address_size(address)) == -1)
    {
        return -1;
    }

    runner_log(RUNNER_LOG_WARN, "no interface of this host has the address of "
               "--egress-listen \"%s\" yet: sandboxes reach the proxy once "
               "one has", text);

    return 0;
}


/* one address, no name, and not all of them; port 0: any that is free */

static int
dagger_egress_address(const char *text, egress_address_t *address)
{
    char         host[INET6_ADDRSTRLEN + 1];
    size_t       n;
    uint64_t     port;
    const char  *colon;

    memset(address, 0, sizeof(*address));

    colon = strrchr(text, ':');

    if (colon == NULL || runner_number(colon + 1, 65535, &port) == -1) {
        return -1;
    }

    n = colon - text;

    if (n > 2 && text[0] == '[' && colon[-1] == ']') {
        text++;
        n -= 2;
        address->any.sa_family = AF_INET6;

    } else {
        address->any.sa_family = AF_INET;
    }

    if (n >= sizeof(host)) {
        return -1;
    }

    memcpy(host, text, n);
    host[n] = '\0';
    egress_address_port(address, (unsigned) port);

    if (address->any.sa_family == AF_INET) {
        return inet_pton(AF_INET, host, &address->in.sin_addr) == 1
               && address->in.sin_addr.s_addr != htonl(INADDR_ANY) ? 0 : -1;
    }

    return inet_pton(AF_INET6, host, &address->in6.sin6_addr) == 1
           && !IN6_IS_ADDR_UNSPECIFIED(&address->in6.sin6_addr) ? 0 : -1;
}


/* it was started: all that it has to know */

static void
dagger_egress_tell(void *data)
{
    uint8_t           b[64];
    unsigned          i;
    dagger_egress_t  *egress;
    sandbox_writer_t  w;

    egress = data;

    runner_egress_child_table(&egress->child, egress->table,
                              egress->table_size);

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_KEY, egress->key,
                        sizeof(egress->key));

    for (i = 0; i < egress->ngates; i++) {
        runner_egress_child_send(&egress->child, EGRESS_CHANNEL_GATE, i, &w,
                                 egress->gates[i].fd);
    }

    explicit_bzero(b, sizeof(b));
}


uint8_t *
dagger_egress_room(dagger_t *dagger, size_t size)
{
    dagger_egress_t  *egress;

    egress = dagger->egress;

    if (egress->upload != NULL) {
        return NULL;
    }

    egress->upload = malloc(size + 1);

    return egress->upload;
}


void
dagger_egress_leave(dagger_t *dagger, uint8_t *body)
{
    if (body != NULL) {
        dagger->egress->upload = NULL;
        free(body);
    }
}


int
dagger_egress_take(dagger_t *dagger, const uint8_t *head, size_t head_size,
    uint8_t *body, size_t size, const uint8_t **digest)
{
    uint8_t           made[SANDBOX_WIRE_DIGEST_SIZE];
    dagger_egress_t  *egress;

    egress = dagger->egress;
    egress->upload = NULL;

    if (runner_egress_table(head, head_size, body, size, made) == -1) {
        free(body);
        return -1;
    }

    runner_egress_taken(made, egress->table ? egress->digest : NULL, size);

    free(egress->table);
    egress->table = body;
    egress->table_size = size;
    memcpy(egress->digest, made, sizeof(made));
    *digest = egress->digest;

    runner_egress_child_table(&egress->child, egress->table,
                              egress->table_size);

    return 0;
}


void
dagger_egress_fields(dagger_t *dagger, sandbox_writer_t *w)
{
    dagger_egress_t  *egress;

    egress = dagger->egress;

    runner_egress_write(egress->child.counts, egress->digest, egress->table,
                        egress->table_size, w);
}


/* the last one is for all engines that have none of their own */

const char *
dagger_egress_proxy(dagger_t *dagger, unsigned engine)
{
    dagger_egress_t  *egress;

    egress = dagger->egress;

    if (egress->ngates == 0) {
        return NULL;
    }

    /* no network at once is better than one that never answers */

    if (egress->child.channel.fd == -1
        && egress->child.attempts >= DAGGER_EGRESS_ATTEMPTS)
    {
        return NULL;
    }

    return egress->gates[engine < egress->ngates ? engine
                                                 : egress->ngates - 1].address;
}
