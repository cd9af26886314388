/*
 * A command while it runs: its events, its standard input, its end.
 */

#ifndef SANDBOX_CTL_LIVE_H
#define SANDBOX_CTL_LIVE_H

#include "client.h"


/*
 * Path and body are the caller's.  `events`: they are asked for and written
 * to stdout and stderr as they come; without it one answer is waited for.
 */

typedef struct {
    ctl_client_t   *client;
    const char     *conversation;
    const char     *id;                          /* of the command */
    const char     *path;                        /* of the first POST */
    const char     *body;                        /* NULL: it is there already */
    long            wait;                        /* seconds without a word */
    int             events;
    int             silent;                      /* they are not written */
    int             input;                       /* its stdin; -1: not ours */
    uint64_t        last;                        /* stop after that event; 0:
                                                    with the result */

    ctl_reply_t     reply;                       /* without `events` */
    json_t         *result;                      /* with them; NULL: stopped */
    int             left_out;                    /* some output, by gaps */
    int             closed;                      /* nobody reads our stdout */
    int             refused;                     /* nothing was started: this
                                                    backend has no events */
} ctl_live_t;


/*
 * Catches SIGINT and SIGTERM from now on: the first one cancels the command
 * of ctl_live(), the second one ends this program.
 */
int ctl_live_signals(void);

/* The same for one more, SIGHUP say. */
int ctl_live_signal_also(int number);

/* A file that goes with the second one; NULL: none.  Kept by the caller. */
void ctl_live_signal_file(const char *name);

/* That signal, or 0: none came. */
int ctl_live_signal(void);

/* Can be read once it came; -1: nothing is caught. */
int ctl_live_signal_fd(void);

/*
 * Until the result is there, over connections that are lost; 0, or -1 after a
 * sentence.  ctl_live_free() is for both cases.
 */
int ctl_live(ctl_live_t *live);
void ctl_live_free(ctl_live_t *live);

/* The exit status that a result means: the command's own, or CTL_SERVICE. */
int ctl_live_status(const json_t *result);


#endif /* SANDBOX_CTL_LIVE_H */
