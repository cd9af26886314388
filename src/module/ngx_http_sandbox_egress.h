/*
 * Egress: named policies, which of them a request's sandbox has, and the
 * table of them that runners get.
 */

#ifndef _NGX_HTTP_SANDBOX_EGRESS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_EGRESS_H_INCLUDED_


#include "ngx_http_sandbox_metrics.h"


#define NGX_HTTP_SANDBOX_EGRESS_DIGEST  32       /* SHA-256 */


/* "sandbox_egress_policy" */

typedef struct {
    ngx_str_t                      name;
    ngx_str_t                      file;         /* where it stands */
    ngx_uint_t                     line;
    uint32_t                       id;           /* 0: no names, no network */
    ngx_array_t                    hosts;        /* ngx_str_t, sorted */
    ngx_int_t                      connections;
    off_t                          bytes;
    ngx_msec_t                     time;
    ngx_str_t                      index;        /* empty: none */
    ngx_str_t                      index_file;   /* where it stands */
    ngx_uint_t                     index_line;
    ngx_str_t                      ca_file;
    ngx_str_t                      ca;           /* PEM, certificates only */
} ngx_http_sandbox_egress_policy_t;


/* "sandbox_egress", one for each place where it stands */

typedef struct ngx_http_sandbox_egress_s {
    ngx_str_t                      value;        /* as written */
    ngx_str_t                      file;
    ngx_uint_t                     line;
    const ngx_http_sandbox_egress_policy_t  *policy;   /* NULL: none */
    const ngx_http_variable_t     *variable;     /* NULL: always `policy` */
    ngx_uint_t                     conversation; /* the variable depends on
                                                    the one of the request */
} ngx_http_sandbox_egress_t;


/* all of them, and what runners get to know: ready when all is read */

typedef struct ngx_http_sandbox_egresses_s {
    ngx_array_t                    policies;     /* ..._egress_policy_t * */
    ngx_array_t                    uses;         /* ..._egress_t * */
    ngx_array_t                    served;       /* ..._loc_conf_t *, that
                                                    have one of them */
    ngx_str_t                      table;
    u_char                         digest[NGX_HTTP_SANDBOX_EGRESS_DIGEST];
} ngx_http_sandbox_egresses_t;


/* what a runner counted for one policy, in the order of the wire */

typedef struct {
    uint64_t                       id;
    uint64_t                       open;
    uint64_t                       tunnels;
    uint64_t                       refused;
    uint64_t                       failed;
    uint64_t                       up;           /* bytes */
    uint64_t                       down;
} ngx_http_sandbox_egress_count_t;


/* of one runner, in shared memory: as the last PING told it */

typedef struct ngx_http_sandbox_egress_counts_s {
    ngx_uint_t                     n;
    ngx_http_sandbox_egress_count_t  count[SANDBOX_WIRE_MAX_POLICIES];
} ngx_http_sandbox_egress_counts_t;


/* ngx_http_sandbox_conf_egress.c: the setters */

char *ngx_http_sandbox_conf_egress_policy(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_egress(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* The one of that name, or NULL. */
ngx_http_sandbox_egress_policy_t *ngx_http_sandbox_egress_find(
    const ngx_http_sandbox_egresses_t *egress, const ngx_str_t *name);

/* "none" and "off" */
ngx_uint_t ngx_http_sandbox_egress_is_none(const ngx_str_t *name);


/* ngx_http_sandbox_conf_egress_table.c: when all is read */

/* A location that serves; NGX_ERROR: no memory. */
ngx_int_t ngx_http_sandbox_egress_serves(ngx_http_sandbox_loc_conf_t *conf);

/* Names become policies, and these a table; logs and returns NGX_ERROR. */
ngx_int_t ngx_http_sandbox_egress_init(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf);


/* ngx_http_sandbox_conf_egress_source.c: what a variable is made of */

/*
 * Whether clients have no way to choose what the variable has: it must be what
 * a token says of them, or a map of that.  Logs and returns NGX_ERROR.
 */
ngx_int_t ngx_http_sandbox_egress_source(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_egress_t *use);


/* ngx_http_sandbox_egress.c: at request time */

/* The policy of the request's sandbox, after the identity; NULL: none. */
const ngx_http_sandbox_egress_policy_t *ngx_http_sandbox_egress(
    ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx);

/* Its number, for the preamble of an operation; 0: none. */
uint32_t ngx_http_sandbox_egress_id(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* For v1/limits: "egress" as a member after others, and its room. */
u_char *ngx_http_sandbox_egress_limits(u_char *p,
    const ngx_http_sandbox_egress_policy_t *policy, ngx_uint_t state);
size_t ngx_http_sandbox_egress_limits_size(
    const ngx_http_sandbox_egress_policy_t *policy);

/* One EGRESS_COUNT of PING's answer. */
void ngx_http_sandbox_egress_count(ngx_http_sandbox_egress_counts_t *counts,
    sandbox_field_t *field);

/* For "sandbox_metrics", likewise. */
u_char *ngx_http_sandbox_egress_metrics(u_char *p,
    ngx_http_sandbox_main_conf_t *smcf);
size_t ngx_http_sandbox_egress_metrics_size(
    ngx_http_sandbox_main_conf_t *smcf);


/* ngx_http_sandbox_zone.c */

/* Whether that runner had our table at the last PING. */
ngx_uint_t ngx_http_sandbox_slot_egress(
    const ngx_http_sandbox_runner_t *runner,
    ngx_http_sandbox_egress_counts_t *counts);
void ngx_http_sandbox_slot_set_egress(
    const ngx_http_sandbox_runner_t *runner, ngx_uint_t in_force,
    const ngx_http_sandbox_egress_counts_t *counts);

/*
 * Of two workers 0, while one leaves, the table of the younger counts: makes it
 * this one, by the number that is returned; and whose it is at present.
 */
ngx_uint_t ngx_http_sandbox_slot_egress_take(
    const ngx_http_sandbox_runner_t *runner);
ngx_uint_t ngx_http_sandbox_slot_egress_taken(
    const ngx_http_sandbox_runner_t *runner);


#endif /* _NGX_HTTP_SANDBOX_EGRESS_H_INCLUDED_ */
