/*
 * The history and its file: what is written, when, and what is read back.
 *
 * At its begin a command costs one short write; all else is written after
 * its answer is on the way.  What can't be written stays in memory as long
 * as there is room, and is tried again when the log is written anew.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_events.h"


#define AGENT_HISTORY_PIECE    ((size_t) 256 * 1024)     /* of one write */
#define AGENT_HISTORY_SHORT    ((uint64_t) 64 * 1024)
#define AGENT_HISTORY_DELAY    1         /* ms, after an answer */
#define AGENT_HISTORY_RETRY    64        /* commands, then a new try */
#define AGENT_HISTORY_PREFIX   40        /* before the fields of a record */
#define AGENT_HISTORY_MORE     1024      /* bytes of fields after RESULT's */

/* records: digest (32), bytes of RESULT u32, place u32 (from 1), fields */

#define AGENT_HISTORY_START    1
#define AGENT_HISTORY_END      2
#define AGENT_HISTORY_META     3         /* ordinal u64, ids u64 */


typedef struct {
    agent_history_t       *h;            /* NULL: nothing is being written */
    uint8_t               *events;
    agent_store_output_t   output;
    uint64_t               at;
} agent_history_writer_t;


static void agent_history_work(agent_timer_t *timer);
static void agent_history_save(void);
static void agent_history_relieve(void);
static int agent_history_record(agent_history_t *h, unsigned type);
static void agent_history_compact(void);
static int agent_history_compact_all(void);
static int agent_history_ids_write(void);
static int agent_history_step(void);
static int agent_history_begin_write(agent_history_t *h);
static int agent_history_piece(void);
static int agent_history_commit(void);
static void agent_history_fail(int error);
static void agent_history_release(agent_history_t *h);
static int agent_history_handle(void *data, unsigned type, const uint8_t *p,
    size_t size);
static agent_history_t *agent_history_parse(unsigned type, const uint8_t *p,
    size_t size);
static void agent_history_meta(const uint8_t *p, size_t size);
static void agent_history_outputs(void);
static uint8_t *agent_history_read(agent_history_t *h, int events,
    size_t room, agent_store_output_t *output);
static uint64_t agent_history_sum(const uint8_t *p, size_t size);


static agent_store_t            agent_history_store = { .fd = -1 };
static agent_timer_t            agent_history_timer;
static agent_history_t         *agent_history_unsaved;   /* the first */
static agent_history_writer_t   agent_history_writer;
static uint64_t                 agent_history_stored;    /* bytes of output */
static uint64_t                 agent_history_ids_saved; /* number of them */
static unsigned                 agent_history_meta_seen;
static unsigned                 agent_history_failed;    /* commands since */
static unsigned                 agent_history_said;
static unsigned                 agent_history_loaded;


void
agent_history_init(int fd)
{
    agent_history_timer.handler = agent_history_work;

    if (agent_store_init(&agent_history_store, fd) == -1) {
        agent_log("there is no file for the history: it is kept in memory");
    }
}


void
agent_history_load(void)
{
    int               rc;
    unsigned          i;
    agent_history_t  *h;

    if (agent_history_store.fd == -1 || agent_history_loaded) {
        return;
    }

    agent_history_loaded = 1;

    rc = agent_store_read(&agent_history_store, agent.session,
                          agent_history_handle, NULL);

    agent_history_outputs();

    /* what ran when the agent before us died */

    for (i = 0; i < agent_history.count; /* void */ ) {
        h = agent_history.known[i];

        if (h->ended_ms == 0
            && agent_history_lost(h, SANDBOX_OUTCOME_LOST) == 0)
        {
            agent_history_disk_end(h);

            /* older ones may have gone for it */

            i = 0;
            continue;
        }

        i++;
    }

    if (rc == -1) {
        agent_history_compact();
    }

    if (atexit(agent_history_flush) != 0) {
        agent_log("no memory to flush the history at the end");
    }
}


void
agent_history_flush(void)
{
    agent_history_save();

    while (agent_history_step()) { /* void */ }
}


void
agent_history_disk_begin(agent_history_t *h)
{
    if (!agent_history_loaded || agent_history_failed) {
        return;
    }

    if (agent_history_record(h, AGENT_HISTORY_START) == -1) {
        agent_history_fail(errno);
    }
}


void
agent_history_disk_end(agent_history_t *h)
{
    unsigned           i, used;
    agent_history_t  **p;

    if (!agent_history_loaded) {
        agent_history_relieve();
        return;
    }

    /* a place of its own: others with output are fewer than places */

    if (h->answer != NULL) {
        used = 0;

        for (i = 0; i < agent_history.kept_count; i++) {
            if (agent_history.kept[i]->place != -1) {
                used |= 1U << agent_history.kept[i]->place;
            }
        }

        h->place = __builtin_ctz(~used);
        h->pending = 1;
    }

    h->saved = 0;
    h->unsaved = NULL;

    for (p = &agent_history_unsaved; *p != NULL; p = &(*p)->unsaved) {
        /* void */
    }

    *p = h;

    if (!agent_history_timer.active) {
        agent_timer_set(&agent_history_timer, AGENT_HISTORY_DELAY);
    }
}


void
agent_history_disk_forget(agent_history_t *h)
{
    agent_history_t  **p;

    for (p = &agent_history_unsaved; *p != NULL; p = &(*p)->unsaved) {
        if (*p == h) {
            *p = h->unsaved;
            break;
        }
    }
}


void
agent_history_disk_drop(agent_history_t *h)
{
    if (agent_history_writer.h == h) {
        free(agent_history_writer.events);
        memset(&agent_history_writer, 0, sizeof(agent_history_writer));
    }

    if (h->stored) {
        agent_history_stored -= h->size;

        /* a short one is overwritten soon */

        if (h->size > AGENT_HISTORY_SHORT) {
            agent_store_output_trim(&agent_history_store, h->place, 0);
        }
    }

    h->stored = 0;
    h->pending = 0;
    h->place = -1;
}


agent_answer_t *
agent_history_disk_answer(agent_history_t *h)
{
    uint8_t               *p;
    agent_answer_t        *answer;
    agent_store_output_t   output;

    p = agent_history_read(h, 0, sizeof(agent_answer_t), &output);

    if (p == NULL) {
        return NULL;
    }

    answer = (agent_answer_t *) p;
    answer->references = 1;
    answer->head = output.head;
    answer->size = output.answer;

    return answer;
}


agent_events_t *
agent_history_disk_events(agent_history_t *h)
{
    uint8_t               *p;
    agent_events_t        *events;
    agent_store_output_t   output;

    p = agent_history_read(h, 1, 0, &output);

    if (p == NULL) {
        return NULL;
    }

    events = agent_events_unpack(p, output.events);
    free(p);

    return events;
}


static void
agent_history_work(agent_timer_t *timer)
{
    agent_history_save();
    agent_history_relieve();

    if (agent_history_step()) {
        agent_timer_set(timer, AGENT_HISTORY_DELAY);
    }
}


/* Receipts of those that have ended; and a new log when this one is full. */

static void
agent_history_save(void)
{
    size_t            limit;
    agent_history_t  *h;

    while ((h = agent_history_unsaved) != NULL) {
        agent_history_unsaved = h->unsaved;
        h->unsaved = NULL;
        h->saved = 1;

        if (agent_history_failed) {
            agent_history_failed++;

        } else if (agent_history_record(h, AGENT_HISTORY_END) == -1) {
            agent_history_fail(errno);
        }
    }

    limit = 2 * (agent_history.fields + agent_history.count
                                        * (AGENT_HISTORY_PREFIX + 24));

    if (limit < agent_history_store.reserved) {
        limit = agent_history_store.reserved;
    }

    if (limit > AGENT_STORE_LOG) {
        limit = AGENT_STORE_LOG;
    }

    limit -= 2 * AGENT_STORE_RECORD;

    if (agent_history_loaded
        && (agent_history_failed > AGENT_HISTORY_RETRY
            || (!agent_history_failed
                && agent_history_store.log.end > limit)))
    {
        agent_history_compact();
    }
}


/* Output in memory goes to the disk, or for good, until it is in bounds. */

static void
agent_history_relieve(void)
{
    while (agent_history.memory > AGENT_HISTORY_MEMORY) {
        if (agent_history_step()) {
            continue;
        }

        if (agent_history.kept_count == 0) {
            break;
        }

        agent_history_drop(agent_history.kept[0]);
    }
}


static int
agent_history_record(agent_history_t *h, unsigned type)
{
    uint8_t  head[AGENT_HISTORY_PREFIX];

    memcpy(head, h->digest, SANDBOX_WIRE_DIGEST_SIZE);
    sandbox_put32(head + 32, (uint32_t) h->result);
    sandbox_put32(head + 36, type == AGENT_HISTORY_END ? h->place + 1 : 0);

    return agent_store_append(&agent_history_store, type, head, sizeof(head),
                              h->fields, h->fields_size);
}


/* What is known becomes the new log. */

static void
agent_history_compact(void)
{
    int  error;

    error = 0;

    if (agent_store_rewrite(&agent_history_store, agent.session) == -1
        || agent_history_compact_all() == -1
        || agent_store_rewrite_end(&agent_history_store) == -1)
    {
        error = errno;
        agent_store_rewrite_cancel(&agent_history_store);
    }

    if (error) {
        agent_history_fail(error);
        return;
    }

    if (agent_history_said) {
        agent_log("the history is written to the disk again");
        agent_history_said = 0;
    }

    agent_history_failed = 0;
}


static int
agent_history_compact_all(void)
{
    uint8_t           meta[16];
    unsigned          i;
    agent_history_t  *h;

    for (i = 0; i < agent_history.count; i++) {
        h = agent_history.known[i];

        if (agent_history_record(h, h->ended_ms ? AGENT_HISTORY_END
                                                : AGENT_HISTORY_START) == -1)
        {
            return -1;
        }
    }

    /* ids that come after this are counted from here */

    sandbox_put64(meta, agent_history.ordinal);
    sandbox_put64(meta + 8, agent_history.ids_count);

    if (agent_store_append(&agent_history_store, AGENT_HISTORY_META, meta,
                           sizeof(meta), meta, 0) == -1)
    {
        return -1;
    }

    return agent_history_ids_write();
}


/* Those since the last time. */

static int
agent_history_ids_write(void)
{
    size_t    room, part;
    uint64_t  n, at;

    room = agent_history.ids_room;
    n = agent_history_ids_saved;

    if (room == 0) {
        return 0;
    }

    if (agent_history.ids_count > room
        && n < agent_history.ids_count - room)
    {
        n = agent_history.ids_count - room;
    }

    while (n < agent_history.ids_count) {
        at = n % room;
        part = room - at;

        if (part > agent_history.ids_count - n) {
            part = agent_history.ids_count - n;
        }

        if (part > AGENT_HISTORY_IDS - n % AGENT_HISTORY_IDS) {
            part = AGENT_HISTORY_IDS - n % AGENT_HISTORY_IDS;
        }

        if (agent_store_ids_write(&agent_history_store, n,
                                  agent_history.ids + at, part) == -1)
        {
            return -1;
        }

        n += part;
    }

    agent_history_ids_saved = agent_history.ids_count;

    return 0;
}


/* A piece of the output that waits; 0: none is left. */

static int
agent_history_step(void)
{
    int               error;
    unsigned          i;
    agent_history_t  *h;

    h = agent_history_writer.h;

    for (i = 0; h == NULL && i < agent_history.kept_count; i++) {
        if (agent_history.kept[i]->pending) {
            h = agent_history.kept[i];
        }
    }

    if (h == NULL) {
        return 0;
    }

    if ((agent_history_writer.h == NULL && agent_history_begin_write(h) == -1)
        || agent_history_piece() == -1)
    {
        error = errno;
        agent_history_release(h);
        agent_store_output_trim(&agent_history_store, h->place, 0);
        h->place = -1;

        /* what is beyond its share of the disk is no fault */

        if (error != EFBIG && !agent_history_said) {
            agent_log("the output of a command can't be written to the disk "
                      "of the sandbox, error %d: it is kept in memory", error);
            agent_history_said = 1;
        }
    }

    return 1;
}


static int
agent_history_begin_write(agent_history_t *h)
{
    size_t    size;
    uint64_t  whole;

    agent_history_writer.h = h;
    agent_history_writer.output.ordinal = h->ordinal;
    agent_history_writer.output.head = h->answer->head;
    agent_history_writer.output.answer = h->answer->size;

    if (h->events != NULL) {
        agent_history_writer.events = agent_events_pack(h->events, &size);

        if (agent_history_writer.events == NULL) {
            errno = ENOMEM;
            return -1;
        }

        agent_history_writer.output.events = size;
    }

    /* older output makes room for newer within its share of the disk */

    whole = agent_history_writer.output.answer
            + agent_history_writer.output.events;

    while (agent_history_stored + whole > agent_history_store.room
           && agent_history.kept[0] != h)
    {
        agent_history_drop(agent_history.kept[0]);
    }

    if (agent_history_stored + whole > agent_history_store.room) {
        errno = EFBIG;
        return -1;
    }

    return agent_store_output_begin(&agent_history_store, h->place);
}


static int
agent_history_piece(void)
{
    size_t                   n;
    uint64_t                 at;
    const uint8_t           *p;
    agent_history_writer_t  *w;

    w = &agent_history_writer;

    if (w->at < w->output.answer) {
        p = w->h->answer->data + w->at;
        n = w->output.answer - w->at;

    } else {
        at = w->at - w->output.answer;
        p = w->events + at;
        n = w->output.events - at;
    }

    if (n > AGENT_HISTORY_PIECE) {
        n = AGENT_HISTORY_PIECE;
    }

    if (n && agent_store_output_write(&agent_history_store, w->h->place,
                                      w->at, p, n) == -1)
    {
        return -1;
    }

    w->at += n;

    return w->at == w->output.answer + w->output.events
           ? agent_history_commit() : 0;
}


static int
agent_history_commit(void)
{
    agent_history_t         *h;
    agent_history_writer_t  *w;

    w = &agent_history_writer;
    h = w->h;

    w->output.answer_sum = agent_history_sum(h->answer->data,
                                             w->output.answer);
    w->output.events_sum = agent_history_sum(w->events, w->output.events);

    if (agent_store_output_commit(&agent_history_store, h->place, &w->output)
        == -1)
    {
        return -1;
    }

    agent_store_output_trim(&agent_history_store, h->place, w->at);

    h->stored = 1;
    h->size = w->at;
    agent_history_stored += h->size;
    agent_history_release(h);

    agent_history.memory -= h->memory;
    h->memory = 0;

    agent_answer_release(h->answer);
    h->answer = NULL;

    if (h->events != NULL) {
        agent_events_release(h->events);
        h->events = NULL;
    }

    return 0;
}


/* Nothing more is written of it. */

static void
agent_history_release(agent_history_t *h)
{
    h->pending = 0;
    free(agent_history_writer.events);
    memset(&agent_history_writer, 0, sizeof(agent_history_writer));
}


static void
agent_history_fail(int error)
{
    if (!agent_history_said) {
        agent_log("the history can't be written to the disk of the sandbox, "
                  "error %d: it is kept in memory", error);
        agent_history_said = 1;
    }

    agent_history_failed = 1;
}


/* A record of the log, as it was written at some time. */

static int
agent_history_handle(void *data, unsigned type, const uint8_t *p, size_t size)
{
    agent_history_t  *h, *known;

    if (type == AGENT_HISTORY_META) {
        agent_history_meta(p, size);
        return 0;
    }

    h = agent_history_parse(type, p, size);

    if (h == NULL) {
        return 0;
    }

    known = agent_history_by_ordinal(h->ordinal);

    if (known == NULL) {
        if (agent_history_insert(h) == -1) {
            agent_history_free(h);
            return 0;
        }

        if (agent_history_meta_seen) {
            agent_history_id_add(h->hash);
        }

        return 0;
    }

    /* its end, after its begin */

    if (known->ended_ms == 0 && h->ended_ms
        && known->length == h->length
        && memcmp(known->id, h->id, h->length) == 0)
    {
        agent_history.fields += h->fields_size - known->fields_size;
        agent_history.ended++;

        free(known->fields);
        known->fields = h->fields;
        known->fields_size = h->fields_size;
        known->result = h->result;
        known->ended_ms = h->ended_ms;
        known->place = h->place;
        known->saved = 1;
        h->fields = NULL;
        agent_history_bound(known);
    }

    agent_history_free(h);

    return 0;
}


static agent_history_t *
agent_history_parse(unsigned type, const uint8_t *p, size_t size)
{
    int                rc;
    size_t             border;
    uint32_t           place;
    agent_history_t   *h;
    sandbox_field_t    field;
    sandbox_fields_t   fields;

    if ((type != AGENT_HISTORY_START && type != AGENT_HISTORY_END)
        || size < AGENT_HISTORY_PREFIX)
    {
        return NULL;
    }

    h = calloc(1, sizeof(agent_history_t));
    if (h == NULL) {
        return NULL;
    }

    memcpy(h->digest, p, SANDBOX_WIRE_DIGEST_SIZE);
    h->result = sandbox_get32(p + 32);
    place = sandbox_get32(p + 36);
    h->place = place <= AGENT_STORE_OUTPUTS ? (int) place - 1 : -1;
    h->saved = 1;

    p += AGENT_HISTORY_PREFIX;
    size -= AGENT_HISTORY_PREFIX;
    border = h->result == 0;

    sandbox_fields_init(&fields, p, size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {
        border |= (size_t) (field.data + field.length - p) == h->result;

        switch (field.tag) {

        case SANDBOX_TAG_COMMAND_ID:
            if (sandbox_command_id_valid(field.data, field.length)) {
                h->length = (uint8_t) field.length;
                memcpy(h->id, field.data, field.length);
            }

            break;

        case SANDBOX_TAG_ORDINAL:
            (void) sandbox_field_number(&field, UINT64_MAX / 2, &h->ordinal);
            break;

        case SANDBOX_TAG_ENDED_MS:
            (void) sandbox_field_number(&field, UINT64_MAX, &h->ended_ms);
            break;
        }
    }

    h->fields_size = size;
    h->fields = malloc(size ? size : 1);

    if (rc != SANDBOX_END || !border || h->length == 0 || h->ordinal == 0
        || (h->ended_ms != 0) != (type == AGENT_HISTORY_END)
        || h->result > SANDBOX_WIRE_MAX_RESULT
        || size > h->result + AGENT_HISTORY_MORE || h->fields == NULL)
    {
        agent_history_free(h);
        return NULL;
    }

    memcpy(h->fields, p, size);
    h->hash = agent_history_hash(h->id, h->length);

    return h;
}


static void
agent_history_meta(const uint8_t *p, size_t size)
{
    size_t     room;
    uint64_t  *ids;

    if (size != 16 || agent_history_meta_seen) {
        return;
    }

    agent_history_meta_seen = 1;

    if (agent_history.ordinal < sandbox_get64(p)) {
        agent_history.ordinal = sandbox_get64(p);
    }

    agent_history.ids_count = sandbox_get64(p + 8);
    agent_history_ids_saved = agent_history.ids_count;

    room = 1024;

    while (room < agent_history.ids_count && room < AGENT_HISTORY_IDS) {
        room *= 2;
    }

    ids = malloc(room * sizeof(uint64_t));
    if (ids == NULL) {
        return;
    }

    free(agent_history.ids);
    agent_history.ids = ids;
    agent_history.ids_room = room;
    agent_store_ids_read(&agent_history_store, ids, room);
}


/* Whose output the places hold, in the order of the commands' ends. */

static void
agent_history_outputs(void)
{
    unsigned               i, n, place;
    agent_history_t       *h, *owner;
    agent_store_output_t   output;

    for (i = 0; i < agent_history.count; i++) {
        h = agent_history.known[i];

        if (h->place == -1) {
            continue;
        }

        place = h->place;
        h->place = -1;

        if (agent_store_output_read(&agent_history_store, place, &output)
            == -1
            || output.ordinal != h->ordinal)
        {
            continue;
        }

        for (n = 0; n < agent_history.kept_count; n++) {
            owner = agent_history.kept[n];

            if (owner->place == (int) place || owner->ended_ms > h->ended_ms) {
                break;
            }
        }

        if (agent_history.kept_count == AGENT_HISTORY_OUTPUTS
            || (n < agent_history.kept_count
                && agent_history.kept[n]->place == (int) place))
        {
            continue;
        }

        memmove(&agent_history.kept[n + 1], &agent_history.kept[n],
                (agent_history.kept_count - n)
                * sizeof(agent_history.kept[0]));

        agent_history.kept[n] = h;
        agent_history.kept_count++;
        h->place = (int) place;
        h->stored = 1;
        h->size = output.answer + output.events;
        agent_history_stored += h->size;
    }
}


/* The answer, or the events, behind `room` bytes; the caller's to free. */

static uint8_t *
agent_history_read(agent_history_t *h, int events, size_t room,
    agent_store_output_t *output)
{
    uint8_t   *p;
    uint64_t   size, sum;

    if (!h->stored) {
        return NULL;
    }

    if (agent_store_output_read(&agent_history_store, h->place, output) == -1
        || output->ordinal != h->ordinal)
    {
        goto bad;
    }

    size = events ? output->events : output->answer;
    sum = events ? output->events_sum : output->answer_sum;

    if (size == 0) {
        return NULL;
    }

    p = malloc(room + size);
    if (p == NULL) {
        return NULL;
    }

    if (agent_store_output_get(&agent_history_store, h->place,
                               events ? output->answer : 0, p + room, size)
        == 0
        && agent_history_sum(p + room, size) == sum)
    {
        return p;
    }

    free(p);

bad:

    agent_log("the output of a command on the disk is damaged");
    agent_history_drop(h);

    return NULL;
}


static uint64_t
agent_history_sum(const uint8_t *p, size_t size)
{
    return agent_store_sum(0, p, size);
}
