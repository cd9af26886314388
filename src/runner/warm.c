/*
 * Reading the base ahead, once at start: programs and libraries, as much as
 * the host has room for.  Knows no sandboxes.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "file.h"
#include "warm.h"


#define RUNNER_WARM_DEPTH  12                    /* folders in one another */
#define RUNNER_WARM_FILES  50000
#define RUNNER_WARM_MAX    ((uint64_t) 1024 * 1024 * 1024)
#define RUNNER_WARM_SHARE  4                     /* of the free memory */


typedef struct {
    runner_job_t   job;
    runner_t      *runner;
    uint64_t       left;                         /* bytes */
    unsigned       files;
    dev_t          device;
} runner_warm_t;


static void runner_warm_job(runner_job_t *job);
static void runner_warm_done(runner_job_t *job);
static uint64_t runner_warm_room(void);
static int runner_warm_folder(runner_warm_t *warm, int dir, const char *name,
    unsigned depth);
static void runner_warm_file(runner_warm_t *warm, int dir, const char *name);


void
runner_warm_start(runner_t *runner)
{
    runner_warm_t  *warm;

    warm = calloc(1, sizeof(*warm));
    if (warm == NULL) {
        return;
    }

    warm->runner = runner;
    warm->job.data = warm;
    warm->job.low = 1;
    warm->job.run = runner_warm_job;
    warm->job.done = runner_warm_done;

    runner_jobs_add(&runner->jobs, &warm->job);
}


static void
runner_warm_job(runner_job_t *job)
{
    int             dir;
    size_t          i;
    struct stat     st;
    runner_warm_t  *warm;

    /* in the order in which they are missed */

    static const char  *folders[] = {
        "usr/bin", "usr/lib", "usr/local", "home", "opt", "usr/share/sandbox"
    };

    warm = job->data;
    warm->left = runner_warm_room();

    dir = open(runner_base_find(&warm->runner->host.bases, 0)->path,
               O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir == -1) {
        return;
    }

    if (fstat(dir, &st) == -1) {
        close(dir);
        return;
    }

    warm->device = st.st_dev;

    for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        if (runner_warm_folder(warm, dir, folders[i], 0) == -1) {
            break;
        }
    }

    close(dir);
}


static void
runner_warm_done(runner_job_t *job)
{
    runner_warm_t  *warm;

    warm = job->data;

    runner_log(RUNNER_LOG_INFO, "%u files of the base were read ahead",
               warm->files);
    free(warm);
}


static uint64_t
runner_warm_room(void)
{
    char                text[4096], *p;
    uint64_t            room;
    unsigned long long  kib;

    if (runner_file_read(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) == -1
        || (p = strstr(text, "MemAvailable:")) == NULL
        || sscanf(p, "MemAvailable: %llu kB", &kib) != 1)
    {
        return 0;
    }

    room = (uint64_t) kib * 1024 / RUNNER_WARM_SHARE;

    return room < RUNNER_WARM_MAX ? room : RUNNER_WARM_MAX;
}


/* -1: enough, or the runner ends */

static int
runner_warm_folder(runner_warm_t *warm, int dir, const char *name,
    unsigned depth)
{
    int             fd, rc;
    DIR            *d;
    struct stat     st;
    struct dirent  *entry;

    fd = openat(dir, name, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1) {
        return 0;
    }

    d = fstat(fd, &st) == 0 && st.st_dev == warm->device ? fdopendir(fd)
                                                         : NULL;
    if (d == NULL) {
        close(fd);
        return 0;
    }

    rc = 0;

    while (rc == 0 && (entry = readdir(d)) != NULL) {

        if (entry->d_name[0] == '.'
            && (entry->d_name[1] == '\0'
                || (entry->d_name[1] == '.' && entry->d_name[2] == '\0')))
        {
            continue;
        }

        if (entry->d_type == DT_DIR && depth < RUNNER_WARM_DEPTH) {
            rc = runner_warm_folder(warm, fd, entry->d_name, depth + 1);

        } else if (entry->d_type == DT_REG) {
            runner_warm_file(warm, fd, entry->d_name);

            if (warm->left == 0 || warm->files >= RUNNER_WARM_FILES
                || __atomic_load_n(&warm->runner->mode, __ATOMIC_RELAXED)
                   != RUNNER_RUNNING)
            {
                rc = -1;
            }
        }
    }

    closedir(d);

    return rc;
}


static void
runner_warm_file(runner_warm_t *warm, int dir, const char *name)
{
    int          fd;
    struct stat  st;

    fd = openat(dir, name, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NOATIME);

    if (fd == -1) {
        return;
    }

    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {

        if ((uint64_t) st.st_size >= warm->left) {
            warm->left = 0;

        } else if (readahead(fd, 0, st.st_size) == 0) {
            warm->left -= st.st_size;
            warm->files++;
        }
    }

    close(fd);
}
