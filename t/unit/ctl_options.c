/*
 * src/ctl: the command line, durations, names that are nearly right, base64.
 */

/* link: src/ctl/options.c src/ctl/text.c src/ctl/name.c src/wire/sandbox_utf8.c -lcrypto */

#include "test.h"
#include "ctl/ctl.h"
#include "ctl/options.h"

#include <stdlib.h>


static ctl_values_t  key, word, flag;

static const ctl_option_t  options[] = {
    { "key", "FILE", "a file", 1, &key, 0 },
    { "word", "W", "words", 3, &word, 'w' },
    { "flag", NULL, "a flag", 1, &flag, 'f' },
    { NULL, NULL, NULL, 0, NULL, 0 }
};

static ctl_command_t  command;


/* reads up to seven words, the last one NULL */

#define read_words(...)                                                      \
    read_argv((char *[]) { "verb", __VA_ARGS__, NULL })


static int
read_argv(char **argv)
{
    int  argc;

    memset(&key, 0, sizeof(key));
    memset(&word, 0, sizeof(word));
    memset(&flag, 0, sizeof(flag));
    memset(&command, 0, sizeof(command));

    command.usage = "verb";
    command.about = "";
    command.options = options;
    command.min = 1;
    command.max = 2;

    for (argc = 0; argv[argc] != NULL; argc++) {
        /* count */
    }

    return ctl_options_read(&command, argc, argv);
}


static void
test_words(void)
{
    is_number(read_words("a", "--key", "k", "--flag", "b"), CTL_READ_OK,
              "options among arguments");
    is_number(command.nargs, 2, "two arguments");
    is_string(command.args[0], "a", "the first");
    is_string(command.args[1], "b", "the second");
    is_string(ctl_value(&key, NULL), "k", "the option's value");
    is_number(flag.n, 1, "the flag");
    is_string(ctl_value(&word, "w"), "w", "a value that was not given");

    is_number(read_words("--key=a=b", "x"), CTL_READ_OK, "a value behind =");
    is_string(ctl_value(&key, NULL), "a=b", "up to the end");

    is_number(read_words("--key", "--flag", "x"), CTL_READ_OK,
              "a value that looks like an option");
    is_string(ctl_value(&key, NULL), "--flag", "is the value");

    is_number(read_words("--key=", "x"), CTL_READ_OK, "an empty value");
    is_string(ctl_value(&key, NULL), "", "is a value");

    is_number(read_words("--", "--key", "--flag"), CTL_READ_OK,
              "after -- all are arguments");
    is_number(command.nargs, 2, "two of them");

    is_number(read_words("-"), CTL_READ_OK, "a single - is an argument");

    is_number(read_words("--word", "1", "--word=2", "--word", "3", "x"),
              CTL_READ_OK, "an option three times");
    is_number(word.n, 3, "three values");
    is_number(read_words("--word=1", "--word=2", "--word=3", "--word=4", "x"),
              CTL_READ_BAD, "and once too often");

    is_number(read_words("--flag"), CTL_READ_BAD, "an argument is missing");
    is_number(read_words("a", "b", "c"), CTL_READ_BAD, "one too many");
    is_number(read_words("a", "--key"), CTL_READ_BAD, "a value is missing");
    is_number(read_words("a", "--flag=1"), CTL_READ_BAD, "a flag's value");
    is_number(read_words("a", "--kex", "1"), CTL_READ_BAD, "no such option");
    is_number(read_words("a", "-k"), CTL_READ_BAD, "no such letter");
    is_number(read_words("a", "-f"), CTL_READ_OK, "a letter");
    is_number(flag.n, 1, "is the option");
    is_number(read_words("-w", "x", "a"), CTL_READ_OK, "a letter's value");
    is_string(ctl_value(&word, NULL), "x", "is the next word");
    is_number(command.nargs, 1, "and no argument");
    is_number(read_words("a", "-w"), CTL_READ_BAD, "it is missing");
    is_number(read_words("a", "-f", "-f"), CTL_READ_BAD, "once too often");
    is_number(read_words("a", "-fw"), CTL_READ_BAD, "two letters together");
    is_number(read_words("a", "--"), CTL_READ_OK, "nothing behind --");
    is_number(read_words("a", "--=x"), CTL_READ_BAD, "an option without name");
}


static void
test_nearest(void)
{
    size_t  i;

    static const char *const  names[] = {
        "timeout", "token", "cwd", "env", "url", NULL
    };

    static const char *const  pairs[][2] = {
        { "timout", "timeout" }, { "tiemout", "timeout" },
        { "timeouts", "timeout" }, { "tokne", "token" }, { "toke", "token" },
        { "cdw", "cwd" }, { "envs", "env" }, { "URL", NULL }, { "", NULL },
        { "something-else", NULL }, { "zzz", NULL },
        { "timeouttimeouttimeouttimeouttimeout", NULL }
    };

    for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        is_string(ctl_nearest(pairs[i][0], names), pairs[i][1],
                  "nearest to \"%s\"", pairs[i][0]);
    }
}


static void
test_duration(void)
{
    size_t  i;

    static const struct {
        const char  *text;
        long         seconds;
    } cases[] = {
        { "1", 1 }, { "90", 90 }, { "30s", 30 }, { "5m", 300 }, { "1h", 3600 },
        { "2d", 172800 }, { "0", 0 }, { "007s", 7 }, { "864000", 864000 },
        { "10d", 864000 }, { "864001", -1 }, { "11d", -1 }, { "", -1 },
        { "s", -1 }, { "-1", -1 }, { "+1", -1 }, { " 1", -1 }, { "1 ", -1 },
        { "1.5h", -1 }, { "1h30m", -1 }, { "5M", -1 }, { "1w", -1 },
        { "99999999999999999999", -1 }, { "9223372036854775807d", -1 }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_number(ctl_duration(cases[i].text, 864000), cases[i].seconds,
                  "duration \"%s\"", cases[i].text);
    }
}


static void
test_base64(void)
{
    char     *text;
    size_t    i, n, size, good;
    uint8_t   data[300], *back;

    static const char *const  bad[] = { "A", "AA", "AAA", "A A=", "AA!=" };

    for (i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t) (i * 7);
    }

    good = 0;

    for (n = 0; n <= sizeof(data); n++) {
        text = ctl_base64_encode(data, n);
        back = ctl_base64_decode(text, strlen(text), &size);

        good += back != NULL && size == n && memcmp(back, data, n) == 0;

        free(text);
        free(back);
    }

    is_number(good, sizeof(data) + 1, "base64 there and back, every length");

    text = ctl_base64_encode((const uint8_t *) "\xfb\xff\0", 3);
    is_string(text, "+/8A", "base64 of three bytes");
    free(text);

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        back = ctl_base64_decode(bad[i], strlen(bad[i]), &size);
        ok(back == NULL, "not base64: \"%s\"", bad[i]);
        free(back);
    }
}


static void
test_conversation(void)
{
    char  name[130];

    is_number(ctl_conversation_check("a"), 0, "a conversation");
    is_number(ctl_conversation_check("A-z.0:9_"), 0, "every kind of character");
    is_number(ctl_conversation_check("..."), 0, "three dots");
    is_number(ctl_conversation_check(""), -1, "none");
    is_number(ctl_conversation_check("."), -1, "a dot");
    is_number(ctl_conversation_check(".."), -1, "two dots");
    is_number(ctl_conversation_check("a/b"), -1, "a slash");
    is_number(ctl_conversation_check("a b"), -1, "a blank");
    is_number(ctl_conversation_check("a?b"), -1, "a question mark");
    is_number(ctl_conversation_check("\xc3\xa4"), -1, "a letter with dots");

    memset(name, 'a', sizeof(name));
    name[129] = '\0';
    is_number(ctl_conversation_check(name), -1, "129 characters");
    name[128] = '\0';
    is_number(ctl_conversation_check(name), 0, "128 characters");
}


int
main(void)
{
    test_words();
    test_nearest();
    test_duration();
    test_base64();
    test_conversation();

    return test_done();
}
