/*
 * src/jose: every algorithm that libjwt knows here, with the right key, with
 * each wrong one, and with signatures that are not quite right.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_path.c -ljansson -ljwt -lcrypto */

#include "jose_mint.h"
#include "sandbox_jose_core.h"

#include <openssl/x509.h>


#define SECRET  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


typedef struct {
    const char          *type;                   /* NULL: the secret */
    const char          *curve;
    size_t               bits;
    EVP_PKEY            *pkey;
    sandbox_jose_key_t  *key;                    /* NULL: libjwt can't */
} pair_t;

typedef struct {
    const char          *name;
    unsigned             bit;
    size_t               pair;
    size_t               size;                   /* of a signature */
} case_t;


static pair_t  pairs[] = {
    { .type = NULL },
    { .type = "RSA", .bits = 2048 },
    { .type = "EC", .curve = "P-256" },
    { .type = "EC", .curve = "P-384" },
    { .type = "EC", .curve = "P-521" },
    { .type = "ED25519" }
};

static const case_t  cases[] = {
    { "HS256", SANDBOX_JOSE_HS256, 0, 32 },
    { "HS384", SANDBOX_JOSE_HS384, 0, 48 },
    { "HS512", SANDBOX_JOSE_HS512, 0, 64 },
    { "RS256", SANDBOX_JOSE_RS256, 1, 256 },
    { "RS384", SANDBOX_JOSE_RS384, 1, 256 },
    { "RS512", SANDBOX_JOSE_RS512, 1, 256 },
    { "PS256", SANDBOX_JOSE_PS256, 1, 256 },
    { "PS384", SANDBOX_JOSE_PS384, 1, 256 },
    { "PS512", SANDBOX_JOSE_PS512, 1, 256 },
    { "ES256", SANDBOX_JOSE_ES256, 2, 64 },
    { "ES384", SANDBOX_JOSE_ES384, 3, 96 },
    { "ES512", SANDBOX_JOSE_ES512, 4, 132 },
    { "EdDSA", SANDBOX_JOSE_EDDSA, 5, 64 }
};

#define count(array)  (sizeof(array) / sizeof((array)[0]))


static void
make_keys(void)
{
    size_t   i;
    pair_t  *p;

    for (i = 0; i < count(pairs); i++) {
        p = &pairs[i];

        if (p->type == NULL) {
            p->key = sandbox_jose_key_secret((const uint8_t *) SECRET,
                                             strlen(SECRET), SANDBOX_JOSE_RAW,
                                             NULL, mint_error);
            continue;
        }

        p->pkey = p->curve ? EVP_PKEY_Q_keygen(NULL, NULL, p->type, p->curve)
                  : p->bits ? EVP_PKEY_Q_keygen(NULL, NULL, p->type, p->bits)
                  : EVP_PKEY_Q_keygen(NULL, NULL, p->type);
        p->key = mint_public_key(p->pkey, NULL);
    }
}


static char *
mint_case(const case_t *c, const char *more)
{
    return pairs[c->pair].type == NULL
           ? mint_mac(c->name, more, SECRET, strlen(SECRET))
           : mint_as(c->name, more, pairs[c->pair].pkey);
}


static void
test_names(void)
{
    size_t    i;
    unsigned  all, supported;

    all = 0;
    supported = sandbox_jose_supported();

    for (i = 0; i < count(cases); i++) {
        all |= cases[i].bit;

        is_number(sandbox_jose_algorithm(cases[i].name,
                                         strlen(cases[i].name)),
                  cases[i].bit, "%s is a name", cases[i].name);
        is_string(sandbox_jose_algorithm_name(cases[i].bit), cases[i].name,
                  "and that of its bit");
        ok((supported & cases[i].bit) == 0
           || strcmp(jwt_alg_str(jwt_str_alg(cases[i].name)), cases[i].name)
              == 0,
           "%s is supported only if libjwt knows it", cases[i].name);
    }

    is_number(supported & ~all, 0, "nothing else is supported");
    is_number(~supported & (SANDBOX_JOSE_HS | SANDBOX_JOSE_RS
                            | SANDBOX_JOSE_ES), 0,
              "HS*, RS* and ES* are, everywhere");

    is_string(sandbox_jose_algorithm_name(0), NULL, "no bit has no name");
    is_string(sandbox_jose_algorithm_name(SANDBOX_JOSE_HS), NULL,
              "nor have three");
    is_string(sandbox_jose_algorithm_name(0x8000), NULL,
              "nor one that nobody knows");
    is_number(sandbox_jose_algorithm("ES256K", 6), 0, "ES256K is unknown");
    is_number(sandbox_jose_algorithm("eddsa", 5), 0, "case matters");
    is_number(sandbox_jose_algorithm("RS256", 3), 0, "RS is no name");
}


static void
test_good(const case_t *c)
{
    char    *token;
    size_t   i;

    static const char *const  headers[] = {
        "", ",\"typ\":\"JWT\"", ",\"typ\":\"at+jwt\""
    };

    for (i = 0; i < count(headers); i++) {
        token = mint_case(c, headers[i]);
        is_number(mint_verify(pairs[c->pair].key, token), SANDBOX_JOSE_OK,
                  "%s%s", c->name, headers[i]);
    }
}


static void
test_corrupt(const case_t *c)
{
    char    *token, *good, *dot, *digit;
    size_t   i, n, taken;

    good = mint_case(c, "");
    dot = strrchr(good, '.');
    n = strlen(dot) - 1;
    taken = 0;

    for (i = 1; i < n; i++) {
        token = strdup(good);
        digit = token + (dot - good) + i;
        *digit = *digit == 'A' ? 'Q' : 'A';
        taken += mint_verify(pairs[c->pair].key, token)
                 != SANDBOX_JOSE_SIGNATURE;
    }

    is_number(taken, 0, "jwt-fault-37: %s with another signature", c->name);

    /* a good signature below other claims */

    token = malloc(strlen(good) + 200);
    strcpy(token, good);
    *strchr(token, '.') = '\0';
    strcat(token, ".");
    mint_append(token, "{\"sub\":\"mallory\",\"exp\":1700000100}", 34);
    strcat(token, dot);
    is_number(mint_verify(pairs[c->pair].key, token), SANDBOX_JOSE_SIGNATURE,
              "jwt-fault-37: %s with other claims", c->name);

    /* the same once more, and twice: nothing is kept of the first */

    is_number(mint_verify(pairs[c->pair].key, strdup(good)), SANDBOX_JOSE_OK,
              "jwt-fault-43: %s, good", c->name);
    is_number(mint_verify(pairs[c->pair].key, good), SANDBOX_JOSE_OK,
              "jwt-fault-43: %s, good again", c->name);
}


static void
test_lengths(const case_t *c)
{
    char                   *token;
    size_t                  i, n, wrong;
    uint8_t                *bytes;
    char                    header[64];
    sandbox_jose_status_t   status, expected;

    const size_t  sizes[] = {
        0, 1, 63, 65, 128, c->size - 1, c->size, c->size + 1, c->size * 2,
        1024, 1025, 21000
    };

    bytes = malloc(21000);
    sprintf(header, "{\"alg\":\"%s\"}", c->name);

    for (i = 0; i < count(sizes); i++) {
        wrong = 0;

        for (n = 0; n < 4; n++) {
            memset(bytes, n & 1 ? 0xff : 0, 21000);

            /* libjwt gets to see neither */

            strcpy(header + strlen(header) - 1,
                   n & 2 ? ",\"typ\":\"at+jwt\"}" : "}");
            token = mint_input(header, MINT_CLAIMS, strlen(MINT_CLAIMS));
            strcat(token, ".");
            mint_append(token, bytes, sizes[i]);
            sprintf(header, "{\"alg\":\"%s\"}", c->name);

            expected = sizes[i] == 0 || sizes[i] == 21000
                       ? SANDBOX_JOSE_MALFORMED : SANDBOX_JOSE_SIGNATURE;
            status = mint_verify(pairs[c->pair].key, token);
            wrong += status != expected;
        }

        is_number(wrong, 0, "auth/sig-length, jwt-fault-45: %s with %zu bytes",
                  c->name, sizes[i]);
    }

    free(bytes);
}


/* auth/hs-with-public-key, auth/curve-mismatch: all pairs that don't fit */

static void
test_mismatch(const case_t *c)
{
    size_t  i, wrong;

    wrong = 0;

    for (i = 0; i < count(pairs); i++) {
        if (i == c->pair || pairs[i].key == NULL) {
            continue;
        }

        wrong += mint_verify(pairs[i].key, mint_case(c, ""))
                 != SANDBOX_JOSE_ALGORITHM;
        wrong += (sandbox_jose_key_algorithms(pairs[i].key) & c->bit) != 0;
    }

    is_number(wrong, 0, "auth/hs-with-public-key, jwt-fault-18: %s with each "
              "other key", c->name);
}


static void
test_curves(void)
{
    char                *token;
    size_t               i, n, wrong;
    uint8_t              der[200];
    EVP_MD_CTX          *ctx;
    sandbox_jose_key_t   white;

    static const char *const  names[] = { "ES256", "ES384", "ES512" };

    /* a header that says one curve, key and signature of another */

    wrong = 0;

    for (i = 0; i < 3; i++) {
        for (n = 0; n < 3; n++) {
            token = mint_as(names[i], "", pairs[2 + n].pkey);
            wrong += mint_verify(pairs[2 + n].key, token)
                     != (i == n ? SANDBOX_JOSE_OK : SANDBOX_JOSE_ALGORITHM);
        }
    }

    is_number(wrong, 0, "auth/curve-mismatch: of 9 pairs 3 fit");

    /* were the key thought fit for it, the length would not be right */

    white = *pairs[3].key;
    white.algorithms = SANDBOX_JOSE_ES256;
    is_number(mint_verify(&white, mint_as("ES256", "", pairs[3].pkey)),
              SANDBOX_JOSE_SIGNATURE,
              "auth/curve-mismatch: a signature of P-384 is too long");

    /* DER, as OpenSSL writes it */

    token = mint_input("{\"alg\":\"ES256\"}", MINT_CLAIMS,
                       strlen(MINT_CLAIMS));
    n = sizeof(der);
    ctx = EVP_MD_CTX_new();
    EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, pairs[2].pkey);
    EVP_DigestSign(ctx, der, &n, (uint8_t *) token, strlen(token));
    EVP_MD_CTX_free(ctx);
    strcat(token, ".");
    mint_append(token, der, n);
    is_number(mint_verify(pairs[2].key, token), SANDBOX_JOSE_SIGNATURE,
              "ES256 with a signature in DER");
}


static void
test_pss(void)
{
    int                  i;
    char                *token, *pem;
    size_t               n;
    uint8_t              signature[2048];
    EVP_PKEY            *pss;
    EVP_PKEY_CTX        *ctx;
    sandbox_jose_key_t  *key;

    static const struct {
        int                     salt;
        sandbox_jose_status_t   status;
    } salts[] = {
        { 32, SANDBOX_JOSE_OK }, { 0, SANDBOX_JOSE_SIGNATURE },
        { 31, SANDBOX_JOSE_SIGNATURE }, { 64, SANDBOX_JOSE_SIGNATURE }
    };

    pss = NULL;
    ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA-PSS", NULL);
    EVP_PKEY_keygen_init(ctx);
    EVP_PKEY_generate(ctx, &pss);
    EVP_PKEY_CTX_free(ctx);

    pem = mint_pem(pss, 0);
    key = sandbox_jose_key_pem((uint8_t *) pem, strlen(pem), NULL, mint_error);
    free(pem);

    if ((sandbox_jose_supported() & SANDBOX_JOSE_PS) == 0) {
        ok(key == NULL, "a key for PS* alone");
        ok(strstr(mint_error, "libjwt verifies no signatures"),
           "it says: %s", mint_error);
        is_number(mint_verify(pairs[1].key, mint_as("PS256", "",
                                                    pairs[1].pkey)),
                  SANDBOX_JOSE_ALGORITHM, "PS256, which libjwt has not");
        EVP_PKEY_free(pss);
        return;
    }

    is_number(sandbox_jose_key_algorithms(key), SANDBOX_JOSE_PS,
              "a key for PS* alone");
    is_number(mint_verify(key, mint_as("PS384", "", pss)), SANDBOX_JOSE_OK,
              "verifies PS384");
    is_number(mint_verify(key, mint_as("RS256", "", pairs[1].pkey)),
              SANDBOX_JOSE_ALGORITHM, "and not RS256");

    for (i = 0; i < (int) count(salts); i++) {
        token = mint_input("{\"alg\":\"PS256\"}", MINT_CLAIMS,
                           strlen(MINT_CLAIMS));
        n = mint_signature("PS256", pairs[1].pkey, salts[i].salt, token,
                           signature);
        strcat(token, ".");
        mint_append(token, signature, n);
        is_number(mint_verify(pairs[1].key, token), salts[i].status,
                  "PS256 with a salt of %d bytes", salts[i].salt);
    }

    sandbox_jose_key_free(key);
    EVP_PKEY_free(pss);
}


/* a modulus that does not end with a byte has a byte more */

static void
test_odd_modulus(void)
{
    EVP_PKEY            *pkey;
    sandbox_jose_key_t  *key;

    pkey = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t) 2049);
    key = mint_public_key(pkey, NULL);
    is_number(mint_verify(key, mint_as("RS512", "", pkey)), SANDBOX_JOSE_OK,
              "RS512 with 2049 bits");
    sandbox_jose_key_free(key);
    EVP_PKEY_free(pkey);
}


/* what libjwt must agree with, though OpenSSL has looked */

static void
test_libjwt(void)
{
    sandbox_jose_key_t  white;

    white = *pairs[1].key;
    white.data = pairs[2].key->data;
    is_number(mint_verify(&white, mint_as("RS256", "", pairs[1].pkey)),
              SANDBOX_JOSE_SIGNATURE, "libjwt has a word in it, too");

    white.data.size = 0;
    is_number(mint_verify(&white, mint_as("RS256", "", pairs[1].pkey)),
              SANDBOX_JOSE_FAILED,
              "jwt-fault-8, jwt-fault-9: libjwt never gets an empty key");

    white = *pairs[0].key;
    white.data.data = NULL;
    white.data.size = 0;
    is_number(mint_verify(&white, mint_mac("HS256", "", "", 0)),
              SANDBOX_JOSE_FAILED, "jwt-fault-4: nor an empty secret");

    is_number(mint_verify(pairs[1].key,
                          mint_as("RS256", ",\"typ\":\"JWT\",\"kid\":null",
                                  pairs[1].pkey)),
              SANDBOX_JOSE_MALFORMED, "a kid that is null");
}


static void
test_secrets(void)
{
    char                *token;
    size_t               i, n, wrong;
    unsigned             expected;
    sandbox_jose_key_t  *key;

    static const struct {
        size_t    size;
        unsigned  algorithms;
    } sizes[] = {
        { 32, SANDBOX_JOSE_HS256 }, { 47, SANDBOX_JOSE_HS256 },
        { 48, SANDBOX_JOSE_HS256 | SANDBOX_JOSE_HS384 },
        { 63, SANDBOX_JOSE_HS256 | SANDBOX_JOSE_HS384 },
        { 64, SANDBOX_JOSE_HS }
    };

    for (i = 0; i < count(sizes); i++) {
        key = sandbox_jose_key_secret((const uint8_t *) SECRET, sizes[i].size,
                                      SANDBOX_JOSE_RAW, NULL, mint_error);
        is_number(sandbox_jose_key_algorithms(key), sizes[i].algorithms,
                  "what %zu bytes are good for", sizes[i].size);
        wrong = 0;

        for (n = 0; n < 3; n++) {
            token = mint_mac(cases[n].name, "", SECRET, sizes[i].size);
            expected = sizes[i].algorithms & cases[n].bit
                       ? SANDBOX_JOSE_OK : SANDBOX_JOSE_ALGORITHM;
            wrong += mint_verify(key, token) != expected;
        }

        is_number(wrong, 0, "and they verify that");
        sandbox_jose_key_free(key);
    }
}


int
main(void)
{
    size_t  i;

    make_keys();
    test_names();

    for (i = 0; i < count(cases); i++) {
        if ((sandbox_jose_supported() & cases[i].bit) == 0) {
            ok(pairs[cases[i].pair].key == NULL
               || (sandbox_jose_key_algorithms(pairs[cases[i].pair].key)
                   & cases[i].bit) == 0,
               "%s: no key is for what libjwt has not", cases[i].name);
            continue;
        }

        test_good(&cases[i]);
        test_corrupt(&cases[i]);
        test_lengths(&cases[i]);
        test_mismatch(&cases[i]);
    }

    test_curves();
    test_pss();
    test_odd_modulus();
    test_libjwt();
    test_secrets();

    for (i = 0; i < count(pairs); i++) {
        sandbox_jose_key_free(pairs[i].key);
        EVP_PKEY_free(pairs[i].pkey);
    }

    return test_done();
}
