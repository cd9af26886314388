/*
 * Staging: a command names the attachments and skills of its conversation;
 * those that its sandbox has not, the agent asks for, and the command is sent
 * once more with them in its body.  What the agent makes of them is its own
 * concern.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_skills.h"
#include "ngx_http_sandbox_stage.h"


/* after that somebody changes them faster than they can be sent */

#define NGX_HTTP_SANDBOX_STAGE_TRIES   2

/* kind, 0, length of the name, etag, size */

#define NGX_HTTP_SANDBOX_STAGE_FIXED   (1 + 1 + 2 + SANDBOX_STORE_ETAG + 8)
#define NGX_HTTP_SANDBOX_STAGE_FILE    1         /* kinds: an attachment */
#define NGX_HTTP_SANDBOX_STAGE_SKILL   2


/* a file that the agent asked for */

typedef struct {
    ngx_uint_t                     index;        /* in the list */
    sandbox_skill_t               *skill;        /* has requirements */
    ngx_file_t                     file;
} ngx_http_sandbox_stage_file_t;


struct ngx_http_sandbox_stage_s {
    ngx_http_sandbox_store_op_t   *op;           /* its list is what is named */
    sandbox_store_list_t           notices;      /* of refused uploads */
    sandbox_store_fault_t          fault;        /* of those */
    ngx_str_t                      head;         /* without any of it */
    ngx_uint_t                     attachments;  /* of the list, then skills */
    ngx_uint_t                     tries;
    ngx_uint_t                     n;            /* files */
    ngx_http_sandbox_stage_file_t  files[SANDBOX_WIRE_MAX_STAGED];
    uint64_t                       size;         /* bytes of the files */
    ngx_http_sandbox_known_mark_t  mark;         /* before it was listed */
    int                            folders;      /* of the user; -1: unknown */
    uint64_t                       folder[NGX_HTTP_SANDBOX_KNOWN_FOLDERS];
    unsigned                       listed:1;
    unsigned                       fresh:1;      /* listed just now */
    unsigned                       stale:1;      /* one is another by now */
};


static void ngx_http_sandbox_stage_cleanup(void *data);
static void ngx_http_sandbox_stage_close(ngx_http_sandbox_stage_t *stage);
static ngx_int_t ngx_http_sandbox_stage_output(void *data, ngx_chain_t *in);
static void ngx_http_sandbox_stage_list(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_stage_open(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_stage_skills(ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_stage_required(
    ngx_http_sandbox_stage_file_t *file);
static void ngx_http_sandbox_stage_ready(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_stage_fail(ngx_http_request_t *r, ngx_int_t rc);
static ngx_int_t ngx_http_sandbox_stage_head(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_stage_t *stage);
static ngx_int_t ngx_http_sandbox_stage_read(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_stage_t *stage);
static void ngx_http_sandbox_stage_idle(ngx_http_request_t *r,
    ngx_http_upstream_t *u);
static ssize_t ngx_http_sandbox_stage_recv(ngx_connection_t *c, u_char *buf,
    size_t size);
static ngx_int_t ngx_http_sandbox_stage_backend(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result, ngx_str_t *code, ngx_str_t *detail);
static ngx_chain_t *ngx_http_sandbox_stage_piece(ngx_http_request_t *r,
    ngx_chain_t *last, u_char *p, size_t n);
static u_char *ngx_http_sandbox_stage_packages(u_char *p,
    ngx_http_sandbox_stage_t *stage, ngx_uint_t file, ngx_uint_t *n);
static u_char *ngx_http_sandbox_stage_notice(u_char *p, ngx_uint_t first,
    ngx_str_t *name, ngx_str_t *code, ngx_str_t *detail);


void
ngx_http_sandbox_stage_start(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_sandbox_stage_t     *stage;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->store == NULL) {

        if (ngx_http_sandbox_session_keys(r, ctx) != NGX_OK
            || slcf->backend->start(r, ctx) != NGX_OK)
        {
            ngx_http_sandbox_stage_fail(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        return;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_stage_t));
    if (cln == NULL) {
        ngx_http_sandbox_stage_fail(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    stage = cln->data;
    ngx_memzero(stage, sizeof(ngx_http_sandbox_stage_t));
    cln->handler = ngx_http_sandbox_stage_cleanup;

    stage->head = ctx->wire.head;
    stage->op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_ATTACHMENTS,
                                          ngx_http_sandbox_stage_ready);
    if (stage->op == NULL) {
        ngx_http_sandbox_stage_fail(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    stage->op->data = stage;
    ctx->stage = stage;

    if (ngx_http_sandbox_known_find(&slcf->main->zone, &stage->op->place,
                                    &stage->op->list, &stage->attachments,
                                    &stage->mark)
        == NGX_OK)
    {
        stage->listed = 1;
        ngx_http_sandbox_stage_ready(r, ctx, stage->op);
        return;
    }

    if (ngx_http_sandbox_store_look(stage->op, ngx_http_sandbox_stage_list)
        != NGX_OK)
    {
        ngx_http_sandbox_stage_fail(r, ngx_http_sandbox_send_problem(r, ctx));
    }
}


static void
ngx_http_sandbox_stage_cleanup(void *data)
{
    ngx_http_sandbox_stage_t *stage = data;

    sandbox_store_list_free(&stage->notices);
    ngx_http_sandbox_stage_close(stage);
}


static void
ngx_http_sandbox_stage_close(ngx_http_sandbox_stage_t *stage)
{
    ngx_uint_t  i;

    for (i = 0; i < stage->n; i++) {

        if (stage->files[i].file.fd != NGX_INVALID_FILE) {
            (void) ngx_close_file(stage->files[i].file.fd);
        }

        free(stage->files[i].skill);
    }

    stage->n = 0;
    stage->size = 0;
}


/* in a thread; a refused upload is told once, by the next command */

static void
ngx_http_sandbox_stage_list(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_stage_t *stage = op->data;

    stage->fresh = 1;
    stage->folders = stage->mark.learn
                     ? sandbox_store_folders(&op->place, stage->folder,
                                             NGX_HTTP_SANDBOX_KNOWN_FOLDERS)
                     : -1;

    sandbox_store_list_free(&op->list);

    if (sandbox_store_list(&op->place, SANDBOX_STORE_ATTACHMENTS, NULL, 0,
                           SANDBOX_STORE_MAX_ATTACHMENTS, &op->list,
                           &op->fault)
        == SANDBOX_STORE_OK)
    {
        stage->attachments = op->list.n;
        ngx_http_sandbox_stage_skills(op);
    }

    if (op->fault.status == SANDBOX_STORE_OK && !stage->listed) {
        stage->listed = 1;
        (void) sandbox_store_take_notices(&op->place, &stage->notices,
                                          &stage->fault);
    }
}


static void
ngx_http_sandbox_stage_skills(ngx_http_sandbox_store_op_t *op)
{
    sandbox_store_list_t    skills;
    sandbox_store_entry_t  *entries;

    if (sandbox_store_list(&op->place, SANDBOX_STORE_SKILLS, NULL, 0,
                           SANDBOX_STORE_MAX_SKILLS, &skills, &op->fault)
        != SANDBOX_STORE_OK
        || skills.n == 0)
    {
        return;
    }

    entries = realloc(op->list.entries, (op->list.n + skills.n)
                                        * sizeof(sandbox_store_entry_t));
    if (entries == NULL) {
        op->fault.status = SANDBOX_STORE_FAILED;
        op->fault.error = ENOMEM;
        op->fault.call = "realloc";

    } else {
        ngx_memcpy(entries + op->list.n, skills.entries,
                   skills.n * sizeof(sandbox_store_entry_t));
        op->list.entries = entries;
        op->list.n += skills.n;
    }

    sandbox_store_list_free(&skills);
}


/* in a thread: what was asked for; the list anew if it is no longer true */

static void
ngx_http_sandbox_stage_open(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_stage_t *stage = op->data;

    int                             fd;
    ngx_uint_t                      i;
    sandbox_store_entry_t          *entry;
    ngx_http_sandbox_stage_file_t  *file;

    stage->size = 0;
    stage->stale = 0;

    for (i = 0; i < stage->n; i++) {
        file = &stage->files[i];
        entry = &op->list.entries[file->index];

        if (sandbox_store_lookup(&op->place,
                                 file->index < stage->attachments
                                 ? SANDBOX_STORE_ATTACHMENTS
                                 : SANDBOX_STORE_SKILLS,
                                 entry->name, entry->name_len, NULL,
                                 &op->entry, &fd, &op->fault)
            == SANDBOX_STORE_OK)
        {
            file->file.fd = fd;

            if (file->index >= stage->attachments) {
                ngx_http_sandbox_stage_required(file);
            }

        } else if (op->fault.status != SANDBOX_STORE_MISSING) {
            return;
        }

        if (op->fault.status == SANDBOX_STORE_MISSING
            || op->entry.size != entry->size
            || ngx_memcmp(op->entry.sha256, entry->sha256,
                          SANDBOX_STORE_SHA256)
               != 0)
        {
            stage->stale = 1;
            break;
        }

        stage->size += entry->size;
    }

    if (stage->stale) {
        ngx_http_sandbox_stage_close(stage);
        ngx_http_sandbox_stage_list(op);
    }
}


/* what the result is to tell of a skill */

static void
ngx_http_sandbox_stage_required(ngx_http_sandbox_stage_file_t *file)
{
    file->skill = malloc(sizeof(sandbox_skill_t));

    if (file->skill == NULL) {
        return;
    }

    sandbox_store_skill_record(file->file.fd, file->skill);

    if (file->skill->paths == 0) {
        free(file->skill);
        file->skill = NULL;
    }
}


static void
ngx_http_sandbox_stage_ready(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_stage_t *stage = op->data;

    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_store_problem(r, ctx, op);
        ngx_http_sandbox_stage_fail(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    /* what was asked for is there no more, so nothing was opened */

    if (stage->n == 0) {
        (void) ngx_http_sandbox_budget_files(r, ctx, 0);
    }

    /* there are no notices when it is remembered, or they would be lost */

    if (stage->fresh && stage->fault.status == SANDBOX_STORE_OK) {
        stage->fresh = 0;
        ngx_http_sandbox_known_keep(&slcf->main->zone, &stage->mark,
                                    &op->list, stage->attachments);
        ngx_http_sandbox_known_keep_folders(&slcf->main->zone, &stage->mark,
                                            stage->folder, stage->folders);
    }

    if (ngx_http_sandbox_stage_head(r, ctx, stage) != NGX_OK) {

        ngx_http_sandbox_stage_fail(r, ctx->problem.status
                                       ? ngx_http_sandbox_send_problem(r, ctx)
                                       : NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    /* nginx ends the upstream before this one, if there was one */

    if (slcf->backend->start(r, ctx) != NGX_OK) {
        ngx_http_sandbox_stage_fail(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


/* what was sent before has an upstream still, which has to end first */

static void
ngx_http_sandbox_stage_fail(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_sandbox_upstream_leave(r);
    ngx_http_finalize_request(r, rc);
}


static ngx_int_t
ngx_http_sandbox_stage_head(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_stage_t *stage)
{
    size_t                  size;
    u_char                 *p, item[NGX_HTTP_SANDBOX_STAGE_FIXED
                                    + SANDBOX_STORE_MAX_NAME];
    ngx_uint_t              i;
    sandbox_writer_t        w;
    sandbox_store_list_t   *list;
    sandbox_store_entry_t  *entry;

    list = &stage->op->list;

    ctx->wire.head = stage->head;

    if (list->n == 0) {
        return NGX_OK;
    }

    size = stage->head.len + 64
           + list->n * (SANDBOX_WIRE_FIELD_SIZE + sizeof(item))
           + stage->n * (SANDBOX_WIRE_FIELD_SIZE + 8);

    p = ngx_pnalloc(r->pool, SANDBOX_WIRE_PREAMBLE_SIZE + size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    p += SANDBOX_WIRE_PREAMBLE_SIZE;

    sandbox_writer_init(&w, p, size);
    w.pos = ngx_cpymem(w.pos, stage->head.data, stage->head.len);

    for (i = 0; i < list->n; i++) {
        entry = &list->entries[i];

        item[0] = i < stage->attachments ? NGX_HTTP_SANDBOX_STAGE_FILE
                                         : NGX_HTTP_SANDBOX_STAGE_SKILL;
        item[1] = 0;
        sandbox_put16(item + 2, (uint16_t) entry->name_len);
        ngx_memcpy(item + 4, entry->sha256, SANDBOX_STORE_ETAG);
        sandbox_put64(item + 4 + SANDBOX_STORE_ETAG, entry->size);
        ngx_memcpy(item + NGX_HTTP_SANDBOX_STAGE_FIXED, entry->name,
                   entry->name_len);

        sandbox_write_bytes(&w, SANDBOX_TAG_STAGE, item,
                            NGX_HTTP_SANDBOX_STAGE_FIXED + entry->name_len);
    }

    if (stage->n) {
        sandbox_write_number(&w, SANDBOX_TAG_STDIN_BYTES,
                             ctx->wire.body.len);
    }

    for (i = 0; i < stage->n; i++) {
        sandbox_write_number(&w, SANDBOX_TAG_STAGE_BODY,
                             stage->files[i].index);
    }

    if (w.failed) {
        return NGX_ERROR;
    }

    ctx->wire.head.data = p;
    ctx->wire.head.len = w.pos - w.start;

    if (ctx->wire.head.len > SANDBOX_WIRE_MAX_HEAD) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                "body_too_large",
                                "Command, environment and the names of "
                                "attachments and skills are too large "
                                "together, at most 768 KiB.");
        return NGX_DECLINED;
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_sandbox_stage_named(ngx_http_sandbox_ctx_t *ctx)
{
    return ctx->stage && ctx->stage->op->list.n;
}


ngx_uint_t
ngx_http_sandbox_stage_bodies(ngx_http_sandbox_ctx_t *ctx)
{
    return ctx->stage && ctx->stage->n;
}


ngx_uint_t
ngx_http_sandbox_stage_sent(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t  i;

    for (i = 0; ngx_http_sandbox_stage_bodies(ctx) && i < ctx->stage->n; i++) {
        if (ctx->stage->files[i].file.fd == NGX_INVALID_FILE) {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_sandbox_stage_needed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_stage_t     *stage;
    ngx_http_sandbox_loc_conf_t  *slcf;

    stage = ctx->stage;

    if (stage == NULL || stage->tries == NGX_HTTP_SANDBOX_STAGE_TRIES) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "staging_conflict",
                                "The attachments and skills of the "
                                "conversation change faster than they can be "
                                "brought to its sandbox; nothing was "
                                "started.");
        ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
        return NGX_DECLINED;
    }

    stage->tries++;
    ngx_http_sandbox_stage_close(stage);
    (void) ngx_http_sandbox_budget_files(r, ctx, 0);

    if (ngx_http_sandbox_stage_read(ctx, stage) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox agent asked for attachments or skills that "
                      "there are not: its version does not fit this one's");
        ctx->wire.bad = 1;
        ngx_http_sandbox_upstream_lost(ctx);
        return NGX_DECLINED;
    }

    /*
     * Somebody with hundreds of attachments in each of his conversations must
     * not leave nothing for other clients.
     */

    rc = ngx_http_sandbox_budget_files(r, ctx, stage->n);

    if (rc != NGX_OK) {
        ngx_http_sandbox_stage_close(stage);
        return rc;
    }

    ngx_memzero(&ctx->problem, sizeof(ngx_http_sandbox_problem_t));

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    ngx_http_sandbox_known_look(&slcf->main->zone, &stage->op->place,
                                &stage->mark);

    if (ngx_http_sandbox_store_look(stage->op, ngx_http_sandbox_stage_open)
        != NGX_OK)
    {
        ngx_http_sandbox_stage_close(stage);
        return NGX_DECLINED;
    }

    /* the sandbox that asks is the fresh one */

    ctx->wire.flags &= ~SANDBOX_FLAG_FRESH;

    ngx_http_sandbox_stage_silence(r);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_stage_read(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_stage_t *stage)
{
    uint32_t                        index;
    ngx_uint_t                      i;
    sandbox_field_t                 field;
    sandbox_fields_t                fields;
    ngx_http_sandbox_stage_file_t  *file;

    sandbox_fields_init(&fields, ctx->wire.payload, ctx->wire.payload_len);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag != SANDBOX_TAG_NEEDED) {
            continue;
        }

        if (field.length % 4 || stage->n
            || field.length / 4 > stage->op->list.n)
        {
            return NGX_ERROR;
        }

        for (i = 0; i < field.length / 4; i++) {
            index = sandbox_get32(field.data + 4 * i);

            if (index >= stage->op->list.n) {
                return NGX_ERROR;
            }

            file = &stage->files[i];
            ngx_memzero(file, sizeof(ngx_http_sandbox_stage_file_t));

            file->index = index;
            file->file.fd = NGX_INVALID_FILE;
            file->file.log = ctx->request->connection->log;
            ngx_str_set(&file->file.name, "sandbox attachment or skill");

            stage->n = i + 1;
        }
    }

    return stage->n ? NGX_OK : NGX_ERROR;
}


/*
 * The agent closes its connection now, and nginx would take that for the end
 * of the request.  It lives on, deaf, until the next one takes its place.
 */

void
ngx_http_sandbox_stage_silence(ngx_http_request_t *r)
{
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    c = u->peer.connection;

    u->read_event_handler = ngx_http_sandbox_stage_idle;
    u->write_event_handler = ngx_http_sandbox_stage_idle;
    c->recv = ngx_http_sandbox_stage_recv;

    if (c->read->timer_set) {
        ngx_del_timer(c->read);
    }

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }
}


static void
ngx_http_sandbox_stage_idle(ngx_http_request_t *r, ngx_http_upstream_t *u)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sandbox waits for attachments");
}


static ssize_t
ngx_http_sandbox_stage_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    c->read->ready = 0;

    return NGX_AGAIN;
}


uint64_t
ngx_http_sandbox_stage_length(ngx_http_sandbox_ctx_t *ctx)
{
    return ctx->wire.body.len
           + (ngx_http_sandbox_stage_bodies(ctx) ? ctx->stage->size : 0);
}


ngx_int_t
ngx_http_sandbox_stage_send(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_chain_t *last)
{
    uint64_t                        size;
    ngx_buf_t                      *b;
    ngx_uint_t                      i;
    ngx_http_sandbox_stage_t       *stage;
    ngx_http_sandbox_stage_file_t  *file;

    stage = ctx->stage;

    if (ctx->wire.body.len) {
        last = ngx_http_sandbox_stage_piece(r, last, ctx->wire.body.data,
                                            ctx->wire.body.len);
        if (last == NULL) {
            return NGX_ERROR;
        }
    }

    if (ngx_http_sandbox_stage_bodies(ctx)) {
        r->upstream->output.output_filter = ngx_http_sandbox_stage_output;
        r->upstream->output.filter_ctx = r;
    }

    for (i = 0; ngx_http_sandbox_stage_bodies(ctx) && i < stage->n; i++) {

        file = &stage->files[i];
        size = stage->op->list.entries[file->index].size;

        if (size == 0) {
            continue;
        }

        last = ngx_http_sandbox_stage_piece(r, last, NULL, 0);
        if (last == NULL) {
            return NGX_ERROR;
        }

        b = last->buf;
        b->memory = 0;
        b->in_file = 1;
        b->file = &file->file;
        b->file_pos = SANDBOX_STORE_BLOCK;
        b->file_last = SANDBOX_STORE_BLOCK + (off_t) size;
    }

    return NGX_OK;
}


/* files are closed when all of them is sent: a command may take its time */

static ngx_int_t
ngx_http_sandbox_stage_output(void *data, ngx_chain_t *in)
{
    ngx_http_request_t *r = data;

    off_t                      size;
    ngx_int_t                  rc;
    ngx_uint_t                 i;
    ngx_file_t                *file;
    ngx_http_upstream_t       *u;
    ngx_http_sandbox_ctx_t    *ctx;
    ngx_http_sandbox_stage_t  *stage;

    u = r->upstream;

    rc = ngx_chain_writer(&u->writer, in);

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);
    stage = ctx->stage;

    size = SANDBOX_WIRE_PREAMBLE_SIZE + ctx->wire.head.len
           + (off_t) ngx_http_sandbox_stage_length(ctx);

    if (rc != NGX_OK || u->peer.connection->sent < size) {
        return rc;
    }

    for (i = 0; i < stage->n; i++) {
        file = &stage->files[i].file;

        if (file->fd != NGX_INVALID_FILE) {
            (void) ngx_close_file(file->fd);
            file->fd = NGX_INVALID_FILE;
        }
    }

    (void) ngx_http_sandbox_budget_files(r, ctx, 0);

    return rc;
}


static ngx_chain_t *
ngx_http_sandbox_stage_piece(ngx_http_request_t *r, ngx_chain_t *last,
    u_char *p, size_t n)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    b->memory = 1;
    b->start = p;
    b->pos = p;
    b->last = p + n;
    b->end = b->last;

    cl->buf = b;
    cl->next = NULL;
    last->next = cl;

    return cl;
}


/* six bytes at most for one of a notice */

size_t
ngx_http_sandbox_stage_size(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    size_t            size;
    ngx_str_t         code, detail;
    ngx_uint_t        i;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    size = sizeof(",\"stagingNotices\":[]");

    if (ngx_http_sandbox_stage_backend(ctx, result, &code, &detail)
        == NGX_OK)
    {
        size += 64 + 6 * (code.len + detail.len);
    }

    sandbox_fields_init(&fields, result->fields.data, result->fields.len);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if (field.tag == SANDBOX_TAG_NOTICE) {
            size += 64 + 6 * field.length;
        }
    }

    if (ctx->stage && result == &ctx->wire.result) {
        size += ctx->stage->notices.n * (256 + 6 * SANDBOX_STORE_MAX_NAME);

        for (i = 0; i < ctx->stage->n; i++) {
            if (ctx->stage->files[i].skill) {
                size += ctx->stage->files[i].skill->paths
                        * (128 + 6 * NGX_HTTP_SANDBOX_SKILL_DETAIL);
            }
        }
    }

    return size;
}


/* of this result, not of one in the history */

static ngx_int_t
ngx_http_sandbox_stage_backend(ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result, ngx_str_t *code, ngx_str_t *detail)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (result != &ctx->wire.result) {
        return NGX_DECLINED;
    }

    slcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_sandbox_module);

    return slcf->backend->hooks->notice(ctx, code, detail);
}


u_char *
ngx_http_sandbox_stage_notices(u_char *p, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_result_t *result)
{
    size_t                 i;
    u_char                *start, *end, text[128];
    ngx_str_t              part[3];
    ngx_uint_t             n;
    sandbox_field_t        field;
    sandbox_fields_t       fields;
    sandbox_store_list_t  *list;

    n = 0;
    p = ngx_sprintf(p, ",\"stagingNotices\":[");

    if (ngx_http_sandbox_stage_backend(ctx, result, &part[0], &part[2])
        == NGX_OK)
    {
        ngx_str_null(&part[1]);
        p = ngx_http_sandbox_stage_notice(p, n++ == 0, &part[1], &part[0],
                                          &part[2]);
    }

    if (ctx->stage && result == &ctx->wire.result) {

        list = &ctx->stage->notices;
        ngx_str_set(&part[0], "file_too_large");

        for (i = 0; i < list->n; i++) {
            part[1].data = (u_char *) list->entries[i].name;
            part[1].len = list->entries[i].name_len;
            part[2].data = text;
            part[2].len = ngx_sprintf(text, "It was not attached: a file may "
                                      "have at most %uL bytes.",
                                      list->entries[i].size) - text;

            p = ngx_http_sandbox_stage_notice(p, n++ == 0, &part[1], &part[0],
                                              &part[2]);
        }

        for (i = 0; i < ctx->stage->n; i++) {
            p = ngx_http_sandbox_stage_packages(p, ctx->stage, i, &n);
        }
    }

    sandbox_fields_init(&fields, result->fields.data, result->fields.len);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag != SANDBOX_TAG_NOTICE) {
            continue;
        }

        /* code, name, detail, with a NUL between them */

        start = (u_char *) field.data;
        end = start + field.length;

        for (i = 0; i < 3; i++) {
            part[i].data = start;

            while (start < end && (i == 2 || *start != '\0')) {
                start++;
            }

            part[i].len = start - part[i].data;

            if (start < end) {
                start++;
            }
        }

        p = ngx_http_sandbox_stage_notice(p, n++ == 0, &part[1], &part[0],
                                          &part[2]);
    }

    *p++ = ']';

    return p;
}


/* a skill was sent along, and packages that it wants are not in it */

static u_char *
ngx_http_sandbox_stage_packages(u_char *p, ngx_http_sandbox_stage_t *stage,
    ngx_uint_t file, ngx_uint_t *n)
{
    u_char                  text[NGX_HTTP_SANDBOX_SKILL_DETAIL];
    ngx_str_t               name, code, detail;
    ngx_uint_t              i;
    sandbox_skill_t        *skill;
    sandbox_store_entry_t  *entry;

    skill = stage->files[file].skill;

    if (skill == NULL) {
        return p;
    }

    entry = &stage->op->list.entries[stage->files[file].index];
    name.data = (u_char *) entry->name;
    name.len = entry->name_len;
    ngx_str_set(&code, "requirements");
    detail.data = text;

    for (i = 0; i < skill->paths; i++) {
        detail.len = ngx_http_sandbox_skills_required(text, &name, skill, i);
        p = ngx_http_sandbox_stage_notice(p, (*n)++ == 0, &name, &code,
                                          &detail);
    }

    return p;
}


static u_char *
ngx_http_sandbox_stage_notice(u_char *p, ngx_uint_t first, ngx_str_t *name,
    ngx_str_t *code, ngx_str_t *detail)
{
    ngx_uint_t  ignored;

    p = ngx_sprintf(p, "%s{\"name\":\"", first ? "" : ",");
    p += ngx_http_sandbox_escape(p, name->data, name->len, &ignored);
    p = ngx_sprintf(p, "\",\"code\":\"");
    p += ngx_http_sandbox_escape(p, code->data, code->len, &ignored);
    p = ngx_sprintf(p, "\",\"detail\":\"");
    p += ngx_http_sandbox_escape(p, detail->data, detail->len, &ignored);

    return ngx_sprintf(p, "\"}");
}
