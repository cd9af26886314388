/*
 * What the variable of "sandbox_egress" is made of.  It must be what a verified
 * token says, or a map of that, or a client would choose its own policy.  nginx
 * tells nobody what a map is made of: how this nginx has them is learned from
 * one of our own, and where that is not what is expected, none is taken.
 */

#include "ngx_http_sandbox_egress.h"


#define NGX_HTTP_SANDBOX_EGRESS_DEPTH  8         /* maps of maps */


/* the beginning of what ngx_http_map_module keeps of a map */

typedef struct {
    ngx_http_map_t                 map;
    ngx_http_complex_value_t       value;        /* what is looked up */
    ngx_http_variable_value_t     *default_value;
} ngx_http_sandbox_egress_map_t;


typedef struct {
    ngx_conf_t                    *cf;
    ngx_http_sandbox_main_conf_t  *main;
    ngx_http_sandbox_egress_t     *use;
    ngx_http_get_variable_pt       handler;      /* of each map */
    ngx_uint_t                     depth;
} ngx_http_sandbox_egress_source_t;


static const ngx_http_variable_t *ngx_http_sandbox_egress_variable(
    ngx_conf_t *cf, ngx_str_t *name);
static ngx_uint_t ngx_http_sandbox_egress_has_maps(ngx_conf_t *cf);
static ngx_int_t ngx_http_sandbox_egress_learn(
    ngx_http_sandbox_egress_source_t *source);
static ngx_uint_t ngx_http_sandbox_egress_expected(
    const ngx_http_variable_t *v);
static ngx_int_t ngx_http_sandbox_egress_named(
    ngx_http_sandbox_egress_source_t *source, ngx_str_t *name,
    const ngx_http_variable_t **found);
static ngx_int_t ngx_http_sandbox_egress_mapped(
    ngx_http_sandbox_egress_source_t *source, ngx_str_t *name,
    const ngx_http_sandbox_egress_map_t *map);
static ngx_int_t ngx_http_sandbox_egress_text(
    ngx_http_sandbox_egress_source_t *source, const ngx_str_t *text);
static ngx_int_t ngx_http_sandbox_egress_value(
    ngx_http_sandbox_egress_source_t *source, ngx_str_t *name,
    const ngx_http_variable_value_t *value);


static u_char  ngx_http_sandbox_egress_example[] =
    "map $sandbox_tenant $sandbox_egress__map { default a; key b; } }";


ngx_int_t
ngx_http_sandbox_egress_source(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_egress_t *use)
{
    size_t                             i;
    ngx_str_t                          name;
    ngx_http_sandbox_egress_source_t   source;

    name.data = use->value.data + 1;
    name.len = use->value.len - 1;

    if (name.len > 2 && name.data[0] == '{'
        && name.data[name.len - 1] == '}')
    {
        name.data++;
        name.len -= 2;
    }

    for (i = 0; i < name.len; i++) {
        if (!isalnum(name.data[i]) && name.data[i] != '_') {
            break;
        }
    }

    if (name.len == 0 || i < name.len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"sandbox_egress\" "
                           "directive, it must be a variable alone, such as "
                           "\"$sandbox_tenant\"", &use->value);
        return NGX_ERROR;
    }

    ngx_memzero(&source, sizeof(ngx_http_sandbox_egress_source_t));

    source.cf = cf;
    source.main = smcf;
    source.use = use;

    return ngx_http_sandbox_egress_named(&source, &name, &use->variable);
}


/* NGX_OK: what this variable has is no client's choice */

static ngx_int_t
ngx_http_sandbox_egress_named(ngx_http_sandbox_egress_source_t *source,
    ngx_str_t *name, const ngx_http_variable_t **found)
{
    ngx_int_t                   rc;
    ngx_uint_t                  i;
    const ngx_http_variable_t  *v;

    static const struct {
        ngx_str_t   name;
        ngx_uint_t  conversation;
    } trusted[] = {
        { ngx_string("sandbox_tenant"), 0 },
        { ngx_string("sandbox_user"), 0 },
        { ngx_string("sandbox_conversation"), 1 },
        { ngx_null_string, 0 }
    };

    v = ngx_http_sandbox_egress_variable(source->cf, name);

    if (found) {
        *found = v;
    }

    for (i = 0; v && trusted[i].name.len; i++) {

        if (trusted[i].name.len == name->len
            && ngx_strncasecmp(trusted[i].name.data, name->data, name->len)
               == 0)
        {
            source->use->conversation |= trusted[i].conversation;
            return NGX_OK;
        }
    }

    if (v && ngx_http_sandbox_egress_learn(source) != NGX_OK) {
        return NGX_ERROR;
    }

    if (v == NULL || source->handler == NULL
        || v->get_handler != source->handler)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, source->cf, 0,
                           "\"sandbox_egress %V\" depends on \"$%V\", which is "
                           "not known to come from a verified token: it must "
                           "be $sandbox_tenant or $sandbox_user, or a \"map\" "
                           "of them", &source->use->value, name);
        return NGX_ERROR;
    }

    if (source->depth == NGX_HTTP_SANDBOX_EGRESS_DEPTH) {
        ngx_conf_log_error(NGX_LOG_EMERG, source->cf, 0,
                           "\"sandbox_egress %V\" depends on \"$%V\" over more "
                           "than %d maps", &source->use->value, name,
                           NGX_HTTP_SANDBOX_EGRESS_DEPTH);
        return NGX_ERROR;
    }

    source->depth++;

    rc = ngx_http_sandbox_egress_mapped(source, name,
                                (ngx_http_sandbox_egress_map_t *) v->data);
    source->depth--;

    return rc;
}


static const ngx_http_variable_t *
ngx_http_sandbox_egress_variable(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_hash_key_t             *key;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    key = cmcf->variables_keys->keys.elts;

    for (i = 0; i < cmcf->variables_keys->keys.nelts; i++) {
        if (key[i].key.len == name->len
            && ngx_strncasecmp(key[i].key.data, name->data, name->len) == 0)
        {
            return key[i].value;
        }
    }

    return NULL;
}


/* NGX_OK with a handler, or without one: then nothing is a map */

static ngx_int_t
ngx_http_sandbox_egress_learn(ngx_http_sandbox_egress_source_t *source)
{
    size_t                      size;
    ngx_str_t                   name = ngx_string("sandbox_egress__map");
    ngx_buf_t                   b;
    ngx_conf_t                  cf;
    ngx_conf_file_t             file;
    const ngx_http_variable_t  *v;

    if (source->handler) {
        return NGX_OK;
    }

    v = ngx_http_sandbox_egress_variable(source->cf, &name);

    if (v == NULL && ngx_http_sandbox_egress_has_maps(source->cf)) {

        size = sizeof(ngx_http_sandbox_egress_example) - 1;

        ngx_memzero(&b, sizeof(ngx_buf_t));

        b.start = ngx_pnalloc(source->cf->pool, size);
        if (b.start == NULL) {
            return NGX_ERROR;
        }

        b.pos = b.start;
        b.last = ngx_cpymem(b.start, ngx_http_sandbox_egress_example, size);
        b.end = b.last;
        b.temporary = 1;

        /* it ends with a "}", so nothing is ever read from a file */

        file = *source->cf->conf_file;
        file.buffer = &b;
        file.dump = NULL;
        file.file.fd = 0;
        file.file.offset = 0;

        cf = *source->cf;
        cf.conf_file = &file;
        cf.handler = NULL;
        cf.handler_conf = NULL;
        cf.module_type = NGX_HTTP_MODULE;
        cf.cmd_type = NGX_HTTP_MAIN_CONF;
        cf.args = ngx_array_create(cf.pool, 10, sizeof(ngx_str_t));

        if (cf.args == NULL || ngx_conf_parse(&cf, NULL) != NGX_CONF_OK) {
            return NGX_ERROR;
        }

        v = ngx_http_sandbox_egress_variable(source->cf, &name);
    }

    if (v && ngx_http_sandbox_egress_expected(v)) {
        source->handler = v->get_handler;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_sandbox_egress_has_maps(ngx_conf_t *cf)
{
    ngx_uint_t     i;
    ngx_module_t  *module;

    for (i = 0; cf->cycle->modules[i]; i++) {
        module = cf->cycle->modules[i];

        if (module->name
            && ngx_strcmp(module->name, "ngx_http_map_module") == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* whether what is kept of our own map is where we look for it */

static ngx_uint_t
ngx_http_sandbox_egress_expected(const ngx_http_variable_t *v)
{
    u_char                           key[] = "key";
    ngx_http_variable_value_t       *value;
    ngx_http_sandbox_egress_map_t   *map;

    map = (ngx_http_sandbox_egress_map_t *) v->data;

    if (v->get_handler == NULL || map == NULL
        || map->value.value.len != sizeof("$sandbox_tenant") - 1
        || ngx_strncmp(map->value.value.data, "$sandbox_tenant",
                       sizeof("$sandbox_tenant") - 1)
           != 0
        || map->value.lengths == NULL
        || map->map.hash.hash.size == 0
        || map->map.hash.wc_head || map->map.hash.wc_tail)
    {
        return 0;
    }

    value = map->default_value;

    if (value == NULL || !value->valid || value->len != 1
        || value->data[0] != 'a')
    {
        return 0;
    }

    value = ngx_hash_find(&map->map.hash.hash, ngx_hash_key_lc(key, 3), key,
                          3);

    return value && value->valid && value->len == 1 && value->data[0] == 'b';
}


static ngx_int_t
ngx_http_sandbox_egress_mapped(ngx_http_sandbox_egress_source_t *source,
    ngx_str_t *name, const ngx_http_sandbox_egress_map_t *map)
{
    ngx_uint_t         i;
    ngx_hash_elt_t    *elt;
    const ngx_hash_t  *hash;

    if (map->map.hash.wc_head || map->map.hash.wc_tail) {
        ngx_conf_log_error(NGX_LOG_EMERG, source->cf, 0,
                           "\"sandbox_egress %V\" depends on the map of "
                           "\"$%V\", which has \"hostnames\": use regular "
                           "expressions instead", &source->use->value, name);
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_egress_text(source, &map->value.value) != NGX_OK
        || ngx_http_sandbox_egress_value(source, name, map->default_value)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    hash = &map->map.hash.hash;

    for (i = 0; hash->buckets && i < hash->size; i++) {

        for (elt = hash->buckets[i]; elt && elt->value; /* void */ ) {

            if (ngx_http_sandbox_egress_value(source, name, elt->value)
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            elt = (ngx_hash_elt_t *) ngx_align_ptr(&elt->name[0] + elt->len,
                                                   sizeof(void *));
        }
    }

#if (NGX_PCRE)

    for (i = 0; i < map->map.nregex; i++) {
        if (ngx_http_sandbox_egress_value(source, name,
                                          map->map.regex[i].value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

#endif

    return NGX_OK;
}


/* each variable in a text; digits are parts of what was looked up */

static ngx_int_t
ngx_http_sandbox_egress_text(ngx_http_sandbox_egress_source_t *source,
    const ngx_str_t *text)
{
    u_char     *p, *last;
    ngx_str_t   name;

    p = text->data;
    last = p + text->len;

    while (p < last) {

        if (*p++ != '$') {
            continue;
        }

        if (p < last && *p == '{') {
            p++;
        }

        for (name.data = p; p < last; p++) {
            if (!isalnum(*p) && *p != '_') {
                break;
            }
        }

        name.len = p - name.data;

        if (name.len == 0 || isdigit(name.data[0])) {
            continue;
        }

        if (ngx_http_sandbox_egress_named(source, &name, NULL) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* a variable in it, or, of the outermost map, a policy */

static ngx_int_t
ngx_http_sandbox_egress_value(ngx_http_sandbox_egress_source_t *source,
    ngx_str_t *name, const ngx_http_variable_value_t *value)
{
    ngx_str_t                  text;
    ngx_http_complex_value_t  *complex;

    if (!value->valid) {
        complex = (ngx_http_complex_value_t *) value->data;
        return complex ? ngx_http_sandbox_egress_text(source, &complex->value)
                       : NGX_OK;
    }

    text.data = value->data;
    text.len = value->len;

    if (source->depth > 1 || text.len == 0
        || ngx_http_sandbox_egress_is_none(&text)
        || ngx_http_sandbox_egress_find(source->main->egress, &text))
    {
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, source->cf, 0,
                       "the map of \"sandbox_egress $%V\" has \"%V\", which is "
                       "no \"sandbox_egress_policy\"; \"none\" means no "
                       "network", name, &text);

    return NGX_ERROR;
}
