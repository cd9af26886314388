/*
 * The life of one command: prepared, started, heard, limited.  Its end is in
 * agent_end.c; its limits hold on for what it leaves running.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_stage.h"
#include "sandbox_utf8.h"


#define AGENT_COMMAND_READ     (64 * 1024)
#define AGENT_COMMAND_READS    4         /* of one pipe in one round */
#define AGENT_COMMAND_KILLS    10        /* tries, then it is answered */
#define AGENT_COMMAND_CHECK    10        /* ms, least between CPU checks */


static void agent_command_refuse(agent_command_t *command, const char *code,
    const char *detail);
static void agent_command_refuse_cwd(agent_command_t *command,
    const char *code);
static int agent_command_prepare(agent_command_t *command);
static int agent_command_pipe(int *ours, int *theirs, int out);
static void agent_command_head(agent_command_t *command);
static void agent_command_spawn(agent_command_t *command);
static void agent_command_output(agent_watch_t *watch, uint32_t events);
static void agent_command_background(agent_command_t *command);
static void agent_command_held(agent_timer_t *timer);
static uint64_t agent_command_clock(void);
static void agent_command_wall(agent_timer_t *timer);
static void agent_command_cpu(agent_timer_t *timer);
static void agent_command_cpu_set(agent_command_t *command, uint64_t used);
static void agent_command_wait(agent_timer_t *timer);
static void agent_command_close(agent_command_t *command);


static long  agent_command_processors = 1;


void
agent_command_init(void)
{
    long  n;

    /* it reads a file: not beside the first command */

    n = sysconf(_SC_NPROCESSORS_ONLN);

    if (n > 1) {
        agent_command_processors = n;
    }
}


agent_command_t *
agent_command_new(agent_connection_t *c, const agent_request_t *request)
{
    size_t              start;
    uint8_t             random[10];
    unsigned            i;
    agent_command_t    *command;

    command = calloc(1, sizeof(agent_command_t));
    if (command == NULL) {
        return NULL;
    }

    command->events = agent_events_new();

    if (command->events == NULL) {
        free(command);
        return NULL;
    }

    if (request->id != NULL) {
        memcpy(command->id, request->id, request->id_size);

    } else {
        if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
            agent_events_release(command->events);
            free(command);
            return NULL;
        }

        strcpy(command->id, "cmd_");

        for (i = 0; i < sizeof(random); i++) {
            sprintf(command->id + 4 + 2 * i, "%02x", random[i]);
        }
    }

    /* the request goes from the connection to the command, with its bytes */

    command->raw = c->in;
    command->raw_size = c->in_size;
    command->raw_have = c->in_have;
    c->in = NULL;
    c->in_size = 0;
    c->in_have = 0;

    command->stage = c->stage;
    c->stage = NULL;

    command->request = *request;
    start = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;
    command->input = command->raw + start;
    command->input_size = command->raw_have - start;
    command->sequence = c->sequence;
    command->accepted = c->accepted;
    command->ordinal = agent_history_ordinal();
    command->fresh = (c->preamble.flags & SANDBOX_FLAG_FRESH) && !c->fresh;
    command->created = agent.created || c->fresh;
    agent.created = 0;

    command->directory = -1;
    command->tree.directory = -1;
    command->in.fd = -1;
    command->in.handler = agent_stdin_event;
    command->in.data = command;
    command->input_open = request->stdin_open;
    command->emptied.fd = -1;

    for (i = 0; i < 2; i++) {
        command->out[i].fd = -1;
        command->out[i].handler = agent_command_output;
        command->out[i].data = command;
        agent_output_init(&command->output[i], request->output);
    }

    for (i = 0; i < 3; i++) {
        command->child_fd[i] = -1;
    }

    command->wall.handler = agent_command_wall;
    command->wall.data = command;
    command->cpu.handler = agent_command_cpu;
    command->cpu.data = command;
    command->wait.handler = agent_command_wait;
    command->wait.data = command;
    command->held.handler = agent_command_held;
    command->held.data = command;

    return command;
}


void
agent_command_start(agent_command_t *command)
{
    const char  *code;

    if (agent_stage_apply(command->stage) == -1) {
        agent_command_refuse(command, "stage_needed", "");
        return;
    }

    command->directory = agent_directory_open(command->request.cwd,
                                              command->request.cwd_size,
                                              command->cwd,
                                              sizeof(command->cwd), &code);
    if (command->directory == -1) {
        agent_command_refuse_cwd(command, code);
        return;
    }

    if (agent_tree_take(&command->tree) == -1
        || agent_command_prepare(command) == -1)
    {
        agent_log("a command could not be prepared: error %d", errno);
        agent_command_refuse(command, "spawn_failed", "The sandbox has no "
                             "descriptor or no memory for the command.");
        return;
    }

    agent_memory_start(command);
    command->disk_room = !agent_directory_full();

    /* whoever waits knows that it is accepted before anything has begun */

    command->state = AGENT_COMMAND_STARTING;
    command->history = agent_history_begin(command);
    agent_command_head(command);

    command->started = agent_now_us();
    agent_timer_set(&command->wall, command->request.wall_ms);

    agent_command_spawn(command);
}


void
agent_command_kill(agent_command_t *command, sandbox_outcome_e outcome)
{
    if (command->killed) {
        return;
    }

    command->killed = 1;
    command->outcome = outcome;
    command->attempts = 0;

    agent_watch_close(&command->in);
    agent_timer_clear(&command->cpu);
    agent_tree_kill(&command->tree);

    /* never ended here: whoever calls may still be at work with it */

    agent_timer_set(&command->wait, command->state == AGENT_COMMAND_STARTING
                                    || command->state == AGENT_COMMAND_LEFT
                                    ? 1 : AGENT_KILL_WAIT);
}


void
agent_command_free(agent_command_t *command)
{
    int                  directory;
    unsigned             i;
    agent_connection_t  *c;

    while ((c = command->waiting) != NULL) {
        command->waiting = c->peer;
        c->command = NULL;
        agent_connection_close(c);
    }

    (void) agent_spawn_error(&command->report, &directory);

    agent_command_close(command);
    agent_stdin_end(command, "command_ended");
    agent_watch_close(&command->emptied);
    agent_timer_clear(&command->wall);
    agent_timer_clear(&command->cpu);
    agent_timer_clear(&command->wait);
    agent_timer_clear(&command->held);
    agent_directory_close(command->directory);

    for (i = 0; i < 2; i++) {
        agent_output_free(&command->output[i]);
    }

    if (!agent_tree_release(&command->tree)) {
        agent_tree_abandon(&command->tree);
    }

    if (command->events != NULL) {
        agent_events_release(command->events);
    }

    if (command->stage != NULL) {
        agent_stage_free(command->stage);
    }

    agent.request_bytes -= command->raw_size;
    free(command->raw);
    free(command);
}


static void
agent_command_refuse(agent_command_t *command, const char *code,
    const char *detail)
{
    agent_connection_t  *c;

    agent.running = NULL;
    agent_stdin_end(command, "command_ended");

    /* nobody has heard of the new sandbox yet: the next command tells */

    if (command->created) {
        agent.created = 1;
    }

    while ((c = command->waiting) != NULL) {
        command->waiting = c->peer;
        c->command = NULL;

        if (strcmp(code, "stage_needed") == 0) {
            agent_stage_needed(c, command->stage, command->request.id,
                               command->request.id_size, command->sequence);

        } else {
            agent_connection_error(c, code, detail, 0);
        }
    }

    agent_command_free(command);
}


static void
agent_command_refuse_cwd(agent_command_t *command, const char *code)
{
    char             detail[1280];
    size_t           size;
    const char      *reason;
    const uint8_t   *path;

    path = command->request.cwd;
    size = command->request.cwd_size;

    reason = strcmp(code, "cwd_missing") == 0
             ? "is not there or is no directory that can be used"
             : "is not below " AGENT_HOME ", /skills or /tmp";

    if (size > 1024) {
        size = sandbox_utf8_head(path, 1024);
    }

    if (!sandbox_utf8_text(path, size)) {
        size = 0;
    }

    snprintf(detail, sizeof(detail), "The working directory %.*s%s%s.",
             (int) size, (const char *) path, size ? " " : "", reason);

    agent_command_refuse(command, code, detail);
}


/* Descriptors of the three streams, before HEAD promises anything. */

static int
agent_command_prepare(agent_command_t *command)
{
    int       rc;
    unsigned  i;

    /* as the user's, or /dev/stdout could not be opened by a command */

    agent_directory_user(1);

    rc = 0;

    for (i = 0; i < 2 && rc == 0; i++) {
        rc = agent_command_pipe(&command->out[i].fd,
                                &command->child_fd[i + 1], 0);
    }

    if (rc == 0 && (command->input_size || command->input_open)) {
        rc = agent_command_pipe(&command->in.fd, &command->child_fd[0], 1);
    }

    agent_directory_user(0);

    if (rc == -1) {
        return -1;
    }

    if (command->in.fd == -1) {
        command->child_fd[0] = STDIN_FILENO;     /* /dev/null */

    } else {
        agent_stdin_start(command);
    }

    return 0;
}


static int
agent_command_pipe(int *ours, int *theirs, int out)
{
    int  fds[2];

    if (pipe2(fds, O_CLOEXEC) == -1) {
        return -1;
    }

    *ours = fds[out];
    *theirs = fds[!out];

    return fcntl(*ours, F_SETFL, (out ? O_WRONLY : O_RDONLY)|O_NONBLOCK);
}


static void
agent_command_head(agent_command_t *command)
{
    size_t               size;
    uint8_t              head[512];
    agent_connection_t  *c, *next;

    size = agent_answer_head(head, sizeof(head), command->id);

    for (c = command->waiting; c != NULL; c = next) {
        next = c->peer;

        /* one that cancels it waits for its end; no request goes back now */

        agent_connection_forget(c);

        if (c->preamble.operation == SANDBOX_OPERATION_CANCEL) {
            continue;
        }

        if (agent_connection_send(c, head, size) == -1) {
            agent_connection_close(c);
            continue;
        }

        c->head_sent = 1;
    }
}


static void
agent_command_spawn(agent_command_t *command)
{
    int       error;
    unsigned  i;

    error = agent_spawn(command);

    if ((error == EAGAIN || error == ENOMEM)
        && (10 << command->attempts) < AGENT_SPAWN_WAIT)
    {
        /* a full process table may have room again in a moment */

        agent_timer_set(&command->wait, 10 << command->attempts++);
        return;
    }

    for (i = 0; i < 3; i++) {
        if (command->child_fd[i] > STDERR_FILENO) {
            close(command->child_fd[i]);
        }

        command->child_fd[i] = -1;
    }

    agent_directory_close(command->directory);
    command->directory = -1;

    if (error) {
        agent_command_not_started(command, error, 0);
        agent_end(command);
        return;
    }

    command->state = AGENT_COMMAND_RUNNING;
    agent_events_start(command->events, agent_command_clock());

    for (i = 0; i < 2; i++) {
        agent_watch_set(&command->out[i], EPOLLIN);
    }

    agent_command_cpu_set(command, 0);
    agent_command_push(command);

    if (command->in.fd != -1) {
        agent_stdin_start(command);
    }

    if (command->request.detach) {
        agent_command_background(command);
    }
}


/* Beside the queue from now on; who did not ask for its events has all. */

static void
agent_command_background(agent_command_t *command)
{
    agent_answer_t       *answer;
    agent_connection_t   *c, **p;

    agent.running = NULL;
    agent_background_add(command);
    agent_queue_ended();

    answer = agent_answer_state(command);
    p = &command->waiting;

    while ((c = *p) != NULL) {
        if (c->stream || c->preamble.operation == SANDBOX_OPERATION_CANCEL) {
            p = &c->peer;
            continue;
        }

        *p = c->peer;
        c->peer = NULL;
        c->command = NULL;

        if (answer == NULL) {
            agent_connection_close(c);

        } else {
            agent_connection_answer(c, answer);
        }
    }

    if (answer != NULL) {
        agent_answer_release(answer);
    }
}


/*
 * After HEAD there is no ERROR: it is a result, and its stderr says what a
 * shell would say.
 */

void
agent_command_not_started(agent_command_t *command, int error, int directory)
{
    int          n;
    char         text[AGENT_MAX_PATH + 128];
    const char  *reason;

    reason = error == EAGAIN ? "too many processes" : strerror(error);

    if (directory) {
        n = snprintf(text, sizeof(text), "sandbox: %s: %s\n", command->cwd,
                     reason);

    } else {
        n = snprintf(text, sizeof(text), "sandbox: the shell can't be "
                     "started: %s\n", reason);
    }

    agent_output_add(&command->output[1], (uint8_t *) text, n);
    agent_events_add(command->events, 1, (uint8_t *) text, n);

    agent_log("a command could not be started: error %d, %s", error, reason);

    command->spawn_failed = 1;
    command->locked = directory;
    command->signalled = 0;
    command->code = 126;
}


static void
agent_command_output(agent_watch_t *watch, uint32_t events)
{
    agent_command_t  *command;

    command = watch->data;

    agent_command_drain(command, watch == &command->out[1],
                        AGENT_COMMAND_READS);
    agent_command_total(command);
    agent_command_push(command);

    if (command->events != NULL && agent_events_held(command->events)) {
        agent_timer_set(&command->held, AGENT_HELD_WAIT);
    }
}


void
agent_command_push(agent_command_t *command)
{
    agent_connection_t  *c, *next;

    for (c = command->waiting; c != NULL; c = next) {
        next = c->peer;
        agent_connection_push(c);
    }
}


/* The rest of a character did not come: perhaps it was none. */

static void
agent_command_held(agent_timer_t *timer)
{
    agent_command_t  *command;

    command = timer->data;

    if (command->events != NULL) {
        agent_events_flush(command->events);
        agent_command_push(command);
    }
}


/* Unix time in ms. */

static uint64_t
agent_command_clock(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_REALTIME, &t);

    return (uint64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}


void
agent_command_drain(agent_command_t *command, unsigned stream, unsigned reads)
{
    ssize_t         n;
    agent_watch_t  *watch;
    static uint8_t  buffer[AGENT_COMMAND_READ];

    watch = &command->out[stream];

    while (watch->fd != -1 && reads--) {
        n = read(watch->fd, buffer, sizeof(buffer));

        if (n == -1) {
            if (errno == EAGAIN || errno == EINTR) {
                return;
            }

            n = 0;
        }

        if (n == 0) {
            agent_watch_close(watch);
            return;
        }

        /* what comes after the answer is read away, so nobody blocks */

        if (command->state == AGENT_COMMAND_LEFT) {
            command->output[stream].total += n;

        } else {
            agent_output_add(&command->output[stream], buffer, n);
            agent_events_add(command->events, stream, buffer, n);
        }
    }
}


void
agent_command_total(agent_command_t *command)
{
    if (command->output[0].total + command->output[1].total
        <= command->request.output_total
        || command->killed)
    {
        return;
    }

    agent_command_kill(command, SANDBOX_OUTCOME_OUTPUT_LIMIT);
}


static void
agent_command_wall(agent_timer_t *timer)
{
    agent_command_kill(timer->data, SANDBOX_OUTCOME_TIMEOUT);
}


static void
agent_command_cpu(agent_timer_t *timer)
{
    uint64_t          used;
    agent_command_t  *command;

    command = timer->data;
    used = agent_tree_cpu(&command->tree);

    if (used >= command->request.cpu_ms * 1000) {
        agent_command_kill(command, SANDBOX_OUTCOME_CPU_LIMIT);
        return;
    }

    agent_command_cpu_set(command, used);
}


/* All processors together can't use up what is left before the next look. */

static void
agent_command_cpu_set(agent_command_t *command, uint64_t used)
{
    uint64_t  left;

    left = (command->request.cpu_ms - used / 1000)
           / agent_command_processors;

    agent_timer_set(&command->cpu, left > AGENT_COMMAND_CHECK
                                   ? left : AGENT_COMMAND_CHECK);
}


static void
agent_command_wait(agent_timer_t *timer)
{
    agent_command_t  *command;

    command = timer->data;

    switch (command->state) {

    case AGENT_COMMAND_QUEUED:
        break;

    case AGENT_COMMAND_STARTING:
        if (command->killed) {
            agent_end(command);

        } else {
            agent_command_spawn(command);
            agent_queue_process();
        }

        break;

    case AGENT_COMMAND_RUNNING:

        /* killed a while ago: stuck in the kernel, or not yet reaped */

        if (++command->attempts == AGENT_COMMAND_KILLS) {
            agent_log("a killed command does not end; it is answered now");
            agent_end(command);
            break;
        }

        if (command->attempts == AGENT_COMMAND_KILLS - 1
            && command->tree.number == 0
            && agent.left + agent.background + (agent.running != NULL) <= 1)
        {
            /* all there is here belongs to it, its keeper, too */

            (void) agent_guard_sweep();
        }

        agent_tree_kill(&command->tree);
        agent_timer_set(timer, AGENT_KILL_WAIT);
        break;

    case AGENT_COMMAND_ENDING:
        if (!command->killed) {
            if (agent_caps_settle(command)) {
                agent_timer_set(timer, AGENT_COMMAND_CHECK);

            } else {
                agent_end(command);
            }

            break;
        }

        agent_reap();

        if (agent_tree_count(&command->tree) == 0
            || agent_now_us() - command->ended
               > AGENT_COMMAND_KILLS * AGENT_KILL_WAIT * 1000)
        {
            agent_end(command);
            break;
        }

        agent_tree_kill(&command->tree);
        agent_timer_set(timer, 2);
        break;

    case AGENT_COMMAND_LEFT:
        agent_left_check(command);
        break;
    }
}


static void
agent_command_close(agent_command_t *command)
{
    unsigned  i;

    agent_watch_close(&command->in);
    agent_watch_close(&command->out[0]);
    agent_watch_close(&command->out[1]);

    for (i = 0; i < 3; i++) {
        if (command->child_fd[i] > STDERR_FILENO) {
            close(command->child_fd[i]);
        }
    }
}
