/*
 * The history and its file: what is written, when, and what is read back.
 *
 * At its begin a command costs one short write.  Its receipt is written when
 * its answer is on the way, its output too if it is short and nothing runs,
 * else a moment later: of many commands only the last are worth it.  What
 * can't be written stays in memory as long as there is room, and is tried
 * again when the log is written anew.
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
#define AGENT_HISTORY_OUTPUT   50        /* ms, after a receipt */
#define AGENT_HISTORY_BUSY     200       /* ms, while others run */
#define AGENT_HISTORY_RETRY    64        /* commands, then a new try */

typedef struct {
    agent_history_t       *h;            /* NULL: nothing is being written */
    uint8_t               *events;
    agent_store_output_t   output;
    uint64_t               at;
} agent_history_writer_t;


static void agent_history_work(agent_timer_t *timer);
static void agent_history_work_output(agent_timer_t *timer);
static void agent_history_save(void);
static void agent_history_relieve(void);
static agent_history_t *agent_history_excess(void);
static int agent_history_record(agent_history_t *h, unsigned type,
    agent_store_place_t *place);
static int agent_history_compact_all(void);
static int agent_history_ids_write(void);
static int agent_history_step(void);
static int agent_history_begin_write(agent_history_t *h);
static int agent_history_free_place(void);
static int agent_history_write_short(void);
static int agent_history_piece(void);
static void agent_history_sums(void);
static void agent_history_written(void);
static void agent_history_fail(int error);
static void agent_history_release(agent_history_t *h);
static uint8_t *agent_history_read(agent_history_t *h, int events,
    size_t room, agent_store_output_t *output);


agent_history_file_t            agent_history_file = { .store.fd = -1 };

static agent_timer_t            agent_history_timer;
static agent_timer_t            agent_history_timer_output;
static agent_history_t         *agent_history_unsaved;   /* the first */
static agent_history_writer_t   agent_history_writer;
static unsigned                 agent_history_failing;    /* commands since */
static unsigned                 agent_history_said;
static uint64_t                 agent_history_since;     /* output waits, ms */


void
agent_history_init(int fd)
{
    agent_history_timer.handler = agent_history_work;
    agent_history_timer_output.handler = agent_history_work_output;

    if (agent_store_init(&agent_history_file.store, fd) == -1) {
        agent_log("there is no file for the history: it is kept in memory");
        return;
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

    agent_history_relieve();
}


void
agent_history_disk_begin(agent_history_t *h)
{
    if (!agent_history_file.loaded || agent_history_failing) {
        return;
    }

    if (agent_history_record(h, AGENT_HISTORY_START, &h->at) == -1) {
        agent_history_fail(errno);
    }
}


void
agent_history_disk_end(agent_history_t *h)
{
    unsigned           i, used;
    agent_history_t  **p;

    if (!agent_history_file.loaded) {
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

    h->next = NULL;

    for (p = &agent_history_unsaved; *p != NULL; p = &(*p)->next) {
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

    for (p = &agent_history_unsaved; *p != NULL; p = &(*p)->next) {
        if (*p == h) {
            *p = h->next;
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

    /* the place is written over soon */

    h->stored = 0;
    h->pending = 0;
    h->place = -1;
}


void
agent_history_disk_later(void)
{
    if (!agent_history_timer_output.active) {
        agent_timer_set(&agent_history_timer_output, AGENT_HISTORY_OUTPUT);
    }
}


const uint8_t *
agent_history_disk_fields(const agent_history_t *h)
{
    static uint8_t  buffer[AGENT_STORE_RECORD];

    if (agent_store_fetch(&agent_history_file.store, &h->at, buffer,
                          sizeof(buffer))
        != AGENT_HISTORY_PREFIX + h->fields_size)
    {
        return NULL;
    }

    return buffer + AGENT_HISTORY_PREFIX;
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

    if (agent.running == NULL && agent.queued == 0
        && agent_history.memory <= AGENT_HISTORY_SHORT)
    {
        agent_history_work_output(&agent_history_timer_output);
        return;
    }

    agent_history_disk_later();
}


static void
agent_history_work_output(agent_timer_t *timer)
{
    uint64_t  now;

    now = agent_now_ms();

    if (agent_history_since == 0) {
        agent_history_since = now;
    }

    /* one of the next commands may make it old, and it need not be written */

    if (agent.running != NULL
        && agent_history.memory <= AGENT_HISTORY_MEMORY / 2
        && now - agent_history_since < AGENT_HISTORY_BUSY)
    {
        agent_timer_set(timer, AGENT_HISTORY_OUTPUT);
        return;
    }

    if (agent_history_step()) {
        agent_timer_set(timer, AGENT_HISTORY_DELAY);
        return;
    }

    agent_history_since = 0;
}


/* Receipts of those that have ended; and a new log when this one is full. */

static void
agent_history_save(void)
{
    size_t            limit;
    agent_history_t  *h;

    while ((h = agent_history_unsaved) != NULL) {
        agent_history_unsaved = h->next;
        h->next = NULL;

        if (agent_history_failing) {
            agent_history_failing++;

        } else if (agent_history_record(h, AGENT_HISTORY_END, &h->at) == -1) {
            agent_history_fail(errno);

        } else {

            /* the log has it */

            agent_history_hold(h, NULL, h->fields_size, h->result);
        }
    }

    limit = 2 * (agent_history.live + agent_history.count
                                        * (AGENT_HISTORY_PREFIX + 24));

    if (limit < agent_history_file.store.reserved) {
        limit = agent_history_file.store.reserved;
    }

    if (limit > AGENT_STORE_LOG) {
        limit = AGENT_STORE_LOG;
    }

    limit -= 2 * AGENT_STORE_RECORD;

    if (agent_history_file.loaded
        && (agent_history_failing > AGENT_HISTORY_RETRY
            || (!agent_history_failing
                && agent_history_file.store.log.end > limit)))
    {
        agent_history_disk_compact();
    }
}


/*
 * Output in memory goes to the disk until it is in bounds; what the disk did
 * not take goes for good, the oldest first.
 */

static void
agent_history_relieve(void)
{
    agent_history_t  *h;

    while (agent_history.memory > AGENT_HISTORY_MEMORY) {
        if (agent_history_step()) {
            continue;
        }

        h = agent_history_excess();
        if (h == NULL) {
            break;
        }

        agent_history_drop(h);
    }
}


/* One that is beyond the bounds alone, or the oldest that is in memory. */

static agent_history_t *
agent_history_excess(void)
{
    unsigned          i;
    agent_history_t  *h, *oldest;

    oldest = NULL;

    for (i = 0; i < agent_history.kept_count; i++) {
        h = agent_history.kept[i];

        if (h->memory > AGENT_HISTORY_MEMORY) {
            return h;
        }

        if (oldest == NULL && h->memory) {
            oldest = h;
        }
    }

    return oldest;
}


static int
agent_history_record(agent_history_t *h, unsigned type,
    agent_store_place_t *place)
{
    uint8_t         head[AGENT_HISTORY_PREFIX];
    const uint8_t  *fields;

    fields = h->fields != NULL ? h->fields : agent_history_disk_fields(h);

    if (fields == NULL) {
        errno = EIO;
        return -1;
    }

    memcpy(head, h->digest, SANDBOX_WIRE_DIGEST_SIZE);
    sandbox_put32(head + 32, h->result);
    sandbox_put32(head + 36, type == AGENT_HISTORY_END ? h->place + 1 : 0);

    return agent_store_append(&agent_history_file.store, type, head,
                              sizeof(head), fields, h->fields_size, place);
}


/* What is known becomes the new log. */

void
agent_history_disk_compact(void)
{
    int               error;
    unsigned          i;
    agent_history_t  *h;

    error = 0;

    if (agent_store_rewrite(&agent_history_file.store, agent.session) == -1
        || agent_history_compact_all() == -1
        || agent_store_rewrite_end(&agent_history_file.store) == -1)
    {
        error = errno;
        agent_store_rewrite_cancel(&agent_history_file.store);
    }

    if (error) {
        agent_history_fail(error);
        return;
    }

    for (i = 0; i < agent_history.count; i++) {
        h = agent_history.known[i];
        h->at = h->next_at;

        if (h->ended_ms && h->fields != NULL) {
            agent_history_disk_forget(h);
            agent_history_hold(h, NULL, h->fields_size, h->result);
        }
    }

    if (agent_history_said) {
        agent_log("the history is written to the disk again");
        agent_history_said = 0;
    }

    agent_history_failing = 0;
}


static int
agent_history_compact_all(void)
{
    uint8_t           meta[16];
    unsigned          i;
    agent_history_t  *h;

    for (i = 0; i < agent_history.count; i++) {
        h = agent_history.known[i];
        memset(&h->next_at, 0, sizeof(h->next_at));

        /* what can't be read back is lost, the others are not */

        if (agent_history_record(h, h->ended_ms ? AGENT_HISTORY_END
                                                : AGENT_HISTORY_START,
                                 &h->next_at) == -1
            && h->fields != NULL)
        {
            return -1;
        }
    }

    /* ids that come after this are counted from here */

    sandbox_put64(meta, agent_history.ordinal);
    sandbox_put64(meta + 8, agent_history.ids_count);

    if (agent_store_append(&agent_history_file.store, AGENT_HISTORY_META, meta,
                           sizeof(meta), meta, 0, NULL) == -1)
    {
        return -1;
    }

    return agent_history_ids_write();
}


/* Those since the last time. */

static int
agent_history_ids_write(void)
{
    size_t    part;
    uint64_t  n, at;

    n = agent_history_file.ids_saved;

    if (agent_history.ids == NULL) {
        return 0;
    }

    if (agent_history.ids_count > AGENT_HISTORY_IDS
        && n < agent_history.ids_count - AGENT_HISTORY_IDS)
    {
        n = agent_history.ids_count - AGENT_HISTORY_IDS;
    }

    while (n < agent_history.ids_count) {
        at = n % AGENT_HISTORY_IDS;
        part = AGENT_HISTORY_IDS - at;

        if (part > agent_history.ids_count - n) {
            part = agent_history.ids_count - n;
        }

        if (agent_store_ids_write(&agent_history_file.store, n,
                                  agent_history.ids + at, part) == -1)
        {
            return -1;
        }

        n += part;
    }

    agent_history_file.ids_saved = agent_history.ids_count;

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
        agent_store_output_trim(&agent_history_file.store, h->place, 0);
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
    size_t          size;
    unsigned        i;
    uint64_t        whole;
    agent_store_t  *store;

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

    store = &agent_history_file.store;

    if (whole > store->room) {
        errno = EFBIG;
        return -1;
    }

    while (agent_store_output_used(store) - store->extent[h->place] + whole
           > store->room)
    {
        if (agent_history_free_place() == 0) {
            continue;
        }

        /* what is in memory takes no room there */

        for (i = 0; i < agent_history.kept_count; i++) {
            if (agent_history.kept[i]->stored) {
                break;
            }
        }

        if (i == agent_history.kept_count) {
            break;
        }

        agent_history_drop(agent_history.kept[i]);
    }

    return 0;
}


/* Gives back one that nobody has any more; -1: there is none. */

static int
agent_history_free_place(void)
{
    unsigned        i, used;
    agent_store_t  *store;

    store = &agent_history_file.store;
    used = 0;

    for (i = 0; i < agent_history.kept_count; i++) {
        if (agent_history.kept[i]->place != -1) {
            used |= 1U << agent_history.kept[i]->place;
        }
    }

    for (i = 0; i < AGENT_STORE_OUTPUTS; i++) {
        if ((used & (1U << i)) == 0 && store->extent[i] > AGENT_STORE_BLOCK) {
            agent_store_output_trim(store, i, 0);
            return 0;
        }
    }

    return -1;
}


/* All of it at once. */

static int
agent_history_write_short(void)
{
    size_t                   size;
    agent_history_writer_t  *w;
    static uint8_t           buffer[AGENT_STORE_HEADER + AGENT_HISTORY_SHORT];

    w = &agent_history_writer;
    size = AGENT_STORE_HEADER + w->output.answer + w->output.events;

    agent_store_output_header(buffer, &w->output);
    memcpy(buffer + AGENT_STORE_HEADER, w->h->answer->data, w->output.answer);

    if (w->output.events) {
        memcpy(buffer + AGENT_STORE_HEADER + w->output.answer, w->events,
               w->output.events);
    }

    return agent_store_output_write(&agent_history_file.store, w->h->place, 0,
                                    buffer, size);
}


static int
agent_history_piece(void)
{
    size_t                   n;
    uint64_t                 at;
    const uint8_t           *p;
    agent_history_writer_t  *w;

    w = &agent_history_writer;

    if (w->output.answer + w->output.events <= AGENT_HISTORY_SHORT) {
        agent_history_sums();
        w->at = w->output.answer + w->output.events;

        if (agent_history_write_short() == -1) {
            return -1;
        }

        agent_history_written();

        return 0;
    }

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

    if (n && agent_store_output_write(&agent_history_file.store, w->h->place,
                                      AGENT_STORE_HEADER + w->at, p, n) == -1)
    {
        return -1;
    }

    w->at += n;

    if (w->at < w->output.answer + w->output.events) {
        return 0;
    }

    agent_history_sums();

    if (agent_store_output_commit(&agent_history_file.store, w->h->place,
                                  &w->output) == -1)
    {
        return -1;
    }

    agent_history_written();

    return 0;
}


static void
agent_history_sums(void)
{
    agent_history_writer_t  *w;

    w = &agent_history_writer;
    w->output.answer_sum = agent_store_sum(0, w->h->answer->data,
                                           w->output.answer);
    w->output.events_sum = agent_store_sum(0, w->events, w->output.events);
}


/* The disk has it: it need not be in memory. */

static void
agent_history_written(void)
{
    agent_history_t         *h;
    agent_history_writer_t  *w;

    w = &agent_history_writer;
    h = w->h;

    agent_store_output_trim(&agent_history_file.store, h->place, w->at);

    h->stored = 1;
    agent_history_release(h);

    agent_history.memory -= h->memory;
    h->memory = 0;

    agent_answer_release(h->answer);
    h->answer = NULL;

    if (h->events != NULL) {
        agent_events_release(h->events);
        h->events = NULL;
    }
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

    agent_history_failing = 1;
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

    if (agent_store_output_read(&agent_history_file.store, h->place, output)
        == -1
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

    if (agent_store_output_get(&agent_history_file.store, h->place,
                               events ? output->answer : 0, p + room, size)
        == 0
        && agent_store_sum(0, p + room, size) == sum)
    {
        return p;
    }

    free(p);

bad:

    agent_log("the output of a command on the disk is damaged");
    agent_history_drop(h);

    return NULL;
}
