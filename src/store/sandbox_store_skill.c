/*
 * Skills of a conversation: read to their end before they get a name, with
 * what is told of them in the block of their file.  May block: for threads.
 */

#include "sandbox_store_core.h"
#include "sandbox_store_skill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define SANDBOX_STORE_SKILL_PIECE   (128 * 1024)
#define SANDBOX_STORE_SKILL_TRIES   4


/* a file of the library */

typedef struct {
    int            fd;
    uint64_t       size;
    uint64_t       stamp;
    char           path[SANDBOX_STORE_MAX_PATH];
} sandbox_store_source_t;


static unsigned sandbox_store_skill_read(int fd, off_t at, uint64_t size,
    sandbox_skill_reader_t *reader, const char *path,
    sandbox_store_fault_t *fault);
static unsigned sandbox_store_skill_named(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, const sandbox_store_quota_t *quota,
    const sandbox_store_condition_t *condition,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault);
static unsigned sandbox_store_skill_try(const sandbox_store_place_t *place,
    const sandbox_store_quota_t *quota, const char *library,
    sandbox_store_skill_mode_e mode, sandbox_store_writer_t *w,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault);
static unsigned sandbox_store_skill_known(const sandbox_store_place_t *place,
    int fd, sandbox_skill_reader_t *reader,
    const sandbox_store_entry_t *entry, sandbox_store_fault_t *fault);
static unsigned sandbox_store_source_open(const char *library,
    const sandbox_store_entry_t *entry, sandbox_store_source_t *source,
    sandbox_store_fault_t *fault);
static uint64_t sandbox_store_source_stamp(const struct stat *st);
static unsigned sandbox_store_source_copy(sandbox_store_source_t *source,
    const char *root, sandbox_store_writer_t *w,
    sandbox_skill_reader_t *reader, sandbox_store_fault_t *fault);


unsigned
sandbox_store_skill_commit(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, const sandbox_store_quota_t *quota,
    const sandbox_store_condition_t *condition,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault)
{
    unsigned  status;

    status = sandbox_store_skill_read(w->fd, SANDBOX_STORE_BLOCK, w->size,
                                      reader, w->path, fault);

    if (status != SANDBOX_STORE_OK) {
        sandbox_store_writer_abort(w);
        return status;
    }

    reader->skill.source = SANDBOX_SKILL_UPLOAD;

    return sandbox_store_skill_named(w, place, quota, condition, reader,
                                     entry, created, fault);
}


/* fd -1 is a file with nothing in it */

static unsigned
sandbox_store_skill_read(int fd, off_t at, uint64_t size,
    sandbox_skill_reader_t *reader, const char *path,
    sandbox_store_fault_t *fault)
{
    char      *piece;
    size_t     want;
    ssize_t    n;
    unsigned   status;

    piece = malloc(SANDBOX_STORE_SKILL_PIECE);
    if (piece == NULL) {
        return sandbox_store_fault(fault, "malloc", path, ENOMEM);
    }

    sandbox_skill_init(reader);
    status = SANDBOX_STORE_OK;

    while (size && fd != -1) {

        want = size < SANDBOX_STORE_SKILL_PIECE ? (size_t) size
                                                : SANDBOX_STORE_SKILL_PIECE;
        n = pread(fd, piece, want, at);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n <= 0) {
            status = sandbox_store_fault(fault, "read", path,
                                         n == -1 ? errno : EIO);
            break;
        }

        if (sandbox_skill_read(reader, (uint8_t *) piece, (size_t) n) == -1) {
            status = SANDBOX_STORE_REFUSED;
            break;
        }

        at += n;
        size -= (uint64_t) n;
    }

    free(piece);

    if (status == SANDBOX_STORE_OK && sandbox_skill_end(reader) == -1) {
        status = SANDBOX_STORE_REFUSED;
    }

    if (status == SANDBOX_STORE_REFUSED) {
        return sandbox_store_refused(fault, status, 0);
    }

    return status;
}


static unsigned
sandbox_store_skill_named(sandbox_store_writer_t *w,
    const sandbox_store_place_t *place, const sandbox_store_quota_t *quota,
    const sandbox_store_condition_t *condition,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault)
{
    uint8_t   record[SANDBOX_SKILL_MAX_RECORD];
    unsigned  status;

    w->record = record;
    w->record_size = sandbox_skill_write(&reader->skill, record);

    status = sandbox_store_commit(w, place, SANDBOX_STORE_SKILLS, quota,
                                  SANDBOX_STORE_REPLACE, condition, entry,
                                  created, fault);
    w->record = NULL;
    w->record_size = 0;

    return status;
}


unsigned
sandbox_store_skill_load(const sandbox_store_place_t *place,
    const sandbox_store_quota_t *quota, const char *library,
    sandbox_store_skill_mode_e mode, sandbox_store_writer_t *w,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault)
{
    unsigned               i, status;
    uint64_t               max;
    sandbox_store_entry_t  asked;

    asked = *entry;
    max = w->max;

    for (i = 0; i < SANDBOX_STORE_SKILL_TRIES; i++) {

        *entry = asked;
        status = sandbox_store_skill_try(place, quota, library, mode, w,
                                         reader, entry, created, fault);

        if (status != SANDBOX_STORE_PRECONDITION) {
            return status;
        }

        /* another one was quicker, and may have been an upload */

        sandbox_store_writer_init(w, max);
    }

    return sandbox_store_refused(fault, SANDBOX_STORE_BUSY, 0);
}


/* PRECONDITION: what was there when it began is not there any more */

static unsigned
sandbox_store_skill_try(const sandbox_store_place_t *place,
    const sandbox_store_quota_t *quota, const char *library,
    sandbox_store_skill_mode_e mode, sandbox_store_writer_t *w,
    sandbox_skill_reader_t *reader, sandbox_store_entry_t *entry,
    unsigned *created, sandbox_store_fault_t *fault)
{
    int                        fd;
    char                       etag[SANDBOX_STORE_ETAG_TEXT + 1];
    unsigned                   status;
    sandbox_skill_t            old;
    sandbox_store_entry_t      found;
    sandbox_store_source_t     source;
    sandbox_store_condition_t  condition;

    *created = 0;
    memset(&condition, 0, sizeof(condition));
    memset(&old, 0, sizeof(old));

    status = sandbox_store_lookup(place, SANDBOX_STORE_SKILLS, entry->name,
                                  entry->name_len, NULL, &found, &fd, fault);

    if (status == SANDBOX_STORE_OK) {

        sandbox_store_skill_record(fd, &old);
        sandbox_store_etag(found.sha256, etag);
        condition.match = etag;
        condition.match_len = SANDBOX_STORE_ETAG_TEXT;

        if (old.source != SANDBOX_SKILL_LIBRARY) {

            if (mode == SANDBOX_STORE_SKILL_ANY) {
                goto known;
            }

            close(fd);
            return sandbox_store_refused(fault, SANDBOX_STORE_EXISTS, 0);
        }

    } else if (status == SANDBOX_STORE_MISSING) {
        fd = -1;
        condition.none_match = "*";
        condition.none_match_len = 1;

    } else if (status == SANDBOX_STORE_DAMAGED) {
        fd = -1;

    } else {
        return status;
    }

    memset(&source, 0, sizeof(source));
    status = sandbox_store_source_open(library, entry, &source, fault);

    if (status != SANDBOX_STORE_OK) {

        /* the library may have lost it since */

        if (status == SANDBOX_STORE_MISSING && fd != -1
            && mode == SANDBOX_STORE_SKILL_ANY)
        {
            goto known;
        }

        if (fd != -1) {
            close(fd);
        }

        return status;
    }

    if (fd != -1 && old.stamp == source.stamp) {
        close(source.fd);
        goto known;
    }

    if (fd != -1) {
        close(fd);
    }

    status = sandbox_store_source_copy(&source, place->root, w, reader,
                                       fault);
    close(source.fd);

    if (status != SANDBOX_STORE_OK) {
        sandbox_store_writer_abort(w);
        return status;
    }

    reader->skill.source = SANDBOX_SKILL_LIBRARY;
    reader->skill.stamp = source.stamp;

    return sandbox_store_skill_named(w, place, quota, &condition, reader,
                                     entry, created, fault);

known:

    *entry = found;

    return sandbox_store_skill_known(place, fd, reader, entry, fault);
}


/* one that is there already: its text again */

static unsigned
sandbox_store_skill_known(const sandbox_store_place_t *place, int fd,
    sandbox_skill_reader_t *reader, const sandbox_store_entry_t *entry,
    sandbox_store_fault_t *fault)
{
    unsigned         status;
    sandbox_skill_t  skill;

    status = sandbox_store_skill_read(fd, SANDBOX_STORE_BLOCK, entry->size,
                                      reader, place->conversation, fault);

    sandbox_store_skill_record(fd, &skill);
    close(fd);

    reader->skill.source = skill.source;
    reader->skill.stamp = skill.stamp;

    return status;
}


/* beneath the folder, a file itself and no link */

static unsigned
sandbox_store_source_open(const char *library,
    const sandbox_store_entry_t *entry, sandbox_store_source_t *source,
    sandbox_store_fault_t *fault)
{
    int          folder, error;
    char         name[SANDBOX_SKILL_MAX_NAME + sizeof(".tar")];
    struct stat  st;

    if (library[0] == '\0'
        || sandbox_skill_name_wrong(entry->name, entry->name_len) != NULL)
    {
        return sandbox_store_refused(fault, SANDBOX_STORE_MISSING, 0);
    }

    memcpy(name, entry->name, entry->name_len);
    strcpy(name + entry->name_len, ".tar");
    sandbox_store_path(source->path, library, name);

    folder = open(library, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (folder == -1) {
        return sandbox_store_fault(fault, "open", library, errno);
    }

    source->fd = openat(folder, name,
                        O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);
    error = errno;
    close(folder);

    if (source->fd == -1) {

        if (error == ENOENT) {
            return sandbox_store_refused(fault, SANDBOX_STORE_MISSING, 0);
        }

        return sandbox_store_fault(fault, "open", source->path, error);
    }

    if (fstat(source->fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        close(source->fd);
        return sandbox_store_fault(fault, "open", source->path, EINVAL);
    }

    source->size = (uint64_t) st.st_size;
    source->stamp = sandbox_store_source_stamp(&st);

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


/* another one after every change of the file, or of which file it is */

static uint64_t
sandbox_store_source_stamp(const struct stat *st)
{
    size_t    i;
    uint64_t  hash, part[7];

    part[0] = (uint64_t) st->st_dev;
    part[1] = (uint64_t) st->st_ino;
    part[2] = (uint64_t) st->st_size;
    part[3] = (uint64_t) st->st_mtim.tv_sec;
    part[4] = (uint64_t) st->st_mtim.tv_nsec;
    part[5] = (uint64_t) st->st_ctim.tv_sec;
    part[6] = (uint64_t) st->st_ctim.tv_nsec;

    hash = 0xcbf29ce484222325;

    for (i = 0; i < 7; i++) {
        hash = (hash ^ part[i]) * 0x100000001b3;
        hash ^= hash >> 29;
    }

    return hash;
}


static unsigned
sandbox_store_source_copy(sandbox_store_source_t *source, const char *root,
    sandbox_store_writer_t *w, sandbox_skill_reader_t *reader,
    sandbox_store_fault_t *fault)
{
    char      *piece;
    ssize_t    n;
    unsigned   status;

    sandbox_skill_init(reader);

    if (source->size > SANDBOX_SKILL_MAX_BYTES) {
        snprintf(reader->error, sizeof(reader->error), "It has more than "
                 "64 MiB.");
        return sandbox_store_refused(fault, SANDBOX_STORE_REFUSED, 0);
    }

    piece = malloc(SANDBOX_STORE_SKILL_PIECE);
    if (piece == NULL) {
        return sandbox_store_fault(fault, "malloc", source->path, ENOMEM);
    }

    status = SANDBOX_STORE_OK;

    while (status == SANDBOX_STORE_OK) {

        n = read(source->fd, piece, SANDBOX_STORE_SKILL_PIECE);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1) {
            status = sandbox_store_fault(fault, "read", source->path, errno);
            break;
        }

        if (n == 0) {
            break;
        }

        /* it grows while it is read: then it is no whole one now */

        if ((uint64_t) n > source->size - w->size
            || sandbox_skill_read(reader, (uint8_t *) piece, (size_t) n)
               == -1)
        {
            if (reader->error[0] == '\0') {
                snprintf(reader->error, sizeof(reader->error), "It changes "
                         "while it is read.");
            }

            status = SANDBOX_STORE_REFUSED;
            break;
        }

        status = sandbox_store_write(w, root, piece, (size_t) n, fault);
    }

    free(piece);

    if (status == SANDBOX_STORE_OK && sandbox_skill_end(reader) == -1) {
        status = SANDBOX_STORE_REFUSED;
    }

    if (status == SANDBOX_STORE_REFUSED) {
        (void) sandbox_store_refused(fault, status, 0);
        snprintf(fault->path, sizeof(fault->path), "%s", source->path);
    }

    return status;
}


void
sandbox_store_skill_record(int fd, sandbox_skill_t *skill)
{
    size_t                 size;
    ssize_t                n;
    uint8_t                block[SANDBOX_STORE_BLOCK];
    const uint8_t         *p;
    sandbox_store_entry_t  entry;

    p = NULL;
    n = pread(fd, block, sizeof(block), 0);

    if (n > 0 && sandbox_store_read_block(block, (size_t) n, &entry) == 0) {
        p = sandbox_store_read_record(block, &size);
    }

    if (p == NULL) {
        size = 0;
        p = block;
    }

    (void) sandbox_skill_parse(p, size, skill);
}
