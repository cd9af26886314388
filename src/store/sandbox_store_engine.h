/*
 * Which engine has the sandbox of a conversation, in the conversation's mark:
 * whose block of the tenant's bytes has room for it.  Blocks: for threads.
 */

#ifndef SANDBOX_STORE_ENGINE_H
#define SANDBOX_STORE_ENGINE_H

#include "sandbox_store_disk.h"


#define SANDBOX_STORE_MAX_ENGINE  128            /* bytes of its name */


typedef struct sandbox_store_engine_s {
    uint64_t       instance;                     /* 0: not known */
    unsigned       name_len;
    char           name[SANDBOX_STORE_MAX_ENGINE];
} sandbox_store_engine_t;


/* MISSING: none was written, or it is damaged. */
unsigned sandbox_store_engine_read(const sandbox_store_place_t *place,
    sandbox_store_engine_t *engine, sandbox_store_fault_t *fault);

/*
 * The conversation has a mark from then on; see sandbox_store_mark() for the
 * limit, and for `state`.  Unsynced: what a power loss took is written again.
 */
unsigned sandbox_store_engine_write(const sandbox_store_place_t *place,
    const sandbox_store_engine_t *engine, uint64_t limit,
    const volatile unsigned long *state, unsigned long dropped,
    sandbox_store_fault_t *fault);


#endif /* SANDBOX_STORE_ENGINE_H */
