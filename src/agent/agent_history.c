/*
 * The known commands of a conversation, oldest first, and what is kept of
 * each: its receipt as fields, its answer, its events.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sandbox_utf8.h"


#define AGENT_HISTORY_KNOWN     (AGENT_HISTORY_RECEIPTS + AGENT_HISTORY_RUNNING)
#define AGENT_HISTORY_IDS_STEP  1024


static agent_history_t *agent_history_add(agent_command_t *command);
static int agent_history_start(agent_history_t *h, agent_command_t *command);
static int agent_history_finish(agent_history_t *h,
    const agent_answer_t *answer);
static const uint8_t *agent_history_result(const agent_answer_t *answer,
    size_t *size);
static void agent_history_keep(agent_history_t *h, agent_answer_t *answer,
    agent_events_t *events);
static size_t agent_history_size(const agent_history_t *h);
static void agent_history_drop(agent_history_t *h);
static void agent_history_remove(unsigned i);
static void agent_history_id_add(uint64_t hash);
static uint64_t agent_history_hash(const uint8_t *id, size_t length);


static agent_history_t  *agent_history[AGENT_HISTORY_KNOWN];
static unsigned          agent_history_count;

/* those with output, in the order in which they ended */

static agent_history_t  *agent_history_kept[AGENT_HISTORY_OUTPUTS];
static unsigned          agent_history_kept_count;
static size_t            agent_history_memory;   /* of their answers, events */

static size_t            agent_history_receipts; /* bytes of fields */
static uint64_t          agent_history_last;     /* ordinal given out */

/* a ring: entry n is at n % AGENT_HISTORY_IDS */

static uint64_t         *agent_history_ids;
static uint64_t          agent_history_ids_count;    /* ever */
static size_t            agent_history_ids_room;


uint64_t
agent_history_ordinal(void)
{
    return ++agent_history_last;
}


agent_history_t *
agent_history_begin(agent_command_t *command)
{
    return agent_history_add(command);
}


void
agent_history_end(agent_history_t *h, agent_command_t *command,
    agent_answer_t *answer, agent_events_t *events)
{
    if (h == NULL) {
        h = agent_history_add(command);

        if (h == NULL) {
            agent_log("no memory for the receipt of a command");
            return;
        }
    }

    h->ended = 1;

    if (answer == NULL || agent_history_finish(h, answer) == -1) {
        return;
    }

    agent_history_keep(h, answer, events);
}


agent_history_t *
agent_history_find(const uint8_t *id, size_t length, const char **code)
{
    size_t            i, n;
    uint64_t          hash;
    agent_history_t  *h;

    hash = agent_history_hash(id, length);

    for (i = agent_history_count; i > 0; i--) {
        h = agent_history[i - 1];

        if (h->hash == hash && h->length == length
            && memcmp(h->id, id, length) == 0)
        {
            return h;
        }
    }

    n = agent_history_ids_count < agent_history_ids_room
        ? agent_history_ids_count : agent_history_ids_room;

    for (i = 0; i < n; i++) {
        if (agent_history_ids[i] == hash) {
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
    return h->ended;
}


agent_answer_t *
agent_history_answer(agent_history_t *h)
{
    char              id[SANDBOX_WIRE_MAX_COMMAND_ID + 1];
    size_t            size;
    uint8_t          *p;
    agent_answer_t   *answer;
    sandbox_writer_t  w;

    if (!h->ended) {
        return NULL;
    }

    if (h->answer != NULL) {
        h->answer->references++;
        return h->answer;
    }

    size = 512 + SANDBOX_WIRE_FRAME_SIZE + SANDBOX_WIRE_MAX_RESULT;

    answer = malloc(sizeof(agent_answer_t) + size);
    if (answer == NULL) {
        return NULL;
    }

    memcpy(id, h->id, h->length);
    id[h->length] = '\0';

    answer->references = 1;
    answer->head = agent_answer_head(answer->data, 512, id);
    p = answer->data + answer->head + SANDBOX_WIRE_FRAME_SIZE;

    sandbox_writer_init(&w, p, SANDBOX_WIRE_MAX_RESULT);

    if (h->result <= (size_t) (w.end - w.pos)) {
        memcpy(w.pos, h->fields, h->result);
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
    return h->events;
}


/* A known command that has begun; makes room by forgetting the oldest. */

static agent_history_t *
agent_history_add(agent_command_t *command)
{
    unsigned          i, ended;
    agent_history_t  *h;

    h = calloc(1, sizeof(agent_history_t));

    if (h == NULL || agent_history_start(h, command) == -1) {
        free(h);
        return NULL;
    }

    ended = 0;

    for (i = 0; i < agent_history_count; i++) {
        ended += agent_history[i]->ended;
    }

    for (i = 0; i < agent_history_count; i++) {
        if (ended >= AGENT_HISTORY_RECEIPTS && agent_history[i]->ended) {
            agent_history_remove(i);
            break;
        }
    }

    while (agent_history_count == AGENT_HISTORY_KNOWN
           || (agent_history_receipts > AGENT_HISTORY_MEMORY
               && agent_history[0]->ended))
    {
        agent_history_remove(0);
    }

    /* nearly always the last: those that waited keep their number */

    for (i = agent_history_count; i > 0; i--) {
        if (agent_history[i - 1]->ordinal < h->ordinal) {
            break;
        }

        agent_history[i] = agent_history[i - 1];
    }

    agent_history[i] = h;
    agent_history_count++;
    agent_history_receipts += h->fields_size;
    agent_history_id_add(h->hash);

    return h;
}


/* What is known before it runs. */

static int
agent_history_start(agent_history_t *h, agent_command_t *command)
{
    size_t            size;
    uint8_t           fields[AGENT_HISTORY_FIELDS];
    uint64_t          now, now_ms;
    struct timespec   t;
    sandbox_writer_t  w;

    clock_gettime(CLOCK_REALTIME, &t);
    now_ms = (uint64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
    now = agent_now_us();

    h->length = (uint8_t) strlen(command->id);
    memcpy(h->id, command->id, h->length);
    h->hash = agent_history_hash(h->id, h->length);
    memcpy(h->digest, command->request.digest, SANDBOX_WIRE_DIGEST_SIZE);
    h->ordinal = command->ordinal;

    sandbox_writer_init(&w, fields, sizeof(fields));
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, command->id);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);
    sandbox_write_string(&w, SANDBOX_TAG_CWD, command->cwd);
    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, command->request.wall_ms);
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
                         now_ms - (now - command->accepted) / 1000);
    sandbox_write_number(&w, SANDBOX_TAG_STARTED_MS, now_ms);

    h->fields_size = w.pos - w.start;
    h->fields = malloc(h->fields_size);

    if (h->fields == NULL) {
        return -1;
    }

    memcpy(h->fields, fields, h->fields_size);

    return 0;
}


/* The RESULT's fields take the place of those that were known before it. */

static int
agent_history_finish(agent_history_t *h, const agent_answer_t *answer)
{
    size_t            size, rest;
    uint8_t          *fields;
    const uint8_t    *result;
    struct timespec   t;
    sandbox_writer_t  w;

    result = agent_history_result(answer, &size);
    rest = h->fields_size - h->result;

    fields = malloc(size + rest + SANDBOX_WIRE_FIELD_SIZE + 8);

    if (result == NULL || fields == NULL) {
        free(fields);
        return -1;
    }

    clock_gettime(CLOCK_REALTIME, &t);

    memcpy(fields, result, size);
    memcpy(fields + size, h->fields + h->result, rest);
    sandbox_writer_init(&w, fields + size + rest, SANDBOX_WIRE_FIELD_SIZE + 8);
    sandbox_write_number(&w, SANDBOX_TAG_ENDED_MS,
                         (uint64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000);

    agent_history_receipts -= h->fields_size;
    free(h->fields);
    h->fields = fields;
    h->fields_size = w.pos - fields;
    h->result = size;
    agent_history_receipts += h->fields_size;

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


static void
agent_history_keep(agent_history_t *h, agent_answer_t *answer,
    agent_events_t *events)
{
    if (answer->size > AGENT_HISTORY_MEMORY) {
        return;
    }

    while (agent_history_kept_count == AGENT_HISTORY_OUTPUTS
           || (agent_history_kept_count
               && agent_history_memory + answer->size > AGENT_HISTORY_MEMORY))
    {
        agent_history_drop(agent_history_kept[0]);
    }

    h->answer = answer;
    h->answer->references++;
    agent_history_kept[agent_history_kept_count++] = h;
    agent_history_memory += agent_history_size(h);
}


static size_t
agent_history_size(const agent_history_t *h)
{
    return h->answer != NULL ? h->answer->size : 0;
}


/* Lets its output go; the receipt stays. */

static void
agent_history_drop(agent_history_t *h)
{
    unsigned  i;

    if (h->answer == NULL) {
        return;
    }

    for (i = 0; agent_history_kept[i] != h; i++) { /* void */ }

    agent_history_kept_count--;
    memmove(&agent_history_kept[i], &agent_history_kept[i + 1],
            (agent_history_kept_count - i) * sizeof(agent_history_kept[0]));

    agent_history_memory -= agent_history_size(h);
    agent_answer_release(h->answer);
    h->answer = NULL;
}


static void
agent_history_remove(unsigned i)
{
    agent_history_t  *h;

    h = agent_history[i];
    agent_history_drop(h);
    agent_history_receipts -= h->fields_size;
    agent_history_count--;

    memmove(&agent_history[i], &agent_history[i + 1],
            (agent_history_count - i) * sizeof(agent_history[0]));

    free(h->fields);
    free(h);
}


/* Without memory for more, the oldest hashes go earlier. */

static void
agent_history_id_add(uint64_t hash)
{
    size_t     room;
    uint64_t  *grown;

    if (agent_history_ids_count >= agent_history_ids_room
        && agent_history_ids_room < AGENT_HISTORY_IDS)
    {
        room = agent_history_ids_room ? 2 * agent_history_ids_room
                                      : AGENT_HISTORY_IDS_STEP;
        grown = realloc(agent_history_ids, room * sizeof(uint64_t));

        if (grown != NULL) {
            agent_history_ids = grown;
            agent_history_ids_room = room;
        }
    }

    if (agent_history_ids_room) {
        agent_history_ids[agent_history_ids_count % agent_history_ids_room]
            = hash;
        agent_history_ids_count++;
    }
}


static uint64_t
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
