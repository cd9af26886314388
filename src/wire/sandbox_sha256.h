/*
 * SHA-256 (FIPS 180-4) of bytes that are there as a whole.
 */

#ifndef SANDBOX_SHA256_H
#define SANDBOX_SHA256_H

#include <stddef.h>
#include <stdint.h>


void sandbox_sha256(const void *data, size_t size, uint8_t digest[32]);


#endif /* SANDBOX_SHA256_H */
