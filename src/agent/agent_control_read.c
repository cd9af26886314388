/*
 * Strict reading of the runner's messages.  Pure: knows no socket, no state.
 */

#include "agent_control.h"

#include <string.h>


static int agent_control_fields(agent_told_t *told, const uint8_t *p,
    size_t size);
static int agent_control_field(agent_told_t *told,
    const sandbox_field_t *field);
static int agent_control_complete(const agent_told_t *told, size_t size);


int
agent_control_read(agent_told_t *told, const uint8_t *p, size_t size,
    unsigned fds)
{
    memset(told, 0, sizeof(*told));

    if (size < SANDBOX_CONTROL_SIZE || sandbox_get16(p + 2) != 0) {
        return -1;
    }

    told->type = p[0];
    told->flags = p[1];
    told->serial = sandbox_get32(p + 4);
    told->fds = fds;
    told->outcome = SANDBOX_OUTCOME_DELETED;

    p += SANDBOX_CONTROL_SIZE;
    size -= SANDBOX_CONTROL_SIZE;

    if (agent_control_fields(told, p, size) == -1) {
        return -1;
    }

    return agent_control_complete(told, size);
}


static int
agent_control_fields(agent_told_t *told, const uint8_t *p, size_t size)
{
    int               rc;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, p, size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {
        if (agent_control_field(told, &field) != SANDBOX_OK) {
            return -1;
        }
    }

    return rc == SANDBOX_END ? 0 : -1;
}


/* of each type its own; others are of a newer runner */

static int
agent_control_field(agent_told_t *told, const sandbox_field_t *field)
{
    switch (told->type << 16 | field->tag) {

    case SANDBOX_CONTROL_CLAIM << 16 | SANDBOX_TAG_SESSION:
        told->session = *field;
        break;

    case SANDBOX_CONTROL_CLAIM << 16 | SANDBOX_TAG_SANDBOX_ID:
        told->id = *field;
        break;

    case SANDBOX_CONTROL_CLAIM << 16 | SANDBOX_TAG_INSTANCE:
        return sandbox_field_number(field, UINT64_MAX, &told->instance);

    case SANDBOX_CONTROL_CLAIM << 16 | SANDBOX_TAG_CREATED:
        return sandbox_field_number(field, 1, &told->created);

    case SANDBOX_CONTROL_CLAIM << 16 | SANDBOX_TAG_MEMORY_BYTES:
        return sandbox_field_number(field, UINT64_MAX, &told->memory);

    case SANDBOX_CONTROL_STOP << 16 | SANDBOX_TAG_OUTCOME:
        return sandbox_field_number(field, SANDBOX_OUTCOME_LAST - 1,
                                    &told->outcome);

    case SANDBOX_CONTROL_EGRESS << 16 | SANDBOX_TAG_EGRESS_ID:
        return sandbox_field_number(field, UINT32_MAX, &told->policy);

    case SANDBOX_CONTROL_EGRESS << 16 | SANDBOX_TAG_EGRESS_INDEX:
        told->index = *field;
        break;
    }

    return SANDBOX_OK;
}


/* with all that its type needs, and the descriptors that it has */

static int
agent_control_complete(const agent_told_t *told, size_t size)
{
    switch (told->type) {

    case SANDBOX_CONTROL_CLAIM:
        return told->fds <= 1
               && told->session.length == SANDBOX_WIRE_SESSION_SIZE
               && told->id.length != 0 ? 0 : -1;

    case SANDBOX_CONTROL_CONN:
        return size == 0
               && told->fds
                  == ((told->flags & SANDBOX_CONN_RETURNED) ? 2 : 1)
               && !(told->flags & ~(SANDBOX_CONN_GRANTED|SANDBOX_CONN_RETURNED
                                    |SANDBOX_CONN_FRESH)) ? 0 : -1;

    case SANDBOX_CONTROL_GRANT:
        return told->fds == 0 && size == 0 ? 0 : -1;

    case SANDBOX_CONTROL_STOP:
        return told->fds == 0 ? 0 : -1;

    case SANDBOX_CONTROL_EGRESS:
        return told->fds <= 1
               && told->index.length <= SANDBOX_WIRE_MAX_INDEX
               && (told->index.length == 0
                   || memchr(told->index.data, '\0', told->index.length)
                      == NULL) ? 0 : -1;
    }

    return -1;
}
