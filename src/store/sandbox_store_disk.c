/*
 * Files of the store: looking, listing, removing, and what a command is to be
 * told of an attachment.  May block: for threads.
 */

#include "sandbox_store_core.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define SANDBOX_STORE_HEAD   SANDBOX_STORE_BLOCK


static void sandbox_store_kind_path(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, char *out);
static int sandbox_store_open_entry(const char *path, const char *id,
    sandbox_store_kind_e kind, sandbox_store_entry_t *entry);
static void sandbox_store_list_add(sandbox_store_list_t *list,
    size_t *order, size_t limit, const sandbox_store_entry_t *entry);
static int sandbox_store_compare(const char *a, size_t a_len, const char *b,
    size_t b_len);


const char *const  sandbox_store_kinds[SANDBOX_STORE_KINDS] = {
    "attachments", "files", "skills", "notices"
};


int
sandbox_store_place(sandbox_store_place_t *place, const char *root,
    const char *realm, size_t realm_len,
    const uint8_t tenant[SANDBOX_STORE_DIGEST],
    const uint8_t user[SANDBOX_STORE_DIGEST], const char *conversation,
    size_t conversation_len)
{
    int   n, m, l;
    char  realm_name[SANDBOX_STORE_MAX_COMPONENT + 1];
    char  name[SANDBOX_STORE_MAX_COMPONENT + 1];
    char  digest[2][2 * SANDBOX_STORE_DIGEST + 1];

    if (strlen(root) > SANDBOX_STORE_MAX_ROOT) {
        return -1;
    }

    strcpy(place->root, root);

    sandbox_store_component(realm, realm_len, realm_name);
    sandbox_store_component(conversation, conversation_len, name);

    for (n = 0; n < SANDBOX_STORE_DIGEST; n++) {
        sprintf(digest[0] + 2 * n, "%02x", tenant[n]);
        sprintf(digest[1] + 2 * n, "%02x", user[n]);
    }

    n = snprintf(place->tenant, sizeof(place->tenant), "%s/%s/%s", root,
                 realm_name, digest[0]);
    m = snprintf(place->user, sizeof(place->user), "%s/%s/%s/%s", root,
                 realm_name, digest[0], digest[1]);
    l = snprintf(place->conversation, sizeof(place->conversation),
                 "%s/%s/%s/%s/%s", root, realm_name, digest[0], digest[1],
                 name);

    return (n > 0 && n < (int) sizeof(place->tenant)
            && m > 0 && m < (int) sizeof(place->user)
            && l > 0 && l < (int) sizeof(place->conversation))
           ? 0 : -1;
}


static void
sandbox_store_kind_path(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, char *out)
{
    sandbox_store_path(out, place->conversation, sandbox_store_kinds[kind]);
}


unsigned
sandbox_store_lookup(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, const char *name, size_t len, const char *id,
    sandbox_store_entry_t *entry, int *fd, sandbox_store_fault_t *fault)
{
    int   file;
    char  folder[SANDBOX_STORE_MAX_PATH], path[SANDBOX_STORE_MAX_PATH];
    char  own[SANDBOX_STORE_ID + 1];

    if (id == NULL) {
        sandbox_store_id(name, len, own);
        id = own;
    }

    sandbox_store_kind_path(place, kind, folder);
    sandbox_store_path(path, folder, id);

    file = sandbox_store_open_entry(path, id, kind, entry);

    if (file == -1) {

        if (errno == ENOENT || errno == ENOTDIR) {
            return sandbox_store_refused(fault, SANDBOX_STORE_MISSING, 0);
        }

        if (errno == EBADMSG) {
            (void) sandbox_store_fault(fault, "read", path, errno);
            fault->status = SANDBOX_STORE_DAMAGED;
            return fault->status;
        }

        return sandbox_store_fault(fault, "open", path, errno);
    }

    if (fd) {
        *fd = file;

    } else {
        close(file);
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


/* -1: errno is EBADMSG if it is no file of ours, or not a whole one */

static int
sandbox_store_open_entry(const char *path, const char *id,
    sandbox_store_kind_e kind, sandbox_store_entry_t *entry)
{
    int          fd, error;
    char         own[SANDBOX_STORE_ID + 1];
    uint8_t      block[SANDBOX_STORE_HEAD];
    ssize_t      n;
    struct stat  st;

    fd = open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == -1) {
        return -1;
    }

    n = pread(fd, block, sizeof(block), 0);

    if (n == -1 || fstat(fd, &st) == -1) {
        error = errno;
        close(fd);
        errno = error;
        return -1;
    }

    if (S_ISREG(st.st_mode)
        && sandbox_store_read_block(block, (size_t) n, entry) == 0)
    {
        sandbox_store_id(entry->name, entry->name_len, own);

        /* a notice has a limit in the place of a size */

        if (strcmp(own, id) == 0
            && (kind == SANDBOX_STORE_NOTICES
                || (uint64_t) st.st_size
                   == SANDBOX_STORE_BLOCK + entry->size))
        {
            return fd;
        }
    }

    close(fd);
    errno = EBADMSG;

    return -1;
}


unsigned
sandbox_store_list(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, const char *after, size_t after_len,
    size_t limit, sandbox_store_list_t *list, sandbox_store_fault_t *fault)
{
    DIR                    *dir;
    int                     fd;
    char                    folder[SANDBOX_STORE_MAX_PATH];
    char                    path[SANDBOX_STORE_MAX_PATH];
    size_t                 *order, i;
    struct dirent          *de;
    sandbox_store_entry_t  *sorted, entry;

    memset(list, 0, sizeof(sandbox_store_list_t));

    if (limit == 0 || limit > SANDBOX_STORE_MAX_LIST) {
        limit = SANDBOX_STORE_MAX_LIST;
    }

    sandbox_store_kind_path(place, kind, folder);

    dir = opendir(folder);

    if (dir == NULL) {

        if (errno == ENOENT || errno == ENOTDIR) {
            return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
        }

        return sandbox_store_fault(fault, "opendir", folder, errno);
    }

    order = calloc(limit + 1, sizeof(size_t));
    list->entries = malloc((limit + 1) * sizeof(sandbox_store_entry_t));

    while (order && list->entries && (de = readdir(dir)) != NULL) {

        if (strlen(de->d_name) != SANDBOX_STORE_ID) {
            continue;
        }

        sandbox_store_path(path, folder, de->d_name);
        fd = sandbox_store_open_entry(path, de->d_name, kind, &entry);

        if (fd == -1) {
            continue;
        }

        close(fd);

        if (after_len && sandbox_store_compare(entry.name, entry.name_len,
                                               after, after_len) <= 0)
        {
            continue;
        }

        sandbox_store_list_add(list, order, limit, &entry);
    }

    closedir(dir);

    sorted = (order && list->entries && list->n)
             ? malloc(list->n * sizeof(sandbox_store_entry_t)) : NULL;

    for (i = 0; sorted && i < list->n; i++) {
        sorted[i] = list->entries[order[i]];
    }

    i = list->n;
    fd = (order == NULL || list->entries == NULL || (i && sorted == NULL));

    free(order);
    free(list->entries);
    list->entries = sorted;

    if (fd) {
        list->n = 0;
        return sandbox_store_fault(fault, "malloc", folder, ENOMEM);
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


/* the smallest names, in order; what falls off gives its place to the next */

static void
sandbox_store_list_add(sandbox_store_list_t *list, size_t *order,
    size_t limit, const sandbox_store_entry_t *entry)
{
    size_t                  low, high, mid, place;
    sandbox_store_entry_t  *other;

    low = 0;
    high = list->n;

    while (low < high) {
        mid = (low + high) / 2;
        other = &list->entries[order[mid]];

        if (sandbox_store_compare(entry->name, entry->name_len, other->name,
                                  other->name_len) < 0)
        {
            high = mid;

        } else {
            low = mid + 1;
        }
    }

    if (list->n == limit) {
        list->more = 1;

        if (low == limit) {
            return;
        }

        place = order[limit - 1];

    } else {
        place = list->n++;
    }

    memmove(order + low + 1, order + low,
            (list->n - 1 - low) * sizeof(size_t));

    order[low] = place;
    list->entries[place] = *entry;
}


static int
sandbox_store_compare(const char *a, size_t a_len, const char *b,
    size_t b_len)
{
    int  rc;

    rc = memcmp(a, b, a_len < b_len ? a_len : b_len);

    if (rc) {
        return rc;
    }

    return a_len < b_len ? -1 : a_len > b_len;
}


void
sandbox_store_list_free(sandbox_store_list_t *list)
{
    free(list->entries);
    list->entries = NULL;
    list->n = 0;
}


int
sandbox_store_folders(const sandbox_store_place_t *place, uint64_t *hashes,
    unsigned max)
{
    DIR            *dir;
    unsigned        n;
    struct dirent  *de;

    dir = opendir(place->user);

    if (dir == NULL) {
        return errno == ENOENT ? 0 : -1;
    }

    for (n = 0, errno = 0; n <= max && (de = readdir(dir)) != NULL; errno = 0)
    {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0) {
            continue;
        }

        if (n < max) {
            hashes[n] = sandbox_store_folder_hash(de->d_name);
        }

        n++;
    }

    n = errno ? (unsigned) -1 : n;
    closedir(dir);

    return (int) n;
}


/* FNV-1a: what happens to be the same is only looked at in vain */

uint64_t
sandbox_store_folder_hash(const char *name)
{
    uint64_t  h;

    for (h = 0xcbf29ce484222325ULL; *name; name++) {
        h = (h ^ (unsigned char) *name) * 0x100000001b3ULL;
    }

    return h;
}


unsigned
sandbox_store_remove(const sandbox_store_place_t *place,
    sandbox_store_kind_e kind, const char *name, size_t len,
    const sandbox_store_condition_t *condition, sandbox_store_fault_t *fault)
{
    char                   etag[SANDBOX_STORE_ETAG_TEXT + 1];
    char                   id[SANDBOX_STORE_ID + 1];
    char                   folder[SANDBOX_STORE_MAX_PATH];
    char                   path[SANDBOX_STORE_MAX_PATH];
    unsigned               status;
    struct stat            st;
    const char            *tag;
    sandbox_store_lock_t   lock;
    sandbox_store_entry_t  entry;

    status = sandbox_store_lock(place->root, place->tenant, 0, &lock, fault);

    if (status != SANDBOX_STORE_OK) {
        return status;
    }

    status = sandbox_store_lookup(place, kind, name, len, NULL, &entry, NULL,
                                  fault);

    /* what is damaged can still be removed */

    if (status != SANDBOX_STORE_OK && status != SANDBOX_STORE_DAMAGED) {
        sandbox_store_unlock(&lock, 0, 0);
        return status;
    }

    tag = NULL;

    if (status == SANDBOX_STORE_OK) {
        sandbox_store_etag(entry.sha256, etag);
        tag = etag;
    }

    if ((condition->match
         && !sandbox_store_listed(condition->match, condition->match_len, tag,
                                  0))
        || (condition->none_match
            && sandbox_store_listed(condition->none_match,
                                    condition->none_match_len, tag, 1)))
    {
        sandbox_store_unlock(&lock, 0, 0);
        return sandbox_store_refused(fault, SANDBOX_STORE_PRECONDITION, 0);
    }

    sandbox_store_id(name, len, id);
    sandbox_store_kind_path(place, kind, folder);
    sandbox_store_path(path, folder, id);

    if (lstat(path, &st) == -1 || unlink(path) == -1) {
        (void) sandbox_store_fault(fault, "unlink", path, errno);
        sandbox_store_unlock(&lock, 0, 0);
        return fault->status;
    }

    sandbox_store_unlock(&lock, 0, st.st_size > SANDBOX_STORE_BLOCK
                                   ? (uint64_t) st.st_size
                                   : SANDBOX_STORE_BLOCK);

    if (kind == SANDBOX_STORE_ATTACHMENTS) {
        sandbox_store_kind_path(place, SANDBOX_STORE_NOTICES, path);
        sandbox_store_path(path, path, id);
        (void) unlink(path);
    }

    if (sandbox_store_sync_folder(folder) == -1 && errno != ENOENT) {
        return sandbox_store_fault(fault, "fsync", folder, errno);
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


unsigned
sandbox_store_drop(const sandbox_store_place_t *place,
    sandbox_store_fault_t *fault)
{
    char                   trash[SANDBOX_STORE_MAX_PATH], name[25];
    char                   path[SANDBOX_STORE_MAX_PATH];
    unsigned               status;
    sandbox_store_lock_t   lock;
    sandbox_store_usage_t  usage;

    status = sandbox_store_lock(place->root, place->tenant, 0, &lock, fault);

    if (status == SANDBOX_STORE_MISSING) {
        return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
    }

    if (status != SANDBOX_STORE_OK) {
        return status;
    }

    sandbox_store_path(trash, place->root, ".trash");

    if (sandbox_store_folder(place->root, trash, fault) == -1) {
        sandbox_store_unlock(&lock, 0, 0);
        return fault->status;
    }

    sandbox_store_random(name);
    sandbox_store_path(path, trash, name);

    memset(&usage, 0, sizeof(usage));
    (void) sandbox_store_count(place->conversation, &usage,
                               SANDBOX_STORE_KINDS, NULL);

    if (rename(place->conversation, path) == -1) {

        if (errno == ENOENT) {
            (void) sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);

        } else {
            (void) sandbox_store_fault(fault, "rename", place->conversation,
                                       errno);
        }

        sandbox_store_unlock(&lock, 0, 0);

        return fault->status;
    }

    sandbox_store_unlock(&lock, 0, sandbox_store_taken(&usage));

    /* gone after a power loss, too */

    if (sandbox_store_sync_folder(trash) == -1
        || (sandbox_store_sync_folder(place->user) == -1 && errno != ENOENT))
    {
        return sandbox_store_fault(fault, "fsync", place->user, errno);
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


unsigned
sandbox_store_notice(const sandbox_store_place_t *place, const char *name,
    size_t len, uint64_t limit, sandbox_store_fault_t *fault)
{
    int                     written;
    char                    folder[SANDBOX_STORE_MAX_PATH];
    char                    path[SANDBOX_STORE_MAX_PATH];
    char                    id[SANDBOX_STORE_ID + 1];
    uint8_t                 block[SANDBOX_STORE_BLOCK];
    unsigned                status;
    sandbox_store_list_t    list;
    sandbox_store_lock_t    lock;
    sandbox_store_entry_t   entry;
    sandbox_store_writer_t  w;

    status = sandbox_store_list(place, SANDBOX_STORE_NOTICES, NULL, 0,
                                SANDBOX_STORE_MAX_NOTICES, &list, fault);

    if (status != SANDBOX_STORE_OK) {
        return status;
    }

    written = (list.n >= SANDBOX_STORE_MAX_NOTICES);
    sandbox_store_list_free(&list);

    if (written) {
        return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
    }

    memset(&entry, 0, sizeof(entry));
    memcpy(entry.name, name, len);
    entry.name_len = (unsigned) len;
    entry.size = limit;

    sandbox_store_id(name, len, id);
    sandbox_store_kind_path(place, SANDBOX_STORE_NOTICES, folder);
    sandbox_store_path(path, folder, id);

    sandbox_store_write_block(&entry, block);
    sandbox_store_writer_init(&w, 0);

    status = sandbox_store_write(&w, place->root, NULL, 0, fault);

    if (status == SANDBOX_STORE_OK
        && pwrite(w.fd, block, sizeof(block), 0) != sizeof(block))
    {
        status = sandbox_store_fault(fault, "write", w.path, errno);
    }

    if (status == SANDBOX_STORE_OK) {
        status = sandbox_store_lock(place->root, place->tenant, 1, &lock,
                                    fault);
    }

    if (status == SANDBOX_STORE_OK) {

        if (sandbox_store_folder(place->root, folder, fault) == -1) {
            status = fault->status;

        } else if (rename(w.path, path) == -1) {
            status = sandbox_store_fault(fault, "rename", path, errno);

        } else {
            w.path[0] = '\0';
        }

        sandbox_store_unlock(&lock, 0, 0);
    }

    sandbox_store_writer_abort(&w);

    return status;
}


unsigned
sandbox_store_take_notices(const sandbox_store_place_t *place,
    sandbox_store_list_t *list, sandbox_store_fault_t *fault)
{
    char      folder[SANDBOX_STORE_MAX_PATH], path[SANDBOX_STORE_MAX_PATH];
    char      id[SANDBOX_STORE_ID + 1];
    size_t    i;
    unsigned  status;

    status = sandbox_store_list(place, SANDBOX_STORE_NOTICES, NULL, 0,
                                SANDBOX_STORE_MAX_NOTICES, list, fault);

    sandbox_store_kind_path(place, SANDBOX_STORE_NOTICES, folder);

    for (i = 0; i < list->n; i++) {
        sandbox_store_id(list->entries[i].name, list->entries[i].name_len,
                         id);
        sandbox_store_path(path, folder, id);
        (void) unlink(path);
    }

    return status;
}
