/*
 * Metrics in Prometheus' text format.  Counted is what this nginx answered;
 * the hosts' numbers are those of the last PING.  No label has a tenant, a
 * user, a conversation or anything else that clients choose.
 */

#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_egress.h"


#define NGX_HTTP_SANDBOX_METRICS_LINE    256     /* bytes, without a path */
#define NGX_HTTP_SANDBOX_METRICS_LINES   192     /* of no runner, no code */
#define NGX_HTTP_SANDBOX_METRICS_HOST    10      /* lines of a runner */
#define NGX_HTTP_SANDBOX_METRICS_SLACK   500     /* ms, between two clocks */


static void ngx_http_sandbox_metrics_add(ngx_atomic_t *counter, uint64_t n);
static void ngx_http_sandbox_metrics_observe(ngx_http_sandbox_histogram_t *h,
    uint64_t us);
static ngx_uint_t ngx_http_sandbox_metrics_again(
    ngx_http_sandbox_metrics_t *metrics, ngx_http_sandbox_ctx_t *ctx);
static ngx_http_sandbox_refusals_t *ngx_http_sandbox_metrics_code(
    ngx_http_sandbox_zone_t *zone, ngx_str_t *code);
static ngx_int_t ngx_http_sandbox_metrics_handler(ngx_http_request_t *r);
static u_char *ngx_http_sandbox_metrics_commands(u_char *p,
    ngx_http_sandbox_metrics_t *metrics);
static u_char *ngx_http_sandbox_metrics_refusals(u_char *p,
    ngx_http_sandbox_metrics_t *metrics);
static u_char *ngx_http_sandbox_metrics_histogram(u_char *p,
    const char *name, const char *help, ngx_http_sandbox_histogram_t *h);
static u_char *ngx_http_sandbox_metrics_traffic(u_char *p,
    ngx_http_sandbox_zone_t *zone);
static u_char *ngx_http_sandbox_metrics_hosts(u_char *p,
    ngx_http_sandbox_main_conf_t *smcf);


/* upper bounds; the last bucket has none */

static const struct {
    uint64_t     us;
    const char  *text;
} ngx_http_sandbox_metrics_bounds[NGX_HTTP_SANDBOX_METRICS_BUCKETS] = {
    { 1000, "0.001" }, { 5000, "0.005" }, { 10000, "0.01" },
    { 25000, "0.025" }, { 50000, "0.05" }, { 100000, "0.1" },
    { 250000, "0.25" }, { 500000, "0.5" }, { 1000000, "1" },
    { 2500000, "2.5" }, { 5000000, "5" }, { 10000000, "10" },
    { 30000000, "30" }, { 60000000, "60" }, { 120000000, "120" },
    { UINT64_MAX, "+Inf" }
};


char *
ngx_http_sandbox_conf_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_sandbox_main_conf_t  *smcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    if (clcf->handler == ngx_http_sandbox_metrics_handler) {
        return "is duplicate";
    }

    if (clcf->handler) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox_metrics\" can't be in location \"%V\": "
                           "another directive there answers its requests",
                           &clcf->name);
        return NGX_CONF_ERROR;
    }

    clcf->handler = ngx_http_sandbox_metrics_handler;
    smcf->metrics = 1;

    return NGX_CONF_OK;
}


static void
ngx_http_sandbox_metrics_add(ngx_atomic_t *counter, uint64_t n)
{
    (void) ngx_atomic_fetch_add(counter, (ngx_atomic_int_t) n);
}


static void
ngx_http_sandbox_metrics_observe(ngx_http_sandbox_histogram_t *h, uint64_t us)
{
    ngx_uint_t  i;

    for (i = 0; us > ngx_http_sandbox_metrics_bounds[i].us; i++) {
        /* void */
    }

    ngx_http_sandbox_metrics_add(&h->bucket[i], 1);
    ngx_http_sandbox_metrics_add(&h->sum, us);
}


void
ngx_http_sandbox_metrics_result(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t                     outcome;
    ngx_http_sandbox_result_t     *result;
    ngx_http_sandbox_metrics_t    *metrics;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ctx->wire.operation != SANDBOX_OPERATION_COMMAND || ctx->counted) {
        return;
    }

    ctx->counted = 1;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    metrics = smcf->zone.metrics;
    result = &ctx->wire.result;

    if (ngx_http_sandbox_metrics_again(metrics, ctx)) {
        return;
    }

    if (!result->seen[SANDBOX_TAG_OUTCOME]) {
        ngx_http_sandbox_metrics_add(
                       &metrics->commands[NGX_HTTP_SANDBOX_METRICS_BACKGROUND],
                       1);
        return;
    }

    outcome = (ngx_uint_t) result->number[SANDBOX_TAG_OUTCOME];

    if (outcome == SANDBOX_OUTCOME_EXIT
        && result->number[SANDBOX_TAG_EXIT_CODE])
    {
        outcome = NGX_HTTP_SANDBOX_METRICS_FAILED;
    }

    ngx_http_sandbox_metrics_add(&metrics->commands[outcome], 1);
    ngx_http_sandbox_metrics_observe(&metrics->queued,
                                     result->number[SANDBOX_TAG_QUEUED_US]);
    ngx_http_sandbox_metrics_observe(&metrics->duration,
                                     result->number[SANDBOX_TAG_DURATION_US]);
}


/*
 * A command may be asked for more than once.  One that took longer than this
 * request was begun by another; of the last ones it is known.
 */

static ngx_uint_t
ngx_http_sandbox_metrics_again(ngx_http_sandbox_metrics_t *metrics,
    ngx_http_sandbox_ctx_t *ctx)
{
    uint64_t           hash, took, limit;
    ngx_str_t         *id;
    ngx_atomic_t      *place;
    ngx_atomic_uint_t  seen;

    id = &ctx->wire.result.command_id;
    took = (ctx->wire.result.number[SANDBOX_TAG_QUEUED_US]
            + ctx->wire.result.number[SANDBOX_TAG_DURATION_US]) / 1000;

    limit = ngx_current_msec - ctx->wire.started
            + NGX_HTTP_SANDBOX_METRICS_SLACK;

    if (took > limit) {

        /* a worker that stood still meanwhile has an old time */

        ngx_time_update();
        limit = ngx_current_msec - ctx->wire.started
                + NGX_HTTP_SANDBOX_METRICS_SLACK;
    }

    if (took > limit) {
        return 1;
    }

    if (id->len == 0) {
        return 0;
    }

    hash = sandbox_get64(ctx->session)
           ^ ((uint64_t) ngx_murmur_hash2(id->data, id->len) << 32
              | ngx_crc32_short(id->data, id->len));

    place = &metrics->counted[hash % NGX_HTTP_SANDBOX_METRICS_COUNTED];
    seen = *place;

    if (seen == (ngx_atomic_uint_t) hash) {
        return 1;
    }

    /* of two at once one comes too late */

    return !ngx_atomic_cmp_set(place, seen, (ngx_atomic_uint_t) hash)
           && *place == (ngx_atomic_uint_t) hash;
}


void
ngx_http_sandbox_metrics_lost(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ctx->wire.operation != SANDBOX_OPERATION_COMMAND || ctx->counted) {
        return;
    }

    ctx->counted = 1;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    ngx_http_sandbox_metrics_add(
                     &smcf->zone.metrics->commands[SANDBOX_OUTCOME_LOST], 1);
}


void
ngx_http_sandbox_metrics_refusal(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t                     *code;
    ngx_http_sandbox_wire_t       *wire;
    ngx_http_sandbox_refusals_t   *refusals;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    /* a location that is switched off may have no zone */

    if (ctx->refusal_counted || smcf->zone.metrics == NULL) {
        return;
    }

    ctx->refusal_counted = 1;
    ctx->counted = 1;

    code = &ctx->problem.code;
    wire = &ctx->wire;

    /* an agent may say anything; what is no code is no label */

    if (wire->payload && code->data >= wire->payload
        && code->data < wire->payload + wire->payload_len
        && !sandbox_code_known((char *) code->data, code->len))
    {
        refusals = NULL;

    } else {
        refusals = ngx_http_sandbox_metrics_code(&smcf->zone, code);
    }

    ngx_http_sandbox_metrics_add(refusals ? &refusals->count
                                          : &smcf->zone.metrics->others, 1);
}


/* NULL: there is no room for one more */

static ngx_http_sandbox_refusals_t *
ngx_http_sandbox_metrics_code(ngx_http_sandbox_zone_t *zone, ngx_str_t *code)
{
    ngx_uint_t                    i, n, locked;
    ngx_http_sandbox_metrics_t   *metrics;
    ngx_http_sandbox_refusals_t  *codes;

    metrics = zone->metrics;
    codes = metrics->codes;

    /* what is there stays; only to add one needs the lock */

    for (i = 0, locked = 0; ; locked = 1) {

        n = metrics->ncodes;
        ngx_memory_barrier();

        for ( /* void */ ; i < n; i++) {
            if (codes[i].len == code->len
                && ngx_memcmp(codes[i].name, code->data, code->len) == 0)
            {
                break;
            }
        }

        if (i < n || locked) {
            break;
        }

        ngx_shmtx_lock(&zone->shpool->mutex);
    }

    if (i == n) {

        if (n == NGX_HTTP_SANDBOX_METRICS_CODES
            || code->len > sizeof(codes[n].name))
        {
            ngx_shmtx_unlock(&zone->shpool->mutex);
            return NULL;
        }

        codes[n].len = (u_char) code->len;
        ngx_memcpy(codes[n].name, code->data, code->len);

        ngx_memory_barrier();
        metrics->ncodes = n + 1;
    }

    if (locked) {
        ngx_shmtx_unlock(&zone->shpool->mutex);
    }

    return &codes[i];
}


ngx_int_t
ngx_http_sandbox_metrics_log(ngx_http_request_t *r)
{
    ngx_uint_t                     status;
    ngx_http_sandbox_ctx_t        *ctx;
    ngx_http_sandbox_loc_conf_t   *slcf;
    ngx_http_sandbox_metrics_t    *metrics;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (!slcf->serves || r != r->main) {
        return NGX_OK;
    }

    metrics = slcf->main->zone.metrics;

    if (metrics == NULL) {
        return NGX_OK;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx && ctx->wire.operation == SANDBOX_OPERATION_COMMAND
        && r->upstream && !ctx->counted)
    {
        /* its client is gone, and it goes on */

        ngx_http_sandbox_metrics_add(
                        &metrics->commands[NGX_HTTP_SANDBOX_METRICS_UNSEEN],
                        1);
    }

    status = (r->err_status ? r->err_status : r->headers_out.status) / 100;

    ngx_http_sandbox_metrics_add(&metrics->received,
                                 ngx_max(r->request_length, 0));
    ngx_http_sandbox_metrics_add(&metrics->sent,
                                 ngx_max(r->connection->sent, 0));

    /* the last: who sees the request in the count sees its bytes, too */

    ngx_http_sandbox_metrics_add(&metrics->requests[status < 6 ? status : 0],
                                 1);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_metrics_handler(ngx_http_request_t *r)
{
    u_char                        *p;
    size_t                         size;
    ngx_int_t                      rc;
    ngx_buf_t                     *b;
    ngx_uint_t                     i;
    ngx_chain_t                    out;
    ngx_http_sandbox_runner_t    **runner;
    ngx_http_sandbox_metrics_t    *metrics;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    metrics = smcf->zone.metrics;
    runner = smcf->runners.elts;

    size = (NGX_HTTP_SANDBOX_METRICS_LINES + NGX_HTTP_SANDBOX_METRICS_CODES)
           * NGX_HTTP_SANDBOX_METRICS_LINE;

    for (i = 0; i < smcf->runners.nelts; i++) {
        size += NGX_HTTP_SANDBOX_METRICS_HOST
                * (NGX_HTTP_SANDBOX_METRICS_LINE + 2 * runner[i]->name.len);
    }

    size += ngx_http_sandbox_egress_metrics_size(smcf)
            + ngx_http_sandbox_engines_metrics_size(smcf);

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_http_sandbox_metrics_commands(b->last, metrics);
    p = ngx_http_sandbox_metrics_refusals(p, metrics);
    p = ngx_http_sandbox_metrics_histogram(p, "sandbox_command_queue_seconds",
                                           "Time that commands have waited.",
                                           &metrics->queued);
    p = ngx_http_sandbox_metrics_histogram(p, "sandbox_command_seconds",
                                           "Time that commands have run.",
                                           &metrics->duration);
    p = ngx_http_sandbox_metrics_traffic(p, &smcf->zone);
    p = ngx_http_sandbox_metrics_hosts(p, smcf);
    p = ngx_http_sandbox_engines_metrics(p, smcf);
    b->last = ngx_http_sandbox_egress_metrics(p, smcf);

    b->last_buf = 1;
    b->last_in_chain = 1;

    ngx_str_set(&r->headers_out.content_type, "text/plain; version=0.0.4");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


u_char *
ngx_http_sandbox_metrics_help(u_char *p, const char *name, const char *type,
    const char *help)
{
    return ngx_sprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                       type);
}


static u_char *
ngx_http_sandbox_metrics_commands(u_char *p,
    ngx_http_sandbox_metrics_t *metrics)
{
    ngx_uint_t  i;

    static const char  name[] = "sandbox_commands_total";

    p = ngx_http_sandbox_metrics_help(p, name, "counter",
                                      "Commands by how they ended.");

    for (i = 0; i < SANDBOX_OUTCOME_LAST; i++) {
        p = ngx_sprintf(p, "%s{outcome=\"%s\",success=\"%s\"} %uA\n", name,
                        sandbox_outcome_name((unsigned) i),
                        i == SANDBOX_OUTCOME_EXIT ? "true" : "false",
                        metrics->commands[i]);
    }

    p = ngx_sprintf(p, "%s{outcome=\"exit\",success=\"false\"} %uA\n", name,
                    metrics->commands[NGX_HTTP_SANDBOX_METRICS_FAILED]);

    p = ngx_http_sandbox_metrics_help(p, "sandbox_commands_background_total",
                                      "counter", "Commands in the background "
                                      "that were begun.");
    p = ngx_sprintf(p, "sandbox_commands_background_total %uA\n",
                    metrics->commands[NGX_HTTP_SANDBOX_METRICS_BACKGROUND]);

    p = ngx_http_sandbox_metrics_help(p, "sandbox_commands_unseen_total",
                                      "counter", "Commands whose clients went "
                                      "away before they ended.");

    return ngx_sprintf(p, "sandbox_commands_unseen_total %uA\n",
                       metrics->commands[NGX_HTTP_SANDBOX_METRICS_UNSEEN]);
}


static u_char *
ngx_http_sandbox_metrics_refusals(u_char *p,
    ngx_http_sandbox_metrics_t *metrics)
{
    ngx_str_t   code;
    ngx_uint_t  i, n;

    static const char  name[] = "sandbox_refusals_total";

    p = ngx_http_sandbox_metrics_help(p, name, "counter",
                                      "Requests that were refused, by the "
                                      "code of the answer.");
    n = metrics->ncodes;
    ngx_memory_barrier();

    for (i = 0; i < n; i++) {
        code.data = metrics->codes[i].name;
        code.len = metrics->codes[i].len;

        p = ngx_sprintf(p, "%s{code=\"%V\"} %uA\n", name, &code,
                        metrics->codes[i].count);
    }

    return ngx_sprintf(p, "%s{code=\"other\"} %uA\n", name, metrics->others);
}


static u_char *
ngx_http_sandbox_metrics_histogram(u_char *p, const char *name,
    const char *help, ngx_http_sandbox_histogram_t *h)
{
    uint64_t           sum;
    ngx_uint_t         i;
    ngx_atomic_uint_t  count;

    p = ngx_http_sandbox_metrics_help(p, name, "histogram", help);

    for (i = 0, count = 0; i < NGX_HTTP_SANDBOX_METRICS_BUCKETS; i++) {
        count += h->bucket[i];
        p = ngx_sprintf(p, "%s_bucket{le=\"%s\"} %uA\n", name,
                        ngx_http_sandbox_metrics_bounds[i].text, count);
    }

    sum = h->sum;

    return ngx_sprintf(p, "%s_sum %uL.%06uL\n%s_count %uA\n", name,
                       sum / 1000000, sum % 1000000, name, count);
}


static u_char *
ngx_http_sandbox_metrics_traffic(u_char *p, ngx_http_sandbox_zone_t *zone)
{
    ngx_uint_t                    i;
    ngx_http_sandbox_metrics_t   *metrics;
    ngx_http_sandbox_counters_t   cache;

    metrics = zone->metrics;
    ngx_http_sandbox_cache_read(zone, &cache);

    p = ngx_http_sandbox_metrics_help(p, "sandbox_requests_total", "counter",
                                      "Requests by the class of their "
                                      "status.");

    for (i = 0; i < 6; i++) {
        p = ngx_sprintf(p, "sandbox_requests_total{status=\"%ui%s\"} %uA\n",
                        i, i ? "xx" : "", metrics->requests[i]);
    }

    p = ngx_http_sandbox_metrics_help(p, "sandbox_received_bytes_total",
                                      "counter", "Bytes of requests.");
    p = ngx_sprintf(p, "sandbox_received_bytes_total %uA\n",
                    metrics->received);
    p = ngx_http_sandbox_metrics_help(p, "sandbox_sent_bytes_total",
                                      "counter", "Bytes of answers.");
    p = ngx_sprintf(p, "sandbox_sent_bytes_total %uA\n", metrics->sent);

    p = ngx_http_sandbox_metrics_help(p, "sandbox_token_cache_total",
                                      "counter", "Tokens by what the cache of "
                                      "verified ones did.");
    p = ngx_sprintf(p, "sandbox_token_cache_total{event=\"hit\"} %uL\n"
                    "sandbox_token_cache_total{event=\"miss\"} %uL\n"
                    "sandbox_token_cache_total{event=\"eviction\"} %uL\n"
                    "sandbox_token_cache_total{event=\"refused\"} %uL\n",
                    cache.hits, cache.misses, cache.evictions, cache.refused);
    p = ngx_http_sandbox_metrics_help(p, "sandbox_token_cache_entries",
                                      "gauge", "Verified tokens.");
    p = ngx_sprintf(p, "sandbox_token_cache_entries %uL\n", cache.entries);
    p = ngx_http_sandbox_metrics_help(p, "sandbox_token_cache_bytes",
                                      "gauge", "Memory of verified tokens.");

    return ngx_sprintf(p, "sandbox_token_cache_bytes %uL\n", cache.bytes);
}


/* each family as a whole, so runners are gone through for each */

static u_char *
ngx_http_sandbox_metrics_hosts(u_char *p, ngx_http_sandbox_main_conf_t *smcf)
{
    uint64_t                    n;
    ngx_uint_t                  i, k, ready;
    ngx_http_sandbox_host_t     host;
    ngx_http_sandbox_runner_t **runner;

    static const struct {
        const char  *name;
        const char  *help;
        const char  *state;
        int          offset;                     /* -1: whether it is ready */
    } lines[] = {
        { "sandbox_runner_ready", "Whether the runner answers.", NULL, -1 },
        { "sandbox_sandboxes", "Sandboxes by their state.", "running",
          offsetof(ngx_http_sandbox_host_t, live) },
        { "sandbox_sandboxes", NULL, "creating",
          offsetof(ngx_http_sandbox_host_t, creating) },
        { "sandbox_sandboxes", NULL, "failed",
          offsetof(ngx_http_sandbox_host_t, failed) },
        { "sandbox_sandboxes", NULL, "idle",
          offsetof(ngx_http_sandbox_host_t, sandboxes) },
        { "sandbox_pool", "Sandboxes that are ready for new conversations.",
          NULL, offsetof(ngx_http_sandbox_host_t, pool) },
        { "sandbox_commands_running", "Commands that run.", NULL,
          offsetof(ngx_http_sandbox_host_t, running) },
        { "sandbox_commands_queued", "Commands that wait.", NULL,
          offsetof(ngx_http_sandbox_host_t, queued) },
        { "sandbox_runner_draining", "Whether its operator stops all "
          "sandboxes.", NULL, offsetof(ngx_http_sandbox_host_t, draining) }
    };

    runner = smcf->runners.elts;

    for (k = 0; k < sizeof(lines) / sizeof(lines[0]); k++) {

        if (lines[k].help) {
            p = ngx_http_sandbox_metrics_help(p, lines[k].name, "gauge",
                                              lines[k].help);
        }

        for (i = 0; i < smcf->runners.nelts; i++) {

            ready = ngx_http_sandbox_slot_status(runner[i])
                    == NGX_HTTP_SANDBOX_READY;
            ngx_http_sandbox_slot_host(runner[i], &host);

            /* those that are none of these have stopped */

            n = host.live + host.creating + host.failed;
            host.sandboxes = host.sandboxes > n ? host.sandboxes - n : 0;

            n = lines[k].offset == -1
                ? ready
                : *(uint64_t *) ((u_char *) &host + lines[k].offset);

            p = ngx_http_sandbox_metrics_runner(p, lines[k].name, runner[i]);

            if (lines[k].state) {
                p = ngx_sprintf(p, "\",state=\"%s", lines[k].state);
            }

            p = ngx_sprintf(p, "\"} %uL\n", n);
        }
    }

    return p;
}


void
ngx_http_sandbox_metrics_host(ngx_http_sandbox_host_t *host,
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


u_char *
ngx_http_sandbox_metrics_runner(u_char *p, const char *name,
    const ngx_http_sandbox_runner_t *runner)
{
    u_char  *s, *last;

    p = ngx_sprintf(p, "%s{runner=\"", name);

    s = runner->name.data;
    last = s + runner->name.len;

    for ( /* void */ ; s < last; s++) {
        if (*s == '"' || *s == '\\') {
            *p++ = '\\';
        }

        *p++ = *s;
    }

    return p;
}
