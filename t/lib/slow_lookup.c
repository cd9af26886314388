/*
 * For LD_PRELOAD in tests: every lookup of a name takes SLOW_LOOKUP seconds,
 * and says so on a line of stderr when it begins.
 */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <netdb.h>
#include <time.h>
#include <unistd.h>

#ifndef SLOW_LOOKUP
#define SLOW_LOOKUP 20
#endif


int
getaddrinfo(const char *node, const char *service,
    const struct addrinfo *hints, struct addrinfo **res)
{
    struct timespec  t = { SLOW_LOOKUP, 0 };
    int            (*real)(const char *, const char *,
                           const struct addrinfo *, struct addrinfo **);

    (void) !write(STDERR_FILENO, "slow lookup\n", 12);

    while (nanosleep(&t, &t) != 0) {
        continue;
    }

    *(void **) &real = dlsym(RTLD_NEXT, "getaddrinfo");

    return real(node, service, hints, res);
}
