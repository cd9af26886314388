/*
 * A slot: the place of one container on the host, with its directory, disk,
 * ids, control groups and control socket.  Everything here blocks, for some
 * milliseconds, and runs on a thread of its own; one call a slot at a time.
 */

#ifndef RUNNER_SLOT_H
#define RUNNER_SLOT_H

#include <stdint.h>
#include <sys/types.h>

#include "error.h"
#include "host.h"
#include "state.h"


typedef struct {
    runner_record_t  record;             /* number, limits, pid, ids, ... */
    int              pidfd;              /* -1: no container */
    int              control;            /* -1: not connected */
    int              words;              /* its standard error, or -1 */
} runner_slot_t;


/* A slot without container; record.number and the limits are the caller's. */
void runner_slot_init(runner_slot_t *slot);

/*
 * Makes directory and disk, and starts.  On success there is a container with
 * pid, pidfd and a connected, non-blocking control socket; its READY has not
 * been read.  On error nothing is left of it.
 */
int runner_slot_create(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);

/* The same with the disk that is there.  On error the disk stays. */
int runner_slot_start(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);

/*
 * Ends the container, if it lives, and removes everything but the disk, which
 * is written out when this returns.
 */
int runner_slot_stop(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);

/* The same, and leaves the record as it is. */
int runner_slot_clean(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);

/* Stops it and removes the directory and the disk. */
int runner_slot_destroy(runner_host_t *host, runner_slot_t *slot,
    runner_error_t *err);

/*
 * For a slot that an earlier runner left: opens pidfd and control socket if
 * its process lives and is the same one.  0, or -1 if there is none.
 */
int runner_slot_adopt(runner_host_t *host, runner_slot_t *slot);

/*
 * The file of its history, for reading: of a living container, or (blocking)
 * of a stopped one, whose disk is in use until it is closed.  -1: none.
 */
int runner_slot_history(const runner_slot_t *slot);
int runner_slot_history_stopped(runner_host_t *host,
    const runner_slot_t *slot);

/* Tells a living container the cap on its user's processes. */
void runner_slot_processes(const runner_slot_t *slot);

/* Writes the record; with `sync` it is on the disk.  0, or -1 and errno. */
int runner_slot_save(runner_host_t *host, const runner_slot_t *slot,
    int sync);

/* Writes out what the container has written to its disk. */
void runner_slot_sync(const runner_slot_t *slot);

/* Bytes of the host's disk that it takes. */
uint64_t runner_slot_disk(runner_host_t *host, const runner_slot_t *slot);


#endif /* RUNNER_SLOT_H */
