/*
 * What happened in one command, as numbered events: that it began, each piece
 * of its output, that it ended.  The latest are kept as frames in a ring that
 * has a maximum, and any number of readers follow, each at its own pace; who
 * is too slow learns how much it missed.  Knows no connection and no process.
 */

#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "sandbox_wire.h"


#define AGENT_EVENTS_RING    (1024 * 1024)   /* bytes of frames, at most */
#define AGENT_EVENTS_PIECE   (8 * 1024)      /* bytes of output in one */
#define AGENT_EVENTS_RUNS    8192            /* of events no longer kept */
#define AGENT_EVENTS_ENDED   (8 * 1024 * 1024)   /* bytes: for slow readers */

#define AGENT_EVENTS_FRAME   (SANDBOX_WIRE_FRAME_SIZE + 8)
#define AGENT_EVENTS_REST    (AGENT_EVENTS_FRAME + AGENT_EVENTS_PIECE)
#define AGENT_EVENTS_LOST    (AGENT_EVENTS_FRAME + 8                          \
                              + 2 * (SANDBOX_WIRE_FRAME_SIZE + 17))

#define AGENT_EVENTS_PIECES  4               /* of one that is saved */
#define AGENT_EVENTS_HEADER  96
#define AGENT_EVENTS_SAVED   (AGENT_EVENTS_HEADER + 8 * AGENT_EVENTS_RUNS     \
                              + AGENT_EVENTS_RING)


typedef struct agent_events_s  agent_events_t;


/* where a reader is; between two calls always at the border of a frame */

typedef struct {
    uint64_t  position;
    uint64_t  seq;                       /* of the last event it had */
    uint64_t  passed[2];                 /* bytes of each stream till then */
} agent_cursor_t;


/* One reference is the caller's.  NULL: no memory. */
agent_events_t *agent_events_new(void);
void agent_events_retain(agent_events_t *events);
void agent_events_release(agent_events_t *events);

/*
 * A reference that only follows.  What ended commands keep for nobody but
 * such readers has a maximum in all: the oldest then lose what they have.
 */
void agent_events_follow(agent_events_t *events);
void agent_events_leave(agent_events_t *events);

/* STARTED, at a Unix time in ms. */
void agent_events_start(agent_events_t *events, uint64_t ms);

/*
 * Output of stream 0 or 1.  Up to three bytes that begin a character are
 * held back until the next call, or the flush.
 */
void agent_events_add(agent_events_t *events, unsigned stream,
    const uint8_t *data, size_t size);
int agent_events_held(const agent_events_t *events);
void agent_events_flush(agent_events_t *events);

/* Nothing comes any more; the number of the RESULT. */
uint64_t agent_events_end(agent_events_t *events);

/* The last number given out. */
uint64_t agent_events_last(const agent_events_t *events);

/* Begins after an event; -1: that number was not given out yet. */
int agent_events_seek(const agent_events_t *events, agent_cursor_t *cursor,
    uint64_t after);

/*
 * Frames that tell what is no longer there, at most AGENT_EVENTS_LOST bytes;
 * the cursor goes on to what is.  0: nothing was lost.
 */
size_t agent_events_lost(const agent_events_t *events, agent_cursor_t *cursor,
    uint8_t *p);

/*
 * The frames from the cursor on, at most `most` bytes in two pieces; valid
 * until something is added.  Not before agent_events_lost() said 0.
 */
unsigned agent_events_peek(const agent_events_t *events,
    const agent_cursor_t *cursor, struct iovec *iov, size_t most);

/*
 * So many bytes of them were sent.  Of a frame that was cut the rest goes to
 * `rest`, at most AGENT_EVENTS_REST bytes; the cursor is behind it then.
 */
size_t agent_events_taken(const agent_events_t *events,
    agent_cursor_t *cursor, size_t size, uint8_t *rest);

/* Bytes that it takes in memory. */
size_t agent_events_memory(const agent_events_t *events);

/*
 * All of it as bytes for a file, without a copy: at most AGENT_EVENTS_PIECES
 * pieces, the first one in `header`; valid until something is added.
 */
unsigned agent_events_save(const agent_events_t *events, uint8_t *header,
    struct iovec *iov);

/* The same in one piece, the caller's to free(); NULL: no memory. */
uint8_t *agent_events_pack(const agent_events_t *events, size_t *size);

/* Ended ones only; NULL: no memory, or these bytes were never saved so. */
agent_events_t *agent_events_unpack(const uint8_t *p, size_t size);


#endif /* AGENT_EVENTS_H */
