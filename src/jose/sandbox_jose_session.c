/*
 * Session keys and tenant digests: SHA-256 over parts that are each preceded
 * by their length, so that no two lists of parts read the same.
 */

#include "sandbox_jose_core.h"

#include <string.h>

#include <openssl/err.h>


#define SANDBOX_JOSE_MAX_PART   (64 * 1024)      /* bytes */
#define SANDBOX_JOSE_ABSENT     0xffffffffu


static int sandbox_jose_digest_part(EVP_MD_CTX *ctx,
    const sandbox_jose_bytes_t *part);


int
sandbox_jose_session_key(const sandbox_jose_session_t *session,
    uint8_t key[SANDBOX_JOSE_SESSION_SIZE])
{
    sandbox_jose_bytes_t  parts[5];

    parts[0] = session->realm;
    parts[1] = session->issuer;
    parts[2] = session->tenant;
    parts[3] = session->user;
    parts[4] = session->conversation;

    return sandbox_jose_digest(parts, 5, key);
}


int
sandbox_jose_tenant_digest(const sandbox_jose_session_t *session,
    uint8_t digest[SANDBOX_JOSE_TENANT_SIZE])
{
    uint8_t               full[SANDBOX_JOSE_SESSION_SIZE];
    sandbox_jose_bytes_t  parts[4];

    if (session->tenant.data != NULL) {
        parts[0].data = "tenant";
        parts[0].size = sizeof("tenant") - 1;
        parts[3] = session->tenant;

    } else {
        parts[0].data = "user";
        parts[0].size = sizeof("user") - 1;
        parts[3] = session->user;
    }

    parts[1] = session->realm;
    parts[2] = session->issuer;

    if (sandbox_jose_digest(parts, 4, full) != 0) {
        return -1;
    }

    memcpy(digest, full, SANDBOX_JOSE_TENANT_SIZE);

    return 0;
}


int
sandbox_jose_digest(const sandbox_jose_bytes_t *parts, size_t n,
    uint8_t digest[SANDBOX_JOSE_SESSION_SIZE])
{
    int          good;
    size_t       i;
    EVP_MD_CTX  *ctx;

    ctx = EVP_MD_CTX_new();

    good = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;

    for (i = 0; good && i < n; i++) {
        good = sandbox_jose_digest_part(ctx, &parts[i]);
    }

    good = good && EVP_DigestFinal_ex(ctx, digest, NULL) == 1;

    EVP_MD_CTX_free(ctx);

    if (!good) {
        ERR_clear_error();
        return -1;
    }

    return 0;
}


static int
sandbox_jose_digest_part(EVP_MD_CTX *ctx, const sandbox_jose_bytes_t *part)
{
    uint8_t   length[4];
    uint32_t  n;

    if (part->data == NULL) {
        n = SANDBOX_JOSE_ABSENT;

    } else if (part->size > SANDBOX_JOSE_MAX_PART) {
        return 0;

    } else {
        n = (uint32_t) part->size;
    }

    length[0] = (uint8_t) (n >> 24);
    length[1] = (uint8_t) (n >> 16);
    length[2] = (uint8_t) (n >> 8);
    length[3] = (uint8_t) n;

    if (EVP_DigestUpdate(ctx, length, sizeof(length)) != 1) {
        return 0;
    }

    return n == SANDBOX_JOSE_ABSENT || n == 0
           || EVP_DigestUpdate(ctx, part->data, part->size) == 1;
}
