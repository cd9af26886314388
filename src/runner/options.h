/*
 * The command line, read and checked once at start.
 */

#ifndef RUNNER_OPTIONS_H
#define RUNNER_OPTIONS_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"
#include "sandbox_wire.h"


#define RUNNER_VERSION        "0.1.0"
#define RUNNER_MAX_PEERS      16
#define RUNNER_EGRESS_MAX_ALLOW  64              /* --egress-allow-address */
#define RUNNER_EGRESS_MAX_PORTS  15              /* --egress-allow-port */
#define RUNNER_MAX_BASES      16
#define DAGGER_MAX_ENGINES    16
#define RUNNER_DAGGER_SOCKET    "/run/sandbox/dagger.sock"
#define RUNNER_DAGGER_KEY       "/etc/nginx/sandbox-runner.key"
#define RUNNER_DAGGER_VARIABLE  "ARCHESTRA_CODE_RUNTIME_DAGGER_RUNNER_HOST"
#define DAGGER_MAX_GATES      DAGGER_MAX_ENGINES /* --egress-listen */
#define RUNNER_MAX_SANDBOXES  4000               /* there are 4096 id ranges */


typedef struct {
    char         name[SANDBOX_WIRE_MAX_COMMAND_ID + 1];
    const char  *dir;
} runner_option_base_t;


typedef struct {
    const char  *socket;                 /* path, NULL with --listen-fd */
    const char  *key_file;
    const char  *state;
    const char  *agent;
    const char  *runtime;                /* NULL: crun, then runc */
    char         runtime_dir[PATH_MAX];  /* "" until the state is known */

    int          listen_fd;              /* -1: none was passed */
    int          ephemeral;
    int          probe;

    unsigned     pool;                   /* sandboxes kept ready */
    unsigned     running;                /* commands at once */
    unsigned     queue;                  /* commands that wait */
    unsigned     sandboxes;              /* containers at once */
    unsigned     per_tenant;             /* of them of one tenant */
    unsigned     idle;                   /* seconds until it stops */
    unsigned     expire;                 /* seconds; 0: never */
    unsigned     run_grace;              /* seconds, see bound.c */

    uint32_t     memory;                 /* MiB of a sandbox */
    uint32_t     disk;                   /* MiB */
    uint32_t     processes;
    uint32_t     reserve;                /* MiB free before one is made */
    unsigned     cpus;                   /* of a sandbox, at once */

    uid_t        peers[RUNNER_MAX_PEERS];
    unsigned     npeers;
    runner_option_base_t  bases[RUNNER_MAX_BASES];
    unsigned     nbases;
    gid_t        group;                  /* of the socket, -1: root's */

    char         egress[PATH_MAX];       /* the proxy */
    const char  *egress_user;            /* NULL: its default */
    const char  *egress_resolver;        /* NULL: the system's */
    const char  *egress_allow[RUNNER_EGRESS_MAX_ALLOW];
    unsigned     negress_allow;
    const char  *egress_ports[RUNNER_EGRESS_MAX_PORTS];
    unsigned     negress_ports;
    const char  *egress_listen[DAGGER_MAX_GATES];
    unsigned     negress_listen;

    int          owner;                  /* of sessions: --dagger */
    int          variable;               /* its engine is the environment's */
    const char  *dagger[DAGGER_MAX_ENGINES];
    unsigned     ndagger;

    uint8_t      key[SANDBOX_WIRE_KEY_SIZE];
} runner_options_t;


/*
 * Reads argv and the environment of socket activation.  0, or -1 with a text
 * that names the option; 1 after --help and --version, which print.
 */
int runner_options_read(runner_options_t *options, int argc, char **argv,
    runner_error_t *err);

/* One of the options --egress...; as above. */
int runner_option_egress(runner_options_t *options, const char *name,
    const char *value, runner_error_t *err);


#endif /* RUNNER_OPTIONS_H */
