/*
 * The known commands of a conversation, and what is kept of each: its
 * receipt as fields, its answer, its events.  What of it is in a file is the
 * concern of agent_history_disk.c.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "agent_events.h"
#include "sandbox_utf8.h"


#define AGENT_HISTORY_FIRST     (2 * SANDBOX_WIRE_MAX_CWD)   /* of fields */
#define AGENT_HISTORY_ANSWER    (512 + SANDBOX_WIRE_FRAME_SIZE                \
                                 + SANDBOX_WIRE_MAX_RESULT)


/*
 * One mapping that a child does not inherit: to copy its pages would cost
 * every command some time.
 */

typedef struct {
    agent_history_t  *known[AGENT_HISTORY_KNOWN];
    uint64_t          hashes[AGENT_HISTORY_KNOWN];
    agent_history_t   entries[AGENT_HISTORY_KNOWN + 1];
    uint64_t          ids[AGENT_HISTORY_IDS];
} agent_history_arena_t;


static agent_history_t *agent_history_new(agent_command_t *command);
static int agent_history_replace(agent_history_t *h, const uint8_t *result,
    size_t size, unsigned outcome);
static const uint8_t *agent_history_result(const agent_answer_t *answer,
    size_t *size);
static void agent_history_keep(agent_history_t *h, agent_answer_t *answer,
    agent_events_t *events);
static void agent_history_remove(unsigned i);


agent_history_table_t    agent_history;

static agent_history_t  *agent_history_unused;   /* entries, given back */
static agent_history_t  *agent_history_fresh;    /* never used, in a row */
static size_t            agent_history_nfresh;


uint64_t
agent_history_ordinal(void)
{
    return ++agent_history.ordinal;
}


agent_history_t *
agent_history_begin(agent_command_t *command)
{
    agent_history_t  *h;

    h = agent_history_new(command);

    if (h != NULL) {
        agent_history_disk_begin(h);
    }

    return h;
}


void
agent_history_end(agent_history_t *h, agent_command_t *command,
    agent_answer_t *answer, agent_events_t *events)
{
    size_t          size;
    const uint8_t  *result;

    if (h == NULL) {
        h = agent_history_new(command);

        if (h == NULL) {
            agent_log("no memory for the receipt of a command");
            return;
        }
    }

    result = answer != NULL ? agent_history_result(answer, &size) : NULL;

    if (result == NULL
        || agent_history_replace(h, result, size, SANDBOX_OUTCOME_LAST) == -1)
    {
        agent_log("no memory for the receipt of a command");
        (void) agent_history_lost(h, command->outcome);

    } else {
        agent_history_keep(h, answer, events);
    }

    agent_history_disk_end(h);
}


agent_history_t *
agent_history_find(const uint8_t *id, size_t length, const char **code)
{
    size_t            i, n;
    uint64_t          hash;
    agent_history_t  *h;

    hash = agent_history_hash(id, length);

    for (i = agent_history.count; i > 0; i--) {
        if (agent_history.hashes[i - 1] != hash) {
            continue;
        }

        h = agent_history.known[i - 1];

        if (h->length == length && memcmp(h->id, id, length) == 0) {
            return h;
        }
    }

    n = agent_history.ids_count < AGENT_HISTORY_IDS ? agent_history.ids_count
                                                    : AGENT_HISTORY_IDS;

    for (i = 0; agent_history.ids != NULL && i < n; i++) {
        if (agent_history.ids[i] == hash) {
            *code = "expired";
            return NULL;
        }
    }

    *code = "command_not_found";

    return NULL;
}


const uint8_t *
agent_history_digest(const agent_history_t *h)
{
    return h->digest;
}


int
agent_history_ended(const agent_history_t *h)
{
    return h->ended_ms != 0;
}


agent_answer_t *
agent_history_answer(agent_history_t *h)
{
    char              id[SANDBOX_WIRE_MAX_COMMAND_ID + 1];
    size_t            size;
    uint8_t          *p;
    const uint8_t    *fields;
    agent_answer_t   *answer;
    sandbox_writer_t  w;

    if (h->ended_ms == 0) {
        return NULL;
    }

    answer = h->answer;

    if (answer != NULL) {
        answer->references++;
        return answer;
    }

    answer = agent_history_disk_answer(h);

    if (answer != NULL) {
        return answer;
    }

    fields = h->fields != NULL ? h->fields : agent_history_disk_fields(h);
    answer = malloc(sizeof(agent_answer_t) + AGENT_HISTORY_ANSWER);

    if (fields == NULL || answer == NULL) {
        free(answer);
        return NULL;
    }

    memcpy(id, h->id, h->length);
    id[h->length] = '\0';

    answer->references = 1;
    answer->head = agent_answer_head(answer->data, 512, id);
    p = answer->data + answer->head + SANDBOX_WIRE_FRAME_SIZE;

    sandbox_writer_init(&w, p, SANDBOX_WIRE_MAX_RESULT);

    if (h->result <= (size_t) (w.end - w.pos)) {
        memcpy(w.pos, fields, h->result);
        w.pos += h->result;
    }

    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT_EXPIRED, 1);

    size = w.pos - w.start;
    sandbox_frame_write(p - SANDBOX_WIRE_FRAME_SIZE, SANDBOX_FRAME_RESULT,
                        (uint32_t) size);
    answer->size = answer->head + SANDBOX_WIRE_FRAME_SIZE + size;

    return answer;
}


agent_events_t *
agent_history_events(agent_history_t *h)
{
    if (h->events != NULL) {
        agent_events_retain(h->events);
        return h->events;
    }

    return agent_history_disk_events(h);
}


int
agent_history_insert(agent_history_t *h)
{
    unsigned  i;

    agent_history.ended += h->ended_ms != 0;
    agent_history.live += h->fields_size;
    agent_history.fields += h->fields != NULL ? h->fields_size : 0;
    agent_history_bound(h);

    if (agent_history.count == AGENT_HISTORY_KNOWN) {
        agent_history.ended -= h->ended_ms != 0;
        agent_history.live -= h->fields_size;
        agent_history.fields -= h->fields != NULL ? h->fields_size : 0;
        return -1;
    }

    /* nearly always the last: those that waited keep their number */

    for (i = agent_history.count; i > 0; i--) {
        if (agent_history.known[i - 1]->ordinal < h->ordinal) {
            break;
        }

        agent_history.known[i] = agent_history.known[i - 1];
        agent_history.hashes[i] = agent_history.hashes[i - 1];
    }

    agent_history.known[i] = h;
    agent_history.hashes[i] = h->hash;
    agent_history.count++;

    if (agent_history.ordinal < h->ordinal) {
        agent_history.ordinal = h->ordinal;
    }

    return 0;
}


void
agent_history_bound(const agent_history_t *h)
{
    unsigned  i;

    for (i = 0; i < agent_history.count; /* void */ ) {
        if (agent_history.ended <= AGENT_HISTORY_RECEIPTS
            && agent_history.live <= AGENT_HISTORY_LIVE
            && agent_history.fields <= AGENT_HISTORY_FIELDS)
        {
            break;
        }

        if (agent_history.known[i] == h
            || agent_history.known[i]->ended_ms == 0)
        {
            i++;
            continue;
        }

        agent_history_remove(i);
    }
}


agent_history_t *
agent_history_by_ordinal(uint64_t ordinal)
{
    unsigned  low, high, middle;

    low = 0;
    high = agent_history.count;

    while (low < high) {
        middle = (low + high) / 2;

        if (agent_history.known[middle]->ordinal < ordinal) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    return low < agent_history.count
           && agent_history.known[low]->ordinal == ordinal
           ? agent_history.known[low] : NULL;
}


void
agent_history_drop(agent_history_t *h)
{
    unsigned  i;

    for (i = 0; i < agent_history.kept_count; i++) {
        if (agent_history.kept[i] != h) {
            continue;
        }

        agent_history.kept_count--;
        memmove(&agent_history.kept[i], &agent_history.kept[i + 1],
                (agent_history.kept_count - i)
                * sizeof(agent_history.kept[0]));
        break;
    }

    agent_history_disk_drop(h);

    agent_history.memory -= h->memory;
    h->memory = 0;

    if (h->answer != NULL) {
        agent_answer_release(h->answer);
        h->answer = NULL;
    }

    if (h->events != NULL) {
        agent_events_release(h->events);
        h->events = NULL;
    }
}


int
agent_history_lost(agent_history_t *h, unsigned outcome)
{
    if (h->fields == NULL) {
        return -1;
    }

    return agent_history_replace(h, h->fields, h->result, outcome);
}


void
agent_history_id_add(uint64_t hash)
{
    if (agent_history.ids != NULL) {
        agent_history.ids[agent_history.ids_count % AGENT_HISTORY_IDS] = hash;
    }

    agent_history.ids_count++;
}


uint64_t
agent_history_hash(const uint8_t *id, size_t length)
{
    size_t    i;
    uint64_t  hash;

    hash = 0xcbf29ce484222325ULL;

    for (i = 0; i < length; i++) {
        hash = (hash ^ id[i]) * 0x100000001b3ULL;
    }

    return hash;
}


uint64_t
agent_history_now(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_REALTIME, &t);

    return (uint64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}


void
agent_history_hold(agent_history_t *h, uint8_t *fields, size_t size,
    size_t result)
{
    agent_history.fields -= h->fields != NULL ? h->fields_size : 0;
    agent_history.fields += fields != NULL ? size : 0;
    agent_history.live += size;
    agent_history.live -= h->fields_size;

    free(h->fields);
    h->fields = fields;
    h->fields_size = (uint32_t) size;
    h->result = (uint32_t) result;
}


agent_history_t *
agent_history_alloc(void)
{
    agent_history_t        *h;
    agent_history_arena_t  *arena;

    if (agent_history.known == NULL) {
        arena = mmap(NULL, sizeof(agent_history_arena_t),
                     PROT_READ|PROT_WRITE,
                     MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);

        if (arena == MAP_FAILED) {
            return NULL;
        }

        (void) madvise(arena, sizeof(agent_history_arena_t), MADV_DONTFORK);

        agent_history.known = arena->known;
        agent_history.hashes = arena->hashes;
        agent_history.ids = arena->ids;

        /* what is not used takes no memory */

        agent_history_fresh = arena->entries;
        agent_history_nfresh = AGENT_HISTORY_KNOWN + 1;
    }

    h = agent_history_unused;

    if (h != NULL) {
        agent_history_unused = h->next;

    } else if (agent_history_nfresh) {
        h = agent_history_fresh++;
        agent_history_nfresh--;
    }

    if (h != NULL) {
        memset(h, 0, sizeof(agent_history_t));
        h->place = -1;
    }

    return h;
}


void
agent_history_free(agent_history_t *h)
{
    free(h->fields);
    h->fields = NULL;
    h->next = agent_history_unused;
    agent_history_unused = h;
}


/* What is known before it runs. */

static agent_history_t *
agent_history_new(agent_command_t *command)
{
    size_t            size;
    uint8_t           fields[AGENT_HISTORY_FIRST];
    uint64_t          now;
    agent_history_t  *h;
    sandbox_writer_t  w;

    h = agent_history_alloc();
    if (h == NULL) {
        return NULL;
    }

    now = agent_history_now();

    h->ordinal = command->ordinal;
    h->length = (uint8_t) strlen(command->id);
    memcpy(h->id, command->id, h->length);
    h->hash = agent_history_hash(h->id, h->length);
    memcpy(h->digest, command->request.digest, SANDBOX_WIRE_DIGEST_SIZE);

    sandbox_writer_init(&w, fields, sizeof(fields));
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, command->id);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);
    sandbox_write_string(&w, SANDBOX_TAG_CWD, command->cwd);
    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, command->request.wall_ms);

    if (command->request.detach) {
        sandbox_write_number(&w, SANDBOX_TAG_DETACHED, 1);
    }

    h->result = w.pos - w.start;

    size = command->request.command_size;

    if (size > SANDBOX_WIRE_MAX_EXCERPT) {
        size = sandbox_utf8_head(command->request.command,
                                 SANDBOX_WIRE_MAX_EXCERPT);
    }

    sandbox_write_number(&w, SANDBOX_TAG_ORDINAL, command->ordinal);
    sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND, command->request.command,
                        size);
    sandbox_write_number(&w, SANDBOX_TAG_ACCEPTED_MS,
                         now - (agent_now_us() - command->accepted) / 1000);
    sandbox_write_number(&w, SANDBOX_TAG_STARTED_MS, now);

    h->fields_size = w.pos - w.start;
    h->fields = agent_history_copy(fields, h->fields_size);

    if (h->fields == NULL) {
        agent_history_free(h);
        return NULL;
    }

    if (agent_history_insert(h) == -1) {
        agent_history_free(h);
        return NULL;
    }

    agent_history_id_add(h->hash);

    return h;
}


/*
 * The RESULT's fields take the place of those that were known before it.
 * With an outcome these are written here, for one that had no RESULT.
 */

static int
agent_history_replace(agent_history_t *h, const uint8_t *result, size_t size,
    unsigned outcome)
{
    size_t            i, rest, room;
    uint8_t          *fields;
    sandbox_writer_t  w;

    static const uint16_t  zero[] = {
        SANDBOX_TAG_STDOUT_BYTES, SANDBOX_TAG_STDERR_BYTES,
        SANDBOX_TAG_TRUNCATED, SANDBOX_TAG_DURATION_US, SANDBOX_TAG_QUEUED_US,
        SANDBOX_TAG_CPU_US, SANDBOX_TAG_MEMORY_PEAK, SANDBOX_TAG_BACKGROUND,
        SANDBOX_TAG_CREATED
    };

    rest = h->fields_size - h->result;
    room = size + rest + (5 + sizeof(zero) / sizeof(zero[0]))
                         * (SANDBOX_WIRE_FIELD_SIZE + 8);

    fields = malloc(room);
    if (fields == NULL) {
        return -1;
    }

    sandbox_writer_init(&w, fields, room);
    memcpy(w.pos, result, size);
    w.pos += size;

    if (outcome != SANDBOX_OUTCOME_LAST) {
        sandbox_write_number(&w, SANDBOX_TAG_EXIT_CODE, 137);
        sandbox_write_number(&w, SANDBOX_TAG_OUTCOME, outcome);
        sandbox_write_number(&w, SANDBOX_TAG_COMMAND_STATE,
                             SANDBOX_COMMAND_ENDED);

        for (i = 0; i < sizeof(zero) / sizeof(zero[0]); i++) {
            sandbox_write_number(&w, zero[i], 0);
        }
    }

    size = w.pos - w.start;
    memcpy(w.pos, h->fields + h->result, rest);
    w.pos += rest;

    agent_history.ended += h->ended_ms == 0;
    h->ended_ms = agent_history_now();
    sandbox_write_number(&w, SANDBOX_TAG_ENDED_MS, h->ended_ms);

    agent_history_hold(h, fields, w.pos - w.start, size);
    agent_history_bound(h);

    return 0;
}


/* The payload of the last frame. */

static const uint8_t *
agent_history_result(const agent_answer_t *answer, size_t *size)
{
    size_t           at;
    sandbox_frame_t  frame;

    for (at = 0; at + SANDBOX_WIRE_FRAME_SIZE <= answer->size;
         at += frame.length)
    {
        if (sandbox_frame_read(answer->data + at, &frame) != SANDBOX_OK) {
            break;
        }

        at += SANDBOX_WIRE_FRAME_SIZE;

        if (frame.type == SANDBOX_FRAME_RESULT
            && frame.length == answer->size - at)
        {
            *size = frame.length;
            return answer->data + at;
        }
    }

    *size = 0;

    return NULL;
}


/* Holds it; older output goes, to the disk or for good. */

static void
agent_history_keep(agent_history_t *h, agent_answer_t *answer,
    agent_events_t *events)
{
    while (agent_history.kept_count == AGENT_HISTORY_OUTPUTS) {
        agent_history_drop(agent_history.kept[0]);
    }

    h->answer = answer;
    h->answer->references++;
    h->memory = answer->size;

    if (events != NULL) {
        h->events = events;
        agent_events_retain(events);
        h->memory += agent_events_memory(events);
    }

    agent_history.memory += h->memory;
    agent_history.kept[agent_history.kept_count++] = h;
}


static void
agent_history_remove(unsigned i)
{
    agent_history_t  *h;

    h = agent_history.known[i];
    agent_history_drop(h);
    agent_history_disk_forget(h);

    agent_history_hold(h, NULL, 0, 0);
    agent_history.ended -= h->ended_ms != 0;
    agent_history.count--;

    memmove(&agent_history.known[i], &agent_history.known[i + 1],
            (agent_history.count - i) * sizeof(agent_history.known[0]));
    memmove(&agent_history.hashes[i], &agent_history.hashes[i + 1],
            (agent_history.count - i) * sizeof(agent_history.hashes[0]));

    agent_history_free(h);
}
