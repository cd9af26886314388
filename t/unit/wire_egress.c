/*
 * The table of egress policies: read as a whole or refused as a whole, what a
 * policy allows; and the digest of it.
 */

/* link: src/wire/sandbox_egress.c src/wire/sandbox_sha256.c */
/* link: src/wire/sandbox_wire.c */

#include <stdlib.h>
#include <string.h>

#include "sandbox_egress.h"
#include "sandbox_sha256.h"
#include "test.h"


#define PEM  "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


static void good(void);
static void bad(void);
static void bounds(void);
static void allows(void);
static void digests(void);
static size_t policy(uint8_t *p, uint32_t id, const char *name,
    const char **hosts, unsigned n);
static size_t wrap(uint8_t *to, const uint8_t *p, size_t size);


int
main(void)
{
    good();
    bad();
    bounds();
    allows();
    digests();

    return test_done();
}


static void
good(void)
{
    size_t                    n;
    uint8_t                   one[4096], table[8192];
    const char               *hosts[] = { "a.test", "*.b.test" };
    sandbox_fields_t          fields;
    sandbox_egress_policy_t   p;

    memset(table, 0, sizeof(table));
    is_number(sandbox_egress_check(table, 0), SANDBOX_OK, "no policies");
    is_number(sandbox_egress_find(table, 0, 1, &p), 0, "has none");

    n = wrap(table, one, policy(one, 7, "first", hosts, 2));
    n += wrap(table + n, one, policy(one, 8, "second", hosts, 0));
    is_number(sandbox_egress_check(table, n), SANDBOX_OK, "two");

    is_number(sandbox_egress_find(table, n, 7, &p), 1, "the first");
    is_bytes(p.name, p.name_length, "first", 5, "its name");
    is_number(p.hosts, 2, "its hosts");
    is_number(p.connections, 1, "its connections");
    is_number(p.bytes, 2, "its bytes");
    is_number(p.time_ms, 3, "its time");
    is_bytes(p.index, p.index_length, "https://i/", 10, "its index");
    is_bytes(p.ca, p.ca_length, PEM, strlen(PEM), "its certificates");

    is_number(sandbox_egress_find(table, n, 8, &p), 1, "the second");
    is_number(p.hosts, 0, "has no hosts");
    is_number(sandbox_egress_find(table, n, 9, &p), 0, "no third");

    sandbox_fields_init(&fields, table, n);
    is_number(sandbox_egress_next(&fields, &p), SANDBOX_OK, "one by one");
    is_number(p.id, 7, "the first");
    is_number(sandbox_egress_next(&fields, &p), SANDBOX_OK, "the next");
    is_number(p.id, 8, "the second");
    is_number(sandbox_egress_next(&fields, &p), SANDBOX_END, "the end");

    for (size_t i = 1; i < n; i++) {
        uint8_t  *cut = malloc(i);

        memcpy(cut, table, i);

        if (sandbox_egress_check(cut, i) == SANDBOX_OK
            && i != SANDBOX_WIRE_FIELD_SIZE + sandbox_get32(table + 2))
        {
            ok(0, "%zu bytes of it are none", i);
        }

        free(cut);
    }
}


/* each field as it may not be, and each that must be there left out */

static void
bad(void)
{
    size_t            i, n, size;
    uint8_t           one[4096], table[8192];
    sandbox_writer_t  w;

    static const struct {
        unsigned     tag;
        const char  *value;              /* NULL: left out */
        size_t       length;
    } list[] = {
        { SANDBOX_TAG_EGRESS_ID, NULL, 0 },
        { SANDBOX_TAG_EGRESS_ID, "\0\0\0\0\0\0\0\0", 8 },
        { SANDBOX_TAG_EGRESS_ID, "\0\0\0\1\0\0\0\0", 8 },
        { SANDBOX_TAG_EGRESS_ID, "\0\0\0\1", 4 },
        { SANDBOX_TAG_EGRESS_NAME, NULL, 0 },
        { SANDBOX_TAG_EGRESS_NAME, "", 0 },
        { SANDBOX_TAG_EGRESS_NAME, "a b", 3 },
        { SANDBOX_TAG_EGRESS_NAME, "a\"", 2 },
        { SANDBOX_TAG_EGRESS_NAME, "0123456789012345678901234567890123456789"
          "0123456789012345678901234", 65 },
        { SANDBOX_TAG_EGRESS_HOST, "", 0 },
        { SANDBOX_TAG_EGRESS_HOST, "A.test", 6 },
        { SANDBOX_TAG_EGRESS_HOST, "a.test.", 7 },
        { SANDBOX_TAG_EGRESS_HOST, "*", 1 },
        { SANDBOX_TAG_EGRESS_HOST, "*.", 2 },
        { SANDBOX_TAG_EGRESS_HOST, "*.*.a", 5 },
        { SANDBOX_TAG_EGRESS_HOST, "a.*.b", 5 },
        { SANDBOX_TAG_EGRESS_HOST, "10.0.0.1", 8 },
        { SANDBOX_TAG_EGRESS_HOST, "*.0.0.1", 7 },
        { SANDBOX_TAG_EGRESS_HOST, "a\0b", 3 },
        { SANDBOX_TAG_EGRESS_CONNECTIONS, NULL, 0 },
        { SANDBOX_TAG_EGRESS_CONNECTIONS, "x", 1 },
        { SANDBOX_TAG_EGRESS_BYTES, NULL, 0 },
        { SANDBOX_TAG_EGRESS_TIME_MS, NULL, 0 },
        { SANDBOX_TAG_EGRESS_TIME_MS, "\0\0\0\1\0\0\0\0", 8 },
        { SANDBOX_TAG_EGRESS_INDEX, "", 0 },
        { SANDBOX_TAG_EGRESS_INDEX, "https://", 8 },
        { SANDBOX_TAG_EGRESS_INDEX, "http://a.test/", 14 },
        { SANDBOX_TAG_EGRESS_INDEX, "https://a b", 11 },
        { SANDBOX_TAG_EGRESS_INDEX, "https://a\n", 10 },
        { SANDBOX_TAG_EGRESS_CA, "", 0 },
        { SANDBOX_TAG_EGRESS_CA, "nothing", 7 },
        { SANDBOX_TAG_EGRESS_CA, PEM "\0", sizeof(PEM) },
        { SANDBOX_TAG_EGRESS_OPEN, "\0\0\0\0\0\0\0\0", 8 },
        { 9999, "x", 1 }
    };

    static const struct {
        unsigned     tag;
        const char  *value;
        size_t       length;
    } fine[] = {
        { SANDBOX_TAG_EGRESS_ID, "\0\0\0\0\0\0\0\1", 8 },
        { SANDBOX_TAG_EGRESS_NAME, "n", 1 },
        { SANDBOX_TAG_EGRESS_HOST, "a.test", 6 },
        { SANDBOX_TAG_EGRESS_CONNECTIONS, "\0\0\0\0\0\0\0\1", 8 },
        { SANDBOX_TAG_EGRESS_BYTES, "\0\0\0\0\0\0\0\1", 8 },
        { SANDBOX_TAG_EGRESS_TIME_MS, "\0\0\0\0\0\0\0\1", 8 },
        { SANDBOX_TAG_EGRESS_INDEX, "https://a", 9 },
        { SANDBOX_TAG_EGRESS_CA, PEM, sizeof(PEM) - 1 }
    };

    for (i = 0; i <= sizeof(list) / sizeof(list[0]); i++) {
        int  done = i == sizeof(list) / sizeof(list[0]);

        sandbox_writer_init(&w, one, sizeof(one));

        for (n = 0; n < sizeof(fine) / sizeof(fine[0]); n++) {
            if (done || fine[n].tag != list[i].tag) {
                sandbox_write_bytes(&w, fine[n].tag, fine[n].value,
                                    fine[n].length);

            } else {
                done = 1;

                if (list[i].value != NULL) {
                    sandbox_write_bytes(&w, list[i].tag, list[i].value,
                                        list[i].length);
                }
            }
        }

        if (!done) {
            sandbox_write_bytes(&w, list[i].tag, list[i].value,
                                list[i].length);
        }

        size = wrap(table, one, w.pos - w.start);

        if (i == sizeof(list) / sizeof(list[0])) {
            is_number(sandbox_egress_check(table, size), SANDBOX_OK,
                      "as it must be");
            continue;
        }

        is_number(sandbox_egress_check(table, size), SANDBOX_BAD,
                  "wrong: %zu, tag %u", i, list[i].tag);
    }

    /* all but hosts once */

    for (i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        sandbox_writer_init(&w, one, sizeof(one));

        for (n = 0; n < sizeof(fine) / sizeof(fine[0]); n++) {
            sandbox_write_bytes(&w, fine[n].tag, fine[n].value,
                                fine[n].length);
        }

        sandbox_write_bytes(&w, fine[i].tag, fine[i].value, fine[i].length);
        size = wrap(table, one, w.pos - w.start);

        is_number(sandbox_egress_check(table, size),
                  fine[i].tag == SANDBOX_TAG_EGRESS_HOST ? SANDBOX_OK
                                                         : SANDBOX_BAD,
                  "tag %u twice", fine[i].tag);
    }
}


static void
bounds(void)
{
    size_t       n;
    uint8_t     *one, *table;
    unsigned     i;
    const char  *hosts[SANDBOX_EGRESS_MAX_HOSTS + 1];

    one = malloc(65536);
    table = malloc(SANDBOX_WIRE_MAX_TABLE + 1);

    for (i = 0; i <= SANDBOX_EGRESS_MAX_HOSTS; i++) {
        hosts[i] = "h.test";
    }

    n = wrap(table, one, policy(one, 1, "x", hosts, 256));
    is_number(sandbox_egress_check(table, n), SANDBOX_OK, "256 hosts");
    n = wrap(table, one, policy(one, 1, "x", hosts, 257));
    is_number(sandbox_egress_check(table, n), SANDBOX_BAD, "257 hosts");

    for (i = 1, n = 0; i <= SANDBOX_EGRESS_MAX_POLICIES; i++) {
        n += wrap(table + n, one, policy(one, i, "x", hosts, 1));
    }

    is_number(sandbox_egress_check(table, n), SANDBOX_OK, "64 policies");
    n += wrap(table + n, one, policy(one, i, "x", hosts, 1));
    is_number(sandbox_egress_check(table, n), SANDBOX_BAD, "65 policies");

    n = wrap(table, one, policy(one, 5, "x", hosts, 1));
    n += wrap(table + n, one, policy(one, 5, "y", hosts, 1));
    is_number(sandbox_egress_check(table, n), SANDBOX_BAD, "an id twice");

    is_number(sandbox_egress_check(table, SANDBOX_WIRE_MAX_TABLE + 1),
              SANDBOX_BAD, "over 4 MiB");
    free(one);
    free(table);
}


static void
allows(void)
{
    size_t                    i, n;
    uint8_t                   one[4096], table[8192];
    const char               *hosts[] = { "a.test", "*.b.test", "*.c" };
    sandbox_egress_policy_t   p;

    static const struct {
        const char  *host;
        int          allowed;
    } list[] = {
        { "a.test", 1 }, { "x.b.test", 1 }, { "x.y.b.test", 1 }, { "x.c", 1 },
        { "b.test", 0 }, { "xb.test", 0 }, { "a.test.x", 0 }, { "x.a.test", 0 },
        { "test", 0 }, { "a.tes", 0 }, { "a.testx", 0 }, { "c", 0 },
        { "x.b.test.", 0 }, { ".b.test", 0 }, { "", 0 }
    };

    n = wrap(table, one, policy(one, 1, "x", hosts, 3));
    is_number(sandbox_egress_find(table, n, 1, &p), 1, "the policy");

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        const uint8_t  *host = (const uint8_t *) list[i].host;
        size_t          length = strlen(list[i].host);

        is_number(sandbox_egress_host(host, length)
                  && sandbox_egress_allows(&p, host, length),
                  list[i].allowed, "host \"%s\"", list[i].host);
    }
}


static void
digests(void)
{
    char     text[8];
    uint8_t  digest[32];

    static const uint8_t  empty[32] = {
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4,
        0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b,
        0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55
    };

    static const uint8_t  abc[32] = {
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
        0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
        0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad
    };

    /* 56 bytes: the length has no room in the same block */

    static const uint8_t  two[32] = {
        0x24, 0x8d, 0x6a, 0x61, 0xd2, 0x06, 0x38, 0xb8, 0xe5, 0xc0, 0x26,
        0x93, 0x0c, 0x3e, 0x60, 0x39, 0xa3, 0x3c, 0xe4, 0x59, 0x64, 0xff,
        0x21, 0x67, 0xf6, 0xec, 0xed, 0xd4, 0x19, 0xdb, 0x06, 0xc1
    };

    memset(text, 0, sizeof(text));
    sandbox_sha256(text, 0, digest);
    is_bytes(digest, 32, empty, 32, "of nothing");
    sandbox_sha256("abc", 3, digest);
    is_bytes(digest, 32, abc, 32, "of three bytes");
    sandbox_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                   56, digest);
    is_bytes(digest, 32, two, 32, "of two blocks");
}


static size_t
policy(uint8_t *p, uint32_t id, const char *name, const char **hosts,
    unsigned n)
{
    unsigned          i;
    sandbox_writer_t  w;

    sandbox_writer_init(&w, p, 65536);
    sandbox_write_number(&w, SANDBOX_TAG_EGRESS_ID, id);
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_NAME, name);

    for (i = 0; i < n; i++) {
        sandbox_write_string(&w, SANDBOX_TAG_EGRESS_HOST, hosts[i]);
    }

    sandbox_write_number(&w, SANDBOX_TAG_EGRESS_CONNECTIONS, 1);
    sandbox_write_number(&w, SANDBOX_TAG_EGRESS_BYTES, 2);
    sandbox_write_number(&w, SANDBOX_TAG_EGRESS_TIME_MS, 3);
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_INDEX, "https://i/");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_CA, PEM);

    return w.pos - w.start;
}


static size_t
wrap(uint8_t *to, const uint8_t *p, size_t size)
{
    sandbox_writer_t  w;

    sandbox_writer_init(&w, to, size + SANDBOX_WIRE_FIELD_SIZE);
    sandbox_write_bytes(&w, SANDBOX_TAG_EGRESS_POLICY, p, size);

    return w.pos - w.start;
}
