/*
 * The head of a request to the proxy, read strictly: CONNECT and nothing
 * else.  Pure: knows no sockets, allocates nothing.
 */

#ifndef EGRESS_REQUEST_H
#define EGRESS_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_egress.h"


#define EGRESS_MAX_HEAD     8192                 /* bytes */
#define EGRESS_MAX_HEADERS  64


typedef enum {
    EGRESS_REQUEST_OK = 0,
    EGRESS_REQUEST_AGAIN,                /* the head is not complete */
    EGRESS_REQUEST_MALFORMED,            /* 400 */
    EGRESS_REQUEST_TOO_LONG,             /* 431 */
    EGRESS_REQUEST_METHOD,               /* 403: not CONNECT */
    EGRESS_REQUEST_ADDRESS,              /* 403: an address, not a name */
    EGRESS_REQUEST_HOST                  /* 403: it can't be a host's name */
} egress_request_e;


/* zero it before the first call */

typedef struct {
    size_t    seen;                      /* bytes that were looked at */
    size_t    head;                      /* of OK: bytes up to the tunnel's */
    unsigned  port;                      /* of OK, and of most refusals */
    size_t    length;                    /* of host */
    char      host[SANDBOX_EGRESS_MAX_NAME + 1];   /* of OK: lower case */
    size_t    auth;                      /* where the value of Proxy-... */
    size_t    auth_length;               /* ...Authorization is; 0: none */
} egress_request_t;


/* Looks at all `size` bytes that have come so far, at most EGRESS_MAX_HEAD. */
egress_request_e egress_request_read(egress_request_t *request,
    const uint8_t *p, size_t size);


#endif /* EGRESS_REQUEST_H */
