/*
 * Files of the conversation that a command brings along: which of them are
 * needed, their bytes into the spool, and from there to their places when its
 * turn has come.
 */

#ifndef AGENT_STAGE_H
#define AGENT_STAGE_H

#include <stddef.h>
#include <stdint.h>

#include "agent_body.h"
#include "agent_manifest.h"
#include "agent_spool.h"
#include "agent_unpack.h"
#include "sandbox_wire.h"


#define AGENT_STAGE_FIXED    28          /* bytes of STAGE before the name */
#define AGENT_STAGE_NOTICES  (8 * 1024)  /* bytes of all NOTICEs */


typedef struct agent_connection_s  agent_connection_t;
typedef struct agent_command_s     agent_command_t;
typedef struct agent_stage_s       agent_stage_t;


/* one STAGE of a command */

typedef struct {
    uint8_t         kind;
    uint8_t         etag[AGENT_STAGE_ETAG];
    uint64_t        size;
    char            name[SANDBOX_WIRE_MAX_NAME + 1];
    unsigned        body:1;              /* its bytes come along */
    unsigned        whole:1;             /* and are there */
    agent_spool_t   spool;
    char            tree[AGENT_SPOOL_NAME];      /* of a skill; "": none */
    const char     *code;                /* of a NOTICE: it can't be had */
    const char     *detail;

    /* agent_stage_apply.c */

    unsigned        wanted:1;
    unsigned        replace:1;
    unsigned        moved:1;             /* to another name */
    uint64_t        made_size;
    uint64_t        made_modified;
    char            made[SANDBOX_WIRE_MAX_NAME + 1];
} agent_stage_item_t;


struct agent_stage_s {
    unsigned             count;
    unsigned             bodies;         /* STAGE_BODY */
    unsigned             at;             /* of these, the next one */
    uint16_t             order[SANDBOX_WIRE_MAX_STAGED];
    uint64_t             input;          /* bytes of stdin */
    uint64_t             input_have;
    uint64_t             file_left;      /* of the one that comes */
    agent_body_t         body;
    agent_unpack_t      *unpack;
    unsigned             unpacking;      /* item */
    size_t               extra;          /* of the body, came with the head */
    size_t               extra_end;
    unsigned             streaming:1;    /* the body is being read */
    unsigned             working:1;      /* it is there, tars are unpacked */
    uint64_t             told;           /* ms, of that: the last PING */
    unsigned             drop:1;         /* none of it is needed */
    size_t               notices_size;
    uint8_t              notices[AGENT_STAGE_NOTICES];
    agent_stage_item_t   items[];
};


/* agent_stage_request.c: knows no file */

/*
 * STAGE, STAGE_BODY and STDIN_BYTES of a head.  NULL and *stage (NULL if there
 * are none; to be freed), or the code of the ERROR and a sentence.
 */
const char *agent_stage_request(agent_stage_t **stage, const uint8_t *head,
    size_t size, const char **detail);

/* Adds a NOTICE, if there is room for it. */
void agent_stage_notice(agent_stage_t *stage, const char *code,
    const char *name, const char *detail);

/* The NOTICEs into a RESULT. */
void agent_stage_write(const agent_stage_t *stage, sandbox_writer_t *w);


/* agent_stage.c */

/*
 * The head of a COMMAND is complete.  1: the rest of it goes through
 * agent_stage_receive; 0: as always; -1: c was refused and may be gone.
 */
int agent_stage_begin(agent_connection_t *c);

/* There is more of the body. */
void agent_stage_receive(agent_connection_t *c);

/* 1: it did a part of its work, c's timer tells when to go on. */
int agent_stage_work(agent_connection_t *c);

/*
 * ERROR stage_needed, with all that is not there.  The place of that id in
 * the queue is kept for a moment (size 0: it has none).
 */
void agent_stage_needed(agent_connection_t *c, agent_stage_t *stage,
    const uint8_t *id, size_t id_size, uint64_t sequence);

/* 1: an earlier request is about to come back with its files. */
int agent_stage_held(uint64_t sequence, uint64_t *wait);

void agent_stage_free(agent_stage_t *stage);


/* agent_stage_apply.c */

/* 1: it is here in that version, or known to be of no use. */
int agent_stage_has(const agent_stage_item_t *item);

/*
 * Files to their places.  stage NULL: none are wanted.  -1: some are neither
 * here nor brought along, nothing was done.
 */
int agent_stage_apply(agent_stage_t *stage);

/* Nothing of it is there any more: all is asked for anew. */
void agent_stage_forget(void);


#endif /* AGENT_STAGE_H */
