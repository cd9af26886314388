/*
 * Foreign bytes into the wire protocol.  The first byte chooses what they
 * are taken for; what is read must keep its promises, or the run aborts.
 */

/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */

#include <stdlib.h>

#include "sandbox_wire.h"
#include "sandbox_utf8.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


static void fuzz_preamble(const uint8_t *p, size_t size);
static void fuzz_frames(const uint8_t *p, size_t size);
static void fuzz_fields(const uint8_t *p, size_t size);
static void fuzz_utf8(const uint8_t *p, size_t size);
static void fuzz_names(const uint8_t *p, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    uint8_t  what;

    if (size == 0) {
        return 0;
    }

    what = *p++;
    size--;

    switch (what % 5) {

    case 0:
        fuzz_preamble(p, size);
        break;

    case 1:
        fuzz_frames(p, size);
        break;

    case 2:
        fuzz_fields(p, size);
        break;

    case 3:
        fuzz_utf8(p, size);
        break;

    default:
        fuzz_names(p, size);
    }

    return 0;
}


/* what was read, written again, gives the same bytes */

static void
fuzz_preamble(const uint8_t *p, size_t size)
{
    size_t              i;
    uint8_t             again[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    if (size < SANDBOX_WIRE_PREAMBLE_SIZE) {
        return;
    }

    if (sandbox_preamble_read(p, &preamble) != SANDBOX_OK) {
        return;
    }

    check(preamble.version >= SANDBOX_WIRE_VERSION_MIN);
    check(preamble.version <= SANDBOX_WIRE_VERSION);
    check(preamble.head <= SANDBOX_WIRE_MAX_HEAD);
    check(preamble.body <= sandbox_body_max(preamble.operation)
          || preamble.body == SANDBOX_WIRE_BODY_CHUNKED);

    sandbox_preamble_write(again, &preamble);

    for (i = 0; i < SANDBOX_WIRE_PREAMBLE_SIZE; i++) {
        check(again[i] == p[i]);
    }
}


/* a stream of frames, as a reader of a connection walks it */

static void
fuzz_frames(const uint8_t *p, size_t size)
{
    sandbox_frame_t  frame;

    while (size >= SANDBOX_WIRE_FRAME_SIZE) {
        if (sandbox_frame_read(p, &frame) != SANDBOX_OK) {
            return;
        }

        check(frame.length <= sandbox_frame_max(frame.type));

        p += SANDBOX_WIRE_FRAME_SIZE;
        size -= SANDBOX_WIRE_FRAME_SIZE;

        if (frame.length > size) {
            return;
        }

        if (frame.type == SANDBOX_FRAME_HEAD
            || frame.type == SANDBOX_FRAME_RESULT
            || frame.type == SANDBOX_FRAME_ERROR)
        {
            fuzz_fields(p, frame.length);
        }

        p += frame.length;
        size -= frame.length;
    }
}


static void
fuzz_fields(const uint8_t *p, size_t size)
{
    int               rc;
    size_t            total;
    uint8_t           again[4096];
    uint64_t          value;
    sandbox_field_t   field;
    sandbox_fields_t  fields;
    sandbox_writer_t  w;

    total = 0;

    sandbox_fields_init(&fields, p, size);
    sandbox_writer_init(&w, again, sizeof(again));

    while ((rc = sandbox_fields_next(&fields, &field)) == SANDBOX_OK) {
        check(field.data >= p && field.data + field.length <= p + size);

        total += SANDBOX_WIRE_FIELD_SIZE + field.length;
        check(total <= size);

        if (sandbox_field_number(&field, 1000, &value) == SANDBOX_OK) {
            check(field.length == 8 && value <= 1000);
        }

        sandbox_write_bytes(&w, field.tag, field.data, field.length);
        check(w.pos <= w.end);
    }

    check(rc == SANDBOX_END || rc == SANDBOX_BAD);
    check(fields.count <= SANDBOX_WIRE_MAX_FIELDS);

    if (rc == SANDBOX_END) {
        check(total == size);

        if (!w.failed) {
            check((size_t) (w.pos - w.start) == size);
            check(sandbox_equal(again, p, size));
        }
    }
}


static void
fuzz_utf8(const uint8_t *p, size_t size)
{
    int     text;
    size_t  head, tail, n;

    n = sandbox_utf8_sequence(p, size);
    check(n <= 4 && n <= size);

    head = sandbox_utf8_head(p, size);
    check(head <= size && size - head <= 3);

    tail = sandbox_utf8_tail(p, size);
    check(tail <= size && tail <= 3);

    text = sandbox_utf8_text(p, size);

    if (text) {
        check(head == size && tail == 0);
        check(sandbox_utf8_text(p, sandbox_utf8_head(p, size / 2)));
    }
}


static void
fuzz_names(const uint8_t *p, size_t size)
{
    unsigned  status;

    status = sandbox_code_status((const char *) p, size);
    check(status >= 400 && status <= 599);

    if (sandbox_command_id_valid(p, size)) {
        check(size >= 1 && size <= SANDBOX_WIRE_MAX_COMMAND_ID);
        check(sandbox_utf8_text(p, size));
    }
}
