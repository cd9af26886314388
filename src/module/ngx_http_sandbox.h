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
#include "sandbox_utf8.h"
#include "sandbox_wire.h"


#define NGX_HTTP_SANDBOX_MAX_CONVERSATION  128   /* bytes of an id */
#define NGX_HTTP_SANDBOX_MAX_KEYS          16    /* of one location */
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


/* words of "sandbox" */

#define NGX_HTTP_SANDBOX_OFF               0
#define NGX_HTTP_SANDBOX_ON                1
#define NGX_HTTP_SANDBOX_ENV               2


typedef enum {
    NGX_HTTP_SANDBOX_INITIALIZING = 0,     /* all that a fresh zone knows */
    NGX_HTTP_SANDBOX_READY,
    NGX_HTTP_SANDBOX_UNREACHABLE,
    NGX_HTTP_SANDBOX_DISABLED
} ngx_http_sandbox_status_e;


typedef struct ngx_http_sandbox_ctx_s      ngx_http_sandbox_ctx_t;
typedef struct ngx_http_sandbox_slot_s     ngx_http_sandbox_slot_t;
typedef struct ngx_http_sandbox_route_s    ngx_http_sandbox_route_t;
typedef struct ngx_http_sandbox_backend_s  ngx_http_sandbox_backend_t;
typedef struct ngx_http_sandbox_loc_conf_s ngx_http_sandbox_loc_conf_t;


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
} ngx_http_sandbox_runner_t;


typedef struct {
    ngx_http_sandbox_zone_t        zone;
    ngx_array_t                    runners;      /* ..._runner_t * */
    ngx_int_t                      request_id;   /* index of the variable */
    ngx_uint_t                     used;         /* some location serves */
    ngx_uint_t                     env_used;     /* some location has "env" */
    ngx_int_t                      environment;  /* 1, 0, or -1: not set */
    ngx_uint_t                     environment_read;
#if (NGX_THREADS)
    ngx_thread_pool_t             *thread_pool;  /* for large bodies */
#endif
} ngx_http_sandbox_main_conf_t;


typedef struct {
    off_t                          memory;
    off_t                          output;       /* captured, of a stream */
    off_t                          output_total;
    off_t                          file_size;
    off_t                          command_size;
    off_t                          disk;
    ngx_msec_t                     cpu_time;
    ngx_msec_t                     wall_time;
    ngx_int_t                      processes;
    ngx_int_t                      open_files;
    ngx_int_t                      pending;
} ngx_http_sandbox_caps_t;


struct ngx_http_sandbox_loc_conf_s {
    ngx_uint_t                     mode;
    ngx_flag_t                     disabled;     /* served, but answers 503 */
    ngx_flag_t                     serves;       /* our content handler */
    ngx_str_t                      prefix;
    ngx_http_sandbox_main_conf_t  *main;

    ngx_http_sandbox_backend_t    *backend;
    ngx_str_t                      socket;       /* "unix:/path" */
    ngx_http_upstream_srv_conf_t  *origin;
    u_char                        *key;          /* of the runner, 32 bytes */
    ngx_http_sandbox_runner_t     *runner;

    ngx_array_t                   *keys;         /* sandbox_jose_key_t * */
    ngx_uint_t                     algorithms;
    ngx_str_t                      issuer;       /* NUL-terminated */
    ngx_str_t                      audience;     /* NUL-terminated */
    ngx_str_t                      permission;   /* NUL-terminated */
    ngx_str_t                      realm;
    ngx_msec_t                     leeway;

    ngx_http_sandbox_caps_t        caps;

    ngx_msec_t                     connect_timeout;
    ngx_msec_t                     send_timeout;
    ngx_http_upstream_conf_t       upstream;     /* until the answer is here */
    ngx_http_upstream_conf_t       answering;    /* while the client reads */
};


/* one table, the only way from an operation to what runs it */

struct ngx_http_sandbox_backend_s {
    ngx_str_t                      name;

    /* configuration time; logs and returns NGX_ERROR */
    ngx_int_t                    (*init)(ngx_conf_t *cf,
                                         ngx_http_sandbox_loc_conf_t *slcf,
                                         ngx_str_t *location);

    /* starts ctx->wire; as a content handler after its body was read */
    ngx_int_t                    (*start)(ngx_http_request_t *r,
                                          ngx_http_sandbox_ctx_t *ctx);

    /* the word alone is asked for often, and must cost nothing */
    ngx_http_sandbox_status_e    (*status)(
                                         const ngx_http_sandbox_loc_conf_t
                                             *slcf);
    void                         (*health)(
                                         const ngx_http_sandbox_loc_conf_t
                                             *slcf,
                                         ngx_http_sandbox_health_t *health);

    const char *const             *unsupported;  /* names, NULL at the end */
};


struct ngx_http_sandbox_route_s {
    ngx_str_t                      pattern;      /* "*" is a conversation */
    ngx_uint_t                     methods;      /* NGX_HTTP_GET and so on */
    ngx_str_t                      operation;    /* $sandbox_operation */
    ngx_uint_t                     public;       /* no token */
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
    uint64_t                       number[SANDBOX_TAG_HARD_CAPS + 1];
    unsigned char                  seen[SANDBOX_TAG_HARD_CAPS + 1];
    ngx_str_t                      sandbox_id;
    ngx_str_t                      command_id;
    ngx_str_t                      signal;
    ngx_str_t                      cwd;
} ngx_http_sandbox_result_t;


/* one operation on the wire */

typedef struct {
    ngx_uint_t                     operation;    /* SANDBOX_OPERATION_* */
    ngx_uint_t                     flags;        /* SANDBOX_FLAG_* */
    ngx_str_t                      head;         /* room for a preamble
                                                    before it, if any */
    ngx_str_t                      body;

    /* renders ctx->wire.result into ctx->answer */
    ngx_int_t                    (*render)(ngx_http_request_t *r,
                                           ngx_http_sandbox_ctx_t *ctx);

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
    uint64_t                       seq;
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
    ngx_uint_t                     fresh;
    ngx_str_t                      stdin_data;
} ngx_http_sandbox_request_t;


struct ngx_http_sandbox_ctx_s {
    ngx_http_request_t            *request;

    /* route, valid for that location and path only */
    const ngx_http_sandbox_loc_conf_t *routed;   /* NULL: not looked at */
    ngx_str_t                      uri;
    const ngx_http_sandbox_route_t *route;       /* NULL: refusal is set */
    ngx_http_sandbox_problem_t     refusal;      /* after the identity */
    ngx_str_t                      conversation;

    /* identity, valid for that location only */
    const ngx_http_sandbox_loc_conf_t *verified; /* NULL: not looked at */
    ngx_int_t                      identity;     /* NGX_OK, or HTTP status */
    ngx_str_t                      issuer;       /* data NULL: none */
    ngx_str_t                      tenant;       /* data NULL: none */
    ngx_str_t                      user;
    ngx_http_sandbox_problem_t     refused;      /* unless NGX_OK */
    u_char                         session[SANDBOX_WIRE_SESSION_SIZE];
    u_char                         digest[SANDBOX_WIRE_TENANT_SIZE];

    /* command */
    ngx_http_sandbox_body_t        body;
    ngx_int_t                      parsed;       /* how reading it ended */
    ngx_msec_t                     wall_time;    /* the one used */
    ngx_str_t                      command_id;
    ngx_str_t                      cwd;
    unsigned                       base64:1;

    ngx_http_sandbox_wire_t        wire;

    /* what goes to the client */
    ngx_http_sandbox_problem_t     problem;
    ngx_chain_t                   *answer;
    off_t                          answer_size;
    ngx_uint_t                     answer_status;
    ngx_str_t                      outcome;      /* $sandbox_outcome */

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
char *ngx_http_sandbox_conf_runner_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_jwt_secret(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_jwt_public(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_algorithms(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_word(ngx_conf_t *cf, ngx_command_t *cmd,
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


/* ngx_http_sandbox_route.c */

/* Fills ctx->route, or ctx->refusal (400, 404, 405). */
void ngx_http_sandbox_route(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The methods of the route's path, for Allow; in the request's pool. */
ngx_int_t ngx_http_sandbox_route_allow(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *allow);

/* Whether `name` stands in the arguments, with or without a value. */
ngx_int_t ngx_http_sandbox_argument(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);


/* ngx_http_sandbox_auth.c */

ngx_int_t ngx_http_sandbox_access_handler(ngx_http_request_t *r);

/*
 * Verifies the request's token by the policy of its location, once for each
 * location.  NGX_OK: issuer, tenant and user of ctx are set.  401, 403 or 500
 * otherwise, and ctx->problem says why.
 */
ngx_int_t ngx_http_sandbox_identity(ngx_http_request_t *r,
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


/* ngx_http_sandbox_upstream.c */

ngx_int_t ngx_http_sandbox_upstream_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_upstream_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);


/* ngx_http_sandbox_frames.c */

/*
 * Takes all bytes of b: NGX_AGAIN wants more, NGX_OK is the last frame,
 * NGX_DECLINED broke the protocol (logged), NGX_ERROR has no memory.
 */
ngx_int_t ngx_http_sandbox_frames(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b);

void ngx_http_sandbox_frames_reset(ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_command.c */

ngx_int_t ngx_http_sandbox_command_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Most bytes of a command's JSON. */
size_t ngx_http_sandbox_max_body(const ngx_http_sandbox_loc_conf_t *slcf);


/* ngx_http_sandbox_request.c */

/*
 * The body's JSON into ctx->wire.  NGX_OK, NGX_ERROR (no memory), or
 * NGX_DECLINED with the refusal in ctx->problem.  A large one is read in a
 * thread, which has the request's pool to itself meanwhile: so no logging and
 * no events in there.
 */
ngx_int_t ngx_http_sandbox_request_parse(ngx_http_request_t *r,
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

/* The result of a command into ctx->answer. */
ngx_int_t ngx_http_sandbox_render_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* ctx->problem into ctx->answer. */
ngx_int_t ngx_http_sandbox_render_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Makes b the answer. */
ngx_int_t ngx_http_sandbox_render_buffer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status, ngx_buf_t *b);


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


/* ngx_http_sandbox_local.c */

extern ngx_http_sandbox_backend_t  ngx_http_sandbox_local;


/* ngx_http_sandbox_health.c: worker 0 asks every runner */

ngx_int_t ngx_http_sandbox_health_init_process(ngx_cycle_t *cycle);
void ngx_http_sandbox_health_exit_process(ngx_cycle_t *cycle);


/* ngx_http_sandbox_variables.c */

ngx_int_t ngx_http_sandbox_add_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_SANDBOX_H_INCLUDED_ */
