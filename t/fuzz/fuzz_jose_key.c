/*
 * Fuzz target: key files, PEM and secrets.  The first byte says which, and how
 * a secret is encoded.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_path.c -ljansson -ljwt -lcrypto */
/* link: -Wl,--wrap=sandbox_jose_supported */
/* covers: src/jose/sandbox_jose_key.c src/jose/sandbox_jose_secret.c */

#include "fuzz_jose.h"


static void fuzz_use(const sandbox_jose_key_t *key);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char                 error[SANDBOX_JOSE_ERROR_SIZE], kid[300], *large;
    size_t               n;
    unsigned             algorithms, possible;
    const char          *name;
    sandbox_jose_key_t  *key;

    if (size < 2) {
        return 0;
    }

    /* a name of 0 to 300 bytes, or none */

    n = (size_t) data[1] * 299 / 255;
    memset(kid, 'k', n);
    kid[n] = '\0';
    name = data[1] == 0 ? NULL : kid;

    memset(error, 0, sizeof(error));
    possible = ~0u;
    large = NULL;

    switch (data[0] % 5) {

    case 0:
        key = sandbox_jose_key_pem(data + 2, size - 2, name, error);
        possible &= ~SANDBOX_JOSE_HS;
        break;

    case 1:
    case 2:
    case 3:
        key = sandbox_jose_key_secret(data + 2, size - 2, data[0] % 5 - 1,
                                      name, error);
        possible &= SANDBOX_JOSE_HS;
        break;

    default:

        /* much longer than what was given */

        n = size << (data[1] & 15);
        n = n < 300 * 1024 ? n : 300 * 1024;
        large = calloc(1, n);
        must(large != NULL);
        memcpy(large, data, size < n ? size : n);

        key = data[1] & 16
              ? sandbox_jose_key_pem((uint8_t *) large, n, NULL, error)
              : sandbox_jose_key_secret((uint8_t *) large, n,
                                        SANDBOX_JOSE_RAW, NULL, error);
    }

    must(ERR_peek_error() == 0);
    must((key == NULL) == (error[0] != '\0'));

    if (key != NULL) {
        algorithms = sandbox_jose_key_algorithms(key);
        must(algorithms != 0 && (algorithms & ~possible) == 0);
        fuzz_use(key);
    }

    sandbox_jose_key_free(key);
    free(large);

    return 0;
}


/* A key that was made can be used; nothing verifies what is not signed. */

static void
fuzz_use(const sandbox_jose_key_t *key)
{
    char                      *text, header[32];
    size_t                     i, n;
    sandbox_jose_token_t       token;
    sandbox_jose_policy_t      policy;
    sandbox_jose_status_t      status;
    const sandbox_jose_key_t  *keys[1];

    keys[0] = key;
    memset(&policy, 0, sizeof(policy));

    for (i = 1; i <= SANDBOX_JOSE_EDDSA; i <<= 1) {
        if ((sandbox_jose_key_algorithms(key) & i) == 0) {
            continue;
        }

        n = (size_t) sprintf(header, "{\"alg\":\"%s\"}",
                             sandbox_jose_algorithm_name((unsigned) i));
        text = fuzz_sign(header, n, "{\"exp\":1700000100}", 18, &n);
        status = sandbox_jose_verify(keys, 1, (uint8_t *) text, n, &policy,
                                     FUZZ_NOW, &token);
        free(text);

        if (status == SANDBOX_JOSE_OK) {

            /* the secret of this file, by chance or from the corpus */

            must(i == SANDBOX_JOSE_HS256);
            json_decref(token.claims);
        }

        must(ERR_peek_error() == 0);
    }
}
