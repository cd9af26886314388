/*
 * sandboxctl doctor: by which route nginx would use an engine.  It goes to
 * the agents themselves ("service") where their name server answers and their
 * network can be reached, else by execs of the engine ("exec").  Only the
 * name server is asked here; what nginx has met is "route" of v1/limits.
 */

#define _GNU_SOURCE
#include "ctl.h"
#include "doctor.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/random.h>
#include <sys/socket.h>


#define CTL_ROUTE_RESOLVER  "10.87.0.1"          /* the module's default */
#define CTL_ROUTE_ATTEMPTS  2
#define CTL_ROUTE_WAIT      1500                 /* ms, of each */
#define CTL_ROUTE_ADDRESS   128
#define CTL_ROUTE_EXEC      "exec: slower, and without streams, stdin, "      \
                            "background commands (docs/backends.md)"


static const char *ctl_route_resolver(const ctl_doctor_dagger_t *dagger,
    const char *engine);
static int ctl_route_ask(const char *resolver);
static int ctl_route_open(const char *resolver);
static int ctl_route_answered(int fd, const uint8_t *question);


int
ctl_doctor_route(const ctl_doctor_dagger_t *dagger, const char *engine)
{
    int          error;
    const char  *resolver;

    resolver = ctl_route_resolver(dagger, engine);

    if (resolver == NULL) {
        return ctl_doctor_line(1, "route: %s is used by " CTL_ROUTE_EXEC
                               "; nginx has no name server of its "
                               "containers. For \"service\" name it, resolver= "
                               "of \"sandbox_dagger\" (here --resolver), and "
                               "have a route to that network", engine);
    }

    error = ctl_route_ask(resolver);

    if (error == 0) {
        return ctl_doctor_line(1, "route: %s is used by service, streams and "
                               "all: the name server of its containers, %s, "
                               "answers", engine, resolver);
    }

    if (error == EINVAL) {
        return ctl_doctor_line(0, "route: \"%s\" in --resolver is no "
                               "ADDRESS[:PORT], and not \"off\"", resolver);
    }

    return ctl_doctor_line(1, "route: %s is used by " CTL_ROUTE_EXEC "; the "
                           "name server of its containers, %s, does not "
                           "answer (%s). For \"service\": resolver= of "
                           "\"sandbox_dagger\" (here --resolver), a route to "
                           "that network, no firewall between; an engine "
                           "that has run nothing yet may have no network, so "
                           "run a command first", engine, resolver,
                           error == ETIMEDOUT ? "timed out"
                                              : strerror(error));
}


/* as "sandbox_dagger" has it; NULL: none */

static const char *
ctl_route_resolver(const ctl_doctor_dagger_t *dagger, const char *engine)
{
    size_t       i;
    const char  *value;

    static const char *const  here[] = {
        "unix:", "tcp://127.", "tcp://localhost:", "tcp://[::1]:"
    };

    value = ctl_value(&dagger->resolver, NULL);

    if (value != NULL) {
        return strcmp(value, "off") == 0 ? NULL : value;
    }

    for (i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
        if (strncmp(engine, here[i], strlen(here[i])) == 0) {
            return CTL_ROUTE_RESOLVER;
        }
    }

    return NULL;
}


/* 0: something answers a question for a name; else why not, an errno */

static int
ctl_route_ask(const char *resolver)
{
    int            fd, i, error;
    struct pollfd  p;

    /* id, "recursion desired", one question: doctor.dagger.local, A, IN */

    uint8_t  question[] = "\0\0\1\0\0\1\0\0\0\0\0\0"
                          "\6doctor\6dagger\5local\0\0\1\0\1";

    fd = ctl_route_open(resolver);

    if (fd == -1) {
        return errno;
    }

    error = ETIMEDOUT;

    if (getrandom(question, 2, 0) != 2) {
        error = errno;
    }

    for (i = 0; i < CTL_ROUTE_ATTEMPTS && error == ETIMEDOUT; i++) {

        if (send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) == -1) {
            error = errno;
            break;
        }

        p.fd = fd;
        p.events = POLLIN;

        if (poll(&p, 1, CTL_ROUTE_WAIT) == 1) {
            error = ctl_route_answered(fd, question);
        }
    }

    close(fd);

    return error;
}


/* -1 and errno; EINVAL: it is no address */

static int
ctl_route_open(const char *resolver)
{
    int               fd, error;
    char             *port, host[CTL_ROUTE_ADDRESS];
    size_t            length;
    struct addrinfo  *found, hints;

    length = strlen(resolver);

    if (length >= sizeof(host)) {
        errno = EINVAL;
        return -1;
    }

    memcpy(host, resolver, length + 1);
    port = strrchr(host, ':');

    if (port != NULL) {
        *port++ = '\0';
        length = strlen(host);
    }

    memset(&hints, 0, sizeof(hints));
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_NUMERICHOST|AI_NUMERICSERV;

    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        memmove(host, host + 1, length - 2);
        host[length - 2] = '\0';
    }

    if (getaddrinfo(host, port ? port : "53", &hints, &found) != 0) {
        errno = EINVAL;
        return -1;
    }

    fd = socket(found->ai_family, SOCK_DGRAM|SOCK_CLOEXEC, 0);

    if (fd != -1 && connect(fd, found->ai_addr, found->ai_addrlen) == -1) {
        error = errno == EINVAL ? ENETUNREACH : errno;
        close(fd);
        errno = error;
        fd = -1;
    }

    freeaddrinfo(found);

    return fd;
}


/* whatever it says of that name */

static int
ctl_route_answered(int fd, const uint8_t *question)
{
    ssize_t  n;
    uint8_t  answer[512];

    n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);

    if (n == -1) {
        return errno == EAGAIN ? ETIMEDOUT : errno;
    }

    return n >= 12 && memcmp(answer, question, 2) == 0 && (answer[2] & 0x80)
           ? 0 : ETIMEDOUT;
}
