/*
 * The backend "dagger": engines that run the agent as a service.  What is
 * known of each engine (from the owner of its sessions), one question to an
 * engine, and the way from an operation to the agent of its session.
 */

#ifndef _NGX_HTTP_SANDBOX_DAGGER_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_DAGGER_H_INCLUDED_


#include "ngx_http_sandbox.h"
#include "sandbox_record.h"


#define NGX_HTTP_SANDBOX_MAX_ENGINES      16     /* in one configuration */
#define NGX_HTTP_SANDBOX_ENGINE_NAME      128    /* bytes */

/* of an engine's answer: ours are some hundred bytes, of an exec its output */

#define NGX_HTTP_SANDBOX_QUERY_ANSWER     (64 * 1024)


/* as configured; equal names in all locations are one engine */

typedef struct ngx_http_sandbox_engine_s {
    ngx_str_t                      name;         /* "tcp://10.0.0.7:1234" */
    ngx_addr_t                     addr;
    ngx_resolver_t                *resolver;     /* of its containers, or NULL:
                                                    they are out of reach */
    ngx_uint_t                     number;       /* in the zone */
    ngx_flag_t                     isolated;
    ngx_str_t                      resolver_name;    /* as configured; empty:
                                                        by default */
    ngx_http_sandbox_runner_t     *owner;        /* NULL: nobody uses it */
} ngx_http_sandbox_engine_t;


/* what is counted for each engine, since the zone was made */

typedef enum {
    NGX_HTTP_SANDBOX_ENGINE_SESSIONS = 0,        /* that the owner began */
    NGX_HTTP_SANDBOX_ENGINE_QUERIES,
    NGX_HTTP_SANDBOX_ENGINE_FAILURES,            /* of queries */
    NGX_HTTP_SANDBOX_ENGINE_STARTS,              /* of agents */
    NGX_HTTP_SANDBOX_ENGINE_EXECS,               /* operations by an exec */
    NGX_HTTP_SANDBOX_ENGINE_MOVES,               /* conversations it lost */
    NGX_HTTP_SANDBOX_ENGINE_COUNTERS
} ngx_http_sandbox_engine_counter_e;


/* of a location, slcf->dagger */

typedef struct ngx_http_sandbox_dagger_s {
    ngx_array_t                   *engines;      /* ..._engine_t * */
    ngx_str_t                      image;        /* "host:port/name@sha256:..."
                                                    */
    uint32_t                       image_hash;   /* of it */
    ngx_msec_t                     move;         /* after so long without its
                                                    engine a session moves */
    ngx_http_upstream_srv_conf_t   upstream;     /* peers of ours: the agents */
} ngx_http_sandbox_dagger_t;


/* an engine as the owner told it; a copy */

typedef struct {
    ngx_uint_t                     ready;
    ngx_msec_t                     since;        /* ngx_current_msec when ready
                                                    changed last */
    ngx_uint_t                     heard;        /* how often the owner was, or
                                                    was found to be silent */
    uint64_t                       generation;   /* rises with each session */
    ngx_str_t                      metadata;     /* points into data */
    ngx_str_t                      domain;
    ngx_str_t                      proxy;        /* of egress; empty: none */
    u_char                         data[SANDBOX_ENGINE_MAX_METADATA
                                        + SANDBOX_ENGINE_MAX_DOMAIN
                                        + SANDBOX_WIRE_MAX_PROXY];
} ngx_http_sandbox_engine_state_t;


typedef struct ngx_http_sandbox_query_s  ngx_http_sandbox_query_t;


/*
 * One question to an engine.  The caller fills the first part and keeps it in
 * the pool of the request; the handler is called once, from the event loop,
 * never from ngx_http_sandbox_query(), and not at all if the request ends.
 */

struct ngx_http_sandbox_query_s {
    const ngx_http_sandbox_engine_t *engine;
    ngx_str_t                      metadata;     /* must live as long */
    ngx_chain_t                   *body;         /* the JSON, in memory; it
                                                    is left as it is */
    size_t                         max;          /* bytes of the answer */
    ngx_msec_t                     timeout;      /* of all; to connect there is
                                                    "sandbox_connect_timeout" */
    ngx_uint_t                     stays;        /* 1: it goes on when the
                                                    client is gone */
    ngx_uint_t                     needed;       /* 1: its answer is taken,
                                                    whatever the tenant holds */
    void                          (*handler)(ngx_http_request_t *r,
                                             ngx_http_sandbox_query_t *q);
    void                          *data;

    /*
     * NGX_OK: root is the answer, and has "data".  NGX_DECLINED: the engine
     * says why not in message, which is fit for a log and for clients;
     * exit_code, output and so on are set if it was an EXEC_ERROR; begun: it
     * was the exec that failed, or was ended, which may have done something.
     * NGX_ABORT: no answer; nothing was connected to.  NGX_BUSY: the tenant
     * has no memory for it, which ctx->problem says.  NGX_ERROR: the
     * connection was lost, or the answer is no answer, or time ran out: what
     * was asked for may still happen.  Freed with the pool.
     */
    ngx_int_t                      status;
    json_t                        *root;
    ngx_str_t                      message;
    ngx_int_t                      exit_code;
    ngx_uint_t                     exec_error;
    ngx_uint_t                     begun;
    ngx_str_t                      output;
    ngx_str_t                      errors;       /* its stderr */
};


/* ngx_http_sandbox_dagger_query.c; NGX_ERROR: no memory, no handler */

ngx_int_t ngx_http_sandbox_query(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q);


/* ngx_http_sandbox_dagger_conf.c: directives, the environment */

#define NGX_HTTP_SANDBOX_ENGINE_ENVIRONMENT                                  \
    "ARCHESTRA_CODE_RUNTIME_DAGGER_RUNNER_HOST"

char *ngx_http_sandbox_conf_dagger(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_dagger_image(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

void ngx_http_sandbox_dagger_merge(ngx_http_sandbox_loc_conf_t *conf,
    ngx_http_sandbox_loc_conf_t *prev);

/* Which backend a location has that does not name one. */
ngx_http_sandbox_backend_t *ngx_http_sandbox_backend(
    ngx_http_sandbox_loc_conf_t *slcf);

/* Engines, image and times of a location that serves; logs, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_dagger_settle(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_http_sandbox_dagger_t *dagger,
    ngx_str_t *location);

/* slcf->runner: who holds the sessions of its engines. */
ngx_int_t ngx_http_sandbox_dagger_owner(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *location);


/* ngx_http_sandbox_dagger_engines.c: what is known of engines, in the zone */

/* Their places, at each start and reload; NGX_ERROR. */
ngx_int_t ngx_http_sandbox_engines_init_zone(ngx_shm_zone_t *shm_zone,
    ngx_http_sandbox_main_conf_t *smcf, void **shared);

/* One word, without a lock. */
ngx_uint_t ngx_http_sandbox_engine_ready(const ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine);

void ngx_http_sandbox_engine_read(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine,
    ngx_http_sandbox_engine_state_t *state);

/* Whether its containers have a proxy for egress. */
ngx_uint_t ngx_http_sandbox_engine_proxied(
    const ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine);

/* Why it is not ready, as the owner has it; room for ..._MAX_REASON bytes. */
size_t ngx_http_sandbox_engine_reason(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine, u_char *reason);

/* The owner's answer to PING: engines that are not in it are lost. */
void ngx_http_sandbox_engines_learned(ngx_http_sandbox_main_conf_t *smcf,
    const ngx_http_sandbox_runner_t *owner, u_char *p, size_t n,
    ngx_log_t *log);

/* The owner does not answer: nothing is known of its engines any more. */
void ngx_http_sandbox_engines_lost(ngx_http_sandbox_main_conf_t *smcf,
    const ngx_http_sandbox_runner_t *owner, ngx_log_t *log);

/* Asks the owner soon, not in five seconds: from any worker. */
void ngx_http_sandbox_engines_doubt(ngx_http_sandbox_zone_t *zone);

/* Whether somebody has, since this was asked. */
ngx_uint_t ngx_http_sandbox_engines_doubted(ngx_http_sandbox_zone_t *zone);

/*
 * Whether its containers are to be connected to (1), or everything goes by
 * execs (0).  While they are out of reach one caller in a minute gets 1, who
 * should try; what was found out is told by ..._route().
 */
ngx_uint_t ngx_http_sandbox_engine_direct(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine);
void ngx_http_sandbox_engine_route(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine, ngx_uint_t direct);

/* The same, to look at it only. */
ngx_uint_t ngx_http_sandbox_engine_reached(
    const ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine);

void ngx_http_sandbox_engine_count(ngx_http_sandbox_zone_t *zone,
    const ngx_http_sandbox_engine_t *engine,
    ngx_http_sandbox_engine_counter_e counter);

size_t ngx_http_sandbox_engines_metrics_size(
    ngx_http_sandbox_main_conf_t *smcf);
u_char *ngx_http_sandbox_engines_metrics(u_char *p,
    ngx_http_sandbox_main_conf_t *smcf);


/* ngx_http_sandbox_dagger_egress.c: the way out */

/*
 * Into the head of a command: the proxy of its engine and a token, where it
 * has a policy; may be called again.  NGX_DECLINED: the head would be too
 * large.
 */
ngx_int_t ngx_http_sandbox_dagger_egress(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_engine_t *engine,
    const ngx_str_t *proxy);

ngx_uint_t ngx_http_sandbox_dagger_egress_state(
    const ngx_http_sandbox_loc_conf_t *slcf);

/* When all is read, of a location with "sandbox_egress": warns. */
void ngx_http_sandbox_dagger_egress_check(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *slcf);


/* ngx_http_sandbox_dagger.c: the entry of the table of backends */

extern ngx_http_sandbox_backend_t  ngx_http_sandbox_dagger;


/* ngx_http_sandbox_dagger_start.c: makes sure of the agent, then the wire */

ngx_int_t ngx_http_sandbox_dagger_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

extern const ngx_http_sandbox_hooks_t  ngx_http_sandbox_dagger_hooks;

/* peer.init of the upstream in ..._dagger_t, which needs nothing else */
ngx_int_t ngx_http_sandbox_dagger_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);


#endif /* _NGX_HTTP_SANDBOX_DAGGER_H_INCLUDED_ */
