/*
 * A command's processes where there is no cgroup: those of its session, read
 * from /proc.  A process that makes a session of its own escapes this; when
 * no other command has processes, the sweep ends that one, too.
 */

#include "agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define AGENT_SESSION_PROCESSES  8192
#define AGENT_SESSION_ROUNDS     16


static unsigned agent_session_each(pid_t session, int signal);
static int agent_session_member(int proc, const char *pid, pid_t session);


unsigned
agent_session_count(pid_t session)
{
    return agent_session_each(session, 0);
}


void
agent_session_kill(pid_t session)
{
    unsigned  i;

    kill(-session, SIGKILL);

    /* who forks while we read the list is found in the next round */

    for (i = 0; i < AGENT_SESSION_ROUNDS; i++) {
        if (agent_session_each(session, SIGKILL) == 0) {
            break;
        }
    }

    if (agent.left + agent.background + (agent.running != NULL) <= 1) {
        agent_guard_sweep();
    }
}


static unsigned
agent_session_each(pid_t session, int signal)
{
    DIR            *dir;
    unsigned        i, count;
    struct dirent  *entry;

    dir = opendir("/proc");
    if (dir == NULL) {
        return 0;
    }

    count = 0;

    for (i = 0; i < AGENT_SESSION_PROCESSES; i++) {
        entry = readdir(dir);
        if (entry == NULL) {
            break;
        }

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9'
            || !agent_session_member(dirfd(dir), entry->d_name, session))
        {
            continue;
        }

        count++;

        if (signal) {
            kill(atoi(entry->d_name), signal);
        }
    }

    closedir(dir);

    return count;
}


/* "PID (NAME) STATE PPID PGRP SESSION ..."; the name may have any byte. */

static int
agent_session_member(int proc, const char *pid, pid_t session)
{
    int      fd;
    int      member, threads;
    char     name[32], text[512], *p, state;
    ssize_t  n;

    if (snprintf(name, sizeof(name), "%s/stat", pid) >= (int) sizeof(name)) {
        return 0;
    }

    fd = openat(proc, name, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return 0;
    }

    n = read(fd, text, sizeof(text) - 1);
    close(fd);

    if (n <= 0) {
        return 0;
    }

    text[n] = '\0';
    p = strrchr(text, ')');

    /* one whose first thread has ended looks like a zombie */

    return p != NULL
           && sscanf(p + 1, " %c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u "
                     "%*u %*d %*d %*d %*d %d", &state, &member, &threads) == 3
           && member == session
           && ((state != 'Z' && state != 'X') || threads > 1);
}
