/*
 * Where an engine is.  The only name look-up of the owner of sessions, before
 * its loop begins.
 */

#define _GNU_SOURCE
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "dagger.h"
#include "file.h"


static int dagger_address_tcp(dagger_engine_t *engine, const char *text,
    runner_error_t *err);


int
dagger_address(dagger_engine_t *engine, const char *text, runner_error_t *err)
{
    struct sockaddr_un  *address;

    if (strlen(text) >= sizeof(engine->name)) {
        return runner_error(err, "bad_option", 0, "--dagger \"%s\" is longer "
                            "than %zu bytes", text, sizeof(engine->name) - 1);
    }

    strcpy(engine->name, text);

    if (strncmp(text, "tcp://", 6) == 0) {
        return dagger_address_tcp(engine, text + 6, err);
    }

    if (strncmp(text, "unix:///", 8) != 0) {
        return runner_error(err, "bad_option", 0, "--dagger \"%s\" is neither "
                            "tcp://HOST:PORT nor unix:///PATH", text);
    }

    address = (struct sockaddr_un *) &engine->address;
    text += 7;

    if (strlen(text) >= sizeof(address->sun_path)) {
        return runner_error(err, "bad_option", 0, "--dagger \"%s\": the path "
                            "is longer than %zu bytes", engine->name,
                            sizeof(address->sun_path) - 1);
    }

    address->sun_family = AF_UNIX;
    strcpy(address->sun_path, text);
    engine->address_size = sizeof(struct sockaddr_un);

    return 0;
}


/* HOST:PORT, with brackets round an IPv6 address */

static int
dagger_address_tcp(dagger_engine_t *engine, const char *text,
    runner_error_t *err)
{
    int               rc;
    char             *port, host[DAGGER_MAX_NAME];
    size_t            length;
    uint64_t          number;
    struct addrinfo  *found, hints;

    port = strrchr(text, ':');
    length = port ? (size_t) (port - text) : 0;

    if (length == 0
        || runner_number(port + 1, 65535, &number) == -1 || number == 0)
    {
        return runner_error(err, "bad_option", 0, "--dagger \"%s\" has no "
                            "host and port, as in tcp://127.0.0.1:1234",
                            engine->name);
    }

    if (text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }

    memcpy(host, text, length);
    host[length] = '\0';

    memset(&hints, 0, sizeof(hints));
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;

    rc = getaddrinfo(host, port + 1, &hints, &found);

    if (rc != 0) {
        return runner_error(err, "bad_option", 0, "--dagger \"%s\": %s",
                            engine->name, gai_strerror(rc));
    }

    memcpy(&engine->address, found->ai_addr, found->ai_addrlen);
    engine->address_size = found->ai_addrlen;
    freeaddrinfo(found);

    return 0;
}
