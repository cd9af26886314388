/*
 * "sandbox_store": where it is and how much may be in it, and its sweeps, in a
 * thread, at the start of each worker and every hour.  Knows no request.
 */

#include "ngx_http_sandbox_conf.h"
#include "ngx_http_sandbox_store.h"


#define NGX_HTTP_SANDBOX_SWEEP_INTERVAL  3600000    /* ms */
#define NGX_HTTP_SANDBOX_SWEEP_BUSY      1000       /* ms */


struct ngx_http_sandbox_store_s {
    ngx_str_t                      name;         /* NUL-terminated */

#if (NGX_THREADS)

    /* of this process */

    ngx_thread_pool_t             *pool;
    ngx_thread_task_t             *task;
    ngx_event_t                    timer;
    ngx_connection_t               fake;         /* for nginx's debug log */
    sandbox_store_fault_t          fault;
    ngx_uint_t                     told;         /* status, in the log */
    unsigned                       again:1;

#endif
};


static ngx_int_t ngx_http_sandbox_store_path(ngx_conf_t *cf,
    ngx_str_t *name);
static ngx_http_sandbox_store_t *ngx_http_sandbox_store_get(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name);
static char *ngx_http_sandbox_store_option(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *value);
static void ngx_http_sandbox_store_check(ngx_cycle_t *cycle,
    ngx_http_sandbox_store_t *store);
static void ngx_http_sandbox_store_check_parents(ngx_cycle_t *cycle,
    ngx_http_sandbox_store_t *store, ngx_core_conf_t *ccf);
static ngx_uint_t ngx_http_sandbox_store_empty(ngx_str_t *name);

#if (NGX_THREADS)
static void ngx_http_sandbox_store_timer(ngx_event_t *ev);
static void ngx_http_sandbox_store_timer_cleanup(void *data);
static void ngx_http_sandbox_store_sweep_thread(void *data, ngx_log_t *log);
static void ngx_http_sandbox_store_swept(ngx_event_t *ev);
static int ngx_http_sandbox_store_stop(void);
#endif


char *
ngx_http_sandbox_conf_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    char                          *rv;
    ngx_str_t                     *value, *size, name;
    ngx_uint_t                     i;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (slcf->store != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {

        if (cf->args->nelts > 2) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" in \"sandbox_store off\" directive is "
                               "for a store that is on", &value[2]);
            return NGX_CONF_ERROR;
        }

        slcf->store = NULL;
        return NGX_CONF_OK;
    }

#if !(NGX_THREADS)

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"sandbox_store\" needs an nginx with threads, this "
                       "one was built without \"--with-threads\"");
    return NGX_CONF_ERROR;

#endif

    if (ngx_http_sandbox_conf_once(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    slcf->quota.files = 1000;
    slcf->quota.size = (uint64_t) 1 << 30;
    slcf->quota.tenant_size = (uint64_t) 10 << 30;

    for (i = 2; i < cf->args->nelts; i++) {
        rv = ngx_http_sandbox_store_option(cf, slcf, &value[i]);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    if (slcf->quota.tenant_size < slcf->quota.size) {
        size = ngx_http_sandbox_conf_parameter(cf, "tenant_size=");

        if (size == NULL) {
            size = ngx_http_sandbox_conf_parameter(cf, "size=");
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "with \"%V\" in \"sandbox_store\" directive "
                           "\"tenant_size\" (%uL bytes) is less than \"size\" "
                           "(%uL bytes), which one conversation may have",
                           size, slcf->quota.tenant_size, slcf->quota.size);
        return NGX_CONF_ERROR;
    }

    name = value[1];

    if (ngx_http_sandbox_store_path(cf, &name) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    slcf->store = ngx_http_sandbox_store_get(cf, smcf, &name);

    return slcf->store ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_sandbox_store_option(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *value)
{
    off_t      size;
    ngx_int_t  n;
    ngx_str_t  s;

    if (ngx_strncmp(value->data, "files=", 6) == 0) {

        n = ngx_atoi(value->data + 6, value->len - 6);

        if (n >= 1 && n <= SANDBOX_STORE_MAX_FILES) {
            slcf->quota.files = n;
            return NGX_CONF_OK;
        }

    } else if (ngx_strncmp(value->data, "size=", 5) == 0
               || ngx_strncmp(value->data, "tenant_size=", 12) == 0)
    {
        s.data = (u_char *) ngx_strchr(value->data, '=') + 1;
        s.len = value->data + value->len - s.data;

        size = ngx_parse_offset(&s);

        if (size >= 1024 && size <= (off_t) 1024 << 40) {

            if (value->data[0] == 's') {
                slcf->quota.size = size;

            } else {
                slcf->quota.tenant_size = size;
            }

            return NGX_CONF_OK;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in \"sandbox_store\" "
                       "directive, there are files=NUMBER (1 to 10000), "
                       "size=SIZE and tenant_size=SIZE (1k to 1024000g)",
                       value);

    return NGX_CONF_ERROR;
}


/* it is there, or made here, and gets its owner when all is read */

static ngx_int_t
ngx_http_sandbox_store_path(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_file_info_t  fi;

    if (name->len < 2 || name->data[0] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid path \"%V\" in \"sandbox_store\" "
                           "directive, it must be an absolute one, such as "
                           "\"/var/lib/nginx/sandbox\", or \"off\"", name);
        return NGX_ERROR;
    }

    if (name->len > SANDBOX_STORE_MAX_ROOT) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the path in \"sandbox_store\" directive has %uz "
                           "bytes, it may have %d", name->len,
                           SANDBOX_STORE_MAX_ROOT);
        return NGX_ERROR;
    }

    while (name->len > 1 && name->data[name->len - 1] == '/') {
        name->data[--name->len] = '\0';
    }

    if (ngx_file_info(name->data, &fi) != NGX_FILE_ERROR) {

        if (ngx_is_dir(&fi)) {
            return NGX_OK;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"sandbox_store\" directive is not a "
                           "folder", name);
        return NGX_ERROR;
    }

    /* another nginx, or "nginx -t", may make it at the same time */

    if (ngx_create_dir(name->data, 0700) == NGX_FILE_ERROR
        && ngx_errno != NGX_EEXIST)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "can't make \"%V\" of \"sandbox_store\"; make it: "
                           "\"install -d -m 0700 -o www-data %V\", with the "
                           "user of nginx's workers", name, name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_http_sandbox_store_t *
ngx_http_sandbox_store_get(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_http_sandbox_store_t  **stores, **place, *store;

    stores = smcf->stores.elts;

    for (i = 0; i < smcf->stores.nelts; i++) {
        if (stores[i]->name.len == name->len
            && ngx_strncmp(stores[i]->name.data, name->data, name->len) == 0)
        {
            return stores[i];
        }
    }

    place = ngx_array_push(&smcf->stores);
    store = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_store_t));

    if (place == NULL || store == NULL) {
        return NULL;
    }

    store->name = *name;
    *place = store;

    return store;
}


ngx_str_t *
ngx_http_sandbox_store_name(ngx_http_sandbox_store_t *store)
{
    return &store->name;
}


/* when "user" is known; what is wrong by now is only told */

void
ngx_http_sandbox_store_init_module(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_uint_t                  i;
    ngx_http_sandbox_store_t  **stores;

    stores = smcf->stores.elts;

    for (i = 0; i < smcf->stores.nelts; i++) {
        ngx_http_sandbox_store_check(cycle, stores[i]);
    }
}


static void
ngx_http_sandbox_store_check(ngx_cycle_t *cycle,
    ngx_http_sandbox_store_t *store)
{
    ngx_str_t        *name;
    ngx_core_conf_t  *ccf;
    ngx_file_info_t   fi;

    name = &store->name;
    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    if (ngx_file_info(name->data, &fi) == NGX_FILE_ERROR) {
        ngx_log_error(NGX_LOG_WARN, cycle->log, ngx_errno,
                      "\"sandbox_store\" \"%V\" is gone", name);
        return;
    }

    if (fi.st_mode & (S_IRWXG|S_IRWXO)) {
        ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                      "\"sandbox_store\" \"%V\" is open to other users of "
                      "this host: \"chmod 0700 %V\"", name, name);
    }

    if (geteuid() != 0 || ccf->user == (ngx_uid_t) NGX_CONF_UNSET_UINT) {

        if (access((char *) name->data, R_OK|W_OK|X_OK) == -1) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, ngx_errno,
                          "nginx can't write into \"sandbox_store\" \"%V\"",
                          name);
        }

        return;
    }

    /* what was just made is still root's */

    if (fi.st_uid == 0 && ccf->user != 0
        && ngx_http_sandbox_store_empty(name)
        && chown((char *) name->data, ccf->user, ccf->group) == 0)
    {
        fi.st_uid = ccf->user;
    }

    if (fi.st_uid != ccf->user) {
        ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                      "\"sandbox_store\" \"%V\" does not belong to the user "
                      "of nginx's workers, who can't keep files there: "
                      "\"chown -R %s %V\"", name, ccf->username, name);
    }

    ngx_http_sandbox_store_check_parents(cycle, store, ccf);
}


static void
ngx_http_sandbox_store_check_parents(ngx_cycle_t *cycle,
    ngx_http_sandbox_store_t *store, ngx_core_conf_t *ccf)
{
    u_char           *p, path[SANDBOX_STORE_MAX_ROOT + 1];
    ngx_file_info_t   fi;

    ngx_memcpy(path, store->name.data, store->name.len + 1);

    for (p = path + 1; *p; p++) {

        if (*p != '/') {
            continue;
        }

        *p = '\0';

        if (ngx_file_info(path, &fi) != NGX_FILE_ERROR
            && !(fi.st_mode & S_IXOTH)
            && !(fi.st_uid == ccf->user && fi.st_mode & S_IXUSR)
            && !(fi.st_mode & S_IXGRP))
        {
            ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                          "nginx's workers can't enter \"%s\", so there is no "
                          "\"sandbox_store\" \"%V\" for them: \"chmod o+x "
                          "%s\", or choose another place", path, &store->name,
                          path);
        }

        *p = '/';
    }
}


static ngx_uint_t
ngx_http_sandbox_store_empty(ngx_str_t *name)
{
    ngx_dir_t   dir;
    ngx_uint_t  n;

    if (ngx_open_dir(name, &dir) == NGX_ERROR) {
        return 0;
    }

    for (n = 0; n < 3 && ngx_read_dir(&dir) == NGX_OK; n++) {
        /* void */
    }

    (void) ngx_close_dir(&dir);

    /* "." and ".." */

    return n == 2;
}


#if (NGX_THREADS)

ngx_int_t
ngx_http_sandbox_store_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i;
    ngx_pool_cleanup_t             *cln;
    ngx_http_sandbox_store_t      **stores, *store;
    ngx_http_sandbox_main_conf_t   *smcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    smcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_sandbox_module);

    if (smcf == NULL || !smcf->used) {
        return NGX_OK;
    }

    stores = smcf->stores.elts;

    for (i = 0; i < smcf->stores.nelts; i++) {
        store = stores[i];

        store->pool = smcf->thread_pool;

        cln = ngx_pool_cleanup_add(cycle->pool, 0);
        store->task = ngx_thread_task_alloc(cycle->pool, 0);

        if (cln == NULL || store->task == NULL) {
            return NGX_ERROR;
        }

        cln->handler = ngx_http_sandbox_store_timer_cleanup;
        cln->data = store;

        store->task->ctx = store;
        store->task->handler = ngx_http_sandbox_store_sweep_thread;
        store->task->event.data = store;
        store->task->event.handler = ngx_http_sandbox_store_swept;

        store->fake.fd = -1;
        store->fake.data = store;

        store->timer.data = &store->fake;
        store->timer.handler = ngx_http_sandbox_store_timer;
        store->timer.log = cycle->log;
        store->timer.cancelable = 1;

        /* from the event loop: threads are there then */

        ngx_add_timer(&store->timer, 1);
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_store_timer(ngx_event_t *ev)
{
    ngx_connection_t *c = ev->data;

    ngx_http_sandbox_store_t *store = c->data;

    ngx_http_sandbox_store_sweep_soon(store);

    /* not all workers at once: one of them does it */

    ngx_add_timer(ev, NGX_HTTP_SANDBOX_SWEEP_INTERVAL
                      + (ngx_msec_t) ngx_random() % 60000);
}


/* without "master_process" the next configuration is in this process */

static void
ngx_http_sandbox_store_timer_cleanup(void *data)
{
    ngx_http_sandbox_store_t *store = data;

    if (store->timer.timer_set) {
        ngx_del_timer(&store->timer);
    }
}


void
ngx_http_sandbox_store_sweep_soon(ngx_http_sandbox_store_t *store)
{
    if (store->task == NULL) {
        return;
    }

    if (store->task->event.active) {
        store->again = 1;
        return;
    }

    store->again = 0;

    if (ngx_thread_task_post(store->pool, store->task) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "\"sandbox_store\" \"%V\" could not be swept now, "
                      "nginx's thread pool takes no more", &store->name);
    }
}


static void
ngx_http_sandbox_store_sweep_thread(void *data, ngx_log_t *log)
{
    ngx_http_sandbox_store_t *store = data;

    (void) sandbox_store_sweep((char *) store->name.data,
                               ngx_http_sandbox_store_stop, &store->fault);
}


static void
ngx_http_sandbox_store_swept(ngx_event_t *ev)
{
    ngx_http_sandbox_store_t *store = ev->data;

    sandbox_store_fault_t  *fault;

    fault = &store->fault;

    /* once for each problem, not once an hour */

    if (fault->status == SANDBOX_STORE_FAILED && store->told != 1) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, fault->error,
                      "\"sandbox_store\" \"%V\" can't be used: %s of \"%s\" "
                      "failed; the user of nginx's workers must own it and "
                      "be able to enter the folders above it", &store->name,
                      fault->call, fault->path);
        store->told = 1;

    } else if (fault->status == SANDBOX_STORE_OK) {
        store->told = 0;
    }

    if (store->again) {
        ngx_http_sandbox_store_sweep_soon(store);

    } else if (fault->status == SANDBOX_STORE_BUSY) {

        /* who sweeps may be beyond what this one is for */

        ngx_add_timer(&store->timer, NGX_HTTP_SANDBOX_SWEEP_BUSY);
    }
}


static int
ngx_http_sandbox_store_stop(void)
{
    return ngx_exiting || ngx_quit || ngx_terminate;
}

#else

void
ngx_http_sandbox_store_sweep_soon(ngx_http_sandbox_store_t *store)
{
    /* there is none */
}


ngx_int_t
ngx_http_sandbox_store_init_process(ngx_cycle_t *cycle)
{
    return NGX_OK;
}

#endif
