/*
 * Fuzz target: JWK sets.  The first byte says whether secrets are wanted, how
 * many keys there is room for, and may make the document a large one.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_jwks.c src/jose/sandbox_jose_path.c */
/* link: -ljansson -ljwt -lcrypto -Wl,--wrap=sandbox_jose_supported */
/* covers: src/jose/sandbox_jose_jwks.c */

#include "fuzz_jose.h"


static void fuzz_set(sandbox_jose_key_t **keys, size_t n, unsigned flags);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int                  rc;
    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    size_t               n, max;
    uint8_t             *copy;
    unsigned             flags;
    sandbox_jose_key_t  *keys[SANDBOX_JOSE_MAX_JWKS_KEYS + 1];

    if (size == 0) {
        return 0;
    }

    flags = data[0] & 1 ? SANDBOX_JOSE_JWKS_SECRETS : 0;
    max = data[0] & 2 ? 1 : SANDBOX_JOSE_MAX_JWKS_KEYS;

    memset(keys, 0, sizeof(keys));
    memset(error, 0, sizeof(error));
    n = data[0] & 4 ? SANDBOX_JOSE_MAX_JWKS - 4096 + size : size - 1;

    copy = malloc(n + (n == 0));
    must(copy != NULL);
    memset(copy, ' ', n);
    memcpy(copy, data + 1, size - 1 < n ? size - 1 : n);

    rc = sandbox_jose_jwks(copy, n, flags, keys, max, &n, error);

    free(copy);
    must(ERR_peek_error() == 0);
    must((rc == -1) == (error[0] != '\0'));

    if (rc == 0) {
        must(n >= 1 && n <= max && keys[max] == NULL);
        fuzz_set(keys, n, flags);
    }

    return 0;
}


/* Keys that were made can be used, and verify nothing that is not signed. */

static void
fuzz_set(sandbox_jose_key_t **keys, size_t n, unsigned flags)
{
    char                   *text, header[32];
    size_t                  i, size;
    unsigned                algorithms;
    sandbox_jose_token_t    token;
    sandbox_jose_policy_t   policy;
    sandbox_jose_status_t   status;

    memset(&policy, 0, sizeof(policy));
    algorithms = 0;

    for (i = 0; i < n; i++) {
        must(keys[i] != NULL && sandbox_jose_key_algorithms(keys[i]) != 0);
        algorithms |= sandbox_jose_key_algorithms(keys[i]);
    }

    must(flags != 0 || (algorithms & SANDBOX_JOSE_HS) == 0);

    for (i = 1; i <= SANDBOX_JOSE_EDDSA; i <<= 1) {
        if ((algorithms & i) == 0) {
            continue;
        }

        size = (size_t) sprintf(header, "{\"alg\":\"%s\"}",
                                sandbox_jose_algorithm_name((unsigned) i));
        text = fuzz_sign(header, size, "{\"exp\":1700000100}", 18, &size);
        status = sandbox_jose_verify((const sandbox_jose_key_t *const *) keys,
                                     n, (uint8_t *) text, size, &policy,
                                     FUZZ_NOW, &token);
        free(text);

        if (status == SANDBOX_JOSE_OK) {
            must(i == SANDBOX_JOSE_HS256);
            json_decref(token.claims);
        }

        must(ERR_peek_error() == 0);
    }

    while (n > 0) {
        sandbox_jose_key_free(keys[--n]);
    }
}
