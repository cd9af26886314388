/*
 * Who may talk to the runner, by what the kernel says of the peer.
 */

#ifndef RUNNER_PEER_H
#define RUNNER_PEER_H

#include "options.h"


/* 1: root, a --peer-user, or of the socket's group; 0: somebody else. */
int runner_peer_allowed(const runner_options_t *options, int fd);

/* One line a second at most; `why` is "user" or "key". */
void runner_peer_refused(int fd, const char *why);


#endif /* RUNNER_PEER_H */
