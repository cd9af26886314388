/*
 * The identity of a session on an engine: ids, token, and how they look in
 * a request's header.  Facts measured with engine v0.21.5: ids are for one
 * session only, a lost one is never taken up again; the names of a session's
 * services lie below a hash of its id.
 */

#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "dagger.h"


/* the oldest view of the API that all engines we know still offer */

#define DAGGER_CLIENT_VERSION  "v0.19.0"


static int dagger_session_random(char *dst, size_t digits);


int
dagger_session_make(dagger_session_t *session, uint64_t generation)
{
    int              n;
    char             json[DAGGER_MAX_METADATA / 4 * 3 - 3];
    uint64_t         now;
    struct timespec  ts;

    memcpy(session->client, "sbx-", 4);
    memcpy(session->session, "sbx-", 4);

    if (dagger_session_random(session->client + 4, DAGGER_ID_SIZE - 5) == -1
        || dagger_session_random(session->session + 4, DAGGER_ID_SIZE - 5)
           == -1
        || dagger_session_random(session->token, DAGGER_TOKEN_SIZE - 1) == -1)
    {
        return -1;
    }

    n = snprintf(json, sizeof(json), "{\"client_id\":\"%s\","
                 "\"session_id\":\"%s\",\"client_secret_token\":\"%s\","
                 "\"client_version\":\"" DAGGER_CLIENT_VERSION "\","
                 "\"client_hostname\":\"nginx\",\"do_not_track\":true,"
                 "\"labels\":{}}", session->client, session->session,
                 session->token);

    if (n < 0 || (size_t) n >= sizeof(json)) {
        return -1;
    }

    dagger_base64(session->metadata, (uint8_t *) json, (size_t) n);
    dagger_domain(session->domain, session->session);

    clock_gettime(CLOCK_REALTIME, &ts);
    now = (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;

    session->generation = now > generation ? now : generation + 1;

    return 0;
}


static int
dagger_session_random(char *dst, size_t digits)
{
    size_t   i;
    uint8_t  bytes[DAGGER_TOKEN_SIZE];

    static const char  hex[] = "0123456789abcdef";

    if (getrandom(bytes, digits / 2, 0) != (ssize_t) (digits / 2)) {
        return -1;
    }

    for (i = 0; i < digits; i++) {
        dst[i] = hex[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
    }

    dst[digits] = '\0';

    return 0;
}


size_t
dagger_base64(char *dst, const uint8_t *src, size_t n)
{
    size_t    i, k;
    unsigned  bits, left;

    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789+/";

    bits = 0;
    left = 0;
    k = 0;

    for (i = 0; i < n; i++) {
        bits = bits << 8 | src[i];
        left += 8;

        while (left >= 6) {
            left -= 6;
            dst[k++] = digits[bits >> left & 63];
        }
    }

    if (left) {
        dst[k++] = digits[bits << (6 - left) & 63];
    }

    while (k % 4) {
        dst[k++] = '=';
    }

    dst[k] = '\0';

    return k;
}


/* base32 with the digits in order, lower case, of the hash's 8 bytes */

void
dagger_domain(char *domain, const char *session)
{
    int       i;
    uint64_t  hash;

    static const char  digits[] = "0123456789abcdefghijklmnopqrstuv";

    hash = XXH3_64bits(session, strlen(session));

    for (i = 0; i < 12; i++) {
        domain[i] = digits[hash >> (59 - 5 * i) & 31];
    }

    domain[12] = digits[hash << 1 & 31];

    strcpy(domain + 13, ".dagger.local");
}
