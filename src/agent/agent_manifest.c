/*
 * The list of what has been staged, and its bytes: a magic, the number of
 * entries, these, and a sum over all.  What the sum does not confirm is not
 * there.
 */

#include "agent_manifest.h"

#include <string.h>

#include "agent_path.h"
#include "agent_store.h"


#define AGENT_MANIFEST_MAGIC   0x5342584d414e4931ULL     /* "SBXMANI1" */
#define AGENT_MANIFEST_HEADER  16
#define AGENT_MANIFEST_ENTRY   40        /* before its names */


static const uint8_t *agent_manifest_entry(agent_staged_t *entry,
    const uint8_t *p, const uint8_t *end);


agent_staged_t *
agent_manifest_find(agent_manifest_t *manifest, unsigned kind,
    const char *name)
{
    unsigned         i;
    agent_staged_t  *entry;

    for (i = 0; i < manifest->count; i++) {
        entry = &manifest->list[i];

        if (entry->kind == kind && entry->state == AGENT_STAGED_THERE
            && strcmp(entry->name, name) == 0)
        {
            return entry;
        }
    }

    return NULL;
}


agent_staged_t *
agent_manifest_add(agent_manifest_t *manifest)
{
    agent_staged_t  *entry;

    if (manifest->list == NULL || manifest->count == AGENT_MANIFEST_MAX) {
        return NULL;
    }

    entry = &manifest->list[manifest->count++];
    memset(entry, 0, sizeof(agent_staged_t));

    return entry;
}


void
agent_manifest_remove(agent_manifest_t *manifest, agent_staged_t *entry)
{
    agent_staged_t  *last;

    last = &manifest->list[--manifest->count];

    if (entry != last) {
        *entry = *last;
    }
}


size_t
agent_manifest_encode(const agent_manifest_t *manifest, uint8_t *p)
{
    size_t                 name, made;
    uint8_t               *at;
    unsigned               i;
    const agent_staged_t  *entry;

    sandbox_put64(p, AGENT_MANIFEST_MAGIC);
    sandbox_put64(p + 8, manifest->count);
    at = p + AGENT_MANIFEST_HEADER;

    for (i = 0; i < manifest->count; i++) {
        entry = &manifest->list[i];
        name = strlen(entry->name);
        made = strlen(entry->made);

        at[0] = entry->kind;
        at[1] = entry->state;
        at[2] = name;
        at[3] = made;
        sandbox_put32(at + 4, 0);
        memcpy(at + 8, entry->etag, AGENT_STAGE_ETAG);
        sandbox_put64(at + 24, entry->size);
        sandbox_put64(at + 32, entry->modified);
        at += AGENT_MANIFEST_ENTRY;

        memcpy(at, entry->name, name);
        at += name;
        memcpy(at, entry->made, made);
        at += made;
    }

    sandbox_put64(at, agent_store_sum(AGENT_MANIFEST_MAGIC, p, at - p));

    return at + 8 - p;
}


int
agent_manifest_decode(agent_manifest_t *manifest, const uint8_t *p,
    size_t size)
{
    uint64_t         count;
    const uint8_t   *at, *end;
    agent_staged_t  *entry;

    manifest->count = 0;

    if (size < AGENT_MANIFEST_HEADER + 8 || size > AGENT_MANIFEST_BYTES
        || sandbox_get64(p) != AGENT_MANIFEST_MAGIC
        || sandbox_get64(p + size - 8)
           != agent_store_sum(AGENT_MANIFEST_MAGIC, p, size - 8))
    {
        return -1;
    }

    at = p + AGENT_MANIFEST_HEADER;
    end = p + size - 8;

    for (count = sandbox_get64(p + 8); count; count--) {
        entry = agent_manifest_add(manifest);
        at = entry != NULL ? agent_manifest_entry(entry, at, end) : NULL;

        if (at == NULL) {
            manifest->count = 0;
            return -1;
        }
    }

    if (at != end) {
        manifest->count = 0;
        return -1;
    }

    return 0;
}


/* What is behind it, or NULL: it is none. */

static const uint8_t *
agent_manifest_entry(agent_staged_t *entry, const uint8_t *p,
    const uint8_t *end)
{
    size_t  name, made;

    if (end - p < AGENT_MANIFEST_ENTRY) {
        return NULL;
    }

    name = p[2];
    made = p[3];

    if ((size_t) (end - p) - AGENT_MANIFEST_ENTRY < name + made) {
        return NULL;
    }

    entry->kind = p[0];
    entry->state = p[1];
    memcpy(entry->etag, p + 8, AGENT_STAGE_ETAG);
    entry->size = sandbox_get64(p + 24);
    entry->modified = sandbox_get64(p + 32);
    p += AGENT_MANIFEST_ENTRY;

    if ((entry->kind != AGENT_STAGE_ATTACHMENT
         && entry->kind != AGENT_STAGE_SKILL)
        || entry->state > AGENT_STAGED_GOING
        || !agent_path_name(p, name)
        || (made && !agent_path_name(p + name, made)))
    {
        return NULL;
    }

    memcpy(entry->name, p, name);
    memcpy(entry->made, p + name, made);

    return p + name + made;
}
