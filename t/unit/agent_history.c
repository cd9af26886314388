/*
 * What is remembered of commands: the last 1000 receipts, the last 32
 * answers within a bound, ids for longer.
 */

/* link: src/agent/agent_history.c src/agent/agent_history_disk.c */
/* link: src/agent/agent_store.c src/agent/agent_events.c */
/* link: src/agent/agent_answer.c */
/* link: src/agent/agent_output.c src/agent/agent_sandbox.c */
/* link: src/agent/agent_event.c src/agent/agent_log.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include <stdlib.h>

#include "agent.h"
#include "test.h"


static void receipts(void);
static void answers(void);
static void bytes(void);
static void running(void);
static void forgotten(void);
static agent_command_t *command(const char *format, unsigned n);
static void end(agent_command_t *c, size_t output);
static void run(const char *format, unsigned n, size_t output);
static agent_history_t *find(const char *format, unsigned n);
static int expired(agent_history_t *h);
static uint64_t field(const uint8_t *p, size_t size, uint16_t tag);


static const char  *code;


int
main(void)
{
    strcpy(agent.sandbox_id, "sbx_0123456789");
    agent.instance = 5;

    receipts();
    answers();
    bytes();
    running();
    forgotten();

    return test_done();
}


static void
receipts(void)
{
    unsigned          i;
    agent_history_t  *h;

    ok(find("none%u", 1) == NULL, "nothing is known at first");
    is_string(code, "command_not_found", "and says so");

    for (i = 0; i < 1000; i++) {
        run("id%u", i, 3);
    }

    ok(find("id%u", 0) != NULL && find("id%u", 999) != NULL, "1000 receipts");
    ok(find("id", 0) == NULL && find("id9999%u", 0) == NULL, "no others");

    run("more%u", 1, 3);
    ok(find("id%u", 0) == NULL, "the oldest is forgotten");
    is_string(code, "expired", "but not that it was there");
    ok(find("id%u", 1) != NULL, "the next one is there");

    h = find("id%u", 7);
    is_number(agent_history_digest(h)[0], 7, "each with its digest");
    is_number(field(h->fields, h->fields_size, SANDBOX_TAG_ORDINAL), 8,
              "its number");
    is_number(field(h->fields, h->result, SANDBOX_TAG_EXIT_CODE), 7,
              "and its result");
}


static void
answers(void)
{
    unsigned         i;
    agent_answer_t  *answer;

    for (i = 0; i < 40; i++) {
        run("a%u", i, 100);
    }

    ok(expired(find("a%u", 7)), "the 33rd last answer is gone");
    ok(!expired(find("a%u", 8)), "the 32nd last is there");

    answer = agent_history_answer(find("a%u", 7));
    is_number(field(answer->data + answer->head + SANDBOX_WIRE_FRAME_SIZE,
                    answer->size - answer->head - SANDBOX_WIRE_FRAME_SIZE,
                    SANDBOX_TAG_EXIT_CODE), 7, "its receipt is there");
    agent_answer_release(answer);
}


static void
bytes(void)
{
    run("huge%u", 0, 5 * 1024 * 1024);
    ok(expired(find("huge%u", 0)), "over 4 MiB is not kept");

    run("big%u", 0, 3 * 1024 * 1024);
    ok(!expired(find("big%u", 0)), "3 MiB are kept");

    run("big%u", 1, 2 * 1024 * 1024);
    ok(expired(find("big%u", 0)) && !expired(find("big%u", 1)),
       "2 MiB more make them go");
}


static void
running(void)
{
    unsigned          i;
    agent_command_t  *c;
    agent_history_t  *h;

    c = command("long%u", 3);
    c->history = agent_history_begin(c);
    ok(c->history != NULL, "it begins");

    for (i = 0; i < 1100; i++) {
        run("short%u", i, 3);
    }

    h = find("long%u", 3);
    ok(h == c->history && !agent_history_ended(h),
       "1100 others later a running one is known");
    ok(agent_history_answer(h) == NULL, "and has no answer yet");

    end(c, 10);
    ok(agent_history_ended(find("long%u", 3)), "then it has ended");
    ok(!expired(find("long%u", 3)), "with its answer");
}


static void
forgotten(void)
{
    unsigned  i;

    for (i = 0; i < 66000; i++) {
        run("f%u", i, 0);
    }

    ok(find("f%u", 470) == NULL, "one of 65536 before the last");
    is_string(code, "expired", "is expired");
    ok(find("f%u", 400) == NULL, "an older one");
    is_string(code, "command_not_found", "is not known at all");
}


static agent_command_t *
command(const char *format, unsigned n)
{
    agent_command_t  *c;

    c = calloc(1, sizeof(agent_command_t));
    snprintf(c->id, sizeof(c->id), format, n);
    strcpy(c->cwd, "/tmp");
    c->request.command = (const uint8_t *) "echo";
    c->request.command_size = 4;
    memset(c->request.digest, (int) n, sizeof(c->request.digest));
    c->ordinal = agent_history_ordinal();
    c->accepted = agent_now_us();
    c->code = (int) n;

    return c;
}


static void
end(agent_command_t *c, size_t output)
{
    uint8_t          *text;
    agent_answer_t   *answer;

    text = calloc(1, output + 1);
    agent_output_init(&c->output[0], 2 * output + 2);
    agent_output_init(&c->output[1], 10);
    agent_output_add(&c->output[0], text, output);
    free(text);

    answer = agent_answer_build(c);
    agent_history_end(c->history, c, answer, NULL);
    agent_answer_release(answer);
    agent_output_free(&c->output[0]);
    free(c);
}


static void
run(const char *format, unsigned n, size_t output)
{
    agent_command_t  *c;

    c = command(format, n);
    c->history = agent_history_begin(c);
    end(c, output);
}


static agent_history_t *
find(const char *format, unsigned n)
{
    char  id[64];

    snprintf(id, sizeof(id), format, n);

    return agent_history_find((uint8_t *) id, strlen(id), &code);
}


/* 1: its answer says OUTPUT_EXPIRED */

static int
expired(agent_history_t *h)
{
    int              rc;
    size_t           at;
    agent_answer_t  *answer;
    sandbox_frame_t  frame;

    answer = agent_history_answer(h);
    rc = -1;

    for (at = 0; at < answer->size; at += frame.length) {
        sandbox_frame_read(answer->data + at, &frame);
        at += SANDBOX_WIRE_FRAME_SIZE;

        if (frame.type == SANDBOX_FRAME_RESULT) {
            rc = field(answer->data + at, frame.length,
                       SANDBOX_TAG_OUTPUT_EXPIRED) == 1;
        }
    }

    agent_answer_release(answer);

    return rc;
}


static uint64_t
field(const uint8_t *p, size_t size, uint16_t tag)
{
    uint64_t          value;
    sandbox_field_t   f;
    sandbox_fields_t  fields;

    value = UINT64_MAX;
    sandbox_fields_init(&fields, p, size);

    while (sandbox_fields_next(&fields, &f) == SANDBOX_OK) {
        if (f.tag == tag) {
            sandbox_field_number(&f, UINT64_MAX, &value);
        }
    }

    return value;
}
