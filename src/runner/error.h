/*
 * One error object for everything that can fail below the event loop:
 * the stable code for the client, and a text for the operator.
 */

#ifndef RUNNER_ERROR_H
#define RUNNER_ERROR_H


#define RUNNER_ERROR_SIZE  2048                  /* bytes of a text */


typedef struct {
    const char  *code;                           /* a literal, never freed */
    char         text[RUNNER_ERROR_SIZE];
} runner_error_t;


/* Nothing has failed yet. */
void runner_error_init(runner_error_t *err);

/*
 * Keeps the first cause: code, formatted text and, unless `errnum` is 0, the
 * system's words for it, before ".  Remedy: " in the text if it has that.
 * Always returns -1.
 */
int runner_error(runner_error_t *err, const char *code, int errnum,
    const char *format, ...) __attribute__ ((format(printf, 4, 5)));

/* Puts "context: " before the text.  Always returns -1. */
int runner_error_context(runner_error_t *err, const char *format, ...)
    __attribute__ ((format(printf, 2, 3)));


#endif /* RUNNER_ERROR_H */
