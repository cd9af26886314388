/*
 * Child processes of a process with threads, which is also the reaper of what
 * runtimes leave behind.
 */

#ifndef RUNNER_CHILD_H
#define RUNNER_CHILD_H

#include <sys/types.h>


/*
 * From before a child is made until it has been waited for; several threads
 * may be in between.
 */
void runner_child_begin(void);
void runner_child_end(void);

/*
 * Waits for a child, in between; kills it after `ms`.  Its status as of
 * waitpid(), or -1.
 */
int runner_child_wait(pid_t pid, int ms);

/*
 * Reaps what nobody waits for: orphans that became ours.  Does nothing while
 * a thread waits for a child of its own.
 */
void runner_child_reap(void);

/* 1: this process has CAP_SYS_RESOURCE */
int runner_child_unlimited(void);


#endif /* RUNNER_CHILD_H */
