/*
 * What ripgrep writes, as records.  Foreign bytes: the program runs as the
 * user, who may have it write whatever he likes.
 */

#ifndef AGENT_SEARCH_H
#define AGENT_SEARCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox_wire.h"


#define AGENT_SEARCH_PROGRAM   "/usr/bin/rg"
#define AGENT_SEARCH_HERE      "./"      /* before a path that was found */
#define AGENT_SEARCH_ROOM      (SANDBOX_WIRE_MAX_PATH + 128)  /* and words */
#define AGENT_SEARCH_SENTENCE  256       /* bytes, with NUL */


typedef enum {
    AGENT_SEARCH_PATH = 0,
    AGENT_SEARCH_LINE,
    AGENT_SEARCH_OFFSET,
    AGENT_SEARCH_TEXT,
    AGENT_SEARCH_DONE,                   /* the record is complete */
    AGENT_SEARCH_BAD
} agent_search_state_e;


/*
 * PATH NUL, or PATH NUL LINE ":" OFFSET ":" TEXT newline, or words that say
 * that a binary file matches, and a newline.
 */

typedef struct {
    agent_search_state_e  state;
    unsigned              names:1;       /* paths only */
    unsigned              binary:1;      /* there is no text */
    unsigned              digits;        /* of the number */
    uint64_t              line;          /* from 1 */
    uint64_t              offset;        /* of the line in its file */
    size_t                path_size;
    char                  path[AGENT_SEARCH_ROOM];   /* with NUL */
    size_t                text_size;
    unsigned              long_text:1;   /* the line has more than is kept */
    uint8_t               text[SANDBOX_WIRE_MAX_TEXT + 4];
} agent_search_record_t;


/* agent_search_record.c: knows no process and no file */

void agent_search_init(agent_search_record_t *record, int names);

/*
 * Takes bytes from *p on.  SANDBOX_OK: a record is complete, *p is behind it;
 * SANDBOX_AGAIN: all are taken, it goes on with more; SANDBOX_BAD: they can't
 * be ripgrep's, now and from now on.
 */
int agent_search_next(agent_search_record_t *record, const uint8_t **p,
    const uint8_t *last);

/* Bytes of the text to send: at most MAX_TEXT, cut at a UTF-8 border. */
size_t agent_search_text(const agent_search_record_t *record);

/* What it says of a pattern that it can't take; UTF-8, one line, no end. */
void agent_search_sentence(char *out, const char *said, size_t size);


/* agent_search.c */

/* A child ended; 0 if it is no search. */
int agent_search_reaped(pid_t pid, int status);


#endif /* AGENT_SEARCH_H */
