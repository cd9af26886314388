/*
 * A tree of files, removed a little at a time.  Knows no connection.
 */

#ifndef AGENT_REMOVE_H
#define AGENT_REMOVE_H

#include <stdint.h>
#include <sys/types.h>

#include "sandbox_wire.h"


/* directories in one another; there is an end to what nobody may refuse, too */

#define AGENT_REMOVE_DEPTH  65536
#define AGENT_REMOVE_MOST   (4 * 1024 * 1024)


typedef struct {
    ino_t      ino;
    dev_t      dev;
    int        fd;                       /* -1: not kept open */
    unsigned   handled:1;                /* names since its start */
} agent_remove_place_t;


typedef struct {
    int                    base;         /* where the tree is; not ours */
    char                   name[SANDBOX_WIRE_MAX_NAME + 1];
    unsigned               user:1;       /* with the rights of the user */
    unsigned               tries;        /* to read on */
    unsigned               depth;
    unsigned               room;
    agent_remove_place_t  *places;       /* from the tree down, to be freed */
} agent_remove_t;


/* The directory of that name in `base`.  0, or an errno. */
int agent_remove_start(agent_remove_t *remove, int base, const char *name,
    int user);

/* Some of it.  EAGAIN: there is more; 0: all is gone; else an errno. */
int agent_remove_step(agent_remove_t *remove);

void agent_remove_end(agent_remove_t *remove);


#endif /* AGENT_REMOVE_H */
