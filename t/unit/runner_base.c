/*
 * Base images on the command line: names, numbers, what is refused.
 */

/* link: src/runner/options_egress.c src/egress/egress_address.c */
/* link: src/runner/options.c src/runner/key.c src/runner/base.c src/runner/file.c */
/* link: src/runner/error.c src/runner/log.c src/wire/sandbox_wire.c */
/* link: src/wire/sandbox_utf8.c */
/* flags: -U_GNU_SOURCE */

#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>
#include <sys/stat.h>

#include "test.h"
#include "base.h"


static void names(void);
static void folders(void);
static int parse(runner_options_t *options, runner_error_t *err,
    const char *first, const char *second);


int
main(void)
{
    names();
    folders();

    return test_done();
}


static void
names(void)
{
    size_t            i;
    char              text[128];
    runner_error_t    err;
    runner_bases_t    bases;
    runner_options_t  options;

    static const struct {
        const char  *first;
        const char  *second;
        const char  *why;            /* NULL: it is right */
    } list[] = {
        { "/base", "data=/data", NULL },
        { "data.1_a-B=/data", "./a=b", NULL },
        { "default=/base", "d=a=b", NULL },
        { "/base", "/data", "another one of that name" },
        { "/base", "default=/data", "another one of that name" },
        { "data=/data", "data=/data", "another one of that name" },
        { "data=/data", NULL, "that of \"default\"" },
        { NULL, NULL, "--base is missing" },
        { "/base", "=x", "the name in --base" },
        { "/base", "a b=x", "the name in --base" },
        { "/base", "\303\244=x", "the name in --base" },

        /* found by trying: both have the number 54878 */
        { "b538=/x", "b648=/x", "54878" }
    };

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        runner_error_init(&err);

        is_number(parse(&options, &err, list[i].first, list[i].second),
                  list[i].why ? -1 : 0, "%s, %s", list[i].first,
                  list[i].second);
        ok(list[i].why == NULL || strstr(err.text, list[i].why) != NULL,
           "with words: %s", err.text);
    }

    (void) parse(&options, &err, "/base", "data=/data");

    static runner_base_t  all[2];

    for (i = 0; i < 2; i++) {
        all[i].name = options.bases[i].name;
        all[i].number = sandbox_base_number(all[i].name,
                                            strlen(all[i].name));
    }

    bases.all = all;
    bases.n = 2;

    is_number(all[0].number, 0, "the default is 0");
    ok(runner_base_find(&bases, 0) == &all[0], "and found by it");
    ok(runner_base_named(&bases, "") == &all[0], "and by no name");
    ok(runner_base_named(&bases, "default") == &all[0], "and by its own");
    ok(runner_base_named(&bases, "data") == &all[1], "another by name");
    ok(runner_base_find(&bases, all[1].number) == &all[1], "and by number");
    ok(runner_base_find(&bases, 1) == NULL, "no other number");
    ok(runner_base_named(&bases, "dat") == NULL, "and no other name");

    runner_bases_names(&bases, text, sizeof(text));
    is_string(text, "\"default\", \"data\"", "their names");
    runner_bases_names(&bases, text, 11);
    is_string(text, "\"default\",", "as much as there is room for");
}


static void
folders(void)
{
    int               rc;
    char              dir[] = "/tmp/runner-base-XXXXXX", path[128];
    char              env[RUNNER_BASE_ENV];
    FILE             *f;
    runner_error_t    err;
    runner_bases_t    bases;
    runner_options_t  options;

    memset(&bases, 0, sizeof(bases));
    runner_error_init(&err);

    if (mkdtemp(dir) == NULL || parse(&options, &err, dir, NULL) == -1) {
        exit(1);
    }

    is_number(runner_bases_open(&bases, &options, &err), -1, "an empty one");
    ok(strstr(err.text, "no root file system") != NULL, "%s", err.text);
    free(bases.all);

    memset(&bases, 0, sizeof(bases));
    runner_error_init(&err);
    snprintf(path, sizeof(path), "mkdir -p %s/usr/bin %s/usr/share/sandbox",
             dir, dir);
    rc = system(path);
    is_number(runner_bases_open(&bases, &options, &err), rc, "a good one");
    is_number(bases.n, 1, "it is there");
    is_number(runner_base_env(bases.all[0].path, env, &err), 0, "its lines");
    is_string(env, "", "are none");

    snprintf(path, sizeof(path), "%s/usr/share/sandbox/env", dir);
    f = fopen(path, "w");
    ok(f != NULL && fputs("A=b\n", f) >= 0 && fclose(f) == 0, "one");
    is_number(runner_base_env(bases.all[0].path, env, &err), 0, "is read");
    is_string(env, "A=b\n", "as it is");

    free(bases.all);
    snprintf(path, sizeof(path), "rm -rf %s", dir);
    rc = system(path);
    is_number(rc, 0, "removed");
}


static int
parse(runner_options_t *options, runner_error_t *err, const char *first,
    const char *second)
{
    int    n;
    char  *argv[12];

    n = 0;
    argv[n++] = "sandbox-runner";
    argv[n++] = "--probe";
    argv[n++] = "--state=/nowhere";
    argv[n++] = "--agent=/nowhere";

    if (first) {
        argv[n++] = "--base";
        argv[n++] = (char *) first;
    }

    if (second) {
        argv[n++] = "--base";
        argv[n++] = (char *) second;
    }

    argv[n] = NULL;

    return runner_options_read(options, n, argv, err);
}
