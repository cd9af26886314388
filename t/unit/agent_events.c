/*
 * The events of a command: numbers, cuts at the borders of characters, the
 * ring's maximum, readers at any pace with the gaps they are told, and what
 * was saved read back.  A reader here checks every byte against all that was
 * ever written.
 */

/* link: src/agent/agent_events.c src/wire/sandbox_wire.c */
/* link: src/wire/sandbox_utf8.c */

#include <stdlib.h>

#include "agent_events.h"
#include "test.h"


#define WRITTEN  (8 * 1024 * 1024)
#define EVENTS   200000


/* a connection: what it got is checked as it comes */

typedef struct {
    agent_cursor_t  cursor;
    agent_events_t *events;
    uint8_t         buffer[2 * 65536 + AGENT_EVENTS_REST];
    size_t          have;
    uint64_t        seq;
    uint64_t        at[2];               /* bytes of each stream */
    unsigned        gaps;
    unsigned        frames;
    unsigned        started;
    int             bad;
} reader_t;


static void numbers(void);
static void borders(void);
static void held(void);
static void maximum(void);
static void readers(void);
static void resumed(void);
static void expired(void);
static void saved(void);
static void torn(void);
static void trimmed(void);
static void follow(reader_t *r, agent_events_t *events, uint64_t after);
static void leave(reader_t *r);
static size_t step(reader_t *r, size_t most);
static void whole(reader_t *r);
static void take(reader_t *r, const uint8_t *p, size_t size);
static void put(agent_events_t *events, unsigned stream, const void *data,
    size_t size);
static unsigned number(unsigned below);
static void restart(void);


static uint8_t   written[2][WRITTEN];
static size_t    written_size[2];
static uint64_t  seen[EVENTS][2];        /* bytes up to an event */
static uint64_t  seen_last;
static reader_t  one, two, slow, fast;
static uint64_t  seed = 1;


int
main(void)
{
    numbers();
    borders();
    held();
    maximum();
    readers();
    resumed();
    expired();
    saved();
    torn();
    trimmed();

    return test_done();
}


static void
numbers(void)
{
    agent_events_t  *events;

    restart();
    events = agent_events_new();
    agent_events_start(events, 1234);
    put(events, 0, "out", 3);
    put(events, 1, "err", 3);
    is_number(agent_events_last(events), 3, "each event has the next number");

    follow(&one, events, 0);
    whole(&one);
    is_number(one.started, 1234, "STARTED is the first");
    ok(one.seq == 3 && one.at[0] == 3 && one.at[1] == 3 && !one.bad,
       "then the output of both streams");
    is_number(step(&one, 65536), 0, "and then nothing");

    put(events, 0, "more", 4);
    whole(&one);
    ok(one.seq == 4 && one.at[0] == 7 && !one.bad, "until more comes");
    is_number(agent_events_end(events), 5, "the RESULT is the last");
    is_number(agent_events_end(events), 5, "which is said once");
    leave(&one);

    follow(&one, events, 3);
    one.at[0] = 3;
    whole(&one);
    ok(one.seq == 4 && one.frames == 1 && !one.bad, "one begins after an event");
    leave(&one);

    follow(&one, events, 5);
    is_number(step(&one, 65536), 0, "after the RESULT nothing is left");
    leave(&one);
    is_number(agent_events_seek(events, &one.cursor, 6), -1,
              "a number that was not given out");
    agent_events_release(events);
}


static void
borders(void)
{
    uint8_t          text[3 * 20000];
    size_t           i, lead;
    agent_events_t  *events;

    for (lead = 0; lead < 3; lead++) {
        restart();
        events = agent_events_new();

        for (i = 0; i < lead; i++) {
            text[i] = 'x';
        }

        for ( ; i + 3 <= sizeof(text); i += 3) {
            memcpy(text + i, "\xe2\x82\xac", 3);
        }

        put(events, 0, text, i);
        follow(&one, events, 0);
        whole(&one);
        ok(!one.bad && one.at[0] == i && one.frames == i / 8192 + 1,
           "no piece splits a character, %zu bytes before them", lead);
        leave(&one);
        agent_events_release(events);
    }

    restart();
    events = agent_events_new();
    memset(text, 0xbf, sizeof(text));
    put(events, 0, text, sizeof(text));
    agent_events_end(events);
    follow(&one, events, 0);
    whole(&one);
    is_number(one.at[0], sizeof(text), "what is no text is cut anywhere");
    leave(&one);
    agent_events_release(events);
}


static void
held(void)
{
    size_t           i;
    agent_events_t  *events;

    restart();
    events = agent_events_new();
    follow(&one, events, 0);

    for (i = 0; i < 4; i++) {
        put(events, 0, "\xf0\x9f\x98\x80" + i, 1);
        ok(agent_events_held(events) == (i < 3), "byte %zu of a character", i);
    }

    whole(&one);
    ok(one.frames == 1 && one.at[0] == 4 && !one.bad, "it is one event");

    put(events, 1, "a\xe2\x82", 3);
    whole(&one);
    ok(one.at[1] == 1 && agent_events_held(events), "its begin is held back");
    put(events, 0, "b", 1);
    put(events, 1, "\xac", 1);
    whole(&one);
    ok(one.at[1] == 4 && !agent_events_held(events) && !one.bad,
       "until the rest comes, whatever the other stream does");

    put(events, 0, "\xe2", 1);
    agent_events_flush(events);
    whole(&one);
    ok(one.at[0] == 6 && !agent_events_held(events), "or until the flush");
    put(events, 1, "\xf0\x9f", 2);
    agent_events_end(events);
    whole(&one);
    is_number(one.at[1], 6, "the end flushes, nothing is lost");
    leave(&one);
    agent_events_release(events);
}


static void
maximum(void)
{
    size_t           i, total;
    uint8_t          header[AGENT_EVENTS_HEADER];
    unsigned         n;
    struct iovec     iov[AGENT_EVENTS_PIECES];
    agent_events_t  *events;
    static uint8_t   block[65536];

    restart();
    events = agent_events_new();
    agent_events_start(events, 77);
    memset(block, 'y', sizeof(block));

    for (i = 0; i < 64; i++) {
        put(events, 0, block, sizeof(block));
    }

    total = 0;

    for (n = agent_events_save(events, header, iov); n > 1; n--) {
        total += iov[n - 1].iov_len;
    }

    ok(total <= AGENT_EVENTS_RING + 64 && total > AGENT_EVENTS_RING - 16384,
       "of 4 MiB the ring keeps the last: %zu", total);

    put(events, 1, "e", 1);
    follow(&one, events, 0);
    whole(&one);
    is_number(one.started, 77, "STARTED is not lost with the rest");
    ok(one.gaps == 1 && one.at[0] == 64 * 65536 && one.at[1] == 1 && !one.bad,
       "one gap says how much is gone");
    leave(&one);

    follow(&one, events, 100);
    one.at[0] = 99 * AGENT_EVENTS_PIECE;
    whole(&one);
    ok(one.gaps == 1 && one.at[0] == 64 * 65536 && !one.bad,
       "the same from an event that is gone");
    leave(&one);
    agent_events_release(events);
}


/* any sizes on both streams, readers at any pace: nothing twice or unsaid */

static void
readers(void)
{
    size_t           i, n;
    unsigned         round, bad;
    agent_events_t  *events;
    static uint8_t   block[65536];

    for (i = 0; i < sizeof(block); i++) {
        block[i] = (uint8_t) (32 + number(90));
    }

    bad = 0;

    for (round = 0; round < 6; round++) {
        restart();
        events = agent_events_new();
        agent_events_start(events, 1);
        follow(&fast, events, 0);
        follow(&slow, events, 0);

        for (i = 0; i < 4000; i++) {
            n = number(4) ? 1 + number(100) : 1 + number(20000);

            if (written_size[0] + n > WRITTEN || written_size[1] + n > WRITTEN) {
                break;
            }

            put(events, number(2), block + number(40000), n);

            if (number(3)) {
                whole(&fast);
            }

            if (number(3) == 0) {
                step(&slow, 1 + number(3000));
            }

            if (number(900) == 0) {
                agent_events_flush(events);
            }
        }

        agent_events_end(events);
        whole(&fast);
        whole(&slow);

        bad += fast.bad || slow.bad || fast.gaps || slow.gaps == 0
               || fast.at[0] != written_size[0]
               || fast.at[1] != written_size[1]
               || slow.at[0] != written_size[0]
               || slow.at[1] != written_size[1];

        leave(&fast);
        leave(&slow);
        agent_events_release(events);
    }

    is_number(bad, 0, "a fast and a slow reader have all, or know what not");
}


static void
resumed(void)
{
    size_t           i;
    uint64_t         after;
    unsigned         bad;
    agent_events_t  *events;
    static uint8_t   block[65536];

    restart();
    events = agent_events_new();
    agent_events_start(events, 1);
    memset(block, '.', sizeof(block));
    follow(&fast, events, 0);

    for (i = 0; i < 1500; i++) {
        put(events, i & 1, block, 1 + number(5000));
        whole(&fast);
    }

    agent_events_end(events);
    whole(&fast);
    ok(!fast.bad && fast.gaps == 0, "a reader notes what each number ends at");
    bad = 0;

    for (after = 1; after < seen_last; after += 1 + number(7)) {
        follow(&two, events, after);
        two.at[0] = seen[after][0];
        two.at[1] = seen[after][1];
        whole(&two);
        bad += two.bad || two.at[0] != written_size[0]
               || two.at[1] != written_size[1] || two.seq != seen_last;
        leave(&two);
    }

    is_number(bad, 0, "after any number: every byte once, or in a gap");
    leave(&fast);
    agent_events_release(events);
}


/* more events than are remembered one by one: less is said, never more */

static void
expired(void)
{
    size_t           i;
    agent_events_t  *events;
    static uint8_t   block[512];

    restart();
    events = agent_events_new();
    agent_events_start(events, 1);
    memset(block, '.', sizeof(block));

    for (i = 0; i < 30000; i++) {
        agent_events_add(events, i & 1, block, 100 + i % 2 + (i % 3) * 100);
        written_size[i & 1] += 100 + i % 2 + (i % 3) * 100;
    }

    memset(written, '.', sizeof(written));

    follow(&one, events, 0);
    whole(&one);
    ok(!one.bad && one.at[0] == written_size[0] && one.at[1] == written_size[1],
       "from the start the gaps are exact");
    leave(&one);

    follow(&one, events, 10);
    whole(&one);
    ok(one.at[0] <= written_size[0] && one.at[1] <= written_size[1]
       && one.gaps == 2,
       "from an event long gone they are no more than was lost");
    leave(&one);
    agent_events_release(events);
}


static void
saved(void)
{
    size_t           i, size;
    uint8_t         *file;
    unsigned         n;
    agent_events_t  *events, *again;
    static uint8_t   block[65536];

    for (i = 0; i < 3; i++) {
        restart();
        events = agent_events_new();
        agent_events_start(events, 99);
        memset(block, 'q', sizeof(block));

        for (n = 0; n < i * 30; n++) {
            put(events, n & 1, block, 40000 + number(20000));
        }

        agent_events_end(events);
        file = agent_events_pack(events, &size);
        again = agent_events_unpack(file, size);
        ok(again != NULL, "%zu bytes are read back", size);

        if (again != NULL) {
            follow(&one, events, 0);
            follow(&two, again, 0);
            whole(&one);
            whole(&two);
            ok(one.seq == two.seq && one.gaps == two.gaps && !one.bad
               && !two.bad && two.started == 99 && two.at[0] == written_size[0]
               && two.at[1] == written_size[1]
               && agent_events_last(again) == agent_events_last(events),
               "and are the same events");
            leave(&one);
            leave(&two);
            agent_events_release(again);
        }

        free(file);
        agent_events_release(events);
    }
}


static void
torn(void)
{
    size_t           i, size;
    uint8_t          file[20000], broken[20000], header[AGENT_EVENTS_HEADER];
    unsigned         n, count, taken;
    struct iovec     iov[AGENT_EVENTS_PIECES];
    agent_events_t  *events, *again;

    restart();
    events = agent_events_new();
    agent_events_start(events, 99);

    for (i = 0; i < 100; i++) {
        put(events, i & 1, "some text\n", 10);
    }

    agent_events_end(events);
    count = agent_events_save(events, header, iov);
    size = 0;

    for (n = 0; n < count; n++) {
        memcpy(file + size, iov[n].iov_base, iov[n].iov_len);
        size += iov[n].iov_len;
    }

    taken = 0;

    for (i = 0; i < size; i++) {
        again = agent_events_unpack(file, i);

        if (again != NULL) {
            taken++;
            agent_events_release(again);
        }
    }

    is_number(taken, 0, "what was cut short is not taken");

    /* a changed byte is found by its owner's checksum, or does no harm */

    for (i = 0; i < 20000; i++) {
        memcpy(broken, file, size);
        broken[number(size)] ^= 1 << number(8);
        again = agent_events_unpack(broken, size);

        if (again != NULL) {
            follow(&one, again, number(20));

            for (n = 0; n < 1000 && step(&one, 4096); n++) { /* void */ }

            leave(&one);
            agent_events_release(again);
        }
    }

    ok(1, "and no changed byte leads anywhere outside");
    agent_events_release(events);
}


static void
trimmed(void)
{
    size_t           i, n;
    agent_events_t  *events[12];
    static reader_t  reader[12];
    static uint8_t   block[65536];

    restart();
    memset(block, '.', sizeof(block));

    for (i = 0; i < 12; i++) {
        events[i] = agent_events_new();
        agent_events_start(events[i], 1);
        follow(&reader[i], events[i], 0);

        for (n = 0; n < 20; n++) {
            agent_events_add(events[i], 0, block, sizeof(block));
        }

        agent_events_end(events[i]);

        if (i != 1) {
            agent_events_release(events[i]);
        }
    }

    memset(written[0], '.', 20 * 65536);
    written_size[0] = 20 * 65536;

    for (i = 0; i < 12; i++) {
        whole(&reader[i]);
    }

    ok(reader[0].frames == 2 && reader[0].gaps == 1
       && reader[0].at[0] == 20 * 65536 && !reader[0].bad,
       "the oldest of many that nobody else keeps is only a gap");
    ok(reader[1].frames > 100 && !reader[1].bad,
       "one that somebody else keeps is whole");
    ok(reader[11].frames > 100 && !reader[11].bad, "and so is the latest");

    agent_events_release(events[1]);

    for (i = 0; i < 12; i++) {
        leave(&reader[i]);
    }
}


/* --- a reader ------------------------------------------------------------ */

static void
follow(reader_t *r, agent_events_t *events, uint64_t after)
{
    memset(r, 0, sizeof(reader_t));
    r->events = events;
    r->seq = after;
    agent_events_follow(events);

    if (agent_events_seek(events, &r->cursor, after) == -1) {
        r->bad = 1;
    }
}


static void
leave(reader_t *r)
{
    agent_events_leave(r->events);
}


/* A socket that takes `most` bytes; 0: nothing is there. */

static size_t
step(reader_t *r, size_t most)
{
    size_t        n, size;
    uint8_t       p[65536 + AGENT_EVENTS_REST];
    unsigned      i, count;
    struct iovec  iov[2];

    n = agent_events_lost(r->events, &r->cursor, p);

    if (n) {
        r->bad |= n > AGENT_EVENTS_LOST;
        take(r, p, n);
        return n;
    }

    count = agent_events_peek(r->events, &r->cursor, iov, most);
    size = 0;

    for (i = 0; i < count; i++) {
        memcpy(p + size, iov[i].iov_base, iov[i].iov_len);
        size += iov[i].iov_len;
    }

    if (size) {
        size += agent_events_taken(r->events, &r->cursor, size, p + size);
        take(r, p, size);
    }

    return size;
}


static void
whole(reader_t *r)
{
    while (step(r, 65536)) { /* void */ }

    r->bad |= r->have != 0;
}


static void
take(reader_t *r, const uint8_t *p, size_t size)
{
    size_t           n, at;
    uint64_t         seq;
    unsigned         stream;
    sandbox_frame_t  frame;

    memcpy(r->buffer + r->have, p, size);
    r->have += size;

    for (at = 0; r->have - at >= SANDBOX_WIRE_FRAME_SIZE; at += n) {
        p = r->buffer + at;

        if (sandbox_frame_read(p, &frame) != SANDBOX_OK) {
            r->bad = 1;
            break;
        }

        n = SANDBOX_WIRE_FRAME_SIZE + frame.length;

        if (n > r->have - at) {
            break;
        }

        p += SANDBOX_WIRE_FRAME_SIZE;
        seq = sandbox_get64(p);
        r->frames++;
        r->bad |= frame.type == SANDBOX_FRAME_GAP ? seq <= r->seq
                  : r->seq + 1 != seq;
        r->seq = seq;
        n = SANDBOX_WIRE_FRAME_SIZE + frame.length;

        if (frame.type == SANDBOX_FRAME_STARTED) {
            r->started = (unsigned) sandbox_get64(p + 8);
            continue;
        }

        if (frame.type == SANDBOX_FRAME_GAP) {
            r->gaps++;
            r->at[p[8] - SANDBOX_FRAME_STDOUT] += sandbox_get64(p + 9);
            continue;
        }

        stream = frame.type - SANDBOX_FRAME_STDOUT;

        r->bad |= stream > 1 || frame.length - 8 > AGENT_EVENTS_PIECE
                  || (p[8] & 0xc0) == 0x80
                  || r->at[stream] + frame.length - 8 > WRITTEN
                  || memcmp(p + 8, written[stream] + r->at[stream],
                            frame.length - 8)
                     != 0;

        r->at[stream] += frame.length - 8;

        if (r == &fast && seq < EVENTS) {
            seen[seq][0] = r->at[0];
            seen[seq][1] = r->at[1];
            seen_last = seq;
        }
    }

    memmove(r->buffer, r->buffer + at, r->have - at);
    r->have -= at;
}


static void
put(agent_events_t *events, unsigned stream, const void *data, size_t size)
{
    memcpy(written[stream] + written_size[stream], data, size);
    written_size[stream] += size;
    agent_events_add(events, stream, data, size);
}


static unsigned
number(unsigned below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;

    return (unsigned) (seed >> 33) % below;
}


static void
restart(void)
{
    written_size[0] = 0;
    written_size[1] = 0;
    seen_last = 0;
}
