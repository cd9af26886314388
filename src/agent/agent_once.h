/*
 * One operation from standard input, its answer to standard output.
 */

#ifndef AGENT_ONCE_H
#define AGENT_ONCE_H


/* Takes standard input and output to itself.  -1: can't. */
int agent_once_init(void);

/* 1: nobody waits for the answer any more, or we are to end. */
int agent_once_over(void);

/* The sandbox could not be had: an ERROR, in place of all else. */
void agent_once_failed(int status);

/* Reads the request, does it, and exits.  -1: can't begin. */
int agent_once_start(void);


#endif /* AGENT_ONCE_H */
