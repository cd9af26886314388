/*
 * The control channel between runner and agent: message types and layout.
 * A SOCK_SEQPACKET message is 8 bytes (type u8, flags u8, 0 u16, serial u32)
 * and fields as in sandbox_wire.h; descriptors travel beside it.
 */

#ifndef SANDBOX_CONTROL_H
#define SANDBOX_CONTROL_H

#include "sandbox_wire.h"


#define SANDBOX_CONTROL_SIZE       8
#define SANDBOX_CONTROL_MAX        4096          /* bytes of one message */
#define SANDBOX_CONTROL_MAX_FDS    2

/* descriptors that the agent finds open when it starts */

#define SANDBOX_FD_CONTROL         3     /* listening SOCK_SEQPACKET */
#define SANDBOX_FD_CGROUP          4     /* cgroup2 directory, delegated */
#define SANDBOX_FD_OOM             5     /* v1 oom_control, v2 memory.events */
#define SANDBOX_FD_PEAK            6     /* v1 max_usage, v2 memory.peak */
#define SANDBOX_FD_HISTORY         7     /* a file of the session's disk */


enum {
    /* runner to agent */
    SANDBOX_CONTROL_CLAIM = 1,   /* SESSION, INSTANCE, SANDBOX_ID, CREATED,
                                    MEMORY_BYTES (the cap) */
    SANDBOX_CONTROL_CONN,        /* 1 descriptor, or 2 with ..._RETURNED */
    SANDBOX_CONTROL_GRANT,       /* one run slot */
    SANDBOX_CONTROL_STOP,        /* OUTCOME for what runs and waits */
    SANDBOX_CONTROL_EGRESS,      /* EGRESS_ID, EGRESS_INDEX; 1 descriptor: a
                                    memfd with the PEM, if there is one */

    /* agent to runner */
    SANDBOX_CONTROL_READY = 16,  /* VERSION_MIN, VERSION_MAX, SLOTS, WANTED,
                                    INSTANCE (0: not claimed) */
    SANDBOX_CONTROL_TAKEN,       /* serial of the CONN */
    SANDBOX_CONTROL_WANT,        /* one run slot */
    SANDBOX_CONTROL_DONE,        /* gives one run slot back */
    SANDBOX_CONTROL_STATE,       /* RUNNING, QUEUED, BACKGROUND, COMMANDS */
    SANDBOX_CONTROL_RETURN,      /* 2 descriptors: connection, request */
    SANDBOX_CONTROL_REPLACE      /* after the RETURNs: a fresh sandbox */
};


/* flags of CONN */

#define SANDBOX_CONN_GRANTED       0x01  /* a run slot comes with it */
#define SANDBOX_CONN_RETURNED      0x02  /* 2nd descriptor: the request */
#define SANDBOX_CONN_FRESH         0x04  /* this instance was made for it */


#endif /* SANDBOX_CONTROL_H */
