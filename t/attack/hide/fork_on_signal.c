/* Every signal makes one more of it. */

#include "hide.h"


static void
again(int number)
{
    if (fork() == 0) {
        setsid();
    }
}


int
main(int argc, char **argv)
{
    int  number;

    background(argc);

    for (number = 1; number < NSIG; number++) {
        signal(number, again);
    }

    kill(getpid(), SIGTERM);
    kill(getpid(), SIGHUP);
    ready();
    forever();
}
