/*
 * Directories of the runner, and what is checked about them.
 * Knows no sandboxes.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "bundle.h"
#include "file.h"
#include "host.h"
#include "idmap.h"
#include "overlay.h"


#define RUNNER_BUNDLES          RUNNER_SHARED_DIR "/bundles"
#define RUNNER_AGENT_MAX        (64 * 1024 * 1024)      /* bytes */
#define RUNNER_AGENT_FILES      65536                   /* RLIMIT_NOFILE */


static int runner_host_state(runner_host_t *host, runner_error_t *err);
static int runner_host_runtime(runner_host_t *host, runner_error_t *err);
static int runner_host_bundles(runner_host_t *host, runner_error_t *err);
static int runner_host_copy(int from, int to);


int
runner_host_open(runner_host_t *host, const runner_options_t *options,
    runner_error_t *err)
{
    struct rlimit  limit;

    host->options = options;
    host->slots = -1;
    host->templates = -1;
    host->lock = -1;
    host->bundles = -1;
    host->sockets = -1;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
        host->runtime.descriptors = limit.rlim_max < RUNNER_AGENT_FILES
                                    ? limit.rlim_max : RUNNER_AGENT_FILES;
    }

    if (runner_host_state(host, err) == -1
        || runner_host_runtime(host, err) == -1
        || runner_host_bundles(host, err) == -1
        || runner_bases_open(&host->bases, options, err) == -1)
    {
        return -1;
    }

    return 0;
}


static int
runner_host_state(runner_host_t *host, runner_error_t *err)
{
    int   dir;
    char  hash[17];

    if (runner_mkdirs(host->options->state, 0700) == -1
        || realpath(host->options->state, host->state) == NULL)
    {
        return runner_error(err, "no_state", errno, "can't make the state "
                            "directory \"%s\"", host->options->state);
    }

    if (strlen(host->state) > PATH_MAX - 256) {
        return runner_error(err, "no_state", 0, "the path of the state "
                            "directory is too long");
    }

    host->owner = runner_hash(host->state, strlen(host->state));
    snprintf(hash, sizeof(hash), "%016llx",
             (unsigned long long) host->owner);
    snprintf(host->name, sizeof(host->name), "sandbox-%.12s", hash);

    dir = open(host->state, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir == -1
        || (mkdirat(dir, "slots", 0700) == -1 && errno != EEXIST)
        || (mkdirat(dir, "templates", 0700) == -1 && errno != EEXIST))
    {
        return runner_error(err, "no_state", errno, "can't make directories "
                            "in \"%s\"", host->state);
    }

    host->slots = openat(dir, "slots", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    host->templates = openat(dir, "templates",
                             O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    host->lock = openat(dir, "lock", O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW,
                        0600);
    close(dir);

    if (host->slots == -1 || host->templates == -1 || host->lock == -1) {
        return runner_error(err, "no_state", errno, "can't open \"%s\"",
                            host->state);
    }

    if (flock(host->lock, LOCK_EX|LOCK_NB) == -1) {
        return runner_error(err, "state_in_use", 0, "another sandbox-runner "
                            "uses the state directory \"%s\".  Remedy: end "
                            "it, or give this one another --state",
                            host->state);
    }

    return 0;
}


static int
runner_host_runtime(runner_host_t *host, runner_error_t *err)
{
    if (host->options->runtime_dir[0]) {
        strcpy(host->runtime_dir, host->options->runtime_dir);

    } else {
        snprintf(host->runtime_dir, sizeof(host->runtime_dir),
                 "/run/sandbox/%.12s", host->name + 8);
    }

    /* sockets of agents and the state of the runtime: nobody's but root's */

    if (runner_mkdirs(host->runtime_dir, 0700) == -1
        || chmod(host->runtime_dir, 0700) == -1)
    {
        return runner_error(err, "no_state", errno, "can't make the runtime "
                            "directory \"%s\"", host->runtime_dir);
    }

    host->sockets = open(host->runtime_dir,
                         O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (host->sockets == -1) {
        return runner_error(err, "no_state", errno, "can't open \"%s\"",
                            host->runtime_dir);
    }

    snprintf(host->runtime.state, sizeof(host->runtime.state), "%.4000s/oci",
             host->runtime_dir);
    snprintf(host->runtime.prefix, sizeof(host->runtime.prefix), "%s-",
             host->name);

    if (runner_mkdirs(host->runtime.state, 0700) == -1) {
        return runner_error(err, "no_state", errno, "can't make \"%s\"",
                            host->runtime.state);
    }

    return 0;
}


/*
 * Containers are put together where their own root can go, and a state
 * directory may be closed to all but root: on a tmpfs in our mount namespace.
 */

static int
runner_host_bundles(runner_host_t *host, runner_error_t *err)
{
    unsigned      i;
    const char   *name;
    struct stat   st;

    if (runner_mkdirs(RUNNER_SHARED_DIR, 0711) == -1
        || runner_mkdirs(RUNNER_BUNDLES, 0711) == -1
        || mount("tmpfs", RUNNER_BUNDLES, "tmpfs", MS_NOSUID|MS_NODEV,
                 "mode=711,size=64m") == -1)
    {
        return runner_error(err, "no_state", errno, "can't mount a tmpfs on "
                            RUNNER_BUNDLES);
    }

    /* mode 0: else sandboxes could see each other by locks and watches on it */

    if (mkdir(RUNNER_HOST_EMPTY, 0) == -1
        || mount("tmpfs", RUNNER_HOST_EMPTY, "tmpfs",
                 MS_NOSUID|MS_NODEV|MS_NOEXEC|MS_RDONLY,
                 "mode=000,size=4k,nr_inodes=1") == -1)
    {
        return runner_error(err, "no_state", errno, "can't mount a tmpfs on "
                            RUNNER_HOST_EMPTY);
    }

    for (i = 0; (name = runner_bundle_mask(i)) != NULL; i++) {
        if (lstat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
            host->masks |= (uint64_t) 1 << i;
        }
    }

    host->bundles = open(RUNNER_BUNDLES, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (host->bundles == -1) {
        return runner_error(err, "no_state", errno, "can't open "
                            RUNNER_BUNDLES);
    }

    return 0;
}


/*
 * The name has the contents' hash: a new agent gets a new layer, those that
 * run keep theirs.  Only root inside can read or run it.
 */

int
runner_host_agent(runner_host_t *host, runner_error_t *err)
{
    int           fd, to;
    char          path[PATH_MAX + 64], temporary[PATH_MAX + 64], *slash;
    void         *data;
    ssize_t       n;
    struct stat   st;

    fd = open(host->options->agent, O_RDONLY|O_CLOEXEC);

    if (fd == -1 || fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)
        || st.st_size == 0 || st.st_size > RUNNER_AGENT_MAX)
    {
        if (fd != -1) {
            close(fd);
        }

        return runner_error(err, "no_agent", errno, "there is no agent at "
                            "\"%s\".  Remedy: make", host->options->agent);
    }

    data = malloc(st.st_size);
    n = data ? pread(fd, data, st.st_size, 0) : -1;

    if (n != st.st_size) {
        free(data);
        close(fd);
        return runner_error(err, "no_agent", errno, "can't read \"%s\"",
                            host->options->agent);
    }

    snprintf(host->agent, sizeof(host->agent), "%.3900s/agents/%016llx",
             host->state, (unsigned long long) runner_hash(data, n));
    free(data);

    snprintf(path, sizeof(path), "%s%s", host->agent, RUNNER_AGENT_PATH);
    snprintf(temporary, sizeof(temporary), "%s", path);
    slash = strrchr(temporary, '/');
    *slash = '\0';

    if (stat(path, &st) == 0) {
        close(fd);
        return 0;
    }

    if (runner_mkdirs(temporary, 0755) == -1) {
        close(fd);
        return runner_error(err, "no_state", errno, "can't make \"%s\"",
                            temporary);
    }

    strcpy(slash, "/new");

    to = open(temporary, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0500);

    if (to == -1 || runner_host_copy(fd, to) == -1
        || rename(temporary, path) == -1)
    {
        runner_error(err, errno == ENOSPC ? "disk_full" : "no_state", errno,
                     "can't copy the agent to \"%s\"", path);
    }

    if (to != -1) {
        close(to);
    }

    close(fd);

    return err->code ? -1 : 0;
}


static int
runner_host_copy(int from, int to)
{
    ssize_t  n;

    for ( ;; ) {
        n = copy_file_range(from, NULL, to, NULL, RUNNER_AGENT_MAX, 0);

        if (n == 0) {
            return fsync(to);
        }

        if (n == -1) {
            break;
        }
    }

    /* two file systems, of which one can't */

    if (lseek(from, 0, SEEK_SET) == -1 || lseek(to, 0, SEEK_SET) == -1) {
        return -1;
    }

    for ( ;; ) {
        char     b[65536];
        ssize_t  w;

        n = read(from, b, sizeof(b));

        if (n <= 0) {
            return n == 0 ? fsync(to) : -1;
        }

        w = write(to, b, n);

        if (w != n) {
            errno = w == -1 ? errno : ENOSPC;
            return -1;
        }
    }
}


void
runner_host_close(runner_host_t *host)
{
    if (host->sockets != -1) {
        close(host->sockets);
        host->sockets = -1;

        (void) rmdir(host->runtime.state);
        (void) rmdir(host->runtime_dir);
    }
}


int
runner_host_space(const runner_host_t *host, uint64_t *free_mib)
{
    struct statvfs  st;

    if (fstatvfs(host->slots, &st) == -1) {
        *free_mib = 0;
        return 0;
    }

    *free_mib = (uint64_t) st.f_bavail * st.f_frsize >> 20;

    return *free_mib >= host->options->reserve;
}
