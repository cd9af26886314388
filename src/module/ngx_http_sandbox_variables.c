/*
 * The $sandbox_* variables.  Who asks for the user or tenant early, in any
 * phase, has the token verified then; what there is not is "-".
 */

#include "ngx_http_sandbox_egress.h"
#include "ngx_http_sandbox_mcp.h"


enum {
    NGX_HTTP_SANDBOX_VAR_OPERATION = 0,
    NGX_HTTP_SANDBOX_VAR_CONVERSATION,
    NGX_HTTP_SANDBOX_VAR_ID,
    NGX_HTTP_SANDBOX_VAR_COMMAND_ID,
    NGX_HTTP_SANDBOX_VAR_OUTCOME,
    NGX_HTTP_SANDBOX_VAR_EGRESS,
    NGX_HTTP_SANDBOX_VAR_USER,
    NGX_HTTP_SANDBOX_VAR_TENANT,
    NGX_HTTP_SANDBOX_VAR_TOKEN_CACHE
};


static ngx_int_t ngx_http_sandbox_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_text_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_number_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_cache_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static void ngx_http_sandbox_principal_text(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uintptr_t data, ngx_str_t *text);
static void ngx_http_sandbox_variable_set(ngx_http_variable_value_t *v,
    ngx_str_t *text);


static ngx_http_variable_t  ngx_http_sandbox_vars[] = {

    { ngx_string("sandbox_status"), NULL, ngx_http_sandbox_status_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_operation"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_OPERATION, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_conversation"), NULL,
      ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_CONVERSATION, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_user"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_USER, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_tenant"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_TENANT, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_egress"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_EGRESS, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_token_cache"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_TOKEN_CACHE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_token_cache_hits"), NULL,
      ngx_http_sandbox_cache_variable,
      offsetof(ngx_http_sandbox_counters_t, hits),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_token_cache_misses"), NULL,
      ngx_http_sandbox_cache_variable,
      offsetof(ngx_http_sandbox_counters_t, misses),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_token_cache_evictions"), NULL,
      ngx_http_sandbox_cache_variable,
      offsetof(ngx_http_sandbox_counters_t, evictions),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_token_cache_refused"), NULL,
      ngx_http_sandbox_cache_variable,
      offsetof(ngx_http_sandbox_counters_t, refused),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_token_cache_entries"), NULL,
      ngx_http_sandbox_cache_variable,
      offsetof(ngx_http_sandbox_counters_t, entries),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_token_cache_bytes"), NULL,
      ngx_http_sandbox_cache_variable,
      offsetof(ngx_http_sandbox_counters_t, bytes),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_id"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_ID, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_command_id"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_COMMAND_ID, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_outcome"), NULL, ngx_http_sandbox_text_variable,
      NGX_HTTP_SANDBOX_VAR_OUTCOME, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_exit_code"), NULL, ngx_http_sandbox_number_variable,
      SANDBOX_TAG_EXIT_CODE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_cpu_ms"), NULL, ngx_http_sandbox_number_variable,
      SANDBOX_TAG_CPU_US, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_memory_peak"), NULL,
      ngx_http_sandbox_number_variable,
      SANDBOX_TAG_MEMORY_PEAK, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_queued_ms"), NULL, ngx_http_sandbox_number_variable,
      SANDBOX_TAG_QUEUED_US, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


/* the word that health has for this location */

static ngx_int_t
ngx_http_sandbox_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                     text;
    const char                   *name;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (!slcf->serves) {
        ngx_str_null(&text);
        ngx_http_sandbox_variable_set(v, &text);
        return NGX_OK;
    }

    name = ngx_http_sandbox_status_name(ngx_http_sandbox_health_status(slcf));

    text.data = (u_char *) name;
    text.len = ngx_strlen(name);

    ngx_http_sandbox_variable_set(v, &text);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_text_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                     text;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    const ngx_http_sandbox_egress_policy_t  *egress;

    ngx_str_null(&text);

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (!slcf->serves) {
        ngx_http_sandbox_variable_set(v, &text);
        return NGX_OK;
    }

    ctx = ngx_http_sandbox_get_ctx(r);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ngx_http_sandbox_route(r, ctx);

    switch (data) {

    case NGX_HTTP_SANDBOX_VAR_OPERATION:
        if (ctx->mcp && ctx->mcp->tool) {
            text = ctx->mcp->tool->operation;

        } else if (ctx->route) {
            text = ctx->route->operation;
        }

        break;

    case NGX_HTTP_SANDBOX_VAR_CONVERSATION:
        text = ctx->conversation;
        break;

    case NGX_HTTP_SANDBOX_VAR_ID:
        text = ctx->wire.result.sandbox_id;
        break;

    case NGX_HTTP_SANDBOX_VAR_COMMAND_ID:
        text = ctx->wire.result.command_id.len ? ctx->wire.result.command_id
                                               : ctx->command_id;
        break;

    case NGX_HTTP_SANDBOX_VAR_OUTCOME:
        text = ctx->outcome;
        break;

    case NGX_HTTP_SANDBOX_VAR_EGRESS:
        egress = ngx_http_sandbox_egress(r, ctx);

        if (egress) {
            text = egress->name;
        }

        break;

    case NGX_HTTP_SANDBOX_VAR_TOKEN_CACHE:
        text = ctx->token_cache;
        break;

    default:
        ngx_http_sandbox_principal_text(r, ctx, data, &text);
    }

    ngx_http_sandbox_variable_set(v, &text);

    return NGX_OK;
}


/* without a tenant claim a user is a tenant of one */

static void
ngx_http_sandbox_principal_text(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, uintptr_t data, ngx_str_t *text)
{
    ngx_http_sandbox_loc_conf_t         *slcf;
    const ngx_http_sandbox_principal_t  *principal;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->disabled
        || (ctx->route && ctx->route->access == NGX_HTTP_SANDBOX_PUBLIC))
    {
        return;
    }

    principal = ngx_http_sandbox_principal(r, ctx);

    if (principal) {
        *text = (data == NGX_HTTP_SANDBOX_VAR_TENANT && principal->tenant.len)
                ? principal->tenant : principal->user;
    }
}


/* the counters of the zone, in any location of this nginx */

static ngx_int_t
ngx_http_sandbox_cache_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                        *p;
    uint64_t                       value;
    ngx_str_t                      text;
    ngx_http_sandbox_counters_t    counters;
    ngx_http_sandbox_main_conf_t  *smcf;

    ngx_str_null(&text);

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (smcf->zone.cache) {
        ngx_http_sandbox_cache_read(&smcf->zone, &counters);

        value = *(uint64_t *) ((char *) &counters + data);

        p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
        if (p == NULL) {
            return NGX_ERROR;
        }

        text.data = p;
        text.len = ngx_sprintf(p, "%uL", value) - p;
    }

    ngx_http_sandbox_variable_set(v, &text);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_number_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                     *p;
    uint64_t                    value;
    ngx_str_t                   text;
    ngx_http_sandbox_ctx_t     *ctx;
    ngx_http_sandbox_result_t  *result;

    ngx_str_null(&text);

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx == NULL || !ctx->wire.done || !ctx->wire.result.seen[data]) {
        ngx_http_sandbox_variable_set(v, &text);
        return NGX_OK;
    }

    result = &ctx->wire.result;
    value = result->number[data];

    if (data == SANDBOX_TAG_CPU_US || data == SANDBOX_TAG_QUEUED_US) {
        value = (value + 500) / 1000;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text.data = p;
    text.len = ngx_sprintf(p, "%uL", value) - p;

    ngx_http_sandbox_variable_set(v, &text);

    return NGX_OK;
}


static void
ngx_http_sandbox_variable_set(ngx_http_variable_value_t *v, ngx_str_t *text)
{
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->escape = 0;

    if (text->len) {
        v->data = text->data;
        v->len = text->len;

    } else {
        v->data = (u_char *) "-";
        v->len = 1;
    }
}


ngx_int_t
ngx_http_sandbox_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_sandbox_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}
