/*
 * What has been staged into this sandbox: its names, versions, and what was
 * made of them.  Bytes and a list; knows no files.
 */

#ifndef AGENT_MANIFEST_H
#define AGENT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


#define AGENT_STAGE_ETAG      16
#define AGENT_MANIFEST_MAX    (2 * SANDBOX_WIRE_MAX_STAGED)
#define AGENT_MANIFEST_BYTES  (AGENT_MANIFEST_MAX * 600 + 64)


typedef enum {
    AGENT_STAGE_ATTACHMENT = 1,
    AGENT_STAGE_SKILL
} agent_stage_kind_e;


/* what an agent is about to do, if it dies the next one knows */

typedef enum {
    AGENT_STAGED_THERE = 0,
    AGENT_STAGED_COMING,                 /* to be made, or to be replaced */
    AGENT_STAGED_GOING                   /* to be removed */
} agent_staged_state_e;


typedef struct {
    uint8_t     kind;
    uint8_t     state;                   /* agent_staged_state_e */
    uint8_t     etag[AGENT_STAGE_ETAG];
    uint64_t    size;                    /* of the file that was made */
    uint64_t    modified;                /* ns */
    char        name[SANDBOX_WIRE_MAX_NAME + 1];
    char        made[SANDBOX_WIRE_MAX_NAME + 1];     /* "": nothing */
} agent_staged_t;


typedef struct {
    unsigned         count;
    agent_staged_t  *list;               /* AGENT_MANIFEST_MAX, or NULL */
} agent_manifest_t;


/* The entry of that name that is there; or NULL. */
agent_staged_t *agent_manifest_find(agent_manifest_t *manifest, unsigned kind,
    const char *name);

/* A zeroed entry more; NULL: there is no room. */
agent_staged_t *agent_manifest_add(agent_manifest_t *manifest);
void agent_manifest_remove(agent_manifest_t *manifest, agent_staged_t *entry);

/* Its bytes, at most AGENT_MANIFEST_BYTES. */
size_t agent_manifest_encode(const agent_manifest_t *manifest, uint8_t *p);

/* -1: they are none, or not whole; it is empty then. */
int agent_manifest_decode(agent_manifest_t *manifest, const uint8_t *p,
    size_t size);


#endif /* AGENT_MANIFEST_H */
