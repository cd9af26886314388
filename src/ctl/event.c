/*
 * Lines, and what they say.  What comes is foreign: a line has a maximum, a
 * field the right type, or it is no event.  Knows no connection.
 */

#include "ctl.h"
#include "event.h"

#include <stdlib.h>
#include <string.h>


static int ctl_event_number(const json_t *object, const char *name,
    uint64_t *number);
static int ctl_event_output(ctl_event_t *event, const json_t *object);
static int ctl_event_gap(ctl_event_t *event, const json_t *object);


int
ctl_lines_add(ctl_lines_t *lines, const char *data, size_t n,
    int (*line)(void *context, const char *text, size_t size), void *context)
{
    char        *larger;
    size_t       size, part;
    const char  *end;

    while (n > 0) {
        end = memchr(data, '\n', n);
        part = end != NULL ? (size_t) (end - data) : n;

        if (part > CTL_MAX_LINE - lines->have) {
            return -1;
        }

        if (lines->have + part + 1 > lines->size) {
            for (size = 4096; size < lines->have + part + 1; size *= 2) {
                /* until it has room */
            }

            larger = realloc(lines->data, size);
            if (larger == NULL) {
                return -1;
            }

            lines->data = larger;
            lines->size = size;
        }

        memcpy(lines->data + lines->have, data, part);
        lines->have += part;
        lines->data[lines->have] = '\0';

        if (end == NULL) {
            return 0;
        }

        data += part + 1;
        n -= part + 1;

        size = lines->have;
        lines->have = 0;

        if (size > 0 && line(context, lines->data, size) == -1) {
            return -1;
        }
    }

    return 0;
}


void
ctl_lines_free(ctl_lines_t *lines)
{
    free(lines->data);
    memset(lines, 0, sizeof(ctl_lines_t));
}


int
ctl_event_read(ctl_event_t *event, const char *text, size_t size)
{
    int          rc;
    json_t      *object;
    const char  *type;

    memset(event, 0, sizeof(ctl_event_t));

    object = json_loadb(text, size, 0, NULL);
    type = json_string_value(json_object_get(object, "type"));

    if (type == NULL || ctl_event_number(object, "seq", &event->seq) == -1) {
        json_decref(object);
        return -1;
    }

    rc = 0;

    if (strcmp(type, "started") == 0) {
        event->type = CTL_EVENT_STARTED;

    } else if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0) {
        event->type = CTL_EVENT_OUTPUT;
        event->stream = strcmp(type, "stdout") == 0 ? 1 : 2;
        rc = ctl_event_output(event, object);

    } else if (strcmp(type, "gap") == 0) {
        event->type = CTL_EVENT_GAP;
        rc = ctl_event_gap(event, object);

    } else if (strcmp(type, "result") == 0) {
        event->type = CTL_EVENT_RESULT;
        event->object = json_incref(object);

    } else if (strcmp(type, "refused") == 0) {
        event->type = CTL_EVENT_REFUSED;
        event->object = json_incref(object);
    }

    json_decref(object);

    return rc;
}


void
ctl_event_free(ctl_event_t *event)
{
    free(event->data);
    json_decref(event->object);
    memset(event, 0, sizeof(ctl_event_t));
}


static int
ctl_event_number(const json_t *object, const char *name, uint64_t *number)
{
    const json_t  *value;

    value = json_object_get(object, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return -1;
    }

    *number = (uint64_t) json_integer_value(value);

    return 0;
}


static int
ctl_event_output(ctl_event_t *event, const json_t *object)
{
    size_t         size;
    const char    *text;
    const json_t  *value;

    value = json_object_get(object, "data");

    if (value == NULL) {
        value = json_object_get(object, "dataBase64");

        if (!json_is_string(value)) {
            return -1;
        }

        event->data = ctl_base64_decode(json_string_value(value),
                                        json_string_length(value),
                                        &event->size);

        return event->data == NULL ? -1 : 0;
    }

    text = json_string_value(value);
    size = json_string_length(value);

    if (text == NULL) {
        return -1;
    }

    event->data = malloc(size + 1);
    if (event->data == NULL) {
        return -1;
    }

    memcpy(event->data, text, size);
    event->size = size;

    return 0;
}


static int
ctl_event_gap(ctl_event_t *event, const json_t *object)
{
    const char  *stream;

    stream = json_string_value(json_object_get(object, "stream"));

    if (stream == NULL
        || (strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0))
    {
        return -1;
    }

    event->stream = strcmp(stream, "stdout") == 0 ? 1 : 2;

    return ctl_event_number(object, "bytes", &event->bytes);
}
