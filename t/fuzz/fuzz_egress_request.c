/*
 * Foreign bytes as the head of a request to the proxy: at once, and in two
 * pieces, which must come to the same.
 */

/* link: src/egress/egress_request.c src/wire/sandbox_egress.c */
/* link: src/wire/sandbox_wire.c */
/* covers: src/egress/egress_request.c */

#include <stdlib.h>
#include <string.h>

#include "egress_request.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    size_t             first;
    egress_request_e   rc, again;
    egress_request_t   whole, pieces;

    static uint8_t     long_one[EGRESS_MAX_HEAD];

    if (size < 2) {
        return 0;
    }

    first = (p[0] << 8 | p[1]) % size;
    p += 2;
    size -= 2;

    /* a head that fills its room, which no short input does */

    if (size && p[0] == 0xff) {
        memset(long_one, 'a', sizeof(long_one));
        memcpy(long_one, p + 1, size - 1);
        p = long_one;
        size = sizeof(long_one);
    }

    memset(&whole, 0, sizeof(whole));
    rc = egress_request_read(&whole, p, size);

    memset(&pieces, 0, sizeof(pieces));
    again = first < size ? egress_request_read(&pieces, p, first)
                         : EGRESS_REQUEST_AGAIN;

    if (again == EGRESS_REQUEST_AGAIN) {
        again = egress_request_read(&pieces, p, size);
    }

    check(again == rc);
    check(whole.auth + whole.auth_length <= whole.head);
    check(whole.auth == pieces.auth);

    if (rc == EGRESS_REQUEST_OK) {
        check(whole.head <= size && whole.head == pieces.head);
        check(whole.port >= 1 && whole.port <= 65535);
        check(strlen(whole.host) == whole.length);
        check(sandbox_egress_host((uint8_t *) whole.host, whole.length));
        check(strcmp(whole.host, pieces.host) == 0);
    }

    return 0;
}
