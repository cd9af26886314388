/*
 * An HTTP/1.1 answer that comes in pieces.  Strict, since what was cut short
 * must not pass for an answer: its end is known from Content-Length or by
 * chunks, never from the connection's.  Knows nothing but bytes.
 */

#ifndef SANDBOX_ANSWER_H
#define SANDBOX_ANSWER_H

#include <stddef.h>
#include <stdint.h>


#define SANDBOX_ANSWER_LINE  1024                /* bytes, of a header */
#define SANDBOX_ANSWER_HEAD  (16 * 1024)         /* all of them */


/* all but max is 0 at the start */

typedef struct {
    uint64_t     max;                    /* bytes of the body */

    unsigned     status;                 /* 200 to 599 */
    unsigned     json;                   /* 1: the header says that it is */
    const char  *problem;                /* of SANDBOX_BAD, words */

    unsigned     state;
    unsigned     sized;                  /* there was a Content-Length */
    unsigned     chunked;
    uint64_t     left;                   /* bytes of the body, or of a chunk */
    uint64_t     size;                   /* of the body so far */
    size_t       head;                   /* bytes of header or trailer */
    size_t       have;                   /* bytes of line */
    uint8_t      line[SANDBOX_ANSWER_LINE];
} sandbox_answer_t;


/*
 * Takes from *p, of which *n bytes are there, and gives at most one piece of
 * the body, which lies in them.  SANDBOX_OK: that was all.  SANDBOX_AGAIN:
 * call once more while *n is not 0, then with what comes.  SANDBOX_BAD: it
 * is no such answer, or too long.
 */
int sandbox_answer_take(sandbox_answer_t *answer, const uint8_t **p, size_t *n,
    const uint8_t **body, size_t *size);


#endif /* SANDBOX_ANSWER_H */
