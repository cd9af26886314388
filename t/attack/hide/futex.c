/* Sixteen threads at a futex that nobody wakes, all signals blocked. */

#include "hide.h"

#include <linux/futex.h>


static int  word;


static void *
thread(void *data)
{
    for ( ;; ) {
        syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
    }

    return NULL;
}


int
main(int argc, char **argv)
{
    int        i;
    sigset_t   all;
    pthread_t  id;

    background(argc);

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);

    for (i = 0; i < 15; i++) {
        pthread_create(&id, NULL, thread, NULL);
    }

    ready();
    thread(NULL);
}
