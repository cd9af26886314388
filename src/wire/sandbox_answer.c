/*
 * Reads an HTTP/1.1 answer: lines into a buffer of their own, the body as it
 * lies.  Knows of headers only what tells the body's end and its type.
 */

#include <string.h>
#include <strings.h>

#include "sandbox_answer.h"
#include "sandbox_wire.h"


typedef enum {
    ANSWER_STATUS = 0,
    ANSWER_HEADER,
    ANSWER_BODY,
    ANSWER_CHUNK_SIZE,
    ANSWER_CHUNK,
    ANSWER_CHUNK_END,
    ANSWER_TRAILER,
    ANSWER_DONE
} answer_state_e;


static int answer_line(sandbox_answer_t *answer, const uint8_t **p, size_t *n);
static int answer_use(sandbox_answer_t *answer);
static int answer_status(sandbox_answer_t *answer);
static int answer_header(sandbox_answer_t *answer);
static int answer_length(sandbox_answer_t *answer, const char *value,
    size_t size);
static int answer_body(sandbox_answer_t *answer);
static int answer_chunk(sandbox_answer_t *answer);
static int answer_bad(sandbox_answer_t *answer, const char *problem);
static int answer_is(const char *name, size_t size, const char *expected);


int
sandbox_answer_take(sandbox_answer_t *answer, const uint8_t **p, size_t *n,
    const uint8_t **body, size_t *size)
{
    int  rc;

    *body = *p;
    *size = 0;

    while (answer->state != ANSWER_DONE) {

        if (*n == 0) {
            return SANDBOX_AGAIN;
        }

        if (answer->state != ANSWER_BODY && answer->state != ANSWER_CHUNK) {

            rc = answer_line(answer, p, n);

            if (rc == SANDBOX_OK) {
                rc = answer_use(answer);
                answer->have = 0;
            }

            if (rc != SANDBOX_OK) {
                return rc;
            }

            continue;
        }

        *body = *p;
        *size = (*n < answer->left) ? *n : (size_t) answer->left;

        *p += *size;
        *n -= *size;
        answer->left -= *size;
        answer->size += *size;

        if (answer->left) {
            return SANDBOX_AGAIN;
        }

        if (answer->state == ANSWER_CHUNK) {
            answer->state = ANSWER_CHUNK_END;
            return SANDBOX_AGAIN;
        }

        answer->state = ANSWER_DONE;
    }

    return SANDBOX_OK;
}


/* SANDBOX_OK: a line is there, without its end */

static int
answer_line(sandbox_answer_t *answer, const uint8_t **p, size_t *n)
{
    uint8_t  c;

    while (*n) {

        c = *(*p)++;
        (*n)--;

        if (answer->have && answer->line[answer->have - 1] == '\r') {

            if (c != '\n') {
                return answer_bad(answer, "a header has a bare CR");
            }

            answer->have--;
            return SANDBOX_OK;
        }

        if ((c < 0x20 && c != '\r' && c != '\t') || c == 0x7f) {
            return answer_bad(answer, "a header has a control character");
        }

        if (answer->have == SANDBOX_ANSWER_LINE) {
            return answer_bad(answer, "a header is too long");
        }

        answer->line[answer->have++] = c;
    }

    return SANDBOX_AGAIN;
}


static int
answer_use(sandbox_answer_t *answer)
{
    switch (answer->state) {

    case ANSWER_STATUS:
        return answer_status(answer);

    case ANSWER_HEADER:
    case ANSWER_TRAILER:
        answer->head += answer->have;

        if (answer->head > SANDBOX_ANSWER_HEAD) {
            return answer_bad(answer, "its header is too long");
        }

        if (answer->have && answer->state == ANSWER_HEADER) {
            return answer_header(answer);
        }

        if (answer->have) {
            return SANDBOX_OK;
        }

        if (answer->state == ANSWER_HEADER) {
            return answer_body(answer);
        }

        answer->state = ANSWER_DONE;
        return SANDBOX_OK;

    case ANSWER_CHUNK_SIZE:
        return answer_chunk(answer);

    default: /* ANSWER_CHUNK_END */

        if (answer->have) {
            return answer_bad(answer, "a chunk is longer than it says");
        }

        answer->state = ANSWER_CHUNK_SIZE;
        return SANDBOX_OK;
    }
}


static int
answer_status(sandbox_answer_t *answer)
{
    size_t          i;
    const uint8_t  *p;

    p = answer->line;

    if (answer->have < 12 || memcmp(p, "HTTP/1.1 ", 9) != 0
        || (answer->have > 12 && p[12] != ' '))
    {
        return answer_bad(answer, "it does not begin as HTTP/1.1");
    }

    for (i = 9; i < 12; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return answer_bad(answer, "it does not begin as HTTP/1.1");
        }

        answer->status = answer->status * 10 + (p[i] - '0');
    }

    /* of those below, and of 204 and 304, there is no body */

    if (answer->status < 200 || answer->status > 599 || answer->status == 204
        || answer->status == 304)
    {
        return answer_bad(answer, "it has a status that is no answer");
    }

    answer->state = ANSWER_HEADER;

    return SANDBOX_OK;
}


static int
answer_header(sandbox_answer_t *answer)
{
    size_t       name, size;
    const char  *p, *colon, *value;

    p = (const char *) answer->line;
    colon = memchr(p, ':', answer->have);

    if (colon == NULL || colon == p || p[0] == ' ' || p[0] == '\t'
        || colon[-1] == ' ' || colon[-1] == '\t')
    {
        return answer_bad(answer, "a header is no header");
    }

    name = (size_t) (colon - p);
    value = colon + 1;
    size = answer->have - name - 1;

    while (size && (value[0] == ' ' || value[0] == '\t')) {
        value++;
        size--;
    }

    while (size && (value[size - 1] == ' ' || value[size - 1] == '\t')) {
        size--;
    }

    if (answer_is(p, name, "content-length")) {
        return answer_length(answer, value, size);
    }

    if (answer_is(p, name, "transfer-encoding")) {

        if (answer->chunked || !answer_is(value, size, "chunked")) {
            return answer_bad(answer, "it has an unknown transfer coding");
        }

        answer->chunked = 1;
        return SANDBOX_OK;
    }

    if (answer_is(p, name, "content-encoding")
        && !answer_is(value, size, "identity"))
    {
        return answer_bad(answer, "it is compressed, which was not asked for");
    }

    if (answer_is(p, name, "content-type")) {

        answer->json = size >= 16
                       && strncasecmp(value, "application/json", 16) == 0
                       && (size == 16 || value[16] == ';' || value[16] == ' ');
    }

    return SANDBOX_OK;
}


static int
answer_length(sandbox_answer_t *answer, const char *value, size_t size)
{
    if (size == 0 || answer->sized) {
        return answer_bad(answer, "its length is no number");
    }

    answer->sized = 1;

    for ( /* void */ ; size; size--, value++) {

        if (*value < '0' || *value > '9') {
            return answer_bad(answer, "its length is no number");
        }

        answer->left = answer->left * 10 + (uint64_t) (*value - '0');

        if (answer->left > answer->max) {
            return answer_bad(answer, "it is too long");
        }
    }

    return SANDBOX_OK;
}


static int
answer_body(sandbox_answer_t *answer)
{
    if (answer->sized == answer->chunked) {
        return answer_bad(answer, answer->sized
                                  ? "it has two lengths"
                                  : "it does not say where it ends");
    }

    answer->head = 0;
    answer->state = answer->chunked ? ANSWER_CHUNK_SIZE
                    : answer->left ? ANSWER_BODY : ANSWER_DONE;

    return SANDBOX_OK;
}


static int
answer_chunk(sandbox_answer_t *answer)
{
    size_t    i;
    uint8_t   c;
    unsigned  digit;

    answer->left = 0;

    for (i = 0; i < answer->have; i++) {

        c = answer->line[i];

        if (c >= '0' && c <= '9') {
            digit = c - '0';

        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            digit = (c | 0x20) - 'a' + 10;

        } else {
            break;
        }

        answer->left = answer->left * 16 + digit;

        if (answer->left > answer->max - answer->size) {
            return answer_bad(answer, "it is too long");
        }
    }

    /* what follows a semicolon means nothing to us */

    if (i == 0
        || (i < answer->have && answer->line[i] != ';'
            && answer->line[i] != ' ' && answer->line[i] != '\t'))
    {
        return answer_bad(answer, "a chunk's size is no number");
    }

    answer->state = answer->left ? ANSWER_CHUNK : ANSWER_TRAILER;

    return SANDBOX_OK;
}


static int
answer_bad(sandbox_answer_t *answer, const char *problem)
{
    answer->problem = problem;

    return SANDBOX_BAD;
}


static int
answer_is(const char *name, size_t size, const char *expected)
{
    return size == strlen(expected) && strncasecmp(name, expected, size) == 0;
}
