/*
 * The head of a request to the proxy: what is taken, and everything that is
 * not, whatever pieces it comes in; and what a refusal says.
 */

/* link: src/egress/egress_request.c src/egress/egress_answer.c */
/* link: src/wire/sandbox_egress.c src/wire/sandbox_wire.c */

#include <stdlib.h>
#include <string.h>

#include "egress_answer.h"
#include "egress_request.h"
#include "test.h"


static void taken(void);
static void hosts(void);
static void refused(void);
static void pieces(void);
static void lengths(void);
static void answers(void);
static egress_request_e get(egress_request_t *request, const char *text);
static egress_request_e target(egress_request_t *request, const char *text);


int
main(void)
{
    taken();
    hosts();
    refused();
    pieces();
    lengths();
    answers();

    return test_done();
}


static void
taken(void)
{
    const char        *text;
    egress_request_t   r;

    text = "CONNECT Files.Example.ORG:443 HTTP/1.1\r\nHost: x\r\n"
           "User-Agent:\t\xc3\xa9\r\nContent-Length: 0\r\nEmpty:\r\n\r\nTLS";
    is_number(get(&r, text), EGRESS_REQUEST_OK, "a request");
    is_string(r.host, "files.example.org", "its host in lower case");
    is_number(r.length, 17, "of that length");
    is_number(r.port, 443, "its port");
    is_string(text + r.head, "TLS", "where its head ends");

    is_number(get(&r, "CONNECT a:1 HTTP/1.0\r\n\r\n"), EGRESS_REQUEST_OK,
              "HTTP/1.0, no fields");
    is_number(r.auth, 0, "no credentials");
    is_number(r.port, 1, "the least port");
    is_number(get(&r, "CONNECT a:65535 HTTP/1.1\r\n\r\n"), EGRESS_REQUEST_OK,
              "the last port");

    /* whose it is stands beside any request that could be read */

    text = "GET http://a/ HTTP/1.1\r\nA: b\r\n"
           "PROXY-authorization: Basic YQ==\r\nC: d\r\n\r\n";
    is_number(get(&r, text), EGRESS_REQUEST_METHOD, "with credentials");
    ok(r.auth_length == 11
       && strncmp(text + r.auth, " Basic YQ==", r.auth_length) == 0,
       "where they are");
    is_number(get(&r, "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization:\r\n\r\n"),
              EGRESS_REQUEST_OK, "empty ones");
    ok(r.auth && r.auth_length == 0, "are none");
}


static void
hosts(void)
{
    char              name[400];
    size_t            i;
    egress_request_t  r;

    static const struct {
        const char        *host;
        egress_request_e   rc;
    } list[] = {
        { "a", EGRESS_REQUEST_OK },
        { "a-b.c1", EGRESS_REQUEST_OK },
        { "1.2.3.4.com", EGRESS_REQUEST_OK },
        { "xn--nxasmq6b.test", EGRESS_REQUEST_OK },
        { "0xyz", EGRESS_REQUEST_OK },
        { "a.b0x", EGRESS_REQUEST_OK },

        { "169.254.169.254", EGRESS_REQUEST_ADDRESS },
        { "2852039166", EGRESS_REQUEST_ADDRESS },
        { "0xa9fea9fe", EGRESS_REQUEST_ADDRESS },
        { "0xA9.0xFE.0xA9.0xFE", EGRESS_REQUEST_ADDRESS },
        { "0251.0376.0251.0376", EGRESS_REQUEST_ADDRESS },
        { "025177524776", EGRESS_REQUEST_ADDRESS },
        { "169.16689662", EGRESS_REQUEST_ADDRESS },
        { "127.1", EGRESS_REQUEST_ADDRESS },
        { "0", EGRESS_REQUEST_ADDRESS },
        { "a.1", EGRESS_REQUEST_ADDRESS },
        { "0x", EGRESS_REQUEST_ADDRESS },
        { "a.0x7f", EGRESS_REQUEST_ADDRESS },
        { "127.0.0.1.", EGRESS_REQUEST_ADDRESS },
        { "[::1]", EGRESS_REQUEST_ADDRESS },
        { "[::ffff:a9fe:a9fe]", EGRESS_REQUEST_ADDRESS },
        { "[fe80::1%25eth0]", EGRESS_REQUEST_ADDRESS },
        { "::1", EGRESS_REQUEST_ADDRESS },
        { "fd00:ec2::254", EGRESS_REQUEST_ADDRESS },

        { "a.", EGRESS_REQUEST_HOST },
        { ".a", EGRESS_REQUEST_HOST },
        { "a..b", EGRESS_REQUEST_HOST },
        { "-a", EGRESS_REQUEST_HOST },
        { "a-.b", EGRESS_REQUEST_HOST },
        { "a_b", EGRESS_REQUEST_HOST },
        { "a%2eb", EGRESS_REQUEST_HOST },
        { "user@a", EGRESS_REQUEST_HOST },
        { "a/b", EGRESS_REQUEST_HOST },
        { "*.a", EGRESS_REQUEST_HOST },
        { "b\xc3\xbc" "cher.test", EGRESS_REQUEST_HOST },
        { "", EGRESS_REQUEST_HOST }
    };

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        snprintf(name, sizeof(name), "%s:443", list[i].host);
        is_number(target(&r, name), list[i].rc, "host \"%s\"", list[i].host);
    }

    memset(name, 'a', sizeof(name));
    strcpy(name + 63, ".b:443");
    is_number(target(&r, name), EGRESS_REQUEST_OK, "a label of 63");
    memset(name, 'a', sizeof(name));
    strcpy(name + 64, ".b:443");
    is_number(target(&r, name), EGRESS_REQUEST_HOST, "a label of 64");

    for (i = 0; i < 300; i++) {
        name[i] = i % 2 ? '.' : 'a';
    }

    strcpy(name + 253, ":443");
    is_number(target(&r, name), EGRESS_REQUEST_OK, "a name of 253");
    name[253] = '.';
    strcpy(name + 254, "a:443");
    is_number(target(&r, name), EGRESS_REQUEST_HOST, "a name of 255");
}


static void
refused(void)
{
    size_t            i;
    egress_request_t  r;

    static const struct {
        const char        *text;
        egress_request_e   rc;
    } list[] = {
        { "GET http://a/ HTTP/1.1\r\n\r\n", EGRESS_REQUEST_METHOD },
        { "connect a:443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_METHOD },
        { "CONNECTS a:443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_METHOD },
        { "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/2.0\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.2\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1 \r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT  a:443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { " CONNECT a:443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "\r\nCONNECT a:443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a: HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:0 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:0443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:65536 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:+443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT [::1:443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT [::1]443 HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT [::1] HTTP/1.1\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\n\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nA: b\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\rA\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\n A: b\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nA b\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nA : b\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\n: b\r\n\r\n", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nProxy-Authorization: Basic YQ==\r\n"
          "proxy-authorization: Basic YQ==\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\nA: \x01\r\n\r\n",
          EGRESS_REQUEST_MALFORMED },
        { "\x16\x03\x01\x02", EGRESS_REQUEST_MALFORMED },
        { "\x05\x01", EGRESS_REQUEST_MALFORMED },
        { "CONNECT a:443 HTTP/1.1\r\n", EGRESS_REQUEST_AGAIN },
        { "", EGRESS_REQUEST_AGAIN }
    };

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        is_number(get(&r, list[i].text), list[i].rc, "request %zu", i);
    }

    memset(&r, 0, sizeof(r));
    is_number(egress_request_read(&r, (const uint8_t *) "CONNECT a\0:1", 12),
              EGRESS_REQUEST_MALFORMED, "a NUL");
}


/* one byte more at each call comes to the same */

static void
pieces(void)
{
    size_t            i, n;
    uint8_t          *copy;
    egress_request_e  rc;
    egress_request_t  r;

    static const char  text[] = "CONNECT pieces.test:443 HTTP/1.1\r\n"
                                "Host: pieces.test:443\r\n\r\nrest";

    memset(&r, 0, sizeof(r));
    rc = EGRESS_REQUEST_AGAIN;

    for (n = 1; n < sizeof(text) && rc == EGRESS_REQUEST_AGAIN; n++) {
        copy = malloc(n);

        for (i = 0; i < n; i++) {
            copy[i] = text[i];
        }

        rc = egress_request_read(&r, copy, n);
        free(copy);
    }

    is_number(rc, EGRESS_REQUEST_OK, "byte by byte");
    is_number(n - 1, sizeof(text) - 5, "as soon as it is there");
    is_string(r.host, "pieces.test", "its host");
}


static void
lengths(void)
{
    char              *text;
    size_t             i, n;
    egress_request_t   r;

    text = malloc(EGRESS_MAX_HEAD + 100);
    n = sprintf(text, "CONNECT a:443 HTTP/1.1\r\nA: ");
    memset(text + n, 'x', EGRESS_MAX_HEAD + 50 - n);

    strcpy(text + EGRESS_MAX_HEAD - 4, "\r\n\r\n");
    is_number(get(&r, text), EGRESS_REQUEST_OK, "a head of 8 KiB");

    memset(text + EGRESS_MAX_HEAD - 4, 'x', 4);
    text[EGRESS_MAX_HEAD] = '\0';
    is_number(get(&r, text), EGRESS_REQUEST_TOO_LONG, "a longer one");
    text[EGRESS_MAX_HEAD - 1] = '\0';
    is_number(get(&r, text), EGRESS_REQUEST_AGAIN, "is not before it is");

    n = sprintf(text, "CONNECT a:443 HTTP/1.1\r\n");

    for (i = 0; i < EGRESS_MAX_HEADERS; i++) {
        n += sprintf(text + n, "A: b\r\n");
    }

    strcpy(text + n, "\r\n");
    is_number(get(&r, text), EGRESS_REQUEST_OK, "64 fields");
    strcpy(text + n, "A: b\r\n\r\n");
    is_number(get(&r, text), EGRESS_REQUEST_TOO_LONG, "65 fields");

    free(text);
}


static void
answers(void)
{
    char              host[SANDBOX_EGRESS_MAX_NAME + 1], text[1024];
    char              line[512], *body;
    size_t            n;
    unsigned          i;
    egress_refusal_t  refusal;

    memset(host, 'h', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';

    memset(&refusal, 0, sizeof(refusal));
    refusal.host = host;
    refusal.port = 65535;
    refusal.policy = "0123456789012345678901234567890123456789012345678901"
                     "234567890123xxx";
    refusal.policy_length = 64;
    refusal.detail = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535, a kind "
                     "of an address of which there is a lot to say, really";

    for (i = EGRESS_ANSWER_MALFORMED; i < EGRESS_ANSWER_LAST; i++) {
        refusal.why = i;
        n = egress_answer_write(&refusal, text, sizeof(text));
        ok(n > 100 && n == strlen(text), "answer %u has room", i);

        body = strstr(text, "\r\n\r\n");
        ok(body && (size_t) atoi(strstr(text, "Content-Length: ") + 16)
           == strlen(body + 4), "answer %u: its length", i);

        egress_answer_line(&refusal, line, sizeof(line));
        ok(strncmp(line, "refused: ", 9) == 0 && strchr(line, '%') == NULL,
           "answer %u: its line", i);
    }

    refusal.host = "a.test";
    refusal.policy_length = 5;
    refusal.why = EGRESS_ANSWER_NAME;
    (void) egress_answer_write(&refusal, text, sizeof(text));
    ok(strncmp(text, "HTTP/1.1 403 The host a.test is not in the operator's "
               "egress policy \"01234\"; ask", 74) == 0,
       "who forbids it, and what to do");
    is_number(egress_answer_failed(EGRESS_ANSWER_NAME), 0, "a refusal");
    is_number(egress_answer_failed(EGRESS_ANSWER_UNREACHED), 1, "a failure");

    /* without a policy there is no name of it */

    refusal.policy = NULL;
    (void) egress_answer_write(&refusal, text, sizeof(text));
    ok(strstr(text, "egress policy ;") != NULL, "none is left out");
}


static egress_request_e
get(egress_request_t *request, const char *text)
{
    size_t            n;
    uint8_t          *copy;
    egress_request_e  rc;

    /* of its own length, so that a byte beyond it is noticed */

    n = strlen(text);
    copy = malloc(n + (n == 0));
    memcpy(copy, text, n);
    memset(request, 0, sizeof(*request));
    rc = egress_request_read(request, copy, n);
    free(copy);

    return rc;
}


static egress_request_e
target(egress_request_t *request, const char *text)
{
    char  line[512];

    snprintf(line, sizeof(line), "CONNECT %s HTTP/1.1\r\n\r\n", text);

    return get(request, line);
}
