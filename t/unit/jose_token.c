/*
 * src/jose: the form of a token, its header and its signature.  What a
 * careless reader would take is refused, and nothing is left behind.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_jwks.c src/jose/sandbox_jose_path.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: -ljansson -ljwt -lcrypto */

#include "jose_mint.h"


static sandbox_jose_key_t  *secret;
static sandbox_jose_key_t  *public;
static EVP_PKEY            *rsa;


static char *
dup_token(const char *s)
{
    return strdup(s);
}


static void
test_good(void)
{
    const char                *rfc;
    sandbox_jose_key_t        *key;
    sandbox_jose_token_t       token;
    sandbox_jose_policy_t      policy;
    const sandbox_jose_key_t  *keys[1];

    static const uint8_t  k[] = {
        3, 35, 53, 75, 43, 15, 165, 188, 131, 126, 6, 101, 119, 123, 166, 143,
        90, 179, 40, 230, 240, 84, 201, 40, 169, 15, 132, 178, 210, 80, 46,
        191, 211, 251, 90, 146, 210, 6, 71, 239, 150, 138, 180, 195, 119, 98,
        61, 34, 61, 46, 33, 114, 5, 46, 79, 8, 192, 205, 154, 245, 103, 208,
        128, 163
    };

    is_number(mint_verify(secret, mint(MINT_CLAIMS)), SANDBOX_JOSE_OK,
              "HS256");
    is_number(mint_verify(public, mint_pkey(MINT_RS256, MINT_CLAIMS, rsa)),
              SANDBOX_JOSE_OK, "RS256");

    /* RFC 7515, appendix A.1: made by somebody else */

    rfc = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
          ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
          "cGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
          ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

    key = sandbox_jose_key_secret(k, sizeof(k), SANDBOX_JOSE_RAW,
                                  NULL, mint_error);
    keys[0] = key;
    memset(&policy, 0, sizeof(policy));
    memset(&token, 0, sizeof(token));

    is_number(sandbox_jose_verify(keys, 1, (const uint8_t *) rfc, strlen(rfc),
                                  &policy, 1300819379, &token),
              SANDBOX_JOSE_OK, "the token of RFC 7515 A.1");
    is_number(token.expires, 1300819380, "its expiry");
    is_string(json_string_value(json_object_get(token.claims, "iss")), "joe",
              "its issuer");
    json_decref(token.claims);

    is_number(sandbox_jose_verify(keys, 1, (const uint8_t *) rfc, strlen(rfc),
                                  &policy, 1300819380, &token),
              SANDBOX_JOSE_EXPIRED, "and a second later it has expired");

    sandbox_jose_key_free(key);
}


static void
test_forms(void)
{
    char   *token, *dots;
    size_t  i;

    static const char *const  bad[] = {
        "", ".", "..", "...", "a", "a..", ".a.", "..a", "a.b", "a.b.", "a..b",
        ".a.b", "a.b.c.d", "eyJhbGciOiJIUzI1NiJ9..", "eyJhbGciOiJIUzI1NiJ9.e30.",
        "eyJhbGciOiJIUzI1NiJ9.e30", "eyJhbGciOiJIUzI1NiJ9..AAAA", " ", "\t.\t.\t",
        "eyJhbGciOiJIUzI1NiJ9.e30.AAAA.AAAA", "eyJhbGciOiJIUzI1NiJ9.e30.A",
        "eyJhbGciOiJIUzI1NiJ9.e30.AA==", "eyJhbGciOiJIUzI1NiJ9.e30.AA+A",
        "eyJhbGciOiJIUzI1NiJ9.e30.AA/A", "eyJhbGciOiJIUzI1NiJ9.e30.\xc3\xa9\xc3",
        "eyJhbGciOiJIUzI1NiJ9.e30.AAAA\n", "\xff.\xff.\xff"
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        is_number(mint_verify(secret, dup_token(bad[i])),
                  SANDBOX_JOSE_MALFORMED, "auth/empty-parts, jwt-fault-15: form %zu", i);
    }

    dots = malloc(10001);
    memset(dots, '.', 10000);
    dots[10000] = '\0';
    is_number(mint_verify(secret, dots), SANDBOX_JOSE_MALFORMED,
              "auth/empty-parts: 10,000 dots");

    /* a good token with something about it */

    token = mint(MINT_CLAIMS);
    strcat(token, "=");
    is_number(mint_verify(secret, token), SANDBOX_JOSE_MALFORMED, "padding");

    token = mint(MINT_CLAIMS);
    strcat(token, "\n");
    is_number(mint_verify(secret, token), SANDBOX_JOSE_MALFORMED,
              "a newline behind");

    token = mint(MINT_CLAIMS);
    memmove(token + 1, token, strlen(token) + 1);
    token[0] = ' ';
    is_number(mint_verify(secret, token), SANDBOX_JOSE_MALFORMED,
              "a blank before");

    token = mint(MINT_CLAIMS);
    strcat(token, ".AAAA");
    is_number(mint_verify(secret, token), SANDBOX_JOSE_MALFORMED,
              "a fourth part");

    token = mint(MINT_CLAIMS);
    memmove(token + 11, token + 10, strlen(token) - 9);
    token[10] = '!';
    is_number(mint_verify(secret, token), SANDBOX_JOSE_MALFORMED,
              "a character libjwt would skip");
}


/*
 * 32 bytes leave 2 bits of the last digit over, 256 bytes 4 bits: that many
 * spellings decode alike, only one of them is canonical.
 */

static void
spellings(const sandbox_jose_key_t *key, const char *token, unsigned bits,
    const char *name)
{
    char      *copy, *last;
    unsigned   i, taken, malformed;

    static const char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    taken = 0;
    malformed = 0;

    for (i = 0; i < 1u << bits; i++) {
        copy = strdup(token);
        last = copy + strlen(copy) - 1;
        *last = digits[(strchr(digits, *last) - digits) | i];

        switch (mint_verify(key, copy)) {

        case SANDBOX_JOSE_OK:
            taken++;
            break;

        case SANDBOX_JOSE_MALFORMED:
            malformed++;
            break;

        default:
            break;
        }
    }

    is_number(taken, 1, "%s: one spelling is taken", name);
    is_number(malformed, (1u << bits) - 1, "%s: all others are malformed",
              name);
}


static void
test_canonical(void)
{
    char  *token;

    token = mint(MINT_CLAIMS);
    spellings(secret, token, 2, "HS256");
    free(token);

    token = mint_hmac("{\"alg\":\"HS256\",\"typ\":\"at+jwt\"}", MINT_CLAIMS,
                      MINT_SECRET, strlen(MINT_SECRET));
    spellings(secret, token, 2, "HS256 of an access token");
    free(token);

    token = mint_pkey(MINT_RS256, MINT_CLAIMS, rsa);
    spellings(public, token, 4, "RS256");
    free(token);
}


static void
test_size(void)
{
    char   *claims, *token;
    size_t  i, n;

    static const size_t  good[] = { 1000, 4000, 7900, 12000 };

    claims = malloc(64 * 1024);

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        n = (size_t) sprintf(claims, "{\"exp\":1700000100,\"x\":\"");
        memset(claims + n, 'x', good[i] - n);
        strcpy(claims + good[i], "\"}");

        is_number(mint_verify(secret, mint(claims)), SANDBOX_JOSE_OK,
                  "auth/token-size, jwt-fault-42: claims of %zu bytes", good[i]);
    }

    memset(claims, ' ', 40000);
    strcpy(claims + 40000, MINT_CLAIMS);
    is_number(mint_verify(secret, mint(claims)), SANDBOX_JOSE_MALFORMED,
              "auth/token-size: 40 kB");

    /* the largest, and one byte more */

    for (i = 12000; i < 12400; i++) {
        memset(claims, ' ', i);
        strcpy(claims + i, MINT_CLAIMS);
        token = mint(claims);
        n = strlen(token);

        if (mint_verify(secret, token)
            != (n <= SANDBOX_JOSE_MAX_TOKEN ? SANDBOX_JOSE_OK
                                            : SANDBOX_JOSE_MALFORMED))
        {
            break;
        }
    }

    is_number(i, 12400, "auth/token-size: 16 KiB to the byte");
    free(claims);
}


/* the lengths of payloads run through every remainder libb64 may trip over */

static void
test_lengths(void)
{
    char    claims[400];
    size_t  i, n;

    for (i = 0; i < 200; i++) {
        n = (size_t) sprintf(claims, "{\"exp\":1700000100,\"x\":\"");
        memset(claims + n, 'y', i);
        strcpy(claims + n + i, "\"}");

        if (mint_verify(secret, mint(claims)) != SANDBOX_JOSE_OK) {
            break;
        }
    }

    is_number(i, 200, "claims of every length");
}


static void
test_header(void)
{
    char       *token;
    size_t      i;
    json_t     *kid;
    char        header[1200], name[600];

    static const char  printable[] =
        "{}[]\",:_ abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
        "0123456789";

    static const struct {
        const char             *header;
        sandbox_jose_status_t   status;
    } headers[] = {
        { "{\"alg\":\"HS256\"}", SANDBOX_JOSE_OK },
        { " {\"alg\" : \"HS256\"}\r\n", SANDBOX_JOSE_OK },
        { "{\"alg\":\"HS256\",\"typ\":\"jwt\"}", SANDBOX_JOSE_OK },
        { "{\"alg\":\"HS256\",\"typ\":\"JWT\",\"x5t\":\"abc\",\"jku\":"
          "\"https://example.com/\",\"jwk\":{\"kty\":\"oct\",\"k\":\"AAAA\"}}",
          SANDBOX_JOSE_OK },
        { "{\"alg\":\"HS256\",\"typ\":\"at+jwt\"}", SANDBOX_JOSE_OK },
        { "{\"alg\":\"HS256\",\"typ\":\"application/AT+JWT\"}",
          SANDBOX_JOSE_OK },
        { "{\"alg\":\"HS256\",\"typ\":\"logout+jwt\"}",
          SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"typ\":\"\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"typ\":null}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"typ\":[\"JWT\"]}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"hs256\"}", SANDBOX_JOSE_ALGORITHM },
        { "{\"alg\":\"HS256 \"}", SANDBOX_JOSE_ALGORITHM },
        { "{\"alg\":\"HS512\"}", SANDBOX_JOSE_ALGORITHM },
        { "{\"alg\":\"\"}", SANDBOX_JOSE_ALGORITHM },
        { "{\"alg\":\"HS256\\u0000\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":null}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":256}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":[\"HS256\"]}", SANDBOX_JOSE_MALFORMED },
        { "{\"ALG\":\"HS256\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"typ\":\"JWT\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"alg\":\"HS256\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"none\",\"alg\":\"HS256\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"\\u0061lg\":\"none\"}",
          SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"x\":{\"a\":1,\"a\":2}}",
          SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}",
          SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"crit\":[]}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"crit\":[\"x\"]}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"crit\":null}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"b64\":true}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"zip\":\"DEF\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"enc\":\"A128GCM\"}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"kid\":7}", SANDBOX_JOSE_MALFORMED },
        { "[\"alg\",\"HS256\"]", SANDBOX_JOSE_MALFORMED },
        { "\"HS256\"", SANDBOX_JOSE_MALFORMED },
        { "null", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\"", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\"}x", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\"}{}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",}", SANDBOX_JOSE_MALFORMED },
        { "{\"alg\":\"HS256\",\"x\":\"\xff\"}", SANDBOX_JOSE_MALFORMED },
        { "\xef\xbb\xbf{\"alg\":\"HS256\"}", SANDBOX_JOSE_MALFORMED }
    };

    for (i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        token = mint_hmac(headers[i].header, MINT_CLAIMS, MINT_SECRET,
                          strlen(MINT_SECRET));
        is_number(mint_verify(secret, token), headers[i].status,
                  "auth/crit-header: header %zu, %.*s", i,
                  (int) strspn(headers[i].header, printable),
                  headers[i].header);
    }

    for (i = 255; i <= 256; i++) {
        memset(name, 'k', i);
        name[i] = '\0';
        kid = json_pack("{s:s, s:s}", "alg", "HS256", "kid", name);
        json_dumpb(kid, header, sizeof(header), 0);
        header[json_dumpb(kid, header, sizeof(header), 0)] = '\0';
        json_decref(kid);

        token = mint_hmac(header, MINT_CLAIMS, MINT_SECRET,
                          strlen(MINT_SECRET));
        is_number(mint_verify(secret, token),
                  i == 255 ? SANDBOX_JOSE_OK : SANDBOX_JOSE_MALFORMED,
                  "a kid of %zu bytes", i);
    }
}


static void
test_none(void)
{
    char    header[64], *token;
    size_t  i, n;

    static const char *const  names[] = {
        "none", "None", "NONE", "nOnE", "HS256none", "none "
    };

    static const char *const  tails[] = {
        ".", ".AAAA", ".AA",
        ".AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (n = 0; n < sizeof(tails) / sizeof(tails[0]); n++) {
            sprintf(header, "{\"alg\":\"%s\"}", names[i]);
            token = mint_input(header, MINT_CLAIMS, strlen(MINT_CLAIMS));
            strcat(token, tails[n]);

            is_number(mint_verify(secret, token),
                      n == 0 ? SANDBOX_JOSE_MALFORMED : SANDBOX_JOSE_ALGORITHM,
                      "auth/alg-none, jwt-fault-1: %s with a tail of %zu", names[i],
                      strlen(tails[n]));
        }
    }
}


static void
test_confusion(void)
{
    int                    i;
    char                  *pem, *token;
    size_t                 n;
    sandbox_jose_policy_t  policy;

    pem = mint_pem(rsa, 0);

    for (i = 0; i < 3; i++) {
        n = strlen(pem) - (size_t) (i == 1);
        token = mint_hmac(MINT_HS256, MINT_CLAIMS, pem, i == 2 ? 0 : n);
        is_number(mint_verify(public, token), SANDBOX_JOSE_ALGORITHM,
                  "auth/hs-with-public-key, jwt-fault-3: %s",
                  i == 0 ? "PEM" : i == 1 ? "PEM without its last newline"
                                          : "an empty key");
    }

    token = mint_hmac(MINT_RS256, MINT_CLAIMS, pem, strlen(pem));
    is_number(mint_verify(public, token), SANDBOX_JOSE_SIGNATURE,
              "an HMAC that says RS256");

    is_number(mint_verify(secret, mint_pkey(MINT_RS256, MINT_CLAIMS, rsa)),
              SANDBOX_JOSE_ALGORITHM, "RS256 for a secret");

    free(pem);

    /* the policy allows less than the keys could */

    memset(&policy, 0, sizeof(policy));
    policy.algorithms = SANDBOX_JOSE_RS256;
    token = mint(MINT_CLAIMS);
    is_number(mint_verify_with((const sandbox_jose_key_t *const *) &secret, 1,
                               token, strlen(token), &policy),
              SANDBOX_JOSE_ALGORITHM, "jwt-fault-2: HS256 where only RS256 is allowed");
}


static void
test_signature(void)
{
    int                       good;
    char                     *token, *dot, *input;
    size_t                    i, n;
    uint8_t                  *bytes;
    sandbox_jose_status_t     status;

    static const char  forged[] = "{\"sub\":\"mallory\",\"exp\":1700000100}";

    static const size_t  sizes[] = {
        1, 2, 16, 31, 33, 63, 64, 65, 128, 255, 257, 512, 1024, 1025, 8000
    };

    bytes = calloc(1, 21000);

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (n = 0; n < 4; n++) {
            token = mint_input(n & 1 ? MINT_RS256 : MINT_HS256, MINT_CLAIMS,
                               strlen(MINT_CLAIMS));
            strcat(token, ".");
            mint_append(token, bytes, sizes[i]);

            status = mint_verify(n & 1 ? public : secret, token);
            is_number(status, SANDBOX_JOSE_SIGNATURE,
                      "auth/sig-length: %s with %zu bytes",
                      n & 1 ? "RS256" : "HS256", sizes[i]);
            memset(bytes, n & 2 ? 0 : 0xff, 21000);
        }
    }

    token = mint_input(MINT_HS256, MINT_CLAIMS, strlen(MINT_CLAIMS));
    strcat(token, ".");
    mint_append(token, bytes, 21000);
    is_number(mint_verify(secret, token), SANDBOX_JOSE_MALFORMED,
              "auth/sig-length: 21,000 bytes");
    free(bytes);

    /* each bit of a signature matters */

    good = 0;

    for (i = 0; i < 256; i++) {
        input = mint_input(MINT_HS256, MINT_CLAIMS, strlen(MINT_CLAIMS));
        {
            uint8_t   mac[EVP_MAX_MD_SIZE];
            unsigned  size;

            HMAC(EVP_sha256(), MINT_SECRET, (int) strlen(MINT_SECRET),
                 (uint8_t *) input, strlen(input), mac, &size);
            mac[i / 8] ^= (uint8_t) (1u << i % 8);
            strcat(input, ".");
            mint_append(input, mac, size);
        }

        good += mint_verify(secret, input) != SANDBOX_JOSE_SIGNATURE;
    }

    is_number(good, 0, "jwt-fault-5: no bit of an HMAC may be wrong");

    /* and of a token signed with RSA: header, payload, signature */

    token = mint_pkey(MINT_RS256, MINT_CLAIMS, rsa);
    dot = strrchr(token, '.');
    dot[7] = dot[7] == 'A' ? 'B' : 'A';
    is_number(mint_verify(public, token), SANDBOX_JOSE_SIGNATURE,
              "RS256 with another signature");

    token = mint_pkey(MINT_RS256, MINT_CLAIMS, rsa);
    input = mint_input(MINT_RS256, forged, sizeof(forged) - 1);
    strcat(input, strrchr(token, '.'));
    free(token);
    is_number(mint_verify(public, input), SANDBOX_JOSE_SIGNATURE,
              "RS256 with other claims");

    is_number(mint_verify(public,
                          mint_pkey("{\"alg\":\"RS256\",\"typ\":\"at+jwt\"}",
                                    MINT_CLAIMS, rsa)),
              SANDBOX_JOSE_OK, "RS256 of an access token");

    token = mint_pkey("{\"alg\":\"RS256\",\"typ\":\"at+jwt\"}", MINT_CLAIMS,
                      rsa);
    dot = strrchr(token, '.');
    dot[7] = dot[7] == 'A' ? 'B' : 'A';
    is_number(mint_verify(public, token), SANDBOX_JOSE_SIGNATURE,
              "RS256 of an access token with another signature");

    token = mint_hmac("{\"alg\":\"HS256\",\"typ\":\"at+jwt\"}", MINT_CLAIMS,
                      "0123456789abcdef0123456789abcdeg", 32);
    is_number(mint_verify(secret, token), SANDBOX_JOSE_SIGNATURE,
              "HS256 of an access token with another secret");

    token = mint_hmac(MINT_HS256, MINT_CLAIMS, MINT_SECRET "\n",
                      strlen(MINT_SECRET) + 1);
    is_number(mint_verify(secret, token), SANDBOX_JOSE_SIGNATURE,
              "a secret with a newline more");
}


#define bytes(literal)  { literal, sizeof(literal) - 1 }


static void
test_payload(void)
{
    char    *token, *deep;
    size_t   i;

    static const struct {
        const char  *payload;
        size_t       size;
    } bad[] = {
        bytes(""), bytes("[]"), bytes("null"), bytes("\"x\""), bytes("1"),
        bytes("{"), bytes("{}{}"), bytes("{}\0"),
        bytes("{\"exp\":1700000100\0}"),
        bytes("{\"exp\":1700000100,\"x\":[1\0]}"),
        bytes("{\"sub\":\"a\0b\",\"exp\":1700000100}"),
        bytes("{\"sub\":\"a\\u0000b\",\"exp\":1700000100}"),
        bytes("{\"sub\":\"\\ud800\",\"exp\":1700000100}"),
        bytes("{\"sub\":\"\xff\",\"exp\":1700000100}"),
        bytes("{\"exp\":1700000100,\"exp\":1700000100}"),
        bytes("{\"exp\":1,\"e\\u0078p\":1700000100}"),
        bytes("{\"exp\":1700000100,\"x\":{\"y\":[{\"z\":1,\"z\":1}]}}")
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        token = mint_hmac_bytes(MINT_HS256, bad[i].payload, bad[i].size,
                                MINT_SECRET, strlen(MINT_SECRET));
        is_number(mint_verify(secret, token),
                  bad[i].size == 0 ? SANDBOX_JOSE_MALFORMED
                                   : SANDBOX_JOSE_CLAIMS,
                  "claims that are no object, or twice: %zu", i);

        token = mint_hmac_bytes("{\"alg\":\"HS256\",\"typ\":\"at+jwt\"}",
                                bad[i].payload, bad[i].size, MINT_SECRET,
                                strlen(MINT_SECRET));
        ok(mint_verify(secret, token) != SANDBOX_JOSE_OK,
           "nor in an access token");
    }

    deep = calloc(1, 12001);
    strcpy(deep, "{\"exp\":1700000100,\"x\":");
    memset(deep + strlen(deep), '[', 6000);
    is_number(mint_verify(secret, mint(deep)), SANDBOX_JOSE_CLAIMS,
              "6,000 open brackets");
    free(deep);
}


static void
test_keys(void)
{
    char                      *token;
    size_t                     i;
    sandbox_jose_key_t        *a, *b, *other;
    sandbox_jose_policy_t      policy;
    const sandbox_jose_key_t  *keys[12];

    memset(&policy, 0, sizeof(policy));

    a = mint_secret_key("a");
    b = sandbox_jose_key_secret((const uint8_t *) "another secret, another "
                                "secret of bytes", 39, SANDBOX_JOSE_RAW,
                                "b", mint_error);
    other = sandbox_jose_key_secret((const uint8_t *) "another secret, another "
                                    "secret of bytes", 39, SANDBOX_JOSE_RAW,
                                    NULL, mint_error);

#define header(kid)  "{\"alg\":\"HS256\",\"kid\":\"" kid "\"}"
#define try(n, header, secret, size)                                         \
    (token = mint_hmac(header, MINT_CLAIMS, secret, size),                   \
     mint_verify_with(keys, n, token, strlen(token), &policy))

    is_number(try(0, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_NO_KEY,
              "no keys");

    keys[0] = a;
    keys[1] = b;

    is_number(try(2, header("a"), MINT_SECRET, 32), SANDBOX_JOSE_OK,
              "the key of that kid");
    is_number(try(2, header("b"), MINT_SECRET, 32), SANDBOX_JOSE_SIGNATURE,
              "jwt-fault-23: a kid pins its key, no other is tried");
    is_number(try(2, header("c"), MINT_SECRET, 32), SANDBOX_JOSE_UNKNOWN_KID,
              "jwt-fault-33: an unknown kid");
    is_number(try(2, header(""), MINT_SECRET, 32), SANDBOX_JOSE_UNKNOWN_KID,
              "an empty kid");
    is_number(try(2, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_NO_KEY,
              "jwt-fault-34: no kid where all keys have one");

    keys[0] = other;
    keys[1] = secret;

    is_number(try(2, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_OK,
              "the second key");
    is_number(try(2, header("x"), MINT_SECRET, 32), SANDBOX_JOSE_OK,
              "a kid where keys have none");

    keys[0] = public;
    is_number(try(2, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_OK,
              "a key of another type before it");
    is_number(try(1, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_ALGORITHM,
              "only a key of another type");

    for (i = 0; i < 12; i++) {
        keys[i] = other;
    }

    keys[11] = secret;
    is_number(try(12, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_SIGNATURE,
              "a token does not make us try without end");

    is_number(sandbox_jose_crowded(keys, 8), 0, "eight keys are all tried");
    is_number(sandbox_jose_crowded(keys, 9), SANDBOX_JOSE_HS256,
              "of nine one is not");

    for (i = 0; i < 12; i++) {
        keys[i] = i < 8 ? other : b;
    }

    is_number(sandbox_jose_crowded(keys, 12), 0, "a kid is not counted in");

    for (i = 0; i < 12; i++) {
        keys[i] = b;
    }

    is_number(sandbox_jose_crowded(keys, 12), SANDBOX_JOSE_HS256,
              "nine of one kid");

    /* while a set of public keys is on its way */

    keys[0] = other;
    keys[1] = a;
    policy.awaited = SANDBOX_JOSE_RS256 | SANDBOX_JOSE_ES256;

    is_number(try(2, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_SIGNATURE,
              "no key of that kind is awaited");
    is_number(try(2, header("x"), MINT_SECRET, 32), SANDBOX_JOSE_UNKNOWN_KID,
              "nor one of that kid");

    policy.awaited = SANDBOX_JOSE_HS256;

    is_number(try(2, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_AWAITED,
              "a key that is awaited might be the one");
    is_number(try(2, header("x"), MINT_SECRET, 32), SANDBOX_JOSE_AWAITED,
              "so might one of an unknown kid");
    is_number(try(2, header("a"), MINT_SECRET, 32), SANDBOX_JOSE_OK,
              "what is here is enough");

    keys[0] = public;
    is_number(try(1, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_AWAITED,
              "here are only keys of another type");

    policy.algorithms = SANDBOX_JOSE_RS256;
    is_number(try(1, MINT_HS256, MINT_SECRET, 32), SANDBOX_JOSE_ALGORITHM,
              "what is not accepted is not waited for");

    sandbox_jose_key_free(a);
    sandbox_jose_key_free(b);
    sandbox_jose_key_free(other);
}


/* auth/bad-then-good: what came before makes no difference */

static void
test_sequence(void)
{
    int    i, good;
    char  *none;

    good = 0;

    for (i = 0; i < 100; i++) {
        none = mint_input("{\"alg\":\"none\"}", MINT_CLAIMS,
                          strlen(MINT_CLAIMS));
        strcat(none, ".AAAA");

        good += mint_verify(secret, none) == SANDBOX_JOSE_ALGORITHM
                && mint_verify(secret, mint_hmac(MINT_HS256, MINT_CLAIMS,
                                                 "wrong", 5))
                   == SANDBOX_JOSE_SIGNATURE
                && mint_verify(secret, mint(MINT_CLAIMS)) == SANDBOX_JOSE_OK;
    }

    is_number(good, 100, "auth/bad-then-good, jwt-fault-19: 100 times round");
}


static void
test_names(void)
{
    int  i;

    is_number(sandbox_jose_algorithm("HS256", 5), SANDBOX_JOSE_HS256, "HS256");
    is_number(sandbox_jose_algorithm("RS256", 5), SANDBOX_JOSE_RS256, "RS256");
    is_number(sandbox_jose_algorithm("none", 4), 0, "none");
    is_number(sandbox_jose_algorithm("HS256", 4), 0, "HS25");
    is_number(sandbox_jose_algorithm("", 0), 0, "no name");

    is_number(sandbox_jose_key_algorithms(secret), SANDBOX_JOSE_HS256,
              "what a secret is for");
    is_number(sandbox_jose_key_algorithms(public),
              (SANDBOX_JOSE_RS | SANDBOX_JOSE_PS) & sandbox_jose_supported(),
              "what a public key is for");

    for (i = SANDBOX_JOSE_OK; i <= SANDBOX_JOSE_FAILED; i++) {
        ok(strpbrk(sandbox_jose_reason(i), "\"\\\r\n") == NULL
           && strlen(sandbox_jose_reason(i)) > 10, "reason %d fits a header",
           i);
    }
}


int
main(void)
{
    rsa = EVP_RSA_gen(2048);
    secret = mint_secret_key(NULL);
    public = mint_public_key(rsa, NULL);

    test_good();
    test_forms();
    test_canonical();
    test_size();
    test_lengths();
    test_header();
    test_none();
    test_confusion();
    test_signature();
    test_payload();
    test_keys();
    test_sequence();
    test_names();

    sandbox_jose_key_free(secret);
    sandbox_jose_key_free(public);
    EVP_PKEY_free(rsa);

    return test_done();
}
