/*
 * A command's events: a ring of frames as they go out, what is known of those
 * that had to leave it, and cursors.  A position counts the bytes of all
 * frames ever added; the ring's size is a power of two, so that a position
 * says where in it a frame lies.
 */

#include <stdlib.h>
#include <string.h>

#include "agent_events.h"
#include "sandbox_utf8.h"


#define AGENT_EVENTS_START    1024           /* bytes of the first ring */
#define AGENT_EVENTS_VERSION  1
#define AGENT_EVENTS_NONE     2              /* a stream that has no bytes */


/* so many events of one size, one after the other, that are gone */

typedef struct {
    uint32_t               size;             /* bytes << 2 | stream */
    uint32_t               count;
} agent_events_run_t;


struct agent_events_s {
    agent_events_t        *prev;             /* of the ended ones */
    agent_events_t        *next;
    unsigned               references;
    unsigned               readers;          /* of these */
    unsigned               ended:1;
    uint64_t               started;          /* Unix time, ms; 0: not yet */
    uint64_t               last;             /* number given out */

    uint8_t               *ring;
    size_t                 size;
    size_t                 most;             /* less if memory is short */
    uint64_t               begin;
    uint64_t               end;
    uint64_t               first;            /* number of the one at begin */

    uint64_t               lost[2];          /* bytes before begin */
    uint64_t               lost_seq[2];      /* the last such event */

    /* events after runs_seq, where runs_passed bytes were before them */

    agent_events_run_t    *runs;
    size_t                 runs_count;
    size_t                 runs_room;
    uint64_t               runs_seq;
    uint64_t               runs_passed[2];

    size_t                 held_size[2];
    uint8_t                held[2][4];
};


static void agent_events_cut(agent_events_t *events, unsigned stream,
    const uint8_t *held, size_t held_size, const uint8_t *data, size_t size);
static void agent_events_append(agent_events_t *events, unsigned type,
    const uint8_t *head, size_t head_size, const uint8_t *data, size_t size);
static int agent_events_room(agent_events_t *events, size_t size);
static void agent_events_evict(agent_events_t *events);
static void agent_events_forget(agent_events_t *events, unsigned stream,
    size_t size);
static int agent_events_run_room(agent_events_t *events);
static void agent_events_put(agent_events_t *events, uint64_t at,
    const uint8_t *data, size_t size);
static void agent_events_get(const agent_events_t *events, uint64_t at,
    uint8_t *data, size_t size);
static size_t agent_events_frame(const agent_events_t *events, uint64_t at,
    unsigned *stream);
static void agent_events_passed(const agent_events_t *events, uint64_t after,
    uint64_t *passed);
static void agent_events_link(agent_events_t *events);
static void agent_events_trim(void);
static int agent_events_check(agent_events_t *events);


static agent_events_t  *agent_events_ended;      /* the latest first */


agent_events_t *
agent_events_new(void)
{
    agent_events_t  *events;

    events = calloc(1, sizeof(agent_events_t));

    if (events != NULL) {
        events->references = 1;
        events->first = 1;
        events->most = AGENT_EVENTS_RING;
    }

    return events;
}


void
agent_events_retain(agent_events_t *events)
{
    events->references++;
}


void
agent_events_release(agent_events_t *events)
{
    if (--events->references) {
        agent_events_trim();
        return;
    }

    if (events->prev != NULL) {
        events->prev->next = events->next;

    } else if (agent_events_ended == events) {
        agent_events_ended = events->next;
    }

    if (events->next != NULL) {
        events->next->prev = events->prev;
    }

    free(events->ring);
    free(events->runs);
    free(events);
}


void
agent_events_follow(agent_events_t *events)
{
    events->references++;
    events->readers++;
}


void
agent_events_leave(agent_events_t *events)
{
    events->readers--;
    agent_events_release(events);
}


void
agent_events_start(agent_events_t *events, uint64_t ms)
{
    uint8_t  b[8];

    events->started = ms;
    sandbox_put64(b, ms);
    agent_events_append(events, SANDBOX_FRAME_STARTED, NULL, 0, b, 8);
}


void
agent_events_add(agent_events_t *events, unsigned stream,
    const uint8_t *data, size_t size)
{
    size_t   n, cut;
    uint8_t  held[4], few[8];

    n = events->held_size[stream];
    memcpy(held, events->held[stream], n);

    if (size < 3) {
        memcpy(few, held, n);

        if (size) {
            memcpy(few + n, data, size);
        }

        data = few;
        size += n;
        n = 0;
    }

    cut = sandbox_utf8_head(data, size);
    events->held_size[stream] = size - cut;
    memcpy(events->held[stream], data + cut, size - cut);

    agent_events_cut(events, stream, held, n, data, cut);
}


int
agent_events_held(const agent_events_t *events)
{
    return events->held_size[0] + events->held_size[1] != 0;
}


void
agent_events_flush(agent_events_t *events)
{
    size_t    n;
    unsigned  i;

    for (i = 0; i < 2; i++) {
        n = events->held_size[i];
        events->held_size[i] = 0;
        agent_events_cut(events, i, NULL, 0, events->held[i], n);
    }
}


uint64_t
agent_events_end(agent_events_t *events)
{
    if (!events->ended) {
        agent_events_flush(events);
        events->last++;
        agent_events_link(events);
    }

    return events->last;
}


uint64_t
agent_events_last(const agent_events_t *events)
{
    return events->last;
}


int
agent_events_seek(const agent_events_t *events, agent_cursor_t *cursor,
    uint64_t after)
{
    size_t    n;
    unsigned  stream;

    if (after > events->last) {
        return -1;
    }

    cursor->seq = after;

    if (after + 1 < events->first) {
        cursor->position = 0;
        agent_events_passed(events, after, cursor->passed);
        return 0;
    }

    cursor->position = events->begin;
    cursor->seq = events->first - 1;
    memcpy(cursor->passed, events->lost, sizeof(cursor->passed));

    while (cursor->seq < after && cursor->position < events->end) {
        n = agent_events_frame(events, cursor->position, &stream);

        if (stream != AGENT_EVENTS_NONE) {
            cursor->passed[stream] += n - AGENT_EVENTS_FRAME;
        }

        cursor->position += n;
        cursor->seq++;
    }

    cursor->seq = after;

    return 0;
}


size_t
agent_events_lost(const agent_events_t *events, agent_cursor_t *cursor,
    uint8_t *p)
{
    uint8_t   *start;
    unsigned   i, stream;

    if (cursor->seq + 1 >= events->first) {
        return 0;
    }

    start = p;

    /* that it began is known even when the frame is gone */

    if (cursor->seq == 0 && events->started) {
        sandbox_frame_write(p, SANDBOX_FRAME_STARTED, 16);
        sandbox_put64(p + SANDBOX_WIRE_FRAME_SIZE, 1);
        sandbox_put64(p + AGENT_EVENTS_FRAME, events->started);
        p += AGENT_EVENTS_FRAME + 8;
    }

    stream = events->lost_seq[0] > events->lost_seq[1];

    for (i = 0; i < 2; i++, stream = !stream) {
        if (events->lost[stream] <= cursor->passed[stream]) {
            continue;
        }

        sandbox_frame_write(p, SANDBOX_FRAME_GAP, 17);
        p += SANDBOX_WIRE_FRAME_SIZE;
        sandbox_put64(p, events->lost_seq[stream]);
        p[8] = (uint8_t) (SANDBOX_FRAME_STDOUT + stream);
        sandbox_put64(p + 9, events->lost[stream] - cursor->passed[stream]);
        p += 17;
    }

    memcpy(cursor->passed, events->lost, sizeof(cursor->passed));
    cursor->position = events->begin;
    cursor->seq = events->first - 1;

    return p - start;
}


unsigned
agent_events_peek(const agent_events_t *events, const agent_cursor_t *cursor,
    struct iovec *iov, size_t most)
{
    size_t  at, n;

    n = events->end - cursor->position;

    if (n == 0) {
        return 0;
    }

    if (n > most) {
        n = most;
    }

    at = cursor->position & (events->size - 1);
    iov[0].iov_base = events->ring + at;
    iov[0].iov_len = n;

    if (at + n <= events->size) {
        return 1;
    }

    iov[0].iov_len = events->size - at;
    iov[1].iov_base = events->ring;
    iov[1].iov_len = n - iov[0].iov_len;

    return 2;
}


size_t
agent_events_taken(const agent_events_t *events, agent_cursor_t *cursor,
    size_t size, uint8_t *rest)
{
    size_t    n;
    unsigned  stream;

    while (size) {
        n = agent_events_frame(events, cursor->position, &stream);

        if (stream != AGENT_EVENTS_NONE) {
            cursor->passed[stream] += n - AGENT_EVENTS_FRAME;
        }

        cursor->position += n;
        cursor->seq++;

        if (n > size) {
            agent_events_get(events, cursor->position - (n - size), rest,
                             n - size);
            return n - size;
        }

        size -= n;
    }

    return 0;
}


size_t
agent_events_memory(const agent_events_t *events)
{
    return sizeof(agent_events_t) + events->size
           + events->runs_room * sizeof(agent_events_run_t);
}


unsigned
agent_events_save(const agent_events_t *events, uint8_t *header,
    struct iovec *iov)
{
    unsigned        n;
    agent_cursor_t  cursor;

    memset(header, 0, AGENT_EVENTS_HEADER);
    sandbox_put32(header, AGENT_EVENTS_VERSION);
    sandbox_put32(header + 4, (uint32_t) events->runs_count);
    sandbox_put64(header + 8, events->started);
    sandbox_put64(header + 16, events->last);
    sandbox_put64(header + 24, events->first);
    sandbox_put64(header + 32, events->lost[0]);
    sandbox_put64(header + 40, events->lost[1]);
    sandbox_put64(header + 48, events->lost_seq[0]);
    sandbox_put64(header + 56, events->lost_seq[1]);
    sandbox_put64(header + 64, events->runs_seq);
    sandbox_put64(header + 72, events->runs_passed[0]);
    sandbox_put64(header + 80, events->runs_passed[1]);
    sandbox_put64(header + 88, events->end - events->begin);

    iov[0].iov_base = header;
    iov[0].iov_len = AGENT_EVENTS_HEADER;
    n = 1;

    /* runs are this machine's own numbers: the file never leaves it */

    if (events->runs_count) {
        iov[n].iov_base = events->runs;
        iov[n++].iov_len = events->runs_count * sizeof(agent_events_run_t);
    }

    cursor.position = events->begin;

    return n + agent_events_peek(events, &cursor, &iov[n], AGENT_EVENTS_RING);
}


uint8_t *
agent_events_pack(const agent_events_t *events, size_t *size)
{
    size_t         at;
    uint8_t       *p, header[AGENT_EVENTS_HEADER];
    unsigned       i, count;
    struct iovec   iov[AGENT_EVENTS_PIECES];

    count = agent_events_save(events, header, iov);
    *size = 0;

    for (i = 0; i < count; i++) {
        *size += iov[i].iov_len;
    }

    p = malloc(*size);
    if (p == NULL) {
        return NULL;
    }

    at = 0;

    for (i = 0; i < count; i++) {
        memcpy(p + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }

    return p;
}


agent_events_t *
agent_events_unpack(const uint8_t *p, size_t size)
{
    size_t           runs, bytes;
    agent_events_t  *events;

    if (size < AGENT_EVENTS_HEADER || size > AGENT_EVENTS_SAVED
        || sandbox_get32(p) != AGENT_EVENTS_VERSION)
    {
        return NULL;
    }

    runs = sandbox_get32(p + 4);

    if (runs > AGENT_EVENTS_RUNS) {
        return NULL;
    }

    bytes = size - AGENT_EVENTS_HEADER;

    if (bytes < runs * sizeof(agent_events_run_t)) {
        return NULL;
    }

    bytes -= runs * sizeof(agent_events_run_t);

    if (bytes > AGENT_EVENTS_RING || bytes != sandbox_get64(p + 88)) {
        return NULL;
    }

    events = agent_events_new();
    if (events == NULL) {
        return NULL;
    }

    events->started = sandbox_get64(p + 8);
    events->last = sandbox_get64(p + 16);
    events->first = sandbox_get64(p + 24);
    events->lost[0] = sandbox_get64(p + 32);
    events->lost[1] = sandbox_get64(p + 40);
    events->lost_seq[0] = sandbox_get64(p + 48);
    events->lost_seq[1] = sandbox_get64(p + 56);
    events->runs_seq = sandbox_get64(p + 64);
    events->runs_passed[0] = sandbox_get64(p + 72);
    events->runs_passed[1] = sandbox_get64(p + 80);
    p += AGENT_EVENTS_HEADER;

    if (runs) {
        events->runs = malloc(runs * sizeof(agent_events_run_t));
        if (events->runs == NULL) {
            goto failed;
        }

        memcpy(events->runs, p, runs * sizeof(agent_events_run_t));
        events->runs_count = runs;
        events->runs_room = runs;
        p += runs * sizeof(agent_events_run_t);
    }

    if (bytes) {
        if (!agent_events_room(events, bytes)) {
            goto failed;
        }

        memcpy(events->ring, p, bytes);
        events->end = bytes;
    }

    if (agent_events_check(events) == -1) {
        goto failed;
    }

    agent_events_link(events);

    return events;

failed:

    agent_events_release(events);

    return NULL;
}


/* Pieces of output, each an event; `held` goes before the first. */

static void
agent_events_cut(agent_events_t *events, unsigned stream,
    const uint8_t *held, size_t held_size, const uint8_t *data, size_t size)
{
    size_t  n;

    while (held_size + size) {
        n = size;

        if (held_size + n > AGENT_EVENTS_PIECE) {
            n = sandbox_utf8_head(data, AGENT_EVENTS_PIECE - held_size);
        }

        agent_events_append(events, SANDBOX_FRAME_STDOUT + stream, held,
                            held_size, data, n);
        held_size = 0;
        data += n;
        size -= n;
    }
}


static void
agent_events_append(agent_events_t *events, unsigned type,
    const uint8_t *head, size_t head_size, const uint8_t *data, size_t size)
{
    size_t    whole;
    uint8_t   b[AGENT_EVENTS_FRAME];
    uint64_t  at;

    events->last++;
    whole = AGENT_EVENTS_FRAME + head_size + size;

    if (!agent_events_room(events, whole)) {

        /* no memory, not even for this one: gone as soon as it is there */

        agent_events_forget(events, type == SANDBOX_FRAME_STARTED
                                    ? AGENT_EVENTS_NONE
                                    : type - SANDBOX_FRAME_STDOUT,
                            head_size + size);
        return;
    }

    sandbox_frame_write(b, (uint8_t) type, (uint32_t) (8 + head_size + size));
    sandbox_put64(b + SANDBOX_WIRE_FRAME_SIZE, events->last);

    at = events->end;
    agent_events_put(events, at, b, AGENT_EVENTS_FRAME);
    at += AGENT_EVENTS_FRAME;

    if (head_size) {
        agent_events_put(events, at, head, head_size);
        at += head_size;
    }

    agent_events_put(events, at, data, size);
    events->end += whole;
}


/* Makes room: the ring grows to its maximum, then the oldest leave it. */

static int
agent_events_room(agent_events_t *events, size_t size)
{
    size_t    wanted;
    uint8_t  *grown;

    wanted = events->size ? events->size : AGENT_EVENTS_START;

    while (wanted < events->most && events->end - events->begin + size > wanted)
    {
        wanted *= 2;
    }

    if (wanted > events->size && wanted <= events->most) {
        grown = realloc(events->ring, wanted);

        if (grown != NULL) {
            events->ring = grown;
            events->size = wanted;

        } else {
            events->most = events->size;
        }
    }

    while (events->end - events->begin + size > events->size) {
        if (events->begin == events->end) {
            return 0;
        }

        agent_events_evict(events);

        /* it can't grow any more: where a frame lies depends on the size */

        events->most = events->size;
    }

    return 1;
}


static void
agent_events_evict(agent_events_t *events)
{
    size_t    n;
    unsigned  stream;

    n = agent_events_frame(events, events->begin, &stream);
    events->begin += n;
    agent_events_forget(events, stream, n - AGENT_EVENTS_FRAME);
}


/* The event numbered `first` is gone: what is known of it stays. */

static void
agent_events_forget(agent_events_t *events, unsigned stream, size_t size)
{
    uint32_t             value;
    agent_events_run_t  *run;

    if (stream == AGENT_EVENTS_NONE) {
        size = 0;

    } else {
        events->lost[stream] += size;
        events->lost_seq[stream] = events->first;
    }

    events->first++;
    value = (uint32_t) (size << 2 | stream);

    if (events->runs_count) {
        run = &events->runs[events->runs_count - 1];

        if (run->size == value && run->count < UINT32_MAX) {
            run->count++;
            return;
        }
    }

    if (!agent_events_run_room(events)) {
        events->runs_count = 0;
        events->runs_seq = events->first - 1;
        memcpy(events->runs_passed, events->lost, sizeof(events->lost));
        return;
    }

    run = &events->runs[events->runs_count++];
    run->size = value;
    run->count = 1;
}


/* Room for one more run: at the maximum the older half is added up. */

static int
agent_events_run_room(agent_events_t *events)
{
    size_t               i, n;
    unsigned             stream;
    agent_events_run_t  *run;

    n = events->runs_count;

    if (n < events->runs_room) {
        return 1;
    }

    if (n < AGENT_EVENTS_RUNS) {
        n = n < 32 ? 32 : 2 * n;
        n = n < AGENT_EVENTS_RUNS ? n : AGENT_EVENTS_RUNS;
        run = realloc(events->runs, n * sizeof(agent_events_run_t));

        if (run == NULL) {
            return 0;
        }

        events->runs = run;
        events->runs_room = n;
        return 1;
    }

    for (i = 0; i < n / 2; i++) {
        run = &events->runs[i];
        stream = run->size & 3;
        events->runs_seq += run->count;

        if (stream != AGENT_EVENTS_NONE) {
            events->runs_passed[stream] += (uint64_t) (run->size >> 2)
                                           * run->count;
        }
    }

    events->runs_count = n - n / 2;
    memmove(events->runs, events->runs + n / 2,
            events->runs_count * sizeof(agent_events_run_t));

    return 1;
}


static void
agent_events_put(agent_events_t *events, uint64_t at, const uint8_t *data,
    size_t size)
{
    size_t  n;

    at &= events->size - 1;
    n = events->size - at;

    if (n > size) {
        n = size;
    }

    memcpy(events->ring + at, data, n);

    if (n < size) {
        memcpy(events->ring, data + n, size - n);
    }
}


static void
agent_events_get(const agent_events_t *events, uint64_t at, uint8_t *data,
    size_t size)
{
    size_t  n;

    at &= events->size - 1;
    n = events->size - at;

    if (n > size) {
        n = size;
    }

    memcpy(data, events->ring + at, n);

    if (n < size) {
        memcpy(data + n, events->ring, size - n);
    }
}


/* Bytes of the whole frame there, and the stream of its output. */

static size_t
agent_events_frame(const agent_events_t *events, uint64_t at,
    unsigned *stream)
{
    uint8_t  b[SANDBOX_WIRE_FRAME_SIZE];

    agent_events_get(events, at, b, sizeof(b));

    *stream = b[4] == SANDBOX_FRAME_STARTED ? AGENT_EVENTS_NONE
                                            : b[4] - SANDBOX_FRAME_STDOUT;

    return SANDBOX_WIRE_FRAME_SIZE + sandbox_get32(b);
}


/*
 * Bytes of each stream up to an event that is gone.  Before the oldest run it
 * can only be said how many there were at most.
 */

static void
agent_events_passed(const agent_events_t *events, uint64_t after,
    uint64_t *passed)
{
    size_t                     i;
    uint64_t                   n, seq;
    unsigned                   stream;
    const agent_events_run_t  *run;

    if (after == 0) {
        passed[0] = 0;
        passed[1] = 0;
        return;
    }

    seq = events->runs_seq;
    memcpy(passed, events->runs_passed, sizeof(events->runs_passed));

    for (i = 0; i < events->runs_count && seq < after; i++) {
        run = &events->runs[i];
        stream = run->size & 3;
        n = after - seq < run->count ? after - seq : run->count;
        seq += n;

        if (stream != AGENT_EVENTS_NONE) {
            passed[stream] += (run->size >> 2) * n;
        }
    }
}


static void
agent_events_link(agent_events_t *events)
{
    events->ended = 1;
    events->next = agent_events_ended;

    if (agent_events_ended != NULL) {
        agent_events_ended->prev = events;
    }

    agent_events_ended = events;
}


/* Readers of what has ended may be slow, but not at any price. */

static void
agent_events_trim(void)
{
    size_t           kept;
    agent_events_t  *events;

    kept = 0;

    for (events = agent_events_ended; events != NULL; events = events->next) {
        if (events->references != events->readers || events->ring == NULL) {
            continue;
        }

        kept += events->size;

        if (kept > AGENT_EVENTS_ENDED) {
            while (events->begin < events->end) {
                agent_events_evict(events);
            }

            free(events->ring);
            events->ring = NULL;
            events->size = 0;
        }
    }
}


/* What was read back: every frame whole, numbers and sums that agree. */

static int
agent_events_check(agent_events_t *events)
{
    size_t           i;
    uint8_t          b[AGENT_EVENTS_FRAME];
    uint64_t         at, left, seq, passed[2];
    sandbox_frame_t  frame;

    seq = events->runs_seq;

    for (i = 0; i < events->runs_count; i++) {
        if (events->runs[i].count == 0
            || (events->runs[i].size & 3) > AGENT_EVENTS_NONE
            || events->runs[i].size >> 2 > AGENT_EVENTS_PIECE)
        {
            return -1;
        }

        seq += events->runs[i].count;
    }

    agent_events_passed(events, UINT64_MAX, passed);

    if (events->first == 0 || seq != events->first - 1
        || events->runs_seq > seq
        || passed[0] != events->lost[0] || passed[1] != events->lost[1]
        || events->lost_seq[0] >= events->first
        || events->lost_seq[1] >= events->first)
    {
        return -1;
    }

    for (at = 0; at < events->end; at += SANDBOX_WIRE_FRAME_SIZE + frame.length)
    {
        left = events->end - at;

        if (left < AGENT_EVENTS_FRAME) {
            return -1;
        }

        agent_events_get(events, at, b, AGENT_EVENTS_FRAME);

        if (sandbox_frame_read(b, &frame) != SANDBOX_OK
            || (frame.type != SANDBOX_FRAME_STDOUT
                && frame.type != SANDBOX_FRAME_STDERR
                && frame.type != SANDBOX_FRAME_STARTED)
            || frame.length > 8 + AGENT_EVENTS_PIECE
            || SANDBOX_WIRE_FRAME_SIZE + frame.length > left
            || sandbox_get64(b + SANDBOX_WIRE_FRAME_SIZE) != ++seq)
        {
            return -1;
        }
    }

    return events->last == seq + 1 ? 0 : -1;
}
