/*
 * The module itself: table of directives, creation and merge of the
 * configuration, what a serving location must have.  Runs nothing at request
 * time, and knows no wire, no JSON.
 */

#include "ngx_http_sandbox_conf.h"
#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_dagger_session.h"
#include "ngx_http_sandbox_egress.h"
#include "ngx_http_sandbox_metrics.h"
#include "ngx_http_sandbox_mcp.h"
#include "ngx_http_sandbox_skills.h"

#include <malloc.h>


static void *ngx_http_sandbox_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_sandbox_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_sandbox_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_sandbox_merge_serves(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *prev, ngx_http_sandbox_loc_conf_t *conf,
    ngx_http_core_loc_conf_t *clcf, ngx_uint_t here);
static ngx_int_t ngx_http_sandbox_merge_mode(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *prev, ngx_http_sandbox_loc_conf_t *conf);
static ngx_int_t ngx_http_sandbox_prefix(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf, ngx_http_sandbox_loc_conf_t *prev,
    ngx_http_sandbox_loc_conf_t *conf, ngx_uint_t here);
static ngx_int_t ngx_http_sandbox_require(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location);
static ngx_int_t ngx_http_sandbox_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_sandbox_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_sandbox_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_sandbox_init_process(ngx_cycle_t *cycle);
static void ngx_http_sandbox_exit_process(ngx_cycle_t *cycle);


static ngx_http_sandbox_bounds_t  ngx_http_sandbox_memory_bounds = {
    (int64_t) SANDBOX_WIRE_MIN_MEMORY << 20,
    (int64_t) SANDBOX_WIRE_MAX_MEMORY << 20,
    "a size from 32m to 1024g, such as \"1g\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_disk_bounds = {
    (int64_t) SANDBOX_WIRE_MIN_DISK << 20,
    (int64_t) SANDBOX_WIRE_MAX_DISK << 20,
    "a size from 32m to 1024g, such as \"1g\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_output_bounds = {
    SANDBOX_WIRE_MIN_CAPTURE, SANDBOX_WIRE_MAX_CAPTURE,
    "a size from 1k to 4m, such as \"256k\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_output_total_bounds = {
    SANDBOX_WIRE_MIN_CAPTURE, SANDBOX_WIRE_MAX_WRITTEN,
    "a size from 1k to 1024g, such as \"1g\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_file_size_bounds = {
    1024, SANDBOX_WIRE_MAX_FILE,
    "a size from 1k to 4g, such as \"16m\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_command_size_bounds = {
    1024, SANDBOX_WIRE_MAX_COMMAND,
    "a size from 1k to 512k, such as \"256k\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_cpu_time_bounds = {
    1000, SANDBOX_WIRE_MAX_TIME,
    "a time from 1s to 1d, such as \"30s\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_wall_time_bounds = {
    1000, SANDBOX_WIRE_MAX_TIME,
    "a time from 1s to 1d, such as \"120s\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_background_bounds = {
    1000, SANDBOX_WIRE_MAX_TIME,
    "a time from 1s to 1d, such as \"10m\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_timeout_bounds = {
    1, 600 * 1000,
    "a time from 1ms to 10m, such as \"5s\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_leeway_bounds = {
    0, SANDBOX_JOSE_MAX_LEEWAY * 1000,
    "a time from 0 to 60s, in whole seconds, such as \"10s\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_processes_bounds = {
    SANDBOX_WIRE_MIN_PROCESSES, SANDBOX_WIRE_MAX_PROCESSES,
    "a number from 8 to 65536, such as \"256\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_open_files_bounds = {
    SANDBOX_WIRE_MIN_OPEN_FILES, SANDBOX_WIRE_MAX_OPEN_FILES,
    "a number from 16 to 1048576, such as \"1024\""
};

static ngx_http_sandbox_bounds_t  ngx_http_sandbox_pending_bounds = {
    1, SANDBOX_WIRE_MAX_PENDING, "a number from 1 to 1000, such as \"10\""
};


#define NGX_HTTP_SANDBOX_ANYWHERE                                            \
    (NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF)


static ngx_command_t  ngx_http_sandbox_commands[] = {

    { ngx_string("sandbox"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_mode,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_sandbox_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_backend"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_backend,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_dagger"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_sandbox_conf_dagger,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_dagger_image"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_sandbox_conf_dagger_image,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_runner"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_runner,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_runner_key"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_runner_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_base"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_base,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_realm"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, named_realm),
      NULL },

    { ngx_string("sandbox_store"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1234,
      ngx_http_sandbox_conf_store,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_skills"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_skills,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_jwt_secret_file"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE123,
      ngx_http_sandbox_conf_jwt_secret,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_jwt_key_file"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_sandbox_conf_jwt_public,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_jwks_file"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_jwks_file,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_jwks_url"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_sandbox_conf_jwks_url,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_jwt_algorithms"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_sandbox_conf_algorithms,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_jwt_issuer"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, issuer),
      NULL },

    { ngx_string("sandbox_jwt_audience"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_sandbox_conf_audience,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_jwt_leeway"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_leeway,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, leeway),
      &ngx_http_sandbox_leeway_bounds },

    { ngx_string("sandbox_permission"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, permission),
      NULL },

    { ngx_string("sandbox_permission_read"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, permission_read),
      NULL },

    { ngx_string("sandbox_permission_claim"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_sandbox_conf_permission_claim,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_tenant_claim"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_claim,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, tenant_claim),
      NULL },

    { ngx_string("sandbox_conversation_claim"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_claim,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, conversation_claim),
      NULL },

    { ngx_string("sandbox_cpu_time"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.cpu_time),
      &ngx_http_sandbox_cpu_time_bounds },

    { ngx_string("sandbox_wall_time"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.wall_time),
      &ngx_http_sandbox_wall_time_bounds },

    { ngx_string("sandbox_background_time"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.background_time),
      &ngx_http_sandbox_background_bounds },

    { ngx_string("sandbox_memory"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.memory),
      &ngx_http_sandbox_memory_bounds },

    { ngx_string("sandbox_disk"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.disk),
      &ngx_http_sandbox_disk_bounds },

    { ngx_string("sandbox_output"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.output),
      &ngx_http_sandbox_output_bounds },

    { ngx_string("sandbox_output_total"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.output_total),
      &ngx_http_sandbox_output_total_bounds },

    { ngx_string("sandbox_file_size"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.file_size),
      &ngx_http_sandbox_file_size_bounds },

    { ngx_string("sandbox_command_size"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.command_size),
      &ngx_http_sandbox_command_size_bounds },

    { ngx_string("sandbox_processes"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_number,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.processes),
      &ngx_http_sandbox_processes_bounds },

    { ngx_string("sandbox_open_files"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_number,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.open_files),
      &ngx_http_sandbox_open_files_bounds },

    { ngx_string("sandbox_pending"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_number,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, caps.pending),
      &ngx_http_sandbox_pending_bounds },

    { ngx_string("sandbox_mcp_origins"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_sandbox_conf_mcp_origins,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_mcp_conversation"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_mcp_conversation,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_metrics"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_sandbox_conf_metrics,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_egress_policy"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_egress_policy,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_egress"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_egress,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_connect_timeout"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, connect_timeout),
      &ngx_http_sandbox_timeout_bounds },

    { ngx_string("sandbox_send_timeout"),
      NGX_HTTP_SANDBOX_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_sandbox_conf_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, send_timeout),
      &ngx_http_sandbox_timeout_bounds },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_sandbox_module_ctx = {
    ngx_http_sandbox_preconfiguration,     /* preconfiguration */
    ngx_http_sandbox_postconfiguration,    /* postconfiguration */

    ngx_http_sandbox_create_main_conf,     /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_sandbox_create_loc_conf,      /* create location configuration */
    ngx_http_sandbox_merge_loc_conf        /* merge location configuration */
};


ngx_module_t  ngx_http_sandbox_module = {
    NGX_MODULE_V1,
    &ngx_http_sandbox_module_ctx,          /* module context */
    ngx_http_sandbox_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_sandbox_init_module,          /* init module */
    ngx_http_sandbox_init_process,         /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_sandbox_exit_process,         /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


ngx_http_sandbox_ctx_t *
ngx_http_sandbox_get_ctx(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx == NULL) {
        ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_ctx_t));
        if (ctx == NULL) {
            return NULL;
        }

        ctx->request = r;
        ngx_http_set_ctx(r, ctx, ngx_http_sandbox_module);
    }

    return ctx;
}


static void *
ngx_http_sandbox_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_main_conf_t));
    if (smcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     smcf->zone.shm_zone = NULL;
     *     smcf->used = 0;
     *     smcf->env_used = 0;
     *     smcf->environment_read = 0;
     */

    smcf->environment = -1;

    if (ngx_array_init(&smcf->runners, cf->pool, 2,
                       sizeof(ngx_http_sandbox_runner_t *))
        != NGX_OK
        || ngx_array_init(&smcf->engines, cf->pool, 1,
                          sizeof(struct ngx_http_sandbox_engine_s *))
           != NGX_OK
        || ngx_array_init(&smcf->bases, cf->pool, 1, sizeof(ngx_str_t))
           != NGX_OK
        || ngx_array_init(&smcf->key_sets, cf->pool, 1,
                          sizeof(ngx_http_sandbox_key_set_t *))
           != NGX_OK
        || ngx_array_init(&smcf->stores, cf->pool, 1,
                          sizeof(ngx_http_sandbox_store_t *))
           != NGX_OK
        || ngx_array_init(&smcf->libraries, cf->pool, 1, sizeof(ngx_str_t))
           != NGX_OK)
    {
        return NULL;
    }

    return smcf;
}


static void *
ngx_http_sandbox_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_sandbox_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->file = { 0, NULL };
     *     conf->line = 0;
     *     conf->disabled = 0;
     *     conf->serves = 0;
     *     conf->prefix = { 0, NULL };
     *     conf->named_backend, backend = NULL;
     *     conf->engines, dagger = NULL;
     *     conf->engines_image = { 0, NULL };
     *     conf->base = { 0, NULL };
     *     conf->base_number = 0;
     *     conf->socket = { 0, NULL };
     *     conf->key = NULL;
     *     conf->runner = NULL;
     *     conf->keys, key_sets, keys_digest = NULL;
     *     conf->algorithms = 0;
     *     conf->audiences, permission_claims, permission_paths = NULL;
     *     conf->tenant_claim, conversation_claim = { { 0, NULL }, NULL };
     *     conf->issuer, permission, permission_read = { 0, NULL };
     *     conf->named_realm, realm = { 0, NULL };
     */

    conf->mode = NGX_CONF_UNSET_UINT;
    conf->store = NGX_CONF_UNSET_PTR;
    conf->mcp_origins = NGX_CONF_UNSET_PTR;
    conf->mcp_argument = NGX_CONF_UNSET;
    conf->leeway = NGX_CONF_UNSET_MSEC;
    conf->engines_move = NGX_CONF_UNSET_MSEC;
    conf->connect_timeout = NGX_CONF_UNSET_MSEC;
    conf->send_timeout = NGX_CONF_UNSET_MSEC;

    conf->caps.memory = NGX_CONF_UNSET;
    conf->caps.output = NGX_CONF_UNSET;
    conf->caps.output_total = NGX_CONF_UNSET;
    conf->caps.file_size = NGX_CONF_UNSET;
    conf->caps.command_size = NGX_CONF_UNSET;
    conf->caps.disk = NGX_CONF_UNSET;
    conf->caps.cpu_time = NGX_CONF_UNSET_MSEC;
    conf->caps.wall_time = NGX_CONF_UNSET_MSEC;
    conf->caps.background_time = NGX_CONF_UNSET_MSEC;
    conf->caps.processes = NGX_CONF_UNSET;
    conf->caps.open_files = NGX_CONF_UNSET;
    conf->caps.pending = NGX_CONF_UNSET;

    return conf;
}


static char *
ngx_http_sandbox_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_sandbox_loc_conf_t *prev = parent;
    ngx_http_sandbox_loc_conf_t *conf = child;

    ngx_int_t                  rc;
    ngx_uint_t                 here;
    ngx_conf_file_t           *read, place;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    conf->main = ngx_http_conf_get_module_main_conf(cf,
                                                    ngx_http_sandbox_module);

    here = (conf->mode != NGX_CONF_UNSET_UINT);

    ngx_http_sandbox_conf_merge_caps(&conf->caps, &prev->caps);

    ngx_conf_merge_msec_value(conf->connect_timeout, prev->connect_timeout,
                              5000);
    ngx_conf_merge_msec_value(conf->send_timeout, prev->send_timeout, 300000);
    ngx_conf_merge_ptr_value(conf->mcp_origins, prev->mcp_origins, NULL);
    ngx_conf_merge_value(conf->mcp_argument, prev->mcp_argument, 0);
    ngx_http_sandbox_policy_merge(conf, prev);

    if (conf->skills.data == NULL) {
        conf->skills = prev->skills;
    }

    if (conf->base.data == NULL) {
        conf->base = prev->base;
        conf->base_number = prev->base_number;
    }

    if (conf->base.data == NULL) {
        ngx_str_set(&conf->base, "default");
    }

    if (conf->store == NGX_CONF_UNSET_PTR) {
        conf->quota = prev->quota;
        ngx_conf_merge_ptr_value(conf->store, prev->store, NULL);
    }

    if (conf->egress == NULL) {
        conf->egress = prev->egress;
    }

    if (conf->named_backend == NULL) {
        conf->named_backend = prev->named_backend;
    }

    if (conf->socket.data == NULL) {
        conf->socket = prev->socket;
        conf->origin = prev->origin;
    }

    if (conf->key == NULL) {
        conf->key = prev->key;
    }

    ngx_http_sandbox_dagger_merge(conf, prev);

    conf->backend = ngx_http_sandbox_backend(conf);

    if (ngx_http_sandbox_merge_mode(cf, prev, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /* a server by itself serves nothing, its locations do */

    if (conf->mode == NGX_HTTP_SANDBOX_OFF || clcf->name.len == 0) {
        return NGX_CONF_OK;
    }

    /* by now the end of "http" is read; faults are where "sandbox" stands */

    read = cf->conf_file;
    place = *read;
    place.file.name = conf->file;
    place.line = conf->line;
    cf->conf_file = &place;

    rc = ngx_http_sandbox_merge_serves(cf, prev, conf, clcf, here);

    cf->conf_file = read;

    return rc == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_sandbox_merge_serves(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *prev, ngx_http_sandbox_loc_conf_t *conf,
    ngx_http_core_loc_conf_t *clcf, ngx_uint_t here)
{
    if (clcf->handler && clcf->handler != ngx_http_sandbox_handler) {

        if (here) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"sandbox\" can't be switched on in location "
                               "\"%V\": another directive there (such as "
                               "\"proxy_pass\") answers its requests",
                               &clcf->name);
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    if (ngx_http_sandbox_prefix(cf, clcf, prev, conf, here) != NGX_OK
        || ngx_http_sandbox_require(cf, conf, &clcf->name) != NGX_OK
        || ngx_http_sandbox_policy_realm(cf, conf, &clcf->name) != NGX_OK
        || ngx_http_sandbox_mcp_names(cf, conf) != NGX_OK
        || ngx_http_sandbox_egress_serves(conf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    conf->serves = 1;
    conf->main->used = 1;

#if (NGX_THREADS)

    conf->main->thread_pool = ngx_thread_pool_add(cf, NULL);
    if (conf->main->thread_pool == NULL) {
        return NGX_ERROR;
    }

    /* files of the store are read there, too, whatever "aio" says */

    if (conf->store && clcf->aio == NGX_HTTP_AIO_OFF) {
        clcf->aio = NGX_HTTP_AIO_THREADS;
        clcf->thread_pool = conf->main->thread_pool;
    }

#endif

    clcf->handler = ngx_http_sandbox_handler;

    /* "/sandbox" leads to "/sandbox/", as with other handlers of nginx */

    if (clcf->name.data[clcf->name.len - 1] == '/') {
        clcf->auto_redirect = 1;
    }

    /*
     * Each operation bounds its own body, after the token: nginx would refuse
     * it earlier, and by another limit.  Errors keep their one shape.
     */

    clcf->client_max_body_size = 0;
    clcf->error_pages = NULL;

    /* what is read of a client at once may go on as one chunk of the wire */

    if (clcf->client_body_buffer_size > SANDBOX_WIRE_MAX_CHUNK) {
        clcf->client_body_buffer_size = SANDBOX_WIRE_MAX_CHUNK;
    }

    return NGX_OK;
}


/* "off" is as if the module were not there; "false" answers for it */

static ngx_int_t
ngx_http_sandbox_merge_mode(ngx_conf_t *cf, ngx_http_sandbox_loc_conf_t *prev,
    ngx_http_sandbox_loc_conf_t *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    if (conf->line == 0) {
        conf->file = prev->file;
        conf->line = prev->line;
    }

    ngx_conf_merge_uint_value(conf->mode, prev->mode, NGX_HTTP_SANDBOX_OFF);

    if (conf->mode == NGX_HTTP_SANDBOX_OFF) {
        return NGX_OK;
    }

    smcf = conf->main;

    if (ngx_http_sandbox_conf_environment(cf, smcf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conf->mode == NGX_HTTP_SANDBOX_ENV) {
        smcf->env_used = 1;
        conf->disabled = (smcf->environment != 1);

    } else {
        conf->disabled = (smcf->environment == 0);
    }

    return NGX_OK;
}


/*
 * Paths are relative to the location in which "sandbox" stands, or, where it
 * is inherited from a server, to the outermost location.
 */

static ngx_int_t
ngx_http_sandbox_prefix(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf,
    ngx_http_sandbox_loc_conf_t *prev, ngx_http_sandbox_loc_conf_t *conf,
    ngx_uint_t here)
{
    ngx_uint_t  plain;

    if (!here && prev->prefix.len) {
        conf->prefix = prev->prefix;
        return NGX_OK;
    }

    plain = !clcf->noname && !clcf->named && !clcf->exact_match;

#if (NGX_PCRE)
    if (clcf->regex) {
        plain = 0;
    }
#endif

    if (!plain) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox\" is on in location \"%V\", but its "
                           "paths need a prefix, such as "
                           "\"location /sandbox/ { sandbox on; }\"",
                           &clcf->name);
        return NGX_ERROR;
    }

    conf->prefix = clcf->name;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_require(ngx_conf_t *cf, ngx_http_sandbox_loc_conf_t *conf,
    ngx_str_t *location)
{
    ngx_uint_t                    i;
    ngx_http_sandbox_key_set_t  **set;

    if (conf->disabled) {
        return NGX_OK;
    }

    if (conf->main->zone.shm_zone == NULL
        && ngx_http_sandbox_zone_default(cf, conf->main) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conf->backend->init(cf, conf, location) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conf->caps.output_total < conf->caps.output) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox_output_total\" of location \"%V\" is "
                           "%O bytes, less than \"sandbox_output\" with %O, "
                           "which is captured of one stream", location,
                           conf->caps.output_total, conf->caps.output);
        return NGX_ERROR;
    }

    if (conf->key_sets) {
        set = conf->key_sets->elts;

        for (i = 0; i < conf->key_sets->nelts; i++) {
            set[i]->used = 1;
        }
    }

    return ngx_http_sandbox_policy_init(cf, conf, location);
}


static ngx_int_t
ngx_http_sandbox_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_sandbox_add_variables(cf);
}


static ngx_int_t
ngx_http_sandbox_postconfiguration(ngx_conf_t *cf)
{
    ngx_str_t                      name = ngx_string("request_id");
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    if (ngx_http_sandbox_egress_init(cf, smcf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (smcf->metrics && smcf->zone.shm_zone == NULL
        && ngx_http_sandbox_zone_default(cf, smcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!smcf->used) {
        return NGX_OK;
    }

    smcf->request_id = ngx_http_get_variable_index(cf, &name);
    if (smcf->request_id == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_phases_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_filter_init(cf);
}


static ngx_int_t
ngx_http_sandbox_init_module(ngx_cycle_t *cycle)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ngx_get_conf(cycle->conf_ctx, ngx_http_module) == NULL) {
        return NGX_OK;
    }

    smcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_sandbox_module);

    if (smcf) {
        ngx_http_sandbox_store_init_module(cycle, smcf);
        ngx_http_sandbox_skills_init_module(cycle, smcf);
        ngx_http_sandbox_conf_variables(cycle, smcf);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_init_process(ngx_cycle_t *cycle)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ngx_get_conf(cycle->conf_ctx, ngx_http_module) == NULL) {
        return NGX_OK;
    }

    /* now, not in the middle of a request: it reads /dev/urandom */
    json_object_seed(0);

    smcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_sandbox_module);

    if (smcf) {
        ngx_http_sandbox_runs_init_process(&smcf->zone);
    }

#ifdef M_MMAP_THRESHOLD

    /*
     * glibc would learn from large bodies to keep their memory in its heap,
     * from which it does not come back.  This is where it begins, kept.
     */

    if (smcf && smcf->used) {
        (void) mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    }

#endif

    if (ngx_http_sandbox_key_set_init_process(cycle) != NGX_OK
        || ngx_http_sandbox_store_init_process(cycle) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_health_init_process(cycle);
}


static void
ngx_http_sandbox_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_sandbox_key_set_exit_process();
    ngx_http_sandbox_health_exit_process(cycle);
}
