/*
 * Which egress policy the sandbox of a request has, as its number in the
 * preamble, as a variable, in v1/limits, and what runners counted.
 */

#include "ngx_http_sandbox_egress.h"


#define NGX_HTTP_SANDBOX_EGRESS_SHOWN  100       /* names in v1/limits */
#define NGX_HTTP_SANDBOX_EGRESS_LINE   256       /* bytes, without a path */
#define NGX_HTTP_SANDBOX_EGRESS_QUIET  10        /* seconds between lines */


static const ngx_http_sandbox_egress_policy_t *
    ngx_http_sandbox_egress_evaluate(ngx_http_request_t *r,
    const ngx_http_sandbox_egress_t *use,
    const ngx_http_sandbox_egresses_t *egress);
static void ngx_http_sandbox_egress_unknown(ngx_http_request_t *r,
    const ngx_http_sandbox_egress_t *use, const ngx_str_t *name);
static const ngx_http_sandbox_egress_policy_t *ngx_http_sandbox_egress_by_id(
    const ngx_http_sandbox_egresses_t *egress, uint64_t id);


const ngx_http_sandbox_egress_policy_t *
ngx_http_sandbox_egress(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    const ngx_http_sandbox_egress_t  *use;
    ngx_http_sandbox_loc_conf_t      *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    use = slcf->egress;

    if (use == NULL || slcf->disabled
        || (ctx->route && ctx->route->access == NGX_HTTP_SANDBOX_PUBLIC)
        || ngx_http_sandbox_principal(r, ctx) == NULL)
    {
        return NULL;
    }

    if (use->variable == NULL) {
        return use->policy;
    }

    /* once for a request: an operation that is sent again has the same */

    if (ctx->egress_of != slcf) {
        ctx->egress = ngx_http_sandbox_egress_evaluate(r, use,
                                                       slcf->main->egress);
        ctx->egress_of = slcf;
    }

    return ctx->egress;
}


/* what ends at the runner is not told of it */

uint32_t
ngx_http_sandbox_egress_id(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    const ngx_http_sandbox_egress_policy_t  *policy;

    if (ctx->wire.operation < SANDBOX_OPERATION_COMMAND) {
        return 0;
    }

    policy = ngx_http_sandbox_egress(r, ctx);

    return policy ? policy->id : 0;
}


/*
 * Variables that were set, or evaluated earlier, don't count: as it was judged
 * when the configuration was read, and nothing else, is what it is made of.
 */

static const ngx_http_sandbox_egress_policy_t *
ngx_http_sandbox_egress_evaluate(ngx_http_request_t *r,
    const ngx_http_sandbox_egress_t *use,
    const ngx_http_sandbox_egresses_t *egress)
{
    ngx_int_t                                rc;
    ngx_str_t                                name;
    ngx_http_variable_value_t                value, *kept;
    ngx_http_core_main_conf_t               *cmcf;
    const ngx_http_sandbox_egress_policy_t  *policy;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    kept = r->variables;

    r->variables = ngx_pcalloc(r->pool, cmcf->variables.nelts
                                        * sizeof(ngx_http_variable_value_t));
    if (r->variables == NULL) {
        r->variables = kept;
        return NULL;
    }

    ngx_memzero(&value, sizeof(ngx_http_variable_value_t));

    rc = use->variable->get_handler(r, &value, use->variable->data);

    r->variables = kept;

    if (rc != NGX_OK || !value.valid || value.not_found) {
        return NULL;
    }

    name.data = value.data;
    name.len = value.len;

    if (name.len == 0 || ngx_http_sandbox_egress_is_none(&name)) {
        return NULL;
    }

    policy = ngx_http_sandbox_egress_find(egress, &name);

    if (policy == NULL) {
        ngx_http_sandbox_egress_unknown(r, use, &name);
    }

    return policy;
}


static void
ngx_http_sandbox_egress_unknown(ngx_http_request_t *r,
    const ngx_http_sandbox_egress_t *use, const ngx_str_t *name)
{
    static time_t  last;

    if (last && ngx_time() - last < NGX_HTTP_SANDBOX_EGRESS_QUIET) {
        return;
    }

    last = ngx_time();

    /* a token's words are not for the log, unless they are a name */

    if (sandbox_command_id_valid(name->data, name->len)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "\"sandbox_egress %V\" is \"%V\", and there is no such "
                      "\"sandbox_egress_policy\": the sandbox has no network",
                      &use->value, name);
        return;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "\"sandbox_egress %V\" is what can't be the name of a "
                  "\"sandbox_egress_policy\", %uz bytes: the sandbox has no "
                  "network", &use->value, name->len);
}


size_t
ngx_http_sandbox_egress_limits_size(
    const ngx_http_sandbox_egress_policy_t *policy)
{
    size_t       size;
    ngx_str_t   *host;
    ngx_uint_t   i;

    size = 512;

    if (policy == NULL) {
        return size;
    }

    /* none of these has anything to escape */

    size += policy->name.len + policy->index.len;
    host = policy->hosts.elts;

    for (i = 0;
         i < policy->hosts.nelts && i < NGX_HTTP_SANDBOX_EGRESS_SHOWN;
         i++)
    {
        size += host[i].len + sizeof(",\"\"") - 1;
    }

    return size;
}


u_char *
ngx_http_sandbox_egress_limits(u_char *p,
    const ngx_http_sandbox_egress_policy_t *policy, ngx_uint_t state)
{
    ngx_str_t   *host;
    ngx_uint_t   i;

    if (policy == NULL || policy->id == 0) {
        return ngx_sprintf(p, ",\"egress\":null");
    }

    p = ngx_sprintf(p, ",\"egress\":{\"policy\":\"%V\",\"inForce\":%s"
                    ",\"enforced\":\"%s\",\"port\":443,\"allow\":[",
                    &policy->name,
                    (state & NGX_HTTP_SANDBOX_EGRESS_IN_FORCE) ? "true"
                                                               : "false",
                    (state & NGX_HTTP_SANDBOX_EGRESS_HARD) ? "hard"
                                                           : "best_effort");

    host = policy->hosts.elts;

    for (i = 0;
         i < policy->hosts.nelts && i < NGX_HTTP_SANDBOX_EGRESS_SHOWN;
         i++)
    {
        p = ngx_sprintf(p, "%s\"%V\"", i ? "," : "", &host[i]);
    }

    p = ngx_sprintf(p, "],\"allowed\":%ui,\"connections\":%i"
                    ",\"totalBytes\":%O,\"tunnelSeconds\":%M"
                    ",\"packageIndex\":",
                    policy->hosts.nelts, policy->connections, policy->bytes,
                    policy->time / 1000);

    if (policy->index.len) {
        return ngx_sprintf(p, "\"%V\"}", &policy->index);
    }

    return ngx_sprintf(p, "null%s", "}");
}


static const ngx_http_sandbox_egress_policy_t *
ngx_http_sandbox_egress_by_id(const ngx_http_sandbox_egresses_t *egress,
    uint64_t id)
{
    ngx_uint_t                          i;
    ngx_http_sandbox_egress_policy_t  **policy;

    policy = egress->policies.elts;

    for (i = 0; i < egress->policies.nelts; i++) {
        if (policy[i]->id == id) {
            return policy[i];
        }
    }

    return NULL;
}


static const struct {
    const char  *name;
    const char  *type;
    const char  *help;
    int          offset;                         /* -1: whether it has them */
} ngx_http_sandbox_egress_metrics_lines[] = {
    { "sandbox_egress_in_force", "gauge",
      "Whether the runner has the policies of this nginx.", -1 },
    { "sandbox_egress_open", "gauge", "Tunnels that are open.",
      offsetof(ngx_http_sandbox_egress_count_t, open) },
    { "sandbox_egress_tunnels_total", "counter", "Tunnels that were opened.",
      offsetof(ngx_http_sandbox_egress_count_t, tunnels) },
    { "sandbox_egress_refused_total", "counter",
      "Tunnels that the policy does not allow.",
      offsetof(ngx_http_sandbox_egress_count_t, refused) },
    { "sandbox_egress_failed_total", "counter",
      "Tunnels that are allowed, but could not be opened.",
      offsetof(ngx_http_sandbox_egress_count_t, failed) },
    { "sandbox_egress_sent_bytes_total", "counter",
      "Bytes out of sandboxes.",
      offsetof(ngx_http_sandbox_egress_count_t, up) },
    { "sandbox_egress_received_bytes_total", "counter",
      "Bytes into sandboxes.",
      offsetof(ngx_http_sandbox_egress_count_t, down) }
};

#define NGX_HTTP_SANDBOX_EGRESS_FAMILIES                                      \
    (sizeof(ngx_http_sandbox_egress_metrics_lines)                            \
     / sizeof(ngx_http_sandbox_egress_metrics_lines[0]))


size_t
ngx_http_sandbox_egress_metrics_size(ngx_http_sandbox_main_conf_t *smcf)
{
    size_t                       size;
    ngx_uint_t                   i;
    ngx_http_sandbox_runner_t  **runner;

    if (smcf->egress == NULL) {
        return 0;
    }

    size = NGX_HTTP_SANDBOX_EGRESS_FAMILIES * NGX_HTTP_SANDBOX_EGRESS_LINE;
    runner = smcf->runners.elts;

    for (i = 0; i < smcf->runners.nelts; i++) {
        size += NGX_HTTP_SANDBOX_EGRESS_FAMILIES * SANDBOX_WIRE_MAX_POLICIES
                * (NGX_HTTP_SANDBOX_EGRESS_LINE + 2 * runner[i]->name.len);
    }

    return size;
}


/* each family as a whole, and of each only policies that are in use */

u_char *
ngx_http_sandbox_egress_metrics(u_char *p, ngx_http_sandbox_main_conf_t *smcf)
{
    int                                      offset;
    ngx_uint_t                               i, k, n, in_force;
    ngx_http_sandbox_runner_t              **runner;
    ngx_http_sandbox_egress_counts_t         counts;
    const ngx_http_sandbox_egress_policy_t  *policy;

    if (smcf->egress == NULL) {
        return p;
    }

    runner = smcf->runners.elts;

    for (k = 0; k < NGX_HTTP_SANDBOX_EGRESS_FAMILIES; k++) {

        offset = ngx_http_sandbox_egress_metrics_lines[k].offset;

        p = ngx_http_sandbox_metrics_help(p,
                             ngx_http_sandbox_egress_metrics_lines[k].name,
                             ngx_http_sandbox_egress_metrics_lines[k].type,
                             ngx_http_sandbox_egress_metrics_lines[k].help);

        for (i = 0; i < smcf->runners.nelts; i++) {

            in_force = ngx_http_sandbox_slot_egress(runner[i], &counts);

            if (offset == -1) {
                p = ngx_http_sandbox_metrics_runner(p,
                             ngx_http_sandbox_egress_metrics_lines[k].name,
                             runner[i]);
                p = ngx_sprintf(p, "\"} %ui\n", in_force);
                continue;
            }

            for (n = 0; n < counts.n; n++) {

                policy = ngx_http_sandbox_egress_by_id(smcf->egress,
                                                       counts.count[n].id);
                if (policy == NULL) {
                    continue;
                }

                p = ngx_http_sandbox_metrics_runner(p,
                             ngx_http_sandbox_egress_metrics_lines[k].name,
                             runner[i]);
                p = ngx_sprintf(p, "\",policy=\"%V\"} %uL\n", &policy->name,
                                *(uint64_t *) ((u_char *) &counts.count[n]
                                               + offset));
            }
        }
    }

    return p;
}


void
ngx_http_sandbox_egress_count(ngx_http_sandbox_egress_counts_t *counts,
    sandbox_field_t *field)
{
    uint64_t                          *number;
    sandbox_field_t                    part;
    sandbox_fields_t                   parts;
    ngx_http_sandbox_egress_count_t   *count;

    if (counts->n == SANDBOX_WIRE_MAX_POLICIES) {
        return;
    }

    count = &counts->count[counts->n];

    ngx_memzero(count, sizeof(ngx_http_sandbox_egress_count_t));

    sandbox_fields_init(&parts, field->data, field->length);

    while (sandbox_fields_next(&parts, &part) == SANDBOX_OK) {

        switch (part.tag) {

        case SANDBOX_TAG_EGRESS_ID:
            number = &count->id;
            break;

        case SANDBOX_TAG_EGRESS_OPEN:
            number = &count->open;
            break;

        case SANDBOX_TAG_EGRESS_TUNNELS:
            number = &count->tunnels;
            break;

        case SANDBOX_TAG_EGRESS_REFUSED:
            number = &count->refused;
            break;

        case SANDBOX_TAG_EGRESS_FAILED:
            number = &count->failed;
            break;

        case SANDBOX_TAG_EGRESS_UP:
            number = &count->up;
            break;

        case SANDBOX_TAG_EGRESS_DOWN:
            number = &count->down;
            break;

        default:
            continue;
        }

        (void) sandbox_field_number(&part, UINT64_MAX, number);
    }

    if (count->id) {
        counts->n++;
    }
}
