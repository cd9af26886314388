/* Orphans come to a process of the user, never to process 1. */

#include "hide.h"


int
main(int argc, char **argv)
{
    int  i;

    background(argc);

    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);

    for (i = 0; i < 4; i++) {
        if (fork() == 0) {
            setsid();

            if (fork() == 0) {
                forever();
            }

            _exit(0);
        }
    }

    for (i = 0; i < 4; i++) {
        wait(NULL);
    }

    ready();

    for ( ;; ) {
        if (wait(NULL) == -1) {
            pause();
        }
    }
}
