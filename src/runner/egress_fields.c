/*
 * What nginx and the parent of a proxy tell each other: the table of policies,
 * and what is counted for each, by proxies that ended and the one that runs.
 * Knows no processes.
 */

#include <string.h>

#include "egress_channel.h"
#include "egress_child.h"
#include "log.h"
#include "sandbox_egress.h"
#include "sandbox_sha256.h"


int
runner_egress_table(const uint8_t *head, size_t head_size,
    const uint8_t *table, size_t size, uint8_t *digest)
{
    int               rc;
    const uint8_t    *asked;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    asked = NULL;
    sandbox_fields_init(&fields, head, head_size);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {
        if (field.tag == SANDBOX_TAG_EGRESS_DIGEST
            && field.length == SANDBOX_WIRE_DIGEST_SIZE)
        {
            asked = field.data;
        }
    }

    sandbox_sha256(table, size, digest);

    if (rc == SANDBOX_END && asked != NULL
        && memcmp(asked, digest, SANDBOX_WIRE_DIGEST_SIZE) == 0
        && sandbox_egress_check(table, size) == SANDBOX_OK)
    {
        return 0;
    }

    runner_log(RUNNER_LOG_ERROR, "a table of egress policies was refused: "
               "nginx's module and this runner do not agree about it.  "
               "Remedy: let both be of one release");

    return -1;
}


void
runner_egress_taken(const uint8_t *digest, const uint8_t *before, size_t size)
{
    /* who uploads one has it: NOLINT is for the analyzer */

    if (before == NULL
        || memcmp(digest, before, SANDBOX_WIRE_DIGEST_SIZE) != 0) /* NOLINT */
    {
        runner_log(RUNNER_LOG_NOTICE, "egress policies are now those of "
                   "nginx, %zu bytes.  If this comes again and again, two "
                   "gateways do not agree", size);
    }
}


int
runner_egress_counted(runner_egress_count_t *counts, runner_message_t *message)
{
    int                     rc;
    unsigned                i;
    uint64_t                numbers[7], *number;
    sandbox_field_t         field;
    runner_egress_count_t  *count;

    if (message->type != EGRESS_CHANNEL_COUNT) {
        return -1;
    }

    memset(numbers, 0, sizeof(numbers));

    while ((rc = sandbox_fields_next(&message->fields, &field))
           == SANDBOX_OK)
    {
        switch (field.tag) {
        case SANDBOX_TAG_EGRESS_TUNNELS:  number = &numbers[0];  break;
        case SANDBOX_TAG_EGRESS_REFUSED:  number = &numbers[1];  break;
        case SANDBOX_TAG_EGRESS_FAILED:   number = &numbers[2];  break;
        case SANDBOX_TAG_EGRESS_UP:       number = &numbers[3];  break;
        case SANDBOX_TAG_EGRESS_DOWN:     number = &numbers[4];  break;
        case SANDBOX_TAG_EGRESS_OPEN:     number = &numbers[5];  break;
        case SANDBOX_TAG_EGRESS_ID:       number = &numbers[6];  break;
        default:
            return -1;
        }

        if (sandbox_field_number(&field, UINT64_MAX, number) != SANDBOX_OK) {
            return -1;
        }
    }

    if (rc != SANDBOX_END || numbers[6] == 0 || numbers[6] > UINT32_MAX) {
        return -1;
    }

    for (i = 0; i < RUNNER_EGRESS_COUNTS; i++) {
        count = &counts[i];

        if (count->id == 0 || count->id == numbers[6]) {
            count->id = (uint32_t) numbers[6];
            count->open = numbers[5];
            memcpy(count->now, numbers, sizeof(count->now));
            break;
        }
    }

    return 0;
}


void
runner_egress_counts_keep(runner_egress_count_t *counts)
{
    unsigned                i, j;
    runner_egress_count_t  *count;

    for (i = 0; i < RUNNER_EGRESS_COUNTS; i++) {
        count = &counts[i];

        for (j = 0; j < 5; j++) {
            count->before[j] += count->now[j];
            count->now[j] = 0;
        }

        count->open = 0;
    }
}


void
runner_egress_write(const runner_egress_count_t *counts,
    const uint8_t *digest, const uint8_t *table, size_t size,
    sandbox_writer_t *w)
{
    uint8_t                       b[256];
    unsigned                      i;
    sandbox_fields_t              policies;
    sandbox_writer_t              c;
    sandbox_egress_policy_t       policy;
    const runner_egress_count_t  *count;

    static const runner_egress_count_t  none;

    if (table == NULL) {
        return;
    }

    sandbox_write_bytes(w, SANDBOX_TAG_EGRESS_DIGEST, digest,
                        SANDBOX_WIRE_DIGEST_SIZE);

    sandbox_fields_init(&policies, table, size);

    while (sandbox_egress_next(&policies, &policy) == SANDBOX_OK) {

        count = &none;

        for (i = 0; i < RUNNER_EGRESS_COUNTS && counts[i].id; i++) {
            if (counts[i].id == policy.id) {
                count = &counts[i];
                break;
            }
        }

        sandbox_writer_init(&c, b, sizeof(b));
        sandbox_write_number(&c, SANDBOX_TAG_EGRESS_ID, policy.id);
        sandbox_write_bytes(&c, SANDBOX_TAG_EGRESS_NAME, policy.name,
                            policy.name_length);
        sandbox_write_number(&c, SANDBOX_TAG_EGRESS_OPEN, count->open);

        for (i = 0; i < 5; i++) {
            sandbox_write_number(&c, SANDBOX_TAG_EGRESS_TUNNELS + i,
                                 count->before[i] + count->now[i]);
        }

        /* beside many engines not all of them have room */

        if ((size_t) (w->end - w->pos)
            < SANDBOX_WIRE_FIELD_SIZE + (size_t) (c.pos - c.start))
        {
            return;
        }

        sandbox_write_bytes(w, SANDBOX_TAG_EGRESS_COUNT, c.start,
                            (size_t) (c.pos - c.start));
    }
}
