/*
 * The frames of an answer, in one piece of memory: HEAD, what was kept of
 * both streams, RESULT.  It is built once and sent to whoever asks.  Short
 * ones have no output: what a command is doing, or a receipt.
 */

#include "agent.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent_stage.h"
#include "sandbox_utf8.h"


static size_t agent_answer_bound(size_t size);
static uint8_t *agent_answer_stream(uint8_t *p, agent_output_t *output,
    uint8_t type, uint64_t *seq);
static uint8_t *agent_answer_bytes(uint8_t *p, const uint8_t *data,
    size_t size, uint8_t type, uint64_t *seq);
static agent_answer_t *agent_answer_new(const char *id, size_t size);
static void agent_answer_end(agent_answer_t *answer, sandbox_writer_t *w);
static void agent_answer_again(agent_answer_t *to,
    const agent_answer_t *answer, unsigned state);
static size_t agent_answer_fields(uint8_t *p, size_t size,
    agent_command_t *command, int truncated);
static void agent_answer_reason(sandbox_writer_t *w,
    const agent_command_t *command);
static void agent_answer_time(char *text, size_t size, uint64_t ms);
static void agent_answer_names(sandbox_writer_t *w,
    const agent_command_t *command);
static uint64_t agent_answer_code(const agent_command_t *command);
static const char *agent_answer_signal(int number, char *text, size_t size);


size_t
agent_answer_head(uint8_t *p, size_t size, const char *id)
{
    size_t            length;
    sandbox_writer_t  w;

    sandbox_writer_init(&w, p + SANDBOX_WIRE_FRAME_SIZE,
                        size - SANDBOX_WIRE_FRAME_SIZE);
    sandbox_write_number(&w, SANDBOX_TAG_STATUS, 200);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);

    if (id != NULL) {
        sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, id);
    }

    if (w.failed) {
        return 0;
    }

    length = w.pos - w.start;
    sandbox_frame_write(p, SANDBOX_FRAME_HEAD, (uint32_t) length);

    return SANDBOX_WIRE_FRAME_SIZE + length;
}


agent_answer_t *
agent_answer_build(agent_command_t *command)
{
    int              truncated;
    size_t           size, n;
    uint8_t         *p;
    uint64_t         seq;
    unsigned         i;
    agent_answer_t  *answer, *trimmed;
    agent_output_t  *output;

    size = 512 + SANDBOX_WIRE_FRAME_SIZE + SANDBOX_WIRE_MAX_RESULT;

    for (i = 0; i < 2; i++) {
        output = &command->output[i];
        size += agent_answer_bound(output->head_size)
                + agent_answer_bound(output->tail_size) + 32;
    }

    answer = malloc(sizeof(agent_answer_t) + size);
    if (answer == NULL) {
        return NULL;
    }

    answer->references = 1;
    answer->head = agent_answer_head(answer->data, 512, command->id);
    p = answer->data + answer->head;
    truncated = 0;
    seq = 0;

    for (i = 0; i < 2; i++) {
        output = &command->output[i];
        truncated |= output->total > output->head_size + output->tail_size;
        p = agent_answer_stream(p, output, SANDBOX_FRAME_STDOUT + i, &seq);
    }

    n = agent_answer_fields(p, SANDBOX_WIRE_FRAME_SIZE
                               + SANDBOX_WIRE_MAX_RESULT, command, truncated);
    answer->size = p + n - answer->data;

    /* it may be kept for long */

    trimmed = realloc(answer, sizeof(agent_answer_t) + answer->size);

    return trimmed != NULL ? trimmed : answer;
}


void
agent_answer_release(agent_answer_t *answer)
{
    if (--answer->references == 0) {
        free(answer);
    }
}


agent_answer_t *
agent_answer_state(agent_command_t *command)
{
    uint64_t          now, now_ms, queued;
    agent_answer_t   *answer;
    struct timespec   t;
    sandbox_writer_t  w;

    answer = agent_answer_new(command->id, SANDBOX_WIRE_MAX_RESULT);
    if (answer == NULL) {
        return NULL;
    }

    now = agent_now_us();
    clock_gettime(CLOCK_REALTIME, &t);
    now_ms = (uint64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
    queued = (command->started ? command->started : now) - command->accepted;

    sandbox_writer_init(&w, answer->data + answer->head
                            + SANDBOX_WIRE_FRAME_SIZE,
                        SANDBOX_WIRE_MAX_RESULT);
    agent_answer_names(&w, command);
    sandbox_write_number(&w, SANDBOX_TAG_COMMAND_STATE,
                         command->state == AGENT_COMMAND_QUEUED
                         ? SANDBOX_COMMAND_QUEUED : SANDBOX_COMMAND_RUNNING);
    sandbox_write_number(&w, SANDBOX_TAG_STDOUT_BYTES,
                         command->output[0].total);
    sandbox_write_number(&w, SANDBOX_TAG_STDERR_BYTES,
                         command->output[1].total);
    sandbox_write_number(&w, SANDBOX_TAG_QUEUED_US, queued);
    sandbox_write_number(&w, SANDBOX_TAG_CREATED, command->created);
    sandbox_write_number(&w, SANDBOX_TAG_SEQ,
                         agent_events_last(command->events));
    sandbox_write_number(&w, SANDBOX_TAG_DETACHED, command->request.detach);
    sandbox_write_number(&w, SANDBOX_TAG_ACCEPTED_MS,
                         now_ms - (now - command->accepted) / 1000);

    if (command->started) {
        sandbox_write_number(&w, SANDBOX_TAG_STARTED_MS,
                             now_ms - (now - command->started) / 1000);
    }

    agent_answer_end(answer, &w);

    return answer;
}


agent_answer_t *
agent_answer_receipt(const agent_answer_t *answer, const char *id,
    unsigned state)
{
    agent_answer_t  *receipt;

    receipt = agent_answer_new(id, SANDBOX_WIRE_MAX_RESULT);

    if (receipt != NULL) {
        agent_answer_again(receipt, answer, state);
    }

    return receipt;
}


agent_answer_t *
agent_answer_found(const agent_answer_t *answer, unsigned state)
{
    size_t           at;
    agent_answer_t  *found;

    at = agent_answer_result(answer, NULL);
    found = malloc(sizeof(agent_answer_t) + at + SANDBOX_WIRE_FRAME_SIZE
                   + SANDBOX_WIRE_MAX_RESULT);

    if (found != NULL) {
        found->references = 1;
        found->head = answer->head;
        found->size = at;
        memcpy(found->data, answer->data, at);
        agent_answer_again(found, answer, state);
    }

    return found;
}


agent_answer_t *
agent_answer_taken(const char *id, uint64_t bytes)
{
    agent_answer_t   *answer;
    sandbox_writer_t  w;

    answer = agent_answer_new(id, 256);
    if (answer == NULL) {
        return NULL;
    }

    sandbox_writer_init(&w, answer->data + answer->head
                            + SANDBOX_WIRE_FRAME_SIZE, 256);
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, id);
    sandbox_write_number(&w, SANDBOX_TAG_BYTES, bytes);
    agent_answer_end(answer, &w);

    return answer;
}


size_t
agent_answer_result(const agent_answer_t *answer, uint64_t *seq)
{
    size_t            at;
    sandbox_field_t   field;
    sandbox_frame_t   frame;
    sandbox_fields_t  fields;

    if (seq != NULL) {
        *seq = 0;
    }

    /* its own frames, or those that the history has checked */

    for (at = 0; at + SANDBOX_WIRE_FRAME_SIZE <= answer->size;
         at += SANDBOX_WIRE_FRAME_SIZE + frame.length)
    {
        if (sandbox_frame_read(answer->data + at, &frame) != SANDBOX_OK
            || frame.length > answer->size - at - SANDBOX_WIRE_FRAME_SIZE)
        {
            break;
        }

        if (frame.type != SANDBOX_FRAME_RESULT) {
            continue;
        }

        sandbox_fields_init(&fields, answer->data + at
                                     + SANDBOX_WIRE_FRAME_SIZE, frame.length);

        while (seq != NULL
               && sandbox_fields_next(&fields, &field) == SANDBOX_OK)
        {
            if (field.tag == SANDBOX_TAG_SEQ) {
                (void) sandbox_field_number(&field, UINT64_MAX, seq);
            }
        }

        return at;
    }

    return answer->size;
}


/* Most bytes of the frames of so much output: a cut may cost 3 bytes. */

static size_t
agent_answer_bound(size_t size)
{
    return size + (size / (SANDBOX_WIRE_MAX_OUTPUT - 3) + 1)
                  * (SANDBOX_WIRE_FRAME_SIZE + 8);
}


static uint8_t *
agent_answer_stream(uint8_t *p, agent_output_t *output, uint8_t type,
    uint64_t *seq)
{
    size_t          head_size, tail_size;
    uint64_t        left_out;
    const uint8_t  *head, *tail;

    agent_output_parts(output, &head, &head_size, &tail, &tail_size,
                       &left_out);

    p = agent_answer_bytes(p, head, head_size, type, seq);

    if (left_out) {
        sandbox_frame_write(p, SANDBOX_FRAME_GAP, 17);
        p += SANDBOX_WIRE_FRAME_SIZE;
        sandbox_put64(p, ++*seq);
        p[8] = type;
        sandbox_put64(p + 9, left_out);
        p += 17;
    }

    return agent_answer_bytes(p, tail, tail_size, type, seq);
}


static uint8_t *
agent_answer_bytes(uint8_t *p, const uint8_t *data, size_t size, uint8_t type,
    uint64_t *seq)
{
    size_t  n;

    while (size) {
        n = size;

        if (n > SANDBOX_WIRE_MAX_OUTPUT) {
            n = sandbox_utf8_head(data, SANDBOX_WIRE_MAX_OUTPUT);
        }

        sandbox_frame_write(p, type, (uint32_t) (8 + n));
        p += SANDBOX_WIRE_FRAME_SIZE;
        sandbox_put64(p, ++*seq);
        memcpy(p + 8, data, n);
        p += 8 + n;

        data += n;
        size -= n;
    }

    return p;
}


/* One with HEAD; its RESULT will have up to so many bytes. */

static agent_answer_t *
agent_answer_new(const char *id, size_t size)
{
    agent_answer_t  *answer;

    answer = malloc(sizeof(agent_answer_t) + 512 + SANDBOX_WIRE_FRAME_SIZE
                    + size);

    if (answer != NULL) {
        answer->references = 1;
        answer->head = agent_answer_head(answer->data, 512, id);
        answer->size = answer->head;
    }

    return answer;
}


/* Its RESULT, whose fields are in their place already. */

static void
agent_answer_end(agent_answer_t *answer, sandbox_writer_t *w)
{
    size_t  length;

    length = w->pos - w->start;
    sandbox_frame_write(answer->data + answer->size, SANDBOX_FRAME_RESULT,
                        (uint32_t) length);
    answer->size += SANDBOX_WIRE_FRAME_SIZE + length;
}


/* The RESULT of an answer behind what is there, with another state. */

static void
agent_answer_again(agent_answer_t *to, const agent_answer_t *answer,
    unsigned state)
{
    size_t            at;
    sandbox_field_t   field;
    sandbox_fields_t  fields;
    sandbox_writer_t  w;

    sandbox_writer_init(&w, to->data + to->size + SANDBOX_WIRE_FRAME_SIZE,
                        SANDBOX_WIRE_MAX_RESULT);

    at = agent_answer_result(answer, NULL) + SANDBOX_WIRE_FRAME_SIZE;

    if (at <= answer->size) {
        sandbox_fields_init(&fields, answer->data + at, answer->size - at);

        while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
            if (field.tag != SANDBOX_TAG_COMMAND_STATE) {
                sandbox_write_bytes(&w, field.tag, field.data, field.length);
            }
        }
    }

    sandbox_write_number(&w, SANDBOX_TAG_COMMAND_STATE, state);
    agent_answer_end(to, &w);
}


static size_t
agent_answer_fields(uint8_t *p, size_t size, agent_command_t *command,
    int truncated)
{
    char              text[16];
    size_t            length;
    uint64_t          duration, queued;
    const char       *name;
    sandbox_writer_t  w;

    duration = command->started ? command->ended - command->started : 0;
    queued = (command->started ? command->started : agent_now_us())
             - command->accepted;

    sandbox_writer_init(&w, p + SANDBOX_WIRE_FRAME_SIZE,
                        size - SANDBOX_WIRE_FRAME_SIZE);

    agent_answer_names(&w, command);
    sandbox_write_number(&w, SANDBOX_TAG_EXIT_CODE,
                         agent_answer_code(command));

    if (command->signalled && command->outcome != SANDBOX_OUTCOME_TIMEOUT) {
        name = agent_answer_signal(command->code, text, sizeof(text));
        sandbox_write_string(&w, SANDBOX_TAG_SIGNAL, name);
    }

    sandbox_write_number(&w, SANDBOX_TAG_OUTCOME, command->outcome);
    sandbox_write_number(&w, SANDBOX_TAG_STDOUT_BYTES,
                         command->output[0].total);
    sandbox_write_number(&w, SANDBOX_TAG_STDERR_BYTES,
                         command->output[1].total);
    sandbox_write_number(&w, SANDBOX_TAG_TRUNCATED, truncated);
    sandbox_write_number(&w, SANDBOX_TAG_DURATION_US, duration);
    sandbox_write_number(&w, SANDBOX_TAG_QUEUED_US, queued);
    sandbox_write_number(&w, SANDBOX_TAG_CPU_US, command->cpu_used);
    sandbox_write_number(&w, SANDBOX_TAG_MEMORY_PEAK, command->memory_peak);
    sandbox_write_number(&w, SANDBOX_TAG_BACKGROUND, command->processes);
    sandbox_write_number(&w, SANDBOX_TAG_CREATED, command->created);

    if (command->events != NULL) {
        sandbox_write_number(&w, SANDBOX_TAG_SEQ,
                             agent_events_last(command->events));
    }

    sandbox_write_number(&w, SANDBOX_TAG_COMMAND_STATE,
                         SANDBOX_COMMAND_ENDED);

    if (command->request.detach) {
        sandbox_write_number(&w, SANDBOX_TAG_DETACHED, 1);
    }

    if (command->spawn_failed) {
        sandbox_write_string(&w, SANDBOX_TAG_CODE, "spawn_failed");
    }

    agent_answer_reason(&w, command);

    length = w.pos - w.start;
    sandbox_frame_write(p, SANDBOX_FRAME_RESULT, (uint32_t) length);

    return SANDBOX_WIRE_FRAME_SIZE + length;
}


/* What ended it, and what can be done; of an `exit` there is nothing to say. */

static void
agent_answer_reason(sandbox_writer_t *w, const agent_command_t *command)
{
    char                    text[256], name[40], time[32];
    const agent_request_t  *request;

    request = &command->request;
    text[0] = '\0';

    switch (command->outcome) {

    case SANDBOX_OUTCOME_EXIT:
        if (command->spawn_failed) {
            snprintf(text, sizeof(text), command->locked
                     ? "The working directory can't be entered."
                     : "The shell could not be started: too many processes, "
                       "or no memory.");
        }

        break;

    case SANDBOX_OUTCOME_SIGNAL:
        if (command->crowded) {
            snprintf(text, sizeof(text), "The sandbox had more than the %llu "
                     "processes and threads that it may have: start fewer at "
                     "a time.", (unsigned long long) agent.caps.processes);
            break;
        }

        snprintf(text, sizeof(text), "The shell was ended by %s, which no cap "
                 "sends.", agent_answer_signal(command->code, name,
                                               sizeof(name)));
        break;

    case SANDBOX_OUTCOME_TIMEOUT:
        agent_answer_time(time, sizeof(time), request->wall_ms);
        snprintf(text, sizeof(text), "Its time of %s was over: do less in one "
                 "command%s.", time, request->detach ? ""
                 : ", ask for more time, or run it in the background");
        break;

    case SANDBOX_OUTCOME_CPU_LIMIT:
        agent_answer_time(time, sizeof(time), request->cpu_ms);
        snprintf(text, sizeof(text), "It used up its %s of CPU time, with all "
                 "processes that it started: do less in one command.", time);
        break;

    case SANDBOX_OUTCOME_OOM:
        if (agent.memory) {
            snprintf(name, sizeof(name), " of %llu MiB",
                     (unsigned long long) (agent.memory >> 20));
        } else {
            name[0] = '\0';
        }

        snprintf(text, sizeof(text), "The sandbox's memory%s was used up, to "
                 "which files in /tmp and /dev/shm count: work on less at a "
                 "time.", name);
        break;

    case SANDBOX_OUTCOME_OUTPUT_LIMIT:
        snprintf(text, sizeof(text), "It wrote more than %llu bytes to stdout "
                 "and stderr: send output to a file and look into that.",
                 (unsigned long long) request->output_total);
        break;

    case SANDBOX_OUTCOME_DISK_FULL:
        snprintf(text, sizeof(text), "The sandbox's disk is full: remove "
                 "files that are not needed.");
        break;

    case SANDBOX_OUTCOME_CANCELLED:
        snprintf(text, sizeof(text), "It was cancelled.");
        break;

    default:
        snprintf(text, sizeof(text), "The sandbox was replaced or ended "
                 "before the command was done.");
    }

    if (text[0]) {
        sandbox_write_string(w, SANDBOX_TAG_DETAIL, text);
    }
}


static void
agent_answer_time(char *text, size_t size, uint64_t ms)
{
    if (ms % 1000) {
        snprintf(text, size, "%llu ms", (unsigned long long) ms);

    } else {
        snprintf(text, size, "%llu s", (unsigned long long) ms / 1000);
    }
}


static void
agent_answer_names(sandbox_writer_t *w, const agent_command_t *command)
{
    sandbox_write_string(w, SANDBOX_TAG_COMMAND_ID, command->id);
    sandbox_write_string(w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
    sandbox_write_number(w, SANDBOX_TAG_INSTANCE, agent.instance);
    sandbox_write_string(w, SANDBOX_TAG_CWD, command->cwd);
    sandbox_write_number(w, SANDBOX_TAG_WALL_MS, command->request.wall_ms);

    if (command->stage != NULL) {
        agent_stage_write(command->stage, w);
    }
}


static uint64_t
agent_answer_code(const agent_command_t *command)
{
    switch (command->outcome) {

    case SANDBOX_OUTCOME_EXIT:
        return command->code;

    case SANDBOX_OUTCOME_DISK_FULL:
        return command->killed ? 128 + SIGKILL : command->code;

    case SANDBOX_OUTCOME_SIGNAL:
        return 128 + (command->crowded ? SIGKILL : command->code);

    case SANDBOX_OUTCOME_TIMEOUT:
        return 124;

    default:
        return 128 + SIGKILL;
    }
}


static const char *
agent_answer_signal(int number, char *text, size_t size)
{
    const char  *name;

    name = sigabbrev_np(number);

    if (name == NULL) {
        snprintf(text, size, "SIG%d", number);

    } else {
        snprintf(text, size, "SIG%s", name);
    }

    return text;
}
