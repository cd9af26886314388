/*
 * Names for a terminal.  Knows nothing but bytes and Unicode's numbers.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* wcwidth() */
#endif

#include "name.h"

#include "sandbox_utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>


/* "\U0010ffff" for what takes four bytes, "\xff" for one */

#define CTL_NAME_GROWS  4


static int ctl_name_special(const char *name, size_t size);
static unsigned ctl_name_width(uint32_t c);


char *
ctl_name_shell(const char *name, size_t size)
{
    int             special;
    char           *text, *t;
    size_t          i, n, room;
    uint32_t        c;
    const uint8_t  *p;

    p = (const uint8_t *) name;
    room = size * CTL_NAME_GROWS + sizeof("$''");
    text = malloc(room);

    if (text == NULL) {
        return NULL;
    }

    special = ctl_name_special(name, size);

    if (special == 0) {
        memcpy(text, name, size);
        text[size] = '\0';
        return text;
    }

    t = text;

    if (special == 2) {
        *t++ = '$';
    }

    *t++ = '\'';

    for (i = 0; i < size; i += n) {
        c = sandbox_utf8_next(p + i, size - i, &n);

        if (special == 1
            || (!sandbox_utf8_hidden(c) && c != '\'' && c != '\\'))
        {
            memcpy(t, p + i, n);
            t += n;

        } else if (c == '\'' || c == '\\') {
            *t++ = '\\';
            *t++ = (char) c;

        } else if (c == '\n') {
            *t++ = '\\';
            *t++ = 'n';

        } else if (n == 1) {
            t += sprintf(t, "\\x%02x", p[i]);

        } else if (c < 0x10000) {
            t += sprintf(t, "\\u%04x", (unsigned) c);

        } else {
            t += sprintf(t, "\\U%08x", (unsigned) c);
        }
    }

    *t++ = '\'';
    *t = '\0';

    return text;
}


/* 0: bare, 1: between quotes, 2: with escapes */

static int
ctl_name_special(const char *name, size_t size)
{
    int       special;
    size_t    i, n;
    uint32_t  c;

    special = size == 0;

    for (i = 0; i < size; i += n) {
        c = sandbox_utf8_next((const uint8_t *) name + i, size - i, &n);

        if (sandbox_utf8_hidden(c) || c == '\'' || c == '\\') {
            return 2;
        }

        if (c < 0x80 && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z')
            && !(c >= 'A' && c <= 'Z') && strchr("._-+,:/@%=", (int) c) == NULL)
        {
            special = 1;
        }
    }

    return special;
}


void
ctl_name_blank(char *text)
{
    sandbox_utf8_blank((uint8_t *) text, strlen(text));
}


unsigned
ctl_name_columns(const char *text)
{
    size_t    i, n, size;
    unsigned  columns;

    columns = 0;
    size = strlen(text);

    for (i = 0; i < size; i += n) {
        columns += ctl_name_width(
                          sandbox_utf8_next((const uint8_t *) text + i,
                                            size - i, &n));
    }

    return columns;
}


size_t
ctl_name_fit(const char *text, unsigned columns)
{
    size_t    i, n, size;
    unsigned  width;

    size = strlen(text);

    for (i = 0; i < size; i += n) {
        width = ctl_name_width(
                          sandbox_utf8_next((const uint8_t *) text + i,
                                            size - i, &n));

        if (width > columns) {
            break;
        }

        columns -= width;
    }

    return i;
}


/* What the C library says, in a locale of UTF-8; else one for each. */

static unsigned
ctl_name_width(uint32_t c)
{
    int  width;

    width = c < 0x80 ? 1 : wcwidth((wchar_t) c);

    return width < 0 ? 1 : (unsigned) width;
}
