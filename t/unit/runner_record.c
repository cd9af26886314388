/*
 * Records of slots: what is written is read back; what was cut short or
 * changed is refused and never half believed.
 */

/* link: src/runner/state.c src/runner/file.c src/wire/sandbox_wire.c */
/* flags: -U_GNU_SOURCE */

#include <stdlib.h>

#include "test.h"
#include "state.h"


static void sample(runner_record_t *record);
static void roundtrip(void);
static void cut(void);
static void wrong(void);


int
main(void)
{
    roundtrip();
    cut();
    wrong();

    return test_done();
}


static void
sample(runner_record_t *record)
{
    memset(record, 0, sizeof(*record));
    record->number = 17;
    memset(record->session, 0xa5, sizeof(record->session));
    memset(record->tenant, 0x0f, sizeof(record->tenant));
    strcpy(record->id, "sbx_0123456789abcdef0123");
    record->instance = 1795977795904000;
    record->created_ms = 1795977795904;
    record->used_ms = UINT64_MAX;
    record->commands = 3;
    record->memory = 1024;
    record->disk = 2048;
    record->processes = 256;
    record->ids = 0x70020000;
    record->pid = 4711;
    record->start_time = 99887766;
    record->deleted = 1;
    record->egress = 4294967295u;
    strcpy(record->base, "/var/cache/a base/root");
    strcpy(record->base_name, "data-science_3");
}


static void
roundtrip(void)
{
    char             text[RUNNER_RECORD_SIZE];
    size_t           n;
    runner_record_t  record, again;

    sample(&record);
    n = runner_record_write(&record, text, sizeof(text));

    is_number(n, strlen(text), "the length is that of the text");
    is_number(runner_record_read(&again, text), 0, "it is read");
    ok(memcmp(&record, &again, sizeof(record)) == 0, "and is the same");

    record.base_name[0] = '\0';
    record.egress = 0;
    (void) runner_record_write(&record, text, sizeof(text));
    ok(strstr(text, "base-name") == NULL, "the default base has no line");
    ok(strstr(text, "egress") == NULL, "nor has no policy");
    is_number(runner_record_read(&again, text), 0, "as in older records");
    is_string(again.base_name, "", "which had none but it");

    sample(&record);
    n = runner_record_write(&record, text, sizeof(text));

    is_number(runner_record_write(&record, text, n), 0,
              "one byte too small is too small");
}


static void
cut(void)
{
    char             text[RUNNER_RECORD_SIZE];
    size_t           i, n, accepted;
    runner_record_t  record;

    sample(&record);
    n = runner_record_write(&record, text, sizeof(text));
    accepted = 0;

    for (i = 0; i < n; i++) {
        char  *copy = strndup(text, i);

        accepted += runner_record_read(&record, copy) == 0;
        free(copy);
    }

    is_number(accepted, 0, "no part of a record is a record");

    strcpy(text + n, "more\n");
    is_number(runner_record_read(&record, text), -1, "nothing comes after it");
}


static void
wrong(void)
{
    char             text[RUNNER_RECORD_SIZE], changed[RUNNER_RECORD_SIZE];
    char            *p;
    size_t           i;
    runner_record_t  record;

    static const struct {
        const char  *from;
        const char  *to;
    } list[] = {
        { "sandbox-slot 1", "sandbox-slot 2" },
        { "number 17", "number -7" },
        { "number 17", "number 99999999999" },
        { "pid 4711", "pid 47x1" },
        { "pid 4711", "pid " },
        { "pid 4711\n", "" },
        { "pid 4711\n", "pid 4711\npid 4711\n" },
        { "pid 4711", "pid 2147483648" },
        { "deleted 1", "deleted 2" },
        { "session a5", "session zz" },
        { "session a5", "session a5a5" },
        { "id sbx_0", "id sby_0" },
        { "id sbx_0", "id sbx_/" },
        { "base /", "base " },
        { "used 18446744073709551615", "used 18446744073709551616" },
        { "egress 4294967295", "egress 4294967296" },
        { "egress 4294967295\n", "egress 1\negress 1\n" },
        { "disk 2048", "disc 2048" }
    };

    sample(&record);
    (void) runner_record_write(&record, text, sizeof(text));

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        p = strstr(text, list[i].from);

        snprintf(changed, sizeof(changed), "%.*s%s%s", (int) (p - text), text,
                 list[i].to, p + strlen(list[i].from));

        is_number(runner_record_read(&record, changed), -1,
                  "refused: change %zu of a record, at \"%.8s\"", i,
                  list[i].from);
    }
}
