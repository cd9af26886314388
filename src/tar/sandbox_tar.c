/*
 * A tar, header by header.  What it does not know it refuses: a skill is read
 * as a whole or not at all.
 */

#include "sandbox_tar.h"

#include <string.h>


#define SANDBOX_TAR_HEADER  0            /* states */
#define SANDBOX_TAR_EXTRA   1
#define SANDBOX_TAR_CONTENT 2
#define SANDBOX_TAR_AFTER   3


/* headers before an entry */

#define SANDBOX_TAR_PAX        1
#define SANDBOX_TAR_LONG       2
#define SANDBOX_TAR_LONG_LINK  4


/* places in a header */

#define SANDBOX_TAR_MODE      100
#define SANDBOX_TAR_SIZE      124
#define SANDBOX_TAR_SUM       148
#define SANDBOX_TAR_TYPE      156
#define SANDBOX_TAR_TARGET    157
#define SANDBOX_TAR_MAGIC     257
#define SANDBOX_TAR_PREFIX    345


static int sandbox_tar_bad(sandbox_tar_t *tar, const char *error);
static int sandbox_tar_header(sandbox_tar_t *tar);
static int sandbox_tar_checksum(const uint8_t *block);
static int sandbox_tar_number(const uint8_t *p, size_t size, uint64_t *value);
static size_t sandbox_tar_length(const uint8_t *p, size_t size);
static int sandbox_tar_entry(sandbox_tar_t *tar, uint64_t size,
    uint64_t mode);
static int sandbox_tar_named(sandbox_tar_t *tar);
static size_t sandbox_tar_block_name(const uint8_t *block, char *out);
static int sandbox_tar_extra(sandbox_tar_t *tar);
static int sandbox_tar_pax(sandbox_tar_t *tar);
static int sandbox_tar_record(sandbox_tar_t *tar, const char *key,
    size_t key_size, const char *value, size_t size);
static void sandbox_tar_fetch(uint8_t *to, const uint8_t **p, size_t *size,
    size_t n);


void
sandbox_tar_init(sandbox_tar_t *tar)
{
    memset(tar, 0, offsetof(sandbox_tar_t, next_path));
    tar->error = NULL;
}


int
sandbox_tar_next(sandbox_tar_t *tar, const uint8_t **p, size_t *size,
    const uint8_t **data, size_t *length)
{
    int     rc;
    size_t  n;

    while (*size) {

        if (tar->zeros == 2) {
            return SANDBOX_TAR_DONE;
        }

        switch (tar->state) {

        case SANDBOX_TAR_AFTER:
            n = *size < tar->skip ? *size : tar->skip;
            tar->skip -= n;
            *p += n;
            *size -= n;

            if (tar->skip == 0) {
                tar->state = SANDBOX_TAR_HEADER;
            }

            break;

        case SANDBOX_TAR_CONTENT:
            *data = *p;
            *length = *size < tar->data ? *size : tar->data;
            *p += *length;
            *size -= *length;
            tar->data -= *length;

            if (tar->data == 0) {
                tar->state = tar->skip ? SANDBOX_TAR_AFTER
                                       : SANDBOX_TAR_HEADER;
            }

            return SANDBOX_TAR_DATA;

        case SANDBOX_TAR_EXTRA:
            n = *size < tar->extra_left ? *size : tar->extra_left;
            sandbox_tar_fetch(tar->extra + tar->extra_have, p, size, n);
            tar->extra_have += n;
            tar->extra_left -= n;

            if (tar->extra_left == 0) {
                tar->state = tar->skip ? SANDBOX_TAR_AFTER
                                       : SANDBOX_TAR_HEADER;

                if (sandbox_tar_extra(tar) == -1) {
                    return SANDBOX_TAR_BAD;
                }
            }

            break;

        default:
            n = SANDBOX_TAR_BLOCK - tar->block_have;
            n = *size < n ? *size : n;
            sandbox_tar_fetch(tar->block + tar->block_have, p, size, n);
            tar->block_have += n;

            if (tar->block_have < SANDBOX_TAR_BLOCK) {
                break;
            }

            tar->block_have = 0;
            rc = sandbox_tar_header(tar);

            if (rc != SANDBOX_TAR_AGAIN) {
                return rc;
            }
        }
    }

    return tar->zeros == 2 ? SANDBOX_TAR_DONE : SANDBOX_TAR_AGAIN;
}


size_t
sandbox_tar_name(const sandbox_tar_t *tar, char *out, size_t size)
{
    char         path[SANDBOX_TAR_BLOCK];
    size_t       length;
    const char  *from;

    if (tar->has_path) {
        from = tar->next_path;
        length = strlen(from);

    } else if (tar->named) {
        from = path;
        length = sandbox_tar_block_name(tar->block, path);

    } else {
        return 0;
    }

    length = length < size ? length : size;
    memcpy(out, from, length);

    return length;
}


const char *
sandbox_tar_path(char *out, const char *path, size_t length)
{
    size_t    n, have;
    unsigned  parts;

    have = 0;
    parts = 0;

    if (length && path[0] == '/') {
        return "A path of the tar is absolute.";
    }

    while (length) {
        for (n = 0; n < length && path[n] != '/'; n++) {
            if (path[n] == '\0') {
                return "A path of the tar has a NUL.";
            }
        }

        if (n == 2 && path[0] == '.' && path[1] == '.') {
            return "A path of the tar has \"..\".";
        }

        if (n == 0) {
            return "A path of the tar has an empty part.";
        }

        if (n > 255) {
            return "A path of the tar is too long: a name in it may have 255 "
                   "bytes.";
        }

        /* "./" is how most begin */

        if (!(n == 1 && path[0] == '.')) {
            if (have + n + 2 > SANDBOX_TAR_MAX_NAME) {
                return "A path of the tar is too long: it may have 1022 "
                       "bytes.";
            }

            if (++parts > SANDBOX_TAR_MAX_DEPTH) {
                return "A path of the tar is too deep: it may have 32 parts.";
            }

            if (have) {
                out[have++] = '/';
            }

            memcpy(out + have, path, n);
            have += n;
        }

        n += n < length;
        path += n;
        length -= n;
    }

    out[have] = '\0';

    return NULL;
}


/*
 * A ".." behind a name could go up from where a link of that name leads; so
 * they come first, where the folders are known to be no links.
 */

int
sandbox_tar_inside(const char *path, const char *target)
{
    int          depth, named;
    size_t       n;
    const char  *p;

    if (target[0] == '/' || target[0] == '\0') {
        return 0;
    }

    depth = 0;
    named = 0;

    for (p = path; *p; p++) {
        depth += *p == '/';
    }

    for (p = target; *p; p += n + (p[n] == '/')) {
        n = strcspn(p, "/");

        if (n == 2 && p[0] == '.' && p[1] == '.') {
            if (named || --depth < 0) {
                return 0;
            }

        } else if (n && !(n == 1 && p[0] == '.')) {
            named = 1;
        }
    }

    return 1;
}


static int
sandbox_tar_bad(sandbox_tar_t *tar, const char *error)
{
    tar->error = error;

    return SANDBOX_TAR_BAD;
}


static int
sandbox_tar_header(sandbox_tar_t *tar)
{
    uint8_t   type;
    uint64_t  size, mode;
    unsigned  pending;

    static const uint8_t  zero[SANDBOX_TAR_BLOCK];

    tar->named = 0;

    if (memcmp(tar->block, zero, SANDBOX_TAR_BLOCK) == 0) {

        if (tar->pending) {
            return sandbox_tar_bad(tar, "A header of the tar belongs to no "
                                   "entry.");
        }

        tar->zeros++;
        return tar->zeros == 2 ? SANDBOX_TAR_DONE : SANDBOX_TAR_AGAIN;
    }

    if (tar->zeros) {
        return sandbox_tar_bad(tar, "Something follows the end of the tar.");
    }

    if (!sandbox_tar_checksum(tar->block)) {
        return sandbox_tar_bad(tar, "It is no plain tar, or damaged.");
    }

    tar->named = 1;

    if (sandbox_tar_number(tar->block + SANDBOX_TAR_SIZE, 12, &size) == -1) {
        return sandbox_tar_bad(tar, "A size in the tar can't be.");
    }

    if (sandbox_tar_number(tar->block + SANDBOX_TAR_MODE, 8, &mode) == -1) {
        return sandbox_tar_bad(tar, "A mode in the tar can't be.");
    }

    type = tar->block[SANDBOX_TAR_TYPE];

    if (type != 'x' && type != 'g' && type != 'L' && type != 'K') {
        return sandbox_tar_entry(tar, size, mode);
    }

    if (size > SANDBOX_TAR_MAX_EXTRA) {
        return sandbox_tar_bad(tar, "A header of the tar is too long.");
    }

    /* which of two counts is told one way by some, another way by others */

    pending = type == 'x' ? SANDBOX_TAR_PAX
              : type == 'L' ? SANDBOX_TAR_LONG
              : type == 'K' ? SANDBOX_TAR_LONG_LINK : 0;

    if ((tar->pending && (type == 'x' || type == 'g'))
        || (tar->pending & (SANDBOX_TAR_PAX|pending)))
    {
        return sandbox_tar_bad(tar, "An entry of the tar has two headers "
                               "before it.");
    }

    if (size == 0 && (type == 'L' || type == 'K')) {
        return sandbox_tar_bad(tar, "A header of the tar is malformed.");
    }

    tar->pending |= pending;

    if (++tar->entries > 3 * SANDBOX_TAR_MAX_ENTRIES) {
        return sandbox_tar_bad(tar, "The tar has more than 20,000 entries.");
    }

    tar->extra_type = type;
    tar->extra_have = 0;
    tar->extra_left = size;
    tar->skip = -size % SANDBOX_TAR_BLOCK;
    tar->state = size ? SANDBOX_TAR_EXTRA : SANDBOX_TAR_HEADER;

    return SANDBOX_TAR_AGAIN;
}


static int
sandbox_tar_checksum(const uint8_t *block)
{
    size_t    i;
    uint64_t  stored, sum;

    if (sandbox_tar_number(block + SANDBOX_TAR_SUM, 8, &stored) == -1) {
        return 0;
    }

    sum = 8 * ' ';

    for (i = 0; i < SANDBOX_TAR_BLOCK; i++) {
        if (i < SANDBOX_TAR_SUM || i >= SANDBOX_TAR_SUM + 8) {
            sum += block[i];
        }
    }

    return sum == stored;
}


/* Octal digits, blanks around them. */

static int
sandbox_tar_number(const uint8_t *p, size_t size, uint64_t *value)
{
    size_t  i;

    *value = 0;

    for (i = 0; i < size && p[i] == ' '; i++) { /* void */ }

    for ( /* void */ ; i < size && p[i] >= '0' && p[i] <= '7'; i++) {
        *value = *value * 8 + (p[i] - '0');
    }

    return i == size || p[i] == ' ' || p[i] == '\0' ? 0 : -1;
}


static size_t
sandbox_tar_length(const uint8_t *p, size_t size)
{
    const uint8_t  *end;

    end = memchr(p, '\0', size);

    return end != NULL ? (size_t) (end - p) : size;
}


static int
sandbox_tar_entry(sandbox_tar_t *tar, uint64_t size, uint64_t mode)
{
    sandbox_tar_entry_t  *e;

    e = &tar->entry;

    if (sandbox_tar_named(tar) == -1) {
        return SANDBOX_TAR_BAD;
    }

    if (tar->has_size) {
        size = tar->next_size;
    }

    e->mode = mode & 0777;
    e->size = 0;

    switch (tar->block[SANDBOX_TAR_TYPE]) {

    case '0':
    case '\0':
    case '7':
        e->type = SANDBOX_TAR_FILE;
        e->size = size;
        break;

    case '5':
        e->type = SANDBOX_TAR_DIRECTORY;
        break;

    case '2':
        e->type = SANDBOX_TAR_LINK;

        if (!sandbox_tar_inside(e->path, e->target)) {
            return sandbox_tar_bad(tar, "A link leads out of the tar, or has "
                                   "a \"..\" behind a name.");
        }

        break;

    default:
        return sandbox_tar_bad(tar, "The tar has something else than files, "
                               "directories and symbolic links.");
    }

    if (e->path[0] == '\0' && e->type != SANDBOX_TAR_DIRECTORY) {
        return sandbox_tar_bad(tar, "A file of the tar has no name.");
    }

    if (e->type != SANDBOX_TAR_FILE && size != 0) {
        return sandbox_tar_bad(tar, "Something in the tar has a size that is "
                               "no file.");
    }

    if (size > SANDBOX_TAR_MAX_BYTES
        || tar->bytes + size > SANDBOX_TAR_MAX_BYTES)
    {
        return sandbox_tar_bad(tar, "The files of the tar are more than "
                               "256 MiB.");
    }

    if (++tar->entries > SANDBOX_TAR_MAX_ENTRIES) {
        return sandbox_tar_bad(tar, "The tar has more than 20,000 entries.");
    }

    tar->bytes += size;
    tar->data = size;
    tar->skip = -size % SANDBOX_TAR_BLOCK;
    tar->state = size ? SANDBOX_TAR_CONTENT : SANDBOX_TAR_HEADER;
    tar->pending = 0;
    tar->has_path = 0;
    tar->has_target = 0;
    tar->has_size = 0;

    return SANDBOX_TAR_ENTRY;
}


/* Its path and target, from the header or what came before it. */

static int
sandbox_tar_named(sandbox_tar_t *tar)
{
    char                  path[SANDBOX_TAR_BLOCK];
    size_t                length, n;
    const char           *from, *wrong;
    const uint8_t        *b;
    sandbox_tar_entry_t  *e;

    b = tar->block;
    e = &tar->entry;

    if (tar->has_path) {
        from = tar->next_path;
        length = strlen(from);

    } else {
        length = sandbox_tar_block_name(b, path);
        from = path;
    }

    wrong = sandbox_tar_path(e->path, from, length);

    if (wrong != NULL) {
        return sandbox_tar_bad(tar, wrong);
    }

    if (tar->has_target) {
        strcpy(e->target, tar->next_target);

    } else {
        n = sandbox_tar_length(b + SANDBOX_TAR_TARGET, 100);
        memcpy(e->target, b + SANDBOX_TAR_TARGET, n);
        e->target[n] = '\0';
    }

    return 0;
}


/* As the block has it; out has room for one. */

static size_t
sandbox_tar_block_name(const uint8_t *block, char *out)
{
    size_t  length, n;

    length = 0;

    if (memcmp(block + SANDBOX_TAR_MAGIC, "ustar", 6) == 0
        && block[SANDBOX_TAR_PREFIX])
    {
        length = sandbox_tar_length(block + SANDBOX_TAR_PREFIX, 155);
        memcpy(out, block + SANDBOX_TAR_PREFIX, length);
        out[length++] = '/';
    }

    n = sandbox_tar_length(block, 100);
    memcpy(out + length, block, n);

    return length + n;
}


/* A header before a header is there. */

static int
sandbox_tar_extra(sandbox_tar_t *tar)
{
    size_t  length;

    if (tar->extra_type == 'x' || tar->extra_type == 'g') {
        return sandbox_tar_pax(tar);
    }

    tar->extra[tar->extra_have] = '\0';
    length = strlen((char *) tar->extra);

    return sandbox_tar_record(tar, tar->extra_type == 'L' ? "path"
                                                          : "linkpath",
                              tar->extra_type == 'L' ? 4 : 8,
                              (char *) tar->extra, length);
}


/* "LENGTH KEY=VALUE\n", one after the other. */

static int
sandbox_tar_pax(sandbox_tar_t *tar)
{
    size_t       length, digits, left;
    const char  *p, *key, *equals, *end;

    p = (const char *) tar->extra;

    for (left = tar->extra_have; left; left -= length) {
        length = 0;

        for (digits = 0; digits < left && digits < 6 && p[digits] >= '0'
                         && p[digits] <= '9'; digits++)
        {
            length = length * 10 + (p[digits] - '0');
        }

        if (digits == 0 || digits == left || p[digits] != ' '
            || length > left || length < digits + 3 || p[length - 1] != '\n')
        {
            goto bad;
        }

        key = p + digits + 1;
        end = p + length - 1;
        equals = memchr(key, '=', end - key);

        if (equals == NULL) {
            goto bad;
        }

        if (sandbox_tar_record(tar, key, equals - key, equals + 1,
                               end - equals - 1) == -1)
        {
            return -1;
        }

        p += length;
    }

    return 0;

bad:

    sandbox_tar_bad(tar, "A header of the tar is malformed.");

    return -1;
}


static int
sandbox_tar_record(sandbox_tar_t *tar, const char *key, size_t key_size,
    const char *value, size_t size)
{
    char      *out;
    size_t     i;
    uint64_t   number;

    /* for all that follows: others obey it, so it can't be left aside */

    if (tar->extra_type == 'g'
        && ((key_size == 4 && (memcmp(key, "size", 4) == 0
                               || memcmp(key, "path", 4) == 0))
            || (key_size == 8 && memcmp(key, "linkpath", 8) == 0)))
    {
        sandbox_tar_bad(tar, "A header for all entries of the tar has a path "
                        "or a size.");
        return -1;
    }

    if (key_size == 4 && memcmp(key, "size", 4) == 0) {
        number = 0;

        for (i = 0; i < size; i++) {
            if (value[i] < '0' || value[i] > '9' || i == 15) {
                sandbox_tar_bad(tar, "A size in the tar can't be.");
                return -1;
            }

            number = number * 10 + (value[i] - '0');
        }

        tar->next_size = number;
        tar->has_size = 1;

        return 0;
    }

    if (key_size == 4 && memcmp(key, "path", 4) == 0) {
        out = tar->next_path;
        tar->has_path = 1;

    } else if (key_size == 8 && memcmp(key, "linkpath", 8) == 0) {
        out = tar->next_target;
        tar->has_target = 1;

    } else if (key_size >= 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
        sandbox_tar_bad(tar, "The tar has sparse files.");
        return -1;

    } else {
        return 0;
    }

    if (size >= SANDBOX_TAR_MAX_NAME || memchr(value, '\0', size) != NULL) {
        sandbox_tar_bad(tar, "A path of the tar is too long.");
        return -1;
    }

    memcpy(out, value, size);
    out[size] = '\0';

    return 0;
}


static void
sandbox_tar_fetch(uint8_t *to, const uint8_t **p, size_t *size, size_t n)
{
    memcpy(to, *p, n);
    *p += n;
    *size -= n;
}
