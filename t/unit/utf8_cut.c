/*
 * Where UTF-8 may be cut, and what is text: every byte pair, the borders of
 * each length, and cuts of mixed text at every place.
 */

/* link: src/wire/sandbox_utf8.c */

#include "test.h"
#include "sandbox_utf8.h"


typedef struct {
    const char  *bytes;
    size_t       size;
    size_t       expected;
    const char  *name;
} sequence_t;


static void sequences(void);
static void leads(void);
static void cuts(void);
static void foreign_bytes(void);
static void blank(void);
static void text(void);


static const sequence_t  sequence_cases[] = {
    { "", 0, 0, "nothing" },
    { "\0", 1, 1, "NUL is a sequence" },
    { "a", 1, 1, "ASCII" },
    { "\x7f", 1, 1, "the last of one byte" },
    { "\x80", 1, 0, "a continuation byte alone" },
    { "\xc0\x80", 2, 0, "overlong NUL" },
    { "\xc1\xbf", 2, 0, "overlong of two bytes" },
    { "\xc2\x80", 2, 2, "U+0080" },
    { "\xdf\xbf", 2, 2, "U+07FF" },
    { "\xe0\x9f\xbf", 3, 0, "overlong of three bytes" },
    { "\xe0\xa0\x80", 3, 3, "U+0800" },
    { "\xed\x9f\xbf", 3, 3, "U+D7FF" },
    { "\xed\xa0\x80", 3, 0, "the first surrogate" },
    { "\xed\xbf\xbf", 3, 0, "the last surrogate" },
    { "\xee\x80\x80", 3, 3, "U+E000" },
    { "\xef\xbf\xbd", 3, 3, "U+FFFD" },
    { "\xf0\x8f\xbf\xbf", 4, 0, "overlong of four bytes" },
    { "\xf0\x90\x80\x80", 4, 4, "U+10000" },
    { "\xf0\x9f\x98\x80", 4, 4, "U+1F600" },
    { "\xf4\x8f\xbf\xbf", 4, 4, "U+10FFFF" },
    { "\xf4\x90\x80\x80", 4, 0, "beyond U+10FFFF" },
    { "\xf5\x80\x80\x80", 4, 0, "F5" },
    { "\xff", 1, 0, "FF" },
    { "\xc3", 1, 0, "two bytes, one is there" },
    { "\xe2\x82", 2, 0, "three bytes, two are there" },
    { "\xf0\x9f\x98", 3, 0, "four bytes, three are there" },
    { "\xc3(", 2, 0, "second byte is ASCII" },
    { "\xe2\x82(", 3, 0, "third byte is ASCII" },
    { "\xe2\x82\xac" "abc", 6, 3, "only the first sequence counts" }
};


int
main(void)
{
    sequences();
    leads();
    cuts();
    foreign_bytes();
    blank();
    text();

    return test_done();
}


static void
sequences(void)
{
    size_t             i;
    const sequence_t  *s;

    for (i = 0; i < sizeof(sequence_cases) / sizeof(sequence_cases[0]); i++) {
        s = &sequence_cases[i];

        is_number(sandbox_utf8_sequence((const uint8_t *) s->bytes, s->size),
                  s->expected, "sequence: %s", s->name);
    }
}


/* every start of two bytes: a length is only given where it can be right */

static void
leads(void)
{
    int      wrong;
    size_t   n;
    uint8_t  p[4];
    unsigned a, b;

    wrong = 0;

    for (a = 0; a < 256; a++) {
        for (b = 0; b < 256; b++) {
            p[0] = (uint8_t) a;
            p[1] = (uint8_t) b;
            p[2] = 0x80;
            p[3] = 0x80;

            n = sandbox_utf8_sequence(p, sizeof(p));

            if ((a < 0x80) != (n == 1)
                || (n > 1 && (b & 0xc0) != 0x80)
                || (n == 2) != (a >= 0xc2 && a <= 0xdf && (b & 0xc0) == 0x80)
                || (n == 3 && (a & 0xf0) != 0xe0)
                || (n == 4 && (a < 0xf0 || a > 0xf4))
                || n > 4)
            {
                wrong++;
            }
        }
    }

    is_number(wrong, 0, "sequence: all pairs of leading bytes");
}


/*
 * A text of all lengths, cut at every place: head and tail never leave a
 * piece of a character, and never drop more than three bytes.
 */

static void
cuts(void)
{
    size_t        i, n, size, skip;
    uint8_t      *t;
    static char   mixed[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" "b"
                            "\xe4\xb8\xad\xe6\x96\x87\xc3\xbc" "cd"
                            "\xf0\x9f\x8e\x89\xf0\x9f\x8e\x89";

    t = (uint8_t *) mixed;
    size = sizeof(mixed) - 1;

    for (i = 0; i <= size; i++) {
        n = sandbox_utf8_head(t, i);
        ok(n <= i && i - n <= 3 && sandbox_utf8_text(t, n),
           "head: cut at %zu of %zu", i, size);

        skip = sandbox_utf8_tail(t + i, size - i);
        ok(skip <= 3 && skip <= size - i
           && sandbox_utf8_text(t + i + skip, size - i - skip),
           "tail: cut at %zu of %zu", i, size);
    }

    is_number(sandbox_utf8_head(t, 0), 0, "head: of nothing");
    is_number(sandbox_utf8_tail(t, 0), 0, "tail: of nothing");
    is_number(sandbox_utf8_head((uint8_t *) "abc", 3), 3,
              "head: ASCII stays whole");
    is_number(sandbox_utf8_head((uint8_t *) "ab\xe2\x82\xac", 5), 5,
              "head: a whole character at the end stays");
    is_number(sandbox_utf8_head((uint8_t *) "ab\xe2\x82", 4), 2,
              "head: two of three bytes go");
    is_number(sandbox_utf8_head((uint8_t *) "ab\xf0\x9f\x98", 5), 2,
              "head: three of four bytes go");
    is_number(sandbox_utf8_tail((uint8_t *) "\x9f\x98\x80" "a", 4), 3,
              "tail: three continuation bytes go");
}


/* bytes that are not UTF-8 are cut anywhere: nothing is lost for them */

static void
foreign_bytes(void)
{
    uint8_t  p[16];

    memset(p, 0x80, sizeof(p));

    is_number(sandbox_utf8_head(p, 16), 16,
              "head: only continuation bytes stay");
    is_number(sandbox_utf8_tail(p, 16), 0,
              "tail: only continuation bytes stay");

    memset(p, 0xff, sizeof(p));

    is_number(sandbox_utf8_head(p, 16), 16, "head: bytes FF stay");
    is_number(sandbox_utf8_tail(p, 16), 0, "tail: bytes FF stay");
}


static void
blank(void)
{
    size_t  i;
    char    b[64];

    static const struct {
        const char  *bytes;
        const char  *expected;
    } list[] = {
        { "a b\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", NULL },
        { "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb", NULL },
        { "a\nb\r\t\033[2J\x7f", "a b   [2J " },
        { "\xc2\x9b" "2J\xc2\x85|", "  2J  |" },
        { "\xe2\x80\xae|\xe2\x80\xa8|\xe2\x81\xa6|", "   |   |   |" },
        { "\xef\xbb\xbf|\xf3\xa0\x81\x81|", "   |    |" },
        { "\xff|\xc3|\xed\xa0\x80|\x80", " | |   | " }
    };

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        strcpy(b, list[i].bytes);
        sandbox_utf8_blank((uint8_t *) b, strlen(b));
        is_string(b, list[i].expected ? list[i].expected : list[i].bytes,
                  "blank: %zu", i);
    }
}


static void
text(void)
{
    ok(sandbox_utf8_text((uint8_t *) "", 0), "text: nothing is text");
    ok(sandbox_utf8_text((uint8_t *) "\xe2\x86\x97 a\n\t", 6),
       "text: control characters are text");
    ok(!sandbox_utf8_text((uint8_t *) "a\0b", 3), "text: NUL is not");
    ok(!sandbox_utf8_text((uint8_t *) "a\xff", 2), "text: FF is not");
    ok(!sandbox_utf8_text((uint8_t *) "a\xc3", 2),
       "text: a character cut short is not");
    ok(!sandbox_utf8_text((uint8_t *) "\xed\xa0\x80", 3),
       "text: a surrogate is not");
}
