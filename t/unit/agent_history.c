/*
 * What is remembered of commands: the last 1000 receipts, the last 32
 * answers within a bound, ids for longer; in memory, and in a file over the
 * deaths of agents, torn writes and a full disk.
 */

/* link: src/agent/agent_history.c src/agent/agent_history_disk.c */
/* link: src/agent/agent_stage_request.c src/agent/agent_path.c */
/* link: src/agent/agent_history_load.c src/agent/agent_history_list.c */
/* link: src/agent/agent_store.c src/agent/agent_events.c */
/* link: src/agent/agent_answer.c src/agent/agent_output.c */
/* link: src/agent/agent_sandbox.c src/agent/agent_caps_take.c src/agent/agent_event.c */
/* link: src/agent/agent_log.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include <signal.h>
#include <stdlib.h>
#include <sanitizer/lsan_interface.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "agent_events.h"
#include "test.h"


/* each life of an agent is a process of its own; what it found comes back */

typedef struct {
    unsigned  count;
    unsigned  failed;
    uint64_t  found;
} life_t;


static uint64_t live(void (*life)(void));
static void receipts(void);
static void answers(void);
static void bytes(void);
static void running(void);
static void forgotten(void);
static void listed(void);
static void first(void);
static void second(void);
static void third(void);
static void stranger(void);
static void many(void);
static void many_after(void);
static void big(void);
static void big_after(void);
static void old_ids(void);
static void fresh_first(void);
static void fresh(void);
static void fresh_after(void);
static void damaged(void);
static void torn(void);
static void few(void);
static void count(void);
static void full(void);
static void full_after(void);
static void list(uint64_t limit, uint64_t before);
static void start(void);
static agent_command_t *command(const char *format, unsigned n);
static void end(agent_command_t *c, size_t output);
static void run(const char *format, unsigned n, size_t output);
static agent_history_t *find(const char *format, unsigned n);
static int expired(agent_history_t *h);
static uint64_t last_event(agent_history_t *h);
static uint64_t field(const uint8_t *p, size_t size, uint16_t tag);
static uint64_t result(agent_history_t *h, uint16_t tag);


static int               file = -1;
static int               other = -1;     /* of the sandbox before it */
static int               dies;           /* at the end of this life */
static uint64_t          found;
static const char       *code;
static agent_command_t  *queue;

/* what HISTORY answered */

static const char       *refused;
static uint64_t          ordinals[1100];
static uint64_t          states[1100];
static unsigned          listed_count;
static unsigned          listed_expired;
static uint64_t          listed_next;


int
main(void)
{
    strcpy(agent.sandbox_id, "sbx_0123456789");
    memset(agent.session, 7, sizeof(agent.session));
    agent.instance = 5;

    live(receipts);
    live(answers);
    live(bytes);
    live(running);
    live(forgotten);
    live(listed);

    file = memfd_create("history", MFD_CLOEXEC);

    live(first);
    live(second);
    live(third);
    live(stranger);
    live(many);
    live(many_after);
    live(big);
    live(big_after);
    live(old_ids);

    /* a fresh sandbox, and one after it */

    other = file;
    file = memfd_create("fresh", MFD_CLOEXEC);
    live(fresh_first);
    live(fresh);
    live(fresh_after);
    close(file);
    file = other;

    live(damaged);
    torn();

    file = memfd_create("full", MFD_CLOEXEC);
    live(full);
    live(full_after);

    return test_done();
}


static uint64_t
live(void (*life)(void))
{
    int      status;
    pid_t    pid;
    life_t  *told;

    told = mmap(NULL, sizeof(life_t), PROT_READ|PROT_WRITE,
                MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        life();
        fflush(stdout);
        told->count = test_count;
        told->failed = test_failed;
        told->found = found;

        if (dies) {
            _exit(0);
        }

        if (agent_history.known != NULL) {
            __lsan_register_root_region(agent_history.known,
                                        (char *) (agent_history.ids
                                                  + AGENT_HISTORY_IDS)
                                        - (char *) agent_history.known);
        }

        exit(0);
    }

    waitpid(pid, &status, 0);

    if (pid == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        ok(0, "a life ends well");
    }

    test_count = told->count > test_count ? told->count : test_count;
    test_failed = told->failed > test_failed ? told->failed : test_failed;
    found = told->found;
    munmap(told, sizeof(life_t));

    return found;
}


/* --- in memory ----------------------------------------------------------- */

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
    is_number(result(h, SANDBOX_TAG_EXIT_CODE), 7, "and its result");
}


static void
answers(void)
{
    unsigned  i;

    for (i = 0; i < 40; i++) {
        run("a%u", i, 100);
    }

    ok(expired(find("a%u", 7)), "the 33rd last answer is gone");
    ok(!expired(find("a%u", 8)), "the 32nd last is there");
    is_number(result(find("a%u", 7), SANDBOX_TAG_EXIT_CODE), 7,
              "the receipt of the other, too");
}


static void
bytes(void)
{
    run("huge%u", 0, 5 * 1024 * 1024);
    ok(expired(find("huge%u", 0)), "over 4 MiB is not kept");

    run("big%u", 0, 2 * 1024 * 1024);
    ok(!expired(find("big%u", 0)), "2 MiB are kept");

    run("big%u", 1, 2 * 1024 * 1024);
    ok(expired(find("big%u", 0)) && !expired(find("big%u", 1)),
       "2 MiB more make them go");
    ok(agent_history.memory <= AGENT_HISTORY_MEMORY, "all is in bounds");
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
    ok(h != NULL && h == c->history && !agent_history_ended(h),
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


static void
listed(void)
{
    unsigned          i;
    agent_command_t  *c;

    list(0, 0);
    is_string(refused, "bad_request", "a page of none");
    list(1001, 0);
    is_string(refused, "bad_request", "a page of 1001");

    list(10, 0);
    ok(refused == NULL && listed_count == 0 && listed_next == 0,
       "a history of nothing");

    for (i = 0; i < 40; i++) {
        run("l%u", i, 1000);
    }

    c = command("runs%u", 1);
    c->history = agent_history_begin(c);
    queue = command("waits%u", 2);

    list(3, 0);
    is_number(listed_count, 3, "a page of three");
    ok(ordinals[0] == 42 && states[0] == SANDBOX_COMMAND_QUEUED,
       "the latest waits");
    ok(ordinals[1] == 41 && states[1] == SANDBOX_COMMAND_RUNNING,
       "the one before runs");
    ok(ordinals[2] == 40 && states[2] == SANDBOX_COMMAND_ENDED,
       "the one before has ended");
    is_number(listed_next, 40, "there is more before it");

    list(1000, listed_next);
    ok(listed_count == 39 && ordinals[0] == 39 && ordinals[38] == 1,
       "the rest");
    is_number(listed_next, 0, "that was all");
    is_number(listed_expired, 8, "8 of 40 have lost their output");

    end(c, 10);
    free(queue);
    queue = NULL;

    for (i = 0; i < 1000; i++) {
        c = command("w%u", i);
        memset(c->cwd, 'x', 1500);
        c->history = agent_history_begin(c);
        end(c, 0);
    }

    list(1000, 0);
    ok(listed_count > 500 && listed_count < 1000
       && listed_next == ordinals[listed_count - 1],
       "a page has a maximum of bytes, too");
}


/* --- in a file ----------------------------------------------------------- */

static void
start(void)
{
    agent_history_init(file);
    agent_history_load(-1);
}


/* two end, one runs when the agent dies */

static void
first(void)
{
    agent_command_t  *c;

    start();
    run("one%u", 1, 100);
    run("two%u", 2, 300000);
    agent_history_flush();

    ok(find("one%u", 1)->stored && find("one%u", 1)->answer == NULL,
       "output that is written is not in memory");
    ok(find("one%u", 1)->fields == NULL, "nor is a receipt");
    is_number(agent_history.memory + agent_history.fields, 0, "not a byte");
    ok(!expired(find("one%u", 1)) && !expired(find("two%u", 2)),
       "they are read back");
    is_number(result(find("two%u", 2), SANDBOX_TAG_STDOUT_BYTES), 300000,
              "with what they are");
    is_number(last_event(find("two%u", 2)), 39, "and events");

    c = command("dies%u", 9);
    c->history = agent_history_begin(c);
    dies = 1;
}


static void
second(void)
{
    start();

    ok(find("one%u", 1) != NULL && !expired(find("one%u", 1)),
       "the next agent knows the first one");
    is_number(find("one%u", 1)->digest[5], 1, "its digest");
    is_number(result(find("two%u", 2), SANDBOX_TAG_EXIT_CODE), 2,
              "what became of the second");
    is_number(last_event(find("two%u", 2)), 39, "its events");

    ok(agent_history_ended(find("dies%u", 9)), "what ran has ended");
    is_number(result(find("dies%u", 9), SANDBOX_TAG_OUTCOME),
              SANDBOX_OUTCOME_LOST, "as runner_lost");
    ok(expired(find("dies%u", 9)), "without output");
    is_number(agent_history_ordinal(), 4, "numbers go on");
    dies = 1;
}


/* the one before ended without writing a thing */

static void
third(void)
{
    start();
    is_number(result(find("dies%u", 9), SANDBOX_TAG_OUTCOME),
              SANDBOX_OUTCOME_LOST, "it is runner_lost for the third, too");

    run("three%u", 3, 10);
}


static void
stranger(void)
{
    memset(agent.session, 8, sizeof(agent.session));
    file = memfd_create("other", MFD_CLOEXEC);
    start();
    run("mine%u", 1, 10);
    agent_history_flush();

    memset(agent.session, 7, sizeof(agent.session));
    agent_history_file.loaded = 0;
    agent_history_load(-1);
    ok(find("mine%u", 1) != NULL, "here it is");
    dies = 1;
}


/* more than the log has room for: it is written anew now and then */

static void
many(void)
{
    unsigned     i;
    struct stat  st;

    start();
    ok(find("three%u", 3) != NULL, "what was flushed at the end is there");

    for (i = 0; i < 70000; i++) {
        run("m%u", i, i > 69950 ? 1000 : 0);

        if (i % 10 == 0) {
            agent_history_flush();
        }
    }

    ok(agent_history_file.store.generation > 5, "the log is written anew");
    ok(agent_history_file.store.log.end < 2 * 1024 * 1024, "and stays short");
    ok(fstat(file, &st) == 0 && st.st_blocks < 10 * 2048, "as the file does");
}


static void
many_after(void)
{
    unsigned  i, n;

    start();

    for (i = 69000, n = 0; i < 70000; i++) {
        n += find("m%u", i) != NULL
             && result(find("m%u", i), SANDBOX_TAG_EXIT_CODE) == i;
    }

    is_number(n, 1000, "the last 1000 are there");
    ok(find("m%u", 68999) == NULL, "not the one before");
    ok(!expired(find("m%u", 69968)) && expired(find("m%u", 69967)),
       "with the output of 32");

    run("again%u", 1, 0);
    ok(agent_history.ordinal > 70000, "numbers go on");
}


/* output has a share of the disk; a place that was long can be short */

static void
big(void)
{
    unsigned     i, n;
    uint64_t     used;
    struct stat  st;

    start();
    agent_history_file.store.room = 9 * 1024 * 1024;

    for (i = 0; i < 10; i++) {
        run("big%u", i, 3 * 1024 * 1024);
        agent_history_flush();
    }

    for (i = 0, n = 0; i < 10; i++) {
        n += !expired(find("big%u", i));
    }

    is_number(n, 2, "two of 3 MiB and their events have room in 9 MiB");
    ok(agent_store_output_used(&agent_history_file.store) <= 9 * 1024 * 1024,
       "it is in bounds");
    fstat(file, &st);
    used = (uint64_t) st.st_blocks * 512;

    for (i = 0; i < 32; i++) {
        run("small%u", i, 10);
    }

    agent_history_flush();
    fstat(file, &st);
    ok((uint64_t) st.st_blocks * 512 + 4 * 1024 * 1024 < used,
       "what they took comes back");

    run("all%u", 1, 9 * 1024 * 1024);
    agent_history_flush();
    ok(expired(find("all%u", 1)), "what never has room is not kept");
}


static void
big_after(void)
{
    start();
    ok(expired(find("big%u", 9)) && !expired(find("small%u", 31)),
       "the next agent sees the same");
    ok(agent_history.kept_count >= 31, "31 have output, at least");
}


static void
old_ids(void)
{
    start();
    ok(find("m%u", 5000) == NULL, "one of 65536 before the last");
    is_string(code, "expired", "is expired for later agents");
    ok(find("m%u", 4000) == NULL, "an older one");
    is_string(code, "command_not_found", "is not known at all");
}


/* something runs when the sandbox is replaced */

static void
fresh_first(void)
{
    int               own;
    agent_command_t  *c;

    own = file;
    file = other;
    start();
    c = command("replaced%u", 9);
    c->history = agent_history_begin(c);
    file = own;
    dies = 1;
}


static void
fresh(void)
{
    agent_history_init(file);
    agent_history_load(dup(other));

    is_number(agent_history.count, 1000, "a fresh sandbox knows the 1000");
    is_number(result(find("replaced%u", 9), SANDBOX_TAG_OUTCOME),
              SANDBOX_OUTCOME_DELETED, "what ran was sandbox_deleted");
    is_number(result(find("small%u", 5), SANDBOX_TAG_EXIT_CODE), 5,
              "others are as they were");
    ok(!expired(find("small%u", 5)), "with output");
    is_number(last_event(find("small%u", 5)), 3, "and events");
    ok(find("m%u", 6000) == NULL, "one of 65536 before the last");
    is_string(code, "expired", "is expired");

    run("new%u", 1, 10);
    agent_history_flush();
    is_number(agent_history.memory + agent_history.fields, 0,
              "all of it is in its own file");
    dies = 1;
}


static void
fresh_after(void)
{
    agent_history_init(file);
    agent_history_load(dup(other));

    ok(find("new%u", 1) != NULL, "its own file goes before the other one");
    ok(!expired(find("new%u", 1)) && !expired(find("small%u", 31)),
       "with output of both");
    ok(find("m%u", 6000) == NULL, "an old id");
    is_string(code, "expired", "is expired for the next one, too");
    is_number(agent_history.count, 1000, "it has 1000");
}


/* the disk lies: another's bytes where output and receipts were */

static void
damaged(void)
{
    unsigned  place;
    uint8_t   byte;
    uint64_t  at;

    start();
    place = find("small%u", 31)->place;
    at = AGENT_STORE_OUTPUT_AT + place * AGENT_STORE_OUTPUT
         + AGENT_STORE_HEADER + 50;
    ok(pread(file, &byte, 1, at) == 1, "there is output");
    byte ^= 1;
    ok(pwrite(file, &byte, 1, at) == 1, "it is changed");
    ok(expired(find("small%u", 31)), "it is not taken for output");
    ok(!expired(find("small%u", 30)), "that of others is");

    place = find("small%u", 30)->place;
    byte = 0;
    ok(pwrite(file, &byte, 1, AGENT_STORE_OUTPUT_AT
                              + place * AGENT_STORE_OUTPUT + 3) == 1,
       "a header is changed");
    ok(expired(find("small%u", 30)), "that is seen, too");

    /* the receipts of a log that is overwritten meanwhile */

    ok(find("small%u", 29)->fields == NULL
       && pwrite(file, "xxxx", 4, agent_history_file.store.log.region
                                  * AGENT_STORE_LOG
                                  + find("small%u", 29)->at.end + 60) == 4,
       "a record is changed");
    ok(agent_history_disk_fields(find("small%u", 29)) == NULL,
       "it is not taken for a receipt");
    list(1000, 0);
    ok(refused == NULL && listed_count == 1000,
       "a page has all of them nevertheless");
    agent_history_disk_compact();
    ok(agent_history_disk_fields(find("small%u", 28)) != NULL,
       "a new log has the others");
    dies = 1;
}


/* Every place where a write may have stopped, or a byte been changed. */

static void
torn(void)
{
    int       good, source;
    size_t    at, size;
    uint8_t   bytes[8192], zero[8192];
    uint64_t  all, before;

    source = memfd_create("torn", MFD_CLOEXEC);
    file = source;
    live(few);

    size = pread(source, bytes, sizeof(bytes), 0);
    memset(zero, 0, sizeof(zero));
    all = live(count);
    is_number(all, 6, "six are in the log");

    while (size && bytes[size - 1] == 0) {
        size--;
    }

    ok(size > 2000 && size < sizeof(bytes), "it is %zu bytes long", size);

    /* cut off */

    good = 1;
    before = 0;

    for (at = AGENT_STORE_HEADER; at <= size; at += 11) {
        file = memfd_create("cut", MFD_CLOEXEC);
        good &= pwrite(file, bytes, at, 0) == (ssize_t) at;
        all = live(count);
        good &= all >= before && all <= 6;
        before = all;
        close(file);
    }

    ok(good && before >= 5, "cut off anywhere, what is before is there");

    /* zeros from there on, then another agent, then the old bytes again */

    good = 1;

    for (at = AGENT_STORE_HEADER + 200; at + 500 < size; at += 101) {
        file = memfd_create("hole", MFD_CLOEXEC);
        good &= pwrite(file, bytes, size, 0) == (ssize_t) size;
        good &= pwrite(file, zero, 100, at) == 100;
        live(few);
        all = live(count);
        good &= all >= 6 && all <= 11;
        close(file);
    }

    ok(good, "nothing old follows what was torn");

    /* one bit */

    good = 1;

    for (at = 0; at < size; at += 7) {
        file = memfd_create("bit", MFD_CLOEXEC);
        bytes[at] ^= 0x10;
        good &= pwrite(file, bytes, size, 0) == (ssize_t) size;
        bytes[at] ^= 0x10;
        all = live(count);
        good &= all <= 6;
        close(file);
    }

    ok(good, "a changed bit ends what is believed");
    file = source;
}


static void
few(void)
{
    unsigned  i;

    start();

    for (i = 0; i < 6; i++) {
        run("few%u", i, 20);
        agent_history_flush();
    }

    dies = 1;
}


static void
count(void)
{
    unsigned  i;

    start();
    found = 0;

    for (i = 0; i < agent_history.count; i++) {
        found++;

        if (agent_history.known[i]->ended_ms == 0
            || agent_history.known[i]->length == 0)
        {
            found = 99;
        }
    }

    dies = 1;
}


/* no room at all, then enough */

static void
full(void)
{
    int            there, some, held;
    unsigned       i;
    struct rlimit  limit;

    /* what is told goes into a file, too: not before the limit is gone */

    fflush(stdout);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_FSIZE, &limit);

    start();

    for (i = 0; i < 40; i++) {
        run("full%u", i, 1000);
        agent_history_flush();
    }

    there = find("full%u", 0) != NULL;
    some = !expired(find("full%u", 39)) && expired(find("full%u", 7));
    held = find("full%u", 39)->answer != NULL;

    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);

    ok(there, "receipts are there without a disk");
    ok(some, "and output of 32");
    ok(held, "in memory");

    for (i = 40; i < 80; i++) {
        run("full%u", i, 1000);
        agent_history_flush();
    }

    ok(find("full%u", 0)->fields == NULL, "with room it is written again");
    dies = 1;
}


static void
full_after(void)
{
    unsigned  i, n;

    start();

    for (i = 0, n = 0; i < 80; i++) {
        n += find("full%u", i) != NULL;
    }

    is_number(n, 80, "all of it");
    ok(!expired(find("full%u", 79)), "with output");
}


/* --- helpers ------------------------------------------------------------- */

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
    uint8_t         *text;
    agent_answer_t  *answer;
    agent_events_t  *events;

    text = calloc(1, output + 1);
    agent_output_init(&c->output[0], 2 * output + 2);
    agent_output_init(&c->output[1], 10);
    agent_output_add(&c->output[0], text, output);

    events = agent_events_new();
    agent_events_start(events, 1);
    agent_events_add(events, 0, text, output);
    agent_events_end(events);
    free(text);

    answer = agent_answer_build(c);
    agent_history_end(c->history, c, answer, events);
    agent_answer_release(answer);
    agent_events_release(events);
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
    return h != NULL && result(h, SANDBOX_TAG_OUTPUT_EXPIRED) == 1;
}


static uint64_t
last_event(agent_history_t *h)
{
    uint64_t         last;
    agent_events_t  *events;

    events = agent_history_events(h);

    if (events == NULL) {
        return 0;
    }

    last = agent_events_last(events);
    agent_events_release(events);

    return last;
}


/* a number of the RESULT, UINT64_MAX if it is not there */

static uint64_t
result(agent_history_t *h, uint16_t tag)
{
    size_t           at;
    uint64_t         value;
    agent_answer_t  *answer;
    sandbox_frame_t  frame;

    answer = agent_history_answer(h);

    if (answer == NULL) {
        return UINT64_MAX;
    }

    value = UINT64_MAX;

    for (at = 0; at < answer->size; at += frame.length) {
        sandbox_frame_read(answer->data + at, &frame);
        at += SANDBOX_WIRE_FRAME_SIZE;

        if (frame.type == SANDBOX_FRAME_RESULT) {
            value = field(answer->data + at, frame.length, tag);
        }
    }

    agent_answer_release(answer);

    return value;
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


static void
list(uint64_t limit, uint64_t before)
{
    uint8_t             head[SANDBOX_WIRE_PREAMBLE_SIZE + 64];
    sandbox_writer_t    w;
    agent_connection_t  c;

    memset(&c, 0, sizeof(c));
    memset(head, 0, sizeof(head));
    sandbox_writer_init(&w, head + SANDBOX_WIRE_PREAMBLE_SIZE, 64);
    sandbox_write_number(&w, SANDBOX_TAG_LIMIT, limit);
    sandbox_write_number(&w, SANDBOX_TAG_BEFORE, before);
    c.in = head;
    c.preamble.head = w.pos - w.start;
    refused = NULL;
    listed_count = 0;
    agent_history_list(&c);
}


/* --- the others ---------------------------------------------------------- */

void
agent_connection_error(agent_connection_t *c, const char *what,
    const char *detail, unsigned retry_after)
{
    refused = what;
}


void
agent_connection_answer(agent_connection_t *c, agent_answer_t *answer)
{
    size_t           at, size, length;
    uint8_t         *data;
    sandbox_frame_t  frame;

    data = malloc(answer->size);
    size = 0;

    for (at = 0; at < answer->size; at += frame.length) {
        if (sandbox_frame_read(answer->data + at, &frame) != SANDBOX_OK) {
            refused = "a bad frame";
            break;
        }

        at += SANDBOX_WIRE_FRAME_SIZE;

        if (frame.type == SANDBOX_FRAME_DATA) {
            memcpy(data + size, answer->data + at, frame.length);
            size += frame.length;

        } else if (frame.type == SANDBOX_FRAME_RESULT) {
            listed_next = field(answer->data + at, frame.length,
                                SANDBOX_TAG_NEXT);
        }
    }

    listed_expired = 0;

    for (at = 0; at < size; at += length) {
        length = sandbox_get32(data + at);
        at += 4;
        ordinals[listed_count] = field(data + at, length,
                                       SANDBOX_TAG_ORDINAL);
        states[listed_count] = field(data + at, length,
                                     SANDBOX_TAG_COMMAND_STATE);
        listed_count += ordinals[listed_count] != UINT64_MAX;
        listed_expired += field(data + at, length, SANDBOX_TAG_OUTPUT_EXPIRED)
                          == 1;
    }

    free(data);
}


agent_command_t *
agent_queue_first(void)
{
    return queue;
}
