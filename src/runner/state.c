/*
 * The text of a slot's record: "name value" lines between a first line with
 * the version and "end", so a file cut short is noticed.
 * Pure: knows no files.
 */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "state.h"


#define RUNNER_RECORD_FIRST  "sandbox-slot 1"


enum {
    FIELD_NUMBER = 0, FIELD_SESSION, FIELD_TENANT, FIELD_ID, FIELD_INSTANCE,
    FIELD_CREATED, FIELD_USED, FIELD_COMMANDS, FIELD_MEMORY, FIELD_DISK,
    FIELD_PROCESSES, FIELD_IDS, FIELD_PID, FIELD_START, FIELD_DELETED,
    FIELD_BASE, FIELD_BASE_NAME, FIELD_EGRESS, FIELD_LAST
};


static int runner_record_field(runner_record_t *record, int field,
    const char *value);


static const char  *runner_record_names[] = {
    "number", "session", "tenant", "id", "instance", "created", "used",
    "commands", "memory", "disk", "processes", "ids", "pid", "start",
    "deleted", "base", "base-name", "egress"
};


size_t
runner_record_write(const runner_record_t *record, char *text, size_t size)
{
    int   n;
    char  session[2 * SANDBOX_WIRE_SESSION_SIZE + 1];
    char  tenant[2 * SANDBOX_WIRE_TENANT_SIZE + 1], egress[32];

    runner_hex(session, record->session, SANDBOX_WIRE_SESSION_SIZE);
    runner_hex(tenant, record->tenant, SANDBOX_WIRE_TENANT_SIZE);

    egress[0] = '\0';

    if (record->egress) {
        snprintf(egress, sizeof(egress), "egress %u\n", record->egress);
    }

    n = snprintf(text, size,
                 RUNNER_RECORD_FIRST "\n"
                 "number %u\n"
                 "session %s\n"
                 "tenant %s\n"
                 "id %s\n"
                 "instance %llu\n"
                 "created %llu\n"
                 "used %llu\n"
                 "commands %llu\n"
                 "memory %u\n"
                 "disk %u\n"
                 "processes %u\n"
                 "ids %u\n"
                 "pid %d\n"
                 "start %llu\n"
                 "deleted %d\n"
                 "base %s\n"
                 "%s%s%s"
                 "%s"
                 "end\n",
                 record->number, session, tenant, record->id,
                 (unsigned long long) record->instance,
                 (unsigned long long) record->created_ms,
                 (unsigned long long) record->used_ms,
                 (unsigned long long) record->commands,
                 record->memory, record->disk, record->processes,
                 record->ids, record->pid,
                 (unsigned long long) record->start_time,
                 record->deleted, record->base,
                 record->base_name[0] ? "base-name " : "", record->base_name,
                 record->base_name[0] ? "\n" : "", egress);

    return n > 0 && (size_t) n < size ? n : 0;
}


int
runner_record_read(runner_record_t *record, const char *text)
{
    int          field;
    char         line[PATH_MAX + 64], *value;
    size_t       length;
    unsigned     seen;
    const char  *end;

    memset(record, 0, sizeof(*record));
    seen = 0;

    length = strlen(RUNNER_RECORD_FIRST "\n");

    if (strncmp(text, RUNNER_RECORD_FIRST "\n", length) != 0) {
        return -1;
    }

    for (text += length; ; text = end + 1) {

        end = strchr(text, '\n');
        if (end == NULL || (size_t) (end - text) >= sizeof(line)) {
            return -1;
        }

        memcpy(line, text, end - text);
        line[end - text] = '\0';

        if (strcmp(line, "end") == 0) {

            /* there where the base is not the default, and with a policy */

            seen |= 1u << FIELD_BASE_NAME | 1u << FIELD_EGRESS;

            return seen == (1u << FIELD_LAST) - 1 && end[1] == '\0' ? 0 : -1;
        }

        value = strchr(line, ' ');
        if (value == NULL) {
            return -1;
        }

        *value++ = '\0';

        for (field = 0; field < FIELD_LAST; field++) {
            if (strcmp(runner_record_names[field], line) == 0) {
                break;
            }
        }

        if (field == FIELD_LAST || (seen & 1u << field)
            || runner_record_field(record, field, value) == -1)
        {
            return -1;
        }

        seen |= 1u << field;
    }
}


static int
runner_record_field(runner_record_t *record, int field, const char *value)
{
    size_t     i;
    uint64_t   n, max;

    switch (field) {

    case FIELD_SESSION:
        return runner_unhex(record->session, SANDBOX_WIRE_SESSION_SIZE, value);

    case FIELD_TENANT:
        return runner_unhex(record->tenant, SANDBOX_WIRE_TENANT_SIZE, value);

    case FIELD_ID:
        if (strlen(value) != SANDBOX_WIRE_SANDBOX_ID_SIZE
            || strncmp(value, "sbx_", 4) != 0)
        {
            return -1;
        }

        for (i = 4; value[i]; i++) {
            if (strchr("0123456789abcdef", value[i]) == NULL) {
                return -1;
            }
        }

        strcpy(record->id, value);
        return 0;

    case FIELD_BASE:
        if (value[0] != '/' || strlen(value) >= sizeof(record->base)) {
            return -1;
        }

        strcpy(record->base, value);
        return 0;

    case FIELD_BASE_NAME:
        if (!sandbox_command_id_valid((uint8_t *) value, strlen(value))) {
            return -1;
        }

        strcpy(record->base_name, value);
        return 0;
    }

    max = field == FIELD_DELETED ? 1
          : field == FIELD_PID ? INT32_MAX
          : field == FIELD_NUMBER || field == FIELD_MEMORY
            || field == FIELD_DISK || field == FIELD_PROCESSES
            || field == FIELD_IDS || field == FIELD_EGRESS ? UINT32_MAX
          : UINT64_MAX;

    if (runner_number(value, max, &n) == -1) {
        return -1;
    }

    switch (field) {
    case FIELD_NUMBER:    record->number = n;      break;
    case FIELD_INSTANCE:  record->instance = n;    break;
    case FIELD_CREATED:   record->created_ms = n;  break;
    case FIELD_USED:      record->used_ms = n;     break;
    case FIELD_COMMANDS:  record->commands = n;    break;
    case FIELD_MEMORY:    record->memory = n;      break;
    case FIELD_DISK:      record->disk = n;        break;
    case FIELD_PROCESSES: record->processes = n;   break;
    case FIELD_IDS:       record->ids = n;         break;
    case FIELD_PID:       record->pid = n;         break;
    case FIELD_START:     record->start_time = n;  break;
    case FIELD_EGRESS:    record->egress = n;      break;
    default:              record->deleted = n;     break;
    }

    return 0;
}
