/*
 * A progress bar on a terminal, and nothing where stderr is none.
 */

#ifndef SANDBOX_CTL_PROGRESS_H
#define SANDBOX_CTL_PROGRESS_H

#include <stdint.h>


/*
 * `name` is fit for a terminal, and there until the end.  `total` -1: not
 * known.  A bar at a time; ctl_fault() takes it away before it says its
 * sentence.
 */
void ctl_progress_begin(const char *name, int64_t total);
void ctl_progress_total(int64_t total);

/* So many bytes; may be said as often as one likes. */
void ctl_progress_at(uint64_t done);

/* Milliseconds until it wants to be drawn again; -1: never. */
int ctl_progress_wait(void);
void ctl_progress_tick(void);

/* Takes it away. */
void ctl_progress_end(void);


#endif /* SANDBOX_CTL_PROGRESS_H */
