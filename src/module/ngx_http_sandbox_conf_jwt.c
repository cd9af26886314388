/*
 * Setters of the directives that name files with keys.  They are read and
 * judged while the configuration is read; knows nothing of requests.
 */

#include "ngx_http_sandbox.h"


static ngx_int_t ngx_http_sandbox_conf_jwt_options(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *kid, ngx_str_t *format);
static ngx_int_t ngx_http_sandbox_conf_jwt_read(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_http_sandbox_loc_conf_t *slcf, size_t max,
    ngx_uint_t secret, ngx_str_t *content);
static ngx_int_t ngx_http_sandbox_conf_jwt_digest(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, const ngx_str_t *content);
static ngx_int_t ngx_http_sandbox_conf_jwt_keep(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_http_sandbox_loc_conf_t *slcf,
    sandbox_jose_key_t **key, size_t n);
static char *ngx_http_sandbox_conf_jwt_bad(ngx_conf_t *cf, ngx_command_t *cmd,
    const char *error, const char *expected);
static void ngx_http_sandbox_conf_free_key(void *data);


static const struct {
    ngx_str_t                      name;
    sandbox_jose_encoding_e        encoding;
    const char                    *expected;
} ngx_http_sandbox_formats[] = {

    { ngx_string("raw"), SANDBOX_JOSE_RAW,
      "32 to 4096 random bytes, such as \"openssl rand -out FILE 32\" makes; "
      "where they are written down in digits or letters, say \"format=hex\" "
      "or \"format=base64url\"" },

    { ngx_string("hex"), SANDBOX_JOSE_HEX,
      "32 to 4096 bytes in hexadecimal digits, such as \"openssl rand -hex "
      "32\" makes" },

    { ngx_string("base64url"), SANDBOX_JOSE_BASE64URL,
      "32 to 4096 bytes in base64url without padding" },

    { ngx_null_string, SANDBOX_JOSE_RAW, NULL }
};


/* FILE [format=raw|hex|base64url] [kid=ID] */

char *
ngx_http_sandbox_conf_jwt_secret(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    ngx_str_t            content, kid, format;
    ngx_uint_t           i;
    sandbox_jose_key_t  *key;

    ngx_str_set(&format, "raw");

    if (ngx_http_sandbox_conf_jwt_options(cf, cmd, &kid, &format) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; ngx_http_sandbox_formats[i].name.len; i++) {
        if (format.len == ngx_http_sandbox_formats[i].name.len
            && ngx_strncmp(format.data, ngx_http_sandbox_formats[i].name.data,
                           format.len)
               == 0)
        {
            break;
        }
    }

    if (ngx_http_sandbox_formats[i].name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid format \"%V\" in \"%V\" directive, it "
                           "must be \"raw\", \"hex\" or \"base64url\"",
                           &format, &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_sandbox_conf_jwt_read(cf, cmd, slcf,
                                       SANDBOX_JOSE_MAX_SECRET_FILE, 1,
                                       &content)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    key = sandbox_jose_key_secret(content.data, content.len,
                                  ngx_http_sandbox_formats[i].encoding,
                                  (char *) kid.data, error);

    ngx_explicit_memzero(content.data, content.len);

    if (key == NULL) {
        return ngx_http_sandbox_conf_jwt_bad(cf, cmd, error,
                                         ngx_http_sandbox_formats[i].expected);
    }

    if (ngx_http_sandbox_conf_jwt_keep(cf, cmd, slcf, &key, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* FILE [kid=ID] */

char *
ngx_http_sandbox_conf_jwt_public(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    ngx_str_t            content, kid;
    sandbox_jose_key_t  *key;

    if (ngx_http_sandbox_conf_jwt_options(cf, cmd, &kid, NULL) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_sandbox_conf_jwt_read(cf, cmd, slcf, SANDBOX_JOSE_MAX_PEM, 0,
                                       &content)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    key = sandbox_jose_key_pem(content.data, content.len, (char *) kid.data,
                               error);

    /* who put a private key there has it removed from our memory, at least */

    ngx_explicit_memzero(content.data, content.len);

    if (key == NULL) {
        return ngx_http_sandbox_conf_jwt_bad(cf, cmd, error,
                                             "the issuer's public key, or "
                                             "certificate, in PEM: RSA, an "
                                             "elliptic curve or Ed25519");
    }

    if (ngx_http_sandbox_conf_jwt_keep(cf, cmd, slcf, &key, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* FILE, a JWK set; secrets may be among its keys */

char *
ngx_http_sandbox_conf_jwks_file(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    int                  rc;
    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    size_t               n, i;
    unsigned             algorithms;
    ngx_str_t            content, path;
    ngx_file_info_t      fi;
    sandbox_jose_key_t  *keys[SANDBOX_JOSE_MAX_JWKS_KEYS];

    if (ngx_http_sandbox_conf_jwt_read(cf, cmd, slcf, SANDBOX_JOSE_MAX_JWKS, 0,
                                       &content)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    rc = sandbox_jose_jwks(content.data, content.len,
                           SANDBOX_JOSE_JWKS_SECRETS, keys,
                           SANDBOX_JOSE_MAX_JWKS_KEYS, &n, error);

    ngx_explicit_memzero(content.data, content.len);

    if (rc != 0) {
        return ngx_http_sandbox_conf_jwt_bad(cf, cmd, error,
                                             "a JWK set, such as "
                                             "{\"keys\":[...]}, of at most 64 "
                                             "keys");
    }

    algorithms = 0;

    for (i = 0; i < n; i++) {
        algorithms |= sandbox_jose_key_algorithms(keys[i]);
    }

    if (ngx_http_sandbox_conf_jwt_keep(cf, cmd, slcf, keys, n) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /* only now it is known whether there is a secret in it */

    path = ((ngx_str_t *) cf->args->elts)[1];

    if ((algorithms & SANDBOX_JOSE_HS)
        && ngx_conf_full_name(cf->cycle, &path, 1) == NGX_OK
        && ngx_file_info(path.data, &fi) != NGX_FILE_ERROR
        && (fi.st_mode & S_IROTH))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" in \"%V\" directive is a secret, but every "
                           "user of this host can read it: \"chmod o= %V\"",
                           &path, &cmd->name, &path);
    }

    return NGX_CONF_OK;
}


/* what follows FILE; format NULL: there is none here */

static ngx_int_t
ngx_http_sandbox_conf_jwt_options(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *kid, ngx_str_t *format)
{
    ngx_str_t   *value;
    ngx_uint_t   i, formats;

    value = cf->args->elts;
    formats = 0;

    ngx_str_null(kid);

    for (i = 2; i < cf->args->nelts; i++) {

        if (kid->data == NULL && ngx_strncmp(value[i].data, "kid=", 4) == 0) {

            kid->data = value[i].data + 4;
            kid->len = value[i].len - 4;

            if (kid->len == 0 || kid->len > SANDBOX_JOSE_MAX_NAME) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid value \"%V\" in \"%V\" directive, "
                                   "a key's id has 1 to %d bytes", &value[i],
                                   &cmd->name, SANDBOX_JOSE_MAX_NAME);
                return NGX_ERROR;
            }

            continue;
        }

        if (format && formats++ == 0
            && ngx_strncmp(value[i].data, "format=", 7) == 0)
        {
            format->data = value[i].data + 7;
            format->len = value[i].len - 7;

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown parameter \"%V\" in \"%V\" directive, "
                           "after the file there may be %s, once", &value[i],
                           &cmd->name,
                           format ? "\"format=\" and \"kid=\"" : "\"kid=\"");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* keys of all kinds are one set: several of them may be in use at a time */

static ngx_int_t
ngx_http_sandbox_conf_jwt_keep(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_sandbox_loc_conf_t *slcf, sandbox_jose_key_t **key, size_t n)
{
    size_t                i;
    ngx_int_t             rc;
    ngx_pool_cleanup_t   *cln;
    sandbox_jose_key_t  **k;

    rc = NGX_OK;

    if (slcf->keys == NULL) {
        slcf->keys = ngx_array_create(cf->pool, 2,
                                      sizeof(sandbox_jose_key_t *));
        if (slcf->keys == NULL) {
            rc = NGX_ERROR;
        }
    }

    if (rc == NGX_OK && slcf->keys->nelts + n > NGX_HTTP_SANDBOX_MAX_KEYS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many keys with \"%V\" in \"%V\" directive, a "
                           "location has at most %d",
                           (ngx_str_t *) cf->args->elts + 1, &cmd->name,
                           NGX_HTTP_SANDBOX_MAX_KEYS);
        rc = NGX_ERROR;
    }

    /* each is freed with the cycle, or here */

    for (i = 0; i < n; i++) {

        cln = (rc == NGX_OK) ? ngx_pool_cleanup_add(cf->pool, 0) : NULL;

        if (cln == NULL) {
            sandbox_jose_key_free(key[i]);
            rc = NGX_ERROR;
            continue;
        }

        cln->handler = ngx_http_sandbox_conf_free_key;
        cln->data = key[i];

        k = ngx_array_push(slcf->keys);
        if (k == NULL) {
            rc = NGX_ERROR;
            continue;
        }

        *k = key[i];
    }

    return rc;
}


static ngx_int_t
ngx_http_sandbox_conf_jwt_read(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_sandbox_loc_conf_t *slcf, size_t max, ngx_uint_t secret,
    ngx_str_t *content)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    if (ngx_http_sandbox_conf_read_file(cf, cmd, &value[1], max, secret,
                                        content)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_conf_jwt_digest(cf, slcf, content);
}


static char *
ngx_http_sandbox_conf_jwt_bad(ngx_conf_t *cf, ngx_command_t *cmd,
    const char *error, const char *expected)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "can't use \"%V\" in \"%V\" directive: %s; it must be "
                       "%s", &value[1], &cmd->name, error, expected);

    return NGX_CONF_ERROR;
}


static void
ngx_http_sandbox_conf_free_key(void *data)
{
    sandbox_jose_key_free(data);
}


/* a chain of digests: which directives there were, and what they read */

static ngx_int_t
ngx_http_sandbox_conf_jwt_digest(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *slcf, const ngx_str_t *content)
{
    size_t                 size, rest;
    ngx_str_t             *value;
    ngx_uint_t             i, n;
    sandbox_jose_bytes_t   parts[2 + NGX_CONF_MAX_ARGS
                                 + 1 + SANDBOX_JOSE_MAX_JWKS / 65536];

    value = cf->args->elts;

    parts[0].data = slcf->keys_digest;
    parts[0].size = slcf->keys_digest ? SANDBOX_JOSE_SESSION_SIZE : 0;

    n = 1;

    for (i = 0; i < cf->args->nelts; i++) {
        parts[n].data = value[i].data;
        parts[n++].size = value[i].len;
    }

    for (rest = content->len; rest; rest -= size) {
        size = ngx_min(rest, 65536);

        parts[n].data = content->data + content->len - rest;
        parts[n++].size = size;
    }

    if (slcf->keys_digest == NULL) {
        slcf->keys_digest = ngx_palloc(cf->pool, SANDBOX_JOSE_SESSION_SIZE);
        if (slcf->keys_digest == NULL) {
            return NGX_ERROR;
        }
    }

    if (sandbox_jose_digest(parts, n, slcf->keys_digest) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "can't hash \"%V\", there is no memory",
                           &value[1]);
        return NGX_ERROR;
    }

    return NGX_OK;
}
