/*
 * The record of a slot on disk: enough to take over a living agent, to wake a
 * stopped sandbox, and to finish a deletion, after any end of the runner.
 */

#ifndef RUNNER_STATE_H
#define RUNNER_STATE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox_wire.h"


#define RUNNER_RECORD_SIZE  8192                 /* bytes of its text */


typedef struct {
    uint32_t   number;                   /* of the slot */
    uint8_t    session[SANDBOX_WIRE_SESSION_SIZE];
    uint8_t    tenant[SANDBOX_WIRE_TENANT_SIZE];
    char       id[SANDBOX_WIRE_SANDBOX_ID_SIZE + 1];
    uint64_t   instance;
    uint64_t   created_ms;               /* Unix time */
    uint64_t   used_ms;
    uint64_t   commands;                 /* ended, in earlier containers */

    uint32_t   memory;                   /* MiB */
    uint32_t   disk;                     /* MiB */
    uint32_t   processes;

    uint32_t   ids;                      /* first host id, 0: stopped */
    pid_t      pid;                      /* 0: stopped */
    uint64_t   start_time;               /* of the process, clock ticks */
    int        deleted;                  /* a tombstone */
    uint32_t   egress;                   /* its policy; 0: none */
    char       base[PATH_MAX];           /* root file system below it */
    char       base_name[SANDBOX_WIRE_MAX_COMMAND_ID + 1];  /* "": default */
} runner_record_t;


/* Writes the text; returns its bytes, 0 if it does not fit into `size`. */
size_t runner_record_write(const runner_record_t *record, char *text,
    size_t size);

/*
 * Reads the text of a record, strictly: every line known, each once, none
 * missing, "end" as the last.  0, or -1.
 */
int runner_record_read(runner_record_t *record, const char *text);


#endif /* RUNNER_STATE_H */
