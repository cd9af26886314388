/*
 * The way from an operation to the agent of its session, for the files that
 * go it: ..._dagger_start.c decides, the others ask the engine, find the
 * agent, and give its connection to the upstream.
 *
 * A step returns NGX_OK when the next one is on its way, or the request has
 * been answered: it is not touched any more, it may be gone.  NGX_ERROR: no
 * memory, nothing was answered.
 */

#ifndef _NGX_HTTP_SANDBOX_DAGGER_START_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_DAGGER_START_H_INCLUDED_


#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_dagger_session.h"
#include "ngx_http_sandbox_stage.h"
#include "ngx_http_sandbox_store.h"


#define NGX_HTTP_SANDBOX_AGENT_PORT    9000
#define NGX_HTTP_SANDBOX_VOLUMES       3         /* home, skills, meta */
#define NGX_HTTP_SANDBOX_VOLUME_ID     512       /* bytes of one's id */
#define NGX_HTTP_SANDBOX_HOST_NAME     63        /* bytes */


typedef struct ngx_http_sandbox_session_s  ngx_http_sandbox_session_t;

typedef ngx_int_t (*ngx_http_sandbox_step_pt)(ngx_http_sandbox_session_t *s);


struct ngx_http_sandbox_session_s {
    ngx_http_request_t            *request;
    ngx_http_sandbox_ctx_t        *ctx;
    ngx_http_sandbox_zone_t       *zone;

    const ngx_http_sandbox_engine_t *engine;     /* NULL: not chosen */
    ngx_http_sandbox_engine_state_t  state;      /* of it */
    ngx_http_sandbox_agent_t       agent;        /* as it is, or will be */
    ngx_http_sandbox_agent_t       found;        /* by the store */
    struct sandbox_store_engine_s *record;       /* NULL: it was not asked */
    u_char                         secret[SANDBOX_WIRE_KEY_SIZE];

    /* questions */
    ngx_http_sandbox_query_t       query;
    ngx_str_t                      volumes[NGX_HTTP_SANDBOX_VOLUMES];
    ngx_str_t                      host;         /* the agent's name */

    /* waiting */
    ngx_event_t                    event;        /* posted, or a timer */
    ngx_http_sandbox_step_pt       step;         /* with it */
    ngx_resolver_ctx_t            *resolving;
    ngx_msec_t                     until;        /* no more attempts then */
    ngx_msec_t                     pause;        /* before the next one */
    ngx_uint_t                     looks;        /* at the zone, so far, */
    ngx_uint_t                     least;        /* and so many at least */
    ngx_uint_t                     heard;        /* of the owner, before */

    /* the connection, before and while the upstream has it */
    ngx_peer_connection_t          peer;
    struct sockaddr_in             sockaddr;
    ngx_str_t                      name;         /* for logs */
    u_char                         text[NGX_SOCKADDR_STRLEN];
    ngx_recv_pt                    recv;
    ngx_send_chain_pt              send_chain;

    void                          *execution;    /* of ..._dagger_exec.c */

    ngx_uint_t                     attempts;     /* of all this */
    ngx_uint_t                     sends;        /* of the operation */
    ngx_uint_t                     lost;         /* tells the result */

    unsigned                       running:1;    /* it has a run slot */
    unsigned                       recorded:1;   /* the store has it */
    unsigned                       cached:1;     /* the zone's address */
    unsigned                       exec:1;       /* nobody is connected to */
    unsigned                       coming:1;     /* it was started */
    unsigned                       near:1;       /* it was reached once */
    unsigned                       silent:1;     /* not even a refusal */
    unsigned                       fresh:1;      /* it was asked for */
    unsigned                       told:1;       /* an exec said something */
};


/* ngx_http_sandbox_dagger_start.c */

/* The request's, made with its first operation; NULL: no memory. */
ngx_http_sandbox_session_t *ngx_http_sandbox_dagger_session(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);

/* Its run slot goes back, if it has one. */
void ngx_http_sandbox_dagger_give(ngx_http_sandbox_session_t *s);

/* The problem goes to the client, whatever waits for an answer. */
ngx_int_t ngx_http_sandbox_dagger_refuse(ngx_http_sandbox_session_t *s,
    ngx_uint_t status, const char *code, const char *detail);

/* Likewise ctx->problem, as it is. */
ngx_int_t ngx_http_sandbox_dagger_problem(ngx_http_sandbox_session_t *s);

/* Which engine, and on; the first step. */
ngx_int_t ngx_http_sandbox_dagger_choose(ngx_http_sandbox_session_t *s);

/* The step comes in so many milliseconds, unless the client goes. */
void ngx_http_sandbox_dagger_later(ngx_http_sandbox_session_t *s,
    ngx_msec_t ms, ngx_http_sandbox_step_pt step);

/* From an event: the step's own end, then what it has posted. */
void ngx_http_sandbox_dagger_run(ngx_http_sandbox_session_t *s,
    ngx_http_sandbox_step_pt step);

/* What the client does is heard while we wait. */
ngx_int_t ngx_http_sandbox_dagger_watch(ngx_http_sandbox_session_t *s);

/* Once more, since the agent or its engine is another one by now. */
ngx_int_t ngx_http_sandbox_dagger_again(ngx_http_sandbox_session_t *s);

/* The agent is asked for as before; the time for it runs on. */
ngx_int_t ngx_http_sandbox_dagger_restart(ngx_http_sandbox_session_t *s);

/* There is an agent, but no way to it. */
ngx_int_t ngx_http_sandbox_dagger_unreached(ngx_http_sandbox_session_t *s);


/* ngx_http_sandbox_dagger_record.c: what the store knows of the session */

/* s->found, then ngx_http_sandbox_dagger_choose(). */
ngx_int_t ngx_http_sandbox_record_read(ngx_http_sandbox_session_t *s);

/* s->found from s->record, if that is one (s->recorded). */
void ngx_http_sandbox_record_known(ngx_http_sandbox_session_t *s);

void ngx_http_sandbox_record_write(ngx_http_sandbox_session_t *s,
    uint64_t instance);


/* ngx_http_sandbox_dagger_ask.c: questions and answers */

/* {home{id} skills{id} meta{id}} */
ngx_int_t ngx_http_sandbox_ask_volumes(ngx_http_sandbox_session_t *s,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q));
ngx_int_t ngx_http_sandbox_ask_volumes_read(ngx_http_sandbox_session_t *s);

/* {start hostname} */
ngx_int_t ngx_http_sandbox_ask_service(ngx_http_sandbox_session_t *s,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q));
ngx_int_t ngx_http_sandbox_ask_service_read(ngx_http_sandbox_session_t *s);

/*
 * {exitCode stdout stderr} of an agent for one operation, whose request is the
 * text from `in` to `last`; and its stdout.
 */
ngx_int_t ngx_http_sandbox_ask_exec(ngx_http_sandbox_session_t *s,
    ngx_chain_t *in, ngx_chain_t *last, size_t max, ngx_msec_t timeout,
    ngx_uint_t stays,
    void (*handler)(ngx_http_request_t *r, ngx_http_sandbox_query_t *q));
json_t *ngx_http_sandbox_ask_exec_read(ngx_http_sandbox_session_t *s);

/* HMAC-SHA256 of session and generation into s->secret. */
ngx_int_t ngx_http_sandbox_ask_secret(ngx_http_sandbox_session_t *s);


/* ngx_http_sandbox_dagger_peer.c: address, connection, upstream */

/* From the agent's name to its address, and on. */
ngx_int_t ngx_http_sandbox_peer_resolve(ngx_http_sandbox_session_t *s);

/* From its address to an upstream. */
ngx_int_t ngx_http_sandbox_peer_connect(ngx_http_sandbox_session_t *s);

/* s->peer.connection is there, and the operation goes over it. */
ngx_int_t ngx_http_sandbox_peer_send(ngx_http_sandbox_session_t *s);

/* 1: nothing of a body, or of files, is gone that can't be sent again. */
ngx_uint_t ngx_http_sandbox_peer_repeatable(ngx_http_sandbox_session_t *s);

/* The operation is sent once more, from an event; the upstream is silent. */
void ngx_http_sandbox_peer_repeat(ngx_http_sandbox_session_t *s);

/* Whatever is waited for. */
void ngx_http_sandbox_peer_cancel(ngx_http_sandbox_session_t *s);


/* ngx_http_sandbox_dagger_exec.c: where no connection is possible */

/* The volumes are known: the operation goes by one exec of the engine. */
ngx_int_t ngx_http_sandbox_exec(ngx_http_sandbox_session_t *s);


#endif /* _NGX_HTTP_SANDBOX_DAGGER_START_H_INCLUDED_ */
