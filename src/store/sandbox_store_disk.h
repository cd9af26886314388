/*
 * The store on the disk.  Each function may block, so in nginx they run in
 * threads only; none of them shares memory with another call.
 *
 *   ROOT/REALM/TENANT/usage              bytes of all files below; its lock
 *   ROOT/REALM/TENANT/USER/C/KIND/ID     a block (sandbox_store.h), the bytes
 *   ROOT/REALM/TENANT/USER/C/used        a mark; sandbox_store_conversations.h
 *   ROOT/.tmp/                           what is being written, each locked
 *   ROOT/.trash/                         conversations that were deleted
 *   ROOT/.sweep                          a lock; its time is the last sweep's
 *
 * A file appears, and is replaced, by one rename, after it was synced; the
 * folder is synced before that is told.  What changes names or sizes holds the
 * tenant's lock.
 */

#ifndef SANDBOX_STORE_DISK_H
#define SANDBOX_STORE_DISK_H

#include "sandbox_store.h"

#include <openssl/evp.h>


#define SANDBOX_STORE_MAX_ROOT        512
#define SANDBOX_STORE_MAX_PLACE       (SANDBOX_STORE_MAX_ROOT                \
                                       + 2 * SANDBOX_STORE_MAX_COMPONENT     \
                                       + 128)
#define SANDBOX_STORE_MAX_PATH        (SANDBOX_STORE_MAX_PLACE + 64)
#define SANDBOX_STORE_MAX_LIST        1000
#define SANDBOX_STORE_MAX_NOTICES     32         /* of a conversation */
#define SANDBOX_STORE_MAX_ATTACHMENTS 240        /* they are staged at once */
#define SANDBOX_STORE_MAX_SKILLS      16         /* with them, so 256 in all */
#define SANDBOX_STORE_MAX_FILES       10000      /* of a conversation */


typedef enum {
    SANDBOX_STORE_OK = 0,
    SANDBOX_STORE_MISSING,
    SANDBOX_STORE_EXISTS,
    SANDBOX_STORE_PRECONDITION,
    SANDBOX_STORE_TOO_LARGE,                     /* limit: the most */
    SANDBOX_STORE_TOO_MANY,                      /* limit: files */
    SANDBOX_STORE_FULL,                          /* limit: bytes of it */
    SANDBOX_STORE_TENANT_FULL,                   /* limit: bytes of all */
    SANDBOX_STORE_NO_SPACE,                      /* of the disk */
    SANDBOX_STORE_BUSY,                          /* the lock is not free */
    SANDBOX_STORE_DAMAGED,
    SANDBOX_STORE_REFUSED,                       /* by its content */
    SANDBOX_STORE_FAILED                         /* errno, call, path */
} sandbox_store_status_e;


typedef struct {
    unsigned       status;                       /* sandbox_store_status_e */
    int            error;                        /* errno */
    uint64_t       limit;
    const char    *call;
    char           path[SANDBOX_STORE_MAX_PATH];
} sandbox_store_fault_t;


/* a conversation */

typedef struct {
    char           root[SANDBOX_STORE_MAX_ROOT + 1];
    char           tenant[SANDBOX_STORE_MAX_PLACE];
    char           user[SANDBOX_STORE_MAX_PLACE];
    char           conversation[SANDBOX_STORE_MAX_PLACE];
} sandbox_store_place_t;


typedef struct {
    uint64_t       files;                        /* of a conversation */
    uint64_t       size;
    uint64_t       tenant_size;
} sandbox_store_quota_t;


/* headers of the request, or NULL */

typedef struct {
    const char    *match;
    const char    *none_match;
    size_t         match_len;
    size_t         none_match_len;
} sandbox_store_condition_t;


typedef enum {
    SANDBOX_STORE_REPLACE = 0,
    SANDBOX_STORE_CREATE,                        /* EXISTS if it is there */
    SANDBOX_STORE_FREE_NAME                      /* takes another name then */
} sandbox_store_mode_e;


typedef struct {
    int                    fd;                   /* -1: nothing is open */
    uint64_t               max;
    uint64_t               size;
    uint64_t               room;                 /* more of it than that */
    unsigned               room_status;          /* is refused with this */
    uint64_t               room_limit;
    EVP_MD_CTX            *md;
    sandbox_store_sniff_t  sniff;
    const uint8_t         *record;               /* the caller's, or NULL */
    size_t                 record_size;
    char                   path[SANDBOX_STORE_MAX_PATH];
} sandbox_store_writer_t;


typedef struct {
    sandbox_store_entry_t *entries;              /* malloc() */
    size_t                 n;
    unsigned               more;                 /* there are others after */
} sandbox_store_list_t;


/* -1: a part of it is too long. */
int sandbox_store_place(sandbox_store_place_t *place, const char *root,
    const char *realm, size_t realm_len,
    const uint8_t tenant[SANDBOX_STORE_DIGEST],
    const uint8_t user[SANDBOX_STORE_DIGEST], const char *conversation,
    size_t conversation_len);

/* What each returns is fault->status, too. */

void sandbox_store_writer_init(sandbox_store_writer_t *w, uint64_t max);

/*
 * Before the bytes: whether so many have room under that name by now (size
 * UINT64_MAX: it is not known).  What is written later is held to that; commit
 * has the last word.
 */
unsigned sandbox_store_expect(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, sandbox_store_mode_e mode,
    const char *name, size_t len, uint64_t size,
    sandbox_store_fault_t *fault);

/* Opens the temporary file with the first bytes; size 0 is fine. */
unsigned sandbox_store_write(sandbox_store_writer_t *w, const char *root,
    const void *p, size_t size, sandbox_store_fault_t *fault);

/*
 * Makes what was written the file entry->name, by entry->command; fills the
 * entry.  *created: there was none.  Nothing is left open.
 */
unsigned sandbox_store_commit(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, sandbox_store_mode_e mode,
    const sandbox_store_condition_t *condition, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault);

/* Of any writer, in any state, and again: removes the temporary file. */
void sandbox_store_writer_abort(sandbox_store_writer_t *w);

/*
 * The entry of a file by its name, or by `id` if that is not NULL.  *fd, if fd
 * is not NULL, is the file; its bytes begin at SANDBOX_STORE_BLOCK.
 */
unsigned sandbox_store_lookup(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, const char *name, size_t len, const char *id,
    sandbox_store_entry_t *entry, int *fd, sandbox_store_fault_t *fault);

/*
 * Up to `limit` files (at most SANDBOX_STORE_MAX_LIST) in the order of their
 * names, those after the name `after`; what is damaged is left out.
 */
unsigned sandbox_store_list(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, const char *after, size_t after_len,
    size_t limit, sandbox_store_list_t *list, sandbox_store_fault_t *fault);
void sandbox_store_list_free(sandbox_store_list_t *list);

/*
 * Hashes of the names of the user's conversations that have a folder, up to
 * `max`; max + 1: there are more, -1: it can't be told.
 */
int sandbox_store_folders(const sandbox_store_place_t *place,
    uint64_t *hashes, unsigned max);

/* Of the last part of place->conversation. */
uint64_t sandbox_store_folder_hash(const char *name);

unsigned sandbox_store_remove(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, const char *name, size_t len,
    const sandbox_store_condition_t *condition, sandbox_store_fault_t *fault);

/* The whole conversation goes to the trash; MISSING is fine. */
unsigned sandbox_store_drop(const sandbox_store_place_t *place,
    sandbox_store_fault_t *fault);

/* An attachment of that name was refused, it may have `limit` bytes. */
unsigned sandbox_store_notice(const sandbox_store_place_t *place,
    const char *name, size_t len, uint64_t limit,
    sandbox_store_fault_t *fault);

/* Those notices, and forgets them. */
unsigned sandbox_store_take_notices(const sandbox_store_place_t *place,
    sandbox_store_list_t *list, sandbox_store_fault_t *fault);


/*
 * Removes what a crash left in .tmp, and the trash; once an hour also counts
 * each tenant anew and removes empty folders.  It ends early when `stop` says
 * so, and does nothing while another process does it.
 */
unsigned sandbox_store_sweep(const char *root, int (*stop)(void),
    sandbox_store_fault_t *fault);


#endif /* SANDBOX_STORE_DISK_H */
