/*
 * Starts ripgrep for a search: its arguments, its limits, its pipes.  As the
 * user and in a cgroup of its own, with nothing of the client's in a path.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_file.h"
#include "agent_search.h"


#define AGENT_SEARCH_CPU       20        /* s, by far not reached before */
#define AGENT_SEARCH_FILES     64        /* open */
#define AGENT_SEARCH_DATA      (32 * 1024 * 1024)    /* bytes, at least */
#define AGENT_SEARCH_NUMBER    32        /* bytes of an argument with one */
#define AGENT_SEARCH_ARGUMENTS (32 + SANDBOX_WIRE_MAX_GLOBS)


static char **agent_search_argv(const agent_file_request_t *request,
    int single);
static int agent_search_pipe(int *ours, int *theirs);


int
agent_search_program(agent_program_t *started, agent_tree_t *tree,
    const agent_file_request_t *request, int fd, int single)
{
    int              rc, error, out, err;
    char            *none[1];
    agent_program_t  program;

    out = -1;
    err = -1;
    none[0] = NULL;
    started->out = -1;
    started->err = -1;

    memset(&program, 0, sizeof(program));
    program.path = AGENT_SEARCH_PROGRAM;
    program.argv = agent_search_argv(request, single);
    program.environment = none;
    program.file = RLIM_INFINITY;
    program.tasks = RLIM_INFINITY;
    program.in = single ? fd : STDIN_FILENO;
    program.directory = single ? agent_root_open(AGENT_ROOT_ALL, ".", O_PATH,
                                                 0)
                               : fd;

    rc = program.argv == NULL || program.directory == -1 ? -1 : 0;

    if (rc == 0) {
        agent_directory_user(1);

        if (agent_search_pipe(&started->out, &out) == -1
            || agent_search_pipe(&started->err, &err) == -1)
        {
            rc = -1;
        }

        agent_directory_user(0);
    }

    error = rc == -1 ? errno : 0;

    if (rc == 0 && agent_tree_take(tree) == -1) {
        error = errno;
        tree->number = 0;
    }

    if (error == 0) {
        program.out = out;
        program.err = err;
        program.cpu.rlim_cur = AGENT_SEARCH_CPU;
        program.cpu.rlim_max = AGENT_SEARCH_CPU;
        program.open_files = AGENT_SEARCH_FILES;
        program.data = agent.request_limit > AGENT_SEARCH_DATA
                       ? agent.request_limit : AGENT_SEARCH_DATA;

        error = agent_spawn_program(&program, tree);

        if (error) {
            (void) agent_tree_release(tree);
        }
    }

    free(program.argv);

    if (out != -1) {
        close(out);
    }

    if (err != -1) {
        close(err);
    }

    if (single && program.directory != -1) {
        close(program.directory);
    }

    if (error) {
        agent_log("a search could not be started: error %d, %s", error,
                  strerror(error));

        if (started->out != -1) {
            close(started->out);
        }

        if (started->err != -1) {
            close(started->err);
        }

        return error;
    }

    started->pid = program.pid;
    started->report = program.report;

    return 0;
}


/*
 * One block to free().  A file is given as standard input: nothing of the
 * client's is a path here.  Not mapped: a file that shrinks under it would end
 * it, or have it write half a line.
 */

static char **
agent_search_argv(const agent_file_request_t *request, int single)
{
    char      *p, **argv;
    size_t     i, n, size;

    static const char  *fixed[] = {
        "rg", "--no-config", "--no-ignore", "--no-hidden", "--no-follow",
        "--one-file-system", "--no-messages", "--color=never", "--null",
        "--sort=path", "--threads=1", "--line-buffered"
    };

    static const char  *matches[] = {
        "--with-filename", "--line-number", "--byte-offset", "--no-heading",
        "--binary", "--crlf", "--no-mmap", "--max-filesize=1G"
    };

    static const char  glob[] = "--glob=";

    size = AGENT_SEARCH_NUMBER + request->pattern_size + 1;

    for (i = 0; i < request->globs; i++) {
        size += sizeof(glob) + request->glob[i].length;
    }

    argv = malloc(AGENT_SEARCH_ARGUMENTS * sizeof(char *) + size);
    if (argv == NULL) {
        errno = ENOMEM;
        return NULL;
    }

    p = (char *) (argv + AGENT_SEARCH_ARGUMENTS);
    n = 0;

    for (i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        argv[n++] = (char *) fixed[i];
    }

    for (i = 0; i < request->globs; i++) {
        argv[n++] = p;
        memcpy(p, glob, sizeof(glob) - 1);
        p += sizeof(glob) - 1;
        memcpy(p, request->glob[i].data, request->glob[i].length);
        p += request->glob[i].length;
        *p++ = '\0';
    }

    if (request->pattern == NULL) {
        argv[n++] = (char *) "--files";

    } else {
        for (i = 0; i < sizeof(matches) / sizeof(matches[0]); i++) {
            argv[n++] = (char *) matches[i];
        }

        /* one more tells that there are more */

        argv[n++] = p;
        p += 1 + snprintf(p, AGENT_SEARCH_NUMBER, "--max-count=%u",
                          (unsigned) request->limit + 1);

        argv[n++] = (char *) (request->ignore_case ? "--ignore-case"
                                                   : "--case-sensitive");
        if (request->literal) {
            argv[n++] = (char *) "--fixed-strings";
        }

        argv[n++] = (char *) "-e";
        argv[n++] = p;
        memcpy(p, request->pattern, request->pattern_size);
        p[request->pattern_size] = '\0';
    }

    argv[n++] = (char *) "--";
    argv[n++] = (char *) (single ? "/proc/self/fd/0" : ".");
    argv[n] = NULL;

    return argv;
}


static int
agent_search_pipe(int *ours, int *theirs)
{
    int  fds[2];

    if (pipe2(fds, O_CLOEXEC) == -1) {
        return -1;
    }

    *ours = fds[0];
    *theirs = fds[1];

    return fcntl(*ours, F_SETFL, O_RDONLY|O_NONBLOCK);
}
