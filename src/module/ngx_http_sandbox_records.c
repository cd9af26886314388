/*
 * Puts together the records of a list and gives room for their JSON.  Knows
 * neither what is in a record nor what is made of it.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_records.h"


#define NGX_HTTP_SANDBOX_RECORDS_BUF  (32 * 1024)


const char *
ngx_http_sandbox_records_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_records_t *records,
    ngx_http_sandbox_records_pt handler, u_char *p, size_t n)
{
    int             rc;
    const char     *what;
    const uint8_t  *pos;

    if (p == NULL) {
        return records->in.have ? "a record that is cut short" : NULL;
    }

    pos = p;

    for ( ;; ) {

        rc = sandbox_record_take(&records->in, &pos, &n);

        if (rc == SANDBOX_AGAIN) {
            return NULL;
        }

        if (rc == SANDBOX_BAD) {
            return "a record of no or too many bytes";
        }

        what = handler(r, ctx);
        if (what) {
            return what;
        }
    }
}


ngx_buf_t *
ngx_http_sandbox_records_room(ngx_http_request_t *r,
    ngx_http_sandbox_records_t *records, size_t size)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (records->last) {
        b = records->last->buf;

        if ((size_t) (b->end - b->last) >= size) {
            return b;
        }
    }

    size = ngx_max(size, NGX_HTTP_SANDBOX_RECORDS_BUF);

    if (records->total + size > records->limit) {
        return NULL;
    }

    b = ngx_create_temp_buf(r->pool, size);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    if (records->last) {
        records->last->next = cl;

    } else {
        records->out = cl;
        b->last = ngx_cpymem(b->last, records->opening,
                             ngx_strlen(records->opening));
    }

    records->last = cl;
    records->total += size;

    ngx_http_sandbox_budget_add(ngx_http_get_module_ctx(r,
                                                  ngx_http_sandbox_module),
                                size);

    return b;
}
