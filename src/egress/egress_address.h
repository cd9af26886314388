/*
 * Which addresses a name may lead to.  Pure: knows no sockets.
 */

#ifndef EGRESS_ADDRESS_H
#define EGRESS_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>


#define EGRESS_MAX_ALLOWED  64                   /* ranges */
#define EGRESS_MIN_PREFIX   8                    /* bits, IPv4 */
#define EGRESS_MIN_PREFIX6  7
#define EGRESS_ADDRESS_SIZE 64                   /* "[v6]:65535" and a NUL */


typedef union {
    struct sockaddr      any;
    struct sockaddr_in   in;
    struct sockaddr_in6  in6;
} egress_address_t;


/* an IPv4 range is kept as its mapped IPv6 one */

typedef struct {
    uint8_t   bytes[16];
    unsigned  bits;
} egress_range_t;


/*
 * "ADDRESS/BITS", or an address alone.  -1: it is neither, it has bits beyond
 * its prefix, or it is so wide that all of the world would be in it.
 */
int egress_range_read(const char *text, egress_range_t *range);

/* 1: one of the ranges has it. */
int egress_range_has(const egress_range_t *ranges, size_t n,
    const egress_address_t *address);

/*
 * NULL: a public address.  Else what kind it is, in words: private, loopback,
 * and so on, whatever it is wrapped in (mapped, translated, tunnelled).
 */
const char *egress_address_kind(const egress_address_t *address);

/* An IPv4-mapped one becomes the IPv4 address that it is. */
void egress_address_plain(egress_address_t *address);

/* "1.2.3.4:443", "[::1]:443". */
void egress_address_text(const egress_address_t *address, char *text);

socklen_t egress_address_size(const egress_address_t *address);
void egress_address_port(egress_address_t *address, unsigned port);
unsigned egress_address_get_port(const egress_address_t *address);


#endif /* EGRESS_ADDRESS_H */
