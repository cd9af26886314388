/*
 * The frames an answer is made of: HEAD, numbered pieces of output, RESULT,
 * and the exit code for each outcome.
 */

/* link: src/agent/agent_answer.c src/agent/agent_output.c */
/* link: src/agent/agent_stage_request.c src/agent/agent_path.c */
/* link: src/agent/agent_sandbox.c src/agent/agent_caps_take.c src/agent/agent_event.c */
/* link: src/agent/agent_log.c src/agent/agent_events.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include <signal.h>
#include <stdlib.h>

#include "agent.h"
#include "sandbox_utf8.h"
#include "test.h"


static void frames(void);
static void codes(void);
static void code(sandbox_outcome_e outcome, int signalled, int value,
    uint64_t expected, const char *name);


int
main(void)
{
    strcpy(agent.sandbox_id, "sbx_0123456789");
    agent.instance = 5;

    frames();
    codes();

    return test_done();
}


/* an answer is HEAD, numbered pieces, RESULT, all within their maxima */

static void
frames(void)
{
    int                good, last;
    size_t             at;
    uint8_t           *text;
    uint64_t           seq, out, left_out;
    agent_answer_t    *built;
    agent_command_t   *command;
    sandbox_frame_t    frame;

    command = calloc(1, sizeof(agent_command_t));
    strcpy(command->id, "c1");
    strcpy(command->cwd, "/tmp");
    agent_output_init(&command->output[0], 400000);
    agent_output_init(&command->output[1], 400000);

    text = malloc(900000);

    for (at = 0; at < 900000; at += 3) {
        memcpy(text + at, "\xe4\xb8\xad", 3);
    }

    agent_output_add(&command->output[0], text, 900000);
    agent_output_add(&command->output[1], (uint8_t *) "err", 3);
    free(text);

    built = agent_answer_build(command);
    good = 1;
    last = 0;
    seq = 0;
    out = 0;
    left_out = 0;

    for (at = 0; at < built->size; at += frame.length) {
        good &= sandbox_frame_read(built->data + at, &frame) == SANDBOX_OK;
        at += SANDBOX_WIRE_FRAME_SIZE;
        good &= at + frame.length <= built->size;
        good &= last != SANDBOX_FRAME_RESULT;
        last = frame.type;

        if (frame.type == SANDBOX_FRAME_HEAD) {
            good &= at == SANDBOX_WIRE_FRAME_SIZE;
            good &= built->head == at + frame.length;

        } else if (frame.type != SANDBOX_FRAME_RESULT) {
            good &= sandbox_get64(built->data + at) == ++seq;
        }

        if (frame.type == SANDBOX_FRAME_STDOUT) {
            out += frame.length - 8;
            good &= (frame.length - 8) % 3 == 0;
        }

        if (frame.type == SANDBOX_FRAME_GAP) {
            good &= built->data[at + 8] == SANDBOX_FRAME_STDOUT;
            left_out += sandbox_get64(built->data + at + 9);
        }
    }

    ok(good, "frames are well formed and in order");
    is_number(last, SANDBOX_FRAME_RESULT, "the last is RESULT");
    is_number(out + left_out, 900000, "nothing is unaccounted for");
    ok(out > 399990 && out <= 400000, "as much as allowed is there");

    agent_answer_release(built);
    agent_output_free(&command->output[0]);
    agent_output_free(&command->output[1]);
    free(command);
}


static void
codes(void)
{
    code(SANDBOX_OUTCOME_EXIT, 0, 3, 3, "exit 3");
    code(SANDBOX_OUTCOME_SIGNAL, 1, SIGSEGV, 139, "SIGSEGV");
    code(SANDBOX_OUTCOME_TIMEOUT, 1, SIGKILL, 124, "a time-out");
    code(SANDBOX_OUTCOME_OOM, 0, 137, 137, "out of memory");
    code(SANDBOX_OUTCOME_CPU_LIMIT, 1, SIGKILL, 137, "CPU time");
    code(SANDBOX_OUTCOME_OUTPUT_LIMIT, 1, SIGKILL, 137, "output");
    code(SANDBOX_OUTCOME_DELETED, 0, 0, 137, "deleted while it waited");
}


static void
code(sandbox_outcome_e outcome, int signalled, int value, uint64_t expected,
    const char *name)
{
    uint64_t           number;
    unsigned           sentences;
    agent_answer_t    *built;
    agent_command_t   *command;
    sandbox_field_t    field;
    sandbox_fields_t   fields;

    sentences = 0;
    command = calloc(1, sizeof(agent_command_t));
    strcpy(command->id, "c1");
    command->request.wall_ms = SANDBOX_WIRE_MAX_TIME - 1;
    command->request.cpu_ms = SANDBOX_WIRE_MAX_TIME;
    command->request.output_total = SANDBOX_WIRE_MAX_WRITTEN;
    command->outcome = outcome;
    command->signalled = signalled;
    command->code = value;

    built = agent_answer_build(command);
    number = 0;
    sandbox_fields_init(&fields, built->data + built->head
                                 + SANDBOX_WIRE_FRAME_SIZE,
                        built->size - built->head - SANDBOX_WIRE_FRAME_SIZE);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if (field.tag == SANDBOX_TAG_EXIT_CODE) {
            sandbox_field_number(&field, UINT64_MAX, &number);
        }

        if (field.tag == SANDBOX_TAG_DETAIL) {
            sentences++;
            ok(field.length > 15 && field.data[field.length - 1] == '.'
               && sandbox_utf8_text(field.data, field.length),
               "a sentence about %s: %.*s", name, (int) field.length,
               (const char *) field.data);
        }
    }

    is_number(number, expected, "exit code of %s", name);
    is_number(sentences, outcome != SANDBOX_OUTCOME_EXIT, "and a sentence");
    agent_answer_release(built);
    free(command);
}
