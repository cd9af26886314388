/*
 * Fuzz target: the form and the header of a token.  The first byte says what
 * the rest is: a token as it arrives; a header, whose token is then signed
 * well; header, claims and signature, a newline between them, in base64url.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_path.c -ljansson -ljwt -lcrypto */
/* link: -Wl,--wrap=sandbox_jose_supported */
/* covers: src/jose/sandbox_jose_token.c src/jose/sandbox_jose_verify.c */

#include "fuzz_jose.h"


#define CLAIMS  "{\"exp\":1700000100}"


static void fuzz_token(const char *data, size_t size);
static void fuzz_header(const uint8_t *header, size_t size);
static void fuzz_parts(const uint8_t *data, size_t size);


static sandbox_jose_key_t  *keys[4];


int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int  status;

    for (status = SANDBOX_JOSE_OK; status <= SANDBOX_JOSE_FAILED; status++) {
        must(strlen(sandbox_jose_reason(status)) > 10);
    }

    keys[0] = fuzz_secret_key();
    keys[1] = fuzz_public_key(FUZZ_RSA, "k");
    keys[2] = fuzz_public_key(FUZZ_EC, "e");
    keys[3] = fuzz_public_key(FUZZ_EC, NULL);

    return 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }

    switch (data[0] % 3) {

    case 0:
        fuzz_token((const char *) data + 1, size - 1);
        break;

    case 1:
        fuzz_header(data + 1, size - 1);
        break;

    case 2:
        fuzz_parts(data + 1, size - 1);
        break;
    }

    return 0;
}


static void
fuzz_token(const char *data, size_t size)
{
    size_t                 i, n, dots;
    sandbox_jose_token_t   token;
    sandbox_jose_policy_t  policy;
    sandbox_jose_status_t  status;

    static const struct {
        unsigned  algorithms;
        unsigned  awaited;
    } rounds[] = {
        { 0, 0 },
        { SANDBOX_JOSE_RS256 | SANDBOX_JOSE_ES256, 0 },
        { 0, SANDBOX_JOSE_RS512 | SANDBOX_JOSE_ES256 }
    };

    memset(&policy, 0, sizeof(policy));
    must(sandbox_jose_crowded((const sandbox_jose_key_t *const *) keys, 4)
         == 0);

    for (n = 0; n < 3; n++) {
        memset(&token, 0, sizeof(token));
        policy.algorithms = rounds[n].algorithms;
        policy.awaited = rounds[n].awaited;

        status = sandbox_jose_verify((const sandbox_jose_key_t *const *) keys,
                                     4, (const uint8_t *) data, size, &policy,
                                     FUZZ_NOW, &token);

        must(ERR_peek_error() == 0);
        must(strpbrk(sandbox_jose_reason(status), "\"\\\n") == NULL);
        must(status != SANDBOX_JOSE_AWAITED || rounds[n].awaited != 0);

        if (status != SANDBOX_JOSE_OK) {
            must(token.claims == NULL);
            continue;
        }

        must(token.expires > FUZZ_NOW);
        must(json_is_object(token.claims));

        for (i = 0, dots = 0; i < size; i++) {
            dots += data[i] == '.';
        }

        must(dots == 2);
        json_decref(token.claims);
    }
}


static void
fuzz_header(const uint8_t *header, size_t size)
{
    char    *text;
    size_t   n;

    text = fuzz_sign(header, size, CLAIMS, strlen(CLAIMS), &n);
    fuzz_token(text, n);
    free(text);
}


static void
fuzz_parts(const uint8_t *data, size_t size)
{
    char           *text, *p;
    int             part;
    size_t          n;
    const uint8_t  *newline;

    text = malloc(size * 2 + 16);
    must(text != NULL);
    p = text;

    /* the last part may have newlines of its own */

    for (part = 0; part < 3; part++) {
        newline = part < 2 ? memchr(data, '\n', size) : NULL;
        n = newline == NULL ? size : (size_t) (newline - data);

        p = fuzz_encode(p, data, n);

        if (newline == NULL) {
            break;
        }

        *p++ = '.';
        data += n + 1;
        size -= n + 1;
    }

    fuzz_token(text, (size_t) (p - text));
    free(text);
}
