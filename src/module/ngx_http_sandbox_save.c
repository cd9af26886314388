/*
 * POST .../files: a file of the sandbox becomes one of the Files panel.  Its
 * bytes go to the disk in a thread, piece by piece, and the agent waits
 * meanwhile; it has its name when all of them are there.
 */

#include "ngx_http_sandbox_fs.h"
#include "ngx_http_sandbox_mcp.h"


#define NGX_HTTP_SANDBOX_SAVE_BODY   (64 * 1024) /* of the JSON */
#define NGX_HTTP_SANDBOX_SAVE_PIECE  (128 * 1024)

/* beside what one read of the agent may bring */

#define NGX_HTTP_SANDBOX_SAVE_FULL   (NGX_HTTP_SANDBOX_SAVE_PIECE - 32 * 1024)


struct ngx_http_sandbox_save_s {
    ngx_str_t                      path;
    ngx_uint_t                     root;
    ngx_str_t                      name;
    ngx_uint_t                     mode;         /* sandbox_store_mode_e */
    uint64_t                       promised;
    uint64_t                       got;
    ngx_buf_t                     *piece;        /* is filled */
    ngx_buf_t                     *other;        /* empty, or on its way */
    ngx_http_sandbox_store_op_t   *op;
    ngx_recv_pt                    recv;         /* the connection's own */
    unsigned                       whole:1;      /* RESULT was here */
};


static ngx_int_t ngx_http_sandbox_save_send(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_save_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_save_fields(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, json_t *root);
static ngx_int_t ngx_http_sandbox_save_text(ngx_http_request_t *r,
    json_t *value, ngx_str_t *text);
static ngx_int_t ngx_http_sandbox_save_place(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_save_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_save_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_save_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_save_wait(ngx_http_request_t *r,
    ngx_http_sandbox_save_t *save);
static ssize_t ngx_http_sandbox_save_recv(ngx_connection_t *c, u_char *buf,
    size_t size);
static void ngx_http_sandbox_save_written(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_save_commit(ngx_http_sandbox_save_t *save);
static void ngx_http_sandbox_save_committed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);


ngx_int_t
ngx_http_sandbox_save_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    ctx->save = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_save_t));
    if (ctx->save == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_body_handler(r, ctx);
}


void
ngx_http_sandbox_save_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_save_parse(r, ctx);

    if (rc == NGX_OK) {
        rc = ngx_http_sandbox_save_send(r, ctx);
    }

    if (rc == NGX_OK) {
        return;
    }

    ngx_http_finalize_request(r, rc == NGX_DECLINED
                                 ? ngx_http_sandbox_send_problem(r, ctx)
                                 : NGX_HTTP_INTERNAL_SERVER_ERROR);
}


ngx_int_t
ngx_http_sandbox_save_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *path, ngx_str_t *name,
    ngx_uint_t mode)
{
    ngx_int_t                 rc;
    ngx_http_sandbox_save_t  *save;

    save = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_save_t));
    if (save == NULL) {
        return NGX_ERROR;
    }

    save->path = *path;
    save->name = *name;
    save->mode = mode;

    ctx->save = save;

    rc = ngx_http_sandbox_save_place(r, ctx);

    return rc == NGX_OK ? ngx_http_sandbox_save_send(r, ctx) : rc;
}


static ngx_int_t
ngx_http_sandbox_save_send(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    sandbox_writer_t              w;
    ngx_http_sandbox_save_t      *save;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    save = ctx->save;

    save->op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_FILES,
                                         ngx_http_sandbox_save_written);
    save->piece = ngx_create_temp_buf(r->pool, NGX_HTTP_SANDBOX_SAVE_PIECE);
    save->other = ngx_create_temp_buf(r->pool, NGX_HTTP_SANDBOX_SAVE_PIECE);

    if (save->op == NULL || save->piece == NULL || save->other == NULL
        || ngx_http_sandbox_head_begin(r, ctx, &w, 256 + save->path.len)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    sandbox_write_bytes(&w, SANDBOX_TAG_PATH, save->path.data,
                        save->path.len);
    sandbox_write_number(&w, SANDBOX_TAG_ROOT, save->root);
    sandbox_write_number(&w, SANDBOX_TAG_LIMIT, 1);

    ctx->wire.head.len = w.pos - w.start;
    ctx->wire.operation = SANDBOX_OPERATION_FILE_READ;
    ctx->wire.accepted = ngx_http_sandbox_save_accepted;
    ctx->wire.data = ngx_http_sandbox_save_data;
    ctx->wire.render = ngx_http_sandbox_save_render;

    return slcf->backend->start(r, ctx);
}


static ngx_int_t
ngx_http_sandbox_save_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    json_t     *root;
    ngx_int_t   rc;

    if (ctx->body.size > NGX_HTTP_SANDBOX_SAVE_BODY) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                "body_too_large",
                                "The body may have at most 65536 bytes.");
        return NGX_DECLINED;
    }

    root = ngx_http_sandbox_request_load(r, ctx);
    if (root == NULL) {
        return NGX_DECLINED;
    }

    if (!json_is_object(root)) {
        json_decref(root);
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "The body must be a JSON object with "
                                "\"path\".");
        return NGX_DECLINED;
    }

    rc = ngx_http_sandbox_save_fields(r, ctx, root);

    json_decref(root);

    return rc == NGX_OK ? ngx_http_sandbox_save_place(r, ctx) : rc;
}


static ngx_int_t
ngx_http_sandbox_save_fields(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, json_t *root)
{
    json_t                   *value;
    const char               *name;
    ngx_http_sandbox_save_t  *save;

    save = ctx->save;
    save->mode = SANDBOX_STORE_CREATE;

    json_object_foreach(root, name, value) {

        if (ngx_strcmp(name, "path") == 0 && json_is_string(value)) {

            if (ngx_http_sandbox_save_text(r, value, &save->path) != NGX_OK) {
                return NGX_ERROR;
            }

        } else if (ngx_strcmp(name, "name") == 0 && json_is_string(value)) {

            if (ngx_http_sandbox_save_text(r, value, &save->name) != NGX_OK) {
                return NGX_ERROR;
            }

        } else if (ngx_strcmp(name, "overwrite") == 0
                   && json_is_boolean(value))
        {
            save->mode = json_is_true(value) ? SANDBOX_STORE_REPLACE
                                             : SANDBOX_STORE_CREATE;

        } else if (ngx_strcmp(name, "path") == 0
                   || ngx_strcmp(name, "name") == 0
                   || ngx_strcmp(name, "overwrite") == 0)
        {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "\"path\" and \"name\" must be strings, "
                                    "\"overwrite\" true or false.");
            return NGX_DECLINED;

        } else {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST,
                                    "unknown_field",
                                    "The fields that there are: \"path\", "
                                    "\"name\", \"overwrite\".");
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_save_text(ngx_http_request_t *r, json_t *value,
    ngx_str_t *text)
{
    text->len = json_string_length(value);
    text->data = ngx_pnalloc(r->pool, text->len + 1);

    if (text->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(text->data, json_string_value(value), text->len);

    return NGX_OK;
}


/* a path is one of the home, or an absolute one; its end is the name */

static ngx_int_t
ngx_http_sandbox_save_place(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                   *p, *last;
    ngx_int_t                 rc;
    const char               *wrong;
    ngx_http_sandbox_save_t  *save;

    save = ctx->save;

    if (save->path.len && save->path.data[0] == '/') {
        save->root = SANDBOX_ROOT_ALL;
    }

    if (save->path.len == 0) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "\"path\" must name a file.");
        return NGX_DECLINED;
    }

    rc = ngx_http_sandbox_path(r, ctx, &save->path);
    if (rc != NGX_OK) {
        return rc;
    }

    if (save->path.len == 0) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_CONFLICT, "is_a_directory",
                                "A folder can't be saved, only a file.");
        return NGX_DECLINED;
    }

    if (save->name.data == NULL) {
        last = save->path.data + save->path.len;

        for (p = last; p > save->path.data && p[-1] != '/'; p--) {
            /* void */
        }

        save->name.data = p;
        save->name.len = last - p;
    }

    wrong = sandbox_store_name_wrong((char *) save->name.data,
                                     save->name.len);

    if (wrong) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_name", wrong);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static const char *
ngx_http_sandbox_save_accepted(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                      size;
    ngx_http_sandbox_save_t      *save;
    ngx_http_sandbox_result_t    *result;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    save = ctx->save;
    result = &ctx->wire.result;

    if (result->number[SANDBOX_TAG_STATUS] != NGX_HTTP_OK
        || !result->seen[SANDBOX_TAG_FILE_TYPE]
        || !result->seen[SANDBOX_TAG_FILE_SIZE])
    {
        return "a file without a status, a type or a size";
    }

    size = result->number[SANDBOX_TAG_FILE_SIZE];

    if (result->number[SANDBOX_TAG_FILE_TYPE] == SANDBOX_FILE_DIRECTORY) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_CONFLICT, "is_a_directory",
                                "A folder can't be saved, only a file.");

    } else if (size > (uint64_t) slcf->caps.file_size) {
        save->op->fault.status = SANDBOX_STORE_TOO_LARGE;
        save->op->fault.limit = slcf->caps.file_size;
        ngx_http_sandbox_store_problem(r, ctx, save->op);
    }

    if (ctx->problem.status) {

        /* nobody wants the rest */

        ctx->wire.done = 1;
    }

    save->promised = size;

    ngx_http_sandbox_store_expect(save->op, &save->name, save->mode, size);

    return NULL;
}


static const char *
ngx_http_sandbox_save_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    ngx_buf_t                *b;
    ngx_http_sandbox_save_t  *save;

    save = ctx->save;

    if (p == NULL) {
        save->whole = 1;

        return save->got == save->promised ? NULL
                                           : "less of a file than its size";
    }

    b = save->piece;

    if (n > save->promised - save->got || n > (size_t) (b->end - b->last)) {
        return "more of a file than its size";
    }

    b->last = ngx_cpymem(b->last, p, n);
    save->got += n;

    if (b->last - b->pos < NGX_HTTP_SANDBOX_SAVE_FULL || save->op->busy) {
        return NULL;
    }

    save->piece = save->other;
    save->other = b;

    if (ngx_http_sandbox_store_write(save->op, b->pos, b->last - b->pos)
        != NGX_OK)
    {
        ctx->wire.done = 1;
        return NULL;
    }

    ngx_http_sandbox_save_wait(r, save);

    return NULL;
}


/* called only for a problem: a file that is whole has its own way */

static ngx_int_t
ngx_http_sandbox_save_render(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    return NGX_ERROR;
}


/* what has been read stays; nothing more is until the disk has it */

static void
ngx_http_sandbox_save_wait(ngx_http_request_t *r,
    ngx_http_sandbox_save_t *save)
{
    ngx_connection_t  *c;

    c = r->upstream->peer.connection;

    if (c->recv != ngx_http_sandbox_save_recv) {
        save->recv = c->recv;
        c->recv = ngx_http_sandbox_save_recv;
    }
}


static ssize_t
ngx_http_sandbox_save_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    /* whoever waits for the disk has no deadline of the agent */

    if (c->read->timer_set) {
        ngx_del_timer(c->read);
    }

    c->read->ready = 0;

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_sandbox_save_whole(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_save_t  *save;

    save = ctx->save;

    if (save == NULL || !save->whole) {
        return NGX_DECLINED;
    }

    if (!save->op->busy && ngx_http_sandbox_save_commit(save) != NGX_OK) {
        return NGX_DECLINED;
    }

    ngx_http_sandbox_save_wait(r, save);

    return NGX_OK;
}


static void
ngx_http_sandbox_save_written(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_connection_t         *c;
    ngx_http_sandbox_save_t  *save;

    save = ctx->save;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_sandbox_upstream_leave(r);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    save->other->pos = save->other->start;
    save->other->last = save->other->start;

    if (save->whole) {

        if (ngx_http_sandbox_save_commit(save) != NGX_OK) {
            ngx_http_sandbox_upstream_leave(r);
            ngx_http_finalize_request(r,
                                      ngx_http_sandbox_send_problem(r, ctx));
        }

        return;
    }

    c = r->upstream->peer.connection;

    c->recv = save->recv;
    c->read->ready = 1;
    c->read->available = -1;

    ngx_add_timer(c->read, r->upstream->conf->read_timeout);
    ngx_post_event(c->read, &ngx_posted_events);
}


static ngx_int_t
ngx_http_sandbox_save_commit(ngx_http_sandbox_save_t *save)
{
    save->op->handler = ngx_http_sandbox_save_committed;

    return ngx_http_sandbox_store_commit(save->op, &save->name, save->mode,
                                         save->piece->pos,
                                         save->piece->last
                                         - save->piece->pos);
}


static void
ngx_http_sandbox_save_committed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_upstream_leave(r);

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    ngx_http_finalize_request(r, ctx->mcp
                                 ? ngx_http_sandbox_mcp_saved(r, ctx, op)
                                 : ngx_http_sandbox_files_answer(r, ctx, op));
}
