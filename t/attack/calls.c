/*
 * Every system call of this architecture with arguments that do no harm, one
 * process each.  Prints "NUMBER KIND RESULT" lines: an errno, -1 for success,
 * or 1000 and the signal that ended it (1014: it would have waited).
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>


static char  zeros[4096];


static int
left_out(long n)
{
    /* they end, multiply, confuse or stop the process, allowed as they are */

    return n == SYS_exit || n == SYS_exit_group || n == SYS_rt_sigreturn
           || n == SYS_clone || n == SYS_pselect6 || n == SYS_ppoll
#ifdef SYS_fork
           || n == SYS_fork || n == SYS_vfork || n == SYS_select
           || n == SYS_pause
#endif
           ;
}


static void
attempt(long n, int kind)
{
    int    out[2], status, error;
    long   a, b, rc;
    pid_t  pid;

    if (pipe(out) == -1) {
        exit(1);
    }

    pid = fork();

    if (pid == 0) {
        close(out[0]);
        close(0);
        signal(SIGALRM, SIG_DFL);
        alarm(20);

        a = kind == 0 ? 0 : kind == 1 ? -1 : (long) zeros;
        b = kind == 2 ? (long) zeros + 2048 : a;

        errno = 0;
        rc = syscall(n, a, b, kind == 2 ? 0 : a, kind == 2 ? 0 : a, a, a);
        error = rc == -1 ? errno : -1;

        (void) !write(out[1], &error, sizeof(error));
        _exit(0);
    }

    close(out[1]);
    error = 0;

    if (waitpid(pid, &status, 0) != pid) {
        exit(1);
    }

    if (read(out[0], &error, sizeof(error)) != sizeof(error)) {
        error = WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : 999;
    }

    close(out[0]);
    printf("%ld %d %d\n", n, kind, error);
    fflush(stdout);
}


static void
other_abi(const char *name, int kind)
{
    int    status;
    pid_t  pid;

    pid = fork();

    if (pid == 0) {
#ifdef __x86_64__
        if (kind == 0) {
            long  rc = 20;
            __asm__ volatile ("int $0x80" : "+a" (rc) : : "memory");
        } else {
            syscall(0x40000000 + SYS_getpid);
        }
#else
        raise(SIGSYS);
#endif
        _exit(0);
    }

    waitpid(pid, &status, 0);
    printf("abi %s %d\n", name, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}


int
main(int argc, char **argv)
{
    long  n;
    int   kind;

    for (kind = 0; kind < 3; kind++) {
        for (n = 0; n < 600; n++) {
            if (!left_out(n)) {
                attempt(n, kind);
            }
        }
    }

    other_abi("int80", 0);
    other_abi("x32", 1);

    return 0;
}
