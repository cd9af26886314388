/*
 * Draws the bar of measure.c.  The width is asked for each time, so a window
 * that was made smaller or larger needs no signal; a process in the background
 * draws nothing.
 */

#include "ctl.h"
#include "measure.h"
#include "name.h"
#include "progress.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/ioctl.h>


#define CTL_PROGRESS_EVERY    100                /* milliseconds */
#define CTL_PROGRESS_COLUMNS  80
#define CTL_PROGRESS_MOST     500


static void ctl_progress_draw(void);
static void ctl_progress_clear(void);
static unsigned ctl_progress_columns(void);
static int64_t ctl_progress_now(void);


/* one terminal, one bar */

static struct {
    ctl_measure_t  measure;
    ctl_rate_t     rate;
    int64_t        begun;
    int64_t        drawn;
    unsigned       on:1;
    unsigned       shown:1;
} ctl_progress;


void
ctl_progress_begin(const char *name, int64_t total)
{
    const char  *term;

    ctl_progress_end();

    term = getenv("TERM");

    if (!isatty(STDERR_FILENO)
        || (term != NULL && strcmp(term, "dumb") == 0))
    {
        return;
    }

    /* for the width of characters, whatever the language is */

    setlocale(LC_CTYPE, "C.UTF-8");

    memset(&ctl_progress, 0, sizeof(ctl_progress));

    ctl_progress.on = 1;
    ctl_progress.measure.name = name;
    ctl_progress.begun = ctl_progress_now();

    ctl_progress_total(total);
    ctl_set_line(ctl_progress_clear);
    ctl_progress_draw();
}


void
ctl_progress_total(int64_t total)
{
    ctl_progress.measure.known = total >= 0;
    ctl_progress.measure.total = total >= 0 ? (uint64_t) total : 0;
}


void
ctl_progress_at(uint64_t done)
{
    if (!ctl_progress.on) {
        return;
    }

    ctl_progress.measure.done = done;
    ctl_progress_tick();
}


int
ctl_progress_wait(void)
{
    int64_t  left;

    if (!ctl_progress.on) {
        return -1;
    }

    left = ctl_progress.drawn + CTL_PROGRESS_EVERY - ctl_progress_now();

    return left < 0 ? 0 : (int) left;
}


void
ctl_progress_tick(void)
{
    if (ctl_progress_wait() == 0) {
        ctl_progress_draw();
    }
}


void
ctl_progress_end(void)
{
    if (!ctl_progress.on) {
        return;
    }

    /* whoever looks sees it full, be it for a moment */

    if (ctl_progress.measure.known
        && ctl_progress.measure.done >= ctl_progress.measure.total)
    {
        ctl_progress_draw();
    }

    ctl_progress_clear();
    ctl_set_line(NULL);
    ctl_progress.on = 0;
}


static void
ctl_progress_draw(void)
{
    char      line[CTL_MEASURE_LINE], text[CTL_MEASURE_LINE + 8];
    pid_t     group;
    int64_t   now;
    unsigned  columns;

    now = ctl_progress_now();
    ctl_progress.drawn = now;

    ctl_rate_add(&ctl_progress.rate, now, ctl_progress.measure.done);

    group = tcgetpgrp(STDERR_FILENO);

    if (group != -1 && group != getpgrp()) {
        return;
    }

    ctl_progress.measure.rate = ctl_rate(&ctl_progress.rate, now,
                                         ctl_progress.measure.done);
    ctl_progress.measure.elapsed = now - ctl_progress.begun;

    columns = ctl_progress_columns();
    ctl_measure_line(line, columns, &ctl_progress.measure);

    (void) snprintf(text, sizeof(text), "\r%s\033[K", line);
    (void) ctl_write(STDERR_FILENO, text, strlen(text));

    ctl_progress.shown = 1;
}


static void
ctl_progress_clear(void)
{
    if (ctl_progress.shown) {
        (void) ctl_write(STDERR_FILENO, "\r\033[K", 4);
        ctl_progress.shown = 0;
    }
}


/* The last one is left alone: some terminals begin a new line behind it. */

static unsigned
ctl_progress_columns(void)
{
    unsigned        columns;
    struct winsize  size;

    columns = CTL_PROGRESS_COLUMNS;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        columns = size.ws_col;
    }

    return columns < CTL_PROGRESS_MOST ? columns - 1 : CTL_PROGRESS_MOST;
}


static int64_t
ctl_progress_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
