/*
 * What the files of the store's disk half have in common.
 */

#ifndef SANDBOX_STORE_CORE_H
#define SANDBOX_STORE_CORE_H

#include "sandbox_store_disk.h"

#include <sys/stat.h>


#define SANDBOX_STORE_MARK  "used"               /* of a conversation */


/* what a folder of files holds */

typedef struct {
    uint64_t       files;
    uint64_t       bytes;
    unsigned       marks;                        /* of its conversation */
} sandbox_store_usage_t;


/* a tenant's lock, and how many bytes it has */

typedef struct {
    int            fd;                           /* -1: not held */
    uint64_t       bytes;
    unsigned       counted;                      /* to be written */
} sandbox_store_lock_t;


extern const char *const  sandbox_store_kinds[SANDBOX_STORE_KINDS];


/* Always returns fault->status. */
unsigned sandbox_store_fault(sandbox_store_fault_t *fault, const char *call,
    const char *path, int error);
unsigned sandbox_store_refused(sandbox_store_fault_t *fault, unsigned status,
    uint64_t limit);

/* With deadline, since the kernel's has none. */
int sandbox_store_flock(int fd, int how);

/* Makes the folder and those above it, down from the root; 0 or -1. */
int sandbox_store_folder(const char *root, const char *path,
    sandbox_store_fault_t *fault);

int sandbox_store_sync_folder(const char *path);
void sandbox_store_random(char out[25]);

/* A path of at most SANDBOX_STORE_MAX_PATH; what is longer is cut. */
void sandbox_store_path(char *out, const char *folder, const char *name);

/* MISSING: there is no such tenant, and it was not to be made. */
unsigned sandbox_store_lock(const char *root, const char *tenant,
    unsigned create, sandbox_store_lock_t *lock,
    sandbox_store_fault_t *fault);
void sandbox_store_unlock(sandbox_store_lock_t *lock, uint64_t more,
    uint64_t less);

/* Counts the tenant's bytes, for unlock to write; 0 or -1. */
int sandbox_store_recount(const char *tenant, sandbox_store_lock_t *lock);

/* What that is of a tenant's bytes. */
uint64_t sandbox_store_taken(const sandbox_store_usage_t *usage);

/* What is in a conversation, of all kinds that count; and in one of them. */
int sandbox_store_count(const char *conversation,
    sandbox_store_usage_t *usage, sandbox_store_kind_e kind,
    sandbox_store_usage_t *own);


#endif /* SANDBOX_STORE_CORE_H */
