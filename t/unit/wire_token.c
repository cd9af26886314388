/*
 * Tokens of the egress proxy: HMAC by the examples of RFC 4231, what is
 * written is read back, one text for one token, and whose are good.
 */

/* link: src/wire/sandbox_token.c src/wire/sandbox_sha256.c */
/* link: src/wire/sandbox_wire.c */

#include <stdlib.h>
#include <string.h>

#include "sandbox_sha256.h"
#include "sandbox_token.h"
#include "test.h"


static void hmac(void);
static void round_trip(void);
static void malformed(void);
static void good(void);
static int take(sandbox_token_t *token, const char *value);
static char *value(const char *text);


int
main(void)
{
    hmac();
    round_trip();
    malformed();
    good();

    return test_done();
}


static void
hmac(void)
{
    size_t    i, n;
    char      text[65];
    uint8_t   key[32], mac[32], data[SANDBOX_HMAC_MAX];

    static const struct {
        const char  *key;                /* zeros behind it change nothing */
        const char  *data;
        const char  *mac;
    } list[] = {
        { "\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b"
          "\x0b\x0b\x0b\x0b", "Hi There",
          "b0344c61d8db38535ca8afceaf0bf12b"
          "881dc200c9833da726e9376c2e32cff7" },
        { "Jefe", "what do ya want for nothing?",
          "5bdcc146bf60754e6a042426089575c7"
          "5a003f089d2739839dec58b964ec3843" },
        { "\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa"
          "\xaa\xaa\xaa\xaa",
          "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd"
          "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd"
          "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd"
          "\xdd\xdd",
          "773ea91e36800e46854db8ebd09181a7"
          "2959098b3ef8c122d9635514ced565fe" }
    };

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        memset(key, 0, sizeof(key));
        memcpy(key, list[i].key, strlen(list[i].key));
        sandbox_hmac(key, list[i].data, strlen(list[i].data), mac);

        for (n = 0; n < 32; n++) {
            sprintf(text + 2 * n, "%02x", mac[n]);
        }

        is_string(text, list[i].mac, "example %zu", i);
    }

    memset(data, 'x', sizeof(data));
    sandbox_hmac(key, data, sizeof(data), mac);
    ok(mac[0] | mac[1] | mac[2], "as much as there may be");
}


static void
round_trip(void)
{
    char             text[SANDBOX_TOKEN_LENGTH + 1], *v, other[400];
    size_t           i;
    uint8_t          key[32], runner[32];
    sandbox_token_t  a, b;

    memset(&a, 0, sizeof(a));
    memset(&b, 0xff, sizeof(b));
    memset(runner, 7, sizeof(runner));

    for (i = 0; i < sizeof(a.session); i++) {
        a.session[i] = (uint8_t) (i * 37 + 1);
    }

    a.policy = 0xfedcba98;
    a.expires = 0x0123456789abcdef;
    sandbox_token_key(runner, key);
    ok(memcmp(runner, key, sizeof(key)) != 0, "a key of its own");
    sandbox_token_sign(&a, key);
    sandbox_token_write(&a, text);
    is_number(strlen(text), SANDBOX_TOKEN_LENGTH, "its length");
    ok(strncmp(text + 64, "fedcba980123456789abcdef:", 25) == 0,
       "its numbers");

    v = value(text);
    is_number(take(&b, v), SANDBOX_OK, "is read");
    ok(memcmp(a.session, b.session, 32) == 0 && a.policy == b.policy
       && a.expires == b.expires && memcmp(a.mac, b.mac, 32) == 0,
       "as it was written");
    is_number(sandbox_token_good(&b, key, 1), 1, "and good");

    /* schemes are in any case, blanks stand around */

    snprintf(other, sizeof(other), " \tbASIC   %s \t", v + 6);
    is_number(take(&b, other), SANDBOX_OK, "with blanks");

    free(v);
}


static void
malformed(void)
{
    char             text[SANDBOX_TOKEN_LENGTH + 1], *v, c;
    size_t           i, n, bad;
    uint8_t          key[32];
    sandbox_token_t  a, b;

    memset(&a, 0, sizeof(a));
    memset(key, 1, sizeof(key));
    a.policy = 5;
    a.expires = 1000;
    sandbox_token_sign(&a, key);
    sandbox_token_write(&a, text);
    v = value(text);
    n = strlen(v);
    is_number(take(&b, v), SANDBOX_OK, "as it is");

    /* each byte after the scheme counts: none can be another one */

    for (i = 6, bad = 0; i < n; i++) {
        c = v[i];
        v[i] = c == 'A' ? 'B' : 'A';

        if (take(&b, v) == SANDBOX_OK && sandbox_token_good(&b, key, 1)) {
            bad++;
        }

        v[i] = c;
    }

    is_number(bad, 0, "bytes that could be others");

    for (i = 0, bad = 0; i < n; i++) {
        c = v[i];
        v[i] = '\0';
        bad += take(&b, v) == SANDBOX_OK;
        v[i] = c;
    }

    is_number(bad, 0, "beginnings of it");
    free(v);

    /* upper case would be a second text for the same bytes */

    for (i = 0; text[i] < 'a' || text[i] > 'f'; i++) {
        /* void */
    }

    text[i] -= 'a' - 'A';
    v = value(text);
    is_number(take(&b, v), SANDBOX_BAD, "upper case");
    free(v);

    is_number(take(&b, ""), SANDBOX_BAD, "nothing");
    is_number(take(&b, "Basic"), SANDBOX_BAD, "only the scheme");
    is_number(take(&b, "Basic "), SANDBOX_BAD, "and a blank");
    is_number(take(&b, "Basic dXNlcjpwYXNz"), SANDBOX_BAD, "another user");
    is_number(take(&b, "Bearer abc"), SANDBOX_BAD, "another scheme");
    is_number(take(&b, "   \t "), SANDBOX_BAD, "blanks");
}


static void
good(void)
{
    uint8_t          key[32], other[32];
    sandbox_token_t  a;

    memset(key, 1, sizeof(key));
    memset(other, 2, sizeof(other));
    memset(&a, 0, sizeof(a));
    a.policy = 5;
    a.expires = 1000;
    sandbox_token_sign(&a, key);

    is_number(sandbox_token_good(&a, key, 999), 1, "before its end");
    is_number(sandbox_token_good(&a, key, 1000), 0, "at its end");
    is_number(sandbox_token_good(&a, other, 1), 0, "another key");

    a.policy++;
    is_number(sandbox_token_good(&a, key, 1), 0, "another policy");
    a.policy--;
    a.expires++;
    is_number(sandbox_token_good(&a, key, 1), 0, "a longer life");
    a.expires--;
    a.session[31] ^= 1;
    is_number(sandbox_token_good(&a, key, 1), 0, "another session");
    a.session[31] ^= 1;
    is_number(sandbox_token_good(&a, key, 1), 1, "as it was");

    a.policy = 0;
    sandbox_token_sign(&a, key);
    is_number(sandbox_token_good(&a, key, 1), 0, "no policy");
}


/* of its own length, so that a byte beyond it is noticed */

static int
take(sandbox_token_t *token, const char *text)
{
    int       rc;
    size_t    n;
    uint8_t  *copy;

    n = strlen(text);
    copy = malloc(n + (n == 0));
    memcpy(copy, text, n);
    rc = sandbox_token_read(token, copy, n);
    free(copy);

    return rc;
}


/* "Basic" and base64 of it; to be freed */

static char *
value(const char *text)
{
    char      *p, *v;
    size_t     i, n;
    uint32_t   bits;

    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789+/";

    n = strlen(text);
    v = malloc(n * 2 + 10);
    p = v + sprintf(v, "Basic ");

    for (i = 0; i + 2 < n; i += 3) {
        bits = (uint32_t) (uint8_t) text[i] << 16
               | (uint32_t) (uint8_t) text[i + 1] << 8
               | (uint8_t) text[i + 2];
        *p++ = digits[bits >> 18 & 63];
        *p++ = digits[bits >> 12 & 63];
        *p++ = digits[bits >> 6 & 63];
        *p++ = digits[bits & 63];
    }

    *p = '\0';

    return v;
}
