/*
 * A plain tar (ustar, with the names of pax and GNU), read header by header,
 * strictly: regular files, directories and links that stay inside.  Pure C:
 * knows no files, no nginx, allocates nothing.
 */

#ifndef SANDBOX_TAR_H
#define SANDBOX_TAR_H

#include <stddef.h>
#include <stdint.h>


#define SANDBOX_TAR_BLOCK        512
#define SANDBOX_TAR_MAX_NAME     1024    /* of a path in it, with a NUL */
#define SANDBOX_TAR_MAX_EXTRA    (32 * 1024)     /* of one pax header */
#define SANDBOX_TAR_MAX_ENTRIES  20000
#define SANDBOX_TAR_MAX_DEPTH    32      /* parts of a path */
#define SANDBOX_TAR_MAX_BYTES    ((uint64_t) 256 * 1024 * 1024)


typedef enum {
    SANDBOX_TAR_FILE = 0,
    SANDBOX_TAR_DIRECTORY,
    SANDBOX_TAR_LINK
} sandbox_tar_type_e;


/* one entry as read */

typedef struct {
    sandbox_tar_type_e  type;
    unsigned            mode;            /* permission bits */
    uint64_t            size;            /* of a file; its bytes follow */
    char                path[SANDBOX_TAR_MAX_NAME];  /* clean, relative */
    char                target[SANDBOX_TAR_MAX_NAME];    /* of a link */
} sandbox_tar_entry_t;


typedef struct {
    sandbox_tar_entry_t  entry;
    uint64_t             bytes;          /* of all files so far */
    unsigned             entries;
    uint64_t             skip;           /* padding behind what was read */
    uint64_t             data;           /* bytes of the file to come */
    unsigned             zeros;          /* blocks of the end */
    unsigned             state;
    unsigned             block_have;
    uint64_t             extra_left;
    size_t               extra_have;
    unsigned             has_path:1;     /* told for the next entry */
    unsigned             has_target:1;
    unsigned             has_size:1;
    unsigned             named:1;        /* the block has a name */
    unsigned             pending;        /* headers before the next entry */
    uint64_t             next_size;
    char                 extra_type;
    char                 next_path[SANDBOX_TAR_MAX_NAME];
    char                 next_target[SANDBOX_TAR_MAX_NAME];
    uint8_t              block[SANDBOX_TAR_BLOCK];
    uint8_t              extra[SANDBOX_TAR_MAX_EXTRA + 1];
    const char          *error;          /* a sentence, after BAD */
} sandbox_tar_t;


#define SANDBOX_TAR_AGAIN   0            /* needs more bytes */
#define SANDBOX_TAR_ENTRY   1            /* tar->entry */
#define SANDBOX_TAR_DATA    2            /* some of the file's bytes */
#define SANDBOX_TAR_DONE    3            /* its end was seen */
#define SANDBOX_TAR_BAD    -1            /* tar->error */


void sandbox_tar_init(sandbox_tar_t *tar);

/*
 * Reads on in the *size bytes at *p, which then are what is left of them.
 * With SANDBOX_TAR_DATA, *data and *length are in there.
 */
int sandbox_tar_next(sandbox_tar_t *tar, const uint8_t **p, size_t *size,
    const uint8_t **data, size_t *length);

/*
 * After BAD: what the entry at fault is called in the tar, as it stands there
 * (any bytes), at most `size` of it.  0: it has no name.
 */
size_t sandbox_tar_name(const sandbox_tar_t *tar, char *out, size_t size);

/*
 * A path of a tar made clean: no "./" before it, no slash behind it.  "" is
 * the top itself.  NULL, or a sentence: it is absolute, has "..", an empty
 * part, is too long or too deep.
 */
const char *sandbox_tar_path(char *out, const char *path, size_t length);

/*
 * 1: a link of that target at that place leads nowhere but inside, through
 * whatever other links, as long as they do so, too.
 */
int sandbox_tar_inside(const char *path, const char *target);


#endif /* SANDBOX_TAR_H */
