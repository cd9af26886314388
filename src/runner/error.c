/*
 * The error object: first cause and its context.
 * Knows nothing of what failed.
 */

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"


void
runner_error_init(runner_error_t *err)
{
    err->code = NULL;
    err->text[0] = '\0';
}


int
runner_error(runner_error_t *err, const char *code, int errnum,
    const char *format, ...)
{
    char    *remedy, words[128], rest[RUNNER_ERROR_SIZE];
    size_t   n;
    va_list  args;

    if (err->code != NULL) {
        return -1;
    }

    err->code = code;

    va_start(args, format);
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);

    if (errnum) {

        /* the system's words belong before what can be done about it */

        remedy = strstr(err->text, ".  Remedy: ");
        n = remedy ? (size_t) (remedy - err->text) : strlen(err->text);
        strcpy(rest, err->text + n);

        snprintf(err->text + n, sizeof(err->text) - n, ": %s%s",
                 strerror_r(errnum, words, sizeof(words)), rest);
    }

    return -1;
}


int
runner_error_context(runner_error_t *err, const char *format, ...)
{
    va_list  args;
    char     text[RUNNER_ERROR_SIZE], context[256];

    va_start(args, format);
    vsnprintf(context, sizeof(context), format, args);
    va_end(args);

    snprintf(text, sizeof(text), "%s: %.1700s", context, err->text);
    memcpy(err->text, text, sizeof(text));

    return -1;
}
