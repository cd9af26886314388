/*
 * What is remembered of the commands of a conversation: the receipts of the
 * last 1000, the events and captured output of the last 32, and for longer
 * which ids there were.  Knows no connection and no process.
 */

#ifndef AGENT_HISTORY_H
#define AGENT_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


#define AGENT_HISTORY_RECEIPTS  SANDBOX_WIRE_MAX_HISTORY
#define AGENT_HISTORY_OUTPUTS   32       /* commands with their output */
#define AGENT_HISTORY_IDS       65536    /* hashes of ids */
#define AGENT_HISTORY_RUNNING   64       /* not ended, beside the receipts */
#define AGENT_HISTORY_MEMORY    ((size_t) 4 * 1024 * 1024)
#define AGENT_HISTORY_FIELDS    (SANDBOX_WIRE_MAX_RESULT + 1024)


/* one command; owned by agent_history.c */

typedef struct agent_history_s  agent_history_t;

/* of agent.h and agent_events.h */

typedef struct agent_command_s  agent_command_t;
typedef struct agent_events_s   agent_events_t;
typedef struct agent_answer_s   agent_answer_t;


/* its insides are for agent_history.c and agent_history_list.c */

struct agent_history_s {
    uint64_t          hash;              /* of the id */
    uint64_t          ordinal;
    uint8_t           length;
    uint8_t           id[SANDBOX_WIRE_MAX_COMMAND_ID];
    uint8_t           digest[SANDBOX_WIRE_DIGEST_SIZE];
    unsigned          ended:1;
    uint8_t          *fields;            /* those of RESULT, then others */
    size_t            fields_size;
    size_t            result;            /* bytes of the first */
    agent_answer_t   *answer;            /* NULL: gone */
    agent_events_t   *events;
};


/* The next number of a command in its session, from 1. */
uint64_t agent_history_ordinal(void);

/*
 * HEAD is about to be written: from now on the id is known, and it is
 * runner_lost if nothing more comes.  NULL: no memory.
 */
agent_history_t *agent_history_begin(agent_command_t *command);

/*
 * It has ended.  h NULL: it had not begun.  References to answer and events
 * (either may be NULL) are kept as long as they are needed.
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


#endif /* AGENT_HISTORY_H */
