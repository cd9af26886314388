/*
 * After an upgrade an agent may not know what nginx asks.  What runs in its
 * sandbox finishes first; then it is ended, and what waits wakes the sandbox
 * with an agent of this release.  Knows no bytes of the wire.
 */

#include "container.h"
#include "sandbox.h"
#include "version.h"


int
runner_version_speaks(const runner_container_t *container,
    const runner_conn_t *conn)
{
    return conn->preamble.version >= container->version_min
           && conn->preamble.version <= container->version_max;
}


int
runner_version_outdated(const runner_sandbox_t *sandbox)
{
    return sandbox->waiting.first != NULL
           && sandbox->container != NULL
           && runner_container_usable(sandbox->container)
           && !runner_version_speaks(sandbox->container,
                                     sandbox->waiting.first);
}


void
runner_version_renew(runner_sandbox_t *sandbox)
{
    runner_container_t  *container;

    container = sandbox->container;

    /* one that was taken over has not said yet what runs in it */

    if (!container->told || runner_session_works(sandbox)) {
        return;
    }

    runner_log(RUNNER_LOG_NOTICE, "sandbox %s is started again, its agent is "
               "of another release", sandbox->id);
    runner_container_end(container, SANDBOX_OUTCOME_LOST, 0);
}


void
runner_version_settled(runner_sandbox_t *sandbox)
{
    if (sandbox != NULL && runner_version_outdated(sandbox)) {
        runner_version_renew(sandbox);
    }
}
