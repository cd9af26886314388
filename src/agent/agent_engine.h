/*
 * The agent in a container of an engine: it has no runner, so what a runner
 * does for a sandbox it does itself, on three volumes.  What its files offer
 * one another; of the rest of the agent only agent_main.c needs to know it.
 */

#ifndef AGENT_ENGINE_H
#define AGENT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


#define AGENT_ENGINE_FENCED  3           /* exit: a newer epoch has it */
#define AGENT_ENGINE_BUSY    4           /* one that ends by itself has it */


/* on the volume, out of the user's reach; what a crash can't take back */

typedef enum {
    AGENT_ENGINE_NONE = 0,               /* no sandbox: the volume is new */
    AGENT_ENGINE_EMPTYING,               /* the one before goes, then ... */
    AGENT_ENGINE_SEEDING,                /* ... the home is filled */
    AGENT_ENGINE_READY,
    AGENT_ENGINE_DELETING,               /* all of it goes */
    AGENT_ENGINE_LAST
} agent_engine_phase_e;


/* which volume it is: its directory, and when that was made */

typedef struct {
    uint64_t    inode;
    uint64_t    born;                    /* ns; 0: not known */
} agent_engine_volume_t;


typedef enum {
    AGENT_ENGINE_SAME = 0,
    AGENT_ENGINE_NEW,                    /* nobody's, as far as it says */
    AGENT_ENGINE_OTHER                   /* another sandbox's */
} agent_engine_known_e;


typedef struct {
    agent_engine_phase_e   phase;
    uint64_t               told;         /* 0: CREATED is still to be told */
    uint64_t               instance;
    uint64_t               created_ms;   /* Unix time */
    uint64_t               used_ms;      /* Unix time */
    uint64_t               commands;     /* ended, of all agents */
    agent_engine_volume_t  home;
    agent_engine_volume_t  skills;
    char                   id[SANDBOX_WIRE_SANDBOX_ID_SIZE + 1];
} agent_engine_state_t;

extern agent_engine_state_t  agent_engine_state;


/* agent_engine.c: its start and its end */

/*
 * Reads what the engine was told for us, and takes it out of the environment
 * and out of what /proc shows of it.  -1: said why.
 */
int agent_engine_init(char **environment);

/* Volumes, owner, lock, what there is.  0, or a status to exit with. */
int agent_engine_start(void);

/* The volume is still ours; and it is looked at soon, from the event loop. */
int agent_engine_owned(void);
void agent_engine_look(void);

/*
 * Ends all, and then itself; what runs is lost.  Who comes is to ask the engine
 * once more.
 */
void agent_engine_stop(void);

/* Somebody uses the sandbox. */
void agent_engine_use(void);

/* From then on it may be idle for so many seconds, 0: 600. */
void agent_engine_may_idle(unsigned seconds);

/* Commands that have ended in the sandbox. */
uint64_t agent_engine_commands(void);

/* Directory of the volume. */
int agent_engine_meta(void);


/* agent_engine_owner.c: who has the volume */

/* 0; 1: a newer epoch has it; -1 and errno. */
int agent_engine_owner_take(int meta, uint64_t epoch);

/* 1: it is we. */
int agent_engine_owner_is(int meta);

/* 1: it is one that ends with its operation. */
int agent_engine_owner_once(int meta);


/* agent_engine_state.c */

/*
 * Nothing that is whole: AGENT_ENGINE_NONE.  -1 and errno: can't say; EXDEV:
 * it is another session's.
 */
int agent_engine_state_read(int meta);
int agent_engine_state_write(int meta);

/* Another sandbox from now on: its instance is higher, its id new. */
int agent_engine_state_next(void);

/* It is that of this sandbox from now on; and whether it is so. */
void agent_engine_volume_mark(const char *path, agent_engine_volume_t *volume);
agent_engine_known_e agent_engine_volume_known(const char *path,
    const agent_engine_volume_t *volume);

/* Bytes of a small file of the volume, by a rename.  -1 and errno. */
int agent_engine_file_write(int meta, const char *name, const uint8_t *p,
    size_t size);

/* Exactly so many bytes.  -1 and errno; ENODATA: it has not so many. */
int agent_engine_file_read(int meta, const char *name, uint8_t *p,
    size_t size);


/* agent_engine_fresh.c: from one sandbox to the next, step by step */

/* 0: it has begun.  -1 and errno: the volume does not take it. */
int agent_engine_fresh(agent_engine_phase_e phase);

/* Goes on where an agent before us has ended, or where it failed. */
void agent_engine_resume(void);

/* Of the table of hosts. */
void agent_engine_replace(void);

/* A deletion that an agent before us did not finish.  0, or an errno. */
int agent_engine_delete_all(void);


/* agent_engine_empty.c */

/*
 * Removes some of what the sandbox has written: of all places, or of those
 * that a fresh one has.  EAGAIN: there is more; 0; or an errno.
 */
int agent_engine_empty(int all);
void agent_engine_empty_end(void);


/* agent_engine_ipc.c */

/* What is of the user's beyond files and processes goes, too. */
void agent_engine_ipc(void);

/* 1: the container has a place of its own for that. */
int agent_engine_ipc_own(void);


/* agent_engine_seed.c */

/* Some of the base's home into the home.  EAGAIN: there is more; 0, errno. */
int agent_engine_seed(void);
void agent_engine_seed_end(void);


/* agent_engine_operation.c: what is asked of a runner elsewhere */

const char *agent_engine_admit(const sandbox_preamble_t *preamble,
    const char **detail);
struct agent_connection_s;
int agent_engine_park(struct agent_connection_s *c);
void agent_engine_enter(struct agent_connection_s *c);

/* The place is ready: who waited for it goes on. */
void agent_engine_ready(void);

/* It can't be: all who wait are told. */
void agent_engine_failed(const char *code);

/* 1: nothing but the operation that it was made for has come to it. */
int agent_engine_unused(void);

/* Nothing is left of the sandbox: those that asked for it hear of it. */
void agent_engine_deleted(void);

/* We end: who was let wait is to ask the engine. */
void agent_engine_refuse(void);


#endif /* AGENT_ENGINE_H */
