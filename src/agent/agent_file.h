/*
 * Files of the sandbox, for clients: what may be asked, and what the files of
 * this concern offer one another.
 */

#ifndef AGENT_FILE_H
#define AGENT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "agent_path.h"
#include "sandbox_wire.h"


#define AGENT_FILE_PIECE     SANDBOX_WIRE_MAX_OUTPUT
#define AGENT_FILE_ETAG      32          /* hex digits */
#define AGENT_FILE_TRIES     1000        /* of a directory that is moved */


typedef struct agent_connection_s  agent_connection_t;
typedef struct agent_file_s        agent_file_t;


/* an etag of a condition */

typedef struct {
    const uint8_t  *data;
    size_t          length;
} agent_file_etag_t;


/* a GLOB, without NUL */

typedef struct {
    const uint8_t  *data;
    size_t          length;
} agent_file_glob_t;


/* the head of a FILE_*; pointers into it, the path apart */

typedef struct agent_file_request_s {
    unsigned           root;             /* sandbox_root_e */
    size_t             path_size;
    char               path[SANDBOX_WIRE_MAX_PATH];
    unsigned           no_body:1;
    unsigned           list:1;
    unsigned           recursive:1;
    unsigned           has_mode:1;
    unsigned           has_first:1;
    unsigned           has_last:1;
    unsigned           has_suffix:1;
    uint64_t           mode;
    uint64_t           limit;            /* names of a listing */
    uint64_t           first;
    uint64_t           last;
    uint64_t           suffix;
    size_t             cursor_size;
    const uint8_t     *cursor;           /* NULL: from the start */
    unsigned           literal:1;
    unsigned           ignore_case:1;
    unsigned           globs;
    size_t             pattern_size;
    const uint8_t     *pattern;          /* NULL: names only */
    agent_file_glob_t  glob[SANDBOX_WIRE_MAX_GLOBS];
    agent_file_etag_t  if_range;         /* data NULL: none */
    unsigned           match_count;
    unsigned           none_match_count;
    agent_file_etag_t  match[SANDBOX_WIRE_MAX_ETAGS];
    agent_file_etag_t  none_match[SANDBOX_WIRE_MAX_ETAGS];
} agent_file_request_t;


/* agent_file_request.c: knows no file */

/* NULL, or the code of the ERROR and a sentence (a constant). */
const char *agent_file_request_read(agent_file_request_t *request,
    const uint8_t *head, size_t size, const char **detail);

/*
 * What is to be answered for a file of that size and etag: 200, 206 (with the
 * bytes from *first to *last), 304, 412, 416.  etag NULL: there is none.
 */
unsigned agent_file_status(const agent_file_request_t *request,
    const char *etag, uint64_t size, uint64_t *first, uint64_t *last);

/* 1: the conditions allow a change of that one; etag NULL: there is none. */
int agent_file_allowed(const agent_file_request_t *request,
    const char *etag);

/* AGENT_FILE_ETAG digits and a NUL. */
void agent_file_etag(char *out, const struct stat *st);


/* agent_root.c */

/* Opens the roots.  -1: said why. */
int agent_root_init(void);

/*
 * What is at that path, symbolic links followed within the roots: an O_PATH
 * descriptor.  -1 and errno: EXDEV it is outside, ELOOP links never end.
 * With the real place of it, if they are not NULL.
 */
int agent_root_find(unsigned root, const char *path, struct stat *st,
    agent_root_e *where, char *real);

/*
 * The directory of the last part, which need not be there, and in *name that
 * part (within path); with the place of the directory as above.
 */
int agent_root_parent(unsigned root, const char *path, const char **name,
    agent_root_e *where, char *real);

/* Beneath a root's own place, no links at all; `flags` of open. */
int agent_root_open(agent_root_e root, const char *path, uint64_t flags,
    unsigned mode);

/* The same beneath a directory. */
int agent_root_open_at(int fd, const char *path, uint64_t flags,
    unsigned mode);

/* A file that was found, for real and without waiting. */
int agent_root_reopen(int fd, int flags);

/* 1: it is one of the roots itself. */
int agent_root_is(const struct stat *st);

/* The code for an errno, and a sentence (a constant). */
const char *agent_root_code(int error, const char **detail);


/* agent_file.c */

/* what goes on for a connection that asked for a file */

struct agent_file_s {
    agent_file_request_t    request;

    /* There may be room to send, or input.  May close the connection. */
    void                  (*work)(agent_connection_t *c);

    /* Gives back what it holds, apart from the fields below. */
    void                  (*end)(agent_file_t *file);
    void                   *data;        /* of these two */
    int                     fd;          /* -1: none */
    struct stat             st;
    char                    etag[AGENT_FILE_ETAG + 1];
    uint64_t                offset;
    uint64_t                left;        /* bytes to be sent, of all */
    uint64_t                bytes;       /* sent */
    size_t                  frame;       /* of the DATA that has begun */
    unsigned                ticks;       /* without progress */
};


/* The request of c is complete, of FILE_WRITE its head. */
void agent_file_enter(agent_connection_t *c);

/* Something happened on the connection, or PING_INTERVAL went by. */
void agent_file_event(agent_connection_t *c);
void agent_file_tick(agent_connection_t *c);

/* c is closed. */
void agent_file_lost(agent_connection_t *c);

/* ERROR for an errno. */
void agent_file_error(agent_connection_t *c, int error);

/*
 * The file or folder that the request names, for reading, as c->file->fd, and
 * what it is (st, etag).  -1: the client has its ERROR.
 */
int agent_file_open(agent_connection_t *c);

/* HEAD with what is known of the file.  -1: the connection is closed. */
int agent_file_head(agent_connection_t *c, unsigned status,
    const uint64_t *range);

/* RESULT of these fields, then the end.  fields NULL: none. */
void agent_file_result(agent_connection_t *c, const sandbox_writer_t *w);

/* RESULT that says what went wrong after HEAD. */
void agent_file_failed(agent_connection_t *c, const char *code,
    const char *detail);

unsigned agent_file_type(mode_t mode);
uint64_t agent_file_modified(const struct stat *st);


/* agent_listing.c, agent_file_write.c, agent_file_remove.c, agent_search.c */

void agent_listing_start(agent_connection_t *c);
void agent_file_write_start(agent_connection_t *c);
void agent_file_remove_start(agent_connection_t *c);
void agent_search_start(agent_connection_t *c);


#endif /* AGENT_FILE_H */
