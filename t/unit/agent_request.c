/*
 * The head of a COMMAND: defaults, ranges, what is refused and with which
 * code, and that no cut or changed head is read beyond its end.
 */

/* link: src/agent/agent_request.c src/wire/sandbox_wire.c */

#include <stdlib.h>

#include "test.h"
#include "agent_request.h"


static void defaults(void);
static void whole(void);
static void numbers(void);
static void refused(void);
static void label(void);
static void environment(void);
static void way_out(void);
static void cut(void);
static void changed(void);
static const char *reading(sandbox_writer_t *w, agent_request_t *request);
static void start(sandbox_writer_t *w, const char *command);


static uint8_t  buffer[700 * 1024];


int
main(void)
{
    defaults();
    whole();
    numbers();
    refused();
    label();
    environment();
    way_out();
    cut();
    changed();

    return test_done();
}


static void
defaults(void)
{
    agent_request_t   request;
    sandbox_writer_t  w;

    start(&w, "echo hi");
    is_string(reading(&w, &request), NULL, "a command alone is enough");
    is_bytes(request.command, request.command_size, "echo hi", 7, "its text");
    ok(request.cwd == NULL && request.id == NULL, "no directory, no id");
    is_number(request.wall_ms, 120000, "wall clock");
    is_number(request.cpu_ms, 30000, "CPU time");
    is_number(request.output, 262144, "captured output");
    is_number(request.output_total, 1073741824, "written output");
    is_number(request.open_files, 1024, "open files");
    is_number(request.pending, 10, "waiting commands");
    is_number(request.env_count, 0, "no environment");

    start(&w, "");
    is_string(reading(&w, &request), NULL, "an empty command is one");
}


static void
whole(void)
{
    uint8_t           digest[32];
    agent_request_t   request;
    sandbox_writer_t  w;

    memset(digest, 7, sizeof(digest));
    start(&w, "x");
    sandbox_write_string(&w, SANDBOX_TAG_CWD, "/tmp");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "A=1");
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, "id-1");
    sandbox_write_bytes(&w, SANDBOX_TAG_DIGEST, digest, sizeof(digest));
    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, 1);
    sandbox_write_number(&w, SANDBOX_TAG_CPU_MS, 2);
    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT, 0);
    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT_TOTAL, 4);
    sandbox_write_number(&w, SANDBOX_TAG_OPEN_FILES, 16);
    sandbox_write_number(&w, SANDBOX_TAG_PENDING, 0);
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "B=");
    sandbox_write_string(&w, 9999, "of a later version");

    is_string(reading(&w, &request), NULL, "all fields and an unknown one");
    is_bytes(request.cwd, request.cwd_size, "/tmp", 4, "directory");
    is_bytes(request.id, request.id_size, "id-1", 4, "id");
    is_bytes(request.digest, 32, digest, 32, "digest");
    is_number(request.wall_ms * 10 + request.cpu_ms, 12, "times");
    is_number(request.output_total, 4, "total");
    is_number(request.open_files + request.pending, 16, "files, pending");
    is_number(request.env_count, 2, "environment");
    is_number(request.env_size, 7, "its bytes with NULs");
}


static void
numbers(void)
{
    unsigned          i;
    agent_request_t   request;
    sandbox_writer_t  w;

    static const struct {
        uint16_t     tag;
        uint64_t     value;
        const char  *code;
    } cases[] = {
        { SANDBOX_TAG_WALL_MS, 0, "bad_request" },
        { SANDBOX_TAG_WALL_MS, SANDBOX_WIRE_MAX_TIME, NULL },
        { SANDBOX_TAG_WALL_MS, SANDBOX_WIRE_MAX_TIME + 1, "bad_request" },
        { SANDBOX_TAG_CPU_MS, 0, "bad_request" },
        { SANDBOX_TAG_CPU_MS, UINT64_MAX, "bad_request" },
        { SANDBOX_TAG_OUTPUT, SANDBOX_WIRE_MAX_CAPTURE, NULL },
        { SANDBOX_TAG_OUTPUT, SANDBOX_WIRE_MAX_CAPTURE + 1, "bad_request" },
        { SANDBOX_TAG_OUTPUT_TOTAL, 0, "bad_request" },
        { SANDBOX_TAG_OUTPUT_TOTAL, SANDBOX_WIRE_MAX_WRITTEN + 1, "bad_request" },
        { SANDBOX_TAG_OPEN_FILES, 15, "bad_request" },
        { SANDBOX_TAG_OPEN_FILES, 1048577, "bad_request" },
        { SANDBOX_TAG_PENDING, SANDBOX_WIRE_MAX_PENDING, NULL },
        { SANDBOX_TAG_PENDING, SANDBOX_WIRE_MAX_PENDING + 1, "bad_request" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        start(&w, "x");
        sandbox_write_number(&w, cases[i].tag, cases[i].value);
        is_string(reading(&w, &request), cases[i].code,
                  "field %u of %llu", cases[i].tag,
                  (unsigned long long) cases[i].value);
    }

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_WALL_MS, "\0\0\1", 3);
    is_string(reading(&w, &request), "bad_request", "a number of 3 bytes");
}


static void
way_out(void)
{
    char              ca[SANDBOX_WIRE_MAX_COMMAND_CA + 1];
    size_t            i;
    agent_request_t   request;
    sandbox_writer_t  w;

    static const struct {
        unsigned     tag;
        const char  *text;
    } bad[] = {
        { SANDBOX_TAG_EGRESS_PROXY, "" },
        { SANDBOX_TAG_EGRESS_PROXY, "host:3128" },
        { SANDBOX_TAG_EGRESS_PROXY, "10.0.0.1:1 " },
        { SANDBOX_TAG_EGRESS_PROXY, "10.0.0.1@10.0.0.2:1" },
        { SANDBOX_TAG_EGRESS_PROXY, "0000000000000000000000000000000000000000"
                                    "0000000000000000000000000" },
        { SANDBOX_TAG_EGRESS_TOKEN, "" },
        { SANDBOX_TAG_EGRESS_TOKEN, "A:0" },
        { SANDBOX_TAG_EGRESS_TOKEN, "a:0@" },
        { SANDBOX_TAG_EGRESS_INDEX, "" },
        { SANDBOX_TAG_EGRESS_CA, "" }
    };

    start(&w, "x");
    is_string(reading(&w, &request), NULL, "no way out");
    ok(request.proxy == NULL && request.token == NULL && request.ca == NULL
       && request.index == NULL && request.ca_file == NULL, "nothing of it");

    memset(ca, 'c', sizeof(ca));
    start(&w, "x");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_PROXY, "[fd00::1]:3128");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_TOKEN, "0af:9");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_INDEX, "https://i/simple/");
    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_CA, ca, sizeof(ca) - 1);
    is_string(reading(&w, &request), NULL, "all of it");
    is_bytes(request.proxy, request.proxy_size, "[fd00::1]:3128", 14, "proxy");
    is_bytes(request.token, request.token_size, "0af:9", 5, "token");
    is_bytes(request.index, request.index_size, "https://i/simple/", 17,
             "index");
    is_number(request.ca_size, SANDBOX_WIRE_MAX_COMMAND_CA, "certificates");

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_CA, ca, sizeof(ca));
    is_string(reading(&w, &request), "bad_request", "more certificates");

    start(&w, "x");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_PROXY, "10.0.0.1:1");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_PROXY, "10.0.0.1:1");
    is_string(reading(&w, &request), "bad_request", "two of them");

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        start(&w, "x");
        sandbox_write_string(&w, bad[i].tag, bad[i].text);
        is_string(reading(&w, &request), "bad_request", "%u \"%s\"",
                  bad[i].tag, bad[i].text);
    }

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_PROXY, "1\0:1", 4);
    is_string(reading(&w, &request), "bad_request", "a NUL");
}


static void
refused(void)
{
    static char       text[SANDBOX_WIRE_MAX_COMMAND + 1];
    agent_request_t   request;
    sandbox_writer_t  w;

    sandbox_writer_init(&w, buffer, sizeof(buffer));
    is_string(reading(&w, &request), "bad_request", "an empty head");

    start(&w, "x");
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND, "y");
    is_string(reading(&w, &request), "bad_request", "two commands");

    start(&w, "x");
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, "a");
    is_string(reading(&w, &request), "bad_request", "an id, no digest");

    start(&w, "x");
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, "a b");
    is_string(reading(&w, &request), "bad_request", "an id with a blank");

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_DIGEST, text, 31);
    is_string(reading(&w, &request), "bad_request", "a short digest");

    sandbox_writer_init(&w, buffer, sizeof(buffer));
    sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND, "a\0b", 3);
    is_string(reading(&w, &request), "bad_request", "NUL in the command");

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_CWD, "/\0", 2);
    is_string(reading(&w, &request), "bad_request", "NUL in the directory");

    memset(text, 'x', sizeof(text));

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_CWD, text, SANDBOX_WIRE_MAX_CWD);
    is_string(reading(&w, &request), "bad_request", "a long directory");

    sandbox_writer_init(&w, buffer, sizeof(buffer));
    sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND, text, sizeof(text) - 1);
    is_string(reading(&w, &request), NULL, "the longest command");

    sandbox_writer_init(&w, buffer, sizeof(buffer));
    sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND, text, sizeof(text));
    is_string(reading(&w, &request), "command_too_large",
              "one byte more than that");
}


static void
label(void)
{
    const char        *code, *detail;
    agent_request_t    request;
    sandbox_writer_t   w;
    static uint8_t     text[SANDBOX_WIRE_MAX_LABEL + 1];

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_LABEL, text, SANDBOX_WIRE_MAX_LABEL);
    is_string(reading(&w, &request), NULL, "a label of any bytes");
    is_number(request.label_size, SANDBOX_WIRE_MAX_LABEL, "all of it");

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_LABEL, text, sizeof(text));
    is_string(reading(&w, &request), "bad_request", "one byte more");

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_LABEL, text, 0);
    is_string(reading(&w, &request), "bad_request", "an empty one");

    sandbox_writer_init(&w, buffer, sizeof(buffer));
    sandbox_write_string(&w, SANDBOX_TAG_LABEL, "l");
    code = agent_request_read(&request, SANDBOX_OPERATION_CANCEL, buffer,
                              w.pos - w.start, &detail);
    is_string(code, NULL, "CANCEL by a label");
    code = agent_request_read(&request, SANDBOX_OPERATION_ATTACH, buffer,
                              w.pos - w.start, &detail);
    is_string(code, "bad_request", "ATTACH by a label");
}


static void
environment(void)
{
    unsigned           i;
    static char        text[SANDBOX_WIRE_MAX_ENV];
    agent_request_t    request;
    sandbox_field_t    field;
    sandbox_writer_t   w;
    sandbox_fields_t   fields;

    static const struct {
        const char  *text;
        size_t       size;
        int          valid;
    } cases[] = {
        { "A=1", 3, 1 }, { "_=", 2, 1 }, { "a_9=x=y", 7, 1 },
        { "A=\xff\n", 4, 1 }, { "", 0, 0 }, { "A", 1, 0 }, { "=1", 2, 0 },
        { "9A=1", 4, 0 }, { "A-B=1", 5, 0 }, { "A B=1", 5, 0 },
        { "A=\0", 3, 0 }, { "A\0=1", 4, 0 }, { "BASH_FUNC_f%%=()", 16, 0 }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_number(agent_request_env_valid((const uint8_t *) cases[i].text,
                                          cases[i].size),
                  cases[i].valid, "environment case %u", i);
    }

    memset(text, 'x', sizeof(text));
    memcpy(text, "A=", 2);

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_ENV, text, sizeof(text) - 1);
    is_string(reading(&w, &request), NULL, "the longest string of exec");

    start(&w, "x");
    sandbox_write_bytes(&w, SANDBOX_TAG_ENV, text, sizeof(text));
    is_string(reading(&w, &request), "bad_request", "one byte more");

    start(&w, "x");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "A=1");
    sandbox_write_string(&w, SANDBOX_TAG_CWD, "/tmp");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "B=2");
    reading(&w, &request);

    sandbox_fields_init(&fields, request.head, request.head_size);
    ok(agent_request_env(&fields, &field) && field.data[0] == 'A', "first");
    ok(agent_request_env(&fields, &field) && field.data[0] == 'B', "second");
    ok(!agent_request_env(&fields, &field), "no third");
}


/* every cut of a head, in a buffer of exactly that size */

static void
cut(void)
{
    int                same;
    size_t             n, size;
    uint8_t           *copy;
    const char        *code, *detail;
    agent_request_t    request;
    sandbox_writer_t   w;

    start(&w, "echo");
    sandbox_write_string(&w, SANDBOX_TAG_CWD, "/tmp");
    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, 1000);
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "A=1");

    size = w.pos - w.start;
    same = 1;

    for (n = 0; n < size; n++) {
        copy = malloc(n ? n : 1);
        memcpy(copy, buffer, n);
        code = agent_request_read(&request, SANDBOX_OPERATION_COMMAND, copy, n,
                                  &detail);

        /* whole fields are a shorter head, all else is refused */

        same &= (code == NULL) == (n == 10 || n == 20 || n == 34);
        same &= code == NULL || detail != NULL;
        free(copy);
    }

    ok(same, "heads cut short");
}


static void
changed(void)
{
    size_t             i, size;
    uint8_t           *copy;
    unsigned           n, refusals;
    const char        *detail;
    agent_request_t    request;
    sandbox_writer_t   w;

    start(&w, "echo");
    sandbox_write_string(&w, SANDBOX_TAG_CWD, "/tmp");
    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT, 1000);
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "A=1");
    size = w.pos - w.start;

    copy = malloc(size);
    refusals = 0;
    srand(5);

    for (n = 0; n < 20000; n++) {
        memcpy(copy, buffer, size);

        for (i = 0; i < 1 + n % 3; i++) {
            copy[rand() % size] = (uint8_t) rand();
        }

        refusals += agent_request_read(&request, SANDBOX_OPERATION_COMMAND,
                                       copy, size, &detail)
                    != NULL;
    }

    free(copy);
    ok(refusals > 5000 && refusals < 20000, "changed heads: %u refused",
       refusals);
}


static const char *
reading(sandbox_writer_t *w, agent_request_t *request)
{
    const char  *code, *detail;

    detail = NULL;
    code = agent_request_read(request, SANDBOX_OPERATION_COMMAND, w->start,
                              w->pos - w->start, &detail);

    if (code != NULL && (detail == NULL || detail[strlen(detail) - 1] != '.'))
    {
        return "no sentence";
    }

    return code;
}


static void
start(sandbox_writer_t *w, const char *command)
{
    sandbox_writer_init(w, buffer, sizeof(buffer));
    sandbox_write_string(w, SANDBOX_TAG_COMMAND, command);
}
