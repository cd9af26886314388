/*
 * When all of "http" is read: names become policies, and the policies one
 * table, in an order of its own, so that the same ones always have the same
 * digest.  Runs nothing at request time.
 */

#include "ngx_http_sandbox_dagger.h"
#include "ngx_http_sandbox_egress.h"

#include <openssl/sha.h>


#define NGX_HTTP_SANDBOX_EGRESS_FIELD  6         /* tag and length */


static ngx_int_t ngx_http_sandbox_egress_uses(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf);
static ngx_int_t ngx_http_sandbox_egress_use(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_egress_t *use);
static ngx_int_t ngx_http_sandbox_egress_served(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_egress_t *use);
static void ngx_http_sandbox_egress_warn(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *slcf);
static ngx_int_t ngx_http_sandbox_egress_table(ngx_conf_t *cf,
    ngx_http_sandbox_egresses_t *egress);
static void ngx_http_sandbox_egress_too_large(ngx_conf_t *cf,
    const ngx_http_sandbox_egress_policy_t *policy);
static size_t ngx_http_sandbox_egress_size(
    const ngx_http_sandbox_egress_policy_t *policy);
static void ngx_http_sandbox_egress_write(sandbox_writer_t *w,
    const ngx_http_sandbox_egress_policy_t *policy);
static int ngx_libc_cdecl ngx_http_sandbox_egress_order(const void *one,
    const void *two);


ngx_int_t
ngx_http_sandbox_egress_init(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_uint_t                     i;
    ngx_http_sandbox_loc_conf_t  **served;

    if (smcf->egress == NULL) {
        return NGX_OK;
    }

    if (ngx_http_sandbox_egress_uses(cf, smcf) != NGX_OK) {
        return NGX_ERROR;
    }

    served = smcf->egress->served.elts;

    for (i = 0; i < smcf->egress->served.nelts; i++) {
        ngx_http_sandbox_egress_warn(cf, served[i]);
    }

    return ngx_http_sandbox_egress_table(cf, smcf->egress);
}


/* what it can't promise is told where "sandbox_egress" stands */

static void
ngx_http_sandbox_egress_warn(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *slcf)
{
    ngx_conf_file_t  *read, place;

    read = cf->conf_file;
    place = *read;
    place.file.name = slcf->egress->file;
    place.line = slcf->egress->line;
    cf->conf_file = &place;

    ngx_http_sandbox_dagger_egress_check(cf, slcf);

    cf->conf_file = read;
}


ngx_int_t
ngx_http_sandbox_egress_serves(ngx_http_sandbox_loc_conf_t *conf)
{
    ngx_http_sandbox_loc_conf_t  **served;

    if (conf->egress == NULL) {
        return NGX_OK;
    }

    served = ngx_array_push(&conf->main->egress->served);
    if (served == NULL) {
        return NGX_ERROR;
    }

    *served = conf;

    return NGX_OK;
}


/* faults are told where "sandbox_egress" stands */

static ngx_int_t
ngx_http_sandbox_egress_uses(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    ngx_conf_file_t             *read, place;
    ngx_http_sandbox_egress_t  **use;

    use = smcf->egress->uses.elts;

    for (i = 0; i < smcf->egress->uses.nelts; i++) {

        read = cf->conf_file;
        place = *read;
        place.file.name = use[i]->file;
        place.line = use[i]->line;
        cf->conf_file = &place;

        rc = ngx_http_sandbox_egress_use(cf, smcf, use[i]);

        cf->conf_file = read;

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_egress_use(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_egress_t *use)
{
    if (use->value.data[0] == '$') {

        if (ngx_http_sandbox_egress_source(cf, smcf, use) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_http_sandbox_egress_served(cf, smcf, use);
    }

    if (ngx_http_sandbox_egress_is_none(&use->value)) {
        return NGX_OK;
    }

    use->policy = ngx_http_sandbox_egress_find(smcf->egress, &use->value);

    if (use->policy == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sandbox_egress %V\" names a policy that there "
                           "is not: add \"sandbox_egress_policy %V { ... }\" "
                           "to \"http\"", &use->value, &use->value);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* a conversation's id is the client's choice, but where the token says it */

static ngx_int_t
ngx_http_sandbox_egress_served(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_egress_t *use)
{
    ngx_uint_t                     i;
    ngx_http_sandbox_loc_conf_t  **served;

    if (!use->conversation) {
        return NGX_OK;
    }

    served = smcf->egress->served.elts;

    for (i = 0; i < smcf->egress->served.nelts; i++) {

        if (served[i]->egress == use
            && served[i]->conversation_claim.path == NULL)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"sandbox_egress %V\" depends on "
                               "$sandbox_conversation, which clients choose "
                               "at will in location \"%V\": add "
                               "\"sandbox_conversation_claim\" there, or use "
                               "$sandbox_tenant or $sandbox_user",
                               &use->value, &served[i]->prefix);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_egress_table(ngx_conf_t *cf,
    ngx_http_sandbox_egresses_t *egress)
{
    size_t                              size;
    ngx_uint_t                          i;
    sandbox_writer_t                    w;
    ngx_http_sandbox_egress_policy_t  **policy;

    ngx_qsort(egress->policies.elts, egress->policies.nelts,
              sizeof(ngx_http_sandbox_egress_policy_t *),
              ngx_http_sandbox_egress_order);

    policy = egress->policies.elts;
    size = 0;

    for (i = 0; i < egress->policies.nelts; i++) {
        if (policy[i]->id == 0) {
            continue;
        }

        size += NGX_HTTP_SANDBOX_EGRESS_FIELD
                + ngx_http_sandbox_egress_size(policy[i]);

        if (size > SANDBOX_WIRE_MAX_TABLE) {
            ngx_http_sandbox_egress_too_large(cf, policy[i]);
            return NGX_ERROR;
        }
    }

    egress->table.data = ngx_pnalloc(cf->pool, size + 1);
    if (egress->table.data == NULL) {
        return NGX_ERROR;
    }

    sandbox_writer_init(&w, egress->table.data, size);

    for (i = 0; i < egress->policies.nelts; i++) {
        if (policy[i]->id) {
            ngx_http_sandbox_egress_write(&w, policy[i]);
        }
    }

    if (w.failed || (size_t) (w.pos - w.start) != size) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the table of \"sandbox_egress_policy\" has not the "
                           "size that was counted");
        return NGX_ERROR;
    }

    egress->table.len = size;

    SHA256(egress->table.data, size, egress->digest);

    return NGX_OK;
}


static void
ngx_http_sandbox_egress_too_large(ngx_conf_t *cf,
    const ngx_http_sandbox_egress_policy_t *policy)
{
    ngx_conf_file_t  *read, place;

    read = cf->conf_file;
    place = *read;
    place.file.name = policy->file;
    place.line = policy->line;
    cf->conf_file = &place;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"sandbox_egress_policy %V\" has no room: all of them "
                       "have at most %d bytes with their \"ca_certificate\", "
                       "leave out what is not needed", &policy->name,
                       SANDBOX_WIRE_MAX_TABLE);

    cf->conf_file = read;
}


static size_t
ngx_http_sandbox_egress_size(const ngx_http_sandbox_egress_policy_t *policy)
{
    size_t      size;
    ngx_str_t  *host;
    ngx_uint_t  i;

    /* id and three caps are numbers */

    size = 4 * (NGX_HTTP_SANDBOX_EGRESS_FIELD + 8)
           + NGX_HTTP_SANDBOX_EGRESS_FIELD + policy->name.len;

    host = policy->hosts.elts;

    for (i = 0; i < policy->hosts.nelts; i++) {
        size += NGX_HTTP_SANDBOX_EGRESS_FIELD + host[i].len;
    }

    if (policy->index.len) {
        size += NGX_HTTP_SANDBOX_EGRESS_FIELD + policy->index.len;
    }

    if (policy->ca.len) {
        size += NGX_HTTP_SANDBOX_EGRESS_FIELD + policy->ca.len;
    }

    return size;
}


static void
ngx_http_sandbox_egress_write(sandbox_writer_t *w,
    const ngx_http_sandbox_egress_policy_t *policy)
{
    size_t            size;
    ngx_str_t        *host;
    ngx_uint_t        i;

    size = ngx_http_sandbox_egress_size(policy);

    if ((size_t) (w->end - w->pos) < NGX_HTTP_SANDBOX_EGRESS_FIELD + size) {
        w->failed = 1;
        return;
    }

    sandbox_put16(w->pos, SANDBOX_TAG_EGRESS_POLICY);
    sandbox_put32(w->pos + 2, (uint32_t) size);
    w->pos += NGX_HTTP_SANDBOX_EGRESS_FIELD;

    sandbox_write_number(w, SANDBOX_TAG_EGRESS_ID, policy->id);
    sandbox_write_bytes(w, SANDBOX_TAG_EGRESS_NAME, policy->name.data,
                        policy->name.len);

    host = policy->hosts.elts;

    for (i = 0; i < policy->hosts.nelts; i++) {
        sandbox_write_bytes(w, SANDBOX_TAG_EGRESS_HOST, host[i].data,
                            host[i].len);
    }

    sandbox_write_number(w, SANDBOX_TAG_EGRESS_CONNECTIONS,
                         (uint64_t) policy->connections);
    sandbox_write_number(w, SANDBOX_TAG_EGRESS_BYTES,
                         (uint64_t) policy->bytes);
    sandbox_write_number(w, SANDBOX_TAG_EGRESS_TIME_MS, policy->time);

    if (policy->index.len) {
        sandbox_write_bytes(w, SANDBOX_TAG_EGRESS_INDEX, policy->index.data,
                            policy->index.len);
    }

    if (policy->ca.len) {
        sandbox_write_bytes(w, SANDBOX_TAG_EGRESS_CA, policy->ca.data,
                            policy->ca.len);
    }
}


static int ngx_libc_cdecl
ngx_http_sandbox_egress_order(const void *one, const void *two)
{
    const ngx_http_sandbox_egress_policy_t  *first, *second;

    first = *(ngx_http_sandbox_egress_policy_t *const *) one;
    second = *(ngx_http_sandbox_egress_policy_t *const *) two;

    return (int) ngx_memn2cmp(first->name.data, second->name.data,
                              first->name.len, second->name.len);
}
