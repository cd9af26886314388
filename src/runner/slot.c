/*
 * Slots: putting together what a container needs, and taking it apart again.
 *
 * No mount of a slot stays in the runner's own mount namespace: the container
 * holds its root itself, so a runner that was killed and started again is in
 * the same position as one that never ended, and the kernel frees overlay and
 * disk when the last process is gone.
 *
 * Knows no sessions, no connections, no event loop.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/openat2.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "bundle.h"
#include "child.h"
#include "file.h"
#include "idmap.h"
#include "image.h"
#include "inside.h"
#include "log.h"
#include "overlay.h"
#include "sandbox_control.h"
#include "slot.h"
#include "words.h"


#define RUNNER_SLOT_DEATH    10000               /* ms for a killed process */
#define RUNNER_SLOT_SLICE    100000              /* ns, the least there is */
#define RUNNER_SLOT_OOM      "500"               /* commands have 1000 */
#define RUNNER_SLOT_RELEASE  15000               /* ms, with data to write */
#define RUNNER_SLOT_BACKLOG  8
#define RUNNER_SLOT_PAUSE    200                 /* ms, may it have died? */


/* the kernel's struct sched_attr; C libraries have it from 2.41 on */

typedef struct {
    uint32_t  size;
    uint32_t  policy;
    uint64_t  flags;
    int32_t   nice;
    uint32_t  priority;
    uint64_t  runtime;                   /* the slice, where it is fair */
    uint64_t  deadline;
    uint64_t  period;
} runner_slot_sched_t;


static int runner_slot_base(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);
static int runner_slot_open(runner_host_t *host, const runner_slot_t *slot);
static int runner_slot_start_in(runner_host_t *host, runner_slot_t *slot,
    int dir, runner_error_t *err);
static int runner_slot_run(runner_host_t *host, runner_slot_t *slot,
    int bundle, int listener, int history, runner_error_t *err);
static int runner_slot_bundle(runner_host_t *host, runner_slot_t *slot,
    int user, runner_error_t *err);
static void runner_slot_unbundle(runner_host_t *host,
    const runner_slot_t *slot);
static int runner_slot_listen(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);
static int runner_slot_connect(runner_host_t *host, runner_slot_t *slot);
static void runner_slot_address(runner_host_t *host, uint32_t number,
    struct sockaddr_un *address);
static void runner_slot_memory(const runner_slot_t *slot);
static void runner_slot_slice(const runner_slot_t *slot);
static void runner_slot_warm(const runner_slot_t *slot);
static void runner_slot_end(runner_host_t *host, runner_slot_t *slot);
static uint64_t runner_slot_start_time(pid_t pid);
static int runner_slot_member(runner_host_t *host, const runner_slot_t *slot);


void
runner_slot_init(runner_slot_t *slot)
{
    memset(slot, 0, sizeof(*slot));
    slot->pidfd = -1;
    slot->control = -1;
    slot->words = -1;
}


int
runner_slot_create(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    int             dir, rc;
    char            name[16];
    uint64_t        left;
    runner_error_t  ignored;

    if (runner_slot_base(host, slot, err) == -1) {
        return -1;
    }

    if (!runner_host_space(host, &left)) {
        return runner_error(err, "disk_full", 0, "only %llu MiB are free below"
                            " \"%s\", %u are kept free.  Remedy: delete "
                            "sandboxes, or lower --reserve",
                            (unsigned long long) left, host->state,
                            host->options->reserve);
    }

    snprintf(name, sizeof(name), "%u", slot->record.number);

    if (mkdirat(host->slots, name, 0700) == -1) {
        return runner_error(err, errno == ENOSPC ? "disk_full" : "internal",
                            errno, "can't make the directory of slot %s",
                            name);
    }

    dir = runner_slot_open(host, slot);
    rc = dir == -1 ? runner_error(err, "internal", errno, "open") : 0;

    if (rc == 0) {
        rc = runner_image_create(host->templates, slot->record.disk, dir,
                                 "disk.img", err);
    }

    if (rc == 0) {
        rc = runner_slot_start_in(host, slot, dir, err);
    }

    if (dir != -1) {
        close(dir);
    }

    if (rc == -1) {
        runner_error_init(&ignored);
        (void) runner_slot_destroy(host, slot, &ignored);
    }

    return rc;
}


int
runner_slot_start(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    int             dir, rc;
    struct stat     st;
    runner_error_t  ignored;

    dir = runner_slot_open(host, slot);
    if (dir == -1) {
        return runner_error(err, "internal", errno, "the directory of slot %u "
                            "is not there", slot->record.number);
    }

    if (stat(slot->record.base, &st) == -1) {
        runner_log(RUNNER_LOG_WARN, "the base \"%s\" of sandbox %s is gone, "
                   "it wakes on the one that has its name now",
                   slot->record.base, slot->record.id);
        rc = runner_slot_base(host, slot, err);

    } else {
        rc = 0;
    }

    if (rc == 0) {
        rc = runner_slot_start_in(host, slot, dir, err);
    }

    close(dir);

    if (rc == -1) {
        runner_error_init(&ignored);
        (void) runner_slot_stop(host, slot, &ignored);
    }

    return rc;
}


static int
runner_slot_base(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    const runner_base_t  *base;

    base = runner_base_named(&host->bases, slot->record.base_name);

    if (base == NULL) {
        return runner_error(err, "unknown_base", 0, "there is no base \"%s\" "
                            "any more.  Remedy: start sandbox-runner with "
                            "--base %s=DIR", slot->record.base_name,
                            slot->record.base_name);
    }

    strcpy(slot->record.base, base->path);

    return 0;
}


static int
runner_slot_open(runner_host_t *host, const runner_slot_t *slot)
{
    char  name[16];

    snprintf(name, sizeof(name), "%u", slot->record.number);

    return openat(host->slots, name,
                  O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
}


static int
runner_slot_start_in(runner_host_t *host, runner_slot_t *slot, int dir,
    runner_error_t *err)
{
    int   bundle, listener, history, user, rc, error;
    char  words[512];

    history = -1;
    slot->record.ids = runner_ids_take(host->owner, err);
    if (slot->record.ids == 0) {
        return -1;
    }

    user = runner_ids_container(slot->record.ids, err);
    if (user == -1) {
        return -1;
    }

    bundle = runner_slot_bundle(host, slot, user, err);
    listener = bundle == -1 ? -1 : runner_slot_listen(host, slot, err);
    slot->words = runner_words_open();

    if (listener == -1) {
        rc = -1;

    } else if (slot->words == -1) {
        rc = runner_error(err, "internal", errno, "memfd_create");

    } else {
        rc = runner_overlay_mount(bundle, dir, slot->record.base, host->agent,
                                  slot->record.ids, &history, err);
    }

    if (rc == 0) {
        rc = runner_slot_run(host, slot, bundle, listener, history, err);
    }

    close(user);

    if (history != -1) {
        close(history);
    }

    if (bundle != -1) {
        runner_overlay_detach(bundle);
        close(bundle);
    }

    runner_slot_unbundle(host, slot);

    if (listener != -1) {
        close(listener);
    }

    if (rc == 0 && runner_slot_connect(host, slot) == -1) {
        error = errno;
        runner_words_read(slot->words, words, sizeof(words));
        rc = runner_error(err, "agent", error, "the agent does not "
                          "answer (it said: %s)", words);
    }

    return rc;
}


static int
runner_slot_run(runner_host_t *host, runner_slot_t *slot, int bundle,
    int listener, int history, runner_error_t *err)
{
    int              rc;
    char             words[512];
    struct pollfd    p;
    runner_cgroup_t  group;

    rc = runner_cgroup_create(&host->cgroups, slot->record.number,
                              slot->record.ids, host->options->cpus, &group,
                              err);

    if (rc == 0 && host->cgroups.layout == RUNNER_CGROUP_V2
        && runner_cgroup_limit(&host->cgroups, slot->record.number,
                               slot->record.memory, slot->record.processes)
           == -1)
    {
        rc = runner_error(err, "no_controllers", errno, "memory.max and "
                          "pids.max can't be set");
    }

    if (rc == 0) {
        slot->record.pid = runner_runtime_run(&host->runtime,
                                              slot->record.number, bundle,
                                              slot->words, listener, history,
                                              &group, err);
        rc = slot->record.pid == -1 ? -1 : 0;
    }

    if (rc == 0) {
        rc = runner_cgroup_started(&host->cgroups, &group, slot->record.pid,
                                   err);

    } else {
        slot->record.pid = 0;
    }

    runner_cgroup_close(&group);

    if (slot->record.pid == 0) {
        return -1;
    }

    slot->pidfd = pidfd_open(slot->record.pid, 0);
    slot->record.start_time = runner_slot_start_time(slot->record.pid);

    if (rc == 0 && slot->pidfd != -1) {
        runner_slot_processes(slot);
        runner_slot_memory(slot);
        runner_slot_slice(slot);
        runner_slot_warm(slot);
        rc = runner_inside_prepare(slot->pidfd, err);
    }

    /* whatever failed then, this is why */

    p.fd = slot->pidfd;
    p.events = POLLIN;

    if (slot->pidfd == -1 || slot->record.start_time == 0
        || poll(&p, 1, rc == -1 ? RUNNER_SLOT_PAUSE : 0) == 1)
    {
        runner_words_read(slot->words, words, sizeof(words));
        runner_error_init(err);

        return runner_error(err, "agent", 0, "the agent ended at once, it "
                            "said: %s", words);
    }

    return rc;
}


/*
 * pids.max is the cap, but a fork that it refuses has copied a whole process
 * by then: many that go on trying keep the kernel busy, for everybody.  The
 * user's own limit refuses them before that.  One process is the agent, which
 * is not the user's.
 */

void
runner_slot_processes(const runner_slot_t *slot)
{
    struct rlimit  limit;

    limit.rlim_cur = slot->record.processes - 1;
    limit.rlim_max = limit.rlim_cur;

    if (prlimit(slot->record.pid, RLIMIT_NPROC, &limit, NULL) == -1
        && runner_inside_processes(slot->pidfd, slot->record.pid,
                                   limit.rlim_cur)
           == -1
        && errno != ESRCH)
    {
        runner_log(RUNNER_LOG_WARN, "processes of slot %u are limited by "
                   "its control group alone: %s", slot->record.number,
                   strerror(errno));
    }
}


/*
 * Where the host itself runs out of memory, all in sandboxes goes before its
 * own programs: nothing inside can get below what we write here.  That takes
 * CAP_SYS_RESOURCE; without it a user would only get below the agent.
 */

static void
runner_slot_memory(const runner_slot_t *slot)
{
    char  path[64];

    if (!runner_child_unlimited()) {
        return;
    }

    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", slot->record.pid);

    if (runner_file_write(AT_FDCWD, path, RUNNER_SLOT_OOM) == -1) {
        runner_log(RUNNER_LOG_WARN, "\"%s\" of slot %u can't be written: %s",
                   path, slot->record.number, strerror(errno));
    }
}


/*
 * Who wakes up waits until the slice of who runs is over: short slices for
 * all that is in a sandbox, so that what spins in one costs the others less.
 * A command that asks for longer ones loses by it.  Kernels before 6.12 don't
 * look at it.
 */

static void
runner_slot_slice(const runner_slot_t *slot)
{
    runner_slot_sched_t  sched;

    memset(&sched, 0, sizeof(sched));

    if (syscall(SYS_sched_getattr, slot->record.pid, &sched, sizeof(sched), 0)
        == -1
        || sched.policy != 0)            /* SCHED_OTHER */
    {
        return;
    }

    sched.size = sizeof(sched);
    sched.runtime = RUNNER_SLOT_SLICE;

    (void) syscall(SYS_sched_setattr, slot->record.pid, &sched, 0);
}


/*
 * The first look at a name in a new overlay costs as much as the rest of a
 * short command: have it before somebody waits.  Nothing is opened for
 * reading, and no link leads out of the container's root.
 */

static void
runner_slot_warm(const runner_slot_t *slot)
{
    int              root, fd;
    char             path[64];
    size_t           i;
    struct open_how  how;

    static const char  *names[] = {
        "bin/bash", "bin/sh", "bin/ls", "bin/cat", "etc/ld.so.cache",
        "etc/passwd", "etc/nsswitch.conf", "home/sandbox",
        "home/sandbox/.venv/bin/python3", "usr/bin/env",
        "lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1",
        "lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libtinfo.so.6",
        "lib/aarch64-linux-gnu/libc.so.6",
        "lib/aarch64-linux-gnu/libtinfo.so.6",
        "usr/lib/locale/locale-archive", "usr/share/locale/locale.alias",
        "usr/lib/locale/C.UTF-8", "usr/lib/locale/C.utf8/LC_IDENTIFICATION",
        "usr/lib/locale/C.utf8/LC_MEASUREMENT",
        "usr/lib/locale/C.utf8/LC_TELEPHONE",
        "usr/lib/locale/C.utf8/LC_ADDRESS", "usr/lib/locale/C.utf8/LC_NAME",
        "usr/lib/locale/C.utf8/LC_PAPER", "usr/lib/locale/C.utf8/LC_MONETARY",
        "usr/lib/locale/C.utf8/LC_COLLATE", "usr/lib/locale/C.utf8/LC_TIME",
        "usr/lib/locale/C.utf8/LC_NUMERIC", "usr/lib/locale/C.utf8/LC_CTYPE",
        "usr/lib/locale/C.utf8/LC_MESSAGES/SYS_LC_MESSAGES",
        "usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
        "etc/ld.so.preload"
    };

    snprintf(path, sizeof(path), "/proc/%d/root", slot->record.pid);

    root = open(path, O_PATH|O_DIRECTORY|O_CLOEXEC);
    if (root == -1) {
        return;
    }

    memset(&how, 0, sizeof(how));
    how.flags = O_PATH|O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT|RESOLVE_NO_MAGICLINKS;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fd = syscall(SYS_openat2, root, names[i], &how, sizeof(how));

        if (fd != -1) {
            close(fd);
        }
    }

    close(root);
}


/* a directory with the configuration and places to mount on; or -1 */

static int
runner_slot_bundle(runner_host_t *host, runner_slot_t *slot, int user,
    runner_error_t *err)
{
    int               rc, dir;
    char              path[128], name[16], env[RUNNER_BASE_ENV], *text;
    size_t            i;
    json_t           *config;
    runner_bundle_t   bundle;

    static const char  *points[] = { "a", "d", "l", "r" };

    snprintf(name, sizeof(name), "%u", slot->record.number);
    runner_slot_unbundle(host, slot);

    if (runner_base_env(slot->record.base, env, err) == -1) {
        return -1;
    }

    rc = mkdirat(host->bundles, name, 0711);
    dir = openat(host->bundles, name,
                 O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    for (i = 0; rc == 0 && i < sizeof(points) / sizeof(points[0]); i++) {
        rc = mkdirat(dir, points[i], 0711);
    }

    if (rc == -1) {
        runner_error(err, "internal", errno, "can't make a bundle");

        if (dir != -1) {
            close(dir);
        }

        return -1;
    }

    runner_cgroup_path(&host->cgroups, slot->record.number, path,
                       sizeof(path));
    snprintf(bundle.user, sizeof(bundle.user), "/proc/%d/fd/%d", getpid(),
             user);

    bundle.ids = slot->record.ids;
    bundle.memory = slot->record.memory;
    bundle.processes = slot->record.processes;
    bundle.cpus = host->options->cpus;
    bundle.swap = host->cgroups.swap;
    bundle.limits = host->cgroups.layout != RUNNER_CGROUP_V2;
    bundle.cgroup = path;
    bundle.env = env;
    bundle.empty = RUNNER_HOST_EMPTY;

    /* runc lets nothing be mounted below /proc */

    bundle.folders = strncmp(host->runtime.version, "crun", 4) == 0
                     ? host->masks : 0;

    config = runner_bundle(&bundle);
    text = config ? json_dumps(config, JSON_COMPACT) : NULL;
    json_decref(config);

    rc = text ? runner_file_replace(dir, "config.json", text, strlen(text), 0)
              : -1;

    if (rc == -1) {
        runner_error(err, "internal", text ? errno : ENOMEM, "can't write "
                     "config.json");
        close(dir);
        dir = -1;
    }

    free(text);

    return dir;
}


static void
runner_slot_unbundle(runner_host_t *host, const runner_slot_t *slot)
{
    char  name[16];

    snprintf(name, sizeof(name), "%u", slot->record.number);
    (void) runner_remove_tree(host->bundles, name);
}


/* by a descriptor: the path may be longer than a socket's address */

static void
runner_slot_address(runner_host_t *host, uint32_t number,
    struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof(address->sun_path),
             "/proc/self/fd/%d/%u/control", host->sockets, number);
}


static int
runner_slot_listen(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    int                 fd;
    char                name[16];
    struct sockaddr_un  address;

    snprintf(name, sizeof(name), "%u", slot->record.number);

    (void) runner_remove_tree(host->sockets, name);

    if (mkdirat(host->sockets, name, 0700) == -1) {
        return runner_error(err, "internal", errno, "can't make \"%s/%s\"",
                            host->runtime_dir, name);
    }

    runner_slot_address(host, slot->record.number, &address);

    fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (fd == -1
        || bind(fd, (struct sockaddr *) &address, sizeof(address)) == -1
        || listen(fd, RUNNER_SLOT_BACKLOG) == -1)
    {
        runner_error(err, "internal", errno, "can't make a control socket");

        if (fd != -1) {
            close(fd);
        }

        return -1;
    }

    return fd;
}


static int
runner_slot_connect(runner_host_t *host, runner_slot_t *slot)
{
    struct sockaddr_un  address;

    runner_slot_address(host, slot->record.number, &address);

    slot->control = socket(AF_UNIX,
                           SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (slot->control == -1) {
        return -1;
    }

    if (connect(slot->control, (struct sockaddr *) &address, sizeof(address))
        == -1)
    {
        close(slot->control);
        slot->control = -1;
        return -1;
    }

    return 0;
}


int
runner_slot_adopt(runner_host_t *host, runner_slot_t *slot)
{
    if (slot->record.pid <= 1 || slot->record.start_time == 0) {
        return -1;
    }

    slot->pidfd = pidfd_open(slot->record.pid, 0);

    /*
     * The descriptor first, so all that follows is about the same process: one
     * that started at that time and is in the slot's control group.
     */

    if (slot->pidfd != -1
        && runner_slot_start_time(slot->record.pid) == slot->record.start_time
        && runner_slot_member(host, slot))
    {
        return runner_slot_connect(host, slot);
    }

    if (slot->pidfd != -1) {
        close(slot->pidfd);
        slot->pidfd = -1;
    }

    slot->record.pid = 0;

    return -1;
}


static int
runner_slot_member(runner_host_t *host, const runner_slot_t *slot)
{
    char         path[64], text[8192], group[96];
    size_t       length;
    const char  *p;

    snprintf(path, sizeof(path), "/proc/%d/cgroup", slot->record.pid);
    length = snprintf(group, sizeof(group), "/%s/%u", host->name,
                      slot->record.number);

    if (runner_file_read(AT_FDCWD, path, text, sizeof(text)) == -1) {
        return 0;
    }

    for (p = strstr(text, group); p != NULL; p = strstr(p + 1, group)) {
        if (p[length] == '/' || p[length] == '\n') {
            return 1;
        }
    }

    return 0;
}


/* everybody in the container is dead when this returns */

static void
runner_slot_end(runner_host_t *host, runner_slot_t *slot)
{
    siginfo_t       info;
    struct pollfd   p;

    if (slot->control != -1) {
        close(slot->control);
        slot->control = -1;
    }

    if (slot->pidfd != -1) {
        (void) pidfd_send_signal(slot->pidfd, SIGKILL, NULL, 0);

        p.fd = slot->pidfd;
        p.events = POLLIN;

        while (poll(&p, 1, RUNNER_SLOT_DEATH) == -1 && errno == EINTR) {
            /* void */
        }

        /* our child, if we are the one that it was started by */

        (void) waitid(P_PIDFD, slot->pidfd, &info, WEXITED|WNOHANG);

        close(slot->pidfd);
        slot->pidfd = -1;
    }

    if (slot->words != -1) {
        close(slot->words);
        slot->words = -1;
    }

    runner_cgroup_kill(&host->cgroups, slot->record.number);
    runner_runtime_delete(&host->runtime, slot->record.number);

    slot->record.pid = 0;
    slot->record.start_time = 0;
}


int
runner_slot_clean(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    int   dir, rc;
    char  name[16];

    runner_slot_end(host, slot);

    rc = runner_cgroup_remove(&host->cgroups, slot->record.number, err);

    snprintf(name, sizeof(name), "%u", slot->record.number);
    (void) runner_remove_tree(host->sockets, name);

    dir = runner_slot_open(host, slot);

    if (dir != -1) {
        if (runner_image_released(dir, "disk.img", RUNNER_SLOT_RELEASE)
            == -1)
        {
            runner_error_init(err);
            rc = runner_error(err, "disk_busy", 0, "the disk of slot %s stays "
                              "in use.  Remedy: see losetup -a, and who has "
                              "it mounted", name);
        }

        close(dir);
    }

    if (slot->record.ids) {
        runner_ids_give(host->owner, slot->record.ids);
        slot->record.ids = 0;
    }

    return rc;
}


int
runner_slot_stop(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    int  rc;

    rc = runner_slot_clean(host, slot, err);

    if (runner_slot_save(host, slot, 1) == -1 && rc == 0) {
        rc = runner_error(err, errno == ENOSPC ? "disk_full" : "internal",
                          errno, "can't write the record of slot %u",
                          slot->record.number);
    }

    return rc;
}


int
runner_slot_destroy(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err)
{
    int   rc;
    char  name[16];

    /*
     * The tombstone is on the disk before anything goes.  One that nobody ever
     * used has no record, and needs none: without an id it could not be read.
     */

    if (slot->record.deleted && slot->record.id[0] != '\0') {
        (void) runner_slot_save(host, slot, 1);
    }

    rc = runner_slot_clean(host, slot, err);

    snprintf(name, sizeof(name), "%u", slot->record.number);

    if (runner_remove_tree(host->slots, name) == -1) {
        rc = runner_error(err, "internal", errno, "can't remove the directory "
                          "of slot %s; the next start tries again", name);
    }

    return rc;
}


/*
 * The agent may be anything by now: what it has there is only ever read by
 * its own successor, and is a file.
 */

int
runner_slot_history(const runner_slot_t *slot)
{
    int          theirs, fd;
    char         path[64];
    struct stat  st;

    if (slot->pidfd == -1) {
        return -1;
    }

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", slot->record.pid,
             SANDBOX_FD_HISTORY);

    theirs = open(path, O_PATH|O_CLOEXEC);
    if (theirs == -1) {
        return -1;
    }

    fd = -1;

    /* it lives, so that was no other process of that number */

    if (pidfd_send_signal(slot->pidfd, 0, NULL, 0) == 0
        && fstat(theirs, &st) == 0 && S_ISREG(st.st_mode))
    {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", theirs);
        fd = open(path, O_RDONLY|O_CLOEXEC|O_NONBLOCK);
    }

    close(theirs);

    return fd;
}


int
runner_slot_history_stopped(runner_host_t *host, const runner_slot_t *slot)
{
    int  dir, fd;

    dir = runner_slot_open(host, slot);
    if (dir == -1) {
        return -1;
    }

    fd = runner_overlay_history(dir);
    close(dir);

    return fd;
}


int
runner_slot_save(runner_host_t *host, const runner_slot_t *slot, int sync)
{
    int     dir, rc;
    char    text[RUNNER_RECORD_SIZE];
    size_t  n;

    n = runner_record_write(&slot->record, text, sizeof(text));
    if (n == 0) {
        errno = ENAMETOOLONG;
        return -1;
    }

    dir = runner_slot_open(host, slot);
    if (dir == -1) {
        return -1;
    }

    rc = runner_file_replace(dir, "record", text, n, sync);
    close(dir);

    return rc;
}


void
runner_slot_sync(const runner_slot_t *slot)
{
    int   fd;
    char  path[64];

    if (slot->record.pid <= 1) {
        return;
    }

    snprintf(path, sizeof(path), "/proc/%d/root", slot->record.pid);

    fd = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (fd != -1) {
        (void) syncfs(fd);
        close(fd);
    }
}


uint64_t
runner_slot_disk(runner_host_t *host, const runner_slot_t *slot)
{
    char         path[32];
    struct stat  st;

    snprintf(path, sizeof(path), "%u/disk.img", slot->record.number);

    if (fstatat(host->slots, path, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return 0;
    }

    return (uint64_t) st.st_blocks * 512;
}


/* field 22 of stat; what is before may hold blanks and parentheses */

static uint64_t
runner_slot_start_time(pid_t pid)
{
    char      path[64], text[2048], *p;
    unsigned  field;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);

    if (runner_file_read(AT_FDCWD, path, text, sizeof(text)) == -1) {
        return 0;
    }

    p = strrchr(text, ')');

    for (field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }

    return p ? strtoull(p + 1, NULL, 10) : 0;
}
