/*
 * Control groups of both versions.
 *
 * With v1 and hybrid layouts the runtime makes the v1 groups and attaches the
 * container to them; cgroup2 has no controllers there, and yet ends and
 * counts the processes of each command, so the agent always gets a directory
 * of it.  With v2 the limits lie on the sandbox's group and all processes in
 * groups below it: the agent in "agent", each command in one of its own.
 *
 * The container's control group namespace begins at the sandbox's group in
 * each case: systemd mounts cgroup2 with nsdelegate, and a process can't be
 * born into a group outside its namespace then.
 *
 * Knows no sandboxes but by number.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "cgroup.h"
#include "file.h"
#include "hierarchy.h"
#include "root.h"


#define RUNNER_CGROUP_WAIT   5000                /* ms for the dead to leave */
#define RUNNER_CGROUP_DEPTH  4
#define RUNNER_CGROUP_FILE   (1024 * 1024)       /* bytes of mountinfo */


static void runner_cgroups_mount(runner_cgroups_t *cgroups, char *point,
    char *fstype, char *options);
static int runner_cgroups_has(const char *options, const char *name);
static int runner_cgroups_find(runner_cgroups_t *cgroups);
static int runner_cgroups_root(runner_cgroups_t *cgroups,
    runner_error_t *err);
static int runner_cgroups_hide(runner_cgroups_t *cgroups,
    runner_error_t *err);
static int runner_cgroups_v2(runner_cgroups_t *cgroups, runner_error_t *err);
static int runner_cgroup_v2_limits(runner_cgroups_t *cgroups, int dir,
    unsigned cpus, runner_error_t *err);
static void runner_cgroup_remove_hidden(runner_cgroups_t *cgroups,
    unsigned number);
static int runner_cgroup_v2_leaf(runner_cgroup_t *group, uid_t uid,
    runner_error_t *err);
static int runner_cgroup_v1_open(runner_cgroups_t *cgroups, unsigned number,
    runner_cgroup_t *group, runner_error_t *err);
static int runner_cgroup_rmdir(int dir, const char *name, unsigned depth,
    uint64_t deadline);
static void runner_cgroup_nap(void);


int
runner_cgroups_parse(runner_cgroups_t *cgroups, const char *mountinfo)
{
    char        *line, *next, *field, *point, *fstype, *options, *text;
    unsigned     n;

    memset(cgroups, 0, sizeof(*cgroups));
    cgroups->root = -1;

    text = strdup(mountinfo);
    if (text == NULL) {
        return -1;
    }

    for (line = strtok_r(text, "\n", &next);
         line != NULL;
         line = strtok_r(NULL, "\n", &next))
    {
        fstype = strstr(line, " - ");
        if (fstype == NULL) {
            continue;
        }

        *fstype = '\0';
        fstype += 3;

        /* the fifth field is where it is mounted */

        point = NULL;

        for (n = 0, field = line; field != NULL && n < 5; n++) {
            point = strsep(&field, " ");
        }

        if (n != 5) {
            continue;
        }

        options = strchr(fstype, ' ');
        if (options == NULL) {
            continue;
        }

        *options++ = '\0';

        options = strchr(options, ' ');
        if (options == NULL) {
            continue;
        }

        runner_cgroups_mount(cgroups, point, fstype, options + 1);
    }

    free(text);

    if (cgroups->unified[0] && cgroups->nmounts == 0) {
        cgroups->layout = RUNNER_CGROUP_V2;

    } else if (cgroups->unified[0]) {
        cgroups->layout = RUNNER_CGROUP_HYBRID;

    } else if (cgroups->nmounts) {
        cgroups->layout = RUNNER_CGROUP_V1;

    } else {
        return -1;
    }

    return 0;
}


static void
runner_cgroups_mount(runner_cgroups_t *cgroups, char *point, char *fstype,
    char *options)
{
    if (strncmp(point, "/sys/fs/cgroup", 14) != 0
        || strlen(point) >= RUNNER_CGROUP_PATH
        || strchr(point, '\\') != NULL)
    {
        return;
    }

    if (strcmp(fstype, "cgroup2") == 0) {
        if (cgroups->unified[0] == '\0') {
            strcpy(cgroups->unified, point);
        }

        return;
    }

    if (strcmp(fstype, "cgroup") != 0
        || cgroups->nmounts == RUNNER_CGROUP_MOUNTS)
    {
        return;
    }

    /*
     * Each group costs a sandbox some 10 KiB: only those that limit something,
     * what the runtime insists on, and systemd's, to be out of our unit.
     */

    cgroups->hidden[cgroups->nmounts] = !runner_cgroups_has(options, "memory")
                                   && !runner_cgroups_has(options, "pids")
                                   && !runner_cgroups_has(options, "cpu")
                                   && !runner_cgroups_has(options, "devices")
                                   && !runner_cgroups_has(options, "cpuset")
                                   && !runner_cgroups_has(options,
                                                          "name=systemd");

    strcpy(cgroups->mounts[cgroups->nmounts++], point);

    if (runner_cgroups_has(options, "memory") && !cgroups->memory[0]) {
        strcpy(cgroups->memory, point);
        cgroups->controllers |= RUNNER_CGROUP_MEMORY;
    }

    if (runner_cgroups_has(options, "pids") && !cgroups->pids[0]) {
        strcpy(cgroups->pids, point);
        cgroups->controllers |= RUNNER_CGROUP_PIDS;
    }

    if (runner_cgroups_has(options, "cpuacct") && !cgroups->cpuacct[0]) {
        strcpy(cgroups->cpuacct, point);
    }

    if (runner_cgroups_has(options, "cpu")) {
        cgroups->controllers |= RUNNER_CGROUP_CPU;
    }
}


/* a word of a list with commas */

static int
runner_cgroups_has(const char *options, const char *name)
{
    size_t       length;
    const char  *p;

    length = strlen(name);

    for (p = options; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';

        if (strncmp(p, name, length) == 0
            && (p[length] == ',' || p[length] == '\0'))
        {
            return 1;
        }
    }

    return 0;
}


int
runner_cgroups_start(runner_cgroups_t *cgroups, runner_error_t *err)
{
    char         path[RUNNER_CGROUP_PATH + 64];
    struct stat  st;

    if (runner_root_own(err) == -1) {
        return -1;
    }

    if (runner_cgroups_find(cgroups) == -1
        && (runner_hierarchy_mount() == -1
            || runner_cgroups_find(cgroups) == -1))
    {
        return runner_error(err, "no_cgroups", errno, "no control groups below "
                            "/sys/fs/cgroup.  Remedy: mount -t cgroup2 none "
                            "/sys/fs/cgroup");
    }

    if (runner_cgroups_root(cgroups, err) == -1) {
        return -1;
    }

    if (cgroups->layout == RUNNER_CGROUP_HYBRID) {

        /*
         * crun refuses hybrid hosts.  Without the mount it sees plain v1, but
         * makes its directories in what is below; an empty tmpfs keeps them
         * out of the host's.
         */

        if (umount2(cgroups->unified, MNT_DETACH) == -1
            || mount("tmpfs", cgroups->unified, "tmpfs",
                     MS_NOSUID|MS_NODEV|MS_NOEXEC, "size=64m,mode=755") == -1)
        {
            return runner_error(err, "no_cgroups", errno, "can't hide \"%s\" "
                                "from the runtime.  Remedy: run on the host "
                                "itself, as root", cgroups->unified);
        }
    }

    if (cgroups->layout == RUNNER_CGROUP_V2) {
        return runner_cgroups_v2(cgroups, err);
    }

    if (cgroups->controllers != RUNNER_CGROUP_NEEDED) {
        return runner_error(err, "no_controllers", 0, "control groups v1 "
                            "without%s%s%s.  Remedy: boot with "
                            "cgroup_enable=memory, or with "
                            "systemd.unified_cgroup_hierarchy=1",
                            cgroups->controllers & RUNNER_CGROUP_MEMORY
                            ? "" : " memory",
                            cgroups->controllers & RUNNER_CGROUP_PIDS
                            ? "" : " pids",
                            cgroups->controllers & RUNNER_CGROUP_CPU
                            ? "" : " cpu");
    }

    snprintf(path, sizeof(path), "%s/memory.memsw.limit_in_bytes",
             cgroups->memory);
    cgroups->swap = stat(path, &st) == 0;

    return runner_cgroups_hide(cgroups, err);
}


/* where control groups are mounted, as far as this process can see */

static int
runner_cgroups_find(runner_cgroups_t *cgroups)
{
    int    rc;
    char  *text;

    rc = -1;
    text = malloc(RUNNER_CGROUP_FILE);

    if (text != NULL
        && runner_file_read(AT_FDCWD, "/proc/self/mountinfo", text,
                            RUNNER_CGROUP_FILE) != -1)
    {
        rc = runner_cgroups_parse(cgroups, text);
    }

    free(text);

    return rc;
}


/*
 * The descriptor must be opened before the mount goes; a host that has not
 * mounted cgroup2 still has it.
 */

static int
runner_cgroups_root(runner_cgroups_t *cgroups, runner_error_t *err)
{
    int  fs, tree;

    if (cgroups->unified[0]) {
        cgroups->root = open(cgroups->unified,
                             O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    } else {
        fs = syscall(SYS_fsopen, "cgroup2", FSOPEN_CLOEXEC);
        tree = -1;

        if (fs != -1
            && syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0)
               == 0)
        {
            tree = syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
        }

        if (tree != -1) {
            cgroups->root = openat(tree, ".",
                                   O_RDONLY|O_DIRECTORY|O_CLOEXEC);
            close(tree);
        }

        if (fs != -1) {
            close(fs);
        }
    }

    if (cgroups->root == -1) {
        return runner_error(err, "no_cgroups", errno, "cgroup2 can't be "
                            "opened.  Remedy: Linux 5.14 or later, and a "
                            "cgroup2 mount at /sys/fs/cgroup/unified");
    }

    return 0;
}


/* the runtime finds there what it has made and done already */

static int
runner_cgroups_hide(runner_cgroups_t *cgroups, runner_error_t *err)
{
    unsigned  i, n;

    n = 0;

    for (i = 0; i < cgroups->nmounts; i++) {

        if (!cgroups->hidden[i]) {
            memmove(cgroups->mounts[n++], cgroups->mounts[i],
                    sizeof(cgroups->mounts[i]));
            continue;
        }

        if (mount(cgroups->pids, cgroups->mounts[i], NULL, MS_BIND, NULL)
            == -1)
        {
            return runner_error(err, "no_cgroups", errno, "can't hide \"%s\" "
                                "from the runtime.  Remedy: run on the host "
                                "itself, as root", cgroups->mounts[i]);
        }
    }

    cgroups->nmounts = n;

    return 0;
}


static int
runner_cgroups_v2(runner_cgroups_t *cgroups, runner_error_t *err)
{
    char      text[512];
    unsigned  i, n, have;

    static const struct {
        const char  *name;
        unsigned     bit;
    } needed[] = {
        { "memory", RUNNER_CGROUP_MEMORY },
        { "pids", RUNNER_CGROUP_PIDS },
        { "cpu", RUNNER_CGROUP_CPU }
    };

    if (runner_file_read(cgroups->root, "cgroup.controllers", text,
                         sizeof(text)) == -1)
    {
        return runner_error(err, "no_controllers", errno,
                            "cgroup.controllers can't be read");
    }

    for (i = 0; text[i]; i++) {
        if (text[i] == ' ' || text[i] == '\n') {
            text[i] = ',';
        }
    }

    have = 0;

    for (n = 0; n < 3; n++) {
        if (runner_cgroups_has(text, needed[n].name)) {
            have |= needed[n].bit;
        }
    }

    cgroups->controllers = have;

    if (have != RUNNER_CGROUP_NEEDED) {
        if (i && text[i - 1] == ',') {
            text[i - 1] = '\0';
        }

        return runner_error(err, "no_controllers", 0, "control groups v2 "
                            "offer \"%s\" here, memory, pids and cpu are "
                            "needed.  Remedy: boot without "
                            "cgroup_disable=, and run on the host itself or "
                            "with these controllers delegated", text);
    }

    if (runner_file_write(cgroups->root, "cgroup.subtree_control",
                          "+memory +pids +cpu") == -1)
    {
        return runner_error(err, "no_controllers", errno, "memory, pids and "
                            "cpu can't be switched on in \"%s\".  Remedy: run "
                            "the runner on the host, not inside a control "
                            "group namespace with processes in its root",
                            cgroups->unified);
    }

    /* swap.max is missing where swap accounting is off; then there is none */

    cgroups->swap = 1;

    return 0;
}


int
runner_cgroups_create(runner_cgroups_t *cgroups, const char *name,
    runner_error_t *err)
{
    int   dir;
    char  path[RUNNER_CGROUP_PATH + 80];

    snprintf(cgroups->name, sizeof(cgroups->name), "%s", name);

    if (mkdirat(cgroups->root, cgroups->name, 0755) == -1 && errno != EEXIST) {
        return runner_error(err, "no_cgroups", errno, "can't make the control "
                            "group \"%s\"", cgroups->name);
    }

    if (cgroups->layout != RUNNER_CGROUP_V2) {
        snprintf(path, sizeof(path), "%s/%s", cgroups->memory, cgroups->name);

        if (mkdir(path, 0755) == -1 && errno != EEXIST) {
            return runner_error(err, "no_cgroups", errno, "can't make \"%s\"",
                                path);
        }

        return 0;
    }

    dir = openat(cgroups->root, cgroups->name,
                 O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir == -1
        || runner_file_write(dir, "cgroup.subtree_control",
                             "+memory +pids +cpu") == -1)
    {
        runner_error(err, "no_controllers", errno, "can't delegate memory, "
                     "pids and cpu to \"%s\"", cgroups->name);
    }

    if (dir != -1) {
        close(dir);
    }

    return err->code ? -1 : 0;
}


void
runner_cgroups_remove(runner_cgroups_t *cgroups)
{
    char      path[RUNNER_CGROUP_PATH + 80];
    unsigned  i;

    if (cgroups->name[0] == '\0') {
        return;
    }

    unlinkat(cgroups->root, cgroups->name, AT_REMOVEDIR);

    for (i = 0; i < cgroups->nmounts; i++) {
        snprintf(path, sizeof(path), "%s/%s", cgroups->mounts[i],
                 cgroups->name);
        rmdir(path);
    }
}


int
runner_cgroup_create(runner_cgroups_t *cgroups, unsigned number, uid_t uid,
    unsigned cpus, runner_cgroup_t *group, runner_error_t *err)
{
    char      path[96];
    size_t    i;

    static const char  *delegated[] = {
        ".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"
    };

    group->dir = -1;
    group->leaf = -1;
    group->oom = -1;
    group->peak = -1;

    snprintf(path, sizeof(path), "%s/%u", cgroups->name, number);

    if (mkdirat(cgroups->root, path, 0755) == -1 && errno != EEXIST) {
        return runner_error(err, "no_cgroups", errno, "can't make the control "
                            "group \"%s\"", path);
    }

    group->dir = openat(cgroups->root, path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (group->dir == -1) {
        return runner_error(err, "no_cgroups", errno, "can't open the control "
                            "group \"%s\"", path);
    }

    if (cgroups->layout == RUNNER_CGROUP_V2) {
        if (runner_cgroup_v2_limits(cgroups, group->dir, cpus, err) == -1
            || runner_cgroup_v2_leaf(group, uid, err) == -1)
        {
            return -1;
        }

        group->oom = openat(group->dir, "memory.events", O_RDONLY|O_CLOEXEC);
        group->peak = openat(group->dir, "memory.peak", O_RDWR|O_CLOEXEC);

        if (group->peak == -1) {
            group->peak = openat(group->dir, "memory.peak",
                                 O_RDONLY|O_CLOEXEC);
        }

    } else if (runner_cgroup_v1_open(cgroups, number, group, err) == -1) {
        return -1;
    }

    if (group->oom == -1) {
        return runner_error(err, "no_cgroups", errno, "can't open the control "
                            "group \"%s\"", path);
    }

    for (i = 0; i < sizeof(delegated) / sizeof(delegated[0]); i++) {
        if (fchownat(group->dir, delegated[i], uid, uid, 0) == -1) {
            return runner_error(err, "no_cgroups", errno, "can't delegate "
                                "\"%s/%s\"", path, delegated[i]);
        }
    }

    return 0;
}


/* memory and processes are set by runner_cgroup_limit() */

static int
runner_cgroup_v2_limits(runner_cgroups_t *cgroups, int dir, unsigned cpus,
    runner_error_t *err)
{
    char  text[64];

    snprintf(text, sizeof(text), "%u 100000", cpus * 100000);

    if (runner_file_write(dir, "cpu.max", text) == -1) {
        return runner_error(err, "no_controllers", errno, "cpu.max can't be "
                            "set");
    }

    if (runner_file_write(dir, "memory.swap.max", "0") == -1
        && errno != ENOENT)
    {
        return runner_error(err, "no_controllers", errno, "memory.swap.max "
                            "can't be set");
    }

    return 0;
}


static int
runner_cgroup_v2_leaf(runner_cgroup_t *group, uid_t uid, runner_error_t *err)
{
    if ((mkdirat(group->dir, "agent", 0755) == -1 && errno != EEXIST)
        || fchownat(group->dir, "agent", uid, uid, 0) == -1
        || fchownat(group->dir, "agent/cgroup.procs", uid, uid, 0) == -1)
    {
        return runner_error(err, "no_cgroups", errno, "can't make the control "
                            "group of an agent");
    }

    group->leaf = openat(group->dir, "agent",
                         O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (group->leaf == -1) {
        return runner_error(err, "no_cgroups", errno, "can't open the control "
                            "group of an agent");
    }

    return 0;
}


int
runner_cgroup_started(runner_cgroups_t *cgroups, const runner_cgroup_t *group,
    pid_t pid, runner_error_t *err)
{
    char      text[16];
    uint64_t  deadline;

    if (cgroups->layout != RUNNER_CGROUP_V2) {
        return 0;
    }

    snprintf(text, sizeof(text), "%d", pid);

    if (runner_file_write(group->leaf, "cgroup.procs", text) == -1) {
        return runner_error(err, "no_controllers", errno, "the agent can't be "
                            "moved into its control group");
    }

    /*
     * Each command has a memory.events and a memory.peak of its own, which
     * needs a parent without processes; the dead leave it a moment later.
     */

    deadline = runner_now_ms() + RUNNER_CGROUP_WAIT;

    while (runner_file_write(group->dir, "cgroup.subtree_control",
                             "+memory +pids +cpu") == -1)
    {
        if (errno != EBUSY || runner_now_ms() >= deadline) {
            return runner_error(err, "no_controllers", errno, "controllers "
                                "can't be delegated to a sandbox");
        }

        runner_cgroup_nap();
    }

    return 0;
}


static int
runner_cgroup_v1_open(runner_cgroups_t *cgroups, unsigned number,
    runner_cgroup_t *group, runner_error_t *err)
{
    int   dir;
    char  path[RUNNER_CGROUP_PATH + 96];

    snprintf(path, sizeof(path), "%s/%s/%u", cgroups->memory, cgroups->name,
             number);

    if (mkdir(path, 0755) == -1 && errno != EEXIST) {
        return runner_error(err, "no_cgroups", errno, "can't make \"%s\"",
                            path);
    }

    dir = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    if (dir == -1) {
        return runner_error(err, "no_cgroups", errno, "can't open \"%s\"",
                            path);
    }

    group->oom = openat(dir, "memory.oom_control", O_RDONLY|O_CLOEXEC);
    group->peak = openat(dir, "memory.max_usage_in_bytes", O_RDWR|O_CLOEXEC);

    close(dir);

    return 0;
}


void
runner_cgroup_close(runner_cgroup_t *group)
{
    if (group->dir != -1) {
        close(group->dir);
    }

    if (group->leaf != -1) {
        close(group->leaf);
    }

    if (group->oom != -1) {
        close(group->oom);
    }

    if (group->peak != -1) {
        close(group->peak);
    }

    group->dir = -1;
    group->leaf = -1;
    group->oom = -1;
    group->peak = -1;
}


int
runner_cgroup_limit(runner_cgroups_t *cgroups, unsigned number,
    uint32_t memory, uint32_t processes)
{
    int       rc;
    char      path[RUNNER_CGROUP_PATH + 128], bytes[32], count[32];
    unsigned  i;

    snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long) memory << 20);
    snprintf(count, sizeof(count), "%u", processes);

    if (cgroups->layout == RUNNER_CGROUP_V2) {
        snprintf(path, sizeof(path), "%s/%u/memory.max", cgroups->name,
                 number);
        rc = runner_file_write(cgroups->root, path, bytes);

        snprintf(path, sizeof(path), "%s/%u/pids.max", cgroups->name, number);

        return runner_file_write(cgroups->root, path, count) | rc;
    }

    /* limit <= limit with swap must hold all the time: up or down, twice */

    rc = -1;

    for (i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s/%u/memory.limit_in_bytes",
                 cgroups->memory, cgroups->name, number);
        rc = runner_file_write(AT_FDCWD, path, bytes);

        if (cgroups->swap) {
            snprintf(path, sizeof(path), "%s/%s/%u/memory.memsw.limit_in_bytes",
                     cgroups->memory, cgroups->name, number);
            rc |= runner_file_write(AT_FDCWD, path, bytes);
        }

        if (rc == 0) {
            break;
        }
    }

    snprintf(path, sizeof(path), "%s/%s/%u/pids.max", cgroups->pids,
             cgroups->name, number);

    return runner_file_write(AT_FDCWD, path, count) | rc;
}


void
runner_cgroup_kill(runner_cgroups_t *cgroups, unsigned number)
{
    char  path[96];

    snprintf(path, sizeof(path), "%s/%u/cgroup.kill", cgroups->name, number);
    (void) runner_file_write(cgroups->root, path, "1");
}


/*
 * Where cgroup2 is hidden, crun has made a directory with files in what hides
 * it, and that is soon full.
 */

static void
runner_cgroup_remove_hidden(runner_cgroups_t *cgroups, unsigned number)
{
    int   dir;
    char  path[RUNNER_CGROUP_PATH + 96], name[16];

    if (cgroups->layout != RUNNER_CGROUP_HYBRID) {
        return;
    }

    snprintf(path, sizeof(path), "%s/%s", cgroups->unified, cgroups->name);
    snprintf(name, sizeof(name), "%u", number);

    dir = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (dir != -1) {
        (void) runner_remove_tree(dir, name);
        close(dir);
    }
}


int
runner_cgroup_remove(runner_cgroups_t *cgroups, unsigned number,
    runner_error_t *err)
{
    int       rc;
    char      path[RUNNER_CGROUP_PATH + 96];
    uint64_t  deadline;
    unsigned  i;

    deadline = runner_now_ms() + RUNNER_CGROUP_WAIT;

    snprintf(path, sizeof(path), "%s/%u", cgroups->name, number);
    rc = runner_cgroup_rmdir(cgroups->root, path, 0, deadline);

    for (i = 0; i < cgroups->nmounts; i++) {
        snprintf(path, sizeof(path), "%s/%s/%u", cgroups->mounts[i],
                 cgroups->name, number);
        rc |= runner_cgroup_rmdir(AT_FDCWD, path, 0, deadline);
    }

    runner_cgroup_remove_hidden(cgroups, number);

    if (rc != 0) {
        return runner_error(err, "cgroup_busy", errno, "the control groups of "
                            "sandbox %u can't be removed; the next start "
                            "tries again", number);
    }

    return 0;
}


static int
runner_cgroup_rmdir(int dir, const char *name, unsigned depth,
    uint64_t deadline)
{
    int             fd;
    DIR            *d;
    struct dirent  *entry;

    for ( ;; ) {
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
            return 0;
        }

        if (errno != EBUSY || depth == RUNNER_CGROUP_DEPTH) {
            return -1;
        }

        fd = openat(dir, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

        if (fd != -1) {
            d = fdopendir(fd);

            if (d == NULL) {
                close(fd);
                return -1;
            }

            while ((entry = readdir(d)) != NULL) {
                if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
                    (void) runner_cgroup_rmdir(fd, entry->d_name, depth + 1,
                                               deadline);
                }
            }

            closedir(d);
        }

        if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
            return 0;
        }

        if (runner_now_ms() >= deadline) {
            errno = EBUSY;
            return -1;
        }

        runner_cgroup_nap();
    }
}


static void
runner_cgroup_nap(void)
{
    struct timespec  t = { 0, 1000 * 1000 };

    nanosleep(&t, NULL);
}


int
runner_cgroup_usage(runner_cgroups_t *cgroups, unsigned number,
    runner_cgroup_usage_t *usage)
{
    int        dir;
    char       path[RUNNER_CGROUP_PATH + 96], text[4096], *p;

    usage->memory = 0;
    usage->cpu_us = 0;
    dir = AT_FDCWD;

    snprintf(path, sizeof(path), "%s/%u/cpu.stat", cgroups->name, number);

    if (runner_file_read(cgroups->root, path, text, sizeof(text)) == -1) {
        return -1;
    }

    p = strstr(text, "usage_usec ");
    if (p != NULL) {
        usage->cpu_us = strtoull(p + 11, NULL, 10);
    }

    if (cgroups->layout == RUNNER_CGROUP_V2) {
        snprintf(path, sizeof(path), "%s/%u/memory.current", cgroups->name,
                 number);
        dir = cgroups->root;

    } else {
        snprintf(path, sizeof(path), "%s/%s/%u/memory.usage_in_bytes",
                 cgroups->memory, cgroups->name, number);
    }

    if (runner_file_read(dir, path, text, sizeof(text)) == -1) {
        return -1;
    }

    usage->memory = strtoull(text, NULL, 10);

    return 0;
}


void
runner_cgroup_path(const runner_cgroups_t *cgroups, unsigned number,
    char *path, size_t size)
{
    snprintf(path, size, "/%s/%u", cgroups->name, number);
}


const char *
runner_cgroup_layout_name(runner_cgroup_layout_e layout)
{
    switch (layout) {

    case RUNNER_CGROUP_V1:
        return "v1";

    case RUNNER_CGROUP_HYBRID:
        return "hybrid";

    case RUNNER_CGROUP_V2:
        return "v2";

    default:
        return "none";
    }
}
