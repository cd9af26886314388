/*
 * Which engines a location has: "sandbox_dagger", "sandbox_dagger_image", the
 * environment, and what holds where nothing is said.  Judged while the
 * configuration is read; knows nothing of requests.
 */

#include "ngx_http_sandbox_conf.h"
#include "ngx_http_sandbox_dagger.h"


#define NGX_HTTP_SANDBOX_OWNER_SOCKET  "unix:/run/sandbox/dagger.sock"
#define NGX_HTTP_SANDBOX_OWNER_KEY     "/etc/nginx/sandbox-runner.key"

#define NGX_HTTP_SANDBOX_IMAGE         "127.0.0.1:5000/sandbox"
#define NGX_HTTP_SANDBOX_IMAGE_FILE    "/var/cache/sandbox/registry/digest"
#define NGX_HTTP_SANDBOX_IMAGE_SIZE    256       /* bytes of a name */
#define NGX_HTTP_SANDBOX_DIGEST_SIZE   (sizeof("sha256:") - 1 + 64)

#define NGX_HTTP_SANDBOX_RESOLVER      "10.87.0.1"
#define NGX_HTTP_SANDBOX_MOVE          (30 * 1000)


/* what one line says of all its engines */

typedef struct {
    ngx_str_t                      resolver;     /* data NULL: not said */
    ngx_uint_t                     isolated;
    ngx_msec_t                     move;
} ngx_http_sandbox_dagger_line_t;


static ngx_int_t ngx_http_sandbox_dagger_parameter(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_http_sandbox_dagger_line_t *line,
    ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_dagger_resolver(ngx_conf_t *cf,
    ngx_http_sandbox_dagger_line_t *line, ngx_str_t *value);
static ngx_uint_t ngx_http_sandbox_dagger_names_engine(ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_dagger_add(ngx_conf_t *cf,
    ngx_array_t *array, ngx_http_sandbox_dagger_line_t *line,
    ngx_str_t *name);
static ngx_int_t ngx_http_sandbox_dagger_engine(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_dagger_line_t *line,
    ngx_str_t *name, ngx_http_sandbox_engine_t **found);
static const char *ngx_http_sandbox_dagger_address(ngx_conf_t *cf,
    ngx_str_t *name, ngx_addr_t *addr);
static ngx_uint_t ngx_http_sandbox_dagger_here(const ngx_addr_t *addr);
static ngx_int_t ngx_http_sandbox_dagger_environment(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_http_sandbox_dagger_t *dagger,
    ngx_str_t *location);
static ngx_uint_t ngx_http_sandbox_dagger_digest(ngx_str_t *text);
static ngx_uint_t ngx_http_sandbox_dagger_image_name(ngx_str_t *name);
static ngx_int_t ngx_http_sandbox_dagger_image(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *name, ngx_str_t *file, ngx_str_t *image);


/* directives that nobody wrote, for what files say of them */

static ngx_command_t  ngx_http_sandbox_dagger_image_command = {
    ngx_string("sandbox_dagger_image"), 0, NULL, 0, 0, NULL
};


/* ENGINE ... [isolated] [resolver=ADDRESS[:PORT]|off] [move=TIME] */

char *
ngx_http_sandbox_conf_dagger(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t                       *value;
    ngx_uint_t                       i, n;
    ngx_http_sandbox_dagger_line_t   line;

    value = cf->args->elts;

    if (ngx_http_sandbox_conf_once(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&line, sizeof(ngx_http_sandbox_dagger_line_t));
    line.move = NGX_CONF_UNSET_MSEC;

    /* parameters may stand before and after the engines that they are for */

    for (i = 1, n = 0; i < cf->args->nelts; i++) {

        if (ngx_http_sandbox_dagger_names_engine(&value[i])) {
            n++;

        } else if (ngx_http_sandbox_dagger_parameter(cf, slcf, &line,
                                                     &value[i])
                   != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    if (n == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "no engine in \"sandbox_dagger\" directive, there "
                           "must be at least one, such as "
                           "\"tcp://127.0.0.1:1234\"");
        return NGX_CONF_ERROR;
    }

    if (slcf->engines == NULL) {
        slcf->engines = ngx_array_create(cf->pool, n,
                                         sizeof(ngx_http_sandbox_engine_t *));
        if (slcf->engines == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_http_sandbox_dagger_names_engine(&value[i])
            && ngx_http_sandbox_dagger_add(cf, slcf->engines, &line,
                                           &value[i])
               != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static ngx_uint_t
ngx_http_sandbox_dagger_names_engine(ngx_str_t *value)
{
    return ngx_strnstr(value->data, "://", value->len) != NULL
           && ngx_strlchr(value->data, value->data + value->len, '=') == NULL;
}


static ngx_int_t
ngx_http_sandbox_dagger_parameter(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_http_sandbox_dagger_line_t *line,
    ngx_str_t *value)
{
    ngx_int_t  ms;
    ngx_str_t  s;

    if (ngx_strcmp(value->data, "isolated") == 0) {
        line->isolated = 1;
        return NGX_OK;
    }

    if (ngx_strncmp(value->data, "resolver=", 9) == 0) {
        return ngx_http_sandbox_dagger_resolver(cf, line, value);
    }

    if (ngx_strncmp(value->data, "move=", 5) == 0) {

        s.data = value->data + 5;
        s.len = value->len - 5;

        ms = ngx_parse_time(&s, 0);

        if (ms == NGX_ERROR || ms < 1000 || ms > 86400 * 1000) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in \"sandbox_dagger\" "
                               "directive, it must be a time from 1s to 1d, "
                               "such as \"move=30s\"", value);
            return NGX_ERROR;
        }

        if (slcf->engines_move != NGX_CONF_UNSET_MSEC
            && slcf->engines_move != (ngx_msec_t) ms)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" in \"sandbox_dagger\" directive: "
                               "another line here has another \"move=\", and "
                               "conversations move between the engines of "
                               "all lines", value);
            return NGX_ERROR;
        }

        slcf->engines_move = (ngx_msec_t) ms;

        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"sandbox_dagger\" directive, "
                       "it must be an engine, \"tcp://HOST:PORT\" or "
                       "\"unix:///PATH\", or one of \"isolated\", "
                       "\"resolver=\" and \"move=\"", value);

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_sandbox_dagger_resolver(ngx_conf_t *cf,
    ngx_http_sandbox_dagger_line_t *line, ngx_str_t *value)
{
    ngx_addr_t  addr;

    line->resolver.data = value->data + sizeof("resolver=") - 1;
    line->resolver.len = value->len - (sizeof("resolver=") - 1);

    if (ngx_strcmp(line->resolver.data, "off") == 0) {
        return NGX_OK;
    }

    if (line->resolver.len == 0
        || ngx_parse_addr_port(cf->pool, &addr, line->resolver.data,
                               line->resolver.len)
           != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"sandbox_dagger\" "
                           "directive, it must be the address of the name "
                           "server that knows the engine's containers, such "
                           "as \"resolver=10.87.0.1\", or \"resolver=off\"",
                           value);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_dagger_add(ngx_conf_t *cf, ngx_array_t *array,
    ngx_http_sandbox_dagger_line_t *line, ngx_str_t *name)
{
    ngx_uint_t                      i;
    ngx_http_sandbox_engine_t      *engine, **engines;
    ngx_http_sandbox_main_conf_t   *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    if (ngx_http_sandbox_dagger_engine(cf, smcf, line, name, &engine)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    engines = array->elts;

    for (i = 0; i < array->nelts; i++) {
        if (engines[i] == engine) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "engine \"%V\" stands twice in "
                               "\"sandbox_dagger\" directives here", name);
            return NGX_ERROR;
        }
    }

    engines = ngx_array_push(array);
    if (engines == NULL) {
        return NGX_ERROR;
    }

    *engines = engine;

    return NGX_OK;
}


/* one for all locations that name it */

static ngx_int_t
ngx_http_sandbox_dagger_engine(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_dagger_line_t *line,
    ngx_str_t *name, ngx_http_sandbox_engine_t **found)
{
    ngx_str_t                    names[2];
    ngx_uint_t                   i;
    const char                  *problem;
    ngx_http_sandbox_engine_t   *engine, **engines;

    engines = smcf->engines.elts;

    for (i = 0; i < smcf->engines.nelts; i++) {

        engine = engines[i];

        if (engine->name.len != name->len
            || ngx_strncmp(engine->name.data, name->data, name->len) != 0)
        {
            continue;
        }

        if (engine->isolated != (ngx_flag_t) line->isolated
            || engine->resolver_name.len != line->resolver.len
            || (line->resolver.len
                && ngx_strncmp(engine->resolver_name.data,
                               line->resolver.data, line->resolver.len)
                   != 0))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "engine \"%V\" in \"sandbox_dagger\" directive "
                               "has other parameters elsewhere: \"isolated\" "
                               "and \"resolver=\" must be the same wherever "
                               "it stands", name);
            return NGX_ERROR;
        }

        *found = engine;
        return NGX_OK;
    }

    if (i == NGX_HTTP_SANDBOX_MAX_ENGINES) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many engines in \"sandbox_dagger\" "
                           "directives, \"%V\" would be the %ui.", name,
                           i + 1);
        return NGX_ERROR;
    }

    engine = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_engine_t));
    if (engine == NULL) {
        return NGX_ERROR;
    }

    problem = ngx_http_sandbox_dagger_address(cf, name, &engine->addr);

    if (problem) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid engine \"%V\" in \"sandbox_dagger\" "
                           "directive: %s", name, problem);
        return NGX_ERROR;
    }

    engine->name = *name;
    engine->isolated = line->isolated;
    engine->resolver_name = line->resolver;

    names[0] = line->resolver;
    ngx_str_set(&names[1], "ipv6=off");

    if (names[0].data == NULL
        && ngx_http_sandbox_dagger_here(&engine->addr))
    {
        ngx_str_set(&names[0], NGX_HTTP_SANDBOX_RESOLVER);
    }

    if (names[0].data && ngx_strcmp(names[0].data, "off") != 0) {
        engine->resolver = ngx_resolver_create(cf, names, 2);
        if (engine->resolver == NULL) {
            return NGX_ERROR;
        }

        /* an agent that is started anew has another address, at once */

        engine->resolver->valid = -1;
    }

    engines = ngx_array_push(&smcf->engines);
    if (engines == NULL) {
        return NGX_ERROR;
    }

    *engines = engine;
    *found = engine;

    return NGX_OK;
}


/* NULL, or what is wrong; a name is looked up now, by nginx's master */

static const char *
ngx_http_sandbox_dagger_address(ngx_conf_t *cf, ngx_str_t *name,
    ngx_addr_t *addr)
{
    u_char     *p, *last;
    ngx_url_t   u;

    if (name->len >= NGX_HTTP_SANDBOX_ENGINE_NAME) {
        return "it is longer than 127 bytes";
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    if (ngx_strncmp(name->data, "unix:///", 8) == 0) {

        if (name->len - 7 < 2
            || name->len - 7 >= sizeof(((struct sockaddr_un *) 0)->sun_path))
        {
            return "it has no path, or one of more than 107 bytes";
        }

        u.url.len = sizeof("unix:") - 1 + name->len - 7;
        u.url.data = ngx_pnalloc(cf->pool, u.url.len + 1);
        if (u.url.data == NULL) {
            return "there is no memory";
        }

        /* a colon would begin something else in an URL of nginx's */

        if (ngx_strlchr(name->data + 7, name->data + name->len, ':')) {
            return "there is a colon in its path";
        }

        ngx_sprintf(u.url.data, "unix:%s%Z", name->data + 7);

    } else if (ngx_strncmp(name->data, "tcp://", 6) == 0) {

        u.url.data = name->data + 6;
        u.url.len = name->len - 6;

        last = u.url.data + u.url.len;

        for (p = u.url.data; p < last; p++) {
            if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z')
                  || (*p >= 'A' && *p <= 'Z') || *p == '.' || *p == '-'
                  || *p == '_' || *p == ':' || *p == '[' || *p == ']'))
            {
                return "it must be tcp://HOST:PORT, with nothing after it";
            }
        }

        if (ngx_strncmp(u.url.data, "unix:", 5) == 0) {
            return "it must be tcp://HOST:PORT or unix:///PATH";
        }

    } else {
        return "it must be tcp://HOST:PORT or unix:///PATH";
    }

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        return u.err ? u.err : "it can't be read";
    }

    if (u.family != AF_UNIX && u.no_port) {
        return "it has no port, as in tcp://127.0.0.1:1234";
    }

    *addr = u.addrs[0];

    return NULL;
}


/* whether the engine's bridge is one of this host */

static ngx_uint_t
ngx_http_sandbox_dagger_here(const ngx_addr_t *addr)
{
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    switch (addr->sockaddr->sa_family) {

    case AF_UNIX:
        return 1;

    case AF_INET:
        sin = (struct sockaddr_in *) addr->sockaddr;
        return (ntohl(sin->sin_addr.s_addr) >> 24) == 127;

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) addr->sockaddr;
        return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr);
#endif

    default:
        return 0;
    }
}


/* NAME@sha256:DIGEST, or NAME and a file with the digest */

char *
ngx_http_sandbox_conf_dagger_image(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t  *value, name, digest;

    if (slcf->engines_image.data) {
        return "is duplicate";
    }

    value = cf->args->elts;
    name = value[1];

    if (cf->args->nelts == 3) {

        if (ngx_http_sandbox_dagger_image(cf, cmd, &name, &value[2],
                                          &slcf->engines_image)
            != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }

        return NGX_CONF_OK;
    }

    digest.len = 0;

    if (name.len > NGX_HTTP_SANDBOX_DIGEST_SIZE + 1) {
        digest.len = NGX_HTTP_SANDBOX_DIGEST_SIZE;
        digest.data = name.data + name.len - digest.len;
        name.len -= digest.len + 1;
    }

    if (digest.len == 0 || name.data[name.len] != '@'
        || !ngx_http_sandbox_dagger_digest(&digest)
        || !ngx_http_sandbox_dagger_image_name(&name))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid image \"%V\" in \"sandbox_dagger_image\" "
                           "directive, it must be HOST:PORT/NAME and a file "
                           "with its digest, such as \"%s %s\", or "
                           "HOST:PORT/NAME@sha256:DIGEST", &value[1],
                           NGX_HTTP_SANDBOX_IMAGE,
                           NGX_HTTP_SANDBOX_IMAGE_FILE);
        return NGX_CONF_ERROR;
    }

    slcf->engines_image = value[1];

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sandbox_dagger_image(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *name, ngx_str_t *file, ngx_str_t *image)
{
    ngx_str_t  digest;

    if (!ngx_http_sandbox_dagger_image_name(name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid image \"%V\" in \"sandbox_dagger_image\" "
                           "directive, it must be HOST:PORT/NAME without a "
                           "digest, such as \"%s\"", name,
                           NGX_HTTP_SANDBOX_IMAGE);
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_conf_read_file(cf, cmd, file, 1024, 0, &digest)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    while (digest.len
           && (digest.data[digest.len - 1] == LF
               || digest.data[digest.len - 1] == CR
               || digest.data[digest.len - 1] == ' '))
    {
        digest.len--;
    }

    if (!ngx_http_sandbox_dagger_digest(&digest)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"sandbox_dagger_image\" directive "
                           "holds no digest, it must be \"sha256:\" and 64 "
                           "hexadecimal digits, as \"make registry\" writes "
                           "it", file);
        return NGX_ERROR;
    }

    image->len = name->len + 1 + digest.len;
    image->data = ngx_pnalloc(cf->pool, image->len + 1);
    if (image->data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(image->data, "%V@%V%Z", name, &digest);

    return NGX_OK;
}


static ngx_uint_t
ngx_http_sandbox_dagger_digest(ngx_str_t *text)
{
    ngx_uint_t  i;

    if (text->len != NGX_HTTP_SANDBOX_DIGEST_SIZE
        || ngx_strncmp(text->data, "sha256:", 7) != 0)
    {
        return 0;
    }

    for (i = 7; i < text->len; i++) {
        if (!((text->data[i] >= '0' && text->data[i] <= '9')
              || (text->data[i] >= 'a' && text->data[i] <= 'f')))
        {
            return 0;
        }
    }

    return 1;
}


/* it goes into queries as it is, so nothing but what names are made of */

static ngx_uint_t
ngx_http_sandbox_dagger_image_name(ngx_str_t *name)
{
    u_char      ch;
    ngx_uint_t  i, slash;

    if (name->len == 0 || name->len > NGX_HTTP_SANDBOX_IMAGE_SIZE) {
        return 0;
    }

    for (i = 0, slash = 0; i < name->len; i++) {
        ch = name->data[i];

        if (ch == '/') {
            if (i == 0 || i == name->len - 1 || name->data[i - 1] == '/') {
                return 0;
            }

            slash = 1;

        } else if (!((ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z')
                     || (ch >= 'A' && ch <= 'Z') || ch == '.' || ch == '-'
                     || ch == '_' || ch == ':' || ch == '[' || ch == ']'))
        {
            return 0;
        }
    }

    return slash;
}


void
ngx_http_sandbox_dagger_merge(ngx_http_sandbox_loc_conf_t *conf,
    ngx_http_sandbox_loc_conf_t *prev)
{
    /* "move=" belongs to the lines that it stands in */

    if (conf->engines == NULL) {
        conf->engines = prev->engines;
        conf->engines_move = prev->engines_move;
    }

    ngx_conf_init_msec_value(conf->engines_move, NGX_HTTP_SANDBOX_MOVE);

    if (conf->engines_image.data == NULL) {
        conf->engines_image = prev->engines_image;
    }
}


ngx_http_sandbox_backend_t *
ngx_http_sandbox_backend(ngx_http_sandbox_loc_conf_t *slcf)
{
    char  *value;

    if (slcf->named_backend) {
        return slcf->named_backend;
    }

    if (slcf->engines) {
        return &ngx_http_sandbox_dagger;
    }

    if (slcf->socket.data) {
        return &ngx_http_sandbox_local;
    }

    value = getenv(NGX_HTTP_SANDBOX_ENGINE_ENVIRONMENT);

    return (value && *value) ? &ngx_http_sandbox_dagger
                             : &ngx_http_sandbox_local;
}


ngx_int_t
ngx_http_sandbox_dagger_settle(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_http_sandbox_dagger_t *dagger,
    ngx_str_t *location)
{
    ngx_str_t        name, file;
    ngx_file_info_t  fi;

    dagger->move = slcf->engines_move;
    dagger->engines = slcf->engines;

    if (dagger->engines == NULL
        && ngx_http_sandbox_dagger_environment(cf, slcf, dagger, location)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    dagger->image = slcf->engines_image;

    if (dagger->image.data == NULL) {

        ngx_str_set(&name, NGX_HTTP_SANDBOX_IMAGE);
        ngx_str_set(&file, NGX_HTTP_SANDBOX_IMAGE_FILE);

        if (ngx_file_info(file.data, &fi) == NGX_FILE_ERROR) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               "\"sandbox\" is on in location \"%V\" with "
                               "backend \"dagger\", but there is no "
                               "\"sandbox_dagger_image\", and the file "
                               "\"%V\" of its default can't be found; "
                               "\"make registry\" makes the image and that "
                               "file", location, &file);
            return NGX_ERROR;
        }

        if (ngx_http_sandbox_dagger_image(cf,
                                       &ngx_http_sandbox_dagger_image_command,
                                       &name, &file, &dagger->image)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    dagger->image_hash = ngx_crc32_long(dagger->image.data,
                                        dagger->image.len);

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_dagger_owner(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_str_t *location)
{
    u_char           *key;
    ngx_str_t         socket, file;
    ngx_file_info_t   fi;

    socket = slcf->socket;

    if (socket.data == NULL) {
        ngx_str_set(&socket, NGX_HTTP_SANDBOX_OWNER_SOCKET);
    }

    key = slcf->key;

    if (key == NULL) {

        ngx_str_set(&file, NGX_HTTP_SANDBOX_OWNER_KEY);

        if (ngx_file_info(file.data, &fi) == NGX_FILE_ERROR) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               "\"sandbox\" is on in location \"%V\", but "
                               "there is no \"sandbox_runner_key\", and its "
                               "default \"%V\" can't be found; add the file "
                               "of 64 hexadecimal digits that \"sandbox-runner "
                               "--dagger\" reads (\"sandbox-runner --make-key "
                               "FILE\" makes one)", location, &file);
            return NGX_ERROR;
        }

        if (ngx_http_sandbox_conf_read_key(cf, &file, &key) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_http_sandbox_runner(cf, slcf, &socket, key, 1);
}


/* the engine of the environment, where the configuration names none */

static ngx_int_t
ngx_http_sandbox_dagger_environment(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, ngx_http_sandbox_dagger_t *dagger,
    ngx_str_t *location)
{
    char                            *value;
    ngx_str_t                        name;
    ngx_addr_t                       addr;
    ngx_uint_t                       i;
    const char                      *problem;
    ngx_http_sandbox_engine_t      **engines;
    ngx_http_sandbox_dagger_line_t   line;

    value = getenv(NGX_HTTP_SANDBOX_ENGINE_ENVIRONMENT);

    if (value == NULL || *value == '\0') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox\" is on in location \"%V\" with backend "
                           "\"dagger\", but there is no engine; add "
                           "\"sandbox_dagger tcp://HOST:PORT;\", or start "
                           "nginx with "
                           NGX_HTTP_SANDBOX_ENGINE_ENVIRONMENT, location);
        return NGX_ERROR;
    }

    name.len = ngx_strlen(value);
    name.data = ngx_pnalloc(cf->pool, name.len + 1);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(name.data, value, name.len + 1);

    problem = ngx_http_sandbox_dagger_address(cf, &name, &addr);

    if (problem) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "invalid value \"%s\" of the environment variable "
                      NGX_HTTP_SANDBOX_ENGINE_ENVIRONMENT ": %s", value,
                      problem);
        return NGX_ERROR;
    }

    if (slcf->main->engine == NULL) {
        slcf->main->engine = value;

        ngx_log_error(NGX_LOG_NOTICE, cf->log, 0,
                      NGX_HTTP_SANDBOX_ENGINE_ENVIRONMENT " is \"%s\": this "
                      "is the engine where the configuration names none",
                      value);
    }

    dagger->engines = ngx_array_create(cf->pool, 1,
                                       sizeof(ngx_http_sandbox_engine_t *));
    if (dagger->engines == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&line, sizeof(ngx_http_sandbox_dagger_line_t));

    /* where it is also configured, its parameters are known */

    engines = slcf->main->engines.elts;

    for (i = 0; i < slcf->main->engines.nelts; i++) {
        if (engines[i]->name.len == name.len
            && ngx_strncmp(engines[i]->name.data, name.data, name.len) == 0)
        {
            line.isolated = engines[i]->isolated;
            line.resolver = engines[i]->resolver_name;
        }
    }

    return ngx_http_sandbox_dagger_add(cf, dagger->engines, &line, &name);
}
