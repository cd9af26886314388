/*
 * A command that brings files along: what is missing is asked for before
 * anything is read; what comes goes to the spool at once, tars are unpacked
 * there.  Who was asked for his files has his place in the queue kept for a
 * moment.
 */

#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_file.h"
#include "agent_stage.h"


#define AGENT_STAGE_READ   (64 * 1024)
#define AGENT_STAGE_READS  4             /* in one round */
#define AGENT_STAGE_HOLDS  16


/* a place in the queue, of a request that comes back with its files */

typedef struct {
    size_t     id_size;                  /* 0: none */
    uint8_t    id[SANDBOX_WIRE_MAX_COMMAND_ID];
    uint64_t   sequence;
    uint64_t   until;                    /* ms */
} agent_stage_hold_t;


static void agent_stage_id(agent_connection_t *c, const uint8_t **id,
    size_t *size);
static int agent_stage_known(const uint8_t *id, size_t size);
static const char *agent_stage_body(agent_connection_t *c,
    const char **detail);
static int agent_stage_read(agent_connection_t *c, int *progress);
static const char *agent_stage_feed(agent_connection_t *c, const uint8_t *p,
    size_t size);
static const char *agent_stage_input(agent_connection_t *c,
    const uint8_t *data, size_t *size);
static const char *agent_stage_files(agent_stage_t *stage,
    const uint8_t *data, size_t size);
static void agent_stage_open(agent_stage_t *stage);
static void agent_stage_close(agent_stage_item_t *item);
static void agent_stage_fail(agent_stage_item_t *item, int error);
static void agent_stage_received(agent_connection_t *c);
static int agent_stage_unpack(agent_stage_t *stage);
static void agent_stage_hold(const uint8_t *id, size_t size,
    uint64_t sequence);
static void agent_stage_resume(agent_connection_t *c, const uint8_t *id,
    size_t size);


static const char  agent_stage_malformed[] =
    "The body is not what STDIN_BYTES and STAGE say.";
static const char  agent_stage_full[] =
    "The sandbox holds too many requests.";

static agent_stage_hold_t  agent_stage_holds[AGENT_STAGE_HOLDS];


int
agent_stage_begin(agent_connection_t *c)
{
    size_t          id_size;
    unsigned        i;
    const char     *code, *detail;
    agent_stage_t  *stage;
    const uint8_t  *id;

    agent_stage_id(c, &id, &id_size);
    agent_stage_resume(c, id, id_size);

    code = agent_stage_request(&stage, c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                               c->preamble.head, &detail);
    if (code != NULL) {
        goto refused;
    }

    if (stage == NULL) {
        return 0;
    }

    c->stage = stage;

    if (c->returned) {

        /* its files stayed behind with the sandbox before this one */

        for (i = 0; i < stage->count; i++) {
            stage->items[i].body = 0;
        }

        stage->bodies = 0;
    }

    /*
     * One that attaches to a command needs none, and what a fresh sandbox
     * needs is known there.
     */

    stage->drop = agent_stage_known(id, id_size)
                  || ((c->preamble.flags & SANDBOX_FLAG_FRESH) && !c->fresh);

    for (i = 0; i < stage->count && !stage->drop; i++) {
        if (!stage->items[i].body && !agent_stage_has(&stage->items[i])) {
            agent_stage_needed(c, stage, id, id_size, c->sequence);
            return -1;
        }
    }

    if (stage->bodies == 0) {
        return 0;
    }

    code = agent_stage_body(c, &detail);

    if (code == NULL) {
        return 1;
    }

refused:

    agent_connection_error(c, code, detail, 0);

    return -1;
}


void
agent_stage_receive(agent_connection_t *c)
{
    int             i, rc, progress;
    agent_stage_t  *stage;

    stage = c->stage;

    if (stage->working) {
        return;
    }

    progress = 0;

    for (i = 0; /* void */ ; i++) {

        if (stage->body.end) {
            agent_stage_received(c);
            return;
        }

        if (i == AGENT_STAGE_READS) {
            break;
        }

        rc = agent_stage_read(c, &progress);

        if (rc == -1) {
            return;
        }

        if (rc == 0) {
            break;
        }
    }

    if (agent_watch_set(&c->watch, EPOLLIN) == -1) {
        agent_connection_close(c);
        return;
    }

    if (progress || !c->timer.active) {
        agent_timer_set(&c->timer, SANDBOX_WIRE_REQUEST_WAIT);
    }
}


int
agent_stage_work(agent_connection_t *c)
{
    if (c->stage == NULL || !c->stage->working) {
        return 0;
    }

    if (agent_stage_unpack(c->stage)) {

        /* the disk may be slow */

        if (agent_now_ms() - c->stage->told >= SANDBOX_WIRE_PING_INTERVAL) {
            c->stage->told = agent_now_ms();
            agent_connection_ping(c);
        }

        agent_timer_set(&c->timer, 1);
        return 1;
    }

    c->stage->working = 0;
    agent_operation_enter(c);

    return 1;
}


void
agent_stage_needed(agent_connection_t *c, agent_stage_t *stage,
    const uint8_t *id, size_t id_size, uint64_t sequence)
{
    size_t             size, length;
    uint8_t            needed[4 * SANDBOX_WIRE_MAX_STAGED], *p;
    uint8_t            frame[SANDBOX_WIRE_FRAME_SIZE
                             + SANDBOX_WIRE_MAX_ERROR];
    unsigned           i;
    sandbox_writer_t   w;

    p = needed;

    for (i = 0; i < stage->count; i++) {
        if (!agent_stage_has(&stage->items[i])) {
            sandbox_put32(p, i);
            p += 4;
        }
    }

    size = sandbox_error_frame(frame, sizeof(frame), "stage_needed",
                               "The sandbox has not all of these files.", 0);
    sandbox_writer_init(&w, frame + size, sizeof(frame) - size);
    sandbox_write_bytes(&w, SANDBOX_TAG_NEEDED, needed, p - needed);
    size = w.pos - frame;
    length = size - SANDBOX_WIRE_FRAME_SIZE;
    sandbox_frame_write(frame, SANDBOX_FRAME_ERROR, (uint32_t) length);

    agent_stage_hold(id, id_size, sequence);

    /* the next command is the first to tell of the new sandbox */

    if (c->fresh) {
        agent.created = 1;
    }

    agent_connection_finish(c, frame, size);
}


int
agent_stage_held(uint64_t sequence, uint64_t *wait)
{
    uint64_t             now;
    unsigned             i;
    agent_stage_hold_t  *hold;

    now = agent_now_ms();

    for (i = 0; i < AGENT_STAGE_HOLDS; i++) {
        hold = &agent_stage_holds[i];

        if (hold->id_size && hold->until <= now) {
            hold->id_size = 0;
        }

        if (hold->id_size && hold->sequence < sequence) {
            *wait = hold->until - now;
            return 1;
        }
    }

    return 0;
}


void
agent_stage_free(agent_stage_t *stage)
{
    unsigned             i;
    agent_stage_item_t  *item;

    if (stage->unpack != NULL) {
        agent_unpack_end(stage->unpack, NULL);
    }

    for (i = 0; i < stage->count; i++) {
        item = &stage->items[i];
        agent_spool_drop(&item->spool);

        if (item->tree[0]) {
            (void) agent_spool_discard(agent_spool_trees(), item->tree);
        }
    }

    agent_spool_tidy();
    free(stage);
}


static void
agent_stage_id(agent_connection_t *c, const uint8_t **id, size_t *size)
{
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    *id = NULL;
    *size = 0;
    sandbox_fields_init(&fields, c->in + SANDBOX_WIRE_PREAMBLE_SIZE,
                        c->preamble.head);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if (field.tag == SANDBOX_TAG_COMMAND_ID
            && sandbox_command_id_valid(field.data, field.length))
        {
            *id = field.data;
            *size = field.length;
        }
    }
}


static int
agent_stage_known(const uint8_t *id, size_t size)
{
    const char  *code;

    if (size == 0) {
        return 0;
    }

    return agent_queue_find(id, size) != NULL
           || agent_history_find(id, size, &code) != NULL
           || strcmp(code, "expired") == 0;
}


/* Prepares for the body.  NULL, or the code of the ERROR. */

static const char *
agent_stage_body(agent_connection_t *c, const char **detail)
{
    size_t          whole;
    uint64_t        bytes;
    unsigned        i;
    agent_stage_t  *stage;

    stage = c->stage;
    whole = SANDBOX_WIRE_PREAMBLE_SIZE + c->preamble.head;
    bytes = stage->input;

    for (i = 0; i < stage->bodies; i++) {
        bytes += stage->items[stage->order[i]].size;
    }

    if (c->preamble.body != SANDBOX_WIRE_BODY_CHUNKED
        && c->preamble.body != bytes)
    {
        *detail = agent_stage_malformed;
        return "bad_request";
    }

    if (whole + stage->input > agent.request_limit) {
        *detail = "Standard input of a command is at most a quarter of the "
                  "sandbox's memory.";
        return "command_too_large";
    }

    /* what came with the head is the first of the body */

    *detail = NULL;
    agent_body_init(&stage->body, c->preamble.body);
    stage->extra = whole;
    stage->extra_end = c->in_have;
    c->in_have = whole;
    stage->streaming = 1;

    if (stage->body.end) {

        /* nothing but empty files */

        *detail = agent_stage_feed(c, c->in + stage->extra,
                                   stage->extra_end - stage->extra);
        stage->extra = stage->extra_end;
    }

    return *detail != NULL ? "bad_request" : NULL;
}


/* One piece.  1: there may be more; 0: not now; -1: c is done with. */

static int
agent_stage_read(agent_connection_t *c, int *progress)
{
    size_t          size;
    ssize_t         n;
    const char     *detail;
    agent_stage_t  *stage;
    static uint8_t  buffer[AGENT_STAGE_READ];

    stage = c->stage;

    if (stage->extra < stage->extra_end) {
        size = stage->extra_end - stage->extra;
        stage->extra = stage->extra_end;
        detail = agent_stage_feed(c, c->in + stage->extra_end - size, size);

    } else {
        size = sizeof(buffer);

        if (!stage->body.chunked && stage->body.left < size) {
            size = stage->body.left;
        }

        n = recv(c->watch.fd, buffer, size, MSG_DONTWAIT);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }

        if (n <= 0) {

            /* it never was a whole request: nothing is done for it */

            agent_connection_close(c);
            agent_queue_process();
            return -1;
        }

        *progress = 1;
        detail = agent_stage_feed(c, buffer, n);
    }

    if (detail == NULL) {
        return 1;
    }

    agent_connection_error(c, detail == agent_stage_full ? "too_many_pending"
                                                         : "bad_request",
                           detail, detail == agent_stage_full ? 2 : 0);
    agent_queue_process();

    return -1;
}


/* NULL, or what is wrong. */

static const char *
agent_stage_feed(agent_connection_t *c, const uint8_t *p, size_t size)
{
    int             rc;
    size_t          n, taken;
    const char     *detail;
    agent_stage_t  *stage;
    const uint8_t  *data;

    stage = c->stage;

    while ((rc = agent_body_next(&stage->body, &p, &size, &data, &n)) == 1) {

        taken = n;
        detail = agent_stage_input(c, data, &taken);

        if (detail == NULL) {
            detail = agent_stage_files(stage, data + taken, n - taken);
        }

        if (detail != NULL) {
            return detail;
        }
    }

    if (rc == -1) {
        return agent_stage_malformed;
    }

    if (!stage->body.end) {
        return NULL;
    }

    /* a frame of the client may be behind it, or its start */

    n = size < sizeof(c->frame) ? size : sizeof(c->frame);
    memcpy(c->frame, p, n);
    c->frame_have = n;

    detail = agent_stage_files(stage, NULL, 0);

    return stage->input_have != stage->input || stage->at != stage->bodies
           || stage->file_left ? agent_stage_malformed : detail;
}


/* Standard input stays in memory; *size becomes what was taken. */

static const char *
agent_stage_input(agent_connection_t *c, const uint8_t *data, size_t *size)
{
    size_t          room;
    agent_stage_t  *stage;

    stage = c->stage;

    if (*size > stage->input - stage->input_have) {
        *size = stage->input - stage->input_have;
    }

    if (*size == 0) {
        return NULL;
    }

    if (c->in_have + *size > c->in_size) {
        room = 2 * c->in_size > c->in_have + *size ? 2 * c->in_size
                                                   : c->in_have + *size;

        if (room > c->in_have - stage->input_have + stage->input) {
            room = c->in_have - stage->input_have + stage->input;
        }

        if (agent_receive_resize(c, room) == -1) {
            return agent_stage_full;
        }
    }

    /* within the buffer it only moves to the front */

    memmove(c->in + c->in_have, data, *size);
    c->in_have += *size;
    stage->input_have += *size;

    return NULL;
}


/* The files, one behind the other; empty ones have no bytes to wait for. */

static const char *
agent_stage_files(agent_stage_t *stage, const uint8_t *data, size_t size)
{
    size_t               n, at;
    ssize_t              written;
    agent_stage_item_t  *item;

    for ( ;; ) {

        if (stage->file_left == 0) {

            if (stage->at == stage->bodies
                || (size == 0 && (!stage->body.end
                                  || stage->items[stage->order[stage->at]]
                                         .size)))
            {
                return size ? agent_stage_malformed : NULL;
            }

            agent_stage_open(stage);
        }

        item = &stage->items[stage->order[stage->at - 1]];
        n = size < stage->file_left ? size : stage->file_left;

        for (at = 0; at < n && item->spool.fd != -1; at += written) {
            written = write(item->spool.fd, data + at, n - at);

            if (written == -1) {
                if (errno != EINTR) {
                    agent_stage_fail(item, errno);
                }

                written = 0;
            }
        }

        data += n;
        size -= n;
        stage->file_left -= n;

        if (stage->file_left == 0) {
            agent_stage_close(item);

        } else if (size == 0) {
            return NULL;
        }
    }
}


/* The next one; without a file its bytes are read away. */

static void
agent_stage_open(agent_stage_t *stage)
{
    int                  rc, beside;
    agent_stage_item_t  *item;

    item = &stage->items[stage->order[stage->at++]];
    stage->file_left = item->size;

    if (stage->drop) {
        return;
    }

    beside = -1;

    if (item->kind == AGENT_STAGE_ATTACHMENT) {
        beside = agent_root_open(AGENT_ROOT_HOME, ".", 0, 0);

        if (beside == -1) {
            agent_stage_fail(item, errno);
            return;
        }
    }

    rc = beside != -1 && !agent_caps_room(item->size) ? ENOSPC
         : agent_spool_create(&item->spool, beside);

    if (rc) {
        agent_stage_fail(item, rc);

    } else if (beside != -1) {
        agent_caps_written(item->size);
    }

    /* a name that it has is in the spool: elsewhere it must do without */

    if (beside != -1) {
        if (item->spool.name[0] && item->spool.dir == beside) {
            agent_spool_drop(&item->spool);
            agent_stage_fail(item, EOPNOTSUPP);
        }

        close(beside);
    }
}


/* All of it is there: an attachment is as it will be. */

static void
agent_stage_close(agent_stage_item_t *item)
{
    if (item->spool.fd == -1) {
        return;
    }

    if (item->kind == AGENT_STAGE_ATTACHMENT) {
        agent_directory_user(1);

        if (fchmod(item->spool.fd, 0644) == -1) {
            agent_stage_fail(item, errno);
        }

        agent_directory_user(0);

        if (item->spool.fd == -1) {
            return;
        }
    }

    item->whole = 1;

    if (item->kind == AGENT_STAGE_ATTACHMENT) {
        agent_spool_keep(&item->spool);
    }
}


static void
agent_stage_fail(agent_stage_item_t *item, int error)
{
    item->code = agent_root_code(error, &item->detail);

    if (strcmp(item->code, "disk_full") != 0) {
        item->code = "not_staged";
    }

    agent_spool_drop(&item->spool);
}


static void
agent_stage_received(agent_connection_t *c)
{
    c->preamble.body = c->stage->input;
    sandbox_preamble_write(c->in, &c->preamble);
    c->input_left = 0;

    /* nothing is to be heard of it until its tars are unpacked */

    agent_watch_clear(&c->watch);
    agent_timer_clear(&c->timer);
    c->stage->streaming = 0;
    c->stage->working = 1;
    c->stage->told = agent_now_ms();

    (void) agent_stage_work(c);
}


/* A step of the next tar; 0: there is none. */

static int
agent_stage_unpack(agent_stage_t *stage)
{
    int                  rc;
    agent_stage_item_t  *item;

    for ( /* void */ ; stage->unpacking < stage->count; stage->unpacking++) {

        item = &stage->items[stage->unpacking];

        if (item->kind != AGENT_STAGE_SKILL || !item->whole) {
            continue;
        }

        if (stage->unpack == NULL) {
            stage->unpack = agent_unpack_start(item->spool.fd);

            if (stage->unpack == NULL) {
                item->whole = 0;
                agent_stage_fail(item, errno);
                continue;
            }
        }

        rc = agent_unpack_step(stage->unpack, &item->detail);

        if (rc == EAGAIN) {
            return 1;
        }

        agent_unpack_end(stage->unpack, rc ? NULL : item->tree);
        stage->unpack = NULL;

        if (rc == EBADMSG) {
            item->code = "skill_refused";
            agent_spool_drop(&item->spool);

        } else if (rc) {
            item->whole = 0;
            agent_stage_fail(item, rc);

        } else {
            agent_spool_drop(&item->spool);
        }

        stage->unpacking++;

        return 1;
    }

    return 0;
}


static void
agent_stage_hold(const uint8_t *id, size_t size, uint64_t sequence)
{
    uint64_t             now;
    unsigned             i;
    agent_stage_hold_t  *hold;

    if (size == 0) {
        return;
    }

    now = agent_now_ms();

    for (i = 0; i < AGENT_STAGE_HOLDS; i++) {
        hold = &agent_stage_holds[i];

        if (hold->id_size == 0 || hold->until <= now) {
            hold->id_size = size;
            memcpy(hold->id, id, size);
            hold->sequence = sequence;
            hold->until = now + AGENT_PLACE_WAIT;
            return;
        }
    }
}


static void
agent_stage_resume(agent_connection_t *c, const uint8_t *id, size_t size)
{
    unsigned             i;
    agent_stage_hold_t  *hold;

    for (i = 0; i < AGENT_STAGE_HOLDS && size; i++) {
        hold = &agent_stage_holds[i];

        if (hold->id_size == size && memcmp(hold->id, id, size) == 0) {
            c->sequence = hold->sequence;
            hold->id_size = 0;
            return;
        }
    }
}
