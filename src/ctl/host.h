/*
 * The runner of this host, over its own socket: for root, who can read its
 * key.
 */

#ifndef SANDBOX_CTL_HOST_H
#define SANDBOX_CTL_HOST_H

#include "options.h"

#include "sandbox_wire.h"


#define CTL_HOST_SOCKET  "/run/sandbox/runner.sock"
#define CTL_HOST_KEY     "/etc/nginx/sandbox-runner.key"


typedef struct {
    ctl_values_t   socket;
    ctl_values_t   key;
} ctl_host_options_t;

#define CTL_HOST(h)                                                          \
    { "socket", "PATH", "the runner's (" CTL_HOST_SOCKET ")", 1,             \
      &(h)->socket, 0 },                                                     \
    { "key-file", "FILE", "the runner's (" CTL_HOST_KEY ")", 1, &(h)->key,   \
      0 }


/* what was counted for one policy of egress, since the runner started */

typedef struct {
    uint64_t       id;
    char           name[SANDBOX_WIRE_MAX_POLICY_NAME + 1];
    uint64_t       number[SANDBOX_TAG_EGRESS_DOWN + 1
                          - SANDBOX_TAG_EGRESS_OPEN];
} ctl_egress_t;


/* an engine whose session the other daemon, --dagger, holds, or does not */

#define CTL_HOST_ENGINES  16

typedef struct {
    char           name[128];
    char           detail[256];                  /* why it is not ready */
    uint64_t       ready;
} ctl_engine_t;


/* an answer: numbers by their tags, those that did not come are 0 */

typedef struct {
    unsigned       negress;
    ctl_egress_t   egress[SANDBOX_WIRE_MAX_POLICIES];
    unsigned       nengines;
    ctl_engine_t   engines[CTL_HOST_ENGINES];
    uint64_t       number[SANDBOX_TAG_FILE_NAME];
    char           runtime[64];
    char           version[64];
} ctl_host_t;


/*
 * One operation of the runner.  `state` is a directory of `make run`, or NULL;
 * `wait` are seconds of silence.  0, or -1 after a sentence, which `quiet`
 * leaves out where there is no runner or no right to ask it.
 */
int ctl_host_call(const ctl_host_options_t *options, const char *state,
    uint8_t operation, const sandbox_writer_t *head, unsigned wait,
    int quiet, ctl_host_t *host);

/* What PING told, a line a value. */
void ctl_host_print(const ctl_host_t *host);


#endif /* SANDBOX_CTL_HOST_H */
