/*
 * GET health and GET v1/limits: what is known without asking anybody.
 */

#include "ngx_http_sandbox_egress.h"
#include "ngx_http_sandbox_skills.h"


static u_char *ngx_http_sandbox_limits_caps(u_char *p,
    const ngx_http_sandbox_loc_conf_t *slcf);
static u_char *ngx_http_sandbox_limits_text(u_char *p, const char *name,
    ngx_str_t *text);
static u_char *ngx_http_sandbox_limits_zone(u_char *p, const char *name,
    ngx_uint_t value);


static const char  *ngx_http_sandbox_status_names[] = {
    "initializing", "ready", "unreachable", "disabled"
};


static const struct {
    uint64_t     cap;
    const char  *name;
} ngx_http_sandbox_hard_caps[] = {
    { SANDBOX_CAP_MEMORY, "memory" },
    { SANDBOX_CAP_PROCESSES, "processes" },
    { SANDBOX_CAP_CPU, "cpu" },
    { SANDBOX_CAP_DISK, "disk" },
    { SANDBOX_CAP_NETWORK, "network" },
    { 0, NULL }
};


/* 200 whatever the state, unless "health?ready" asks for a yes or no */

ngx_int_t
ngx_http_sandbox_health_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_buf_t                    *b;
    ngx_str_t                     value;
    ngx_uint_t                    status;
    ngx_http_sandbox_status_e     word;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    word = ngx_http_sandbox_health_status(slcf);

    status = NGX_HTTP_OK;

    if (word != NGX_HTTP_SANDBOX_READY
        && ngx_http_sandbox_argument(r, "ready", &value) == NGX_OK)
    {
        status = NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    b = ngx_create_temp_buf(r->pool, 64);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"status\":\"%s\"}\n",
                          ngx_http_sandbox_status_name(word));

    if (ngx_http_sandbox_render_buffer(r, ctx, status, b) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_send_answer(r, ctx);
}


ngx_int_t
ngx_http_sandbox_limits_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    u_char                       *p;
    ngx_buf_t                    *b;
    ngx_uint_t                    i, comma, state, hosted;
    ngx_http_sandbox_zone_t      *zone;
    ngx_http_sandbox_health_t     health;
    ngx_http_sandbox_loc_conf_t  *slcf;

    const char *const                       *unsupported;
    const ngx_http_sandbox_egress_policy_t  *egress;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    zone = &slcf->main->zone;

    ngx_http_sandbox_health_get(slcf, &health);

    unsupported = slcf->backend->unsupported(slcf);

    egress = ngx_http_sandbox_egress(r, ctx);
    state = (egress && slcf->runner) ? slcf->backend->egress(slcf)
                                     : NGX_HTTP_SANDBOX_EGRESS_HARD;

    /* names and numbers, and three texts that may be all escapes */

    b = ngx_create_temp_buf(r->pool, 4096
                            + 6 * (NGX_HTTP_SANDBOX_MAX_REASON
                                   + 2 * NGX_HTTP_SANDBOX_MAX_WORD)
                            + ngx_http_sandbox_egress_limits_size(egress));
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_sprintf(b->last, "{\"backend\":\"%V\",\"status\":\"%s\"",
                    &slcf->backend->name,
                    ngx_http_sandbox_status_name(health.status));

    p = ngx_http_sandbox_limits_text(p, "reason", &health.reason);
    p = ngx_http_sandbox_limits_text(p, "runtime", &health.runtime);
    p = ngx_http_sandbox_limits_text(p, "version", &health.version);
    hosted = slcf->backend->hosted;

    p = ngx_sprintf(p, ",\"base\":\"%s\"",
                    hosted ? (char *) slcf->base.data : "default");
    p = ngx_http_sandbox_limits_caps(p, slcf);

    p = ngx_sprintf(p, ",\"sandboxes\":{\"running\":%ui,\"queued\":%ui"
                    ",\"idleSeconds\":%M", zone->running,
                    hosted ? zone->queue : 0, zone->idle / 1000);
    p = ngx_http_sandbox_limits_zone(p, "max", hosted ? zone->max : 0);
    p = ngx_http_sandbox_limits_zone(p, "perTenant",
                                     hosted ? zone->per_tenant : 0);

    if (slcf->store) {
        p = ngx_sprintf(p, "},\"store\":{\"files\":%uL,\"bytes\":%uL"
                        ",\"tenantBytes\":%uL,\"attachments\":%d"
                        ",\"skills\":%d,\"skillBytes\":%uL"
                        ",\"skillLibrary\":%s",
                        slcf->quota.files, slcf->quota.size,
                        slcf->quota.tenant_size,
                        SANDBOX_STORE_MAX_ATTACHMENTS,
                        SANDBOX_STORE_MAX_SKILLS, SANDBOX_SKILL_MAX_BYTES,
                        slcf->skills.len ? "true" : "false");
        *p++ = '}';

    } else {
        p = ngx_sprintf(p, "},\"store\":null");
    }

    p = ngx_http_sandbox_egress_limits(p, egress, state);
    p = slcf->backend->limits(p, slcf);
    p = ngx_sprintf(p, ",\"hardCaps\":[");
    comma = 0;

    if (!(state & NGX_HTTP_SANDBOX_EGRESS_HARD)) {
        health.hard_caps &= ~(uint64_t) SANDBOX_CAP_NETWORK;
    }

    for (i = 0; ngx_http_sandbox_hard_caps[i].cap; i++) {
        if (health.hard_caps & ngx_http_sandbox_hard_caps[i].cap) {
            p = ngx_sprintf(p, "%s\"%s\"", comma ? "," : "",
                            ngx_http_sandbox_hard_caps[i].name);
            comma = 1;
        }
    }

    p = ngx_sprintf(p, "],\"unsupported\":[");

    for (i = 0; unsupported[i]; i++) {
        p = ngx_sprintf(p, "%s\"%s\"", i ? "," : "", unsupported[i]);
    }

    b->last = ngx_sprintf(p, "]}\n");

    if (ngx_http_sandbox_render_buffer(r, ctx, NGX_HTTP_OK, b) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_send_answer(r, ctx);
}


static u_char *
ngx_http_sandbox_limits_caps(u_char *p,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    const ngx_http_sandbox_caps_t  *caps;

    caps = &slcf->caps;

    p = ngx_sprintf(p, ",\"timeoutSeconds\":%M,\"cpuSeconds\":%M"
                    ",\"backgroundSeconds\":%M,\"memoryBytes\":%O"
                    ",\"diskBytes\":%O,\"processes\":%i,\"openFiles\":%i",
                    caps->wall_time / 1000, caps->cpu_time / 1000,
                    caps->background_time / 1000, caps->memory, caps->disk,
                    caps->processes, caps->open_files);

    return ngx_sprintf(p, ",\"outputBytes\":%O,\"outputTotalBytes\":%O"
                       ",\"fileBytes\":%O,\"commandBytes\":%O"
                       ",\"bodyBytes\":%uz,\"pending\":%i",
                       caps->output, caps->output_total, caps->file_size,
                       caps->command_size, ngx_http_sandbox_max_body(slcf),
                       caps->pending);
}


static u_char *
ngx_http_sandbox_limits_text(u_char *p, const char *name, ngx_str_t *text)
{
    ngx_uint_t  ignored;

    if (text->len == 0) {
        return ngx_sprintf(p, ",\"%s\":null", name);
    }

    p = ngx_sprintf(p, ",\"%s\":\"", name);
    p += ngx_http_sandbox_escape(p, text->data, text->len, &ignored);
    *p++ = '"';

    return p;
}


/* 0 leaves it to the runner */

static u_char *
ngx_http_sandbox_limits_zone(u_char *p, const char *name, ngx_uint_t value)
{
    if (value == 0) {
        return ngx_sprintf(p, ",\"%s\":null", name);
    }

    return ngx_sprintf(p, ",\"%s\":%ui", name, value);
}


ngx_http_sandbox_status_e
ngx_http_sandbox_health_status(const ngx_http_sandbox_loc_conf_t *slcf)
{
    return slcf->disabled ? NGX_HTTP_SANDBOX_DISABLED
                          : slcf->backend->status(slcf);
}


void
ngx_http_sandbox_health_get(const ngx_http_sandbox_loc_conf_t *slcf,
    ngx_http_sandbox_health_t *health)
{
    ngx_memzero(health, sizeof(ngx_http_sandbox_health_t));

    if (slcf->disabled) {
        health->status = NGX_HTTP_SANDBOX_DISABLED;
        return;
    }

    slcf->backend->health(slcf, health);
}


const char *
ngx_http_sandbox_status_name(ngx_uint_t status)
{
    return ngx_http_sandbox_status_names[status];
}
