/*
 * A skill: what is true of all of its tar, what is told of it, its names and
 * the record that is kept of it.
 */

/* link: src/tar/sandbox_tar.c src/tar/sandbox_skill.c */
/* link: src/tar/sandbox_skill_text.c src/wire/sandbox_utf8.c */

#include <stdlib.h>

#include "test.h"
#include "sandbox_skill.h"


static uint8_t                 archive[64 * 1024];
static size_t                  archive_size;
static sandbox_skill_reader_t  reader;


static void
add(const char *name, char type, const char *data)
{
    size_t    i, size;
    uint8_t  *block;
    unsigned  n;

    size = type == '0' ? strlen(data) : 0;
    block = archive + archive_size;
    memset(block, 0, SANDBOX_TAR_BLOCK + (size + 511) / 512 * 512);
    memcpy(block, name, strlen(name));
    memcpy(block + 100, "0000644", 8);
    snprintf((char *) block + 124, 12, "%011o", (unsigned) size);
    block[156] = (uint8_t) type;

    if (type == '2') {
        strcpy((char *) block + 157, data);
    }

    memcpy(block + 257, "ustar\0" "00", 8);
    memset(block + 148, ' ', 8);

    for (n = 0, i = 0; i < SANDBOX_TAR_BLOCK; i++) {
        n += block[i];
    }

    snprintf((char *) block + 148, 7, "%06o", n);
    memcpy(block + SANDBOX_TAR_BLOCK, data, size);

    archive_size += SANDBOX_TAR_BLOCK + (size + 511) / 512 * 512;
}


/* "", or why it is refused. */

static const char *
readout(size_t piece)
{
    int     rc;
    size_t  at, n;

    sandbox_skill_init(&reader);
    rc = 0;

    for (at = 0; at < archive_size && rc == 0; at += n) {
        n = archive_size - at < piece ? archive_size - at : piece;
        rc = sandbox_skill_read(&reader, archive + at, n);
    }

    if (rc == 0) {
        rc = sandbox_skill_end(&reader);
    }

    return rc ? reader.error : "";
}


/* the end, and what is said of it; the next one begins */

static const char *
whole(void)
{
    const char  *error;

    memset(archive + archive_size, 0, 10240);
    archive_size += 10240;
    error = readout(10000);
    is_string(readout(3), error, "the same in small pieces: %s", error);
    archive_size = 0;

    return error;
}


static void
test_good(void)
{
    add("./", '5', "");
    add("SKILL.md", '0', "---\nname: charts\ndescription: Draws charts.\n"
                         "---\n# Charts\n");
    add("lib/deep/requirements.txt", '0', "x==1\n");
    add("lib", '5', "");
    add("lib/link", '2', "../SKILL.md");
    add("requirements.txt", '0', "");
    is_string(whole(), "", "a skill");

    is_number(reader.skill.files, 4, "files, and links");
    is_number(reader.skill.bytes, 62, "bytes of them");
    is_bytes(reader.skill.title, reader.skill.title_len, "charts", 6, "name");
    is_bytes(reader.skill.description, reader.skill.description_len,
             "Draws charts.", 13, "description");
    is_number(reader.skill.required, 2, "two requirements.txt");
    is_bytes(reader.skill.path[0].data, reader.skill.path[0].len,
             "lib/deep/requirements.txt", 25, "the first of them");
    is_number(reader.skill.inner, 0, "not all in one folder");
    ok(strncmp((char *) reader.text, "---\nname: charts\n", 17) == 0
       && reader.text_len == 57 && reader.text_size == 57, "its text");

    /* in one folder; beside others; the one at the top is the one */

    add("s/SKILL.md", '0', "---\nname: in\n---\n");
    add("s/x", '0', "");
    is_string(whole(), "", "all in one folder");
    is_number(reader.skill.inner, 1, "is told");
    is_bytes(reader.skill.title, reader.skill.title_len, "in", 2, "and read");

    add("s/SKILL.md", '0', "---\nname: in\n---\n");
    add("t", '0', "");
    is_string(whole(), "", "one of two");
    is_number(reader.skill.manual, 0, "is none of the skill's");
    is_number(reader.text_len, 0, "nor its text");

    add("s/SKILL.md", '0', "---\nname: in\n---\n");
    add("SKILL.md", '0', "---\nname: top\n---\n");
    add("s/t/SKILL.md", '0', "---\nname: deep\n---\n");
    is_string(whole(), "", "three of them");
    is_bytes(reader.skill.title, reader.skill.title_len, "top", 3, "the top");
}


static void
refused(const char *expected, const char *what)
{
    const char  *error;

    error = whole();
    is_string(error, expected, "%s", what);
}


static void
test_bad(void)
{
    unsigned  i;
    char      name[64];

    add("a/b", '0', "");
    add("a/b", '0', "");
    refused("\"a/b\": The tar has two entries of that name.", "twice");

    add("a", '5', "");
    add("a/", '5', "");
    refused("\"a\": The tar has two entries of that name.", "folders, too");

    add("a/b", '0', "");
    add("a", '0', "");
    refused("\"a\": The tar has two entries of that name.",
            "a file where a folder is");

    add("a", '0', "");
    add("a/b/c", '0', "");
    refused("\"a/b/c\": It is below a link or a file of the tar.",
            "below a file");

    add("d", '5', "");
    add("l", '2', "d");
    add("l/x", '0', "");
    refused("\"l/x\": It is below a link or a file of the tar.",
            "through a link");

    add("x/y/z/k", '2', "../../..");
    add("q", '2', "x/y/z/k/../../etc/passwd");
    refused("\"q\": A link leads out of the tar, or has a \"..\" behind a "
            "name.", "out by two links");

    add("fine", '0', "");
    add("../x\n\xff", '0', "");
    refused("\"../x\\x0a\\xff\": A path of the tar has \"..\".",
            "an entry is named, as it is");

    add("null", '3', "");
    refused("\"null\": The tar has something else than files, directories and "
            "symbolic links.", "a device");

    add("d", '5', "");
    refused("There is no file in the tar.", "folders only");
    refused("There is no file in the tar.", "nothing");

    add("a", '0', "x");
    is_string(readout(512), "\"a\": The tar is cut short: its end of two zero "
              "blocks is missing.", "without an end");
    memset(archive + archive_size, 0, 1024);
    archive[archive_size + 1024] = 'x';
    archive_size += 1025;
    is_string(readout(512), "Something follows the end of the tar.",
              "something behind it");
    archive_size = 0;

    memcpy(archive, "\x1f\x8b\x08", 3);
    archive_size = 3;
    is_string(readout(512), "It is compressed (gzip): a skill is a plain tar, "
              "unpack it first.", "a short one that is compressed");
    is_string(reader.compressed, "gzip", "which is known");
    archive_size = 1000;
    memcpy(archive, "\xfd" "7zXZ\0", 6);
    is_string(readout(7), "It is compressed (xz): a skill is a plain tar, "
              "unpack it first.", "a long one");
    memset(archive, 'x', 1000);
    is_string(readout(7), "It is no plain tar, or damaged.", "something else");
    ok(reader.compressed == NULL, "which is not");
    archive_size = 0;

    /* folders that no entry names count, too */

    sandbox_skill_init(&reader);

    for (i = 0; i < SANDBOX_TAR_MAX_ENTRIES; i++) {
        archive_size = 0;
        snprintf(name, sizeof(name), "%u/b/c/d", i);
        add(name, '0', "");

        if (sandbox_skill_read(&reader, archive, archive_size) == -1) {
            break;
        }
    }

    is_number(i, SANDBOX_TAR_MAX_ENTRIES / 4, "so many with their folders");
    ok(strstr(reader.error, "20,000 files and folders") != NULL, "refused: %s",
       reader.error);
    archive_size = 0;
}


static void
matter(const char *text, const char *title, const char *description)
{
    static unsigned  count;

    sandbox_skill_init(&reader);
    memcpy(reader.text, text, strlen(text));
    reader.text_len = strlen(text);
    reader.skill.manual = 1;
    sandbox_skill_glance(&reader);

    is_bytes(reader.skill.title, reader.skill.title_len, title, strlen(title),
             "front matter %u, its name", ++count);
    is_bytes(reader.skill.description, reader.skill.description_len,
             description, strlen(description), "and its description");
}


static void
test_matter(void)
{
    char  text[4096];

    matter("---\nname: a\ndescription: b c \n---\nname: no\n", "a", "b c");
    matter("---\r\nname: a\r\ndescription: b\r\n---\r\n", "a", "b");
    matter("\xef\xbb\xbf---\nname: a\n---\n", "a", "");
    matter("# name: a\n", "", "");
    matter("name: a\n", "", "");
    matter("---\nname: \"a \\\"b\\\" \\\\c\"\ndescription: 'it''s'\n---\n",
           "a \"b\" \\c", "it's");
    matter("---\ndescription: >-\n  one\n  two\n\n  three\nname: x\n---\n",
           "x", "one two three");
    matter("---\ndescription: |\n  one\n  two\nname: x # why\n---\n", "x",
           "one two");
    matter("---\ndescription: one\n  two\nname: x#y\n---\n", "x#y", "one two");
    matter("---\n name: indented\nnames: x\nname : y\n---\n", "", "");
    matter("---\nname: a\nname: b\n---\n", "a", "");

    /* no controls, no directions, no tags; U+202E, U+E0061, U+0085, U+200B */

    matter("---\nname: a\x1b[2J\xe2\x80\xae" "b\xf3\xa0\x81\xa1" "c\xc2\x85"
           "d\xe2\x80\x8b\xff" "e\tf\n---\n", "a[2Jbcde f", "");

    /* cut at a character: 64 bytes are 21 of three and one byte */

    strcpy(text, "---\nname: ");

    while (strlen(text) < 200) {
        strcat(text, "\xe2\x82\xac");
    }

    strcat(text, "\n---\n");
    sandbox_skill_init(&reader);
    memcpy(reader.text, text, strlen(text));
    reader.text_len = strlen(text);
    reader.skill.manual = 1;
    sandbox_skill_glance(&reader);
    is_number(reader.skill.title_len, 63, "a long name is cut");
}


static void
test_names(void)
{
    ok(sandbox_skill_name_wrong("a", 1) == NULL, "a");
    ok(sandbox_skill_name_wrong("0.b_C-9", 7) == NULL, "letters and marks");
    ok(sandbox_skill_name_wrong("", 0) != NULL, "nothing");
    ok(sandbox_skill_name_wrong(".", 1) != NULL, ".");
    ok(sandbox_skill_name_wrong("..", 2) != NULL, "..");
    ok(sandbox_skill_name_wrong(".a", 2) != NULL, "a dot first");
    ok(sandbox_skill_name_wrong("-rf", 3) != NULL, "a hyphen first");
    ok(sandbox_skill_name_wrong("a/b", 3) != NULL, "a slash");
    ok(sandbox_skill_name_wrong("a b", 3) != NULL, "a blank");
    ok(sandbox_skill_name_wrong("a\0b", 3) != NULL, "a NUL");
    ok(sandbox_skill_name_wrong("\xc3\xa9", 2) != NULL, "another letter");
    ok(sandbox_skill_name_wrong("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                "aaaaaaaaaaaaaaaaaaaa", 64) == NULL, "64");
    ok(sandbox_skill_name_wrong("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                "aaaaaaaaaaaaaaaaaaaaa", 65) != NULL, "65");
}


static void
test_record(void)
{
    size_t           n, i;
    uint8_t          record[SANDBOX_SKILL_MAX_RECORD];
    sandbox_skill_t  skill, again;

    memset(&skill, 0, sizeof(skill));
    skill.source = SANDBOX_SKILL_LIBRARY;
    skill.stamp = 0x0123456789abcdef;
    skill.files = 3;
    skill.bytes = 1 << 20;
    skill.manual = 1;
    skill.required = 9;
    skill.paths = 4;
    skill.title_len = sizeof(skill.title);
    memset(skill.title, 't', skill.title_len);
    skill.description_len = sizeof(skill.description);
    memset(skill.description, 'd', skill.description_len);

    for (i = 0; i < 4; i++) {
        skill.path[i].len = SANDBOX_SKILL_MAX_PATH;
        memset(skill.path[i].data, 'p', SANDBOX_SKILL_MAX_PATH);
    }

    n = sandbox_skill_write(&skill, record);
    ok(n <= sizeof(record), "%u bytes at most", (unsigned) n);
    is_number(sandbox_skill_parse(record, n, &again), 0, "is read");
    ok(memcmp(&skill, &again, sizeof(skill)) == 0, "as it was written");

    for (i = 0; i < n; i++) {
        if (sandbox_skill_parse(record, i, &again) != -1 || again.files) {
            break;
        }
    }

    is_number(i, n, "none that is cut short");
}


int
main(void)
{
    test_good();
    test_bad();
    test_matter();
    test_names();
    test_record();

    return test_done();
}
