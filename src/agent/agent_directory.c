/*
 * The working directory of a command: opened with the command's own rights,
 * judged by where it really is.  The descriptor that was judged is the one
 * the command starts in, so renames and links in between change nothing.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_caps.h"


/* bytes: less is none; a write of 1 MiB fails where some of it would fit */

#define AGENT_DIRECTORY_ROOM  (2 * 1024 * 1024)


static int agent_directory_allowed(const char *resolved);


static const char  *agent_directory_roots[] = {
    AGENT_HOME, "/skills", "/tmp"
};

static int  agent_directory_home = -1;


int
agent_directory_init(void)
{
    /* /home is root's, so nobody inside can put another one in its place */

    agent_directory_home = open(AGENT_HOME,
                                O_PATH|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
    if (agent_directory_home == -1) {
        agent_log(AGENT_HOME " can't be opened: error %d; the base image "
                  "must have it", errno);
        return -1;
    }

    return 0;
}


int
agent_directory_open(const uint8_t *path, size_t length, char *resolved,
    size_t size, const char **code)
{
    int              fd, error, usable;
    char             name[AGENT_MAX_PATH], link[32];
    ssize_t          n;
    struct stat      st;
    struct open_how  how;

    if (path == NULL
        || (length == sizeof(AGENT_HOME) - 1
            && memcmp(path, AGENT_HOME, length) == 0))
    {
        memcpy(resolved, AGENT_HOME, sizeof(AGENT_HOME));
        return agent_directory_home;
    }

    if (length == 0 || length >= sizeof(name) || path[0] != '/') {
        *code = "cwd_outside";
        return -1;
    }

    memcpy(name, path, length);
    name[length] = '\0';

    memset(&how, 0, sizeof(how));
    how.flags = O_PATH|O_DIRECTORY|O_CLOEXEC;
    how.resolve = RESOLVE_NO_MAGICLINKS;

    agent_directory_user(1);

    fd = syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof(how));
    error = errno;
    usable = fd != -1
             && syscall(SYS_faccessat2, fd, "", X_OK,
                        AT_EMPTY_PATH|AT_EACCESS) == 0;

    agent_directory_user(0);

    if (fd == -1) {

        /* ELOOP: a magic link of /proc, or links that never end */

        *code = (error == ELOOP || strncmp(name, "/proc/", 6) == 0)
                ? "cwd_outside" : "cwd_missing";
        return -1;
    }

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, resolved, size - 1);

    if (n <= 0 || n >= (ssize_t) size - 1) {
        *code = "cwd_missing";
        goto failed;
    }

    resolved[n] = '\0';

    if (!agent_directory_allowed(resolved)) {
        *code = "cwd_outside";
        goto failed;
    }

    /* a directory removed meanwhile still opens, and can't be used */

    if (!usable || fstat(fd, &st) == -1 || st.st_nlink == 0) {
        *code = "cwd_missing";
        goto failed;
    }

    return fd;

failed:

    close(fd);

    return -1;
}


int
agent_directory_full(void)
{
    struct statfs  fs;

    if (statfs(AGENT_HOME, &fs) == -1) {
        return 1;
    }

    return (uint64_t) fs.f_bavail * fs.f_bsize < AGENT_DIRECTORY_ROOM
           || (fs.f_files != 0 && fs.f_ffree == 0)
           || agent_caps_full();
}


void
agent_directory_close(int fd)
{
    if (fd != -1 && fd != agent_directory_home) {
        close(fd);
    }
}


void
agent_directory_user(int on)
{
    if (on) {
        setfsgid(AGENT_GID);
        setfsuid(AGENT_UID);

    } else {
        setfsuid(0);
        setfsgid(0);
    }
}


static int
agent_directory_allowed(const char *resolved)
{
    size_t  i, n, length;

    n = sizeof(agent_directory_roots) / sizeof(agent_directory_roots[0]);

    for (i = 0; i < n; i++) {
        length = strlen(agent_directory_roots[i]);

        if (strncmp(resolved, agent_directory_roots[i], length) == 0
            && (resolved[length] == '\0' || resolved[length] == '/'))
        {
            return 1;
        }
    }

    return 0;
}
