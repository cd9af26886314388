/*
 * A message of the runner, as it is understood.
 */

#ifndef AGENT_CONTROL_H
#define AGENT_CONTROL_H

#include "sandbox_control.h"


/* what its type does not have is 0; parts of it point into what was read */

typedef struct {
    uint8_t          type;
    uint8_t          flags;              /* CONN */
    uint32_t         serial;             /* CONN */
    unsigned         fds;                /* descriptors that came with it */

    sandbox_field_t  session;            /* CLAIM: whole */
    sandbox_field_t  id;                 /* CLAIM: one byte at least */
    uint64_t         instance;
    uint64_t         created;
    uint64_t         memory;

    uint64_t         outcome;            /* STOP */

    uint64_t         policy;             /* EGRESS: 0 is none */
    sandbox_field_t  index;              /* EGRESS: without a NUL */
} agent_told_t;


/*
 * One message with `fds` descriptors.  0; or -1: it is none that a runner of
 * any release sends, and nothing of it may be done.
 */
int agent_control_read(agent_told_t *told, const uint8_t *p, size_t size,
    unsigned fds);


#endif /* AGENT_CONTROL_H */
