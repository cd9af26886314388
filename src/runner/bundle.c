/*
 * The OCI configuration: what a sandbox may see, hold and use.
 * Pure: numbers in, JSON out; knows no host paths.
 */

#include <stdio.h>
#include <string.h>

#include "bundle.h"
#include "overlay.h"
#include "seccomp.h"


/* MiB; less in a sandbox of little memory */

#define RUNNER_BUNDLE_TMP  256
#define RUNNER_BUNDLE_SHM  64

#define RUNNER_BUNDLE_SOCKETS_MIN  8
#define RUNNER_BUNDLE_SOCKETS_MAX  64


static json_t *runner_bundle_process(const runner_bundle_t *bundle);
static json_t *runner_bundle_env(const runner_bundle_t *bundle);
static json_t *runner_bundle_mounts(const runner_bundle_t *bundle);
static int runner_bundle_empty(const runner_bundle_t *bundle,
    json_t *mounts);
static json_t *runner_bundle_masked(const runner_bundle_t *bundle);
static int runner_bundle_size(json_t *mount, uint32_t memory);
static json_t *runner_bundle_linux(const runner_bundle_t *bundle);
static json_t *runner_bundle_resources(const runner_bundle_t *bundle);
static json_t *runner_bundle_strings(const char **list);


static const char  *runner_bundle_masks[] = {
    "/proc/acpi", "/proc/asound", "/proc/buddyinfo", "/proc/bus",
    "/proc/cmdline", "/proc/config.gz", "/proc/devices", "/proc/diskstats",
    "/proc/dma", "/proc/driver", "/proc/fs", "/proc/interrupts",
    "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kcore",
    "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/latency_stats",
    "/proc/misc", "/proc/modules", "/proc/mtrr", "/proc/pagetypeinfo",
    "/proc/partitions", "/proc/pressure", "/proc/sched_debug", "/proc/scsi",
    "/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/sysrq-trigger",
    "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo",
    "/proc/zoneinfo", NULL
};


json_t *
runner_bundle(const runner_bundle_t *bundle)
{
    return json_pack("{s:s, s:o, s:{s:s, s:b}, s:s, s:o, s:o}",
                     "ociVersion", "1.0.2",
                     "process", runner_bundle_process(bundle),
                     "root", "path", "r", "readonly", 0,
                     "hostname", "sandbox",
                     "mounts", runner_bundle_mounts(bundle),
                     "linux", runner_bundle_linux(bundle));
}


/*
 * The agent changes to the user's id and ends the user's processes, no more;
 * what it starts gets no capability at all.
 */

static json_t *
runner_bundle_process(const runner_bundle_t *bundle)
{
    unsigned     i;
    json_t      *process, *caps;

    static const char  *names[] = {
        "CAP_SETUID", "CAP_SETGID", "CAP_KILL", NULL
    };
    static const char  *sets[] = { "bounding", "effective", "permitted" };

    caps = json_object();

    for (i = 0; i < 3; i++) {
        if (json_object_set_new(caps, sets[i], runner_bundle_strings(names))) {
            json_decref(caps);
            return NULL;
        }
    }

    process = json_pack("{s:b, s:{s:i, s:i}, s:[s], s:o, s:s, s:o, s:b}",
                        "terminal", 0,
                        "user", "uid", 0, "gid", 0,
                        "args", RUNNER_AGENT_PATH,
                        "env", runner_bundle_env(bundle),
                        "cwd", "/",
                        "capabilities", caps,
                        "noNewPrivileges", 1);

    return process;
}


static json_t *
runner_bundle_env(const runner_bundle_t *bundle)
{
    char         line[1024];
    size_t       length;
    json_t      *env;
    unsigned     n;
    const char  *p, *end;

    env = json_array();

    for (p = bundle->env, n = 0; *p && n < RUNNER_BUNDLE_ENV; p = end, n++) {
        end = strchr(p, '\n');
        length = end ? (size_t) (end - p) : strlen(p);
        end = end ? end + 1 : p + length;

        if (length == 0 || length >= sizeof(line) || *p == '#'
            || memchr(p, '=', length) == NULL)
        {
            continue;
        }

        memcpy(line, p, length);
        line[length] = '\0';

        if (json_array_append_new(env, json_string(line)) == -1) {
            json_decref(env);
            return NULL;
        }
    }

    /* as many threads as the sandbox has processors */

    snprintf(line, sizeof(line), "OPENBLAS_NUM_THREADS=%u", bundle->cpus);
    json_array_append_new(env, json_string(line));

    snprintf(line, sizeof(line), "OMP_NUM_THREADS=%u", bundle->cpus);
    json_array_append_new(env, json_string(line));

    return env;
}


/*
 * What is in /tmp and /dev/shm counts as memory of the sandbox and outlives
 * the command that wrote it: both together have to leave room for the next.
 */

static int
runner_bundle_size(json_t *mount, uint32_t memory)
{
    char         size[32];
    uint32_t     mib;
    const char  *destination;

    destination = json_string_value(json_object_get(mount, "destination"));

    if (strcmp(destination, "/tmp") == 0) {
        mib = memory / 4 < RUNNER_BUNDLE_TMP ? memory / 4 : RUNNER_BUNDLE_TMP;

    } else if (strcmp(destination, "/dev/shm") == 0) {
        mib = memory / 8 < RUNNER_BUNDLE_SHM ? memory / 8 : RUNNER_BUNDLE_SHM;

    } else {
        return 0;
    }

    snprintf(size, sizeof(size), "size=%um", mib);

    return json_array_append_new(json_object_get(mount, "options"),
                                 json_string(size));
}


static json_t *
runner_bundle_mounts(const runner_bundle_t *bundle)
{
    size_t    i;
    json_t   *mount, *mounts;

    static const struct {
        const char  *destination;
        const char  *type;
        const char  *options[8];
    } list[] = {
        { "/proc", "proc", { "nosuid", "noexec", "nodev", NULL } },
        { "/dev", "bind", { "bind", "nosuid", "noexec", NULL } },
        { "/dev/pts", "devpts",
          { "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620",
            "max=64", NULL } },
        { "/dev/shm", "tmpfs", { "nosuid", "nodev", "mode=1777", NULL } },
        { "/tmp", "tmpfs", { "nosuid", "nodev", "mode=1777", NULL } }
    };

    mounts = json_array();

    /* of /dev the runtime sees the sandbox's own, see devices.h */

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {

        mount = json_pack("{s:s, s:s, s:s, s:o}",
                          "destination", list[i].destination,
                          "type", list[i].type,
                          "source", strcmp(list[i].type, "bind") == 0
                                    ? "/dev" : list[i].type,
                          "options",
                          runner_bundle_strings((const char **)
                                                list[i].options));

        if (mount == NULL
            || runner_bundle_size(mount, bundle->memory) == -1
            || json_array_append(mounts, mount) == -1)
        {
            json_decref(mount);
            json_decref(mounts);
            return NULL;
        }

        json_decref(mount);
    }

    if (runner_bundle_empty(bundle, mounts) == -1) {
        json_decref(mounts);
        return NULL;
    }

    return mounts;
}


const char *
runner_bundle_mask(unsigned n)
{
    return runner_bundle_masks[n];
}


/*
 * The runtime hides a folder below a tmpfs of its own.  Each file system costs
 * every memory group of the host some bytes, those of all sandboxes, so one
 * folder that is empty hides all of them.
 */

static int
runner_bundle_empty(const runner_bundle_t *bundle, json_t *mounts)
{
    unsigned  i;

    for (i = 0; runner_bundle_masks[i] != NULL; i++) {

        if ((bundle->folders & (uint64_t) 1 << i)
            && json_array_append_new(mounts,
                                     json_pack("{s:s, s:s, s:s, s:[sssss]}",
                                               "destination",
                                               runner_bundle_masks[i],
                                               "type", "bind",
                                               "source", bundle->empty,
                                               "options", "bind", "ro",
                                               "nosuid", "nodev", "noexec"))
               == -1)
        {
            return -1;
        }
    }

    return 0;
}


static json_t *
runner_bundle_masked(const runner_bundle_t *bundle)
{
    json_t    *array;
    unsigned   i;

    array = json_array();

    for (i = 0; runner_bundle_masks[i] != NULL; i++) {

        if (!(bundle->folders & (uint64_t) 1 << i)
            && json_array_append_new(array,
                                     json_string(runner_bundle_masks[i]))
               == -1)
        {
            json_decref(array);
            return NULL;
        }
    }

    return array;
}


static json_t *
runner_bundle_linux(const runner_bundle_t *bundle)
{
    size_t    i;
    json_t   *namespaces, *map, *linux_, *resources;

    static const char  *types[] = {
        "pid", "mount", "ipc", "uts", "cgroup", "network"
    };
    static const char  *readonly[] = {
        "/proc/irq", "/proc/sys", NULL
    };

    namespaces = json_pack("[{s:s, s:s}]", "type", "user", "path",
                           bundle->user);

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (json_array_append_new(namespaces,
                                  json_pack("{s:s}", "type", types[i])) == -1)
        {
            json_decref(namespaces);
            return NULL;
        }
    }

    map = json_pack("[{s:i, s:I, s:i}]", "containerID", 0,
                    "hostID", (json_int_t) bundle->ids, "size", 65536);

    linux_ = json_pack("{s:o, s:O, s:o, s:s, s:o, s:o, s:o}",
                       "namespaces", namespaces,
                       "uidMappings", map,
                       "gidMappings", map,
                       "cgroupsPath", bundle->cgroup,
                       "maskedPaths", runner_bundle_masked(bundle),
                       "readonlyPaths", runner_bundle_strings(readonly),
                       "seccomp", runner_seccomp());

    if (linux_ == NULL || !bundle->limits) {
        return linux_;
    }

    resources = runner_bundle_resources(bundle);

    if (json_object_set_new(linux_, "resources", resources) == -1) {
        json_decref(linux_);
        return NULL;
    }

    return linux_;
}


static json_t *
runner_bundle_resources(const runner_bundle_t *bundle)
{
    json_t      *memory;
    json_int_t   bytes, sockets;

    bytes = (json_int_t) bundle->memory << 20;

    memory = bundle->swap
             ? json_pack("{s:I, s:I}", "limit", bytes, "swap", bytes)
             : json_pack("{s:I, s:i}", "limit", bytes, "swappiness", 0);

    /*
     * What waits in sockets is no memory of the group's without this, and of
     * that the whole host has one pool.
     */

    sockets = bytes / 16;

    if (sockets < (json_int_t) RUNNER_BUNDLE_SOCKETS_MIN << 20) {
        sockets = (json_int_t) RUNNER_BUNDLE_SOCKETS_MIN << 20;
    }

    if (sockets > (json_int_t) RUNNER_BUNDLE_SOCKETS_MAX << 20) {
        sockets = (json_int_t) RUNNER_BUNDLE_SOCKETS_MAX << 20;
    }

    if (json_object_set_new(memory, "kernelTCP", json_integer(sockets))
        == -1)
    {
        json_decref(memory);
        return NULL;
    }

    return json_pack("{s:o, s:{s:I}, s:{s:I, s:I}}",
                     "memory", memory,
                     "pids", "limit", (json_int_t) bundle->processes,
                     "cpu", "quota", (json_int_t) bundle->cpus * 100000,
                     "period", (json_int_t) 100000);
}


/* a list that ends with NULL */

static json_t *
runner_bundle_strings(const char **list)
{
    size_t   i;
    json_t  *array;

    array = json_array();

    for (i = 0; list[i] != NULL; i++) {
        if (json_array_append_new(array, json_string(list[i])) == -1) {
            json_decref(array);
            return NULL;
        }
    }

    return array;
}
