/*
 * Paths to a claim, as an administrator writes them: names with dots between
 * them.  Knows no tokens.
 */

#include "sandbox_jose_core.h"

#include <stdlib.h>
#include <string.h>


static int sandbox_jose_path_text(const char *text, char *error);
static int sandbox_jose_path_split(sandbox_jose_path_t *path, const char *text,
    char *error);


sandbox_jose_path_t *
sandbox_jose_path(const char *text, char *error)
{
    sandbox_jose_path_t  *path;

    if (!sandbox_jose_path_text(text, error)) {
        return NULL;
    }

    path = calloc(1, sizeof(sandbox_jose_path_t) + strlen(text) + 1);

    if (path == NULL) {
        sandbox_jose_error(error, "no memory");
        return NULL;
    }

    if (!sandbox_jose_path_split(path, text, error)) {
        free(path);
        return NULL;
    }

    return path;
}


void
sandbox_jose_path_free(sandbox_jose_path_t *path)
{
    free(path);
}


const json_t *
sandbox_jose_path_find(const json_t *claims, const sandbox_jose_path_t *path)
{
    size_t  i;

    for (i = 0; i < path->n; i++) {

        /* NULL for what is not an object, too */

        claims = json_object_get(claims, path->step[i]);
    }

    return claims;
}


static int
sandbox_jose_path_text(const char *text, char *error)
{
    size_t   size;
    json_t  *value;

    size = strnlen(text, SANDBOX_JOSE_MAX_PATH + 1);

    if (size == 0) {
        sandbox_jose_error(error, "the path of the claim is empty");
        return 0;
    }

    if (size > SANDBOX_JOSE_MAX_PATH) {
        sandbox_jose_error(error, "the path of the claim has more than %d "
                           "bytes", SANDBOX_JOSE_MAX_PATH);
        return 0;
    }

    value = json_string(text);

    if (sandbox_jose_text(value, SANDBOX_JOSE_MAX_PATH) == NULL) {
        sandbox_jose_error(error, "the path of the claim is not UTF-8 without "
                           "control characters");
        json_decref(value);
        return 0;
    }

    json_decref(value);

    return 1;
}


static int
sandbox_jose_path_split(sandbox_jose_path_t *path, const char *text,
    char *error)
{
    char        *p;
    const char  *start;

    p = path->text;
    start = p;

    for ( ;; ) {

        if (*text != '.' && *text != '\0') {

            if (*text == '\\') {
                text++;

                if (*text != '.' && *text != '\\') {
                    sandbox_jose_error(error, "a backslash in the path of the "
                                       "claim stands before neither a dot nor "
                                       "a backslash");
                    return 0;
                }
            }

            *p++ = *text++;
            continue;
        }

        if (p == start) {
            sandbox_jose_error(error, "a name in the path of the claim is "
                               "empty (a dot of a name is written \"\\.\")");
            return 0;
        }

        if (path->n == SANDBOX_JOSE_MAX_STEPS) {
            sandbox_jose_error(error, "the path of the claim has more than %d "
                               "names", SANDBOX_JOSE_MAX_STEPS);
            return 0;
        }

        *p++ = '\0';
        path->step[path->n++] = start;
        start = p;

        if (*text++ == '\0') {
            return 1;
        }
    }
}
