/*
 * What the files of src/jose share among themselves and nobody else sees.
 */

#ifndef SANDBOX_JOSE_CORE_H
#define SANDBOX_JOSE_CORE_H

#include "sandbox_jose.h"

#include <jwt.h>
#include <openssl/evp.h>


#define SANDBOX_JOSE_MIN_MODULUS    2048         /* bits */
#define SANDBOX_JOSE_MAX_MODULUS    8192
#define SANDBOX_JOSE_MAX_SIGNATURE  (SANDBOX_JOSE_MAX_MODULUS / 8)


typedef struct {
    const char     *name;                        /* as in the header, exactly */
    unsigned        algorithm;                   /* SANDBOX_JOSE_HS256 */
    jwt_alg_t       jwt;
    size_t          size;                        /* bytes of a signature;
                                                    0: of the key's modulus */
    const EVP_MD *(*digest)(void);
} sandbox_jose_algorithm_t;


struct sandbox_jose_key_s {
    unsigned        algorithms;
    char           *kid;                         /* NULL: any token */
    EVP_PKEY       *pkey;                        /* NULL: a secret */
    uint8_t        *data;                        /* the secret, or the public
                                                    key as PEM for libjwt */
    size_t          size;
};


/* A token taken apart; all of it points into memory of `text`. */

typedef struct {
    char           *text;                        /* the token, with a NUL */
    size_t          size;                        /* without the NUL */
    size_t          input;                       /* bytes that are signed */
    const char     *payload;                     /* still base64url */
    size_t          payload_size;
    uint8_t         signature[SANDBOX_JOSE_MAX_SIGNATURE];
    size_t          signature_size;
    json_t         *header;
    const char     *kid;                         /* in header, or NULL */
    int             access;                      /* typ is at+jwt */
    const sandbox_jose_algorithm_t  *algorithm;
} sandbox_jose_parts_t;


const sandbox_jose_algorithm_t *sandbox_jose_algorithm_find(const char *name,
    size_t size);

/*
 * Decodes canonical base64url: no padding, no other characters, no bits set
 * that are left over.  dst holds at least size * 3 / 4 bytes and may be src.
 * The number of bytes, or -1.
 */
int64_t sandbox_jose_base64(const char *src, size_t size, uint8_t *dst);

/*
 * A JSON object without a name twice at any level, decoded from base64url;
 * the caller's.  NULL: it is not that, or no memory.
 */
json_t *sandbox_jose_object(const char *src, size_t size);

/*
 * Takes a token apart and reads its header.  On success the caller releases
 * the parts with sandbox_jose_parts_free(); on failure nothing is left.
 */
sandbox_jose_status_t sandbox_jose_parts(const uint8_t *data, size_t size,
    sandbox_jose_parts_t *parts);
void sandbox_jose_parts_free(sandbox_jose_parts_t *parts);

/* OK, SIGNATURE or FAILED; the algorithm must be one of the key's. */
sandbox_jose_status_t sandbox_jose_signature(const sandbox_jose_key_t *key,
    const sandbox_jose_parts_t *parts);

/* exp, nbf, iat, iss, aud; sets *expires on success. */
sandbox_jose_status_t sandbox_jose_claims(const json_t *claims,
    const sandbox_jose_policy_t *policy, int64_t now, int64_t *expires);


#endif /* SANDBOX_JOSE_CORE_H */
