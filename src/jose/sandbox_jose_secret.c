/*
 * Secrets as an administrator hands them over, refused with a sentence where
 * they would be weak or are no secret at all.  Opens no files.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* memmem() */
#endif

#include "sandbox_jose_core.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/x509.h>


static sandbox_jose_key_t *sandbox_jose_secret_new(const uint8_t *secret,
    size_t size, const char *kid, char *error);
static int sandbox_jose_decode(const uint8_t *data, size_t size,
    sandbox_jose_encoding_e encoding, sandbox_jose_buf_t *secret, char *error);
static int64_t sandbox_jose_hex(const uint8_t *src, size_t size, uint8_t *dst);
static int sandbox_jose_looks_public(const uint8_t *secret, size_t size,
    char *error);


sandbox_jose_key_t *
sandbox_jose_key_secret(const uint8_t *data, size_t size,
    sandbox_jose_encoding_e encoding, const char *kid, char *error)
{
    sandbox_jose_buf_t   secret;
    sandbox_jose_key_t  *key;

    if (size == 0) {
        sandbox_jose_error(error, "the secret is empty");
        return NULL;
    }

    if (size > SANDBOX_JOSE_MAX_SECRET_FILE) {
        sandbox_jose_error(error, "the secret has more than %d bytes",
                           SANDBOX_JOSE_MAX_SECRET);
        return NULL;
    }

    /* as it stands, too: PEM is no hexadecimal, but that isn't the trouble */

    if (sandbox_jose_looks_public(data, size, error)) {
        return NULL;
    }

    if (encoding == SANDBOX_JOSE_RAW) {
        return sandbox_jose_secret_new(data, size, kid, error);
    }

    if (!sandbox_jose_decode(data, size, encoding, &secret, error)) {
        return NULL;
    }

    key = NULL;

    if (!sandbox_jose_looks_public(secret.data, secret.size, error)) {
        key = sandbox_jose_secret_new(secret.data, secret.size, kid, error);
    }

    sandbox_jose_buf_free(&secret);

    return key;
}


static sandbox_jose_key_t *
sandbox_jose_secret_new(const uint8_t *secret, size_t size, const char *kid,
    char *error)
{
    sandbox_jose_key_t  *key;

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

    key = calloc(1, sizeof(sandbox_jose_key_t));

    if (key == NULL || (key->data.data = malloc(size)) == NULL) {
        sandbox_jose_error(error, "no memory");
        sandbox_jose_key_free(key);
        return NULL;
    }

    memcpy(key->data.data, secret, size);
    key->data.size = size;

    /* a secret is no shorter than its hash (RFC 7518, section 3.2) */

    key->algorithms = SANDBOX_JOSE_HS256;

    if (size >= 48) {
        key->algorithms |= SANDBOX_JOSE_HS384;
    }

    if (size >= 64) {
        key->algorithms |= SANDBOX_JOSE_HS512;
    }

    if (!sandbox_jose_key_kid(key, kid, error)) {
        sandbox_jose_key_free(key);
        return NULL;
    }

    return key;
}


static int
sandbox_jose_blank(uint8_t ch)
{
    return ch == ' ' || ch == '\t' || ch == '\r' || ch == '\n';
}


static int
sandbox_jose_decode(const uint8_t *data, size_t size,
    sandbox_jose_encoding_e encoding, sandbox_jose_buf_t *secret, char *error)
{
    int64_t  n;

    while (size > 0 && sandbox_jose_blank(*data)) {
        data++;
        size--;
    }

    while (size > 0 && sandbox_jose_blank(data[size - 1])) {
        size--;
    }

    secret->size = size;
    secret->data = malloc(size + 1);

    if (secret->data == NULL) {
        sandbox_jose_error(error, "no memory");
        return 0;
    }

    if (encoding == SANDBOX_JOSE_HEX) {
        n = sandbox_jose_hex(data, size, secret->data);

        if (n == -1) {
            sandbox_jose_error(error, "the secret is not an even number of "
                               "hexadecimal digits");
        }

    } else {
        n = sandbox_jose_base64((const char *) data, size, secret->data);

        if (n == -1) {
            sandbox_jose_error(error, "the secret is not base64url: letters, "
                               "digits, \"-\" and \"_\", no padding");
        }
    }

    if (n == -1) {
        sandbox_jose_buf_free(secret);
        return 0;
    }

    secret->size = (size_t) n;

    return 1;
}


static int64_t
sandbox_jose_hex(const uint8_t *src, size_t size, uint8_t *dst)
{
    int      digit;
    size_t   i;
    uint8_t  ch;

    if (size % 2 != 0) {
        return -1;
    }

    for (i = 0; i < size; i++) {
        ch = src[i];

        if (ch >= '0' && ch <= '9') {
            digit = ch - '0';

        } else if ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'f') {
            digit = (ch | 0x20) - 'a' + 10;

        } else {
            return -1;
        }

        if (i % 2 == 0) {
            dst[i / 2] = (uint8_t) (digit << 4);

        } else {
            dst[i / 2] |= (uint8_t) digit;
        }
    }

    return (int64_t) (size / 2);
}


/*
 * A public key used as an HMAC secret lets everybody sign, so what is text
 * and looks like a PEM or a JSON document is no secret.  Random bytes that
 * only begin with a brace are one.
 */

static int
sandbox_jose_looks_public(const uint8_t *secret, size_t size, char *error)
{
    size_t          i, start;
    EVP_PKEY       *pkey;
    const uint8_t  *p;

    if (memmem(secret, size, "-----BEGIN ", 11) != NULL) {
        sandbox_jose_error(error, "the secret looks like PEM, "
                           "a public key is no secret");
        return 1;
    }

    for (start = 0; start < size; start++) {
        if (!sandbox_jose_blank(secret[start])) {
            break;
        }
    }

    if (start == size) {
        sandbox_jose_error(error, "the secret is blank");
        return 1;
    }

    p = secret;
    pkey = d2i_PUBKEY(NULL, &p, (long) size);
    EVP_PKEY_free(pkey);
    ERR_clear_error();

    if (pkey != NULL) {
        sandbox_jose_error(error, "the secret is a public key in DER, "
                           "a public key is no secret");
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
