/*
 * What is kept of one output stream: its head, its tail, and counts.
 * Knows nothing but bytes.
 */

#ifndef AGENT_OUTPUT_H
#define AGENT_OUTPUT_H

#include <stddef.h>
#include <stdint.h>


typedef struct {
    uint64_t   total;                    /* bytes written by the command */
    size_t     half;                     /* most bytes of head, of tail */
    uint8_t   *head;
    size_t     head_size;
    size_t     head_room;
    uint8_t   *tail;                     /* a ring once it is full */
    size_t     tail_size;
    size_t     tail_room;
    size_t     tail_start;
} agent_output_t;


/* Will keep at most `limit` bytes, half of it from each end. */
void agent_output_init(agent_output_t *output, size_t limit);
void agent_output_free(agent_output_t *output);

/* Counts and keeps.  Bytes for which there is no memory are left out. */
void agent_output_add(agent_output_t *output, const uint8_t *data,
    size_t size);

/*
 * What to send: head and tail as pieces, and the bytes left out between
 * them, both ends at UTF-8 borders.  With nothing left out the tail follows
 * the head directly.  The tail is made contiguous; pointers live until the
 * next call.
 */
void agent_output_parts(agent_output_t *output, const uint8_t **head,
    size_t *head_size, const uint8_t **tail, size_t *tail_size,
    uint64_t *left_out);


#endif /* AGENT_OUTPUT_H */
