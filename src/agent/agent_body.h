/*
 * The body of a request that is passed on as it comes: of a known length, or
 * in chunks.  Knows bytes only.
 */

#ifndef AGENT_BODY_H
#define AGENT_BODY_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


typedef struct {
    uint64_t    left;                    /* of the body, or of the chunk */
    unsigned    chunked:1;
    unsigned    end:1;                   /* nothing more belongs to it */
    unsigned    have;
    uint8_t     length[SANDBOX_WIRE_CHUNK_SIZE];
} agent_body_t;


void agent_body_init(agent_body_t *body, uint64_t length);

/*
 * Takes the next run of data out of the *size bytes at *p, which then are
 * what is behind it.  1: there is one; 0: more is needed, or it has ended;
 * -1: it is no body.
 */
int agent_body_next(agent_body_t *body, const uint8_t **p, size_t *size,
    const uint8_t **data, size_t *length);


#endif /* AGENT_BODY_H */
