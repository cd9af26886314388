/*
 * SHA-256 (FIPS 180-4) of bytes that are there as a whole, and HMAC (RFC 2104)
 * of few.
 */

#ifndef SANDBOX_SHA256_H
#define SANDBOX_SHA256_H

#include <stddef.h>
#include <stdint.h>


#define SANDBOX_HMAC_MAX  128                     /* bytes of data */


void sandbox_sha256(const void *data, size_t size, uint8_t digest[32]);

/* By a key of 32 bytes; of more than the maximum only the first bytes. */
void sandbox_hmac(const uint8_t key[32], const void *data, size_t size,
    uint8_t mac[32]);


#endif /* SANDBOX_SHA256_H */
