/*
 * The agent of an engine: what it was told, its volumes, the lock that says
 * that it lives, and its end, when another agent has taken over or when
 * nobody has wanted anything for long.  What a sandbox is it leaves to others.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_engine.h"
#include "agent_file.h"
#include "agent_once.h"
#include "agent_spool.h"


#define AGENT_ENGINE_PREFIX   "SANDBOX_ENGINE_"
#define AGENT_ENGINE_ALL      7          /* three of its variables */
#define AGENT_ENGINE_IDLE     600        /* s */
#define AGENT_ENGINE_UNUSED   10         /* s, without a sandbox */
#define AGENT_ENGINE_SAVE     5000       /* ms, between writes */
#define AGENT_ENGINE_TICK     500        /* ms */
#define AGENT_ENGINE_LOCK     15000      /* ms, for the agent before us */
#define AGENT_ENGINE_WAIT     60000      /* ms, of --once */
#define AGENT_ENGINE_POLL     20         /* ms */
#define AGENT_ENGINE_SWEEP    5000       /* ms, until all have ended */
#define AGENT_ENGINE_PAUSE    2          /* ms, between two looks */
#define AGENT_ENGINE_OUTPUT   ((uint64_t) 128 * 1024 * 1024)
#define AGENT_ENGINE_CAPS     64


static unsigned agent_engine_told(const char *entry);
static const char *agent_engine_value(const char *entry, const char *name);
static int agent_engine_number(const char *text, uint64_t *number);
static int agent_engine_capabilities(void);
static int agent_engine_volumes(void);
static int agent_engine_take(void);
static int agent_engine_wait(void);
static int agent_engine_known(void);
static int agent_engine_mixed(void);
static int agent_engine_lock(void);
static int agent_engine_history(void);
static void agent_engine_changed(void);
static void agent_engine_save(void);
static int agent_engine_untold(void);
static void agent_engine_tick(agent_timer_t *timer);
static int agent_engine_busy(void);
static void agent_engine_exit(void);


static const agent_host_t  agent_engine_host = {
    .admit = agent_engine_admit,
    .park = agent_engine_park,
    .enter = agent_engine_enter,
    .replace = agent_engine_replace,
    .state = agent_engine_changed,
    .stop = agent_engine_stop,
    .stopping = "fenced"
};

static int            agent_engine_meta_fd = -1;
static int            agent_engine_locked = -1;
static uint64_t       agent_engine_epoch;
static uint64_t       agent_engine_idle = AGENT_ENGINE_IDLE;
static uint64_t       agent_engine_used;         /* ms, monotonic */
static uint64_t       agent_engine_counted;      /* of agent.commands */
static uint64_t       agent_engine_saved;        /* ms, monotonic */
static int            agent_engine_dirty;
static agent_timer_t  agent_engine_timer = { .handler = agent_engine_tick };


int
agent_engine_init(char **environment)
{
    size_t     i;
    char     **entry, **keep;
    unsigned   seen;

    static const char  *foreign[] = {
        "OTEL_", "DAGGER_", "_DAGGER_", "TRACEPARENT=", "TRACESTATE="
    };

    seen = 0;
    keep = environment;

    for (entry = environment; *entry != NULL; entry++) {

        if (strncmp(*entry, AGENT_ENGINE_PREFIX,
                    sizeof(AGENT_ENGINE_PREFIX) - 1)
            == 0)
        {
            seen |= agent_engine_told(*entry);

            /* the string itself is what /proc shows */

            explicit_bzero(*entry, strlen(*entry));
            continue;
        }

        /* the engine's own are of no use to commands */

        for (i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
            if (strncmp(*entry, foreign[i], strlen(foreign[i])) == 0) {
                break;
            }
        }

        if (i == sizeof(foreign) / sizeof(foreign[0])) {
            *keep++ = *entry;
        }
    }

    *keep = NULL;

    if (seen != AGENT_ENGINE_ALL) {
        fprintf(stderr, "sandbox-agent: SANDBOX_ENGINE_SECRET and "
                "SANDBOX_ENGINE_SESSION, 64 hex digits each, and "
                "SANDBOX_ENGINE_EPOCH, a number, are not all set\n");
        return -1;
    }

    return agent_engine_capabilities();
}


int
agent_engine_start(void)
{
    int  rc;

    if (agent_engine_volumes() == -1) {
        return 1;
    }

    agent_engine_locked = openat(agent_engine_meta_fd, "lock",
                                 O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0600);

    if (agent_engine_locked == -1) {
        agent_log("the lock in " AGENT_PLACE " can't be opened: error %d",
                  errno);
        return 1;
    }

    rc = agent.once ? agent_engine_wait() : agent_engine_take();

    if (rc == 0 && !agent.once) {
        rc = agent_engine_lock();
    }

    if (rc) {
        return rc;
    }

    if (agent_engine_known() == -1) {
        return 1;
    }

    if (agent_engine_mixed()) {
        agent_log("a volume is that of another sandbox: nothing of it is "
                  "touched");
        return 1;
    }

    if (agent_engine_state.phase == AGENT_ENGINE_DELETING) {
        rc = agent_engine_delete_all();

        if (rc) {
            agent_log("a sandbox that was deleted can't be removed: error %d",
                      rc);
            return 1;
        }
    }

    agent.tcp = 1;
    agent.host = &agent_engine_host;
    agent_engine_used = agent_now_ms();

    if (!agent.network) {
        agent_egress_init();
    }

    if (agent_engine_history() == -1 || atexit(agent_engine_exit) != 0) {
        return 1;
    }

    agent_engine_resume();
    agent_timer_set(&agent_engine_timer, AGENT_ENGINE_TICK);
    agent_caps_removed();

    return 0;
}


int
agent_engine_owned(void)
{
    return agent_engine_owner_is(agent_engine_meta_fd);
}


void
agent_engine_look(void)
{
    agent_timer_set(&agent_engine_timer, 1);
}


void
agent_engine_stop(void)
{
    agent_timer_clear(&agent_engine_timer);
    agent_tcp_close();

    /* what has not begun can begin elsewhere */

    agent_queue_refuse("fenced", "The agent has ended meanwhile.");
    agent_queue_stop(SANDBOX_OUTCOME_LOST);
    agent_engine_refuse();
}


void
agent_engine_may_idle(unsigned seconds)
{
    agent_engine_idle = seconds ? seconds : AGENT_ENGINE_IDLE;
}


void
agent_engine_use(void)
{
    agent_engine_used = agent_now_ms();
    agent_engine_state.used_ms = agent_history_now();
    agent_engine_dirty = 1;
}


uint64_t
agent_engine_commands(void)
{
    return agent_engine_state.commands + agent.commands - agent_engine_counted;
}


int
agent_engine_meta(void)
{
    return agent_engine_meta_fd;
}


/* A bit for each of the variables that there have to be, if it is right. */

static unsigned
agent_engine_told(const char *entry)
{
    const char  *value;

    value = agent_engine_value(entry, "SECRET");

    if (value != NULL) {
        return agent_tcp_hex(value, agent.secret, sizeof(agent.secret)) == 0
               ? 1 : 0;
    }

    value = agent_engine_value(entry, "SESSION");

    if (value != NULL) {
        return agent_tcp_hex(value, agent.session, sizeof(agent.session)) == 0
               ? 2 : 0;
    }

    value = agent_engine_value(entry, "EPOCH");

    if (value != NULL) {
        return agent_engine_number(value, &agent_engine_epoch) == 0 ? 4 : 0;
    }

    value = agent_engine_value(entry, "NETWORK");

    if (value != NULL) {
        agent.network = strcmp(value, "open") == 0;
    }

    return 0;
}


static const char *
agent_engine_value(const char *entry, const char *name)
{
    size_t  n;

    entry += sizeof(AGENT_ENGINE_PREFIX) - 1;
    n = strlen(name);

    return strncmp(entry, name, n) == 0 && entry[n] == '=' ? entry + n + 1
                                                           : NULL;
}


static int
agent_engine_number(const char *text, uint64_t *number)
{
    char                *end;
    unsigned long long   value;

    if (*text < '0' || *text > '9') {
        return -1;
    }

    errno = 0;
    value = strtoull(text, &end, 10);

    if (errno || *end != '\0') {
        return -1;
    }

    *number = value;

    return 0;
}


/* What it starts can never have any of its capabilities. */

static int
agent_engine_capabilities(void)
{
    int                              i;
    struct __user_cap_header_struct  header;
    struct __user_cap_data_struct    data[2];

    for (i = 0; i < AGENT_ENGINE_CAPS; i++) {
        if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1
            && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) == -1)
        {
            break;
        }
    }

    (void) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

    header.version = _LINUX_CAPABILITY_VERSION_3;
    header.pid = 0;

    if (syscall(SYS_capget, &header, data) == -1) {
        return -1;
    }

    data[0].inheritable = 0;
    data[1].inheritable = 0;

    return (int) syscall(SYS_capset, &header, data);
}


/* Each with its owner, before anything of the user's can run. */

static int
agent_engine_volumes(void)
{
    int  fd;

    fd = open("/skills", O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1 || fchown(fd, 0, 0) == -1 || fchmod(fd, 0755) == -1) {
        agent_log("the volume at /skills can't be used: error %d", errno);
        return -1;
    }

    close(fd);
    fd = open(AGENT_HOME, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1 || fchown(fd, AGENT_UID, AGENT_GID) == -1) {
        agent_log("the volume at " AGENT_HOME " can't be used: error %d",
                  errno);
        return -1;
    }

    close(fd);

    agent_engine_meta_fd = open(AGENT_PLACE, O_RDONLY|O_DIRECTORY|O_NOFOLLOW
                                             |O_CLOEXEC);

    if (agent_engine_meta_fd == -1
        || fchown(agent_engine_meta_fd, 0, 0) == -1
        || fchmod(agent_engine_meta_fd, 0700) == -1)
    {
        agent_log("the volume at " AGENT_PLACE " can't be used: error %d",
                  errno);
        return -1;
    }

    return 0;
}


static int
agent_engine_take(void)
{
    int  rc;

    /* the agent of another session must not even be disturbed */

    if (agent_engine_known() == -1) {
        return 1;
    }

    rc = agent_engine_owner_take(agent_engine_meta_fd, agent_engine_epoch);

    if (rc == 1) {
        agent_log("a newer session of the engine has the volumes");
        return AGENT_ENGINE_FENCED;
    }

    if (rc == -1) {
        agent_log("the marker of " AGENT_PLACE " can't be written: error %d",
                  errno);
        return 1;
    }

    return 0;
}


/*
 * Of several that do one operation each none ends another: they wait for the
 * lock.  One that serves until it is idle has to go.
 */

static int
agent_engine_wait(void)
{
    int              rc;
    uint64_t         deadline;
    struct timespec  pause;

    deadline = agent_now_ms() + AGENT_ENGINE_WAIT;
    pause.tv_sec = 0;
    pause.tv_nsec = AGENT_ENGINE_POLL * 1000000;

    while (flock(agent_engine_locked, LOCK_EX|LOCK_NB) == -1) {

        if (!agent_engine_owner_once(agent_engine_meta_fd)) {
            rc = agent_engine_take();

            if (rc) {
                return rc;
            }
        }

        if (agent_now_ms() > deadline) {
            agent_log("others hold the lock for 60 s");
            return AGENT_ENGINE_BUSY;
        }

        if (agent_once_over()) {
            return AGENT_ENGINE_BUSY;
        }

        nanosleep(&pause, NULL);
    }

    return agent_engine_take();
}


static int
agent_engine_known(void)
{
    if (agent_engine_state_read(agent_engine_meta_fd) == 0) {
        return 0;
    }

    agent_log(errno == EXDEV
              ? "the volumes are those of another session: error %d"
              : "the state in " AGENT_PLACE " can't be read: error %d", errno);

    return -1;
}


/* 1: what is at the place of a volume is somebody else's. */

static int
agent_engine_mixed(void)
{
    agent_engine_state_t  *state;

    state = &agent_engine_state;

    return state->phase == AGENT_ENGINE_READY
           && (agent_engine_volume_known(AGENT_HOME, &state->home)
               == AGENT_ENGINE_OTHER
               || agent_engine_volume_known("/skills", &state->skills)
                  == AGENT_ENGINE_OTHER);
}


/* The agent before us sees the marker, and ends. */

static int
agent_engine_lock(void)
{
    uint64_t         deadline;
    struct timespec  pause;

    deadline = agent_now_ms() + AGENT_ENGINE_LOCK;
    pause.tv_sec = 0;
    pause.tv_nsec = AGENT_ENGINE_POLL * 1000000;

    while (flock(agent_engine_locked, LOCK_EX|LOCK_NB) == -1) {

        if (!agent_engine_owned()) {
            agent_log("another agent has taken the volumes meanwhile");
            return AGENT_ENGINE_FENCED;
        }

        if (agent_now_ms() > deadline) {
            agent_log("the agent before this one holds its lock for 15 s");
            return 1;
        }

        nanosleep(&pause, NULL);
    }

    /* one that waited for long may have been overtaken */

    if (!agent_engine_owned()) {
        agent_log("another agent has taken the volumes meanwhile");
        return AGENT_ENGINE_FENCED;
    }

    return 0;
}


static int
agent_engine_history(void)
{
    int  fd;

    fd = openat(agent_engine_meta_fd, "history",
                O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0600);

    if (fd == -1) {
        agent_log("the history in " AGENT_PLACE " can't be opened: error %d",
                  errno);
    }

    agent_history_init(fd);

    /* the disk is the engine's, not the sandbox's */

    if (agent_history_file.store.room > AGENT_ENGINE_OUTPUT) {
        agent_history_file.store.room = AGENT_ENGINE_OUTPUT;
    }

    agent_spool_init();

    return 0;
}


/* The first result of a sandbox is out: it is new no longer. */

static void
agent_engine_changed(void)
{
    agent_engine_dirty = 1;

    if (!agent_engine_state.told
        && agent_engine_state.phase == AGENT_ENGINE_READY
        && !agent_engine_untold())
    {
        agent_engine_save();
    }
}


static void
agent_engine_save(void)
{
    if (agent_engine_state.phase == AGENT_ENGINE_NONE
        || agent_engine_state.phase == AGENT_ENGINE_DELETING)
    {
        return;
    }

    agent_engine_state.commands += agent.commands - agent_engine_counted;
    agent_engine_counted = agent.commands;
    agent_engine_state.told = !agent_engine_untold();

    if (agent_engine_state_write(agent_engine_meta_fd) == -1) {
        agent_log("the state can't be written to " AGENT_PLACE ": error %d",
                  errno);
    }

    agent_engine_saved = agent_now_ms();
    agent_engine_dirty = 0;
}


/* 1: that it is new was said to nobody whose command has ended. */

static int
agent_engine_untold(void)
{
    agent_command_t  *command;

    if (agent.created || (agent.running != NULL && agent.running->created)) {
        return 1;
    }

    for (command = agent_queue_first();
         command != NULL;
         command = command->next)
    {
        if (command->created) {
            return 1;
        }
    }

    for (command = agent_background_first();
         command != NULL;
         command = command->next)
    {
        if (command->created) {
            return 1;
        }
    }

    return 0;
}


static void
agent_engine_tick(agent_timer_t *timer)
{
    uint64_t  idle;

    if (!agent_engine_owned()) {
        agent_log("another agent has the volumes: this one ends");
        agent_engine_stop();
        return;
    }

    idle = agent_engine_idle;

    /* somebody has asked whether there is one: names cost nothing to make up */

    if (agent_engine_state.phase == AGENT_ENGINE_NONE
        && idle > AGENT_ENGINE_UNUSED)
    {
        idle = AGENT_ENGINE_UNUSED;
    }

    if (agent_engine_busy()) {
        agent_engine_use();

    } else if (agent_now_ms() - agent_engine_used >= idle * 1000) {
        agent_log("nobody has used the sandbox for %u s: its agent ends, its "
                  "files stay", (unsigned) idle);
        agent_engine_stop();
        return;
    }

    if (agent_engine_dirty
        && agent_now_ms() - agent_engine_saved >= AGENT_ENGINE_SAVE)
    {
        agent_engine_save();
    }

    agent_timer_set(timer, AGENT_ENGINE_TICK);
}


static int
agent_engine_busy(void)
{
    agent_connection_t  *c;

    if (agent.running != NULL || agent.queued || agent.background
        || agent.left || agent.preparing)
    {
        return 1;
    }

    /* anybody can connect, and keeps nothing alive by it */

    for (c = agent_connection_first(); c != NULL; c = c->next) {
        if (c->parsed) {
            return 1;
        }
    }

    return 0;
}


/*
 * Nothing of the sandbox runs any more when the lock is given back, which
 * otherwise the kernel would do first.
 */

static void
agent_engine_exit(void)
{
    uint64_t         deadline;
    struct timespec  pause;

    deadline = agent_now_ms() + AGENT_ENGINE_SWEEP;
    pause.tv_sec = 0;
    pause.tv_nsec = AGENT_ENGINE_PAUSE * 1000000;

    while (agent_guard_sweep() == 0 && agent_now_ms() < deadline) {
        nanosleep(&pause, NULL);

        while (waitpid(-1, NULL, WNOHANG) > 0) { /* void */ }
    }

    /* what the time to stop was too short for has ended by that sweep */

    agent.commands += (agent.running != NULL) + agent.background;

    if (agent_engine_owned()) {
        agent_engine_save();
    }
}
