/*
 * The fields of a command's JSON onto the wire: stdin, the head, and the
 * digest by which a repeated command id is known.  May run in a thread, see
 * ngx_http_sandbox_request_parse().  Knows nothing of JSON's text.
 */

#include "ngx_http_sandbox.h"

#include <openssl/evp.h>


static ngx_int_t ngx_http_sandbox_head_base64(ngx_http_sandbox_request_t *req,
    const u_char *src, size_t len);
static ngx_int_t ngx_http_sandbox_head_fields(ngx_http_sandbox_request_t *req,
    const char **names, size_t n, size_t size);
static ngx_uint_t ngx_http_sandbox_head_open(ngx_http_sandbox_request_t *req);
static ngx_int_t ngx_http_sandbox_head_digest(ngx_http_sandbox_request_t *req,
    const char **names, size_t n, u_char *digest);
static int ngx_libc_cdecl ngx_http_sandbox_head_compare(const void *one,
    const void *two);


ngx_int_t
ngx_http_sandbox_head_stdin(ngx_http_sandbox_request_t *req)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (req->input) {
        req->stdin_data.data = (u_char *) json_string_value(req->input);
        req->stdin_data.len = json_string_length(req->input);
    }

    if (req->input_base64) {
        rc = ngx_http_sandbox_head_base64(req,
                                 (u_char *) json_string_value(
                                                req->input_base64),
                                 json_string_length(req->input_base64));
        if (rc != NGX_OK) {
            return rc;
        }
    }

    slcf = ngx_http_get_module_loc_conf(req->r, ngx_http_sandbox_module);

    if ((off_t) req->stdin_data.len > ngx_http_sandbox_max_stdin(slcf)) {

        if (ngx_http_sandbox_refuse_format(req->r, req->ctx,
                                           NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                           "body_too_large",
                                           "stdin may have at most %O bytes, "
                                           "this one has %uz.",
                                           ngx_http_sandbox_max_stdin(slcf),
                                           req->stdin_data.len)
            == NGX_ERROR)
        {
            return NGX_ERROR;
        }

        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* canonical only: the alphabet, padding to a multiple of four, no stray bits */

static ngx_int_t
ngx_http_sandbox_head_base64(ngx_http_sandbox_request_t *req, const u_char *src,
    size_t len)
{
    size_t      i, pad;
    u_char      c;
    ngx_str_t   text;
    ngx_uint_t  bad;

    static const char  alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    pad = 0;

    while (pad < 2 && pad < len && src[len - 1 - pad] == '=') {
        pad++;
    }

    bad = len % 4;

    for (i = 0; i < len - pad; i++) {
        c = src[i];

        bad |= !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
                 || (c >= '0' && c <= '9') || c == '+' || c == '/');
    }

    if (!bad && pad) {
        c = (u_char) ((u_char *) ngx_strchr(alphabet, src[len - 1 - pad])
                      - (u_char *) alphabet);
        bad = c & (pad == 1 ? 0x03 : 0x0f);
    }

    if (bad) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be canonical base64, "
                                    "padded with \"=\".", "stdinBase64");
    }

    text.data = (u_char *) src;
    text.len = len;

    req->stdin_data.data = ngx_pnalloc(req->r->pool,
                                       ngx_base64_decoded_length(len) + 1);
    if (req->stdin_data.data == NULL) {
        return NGX_ERROR;
    }

    if (ngx_decode_base64(&req->stdin_data, &text) != NGX_OK) {
        return ngx_http_sandbox_bad(req, "\"%s\" must be canonical base64.",
                                    "stdinBase64");
    }

    /* not held, too, for as long as the command takes */

    req->input_base64 = NULL;
    req->encoded = 1;
    (void) json_object_del(req->root, "stdinBase64");

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_head_write(ngx_http_sandbox_request_t *req)
{
    size_t                        n, size;
    json_t                       *value;
    uint64_t                      wall;
    const char                  **names, *name;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(req->r, ngx_http_sandbox_module);
    ctx = req->ctx;

    wall = req->background ? slcf->caps.background_time
                           : slcf->caps.wall_time;

    if (req->timeout
        && (uint64_t) json_integer_value(req->timeout) <= wall / 1000)
    {
        wall = (uint64_t) json_integer_value(req->timeout) * 1000;
    }

    ctx->wall_time = (ngx_msec_t) wall;
    ctx->background = req->background;

    /* fixed fields take less than 512 bytes */

    size = 512 + json_string_length(req->command)
           + json_string_length(req->cwd)
           + json_string_length(req->command_id);

    names = ngx_palloc(req->r->pool,
                       (json_object_size(req->env) + 1) * sizeof(char *));
    if (names == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    json_object_foreach(req->env, name, value) {
        size += SANDBOX_WIRE_FIELD_SIZE + ngx_strlen(name) + 1
                + json_string_length(value);
        names[n++] = name;
    }

    if (size > SANDBOX_WIRE_MAX_HEAD) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                "body_too_large",
                                "Command and environment are too large "
                                "together, at most 768 KiB.");
        return NGX_DECLINED;
    }

    ngx_qsort(names, n, sizeof(char *), ngx_http_sandbox_head_compare);

    return ngx_http_sandbox_head_fields(req, names, n, size);
}


static ngx_int_t
ngx_http_sandbox_head_fields(ngx_http_sandbox_request_t *req,
    const char **names, size_t n, size_t size)
{
    size_t                        i;
    u_char                       *p, digest[SANDBOX_WIRE_DIGEST_SIZE];
    json_t                       *value;
    sandbox_writer_t              w;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_caps_t      *caps;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(req->r, ngx_http_sandbox_module);
    caps = &slcf->caps;
    ctx = req->ctx;

    if (ngx_http_sandbox_head_digest(req, names, n, digest) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->wire.head.data = ngx_pnalloc(req->r->pool,
                                      SANDBOX_WIRE_PREAMBLE_SIZE + size);
    p = n ? ngx_pnalloc(req->r->pool, SANDBOX_WIRE_MAX_ENV + 1) : NULL;

    if (ctx->wire.head.data == NULL || (n && p == NULL)) {
        return NGX_ERROR;
    }

    ctx->wire.head.data += SANDBOX_WIRE_PREAMBLE_SIZE;

    sandbox_writer_init(&w, ctx->wire.head.data, size);

    sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND,
                        json_string_value(req->command),
                        json_string_length(req->command));

    if (req->cwd) {
        ctx->cwd.len = json_string_length(req->cwd);
        ctx->cwd.data = (u_char *) json_string_value(req->cwd);

        sandbox_write_bytes(&w, SANDBOX_TAG_CWD, ctx->cwd.data, ctx->cwd.len);
    }

    for (i = 0; i < n; i++) {
        value = json_object_get(req->env, names[i]);

        sandbox_write_bytes(&w, SANDBOX_TAG_ENV, p,
                            ngx_sprintf(p, "%s=%s", names[i],
                                        json_string_value(value)) - p);
    }

    if (p) {
        ngx_pfree(req->r->pool, p);
    }

    if (req->command_id) {
        ctx->command_id.len = json_string_length(req->command_id);
        ctx->command_id.data = (u_char *) json_string_value(req->command_id);

        sandbox_write_bytes(&w, SANDBOX_TAG_COMMAND_ID, ctx->command_id.data,
                            ctx->command_id.len);
    }

    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, ctx->wall_time);
    sandbox_write_number(&w, SANDBOX_TAG_CPU_MS, caps->cpu_time);
    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT, caps->output);
    sandbox_write_number(&w, SANDBOX_TAG_OUTPUT_TOTAL, caps->output_total);
    sandbox_write_number(&w, SANDBOX_TAG_OPEN_FILES, caps->open_files);
    sandbox_write_number(&w, SANDBOX_TAG_PENDING, caps->pending);
    sandbox_write_bytes(&w, SANDBOX_TAG_DIGEST, digest,
                        SANDBOX_WIRE_DIGEST_SIZE);

    if (ctx->stream) {
        sandbox_write_number(&w, SANDBOX_TAG_STREAM, 1);
    }

    if (req->background) {
        sandbox_write_number(&w, SANDBOX_TAG_DETACH, 1);
    }

    if (ngx_http_sandbox_head_open(req)) {
        sandbox_write_number(&w, SANDBOX_TAG_STDIN_OPEN, 1);
    }

    if (req->label.len) {
        sandbox_write_bytes(&w, SANDBOX_TAG_LABEL, req->label.data,
                            req->label.len);
    }

    if (w.failed) {
        return NGX_ERROR;
    }

    ctx->wire.head.len = w.pos - w.start;

    return NGX_OK;
}


/*
 * Somebody may still type: as the request says; without a word of its own,
 * when it brings no stdin and its command outlives the answer or can be named
 * while it runs.
 */

static ngx_uint_t
ngx_http_sandbox_head_open(ngx_http_sandbox_request_t *req)
{
    if (req->stdin_open) {
        return json_is_true(req->stdin_open);
    }

    if (req->input || req->encoded) {
        return 0;
    }

    return req->background || (req->ctx->stream && req->command_id);
}


/*
 * Of what the request means, not of its spelling: the same command id with
 * the same digest attaches.  Every part has its length before it.
 */

static ngx_int_t
ngx_http_sandbox_head_digest(ngx_http_sandbox_request_t *req,
    const char **names, size_t n, u_char *digest)
{
    size_t       i;
    u_char       number[8];
    json_t      *value;
    uint64_t     timeout;
    EVP_MD_CTX  *md;
    ngx_int_t    rc;

#define ngx_http_sandbox_digest_number(v)                                    \
    (sandbox_put64(number, v), EVP_DigestUpdate(md, number, 8))

#define ngx_http_sandbox_digest_bytes(p, len)                                \
    (ngx_http_sandbox_digest_number(len) && EVP_DigestUpdate(md, p, len))

    /* as asked for: the cap may be another one after a reload */

    timeout = req->timeout ? (uint64_t) json_integer_value(req->timeout) : 0;

    md = EVP_MD_CTX_new();
    if (md == NULL) {
        return NGX_ERROR;
    }

    rc = EVP_DigestInit_ex(md, EVP_sha256(), NULL)
         && ngx_http_sandbox_digest_bytes(json_string_value(req->command),
                                          json_string_length(req->command))
         && ngx_http_sandbox_digest_bytes(req->cwd
                                          ? json_string_value(req->cwd) : "",
                                          json_string_length(req->cwd))
         && ngx_http_sandbox_digest_number(timeout)
         && ngx_http_sandbox_digest_number(req->fresh)
         && ngx_http_sandbox_digest_bytes(req->stdin_data.data,
                                          req->stdin_data.len)
         && ngx_http_sandbox_digest_number(n);

    for (i = 0; rc && i < n; i++) {
        value = json_object_get(req->env, names[i]);

        rc = ngx_http_sandbox_digest_bytes(names[i], ngx_strlen(names[i]))
             && ngx_http_sandbox_digest_bytes(json_string_value(value),
                                              json_string_length(value));
    }

    /* only where it is said: ids of an earlier release stay comparable */

    if (req->background || req->stdin_open) {
        rc = rc && ngx_http_sandbox_digest_number(req->background)
             && ngx_http_sandbox_digest_number(req->stdin_open == NULL ? 2
                                       : json_is_true(req->stdin_open));
    }

    rc = rc && EVP_DigestFinal_ex(md, digest, NULL);

    EVP_MD_CTX_free(md);

    return rc ? NGX_OK : NGX_ERROR;
}


static int ngx_libc_cdecl
ngx_http_sandbox_head_compare(const void *one, const void *two)
{
    return ngx_strcmp(*(const char *const *) one, *(const char *const *) two);
}
