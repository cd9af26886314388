/*
 * Tokens for the tests of src/jose, signed by OpenSSL and encoded by hand, so
 * that neither libjwt nor src/jose has a part in making them.
 */

#ifndef SANDBOX_JOSE_MINT_H
#define SANDBOX_JOSE_MINT_H

#include "test.h"
#include "sandbox_jose.h"

#include <stdlib.h>

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>


#define MINT_NOW     1700000000
#define MINT_SECRET  "0123456789abcdef0123456789abcdef"
#define MINT_HS256   "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"
#define MINT_RS256   "{\"alg\":\"RS256\",\"typ\":\"JWT\"}"
#define MINT_CLAIMS  "{\"sub\":\"alice\",\"exp\":1700000100}"


static char  mint_error[SANDBOX_JOSE_ERROR_SIZE];


/* base64url of `size` bytes, appended to the string at out */

__attribute__((unused))
static void
mint_append(char *out, const void *data, size_t size)
{
    size_t          i;
    unsigned        n;
    uint32_t        bits;
    const uint8_t  *p;

    static const char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    p = data;
    n = 0;
    bits = 0;
    out += strlen(out);

    for (i = 0; i < size; i++) {
        bits = bits << 8 | p[i];
        n += 8;

        while (n >= 6) {
            n -= 6;
            *out++ = digits[bits >> n & 63];
        }
    }

    if (n > 0) {
        *out++ = digits[bits << (6 - n) & 63];
    }

    *out = '\0';
}


/* "header.payload" of bytes; free() it */

__attribute__((unused))
static char *
mint_input(const char *header, const void *payload, size_t size)
{
    char  *out;

    out = calloc(1, (strlen(header) + size) * 2 + 64 * 1024);

    mint_append(out, header, strlen(header));
    strcat(out, ".");
    mint_append(out, payload, size);

    return out;
}


__attribute__((unused))
static char *
mint_hmac_bytes(const char *header, const void *payload, size_t payload_size,
    const void *secret, size_t size)
{
    char      *out;
    uint8_t    mac[EVP_MAX_MD_SIZE];
    unsigned   n;

    out = mint_input(header, payload, payload_size);

    HMAC(EVP_sha256(), secret, (int) size, (uint8_t *) out, strlen(out), mac,
         &n);

    strcat(out, ".");
    mint_append(out, mac, n);

    return out;
}


/* a token signed with HMAC; free() it */

__attribute__((unused))
static char *
mint_hmac(const char *header, const char *payload, const void *secret,
    size_t size)
{
    return mint_hmac_bytes(header, payload, strlen(payload), secret, size);
}


/* a token of good header and MINT_SECRET with these claims; free() it */

__attribute__((unused))
static char *
mint(const char *claims)
{
    return mint_hmac(MINT_HS256, claims, MINT_SECRET, strlen(MINT_SECRET));
}


/* a token signed with a private key and SHA-256; free() it */

__attribute__((unused))
static char *
mint_pkey(const char *header, const char *payload, EVP_PKEY *pkey)
{
    char        *out;
    size_t       n;
    uint8_t      signature[2048];
    EVP_MD_CTX  *ctx;

    out = mint_input(header, payload, strlen(payload));
    n = sizeof(signature);
    ctx = EVP_MD_CTX_new();

    if (EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, pkey) != 1
        || EVP_DigestSign(ctx, signature, &n, (uint8_t *) out, strlen(out))
           != 1)
    {
        abort();
    }

    EVP_MD_CTX_free(ctx);

    strcat(out, ".");
    mint_append(out, signature, n);

    return out;
}


/* the hash of an algorithm; NULL: EdDSA brings its own */

__attribute__((unused))
static const EVP_MD *
mint_digest(const char *alg)
{
    switch (alg[2]) {

    case '2':
        return EVP_sha256();

    case '3':
        return EVP_sha384();

    case '5':
        return EVP_sha512();

    default:
        return NULL;
    }
}


/* A signature as JOSE wants it; salt: of PS*, -1 as long as the hash. */

__attribute__((unused))
static size_t
mint_signature(const char *alg, EVP_PKEY *pkey, int salt, const char *input,
    uint8_t signature[2048])
{
    int             half;
    size_t          n;
    EVP_MD_CTX     *ctx;
    ECDSA_SIG      *pair;
    EVP_PKEY_CTX   *pctx;
    const uint8_t  *der;

    n = 2048;
    ctx = EVP_MD_CTX_new();

    if (EVP_DigestSignInit(ctx, &pctx, mint_digest(alg), NULL, pkey) != 1
        || (alg[0] == 'P'
            && (EVP_PKEY_CTX_set_rsa_padding(pctx, RSA_PKCS1_PSS_PADDING) != 1
                || EVP_PKEY_CTX_set_rsa_pss_saltlen(pctx, salt) != 1))
        || EVP_DigestSign(ctx, signature, &n, (const uint8_t *) input,
                          strlen(input)) != 1)
    {
        abort();
    }

    EVP_MD_CTX_free(ctx);

    if (strncmp(alg, "ES", 2) == 0) {
        der = signature;
        pair = d2i_ECDSA_SIG(NULL, &der, (long) n);
        half = (EVP_PKEY_get_bits(pkey) + 7) / 8;
        BN_bn2binpad(ECDSA_SIG_get0_r(pair), signature, half);
        BN_bn2binpad(ECDSA_SIG_get0_s(pair), signature + half, half);
        ECDSA_SIG_free(pair);
        n = (size_t) half * 2;
    }

    return n;
}


/* a token of these header members, signed as `alg` says; free() it */

__attribute__((unused))
static char *
mint_as(const char *alg, const char *more, EVP_PKEY *pkey)
{
    char     header[512], *out;
    size_t   n;
    uint8_t  signature[2048];

    snprintf(header, sizeof(header), "{\"alg\":\"%s\"%s}", alg, more);

    out = mint_input(header, MINT_CLAIMS, strlen(MINT_CLAIMS));
    n = mint_signature(alg, pkey, -1, out, signature);
    strcat(out, ".");
    mint_append(out, signature, n);

    return out;
}


/* the same with HMAC */

__attribute__((unused))
static char *
mint_mac(const char *alg, const char *more, const void *secret, size_t size)
{
    char      header[512], *out;
    uint8_t   mac[EVP_MAX_MD_SIZE];
    unsigned  n;

    snprintf(header, sizeof(header), "{\"alg\":\"%s\"%s}", alg, more);

    out = mint_input(header, MINT_CLAIMS, strlen(MINT_CLAIMS));
    HMAC(mint_digest(alg), secret, (int) size, (uint8_t *) out, strlen(out),
         mac, &n);
    strcat(out, ".");
    mint_append(out, mac, n);

    return out;
}


/* PEM of a key; free() it */

__attribute__((unused))
static char *
mint_pem(EVP_PKEY *pkey, int private)
{
    BIO   *bio;
    char  *data, *pem;
    long   n;

    bio = BIO_new(BIO_s_mem());

    if (private) {
        PEM_write_bio_PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL);

    } else {
        PEM_write_bio_PUBKEY(bio, pkey);
    }

    n = BIO_get_mem_data(bio, &data);
    pem = calloc(1, (size_t) n + 1);
    memcpy(pem, data, (size_t) n);
    BIO_free(bio);

    return pem;
}


__attribute__((unused))
static sandbox_jose_key_t *
mint_secret_key(const char *kid)
{
    return sandbox_jose_key_secret((const uint8_t *) MINT_SECRET,
                                   strlen(MINT_SECRET), SANDBOX_JOSE_RAW, kid,
                                   mint_error);
}


__attribute__((unused))
static sandbox_jose_key_t *
mint_public_key(EVP_PKEY *pkey, const char *kid)
{
    char                *pem;
    sandbox_jose_key_t  *key;

    pem = mint_pem(pkey, 0);
    key = sandbox_jose_key_pem((uint8_t *) pem, strlen(pem), kid, mint_error);
    free(pem);

    return key;
}


/*
 * The JWK of a public key, with more members behind it (",\"alg\":..."); zeros:
 * bytes of zero put before a modulus.  free() it
 */

__attribute__((unused))
static char *
mint_jwk(EVP_PKEY *pkey, size_t zeros, const char *more)
{
    char     *out, group[32];
    size_t    i, n;
    BIGNUM   *number[2];
    uint8_t   bytes[1100];

    static const char *const  rsa[] = { OSSL_PKEY_PARAM_RSA_N,
                                        OSSL_PKEY_PARAM_RSA_E };
    static const char *const  ec[] = { OSSL_PKEY_PARAM_EC_PUB_X,
                                       OSSL_PKEY_PARAM_EC_PUB_Y };

    out = calloc(1, 4096);
    memset(bytes, 0, sizeof(bytes));

    switch (EVP_PKEY_get_base_id(pkey)) {

    case EVP_PKEY_RSA:
        strcpy(out, "{\"kty\":\"RSA\"");
        break;

    case EVP_PKEY_EC:
        EVP_PKEY_get_group_name(pkey, group, sizeof(group), NULL);
        sprintf(out, "{\"kty\":\"EC\",\"crv\":\"%s\"",
                strcmp(group, "prime256v1") == 0 ? "P-256"
                : strcmp(group, "secp384r1") == 0 ? "P-384"
                : strcmp(group, "secp521r1") == 0 ? "P-521" : group);
        break;

    default:
        n = sizeof(bytes);
        EVP_PKEY_get_raw_public_key(pkey, bytes, &n);
        strcpy(out, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"");
        mint_append(out, bytes, n);
        strcat(out, "\"");
        strcat(out, more);
        return strcat(out, "}");
    }

    for (i = 0; i < 2; i++) {
        number[i] = NULL;
        EVP_PKEY_get_bn_param(pkey, EVP_PKEY_get_base_id(pkey) == EVP_PKEY_RSA
                                    ? rsa[i] : ec[i], &number[i]);

        n = EVP_PKEY_get_base_id(pkey) == EVP_PKEY_RSA
            ? (size_t) BN_num_bytes(number[i])
            : (size_t) (EVP_PKEY_get_bits(pkey) + 7) / 8;

        memset(bytes, 0, zeros);
        BN_bn2binpad(number[i], bytes + zeros, (int) n);
        sprintf(out + strlen(out), ",\"%s\":\"",
                EVP_PKEY_get_base_id(pkey) == EVP_PKEY_RSA ? (i ? "e" : "n")
                                                           : (i ? "y" : "x"));
        mint_append(out, bytes, n + zeros);
        strcat(out, "\"");
        BN_free(number[i]);
    }

    strcat(out, more);

    return strcat(out, "}");
}


/* a path that must be good */

__attribute__((unused))
static sandbox_jose_path_t *
mint_path(const char *text)
{
    sandbox_jose_path_t  *path;

    path = sandbox_jose_path(text, mint_error);

    if (path == NULL) {
        printf("# %s: %s\n", text, mint_error);
        abort();
    }

    return path;
}


/*
 * Verifies with keys and policy and frees the token.  Fails the test if an
 * OpenSSL error is left behind or claims come with a refusal.
 */

__attribute__((unused))
static sandbox_jose_status_t
mint_verify_with(const sandbox_jose_key_t *const *keys, size_t n, char *token,
    size_t size, const sandbox_jose_policy_t *policy)
{
    sandbox_jose_token_t   result;
    sandbox_jose_status_t  status;

    memset(&result, 0, sizeof(result));

    status = sandbox_jose_verify(keys, n, (uint8_t *) token, size, policy,
                                 MINT_NOW, &result);

    if (ERR_peek_error() != 0) {
        ok(0, "no OpenSSL error is left behind");
        ERR_clear_error();
    }

    if ((status == SANDBOX_JOSE_OK) != (result.claims != NULL)) {
        ok(0, "claims come with success only");
    }

    json_decref(result.claims);
    free(token);

    return status;
}


/* the same with one key and no policy */

__attribute__((unused))
static sandbox_jose_status_t
mint_verify(const sandbox_jose_key_t *key, char *token)
{
    sandbox_jose_policy_t  policy;

    memset(&policy, 0, sizeof(policy));

    return mint_verify_with(&key, 1, token, strlen(token), &policy);
}


#endif /* SANDBOX_JOSE_MINT_H */
