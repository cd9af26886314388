/*
 * Reads the command line of a verb and prints its help.  Knows no verb.
 */

#include "ctl.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define CTL_MAX_NAME     32                      /* bytes, of an option */
#define CTL_MAX_OPTIONS  32
#define CTL_HELP_COLUMNS 79


static int ctl_option_read(ctl_command_t *command, const char *word,
    const char *next);
static int ctl_option_take(const ctl_option_t *option, const char *value,
    const char *next);
static const ctl_option_t *ctl_option_find(const ctl_command_t *command,
    const char *name, size_t size);
static const ctl_option_t *ctl_option_letter(const ctl_command_t *command,
    const char *word);
static int ctl_option_unknown(const ctl_command_t *command, const char *word,
    size_t size);
static int ctl_args_check(const ctl_command_t *command);
static void ctl_options_help(const ctl_command_t *command);
static void ctl_options_about(const char *text);
static unsigned ctl_distance(const char *a, const char *b);


int
ctl_options_read(ctl_command_t *command, int argc, char **argv)
{
    int  i, rc, options;

    options = 1;

    for (i = 1; i < argc; i++) {

        if (options && strcmp(argv[i], "--") == 0) {
            options = 0;
            continue;
        }

        if (options && (strcmp(argv[i], "--help") == 0
                        || strcmp(argv[i], "-h") == 0))
        {
            ctl_options_help(command);
            return CTL_READ_HELP;
        }

        /* a single "-" is an argument, and the value of --stdin */

        if (options && argv[i][0] == '-' && argv[i][1] != '\0') {
            rc = ctl_option_read(command, argv[i],
                                 i + 1 < argc ? argv[i + 1] : NULL);

            if (rc < 0) {
                return CTL_READ_BAD;
            }

            i += rc;
            continue;
        }

        if (command->nargs == command->max) {
            ctl_fault("\"%s\" is one argument too many (usage: sandboxctl %s)"
                      "%s%s", argv[i], command->usage,
                      command->hint != NULL ? "; " : "",
                      command->hint != NULL ? command->hint : "");
            return CTL_READ_BAD;
        }

        command->args[command->nargs++] = argv[i];
    }

    return ctl_args_check(command);
}


const char *
ctl_value(const ctl_values_t *values, const char *otherwise)
{
    return values->n == 0 ? otherwise : values->value[values->n - 1];
}


/* The number of words of `next` that were used, 0 or 1; or -1. */

static int
ctl_option_read(ctl_command_t *command, const char *word, const char *next)
{
    size_t               size;
    const char          *name, *value;
    const ctl_option_t  *option;

    if (word[1] != '-') {
        option = ctl_option_letter(command, word);

        return option == NULL
               ? ctl_option_unknown(command, word, strlen(word))
               : ctl_option_take(option, NULL, next);
    }

    name = word + 2;
    value = strchr(name, '=');
    size = value != NULL ? (size_t) (value - name) : strlen(name);
    option = ctl_option_find(command, name, size);

    if (option == NULL) {
        return ctl_option_unknown(command, word, size + 2);
    }

    return ctl_option_take(option, value != NULL ? value + 1 : NULL, next);
}


static int
ctl_option_take(const ctl_option_t *option, const char *value,
    const char *next)
{
    ctl_values_t  *values;

    values = option->values;

    if (values->n == option->max || values->n == CTL_MAX_VALUES) {
        return ctl_fault("--%s may be given %u time%s only", option->name,
                         option->max, option->max == 1 ? "" : "s");
    }

    if (option->argument == NULL) {
        if (value != NULL) {
            return ctl_fault("--%s takes no value", option->name);
        }

        values->value[values->n++] = "";
        return 0;
    }

    if (value != NULL) {
        values->value[values->n++] = value;
        return 0;
    }

    if (next == NULL) {
        return ctl_fault("--%s needs a value (%s)", option->name,
                         option->argument);
    }

    values->value[values->n++] = next;

    return 1;
}


static const ctl_option_t *
ctl_option_find(const ctl_command_t *command, const char *name, size_t size)
{
    const ctl_option_t  *option;

    for (option = command->options; option->name != NULL; option++) {
        if (strlen(option->name) == size
            && memcmp(option->name, name, size) == 0)
        {
            return option;
        }
    }

    return NULL;
}


/* "-k" alone; letters are not put together */

static const ctl_option_t *
ctl_option_letter(const ctl_command_t *command, const char *word)
{
    const ctl_option_t  *option;

    if (word[1] == '\0' || word[2] != '\0') {
        return NULL;
    }

    for (option = command->options; option->name != NULL; option++) {
        if (option->letter == word[1]) {
            return option;
        }
    }

    return NULL;
}


static int
ctl_option_unknown(const ctl_command_t *command, const char *word,
    size_t size)
{
    unsigned             n;
    const char          *near;
    char                 name[CTL_MAX_NAME + 1];
    const char          *names[CTL_MAX_OPTIONS + 1];
    const ctl_option_t  *option;

    n = 0;

    for (option = command->options;
         option->name != NULL && n < CTL_MAX_OPTIONS;
         option++)
    {
        names[n++] = option->name;
    }

    names[n] = NULL;

    snprintf(name, sizeof(name), "%.*s", (int) size, word);
    near = ctl_nearest(name + strspn(name, "-"), names);

    if (near != NULL) {
        return ctl_fault("there is no option \"%s\", did you mean \"--%s\"?",
                         name, near);
    }

    /* as in "run first ls -l" */

    if (command->hint != NULL && command->nargs == command->max) {
        return ctl_fault("there is no option \"%s\" (see --help); %s", name,
                         command->hint);
    }

    return ctl_fault("there is no option \"%s\" (see --help)", name);
}


static int
ctl_args_check(const ctl_command_t *command)
{
    if (command->nargs < command->min) {
        ctl_fault("an argument is missing (usage: sandboxctl %s)",
                  command->usage);
        return CTL_READ_BAD;
    }

    return CTL_READ_OK;
}


static void
ctl_options_help(const ctl_command_t *command)
{
    char                 head[80];
    const ctl_option_t  *option;

    printf("usage: sandboxctl %s\n\n", command->usage);
    ctl_options_about(command->about);

    if (command->options->name != NULL) {
        printf("\n");
    }

    for (option = command->options; option->name != NULL; option++) {
        snprintf(head, sizeof(head), "%s%.*s%s--%s%s%s",
                 option->letter == 0 ? "" : "-", option->letter != 0,
                 &option->letter, option->letter == 0 ? "" : ", ",
                 option->name, option->argument == NULL ? "" : " ",
                 option->argument == NULL ? "" : option->argument);
        printf("  %-20s %s\n", head, option->help);
    }
}


/* Words, in lines of their own length. */

static void
ctl_options_about(const char *text)
{
    size_t  n, column;

    column = 0;

    for ( ;; ) {
        text += strspn(text, " \n");
        n = strcspn(text, " \n");

        if (n == 0) {
            break;
        }

        if (column > 0 && column + 1 + n > CTL_HELP_COLUMNS) {
            putchar('\n');
            column = 0;
        }

        column += (size_t) printf("%s%.*s", column > 0 ? " " : "", (int) n,
                                  text);
        text += n;
    }

    putchar('\n');
}


const char *
ctl_nearest(const char *word, const char *const *names)
{
    unsigned     distance, best;
    const char  *near;

    near = NULL;
    best = (unsigned) strlen(word) / 3 + 2;

    for ( /* void */ ; *names != NULL; names++) {
        distance = ctl_distance(word, *names);

        if (distance < best) {
            best = distance;
            near = *names;
        }
    }

    return near;
}


/* Letters to insert, to leave out, to replace or to swap. */

static unsigned
ctl_distance(const char *a, const char *b)
{
    size_t    i, j, na, nb;
    unsigned  d[3][CTL_MAX_NAME + 1], cost, n;

    na = strlen(a);
    nb = strlen(b);

    if (na > CTL_MAX_NAME || nb > CTL_MAX_NAME) {
        return CTL_MAX_NAME;
    }

    memset(d, 0, sizeof(d));

    for (j = 0; j <= nb; j++) {
        d[0][j] = (unsigned) j;
    }

    for (i = 1; i <= na; i++) {
        d[i % 3][0] = (unsigned) i;

        for (j = 1; j <= nb; j++) {
            cost = a[i - 1] != b[j - 1];
            n = d[(i - 1) % 3][j - 1] + cost;

            if (d[(i - 1) % 3][j] + 1 < n) {
                n = d[(i - 1) % 3][j] + 1;
            }

            if (d[i % 3][j - 1] + 1 < n) {
                n = d[i % 3][j - 1] + 1;
            }

            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]
                && d[(i - 2) % 3][j - 2] + 1 < n)
            {
                n = d[(i - 2) % 3][j - 2] + 1;
            }

            d[i % 3][j] = n;
        }
    }

    return d[na % 3][nb];
}


long
ctl_duration(const char *text, long max)
{
    long         n, unit;
    const char  *p;

    n = 0;

    for (p = text; *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (*p - '0');

        if (n > max) {
            return -1;
        }
    }

    if (p == text) {
        return -1;
    }

    switch (*p) {

    case '\0':
    case 's':
        unit = 1;
        break;

    case 'm':
        unit = 60;
        break;

    case 'h':
        unit = 3600;
        break;

    case 'd':
        unit = 86400;
        break;

    default:
        return -1;
    }

    if (*p != '\0' && p[1] != '\0') {
        return -1;
    }

    return n > max / unit ? -1 : n * unit;
}
