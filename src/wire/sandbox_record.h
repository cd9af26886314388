/*
 * Records in DATA frames, `u32 length || fields`, which frames may cut
 * anywhere; and whose session one of SESSIONS is about.
 */

#ifndef SANDBOX_RECORD_H
#define SANDBOX_RECORD_H

#include <stddef.h>
#include <stdint.h>


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


#endif /* SANDBOX_RECORD_H */
