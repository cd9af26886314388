/*
 * The folder of a skill into a tar: SKILL.md first, where whoever lists skills
 * looks, then by the bytes of the paths; no owner, no time, two modes.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


#define CTL_PACK_ROOM  (256 * 1024)              /* the first, then doubled */


typedef struct {
    char             *path;                      /* below the folder */
    char             *target;                    /* of a link */
    uint64_t          size;                      /* of a file */
    char              type;                      /* as a tar has it */
    unsigned          mode;
} ctl_pack_entry_t;

typedef struct {
    const char       *folder;
    int               top;
    ctl_pack_entry_t *entries;
    unsigned          n;
    unsigned          room;
    uint64_t          bytes;
} ctl_pack_walk_t;


static int ctl_pack_walk(ctl_pack_walk_t *walk, int dir, const char *path,
    unsigned depth);
static int ctl_pack_look(ctl_pack_walk_t *walk, int dir, const char *path,
    const char *name, unsigned depth);
static ctl_pack_entry_t *ctl_pack_entry(ctl_pack_walk_t *walk,
    const char *path);
static int ctl_pack_link(ctl_pack_walk_t *walk, ctl_pack_entry_t *entry,
    int dir, const char *name);
static int ctl_pack_skipped(const char *name);
static int ctl_pack_compare(const void *one, const void *two);
static int ctl_pack_write(ctl_pack_t *pack, const ctl_pack_walk_t *walk,
    uint64_t mtime);
static int ctl_pack_long(ctl_pack_t *pack, const ctl_pack_entry_t *entry,
    uint64_t mtime);
static size_t ctl_pack_record(char *out, const char *key, const char *value);
static int ctl_pack_split(const char *path, size_t *prefix);
static int ctl_pack_header(ctl_pack_t *pack, const char *path, char type,
    unsigned mode, uint64_t size, uint64_t mtime, const char *target);
static int ctl_pack_file(ctl_pack_t *pack, const ctl_pack_walk_t *walk,
    const ctl_pack_entry_t *entry);
static uint8_t *ctl_pack_add(ctl_pack_t *pack, size_t size);


int
ctl_pack_folder(ctl_pack_t *pack, const char *folder, uint64_t mtime)
{
    int              rc;
    unsigned         i;
    ctl_pack_walk_t  walk;

    memset(pack, 0, sizeof(ctl_pack_t));
    memset(&walk, 0, sizeof(ctl_pack_walk_t));

    walk.folder = folder;
    walk.top = open(folder, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (walk.top == -1) {
        return ctl_fault("%s: %s", folder, strerror(errno));
    }

    rc = ctl_pack_walk(&walk, walk.top, "", 1);

    if (rc == 0) {

        if (walk.n) {
            qsort(walk.entries, walk.n, sizeof(ctl_pack_entry_t),
                  ctl_pack_compare);
        }

        rc = ctl_pack_write(pack, &walk, mtime);
    }

    if (rc == 0) {
        rc = ctl_pack_check(pack->data, pack->size, folder, &pack->skill);
    }

    for (i = 0; i < walk.n; i++) {
        free(walk.entries[i].path);
        free(walk.entries[i].target);
    }

    free(walk.entries);
    close(walk.top);

    return rc;
}


void
ctl_pack_free(ctl_pack_t *pack)
{
    free(pack->data);
    pack->data = NULL;
}


int
ctl_pack_check(const uint8_t *data, size_t size, const char *name,
    sandbox_skill_t *skill)
{
    int                      rc;
    sandbox_skill_reader_t  *reader;

    reader = malloc(sizeof(sandbox_skill_reader_t));

    if (reader == NULL) {
        return ctl_fault("no memory");
    }

    sandbox_skill_init(reader);
    rc = 0;

    if (sandbox_skill_read(reader, data, size) == -1
        || sandbox_skill_end(reader) == -1)
    {
        rc = ctl_fault("%s can't be a skill: %s", name, reader->error);
    }

    *skill = reader->skill;
    free(reader);

    return rc;
}


/* `dir` stays open */

static int
ctl_pack_walk(ctl_pack_walk_t *walk, int dir, const char *path,
    unsigned depth)
{
    int             fd, rc;
    DIR            *stream;
    char           *below;
    struct dirent  *de;

    fd = openat(dir, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    stream = fd == -1 ? NULL : fdopendir(fd);

    if (stream == NULL) {
        if (fd != -1) {
            close(fd);
        }

        return ctl_fault("%s/%s: %s", walk->folder, path, strerror(errno));
    }

    rc = 0;

    while (rc == 0) {
        errno = 0;
        de = readdir(stream);

        if (de == NULL) {
            if (errno) {
                rc = ctl_fault("%s/%s: %s", walk->folder, path,
                               strerror(errno));
            }

            break;
        }

        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0
            || ctl_pack_skipped(de->d_name))
        {
            continue;
        }

        if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", de->d_name)
            == -1)
        {
            rc = ctl_fault("no memory");
            break;
        }

        rc = ctl_pack_look(walk, fd, below, de->d_name, depth);
        free(below);
    }

    closedir(stream);

    return rc;
}


static int
ctl_pack_look(ctl_pack_walk_t *walk, int dir, const char *path,
    const char *name, unsigned depth)
{
    int                fd, rc;
    struct stat        st;
    ctl_pack_entry_t  *entry;

    if (depth > SANDBOX_TAR_MAX_DEPTH
        || strlen(path) > SANDBOX_TAR_MAX_NAME - 2)
    {
        return ctl_fault("%s/%s: a path may have %d parts and %d bytes",
                         walk->folder, path, SANDBOX_TAR_MAX_DEPTH,
                         SANDBOX_TAR_MAX_NAME - 2);
    }

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return ctl_fault("%s/%s: %s", walk->folder, path, strerror(errno));
    }

    entry = ctl_pack_entry(walk, path);

    if (entry == NULL) {
        return -1;
    }

    switch (st.st_mode & S_IFMT) {

    case S_IFREG:
        entry->type = '0';
        entry->mode = st.st_mode & 0111 ? 0755 : 0644;
        entry->size = (uint64_t) st.st_size;
        walk->bytes += entry->size;

        if (entry->size > SANDBOX_SKILL_MAX_BYTES
            || walk->bytes > SANDBOX_SKILL_MAX_BYTES)
        {
            return ctl_fault("%s/%s: the files are more than 64 MiB, which "
                             "the tar of a skill may have", walk->folder,
                             path);
        }

        return 0;

    case S_IFLNK:
        return ctl_pack_link(walk, entry, dir, name);

    case S_IFDIR:
        break;

    default:
        return ctl_fault("%s/%s: only files, folders and links can be in a "
                         "skill", walk->folder, path);
    }

    entry->type = '5';
    entry->mode = 0755;

    fd = openat(dir, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return ctl_fault("%s/%s: %s", walk->folder, path, strerror(errno));
    }

    rc = ctl_pack_walk(walk, fd, path, depth + 1);
    close(fd);

    return rc;
}


static ctl_pack_entry_t *
ctl_pack_entry(ctl_pack_walk_t *walk, const char *path)
{
    ctl_pack_entry_t  *entries;

    if (walk->n == SANDBOX_TAR_MAX_ENTRIES) {
        ctl_fault("%s/%s: a skill may have %d files and folders",
                  walk->folder, path, SANDBOX_TAR_MAX_ENTRIES);
        return NULL;
    }

    if (walk->n == walk->room) {
        walk->room = walk->room ? 2 * walk->room : 64;
        entries = realloc(walk->entries,
                          walk->room * sizeof(ctl_pack_entry_t));

        if (entries == NULL) {
            ctl_fault("no memory");
            return NULL;
        }

        walk->entries = entries;
    }

    memset(&walk->entries[walk->n], 0, sizeof(ctl_pack_entry_t));
    walk->entries[walk->n].path = strdup(path);

    if (walk->entries[walk->n].path == NULL) {
        ctl_fault("no memory");
        return NULL;
    }

    return &walk->entries[walk->n++];
}


static int
ctl_pack_link(ctl_pack_walk_t *walk, ctl_pack_entry_t *entry, int dir,
    const char *name)
{
    char     target[SANDBOX_TAR_MAX_NAME];
    ssize_t  n;

    n = readlinkat(dir, name, target, sizeof(target));

    if (n == -1) {
        return ctl_fault("%s/%s: %s", walk->folder, entry->path,
                         strerror(errno));
    }

    if (n == (ssize_t) sizeof(target)) {
        return ctl_fault("%s/%s: the link is longer than %d bytes",
                         walk->folder, entry->path, SANDBOX_TAR_MAX_NAME - 1);
    }

    target[n] = '\0';

    if (!sandbox_tar_inside(entry->path, target)) {
        return ctl_fault("%s/%s: the link leads out of the folder (it must be "
                         "relative, with \"..\" at its beginning only)",
                         walk->folder, entry->path);
    }

    entry->type = '2';
    entry->mode = 0777;
    entry->target = strdup(target);

    return entry->target == NULL ? ctl_fault("no memory") : 0;
}


/* what tools leave, and what is no part of it */

static int
ctl_pack_skipped(const char *name)
{
    return strcmp(name, ".git") == 0 || strcmp(name, "__pycache__") == 0;
}


static int
ctl_pack_compare(const void *one, const void *two)
{
    int                      first, second;
    const ctl_pack_entry_t  *a = one, *b = two;

    first = strcmp(a->path, "SKILL.md") == 0;
    second = strcmp(b->path, "SKILL.md") == 0;

    return first || second ? second - first : strcmp(a->path, b->path);
}


static int
ctl_pack_write(ctl_pack_t *pack, const ctl_pack_walk_t *walk, uint64_t mtime)
{
    unsigned                 i;
    uint8_t                 *end;
    const ctl_pack_entry_t  *entry;

    for (i = 0; i < walk->n; i++) {
        entry = &walk->entries[i];

        if (ctl_pack_long(pack, entry, mtime) == -1
            || ctl_pack_header(pack, entry->path, entry->type, entry->mode,
                               entry->size, mtime, entry->target)
               == -1
            || (entry->size && ctl_pack_file(pack, walk, entry) == -1))
        {
            return -1;
        }
    }

    end = ctl_pack_add(pack, 2 * SANDBOX_TAR_BLOCK);

    return end == NULL ? -1 : 0;
}


/* a pax header before the one whose fields are too short */

static int
ctl_pack_long(ctl_pack_t *pack, const ctl_pack_entry_t *entry,
    uint64_t mtime)
{
    char      text[2 * SANDBOX_TAR_MAX_NAME + 64];
    size_t    n, prefix;
    uint8_t  *p;

    n = 0;

    if (ctl_pack_split(entry->path, &prefix) == -1) {
        n += ctl_pack_record(text, "path", entry->path);
    }

    if (entry->target != NULL && strlen(entry->target) > 100) {
        n += ctl_pack_record(text + n, "linkpath", entry->target);
    }

    if (n == 0) {
        return 0;
    }

    if (ctl_pack_header(pack, "PaxHeader", 'x', 0644, n, mtime, NULL) == -1) {
        return -1;
    }

    p = ctl_pack_add(pack, n);

    if (p == NULL) {
        return -1;
    }

    memcpy(p, text, n);

    return 0;
}


/* "LENGTH KEY=VALUE\n", where the length counts itself */

static size_t
ctl_pack_record(char *out, const char *key, const char *value)
{
    size_t  n, length;

    n = strlen(key) + strlen(value) + 3;
    length = n + 1;

    while ((size_t) snprintf(NULL, 0, "%zu", length) + n > length) {
        length++;
    }

    return (size_t) sprintf(out, "%zu %s=%s\n", length, key, value);
}


/* 0: it fits, and so many of its bytes go before the slash; -1: it does not */

static int
ctl_pack_split(const char *path, size_t *prefix)
{
    size_t       length;
    const char  *p;

    length = strlen(path);
    *prefix = 0;

    if (length <= 100) {
        return 0;
    }

    for (p = strchr(path, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *prefix = (size_t) (p - path);

        if (*prefix <= 155 && length - *prefix - 1 <= 100) {
            return 0;
        }
    }

    return -1;
}


static int
ctl_pack_header(ctl_pack_t *pack, const char *path, char type, unsigned mode,
    uint64_t size, uint64_t mtime, const char *target)
{
    size_t    i, n, prefix;
    uint8_t  *p;
    unsigned  sum;

    p = ctl_pack_add(pack, SANDBOX_TAR_BLOCK);

    if (p == NULL) {
        return -1;
    }

    if (ctl_pack_split(path, &prefix) == -1) {
        prefix = 0;                              /* pax has it */
    }

    if (prefix) {
        memcpy(p + 345, path, prefix);
        path += prefix + 1;
    }

    n = strlen(path);
    memcpy(p, path, n < 100 ? n : 100);

    if (target != NULL) {
        n = strlen(target);
        memcpy(p + 157, target, n < 100 ? n : 100);
    }

    sprintf((char *) p + 100, "%07o", mode);
    sprintf((char *) p + 108, "%07o", 0);
    sprintf((char *) p + 116, "%07o", 0);
    sprintf((char *) p + 124, "%011llo", (unsigned long long) size);
    sprintf((char *) p + 136, "%011llo", (unsigned long long) mtime);
    memset(p + 148, ' ', 8);
    p[156] = (uint8_t) type;
    memcpy(p + 257, "ustar\0" "00", 8);

    for (sum = 0, i = 0; i < SANDBOX_TAR_BLOCK; i++) {
        sum += p[i];
    }

    sprintf((char *) p + 148, "%06o", sum);

    return 0;
}


static int
ctl_pack_file(ctl_pack_t *pack, const ctl_pack_walk_t *walk,
    const ctl_pack_entry_t *entry)
{
    int       fd;
    char      more;
    size_t    left;
    ssize_t   n;
    uint8_t  *p;

    fd = openat(walk->top, entry->path,
                O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_CLOEXEC);

    if (fd == -1) {
        return ctl_fault("%s/%s: %s", walk->folder, entry->path,
                         strerror(errno));
    }

    p = ctl_pack_add(pack, (size_t) entry->size);

    if (p == NULL) {
        close(fd);
        return -1;
    }

    n = 0;

    for (left = (size_t) entry->size; left; left -= (size_t) n) {

        n = read(fd, p, left);

        if (n == -1 && errno == EINTR) {
            n = 0;
            continue;
        }

        if (n <= 0) {
            break;
        }

        p += n;
    }

    if (n == -1) {
        ctl_fault("%s/%s: %s", walk->folder, entry->path, strerror(errno));
        close(fd);
        return -1;
    }

    if (left || read(fd, &more, 1) == 1) {
        close(fd);
        return ctl_fault("%s/%s: it changes while it is read", walk->folder,
                         entry->path);
    }

    close(fd);

    return 0;
}


/* so many bytes, and zeros up to the next block */

static uint8_t *
ctl_pack_add(ctl_pack_t *pack, size_t size)
{
    size_t    whole, room;
    uint8_t  *data;

    whole = (size + SANDBOX_TAR_BLOCK - 1) / SANDBOX_TAR_BLOCK
            * SANDBOX_TAR_BLOCK;

    if (whole > SANDBOX_SKILL_MAX_BYTES - pack->size) {
        ctl_fault("the tar would have more than 64 MiB, which a skill may "
                  "have");
        return NULL;
    }

    room = pack->room ? pack->room : CTL_PACK_ROOM;

    while (room < pack->size + whole) {
        room *= 2;
    }

    if (room != pack->room) {
        data = realloc(pack->data, room);

        if (data == NULL) {
            ctl_fault("no memory");
            return NULL;
        }

        pack->data = data;
        pack->room = room;
    }

    data = pack->data + pack->size;
    memset(data, 0, whole);
    pack->size += whole;

    return data;
}
