/*
 * What ripgrep writes, in pieces of any size, and what it is made of.
 */

/* link: src/agent/agent_search_record.c src/wire/sandbox_wire.c */
/* link: src/wire/sandbox_utf8.c */

#include "agent_search.h"

#include <stdio.h>
#include <stdlib.h>

#include "test.h"


/* All records as text, read in pieces of that size; "!" for bytes that lie. */

static const char *
records(const char *p, size_t size, size_t piece, int names)
{
    int                           rc;
    size_t                        n;
    const uint8_t                *pos, *end;
    static char                   out[65536];
    static agent_search_record_t  r;

    out[0] = '\0';
    agent_search_init(&r, names);

    while (size) {
        n = size < piece ? size : piece;
        pos = (const uint8_t *) p;
        end = pos + n;

        while ((rc = agent_search_next(&r, &pos, end)) == SANDBOX_OK) {
            n = strlen(out);
            snprintf(out + n, sizeof(out) - n, "[%s|%s%llu|%llu|%.*s]",
                     r.path, r.binary ? "binary" : "",
                     (unsigned long long) r.line,
                     (unsigned long long) r.offset,
                     (int) agent_search_text(&r), (const char *) r.text);
        }

        if (rc == SANDBOX_BAD) {
            strcat(out, "!");
            ok(agent_search_next(&r, &pos, end) == SANDBOX_BAD,
               "and it stays so");
            return out;
        }

        ok(pos == end, "all bytes are taken");
        p += end - (const uint8_t *) p;
        size -= size < piece ? size : piece;
    }

    return out;
}


static void
is(const char *bytes, size_t size, int names, const char *want, int line)
{
    is_string(records(bytes, size, 4096, names), want, "line %d", line);
    is_string(records(bytes, size, 1, names), want, "line %d, bytes", line);
}


#define is(bytes, names, want)                                                \
    is(bytes, sizeof(bytes) - 1, names, want, __LINE__)


#define FOUND(n)  ": binary file matches (found \"\\0\" byte around offset " n


static void
test_records(void)
{
    is("a\0" "1:0:hit\nb/c\0" "22:333:x\r\n", 0,
       "[a|1|0|hit][b/c|22|333|x]");
    is("new\nline\0" "1:5:\n", 0, "[new\nline|1|5|]");
    is("a: 1:2:x\0" "3:4:y:z\n", 0, "[a: 1:2:x|3|4|y:z]");
    is("a\0b\n\0", 1, "[a|0|0|][b\n|0|0|]");
    is("a\0" "1:0:cut", 0, "");
    is("a\0" "18446744073709551615:0:x\n", 0, "!");
    is("a\0" "9999999999999999999:0:x\n", 0, "[a|9999999999999999999|0|x]");
    is("\0" "1:0:x\n", 0, "!");
    is("a\0x:0:x\n", 0, "!");
    is("a\0:0:x\n", 0, "!");
    is("a\0" "1::x\n", 0, "!");
    is("a\0" "-1:0:x\n", 0, "!");
}


static void
test_binary(void)
{
    is("./b" FOUND("3)\n"), 0, "[./b|binary0|0|]");
    is("./b" FOUND("3)\n") "c\0" "1:0:x\n", 0, "[./b|binary0|0|][c|1|0|x]");
    is("Binary file ./b matches (found \"\\u{0}\" byte around offset 7)\n", 0,
       "[./b|binary0|0|]");
    is("a\nb" FOUND("31)\n"), 0, "[a\nb|binary0|0|]");

    /* not quite: it is a part of a name, then */

    is("b" FOUND("3)x\n") "\0" "1:0:x\n", 0,
       "[b" FOUND("3)x\n") "|1|0|x]");
    is("b" FOUND(")\n") "\0" "1:0:x\n", 0, "[b|binary0|0|]!");
    is(FOUND("3)\n"), 0, "");
    is("b (found \"\\0\" byte around offset 3)\n", 0, "");
    is("Binary file matches (found \"\\0\" byte around offset 3)\n", 0, "");
    is("\" byte around offset 3)\n", 0, "");
    is(")\n", 0, "");
    is("b" FOUND("3)\n") "\0", 1, "[b" FOUND("3)\n") "|0|0|]");
}


static void
test_long(void)
{
    char   *p, *out;
    size_t  i;

    p = malloc(10000);

    /* a line of two-byte characters behind one byte: cut between two */

    strcpy(p, "f");
    memcpy(p + 2, "1:0:x", 5);

    for (i = 7; i < 5007; i += 2) {
        memcpy(p + i, "\xc3\xa9", 2);
    }

    memcpy(p + i, "\r\ng", 4);
    memcpy(p + i + 4, "2:0:y\n", 6);
    out = (char *) records(p, i + 10, 100, 0);
    is_number(strcspn(out, "]"), strlen("[f|1|0|") + 511, "511 bytes are left");
    is_string(strchr(out, ']') + 1, "[g|2|0|y]", "and the next one");

    /* a path as long as it can be, and longer */

    memset(p, 'a', 10000);
    memcpy(p + SANDBOX_WIRE_MAX_PATH, "\0" "1:0:x\n", 7);
    out = (char *) records(p, SANDBOX_WIRE_MAX_PATH + 7, 77, 0);
    is_number(strlen(out), SANDBOX_WIRE_MAX_PATH + strlen("[|1|0|x]"), "long");
    memset(p, 'a', 10000);
    is_string(records(p, 10000, 77, 0), "!", "a path without an end");

    free(p);
}


static void
test_sentence(void)
{
    size_t  i;
    char    out[AGENT_SEARCH_SENTENCE], *p;

    static const struct {
        const char  *said;
        const char  *sentence;
    } cases[] = {
        { "rg: regex parse error:\n    (?:foo()\n    ^\nerror: unclosed group\n",
          "unclosed group" },
        { "regex parse error:\n    a**\n", "regex parse error" },
        { "rg: error parsing glob '[': unclosed character class; missing ']'\n",
          "error parsing glob '[': unclosed character class; missing ']'" },
        { "rg: the literal \"\\n\" is not allowed in a regex\n\nConsider\n",
          "the literal \"\\n\" is not allowed in a regex" },
        { "Compiled regex exceeds size limit of 1 bytes.",
          "Compiled regex exceeds size limit of 1 bytes" },
        { "a\tb\x7f\033[1m", "a?b??[1m" },
        { "\xff", "" }, { "", "" }, { "\n\n", "" }, { "error: ", "error: " }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        p = malloc(strlen(cases[i].said) + 1);
        memcpy(p, cases[i].said, strlen(cases[i].said));
        agent_search_sentence(out, p, strlen(cases[i].said));
        is_string(out, cases[i].sentence, "sentence %zu", i);
        free(p);
    }

    p = malloc(5000);
    memset(p, 'x', 5000);
    agent_search_sentence(out, p, 5000);
    is_number(strlen(out), sizeof(out) - 1, "a long one is cut");
    free(p);
}


int
main(void)
{
    test_records();
    test_binary();
    test_long();
    test_sentence();

    return test_done();
}
