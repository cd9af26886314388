/*
 * Log lines on standard error, for the operator.  Nothing of what a client
 * or a command sent belongs here.
 */

#include "agent.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>


#define AGENT_LOG_LINE    512
#define AGENT_LOG_SECOND  50


void
agent_log(const char *format, ...)
{
    int              n;
    char             line[AGENT_LOG_LINE];
    va_list          args;
    uint64_t         now;
    struct pollfd    p;
    static unsigned  lines;
    static uint64_t  second;

    now = agent_now_ms() / 1000;

    if (now != second) {
        second = now;
        lines = 0;
    }

    if (lines++ >= AGENT_LOG_SECOND) {
        return;
    }

    n = snprintf(line, sizeof(line), "sandbox-agent: ");

    va_start(args, format);
    n += vsnprintf(line + n, sizeof(line) - n - 1, format, args);
    va_end(args);

    if (n > (int) sizeof(line) - 2) {
        n = sizeof(line) - 2;
    }

    line[n++] = '\n';

    /*
     * Standard error may be a pipe that nobody reads any more: what is
     * writable takes a short line whole, the rest is dropped.
     */

    p.fd = STDERR_FILENO;
    p.events = POLLOUT;

    if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT)) {
        (void) !write(STDERR_FILENO, line, n);
    }
}
