/*
 * Who says to the egress proxy which sandbox it is, where connections come
 * over a network that many share: made by nginx, for one command and policy,
 * and carried by "Proxy-Authorization: Basic".  Knows no sockets, allocates
 * nothing.
 */

#ifndef SANDBOX_TOKEN_H
#define SANDBOX_TOKEN_H

#include "sandbox_wire.h"


/* as user and password: digits of session, policy, expiry; of the HMAC */

#define SANDBOX_TOKEN_SIGNED   (SANDBOX_WIRE_SESSION_SIZE + 4 + 8)
#define SANDBOX_TOKEN_MAC      32
#define SANDBOX_TOKEN_USER     (2 * SANDBOX_TOKEN_SIGNED)
#define SANDBOX_TOKEN_LENGTH   (SANDBOX_TOKEN_USER + 1 + 2 * SANDBOX_TOKEN_MAC)


typedef struct {
    uint8_t   session[SANDBOX_WIRE_SESSION_SIZE];
    uint32_t  policy;                    /* not 0 */
    uint64_t  expires;                   /* Unix time in seconds */
    uint8_t   mac[SANDBOX_TOKEN_MAC];
} sandbox_token_t;


/* The key that signs them, of the runner's: who has it has no other right. */
void sandbox_token_key(const uint8_t runner[SANDBOX_WIRE_KEY_SIZE],
    uint8_t key[SANDBOX_WIRE_KEY_SIZE]);

void sandbox_token_sign(sandbox_token_t *token,
    const uint8_t key[SANDBOX_WIRE_KEY_SIZE]);

/* "user:password" and a NUL. */
void sandbox_token_write(const sandbox_token_t *token,
    char text[SANDBOX_TOKEN_LENGTH + 1]);

/* The value of the header.  SANDBOX_OK, or SANDBOX_BAD. */
int sandbox_token_read(sandbox_token_t *token, const uint8_t *value,
    size_t length);

/* 1: that key signed it; and: it is for a policy and has not expired. */
int sandbox_token_signed(const sandbox_token_t *token,
    const uint8_t key[SANDBOX_WIRE_KEY_SIZE]);
int sandbox_token_good(const sandbox_token_t *token,
    const uint8_t key[SANDBOX_WIRE_KEY_SIZE], uint64_t now);


#endif /* SANDBOX_TOKEN_H */
