/*
 * Fuzz target of src/jose.  The first byte says what the rest is: a token, the
 * claims of a token that is then signed well, header and claims (a newline
 * between them), a PEM file, a secret file.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_jwks.c src/jose/sandbox_jose_path.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_session.c -ljansson -ljwt -lcrypto */

#include "sandbox_jose.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>


#define NOW     1700000000
#define SECRET  "0123456789abcdef0123456789abcdef"
#define HEADER  "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"


static void fuzz_token(const uint8_t *data, size_t size);
static void fuzz_claims(const json_t *claims);
static void fuzz_signed(const uint8_t *header, size_t header_size,
    const uint8_t *claims, size_t claims_size);
static void fuzz_key(const uint8_t *data, size_t size, int pem);
static char *encode(char *p, const uint8_t *data, size_t size);


static sandbox_jose_key_t   *keys[2];
static sandbox_jose_path_t  *tenant;

static const char  public_key[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAnYzRFAmrTLjFWYNDUweF\n"
    "BTVzK3zTCnE90DO923hOSQVmk2uD8g9KQqsOXtc1wBI6Ivuf1E3uJZNt3jGRB5EQ\n"
    "o6POXNBeQcLjgYfeUO2YnhzuMQGvAA8dFN1nHEpP80RtFDrxAvUcidNIwWoYPv71\n"
    "L+Lh9A8NAucPRzxzHUBSN2lOPfs+BR6VAByEk8pwiMTeFLSLYk2JUJv+j+ik2k83\n"
    "j6rH/hAPvPCeSIEMonDKpkUMZt67QKyXP8cDSyTD/KybvzfLsEWqOIcSu+X8fA/f\n"
    "8Ryd+pT9OD+jE8pxjvp+VTnuOEBqa6cNBaf46Oa4gx6xVw6HxW0+RAT+CjMSTKcm\n"
    "iQIDAQAB\n"
    "-----END PUBLIC KEY-----\n";


#define must(condition)                                                      \
    do {                                                                     \
        if (!(condition)) {                                                  \
            abort();                                                         \
        }                                                                    \
    } while (0)


int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char  error[SANDBOX_JOSE_ERROR_SIZE];

    keys[0] = sandbox_jose_key_secret((const uint8_t *) SECRET,
                                      strlen(SECRET), SANDBOX_JOSE_RAW, NULL,
                                      error);
    keys[1] = sandbox_jose_key_pem((const uint8_t *) public_key,
                                   strlen(public_key), "k", error);
    tenant = sandbox_jose_path("tenant", error);
    must(keys[0] != NULL && keys[1] != NULL && tenant != NULL);

    return 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t  *newline;

    if (size == 0) {
        return 0;
    }

    size--;

    switch (*data++ % 5) {

    case 0:
        fuzz_token(data, size);
        break;

    case 1:
        fuzz_signed((const uint8_t *) HEADER, strlen(HEADER), data, size);
        break;

    case 2:
        newline = memchr(data, '\n', size);

        if (newline != NULL) {
            fuzz_signed(data, (size_t) (newline - data), newline + 1,
                        size - (size_t) (newline + 1 - data));
        }

        break;

    case 3:
        fuzz_key(data, size, 1);
        break;

    case 4:
        fuzz_key(data, size, 0);
        break;
    }

    must(ERR_peek_error() == 0);

    return 0;
}


static void
fuzz_token(const uint8_t *data, size_t size)
{
    size_t                 i, dots;
    sandbox_jose_token_t   token;
    sandbox_jose_policy_t  policy;
    sandbox_jose_status_t  status;

    static const char *const  audience = "sandbox";

    memset(&policy, 0, sizeof(policy));
    memset(&token, 0, sizeof(token));

    status = sandbox_jose_verify((const sandbox_jose_key_t *const *) keys, 2,
                                 data, size, &policy, NOW, &token);

    if (status != SANDBOX_JOSE_OK) {
        must(token.claims == NULL);

    } else {
        must(token.expires > NOW);

        for (i = 0, dots = 0; i < size; i++) {
            dots += data[i] == '.';
        }

        must(dots == 2);
        fuzz_claims(token.claims);
        json_decref(token.claims);
    }

    memset(&token, 0, sizeof(token));
    policy.algorithms = SANDBOX_JOSE_HS256;
    policy.leeway = 60;
    policy.issuer = "https://id.example";
    policy.audiences = &audience;
    policy.naudiences = 1;

    status = sandbox_jose_verify((const sandbox_jose_key_t *const *) keys, 2,
                                 data, size, &policy, NOW, &token);

    if (status == SANDBOX_JOSE_OK) {
        must(token.expires > NOW);
        json_decref(token.claims);

    } else {
        must(token.claims == NULL);
    }
}


static void
fuzz_claims(const json_t *claims)
{
    uint8_t                   key[SANDBOX_JOSE_SESSION_SIZE];
    sandbox_jose_session_t    session;
    sandbox_jose_principal_t  principal;

    (void) sandbox_jose_permitted(claims, NULL, 0, "sandbox:execute");

    if (sandbox_jose_principal(claims, tenant, &principal)
        != SANDBOX_JOSE_OK)
    {
        return;
    }

    must(strlen(principal.user) > 0 && strlen(principal.user) <= 255);
    must(strlen(principal.tenant) > 0 && strlen(principal.tenant) <= 255);
    must(strpbrk(principal.user, "\n\r\t\x1b\x7f") == NULL);

    memset(&session, 0, sizeof(session));
    session.user.data = principal.user;
    session.user.size = strlen(principal.user);
    session.tenant.data = principal.tenant;
    session.tenant.size = strlen(principal.tenant);

    must(sandbox_jose_session_key(&session, key) == 0);
    must(sandbox_jose_tenant_digest(&session, key) == 0);
}


static void
fuzz_signed(const uint8_t *header, size_t header_size, const uint8_t *claims,
    size_t claims_size)
{
    char      *text, *p;
    uint8_t    mac[EVP_MAX_MD_SIZE];
    unsigned   n;

    text = malloc((header_size + claims_size) * 2 + 128);
    must(text != NULL);

    p = encode(text, header, header_size);
    *p++ = '.';
    p = encode(p, claims, claims_size);

    HMAC(EVP_sha256(), SECRET, (int) strlen(SECRET), (uint8_t *) text,
         (size_t) (p - text), mac, &n);

    *p++ = '.';
    p = encode(p, mac, n);

    fuzz_token((uint8_t *) text, (size_t) (p - text));
    free(text);
}


static void
fuzz_key(const uint8_t *data, size_t size, int pem)
{
    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    sandbox_jose_key_t  *key;

    memset(error, 0, sizeof(error));

    key = pem ? sandbox_jose_key_pem(data, size, NULL, error)
              : sandbox_jose_key_secret(data, size, SANDBOX_JOSE_RAW, NULL, error);

    must((key == NULL) == (error[0] != '\0'));
    must(key == NULL || sandbox_jose_key_algorithms(key) != 0);

    sandbox_jose_key_free(key);
}


static char *
encode(char *p, const uint8_t *data, size_t size)
{
    size_t    i;
    uint32_t  bits;
    unsigned  n;

    static const char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    n = 0;
    bits = 0;

    for (i = 0; i < size; i++) {
        bits = bits << 8 | data[i];

        for (n += 8; n >= 6; n -= 6) {
            *p++ = digits[bits >> (n - 6) & 63];
        }
    }

    if (n > 0) {
        *p++ = digits[bits << (6 - n) & 63];
    }

    return p;
}
