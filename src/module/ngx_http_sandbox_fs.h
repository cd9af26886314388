/*
 * The container's file system over HTTP: what its files have in common.
 */

#ifndef _NGX_HTTP_SANDBOX_FS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_FS_H_INCLUDED_


#include "ngx_http_sandbox_store.h"
#include "ngx_http_sandbox_stream.h"


/* a record has a name, and where a link leads */

#define NGX_HTTP_SANDBOX_FS_RECORD  (SANDBOX_WIRE_MAX_PATH + 1024)


typedef struct ngx_http_sandbox_listing_s  ngx_http_sandbox_listing_t;


struct ngx_http_sandbox_fs_s {
    ngx_str_t                      path;         /* below the root */
    ngx_uint_t                     root;         /* sandbox_root_e */
    uint64_t                       promised;     /* bytes of the body */
    uint64_t                       passed;
    uint64_t                       first;        /* of the range asked for */
    ngx_http_sandbox_listing_t    *listing;      /* it is a directory */
    ngx_http_sandbox_stream_t      stream;
    unsigned                       list:1;       /* it must be one */
    unsigned                       file:1;       /* its headers are a file's */
    unsigned                       ranged:1;     /* a range was asked for */
    unsigned                       suffix:1;     /* so many bytes at the end */
};


/* ngx_http_sandbox_listing.c */

/* What a listing is asked for with; NGX_DECLINED with the refusal. */
ngx_int_t ngx_http_sandbox_listing_ask(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w);

/* NULL: no memory. */
ngx_http_sandbox_listing_t *ngx_http_sandbox_listing_begin(
    ngx_http_request_t *r);

/* DATA, p NULL is their end; NULL, or what is wrong. */
const char *ngx_http_sandbox_listing_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);

ngx_int_t ngx_http_sandbox_listing_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_listing_t *listing);

/* "NAME":"text", and NAMEBase64 if need be; up to 8 bytes for each of text. */
u_char *ngx_http_sandbox_listing_bytes(u_char *p, const char *name,
    ngx_str_t *text);


/* ngx_http_sandbox_path.c */

/* In its shortest form; NGX_DECLINED with the refusal, or no memory. */
ngx_int_t ngx_http_sandbox_path(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *path);


#endif /* _NGX_HTTP_SANDBOX_FS_H_INCLUDED_ */
