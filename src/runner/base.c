/*
 * Base images.  Knows no sandboxes.
 *
 * A request says by a number which one it wants, and the number follows from
 * the name alone: nothing has to be agreed on before, and no restart of
 * either side can make a number mean another base.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base.h"
#include "file.h"
#include "sandbox_wire.h"


static int runner_base_open(runner_base_t *base, const char *dir,
    runner_error_t *err);


int
runner_bases_open(runner_bases_t *bases, const runner_options_t *options,
    runner_error_t *err)
{
    unsigned  i;

    bases->all = calloc(options->nbases, sizeof(runner_base_t));

    if (bases->all == NULL) {
        return runner_error(err, "internal", errno, "no memory");
    }

    for (i = 0; i < options->nbases; i++) {
        bases->all[i].name = options->bases[i].name;
        bases->all[i].number =
            sandbox_base_number(bases->all[i].name,
                                strlen(bases->all[i].name));

        if (runner_base_open(&bases->all[i], options->bases[i].dir, err)
            == -1)
        {
            return -1;
        }

        bases->n++;
    }

    return 0;
}


static int
runner_base_open(runner_base_t *base, const char *dir, runner_error_t *err)
{
    char         path[PATH_MAX + 64], env[RUNNER_BASE_ENV];
    struct stat  st;

    if (realpath(dir, base->path) == NULL
        || snprintf(path, sizeof(path), "%s/usr/bin", base->path) < 0
        || stat(path, &st) == -1)
    {
        return runner_error(err, "no_base", errno, "there is no root file "
                            "system in \"%s\".  Remedy: make base", dir);
    }

    return runner_base_env(base->path, env, err);
}


int
runner_base_env(const char *path, char *text, runner_error_t *err)
{
    char  name[PATH_MAX + 64];

    snprintf(name, sizeof(name), "%s/usr/share/sandbox/env", path);

    if (runner_file_read(AT_FDCWD, name, text, RUNNER_BASE_ENV) != -1) {
        return 0;
    }

    text[0] = '\0';

    if (errno == ENOENT) {
        return 0;
    }

    return runner_error(err, "no_base", errno, "can't read \"%s\"", name);
}


const runner_base_t *
runner_base_find(const runner_bases_t *bases, unsigned number)
{
    unsigned  i;

    for (i = 0; i < bases->n; i++) {
        if (bases->all[i].number == number) {
            return &bases->all[i];
        }
    }

    return NULL;
}


const runner_base_t *
runner_base_named(const runner_bases_t *bases, const char *name)
{
    unsigned  i;

    for (i = 0; i < bases->n; i++) {
        if (strcmp(bases->all[i].name, name) == 0
            || (name[0] == '\0' && bases->all[i].number == 0))
        {
            return &bases->all[i];
        }
    }

    return NULL;
}


void
runner_bases_names(const runner_bases_t *bases, char *text, size_t size)
{
    size_t    n;
    unsigned  i;

    text[0] = '\0';

    for (i = 0, n = 0; i < bases->n && n < size; i++) {
        n += snprintf(text + n, size - n, "%s\"%s\"", i ? ", " : "",
                      bases->all[i].name);
    }
}
