/*
 * Worker 0 asks every runner how it is, at once and then every five seconds,
 * and tells it the limits of the zone; a runner that has other egress policies
 * gets ours.  A client of the socket of its own: no request, no upstream.  What
 * it learns goes into the zone for all workers.
 */

#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_egress.h"

#include <openssl/sha.h>


#define NGX_HTTP_SANDBOX_PROBE_BUFFER  (SANDBOX_WIRE_FRAME_SIZE               \
                                        + SANDBOX_WIRE_MAX_RESULT)
#define NGX_HTTP_SANDBOX_PROBE_HEAD    256
#define NGX_HTTP_SANDBOX_PROBE_FRAMES  64
#define NGX_HTTP_SANDBOX_PROBE_AGAIN   60        /* seconds */
#define NGX_HTTP_SANDBOX_PROBE_SOON    1000      /* ms, while engines are not
                                                    all ready */
#define NGX_HTTP_SANDBOX_PROBE_DOUBT   200       /* ms, to look for doubts */


typedef struct {
    ngx_http_sandbox_runner_t     *runner;
    ngx_event_t                    timer;
    ngx_connection_t               fake;         /* for the timer's log */
    ngx_peer_connection_t          peer;
    ngx_log_t                     *log;
    ngx_log_t                      quiet;        /* while connecting */
    ngx_uint_t                     frames;
    size_t                         sent;
    size_t                         have;
    ngx_str_t                      ping;         /* preamble and head */
    ngx_http_sandbox_main_conf_t  *main;

    /* egress */
    ngx_str_t                      push;         /* preamble and head */
    ngx_str_t                      table;
    u_char                        *digest;
    ngx_uint_t                     turn;         /* ours, while it is so */
    time_t                         pushed;       /* 0: never */
    time_t                         doubted;      /* another one pushes, too */
    uint32_t                       fault;        /* told; 0: none */
    unsigned                       differs:1;    /* at the last PING */
    unsigned                       pushing:1;    /* it is no PING */

    u_char                         request[2 * (SANDBOX_WIRE_PREAMBLE_SIZE
                                              + NGX_HTTP_SANDBOX_PROBE_HEAD)];
    u_char                         buffer[NGX_HTTP_SANDBOX_PROBE_BUFFER];
} ngx_http_sandbox_probe_t;


static void ngx_http_sandbox_probe_timer(ngx_event_t *ev);
static void ngx_http_sandbox_probe_doubted(ngx_event_t *ev);
static ngx_msec_t ngx_http_sandbox_probe_interval(
    ngx_http_sandbox_probe_t *probe);
static void ngx_http_sandbox_probe_connect(ngx_http_sandbox_probe_t *probe);
static void ngx_http_sandbox_probe_build(ngx_http_sandbox_probe_t *probe);
static ngx_int_t ngx_http_sandbox_probe_build_push(
    ngx_http_sandbox_probe_t *probe, ngx_http_sandbox_egresses_t *egress,
    ngx_pool_t *pool);
static void ngx_http_sandbox_probe_begin(ngx_http_sandbox_probe_t *probe,
    ngx_str_t *request, ngx_uint_t operation, sandbox_writer_t *w,
    size_t body);
static void ngx_http_sandbox_probe_write(ngx_event_t *wev);
static void ngx_http_sandbox_probe_read(ngx_event_t *rev);
static ngx_int_t ngx_http_sandbox_probe_frame(ngx_http_sandbox_probe_t *probe,
    u_char type, u_char *payload, size_t size);
static void ngx_http_sandbox_probe_result(ngx_http_sandbox_probe_t *probe,
    u_char *payload, size_t size);
static void ngx_http_sandbox_probe_egress(ngx_http_sandbox_probe_t *probe,
    sandbox_field_t *digest, ngx_http_sandbox_egress_counts_t *counts);
static void ngx_http_sandbox_probe_pushed(ngx_http_sandbox_probe_t *probe,
    u_char *payload, size_t size);
static void ngx_http_sandbox_probe_refused(ngx_http_sandbox_probe_t *probe,
    const ngx_str_t *reason);
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

static ngx_event_t                 ngx_http_sandbox_probe_doubts;
static ngx_connection_t            ngx_http_sandbox_probe_nobody;


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
        probe->main = smcf;
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

        if (ngx_http_sandbox_probe_build_push(probe, smcf->egress,
                                              cycle->pool)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        ngx_http_sandbox_probes[i] = probe;
        ngx_http_sandbox_nprobes = i + 1;

        ngx_add_timer(&probe->timer, 1);
    }

    if (smcf->zone.engines) {
        ngx_http_sandbox_probe_nobody.fd = (ngx_socket_t) -1;
        ngx_http_sandbox_probe_nobody.data = smcf;

        ngx_http_sandbox_probe_doubts.handler = ngx_http_sandbox_probe_doubted;
        ngx_http_sandbox_probe_doubts.data = &ngx_http_sandbox_probe_nobody;
        ngx_http_sandbox_probe_doubts.log = cycle->log;
        ngx_http_sandbox_probe_doubts.cancelable = 1;

        ngx_add_timer(&ngx_http_sandbox_probe_doubts,
                      NGX_HTTP_SANDBOX_PROBE_DOUBT);
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


/* some worker could not do with an engine what it should have */

static void
ngx_http_sandbox_probe_doubted(ngx_event_t *ev)
{
    ngx_uint_t                     i;
    ngx_connection_t              *c;
    ngx_http_sandbox_probe_t      *probe;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ngx_exiting || ngx_quit || ngx_terminate) {
        return;
    }

    c = ev->data;
    smcf = c->data;

    if (ngx_http_sandbox_engines_doubted(&smcf->zone)) {

        for (i = 0; i < ngx_http_sandbox_nprobes; i++) {
            probe = ngx_http_sandbox_probes[i];

            if (!probe->runner->engines) {
                continue;
            }

            if (probe->peer.connection) {

                /* that answer may be of before */

                ngx_http_sandbox_engines_doubt(&smcf->zone);
                continue;
            }

            ngx_add_timer(&probe->timer, 1);
        }
    }

    ngx_add_timer(ev, NGX_HTTP_SANDBOX_PROBE_DOUBT);
}


/* jittered, so that many gateways do not ask at the same moment */

static ngx_msec_t
ngx_http_sandbox_probe_interval(ngx_http_sandbox_probe_t *probe)
{
    ngx_uint_t                   i;
    ngx_http_sandbox_engine_t  **engine;

    engine = probe->main->engines.elts;

    for (i = 0; i < probe->main->engines.nelts; i++) {
        if (engine[i]->owner == probe->runner
            && !ngx_http_sandbox_engine_ready(&probe->main->zone, engine[i]))
        {
            return NGX_HTTP_SANDBOX_PROBE_SOON + ngx_random() % 100;
        }
    }

    return SANDBOX_WIRE_PING_INTERVAL - 500 + ngx_random() % 1000;
}


static void
ngx_http_sandbox_probe_build(ngx_http_sandbox_probe_t *probe)
{
    sandbox_writer_t          w;
    ngx_http_sandbox_zone_t  *zone;

    zone = probe->runner->zone;
    probe->ping.data = probe->request;

    sandbox_writer_init(&w, probe->ping.data + SANDBOX_WIRE_PREAMBLE_SIZE,
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

    ngx_http_sandbox_probe_begin(probe, &probe->ping, SANDBOX_OPERATION_PING,
                                 &w, 0);
}


/* no policies at all are an empty table: what a runner has of before goes */

static ngx_int_t
ngx_http_sandbox_probe_build_push(ngx_http_sandbox_probe_t *probe,
    ngx_http_sandbox_egresses_t *egress, ngx_pool_t *pool)
{
    sandbox_writer_t  w;

    probe->turn = ngx_http_sandbox_slot_egress_take(probe->runner);

    if (egress) {
        probe->table = egress->table;
        probe->digest = egress->digest;

    } else {
        probe->digest = ngx_pnalloc(pool, NGX_HTTP_SANDBOX_EGRESS_DIGEST);
        if (probe->digest == NULL) {
            return NGX_ERROR;
        }

        SHA256((u_char *) "", 0, probe->digest);
    }

    probe->push.data = probe->request + SANDBOX_WIRE_PREAMBLE_SIZE
                       + NGX_HTTP_SANDBOX_PROBE_HEAD;

    sandbox_writer_init(&w, probe->push.data + SANDBOX_WIRE_PREAMBLE_SIZE,
                        NGX_HTTP_SANDBOX_PROBE_HEAD);

    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_DIGEST, probe->digest,
                        NGX_HTTP_SANDBOX_EGRESS_DIGEST);

    ngx_http_sandbox_probe_begin(probe, &probe->push,
                                 SANDBOX_OPERATION_EGRESS, &w,
                                 probe->table.len);
    return NGX_OK;
}


/* the preamble before a head that is written */

static void
ngx_http_sandbox_probe_begin(ngx_http_sandbox_probe_t *probe,
    ngx_str_t *request, ngx_uint_t operation, sandbox_writer_t *w,
    size_t body)
{
    sandbox_preamble_t  preamble;

    ngx_memzero(&preamble, sizeof(sandbox_preamble_t));

    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = (uint8_t) operation;
    preamble.head = (uint32_t) (w->pos - w->start);
    preamble.body = body;
    ngx_memcpy(preamble.key, probe->runner->key, SANDBOX_WIRE_KEY_SIZE);

    sandbox_preamble_write(request->data, &preamble);

    request->len = SANDBOX_WIRE_PREAMBLE_SIZE + preamble.head;
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
    size_t                     sent;
    ssize_t                    n;
    ngx_str_t                 *head, body;
    ngx_connection_t          *c;
    ngx_http_sandbox_probe_t  *probe;

    c = wev->data;
    probe = c->data;

    ngx_str_null(&body);
    head = &probe->ping;

    if (probe->pushing) {
        head = &probe->push;
        body = probe->table;
    }

    while (probe->sent < head->len + body.len) {

        if (probe->sent < head->len) {
            n = c->send(c, head->data + probe->sent, head->len - probe->sent);

        } else {
            sent = probe->sent - head->len;
            n = c->send(c, body.data + sent, body.len - sent);
        }

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_sandbox_probe_failed(probe, ngx_socket_errno, NULL);
            return;
        }

        probe->sent += n;

        ngx_add_timer(c->read, SANDBOX_WIRE_READ_TIMEOUT);
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
        if (probe->pushing) {
            ngx_http_sandbox_probe_pushed(probe, payload, size);

        } else {
            ngx_http_sandbox_probe_result(probe, payload, size);
        }

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
    uint64_t                          value;
    ngx_str_t                         text;
    sandbox_field_t                   field, digest;
    sandbox_fields_t                  fields;
    ngx_http_sandbox_host_t           host;
    ngx_http_sandbox_health_t         health;
    ngx_http_sandbox_egress_counts_t  counts;

    ngx_memzero(&host, sizeof(ngx_http_sandbox_host_t));
    ngx_memzero(&health, sizeof(ngx_http_sandbox_health_t));
    ngx_memzero(&digest, sizeof(sandbox_field_t));

    counts.n = 0;
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

        case SANDBOX_TAG_EGRESS_DIGEST:
            digest = field;
            break;

        case SANDBOX_TAG_EGRESS_COUNT:
            ngx_http_sandbox_egress_count(&counts, &field);
            break;

        default:
            ngx_http_sandbox_metrics_host(&host, &field);
        }
    }

    /* who owns sessions is there when it answers, whatever engines do */

    if (probe->runner->engines) {
        health.status = NGX_HTTP_SANDBOX_READY;
        ngx_http_sandbox_engines_learned(probe->main, probe->runner, payload,
                                         size, probe->log);
    }

    if (health.status == NGX_HTTP_SANDBOX_READY) {
        health.reason.len = 0;
    }

    ngx_http_sandbox_slot_set_host(probe->runner, &host);
    ngx_http_sandbox_probe_egress(probe, &digest, &counts);
    ngx_http_sandbox_probe_learned(probe, &health, 1);
}


/* a runner that says nothing of it may be of a release that knows no egress */

static void
ngx_http_sandbox_probe_egress(ngx_http_sandbox_probe_t *probe,
    sandbox_field_t *digest, ngx_http_sandbox_egress_counts_t *counts)
{
    ngx_uint_t  same;

    same = digest->data
           ? (digest->length == NGX_HTTP_SANDBOX_EGRESS_DIGEST
              && ngx_memcmp(digest->data, probe->digest,
                            NGX_HTTP_SANDBOX_EGRESS_DIGEST)
                 == 0)
           : probe->table.len == 0;

    /* a younger worker has taken over, with what may be other policies */

    if (ngx_http_sandbox_slot_egress_taken(probe->runner) != probe->turn) {
        return;
    }

    probe->differs = !same;

    ngx_http_sandbox_slot_set_egress(probe->runner, same, counts);
}


static void
ngx_http_sandbox_probe_pushed(ngx_http_sandbox_probe_t *probe, u_char *payload,
    size_t size)
{
    ngx_str_t         reason;
    ngx_uint_t        same;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    same = 0;

    sandbox_fields_init(&fields, payload, size);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (field.tag == SANDBOX_TAG_EGRESS_DIGEST
            && field.length == NGX_HTTP_SANDBOX_EGRESS_DIGEST
            && ngx_memcmp(field.data, probe->digest,
                          NGX_HTTP_SANDBOX_EGRESS_DIGEST)
               == 0)
        {
            same = 1;
        }
    }

    if (!same) {
        ngx_str_set(&reason, "it says that it has others");
        ngx_http_sandbox_probe_refused(probe, &reason);
        return;
    }

    probe->fault = 0;

    if (ngx_http_sandbox_slot_egress_taken(probe->runner) == probe->turn) {
        ngx_http_sandbox_slot_set_egress(probe->runner, 1, NULL);
    }

    if (probe->pushed
        && ngx_time() - probe->pushed < NGX_HTTP_SANDBOX_PROBE_AGAIN
        && ngx_time() - probe->doubted >= NGX_HTTP_SANDBOX_PROBE_AGAIN)
    {
        probe->doubted = ngx_time();

        ngx_log_error(NGX_LOG_WARN, probe->log, 0,
                      "sandbox runner \"%V\" had other egress policies again: "
                      "if another nginx uses it, both must have the same "
                      "\"sandbox_egress_policy\"", &probe->runner->name);
    }

    probe->pushed = ngx_time();

    ngx_log_error(NGX_LOG_NOTICE, probe->log, 0,
                  "sandbox runner \"%V\" has taken over the egress policies",
                  &probe->runner->name);
}


/* told once for each reason; it is tried again after the next PING */

static void
ngx_http_sandbox_probe_refused(ngx_http_sandbox_probe_t *probe,
    const ngx_str_t *reason)
{
    uint32_t  fault;

    fault = ngx_crc32_long(reason->data, reason->len);
    fault += (fault == 0);

    if (fault == probe->fault) {
        return;
    }

    probe->fault = fault;

    ngx_log_error(NGX_LOG_ERR, probe->log, 0,
                  "sandbox runner \"%V\" has not taken over the egress "
                  "policies, so those it had are in force, and new ones mean "
                  "no network: %V (is it of the same release as this module? "
                  "its own log may say more; it is tried again every five "
                  "seconds)", &probe->runner->name, reason);
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

            /* it goes into the log, and is not ours */

            sandbox_utf8_blank(health.reason.data, health.reason.len);
        }
    }

    if (probe->pushing) {
        ngx_http_sandbox_probe_refused(probe, &health.reason);
        return;
    }

    if (probe->runner->engines) {
        ngx_http_sandbox_engines_lost(probe->main, probe->runner, probe->log);
    }

    ngx_http_sandbox_probe_learned(probe, &health, 0);
}


/* reasons are for every caller of v1/limits: no path of this host in them */

const char *
ngx_http_sandbox_unreached_reason(ngx_err_t err, ngx_uint_t engines)
{
    switch (err) {

    case NGX_ENOENT:
        return engines ? "the socket of \"sandbox-runner --dagger\" does not "
                         "exist: is it running?"
                       : "the runner's socket does not exist: is "
                         "sandbox-runner running?";

    case NGX_ECONNREFUSED:
        return engines ? "nobody listens on the socket of \"sandbox-runner "
                         "--dagger\": is it running?"
                       : "nobody listens on the runner's socket: is "
                         "sandbox-runner running?";

    case NGX_EACCES:
        return "nginx's workers may not connect to the runner's socket: are "
               "they in its group?";

    case NGX_EAGAIN:
        return "too many connections wait for the runner";

    default:
        return "the runner's socket can't be connected to";
    }
}


static void
ngx_http_sandbox_probe_failed(ngx_http_sandbox_probe_t *probe, ngx_err_t err,
    const char *reason)
{
    ngx_http_sandbox_host_t    host;
    ngx_http_sandbox_health_t  health;

    if (reason == NULL) {
        reason = ngx_http_sandbox_unreached_reason(err,
                                                   probe->runner->engines);
    }

    ngx_memzero(&health, sizeof(ngx_http_sandbox_health_t));

    health.status = NGX_HTTP_SANDBOX_UNREACHABLE;
    health.reason.data = (u_char *) reason;
    health.reason.len = ngx_strlen(reason);

    if (probe->pushing) {

        /* whether it is there at all, the next PING will tell */

        ngx_http_sandbox_probe_refused(probe, &health.reason);
        ngx_http_sandbox_probe_done(probe);
        return;
    }

    if (probe->runner->engines) {
        ngx_http_sandbox_engines_lost(probe->main, probe->runner, probe->log);
    }

    ngx_memzero(&host, sizeof(ngx_http_sandbox_host_t));
    ngx_http_sandbox_slot_set_host(probe->runner, &host);

    if (ngx_http_sandbox_slot_egress_taken(probe->runner) == probe->turn) {
        ngx_http_sandbox_slot_set_egress(probe->runner, 0, NULL);
    }

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
                  after.reason.len ? ": " : "", &after.reason);
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

    if (probe->differs && !ngx_exiting && !ngx_quit && !ngx_terminate) {
        probe->differs = 0;
        probe->pushing = 1;
        ngx_http_sandbox_probe_connect(probe);
        return;
    }

    probe->pushing = 0;

    ngx_add_timer(&probe->timer, ngx_http_sandbox_probe_interval(probe));
}
