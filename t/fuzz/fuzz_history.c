/*
 * Foreign bytes as the file of a history.  The first byte chooses: raw bytes
 * in its places, or records and output whose checksums are right and whose
 * contents are anything.  An agent starts on them, answers and goes on; so
 * does the agent of a fresh sandbox that takes them over.
 */

/* link: src/agent/agent_store.c src/agent/agent_events.c */
/* link: src/agent/agent_sandbox.c src/agent/agent_caps_take.c src/agent/agent_event.c */
/* link: src/agent/agent_history_list.c src/agent/agent_output.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* covers: src/agent/agent_history_load.c */

#include "../../src/agent/agent_history.c"
#include "../../src/agent/agent_history_disk.c"
#include "../../src/agent/agent_history_load.c"

#include <sys/mman.h>


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


static void fuzz_life(int fd, int before);
static void fuzz_raw(int fd, const uint8_t *p, size_t size);
static void fuzz_records(const uint8_t *p, size_t size);
static void fuzz_output(const uint8_t *p, size_t size);
static void fuzz_look(void);
static void fuzz_list(uint64_t before);
static void fuzz_reset(void);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);


static unsigned  fuzz_answers;


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    int       fd, own;
    unsigned  i;

    if (size < 2) {
        return 0;
    }

    agent_history_timer.handler = agent_history_work;
    agent_history_timer_output.handler = agent_history_work_output;

    fd = memfd_create("history", MFD_CLOEXEC);
    check(fd != -1);
    check(agent_store_open(&agent_history_file.store, fd) == 0);
    agent_history_file.store.room = 1 << 20;

    if (p[0] % 2) {
        fuzz_raw(fd, p + 1, size - 1);

    } else {
        fuzz_records(p + 1, size - 1);
    }

    /* the same agent again, then one of a fresh sandbox, or the other way */

    for (i = 0; i < 3; i++) {
        if (i != (p[0] / 2) % 3) {
            fuzz_life(fd, -1);
            continue;
        }

        own = memfd_create("fresh", MFD_CLOEXEC);
        check(own != -1);
        fuzz_life(own, fd);
        fd = own;
    }

    close(fd);

    return 0;
}


/* before is closed */

static void
fuzz_life(int fd, int before)
{
    check(agent_store_open(&agent_history_file.store, fd) == 0);
    agent_history_file.store.room = 1 << 20;
    agent_history_load(before);
    fuzz_look();
    agent_history_flush();
    agent_history_disk_compact();
    fuzz_look();
    fuzz_reset();
}


/* the same bytes wherever something is read */

static void
fuzz_raw(int fd, const uint8_t *p, size_t size)
{
    check(pwrite(fd, p, size, 0) == (ssize_t) size);
    check(pwrite(fd, p, size, AGENT_STORE_LOG) == (ssize_t) size);
    check(pwrite(fd, p, size, AGENT_STORE_IDS_AT) == (ssize_t) size);
    check(pwrite(fd, p, size, AGENT_STORE_OUTPUT_AT) == (ssize_t) size);
}


/* type u8 (0: output), length u16, bytes; repeated */

static void
fuzz_records(const uint8_t *p, size_t size)
{
    size_t    length;
    unsigned  type;

    check(agent_store_rewrite(&agent_history_file.store, agent.session) == 0);
    check(agent_store_rewrite_end(&agent_history_file.store) == 0);

    while (size >= 3) {
        type = p[0] % 5;
        length = sandbox_get16(p + 1);
        p += 3;
        size -= 3;

        if (length > size) {
            length = size;
        }

        if (type == 0) {
            fuzz_output(p, length);

        } else {
            (void) agent_store_append(&agent_history_file.store, type, p,
                                      length, p, 0, NULL);
        }

        p += length;
        size -= length;
    }
}


/* place u8, ordinal u8, head u16, answer u16, then answer and events */

static void
fuzz_output(const uint8_t *p, size_t size)
{
    unsigned              place;
    uint8_t               header[AGENT_STORE_HEADER];
    agent_store_output_t  output;

    if (size < 6) {
        return;
    }

    place = p[0] % AGENT_STORE_OUTPUTS;
    output.ordinal = p[1];
    output.head = sandbox_get16(p + 2);
    output.answer = sandbox_get16(p + 4);
    p += 6;
    size -= 6;

    if (output.answer > size) {
        output.answer = size;
    }

    output.events = size - output.answer;
    output.answer_sum = agent_store_sum(0, p, output.answer);
    output.events_sum = agent_store_sum(0, p + output.answer, output.events);

    agent_store_output_header(header, &output);
    check(agent_store_output_write(&agent_history_file.store, place, 0,
                                   header, sizeof(header)) == 0);
    check(agent_store_output_write(&agent_history_file.store, place,
                                   sizeof(header), p, size) == 0);
}


/* what was read keeps its promises */

static void
fuzz_look(void)
{
    size_t            live;
    unsigned          i;
    const char       *code;
    agent_answer_t   *answer;
    agent_events_t   *events;
    agent_history_t  *h;

    check(agent_history.count <= AGENT_HISTORY_KNOWN);
    check(agent_history.kept_count <= AGENT_HISTORY_OUTPUTS);
    check(agent_history.fields <= agent_history.live);

    live = 0;

    for (i = 0; i < agent_history.count; i++) {
        h = agent_history.known[i];
        live += h->fields_size;

        check(i == 0 || agent_history.known[i - 1]->ordinal < h->ordinal);
        check(h->ordinal <= agent_history.ordinal);
        check(agent_history_ended(h));
        check(sandbox_command_id_valid(h->id, h->length));
        check(agent_history_find(h->id, h->length, &code) != NULL);

        answer = agent_history_answer(h);

        if (answer != NULL) {
            check(answer->head <= answer->size);
            agent_answer_release(answer);
        }

        events = agent_history_events(h);

        if (events != NULL) {
            agent_events_release(events);
        }
    }

    check(live == agent_history.live);

    fuzz_list(0);
    fuzz_list(agent_history.ordinal / 2);
}


static void
fuzz_list(uint64_t before)
{
    uint8_t             head[SANDBOX_WIRE_PREAMBLE_SIZE + 64];
    sandbox_writer_t    w;
    agent_connection_t  c;

    memset(&c, 0, sizeof(c));
    memset(head, 0, sizeof(head));
    sandbox_writer_init(&w, head + SANDBOX_WIRE_PREAMBLE_SIZE, 64);
    sandbox_write_number(&w, SANDBOX_TAG_BEFORE, before);
    c.in = head;
    c.preamble.head = w.pos - w.start;

    fuzz_answers = 0;
    agent_history_list(&c);
    check(fuzz_answers == 1);
}


static void
fuzz_reset(void)
{
    while (agent_history.count) {
        agent_history_remove(0);
    }

    agent_timer_clear(&agent_history_timer);
    agent_timer_clear(&agent_history_timer_output);
    check(agent_history.live == 0 && agent_history.fields == 0);
    check(agent_history.memory == 0 && agent_history.ended == 0);
    check(agent_history.kept_count == 0);

    agent_history.ordinal = 0;
    agent_history.ids_count = 0;
    agent_history_file.ids_saved = 0;
    agent_history_file.loaded = 0;
    agent_history_meta_seen = 0;
    agent_history_failing = 0;
}


/* --- the others ---------------------------------------------------------- */

void
agent_log(const char *format, ...)
{
}


size_t
agent_answer_head(uint8_t *p, size_t size, const char *id)
{
    sandbox_frame_write(p, SANDBOX_FRAME_HEAD, 0);

    return SANDBOX_WIRE_FRAME_SIZE;
}


void
agent_answer_release(agent_answer_t *answer)
{
    if (--answer->references == 0) {
        free(answer);
    }
}


void
agent_connection_error(agent_connection_t *c, const char *code,
    const char *detail, unsigned retry_after)
{
    abort();
}


void
agent_connection_answer(agent_connection_t *c, agent_answer_t *answer)
{
    size_t             at, size, length;
    uint8_t           *data;
    sandbox_frame_t    frame;
    sandbox_field_t    field;
    sandbox_fields_t   fields;

    data = malloc(answer->size);
    size = 0;
    check(data != NULL);

    for (at = 0; at < answer->size; at += frame.length) {
        check(answer->size - at >= SANDBOX_WIRE_FRAME_SIZE);
        check(sandbox_frame_read(answer->data + at, &frame) == SANDBOX_OK);
        at += SANDBOX_WIRE_FRAME_SIZE;
        check(frame.length <= answer->size - at);

        if (frame.type == SANDBOX_FRAME_DATA) {
            memcpy(data + size, answer->data + at, frame.length);
            size += frame.length;
        }
    }

    for (at = 0; at < size; at += length) {
        check(size - at >= 4);
        length = sandbox_get32(data + at);
        at += 4;
        check(length <= size - at);

        sandbox_fields_init(&fields, data + at, length);

        while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
            /* void */
        }

        check(fields.pos == fields.last);
    }

    free(data);
    fuzz_answers++;
}


agent_command_t *
agent_queue_first(void)
{
    return NULL;
}
