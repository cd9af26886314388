/*
 * Reaping without taking the status of a child that a thread waits for.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>

#include "child.h"


#define RUNNER_CHILD_TURN  1024                  /* orphans at once */


/* read: a child is waited for; write: there is none */

static pthread_rwlock_t  runner_child_lock = PTHREAD_RWLOCK_INITIALIZER;


void
runner_child_begin(void)
{
    pthread_rwlock_rdlock(&runner_child_lock);
}


void
runner_child_end(void)
{
    pthread_rwlock_unlock(&runner_child_lock);
}


void
runner_child_reap(void)
{
    int  n;

    if (pthread_rwlock_trywrlock(&runner_child_lock) != 0) {
        return;
    }

    for (n = 0; n < RUNNER_CHILD_TURN; n++) {
        if (waitpid(-1, NULL, WNOHANG) <= 0) {
            break;
        }
    }

    pthread_rwlock_unlock(&runner_child_lock);
}
