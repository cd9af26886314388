/*
 * What is remembered of the commands of a conversation: the receipts of the
 * last 1000, the events and captured output of the last 32, and for longer
 * which ids there were.  Knows no connection and no process.
 */

#ifndef AGENT_HISTORY_H
#define AGENT_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "agent_store.h"
#include "sandbox_wire.h"


#define AGENT_HISTORY_RECEIPTS  SANDBOX_WIRE_MAX_HISTORY
#define AGENT_HISTORY_OUTPUTS   AGENT_STORE_OUTPUTS
#define AGENT_HISTORY_IDS       AGENT_STORE_IDS
#define AGENT_HISTORY_RUNNING   64       /* not ended, beside the receipts */
#define AGENT_HISTORY_KNOWN     (AGENT_HISTORY_RECEIPTS + AGENT_HISTORY_RUNNING)

/* bytes, at most: of receipts; of those and of output that are on no disk */

#define AGENT_HISTORY_LIVE      ((size_t) 6 * 1024 * 1024)
#define AGENT_HISTORY_FIELDS    ((size_t) 2 * 1024 * 1024)
#define AGENT_HISTORY_MEMORY    ((size_t) 4 * 1024 * 1024)


/* one command; owned by agent_history.c */

typedef struct agent_history_s  agent_history_t;

/* of agent.h and agent_events.h */

typedef struct agent_command_s  agent_command_t;
typedef struct agent_events_s   agent_events_t;
typedef struct agent_answer_s   agent_answer_t;


/* fd: the file to keep it in; what can't be one: all is kept in memory. */
void agent_history_init(int fd);

/*
 * The session is known: reads what is in the file; if nothing is, and the
 * sandbox takes the place of another one, that one's file, which is `before`
 * (-1: none) and is closed.  Once.
 */
void agent_history_load(int before);

/* Writes what is not written yet. */
void agent_history_flush(void);

/* The next number of a command in its session, from 1. */
uint64_t agent_history_ordinal(void);

/*
 * HEAD is about to be written: from now on the id is known, and it is
 * runner_lost if nothing more comes.  NULL: no memory.
 */
agent_history_t *agent_history_begin(agent_command_t *command);

/*
 * It has ended.  h NULL: it had not begun.  References to answer and events
 * (either may be NULL) are kept until they are written, later than now.
 */
void agent_history_end(agent_history_t *h, agent_command_t *command,
    agent_answer_t *answer, agent_events_t *events);

/* Begun or ended; NULL: *code is "command_not_found" or "expired". */
agent_history_t *agent_history_find(const uint8_t *id, size_t length,
    const char **code);

const uint8_t *agent_history_digest(const agent_history_t *h);

/* 0: it has begun and runs. */
int agent_history_ended(const agent_history_t *h);

/*
 * The answer of an ended one as without STREAM: HEAD, captured output and
 * RESULT; HEAD and RESULT with OUTPUT_EXPIRED if only the receipt is left.
 * A reference that is the caller's to release; NULL: no memory, or it runs.
 */
agent_answer_t *agent_history_answer(agent_history_t *h);

/* The events of an ended one, a reference of the caller's; NULL: gone. */
agent_events_t *agent_history_events(agent_history_t *h);


/* agent_history_list.c */

typedef struct agent_connection_s  agent_connection_t;

/* Answers HISTORY, whose request is complete; consumes c. */
void agent_history_list(agent_connection_t *c);


/* --- between agent_history.c, agent_history_disk.c, agent_history_list.c */

struct agent_history_s {
    uint64_t          hash;              /* of the id */
    uint64_t          ordinal;
    uint64_t          ended_ms;          /* 0: it runs */
    uint8_t           length;
    uint8_t           id[SANDBOX_WIRE_MAX_COMMAND_ID];
    uint8_t           digest[SANDBOX_WIRE_DIGEST_SIZE];
    unsigned          stored:1;          /* the output is in its place */
    unsigned          pending:1;         /* it is going to be */
    uint8_t          *fields;            /* NULL: only in the log */
    uint32_t          fields_size;
    uint32_t          result;            /* bytes of those of RESULT */
    agent_store_place_t  at;             /* in the log */
    agent_store_place_t  next_at;        /* in the next one */
    agent_answer_t   *answer;            /* NULL: not in memory */
    agent_events_t   *events;
    size_t            memory;            /* bytes of both */
    int               place;             /* in the file; -1: none */
    agent_history_t  *next;              /* that is not saved, or is free */
};


typedef struct {
    agent_history_t **known;             /* by ordinal */
    uint64_t         *hashes;            /* of theirs */
    unsigned          count;
    unsigned          ended;
    size_t            live;              /* bytes of receipts */
    size_t            fields;            /* of them in memory */
    uint64_t          ordinal;           /* the last given out */

    /* those with output, in the order in which they ended */

    agent_history_t  *kept[AGENT_HISTORY_OUTPUTS];
    unsigned          kept_count;
    size_t            memory;            /* bytes of answers and events */

    uint64_t         *ids;               /* a ring of their hashes */
    uint64_t          ids_count;         /* ever */
} agent_history_table_t;

extern agent_history_table_t  agent_history;


/* agent_history.c */

/* Puts h into its place by number and forgets the oldest.  -1: no room. */
int agent_history_insert(agent_history_t *h);

/* Forgets the oldest beyond the bounds, but none that runs, and not h. */
void agent_history_bound(const agent_history_t *h);

/* The fields are now these; NULL: only in the log.  Takes them over. */
void agent_history_hold(agent_history_t *h, uint8_t *fields, size_t size,
    size_t result);

/* An entry that is not known yet, zeroed; NULL: no memory. */
agent_history_t *agent_history_alloc(void);
agent_history_t *agent_history_by_ordinal(uint64_t ordinal);

/* Lets its output go; the receipt stays. */
void agent_history_drop(agent_history_t *h);

/* The receipt of one that will never have a result, as it is kept. */
int agent_history_lost(agent_history_t *h, unsigned outcome);
void agent_history_free(agent_history_t *h);
void agent_history_id_add(uint64_t hash);
uint64_t agent_history_hash(const uint8_t *id, size_t length);
uint64_t agent_history_now(void);

/* agent_history_load.c */

/* Bytes that are the caller's to free(); NULL: no memory. */
uint8_t *agent_history_copy(const uint8_t *p, size_t size);


/* --- between agent_history_disk.c and agent_history_load.c */

/* records: digest (32), bytes of RESULT u32, place u32 (from 1), fields */

#define AGENT_HISTORY_START     1
#define AGENT_HISTORY_END       2
#define AGENT_HISTORY_META      3        /* ordinal u64, ids u64 */

#define AGENT_HISTORY_PREFIX    40       /* before the fields */
#define AGENT_HISTORY_MORE      1024     /* of fields after RESULT's */


typedef struct {
    agent_store_t     store;
    uint64_t          ids_saved;         /* number of ids */
    unsigned          loaded:1;
} agent_history_file_t;

extern agent_history_file_t  agent_history_file;


/* What is known becomes the new log. */
void agent_history_disk_compact(void);

/* Output that is pending is written soon. */
void agent_history_disk_later(void);


/* agent_history_disk.c: each does nothing where there is no file */

void agent_history_disk_begin(agent_history_t *h);
void agent_history_disk_end(agent_history_t *h);

/* Fields that are in the log, in a static buffer; NULL: gone. */
const uint8_t *agent_history_disk_fields(const agent_history_t *h);

/* h is forgotten; or only its output. */
void agent_history_disk_forget(agent_history_t *h);
void agent_history_disk_drop(agent_history_t *h);

/* Reads back; NULL: it can't be. */
agent_answer_t *agent_history_disk_answer(agent_history_t *h);
agent_events_t *agent_history_disk_events(agent_history_t *h);


#endif /* AGENT_HISTORY_H */
