/* Threads that call exec, over and over: another one's id is taken over. */

#include "hide.h"


static char  **program;


static void *
thread(void *data)
{
    execv("/proc/self/exe", program);
    return NULL;
}


int
main(int argc, char **argv)
{
    int        i;
    pthread_t  id;

    program = argv;

    if (getenv("HIDE_AGAIN") == NULL) {
        background(argc);
        setsid();
        setenv("HIDE_AGAIN", "1", 1);
        ready();
    }

    for (i = 0; i < 3; i++) {
        pthread_create(&id, NULL, thread, NULL);
    }

    forever();
}
