/*
 * What is remembered of ended commands: the last 1000 ids, the last 32
 * answers within 8 MiB, and the frames an answer is made of.
 */

/* link: src/agent/agent_receipt.c src/agent/agent_answer.c */
/* link: src/agent/agent_output.c src/agent/agent_sandbox.c */
/* link: src/agent/agent_event.c src/agent/agent_log.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include <signal.h>
#include <stdlib.h>

#include "agent.h"
#include "test.h"


static void ids(void);
static void answers(void);
static void bytes(void);
static void frames(void);
static void codes(void);
static void code(sandbox_outcome_e outcome, int signalled, int value,
    uint64_t expected, const char *name);
static agent_answer_t *answer(size_t size);
static void add(const char *format, unsigned n, agent_answer_t *kept);
static agent_receipt_t *find(const char *format, unsigned n);


int
main(void)
{
    strcpy(agent.sandbox_id, "sbx_0123456789");
    agent.instance = 5;

    ids();
    answers();
    bytes();
    frames();
    codes();

    return test_done();
}


static void
ids(void)
{
    unsigned  i;

    ok(find("none%u", 1) == NULL, "nothing is known at first");

    for (i = 0; i < 1000; i++) {
        add("id%u", i, NULL);
    }

    ok(find("id%u", 0) != NULL && find("id%u", 999) != NULL, "1000 ids");
    ok(find("id", 0) == NULL && find("id9999%u", 0) == NULL, "no others");

    add("more%u", 1, NULL);
    ok(find("id%u", 0) == NULL && find("id%u", 1) != NULL,
       "the oldest is forgotten");
    is_number(find("id%u", 7)->digest[0], 7, "each with its digest");
}


static void
answers(void)
{
    unsigned          i;
    agent_answer_t   *kept, *first;

    first = answer(100);

    for (i = 0; i < 40; i++) {
        kept = i ? answer(100) : first;
        add("a%u", i, kept);

        if (i) {
            agent_answer_release(kept);
        }
    }

    ok(find("a%u", 7)->answer == NULL, "the 33rd last answer is gone");
    ok(find("a%u", 8)->answer != NULL, "the 32nd last is there");
    is_number(first->references, 1, "a dropped one is released once");
    agent_answer_release(first);

    for (i = 0; i < 1000; i++) {
        add("w%u", i, NULL);
    }

    ok(find("a%u", 39) == NULL, "a round without answers lets all go");
}


static void
bytes(void)
{
    agent_answer_t  *kept;

    kept = answer(9 * 1024 * 1024);
    add("huge%u", 0, kept);
    ok(find("huge%u", 0)->answer == NULL, "over 8 MiB is not kept");
    is_number(kept->references, 1, "and not held");
    agent_answer_release(kept);

    kept = answer(5 * 1024 * 1024);
    add("big%u", 0, kept);
    agent_answer_release(kept);
    ok(find("big%u", 0)->answer != NULL, "5 MiB are kept");

    kept = answer(4 * 1024 * 1024);
    add("big%u", 1, kept);
    agent_answer_release(kept);
    ok(find("big%u", 0)->answer == NULL && find("big%u", 1)->answer != NULL,
       "4 MiB more make it go");

    for (unsigned i = 0; i < 1001; i++) {
        add("x%u", i, NULL);
    }
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
    agent_answer_t    *built;
    agent_command_t   *command;
    sandbox_field_t    field;
    sandbox_fields_t   fields;

    command = calloc(1, sizeof(agent_command_t));
    strcpy(command->id, "c1");
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
    }

    is_number(number, expected, "exit code of %s", name);
    agent_answer_release(built);
    free(command);
}


static agent_answer_t *
answer(size_t size)
{
    agent_answer_t  *kept;

    kept = calloc(1, sizeof(agent_answer_t) + size);
    kept->references = 1;
    kept->size = size;

    return kept;
}


static void
add(const char *format, unsigned n, agent_answer_t *kept)
{
    char     id[64];
    uint8_t  digest[SANDBOX_WIRE_DIGEST_SIZE];

    snprintf(id, sizeof(id), format, n);
    memset(digest, (int) n, sizeof(digest));
    agent_receipt_add(id, digest, kept);
}


static agent_receipt_t *
find(const char *format, unsigned n)
{
    char  id[64];

    snprintf(id, sizeof(id), format, n);

    return agent_receipt_find((uint8_t *) id, strlen(id));
}
