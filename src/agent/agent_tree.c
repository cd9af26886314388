/*
 * The processes of one command.  With a delegated cgroup2 directory each
 * command has a directory of its own: nothing leaves it, one write ends it,
 * and its time is counted, however its processes fork.  Without one it is
 * what is below the command's keeper.
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

#include "agent_keeper.h"


#define AGENT_TREE_ABANDONED  64
#define AGENT_TREE_LIST       (1024 * 1024)      /* bytes of cgroup.procs */


static unsigned agent_tree_each(agent_tree_t *tree, int number);
static int agent_tree_open(agent_tree_t *tree);
static void agent_tree_close(agent_tree_t *tree);
static int agent_tree_remove(unsigned number);
static uint64_t agent_tree_usage(agent_tree_t *tree);


static int           agent_tree_root = -1;
static unsigned      agent_tree_last;
static agent_tree_t  agent_tree_spare;   /* an empty one, for the next */
static unsigned      agent_tree_abandoned[AGENT_TREE_ABANDONED];
static unsigned      agent_tree_abandoned_count;


void
agent_tree_init(int fd)
{
    agent_tree_root = fd;

    if (fd != -1 && agent_tree_open(&agent_tree_spare) == -1) {
        agent_log("cgroup2 directory can't be used, error %d; it must be "
                  "delegated to this user namespace and have cgroup.kill "
                  "(Linux 5.14)", errno);
        close(fd);
        agent_tree_root = -1;
    }

    if (agent_tree_root == -1 && agent_keeper_init() == -1) {
        agent_log("no pipe for keepers of processes, error %d", errno);
    }
}


int
agent_tree_take(agent_tree_t *tree)
{
    memset(tree, 0, sizeof(agent_tree_t));
    tree->directory = -1;

    if (agent_tree_root == -1) {
        return 0;
    }

    if (agent_tree_spare.number) {
        *tree = agent_tree_spare;
        agent_tree_spare.number = 0;
        return 0;
    }

    return agent_tree_open(tree);
}


int
agent_tree_release(agent_tree_t *tree)
{
    if (tree->number == 0) {
        return tree->keeper == 0 || agent_descendants_count(tree->keeper) == 0;
    }

    if (agent_tree_left(tree)) {
        return 0;
    }

    tree->keeper = 0;
    tree->empty = 0;

    /*
     * One is kept, so that the next command need not wait for mkdir; but
     * the kernel may still kill what is cloned into one that was killed.
     */

    if (agent_tree_spare.number == 0 && !tree->killed) {
        tree->cpu_base = tree->usage;
        agent_tree_spare = *tree;

    } else {
        agent_tree_abandon(tree);
    }

    tree->number = 0;

    return 1;
}


void
agent_tree_abandon(agent_tree_t *tree)
{
    unsigned  i, n;

    if (tree->number == 0) {
        return;
    }

    agent_tree_close(tree);

    if (agent_tree_abandoned_count < AGENT_TREE_ABANDONED) {
        agent_tree_abandoned[agent_tree_abandoned_count++] = tree->number;

    } else {
        agent_log("cgroup2 directory c%u is busy and is left to the runner: "
                  "%d are so already", tree->number, AGENT_TREE_ABANDONED);
    }

    tree->number = 0;

    /* a directory is busy until the kernel is done with its last process */

    n = 0;

    for (i = 0; i < agent_tree_abandoned_count; i++) {
        if (agent_tree_remove(agent_tree_abandoned[i]) == -1) {
            agent_tree_abandoned[n++] = agent_tree_abandoned[i];
        }
    }

    agent_tree_abandoned_count = n;
}


unsigned
agent_tree_count(agent_tree_t *tree)
{
    if (tree->number == 0) {
        return tree->keeper ? agent_descendants_count(tree->keeper) : 0;
    }

    return agent_tree_each(tree, 0);
}


unsigned
agent_tree_left(agent_tree_t *tree)
{
    unsigned  count;

    if (tree->empty) {
        return 0;
    }

    count = agent_tree_count(tree);

    if (count == 0 && tree->number) {
        tree->usage = agent_tree_usage(tree);
        tree->empty = 1;
    }

    return count;
}


int
agent_tree_events(agent_tree_t *tree)
{
    int   fd;
    char  text[128];

    if (tree->number == 0) {
        return -1;
    }

    fd = openat(tree->directory, "cgroup.events", O_RDONLY|O_CLOEXEC);

    /* an event is a change since the last reading */

    if (fd != -1) {
        (void) !pread(fd, text, sizeof(text), 0);
    }

    return fd;
}


void
agent_tree_kill(agent_tree_t *tree)
{
    if (tree->number == 0) {
        if (tree->keeper) {
            agent_descendants_kill(tree->keeper);
        }

        return;
    }

    tree->killed = 1;

    if (pwrite(tree->kill, "1", 1, 0) != 1) {
        agent_log("cgroup.kill: error %d", errno);
    }

    (void) agent_tree_each(tree, SIGKILL);
}


uint64_t
agent_tree_cpu(agent_tree_t *tree)
{
    uint64_t  usage;

    if (tree->number == 0) {

        /* nothing is left of it once the keeper is gone */

        usage = tree->keeper ? agent_descendants_cpu(tree->keeper) : 0;

        if (usage > tree->usage) {
            tree->usage = usage;
        }

        return tree->usage;
    }

    usage = tree->empty ? tree->usage : agent_tree_usage(tree);

    return usage > tree->cpu_base ? usage - tree->cpu_base : 0;
}


/*
 * Counts the processes, and sends each a signal that is not 0.  The kernel's
 * cgroup.kill signals first threads, not processes: one whose first thread
 * has ended lives through it.
 */

static unsigned
agent_tree_each(agent_tree_t *tree, int number)
{
    char      text[4096];
    pid_t     pid;
    off_t     offset;
    ssize_t   i, n;
    unsigned  count;

    pid = 0;
    count = 0;

    for (offset = 0; offset < AGENT_TREE_LIST; offset += n) {
        n = pread(tree->procs, text, sizeof(text), offset);
        if (n <= 0) {
            break;
        }

        for (i = 0; i < n; i++) {
            if (text[i] != '\n') {
                pid = pid * 10 + (text[i] - '0');
                continue;
            }

            count++;

            /* 0 is one that this pid namespace does not have */

            if (number && pid > 1) {
                kill(pid, number);
            }

            pid = 0;
        }
    }

    return count;
}


static int
agent_tree_open(agent_tree_t *tree)
{
    int   error;
    char  name[16];

    memset(tree, 0, sizeof(agent_tree_t));
    tree->number = ++agent_tree_last;

    snprintf(name, sizeof(name), "c%u", tree->number);

    if (mkdirat(agent_tree_root, name, 0755) == -1 && errno != EEXIST) {
        tree->number = 0;
        return -1;
    }

    tree->procs = -1;
    tree->kill = -1;
    tree->stat = -1;
    tree->directory = openat(agent_tree_root, name,
                             O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (tree->directory != -1) {
        tree->procs = openat(tree->directory, "cgroup.procs",
                             O_RDONLY|O_CLOEXEC);
        tree->kill = openat(tree->directory, "cgroup.kill",
                            O_WRONLY|O_CLOEXEC);
        tree->stat = openat(tree->directory, "cpu.stat",
                            O_RDONLY|O_CLOEXEC);
    }

    if (tree->procs == -1 || tree->kill == -1 || tree->stat == -1) {
        error = errno;
        agent_tree_close(tree);
        agent_tree_remove(tree->number);
        tree->number = 0;
        errno = error;
        return -1;
    }

    /* one of an agent before this one had used time */

    tree->cpu_base = agent_tree_usage(tree);

    return 0;
}


static void
agent_tree_close(agent_tree_t *tree)
{
    int  i, *fds[4];

    fds[0] = &tree->directory;
    fds[1] = &tree->procs;
    fds[2] = &tree->kill;
    fds[3] = &tree->stat;

    for (i = 0; i < 4; i++) {
        if (*fds[i] != -1) {
            close(*fds[i]);
            *fds[i] = -1;
        }
    }
}


static int
agent_tree_remove(unsigned number)
{
    char  name[16];

    snprintf(name, sizeof(name), "c%u", number);

    if (unlinkat(agent_tree_root, name, AT_REMOVEDIR) == -1
        && errno == EBUSY)
    {
        return -1;
    }

    return 0;
}


/* "usage_usec N" is there without a cpu controller, too. */

static uint64_t
agent_tree_usage(agent_tree_t *tree)
{
    char     text[512];
    ssize_t  n;

    n = pread(tree->stat, text, sizeof(text) - 1, 0);
    if (n <= 0) {
        return 0;
    }

    text[n] = '\0';

    return strncmp(text, "usage_usec ", 11) == 0 ? strtoull(text + 11, NULL, 10)
                                                 : 0;
}
