/*
 * Four chains of processes, each of which lives for microseconds: it forks
 * and ends.  A list of processes is old before it is read.
 */

#include "hide.h"


int
main(int argc, char **argv)
{
    int  i;

    for (i = 0; i < 4; i++) {
        if (fork() == 0) {
            setsid();
            ready();

            for ( ;; ) {
                if (fork() > 0) {
                    _exit(0);
                }
            }
        }
    }

    return 0;
}
