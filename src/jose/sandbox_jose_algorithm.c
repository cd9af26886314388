/*
 * Signature algorithms: their names, and which of them libjwt verifies.  Knows
 * no keys and no tokens of anybody.
 */

#include "sandbox_jose_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>


#define SANDBOX_JOSE_ASKED  0x80000000u


static unsigned sandbox_jose_ask(void);
static int sandbox_jose_proves(const char *token, const char *pem);


/*
 * Tokens that are good, for what libjwt may know by name only: its 1.17 on
 * OpenSSL does not verify PS* after all.  Nobody has their private keys.
 */

static const struct {
    unsigned     algorithms;
    const char  *token;
    const char  *pem;
} sandbox_jose_proofs[] = {
    { SANDBOX_JOSE_PS,
      "eyJhbGciOiJQUzI1NiJ9.e30.NOy-ACvxr8K3JSAO3agZZ2n2t1jRyNH3qANObYNKSMn"
      "CkrjoYn1t5skR9LHMIVpDNjR8ZE3ULDNaxtWqY5-yw1G4fL49JYufjsPZwaYPZLakLPL"
      "Dc9OwGf-7KimC5GdhzAsN0eb04Nqn2wMq3HNqu-ii8hby6gVh2ajoj7OUMnhi7Wbmdi1"
      "eEEJicPrzktO-0-nbb4jXRC8WXPgvU1WMhkdIAZYH_Viiq4zPLQMVhsap4slY0p-ycgj"
      "A1_gBgQKWKlwjXF4XqT8XfinHvjced4GiDrTkyAZJdTCLbPgyogBFE1zF3Gy8fSXIpbC"
      "nUY-H_myygh3UH3QYBxqa-rl3lw",
      "-----BEGIN PUBLIC KEY-----\n"
      "MIIBIDALBgkqhkiG9w0BAQoDggEPADCCAQoCggEBAI7J1iHvKFpuHrBnwLqoE7zc\n"
      "Sq+ZypWspJNoTNw32oPL5VfSZIqj+C9mAypS8CEEwKSYrdWIc4CeINrvYAb1ULSh\n"
      "wYEXDxDR6RqErvaRT4Xf3Ov03qgh1jeE5Ipx5RWBXVBfJ/vkpUYtA1WFPbvp2Way\n"
      "Df4DtWALD1IblX4pXClNaHm11OKJlV9KVMEa7n3RqkUR7+vJt+CBMcPnZ19/3Jzf\n"
      "H0h4+pEWZDPk7Y5qGGhuz7qf5EJxjiYCA2fPNq7TkprOEBPQ+azeGi06aMDSZQkt\n"
      "vmv9yvorEa+MGccBLIWOR0N8GVWlIz0VmdVV/bAYbF9i2rKEql16YjXX/wVtIIcC\n"
      "AwEAAQ==\n"
      "-----END PUBLIC KEY-----\n" },
    { SANDBOX_JOSE_EDDSA,
      "eyJhbGciOiJFZERTQSJ9.e30.o-gtU2WughjqxQ9_0LsZ012SQkwzx27dKVj199DgD_o"
      "YGU4zji4ZaqpfIE_15lZbChFcakXSBuiaGwYoxX5oDw",
      "-----BEGIN PUBLIC KEY-----\n"
      "MCowBQYDK2VwAyEAV8OBwVhBXA5B4MtCFfaEOBY0d29VjpIOkOKTeGUVH8E=\n"
      "-----END PUBLIC KEY-----\n" }
};


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
    unsigned  supported;

    static unsigned  known;                      /* 0: not asked yet */

    supported = __atomic_load_n(&known, __ATOMIC_RELAXED);

    if (supported == 0) {
        supported = sandbox_jose_ask() | SANDBOX_JOSE_ASKED;
        __atomic_store_n(&known, supported, __ATOMIC_RELAXED);
    }

    return supported & ~SANDBOX_JOSE_ASKED;
}


static unsigned
sandbox_jose_ask(void)
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

    for (i = 0; i < sizeof(sandbox_jose_proofs)
                    / sizeof(sandbox_jose_proofs[0]); i++)
    {
        if ((supported & sandbox_jose_proofs[i].algorithms) != 0
            && !sandbox_jose_proves(sandbox_jose_proofs[i].token,
                                    sandbox_jose_proofs[i].pem))
        {
            supported &= ~sandbox_jose_proofs[i].algorithms;
        }
    }

    return supported;
}


static int
sandbox_jose_proves(const char *token, const char *pem)
{
    int     rc;
    jwt_t  *jwt;

    jwt = NULL;
    rc = jwt_decode(&jwt, token, (const unsigned char *) pem,
                    (int) strlen(pem));

    jwt_free(jwt);
    ERR_clear_error();

    return rc == 0;
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
