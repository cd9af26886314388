/*
 * A skill is a plain tar: what is true of all of it (no name twice, nothing
 * below a link, its end), and what is told of it: name and description in the
 * front matter of its SKILL.md, its requirements.txt.  Pure C: knows no files,
 * no nginx, allocates nothing.
 */

#ifndef SANDBOX_SKILL_H
#define SANDBOX_SKILL_H

#include "sandbox_tar.h"


#define SANDBOX_SKILL_MAX_NAME         64        /* of a skill */
#define SANDBOX_SKILL_MAX_BYTES        ((uint64_t) 64 * 1024 * 1024)
#define SANDBOX_SKILL_MAX_TITLE        64        /* "name" of SKILL.md */
#define SANDBOX_SKILL_MAX_DESCRIPTION  1024
#define SANDBOX_SKILL_MAX_TEXT         (64 * 1024)   /* kept of SKILL.md */
#define SANDBOX_SKILL_PATHS            4         /* of requirements.txt */
#define SANDBOX_SKILL_MAX_PATH         255       /* what is told of one */
#define SANDBOX_SKILL_MAX_RECORD       2560
#define SANDBOX_SKILL_MAX_NAMES        (16 * 1024)   /* bytes of paths */
#define SANDBOX_SKILL_MAX_ERROR        512

#define SANDBOX_SKILL_SLOTS            65536     /* thrice the entries */


typedef enum {
    SANDBOX_SKILL_UPLOAD = 0,
    SANDBOX_SKILL_LIBRARY
} sandbox_skill_source_e;


/* what is told of one */

typedef struct {
    unsigned       source;                       /* sandbox_skill_source_e */
    uint64_t       stamp;                        /* of the library's file */
    uint64_t       files;
    uint64_t       bytes;                        /* of all files in it */
    unsigned       manual;                       /* it has a SKILL.md */
    unsigned       inner;                        /* ...but below a folder */
    unsigned       title_len;
    unsigned       description_len;
    unsigned       required;                     /* requirements.txt in it */
    unsigned       paths;                        /* of them, in path */
    char           title[SANDBOX_SKILL_MAX_TITLE];
    char           description[SANDBOX_SKILL_MAX_DESCRIPTION];
    struct {
        unsigned   len;
        char       data[SANDBOX_SKILL_MAX_PATH];
    }              path[SANDBOX_SKILL_PATHS];
} sandbox_skill_t;


/* a tar as it comes; large, so not for the stack */

typedef struct {
    sandbox_tar_t  tar;
    unsigned       nodes;                        /* files and folders */
    unsigned       done;                         /* its end was there */
    unsigned       reading;                      /* SKILL.md */
    unsigned       several;                      /* more than one at the top */
    const char    *compressed;                   /* by what, after -1 */
    size_t         top_len;
    char           top[256];                     /* the first one there */
    uint64_t       text_size;                    /* of all of it */
    size_t         text_len;                     /* of what is kept */
    uint8_t        text[SANDBOX_SKILL_MAX_TEXT];     /* of SKILL.md */
    unsigned       named;                        /* files in names */
    size_t         names_len;
    char           names[SANDBOX_SKILL_MAX_NAMES];   /* each ends with NUL */
    uint64_t       slots[SANDBOX_SKILL_SLOTS];   /* hashes of paths */
    char           error[SANDBOX_SKILL_MAX_ERROR];   /* a sentence, after -1 */
    sandbox_skill_t  skill;
} sandbox_skill_reader_t;


/* NULL: may be a skill's name; else what is wrong with it, for people */
const char *sandbox_skill_name_wrong(const char *name, size_t len);

void sandbox_skill_init(sandbox_skill_reader_t *reader);

/* The next bytes.  0, or -1: it is refused, reader->error says why. */
int sandbox_skill_read(sandbox_skill_reader_t *reader, const uint8_t *p,
    size_t size);

/* All of it was read.  0: reader->skill and text are whole; or -1 as above. */
int sandbox_skill_end(sandbox_skill_reader_t *reader);

/* Of a beginning only: what is known of its SKILL.md by now. */
void sandbox_skill_glance(sandbox_skill_reader_t *reader);


/* To be kept beside it: returns the number of bytes. */
size_t sandbox_skill_write(const sandbox_skill_t *skill,
    uint8_t out[SANDBOX_SKILL_MAX_RECORD]);

/* 0, or -1: it is no record; then *skill is one that says nothing. */
int sandbox_skill_parse(const uint8_t *p, size_t size,
    sandbox_skill_t *skill);


#endif /* SANDBOX_SKILL_H */
