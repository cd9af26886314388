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
#define SANDBOX_JOSE_MAX_PEM      (64 * 1024)
#define SANDBOX_JOSE_MAX_NAME     255           /* of sub, tenant, kid */
#define SANDBOX_JOSE_MAX_ISSUER   1024
#define SANDBOX_JOSE_ERROR_SIZE   256           /* holds any error sentence */
#define SANDBOX_JOSE_SESSION_SIZE 32
#define SANDBOX_JOSE_TENANT_SIZE  16

#define SANDBOX_JOSE_MAX_LEEWAY   60            /* seconds */


/* signature algorithms, a bit each: a key and a policy hold a set of them */

#define SANDBOX_JOSE_HS256        0x0001
#define SANDBOX_JOSE_RS256        0x0002


/*
 * Why a token is refused.  Every one of them is a 401 with error
 * "invalid_token", except FAILED, which is ours (no memory): a 500.
 */

typedef enum {
    SANDBOX_JOSE_OK = 0,
    SANDBOX_JOSE_MALFORMED,        /* not a token in canonical form */
    SANDBOX_JOSE_ALGORITHM,        /* alg not allowed, or not the key's */
    SANDBOX_JOSE_NO_KEY,           /* no key of that kid */
    SANDBOX_JOSE_SIGNATURE,
    SANDBOX_JOSE_CLAIMS,           /* a claim is missing or of a wrong type */
    SANDBOX_JOSE_EXPIRED,
    SANDBOX_JOSE_NOT_YET_VALID,    /* nbf or iat lies ahead */
    SANDBOX_JOSE_ISSUER,
    SANDBOX_JOSE_AUDIENCE,
    SANDBOX_JOSE_FAILED
} sandbox_jose_status_t;


typedef struct sandbox_jose_key_s  sandbox_jose_key_t;

typedef struct {
    unsigned                   algorithms;  /* 0: those of the keys */
    unsigned                   leeway;      /* seconds, at most MAX_LEEWAY */
    const char                *issuer;      /* NULL: any, or none */
    const char                *audience;    /* NULL: not looked at */
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
 * A key for HS256 from the bytes of a secret file, exactly as they are: a
 * newline at the end is part of the secret.  32 to 4096 bytes; what looks like
 * PEM or JSON is refused, for it may be public.
 *
 * A key for RS256 from PEM: one block PUBLIC KEY, RSA PUBLIC KEY or
 * CERTIFICATE (only its key is used, not its dates), RSA of 2048 to 8192 bits.
 * Private keys are refused: they have no business on a gateway.
 *
 * kid: NULL, or the only kid this key answers to; at most 255 bytes, copied.
 * error: at least SANDBOX_JOSE_ERROR_SIZE bytes; on failure a sentence without
 * a full stop for the administrator ("the secret is empty").
 * Return NULL on failure.  The secret is copied, and wiped when freed.
 */
sandbox_jose_key_t *sandbox_jose_key_secret(const uint8_t *secret, size_t size,
    const char *kid, char *error);
sandbox_jose_key_t *sandbox_jose_key_pem(const uint8_t *pem, size_t size,
    const char *kid, char *error);
void sandbox_jose_key_free(sandbox_jose_key_t *key);

/* The algorithms this key verifies, a set of SANDBOX_JOSE_HS256 and so on. */
unsigned sandbox_jose_key_algorithms(const sandbox_jose_key_t *key);

/* The algorithm of that exact name ("HS256"), 0 if there is none. */
unsigned sandbox_jose_algorithm(const char *name, size_t size);


/*
 * Verifies a token of `size` bytes (no NUL needed) at `now`, seconds since the
 * epoch.  Signature, exp, nbf, iat and, where the policy has them, iss and aud
 * are good when this returns OK; only then *token is set, and the caller owns
 * token->claims (json_decref).
 *
 * A key that has a kid verifies only tokens that name it; a token whose kid
 * belongs to a key is not tried with another one.  nkeys may be 0: NO_KEY.
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
 * Who the claims of a verified token speak of.  sub, and the claim named
 * tenant_claim unless that is NULL, must be strings of 1 to 255 bytes without
 * control characters; iss, where there is one, a string of at most 1024.
 * CLAIMS otherwise: there is no default tenant.
 */
sandbox_jose_status_t sandbox_jose_principal(const json_t *claims,
    const char *tenant_claim, sandbox_jose_principal_t *principal);

/*
 * 1: one of the named claims grants the permission (a word: not empty, no
 * spaces), as a whole element of an array of strings or as a whole word of a
 * space-separated string.  Case matters.  A claim of any other shape, also an
 * array with something else among the strings, grants nothing.
 * names NULL: "permissions" and "scope".
 */
int sandbox_jose_permitted(const json_t *claims, const char *const *names,
    size_t n, const char *permission);


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


#endif /* SANDBOX_JOSE_H */
