/*
 * Lists of skills: those of a conversation, those that the administrator's
 * library offers.  May block: for threads.
 */

#include "sandbox_store_core.h"
#include "sandbox_store_skill.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define SANDBOX_STORE_GLANCE   (64 * 1024)       /* bytes of one */


typedef struct {
    size_t         len;
    char           data[SANDBOX_SKILL_MAX_NAME];
} sandbox_store_name_t;

typedef struct {
    sandbox_store_name_t  *names;
    size_t                 n;
    size_t                 limit;
    unsigned               more;
} sandbox_store_names_t;


static size_t sandbox_store_library_name(const char *file);
static void sandbox_store_library_read(DIR *dir, const char *after,
    size_t after_len, sandbox_store_names_t *names);
static void sandbox_store_library_add(sandbox_store_names_t *names,
    const char *name, size_t len);
static int sandbox_store_library_compare(const char *a, size_t a_len,
    const char *b, size_t b_len);
static int sandbox_store_library_look(int folder,
    sandbox_store_skill_t *skill, sandbox_skill_reader_t *reader);


unsigned
sandbox_store_skill_list(const sandbox_store_place_t *place,
    const char *after, size_t after_len, size_t limit,
    sandbox_store_skills_t *list, sandbox_store_fault_t *fault)
{
    int                    fd;
    size_t                 i;
    unsigned               status;
    sandbox_store_list_t   files;
    sandbox_store_skill_t *skill;

    memset(list, 0, sizeof(sandbox_store_skills_t));

    status = sandbox_store_list(place, SANDBOX_STORE_SKILLS, after, after_len,
                                limit, &files, fault);

    if (status != SANDBOX_STORE_OK || files.n == 0) {
        return status;
    }

    list->skills = calloc(files.n, sizeof(sandbox_store_skill_t));

    if (list->skills == NULL) {
        sandbox_store_list_free(&files);
        return sandbox_store_fault(fault, "malloc", place->conversation,
                                   ENOMEM);
    }

    for (i = 0; i < files.n; i++) {

        skill = &list->skills[list->n];

        if (files.entries[i].name_len > SANDBOX_SKILL_MAX_NAME
            || sandbox_store_lookup(place, SANDBOX_STORE_SKILLS,
                                    files.entries[i].name,
                                    files.entries[i].name_len, NULL,
                                    &skill->entry, &fd, fault)
               != SANDBOX_STORE_OK)
        {
            continue;                            /* gone since then */
        }

        sandbox_store_skill_record(fd, &skill->skill);
        close(fd);

        skill->size = skill->entry.size;
        skill->modified_ms = skill->entry.modified_ms;
        skill->name_len = skill->entry.name_len;
        memcpy(skill->name, skill->entry.name, skill->name_len);

        list->n++;
    }

    list->more = files.more;
    sandbox_store_list_free(&files);

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


void
sandbox_store_skills_free(sandbox_store_skills_t *list)
{
    free(list->skills);
    list->skills = NULL;
    list->n = 0;
}


unsigned
sandbox_store_library_list(const char *library, const char *after,
    size_t after_len, size_t limit, sandbox_store_skills_t *list,
    sandbox_store_fault_t *fault)
{
    DIR                     *dir;
    size_t                   i;
    sandbox_store_names_t    names;
    sandbox_store_skill_t   *skill;
    sandbox_skill_reader_t  *reader;

    memset(list, 0, sizeof(sandbox_store_skills_t));
    memset(&names, 0, sizeof(sandbox_store_names_t));

    dir = opendir(library);

    if (dir == NULL) {
        return sandbox_store_fault(fault, "opendir", library, errno);
    }

    names.limit = (limit == 0 || limit > SANDBOX_STORE_MAX_LIST)
                  ? SANDBOX_STORE_MAX_LIST : limit;
    names.names = malloc(names.limit * sizeof(sandbox_store_name_t));
    reader = malloc(sizeof(sandbox_skill_reader_t));

    if (names.names == NULL || reader == NULL) {
        goto failed;
    }

    sandbox_store_library_read(dir, after, after_len, &names);

    list->more = names.more;
    list->skills = calloc(names.n + 1, sizeof(sandbox_store_skill_t));

    if (list->skills == NULL) {
        goto failed;
    }

    for (i = 0; i < names.n; i++) {
        skill = &list->skills[list->n];
        skill->name_len = (unsigned) names.names[i].len;
        memcpy(skill->name, names.names[i].data, skill->name_len);

        list->n += (size_t) sandbox_store_library_look(dirfd(dir), skill,
                                                       reader);
    }

    free(reader);
    free(names.names);
    closedir(dir);

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);

failed:

    free(reader);
    free(names.names);
    closedir(dir);

    return sandbox_store_fault(fault, "malloc", library, ENOMEM);
}


static void
sandbox_store_library_read(DIR *dir, const char *after, size_t after_len,
    sandbox_store_names_t *names)
{
    size_t          len;
    unsigned        seen;
    struct dirent  *de;

    for (seen = 0; seen < SANDBOX_STORE_MAX_LIBRARY; seen++) {

        de = readdir(dir);

        if (de == NULL) {
            return;
        }

        len = sandbox_store_library_name(de->d_name);

        if (len && (after_len == 0
                    || sandbox_store_library_compare(de->d_name, len, after,
                                                     after_len) > 0))
        {
            sandbox_store_library_add(names, de->d_name, len);
        }
    }
}


/* bytes of the skill's name in that of its file; 0: it is no skill */

static size_t
sandbox_store_library_name(const char *file)
{
    size_t  len;

    len = strlen(file);

    if (len < 5 || strcmp(file + len - 4, ".tar") != 0
        || sandbox_skill_name_wrong(file, len - 4) != NULL)
    {
        return 0;
    }

    return len - 4;
}


/* the smallest names, in order */

static void
sandbox_store_library_add(sandbox_store_names_t *names, const char *name,
    size_t len)
{
    size_t                 low, high, mid;
    sandbox_store_name_t  *place;

    low = 0;
    high = names->n;

    while (low < high) {
        mid = (low + high) / 2;
        place = &names->names[mid];

        if (sandbox_store_library_compare(name, len, place->data, place->len)
            < 0)
        {
            high = mid;

        } else {
            low = mid + 1;
        }
    }

    if (names->n == names->limit) {
        names->more = 1;

        if (low == names->limit) {
            return;
        }

        names->n--;
    }

    place = &names->names[low];
    memmove(place + 1, place,
            (names->n - low) * sizeof(sandbox_store_name_t));

    memcpy(place->data, name, len);
    place->len = len;
    names->n++;
}


static int
sandbox_store_library_compare(const char *a, size_t a_len, const char *b,
    size_t b_len)
{
    int  rc;

    rc = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return rc ? rc : (int) a_len - (int) b_len;
}


/* 0: it is no file, or can't be read */

static int
sandbox_store_library_look(int folder, sandbox_store_skill_t *skill,
    sandbox_skill_reader_t *reader)
{
    int          fd;
    char         name[SANDBOX_SKILL_MAX_NAME + sizeof(".tar")];
    uint8_t     *piece;
    ssize_t      n;
    struct stat  st;

    memcpy(name, skill->name, skill->name_len);
    strcpy(name + skill->name_len, ".tar");

    fd = openat(folder, name, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == -1) {
        return 0;
    }

    piece = malloc(SANDBOX_STORE_GLANCE);

    if (piece == NULL || fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        free(piece);
        close(fd);
        return 0;
    }

    n = pread(fd, piece, SANDBOX_STORE_GLANCE, 0);
    close(fd);

    sandbox_skill_init(reader);

    if (n > 0 && sandbox_skill_read(reader, piece, (size_t) n) == 0) {
        sandbox_skill_glance(reader);
        skill->skill = reader->skill;
    }

    skill->skill.source = SANDBOX_SKILL_LIBRARY;

    free(piece);

    skill->size = (uint64_t) st.st_size;
    skill->modified_ms = (uint64_t) st.st_mtim.tv_sec * 1000
                         + (uint64_t) st.st_mtim.tv_nsec / 1000000;

    return 1;
}
