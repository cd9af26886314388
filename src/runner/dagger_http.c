/*
 * One POST to an engine, on a connection of its own that is never closed in
 * one direction only: an engine takes that for a client that has left.  The
 * answers we ask for are small; what is longer is an error.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "dagger.h"


#define DAGGER_HTTP_REQUEST  (DAGGER_MAX_METADATA + 1024)
#define DAGGER_HTTP_ANSWER   65536


struct dagger_http_s {
    runner_later_t         later;
    runner_event_t         event;
    runner_timer_t         timer;
    dagger_engine_t       *engine;
    dagger_http_handler_t  handler;

    char                   out[DAGGER_HTTP_REQUEST];
    size_t                 out_size;
    size_t                 out_sent;
    char                   in[DAGGER_HTTP_ANSWER + 1];
    size_t                 in_size;
};


static void dagger_http_event(runner_event_t *event, uint32_t events);
static void dagger_http_late(void *data);
static int dagger_http_write(dagger_http_t *http);
static void dagger_http_read(dagger_http_t *http);
static int dagger_http_answer(dagger_http_t *http, int end);
static void dagger_http_done(dagger_http_t *http, int status,
    const char *body);


int
dagger_connect(dagger_engine_t *engine)
{
    int  fd, on;

    on = 1;
    fd = socket(engine->address.ss_family,
                SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (fd == -1) {
        return -1;
    }

    if (engine->address.ss_family != AF_UNIX) {
        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }

    if (connect(fd, (struct sockaddr *) &engine->address,
                engine->address_size)
        == -1 && errno != EINPROGRESS)
    {
        on = errno;
        close(fd);
        errno = on;

        return -1;
    }

    return fd;
}


dagger_http_t *
dagger_http_post(dagger_engine_t *engine, const char *path, const char *body,
    unsigned ms, dagger_http_handler_t handler)
{
    int             n;
    dagger_http_t  *http;

    http = calloc(1, sizeof(dagger_http_t));
    if (http == NULL) {
        return NULL;
    }

    http->engine = engine;
    http->handler = handler;
    http->timer.handler = dagger_http_late;
    http->timer.data = http;
    http->event.handler = dagger_http_event;
    http->event.data = http;

    n = snprintf(http->out, sizeof(http->out), "POST %s HTTP/1.1\r\n"
                 "Host: dagger\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\nConnection: close\r\n"
                 "X-Dagger-Client-Metadata: %s\r\n\r\n%s", path, strlen(body),
                 engine->session.metadata, body);

    if (n < 0 || (size_t) n >= sizeof(http->out)) {
        free(http);
        return NULL;
    }

    http->out_size = (size_t) n;
    http->event.fd = dagger_connect(engine);

    if (http->event.fd == -1) {
        n = errno;
        free(http);
        errno = n;

        return NULL;
    }

    if (runner_event_add(&engine->dagger->loop, &http->event,
                         EPOLLIN|EPOLLOUT) == -1
        || runner_timer_start(&engine->dagger->loop, &http->timer, ms) == -1)
    {
        dagger_http_free(http);
        return NULL;
    }

    return http;
}


void
dagger_http_free(dagger_http_t *http)
{
    runner_loop_t  *loop;

    loop = &http->engine->dagger->loop;

    runner_timer_stop(loop, &http->timer);
    runner_event_remove(loop, &http->event);
    close(http->event.fd);
    runner_loop_free_later(loop, &http->later);
}


static void
dagger_http_late(void *data)
{
    dagger_http_done(data, 0, "it did not answer in time");
}


static void
dagger_http_event(runner_event_t *event, uint32_t events)
{
    int             error;
    socklen_t       size;
    dagger_http_t  *http;

    http = event->data;

    if (http->out_sent < http->out_size && (events & EPOLLOUT)) {

        size = sizeof(error);

        if (getsockopt(event->fd, SOL_SOCKET, SO_ERROR, &error, &size) == -1
            || error != 0)
        {
            dagger_http_done(http, 0, strerror(error));
            return;
        }

        if (dagger_http_write(http) == -1) {
            dagger_http_done(http, 0, strerror(errno));
            return;
        }
    }

    if (events & (EPOLLIN|EPOLLERR|EPOLLHUP)) {
        dagger_http_read(http);
    }
}


static int
dagger_http_write(dagger_http_t *http)
{
    ssize_t  n;

    n = send(http->event.fd, http->out + http->out_sent,
             http->out_size - http->out_sent, MSG_NOSIGNAL);

    if (n == -1) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }

    http->out_sent += (size_t) n;

    if (http->out_sent == http->out_size) {
        return runner_event_change(&http->engine->dagger->loop, &http->event,
                                   EPOLLIN);
    }

    return 0;
}


static void
dagger_http_read(dagger_http_t *http)
{
    ssize_t  n;

    n = recv(http->event.fd, http->in + http->in_size,
             DAGGER_HTTP_ANSWER - http->in_size, 0);

    if (n == -1) {
        if (errno != EAGAIN && errno != EINTR) {
            dagger_http_done(http, 0, strerror(errno));
        }

        return;
    }

    http->in_size += (size_t) n;
    http->in[http->in_size] = '\0';

    if (dagger_http_answer(http, n == 0)) {
        return;
    }

    if (n == 0) {
        dagger_http_done(http, 0, "it closed the connection");

    } else if (http->in_size == DAGGER_HTTP_ANSWER) {
        dagger_http_done(http, 0, "its answer is too long");
    }
}


/* 1 once the answer is complete and the handler was called */

static int
dagger_http_answer(dagger_http_t *http, int end)
{
    int      status;
    char    *body, *line, *last;
    size_t   size, length;

    body = memmem(http->in, http->in_size, "\r\n\r\n", 4);

    if (body == NULL || strncmp(http->in, "HTTP/1.", 7) != 0) {
        return 0;
    }

    status = atoi(http->in + 8);
    length = SIZE_MAX;
    *body = '\0';

    for (line = strstr(http->in, "\r\n"); line != NULL;
         line = strstr(line + 2, "\r\n"))
    {
        if (strncasecmp(line + 2, "Content-Length:", 15) == 0) {
            length = strtoul(line + 17, &last, 10);
        }
    }

    *body = '\r';
    body += 4;
    size = http->in_size - (size_t) (body - http->in);

    if (length == SIZE_MAX ? !end : size < length) {
        return 0;
    }

    if (length < size) {
        body[length] = '\0';
    }

    dagger_http_done(http, status, body);

    return 1;
}


static void
dagger_http_done(dagger_http_t *http, int status, const char *body)
{
    dagger_engine_t        *engine;
    dagger_http_handler_t   handler;

    engine = http->engine;
    handler = http->handler;

    engine->http = NULL;
    dagger_http_free(http);

    /* its memory stays until the end of this turn */

    handler(engine, status, body);
}
