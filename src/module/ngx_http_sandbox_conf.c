/*
 * Setters of the directives: values, files and keys are read and judged here,
 * while the configuration is read, and every refusal names the directive, the
 * value and what would be right.  Knows nothing of requests.
 */

#include "ngx_http_sandbox_conf.h"
#include "ngx_http_sandbox_dagger.h"


#define NGX_HTTP_SANDBOX_ENVIRONMENT  "ARCHESTRA_CODE_RUNTIME_ENABLED"


static char *ngx_http_sandbox_conf_expected(ngx_conf_t *cf,
    ngx_command_t *cmd);
static void ngx_http_sandbox_conf_keeps(ngx_cycle_t *cycle,
    const char *variable);
static ngx_int_t ngx_http_sandbox_conf_hex(u_char *dst, u_char *src,
    size_t size);


char *
ngx_http_sandbox_conf_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t  *value;

    if (slcf->mode != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "on") == 0) {
        slcf->mode = NGX_HTTP_SANDBOX_ON;

    } else if (ngx_strcmp(value[1].data, "off") == 0) {
        slcf->mode = NGX_HTTP_SANDBOX_OFF;

    } else if (ngx_strcmp(value[1].data, "env") == 0) {
        slcf->mode = NGX_HTTP_SANDBOX_ENV;

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"sandbox\" directive, it "
                           "must be \"on\", \"off\" or \"env\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    /* what is missing or does not fit is known only when all is read */

    slcf->file = cf->conf_file->file.name;
    slcf->line = cf->conf_file->line;

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_conf_backend(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t  *value;

    if (slcf->named_backend) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "local") == 0) {
        slcf->named_backend = &ngx_http_sandbox_local;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[1].data, "dagger") == 0) {
        slcf->named_backend = &ngx_http_sandbox_dagger;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown backend \"%V\" in \"sandbox_backend\" "
                       "directive, it must be \"local\" or \"dagger\"",
                       &value[1]);

    return NGX_CONF_ERROR;
}


/* what is on the wire follows from the name alone, see docs/wire.md */

char *
ngx_http_sandbox_conf_base(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t                     *value, *name;
    ngx_uint_t                     i;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (slcf->base.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (!sandbox_command_id_valid(value[1].data, value[1].len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" in \"sandbox_base\" "
                           "directive, it must be \"default\" or the NAME of "
                           "a --base NAME=DIR of sandbox-runner, 1 to %d of "
                           "A-Z a-z 0-9 . _ -", &value[1],
                           SANDBOX_WIRE_MAX_COMMAND_ID);
        return NGX_CONF_ERROR;
    }

    slcf->base = value[1];
    slcf->base_number = sandbox_base_number((char *) value[1].data,
                                            value[1].len);

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);
    name = smcf->bases.elts;

    for (i = 0; i < smcf->bases.nelts; i++) {

        if (sandbox_base_number((char *) name[i].data, name[i].len)
            == slcf->base_number
            && (name[i].len != value[1].len
                || ngx_strncmp(name[i].data, value[1].data, name[i].len)
                   != 0))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" in \"sandbox_base\" directive can't "
                               "be told from \"%V\", both names have the "
                               "number %ui; rename one of them, here and in "
                               "--base of sandbox-runner", &value[1],
                               &name[i], slcf->base_number);
            return NGX_CONF_ERROR;
        }
    }

    name = ngx_array_push(&smcf->bases);
    if (name == NULL) {
        return NGX_CONF_ERROR;
    }

    *name = value[1];

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_conf_runner(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_url_t         u;
    ngx_str_t        *value, path;
    ngx_file_info_t   fi;

    if (slcf->socket.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len < sizeof("unix:/x") - 1
        || ngx_strncmp(value[1].data, "unix:/", 6) != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid address \"%V\" in \"sandbox_runner\" "
                           "directive, it must be the runner's socket, such "
                           "as \"unix:/run/sandbox/runner.sock\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    path.data = value[1].data + 5;
    path.len = value[1].len - 5;

    if (path.len >= sizeof(((struct sockaddr_un *) 0)->sun_path)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the path in \"sandbox_runner\" directive has %uz "
                           "bytes, a socket's path has at most %uz", path.len,
                           sizeof(((struct sockaddr_un *) 0)->sun_path) - 1);
        return NGX_CONF_ERROR;
    }

    /* it need not exist yet, but what is there must be a socket */

    if (ngx_file_info(path.data, &fi) != NGX_FILE_ERROR
        && !S_ISSOCK(fi.st_mode))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"sandbox_runner\" directive is %s, not "
                           "a socket; it must be the path that sandbox-runner "
                           "listens on", &path,
                           ngx_is_dir(&fi) ? "a directory" : "a file");
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = value[1];
    u.no_resolve = 1;

    slcf->origin = ngx_http_upstream_add(cf, &u, 0);
    if (slcf->origin == NULL) {
        return NGX_CONF_ERROR;
    }

    slcf->socket = value[1];

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_conf_runner_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t  *value;

    if (slcf->key) {
        return "is duplicate";
    }

    value = cf->args->elts;

    return ngx_http_sandbox_conf_read_key(cf, &value[1], &slcf->key) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_int_t
ngx_http_sandbox_conf_read_key(ngx_conf_t *cf, const ngx_str_t *file,
    u_char **key)
{
    ngx_str_t  content;

    static ngx_command_t  cmd = {
        ngx_string("sandbox_runner_key"), 0, NULL, 0, 0, NULL
    };

    if (ngx_http_sandbox_conf_read_file(cf, &cmd, file, 1024, 1, &content)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    while (content.len
           && (content.data[content.len - 1] == LF
               || content.data[content.len - 1] == CR
               || content.data[content.len - 1] == ' '))
    {
        content.len--;
    }

    *key = ngx_palloc(cf->pool, SANDBOX_WIRE_KEY_SIZE);
    if (*key == NULL) {
        return NGX_ERROR;
    }

    if (content.len != 2 * SANDBOX_WIRE_KEY_SIZE
        || ngx_http_sandbox_conf_hex(*key, content.data,
                                     SANDBOX_WIRE_KEY_SIZE)
           != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"sandbox_runner_key\" directive holds "
                           "no key: it must be 64 hexadecimal digits, the "
                           "file that sandbox-runner reads, too; "
                           "\"openssl rand -hex 32\" makes one", file);
        return NGX_ERROR;
    }

    ngx_explicit_memzero(content.data, content.len);

    return NGX_OK;
}


char *
ngx_http_sandbox_conf_time(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_int_t                   ms;
    ngx_str_t                  *value;
    ngx_msec_t                 *field;
    ngx_http_sandbox_bounds_t  *bounds;

    field = (ngx_msec_t *) (p + cmd->offset);

    if (*field != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;
    bounds = cmd->post;

    ms = ngx_parse_time(&value[1], 0);

    if (ms == NGX_ERROR || ms < bounds->min || ms > bounds->max) {
        return ngx_http_sandbox_conf_expected(cf, cmd);
    }

    *field = (ngx_msec_t) ms;

    return NGX_CONF_OK;
}


/* a time, of which tokens know only whole seconds */

char *
ngx_http_sandbox_conf_leeway(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    char  *rv;

    rv = ngx_http_sandbox_conf_time(cf, cmd, conf);

    if (rv == NGX_CONF_OK && slcf->leeway % 1000) {
        return ngx_http_sandbox_conf_expected(cf, cmd);
    }

    return rv;
}


char *
ngx_http_sandbox_conf_size(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    off_t                       size, *field;
    ngx_str_t                  *value;
    ngx_http_sandbox_bounds_t  *bounds;

    field = (off_t *) (p + cmd->offset);

    if (*field != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    bounds = cmd->post;

    size = ngx_parse_offset(&value[1]);

    if (size == NGX_ERROR || size < bounds->min || size > bounds->max) {
        return ngx_http_sandbox_conf_expected(cf, cmd);
    }

    *field = size;

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_conf_number(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_int_t                   number, *field;
    ngx_str_t                  *value;
    ngx_http_sandbox_bounds_t  *bounds;

    field = (ngx_int_t *) (p + cmd->offset);

    if (*field != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    bounds = cmd->post;

    number = ngx_atoi(value[1].data, value[1].len);

    if (number == NGX_ERROR || number < bounds->min || number > bounds->max) {
        return ngx_http_sandbox_conf_expected(cf, cmd);
    }

    *field = number;

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_conf_expected(ngx_conf_t *cf, ngx_command_t *cmd)
{
    ngx_str_t                  *value;
    ngx_http_sandbox_bounds_t  *bounds;

    value = cf->args->elts;
    bounds = cmd->post;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, it must be "
                       "%s", &value[1], &cmd->name, bounds->expected);

    return NGX_CONF_ERROR;
}


void
ngx_http_sandbox_conf_merge_caps(ngx_http_sandbox_caps_t *conf,
    ngx_http_sandbox_caps_t *prev)
{
    ngx_conf_merge_off_value(conf->memory, prev->memory,
                             (off_t) 1024 * 1024 * 1024);
    ngx_conf_merge_off_value(conf->disk, prev->disk,
                             (off_t) 1024 * 1024 * 1024);
    ngx_conf_merge_off_value(conf->output, prev->output, 256 * 1024);
    ngx_conf_merge_off_value(conf->output_total, prev->output_total,
                             (off_t) 1024 * 1024 * 1024);
    ngx_conf_merge_off_value(conf->file_size, prev->file_size,
                             16 * 1024 * 1024);
    ngx_conf_merge_off_value(conf->command_size, prev->command_size,
                             256 * 1024);
    ngx_conf_merge_msec_value(conf->cpu_time, prev->cpu_time, 30000);
    ngx_conf_merge_msec_value(conf->wall_time, prev->wall_time, 120000);
    ngx_conf_merge_msec_value(conf->background_time, prev->background_time,
                              600000);
    ngx_conf_merge_value(conf->processes, prev->processes, 256);
    ngx_conf_merge_value(conf->open_files, prev->open_files, 1024);
    ngx_conf_merge_value(conf->pending, prev->pending, 10);
}


ngx_int_t
ngx_http_sandbox_conf_once(ngx_conf_t *cf)
{
    u_char      *p;
    size_t       len;
    ngx_str_t   *value;
    ngx_uint_t   i, n;

    value = cf->args->elts;

    for (i = 3; i < cf->args->nelts; i++) {

        p = (u_char *) ngx_strchr(value[i].data, '=');
        len = p ? (size_t) (p + 1 - value[i].data) : value[i].len + 1;

        for (n = 2; n < i; n++) {

            /* both have a NUL at their end, which is compared, too */

            if (ngx_strncmp(value[n].data, value[i].data, len) == 0) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "\"%V\" in \"%V\" directive: the same "
                                   "parameter stands there as \"%V\"",
                                   &value[i], &value[0], &value[n]);
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


ngx_str_t *
ngx_http_sandbox_conf_parameter(ngx_conf_t *cf, const char *name)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_strncmp(value[i].data, name, ngx_strlen(name)) == 0) {
            return &value[i];
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_sandbox_conf_environment(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    char  *value;

    if (smcf->environment_read) {
        return NGX_OK;
    }

    value = getenv(NGX_HTTP_SANDBOX_ENVIRONMENT);

    if (value == NULL) {
        smcf->environment = -1;

    } else if (ngx_strcmp(value, "true") == 0 || ngx_strcmp(value, "1") == 0) {
        smcf->environment = 1;

    } else if (ngx_strcmp(value, "false") == 0
               || ngx_strcmp(value, "0") == 0)
    {
        smcf->environment = 0;

    } else {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "invalid value \"%s\" of the environment variable "
                      NGX_HTTP_SANDBOX_ENVIRONMENT ", it must be \"true\", "
                      "\"1\", \"false\" or \"0\"", value);
        return NGX_ERROR;
    }

    smcf->environment_read = 1;

    ngx_log_error(NGX_LOG_NOTICE, cf->log, 0,
                  NGX_HTTP_SANDBOX_ENVIRONMENT " is %s%s%s: sandboxes are %s",
                  value ? "\"" : "", value ? value : "not set",
                  value ? "\"" : "",
                  smcf->environment == 1 ? "on where \"sandbox\" is \"env\" "
                                           "or \"on\""
                  : smcf->environment == 0 ? "off, also where \"sandbox\" is "
                                             "\"on\""
                  : "on where \"sandbox\" is \"on\", off where it is "
                    "\"env\"");

    return NGX_OK;
}


/*
 * "env" may stand below "http", so this waits for the whole file.  Without it
 * a binary upgrade starts nginx without the variable.
 */

void
ngx_http_sandbox_conf_variables(ngx_cycle_t *cycle,
    const ngx_http_sandbox_main_conf_t *smcf)
{
    if (smcf->environment_read && (smcf->env_used || smcf->environment != -1)) {
        ngx_http_sandbox_conf_keeps(cycle, NGX_HTTP_SANDBOX_ENVIRONMENT);
    }

    if (smcf->engine) {
        ngx_http_sandbox_conf_keeps(cycle,
                                    NGX_HTTP_SANDBOX_ENGINE_ENVIRONMENT);
    }
}


static void
ngx_http_sandbox_conf_keeps(ngx_cycle_t *cycle, const char *variable)
{
    ngx_str_t        *name;
    ngx_uint_t        i;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);
    name = ccf->env.elts;

    for (i = 0; i < ccf->env.nelts; i++) {
        if (name[i].len == ngx_strlen(variable)
            && ngx_strncmp(name[i].data, variable, name[i].len) == 0)
        {
            return;
        }
    }

    ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                  "%s would be lost at a binary upgrade: add \"env %s;\" at "
                  "the top of the configuration", variable, variable);
}


/* the pool's memory ends only with the cycle */

ngx_int_t
ngx_http_sandbox_conf_read_file(ngx_conf_t *cf, ngx_command_t *cmd,
    const ngx_str_t *name, size_t max, ngx_uint_t secret, ngx_str_t *content)
{
    ssize_t           n;
    ngx_fd_t          fd;
    ngx_int_t         rc;
    ngx_str_t         path;
    ngx_file_info_t   fi;

    path = *name;

    if (path.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "empty file name in \"%V\" directive", &cmd->name);
        return NGX_ERROR;
    }

    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    fd = ngx_open_file(path.data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);
    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "can't open \"%V\" in \"%V\" directive; the file "
                           "must exist and nginx's master must be able to "
                           "read it", &path, &cmd->name);
        return NGX_ERROR;
    }

    rc = NGX_ERROR;

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR || !ngx_is_file(&fi)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"%V\" directive is not a regular file",
                           &path, &cmd->name);
        goto done;
    }

    if (ngx_file_size(&fi) == 0 || ngx_file_size(&fi) > (off_t) max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"%V\" directive has %O bytes, it must "
                           "have 1 to %uz", &path, &cmd->name,
                           ngx_file_size(&fi), max);
        goto done;
    }

    if (secret && (fi.st_mode & S_IROTH)) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" in \"%V\" directive is a secret, but every "
                           "user of this host can read it: \"chmod o= %V\"",
                           &path, &cmd->name, &path);
    }

    content->len = (size_t) ngx_file_size(&fi);
    content->data = ngx_pnalloc(cf->pool, content->len);
    if (content->data == NULL) {
        goto done;
    }

    n = ngx_read_fd(fd, content->data, content->len);

    if (n != (ssize_t) content->len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, n == -1 ? ngx_errno : 0,
                           "can't read \"%V\" in \"%V\" directive", &path,
                           &cmd->name);
        goto done;
    }

    rc = NGX_OK;

done:

    (void) ngx_close_file(fd);

    return rc;
}


static ngx_int_t
ngx_http_sandbox_conf_hex(u_char *dst, u_char *src, size_t size)
{
    ngx_int_t  n;

    while (size--) {
        n = ngx_hextoi(src, 2);
        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        *dst++ = (u_char) n;
        src += 2;
    }

    return NGX_OK;
}
