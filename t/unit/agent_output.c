/*
 * What is kept of an output stream: head, tail and counts, against a plain
 * model, over many sizes, pieces and texts.
 */

/* link: src/agent/agent_output.c src/wire/sandbox_utf8.c */

#include <stdlib.h>

#include "test.h"
#include "agent_output.h"
#include "sandbox_utf8.h"


#define MOST  5000


static void nothing(void);
static void borders(void);
static void text(void);
static void pieces(void);
static void bounded(void);
static int good(agent_output_t *output, const uint8_t *all, size_t size,
    size_t limit);


int
main(void)
{
    nothing();
    borders();
    text();
    pieces();
    bounded();

    return test_done();
}


static void
nothing(void)
{
    agent_output_t  output;

    agent_output_init(&output, 1000);
    ok(good(&output, (uint8_t *) "", 0, 1000), "no output");
    agent_output_free(&output);

    agent_output_init(&output, 0);
    agent_output_add(&output, (uint8_t *) "abc", 3);
    ok(good(&output, (uint8_t *) "abc", 3, 0), "a limit of 0 counts only");
    agent_output_free(&output);

    agent_output_init(&output, 1);
    agent_output_add(&output, (uint8_t *) "abc", 3);
    ok(good(&output, (uint8_t *) "abc", 3, 0), "a limit of 1 has no halves");
    agent_output_free(&output);
}


/* bytes that are no text are cut exactly at the limit */

static void
borders(void)
{
    int             same;
    size_t          i, limit, size;
    uint8_t         all[64];
    agent_output_t  output;

    for (i = 0; i < sizeof(all); i++) {
        all[i] = 'a' + i % 26;
    }

    same = 1;

    for (limit = 2; limit <= 20; limit += 2) {
        for (size = 0; size < sizeof(all); size++) {
            agent_output_init(&output, limit);
            agent_output_add(&output, all, size);
            same &= good(&output, all, size, limit);
            same &= output.head_size + output.tail_size
                    == (size < limit ? size : limit);
            agent_output_free(&output);
        }
    }

    ok(same, "every size around every small limit");
}


/* a cut never falls inside of a character */

static void
text(void)
{
    int              same;
    size_t           lead, size, head_size, tail_size, limit;
    uint8_t          all[3 * 300 + 4];
    uint64_t         left_out;
    unsigned         i;
    const uint8_t   *head, *tail;
    agent_output_t   output;

    same = 1;

    for (limit = 20; limit < 60; limit++) {
        for (lead = 0; lead < 4; lead++) {
            memset(all, ' ', lead);

            for (i = 0; i < 300; i++) {
                memcpy(all + lead + 3 * i, "\xe2\x82\xac", 3);
            }

            size = lead + 900;
            agent_output_init(&output, limit);
            agent_output_add(&output, all, size);
            agent_output_parts(&output, &head, &head_size, &tail, &tail_size,
                               &left_out);
            same &= sandbox_utf8_text(head, head_size);
            same &= sandbox_utf8_text(tail, tail_size);
            same &= head_size + left_out + tail_size == size;
            same &= head_size + 3 > limit / 2 && tail_size + 3 > limit / 2;
            agent_output_free(&output);
        }
    }

    ok(same, "three-byte characters are not split");
}


/* the same result, however the bytes come */

static void
pieces(void)
{
    int             same;
    size_t          at, n, size, limit;
    unsigned        i;
    static uint8_t  all[MOST];
    agent_output_t  output;

    srand(3);
    same = 1;

    for (i = 0; i < 3000; i++) {
        size = rand() % MOST;
        limit = 2 * (rand() % (MOST / 2));
        agent_output_init(&output, limit);

        for (at = 0; at < size; at++) {
            all[at] = (uint8_t) rand();
        }

        for (at = 0; at < size; at += n) {
            n = 1 + rand() % (i % 3 ? 1000 : 7);

            if (n > size - at) {
                n = size - at;
            }

            agent_output_add(&output, all + at, n);
        }

        same &= good(&output, all, size, limit);

        /* asking changes nothing, and more may come afterwards */

        agent_output_add(&output, all, size % 11);
        same &= output.total == size + size % 11;
        agent_output_free(&output);
    }

    ok(same, "random sizes, limits and pieces");
}


static void
bounded(void)
{
    unsigned        i;
    static uint8_t  block[65536];
    agent_output_t  output;

    agent_output_init(&output, 100000);
    agent_output_add(&output, block, 10);
    ok(output.head_room <= 4096 && output.tail_room == 0,
       "little output takes little memory");

    for (i = 0; i < 1000; i++) {
        agent_output_add(&output, block, sizeof(block));
    }

    is_number(output.total, 65536000 + 10, "all is counted");
    ok(output.head_room <= 50000 && output.tail_room <= 50000,
       "much output takes no more than the limit");
    agent_output_free(&output);
}


/* head and tail are those of `all`, except for what a character's border costs
 */

static int
good(agent_output_t *output, const uint8_t *all, size_t size, size_t limit)
{
    size_t          head_size, tail_size, most;
    uint64_t        left_out;
    const uint8_t  *head, *tail;

    agent_output_parts(output, &head, &head_size, &tail, &tail_size,
                       &left_out);

    most = limit / 2 * 2;

    if (head_size + left_out + tail_size != size || output->total != size
        || head_size + tail_size > most)
    {
        return 0;
    }

    if (size <= most && left_out != 0) {
        return 0;
    }

    if (size > most && head_size + tail_size + 6 < most) {
        return 0;
    }

    if ((head_size && memcmp(head, all, head_size) != 0)
        || (tail_size && memcmp(tail, all + size - tail_size, tail_size)
                         != 0))
    {
        return 0;
    }

    return 1;
}
