/*
 * HISTORY: the receipts of a conversation as records, newest first, with
 * those that wait and run.
 */

#include "agent.h"

#include <stdlib.h>
#include <string.h>

#include "sandbox_utf8.h"


#define AGENT_LIST_LIMIT    100                  /* where none is given */
#define AGENT_LIST_BYTES    ((size_t) 1024 * 1024)   /* then a page ends */
#define AGENT_LIST_RECORD   (4 + 2 * SANDBOX_WIRE_MAX_CWD)   /* that waits */
#define AGENT_LIST_RESULT   (SANDBOX_WIRE_FRAME_SIZE                          \
                             + SANDBOX_WIRE_FIELD_SIZE + 8)


/* one that is known, or else one that waits */

typedef struct {
    agent_history_t  *h;
    agent_command_t  *command;
    uint64_t          ordinal;           /* 0: there is no further one */
} agent_list_entry_t;


/* bytes into DATA frames */

typedef struct {
    uint8_t          *frame;             /* the one that is being filled */
    uint8_t          *pos;
} agent_list_writer_t;


static const char *agent_list_read(agent_connection_t *c, uint64_t *limit,
    uint64_t *before);
static void agent_list_next(agent_list_entry_t *entry, uint64_t before);
static size_t agent_list_record(const agent_list_entry_t *entry, uint8_t *p);
static size_t agent_list_waiting(const agent_command_t *command, uint8_t *p);
static void agent_list_write(agent_list_writer_t *w, const uint8_t *p,
    size_t size);
static void agent_list_frame(agent_list_writer_t *w);


void
agent_history_list(agent_connection_t *c)
{
    size_t                size, length, used;
    uint8_t              *p;
    uint64_t              limit, before, n, next, last;
    const char           *detail;
    agent_answer_t       *answer;
    sandbox_writer_t      result;
    agent_list_entry_t    entry;
    agent_list_writer_t   w;

    detail = agent_list_read(c, &limit, &before);

    if (detail != NULL) {
        agent_connection_error(c, "bad_request", detail, 0);
        return;
    }

    p = malloc(SANDBOX_WIRE_MAX_RESULT + AGENT_LIST_RECORD);

    /* how much it will be, then the same once more */

    used = 0;
    last = before;
    next = 0;
    agent_list_next(&entry, before);

    for (n = 0; p != NULL && entry.ordinal; n++) {
        length = agent_list_record(&entry, p);

        if (n == limit || (n && used + length > AGENT_LIST_BYTES)) {
            next = last;
            break;
        }

        used += length;
        last = entry.ordinal;
        agent_list_next(&entry, entry.ordinal);
    }

    size = 512 + used + (used / SANDBOX_WIRE_MAX_OUTPUT + 1)
                        * SANDBOX_WIRE_FRAME_SIZE + AGENT_LIST_RESULT;
    answer = p != NULL ? malloc(sizeof(agent_answer_t) + size) : NULL;

    if (answer == NULL) {
        free(p);
        agent_connection_error(c, "internal", "The agent has no memory for "
                               "the history.", 0);
        return;
    }

    answer->references = 1;
    answer->head = agent_answer_head(answer->data, 512, NULL);
    w.frame = answer->data + answer->head;
    w.pos = w.frame + SANDBOX_WIRE_FRAME_SIZE;

    agent_list_next(&entry, before);

    while (n--) {
        agent_list_write(&w, p, agent_list_record(&entry, p));
        agent_list_next(&entry, entry.ordinal);
    }

    agent_list_frame(&w);
    free(p);

    sandbox_writer_init(&result, w.pos, AGENT_LIST_RESULT);
    sandbox_write_number(&result, SANDBOX_TAG_NEXT, next);
    length = result.pos - result.start;
    sandbox_frame_write(w.frame, SANDBOX_FRAME_RESULT, (uint32_t) length);
    answer->size = w.pos + length - answer->data;

    agent_connection_answer(c, answer);
    agent_answer_release(answer);
}


/* NULL, or what is wrong. */

static const char *
agent_list_read(agent_connection_t *c, uint64_t *limit, uint64_t *before)
{
    int                rc;
    sandbox_field_t    field;
    sandbox_fields_t   fields;

    *limit = AGENT_LIST_LIMIT;
    *before = 0;

    sandbox_fields_init(&fields, c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                        c->preamble.head);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        switch (field.tag) {

        case SANDBOX_TAG_LIMIT:
            if (sandbox_field_number(&field, SANDBOX_WIRE_MAX_HISTORY, limit)
                != SANDBOX_OK || *limit == 0)
            {
                return "The limit of a page is not from 1 to 1000.";
            }

            break;

        case SANDBOX_TAG_BEFORE:
            if (sandbox_field_number(&field, UINT64_MAX, before)
                != SANDBOX_OK)
            {
                return "The begin of a page is no number.";
            }

            break;
        }
    }

    if (rc != SANDBOX_END || c->preamble.body != 0) {
        return "The request for the history is malformed.";
    }

    if (*before == 0) {
        *before = UINT64_MAX;
    }

    return NULL;
}


/* The latest one before a number. */

static void
agent_list_next(agent_list_entry_t *entry, uint64_t before)
{
    unsigned          low, high, middle;
    agent_command_t  *command;

    entry->h = NULL;
    entry->command = NULL;
    entry->ordinal = 0;

    low = 0;
    high = agent_history.count;

    while (low < high) {
        middle = (low + high) / 2;

        if (agent_history.known[middle]->ordinal < before) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    if (low) {
        entry->h = agent_history.known[low - 1];
        entry->ordinal = entry->h->ordinal;
    }

    for (command = agent_queue_first();
         command != NULL;
         command = command->next)
    {
        if (command->ordinal < before && command->ordinal > entry->ordinal) {
            entry->h = NULL;
            entry->command = command;
            entry->ordinal = command->ordinal;
        }
    }
}


/* Its bytes with their length. */

static size_t
agent_list_record(const agent_list_entry_t *entry, uint8_t *p)
{
    size_t            length;
    const uint8_t    *fields;
    agent_history_t  *h;
    sandbox_writer_t  w;

    h = entry->h;

    if (entry->command != NULL) {
        length = agent_list_waiting(entry->command, p + 4);

    } else {
        /* an entry is one or the other: NOLINT is for the analyzer */

        fields = h->fields != NULL                              /* NOLINT */
                 ? h->fields : agent_history_disk_fields(h);

        sandbox_writer_init(&w, p + 4, SANDBOX_WIRE_MAX_RESULT
                                       + AGENT_LIST_RECORD - 4);

        if (fields != NULL) {
            memcpy(w.pos, fields, h->fields_size);
            w.pos += h->fields_size;

        } else {

            /* a damaged disk: this is all that is left of it */

            sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND_ID, h->id, h->length);
            sandbox_write_number(&w, SANDBOX_TAG_ORDINAL, h->ordinal);
            sandbox_write_number(&w, SANDBOX_TAG_COMMAND_STATE,
                                 SANDBOX_COMMAND_ENDED);
        }

        /* that it has ended is in its result */

        if (h->ended_ms == 0) {
            sandbox_write_number(&w, SANDBOX_TAG_COMMAND_STATE,
                                 SANDBOX_COMMAND_RUNNING);

        } else if (h->answer == NULL && !h->stored) {
            sandbox_write_number(&w, SANDBOX_TAG_OUTPUT_EXPIRED, 1);
        }

        length = w.pos - w.start;
    }

    sandbox_put32(p, (uint32_t) length);

    return 4 + length;
}


static size_t
agent_list_waiting(const agent_command_t *command, uint8_t *p)
{
    size_t            size;
    uint64_t          waited;
    sandbox_writer_t  w;

    waited = (agent_now_us() - command->accepted) / 1000;
    size = command->request.command_size;

    if (size > SANDBOX_WIRE_MAX_EXCERPT) {
        size = sandbox_utf8_head(command->request.command,
                                 SANDBOX_WIRE_MAX_EXCERPT);
    }

    sandbox_writer_init(&w, p, AGENT_LIST_RECORD - 4);
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND_ID, command->id);
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, agent.sandbox_id);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, agent.instance);

    if (command->request.cwd != NULL) {
        sandbox_write_bytes(&w, SANDBOX_TAG_CWD, command->request.cwd,
                            command->request.cwd_size);

    } else {
        sandbox_write_string(&w, SANDBOX_TAG_CWD, AGENT_HOME);
    }

    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, command->request.wall_ms);
    sandbox_write_number(&w, SANDBOX_TAG_ORDINAL, command->ordinal);
    sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND, command->request.command,
                        size);

    if (command->request.detach) {
        sandbox_write_number(&w, SANDBOX_TAG_DETACHED, 1);
    }

    sandbox_write_number(&w, SANDBOX_TAG_ACCEPTED_MS,
                         agent_history_now() - waited);
    sandbox_write_number(&w, SANDBOX_TAG_COMMAND_STATE,
                         SANDBOX_COMMAND_QUEUED);

    return w.pos - w.start;
}


static void
agent_list_write(agent_list_writer_t *w, const uint8_t *p, size_t size)
{
    size_t  n;

    while (size) {
        n = w->frame + SANDBOX_WIRE_FRAME_SIZE + SANDBOX_WIRE_MAX_OUTPUT
            - w->pos;

        if (n == 0) {
            agent_list_frame(w);
            continue;
        }

        if (n > size) {
            n = size;
        }

        memcpy(w->pos, p, n);
        w->pos += n;
        p += n;
        size -= n;
    }
}


/* The frame ends here; an empty one is none. */

static void
agent_list_frame(agent_list_writer_t *w)
{
    size_t  size;

    size = w->pos - w->frame - SANDBOX_WIRE_FRAME_SIZE;

    if (size) {
        sandbox_frame_write(w->frame, SANDBOX_FRAME_DATA, (uint32_t) size);
        w->frame = w->pos;
        w->pos += SANDBOX_WIRE_FRAME_SIZE;
    }
}
