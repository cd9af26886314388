/*
 * A command's events as the gateway sends them: a JSON object a line.
 */

#ifndef SANDBOX_CTL_EVENT_H
#define SANDBOX_CTL_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>


/* one piece of output is at most 64 KiB, six bytes each when escaped */

#define CTL_MAX_LINE  (1024 * 1024)              /* bytes */


typedef struct {
    char       *data;
    size_t      have;
    size_t      size;                            /* allocated */
} ctl_lines_t;

typedef enum {
    CTL_EVENT_OTHER = 0,                         /* of a later release */
    CTL_EVENT_STARTED,
    CTL_EVENT_OUTPUT,
    CTL_EVENT_GAP,
    CTL_EVENT_RESULT,
    CTL_EVENT_REFUSED                            /* after it had to wait */
} ctl_event_e;

typedef struct {
    ctl_event_e  type;
    uint64_t     seq;
    int          stream;                         /* 1 or 2, also of a gap */
    uint8_t     *data;                           /* of output; owned */
    size_t       size;
    uint64_t     bytes;                          /* left out by a gap */
    json_t      *object;                         /* of the last one; owned */
} ctl_event_t;


/*
 * Takes n bytes, and hands on each line that is complete, without its end and
 * with a NUL behind it; empty ones are left out.  -1: the line is too long, no
 * memory, or what `line` returned.
 */
int ctl_lines_add(ctl_lines_t *lines, const char *data, size_t n,
    int (*line)(void *context, const char *text, size_t size), void *context);
void ctl_lines_free(ctl_lines_t *lines);

/* 0, or -1: it is no event.  ctl_event_free() is for both cases. */
int ctl_event_read(ctl_event_t *event, const char *text, size_t size);
void ctl_event_free(ctl_event_t *event);


#endif /* SANDBOX_CTL_EVENT_H */
