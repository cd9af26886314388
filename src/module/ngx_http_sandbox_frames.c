/*
 * Frames in: from bytes of the runner or an agent to HEAD, captured output
 * and RESULT or ERROR.  Nothing they send is believed: order, sizes, numbers
 * and the sum of the output are checked, and what breaks a rule ends the
 * operation.  Knows no sockets.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_metrics.h"
#include "ngx_http_sandbox_stream.h"


/* a PING is due every 5 seconds; more than this is no PING any more */

#define NGX_HTTP_SANDBOX_PING_BURST   1000
#define NGX_HTTP_SANDBOX_PING_PERIOD  1000       /* ms for one more */

/* what a double holds exactly: readers of JSON have no more */

#define NGX_HTTP_SANDBOX_INTEGER      (((uint64_t) 1 << 53) - 1)


static ngx_int_t ngx_http_sandbox_frame_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_frame_order(ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_frame_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n);
static const char *ngx_http_sandbox_frame_sequence(
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_frame_end(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_capture(ngx_http_request_t *r,
    ngx_http_sandbox_capture_t *c, u_char *p, size_t n, size_t max);
static const char *ngx_http_sandbox_frame_complete(
    ngx_http_sandbox_ctx_t *ctx);
static const char *ngx_http_sandbox_frame_number(
    ngx_http_sandbox_result_t *result, sandbox_field_t *field);
static const char *ngx_http_sandbox_frame_text(
    ngx_http_sandbox_result_t *result, sandbox_field_t *field);
static void ngx_http_sandbox_frame_log(ngx_http_request_t *r,
    ngx_http_sandbox_problem_t *problem);
static const char *ngx_http_sandbox_frame_error(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t log);
static ngx_int_t ngx_http_sandbox_frame_bad(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const char *what);


ngx_int_t
ngx_http_sandbox_frames(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_buf_t *b)
{
    size_t                    n;
    ngx_int_t                 rc;
    ngx_http_sandbox_wire_t  *wire;

    wire = &ctx->wire;

    while (b->pos < b->last) {

        if (wire->done && (ctx->save || ctx->mcp)) {
            b->pos = b->last;
            return NGX_OK;
        }

        if (wire->done) {

            /* too late to change what was said; the connection is closed */

            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "sandbox runner or agent sent data after the last "
                          "frame");
            return NGX_OK;
        }

        if (wire->have < SANDBOX_WIRE_FRAME_SIZE) {

            wire->start[wire->have++] = *b->pos++;

            if (wire->have < SANDBOX_WIRE_FRAME_SIZE) {
                continue;
            }

            rc = ngx_http_sandbox_frame_begin(r, ctx);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        n = ngx_min((size_t) (b->last - b->pos), wire->left);

        if (n) {
            rc = ngx_http_sandbox_frame_data(r, ctx, b->pos, n);
            if (rc != NGX_OK) {
                return rc;
            }

            b->pos += n;
            wire->left -= n;
        }

        if (wire->left == 0) {
            wire->have = 0;

            rc = ngx_http_sandbox_frame_end(r, ctx);
            if (rc != NGX_OK) {
                return rc;
            }

            if (ctx->stream) {
                return NGX_OK;
            }
        }
    }

    return wire->done ? NGX_OK : NGX_AGAIN;
}


void
ngx_http_sandbox_frames_reset(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_wire_t  *wire;

    wire = &ctx->wire;

    wire->have = 0;
    wire->left = 0;
    wire->number_len = 0;
    wire->payload_len = 0;
    wire->seq = wire->after;
    wire->pings = 0;
    wire->started = ngx_current_msec;

    wire->connected = 0;
    wire->head_seen = 0;
    wire->done = 0;
    wire->bad = 0;
    wire->timedout = 0;
    wire->lost = 0;

    ngx_memzero(wire->stream, sizeof(wire->stream));
    ngx_memzero(&wire->result, sizeof(ngx_http_sandbox_result_t));
}


static ngx_int_t
ngx_http_sandbox_frame_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    const char               *what;
    ngx_http_sandbox_wire_t  *wire;

    wire = &ctx->wire;

    if (sandbox_frame_read(wire->start, &wire->frame) != SANDBOX_OK) {
        return ngx_http_sandbox_frame_bad(r, ctx, "a frame of unknown type "
                                                  "or size");
    }

    what = ngx_http_sandbox_frame_order(ctx);
    if (what) {
        return ngx_http_sandbox_frame_bad(r, ctx, what);
    }

    wire->left = wire->frame.length;
    wire->number_len = 0;
    wire->payload_len = 0;

    switch (wire->frame.type) {

    case SANDBOX_FRAME_HEAD:
    case SANDBOX_FRAME_RESULT:
    case SANDBOX_FRAME_ERROR:

        /* fields point into it, so each has its own; at most 16 KiB */

        wire->payload = ngx_pnalloc(r->pool, wire->frame.length + 1);
        if (wire->payload == NULL) {
            return NGX_ERROR;
        }

        break;

    case SANDBOX_FRAME_STDOUT:
    case SANDBOX_FRAME_STDERR:

        /* an event is text or not as a whole, so it is collected */

        if (ctx->stream) {
            wire->payload = ngx_http_sandbox_stream_piece(r, ctx->stream,
                                                  wire->frame.length - 8);
            if (wire->payload == NULL) {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


static const char *
ngx_http_sandbox_frame_order(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_wire_t  *wire;

    wire = &ctx->wire;

    switch (wire->frame.type) {

    case SANDBOX_FRAME_PING:

        wire->pings++;

        if (wire->pings > NGX_HTTP_SANDBOX_PING_BURST
                          + (ngx_current_msec - wire->started)
                            / NGX_HTTP_SANDBOX_PING_PERIOD)
        {
            return "too many PING frames";
        }

        return NULL;

    case SANDBOX_FRAME_HEAD:
        return wire->head_seen ? "a second HEAD frame" : NULL;

    case SANDBOX_FRAME_ERROR:
        return wire->head_seen ? "an ERROR frame after HEAD" : NULL;

    case SANDBOX_FRAME_CANCEL:
        return "a CANCEL frame, which is for agents";

    case SANDBOX_FRAME_DATA:

        if (wire->data == NULL) {
            return "a DATA frame that nobody asked for";
        }

        return wire->head_seen ? NULL : "a frame before HEAD";

    case SANDBOX_FRAME_STARTED:

        if (ctx->stream == NULL) {
            return "a STARTED frame that nobody asked for";
        }

        return wire->head_seen ? NULL : "a frame before HEAD";

    case SANDBOX_FRAME_STDOUT:
    case SANDBOX_FRAME_STDERR:
    case SANDBOX_FRAME_GAP:

        if (wire->operation != SANDBOX_OPERATION_COMMAND
            && wire->operation != SANDBOX_OPERATION_ATTACH
            && wire->operation != SANDBOX_OPERATION_CANCEL)
        {
            return "output, but there is no command";
        }

        /* fall through */

    default: /* SANDBOX_FRAME_RESULT */
        return wire->head_seen ? NULL : "a frame before HEAD";
    }
}


static ngx_int_t
ngx_http_sandbox_frame_data(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, u_char *p, size_t n)
{
    size_t                        m, size;
    const char                   *what;
    ngx_int_t                     rc;
    ngx_http_sandbox_wire_t      *wire;
    ngx_http_sandbox_loc_conf_t  *slcf;

    wire = &ctx->wire;

    switch (wire->frame.type) {

    case SANDBOX_FRAME_HEAD:
    case SANDBOX_FRAME_RESULT:
    case SANDBOX_FRAME_ERROR:

        ngx_memcpy(wire->payload + wire->payload_len, p, n);
        wire->payload_len += n;

        return NGX_OK;

    case SANDBOX_FRAME_DATA:

        what = wire->data(r, ctx, p, n);

        if (what) {
            return ngx_http_sandbox_frame_bad(r, ctx, what);
        }

        return ctx->stream ? ngx_http_sandbox_event_bytes(r, ctx, p, n)
                           : NGX_OK;

    case SANDBOX_FRAME_GAP:
        size = 17;
        break;

    case SANDBOX_FRAME_STARTED:
        size = 16;
        break;

    default: /* output begins with a number */
        size = 8;
    }

    if (wire->number_len < size) {
        m = ngx_min(n, size - wire->number_len);

        ngx_memcpy(wire->number + wire->number_len, p, m);
        wire->number_len += m;

        if (wire->number_len == size) {
            what = ngx_http_sandbox_frame_sequence(ctx);
            if (what) {
                return ngx_http_sandbox_frame_bad(r, ctx, what);
            }
        }

        p += m;
        n -= m;
    }

    /* no frame but STDOUT and STDERR has bytes after its number */

    if (n == 0 || (wire->frame.type != SANDBOX_FRAME_STDOUT
                   && wire->frame.type != SANDBOX_FRAME_STDERR))
    {
        return NGX_OK;
    }

    if (ctx->stream) {
        ngx_memcpy(wire->payload + wire->payload_len, p, n);
        wire->payload_len += n;
        return NGX_OK;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    /* what was asked for, and one frame for those who count otherwise */

    rc = ngx_http_sandbox_capture(r, &wire->stream[wire->frame.type
                                                   - SANDBOX_FRAME_STDOUT],
                                  p, n, (size_t) slcf->caps.output
                                        + SANDBOX_WIRE_MAX_OUTPUT);

    if (rc == NGX_DECLINED) {
        return ngx_http_sandbox_frame_bad(r, ctx, "more output than it may "
                                                  "capture");
    }

    return rc;
}


/* captured output is numbered anew; of events some may be gone, see GAP */

static const char *
ngx_http_sandbox_frame_sequence(ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t                     seq;
    ngx_uint_t                   i;
    ngx_http_sandbox_wire_t     *wire;
    ngx_http_sandbox_capture_t  *c;

    wire = &ctx->wire;
    seq = sandbox_get64(wire->number);

    if (ctx->stream ? (seq <= wire->seq || seq > NGX_HTTP_SANDBOX_INTEGER)
                    : seq != wire->seq + 1)
    {
        return "a sequence number out of order";
    }

    wire->seq = seq;

    if (wire->frame.type == SANDBOX_FRAME_STARTED && seq != 1) {
        return "a STARTED frame that is not the first event";
    }

    if (wire->frame.type != SANDBOX_FRAME_GAP) {
        return NULL;
    }

    i = wire->number[8];

    if (i != SANDBOX_FRAME_STDOUT && i != SANDBOX_FRAME_STDERR) {
        return "a GAP in an unknown stream";
    }

    if (sandbox_get64(wire->number + 9) == 0
        || sandbox_get64(wire->number + 9) > NGX_HTTP_SANDBOX_INTEGER)
    {
        return "a GAP of no bytes";
    }

    if (ctx->stream) {
        return NULL;
    }

    c = &wire->stream[i - SANDBOX_FRAME_STDOUT];

    if (c->gap) {
        return "a second GAP in one stream";
    }

    c->gap = sandbox_get64(wire->number + 9);
    c->head = c->len;

    return NULL;
}


/* NGX_DECLINED: over the maximum */

static ngx_int_t
ngx_http_sandbox_capture(ngx_http_request_t *r, ngx_http_sandbox_capture_t *c,
    u_char *p, size_t n, size_t max)
{
    u_char  *data;
    size_t   size;

    if (n > max - c->len) {
        return NGX_DECLINED;
    }

    if (n > c->size - c->len) {

        size = ngx_max(2 * c->size, (size_t) 4096);
        size = ngx_max(size, c->len + n);
        size = ngx_min(size, max);

        data = ngx_palloc(r->pool, size);
        if (data == NULL) {
            return NGX_ERROR;
        }

        if (c->data) {
            ngx_memcpy(data, c->data, c->len);
            ngx_pfree(r->pool, c->data);
        }

        ngx_http_sandbox_budget_add(ngx_http_get_module_ctx(r,
                                                  ngx_http_sandbox_module),
                                    size - c->size);
        c->data = data;
        c->size = size;
    }

    ngx_memcpy(c->data + c->len, p, n);
    c->len += n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_frame_end(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    const char                   *what;
    ngx_http_sandbox_wire_t      *wire;
    ngx_http_sandbox_loc_conf_t  *slcf;

    wire = &ctx->wire;
    what = NULL;

    switch (wire->frame.type) {

    case SANDBOX_FRAME_HEAD:
        what = ngx_http_sandbox_result_read(&wire->result, wire->payload,
                                            wire->payload_len);
        wire->head_seen = 1;

        if (what == NULL && wire->accepted) {
            what = wire->accepted(r, ctx);
        }

        break;

    case SANDBOX_FRAME_RESULT:
        what = ngx_http_sandbox_result_read(&wire->result, wire->payload,
                                            wire->payload_len);

        if (what == NULL) {
            what = ngx_http_sandbox_frame_complete(ctx);
        }

        if (what == NULL && wire->data) {
            what = wire->data(r, ctx, NULL, 0);
        }

        wire->done = (what == NULL);

        if (what == NULL) {
            ngx_http_sandbox_metrics_result(r, ctx);
        }

        break;

    case SANDBOX_FRAME_ERROR:
        what = ngx_http_sandbox_frame_error(r, ctx, 1);
        wire->done = 1;
        break;
    }

    if (what) {
        return ngx_http_sandbox_frame_bad(r, ctx, what);
    }

    if (wire->frame.type == SANDBOX_FRAME_RESULT
        || wire->frame.type == SANDBOX_FRAME_ERROR)
    {
        slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
        slcf->backend->hooks->ended(r, ctx);
    }

    return NGX_OK;
}


/* what there is no answer without */

static const char *
ngx_http_sandbox_frame_complete(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_wire_t    *wire;
    ngx_http_sandbox_result_t  *result;

    wire = &ctx->wire;
    result = &wire->result;

    switch (wire->operation) {

    case SANDBOX_OPERATION_COMMAND:
    case SANDBOX_OPERATION_ATTACH:

        /* an event, or a command that should have ended */

        if (ctx->stream || (wire->operation == SANDBOX_OPERATION_COMMAND
                            && !ctx->background))
        {
            return result->seen[SANDBOX_TAG_OUTCOME]
                   ? NULL : "a RESULT without an outcome";
        }

        return result->seen[SANDBOX_TAG_OUTCOME]
               || result->seen[SANDBOX_TAG_COMMAND_STATE]
               ? NULL : "a RESULT without an outcome or a state";

    case SANDBOX_OPERATION_CANCEL:
        return result->seen[SANDBOX_TAG_OUTCOME]
               ? NULL : "a RESULT without an outcome";

    case SANDBOX_OPERATION_STDIN:
        return result->seen[SANDBOX_TAG_BYTES]
               ? NULL : "a RESULT without a number of bytes";

    case SANDBOX_OPERATION_SESSIONS:
        return NULL;

    case SANDBOX_OPERATION_HISTORY:
        return result->seen[SANDBOX_TAG_NEXT]
               ? NULL : "a RESULT without the next page";

    case SANDBOX_OPERATION_FILE_READ:
        return result->seen[SANDBOX_TAG_BYTES] || wire->data
               ? NULL : "a RESULT without a number of bytes";

    case SANDBOX_OPERATION_FILE_SEARCH:
        return NULL;

    case SANDBOX_OPERATION_FILE_WRITE:
        if (!result->seen[SANDBOX_TAG_STATUS]) {
            return "a RESULT without a status";
        }

        if (result->number[SANDBOX_TAG_STATUS] >= NGX_HTTP_BAD_REQUEST) {
            return NULL;
        }

        return result->etag.len && result->seen[SANDBOX_TAG_FILE_SIZE]
               ? NULL : "a RESULT without an etag or a size";

    case SANDBOX_OPERATION_FILE_REMOVE:
        return result->seen[SANDBOX_TAG_FILE_TYPE]
               || result->seen[SANDBOX_TAG_STATUS]
               ? NULL : "a RESULT without a type or a status";

    case SANDBOX_OPERATION_RESET:
        if (result->sandbox_id.len == 0) {
            return "a RESULT without a sandbox";
        }

        /* fall through */

    default: /* STATUS, DELETE */
        return result->seen[SANDBOX_TAG_STATE]
               ? NULL : "a RESULT without a state";
    }
}


/* unknown tags are for later versions */

const char *
ngx_http_sandbox_result_read(ngx_http_sandbox_result_t *result, u_char *p,
    size_t n)
{
    int               rc;
    const char       *what;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, p, n);

    result->fields.data = p;
    result->fields.len = n;

    for ( ;; ) {
        rc = sandbox_fields_next(&fields, &field);

        if (rc == SANDBOX_END) {
            return NULL;
        }

        if (rc == SANDBOX_BAD) {
            return "a field cut short";
        }

        switch (field.tag) {

        case SANDBOX_TAG_SANDBOX_ID:
        case SANDBOX_TAG_COMMAND_ID:
        case SANDBOX_TAG_SIGNAL:
        case SANDBOX_TAG_CWD:
        case SANDBOX_TAG_COMMAND:
        case SANDBOX_TAG_ETAG:
        case SANDBOX_TAG_FILE_NAME:
        case SANDBOX_TAG_TARGET:
        case SANDBOX_TAG_NEXT_NAME:
            what = ngx_http_sandbox_frame_text(result, &field);
            break;

        case SANDBOX_TAG_CODE:
            what = NULL;
            break;

        case SANDBOX_TAG_DETAIL:
            result->detail.data = (u_char *) field.data;
            result->detail.len = ngx_min(field.length, 1024);
            what = NULL;
            break;

        default:
            what = (field.tag <= SANDBOX_TAG_MODIFIED_NS)
                   ? ngx_http_sandbox_frame_number(result, &field) : NULL;
        }

        if (what) {
            return what;
        }
    }
}


static const char *
ngx_http_sandbox_frame_number(ngx_http_sandbox_result_t *result,
    sandbox_field_t *field)
{
    uint64_t  max, value;

    switch (field->tag) {

    case SANDBOX_TAG_EXIT_CODE:
        max = 255;
        break;

    case SANDBOX_TAG_OUTCOME:
        max = SANDBOX_OUTCOME_LAST - 1;
        break;

    case SANDBOX_TAG_STATE:
        max = SANDBOX_STATE_LAST - 1;
        break;

    case SANDBOX_TAG_COMMAND_STATE:
        max = SANDBOX_COMMAND_LAST - 1;
        break;

    case SANDBOX_TAG_FILE_TYPE:
        max = SANDBOX_FILE_LAST - 1;
        break;

    case SANDBOX_TAG_FILE_MODE:
        max = 07777;
        break;

    case SANDBOX_TAG_MODIFIED_NS:
        max = INT64_MAX;
        break;

    case SANDBOX_TAG_TRUNCATED:
    case SANDBOX_TAG_CREATED:
    case SANDBOX_TAG_OUTPUT_EXPIRED:
    case SANDBOX_TAG_DETACHED:
        max = 1;
        break;

    case SANDBOX_TAG_WALL_MS:
    case SANDBOX_TAG_INSTANCE:
    case SANDBOX_TAG_STDOUT_BYTES:
    case SANDBOX_TAG_STDERR_BYTES:
    case SANDBOX_TAG_DURATION_US:
    case SANDBOX_TAG_QUEUED_US:
    case SANDBOX_TAG_CPU_US:
    case SANDBOX_TAG_MEMORY_PEAK:
    case SANDBOX_TAG_BACKGROUND:
    case SANDBOX_TAG_STATUS:
    case SANDBOX_TAG_CREATED_MS:
    case SANDBOX_TAG_USED_MS:
    case SANDBOX_TAG_COMMANDS:
    case SANDBOX_TAG_RUNNING:
    case SANDBOX_TAG_QUEUED:
    case SANDBOX_TAG_DISK_BYTES:
    case SANDBOX_TAG_MEMORY_BYTES:
    case SANDBOX_TAG_CPU_TOTAL_US:
    case SANDBOX_TAG_EXPIRES_MS:
    case SANDBOX_TAG_SEQ:
    case SANDBOX_TAG_BYTES:
    case SANDBOX_TAG_ORDINAL:
    case SANDBOX_TAG_NEXT:
    case SANDBOX_TAG_ACCEPTED_MS:
    case SANDBOX_TAG_STARTED_MS:
    case SANDBOX_TAG_ENDED_MS:
    case SANDBOX_TAG_FILE_SIZE:
    case SANDBOX_TAG_RANGE_FIRST:
    case SANDBOX_TAG_RANGE_LAST:
        max = NGX_HTTP_SANDBOX_INTEGER;
        break;

    default:
        return NULL;
    }

    if (sandbox_field_number(field, max, &value) != SANDBOX_OK) {
        return "a number out of its range";
    }

    result->number[field->tag] = value;
    result->seen[field->tag] = 1;

    return NULL;
}


/* these go into JSON and the access log as they are, so letters only */

static const char *
ngx_http_sandbox_frame_text(ngx_http_sandbox_result_t *result,
    sandbox_field_t *field)
{
    size_t      max;
    ngx_str_t  *text;

    switch (field->tag) {

    case SANDBOX_TAG_SANDBOX_ID:
        text = &result->sandbox_id;
        max = SANDBOX_WIRE_SANDBOX_ID_SIZE;
        break;

    case SANDBOX_TAG_COMMAND_ID:
        text = &result->command_id;
        max = SANDBOX_WIRE_MAX_COMMAND_ID;
        break;

    case SANDBOX_TAG_SIGNAL:
        text = &result->signal;
        max = 16;
        break;

    case SANDBOX_TAG_COMMAND:
        if (field->length > SANDBOX_WIRE_MAX_EXCERPT) {
            return "an excerpt of a command that is too long";
        }

        result->command.data = (u_char *) field->data;
        result->command.len = field->length;

        return NULL;

    case SANDBOX_TAG_ETAG:
        text = &result->etag;
        max = SANDBOX_WIRE_MAX_ETAG;
        break;

    case SANDBOX_TAG_FILE_NAME:
    case SANDBOX_TAG_NEXT_NAME:
        if (field->length > SANDBOX_WIRE_MAX_NAME) {
            return "a name that is too long";
        }

        text = (field->tag == SANDBOX_TAG_FILE_NAME) ? &result->file_name
                                                     : &result->next_name;
        text->data = (u_char *) field->data;
        text->len = field->length;

        return NULL;

    case SANDBOX_TAG_TARGET:
        if (field->length > SANDBOX_WIRE_MAX_PATH) {
            return "a link that is too long";
        }

        result->target.data = (u_char *) field->data;
        result->target.len = field->length;

        return NULL;

    default: /* SANDBOX_TAG_CWD */
        if (field->length > SANDBOX_WIRE_MAX_CWD) {
            return "a path that is too long";
        }

        result->cwd.data = (u_char *) field->data;
        result->cwd.len = field->length;

        return NULL;
    }

    if (field->length > max
        || !sandbox_command_id_valid(field->data, field->length))
    {
        return "an id or a name that is none";
    }

    text->data = (u_char *) field->data;
    text->len = field->length;

    return NULL;
}


/*
 * The status is ours, by the code: an agent can't make up one.  A code that
 * we do not know is an error of the server, told as such.
 */

static const char *
ngx_http_sandbox_frame_error(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t log)
{
    int                          rc;
    uint64_t                     value;
    sandbox_field_t              field;
    sandbox_fields_t             fields;
    ngx_http_sandbox_problem_t  *problem;

    problem = &ctx->problem;
    ngx_memzero(problem, sizeof(ngx_http_sandbox_problem_t));

    sandbox_fields_init(&fields, ctx->wire.payload, ctx->wire.payload_len);

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {

        switch (field.tag) {

        case SANDBOX_TAG_CODE:
            if (!sandbox_command_id_valid(field.data, field.length)) {
                return "an error code that is none";
            }

            problem->code.data = (u_char *) field.data;
            problem->code.len = field.length;
            break;

        case SANDBOX_TAG_DETAIL:
            problem->detail.data = (u_char *) field.data;
            problem->detail.len = ngx_min(field.length, 1024);
            break;

        case SANDBOX_TAG_RETRY_AFTER:
            if (sandbox_field_number(&field, 86400, &value) != SANDBOX_OK) {
                return "a number out of its range";
            }

            problem->retry_after = (ngx_uint_t) value;
            break;
        }
    }

    if (rc == SANDBOX_BAD || problem->code.len == 0) {
        return "an error without a code";
    }

    problem->status = sandbox_code_status((char *) problem->code.data,
                                          problem->code.len);

    if (problem->retry_after == 0
        && (problem->status == NGX_HTTP_TOO_MANY_REQUESTS
            || problem->status == NGX_HTTP_SERVICE_UNAVAILABLE))
    {
        problem->retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
    }

    if (log && problem->status >= NGX_HTTP_INTERNAL_SERVER_ERROR) {
        ngx_http_sandbox_frame_log(r, problem);
    }

    return NULL;
}


static void
ngx_http_sandbox_frame_log(ngx_http_request_t *r,
    ngx_http_sandbox_problem_t *problem)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (problem->code.len == sizeof("unknown_base") - 1
        && ngx_strncmp(problem->code.data, "unknown_base", problem->code.len)
           == 0)
    {
        slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox runner has no base image \"%V\" that "
                      "\"sandbox_base\" asks for: start sandbox-runner with "
                      "--base %V=DIR", &slcf->base, &slcf->base);
        return;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "sandbox runner refused: %V", &problem->code);
}


ngx_int_t
ngx_http_sandbox_render_failed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    const char  *what;

    what = ngx_http_sandbox_frame_error(r, ctx, 0);

    if (what) {
        (void) ngx_http_sandbox_frame_bad(r, ctx, what);
        ngx_http_sandbox_upstream_lost(ctx);
    }

    return ngx_http_sandbox_render_problem(r, ctx);
}


static ngx_int_t
ngx_http_sandbox_frame_bad(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const char *what)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "sandbox runner or agent broke the protocol: %s", what);

    ctx->wire.bad = 1;

    return NGX_DECLINED;
}
