/*
 * What commands need to know of the way out: the proxy, the index of packages,
 * and certificates, which are put together where users can read and not write.
 * A runner says it for all commands, nginx for one, on an engine.
 *
 * Knows no hosts and no policies: those are the runner's.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox_sha256.h"


#define AGENT_EGRESS_BASE    "/etc/ssl/certs/ca-certificates.crt"
#define AGENT_EGRESS_FOLDER  "/etc/ssl/sandbox"
#define AGENT_EGRESS_FILE    AGENT_EGRESS_FOLDER "/ca-certificates.crt"
#define AGENT_EGRESS_NEW     AGENT_EGRESS_FOLDER "/.new"
#define AGENT_EGRESS_MAX     (4 * 1024 * 1024)   /* bytes of the base's */


static int agent_egress_certificates(int fd, const uint8_t *p, size_t size);
static int agent_egress_copy(int to, int from, size_t max);


/* what is in the file, where a command brought it */

static int      agent_egress_written;
static uint8_t  agent_egress_digest[32];


void
agent_egress_init(void)
{
    agent_environment_network(0, "", NULL);
}


void
agent_egress_set(uint32_t policy, const uint8_t *index, size_t size, int fd)
{
    char         text[SANDBOX_WIRE_MAX_INDEX + 1];
    const char  *ca;

    if (size) {
        memcpy(text, index, size);
    }

    text[size] = '\0';
    ca = NULL;

    if (policy && fd != -1) {
        if (agent_egress_certificates(fd, NULL, 0) == 0) {
            ca = AGENT_EGRESS_FILE;

        } else {
            agent_log("the certificates of the egress policy can't be written "
                      "to " AGENT_EGRESS_FILE ": error %d", errno);
        }
    }

    agent_environment_network(policy != 0, text, ca);
}


int
agent_egress_command(agent_request_t *request)
{
    uint8_t  digest[32];

    if (!agent.tcp || request->proxy == NULL || request->token == NULL) {
        request->proxy = NULL;
        return 0;
    }

    if (request->ca == NULL) {
        return 1;
    }

    sandbox_sha256(request->ca, request->ca_size, digest);

    if (!agent_egress_written
        || memcmp(digest, agent_egress_digest, sizeof(digest)) != 0
        || access(AGENT_EGRESS_FILE, R_OK) == -1)
    {
        agent_egress_written = 0;

        if (agent_egress_certificates(-1, request->ca, request->ca_size)
            == -1)
        {
            agent_log("the certificates of the egress policy can't be written "
                      "to " AGENT_EGRESS_FILE ": error %d", errno);
            return 1;
        }

        agent_egress_written = 1;
        memcpy(agent_egress_digest, digest, sizeof(digest));
    }

    request->ca_file = AGENT_EGRESS_FILE;

    return 1;
}


/*
 * The base's and the policy's as one file, in place of the one before at once:
 * a program that reads it has all of one or all of the other.
 */

static int
agent_egress_certificates(int fd, const uint8_t *p, size_t size)
{
    int  to, base, rc, error;

    if (mkdir(AGENT_EGRESS_FOLDER, 0755) == -1 && errno != EEXIST) {
        return -1;
    }

    to = open(AGENT_EGRESS_NEW,
              O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0644);
    if (to == -1) {
        return -1;
    }

    /* a base without certificates has none: the policy's are all there is */

    rc = 0;
    base = open(AGENT_EGRESS_BASE, O_RDONLY|O_CLOEXEC|O_NONBLOCK);

    if (base != -1) {
        rc = agent_egress_copy(to, base, AGENT_EGRESS_MAX);
        close(base);
    }

    if (rc == 0 && fd != -1) {
        rc = agent_egress_copy(to, fd, SANDBOX_WIRE_MAX_CA);
    }

    if (rc == 0 && size && write(to, p, size) != (ssize_t) size) {
        errno = ENOSPC;
        rc = -1;
    }

    if (rc == 0) {
        rc = rename(AGENT_EGRESS_NEW, AGENT_EGRESS_FILE);
    }

    error = errno;
    close(to);

    if (rc == -1) {
        unlink(AGENT_EGRESS_NEW);
    }

    errno = error;

    return rc;
}


/* all of a file, from its start, whoever has read of it; a line end after it */

static int
agent_egress_copy(int to, int from, size_t max)
{
    char     b[16384];
    off_t    at;
    ssize_t  n;

    for (at = 0; (size_t) at < max; at += n) {
        n = pread(from, b, sizeof(b), at);

        if (n == -1) {
            return -1;
        }

        if (n == 0) {
            break;
        }

        if (write(to, b, n) != n) {
            errno = ENOSPC;
            return -1;
        }
    }

    return write(to, "\n", 1) == 1 ? 0 : -1;
}
