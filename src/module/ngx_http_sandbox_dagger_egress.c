/*
 * The way out of sandboxes on engines: a command with a policy brings the
 * address of the engine's proxy along, and a token by which that proxy knows
 * whose connections they are.  Knows no queries, no socket.
 */

#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_egress.h"
#include "sandbox_token.h"


#define NGX_HTTP_SANDBOX_TOKEN_GRACE  60         /* seconds */
#define NGX_HTTP_SANDBOX_TOKEN_MOST   (7 * 24 * 3600)
#define NGX_HTTP_SANDBOX_PROXY_QUIET  60         /* seconds between lines */


static ngx_uint_t ngx_http_sandbox_dagger_egress_field(uint16_t tag);
static size_t ngx_http_sandbox_dagger_egress_kept(const ngx_str_t *head,
    ngx_uint_t *found);
static void ngx_http_sandbox_dagger_egress_keep(sandbox_writer_t *w,
    const ngx_str_t *head);
static ngx_int_t ngx_http_sandbox_dagger_egress_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t kept,
    const ngx_http_sandbox_egress_policy_t *policy, const ngx_str_t *proxy);
static uint64_t ngx_http_sandbox_dagger_egress_until(
    const ngx_http_sandbox_loc_conf_t *slcf);
static void ngx_http_sandbox_dagger_egress_none(ngx_http_request_t *r,
    const ngx_http_sandbox_engine_t *engine,
    const ngx_http_sandbox_egress_policy_t *policy);


ngx_int_t
ngx_http_sandbox_dagger_egress(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_engine_t *engine,
    const ngx_str_t *proxy)
{
    size_t                                   kept;
    ngx_uint_t                               found;
    const ngx_http_sandbox_egress_policy_t  *policy;

    if (ctx->wire.operation != SANDBOX_OPERATION_COMMAND) {
        return NGX_OK;
    }

    policy = ngx_http_sandbox_egress(r, ctx);

    if (policy && policy->id == 0) {
        policy = NULL;
    }

    if (policy && proxy->len == 0) {
        ngx_http_sandbox_dagger_egress_none(r, engine, policy);
        policy = NULL;
    }

    /* one that is sent again may have another engine, with another proxy */

    kept = ngx_http_sandbox_dagger_egress_kept(&ctx->wire.head, &found);

    if (policy == NULL && !found) {
        return NGX_OK;
    }

    return ngx_http_sandbox_dagger_egress_write(r, ctx, kept, policy, proxy);
}


/* its time in the queue counts: behind others it starts later */

static uint64_t
ngx_http_sandbox_dagger_egress_until(const ngx_http_sandbox_loc_conf_t *slcf)
{
    uint64_t                        seconds;
    const ngx_http_sandbox_caps_t  *caps;

    caps = &slcf->caps;

    seconds = (uint64_t) ngx_max(caps->wall_time, caps->background_time) / 1000
              + (uint64_t) caps->pending * (caps->wall_time / 1000)
              + NGX_HTTP_SANDBOX_TOKEN_GRACE;

    return (uint64_t) ngx_time()
           + ngx_min(seconds, NGX_HTTP_SANDBOX_TOKEN_MOST);
}


static ngx_uint_t
ngx_http_sandbox_dagger_egress_field(uint16_t tag)
{
    return tag == SANDBOX_TAG_EGRESS_PROXY || tag == SANDBOX_TAG_EGRESS_TOKEN
           || tag == SANDBOX_TAG_EGRESS_INDEX || tag == SANDBOX_TAG_EGRESS_CA;
}


/* bytes of all other fields, and whether there are some of ours */

static size_t
ngx_http_sandbox_dagger_egress_kept(const ngx_str_t *head, ngx_uint_t *found)
{
    size_t            size;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    size = 0;
    *found = 0;

    sandbox_fields_init(&fields, head->data, head->len);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {

        if (ngx_http_sandbox_dagger_egress_field(field.tag)) {
            *found = 1;
            continue;
        }

        size += SANDBOX_WIRE_FIELD_SIZE + field.length;
    }

    return size;
}


static void
ngx_http_sandbox_dagger_egress_keep(sandbox_writer_t *w, const ngx_str_t *head)
{
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    sandbox_fields_init(&fields, head->data, head->len);

    while (sandbox_fields_next(&fields, &field) == SANDBOX_OK) {
        if (!ngx_http_sandbox_dagger_egress_field(field.tag)) {
            sandbox_write_bytes(w, field.tag, field.data, field.length);
        }
    }
}


static ngx_int_t
ngx_http_sandbox_dagger_egress_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t kept,
    const ngx_http_sandbox_egress_policy_t *policy, const ngx_str_t *proxy)
{
    char                          text[SANDBOX_TOKEN_LENGTH + 1];
    size_t                        size;
    u_char                       *p, key[SANDBOX_WIRE_KEY_SIZE];
    sandbox_token_t               token;
    sandbox_writer_t              w;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    size = kept;

    if (policy) {
        size += 4 * SANDBOX_WIRE_FIELD_SIZE + proxy->len
                + SANDBOX_TOKEN_LENGTH + policy->index.len + policy->ca.len;
    }

    p = ngx_pnalloc(r->pool, SANDBOX_WIRE_PREAMBLE_SIZE + size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    p += SANDBOX_WIRE_PREAMBLE_SIZE;

    sandbox_writer_init(&w, p, size);
    ngx_http_sandbox_dagger_egress_keep(&w, &ctx->wire.head);

    if (policy) {
        ngx_memcpy(token.session, ctx->session, SANDBOX_WIRE_SESSION_SIZE);
        token.policy = policy->id;
        token.expires = ngx_http_sandbox_dagger_egress_until(slcf);

        sandbox_token_key(slcf->runner->key, key);
        sandbox_token_sign(&token, key);
        sandbox_token_write(&token, text);
        ngx_explicit_memzero(key, sizeof(key));

        sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_PROXY, proxy->data,
                            proxy->len);
        sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_TOKEN, text,
                            SANDBOX_TOKEN_LENGTH);

        if (policy->index.len) {
            sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_INDEX,
                                policy->index.data, policy->index.len);
        }

        /* more has no room in a head; nginx -t has said so */

        if (policy->ca.len && policy->ca.len <= SANDBOX_WIRE_MAX_COMMAND_CA) {
            sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_CA, policy->ca.data,
                                policy->ca.len);
        }
    }

    if (w.failed || (size_t) (w.pos - w.start) > SANDBOX_WIRE_MAX_HEAD) {
        return NGX_DECLINED;
    }

    ctx->wire.head.data = p;
    ctx->wire.head.len = w.pos - w.start;

    return NGX_OK;
}


static void
ngx_http_sandbox_dagger_egress_none(ngx_http_request_t *r,
    const ngx_http_sandbox_engine_t *engine,
    const ngx_http_sandbox_egress_policy_t *policy)
{
    static time_t  last;

    if (last && ngx_time() - last < NGX_HTTP_SANDBOX_PROXY_QUIET) {
        return;
    }

    last = ngx_time();

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "sandbox: engine \"%V\" has no egress proxy, so commands "
                  "with policy \"%V\" have no network there: start "
                  "\"sandbox-runner --dagger\" with \"--egress-listen "
                  "ADDRESS:PORT\"", &engine->name, &policy->name);
}


/* in force where there is a proxy for each of its engines; hard by firewalls */

ngx_uint_t
ngx_http_sandbox_dagger_egress_state(const ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_uint_t                   i, state;
    ngx_array_t                 *engines;
    ngx_http_sandbox_engine_t  **engine;

    state = NGX_HTTP_SANDBOX_EGRESS_HARD;

    if (ngx_http_sandbox_slot_egress(slcf->runner, NULL)) {
        state |= NGX_HTTP_SANDBOX_EGRESS_IN_FORCE;
    }

    engines = slcf->dagger->engines;
    engine = engines->elts;

    for (i = 0; i < engines->nelts; i++) {

        if (!engine[i]->isolated) {
            state &= ~(ngx_uint_t) NGX_HTTP_SANDBOX_EGRESS_HARD;
        }

        if (!ngx_http_sandbox_engine_proxied(&slcf->main->zone, engine[i])) {
            state &= ~(ngx_uint_t) NGX_HTTP_SANDBOX_EGRESS_IN_FORCE;
        }
    }

    return state;
}


/* once for each location: what its policies can't promise there */

void
ngx_http_sandbox_dagger_egress_check(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_uint_t                          i;
    ngx_array_t                        *policies;
    const ngx_http_sandbox_egress_t    *use;
    ngx_http_sandbox_engine_t         **engine;
    ngx_http_sandbox_egress_policy_t  **policy;

    use = slcf->egress;

    if (slcf->dagger == NULL
        || (use->variable == NULL
            && (use->policy == NULL || use->policy->id == 0)))
    {
        return;
    }

    engine = slcf->dagger->engines->elts;

    for (i = 0; i < slcf->dagger->engines->nelts; i++) {

        if (!engine[i]->isolated) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "\"sandbox_egress %V\" is best effort in "
                               "location \"%V\": a command with a policy "
                               "reaches all that the network of engine \"%V\" "
                               "lets it reach; put a firewall before that, "
                               "then add \"isolated\" to \"sandbox_dagger\"",
                               &use->value, &slcf->prefix, &engine[i]->name);
            break;
        }
    }

    policies = &slcf->main->egress->policies;
    policy = policies->elts;

    for (i = 0; i < policies->nelts; i++) {

        if ((use->variable || use->policy == policy[i])
            && policy[i]->ca.len > SANDBOX_WIRE_MAX_COMMAND_CA)
        {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "\"ca_certificate\" of \"sandbox_egress_policy "
                               "%V\" has more than %d bytes, so sandboxes on "
                               "engines, as in location \"%V\", don't get it",
                               &policy[i]->name, SANDBOX_WIRE_MAX_COMMAND_CA,
                               &slcf->prefix);
        }
    }
}
