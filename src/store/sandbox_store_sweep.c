/*
 * Sweeping: what a crash left behind, what was deleted, and numbers counted
 * anew.  May block, and for long: for a thread.
 */

#include "sandbox_store_core.h"
#include "sandbox_store_conversations.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>


#define SANDBOX_STORE_INTERVAL   3600            /* seconds */
#define SANDBOX_STORE_DEPTH      4               /* of what is in the trash */


static int sandbox_store_due(int fd);
static void sandbox_store_sweep_temporary(const char *root);
static void sandbox_store_sweep_trash(int parent, const char *name,
    unsigned depth, int (*stop)(void));
static void sandbox_store_sweep_tenants(const char *root, int (*stop)(void));
static void sandbox_store_sweep_tenant(const char *root, const char *tenant,
    int (*stop)(void));
static int sandbox_store_each(const char *path,
    int (*wanted)(const char *name), int (*stop)(void), void *data,
    void (*handler)(void *data, const char *path));
static int sandbox_store_visible(const char *name);
static void sandbox_store_sweep_realm(void *data, const char *path);
static void sandbox_store_sweep_one(void *data, const char *path);
static void sandbox_store_sweep_user(void *data, const char *path);
static void sandbox_store_sweep_empty(void *data, const char *path);


typedef struct {
    const char     *root;
    int           (*stop)(void);
} sandbox_store_walk_t;


unsigned
sandbox_store_sweep(const char *root, int (*stop)(void),
    sandbox_store_fault_t *fault)
{
    int   fd, trash;
    char  path[SANDBOX_STORE_MAX_PATH];

    sandbox_store_path(path, root, ".sweep");

    fd = open(path, O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1) {
        return sandbox_store_fault(fault, "open", path, errno);
    }

    if (flock(fd, LOCK_EX|LOCK_NB) == -1) {
        close(fd);
        return sandbox_store_refused(fault, SANDBOX_STORE_BUSY, 0);
    }

    sandbox_store_sweep_temporary(root);

    trash = open(root, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (trash != -1) {
        sandbox_store_sweep_trash(trash, ".trash", 0, stop);
        close(trash);
    }

    if (sandbox_store_due(fd)) {
        sandbox_store_sweep_tenants(root, stop);
        (void) !pwrite(fd, "swept\n", 6, 0);
        (void) futimens(fd, NULL);
    }

    close(fd);

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


static int
sandbox_store_due(int fd)
{
    struct stat  st;

    if (fstat(fd, &st) == -1) {
        return 0;
    }

    return st.st_size == 0
           || time(NULL) - st.st_mtime >= SANDBOX_STORE_INTERVAL
           || st.st_mtime > time(NULL) + SANDBOX_STORE_INTERVAL;
}


/* a file that nobody has locked has no writer any more */

static void
sandbox_store_sweep_temporary(const char *root)
{
    int             folder, fd;
    DIR            *dir;
    char            path[SANDBOX_STORE_MAX_PATH];
    struct dirent  *de;

    sandbox_store_path(path, root, ".tmp");

    folder = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (folder == -1) {
        return;
    }

    if (sandbox_store_flock(folder, LOCK_EX) == -1
        || (dir = fdopendir(folder)) == NULL)
    {
        close(folder);
        return;
    }

    while ((de = readdir(dir)) != NULL) {

        if (de->d_name[0] == '.') {
            continue;
        }

        fd = openat(folder, de->d_name,
                    O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

        if (fd == -1) {
            continue;
        }

        if (flock(fd, LOCK_EX|LOCK_NB) == 0) {
            (void) unlinkat(folder, de->d_name, 0);
        }

        close(fd);
    }

    closedir(dir);
}


/* at depth 0 the folder itself stays */

static void
sandbox_store_sweep_trash(int parent, const char *name, unsigned depth,
    int (*stop)(void))
{
    int             folder;
    DIR            *dir;
    struct dirent  *de;

    folder = openat(parent, name,
                    O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (folder == -1) {
        return;
    }

    dir = fdopendir(folder);

    if (dir == NULL) {
        close(folder);
        return;
    }

    while (!stop() && (de = readdir(dir)) != NULL) {

        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0) {
            continue;
        }

        if (unlinkat(folder, de->d_name, 0) == -1
            && depth < SANDBOX_STORE_DEPTH)
        {
            sandbox_store_sweep_trash(folder, de->d_name, depth + 1, stop);
            (void) unlinkat(folder, de->d_name, AT_REMOVEDIR);
        }
    }

    closedir(dir);
}


static void
sandbox_store_sweep_tenants(const char *root, int (*stop)(void))
{
    sandbox_store_walk_t  walk;

    walk.root = root;
    walk.stop = stop;

    (void) sandbox_store_each(root, sandbox_store_visible, stop, &walk,
                              sandbox_store_sweep_realm);
}


static void
sandbox_store_sweep_realm(void *data, const char *path)
{
    sandbox_store_walk_t *walk = data;

    (void) sandbox_store_each(path, sandbox_store_visible, walk->stop, walk,
                              sandbox_store_sweep_one);
}


static void
sandbox_store_sweep_one(void *data, const char *path)
{
    sandbox_store_walk_t *walk = data;

    sandbox_store_sweep_tenant(walk->root, path, walk->stop);
}


/* under the tenant's lock nothing appears, so an empty folder stays empty */

static void
sandbox_store_sweep_tenant(const char *root, const char *tenant,
    int (*stop)(void))
{
    sandbox_store_walk_t   walk;
    sandbox_store_lock_t   lock;
    sandbox_store_fault_t  fault;

    walk.root = root;
    walk.stop = stop;

    if (sandbox_store_lock(root, tenant, 0, &lock, &fault)
        != SANDBOX_STORE_OK)
    {
        return;
    }

    (void) sandbox_store_each(tenant, sandbox_store_visible, stop, &walk,
                              sandbox_store_sweep_user);

    (void) sandbox_store_recount(tenant, &lock);
    sandbox_store_unlock(&lock, 0, 0);
}


static void
sandbox_store_sweep_user(void *data, const char *path)
{
    sandbox_store_walk_t *walk = data;

    (void) sandbox_store_each(path, sandbox_store_visible, walk->stop, walk,
                              sandbox_store_sweep_empty);
    (void) rmdir(path);
}


static void
sandbox_store_sweep_empty(void *data, const char *path)
{
    int   kind;
    char  folder[SANDBOX_STORE_MAX_PATH];

    for (kind = 0; kind < SANDBOX_STORE_KINDS; kind++) {
        sandbox_store_path(folder, path, sandbox_store_kinds[kind]);
        (void) rmdir(folder);
    }

    sandbox_store_unmark(path);
    (void) rmdir(path);
}


static int
sandbox_store_visible(const char *name)
{
    return name[0] != '.' && strcmp(name, "usage") != 0;
}


static int
sandbox_store_each(const char *path, int (*wanted)(const char *name),
    int (*stop)(void), void *data,
    void (*handler)(void *data, const char *path))
{
    DIR            *dir;
    char            next[SANDBOX_STORE_MAX_PATH];
    struct dirent  *de;

    dir = opendir(path);

    if (dir == NULL) {
        return -1;
    }

    while (!stop() && (de = readdir(dir)) != NULL) {
        if (wanted(de->d_name)) {
            sandbox_store_path(next, path, de->d_name);
            handler(data, next);
        }
    }

    closedir(dir);

    return 0;
}
