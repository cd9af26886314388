/*
 * Base images: root file systems that sandboxes are made from, by name.
 * Filled once at start, read by all threads.
 */

#ifndef RUNNER_BASE_H
#define RUNNER_BASE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "options.h"


#define RUNNER_BASE_ENV  16384                   /* bytes of text */


typedef struct {
    const char  *name;
    unsigned     number;                 /* of the name, as nginx sends it */
    char         path[PATH_MAX];         /* no links in it */
} runner_base_t;


typedef struct {
    runner_base_t  *all;                 /* NULL: not opened */
    unsigned        n;
} runner_bases_t;


/* Looks at all that the command line names; 0, or -1. */
int runner_bases_open(runner_bases_t *bases, const runner_options_t *options,
    runner_error_t *err);

/* NULL: there is none of that number, or name; 0 and "" are the default. */
const runner_base_t *runner_base_find(const runner_bases_t *bases,
    unsigned number);
const runner_base_t *runner_base_named(const runner_bases_t *bases,
    const char *name);

/*
 * NAME=VALUE lines of a base, for the environment of what runs on it; "" where
 * it has none.  0, or -1; `text` has RUNNER_BASE_ENV bytes.
 */
int runner_base_env(const char *path, char *text, runner_error_t *err);

/* Their names for a line of the log, with commas. */
void runner_bases_names(const runner_bases_t *bases, char *text,
    size_t size);


#endif /* RUNNER_BASE_H */
