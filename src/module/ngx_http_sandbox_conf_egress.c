/*
 * "sandbox_egress_policy" and "sandbox_egress": which names a sandbox may
 * reach, read and judged line by line.  Knows no variables' insides, no wire
 * and no requests.
 */

#include "ngx_http_sandbox_egress.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>


#define NGX_HTTP_SANDBOX_EGRESS_LABEL  63        /* bytes of a label */
#define NGX_HTTP_SANDBOX_EGRESS_NAME   253       /* of a name */


/* a line in the block of a policy */

typedef struct {
    ngx_str_t                      name;
    ngx_uint_t                     many;         /* values, not one */
    char                        *(*set)(ngx_conf_t *cf,
                                        ngx_http_sandbox_egress_policy_t
                                            *policy);
} ngx_http_sandbox_egress_line_t;


static ngx_http_sandbox_egresses_t *ngx_http_sandbox_conf_egresses(
    ngx_conf_t *cf);
static ngx_int_t ngx_http_sandbox_egress_name(ngx_conf_t *cf,
    ngx_http_sandbox_egresses_t *egress, ngx_str_t *name, uint32_t *id);
static char *ngx_http_sandbox_egress_line(ngx_conf_t *cf,
    ngx_command_t *dummy, void *conf);
static char *ngx_http_sandbox_egress_invalid(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy, ngx_str_t *text,
    const char *expected);
static char *ngx_http_sandbox_egress_twice(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static char *ngx_http_sandbox_egress_allow(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static const char *ngx_http_sandbox_egress_host(ngx_str_t *host);
static ngx_uint_t ngx_http_sandbox_egress_address(u_char *label, size_t len);
static char *ngx_http_sandbox_egress_connections(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static char *ngx_http_sandbox_egress_bytes(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static char *ngx_http_sandbox_egress_time(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static char *ngx_http_sandbox_egress_index(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static ngx_int_t ngx_http_sandbox_egress_index_allowed(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static void ngx_http_sandbox_egress_index_host(const ngx_str_t *index,
    ngx_str_t *host);
static ngx_uint_t ngx_http_sandbox_egress_allows(
    const ngx_http_sandbox_egress_policy_t *policy, const ngx_str_t *host);
static char *ngx_http_sandbox_egress_ca(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy);
static const char *ngx_http_sandbox_egress_certificates(ngx_conf_t *cf,
    ngx_str_t *pem, ngx_str_t *ca);
static int ngx_libc_cdecl ngx_http_sandbox_egress_cmp(const void *one,
    const void *two);


static const ngx_http_sandbox_egress_line_t  ngx_http_sandbox_egress_lines[] =
{
    { ngx_string("allow"), 1, ngx_http_sandbox_egress_allow },
    { ngx_string("connections"), 0, ngx_http_sandbox_egress_connections },
    { ngx_string("bytes"), 0, ngx_http_sandbox_egress_bytes },
    { ngx_string("time"), 0, ngx_http_sandbox_egress_time },
    { ngx_string("package_index"), 0, ngx_http_sandbox_egress_index },
    { ngx_string("ca_certificate"), 0, ngx_http_sandbox_egress_ca },
    { ngx_null_string, 0, NULL }
};


/* NAME { allow NAME...; connections N; bytes SIZE; ... } */

char *
ngx_http_sandbox_conf_egress_policy(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    char                               *rv;
    uint32_t                            id;
    ngx_str_t                          *value;
    ngx_conf_t                          save;
    ngx_http_sandbox_egresses_t        *egress;
    ngx_http_sandbox_egress_policy_t   *policy, **place;

    egress = ngx_http_sandbox_conf_egresses(cf);
    if (egress == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (ngx_http_sandbox_egress_name(cf, egress, &value[1], &id) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    policy = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_egress_policy_t));
    if (policy == NULL
        || ngx_array_init(&policy->hosts, cf->pool, 4, sizeof(ngx_str_t))
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    policy->name = value[1];
    policy->file = cf->conf_file->file.name;
    policy->line = cf->conf_file->line;
    policy->connections = NGX_CONF_UNSET;
    policy->bytes = NGX_CONF_UNSET;
    policy->time = NGX_CONF_UNSET_MSEC;

    save = *cf;
    cf->handler = ngx_http_sandbox_egress_line;
    cf->handler_conf = (void *) policy;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    ngx_conf_init_value(policy->connections, 32);
    ngx_conf_init_value(policy->bytes, (off_t) 2 * 1024 * 1024 * 1024);
    ngx_conf_init_msec_value(policy->time, 600000);

    if (ngx_http_sandbox_egress_index_allowed(cf, policy) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    policy->id = policy->hosts.nelts ? id : 0;

    /* the same policies are the same table, in whatever order they stand */

    ngx_qsort(policy->hosts.elts, policy->hosts.nelts, sizeof(ngx_str_t),
              ngx_http_sandbox_egress_cmp);

    place = ngx_array_push(&egress->policies);
    if (place == NULL) {
        return NGX_CONF_ERROR;
    }

    *place = policy;

    return NGX_CONF_OK;
}


/* NAME | none | off | $variable */

char *
ngx_http_sandbox_conf_egress(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t                    *value;
    ngx_http_sandbox_egress_t    *use, **place;
    ngx_http_sandbox_egresses_t  *egress;

    if (slcf->egress) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0
        || (value[1].data[0] != '$'
            && !sandbox_command_id_valid(value[1].data, value[1].len)))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"sandbox_egress\" "
                           "directive, it must be the name of a "
                           "\"sandbox_egress_policy\", \"none\", or a "
                           "variable such as \"$sandbox_tenant\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    egress = ngx_http_sandbox_conf_egresses(cf);
    if (egress == NULL) {
        return NGX_CONF_ERROR;
    }

    use = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_egress_t));
    place = ngx_array_push(&egress->uses);

    if (use == NULL || place == NULL) {
        return NGX_CONF_ERROR;
    }

    /* policies and maps may stand further down: looked up when all is read */

    use->value = value[1];
    use->file = cf->conf_file->file.name;
    use->line = cf->conf_file->line;

    *place = use;
    slcf->egress = use;

    return NGX_CONF_OK;
}


ngx_http_sandbox_egress_policy_t *
ngx_http_sandbox_egress_find(const ngx_http_sandbox_egresses_t *egress,
    const ngx_str_t *name)
{
    ngx_uint_t                          i;
    ngx_http_sandbox_egress_policy_t  **policy;

    policy = egress->policies.elts;

    for (i = 0; i < egress->policies.nelts; i++) {
        if (policy[i]->name.len == name->len
            && ngx_memcmp(policy[i]->name.data, name->data, name->len) == 0)
        {
            return policy[i];
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_sandbox_egress_is_none(const ngx_str_t *name)
{
    return (name->len == 4 && ngx_memcmp(name->data, "none", 4) == 0)
           || (name->len == 3 && ngx_memcmp(name->data, "off", 3) == 0);
}


static ngx_http_sandbox_egresses_t *
ngx_http_sandbox_conf_egresses(ngx_conf_t *cf)
{
    ngx_http_sandbox_egresses_t   *egress;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    if (smcf->egress == NULL) {

        egress = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_egresses_t));

        if (egress == NULL
            || ngx_array_init(&egress->policies, cf->pool, 4,
                              sizeof(ngx_http_sandbox_egress_policy_t *))
               != NGX_OK
            || ngx_array_init(&egress->uses, cf->pool, 4,
                              sizeof(ngx_http_sandbox_egress_t *))
               != NGX_OK
            || ngx_array_init(&egress->served, cf->pool, 4,
                              sizeof(ngx_http_sandbox_loc_conf_t *))
               != NGX_OK)
        {
            return NULL;
        }

        smcf->egress = egress;
    }

    return smcf->egress;
}


static ngx_int_t
ngx_http_sandbox_egress_name(ngx_conf_t *cf,
    ngx_http_sandbox_egresses_t *egress, ngx_str_t *name, uint32_t *id)
{
    u_char                              digest[SHA256_DIGEST_LENGTH];
    uint32_t                            other;
    ngx_uint_t                          i;
    ngx_http_sandbox_egress_policy_t  **policy;

    if (!sandbox_command_id_valid(name->data, name->len)
        || ngx_http_sandbox_egress_is_none(name))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" in \"sandbox_egress_policy\" "
                           "directive, it must be 1 to %d letters, digits, "
                           "\".\", \"_\" and \"-\", and neither \"none\" nor "
                           "\"off\", which mean no network", name,
                           SANDBOX_WIRE_MAX_POLICY_NAME);
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_egress_find(egress, name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox_egress_policy %V\" is duplicate", name);
        return NGX_ERROR;
    }

    if (egress->policies.nelts == SANDBOX_WIRE_MAX_POLICIES) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox_egress_policy %V\" would be the %d., "
                           "there may be %d", name,
                           SANDBOX_WIRE_MAX_POLICIES + 1,
                           SANDBOX_WIRE_MAX_POLICIES);
        return NGX_ERROR;
    }

    policy = egress->policies.elts;

    SHA256(name->data, name->len, digest);

    *id = sandbox_get32(digest);
    *id += (*id == 0);

    for (i = 0; i < egress->policies.nelts; i++) {

        SHA256(policy[i]->name.data, policy[i]->name.len, digest);

        other = sandbox_get32(digest);
        other += (other == 0);

        if (other == *id) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"sandbox_egress_policy %V\" has by accident "
                               "the number of \"%V\", it must have another "
                               "name", name, &policy[i]->name);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static char *
ngx_http_sandbox_egress_line(ngx_conf_t *cf, ngx_command_t *dummy, void *conf)
{
    ngx_http_sandbox_egress_policy_t *policy = conf;

    ngx_str_t                             *value;
    const ngx_http_sandbox_egress_line_t  *line;

    value = cf->args->elts;

    if (ngx_strcmp(value[0].data, "include") == 0 && cf->args->nelts == 2) {
        return ngx_conf_include(cf, dummy, conf);
    }

    for (line = ngx_http_sandbox_egress_lines; line->set; line++) {

        if (ngx_strcmp(value[0].data, line->name.data) != 0) {
            continue;
        }

        if (cf->args->nelts == 1 || (cf->args->nelts > 2 && !line->many)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid number of arguments in \"%V\" of "
                               "\"sandbox_egress_policy %V\"", &value[0],
                               &policy->name);
            return NGX_CONF_ERROR;
        }

        return line->set(cf, policy);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown \"%V\" in \"sandbox_egress_policy %V\", there "
                       "are \"allow\", \"connections\", \"bytes\", \"time\", "
                       "\"package_index\" and \"ca_certificate\"", &value[0],
                       &policy->name);

    return NGX_CONF_ERROR;
}


/* in the form of all that follow: the value, where it stands, what is right */

static char *
ngx_http_sandbox_egress_invalid(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy, ngx_str_t *text,
    const char *expected)
{
    ngx_str_t  *value, shown;

    value = cf->args->elts;

    /* a line of the log has an end */

    shown = *text;
    shown.len = ngx_min(shown.len, 300);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V%s\" of \"%V\" in "
                       "\"sandbox_egress_policy %V\": %s", &shown,
                       shown.len < text->len ? "..." : "", &value[0],
                       &policy->name, expected);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_sandbox_egress_twice(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" in \"sandbox_egress_policy %V\" is duplicate",
                       &value[0], &policy->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_sandbox_egress_allow(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    ngx_str_t   *value, *host, *known;
    ngx_uint_t   i, n;
    const char  *fault;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        fault = ngx_http_sandbox_egress_host(&value[i]);

        if (fault) {
            return ngx_http_sandbox_egress_invalid(cf, policy, &value[i],
                                                   fault);
        }

        known = policy->hosts.elts;

        for (n = 0; n < policy->hosts.nelts; n++) {
            if (known[n].len == value[i].len
                && ngx_memcmp(known[n].data, value[i].data, value[i].len)
                   == 0)
            {
                return ngx_http_sandbox_egress_invalid(cf, policy, &value[i],
                                                       "it is duplicate");
            }
        }

        if (policy->hosts.nelts == SANDBOX_WIRE_MAX_HOSTS) {
            return ngx_http_sandbox_egress_invalid(cf, policy, &value[i],
                                                   "a policy has at most 256 "
                                                   "names, this would be the "
                                                   "257.");
        }

        host = ngx_array_push(&policy->hosts);
        if (host == NULL) {
            return NGX_CONF_ERROR;
        }

        *host = value[i];
    }

    return NGX_CONF_OK;
}


/* NULL: NAME or *.NAME; otherwise what is wrong with it */

static const char *
ngx_http_sandbox_egress_host(ngx_str_t *host)
{
    u_char      *p, *last, *label;
    ngx_uint_t   labels;

    p = host->data;
    last = p + host->len;

    if (host->len > 2 && p[0] == '*' && p[1] == '.') {
        p += 2;
    }

    if (p == last || last - p > NGX_HTTP_SANDBOX_EGRESS_NAME) {
        return "it must be the name of a host, of 3 to 253 bytes";
    }

    if (last[-1] == '.') {
        return "a name has no dot at its end";
    }

    labels = 0;

    for (label = p; /* void */ ; label = ++p) {

        for ( /* void */ ; p < last && *p != '.'; p++) {

            if (*p >= 'A' && *p <= 'Z') {
                return "names are written in lower case";
            }

            if (*p == '*') {
                return "\"*.\" can only stand in front of a name, for all "
                       "that end with it";
            }

            if ((*p < 'a' || *p > 'z') && (*p < '0' || *p > '9')
                && *p != '-')
            {
                return "it must be the name of a host, of letters, digits, "
                       "\"-\" and dots: no address, no port, no URL, and an "
                       "international name as \"xn--\"";
            }
        }

        if (p == label || p - label > NGX_HTTP_SANDBOX_EGRESS_LABEL
            || *label == '-' || p[-1] == '-')
        {
            return "between dots there must be 1 to 63 letters, digits and "
                   "\"-\", which neither begins nor ends it";
        }

        labels++;

        if (p == last) {
            break;
        }
    }

    if (ngx_http_sandbox_egress_address(label, last - label)) {
        return "addresses can't be allowed, in no notation: the names of "
               "hosts are";
    }

    if (labels < 2) {
        return "a name has at least one dot, so that it means the same "
               "everywhere, and behind \"*.\" it has, too";
    }

    return NULL;
}


/* a last label of digits, or hexadecimal ones: "1.2.3.4", "0x7f.1" */

static ngx_uint_t
ngx_http_sandbox_egress_address(u_char *label, size_t len)
{
    size_t  i;

    if (len >= 2 && label[0] == '0' && label[1] == 'x') {

        for (i = 2; i < len; i++) {
            if ((label[i] < '0' || label[i] > '9')
                && (label[i] < 'a' || label[i] > 'f'))
            {
                return 0;
            }
        }

        return 1;
    }

    for (i = 0; i < len; i++) {
        if (label[i] < '0' || label[i] > '9') {
            return 0;
        }
    }

    return 1;
}


static char *
ngx_http_sandbox_egress_connections(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    ngx_int_t   n;
    ngx_str_t  *value;

    if (policy->connections != NGX_CONF_UNSET) {
        return ngx_http_sandbox_egress_twice(cf, policy);
    }

    value = cf->args->elts;
    n = ngx_atoi(value[1].data, value[1].len);

    if (n == NGX_ERROR || n < 1 || n > 1024) {
        return ngx_http_sandbox_egress_invalid(cf, policy, &value[1],
                                               "it must be a number from 1 to "
                                               "1024, such as \"32\"");
    }

    policy->connections = n;

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_egress_bytes(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    off_t       size;
    ngx_str_t  *value;

    if (policy->bytes != NGX_CONF_UNSET) {
        return ngx_http_sandbox_egress_twice(cf, policy);
    }

    value = cf->args->elts;
    size = ngx_parse_offset(&value[1]);

    if (size == NGX_ERROR || size < 1024
        || size > (off_t) 1024 * 1024 * 1024 * 1024)
    {
        return ngx_http_sandbox_egress_invalid(cf, policy, &value[1],
                                               "it must be a size from 1k to "
                                               "1024g, such as \"2g\"");
    }

    policy->bytes = size;

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_egress_time(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    ngx_int_t   ms;
    ngx_str_t  *value;

    if (policy->time != NGX_CONF_UNSET_MSEC) {
        return ngx_http_sandbox_egress_twice(cf, policy);
    }

    value = cf->args->elts;
    ms = ngx_parse_time(&value[1], 0);

    if (ms == NGX_ERROR || ms < 1000 || ms > SANDBOX_WIRE_MAX_TIME) {
        return ngx_http_sandbox_egress_invalid(cf, policy, &value[1],
                                               "it must be a time from 1s to "
                                               "1d, such as \"10m\"");
    }

    policy->time = (ngx_msec_t) ms;

    return NGX_CONF_OK;
}


/* https://HOST[:443][/PATH], which every command of the sandbox can read */

static char *
ngx_http_sandbox_egress_index(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    u_char      *p, *last;
    ngx_str_t   *value, host;
    const char  *fault;

    if (policy->index.len) {
        return ngx_http_sandbox_egress_twice(cf, policy);
    }

    value = cf->args->elts;

    if (value[1].len < sizeof("https://x") - 1
        || value[1].len > SANDBOX_WIRE_MAX_INDEX
        || ngx_strncmp(value[1].data, "https://", 8) != 0)
    {
        return ngx_http_sandbox_egress_invalid(cf, policy, &value[1],
                                               "it must be the URL of an "
                                               "index, beginning with "
                                               "\"https://\", of at most "
                                               "1024 bytes");
    }

    ngx_http_sandbox_egress_index_host(&value[1], &host);

    p = host.data + host.len;
    last = value[1].data + value[1].len;

    fault = (host.len && host.data[0] == '*')
            ? "its host must be one name" : ngx_http_sandbox_egress_host(&host);

    if (ngx_strlchr(host.data, p, '@')) {
        fault = "it must have no user and no password, every command of the "
                "sandbox could read them";
    }

    if (fault) {
        return ngx_http_sandbox_egress_invalid(cf, policy, &value[1], fault);
    }

    if (p < last && *p == ':') {

        if (last - p < 4 || ngx_memcmp(p, ":443", 4) != 0
            || (last - p > 4 && p[4] != '/'))
        {
            return ngx_http_sandbox_egress_invalid(cf, policy, &value[1],
                                                   "only port 443 is ever "
                                                   "reached");
        }
    }

    for ( /* void */ ; p < last; p++) {

        if (*p <= ' ' || *p >= 0x7f || ngx_strchr("\"'\\<>^`{|}$?#", *p)) {
            return ngx_http_sandbox_egress_invalid(cf, policy, &value[1],
                                                   "it must have a plain path "
                                                   "and neither a query nor a "
                                                   "fragment");
        }
    }

    policy->index = value[1];
    policy->index_file = cf->conf_file->file.name;
    policy->index_line = cf->conf_file->line;

    return NGX_CONF_OK;
}


/* "allow" may stand behind it, so this waits for the end of the block */

static ngx_int_t
ngx_http_sandbox_egress_index_allowed(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    ngx_str_t         host;
    ngx_conf_file_t  *read, place;

    if (policy->index.len == 0) {
        return NGX_OK;
    }

    ngx_http_sandbox_egress_index_host(&policy->index, &host);

    if (ngx_http_sandbox_egress_allows(policy, &host)) {
        return NGX_OK;
    }

    read = cf->conf_file;
    place = *read;
    place.file.name = policy->index_file;
    place.line = policy->index_line;
    cf->conf_file = &place;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"package_index %V\" in \"sandbox_egress_policy "
                       "%V\" is on a host that the policy does not allow: "
                       "add \"allow %V;\", and the hosts that its files are "
                       "on", &policy->index, &policy->name, &host);

    cf->conf_file = read;

    return NGX_ERROR;
}


/* what is between "https://" and a port or a path */

static void
ngx_http_sandbox_egress_index_host(const ngx_str_t *index, ngx_str_t *host)
{
    size_t  n, len;

    host->data = index->data + 8;
    len = index->len - 8;

    for (n = 0; n < len; n++) {

        if (host->data[n] == '/' || host->data[n] == '?'
            || host->data[n] == '#')
        {
            break;
        }

        /* the colon of "user:password@" is not that of a port */

        if (host->data[n] == ':'
            && ngx_strlchr(host->data + n, host->data + len, '@') == NULL)
        {
            break;
        }
    }

    host->len = n;
}


static ngx_uint_t
ngx_http_sandbox_egress_allows(const ngx_http_sandbox_egress_policy_t *policy,
    const ngx_str_t *host)
{
    size_t       tail;
    ngx_str_t   *allowed;
    ngx_uint_t   i;

    allowed = policy->hosts.elts;

    for (i = 0; i < policy->hosts.nelts; i++) {

        if (allowed[i].data[0] == '*') {

            tail = allowed[i].len - 1;

            if (host->len > tail
                && ngx_memcmp(host->data + host->len - tail,
                              allowed[i].data + 1, tail)
                   == 0)
            {
                return 1;
            }

        } else if (allowed[i].len == host->len
                   && ngx_memcmp(allowed[i].data, host->data, host->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static char *
ngx_http_sandbox_egress_ca(ngx_conf_t *cf,
    ngx_http_sandbox_egress_policy_t *policy)
{
    ngx_str_t   *value, pem;
    const char  *fault;

    static ngx_command_t  cmd = {
        ngx_string("sandbox_egress_policy"), 0, NULL, 0, 0, NULL
    };

    if (policy->ca_file.len) {
        return ngx_http_sandbox_egress_twice(cf, policy);
    }

    value = cf->args->elts;

    if (ngx_http_sandbox_conf_read_file(cf, &cmd, &value[1],
                                        SANDBOX_WIRE_MAX_CA, 0, &pem)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    fault = ngx_http_sandbox_egress_certificates(cf, &pem, &policy->ca);

    ngx_explicit_memzero(pem.data, pem.len);
    ERR_clear_error();

    if (fault) {
        return ngx_http_sandbox_egress_invalid(cf, policy, &value[1], fault);
    }

    policy->ca_file = value[1];

    return NGX_CONF_OK;
}


/*
 * Its certificates, written anew: what else is in the file does not go into
 * sandboxes.  NULL, or what is wrong.
 */

static const char *
ngx_http_sandbox_egress_certificates(ngx_conf_t *cf, ngx_str_t *pem,
    ngx_str_t *ca)
{
    BIO         *in, *out;
    X509        *cert;
    char        *data;
    long         len;
    ngx_uint_t   n;
    const char  *fault;

    if (ngx_strlcasestrn(pem->data, pem->data + pem->len,
                         (u_char *) "PRIVATE KEY-----", 15)
        != NULL)
    {
        return "there is a private key in it, and every sandbox could read "
               "what the file has: it must be certificates alone";
    }

    in = BIO_new_mem_buf(pem->data, (int) pem->len);
    out = BIO_new(BIO_s_mem());
    fault = (in == NULL || out == NULL) ? "there is no memory for it" : NULL;

    /* each takes a part of the file, which is bounded */

    for (n = 0; fault == NULL; n++) {

        ERR_clear_error();
        cert = PEM_read_bio_X509(in, NULL, NULL, NULL);

        if (cert == NULL) {
            break;
        }

        if (!PEM_write_bio_X509(out, cert)) {
            fault = "it could not be taken over";
        }

        X509_free(cert);
    }

    if (fault == NULL
        && (n == 0
            || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE))
    {
        fault = "it must be certificates in PEM, and each of them must be "
                "whole";
    }

    if (fault == NULL) {
        len = BIO_get_mem_data(out, &data);

        if (len <= 0 || len > SANDBOX_WIRE_MAX_CA) {
            fault = "its certificates have more than 512 KiB";

        } else {
            ca->len = (size_t) len;
            ca->data = ngx_pnalloc(cf->pool, ca->len);

            if (ca->data == NULL) {
                fault = "there is no memory for it";

            } else {
                ngx_memcpy(ca->data, data, ca->len);
            }
        }
    }

    BIO_free(out);
    BIO_free(in);

    return fault;
}


static int ngx_libc_cdecl
ngx_http_sandbox_egress_cmp(const void *one, const void *two)
{
    const ngx_str_t  *first, *second;

    first = one;
    second = two;

    return (int) ngx_memn2cmp(first->data, second->data, first->len,
                              second->len);
}
