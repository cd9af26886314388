/*
 * "sandbox_jwks_url": the URL of a key set, judged while the configuration is
 * read.  The same URL is one set, wherever it stands.  Fetches nothing, and
 * knows nothing of requests.
 */

#include "ngx_http_sandbox_conf.h"

#include <curl/curl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>


#define NGX_HTTP_SANDBOX_MAX_URL   2048
#define NGX_HTTP_SANDBOX_MAX_CA    (512 * 1024)
#define NGX_HTTP_SANDBOX_MAX_SETS  64          /* of one configuration */


typedef struct {
    ngx_str_t                  name;
    size_t                     offset;
    ngx_int_t                  min;
    ngx_int_t                  max;
    const char                *expected;
} ngx_http_sandbox_jwks_time_t;


static ngx_int_t ngx_http_sandbox_jwks_option(ngx_conf_t *cf,
    ngx_http_sandbox_key_set_t *set, ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_jwks_times(ngx_conf_t *cf,
    ngx_http_sandbox_key_set_t *set, ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_jwks_url(ngx_conf_t *cf,
    ngx_http_sandbox_key_set_t *set);
static ngx_int_t ngx_http_sandbox_jwks_parts(ngx_conf_t *cf,
    ngx_http_sandbox_key_set_t *set, CURLU *url);
static ngx_int_t ngx_http_sandbox_jwks_host(ngx_conf_t *cf,
    ngx_http_sandbox_key_set_t *set, const char *host);
static ngx_uint_t ngx_http_sandbox_jwks_loopback(const char *host);
static ngx_int_t ngx_http_sandbox_jwks_trust(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_http_sandbox_key_set_t *set);
static ngx_uint_t ngx_http_sandbox_jwks_certificates(ngx_str_t *pem);
static ngx_int_t ngx_http_sandbox_jwks_id(ngx_http_sandbox_key_set_t *set);
static ngx_http_sandbox_key_set_t *ngx_http_sandbox_jwks_add(ngx_conf_t *cf,
    ngx_http_sandbox_key_set_t *set);


static const ngx_http_sandbox_jwks_time_t  ngx_http_sandbox_jwks_time[] = {

    { ngx_string("interval="),
      offsetof(ngx_http_sandbox_key_set_t, interval), 1000, 86400 * 1000,
      "a time from 1s to 1d, such as \"interval=5m\"" },

    { ngx_string("timeout="),
      offsetof(ngx_http_sandbox_key_set_t, timeout), 100, 60 * 1000,
      "a time from 100ms to 60s, such as \"timeout=10s\"" },

    { ngx_string("cooldown="),
      offsetof(ngx_http_sandbox_key_set_t, cooldown), 1000, 3600 * 1000,
      "a time from 1s to 1h, such as \"cooldown=30s\"" },

    { ngx_null_string, 0, 0, 0, NULL }
};


/* URL [interval=TIME] [timeout=TIME] [cooldown=TIME] [ca=FILE] [insecure] */

char *
ngx_http_sandbox_conf_jwks_url(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t                     *value;
    ngx_uint_t                     i;
    ngx_http_sandbox_key_set_t     parsed, *set, **s;

    value = cf->args->elts;

    ngx_memzero(&parsed, sizeof(ngx_http_sandbox_key_set_t));

    parsed.url = value[1];
    parsed.interval = 300 * 1000;
    parsed.timeout = 10 * 1000;
    parsed.cooldown = 30 * 1000;

    if (ngx_http_sandbox_conf_once(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_sandbox_jwks_option(cf, &parsed, &value[i]) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_sandbox_jwks_url(cf, &parsed) != NGX_OK
        || ngx_http_sandbox_jwks_trust(cf, cmd, &parsed) != NGX_OK
        || ngx_http_sandbox_jwks_id(&parsed) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    set = ngx_http_sandbox_jwks_add(cf, &parsed);
    if (set == NULL) {
        return NGX_CONF_ERROR;
    }

    if (slcf->key_sets == NULL) {
        slcf->key_sets = ngx_array_create(cf->pool, 1,
                                         sizeof(ngx_http_sandbox_key_set_t *));
        if (slcf->key_sets == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    s = slcf->key_sets->elts;

    for (i = 0; i < slcf->key_sets->nelts; i++) {
        if (s[i] == set) {
            return "is duplicate";
        }
    }

    if (slcf->key_sets->nelts == NGX_HTTP_SANDBOX_MAX_KEY_SETS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many key sets, \"sandbox_jwks_url %V\" would "
                           "be the %ui. of at most %d", &set->name,
                           slcf->key_sets->nelts + 1,
                           NGX_HTTP_SANDBOX_MAX_KEY_SETS);
        return NGX_CONF_ERROR;
    }

    s = ngx_array_push(slcf->key_sets);
    if (s == NULL) {
        return NGX_CONF_ERROR;
    }

    *s = set;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sandbox_jwks_option(ngx_conf_t *cf, ngx_http_sandbox_key_set_t *set,
    ngx_str_t *value)
{
    ngx_int_t  rc;

    if (ngx_strcmp(value->data, "insecure") == 0) {
        set->insecure = 1;
        return NGX_OK;
    }

    if (value->len > 3 && ngx_strncmp(value->data, "ca=", 3) == 0) {
        set->ca_file.data = value->data + 3;
        set->ca_file.len = value->len - 3;
        return NGX_OK;
    }

    rc = ngx_http_sandbox_jwks_times(cf, set, value);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown parameter \"%V\" in \"sandbox_jwks_url\" "
                       "directive, there are \"interval=\", \"timeout=\", "
                       "\"cooldown=\", \"ca=\" and \"insecure\"", value);

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_sandbox_jwks_times(ngx_conf_t *cf, ngx_http_sandbox_key_set_t *set,
    ngx_str_t *value)
{
    ngx_int_t                            ms;
    ngx_str_t                            s;
    const ngx_http_sandbox_jwks_time_t  *t;

    for (t = ngx_http_sandbox_jwks_time; t->name.len; t++) {

        if (value->len < t->name.len
            || ngx_strncmp(value->data, t->name.data, t->name.len) != 0)
        {
            continue;
        }

        s.data = value->data + t->name.len;
        s.len = value->len - t->name.len;

        ms = ngx_parse_time(&s, 0);

        if (ms == NGX_ERROR || ms < t->min || ms > t->max) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in \"sandbox_jwks_url\" "
                               "directive, it must be %s", value,
                               t->expected);
            return NGX_ERROR;
        }

        *(ngx_msec_t *) ((char *) set + t->offset) = (ngx_msec_t) ms;

        return NGX_OK;
    }

    return NGX_DECLINED;
}


/* libcurl reads it, so that both mean the same; we say what may be in it */

static ngx_int_t
ngx_http_sandbox_jwks_url(ngx_conf_t *cf, ngx_http_sandbox_key_set_t *set)
{
    CURLU       *url;
    u_char      *p;
    CURLUcode    code;
    ngx_int_t    rc;
    ngx_uint_t   i;

    if (set->url.len == 0 || set->url.len > NGX_HTTP_SANDBOX_MAX_URL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the URL in \"sandbox_jwks_url\" directive has "
                           "%uz bytes, it must have 1 to %d", set->url.len,
                           NGX_HTTP_SANDBOX_MAX_URL);
        return NGX_ERROR;
    }

    for (i = 0; i < set->url.len; i++) {
        if (set->url.data[i] <= ' ' || set->url.data[i] >= 0x7f) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "the URL in \"sandbox_jwks_url\" directive has "
                               "a space, a control character or one that is "
                               "not ASCII: write it with \"%%XX\", a host name "
                               "as \"xn--\"");
            return NGX_ERROR;
        }
    }

    url = curl_url();
    if (url == NULL) {
        return NGX_ERROR;
    }

    code = curl_url_set(url, CURLUPART_URL, (char *) set->url.data,
                        CURLU_DISALLOW_USER);

    /* it would take the first part of the path for the host */

    p = (u_char *) ngx_strchr(set->url.data, ':');

    if (p && ngx_strncmp(p, ":///", 4) == 0) {
        code = CURLUE_NO_HOST;
    }

    if (code == CURLUE_OK) {
        rc = ngx_http_sandbox_jwks_parts(cf, set, url);

    } else if (code == CURLUE_USER_NOT_ALLOWED) {

        /* it may be a password: not into the log */

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the URL in \"sandbox_jwks_url\" directive names a "
                           "user; a key set is public and needs none");
        rc = NGX_ERROR;

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid URL in \"sandbox_jwks_url\" directive "
                           "(%s), it must be such as "
                           "\"https://id.example.com/jwks.json\"",
                           curl_url_strerror(code));
        rc = NGX_ERROR;
    }

    curl_url_cleanup(url);

    return rc;
}


static ngx_int_t
ngx_http_sandbox_jwks_parts(ngx_conf_t *cf, ngx_http_sandbox_key_set_t *set,
    CURLU *url)
{
    char       *host, *name, *part;
    ngx_int_t   rc;

    if (curl_url_get(url, CURLUPART_FRAGMENT, &part, 0) == CURLUE_OK) {
        curl_free(part);

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the URL in \"sandbox_jwks_url\" directive has a "
                           "fragment, which no server is ever sent: leave out "
                           "\"#\" and what follows");
        return NGX_ERROR;
    }

    if (curl_url_get(url, CURLUPART_SCHEME, &part, 0) != CURLUE_OK) {
        return NGX_ERROR;
    }

    rc = (ngx_strcmp(part, "https") == 0 || ngx_strcmp(part, "http") == 0);
    curl_free(part);

    if (!rc) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the URL in \"sandbox_jwks_url\" directive must "
                           "begin with \"https://\"");
        return NGX_ERROR;
    }

    if (curl_url_get(url, CURLUPART_PORT, &part, CURLU_DEFAULT_PORT)
        != CURLUE_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_atoi((u_char *) part, ngx_strlen(part));
    curl_free(part);

    if (rc < 1 || rc > 65535) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the URL in \"sandbox_jwks_url\" directive has an "
                           "invalid port, it must be from 1 to 65535");
        return NGX_ERROR;
    }

    /* a query may hold a secret: what is logged is without */

    (void) curl_url_set(url, CURLUPART_QUERY, NULL, 0);

    if (curl_url_get(url, CURLUPART_URL, &name, 0) != CURLUE_OK) {
        return NGX_ERROR;
    }

    set->name.len = ngx_strlen(name);
    set->name.data = ngx_pnalloc(cf->pool, set->name.len + 1);

    if (set->name.data) {
        ngx_memcpy(set->name.data, name, set->name.len + 1);
    }

    curl_free(name);

    if (set->name.data == NULL
        || curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_sandbox_jwks_host(cf, set, host);

    curl_free(host);

    return rc;
}


/* who can change the keys on their way can sign tokens for everybody */

static ngx_int_t
ngx_http_sandbox_jwks_host(ngx_conf_t *cf, ngx_http_sandbox_key_set_t *set,
    const char *host)
{
    if (ngx_strncmp(set->name.data, "https://", 8) == 0) {

        if (set->insecure) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"insecure\" in \"sandbox_jwks_url %V\" is "
                               "for \"http://\" only: certificates are always "
                               "verified, \"ca=FILE\" names whom to trust",
                               &set->name);
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    if (set->ca_file.len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ca=\" in \"sandbox_jwks_url %V\" is for "
                           "\"https://\" only", &set->name);
        return NGX_ERROR;
    }

    if (!set->insecure && !ngx_http_sandbox_jwks_loopback(host)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox_jwks_url %V\" is not encrypted: whoever "
                           "is on the way to it can put keys of their own "
                           "into the answer and then sign any token; use "
                           "\"https://\", or add \"insecure\" if nobody is",
                           &set->name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* libcurl has written an address in its plain form */

static ngx_uint_t
ngx_http_sandbox_jwks_loopback(const char *host)
{
    u_char     *p;
    size_t      len;
    in_addr_t   addr;
#if (NGX_HAVE_INET6)
    u_char      in6[16];
#endif

    p = (u_char *) host;
    len = ngx_strlen(host);

    if (ngx_strcasecmp(p, (u_char *) "localhost") == 0) {
        return 1;
    }

    addr = ngx_inet_addr(p, len);

    if (addr != INADDR_NONE) {
        return (ntohl(addr) >> 24) == 127;
    }

#if (NGX_HAVE_INET6)

    if (len > 2 && p[0] == '[' && p[len - 1] == ']'
        && ngx_inet6_addr(p + 1, len - 2, in6) == NGX_OK)
    {
        return ngx_memcmp(in6, &in6addr_loopback, 16) == 0;
    }

#endif

    return 0;
}


static ngx_int_t
ngx_http_sandbox_jwks_trust(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_sandbox_key_set_t *set)
{
    const char              *bundle;
    ngx_file_info_t          fi;
    curl_version_info_data  *info;

    if (set->ca_file.len) {

        if (ngx_http_sandbox_conf_read_file(cf, cmd, &set->ca_file,
                                            NGX_HTTP_SANDBOX_MAX_CA, 0,
                                            &set->ca)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (ngx_http_sandbox_jwks_certificates(&set->ca) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" in \"sandbox_jwks_url\" directive "
                               "holds no certificate: \"ca=\" must be the "
                               "certificates of those who may vouch for the "
                               "server, in PEM", &set->ca_file);
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    if (ngx_strncmp(set->name.data, "http://", 7) == 0) {
        return NGX_OK;
    }

    info = curl_version_info(CURLVERSION_NOW);
    bundle = info->cainfo;

    if (bundle == NULL || ngx_file_info(bundle, &fi) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, bundle ? ngx_errno : 0,
                           "this host has no list of certificate authorities "
                           "(\"%s\") that could vouch for "
                           "\"sandbox_jwks_url %V\": \"apt-get install "
                           "ca-certificates\", or add \"ca=FILE\"",
                           bundle ? bundle : "", &set->name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_sandbox_jwks_certificates(ngx_str_t *pem)
{
    BIO         *bio;
    X509        *cert;
    ngx_uint_t   n;

    n = 0;

    bio = BIO_new_mem_buf(pem->data, (int) pem->len);

    if (bio) {

        /* each takes a part of the file, which is bounded */

        while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL) {
            X509_free(cert);
            n++;
        }

        BIO_free(bio);
    }

    ERR_clear_error();

    return n;
}


/*
 * What a set is known by over reloads.  A set that came under the word of
 * another authority is another set.
 */

static ngx_int_t
ngx_http_sandbox_jwks_id(ngx_http_sandbox_key_set_t *set)
{
    int          ok;
    EVP_MD_CTX  *md;

    md = EVP_MD_CTX_new();
    if (md == NULL) {
        return NGX_ERROR;
    }

    /* the NUL parts them */

    ok = EVP_DigestInit_ex(md, EVP_sha256(), NULL)
         && EVP_DigestUpdate(md, set->url.data, set->url.len + 1)
         && EVP_DigestUpdate(md, set->ca.data, set->ca.len)
         && EVP_DigestFinal_ex(md, set->id, NULL);

    EVP_MD_CTX_free(md);
    ERR_clear_error();

    return ok ? NGX_OK : NGX_ERROR;
}


/* the set that is known already, or a new one */

static ngx_http_sandbox_key_set_t *
ngx_http_sandbox_jwks_add(ngx_conf_t *cf, ngx_http_sandbox_key_set_t *parsed)
{
    ngx_uint_t                      i;
    ngx_http_sandbox_key_set_t     *set, **s;
    ngx_http_sandbox_main_conf_t   *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    s = smcf->key_sets.elts;

    for (i = 0; i < smcf->key_sets.nelts; i++) {

        if (ngx_memcmp(s[i]->id, parsed->id, sizeof(parsed->id)) != 0) {
            continue;
        }

        if (s[i]->interval != parsed->interval
            || s[i]->timeout != parsed->timeout
            || s[i]->cooldown != parsed->cooldown)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"sandbox_jwks_url %V\" stands here with "
                               "other times than before; it is one set, "
                               "fetched once for all: write the same times",
                               &parsed->name);
            return NULL;
        }

        return s[i];
    }

    if (smcf->key_sets.nelts == NGX_HTTP_SANDBOX_MAX_SETS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many different key sets, \"sandbox_jwks_url "
                           "%V\" would be the %ui. of at most %d",
                           &parsed->name, smcf->key_sets.nelts + 1,
                           NGX_HTTP_SANDBOX_MAX_SETS);
        return NULL;
    }

    set = ngx_palloc(cf->pool, sizeof(ngx_http_sandbox_key_set_t));
    s = ngx_array_push(&smcf->key_sets);

    if (set == NULL || s == NULL) {
        return NULL;
    }

    *set = *parsed;
    set->zone = &smcf->zone;
    *s = set;

    return ngx_http_sandbox_key_set_init(cf, set) == NGX_OK ? set : NULL;
}
