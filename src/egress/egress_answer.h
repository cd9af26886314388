/*
 * What a refused connection is told, and what the log says of it: who forbids
 * it, and what there is to do.  Pure: knows no sockets.
 */

#ifndef EGRESS_ANSWER_H
#define EGRESS_ANSWER_H

#include <stddef.h>


typedef enum {
    EGRESS_ANSWER_OK = 0,
    EGRESS_ANSWER_MALFORMED,
    EGRESS_ANSWER_LONG,
    EGRESS_ANSWER_SLOW,
    EGRESS_ANSWER_METHOD,
    EGRESS_ANSWER_LITERAL,               /* an address in place of a name */
    EGRESS_ANSWER_HOST,
    EGRESS_ANSWER_TOKEN,                 /* it does not say whose it is */
    EGRESS_ANSWER_POLICY,                /* the sandbox has none */
    EGRESS_ANSWER_NAME,                  /* not in the policy */
    EGRESS_ANSWER_PORT,
    EGRESS_ANSWER_ADDRESS,               /* it leads to no public address */
    EGRESS_ANSWER_BYTES,                 /* all that it may carry */
    EGRESS_ANSWER_CONNECTIONS,           /* too many at a time */
    EGRESS_ANSWER_BUSY,                  /* the proxy has no room */
    EGRESS_ANSWER_UNKNOWN,               /* there is no such name */
    EGRESS_ANSWER_RESOLVER,              /* it does not say */
    EGRESS_ANSWER_UNREACHED,
    EGRESS_ANSWER_TIMEOUT,
    EGRESS_ANSWER_LAST
} egress_answer_e;


typedef struct {
    egress_answer_e  why;
    const char      *host;               /* "": not known */
    unsigned         port;               /* 0: not known */
    const char      *policy;             /* NULL: none, or not known */
    size_t           policy_length;
    const char      *detail;             /* an address, an error; or NULL */
} egress_refusal_t;


/* The whole answer, of at most `size` bytes; its length. */
size_t egress_answer_write(const egress_refusal_t *refusal, char *p,
    size_t size);

/* One line for the log. */
void egress_answer_line(const egress_refusal_t *refusal, char *p, size_t size);

/* 1: it was allowed, and could not be reached. */
int egress_answer_failed(egress_answer_e why);


#endif /* EGRESS_ANSWER_H */
