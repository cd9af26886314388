/* The classic daemon: every descriptor closed, empty environment and argv. */

#include "hide.h"


int
main(int argc, char **argv)
{
    char  *none[1] = { NULL };

    background(argc);
    setsid();
    signal(SIGHUP, SIG_IGN);

    if (fork() != 0) {
        return 0;
    }

    (void) !chdir("/");
    ready();
    syscall(SYS_close_range, 0, ~0U, 0);

    if (getenv("HIDE_READY") != NULL) {
        execve("/proc/self/exe", none, none);
    }

    forever();
}
