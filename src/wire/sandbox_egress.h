/*
 * The table of egress policies as the wire has it: checked as a whole, then
 * looked up in place.  Shared by runner, proxy and tests; knows no sockets,
 * allocates nothing.
 */

#ifndef SANDBOX_EGRESS_H
#define SANDBOX_EGRESS_H

#include "sandbox_wire.h"


#define SANDBOX_EGRESS_PORT          3128        /* on a sandbox's loopback */
#define SANDBOX_EGRESS_MAX_POLICIES  64
#define SANDBOX_EGRESS_MAX_HOSTS     256         /* of one policy */
#define SANDBOX_EGRESS_MAX_NAME      253         /* of a host, in bytes */


/* one policy; all pointers lead into the table that it was read from */

typedef struct {
    uint32_t        id;                  /* not 0 */
    const uint8_t  *name;
    size_t          name_length;
    unsigned        hosts;
    uint64_t        connections;         /* of one sandbox; 0: the proxy's */
    uint64_t        bytes;               /* 0: no bound, so of time_ms */
    uint64_t        time_ms;             /* of one tunnel */
    const uint8_t  *index;               /* NULL: none */
    size_t          index_length;
    const uint8_t  *ca;                  /* NULL: none */
    size_t          ca_length;
    const uint8_t  *fields;              /* all of it */
    size_t          size;
} sandbox_egress_policy_t;


/*
 * SANDBOX_OK, or SANDBOX_BAD if anything in the table is not as it must be:
 * a field unknown, twice or missing, a name, host, URL or PEM that can't be
 * one, more than the maxima, an id twice.
 */
int sandbox_egress_check(const uint8_t *p, size_t size);

/* The next policy of a table that was checked; SANDBOX_END after the last. */
int sandbox_egress_next(sandbox_fields_t *table,
    sandbox_egress_policy_t *policy);

/* 1: found by its id. */
int sandbox_egress_find(const uint8_t *p, size_t size, uint32_t id,
    sandbox_egress_policy_t *policy);

/*
 * 1: one of its hosts is that name, which sandbox_egress_host() holds for
 * one.  "*.a.b" allows every name below "a.b", and not "a.b" itself.
 */
int sandbox_egress_allows(const sandbox_egress_policy_t *policy,
    const uint8_t *host, size_t length);

/*
 * 1: a host name in lower case: labels of letters, digits and inner hyphens,
 * no dot at the end, and the last label is no number, so that it can't be an
 * address in any notation.
 */
int sandbox_egress_host(const uint8_t *host, size_t length);


#endif /* SANDBOX_EGRESS_H */
