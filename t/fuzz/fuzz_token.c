/*
 * Foreign bytes as the value of Proxy-Authorization: what is taken for a token
 * has exactly one text, and is never good by a key that did not sign it.
 */

/* link: src/wire/sandbox_token.c src/wire/sandbox_sha256.c */
/* link: src/wire/sandbox_wire.c */
/* covers: src/wire/sandbox_token.c */

#include <stdlib.h>
#include <string.h>

#include "sandbox_token.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);
static size_t encode(char *value, const char *text);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    int              rc;
    char             text[SANDBOX_TOKEN_LENGTH + 1], value[512];
    char             written[SANDBOX_TOKEN_LENGTH + 1];
    size_t           n;
    uint8_t          key[32];
    sandbox_token_t  token, again;

    memset(key, 5, sizeof(key));
    memset(&token, 0, sizeof(token));

    /* by mark: the bytes of the text, which base64 hides from the fuzzer */

    if (size > SANDBOX_TOKEN_LENGTH && p[0] == 0xff) {
        memcpy(text, p + 1, SANDBOX_TOKEN_LENGTH);
        text[SANDBOX_TOKEN_LENGTH] = '\0';
        n = encode(value, text);
        rc = sandbox_token_read(&token, (uint8_t *) value, n);

        if (rc == SANDBOX_OK) {
            sandbox_token_write(&token, written);
            check(memcmp(written, text, SANDBOX_TOKEN_LENGTH) == 0);
        }

    } else {
        rc = sandbox_token_read(&token, p, size);
    }

    if (rc != SANDBOX_OK) {
        check(rc == SANDBOX_BAD);
        return 0;
    }

    /* written and read again it is the same, and nobody signed it */

    check(!sandbox_token_good(&token, key, 1));

    sandbox_token_write(&token, text);
    n = encode(value, text);
    memset(&again, 0, sizeof(again));
    check(sandbox_token_read(&again, (uint8_t *) value, n) == SANDBOX_OK);
    check(memcmp(again.session, token.session, sizeof(token.session)) == 0);
    check(memcmp(again.mac, token.mac, sizeof(token.mac)) == 0);
    check(again.policy == token.policy && again.expires == token.expires);

    sandbox_token_sign(&token, key);
    check(sandbox_token_good(&token, key, 0)
          == (token.policy != 0 && token.expires != 0));

    return 0;
}


static size_t
encode(char *value, const char *text)
{
    char      *v;
    size_t     i;
    uint32_t   bits;

    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789+/";

    memcpy(value, "Basic ", 6);
    v = value + 6;

    for (i = 0; i < SANDBOX_TOKEN_LENGTH; i += 3) {
        bits = (uint32_t) (uint8_t) text[i] << 16
               | (uint32_t) (uint8_t) text[i + 1] << 8
               | (uint8_t) text[i + 2];
        *v++ = digits[bits >> 18 & 63];
        *v++ = digits[bits >> 12 & 63];
        *v++ = digits[bits >> 6 & 63];
        *v++ = digits[bits & 63];
    }

    return (size_t) (v - value);
}
