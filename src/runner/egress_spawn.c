/*
 * The proxy as a program: its arguments, its start, and what it is given as a
 * file.  Knows no sandboxes and no policies.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "egress_channel.h"
#include "egress_child.h"
#include "file.h"
#include "idmap.h"
#include "log.h"


#define RUNNER_EGRESS_ROOT    RUNNER_SHARED_DIR "/empty"
#define RUNNER_EGRESS_USER    "sandbox-egress"
#define RUNNER_EGRESS_ID      0x6fff0000u        /* below those of sandboxes */
#define RUNNER_EGRESS_DIGITS  16
#define RUNNER_EGRESS_WORDS   (16 + 2 * (RUNNER_EGRESS_MAX_ALLOW             \
                                         + RUNNER_EGRESS_MAX_PORTS))


static int runner_egress_arguments(const runner_options_t *options,
    const char **argv, char *path, char *uid, char *gid);
static int runner_egress_program(const runner_options_t *options, char *path);
static void runner_egress_child(const char **argv, int channel);


int
runner_egress_spawn(const runner_options_t *options, int channel)
{
    int                 pidfd;
    char                path[PATH_MAX], uid[RUNNER_EGRESS_DIGITS];
    char                gid[RUNNER_EGRESS_DIGITS];
    pid_t               pid;
    const char         *argv[RUNNER_EGRESS_WORDS];
    struct clone_args   args;

    if (runner_mkdirs(RUNNER_EGRESS_ROOT, 0555) == -1
        || runner_egress_arguments(options, argv, path, uid, gid) == -1)
    {
        return -1;
    }

    if (access(argv[0], X_OK) == -1) {
        runner_log(RUNNER_LOG_ERROR, "the proxy \"%s\" can't be run: %s.  "
                   "Remedy: make, or --egress FILE", argv[0],
                   strerror(errno));
        return -1;
    }

    memset(&args, 0, sizeof(args));
    pidfd = -1;

    args.flags = CLONE_PIDFD;
    args.pidfd = (uintptr_t) &pidfd;
    args.exit_signal = SIGCHLD;

    /* nobody waits for it: its end is that of the channel, then it is reaped */

    pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0) {
        runner_egress_child(argv, channel);
        _exit(127);
    }

    return pid == -1 ? -1 : pidfd;
}


static int
runner_egress_arguments(const runner_options_t *options, const char **argv,
    char *path, char *uid, char *gid)
{
    unsigned        i, n;
    struct passwd  *user;

    if (runner_egress_program(options, path) == -1) {
        return -1;
    }

    user = getpwnam(options->egress_user ? options->egress_user
                                         : RUNNER_EGRESS_USER);

    snprintf(uid, RUNNER_EGRESS_DIGITS, "%u",
             user ? user->pw_uid : RUNNER_EGRESS_ID);
    snprintf(gid, RUNNER_EGRESS_DIGITS, "%u",
             user ? user->pw_gid : RUNNER_EGRESS_ID);

    n = 0;
    argv[n++] = path;
    argv[n++] = "--root";
    argv[n++] = RUNNER_EGRESS_ROOT;
    argv[n++] = "--uid";
    argv[n++] = uid;
    argv[n++] = "--gid";
    argv[n++] = gid;

    if (options->egress_resolver != NULL) {
        argv[n++] = "--resolver";
        argv[n++] = options->egress_resolver;
    }

    for (i = 0; i < options->negress_allow; i++) {
        argv[n++] = "--allow-address";
        argv[n++] = options->egress_allow[i];
    }

    for (i = 0; i < options->negress_ports; i++) {
        argv[n++] = "--allow-port";
        argv[n++] = options->egress_ports[i];
    }

    argv[n] = NULL;

    return 0;
}


/* beside the runner, unless an option says otherwise */

static int
runner_egress_program(const runner_options_t *options, char *path)
{
    char     *slash;
    ssize_t   n;

    static const char  name[] = "/sandbox-egress";

    if (options->egress[0]) {
        strcpy(path, options->egress);
        return 0;
    }

    n = readlink("/proc/self/exe", path, PATH_MAX - sizeof(name));
    if (n == -1) {
        return -1;
    }

    path[n] = '\0';
    slash = strrchr(path, '/');

    if (slash == NULL) {
        return -1;
    }

    strcpy(slash, name);

    return 0;
}


/* between clone and exec of a process with threads: system calls only */

static void
runner_egress_child(const char **argv, int channel)
{
    int       null, copy;
    sigset_t  set;

    static char  *none[] = { NULL };

    null = open("/dev/null", O_RDWR);
    copy = fcntl(channel, F_DUPFD, 32);

    if (null == -1 || copy == -1) {
        return;
    }

    dup2(null, 0);
    dup2(null, 1);
    dup2(copy, EGRESS_FD_CHANNEL);

    syscall(SYS_close_range, EGRESS_FD_CHANNEL + 1, ~0U, 0);

    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    setsid();

    execve(argv[0], (char **) argv, none);
}


int
runner_egress_memfd(const void *p, size_t size)
{
    int  fd;

    fd = memfd_create("egress", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd != -1
        && (write(fd, p, size) != (ssize_t) size
            || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL|F_SEAL_SHRINK|F_SEAL_GROW
                                      |F_SEAL_WRITE) == -1))
    {
        close(fd);
        fd = -1;
    }

    return fd;
}
