/*
 * Frames and fields: the bounds of every type, fields cut at every place,
 * writers that are full, and the ERROR frame.
 */

/* link: src/wire/sandbox_wire.c */

#include "test.h"
#include "sandbox_wire.h"


static void frames(void);
static void fields(void);
static void fields_cut(void);
static void fields_many(void);
static void numbers(void);
static void writer(void);
static void error_frame(void);
static int read_frame(uint32_t length, uint8_t type);


static const struct {
    uint8_t   type;
    uint32_t  min;
    uint32_t  max;
} bounds[] = {
    { 1, 0, 4096 },
    { 2, 9, 65536 + 8 },
    { 3, 9, 65536 + 8 },
    { 4, 17, 17 },
    { 5, 1, 65536 },
    { 6, 0, 0 },
    { 7, 0, 16384 },
    { 8, 0, 4096 }
};


int
main(void)
{
    frames();
    fields();
    fields_cut();
    fields_many();
    numbers();
    writer();
    error_frame();

    return test_done();
}


static void
frames(void)
{
    size_t           i;
    uint8_t          p[SANDBOX_WIRE_FRAME_SIZE];
    unsigned         type, wrong;
    sandbox_frame_t  frame;

    static const uint8_t  picture[] = { 0, 0, 0, 17, 4 };

    for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        type = bounds[i].type;

        is_number(read_frame(bounds[i].min, (uint8_t) type), SANDBOX_OK,
                  "frame %u: the shortest", type);
        is_number(read_frame(bounds[i].max, (uint8_t) type), SANDBOX_OK,
                  "frame %u: the longest", type);
        is_number(read_frame(bounds[i].max + 1, (uint8_t) type), SANDBOX_BAD,
                  "frame %u: one byte too long", type);
        is_number(read_frame(UINT32_MAX, (uint8_t) type), SANDBOX_BAD,
                  "frame %u: 4 GiB", type);
        is_number(sandbox_frame_max((uint8_t) type), bounds[i].max,
                  "frame %u: the maximum is told", type);

        if (bounds[i].min) {
            is_number(read_frame(bounds[i].min - 1, (uint8_t) type),
                      SANDBOX_BAD, "frame %u: one byte too short", type);
        }
    }

    wrong = 0;

    for (type = 0; type < 256; type++) {
        if (type >= SANDBOX_FRAME_HEAD && type <= SANDBOX_FRAME_CANCEL) {
            continue;
        }

        if (read_frame(0, (uint8_t) type) != SANDBOX_BAD
            || read_frame(17, (uint8_t) type) != SANDBOX_BAD
            || sandbox_frame_max((uint8_t) type) != 0)
        {
            wrong++;
        }
    }

    is_number(wrong, 0, "frame: all unknown types are refused");

    sandbox_frame_write(p, SANDBOX_FRAME_GAP, 17);
    is_bytes(p, sizeof(p), picture, sizeof(picture), "frame: its five bytes");

    is_number(sandbox_frame_read(p, &frame), SANDBOX_OK, "frame: read back");
    is_number(frame.type, SANDBOX_FRAME_GAP, "frame: type");
    is_number(frame.length, 17, "frame: length");
}


static void
fields(void)
{
    uint8_t           p[256];
    uint64_t          value;
    sandbox_field_t   field;
    sandbox_fields_t  reader;
    sandbox_writer_t  w;

    static const uint8_t  picture[] = {
        0, 2, 0, 0, 0, 4, '/', 't', 'm', 'p',
        0, 5, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0xd4, 0xc0,
        0x04, 0x00, 0, 0, 0, 0
    };

    sandbox_writer_init(&w, p, sizeof(p));
    sandbox_write_string(&w, SANDBOX_TAG_CWD, "/tmp");
    sandbox_write_number(&w, SANDBOX_TAG_WALL_MS, 120000);
    sandbox_write_bytes(&w, 0x400, "", 0);

    ok(!w.failed, "fields: they fit");
    is_bytes(p, w.pos - w.start, picture, sizeof(picture),
             "fields: their bytes");

    sandbox_fields_init(&reader, p, w.pos - w.start);

    is_number(sandbox_fields_next(&reader, &field), SANDBOX_OK,
              "fields: the first");
    is_number(field.tag, SANDBOX_TAG_CWD, "fields: its tag");
    is_bytes(field.data, field.length, "/tmp", 4, "fields: its bytes");

    is_number(sandbox_fields_next(&reader, &field), SANDBOX_OK,
              "fields: the second");
    is_number(sandbox_field_number(&field, 120000, &value), SANDBOX_OK,
              "fields: a number that is the maximum");
    ok(value == 120000, "fields: its value");
    is_number(sandbox_field_number(&field, 119999, &value), SANDBOX_BAD,
              "fields: a number over the maximum");

    is_number(sandbox_fields_next(&reader, &field), SANDBOX_OK,
              "fields: an unknown tag is a field");
    is_number(field.length, 0, "fields: an empty one");

    is_number(sandbox_fields_next(&reader, &field), SANDBOX_END,
              "fields: the end");
    is_number(sandbox_fields_next(&reader, &field), SANDBOX_END,
              "fields: still the end");
}


/* two fields of 10 and 14 bytes: only three lengths are whole */

static void
fields_cut(void)
{
    int               rc;
    size_t            i, size;
    uint8_t           p[64];
    sandbox_field_t   field;
    sandbox_fields_t  reader;
    sandbox_writer_t  w;

    sandbox_writer_init(&w, p, sizeof(p));
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND, "true");
    sandbox_write_number(&w, SANDBOX_TAG_CPU_MS, 30000);
    size = w.pos - w.start;

    for (i = 0; i <= size; i++) {
        sandbox_fields_init(&reader, p, i);

        do {
            rc = sandbox_fields_next(&reader, &field);
        } while (rc == SANDBOX_OK);

        is_number(rc, i == 0 || i == 10 || i == 24 ? SANDBOX_END : SANDBOX_BAD,
                  "fields: cut after %zu bytes", i);
    }

    sandbox_put32(p + 2, UINT32_MAX);
    sandbox_fields_init(&reader, p, size);
    is_number(sandbox_fields_next(&reader, &field), SANDBOX_BAD,
              "fields: a length of 4 GiB");

    sandbox_put32(p + 2, (uint32_t) size - 5);
    sandbox_fields_init(&reader, p, size);
    is_number(sandbox_fields_next(&reader, &field), SANDBOX_BAD,
              "fields: one byte longer than there is");
}


static void
fields_many(void)
{
    unsigned          n;
    sandbox_field_t   field;
    sandbox_fields_t  reader;

    static uint8_t  zeros[SANDBOX_WIRE_FIELD_SIZE
                          * (SANDBOX_WIRE_MAX_FIELDS + 1)];

    sandbox_fields_init(&reader, zeros, sizeof(zeros));

    n = 0;

    while (sandbox_fields_next(&reader, &field) == SANDBOX_OK) {
        n++;
    }

    is_number(n, SANDBOX_WIRE_MAX_FIELDS, "fields: no more than the maximum");
    is_number(sandbox_fields_next(&reader, &field), SANDBOX_BAD,
              "fields: one too many");

    sandbox_fields_init(&reader, zeros,
                        sizeof(zeros) - SANDBOX_WIRE_FIELD_SIZE);

    while (sandbox_fields_next(&reader, &field) == SANDBOX_OK) { /* void */ }

    is_number(sandbox_fields_next(&reader, &field), SANDBOX_END,
              "fields: exactly the maximum ends well");
}


static void
numbers(void)
{
    uint8_t          p[16];
    uint32_t         length;
    uint64_t         value;
    sandbox_field_t  field;

    memset(p, 0xff, sizeof(p));
    field.tag = SANDBOX_TAG_WALL_MS;
    field.data = p;

    for (length = 0; length <= 16; length++) {
        field.length = length;
        is_number(sandbox_field_number(&field, UINT64_MAX, &value),
                  length == 8 ? SANDBOX_OK : SANDBOX_BAD,
                  "number: of %u bytes", length);
    }

    field.length = 8;
    ok(sandbox_field_number(&field, UINT64_MAX, &value) == SANDBOX_OK
       && value == UINT64_MAX, "number: the largest");

    sandbox_put16(p, 0xfffe);
    is_number(sandbox_get16(p), 0xfffe, "number: 16 bits");
    sandbox_put32(p, 0xfffefdfc);
    ok(sandbox_get32(p) == 0xfffefdfc, "number: 32 bits");
    sandbox_put64(p, 0x8182838485868788);
    ok(sandbox_get64(p) == 0x8182838485868788, "number: 64 bits");
    is_bytes(p, 8, "\x81\x82\x83\x84\x85\x86\x87\x88", 8,
             "number: most significant byte first");
}


/* memory of every size: what does not fit leaves nothing behind */

static void
writer(void)
{
    size_t            i, fit;
    uint8_t           p[32];
    sandbox_writer_t  w;

    for (i = 0; i <= 12; i++) {
        memset(p, 0xee, sizeof(p));
        sandbox_writer_init(&w, p, i);
        sandbox_write_string(&w, SANDBOX_TAG_CODE, "gone");

        fit = i >= 10 ? 10 : 0;
        ok(w.failed == (fit == 0) && (size_t) (w.pos - w.start) == fit
           && p[fit] == 0xee, "writer: 10 bytes into %zu", i);
    }

    sandbox_writer_init(&w, p, 12);
    sandbox_write_string(&w, SANDBOX_TAG_CODE, "too long for it");
    sandbox_write_bytes(&w, 1, "", 0);
    ok(w.failed && w.pos == w.start, "writer: once failed, it stays failed");
}


static void
error_frame(void)
{
    char              detail[SANDBOX_WIRE_MAX_ERROR + 1];
    size_t            size;
    uint8_t           p[SANDBOX_WIRE_FRAME_SIZE + SANDBOX_WIRE_MAX_ERROR];
    uint64_t          value;
    sandbox_field_t   field;
    sandbox_frame_t   frame;
    sandbox_fields_t  reader;

    size = sandbox_error_frame(p, sizeof(p), "at_capacity", "All are busy.",
                               7);
    ok(size > SANDBOX_WIRE_FRAME_SIZE, "error: built");
    is_number(sandbox_frame_read(p, &frame), SANDBOX_OK, "error: a frame");
    is_number(frame.type, SANDBOX_FRAME_ERROR, "error: its type");
    is_number(frame.length, size - SANDBOX_WIRE_FRAME_SIZE,
              "error: its length");

    sandbox_fields_init(&reader, p + SANDBOX_WIRE_FRAME_SIZE, frame.length);

    while (sandbox_fields_next(&reader, &field) == SANDBOX_OK) {
        switch (field.tag) {

        case SANDBOX_TAG_STATUS:
            ok(sandbox_field_number(&field, 599, &value) == SANDBOX_OK
               && value == 503, "error: status from the table");
            break;

        case SANDBOX_TAG_CODE:
            is_bytes(field.data, field.length, "at_capacity", 11,
                     "error: code");
            break;

        case SANDBOX_TAG_DETAIL:
            is_bytes(field.data, field.length, "All are busy.", 13,
                     "error: detail");
            break;

        case SANDBOX_TAG_RETRY_AFTER:
            ok(sandbox_field_number(&field, 60, &value) == SANDBOX_OK
               && value == 7, "error: retry after");
            break;

        default:
            ok(0, "error: tag %u is not expected", field.tag);
        }
    }

    is_number(reader.count, 4, "error: four fields");

    sandbox_error_frame(p, sizeof(p), "gone", "It is gone.", 0);
    sandbox_frame_read(p, &frame);
    sandbox_fields_init(&reader, p + SANDBOX_WIRE_FRAME_SIZE, frame.length);

    while (sandbox_fields_next(&reader, &field) == SANDBOX_OK) { /* void */ }

    is_number(reader.count, 3, "error: no retry after, three fields");

    memset(detail, 'x', sizeof(detail) - 1);
    detail[sizeof(detail) - 1] = '\0';
    is_number(sandbox_error_frame(p, sizeof(p), "gone", detail, 0), 0,
              "error: a detail that does not fit");

    for (size = 0; size < sizeof(p); size++) {
        if (sandbox_error_frame(p, size, "gone", "x", 0) != 0) {
            break;
        }
    }

    is_number(size, SANDBOX_WIRE_FRAME_SIZE + 14 + 10 + 7,
              "error: the smallest memory that holds it");
}


static int
read_frame(uint32_t length, uint8_t type)
{
    uint8_t          p[SANDBOX_WIRE_FRAME_SIZE];
    sandbox_frame_t  frame;

    sandbox_frame_write(p, type, length);

    return sandbox_frame_read(p, &frame);
}
