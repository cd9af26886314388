/*
 * src/jose: JWK sets.  Which keys are used, which left out, and which make the
 * whole set an error, with the sentence that says why.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_jwks.c src/jose/sandbox_jose_path.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: -ljansson -ljwt -lcrypto */

#include "jose_mint.h"


#define FILES    SANDBOX_JOSE_JWKS_SECRETS
#define MAX      SANDBOX_JOSE_MAX_JWKS_KEYS
#define SECRET   "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"  /* 32 bytes */
#define P256_X   "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"  /* RFC 7515 */
#define P256_Y   "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"  /* A.3.1 */
#define P256     "\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" P256_X             \
                 "\",\"y\":\"" P256_Y "\""
#define GOOD     "{" P256 ",\"kid\":\"good\"}"

#define count(array)  (sizeof(array) / sizeof((array)[0]))


static EVP_PKEY  *rsa, *ec[3], *ed;


typedef struct {
    sandbox_jose_key_t  *keys[MAX];
    size_t               n;
    int                  rc;
} set_t;


static void
load_bytes(set_t *set, const void *data, size_t size, unsigned flags)
{
    size_t  i;

    memset(set, 0, sizeof(set_t));
    mint_error[0] = '\0';

    /* a block of its own: a sanitizer sees what is read past the end */

    uint8_t  *copy = malloc(size + (size == 0));

    memcpy(copy, data, size);
    set->n = 77;
    set->rc = sandbox_jose_jwks(copy, size, flags, set->keys, MAX, &set->n,
                                mint_error);
    free(copy);

    if (ERR_peek_error() != 0) {
        ok(0, "no OpenSSL error is left behind");
        ERR_clear_error();
    }

    if (set->rc == -1) {
        if (set->n != 77 || mint_error[0] == '\0') {
            ok(0, "an error has a sentence and no number of keys");
        }

        set->n = 0;
    }

    for (i = 0; i < set->n; i++) {
        if (set->keys[i] == NULL) {
            ok(0, "key %zu is there", i);
        }
    }
}


static void
unload(set_t *set)
{
    while (set->n > 0) {
        sandbox_jose_key_free(set->keys[--set->n]);
    }
}


static void
load(set_t *set, const char *text, unsigned flags)
{
    load_bytes(set, text, strlen(text), flags);
}


/* a set of one member, or of a comma-separated list of them */

static void
load_keys(set_t *set, const char *members, unsigned flags)
{
    char  *text;

    text = malloc(strlen(members) + 32);
    sprintf(text, "{\"keys\":[%s]}", members);
    load(set, text, flags);
    free(text);
}


static sandbox_jose_status_t
verify(const set_t *set, char *token)
{
    sandbox_jose_policy_t  policy;

    memset(&policy, 0, sizeof(policy));

    return mint_verify_with((const sandbox_jose_key_t *const *) set->keys,
                            set->n, token, strlen(token), &policy);
}


static void
test_kinds(void)
{
    int       supported;
    char     *jwk, *jwks;
    set_t     set;
    size_t    i, n;

    static const char *const  names[] = { "ES256", "ES384", "ES512" };

    /* each modulus has its highest bit set; some libraries pad it */

    for (n = 0; n < 2; n++) {
        jwk = mint_jwk(rsa, n, "");
        load_keys(&set, jwk, 0);
        is_number(set.n, 1, "jwt-fault-36: an RSA key with %zu zeros: %s", n,
                  mint_error);
        is_number(verify(&set, mint_as("RS256", "", rsa)), SANDBOX_JOSE_OK,
                  "jwt-fault-36: it verifies RS256");
        is_number(verify(&set, mint_as("RS512", "", rsa)), SANDBOX_JOSE_OK,
                  "and RS512");
        is_number(verify(&set, mint_as("PS256", "", rsa)),
                  sandbox_jose_supported() & SANDBOX_JOSE_PS256
                  ? SANDBOX_JOSE_OK : SANDBOX_JOSE_ALGORITHM,
                  "PS256 where libjwt does");
        is_number(verify(&set, mint_mac("HS256", "", "", 0)),
                  SANDBOX_JOSE_ALGORITHM,
                  "jwt-fault-4: no alg, and never HS256 with an empty key");
        unload(&set);
        free(jwk);
    }

    for (i = 0; i < 3; i++) {
        jwk = mint_jwk(ec[i], 0, "");
        load_keys(&set, jwk, 0);
        is_number(set.n, 1, "an EC key for %s: %s", names[i], mint_error);
        is_number(verify(&set, mint_as(names[i], "", ec[i])), SANDBOX_JOSE_OK,
                  "it verifies");
        is_number(verify(&set, mint_as(names[(i + 1) % 3], "", ec[i])),
                  SANDBOX_JOSE_ALGORITHM,
                  "auth/curve-mismatch: and not %s", names[(i + 1) % 3]);
        unload(&set);
        free(jwk);
    }

    jwk = mint_jwk(ed, 0, "");
    jwks = malloc(strlen(jwk) + sizeof(GOOD) + 1);
    sprintf(jwks, "%s,%s", jwk, GOOD);
    load_keys(&set, jwks, 0);
    supported = (sandbox_jose_supported() & SANDBOX_JOSE_EDDSA) != 0;
    is_number(set.n, 1 + supported, "Ed25519 is used where libjwt verifies it");
    is_number(verify(&set, mint_as("EdDSA", "", ed)),
              supported ? SANDBOX_JOSE_OK : SANDBOX_JOSE_NO_KEY, "EdDSA");
    unload(&set);
    free(jwks);
    free(jwk);

    load_keys(&set, "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":\"" SECRET "\"}",
              FILES);
    is_number(set.n, 1, "a secret in a file: %s", mint_error);
    is_number(verify(&set, mint(MINT_CLAIMS)), SANDBOX_JOSE_OK,
              "it verifies HS256");
    unload(&set);

    /* no example of ours: RFC 7515, appendix A.3 */

    {
        int                          status;
        sandbox_jose_token_t         token;
        sandbox_jose_policy_t        policy;

        static const char  rfc[] =
            "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAs"
            "DQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L3"
            "8VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-"
            "Kg6NU1Q";

        load_keys(&set, "{" P256 "}", 0);
        memset(&policy, 0, sizeof(policy));
        status = sandbox_jose_verify((const sandbox_jose_key_t *const *)
                                     set.keys, set.n, (const uint8_t *) rfc,
                                     strlen(rfc), &policy, 1300819379, &token);
        is_number(status, SANDBOX_JOSE_OK, "key and token of RFC 7515 A.3");
        json_decref(status == SANDBOX_JOSE_OK ? token.claims : NULL);
        unload(&set);
    }
}


/* what is left out, beside a key that is used */

static void
test_left_out(void)
{
    char    members[2048];
    set_t   set;
    size_t  i;

    static const struct {
        const char  *key;
        unsigned     flags;
    } cases[] = {
        { "{" P256 ",\"use\":\"enc\"}", 0 },
        { "{" P256 ",\"use\":\"SIG\"}", 0 },
        { "{" P256 ",\"use\":\"\"}", 0 },
        { "{" P256 ",\"key_ops\":[]}", 0 },
        { "{" P256 ",\"key_ops\":[\"sign\",\"encrypt\"]}", 0 },
        { "{" P256 ",\"use\":\"enc\",\"key_ops\":[\"verify\"]}", 0 },
        { "{" P256 ",\"alg\":\"ECDH-ES\"}", 0 },
        { "{" P256 ",\"alg\":\"none\"}", 0 },
        { "{" P256 ",\"alg\":\"es256\"}", 0 },
        { "{" P256 ",\"d\":\"AA\"}", 0 },
        { "{" P256 ",\"k\":\"AA\"}", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"AA\",\"e\":\"AQAB\",\"alg\":\"RSA-OAEP\"}",
          0 },
        { "{\"kty\":\"RSA\",\"oth\":[]}", 0 },
        { "{\"kty\":\"EC\",\"crv\":\"secp256k1\",\"x\":\"AA\",\"y\":\"AA\"}",
          0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-224\"}", 0 },
        { "{\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"AA\"}", 0 },
        { "{\"kty\":\"OKP\",\"crv\":\"Ed448\",\"x\":\"AA\"}", 0 },
        { "{\"kty\":\"AKP\",\"alg\":\"ML-DSA-44\"}", 0 },
        { "{\"kty\":\"ec\"}", 0 },
        { "{\"kty\":\"\"}", 0 },
        { "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":\"" SECRET "\"}", 0 },
        { "{\"kty\":\"oct\",\"k\":\"" SECRET "\"}", 0 },
        { "{\"kty\":\"oct\",\"alg\":\"A128KW\",\"k\":\"AA\"}", FILES }
    };

    for (i = 0; i < count(cases); i++) {
        snprintf(members, sizeof(members), "%s,%s", cases[i].key, GOOD);
        load_keys(&set, members, cases[i].flags);
        is_number(set.n, 1, "left out: %.100s%s%s", cases[i].key,
                  mint_error[0] ? ": " : "", mint_error);
        unload(&set);

        load_keys(&set, cases[i].key, cases[i].flags);
        is_number(set.rc, -1, "and a set of nothing else: %s", mint_error);
        unload(&set);
    }

    if ((sandbox_jose_supported() & SANDBOX_JOSE_PS) == 0) {
        load_keys(&set, "{\"kty\":\"RSA\",\"alg\":\"PS256\"}," GOOD, 0);
        is_number(set.n, 1, "a key for PS256, which libjwt has not");
        unload(&set);
    }

    load_keys(&set, "{" P256 ",\"use\":\"sig\",\"alg\":\"ES256\",\"kid\":\"k\","
              "\"key_ops\":[\"sign\",\"verify\"],\"x5t\":7,\"ext\":true}", 0);
    is_number(set.n, 1, "all that a good key may say: %s", mint_error);
    unload(&set);
}


static void
test_refused(void)
{
    char    members[9000], *jwk;
    set_t   set;
    size_t  i;

    static const struct {
        const char  *key;
        const char  *word;
        unsigned     flags;
    } cases[] = {
        { "7", "not an object", 0 },
        { "null", "not an object", 0 },
        { "[" GOOD "]", "not an object", 0 },
        { "{}", "no \"kty\"", 0 },
        { "{\"kty\":7}", "\"kty\" is not a string", 0 },
        { "{" P256 ",\"use\":[\"sig\"]}", "\"use\" is not a string", 0 },
        { "{" P256 ",\"key_ops\":\"verify\"}", "not an array", 0 },
        { "{" P256 ",\"key_ops\":[\"verify\",1]}", "is not a string", 0 },
        { "{" P256 ",\"alg\":null}", "\"alg\" is not a string", 0 },
        { "{" P256 ",\"kid\":7}", "\"kid\" is not a string", 0 },
        { "{" P256 ",\"kid\":null}", "\"kid\" is not a string", 0 },
        { "{" P256 ",\"alg\":\"HS256\"}", "HS256 is not one of its kty EC", 0 },
        { "{" P256 ",\"alg\":\"RS256\"}", "RS256 is not one of its kty EC", 0 },
        { "{" P256 ",\"alg\":\"ES384\"}", "of another curve", 0 },
        { "{" P256 ",\"d\":\"AA\"}", "private member \"d\"", FILES },
        { "{" P256 ",\"k\":\"AA\"}", "private member \"k\"", FILES },
        { "{\"kty\":\"RSA\",\"qi\":7}", "private member \"qi\"", FILES },
        { "{\"kty\":\"RSA\"}", "no \"n\"", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"" SECRET "\"}", "no \"e\"", 0 },
        { "{\"kty\":\"RSA\",\"n\":7,\"e\":\"AQAB\"}", "not a string", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"\",\"e\":\"AQAB\"}", "not base64url", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"A\",\"e\":\"AQAB\"}", "not base64url", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"AB\",\"e\":\"AQAB\"}", "not base64url", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"AA==\",\"e\":\"AQAB\"}", "not base64url",
          0 },
        { "{\"kty\":\"RSA\",\"n\":\"AA+/\",\"e\":\"AQAB\"}", "not base64url",
          0 },
        { "{\"kty\":\"RSA\",\"n\":\"AA AA\",\"e\":\"AQAB\"}", "not base64url",
          0 },
        { "{\"kty\":\"RSA\",\"n\":\"AA\",\"e\":\"AQAB\"}", "key 1 of", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"AQ\",\"e\":\"AQAB\"}", "2048 to 8192", 0 },
        { "{\"kty\":\"RSA\",\"n\":\"" SECRET "\",\"e\":\"AA\"}", "key 1", 0 },
        { "{\"kty\":\"EC\",\"x\":\"AA\",\"y\":\"AA\"}", "no \"crv\"", 0 },
        { "{\"kty\":\"EC\",\"crv\":256}", "\"crv\" is not a string", 0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-256\",\"y\":\"" P256_Y "\"}", "no \"x\"",
          0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" P256_X "\"}", "no \"y\"",
          0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQ\",\"y\":\"AQ\"}",
          "32 bytes each", 0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" P256_X "AAAA\","
          "\"y\":\"" P256_Y "\"}", "more than 32 bytes", 0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" P256_X "\","
          "\"y\":\"" P256_X "\"}", "not on its curve", 0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-256\","
          "\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\","
          "\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}",
          "not on its curve", 0 },
        { "{\"kty\":\"EC\",\"crv\":\"P-256\","
          "\"x\":\"_____________________________________________w\"}",
          "more than 32", 0 },
        { "{\"kty\":\"oct\",\"k\":\"" SECRET "\"}", "no \"alg\"", FILES },
        { "{\"kty\":\"oct\",\"alg\":\"RS256\",\"k\":\"" SECRET "\"}",
          "RS256 is not one of its kty oct", FILES },
        { "{\"kty\":\"oct\",\"alg\":\"HS512\",\"k\":\"" SECRET "\"}",
          "too short", FILES },
        { "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":\"AAAA\"}", "at least 32",
          FILES },
        { "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":\"\"}",
          "not base64url", FILES },
        { "{\"kty\":\"oct\",\"alg\":\"HS256\"}", "no \"k\"", FILES },
        { "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":[]}", "not a string",
          FILES },
        { "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":\"LS0tLS1CRUdJTiBQVUJMSUMg"
          "S0VZLS0tLS0KTUlJQklqQU5CZ2txaGtpRzl3MEJBUUVG\"}", "looks like PEM",
          FILES }
    };

    for (i = 0; i < count(cases); i++) {
        load_keys(&set, cases[i].key, cases[i].flags);
        ok(set.rc == -1 && strstr(mint_error, cases[i].word) != NULL,
           "jwt-fault-7: JWK %zu: %s", i, mint_error);
        unload(&set);

        /* a good key before and behind it does not help */

        snprintf(members, sizeof(members), "%s,%s,%s", GOOD, cases[i].key,
                 GOOD);
        load_keys(&set, members, cases[i].flags);
        ok(set.rc == -1 && strncmp(mint_error, "key 2 of", 8) == 0,
           "nor beside good ones: %s", mint_error);
        unload(&set);
    }

    /* longer than any that could be right */

    sprintf(members, "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"");
    i = strlen(members);
    memset(members + i, 'A', 8000);
    strcpy(members + i + 8000, "\"}");
    load_keys(&set, members, 0);
    ok(strstr(mint_error, "more than 1025 bytes") != NULL, "a modulus: %s",
       mint_error);

    sprintf(members, "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":\"");
    i = strlen(members);
    memset(members + i, 'A', 8000);
    strcpy(members + i + 8000, "\"}");
    load_keys(&set, members, FILES);
    ok(strstr(mint_error, "more than 4096 bytes") != NULL, "a secret: %s",
       mint_error);

    for (i = 255; i <= 256; i++) {
        sprintf(members, "{" P256 ",\"kid\":\"%0*d\"}", (int) i, 0);
        load_keys(&set, members, 0);
        is_number(set.n, i == 255, "a kid of %zu bytes: %s", i, mint_error);
        unload(&set);
    }

    jwk = mint_jwk(ec[0], 0, ",\"alg\":\"ES256\",\"alg\":\"ES256\"");
    load_keys(&set, jwk, 0);
    ok(strstr(mint_error, "stands twice") != NULL, "alg twice: %s",
       mint_error);
    free(jwk);
}


/* weak RSA: moduli and exponents made for it */

static void
test_weak(void)
{
    char       *jwk, *p, members[4096];
    set_t       set;
    size_t      i;
    EVP_PKEY   *pkey;

    static const struct {
        const char  *e;
        int          good;
    } exponents[] = {
        { "Aw", 1 }, { "AQAB", 1 }, { "AAEAAQ", 1 }, { "AQ", 0 }, { "Ag", 0 },
        { "AQAA", 0 }, { "_________-8", 1 }, { "AQAAAAAAAAAB", 0 },
        { "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB", 0 }
    };

    jwk = mint_jwk(rsa, 0, "");
    p = strstr(jwk, ",\"e\"");

    for (i = 0; i < count(exponents); i++) {
        sprintf(members, "%.*s,\"e\":\"%s\"}", (int) (p - jwk), jwk,
                exponents[i].e);
        load_keys(&set, members, 0);
        is_number(set.n, exponents[i].good, "an exponent of %s: %s",
                  exponents[i].e, mint_error);
        unload(&set);
    }

    /* an even modulus: 256 bytes end with two bits of the last but one digit */

    strcpy(members, jwk);
    p = strstr(members, ",\"e\"") - 2;
    *p = 'A';
    load_keys(&set, members, 0);
    ok(set.rc == -1 && strstr(mint_error, "odd") != NULL,
       "an even modulus: %s", mint_error);
    free(jwk);

    pkey = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t) 1024);
    jwk = mint_jwk(pkey, 0, "");
    load_keys(&set, jwk, 0);
    ok(set.rc == -1 && strstr(mint_error, "1024 bits") != NULL,
       "a modulus of 1024 bits: %s", mint_error);
    free(jwk);
    EVP_PKEY_free(pkey);
}


static void
test_documents(void)
{
    char     *large;
    set_t     set;
    size_t    i;

    static const struct {
        const char  *text;
        const char  *word;
    } cases[] = {
        { "", "empty" },
        { " ", "not JSON" },
        { "<!DOCTYPE html><html></html>", "not JSON" },
        { "{\"keys\":[" GOOD, "not JSON" },
        { "{\"keys\":[" GOOD "]}x", "not JSON" },
        { "{\"keys\":[" GOOD ",]}", "not JSON" },
        { "\xef\xbb\xbf{\"keys\":[" GOOD "]}", "not JSON" },
        { "[" GOOD "]", "array \"keys\"" },
        { GOOD, "array \"keys\"" },
        { "{\"keys\":{}}", "array \"keys\"" },
        { "{\"keys\":\"x\"}", "array \"keys\"" },
        { "{\"Keys\":[" GOOD "]}", "array \"keys\"" },
        { "{\"keys\":[],\"keys\":[" GOOD "]}", "stands twice" },
        { "{\"keys\":[" GOOD "],\"x\":{\"a\":1,\"\\u0061\":1}}",
          "stands twice" },
        { "{\"keys\":[{\"kty\":\"a\\u0000\"}]}", "not JSON" },
        { "{\"keys\":[{\"kty\":\"\xff\"}]}", "not JSON" },
        { "{\"keys\":[]}", "there are 0" },
        { "-----BEGIN PUBLIC KEY-----", "not JSON" }
    };

    for (i = 0; i < count(cases); i++) {
        load(&set, cases[i].text, 0);
        ok(set.rc == -1 && strstr(mint_error, cases[i].word) != NULL,
           "auth/keyset-bad-answers: document %zu: %s", i, mint_error);
        unload(&set);
    }

    load_bytes(&set, "\x1f\x8b\x08\0\0\0\0\0\0\3", 10, 0);
    ok(set.rc == -1 && strstr(mint_error, "compressed") != NULL,
       "auth/keyset-bad-answers, jwt-fault-29: gzip: %s", mint_error);

    load_bytes(&set, "{\"x\":1\0,\"keys\":[" GOOD "]}",
               sizeof("{\"x\":1\0,\"keys\":[" GOOD "]}") - 1, 0);
    ok(set.rc == -1 && strstr(mint_error, "zero byte") != NULL,
       "a zero byte behind a number: %s", mint_error);

    load_bytes(&set, "\x1f", 1, 0);
    ok(set.rc == -1, "one byte of it");

    load(&set, "{\"issuer\":\"x\",\"keys\":[" GOOD "],\"more\":[1,{}]}\n", 0);
    is_number(set.n, 1, "other members of a set do not matter");
    unload(&set);

    /* nothing of a secret is in a sentence */

    load(&set, "{\"keys\":[{\"k\":\"c2VjcmV0\" x}]}", FILES);
    ok(set.rc == -1 && strstr(mint_error, "c2Vj") == NULL,
       "no secret in a sentence: %s", mint_error);

    for (i = SANDBOX_JOSE_MAX_JWKS; i <= SANDBOX_JOSE_MAX_JWKS + 1; i++) {
        large = malloc(i);
        memset(large, ' ', i);
        memcpy(large, "{\"keys\":[" GOOD "]}", sizeof("{\"keys\":[" GOOD "]}")
                                               - 1);
        load_bytes(&set, large, i, 0);
        is_number(set.n, i == SANDBOX_JOSE_MAX_JWKS,
                  "a document of %zu bytes: %s", i, mint_error);
        unload(&set);
        free(large);
    }

    large = malloc(20000);
    memset(large, '[', 20000);
    load_bytes(&set, large, 20000, 0);
    is_number(set.rc, -1, "20,000 open brackets: %s", mint_error);
    free(large);
}


/* 20 keys (4 kB) and 64 of them, each by its kid */

static void
test_many(void)
{
    char                *text, *p, more[64], *jwk;
    set_t                set;
    size_t               i, n, good;
    sandbox_jose_key_t  *few[3];

    static const size_t  sizes[] = { 20, 64, 65 };

    text = malloc(SANDBOX_JOSE_MAX_JWKS);

    for (n = 0; n < count(sizes); n++) {
        p = text + sprintf(text, "{\"keys\":[");

        for (i = 0; i < sizes[n]; i++) {
            sprintf(more, ",\"kid\":\"%zu\"", i);
            jwk = mint_jwk(i % 2 ? rsa : ec[0], 0, more);
            p += sprintf(p, "%s%s", i ? "," : "", jwk);
            free(jwk);
        }

        strcpy(p, "]}");
        load(&set, text, 0);

        if (sizes[n] > MAX) {
            ok(set.rc == -1 && strstr(mint_error, "the most is 64") != NULL,
               "%zu keys: %s", sizes[n], mint_error);
            continue;
        }

        is_number(set.n, sizes[n], "jwt-fault-14, jwt-fault-40: %zu keys: %s",
                  sizes[n], mint_error);
        good = 0;

        for (i = 0; i < sizes[n]; i++) {
            sprintf(more, ",\"kid\":\"%zu\"", i);
            good += verify(&set, i % 2 ? mint_as("RS256", more, rsa)
                                       : mint_as("ES256", more, ec[0]))
                    == SANDBOX_JOSE_OK;
        }

        is_number(good, sizes[n], "jwt-fault-31: each is found by its kid");

        sprintf(more, ",\"kid\":\"%zu\"", (size_t) 99);
        is_number(verify(&set, mint_as("RS256", more, rsa)),
                  SANDBOX_JOSE_UNKNOWN_KID,
                  "jwt-fault-33: another kid is unknown");
        is_number(verify(&set, mint_as("RS256", "", rsa)), SANDBOX_JOSE_NO_KEY,
                  "jwt-fault-34: no kid, where all keys have one");
        unload(&set);
    }

    /* less room than keys */

    few[2] = NULL;
    p = text;
    p += sprintf(p, "{\"keys\":[%s,%s,%s]}", GOOD, GOOD, GOOD);
    is_number(sandbox_jose_jwks((uint8_t *) text, (size_t) (p - text), 0, few,
                                2, &n, mint_error), -1, "no room: %s",
              mint_error);
    ok(few[2] == NULL, "nothing is written behind it");
    is_number(sandbox_jose_jwks((uint8_t *) text, (size_t) (p - text), 0, few,
                                3, &n, mint_error), 0, "just enough room");
    is_number(n, 3, "three keys of one kid");

    for (i = 0; i < n; i++) {
        sandbox_jose_key_free(few[i]);
    }

    free(text);
}


/* alg, where a key has it, is the only one it verifies */

static void
test_pins(void)
{
    char   *jwk;
    set_t   set;

    jwk = mint_jwk(rsa, 0, ",\"alg\":\"RS384\"");
    load_keys(&set, jwk, 0);
    is_number(sandbox_jose_key_algorithms(set.keys[0]), SANDBOX_JOSE_RS384,
              "an RSA key with alg RS384");
    is_number(verify(&set, mint_as("RS384", "", rsa)), SANDBOX_JOSE_OK,
              "verifies it");
    is_number(verify(&set, mint_as("RS256", "", rsa)), SANDBOX_JOSE_ALGORITHM,
              "jwt-fault-2: and no RS256");
    unload(&set);
    free(jwk);

    load_keys(&set, "{\"kty\":\"oct\",\"alg\":\"HS256\",\"k\":\""
              "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"
              "MDEyMzQ1Njc4OWFiY2RlZg\"}", FILES);
    is_number(sandbox_jose_key_algorithms(set.keys[0]), SANDBOX_JOSE_HS256,
              "a secret of 64 bytes with alg HS256");
    unload(&set);
}


int
main(void)
{
    size_t  i;

    static const char *const  curves[] = { "P-256", "P-384", "P-521" };

    rsa = EVP_RSA_gen(2048);
    ed = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

    for (i = 0; i < 3; i++) {
        ec[i] = EVP_PKEY_Q_keygen(NULL, NULL, "EC", curves[i]);
    }

    test_kinds();
    test_left_out();
    test_refused();
    test_weak();
    test_documents();
    test_many();
    test_pins();

    EVP_PKEY_free(rsa);
    EVP_PKEY_free(ed);

    for (i = 0; i < 3; i++) {
        EVP_PKEY_free(ec[i]);
    }

    return test_done();
}
