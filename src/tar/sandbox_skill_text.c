/*
 * What a SKILL.md says of itself at its start, and the record of a skill that
 * is kept beside it.  The front matter is YAML; of that only what people write
 * there is read: a key, a value on its line, or on lines that are indented.
 */

#include "sandbox_skill.h"
#include "sandbox_utf8.h"

#include <string.h>


#define SANDBOX_SKILL_VERSION    1
#define SANDBOX_SKILL_LINES      200     /* of a front matter */


/* what is left to be read */

typedef struct {
    const uint8_t  *p;
    const uint8_t  *last;
} sandbox_skill_text_t;


static void sandbox_skill_matter(sandbox_skill_reader_t *reader);
static int sandbox_skill_line(sandbox_skill_text_t *text,
    sandbox_skill_text_t *line);
static int sandbox_skill_key(const sandbox_skill_text_t *line,
    const char *key, sandbox_skill_text_t *value);
static unsigned sandbox_skill_value(sandbox_skill_text_t value,
    sandbox_skill_text_t *text, unsigned *lines, char *out, size_t max);
static void sandbox_skill_unquote(const sandbox_skill_text_t *value,
    char *out, unsigned *len, size_t max);
static void sandbox_skill_add(const uint8_t *p, size_t size, char *out,
    unsigned *len, size_t max);
static int sandbox_skill_unseen(const uint8_t *p, size_t n);
static uint8_t *sandbox_skill_put(uint8_t *p, uint64_t value, unsigned n);
static uint64_t sandbox_skill_get(const uint8_t **p, unsigned n);


void
sandbox_skill_glance(sandbox_skill_reader_t *reader)
{
    sandbox_skill_t  *skill;

    skill = &reader->skill;

    /* that of one folder among others is none of the skill's */

    if (skill->manual && skill->inner && reader->several) {
        skill->manual = 0;
        skill->inner = 0;
        reader->text_len = 0;
        reader->text_size = 0;
    }

    reader->text_len = sandbox_utf8_head(reader->text, reader->text_len);

    if (skill->manual) {
        sandbox_skill_matter(reader);
    }
}


/* between "---" and "---" */

static void
sandbox_skill_matter(sandbox_skill_reader_t *reader)
{
    unsigned              lines;
    sandbox_skill_t      *skill;
    sandbox_skill_text_t  text, line, value;

    skill = &reader->skill;
    text.p = reader->text;
    text.last = text.p + reader->text_len;

    if (reader->text_len >= 3 && memcmp(text.p, "\xef\xbb\xbf", 3) == 0) {
        text.p += 3;
    }

    if (!sandbox_skill_line(&text, &line) || line.last - line.p != 3
        || memcmp(line.p, "---", 3) != 0)
    {
        return;
    }

    for (lines = 0; lines < SANDBOX_SKILL_LINES; lines++) {

        if (!sandbox_skill_line(&text, &line)
            || (line.last - line.p == 3 && memcmp(line.p, "---", 3) == 0))
        {
            return;
        }

        if (skill->title_len == 0
            && sandbox_skill_key(&line, "name", &value))
        {
            skill->title_len = sandbox_skill_value(value, &text, &lines,
                                                   skill->title,
                                                   sizeof(skill->title));

        } else if (skill->description_len == 0
                   && sandbox_skill_key(&line, "description", &value))
        {
            skill->description_len = sandbox_skill_value(value, &text, &lines,
                                                  skill->description,
                                                  sizeof(skill->description));
        }
    }
}


/* without its end, and without blanks there */

static int
sandbox_skill_line(sandbox_skill_text_t *text, sandbox_skill_text_t *line)
{
    const uint8_t  *end;

    if (text->p == text->last) {
        return 0;
    }

    end = memchr(text->p, '\n', (size_t) (text->last - text->p));

    line->p = text->p;
    line->last = end == NULL ? text->last : end;
    text->p = end == NULL ? text->last : end + 1;

    while (line->last > line->p
           && (line->last[-1] == '\r' || line->last[-1] == ' '
               || line->last[-1] == '\t'))
    {
        line->last--;
    }

    return 1;
}


static int
sandbox_skill_key(const sandbox_skill_text_t *line, const char *key,
    sandbox_skill_text_t *value)
{
    size_t  n;

    n = strlen(key);

    if ((size_t) (line->last - line->p) <= n || memcmp(line->p, key, n) != 0
        || line->p[n] != ':')
    {
        return 0;
    }

    value->p = line->p + n + 1;
    value->last = line->last;

    while (value->p < value->last && (*value->p == ' ' || *value->p == '\t')) {
        value->p++;
    }

    return 1;
}


static unsigned
sandbox_skill_value(sandbox_skill_text_t value, sandbox_skill_text_t *text,
    unsigned *lines, char *out, size_t max)
{
    unsigned               len;
    const uint8_t         *p;
    sandbox_skill_text_t   next, line;

    len = 0;

    if (value.p < value.last && (*value.p == '"' || *value.p == '\'')) {
        sandbox_skill_unquote(&value, out, &len, max);
        return len;
    }

    if (value.p < value.last && (*value.p == '>' || *value.p == '|')) {
        value.p = value.last;
    }

    for (p = value.p; p < value.last; p++) {
        if (*p == '#' && (p == value.p || p[-1] == ' ')) {
            value.last = p;
        }
    }

    sandbox_skill_add(value.p, (size_t) (value.last - value.p), out, &len,
                      max);

    /* what is indented below it belongs to it */

    for ( /* void */ ; *lines < SANDBOX_SKILL_LINES; (*lines)++) {

        next = *text;

        if (!sandbox_skill_line(&next, &line)
            || (line.p < line.last && *line.p != ' ' && *line.p != '\t'))
        {
            break;
        }

        *text = next;

        while (line.p < line.last && (*line.p == ' ' || *line.p == '\t')) {
            line.p++;
        }

        if (len && line.p < line.last) {
            sandbox_skill_add((const uint8_t *) " ", 1, out, &len, max);
        }

        sandbox_skill_add(line.p, (size_t) (line.last - line.p), out, &len,
                          max);
    }

    while (len && out[len - 1] == ' ') {
        len--;
    }

    return len;
}


static void
sandbox_skill_unquote(const sandbox_skill_text_t *value, char *out,
    unsigned *len, size_t max)
{
    size_t          n;
    uint8_t         quote;
    const uint8_t  *p;

    quote = *value->p;

    for (p = value->p + 1; p < value->last; p += n) {

        n = sandbox_utf8_sequence(p, (size_t) (value->last - p));
        n = n ? n : 1;

        if (*p == quote) {

            if (quote == '"' || p + 1 == value->last || p[1] != '\'') {
                return;
            }

            p++;

        } else if (quote == '"' && *p == '\\' && p + 1 < value->last) {

            p++;

            if (*p == 'n' || *p == 't' || *p == 'r') {
                sandbox_skill_add((const uint8_t *) " ", 1, out, len, max);
                continue;
            }

            n = sandbox_utf8_sequence(p, (size_t) (value->last - p));
            n = n ? n : 1;
        }

        sandbox_skill_add(p, n, out, len, max);
    }
}


/* text only, in one line, and nothing in it that changes how others look */

static void
sandbox_skill_add(const uint8_t *p, size_t size, char *out, unsigned *len,
    size_t max)
{
    size_t  n;

    for ( /* void */ ; size; p += n, size -= n) {

        n = sandbox_utf8_sequence(p, size);

        if (n == 0 || sandbox_skill_unseen(p, n)) {
            n = n ? n : 1;
            continue;
        }

        if (n > max - *len) {
            return;
        }

        memcpy(out + *len, p, n);
        *len += (unsigned) n;

        if (*p == '\t') {
            out[*len - 1] = ' ';
        }
    }
}


/* controls of ASCII and of 8859; separators, directions, invisible ones */

static int
sandbox_skill_unseen(const uint8_t *p, size_t n)
{
    if (n == 1) {
        return (p[0] < 0x20 && p[0] != '\t') || p[0] == 0x7f;
    }

    if (n == 2) {
        return p[0] == 0xc2 && p[1] < 0xa0;
    }

    if (n == 3 && p[0] == 0xe2) {
        return (p[1] == 0x80 && ((p[2] >= 0x8b && p[2] <= 0x8f)
                                 || (p[2] >= 0xa8 && p[2] <= 0xae)))
               || (p[1] == 0x81 && p[2] >= 0xa0 && p[2] <= 0xaf);
    }

    if (n == 3) {
        return p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf;
    }

    /* U+E0000 to U+E0FFF: tags, that a model reads and nobody sees */

    return p[0] == 0xf3 && p[1] == 0xa0;
}


/*
 * version, source, flags (manual, inner), number of paths; stamp, files, bytes
 * (8 each), required (4); length (2) and bytes of title, description, paths
 */

#define SANDBOX_SKILL_FIXED      (4 + 3 * 8 + 4)


size_t
sandbox_skill_write(const sandbox_skill_t *skill,
    uint8_t out[SANDBOX_SKILL_MAX_RECORD])
{
    uint8_t   *p;
    unsigned   i;

    out[0] = SANDBOX_SKILL_VERSION;
    out[1] = (uint8_t) skill->source;
    out[2] = (uint8_t) (skill->manual | skill->inner << 1);
    out[3] = (uint8_t) skill->paths;

    p = sandbox_skill_put(out + 4, skill->stamp, 8);
    p = sandbox_skill_put(p, skill->files, 8);
    p = sandbox_skill_put(p, skill->bytes, 8);
    p = sandbox_skill_put(p, skill->required, 4);

    p = sandbox_skill_put(p, skill->title_len, 2);
    memcpy(p, skill->title, skill->title_len);
    p += skill->title_len;

    p = sandbox_skill_put(p, skill->description_len, 2);
    memcpy(p, skill->description, skill->description_len);
    p += skill->description_len;

    for (i = 0; i < skill->paths; i++) {
        p = sandbox_skill_put(p, skill->path[i].len, 2);
        memcpy(p, skill->path[i].data, skill->path[i].len);
        p += skill->path[i].len;
    }

    return (size_t) (p - out);
}


int
sandbox_skill_parse(const uint8_t *p, size_t size, sandbox_skill_t *skill)
{
    size_t          len, max;
    unsigned        i, n;
    const uint8_t  *last;

    memset(skill, 0, sizeof(sandbox_skill_t));

    if (size < SANDBOX_SKILL_FIXED || p[0] != SANDBOX_SKILL_VERSION
        || p[1] > SANDBOX_SKILL_LIBRARY || p[2] > 3
        || p[3] > SANDBOX_SKILL_PATHS)
    {
        return -1;
    }

    last = p + size;
    n = p[3];

    skill->source = p[1];
    skill->manual = p[2] & 1;
    skill->inner = p[2] >> 1;

    p += 4;
    skill->stamp = sandbox_skill_get(&p, 8);
    skill->files = sandbox_skill_get(&p, 8);
    skill->bytes = sandbox_skill_get(&p, 8);
    skill->required = (unsigned) sandbox_skill_get(&p, 4);

    for (i = 0; i < n + 2; i++) {

        max = i == 0 ? SANDBOX_SKILL_MAX_TITLE
              : i == 1 ? SANDBOX_SKILL_MAX_DESCRIPTION
              : SANDBOX_SKILL_MAX_PATH;

        if (last - p < 2) {
            goto bad;
        }

        len = (size_t) sandbox_skill_get(&p, 2);

        if (len > max || len > (size_t) (last - p)) {
            goto bad;
        }

        if (i == 0) {
            memcpy(skill->title, p, len);
            skill->title_len = (unsigned) len;

        } else if (i == 1) {
            memcpy(skill->description, p, len);
            skill->description_len = (unsigned) len;

        } else {
            memcpy(skill->path[i - 2].data, p, len);
            skill->path[i - 2].len = (unsigned) len;
        }

        p += len;
    }

    skill->paths = n;

    return 0;

bad:

    memset(skill, 0, sizeof(sandbox_skill_t));

    return -1;
}


static uint8_t *
sandbox_skill_put(uint8_t *p, uint64_t value, unsigned n)
{
    while (n--) {
        *p++ = (uint8_t) (value >> 8 * n);
    }

    return p;
}


static uint64_t
sandbox_skill_get(const uint8_t **p, unsigned n)
{
    uint64_t  value;

    for (value = 0; n; n--) {
        value = value << 8 | *(*p)++;
    }

    return value;
}
