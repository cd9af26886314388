/*
 * src/ctl: places of files, and the paths that the gateway has for them.
 */

/* link: src/ctl/place.c src/ctl/options.c src/ctl/text.c src/ctl/name.c */
/* link: src/wire/sandbox_utf8.c -lcrypto */

#include "test.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/place.h"

#include <stdlib.h>


static void
path_is(const char *word, const char *query, const char *path,
    const char *text)
{
    char         *got;
    ctl_place_t   place;

    is_number(ctl_place_read(&place, word, CTL_WANT_PLACE), 0, "\"%s\"",
              word);

    got = ctl_place_path(&place, "C", query);
    is_string(got, path, "the path of \"%s\"", word);
    free(got);

    got = ctl_place_text(&place);
    is_string(got, text, "what \"%s\" is called", word);
    free(got);

    ctl_place_free(&place);
}


static void
test_paths(void)
{
    char  name[6000];

    path_is("files", NULL, "v1/conversations/C/files", "files:");
    path_is("files:", "limit=1", "v1/conversations/C/files?limit=1",
            "files:");
    path_is("attachments:q3.csv", NULL,
            "v1/conversations/C/attachments/q3.csv", "attachments:q3.csv");
    path_is("files:a b/c?d#e%f", NULL,
            "v1/conversations/C/files/a%20b%2Fc%3Fd%23e%25f",
            "'files:a b/c?d#e%f'");
    path_is("files:fs:x", NULL, "v1/conversations/C/files/fs%3Ax",
            "files:fs:x");
    path_is("files:\n\xff", NULL, "v1/conversations/C/files/%0A%FF",
            "$'files:\\n\\xff'");
    path_is("fs", NULL, "v1/conversations/C/fs/", "fs:");
    path_is("fs:", "list", "v1/conversations/C/fs/?list", "fs:");
    path_is("fs:/", "list", "v1/conversations/C/fs/?root=/&list", "fs:/");
    path_is("fs:a/b.txt", NULL, "v1/conversations/C/fs/a/b.txt",
            "fs:a/b.txt");
    path_is("fs:/tmp/x y", NULL, "v1/conversations/C/fs/tmp/x%20y?root=/",
            "'fs:/tmp/x y'");
    path_is("fs:./a//b/./c/.", NULL, "v1/conversations/C/fs/a/b/c",
            "fs:a/b/c/");
    path_is("fs://tmp//", NULL, "v1/conversations/C/fs/tmp?root=/",
            "fs:/tmp/");
    path_is("fs:...", NULL, "v1/conversations/C/fs/...", "fs:...");
    path_is("fs:..a/b..", NULL, "v1/conversations/C/fs/..a/b..",
            "fs:..a/b..");

    memset(name, '/', sizeof(name));
    memcpy(name, "fs:", 3);
    name[sizeof(name) - 1] = '\0';
    path_is(name, NULL, "v1/conversations/C/fs/?root=/", "fs:/");
}


static void
place_is(const char *word, ctl_want_e want, int rc, ctl_place_e kind)
{
    ctl_place_t  place;

    is_number(ctl_place_read(&place, word, want), rc, "reading \"%s\"", word);

    if (rc == 0) {
        is_number(place.kind, kind, "the kind of \"%s\"", word);
    }

    ctl_place_free(&place);
}


static void
test_words(void)
{
    place_is("q3.csv", CTL_WANT_ANY, 0, CTL_PLACE_NONE);
    place_is("files", CTL_WANT_ANY, 0, CTL_PLACE_NONE);
    place_is("files:x", CTL_WANT_ANY, 0, CTL_PLACE_FILES);
    place_is("filesx:x", CTL_WANT_ANY, 0, CTL_PLACE_NONE);
    place_is("fs:x", CTL_WANT_ANY, 0, CTL_PLACE_FS);
    place_is("", CTL_WANT_ANY, 0, CTL_PLACE_NONE);
    place_is("", CTL_WANT_NAME, -1, 0);
    place_is("q3.csv", CTL_WANT_NAME, -1, 0);
    place_is("file:x", CTL_WANT_NAME, -1, 0);
    place_is("x", CTL_WANT_PLACE, -1, 0);
    place_is("fs", CTL_WANT_PLACE, 0, CTL_PLACE_FS);
    place_is("fs:..", CTL_WANT_PLACE, -1, 0);
    place_is("fs:a/../b", CTL_WANT_NAME, -1, 0);
    place_is("fs:/..", CTL_WANT_ANY, -1, 0);
}


static void
check_is(const char *word, int rc)
{
    ctl_place_t  place;

    is_number(ctl_place_read(&place, word, CTL_WANT_PLACE), 0, "\"%.20s\"",
              word);
    is_number(ctl_place_check(&place), rc, "a file's name: \"%.20s\"", word);

    ctl_place_free(&place);
}


static void
test_check(void)
{
    char  name[5000];

    check_is("files:x", 0);
    check_is("files:", -1);
    check_is("files", -1);
    check_is("files:a/b", -1);
    check_is("files:.", -1);
    check_is("attachments:..", -1);
    check_is("attachments:...", 0);
    check_is("fs:", -1);
    check_is("fs:/", -1);
    check_is("fs:a/", -1);
    check_is("fs:a/.", -1);
    check_is("fs:a", 0);

    memset(name, 'n', sizeof(name));
    memcpy(name, "files:", 6);
    name[6 + 256] = '\0';
    check_is(name, -1);
    name[6 + 255] = '\0';
    check_is(name, 0);

    memset(name, 'n', sizeof(name));
    memcpy(name, "fs:", 3);
    name[3 + 4096] = '\0';
    check_is(name, -1);
    name[3 + 4095] = '\0';
    check_is(name, 0);

    is_string(ctl_base_name("a/b"), "b", "the last part");
    is_string(ctl_base_name("b"), "b", "the only part");
    is_string(ctl_base_name("a/"), "", "no part");
}


int
main(void)
{
    test_paths();
    test_words();
    test_check();

    return test_done();
}
