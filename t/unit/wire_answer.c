/*
 * Answers of engines over HTTP/1.1, each in one piece and byte by byte: what
 * reference/dagger.md has of them, cut at every place, and what is no answer.
 */

/* link: src/wire/sandbox_answer.c */

#include <stdlib.h>

#include "test.h"
#include "sandbox_answer.h"
#include "sandbox_wire.h"


#define MAX   64
#define LONG  "0123456789012345678901234567890123456789012345678901234567890123"

#define HTTP  "HTTP/1.1 200 OK\r\n"
#define SIZED(n, body)  HTTP "Content-Length: " n "\r\n\r\n" body
#define CHUNKS(body)    HTTP "Transfer-Encoding: chunked\r\n\r\n" body


typedef struct {
    const char  *name;
    const char  *bytes;
    const char  *body;                   /* NULL: it is bad */
    unsigned     status;
    unsigned     json;
} answer_t;


static int take(const char *bytes, size_t size, size_t piece, char *body,
    sandbox_answer_t *answer);
static void answers(void);
static void cuts(void);
static void long_lines(void);


static const answer_t  cases[] = {
    { "an answer of an engine",
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
      "Date: Mon, 30 Nov 2026 07:00:00 GMT\r\nContent-Length: 22\r\n\r\n"
      "{\"data\":{\"version\":1}}", "{\"data\":{\"version\":1}}", 200, 1 },
    { "a sentence", "HTTP/1.1 500 Internal Server Error\r\n"
      "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n\r\nno",
      "no", 500, 0 },
    { "a type with a parameter",
      HTTP "content-type: Application/JSON;charset=utf-8\r\n"
      "content-length:1\r\n\r\nx", "x", 200, 1 },
    { "a type that begins alike", HTTP "Content-Type: application/jsonp\r\n"
      "Content-Length: 1\r\n\r\nx", "x", 200, 0 },
    { "no reason", "HTTP/1.1 422\r\nContent-Length: 1\r\n\r\nx", "x", 422, 0 },
    { "nothing", SIZED("0", ""), "", 200, 0 },
    { "more than there should be", SIZED("1", "xy"), "x", 200, 0 },
    { "as long as may be", SIZED("64", LONG), LONG, 200, 0 },
    { "longer", SIZED("65", LONG "x"), NULL, 0, 0 },
    { "much longer", SIZED("99999999999999999999999", "x"), NULL, 0, 0 },
    { "zeros before a length", SIZED("0000000000000000000000000001", "x"),
      "x", 200, 0 },
    { "a negative length", SIZED("-1", "x"), NULL, 0, 0 },
    { "a list of lengths", SIZED("1, 1", "x"), NULL, 0, 0 },
    { "no number", SIZED("", "x"), NULL, 0, 0 },
    { "two lengths",
      HTTP "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", NULL, 0, 0 },
    { "no end", HTTP "\r\nx", NULL, 0, 0 },
    { "a length, and chunks", HTTP "Content-Length: 1\r\n"
      "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", NULL, 0, 0 },

    { "chunks", CHUNKS("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "abcde", 200, 0 },
    { "a chunk's size in both cases", CHUNKS("A\r\n0123456789\r\n"
      "0b\r\n0123456789a\r\n00\r\n\r\n"), "01234567890123456789a", 200, 0 },
    { "words of a chunk", CHUNKS("1;a=b\r\nx\r\n1 \r\ny\r\n0;z\r\n\r\n"),
      "xy", 200, 0 },
    { "a trailer", CHUNKS("1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n"), "x", 200,
      0 },
    { "no chunk", CHUNKS("0\r\n\r\n"), "", 200, 0 },
    { "a chunk as long as may be", CHUNKS("40\r\n" LONG "\r\n0\r\n\r\n"),
      LONG, 200, 0 },
    { "a chunk that is too long", CHUNKS("41\r\n" LONG "x\r\n0\r\n\r\n"),
      NULL, 0, 0 },
    { "chunks that are too long together", CHUNKS("40\r\n" LONG "\r\n1\r\nx"
      "\r\n0\r\n\r\n"), NULL, 0, 0 },
    { "a size beyond numbers", CHUNKS("10000000000000001\r\nx\r\n0\r\n\r\n"),
      NULL, 0, 0 },
    { "a chunk without a size", CHUNKS("\r\nx\r\n0\r\n\r\n"), NULL, 0, 0 },
    { "a size that is no number", CHUNKS("1x\r\nx\r\n0\r\n\r\n"), NULL, 0, 0 },
    { "a size with a sign", CHUNKS("+1\r\nx\r\n0\r\n\r\n"), NULL, 0, 0 },
    { "more in a chunk", CHUNKS("1\r\nxy\r\n0\r\n\r\n"), NULL, 0, 0 },
    { "another coding", HTTP "Transfer-Encoding: gzip, chunked\r\n\r\n"
      "0\r\n\r\n", NULL, 0, 0 },
    { "chunked twice", HTTP "Transfer-Encoding: chunked\r\n"
      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", NULL, 0, 0 },
    { "compressed", HTTP "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n"
      "x", NULL, 0, 0 },

    { "HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", NULL, 0,
      0 },
    { "HTTP/0.0", "HTTP/0.0 101 Switching Protocols\r\n\r\n", NULL, 0, 0 },
    { "no HTTP", "SSH-2.0-OpenSSH_9.2p1\r\n", NULL, 0, 0 },
    { "no status", "HTTP/1.1 20x OK\r\n\r\n", NULL, 0, 0 },
    { "four digits", "HTTP/1.1 2000\r\nContent-Length: 1\r\n\r\nx", NULL, 0,
      0 },
    { "a status that goes on", "HTTP/1.1 100 Continue\r\n\r\n", NULL, 0, 0 },
    { "a status without a body", "HTTP/1.1 204 No\r\nContent-Length: 1\r\n\r\n"
      "x", NULL, 0, 0 },
    { "a status of six hundred", "HTTP/1.1 600 X\r\nContent-Length: 1\r\n\r\n"
      "x", NULL, 0, 0 },
    { "an empty line first", "\r\n" SIZED("1", "x"), NULL, 0, 0 },
    { "a line that goes on", HTTP "A: b\r\n c\r\nContent-Length: 1\r\n\r\nx",
      NULL, 0, 0 },
    { "a header without a name", HTTP ": b\r\nContent-Length: 1\r\n\r\nx",
      NULL, 0, 0 },
    { "a header without a colon", HTTP "A\r\nContent-Length: 1\r\n\r\nx", NULL,
      0, 0 },
    { "a blank before the colon", HTTP "Content-Length : 1\r\n\r\nx", NULL, 0,
      0 },
    { "bare LF", "HTTP/1.1 200 OK\nContent-Length: 1\n\nx", NULL, 0, 0 },
    { "bare CR", HTTP "A: b\rc\r\nContent-Length: 1\r\n\r\nx", NULL, 0, 0 },
    { "a control character", HTTP "A: \x01\r\nContent-Length: 1\r\n\r\nx",
      NULL, 0, 0 },
    { NULL, NULL, NULL, 0, 0 }
};


int
main(void)
{
    answers();
    cuts();
    long_lines();

    return test_done();
}


/* SANDBOX_AGAIN: it wants more than there is */

static int
take(const char *bytes, size_t size, size_t piece, char *body,
    sandbox_answer_t *answer)
{
    int             rc;
    size_t          n, got;
    uint8_t        *copy;
    const uint8_t  *p, *part;

    memset(answer, 0, sizeof(sandbox_answer_t));
    answer->max = MAX;
    body[0] = '\0';
    rc = SANDBOX_AGAIN;

    while (size && rc == SANDBOX_AGAIN) {

        n = (size < piece) ? size : piece;

        /* the sanitizer sees what is read beyond */

        copy = malloc(n);
        memcpy(copy, bytes, n);
        p = copy;

        bytes += n;
        size -= n;

        do {
            rc = sandbox_answer_take(answer, &p, &n, &part, &got);
            strncat(body, (const char *) part, got);
        } while (rc == SANDBOX_AGAIN && n);

        free(copy);
    }

    return rc;
}


static void
answers(void)
{
    int               rc;
    char              body[MAX + 1];
    size_t            piece, size, wrong;
    const answer_t   *c;
    sandbox_answer_t  answer;

    for (c = cases; c->name; c++) {

        size = strlen(c->bytes);
        wrong = 0;

        for (piece = size; piece; piece--) {

            rc = take(c->bytes, size, piece, body, &answer);

            if (c->body == NULL) {
                wrong += (rc == SANDBOX_OK)
                         || (rc == SANDBOX_BAD && answer.problem == NULL);
                continue;
            }

            wrong += rc != SANDBOX_OK || strcmp(body, c->body) != 0
                     || answer.status != c->status || answer.json != c->json;
        }

        is_number(wrong, 0, "%s", c->name);
    }
}


/* whatever is missing, it is not taken for the whole */

static void
cuts(void)
{
    char              body[MAX + 1];
    size_t            i, n, wrong;
    sandbox_answer_t  answer;

    static const char *const  whole[] = {
        SIZED("5", "abcde"),
        CHUNKS("3\r\nabc\r\n2\r\nde\r\n0\r\nA: b\r\n\r\n")
    };

    for (i = 0; i < 2; i++) {

        wrong = 0;

        for (n = 0; n < strlen(whole[i]); n++) {
            wrong += take(whole[i], n, 7, body, &answer) != SANDBOX_AGAIN;
        }

        is_number(wrong, 0, "cut at every place, %s", i ? "chunks" : "sized");
        is_number(take(whole[i], n, 7, body, &answer), SANDBOX_OK,
                  "whole, %s", i ? "chunks" : "sized");
    }
}


static void
long_lines(void)
{
    int                rc;
    char               body[MAX + 1];
    char              *text, *p;
    size_t             i;
    sandbox_answer_t   answer;

    text = malloc(4 * SANDBOX_ANSWER_HEAD);

    p = text + sprintf(text, HTTP "A: ");
    memset(p, 'x', SANDBOX_ANSWER_LINE - 4);
    p += SANDBOX_ANSWER_LINE - 4;
    strcpy(p, "\r\nContent-Length: 1\r\n\r\nx");

    rc = take(text, strlen(text), 1000, body, &answer);
    is_number(rc, SANDBOX_OK, "a header as long as may be");

    strcpy(p, "x\r\nContent-Length: 1\r\n\r\nx");
    rc = take(text, strlen(text), 1000, body, &answer);
    is_number(rc, SANDBOX_BAD, "a longer one");

    p = text + sprintf(text, HTTP);

    for (i = 0; i < SANDBOX_ANSWER_HEAD / 8 - 2; i++) {
        p += sprintf(p, "abc: efg\r\n");
    }

    strcpy(p, "Content-Length: 1\r\n\r\nx");
    rc = take(text, strlen(text), 1000, body, &answer);
    is_number(rc, SANDBOX_BAD, "too many of them");

    strcpy(p - 20, "Content-Length: 1\r\n\r\nx");
    rc = take(text, strlen(text), 1000, body, &answer);
    is_number(rc, SANDBOX_OK, "just not too many");

    p = text + sprintf(text, CHUNKS("1\r\nx\r\n0\r\n"));

    for (i = 0; i < SANDBOX_ANSWER_HEAD / 8 + 1; i++) {
        p += sprintf(p, "abc: efg\r\n");
    }

    rc = take(text, strlen(text), 1000, body, &answer);
    is_number(rc, SANDBOX_BAD, "too long a trailer");

    free(text);
}
