/*
 * Control groups for a namespace of our own where nobody mounted them, which
 * is how a chroot with a plain /sys looks.  Knows no sandboxes.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "hierarchy.h"


#define RUNNER_HIERARCHY_ROOT   "/sys/fs/cgroup"
#define RUNNER_HIERARCHY_FILE   8192             /* bytes */
#define RUNNER_HIERARCHY_FLAGS  (MS_NOSUID|MS_NODEV|MS_NOEXEC)


static int runner_hierarchy_v1(const char *controllers);


int
runner_hierarchy_mount(void)
{
    int    v1, v2;
    char  *line, *next, *controllers, text[RUNNER_HIERARCHY_FILE];

    if (access(RUNNER_HIERARCHY_ROOT, F_OK) == -1
        && mount("sysfs", "/sys", "sysfs", RUNNER_HIERARCHY_FLAGS, NULL) == -1)
    {
        return -1;
    }

    if (runner_file_read(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text))
        == -1)
    {
        return -1;
    }

    /* lines of number:controllers:path; v2 is the one without controllers */

    v1 = strstr(text, "memory") != NULL;
    v2 = 0;

    if (v1 && mount("tmpfs", RUNNER_HIERARCHY_ROOT, "tmpfs",
                    RUNNER_HIERARCHY_FLAGS, "size=1m,mode=755") == -1)
    {
        return -1;
    }

    for (line = strtok_r(text, "\n", &next);
         line != NULL;
         line = strtok_r(NULL, "\n", &next))
    {
        controllers = strchr(line, ':');

        if (controllers == NULL) {
            continue;
        }

        controllers++;
        controllers[strcspn(controllers, ":")] = '\0';

        if (*controllers == '\0') {
            v2 = 1;

        } else if (runner_hierarchy_v1(controllers) == -1) {
            return -1;
        }
    }

    if (v2 && v1) {
        return mkdir(RUNNER_HIERARCHY_ROOT "/unified", 0755) == -1
               ? -1
               : mount("cgroup2", RUNNER_HIERARCHY_ROOT "/unified", "cgroup2",
                       RUNNER_HIERARCHY_FLAGS, NULL);
    }

    return mount("cgroup2", RUNNER_HIERARCHY_ROOT, "cgroup2",
                 RUNNER_HIERARCHY_FLAGS, NULL);
}


static int
runner_hierarchy_v1(const char *controllers)
{
    char         path[256], options[128];
    const char  *name;

    name = controllers;

    if (strncmp(controllers, "name=", 5) == 0) {
        name = controllers + 5;
        snprintf(options, sizeof(options), "none,%.100s", controllers);

    } else {
        snprintf(options, sizeof(options), "%.100s", controllers);
    }

    snprintf(path, sizeof(path), RUNNER_HIERARCHY_ROOT "/%.100s", name);

    if (strchr(name, '/') != NULL || mkdir(path, 0755) == -1) {
        return -1;
    }

    return mount("cgroup", path, "cgroup", RUNNER_HIERARCHY_FLAGS, options);
}
