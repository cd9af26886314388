/*
 * Tokens for the egress proxy as bytes and as text.  One text for one token:
 * what is not exactly as it is written here is none.
 */

#include <string.h>

#include "sandbox_sha256.h"
#include "sandbox_token.h"


static void sandbox_token_mac(const sandbox_token_t *token,
    const uint8_t *key, uint8_t *mac);
static char *sandbox_token_hex(char *p, const uint8_t *bytes, size_t n);
static int sandbox_token_bytes(uint8_t *bytes, const uint8_t *p, size_t n);
static int sandbox_token_base64(uint8_t *text, const uint8_t *p,
    size_t length);
static int sandbox_token_digit(uint8_t c);


static const char  sandbox_token_for[] = "sandbox-egress";


void
sandbox_token_key(const uint8_t runner[SANDBOX_WIRE_KEY_SIZE],
    uint8_t key[SANDBOX_WIRE_KEY_SIZE])
{
    sandbox_hmac(runner, "egress", sizeof("egress") - 1, key);
}


void
sandbox_token_sign(sandbox_token_t *token,
    const uint8_t key[SANDBOX_WIRE_KEY_SIZE])
{
    sandbox_token_mac(token, key, token->mac);
}


int
sandbox_token_signed(const sandbox_token_t *token,
    const uint8_t key[SANDBOX_WIRE_KEY_SIZE])
{
    int      same;
    uint8_t  mac[SANDBOX_TOKEN_MAC];

    sandbox_token_mac(token, key, mac);
    same = sandbox_equal(mac, token->mac, sizeof(mac));
    explicit_bzero(mac, sizeof(mac));

    return same;
}


int
sandbox_token_good(const sandbox_token_t *token,
    const uint8_t key[SANDBOX_WIRE_KEY_SIZE], uint64_t now)
{
    return sandbox_token_signed(token, key) && token->policy != 0
           && now < token->expires;
}


static void
sandbox_token_mac(const sandbox_token_t *token, const uint8_t *key,
    uint8_t *mac)
{
    uint8_t  *p, b[sizeof(sandbox_token_for) - 1 + SANDBOX_TOKEN_SIGNED];

    memcpy(b, sandbox_token_for, sizeof(sandbox_token_for) - 1);
    p = b + sizeof(sandbox_token_for) - 1;

    memcpy(p, token->session, SANDBOX_WIRE_SESSION_SIZE);
    sandbox_put32(p + SANDBOX_WIRE_SESSION_SIZE, token->policy);
    sandbox_put64(p + SANDBOX_WIRE_SESSION_SIZE + 4, token->expires);

    sandbox_hmac(key, b, sizeof(b), mac);
}


void
sandbox_token_write(const sandbox_token_t *token,
    char text[SANDBOX_TOKEN_LENGTH + 1])
{
    char     *p;
    uint8_t   number[12];

    sandbox_put32(number, token->policy);
    sandbox_put64(number + 4, token->expires);

    p = sandbox_token_hex(text, token->session, SANDBOX_WIRE_SESSION_SIZE);
    p = sandbox_token_hex(p, number, sizeof(number));
    *p++ = ':';
    p = sandbox_token_hex(p, token->mac, SANDBOX_TOKEN_MAC);
    *p = '\0';
}


static char *
sandbox_token_hex(char *p, const uint8_t *bytes, size_t n)
{
    size_t  i;

    static const char  digits[] = "0123456789abcdef";

    for (i = 0; i < n; i++) {
        *p++ = digits[bytes[i] >> 4];
        *p++ = digits[bytes[i] & 15];
    }

    return p;
}


int
sandbox_token_read(sandbox_token_t *token, const uint8_t *value,
    size_t length)
{
    size_t   i;
    uint8_t  text[SANDBOX_TOKEN_LENGTH], number[12];

    static const char  scheme[] = "basic";

    /* blanks may stand around a value, and after the scheme */

    while (length && (value[0] == ' ' || value[0] == '\t')) {
        value++;
        length--;
    }

    while (length && (value[length - 1] == ' ' || value[length - 1] == '\t')) {
        length--;
    }

    if (length < sizeof(scheme) || value[sizeof(scheme) - 1] != ' ') {
        return SANDBOX_BAD;
    }

    for (i = 0; i < sizeof(scheme) - 1; i++) {
        if ((value[i] | 0x20) != (uint8_t) scheme[i]) {
            return SANDBOX_BAD;
        }
    }

    value += sizeof(scheme);
    length -= sizeof(scheme);

    while (length && value[0] == ' ') {
        value++;
        length--;
    }

    if (sandbox_token_base64(text, value, length) != SANDBOX_OK
        || text[SANDBOX_TOKEN_USER] != ':'
        || sandbox_token_bytes(token->session, text,
                               SANDBOX_WIRE_SESSION_SIZE) != SANDBOX_OK
        || sandbox_token_bytes(number, text + 2 * SANDBOX_WIRE_SESSION_SIZE,
                               sizeof(number)) != SANDBOX_OK
        || sandbox_token_bytes(token->mac, text + SANDBOX_TOKEN_USER + 1,
                               SANDBOX_TOKEN_MAC) != SANDBOX_OK)
    {
        return SANDBOX_BAD;
    }

    token->policy = sandbox_get32(number);
    token->expires = sandbox_get64(number + 4);

    return SANDBOX_OK;
}


/* a length that is a multiple of three has no padding, and no stray bits */

#if SANDBOX_TOKEN_LENGTH % 3
#error "the text of a token needs padding in base64"
#endif

static int
sandbox_token_base64(uint8_t *text, const uint8_t *p, size_t length)
{
    int       digit;
    size_t    i;
    uint32_t  bits;

    if (length != SANDBOX_TOKEN_LENGTH / 3 * 4) {
        return SANDBOX_BAD;
    }

    bits = 0;

    for (i = 0; i < length; i++) {
        digit = sandbox_token_digit(p[i]);

        if (digit == -1) {
            return SANDBOX_BAD;
        }

        bits = bits << 6 | (uint32_t) digit;

        if (i % 4 == 3) {
            *text++ = (uint8_t) (bits >> 16);
            *text++ = (uint8_t) (bits >> 8);
            *text++ = (uint8_t) bits;
        }
    }

    return SANDBOX_OK;
}


static int
sandbox_token_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }

    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }

    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }

    return c == '+' ? 62 : c == '/' ? 63 : -1;
}


static int
sandbox_token_bytes(uint8_t *bytes, const uint8_t *p, size_t n)
{
    size_t   i;
    uint8_t  c, digit;

    for (i = 0; i < 2 * n; i++) {
        c = p[i];

        if (c >= '0' && c <= '9') {
            digit = c - '0';

        } else if (c >= 'a' && c <= 'f') {
            digit = c - 'a' + 10;

        } else {
            return SANDBOX_BAD;
        }

        bytes[i / 2] = (uint8_t) (i % 2 ? bytes[i / 2] | digit : digit << 4);
    }

    return SANDBOX_OK;
}
