/*
 * Public keys as an administrator hands them over, refused with a sentence
 * where they would be weak or are the wrong kind of thing.
 * Opens no files, verifies nothing.
 */

#include "sandbox_jose_core.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>


static EVP_PKEY *sandbox_jose_pem_read(BIO *bio, char *error);
static EVP_PKEY *sandbox_jose_pem_key(const char *name, const uint8_t *der,
    long size, char *error);
static unsigned sandbox_jose_rsa(EVP_PKEY *pkey, char *error);
static unsigned sandbox_jose_ec(EVP_PKEY *pkey, char *error);
static EVP_PKEY *sandbox_jose_as_pss(EVP_PKEY *pkey);
static int sandbox_jose_to_pem(EVP_PKEY *pkey, sandbox_jose_buf_t *pem);


sandbox_jose_key_t *
sandbox_jose_key_pem(const uint8_t *pem, size_t size, const char *kid,
    char *error)
{
    BIO       *bio;
    EVP_PKEY  *pkey;

    if (size == 0) {
        sandbox_jose_error(error, "the key is empty");
        return NULL;
    }

    if (size > SANDBOX_JOSE_MAX_PEM) {
        sandbox_jose_error(error, "the key has %zu bytes, the most is %d",
                           size, SANDBOX_JOSE_MAX_PEM);
        return NULL;
    }

    bio = BIO_new_mem_buf(pem, (int) size);

    if (bio == NULL) {
        sandbox_jose_error(error, "no memory");
        ERR_clear_error();
        return NULL;
    }

    pkey = sandbox_jose_pem_read(bio, error);

    BIO_free(bio);
    ERR_clear_error();

    return pkey == NULL ? NULL : sandbox_jose_key_public(pkey, kid, error);
}


sandbox_jose_key_t *
sandbox_jose_key_public(EVP_PKEY *pkey, const char *kid, char *error)
{
    int                  good;
    unsigned             algorithms;
    EVP_PKEY            *pss;
    sandbox_jose_key_t  *key;

    switch (EVP_PKEY_get_base_id(pkey)) {

    case EVP_PKEY_RSA:
    case EVP_PKEY_RSA_PSS:
        algorithms = sandbox_jose_rsa(pkey, error);
        break;

    case EVP_PKEY_EC:
        algorithms = sandbox_jose_ec(pkey, error);
        break;

    case EVP_PKEY_ED25519:
        algorithms = SANDBOX_JOSE_EDDSA;
        break;

    default:
        sandbox_jose_error(error, "its type is none of RSA, EC and Ed25519");
        algorithms = 0;
    }

    key = NULL;
    good = 0;

    if (algorithms == 0) {
        goto done;
    }

    algorithms &= sandbox_jose_supported();

    if (algorithms == 0) {
        sandbox_jose_error(error, "the installed libjwt verifies no signatures "
                           "of that type, a newer one would");
        goto done;
    }

    key = calloc(1, sizeof(sandbox_jose_key_t));

    if (key == NULL) {
        sandbox_jose_error(error, "no memory");
        goto done;
    }

    key->algorithms = algorithms;
    good = sandbox_jose_key_kid(key, kid, error);

    if (good && !sandbox_jose_to_pem(pkey, &key->data)) {
        sandbox_jose_error(error, "no memory");
        good = 0;
    }

    if (good && (algorithms & SANDBOX_JOSE_PS)) {
        pss = sandbox_jose_as_pss(pkey);

        if (pss == NULL || !sandbox_jose_to_pem(pss, &key->pss)) {
            sandbox_jose_error(error, "no memory");
            good = 0;
        }

        EVP_PKEY_free(pss);
    }

done:

    if (good) {
        key->pkey = pkey;

    } else {
        EVP_PKEY_free(pkey);
        sandbox_jose_key_free(key);
        key = NULL;
    }

    ERR_clear_error();

    return key;
}


void
sandbox_jose_key_free(sandbox_jose_key_t *key)
{
    if (key == NULL) {
        return;
    }

    EVP_PKEY_free(key->pkey);
    sandbox_jose_buf_free(&key->data);
    sandbox_jose_buf_free(&key->pss);
    free(key->kid);
    free(key);
}


unsigned
sandbox_jose_key_algorithms(const sandbox_jose_key_t *key)
{
    return key->algorithms;
}


int
sandbox_jose_key_kid(sandbox_jose_key_t *key, const char *kid, char *error)
{
    if (kid == NULL) {
        return 1;
    }

    if (strlen(kid) > SANDBOX_JOSE_MAX_NAME) {
        sandbox_jose_error(error, "the key id has more than %d bytes",
                           SANDBOX_JOSE_MAX_NAME);
        return 0;
    }

    key->kid = strdup(kid);

    if (key->kid == NULL) {
        sandbox_jose_error(error, "no memory");
        return 0;
    }

    return 1;
}


void
sandbox_jose_buf_free(sandbox_jose_buf_t *buf)
{
    if (buf->data != NULL) {
        OPENSSL_cleanse(buf->data, buf->size);
        free(buf->data);
        buf->data = NULL;
    }
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


/* The algorithms a key is good for, 0 with a sentence. */

static unsigned
sandbox_jose_rsa(EVP_PKEY *pkey, char *error)
{
    int      bits, good;
    BIGNUM  *modulus, *exponent;

    bits = EVP_PKEY_get_bits(pkey);

    if (bits < SANDBOX_JOSE_MIN_MODULUS || bits > SANDBOX_JOSE_MAX_MODULUS) {
        sandbox_jose_error(error, "its RSA modulus has %d bits, "
                           "it must have %d to %d", bits,
                           SANDBOX_JOSE_MIN_MODULUS, SANDBOX_JOSE_MAX_MODULUS);
        return 0;
    }

    /*
     * With an exponent of 1 a signature is its own message, with a long one
     * each look at a token takes as long as signing it.
     */

    modulus = NULL;
    exponent = NULL;

    good = EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_N, &modulus) == 1
           && EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_E, &exponent) == 1
           && BN_is_odd(modulus) && BN_is_odd(exponent) && !BN_is_one(exponent)
           && BN_num_bits(exponent) <= SANDBOX_JOSE_MAX_EXPONENT;

    BN_free(modulus);
    BN_free(exponent);

    if (!good) {
        sandbox_jose_error(error, "its RSA modulus is not odd, or its exponent "
                           "not odd and over 1 and of at most %d bits",
                           SANDBOX_JOSE_MAX_EXPONENT);
        return 0;
    }

    return EVP_PKEY_get_base_id(pkey) == EVP_PKEY_RSA
           ? SANDBOX_JOSE_RS | SANDBOX_JOSE_PS : SANDBOX_JOSE_PS;
}


static unsigned
sandbox_jose_ec(EVP_PKEY *pkey, char *error)
{
    int           explicit;
    char          name[32];
    size_t        i;
    EVP_PKEY_CTX *ctx;

    static const struct {
        const char  *name;                       /* as OpenSSL calls it */
        unsigned     algorithm;
    } curves[] = {
        { "prime256v1", SANDBOX_JOSE_ES256 },
        { "secp384r1", SANDBOX_JOSE_ES384 },
        { "secp521r1", SANDBOX_JOSE_ES512 }
    };

    /* a curve spelled out in the key may have a generator of its own making */

    explicit = 0;
    (void) EVP_PKEY_get_int_param(pkey,
                              OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS,
                              &explicit);

    if (explicit != 0
        || EVP_PKEY_get_group_name(pkey, name, sizeof(name), NULL) != 1)
    {
        sandbox_jose_error(error, "its curve has no name");
        return 0;
    }

    for (i = 0; i < sizeof(curves) / sizeof(curves[0]); i++) {
        if (strcmp(curves[i].name, name) == 0) {
            break;
        }
    }

    if (i == sizeof(curves) / sizeof(curves[0])) {
        sandbox_jose_error(error, "its curve %s is none of P-256, P-384 and "
                           "P-521", name);
        return 0;
    }

    /* on the curve, and not at infinity */

    ctx = EVP_PKEY_CTX_new_from_pkey(NULL, pkey, NULL);

    if (ctx == NULL || EVP_PKEY_public_check_quick(ctx) != 1) {
        sandbox_jose_error(error, "its point is not on its curve");
        EVP_PKEY_CTX_free(ctx);
        return 0;
    }

    EVP_PKEY_CTX_free(ctx);

    return curves[i].algorithm;
}


/*
 * libjwt verifies PS* only with a key whose type is RSA-PSS, which is not what
 * issuers publish: the same numbers under the other name.
 */

static EVP_PKEY *
sandbox_jose_as_pss(EVP_PKEY *pkey)
{
    EVP_PKEY      *pss;
    OSSL_PARAM    *params;
    EVP_PKEY_CTX  *ctx;

    if (EVP_PKEY_get_base_id(pkey) == EVP_PKEY_RSA_PSS) {
        return EVP_PKEY_up_ref(pkey) == 1 ? pkey : NULL;
    }

    pss = NULL;
    params = NULL;
    ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA-PSS", NULL);

    if (ctx != NULL
        && EVP_PKEY_todata(pkey, EVP_PKEY_PUBLIC_KEY, &params) == 1
        && EVP_PKEY_fromdata_init(ctx) == 1)
    {
        (void) EVP_PKEY_fromdata(ctx, &pss, EVP_PKEY_PUBLIC_KEY, params);
    }

    OSSL_PARAM_free(params);
    EVP_PKEY_CTX_free(ctx);

    return pss;
}


static int
sandbox_jose_to_pem(EVP_PKEY *pkey, sandbox_jose_buf_t *pem)
{
    BIO   *bio;
    char  *data;
    long   n;

    bio = BIO_new(BIO_s_mem());

    if (bio != NULL && PEM_write_bio_PUBKEY(bio, pkey) == 1
        && (n = BIO_get_mem_data(bio, &data)) > 0
        && (pem->data = malloc((size_t) n)) != NULL)
    {
        memcpy(pem->data, data, (size_t) n);
        pem->size = (size_t) n;
    }

    BIO_free(bio);

    return pem->data != NULL;
}
