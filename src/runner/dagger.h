/*
 * sandbox-runner --dagger: holds a session on each container engine, so that
 * what nginx starts there outlives nginx.  What its files share.  It makes
 * no containers and never sees a command: nginx speaks to engines itself.
 */

#ifndef RUNNER_DAGGER_H
#define RUNNER_DAGGER_H

#include <limits.h>
#include <stdint.h>
#include <sys/socket.h>

#include "error.h"
#include "loop.h"
#include "options.h"


#define DAGGER_MAX_NAME        128               /* "tcp://host:port" */
#define DAGGER_MAX_METADATA    640               /* base64 of the header */
#define DAGGER_MAX_DETAIL      256
#define DAGGER_ID_SIZE         29                /* "sbx-" and 24 digits */
#define DAGGER_TOKEN_SIZE      33
#define DAGGER_DOMAIN_SIZE     32                /* 13 digits and a domain */


typedef struct dagger_s         dagger_t;
typedef struct dagger_engine_s  dagger_engine_t;
typedef struct dagger_attach_s  dagger_attach_t;
typedef struct dagger_http_s    dagger_http_t;
typedef struct dagger_egress_s  dagger_egress_t;


typedef enum {
    DAGGER_OFF = 0,                      /* waits for its next attempt */
    DAGGER_LEAVING,                      /* ends the session before */
    DAGGER_ATTACHING,                    /* until the engine has answered */
    DAGGER_ASKING,                       /* until a query was answered */
    DAGGER_READY
} dagger_state_e;


/* what makes a session, new for each */

typedef struct {
    char               client[DAGGER_ID_SIZE];
    char               session[DAGGER_ID_SIZE];
    char               token[DAGGER_TOKEN_SIZE];
    char               metadata[DAGGER_MAX_METADATA];
    char               domain[DAGGER_DOMAIN_SIZE];
    uint64_t           generation;       /* rises; Unix time in ms at least */
} dagger_session_t;


struct dagger_engine_s {
    dagger_t                *dagger;
    char                     name[DAGGER_MAX_NAME];
    struct sockaddr_storage  address;
    socklen_t                address_size;

    dagger_state_e           state;
    dagger_session_t         session;
    int                      attached;   /* the engine knows the session */
    dagger_attach_t         *attach;     /* the connection that is held */
    dagger_http_t           *http;       /* one request at a time */
    runner_timer_t           timer;
    unsigned                 failures;   /* in turn */
    char                     detail[DAGGER_MAX_DETAIL];  /* why not ready */
    char                     told[DAGGER_MAX_DETAIL];    /* as the log has it */
};


struct dagger_s {
    runner_loop_t      loop;
    runner_options_t  *options;
    runner_event_t     listener;
    runner_event_t     signals;
    runner_timer_t     timer;
    int                listening;        /* 1: the socket file is ours */
    int                ending;
    unsigned           conns;
    uint64_t           generation;       /* the last one that was given */
    dagger_engine_t    engines[DAGGER_MAX_ENGINES];
    unsigned           nengines;
    dagger_egress_t   *egress;           /* the table, and the proxy */
};


/* dagger.c: the daemon; returns its exit status.  Signals are blocked. */
int dagger_main(runner_options_t *options);

/*
 * dagger_address.c: "tcp://HOST:PORT" or "unix:///PATH".  Names are looked up
 * at start only.  0, or -1 with what is wrong.
 */
int dagger_address(dagger_engine_t *engine, const char *text,
    runner_error_t *err);

/* dagger_session.c */

/* A new identity, its generation above the last one.  0, or -1. */
int dagger_session_make(dagger_session_t *session, uint64_t generation);

/* Size bytes with a NUL; dst has room for 4 * (n + 2) / 3 + 1. */
size_t dagger_base64(char *dst, const uint8_t *src, size_t n);

/* The domain of a session's services, from the session's id. */
void dagger_domain(char *domain, const char *session);

/* dagger_engine.c */
void dagger_engine_start(dagger_engine_t *engine);

/* What is held was lost, or the engine said no: begins again, later. */
void dagger_engine_lost(dagger_engine_t *engine, const char *why);

/* As above, of a connection that failed; it may have been closed by it. */
void dagger_engine_failed(dagger_engine_t *engine, int error);

/* As above: what it has answered is no word of an engine. */
void dagger_engine_foreign(dagger_engine_t *engine, const char *answer);

/* Whether a body is a page of some web server. */
int dagger_engine_page(const char *body);

/* The held connection is up. */
void dagger_engine_attached(dagger_engine_t *engine);

/* Ends the session for good; 1 while that is under way. */
int dagger_engine_end(dagger_engine_t *engine);

/* dagger_attach.c: the held connection, with our side of gRPC on it. */
dagger_attach_t *dagger_attach_start(dagger_engine_t *engine);
void dagger_attach_free(dagger_attach_t *attach);

/*
 * dagger_http.c: one POST on a connection of its own.  The handler gets the
 * status and the body (NUL-terminated, of at most 64 KiB), or status 0 and
 * why; the request is gone by then.  NULL: could not begin.
 */
typedef void (*dagger_http_handler_t)(dagger_engine_t *engine, int status,
    const char *body);

dagger_http_t *dagger_http_post(dagger_engine_t *engine, const char *path,
    const char *body, unsigned ms, dagger_http_handler_t handler);
void dagger_http_free(dagger_http_t *http);

/* A socket that connects to the engine; -1 and errno. */
int dagger_connect(dagger_engine_t *engine);

/* dagger_egress.c: policies of nginx, and the proxy where there is one */
int dagger_egress_start(dagger_t *dagger, runner_error_t *err);
void dagger_egress_end(dagger_t *dagger);

/* Room for the body of an EGRESS; NULL: none, or another one comes in. */
uint8_t *dagger_egress_room(dagger_t *dagger, size_t size);

/* It does not come (NULL: there was none). */
void dagger_egress_leave(dagger_t *dagger, uint8_t *body);

/* Head and body of an EGRESS, owns body.  0 and the digest; -1: refused. */
int dagger_egress_take(dagger_t *dagger, const uint8_t *head, size_t head_size,
    uint8_t *body, size_t size, const uint8_t **digest);

/* Of a PING: digest and counters; the proxy of an engine, or NULL. */
void dagger_egress_fields(dagger_t *dagger, sandbox_writer_t *w);
const char *dagger_egress_proxy(dagger_t *dagger, unsigned engine);

/* dagger_serve.c: nginx, which asks where the engines are. */
int dagger_serve_start(dagger_t *dagger, runner_error_t *err);
void dagger_serve_end(dagger_t *dagger);


#endif /* RUNNER_DAGGER_H */
