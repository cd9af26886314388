/*
 * What the kernel is told to refuse commands, where no container runtime was
 * told by us.
 */

#ifndef AGENT_FILTER_H
#define AGENT_FILTER_H

#include <stddef.h>
#include <linux/filter.h>


#define AGENT_FILTER_MOST  1024          /* instructions */


/*
 * The program for the kernel, at most n instructions; how many it has, 0: it
 * has no room.  network: sockets of INET, TCP and UDP, are allowed.
 */
size_t agent_filter_build(struct sock_filter *p, size_t n, int network);

/* Makes both programs; -1: can't. */
int agent_filter_init(void);

/*
 * In a child that is about to run a program as the user: from now on.  By
 * plain system calls only.  -1 and errno: it must not run.
 */
int agent_filter_install(int network);


#endif /* AGENT_FILTER_H */
