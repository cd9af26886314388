/*
 * Reading the head of a request.  What is not exactly right is refused: a
 * bare line feed, a folded line, a body, a byte that has no place there.
 */

#include <string.h>

#include "egress_request.h"


static int egress_request_end(egress_request_t *request, const uint8_t *p,
    size_t size);
static egress_request_e egress_request_line(egress_request_t *request,
    const uint8_t *p, size_t length);
static egress_request_e egress_request_target(egress_request_t *request,
    const uint8_t *p, size_t length);
static int egress_request_port(egress_request_t *request, const uint8_t *p,
    size_t length);
static egress_request_e egress_request_host(egress_request_t *request,
    const uint8_t *p, size_t length);
static int egress_request_field(egress_request_t *request, const uint8_t *p,
    size_t at, size_t length, unsigned *hosts);
static int egress_request_named(const uint8_t *p, size_t length,
    const char *name);
static int egress_request_token(uint8_t c);
static uint8_t egress_request_lower(uint8_t c);


egress_request_e
egress_request_read(egress_request_t *request, const uint8_t *p, size_t size)
{
    int               rc;
    size_t            at, n;
    unsigned          fields, hosts;
    const uint8_t    *end;
    egress_request_e  line;

    rc = egress_request_end(request, p, size);

    if (rc == -1) {
        return EGRESS_REQUEST_MALFORMED;
    }

    if (rc == 0) {
        return size < EGRESS_MAX_HEAD ? EGRESS_REQUEST_AGAIN
                                      : EGRESS_REQUEST_TOO_LONG;
    }

    line = EGRESS_REQUEST_MALFORMED;
    fields = 0;
    hosts = 0;

    for (at = 0; at < request->head; at += n + 2) {

        /* all lines have their CRLF, or the end had not been found */

        end = memchr(p + at, '\r', request->head - at);
        n = end - (p + at);

        if (at == 0) {
            line = egress_request_line(request, p, n);

            if (line == EGRESS_REQUEST_MALFORMED) {
                return line;
            }

            continue;
        }

        if (n == 0) {
            break;
        }

        if (++fields > EGRESS_MAX_HEADERS) {
            return EGRESS_REQUEST_TOO_LONG;
        }

        if (egress_request_field(request, p, at, n, &hosts) == -1) {
            return EGRESS_REQUEST_MALFORMED;
        }
    }

    return line;
}


/* 1: the empty line is there, 0: not yet, -1: a byte that may not be there */

static int
egress_request_end(egress_request_t *request, const uint8_t *p, size_t size)
{
    size_t  i;

    for (i = request->seen; i < size && i < EGRESS_MAX_HEAD; i++) {

        if (p[i] == '\n') {
            if (i == 0 || p[i - 1] != '\r') {
                return -1;
            }

            if (i >= 3 && p[i - 2] == '\n') {
                request->head = i + 1;
                request->seen = i + 1;
                return 1;
            }

            continue;
        }

        if ((i > 0 && p[i - 1] == '\r')
            || (p[i] < 0x20 && p[i] != '\r' && p[i] != '\t')
            || p[i] == 0x7f)
        {
            return -1;
        }
    }

    request->seen = i;

    return 0;
}


/* method, target, version, with one blank between them */

static egress_request_e
egress_request_line(egress_request_t *request, const uint8_t *p, size_t length)
{
    size_t          method, target;
    const uint8_t  *blank;

    for (method = 0; method < length && p[method] != ' '; method++) {
        if (!egress_request_token(p[method])) {
            return EGRESS_REQUEST_MALFORMED;
        }
    }

    if (method == 0 || method == length) {
        return EGRESS_REQUEST_MALFORMED;
    }

    p += method + 1;
    length -= method + 1;

    blank = memchr(p, ' ', length);
    target = blank ? (size_t) (blank - p) : length;

    if (target == 0 || length - target != sizeof(" HTTP/1.1") - 1
        || memcmp(p + target, " HTTP/1.", 8) != 0
        || (p[length - 1] != '0' && p[length - 1] != '1'))
    {
        return EGRESS_REQUEST_MALFORMED;
    }

    if (method != sizeof("CONNECT") - 1
        || memcmp(p - method - 1, "CONNECT", method) != 0)
    {
        return EGRESS_REQUEST_METHOD;
    }

    return egress_request_target(request, p, target);
}


/* host:port */

static egress_request_e
egress_request_target(egress_request_t *request, const uint8_t *p,
    size_t length)
{
    size_t          n;
    const uint8_t  *colon;

    if (p[0] == '[') {

        /* an IPv6 address: only its end is of interest, for the port */

        colon = memchr(p, ']', length);

        if (colon == NULL || ++colon == p + length || *colon != ':') {
            return EGRESS_REQUEST_MALFORMED;
        }

    } else {
        colon = memchr(p, ':', length);

        if (colon == NULL) {
            return EGRESS_REQUEST_MALFORMED;
        }
    }

    n = colon - p;

    if (egress_request_port(request, colon + 1, length - n - 1) == -1) {

        /* more colons: an IPv6 address without its brackets */

        return memchr(colon + 1, ':', length - n - 1) != NULL
               ? EGRESS_REQUEST_ADDRESS : EGRESS_REQUEST_MALFORMED;
    }

    return p[0] == '[' ? EGRESS_REQUEST_ADDRESS
                       : egress_request_host(request, p, n);
}


static int
egress_request_port(egress_request_t *request, const uint8_t *p, size_t length)
{
    size_t    i;
    unsigned  port;

    if (length == 0 || length > 5 || p[0] == '0') {
        return -1;
    }

    port = 0;

    for (i = 0; i < length; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return -1;
        }

        port = port * 10 + (p[i] - '0');
    }

    if (port > 65535) {
        return -1;
    }

    request->port = port;

    return 0;
}


static egress_request_e
egress_request_host(egress_request_t *request, const uint8_t *p, size_t length)
{
    size_t  i, label;
    char    last;

    if (length == 0 || length > SANDBOX_EGRESS_MAX_NAME) {
        return EGRESS_REQUEST_HOST;
    }

    for (i = 0; i < length; i++) {
        request->host[i] = (char) egress_request_lower(p[i]);
    }

    request->host[length] = '\0';
    request->length = length;

    if (sandbox_egress_host((uint8_t *) request->host, length)) {
        return EGRESS_REQUEST_OK;
    }

    /* a number at the end is somebody's idea of an address */

    if (request->host[length - 1] == '.') {
        length--;
    }

    for (label = length; label > 0 && request->host[label - 1] != '.';
         label--)
    {
        /* void */
    }

    last = label < length ? request->host[label] : '\0';

    return last >= '0' && last <= '9' ? EGRESS_REQUEST_ADDRESS
                                      : EGRESS_REQUEST_HOST;
}


/* -1: it is no field, or one of a request that would have a body */

static int
egress_request_field(egress_request_t *request, const uint8_t *p, size_t at,
    size_t length, unsigned *hosts)
{
    size_t  name, i;

    p += at;

    for (name = 0; name < length && p[name] != ':'; name++) {
        if (!egress_request_token(p[name])) {
            return -1;
        }
    }

    if (name == 0 || name == length) {
        return -1;
    }

    if (egress_request_named(p, name, "host")) {
        return ++*hosts > 1 ? -1 : 0;
    }

    if (egress_request_named(p, name, "transfer-encoding")) {
        return -1;
    }

    if (egress_request_named(p, name, "proxy-authorization")) {

        if (request->auth) {
            return -1;
        }

        request->auth = at + name + 1;
        request->auth_length = length - name - 1;
    }

    if (egress_request_named(p, name, "content-length")) {

        for (i = name + 1; i < length; i++) {
            if (p[i] != '0' && p[i] != ' ' && p[i] != '\t') {
                return -1;
            }
        }
    }

    return 0;
}


static int
egress_request_named(const uint8_t *p, size_t length, const char *name)
{
    size_t  i;

    if (strlen(name) != length) {
        return 0;
    }

    for (i = 0; i < length; i++) {
        if (egress_request_lower(p[i]) != (uint8_t) name[i]) {
            return 0;
        }
    }

    return 1;
}


static int
egress_request_token(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z')
           || (c >= 'a' && c <= 'z')
           || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}


static uint8_t
egress_request_lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}
