/*
 * Base64, piece by piece: bytes for characters, and characters for bytes.
 */

#ifndef AGENT_BASE64_H
#define AGENT_BASE64_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>


/* between two pieces; all zeros at the beginning */

typedef struct {
    uint32_t  bits;                      /* that make no byte yet */
    unsigned  count;                     /* of them */
    unsigned  padded:1;                  /* only padding can follow */
} agent_base64_t;


/*
 * The bytes of the next characters, at most 3 for 4 of them and one more; how
 * many.  Blanks and ends of lines are skipped.  -1: it is something else.
 */
ssize_t agent_base64_decode(agent_base64_t *b, const uint8_t *p, size_t size,
    uint8_t *out);

/* Four characters for 1 to 3 bytes; with less than 3 it is the end. */
void agent_base64_encode(char *text, const uint8_t *p, unsigned n);


#endif /* AGENT_BASE64_H */
