/*
 * A compact JWS taken apart, strictly: what is not in the one canonical form
 * is refused here, before a library sees it.  Knows no keys and no claims.
 */

#include "sandbox_jose_core.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>


static sandbox_jose_status_t sandbox_jose_split(sandbox_jose_parts_t *parts);
static sandbox_jose_status_t sandbox_jose_header(sandbox_jose_parts_t *parts);
static int sandbox_jose_type(sandbox_jose_parts_t *parts);


static int
sandbox_jose_sextet(uint8_t ch)
{
    if (ch >= 'A' && ch <= 'Z') {
        return ch - 'A';
    }

    if (ch >= 'a' && ch <= 'z') {
        return ch - 'a' + 26;
    }

    if (ch >= '0' && ch <= '9') {
        return ch - '0' + 52;
    }

    if (ch == '-') {
        return 62;
    }

    return ch == '_' ? 63 : -1;
}


int64_t
sandbox_jose_base64(const char *src, size_t size, uint8_t *dst)
{
    int       sextet;
    size_t    i;
    uint8_t  *p;
    uint32_t  bits;
    unsigned  n;

    p = dst;
    n = 0;
    bits = 0;

    if (size % 4 == 1) {
        return -1;
    }

    for (i = 0; i < size; i++) {
        sextet = sandbox_jose_sextet((uint8_t) src[i]);

        if (sextet < 0) {
            return -1;
        }

        bits = bits << 6 | (uint32_t) sextet;
        n += 6;

        if (n >= 8) {
            n -= 8;
            *p++ = (uint8_t) (bits >> n);
            bits &= (1u << n) - 1;
        }
    }

    /* bits left over would give one token several spellings */

    return bits != 0 ? -1 : p - dst;
}


json_t *
sandbox_jose_object(const char *src, size_t size)
{
    char        *buf;
    json_t      *object;
    int64_t      n;
    json_error_t error;

    buf = malloc(size + 1);
    if (buf == NULL) {
        return NULL;
    }

    object = NULL;
    n = sandbox_jose_base64(src, size, (uint8_t *) buf);

    /*
     * jansson refuses invalid UTF-8, \u0000, numbers that do not fit, more
     * than 2048 levels and anything after the object, but skips a zero byte
     * behind a number.
     */

    if (n > 0 && memchr(buf, '\0', (size_t) n) == NULL) {
        object = json_loadb(buf, (size_t) n, JSON_REJECT_DUPLICATES, &error);
    }

    free(buf);

    if (object != NULL && !json_is_object(object)) {
        json_decref(object);
        return NULL;
    }

    return object;
}


sandbox_jose_status_t
sandbox_jose_parts(const uint8_t *data, size_t size,
    sandbox_jose_parts_t *parts)
{
    sandbox_jose_status_t  status;

    memset(parts, 0, sizeof(sandbox_jose_parts_t));

    if (size == 0 || size > SANDBOX_JOSE_MAX_TOKEN) {
        return SANDBOX_JOSE_MALFORMED;
    }

    parts->text = malloc(size + 1);
    if (parts->text == NULL) {
        return SANDBOX_JOSE_FAILED;
    }

    memcpy(parts->text, data, size);
    parts->text[size] = '\0';
    parts->size = size;

    status = sandbox_jose_split(parts);

    if (status == SANDBOX_JOSE_OK) {
        status = sandbox_jose_header(parts);
    }

    if (status != SANDBOX_JOSE_OK) {
        sandbox_jose_parts_free(parts);
    }

    return status;
}


void
sandbox_jose_parts_free(sandbox_jose_parts_t *parts)
{
    json_decref(parts->header);
    parts->header = NULL;

    if (parts->text != NULL) {
        OPENSSL_cleanse(parts->text, parts->size);
        free(parts->text);
        parts->text = NULL;
    }
}


static sandbox_jose_status_t
sandbox_jose_split(sandbox_jose_parts_t *parts)
{
    char    *end, *first, *second, *signature;
    size_t   size;
    int64_t  n;

    end = parts->text + parts->size;

    first = memchr(parts->text, '.', parts->size);
    if (first == NULL || first == parts->text) {
        return SANDBOX_JOSE_MALFORMED;
    }

    second = memchr(first + 1, '.', (size_t) (end - first - 1));
    if (second == NULL || second == first + 1) {
        return SANDBOX_JOSE_MALFORMED;
    }

    /* a third dot is refused as a character that is not base64url */

    signature = second + 1;
    size = (size_t) (end - signature);

    if (size == 0) {
        return SANDBOX_JOSE_MALFORMED;
    }

    if (size > (SANDBOX_JOSE_MAX_SIGNATURE * 4 + 2) / 3) {
        return SANDBOX_JOSE_SIGNATURE;
    }

    n = sandbox_jose_base64(signature, size, parts->signature);
    if (n <= 0) {
        return SANDBOX_JOSE_MALFORMED;
    }

    parts->signature_size = (size_t) n;
    parts->input = (size_t) (second - parts->text);
    parts->payload = first + 1;
    parts->payload_size = (size_t) (second - first - 1);

    parts->header = sandbox_jose_object(parts->text,
                                        (size_t) (first - parts->text));

    return parts->header == NULL ? SANDBOX_JOSE_MALFORMED : SANDBOX_JOSE_OK;
}


static sandbox_jose_status_t
sandbox_jose_header(sandbox_jose_parts_t *parts)
{
    json_t  *alg, *kid;

    /* each of them asks for rules that we do not have (RFC 7515 4.1.11) */

    if (json_object_get(parts->header, "crit") != NULL
        || json_object_get(parts->header, "b64") != NULL
        || json_object_get(parts->header, "enc") != NULL
        || json_object_get(parts->header, "zip") != NULL)
    {
        return SANDBOX_JOSE_MALFORMED;
    }

    if (!sandbox_jose_type(parts)) {
        return SANDBOX_JOSE_MALFORMED;
    }

    kid = json_object_get(parts->header, "kid");

    if (kid != NULL) {
        if (!json_is_string(kid)
            || json_string_length(kid) > SANDBOX_JOSE_MAX_NAME)
        {
            return SANDBOX_JOSE_MALFORMED;
        }

        parts->kid = json_string_value(kid);
    }

    alg = json_object_get(parts->header, "alg");

    if (!json_is_string(alg)) {
        return SANDBOX_JOSE_MALFORMED;
    }

    /* exact case: libjwt would take "hs256", and "nOnE" */

    parts->algorithm = sandbox_jose_algorithm_find(json_string_value(alg),
                                                   json_string_length(alg));

    return parts->algorithm == NULL ? SANDBOX_JOSE_ALGORITHM : SANDBOX_JOSE_OK;
}


/*
 * A token made for something else (a logout or DPoP token, say) names that in
 * typ and must not open this door (RFC 8725 3.11).
 */

static int
sandbox_jose_type(sandbox_jose_parts_t *parts)
{
    size_t       n;
    json_t      *typ;
    const char  *name;

    typ = json_object_get(parts->header, "typ");

    if (typ == NULL) {
        return 1;
    }

    if (!json_is_string(typ)) {
        return 0;
    }

    name = json_string_value(typ);
    n = sizeof("application/") - 1;

    if (strcasecmp(name, "JWT") == 0) {
        return 1;
    }

    if (strncasecmp(name, "application/", n) == 0) {
        name += n;
    }

    parts->access = 1;

    return strcasecmp(name, "at+jwt") == 0;
}
