/*
 * A list on its way through: records of the agent in, JSON out, both bounded.
 */

#ifndef _NGX_HTTP_SANDBOX_RECORDS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_RECORDS_H_INCLUDED_


#include "ngx_http_sandbox.h"
#include "sandbox_record.h"


typedef struct {
    sandbox_record_t               in;           /* the one that comes */
    size_t                         limit;        /* bytes of all buffers */
    const char                    *opening;      /* of the JSON */

    ngx_chain_t                   *out;
    ngx_chain_t                   *last;
    size_t                         total;        /* bytes of all buffers */
} ngx_http_sandbox_records_t;


/* One is in records->in.data, of in.size bytes; what is wrong with it. */
typedef const char *(*ngx_http_sandbox_records_pt)(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/*
 * As wire->data: bytes of DATA, `u32 length || fields`, which frames may cut
 * anywhere; p NULL: there are no more.  Calls the handler for each that is
 * whole.
 */
const char *ngx_http_sandbox_records_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_records_t *records,
    ngx_http_sandbox_records_pt handler, u_char *p, size_t n);

/* A buffer of `out` with room for size bytes.  NULL: no memory, or limit. */
ngx_buf_t *ngx_http_sandbox_records_room(ngx_http_request_t *r,
    ngx_http_sandbox_records_t *records, size_t size);


#endif /* _NGX_HTTP_SANDBOX_RECORDS_H_INCLUDED_ */
