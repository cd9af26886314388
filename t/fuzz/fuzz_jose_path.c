/*
 * Fuzz target: paths to claims.  What is read is written again and must read
 * the same, and finds what lies there.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_path.c -ljansson -ljwt -lcrypto */
/* covers: src/jose/sandbox_jose_path.c */

#include "fuzz_jose.h"
#include "sandbox_jose_core.h"


static void fuzz_again(const sandbox_jose_path_t *path, const char *text);
static void fuzz_find(const sandbox_jose_path_t *path);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char                  error[SANDBOX_JOSE_ERROR_SIZE], *text;
    size_t                i;
    sandbox_jose_path_t  *path;

    text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';

    memset(error, 0, sizeof(error));
    path = sandbox_jose_path(text, error);

    must((path == NULL) == (error[0] != '\0'));

    if (path != NULL) {
        must(strlen(text) <= SANDBOX_JOSE_MAX_PATH);
        must(path->n >= 1 && path->n <= SANDBOX_JOSE_MAX_STEPS);

        for (i = 0; i < path->n; i++) {
            must(path->step[i][0] != '\0');
        }

        fuzz_again(path, text);
        fuzz_find(path);
    }

    sandbox_jose_path_free(path);
    free(text);

    return 0;
}


static void
fuzz_again(const sandbox_jose_path_t *path, const char *text)
{
    char        *copy, *p;
    size_t       i;
    const char  *s;

    copy = malloc(2 * SANDBOX_JOSE_MAX_PATH + 16);
    must(copy != NULL);
    p = copy;

    for (i = 0; i < path->n; i++) {
        if (i > 0) {
            *p++ = '.';
        }

        for (s = path->step[i]; *s != '\0'; s++) {
            if (*s == '.' || *s == '\\') {
                *p++ = '\\';
            }

            *p++ = *s;
        }
    }

    *p = '\0';
    must(strcmp(copy, text) == 0);
    free(copy);
}


static void
fuzz_find(const sandbox_jose_path_t *path)
{
    size_t   i;
    json_t  *claims, *leaf, *outer;

    leaf = json_string("leaf");
    claims = leaf;

    for (i = path->n; i > 0; i--) {
        outer = json_object();
        must(json_object_set_new(outer, path->step[i - 1], claims) == 0);
        claims = outer;
    }

    must(sandbox_jose_path_find(claims, path) == leaf);
    must(sandbox_jose_path_find(leaf, path) == NULL);
    json_decref(claims);
}
