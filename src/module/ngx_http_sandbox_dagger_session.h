/*
 * What the zone remembers of sessions on engines, so that a request can go
 * straight to their agents, and the counters of commands that run.
 */

#ifndef _NGX_HTTP_SANDBOX_DAGGER_SESSION_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_DAGGER_SESSION_H_INCLUDED_


#include "ngx_http_sandbox.h"


/* what is to be told with the next result of a command */

#define NGX_HTTP_SANDBOX_KEPT    0
#define NGX_HTTP_SANDBOX_MOVED   1               /* its engine is gone */
#define NGX_HTTP_SANDBOX_WIPED   2               /* it lost its files */


#define NGX_HTTP_SANDBOX_NO_ENGINE  ((ngx_uint_t) -1)


/* a session, copied out of the zone */

typedef struct {
    ngx_uint_t                     engine;       /* number, or NO_ENGINE */
    uint32_t                       definition;   /* image, network: a hash */
    uint64_t                       generation;
    in_addr_t                      address;      /* 0: not known */
    uint64_t                       instance;     /* 0: not known */
    ngx_uint_t                     lost;         /* ..._KEPT and so on */
    ngx_uint_t                     stored;       /* 1: so is it in the store */
    ngx_uint_t                     exec;         /* 1: nobody connects to it */
    time_t                         used;
} ngx_http_sandbox_agent_t;


/* what became of one */

typedef enum {
    NGX_HTTP_SANDBOX_AGENT_SILENT,               /* no answer at its address,
                                                    if that is still it */
    NGX_HTTP_SANDBOX_AGENT_RESULT,               /* instance, lost, stored */
    NGX_HTTP_SANDBOX_AGENT_FRESH,                /* the instance will be
                                                    another one */
    NGX_HTTP_SANDBOX_AGENT_DELETED
} ngx_http_sandbox_agent_change_e;


/* When the zone is made; NULL: no room, and then nothing is remembered. */
struct ngx_http_sandbox_agents_s *ngx_http_sandbox_agents_create(
    ngx_slab_pool_t *shpool, size_t size);

/*
 * NGX_OK: *agent is a copy, and it is used (0: looked at only).
 * NGX_DECLINED: not known.
 */
ngx_int_t ngx_http_sandbox_agent_find(ngx_http_sandbox_zone_t *zone,
    const u_char *session, ngx_http_sandbox_agent_t *agent, ngx_uint_t use);

/*
 * Where it is: engine, definition, generation, address, exec.  On another one
 * than before its instance is not known; `lost` is added.  A zone that is
 * full forgets those that were not used for longest.
 */
void ngx_http_sandbox_agent_place(ngx_http_sandbox_zone_t *zone,
    const u_char *session, const ngx_http_sandbox_agent_t *agent);

/* Of one that is known; the agent is as its request knows it. */
void ngx_http_sandbox_agent_change(ngx_http_sandbox_zone_t *zone,
    const u_char *session, ngx_http_sandbox_agent_change_e change,
    const ngx_http_sandbox_agent_t *agent);

/*
 * A command is to run: NGX_OK, or NGX_BUSY if as many do as may.  Each that
 * was taken is given back by the same process; what a process has that died
 * goes back by itself.
 */
ngx_int_t ngx_http_sandbox_run_take(ngx_http_sandbox_zone_t *zone);
void ngx_http_sandbox_run_give(ngx_http_sandbox_zone_t *zone);

/* How many commands run, in all workers. */
ngx_uint_t ngx_http_sandbox_runs(ngx_http_sandbox_zone_t *zone);

/* A worker begins: whoever had its place is dead. */
void ngx_http_sandbox_runs_init_process(ngx_http_sandbox_zone_t *zone);


#endif /* _NGX_HTTP_SANDBOX_DAGGER_SESSION_H_INCLUDED_ */
