/*
 * The processes below one, as /proc shows them: whoever is its child, or the
 * child of one that is.  What is read may be old by the time it is used; who
 * ends them reads again until there are none.
 */

#include "agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_keeper.h"


#define AGENT_DESCENDANTS_MOST    8192
#define AGENT_DESCENDANTS_ROUNDS  64
#define AGENT_DESCENDANTS_STOPS   8
#define AGENT_DESCENDANTS_KILLS   3
#define AGENT_DESCENDANTS_LOOKS   4


typedef struct {
    pid_t     pid;
    pid_t     parent;
    int       below;
    int       alive;
    uint64_t  own;                       /* ticks of it, and of what it ... */
    uint64_t  buried;                    /* ... has waited for */
} agent_process_t;


static unsigned agent_descendants_each(pid_t keeper, int signal,
    uint64_t *ticks);
static unsigned agent_descendants_list(void);
static agent_process_t *agent_descendants_find(pid_t pid, unsigned n);
static int agent_descendants_read(int proc, const char *name,
    agent_process_t *process);
static uint64_t agent_descendants_buried(pid_t keeper);


static agent_process_t  agent_processes[AGENT_DESCENDANTS_MOST];


unsigned
agent_descendants_count(pid_t keeper)
{
    uint64_t  ticks;

    return agent_descendants_each(keeper, 0, &ticks);
}


void
agent_descendants_kill(pid_t keeper)
{
    unsigned  i, n, last;
    uint64_t  ticks;

    /* what is stopped forks no more: their number stays, then */

    last = 0;

    for (i = 0; i < AGENT_DESCENDANTS_STOPS; i++) {
        n = agent_descendants_each(keeper, SIGSTOP, &ticks);

        if (n <= last) {
            break;
        }

        last = n;
    }

    /* who is to die may need a while for it, but does nothing else any more */

    for (i = 0; i < AGENT_DESCENDANTS_KILLS; i++) {
        if (agent_descendants_each(keeper, SIGKILL, &ticks) == 0) {
            break;
        }
    }
}


uint64_t
agent_descendants_cpu(pid_t keeper)
{
    long      rate;
    unsigned  i;
    uint64_t  ticks, most, buried;

    rate = sysconf(_SC_CLK_TCK);
    most = 0;

    /*
     * One that its keeper has waited for meanwhile may have been counted
     * neither here nor there, what is found then is too little: the look that
     * nothing came between counts, or else the one that found the most.
     */

    for (i = 0; i < AGENT_DESCENDANTS_LOOKS; i++) {
        buried = agent_descendants_buried(keeper);
        (void) agent_descendants_each(keeper, 0, &ticks);

        if (agent_descendants_buried(keeper) == buried) {
            most = ticks;
            break;
        }

        if (ticks > most) {
            most = ticks;
        }
    }

    return rate > 0 ? most * 1000000 / (uint64_t) rate : 0;
}


static uint64_t
agent_descendants_buried(pid_t keeper)
{
    char             name[24];
    agent_process_t  process;

    snprintf(name, sizeof(name), "/proc/%d", (int) keeper);

    return agent_descendants_read(AT_FDCWD, name, &process) ? process.buried
                                                            : 0;
}


static unsigned
agent_descendants_each(pid_t keeper, int signal, uint64_t *ticks)
{
    unsigned          i, n, more, round, count;
    agent_process_t  *process, *parent;

    n = agent_descendants_list();
    count = 0;
    *ticks = 0;

    /* a parent mostly has the lower number: one round finds nearly all */

    for (round = 0; round < AGENT_DESCENDANTS_ROUNDS; round++) {
        more = 0;

        for (i = 0; i < n; i++) {
            process = &agent_processes[i];

            if (process->below) {
                continue;
            }

            if (process->parent == keeper) {
                process->below = 1;
                more = 1;
                continue;
            }

            parent = agent_descendants_find(process->parent, n);

            if (parent != NULL && parent->below) {
                process->below = 1;
                more = 1;
            }
        }

        if (!more) {
            break;
        }
    }

    for (i = 0; i < n; i++) {
        process = &agent_processes[i];

        if (process->pid == keeper) {
            *ticks += process->buried;
        }

        if (!process->below) {
            continue;
        }

        *ticks += process->own + process->buried;

        if (process->alive) {
            count++;

            if (signal) {
                kill(process->pid, signal);
            }
        }
    }

    return count;
}


/* /proc lists them by their numbers */

static agent_process_t *
agent_descendants_find(pid_t pid, unsigned n)
{
    unsigned  from, to, middle;

    from = 0;
    to = n;

    while (from < to) {
        middle = (from + to) / 2;

        if (agent_processes[middle].pid < pid) {
            from = middle + 1;

        } else {
            to = middle;
        }
    }

    return from < n && agent_processes[from].pid == pid
           ? &agent_processes[from] : NULL;
}


static unsigned
agent_descendants_list(void)
{
    DIR            *dir;
    unsigned        n;
    struct dirent  *entry;

    dir = opendir("/proc");
    if (dir == NULL) {
        return 0;
    }

    n = 0;

    while (n < AGENT_DESCENDANTS_MOST) {
        entry = readdir(dir);
        if (entry == NULL) {
            break;
        }

        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9'
            && agent_descendants_read(dirfd(dir), entry->d_name,
                                      &agent_processes[n]))
        {
            n++;
        }
    }

    closedir(dir);

    return n;
}


/* "PID (NAME) STATE PPID PGRP SESSION ..."; the name may have any byte. */

static int
agent_descendants_read(int proc, const char *name, agent_process_t *process)
{
    int                 fd, parent, threads;
    char                path[32], text[512], *p, state;
    ssize_t             n;
    unsigned long long  user, system, buried_user, buried_system;

    if (snprintf(path, sizeof(path), "%s/stat", name) >= (int) sizeof(path)) {
        return 0;
    }

    fd = openat(proc, path, O_RDONLY|O_CLOEXEC);
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

    if (p == NULL
        || sscanf(p + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu "
                  "%llu %llu %llu %*d %*d %d", &state, &parent, &user,
                  &system, &buried_user, &buried_system, &threads) != 7)
    {
        return 0;
    }

    process->pid = atoi(name);
    process->parent = parent;
    process->below = 0;
    process->own = user + system;
    process->buried = buried_user + buried_system;

    /* one whose first thread has ended looks like a zombie */

    process->alive = (state != 'Z' && state != 'X') || threads > 1;

    return 1;
}
