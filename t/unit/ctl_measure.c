/*
 * src/ctl: progress arithmetic, names for a terminal.
 */

/* link: src/ctl/measure.c src/ctl/name.c src/wire/sandbox_utf8.c */

#include "test.h"
#include "ctl/measure.h"
#include "ctl/name.h"

#include <locale.h>
#include <stdlib.h>


static void
test_size(void)
{
    size_t  i;
    char    text[CTL_MEASURE_TEXT];

    static const struct {
        uint64_t     bytes;
        const char  *text;
    } cases[] = {
        { 0, "0 B" }, { 1, "1 B" }, { 1023, "1023 B" }, { 1024, "1.0 KiB" },
        { 1536, "1.5 KiB" }, { 48231, "47.1 KiB" }, { 102348, "99.9 KiB" },
        { 102400, "100 KiB" }, { 1047000, "1022 KiB" },
        { 1048570, "1.0 MiB" }, { 16 * 1024 * 1024, "16.0 MiB" },
        { 1ull << 40, "1.0 TiB" }, { 999ull << 40, "999 TiB" },
        { UINT64_MAX, "16.0 EiB" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_string(ctl_size_text(text, cases[i].bytes), cases[i].text,
                  "%llu bytes", (unsigned long long) cases[i].bytes);
    }
}


static void
test_time(void)
{
    size_t  i;
    char    text[CTL_MEASURE_TEXT];

    static const struct {
        int64_t      seconds;
        const char  *text;
    } cases[] = {
        { -1, "--:--" }, { 0, "00:00" }, { 7, "00:07" }, { 61, "01:01" },
        { 3599, "59:59" }, { 3600, "1:00:00" }, { 86399, "23:59:59" },
        { 86400, "1d 00h" }, { 99 * 86400, "99d 00h" },
        { 99 * 86400 + 1, "--:--" }, { INT64_MAX, "--:--" },
        { INT64_MIN, "--:--" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_string(ctl_time_text(text, cases[i].seconds), cases[i].text,
                  "%lld seconds", (long long) cases[i].seconds);
    }
}


static void
test_rate(void)
{
    int64_t     t;
    ctl_rate_t  rate;

    rate.n = 0;
    ok(ctl_rate(&rate, 1, 1) < 0, "no rate before the start");

    ctl_rate_start(&rate, 1000, 0);
    ok(ctl_rate(&rate, 1000, 500) < 0, "none at the same moment");
    is_number((long) ctl_rate(&rate, 2000, 500), 500, "one second");

    /* a minute at 1000 a second, then four seconds of nothing */

    for (t = 1000; t <= 61000; t += 100) {
        ctl_rate_add(&rate, t, (uint64_t) t - 1000);
    }

    is_number((long) (ctl_rate(&rate, 61000, 60000) + 0.5), 1000,
              "an even rate");
    ok(rate.n < 2 * CTL_MEASURE_SAMPLES, "the samples go round");

    for ( /* void */ ; t <= 65000; t += 100) {
        ctl_rate_add(&rate, t, 60000);
    }

    ok(ctl_rate(&rate, 65000, 60000) < 700, "it goes down soon");

    for ( /* void */ ; t <= 75000; t += 100) {
        ctl_rate_add(&rate, t, 60000);
    }

    is_number((long) ctl_rate(&rate, 75000, 60000), 0, "and to nothing");

    ctl_rate_add(&rate, 76000, 10);
    ok(ctl_rate(&rate, 77000, 20) == 10, "begun anew");
}


static void
line_is(unsigned columns, const ctl_measure_t *m, const char *expected)
{
    char  line[CTL_MEASURE_LINE];

    ctl_measure_line(line, columns, m);
    is_string(line, expected, "in %u columns", columns);
    ok(strlen(line) <= columns, "no more than %u", columns);
}


static void
test_bar(void)
{
    char           line[CTL_MEASURE_LINE];
    unsigned       columns, wrong;
    ctl_measure_t  m;

    memset(&m, 0, sizeof(m));
    m.name = "q3-signups.csv";
    m.known = 1;
    m.done = 512 * 1024;
    m.total = 1024 * 1024;
    m.rate = 128 * 1024;

    line_is(79, &m, "q3-signups.csv  [============>           ]"
            "   50%   512 KiB   128 KiB/s    00:04");
    line_is(60, &m, "q3-signups.csv            50%   512 KiB   128 KiB/s"
            "    00:04");
    line_is(40, &m, "q3-signups.csv    50%   512 KiB    00:04");
    line_is(30, &m, "q3-signups.csv    50%    00:04");
    line_is(20, &m, "q3-signups.csv   50%");
    line_is(16, &m, "q3-sign...   50%");
    line_is(7, &m, "q   50%");
    line_is(3, &m, "q3-");
    line_is(0, &m, "");

    m.done = m.total - 1;
    line_is(20, &m, "q3-signups.csv   99%");
    m.done = m.total;
    line_is(30, &m, "q3-signups.csv   100%    00:00");
    m.total = 0;
    m.done = 0;
    line_is(30, &m, "q3-signups.csv   100%    00:00");

    m.total = UINT64_MAX;
    m.done = UINT64_MAX - 1;
    line_is(20, &m, "q3-signups.csv   99%");
    m.rate = 1e-10;
    line_is(30, &m, "q3-signups.csv    99%    --:--");

    m.known = 0;
    m.done = 5000;
    m.rate = -1;
    m.elapsed = 61500;
    line_is(60, &m, "q3-signups.csv                  4.9 KiB      -- B/s"
            "    01:01");

    /* two columns each, and marks that have none of their own */

    m.name = "\xe6\x8a\xa5\xe5\x91\x8a-e\xcc\x81.txt";
    m.known = 1;
    m.total = 10000;

    is_number(ctl_name_columns(m.name), 10, "columns of a name");

    wrong = 0;

    for (columns = 0; columns < 300; columns++) {
        ctl_measure_line(line, columns, &m);
        wrong += ctl_name_columns(line) > columns;
        wrong += columns > 3 && columns - ctl_name_columns(line) > 1;
    }

    is_number(wrong, 0, "never wider than it may be, and as wide as it can");
}


static void
name_is(const char *name, const char *expected)
{
    char  *text;

    text = ctl_name_shell(name, strlen(name));
    is_string(text, expected, "as a shell has it");
    free(text);
}


static void
test_names(void)
{
    char  text[64];

    name_is("q3-signups.csv", "q3-signups.csv");
    name_is("report (1).txt", "'report (1).txt'");
    name_is("it's.txt", "$'it\\'s.txt'");
    name_is("-rf", "-rf");
    name_is("a$b`c\"d.txt", "'a$b`c\"d.txt'");
    name_is("a\\b", "$'a\\\\b'");
    name_is("dot and space. ", "'dot and space. '");
    name_is("two\nlines", "$'two\\nlines'");
    name_is("\x1b[2J", "$'\\x1b[2J'");
    name_is("\xd0\xbe\xd1\x82\xd1\x87\xd1\x91\xd1\x82.xlsx",
            "\xd0\xbe\xd1\x82\xd1\x87\xd1\x91\xd1\x82.xlsx");
    name_is("\xf0\x9f\xa4\xa3.txt", "\xf0\x9f\xa4\xa3.txt");
    name_is("caf\xe9", "$'caf\\xe9'");
    name_is("x\xc2\x9b" "31m", "$'x\\u009b31m'");
    name_is("gpj.\xe2\x80\xae" "exe", "$'gpj.\\u202eexe'");
    name_is("\xf3\xa0\x80\xa1", "$'\\U000e0021'");
    name_is("~", "'~'");
    name_is("", "''");
    name_is("\xed\xa0\x80", "$'\\xed\\xa0\\x80'");
    name_is("\xff\xff\xff", "$'\\xff\\xff\\xff'");

    strcpy(text, "a\nb\x1b[0m \xc2\x9b \xff \xe2\x80\xae.");
    ctl_name_blank(text);
    is_string(text, "a b [0m         .", "blanks instead");
}


int
main(void)
{
    ok(setlocale(LC_CTYPE, "C.UTF-8") != NULL, "a locale of UTF-8");

    test_size();
    test_time();
    test_rate();
    test_bar();
    test_names();

    return test_done();
}
