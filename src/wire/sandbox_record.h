/*
 * Records in DATA frames, `u32 length || fields`, which frames may cut
 * anywhere; whose session one of SESSIONS is about; and what an ENGINE of a
 * PING says, which is a field with fields in it.
 */

#ifndef SANDBOX_RECORD_H
#define SANDBOX_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


#define SANDBOX_ENGINE_MAX_METADATA  1024        /* bytes, a header's value */
#define SANDBOX_ENGINE_MAX_DOMAIN    64


/* all but data and max is 0 at the start */

typedef struct {
    uint8_t  *data;                      /* room for max bytes */
    size_t    max;
    size_t    size;                      /* of the one in data */

    uint8_t   length[4];
    size_t    have;                      /* bytes of length */
    size_t    got;                       /* bytes of data */
} sandbox_record_t;


/*
 * Takes from *p, of which *n bytes are there: SANDBOX_OK and a whole record,
 * of size bytes in data; SANDBOX_AGAIN, all is taken; SANDBOX_BAD for a length
 * of 0 or over max.
 */
int sandbox_record_take(sandbox_record_t *record, const uint8_t **p,
    size_t *n);

/*
 * The session that a record of SESSIONS begins with, SANDBOX_WIRE_SESSION_SIZE
 * bytes in it; NULL if it does not.
 */
const uint8_t *sandbox_record_session(const uint8_t *p, size_t size);


/* parts that are not there have length 0; all point into what was read */

typedef struct {
    sandbox_field_t  name;
    sandbox_field_t  metadata;
    sandbox_field_t  domain;
    sandbox_field_t  detail;             /* why it is not ready */
    sandbox_field_t  proxy;
    uint64_t         generation;
    uint64_t         ready;
} sandbox_engine_t;


/*
 * SANDBOX_OK: one that is ready has all that a query needs, of letters that
 * may stand in a header and in a name.  SANDBOX_BAD: something is wrong with
 * it, so it is not ready; without a name it is as good as not told of.
 */
int sandbox_record_engine(sandbox_engine_t *engine, const uint8_t *p,
    size_t size);


#endif /* SANDBOX_RECORD_H */
