/*
 * What runner and proxy tell each other: messages as on the control channel
 * (sandbox_control.h), the serial is the number of a slot.  Both are of one
 * release and started together, so there are no versions.
 */

#ifndef EGRESS_CHANNEL_H
#define EGRESS_CHANNEL_H


#define EGRESS_FD_CHANNEL  3             /* of the proxy, when it starts */


enum {
    /* runner to proxy */
    EGRESS_CHANNEL_TABLE = 64,   /* 1 descriptor: a memfd with all of it */
    EGRESS_CHANNEL_OPEN,         /* 1 descriptor: the listener; SANDBOX_ID,
                                    EGRESS_ID */
    EGRESS_CHANNEL_POLICY,       /* EGRESS_ID */
    EGRESS_CHANNEL_CLOSE,        /* the sandbox ended */
    EGRESS_CHANNEL_GATE,         /* 1 descriptor: a listener that many share;
                                    EGRESS_KEY, which signs their tokens */

    /* proxy to runner */
    EGRESS_CHANNEL_READY = 80,   /* it takes connections from now on */
    EGRESS_CHANNEL_COUNT         /* fields of EGRESS_COUNT, of one policy,
                                    since the proxy started */
};


#endif /* EGRESS_CHANNEL_H */
