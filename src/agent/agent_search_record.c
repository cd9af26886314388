/*
 * Reads what ripgrep writes, a piece at a time, and what it says of a pattern
 * that it can't take.  Knows no process and no file.
 */

#include "agent_search.h"

#include <string.h>

#include "sandbox_utf8.h"


static int agent_search_path(agent_search_record_t *record,
    const uint8_t **p, const uint8_t *last);
static int agent_search_binary(agent_search_record_t *record);
static int agent_search_number(agent_search_record_t *record,
    const uint8_t **p, const uint8_t *last, uint64_t *value);
static int agent_search_line(agent_search_record_t *record,
    const uint8_t **p, const uint8_t *last);


void
agent_search_init(agent_search_record_t *record, int names)
{
    memset(record, 0, sizeof(agent_search_record_t));
    record->names = names;
}


int
agent_search_next(agent_search_record_t *record, const uint8_t **p,
    const uint8_t *last)
{
    int  rc;

    if (record->state == AGENT_SEARCH_DONE) {
        agent_search_init(record, record->names);
    }

    rc = SANDBOX_OK;

    while (rc == SANDBOX_OK && record->state != AGENT_SEARCH_DONE) {

        switch (record->state) {

        case AGENT_SEARCH_PATH:
            rc = agent_search_path(record, p, last);
            break;

        case AGENT_SEARCH_LINE:
            rc = agent_search_number(record, p, last, &record->line);
            break;

        case AGENT_SEARCH_OFFSET:
            rc = agent_search_number(record, p, last, &record->offset);
            break;

        case AGENT_SEARCH_TEXT:
            rc = agent_search_line(record, p, last);
            break;

        default:
            rc = SANDBOX_BAD;
        }
    }

    if (rc == SANDBOX_BAD) {
        record->state = AGENT_SEARCH_BAD;
    }

    return rc;
}


size_t
agent_search_text(const agent_search_record_t *record)
{
    if (record->text_size <= SANDBOX_WIRE_MAX_TEXT) {
        return record->text_size;
    }

    return sandbox_utf8_head(record->text, SANDBOX_WIRE_MAX_TEXT);
}


void
agent_search_sentence(char *out, const char *said, size_t size)
{
    size_t       n;
    const char  *p, *end, *line, *last;

    static const char  error[] = "error: ", name[] = "rg: ";

    /* the first line, unless one says what the error is */

    line = said;
    last = said + size;

    for (p = said; p < last; p = end + 1) {
        end = memchr(p, '\n', last - p);

        if (end == NULL) {
            end = last;
        }

        if ((size_t) (end - p) > sizeof(error) - 1
            && memcmp(p, error, sizeof(error) - 1) == 0)
        {
            line = p + sizeof(error) - 1;
            break;
        }
    }

    end = memchr(line, '\n', last - line);
    n = (end != NULL ? end : last) - line;

    if (n >= sizeof(name) - 1 && memcmp(line, name, sizeof(name) - 1) == 0) {
        line += sizeof(name) - 1;
        n -= sizeof(name) - 1;
    }

    if (n >= AGENT_SEARCH_SENTENCE) {
        n = sandbox_utf8_head((const uint8_t *) line,
                              AGENT_SEARCH_SENTENCE - 1);
    }

    if (n && (line[n - 1] == '.' || line[n - 1] == ':')) {
        n--;
    }

    if (!sandbox_utf8_text((const uint8_t *) line, n)) {
        n = 0;
    }

    memcpy(out, line, n);
    out[n] = '\0';

    /* a pattern may be quoted in it */

    for (p = out; *p; p++) {
        if ((unsigned char) *p < 0x20 || *p == 0x7f) {
            out[p - out] = '?';
        }
    }
}


static int
agent_search_path(agent_search_record_t *record, const uint8_t **p,
    const uint8_t *last)
{
    uint8_t  c;

    while (*p < last) {
        c = *(*p)++;

        if (record->path_size == sizeof(record->path) - 1) {
            return SANDBOX_BAD;
        }

        record->path[record->path_size] = c;

        if (c == '\0') {
            if (record->path_size == 0) {
                return SANDBOX_BAD;
            }

            record->state = record->names ? AGENT_SEARCH_DONE
                                          : AGENT_SEARCH_LINE;
            return SANDBOX_OK;
        }

        record->path_size++;

        if (c == '\n' && !record->names && agent_search_binary(record)) {
            record->state = AGENT_SEARCH_DONE;
            return SANDBOX_OK;
        }
    }

    return SANDBOX_AGAIN;
}


/*
 * Of a binary file that matches it says so in words.  A name can be made to
 * look like that: then the two halves are names of nothing, in all likelihood,
 * and who made it does not find it.
 */

static int
agent_search_binary(agent_search_record_t *record)
{
    size_t       length;
    const char  *end, *start;

    static const char  offset[] = "\" byte around offset ";
    static const char  found[] = " (found \"";
    static const char  matches[] = ": binary file matches";
    static const char  before[] = "Binary file ";        /* ripgrep 13 */
    static const char  after[] = " matches";

    /* from its end: `)` and a newline, digits, words, a byte in quotes */

    record->path[record->path_size] = '\0';
    start = record->path;
    end = start + record->path_size;

    if (end - start < 2 || *--end != '\n' || *--end != ')') {
        return 0;
    }

    while (end > start && end[-1] >= '0' && end[-1] <= '9') {
        end--;
    }

    length = sizeof(offset) - 1;

    if ((size_t) (end - start) < length
        || memcmp(end - length, offset, length) != 0)
    {
        return 0;
    }

    end -= length;

    while (end > start && *end != '(' && *end != '\n') {
        end--;
    }

    if (end == start || strncmp(--end, found, sizeof(found) - 1) != 0) {
        return 0;
    }

    length = sizeof(matches) - 1;

    if ((size_t) (end - start) > length
        && memcmp(end - length, matches, length) == 0)
    {
        record->path_size = end - length - start;
        record->path[record->path_size] = '\0';
        record->binary = 1;
        return 1;
    }

    length = sizeof(after) - 1;

    if ((size_t) (end - start) > length + sizeof(before) - 1
        && memcmp(end - length, after, length) == 0
        && memcmp(start, before, sizeof(before) - 1) == 0)
    {
        record->path_size = end - length - start - (sizeof(before) - 1);
        memmove(record->path, start + sizeof(before) - 1, record->path_size);
        record->path[record->path_size] = '\0';
        record->binary = 1;
        return 1;
    }

    return 0;
}


/* Digits, then a colon. */

static int
agent_search_number(agent_search_record_t *record, const uint8_t **p,
    const uint8_t *last, uint64_t *value)
{
    uint8_t  c;

    while (*p < last) {
        c = *(*p)++;

        if (c == ':' && record->digits) {
            record->digits = 0;
            record->state++;
            return SANDBOX_OK;
        }

        /* 19 digits are less than 2^64 */

        if (c < '0' || c > '9' || record->digits == 19) {
            return SANDBOX_BAD;
        }

        record->digits++;
        *value = *value * 10 + (c - '0');
    }

    return SANDBOX_AGAIN;
}


/* What is not kept of a long line is read over. */

static int
agent_search_line(agent_search_record_t *record, const uint8_t **p,
    const uint8_t *last)
{
    size_t          n, room;
    const uint8_t  *end;

    if (*p == last) {
        return SANDBOX_AGAIN;
    }

    end = memchr(*p, '\n', last - *p);
    n = (end != NULL ? end : last) - *p;
    room = sizeof(record->text) - record->text_size;

    if (n > room) {
        record->long_text = 1;
    }

    memcpy(record->text + record->text_size, *p, n < room ? n : room);
    record->text_size += n < room ? n : room;
    *p += n;

    if (end == NULL) {
        return SANDBOX_AGAIN;
    }

    /* a line that DOS wrote, or that ripgrep has ended */

    if (!record->long_text && record->text_size
        && record->text[record->text_size - 1] == '\r')
    {
        record->text_size--;
    }

    (*p)++;
    record->state = AGENT_SEARCH_DONE;

    return SANDBOX_OK;
}
