/*
 * The head of a COMMAND, or of what is asked about one, read strictly.
 * Knows no connection and no process.
 */

#ifndef AGENT_REQUEST_H
#define AGENT_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


#define AGENT_DEFAULT_WALL         120000        /* ms */
#define AGENT_DEFAULT_CPU          30000         /* ms */
#define AGENT_DEFAULT_OUTPUT       (256 * 1024)
#define AGENT_DEFAULT_TOTAL        ((uint64_t) 1024 * 1024 * 1024)
#define AGENT_DEFAULT_OPEN_FILES   1024
#define AGENT_DEFAULT_PENDING      10


/* pointers into the head it was read from; not ended by NUL, none inside */

typedef struct {
    const uint8_t  *command;
    size_t          command_size;
    const uint8_t  *cwd;                 /* NULL: home */
    size_t          cwd_size;
    const uint8_t  *id;                  /* NULL: none was given */
    size_t          id_size;
    const uint8_t  *label;               /* NULL: none was given */
    size_t          label_size;
    const uint8_t  *head;                /* all fields, for ENV */
    size_t          head_size;
    const uint8_t  *proxy;               /* of egress; NULL: no policy */
    size_t          proxy_size;
    const uint8_t  *token;               /* user and password of it */
    size_t          token_size;
    const uint8_t  *index;               /* URL; NULL: none */
    size_t          index_size;
    const uint8_t  *ca;                  /* PEM; NULL: none */
    size_t          ca_size;
    const char     *ca_file;             /* where it is with the base's */
    unsigned        env_count;
    size_t          env_size;            /* bytes of all, with NUL */
    uint64_t        wall_ms;
    uint64_t        cpu_ms;
    uint64_t        output;              /* captured bytes of a stream */
    uint64_t        output_total;
    uint64_t        open_files;
    uint64_t        pending;
    uint64_t        stream;              /* 0, 1 */
    uint64_t        detach;              /* 0, 1 */
    uint64_t        stdin_open;          /* 0, 1 */
    uint64_t        after;               /* number of an event */
    uint64_t        stdin_eof;           /* 0, 1 */
    uint8_t         digest[SANDBOX_WIRE_DIGEST_SIZE];
} agent_request_t;


/*
 * NULL, or the code of the ERROR and in *detail a sentence for people (a
 * constant).  The request points into head afterwards.
 */
const char *agent_request_read(agent_request_t *request, unsigned operation,
    const uint8_t *head, size_t size, const char **detail);

/* The ENV fields one by one; 0 after the last. */
int agent_request_env(sandbox_fields_t *fields, sandbox_field_t *field);

/* 1: NAME=VALUE with a name of [A-Za-z_][A-Za-z0-9_]*, no NUL. */
int agent_request_env_valid(const uint8_t *p, size_t size);


#endif /* AGENT_REQUEST_H */
