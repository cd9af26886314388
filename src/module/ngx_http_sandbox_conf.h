/*
 * For setters of directives: what all of them say in the same way.  Nothing
 * for requests.
 */

#ifndef _NGX_HTTP_SANDBOX_CONF_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_CONF_H_INCLUDED_


#include "ngx_http_sandbox.h"


char *ngx_http_sandbox_conf_leeway(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* warns of variables that are used, but not kept by "env" */

void ngx_http_sandbox_conf_variables(ngx_cycle_t *cycle,
    const ngx_http_sandbox_main_conf_t *smcf);

/* 64 hexadecimal digits of a file; in the pool; logs, NGX_ERROR */

ngx_int_t ngx_http_sandbox_conf_read_key(ngx_conf_t *cf,
    const ngx_str_t *file, u_char **key);

void ngx_http_sandbox_conf_merge_caps(ngx_http_sandbox_caps_t *conf,
    ngx_http_sandbox_caps_t *prev);

/* NAME=VALUE from the second argument on: no name stands twice */

ngx_int_t ngx_http_sandbox_conf_once(ngx_conf_t *cf);

/* the one that begins with "NAME=", or NULL */

ngx_str_t *ngx_http_sandbox_conf_parameter(ngx_conf_t *cf, const char *name);


#endif /* _NGX_HTTP_SANDBOX_CONF_H_INCLUDED_ */
