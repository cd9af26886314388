/*
 * The command line of a verb: options anywhere, arguments in between, help
 * made from the same table.
 */

#ifndef SANDBOX_CTL_OPTIONS_H
#define SANDBOX_CTL_OPTIONS_H

#include <stddef.h>


#define CTL_MAX_VALUES  256
#define CTL_MAX_ARGS    1024


/* Values point into argv. */

typedef struct {
    unsigned       n;                            /* times given */
    const char    *value[CTL_MAX_VALUES];
} ctl_values_t;

typedef struct {
    const char    *name;                         /* "key" of "--key" */
    const char    *argument;                     /* "FILE"; NULL: a flag */
    const char    *help;
    unsigned       max;                          /* times it may be given */
    ctl_values_t  *values;
    char           letter;                       /* 'k' of "-k"; 0: none */
} ctl_option_t;

typedef struct {
    const char          *usage;                  /* behind "sandboxctl " */
    const char          *hint;                   /* behind one too many; or
                                                    NULL */
    const char          *about;                  /* for --help */
    const ctl_option_t  *options;                /* up to name NULL */
    unsigned             min;                    /* arguments */
    unsigned             max;
    const char          *args[CTL_MAX_ARGS];     /* set by reading */
    unsigned             nargs;
} ctl_command_t;


#define CTL_READ_OK    0
#define CTL_READ_HELP  1                         /* printed; exit with 0 */
#define CTL_READ_BAD  -1                         /* a sentence was printed */


int ctl_options_read(ctl_command_t *command, int argc, char **argv);

/* The last value, or `otherwise`. */
const char *ctl_value(const ctl_values_t *values, const char *otherwise);

/*
 * The name nearest to `word` in a list of names that ends with NULL; NULL if
 * none is near enough to have been meant.
 */
const char *ctl_nearest(const char *word, const char *const *names);

/* A number of seconds: "90", "30s", "5m", "1h", "2d".  -1: it is not one. */
long ctl_duration(const char *text, long max);


#endif /* SANDBOX_CTL_OPTIONS_H */
