/*
 * The sandbox wire protocol: preamble, frames, fields, limits, codes.
 * Shared by module, runner, agent and tests; knows no sockets, no nginx,
 * allocates nothing.  docs/wire.md is the prose beside these numbers.
 */

#ifndef SANDBOX_WIRE_H
#define SANDBOX_WIRE_H

#include <stddef.h>
#include <stdint.h>


#define SANDBOX_WIRE_MAGIC           "SBXWIRE"   /* 7 bytes, for ever */
#define SANDBOX_WIRE_MAGIC_SIZE      7
#define SANDBOX_WIRE_VERSION         1
#define SANDBOX_WIRE_VERSION_MIN     1           /* N-1 once there is one */

#define SANDBOX_WIRE_PREAMBLE_SIZE   128
#define SANDBOX_WIRE_KEY_SIZE        32
#define SANDBOX_WIRE_SESSION_SIZE    32
#define SANDBOX_WIRE_TENANT_SIZE     16
#define SANDBOX_WIRE_DIGEST_SIZE     32
#define SANDBOX_WIRE_FRAME_SIZE      5           /* u32 length, u8 type */
#define SANDBOX_WIRE_FIELD_SIZE      6           /* u16 tag, u32 length */
#define SANDBOX_WIRE_CHUNK_SIZE      4           /* u32 length */

/* bytes */

#define SANDBOX_WIRE_MAX_HEAD        (768 * 1024)
#define SANDBOX_WIRE_MAX_BODY        ((uint64_t) 64 * 1024 * 1024) /* stdin */
#define SANDBOX_WIRE_MAX_FILE        ((uint64_t) 4 << 30) /* never in memory */
#define SANDBOX_WIRE_MAX_CHUNK       (256 * 1024)
#define SANDBOX_WIRE_MAX_FIELDS      1024        /* in one head or payload */
#define SANDBOX_WIRE_MAX_OUTPUT      (64 * 1024) /* bytes of one STDOUT */
#define SANDBOX_WIRE_MAX_RESULT      (16 * 1024)
#define SANDBOX_WIRE_MAX_ERROR       4096
#define SANDBOX_WIRE_MAX_COMMAND     (512 * 1024)
#define SANDBOX_WIRE_MAX_CWD         4096        /* with a NUL */
#define SANDBOX_WIRE_MAX_ENV         (128 * 1024) /* NAME=VALUE, with a NUL */
#define SANDBOX_WIRE_MAX_COMMAND_ID  64
#define SANDBOX_WIRE_MAX_HISTORY     1000        /* receipts in one answer */
#define SANDBOX_WIRE_MAX_EXCERPT     256         /* COMMAND in a receipt */
#define SANDBOX_WIRE_MAX_PATH        4096        /* of a file */
#define SANDBOX_WIRE_MAX_NAME        255
#define SANDBOX_WIRE_MAX_LISTING     1000        /* names in one answer */
#define SANDBOX_WIRE_MAX_ETAG        64
#define SANDBOX_WIRE_MAX_ETAGS       16          /* of one condition */
#define SANDBOX_WIRE_MAX_STAGED      256         /* in one command's head */
#define SANDBOX_WIRE_MAX_BROUGHT     (SANDBOX_WIRE_MAX_BODY                  \
                                      + SANDBOX_WIRE_MAX_STAGED              \
                                        * SANDBOX_WIRE_MAX_FILE)
#define SANDBOX_WIRE_MAX_LABEL       64
#define SANDBOX_WIRE_MAX_PATTERN     4096
#define SANDBOX_WIRE_MAX_GLOB        1024
#define SANDBOX_WIRE_MAX_GLOBS       16
#define SANDBOX_WIRE_MAX_TEXT        512         /* of a line that matches */
#define SANDBOX_WIRE_MAX_POLICIES    64          /* of egress, in one table */
#define SANDBOX_WIRE_MAX_HOSTS       256         /* names in one policy */
#define SANDBOX_WIRE_MAX_POLICY_NAME 64
#define SANDBOX_WIRE_MAX_HOST        255         /* with "*." */
#define SANDBOX_WIRE_MAX_INDEX       1024        /* URL of a package index */
#define SANDBOX_WIRE_MAX_CA          (512 * 1024) /* PEM of one policy */
#define SANDBOX_WIRE_MAX_TABLE       (4 * 1024 * 1024) /* of all policies */
#define SANDBOX_WIRE_MAX_PROXY       64          /* its address, as text */
#define SANDBOX_WIRE_MAX_COMMAND_CA  (64 * 1024) /* PEM in a command's head */
#define SANDBOX_WIRE_SANDBOX_ID_SIZE 24          /* "sbx_" and 20 hex digits */

/* what may be asked for: configuration, runner and agent agree on these */

#define SANDBOX_WIRE_MIN_MEMORY      32          /* MiB */
#define SANDBOX_WIRE_MAX_MEMORY      (1024 * 1024)
#define SANDBOX_WIRE_MIN_DISK        32          /* MiB */
#define SANDBOX_WIRE_MAX_DISK        (1024 * 1024)
#define SANDBOX_WIRE_MIN_PROCESSES   8
#define SANDBOX_WIRE_MAX_PROCESSES   65536
#define SANDBOX_WIRE_MIN_OPEN_FILES  16
#define SANDBOX_WIRE_MAX_OPEN_FILES  (1024 * 1024)
#define SANDBOX_WIRE_MAX_PENDING     1000        /* commands that wait */
#define SANDBOX_WIRE_MIN_CAPTURE     1024        /* bytes of one stream */
#define SANDBOX_WIRE_MAX_CAPTURE     (4 * 1024 * 1024)
#define SANDBOX_WIRE_MAX_WRITTEN     ((uint64_t) 1 << 40) /* bytes, of both */
#define SANDBOX_WIRE_MAX_TIME        (24 * 3600 * 1000)   /* ms, wall or CPU */

/* milliseconds */

#define SANDBOX_WIRE_PING_INTERVAL   5000
#define SANDBOX_WIRE_READ_TIMEOUT    15000
#define SANDBOX_WIRE_PREAMBLE_WAIT   1000
#define SANDBOX_WIRE_REQUEST_WAIT    10000       /* no progress in head, body */
#define SANDBOX_WIRE_LINGER_WAIT     2000
#define SANDBOX_WIRE_LINGER_BYTES    (1024 * 1024)

#define SANDBOX_WIRE_BODY_CHUNKED    UINT64_MAX  /* length is not known */


/* 1..15 end at the runner, 16 and above at the agent of the session */

enum {
    SANDBOX_OPERATION_PING = 1,
    SANDBOX_OPERATION_STATUS,
    SANDBOX_OPERATION_DELETE,
    SANDBOX_OPERATION_RESET,
    SANDBOX_OPERATION_SESSIONS,                  /* STATUS of many */
    SANDBOX_OPERATION_DRAIN,                     /* of root: stop all */
    SANDBOX_OPERATION_EGRESS,                    /* the table of policies */

    SANDBOX_OPERATION_COMMAND = 16,
    SANDBOX_OPERATION_ATTACH,                    /* to a command, or its end */
    SANDBOX_OPERATION_CANCEL,
    SANDBOX_OPERATION_STDIN,
    SANDBOX_OPERATION_HISTORY,
    SANDBOX_OPERATION_FILE_READ,                 /* a file, or a listing */
    SANDBOX_OPERATION_FILE_WRITE,
    SANDBOX_OPERATION_FILE_REMOVE,
    SANDBOX_OPERATION_FILE_SEARCH
};


/* of the preamble */

#define SANDBOX_FLAG_FRESH           0x01        /* replace the sandbox first */
#define SANDBOX_FLAG_NO_CREATE       0x02        /* no sandbox: no_sandbox */


typedef enum {
    SANDBOX_FRAME_HEAD = 1,
    SANDBOX_FRAME_STDOUT,
    SANDBOX_FRAME_STDERR,
    SANDBOX_FRAME_GAP,
    SANDBOX_FRAME_DATA,
    SANDBOX_FRAME_PING,
    SANDBOX_FRAME_RESULT,
    SANDBOX_FRAME_ERROR,
    SANDBOX_FRAME_STARTED,
    SANDBOX_FRAME_CANCEL                         /* from the client */
} sandbox_frame_type_e;


/*
 * Tags of heads, results, errors and control messages.  A number is always
 * 8 bytes; the rest are bytes.  Unknown tags are skipped.
 */

enum {
    /* request of a command */
    SANDBOX_TAG_COMMAND = 1,             /* bytes: text for bash */
    SANDBOX_TAG_CWD,                     /* bytes: absolute path */
    SANDBOX_TAG_ENV,                     /* bytes: NAME=VALUE, repeated */
    SANDBOX_TAG_COMMAND_ID,              /* bytes: 1-64 of [A-Za-z0-9._-] */
    SANDBOX_TAG_WALL_MS,
    SANDBOX_TAG_CPU_MS,
    SANDBOX_TAG_OUTPUT,                  /* captured bytes of a stream */
    SANDBOX_TAG_OUTPUT_TOTAL,            /* written bytes of both, then end */
    SANDBOX_TAG_OPEN_FILES,
    SANDBOX_TAG_PENDING,                 /* commands that may wait */
    SANDBOX_TAG_DIGEST,                  /* 32 bytes: of the whole request */
    SANDBOX_TAG_STREAM,                  /* 0, 1: output as it comes */
    SANDBOX_TAG_DETACH,                  /* 0, 1: a background command */
    SANDBOX_TAG_STDIN_OPEN,              /* 0, 1: STDIN will bring more */

    /* requests about commands */
    SANDBOX_TAG_AFTER,                   /* seq: only what came later */
    SANDBOX_TAG_STDIN_EOF,               /* 0, 1: nothing after this */
    SANDBOX_TAG_LIMIT,                   /* receipts in one answer */
    SANDBOX_TAG_BEFORE,                  /* ordinal; 0: from the newest */

    /* requests about files */
    SANDBOX_TAG_PATH,                    /* bytes: relative, no NUL */
    SANDBOX_TAG_ROOT,                    /* sandbox_root_e */
    SANDBOX_TAG_NO_BODY,                 /* 0, 1: HEAD only */
    SANDBOX_TAG_LIST,                    /* 0, 1: it must be a directory */
    SANDBOX_TAG_CURSOR,                  /* bytes: last name of the page */
    SANDBOX_TAG_RANGE_FIRST,             /* bytes from the start */
    SANDBOX_TAG_RANGE_LAST,              /* inclusive; not there: the end */
    SANDBOX_TAG_RANGE_SUFFIX,            /* bytes from the end */
    SANDBOX_TAG_IF_RANGE,                /* bytes: an etag */
    SANDBOX_TAG_IF_MATCH,                /* bytes: an etag or "*", repeated */
    SANDBOX_TAG_IF_NONE_MATCH,           /* the same */
    SANDBOX_TAG_RECURSIVE,               /* 0, 1: with what is in it */

    /* staging, in the head of a command */
    SANDBOX_TAG_STAGE,                   /* bytes, repeated; docs/wire.md */
    SANDBOX_TAG_STAGE_BODY,              /* index in the body, repeated */
    SANDBOX_TAG_STDIN_BYTES,             /* of the body, before staged files */

    /* of COMMAND and CANCEL */
    SANDBOX_TAG_LABEL,                   /* bytes, 1-64: the caller's own */

    /* FILE_SEARCH, with PATH, ROOT, LIMIT */
    SANDBOX_TAG_PATTERN,                 /* bytes: a regular expression */
    SANDBOX_TAG_GLOB,                    /* bytes: of the names to look in */
    SANDBOX_TAG_LITERAL,                 /* 0, 1: PATTERN is plain text */
    SANDBOX_TAG_IGNORE_CASE,             /* 0, 1 */

    /* result of a command */
    SANDBOX_TAG_SANDBOX_ID = 64,         /* bytes */
    SANDBOX_TAG_INSTANCE,
    SANDBOX_TAG_EXIT_CODE,
    SANDBOX_TAG_SIGNAL,                  /* bytes: "SIGSEGV", absent if none */
    SANDBOX_TAG_OUTCOME,                 /* sandbox_outcome_e */
    SANDBOX_TAG_STDOUT_BYTES,            /* written by the command */
    SANDBOX_TAG_STDERR_BYTES,
    SANDBOX_TAG_TRUNCATED,               /* 0, 1 */
    SANDBOX_TAG_DURATION_US,
    SANDBOX_TAG_QUEUED_US,
    SANDBOX_TAG_CPU_US,
    SANDBOX_TAG_MEMORY_PEAK,             /* bytes */
    SANDBOX_TAG_BACKGROUND,              /* processes left running */
    SANDBOX_TAG_CREATED,                 /* 0, 1: the sandbox, for this */
    SANDBOX_TAG_SEQ,                     /* of the result, as an event */
    SANDBOX_TAG_COMMAND_STATE,           /* sandbox_command_state_e */
    SANDBOX_TAG_OUTPUT_EXPIRED,          /* 0, 1: only the receipt is left */
    SANDBOX_TAG_BYTES,                   /* taken by STDIN */
    SANDBOX_TAG_ORDINAL,                 /* of a command in its session */
    SANDBOX_TAG_NEXT,                    /* BEFORE of the next page, 0: none */
    SANDBOX_TAG_ACCEPTED_MS,             /* Unix time */
    SANDBOX_TAG_STARTED_MS,              /* Unix time */
    SANDBOX_TAG_ENDED_MS,                /* Unix time */
    SANDBOX_TAG_DETACHED,                /* 0, 1: it is a background command */

    /* HEAD and ERROR */
    SANDBOX_TAG_STATUS = 96,             /* HTTP status */
    SANDBOX_TAG_CODE,                    /* bytes: stable code of the error */
    SANDBOX_TAG_DETAIL,                  /* bytes: one UTF-8 sentence */
    SANDBOX_TAG_RETRY_AFTER,             /* seconds */

    /* STATUS of a session, RESET, DELETE */
    SANDBOX_TAG_STATE = 112,             /* sandbox_state_e */
    SANDBOX_TAG_CREATED_MS,              /* Unix time */
    SANDBOX_TAG_USED_MS,                 /* Unix time */
    SANDBOX_TAG_COMMANDS,                /* ended so far */
    SANDBOX_TAG_RUNNING,
    SANDBOX_TAG_QUEUED,
    SANDBOX_TAG_DISK_BYTES,
    SANDBOX_TAG_MEMORY_BYTES,
    SANDBOX_TAG_CPU_TOTAL_US,
    SANDBOX_TAG_EXPIRES_MS,              /* Unix time; not there: never */

    /* PING: what a zone asks for, and what the runner is */
    SANDBOX_TAG_MAX_SANDBOXES = 128,
    SANDBOX_TAG_MAX_PER_TENANT,
    SANDBOX_TAG_MAX_RUNNING,
    SANDBOX_TAG_MAX_QUEUED,
    SANDBOX_TAG_IDLE_MS,
    SANDBOX_TAG_READY,                   /* 0 initializing, 1 ready */
    SANDBOX_TAG_SANDBOXES,
    SANDBOX_TAG_POOL,                    /* ready and unused */
    SANDBOX_TAG_RUNTIME,                 /* bytes: "crun 1.8.1" */
    SANDBOX_TAG_VERSION,                 /* bytes: release of the runner */
    SANDBOX_TAG_HARD_CAPS,               /* SANDBOX_CAP_* enforced by kernel */
    SANDBOX_TAG_EXPIRE_MS,               /* unused for so long; 0: never */
    SANDBOX_TAG_LIVE,                    /* of SANDBOXES: containers run */
    SANDBOX_TAG_CREATING,                /* likewise: being made, or woken */
    SANDBOX_TAG_FAILED,                  /* likewise: could not be started */
    SANDBOX_TAG_DRAINING,                /* 0, 1: all stop, none starts */

    /* files: HEAD, RESULT, records of a listing */
    SANDBOX_TAG_FILE_NAME = 144,         /* bytes */
    SANDBOX_TAG_FILE_TYPE,               /* sandbox_file_type_e */
    SANDBOX_TAG_FILE_SIZE,
    SANDBOX_TAG_FILE_MODE,               /* permission bits */
    SANDBOX_TAG_MODIFIED_NS,             /* Unix time */
    SANDBOX_TAG_ETAG,                    /* bytes, without quotes */
    SANDBOX_TAG_TARGET,                  /* bytes: of a symbolic link */
    SANDBOX_TAG_NEXT_NAME,               /* bytes: CURSOR of the next page */
    SANDBOX_TAG_NEEDED,                  /* bytes: u32 indices of STAGE */
    SANDBOX_TAG_NOTICE,                  /* bytes, repeated; docs/wire.md */
    SANDBOX_TAG_LINE,                    /* number of a match, from 1 */
    SANDBOX_TAG_TEXT,                    /* bytes: the line, cut to 512 */
    SANDBOX_TAG_MORE,                    /* 0, 1: matches were left out */

    /* control channel only */
    SANDBOX_TAG_SESSION = 160,           /* 32 bytes */
    SANDBOX_TAG_VERSION_MIN,
    SANDBOX_TAG_VERSION_MAX,
    SANDBOX_TAG_SLOTS,                   /* run slots the agent holds */
    SANDBOX_TAG_WANTED,                  /* 0, 1: a WANT is open */
    SANDBOX_TAG_OPEN,                    /* clients that are served longer */

    /* egress: PING, EGRESS, its table of policies, the control channel */
    SANDBOX_TAG_EGRESS_DIGEST = 176,     /* 32 bytes: SHA-256 of the table */
    SANDBOX_TAG_EGRESS_POLICY,           /* fields of one, repeated */
    SANDBOX_TAG_EGRESS_ID,               /* as in the preamble, not 0 */
    SANDBOX_TAG_EGRESS_NAME,             /* bytes, 1-64 */
    SANDBOX_TAG_EGRESS_HOST,             /* bytes: name or "*.suffix" */
    SANDBOX_TAG_EGRESS_CONNECTIONS,      /* of one sandbox at a time */
    SANDBOX_TAG_EGRESS_BYTES,            /* of one sandbox, both ways */
    SANDBOX_TAG_EGRESS_TIME_MS,          /* of one tunnel */
    SANDBOX_TAG_EGRESS_INDEX,            /* bytes: URL for uv; may be left */
    SANDBOX_TAG_EGRESS_CA,               /* bytes: PEM; may be left out */
    SANDBOX_TAG_EGRESS_COUNT,            /* counters of one, repeated */
    SANDBOX_TAG_EGRESS_OPEN,             /* tunnels at present */
    SANDBOX_TAG_EGRESS_TUNNELS,          /* ever opened */
    SANDBOX_TAG_EGRESS_REFUSED,          /* ever refused */
    SANDBOX_TAG_EGRESS_FAILED,           /* allowed, but not reached */
    SANDBOX_TAG_EGRESS_UP,               /* bytes out of the sandbox */
    SANDBOX_TAG_EGRESS_DOWN,             /* bytes into the sandbox */
    SANDBOX_TAG_EGRESS_PROXY,            /* bytes: "ADDRESS:PORT" */
    SANDBOX_TAG_EGRESS_TOKEN,            /* bytes: sandbox_token.h */
    SANDBOX_TAG_EGRESS_KEY,              /* 32 bytes: runner to proxy only */

    /* PING of who owns the sessions of container engines */
    SANDBOX_TAG_ENGINE = 208,            /* fields of one, repeated; READY */
    SANDBOX_TAG_ENGINE_NAME,             /* bytes: "tcp://HOST:PORT" */
    SANDBOX_TAG_ENGINE_GENERATION,       /* rises with each session */
    SANDBOX_TAG_ENGINE_METADATA,         /* bytes: of a query's header */
    SANDBOX_TAG_ENGINE_DOMAIN            /* bytes: of the session's services */
};


#define SANDBOX_CAP_MEMORY           0x01
#define SANDBOX_CAP_PROCESSES        0x02
#define SANDBOX_CAP_CPU              0x04
#define SANDBOX_CAP_DISK             0x08
#define SANDBOX_CAP_NETWORK          0x10


/* in the order of their names in sandbox_outcome_names */

typedef enum {
    SANDBOX_OUTCOME_EXIT = 0,
    SANDBOX_OUTCOME_SIGNAL,
    SANDBOX_OUTCOME_TIMEOUT,
    SANDBOX_OUTCOME_CPU_LIMIT,
    SANDBOX_OUTCOME_OOM,
    SANDBOX_OUTCOME_OUTPUT_LIMIT,
    SANDBOX_OUTCOME_DISK_FULL,
    SANDBOX_OUTCOME_CANCELLED,
    SANDBOX_OUTCOME_DELETED,
    SANDBOX_OUTCOME_LOST,
    SANDBOX_OUTCOME_LAST
} sandbox_outcome_e;


/* in the order of their names in sandbox_command_state_names */

typedef enum {
    SANDBOX_COMMAND_QUEUED = 0,
    SANDBOX_COMMAND_RUNNING,
    SANDBOX_COMMAND_ENDED,
    SANDBOX_COMMAND_LAST
} sandbox_command_state_e;


typedef enum {
    SANDBOX_ROOT_HOME = 0,               /* /home/sandbox */
    SANDBOX_ROOT_ALL,                    /* / */
    SANDBOX_ROOT_LAST
} sandbox_root_e;


/* in the order of their names in sandbox_file_type_names */

typedef enum {
    SANDBOX_FILE_REGULAR = 0,
    SANDBOX_FILE_DIRECTORY,
    SANDBOX_FILE_LINK,
    SANDBOX_FILE_OTHER,
    SANDBOX_FILE_LAST
} sandbox_file_type_e;


/* in the order of their names in sandbox_state_names */

typedef enum {
    SANDBOX_STATE_NONE = 0,
    SANDBOX_STATE_CREATING,
    SANDBOX_STATE_RUNNING,
    SANDBOX_STATE_IDLE,
    SANDBOX_STATE_FAILED,
    SANDBOX_STATE_LAST
} sandbox_state_e;


typedef struct {
    uint8_t        version;
    uint8_t        operation;
    uint16_t       base;                 /* number of its name; 0: default */
    uint8_t        flags;
    uint32_t       head;                 /* bytes */
    uint64_t       body;                 /* bytes, or ..._BODY_CHUNKED */
    uint64_t       instance;             /* 0: current, or create */
    uint8_t        key[SANDBOX_WIRE_KEY_SIZE];
    uint8_t        session[SANDBOX_WIRE_SESSION_SIZE];
    uint8_t        tenant[SANDBOX_WIRE_TENANT_SIZE];
    uint32_t       memory;               /* MiB; 0: the runner's default */
    uint32_t       disk;                 /* MiB; 0: the runner's default */
    uint32_t       processes;            /* 0: the runner's default */
    uint32_t       egress;               /* id of a policy; 0: none */
} sandbox_preamble_t;


typedef struct {
    uint32_t       length;               /* of the payload, bytes */
    uint8_t        type;
} sandbox_frame_t;


/* one field as read; data points into the buffer it was read from */

typedef struct {
    uint16_t       tag;
    uint32_t       length;
    const uint8_t *data;
} sandbox_field_t;


/* reads fields one after the other; see sandbox_fields_next() */

typedef struct {
    const uint8_t *pos;
    const uint8_t *last;
    uint32_t       count;
} sandbox_fields_t;


/* writes fields into memory of the caller; `failed` once they do not fit */

typedef struct {
    uint8_t       *start;
    uint8_t       *pos;
    uint8_t       *end;
    int            failed;
} sandbox_writer_t;


#define SANDBOX_OK        0
#define SANDBOX_AGAIN    -1                      /* needs more bytes */
#define SANDBOX_BAD      -2                      /* can't be right */
#define SANDBOX_END      -3                      /* no more fields */


/*
 * Reads 128 bytes.  SANDBOX_BAD: not our magic, a version we do not speak,
 * a head or body over its maximum, an unknown flag.
 * An unknown operation is left to the caller, who knows which are its own.
 */
int sandbox_preamble_read(const uint8_t *p, sandbox_preamble_t *preamble);

/*
 * Largest body of a known length: of a FILE_WRITE a file, of a COMMAND stdin
 * and files that are staged, of all others what is kept in memory.
 */
uint64_t sandbox_body_max(uint8_t operation);

/* Writes 128 bytes. */
void sandbox_preamble_write(uint8_t *p, const sandbox_preamble_t *preamble);

/*
 * Reads the 5 bytes of a frame's start.  SANDBOX_BAD: unknown type, or a
 * payload outside the minimum and maximum of that type.
 */
int sandbox_frame_read(const uint8_t *p, sandbox_frame_t *frame);

/* Writes the 5 bytes of a frame's start. */
void sandbox_frame_write(uint8_t *p, uint8_t type, uint32_t length);

/* Largest payload of a type in bytes, 0 for PING and unknown types. */
uint32_t sandbox_frame_max(uint8_t type);

/* Starts to read `size` bytes of fields. */
void sandbox_fields_init(sandbox_fields_t *fields, const uint8_t *p,
    size_t size);

/*
 * SANDBOX_OK and the next field, SANDBOX_END after the last,
 * SANDBOX_BAD for a field cut short or more than SANDBOX_WIRE_MAX_FIELDS.
 */
int sandbox_fields_next(sandbox_fields_t *fields, sandbox_field_t *field);

/* A number field's value; SANDBOX_BAD unless it is 8 bytes and <= max. */
int sandbox_field_number(const sandbox_field_t *field, uint64_t max,
    uint64_t *value);

/* Starts to write into `size` bytes at p. */
void sandbox_writer_init(sandbox_writer_t *w, uint8_t *p, size_t size);

/* Append one field; sets w->failed and writes nothing when it won't fit. */
void sandbox_write_bytes(sandbox_writer_t *w, uint16_t tag, const void *data,
    size_t length);
void sandbox_write_number(sandbox_writer_t *w, uint16_t tag, uint64_t value);
void sandbox_write_string(sandbox_writer_t *w, uint16_t tag, const char *s);

/*
 * Builds a whole ERROR frame into p (at most `size`, enough is
 * SANDBOX_WIRE_FRAME_SIZE + SANDBOX_WIRE_MAX_ERROR); retry_after 0: none.
 * Status comes from the table of codes.  Returns the frame's bytes, 0 if
 * it does not fit.
 */
size_t sandbox_error_frame(uint8_t *p, size_t size, const char *code,
    const char *detail, unsigned retry_after);

/* HTTP status of a stable code; 500 for one that is not in the table. */
unsigned sandbox_code_status(const char *code, size_t length);

/* 1: it is in the table. */
int sandbox_code_known(const char *code, size_t length);

/* Equal in a time that does not depend on the contents.  1: equal. */
int sandbox_equal(const void *a, const void *b, size_t size);

/* "exit", ..., "none", ... and "queued", ...; NULL beyond the last. */
const char *sandbox_outcome_name(unsigned outcome);
const char *sandbox_state_name(unsigned state);
const char *sandbox_command_state_name(unsigned state);
const char *sandbox_file_type_name(unsigned type);

/* 1: bytes are 1-64 of [A-Za-z0-9._-]. */
int sandbox_command_id_valid(const uint8_t *p, size_t length);

/*
 * What a preamble has for the name of a base image, which is as a command id:
 * 0 for "default", 1 to 65535 (FNV-1a) for the others.
 */
unsigned sandbox_base_number(const char *name, size_t length);

uint16_t sandbox_get16(const uint8_t *p);
uint32_t sandbox_get32(const uint8_t *p);
uint64_t sandbox_get64(const uint8_t *p);
void sandbox_put16(uint8_t *p, uint16_t value);
void sandbox_put32(uint8_t *p, uint32_t value);
void sandbox_put64(uint8_t *p, uint64_t value);


#endif /* SANDBOX_WIRE_H */
