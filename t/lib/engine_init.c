/*
 * The first process of a fake engine's container when the program is not:
 * starts it, buries what is left to it, ends as it did.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>


int
main(int argc, char **argv)
{
    int    status;
    pid_t  child, pid;

    if (argc < 2) {
        return 1;
    }

    child = fork();

    if (child == 0) {
        execvp(argv[1], argv + 1);
        fprintf(stderr, "fork/exec %s: %s\n", argv[1], strerror(errno));
        _exit(1);
    }

    for ( ;; ) {
        pid = wait(&status);

        if (pid == child) {
            return WIFEXITED(status) ? WEXITSTATUS(status)
                                     : 128 + WTERMSIG(status);
        }

        if (pid == -1 && errno != EINTR) {
            return 1;
        }
    }
}
