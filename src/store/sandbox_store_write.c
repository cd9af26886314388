/*
 * Writing a file of the store: to a temporary name that is locked while its
 * writer lives, then by one rename to its own.  May block: for threads.
 */

#include "sandbox_store_core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>


#define SANDBOX_STORE_ATTEMPTS    8
#define SANDBOX_STORE_MAX_FREE    999            /* "NAME (999).ext" */


/* where a file is about to go, and what is there */

typedef struct {
    char                   folder[SANDBOX_STORE_MAX_PATH];
    char                   path[SANDBOX_STORE_MAX_PATH];
    char                   id[SANDBOX_STORE_ID + 1];
    unsigned               there;
    ino_t                  ino;
    struct timespec        changed;
    uint64_t               size;                 /* of its bytes */
} sandbox_store_target_t;


static int sandbox_store_write_open(sandbox_store_writer_t *w,
    const char *root, sandbox_store_fault_t *fault);
static unsigned sandbox_store_target(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, sandbox_store_mode_e mode,
    const sandbox_store_condition_t *condition,
    const sandbox_store_entry_t *asked, sandbox_store_entry_t *entry,
    sandbox_store_target_t *target, sandbox_store_fault_t *fault);
static void sandbox_store_target_stat(sandbox_store_target_t *target);
static unsigned sandbox_store_condition(
    const sandbox_store_condition_t *condition, const char *etag,
    sandbox_store_fault_t *fault);
static unsigned sandbox_store_seal(sandbox_store_writer_t *w,
    const sandbox_store_entry_t *entry, sandbox_store_fault_t *fault);
static unsigned sandbox_store_settle(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, sandbox_store_target_t *target,
    sandbox_store_lock_t *lock, sandbox_store_fault_t *fault);
static unsigned sandbox_store_room(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, const sandbox_store_target_t *target,
    uint64_t tenant, sandbox_store_fault_t *fault);


void
sandbox_store_writer_init(sandbox_store_writer_t *w, uint64_t max)
{
    w->fd = -1;
    w->max = max;
    w->size = 0;
    w->room = UINT64_MAX;
    w->room_status = SANDBOX_STORE_OK;
    w->room_limit = 0;
    w->md = NULL;
    w->record = NULL;
    w->record_size = 0;
    w->path[0] = '\0';

    sandbox_store_sniff_init(&w->sniff);
}


unsigned
sandbox_store_expect(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, sandbox_store_mode_e mode,
    const char *name, size_t len, uint64_t size,
    sandbox_store_fault_t *fault)
{
    unsigned                status;
    uint64_t                bytes;
    sandbox_store_lock_t    lock;
    sandbox_store_target_t  target;

    memset(&target, 0, sizeof(sandbox_store_target_t));

    if (mode != SANDBOX_STORE_FREE_NAME) {
        sandbox_store_path(target.folder, place->conversation,
                           sandbox_store_kinds[kind]);
        sandbox_store_id(name, len, target.id);
        sandbox_store_path(target.path, target.folder, target.id);
        sandbox_store_target_stat(&target);
    }

    status = sandbox_store_lock(place->root, place->tenant, 0, &lock, fault);

    if (status != SANDBOX_STORE_OK && status != SANDBOX_STORE_MISSING) {
        return status;
    }

    bytes = lock.bytes;
    sandbox_store_unlock(&lock, 0, 0);

    status = sandbox_store_room(w, place, kind, quota, &target, bytes, fault);

    if (status != SANDBOX_STORE_OK) {
        return status;
    }

    return sandbox_store_refused(fault, size != UINT64_MAX && size > w->room
                                        ? w->room_status : SANDBOX_STORE_OK,
                                 w->room_limit);
}


unsigned
sandbox_store_write(sandbox_store_writer_t *w, const char *root,
    const void *p, size_t size, sandbox_store_fault_t *fault)
{
    size_t       left;
    ssize_t      n;
    const char  *bytes;

    if (size > w->max - w->size) {
        return sandbox_store_refused(fault, SANDBOX_STORE_TOO_LARGE, w->max);
    }

    if (w->size > w->room || size > w->room - w->size) {
        return sandbox_store_refused(fault, w->room_status, w->room_limit);
    }

    if (w->fd == -1 && sandbox_store_write_open(w, root, fault) == -1) {
        return fault->status;
    }

    if (size == 0) {
        return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
    }

    if (EVP_DigestUpdate(w->md, p, size) != 1) {
        return sandbox_store_fault(fault, "SHA-256", w->path, ENOMEM);
    }

    sandbox_store_sniff(&w->sniff, p, size);

    bytes = p;

    for (left = size; left; left -= (size_t) n) {

        n = pwrite(w->fd, bytes, left,
                   (off_t) (SANDBOX_STORE_BLOCK + w->size));

        if (n == -1 && errno == EINTR) {
            n = 0;
            continue;
        }

        if (n <= 0) {
            return sandbox_store_fault(fault, "write", w->path,
                                       n == -1 ? errno : ENOSPC);
        }

        bytes += n;
        w->size += (uint64_t) n;
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


/*
 * The folder is locked until the file is: so a sweep finds no file that has a
 * writer without its lock.
 */

static int
sandbox_store_write_open(sandbox_store_writer_t *w, const char *root,
    sandbox_store_fault_t *fault)
{
    int   folder, error;
    char  path[SANDBOX_STORE_MAX_PATH], name[25];

    sandbox_store_path(path, root, ".tmp");

    folder = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (folder == -1 && errno == ENOENT) {

        if (sandbox_store_folder(root, path, fault) == -1) {
            return -1;
        }

        folder = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    }

    if (folder == -1) {
        (void) sandbox_store_fault(fault, "open", path, errno);
        return -1;
    }

    if (sandbox_store_flock(folder, LOCK_SH) == -1) {
        (void) sandbox_store_fault(fault, "flock", path, errno);
        close(folder);
        return -1;
    }

    sandbox_store_random(name);
    sandbox_store_path(w->path, path, name);

    w->fd = open(w->path, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);
    error = errno;

    if (w->fd != -1 && flock(w->fd, LOCK_EX|LOCK_NB) == -1) {
        error = errno;
        close(w->fd);
        (void) unlink(w->path);
        w->fd = -1;
    }

    close(folder);

    if (w->fd == -1) {
        (void) sandbox_store_fault(fault, "open", w->path, error);
        w->path[0] = '\0';
        return -1;
    }

    w->md = EVP_MD_CTX_new();

    if (w->md == NULL || EVP_DigestInit_ex(w->md, EVP_sha256(), NULL) != 1) {
        (void) sandbox_store_fault(fault, "SHA-256", w->path, ENOMEM);
        return -1;
    }

    return 0;
}


void
sandbox_store_writer_abort(sandbox_store_writer_t *w)
{
    if (w->path[0]) {
        (void) unlink(w->path);
        w->path[0] = '\0';
    }

    if (w->fd != -1) {
        close(w->fd);
        w->fd = -1;
    }

    EVP_MD_CTX_free(w->md);
    w->md = NULL;
}


/*
 * Syncing takes long and is done without the lock, for the name that seems
 * right; if another one was faster, once more.
 */

unsigned
sandbox_store_commit(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, sandbox_store_mode_e mode,
    const sandbox_store_condition_t *condition, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault)
{
    unsigned                i, status;
    struct timespec         now;
    sandbox_store_lock_t    lock;
    sandbox_store_entry_t   asked;
    sandbox_store_target_t  target, found;

    lock.fd = -1;
    lock.bytes = 0;
    lock.counted = 0;

    if (w->fd == -1) {
        status = sandbox_store_write(w, place->root, "", 0, fault);

        if (status != SANDBOX_STORE_OK) {
            goto failed;
        }
    }

    clock_gettime(CLOCK_REALTIME, &now);

    entry->modified_ms = (uint64_t) now.tv_sec * 1000
                         + (uint64_t) now.tv_nsec / 1000000;
    entry->size = w->size;
    entry->type = sandbox_store_sniff_end(&w->sniff);

    if (EVP_DigestFinal_ex(w->md, entry->sha256, NULL) != 1) {
        status = sandbox_store_fault(fault, "SHA-256", w->path, ENOMEM);
        goto failed;
    }

    asked = *entry;

    for (i = 0; i < SANDBOX_STORE_ATTEMPTS; i++) {

        status = sandbox_store_target(place, kind, mode, condition, &asked,
                                      entry, &target, fault);

        if (status != SANDBOX_STORE_OK) {
            goto failed;
        }

        status = sandbox_store_seal(w, entry, fault);

        if (status != SANDBOX_STORE_OK) {
            goto failed;
        }

        if (lock.fd == -1) {
            status = sandbox_store_lock(place->root, place->tenant, 1, &lock,
                                        fault);

            if (status != SANDBOX_STORE_OK) {
                goto failed;
            }
        }

        found = target;
        sandbox_store_target_stat(&found);

        if (found.there == target.there && found.ino == target.ino
            && found.changed.tv_sec == target.changed.tv_sec
            && found.changed.tv_nsec == target.changed.tv_nsec)
        {
            break;
        }

        /* whoever was slower so often holds the lock meanwhile */

        if (i < SANDBOX_STORE_ATTEMPTS - 2) {
            sandbox_store_unlock(&lock, 0, 0);
        }
    }

    if (i == SANDBOX_STORE_ATTEMPTS) {
        status = sandbox_store_refused(fault, SANDBOX_STORE_BUSY, 0);
        goto failed;
    }

    *created = !target.there;

    status = sandbox_store_settle(w, place, kind, quota, &target, &lock,
                                  fault);

failed:

    sandbox_store_unlock(&lock, 0, 0);
    sandbox_store_writer_abort(w);

    return status;
}


/* the name that is to be used, and whether it may be */

static unsigned
sandbox_store_target(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, sandbox_store_mode_e mode,
    const sandbox_store_condition_t *condition,
    const sandbox_store_entry_t *asked, sandbox_store_entry_t *entry,
    sandbox_store_target_t *target, sandbox_store_fault_t *fault)
{
    char                   etag[SANDBOX_STORE_ETAG_TEXT + 1];
    unsigned               n, status;
    sandbox_store_entry_t  old;

    *entry = *asked;
    sandbox_store_path(target->folder, place->conversation,
                       sandbox_store_kinds[kind]);

    for (n = 2; /* void */ ; n++) {

        sandbox_store_id(entry->name, entry->name_len, target->id);
        sandbox_store_path(target->path, target->folder, target->id);
        sandbox_store_target_stat(target);

        if (!target->there || mode != SANDBOX_STORE_FREE_NAME) {
            break;
        }

        if (n > SANDBOX_STORE_MAX_FREE) {
            return sandbox_store_refused(fault, SANDBOX_STORE_EXISTS, 0);
        }

        entry->name_len = (unsigned) sandbox_store_free_name(asked->name,
                                          asked->name_len, n, entry->name);
    }

    entry->created_ms = entry->modified_ms;

    if (!target->there) {
        return sandbox_store_condition(condition, NULL, fault);
    }

    if (mode == SANDBOX_STORE_CREATE) {
        return sandbox_store_refused(fault, SANDBOX_STORE_EXISTS, 0);
    }

    status = sandbox_store_lookup(place, kind, entry->name, entry->name_len,
                                  NULL, &old, NULL, fault);

    if (status == SANDBOX_STORE_OK) {
        entry->created_ms = old.created_ms;
        sandbox_store_etag(old.sha256, etag);
        return sandbox_store_condition(condition, etag, fault);
    }

    /* gone since then, which is found out later; or no file of ours */

    if (status == SANDBOX_STORE_MISSING || status == SANDBOX_STORE_DAMAGED) {
        return sandbox_store_condition(condition,
                                       status == SANDBOX_STORE_DAMAGED
                                       ? "" : NULL, fault);
    }

    return status;
}


static void
sandbox_store_target_stat(sandbox_store_target_t *target)
{
    struct stat  st;

    if (lstat(target->path, &st) == -1) {
        target->there = 0;
        target->ino = 0;
        target->changed.tv_sec = 0;
        target->changed.tv_nsec = 0;
        target->size = 0;
        return;
    }

    target->there = 1;
    target->ino = st.st_ino;
    target->changed = st.st_ctim;
    target->size = st.st_size > SANDBOX_STORE_BLOCK
                   ? (uint64_t) st.st_size - SANDBOX_STORE_BLOCK : 0;
}


static unsigned
sandbox_store_condition(const sandbox_store_condition_t *condition,
    const char *etag, sandbox_store_fault_t *fault)
{
    unsigned  good;

    good = (condition->match == NULL
            || sandbox_store_listed(condition->match, condition->match_len,
                                    etag, 0))
           && (condition->none_match == NULL
               || !sandbox_store_listed(condition->none_match,
                                        condition->none_match_len, etag, 1));

    return sandbox_store_refused(fault, good ? SANDBOX_STORE_OK
                                             : SANDBOX_STORE_PRECONDITION, 0);
}


static unsigned
sandbox_store_seal(sandbox_store_writer_t *w,
    const sandbox_store_entry_t *entry, sandbox_store_fault_t *fault)
{
    uint8_t  block[SANDBOX_STORE_BLOCK];
    ssize_t  n;

    sandbox_store_write_block(entry, block);

    if (w->record_size) {
        sandbox_store_write_record(block, w->record, w->record_size);
    }

    n = pwrite(w->fd, block, sizeof(block), 0);

    if (n != (ssize_t) sizeof(block)) {
        return sandbox_store_fault(fault, "write", w->path,
                                   n == -1 ? errno : ENOSPC);
    }

    if (fsync(w->fd) == -1) {
        return sandbox_store_fault(fault, "fsync", w->path, errno);
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


static unsigned
sandbox_store_settle(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, sandbox_store_target_t *target,
    sandbox_store_lock_t *lock, sandbox_store_fault_t *fault)
{
    char      path[SANDBOX_STORE_MAX_PATH];
    unsigned  status;

    status = sandbox_store_room(w, place, kind, quota, target, lock->bytes,
                                fault);

    if (status != SANDBOX_STORE_OK) {
        return status;
    }

    if (w->size > w->room) {
        return sandbox_store_refused(fault, w->room_status, w->room_limit);
    }

    if (sandbox_store_folder(place->root, target->folder, fault) == -1) {
        return fault->status;
    }

    if (rename(w->path, target->path) == -1) {
        return sandbox_store_fault(fault, "rename", target->path, errno);
    }

    w->path[0] = '\0';

    if (kind == SANDBOX_STORE_ATTACHMENTS) {
        sandbox_store_path(path, place->conversation,
                           sandbox_store_kinds[SANDBOX_STORE_NOTICES]);
        sandbox_store_path(path, path, target->id);
        (void) unlink(path);
    }

    sandbox_store_unlock(lock, SANDBOX_STORE_BLOCK + w->size,
                         target->there ? SANDBOX_STORE_BLOCK + target->size
                                       : 0);

    /* deleted as a whole meanwhile: then it was there before that */

    if (sandbox_store_sync_folder(target->folder) == -1 && errno != ENOENT) {
        return sandbox_store_fault(fault, "fsync", target->folder, errno);
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


/* `tenant` is what all of it has; then w->room is what this one may have */

static unsigned
sandbox_store_room(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, sandbox_store_kind_e kind,
    const sandbox_store_quota_t *quota, const sandbox_store_target_t *target,
    uint64_t tenant, sandbox_store_fault_t *fault)
{
    uint64_t               most, others;
    sandbox_store_usage_t  usage, own;

    if (sandbox_store_count(place->conversation, &usage, kind, &own) == -1) {
        return sandbox_store_fault(fault, "readdir", place->conversation,
                                   errno);
    }

    if (!target->there && usage.files >= quota->files) {
        return sandbox_store_refused(fault, SANDBOX_STORE_TOO_MANY,
                                     quota->files);
    }

    most = kind == SANDBOX_STORE_ATTACHMENTS ? SANDBOX_STORE_MAX_ATTACHMENTS
           : kind == SANDBOX_STORE_SKILLS ? SANDBOX_STORE_MAX_SKILLS
           : quota->files;

    if (!target->there && own.files >= most) {
        return sandbox_store_refused(fault, SANDBOX_STORE_TOO_MANY, most);
    }

    others = usage.bytes > target->size ? usage.bytes - target->size : 0;

    w->room = quota->size > others ? quota->size - others : 0;
    w->room_status = SANDBOX_STORE_FULL;
    w->room_limit = quota->size;

    /* with the block before each of them */

    if (!target->there) {
        tenant += SANDBOX_STORE_BLOCK;

        if (tenant > quota->tenant_size) {
            return sandbox_store_refused(fault, SANDBOX_STORE_TENANT_FULL,
                                         quota->tenant_size);
        }
    }

    others = tenant > target->size ? tenant - target->size : 0;
    most = quota->tenant_size > others ? quota->tenant_size - others : 0;

    if (most < w->room) {
        w->room = most;
        w->room_status = SANDBOX_STORE_TENANT_FULL;
        w->room_limit = quota->tenant_size;
    }

    /* what takes less room than before is never refused */

    if (w->room < target->size) {
        w->room = target->size;
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}
