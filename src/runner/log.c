/*
 * The runner's log.  Knows no configuration but a level.
 */

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "log.h"
#include "sandbox_utf8.h"


static const char          *runner_log_names[] = {
    "error", "warn", "notice", "info", "debug"
};
static runner_log_level_e   runner_log_max = RUNNER_LOG_NOTICE;

runner_log_limit_t  runner_log_sandboxes = { 0, 0, 20, 0 };


void
runner_log_set_level(runner_log_level_e level)
{
    runner_log_max = level;
}


int
runner_log_level(const char *name)
{
    int  i;

    for (i = 0; i < RUNNER_LOG_LAST; i++) {
        if (strcmp(runner_log_names[i], name) == 0) {
            return i;
        }
    }

    return -1;
}


void
runner_log(runner_log_level_e level, const char *format, ...)
{
    char             line[4096];
    size_t           n, start;
    va_list          args;
    struct tm        tm;
    struct timespec  now;

    if (level > runner_log_max) {
        return;
    }

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);

    n = strftime(line, sizeof(line), "%Y-%m-%d %H:%M:%S", &tm);
    n += snprintf(line + n, sizeof(line) - n, ".%03ld %s: ",
                  now.tv_nsec / 1000000, runner_log_names[level]);

    start = n;

    va_start(args, format);
    n += vsnprintf(line + n, sizeof(line) - n, format, args);
    va_end(args);

    if (n > sizeof(line) - 1) {
        n = sizeof(line) - 1;
    }

    /* what a child printed must not forge a line of ours */

    sandbox_utf8_blank((uint8_t *) line + start, n - start);

    line[n++] = '\n';

    (void) !write(STDERR_FILENO, line, n);
}


int
runner_log_allowed(runner_log_limit_t *limit)
{
    unsigned  most;
    uint64_t  now, passed;

    now = runner_now_ms();
    most = limit->burst ? limit->burst : 1;
    passed = (now - limit->last) / 1000;

    if (limit->last == 0 || passed >= limit->used) {
        limit->used = 0;
        limit->last = now;

    } else {
        limit->used -= passed;
        limit->last += passed * 1000;
    }

    if (limit->used >= most) {
        limit->left_out++;
        return 0;
    }

    if (limit->left_out) {
        runner_log(RUNNER_LOG_WARN, limit->burst
                                    ? "%u messages about sandboxes were left "
                                      "out"
                                    : "%u more of the next message were left "
                                      "out", limit->left_out);
    }

    limit->used++;
    limit->left_out = 0;

    return 1;
}
