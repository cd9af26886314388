/*
 * Where this program may run at all, and the one call that signals every
 * process it can reach.  Outside of a container of its own that call would
 * end the host, so both checks are made at the start and again at the call.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


/* by the kernel's interface, for ever */

#define AGENT_GUARD_FIRST  0xeffffffcU


static int agent_guard_own(void);
static int agent_guard_mapped(void);


/*
 * The text has lines "INSIDE OUTSIDE COUNT".  Good is a map that has an
 * inside 0 and no outside 0: then this is not the host's own namespace.
 */

int
agent_guard_map(const char *text)
{
    int                 i, root;
    char               *end;
    unsigned            n;
    unsigned long long  value[3];

    root = 0;

    for (n = 0; *text != '\0' && n < 340; n++) {

        for (i = 0; i < 3; i++) {
            while (*text == ' ') {
                text++;
            }

            if (*text < '0' || *text > '9') {
                return 0;
            }

            value[i] = strtoull(text, &end, 10);
            text = end;
        }

        while (*text == ' ') {
            text++;
        }

        if (*text != '\n') {
            return 0;
        }

        text++;

        if (value[1] == 0 || value[2] == 0) {
            return 0;
        }

        if (value[0] == 0) {
            root = 1;
        }
    }

    return root && *text == '\0';
}


int
agent_guard_check(int tcp)
{
    if (getpid() != 1) {
        fprintf(stderr, "sandbox-agent: this is the first process of a "
                "sandbox and can't be started by hand; sandbox-runner "
                "starts it in a container of its own\n");
        return -1;
    }

    /* also an init of a host has that number */

    if (!agent_guard_own()) {
        fprintf(stderr, "sandbox-agent: this is no process namespace of a "
                "container, or /proc is missing\n");
        return -1;
    }

    agent.mapped = agent_guard_mapped();

    if (!agent.mapped && !tcp) {
        fprintf(stderr, "sandbox-agent: user ids are not mapped to a range "
                "of their own here; a sandbox needs a user namespace\n");
        return -1;
    }

    return 0;
}


int
agent_guard_sweep(void)
{
    /* an engine has no user namespace for it, but one of processes */

    if (getpid() != 1 || !agent_guard_own()
        || (agent.host == NULL && (!agent.mapped || !agent_guard_mapped())))
    {
        errno = ENOTSUP;
        return -1;
    }

    return kill(-1, SIGKILL);
}


/* 1: it is not the first of all namespaces of processes. */

static int
agent_guard_own(void)
{
    struct stat  st;

    return stat("/proc/self/ns/pid", &st) == 0
           && st.st_ino != AGENT_GUARD_FIRST;
}


static int
agent_guard_mapped(void)
{
    int      fd;
    char     text[4096];
    ssize_t  n;

    fd = open("/proc/self/uid_map", O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return 0;
    }

    n = read(fd, text, sizeof(text) - 1);
    close(fd);

    if (n <= 0 || n == sizeof(text) - 1) {
        return 0;
    }

    text[n] = '\0';

    return agent_guard_map(text);
}
