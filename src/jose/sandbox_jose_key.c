/*
 * Keys: secrets and public keys as an administrator hands them over, refused
 * with a sentence where they would be weak or are the wrong kind of thing.
 * Opens no files, verifies nothing.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* memmem() */
#endif

#include "sandbox_jose_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>


static sandbox_jose_key_t *sandbox_jose_key_new(unsigned algorithms,
    const uint8_t *data, size_t size, const char *kid, char *error);
static int sandbox_jose_looks_public(const uint8_t *secret, size_t size,
    char *error);
static EVP_PKEY *sandbox_jose_pem_read(BIO *bio, char *error);
static EVP_PKEY *sandbox_jose_pem_key(const char *name, const uint8_t *der,
    long size, char *error);
static int sandbox_jose_rsa_check(EVP_PKEY *pkey, char *error);
static void sandbox_jose_error(char *error, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));


sandbox_jose_key_t *
sandbox_jose_key_secret(const uint8_t *secret, size_t size, const char *kid,
    char *error)
{
    if (size == 0) {
        sandbox_jose_error(error, "the secret is empty");
        return NULL;
    }

    if (sandbox_jose_looks_public(secret, size, error)) {
        return NULL;
    }

    if (size < SANDBOX_JOSE_MIN_SECRET) {
        sandbox_jose_error(error,
                           "the secret has %zu bytes, HS256 needs at least %d",
                           size, SANDBOX_JOSE_MIN_SECRET);
        return NULL;
    }

    if (size > SANDBOX_JOSE_MAX_SECRET) {
        sandbox_jose_error(error,
                           "the secret has %zu bytes, the most is %d",
                           size, SANDBOX_JOSE_MAX_SECRET);
        return NULL;
    }

    return sandbox_jose_key_new(SANDBOX_JOSE_HS256, secret, size, kid, error);
}


sandbox_jose_key_t *
sandbox_jose_key_pem(const uint8_t *pem, size_t size, const char *kid,
    char *error)
{
    BIO                 *bio;
    char                *data;
    long                 n;
    EVP_PKEY            *pkey;
    sandbox_jose_key_t  *key;

    if (size == 0) {
        sandbox_jose_error(error, "the key is empty");
        return NULL;
    }

    if (size > SANDBOX_JOSE_MAX_PEM) {
        sandbox_jose_error(error, "the key has %zu bytes, the most is %d",
                           size, SANDBOX_JOSE_MAX_PEM);
        return NULL;
    }

    key = NULL;
    pkey = NULL;

    bio = BIO_new_mem_buf(pem, (int) size);

    if (bio != NULL) {
        pkey = sandbox_jose_pem_read(bio, error);
        BIO_free(bio);

    } else {
        sandbox_jose_error(error, "no memory");
    }

    if (pkey == NULL || !sandbox_jose_rsa_check(pkey, error)) {
        goto done;
    }

    /* libjwt reads the key anew each time, and knows only this form */

    bio = BIO_new(BIO_s_mem());

    if (bio == NULL || PEM_write_bio_PUBKEY(bio, pkey) != 1
        || (n = BIO_get_mem_data(bio, &data)) <= 0)
    {
        sandbox_jose_error(error, "no memory");
        BIO_free(bio);
        goto done;
    }

    key = sandbox_jose_key_new(SANDBOX_JOSE_RS256, (uint8_t *) data,
                               (size_t) n, kid, error);
    BIO_free(bio);

    if (key != NULL) {
        key->pkey = pkey;
        pkey = NULL;
    }

done:

    EVP_PKEY_free(pkey);
    ERR_clear_error();

    return key;
}


void
sandbox_jose_key_free(sandbox_jose_key_t *key)
{
    if (key == NULL) {
        return;
    }

    if (key->data != NULL) {
        OPENSSL_cleanse(key->data, key->size);
    }

    EVP_PKEY_free(key->pkey);
    free(key->data);
    free(key->kid);
    free(key);
}


unsigned
sandbox_jose_key_algorithms(const sandbox_jose_key_t *key)
{
    return key->algorithms;
}


static sandbox_jose_key_t *
sandbox_jose_key_new(unsigned algorithms, const uint8_t *data, size_t size,
    const char *kid, char *error)
{
    sandbox_jose_key_t  *key;

    if (kid != NULL && strlen(kid) > SANDBOX_JOSE_MAX_NAME) {
        sandbox_jose_error(error, "the key id has more than %d bytes",
                           SANDBOX_JOSE_MAX_NAME);
        return NULL;
    }

    key = calloc(1, sizeof(sandbox_jose_key_t));

    if (key == NULL
        || (key->data = malloc(size)) == NULL
        || (kid != NULL && (key->kid = strdup(kid)) == NULL))
    {
        sandbox_jose_error(error, "no memory");
        sandbox_jose_key_free(key);
        return NULL;
    }

    memcpy(key->data, data, size);
    key->size = size;
    key->algorithms = algorithms;

    return key;
}


/*
 * A public key used as an HMAC secret lets everybody sign, so what is text
 * and looks like a PEM or a JSON document is no secret.  Random bytes that
 * only begin with a brace are one.
 */

static int
sandbox_jose_looks_public(const uint8_t *secret, size_t size, char *error)
{
    size_t  i, start;

    if (memmem(secret, size, "-----BEGIN ", 11) != NULL) {
        sandbox_jose_error(error, "the secret looks like PEM, "
                           "a public key is no secret");
        return 1;
    }

    for (start = 0; start < size; start++) {
        if (strchr(" \t\r\n", secret[start]) == NULL || secret[start] == '\0') {
            break;
        }
    }

    if (start == size) {
        sandbox_jose_error(error, "the secret is blank");
        return 1;
    }

    if (secret[start] != '{') {
        return 0;
    }

    for (i = start; i < size; i++) {
        if (secret[i] >= 0x7f
            || (secret[i] < 0x20 && (secret[i] < '\t' || secret[i] > '\r')))
        {
            return 0;
        }
    }

    sandbox_jose_error(error, "the secret looks like a JSON Web Key, "
                       "its raw bytes are wanted");
    return 1;
}


static EVP_PKEY *
sandbox_jose_pem_read(BIO *bio, char *error)
{
    long       size, rest;
    char      *name, *header;
    uint8_t   *der;
    EVP_PKEY  *pkey;

    if (PEM_read_bio(bio, &name, &header, &der, &size) != 1) {
        sandbox_jose_error(error, "there is no whole PEM block in it");
        return NULL;
    }

    pkey = sandbox_jose_pem_key(name, der, size, error);

    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_clear_free(der, (size_t) size);

    if (pkey == NULL) {
        return NULL;
    }

    if (PEM_read_bio(bio, &name, &header, &der, &rest) == 1) {
        OPENSSL_free(name);
        OPENSSL_free(header);
        OPENSSL_clear_free(der, (size_t) rest);
        EVP_PKEY_free(pkey);

        sandbox_jose_error(error, "there is more than one PEM block in it");
        return NULL;
    }

    return pkey;
}


static EVP_PKEY *
sandbox_jose_pem_key(const char *name, const uint8_t *der, long size,
    char *error)
{
    X509           *x509;
    EVP_PKEY       *pkey;
    const uint8_t  *p;

    p = der;
    pkey = NULL;

    if (strstr(name, "PRIVATE KEY") != NULL) {
        sandbox_jose_error(error, "it is a private key, the public one is "
                           "wanted (openssl pkey -in FILE -pubout)");
        return NULL;
    }

    if (strcmp(name, "PUBLIC KEY") == 0) {
        pkey = d2i_PUBKEY(NULL, &p, size);

    } else if (strcmp(name, "RSA PUBLIC KEY") == 0) {
        pkey = d2i_PublicKey(EVP_PKEY_RSA, NULL, &p, size);

    } else if (strcmp(name, "CERTIFICATE") == 0) {
        x509 = d2i_X509(NULL, &p, size);

        if (x509 != NULL) {
            pkey = X509_get_pubkey(x509);
            X509_free(x509);
        }

    } else {
        sandbox_jose_error(error, "its PEM block is neither PUBLIC KEY "
                           "nor CERTIFICATE");
        return NULL;
    }

    if (pkey == NULL || p != der + size) {
        sandbox_jose_error(error, "its %s block can't be read", name);
        EVP_PKEY_free(pkey);
        return NULL;
    }

    return pkey;
}


static int
sandbox_jose_rsa_check(EVP_PKEY *pkey, char *error)
{
    int      bits, good;
    BIGNUM  *exponent;

    if (EVP_PKEY_get_base_id(pkey) != EVP_PKEY_RSA) {
        sandbox_jose_error(error, "it is not an RSA key");
        return 0;
    }

    bits = EVP_PKEY_get_bits(pkey);

    if (bits < SANDBOX_JOSE_MIN_MODULUS || bits > SANDBOX_JOSE_MAX_MODULUS) {
        sandbox_jose_error(error, "its RSA modulus has %d bits, "
                           "it must have %d to %d", bits,
                           SANDBOX_JOSE_MIN_MODULUS, SANDBOX_JOSE_MAX_MODULUS);
        return 0;
    }

    /* with an exponent of 1 a signature is its own message */

    exponent = NULL;

    good = EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_E, &exponent) == 1
           && BN_is_odd(exponent) && !BN_is_one(exponent);

    BN_free(exponent);

    if (!good) {
        sandbox_jose_error(error, "its RSA exponent is not odd and over 1");
    }

    return good;
}


static void
sandbox_jose_error(char *error, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    vsnprintf(error, SANDBOX_JOSE_ERROR_SIZE, fmt, args);
    va_end(args);
}
