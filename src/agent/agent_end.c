/*
 * The end of a command: why it ended, what it took, and its answer to all who
 * wait for it.
 */

#include "agent.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "agent_caps.h"


#define AGENT_END_DRAIN      32          /* reads of a pipe, 64 KiB each */
#define AGENT_END_CPU_SLACK  50000       /* us, clocks differ */


static agent_command_t *agent_end_find(pid_t pid);
static void agent_end_exited(agent_command_t *command, int status,
    uint64_t cpu);
static void agent_end_drain(agent_command_t *command);
static void agent_end_judge(agent_command_t *command);
static agent_answer_t *agent_end_answer(agent_command_t *command);
static void agent_end_deliver(agent_command_t *command,
    agent_connection_t *waiting, agent_answer_t *answer);


int
agent_end_reaped(pid_t pid, int status, uint64_t cpu)
{
    agent_command_t  *command;

    command = agent_end_find(pid);

    if (command == NULL) {
        return 0;
    }

    agent_end_exited(command, status, cpu);

    return 1;
}


void
agent_end_cancel(agent_command_t *command, sandbox_outcome_e outcome)
{
    agent_connection_t  *waiting;

    if (command->request.cwd != NULL) {
        memcpy(command->cwd, command->request.cwd, command->request.cwd_size);

    } else {
        strcpy(command->cwd, AGENT_HOME);
    }

    command->outcome = outcome;
    command->killed = 1;
    waiting = command->waiting;
    command->waiting = NULL;
    agent_end_deliver(command, waiting, agent_end_answer(command));
    agent_command_free(command);
}


void
agent_end(agent_command_t *command)
{
    int                  foreground;
    uint64_t             cpu;
    agent_answer_t      *answer;
    agent_connection_t  *waiting;

    if (command->ended == 0) {
        command->ended = agent_now_us();
    }

    agent_timer_clear(&command->wait);
    agent_timer_clear(&command->held);
    agent_watch_close(&command->in);

    /* what else was killed may have written after the shell's end */

    if (command->killed) {
        agent_end_drain(command);
        cpu = agent_tree_cpu(&command->tree);

        if (cpu > command->cpu_used) {
            command->cpu_used = cpu;
        }
    }

    agent_end_judge(command);

    if (agent_caps_full()) {
        agent_caps_removed();
    }

    command->processes = agent_tree_left(&command->tree);

    answer = agent_end_answer(command);
    waiting = command->waiting;
    command->waiting = NULL;

    foreground = command == agent.running;

    if (foreground) {
        agent.running = NULL;

    } else {
        agent_background_remove(command);
    }

    if (command->processes) {
        agent_left_add(command);
    }

    /* who has the answer and asks the runner must not find it running */

    agent.commands++;

    if (foreground) {
        agent_queue_ended();

    } else {
        agent_control_state();
    }

    agent_end_deliver(command, waiting, answer);
    agent_stdin_end(command, "command_ended");

    if (command->state != AGENT_COMMAND_LEFT) {
        agent_command_free(command);
    }

    agent_queue_process();
}


static agent_command_t *
agent_end_find(pid_t pid)
{
    agent_command_t  *command;

    command = agent.running;

    if (command != NULL && command->pid == pid) {
        return command;
    }

    for (command = agent_background_first(); command != NULL;
         command = command->next)
    {
        if (command->pid == pid) {
            break;
        }
    }

    return command;
}


static void
agent_end_exited(agent_command_t *command, int status, uint64_t cpu)
{
    int       error, directory;
    unsigned  left;

    error = agent_spawn_error(&command->report, &directory);
    command->pid = 0;
    command->ended = agent_now_us();

    command->signalled = WIFSIGNALED(status);
    command->code = command->signalled ? WTERMSIG(status)
                                       : WEXITSTATUS(status);

    if (error) {
        agent_command_not_started(command, error, directory);
    }

    /*
     * What the shell and its children wrote before is in the pipes.  Nobody
     * waits for their end: it may be far away.
     */

    agent_end_drain(command);

    left = agent_tree_left(&command->tree);
    command->cpu_used = agent_tree_cpu(&command->tree);

    /* a keeper may be gone by now; what it said is as good */

    if (command->cpu_used == 0
        || (command->tree.number == 0 && command->cpu_used < cpu))
    {
        command->cpu_used = cpu;
    }

    if ((command->killed && left) || agent_caps_settle(command)) {
        command->state = AGENT_COMMAND_ENDING;
        agent_timer_set(&command->wait, 1);
        return;
    }

    agent_end(command);
}


/* All that is in the pipes now: at most what a pipe can be made to hold. */

static void
agent_end_drain(agent_command_t *command)
{
    agent_command_drain(command, 0, AGENT_END_DRAIN);
    agent_command_drain(command, 1, AGENT_END_DRAIN);
    agent_command_total(command);
}


/* Why it ended, where that was not our doing. */

static void
agent_end_judge(agent_command_t *command)
{
    int  oom, killed, exceeded;

    oom = agent_memory_end(command);

    if (command->outcome != SANDBOX_OUTCOME_EXIT) {
        return;
    }

    killed = command->signalled ? command->code == SIGKILL
                                : command->code == 128 + SIGKILL;

    if (oom && killed) {
        command->outcome = SANDBOX_OUTCOME_OOM;
        return;
    }

    /* the kernel's limit for one process came before the tree's */

    exceeded = command->signalled ? command->code == SIGXCPU
                                  : command->code == 128 + SIGXCPU;

    if ((exceeded && command->cpu_used * 2 >= command->request.cpu_ms * 1000)
        || (killed && command->cpu_used + AGENT_END_CPU_SLACK
                      >= command->request.cpu_ms * 1000))
    {
        command->outcome = SANDBOX_OUTCOME_CPU_LIMIT;
        return;
    }

    if (command->signalled) {
        command->outcome = SANDBOX_OUTCOME_SIGNAL;
        return;
    }

    /* it failed, and in its time the last of the disk went */

    if (command->code != 0 && !command->spawn_failed && command->disk_room
        && agent_directory_full())
    {
        command->outcome = SANDBOX_OUTCOME_DISK_FULL;
    }
}


/* Builds the answer and remembers it; NULL: no memory. */

static agent_answer_t *
agent_end_answer(agent_command_t *command)
{
    agent_answer_t  *answer;

    agent.cpu_us += command->cpu_used;
    agent_events_end(command->events);
    answer = agent_answer_build(command);

    if (answer == NULL) {
        agent_log("no memory for the answer of a command");
    }

    agent_history_end(command->history, command, answer, command->events);

    return answer;
}


/*
 * Who follows the events needs no captured output: the receipt will do.  Who
 * cancels is told when nothing of it runs any more, which may be later.
 */

static void
agent_end_deliver(agent_command_t *command, agent_connection_t *waiting,
    agent_answer_t *answer)
{
    agent_answer_t      *receipt;
    agent_connection_t  *c;

    receipt = NULL;

    while ((c = waiting) != NULL) {
        waiting = c->peer;

        if (c->preamble.operation == SANDBOX_OPERATION_CANCEL
            && command->state == AGENT_COMMAND_LEFT)
        {
            c->peer = command->waiting;
            command->waiting = c;
            continue;
        }

        c->command = NULL;

        if (answer == NULL) {
            agent_connection_close(c);
            continue;
        }

        if (c->preamble.operation == SANDBOX_OPERATION_CANCEL) {
            agent_operation_cancelled(c, answer);
            continue;
        }

        if (c->stream && receipt == NULL) {
            receipt = agent_answer_receipt(answer, command->id,
                                           SANDBOX_COMMAND_ENDED);
        }

        agent_connection_answer(c, c->stream && receipt != NULL ? receipt
                                                                : answer);
    }

    if (receipt != NULL) {
        agent_answer_release(receipt);
    }

    if (answer != NULL) {
        agent_answer_release(answer);
    }
}
