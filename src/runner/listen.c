/*
 * The listening socket.  One that was passed (systemd's socket unit, or any
 * other holder) keeps waiting clients waiting while no runner is there, so it
 * is taken as it is; what would make nginx wait at another place, or let
 * strangers in, is told.  Knows no connections.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "listen.h"
#include "log.h"


#define RUNNER_BACKLOG  4096


static int runner_listen_number(int fd, int option);
static int runner_listen_path(int fd, const runner_options_t *options,
    runner_error_t *err);
static int runner_listen_bind(const runner_options_t *options,
    runner_error_t *err);
static int runner_listen_folder(const char *path, runner_error_t *err);


int
runner_listen_check(const runner_options_t *options, runner_error_t *err)
{
    int  fd;

    fd = options->listen_fd;

    if (fd == -1) {
        return 0;
    }

    if (runner_listen_number(fd, SO_DOMAIN) != AF_UNIX
        || runner_listen_number(fd, SO_TYPE) != SOCK_STREAM
        || runner_listen_number(fd, SO_ACCEPTCONN) != 1)
    {
        return runner_error(err, "bad_option", 0, "descriptor %d is not a "
                            "listening unix stream socket.  Remedy: "
                            "ListenStream=/PATH and Accept=no in the socket "
                            "unit", fd);
    }

    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == -1
        || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == -1)
    {
        return runner_error(err, "internal", errno, "fcntl");
    }

    return runner_listen_path(fd, options, err);
}


int
runner_listen(const runner_options_t *options, int *ours, runner_error_t *err)
{
    int  fd;

    *ours = 0;
    fd = options->listen_fd;

    if (fd == -1) {
        fd = runner_listen_bind(options, err);
        *ours = fd != -1;

        return fd;
    }

    /* whatever its holder took: a full one refuses nginx at once */

    (void) listen(fd, RUNNER_BACKLOG);

    return fd;
}


static int
runner_listen_number(int fd, int option)
{
    int        value;
    socklen_t  size;

    value = -1;
    size = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == -1 ? -1
                                                                   : value;
}


static int
runner_listen_path(int fd, const runner_options_t *options,
    runner_error_t *err)
{
    socklen_t            size;
    struct stat          st;
    struct sockaddr_un   address;

    memset(&address, 0, sizeof(address));
    size = sizeof(address) - 1;

    /* one without a name, or of the abstract names, has no rights */

    if (getsockname(fd, (struct sockaddr *) &address, &size) == -1
        || size <= offsetof(struct sockaddr_un, sun_path)
        || address.sun_path[0] != '/')
    {
        return runner_error(err, "bad_option", 0, "the socket that was passed "
                            "has no path.  Remedy: ListenStream=/PATH in the "
                            "socket unit");
    }

    if (options->socket != NULL
        && strcmp(options->socket, address.sun_path) != 0)
    {
        return runner_error(err, "bad_option", 0, "the socket that was passed "
                            "is \"%s\", --socket is \"%s\": they must be the "
                            "same", address.sun_path, options->socket);
    }

    if (lstat(address.sun_path, &st) == -1 || !S_ISSOCK(st.st_mode)) {
        runner_log(RUNNER_LOG_ERROR, "nobody can connect to \"%s\", its file "
                   "is gone.  Remedy: systemctl restart sandbox-runner.socket",
                   address.sun_path);

    } else if (st.st_mode & 07) {
        runner_log(RUNNER_LOG_WARN, "the socket \"%s\" is open to everybody "
                   "(mode %04o).  Remedy: SocketMode=0660 in the socket unit",
                   address.sun_path, st.st_mode & 07777);
    }

    return 0;
}


static int
runner_listen_bind(const runner_options_t *options, runner_error_t *err)
{
    int                 fd;
    const char         *path;
    struct stat         st;
    struct sockaddr_un  address;

    path = options->socket;

    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return runner_error(err, "bad_option", 0, "--socket \"%s\" is longer "
                            "than %zu bytes", path,
                            sizeof(address.sun_path) - 1);
    }

    strcpy(address.sun_path, path);

    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        return runner_error(err, "bad_option", 0, "--socket \"%s\" is there "
                            "and is not a socket", path);
    }

    fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
    if (fd == -1) {
        return runner_error(err, "internal", errno, "socket");
    }

    /* EAGAIN: somebody listens, and has no time to accept */

    if (connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0
        || errno == EAGAIN)
    {
        close(fd);
        return runner_error(err, "bad_option", 0, "another process listens on "
                            "\"%s\"", path);
    }

    close(fd);
    (void) unlink(path);

    if (runner_listen_folder(path, err) == -1) {
        return -1;
    }

    fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    /* closed from its first moment, then opened for the group */

    if (fd == -1
        || fchmod(fd, 0600) == -1
        || bind(fd, (struct sockaddr *) &address, sizeof(address)) == -1
        || (options->group != (gid_t) -1
            && (chown(path, 0, options->group) == -1
                || chmod(path, 0660) == -1))
        || listen(fd, RUNNER_BACKLOG) == -1)
    {
        runner_error(err, "bad_option", errno, "can't listen on \"%s\"", path);

        if (fd != -1) {
            close(fd);
        }

        return -1;
    }

    return fd;
}


/*
 * /run is empty after a boot.  Of what leads there only the last folder is
 * made, in the mode that all of /run/sandbox has: workers pass, nobody looks.
 */

static int
runner_listen_folder(const char *path, runner_error_t *err)
{
    char        *slash, folder[PATH_MAX];
    struct stat  st;

    if (strlen(path) >= sizeof(folder)) {
        return 0;
    }

    strcpy(folder, path);
    slash = strrchr(folder, '/');

    if (slash == NULL || slash == folder) {
        return 0;
    }

    *slash = '\0';

    if (stat(folder, &st) == 0 || errno != ENOENT
        || mkdir(folder, 0711) == 0 || errno == EEXIST)
    {
        return 0;
    }

    return runner_error(err, "bad_option", errno, "can't make \"%s\", the "
                        "folder of --socket.  Remedy: install -d -m 0711 "
                        "%s", folder, folder);
}
