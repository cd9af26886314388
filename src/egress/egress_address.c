/*
 * Special addresses, by the registries of special purposes, and ranges that an
 * operator allows all the same.
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress_address.h"


static const char *egress_address_kind4(uint32_t address);
static const char *egress_address_kind6(const uint8_t *p);
static void egress_address_bytes(const egress_address_t *address, uint8_t *p);
static int egress_prefix(const uint8_t *a, const uint8_t *b, unsigned bits);


static const uint8_t  egress_mapped[12] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff
};


static const struct {
    uint32_t     network;
    unsigned     bits;
    const char  *kind;
} egress_kinds4[] = {
    { 0x00000000, 8, "unspecified" },
    { 0x0a000000, 8, "private" },
    { 0x64400000, 10, "shared (carrier-grade NAT)" },
    { 0x7f000000, 8, "loopback" },
    { 0xa83f8110, 32, "metadata" },              /* 168.63.129.16 */
    { 0xa9fe0000, 16, "link-local (metadata)" },
    { 0xac100000, 12, "private" },
    { 0xc0000000, 24, "reserved" },
    { 0xc0000200, 24, "documentation" },
    { 0xc0586300, 24, "6to4 relay" },
    { 0xc0a80000, 16, "private" },
    { 0xc6120000, 15, "benchmark" },
    { 0xc6336400, 24, "documentation" },
    { 0xcb007100, 24, "documentation" },
    { 0xe0000000, 4, "multicast" },
    { 0xf0000000, 4, "reserved" }                /* and broadcast */
};


/* the first that fits; what fits none is no global unicast address */

static const struct {
    uint8_t      network[16];
    unsigned     bits;
    const char  *kind;
} egress_kinds6[] = {
    { { 0x20, 0x01, 0x0d, 0xb8 }, 32, "documentation" },
    { { 0x20, 0x01 }, 23, "reserved (Teredo, benchmark)" },
    { { 0x20, 0x02 }, 16, "6to4" },
    { { 0x3f, 0xff }, 20, "documentation" },
    { { 0x20 }, 3, NULL },
    { { 0xfc }, 7, "private" },
    { { 0xfe, 0x80 }, 10, "link-local" },
    { { 0xff }, 8, "multicast" },
    { { 0 }, 127, "loopback or unspecified" }
};


const char *
egress_address_kind(const egress_address_t *address)
{
    const uint8_t  *p;

    static const uint8_t  translated[12] = { 0, 0x64, 0xff, 0x9b };
    static const uint8_t  compatible[12];

    if (address->any.sa_family == AF_INET) {
        return egress_address_kind4(ntohl(address->in.sin_addr.s_addr));
    }

    if (address->any.sa_family != AF_INET6) {
        return "unknown";
    }

    p = address->in6.sin6_addr.s6_addr;

    /* an IPv4 address in other clothes is what it is without them */

    if (memcmp(p, egress_mapped, 12) == 0
        || memcmp(p, translated, 12) == 0
        || (memcmp(p, compatible, 12) == 0
            && (p[12] || p[13] || p[14] || p[15] > 1)))
    {
        return egress_address_kind4((uint32_t) p[12] << 24 | p[13] << 16
                                    | p[14] << 8 | p[15]);
    }

    return egress_address_kind6(p);
}


static const char *
egress_address_kind4(uint32_t address)
{
    size_t    i;
    uint32_t  mask;

    for (i = 0; i < sizeof(egress_kinds4) / sizeof(egress_kinds4[0]); i++) {
        mask = UINT32_MAX << (32 - egress_kinds4[i].bits);

        if ((address & mask) == egress_kinds4[i].network) {
            return egress_kinds4[i].kind;
        }
    }

    return NULL;
}


static const char *
egress_address_kind6(const uint8_t *p)
{
    size_t  i;

    for (i = 0; i < sizeof(egress_kinds6) / sizeof(egress_kinds6[0]); i++) {
        if (egress_prefix(p, egress_kinds6[i].network, egress_kinds6[i].bits))
        {
            return egress_kinds6[i].kind;
        }
    }

    return "reserved";
}


int
egress_range_read(const char *text, egress_range_t *range)
{
    int             least;
    char            address[INET6_ADDRSTRLEN], *end;
    size_t          n;
    unsigned        i, most;
    unsigned long   bits;
    const char     *slash;

    slash = strchr(text, '/');
    n = slash ? (size_t) (slash - text) : strlen(text);

    if (n >= sizeof(address)) {
        return -1;
    }

    memcpy(address, text, n);
    address[n] = '\0';

    if (inet_pton(AF_INET, address, range->bytes + 12) == 1) {
        memcpy(range->bytes, egress_mapped, 12);
        most = 32;
        least = EGRESS_MIN_PREFIX;

    } else if (inet_pton(AF_INET6, address, range->bytes) == 1) {
        most = 128;
        least = EGRESS_MIN_PREFIX6;

    } else {
        return -1;
    }

    bits = most;

    if (slash != NULL) {
        if (slash[1] < '0' || slash[1] > '9') {
            return -1;
        }

        bits = strtoul(slash + 1, &end, 10);

        if (*end != '\0' || bits < (unsigned) least || bits > most) {
            return -1;
        }
    }

    range->bits = 128 - most + bits;

    for (i = range->bits; i < 128; i++) {
        if (range->bytes[i / 8] & 0x80 >> i % 8) {
            return -1;
        }
    }

    return 0;
}


int
egress_range_has(const egress_range_t *ranges, size_t n,
    const egress_address_t *address)
{
    size_t   i;
    uint8_t  p[16];

    egress_address_bytes(address, p);

    for (i = 0; i < n; i++) {
        if (egress_prefix(p, ranges[i].bytes, ranges[i].bits)) {
            return 1;
        }
    }

    return 0;
}


static void
egress_address_bytes(const egress_address_t *address, uint8_t *p)
{
    if (address->any.sa_family == AF_INET6) {
        memcpy(p, address->in6.sin6_addr.s6_addr, 16);
        return;
    }

    memcpy(p, egress_mapped, 12);
    memcpy(p + 12, &address->in.sin_addr, 4);
}


static int
egress_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned  i;

    for (i = 0; bits >= 8; i++) {
        if (a[i] != b[i]) {
            return 0;
        }

        bits -= 8;
    }

    return bits == 0 || ((a[i] ^ b[i]) & 0xff00 >> bits & 0xff) == 0;
}


void
egress_address_plain(egress_address_t *address)
{
    egress_address_t  plain;

    if (address->any.sa_family != AF_INET6
        || memcmp(address->in6.sin6_addr.s6_addr, egress_mapped, 12) != 0)
    {
        return;
    }

    memset(&plain, 0, sizeof(plain));
    plain.in.sin_family = AF_INET;
    plain.in.sin_port = address->in6.sin6_port;
    memcpy(&plain.in.sin_addr, address->in6.sin6_addr.s6_addr + 12, 4);

    *address = plain;
}


void
egress_address_text(const egress_address_t *address, char *text)
{
    char  name[INET6_ADDRSTRLEN];

    if (address->any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &address->in6.sin6_addr, name, sizeof(name));
        snprintf(text, EGRESS_ADDRESS_SIZE, "[%s]:%u", name,
                 egress_address_get_port(address));
        return;
    }

    inet_ntop(AF_INET, &address->in.sin_addr, name, sizeof(name));
    snprintf(text, EGRESS_ADDRESS_SIZE, "%s:%u", name,
             egress_address_get_port(address));
}


socklen_t
egress_address_size(const egress_address_t *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof(address->in6)
                                              : sizeof(address->in);
}


void
egress_address_port(egress_address_t *address, unsigned port)
{
    if (address->any.sa_family == AF_INET6) {
        address->in6.sin6_port = htons(port);

    } else {
        address->in.sin_port = htons(port);
    }
}


unsigned
egress_address_get_port(const egress_address_t *address)
{
    return ntohs(address->any.sa_family == AF_INET6 ? address->in6.sin6_port
                                                    : address->in.sin_port);
}
