/*
 * The floor of the live path: posix_spawn of the argv that the agent uses, by
 * the same bash with the same environment, as uid 1000, in a chroot of the
 * base image.  One command for each byte on stdin; answers with the
 * nanoseconds it took (u64, host order).  Knows nothing of the product.
 *
 *   floor ROOTFS COMMAND
 */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define FLOOR_ENV_MAX  64


static int    null_fd;                   /* the image has no /dev/null */
static char  *environment[FLOOR_ENV_MAX + 1];


static uint64_t
now_ns(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_MONOTONIC, &t);

    return (uint64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}


static void
read_environment(void)
{
    int    n;
    char   line[4096];
    FILE  *f;

    n = 0;
    f = fopen("/usr/share/sandbox/env", "re");

    while (f != NULL && n < FLOOR_ENV_MAX && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';

        if (line[0] != '#' && strchr(line, '=') != NULL) {
            environment[n++] = strdup(line);
        }
    }

    if (f != NULL) {
        fclose(f);
    }
}


static int
run(char *command)
{
    int                          i, fd[2][2], status;
    char                         buf[65536];
    pid_t                        pid;
    char                        *argv[] = { "/bin/bash", "-c", command, NULL };
    posix_spawn_file_actions_t   actions;

    if (pipe2(fd[0], O_CLOEXEC) == -1 || pipe2(fd[1], O_CLOEXEC) == -1) {
        return -1;
    }

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, null_fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd[0][1], 1);
    posix_spawn_file_actions_adddup2(&actions, fd[1][1], 2);

    if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environment) != 0) {
        return -1;
    }

    posix_spawn_file_actions_destroy(&actions);

    for (i = 0; i < 2; i++) {
        close(fd[i][1]);

        while (read(fd[i][0], buf, sizeof(buf)) > 0) { /* void */ }

        close(fd[i][0]);
    }

    return waitpid(pid, &status, 0) == pid ? 0 : -1;
}


int
main(int argc, char **argv)
{
    char      byte;
    uint64_t  start;

    if (argc != 3) {
        fprintf(stderr, "usage: floor ROOTFS COMMAND\n");
        return 2;
    }

    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null_fd == -1
        || chroot(argv[1]) == -1 || chdir("/home/sandbox") == -1
        || setgroups(0, NULL) == -1
        || setresgid(1000, 1000, 1000) == -1
        || setresuid(1000, 1000, 1000) == -1)
    {
        perror("floor: can't enter the base image");
        return 1;
    }

    read_environment();

    while (read(STDIN_FILENO, &byte, 1) == 1) {
        start = now_ns();

        if (run(argv[2]) == -1) {
            perror("floor: spawn");
            return 1;
        }

        start = now_ns() - start;

        if (write(STDOUT_FILENO, &start, sizeof(start)) != sizeof(start)) {
            return 1;
        }
    }

    return 0;
}
