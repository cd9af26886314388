/*
 * Which control group layout a host has, told from its mountinfo.
 */

/* link: src/runner/cgroup.c src/runner/root.c src/runner/hierarchy.c src/runner/file.c src/runner/error.c */
/* flags: -U_GNU_SOURCE */

#include "test.h"
#include "cgroup.h"


#define ROOT "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"


int
main(void)
{
    char              path[128];
    runner_cgroups_t  cgroups;

    is_number(runner_cgroups_parse(&cgroups, ROOT), -1, "none at all");
    is_number(runner_cgroups_parse(&cgroups, ""), -1, "an empty file");

    is_number(runner_cgroups_parse(&cgroups, ROOT
        "31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 "
        "rw,nsdelegate,memory_recursiveprot\n"), 0, "v2 is read");
    is_number(cgroups.layout, RUNNER_CGROUP_V2, "v2");
    is_string(cgroups.unified, "/sys/fs/cgroup", "v2: its place");

    snprintf(cgroups.name, sizeof(cgroups.name), "sandbox-x");
    runner_cgroup_path(&cgroups, 7, path, sizeof(path));
    is_string(path, "/sandbox-x/7", "v2: the namespace begins at the group");

    is_number(runner_cgroups_parse(&cgroups, ROOT
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
        "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw shared:5 master:2 - cgroup "
        "cgroup rw,memory\n"
        "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,"
        "name=systemd\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"), 0,
        "hybrid is read");
    is_number(cgroups.layout, RUNNER_CGROUP_HYBRID, "hybrid");
    is_number(cgroups.controllers, RUNNER_CGROUP_NEEDED,
              "hybrid: memory, pids and cpu");
    is_string(cgroups.unified, "/sys/fs/cgroup/unified", "hybrid: cgroup2");
    is_string(cgroups.memory, "/sys/fs/cgroup/memory", "hybrid: memory");
    is_string(cgroups.pids, "/sys/fs/cgroup/pids", "hybrid: pids");
    is_string(cgroups.cpuacct, "/sys/fs/cgroup/cpuacct", "hybrid: cpuacct");
    is_number(cgroups.nmounts, 5, "hybrid: every v1 hierarchy is known");
    is_number(cgroups.hidden[0] | cgroups.hidden[2] << 1
              | cgroups.hidden[3] << 2 | cgroups.hidden[4] << 3, 0,
              "hybrid: those that are needed are not hidden");
    is_number(cgroups.hidden[1], 1, "hybrid: cpuacct is");

    snprintf(cgroups.name, sizeof(cgroups.name), "sandbox-x");
    runner_cgroup_path(&cgroups, 7, path, sizeof(path));
    is_string(path, "/sandbox-x/7", "hybrid: the group itself");

    is_number(runner_cgroups_parse(&cgroups, ROOT
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "
        "rw,cpu,cpuacct\n"
        "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"), 0,
        "v1 is read");
    is_number(cgroups.layout, RUNNER_CGROUP_V1, "v1");
    is_number(cgroups.controllers, RUNNER_CGROUP_PIDS|RUNNER_CGROUP_CPU,
              "v1: no memory controller here");
    is_string(cgroups.cpuacct, "/sys/fs/cgroup/cpu,cpuacct",
              "v1: two controllers in one mount");

    is_number(runner_cgroups_parse(&cgroups, ROOT
        "32 31 0:29 / /mnt/c rw - cgroup cgroup rw,memory\n"
        "33 31 0:30 / /sys/fs/cgroup/a\\040b rw - cgroup cgroup rw,cpu\n"
        "cgroup\n - \n1 2 3 - cgroup cgroup rw,pids\n"), -1,
        "other places, escaped names and broken lines are no layout");

    is_string(runner_cgroup_layout_name(RUNNER_CGROUP_HYBRID), "hybrid",
              "a layout has a name");

    return test_done();
}
