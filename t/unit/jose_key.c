/*
 * src/jose: keys as an administrator might hand them over, good and bad, and
 * the sentence he gets for the bad ones.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_jwks.c src/jose/sandbox_jose_path.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: -ljansson -ljwt -lcrypto */

#include "jose_mint.h"

#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <openssl/x509.h>


#define HEX     "303132333435363738396162636465663031323334353637383961626364"  \
                "6566"
#define BASE64  "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"


static void
refused_secret(const void *data, size_t size, const char *word,
    const char *name)
{
    sandbox_jose_key_t  *key;

    mint_error[0] = '\0';
    key = sandbox_jose_key_secret(data, size, SANDBOX_JOSE_RAW,
                                  NULL, mint_error);

    ok(key == NULL, "secret refused: %s", name);
    ok(strstr(mint_error, word) != NULL, "it says: %s", mint_error);

    sandbox_jose_key_free(key);
}


static void
refused_pem(const char *pem, const char *word, const char *name)
{
    sandbox_jose_key_t  *key;

    mint_error[0] = '\0';
    key = sandbox_jose_key_pem((const uint8_t *) pem, strlen(pem), NULL,
                               mint_error);

    ok(key == NULL, "key refused: %s", name);
    ok(strstr(mint_error, word) != NULL, "it says: %s", mint_error);
    ok(ERR_peek_error() == 0, "no OpenSSL error is left behind");

    sandbox_jose_key_free(key);
}


static int
accepted_pem(const char *pem, EVP_PKEY *pkey)
{
    sandbox_jose_key_t     *key;
    sandbox_jose_status_t   status;

    key = sandbox_jose_key_pem((const uint8_t *) pem, strlen(pem), NULL,
                               mint_error);

    if (key == NULL) {
        printf("#   %s\n", mint_error);
        return 0;
    }

    status = mint_verify(key, mint_pkey(MINT_RS256, MINT_CLAIMS, pkey));
    sandbox_jose_key_free(key);

    return status == SANDBOX_JOSE_OK && ERR_peek_error() == 0;
}


static void
test_secrets(const char *pem)
{
    int                  i, n;
    char                *token;
    uint8_t              secret[5000];
    sandbox_jose_key_t  *key;

    memset(secret, 's', sizeof(secret));

    refused_secret("", 0, "empty", "an empty file");
    refused_secret("short", 5, "at least 32", "5 bytes");
    refused_secret(secret, 31, "at least 32", "31 bytes");
    refused_secret(secret, 4097, "the most is 4096", "4097 bytes");
    refused_secret("\n", 1, "blank", "a newline");
    refused_secret("                                        ", 40, "blank",
                   "blanks");
    refused_secret(pem, strlen(pem), "PEM", "a public key");
    refused_secret("# our key\n-----BEGIN PUBLIC KEY-----\n", 37, "PEM",
                   "PEM below a comment");
    refused_secret("{\"kty\":\"oct\",\"k\":\"AAAAAAAAAAAAAAAAAAAAAAAA\"}", 44,
                   "JSON", "a JWK");
    refused_secret(" \r\n\t{\"keys\":[]}", 15, "JSON", "a set of them");

    /* one random secret in 256 begins with a brace */

    secret[0] = '{';
    secret[1] = 0x80;
    key = sandbox_jose_key_secret(secret, 32, SANDBOX_JOSE_RAW,
                                  NULL, mint_error);
    ok(key != NULL, "random bytes may begin with a brace");
    sandbox_jose_key_free(key);

    /* any bytes are a secret, and all of them count */

    for (i = 0, n = 0; i < 256; i++) {
        memset(secret, 's', 32);
        secret[i % 32] = (uint8_t) i;

        key = sandbox_jose_key_secret(secret, 32, SANDBOX_JOSE_RAW,
                                      NULL, mint_error);
        if (key == NULL) {
            continue;
        }

        token = mint_hmac(MINT_HS256, MINT_CLAIMS, secret, 32);
        n += mint_verify(key, token) == SANDBOX_JOSE_OK;
        sandbox_jose_key_free(key);
    }

    is_number(n, 256, "any byte may be in a secret");

    memset(secret, 's', 32);
    secret[32] = '\n';
    key = sandbox_jose_key_secret(secret, 33, SANDBOX_JOSE_RAW,
                                  NULL, mint_error);
    is_number(mint_verify(key, mint_hmac(MINT_HS256, MINT_CLAIMS, secret, 33)),
              SANDBOX_JOSE_OK, "a newline at its end is part of it");
    is_number(mint_verify(key, mint_hmac(MINT_HS256, MINT_CLAIMS, secret, 32)),
              SANDBOX_JOSE_SIGNATURE, "and is not left out");
    sandbox_jose_key_free(key);

    memset(secret, 'k', 256);
    secret[256] = '\0';
    key = sandbox_jose_key_secret((const uint8_t *) MINT_SECRET, 32,
                                  SANDBOX_JOSE_RAW,
                                  (const char *) secret, mint_error);
    ok(key == NULL, "a key id of 256 bytes: %s", mint_error);
    sandbox_jose_key_free(key);
}


static void
test_encodings(void)
{
    char                     text[2 * SANDBOX_JOSE_MAX_SECRET + 200];
    size_t                   i, n;
    uint8_t                  bytes[64];
    sandbox_jose_key_t      *key;

    static const struct {
        const char              *text;
        sandbox_jose_encoding_e  encoding;
        const char              *word;           /* NULL: MINT_SECRET */
    } cases[] = {
        { HEX, SANDBOX_JOSE_HEX, NULL },
        { " \r\n\t" HEX "\r\n", SANDBOX_JOSE_HEX, NULL },
        { BASE64, SANDBOX_JOSE_BASE64URL, NULL },
        { "\n" BASE64 " \n", SANDBOX_JOSE_BASE64URL, NULL },
        { HEX "0", SANDBOX_JOSE_HEX, "even number" },
        { "0x" HEX, SANDBOX_JOSE_HEX, "hexadecimal" },
        { HEX ":00", SANDBOX_JOSE_HEX, "hexadecimal" },
        { "30 31" HEX, SANDBOX_JOSE_HEX, "hexadecimal" },
        { "\xb0\xb1" HEX, SANDBOX_JOSE_HEX, "hexadecimal" },
        { "3g" HEX, SANDBOX_JOSE_HEX, "hexadecimal" },
        { BASE64, SANDBOX_JOSE_HEX, "hexadecimal" },
        { BASE64 "=", SANDBOX_JOSE_BASE64URL, "no padding" },
        { BASE64 "+/", SANDBOX_JOSE_BASE64URL, "not base64url" },
        { BASE64 "AA", SANDBOX_JOSE_BASE64URL, "not base64url" },
        { "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWZ",
          SANDBOX_JOSE_BASE64URL, "not base64url" },
        { "30313233", SANDBOX_JOSE_HEX, "has 4 bytes" },
        { "MDEyMw", SANDBOX_JOSE_BASE64URL, "has 4 bytes" },
        { "", SANDBOX_JOSE_HEX, "empty" },
        { " \n", SANDBOX_JOSE_BASE64URL, "blank" },
        { "-----BEGIN PUBLIC KEY-----\n", SANDBOX_JOSE_HEX, "PEM" },
        { "{\"kty\":\"oct\"}", SANDBOX_JOSE_BASE64URL, "JSON" },
        { "2d2d2d2d2d424547494e205055424c4943204b45592d2d2d2d2d0a4d4949424941"
          "4e42", SANDBOX_JOSE_HEX, "PEM" },
        { "eyJrdHkiOiJvY3QiLCJrIjoiQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUEifQ",
          SANDBOX_JOSE_BASE64URL, "JSON" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mint_error[0] = '\0';
        key = sandbox_jose_key_secret((const uint8_t *) cases[i].text,
                                      strlen(cases[i].text),
                                      cases[i].encoding, NULL, mint_error);

        if (cases[i].word == NULL) {
            is_number(key == NULL ? SANDBOX_JOSE_FAILED
                                  : mint_verify(key, mint(MINT_CLAIMS)),
                      SANDBOX_JOSE_OK, "jwt-fault-17: encoding %zu", i);

        } else {
            ok(key == NULL && strstr(mint_error, cases[i].word) != NULL,
               "jwt-fault-17: encoding %zu: %s", i, mint_error);
        }

        sandbox_jose_key_free(key);
    }

    /* the same text raw is another secret */

    key = sandbox_jose_key_secret((const uint8_t *) HEX, 64, SANDBOX_JOSE_RAW,
                                  NULL, mint_error);
    is_number(mint_verify(key, mint(MINT_CLAIMS)), SANDBOX_JOSE_SIGNATURE,
              "jwt-fault-17: raw, hexadecimal digits are only letters");
    sandbox_jose_key_free(key);

    /* the largest, and a byte more */

    for (i = SANDBOX_JOSE_MAX_SECRET; i <= SANDBOX_JOSE_MAX_SECRET + 1; i++) {
        memset(text, 'a', 2 * i);
        key = sandbox_jose_key_secret((uint8_t *) text, 2 * i,
                                      SANDBOX_JOSE_HEX, NULL, mint_error);
        is_number(key != NULL, i == SANDBOX_JOSE_MAX_SECRET,
                  "%zu bytes in hexadecimal", i);
        sandbox_jose_key_free(key);
    }

    memset(text, 'a', sizeof(text));
    key = sandbox_jose_key_secret((uint8_t *) text,
                                  SANDBOX_JOSE_MAX_SECRET_FILE + 1,
                                  SANDBOX_JOSE_HEX, NULL, mint_error);
    ok(key == NULL && strstr(mint_error, "more than 4096") != NULL,
       "a file that is too large: %s", mint_error);

    /* every digit in either case */

    for (i = 0; i < 2; i++) {
        for (n = 0; n < 64; n++) {
            bytes[n] = (uint8_t) (n * 17);
            sprintf(text + 2 * n, (i + n) % 2 ? "%02x" : "%02X", bytes[n]);
        }

        key = sandbox_jose_key_secret((uint8_t *) text, 128, SANDBOX_JOSE_HEX,
                                      NULL, mint_error);
        is_number(mint_verify(key, mint_mac("HS512", "", bytes, 64)),
                  SANDBOX_JOSE_OK, "digits of both cases");
        sandbox_jose_key_free(key);
    }
}


/* a public key in DER is as public as in PEM */

static void
test_der(EVP_PKEY *pkey, const char *name)
{
    int       n;
    uint8_t  *der;

    der = NULL;
    n = i2d_PUBKEY(pkey, &der);
    refused_secret(der, (size_t) n, "DER", name);
    ok(ERR_peek_error() == 0, "no OpenSSL error is left behind");
    OPENSSL_free(der);
}


static char *
self_signed(EVP_PKEY *pkey)
{
    BIO   *bio;
    X509  *x509;
    char  *data, *pem;
    long   n;

    x509 = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), -200);
    X509_gmtime_adj(X509_getm_notAfter(x509), -100);
    X509_set_pubkey(x509, pkey);
    X509_sign(x509, pkey, EVP_sha256());

    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, x509);
    n = BIO_get_mem_data(bio, &data);
    pem = calloc(1, (size_t) n + 1);
    memcpy(pem, data, (size_t) n);

    BIO_free(bio);
    X509_free(x509);

    return pem;
}


static char *
pkcs1(EVP_PKEY *pkey)
{
    BIO      *bio;
    int       n;
    char     *data, *pem;
    long      size;
    uint8_t  *der;

    der = NULL;
    n = i2d_PublicKey(pkey, &der);

    bio = BIO_new(BIO_s_mem());
    PEM_write_bio(bio, "RSA PUBLIC KEY", "", der, n);
    size = BIO_get_mem_data(bio, &data);
    pem = calloc(1, (size_t) size + 1);
    memcpy(pem, data, (size_t) size);

    BIO_free(bio);
    OPENSSL_free(der);

    return pem;
}


/* the same modulus with an exponent of one's choice, as PEM */

static char *
with_exponent(EVP_PKEY *pkey, unsigned exponent)
{
    char            *pem;
    BIGNUM          *n, *e;
    EVP_PKEY        *weak;
    OSSL_PARAM      *params;
    EVP_PKEY_CTX    *ctx;
    OSSL_PARAM_BLD  *builder;

    n = NULL;
    weak = NULL;
    e = BN_new();
    BN_set_word(e, exponent);
    EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_N, &n);

    builder = OSSL_PARAM_BLD_new();
    OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n);
    OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e);
    params = OSSL_PARAM_BLD_to_param(builder);

    ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    EVP_PKEY_fromdata_init(ctx);
    EVP_PKEY_fromdata(ctx, &weak, EVP_PKEY_PUBLIC_KEY, params);
    pem = mint_pem(weak, 0);

    EVP_PKEY_free(weak);
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(builder);
    BN_free(n);
    BN_free(e);

    return pem;
}


static void
test_pems(EVP_PKEY *rsa, const char *pem)
{
    char      *other, *two, *large;
    size_t     i, n;
    EVP_PKEY  *pkey;

    static const size_t  sizes[] = { 1024, 2040 };

    ok(accepted_pem(pem, rsa), "a public key");

    other = self_signed(rsa);
    ok(accepted_pem(other, rsa), "jwt-fault-8: a certificate, though it has run out");
    free(other);

    other = pkcs1(rsa);
    ok(accepted_pem(other, rsa), "an RSA public key");
    free(other);

    other = malloc(strlen(pem) + 100);
    sprintf(other, "the key of our gateway\n\n%s\n\n", pem);
    ok(accepted_pem(other, rsa), "text before and blank lines behind");
    free(other);

    refused_pem("", "empty", "jwt-fault-8: an empty file");
    refused_pem("hello\n", "no whole PEM block", "text");
    refused_pem("/etc/nginx/issuer.pem", "no whole PEM block",
                "jwt-fault-11: the path of a key");
    refused_pem(MINT_SECRET, "no whole PEM block", "a secret");
    refused_pem("{\"kty\":\"RSA\"}", "no whole PEM block", "a JWK");
    refused_pem("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
                "no whole PEM block", "a block without a key");
    refused_pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
                "PUBLIC KEY block can't be read", "a block with zeros");
    refused_pem("-----BEGIN DH PARAMETERS-----\nAAAA\n"
                "-----END DH PARAMETERS-----\n", "neither PUBLIC KEY",
                "parameters");

    other = strdup(pem);
    other[strlen(other) / 2] = '\0';
    refused_pem(other, "no whole PEM block", "half a key");
    free(other);

    other = mint_pem(rsa, 1);
    refused_pem(other, "private key", "a private key");
    free(other);

    two = malloc(strlen(pem) * 2 + 1);
    sprintf(two, "%s%s", pem, pem);
    refused_pem(two, "more than one", "two keys");
    free(two);

    large = malloc(70000);
    memset(large, '\n', 70000);
    n = strlen(pem);
    memcpy(large, pem, n);
    large[69999] = '\0';
    refused_pem(large, "the most is 65536", "70 kB");
    free(large);

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        pkey = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", sizes[i]);
        other = mint_pem(pkey, 0);
        refused_pem(other, "it must have 2048 to 8192", "a short modulus");
        free(other);
        EVP_PKEY_free(pkey);
    }

    pkey = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "secp256k1");
    other = mint_pem(pkey, 0);
    refused_pem(other, "none of P-256", "a key of another curve");
    free(other);
    EVP_PKEY_free(pkey);

    pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED448");
    other = mint_pem(pkey, 0);
    refused_pem(other, "none of RSA", "a key of Ed448");
    free(other);
    EVP_PKEY_free(pkey);

    other = with_exponent(rsa, 1);
    refused_pem(other, "exponent", "an exponent of 1");
    free(other);

    other = with_exponent(rsa, 4);
    refused_pem(other, "exponent", "an even exponent");
    free(other);
}


int
main(void)
{
    char      *pem;
    EVP_PKEY  *rsa, *pkey;

    rsa = EVP_RSA_gen(2048);
    pem = mint_pem(rsa, 0);

    test_secrets(pem);
    test_encodings();
    test_der(rsa, "an RSA key in DER");
    pkey = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    test_der(pkey, "an EC key in DER");
    EVP_PKEY_free(pkey);
    test_pems(rsa, pem);
    sandbox_jose_key_free(NULL);

    free(pem);
    EVP_PKEY_free(rsa);

    return test_done();
}
