/*
 * The file of a history: a log of records in one of two places, hashes of
 * ids, and 32 places for output.  Knows bytes and their checksums, not what
 * they mean.
 *
 * Only the agent writes it, but a write may have been cut short: what its
 * checksum does not confirm is not there.
 */

#ifndef AGENT_STORE_H
#define AGENT_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


/*
 * Offsets in bytes.  The file is sparse; what is written of the log and the
 * ids is reserved, so that a full disk does not matter to them.
 */

#define AGENT_STORE_LOG         ((size_t) 8 * 1024 * 1024)   /* of two */
#define AGENT_STORE_IDS_AT      (2 * AGENT_STORE_LOG)
#define AGENT_STORE_IDS         65536
#define AGENT_STORE_OUTPUT_AT   ((uint64_t) 32 * 1024 * 1024)
#define AGENT_STORE_OUTPUT      ((uint64_t) 16 * 1024 * 1024)
#define AGENT_STORE_OUTPUTS     32
#define AGENT_STORE_HEADER      128
#define AGENT_STORE_BLOCK       4096     /* of the disk */

#define AGENT_STORE_RECORD      ((size_t) 24 * 1024)     /* most, of data */


typedef struct {
    size_t      end;                     /* where the next record goes */
    uint64_t    chain;                   /* checksum of the one before */
    unsigned    region;
} agent_store_log_t;


/* of a record; end 0: none */

typedef struct {
    size_t      end;                     /* of the log before it */
    uint64_t    chain;
} agent_store_place_t;


typedef struct {
    int                fd;               /* -1: there is none */
    uint64_t           generation;       /* 0: nothing was ever written */
    agent_store_log_t  log;
    agent_store_log_t  next;             /* while it is written anew */
    uint8_t           *buffer;           /* of that */
    size_t             buffered;
    size_t             reserved;         /* of each log */
    uint64_t           room;             /* for output: a share of the disk */
    uint64_t           extent[AGENT_STORE_OUTPUTS];  /* perhaps in use */
    uint8_t            session[SANDBOX_WIRE_SESSION_SIZE];
} agent_store_t;


/* one place for output: an answer, then events */

typedef struct {
    uint64_t    ordinal;                 /* whose it is */
    uint64_t    head;                    /* bytes of the answer's HEAD */
    uint64_t    answer;
    uint64_t    events;
    uint64_t    answer_sum;
    uint64_t    events_sum;
} agent_store_output_t;


/* A record as it was written; 0, or -1: the rest is of no use. */
typedef int (*agent_store_handler_t)(void *data, unsigned type,
    const uint8_t *p, size_t size, const agent_store_place_t *place);


/* Takes fd, which may be no file at all, and reserves.  -1: no store. */
int agent_store_init(agent_store_t *store, int fd);

/* The same for reading alone. */
int agent_store_open(agent_store_t *store, int fd);

/*
 * Hands over all records of this session in their order.  0: records may be
 * appended.  -1: there is no good log, and rewrite has to come first.
 */
int agent_store_read(agent_store_t *store, const uint8_t *session,
    agent_store_handler_t handler, void *data);

/*
 * Appends a record of two parts, which can be fetched from `place` later on
 * (NULL: never).  -1 and errno; nothing was written.
 */
int agent_store_append(agent_store_t *store, unsigned type,
    const uint8_t *head, size_t head_size, const uint8_t *data, size_t size,
    agent_store_place_t *place);

/* At most `size` bytes of a record of the current log; its own, 0: gone. */
size_t agent_store_fetch(agent_store_t *store,
    const agent_store_place_t *place, uint8_t *p, size_t size);

/*
 * Between these, what is appended makes the new log; it counts from the end
 * on, all of it or none.
 */
int agent_store_rewrite(agent_store_t *store, const uint8_t *session);
int agent_store_rewrite_end(agent_store_t *store);
void agent_store_rewrite_cancel(agent_store_t *store);

/* Entries of the ring of ids from n on, which do not go over its end. */
int agent_store_ids_write(agent_store_t *store, uint64_t n,
    const uint64_t *ids, size_t count);

/* Reads `count` entries from the first on; those not written are 0. */
void agent_store_ids_read(agent_store_t *store, uint64_t *ids, size_t count);

/*
 * Writes bytes of a place, which begins with AGENT_STORE_HEADER bytes of
 * header: with them, or by commit when all others are there.
 */
int agent_store_output_write(agent_store_t *store, unsigned place,
    uint64_t at, const uint8_t *data, size_t size);
int agent_store_output_commit(agent_store_t *store, unsigned place,
    const agent_store_output_t *output);
void agent_store_output_header(uint8_t *p, const agent_store_output_t *output);

/* -1: it is not whole, or its numbers can't be. */
int agent_store_output_read(agent_store_t *store, unsigned place,
    agent_store_output_t *output);
int agent_store_output_get(agent_store_t *store, unsigned place,
    uint64_t at, uint8_t *data, size_t size);

/* Gives the disk back what a place has beyond so many bytes of content. */
void agent_store_output_trim(agent_store_t *store, unsigned place,
    uint64_t size);

/* Bytes of the disk that all places have, with those not in use. */
uint64_t agent_store_output_used(const agent_store_t *store);

/* Not against malice; pieces of a sum have multiples of 8 bytes. */
uint64_t agent_store_sum(uint64_t seed, const uint8_t *p, size_t size);


#endif /* AGENT_STORE_H */
