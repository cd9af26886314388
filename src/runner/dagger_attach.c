/*
 * The connection that keeps a session alive: a GET that the engine answers by
 * 101, one byte, and from then on the engine is an HTTP/2 client that calls
 * us by gRPC.  It asks for three things: whether we are well (every 5 s), the
 * path that we work in, and files there, which we do not have.  All else is
 * answered "unimplemented".  Seen with engine v0.21.5.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <nghttp2/nghttp2.h>

#include "dagger.h"
#include "log.h"


#define DAGGER_ATTACH_WAIT     15000     /* ms, for the 101; a start is slow */
#define DAGGER_ATTACH_SILENCE  20000     /* ms: it asks every 5 s */
#define DAGGER_ATTACH_HEADER   4096
#define DAGGER_ATTACH_STREAMS  64
#define DAGGER_ATTACH_OUT      65536     /* bytes that it does not read */

#define DAGGER_GRPC_OK             "0"
#define DAGGER_GRPC_NOT_FOUND      "5"
#define DAGGER_GRPC_UNIMPLEMENTED  "12"


typedef enum {
    DAGGER_CALL_OTHER = 0,
    DAGGER_CALL_HEALTH,
    DAGGER_CALL_FILES
} dagger_call_e;


/* one call of the engine */

typedef struct {
    int                    used;
    dagger_call_e          call;
    int                    answered;
    int                    path;         /* it asks where we are */
    const uint8_t         *message;      /* what is left of the answer */
    size_t                 size;
    const char            *status;
} dagger_stream_t;


struct dagger_attach_s {
    runner_later_t         later;
    runner_event_t         event;
    runner_timer_t         timer;
    dagger_engine_t       *engine;
    nghttp2_session       *h2;           /* NULL until the 101 */
    dagger_stream_t        streams[DAGGER_ATTACH_STREAMS];

    char                   header[DAGGER_ATTACH_HEADER + 1];
    size_t                 header_size;

    uint8_t                out[DAGGER_ATTACH_OUT];
    size_t                 out_size;
    size_t                 out_sent;
};


static void dagger_attach_event(runner_event_t *event, uint32_t events);
static void dagger_attach_silent(void *data);
static int dagger_attach_request(dagger_attach_t *attach);
static int dagger_attach_head(dagger_attach_t *attach);
static int dagger_attach_foreign(const dagger_attach_t *attach);
static int dagger_attach_read(dagger_attach_t *attach);
static int dagger_attach_h2(dagger_attach_t *attach);
static int dagger_attach_put(dagger_attach_t *attach, const void *data,
    size_t size);
static int dagger_attach_write(dagger_attach_t *attach);
static int dagger_attach_begin(nghttp2_session *h2,
    const nghttp2_frame *frame, void *data);
static int dagger_attach_header(nghttp2_session *h2,
    const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
    const uint8_t *value, size_t value_size, uint8_t flags, void *data);
static int dagger_attach_frame(nghttp2_session *h2,
    const nghttp2_frame *frame, void *data);
static int dagger_attach_closed(nghttp2_session *h2, int32_t id,
    uint32_t error, void *data);
static int dagger_attach_path(const uint8_t *value, size_t size);
static int dagger_attach_answer(nghttp2_session *h2, int32_t id,
    dagger_stream_t *stream);
static ssize_t dagger_attach_message(nghttp2_session *h2, int32_t id,
    uint8_t *buf, size_t size, uint32_t *flags, nghttp2_data_source *source,
    void *data);


/* gRPC messages: 0, length u32, bytes */

static const uint8_t  dagger_serving[] = { 0, 0, 0, 0, 2, 0x08, 0x01 };
static const uint8_t  dagger_root[] = { 0, 0, 0, 0, 3, 0x0a, 0x01, '/' };


dagger_attach_t *
dagger_attach_start(dagger_engine_t *engine)
{
    dagger_attach_t  *attach;

    attach = calloc(1, sizeof(dagger_attach_t));
    if (attach == NULL) {
        return NULL;
    }

    attach->engine = engine;
    attach->event.handler = dagger_attach_event;
    attach->event.data = attach;
    attach->timer.handler = dagger_attach_silent;
    attach->timer.data = attach;
    attach->event.fd = dagger_connect(engine);

    if (attach->event.fd == -1) {
        free(attach);
        return NULL;
    }

    if (dagger_attach_request(attach) == -1
        || runner_event_add(&engine->dagger->loop, &attach->event,
                            EPOLLIN|EPOLLOUT) == -1
        || runner_timer_start(&engine->dagger->loop, &attach->timer,
                              DAGGER_ATTACH_WAIT) == -1)
    {
        dagger_attach_free(attach);
        return NULL;
    }

    return attach;
}


void
dagger_attach_free(dagger_attach_t *attach)
{
    runner_loop_t  *loop;

    loop = &attach->engine->dagger->loop;

    runner_timer_stop(loop, &attach->timer);
    runner_event_remove(loop, &attach->event);
    close(attach->event.fd);

    if (attach->h2 != NULL) {
        nghttp2_session_del(attach->h2);
        attach->h2 = NULL;
    }

    runner_loop_free_later(loop, &attach->later);
}


static int
dagger_attach_request(dagger_attach_t *attach)
{
    int   n;
    char  text[DAGGER_MAX_METADATA + 512];

    n = snprintf(text, sizeof(text), "GET /sessionAttachables HTTP/1.1\r\n"
                 "Host: dagger\r\nX-Dagger-Client-Metadata: %s\r\n"
                 "X-Docker-Expose-Session-Grpc-Method: "
                 "/grpc.health.v1.Health/Check\r\n"
                 "X-Docker-Expose-Session-Grpc-Method: "
                 "/moby.filesync.v1.FileSync/DiffCopy\r\n\r\n",
                 attach->engine->session.metadata);

    if (n < 0 || (size_t) n >= sizeof(text)) {
        return -1;
    }

    return dagger_attach_put(attach, text, (size_t) n);
}


static void
dagger_attach_silent(void *data)
{
    dagger_attach_t  *attach;

    attach = data;

    if (attach->h2 == NULL && attach->header_size) {
        dagger_engine_foreign(attach->engine, attach->header);
        return;
    }

    dagger_engine_lost(attach->engine, attach->h2 == NULL
                       ? "it did not answer in time"
                       : "it has not asked for our health for long");
}


static void
dagger_attach_event(runner_event_t *event, uint32_t events)
{
    int               error;
    socklen_t         size;
    dagger_engine_t  *engine;
    dagger_attach_t  *attach;

    attach = event->data;
    engine = attach->engine;
    size = sizeof(error);
    error = 0;

    if ((events & (EPOLLERR|EPOLLHUP))
        && getsockopt(event->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0
        && error != 0)
    {
        dagger_engine_failed(engine, error);
        return;
    }

    if ((events & EPOLLOUT) && dagger_attach_write(attach) == -1) {
        dagger_engine_failed(engine, errno);
        return;
    }

    if ((events & (EPOLLIN|EPOLLERR|EPOLLHUP))
        && dagger_attach_read(attach) == -1)
    {
        return;
    }
}


/* -1: lost, and told */

static int
dagger_attach_read(dagger_attach_t *attach)
{
    ssize_t           n;
    uint8_t           buf[16384];
    dagger_engine_t  *engine;

    engine = attach->engine;

    if (attach->h2 == NULL) {
        return dagger_attach_head(attach);
    }

    n = recv(attach->event.fd, buf, sizeof(buf), 0);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }

    if (n <= 0) {
        dagger_engine_lost(engine, n == 0 ? "it closed the session"
                                          : strerror(errno));
        return -1;
    }

    if (nghttp2_session_mem_recv(attach->h2, buf, (size_t) n) < 0
        || dagger_attach_h2(attach) == -1)
    {
        dagger_engine_lost(engine, "it does not speak HTTP/2 as we know it");
        return -1;
    }

    return 0;
}


/* the answer to the GET, byte by byte to its end and not beyond */

static int
dagger_attach_head(dagger_attach_t *attach)
{
    char             *line;
    char              why[DAGGER_MAX_DETAIL];
    ssize_t           n;
    dagger_engine_t  *engine;

    engine = attach->engine;

    for ( ;; ) {
        n = recv(attach->event.fd, attach->header + attach->header_size, 1,
                 0);

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }

        if (n <= 0) {
            break;
        }

        attach->header_size++;
        attach->header[attach->header_size] = '\0';

        if (attach->header_size == DAGGER_ATTACH_HEADER) {
            break;
        }

        if (attach->header_size >= 4
            && strcmp(attach->header + attach->header_size - 4, "\r\n\r\n")
               == 0
            && strncmp(attach->header, "HTTP/", 5) == 0)
        {
            line = strchr(attach->header, ' ');

            if (line != NULL && strncmp(line, " 101", 4) == 0) {

                if (dagger_attach_h2(attach) == -1) {
                    dagger_engine_lost(engine, "no memory");
                    return -1;
                }

                dagger_engine_attached(engine);

                return 0;
            }

            /* the sentence that says why not stands in the body */

            n = recv(attach->event.fd, attach->header + attach->header_size,
                     DAGGER_ATTACH_HEADER - attach->header_size, 0);

            if (n > 0) {
                attach->header_size += (size_t) n;
                attach->header[attach->header_size] = '\0';
            }

            break;
        }
    }

    if (dagger_attach_foreign(attach)) {
        dagger_engine_foreign(engine, attach->header);
        return -1;
    }

    line = strstr(attach->header, "\r\n\r\n");

    if (line != NULL && line[4] != '\0') {
        snprintf(why, sizeof(why), "it refused the session: %.200s",
                 line + 4);

    } else {
        snprintf(why, sizeof(why), "it refused the session: %.*s",
                 (int) strcspn(attach->header, "\r\n"), attach->header);
    }

    dagger_engine_lost(engine, attach->header_size
                               ? why : "it closed the connection");

    return -1;
}


/* an engine that refuses says why in plain text, with whatever status */

static int
dagger_attach_foreign(const dagger_attach_t *attach)
{
    size_t       i;
    const char  *status, *body;

    static const char *const  others[] = {
        "3", "404", "405", "501"
    };

    if (attach->header_size == 0) {
        return 0;
    }

    status = strchr(attach->header, ' ');

    if (strncmp(attach->header, "HTTP/", 5) != 0 || status == NULL) {
        return 1;
    }

    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strncmp(status + 1, others[i], strlen(others[i])) == 0) {
            return 1;
        }
    }

    body = strstr(attach->header, "\r\n\r\n");

    return strcasestr(attach->header, "\r\nContent-Type: text/html") != NULL
           || (body != NULL && dagger_engine_page(body));
}


/* what there is to be sent; begins HTTP/2 the first time */

static int
dagger_attach_h2(dagger_attach_t *attach)
{
    int                         rc;
    ssize_t                     n;
    const uint8_t              *p;
    nghttp2_settings_entry      settings;
    nghttp2_session_callbacks  *callbacks;

    if (attach->h2 == NULL) {

        if (nghttp2_session_callbacks_new(&callbacks) != 0) {
            return -1;
        }

        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks,
                                                     dagger_attach_begin);
        nghttp2_session_callbacks_set_on_header_callback(callbacks,
                                                     dagger_attach_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks,
                                                     dagger_attach_frame);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
                                                     dagger_attach_closed);

        rc = nghttp2_session_server_new(&attach->h2, callbacks, attach);
        nghttp2_session_callbacks_del(callbacks);

        settings.settings_id = NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS;
        settings.value = DAGGER_ATTACH_STREAMS;

        /* the byte that says we are here must come after the 101, not before */

        if (rc != 0
            || nghttp2_submit_settings(attach->h2, NGHTTP2_FLAG_NONE,
                                       &settings, 1) != 0
            || dagger_attach_put(attach, "", 1) == -1)
        {
            return -1;
        }
    }

    for ( ;; ) {
        n = nghttp2_session_mem_send(attach->h2, &p);

        if (n < 0) {
            return -1;
        }

        if (n == 0) {
            break;
        }

        if (dagger_attach_put(attach, p, (size_t) n) == -1) {
            return -1;
        }
    }

    return runner_timer_start(&attach->engine->dagger->loop, &attach->timer,
                              DAGGER_ATTACH_SILENCE) == -1
           || dagger_attach_write(attach) == -1 ? -1 : 0;
}


static int
dagger_attach_put(dagger_attach_t *attach, const void *data, size_t size)
{
    if (attach->out_sent) {
        attach->out_size -= attach->out_sent;
        memmove(attach->out, attach->out + attach->out_sent,
                attach->out_size);
        attach->out_sent = 0;
    }

    if (size > DAGGER_ATTACH_OUT - attach->out_size) {
        return -1;
    }

    memcpy(attach->out + attach->out_size, data, size);
    attach->out_size += size;

    return 0;
}


static int
dagger_attach_write(dagger_attach_t *attach)
{
    ssize_t   n;
    uint32_t  events;

    while (attach->out_sent < attach->out_size) {

        n = send(attach->event.fd, attach->out + attach->out_sent,
                 attach->out_size - attach->out_sent, MSG_NOSIGNAL);

        if (n == -1) {
            if (errno == EAGAIN || errno == EINTR) {
                break;
            }

            return -1;
        }

        attach->out_sent += (size_t) n;
    }

    events = attach->out_sent < attach->out_size ? EPOLLIN|EPOLLOUT : EPOLLIN;

    return runner_event_change(&attach->engine->dagger->loop, &attach->event,
                               events);
}


static int
dagger_attach_begin(nghttp2_session *h2, const nghttp2_frame *frame,
    void *data)
{
    unsigned          i;
    dagger_attach_t  *attach;
    dagger_stream_t  *stream;

    attach = data;

    if (frame->hd.type != NGHTTP2_HEADERS
        || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
    {
        return 0;
    }

    for (i = 0; i < DAGGER_ATTACH_STREAMS; i++) {
        stream = &attach->streams[i];

        if (!stream->used) {
            memset(stream, 0, sizeof(dagger_stream_t));
            stream->used = 1;

            return nghttp2_session_set_stream_user_data(h2,
                                                        frame->hd.stream_id,
                                                        stream);
        }
    }

    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}


static int
dagger_attach_header(nghttp2_session *h2, const nghttp2_frame *frame,
    const uint8_t *name, size_t name_size, const uint8_t *value,
    size_t value_size, uint8_t flags, void *data)
{
    dagger_stream_t  *stream;

    static const char  health[] = "/grpc.health.v1.Health/Check";
    static const char  files[] = "/moby.filesync.v1.FileSync/DiffCopy";
    static const char  options[] = "x-dagger-local-import-opts";

    stream = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);

    if (stream == NULL) {
        return 0;
    }

    if (name_size == 5 && memcmp(name, ":path", 5) == 0) {

        if (value_size == sizeof(health) - 1
            && memcmp(value, health, value_size) == 0)
        {
            stream->call = DAGGER_CALL_HEALTH;

        } else if (value_size == sizeof(files) - 1
                   && memcmp(value, files, value_size) == 0)
        {
            stream->call = DAGGER_CALL_FILES;
        }

    } else if (name_size == sizeof(options) - 1
               && memcmp(name, options, name_size) == 0)
    {
        stream->path = dagger_attach_path(value, value_size);
    }

    return 0;
}


/* whether the base64 of this JSON has "get_abs_path_only":true */

static int
dagger_attach_path(const uint8_t *value, size_t size)
{
    size_t       i, n;
    unsigned     bits, left;
    const char  *p;
    char         text[3072 + 1];

    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789+/";

    if (size > 4096) {
        return 0;
    }

    bits = 0;
    left = 0;
    n = 0;

    for (i = 0; i < size && value[i] != '='; i++) {

        p = memchr(digits, value[i], 64);

        if (p == NULL) {
            return 0;
        }

        bits = bits << 6 | (unsigned) (p - digits);
        left += 6;

        if (left >= 8) {
            left -= 8;
            text[n++] = (char) (bits >> left);
        }
    }

    text[n] = '\0';

    return strstr(text, "\"get_abs_path_only\":true") != NULL;
}


/*
 * A call about files comes without an end, so it is answered on its headers;
 * one for our health when it is complete.
 */

static int
dagger_attach_frame(nghttp2_session *h2, const nghttp2_frame *frame,
    void *data)
{
    dagger_stream_t  *stream;

    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }

    stream = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);

    if (stream == NULL || stream->answered) {
        return 0;
    }

    if (stream->call == DAGGER_CALL_HEALTH) {

        if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
            return 0;
        }

        stream->message = dagger_serving;
        stream->size = sizeof(dagger_serving);
        stream->status = DAGGER_GRPC_OK;

    } else if (stream->call == DAGGER_CALL_FILES && stream->path) {
        stream->message = dagger_root;
        stream->size = sizeof(dagger_root);
        stream->status = DAGGER_GRPC_OK;

    } else {

        /* anything but NOT_FOUND for a file spoils the session for good */

        stream->status = stream->call == DAGGER_CALL_FILES
                         ? DAGGER_GRPC_NOT_FOUND : DAGGER_GRPC_UNIMPLEMENTED;
    }

    return dagger_attach_answer(h2, frame->hd.stream_id, stream);
}


static nghttp2_nv
dagger_attach_pair(const char *name, const char *value)
{
    nghttp2_nv  nv;

    nv.name = (uint8_t *) name;
    nv.value = (uint8_t *) value;
    nv.namelen = strlen(name);
    nv.valuelen = strlen(value);
    nv.flags = NGHTTP2_NV_FLAG_NONE;

    return nv;
}


static int
dagger_attach_answer(nghttp2_session *h2, int32_t id, dagger_stream_t *stream)
{
    nghttp2_nv             headers[3];
    nghttp2_data_provider  body;

    stream->answered = 1;

    headers[0] = dagger_attach_pair(":status", "200");
    headers[1] = dagger_attach_pair("content-type", "application/grpc");

    if (stream->message == NULL) {
        headers[2] = dagger_attach_pair("grpc-status", stream->status);

        return nghttp2_submit_response(h2, id, headers, 3, NULL) == 0
               ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
    }

    body.source.ptr = stream;
    body.read_callback = dagger_attach_message;

    return nghttp2_submit_response(h2, id, headers, 2, &body) == 0
           ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}


static ssize_t
dagger_attach_message(nghttp2_session *h2, int32_t id, uint8_t *buf,
    size_t size, uint32_t *flags, nghttp2_data_source *source, void *data)
{
    nghttp2_nv        trailer;
    dagger_stream_t  *stream;

    stream = source->ptr;

    if (size > stream->size) {
        size = stream->size;
    }

    memcpy(buf, stream->message, size);
    stream->message += size;
    stream->size -= size;

    if (stream->size == 0) {
        trailer = dagger_attach_pair("grpc-status", stream->status);

        *flags |= NGHTTP2_DATA_FLAG_EOF|NGHTTP2_DATA_FLAG_NO_END_STREAM;

        if (nghttp2_submit_trailer(h2, id, &trailer, 1) != 0) {
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        }
    }

    return (ssize_t) size;
}


static int
dagger_attach_closed(nghttp2_session *h2, int32_t id, uint32_t error,
    void *data)
{
    dagger_stream_t  *stream;

    stream = nghttp2_session_get_stream_user_data(h2, id);

    if (stream != NULL) {
        nghttp2_session_set_stream_user_data(h2, id, NULL);
        stream->used = 0;
    }

    return 0;
}
