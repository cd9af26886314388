/*
 * SHA-256 for who has no library for it.  Knows bytes only.
 */

#include <string.h>

#include "sandbox_sha256.h"
#include "sandbox_wire.h"


#define ROTATE(x, n)  ((x) >> (n) | (x) << (32 - (n)))


static void sandbox_sha256_block(uint32_t *state, const uint8_t *p);


/* fractions of the cube roots of the first 64 primes */

static const uint32_t  sandbox_sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5,
    0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
    0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};


void
sandbox_sha256(const void *data, size_t size, uint8_t digest[32])
{
    size_t          left;
    uint8_t         last[128];
    unsigned        i;
    const uint8_t  *p;

    /* fractions of the square roots of the first 8 primes */

    uint32_t  state[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19
    };

    p = data;

    for (left = size; left >= 64; left -= 64) {
        sandbox_sha256_block(state, p);
        p += 64;
    }

    memset(last, 0, sizeof(last));

    if (left) {
        memcpy(last, p, left);
    }

    last[left] = 0x80;
    i = left < 56 ? 64 : 128;
    sandbox_put64(last + i - 8, (uint64_t) size * 8);

    sandbox_sha256_block(state, last);

    if (i == 128) {
        sandbox_sha256_block(state, last + 64);
    }

    for (i = 0; i < 8; i++) {
        sandbox_put32(digest + 4 * i, state[i]);
    }
}


void
sandbox_hmac(const uint8_t key[32], const void *data, size_t size,
    uint8_t mac[32])
{
    size_t   i;
    uint8_t  inner[64 + SANDBOX_HMAC_MAX], outer[64 + 32];

    if (size > SANDBOX_HMAC_MAX) {
        size = SANDBOX_HMAC_MAX;
    }

    for (i = 0; i < 64; i++) {
        inner[i] = (i < 32 ? key[i] : 0) ^ 0x36;
        outer[i] = (i < 32 ? key[i] : 0) ^ 0x5c;
    }

    memcpy(inner + 64, data, size);
    sandbox_sha256(inner, 64 + size, outer + 64);
    sandbox_sha256(outer, sizeof(outer), mac);

    explicit_bzero(inner, sizeof(inner));
    explicit_bzero(outer, sizeof(outer));
}


static void
sandbox_sha256_block(uint32_t *state, const uint8_t *p)
{
    uint32_t  w[64], s[8], t1, t2;
    unsigned  i;

    for (i = 0; i < 16; i++) {
        w[i] = sandbox_get32(p + 4 * i);
    }

    for ( /* void */ ; i < 64; i++) {
        t1 = w[i - 15];
        t2 = w[i - 2];
        w[i] = w[i - 16] + w[i - 7]
               + (ROTATE(t1, 7) ^ ROTATE(t1, 18) ^ t1 >> 3)
               + (ROTATE(t2, 17) ^ ROTATE(t2, 19) ^ t2 >> 10);
    }

    memcpy(s, state, sizeof(s));

    for (i = 0; i < 64; i++) {
        t1 = s[7] + (ROTATE(s[4], 6) ^ ROTATE(s[4], 11) ^ ROTATE(s[4], 25))
             + ((s[4] & s[5]) ^ (~s[4] & s[6])) + sandbox_sha256_k[i] + w[i];
        t2 = (ROTATE(s[0], 2) ^ ROTATE(s[0], 13) ^ ROTATE(s[0], 22))
             + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += t1;
        s[0] = t1 + t2;
    }

    for (i = 0; i < 8; i++) {
        state[i] += s[i];
    }
}
