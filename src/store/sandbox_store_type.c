/*
 * What a content is, by its bytes alone: the name of a file says nothing of
 * what a browser would make of it.
 */

#include "sandbox_store.h"
#include "sandbox_utf8.h"

#include <string.h>


#define SANDBOX_STORE_HIGH   UINT64_C(0x8080808080808080)
#define SANDBOX_STORE_ONES   UINT64_C(0x0101010101010101)


static size_t sandbox_store_ascii(const uint8_t *p, size_t size);
static void sandbox_store_text(sandbox_store_sniff_t *sniff,
    const uint8_t *p, size_t size);
static unsigned sandbox_store_office(const sandbox_store_sniff_t *sniff);


static const struct {
    const char  *name;
    unsigned     inline_too;
} sandbox_store_types[SANDBOX_STORE_TYPE_LAST] = {
    { "application/octet-stream", 0 },
    { "application/x-empty", 0 },
    { "text/plain; charset=utf-8", 1 },
    { "image/png", 1 },
    { "image/jpeg", 1 },
    { "image/gif", 1 },
    { "image/webp", 1 },
    { "application/pdf", 0 },
    { "application/zip", 0 },
    { "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
      0 },
    { "application/vnd.openxmlformats-officedocument.wordprocessingml"
      ".document", 0 },
    { "application/vnd.openxmlformats-officedocument.presentationml"
      ".presentation", 0 },
    { "application/gzip", 0 },
    { "application/x-tar", 0 }
};


static const struct {
    unsigned     type;
    unsigned     len;
    const char  *bytes;
} sandbox_store_magic[] = {
    { SANDBOX_STORE_TYPE_PNG, 8, "\x89PNG\r\n\x1a\n" },
    { SANDBOX_STORE_TYPE_JPEG, 3, "\xff\xd8\xff" },
    { SANDBOX_STORE_TYPE_GIF, 6, "GIF87a" },
    { SANDBOX_STORE_TYPE_GIF, 6, "GIF89a" },
    { SANDBOX_STORE_TYPE_PDF, 5, "%PDF-" },
    { SANDBOX_STORE_TYPE_GZIP, 3, "\x1f\x8b\x08" },
    { 0, 0, NULL }
};


const char *
sandbox_store_type(unsigned type, unsigned *inline_too)
{
    if (type >= SANDBOX_STORE_TYPE_LAST) {
        type = SANDBOX_STORE_TYPE_BINARY;
    }

    *inline_too = sandbox_store_types[type].inline_too;

    return sandbox_store_types[type].name;
}


void
sandbox_store_sniff_init(sandbox_store_sniff_t *sniff)
{
    sniff->seen = 0;
    sniff->have = 0;
    sniff->part_len = 0;
    sniff->text = 1;
}


void
sandbox_store_sniff(sandbox_store_sniff_t *sniff, const uint8_t *p,
    size_t size)
{
    size_t  n;

    n = sizeof(sniff->head) - sniff->have;

    if (n > size) {
        n = size;
    }

    memcpy(sniff->head + sniff->have, p, n);
    sniff->have += (unsigned) n;
    sniff->seen += size;

    if (sniff->text) {
        sandbox_store_text(sniff, p, size);
    }
}


static void
sandbox_store_text(sandbox_store_sniff_t *sniff, const uint8_t *p,
    size_t size)
{
    size_t  n, whole;

    /* a sequence that began in what came before */

    while (sniff->part_len && size) {
        sniff->part[sniff->part_len++] = *p++;
        size--;

        if (sandbox_utf8_sequence(sniff->part, sniff->part_len)
            == sniff->part_len)
        {
            sniff->part_len = 0;

        } else if (sniff->part_len == sizeof(sniff->part)) {
            sniff->text = 0;
            return;
        }
    }

    if (sniff->part_len) {
        return;
    }

    whole = sandbox_utf8_head(p, size);

    while (whole) {

        n = sandbox_store_ascii(p, whole);

        if (n == 0 && p[0] != '\0') {
            n = sandbox_utf8_sequence(p, whole);
        }

        if (n == 0) {
            sniff->text = 0;
            return;
        }

        p += n;
        whole -= n;
        size -= n;
    }

    memcpy(sniff->part, p, size);
    sniff->part_len = (unsigned) size;
}


/* how many bytes are ASCII and no NUL; eight at a time, for large files */

static size_t
sandbox_store_ascii(const uint8_t *p, size_t size)
{
    size_t    n;
    uint64_t  word;

    for (n = 0; size - n >= sizeof(word); n += sizeof(word)) {
        memcpy(&word, p + n, sizeof(word));

        if (word & SANDBOX_STORE_HIGH
            || (word - SANDBOX_STORE_ONES) & ~word & SANDBOX_STORE_HIGH)
        {
            break;
        }
    }

    while (n < size && p[n] != '\0' && p[n] < 0x80) {
        n++;
    }

    return n;
}


unsigned
sandbox_store_sniff_end(sandbox_store_sniff_t *sniff)
{
    unsigned  i, have;

    have = sniff->have;

    if (have == 0) {
        return SANDBOX_STORE_TYPE_EMPTY;
    }

    for (i = 0; sandbox_store_magic[i].len; i++) {
        if (have >= sandbox_store_magic[i].len
            && memcmp(sniff->head, sandbox_store_magic[i].bytes,
                      sandbox_store_magic[i].len)
               == 0)
        {
            return sandbox_store_magic[i].type;
        }
    }

    if (have >= 12 && memcmp(sniff->head, "RIFF", 4) == 0
        && memcmp(sniff->head + 8, "WEBP", 4) == 0)
    {
        return SANDBOX_STORE_TYPE_WEBP;
    }

    if (have >= 4 && (memcmp(sniff->head, "PK\x03\x04", 4) == 0
                      || memcmp(sniff->head, "PK\x05\x06", 4) == 0))
    {
        return sandbox_store_office(sniff);
    }

    if (have >= 512 && memcmp(sniff->head + 257, "ustar", 5) == 0) {
        return SANDBOX_STORE_TYPE_TAR;
    }

    return (sniff->text && sniff->part_len == 0) ? SANDBOX_STORE_TYPE_TEXT
                                                 : SANDBOX_STORE_TYPE_BINARY;
}


/* an archive of an office: by the first of its entries */

static unsigned
sandbox_store_office(const sandbox_store_sniff_t *sniff)
{
    size_t          i, name;
    const uint8_t  *p;

    for (i = 0; i + 36 <= sniff->have; i++) {

        p = sniff->head + i;

        if (p[0] != 'P' || memcmp(p, "PK\x03\x04", 4) != 0) {
            continue;
        }

        name = (size_t) p[26] | (size_t) p[27] << 8;

        if (name < 5) {
            continue;
        }

        if (memcmp(p + 30, "xl/", 3) == 0) {
            return SANDBOX_STORE_TYPE_XLSX;
        }

        if (memcmp(p + 30, "word/", 5) == 0) {
            return SANDBOX_STORE_TYPE_DOCX;
        }

        if (memcmp(p + 30, "ppt/", 4) == 0) {
            return SANDBOX_STORE_TYPE_PPTX;
        }
    }

    return SANDBOX_STORE_TYPE_ZIP;
}
