/*
 * sandbox-runner --dagger: the owner of the sessions.  A process of its own,
 * since what an engine runs ends with the session that started it, and nginx
 * reloads.  Needs no rights but to read its key; with --egress-listen those
 * that the proxy gives up.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "dagger.h"
#include "log.h"
#include "notify.h"


#define DAGGER_TICK      5000            /* ms */
#define DAGGER_END_WAIT  12000


static int dagger_start(dagger_t *dagger, runner_error_t *err);
static void dagger_signal(runner_event_t *event, uint32_t events);
static void dagger_tick(void *data);
static int dagger_ending(dagger_t *dagger);


static dagger_t  dagger_owner;


int
dagger_main(runner_options_t *options)
{
    unsigned         i;
    uint64_t         deadline;
    dagger_t        *dagger;
    runner_error_t   err;

    dagger = &dagger_owner;
    dagger->options = options;
    dagger->listener.fd = -1;

    runner_error_init(&err);

    if (dagger_start(dagger, &err) == -1) {
        runner_log(RUNNER_LOG_ERROR, "%s", err.text);
        return 1;
    }

    /* to be asked by nginx, whatever engines do: each tells its own state */

    fprintf(stderr, "sandbox-runner: ready for nginx (%u engine%s, each with "
            "a line of its own, pid %d)\n", dagger->nengines,
            dagger->nengines == 1 ? "" : "s", (int) getpid());
    runner_notify_ready();

    for (i = 0; i < dagger->nengines; i++) {
        dagger_engine_start(&dagger->engines[i]);
    }

    while (!dagger->ending) {
        runner_loop_turn(&dagger->loop);
    }

    runner_notify_stopping();
    dagger_serve_end(dagger);
    dagger_egress_end(dagger);

    for (i = 0; i < dagger->nengines; i++) {
        (void) dagger_engine_end(&dagger->engines[i]);
    }

    deadline = dagger->loop.now + DAGGER_END_WAIT;

    while (dagger_ending(dagger) && dagger->loop.now < deadline) {
        runner_loop_turn(&dagger->loop);
    }

    return 0;
}


static int
dagger_start(dagger_t *dagger, runner_error_t *err)
{
    unsigned          i;
    sigset_t          set;
    dagger_engine_t  *engine;

    if (runner_loop_init(&dagger->loop) == -1) {
        return runner_error(err, "internal", errno, "can't start");
    }

    for (i = 0; i < dagger->options->ndagger; i++) {
        engine = &dagger->engines[i];
        engine->dagger = dagger;

        if (dagger_address(engine, dagger->options->dagger[i], err) == -1) {
            return dagger->options->variable
                   ? runner_error_context(err, RUNNER_DAGGER_VARIABLE) : -1;
        }
    }

    dagger->nengines = i;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);

    dagger->signals.fd = signalfd(-1, &set, SFD_CLOEXEC|SFD_NONBLOCK);
    dagger->signals.handler = dagger_signal;
    dagger->signals.data = dagger;
    dagger->timer.handler = dagger_tick;
    dagger->timer.data = dagger;

    if (dagger->signals.fd == -1
        || runner_event_add(&dagger->loop, &dagger->signals, EPOLLIN) == -1
        || runner_timer_start(&dagger->loop, &dagger->timer, DAGGER_TICK)
           == -1)
    {
        return runner_error(err, "internal", errno, "can't start");
    }

    if (dagger_egress_start(dagger, err) == -1
        || dagger_serve_start(dagger, err) == -1)
    {
        return -1;
    }

    return 0;
}


static void
dagger_signal(runner_event_t *event, uint32_t events)
{
    dagger_t                 *dagger;
    struct signalfd_siginfo   info;

    dagger = event->data;

    if (read(event->fd, &info, sizeof(info)) == sizeof(info)
        && info.ssi_signo != SIGHUP)
    {
        dagger->ending = 1;
    }
}


/* keeps the watchdog quiet, and finds an engine that nobody tries any more */

static void
dagger_tick(void *data)
{
    unsigned          i;
    dagger_t         *dagger;
    dagger_engine_t  *engine;

    dagger = data;

    runner_notify_alive();

    for (i = 0; i < dagger->nengines; i++) {
        engine = &dagger->engines[i];

        if (!dagger->ending && engine->state == DAGGER_OFF
            && engine->timer.index == 0)
        {
            dagger_engine_start(engine);
        }
    }

    if (runner_timer_start(&dagger->loop, &dagger->timer, DAGGER_TICK) == -1) {
        dagger->ending = 1;
    }
}


static int
dagger_ending(dagger_t *dagger)
{
    unsigned  i;

    for (i = 0; i < dagger->nengines; i++) {
        if (dagger->engines[i].http != NULL) {
            return 1;
        }
    }

    return 0;
}
