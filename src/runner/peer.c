/*
 * Who may talk to the runner.  Knows sockets and options, no requests.
 */

#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>

#include "log.h"
#include "peer.h"


static runner_log_limit_t  runner_peer_log;


int
runner_peer_allowed(const runner_options_t *options, int fd)
{
    unsigned      i;
    socklen_t     size;
    struct ucred  peer;

    size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == -1) {
        return 0;
    }

    if (peer.uid == 0) {
        return 1;
    }

    for (i = 0; i < options->npeers; i++) {
        if (options->peers[i] == peer.uid) {
            return 1;
        }
    }

    return options->group != (gid_t) -1 && peer.gid == options->group;
}


void
runner_peer_refused(int fd, const char *why)
{
    socklen_t     size;
    struct ucred  peer;

    if (!runner_log_allowed(&runner_peer_log)) {
        return;
    }

    size = sizeof(peer);
    memset(&peer, 0, sizeof(peer));
    (void) getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);

    runner_log(RUNNER_LOG_ERROR, "refused a connection of user %d, group %d, "
               "process %d: wrong %s.  Remedy: %s", peer.uid, peer.gid,
               peer.pid, why,
               why[0] == 'k' ? "nginx's sandbox_runner_key must be the same "
                               "file as --key-file; reload nginx"
                             : "--peer-user with the user of nginx's workers, "
                               "if it is nginx");
}
