/*
 * What a command says of its files, read strictly, and what is said of them
 * in its result.
 */

#include "agent_stage.h"

#include <stdlib.h>
#include <string.h>

#include "agent_path.h"


static const char *agent_stage_item(agent_stage_t *stage,
    const sandbox_field_t *field);
static const char *agent_stage_body(agent_stage_t *stage,
    const sandbox_field_t *field);


const char *
agent_stage_request(agent_stage_t **out, const uint8_t *head, size_t size,
    const char **detail)
{
    int               input;
    unsigned          count;
    agent_stage_t    *stage;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    *out = NULL;
    *detail = NULL;
    count = 0;
    sandbox_fields_init(&fields, head, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        count += field.tag == SANDBOX_TAG_STAGE;
    }

    if (count == 0) {
        return NULL;
    }

    if (count > SANDBOX_WIRE_MAX_STAGED) {
        *detail = "More than 256 files are to be staged.";
        return "bad_request";
    }

    stage = calloc(1, sizeof(agent_stage_t)
                      + count * sizeof(agent_stage_item_t));
    if (stage == NULL) {
        *detail = "The sandbox has no memory left.";
        return "too_many_pending";
    }

    input = 0;
    sandbox_fields_init(&fields, head, size);

    while (*detail == NULL
           && sandbox_fields_next(&fields, &field) == SANDBOX_OK)
    {
        switch (field.tag) {

        case SANDBOX_TAG_STAGE:
            *detail = agent_stage_item(stage, &field);
            break;

        case SANDBOX_TAG_STDIN_BYTES:
            if (sandbox_field_number(&field, SANDBOX_WIRE_MAX_BODY,
                                     &stage->input) != SANDBOX_OK || input++)
            {
                *detail = "STDIN_BYTES is over 64 MiB, or comes twice.";
            }

            break;
        }
    }

    /* they may stand before what they are about */

    sandbox_fields_init(&fields, head, size);

    while (*detail == NULL
           && sandbox_fields_next(&fields, &field) == SANDBOX_OK)
    {
        if (field.tag == SANDBOX_TAG_STAGE_BODY) {
            *detail = agent_stage_body(stage, &field);
        }
    }

    if (*detail == NULL && stage->bodies && !input) {
        *detail = "STAGE_BODY without STDIN_BYTES.";
    }

    if (*detail != NULL) {
        free(stage);
        return "bad_request";
    }

    *out = stage;

    return NULL;
}


void
agent_stage_notice(agent_stage_t *stage, const char *code, const char *name,
    const char *detail)
{
    size_t    codes, names, details, size;
    uint8_t  *p;

    codes = strlen(code) + 1;
    names = strlen(name) + 1;
    details = strlen(detail);
    size = codes + names + details;

    if (size + 4 > sizeof(stage->notices) - stage->notices_size) {
        return;
    }

    p = stage->notices + stage->notices_size;
    sandbox_put32(p, size);
    memcpy(p + 4, code, codes);
    memcpy(p + 4 + codes, name, names);
    memcpy(p + 4 + codes + names, detail, details);
    stage->notices_size += 4 + size;
}


void
agent_stage_write(const agent_stage_t *stage, sandbox_writer_t *w)
{
    size_t  at, size;

    for (at = 0; at < stage->notices_size; at += 4 + size) {
        size = sandbox_get32(stage->notices + at);
        sandbox_write_bytes(w, SANDBOX_TAG_NOTICE, stage->notices + at + 4,
                            size);
    }
}


/* NULL, or what is wrong. */

static const char *
agent_stage_item(agent_stage_t *stage, const sandbox_field_t *field)
{
    size_t               length;
    unsigned             i;
    const uint8_t       *p;
    agent_stage_item_t  *item;

    p = field->data;

    if (field->length <= AGENT_STAGE_FIXED) {
        return "STAGE is too short.";
    }

    length = sandbox_get16(p + 2);

    if (length != field->length - AGENT_STAGE_FIXED || p[1] != 0
        || (p[0] != AGENT_STAGE_ATTACHMENT && p[0] != AGENT_STAGE_SKILL)
        || !agent_path_name(p + AGENT_STAGE_FIXED, length))
    {
        return "STAGE is malformed, or its name can't be one.";
    }

    item = &stage->items[stage->count];
    item->kind = p[0];
    memcpy(item->etag, p + 4, AGENT_STAGE_ETAG);
    item->size = sandbox_get64(p + 20);
    memcpy(item->name, p + AGENT_STAGE_FIXED, length);
    item->name[length] = '\0';
    item->spool.fd = -1;

    if (item->size > (uint64_t) SANDBOX_WIRE_MAX_DISK << 20) {
        return "A file that is to be staged is too large.";
    }

    for (i = 0; i < stage->count; i++) {
        if (stage->items[i].kind == item->kind
            && strcmp(stage->items[i].name, item->name) == 0)
        {
            return "Two STAGEs have the same name.";
        }
    }

    stage->count++;

    return NULL;
}


static const char *
agent_stage_body(agent_stage_t *stage, const sandbox_field_t *field)
{
    uint64_t  number;

    if (sandbox_field_number(field, stage->count - 1, &number) != SANDBOX_OK
        || stage->items[number].body)
    {
        return "STAGE_BODY is no STAGE, or comes twice.";
    }

    stage->items[number].body = 1;
    stage->order[stage->bodies++] = number;

    return NULL;
}
