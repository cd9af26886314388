/*
 * The preamble: a fixed picture of its bytes, each field there and back,
 * and everything that must be refused.
 */

/* link: src/wire/sandbox_wire.c */

#include "test.h"
#include "sandbox_wire.h"


static void picture(void);
static void round_trip(void);
static void refused(void);
static void borders(void);
static void borders_body(uint8_t *p, uint8_t operation, uint64_t most,
    const char *name);
static int read_changed(size_t offset, uint8_t value);


static uint8_t  good[SANDBOX_WIRE_PREAMBLE_SIZE];


int
main(void)
{
    sandbox_preamble_t  preamble;

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = SANDBOX_WIRE_VERSION;
    preamble.operation = SANDBOX_OPERATION_COMMAND;
    sandbox_preamble_write(good, &preamble);

    picture();
    round_trip();
    refused();
    borders();

    return test_done();
}


/* the offsets of docs/wire.md, written out by hand */

static void
picture(void)
{
    size_t              i;
    uint8_t             p[SANDBOX_WIRE_PREAMBLE_SIZE];
    uint8_t             expected[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    static const uint8_t  numbers[] = {
        'S', 'B', 'X', 'W', 'I', 'R', 'E', 1,
        16, 9, 8, 1, 0, 0, 2, 1,
        0, 0, 0, 0, 0, 1, 0, 2,
        1, 2, 3, 4, 5, 6, 7, 8
    };
    static const uint8_t  caps[] = {
        0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 1, 44, 0, 0, 0, 5
    };

    memset(&preamble, 0, sizeof(preamble));
    preamble.version = 1;
    preamble.operation = 16;
    preamble.base = 0x908;
    preamble.flags = SANDBOX_FLAG_FRESH;
    preamble.head = 0x201;
    preamble.body = 0x10002;
    preamble.instance = 0x0102030405060708;
    preamble.memory = 1024;
    preamble.disk = 2048;
    preamble.processes = 300;
    preamble.egress = 5;

    for (i = 0; i < 32; i++) {
        preamble.key[i] = (uint8_t) (0x20 + i);
        preamble.session[i] = (uint8_t) (0x60 + i);
    }

    for (i = 0; i < 16; i++) {
        preamble.tenant[i] = (uint8_t) (0xa0 + i);
    }

    memcpy(expected, numbers, 32);

    for (i = 0; i < 32; i++) {
        expected[32 + i] = (uint8_t) (0x20 + i);
        expected[64 + i] = (uint8_t) (0x60 + i);
    }

    for (i = 0; i < 16; i++) {
        expected[96 + i] = (uint8_t) (0xa0 + i);
    }

    memcpy(expected + 112, caps, 16);

    memset(p, 0xee, sizeof(p));
    sandbox_preamble_write(p, &preamble);

    is_bytes(p, sizeof(p), expected, sizeof(expected), "picture: all bytes");
}


static void
round_trip(void)
{
    uint8_t             p[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  a, b;

    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));

    a.version = SANDBOX_WIRE_VERSION;
    a.operation = 255;
    a.base = UINT16_MAX;
    a.flags = SANDBOX_FLAG_FRESH|SANDBOX_FLAG_NO_CREATE;
    a.head = SANDBOX_WIRE_MAX_HEAD;
    a.body = SANDBOX_WIRE_BODY_CHUNKED;
    a.instance = UINT64_MAX;
    memset(a.key, 0xff, sizeof(a.key));
    memset(a.session, 0xfe, sizeof(a.session));
    memset(a.tenant, 0xfd, sizeof(a.tenant));
    a.memory = UINT32_MAX;
    a.disk = UINT32_MAX - 1;
    a.processes = UINT32_MAX - 2;
    a.egress = UINT32_MAX - 3;

    sandbox_preamble_write(p, &a);
    is_number(sandbox_preamble_read(p, &b), SANDBOX_OK,
              "round trip: the largest of all is read");

    is_number(b.version, a.version, "round trip: version");
    is_number(b.operation, a.operation, "round trip: operation");
    is_number(b.base, a.base, "round trip: base");
    is_number(b.flags, a.flags, "round trip: flags");
    is_number(b.head, a.head, "round trip: head");
    ok(b.body == a.body, "round trip: body");
    ok(b.instance == a.instance, "round trip: instance");
    is_bytes(b.key, 32, a.key, 32, "round trip: key");
    is_bytes(b.session, 32, a.session, 32, "round trip: session");
    is_bytes(b.tenant, 16, a.tenant, 16, "round trip: tenant");
    is_number(b.memory, a.memory, "round trip: memory");
    is_number(b.disk, a.disk, "round trip: disk");
    is_number(b.processes, a.processes, "round trip: processes");
    is_number(b.egress, a.egress, "round trip: egress");
}


static void
refused(void)
{
    size_t              i;
    unsigned            value, wrong;
    sandbox_preamble_t  preamble;

    is_number(sandbox_preamble_read(good, &preamble), SANDBOX_OK,
              "refused: the good one is read");

    for (i = 0; i < SANDBOX_WIRE_MAGIC_SIZE; i++) {
        is_number(read_changed(i, good[i] ^ 0x20), SANDBOX_BAD,
                  "refused: byte %zu of the magic differs", i);
    }

    wrong = 0;

    for (value = 0; value < 256; value++) {
        if ((read_changed(7, (uint8_t) value) == SANDBOX_OK)
            != (value >= SANDBOX_WIRE_VERSION_MIN
                && value <= SANDBOX_WIRE_VERSION))
        {
            wrong++;
        }
    }

    is_number(wrong, 0, "refused: all versions but ours");

    is_number(read_changed(11, 0x80), SANDBOX_BAD,
              "refused: the highest flag");
    is_number(read_changed(11, 4), SANDBOX_BAD, "refused: an unknown flag");
    is_number(read_changed(11, 3), SANDBOX_OK, "refused: not the known flags");
    is_number(read_changed(8, 200), SANDBOX_OK,
              "refused: not an unknown operation, it is the caller's");
}


static void
borders(void)
{
    uint8_t             p[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    memcpy(p, good, sizeof(p));
    sandbox_put32(p + 12, SANDBOX_WIRE_MAX_HEAD);
    is_number(sandbox_preamble_read(p, &preamble), SANDBOX_OK,
              "borders: the longest head");

    sandbox_put32(p + 12, SANDBOX_WIRE_MAX_HEAD + 1);
    is_number(sandbox_preamble_read(p, &preamble), SANDBOX_BAD,
              "borders: a head of one byte more");

    sandbox_put32(p + 12, UINT32_MAX);
    is_number(sandbox_preamble_read(p, &preamble), SANDBOX_BAD,
              "borders: a head of 4 GiB");

    memcpy(p, good, sizeof(p));
    borders_body(p, SANDBOX_OPERATION_STDIN, (uint64_t) 64 << 20, "stdin");
    borders_body(p, SANDBOX_OPERATION_FILE_WRITE, (uint64_t) 4 << 30, "file");
    borders_body(p, SANDBOX_OPERATION_COMMAND,
                 ((uint64_t) 64 << 20) + ((uint64_t) 1 << 40),
                 "stdin and 256 files");

    sandbox_put64(p + 16, UINT64_MAX - 1);
    is_number(sandbox_preamble_read(p, &preamble), SANDBOX_BAD,
              "borders: a body just below \"chunked\"");

    sandbox_put64(p + 16, SANDBOX_WIRE_BODY_CHUNKED);
    is_number(sandbox_preamble_read(p, &preamble), SANDBOX_OK,
              "borders: chunked");
}


static void
borders_body(uint8_t *p, uint8_t operation, uint64_t most, const char *name)
{
    char                text[64];
    sandbox_preamble_t  preamble;

    p[8] = operation;

    sandbox_put64(p + 16, most);
    snprintf(text, sizeof(text), "borders: the longest body, %s", name);
    is_number(sandbox_preamble_read(p, &preamble), SANDBOX_OK, text);
    is_number(preamble.body == most, 1, text);

    sandbox_put64(p + 16, most + 1);
    snprintf(text, sizeof(text), "borders: a byte more, %s", name);
    is_number(sandbox_preamble_read(p, &preamble), SANDBOX_BAD, text);
}


static int
read_changed(size_t offset, uint8_t value)
{
    uint8_t             p[SANDBOX_WIRE_PREAMBLE_SIZE];
    sandbox_preamble_t  preamble;

    memcpy(p, good, sizeof(p));
    p[offset] = value;

    return sandbox_preamble_read(p, &preamble);
}
