/*
 * What crosses the files of the module: configuration, request context, the
 * table of backends, and the functions of each file, one section a file.
 */

#ifndef _NGX_HTTP_SANDBOX_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_H_INCLUDED_


#include <nginx.h>
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "sandbox_jose.h"
#include "sandbox_store.h"
#include "sandbox_store_disk.h"
#include "sandbox_utf8.h"
#include "sandbox_wire.h"


#define NGX_HTTP_SANDBOX_MAX_CONVERSATION  128   /* bytes of an id */
#define NGX_HTTP_SANDBOX_MAX_KEYS          64    /* of one location */
#define NGX_HTTP_SANDBOX_MAX_KEY_SETS      4     /* of one location */
#define NGX_HTTP_SANDBOX_MAX_RUNNERS       64    /* in one zone */
#define NGX_HTTP_SANDBOX_MAX_REASON        200   /* bytes, in shared memory */
#define NGX_HTTP_SANDBOX_MAX_WORD          64    /* runtime, version: bytes */
#define NGX_HTTP_SANDBOX_MAX_ENVIRONMENT   512   /* names of one command */

#define NGX_HTTP_SANDBOX_RETRY_AFTER       5     /* seconds, no better known */


/* what a setter accepts, and how it says so */

typedef struct {
    int64_t                        min;
    int64_t                        max;
    const char                    *expected;
} ngx_http_sandbox_bounds_t;


/* what an answer is written as; all but JSON as they come */

#define NGX_HTTP_SANDBOX_JSON              0
#define NGX_HTTP_SANDBOX_SSE               1
#define NGX_HTTP_SANDBOX_NDJSON            2
#define NGX_HTTP_SANDBOX_BYTES             3     /* of a file, as they are */


/* words of "sandbox" */

#define NGX_HTTP_SANDBOX_OFF               0
#define NGX_HTTP_SANDBOX_ON                1
#define NGX_HTTP_SANDBOX_ENV               2


/* what a token may do, and what a route asks for: one of these is enough */

#define NGX_HTTP_SANDBOX_EXECUTE           1     /* "sandbox_permission" */
#define NGX_HTTP_SANDBOX_READ              2     /* ..."_read", where set */

#define NGX_HTTP_SANDBOX_PUBLIC            0     /* no token */
#define NGX_HTTP_SANDBOX_READERS                                             \
    (NGX_HTTP_SANDBOX_EXECUTE|NGX_HTTP_SANDBOX_READ)


typedef enum {
    NGX_HTTP_SANDBOX_INITIALIZING = 0,     /* all that a fresh zone knows */
    NGX_HTTP_SANDBOX_READY,
    NGX_HTTP_SANDBOX_UNREACHABLE,
    NGX_HTTP_SANDBOX_DISABLED
} ngx_http_sandbox_status_e;


typedef struct ngx_http_sandbox_ctx_s      ngx_http_sandbox_ctx_t;
typedef struct ngx_http_sandbox_slot_s     ngx_http_sandbox_slot_t;
typedef struct ngx_http_sandbox_cache_s    ngx_http_sandbox_cache_t;
typedef struct ngx_http_sandbox_known_s    ngx_http_sandbox_known_t;
typedef struct ngx_http_sandbox_key_set_s  ngx_http_sandbox_key_set_t;
typedef struct ngx_http_sandbox_key_slot_s ngx_http_sandbox_key_slot_t;
typedef struct ngx_http_sandbox_key_work_s ngx_http_sandbox_key_work_t;
typedef struct ngx_http_sandbox_route_s    ngx_http_sandbox_route_t;
typedef struct ngx_http_sandbox_stream_s   ngx_http_sandbox_stream_t;
typedef struct ngx_http_sandbox_history_s  ngx_http_sandbox_history_t;
typedef struct ngx_http_sandbox_backend_s  ngx_http_sandbox_backend_t;
typedef struct ngx_http_sandbox_hooks_s    ngx_http_sandbox_hooks_t;
typedef struct ngx_http_sandbox_store_s    ngx_http_sandbox_store_t;
typedef struct ngx_http_sandbox_upload_s   ngx_http_sandbox_upload_t;
typedef struct ngx_http_sandbox_fs_s       ngx_http_sandbox_fs_t;
typedef struct ngx_http_sandbox_stage_s    ngx_http_sandbox_stage_t;
typedef struct ngx_http_sandbox_save_s     ngx_http_sandbox_save_t;
typedef struct ngx_http_sandbox_mcp_s      ngx_http_sandbox_mcp_t;
typedef struct ngx_http_sandbox_loc_conf_s ngx_http_sandbox_loc_conf_t;
typedef struct ngx_http_sandbox_engines_s  ngx_http_sandbox_engines_t;


/* what is known of a backend, copied out of shared memory */

typedef struct {
    ngx_http_sandbox_status_e      status;
    ngx_str_t                      reason;       /* empty when ready */
    ngx_str_t                      runtime;
    ngx_str_t                      version;
    uint64_t                       hard_caps;    /* SANDBOX_CAP_* */
    u_char                         reason_data[NGX_HTTP_SANDBOX_MAX_REASON];
    u_char                         runtime_data[NGX_HTTP_SANDBOX_MAX_WORD];
    u_char                         version_data[NGX_HTTP_SANDBOX_MAX_WORD];
} ngx_http_sandbox_health_t;


/* "sandbox_zone" */

typedef struct {
    ngx_shm_zone_t                *shm_zone;     /* NULL: no directive */
    ngx_uint_t                     max;          /* 0: the runner's default */
    ngx_uint_t                     per_tenant;   /* 0: the runner's default */
    ngx_uint_t                     running;
    ngx_uint_t                     queue;
    ngx_msec_t                     idle;
    ngx_msec_t                     expire;       /* 0: never */

    ngx_slab_pool_t               *shpool;       /* when the zone is there */
    ngx_http_sandbox_cache_t      *cache;
    ngx_http_sandbox_known_t      *known;        /* NULL: no room for it */
    struct ngx_http_sandbox_marks_s  *marks;     /* of the list */
    ngx_http_sandbox_engines_t    *engines;      /* NULL: no such backend */
    struct ngx_http_sandbox_agents_s  *agents;   /* NULL: likewise */
    struct ngx_http_sandbox_metrics_s  *metrics;
} ngx_http_sandbox_zone_t;


/* a distinct pair of socket and key */

typedef struct {
    ngx_str_t                      name;         /* "unix:/path" */
    ngx_str_t                      path;
    ngx_addr_t                     addr;
    u_char                         key[SANDBOX_WIRE_KEY_SIZE];
    ngx_http_upstream_srv_conf_t  *origin;
    ngx_http_upstream_srv_conf_t   upstream;     /* a copy with our peers */
    ngx_http_sandbox_zone_t       *zone;
    ngx_http_sandbox_slot_t       *slot;         /* in shared memory */
    ngx_msec_t                     wall_time;    /* the most of any location */
    ngx_uint_t                     engines;      /* 1: an owner of sessions */
} ngx_http_sandbox_runner_t;


/* "sandbox_jwks_url", one for all the locations that name it */

struct ngx_http_sandbox_key_set_s {
    ngx_str_t                      url;          /* NUL-terminated */
    ngx_str_t                      name;         /* without query, for logs */
    ngx_str_t                      ca_file;
    ngx_str_t                      ca;           /* PEM; empty: the system's */
    ngx_msec_t                     interval;
    ngx_msec_t                     timeout;
    ngx_msec_t                     cooldown;
    ngx_uint_t                     insecure;
    ngx_uint_t                     used;         /* some location serves */
    u_char                         id[32];       /* of url and ca */
    ngx_http_sandbox_zone_t       *zone;
    ngx_http_sandbox_key_slot_t   *slot;         /* in shared memory */
    ngx_http_sandbox_key_work_t   *work;         /* of this process */
};


typedef struct {
    ngx_http_sandbox_zone_t        zone;
    ngx_array_t                    runners;      /* ..._runner_t * */
    ngx_array_t                    key_sets;     /* ..._key_set_t * */
    ngx_array_t                    stores;       /* ..._store_t * */
    ngx_array_t                    libraries;    /* ngx_str_t, of skills */
    struct ngx_http_sandbox_egresses_s  *egress;  /* NULL: no such line */
    ngx_array_t                    bases;        /* ngx_str_t, their names */
    ngx_array_t                    engines;      /* ..._engine_t * */
    char                          *engine;       /* of the environment */
    ngx_int_t                      request_id;   /* index of the variable */
    ngx_uint_t                     used;         /* some location serves */
    ngx_uint_t                     metrics;      /* some location tells */
    ngx_http_sandbox_loc_conf_t   *served;       /* the last that does */
    ngx_uint_t                     env_used;     /* some location has "env" */
    ngx_int_t                      environment;  /* 1, 0, or -1: not set */
    ngx_uint_t                     environment_read;
#if (NGX_THREADS)
    ngx_thread_pool_t             *thread_pool;  /* for large bodies */
#endif
} ngx_http_sandbox_main_conf_t;


/* "sandbox_tenant_claim", "sandbox_conversation_claim" */

typedef struct {
    ngx_str_t                      name;         /* as written */
    sandbox_jose_path_t           *path;         /* NULL: no directive */
} ngx_http_sandbox_claim_t;


/* whom a token speaks of, and what it may do; data NULL: absent */

typedef struct {
    ngx_str_t                      issuer;
    ngx_str_t                      tenant;
    ngx_str_t                      user;
    ngx_str_t                      conversation;
    ngx_uint_t                     permissions;  /* ..._EXECUTE, ..._READ */
    int64_t                        expires;      /* refused from then on */
} ngx_http_sandbox_principal_t;


typedef struct {
    off_t                          memory;
    off_t                          output;       /* captured, of a stream */
    off_t                          output_total;
    off_t                          file_size;
    off_t                          command_size;
    off_t                          disk;
    ngx_msec_t                     cpu_time;
    ngx_msec_t                     wall_time;
    ngx_msec_t                     background_time;
    ngx_int_t                      processes;
    ngx_int_t                      open_files;
    ngx_int_t                      pending;
} ngx_http_sandbox_caps_t;


struct ngx_http_sandbox_loc_conf_s {
    ngx_uint_t                     mode;
    ngx_str_t                      file;         /* where it stands */
    ngx_uint_t                     line;
    ngx_flag_t                     disabled;     /* served, but answers 503 */
    ngx_flag_t                     serves;       /* our content handler */
    ngx_str_t                      prefix;
    ngx_http_sandbox_main_conf_t  *main;

    ngx_http_sandbox_backend_t    *named_backend;    /* as configured */
    ngx_http_sandbox_backend_t    *backend;      /* as it follows */
    ngx_str_t                      socket;       /* "unix:/path" */
    ngx_http_upstream_srv_conf_t  *origin;
    u_char                        *key;          /* of the runner, 32 bytes */
    ngx_http_sandbox_runner_t     *runner;

    ngx_array_t                   *keys;         /* sandbox_jose_key_t * */
    ngx_array_t                   *key_sets;     /* ..._key_set_t * */
    u_char                        *keys_digest;  /* of the files, or NULL */
    ngx_uint_t                     algorithms;   /* as configured */
    ngx_uint_t                     accepted;     /* as it follows */
    ngx_str_t                      issuer;       /* NUL-terminated */
    ngx_array_t                   *audiences;    /* char * */
    ngx_str_t                      permission;   /* NUL-terminated */
    ngx_str_t                      permission_read;
    ngx_array_t                   *permission_claims;   /* char * */
    ngx_array_t                   *permission_paths;    /* ..._path_t * */
    ngx_http_sandbox_claim_t       tenant_claim;
    ngx_http_sandbox_claim_t       conversation_claim;
    ngx_msec_t                     leeway;
    u_char                         policy[SANDBOX_JOSE_SESSION_SIZE];

    ngx_str_t                      named_realm;  /* as configured */
    ngx_str_t                      realm;        /* as it follows */
    void                          *server;       /* whose location it is */
    ngx_http_sandbox_loc_conf_t   *served;       /* the one before it */

    ngx_http_sandbox_store_t      *store;        /* NULL: none */
    sandbox_store_quota_t          quota;        /* of it */

    ngx_http_sandbox_caps_t        caps;
    ngx_str_t                      base;         /* name of the image */
    ngx_uint_t                     base_number;  /* as it is on the wire */
    ngx_str_t                      skills;       /* the library; data NULL: not
                                                    said, empty: none */

    ngx_array_t                   *mcp_origins;  /* ngx_str_t; NULL: none */
    ngx_array_t                   *mcp_names;    /* of the server */
    ngx_flag_t                     mcp_argument;

    struct ngx_http_sandbox_egress_s  *egress;   /* NULL: no network */
    struct ngx_http_sandbox_dagger_s  *dagger;   /* NULL: another backend */
    ngx_array_t                   *engines;      /* as configured; of these */
    ngx_msec_t                     engines_move;
    ngx_str_t                      engines_image;

    ngx_msec_t                     connect_timeout;
    ngx_msec_t                     send_timeout;
    ngx_http_upstream_conf_t       upstream;     /* until the answer is here */
    ngx_http_upstream_conf_t       answering;    /* while the client reads */
};


struct ngx_http_sandbox_route_s {
    ngx_str_t                      pattern;      /* "*" is a conversation */
    ngx_uint_t                     methods;      /* NGX_HTTP_GET and so on */
    ngx_str_t                      operation;    /* $sandbox_operation */
    ngx_uint_t                     access;       /* ..._PUBLIC and so on */
    ngx_int_t                    (*handler)(ngx_http_request_t *r,
                                            ngx_http_sandbox_ctx_t *ctx);
};


/* an error as the client will see it */

typedef struct {
    ngx_uint_t                     status;       /* 0: none */
    ngx_str_t                      code;
    ngx_str_t                      detail;
    ngx_str_t                      challenge;    /* WWW-Authenticate */
    ngx_uint_t                     retry_after;  /* seconds, 0: none */
} ngx_http_sandbox_problem_t;


/* one stream of a command, as much of it as was captured */

typedef struct {
    u_char                        *data;
    size_t                         len;
    size_t                         size;
    size_t                         head;         /* bytes before the gap */
    uint64_t                       gap;          /* bytes left out */
} ngx_http_sandbox_capture_t;


/* HEAD and RESULT, parsed; what did not come stays 0 and unseen */

typedef struct {
    uint64_t                       number[SANDBOX_TAG_MODIFIED_NS + 1];
    unsigned char                  seen[SANDBOX_TAG_MODIFIED_NS + 1];
    ngx_str_t                      sandbox_id;
    ngx_str_t                      command_id;
    ngx_str_t                      signal;
    ngx_str_t                      cwd;
    ngx_str_t                      command;      /* of a receipt: a part */
    ngx_str_t                      etag;         /* of a file */
    ngx_str_t                      file_name;
    ngx_str_t                      target;
    ngx_str_t                      next_name;
    ngx_str_t                      detail;       /* a sentence */
    ngx_str_t                      fields;       /* all of them, as bytes */
} ngx_http_sandbox_result_t;


/* one operation on the wire */

typedef struct {
    ngx_uint_t                     operation;    /* SANDBOX_OPERATION_* */
    ngx_uint_t                     flags;        /* SANDBOX_FLAG_* */
    ngx_str_t                      head;         /* room for a preamble
                                                    before it, if any */
    ngx_str_t                      body;
    uint64_t                       instance;     /* 0: the current one */

    /* renders ctx->wire.result into ctx->answer */
    ngx_int_t                    (*render)(ngx_http_request_t *r,
                                           ngx_http_sandbox_ctx_t *ctx);

    /* HEAD is here, if it wants to know; NULL, or what is wrong */
    const char                  *(*accepted)(ngx_http_request_t *r,
                                             ngx_http_sandbox_ctx_t *ctx);

    /* takes what is in DATA, p NULL: that was all; NULL: there may be none */
    const char                  *(*data)(ngx_http_request_t *r,
                                         ngx_http_sandbox_ctx_t *ctx,
                                         u_char *p, size_t n);

    /* peers */
    ngx_event_get_peer_pt          get;
    ngx_event_free_peer_pt         free;
    void                          *peer;
    ngx_uint_t                     attempts;

    /* frames */
    sandbox_frame_t                frame;
    u_char                         start[SANDBOX_WIRE_FRAME_SIZE];
    size_t                         have;         /* bytes of start */
    size_t                         left;         /* bytes of the payload */
    u_char                         number[17];   /* seq, GAP */
    size_t                         number_len;
    u_char                        *payload;      /* HEAD, RESULT, ERROR */
    size_t                         payload_len;
    uint64_t                       seq;          /* of the last event */
    uint64_t                       after;        /* events up to it are known */
    uint64_t                       seen;         /* likewise, if they come */
    ngx_uint_t                     pings;
    ngx_msec_t                     started;

    ngx_http_sandbox_capture_t     stream[2];    /* stdout, stderr */
    ngx_http_sandbox_result_t      result;

    unsigned                       connected:1;
    unsigned                       head_seen:1;
    unsigned                       done:1;       /* RESULT or ERROR is here */
    unsigned                       bad:1;        /* against the protocol */
    unsigned                       timedout:1;
    unsigned                       lost:1;       /* ended without RESULT */
} ngx_http_sandbox_wire_t;


/* the body of a command, as JSON */

typedef struct {
    ngx_chain_t                   *chain;        /* of 64 KiB buffers */
    ngx_chain_t                  **last;
    ngx_buf_t                     *tail;
    size_t                         size;
    size_t                         tokens;       /* commas and brackets */
    unsigned                       string:1;
    unsigned                       escape:1;
    unsigned                       nul:1;        /* as a byte, in no JSON */
} ngx_http_sandbox_body_t;


/* a command's JSON, its fields as they were found; they live in root */

typedef struct {
    ngx_http_request_t            *r;
    ngx_http_sandbox_ctx_t        *ctx;
    json_t                        *root;

    json_t                        *command;
    json_t                        *cwd;
    json_t                        *env;
    json_t                        *input;        /* stdin */
    json_t                        *input_base64;
    json_t                        *timeout;
    json_t                        *command_id;
    json_t                        *stdin_open;   /* NULL: by the rule */
    ngx_uint_t                     fresh;
    ngx_uint_t                     background;
    ngx_uint_t                     encoded;      /* there was stdinBase64 */
    ngx_str_t                      stdin_data;
    ngx_str_t                      label;        /* empty: none */
} ngx_http_sandbox_request_t;


struct ngx_http_sandbox_ctx_s {
    ngx_http_request_t            *request;

    /* route, valid for that location and path only */
    const ngx_http_sandbox_loc_conf_t *routed;   /* NULL: not looked at */
    ngx_str_t                      uri;
    const ngx_http_sandbox_route_t *route;       /* NULL: refusal is set */
    ngx_http_sandbox_problem_t     refusal;      /* after the identity */
    ngx_str_t                      conversation;
    ngx_str_t                      name;         /* of a thing in it */

    /* identity, valid for that location only */
    const ngx_http_sandbox_loc_conf_t *verified; /* NULL: not looked at */
    ngx_int_t                      identity;     /* NGX_OK, or HTTP status */
    ngx_http_sandbox_principal_t   principal;
    ngx_str_t                      token_cache;  /* $sandbox_token_cache */
    ngx_http_sandbox_problem_t     refused;      /* unless NGX_OK */
    u_char                         session[SANDBOX_WIRE_SESSION_SIZE];
    u_char                         digest[SANDBOX_WIRE_TENANT_SIZE];

    /* egress, likewise */
    const ngx_http_sandbox_loc_conf_t *egress_of;
    const void                    *egress;       /* NULL: no network */

    struct ngx_http_sandbox_share_s  *share;     /* NULL: it holds nothing */
    struct ngx_http_sandbox_session_s  *dagger;  /* NULL: another backend */

    /* command */
    ngx_http_sandbox_body_t        body;
    ngx_int_t                      parsed;       /* how reading it ended */
    ngx_msec_t                     wall_time;    /* the one used */
    ngx_str_t                      command_id;
    ngx_str_t                      cwd;
    unsigned                       base64:1;
    unsigned                       background:1;
    unsigned                       cancel:1;     /* when the client is gone */
    unsigned                       ended:1;      /* the last event is told */
    unsigned                       input_begun:1;
    unsigned                       input_refused:1;

    ngx_http_sandbox_wire_t        wire;
    ngx_http_sandbox_stream_t     *stream;       /* NULL: one answer */
    ngx_http_sandbox_history_t    *history;
    ngx_http_sandbox_upload_t     *upload;
    ngx_http_sandbox_fs_t         *fs;
    ngx_http_sandbox_save_t       *save;
    struct ngx_http_sandbox_conversations_s  *conversations;
    ngx_http_sandbox_stage_t      *stage;        /* NULL: nothing to stage */
    ngx_http_sandbox_mcp_t        *mcp;          /* NULL: it is HTTP */
    off_t                          input;        /* bytes of stdin sent on */
    ngx_chain_t                   *input_free;
    ngx_chain_t                   *input_busy;

    /* what goes to the client */
    ngx_http_sandbox_problem_t     problem;
    ngx_chain_t                   *answer;
    off_t                          answer_size;
    ngx_uint_t                     answer_status;
    ngx_str_t                      outcome;      /* $sandbox_outcome */

    unsigned                       counted:1;    /* in the metrics */
    unsigned                       refusal_counted:1;
    unsigned                       own:1;        /* the header is ours */
    unsigned                       replace:1;    /* nginx's body is not sent */
    unsigned                       replaced:1;
};


/* ngx_http_sandbox_module.c */

extern ngx_module_t  ngx_http_sandbox_module;

ngx_http_sandbox_ctx_t *ngx_http_sandbox_get_ctx(ngx_http_request_t *r);


/* ngx_http_sandbox_conf.c: setters of directives, and what they read */

char *ngx_http_sandbox_conf_mode(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_backend(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_runner(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_base(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_runner_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_time(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_size(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_number(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * A whole file, 1 to max bytes, into the pool; `name` ends with NUL.  Warns
 * when a secret can be read by all.  Logs and returns NGX_ERROR.
 */
ngx_int_t ngx_http_sandbox_conf_read_file(ngx_conf_t *cf, ngx_command_t *cmd,
    const ngx_str_t *name, size_t max, ngx_uint_t secret, ngx_str_t *content);

/* ARCHESTRA_CODE_RUNTIME_ENABLED into smcf; logs and returns NGX_ERROR */
ngx_int_t ngx_http_sandbox_conf_environment(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf);


/* ngx_http_sandbox_conf_jwt.c: setters of directives that name keys */

char *ngx_http_sandbox_conf_jwt_secret(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_jwt_public(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_jwks_file(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


/* ngx_http_sandbox_policy.c: which tokens are good, and whom they name */

char *ngx_http_sandbox_conf_algorithms(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_word(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_audience(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_permission_claim(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_sandbox_conf_claim(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

void ngx_http_sandbox_policy_merge(ngx_http_sandbox_loc_conf_t *conf,
    ngx_http_sandbox_loc_conf_t *prev);

/* For a location that serves; logs and returns NGX_ERROR. */
ngx_int_t ngx_http_sandbox_policy_init(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location);
ngx_int_t ngx_http_sandbox_policy_realm(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location);


/* ngx_http_sandbox_phases.c */

/* The content handler of a location that serves. */
ngx_int_t ngx_http_sandbox_handler(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_phases_init(ngx_conf_t *cf);


/* ngx_http_sandbox_route.c */

/* Fills ctx->route, or ctx->refusal (400, 404, 405). */
void ngx_http_sandbox_route(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The 404 of a path that there is not. */
void ngx_http_sandbox_route_missing(ngx_http_sandbox_problem_t *problem);

/* The methods of the route's path, for Allow; in the request's pool. */
ngx_int_t ngx_http_sandbox_route_allow(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *allow);

/* Whether `name` stands in the arguments, with or without a value. */
ngx_int_t ngx_http_sandbox_argument(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);


/* ngx_http_sandbox_auth.c */

/*
 * Verifies the request's token by the policy of its location, once for each
 * location, and looks whether it may use the route.  NGX_OK: ctx->principal is
 * set.  401, 403, 500 or 503 otherwise, and ctx->problem says why.
 */
ngx_int_t ngx_http_sandbox_identity(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The same for who only asks: NULL if it is refused, and no problem is left. */
const ngx_http_sandbox_principal_t *ngx_http_sandbox_principal(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);

/* NGX_DECLINED: the token is for another conversation than the path's. */
ngx_int_t ngx_http_sandbox_own_conversation(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Session key and tenant digest for ctx->conversation, after the identity. */
ngx_int_t ngx_http_sandbox_session_keys(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_zone.c */

char *ngx_http_sandbox_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* As "sandbox_zone sandbox:1m;" where there is no such line. */
ngx_int_t ngx_http_sandbox_zone_default(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf);

ngx_http_sandbox_status_e ngx_http_sandbox_slot_status(
    const ngx_http_sandbox_runner_t *runner);

void ngx_http_sandbox_slot_read(const ngx_http_sandbox_runner_t *runner,
    ngx_http_sandbox_health_t *health);

/* `health` as PING told it, or only status and reason (full = 0) */
void ngx_http_sandbox_slot_write(const ngx_http_sandbox_runner_t *runner,
    const ngx_http_sandbox_health_t *health, ngx_uint_t full);


/* ngx_http_sandbox_conf_jwks.c: the setter of "sandbox_jwks_url" */

char *ngx_http_sandbox_conf_jwks_url(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


/* ngx_http_sandbox_key_set.c: key sets by URL */

/*
 * Appends this worker's keys of the set to `keys`, which has room for `max`
 * and holds *n; they live until the worker returns to its event loop.
 * *generation names what they were made of: it never comes again in a zone.
 * NGX_DECLINED: no set was ever fetched.
 */
ngx_int_t ngx_http_sandbox_key_set_keys(ngx_http_sandbox_key_set_t *set,
    const sandbox_jose_key_t **keys, ngx_uint_t max, ngx_uint_t *n,
    uint64_t *generation);

/*
 * A token named a kid that is not there: worker 0 fetches, at most once in a
 * cool-down.  Nobody waits for it.
 */
void ngx_http_sandbox_key_set_want(ngx_http_sandbox_key_set_t *set);

ngx_int_t ngx_http_sandbox_key_set_init(ngx_conf_t *cf,
    ngx_http_sandbox_key_set_t *set);

/* Places in the zone for the sets that are used; *shared is kept in it. */
ngx_int_t ngx_http_sandbox_key_set_init_zone(ngx_shm_zone_t *shm_zone,
    ngx_http_sandbox_main_conf_t *smcf, void **shared);

ngx_int_t ngx_http_sandbox_key_set_init_process(ngx_cycle_t *cycle);
void ngx_http_sandbox_key_set_exit_process(void);


/* ngx_http_sandbox_fetch.c: libcurl in the event loop of worker 0 */

/* what a fetch came to; all of it lives until the handler returns */

typedef struct {
    ngx_str_t                      body;
    ngx_uint_t                     kind;         /* 0: good; else equal for
                                                    equal problems */
    const char                    *problem;      /* words about the server */
    const char                    *remedy;
} ngx_http_sandbox_fetched_t;

typedef void (*ngx_http_sandbox_fetched_pt)(ngx_http_sandbox_key_set_t *set,
    ngx_http_sandbox_fetched_t *fetched);

/* After fork() only.  The handler is called later, from the event loop. */
ngx_int_t ngx_http_sandbox_fetch_start(ngx_http_sandbox_key_set_t *set,
    ngx_http_sandbox_fetched_pt handler, ngx_log_t *log);

/* Ends all fetches at once, no handler is called. */
void ngx_http_sandbox_fetch_exit(void);


/* ngx_http_sandbox_upstream.c */

ngx_int_t ngx_http_sandbox_upstream_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
/* What a connection that is over without a result means, as a problem. */
void ngx_http_sandbox_upstream_lost(ngx_http_sandbox_ctx_t *ctx);

ngx_int_t ngx_http_sandbox_upstream_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);


/* ngx_http_sandbox_frames.c */

/*
 * Takes all bytes of b: NGX_AGAIN wants more, NGX_OK is the last frame,
 * NGX_DECLINED broke the protocol (logged), NGX_ERROR has no memory.  For a
 * stream NGX_OK is any frame that came to its end, and b may have more.
 */
ngx_int_t ngx_http_sandbox_frames(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b);

void ngx_http_sandbox_frames_reset(ngx_http_sandbox_ctx_t *ctx);

/* An operation that is over with a RESULT that is a refusal, as an answer. */
ngx_int_t ngx_http_sandbox_render_failed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Fields of a HEAD, a RESULT or a receipt; NULL, or what is wrong. */
const char *ngx_http_sandbox_result_read(ngx_http_sandbox_result_t *result,
    u_char *p, size_t n);


/* ngx_http_sandbox_stream.c */

/* What the client accepts; makes ctx->stream for events.  NGX_ERROR. */
ngx_int_t ngx_http_sandbox_stream_init(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Takes the request over from nginx's loop; the header is about to be sent. */
void ngx_http_sandbox_stream_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* "text/event-stream" or the other one */
void ngx_http_sandbox_stream_type(ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *type);

/* Room for so many bytes of output, which go where ->piece is. */
u_char *ngx_http_sandbox_stream_piece(ngx_http_request_t *r,
    ngx_http_sandbox_stream_t *stream, size_t size);


/* ngx_http_sandbox_accept.c */

/* NGX_HTTP_SANDBOX_JSON, or a kind of events that is liked better. */
ngx_uint_t ngx_http_sandbox_accept(ngx_http_request_t *r);


/* ngx_http_sandbox_command.c */

ngx_int_t ngx_http_sandbox_command_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* For a content handler: JSON, of a command or for ctx->save. */
ngx_int_t ngx_http_sandbox_body_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Most bytes of a command's JSON. */
size_t ngx_http_sandbox_max_body(const ngx_http_sandbox_loc_conf_t *slcf);

/* The most bytes of stdin in one request: it is kept in memory. */
off_t ngx_http_sandbox_max_stdin(const ngx_http_sandbox_loc_conf_t *slcf);


/* ngx_http_sandbox_request.c */

/*
 * The body's JSON into ctx->wire.  NGX_OK, NGX_ERROR (no memory), or
 * NGX_DECLINED with the refusal in ctx->problem.  A large one is read in a
 * thread, which has the request's pool to itself meanwhile: so no logging and
 * no events in there.
 */
ngx_int_t ngx_http_sandbox_request_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The body's JSON, which is gone then; NULL: the refusal is in ctx->problem. */
json_t *ngx_http_sandbox_request_load(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Refuses with 400; fmt has one %s, for the name.  NGX_DECLINED, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_bad(ngx_http_sandbox_request_t *req,
    const char *fmt, const char *name);


/* ngx_http_sandbox_head.c: the fields onto the wire; results as above */

ngx_int_t ngx_http_sandbox_head_stdin(ngx_http_sandbox_request_t *req);
ngx_int_t ngx_http_sandbox_head_write(ngx_http_sandbox_request_t *req);


/* ngx_http_sandbox_conversation.c */

ngx_int_t ngx_http_sandbox_status_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_delete_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_reset_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_attach.c: commands by their id */

ngx_int_t ngx_http_sandbox_attach_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_cancel_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Last-Event-ID of a repeated POST; NGX_DECLINED with the refusal. */
ngx_int_t ngx_http_sandbox_attach_seen(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uint64_t *seen);

/* ?encoding= into ctx->base64; NGX_DECLINED with the refusal. */
ngx_int_t ngx_http_sandbox_encoding(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* ctx->wire.head for a writer of at most `size` bytes; NGX_ERROR. */
ngx_int_t ngx_http_sandbox_head_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w, size_t size);

/* Discards the body and starts ctx->wire; for a content handler. */
ngx_int_t ngx_http_sandbox_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* A number of decimal digits, at most max; NGX_ERROR. */
ngx_int_t ngx_http_sandbox_decimal(ngx_str_t *text, uint64_t max,
    uint64_t *value);


/* ngx_http_sandbox_stdin.c */

ngx_int_t ngx_http_sandbox_stdin_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/*
 * For a content handler: ctx->wire with the request's body, which is sent on
 * as it comes; 413 if it is too long.
 */
ngx_int_t ngx_http_sandbox_stdin_read(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The body's length, for the preamble. */
uint64_t ngx_http_sandbox_stdin_body(ngx_http_request_t *r);

/* Its bytes after `last`: those that are here, the others as they come. */
ngx_int_t ngx_http_sandbox_stdin_send(ngx_http_request_t *r,
    ngx_chain_t *last);


/* ngx_http_sandbox_fs.c: the container's file system */

ngx_int_t ngx_http_sandbox_fs_get_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_fs_put_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_fs_delete_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* 1: the answer is a file, with headers of its own. */
ngx_uint_t ngx_http_sandbox_fs_file(ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_fs_headers(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_history.c */

ngx_int_t ngx_http_sandbox_history_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_limits.c */

ngx_int_t ngx_http_sandbox_health_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_limits_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_http_sandbox_status_e ngx_http_sandbox_health_status(
    const ngx_http_sandbox_loc_conf_t *slcf);
void ngx_http_sandbox_health_get(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_health_t *health);
const char *ngx_http_sandbox_status_name(ngx_uint_t status);


/* ngx_http_sandbox_render.c */

/*
 * Text for a JSON string, escaped, without quotes: invalid UTF-8 becomes
 * U+FFFD, NUL is left out, and *stripped is set for either.  dst NULL counts.
 */
size_t ngx_http_sandbox_escape(u_char *dst, const u_char *src, size_t size,
    ngx_uint_t *stripped);

/*
 * What was captured, as text or base64, with a mark where bytes were left out;
 * *stripped is set when text could not have all of it.
 */
ngx_int_t ngx_http_sandbox_render_output(ngx_http_request_t *r,
    ngx_http_sandbox_capture_t *c, ngx_uint_t base64, ngx_str_t *text,
    ngx_uint_t *stripped);

/* ctx->problem into ctx->answer. */
ngx_int_t ngx_http_sandbox_render_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Makes b the answer. */
ngx_int_t ngx_http_sandbox_render_buffer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status, ngx_buf_t *b);


/* ngx_http_sandbox_receipt.c */

/* The result of a command, or its state, into ctx->answer. */
ngx_int_t ngx_http_sandbox_render_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Members of a result, without its output and the braces, and their room. */
u_char *ngx_http_sandbox_render_receipt(u_char *p,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_result_t *result);
size_t ngx_http_sandbox_receipt_size(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result);

/* ,"acceptedAt":... and so on */
u_char *ngx_http_sandbox_receipt_times(u_char *p,
    ngx_http_sandbox_result_t *result);

/* "name":"id" and ,"name":value; null where there is none */
u_char *ngx_http_sandbox_render_id(u_char *p, const char *name,
    ngx_str_t *id);
u_char *ngx_http_sandbox_render_number(u_char *p, const char *name,
    ngx_uint_t seen, uint64_t value);

/* Milliseconds since 1970 as RFC 3339 with quotes, or null. */
u_char *ngx_http_sandbox_time(u_char *p, uint64_t ms);


/* ngx_http_sandbox_reply.c */

/* Records a problem; code and detail must live as long as the request. */
ngx_int_t ngx_http_sandbox_refuse(ngx_http_sandbox_ctx_t *ctx,
    ngx_uint_t status, const char *code, const char *detail);

/* As above, with a formatted detail; NGX_ERROR: no memory. */
ngx_int_t ngx_http_sandbox_refuse_format(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status, const char *code,
    const char *fmt, ...);

/* Sends ctx->problem; the value is for ngx_http_finalize_request(). */
ngx_int_t ngx_http_sandbox_send_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Sends ctx->answer, likewise. */
ngx_int_t ngx_http_sandbox_send_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Status, type, length and the headers that every reply has. */
ngx_int_t ngx_http_sandbox_set_headers(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

ngx_int_t ngx_http_sandbox_filter_init(ngx_conf_t *cf);


/* ngx_http_sandbox_health.c: worker 0 asks every runner */

ngx_int_t ngx_http_sandbox_health_init_process(ngx_cycle_t *cycle);
void ngx_http_sandbox_health_exit_process(ngx_cycle_t *cycle);


/* ngx_http_sandbox_variables.c */

ngx_int_t ngx_http_sandbox_add_variables(ngx_conf_t *cf);


#include "ngx_http_sandbox_cache.h"
#include "ngx_http_sandbox_hooks.h"
#include "ngx_http_sandbox_backend.h"


#endif /* _NGX_HTTP_SANDBOX_H_INCLUDED_ */
