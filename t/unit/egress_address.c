/*
 * Which addresses are public, in all their clothes, and which ranges an
 * operator may allow.
 */

/* link: src/egress/egress_address.c */

#include <arpa/inet.h>
#include <string.h>

#include "egress_address.h"
#include "test.h"


static void kinds(void);
static void ranges(void);
static void texts(void);
static egress_address_t address(const char *text);


int
main(void)
{
    kinds();
    ranges();
    texts();

    return test_done();
}


static void
kinds(void)
{
    size_t            i;
    const char       *kind;
    egress_address_t  a;

    static const struct {
        const char  *text;
        int          is_public;
    } list[] = {
        { "1.1.1.1", 1 }, { "8.8.8.8", 1 }, { "100.63.255.255", 1 },
        { "100.128.0.0", 1 }, { "172.15.255.255", 1 }, { "172.32.0.0", 1 },
        { "192.167.255.255", 1 }, { "192.169.0.0", 1 },
        { "169.253.255.255", 1 }, { "169.255.0.0", 1 }, { "11.0.0.0", 1 },
        { "9.255.255.255", 1 }, { "126.255.255.255", 1 }, { "128.0.0.0", 1 },
        { "198.17.255.255", 1 }, { "198.20.0.0", 1 }, { "223.255.255.255", 1 },
        { "168.63.129.17", 1 },

        { "0.0.0.0", 0 }, { "0.1.2.3", 0 }, { "10.0.0.0", 0 },
        { "10.255.255.255", 0 }, { "100.64.0.0", 0 }, { "100.100.100.200", 0 },
        { "100.127.255.255", 0 }, { "127.0.0.1", 0 }, { "127.255.255.255", 0 },
        { "168.63.129.16", 0 }, { "169.254.169.254", 0 },
        { "169.254.0.0", 0 }, { "172.16.0.0", 0 }, { "172.31.255.255", 0 },
        { "192.0.0.192", 0 }, { "192.0.2.1", 0 }, { "192.88.99.1", 0 },
        { "192.168.0.1", 0 }, { "198.18.0.1", 0 }, { "198.19.255.255", 0 },
        { "198.51.100.1", 0 }, { "203.0.113.1", 0 }, { "224.0.0.1", 0 },
        { "239.255.255.255", 0 }, { "240.0.0.0", 0 },
        { "255.255.255.255", 0 },

        { "2606:4700:4700::1111", 1 }, { "2a00:1450::1", 1 },
        { "2400:cb00::1", 1 }, { "2001:200::1", 1 }, { "2001:4860::1", 1 },
        { "3ffe::1", 1 }, { "::ffff:8.8.8.8", 1 }, { "64:ff9b::8.8.8.8", 1 },

        { "::", 0 }, { "::1", 0 }, { "::2", 0 }, { "::7f00:1", 0 },
        { "::10.0.0.1", 0 }, { "::ffff:10.0.0.1", 0 },
        { "::ffff:169.254.169.254", 0 }, { "::ffff:7f00:1", 0 },
        { "::ffff:0:127.0.0.1", 0 }, { "64:ff9b::127.0.0.1", 0 },
        { "64:ff9b::169.254.169.254", 0 }, { "64:ff9b:1::1", 0 },
        { "64:ff9b::1:8.8.8.8", 0 }, { "100::1", 0 }, { "2001::1", 0 },
        { "2001:0:a9fe:a9fe::1", 0 }, { "2001:2::1", 0 },
        { "2001:10::1", 0 }, { "2001:1ff:ffff::1", 0 }, { "2001:db8::1", 0 },
        { "2002:a9fe:a9fe::1", 0 }, { "2002:808:808::1", 0 },
        { "3fff::1", 0 }, { "3fff:fff:ffff::1", 0 }, { "4000::1", 0 },
        { "5f00::1", 0 }, { "fc00::1", 0 }, { "fd00:ec2::254", 0 },
        { "fe80::1", 0 }, { "febf::1", 0 }, { "fec0::1", 0 }, { "ff02::1", 0 },
        { "1000::1", 0 }, { "ffff::1", 0 }
    };

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        a = address(list[i].text);
        kind = egress_address_kind(&a);

        is_number(kind == NULL, list[i].is_public, "%s: %s", list[i].text,
                  kind ? kind : "public");
    }

    memset(&a, 0, sizeof(a));
    a.any.sa_family = AF_UNIX;
    ok(egress_address_kind(&a) != NULL, "no other family");
}


static void
ranges(void)
{
    size_t            i;
    egress_range_t    range[2];
    egress_address_t  a;

    static const char  *good[] = {
        "10.0.0.0/8", "127.0.0.1", "127.0.0.1/32", "169.254.0.0/16", "::1",
        "fc00::/7", "fd12:3456::/32", "172.16.0.0/12", "::ffff:10.0.0.0/104"
    };

    static const char  *bad[] = {
        "", "/8", "10.0.0.0/", "10.0.0.0/7", "0.0.0.0/0", "0.0.0.0/8x",
        "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-8", "10.0.0.0/ 8", "10/8",
        "::/0", "::/6", "fc00::/129", "fc00::1/7", "localhost", "10.0.0.0 /8",
        "1111:2222:3333:4444:5555:6666:7777:8888:9999/128"
    };

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        is_number(egress_range_read(good[i], range), 0, "\"%s\"", good[i]);
    }

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        is_number(egress_range_read(bad[i], range), -1, "not \"%s\"", bad[i]);
    }

    egress_range_read("10.64.0.0/10", &range[0]);
    egress_range_read("fd00::/8", &range[1]);

    a = address("10.64.0.1");
    is_number(egress_range_has(range, 2, &a), 1, "in the first one");
    a = address("10.127.255.255");
    is_number(egress_range_has(range, 2, &a), 1, "its last address");
    a = address("10.128.0.0");
    is_number(egress_range_has(range, 2, &a), 0, "the one after that");
    a = address("::ffff:10.64.0.1");
    is_number(egress_range_has(range, 2, &a), 1, "mapped");
    a = address("fd00:1::1");
    is_number(egress_range_has(range, 2, &a), 1, "in the second one");
    is_number(egress_range_has(range, 1, &a), 0, "and not in the first");
    is_number(egress_range_has(range, 0, &a), 0, "in none of none");
}


static void
texts(void)
{
    char              text[EGRESS_ADDRESS_SIZE];
    egress_address_t  a;

    a = address("::ffff:1.2.3.4");
    egress_address_port(&a, 443);
    egress_address_plain(&a);
    egress_address_text(&a, text);
    is_string(text, "1.2.3.4:443", "a mapped one is an IPv4 one");
    is_number(egress_address_size(&a), sizeof(struct sockaddr_in), "in size");

    a = address("1111:2222:3333:4444:5555:6666:7777:8888");
    egress_address_port(&a, 65535);
    egress_address_plain(&a);
    egress_address_text(&a, text);
    is_string(text, "[1111:2222:3333:4444:5555:6666:7777:8888]:65535",
              "a long one");
    is_number(egress_address_get_port(&a), 65535, "its port");
    is_number(egress_address_size(&a), sizeof(struct sockaddr_in6), "size");
}


static egress_address_t
address(const char *text)
{
    egress_address_t  a;

    memset(&a, 0, sizeof(a));

    if (inet_pton(AF_INET, text, &a.in.sin_addr) == 1) {
        a.in.sin_family = AF_INET;

    } else if (inet_pton(AF_INET6, text, &a.in6.sin6_addr) == 1) {
        a.in6.sin6_family = AF_INET6;
    }

    return a;
}
