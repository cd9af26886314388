/*
 * The runner's log: one line a message on stderr, "time level: message".
 */

#ifndef RUNNER_LOG_H
#define RUNNER_LOG_H

#include <stdint.h>


typedef enum {
    RUNNER_LOG_ERROR = 0,
    RUNNER_LOG_WARN,
    RUNNER_LOG_NOTICE,
    RUNNER_LOG_INFO,
    RUNNER_LOG_DEBUG,
    RUNNER_LOG_LAST
} runner_log_level_e;


/*
 * Lets one message a second through, and counts the others; or as many at once
 * as it has in `burst`, and then one a second.
 */

typedef struct {
    uint64_t  last;                              /* ms, monotonic */
    unsigned  left_out;
    unsigned  burst;                             /* 0: 1 */
    unsigned  used;                              /* of it */
} runner_log_limit_t;

/* for what a sandbox can bring about as often as it likes */

extern runner_log_limit_t  runner_log_sandboxes;


/* Messages above this level are dropped. */
void runner_log_set_level(runner_log_level_e level);

/* The level of a name, -1 for an unknown one. */
int runner_log_level(const char *name);

/* One write of at most 4096 bytes, so lines of threads do not mix. */
void runner_log(runner_log_level_e level, const char *format, ...)
    __attribute__ ((format(printf, 2, 3)));

/* 1: may log now.  Says itself how many were left out before. */
int runner_log_allowed(runner_log_limit_t *limit);


#endif /* RUNNER_LOG_H */
