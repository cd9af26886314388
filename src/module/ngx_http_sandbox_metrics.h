/*
 * Counters in the zone, and "sandbox_metrics", which tells them.
 */

#ifndef _NGX_HTTP_SANDBOX_METRICS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_METRICS_H_INCLUDED_


#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_METRICS_BUCKETS  16     /* of a histogram */
#define NGX_HTTP_SANDBOX_METRICS_CODES    128    /* of refusals */
#define NGX_HTTP_SANDBOX_METRICS_COUNTED  512    /* commands, by hashes */

/* outcomes of the wire, and then */

#define NGX_HTTP_SANDBOX_METRICS_FAILED      SANDBOX_OUTCOME_LAST
#define NGX_HTTP_SANDBOX_METRICS_BACKGROUND  (SANDBOX_OUTCOME_LAST + 1)
#define NGX_HTTP_SANDBOX_METRICS_UNSEEN      (SANDBOX_OUTCOME_LAST + 2)
#define NGX_HTTP_SANDBOX_METRICS_OUTCOMES    (SANDBOX_OUTCOME_LAST + 3)


typedef struct {
    ngx_atomic_t                   bucket[NGX_HTTP_SANDBOX_METRICS_BUCKETS];
    ngx_atomic_t                   sum;          /* microseconds */
} ngx_http_sandbox_histogram_t;


typedef struct {
    ngx_atomic_t                   count;
    u_char                         len;
    u_char                         name[31];
} ngx_http_sandbox_refusals_t;


/* all of it lives in shared memory, each word changes atomically */

typedef struct ngx_http_sandbox_metrics_s {
    ngx_atomic_t                   commands[
                                          NGX_HTTP_SANDBOX_METRICS_OUTCOMES];
    ngx_http_sandbox_histogram_t   queued;
    ngx_http_sandbox_histogram_t   duration;
    ngx_atomic_t                   requests[6];  /* by class; 0: no status */
    ngx_atomic_t                   received;     /* bytes */
    ngx_atomic_t                   sent;
    ngx_atomic_t                   counted[NGX_HTTP_SANDBOX_METRICS_COUNTED];
    ngx_atomic_t                   ncodes;
    ngx_atomic_t                   others;       /* refusals of no such code */
    ngx_http_sandbox_refusals_t    codes[NGX_HTTP_SANDBOX_METRICS_CODES];
} ngx_http_sandbox_metrics_t;


/* what PING tells of a host in numbers, in the order in which it is told */

typedef struct {
    uint64_t                       sandboxes;
    uint64_t                       live;
    uint64_t                       creating;
    uint64_t                       failed;
    uint64_t                       pool;
    uint64_t                       running;
    uint64_t                       queued;
    uint64_t                       draining;
} ngx_http_sandbox_host_t;


char *ngx_http_sandbox_conf_metrics(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* The RESULT of a command is here. */
void ngx_http_sandbox_metrics_result(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* A command's connection ended without one, and its client is told so. */
void ngx_http_sandbox_metrics_lost(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* ctx->problem goes to a client. */
void ngx_http_sandbox_metrics_refusal(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* "# HELP" and "# TYPE" of a family; and NAME{runner="RUNNER */
u_char *ngx_http_sandbox_metrics_help(u_char *p, const char *name,
    const char *type, const char *help);
u_char *ngx_http_sandbox_metrics_runner(u_char *p, const char *name,
    const ngx_http_sandbox_runner_t *runner);

/* A field of PING's answer, if it is one of these. */
void ngx_http_sandbox_metrics_host(ngx_http_sandbox_host_t *host,
    sandbox_field_t *field);

/* In the log phase. */
ngx_int_t ngx_http_sandbox_metrics_log(ngx_http_request_t *r);


/* ngx_http_sandbox_zone.c */

void ngx_http_sandbox_slot_host(const ngx_http_sandbox_runner_t *runner,
    ngx_http_sandbox_host_t *host);
void ngx_http_sandbox_slot_set_host(const ngx_http_sandbox_runner_t *runner,
    const ngx_http_sandbox_host_t *host);


#endif /* _NGX_HTTP_SANDBOX_METRICS_H_INCLUDED_ */
