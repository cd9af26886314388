/*
 * The store as requests see it: operations that run in nginx's thread pool
 * and come back to a handler.  Their blocking half is src/store.
 */

#ifndef _NGX_HTTP_SANDBOX_STORE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_STORE_H_INCLUDED_


#include "ngx_http_sandbox_known.h"


typedef struct ngx_http_sandbox_store_op_s  ngx_http_sandbox_store_op_t;

typedef void (*ngx_http_sandbox_store_pt)(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);


/*
 * One operation, or one file that is written by several, one at a time.  The
 * request lives until it has ended, whatever the client does; its handler is
 * not called if the request was ended meanwhile by its client or a time-out;
 * whoever started it must not finalize the request before.
 * r->write_event_handler is ours until then.
 */

struct ngx_http_sandbox_store_op_s {
    ngx_http_request_t            *request;
    ngx_http_sandbox_store_pt      handler;
    void                          *data;         /* the caller's */

    sandbox_store_kind_e           kind;
    sandbox_store_place_t          place;
    sandbox_store_quota_t          quota;
    sandbox_store_condition_t      condition;    /* the caller's, or empty */

    /* asked */
    void                         (*work)(ngx_http_sandbox_store_op_t *op);
    ngx_str_t                      name;         /* lives as long as r */
    const char                    *id;           /* instead of a name */
    ngx_uint_t                     mode;         /* sandbox_store_mode_e */
    size_t                         limit;
    u_char                        *bytes;
    size_t                         size;
    uint64_t                       most;
    uint64_t                       expected;     /* bytes, or UINT64_MAX */

    /* answered */
    sandbox_store_fault_t          fault;        /* .status */
    sandbox_store_entry_t          entry;
    sandbox_store_list_t           list;
    ngx_fd_t                       fd;           /* closed with the pool */
    unsigned                       created;

    sandbox_store_writer_t         writer;
    ngx_thread_task_t             *task;
    ngx_event_t                    timer;        /* holds a worker that exits */
    ngx_http_event_handler_pt      write;        /* the request's own */
    ngx_http_sandbox_known_mark_t  mark;         /* of a change */
    unsigned                       changes:1;    /* what commands bring */
    unsigned                       expects:1;    /* name, mode are known */
    unsigned                       busy:1;
};


/* ngx_http_sandbox_conf_store.c: "sandbox_store", and its sweeps */

char *ngx_http_sandbox_conf_store(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* The folders' owners; warns of what an operator must change. */
void ngx_http_sandbox_store_init_module(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf);

/* Each worker sweeps at its start, and every hour. */
ngx_int_t ngx_http_sandbox_store_init_process(ngx_cycle_t *cycle);

ngx_str_t *ngx_http_sandbox_store_name(ngx_http_sandbox_store_t *store);

/* Empties its trash soon, in a thread. */
void ngx_http_sandbox_store_sweep_soon(ngx_http_sandbox_store_t *store);


/* ngx_http_sandbox_store.c */

/*
 * NGX_OK, or a problem is set: there is no "sandbox_store" here.
 */
ngx_int_t ngx_http_sandbox_store_here(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* For ctx->conversation, after the identity; NULL: no memory, logged. */
ngx_http_sandbox_store_op_t *ngx_http_sandbox_store_op(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_store_kind_e kind,
    ngx_http_sandbox_store_pt handler);

/*
 * Each of these starts; the handler finds op->fault.status and what follows.
 * NGX_ERROR: it did not start, a problem is set, no handler is called.
 */

/* op->entry; with `open` also op->fd, bytes from SANDBOX_STORE_BLOCK on */
ngx_int_t ngx_http_sandbox_store_lookup(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, ngx_uint_t open);

/* op->list, after the name `after` (empty: from the start) */
ngx_int_t ngx_http_sandbox_store_list(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *after, size_t limit);

/* by op->condition */
ngx_int_t ngx_http_sandbox_store_remove(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name);

/* the whole conversation, of all kinds */
ngx_int_t ngx_http_sandbox_store_drop(ngx_http_sandbox_store_op_t *op);

/* an attachment was refused, since it has more than `most` bytes */
ngx_int_t ngx_http_sandbox_store_notice(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, uint64_t most);

/* op->list: names, and the limit as their size; they are forgotten */
ngx_int_t ngx_http_sandbox_store_take_notices(
    ngx_http_sandbox_store_op_t *op);

/*
 * What will be written, if that is known (else UINT64_MAX): what has no room
 * is refused with the first bytes that are too many, and not at the end only.
 */
void ngx_http_sandbox_store_expect(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, sandbox_store_mode_e mode, uint64_t size);

/* The same at once, without a byte. */
ngx_int_t ngx_http_sandbox_store_room(ngx_http_sandbox_store_op_t *op);

/*
 * Writing: op->writer.max is "sandbox_file_size" unless it was set to another
 * limit.  The bytes must stay until the handler is called; TOO_LARGE as soon
 * as they are too many.  An op that ends without commit leaves nothing.
 */
ngx_int_t ngx_http_sandbox_store_write(ngx_http_sandbox_store_op_t *op,
    u_char *p, size_t n);

/*
 * The last bytes (n may be 0), then the rename: op->entry, op->created.  Set
 * op->entry.command before, if a command made the file.
 */
ngx_int_t ngx_http_sandbox_store_commit(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, sandbox_store_mode_e mode, u_char *p, size_t n);

/*
 * Any work for a thread, which finds what it needs in op->data; the second
 * changes nothing of what commands bring along.
 */
ngx_int_t ngx_http_sandbox_store_run(ngx_http_sandbox_store_op_t *op,
    void (*work)(ngx_http_sandbox_store_op_t *op));
ngx_int_t ngx_http_sandbox_store_look(ngx_http_sandbox_store_op_t *op,
    void (*work)(ngx_http_sandbox_store_op_t *op));

/* op->fault as a problem; logs what an operator must know. */
void ngx_http_sandbox_store_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);

/*
 * Where a conversation of the request's user is; not before the request's
 * session keys are known.
 */
ngx_int_t ngx_http_sandbox_store_place(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_str_t *conversation,
    sandbox_store_place_t *place);

/* SHA-256 of issuer, tenant and user, of which the first bytes are kept. */
ngx_int_t ngx_http_sandbox_store_user(ngx_http_sandbox_ctx_t *ctx,
    u_char digest[SANDBOX_STORE_DIGEST]);


/* ngx_http_sandbox_files.c: attachments and the Files panel */

ngx_int_t ngx_http_sandbox_files_list_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_files_get_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_files_remove_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* By the route: attachments, files or skills. */
sandbox_store_kind_e ngx_http_sandbox_files_kind(ngx_http_sandbox_ctx_t *ctx);

/* "limit" and "cursor" of a list; NGX_DECLINED: a problem is set. */
ngx_int_t ngx_http_sandbox_files_page(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *after, size_t *limit);

/* Header "Location": where op->entry is now. */
ngx_int_t ngx_http_sandbox_files_location(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);

/* If-Match and If-None-Match of the request. */
void ngx_http_sandbox_files_condition(ngx_http_request_t *r,
    sandbox_store_condition_t *condition);

/* 201 or 200 with op->entry; the value is for ngx_http_finalize_request(). */
ngx_int_t ngx_http_sandbox_files_answer(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);

/* {"name":...}: a file as in a list, and the most room for it */

#define NGX_HTTP_SANDBOX_FILES_ENTRY                                         \
    (512 + 8 * SANDBOX_STORE_MAX_NAME)

u_char *ngx_http_sandbox_files_entry(u_char *p,
    const sandbox_store_entry_t *entry);


/* ngx_http_sandbox_serve.c */

/*
 * The file of op as the answer: its headers, ranges, conditions.  The value is
 * for ngx_http_finalize_request().
 */
ngx_int_t ngx_http_sandbox_serve(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);

ngx_table_elt_t *ngx_http_sandbox_serve_header(ngx_http_request_t *r,
    const char *key, ngx_str_t *value);


/* ngx_http_sandbox_save.c: from the sandbox to the Files panel */

ngx_int_t ngx_http_sandbox_save_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* The body is in ctx->body. */
void ngx_http_sandbox_save_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* RESULT is here.  NGX_OK: it is being written, and answered by an event. */
ngx_int_t ngx_http_sandbox_save_whole(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_upload.c: PUT of both, POST of attachments */

ngx_int_t ngx_http_sandbox_upload_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_link.c: signed links of the Files panel */

ngx_int_t ngx_http_sandbox_link_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_download_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


#endif /* _NGX_HTTP_SANDBOX_STORE_H_INCLUDED_ */
