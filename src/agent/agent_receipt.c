/*
 * What is remembered of ended commands: the ids of the last 1000, and the
 * whole answers of the last 32 within a bound.
 */

#include "agent.h"

#include <string.h>


#define AGENT_RECEIPTS        1000
#define AGENT_RECEIPT_KEPT    32
#define AGENT_RECEIPT_BYTES   (8 * 1024 * 1024)


static uint64_t agent_receipt_hash(const uint8_t *id, size_t length);
static void agent_receipt_drop(void);


static agent_receipt_t  agent_receipts[AGENT_RECEIPTS];
static uint64_t         agent_receipt_count;     /* ever added */
static uint64_t         agent_receipt_first;     /* that may have an answer */
static unsigned         agent_receipt_kept;
static size_t           agent_receipt_bytes;


void
agent_receipt_add(const char *id, const uint8_t *digest,
    agent_answer_t *answer)
{
    size_t            length;
    agent_receipt_t  *receipt;

    length = strlen(id);

    if (agent_receipt_count - agent_receipt_first == AGENT_RECEIPTS) {
        agent_receipt_drop();
    }

    receipt = &agent_receipts[agent_receipt_count % AGENT_RECEIPTS];
    agent_receipt_count++;

    receipt->hash = agent_receipt_hash((const uint8_t *) id, length);
    receipt->length = (uint8_t) length;
    memcpy(receipt->id, id, length);
    memcpy(receipt->digest, digest, SANDBOX_WIRE_DIGEST_SIZE);
    receipt->answer = NULL;

    if (answer == NULL || answer->size > AGENT_RECEIPT_BYTES) {
        return;
    }

    receipt->answer = answer;
    answer->references++;
    agent_receipt_kept++;
    agent_receipt_bytes += answer->size;

    while (agent_receipt_kept > AGENT_RECEIPT_KEPT
           || agent_receipt_bytes > AGENT_RECEIPT_BYTES)
    {
        agent_receipt_drop();
    }
}


agent_receipt_t *
agent_receipt_find(const uint8_t *id, size_t length)
{
    uint64_t          i, n, hash;
    agent_receipt_t  *receipt;

    hash = agent_receipt_hash(id, length);
    n = agent_receipt_count < AGENT_RECEIPTS ? agent_receipt_count
                                             : AGENT_RECEIPTS;

    /* the latest first: an id that came again after it was forgotten */

    for (i = 1; i <= n; i++) {
        receipt = &agent_receipts[(agent_receipt_count - i) % AGENT_RECEIPTS];

        if (receipt->hash == hash && receipt->length == length
            && memcmp(receipt->id, id, length) == 0)
        {
            return receipt;
        }
    }

    return NULL;
}


static uint64_t
agent_receipt_hash(const uint8_t *id, size_t length)
{
    size_t    i;
    uint64_t  hash;

    hash = 0xcbf29ce484222325ULL;

    for (i = 0; i < length; i++) {
        hash = (hash ^ id[i]) * 0x100000001b3ULL;
    }

    return hash;
}


/* Lets the oldest answer go; its receipt stays. */

static void
agent_receipt_drop(void)
{
    agent_receipt_t  *receipt;

    if (agent_receipt_first == agent_receipt_count) {
        return;
    }

    receipt = &agent_receipts[agent_receipt_first % AGENT_RECEIPTS];
    agent_receipt_first++;

    if (receipt->answer != NULL) {
        agent_receipt_kept--;
        agent_receipt_bytes -= receipt->answer->size;
        agent_answer_release(receipt->answer);
        receipt->answer = NULL;
    }
}
