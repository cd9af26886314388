/*
 * Foreign bytes as what a command says of its files, as a manifest, and as a
 * body in chunks.  The first byte chooses.
 */

/* link: src/agent/agent_stage_request.c src/agent/agent_manifest.c */
/* link: src/agent/agent_body.c src/agent/agent_path.c */
/* link: src/agent/agent_store.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* covers: src/agent/agent_stage_request.c src/agent/agent_manifest.c */
/* covers: src/agent/agent_body.c */

#include <stdlib.h>
#include <string.h>

#include "agent_path.h"
#include "agent_stage.h"
#include "agent_store.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_request(const uint8_t *p, size_t size);
static void fuzz_notices(agent_stage_t *stage);
static void fuzz_manifest(const uint8_t *p, size_t size, int summed);
static void fuzz_body(const uint8_t *p, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    if (size == 0) {
        return 0;
    }

    switch (p[0] % 4) {

    case 0:
        fuzz_request(p + 1, size - 1);
        break;

    case 1:
        fuzz_manifest(p + 1, size - 1, 0);
        break;

    case 2:
        fuzz_manifest(p + 1, size - 1, 1);
        break;

    default:
        fuzz_body(p + 1, size - 1);
    }

    return 0;
}


static void
fuzz_request(const uint8_t *p, size_t size)
{
    unsigned             i, bodies;
    const char          *code, *detail;
    agent_stage_t       *stage;
    agent_stage_item_t  *item;

    code = agent_stage_request(&stage, p, size, &detail);

    if (code != NULL) {
        check(stage == NULL && detail != NULL);
        return;
    }

    if (stage == NULL) {
        return;
    }

    check(stage->count > 0 && stage->count <= SANDBOX_WIRE_MAX_STAGED);
    check(stage->bodies <= stage->count);
    check(stage->input <= SANDBOX_WIRE_MAX_BODY);
    bodies = 0;

    for (i = 0; i < stage->count; i++) {
        item = &stage->items[i];
        check(item->kind == AGENT_STAGE_ATTACHMENT
              || item->kind == AGENT_STAGE_SKILL);
        check(agent_path_name((uint8_t *) item->name, strlen(item->name)));
        check(item->spool.fd == -1);
        bodies += item->body;
    }

    check(bodies == stage->bodies);

    for (i = 0; i < stage->bodies; i++) {
        check(stage->items[stage->order[i]].body);
    }

    fuzz_notices(stage);
    free(stage);
}


static void
fuzz_notices(agent_stage_t *stage)
{
    uint8_t           result[SANDBOX_WIRE_MAX_RESULT];
    unsigned          i;
    sandbox_writer_t  w;

    for (i = 0; i < 100; i++) {
        agent_stage_notice(stage, "renamed", stage->items[0].name,
                           "a sentence of some length, and then some more");
    }

    check(stage->notices_size <= AGENT_STAGE_NOTICES);
    sandbox_writer_init(&w, result, sizeof(result));
    agent_stage_write(stage, &w);
    check(!w.failed && w.pos - w.start > 0);
}


/* What is read is written the same way again. */

static void
fuzz_manifest(const uint8_t *p, size_t size, int summed)
{
    size_t             n;
    uint8_t           *copy, *again;
    unsigned           i;
    agent_staged_t    *entry;
    agent_manifest_t   manifest;

    static agent_staged_t  list[AGENT_MANIFEST_MAX];

    copy = malloc(size + 1);
    again = malloc(AGENT_MANIFEST_BYTES);
    check(copy != NULL && again != NULL);
    memcpy(copy, p, size);

    if (summed && size >= 24) {
        sandbox_put64(copy, 0x5342584d414e4931ULL);
        sandbox_put64(copy + size - 8,
                      agent_store_sum(0x5342584d414e4931ULL, copy, size - 8));
    }

    manifest.list = list;

    if (agent_manifest_decode(&manifest, copy, size) == 0) {

        check(manifest.count <= AGENT_MANIFEST_MAX);

        for (i = 0; i < manifest.count; i++) {
            entry = &manifest.list[i];
            check(agent_path_name((uint8_t *) entry->name,
                                  strlen(entry->name)));
            check(entry->made[0] == '\0'
                  || agent_path_name((uint8_t *) entry->made,
                                     strlen(entry->made)));
            entry = agent_manifest_find(&manifest, entry->kind, entry->name);
            check(entry == NULL || entry->state == AGENT_STAGED_THERE);
        }

        n = agent_manifest_encode(&manifest, again);
        check(n == size && agent_manifest_decode(&manifest, again, n) == 0);

        while (manifest.count) {
            agent_manifest_remove(&manifest, manifest.list);
        }

    } else {
        check(manifest.count == 0);
    }

    free(copy);
    free(again);
}


static void
fuzz_body(const uint8_t *p, size_t size)
{
    int             rc;
    size_t          n, length, whole;
    uint64_t        bytes;
    agent_body_t    body;
    const uint8_t  *at, *data;

    if (size == 0) {
        return;
    }

    agent_body_init(&body, p[0] & 1 ? SANDBOX_WIRE_BODY_CHUNKED : p[0]);
    whole = p[0];
    p++;
    size--;
    bytes = 0;
    rc = 0;

    while (size && !body.end && rc != -1) {
        n = 1 + size % 7;
        n = n < size ? n : size;
        at = p;
        length = n;
        p += n;
        size -= n;

        while ((rc = agent_body_next(&body, &at, &n, &data, &length)) == 1) {
            check(length > 0 && data >= p - 8 && data + length <= p);
            bytes += length;
        }

        check(rc == -1 || body.end || n == 0);
    }

    check(body.chunked || bytes <= whole);
    check(body.chunked || body.end == (bytes == whole));
}
