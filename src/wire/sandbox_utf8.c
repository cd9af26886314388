/*
 * UTF-8: where a text may be cut, and what in it is not text.
 * Knows nothing but bytes.
 */

#include "sandbox_utf8.h"

#include <string.h>


size_t
sandbox_utf8_sequence(const uint8_t *p, size_t size)
{
    size_t    i, n;
    uint32_t  c, min;

    if (size == 0) {
        return 0;
    }

    c = p[0];

    if (c < 0x80) {
        return 1;
    }

    if (c >= 0xc2 && c <= 0xdf) {
        n = 2;
        min = 0x80;
        c &= 0x1f;

    } else if ((c & 0xf0) == 0xe0) {
        n = 3;
        min = 0x800;
        c &= 0x0f;

    } else if (c >= 0xf0 && c <= 0xf4) {
        n = 4;
        min = 0x10000;
        c &= 0x07;

    } else {
        return 0;
    }

    if (n > size) {
        return 0;
    }

    for (i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }

        c = c << 6 | (p[i] & 0x3f);
    }

    if (c < min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
        return 0;
    }

    return n;
}


size_t
sandbox_utf8_head(const uint8_t *p, size_t size)
{
    size_t   back, need;
    uint8_t  c;

    /* look for a lead byte that wants more than there is after it */

    for (back = 1; back <= 3 && back <= size; back++) {
        c = p[size - back];

        if ((c & 0xc0) == 0x80) {
            continue;
        }

        need = (c >= 0xf0 && c <= 0xf4) ? 4
               : (c & 0xf0) == 0xe0 ? 3
               : (c >= 0xc2 && c <= 0xdf) ? 2 : 1;

        return need > back ? size - back : size;
    }

    return size;
}


size_t
sandbox_utf8_tail(const uint8_t *p, size_t size)
{
    size_t  n;

    for (n = 0; n < 3 && n < size; n++) {
        if ((p[n] & 0xc0) != 0x80) {
            return n;
        }
    }

    /* more continuation bytes than any sequence has: it is not UTF-8 */

    return n == 3 && n < size && (p[n] & 0xc0) == 0x80 ? 0 : n;
}


int
sandbox_utf8_text(const uint8_t *p, size_t size)
{
    size_t  n;

    while (size) {
        n = sandbox_utf8_sequence(p, size);

        if (n == 0 || *p == '\0') {
            return 0;
        }

        p += n;
        size -= n;
    }

    return 1;
}


uint32_t
sandbox_utf8_next(const uint8_t *p, size_t size, size_t *n)
{
    size_t    i;
    uint32_t  c;

    *n = sandbox_utf8_sequence(p, size);

    if (*n == 0) {
        *n = 1;
        return UINT32_MAX;
    }

    c = *n == 1 ? p[0] : p[0] & (0x7f >> *n);

    for (i = 1; i < *n; i++) {
        c = c << 6 | (p[i] & 0x3f);
    }

    return c;
}


/*
 * Control characters of both kinds, what turns the direction round, what has
 * no width and no place in a name, other ends of lines.
 */

int
sandbox_utf8_hidden(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c
           || c == 0x180e || (c >= 0x200b && c <= 0x200f && c != 0x200d)
           || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f)
           || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb)
           || (c >= 0xe0000 && c <= 0xe007f) || c == UINT32_MAX;
}


void
sandbox_utf8_blank(uint8_t *p, size_t size)
{
    size_t  n;

    while (size) {
        if (sandbox_utf8_hidden(sandbox_utf8_next(p, size, &n))) {
            memset(p, ' ', n);
        }

        p += n;
        size -= n;
    }
}
