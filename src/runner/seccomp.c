/*
 * The allow-list of system calls.
 *
 * What is not listed does not exist: ENOSYS, so that libraries which try a
 * newer call fall back to an older one.  What is refused although programs
 * know it says EPERM.  Only calls of another ABI (int 0x80, x32) end a
 * program, by SIGSYS.
 *
 * Knows nothing of the rest of the configuration.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/memfd.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>

#include "sandbox_calls.h"
#include "seccomp.h"


#define RUNNER_SECCOMP_NAME(name)  #name,

static const char  *runner_seccomp_allowed[] = {
    SANDBOX_CALLS_ALLOWED(RUNNER_SECCOMP_NAME)
};

static const char  *runner_seccomp_refused[] = {
    SANDBOX_CALLS_REFUSED(RUNNER_SECCOMP_NAME)
};


/* Huge pages are the host's, reserved for its own programs, and not limited. */

static const struct {
    const char  *name;
    unsigned     flags;                          /* which argument */
    uint32_t     huge;
} runner_seccomp_pages[] = {
    { "mmap", 3, MAP_HUGETLB },
    { "memfd_create", 1, MFD_HUGETLB },
    { "shmget", 2, SHM_HUGETLB }
};


static int runner_seccomp_options(json_t *rules);
static int runner_seccomp_range(json_t *rules, int level, int first, int n);
static int runner_seccomp_memory(json_t *rules);
static int runner_seccomp_cores(json_t *rules);
static int runner_seccomp_nothing(json_t *rules, const char *name,
    json_t *args);
static json_t *runner_seccomp_names(const char **names, size_t n);
static int runner_seccomp_rule(json_t *rules, const char *name,
    const char *action, int error, json_t *args);
static json_t *runner_seccomp_arg(unsigned index, uint64_t value,
    uint64_t second, const char *op);


json_t *
runner_seccomp(void)
{
    int      rc;
    size_t   i, n;
    json_t  *seccomp, *rules;

    static const int       families[] = { AF_INET, AF_INET6 };
    static const int       protocols[] = { 0, IPPROTO_TCP, IPPROTO_UDP };
    static const uint64_t  personalities[] = { 0, 8, 0x20000, 0x20008,
                                               0x40000, 0xffffffff };

    rules = json_array();

    rc = json_array_append_new(rules, json_pack("{s:o, s:s}", "names",
             runner_seccomp_names(runner_seccomp_allowed,
                                  sizeof(runner_seccomp_allowed)
                                  / sizeof(char *)),
             "action", "SCMP_ACT_ALLOW"));

    rc |= json_array_append_new(rules, json_pack("{s:o, s:s, s:i}", "names",
             runner_seccomp_names(runner_seccomp_refused,
                                  sizeof(runner_seccomp_refused)
                                  / sizeof(char *)),
             "action", "SCMP_ACT_ERRNO", "errnoRet", EPERM));

    rc |= runner_seccomp_rule(rules, "clone", "SCMP_ACT_ALLOW", 0,
              json_pack("[o]", runner_seccomp_arg(0, SANDBOX_CALLS_NAMESPACES,
                                                  0, "SCMP_CMP_MASKED_EQ")));

    /*
     * Sockets of this network namespace and nothing else: vsock in particular
     * reaches the hypervisor from any of them.
     */

    rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ALLOW", 0,
              json_pack("[o]", runner_seccomp_arg(0, AF_UNIX, 0,
                                                  "SCMP_CMP_EQ")));

    rc |= runner_seccomp_rule(rules, "socketpair", "SCMP_ACT_ALLOW", 0,
              json_pack("[o]", runner_seccomp_arg(0, AF_UNIX, 0,
                                                  "SCMP_CMP_EQ")));

    rc |= runner_seccomp_rule(rules, "socketpair", "SCMP_ACT_ERRNO",
              EAFNOSUPPORT,
              json_pack("[o]", runner_seccomp_arg(0, AF_UNIX, 0,
                                                  "SCMP_CMP_NE")));

    /* TCP and UDP only; who tries MPTCP first, as Go does, goes on with TCP */

    for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {

        for (n = 0; n < sizeof(protocols) / sizeof(protocols[0]); n++) {
            rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ALLOW", 0,
                      json_pack("[o, o]",
                                runner_seccomp_arg(0, families[i], 0,
                                                   "SCMP_CMP_EQ"),
                                runner_seccomp_arg(2, protocols[n], 0,
                                                   "SCMP_CMP_EQ")));
        }

        rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ERRNO",
                  EPROTONOSUPPORT,
                  json_pack("[o, o]",
                            runner_seccomp_arg(0, families[i], 0,
                                               "SCMP_CMP_EQ"),
                            runner_seccomp_arg(2, IPPROTO_UDP, 0,
                                               "SCMP_CMP_GT")));
    }

    /*
     * Not netlink, though getifaddrs asks by it: what waits in its sockets is
     * memory of the kernel's that is counted for nobody.
     */

    rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ERRNO",
              EAFNOSUPPORT,
              json_pack("[o]", runner_seccomp_arg(0, AF_NETLINK, 0,
                                                  "SCMP_CMP_GE")));

    for (i = 0; i < sizeof(personalities) / sizeof(personalities[0]); i++) {
        rc |= runner_seccomp_rule(rules, "personality", "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]", runner_seccomp_arg(0, personalities[i], 0,
                                                      "SCMP_CMP_EQ")));
    }

    rc |= runner_seccomp_options(rules);
    rc |= runner_seccomp_memory(rules);
    rc |= runner_seccomp_cores(rules);

    /*
     * It would write out all file systems of the host, and wait for one that
     * hangs.  What is a sandbox's own is for syncfs and fsync.
     */

    rc |= runner_seccomp_nothing(rules, "sync", NULL);

    seccomp = json_pack("{s:s, s:i, s:[s], s:o}",
                        "defaultAction", "SCMP_ACT_ERRNO",
                        "defaultErrnoRet", ENOSYS,
                        "architectures",
#if (defined __aarch64__)
                        "SCMP_ARCH_AARCH64",
#else
                        "SCMP_ARCH_X86_64",
#endif
                        "syscalls", rules);

    if (rc != 0) {
        json_decref(seccomp);
        return NULL;
    }

    return seccomp;
}


static int
runner_seccomp_options(json_t *rules)
{
    int     rc;
    size_t  i;

    static const int  levels[] = {
        SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP
    };

    rc = runner_seccomp_rule(rules, "setsockopt", "SCMP_ACT_ALLOW", 0,
             json_pack("[o]", runner_seccomp_arg(1, IPPROTO_UDP, 0,
                                                 "SCMP_CMP_EQ")));

    for (i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        rc |= runner_seccomp_range(rules, levels[i], 0,
                                   SANDBOX_CALLS_OPTIONS);
    }

    return rc;
}


/*
 * Options from `first` on, n of them: by one rule, or in halves if some of
 * them are refused.  One rule for all would go before those for some.
 */

static int
runner_seccomp_range(json_t *rules, int level, int first, int n)
{
    size_t  i;
    int     refused;

    refused = 0;

    for (i = 0; i < sizeof(sandbox_calls_reports)
                    / sizeof(sandbox_calls_reports[0]); i++)
    {
        refused |= sandbox_calls_reports[i].level == level
                   && sandbox_calls_reports[i].name >= first
                   && sandbox_calls_reports[i].name < first + n;
    }

    if (refused && n > 1) {
        return runner_seccomp_range(rules, level, first, n / 2)
               | runner_seccomp_range(rules, level, first + n / 2, n / 2);
    }

    return runner_seccomp_rule(rules, "setsockopt",
               refused ? "SCMP_ACT_ERRNO" : "SCMP_ACT_ALLOW",
               refused ? ENOPROTOOPT : 0,
               json_pack("[o, o]",
                         runner_seccomp_arg(1, level, 0, "SCMP_CMP_EQ"),
                         runner_seccomp_arg(2, UINT32_MAX - (n - 1), first,
                                            "SCMP_CMP_MASKED_EQ")));
}


static int
runner_seccomp_memory(json_t *rules)
{
    int       rc;
    size_t    i;
    uint64_t  huge;

    rc = 0;

    for (i = 0; i < sizeof(runner_seccomp_pages)
                    / sizeof(runner_seccomp_pages[0]); i++)
    {
        huge = runner_seccomp_pages[i].huge;

        rc |= runner_seccomp_rule(rules, runner_seccomp_pages[i].name,
                  "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]",
                            runner_seccomp_arg(runner_seccomp_pages[i].flags,
                                               huge, 0,
                                               "SCMP_CMP_MASKED_EQ")));

        rc |= runner_seccomp_rule(rules, runner_seccomp_pages[i].name,
                  "SCMP_ACT_ERRNO", EPERM,
                  json_pack("[o]",
                            runner_seccomp_arg(runner_seccomp_pages[i].flags,
                                               huge, huge,
                                               "SCMP_CMP_MASKED_EQ")));
    }

    return rc;
}


/*
 * The limit of cores is 1 byte, which only looks odd: none is written, as with
 * 0, but 0 would still start the program of the host's core_pattern, as root,
 * with the core as its input.  So 1 has to stay; who sets another is told that
 * it was done.  The kernel looks at half of the argument: so do we.
 */

static int
runner_seccomp_cores(json_t *rules)
{
    int       rc;
    uint64_t  i;

    rc = 0;

    for (i = 0; i < SANDBOX_CALLS_LIMITS; i++) {

        if (i == RLIMIT_CORE) {
            continue;
        }

        rc |= runner_seccomp_rule(rules, "setrlimit", "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]", runner_seccomp_arg(0, UINT32_MAX, i,
                                                      "SCMP_CMP_MASKED_EQ")));

        rc |= runner_seccomp_rule(rules, "prlimit64", "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]", runner_seccomp_arg(1, UINT32_MAX, i,
                                                      "SCMP_CMP_MASKED_EQ")));
    }

    rc |= runner_seccomp_rule(rules, "prlimit64", "SCMP_ACT_ALLOW", 0,
              json_pack("[o, o]",
                        runner_seccomp_arg(1, UINT32_MAX, RLIMIT_CORE,
                                           "SCMP_CMP_MASKED_EQ"),
                        runner_seccomp_arg(2, 0, 0, "SCMP_CMP_EQ")));

    rc |= runner_seccomp_nothing(rules, "prlimit64",
              json_pack("[o, o]",
                        runner_seccomp_arg(1, UINT32_MAX, RLIMIT_CORE,
                                           "SCMP_CMP_MASKED_EQ"),
                        runner_seccomp_arg(2, 0, 0, "SCMP_CMP_NE")));

    rc |= runner_seccomp_nothing(rules, "setrlimit",
              json_pack("[o]", runner_seccomp_arg(0, UINT32_MAX, RLIMIT_CORE,
                                                  "SCMP_CMP_MASKED_EQ")));

    return rc;
}


/* says yes and does nothing; owns args, which may be NULL */

static int
runner_seccomp_nothing(json_t *rules, const char *name, json_t *args)
{
    json_t  *rule;

    rule = json_pack("{s:[s], s:s, s:i}", "names", name, "action",
                     "SCMP_ACT_ERRNO", "errnoRet", 0);

    if (args != NULL && json_object_set_new(rule, "args", args) == -1) {
        json_decref(rule);
        return -1;
    }

    return json_array_append_new(rules, rule);
}


static json_t *
runner_seccomp_names(const char **names, size_t n)
{
    size_t   i;
    json_t  *array;

    array = json_array();

    for (i = 0; i < n; i++) {
        if (json_array_append_new(array, json_string(names[i])) == -1) {
            json_decref(array);
            return NULL;
        }
    }

    return array;
}


/* owns args */

static int
runner_seccomp_rule(json_t *rules, const char *name, const char *action,
    int error, json_t *args)
{
    json_t  *rule;

    rule = json_pack("{s:[s], s:s, s:o}", "names", name, "action", action,
                     "args", args);

    if (error && json_object_set_new(rule, "errnoRet", json_integer(error))) {
        json_decref(rule);
        return -1;
    }

    return json_array_append_new(rules, rule);
}


static json_t *
runner_seccomp_arg(unsigned index, uint64_t value, uint64_t second,
    const char *op)
{
    return json_pack("{s:i, s:I, s:I, s:s}", "index", (int) index,
                     "value", (json_int_t) value,
                     "valueTwo", (json_int_t) second, "op", op);
}
