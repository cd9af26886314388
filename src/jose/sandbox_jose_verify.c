/*
 * Verifies a token: which key, which signature, then its claims.  Nothing that
 * src/jose has not read strictly by itself gets as far as libjwt.
 */

#include "sandbox_jose_core.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>


/* keys tried for one token, each costs up to half a millisecond */

#define SANDBOX_JOSE_MAX_TRIES  8


static sandbox_jose_status_t sandbox_jose_try_keys(
    const sandbox_jose_key_t *const *keys, size_t nkeys, unsigned allowed,
    const sandbox_jose_parts_t *parts);
static int sandbox_jose_kid_known(const sandbox_jose_key_t *const *keys,
    size_t nkeys, const char *kid);
static sandbox_jose_status_t sandbox_jose_by_libjwt(
    const sandbox_jose_key_t *key, const sandbox_jose_parts_t *parts);
static sandbox_jose_status_t sandbox_jose_by_openssl(
    const sandbox_jose_key_t *key, const sandbox_jose_parts_t *parts);


sandbox_jose_status_t
sandbox_jose_verify(const sandbox_jose_key_t *const *keys, size_t nkeys,
    const uint8_t *data, size_t size, const sandbox_jose_policy_t *policy,
    int64_t now, sandbox_jose_token_t *token)
{
    json_t                *claims;
    int64_t                expires;
    unsigned               allowed;
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

    allowed = policy->algorithms != 0 ? policy->algorithms : ~0u;
    expires = 0;

    status = sandbox_jose_try_keys(keys, nkeys, allowed, &parts);

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
    unsigned allowed, const sandbox_jose_parts_t *parts)
{
    int                        pinned;
    size_t                     i, tries;
    const sandbox_jose_key_t  *key;
    sandbox_jose_status_t      status;

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

    return status;
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

    if (parts->access) {
        status = sandbox_jose_by_openssl(key, parts);

    } else {
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
    int         rc;
    jwt_t      *jwt;
    jwt_alg_t   alg;

    jwt = NULL;

    /* without a key libjwt verifies nothing and says so to nobody */

    if (key->size == 0 || key->data == NULL) {
        return SANDBOX_JOSE_FAILED;
    }

    rc = jwt_decode(&jwt, parts->text, key->data, (int) key->size);

    if (rc != 0 || jwt == NULL) {
        return rc == ENOMEM ? SANDBOX_JOSE_FAILED : SANDBOX_JOSE_SIGNATURE;
    }

    alg = jwt_get_alg(jwt);
    jwt_free(jwt);

    return alg == parts->algorithm->jwt ? SANDBOX_JOSE_OK
                                        : SANDBOX_JOSE_SIGNATURE;
}


/*
 * Access tokens of RFC 9068 have the typ "at+jwt", which the libjwt of Debian
 * refuses whatever the signature is.
 */

static sandbox_jose_status_t
sandbox_jose_by_openssl(const sandbox_jose_key_t *key,
    const sandbox_jose_parts_t *parts)
{
    int             good;
    uint8_t         mac[EVP_MAX_MD_SIZE];
    unsigned        n;
    EVP_MD_CTX     *ctx;
    const EVP_MD   *digest;
    const uint8_t  *input;

    digest = parts->algorithm->digest();
    input = (const uint8_t *) parts->text;

    if (key->pkey == NULL) {
        if (HMAC(digest, key->data, (int) key->size, input, parts->input,
                 mac, &n)
            == NULL)
        {
            return SANDBOX_JOSE_FAILED;
        }

        good = n == parts->signature_size
               && CRYPTO_memcmp(mac, parts->signature, n) == 0;

        OPENSSL_cleanse(mac, sizeof(mac));

        return good ? SANDBOX_JOSE_OK : SANDBOX_JOSE_SIGNATURE;
    }

    ctx = EVP_MD_CTX_new();

    if (ctx == NULL
        || EVP_DigestVerifyInit(ctx, NULL, digest, NULL, key->pkey) != 1)
    {
        EVP_MD_CTX_free(ctx);
        return SANDBOX_JOSE_FAILED;
    }

    good = EVP_DigestVerify(ctx, parts->signature, parts->signature_size,
                            input, parts->input);

    EVP_MD_CTX_free(ctx);

    return good == 1 ? SANDBOX_JOSE_OK : SANDBOX_JOSE_SIGNATURE;
}
