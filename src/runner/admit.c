/*
 * Admission: limits of the host and of a tenant, and what makes room.  A
 * refusal names the limit and what would help.
 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "admit.h"
#include "container.h"
#include "session.h"


#define RUNNER_ADMIT_STOPS  4       /* idle sandboxes, for a new one */
#define RUNNER_ADMIT_SHARE  20      /* the last 1/20 of the queue is kept for
                                       tenants of which nothing waits */


static runner_sandbox_t *runner_admit_unused(runner_t *runner,
    const runner_tenant_t *tenant);
static int runner_admit_refuse(runner_refusal_t *refusal, const char *code,
    unsigned retry_after, const char *format, ...)
    __attribute__ ((format(printf, 4, 5)));


int
runner_admit(runner_t *runner, runner_refusal_t *refusal)
{
    refusal->code = NULL;

    if (runner->draining) {
        return runner_admit_refuse(refusal, "runner_stopping", 30, "The "
                                   "sandboxes of this host are being stopped "
                                   "by its operator; their files stay.");
    }

    return 0;
}


int
runner_admit_sandbox(runner_sandbox_t *sandbox, runner_refusal_t *refusal)
{
    unsigned           stopped;
    runner_t          *runner;
    runner_tenant_t   *tenant, *whose;
    runner_sandbox_t  *unused;

    runner = sandbox->runner;
    tenant = sandbox->tenant;
    refusal->code = NULL;

    if (sandbox->live) {
        return 0;
    }

    if (runner_admit(runner, refusal) == -1) {
        return -1;
    }

    /* after a limit was lowered there are more than one too many */

    for (stopped = 0; stopped < RUNNER_ADMIT_STOPS; stopped++) {

        if (tenant->sandboxes >= runner->max_per_tenant) {
            whose = tenant;

        } else if (runner->live >= runner->max_live) {
            whose = NULL;

        } else {
            break;
        }

        unused = runner_admit_unused(runner, whose);

        if (unused == NULL) {

            if (stopped) {
                break;
            }

            if (whose) {
                return runner_admit_refuse(refusal, "too_many_sandboxes", 10,
                                           "All %u sandboxes that a tenant "
                                           "may have at once are in use: one "
                                           "is free when nothing runs in it "
                                           "any more.", tenant->sandboxes);
            }

            return runner_admit_refuse(refusal, "at_capacity", 10, "All %u "
                                       "sandboxes that this host may have at "
                                       "once are in use.", runner->live);
        }

        /* from now on it does not count: it ends while the new one is made */

        runner_log(RUNNER_LOG_INFO, "stopping sandbox %s to make room",
                   unused->id);
        runner_session_live(unused, 0);
        runner_container_end(unused->container, SANDBOX_OUTCOME_LOST, 0);
    }

    runner_session_live(sandbox, 1);

    return 0;
}


/* the first in the order of use that could be stopped, of one tenant or any */

static runner_sandbox_t *
runner_admit_unused(runner_t *runner, const runner_tenant_t *tenant)
{
    runner_sandbox_t  *sandbox;

    for (sandbox = runner->used_first;
         sandbox != NULL;
         sandbox = sandbox->used_next)
    {
        if ((tenant == NULL || sandbox->tenant == tenant)
            && !runner_session_busy(sandbox))
        {
            return sandbox;
        }
    }

    return NULL;
}


int
runner_admit_command(runner_t *runner, const uint8_t *digest,
    runner_refusal_t *refusal)
{
    runner_tenant_t  *tenant;

    if (runner_admit(runner, refusal) == -1) {
        return -1;
    }

    if (runner->grants.used < runner->grants.total
        && runner->grants.waiting == 0)
    {
        return 0;
    }

    if (runner->queued >= runner->max_queued) {
        return runner_admit_refuse(refusal, "at_capacity", 5, "%u commands "
                                   "wait on this host, as many as may.",
                                   runner->queued);
    }

    if (runner->queued
        < runner->max_queued - runner->max_queued / RUNNER_ADMIT_SHARE)
    {
        return 0;
    }

    tenant = runner_tenant_find(&runner->grants, digest);

    if (tenant != NULL && tenant->queued) {
        return runner_admit_refuse(refusal, "too_many_pending", 5, "%u "
                                   "commands wait on this host, %u of them "
                                   "are this tenant's: the rest of the queue "
                                   "is for others.", runner->queued,
                                   tenant->queued);
    }

    return 0;
}


static int
runner_admit_refuse(runner_refusal_t *refusal, const char *code,
    unsigned retry_after, const char *format, ...)
{
    va_list  args;

    refusal->code = code;
    refusal->retry_after = retry_after;

    va_start(args, format);
    vsnprintf(refusal->detail, sizeof(refusal->detail), format, args);
    va_end(args);

    return -1;
}
