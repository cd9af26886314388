/*
 * How far a transfer has come, as text of so many columns: sizes, times, the
 * rate of the last seconds.  Pure.
 */

#ifndef SANDBOX_CTL_MEASURE_H
#define SANDBOX_CTL_MEASURE_H

#include <stddef.h>
#include <stdint.h>


#define CTL_MEASURE_SAMPLES  16
#define CTL_MEASURE_EVERY    500                 /* milliseconds between two */

#define CTL_MEASURE_TEXT     16                  /* bytes of a size, a time */
#define CTL_MEASURE_LINE     2048


/* times are milliseconds of a clock that only goes forward */

typedef struct {
    int64_t        at[CTL_MEASURE_SAMPLES];
    uint64_t       bytes[CTL_MEASURE_SAMPLES];
    unsigned       n;                            /* ever taken */
} ctl_rate_t;

typedef struct {
    const char    *name;                         /* fit for a terminal */
    uint64_t       done;
    uint64_t       total;
    int            known;                        /* the total is */
    double         rate;                         /* bytes a second; < 0: not
                                                    known yet */
    int64_t        elapsed;                      /* milliseconds */
} ctl_measure_t;


void ctl_rate_start(ctl_rate_t *rate, int64_t now, uint64_t bytes);
void ctl_rate_add(ctl_rate_t *rate, int64_t now, uint64_t bytes);

/* Bytes a second, of the last seconds up to now; -1: not known yet. */
double ctl_rate(const ctl_rate_t *rate, int64_t now, uint64_t bytes);

/* "512 B", "47.1 KiB", "1023 MiB": at most 8 columns up to 999 TiB. */
char *ctl_size_text(char *text, uint64_t bytes);

/* "00:07", "1:02:03", "4d 07h", "--:--" for what is negative. */
char *ctl_time_text(char *text, int64_t seconds);

/*
 * The line, of at most `columns`, without an end: what has no room is left
 * out, the name is cut.  `line` has CTL_MEASURE_LINE bytes.
 */
void ctl_measure_line(char *line, unsigned columns, const ctl_measure_t *m);


#endif /* SANDBOX_CTL_MEASURE_H */
