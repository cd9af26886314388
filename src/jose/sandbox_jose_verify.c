/*
 * Verifies a token: which key, which signature, then its claims.  Nothing that
 * src/jose has not read strictly by itself gets as far as libjwt.
 */

#include "sandbox_jose_core.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>


static sandbox_jose_status_t sandbox_jose_try_keys(
    const sandbox_jose_key_t *const *keys, size_t nkeys,
    const sandbox_jose_policy_t *policy, const sandbox_jose_parts_t *parts);
static int sandbox_jose_same_kid(const sandbox_jose_key_t *one,
    const sandbox_jose_key_t *two);
static int sandbox_jose_kid_known(const sandbox_jose_key_t *const *keys,
    size_t nkeys, const char *kid);
static sandbox_jose_status_t sandbox_jose_by_libjwt(
    const sandbox_jose_key_t *key, const sandbox_jose_parts_t *parts);
static sandbox_jose_status_t sandbox_jose_by_openssl(
    const sandbox_jose_key_t *key, const sandbox_jose_parts_t *parts);
static sandbox_jose_status_t sandbox_jose_by_hmac(
    const sandbox_jose_key_t *key, const sandbox_jose_parts_t *parts);
static sandbox_jose_status_t sandbox_jose_by_pkey(
    const sandbox_jose_key_t *key, const sandbox_jose_parts_t *parts,
    const uint8_t *signature, size_t size);
static int sandbox_jose_ecdsa(const uint8_t *signature, size_t size,
    uint8_t **der);


sandbox_jose_status_t
sandbox_jose_verify(const sandbox_jose_key_t *const *keys, size_t nkeys,
    const uint8_t *data, size_t size, const sandbox_jose_policy_t *policy,
    int64_t now, sandbox_jose_token_t *token)
{
    json_t                *claims;
    int64_t                expires;
    sandbox_jose_parts_t   parts;
    sandbox_jose_status_t  status;

    status = sandbox_jose_parts(data, size, &parts);

    if (status != SANDBOX_JOSE_OK) {
        return status;
    }

    /* read before the signature is: libjwt parses it, so it must be sound */

    claims = sandbox_jose_object(parts.payload, parts.payload_size);

    if (claims == NULL) {
        sandbox_jose_parts_free(&parts);
        return SANDBOX_JOSE_CLAIMS;
    }

    expires = 0;

    status = sandbox_jose_try_keys(keys, nkeys, policy, &parts);

    sandbox_jose_parts_free(&parts);

    if (status == SANDBOX_JOSE_OK) {
        status = sandbox_jose_claims(claims, policy, now, &expires);
    }

    if (status != SANDBOX_JOSE_OK) {
        json_decref(claims);
        return status;
    }

    token->claims = claims;
    token->expires = expires;

    return SANDBOX_JOSE_OK;
}


const char *
sandbox_jose_reason(sandbox_jose_status_t status)
{
    switch (status) {

    case SANDBOX_JOSE_OK:
        return "the token is valid";

    case SANDBOX_JOSE_MALFORMED:
        return "the token is malformed";

    case SANDBOX_JOSE_ALGORITHM:
        return "the token's algorithm is not accepted";

    case SANDBOX_JOSE_NO_KEY:
        return "no key fits the token";

    case SANDBOX_JOSE_UNKNOWN_KID:
        return "the token names a key that is not known";

    case SANDBOX_JOSE_AWAITED:
        return "the keys that might verify the token are not here yet";

    case SANDBOX_JOSE_SIGNATURE:
        return "the token's signature is wrong";

    case SANDBOX_JOSE_CLAIMS:
        return "a claim of the token is missing or malformed";

    case SANDBOX_JOSE_EXPIRED:
        return "the token has expired";

    case SANDBOX_JOSE_NOT_YET_VALID:
        return "the token is not valid yet";

    case SANDBOX_JOSE_ISSUER:
        return "the token has another issuer";

    case SANDBOX_JOSE_AUDIENCE:
        return "the token is meant for another audience";

    case SANDBOX_JOSE_FAILED:
        break;
    }

    return "the token could not be verified";
}


static sandbox_jose_status_t
sandbox_jose_try_keys(const sandbox_jose_key_t *const *keys, size_t nkeys,
    const sandbox_jose_policy_t *policy, const sandbox_jose_parts_t *parts)
{
    int                        pinned;
    size_t                     i, tries;
    unsigned                   allowed;
    const sandbox_jose_key_t  *key;
    sandbox_jose_status_t      status;

    allowed = policy->algorithms != 0 ? policy->algorithms : ~0u;

    if ((parts->algorithm->algorithm & allowed) == 0) {
        return SANDBOX_JOSE_ALGORITHM;
    }

    tries = 0;
    status = SANDBOX_JOSE_NO_KEY;
    pinned = sandbox_jose_kid_known(keys, nkeys, parts->kid);

    for (i = 0; i < nkeys && tries < SANDBOX_JOSE_MAX_TRIES; i++) {
        key = keys[i];

        if (pinned) {
            if (key->kid == NULL || strcmp(key->kid, parts->kid) != 0) {
                continue;
            }

        } else if (key->kid != NULL) {
            continue;
        }

        if ((key->algorithms & parts->algorithm->algorithm) == 0) {

            /* the most telling reason stays */

            if (status == SANDBOX_JOSE_NO_KEY) {
                status = SANDBOX_JOSE_ALGORITHM;
            }

            continue;
        }

        tries++;
        status = sandbox_jose_signature(key, parts);

        if (status != SANDBOX_JOSE_SIGNATURE) {
            return status;
        }
    }

    if (parts->algorithm->algorithm & policy->awaited) {
        return SANDBOX_JOSE_AWAITED;
    }

    if (parts->kid != NULL && !pinned) {
        return SANDBOX_JOSE_UNKNOWN_KID;
    }

    return status;
}


unsigned
sandbox_jose_crowded(const sandbox_jose_key_t *const *keys, size_t nkeys)
{
    size_t    i, j, n;
    unsigned  bit, crowded;

    crowded = 0;

    for (i = 0; i < nkeys; i++) {

        for (bit = 1; bit <= keys[i]->algorithms; bit <<= 1) {

            if ((keys[i]->algorithms & bit) == 0 || (crowded & bit)) {
                continue;
            }

            n = 0;

            for (j = 0; j < nkeys; j++) {
                n += (keys[j]->algorithms & bit) != 0
                     && sandbox_jose_same_kid(keys[i], keys[j]);
            }

            if (n > SANDBOX_JOSE_MAX_TRIES) {
                crowded |= bit;
            }
        }
    }

    return crowded;
}


static int
sandbox_jose_same_kid(const sandbox_jose_key_t *one,
    const sandbox_jose_key_t *two)
{
    if (one->kid == NULL || two->kid == NULL) {
        return one->kid == two->kid;
    }

    return strcmp(one->kid, two->kid) == 0;
}


static int
sandbox_jose_kid_known(const sandbox_jose_key_t *const *keys, size_t nkeys,
    const char *kid)
{
    size_t  i;

    if (kid == NULL) {
        return 0;
    }

    for (i = 0; i < nkeys; i++) {
        if (keys[i]->kid != NULL && strcmp(keys[i]->kid, kid) == 0) {
            return 1;
        }
    }

    return 0;
}


sandbox_jose_status_t
sandbox_jose_signature(const sandbox_jose_key_t *key,
    const sandbox_jose_parts_t *parts)
{
    size_t                 size;
    sandbox_jose_status_t  status;

    size = parts->algorithm->size;

    if (size == 0) {
        size = (size_t) EVP_PKEY_get_size(key->pkey);
    }

    if (parts->signature_size != size) {
        return SANDBOX_JOSE_SIGNATURE;
    }

    /*
     * OpenSSL looks first: with a key that is ready it costs a twentieth of
     * libjwt, which reads the PEM anew, compares an HMAC in constant time, and
     * wants the salt of PS* to be as long as its hash (RFC 7518, section 3.5).
     * So a forged token is cheap, and libjwt never sees one.
     */

    status = sandbox_jose_by_openssl(key, parts);

    /*
     * Access tokens of RFC 9068 have the typ "at+jwt", which the libjwt of
     * Debian refuses whatever the signature is.
     */

    if (status == SANDBOX_JOSE_OK && !parts->access) {
        status = sandbox_jose_by_libjwt(key, parts);
    }

    /* a leftover would be taken for an error of somebody's TLS connection */

    ERR_clear_error();

    return status;
}


static sandbox_jose_status_t
sandbox_jose_by_libjwt(const sandbox_jose_key_t *key,
    const sandbox_jose_parts_t *parts)
{
    int                        rc;
    jwt_t                     *jwt;
    jwt_alg_t                  alg;
    const sandbox_jose_buf_t  *data;

    jwt = NULL;
    data = parts->algorithm->algorithm & SANDBOX_JOSE_PS ? &key->pss
                                                         : &key->data;

    /* without a key libjwt verifies nothing and says so to nobody */

    if (data->size == 0 || data->data == NULL) {
        return SANDBOX_JOSE_FAILED;
    }

    rc = jwt_decode(&jwt, parts->text, data->data, (int) data->size);

    if (rc != 0 || jwt == NULL) {
        return rc == ENOMEM ? SANDBOX_JOSE_FAILED : SANDBOX_JOSE_SIGNATURE;
    }

    alg = jwt_get_alg(jwt);
    jwt_free(jwt);

    return alg != JWT_ALG_NONE
           && alg == sandbox_jose_algorithm_jwt(parts->algorithm)
           ? SANDBOX_JOSE_OK : SANDBOX_JOSE_SIGNATURE;
}


static sandbox_jose_status_t
sandbox_jose_by_openssl(const sandbox_jose_key_t *key,
    const sandbox_jose_parts_t *parts)
{
    int                    n;
    uint8_t               *der;
    sandbox_jose_status_t  status;

    if (key->pkey == NULL) {
        return sandbox_jose_by_hmac(key, parts);
    }

    if ((parts->algorithm->algorithm & SANDBOX_JOSE_ES) == 0) {
        return sandbox_jose_by_pkey(key, parts, parts->signature,
                                    parts->signature_size);
    }

    der = NULL;
    n = sandbox_jose_ecdsa(parts->signature, parts->signature_size, &der);

    if (n <= 0) {
        return SANDBOX_JOSE_FAILED;
    }

    status = sandbox_jose_by_pkey(key, parts, der, (size_t) n);
    OPENSSL_free(der);

    return status;
}


static sandbox_jose_status_t
sandbox_jose_by_hmac(const sandbox_jose_key_t *key,
    const sandbox_jose_parts_t *parts)
{
    int       good;
    uint8_t   mac[EVP_MAX_MD_SIZE];
    unsigned  n;

    if (HMAC(parts->algorithm->digest(), key->data.data, (int) key->data.size,
             (const uint8_t *) parts->text, parts->input, mac, &n)
        == NULL)
    {
        return SANDBOX_JOSE_FAILED;
    }

    good = n == parts->signature_size
           && CRYPTO_memcmp(mac, parts->signature, n) == 0;

    OPENSSL_cleanse(mac, sizeof(mac));

    return good ? SANDBOX_JOSE_OK : SANDBOX_JOSE_SIGNATURE;
}


static sandbox_jose_status_t
sandbox_jose_by_pkey(const sandbox_jose_key_t *key,
    const sandbox_jose_parts_t *parts, const uint8_t *signature, size_t size)
{
    int            good;
    EVP_MD_CTX    *ctx;
    EVP_PKEY_CTX  *pctx;
    const EVP_MD  *digest;

    digest = parts->algorithm->digest == NULL ? NULL
                                              : parts->algorithm->digest();
    ctx = EVP_MD_CTX_new();

    if (ctx == NULL) {
        return SANDBOX_JOSE_FAILED;
    }

    /* the key itself may forbid this digest: that is no failure of ours */

    good = EVP_DigestVerifyInit(ctx, &pctx, digest, NULL, key->pkey) == 1;

    if (good && (parts->algorithm->algorithm & SANDBOX_JOSE_PS)) {
        good = EVP_PKEY_CTX_set_rsa_padding(pctx, RSA_PKCS1_PSS_PADDING) == 1
               && EVP_PKEY_CTX_set_rsa_pss_saltlen(pctx,
                                                   RSA_PSS_SALTLEN_DIGEST)
                  == 1;
    }

    good = good
           && EVP_DigestVerify(ctx, signature, size,
                               (const uint8_t *) parts->text, parts->input)
              == 1;

    EVP_MD_CTX_free(ctx);

    return good ? SANDBOX_JOSE_OK : SANDBOX_JOSE_SIGNATURE;
}


/* DER of a signature that is two numbers of equal size; OPENSSL_free() it. */

static int
sandbox_jose_ecdsa(const uint8_t *signature, size_t size, uint8_t **der)
{
    int         n;
    BIGNUM     *r, *s;
    ECDSA_SIG  *pair;

    n = -1;
    pair = ECDSA_SIG_new();
    r = BN_bin2bn(signature, (int) (size / 2), NULL);
    s = BN_bin2bn(signature + size / 2, (int) (size / 2), NULL);

    if (pair != NULL && r != NULL && s != NULL
        && ECDSA_SIG_set0(pair, r, s) == 1)
    {
        r = NULL;
        s = NULL;
        n = i2d_ECDSA_SIG(pair, der);
    }

    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(pair);

    return n;
}
