/*
 * src/ctl: lines of a stream in any pieces, and what they say.
 */

/* link: src/ctl/event.c src/ctl/text.c src/ctl/name.c src/wire/sandbox_utf8.c -ljansson -lcrypto */

#include "test.h"
#include "ctl/ctl.h"
#include "ctl/event.h"

#include <stdlib.h>


static char      seen[4096];
static unsigned  lines_seen;
static int       refuse;


static int
on_line(void *context, const char *text, size_t size)
{
    ok(strlen(text) == size, "a NUL behind the line");
    strcat(seen, text);
    strcat(seen, "|");
    lines_seen++;

    return refuse ? -1 : 0;
}


static void
test_lines(void)
{
    size_t        i, step;
    ctl_lines_t   lines;

    static const char  text[] = "one\n\ntwo\n\n\n{\"three\":3}\nfour";

    for (step = 1; step < sizeof(text); step++) {
        memset(&lines, 0, sizeof(lines));
        seen[0] = '\0';

        for (i = 0; i < sizeof(text) - 1; i += step) {
            is_number(ctl_lines_add(&lines, text + i,
                                    i + step < sizeof(text) - 1
                                    ? step : sizeof(text) - 1 - i,
                                    on_line, NULL),
                      0, "bytes from %zu on, %zu at once", i, step);
        }

        is_string(seen, "one|two|{\"three\":3}|", "the lines");
        is_bytes(lines.data, lines.have, "four", 4, "what has no end yet");
        ctl_lines_free(&lines);
    }

    memset(&lines, 0, sizeof(lines));
    refuse = 1;
    lines_seen = 0;
    is_number(ctl_lines_add(&lines, "a\nb\n", 4, on_line, NULL), -1,
              "the line is refused");
    is_number(lines_seen, 1, "the next is not asked about");
    refuse = 0;
    ctl_lines_free(&lines);
}


static void
test_long_line(void)
{
    char         *part;
    size_t        i, size;
    ctl_lines_t   lines;

    size = CTL_MAX_LINE / 16;
    part = malloc(size);
    memset(part, 'x', size);
    memset(&lines, 0, sizeof(lines));

    for (i = 0; i < 16; i++) {
        is_number(ctl_lines_add(&lines, part, size, on_line, NULL), 0,
                  "part %zu of the longest line", i);
    }

    is_number(lines.have, CTL_MAX_LINE, "all of it");
    is_number(ctl_lines_add(&lines, "x", 1, on_line, NULL), -1,
              "one byte more is too long");

    ctl_lines_free(&lines);
    free(part);
}


static int
read_event(ctl_event_t *event, const char *text)
{
    return ctl_event_read(event, text, strlen(text));
}


static void
test_events(void)
{
    ctl_event_t  event;

    is_number(read_event(&event, "{\"type\":\"started\",\"seq\":1,"
                                 "\"commandId\":\"a\"}"), 0, "started");
    is_number(event.type, CTL_EVENT_STARTED, "its type");
    is_number(event.seq, 1, "its number");
    ctl_event_free(&event);

    is_number(read_event(&event, "{\"type\":\"stdout\",\"seq\":2,"
                                 "\"data\":\"\\u00e4b\\n\"}"), 0, "text");
    is_number(event.stream, 1, "of stdout");
    is_bytes(event.data, event.size, "\303\244b\n", 4, "its bytes");
    ctl_event_free(&event);

    is_number(read_event(&event, "{\"type\":\"stderr\",\"seq\":3,"
                                 "\"dataBase64\":\"/wD+\"}"), 0, "bytes");
    is_number(event.stream, 2, "of stderr");
    is_bytes(event.data, event.size, "\xff\0\xfe", 3, "to the byte");
    ctl_event_free(&event);

    is_number(read_event(&event, "{\"type\":\"gap\",\"seq\":9,"
                                 "\"stream\":\"stderr\",\"bytes\":123}"), 0,
              "a gap");
    is_number(event.type, CTL_EVENT_GAP, "its type");
    is_number(event.bytes, 123, "what was left out");
    is_number(event.stream, 2, "of which stream");
    ctl_event_free(&event);

    is_number(read_event(&event, "{\"type\":\"result\",\"seq\":10,"
                                 "\"exitCode\":3}"), 0, "a result");
    is_number(event.type, CTL_EVENT_RESULT, "its type");
    is_number(json_integer_value(json_object_get(event.object, "exitCode")),
              3, "its fields");
    ctl_event_free(&event);

    is_number(read_event(&event, "{\"type\":\"later\",\"seq\":11}"), 0,
              "what a later release may send");
    is_number(event.type, CTL_EVENT_OTHER, "is let through");
    ctl_event_free(&event);
}


static void
test_bad_events(void)
{
    size_t        i;
    ctl_event_t   event;

    static const char *const  bad[] = {
        "", "x", "[]", "1", "{}", "{\"type\":\"stdout\"",
        "{\"type\":\"stdout\",\"data\":\"x\"}",
        "{\"seq\":1,\"data\":\"x\"}",
        "{\"type\":1,\"seq\":1}",
        "{\"type\":\"stdout\",\"seq\":-1,\"data\":\"x\"}",
        "{\"type\":\"stdout\",\"seq\":\"1\",\"data\":\"x\"}",
        "{\"type\":\"stdout\",\"seq\":1.5,\"data\":\"x\"}",
        "{\"type\":\"stdout\",\"seq\":1}",
        "{\"type\":\"stdout\",\"seq\":1,\"data\":7}",
        "{\"type\":\"stdout\",\"seq\":1,\"dataBase64\":\"x\"}",
        "{\"type\":\"stdout\",\"seq\":1,\"dataBase64\":7}",
        "{\"type\":\"gap\",\"seq\":1,\"bytes\":1}",
        "{\"type\":\"gap\",\"seq\":1,\"stream\":\"x\",\"bytes\":1}",
        "{\"type\":\"gap\",\"seq\":1,\"stream\":\"stdout\"}",
        "{\"type\":\"started\",\"seq\":1} x"
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        is_number(read_event(&event, bad[i]), -1, "no event: %s", bad[i]);
        ctl_event_free(&event);
    }
}


int
main(void)
{
    test_lines();
    test_long_line();
    test_events();
    test_bad_events();

    return test_done();
}
