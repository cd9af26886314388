/*
 * Worker 0 asks every runner how it is, at once and then every five seconds,
 * and tells it the limits of the zone.  A client of the socket of its own: no
 * request, no upstream.  What it learns goes into the zone for all workers.
 */

#include "ngx_http_sandbox_metrics.h"


#define NGX_HTTP_SANDBOX_PROBE_BUFFER  (SANDBOX_WIRE_FRAME_SIZE               \
                                        + SANDBOX_WIRE_MAX_RESULT)
#define NGX_HTTP_SANDBOX_PROBE_HEAD    256
#define NGX_HTTP_SANDBOX_PROBE_FRAMES  64


typedef struct {
    ngx_http_sandbox_runner_t     *runner;
    ngx_event_t                    timer;
    ngx_connection_t               fake;         /* for the timer's log */
    ngx_peer_connection_t          peer;
    ngx_log_t                     *log;
    ngx_log_t                      quiet;        /* while connecting */
    ngx_uint_t                     frames;
    size_t                         sent;
    size_t                         request_len;
    size_t                         have;
    u_char                         request[SANDBOX_WIRE_PREAMBLE_SIZE
                                           + NGX_HTTP_SANDBOX_PROBE_HEAD];
    u_char                         buffer[NGX_HTTP_SANDBOX_PROBE_BUFFER];
} ngx_http_sandbox_probe_t;


static void ngx_http_sandbox_probe_timer(ngx_event_t *ev);
static void ngx_http_sandbox_probe_connect(ngx_http_sandbox_probe_t *probe);
static void ngx_http_sandbox_probe_build(ngx_http_sandbox_probe_t *probe);
static void ngx_http_sandbox_probe_write(ngx_event_t *wev);
static void ngx_http_sandbox_probe_read(ngx_event_t *rev);
static ngx_int_t ngx_http_sandbox_probe_frame(ngx_http_sandbox_probe_t *probe,
    u_char type, u_char *payload, size_t size);
static void ngx_http_sandbox_probe_result(ngx_http_sandbox_probe_t *probe,
    u_char *payload, size_t size);
static void ngx_http_sandbox_probe_number(ngx_http_sandbox_host_t *host,
    sandbox_field_t *field);
static void ngx_http_sandbox_probe_error(ngx_http_sandbox_probe_t *probe,
    u_char *payload, size_t size);
static void ngx_http_sandbox_probe_failed(ngx_http_sandbox_probe_t *probe,
    ngx_err_t err, const char *reason);
static void ngx_http_sandbox_probe_learned(ngx_http_sandbox_probe_t *probe,
    ngx_http_sandbox_health_t *health, ngx_uint_t full);
static void ngx_http_sandbox_probe_close(ngx_http_sandbox_probe_t *probe);
static void ngx_http_sandbox_probe_done(ngx_http_sandbox_probe_t *probe);


/* of this process, for exit_process */

static ngx_http_sandbox_probe_t  **ngx_http_sandbox_probes;
static ngx_uint_t                  ngx_http_sandbox_nprobes;


ngx_int_t
ngx_http_sandbox_health_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i;
    ngx_http_sandbox_probe_t       *probe;
    ngx_http_sandbox_runner_t     **runner;
    ngx_http_sandbox_main_conf_t   *smcf;

    if ((ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
        || ngx_worker != 0)
    {
        return NGX_OK;
    }

    smcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_sandbox_module);

    if (smcf == NULL || smcf->runners.nelts == 0) {
        return NGX_OK;
    }

    ngx_http_sandbox_probes = ngx_pcalloc(cycle->pool,
                                          smcf->runners.nelts
                                          * sizeof(ngx_http_sandbox_probe_t *));
    if (ngx_http_sandbox_probes == NULL) {
        return NGX_ERROR;
    }

    runner = smcf->runners.elts;

    for (i = 0; i < smcf->runners.nelts; i++) {

        probe = ngx_pcalloc(cycle->pool, sizeof(ngx_http_sandbox_probe_t));
        if (probe == NULL) {
            return NGX_ERROR;
        }

        probe->runner = runner[i];
        probe->log = cycle->log;

        /* a failed connect() is told once, and in words, not every time */

        probe->quiet = *cycle->log;
        probe->quiet.next = NULL;
        probe->quiet.log_level = NGX_LOG_EMERG;

        probe->fake.fd = (ngx_socket_t) -1;
        probe->fake.data = probe;

        probe->timer.handler = ngx_http_sandbox_probe_timer;
        probe->timer.data = &probe->fake;
        probe->timer.log = cycle->log;
        probe->timer.cancelable = 1;

        ngx_http_sandbox_probe_build(probe);

        ngx_http_sandbox_probes[i] = probe;
        ngx_http_sandbox_nprobes = i + 1;

        ngx_add_timer(&probe->timer, 1);
    }

    return NGX_OK;
}


void
ngx_http_sandbox_health_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t  i;

    for (i = 0; i < ngx_http_sandbox_nprobes; i++) {
        ngx_http_sandbox_probe_close(ngx_http_sandbox_probes[i]);
    }

    ngx_http_sandbox_nprobes = 0;
}


static void
ngx_http_sandbox_probe_timer(ngx_event_t *ev)
{
    ngx_connection_t          *c;
    ngx_http_sandbox_probe_t  *probe;

    if (ngx_exiting || ngx_quit || ngx_terminate) {
        return;
    }

    c = ev->data;
    probe = c->data;

    ngx_http_sandbox_probe_connect(probe);
}


static void
ngx_http_sandbox_probe_build(ngx_http_sandbox_probe_t *probe)
{
    sandbox_writer_t          w;
    sandbox_preamble_t        preamble;
    ngx_http_sandbox_zone_t  *zone;

    zone = probe->runner->zone;

    sandbox_writer_init(&w, probe->request + SANDBOX_WIRE_PREAMBLE_SIZE,
                        NGX_HTTP_SANDBOX_PROBE_HEAD);

    if (zone->max) {
        sandbox_write_number(&w, SANDBOX_TAG_MAX_SANDBOXES, zone->max);
    }

    if (zone->per_tenant) {
        sandbox_write_number(&w, SANDBOX_TAG_MAX_PER_TENANT,
                             zone->per_tenant);
    }

    sandbox_write_number(&w, SANDBOX_TAG_MAX_RUNNING, zone->running);
    sandbox_write_number(&w, SANDBOX_TAG_MAX_QUEUED, zone->queue);
    sandbox_write_number(&w, SANDBOX_TAG_IDLE_MS, zone->idle);

    if (zone->expire) {
        sandbox_write_number(&w, SANDBOX_TAG_EXPIRE_MS, zone->expire);
    }

    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, probe->runner->wall_time);

    ngx_memzero(&preamble, sizeof(sandbox_preamble_t));

    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_PING;
    preamble.head = (uint32_t) (w.pos - w.start);
    ngx_memcpy(preamble.key, probe->runner->key, SANDBOX_WIRE_KEY_SIZE);

    sandbox_preamble_write(probe->request, &preamble);

    probe->request_len = SANDBOX_WIRE_PREAMBLE_SIZE + preamble.head;
}


static void
ngx_http_sandbox_probe_connect(ngx_http_sandbox_probe_t *probe)
{
    ngx_int_t               rc;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *pc;

    pc = &probe->peer;

    ngx_memzero(pc, sizeof(ngx_peer_connection_t));

    pc->sockaddr = probe->runner->addr.sockaddr;
    pc->socklen = probe->runner->addr.socklen;
    pc->name = &probe->runner->name;
    pc->get = ngx_event_get_peer;
    pc->log = &probe->quiet;
    pc->log_error = NGX_ERROR_INFO;

    probe->frames = 0;
    probe->sent = 0;
    probe->have = 0;

    ngx_set_errno(0);

    rc = ngx_event_connect_peer(pc);

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        ngx_http_sandbox_probe_failed(probe, ngx_socket_errno, NULL);
        return;
    }

    c = pc->connection;

    c->data = probe;
    c->log = probe->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_http_sandbox_probe_read;
    c->write->handler = ngx_http_sandbox_probe_write;
    c->read->cancelable = 1;
    c->write->cancelable = 1;

    ngx_add_timer(c->read, SANDBOX_WIRE_READ_TIMEOUT);

    ngx_http_sandbox_probe_write(c->write);
}


static void
ngx_http_sandbox_probe_write(ngx_event_t *wev)
{
    ssize_t                    n;
    ngx_connection_t          *c;
    ngx_http_sandbox_probe_t  *probe;

    c = wev->data;
    probe = c->data;

    while (probe->sent < probe->request_len) {

        n = c->send(c, probe->request + probe->sent,
                    probe->request_len - probe->sent);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_sandbox_probe_failed(probe, ngx_socket_errno, NULL);
            return;
        }

        probe->sent += n;
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_http_sandbox_probe_failed(probe, 0, "nginx met an error");
    }
}


static void
ngx_http_sandbox_probe_read(ngx_event_t *rev)
{
    ssize_t                    n;
    ngx_int_t                  rc;
    sandbox_frame_t            frame;
    ngx_connection_t          *c;
    ngx_http_sandbox_probe_t  *probe;

    c = rev->data;
    probe = c->data;

    if (rev->timedout) {
        ngx_http_sandbox_probe_failed(probe, 0, "the runner does not answer "
                                                "in time");
        return;
    }

    for ( ;; ) {

        n = c->recv(c, probe->buffer + probe->have,
                    NGX_HTTP_SANDBOX_PROBE_BUFFER - probe->have);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_sandbox_probe_failed(probe, 0, "the runner closes the "
                                                    "connection");
            return;
        }

        probe->have += n;

        while (probe->have >= SANDBOX_WIRE_FRAME_SIZE) {

            if (sandbox_frame_read(probe->buffer, &frame) != SANDBOX_OK
                || frame.length > SANDBOX_WIRE_MAX_RESULT
                || probe->frames++ == NGX_HTTP_SANDBOX_PROBE_FRAMES)
            {
                ngx_http_sandbox_probe_failed(probe, 0, "the runner breaks "
                                              "the protocol");
                return;
            }

            if (probe->have < SANDBOX_WIRE_FRAME_SIZE + frame.length) {
                probe->frames--;
                break;
            }

            rc = ngx_http_sandbox_probe_frame(probe, frame.type,
                                              probe->buffer
                                              + SANDBOX_WIRE_FRAME_SIZE,
                                              frame.length);
            if (rc == NGX_DONE) {
                return;
            }

            probe->have -= SANDBOX_WIRE_FRAME_SIZE + frame.length;

            ngx_memmove(probe->buffer,
                        probe->buffer + SANDBOX_WIRE_FRAME_SIZE + frame.length,
                        probe->have);
        }
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_http_sandbox_probe_failed(probe, 0, "nginx met an error");
    }
}


/* NGX_DONE: that was it, the connection is closed */

static ngx_int_t
ngx_http_sandbox_probe_frame(ngx_http_sandbox_probe_t *probe, u_char type,
    u_char *payload, size_t size)
{
    switch (type) {

    case SANDBOX_FRAME_PING:
    case SANDBOX_FRAME_HEAD:
        ngx_add_timer(probe->peer.connection->read, SANDBOX_WIRE_READ_TIMEOUT);
        return NGX_OK;

    case SANDBOX_FRAME_RESULT:
        ngx_http_sandbox_probe_result(probe, payload, size);
        break;

    case SANDBOX_FRAME_ERROR:
        ngx_http_sandbox_probe_error(probe, payload, size);
        break;

    default:
        ngx_http_sandbox_probe_failed(probe, 0, "the runner breaks the "
                                                "protocol");
        return NGX_DONE;
    }

    ngx_http_sandbox_probe_done(probe);

    return NGX_DONE;
}


static void
ngx_http_sandbox_probe_result(ngx_http_sandbox_probe_t *probe, u_char *payload,
    size_t size)
{
    uint64_t                   value;
    ngx_str_t                  text;
    sandbox_field_t            field;
    sandbox_fields_t           fields;
    ngx_http_sandbox_host_t    host;
    ngx_http_sandbox_health_t  health;

    ngx_memzero(&host, sizeof(ngx_http_sandbox_host_t));
    ngx_memzero(&health, sizeof(ngx_http_sandbox_health_t));

    health.status = NGX_HTTP_SANDBOX_INITIALIZING;

    sandbox_fields_init(&fields, payload, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        text.data = (u_char *) field.data;
        text.len = field.length;

        switch (field.tag) {

        case SANDBOX_TAG_READY:
            if (sandbox_field_number(&field, 1, &value) == SANDBOX_OK
                && value)
            {
                health.status = NGX_HTTP_SANDBOX_READY;
            }
            break;

        case SANDBOX_TAG_HARD_CAPS:
            (void) sandbox_field_number(&field, UINT64_MAX, &health.hard_caps);
            break;

        case SANDBOX_TAG_DETAIL:
            health.reason = text;
            break;

        case SANDBOX_TAG_RUNTIME:
            health.runtime = text;
            break;

        case SANDBOX_TAG_VERSION:
            health.version = text;
            break;

        default:
            ngx_http_sandbox_probe_number(&host, &field);
        }
    }

    if (health.status == NGX_HTTP_SANDBOX_READY) {
        health.reason.len = 0;
    }

    ngx_http_sandbox_slot_set_host(probe->runner, &host);
    ngx_http_sandbox_probe_learned(probe, &health, 1);
}


static void
ngx_http_sandbox_probe_number(ngx_http_sandbox_host_t *host,
    sandbox_field_t *field)
{
    ngx_uint_t  i;

    static const struct {
        ngx_uint_t  tag;
        size_t      offset;
    } numbers[] = {
        { SANDBOX_TAG_SANDBOXES,
          offsetof(ngx_http_sandbox_host_t, sandboxes) },
        { SANDBOX_TAG_LIVE, offsetof(ngx_http_sandbox_host_t, live) },
        { SANDBOX_TAG_CREATING, offsetof(ngx_http_sandbox_host_t, creating) },
        { SANDBOX_TAG_FAILED, offsetof(ngx_http_sandbox_host_t, failed) },
        { SANDBOX_TAG_POOL, offsetof(ngx_http_sandbox_host_t, pool) },
        { SANDBOX_TAG_RUNNING, offsetof(ngx_http_sandbox_host_t, running) },
        { SANDBOX_TAG_QUEUED, offsetof(ngx_http_sandbox_host_t, queued) },
        { SANDBOX_TAG_DRAINING, offsetof(ngx_http_sandbox_host_t, draining) },
        { 0, 0 }
    };

    for (i = 0; numbers[i].tag; i++) {
        if (numbers[i].tag == field->tag) {
            (void) sandbox_field_number(field, UINT32_MAX,
                                        (uint64_t *) ((u_char *) host
                                                      + numbers[i].offset));
            return;
        }
    }
}


static void
ngx_http_sandbox_probe_error(ngx_http_sandbox_probe_t *probe, u_char *payload,
    size_t size)
{
    sandbox_field_t            field;
    sandbox_fields_t           fields;
    ngx_http_sandbox_health_t  health;

    ngx_memzero(&health, sizeof(ngx_http_sandbox_health_t));

    health.status = NGX_HTTP_SANDBOX_UNREACHABLE;
    ngx_str_set(&health.reason, "the runner refuses");

    sandbox_fields_init(&fields, payload, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag == SANDBOX_TAG_DETAIL && field.length) {
            health.reason.data = (u_char *) field.data;
            health.reason.len = field.length;
        }
    }

    ngx_http_sandbox_probe_learned(probe, &health, 0);
}


/* reasons are for every caller of v1/limits: no path of this host in them */

static void
ngx_http_sandbox_probe_failed(ngx_http_sandbox_probe_t *probe, ngx_err_t err,
    const char *reason)
{
    ngx_http_sandbox_host_t    host;
    ngx_http_sandbox_health_t  health;

    if (reason == NULL) {

        switch (err) {

        case NGX_ENOENT:
            reason = "the runner's socket does not exist: is sandbox-runner "
                     "running?";
            break;

        case NGX_ECONNREFUSED:
            reason = "nobody listens on the runner's socket: is "
                     "sandbox-runner running?";
            break;

        case NGX_EACCES:
            reason = "nginx's workers may not connect to the runner's socket: "
                     "are they in its group?";
            break;

        case NGX_EAGAIN:
            reason = "too many connections wait for the runner";
            break;

        default:
            reason = "the runner's socket can't be connected to";
        }
    }

    ngx_memzero(&health, sizeof(ngx_http_sandbox_health_t));

    health.status = NGX_HTTP_SANDBOX_UNREACHABLE;
    health.reason.data = (u_char *) reason;
    health.reason.len = ngx_strlen(reason);

    ngx_memzero(&host, sizeof(ngx_http_sandbox_host_t));
    ngx_http_sandbox_slot_set_host(probe->runner, &host);

    ngx_http_sandbox_probe_learned(probe, &health, 0);

    ngx_http_sandbox_probe_done(probe);
}


/* the log has every change once, not every attempt */

static void
ngx_http_sandbox_probe_learned(ngx_http_sandbox_probe_t *probe,
    ngx_http_sandbox_health_t *health, ngx_uint_t full)
{
    ngx_uint_t                 level;
    ngx_http_sandbox_health_t  before, after;

    ngx_http_sandbox_slot_read(probe->runner, &before);
    ngx_http_sandbox_slot_write(probe->runner, health, full);

    ngx_http_sandbox_slot_read(probe->runner, &after);

    if (before.status == after.status
        && before.reason.len == after.reason.len
        && ngx_memcmp(before.reason.data, after.reason.data,
                      after.reason.len)
           == 0)
    {
        return;
    }

    level = (health->status == NGX_HTTP_SANDBOX_UNREACHABLE) ? NGX_LOG_ERR
                                                             : NGX_LOG_NOTICE;

    ngx_log_error(level, probe->log, 0,
                  "sandbox runner \"%V\" is %s%s%V", &probe->runner->name,
                  ngx_http_sandbox_status_name(health->status),
                  health->reason.len ? ": " : "", &health->reason);
}


static void
ngx_http_sandbox_probe_close(ngx_http_sandbox_probe_t *probe)
{
    if (probe->peer.connection) {
        ngx_close_connection(probe->peer.connection);
        probe->peer.connection = NULL;
    }
}


static void
ngx_http_sandbox_probe_done(ngx_http_sandbox_probe_t *probe)
{
    ngx_http_sandbox_probe_close(probe);

    /* jittered, so that many gateways do not ask at the same moment */

    ngx_add_timer(&probe->timer, SANDBOX_WIRE_PING_INTERVAL
                                 - 500 + ngx_random() % 1000);
}
