/*
 * sandbox-runner: the only root process.  Creates containers, and hands the
 * connections of nginx to the agents in them.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "child.h"
#include "conn.h"
#include "dagger.h"
#include "egress.h"
#include "image.h"
#include "listen.h"
#include "notify.h"
#include "pool.h"
#include "probe.h"
#include "room.h"
#include "runner.h"
#include "upkeep.h"
#include "warm.h"


static int runner_main_host(runner_t *runner, runner_error_t *err);
static int runner_main_start(runner_t *runner, runner_error_t *err);
static void runner_main_end(runner_t *runner, runner_mode_e mode);
static void runner_main_block(void);
static int runner_main_signals(runner_t *runner, runner_error_t *err);
static void runner_main_signal(runner_event_t *event, uint32_t events);
static int runner_main_failed(runner_t *runner, runner_error_t *err);


static runner_options_t  runner_main_options;
static runner_t          runner_main;
static sigset_t          runner_main_set;


int
main(int argc, char **argv)
{
    int              rc;
    runner_t        *runner;
    runner_error_t   err;

    runner = &runner_main;
    runner->options = &runner_main_options;
    runner->listener.fd = -1;
    runner->host.sockets = -1;

    runner_error_init(&err);
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    runner_main_block();

    rc = runner_options_read(runner->options, argc, argv, &err);
    runner_notify_start();

    if (rc == 1) {
        return 0;
    }

    if (rc == 0 && runner->options->ndagger) {
        return dagger_main(runner->options);
    }

    if (rc == -1
        || runner_listen_check(runner->options, &err) == -1
        || runner_main_host(runner, &err) == -1)
    {
        return runner_main_failed(runner, &err);
    }

    if (runner->options->probe) {
        runner_cgroups_remove(&runner->host.cgroups);
        runner_loops_remove();
        runner_host_close(&runner->host);
        return 0;
    }

    if (runner_main_start(runner, &err) == -1) {
        return runner_main_failed(runner, &err);
    }

    while (runner->mode == RUNNER_RUNNING) {
        runner_loop_turn(&runner->loop);
    }

    runner_main_end(runner, runner->mode);

    return 0;
}


/* everything about the host; single-threaded */

static int
runner_main_host(runner_t *runner, runner_error_t *err)
{
    int             rc;
    runner_host_t  *host;

    host = &runner->host;

    /* agents outlive the runtime that started them: they become ours */

    (void) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);

    if (geteuid() != 0) {
        return runner_error(err, "not_root", 0, "containers need root.  "
                            "Remedy: run it as root");
    }

    if (runner_cgroups_start(&host->cgroups, err) == -1
        || runner_host_open(host, runner->options, err) == -1
        || runner_host_agent(host, err) == -1
        || runner_cgroups_create(&host->cgroups, host->name, err) == -1)
    {
        return -1;
    }

    runner_loops_start();

    rc = runner_probe(host, runner->options->probe, err);

    if (rc == -1 && !runner->options->probe
        && strcmp(err->code, "disk_full") == 0)
    {
        rc = runner_room_wanted(host, err);
    }

    runner_child_reap();

    return rc;
}


static int
runner_main_start(runner_t *runner, runner_error_t *err)
{
    struct rlimit      limit;
    runner_options_t  *options;

    options = runner->options;

    runner_grants_init(&runner->grants, options->running);
    runner->max_queued = options->queue;
    runner->max_live = options->sandboxes;
    runner->max_per_tenant = options->per_tenant;
    runner->idle_ms = (uint64_t) options->idle * 1000;
    runner->expire_ms = (uint64_t) options->expire * 1000;
    runner->run_ms = SANDBOX_WIRE_MAX_TIME;
    runner_queue_init(&runner->drains);

    /* a container holds two descriptors, the rest may be connections */

    runner->max_conns = 512;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 1024) {
        runner->max_conns = limit.rlim_cur > 65536 ? 32768
                                                   : limit.rlim_cur / 2;
    }

    if (runner_loop_init(&runner->loop) == -1
        || runner_jobs_init(&runner->jobs, &runner->loop) == -1)
    {
        return runner_error(err, "internal", errno, "can't start");
    }

    if (runner_main_signals(runner, err) == -1) {
        return -1;
    }

    runner_pool_init(runner);

    if (runner_egress_start(runner, err) == -1) {
        return -1;
    }

    /* nothing is begun before it is sure that we will run */

    if (runner_server_open(runner, err) == -1) {
        return -1;
    }

    runner_upkeep_found(runner);
    runner_upkeep_start(runner);
    runner_pool_fill(runner);
    runner_warm_start(runner);

    runner_log(RUNNER_LOG_NOTICE, "%s, cgroup %s, %u sandboxes",
               runner->host.runtime.version,
               runner_cgroup_layout_name(runner->host.cgroups.layout),
               runner->sandboxes);

    fprintf(stderr, "sandbox-runner: ready (%s, cgroup %s, pid %d)\n",
            runner->host.runtime.version,
            runner_cgroup_layout_name(runner->host.cgroups.layout),
            (int) getpid());

    runner_notify_ready();

    return 0;
}


/*
 * Signals wait from the first moment: one that comes during the probe ends the
 * runner when there is nothing half-made.
 */

static void
runner_main_block(void)
{
    sigemptyset(&runner_main_set);
    sigaddset(&runner_main_set, SIGINT);
    sigaddset(&runner_main_set, SIGTERM);
    sigaddset(&runner_main_set, SIGHUP);
    sigaddset(&runner_main_set, SIGQUIT);

    sigprocmask(SIG_BLOCK, &runner_main_set, NULL);
}


static int
runner_main_signals(runner_t *runner, runner_error_t *err)
{
    runner->signals.fd = signalfd(-1, &runner_main_set,
                                  SFD_CLOEXEC|SFD_NONBLOCK);
    runner->signals.handler = runner_main_signal;
    runner->signals.data = runner;

    if (runner->signals.fd == -1
        || runner_event_add(&runner->loop, &runner->signals, EPOLLIN) == -1)
    {
        return runner_error(err, "internal", errno, "signalfd");
    }

    return 0;
}


static void
runner_main_signal(runner_event_t *event, uint32_t events)
{
    runner_t                 *runner;
    struct signalfd_siginfo   info;

    runner = event->data;

    if (read(event->fd, &info, sizeof(info)) != sizeof(info)
        || info.ssi_signo == SIGHUP
        || runner->mode != RUNNER_RUNNING)
    {
        /* a second one while it ends changes nothing */

        return;
    }

    runner->mode = runner->options->ephemeral ? RUNNER_DESTROY
                   : info.ssi_signo == SIGTERM ? RUNNER_LEAVE
                   : RUNNER_STOP;
}


static void
runner_main_end(runner_t *runner, runner_mode_e mode)
{
    runner_log(RUNNER_LOG_NOTICE, "ending: %s",
               mode == RUNNER_LEAVE ? "sandboxes go on"
               : mode == RUNNER_STOP ? "sandboxes stop, their files stay"
               : "nothing stays");

    runner_notify_stopping();

    if (runner_upkeep_end(runner, mode) == -1) {

        /* a thread hangs in its work: to join it could take for ever */

        _exit(1);
    }

    runner_egress_end(runner);
    runner_jobs_free(&runner->jobs);
    runner_child_reap();

    if (mode == RUNNER_LEAVE) {
        return;
    }

    runner_cgroups_remove(&runner->host.cgroups);
    runner_loops_remove();
    runner_host_close(&runner->host);
}


static int
runner_main_failed(runner_t *runner, runner_error_t *err)
{
    if (runner->options->probe) {
        printf("FAIL %s: %s\n", runner_probe_title(err), err->text);

    } else {
        runner_log(RUNNER_LOG_ERROR, "%s", err->text);
    }

    /* what is empty goes; what an earlier runner left alive stays */

    runner_cgroups_remove(&runner->host.cgroups);
    runner_host_close(&runner->host);

    return 1;
}
