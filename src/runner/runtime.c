/*
 * Running crun or runc.  Knows their command lines and nothing else of them.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "child.h"
#include "devices.h"
#include "file.h"
#include "runtime.h"
#include "sandbox_control.h"
#include "words.h"


#define RUNNER_RUNTIME_WAIT  30000               /* ms */
#define RUNNER_RUNTIME_FDS   5                   /* from 3 on */


static int runner_runtime_version(runner_runtime_t *runtime,
    runner_error_t *err);
static int runner_runtime_exec(char **argv, int out, int errors,
    const int *fds, int cgroup, uint64_t descriptors);
static void runner_runtime_child(char **argv, int out, int errors,
    const int *fds);
static int runner_runtime_container(uint64_t descriptors);
static int runner_runtime_wait(pid_t pid, int pidfd);


static char  *runner_runtime_env[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/", NULL
};


int
runner_runtime_find(runner_runtime_t *runtime, const char *name,
    runner_error_t *err)
{
    size_t  i;

    static const char  *dirs[] = {
        "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin",
        "/bin"
    };

    if (strchr(name, '/') != NULL) {
        if (realpath(name, runtime->path) == NULL) {
            return runner_error(err, "no_runtime", errno, "there is no \"%s\"",
                                name);
        }

        return runner_runtime_version(runtime, err);
    }

    for (i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        snprintf(runtime->path, sizeof(runtime->path), "%s/%s", dirs[i], name);

        if (access(runtime->path, X_OK) == 0) {
            return runner_runtime_version(runtime, err);
        }
    }

    return runner_error(err, "no_runtime", 0, "there is no %s.  Remedy: "
                        "apt-get install crun", name);
}


static int
runner_runtime_version(runner_runtime_t *runtime, runner_error_t *err)
{
    int      ends[2], status, i, j;
    char     text[256], *p;
    char    *argv[] = { runtime->path, "--version", NULL };
    ssize_t  n;

    if (pipe2(ends, O_CLOEXEC) == -1) {
        return runner_error(err, "no_descriptors", errno, "pipe");
    }

    status = runner_runtime_exec(argv, ends[1], ends[1], NULL, -1, 0);

    close(ends[1]);
    n = read(ends[0], text, sizeof(text) - 1);
    close(ends[0]);

    if (status != 0 || n <= 0) {
        return runner_error(err, "no_runtime", 0, "\"%s --version\" failed",
                            runtime->path);
    }

    text[n] = '\0';

    /* "crun version 1.8.1\ncommit: ...": the first and third word */

    p = strstr(text, " version ");

    if (p == NULL) {
        snprintf(runtime->version, sizeof(runtime->version), "%.20s",
                 strrchr(runtime->path, '/') + 1);
        return 0;
    }

    i = snprintf(runtime->version, sizeof(runtime->version), "%.*s ",
                 (int) (p - text) < 20 ? (int) (p - text) : 20, text);
    p += 9;

    for (j = 0; j < 30 && p[j] > ' '; j++) {
        runtime->version[i++] = p[j];
    }

    runtime->version[i] = '\0';

    return 0;
}


pid_t
runner_runtime_run(runner_runtime_t *runtime, unsigned number, int bundle,
    int log, int control, int history, const runner_cgroup_t *group,
    runner_error_t *err)
{
    int       fds[RUNNER_RUNTIME_FDS], status;
    char      name[64], path[PATH_MAX], pid_file[PATH_MAX + 8], link[64];
    char      said[1024];
    ssize_t   n;
    uint64_t  pid;

    char  *argv[] = {
        runtime->path, "--root", runtime->state, "run", "--detach",
        "--bundle", path, "--pid-file", pid_file, "--preserve-fds", "5",
        name, NULL
    };

    char  *argv_crun[] = {
        runtime->path, "--cgroup-manager=cgroupfs", "--root", runtime->state,
        "run", "--detach", "--bundle", path, "--pid-file", pid_file,
        "--preserve-fds", "5", name, NULL
    };

    snprintf(link, sizeof(link), "/proc/self/fd/%d", bundle);
    n = readlink(link, path, sizeof(path) - 1);

    if (n <= 0) {
        return runner_error(err, "internal", errno, "readlink");
    }

    path[n] = '\0';
    snprintf(pid_file, sizeof(pid_file), "%s/pid", path);
    snprintf(name, sizeof(name), "%s%u", runtime->prefix, number);

    (void) unlinkat(bundle, "pid", 0);

    fds[SANDBOX_FD_CONTROL - 3] = control;
    fds[SANDBOX_FD_CGROUP - 3] = group->dir;
    fds[SANDBOX_FD_OOM - 3] = group->oom;
    fds[SANDBOX_FD_PEAK - 3] = group->peak;
    fds[SANDBOX_FD_HISTORY - 3] = history;

    status = runner_runtime_exec(strncmp(runtime->version, "crun", 4) == 0
                                 ? argv_crun : argv,
                                 -1, log, fds,
                                 group->leaf != -1 ? group->leaf : group->dir,
                                 runtime->descriptors);

    if (status == 0
        && (n = runner_file_read(bundle, "pid", said, sizeof(said))) > 0)
    {
        if (said[n - 1] == '\n') {
            said[n - 1] = '\0';
        }

        if (runner_number(said, INT32_MAX, &pid) == 0 && pid > 1) {
            return pid;
        }
    }

    runner_words_read(log, said, sizeof(said));

    return runner_error(err, "runtime_failed", 0, "%s could not run a "
                        "container (status %d): %s.  Remedy: run on the host "
                        "itself, as root with all capabilities, or try "
                        "--runtime with the other one of crun and runc",
                        runtime->version, status, said);
}


void
runner_runtime_delete(runner_runtime_t *runtime, unsigned number)
{
    int          dir;
    char         name[64], path[PATH_MAX + 80];
    struct stat  st;

    char  *argv[] = {
        runtime->path, "--root", runtime->state, "delete", "--force", name,
        NULL
    };

    snprintf(name, sizeof(name), "%s%u", runtime->prefix, number);
    snprintf(path, sizeof(path), "%s/%s", runtime->state, name);

    if (stat(path, &st) == -1) {
        return;
    }

    if (runner_runtime_exec(argv, -1, -1, NULL, -1, 0) == 0) {
        return;
    }

    /* its processes are dead by now; what it has written is all that is left */

    dir = open(runtime->state, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir != -1) {
        (void) runner_remove_tree(dir, name);
        close(dir);
    }
}


/* Exit status of the program, -1 if it could not be run or ended. */

static int
runner_runtime_exec(char **argv, int out, int errors, const int *fds,
    int cgroup, uint64_t descriptors)
{
    int                pidfd, status;
    pid_t              pid;
    struct clone_args  args;

    static const char  failed[] = "the limits or devices of a container can't "
                                  "be made";

    memset(&args, 0, sizeof(args));
    pidfd = -1;

    args.flags = CLONE_PIDFD;
    args.pidfd = (uintptr_t) &pidfd;
    args.exit_signal = SIGCHLD;

    if (fds != NULL) {

        /* what it finds in /dev goes into the container */

        args.flags |= CLONE_NEWNS;
    }

    if (cgroup != -1) {

        /* born in its group, it never has to be moved, which is slow */

        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup;
    }

    runner_child_begin();

    pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0) {
        if (fds == NULL || runner_runtime_container(descriptors) == 0) {
            runner_runtime_child(argv, out, errors, fds);

        } else {
            (void) !write(errors, failed, sizeof(failed) - 1);
        }

        _exit(127);
    }

    status = pid == -1 ? -1 : runner_runtime_wait(pid, pidfd);

    runner_child_end();

    return status;
}


/* between clone and exec of a process with threads: system calls only */

static void
runner_runtime_child(char **argv, int out, int errors, const int *fds)
{
    int       i, null, copies[RUNNER_RUNTIME_FDS + 2];
    sigset_t  set;

    null = open("/dev/null", O_RDWR);
    if (null == -1) {
        return;
    }

    /* all copies lie above the places that they go to */

    copies[0] = fcntl(out == -1 ? null : out, F_DUPFD, 32);
    copies[1] = fcntl(errors == -1 ? null : errors, F_DUPFD, 32);

    for (i = 0; fds != NULL && i < RUNNER_RUNTIME_FDS; i++) {
        copies[2 + i] = fds[i] == -1 ? -1 : fcntl(fds[i], F_DUPFD, 32);
    }

    dup2(null, 0);
    dup2(copies[0], 1);
    dup2(copies[1], 2);

    for (i = 0; fds != NULL && i < RUNNER_RUNTIME_FDS; i++) {
        if (copies[2 + i] == -1) {
            dup2(null, 3 + i);

        } else {
            dup2(copies[2 + i], 3 + i);
        }
    }

    syscall(SYS_close_range, fds == NULL ? 3 : 3 + RUNNER_RUNTIME_FDS, ~0U, 0);

    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    setsid();

    execve(argv[0], argv, runner_runtime_env);
}


/*
 * What a container inherits.  Of limits one of a byte for cores: none is
 * written, as with 0, but with 0 the kernel would still start the program of
 * the host's core_pattern.  Where root may not raise it, it is 0.
 */

static int
runner_runtime_container(uint64_t descriptors)
{
    struct rlimit  limit;

    limit.rlim_cur = descriptors;
    limit.rlim_max = descriptors;

    if (setrlimit(RLIMIT_NOFILE, &limit) == -1) {
        return -1;
    }

    limit.rlim_cur = 1;
    limit.rlim_max = 1;

    if (setrlimit(RLIMIT_CORE, &limit) == -1) {
        limit.rlim_cur = 0;
        limit.rlim_max = 0;

        if (setrlimit(RLIMIT_CORE, &limit) == -1) {
            return -1;
        }
    }

    return runner_devices_mount();
}


static int
runner_runtime_wait(pid_t pid, int pidfd)
{
    int            n, status;
    struct pollfd  p;

    p.fd = pidfd;
    p.events = POLLIN;

    do {
        n = poll(&p, 1, RUNNER_RUNTIME_WAIT);
    } while (n == -1 && errno == EINTR);

    if (n == 0) {
        kill(pid, SIGKILL);
    }

    close(pidfd);

    while (waitpid(pid, &status, 0) == -1) {
        if (errno != EINTR) {
            return -1;
        }
    }

    return n == 1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
