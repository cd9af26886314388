/*
 * The OCI configuration of a sandbox: written out, read back, and searched
 * for what must never be in it.
 */

/* link: src/runner/bundle.c src/runner/seccomp.c -ljansson */
/* flags: -U_GNU_SOURCE */

#include <stdlib.h>

#include "test.h"
#include "bundle.h"


static json_t *config(int limits, int swap, uint64_t folders);
static void masks(void);
static int has(json_t *array, const char *s);
static void no_host(json_t *root);
static void capabilities(json_t *root);
static void namespaces(json_t *root);
static void mounts(json_t *root);
static void resources(json_t *root);
static void environment(json_t *root);
static void calls(json_t *root);


int
main(void)
{
    json_t  *root;

    root = config(1, 1, 0);

    no_host(root);
    capabilities(root);
    namespaces(root);
    mounts(root);
    resources(root);
    environment(root);
    calls(root);

    json_decref(root);

    masks();

    root = config(0, 0, 0);
    ok(json_object_get(json_object_get(root, "linux"), "resources") == NULL,
       "v2: the runner sets the limits, not the runtime");
    json_decref(root);

    root = config(1, 0, 0);
    ok(json_object_get(json_object_get(json_object_get(
           json_object_get(root, "linux"), "resources"), "memory"), "swap")
       == NULL, "no swap limit where the kernel has none");
    json_decref(root);

    return test_done();
}


static json_t *
config(int limits, int swap, uint64_t folders)
{
    char             *text;
    json_t           *root, *again;
    runner_bundle_t   bundle;

    bundle.ids = 0x70020000;
    bundle.memory = 512;
    bundle.processes = 99;
    bundle.cpus = 3;
    bundle.swap = swap;
    bundle.limits = limits;
    strcpy(bundle.user, "/proc/7/fd/9");
    bundle.cgroup = "/sandbox-0123456789ab/7";
    bundle.empty = "/empty";
    bundle.folders = folders;
    bundle.env = "# a comment\nPATH=/usr/bin\nLANG=C.UTF-8\n\nno value here\n"
                 "MPLBACKEND=Agg";

    root = runner_bundle(&bundle);
    text = root ? json_dumps(root, 0) : NULL;
    json_decref(root);

    again = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    ok(again != NULL, "the configuration is JSON");
    free(text);

    return again;
}


static int
has(json_t *array, const char *s)
{
    size_t   i;
    json_t  *value;

    json_array_foreach(array, i, value) {
        if (strcmp(json_string_value(value), s) == 0) {
            return 1;
        }
    }

    return 0;
}


static void
no_host(json_t *root)
{
    char        *text;
    size_t       i;
    const char  *paths[] = { "/var/", "/run/", "/work", "/home/sandbox/.",
                             "\"/sys", "/tmp/", "lowerdir" };

    text = json_dumps(root, 0);

    for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        ok(strstr(text, paths[i]) == NULL, "nowhere in it: %s", paths[i]);
    }

    free(text);

    is_string(json_string_value(json_object_get(json_object_get(root, "root"),
                                                "path")),
              "r", "the root is a relative path");
}


static void
capabilities(json_t *root)
{
    size_t       i;
    json_t      *process, *caps, *set;
    const char  *sets[] = { "bounding", "effective", "permitted" };

    process = json_object_get(root, "process");
    caps = json_object_get(process, "capabilities");

    for (i = 0; i < 3; i++) {
        set = json_object_get(caps, sets[i]);
        is_number(json_array_size(set), 3, "three capabilities: %s", sets[i]);
        ok(has(set, "CAP_SETUID") && has(set, "CAP_SETGID")
           && has(set, "CAP_KILL"), "to change the user and to kill: %s",
           sets[i]);
    }

    ok(json_object_get(caps, "ambient") == NULL
       && json_object_get(caps, "inheritable") == NULL,
       "what the agent starts inherits no capability");
    ok(json_is_true(json_object_get(process, "noNewPrivileges")),
       "no new privileges");
    ok(!json_boolean_value(json_object_get(process, "terminal")),
       "no terminal");
}


static void
namespaces(json_t *root)
{
    size_t       i, j;
    json_t      *list, *map, *item;
    const char  *types[] = { "pid", "mount", "ipc", "uts", "cgroup",
                             "network" };

    list = json_object_get(json_object_get(root, "linux"), "namespaces");

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        int  found = 0;

        json_array_foreach(list, j, item) {
            found += strcmp(json_string_value(json_object_get(item, "type")),
                            types[i]) == 0
                     && json_object_get(item, "path") == NULL;
        }

        is_number(found, 1, "a new namespace: %s", types[i]);
    }

    is_string(json_string_value(json_object_get(json_array_get(list, 0),
                                                "path")),
              "/proc/7/fd/9", "the user namespace is one that we made");

    map = json_array_get(json_object_get(json_object_get(root, "linux"),
                                         "uidMappings"), 0);
    is_number(json_integer_value(json_object_get(map, "hostID")), 0x70020000,
              "ids begin at the slot's range");
    is_number(json_integer_value(json_object_get(map, "size")), 65536,
              "and there are 65536");
    ok(json_equal(json_object_get(json_object_get(root, "linux"),
                                  "uidMappings"),
                  json_object_get(json_object_get(root, "linux"),
                                  "gidMappings")),
       "groups as users");
}


static void
mounts(json_t *root)
{
    size_t   i;
    json_t  *mount, *options;

    json_array_foreach(json_object_get(root, "mounts"), i, mount) {
        options = json_object_get(mount, "options");

        ok((!has(options, "bind")
            || strcmp(json_string_value(json_object_get(mount,
                                                        "destination")),
                      "/dev") == 0)
           && !has(options, "rbind"),
           "nothing of the host is mounted: %s",
           json_string_value(json_object_get(mount, "destination")));
        ok(has(options, "nosuid"), "nosuid: %s",
           json_string_value(json_object_get(mount, "destination")));
        ok(has(options, "nodev")
           || strncmp(json_string_value(json_object_get(mount, "destination")),
                      "/dev", 4) == 0,
           "nodev, but for devices: %s",
           json_string_value(json_object_get(mount, "destination")));
    }

    ok(has(json_object_get(json_object_get(root, "linux"), "maskedPaths"),
           "/proc/kcore"), "/proc/kcore is masked");
    ok(has(json_object_get(json_object_get(root, "linux"), "maskedPaths"),
           "/proc/sysrq-trigger"), "/proc/sysrq-trigger is masked");
    ok(has(json_object_get(json_object_get(root, "linux"), "readonlyPaths"),
           "/proc/sys"), "/proc/sys is read-only");
}


/* each path once: as a mask of the runtime's, or below the empty folder */

static void
masks(void)
{
    size_t       i, n, bound;
    json_t      *root, *list, *mount;
    uint64_t     all, folders;
    const char  *path;

    for (n = 0; runner_bundle_mask(n) != NULL; n++) { /* void */ }

    ok(n > 30 && n < 64, "%zu paths are masked", n);

    all = ((uint64_t) 1 << n) - 1;

    for (folders = 0; ; folders = folders ? all : 0x15) {
        root = config(1, 1, folders);
        list = json_object_get(json_object_get(root, "linux"), "maskedPaths");
        bound = 0;

        json_array_foreach(json_object_get(root, "mounts"), i, mount) {
            path = json_string_value(json_object_get(mount, "source"));

            if (strcmp(path, "/empty") != 0) {
                continue;
            }

            bound++;
            path = json_string_value(json_object_get(mount, "destination"));

            ok(!has(list, path), "%s is not masked twice", path);
            ok(has(json_object_get(mount, "options"), "ro")
               && has(json_object_get(mount, "options"), "nosuid")
               && has(json_object_get(mount, "options"), "nodev")
               && has(json_object_get(mount, "options"), "noexec"),
               "%s is closed", path);
        }

        is_number(bound, __builtin_popcountll(folders), "masks by a mount");
        is_number(json_array_size(list), n - bound, "and by the runtime");
        json_decref(root);

        if (folders == all) {
            break;
        }
    }
}


static void
resources(json_t *root)
{
    json_t  *resources, *memory, *cpu;

    resources = json_object_get(json_object_get(root, "linux"), "resources");
    memory = json_object_get(resources, "memory");
    cpu = json_object_get(resources, "cpu");

    is_number(json_integer_value(json_object_get(memory, "limit")), 512 << 20,
              "memory");
    is_number(json_integer_value(json_object_get(memory, "swap")), 512 << 20,
              "memory and swap together are no more");
    is_number(json_integer_value(json_object_get(memory, "kernelTCP")),
              32 << 20, "and what waits in sockets");
    is_number(json_integer_value(json_object_get(json_object_get(resources,
              "pids"), "limit")), 99, "processes");
    is_number(json_integer_value(json_object_get(cpu, "quota"))
              / json_integer_value(json_object_get(cpu, "period")), 3,
              "processors");
    is_string(json_string_value(json_object_get(json_object_get(root,
              "linux"), "cgroupsPath")), "/sandbox-0123456789ab/7",
              "the control group");
}


static void
environment(json_t *root)
{
    json_t  *env;

    env = json_object_get(json_object_get(root, "process"), "env");

    ok(has(env, "PATH=/usr/bin"), "a line of the base's environment");
    ok(has(env, "MPLBACKEND=Agg"), "the last one, without a newline");
    ok(has(env, "OPENBLAS_NUM_THREADS=3"), "as many threads as processors");
    is_number(json_array_size(env), 5, "and nothing else");
}


/* what the filter says to a call without arguments that are looked at */

static const char *
verdict(json_t *seccomp, const char *name)
{
    size_t   i;
    json_t  *rule;

    json_array_foreach(json_object_get(seccomp, "syscalls"), i, rule) {
        if (json_object_get(rule, "args") == NULL
            && has(json_object_get(rule, "names"), name))
        {
            return json_string_value(json_object_get(rule, "action"));
        }
    }

    return json_string_value(json_object_get(seccomp, "defaultAction"));
}


static void
calls(json_t *root)
{
    size_t       i;
    json_t      *seccomp;

    static const char  *refused[] = {
        "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "bpf",
        "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
        "io_uring_setup", "io_uring_enter", "io_uring_register",
        "open_by_handle_at", "init_module", "finit_module", "kexec_load",
        "syslog", "swapon", "reboot", "clock_settime", "settimeofday",
        "sethostname", "move_mount", "open_tree", "fsopen", "mount_setattr",
        "quotactl", "acct", "iopl", "clone", "socket", "personality",
        "socketpair", "setsockopt", "mmap", "memfd_create", "shmget", "prlimit64",
        "setrlimit", "io_setup", "io_submit", "cachestat", "memfd_secret",
        "a_call_of_the_future"
    };
    static const char  *allowed[] = {
        "clone3", "rseq", "statx", "faccessat2", "openat2", "close_range",
        "futex", "futex_waitv", "pidfd_open", "execveat",
        "mknodat", "copy_file_range", "getrandom", "membarrier",
        "epoll_pwait2", "landlock_create_ruleset"
    };

    seccomp = json_object_get(json_object_get(root, "linux"), "seccomp");

    is_string(json_string_value(json_object_get(seccomp, "defaultAction")),
              "SCMP_ACT_ERRNO", "what is not listed fails");
    is_number(json_integer_value(json_object_get(seccomp, "defaultErrnoRet")),
              38, "as a kernel would that does not know it");

    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        is_string(verdict(seccomp, refused[i]), "SCMP_ACT_ERRNO",
                  "refused, at least without the right arguments: %s",
                  refused[i]);
    }

    for (i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        is_string(verdict(seccomp, allowed[i]), "SCMP_ACT_ALLOW",
                  "allowed: %s", allowed[i]);
    }

    ok(strstr(json_string_value(json_object_get(seccomp, "defaultAction")),
              "KILL") == NULL, "nothing ends by SIGSYS");
}
