/*
 * Arithmetic of a progress bar.  Knows no terminal and no clock.
 */

#include "measure.h"
#include "name.h"

#include <stdio.h>
#include <string.h>


#define CTL_MEASURE_NAME  12                     /* columns, at least */
#define CTL_MEASURE_BAR   30                     /* at most, with brackets */
#define CTL_MEASURE_LESS  12                     /* no bar below that */

/* "  45%", "  47.1 KiB", "  1023 MiB/s", "  1:02:03" */

#define CTL_MEASURE_PERCENT  6
#define CTL_MEASURE_SIZE     10
#define CTL_MEASURE_RATE     12
#define CTL_MEASURE_TIME     9


static unsigned ctl_measure_percent(const ctl_measure_t *m);
static unsigned ctl_measure_part(const ctl_measure_t *m, unsigned whole);
static int64_t ctl_measure_left(const ctl_measure_t *m);


void
ctl_rate_start(ctl_rate_t *rate, int64_t now, uint64_t bytes)
{
    rate->n = 1;
    rate->at[0] = now;
    rate->bytes[0] = bytes;
}


void
ctl_rate_add(ctl_rate_t *rate, int64_t now, uint64_t bytes)
{
    unsigned  last;

    if (rate->n == 0) {
        ctl_rate_start(rate, now, bytes);
        return;
    }

    last = (rate->n - 1) % CTL_MEASURE_SAMPLES;

    /* it was begun anew */

    if (bytes < rate->bytes[last]) {
        ctl_rate_start(rate, now, bytes);
        return;
    }

    if (now - rate->at[last] < CTL_MEASURE_EVERY) {
        return;
    }

    last = rate->n % CTL_MEASURE_SAMPLES;
    rate->at[last] = now;
    rate->bytes[last] = bytes;
    rate->n++;

    if (rate->n == 2 * CTL_MEASURE_SAMPLES) {
        rate->n = CTL_MEASURE_SAMPLES;
    }
}


double
ctl_rate(const ctl_rate_t *rate, int64_t now, uint64_t bytes)
{
    unsigned  first;

    if (rate->n == 0) {
        return -1;
    }

    first = rate->n <= CTL_MEASURE_SAMPLES ? 0 : rate->n % CTL_MEASURE_SAMPLES;

    if (now <= rate->at[first] || bytes < rate->bytes[first]) {
        return -1;
    }

    return (double) (bytes - rate->bytes[first]) * 1000
           / (double) (now - rate->at[first]);
}


char *
ctl_size_text(char *text, uint64_t bytes)
{
    double    n;
    unsigned  i;

    static const char *const  units[] = {
        "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"
    };

    if (bytes < 1024) {
        snprintf(text, CTL_MEASURE_TEXT, "%u B", (unsigned) bytes);
        return text;
    }

    n = (double) bytes / 1024;

    for (i = 0; n >= 1023.5 && i < 5; i++) {
        n /= 1024;
    }

    /* not "100.0" with a column more */

    snprintf(text, CTL_MEASURE_TEXT, n < 99.95 ? "%.1f %s" : "%.0f %s", n,
             units[i]);

    return text;
}


char *
ctl_time_text(char *text, int64_t seconds)
{
    if (seconds < 0 || seconds > 99 * 86400) {
        snprintf(text, CTL_MEASURE_TEXT, "--:--");

    } else if (seconds < 3600) {
        snprintf(text, CTL_MEASURE_TEXT, "%02d:%02d", (int) seconds / 60,
                 (int) seconds % 60);

    } else if (seconds < 86400) {
        snprintf(text, CTL_MEASURE_TEXT, "%d:%02d:%02d", (int) seconds / 3600,
                 (int) seconds / 60 % 60, (int) seconds % 60);

    } else {
        snprintf(text, CTL_MEASURE_TEXT, "%dd %02dh", (int) seconds / 86400,
                 (int) seconds / 3600 % 24);
    }

    return text;
}


void
ctl_measure_line(char *line, unsigned columns, const ctl_measure_t *m)
{
    int        n;
    char       size[CTL_MEASURE_TEXT], rate[CTL_MEASURE_TEXT];
    char       time[CTL_MEASURE_TEXT], tail[128];
    unsigned   i, room, used, bar, name;
    size_t     bytes;

    /* what goes first is the rate, then the size, then the time */

    used = CTL_MEASURE_PERCENT;
    room = columns > CTL_MEASURE_NAME ? columns - CTL_MEASURE_NAME : 0;
    n = 0;
    tail[0] = '\0';

    if (m->known) {
        n += snprintf(tail + n, sizeof(tail) - (size_t) n, "%5u%%",
                      ctl_measure_percent(m));
    } else {
        used = 0;
    }

    if (used + CTL_MEASURE_TIME + CTL_MEASURE_SIZE <= room) {
        n += snprintf(tail + n, sizeof(tail) - (size_t) n, "%10s",
                      ctl_size_text(size, m->done));
        used += CTL_MEASURE_SIZE;
    }

    if (used + CTL_MEASURE_TIME + CTL_MEASURE_RATE <= room) {
        ctl_size_text(rate, m->rate < 0 ? 0 : (uint64_t) m->rate);
        n += snprintf(tail + n, sizeof(tail) - (size_t) n, "%10s/s",
                      m->rate < 0 ? "-- B" : rate);
        used += CTL_MEASURE_RATE;
    }

    if (used + CTL_MEASURE_TIME <= room) {
        snprintf(tail + n, sizeof(tail) - (size_t) n, "%9s",
                 ctl_time_text(time, m->known ? ctl_measure_left(m)
                                              : m->elapsed / 1000));
        used += CTL_MEASURE_TIME;
    }

    if (used > columns) {
        tail[0] = '\0';
        used = 0;
    }

    /* a bar in what a name of its length leaves */

    name = ctl_name_columns(m->name);
    room = columns - used;
    bar = m->known && room > name + 2 ? room - name - 2 : 0;

    if (bar > CTL_MEASURE_BAR) {
        bar = CTL_MEASURE_BAR;
    }

    if (bar < CTL_MEASURE_LESS) {
        bar = 0;
    }

    room -= bar > 0 ? bar + 2 : 0;

    bytes = ctl_name_fit(m->name, room);

    if (m->name[bytes] != '\0' && room > 3) {
        bytes = ctl_name_fit(m->name, room - 3);
        n = snprintf(line, CTL_MEASURE_LINE, "%.*s...", (int) bytes, m->name);

    } else {
        n = snprintf(line, CTL_MEASURE_LINE, "%.*s", (int) bytes, m->name);
    }

    if (n < 0 || (size_t) n + columns + sizeof(tail) >= CTL_MEASURE_LINE) {
        line[0] = '\0';
        return;
    }

    for (i = ctl_name_columns(line); i < room; i++) {
        line[n++] = ' ';
    }

    if (bar > 0) {
        used = ctl_measure_part(m, bar - 2);

        line[n++] = ' ';
        line[n++] = ' ';
        line[n++] = '[';

        for (i = 0; i < bar - 2; i++) {
            line[n++] = i < used ? '=' : i == used ? '>' : ' ';
        }

        line[n++] = ']';
    }

    snprintf(line + n, CTL_MEASURE_LINE - (size_t) n, "%s", tail);
}


/* 100 only when all of it is there. */

static unsigned
ctl_measure_percent(const ctl_measure_t *m)
{
    return ctl_measure_part(m, 100);
}


static unsigned
ctl_measure_part(const ctl_measure_t *m, unsigned whole)
{
    unsigned  part;

    if (m->done >= m->total) {
        return whole;
    }

    part = (unsigned) ((double) m->done * whole / (double) m->total);

    return part < whole ? part : whole - 1;
}


/* Seconds, rounded up; what is done has taken the time it has. */

static int64_t
ctl_measure_left(const ctl_measure_t *m)
{
    double  left;

    if (m->done >= m->total) {
        return 0;
    }

    if (m->rate <= 0) {
        return -1;
    }

    left = (double) (m->total - m->done) / m->rate;

    return left > 1e9 ? -1 : (int64_t) (left + 0.999);
}
