/*
 * Foreign bytes as a skill: as its tar, in pieces and with the sums of its
 * headers put right, as the text of its SKILL.md, as the record kept of it.
 */

/* link: src/tar/sandbox_tar.c src/tar/sandbox_skill.c */
/* link: src/tar/sandbox_skill_text.c src/wire/sandbox_utf8.c */
/* covers: src/tar/sandbox_skill.c src/tar/sandbox_skill_text.c */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox_skill.h"
#include "sandbox_utf8.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_tar(const uint8_t *p, size_t size, size_t piece);
static void fuzz_text(const uint8_t *p, size_t size);
static void fuzz_record(const uint8_t *p, size_t size);
static void fuzz_known(const sandbox_skill_t *skill);
static void fuzz_line(const char *p, size_t size, size_t max);
static void fuzz_sums(uint8_t *p, size_t size);


static sandbox_skill_reader_t  reader;


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    uint8_t  *copy;

    if (size < 2) {
        return 0;
    }

    (void) sandbox_skill_name_wrong((const char *) p + 2, size - 2);

    switch (p[0] & 3) {

    case 0:
        fuzz_tar(p + 2, size - 2, 1 + 4 * p[1]);
        break;

    case 1:
        copy = malloc(size - 2 + 1);
        check(copy != NULL);
        memcpy(copy, p + 2, size - 2);
        fuzz_sums(copy, size - 2);
        fuzz_tar(copy, size - 2, 1 + 4 * p[1]);
        free(copy);
        break;

    case 2:
        fuzz_text(p + 2, size - 2);
        break;

    default:
        fuzz_record(p + 2, size - 2);
    }

    return 0;
}


static void
fuzz_tar(const uint8_t *p, size_t size, size_t piece)
{
    int     rc;
    size_t  n;

    sandbox_skill_init(&reader);
    rc = 0;

    for ( /* void */ ; size && rc == 0; p += n, size -= n) {
        n = size < piece ? size : piece;
        rc = sandbox_skill_read(&reader, p, n);
    }

    if (rc == 0) {
        rc = sandbox_skill_end(&reader);
    }

    check(rc == 0 || rc == -1);
    check(reader.nodes <= SANDBOX_TAR_MAX_ENTRIES);
    check(reader.text_len <= sizeof(reader.text));

    if (rc == -1) {
        n = strlen(reader.error);
        check(n > 0 && n < sizeof(reader.error));
        check(sandbox_utf8_text((uint8_t *) reader.error, n));
        return;
    }

    check(reader.skill.files > 0);
    fuzz_known(&reader.skill);
}


static void
fuzz_text(const uint8_t *p, size_t size)
{
    sandbox_skill_init(&reader);

    size = size < sizeof(reader.text) ? size : sizeof(reader.text);
    memcpy(reader.text, p, size);
    reader.text_len = size;
    reader.skill.manual = 1;

    sandbox_skill_glance(&reader);

    check(reader.text_len <= size);
    fuzz_known(&reader.skill);
}


static void
fuzz_record(const uint8_t *p, size_t size)
{
    size_t           n;
    uint8_t          out[SANDBOX_SKILL_MAX_RECORD], *copy;
    sandbox_skill_t  skill;

    /* by itself, so that a byte too far is seen */

    copy = malloc(size + 1);
    check(copy != NULL);
    memcpy(copy, p, size);

    if (sandbox_skill_parse(copy, size, &skill) == 0) {
        n = sandbox_skill_write(&skill, out);
        check(n <= size && memcmp(out, p, n) == 0);

    } else {
        check(skill.title_len == 0 && skill.paths == 0 && skill.source == 0);
    }

    free(copy);
}


/* Whoever tells of it may rely on this. */

static void
fuzz_known(const sandbox_skill_t *skill)
{
    size_t           n;
    uint8_t          out[SANDBOX_SKILL_MAX_RECORD];
    unsigned         i;
    sandbox_skill_t  again;

    fuzz_line(skill->title, skill->title_len, SANDBOX_SKILL_MAX_TITLE);
    fuzz_line(skill->description, skill->description_len,
              SANDBOX_SKILL_MAX_DESCRIPTION);

    check(skill->paths <= SANDBOX_SKILL_PATHS);
    check(skill->paths <= skill->required);

    n = sandbox_skill_write(skill, out);
    check(n <= sizeof(out));
    check(sandbox_skill_parse(out, n, &again) == 0);
    check(again.title_len == skill->title_len
          && memcmp(again.title, skill->title, again.title_len) == 0);
    check(again.files == skill->files && again.manual == skill->manual);

    for (i = 0; i < skill->paths; i++) {
        check(skill->path[i].len <= SANDBOX_SKILL_MAX_PATH);
        check(again.path[i].len == skill->path[i].len);
    }
}


static void
fuzz_line(const char *p, size_t size, size_t max)
{
    size_t  i;

    check(size <= max);
    check(sandbox_utf8_text((const uint8_t *) p, size));

    for (i = 0; i < size; i++) {
        check((uint8_t) p[i] >= 0x20 && p[i] != 0x7f);
    }
}


static void
fuzz_sums(uint8_t *p, size_t size)
{
    size_t    at, i;
    unsigned  sum;

    static const uint8_t  zero[SANDBOX_TAR_BLOCK];

    for (at = 0; at + SANDBOX_TAR_BLOCK <= size; at += SANDBOX_TAR_BLOCK) {
        if (memcmp(p + at, zero, SANDBOX_TAR_BLOCK) == 0) {
            continue;
        }

        memset(p + at + 148, ' ', 8);

        for (sum = 0, i = 0; i < SANDBOX_TAR_BLOCK; i++) {
            sum += p[at + i];
        }

        snprintf((char *) p + at + 148, 8, "%06o", sum);
    }
}
