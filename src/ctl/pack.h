/*
 * A folder as a skill: a plain tar that is the same for the same files,
 * whoever makes it, when, and on what disk.  Knows no gateway.
 */

#ifndef SANDBOX_CTL_PACK_H
#define SANDBOX_CTL_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_skill.h"


typedef struct {
    uint8_t          *data;                      /* the tar; the caller's */
    size_t            size;
    size_t            room;
    sandbox_skill_t   skill;
} ctl_pack_t;


/*
 * All of the folder, with `mtime` as the time of everything in it.  0, or -1
 * after a sentence; ctl_pack_free() may be called in both cases.
 */
int ctl_pack_folder(ctl_pack_t *pack, const char *folder, uint64_t mtime);
void ctl_pack_free(ctl_pack_t *pack);

/* Whether those bytes are a skill.  0, or -1 after a sentence about `name`. */
int ctl_pack_check(const uint8_t *data, size_t size, const char *name,
    sandbox_skill_t *skill);


#endif /* SANDBOX_CTL_PACK_H */
