/*
 * Runs a program of this host and reads what it says.
 */

#ifndef SANDBOX_CTL_PROCESS_H
#define SANDBOX_CTL_PROCESS_H

#include <stddef.h>
#include <stdint.h>


#define CTL_MAX_OUTPUT  (64 * 1024)              /* bytes; more is left out */


/*
 * Runs argv[0] (searched for in PATH) with an empty standard input, for at
 * most `wait` seconds; then it gets SIGINT, and 10 s later SIGKILL.  *output
 * has stdout and stderr, ended by a NUL; the caller frees it.
 *
 * Its exit status; 128+N after signal N; 124 after the time; 127 where there
 * is no such program; -1 where no process could be made (*output is NULL).
 */
int ctl_process(const char *const *argv, int wait, char **output);


#endif /* SANDBOX_CTL_PROCESS_H */
