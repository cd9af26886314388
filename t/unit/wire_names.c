/*
 * Names that clients see: codes with their status, outcomes, states, command
 * ids; and the comparison of secrets.
 */

/* link: src/wire/sandbox_wire.c */

#include "test.h"
#include "sandbox_wire.h"


static void codes(void);
static void names(void);
static void command_ids(void);
static void equality(void);


int
main(void)
{
    codes();
    names();
    command_ids();
    equality();

    return test_done();
}


static void
codes(void)
{
    size_t  i;

    static const struct {
        const char  *code;
        unsigned     status;
    } table[] = {
        { "bad_request", 400 },
        { "no_sandbox", 404 },
        { "command_id_reused", 409 },
        { "gone", 410 },
        { "command_too_large", 413 },
        { "cwd_missing", 422 },
        { "cwd_outside", 422 },
        { "too_many_pending", 429 },
        { "too_many_sandboxes", 429 },
        { "not_on_this_backend", 501 },
        { "at_capacity", 503 },
        { "runner_lost", 503 },
        { "disk_full", 507 },
        { "internal", 500 },
        { "", 500 },
        { "gon", 500 },
        { "gonee", 500 },
        { "GONE", 500 }
    };

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        is_number(sandbox_code_status(table[i].code, strlen(table[i].code)),
                  table[i].status, "code \"%s\"", table[i].code);
    }

    is_number(sandbox_code_status("gone, and more", 4), 410,
              "code: only its own length counts");
}


static void
names(void)
{
    unsigned  i;

    static const char  *outcomes[] = {
        "exit", "signal", "timeout", "cpu_limit", "oom", "output_limit",
        "disk_full", "cancelled", "sandbox_deleted", "runner_lost"
    };
    static const char  *states[] = {
        "none", "creating", "running", "idle", "failed"
    };

    is_number(SANDBOX_OUTCOME_LAST, sizeof(outcomes) / sizeof(outcomes[0]),
              "outcomes: their number");
    is_number(SANDBOX_STATE_LAST, sizeof(states) / sizeof(states[0]),
              "states: their number");

    for (i = 0; i < SANDBOX_OUTCOME_LAST; i++) {
        is_string(sandbox_outcome_name(i), outcomes[i], "outcome %u", i);
    }

    for (i = 0; i < SANDBOX_STATE_LAST; i++) {
        is_string(sandbox_state_name(i), states[i], "state %u", i);
    }

    is_string(sandbox_outcome_name(SANDBOX_OUTCOME_LAST), NULL,
              "outcomes: none beyond the last");
    is_string(sandbox_outcome_name(UINT32_MAX), NULL,
              "outcomes: none far beyond");
    is_string(sandbox_state_name(SANDBOX_STATE_LAST), NULL,
              "states: none beyond the last");
}


static void
command_ids(void)
{
    int       wrong, expected;
    char      id[SANDBOX_WIRE_MAX_COMMAND_ID + 1];
    uint8_t   c;
    unsigned  i;

    memset(id, 'a', sizeof(id));

    ok(sandbox_command_id_valid((uint8_t *) id, 1), "command id: one byte");
    ok(sandbox_command_id_valid((uint8_t *) id, 64), "command id: 64 bytes");
    ok(!sandbox_command_id_valid((uint8_t *) id, 65), "command id: 65 bytes");
    ok(!sandbox_command_id_valid((uint8_t *) id, 0), "command id: none");
    ok(!sandbox_command_id_valid((uint8_t *) "a\0", 2),
       "command id: NUL at the end");

    wrong = 0;

    for (i = 0; i < 256; i++) {
        c = (uint8_t) i;
        expected = i != 0
                   && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "abcdefghijklmnopqrstuvwxyz0123456789._-", (int) i)
                      != NULL;

        if (sandbox_command_id_valid(&c, 1) != expected) {
            wrong++;
        }
    }

    is_number(wrong, 0, "command id: exactly the allowed bytes");
}


static void
equality(void)
{
    int      wrong;
    size_t   i;
    uint8_t  a[32], b[32];

    memset(a, 0x55, sizeof(a));
    memset(b, 0x55, sizeof(b));

    ok(sandbox_equal(a, b, 32), "equal: the same");
    ok(sandbox_equal(a, b, 0), "equal: nothing equals nothing");

    wrong = 0;

    for (i = 0; i < 32; i++) {
        b[i] ^= 0x80;
        wrong += sandbox_equal(a, b, 32);
        b[i] ^= 0x80;
    }

    is_number(wrong, 0, "equal: one bit anywhere makes it different");
}
