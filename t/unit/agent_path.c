/*
 * Paths of files, and names made of others.
 */

/* link: src/agent/agent_path.c src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include "agent_path.h"

#include <stdlib.h>

#include "test.h"


static void
test_check(void)
{
    char         path[SANDBOX_WIRE_MAX_PATH + 1];
    size_t       i;
    const char  *detail;

    static const struct {
        const char  *path;
        const char  *code;
    } cases[] = {
        { "", NULL }, { "a", NULL }, { "a/b", NULL }, { "...", NULL },
        { ".a/..b/c..", NULL }, { " ", NULL }, { "-rf", NULL },
        { "a\\..\\b", NULL }, { "%2e%2e", NULL },
        { "/", "bad_request" }, { "/a", "bad_request" },
        { "a/", "bad_request" }, { "a//b", "bad_request" },
        { ".", "bad_request" }, { "a/./b", "bad_request" },
        { "./a", "bad_request" }, { "a/.", "bad_request" },
        { "..", "path_outside" }, { "../a", "path_outside" },
        { "a/..", "path_outside" }, { "a/../b", "path_outside" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_string(agent_path_check((const uint8_t *) cases[i].path,
                                   strlen(cases[i].path), &detail),
                  cases[i].code, "path \"%s\"", cases[i].path);
    }

    is_string(agent_path_check((const uint8_t *) "a\0b", 3, &detail),
              "bad_request", "a NUL in the path");

    memset(path, 'a', sizeof(path));
    is_string(agent_path_check((uint8_t *) path, 255, &detail), NULL,
              "a name of 255 bytes");
    is_string(agent_path_check((uint8_t *) path, 256, &detail),
              "bad_request", "a name of 256 bytes");

    for (i = 1; i < sizeof(path); i += 2) {
        path[i] = '/';
    }

    is_string(agent_path_check((uint8_t *) path, 4095, &detail), NULL,
              "a path of 4095 bytes");
    is_string(agent_path_check((uint8_t *) path, 4097, &detail),
              "bad_request", "a longer one");
}


static void
test_names(void)
{
    ok(agent_path_name((const uint8_t *) "a b", 3), "a name");
    ok(agent_path_name((const uint8_t *) "...", 3), "three dots");
    ok(!agent_path_name((const uint8_t *) "", 0), "no name");
    ok(!agent_path_name((const uint8_t *) ".", 1), "one dot");
    ok(!agent_path_name((const uint8_t *) "..", 2), "two dots");
    ok(!agent_path_name((const uint8_t *) "a/b", 3), "two names");
    ok(!agent_path_name((const uint8_t *) "a\0", 2), "a NUL");
}


static void
test_roots(void)
{
    size_t       i;
    const char  *rest;

    static const struct {
        const char    *path;
        agent_root_e   root;
        const char    *rest;
    } cases[] = {
        { "", AGENT_ROOT_ALL, "" }, { "etc/passwd", AGENT_ROOT_ALL,
                                      "etc/passwd" },
        { "home/sandbox", AGENT_ROOT_HOME, "" },
        { "home/sandbox/a/b", AGENT_ROOT_HOME, "a/b" },
        { "home/sandboxes", AGENT_ROOT_ALL, "home/sandboxes" },
        { "home", AGENT_ROOT_ALL, "home" },
        { "tmp/x", AGENT_ROOT_TMP, "x" }, { "tmpx", AGENT_ROOT_ALL, "tmpx" },
        { "dev/shm/x", AGENT_ROOT_SHM, "x" },
        { "dev/zero", AGENT_ROOT_ALL, "dev/zero" },
        { "skills/a", AGENT_ROOT_SKILLS, "a" },
        { "var/lib/sandbox", AGENT_ROOT_LAST, "var/lib/sandbox" },
        { "var/lib/sandbox/spool/x", AGENT_ROOT_LAST,
          "var/lib/sandbox/spool/x" },
        { "var/lib/sandboxed", AGENT_ROOT_ALL, "var/lib/sandboxed" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_number(agent_path_root(cases[i].path, &rest), cases[i].root,
                  "the root of \"%s\"", cases[i].path);
        is_string(rest, cases[i].rest, "the rest of \"%s\"", cases[i].path);
    }

    is_number(agent_path_parts(""), 0, "parts of nothing");
    is_number(agent_path_parts("a/b/c"), 3, "parts of three");
    is_number(agent_path_part("a/bc/d", 0), 0, "the first");
    is_number(agent_path_part("a/bc/d", 1), 2, "the second");
    is_number(agent_path_part("a/bc/d", 2), 5, "the third");
    is_number(agent_path_part("a/bc/d", 3), 6, "behind all");
}


static void
test_numbered(void)
{
    char  out[SANDBOX_WIRE_MAX_NAME + 1], name[SANDBOX_WIRE_MAX_NAME + 1];
    int   i;

    agent_path_numbered(out, "data.csv", 2);
    is_string(out, "data (2).csv", "before its ending");
    agent_path_numbered(out, "data", 3);
    is_string(out, "data (3)", "without one");
    agent_path_numbered(out, ".bashrc", 2);
    is_string(out, ".bashrc (2)", "a hidden one");
    agent_path_numbered(out, "a.this is not an ending", 2);
    is_string(out, "a.this is not an ending (2)", "a long ending");

    memset(name, 'n', 255);
    name[255] = '\0';
    memcpy(name + 251, ".csv", 4);
    agent_path_numbered(out, name, 1000);
    is_number(strlen(out), 255, "a long name is cut");
    ok(strcmp(out + 244, " (1000).csv") == 0, "and keeps its ending");

    for (i = 0; i < 255; i += 3) {
        memcpy(name + i, "\xe2\x82\xac", 3);
    }

    agent_path_numbered(out, name, 2);
    is_number(strlen(out), 249 + 4, "not within a character");
}


int
main(void)
{
    test_check();
    test_names();
    test_roots();
    test_numbered();

    return test_done();
}
