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
#define SANDBOX_JOSE_MAX_EXPONENT   64               /* bits */
#define SANDBOX_JOSE_MAX_SIGNATURE  (SANDBOX_JOSE_MAX_MODULUS / 8)


typedef struct {
    const char     *name;                        /* as in RFC 7518, exactly */
    unsigned        algorithm;                   /* SANDBOX_JOSE_HS256 */
    size_t          size;                        /* bytes of a signature;
                                                    0: what the key says */
    const EVP_MD *(*digest)(void);               /* NULL: its own */
} sandbox_jose_algorithm_t;


typedef struct {
    uint8_t        *data;                        /* NULL: none */
    size_t          size;
} sandbox_jose_buf_t;


/* The public key is PEM as well, for libjwt reads it anew each time. */

struct sandbox_jose_key_s {
    unsigned            algorithms;
    char               *kid;                     /* NULL: any token */
    EVP_PKEY           *pkey;                    /* NULL: a secret */
    sandbox_jose_buf_t  data;                    /* the secret, or the PEM */
    sandbox_jose_buf_t  pss;                     /* PEM for PS*, if it may */
};


struct sandbox_jose_path_s {
    size_t              n;
    const char         *step[SANDBOX_JOSE_MAX_STEPS];
    char                text[];                  /* the steps, each with NUL */
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

/* What libjwt calls it; JWT_ALG_NONE: it doesn't know it. */
jwt_alg_t sandbox_jose_algorithm_jwt(const sandbox_jose_algorithm_t *algorithm);

/* Into an error of SANDBOX_JOSE_ERROR_SIZE bytes. */
void sandbox_jose_error(char *error, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * A key for what its type and curve are good for; takes pkey over in any case.
 * NULL with a sentence.
 */
sandbox_jose_key_t *sandbox_jose_key_public(EVP_PKEY *pkey, const char *kid,
    char *error);

/* The key's kid, copied; 0 with a sentence. */
int sandbox_jose_key_kid(sandbox_jose_key_t *key, const char *kid, char *error);

/* Wipes and frees what is in it, which may be nothing. */
void sandbox_jose_buf_free(sandbox_jose_buf_t *buf);

/* A string of 1 to max bytes without control characters, or NULL. */
const char *sandbox_jose_text(const json_t *value, size_t max);

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
