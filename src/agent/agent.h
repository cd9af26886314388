/*
 * sandbox-agent: the types its files share, and what each offers the others.
 * One thread, one event loop; nothing here may block.
 */

#ifndef AGENT_H
#define AGENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "agent_event.h"
#include "agent_events.h"
#include "agent_history.h"
#include "agent_output.h"
#include "agent_request.h"
#include "sandbox_wire.h"


#define AGENT_UID                 1000
#define AGENT_GID                 1000
#define AGENT_HOME                "/home/sandbox"
#define AGENT_ENVIRONMENT         "/usr/share/sandbox/env"

#define AGENT_MAX_CONNECTIONS     528    /* 500 streams, and others */
#define AGENT_MAX_BODY            SANDBOX_WIRE_MAX_BODY  /* of stdin */
#define AGENT_MIN_REQUESTS        (2 * 1024 * 1024)    /* bytes, in all */
#define AGENT_MAX_REQUESTS        (160 * 1024 * 1024)
#define AGENT_REQUESTS_SHARE      4      /* at most 1/4 of the memory */
#define AGENT_MAX_LEFT            64     /* commands with leftovers */
#define AGENT_MAX_BACKGROUND      16     /* background commands */
#define AGENT_MAX_INPUT           (64 * 1024)    /* of one STDIN, held */
#define AGENT_MAX_PATH            4096

/* milliseconds */

#define AGENT_PLACE_WAIT          1000   /* a slow request keeps its place */
#define AGENT_SEND_WAIT           300000 /* a client that reads nothing */
#define AGENT_STOP_WAIT           1000   /* for its commands; for answers */
#define AGENT_KILL_WAIT           1000   /* until a killed tree is gone */
#define AGENT_SPAWN_WAIT          1000   /* for a process, with retries */
#define AGENT_HELD_WAIT           500    /* half a character, for the rest */


typedef struct agent_connection_s  agent_connection_t;


/* all frames of one answer; shared by connections and the history */

struct agent_answer_s {
    unsigned               references;
    size_t                 head;         /* bytes of the HEAD frame */
    size_t                 size;
    uint8_t                data[];
};


/* the processes of one command: a cgroup2 directory, or else a keeper */

typedef struct {
    unsigned               number;       /* cN; 0: there is no directory */
    int                    directory;    /* for CLONE_INTO_CGROUP */
    int                    procs;
    int                    kill;
    int                    stat;
    pid_t                  keeper;       /* without a cgroup; 0: none */
    unsigned               killed:1;     /* not to be used again */
    unsigned               empty:1;      /* for good: its usage is final */
    uint64_t               cpu_base;     /* usage before this command */
    uint64_t               usage;        /* as last read */
} agent_tree_t;


/* what is run as the user; report and pid are of who was started */

typedef struct {
    const char            *path;
    char                 **argv;
    char                 **environment;
    int                    in;
    int                    out;
    int                    err;
    int                    directory;
    struct rlimit          cpu;          /* seconds */
    rlim_t                 open_files;
    rlim_t                 data;         /* bytes of its own, 0: no limit */
    rlim_t                 file;         /* bytes of each */
    rlim_t                 tasks;        /* of the user's, on this host */
    unsigned               network:1;    /* TCP: INET sockets */
    unsigned               report;       /* from 1; 0: none */
    pid_t                  pid;
} agent_program_t;


typedef enum {
    AGENT_CONNECTION_TAKE = 0,           /* TAKEN is not out yet */
    AGENT_CONNECTION_READ,
    AGENT_CONNECTION_WAIT,               /* for its command, or its events */
    AGENT_CONNECTION_INPUT,              /* STDIN, on its way to a command */
    AGENT_CONNECTION_FILE,               /* work with a file */
    AGENT_CONNECTION_ANSWER,             /* sends, then closes */
    AGENT_CONNECTION_LINGER              /* ERROR sent, reads input away */
} agent_connection_state_e;


struct agent_connection_s {
    agent_connection_t       *prev;      /* of all */
    agent_connection_t       *next;
    agent_connection_t       *peer;      /* next of the command's list */
    agent_command_t          *command;
    struct agent_file_s      *file;      /* NULL: it asked for none */
    struct agent_stage_s     *stage;     /* NULL: it brings no files */
    agent_watch_t             watch;
    agent_timer_t             timer;     /* progress, PING, or linger */
    agent_connection_state_e  state;
    uint32_t                  serial;    /* of CONN */
    uint64_t                  sequence;  /* order of acceptance */
    uint64_t                  accepted;  /* us */
    uint64_t                  stuck;     /* us; its client reads nothing */
    unsigned                  granted:1; /* came with a run slot */
    unsigned                  fresh:1;   /* this instance was made for it */
    unsigned                  returned:1;
    unsigned                  parsed:1;  /* the preamble is */
    unsigned                  judged:1;  /* the head is complete */
    unsigned                  head_sent:1;
    unsigned                  input_left:1;  /* the client may still send */
    unsigned                  stream:1;  /* the answer has events in it */
    unsigned                  silent:1;  /* no frame of the client any more */
    unsigned                  parked:1;  /* until its sandbox is ready */
    unsigned                  reading:1; /* waits for more of the body */
    unsigned                  eof:1;     /* STDIN: nothing after it */
    unsigned                  ticks;     /* STDIN: since anything came */
    unsigned                  was;       /* CANCEL: the command's state */
    agent_events_t           *events;    /* what it follows */
    agent_cursor_t            cursor;
    uint8_t                   frame[SANDBOX_WIRE_FRAME_SIZE];
    size_t                    frame_have;    /* after the request */

    sandbox_preamble_t        preamble;
    uint8_t                  *in;
    size_t                    in_size;   /* allocated */
    size_t                    in_have;
    size_t                    body;      /* decoded bytes of a chunked one */
    size_t                    in_at;     /* STDIN: what is passed on ends */
    uint64_t                  passed;    /* STDIN: bytes passed on */
    size_t                    chunk;     /* bytes left of the chunk */
    unsigned                  body_end:1;

    uint8_t                  *out;       /* small frames, not yet sent */
    size_t                    out_room;
    size_t                    out_size;
    size_t                    out_sent;
    agent_answer_t           *answer;    /* after them */
    size_t                    answer_sent;
    size_t                    lingered;
};


typedef enum {
    AGENT_COMMAND_QUEUED = 0,
    AGENT_COMMAND_STARTING,              /* HEAD is out, no process yet */
    AGENT_COMMAND_RUNNING,
    AGENT_COMMAND_ENDING,                /* shell gone, tree being killed */
    AGENT_COMMAND_LEFT                   /* answered; processes remain */
} agent_command_state_e;


struct agent_command_s {
    agent_command_t       *prev;         /* queue, background, or those left */
    agent_command_t       *next;
    agent_connection_t    *waiting;
    agent_connection_t    *writers;      /* STDIN, in order */
    agent_command_state_e  state;
    uint64_t               sequence;

    uint8_t               *raw;          /* preamble, head, body; owned */
    size_t                 raw_size;     /* allocated */
    size_t                 raw_have;
    agent_request_t        request;
    struct agent_stage_s  *stage;        /* NULL: it brings no files */
    const uint8_t         *input;        /* of stdin, within raw */
    size_t                 input_size;
    size_t                 input_sent;
    char                   id[SANDBOX_WIRE_MAX_COMMAND_ID + 1];
    uint64_t               ordinal;      /* in its session, from 1 */
    agent_history_t       *history;      /* once HEAD is out */
    agent_events_t        *events;

    unsigned               fresh:1;      /* wants a fresh sandbox */
    unsigned               created:1;    /* the sandbox was made for it */
    unsigned               killed:1;
    unsigned               signalled:1;  /* the shell died by a signal */
    unsigned               spawn_failed:1;
    unsigned               locked:1;     /* its cwd can't be entered */
    unsigned               input_open:1; /* STDIN may bring more */
    unsigned               disk_room:1;  /* there was some at its start */
    unsigned               crowded:1;    /* it had too many processes */
    int                    code;         /* exit status, or the signal */
    sandbox_outcome_e      outcome;      /* EXIT until known otherwise */

    pid_t                  pid;          /* 0: none, or reaped */
    unsigned               report;       /* of its child, from 1; 0: none */
    agent_tree_t           tree;
    unsigned               processes;    /* left, as last counted */
    int                    directory;    /* descriptor of cwd */
    char                   cwd[AGENT_MAX_PATH];
    agent_watch_t          in;
    agent_watch_t          out[2];
    agent_watch_t          emptied;      /* the tree, once it is left */
    int                    child_fd[3];
    agent_output_t         output[2];
    agent_timer_t          wall;
    agent_timer_t          cpu;
    agent_timer_t          wait;         /* spawn retry, death of the tree */
    agent_timer_t          held;         /* half a character of output */
    unsigned               attempts;
    uint64_t               accepted;     /* us */
    uint64_t               started;
    uint64_t               ended;
    uint64_t               cpu_used;     /* us */
    uint64_t               oom_kills;
    uint64_t               memory_peak;  /* bytes */
    uint64_t               written;      /* bytes, as its keeper knows */
};


/* what a sandbox may have, or has; 0: no bound, or not known */

typedef struct {
    uint64_t               memory;       /* bytes */
    uint64_t               disk;         /* bytes */
    uint64_t               processes;
} agent_caps_t;


/* what an engine's agent does itself where others have a runner for it */

typedef struct {
    /* NULL, or the code of the ERROR and a sentence */
    const char          *(*admit)(const sandbox_preamble_t *preamble,
                                  const char **detail);

    /* 1: it is parked, nothing of its head is read */
    int                  (*park)(agent_connection_t *c);

    /* an operation of those that a runner has elsewhere; consumes c */
    void                 (*enter)(agent_connection_t *c);

    /* the front of the queue wants a fresh sandbox */
    void                 (*replace)(void);

    /* RUNNING, QUEUED, BACKGROUND or COMMANDS may have changed */
    void                 (*state)(void);

    /* a signal says so */
    void                 (*stop)(void);

    const char            *stopping;     /* code for who comes meanwhile */
} agent_host_t;


/* what this process is, and what it holds */

typedef struct {
    unsigned               claimed:1;
    unsigned               created:1;    /* not yet told in a result */
    unsigned               tcp:1;        /* no runner: all is granted */
    unsigned               stopping:1;
    unsigned               replacing:1;  /* waits to hand all back */
    unsigned               replaced:1;
    unsigned               mapped:1;     /* kill(-1) may be used */
    unsigned               preparing:1;  /* the place is not ready: wait */
    unsigned               network:1;    /* engine: INET is allowed */
    unsigned               measured:1;   /* used.disk is known */
    unsigned               once:1;       /* ends with one operation */
    const agent_host_t    *host;         /* NULL: a runner, or tests */
    uint8_t                session[SANDBOX_WIRE_SESSION_SIZE];
    uint8_t                secret[SANDBOX_WIRE_KEY_SIZE];    /* TCP */
    uint64_t               instance;
    char                   sandbox_id[SANDBOX_WIRE_SANDBOX_ID_SIZE + 1];

    unsigned               slots;        /* run slots held */
    unsigned               wanted;       /* 1: a WANT is open */
    unsigned               connections;
    unsigned               queued;
    unsigned               background;   /* commands */
    unsigned               left;
    uint64_t               commands;     /* ended so far */
    size_t                 request_bytes;
    size_t                 request_limit;    /* of these */
    uint64_t               memory;       /* bytes, the cap; 0: not known */

    /* of an engine: from the preamble; and as last counted, by who looks */

    agent_caps_t           caps;
    agent_caps_t           used;
    uint64_t               cpu_us;

    agent_command_t       *running;
} agent_t;

extern agent_t  agent;


/* agent_open.c */

/* Clients that are served for longer than a moment, as it was told. */
unsigned agent_open(void);

/* After a connection was counted, and after it no longer is. */
void agent_open_begin(void);
void agent_open_end(void);


/* agent_sandbox.c */

/*
 * 0, or -1: claimed by another session, or an id that can't be.  memory:
 * bytes of the sandbox, which the agent's own are part of; 0: not known.
 */
int agent_sandbox_claim(const uint8_t *session, uint64_t instance,
    const uint8_t *id, size_t id_size, int created, uint64_t memory);

/* Another sandbox in the place of the one before, of the same session. */
void agent_sandbox_renew(uint64_t instance, const char *id, uint64_t memory);

/* Bytes of it, which the agent's own are part of; 0: not known. */
void agent_sandbox_memory(uint64_t memory);

/* A random id, and a NUL.  -1: no random numbers. */
int agent_sandbox_id(char *id);

/* NULL, or the code of the ERROR and a sentence (a constant). */
const char *agent_sandbox_admit(const sandbox_preamble_t *preamble,
    int returned, const char **detail);

/* agent_log.c */

/* One line on standard error; never blocks, at most 50 lines a second. */
__attribute__((format(printf, 1, 2)))
void agent_log(const char *format, ...);

/* agent_guard.c */

/* 1: no id of this user namespace is the host's root; text of uid_map. */
int agent_guard_map(const char *text);

/* Fills agent.mapped.  -1: must not run here; says why on standard error. */
int agent_guard_check(int tcp);

/* Kills all but itself in this pid namespace; -1 where that is not safe. */
int agent_guard_sweep(void);

/* agent_control.c */

int agent_control_init(int fd);

/* Each sends its message, or queues it; all do nothing without a runner. */
void agent_control_want(void);
void agent_control_done(unsigned slots);
int agent_control_connected(void);

/* fd and memfd are closed when they are sent, or on error.  -1: not sent. */
int agent_control_return(uint32_t serial, int fd, int memfd);
int agent_control_replace(void);

/* RUNNING, QUEUED, BACKGROUND or COMMANDS may have changed. */
void agent_control_state(void);

/* agent_tcp.c */

/* Listens on ADDR:PORT, reads the secret.  -1: said why. */
int agent_tcp_init(const char *address, const char *secret_file);
int agent_tcp_listen(const char *address);

/* Exactly so many bytes as hex digits.  -1: it is something else. */
int agent_tcp_hex(const char *text, uint8_t *p, size_t size);

/* Nobody is heard any more. */
void agent_tcp_close(void);

/* agent_connection.c */

/*
 * Takes over fd.  With memfd (else -1) the request is read from there and
 * memfd is closed.  NULL: no room or memory, both stay the caller's.
 */
agent_connection_t *agent_connection_new(int fd, int memfd, uint32_t serial,
    unsigned flags);

/* No room to keep it: says so if the socket takes it at once. */
void agent_connection_refuse(int fd);

/* Begins to read; TAKEN has been sent.  May free the connection. */
void agent_connection_begin(agent_connection_t *c);

/* ERROR, then linger if the client may still send; frees it in the end. */
void agent_connection_error(agent_connection_t *c, const char *code,
    const char *detail, unsigned retry_after);

/*
 * Frames of at most 40 KiB, one of the longer ones only when what went before
 * is out.  -1: the connection is lost.
 */
int agent_connection_send(agent_connection_t *c, const uint8_t *data,
    size_t size);

/* A PING before the answer; a connection that is lost is seen later. */
void agent_connection_ping(agent_connection_t *c);

/* Sends the answer (what is left of it after HEAD), then closes. */
void agent_connection_answer(agent_connection_t *c, agent_answer_t *answer);

/* Sends what waits.  1: all is out; 0: it says when; -1: it is lost. */
int agent_connection_out(agent_connection_t *c);

/* The last frame of an answer, then closes. */
void agent_connection_finish(agent_connection_t *c, const uint8_t *data,
    size_t size);

/* Now waits for its command: hang-up, PING and CANCEL are looked after. */
void agent_connection_wait(agent_connection_t *c);

/*
 * Follows the events after that number; the answer will be these and RESULT.
 * -1: no such number yet.
 */
int agent_connection_follow(agent_connection_t *c, agent_events_t *events,
    uint64_t after);

/* Events have come, if it follows any.  May close it. */
void agent_connection_push(agent_connection_t *c);

/*
 * Waits for room to send if `out`, and for what the client may say in the
 * state it is in.  -1: can't.
 */
int agent_connection_look(agent_connection_t *c, int out);

/* Its request is of no use any more. */
void agent_connection_forget(agent_connection_t *c);

/* What it asks for is done later: it is let wait, and released for that. */
void agent_connection_park(agent_connection_t *c);
void agent_connection_release(agent_connection_t *c);

void agent_connection_close(agent_connection_t *c);

/* Takes the descriptor away from it and frees the rest. */
int agent_connection_detach(agent_connection_t *c);

agent_connection_t *agent_connection_first(void);
agent_connection_t *agent_connection_by_serial(uint32_t serial);

/* Connections whose request is not complete. */
unsigned agent_connection_reading(void);

/* Closes the one that has not moved for longest; 0 if there is none. */
int agent_connection_make_room(void);

/* agent_receive.c */

/* Reads on; frees or passes on c when the request is complete, or bad. */
void agent_receive(agent_connection_t *c);

/* Its time is over; or there is work for it that was put off. */
void agent_receive_timeout(agent_connection_t *c);

/* Takes the bytes of a request that another agent had read; closes memfd. */
int agent_receive_load(agent_connection_t *c, int memfd);

/* Room for so many bytes, within the maximum of all requests. */
int agent_receive_resize(agent_connection_t *c, size_t size);

/* agent_operation.c */

/* The request of c is complete, of STDIN its head.  Consumes or frees c. */
void agent_operation_enter(agent_connection_t *c);

/* It becomes one of those that wait for the command's end. */
void agent_operation_attach(agent_connection_t *c, agent_command_t *command,
    const agent_request_t *request);

/* A command that has ended: its answer, its events, or only its receipt. */
void agent_operation_known(agent_connection_t *c, agent_history_t *h,
    const agent_request_t *request);

/* Ends it, wherever it is; its result goes to all who wait. */
void agent_operation_cancel(agent_command_t *command);

/* The answer of a CANCEL. */
void agent_operation_cancelled(agent_connection_t *c,
    const agent_answer_t *answer);

/* agent_queue.c */

void agent_queue_enter(agent_connection_t *c, agent_request_t *request);

/* Of those that wait, run, or run in the background. */
agent_command_t *agent_queue_find(const uint8_t *id, size_t length);

/* The newest of those with that label; NULL: there is none. */
agent_command_t *agent_queue_labelled(const uint8_t *label, size_t length);

/* Starts what may start, asks for slots or gives them back. */
void agent_queue_process(void);

void agent_queue_lost(agent_connection_t *c);

/*
 * The running command ends, or goes on in the background;
 * agent_queue_process() once it is answered.
 */
void agent_queue_ended(void);

void agent_queue_stop(unsigned outcome);

/* All that wait, run, or are left running end with that outcome, soon. */
void agent_queue_end(unsigned outcome);

/* The same of those beside the queue. */
void agent_queue_leave(unsigned outcome);

/* All that wait are refused. */
void agent_queue_refuse(const char *code, const char *detail);
agent_command_t *agent_queue_first(void);
void agent_queue_remove(agent_command_t *command);

/* agent_replace.c */

/* The front of the queue wants a fresh sandbox: hand all of it back. */
void agent_replace(void);

/* agent_command.c */

/* What commands need to know of the host. */
void agent_command_init(void);

agent_command_t *agent_command_new(agent_connection_t *c,
    const agent_request_t *request);

/* ERROR to all that wait and free, or HEAD and start. */
void agent_command_start(agent_command_t *command);

/* Ends the whole tree; the answer has that outcome. */
void agent_command_kill(agent_command_t *command, sandbox_outcome_e outcome);

/* Reads what is in a pipe, `reads` times at most. */
void agent_command_drain(agent_command_t *command, unsigned stream,
    unsigned reads);

/* More was written than it may write: it ends. */
void agent_command_total(agent_command_t *command);

/* New events go to those who follow. */
void agent_command_push(agent_command_t *command);

/* Why a shell could not be started, as output of the command. */
void agent_command_not_started(agent_command_t *command, int error,
    int directory);

void agent_command_free(agent_command_t *command);

/* agent_end.c */

/* A child ended; 0 if it is no command's shell. */
int agent_end_reaped(pid_t pid, int status, uint64_t cpu);

/* Answers all who wait; frees it, unless it leaves processes running. */
void agent_end(agent_command_t *command);

/* Answers a command that never started, and frees it. */
void agent_end_cancel(agent_command_t *command, sandbox_outcome_e outcome);

/* agent_stdin.c */

/* The pipe is there: the body of the request goes into it. */
void agent_stdin_start(agent_command_t *command);
void agent_stdin_event(agent_watch_t *watch, uint32_t events);

/* The head of a STDIN is complete.  Consumes or frees c. */
void agent_stdin_enter(agent_connection_t *c, const agent_request_t *request);

/* More of its body is there, or the time for it is over. */
void agent_stdin_read(agent_connection_t *c);
void agent_stdin_tick(agent_connection_t *c);

/* c is closed. */
void agent_stdin_lost(agent_connection_t *c);

/* The command reads no more: all writers are answered. */
void agent_stdin_end(agent_command_t *command, const char *code);

/* agent_background.c */

/* A background command runs from now on, and no longer does. */
void agent_background_add(agent_command_t *command);
void agent_background_remove(agent_command_t *command);

agent_command_t *agent_background_first(void);
void agent_background_kill(sandbox_outcome_e outcome);

/* Processes of all, and of one command beside the queue: at least 1. */
unsigned agent_background_processes(void);
unsigned agent_background_count(agent_command_t *command);

/* agent_left.c */

/* A command whose tree is not empty; it is freed when it is. */
void agent_left_add(agent_command_t *command);

/* Frees it if its processes are gone, else looks again later. */
void agent_left_check(agent_command_t *command);
agent_command_t *agent_left_first(void);
agent_command_t *agent_left_find(const uint8_t *id, size_t length);

/* Those whose processes are gone are freed, now. */
void agent_left_look(void);
void agent_left_kill(void);
unsigned agent_left_processes(void);

/* agent_answer.c */

/* HEAD fields as one frame; its bytes, 0 if it can't be.  id NULL: none. */
size_t agent_answer_head(uint8_t *p, size_t size, const char *id);
agent_answer_t *agent_answer_build(agent_command_t *command);

/* The answer of one that has not ended yet. */
agent_answer_t *agent_answer_state(agent_command_t *command);

/* The receipt alone, of a command that was in that state before. */
agent_answer_t *agent_answer_receipt(const agent_answer_t *answer,
    const char *id, unsigned state);

/* All of an answer, the output too, with the state it was found in. */
agent_answer_t *agent_answer_found(const agent_answer_t *answer,
    unsigned state);

/* BYTES, of a STDIN. */
agent_answer_t *agent_answer_taken(const char *id, uint64_t bytes);

/* Where RESULT begins, and the number it has as an event. */
size_t agent_answer_result(const agent_answer_t *answer, uint64_t *seq);
void agent_answer_release(agent_answer_t *answer);

/* agent_environment.c */

/* Reads the base's file, then adds what `inherited` has beside it. */
int agent_environment_init(const char *path, char **inherited);

/*
 * What commands are told of the way out, from now on.  index "": none; ca
 * NULL: the base's certificates.
 */
void agent_environment_network(int on, const char *index, const char *ca);

/*
 * The environment of a request: one block to free(), ended by NULL.  Strings
 * of the base are shared.  NULL: no memory.
 */
char **agent_environment_build(const agent_request_t *request);

/* agent_egress.c */

/* No network until the runner says otherwise. */
void agent_egress_init(void);

/*
 * On an engine each command has its own way out, or none.  1: it has one, and
 * request->ca_file is there if it needs one.
 */
int agent_egress_command(agent_request_t *request);

/*
 * EGRESS of the runner: a policy (0: none), up to SANDBOX_WIRE_MAX_INDEX bytes
 * of an index, and a file of certificates or -1, which stays the caller's.
 */
void agent_egress_set(uint32_t policy, const uint8_t *index, size_t size,
    int fd);

/* agent_directory.c */

int agent_directory_init(void);

/*
 * Opens a working directory with the command's own rights.  A descriptor (the
 * caller closes it by agent_directory_close) and its resolved name, or -1 and
 * the code of the ERROR.
 */
int agent_directory_open(const uint8_t *path, size_t length, char *resolved,
    size_t size, const char **code);
void agent_directory_close(int fd);

/* 1: the file system of the home has no room, or can't say. */
int agent_directory_full(void);

/* File work in the name of the command's user: 1 on, 0 off. */
void agent_directory_user(int on);

/* agent_tree.c */

/* fd of the delegated cgroup2 directory, -1: none. */
void agent_tree_init(int fd);

/* An empty tree for a command. -1: could not be made. */
int agent_tree_take(agent_tree_t *tree);

/* Gives back a tree; 0 if processes are still in it. */
int agent_tree_release(agent_tree_t *tree);

/* The directory is removed at a later time, when it is empty. */
void agent_tree_abandon(agent_tree_t *tree);

unsigned agent_tree_count(agent_tree_t *tree);

/* The same after the shell's end, when only what is in it can add to it. */
unsigned agent_tree_left(agent_tree_t *tree);

/* A descriptor with EPOLLPRI when it becomes empty; -1: there is none. */
int agent_tree_events(agent_tree_t *tree);

void agent_tree_kill(agent_tree_t *tree);

/* CPU time since agent_tree_take in us, of all processes ever in it. */
uint64_t agent_tree_cpu(agent_tree_t *tree);

/* agent_memory.c */

void agent_memory_init(int oom, int peak);
void agent_memory_start(agent_command_t *command);

/* The peak of a command that goes on, before it is set back for another. */
void agent_memory_look(agent_command_t *command);

/* 1: the kernel ended a process for lack of memory since the start. */
int agent_memory_end(agent_command_t *command);

/* agent_reap.c */

int agent_reap_init(void);

/* The one place where children are waited for. */
void agent_reap(void);

/* Whose end it is hears of it; cpu in us. */
void agent_reap_ended(pid_t pid, int status, uint64_t cpu);

/* agent_spawn.c */

int agent_spawn_init(void);

/* 0 and command->pid, or an errno. */
int agent_spawn(agent_command_t *command);

/* The same of any program: 0, or an errno. */
int agent_spawn_program(agent_program_t *program, agent_tree_t *tree);

/*
 * The errno for which a child that has ended came to no exec; 0: it did.
 * *directory: 1 if it could not enter its working directory.  Once for each
 * report, which is 0 afterwards.
 */
int agent_spawn_error(unsigned *report, int *directory);

/* In a keeper: there is no child that could say it. */
void agent_spawn_failed(const agent_program_t *program, int error);


/* agent_search_program.c */

struct agent_file_request_s;

/*
 * Starts ripgrep in the directory fd, or, if `single`, for the file fd.  An
 * errno, or 0 and in *started: pid, report, and our ends of out and err.
 */
int agent_search_program(agent_program_t *started, agent_tree_t *tree,
    const struct agent_file_request_s *request, int fd, int single);


#endif /* AGENT_H */
