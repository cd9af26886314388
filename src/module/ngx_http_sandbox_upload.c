/*
 * PUT and POST of a file into the store, and PUT of a skill: its bytes go to a
 * thread piece by piece, and nothing more is read of the client meanwhile.
 * What it is called and whether it may be written is decided when it is whole.
 */

#include "ngx_http_sandbox_skills.h"


#define NGX_HTTP_SANDBOX_UPLOAD_PIECE  (128 * 1024)


struct ngx_http_sandbox_upload_s {
    ngx_str_t                      name;
    ngx_uint_t                     mode;         /* sandbox_store_mode_e */
    off_t                          most;         /* bytes */
    ngx_buf_t                     *piece;
    off_t                          taken;
    ngx_http_sandbox_store_op_t   *op;
};


static void ngx_http_sandbox_upload_judged(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_upload_begin(ngx_http_request_t *r,
    ngx_http_sandbox_upload_t *up);
static ngx_int_t ngx_http_sandbox_upload_name(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up);
static ngx_int_t ngx_http_sandbox_upload_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up);
static void ngx_http_sandbox_upload_start(ngx_http_request_t *r);
static void ngx_http_sandbox_upload_read(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_upload_take(ngx_http_request_t *r,
    ngx_http_sandbox_upload_t *up);
static void ngx_http_sandbox_upload_written(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_upload_commit(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up);
static void ngx_http_sandbox_upload_committed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_upload_noticed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_upload_end(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up);


ngx_int_t
ngx_http_sandbox_upload_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_upload_t    *up;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (r->headers_in.content_range) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_request",
                                "A file is written as a whole, without "
                                "Content-Range.");
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    up = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_upload_t));
    if (up == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_sandbox_upload_name(r, ctx, up) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    up->op = ngx_http_sandbox_store_op(r, ctx,
                                       ngx_http_sandbox_files_kind(ctx),
                                       ngx_http_sandbox_upload_written);
    if (up->op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    up->op->data = up;
    ctx->upload = up;

    if (up->op->kind == SANDBOX_STORE_SKILLS) {
        up->most = SANDBOX_SKILL_MAX_BYTES;
        up->op->writer.max = SANDBOX_SKILL_MAX_BYTES;

    } else {
        up->most = slcf->caps.file_size;
    }

    if (r->headers_in.content_length_n > up->most) {
        return ngx_http_sandbox_upload_refused(r, ctx, up);
    }

    ngx_http_sandbox_files_condition(r, &up->op->condition);

    ngx_http_sandbox_store_expect(up->op, &up->name, up->mode,
                                  r->headers_in.content_length_n >= 0
                                  ? (uint64_t) r->headers_in.content_length_n
                                  : UINT64_MAX);

    if (r->headers_in.content_length_n <= NGX_HTTP_SANDBOX_UPLOAD_PIECE) {
        return ngx_http_sandbox_upload_begin(r, up);
    }

    /* before the client sends it all in vain */

    up->op->handler = ngx_http_sandbox_upload_judged;

    if (ngx_http_sandbox_store_room(up->op) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    r->main->count++;

    return NGX_DONE;
}


static void
ngx_http_sandbox_upload_judged(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_upload_t  *up;

    up = op->data;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    op->handler = ngx_http_sandbox_upload_written;

    rc = ngx_http_sandbox_upload_begin(r, up);

    /* whoever reads the body has a reference of its own */

    ngx_http_finalize_request(r, rc);
}


static ngx_int_t
ngx_http_sandbox_upload_begin(ngx_http_request_t *r,
    ngx_http_sandbox_upload_t *up)
{
    size_t     size;
    ngx_int_t  rc;

    size = NGX_HTTP_SANDBOX_UPLOAD_PIECE;

    if (r->headers_in.content_length_n >= 0 && !r->headers_in.chunked) {
        size = ngx_min((off_t) size, r->headers_in.content_length_n);
    }

    up->piece = ngx_create_temp_buf(r->pool, ngx_max(size, 1));
    if (up->piece == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->request_body_no_buffering = 1;

    rc = ngx_http_read_client_request_body(r, ngx_http_sandbox_upload_start);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    return NGX_DONE;
}


/* of the path; or, of a POST, from its arguments, with a free one to find */

static ngx_int_t
ngx_http_sandbox_upload_name(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up)
{
    u_char      *src, *dst;
    ngx_str_t    value;
    const char  *wrong;

    up->name = ctx->name;
    up->mode = SANDBOX_STORE_REPLACE;

    if (r->method == NGX_HTTP_POST) {

        if (ngx_http_sandbox_argument(r, "name", &value) != NGX_OK) {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_name",
                                    "The file needs a name: \"?name=\", with "
                                    "what is no letter or digit as %XX.");
            return NGX_DECLINED;
        }

        dst = ngx_pnalloc(r->pool, value.len + 1);
        if (dst == NULL) {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                    "internal", "There is no memory.");
            return NGX_DECLINED;
        }

        up->name.data = dst;
        src = value.data;

        ngx_unescape_uri(&dst, &src, value.len, 0);

        up->name.len = dst - up->name.data;
        up->mode = SANDBOX_STORE_FREE_NAME;
    }

    wrong = ngx_http_sandbox_files_kind(ctx) == SANDBOX_STORE_SKILLS
            ? sandbox_skill_name_wrong((char *) up->name.data, up->name.len)
            : sandbox_store_name_wrong((char *) up->name.data, up->name.len);

    if (wrong) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_name", wrong);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_upload_start(ngx_http_request_t *r)
{
    r->read_event_handler = ngx_http_sandbox_upload_read;

    ngx_http_sandbox_upload_read(r);
}


static void
ngx_http_sandbox_upload_read(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_ctx_t     *ctx;
    ngx_http_sandbox_upload_t  *up;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    up = ctx->upload;

    if (up->op->busy) {
        return;
    }

    for ( ;; ) {

        rc = ngx_http_sandbox_upload_take(r, up);

        if (rc == NGX_DECLINED) {
            rc = ngx_http_sandbox_upload_refused(r, ctx, up);

            if (rc != NGX_DONE) {
                ngx_http_finalize_request(r, rc);
            }

            return;
        }

        if (rc == NGX_ERROR) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
            return;
        }

        if (rc == NGX_BUSY) {

            /* the client is not late while it is we who do not read */

            if (r->connection->read->timer_set) {
                ngx_del_timer(r->connection->read);
            }

            if (ngx_http_sandbox_store_write(up->op, up->piece->pos,
                                         up->piece->last - up->piece->pos)
                != NGX_OK)
            {
                ngx_http_sandbox_upload_end(r, ctx, up);
            }

            return;
        }

        if (!r->reading_body) {
            break;
        }

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            ngx_http_finalize_request(r, rc);
            return;
        }

        if (r->request_body->bufs == NULL && rc == NGX_AGAIN) {
            return;
        }
    }

    ngx_http_sandbox_upload_commit(r, ctx, up);
}


/*
 * Moves what nginx has read: NGX_OK took it all, NGX_BUSY filled the piece,
 * NGX_DECLINED would be too much.
 */

static ngx_int_t
ngx_http_sandbox_upload_take(ngx_http_request_t *r,
    ngx_http_sandbox_upload_t *up)
{
    size_t        n;
    ngx_buf_t    *b, *piece;
    ngx_chain_t  *cl;

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    piece = up->piece;

    while (r->request_body->bufs) {

        cl = r->request_body->bufs;
        b = cl->buf;

        if (b->in_file) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "another module (\"mirror\"?) put the body of a "
                          "sandbox request into a file: switch it off here");
            return NGX_ERROR;
        }

        n = b->last - b->pos;

        if ((off_t) n > up->most - up->taken) {
            return NGX_DECLINED;
        }

        n = ngx_min(n, (size_t) (piece->end - piece->last));

        piece->last = ngx_cpymem(piece->last, b->pos, n);
        b->pos += n;
        up->taken += n;

        if (b->pos < b->last) {
            return NGX_BUSY;
        }

        r->request_body->bufs = cl->next;
        ngx_free_chain(r->pool, cl);
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_upload_written(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_upload_t *up = op->data;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_sandbox_upload_end(r, ctx, up);
        return;
    }

    up->piece->pos = up->piece->start;
    up->piece->last = up->piece->start;

    ngx_http_sandbox_upload_read(r);
}


static void
ngx_http_sandbox_upload_commit(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up)
{
    r->request_body_no_buffering = 0;
    r->read_event_handler = ngx_http_block_reading;

    if (r->connection->read->timer_set) {
        ngx_del_timer(r->connection->read);
    }

    if (up->op->kind == SANDBOX_STORE_SKILLS) {

        if (ngx_http_sandbox_skill_commit(up->op, &up->name, up->piece->pos,
                                          up->piece->last - up->piece->pos)
            != NGX_OK)
        {
            ngx_http_sandbox_upload_end(r, ctx, up);
        }

        return;
    }

    up->op->handler = ngx_http_sandbox_upload_committed;

    if (ngx_http_sandbox_store_commit(up->op, &up->name, up->mode,
                                      up->piece->pos,
                                      up->piece->last - up->piece->pos)
        != NGX_OK)
    {
        ngx_http_sandbox_upload_end(r, ctx, up);
    }
}


static void
ngx_http_sandbox_upload_committed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_upload_t *up = op->data;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_sandbox_upload_end(r, ctx, up);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_files_answer(r, ctx, op));
}


/*
 * Too large.  Of an attachment the next command is told, so that goes to the
 * disk first; as a content handler.
 */

static ngx_int_t
ngx_http_sandbox_upload_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up)
{
    ngx_uint_t                    begun;
    ngx_http_sandbox_store_op_t  *op;

    op = up->op;
    begun = (up->piece != NULL);

    op->fault.status = SANDBOX_STORE_TOO_LARGE;
    op->fault.limit = up->most;

    ngx_http_sandbox_store_problem(r, ctx, op);

    if (begun) {

        /* the rest is not read: nginx lingers, then closes */

        r->read_event_handler = ngx_http_block_reading;

        if (r->connection->read->timer_set) {
            ngx_del_timer(r->connection->read);
        }
    }

    if (op->kind != SANDBOX_STORE_ATTACHMENTS) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    op->handler = ngx_http_sandbox_upload_noticed;

    if (ngx_http_sandbox_store_notice(op, &up->name, up->most) != NGX_OK) {
        return ngx_http_sandbox_send_problem(r, ctx);
    }

    if (!begun) {
        r->main->count++;
    }

    return NGX_DONE;
}


static void
ngx_http_sandbox_upload_noticed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_problem_t  problem;

    problem = ctx->problem;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
    }

    ctx->problem = problem;

    ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
}


static void
ngx_http_sandbox_upload_end(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_upload_t *up)
{
    r->read_event_handler = ngx_http_block_reading;

    if (r->connection->read->timer_set) {
        ngx_del_timer(r->connection->read);
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
}
