/*
 * Conversations of a user, by their folders.  A mark is an empty file: its
 * time of change is that of the first use, its time of access of the last.
 */

#include "sandbox_store_core.h"
#include "sandbox_store_conversations.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


#define SANDBOX_STORE_RENEW       86400          /* seconds */
#define SANDBOX_STORE_FORGOTTEN   (366 * 86400)
#define SANDBOX_STORE_MAX_FOLDERS 1000000        /* of a user, looked at */


static int sandbox_store_conversation_name(const char *component,
    sandbox_store_conversation_t *entry);
static int sandbox_store_conversation_read(int dir, const char *component,
    sandbox_store_conversation_t *entry);
static int sandbox_store_conversation_order(
    const sandbox_store_conversation_t *a,
    const sandbox_store_conversation_t *b);
static void sandbox_store_conversation_add(
    sandbox_store_conversations_t *list, size_t limit,
    const sandbox_store_conversation_t *entry);
static unsigned sandbox_store_conversation_files(int dir,
    const char *component);


unsigned
sandbox_store_mark(const sandbox_store_place_t *place,
    uint64_t limit, const volatile unsigned long *state,
    unsigned long dropped, sandbox_store_fault_t *fault)
{
    int                    fd;
    char                   path[SANDBOX_STORE_MAX_PATH];
    unsigned               status;
    struct stat            st;
    struct timespec        times[2];
    sandbox_store_lock_t   lock;

    sandbox_store_path(path, place->conversation, SANDBOX_STORE_MARK);

    if (lstat(path, &st) == 0) {

        if (time(NULL) - st.st_atime >= SANDBOX_STORE_RENEW) {
            times[0].tv_nsec = UTIME_NOW;
            times[1].tv_nsec = UTIME_OMIT;
            (void) utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
        }

        return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
    }

    /* a sweep takes away what is empty */

    status = sandbox_store_lock(place->root, place->tenant, 1, &lock, fault);

    if (status != SANDBOX_STORE_OK) {
        return status;
    }

    /* who drops it says so first, and then waits for this lock */

    if (state != NULL && *state == dropped) {
        sandbox_store_unlock(&lock, 0, 0);
        return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
    }

    /* names cost nothing else, and may be as many as there are inodes */

    if (lock.bytes + SANDBOX_STORE_BLOCK > limit) {
        sandbox_store_unlock(&lock, 0, 0);
        return sandbox_store_refused(fault, SANDBOX_STORE_TENANT_FULL, limit);
    }

    if (sandbox_store_folder(place->root, place->user, fault) == -1) {
        sandbox_store_unlock(&lock, 0, 0);
        return fault->status;
    }

    /* unsynced: the next use finds out what a power loss took */

    (void) mkdir(place->conversation, 0700);
    fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1 && errno == EEXIST) {
        sandbox_store_unlock(&lock, 0, 0);
        return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
    }

    if (fd == -1) {
        (void) sandbox_store_fault(fault, "open", path, errno);
        sandbox_store_unlock(&lock, 0, 0);
        return fault->status;
    }

    close(fd);
    sandbox_store_unlock(&lock, SANDBOX_STORE_BLOCK, 0);

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


void
sandbox_store_unmark(const char *folder)
{
    char         path[SANDBOX_STORE_MAX_PATH];
    struct stat  st;

    sandbox_store_path(path, folder, SANDBOX_STORE_MARK);

    if (lstat(path, &st) == 0
        && time(NULL) - st.st_atime >= SANDBOX_STORE_FORGOTTEN)
    {
        (void) unlink(path);
    }
}


unsigned
sandbox_store_conversations(const sandbox_store_place_t *place,
    const sandbox_store_conversation_t *after, size_t limit,
    sandbox_store_conversations_t *list, sandbox_store_fault_t *fault)
{
    DIR                           *dir;
    size_t                         i;
    unsigned                       seen;
    char                           name[SANDBOX_STORE_MAX_COMPONENT + 1];
    struct dirent                 *de;
    sandbox_store_conversation_t   entry;

    memset(list, 0, sizeof(sandbox_store_conversations_t));

    if (limit == 0 || limit > SANDBOX_STORE_MAX_LIST) {
        limit = SANDBOX_STORE_MAX_LIST;
    }

    dir = opendir(place->user);

    if (dir == NULL) {

        if (errno == ENOENT || errno == ENOTDIR) {
            return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
        }

        return sandbox_store_fault(fault, "opendir", place->user, errno);
    }

    list->entries = calloc(limit, sizeof(sandbox_store_conversation_t));

    if (list->entries == NULL) {
        closedir(dir);
        return sandbox_store_fault(fault, "malloc", place->user, ENOMEM);
    }

    for (seen = 0;
         seen < SANDBOX_STORE_MAX_FOLDERS && (de = readdir(dir)) != NULL;
         seen++)
    {
        if (sandbox_store_conversation_read(dirfd(dir), de->d_name, &entry)
            == -1
            || (after
                && sandbox_store_conversation_order(&entry, after) <= 0))
        {
            continue;
        }

        sandbox_store_conversation_add(list, limit, &entry);
    }

    for (i = 0; i < list->n; i++) {
        sandbox_store_component(list->entries[i].name,
                                list->entries[i].name_len, name);
        list->entries[i].files = sandbox_store_conversation_files(dirfd(dir),
                                                                  name);
    }

    closedir(dir);

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


static int
sandbox_store_conversation_read(int dir, const char *component,
    sandbox_store_conversation_t *entry)
{
    char         path[SANDBOX_STORE_MAX_COMPONENT
                      + sizeof("/" SANDBOX_STORE_MARK)];
    size_t       n;
    struct stat  st;

    if (sandbox_store_conversation_name(component, entry) == -1) {
        return -1;
    }

    n = strlen(component);
    memcpy(path, component, n);
    strcpy(path + n, "/" SANDBOX_STORE_MARK);

    /* one that has only files was never marked */

    entry->marked = (fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0);

    if (!entry->marked
        && (fstatat(dir, component, &st, AT_SYMLINK_NOFOLLOW) == -1
            || !S_ISDIR(st.st_mode)))
    {
        return -1;
    }

    entry->created_ns = (uint64_t) st.st_mtim.tv_sec * 1000000000
                        + (uint64_t) st.st_mtim.tv_nsec;
    entry->files = 0;

    return 0;
}


/* the id that a folder is named for; -1: of none */

static int
sandbox_store_conversation_name(const char *component,
    sandbox_store_conversation_t *entry)
{
    char         again[SANDBOX_STORE_MAX_COMPONENT + 1];
    size_t       i, n;

    if (strncmp(component, "%2E", 3) == 0) {
        entry->name[0] = '.';
        component += 3;
        n = 1;

    } else {
        n = 0;
    }

    for (i = 0; component[i]; i++) {

        if (n == SANDBOX_STORE_MAX_CONVERSATION || component[i] == '%'
            || component[i] == '=')
        {
            return -1;
        }

        entry->name[n++] = component[i];
    }

    entry->name_len = (unsigned) n;

    if (n == 0) {
        return -1;
    }

    /* it has but one way to be written */

    sandbox_store_component(entry->name, n, again);

    return strcmp(again[0] == '%' ? again + 3 : again, component) == 0
           && (again[0] == '%') == (entry->name[0] == '.') ? 0 : -1;
}


/* newest first; of one moment by their names */

static int
sandbox_store_conversation_order(const sandbox_store_conversation_t *a,
    const sandbox_store_conversation_t *b)
{
    int     rc;
    size_t  n;

    if (a->created_ns != b->created_ns) {
        return a->created_ns > b->created_ns ? -1 : 1;
    }

    n = a->name_len < b->name_len ? a->name_len : b->name_len;
    rc = memcmp(a->name, b->name, n);

    return rc ? rc : (int) a->name_len - (int) b->name_len;
}


static void
sandbox_store_conversation_add(sandbox_store_conversations_t *list,
    size_t limit, const sandbox_store_conversation_t *entry)
{
    size_t  low, high, mid;

    low = 0;
    high = list->n;

    while (low < high) {
        mid = (low + high) / 2;

        if (sandbox_store_conversation_order(entry, &list->entries[mid]) < 0) {
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

    } else {
        list->n++;
    }

    memmove(list->entries + low + 1, list->entries + low,
            (list->n - 1 - low) * sizeof(sandbox_store_conversation_t));
    list->entries[low] = *entry;
}


static unsigned
sandbox_store_conversation_files(int dir, const char *component)
{
    int          kind;
    char         path[2 * SANDBOX_STORE_MAX_COMPONENT];
    size_t       n;
    struct stat  st;

    n = strlen(component);
    memcpy(path, component, n);
    path[n++] = '/';

    for (kind = 0; kind < SANDBOX_STORE_NOTICES; kind++) {
        strcpy(path + n, sandbox_store_kinds[kind]);

        if (fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            return 1;
        }
    }

    return 0;
}
