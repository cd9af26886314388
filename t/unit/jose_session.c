/*
 * src/jose: the key of a session and the digest of a tenant.
 */

/* link: src/jose/sandbox_jose_session.c -ljansson -lcrypto */

#include "test.h"
#include "sandbox_jose.h"

#include <stdlib.h>


#define bytes(s)  ((sandbox_jose_bytes_t) { s, strlen(s) })
#define absent    ((sandbox_jose_bytes_t) { NULL, 0 })


static uint8_t  key_a[SANDBOX_JOSE_SESSION_SIZE];
static uint8_t  key_b[SANDBOX_JOSE_SESSION_SIZE];


static int
same_key(const sandbox_jose_session_t *a, const sandbox_jose_session_t *b)
{
    return sandbox_jose_session_key(a, key_a) == 0
           && sandbox_jose_session_key(b, key_b) == 0
           && memcmp(key_a, key_b, SANDBOX_JOSE_SESSION_SIZE) == 0;
}


static int
same_tenant(const sandbox_jose_session_t *a, const sandbox_jose_session_t *b)
{
    return sandbox_jose_tenant_digest(a, key_a) == 0
           && sandbox_jose_tenant_digest(b, key_b) == 0
           && memcmp(key_a, key_b, SANDBOX_JOSE_TENANT_SIZE) == 0;
}


int
main(void)
{
    char                    *large;
    sandbox_jose_bytes_t     parts[5];
    sandbox_jose_session_t   a, b;

    /*
     * printf '\0\0\0\4demo\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\5alice\0\0\0\2c1' \
     *     | sha256sum
     */

    static const uint8_t  known[SANDBOX_JOSE_SESSION_SIZE] = {
        0xa7, 0xf0, 0xb2, 0x88, 0x30, 0x09, 0x7a, 0xe8,
        0xab, 0x24, 0xb6, 0x96, 0xd9, 0xe4, 0xa8, 0x1f,
        0xf5, 0x2f, 0x23, 0xc4, 0x0f, 0x5b, 0x34, 0xc9,
        0x5d, 0x39, 0xc1, 0x37, 0xd0, 0x1a, 0x82, 0xd2
    };

    /* printf '\0\0\0\4user\0\0\0\4demo\xff\xff\xff\xff\0\0\0\5alice' | ... */

    static const uint8_t  known_tenant[SANDBOX_JOSE_TENANT_SIZE] = {
        0x12, 0x3c, 0xa7, 0x69, 0x40, 0xde, 0xf2, 0xb9,
        0xf6, 0x6b, 0x13, 0x97, 0x97, 0xf8, 0x42, 0x22
    };

    a = (sandbox_jose_session_t) { bytes("demo"), absent, absent,
                                   bytes("alice"), bytes("c1") };

    is_number(sandbox_jose_session_key(&a, key_a), 0, "a session key");
    is_bytes(key_a, sizeof(known), known, sizeof(known), "as documented");
    is_number(sandbox_jose_tenant_digest(&a, key_a), 0, "a tenant digest");
    is_bytes(key_a, sizeof(known_tenant), known_tenant, sizeof(known_tenant),
             "as documented");

    b = a;
    ok(same_key(&a, &b), "the same parts make the same key");

    a.user = bytes("alice");
    a.conversation = bytes("1x");
    b.user = bytes("alice1");
    b.conversation = bytes("x");
    ok(!same_key(&a, &b), "alice and 1x are not alice1 and x");

    b = a;
    b.realm = bytes("other");
    ok(!same_key(&a, &b), "another realm");
    ok(!same_tenant(&a, &b), "another realm, other limits");

    b = a;
    b.issuer = bytes("");
    ok(!same_key(&a, &b), "an empty issuer is not an absent one");
    ok(!same_tenant(&a, &b), "nor for the tenant");

    b = a;
    b.tenant = bytes("");
    ok(!same_key(&a, &b), "an empty tenant is not an absent one");

    b = a;
    b.tenant = bytes("acme");
    a.issuer = bytes("acme");
    ok(!same_key(&a, &b), "a part counts by its place");
    a.issuer = absent;

    b = a;
    b.user = bytes("Alice");
    ok(!same_key(&a, &b), "case matters");

    b = a;
    b.conversation = bytes("2");
    ok(same_tenant(&a, &b), "conversations of a user share the limits");

    b = a;
    b.user = bytes("bob");
    ok(!same_tenant(&a, &b), "users without a tenant do not");

    a.tenant = bytes("acme");
    b.tenant = bytes("acme");
    ok(same_tenant(&a, &b), "users of a tenant do");
    ok(!same_key(&a, &b), "but not their sessions");

    a.tenant = bytes("bob");
    b.tenant = absent;
    ok(!same_tenant(&a, &b), "tenant bob is not user bob");

    large = calloc(1, 64 * 1024 + 1);
    a.realm = (sandbox_jose_bytes_t) { large, 64 * 1024 };
    is_number(sandbox_jose_session_key(&a, key_a), 0, "a part of 64 KiB");
    a.realm.size++;
    is_number(sandbox_jose_session_key(&a, key_a), -1, "and a byte more");
    is_number(sandbox_jose_tenant_digest(&a, key_a), -1,
              "and for the tenant");
    free(large);

    parts[0] = bytes("demo");
    parts[1] = absent;
    parts[2] = absent;
    parts[3] = bytes("alice");
    parts[4] = bytes("c1");
    is_number(sandbox_jose_digest(parts, 5, key_a), 0, "a digest of parts");
    ok(memcmp(key_a, known, sizeof(known)) == 0, "coded as a session key");

    parts[0] = bytes("ab");
    parts[1] = bytes("c");
    is_number(sandbox_jose_digest(parts, 2, key_a), 0, "two parts");
    parts[0] = bytes("a");
    parts[1] = bytes("bc");
    is_number(sandbox_jose_digest(parts, 2, key_b), 0, "two others");
    ok(memcmp(key_a, key_b, sizeof(key_a)) != 0, "where they end counts");

    /* a chain of digests is made in place */

    is_number(sandbox_jose_digest(parts, 2, key_a), 0, "the same two");
    parts[0] = (sandbox_jose_bytes_t) { key_a, sizeof(key_a) };
    is_number(sandbox_jose_digest(parts, 1, key_b), 0, "a digest of it");
    is_number(sandbox_jose_digest(parts, 1, key_a), 0, "and in place");
    ok(memcmp(key_a, key_b, sizeof(key_a)) == 0, "is the same");

    return test_done();
}
