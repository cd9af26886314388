/*
 * Puts together the records of a list and gives room for their JSON.  Knows
 * neither what is in a record nor what is made of it.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_records.h"


#define NGX_HTTP_SANDBOX_RECORDS_BUF  (32 * 1024)


static ngx_int_t ngx_http_sandbox_records_take(
    ngx_http_sandbox_records_t *records, u_char **p, size_t *n);


const char *
ngx_http_sandbox_records_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_records_t *records,
    ngx_http_sandbox_records_pt handler, u_char *p, size_t n)
{
    ngx_int_t    rc;
    const char  *what;

    if (p == NULL) {
        return records->have ? "a record that is cut short" : NULL;
    }

    for ( ;; ) {

        rc = ngx_http_sandbox_records_take(records, &p, &n);

        if (rc == NGX_AGAIN) {
            return NULL;
        }

        if (rc == NGX_DECLINED) {
            return "a record of no or too many bytes";
        }

        what = handler(r, ctx);
        if (what) {
            return what;
        }
    }
}


/* NGX_OK: a whole one; NGX_AGAIN: all is taken; NGX_DECLINED: its length */

static ngx_int_t
ngx_http_sandbox_records_take(ngx_http_sandbox_records_t *records, u_char **p,
    size_t *n)
{
    size_t  m;

    while (*n) {

        if (records->have < 4) {

            records->length[records->have++] = *(*p)++;
            (*n)--;

            if (records->have < 4) {
                continue;
            }

            records->size = sandbox_get32(records->length);
            records->got = 0;

            if (records->size == 0 || records->size > records->max) {
                return NGX_DECLINED;
            }
        }

        m = ngx_min(*n, records->size - records->got);

        ngx_memcpy(records->record + records->got, *p, m);

        records->got += m;
        *p += m;
        *n -= m;

        if (records->got == records->size) {
            records->have = 0;
            return NGX_OK;
        }
    }

    return NGX_AGAIN;
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
