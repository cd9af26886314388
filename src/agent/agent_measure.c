/*
 * What the processes of the commands' user take, where no cgroup counts it.
 * The quick look adds up what the kernel counts for each process, so what
 * several of them share is in it several times.  The slow one, in a process
 * of its own, counts each page once.
 *
 * Knows no caps.
 */

#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_measure.h"


#define AGENT_MEASURE_MOST   16384       /* processes that are remembered */
#define AGENT_MEASURE_DEPTH  4096        /* generations */
#define AGENT_MEASURE_TEXT   4096        /* bytes of a status */
#define AGENT_MEASURE_THREADS 16         /* looked at for one that lives */
#define AGENT_MEASURE_KILLED 0x100       /* SIGKILL, of signals pending */
#define AGENT_MEASURE_TIME   5000        /* ms, for memory: others run, too */
#define AGENT_MEASURE_FILES  2000        /* ms, for files without a name */
#define AGENT_MEASURE_WALK   20000       /* ms, for the disk */


typedef struct {
    pid_t         pid;
    pid_t         parent;
    pid_t         speaker;               /* whose entries are to be read */
    unsigned      buried;                /* only its status is left */
    unsigned      tasks;
    uint64_t      own;
    uint64_t      tables;                /* of pages, in the kernel */
    uint64_t      shared;
} agent_measure_t;


typedef struct {
    uint64_t      own;
    uint64_t      shared;
    uint64_t      deadline;
} agent_measure_sum_t;


static int agent_measure_one(int proc, pid_t pid, void *data);
static int agent_measure_status(int proc, pid_t pid, agent_measure_t *m);
static int agent_measure_text(int proc, pid_t pid, const char *name,
    char *text, size_t size);
static uint64_t agent_measure_line(const char *text, const char *name,
    int base);
static const agent_measure_t *agent_measure_find(pid_t pid);
static uint64_t agent_measure_segments(void);
static pid_t agent_measure_fork(int *fd);
static void agent_measure_main(agent_measure_e what, int fd);
static int agent_measure_exact(int proc, pid_t pid, void *data);


static agent_measure_t  agent_measures[AGENT_MEASURE_MOST];
static unsigned         agent_measure_count;


/* where files are memory, if they are mounts of that kind */

static const char  *agent_measure_mounts[] = {
    "/dev/shm", "/tmp", "/var/tmp"
};


void
agent_measure_quick(agent_usage_t *usage)
{
    unsigned                i;
    const agent_measure_t  *m;

    memset(usage, 0, sizeof(agent_usage_t));
    agent_measure_count = 0;

    agent_measure_each(agent_measure_one, NULL, UINT64_MAX);

    for (i = 0; i < agent_measure_count; i++) {
        m = &agent_measures[i];

        /* what its keeper is about to bury is nobody's any more */

        if (m->buried && agent_measure_find(m->parent) == NULL) {
            continue;
        }

        usage->own += m->own + m->tables;
        usage->shared += m->shared;
        usage->tasks += m->tasks;
        usage->processes++;
    }

    usage->files = agent_measure_files() + agent_measure_segments();
}


void
agent_measure_share(pid_t keeper, uint64_t *bytes, uint64_t *tasks)
{
    pid_t                   parent;
    unsigned                i, depth;
    const agent_measure_t  *m;

    *bytes = 0;
    *tasks = 0;

    for (i = 0; i < agent_measure_count; i++) {
        parent = agent_measures[i].parent;

        for (depth = 0; parent != keeper && depth < AGENT_MEASURE_DEPTH;
             depth++)
        {
            m = agent_measure_find(parent);

            if (m == NULL) {
                break;
            }

            parent = m->parent;
        }

        if (parent == keeper) {
            *bytes += agent_measures[i].own + agent_measures[i].tables
                      + agent_measures[i].shared;
            *tasks += agent_measures[i].tasks;
        }
    }
}


void
agent_measure_each(int (*handler)(int proc, pid_t pid, void *data),
    void *data, uint64_t deadline)
{
    DIR            *dir;
    pid_t           pid;
    unsigned        n;
    struct dirent  *entry;

    dir = opendir("/proc");
    if (dir == NULL) {
        return;
    }

    for (n = 0; n < 4 * AGENT_MEASURE_MOST; n++) {
        entry = readdir(dir);
        if (entry == NULL) {
            break;
        }

        pid = entry->d_name[0] >= '1' && entry->d_name[0] <= '9'
              ? atoi(entry->d_name) : 0;

        if (pid > 1 && pid != getpid()
            && (!handler(dirfd(dir), pid, data)
                || (deadline != UINT64_MAX && agent_now_ms() > deadline)))
        {
            break;
        }
    }

    closedir(dir);
}


static int
agent_measure_one(int proc, pid_t pid, void *data)
{
    agent_measure_t  one;

    /* by their numbers, as /proc lists them */

    if (agent_measure_status(proc, pid, &one)
        && agent_measure_count < AGENT_MEASURE_MOST)
    {
        agent_measures[agent_measure_count++] = one;
    }

    return 1;
}


/*
 * 1: it is a process of the user's, and not about to end: keepers are root's,
 * and what was killed may need a while for it, but nothing else any more.
 */

static int
agent_measure_status(int proc, pid_t pid, agent_measure_t *m)
{
    char  text[AGENT_MEASURE_TEXT];

    if (!agent_measure_text(proc, pid, "status", text, sizeof(text))
        || agent_measure_line(text, "Uid", 10) == 0)
    {
        return 0;
    }

    m->buried = 0;
    m->speaker = pid;

    if (strstr(text, "\nVmSize:") == NULL) {
        m->speaker = agent_measure_speaker(proc, pid);
        m->buried = m->speaker == pid;

        if (m->buried && strstr(text, "\nState:\tZ") == NULL) {
            return 0;
        }

        if (!m->buried
            && !agent_measure_text(proc, m->speaker, "status", text,
                                   sizeof(text)))
        {
            return 0;
        }
    }

    if (agent_measure_line(text, "SigPnd", 16) & AGENT_MEASURE_KILLED) {
        return 0;
    }

    m->pid = pid;
    m->parent = (pid_t) agent_measure_line(text, "PPid", 10);
    m->tasks = (unsigned) agent_measure_line(text, "Threads", 10);
    m->own = (agent_measure_line(text, "RssAnon", 10)
              + agent_measure_line(text, "VmSwap", 10)) * 1024;
    m->tables = agent_measure_line(text, "VmPTE", 10) * 1024;
    m->shared = agent_measure_line(text, "RssShmem", 10) * 1024;

    return 1;
}


static int
agent_measure_text(int proc, pid_t pid, const char *name, char *text,
    size_t size)
{
    int      fd;
    char     path[48];
    ssize_t  n;

    snprintf(path, sizeof(path), "%d/%s", (int) pid, name);
    fd = openat(proc, path, O_RDONLY|O_CLOEXEC);

    if (fd == -1) {
        return 0;
    }

    n = read(fd, text + 1, size - 2);
    close(fd);

    if (n <= 0) {
        return 0;
    }

    text[0] = '\n';
    text[n + 1] = '\0';

    return 1;
}


/* The first number of a line "NAME: NUMBER ..."; 0: there is none. */

static uint64_t
agent_measure_line(const char *text, const char *name, int base)
{
    char         key[32];
    const char  *p;

    snprintf(key, sizeof(key), "\n%s:", name);
    p = strstr(text, key);

    return p == NULL ? 0 : strtoull(p + strlen(key), NULL, base);
}


/*
 * A process whose first thread has ended says nothing by its own number, but
 * by that of another thread.  pid: it has none.
 */

pid_t
agent_measure_speaker(int proc, pid_t pid)
{
    int             fd;
    DIR            *dir;
    char            path[32];
    pid_t           tid;
    unsigned        n;
    struct dirent  *entry;

    snprintf(path, sizeof(path), "%d/task", (int) pid);
    fd = openat(proc, path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = fd != -1 ? fdopendir(fd) : NULL;

    if (dir == NULL) {
        if (fd != -1) {
            close(fd);
        }

        return pid;
    }

    tid = pid;

    for (n = 0; n < AGENT_MEASURE_THREADS && tid == pid; n++) {
        entry = readdir(dir);

        if (entry == NULL) {
            break;
        }

        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
            tid = atoi(entry->d_name);
        }
    }

    closedir(dir);

    return tid;
}


static const agent_measure_t *
agent_measure_find(pid_t pid)
{
    unsigned  from, to, middle;

    from = 0;
    to = agent_measure_count;

    while (from < to) {
        middle = (from + to) / 2;

        if (agent_measures[middle].pid < pid) {
            from = middle + 1;

        } else {
            to = middle;
        }
    }

    return from < agent_measure_count && agent_measures[from].pid == pid
           ? &agent_measures[from] : NULL;
}


uint64_t
agent_measure_disk(uint64_t ms)
{
    uint64_t  deadline;

    deadline = agent_now_ms() + ms;

    return agent_measure_walk(AGENT_HOME, deadline)
           + agent_measure_walk("/tmp", deadline)
           + agent_measure_walk("/var/tmp", deadline);
}


uint64_t
agent_measure_files(void)
{
    uint64_t       sum;
    unsigned       i;
    struct statfs  fs;

    sum = 0;

    for (i = 0; i < sizeof(agent_measure_mounts) / sizeof(char *); i++) {
        if (statfs(agent_measure_mounts[i], &fs) == 0
            && fs.f_type == TMPFS_MAGIC && fs.f_blocks > fs.f_bfree)
        {
            sum += (uint64_t) (fs.f_blocks - fs.f_bfree) * fs.f_bsize;
        }
    }

    return sum;
}


int
agent_measure_memory(dev_t device)
{
    unsigned       i;
    struct stat    st;
    struct statfs  fs;

    for (i = 0; i < sizeof(agent_measure_mounts) / sizeof(char *); i++) {
        if (statfs(agent_measure_mounts[i], &fs) == 0
            && fs.f_type == TMPFS_MAGIC
            && stat(agent_measure_mounts[i], &st) == 0
            && st.st_dev == device)
        {
            return 1;
        }
    }

    return 0;
}


/* System V: segments, and messages that wait; lines of numbers. */

static uint64_t
agent_measure_segments(void)
{
    FILE                *file;
    char                 line[512];
    uint64_t             sum;
    unsigned             i, n;
    unsigned long long   resident, swapped;

    static const struct {
        const char  *path;
        const char  *format;
    } lists[] = {
        { "/proc/sysvipc/shm", "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                               "%*s %*s %*s %llu %llu" },
        { "/proc/sysvipc/msg", "%*s %*s %*s %llu" }
    };

    sum = 0;

    for (i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        file = fopen(lists[i].path, "re");

        if (file == NULL) {
            continue;
        }

        for (n = 0; n < 2 * AGENT_MEASURE_MOST; n++) {
            if (fgets(line, sizeof(line), file) == NULL) {
                break;
            }

            resident = 0;
            swapped = 0;

            if (sscanf(line, lists[i].format, &resident, &swapped) >= 1) {
                sum += resident + swapped;
            }
        }

        fclose(file);
    }

    return sum;
}


pid_t
agent_measure_start(agent_measure_e what, int *fd)
{
    pid_t  pid;

    pid = agent_measure_fork(fd);

    if (pid == 0) {
        agent_measure_main(what, *fd);
    }

    return pid;
}


/* In the child *fd is its end of a pipe, and nothing else is open. */

static pid_t
agent_measure_fork(int *fd)
{
    int    fds[2];
    pid_t  pid;

    if (pipe2(fds, O_CLOEXEC|O_NONBLOCK) == -1) {
        return -1;
    }

    pid = fork();

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        (void) dup3(fds[1], STDIN_FILENO, O_CLOEXEC);
        (void) close(STDOUT_FILENO);
        (void) syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
        *fd = STDIN_FILENO;
        return 0;
    }

    close(fds[1]);

    if (pid == -1) {
        close(fds[0]);
        return -1;
    }

    *fd = fds[0];

    return pid;
}


static void
agent_measure_main(agent_measure_e what, int fd)
{
    agent_measured_t     measured;
    agent_measure_sum_t  sum;

    memset(&measured, 0, sizeof(measured));
    memset(&sum, 0, sizeof(sum));

    if (what == AGENT_MEASURE_MEMORY) {
        sum.deadline = agent_now_ms() + AGENT_MEASURE_TIME;
        agent_measure_each(agent_measure_exact, &sum, UINT64_MAX);

        measured.own = sum.own;
        measured.shared = sum.shared;
        measured.files = agent_measure_files() + agent_measure_segments();
        agent_measure_nameless(&measured, agent_now_ms()
                                          + AGENT_MEASURE_FILES);

    } else {
        measured.disk = agent_measure_disk(AGENT_MEASURE_WALK);
    }

    (void) !write(fd, &measured, sizeof(measured));
    _exit(0);
}


/*
 * Pages by how many share them.  Who can't be looked into, or only when the
 * time is over, has all that he uses for himself.
 */

static int
agent_measure_exact(int proc, pid_t pid, void *data)
{
    int                   got;
    char                  text[AGENT_MEASURE_TEXT];
    agent_measure_t       one;
    agent_measure_sum_t  *sum;

    sum = data;

    if (!agent_measure_status(proc, pid, &one)) {
        return 1;
    }

    got = 0;

    if (agent_now_ms() < sum->deadline) {

        /* the kernel lets him see it to whom it belongs */

        agent_directory_user(1);
        got = agent_measure_text(proc, one.speaker, "smaps_rollup", text,
                                 sizeof(text));
        agent_directory_user(0);
    }

    if (got && strstr(text, "\nPss_Anon:") != NULL) {
        one.own = (agent_measure_line(text, "Pss_Anon", 10)
                   + agent_measure_line(text, "SwapPss", 10)) * 1024;
        one.shared = agent_measure_line(text, "Pss_Shmem", 10) * 1024;
    }

    sum->own += one.own + one.tables;
    sum->shared += one.shared;

    return 1;
}
