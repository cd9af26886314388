/*
 * A skill, entry by entry.  Names are kept as 64-bit hashes: equal names always
 * meet, and whoever makes two different ones meet has his own tar refused.
 */

#include "sandbox_skill.h"
#include "sandbox_utf8.h"

#include <stdio.h>
#include <string.h>


/* what a path is, in the lowest bits of its slot */

#define SANDBOX_SKILL_IMPLIED    1       /* a folder that was not named yet */
#define SANDBOX_SKILL_FOLDER     2
#define SANDBOX_SKILL_LEAF       3       /* a file, a link */

#define SANDBOX_SKILL_SHOWN      200     /* bytes of a path in a sentence */


static int sandbox_skill_entry(sandbox_skill_reader_t *reader);
static int sandbox_skill_tree(sandbox_skill_reader_t *reader);
static uint64_t *sandbox_skill_slot(sandbox_skill_reader_t *reader,
    uint64_t hash);
static void sandbox_skill_top(sandbox_skill_reader_t *reader);
static void sandbox_skill_file(sandbox_skill_reader_t *reader);
static void sandbox_skill_data(sandbox_skill_reader_t *reader,
    const uint8_t *p, size_t size);
static int sandbox_skill_broken(sandbox_skill_reader_t *reader);
static int sandbox_skill_bad(sandbox_skill_reader_t *reader, const char *path,
    size_t len, const char *error);
static const char *sandbox_skill_compressed(const uint8_t *p, size_t size);


const char *
sandbox_skill_name_wrong(const char *name, size_t len)
{
    char    c;
    size_t  i;

    if (len == 0) {
        return "A skill needs a name.";
    }

    if (len > SANDBOX_SKILL_MAX_NAME) {
        return "A skill's name may have at most 64 bytes.";
    }

    for (i = 0; i < len; i++) {
        c = name[i];

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
            || (c >= '0' && c <= '9')
            || (i && (c == '.' || c == '_' || c == '-')))
        {
            continue;
        }

        return "A skill's name has letters and digits of ASCII, and \".\", "
               "\"_\", \"-\" behind the first of them.";
    }

    return NULL;
}


void
sandbox_skill_init(sandbox_skill_reader_t *reader)
{
    memset(reader, 0, sizeof(sandbox_skill_reader_t));
    sandbox_tar_init(&reader->tar);
}


int
sandbox_skill_read(sandbox_skill_reader_t *reader, const uint8_t *p,
    size_t size)
{
    size_t          length;
    const uint8_t  *data;

    while (size && !reader->done) {

        switch (sandbox_tar_next(&reader->tar, &p, &size, &data, &length)) {

        case SANDBOX_TAR_ENTRY:
            if (sandbox_skill_entry(reader) == -1) {
                return -1;
            }

            break;

        case SANDBOX_TAR_DATA:
            if (reader->reading) {
                sandbox_skill_data(reader, data, length);
            }

            break;

        case SANDBOX_TAR_DONE:
            reader->done = 1;
            break;

        case SANDBOX_TAR_BAD:
            return sandbox_skill_broken(reader);

        default:
            break;
        }
    }

    /* tars are padded, with nothing else */

    for ( /* void */ ; size; p++, size--) {
        if (*p != 0) {
            return sandbox_skill_bad(reader, NULL, 0, "Something follows the "
                                     "end of the tar.");
        }
    }

    return 0;
}


int
sandbox_skill_end(sandbox_skill_reader_t *reader)
{
    sandbox_tar_t  *tar;

    tar = &reader->tar;

    if (!reader->done) {

        reader->compressed = tar->entries ? NULL
                             : sandbox_skill_compressed(tar->block,
                                                        tar->block_have);
        if (reader->compressed) {
            return sandbox_skill_broken(reader);
        }

        return sandbox_skill_bad(reader, tar->entry.path,
                                 strlen(tar->entry.path),
                                 "The tar is cut short: its end of two zero "
                                 "blocks is missing.");
    }

    if (reader->skill.files == 0) {
        return sandbox_skill_bad(reader, NULL, 0,
                                 "There is no file in the tar.");
    }

    sandbox_skill_glance(reader);

    return 0;
}


static int
sandbox_skill_entry(sandbox_skill_reader_t *reader)
{
    sandbox_tar_entry_t  *e;

    e = &reader->tar.entry;
    reader->reading = 0;

    if (e->path[0] == '\0') {
        return 0;
    }

    if (sandbox_skill_tree(reader) == -1) {
        return -1;
    }

    sandbox_skill_top(reader);

    if (e->type != SANDBOX_TAR_DIRECTORY) {
        sandbox_skill_file(reader);
    }

    return 0;
}


/* its place among the others */

static int
sandbox_skill_tree(sandbox_skill_reader_t *reader)
{
    size_t                i;
    uint64_t              hash, *slot;
    unsigned              kind;
    sandbox_tar_entry_t  *e;

    e = &reader->tar.entry;
    hash = 0xcbf29ce484222325;
    kind = e->type == SANDBOX_TAR_DIRECTORY ? SANDBOX_SKILL_FOLDER
                                            : SANDBOX_SKILL_LEAF;

    for (i = 0; /* void */ ; i++) {

        if (e->path[i] == '/' || e->path[i] == '\0') {

            slot = sandbox_skill_slot(reader, hash);

            if (*slot == 0) {

                if (reader->nodes == SANDBOX_TAR_MAX_ENTRIES) {
                    return sandbox_skill_bad(reader, e->path, i,
                                             "The tar has more than 20,000 "
                                             "files and folders.");
                }

                reader->nodes++;
                *slot = (hash & ~(uint64_t) 3)
                        | (e->path[i] ? SANDBOX_SKILL_IMPLIED : kind);

            } else if (e->path[i] == '/') {

                if ((*slot & 3) == SANDBOX_SKILL_LEAF) {
                    return sandbox_skill_bad(reader, e->path, strlen(e->path),
                                             "It is below a link or a file of "
                                             "the tar.");
                }

            } else if ((*slot & 3) == SANDBOX_SKILL_IMPLIED
                       && kind == SANDBOX_SKILL_FOLDER)
            {
                *slot |= SANDBOX_SKILL_FOLDER;
                *slot &= ~(uint64_t) 1;

            } else {
                return sandbox_skill_bad(reader, e->path, i,
                                         "The tar has two entries of that "
                                         "name.");
            }
        }

        if (e->path[i] == '\0') {
            return 0;
        }

        hash = (hash ^ (uint8_t) e->path[i]) * 0x100000001b3;
    }
}


/* there is always a free one: see the number of nodes */

static uint64_t *
sandbox_skill_slot(sandbox_skill_reader_t *reader, uint64_t hash)
{
    size_t    i;
    uint64_t  mixed;

    mixed = hash ^ hash >> 32;

    for (i = mixed ^ mixed >> 16; /* void */ ; i++) {
        i %= SANDBOX_SKILL_SLOTS;

        if (reader->slots[i] == 0 || reader->slots[i] >> 2 == hash >> 2) {
            return &reader->slots[i];
        }
    }
}


/* whether all of it is in one folder */

static void
sandbox_skill_top(sandbox_skill_reader_t *reader)
{
    size_t                n;
    sandbox_tar_entry_t  *e;

    e = &reader->tar.entry;
    n = strcspn(e->path, "/");

    if (reader->top_len == 0) {
        memcpy(reader->top, e->path, n);
        reader->top_len = n;
    }

    if (n != reader->top_len || memcmp(reader->top, e->path, n) != 0
        || (e->path[n] == '\0' && e->type != SANDBOX_TAR_DIRECTORY))
    {
        reader->several = 1;
    }
}


static void
sandbox_skill_file(sandbox_skill_reader_t *reader)
{
    size_t            len;
    const char       *name, *path;
    sandbox_skill_t  *skill;

    skill = &reader->skill;
    path = reader->tar.entry.path;
    name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;

    /* the first of them, without a gap */

    len = strlen(path) + 1;

    if (reader->named == skill->files
        && len <= sizeof(reader->names) - reader->names_len)
    {
        memcpy(reader->names + reader->names_len, path, len);
        reader->names_len += len;
        reader->named++;
    }

    skill->files++;
    skill->bytes = reader->tar.bytes;

    if (strcmp(name, "requirements.txt") == 0) {

        if (skill->paths < SANDBOX_SKILL_PATHS) {
            len = strlen(path);

            if (len > SANDBOX_SKILL_MAX_PATH) {
                len = sandbox_utf8_head((const uint8_t *) path,
                                        SANDBOX_SKILL_MAX_PATH);
            }

            memcpy(skill->path[skill->paths].data, path, len);
            skill->path[skill->paths++].len = (unsigned) len;
        }

        skill->required++;
    }

    if (reader->tar.entry.type != SANDBOX_TAR_FILE
        || strcmp(name, "SKILL.md") != 0)
    {
        return;
    }

    /* the one at the top; or, if there is none, that of the only folder */

    if (name == path
        || (!skill->manual && name == path + reader->top_len + 1))
    {
        skill->manual = 1;
        skill->inner = (name != path);
        reader->reading = 1;
        reader->text_size = reader->tar.entry.size;
        reader->text_len = 0;
    }
}


static void
sandbox_skill_data(sandbox_skill_reader_t *reader, const uint8_t *p,
    size_t size)
{
    size_t  n;

    n = sizeof(reader->text) - reader->text_len;
    n = size < n ? size : n;

    memcpy(reader->text + reader->text_len, p, n);
    reader->text_len += n;
}


/* what the reader of tars did not like */

static int
sandbox_skill_broken(sandbox_skill_reader_t *reader)
{
    char            name[SANDBOX_TAR_MAX_NAME];
    size_t          len;
    sandbox_tar_t  *tar;

    tar = &reader->tar;

    /* a block that is whole has been counted down to 0 */

    if (tar->entries == 0 && reader->compressed == NULL) {
        reader->compressed = sandbox_skill_compressed(tar->block,
                                                      SANDBOX_TAR_BLOCK);
    }

    if (reader->compressed) {
        snprintf(reader->error, sizeof(reader->error),
                 "It is compressed (%s): a skill is a plain tar, unpack it "
                 "first.", reader->compressed);
        return -1;
    }

    len = sandbox_tar_name(tar, name, sizeof(name));

    return sandbox_skill_bad(reader, name, len, tar->error);
}


static int
sandbox_skill_bad(sandbox_skill_reader_t *reader, const char *path,
    size_t len, const char *error)
{
    char    shown[SANDBOX_SKILL_SHOWN + 8];
    size_t  i, n, at;

    at = 0;

    for (i = 0; i < len && at < SANDBOX_SKILL_SHOWN; i += n) {

        n = sandbox_utf8_sequence((const uint8_t *) path + i, len - i);

        if (n == 0 || (uint8_t) path[i] < 0x20 || path[i] == 0x7f) {
            at += (size_t) sprintf(shown + at, "\\x%02x", (uint8_t) path[i]);
            n = 1;
            continue;
        }

        memcpy(shown + at, path + i, n);
        at += n;
    }

    shown[at] = '\0';

    if (at == 0) {
        snprintf(reader->error, sizeof(reader->error), "%s", error);

    } else {
        snprintf(reader->error, sizeof(reader->error), "\"%s%s\": %s", shown,
                 i < len ? "..." : "", error);
    }

    return -1;
}


static const char *
sandbox_skill_compressed(const uint8_t *p, size_t size)
{
    unsigned  i;

    static const struct {
        const char  *name;
        size_t       len;
        const char  *bytes;
    } magic[] = {
        { "gzip", 2, "\x1f\x8b" },
        { "compress", 2, "\x1f\x9d" },
        { "bzip2", 3, "BZh" },
        { "xz", 6, "\xfd" "7zXZ\0" },
        { "zstd", 4, "\x28\xb5\x2f\xfd" },
        { "lz4", 4, "\x04\x22\x4d\x18" },
        { "lzip", 4, "LZIP" },
        { "zip", 4, "PK\x03\x04" },
        { "zip", 4, "PK\x05\x06" },
        { "7z", 6, "7z\xbc\xaf\x27\x1c" },
        { NULL, 0, NULL }
    };

    for (i = 0; magic[i].name; i++) {
        if (size >= magic[i].len
            && memcmp(p, magic[i].bytes, magic[i].len) == 0)
        {
            return magic[i].name;
        }
    }

    return NULL;
}
