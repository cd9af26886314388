/*
 * Base64 in pieces of any size, with what may be between them, and without
 * what may not.
 */

/* link: src/agent/agent_base64.c */

#include "agent_base64.h"
#include "test.h"


static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "abcdefghijklmnopqrstuvwxyz0123456789+/=";


/* In pieces of so many characters; the number of bytes, or -1. */

static ssize_t
decode(const char *text, size_t piece, uint8_t *out)
{
    size_t          at, size, n;
    ssize_t         rc, sum;
    agent_base64_t  b;

    memset(&b, 0, sizeof(b));
    size = strlen(text);
    sum = 0;

    for (at = 0; at < size; at += n) {
        n = size - at < piece ? size - at : piece;
        rc = agent_base64_decode(&b, (const uint8_t *) text + at, n,
                                 out + sum);
        if (rc == -1) {
            return -1;
        }

        sum += rc;
    }

    return sum;
}


static void
both_ways(void)
{
    char     text[400];
    size_t   size, at, n, piece;
    uint8_t  bytes[256], out[300];

    for (size = 0; size < sizeof(bytes); size++) {
        bytes[size] = (uint8_t) (size * 167 + 13);
    }

    for (size = 0; size <= sizeof(bytes); size++) {
        for (at = 0, n = 0; at < size; at += 3, n += 4) {
            agent_base64_encode(text + n, bytes + at,
                                size - at < 3 ? (unsigned) (size - at) : 3);
        }

        text[n] = '\0';

        for (piece = 1; piece < 9; piece++) {
            if (decode(text, piece, out) != (ssize_t) size
                || memcmp(out, bytes, size) != 0)
            {
                break;
            }
        }

        if (piece < 9) {
            break;
        }
    }

    is_number(size, sizeof(bytes) + 1, "all lengths, in all pieces");
}


static void
known(void)
{
    size_t   i;
    char     text[5];
    uint8_t  out[64];

    static const struct {
        const char  *plain;
        const char  *text;
    } list[] = {
        { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" },
        { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" }
    };

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        is_bytes(out, (size_t) decode(list[i].text, 3, out), list[i].plain,
                 strlen(list[i].plain), "RFC 4648: \"%s\"", list[i].plain);
    }

    text[4] = '\0';
    agent_base64_encode(text, (const uint8_t *) "\xfb\xff\xfe", 3);
    is_string(text, "+//+", "the last two digits");

    is_bytes(out, (size_t) decode("Zm\n9v\r\n Ym\tFy\n", 1, out), "foobar", 6,
             "blanks");
    is_number(decode("Zm9v====\n=", 2, out), 3, "padding of any length");
}


static void
bad(void)
{
    int      i;
    char     text[] = "Zm9?Ym";
    uint8_t  out[64];

    is_number(decode("Zg==Zg==", 8, out), -1, "bytes behind the end");
    is_number(decode("Zg=Z", 1, out), -1, "in another piece");

    for (i = 1; i < 256; i++) {
        text[3] = (char) i;

        if ((decode(text, 6, out) == -1)
            != (i == '=' || (strchr(digits, i) == NULL && i != ' '
                             && i != '\n' && i != '\r' && i != '\t')))
        {
            break;
        }
    }

    is_number(i, 256, "what is no digit");
}


int
main(void)
{
    both_ways();
    known();
    bad();

    return test_done();
}
