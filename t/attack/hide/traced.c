/* A process stopped under a tracer, which is stopped itself. */

#include "hide.h"


int
main(int argc, char **argv)
{
    int    status;
    pid_t  pid;

    background(argc);

    setsid();
    pid = fork();

    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        forever();
    }

    /* each signal is taken from it and never passed on */

    waitpid(pid, &status, 0);
    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *) PTRACE_O_TRACEEXIT);

    if (fork() == 0) {
        usleep(50000);
        ready();
        forever();
    }

    raise(SIGSTOP);

    for ( ;; ) {
        if (waitpid(pid, &status, 0) == -1) {
            pause();
        }
    }
}
