/*
 * A tar that was spooled, into a directory of the spool, a little at a time:
 * root's, with no link out of it.  Knows no connection.
 */

#ifndef AGENT_UNPACK_H
#define AGENT_UNPACK_H

#include "agent_spool.h"


typedef struct agent_unpack_s  agent_unpack_t;


/* Reads fd, which stays the caller's.  NULL and errno: can't. */
agent_unpack_t *agent_unpack_start(int fd);

/*
 * EAGAIN: there is more to do.  0: all of it is there.  EBADMSG: it is
 * refused, *detail says why (a constant).  Else an errno.
 */
int agent_unpack_step(agent_unpack_t *unpack, const char **detail);

/* With a name (AGENT_SPOOL_NAME bytes) the tree stays, else it is dropped. */
void agent_unpack_end(agent_unpack_t *unpack, char *name);


#endif /* AGENT_UNPACK_H */
