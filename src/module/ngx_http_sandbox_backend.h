/*
 * The table of backends.  Of ngx_http_sandbox.h, whose types it needs and
 * which includes it.
 */

#ifndef _NGX_HTTP_SANDBOX_BACKEND_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_BACKEND_H_INCLUDED_


/* one table, the only way from an operation to what runs it */

struct ngx_http_sandbox_backend_s {
    ngx_str_t                      name;
    ngx_uint_t                     hosted;       /* one host has them all: max,
                                                    per_tenant, queue, base */

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

    /* what it can't do now: names, NULL at the end */
    const char *const           *(*unsupported)(
                                         const ngx_http_sandbox_loc_conf_t
                                             *slcf);

    /* members of v1/limits, 128 bytes at most */
    u_char                      *(*limits)(u_char *p,
                                         const ngx_http_sandbox_loc_conf_t
                                             *slcf);

    const ngx_http_sandbox_hooks_t  *hooks;      /* while it is on the wire */

    /* of policies of egress: ..._EGRESS_IN_FORCE, ..._EGRESS_HARD, or both */
    ngx_uint_t                   (*egress)(
                                         const ngx_http_sandbox_loc_conf_t
                                             *slcf);
};


#define NGX_HTTP_SANDBOX_EGRESS_IN_FORCE   1     /* whoever enforces them has
                                                    them */
#define NGX_HTTP_SANDBOX_EGRESS_HARD       2     /* there is no way around */


/* ngx_http_sandbox_local.c */

extern ngx_http_sandbox_backend_t  ngx_http_sandbox_local;

/*
 * Who is told of the zone and asked how it is, one for each socket and key;
 * slcf->runner.  The socket's upstream is for those that make containers.
 */
ngx_int_t ngx_http_sandbox_runner(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *socket, const u_char *key,
    ngx_uint_t engines);

/* ngx_http_sandbox_health.c: of a connect() to a runner's socket, for all */
const char *ngx_http_sandbox_unreached_reason(ngx_err_t err,
    ngx_uint_t engines);

/* slcf->upstream and ->answering, to peers of ours */
void ngx_http_sandbox_runner_upstream(ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_upstream_srv_conf_t *upstream);


#endif /* _NGX_HTTP_SANDBOX_BACKEND_H_INCLUDED_ */
