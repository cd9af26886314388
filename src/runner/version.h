/*
 * Agents outlive upgrades: which of them can be asked what.
 */

#ifndef RUNNER_VERSION_H
#define RUNNER_VERSION_H

#include "runner.h"


/* 1: its agent speaks the version of the request. */
int runner_version_speaks(const runner_container_t *container,
    const runner_conn_t *conn);

/* 1: what waits first is asked in a version that its agent does not speak. */
int runner_version_outdated(const runner_sandbox_t *sandbox);

/* Gives it another agent, its files kept, as soon as nothing runs in it. */
void runner_version_renew(runner_sandbox_t *sandbox);

/* It may be idle now (NULL: it is gone). */
void runner_version_settled(runner_sandbox_t *sandbox);


#endif /* RUNNER_VERSION_H */
