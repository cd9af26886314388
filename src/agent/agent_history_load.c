/*
 * The history that is in a file, read when the session is known.  What is
 * not as it is written here is left out; a start never fails for it.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_events.h"


static void agent_history_import(int before);
static void agent_history_import_fields(agent_history_t *h);
static void agent_history_import_output(agent_history_t *h, unsigned place);
static void agent_history_unended(unsigned outcome);
static int agent_history_handle(void *data, unsigned type, const uint8_t *p,
    size_t size, const agent_store_place_t *at);
static agent_history_t *agent_history_parse(unsigned type, const uint8_t *p,
    size_t size);
static void agent_history_meta(const uint8_t *p, size_t size);
static void agent_history_outputs(void);


static unsigned  agent_history_meta_seen;


void
agent_history_load(int before)
{
    int  rc;

    if (agent_history_file.loaded) {
        goto done;
    }

    rc = agent_store_read(&agent_history_file.store, agent.session,
                          agent_history_handle, NULL);

    if (rc == 0) {
        agent_history_outputs();
    }

    agent_history_file.loaded = agent_history_file.store.fd != -1;

    if (rc == -1 && before != -1) {
        agent_history_import(before);
    }

    /* what ran when the agent before us died */

    agent_history_unended(SANDBOX_OUTCOME_LOST);

    if (rc == -1 && agent_history_file.loaded) {
        agent_history_disk_compact();
    }

done:

    if (before != -1) {
        close(before);
    }
}


uint8_t *
agent_history_copy(const uint8_t *p, size_t size)
{
    uint8_t  *copy;

    copy = malloc(size);

    if (copy != NULL) {
        memcpy(copy, p, size);
    }

    return copy;
}


/*
 * From the file of the sandbox before this one: all receipts, and the latest
 * output that has room in memory until it is written to our own.
 */

static void
agent_history_import(int before)
{
    unsigned        i;
    agent_store_t   own;

    own = agent_history_file.store;

    if (agent_store_open(&agent_history_file.store, before) == 0
        && agent_store_read(&agent_history_file.store, agent.session,
                            agent_history_handle, NULL) == 0)
    {
        agent_history_outputs();

        for (i = 0; i < agent_history.count; i++) {
            agent_history_import_fields(agent_history.known[i]);
        }

        for (i = agent_history.kept_count; i > 0; i--) {
            agent_history_import_output(agent_history.kept[i - 1], i - 1);
        }

        agent_log("%u commands of the sandbox before this one are known",
                  agent_history.count);
    }

    agent_history_file.store = own;
    agent_history_file.ids_saved = 0;

    agent_history_unended(SANDBOX_OUTCOME_DELETED);
    agent_history_disk_later();
}


static void
agent_history_import_fields(agent_history_t *h)
{
    uint8_t        *copy;
    const uint8_t  *fields;

    if (h->fields != NULL) {
        return;
    }

    fields = agent_history_disk_fields(h);
    copy = fields != NULL ? agent_history_copy(fields, h->fields_size) : NULL;

    if (copy != NULL) {
        agent_history_hold(h, copy, h->fields_size, h->result);
    }

    memset(&h->at, 0, sizeof(h->at));
}


static void
agent_history_import_output(agent_history_t *h, unsigned place)
{
    /* what is found damaged is let go */

    h->answer = agent_history_disk_answer(h);
    h->events = agent_history_disk_events(h);

    if (h->answer != NULL) {
        h->memory += h->answer->size;
    }

    if (h->events != NULL) {
        h->memory += agent_events_memory(h->events);
    }

    agent_history.memory += h->memory;

    if (h->answer == NULL || agent_history.memory > AGENT_HISTORY_MEMORY) {
        agent_history_drop(h);
        return;
    }

    h->stored = 0;
    h->place = agent_history_file.loaded ? (int) place : -1;
    h->pending = agent_history_file.loaded;
}


/* Those that have begun and will never end. */

static void
agent_history_unended(unsigned outcome)
{
    unsigned          i;
    agent_history_t  *h;

    for (i = 0; i < agent_history.count; /* void */ ) {
        h = agent_history.known[i];

        if (h->ended_ms == 0 && agent_history_lost(h, outcome) == 0) {
            agent_history_disk_end(h);

            /* older ones may have gone for it */

            i = 0;
            continue;
        }

        i++;
    }
}


/* A record of the log, as it was written at some time. */

static int
agent_history_handle(void *data, unsigned type, const uint8_t *p,
    size_t size, const agent_store_place_t *at)
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

    h->at = *at;
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
        agent_history_hold(known, NULL, h->fields_size, h->result);
        agent_history.ended++;
        known->ended_ms = h->ended_ms;
        known->place = h->place;
        known->at = h->at;
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

    h = agent_history_alloc();
    if (h == NULL) {
        return NULL;
    }

    memcpy(h->digest, p, SANDBOX_WIRE_DIGEST_SIZE);
    h->result = sandbox_get32(p + 32);
    place = sandbox_get32(p + 36);
    h->place = place <= AGENT_STORE_OUTPUTS ? (int) place - 1 : -1;

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

    if (rc != SANDBOX_END || !border || h->length == 0 || h->ordinal == 0
        || (h->ended_ms != 0) != (type == AGENT_HISTORY_END)
        || h->result > SANDBOX_WIRE_MAX_RESULT
        || size > h->result + AGENT_HISTORY_MORE)
    {
        agent_history_free(h);
        return NULL;
    }

    h->fields_size = (uint32_t) size;

    /* one that has not ended gets other fields soon */

    if (type == AGENT_HISTORY_START) {
        h->fields = agent_history_copy(p, size);

        if (h->fields == NULL) {
            agent_history_free(h);
            return NULL;
        }
    }

    h->hash = agent_history_hash(h->id, h->length);

    return h;
}


static void
agent_history_meta(const uint8_t *p, size_t size)
{
    if (size != 16 || agent_history_meta_seen) {
        return;
    }

    agent_history_meta_seen = 1;

    if (agent_history.ordinal < sandbox_get64(p)) {
        agent_history.ordinal = sandbox_get64(p);
    }

    agent_history.ids_count = sandbox_get64(p + 8);
    agent_history_file.ids_saved = agent_history.ids_count;

    if (agent_history.ids != NULL) {
        agent_store_ids_read(&agent_history_file.store, agent_history.ids,
                             agent_history.ids_count < AGENT_HISTORY_IDS
                             ? agent_history.ids_count : AGENT_HISTORY_IDS);
    }
}


/* Whose output the places hold, in the order of the commands' ends. */

static void
agent_history_outputs(void)
{
    unsigned               i, n, place;
    uint64_t               sizes[AGENT_STORE_OUTPUTS];
    agent_history_t       *h, *owner;
    agent_store_output_t   output;

    memset(sizes, 0, sizeof(sizes));

    for (i = 0; i < agent_history.count; i++) {
        h = agent_history.known[i];

        if (h->place == -1) {
            continue;
        }

        place = h->place;
        h->place = -1;

        if (agent_store_output_read(&agent_history_file.store, place, &output)
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
        sizes[place] = output.answer + output.events;
    }

    /* what is beyond that, or nobody's, is of no use */

    for (i = 0; i < AGENT_STORE_OUTPUTS; i++) {
        agent_store_output_trim(&agent_history_file.store, i, sizes[i]);
    }
}
