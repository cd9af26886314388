/*
 * Which conversations a user has: those with files, and those that a sandbox
 * was made for, which have a mark.  Blocks: for threads.
 */

#ifndef SANDBOX_STORE_CONVERSATIONS_H
#define SANDBOX_STORE_CONVERSATIONS_H

#include "sandbox_store_disk.h"


#define SANDBOX_STORE_MAX_CONVERSATION  128      /* bytes of an id */


typedef struct {
    uint64_t                       created_ns;   /* since 1970; its order */
    unsigned                       name_len;
    unsigned                       files;        /* it has, or had, some */
    unsigned                       marked;       /* a sandbox was made */
    char                           name[SANDBOX_STORE_MAX_CONVERSATION];
} sandbox_store_conversation_t;


typedef struct {
    sandbox_store_conversation_t  *entries;      /* malloc() */
    size_t                         n;
    unsigned                       more;         /* there are older ones */
} sandbox_store_conversations_t;


/*
 * A sandbox is made for it, or used: it is in the list from then on, until it
 * is dropped, or a year after its last use.  TENANT_FULL: a mark takes a block
 * of the tenant's `limit`, and there is none.  With a `state` nothing is made
 * once that is `dropped`: it was dropped before this came to it.
 */
unsigned sandbox_store_mark(const sandbox_store_place_t *place,
    uint64_t limit, const volatile unsigned long *state,
    unsigned long dropped, sandbox_store_fault_t *fault);

/*
 * Up to `limit` of them (at most SANDBOX_STORE_MAX_LIST), newest first, those
 * that come after `after` (NULL: from the start).
 */
unsigned sandbox_store_conversations(const sandbox_store_place_t *place,
    const sandbox_store_conversation_t *after, size_t limit,
    sandbox_store_conversations_t *list, sandbox_store_fault_t *fault);

/* Of a conversation's folder: removes a mark that nobody renewed. */
void sandbox_store_unmark(const char *folder);


#endif /* SANDBOX_STORE_CONVERSATIONS_H */
