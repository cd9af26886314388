/*
 * What a file of the store is, without a disk: names, the block at its start,
 * types by content, conditions, signed links.  Knows nothing but bytes.
 */

#ifndef SANDBOX_STORE_H
#define SANDBOX_STORE_H

#include <stddef.h>
#include <stdint.h>


#define SANDBOX_STORE_MAX_NAME        255        /* bytes of a file's name */
#define SANDBOX_STORE_MAX_COMMAND     64         /* bytes of a command's id */
#define SANDBOX_STORE_MAX_COMPONENT   200        /* bytes of an encoded one */
#define SANDBOX_STORE_SHA256          32
#define SANDBOX_STORE_ETAG            16         /* bytes, the sum's first */
#define SANDBOX_STORE_ETAG_TEXT       34         /* in hex, with quotes */
#define SANDBOX_STORE_ID              40         /* of a file, in hex */
#define SANDBOX_STORE_DIGEST          16         /* of a tenant, of a user */
#define SANDBOX_STORE_BLOCK           4096       /* then the file's bytes */
#define SANDBOX_STORE_MAX_RECORD      3072       /* of others, in the block */


/* folders of a conversation */

typedef enum {
    SANDBOX_STORE_ATTACHMENTS = 0,
    SANDBOX_STORE_FILES,
    SANDBOX_STORE_SKILLS,
    SANDBOX_STORE_NOTICES,                       /* blocks without bytes */
    SANDBOX_STORE_KINDS
} sandbox_store_kind_e;


typedef enum {
    SANDBOX_STORE_TYPE_BINARY = 0,
    SANDBOX_STORE_TYPE_EMPTY,
    SANDBOX_STORE_TYPE_TEXT,
    SANDBOX_STORE_TYPE_PNG,
    SANDBOX_STORE_TYPE_JPEG,
    SANDBOX_STORE_TYPE_GIF,
    SANDBOX_STORE_TYPE_WEBP,
    SANDBOX_STORE_TYPE_PDF,
    SANDBOX_STORE_TYPE_ZIP,
    SANDBOX_STORE_TYPE_XLSX,
    SANDBOX_STORE_TYPE_DOCX,
    SANDBOX_STORE_TYPE_PPTX,
    SANDBOX_STORE_TYPE_GZIP,
    SANDBOX_STORE_TYPE_TAR,
    SANDBOX_STORE_TYPE_LAST
} sandbox_store_type_e;


/* a file, as the block at its start has it */

typedef struct {
    uint64_t       size;                         /* of a notice: the limit */
    uint64_t       created_ms;                   /* since 1970 */
    uint64_t       modified_ms;
    uint8_t        sha256[SANDBOX_STORE_SHA256];
    unsigned       type;                         /* sandbox_store_type_e */
    unsigned       name_len;
    unsigned       command_len;                  /* 0: no command made it */
    char           name[SANDBOX_STORE_MAX_NAME];
    char           command[SANDBOX_STORE_MAX_COMMAND];
} sandbox_store_entry_t;


/* how much of a content was seen, for its type */

typedef struct {
    uint64_t       seen;
    unsigned       have;                         /* bytes of head */
    unsigned       part_len;
    unsigned       text;                         /* UTF-8 until now */
    uint8_t        part[4];                      /* of a sequence cut short */
    uint8_t        head[4096];
} sandbox_store_sniff_t;


/* what a link says; the bytes that are signed */

typedef struct {
    uint64_t       expires;                      /* seconds since 1970 */
    uint8_t        tenant[SANDBOX_STORE_DIGEST];
    uint8_t        user[SANDBOX_STORE_DIGEST];
    uint8_t        id[SANDBOX_STORE_ID / 2];     /* of the file */
    uint8_t        etag[SANDBOX_STORE_ETAG];
    unsigned       conversation_len;
    char           conversation[128];
} sandbox_store_link_t;

#define SANDBOX_STORE_LINK_FIXED                                             \
    (1 + 8 + 2 * SANDBOX_STORE_DIGEST + SANDBOX_STORE_ID / 2                 \
     + SANDBOX_STORE_ETAG)
#define SANDBOX_STORE_MAX_LINK        (SANDBOX_STORE_LINK_FIXED + 128)


/* NULL: may be a file's name; else what is wrong with it, for people */
const char *sandbox_store_name_wrong(const char *name, size_t len);

/*
 * One safe name of a folder from any bytes, with '\0', at most
 * SANDBOX_STORE_MAX_COMPONENT; what would be longer is told by its hash.
 * Two inputs never give the same.
 */
void sandbox_store_component(const char *p, size_t len,
    char out[SANDBOX_STORE_MAX_COMPONENT + 1]);

/* The name on the disk, in hex, with '\0'. */
void sandbox_store_id(const char *name, size_t len,
    char out[SANDBOX_STORE_ID + 1]);

/* "NAME (n).ext" in at most 255 bytes; returns their number. */
size_t sandbox_store_free_name(const char *name, size_t len, unsigned n,
    char out[SANDBOX_STORE_MAX_NAME]);


/* The block at a file's start. */
void sandbox_store_write_block(const sandbox_store_entry_t *entry,
    uint8_t block[SANDBOX_STORE_BLOCK]);

/* Adds bytes of others, at most SANDBOX_STORE_MAX_RECORD, to a block. */
void sandbox_store_write_record(uint8_t block[SANDBOX_STORE_BLOCK],
    const uint8_t *p, size_t size);

/* Those of a block that was read well; NULL: there are none. */
const uint8_t *sandbox_store_read_record(const uint8_t *block,
    size_t *size);

/* 0, or -1: it is none of ours, or damaged. */
int sandbox_store_read_block(const uint8_t *block, size_t size,
    sandbox_store_entry_t *entry);


void sandbox_store_sniff_init(sandbox_store_sniff_t *sniff);
void sandbox_store_sniff(sandbox_store_sniff_t *sniff, const uint8_t *p,
    size_t size);
unsigned sandbox_store_sniff_end(sandbox_store_sniff_t *sniff);

/* The media type; *inline_too: a browser may show it. */
const char *sandbox_store_type(unsigned type, unsigned *inline_too);


/* With quotes and '\0'. */
void sandbox_store_etag(const uint8_t *sha256,
    char out[SANDBOX_STORE_ETAG_TEXT + 1]);

/*
 * Whether the list of a header If-Match or If-None-Match has that tag; NULL is
 * the tag of what is not there.  Weak ones count only if `weak`.
 */
int sandbox_store_listed(const char *list, size_t len, const char *etag,
    unsigned weak);


/*
 * Whether a header Range, after "bytes=", is well-formed and no range in it
 * ends before it begins; one that is not is to be ignored.
 */
int sandbox_store_ranges(const char *list, size_t len);


/*
 * Content-Disposition: `attachment` or inline, an ASCII name and, where that
 * is another one, filename*.  At most SANDBOX_STORE_DISPOSITION bytes.
 */

#define SANDBOX_STORE_DISPOSITION     (64 + 4 * SANDBOX_STORE_MAX_NAME)

size_t sandbox_store_disposition(unsigned attachment, const char *name,
    size_t len, char out[SANDBOX_STORE_DISPOSITION]);


/* Returns the number of bytes. */
size_t sandbox_store_write_link(const sandbox_store_link_t *link,
    uint8_t out[SANDBOX_STORE_MAX_LINK]);
int sandbox_store_read_link(const uint8_t *p, size_t size,
    sandbox_store_link_t *link);


#endif /* SANDBOX_STORE_H */
