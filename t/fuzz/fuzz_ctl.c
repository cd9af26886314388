/*
 * Foreign bytes to sandboxctl: lines of a stream in any pieces and the events
 * in them; names for a terminal, which must have nothing but letters; frames
 * of what claims to be the runner.  The first byte chooses.
 */

/* link: src/ctl/event.c src/ctl/text.c src/ctl/name.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* link: -ljansson -lcrypto -Wl,--wrap=ctl_fault */
/* link: -no-pie -Wl,--unresolved-symbols=ignore-all */
/* covers: src/ctl/event.c src/ctl/name.c */

#include "../../src/ctl/host.c"

#include "ctl/event.h"
#include "ctl/name.h"

#include <locale.h>
#include <sys/socket.h>


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


/* what came in other pieces */

typedef struct {
    size_t    lines;
    uint64_t  hash;
} fuzz_lines_t;


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);
int __wrap_ctl_fault(const char *fmt, ...);

static void fuzz_lines(const uint8_t *p, size_t size);
static int fuzz_line(void *context, const char *text, size_t size);
static void fuzz_event(const char *text, size_t size);
static void fuzz_name(const uint8_t *p, size_t size);
static void fuzz_frames(const uint8_t *p, size_t size);


int
__wrap_ctl_fault(const char *fmt, ...)
{
    char     text[2048];
    va_list  args;

    va_start(args, fmt);
    check(vsnprintf(text, sizeof(text), fmt, args) >= 0);
    va_end(args);

    return -1;
}


/* of options.c, which is not wanted here */

const char *
ctl_value(const ctl_values_t *values, const char *otherwise)
{
    (void) values;

    return otherwise;
}


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    char  *text;

    static int  once;

    if (!once) {
        once = 1;
        setlocale(LC_ALL, "C.UTF-8");
    }

    if (size < 2) {
        return 0;
    }

    switch (p[0] % 4) {

    case 0:
        fuzz_lines(p + 1, size - 1);
        break;

    case 1:
        text = malloc(size);
        check(text != NULL);
        memcpy(text, p + 1, size - 1);
        text[size - 1] = '\0';
        fuzz_event(text, size - 1);
        free(text);
        break;

    case 2:
        fuzz_name(p + 1, size - 1);
        break;

    default:
        fuzz_frames(p + 1, size - 1);
    }

    return 0;
}


/* the first byte: how many bytes come at once */

static void
fuzz_lines(const uint8_t *p, size_t size)
{
    size_t        i, n, step;
    ctl_lines_t   lines;
    fuzz_lines_t  one, other;

    step = p[0] + 1;
    p++;
    size--;

    memset(&lines, 0, sizeof(lines));
    memset(&one, 0, sizeof(one));
    memset(&other, 0, sizeof(other));

    check(ctl_lines_add(&lines, (const char *) p, size, fuzz_line, &one)
          == 0);
    ctl_lines_free(&lines);

    memset(&lines, 0, sizeof(lines));

    for (i = 0; i < size; i += n) {
        n = size - i < step ? size - i : step;
        check(ctl_lines_add(&lines, (const char *) p + i, n, fuzz_line,
                            &other)
              == 0);
    }

    ctl_lines_free(&lines);

    check(one.lines == other.lines && one.hash == other.hash);
}


static int
fuzz_line(void *context, const char *text, size_t size)
{
    size_t        i;
    fuzz_lines_t  *lines;

    lines = context;
    lines->lines++;

    check(size > 0 && text[size] == '\0');

    for (i = 0; i < size; i++) {
        check(text[i] != '\n');
        lines->hash = (lines->hash ^ (uint8_t) text[i]) * 0x100000001b3;
    }

    fuzz_event(text, size);

    return 0;
}


static void
fuzz_event(const char *text, size_t size)
{
    ctl_event_t  event;

    if (ctl_event_read(&event, text, size) == 0) {

        switch (event.type) {

        case CTL_EVENT_OUTPUT:
            check(event.stream == 1 || event.stream == 2);
            check(event.data != NULL || event.size == 0);
            break;

        case CTL_EVENT_GAP:
            check(event.stream == 1 || event.stream == 2);
            break;

        case CTL_EVENT_RESULT:
        case CTL_EVENT_REFUSED:
            check(json_is_object(event.object));
            break;

        default:
            break;
        }
    }

    ctl_event_free(&event);
}


static void
fuzz_name(const uint8_t *p, size_t size)
{
    char      *text, *blank;
    size_t     i, n;
    unsigned   columns, part;

    /* a name has no NUL */

    n = strnlen((const char *) p, size);
    text = ctl_name_shell((const char *) p, n);
    check(text != NULL);

    for (i = 0; text[i]; i++) {
        check((uint8_t) text[i] >= ' ' && text[i] != 0x7f);
    }

    columns = ctl_name_columns(text);
    part = n ? p[0] : 0;
    check(ctl_name_fit(text, columns) == strlen(text));
    check(ctl_name_fit(text, part) <= strlen(text));
    free(text);

    blank = malloc(n + 1);
    check(blank != NULL);
    memcpy(blank, p, n);
    blank[n] = '\0';
    ctl_name_blank(blank);

    for (i = 0; blank[i]; i++) {
        check((uint8_t) blank[i] >= ' ' && blank[i] != 0x7f);
    }

    free(blank);
}


static void
fuzz_frames(const uint8_t *p, size_t size)
{
    int         ends[2];
    ctl_host_t  host;

    check(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends) == 0);
    check(send(ends[1], p, size, MSG_NOSIGNAL) == (ssize_t) size);
    check(shutdown(ends[1], SHUT_WR) == 0);

    memset(&host, 0, sizeof(host));
    (void) ctl_host_answer(ends[0], 5, &host);

    check(memchr(host.runtime, '\0', sizeof(host.runtime)) != NULL);
    check(memchr(host.version, '\0', sizeof(host.version)) != NULL);

    close(ends[0]);
    close(ends[1]);
}
