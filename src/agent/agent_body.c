/*
 * The body of a request that is passed on as it comes.
 */

#include "agent_body.h"


void
agent_body_init(agent_body_t *body, uint64_t length)
{
    body->chunked = length == SANDBOX_WIRE_BODY_CHUNKED;
    body->left = body->chunked ? 0 : length;
    body->end = !body->chunked && length == 0;
    body->have = 0;
}


int
agent_body_next(agent_body_t *body, const uint8_t **p, size_t *size,
    const uint8_t **data, size_t *length)
{
    while (*size && !body->end) {

        if (body->left) {
            *data = *p;
            *length = *size < body->left ? *size : body->left;

            body->left -= *length;
            *p += *length;
            *size -= *length;
            body->end = !body->chunked && body->left == 0;

            return 1;
        }

        body->length[body->have++] = *(*p)++;
        (*size)--;

        if (body->have == sizeof(body->length)) {
            body->have = 0;
            body->left = sandbox_get32(body->length);
            body->end = body->left == 0;

            if (body->left > SANDBOX_WIRE_MAX_CHUNK) {
                return -1;
            }
        }
    }

    return 0;
}
