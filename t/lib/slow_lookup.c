/*
 * For LD_PRELOAD in tests: every lookup of a name takes SLOW_LOOKUP seconds,
 * and says so on a line of stderr when it begins.  All of them return when the
 * process is about to end, within exit(), which waits for that.
 */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifndef SLOW_LOOKUP
#define SLOW_LOOKUP 20
#endif


static int  lookups, ending;


static void
pause_ms(int ms)
{
    struct timespec  t = { ms / 1000, ms % 1000 * 1000000L };

    (void) nanosleep(&t, NULL);
}


int
getaddrinfo(const char *node, const char *service,
    const struct addrinfo *hints, struct addrinfo **res)
{
    int    n, (*real)(const char *, const char *,
                      const struct addrinfo *, struct addrinfo **);

    (void) !write(STDERR_FILENO, "slow lookup\n", 12);

    __atomic_add_fetch(&lookups, 1, __ATOMIC_SEQ_CST);

    for (n = 0; n < SLOW_LOOKUP * 100; n++) {
        if (__atomic_load_n(&ending, __ATOMIC_SEQ_CST)) {
            __atomic_sub_fetch(&lookups, 1, __ATOMIC_SEQ_CST);
            return EAI_AGAIN;
        }

        pause_ms(10);
    }

    __atomic_sub_fetch(&lookups, 1, __ATOMIC_SEQ_CST);

    *(void **) &real = dlsym(RTLD_NEXT, "getaddrinfo");

    return real(node, service, hints, res);
}


void
exit(int status)
{
    int     n;
    void  (*real)(int) __attribute__((noreturn));

    if (__atomic_load_n(&lookups, __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&ending, 1, __ATOMIC_SEQ_CST);

        for (n = 0; n < 500; n++) {
            if (__atomic_load_n(&lookups, __ATOMIC_SEQ_CST) == 0) {
                break;
            }

            pause_ms(10);
        }

        pause_ms(300);
    }

    *(void **) &real = dlsym(RTLD_NEXT, "exit");

    real(status);
}
