/*
 * What the fuzz targets of src/jose share: keys, base64url, a way to stop.
 */

#ifndef SANDBOX_FUZZ_JOSE_H
#define SANDBOX_FUZZ_JOSE_H

#include "sandbox_jose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>


#define FUZZ_NOW     1700000000
#define FUZZ_SECRET  "0123456789abcdef0123456789abcdef"                       \
                     "0123456789abcdef0123456789abcdef"

/* nobody has kept their private keys; tokens by them are in the corpus */

#define FUZZ_RSA                                                              \
    "-----BEGIN PUBLIC KEY-----\n"                                            \
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA5Xy8ltDTO9/tAoHs+Uex\n"      \
    "irUNTUcnCbFLOUNJhzobZWFD+E81okFtChyhPZDmNUvMwH8aDZyPaseaSlcfZn/F\n"      \
    "HXvcwh1N7vEvft27QETpOg/qIzrqSP7zcbvxVE4uXut/wjpgYLribxCf6mwRj7nU\n"      \
    "vk6nzdjVVKxQ4HS894DEnISEeh6HnICx/FSElQi12WoF6QXJ/AJkHNVgJOmuJcLk\n"      \
    "fl1ilcGdGo2mvwXgT80qDmnjbpHkgmbTIFmwTTbbkIpOD4ayB5hCXX64J9ETge1K\n"      \
    "g2mSsZhI6oJEiAPIOPKwO8fCfr4UUfS+GJw3RYCPRO6xQk4BFS0O9REzX53cPGpJ\n"      \
    "OwIDAQAB\n"                                                              \
    "-----END PUBLIC KEY-----\n"

#define FUZZ_EC                                                               \
    "-----BEGIN PUBLIC KEY-----\n"                                            \
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEpurV2zgyZFwKZLlbkhAcXd8Fidzx\n"      \
    "xYqejxadiYIJJsbj9Hou94leAgyZZaW2kQ0RrdULtvpjK5Y95Q4MGZfRNg==\n"          \
    "-----END PUBLIC KEY-----\n"


/*
 * In the place of the one in src/jose (a linker's --wrap): keys are made as
 * with a libjwt that knows all algorithms.
 */

unsigned __wrap_sandbox_jose_supported(void);

unsigned
__wrap_sandbox_jose_supported(void)
{
    return 2 * SANDBOX_JOSE_EDDSA - 1;
}


#define must(condition)                                                      \
    do {                                                                     \
        if (!(condition)) {                                                  \
            abort();                                                         \
        }                                                                    \
    } while (0)


__attribute__((unused))
static sandbox_jose_key_t *
fuzz_secret_key(void)
{
    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    sandbox_jose_key_t  *key;

    key = sandbox_jose_key_secret((const uint8_t *) FUZZ_SECRET,
                                  strlen(FUZZ_SECRET), SANDBOX_JOSE_RAW, NULL,
                                  error);
    must(key != NULL);

    return key;
}


__attribute__((unused))
static sandbox_jose_key_t *
fuzz_public_key(const char *pem, const char *kid)
{
    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    sandbox_jose_key_t  *key;

    key = sandbox_jose_key_pem((const uint8_t *) pem, strlen(pem), kid, error);
    must(key != NULL);

    return key;
}


/* base64url of data to p; the end of it */

__attribute__((unused))
static char *
fuzz_encode(char *p, const void *data, size_t size)
{
    size_t          i;
    uint32_t        bits;
    unsigned        n;
    const uint8_t  *src;

    static const char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    n = 0;
    bits = 0;
    src = data;

    for (i = 0; i < size; i++) {
        bits = bits << 8 | src[i];

        for (n += 8; n >= 6; n -= 6) {
            *p++ = digits[bits >> (n - 6) & 63];
        }
    }

    if (n > 0) {
        *p++ = digits[bits << (6 - n) & 63];
    }

    return p;
}


/* Header and claims signed with FUZZ_SECRET, for free(). */

__attribute__((unused))
static char *
fuzz_sign(const void *header, size_t header_size, const void *claims,
    size_t claims_size, size_t *size)
{
    char      *text, *p;
    uint8_t    mac[EVP_MAX_MD_SIZE];
    unsigned   n;

    text = malloc((header_size + claims_size) * 2 + 128);
    must(text != NULL);

    p = fuzz_encode(text, header, header_size);
    *p++ = '.';
    p = fuzz_encode(p, claims, claims_size);

    HMAC(EVP_sha256(), FUZZ_SECRET, (int) strlen(FUZZ_SECRET),
         (uint8_t *) text, (size_t) (p - text), mac, &n);

    *p++ = '.';
    p = fuzz_encode(p, mac, n);
    *size = (size_t) (p - text);

    return text;
}


#endif /* SANDBOX_FUZZ_JOSE_H */
