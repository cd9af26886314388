/*
 * One question to an engine: POST /query on a connection of its own, and its
 * answer as JSON.  Knows nothing of what is asked for, nor of agents.
 *
 * It is no subrequest: a connection with two handlers holds no reference to
 * the request, passes none of its filters, phases and variables, and nothing
 * of it is left in r when the caller goes on, with an upstream perhaps.  While
 * it is open the client is watched as an upstream does; when the request ends,
 * its cleanup closes the connection, and the engine kills what it ran for it.
 */

#include "ngx_http_sandbox_budget.h"
#include "ngx_http_sandbox_dagger.h"
#include "sandbox_answer.h"


#define NGX_HTTP_SANDBOX_QUERY_BUFFER   (16 * 1024)
#define NGX_HTTP_SANDBOX_QUERY_READS    32       /* then others have a turn */
#define NGX_HTTP_SANDBOX_QUERY_FIRST    4096     /* of the body, then doubled */
#define NGX_HTTP_SANDBOX_QUERY_SMALL    (256 * 1024) /* is never counted */
#define NGX_HTTP_SANDBOX_QUERY_MESSAGE  512      /* bytes */
#define NGX_HTTP_SANDBOX_QUERY_SECRET   40       /* as long a word may be one */
#define NGX_HTTP_SANDBOX_QUERY_DEPTH    64
#define NGX_HTTP_SANDBOX_QUERY_TOKENS   4096     /* commas and brackets */


typedef struct {
    ngx_http_request_t            *request;
    ngx_http_sandbox_query_t      *query;
    ngx_http_cleanup_t            *cleanup;
    ngx_peer_connection_t          peer;
    ngx_event_t                    refused;      /* told later */
    ngx_err_t                      err;
    ngx_chain_t                   *out;

    u_char                        *body;
    size_t                         size;
    size_t                         room;
    size_t                         counted;      /* as its tenant's */

    /* of the request, before and while it is asked */
    ngx_http_event_handler_pt      read_handler;
    ngx_http_event_handler_pt      write_handler;
    ngx_http_event_handler_pt      reading;
    ngx_http_event_handler_pt      writing;
    char                          *action;

    unsigned                       connected:1;
    unsigned                       broken:1;     /* it takes no more */

    sandbox_answer_t               answer;
} ngx_http_sandbox_question_t;


static void ngx_http_sandbox_query_count(ngx_http_sandbox_question_t *qn,
    ngx_http_sandbox_engine_counter_e counter);
static ngx_chain_t *ngx_http_sandbox_query_build(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q);
static ngx_int_t ngx_http_sandbox_query_connect(
    ngx_http_sandbox_question_t *qn);
static ngx_int_t ngx_http_sandbox_query_watch(
    ngx_http_sandbox_question_t *qn);
static void ngx_http_sandbox_query_refused(ngx_event_t *ev);
static ngx_int_t ngx_http_sandbox_query_connected(
    ngx_http_sandbox_question_t *qn);
static void ngx_http_sandbox_query_write(ngx_event_t *wev);
static void ngx_http_sandbox_query_read(ngx_event_t *rev);
static ngx_int_t ngx_http_sandbox_query_take(ngx_http_sandbox_question_t *qn,
    u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_query_keep(ngx_http_sandbox_question_t *qn,
    const u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_query_answer(
    ngx_http_sandbox_question_t *qn);
static ngx_int_t ngx_http_sandbox_query_json(ngx_http_sandbox_question_t *qn);
static ngx_int_t ngx_http_sandbox_query_bounded(const u_char *p, size_t n);
static ngx_int_t ngx_http_sandbox_query_errors(ngx_http_sandbox_question_t *qn,
    json_t *error);
static ngx_int_t ngx_http_sandbox_query_message(
    ngx_http_sandbox_question_t *qn, const u_char *p, size_t n);
static ngx_uint_t ngx_http_sandbox_query_letter(u_char c);
static void ngx_http_sandbox_query_text(json_t *object, const char *name,
    ngx_str_t *text);
static void ngx_http_sandbox_query_free(void *data);
static void ngx_http_sandbox_query_failed(ngx_http_sandbox_question_t *qn,
    const char *problem);
static void ngx_http_sandbox_query_unreachable(
    ngx_http_sandbox_question_t *qn, ngx_err_t err);
static void ngx_http_sandbox_query_done(ngx_http_sandbox_question_t *qn,
    ngx_int_t status);
static void ngx_http_sandbox_query_cleanup(void *data);


ngx_int_t
ngx_http_sandbox_query(ngx_http_request_t *r, ngx_http_sandbox_query_t *q)
{
    ngx_http_sandbox_question_t  *qn;

    qn = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_question_t));
    if (qn == NULL) {
        return NGX_ERROR;
    }

    qn->request = r;
    qn->query = q;
    qn->answer.max = q->max;

    qn->out = ngx_http_sandbox_query_build(r, q);
    if (qn->out == NULL) {
        return NGX_ERROR;
    }

    qn->cleanup = ngx_http_cleanup_add(r, 0);
    if (qn->cleanup == NULL) {
        return NGX_ERROR;
    }

    qn->cleanup->data = qn;
    qn->cleanup->handler = ngx_http_sandbox_query_cleanup;

    q->status = NGX_ERROR;
    q->root = NULL;
    q->exec_error = 0;
    q->begun = 0;
    q->exit_code = -1;
    ngx_str_null(&q->message);
    ngx_str_null(&q->output);
    ngx_str_null(&q->errors);

    if (ngx_http_sandbox_query_connect(qn) != NGX_OK
        || ngx_http_sandbox_query_watch(qn) != NGX_OK)
    {
        ngx_http_sandbox_query_cleanup(qn);
        qn->cleanup->handler = NULL;
        return NGX_ERROR;
    }

    ngx_http_sandbox_query_count(qn, NGX_HTTP_SANDBOX_ENGINE_QUERIES);

    return NGX_OK;
}


static void
ngx_http_sandbox_query_count(ngx_http_sandbox_question_t *qn,
    ngx_http_sandbox_engine_counter_e counter)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(qn->request, ngx_http_sandbox_module);

    ngx_http_sandbox_engine_count(&slcf->main->zone, qn->query->engine,
                                  counter);
}


static ngx_chain_t *
ngx_http_sandbox_query_build(ngx_http_request_t *r,
    ngx_http_sandbox_query_t *q)
{
    off_t         size;
    size_t        i;
    ngx_buf_t    *b;
    ngx_chain_t  *cl, *out, **last;

    static const char  start[] = "POST /query HTTP/1.1" CRLF
                                 "Host: dagger" CRLF
                                 "Connection: close" CRLF
                                 "Content-Type: application/json" CRLF
                                 "Content-Length: ";
    static const char  metadata[] = CRLF "X-Dagger-Client-Metadata: ";

    for (i = 0; i < q->metadata.len; i++) {

        if (q->metadata.data[i] <= ' ' || q->metadata.data[i] >= 0x7f) {
            ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                          "sandbox engine \"%V\" can't be asked: its metadata "
                          "are not fit for a header", &q->engine->name);
            return NULL;
        }
    }

    b = ngx_create_temp_buf(r->pool, sizeof(start) + NGX_OFF_T_LEN
                                     + sizeof(metadata) + q->metadata.len + 4);
    out = ngx_alloc_chain_link(r->pool);

    if (b == NULL || out == NULL) {
        return NULL;
    }

    out->buf = b;
    last = &out->next;
    size = 0;

    /* sending moves what it sends: these are copies */

    for (cl = q->body; cl; cl = cl->next) {

        if (!ngx_buf_in_memory(cl->buf) || cl->buf->pos == cl->buf->last) {
            continue;
        }

        *last = ngx_alloc_chain_link(r->pool);
        if (*last == NULL) {
            return NULL;
        }

        (*last)->buf = ngx_calloc_buf(r->pool);
        if ((*last)->buf == NULL) {
            return NULL;
        }

        (*last)->buf->memory = 1;
        (*last)->buf->pos = cl->buf->pos;
        (*last)->buf->last = cl->buf->last;

        size += cl->buf->last - cl->buf->pos;
        last = &(*last)->next;
    }

    *last = NULL;

    b->last = ngx_sprintf(b->last, "%s%O%s%V" CRLF CRLF, start, size,
                          metadata, &q->metadata);
    return out;
}


static ngx_int_t
ngx_http_sandbox_query_connect(ngx_http_sandbox_question_t *qn)
{
    ngx_int_t                     rc;
    ngx_log_t                     quiet;
    ngx_connection_t             *c;
    ngx_peer_connection_t        *pc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(qn->request, ngx_http_sandbox_module);
    pc = &qn->peer;

    /* what goes wrong is told in words, once */

    quiet = *qn->request->connection->log;
    quiet.next = NULL;
    quiet.log_level = NGX_LOG_ALERT;

    pc->sockaddr = qn->query->engine->addr.sockaddr;
    pc->socklen = qn->query->engine->addr.socklen;
    pc->name = (ngx_str_t *) &qn->query->engine->name;
    pc->get = ngx_event_get_peer;
    pc->log = &quiet;
    pc->log_error = NGX_ERROR_INFO;

    ngx_set_errno(0);

    rc = ngx_event_connect_peer(pc);

    if (rc != NGX_OK && rc != NGX_AGAIN) {

        qn->err = ngx_socket_errno;
        qn->refused.handler = ngx_http_sandbox_query_refused;
        qn->refused.data = qn;
        qn->refused.log = qn->request->connection->log;

        ngx_post_event(&qn->refused, &ngx_posted_events);

        return NGX_OK;
    }

    c = pc->connection;

    c->data = qn;
    c->log = qn->request->connection->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_http_sandbox_query_read;
    c->write->handler = ngx_http_sandbox_query_write;
    pc->log = c->log;

    if (pc->sockaddr->sa_family != AF_UNIX && ngx_tcp_nodelay(c) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_add_timer(c->read, qn->query->timeout);

    if (rc == NGX_AGAIN) {
        ngx_add_timer(c->write, slcf->connect_timeout);

    } else {
        ngx_post_event(c->write, &ngx_posted_events);
    }

    return NGX_OK;
}


/* as ngx_http_upstream_init_request() does it */

static ngx_int_t
ngx_http_sandbox_query_watch(ngx_http_sandbox_question_t *qn)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = qn->request;
    c = r->connection;

    if (!qn->query->stays) {

        if (c->read->ready) {
            ngx_post_event(c->read, &ngx_posted_events);

        } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (c->read->timer_set) {
        ngx_del_timer(c->read);
    }

    qn->read_handler = r->read_event_handler;
    qn->write_handler = r->write_event_handler;
    qn->action = c->log->action;

    qn->reading = qn->query->stays ? ngx_http_block_reading
                                   : ngx_http_test_reading;
    qn->writing = ngx_http_request_empty_handler;

#if (NGX_HTTP_V2)

    /* a stream may be told by either event that it is closed */

    if (r->stream && !qn->query->stays) {
        qn->writing = ngx_http_test_reading;
    }

#endif

    r->read_event_handler = qn->reading;
    r->write_event_handler = qn->writing;

    c->log->action = "asking an engine";

    return NGX_OK;
}


static void
ngx_http_sandbox_query_refused(ngx_event_t *ev)
{
    ngx_http_sandbox_question_t *qn = ev->data;

    ngx_connection_t  *c;

    c = qn->request->connection;

    ngx_http_set_log_request(c->log, qn->request);

    ngx_http_sandbox_query_unreachable(qn, qn->err);

    ngx_http_run_posted_requests(c);
}


/* NGX_AGAIN: not yet; NGX_DONE: never, and qn is done */

static ngx_int_t
ngx_http_sandbox_query_connected(ngx_http_sandbox_question_t *qn)
{
    int                err;
    socklen_t          len;
    ngx_connection_t  *c;

    c = qn->peer.connection;

    if (qn->connected) {
        return NGX_OK;
    }

    if (c->read->timedout || c->write->timedout) {
        ngx_http_sandbox_query_unreachable(qn, NGX_ETIMEDOUT);
        return NGX_DONE;
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        ngx_http_sandbox_query_unreachable(qn, err);
        return NGX_DONE;
    }

    if (!c->write->ready) {
        return NGX_AGAIN;
    }

    qn->connected = 1;

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }

    /* what has come before this would not be told once more */

    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_query_write(ngx_event_t *wev)
{
    ngx_chain_t                  *cl;
    ngx_connection_t             *c, *client;
    ngx_http_sandbox_question_t  *qn;

    c = wev->data;
    qn = c->data;
    client = qn->request->connection;

    ngx_http_set_log_request(client->log, qn->request);

    if (ngx_http_sandbox_query_connected(qn) != NGX_OK) {
        ngx_http_run_posted_requests(client);
        return;
    }

    if (qn->out && !qn->broken) {

        cl = c->send_chain(c, qn->out, 0);

        if (cl == NGX_CHAIN_ERROR) {

            /* an engine may have answered before it has heard all */

            qn->broken = 1;
            ngx_post_event(c->read, &ngx_posted_events);
            return;
        }

        qn->out = cl;
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_http_sandbox_query_failed(qn, "nginx met an error");
        ngx_http_run_posted_requests(client);
    }
}


static void
ngx_http_sandbox_query_read(ngx_event_t *rev)
{
    u_char                        buffer[NGX_HTTP_SANDBOX_QUERY_BUFFER];
    ssize_t                       n;
    ngx_int_t                     rc;
    ngx_uint_t                    reads;
    ngx_connection_t             *c, *client;
    ngx_http_sandbox_question_t  *qn;

    c = rev->data;
    qn = c->data;
    client = qn->request->connection;

    ngx_http_set_log_request(client->log, qn->request);

    if (ngx_http_sandbox_query_connected(qn) != NGX_OK) {
        ngx_http_run_posted_requests(client);
        return;
    }

    if (rev->timedout) {
        ngx_http_sandbox_query_failed(qn, "it takes too long to answer");
        ngx_http_run_posted_requests(client);
        return;
    }

    reads = 0;

    do {
        if (reads++ == NGX_HTTP_SANDBOX_QUERY_READS) {
            ngx_post_event(rev, &ngx_posted_next_events);
            return;
        }

        n = c->recv(c, buffer, NGX_HTTP_SANDBOX_QUERY_BUFFER);

        if (n == NGX_AGAIN) {

            if (qn->broken) {
                rc = NGX_DECLINED;
                qn->answer.problem = "it does not listen";

            } else {
                rc = ngx_handle_read_event(rev, 0);

                if (rc == NGX_OK) {
                    return;
                }
            }

        } else if (n > 0) {
            rc = ngx_http_sandbox_query_take(qn, buffer, (size_t) n);

        } else {
            rc = NGX_DECLINED;
            qn->answer.problem = "it closed the connection before the end of "
                                 "its answer";
        }

    } while (rc == NGX_AGAIN);

    switch (rc) {

    case NGX_OK:
        rc = ngx_http_sandbox_query_answer(qn);
        break;

    case NGX_DECLINED:
        ngx_http_sandbox_query_failed(qn, qn->answer.problem);
        break;

    case NGX_BUSY:
        ngx_http_sandbox_query_done(qn, NGX_BUSY);
        break;
    }

    if (rc == NGX_ERROR) {
        ngx_http_sandbox_query_failed(qn, "nginx met an error");
    }

    ngx_http_run_posted_requests(client);
}


/* NGX_OK: all of it is here; NGX_DECLINED: no answer; NGX_BUSY: too much */

static ngx_int_t
ngx_http_sandbox_query_take(ngx_http_sandbox_question_t *qn, u_char *p,
    size_t n)
{
    int             rc;
    size_t          size;
    ngx_int_t       kept;
    const uint8_t  *at, *piece;

    at = p;

    do {
        rc = sandbox_answer_take(&qn->answer, &at, &n, &piece, &size);

        kept = size ? ngx_http_sandbox_query_keep(qn, piece, size) : NGX_OK;

        if (kept != NGX_OK) {
            return kept;
        }

    } while (rc == SANDBOX_AGAIN && n);

    return (rc == SANDBOX_OK) ? NGX_OK
           : (rc == SANDBOX_AGAIN) ? NGX_AGAIN : NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_query_keep(ngx_http_sandbox_question_t *qn, const u_char *p,
    size_t n)
{
    size_t                   room;
    u_char                  *body;
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_sandbox_ctx_t  *ctx;

    r = qn->request;
    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (n > qn->room - qn->size) {

        room = ngx_max(qn->size + n, 2 * qn->room);
        room = ngx_max(room, NGX_HTTP_SANDBOX_QUERY_FIRST);
        room = ngx_min(room, qn->query->max);

        if (room > NGX_HTTP_SANDBOX_QUERY_SMALL && !qn->query->needed) {
            rc = ngx_http_sandbox_budget_take(r, ctx, room - qn->counted);

            if (rc != NGX_OK) {
                return rc == NGX_DECLINED ? NGX_BUSY : rc;
            }

            qn->counted = room;
        }

        body = ngx_pnalloc(qn->request->pool, room);
        if (body == NULL) {
            return NGX_ERROR;
        }

        if (qn->size) {
            ngx_memcpy(body, qn->body, qn->size);
            ngx_pfree(qn->request->pool, qn->body);
        }

        qn->body = body;
        qn->room = room;
    }

    ngx_memcpy(qn->body + qn->size, p, n);
    qn->size += n;

    return NGX_OK;
}


/*
 * Neither status nor type can be trusted: some refusals are sentences and
 * some are JSON with a type of text, both with 200.
 */

static ngx_int_t
ngx_http_sandbox_query_answer(ngx_http_sandbox_question_t *qn)
{
    u_char     *p, *last;
    ngx_int_t   rc;

    rc = ngx_http_sandbox_query_json(qn);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    p = qn->body;
    last = p + qn->size;

    while (p < last && (*p == ' ' || *p == '\t' || *p == CR || *p == LF)) {
        p++;
    }

    if (p == last || qn->answer.json || *p == '{') {
        ngx_http_sandbox_query_failed(qn, p == last ? "its answer is empty"
                                            : "its answer is not the JSON "
                                              "that was expected");
        return NGX_DONE;
    }

    return ngx_http_sandbox_query_message(qn, p, (size_t) (last - p));
}


/* NGX_DECLINED: it is no JSON, or says neither what was asked for nor why */

static ngx_int_t
ngx_http_sandbox_query_json(ngx_http_sandbox_question_t *qn)
{
    json_t              *root, *errors;
    json_error_t         error;
    ngx_pool_cleanup_t  *cln;

    if (qn->size == 0
        || ngx_http_sandbox_query_bounded(qn->body, qn->size) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    cln = ngx_pool_cleanup_add(qn->request->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    root = json_loadb((const char *) qn->body, qn->size,
                      JSON_REJECT_DUPLICATES|JSON_ALLOW_NUL, &error);
    if (root == NULL) {
        return NGX_DECLINED;
    }

    cln->handler = ngx_http_sandbox_query_free;
    cln->data = root;

    errors = json_object_get(root, "errors");

    if (json_is_object(root) && json_array_size(errors)) {
        return ngx_http_sandbox_query_errors(qn, json_array_get(errors, 0));
    }

    if (!json_is_object(json_object_get(root, "data"))
        || (errors && !json_is_null(errors) && !json_is_array(errors)))
    {
        return NGX_DECLINED;
    }

    ngx_pfree(qn->request->pool, qn->body);

    qn->query->root = root;

    ngx_http_sandbox_query_done(qn, NGX_OK);

    return NGX_DONE;
}


/* what would make of few bytes much memory, or a deep stack, is refused */

static ngx_int_t
ngx_http_sandbox_query_bounded(const u_char *p, size_t n)
{
    size_t      i;
    ngx_int_t   depth;
    ngx_uint_t  string, tokens;

    depth = 0;
    string = 0;
    tokens = 0;

    for (i = 0; i < n; i++) {

        if (string) {

            if (p[i] == '\\') {
                i++;

            } else if (p[i] == '"') {
                string = 0;
            }

            continue;
        }

        switch (p[i]) {

        case '"':
            string = 1;
            break;

        case '{':
        case '[':
            depth++;
            tokens++;
            break;

        case '}':
        case ']':
            depth--;
            break;

        case ',':
            tokens++;
            break;
        }

        if (depth > NGX_HTTP_SANDBOX_QUERY_DEPTH
            || tokens > NGX_HTTP_SANDBOX_QUERY_TOKENS)
        {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_query_errors(ngx_http_sandbox_question_t *qn, json_t *error)
{
    size_t                     i;
    json_t                    *extensions, *value, *path;
    ngx_str_t                  text;
    json_int_t                 code;
    ngx_http_sandbox_query_t  *q;

    q = qn->query;

    path = json_object_get(error, "path");

    for (i = 0; i < json_array_size(path); i++) {
        value = json_array_get(path, i);

        if (json_is_string(value)
            && ngx_strcmp(json_string_value(value), "withExec") == 0)
        {
            q->begun = 1;
        }
    }

    extensions = json_object_get(error, "extensions");
    ngx_http_sandbox_query_text(extensions, "_type", &text);

    if (text.len == 10 && ngx_strncmp(text.data, "EXEC_ERROR", 10) == 0) {

        q->exec_error = 1;

        value = json_object_get(extensions, "exitCode");
        code = json_is_integer(value) ? json_integer_value(value) : -1;

        q->exit_code = (code >= 0 && code <= 255) ? (ngx_int_t) code : -1;

        ngx_http_sandbox_query_text(extensions, "stdout", &q->output);
        ngx_http_sandbox_query_text(extensions, "stderr", &q->errors);
    }

    ngx_http_sandbox_query_text(error, "message", &text);

    if (text.len == 0) {
        ngx_str_set(&text, "it does not say why");
    }

    return ngx_http_sandbox_query_message(qn, text.data, text.len);
}


/*
 * An engine may repeat what it was asked, and that holds secrets: words as
 * long as these are left out.
 */

static ngx_int_t
ngx_http_sandbox_query_message(ngx_http_sandbox_question_t *qn,
    const u_char *p, size_t n)
{
    size_t      i, word;
    u_char     *text, *last, *end;
    ngx_str_t  *message;

    message = &qn->query->message;

    text = ngx_pnalloc(qn->request->pool, NGX_HTTP_SANDBOX_QUERY_MESSAGE);
    if (text == NULL) {
        return NGX_ERROR;
    }

    last = text;
    end = text + NGX_HTTP_SANDBOX_QUERY_MESSAGE;

    for (i = 0; i < n && last < end; i += word) {

        word = 0;

        while (i + word < n && ngx_http_sandbox_query_letter(p[i + word])) {
            word++;
        }

        if (word >= NGX_HTTP_SANDBOX_QUERY_SECRET) {
            last = ngx_cpymem(last, "...", ngx_min(3, end - last));
            continue;
        }

        word = ngx_max(word, 1);
        last = ngx_cpymem(last, p + i, ngx_min((off_t) word, end - last));
    }

    message->data = text;
    message->len = sandbox_utf8_head(text, (size_t) (last - text));

    sandbox_utf8_blank(message->data, message->len);

    while (message->len && message->data[message->len - 1] == ' ') {
        message->len--;
    }

    /* whoever asked tells what that means */

    ngx_log_error(NGX_LOG_INFO, qn->request->connection->log, 0,
                  "sandbox engine \"%V\" refuses a query: %V",
                  &qn->query->engine->name, message);

    ngx_http_sandbox_query_done(qn, NGX_DECLINED);

    return NGX_DONE;
}


/* of hexadecimal and both kinds of base64 */

static ngx_uint_t
ngx_http_sandbox_query_letter(u_char c)
{
    return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9')
           || c == '+' || c == '/' || c == '=' || c == '_' || c == '-';
}


/* empty where there is none */

static void
ngx_http_sandbox_query_text(json_t *object, const char *name, ngx_str_t *text)
{
    json_t  *value;

    value = json_object_get(object, name);

    if (!json_is_string(value)) {
        ngx_str_null(text);
        return;
    }

    text->data = (u_char *) json_string_value(value);
    text->len = json_string_length(value);
}


static void
ngx_http_sandbox_query_free(void *data)
{
    json_decref(data);
}


static void
ngx_http_sandbox_query_failed(ngx_http_sandbox_question_t *qn,
    const char *problem)
{
    ngx_log_error(NGX_LOG_ERR, qn->request->connection->log, 0,
                  "sandbox engine \"%V\" was asked and gave no answer: %s "
                  "(its own log may say more)", &qn->query->engine->name,
                  problem);

    ngx_http_sandbox_query_done(qn, NGX_ERROR);
}


static void
ngx_http_sandbox_query_unreachable(ngx_http_sandbox_question_t *qn,
    ngx_err_t err)
{
    ngx_log_error(NGX_LOG_ERR, qn->request->connection->log, err,
                  "sandbox engine \"%V\" can't be connected to: is it "
                  "running, and is that its address?",
                  &qn->query->engine->name);

    ngx_http_sandbox_query_done(qn, NGX_ABORT);
}


static void
ngx_http_sandbox_query_done(ngx_http_sandbox_question_t *qn, ngx_int_t status)
{
    ngx_http_request_t  *r;

    r = qn->request;

    ngx_http_sandbox_query_cleanup(qn);
    qn->cleanup->handler = NULL;

    /* an upstream that ended meanwhile has left others */

    if (r->read_event_handler == qn->reading) {
        r->read_event_handler = qn->read_handler;
    }

    if (r->write_event_handler == qn->writing) {
        r->write_event_handler = qn->write_handler;
    }

    r->connection->log->action = qn->action;

    if (status != NGX_OK) {
        ngx_http_sandbox_query_count(qn, NGX_HTTP_SANDBOX_ENGINE_FAILURES);
    }

    qn->query->status = status;
    qn->query->handler(r, qn->query);
}


static void
ngx_http_sandbox_query_cleanup(void *data)
{
    ngx_http_sandbox_question_t *qn = data;

    if (qn->peer.connection) {
        ngx_close_connection(qn->peer.connection);
        qn->peer.connection = NULL;
    }

    if (qn->refused.posted) {
        ngx_delete_posted_event(&qn->refused);
    }
}
