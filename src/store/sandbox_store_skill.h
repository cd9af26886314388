/*
 * Skills in the store, and the administrator's library: a folder of NAME.tar.
 * A skill is read as a whole, by src/tar, before it gets its name.  May block,
 * so for threads only.
 */

#ifndef SANDBOX_STORE_SKILL_H
#define SANDBOX_STORE_SKILL_H

#include "sandbox_store_disk.h"
#include "sandbox_skill.h"


#define SANDBOX_STORE_MAX_LIBRARY     10000      /* names looked at */


/* one of a list */

typedef struct {
    sandbox_store_entry_t  entry;                /* of the store's */
    uint64_t               size;
    uint64_t               modified_ms;
    unsigned               name_len;
    char                   name[SANDBOX_SKILL_MAX_NAME];
    sandbox_skill_t        skill;
} sandbox_store_skill_t;

typedef struct {
    sandbox_store_skill_t *skills;               /* malloc() */
    size_t                 n;
    unsigned               more;
} sandbox_store_skills_t;


/* what to do about one of the same name that was uploaded */

typedef enum {
    SANDBOX_STORE_SKILL_ONLY_LIBRARY = 0,        /* EXISTS */
    SANDBOX_STORE_SKILL_ANY                      /* it is the one */
} sandbox_store_skill_mode_e;


/*
 * Both put a skill of that name into the conversation: the one that was
 * written, or the library's ("" is none).  REFUSED: reader->error says why,
 * reader->compressed if it is that.  MISSING: the library has none.  OK: entry,
 * reader->skill, and the text of its SKILL.md.  Of EXISTS see the mode.
 */

unsigned sandbox_store_skill_commit(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, const sandbox_store_quota_t *quota,
    const sandbox_store_condition_t *condition,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault);

unsigned sandbox_store_skill_load(const sandbox_store_place_t *place,
    const sandbox_store_quota_t *quota, const char *library,
    sandbox_store_skill_mode_e mode, sandbox_store_writer_t *w,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault);


/* What the store knows of an open file, which says nothing if it is old. */
void sandbox_store_skill_record(int fd, sandbox_skill_t *skill);

/* In the order of their names, those after `after`. */
unsigned sandbox_store_skill_list(const sandbox_store_place_t *place,
    const char *after, size_t after_len, size_t limit,
    sandbox_store_skills_t *list, sandbox_store_fault_t *fault);

/* Of the library; of its skills only the beginning is looked at. */
unsigned sandbox_store_library_list(const char *library, const char *after,
    size_t after_len, size_t limit, sandbox_store_skills_t *list,
    sandbox_store_fault_t *fault);

void sandbox_store_skills_free(sandbox_store_skills_t *list);


#endif /* SANDBOX_STORE_SKILL_H */
