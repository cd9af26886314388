/*
 * What makes a token good and whom it names: setters of those directives that
 * name no files, inheritance, and the digest by which verified tokens are
 * cached.  Knows nothing of requests.
 */

#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_MAX_AUDIENCES  16
#define NGX_HTTP_SANDBOX_MAX_CLAIMS     8        /* that hold permissions */

#define NGX_HTTP_SANDBOX_ALGORITHM_NAMES  (16 * sizeof(" HS256"))

/* most of what a policy is hashed from */

#define NGX_HTTP_SANDBOX_MAX_PARTS                                           \
    (16 + NGX_HTTP_SANDBOX_MAX_AUDIENCES + NGX_HTTP_SANDBOX_MAX_CLAIMS       \
     + NGX_HTTP_SANDBOX_MAX_KEY_SETS)


static ngx_int_t ngx_http_sandbox_conf_is_word(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *value);
static char *ngx_http_sandbox_conf_path(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, sandbox_jose_path_t **path);
static void ngx_http_sandbox_conf_free_path(void *data);
static ngx_int_t ngx_http_sandbox_policy_algorithms(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location);
static u_char *ngx_http_sandbox_policy_names(u_char *p, unsigned algorithms);
static ngx_int_t ngx_http_sandbox_policy_crowded(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location);
static ngx_int_t ngx_http_sandbox_policy_digest(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf);
static ngx_uint_t ngx_http_sandbox_policy_same_keys(
    ngx_http_sandbox_loc_conf_t *one, ngx_http_sandbox_loc_conf_t *two);
static void ngx_http_sandbox_policy_texts(sandbox_jose_bytes_t *parts,
    ngx_uint_t *n, const ngx_array_t *texts);


char *
ngx_http_sandbox_conf_algorithms(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    unsigned     bit;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (slcf->algorithms) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        bit = sandbox_jose_algorithm((char *) value[i].data, value[i].len);

        if (bit == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "unknown algorithm \"%V\" in "
                               "\"sandbox_jwt_algorithms\" directive, it must "
                               "be HS, RS, ES or PS with 256, 384 or 512, or "
                               "EdDSA", &value[i]);
            return NGX_CONF_ERROR;
        }

        if ((bit & sandbox_jose_supported()) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "algorithm \"%V\" in "
                               "\"sandbox_jwt_algorithms\" directive is not "
                               "verified by the libjwt that is installed; "
                               "leave it out, or install a newer libjwt",
                               &value[i]);
            return NGX_CONF_ERROR;
        }

        if (slcf->algorithms & bit) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "algorithm \"%V\" stands twice in "
                               "\"sandbox_jwt_algorithms\" directive",
                               &value[i]);
            return NGX_CONF_ERROR;
        }

        slcf->algorithms |= bit;
    }

    return NGX_CONF_OK;
}


/* a text that also stands in a header, quoted: realm, issuer, permission */

char *
ngx_http_sandbox_conf_word(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_str_t  *value, *field;

    field = (ngx_str_t *) (p + cmd->offset);

    if (field->data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_sandbox_conf_is_word(cf, cmd, &value[1]) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    *field = value[1];

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_conf_audience(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t    *value;
    ngx_uint_t    i;
    const char  **audience;

    if (slcf->audiences) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts - 1 > NGX_HTTP_SANDBOX_MAX_AUDIENCES) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%ui values in \"%V\" directive, there may be %d",
                           cf->args->nelts - 1, &cmd->name,
                           NGX_HTTP_SANDBOX_MAX_AUDIENCES);
        return NGX_CONF_ERROR;
    }

    slcf->audiences = ngx_array_create(cf->pool, cf->args->nelts,
                                       sizeof(char *));
    if (slcf->audiences == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_http_sandbox_conf_is_word(cf, cmd, &value[i]) != NGX_OK) {
            return NGX_CONF_ERROR;
        }

        audience = ngx_array_push(slcf->audiences);
        if (audience == NULL) {
            return NGX_CONF_ERROR;
        }

        *audience = (char *) value[i].data;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sandbox_conf_is_word(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value)
{
    u_char      c;
    ngx_uint_t  i;

    if (value->len == 0 || value->len > SANDBOX_JOSE_MAX_ISSUER) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value of %uz bytes in \"%V\" directive, it "
                           "must have 1 to %d", value->len, &cmd->name,
                           SANDBOX_JOSE_MAX_ISSUER);
        return NGX_ERROR;
    }

    for (i = 0; i < value->len; i++) {
        c = value->data[i];

        if (c <= ' ' || c == '"' || c == '\\' || c == 0x7f) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in \"%V\" directive, it "
                               "must have no spaces, quotes, backslashes or "
                               "control characters", value, &cmd->name);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* PATH...: each of them may hold the permission */

char *
ngx_http_sandbox_conf_permission_claim(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    char                  *rv;
    ngx_str_t             *value;
    ngx_uint_t             i;
    const char           **text;
    sandbox_jose_path_t  **path;

    if (slcf->permission_paths) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts - 1 > NGX_HTTP_SANDBOX_MAX_CLAIMS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%ui values in \"%V\" directive, there may be %d",
                           cf->args->nelts - 1, &cmd->name,
                           NGX_HTTP_SANDBOX_MAX_CLAIMS);
        return NGX_CONF_ERROR;
    }

    slcf->permission_paths = ngx_array_create(cf->pool, cf->args->nelts,
                                              sizeof(sandbox_jose_path_t *));
    slcf->permission_claims = ngx_array_create(cf->pool, cf->args->nelts,
                                               sizeof(char *));

    if (slcf->permission_paths == NULL || slcf->permission_claims == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        path = ngx_array_push(slcf->permission_paths);
        text = ngx_array_push(slcf->permission_claims);

        if (path == NULL || text == NULL) {
            return NGX_CONF_ERROR;
        }

        rv = ngx_http_sandbox_conf_path(cf, cmd, &value[i], path);
        if (rv != NGX_CONF_OK) {
            return rv;
        }

        *text = (char *) value[i].data;
    }

    return NGX_CONF_OK;
}


/* the one claim that names a tenant, or a conversation */

char *
ngx_http_sandbox_conf_claim(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_str_t                 *value;
    ngx_http_sandbox_claim_t  *claim;

    claim = (ngx_http_sandbox_claim_t *) (p + cmd->offset);

    if (claim->path) {
        return "is duplicate";
    }

    value = cf->args->elts;
    claim->name = value[1];

    return ngx_http_sandbox_conf_path(cf, cmd, &value[1], &claim->path);
}


static char *
ngx_http_sandbox_conf_path(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, sandbox_jose_path_t **path)
{
    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    ngx_pool_cleanup_t  *cln;

    *path = NULL;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    *path = sandbox_jose_path((char *) value->data, error);

    if (*path == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "can't use \"%V\" in \"%V\" directive: %s; it must "
                           "be a claim, or names with dots between them, such "
                           "as \"realm_access.roles\"; a dot of a name is "
                           "written \"\\.\"", value, &cmd->name, error);
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_http_sandbox_conf_free_path;
    cln->data = *path;

    return NGX_CONF_OK;
}


static void
ngx_http_sandbox_conf_free_path(void *data)
{
    sandbox_jose_path_free(data);
}


/* keys of all kinds go together: what stands further in replaces all of it */

void
ngx_http_sandbox_policy_merge(ngx_http_sandbox_loc_conf_t *conf,
    ngx_http_sandbox_loc_conf_t *prev)
{
    if (conf->keys == NULL && conf->key_sets == NULL) {
        conf->keys = prev->keys;
        conf->key_sets = prev->key_sets;
        conf->keys_digest = prev->keys_digest;
    }

    if (conf->algorithms == 0) {
        conf->algorithms = prev->algorithms;
    }

    if (conf->audiences == NULL) {
        conf->audiences = prev->audiences;
    }

    if (conf->permission_paths == NULL) {
        conf->permission_paths = prev->permission_paths;
        conf->permission_claims = prev->permission_claims;
    }

    if (conf->tenant_claim.path == NULL) {
        conf->tenant_claim = prev->tenant_claim;
    }

    if (conf->conversation_claim.path == NULL) {
        conf->conversation_claim = prev->conversation_claim;
    }

    ngx_conf_merge_msec_value(conf->leeway, prev->leeway, 0);

    ngx_conf_merge_str_value(conf->issuer, prev->issuer, "");
    ngx_conf_merge_str_value(conf->permission, prev->permission,
                             "sandbox:execute");
    ngx_conf_merge_str_value(conf->permission_read, prev->permission_read, "");
    ngx_conf_merge_str_value(conf->named_realm, prev->named_realm, "");
}


ngx_int_t
ngx_http_sandbox_policy_init(ngx_conf_t *cf, ngx_http_sandbox_loc_conf_t *conf,
    ngx_str_t *location)
{
    if (conf->keys == NULL && conf->key_sets == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox\" is on in location \"%V\", but nothing "
                           "verifies tokens: add \"sandbox_jwt_key_file "
                           "FILE;\" (a public key), \"sandbox_jwt_secret_file "
                           "FILE;\" (HMAC), \"sandbox_jwks_file FILE;\" or "
                           "\"sandbox_jwks_url URL;\"", location);
        return NGX_ERROR;
    }

    if (conf->permission_read.len
        && conf->permission_read.len == conf->permission.len
        && ngx_strncmp(conf->permission_read.data, conf->permission.data,
                       conf->permission.len)
           == 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox_permission_read\" and "
                           "\"sandbox_permission\" of location \"%V\" are "
                           "both \"%V\": leave the former out, or give it a "
                           "permission of its own", location,
                           &conf->permission);
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_policy_algorithms(cf, conf, location) != NGX_OK
        || ngx_http_sandbox_policy_crowded(cf, conf, location) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_policy_digest(cf, conf);
}


/*
 * The realm.  Where neither it nor the issuer is named it is the prefix, and
 * two servers may well have the same: whoever signs for one of them could name
 * users of the other, and would be in their sessions.
 */

ngx_int_t
ngx_http_sandbox_policy_realm(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location)
{
    ngx_http_sandbox_loc_conf_t  *other;

    conf->realm = conf->named_realm.len ? conf->named_realm
                  : conf->issuer.len ? conf->issuer : conf->prefix;

    if (conf->disabled || conf->realm.data != conf->prefix.data) {
        return NGX_OK;
    }

    conf->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);

    for (other = conf->main->served; other; other = other->served) {

        if (other->server == conf->server
            || other->runner != conf->runner
            || other->realm.len != conf->realm.len
            || ngx_strncmp(other->realm.data, conf->realm.data,
                           conf->realm.len)
               != 0
            || ngx_http_sandbox_policy_same_keys(other, conf))
        {
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "location \"%V\" is in two servers with different "
                           "keys, and their sessions would be the same: name "
                           "\"sandbox_jwt_issuer\" or \"sandbox_realm\" in "
                           "each", location);
        return NGX_ERROR;
    }

    conf->served = conf->main->served;
    conf->main->served = conf;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_sandbox_policy_same_keys(ngx_http_sandbox_loc_conf_t *one,
    ngx_http_sandbox_loc_conf_t *two)
{
    ngx_uint_t                     i, n, m;
    ngx_http_sandbox_key_set_t   **set, **other;

    if (one->keys_digest && two->keys_digest) {
        if (ngx_memcmp(one->keys_digest, two->keys_digest,
                       SANDBOX_JOSE_SESSION_SIZE)
            != 0)
        {
            return 0;
        }

    } else if (one->keys_digest || two->keys_digest) {
        return 0;
    }

    n = one->key_sets ? one->key_sets->nelts : 0;
    m = two->key_sets ? two->key_sets->nelts : 0;

    if (n != m) {
        return 0;
    }

    for (i = 0; i < n; i++) {
        set = one->key_sets->elts;
        other = two->key_sets->elts;

        /* one for all the locations that name it */

        if (set[i] != other[i]) {
            return 0;
        }
    }

    return 1;
}


static ngx_int_t
ngx_http_sandbox_policy_algorithms(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location)
{
    u_char               *p, *end;
    unsigned              verified;
    ngx_uint_t            i;
    sandbox_jose_key_t  **key;
    u_char                names[2 * NGX_HTTP_SANDBOX_ALGORITHM_NAMES];

    /* what a URL will bring is not known now; secrets it never brings */

    verified = conf->key_sets ? sandbox_jose_supported() & ~SANDBOX_JOSE_HS
                              : 0;

    if (conf->keys) {
        key = conf->keys->elts;

        for (i = 0; i < conf->keys->nelts; i++) {
            verified |= sandbox_jose_key_algorithms(key[i]);
        }
    }

    conf->accepted = conf->algorithms ? conf->algorithms : verified;

    if (conf->accepted & verified) {
        return NGX_OK;
    }

    p = ngx_http_sandbox_policy_names(names, conf->algorithms);
    end = ngx_http_sandbox_policy_names(p, verified);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"sandbox_jwt_algorithms%*s\" of location \"%V\" names "
                       "none that its keys are for, those are for:%*s",
                       (size_t) (p - names), names, location,
                       (size_t) (end - p), p);

    return NGX_ERROR;
}


/* with a blank before each; at most NGX_HTTP_SANDBOX_ALGORITHM_NAMES bytes */

static u_char *
ngx_http_sandbox_policy_names(u_char *p, unsigned algorithms)
{
    u_char    *last;
    unsigned   bit;

    last = p + NGX_HTTP_SANDBOX_ALGORITHM_NAMES;

    for (bit = 1; bit && bit <= algorithms; bit <<= 1) {
        if (algorithms & bit) {
            p = ngx_slprintf(p, last, " %s",
                             sandbox_jose_algorithm_name(bit));
        }
    }

    return p;
}


/* a key that is never tried would be found out by those who hold its tokens */

static ngx_int_t
ngx_http_sandbox_policy_crowded(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf, ngx_str_t *location)
{
    unsigned  crowded;

    if (conf->keys == NULL) {
        return NGX_OK;
    }

    crowded = conf->accepted & sandbox_jose_crowded(conf->keys->elts,
                                                    conf->keys->nelts);
    if (crowded == 0) {
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "location \"%V\" has more than %d keys for %s without "
                       "a \"kid\", or with one and the same, and no more are "
                       "tried for a token: give each a \"kid\", or leave some "
                       "out", location, SANDBOX_JOSE_MAX_TRIES,
                       sandbox_jose_algorithm_name(crowded & -crowded));

    return NGX_ERROR;
}


/*
 * Everything that decides about a token, or that is read from it.  What the
 * cache knows by one policy is nothing to another one.
 */

static ngx_int_t
ngx_http_sandbox_policy_digest(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf)
{
    u_char                 numbers[2 * sizeof(uint32_t)];
    uint32_t               number;
    ngx_uint_t             i, n;
    sandbox_jose_bytes_t   parts[NGX_HTTP_SANDBOX_MAX_PARTS];

    ngx_http_sandbox_key_set_t  **set;

    number = conf->accepted;
    ngx_memcpy(numbers, &number, sizeof(uint32_t));

    number = (uint32_t) (conf->leeway / 1000);
    ngx_memcpy(numbers + sizeof(uint32_t), &number, sizeof(uint32_t));

    parts[0].data = conf->keys_digest;
    parts[0].size = conf->keys_digest ? SANDBOX_JOSE_SESSION_SIZE : 0;
    parts[1].data = numbers;
    parts[1].size = sizeof(numbers);
    parts[2].data = conf->issuer.data;
    parts[2].size = conf->issuer.len;
    parts[3].data = conf->permission.data;
    parts[3].size = conf->permission.len;
    parts[4].data = conf->permission_read.data;
    parts[4].size = conf->permission_read.len;
    parts[5].data = conf->tenant_claim.name.data;
    parts[5].size = conf->tenant_claim.name.len;
    parts[6].data = conf->conversation_claim.name.data;
    parts[6].size = conf->conversation_claim.name.len;

    n = 7;

    ngx_http_sandbox_policy_texts(parts, &n, conf->audiences);

    parts[n].data = NULL;
    parts[n++].size = 0;

    ngx_http_sandbox_policy_texts(parts, &n, conf->permission_claims);

    parts[n].data = NULL;
    parts[n++].size = 0;

    if (conf->key_sets) {
        set = conf->key_sets->elts;

        for (i = 0; i < conf->key_sets->nelts; i++) {
            parts[n].data = set[i]->id;
            parts[n++].size = sizeof(set[i]->id);
        }
    }

    if (sandbox_jose_digest(parts, n, conf->policy) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "can't hash the policy for tokens, there is no "
                           "memory");
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_policy_texts(sandbox_jose_bytes_t *parts, ngx_uint_t *n,
    const ngx_array_t *texts)
{
    ngx_uint_t    i;
    const char  **text;

    if (texts == NULL) {
        return;
    }

    text = texts->elts;

    for (i = 0; i < texts->nelts; i++) {
        parts[*n].data = text[i];
        parts[*n].size = ngx_strlen(text[i]);
        (*n)++;
    }
}
