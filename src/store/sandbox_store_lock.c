/*
 * What all of the store's disk half stands on: faults, folders, and a tenant's
 * lock with the number of its bytes.  May block: for threads.
 */

#include "sandbox_store_core.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>


#define SANDBOX_STORE_LOCK_TIME   10000          /* milliseconds */
#define SANDBOX_STORE_NUMBER      20             /* digits, then '\n' */


static int sandbox_store_usage_read(int fd, uint64_t *bytes);
static int sandbox_store_count_folder(const char *path,
    sandbox_store_usage_t *usage);


unsigned
sandbox_store_fault(sandbox_store_fault_t *fault, const char *call,
    const char *path, int error)
{
    fault->status = (error == ENOSPC || error == EDQUOT)
                    ? SANDBOX_STORE_NO_SPACE
                    : error == ETIMEDOUT ? SANDBOX_STORE_BUSY
                    : SANDBOX_STORE_FAILED;
    fault->error = error;
    fault->call = call;

    snprintf(fault->path, sizeof(fault->path), "%s", path);

    return fault->status;
}


unsigned
sandbox_store_refused(sandbox_store_fault_t *fault, unsigned status,
    uint64_t limit)
{
    fault->status = status;
    fault->error = 0;
    fault->limit = limit;
    fault->call = "";
    fault->path[0] = '\0';

    return status;
}


int
sandbox_store_flock(int fd, int how)
{
    unsigned         waited;
    struct timespec  pause = { 0, 1000000 };

    for (waited = 0; flock(fd, how|LOCK_NB) == -1; waited++) {

        if (errno != EWOULDBLOCK && errno != EINTR) {
            return -1;
        }

        if (waited == SANDBOX_STORE_LOCK_TIME) {
            errno = ETIMEDOUT;
            return -1;
        }

        nanosleep(&pause, NULL);
    }

    return 0;
}


/* the folder may be the beginning of the path */

void
sandbox_store_path(char *out, const char *folder, const char *name)
{
    size_t  n, m;

    n = strlen(folder);
    m = strlen(name);

    if (n + m + 2 > SANDBOX_STORE_MAX_PATH) {
        out[0] = '\0';
        return;
    }

    memmove(out, folder, n);
    out[n] = '/';
    memcpy(out + n + 1, name, m + 1);
}


void
sandbox_store_random(char out[25])
{
    int                   i;
    uint8_t               bytes[12];
    static const char     hex[] = "0123456789abcdef";

    /* so few bytes come whole, and need no wait once the system is up */

    memset(bytes, 0, sizeof(bytes));
    (void) !getrandom(bytes, sizeof(bytes), 0);

    for (i = 0; i < 12; i++) {
        out[2 * i] = hex[bytes[i] >> 4];
        out[2 * i + 1] = hex[bytes[i] & 15];
    }

    out[24] = '\0';
}


int
sandbox_store_sync_folder(const char *path)
{
    int  fd, rc, error;

    fd = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (fd == -1) {
        return -1;
    }

    rc = fsync(fd);
    error = errno;
    close(fd);
    errno = error;

    return rc;
}


int
sandbox_store_folder(const char *root, const char *path,
    sandbox_store_fault_t *fault)
{
    char    part[SANDBOX_STORE_MAX_PATH];
    size_t  n, last, parent;

    if (mkdir(path, 0700) == -1 && errno == EEXIST) {
        return 0;
    }

    n = strlen(root);
    last = strlen(path);
    parent = n;

    if (last >= sizeof(part)) {
        (void) sandbox_store_fault(fault, "mkdir", path, ENAMETOOLONG);
        return -1;
    }

    for (n = n + 1; n <= last; n++) {

        if (n < last && path[n] != '/') {
            continue;
        }

        memcpy(part, path, n);
        part[n] = '\0';

        if (mkdir(part, 0700) == -1 && errno != EEXIST) {
            (void) sandbox_store_fault(fault, "mkdir", part, errno);
            return -1;
        }

        part[parent] = '\0';

        if (sandbox_store_sync_folder(part) == -1) {
            (void) sandbox_store_fault(fault, "fsync", part, errno);
            return -1;
        }

        parent = n;
    }

    return 0;
}


unsigned
sandbox_store_lock(const char *root, const char *tenant, unsigned create,
    sandbox_store_lock_t *lock, sandbox_store_fault_t *fault)
{
    char  path[SANDBOX_STORE_MAX_PATH];

    lock->bytes = 0;
    lock->counted = 0;
    sandbox_store_path(path, tenant, "usage");

    lock->fd = open(path, O_RDWR|O_CLOEXEC|O_NOFOLLOW|(create ? O_CREAT : 0),
                    0600);

    if (lock->fd == -1 && errno == ENOENT) {

        if (!create) {
            return sandbox_store_refused(fault, SANDBOX_STORE_MISSING, 0);
        }

        if (sandbox_store_folder(root, tenant, fault) == -1) {
            return fault->status;
        }

        lock->fd = open(path, O_RDWR|O_CLOEXEC|O_NOFOLLOW|O_CREAT, 0600);
    }

    if (lock->fd == -1) {
        return sandbox_store_fault(fault, "open", path, errno);
    }

    if (sandbox_store_flock(lock->fd, LOCK_EX) == -1) {
        (void) sandbox_store_fault(fault, "flock", path, errno);
        close(lock->fd);
        lock->fd = -1;
        return fault->status;
    }

    if (sandbox_store_usage_read(lock->fd, &lock->bytes) == -1
        && sandbox_store_recount(tenant, lock) == -1)
    {
        (void) sandbox_store_fault(fault, "readdir", tenant, errno);
        close(lock->fd);
        lock->fd = -1;
        return fault->status;
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


/*
 * The number need not survive a power loss: a sweep counts anew, as does who
 * finds no number.
 */

void
sandbox_store_unlock(sandbox_store_lock_t *lock, uint64_t more, uint64_t less)
{
    int       n;
    char      text[SANDBOX_STORE_NUMBER + 2];
    uint64_t  bytes;

    if (lock->fd == -1) {
        return;
    }

    bytes = lock->bytes + more;
    bytes = bytes > less ? bytes - less : 0;

    n = snprintf(text, sizeof(text), "%0*llu\n", SANDBOX_STORE_NUMBER,
                 (unsigned long long) bytes);

    if ((more != less || lock->counted)
        && pwrite(lock->fd, text, (size_t) n, 0) != n)
    {
        (void) !ftruncate(lock->fd, 0);
    }

    close(lock->fd);
    lock->fd = -1;
}


static int
sandbox_store_usage_read(int fd, uint64_t *bytes)
{
    int   i;
    char  text[SANDBOX_STORE_NUMBER + 1];

    if (pread(fd, text, sizeof(text), 0) != (ssize_t) sizeof(text)
        || text[SANDBOX_STORE_NUMBER] != '\n' || text[0] != '0'
        || text[1] != '0')
    {
        return -1;
    }

    *bytes = 0;

    for (i = 0; i < SANDBOX_STORE_NUMBER; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }

        *bytes = *bytes * 10 + (uint64_t) (text[i] - '0');
    }

    return 0;
}


/*
 * Of a tenant the block before each file counts, too, and as much for a mark:
 * empty files and ever more conversations would take all of the disk.
 */

uint64_t
sandbox_store_taken(const sandbox_store_usage_t *usage)
{
    return usage->bytes
           + (uint64_t) (usage->files + usage->marks) * SANDBOX_STORE_BLOCK;
}


/* TENANT/USER/C, all that is in there */

int
sandbox_store_recount(const char *tenant, sandbox_store_lock_t *lock)
{
    DIR                    *users, *conversations;
    char                    user[SANDBOX_STORE_MAX_PATH];
    char                    path[SANDBOX_STORE_MAX_PATH];
    struct dirent          *de;
    sandbox_store_usage_t   usage;

    lock->bytes = 0;
    lock->counted = 1;

    users = opendir(tenant);

    if (users == NULL) {
        return -1;
    }

    while ((de = readdir(users)) != NULL) {

        if (strlen(de->d_name) != 2 * SANDBOX_STORE_DIGEST) {
            continue;
        }

        sandbox_store_path(user, tenant, de->d_name);
        conversations = opendir(user);

        if (conversations == NULL) {
            continue;
        }

        while ((de = readdir(conversations)) != NULL) {

            if (de->d_name[0] == '.') {
                continue;
            }

            sandbox_store_path(path, user, de->d_name);

            if (sandbox_store_count(path, &usage, SANDBOX_STORE_KINDS, NULL)
                == 0)
            {
                lock->bytes += sandbox_store_taken(&usage);
            }
        }

        closedir(conversations);
    }

    closedir(users);

    return 0;
}


int
sandbox_store_count(const char *conversation, sandbox_store_usage_t *usage,
    sandbox_store_kind_e kind, sandbox_store_usage_t *own)
{
    int                    i;
    char                   path[SANDBOX_STORE_MAX_PATH];
    struct stat            st;
    sandbox_store_usage_t  one;

    memset(usage, 0, sizeof(sandbox_store_usage_t));

    sandbox_store_path(path, conversation, SANDBOX_STORE_MARK);
    usage->marks = (lstat(path, &st) == 0);

    if (own) {
        memset(own, 0, sizeof(sandbox_store_usage_t));
    }

    for (i = 0; i < SANDBOX_STORE_NOTICES; i++) {

        sandbox_store_path(path, conversation, sandbox_store_kinds[i]);

        if (sandbox_store_count_folder(path, &one) == -1) {
            return -1;
        }

        usage->files += one.files;
        usage->bytes += one.bytes;

        if (i == (int) kind && own) {
            *own = one;
        }
    }

    return 0;
}


static int
sandbox_store_count_folder(const char *path, sandbox_store_usage_t *usage)
{
    DIR            *dir;
    struct stat     st;
    struct dirent  *de;

    memset(usage, 0, sizeof(sandbox_store_usage_t));

    dir = opendir(path);

    if (dir == NULL) {
        return (errno == ENOENT || errno == ENOTDIR) ? 0 : -1;
    }

    while ((de = readdir(dir)) != NULL) {

        if (strlen(de->d_name) != SANDBOX_STORE_ID
            || fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        {
            continue;
        }

        usage->files++;

        if (st.st_size > SANDBOX_STORE_BLOCK) {
            usage->bytes += (uint64_t) st.st_size - SANDBOX_STORE_BLOCK;
        }
    }

    closedir(dir);

    return 0;
}
