/*
 * Signature algorithms: their names, and which of them libjwt knows.  Knows no
 * keys and no tokens.
 */

#include "sandbox_jose_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>


static const sandbox_jose_algorithm_t  sandbox_jose_algorithms[] = {
    { "HS256", SANDBOX_JOSE_HS256, 32, EVP_sha256 },
    { "HS384", SANDBOX_JOSE_HS384, 48, EVP_sha384 },
    { "HS512", SANDBOX_JOSE_HS512, 64, EVP_sha512 },
    { "RS256", SANDBOX_JOSE_RS256, 0, EVP_sha256 },
    { "RS384", SANDBOX_JOSE_RS384, 0, EVP_sha384 },
    { "RS512", SANDBOX_JOSE_RS512, 0, EVP_sha512 },
    { "ES256", SANDBOX_JOSE_ES256, 64, EVP_sha256 },
    { "ES384", SANDBOX_JOSE_ES384, 96, EVP_sha384 },
    { "ES512", SANDBOX_JOSE_ES512, 132, EVP_sha512 },
    { "PS256", SANDBOX_JOSE_PS256, 0, EVP_sha256 },
    { "PS384", SANDBOX_JOSE_PS384, 0, EVP_sha384 },
    { "PS512", SANDBOX_JOSE_PS512, 0, EVP_sha512 },
    { "EdDSA", SANDBOX_JOSE_EDDSA, 64, NULL }
};

#define SANDBOX_JOSE_ALGORITHMS                                               \
    (sizeof(sandbox_jose_algorithms) / sizeof(sandbox_jose_algorithms[0]))


const sandbox_jose_algorithm_t *
sandbox_jose_algorithm_find(const char *name, size_t size)
{
    size_t                           i;
    const sandbox_jose_algorithm_t  *algorithm;

    for (i = 0; i < SANDBOX_JOSE_ALGORITHMS; i++) {
        algorithm = &sandbox_jose_algorithms[i];

        if (strlen(algorithm->name) == size
            && memcmp(algorithm->name, name, size) == 0)
        {
            return algorithm;
        }
    }

    return NULL;
}


unsigned
sandbox_jose_algorithm(const char *name, size_t size)
{
    const sandbox_jose_algorithm_t  *algorithm;

    algorithm = sandbox_jose_algorithm_find(name, size);

    return algorithm == NULL ? 0 : algorithm->algorithm;
}


const char *
sandbox_jose_algorithm_name(unsigned algorithm)
{
    size_t  i;

    for (i = 0; i < SANDBOX_JOSE_ALGORITHMS; i++) {
        if (sandbox_jose_algorithms[i].algorithm == algorithm) {
            return sandbox_jose_algorithms[i].name;
        }
    }

    return NULL;
}


unsigned
sandbox_jose_supported(void)
{
    size_t    i;
    unsigned  supported;

    supported = 0;

    for (i = 0; i < SANDBOX_JOSE_ALGORITHMS; i++) {
        if (sandbox_jose_algorithm_jwt(&sandbox_jose_algorithms[i])
            != JWT_ALG_NONE)
        {
            supported |= sandbox_jose_algorithms[i].algorithm;
        }
    }

    return supported;
}


/*
 * libjwt 1.10 has no PS* and EdDSA, 1.17 has no EdDSA, and their numbers are
 * no macros: asked by name, the library that runs tells what it can.  The name
 * must come back unchanged, for 1.18 says "EDDSA" and no issuer does.
 */

jwt_alg_t
sandbox_jose_algorithm_jwt(const sandbox_jose_algorithm_t *algorithm)
{
    jwt_alg_t    alg;
    const char  *name;

    alg = jwt_str_alg(algorithm->name);
    name = jwt_alg_str(alg);

    return name != NULL && strcmp(name, algorithm->name) == 0 ? alg
                                                              : JWT_ALG_NONE;
}


void
sandbox_jose_error(char *error, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    vsnprintf(error, SANDBOX_JOSE_ERROR_SIZE, fmt, args);
    va_end(args);
}
