/*
 * GET openapi.json.
 */

#ifndef _NGX_HTTP_SANDBOX_OPENAPI_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OPENAPI_H_INCLUDED_


#include "ngx_http_sandbox.h"


ngx_int_t ngx_http_sandbox_openapi_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


#endif /* _NGX_HTTP_SANDBOX_OPENAPI_H_INCLUDED_ */
