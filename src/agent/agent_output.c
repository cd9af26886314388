/*
 * Head and tail of an output stream, in buffers that grow only when there is
 * something to keep, up to a fixed maximum.
 */

#include <stdlib.h>
#include <string.h>

#include "agent_output.h"
#include "sandbox_utf8.h"


#define AGENT_OUTPUT_START  4096


static size_t agent_output_append(uint8_t **p, size_t *have, size_t *room,
    size_t most, const uint8_t *data, size_t size);
static void agent_output_ring(agent_output_t *output, const uint8_t *data,
    size_t size);
static void agent_output_reverse(uint8_t *p, size_t size);


void
agent_output_init(agent_output_t *output, size_t limit)
{
    memset(output, 0, sizeof(agent_output_t));
    output->half = limit / 2;
}


void
agent_output_free(agent_output_t *output)
{
    free(output->head);
    free(output->tail);
    memset(output, 0, sizeof(agent_output_t));
}


void
agent_output_add(agent_output_t *output, const uint8_t *data, size_t size)
{
    size_t  n;

    output->total += size;

    if (output->half == 0 || size == 0) {
        return;
    }

    if (output->tail_size == 0 && output->head_size < output->half) {
        n = agent_output_append(&output->head, &output->head_size,
                                &output->head_room, output->half, data, size);
        data += n;
        size -= n;
    }

    /* a tail that already turns could not be made longer in order */

    if (size && output->tail_start == 0 && output->tail_size < output->half) {
        n = agent_output_append(&output->tail, &output->tail_size,
                                &output->tail_room, output->half, data, size);
        data += n;
        size -= n;
    }

    if (size && output->tail_size) {
        agent_output_ring(output, data, size);
    }
}


void
agent_output_parts(agent_output_t *output, const uint8_t **head,
    size_t *head_size, const uint8_t **tail, size_t *tail_size,
    uint64_t *left_out)
{
    size_t  skip;

    /* a ring is turned by three reversals, without a second buffer */

    if (output->tail_start) {
        agent_output_reverse(output->tail, output->tail_start);
        agent_output_reverse(output->tail + output->tail_start,
                             output->tail_size - output->tail_start);
        agent_output_reverse(output->tail, output->tail_size);
        output->tail_start = 0;
    }

    *head = output->head;
    *head_size = output->head_size;
    *tail = output->tail;
    *tail_size = output->tail_size;

    if (output->total > output->head_size + output->tail_size) {
        *head_size = sandbox_utf8_head(output->head, output->head_size);
        skip = sandbox_utf8_tail(output->tail, output->tail_size);
        *tail_size -= skip;

        if (output->tail != NULL) {
            *tail += skip;
        }
    }

    *left_out = output->total - *head_size - *tail_size;
}


/* Appends what fits below `most`; the bytes taken. */

static size_t
agent_output_append(uint8_t **p, size_t *have, size_t *room, size_t most,
    const uint8_t *data, size_t size)
{
    size_t    wanted;
    uint8_t  *grown;

    if (size > most - *have) {
        size = most - *have;
    }

    if (*have + size > *room) {
        wanted = *room ? *room : AGENT_OUTPUT_START;

        while (wanted < *have + size) {
            wanted *= 2;
        }

        if (wanted > most) {
            wanted = most;
        }

        grown = realloc(*p, wanted);
        if (grown == NULL) {
            return 0;
        }

        *p = grown;
        *room = wanted;
    }

    memcpy(*p + *have, data, size);
    *have += size;

    return size;
}


static void
agent_output_ring(agent_output_t *output, const uint8_t *data, size_t size)
{
    size_t  n;

    if (size > output->tail_size) {
        data += size - output->tail_size;
        size = output->tail_size;
    }

    n = output->tail_size - output->tail_start;

    if (n > size) {
        n = size;
    }

    memcpy(output->tail + output->tail_start, data, n);
    memcpy(output->tail, data + n, size - n);

    output->tail_start = (output->tail_start + size) % output->tail_size;
}


static void
agent_output_reverse(uint8_t *p, size_t size)
{
    size_t   i;
    uint8_t  byte;

    for (i = 0; i < size / 2; i++) {
        byte = p[i];
        p[i] = p[size - 1 - i];
        p[size - 1 - i] = byte;
    }
}
