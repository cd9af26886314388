/*
 * For builds with sanitizers only (make SANITIZE=1): how agent and runner are
 * run, and where an agent's report goes.  Its container has no place for one,
 * so the runner keeps what it reads of an agent's last words.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "words.h"


#define SANITIZE_SIZE  (64 * 1024)


const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
void __real_runner_words_read(int fd, char *text, size_t size);
void __wrap_runner_words_read(int fd, char *text, size_t size);


/* an agent may not be traced, which the leak checker does */

const char *
__asan_default_options(void)
{
    return "detect_leaks=0:abort_on_error=0:exitcode=99:"
           "quarantine_size_mb=4:detect_stack_use_after_return=0:allocator_may_return_null=1";
}


const char *
__ubsan_default_options(void)
{
    return "print_stacktrace=1:halt_on_error=1";
}


/* weak, as only the runner has it */

void __real_runner_words_read(int fd, char *text, size_t size)
    __attribute__((weak));


void
__wrap_runner_words_read(int fd, char *text, size_t size)
{
    int          out;
    char        *all, path[4096];
    ssize_t      n;
    const char  *folder;

    static unsigned  number;

    __real_runner_words_read(fd, text, size);

    folder = getenv("SANDBOX_REPORTS");
    all = calloc(1, SANITIZE_SIZE + 1);

    if (fd == -1 || folder == NULL || all == NULL) {
        free(all);
        return;
    }

    n = pread(fd, all, SANITIZE_SIZE, 0);

    if (n > 0 && (strstr(all, "Sanitizer") || strstr(all, "runtime error"))) {
        snprintf(path, sizeof(path), "%s/agent.%d.%u", folder, (int) getpid(),
                 __sync_fetch_and_add(&number, 1));
        out = open(path, O_WRONLY|O_CREAT|O_CLOEXEC|O_NOFOLLOW, 0644);

        if (out != -1) {
            (void) !write(out, all, strnlen(all, n));
            close(out);
        }
    }

    free(all);
}
