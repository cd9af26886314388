/*
 * The head of a request for a file; its conditions, ranges, etags.
 */

/* link: src/agent/agent_file_request.c src/agent/agent_path.c src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include "agent_file.h"

#include <stdlib.h>

#include "test.h"


static uint8_t           head[65536];
static sandbox_writer_t  writer;


static const char *
read_head(agent_file_request_t *request)
{
    const char  *code, *detail;

    detail = NULL;
    code = agent_file_request_read(request, head, writer.pos - writer.start,
                                   &detail);

    if (code != NULL && detail == NULL) {
        return "a code without a sentence";
    }

    return code;
}


static void
begin(const char *path)
{
    sandbox_writer_init(&writer, head, sizeof(head));
    sandbox_write_string(&writer, SANDBOX_TAG_PATH, path);
}


static void
test_read(void)
{
    size_t                i;
    agent_file_request_t  request;

    static const struct {
        uint16_t     tag;
        uint64_t     value;
        const char  *code;
    } numbers[] = {
        { SANDBOX_TAG_ROOT, 0, NULL }, { SANDBOX_TAG_ROOT, 1, NULL },
        { SANDBOX_TAG_ROOT, 2, "bad_request" },
        { SANDBOX_TAG_NO_BODY, 2, "bad_request" },
        { SANDBOX_TAG_LIST, 2, "bad_request" },
        { SANDBOX_TAG_RECURSIVE, 2, "bad_request" },
        { SANDBOX_TAG_LIMIT, 0, "bad_request" },
        { SANDBOX_TAG_LIMIT, 1, NULL },
        { SANDBOX_TAG_LIMIT, SANDBOX_WIRE_MAX_LISTING, NULL },
        { SANDBOX_TAG_LIMIT, SANDBOX_WIRE_MAX_LISTING + 1, "bad_request" },
        { SANDBOX_TAG_FILE_MODE, 0777, NULL },
        { SANDBOX_TAG_FILE_MODE, 04755, "bad_request" },
        { SANDBOX_TAG_RANGE_FIRST, UINT64_MAX, NULL },
        { SANDBOX_TAG_RANGE_LAST, 5, "bad_request" },
        { 9999, 5, NULL }
    };

    begin("a/b");
    is_string(read_head(&request), NULL, "a path alone");
    is_string(request.path, "a/b", "it is read");
    is_number(request.limit, SANDBOX_WIRE_MAX_LISTING, "the usual limit");

    begin("a");
    sandbox_write_string(&writer, SANDBOX_TAG_PATH, "b");
    is_string(read_head(&request), "bad_request", "two paths");

    begin("../a");
    is_string(read_head(&request), "path_outside", "up");

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        begin("a");
        sandbox_write_number(&writer, numbers[i].tag, numbers[i].value);
        is_string(read_head(&request), numbers[i].code, "tag %u of %llu",
                  numbers[i].tag, (unsigned long long) numbers[i].value);
    }

    begin("a");
    sandbox_write_string(&writer, SANDBOX_TAG_ROOT, "1");
    is_string(read_head(&request), "bad_request", "a number of one byte");

    begin("a");

    for (i = 0; i < SANDBOX_WIRE_MAX_ETAGS; i++) {
        sandbox_write_string(&writer, SANDBOX_TAG_IF_MATCH, "x");
    }

    is_string(read_head(&request), NULL, "sixteen etags");
    sandbox_write_string(&writer, SANDBOX_TAG_IF_MATCH, "x");
    is_string(read_head(&request), "bad_request", "seventeen");

    begin("a");
    sandbox_write_bytes(&writer, SANDBOX_TAG_IF_RANGE, head + 1024, 65);
    is_string(read_head(&request), "bad_request", "an etag of 65 bytes");

    begin("a");
    sandbox_write_bytes(&writer, SANDBOX_TAG_CURSOR, head + 1024, 256);
    is_string(read_head(&request), "bad_request", "a cursor of 256 bytes");

    begin("a");
    sandbox_write_number(&writer, SANDBOX_TAG_RANGE_FIRST, 1);
    sandbox_write_number(&writer, SANDBOX_TAG_RANGE_SUFFIX, 1);
    is_string(read_head(&request), "bad_request", "a range of both kinds");

    begin("a");
    writer.pos--;
    is_string(read_head(&request), "bad_request", "cut short");
}


static void
test_search(void)
{
    size_t                i;
    agent_file_request_t  request;
    static uint8_t        text[SANDBOX_WIRE_MAX_PATTERN + 1];

    memset(text, 'x', sizeof(text));

    begin("a");
    is_string(read_head(&request), NULL, "names only");
    ok(request.pattern == NULL && request.globs == 0, "nothing is asked for");

    begin("a");
    sandbox_write_string(&writer, SANDBOX_TAG_PATTERN, "");
    sandbox_write_number(&writer, SANDBOX_TAG_LITERAL, 1);
    is_string(read_head(&request), NULL, "an empty pattern is one");
    ok(request.pattern != NULL && request.pattern_size == 0, "it is there");
    ok(request.literal && !request.ignore_case, "plain text, by its case");

    sandbox_write_string(&writer, SANDBOX_TAG_PATTERN, "");
    is_string(read_head(&request), "bad_request", "two patterns");

    begin("a");
    sandbox_write_bytes(&writer, SANDBOX_TAG_PATTERN, text, sizeof(text) - 1);

    for (i = 0; i < SANDBOX_WIRE_MAX_GLOBS; i++) {
        sandbox_write_bytes(&writer, SANDBOX_TAG_GLOB, text,
                            SANDBOX_WIRE_MAX_GLOB);
    }

    is_string(read_head(&request), NULL, "the longest pattern, most globs");
    is_number(request.globs, SANDBOX_WIRE_MAX_GLOBS, "all of them");
    sandbox_write_string(&writer, SANDBOX_TAG_GLOB, "x");
    is_string(read_head(&request), "bad_pattern", "one glob more");

    begin("a");
    sandbox_write_bytes(&writer, SANDBOX_TAG_PATTERN, text, sizeof(text));
    is_string(read_head(&request), "bad_pattern", "a byte more of a pattern");

    begin("a");
    sandbox_write_bytes(&writer, SANDBOX_TAG_GLOB, text,
                        SANDBOX_WIRE_MAX_GLOB + 1);
    is_string(read_head(&request), "bad_pattern", "a byte more of a glob");

    for (i = 0; i < 2; i++) {
        begin("a");
        sandbox_write_bytes(&writer, i ? SANDBOX_TAG_GLOB
                                       : SANDBOX_TAG_PATTERN, "a\0b", 3);
        is_string(read_head(&request), "bad_pattern", "a NUL");

        begin("a");
        sandbox_write_bytes(&writer, i ? SANDBOX_TAG_GLOB
                                       : SANDBOX_TAG_PATTERN, "\xff", 1);
        is_string(read_head(&request), "bad_pattern", "no UTF-8");
    }

    begin("a");
    sandbox_write_string(&writer, SANDBOX_TAG_GLOB, "");
    is_string(read_head(&request), "bad_pattern", "an empty glob");

    begin("a");
    sandbox_write_number(&writer, SANDBOX_TAG_IGNORE_CASE, 2);
    is_string(read_head(&request), "bad_request", "neither yes nor no");
}


static void
test_status(void)
{
    size_t                i;
    uint64_t              first, last;
    unsigned              status;
    agent_file_request_t  request;

    static const struct {
        int           has_first, has_last, has_suffix;
        uint64_t      first, last, suffix, size;
        unsigned      status;
        uint64_t      want_first, want_last;
    } cases[] = {
        { 0, 0, 0, 0, 0, 0, 1000, 200, 0, 0 },
        { 1, 1, 0, 0, 0, 0, 1000, 206, 0, 0 },
        { 1, 0, 0, 5, 0, 0, 1000, 206, 5, 999 },
        { 0, 0, 1, 0, 0, 5, 1000, 206, 995, 999 },
        { 0, 0, 1, 0, 0, 5000, 1000, 206, 0, 999 },
        { 0, 0, 1, 0, 0, 0, 1000, 416, 0, 0 },
        { 0, 0, 1, 0, 0, 5, 0, 416, 0, 0 },
        { 1, 1, 0, 0, 999999, 0, 1000, 206, 0, 999 },
        { 1, 0, 0, 999, 0, 0, 1000, 206, 999, 999 },
        { 1, 0, 0, 1000, 0, 0, 1000, 416, 0, 0 },
        { 1, 1, 0, 5, 4, 0, 1000, 200, 0, 0 },
        { 1, 0, 0, UINT64_MAX, 0, 0, 1000, 416, 0, 0 },
        { 1, 1, 0, 0, UINT64_MAX, 0, 1000, 206, 0, 999 },
        { 1, 0, 0, 0, 0, 0, 0, 416, 0, 0 }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(&request, 0, sizeof(request));
        request.has_first = cases[i].has_first;
        request.has_last = cases[i].has_last;
        request.has_suffix = cases[i].has_suffix;
        request.first = cases[i].first;
        request.last = cases[i].last;
        request.suffix = cases[i].suffix;

        first = 0;
        last = 0;
        status = agent_file_status(&request, "tag", cases[i].size, &first,
                                   &last);
        is_number(status, cases[i].status, "range %u: status", (unsigned) i);

        if (status == 206) {
            is_number(first, cases[i].want_first, "range %u: first",
                      (unsigned) i);
            is_number(last, cases[i].want_last, "range %u: last",
                      (unsigned) i);
        }
    }

    begin("a");
    sandbox_write_string(&writer, SANDBOX_TAG_IF_MATCH, "one");
    sandbox_write_string(&writer, SANDBOX_TAG_IF_MATCH, "two");
    is_string(read_head(&request), NULL, "a condition");
    is_number(agent_file_status(&request, "two", 1, &first, &last), 200,
              "it holds");
    is_number(agent_file_status(&request, "three", 1, &first, &last), 412,
              "it does not");
    ok(agent_file_allowed(&request, "one"), "a change is allowed");
    ok(!agent_file_allowed(&request, "tw"), "not of another");
    ok(!agent_file_allowed(&request, NULL), "not of none");

    begin("a");
    sandbox_write_string(&writer, SANDBOX_TAG_IF_NONE_MATCH, "*");
    sandbox_write_number(&writer, SANDBOX_TAG_RANGE_FIRST, 0);
    is_string(read_head(&request), NULL, "none of any");
    is_number(agent_file_status(&request, "x", 1, &first, &last), 304,
              "not modified");
    ok(!agent_file_allowed(&request, "x"), "not over one that is there");
    ok(agent_file_allowed(&request, NULL), "only a new one");

    begin("a");
    sandbox_write_string(&writer, SANDBOX_TAG_IF_RANGE, "x");
    sandbox_write_number(&writer, SANDBOX_TAG_RANGE_FIRST, 0);
    is_string(read_head(&request), NULL, "a range of one version");
    is_number(agent_file_status(&request, "x", 1, &first, &last), 206,
              "of this one");
    is_number(agent_file_status(&request, "y", 1, &first, &last), 200,
              "of another one: all of it");
}


static void
test_etag(void)
{
    char         a[AGENT_FILE_ETAG + 1], b[AGENT_FILE_ETAG + 1];
    struct stat  st;

    memset(&st, 0, sizeof(st));
    st.st_ino = 7;
    st.st_size = 5;

    agent_file_etag(a, &st);
    is_number(strlen(a), AGENT_FILE_ETAG, "its length");
    is_number(strspn(a, "0123456789abcdef"), AGENT_FILE_ETAG, "hex digits");
    agent_file_etag(b, &st);
    is_string(a, b, "the same for the same");

    st.st_mtim.tv_nsec = 1;
    agent_file_etag(b, &st);
    ok(strcmp(a, b) != 0, "another for another mtime");
    st.st_mtim.tv_nsec = 0;
    st.st_ctim.tv_nsec = 1;
    agent_file_etag(a, &st);
    ok(strcmp(a, b) != 0, "another for another ctime");
    st.st_size = 6;
    agent_file_etag(b, &st);
    ok(strcmp(a, b) != 0, "another for another size");
    st.st_ino = 8;
    agent_file_etag(a, &st);
    ok(strcmp(a, b) != 0, "another for another inode");
    ok(memcmp(a, a + 16, 16) != 0, "its halves differ");
}


int
main(void)
{
    test_read();
    test_search();
    test_status();
    test_etag();

    return test_done();
}
