/*
 * Base64 (RFC 4648, section 4), piece by piece.  Knows nothing of what it is
 * for.
 */

#include "agent_base64.h"


ssize_t
agent_base64_decode(agent_base64_t *b, const uint8_t *p, size_t size,
    uint8_t *out)
{
    size_t   i;
    ssize_t  n;
    uint8_t  c;

    n = 0;

    for (i = 0; i < size; i++) {
        c = p[i];

        if (c == '\n' || c == '\r' || c == ' ' || c == '\t') {
            continue;
        }

        if (c == '=') {
            b->padded = 1;
            continue;
        }

        c = c >= 'A' && c <= 'Z' ? c - 'A'
            : c >= 'a' && c <= 'z' ? c - 'a' + 26
            : c >= '0' && c <= '9' ? c - '0' + 52
            : c == '+' ? 62 : c == '/' ? 63 : 64;

        if (c == 64 || b->padded) {
            return -1;
        }

        b->bits = b->bits << 6 | c;
        b->count += 6;

        if (b->count >= 8) {
            b->count -= 8;
            out[n++] = (uint8_t) (b->bits >> b->count);
        }
    }

    return n;
}


void
agent_base64_encode(char *text, const uint8_t *p, unsigned n)
{
    uint32_t            bits;
    static const char   digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "abcdefghijklmnopqrstuvwxyz0123456789+/";

    bits = (uint32_t) p[0] << 16
           | (n > 1 ? (uint32_t) p[1] << 8 : 0)
           | (n > 2 ? p[2] : 0);

    text[0] = digits[bits >> 18];
    text[1] = digits[bits >> 12 & 63];
    text[2] = n > 1 ? digits[bits >> 6 & 63] : '=';
    text[3] = n > 2 ? digits[bits & 63] : '=';
}
