/*
 * Names of the store, the block at a file's start, conditions, links.  Pure:
 * nothing here touches a disk or a clock.
 */

#include "sandbox_store.h"
#include "sandbox_utf8.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>


#define SANDBOX_STORE_MAGIC     "SANDBOX1"
#define SANDBOX_STORE_START     16               /* magic, length, checksum */
#define SANDBOX_STORE_MAX_EXT   32

enum {
    SANDBOX_STORE_FIELD_NAME = 1,
    SANDBOX_STORE_FIELD_SIZE,
    SANDBOX_STORE_FIELD_CREATED,
    SANDBOX_STORE_FIELD_MODIFIED,
    SANDBOX_STORE_FIELD_SHA256,
    SANDBOX_STORE_FIELD_TYPE,
    SANDBOX_STORE_FIELD_COMMAND,
    SANDBOX_STORE_FIELD_RECORD,
    SANDBOX_STORE_FIELD_LAST
};

#define SANDBOX_STORE_REQUIRED                                               \
    (1u << SANDBOX_STORE_FIELD_NAME | 1u << SANDBOX_STORE_FIELD_SIZE         \
     | 1u << SANDBOX_STORE_FIELD_CREATED | 1u << SANDBOX_STORE_FIELD_MODIFIED \
     | 1u << SANDBOX_STORE_FIELD_SHA256 | 1u << SANDBOX_STORE_FIELD_TYPE)


static void sandbox_store_digest(const char *p, size_t len,
    uint8_t digest[SANDBOX_STORE_SHA256]);
static char *sandbox_store_hex(char *out, const uint8_t *p, size_t n);
static uint32_t sandbox_store_checksum(const uint8_t *p, size_t n);
static uint8_t *sandbox_store_field(uint8_t *p, unsigned tag,
    const void *value, size_t size);
static uint8_t *sandbox_store_field_number(uint8_t *p, unsigned tag,
    uint64_t value);
static int sandbox_store_read_field(sandbox_store_entry_t *entry,
    unsigned tag, const uint8_t *p, size_t n);
static void sandbox_store_put64(uint8_t *p, uint64_t value);
static uint64_t sandbox_store_get64(const uint8_t *p);
static const char *sandbox_store_number(const char *p, const char *last,
    uint64_t *number);
static const char *sandbox_store_tag(const char *p, const char *last,
    const char **start, size_t *len, unsigned *weak);


static const char  sandbox_store_lower[] = "0123456789abcdef";
static const char  sandbox_store_upper[] = "0123456789ABCDEF";


const char *
sandbox_store_name_wrong(const char *name, size_t len)
{
    if (len == 0) {
        return "A file needs a name.";
    }

    if (len > SANDBOX_STORE_MAX_NAME) {
        return "A file's name may have at most 255 bytes.";
    }

    if (memchr(name, '/', len) || memchr(name, '\0', len)) {
        return "A file's name can't have a \"/\" or a NUL.";
    }

    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'))) {
        return "\".\" and \"..\" are no names of files.";
    }

    return NULL;
}


void
sandbox_store_component(const char *p, size_t len,
    char out[SANDBOX_STORE_MAX_COMPONENT + 1])
{
    size_t   i, n;
    uint8_t  c, digest[SANDBOX_STORE_SHA256];

    n = 0;

    for (i = 0; i < len; i++) {
        c = (uint8_t) p[i];

        if (n + 3 > SANDBOX_STORE_MAX_COMPONENT) {
            break;
        }

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
            || (c >= '0' && c <= '9') || c == '_' || c == ':' || c == '-'
            || (c == '.' && i != 0))
        {
            out[n++] = (char) c;
            continue;
        }

        out[n++] = '%';
        out[n++] = sandbox_store_upper[c >> 4];
        out[n++] = sandbox_store_upper[c & 15];
    }

    if (i < len || len == 0) {
        sandbox_store_digest(p, len, digest);
        out[0] = '=';
        n = (size_t) (sandbox_store_hex(out + 1, digest, sizeof(digest))
                      - out);
    }

    out[n] = '\0';
}


void
sandbox_store_id(const char *name, size_t len, char out[SANDBOX_STORE_ID + 1])
{
    uint8_t  digest[SANDBOX_STORE_SHA256];

    sandbox_store_digest(name, len, digest);
    *sandbox_store_hex(out, digest, SANDBOX_STORE_ID / 2) = '\0';
}


size_t
sandbox_store_free_name(const char *name, size_t len, unsigned n,
    char out[SANDBOX_STORE_MAX_NAME])
{
    int     mark_len;
    char    mark[16];
    size_t  stem, ext;

    for (stem = len; stem > 0 && name[stem - 1] != '.'; stem--) {
        /* void */
    }

    /* a name that begins with its only dot has no extension */

    stem = (stem > 1 && len - stem < SANDBOX_STORE_MAX_EXT) ? stem - 1 : len;
    ext = len - stem;

    mark_len = snprintf(mark, sizeof(mark), " (%u)", n);

    if (stem > SANDBOX_STORE_MAX_NAME - ext - (size_t) mark_len) {
        stem = sandbox_utf8_head((const uint8_t *) name,
                                 SANDBOX_STORE_MAX_NAME - ext
                                 - (size_t) mark_len);
    }

    memcpy(out, name, stem);
    memcpy(out + stem, mark, (size_t) mark_len);
    memcpy(out + stem + mark_len, name + len - ext, ext);

    return stem + (size_t) mark_len + ext;
}


void
sandbox_store_write_block(const sandbox_store_entry_t *entry,
    uint8_t block[SANDBOX_STORE_BLOCK])
{
    uint8_t   type, *p;
    uint32_t  n, sum;

    memset(block, 0, SANDBOX_STORE_BLOCK);
    memcpy(block, SANDBOX_STORE_MAGIC, 8);

    type = (uint8_t) entry->type;

    p = block + SANDBOX_STORE_START;
    p = sandbox_store_field(p, SANDBOX_STORE_FIELD_NAME, entry->name,
                            entry->name_len);
    p = sandbox_store_field_number(p, SANDBOX_STORE_FIELD_SIZE, entry->size);
    p = sandbox_store_field_number(p, SANDBOX_STORE_FIELD_CREATED,
                                   entry->created_ms);
    p = sandbox_store_field_number(p, SANDBOX_STORE_FIELD_MODIFIED,
                                   entry->modified_ms);
    p = sandbox_store_field(p, SANDBOX_STORE_FIELD_SHA256, entry->sha256,
                            SANDBOX_STORE_SHA256);
    p = sandbox_store_field(p, SANDBOX_STORE_FIELD_TYPE, &type, 1);

    if (entry->command_len) {
        p = sandbox_store_field(p, SANDBOX_STORE_FIELD_COMMAND,
                                entry->command, entry->command_len);
    }

    n = (uint32_t) (p - block - SANDBOX_STORE_START);
    sum = sandbox_store_checksum(block + SANDBOX_STORE_START, n);

    sandbox_store_put64(block + 8, (uint64_t) n << 32 | sum);
}


void
sandbox_store_write_record(uint8_t block[SANDBOX_STORE_BLOCK],
    const uint8_t *p, size_t size)
{
    uint8_t   *end;
    uint32_t   n, sum;

    n = (uint32_t) (sandbox_store_get64(block + 8) >> 32);
    end = sandbox_store_field(block + SANDBOX_STORE_START + n,
                              SANDBOX_STORE_FIELD_RECORD, p, size);

    n = (uint32_t) (end - block - SANDBOX_STORE_START);
    sum = sandbox_store_checksum(block + SANDBOX_STORE_START, n);

    sandbox_store_put64(block + 8, (uint64_t) n << 32 | sum);
}


const uint8_t *
sandbox_store_read_record(const uint8_t *block, size_t *size)
{
    size_t          n, len;
    const uint8_t  *p;

    n = (size_t) (sandbox_store_get64(block + 8) >> 32);
    p = block + SANDBOX_STORE_START;

    while (n >= 3) {
        len = (size_t) p[1] << 8 | p[2];

        if (p[0] == SANDBOX_STORE_FIELD_RECORD) {
            *size = len;
            return p + 3;
        }

        p += 3 + len;
        n -= 3 + len;
    }

    return NULL;
}


int
sandbox_store_read_block(const uint8_t *block, size_t size,
    sandbox_store_entry_t *entry)
{
    size_t          n, len;
    unsigned        tag, seen;
    uint64_t        start;
    const uint8_t  *p;

    memset(entry, 0, sizeof(sandbox_store_entry_t));

    if (size < SANDBOX_STORE_START
        || memcmp(block, SANDBOX_STORE_MAGIC, 8) != 0)
    {
        return -1;
    }

    start = sandbox_store_get64(block + 8);
    n = (size_t) (start >> 32);
    p = block + SANDBOX_STORE_START;

    if (n > size - SANDBOX_STORE_START
        || sandbox_store_checksum(p, n) != (uint32_t) start)
    {
        return -1;
    }

    seen = 0;

    while (n) {

        if (n < 3) {
            return -1;
        }

        tag = p[0];
        len = (size_t) p[1] << 8 | p[2];
        p += 3;
        n -= 3;

        if (len > n) {
            return -1;
        }

        /* what a later version adds is none of our business */

        if (tag > 0 && tag < SANDBOX_STORE_FIELD_LAST) {

            if (seen & 1u << tag
                || sandbox_store_read_field(entry, tag, p, len) != 0)
            {
                return -1;
            }

            seen |= 1u << tag;
        }

        p += len;
        n -= len;
    }

    return (seen & SANDBOX_STORE_REQUIRED) == SANDBOX_STORE_REQUIRED ? 0 : -1;
}


static int
sandbox_store_read_field(sandbox_store_entry_t *entry, unsigned tag,
    const uint8_t *p, size_t n)
{
    uint64_t  number;

    if (tag == SANDBOX_STORE_FIELD_NAME) {

        if (sandbox_store_name_wrong((const char *) p, n) != NULL) {
            return -1;
        }

        memcpy(entry->name, p, n);
        entry->name_len = (unsigned) n;
        return 0;
    }

    if (tag == SANDBOX_STORE_FIELD_COMMAND) {

        if (n == 0 || n > SANDBOX_STORE_MAX_COMMAND) {
            return -1;
        }

        memcpy(entry->command, p, n);
        entry->command_len = (unsigned) n;
        return 0;
    }

    if (tag == SANDBOX_STORE_FIELD_RECORD) {
        return n > SANDBOX_STORE_MAX_RECORD ? -1 : 0;
    }

    if (tag == SANDBOX_STORE_FIELD_SHA256) {

        if (n != SANDBOX_STORE_SHA256) {
            return -1;
        }

        memcpy(entry->sha256, p, n);
        return 0;
    }

    if (tag == SANDBOX_STORE_FIELD_TYPE) {

        if (n != 1) {
            return -1;
        }

        entry->type = p[0] < SANDBOX_STORE_TYPE_LAST
                      ? p[0] : SANDBOX_STORE_TYPE_BINARY;
        return 0;
    }

    if (n != 8) {
        return -1;
    }

    number = sandbox_store_get64(p);

    if (number > INT64_MAX / 2) {
        return -1;
    }

    switch (tag) {

    case SANDBOX_STORE_FIELD_SIZE:
        entry->size = number;
        break;

    case SANDBOX_STORE_FIELD_CREATED:
        entry->created_ms = number;
        break;

    default:
        entry->modified_ms = number;
    }

    return 0;
}


static uint8_t *
sandbox_store_field(uint8_t *p, unsigned tag, const void *value, size_t size)
{
    *p++ = (uint8_t) tag;
    *p++ = (uint8_t) (size >> 8);
    *p++ = (uint8_t) size;

    memcpy(p, value, size);

    return p + size;
}


static uint8_t *
sandbox_store_field_number(uint8_t *p, unsigned tag, uint64_t value)
{
    uint8_t  number[8];

    sandbox_store_put64(number, value);

    return sandbox_store_field(p, tag, number, sizeof(number));
}


void
sandbox_store_etag(const uint8_t *sha256,
    char out[SANDBOX_STORE_ETAG_TEXT + 1])
{
    char  *p;

    out[0] = '"';
    p = sandbox_store_hex(out + 1, sha256, SANDBOX_STORE_ETAG);
    p[0] = '"';
    p[1] = '\0';
}


int
sandbox_store_listed(const char *list, size_t len, const char *etag,
    unsigned weak)
{
    size_t       n, etag_len;
    unsigned     is_weak;
    const char  *p, *last, *tag;

    p = list;
    last = list + len;

    while (p < last && (*p == ' ' || *p == '\t' || *p == ',')) {
        p++;
    }

    if (p < last && *p == '*') {
        return etag != NULL;
    }

    if (etag == NULL) {
        return 0;
    }

    etag_len = strlen(etag);

    while (p < last) {
        p = sandbox_store_tag(p, last, &tag, &n, &is_weak);

        if (p == NULL) {
            return 0;
        }

        if (n == etag_len && memcmp(tag, etag, n) == 0 && (weak || !is_weak)) {
            return 1;
        }
    }

    return 0;
}


/* one tag and what separates it from the next; NULL: there is none */

static const char *
sandbox_store_tag(const char *p, const char *last, const char **start,
    size_t *len, unsigned *weak)
{
    *weak = 0;

    if (last - p >= 2 && p[0] == 'W' && p[1] == '/') {
        *weak = 1;
        p += 2;
    }

    *start = p;

    if (p == last || *p != '"') {
        return NULL;
    }

    p = memchr(p + 1, '"', (size_t) (last - p - 1));

    if (p == NULL) {
        return NULL;
    }

    p++;
    *len = (size_t) (p - *start);

    while (p < last && (*p == ' ' || *p == '\t' || *p == ',')) {
        p++;
    }

    return p;
}


int
sandbox_store_ranges(const char *list, size_t len)
{
    uint64_t     first, end;
    const char  *p, *q, *last;

    p = list;
    last = list + len;

    for ( ;; ) {

        while (p < last && (*p == ' ' || *p == '\t')) {
            p++;
        }

        q = sandbox_store_number(p, last, &first);

        if (q == last || *q != '-') {
            return 0;
        }

        q++;

        if (q == p + 1) {

            /* the last so many bytes */

            p = sandbox_store_number(q, last, &end);

            if (p == q) {
                return 0;
            }

        } else {
            p = sandbox_store_number(q, last, &end);

            if (p != q && end < first) {
                return 0;
            }
        }

        while (p < last && (*p == ' ' || *p == '\t')) {
            p++;
        }

        if (p == last) {
            return 1;
        }

        if (*p++ != ',') {
            return 0;
        }
    }
}


/* what is too large for it is as large as can be */

static const char *
sandbox_store_number(const char *p, const char *last, uint64_t *number)
{
    *number = 0;

    for ( /* void */ ; p < last && *p >= '0' && *p <= '9'; p++) {
        *number = *number > INT64_MAX / 10 - 1
                  ? INT64_MAX : *number * 10 + (uint64_t) (*p - '0');
    }

    return p;
}


size_t
sandbox_store_disposition(unsigned attachment, const char *name, size_t len,
    char out[SANDBOX_STORE_DISPOSITION])
{
    char           *p;
    size_t          i, n;
    uint8_t         c;
    unsigned        same;
    const uint8_t  *s;

    s = (const uint8_t *) name;
    same = 1;

    p = out;
    p += sprintf(p, "%s; filename=\"", attachment ? "attachment" : "inline");

    for (i = 0; i < len; i += n) {
        c = s[i];
        n = sandbox_utf8_sequence(s + i, len - i);

        if (n == 1 && c >= 0x20 && c < 0x7f
            && c != '"' && c != '\\' && c != '%')
        {
            *p++ = (char) c;
            continue;
        }

        *p++ = '_';
        same = 0;

        if (n == 0) {
            n = 1;
        }
    }

    *p++ = '"';

    /* a name that is not UTF-8 has no other spelling */

    if (same || !sandbox_utf8_text(s, len)) {
        return (size_t) (p - out);
    }

    p += sprintf(p, "; filename*=UTF-8''");

    for (i = 0; i < len; i++) {
        c = s[i];

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
            || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_'
            || c == '~')
        {
            *p++ = (char) c;
            continue;
        }

        *p++ = '%';
        *p++ = sandbox_store_upper[c >> 4];
        *p++ = sandbox_store_upper[c & 15];
    }

    return (size_t) (p - out);
}


size_t
sandbox_store_write_link(const sandbox_store_link_t *link,
    uint8_t out[SANDBOX_STORE_MAX_LINK])
{
    uint8_t  *p;

    p = out;

    *p++ = 1;
    sandbox_store_put64(p, link->expires);
    p += 8;

    memcpy(p, link->tenant, sizeof(link->tenant));
    p += sizeof(link->tenant);
    memcpy(p, link->user, sizeof(link->user));
    p += sizeof(link->user);
    memcpy(p, link->id, sizeof(link->id));
    p += sizeof(link->id);
    memcpy(p, link->etag, sizeof(link->etag));
    p += sizeof(link->etag);
    memcpy(p, link->conversation, link->conversation_len);
    p += link->conversation_len;

    return (size_t) (p - out);
}


int
sandbox_store_read_link(const uint8_t *p, size_t size,
    sandbox_store_link_t *link)
{
    memset(link, 0, sizeof(sandbox_store_link_t));

    if (size <= SANDBOX_STORE_LINK_FIXED || size > SANDBOX_STORE_MAX_LINK
        || p[0] != 1)
    {
        return -1;
    }

    link->expires = sandbox_store_get64(p + 1);
    p += 9;

    memcpy(link->tenant, p, sizeof(link->tenant));
    p += sizeof(link->tenant);
    memcpy(link->user, p, sizeof(link->user));
    p += sizeof(link->user);
    memcpy(link->id, p, sizeof(link->id));
    p += sizeof(link->id);
    memcpy(link->etag, p, sizeof(link->etag));
    p += sizeof(link->etag);

    link->conversation_len = (unsigned) (size - SANDBOX_STORE_LINK_FIXED);
    memcpy(link->conversation, p, link->conversation_len);

    return 0;
}


static void
sandbox_store_digest(const char *p, size_t len,
    uint8_t digest[SANDBOX_STORE_SHA256])
{
    /* of a built-in algorithm on bytes in memory: it can't fail */

    memset(digest, 0, SANDBOX_STORE_SHA256);
    (void) EVP_Digest(p, len, digest, NULL, EVP_sha256(), NULL);
}


static char *
sandbox_store_hex(char *out, const uint8_t *p, size_t n)
{
    while (n--) {
        *out++ = sandbox_store_lower[*p >> 4];
        *out++ = sandbox_store_lower[*p++ & 15];
    }

    return out;
}


/* CRC-32, four bits at a time */

static uint32_t
sandbox_store_checksum(const uint8_t *p, size_t n)
{
    uint32_t  sum;

    static const uint32_t  table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
        0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c
    };

    sum = 0xffffffff;

    while (n--) {
        sum ^= *p++;
        sum = sum >> 4 ^ table[sum & 15];
        sum = sum >> 4 ^ table[sum & 15];
    }

    return ~sum;
}


static void
sandbox_store_put64(uint8_t *p, uint64_t value)
{
    int  i;

    for (i = 7; i >= 0; i--) {
        p[i] = (uint8_t) value;
        value >>= 8;
    }
}


static uint64_t
sandbox_store_get64(const uint8_t *p)
{
    int       i;
    uint64_t  value;

    value = 0;

    for (i = 0; i < 8; i++) {
        value = value << 8 | p[i];
    }

    return value;
}
