/*
 * JWK sets (RFC 7517): which keys of a set verify tokens, and those as keys.
 * Opens no files, fetches nothing, verifies nothing.
 */

#include "sandbox_jose_core.h"

#include <string.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>


#define SANDBOX_JOSE_MAX_COORDINATE  66          /* bytes, of P-521 */


/* what becomes of one key of a set */

typedef enum {
    SANDBOX_JOSE_USED,
    SANDBOX_JOSE_LEFT_OUT,
    SANDBOX_JOSE_BAD                             /* with a sentence */
} sandbox_jose_use_e;

typedef struct sandbox_jose_type_s  sandbox_jose_type_t;

typedef struct {
    const json_t                    *object;
    unsigned                         flags;
    const sandbox_jose_type_t       *type;
    const sandbox_jose_algorithm_t  *algorithm;  /* NULL: it names none */
    const char                      *kid;        /* NULL: it has none */
    char                            *error;
} sandbox_jose_jwk_t;

struct sandbox_jose_type_s {
    const char           *name;                  /* value of kty */
    unsigned              algorithms;
    sandbox_jose_use_e  (*make)(const sandbox_jose_jwk_t *jwk,
                                sandbox_jose_key_t **key);
};


static json_t *sandbox_jose_jwks_load(const uint8_t *data, size_t size,
    char *error);
static sandbox_jose_use_e sandbox_jose_jwk(sandbox_jose_jwk_t *jwk,
    sandbox_jose_key_t **key);
static sandbox_jose_use_e sandbox_jose_jwk_type(sandbox_jose_jwk_t *jwk);
static sandbox_jose_use_e sandbox_jose_jwk_use(const sandbox_jose_jwk_t *jwk);
static sandbox_jose_use_e sandbox_jose_jwk_algorithm(sandbox_jose_jwk_t *jwk);
static sandbox_jose_use_e sandbox_jose_jwk_private(
    const sandbox_jose_jwk_t *jwk);
static sandbox_jose_use_e sandbox_jose_jwk_oct(const sandbox_jose_jwk_t *jwk,
    sandbox_jose_key_t **key);
static sandbox_jose_use_e sandbox_jose_jwk_rsa(const sandbox_jose_jwk_t *jwk,
    sandbox_jose_key_t **key);
static sandbox_jose_use_e sandbox_jose_jwk_ec(const sandbox_jose_jwk_t *jwk,
    sandbox_jose_key_t **key);
static sandbox_jose_use_e sandbox_jose_jwk_okp(const sandbox_jose_jwk_t *jwk,
    sandbox_jose_key_t **key);
static EVP_PKEY *sandbox_jose_pkey(const char *type, OSSL_PARAM *params);
static int sandbox_jose_jwk_string(const sandbox_jose_jwk_t *jwk,
    const char *name, const char **value);
static int sandbox_jose_jwk_bytes(const sandbox_jose_jwk_t *jwk,
    const char *name, uint8_t *dst, size_t max, size_t *size);


static const sandbox_jose_type_t  sandbox_jose_types[] = {
    { "RSA", SANDBOX_JOSE_RS | SANDBOX_JOSE_PS, sandbox_jose_jwk_rsa },
    { "EC", SANDBOX_JOSE_ES, sandbox_jose_jwk_ec },
    { "OKP", SANDBOX_JOSE_EDDSA, sandbox_jose_jwk_okp },
    { "oct", SANDBOX_JOSE_HS, sandbox_jose_jwk_oct }
};


int
sandbox_jose_jwks(const uint8_t *data, size_t size, unsigned flags,
    sandbox_jose_key_t **keys, size_t max, size_t *nkeys, char *error)
{
    char                 reason[SANDBOX_JOSE_ERROR_SIZE];
    json_t              *set;
    size_t               i, n, count;
    const json_t        *list;
    sandbox_jose_use_e   use;
    sandbox_jose_jwk_t   jwk;

    set = sandbox_jose_jwks_load(data, size, error);

    if (set == NULL) {
        return -1;
    }

    n = 0;
    use = SANDBOX_JOSE_LEFT_OUT;
    list = json_object_get(set, "keys");
    count = json_array_size(list);

    for (i = 0; i < count; i++) {
        memset(&jwk, 0, sizeof(sandbox_jose_jwk_t));

        jwk.object = json_array_get(list, i);
        jwk.flags = flags;
        jwk.error = reason;

        if (n == max) {
            sandbox_jose_error(error, "the key set has more than the %zu keys "
                               "there is room for", max);
            use = SANDBOX_JOSE_BAD;
            break;
        }

        use = sandbox_jose_jwk(&jwk, &keys[n]);

        if (use == SANDBOX_JOSE_BAD) {
            sandbox_jose_error(error, "key %zu of the key set: %.200s", i + 1,
                               reason);
            break;
        }

        if (use == SANDBOX_JOSE_USED) {
            n++;
        }
    }

    json_decref(set);
    ERR_clear_error();

    if (n == 0 && use != SANDBOX_JOSE_BAD) {
        sandbox_jose_error(error, "none of the keys in the key set verifies "
                           "tokens here, there are %zu", count);
        use = SANDBOX_JOSE_BAD;
    }

    if (use == SANDBOX_JOSE_BAD) {
        while (n > 0) {
            sandbox_jose_key_free(keys[--n]);
        }

        return -1;
    }

    *nkeys = n;

    return 0;
}


static json_t *
sandbox_jose_jwks_load(const uint8_t *data, size_t size, char *error)
{
    json_t        *set, *list;
    json_error_t   e;

    if (size == 0) {
        sandbox_jose_error(error, "the key set is empty");
        return NULL;
    }

    if (size > SANDBOX_JOSE_MAX_JWKS) {
        sandbox_jose_error(error, "the key set has more than %d bytes",
                           SANDBOX_JOSE_MAX_JWKS);
        return NULL;
    }

    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) {
        sandbox_jose_error(error, "the key set is compressed");
        return NULL;
    }

    /* jansson skips a zero byte behind a number */

    if (memchr(data, '\0', size) != NULL) {
        sandbox_jose_error(error, "there is a zero byte in the key set");
        return NULL;
    }

    set = json_loadb((const char *) data, size, JSON_REJECT_DUPLICATES, &e);

    if (set == NULL) {

        /* e.text may quote a secret */

        if (json_error_code(&e) == json_error_duplicate_key) {
            sandbox_jose_error(error, "a name stands twice in one object of "
                               "the key set, at line %d", e.line);

        } else {
            sandbox_jose_error(error, "the key set is not JSON at line %d",
                               e.line);
        }

        return NULL;
    }

    list = json_object_get(set, "keys");

    if (!json_is_array(list)) {
        sandbox_jose_error(error, "the key set is not an object with an array "
                           "\"keys\"");
        json_decref(set);
        return NULL;
    }

    if (json_array_size(list) > SANDBOX_JOSE_MAX_JWKS_KEYS) {
        sandbox_jose_error(error, "the key set has %zu keys, the most is %d",
                           json_array_size(list), SANDBOX_JOSE_MAX_JWKS_KEYS);
        json_decref(set);
        return NULL;
    }

    return set;
}


static sandbox_jose_use_e
sandbox_jose_jwk(sandbox_jose_jwk_t *jwk, sandbox_jose_key_t **key)
{
    sandbox_jose_use_e   use;
    sandbox_jose_key_t  *made;

    if (!json_is_object(jwk->object)) {
        sandbox_jose_error(jwk->error, "it is not an object");
        return SANDBOX_JOSE_BAD;
    }

    use = sandbox_jose_jwk_type(jwk);

    if (use == SANDBOX_JOSE_USED) {
        use = sandbox_jose_jwk_private(jwk);
    }

    if (use == SANDBOX_JOSE_USED) {
        use = sandbox_jose_jwk_use(jwk);
    }

    if (use == SANDBOX_JOSE_USED) {
        use = sandbox_jose_jwk_algorithm(jwk);
    }

    if (use != SANDBOX_JOSE_USED) {
        return use;
    }

    if (sandbox_jose_jwk_string(jwk, "kid", &jwk->kid) == -1) {
        return SANDBOX_JOSE_BAD;
    }

    made = NULL;
    use = jwk->type->make(jwk, &made);

    if (use != SANDBOX_JOSE_USED) {
        return use;
    }

    if (made == NULL) {
        return SANDBOX_JOSE_BAD;
    }

    if (jwk->algorithm != NULL) {
        made->algorithms &= jwk->algorithm->algorithm;

        if (made->algorithms == 0) {
            sandbox_jose_error(jwk->error, "it is too short, or of another "
                               "curve, for its alg %s", jwk->algorithm->name);
            sandbox_jose_key_free(made);
            return SANDBOX_JOSE_BAD;
        }
    }

    *key = made;

    return SANDBOX_JOSE_USED;
}


static sandbox_jose_use_e
sandbox_jose_jwk_type(sandbox_jose_jwk_t *jwk)
{
    size_t       i;
    const char  *name;

    name = NULL;

    if (sandbox_jose_jwk_string(jwk, "kty", &name) == -1) {
        return SANDBOX_JOSE_BAD;
    }

    if (name == NULL) {
        sandbox_jose_error(jwk->error, "it has no \"kty\"");
        return SANDBOX_JOSE_BAD;
    }

    for (i = 0; i < sizeof(sandbox_jose_types) / sizeof(sandbox_jose_types[0]);
         i++)
    {
        if (strcmp(sandbox_jose_types[i].name, name) == 0) {
            jwk->type = &sandbox_jose_types[i];
            return SANDBOX_JOSE_USED;
        }
    }

    return SANDBOX_JOSE_LEFT_OUT;
}


static sandbox_jose_use_e
sandbox_jose_jwk_private(const sandbox_jose_jwk_t *jwk)
{
    size_t  i;

    static const char *const  names[] = {
        "d", "p", "q", "dp", "dq", "qi", "oth", "k"
    };

    if (jwk->type->algorithms == SANDBOX_JOSE_HS) {

        /* one that came over the network is a secret no more */

        return jwk->flags & SANDBOX_JOSE_JWKS_SECRETS ? SANDBOX_JOSE_USED
                                                      : SANDBOX_JOSE_LEFT_OUT;
    }

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (json_object_get(jwk->object, names[i]) == NULL) {
            continue;
        }

        if ((jwk->flags & SANDBOX_JOSE_JWKS_SECRETS) == 0) {
            return SANDBOX_JOSE_LEFT_OUT;
        }

        sandbox_jose_error(jwk->error, "it has the private member \"%s\", only "
                           "the public half of a key is wanted", names[i]);
        return SANDBOX_JOSE_BAD;
    }

    return SANDBOX_JOSE_USED;
}


static sandbox_jose_use_e
sandbox_jose_jwk_use(const sandbox_jose_jwk_t *jwk)
{
    int            verify;
    size_t         i;
    const char    *use;
    const json_t  *list, *item;

    use = NULL;

    if (sandbox_jose_jwk_string(jwk, "use", &use) == -1) {
        return SANDBOX_JOSE_BAD;
    }

    if (use != NULL && strcmp(use, "sig") != 0) {
        return SANDBOX_JOSE_LEFT_OUT;
    }

    list = json_object_get(jwk->object, "key_ops");

    if (list == NULL) {
        return SANDBOX_JOSE_USED;
    }

    if (!json_is_array(list)) {
        sandbox_jose_error(jwk->error, "its \"key_ops\" is not an array");
        return SANDBOX_JOSE_BAD;
    }

    verify = 0;

    for (i = 0; i < json_array_size(list); i++) {
        item = json_array_get(list, i);

        if (!json_is_string(item)) {
            sandbox_jose_error(jwk->error, "its \"key_ops\" has something that "
                               "is not a string");
            return SANDBOX_JOSE_BAD;
        }

        if (strcmp(json_string_value(item), "verify") == 0) {
            verify = 1;
        }
    }

    return verify ? SANDBOX_JOSE_USED : SANDBOX_JOSE_LEFT_OUT;
}


static sandbox_jose_use_e
sandbox_jose_jwk_algorithm(sandbox_jose_jwk_t *jwk)
{
    unsigned     wanted;
    const char  *name;

    name = NULL;
    wanted = jwk->type->algorithms;

    if (sandbox_jose_jwk_string(jwk, "alg", &name) == -1) {
        return SANDBOX_JOSE_BAD;
    }

    if (name != NULL) {
        jwk->algorithm = sandbox_jose_algorithm_find(name, strlen(name));

        if (jwk->algorithm == NULL) {
            return SANDBOX_JOSE_LEFT_OUT;
        }

        wanted = jwk->algorithm->algorithm;

        if ((jwk->type->algorithms & wanted) == 0) {
            sandbox_jose_error(jwk->error, "its alg %s is not one of its kty "
                               "%s", jwk->algorithm->name, jwk->type->name);
            return SANDBOX_JOSE_BAD;
        }
    }

    return wanted & sandbox_jose_supported() ? SANDBOX_JOSE_USED
                                             : SANDBOX_JOSE_LEFT_OUT;
}


static sandbox_jose_use_e
sandbox_jose_jwk_oct(const sandbox_jose_jwk_t *jwk, sandbox_jose_key_t **key)
{
    size_t       size;
    uint8_t      secret[SANDBOX_JOSE_MAX_SECRET + 2];
    const char  *k;

    /* nothing else says what a row of bytes is for */

    if (jwk->algorithm == NULL) {
        sandbox_jose_error(jwk->error, "it is a secret and has no \"alg\", "
                           "such as \"HS256\"");
        return SANDBOX_JOSE_BAD;
    }

    if (!sandbox_jose_jwk_bytes(jwk, "k", secret, SANDBOX_JOSE_MAX_SECRET,
                                &size))
    {
        return SANDBOX_JOSE_BAD;
    }

    *key = sandbox_jose_key_secret(secret, size, SANDBOX_JOSE_RAW, jwk->kid,
                                   jwk->error);

    /* jansson would free it as it is; it belongs to our tree alone */

    k = json_string_value(json_object_get(jwk->object, "k"));
    OPENSSL_cleanse((char *) k, strlen(k));
    OPENSSL_cleanse(secret, sizeof(secret));

    return SANDBOX_JOSE_USED;
}


static sandbox_jose_use_e
sandbox_jose_jwk_rsa(const sandbox_jose_jwk_t *jwk, sandbox_jose_key_t **key)
{
    size_t           size;
    BIGNUM          *n, *e;
    uint8_t          bytes[SANDBOX_JOSE_MAX_MODULUS / 8 + 2];
    EVP_PKEY        *pkey;
    OSSL_PARAM      *params;
    OSSL_PARAM_BLD  *builder;

    n = NULL;
    e = NULL;
    pkey = NULL;
    params = NULL;
    builder = NULL;

    /* some libraries put a zero before the modulus */

    if (!sandbox_jose_jwk_bytes(jwk, "n", bytes,
                                SANDBOX_JOSE_MAX_MODULUS / 8 + 1, &size))
    {
        return SANDBOX_JOSE_BAD;
    }

    n = BN_bin2bn(bytes, (int) size, NULL);

    if (!sandbox_jose_jwk_bytes(jwk, "e", bytes, SANDBOX_JOSE_MAX_MODULUS / 8,
                                &size))
    {
        goto done;
    }

    e = BN_bin2bn(bytes, (int) size, NULL);
    builder = OSSL_PARAM_BLD_new();

    if (n != NULL && e != NULL && builder != NULL
        && OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) == 1
        && OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e) == 1)
    {
        params = OSSL_PARAM_BLD_to_param(builder);
    }

    pkey = sandbox_jose_pkey("RSA", params);

    if (pkey != NULL) {
        *key = sandbox_jose_key_public(pkey, jwk->kid, jwk->error);

    } else {
        sandbox_jose_error(jwk->error, "its \"n\" and \"e\" are no RSA key");
    }

done:

    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(builder);
    BN_free(n);
    BN_free(e);

    return *key == NULL ? SANDBOX_JOSE_BAD : SANDBOX_JOSE_USED;
}


static sandbox_jose_use_e
sandbox_jose_jwk_ec(const sandbox_jose_jwk_t *jwk, sandbox_jose_key_t **key)
{
    size_t       i, n, x, y;
    uint8_t      point[1 + 2 * (SANDBOX_JOSE_MAX_COORDINATE + 2)];
    EVP_PKEY    *pkey;
    OSSL_PARAM   params[3];
    const char  *name;

    static const struct {
        const char  *name;
        const char  *group;
        size_t       size;                       /* bytes of a coordinate */
    } curves[] = {
        { "P-256", "prime256v1", 32 },
        { "P-384", "secp384r1", 48 },
        { "P-521", "secp521r1", 66 }
    };

    name = NULL;

    if (sandbox_jose_jwk_string(jwk, "crv", &name) == -1) {
        return SANDBOX_JOSE_BAD;
    }

    for (i = 0; i < sizeof(curves) / sizeof(curves[0]); i++) {
        if (name != NULL && strcmp(curves[i].name, name) == 0) {
            break;
        }
    }

    if (name != NULL && i == sizeof(curves) / sizeof(curves[0])) {
        return SANDBOX_JOSE_LEFT_OUT;
    }

    if (name == NULL) {
        sandbox_jose_error(jwk->error, "it has no \"crv\"");
        return SANDBOX_JOSE_BAD;
    }

    n = curves[i].size;
    point[0] = POINT_CONVERSION_UNCOMPRESSED;

    if (!sandbox_jose_jwk_bytes(jwk, "x", point + 1, n, &x)
        || !sandbox_jose_jwk_bytes(jwk, "y", point + 1 + n, n, &y))
    {
        return SANDBOX_JOSE_BAD;
    }

    if (x != n || y != n) {
        sandbox_jose_error(jwk->error, "its \"x\" and \"y\" do not have %zu "
                           "bytes each", n);
        return SANDBOX_JOSE_BAD;
    }

    params[0] = OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME,
                                                 (char *) curves[i].group, 0);
    params[1] = OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY,
                                                  point, 1 + 2 * n);
    params[2] = OSSL_PARAM_construct_end();

    pkey = sandbox_jose_pkey("EC", params);

    if (pkey == NULL) {
        sandbox_jose_error(jwk->error, "its point is not on its curve");
        return SANDBOX_JOSE_BAD;
    }

    *key = sandbox_jose_key_public(pkey, jwk->kid, jwk->error);

    return *key == NULL ? SANDBOX_JOSE_BAD : SANDBOX_JOSE_USED;
}


static sandbox_jose_use_e
sandbox_jose_jwk_okp(const sandbox_jose_jwk_t *jwk, sandbox_jose_key_t **key)
{
    size_t       size;
    uint8_t      x[32 + 2];
    EVP_PKEY    *pkey;
    const char  *name;

    name = NULL;

    if (sandbox_jose_jwk_string(jwk, "crv", &name) == -1) {
        return SANDBOX_JOSE_BAD;
    }

    if (name == NULL) {
        sandbox_jose_error(jwk->error, "it has no \"crv\"");
        return SANDBOX_JOSE_BAD;
    }

    if (strcmp(name, "Ed25519") != 0) {
        return SANDBOX_JOSE_LEFT_OUT;
    }

    if (!sandbox_jose_jwk_bytes(jwk, "x", x, 32, &size)) {
        return SANDBOX_JOSE_BAD;
    }

    pkey = size == 32 ? EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x,
                                                    size)
                      : NULL;
    if (pkey == NULL) {
        sandbox_jose_error(jwk->error, "its \"x\" does not have 32 bytes");
        return SANDBOX_JOSE_BAD;
    }

    *key = sandbox_jose_key_public(pkey, jwk->kid, jwk->error);

    return *key == NULL ? SANDBOX_JOSE_BAD : SANDBOX_JOSE_USED;
}


/* OpenSSL puts a key together, so that no DER is written by hand. */

static EVP_PKEY *
sandbox_jose_pkey(const char *type, OSSL_PARAM *params)
{
    EVP_PKEY      *pkey;
    EVP_PKEY_CTX  *ctx;

    pkey = NULL;
    ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);

    if (ctx != NULL && params != NULL && EVP_PKEY_fromdata_init(ctx) == 1) {
        (void) EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params);
    }

    EVP_PKEY_CTX_free(ctx);

    return pkey;
}


/* A member that may be missing; -1 with a sentence: it is not a string. */

static int
sandbox_jose_jwk_string(const sandbox_jose_jwk_t *jwk, const char *name,
    const char **value)
{
    const json_t  *member;

    member = json_object_get(jwk->object, name);

    if (member == NULL) {
        return 0;
    }

    if (!json_is_string(member)) {
        sandbox_jose_error(jwk->error, "its \"%s\" is not a string", name);
        return -1;
    }

    *value = json_string_value(member);

    return 0;
}


/*
 * A member that must be base64url of 1 to max bytes; dst has room for two more
 * bytes.  0 with a sentence.
 */

static int
sandbox_jose_jwk_bytes(const sandbox_jose_jwk_t *jwk, const char *name,
    uint8_t *dst, size_t max, size_t *size)
{
    size_t       length;
    int64_t      n;
    const char  *value;

    value = NULL;

    if (sandbox_jose_jwk_string(jwk, name, &value) == -1) {
        return 0;
    }

    if (value == NULL) {
        sandbox_jose_error(jwk->error, "it has no \"%s\"", name);
        return 0;
    }

    length = strlen(value);

    if (length > (max * 4 + 2) / 3) {
        sandbox_jose_error(jwk->error, "its \"%s\" has more than %zu bytes",
                           name, max);
        return 0;
    }

    n = sandbox_jose_base64(value, length, dst);

    if (n <= 0) {
        sandbox_jose_error(jwk->error, "its \"%s\" is not base64url, letters, "
                           "digits, \"-\" and \"_\" without padding", name);
        return 0;
    }

    *size = (size_t) n;

    return 1;
}
