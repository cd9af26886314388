/*
 * The caps of a sandbox that no cgroup holds: when to look what is used, and
 * who is to end when it is too much.  Looking is the concern of others.
 *
 * Memory and processes are looked at ten times a second while anything runs,
 * more often near a cap; what that look says is never too little.  Only what
 * a slower one confirms, which counts shared pages once, is over the cap.  The
 * disk has a look every few seconds, and when its free space shrinks.
 */

#include "agent.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_measure.h"


#define AGENT_CAPS_MIB         ((uint64_t) 1024 * 1024)

/* milliseconds */

#define AGENT_CAPS_FIRST       20        /* after a start */
#define AGENT_CAPS_OFTEN       10
#define AGENT_CAPS_SELDOM      100
#define AGENT_CAPS_PEAK        200       /* between looks for the peak only */
#define AGENT_CAPS_MEMORY_LOOK 2000
#define AGENT_CAPS_DISK_LOOK   2000
#define AGENT_CAPS_DISK_SELDOM 60000     /* where nothing was written */
#define AGENT_CAPS_DISK_OFTEN  200
#define AGENT_CAPS_DISK_IDLE   500
#define AGENT_CAPS_MEMORY_MOST 10000     /* then it is ended */
#define AGENT_CAPS_DISK_MOST   40000
#define AGENT_CAPS_KILLED      2000      /* until what was ended is gone */
#define AGENT_CAPS_SWEEP       500       /* until ending one was enough */
#define AGENT_CAPS_SETTLE      1000      /* an answer waits for the disk */

#define AGENT_CAPS_QUICK       50        /* of the disk: again at once */

#define AGENT_CAPS_SHARE       20        /* 1/20 of the time for looking */
#define AGENT_CAPS_MUCH        2         /* 1/2 of what the disk has left */
#define AGENT_CAPS_LITTLE      64
#define AGENT_CAPS_FAST        (4 * AGENT_CAPS_MIB)      /* bytes in a ms */
#define AGENT_CAPS_STEP        (16 * AGENT_CAPS_MIB)     /* of the peak */
#define AGENT_CAPS_TIDY        (16 * AGENT_CAPS_MIB)     /* on a full disk */
#define AGENT_CAPS_ROOM        AGENT_CAPS_MIB

/* tasks of the commands' user on the whole host: it has one number there */

#define AGENT_CAPS_TASKS       1024      /* for each processor */
#define AGENT_CAPS_TASKS_LEAST 4096


/* a process that measures */

typedef struct {
    agent_watch_t          watch;
    pid_t                  pid;          /* 0: none */
    uint64_t               started;      /* ms */
    uint64_t               ended;
    uint64_t               took;
    uint64_t               free;         /* bytes of home's mount, then */
    unsigned               wanted:1;
} agent_caps_look_t;


static void agent_caps_look(agent_timer_t *timer);
static void agent_caps_overdue(agent_caps_look_t *look, uint64_t most);
static uint64_t agent_caps_memory(void);
static void agent_caps_disk(int busy);
static void agent_caps_measure(agent_measure_e what);
static void agent_caps_measured(agent_watch_t *watch, uint32_t events);
static void agent_caps_judge_memory(const agent_measured_t *measured);
static void agent_caps_judge_disk(void);
static void agent_caps_crowded(uint64_t tasks);
static int agent_caps_ending(void);
static void agent_caps_end_all(uint64_t tasks);
static agent_command_t *agent_caps_worst(int tasks);
static agent_command_t *agent_caps_next(agent_command_t *command,
    unsigned *list);
static void agent_caps_end(agent_command_t *command,
    sandbox_outcome_e outcome, const char *what, uint64_t used, uint64_t cap);
static void agent_caps_peak(uint64_t bytes);
static uint64_t agent_caps_total(uint64_t own, uint64_t shared,
    uint64_t files);
static uint64_t agent_caps_free(void);
static int agent_caps_shrunk(unsigned part);


static agent_timer_t      agent_caps_timer = { .handler = agent_caps_look };
static agent_caps_look_t  agent_caps_looks[2];
static agent_usage_t      agent_caps_usage;
static uint64_t           agent_caps_nameless;   /* bytes, as last seen */
static uint64_t           agent_caps_files;      /* when a command began */
static uint64_t           agent_caps_used;       /* disk, when it began */
static uint64_t           agent_caps_began;      /* ms */
static int                agent_caps_unsure;     /* used is not known yet */
static uint64_t           agent_caps_new;        /* that no look has seen */
static uint64_t           agent_caps_walked;     /* disk, as last seen */
static uint64_t           agent_caps_removed_open;       /* and has no name */
static uint64_t           agent_caps_peak_known;
static uint64_t           agent_caps_last;       /* ms: something was ended */


void
agent_caps_start(void)
{
    if (!agent.tcp) {
        return;
    }

    agent_caps_files = agent_measure_files() + agent_caps_nameless;
    agent_caps_used = 0;

    /* what was known of a full disk is old: somebody was just ended for it */

    agent_caps_unsure = !agent.measured || agent_caps_full();
    agent_caps_began = agent_now_ms();
    agent_caps_peak_known = 0;

    /* never later than it would have been: others may be at work */

    if (!agent_caps_timer.active
        || agent_caps_timer.when > agent_now_ms() + AGENT_CAPS_FIRST)
    {
        agent_timer_set(&agent_caps_timer, AGENT_CAPS_FIRST);
    }
}


void
agent_caps_ended(pid_t keeper, uint64_t memory, uint64_t written)
{
    unsigned          list;
    agent_command_t  *command;

    list = 0;

    for (command = agent_caps_next(NULL, &list); command != NULL;
         command = agent_caps_next(command, &list))
    {
        if (command->pid == keeper) {
            command->written = written;

            if (memory > command->memory_peak) {
                command->memory_peak = memory;
            }

            return;
        }
    }
}


int
agent_caps_settle(agent_command_t *command)
{
    uint64_t            least;
    agent_caps_look_t  *look;

    look = &agent_caps_looks[AGENT_MEASURE_DISK];

    if (!agent.tcp || command->code == 0 || command->spawn_failed
        || command->killed || !command->disk_room || agent_caps_full()
        || agent_now_us() - command->ended > AGENT_CAPS_SETTLE * 1000)
    {
        return 0;
    }

    if (look->pid) {
        return 1;
    }

    if (look->started * 1000 > command->ended) {
        return 0;
    }

    least = agent.measured && agent.caps.disk > agent.used.disk
            ? (agent.caps.disk - agent.used.disk) / AGENT_CAPS_MUCH
            : AGENT_CAPS_ROOM;

    if (command->written < least && !agent_caps_shrunk(AGENT_CAPS_MUCH)) {
        return 0;
    }

    agent_caps_measure(AGENT_MEASURE_DISK);

    return look->pid != 0;
}


void
agent_caps_now(void)
{
    agent_caps_walked = agent_measure_disk(AGENT_CAPS_SETTLE);
    agent.used.disk = agent_caps_walked;
    agent.measured = 1;
}


int
agent_caps_full(void)
{
    return !agent_caps_room(AGENT_CAPS_ROOM);
}


int
agent_caps_room(uint64_t bytes)
{
    uint64_t  used;

    /* when that is not known, what has come since then */

    used = agent.measured ? agent.used.disk : agent_caps_new;

    return agent.caps.disk == 0
           || (used <= agent.caps.disk && bytes <= agent.caps.disk - used);
}


void
agent_caps_written(uint64_t bytes)
{
    if (!agent.tcp) {
        return;
    }

    agent.used.disk += bytes;
    agent_caps_walked += bytes;
    agent_caps_new += bytes;
    agent_caps_looks[AGENT_MEASURE_DISK].wanted = 1;

    if (!agent_caps_timer.active) {
        agent_timer_set(&agent_caps_timer, AGENT_CAPS_FIRST);
    }
}


void
agent_caps_removed(void)
{
    agent.measured = 0;
    agent_caps_new = 0;
    agent_caps_written(0);
}


/* On a full disk files can get shorter, and go. */

rlim_t
agent_caps_file(void)
{
    if (!agent.tcp || agent.caps.disk == 0) {
        return RLIM_INFINITY;
    }

    return agent_caps_full() ? 0 : (rlim_t) agent.caps.disk;
}


rlim_t
agent_caps_tasks(void)
{
    long           n;
    static rlim_t  most;

    if (!agent.tcp) {
        return RLIM_INFINITY;
    }

    if (most == 0) {
        n = sysconf(_SC_NPROCESSORS_ONLN);
        most = n > 0 ? (rlim_t) n * AGENT_CAPS_TASKS : AGENT_CAPS_TASKS;

        if (most < AGENT_CAPS_TASKS_LEAST) {
            most = AGENT_CAPS_TASKS_LEAST;
        }
    }

    return most;
}


static void
agent_caps_look(agent_timer_t *timer)
{
    int       busy;
    uint64_t  next;

    busy = agent.running != NULL || agent.background || agent.left;

    agent_caps_overdue(&agent_caps_looks[AGENT_MEASURE_MEMORY],
                       AGENT_CAPS_MEMORY_MOST);
    agent_caps_overdue(&agent_caps_looks[AGENT_MEASURE_DISK],
                       AGENT_CAPS_DISK_MOST);

    next = busy ? agent_caps_memory() : 0;
    agent_caps_disk(busy);

    if (!busy) {
        agent_caps_nameless = 0;
        agent_caps_removed_open = 0;
        agent.used.memory = agent_measure_files();
        agent.used.processes = 0;

        if (!agent_caps_looks[AGENT_MEASURE_DISK].wanted
            && agent_caps_looks[AGENT_MEASURE_DISK].pid == 0
            && agent_caps_looks[AGENT_MEASURE_MEMORY].pid == 0)
        {
            return;
        }

        next = AGENT_CAPS_DISK_IDLE;
    }

    agent_timer_set(timer, next);
}


/* A process that holds another one up as it is looked into holds us not. */

static void
agent_caps_overdue(agent_caps_look_t *look, uint64_t most)
{
    if (look->pid && agent_now_ms() - look->started > most) {
        (void) kill(look->pid, SIGKILL);
    }
}


/* Milliseconds until the next look. */

static uint64_t
agent_caps_memory(void)
{
    uint64_t            start, since, cost, total, next, left;
    agent_usage_t      *usage;
    agent_caps_look_t  *look;

    start = agent_now_us();
    look = &agent_caps_looks[AGENT_MEASURE_MEMORY];
    usage = &agent_caps_usage;

    agent_measure_quick(usage);

    total = agent_caps_total(usage->own, usage->shared, usage->files);
    agent.used.processes = usage->tasks;
    agent.used.memory = total;
    since = agent_now_ms() - look->ended;

    if (usage->tasks > agent.caps.processes) {
        agent_caps_crowded(usage->tasks);
    }

    /* what is shared by several makes a peak that never was */

    if (usage->processes <= 1
        || total <= agent_caps_peak_known + AGENT_CAPS_STEP)
    {
        agent_caps_peak(total < agent.caps.memory ? total
                                                  : agent.caps.memory);

    } else if (since >= AGENT_CAPS_PEAK && since >= 4 * look->took) {
        agent_caps_measure(AGENT_MEASURE_MEMORY);
    }

    /* what only the slow one sees is looked for without a reason */

    if (total > agent.caps.memory ? since >= 2 * look->took
        : since >= AGENT_CAPS_MEMORY_LOOK && since >= 20 * look->took)
    {
        agent_caps_measure(AGENT_MEASURE_MEMORY);
    }

    /* the faster it can be over the cap, the sooner */

    left = total < agent.caps.memory ? agent.caps.memory - total : 0;
    next = left / AGENT_CAPS_FAST;

    if (next > AGENT_CAPS_SELDOM) {
        next = AGENT_CAPS_SELDOM;
    }

    if (next < AGENT_CAPS_OFTEN || usage->tasks > agent.caps.processes / 2) {
        next = AGENT_CAPS_OFTEN;
    }

    cost = (agent_now_us() - start) * AGENT_CAPS_SHARE / 1000;

    return cost > next ? cost : next;
}


static void
agent_caps_disk(int busy)
{
    uint64_t            now, since, most;
    agent_caps_look_t  *look;

    look = &agent_caps_looks[AGENT_MEASURE_DISK];
    now = agent_now_ms();

    if (look->pid) {
        return;
    }

    since = now - look->ended;
    most = agent_caps_shrunk(AGENT_CAPS_LITTLE) ? AGENT_CAPS_DISK_LOOK
                                                : AGENT_CAPS_DISK_SELDOM;

    if (most < look->took * AGENT_CAPS_SHARE) {
        most = look->took * AGENT_CAPS_SHARE;
    }

    if (!agent.measured
        || (busy && since >= most)
        || (since >= AGENT_CAPS_DISK_OFTEN && since >= 3 * look->took
            && (look->wanted
                || (busy && agent_caps_shrunk(AGENT_CAPS_MUCH)))))
    {
        agent_caps_measure(AGENT_MEASURE_DISK);
    }
}


static void
agent_caps_measure(agent_measure_e what)
{
    agent_caps_look_t  *look;

    look = &agent_caps_looks[what];

    if (look->pid) {
        return;
    }

    look->started = agent_now_ms();
    look->ended = look->started;
    look->free = agent_caps_free();
    look->wanted = 0;

    if (what == AGENT_MEASURE_DISK) {
        agent_caps_new = 0;
    }

    look->watch.handler = agent_caps_measured;
    look->watch.data = look;
    look->pid = agent_measure_start(what, &look->watch.fd);

    if (look->pid == -1
        || agent_watch_set(&look->watch, EPOLLIN) == -1)
    {
        if (look->pid != -1) {
            agent_watch_close(&look->watch);
        }

        agent_log("what the sandbox uses can't be measured: no process for "
                  "it");
        look->pid = 0;
    }
}


/* Its answer; or its end without one. */

static void
agent_caps_measured(agent_watch_t *watch, uint32_t events)
{
    ssize_t             n;
    agent_measured_t    measured;
    agent_caps_look_t  *look;

    memset(&measured, 0, sizeof(measured));

    look = watch->data;
    n = read(watch->fd, &measured, sizeof(measured));

    agent_watch_close(watch);
    look->pid = 0;
    look->ended = agent_now_ms();
    look->took = look->ended - look->started;

    if (look == &agent_caps_looks[AGENT_MEASURE_MEMORY]) {

        if (n != sizeof(measured)) {

            /* it was ended, perhaps for lack of memory: the quick one counts */

            measured.own = agent_caps_usage.own;
            measured.shared = agent_caps_usage.shared;
            measured.files = agent_caps_usage.files;

        } else {
            agent_caps_nameless = measured.nameless;
            agent_caps_removed_open = measured.removed;
        }

        agent_caps_judge_memory(&measured);

    } else if (n == sizeof(measured)) {

        /* what came meanwhile was seen, or not: once more, soon */

        agent_caps_walked = measured.disk + agent_caps_new;
        agent.measured = 1;

        if (agent_caps_unsure && look->started > agent_caps_began) {
            agent_caps_used = agent_caps_walked + agent_caps_removed_open;
            agent_caps_unsure = 0;
        }

        if (agent_caps_new && look->took < AGENT_CAPS_QUICK) {
            agent_caps_measure(AGENT_MEASURE_DISK);
        }

        agent_caps_judge_disk();
    }
}


static void
agent_caps_judge_memory(const agent_measured_t *measured)
{
    uint64_t          total, files, limit;
    agent_command_t  *command;

    total = agent_caps_total(measured->own, measured->shared,
                             measured->files);
    files = measured->files + agent_caps_nameless;
    limit = agent.caps.memory;

    agent.used.memory = total;
    agent_caps_peak(total);

    if (agent.measured) {
        agent_caps_judge_disk();
    }

    /* who finds it full of files must be able to remove them */

    if (agent_caps_files > limit - limit / 16) {
        limit = agent_caps_files + limit / 16;
    }

    if (total <= limit || agent_caps_ending()) {
        return;
    }

    command = NULL;

    if (measured->own + measured->shared > files || agent.running == NULL) {
        command = agent_caps_worst(0);
    }

    if (command == NULL) {
        command = agent.running;
    }

    if (command != NULL) {
        agent_caps_end(command, SANDBOX_OUTCOME_OOM, "memory",
                       total / AGENT_CAPS_MIB,
                       agent.caps.memory / AGENT_CAPS_MIB);
    }
}


static void
agent_caps_judge_disk(void)
{
    uint64_t          limit;
    unsigned          list;
    agent_command_t  *command;

    agent.used.disk = agent_caps_walked + agent_caps_removed_open;
    command = agent.running;
    limit = agent.caps.disk;

    /* who finds it full may tidy up, and must not add to it */

    if (agent_caps_used > limit) {
        limit = agent_caps_used + AGENT_CAPS_TIDY;
    }

    if (agent.used.disk <= limit || agent_caps_ending()) {
        return;
    }

    if (agent_caps_unsure && command != NULL) {
        agent_caps_looks[AGENT_MEASURE_DISK].wanted = 1;
        return;
    }

    if (command == NULL) {
        list = 0;
        command = agent_caps_next(NULL, &list);
    }

    if (command != NULL) {
        agent_caps_end(command, SANDBOX_OUTCOME_DISK_FULL, "disk",
                       agent.used.disk / AGENT_CAPS_MIB,
                       agent.caps.disk / AGENT_CAPS_MIB);
    }
}


/*
 * The one with most of them ends.  Where that is not enough, or there are so
 * many that it would be a race with them, all that the user has is ended by
 * one call, which nobody outruns.
 */

static void
agent_caps_crowded(uint64_t tasks)
{
    int               all;
    agent_command_t  *command;

    all = agent.background + agent.left + (agent.running != NULL) <= 1
          || tasks > 8 * agent.caps.processes;

    if (agent_caps_ending()) {
        if (agent_now_ms() - agent_caps_last < AGENT_CAPS_SWEEP) {
            return;
        }

        all = 1;
    }

    if (all) {
        (void) agent_guard_sweep();
        agent_caps_end_all(tasks);
        return;
    }

    command = agent_caps_worst(1);

    if (command != NULL) {
        agent_caps_end(command, SANDBOX_OUTCOME_SIGNAL, "processes", tasks,
                       agent.caps.processes);
    }
}


/* 1: one that was ended just now may still have what it had. */

static int
agent_caps_ending(void)
{
    unsigned          list;
    agent_command_t  *command;

    if (agent_caps_last == 0
        || agent_now_ms() - agent_caps_last > AGENT_CAPS_KILLED)
    {
        return 0;
    }

    list = 0;

    for (command = agent_caps_next(NULL, &list); command != NULL;
         command = agent_caps_next(command, &list))
    {
        if (command->killed && agent_tree_count(&command->tree)) {
            return 1;
        }
    }

    return 0;
}


static void
agent_caps_end_all(uint64_t tasks)
{
    unsigned          list;
    agent_command_t  *command;

    list = 0;

    for (command = agent_caps_next(NULL, &list); command != NULL;
         command = agent_caps_next(command, &list))
    {
        agent_caps_end(command, SANDBOX_OUTCOME_SIGNAL, "processes", tasks,
                       agent.caps.processes);
    }
}


/* The one with most memory, or most tasks; NULL: none has any. */

static agent_command_t *
agent_caps_worst(int tasks)
{
    uint64_t          bytes, count, most;
    unsigned          list;
    agent_command_t  *command, *worst;

    agent_measure_quick(&agent_caps_usage);

    worst = NULL;
    most = 0;
    list = 0;

    for (command = agent_caps_next(NULL, &list); command != NULL;
         command = agent_caps_next(command, &list))
    {
        if (command->tree.keeper == 0) {
            continue;
        }

        agent_measure_share(command->tree.keeper, &bytes, &count);

        if ((tasks ? count : bytes) > most) {
            most = tasks ? count : bytes;
            worst = command;
        }
    }

    return worst;
}


/* All that run or have left something, one after the other. */

static agent_command_t *
agent_caps_next(agent_command_t *command, unsigned *list)
{
    command = command != NULL && *list ? command->next : NULL;

    while (command == NULL && *list < 3) {
        switch ((*list)++) {

        case 0:
            command = agent.running;
            break;

        case 1:
            command = agent_background_first();
            break;

        default:
            command = agent_left_first();
        }
    }

    return command;
}


static void
agent_caps_end(agent_command_t *command, sandbox_outcome_e outcome,
    const char *what, uint64_t used, uint64_t cap)
{
    /* what has ended by itself is judged by its own end */

    if (command->killed || command->state == AGENT_COMMAND_ENDING) {
        return;
    }

    agent_log("a command is ended: %s %llu, the cap is %llu", what,
              (unsigned long long) used, (unsigned long long) cap);

    command->crowded = outcome == SANDBOX_OUTCOME_SIGNAL;
    agent_caps_nameless = 0;
    agent_caps_removed_open = 0;
    agent_caps_last = agent_now_ms();
    agent_command_kill(command, outcome);
}


static void
agent_caps_peak(uint64_t bytes)
{
    unsigned          list;
    agent_command_t  *command;

    if (bytes <= agent_caps_peak_known) {
        return;
    }

    agent_caps_peak_known = bytes;
    list = 0;

    for (command = agent_caps_next(NULL, &list); command != NULL;
         command = agent_caps_next(command, &list))
    {
        if (bytes > command->memory_peak) {
            command->memory_peak = bytes;
        }
    }
}


/* Files of memory are mapped, or not: what is the same must not count twice. */

static uint64_t
agent_caps_total(uint64_t own, uint64_t shared, uint64_t files)
{
    files += agent_caps_nameless;

    return own + (shared > files ? shared : files);
}


static uint64_t
agent_caps_free(void)
{
    struct statfs  fs;

    return statfs(AGENT_HOME, &fs) == 0
           ? (uint64_t) fs.f_bfree * fs.f_bsize : 0;
}


/* 1: that part of what it had left may be gone since the last look. */

static int
agent_caps_shrunk(unsigned part)
{
    uint64_t  now, then, left;

    if (!agent.measured || agent.caps.disk == 0) {
        return 0;
    }

    then = agent_caps_looks[AGENT_MEASURE_DISK].free;
    now = agent_caps_free();
    left = agent_caps_room(0) ? agent.caps.disk - agent.used.disk : 0;

    return then > now && then - now > left / part;
}
