/* The first thread has ended, so ps shows a zombie; the others go on. */

#include "hide.h"


static void *
thread(void *data)
{
    usleep(50000);
    ready();
    forever();
    return NULL;
}


int
main(int argc, char **argv)
{
    int        i;
    pthread_t  id;

    background(argc);

    for (i = 0; i < 4; i++) {
        pthread_create(&id, NULL, thread, NULL);
    }

    syscall(SYS_exit, 0);
}
