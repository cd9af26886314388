/*
 * Foreign bytes for the events of a command: as a program of what is written,
 * read and resumed, where every reader must get every byte once or be told of
 * it; or as events that were saved, which are read to their end.
 */

/* link: src/agent/agent_events.c src/agent/agent_request.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include <stdlib.h>
#include <string.h>

#include "agent_events.h"
#include "agent_request.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)

#define FUZZ_READERS  4


typedef struct {
    agent_cursor_t  cursor;
    int             alive;
    int             exact;               /* began at 0: it knows all */
    uint64_t        seq;
    uint64_t        at[2];
    uint8_t         part[2 * AGENT_EVENTS_REST + 65536];
    size_t          have;
} fuzz_reader_t;


static void fuzz_program(const uint8_t *p, size_t size);
static void fuzz_read(agent_events_t *events, fuzz_reader_t *r, size_t most);
static void fuzz_frames(fuzz_reader_t *r);
static void fuzz_saved(const uint8_t *p, size_t size);
static void fuzz_request(const uint8_t *p, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);


static uint64_t       fuzz_written[2];
static fuzz_reader_t  fuzz_readers[FUZZ_READERS];


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    if (size == 0) {
        return 0;
    }

    switch (*p % 4) {

    case 0:
        fuzz_saved(p + 1, size - 1);
        break;

    case 1:
        fuzz_request(p + 1, size - 1);
        break;

    default:
        fuzz_program(p + 1, size - 1);
    }

    return 0;
}


/* two bytes an instruction */

static void
fuzz_program(const uint8_t *p, size_t size)
{
    size_t           i, n;
    unsigned         which;
    agent_events_t  *events, *again;
    fuzz_reader_t   *r;
    static uint8_t   block[256 * 256];

    events = agent_events_new();
    check(events != NULL);
    memset(fuzz_written, 0, sizeof(fuzz_written));
    memset(fuzz_readers, 0, sizeof(fuzz_readers));
    agent_events_start(events, 1);

    for (i = 0; i + 1 < size && i < 2000; i += 2) {
        which = p[i] >> 3;
        r = &fuzz_readers[which % FUZZ_READERS];
        n = (size_t) p[i + 1] * (which + 1);

        switch (p[i] % 8) {

        case 0:
        case 1:
        case 2:
            memset(block, p[i + 1], n);
            agent_events_add(events, p[i] & 1, block, n);
            fuzz_written[p[i] & 1] += n;
            break;

        case 3:

            /* whatever bytes follow, as output */

            n = p[i + 1] < size - i - 2 ? p[i + 1] : size - i - 2;
            agent_events_add(events, which & 1, p + i + 2, n);
            fuzz_written[which & 1] += n;
            break;

        case 4:
            agent_events_flush(events);
            break;

        case 5:
            fuzz_read(events, r, n + 1);
            break;

        case 6:
            if (!r->alive) {
                memset(r, 0, sizeof(fuzz_reader_t));
                r->seq = which % 3 ? 0 : n;

                if (agent_events_seek(events, &r->cursor, r->seq) == 0) {
                    r->alive = 1;
                    r->exact = r->seq == 0;
                    agent_events_follow(events);

                } else {
                    check(r->seq > agent_events_last(events));
                }
            }

            break;

        default:
            if (r->alive && which % 4 == 0) {
                r->alive = 0;
                agent_events_leave(events);
            }
        }
    }

    agent_events_end(events);

    for (i = 0; i < FUZZ_READERS; i++) {
        r = &fuzz_readers[i];

        if (r->alive) {
            for (n = 0; n < 40; n++) {
                fuzz_read(events, r, 1 << 20);
            }

            check(r->have == 0 && r->seq + 1 == agent_events_last(events));
            check(!r->exact || (r->at[0] == fuzz_written[0]
                                && r->at[1] == fuzz_written[1]));
            agent_events_leave(events);
        }
    }

    {
        uint8_t  *file;

        file = agent_events_pack(events, &n);
        check(file != NULL && n <= AGENT_EVENTS_SAVED);
        again = agent_events_unpack(file, n);
        check(again != NULL);
        check(agent_events_last(again) == agent_events_last(events));
        free(file);
        agent_events_release(again);
    }

    agent_events_release(events);
}


static void
fuzz_read(agent_events_t *events, fuzz_reader_t *r, size_t most)
{
    size_t        n, lost;
    unsigned      i, count;
    struct iovec  iov[2];

    if (!r->alive) {
        return;
    }

    if (most > 65536) {
        most = 65536;
    }

    lost = agent_events_lost(events, &r->cursor, r->part + r->have);
    check(lost <= AGENT_EVENTS_LOST);
    r->have += lost;

    if (lost == 0) {
        n = 0;
        count = agent_events_peek(events, &r->cursor, iov, most);

        for (i = 0; i < count; i++) {
            memcpy(r->part + r->have + n, iov[i].iov_base, iov[i].iov_len);
            n += iov[i].iov_len;
        }

        check(n <= most);
        r->have += n;

        if (n) {
            n = agent_events_taken(events, &r->cursor, n, r->part + r->have);
            check(n <= AGENT_EVENTS_REST);
            r->have += n;
        }
    }

    fuzz_frames(r);
}


static void
fuzz_frames(fuzz_reader_t *r)
{
    size_t           at;
    uint64_t         seq;
    const uint8_t   *p;
    sandbox_frame_t  frame;

    for (at = 0; at < r->have; at += SANDBOX_WIRE_FRAME_SIZE + frame.length) {
        p = r->part + at;
        check(r->have - at >= SANDBOX_WIRE_FRAME_SIZE);
        check(sandbox_frame_read(p, &frame) == SANDBOX_OK);
        check(SANDBOX_WIRE_FRAME_SIZE + frame.length <= r->have - at);
        p += SANDBOX_WIRE_FRAME_SIZE;
        seq = sandbox_get64(p);

        switch (frame.type) {

        case SANDBOX_FRAME_GAP:
            check(seq > r->seq && (p[8] == 2 || p[8] == 3));
            r->at[p[8] - 2] += sandbox_get64(p + 9);
            break;

        case SANDBOX_FRAME_STDOUT:
        case SANDBOX_FRAME_STDERR:
            check(seq == r->seq + 1);
            check(frame.length - 8 <= AGENT_EVENTS_PIECE);
            r->at[frame.type - SANDBOX_FRAME_STDOUT] += frame.length - 8;
            break;

        default:
            check(frame.type == SANDBOX_FRAME_STARTED && seq == 1);
        }

        r->seq = seq;
    }

    r->have = 0;
}


static void
fuzz_saved(const uint8_t *p, size_t size)
{
    unsigned         i;
    agent_events_t  *events;
    fuzz_reader_t   *r;

    events = agent_events_unpack(p, size);

    if (events == NULL) {
        return;
    }

    r = &fuzz_readers[0];

    for (i = 0; i < 3; i++) {
        memset(r, 0, sizeof(fuzz_reader_t));
        r->seq = i * 5;

        if (agent_events_seek(events, &r->cursor, r->seq) == 0) {
            r->alive = 1;
            agent_events_follow(events);
            fuzz_read(events, r, 100);
            fuzz_read(events, r, 65536);
            agent_events_leave(events);
        }
    }

    agent_events_release(events);
}


/* the head of a request: nothing in it points outside, no number is too large */

static void
fuzz_request(const uint8_t *p, size_t size)
{
    unsigned          operation;
    const char       *detail, *code;
    agent_request_t   request;

    for (operation = SANDBOX_OPERATION_COMMAND;
         operation <= SANDBOX_OPERATION_STDIN; operation++)
    {
        detail = NULL;
        code = agent_request_read(&request, operation, p, size, &detail);

        if (code != NULL) {
            check(detail != NULL && sandbox_code_status(code, strlen(code)));
            continue;
        }

        check(request.stream <= 1 && request.detach <= 1);
        check(request.stdin_open <= 1 && request.stdin_eof <= 1);
        check(request.wall_ms <= SANDBOX_WIRE_MAX_TIME && request.wall_ms);
        check(request.id == NULL
              || sandbox_command_id_valid(request.id, request.id_size));
        check(operation == SANDBOX_OPERATION_COMMAND
              ? request.command != NULL : request.id != NULL);
    }
}
