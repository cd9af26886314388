/*
 * Tokens: strict reading of a compact JWS whose payload is a JWT, and what
 * follows from its claims: principal, permission, session key.
 * Pure C on jansson, OpenSSL and libjwt; knows no nginx, no files, no clock.
 *
 * Nothing here logs.  No function leaves an entry in the OpenSSL error queue.
 * Keys are read-only once made, so threads may share them.
 */

#ifndef SANDBOX_JOSE_H
#define SANDBOX_JOSE_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>


/* bytes */

#define SANDBOX_JOSE_MAX_TOKEN    (16 * 1024)
#define SANDBOX_JOSE_MAX_SECRET   4096
#define SANDBOX_JOSE_MIN_SECRET   32            /* RFC 7518, section 3.2 */
#define SANDBOX_JOSE_MAX_SECRET_FILE  (2 * SANDBOX_JOSE_MAX_SECRET + 64)
#define SANDBOX_JOSE_MAX_PEM      (64 * 1024)
#define SANDBOX_JOSE_MAX_JWKS     (256 * 1024)
#define SANDBOX_JOSE_MAX_PATH     255           /* of a claim, as written */
#define SANDBOX_JOSE_MAX_CONVERSATION  128
#define SANDBOX_JOSE_MAX_NAME     255           /* of sub, tenant, kid */
#define SANDBOX_JOSE_MAX_ISSUER   1024
#define SANDBOX_JOSE_ERROR_SIZE   256           /* holds any error sentence */
#define SANDBOX_JOSE_SESSION_SIZE 32
#define SANDBOX_JOSE_TENANT_SIZE  16

#define SANDBOX_JOSE_MAX_LEEWAY   60            /* seconds */
#define SANDBOX_JOSE_MAX_STEPS    8             /* of a path */
#define SANDBOX_JOSE_MAX_JWKS_KEYS  64          /* used or not */
#define SANDBOX_JOSE_MAX_TRIES    8             /* keys tried for one token,
                                                   up to a millisecond each */


/* signature algorithms, a bit each: a key and a policy hold a set of them */

#define SANDBOX_JOSE_HS256        0x0001
#define SANDBOX_JOSE_RS256        0x0002
#define SANDBOX_JOSE_HS384        0x0004
#define SANDBOX_JOSE_HS512        0x0008
#define SANDBOX_JOSE_RS384        0x0010
#define SANDBOX_JOSE_RS512        0x0020
#define SANDBOX_JOSE_ES256        0x0040
#define SANDBOX_JOSE_ES384        0x0080
#define SANDBOX_JOSE_ES512        0x0100
#define SANDBOX_JOSE_PS256        0x0200
#define SANDBOX_JOSE_PS384        0x0400
#define SANDBOX_JOSE_PS512        0x0800
#define SANDBOX_JOSE_EDDSA        0x1000        /* Ed25519 */

#define SANDBOX_JOSE_HS           (SANDBOX_JOSE_HS256 | SANDBOX_JOSE_HS384    \
                                   | SANDBOX_JOSE_HS512)
#define SANDBOX_JOSE_RS           (SANDBOX_JOSE_RS256 | SANDBOX_JOSE_RS384    \
                                   | SANDBOX_JOSE_RS512)
#define SANDBOX_JOSE_ES           (SANDBOX_JOSE_ES256 | SANDBOX_JOSE_ES384    \
                                   | SANDBOX_JOSE_ES512)
#define SANDBOX_JOSE_PS           (SANDBOX_JOSE_PS256 | SANDBOX_JOSE_PS384    \
                                   | SANDBOX_JOSE_PS512)


/* how the bytes of a secret are written down in its file */

typedef enum {
    SANDBOX_JOSE_RAW,                           /* as they are */
    SANDBOX_JOSE_HEX,
    SANDBOX_JOSE_BASE64URL                      /* without padding */
} sandbox_jose_encoding_e;


/* a key set may hold secrets (it is a file): for sandbox_jose_jwks() */

#define SANDBOX_JOSE_JWKS_SECRETS  1


/*
 * Why a token is refused.  Every one of them is a 401 with error
 * "invalid_token", except AWAITED, which is a 503, and FAILED, which is ours
 * (no memory): a 500.
 */

typedef enum {
    SANDBOX_JOSE_OK = 0,
    SANDBOX_JOSE_MALFORMED,        /* not a token in canonical form */
    SANDBOX_JOSE_ALGORITHM,        /* alg not allowed, or not the key's */
    SANDBOX_JOSE_NO_KEY,           /* no kid, and all keys have one */
    SANDBOX_JOSE_UNKNOWN_KID,      /* no key has that kid, and none without
                                      a kid verifies it: a newer key set
                                      might; no other status asks for one */
    SANDBOX_JOSE_AWAITED,          /* a key that is on its way might fit */
    SANDBOX_JOSE_SIGNATURE,
    SANDBOX_JOSE_CLAIMS,           /* a claim is missing or of a wrong type */
    SANDBOX_JOSE_EXPIRED,
    SANDBOX_JOSE_NOT_YET_VALID,    /* nbf or iat lies ahead */
    SANDBOX_JOSE_ISSUER,
    SANDBOX_JOSE_AUDIENCE,
    SANDBOX_JOSE_FAILED
} sandbox_jose_status_t;


typedef struct sandbox_jose_key_s   sandbox_jose_key_t;
typedef struct sandbox_jose_path_s  sandbox_jose_path_t;

typedef struct {
    unsigned                   algorithms;  /* 0: those of the keys */
    unsigned                   awaited;     /* those of keys that are not
                                               here yet; 0: all are */
    unsigned                   leeway;      /* seconds, at most MAX_LEEWAY */
    const char                *issuer;      /* NULL: any, or none */
    const char *const         *audiences;   /* one of them must be in aud */
    size_t                     naudiences;  /* 0: not looked at */
} sandbox_jose_policy_t;

typedef struct {
    json_t                    *claims;      /* an object; the caller's */
    int64_t                    expires;     /* refused from this second on,
                                               leeway is included */
} sandbox_jose_token_t;

/* Strings of a principal live as long as the claims they were read from. */

typedef struct {
    const char                *issuer;      /* NULL: the token has none */
    const char                *tenant;      /* NULL: no tenant claim asked */
    const char                *user;
} sandbox_jose_principal_t;

typedef struct {
    const void                *data;        /* NULL: absent, not empty */
    size_t                     size;
} sandbox_jose_bytes_t;

typedef struct {
    sandbox_jose_bytes_t       realm;
    sandbox_jose_bytes_t       issuer;
    sandbox_jose_bytes_t       tenant;
    sandbox_jose_bytes_t       user;
    sandbox_jose_bytes_t       conversation;
} sandbox_jose_session_t;


/*
 * A key for HMAC from a secret file.  RAW: exactly as it is, a newline at the
 * end is part of the secret.  HEX and BASE64URL: white space around it is not.
 * 32 to 4096 bytes once decoded: 32 are enough for HS256, 48 for HS384, 64 for
 * HS512, and the key is for all that it is long enough for.  What looks like
 * PEM, a public key in DER or JSON is refused, for it may be public.
 *
 * A key for signatures from PEM: one block PUBLIC KEY, RSA PUBLIC KEY or
 * CERTIFICATE (only its key is used, not its dates).  RSA of 2048 to 8192
 * bits is for RS* and PS*, P-256, P-384 and P-521 each for its one ES*,
 * Ed25519 for EdDSA.  Private keys are refused: they have no business on a
 * gateway.  So is a key for which libjwt has no algorithm.
 *
 * kid: NULL, or the only kid this key answers to; at most 255 bytes, copied.
 * error: at least SANDBOX_JOSE_ERROR_SIZE bytes; on failure a sentence without
 * a full stop for the administrator ("the secret is empty").
 * Return NULL on failure.  The secret is copied, and wiped when freed.
 */
sandbox_jose_key_t *sandbox_jose_key_secret(const uint8_t *data, size_t size,
    sandbox_jose_encoding_e encoding, const char *kid, char *error);
sandbox_jose_key_t *sandbox_jose_key_pem(const uint8_t *pem, size_t size,
    const char *kid, char *error);
void sandbox_jose_key_free(sandbox_jose_key_t *key);

/*
 * Keys of a JWK set (RFC 7517), in its order, for the caller to free one by
 * one: there is room for `max` of them, more are an error.  0, or -1 with a
 * sentence as above, and then there is no key.
 *
 * Left out are keys for encryption (use, key_ops) and of a type, curve or
 * algorithm that nobody here knows; alg, where there is one, is the only
 * algorithm of its key.  Secrets need the flag, and alg.  Anything malformed
 * or weak is an error of the whole set, so is a set with nothing usable.  A key
 * that shows its private half is an error with the flag, for the operator can
 * mend the file; without it the key is left out, since it is everybody's.
 */
int sandbox_jose_jwks(const uint8_t *data, size_t size, unsigned flags,
    sandbox_jose_key_t **keys, size_t max, size_t *nkeys, char *error);

/* The algorithms this key verifies, a set of SANDBOX_JOSE_HS256 and so on. */
unsigned sandbox_jose_key_algorithms(const sandbox_jose_key_t *key);

/*
 * The algorithms of which some of these keys are never tried: more than
 * SANDBOX_JOSE_MAX_TRIES are for one of them and have no kid, or one kid.
 */
unsigned sandbox_jose_crowded(const sandbox_jose_key_t *const *keys,
    size_t nkeys);

/* The algorithm of that exact name ("HS256"), 0 if there is none. */
unsigned sandbox_jose_algorithm(const char *name, size_t size);

/* The name of one algorithm; NULL if it is not exactly one. */
const char *sandbox_jose_algorithm_name(unsigned algorithm);

/* The algorithms that the libjwt which runs here verifies. */
unsigned sandbox_jose_supported(void);


/*
 * Verifies a token of `size` bytes (no NUL needed) at `now`, seconds since the
 * epoch.  Signature, exp, nbf, iat and, where the policy has them, iss and aud
 * are good when this returns OK; only then *token is set, and the caller owns
 * token->claims (json_decref).
 *
 * A key that has a kid verifies only tokens that name it; a token whose kid
 * belongs to a key is not tried with another one.  Of the keys that fit, only
 * the first SANDBOX_JOSE_MAX_TRIES are tried.  nkeys may be 0.  What none of
 * them verifies is AWAITED where its algorithm is one of policy->awaited.
 */
sandbox_jose_status_t sandbox_jose_verify(
    const sandbox_jose_key_t *const *keys, size_t nkeys,
    const uint8_t *data, size_t size, const sandbox_jose_policy_t *policy,
    int64_t now, sandbox_jose_token_t *token);

/*
 * A few words for a log line and for error_description, printable ASCII
 * without quotes; never NULL, never with anything from the token in it.
 */
const char *sandbox_jose_reason(sandbox_jose_status_t status);


/*
 * Where a claim is: names with dots between them, each the name of a member of
 * an object ("realm_access.roles").  A dot that belongs to a name is written
 * \. and a backslash \\ ("https://example\.com/roles").  At most 8 names and
 * 255 bytes of UTF-8 without control characters, none of the names empty.
 * NULL with a sentence in error, as for keys.
 */
sandbox_jose_path_t *sandbox_jose_path(const char *text, char *error);
void sandbox_jose_path_free(sandbox_jose_path_t *path);

/* What is there, borrowed from claims; NULL if nothing is. */
const json_t *sandbox_jose_path_find(const json_t *claims,
    const sandbox_jose_path_t *path);

/*
 * Who the claims of a verified token speak of.  sub, and the claim at tenant
 * unless that is NULL, must be strings of 1 to 255 bytes without control
 * characters; iss, where there is one, a string of at most 1024.
 * CLAIMS otherwise: there is no default tenant.
 */
sandbox_jose_status_t sandbox_jose_principal(const json_t *claims,
    const sandbox_jose_path_t *tenant, sandbox_jose_principal_t *principal);

/*
 * The conversation a token is made for: a string of 1 to 128 bytes without
 * control characters, borrowed from claims.  CLAIMS: it is not there, or not
 * that.
 */
sandbox_jose_status_t sandbox_jose_conversation(const json_t *claims,
    const sandbox_jose_path_t *path, const char **conversation);

/*
 * 1: a claim at one of the paths grants the permission (a word: not empty, no
 * spaces), as a whole element of an array of strings or as a whole word of a
 * space-separated string.  Case matters.  A claim of any other shape, also an
 * array with something else among the strings, grants nothing.
 * paths NULL: "permissions" and "scope".
 */
int sandbox_jose_permitted(const json_t *claims,
    const sandbox_jose_path_t *const *paths, size_t n, const char *permission);


/*
 * The 32 bytes that name a session on the wire: SHA-256 over u32 length
 * (big-endian) and bytes of realm, issuer, tenant, user and conversation;
 * absent is a length of 0xffffffff and no bytes.
 * 0, or -1 when OpenSSL fails or a part has more than 64 KiB.
 */
int sandbox_jose_session_key(const sandbox_jose_session_t *session,
    uint8_t key[SANDBOX_JOSE_SESSION_SIZE]);

/*
 * The 16 bytes limits are counted by: the head of SHA-256 over the same coding
 * of a tag ("tenant", or "user" where there is no tenant), realm, issuer and
 * that tenant or user.  The conversation does not matter.  As above.
 */
int sandbox_jose_tenant_digest(const sandbox_jose_session_t *session,
    uint8_t digest[SANDBOX_JOSE_TENANT_SIZE]);

/*
 * SHA-256 over the same coding of n parts, to name other things by: no two
 * lists of parts have one name.  As above.
 */
int sandbox_jose_digest(const sandbox_jose_bytes_t *parts, size_t n,
    uint8_t digest[SANDBOX_JOSE_SESSION_SIZE]);


#endif /* SANDBOX_JOSE_H */
