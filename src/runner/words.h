/*
 * What a runtime and an agent say, for the log: in memory of a fixed size.  An
 * agent has it for as long as it lives, and may be its user's creature: no
 * file of the host may grow by it.
 */

#ifndef RUNNER_WORDS_H
#define RUNNER_WORDS_H

#include <stddef.h>


/* To be their standard error.  A descriptor, or -1 and errno. */
int runner_words_open(void);

/* The last of them; "nothing" if there are none, or there is no descriptor. */
void runner_words_read(int fd, char *text, size_t size);


#endif /* RUNNER_WORDS_H */
