/*
 * Refusals as text.  The sentence is the body, and the reason of the status
 * line too, since that is all that some clients show.  `error` is one of the
 * types that RFC 9209 has for Proxy-Status.
 */

#include <stdio.h>
#include <string.h>

#include "egress_answer.h"


#define EGRESS_SENTENCE  512                     /* bytes */


typedef struct {
    unsigned     status;
    const char  *error;
    const char  *line;                   /* in the log */
    const char  *text;                   /* %h host, %p port, %n policy, %d
                                            detail */
} egress_answer_text_t;


static void egress_answer_text(const egress_refusal_t *refusal,
    const char *format, char *p, size_t size);
static size_t egress_answer_add(char *p, size_t at, size_t size,
    const char *text, size_t length);


static const egress_answer_text_t  egress_answers[EGRESS_ANSWER_LAST] = {
    { 200, "", "", "" },
    { 400, "http_request_error", "a malformed request",
      "The request is malformed; this is the way out of the sandbox, for "
      "CONNECT only" },
    { 431, "http_request_error", "a head that is too long",
      "The head of the request is longer than 8 KiB" },
    { 408, "http_request_error", "a request that did not come",
      "The request did not come within 10 seconds" },
    { 403, "http_request_denied", "a request that is no CONNECT",
      "Only https leaves this sandbox: use https:// in place of http://" },
    { 403, "http_request_denied", "an address in place of a name",
      "An address can't be asked for; use the name of the host, if the "
      "operator's egress policy %n has it" },
    { 403, "http_request_denied", "a malformed name",
      "That is no host name; letters, digits, hyphens and dots make one, "
      "with no dot at the end" },
    { 407, "http_request_denied", "%d",
      "The proxy does not know this sandbox (%d); use the one that is in the "
      "environment of the command, with its user and password" },
    { 403, "http_request_denied", "%h:%p, there is no policy",
      "This sandbox has no network; ask the operator for an egress policy" },
    { 403, "http_request_denied", "%h:%p is not in policy %n",
      "The host %h is not in the operator's egress policy %n; ask the "
      "operator to add it" },
    { 403, "http_request_denied", "%h:%p, policy %n: no such port",
      "Port %p can't be reached from this sandbox, only https on port 443" },
    { 403, "destination_ip_prohibited",
      "%h:%p, policy %n, leads to a forbidden address (%d)",
      "The host %h leads to an address that sandboxes may not reach (%d); "
      "ask the operator" },
    { 403, "http_request_denied",
      "%h:%p: the bytes of policy %n are used up",
      "This sandbox has carried all the bytes that egress policy %n allows; "
      "ask the operator" },
    { 503, "connection_limit_reached", "too many connections, policy %n",
      "Too many connections of this sandbox at a time; close some of them" },
    { 503, "proxy_internal_error", "%h:%p: the proxy has no room",
      "The proxy is busy; try it again" },
    { 502, "dns_error", "%h:%p, policy %n: there is no such name",
      "There is no host %h" },
    { 504, "dns_timeout", "%h:%p, policy %n: the resolver does not answer",
      "The operator's resolver does not say where %h is; try it again" },
    { 502, "destination_unavailable", "%h:%p, policy %n, not reached: %d",
      "The host %h can't be reached: %d" },
    { 504, "connection_timeout", "%h:%p, policy %n, not reached: %d",
      "The host %h does not answer" }
};


size_t
egress_answer_write(const egress_refusal_t *refusal, char *p, size_t size)
{
    int                          n;
    char                         text[EGRESS_SENTENCE];
    const egress_answer_text_t  *answer;

    answer = &egress_answers[refusal->why];
    egress_answer_text(refusal, answer->text, text, sizeof(text));

    n = snprintf(p, size, "HTTP/1.1 %u %.160s\r\n"
                 "%s"
                 "Proxy-Status: sandbox-egress; error=%s\r\n"
                 "Content-Type: text/plain\r\n"
                 "Content-Length: %zu\r\n"
                 "Connection: close\r\n"
                 "\r\n"
                 "%s.\n",
                 answer->status, text,
                 answer->status == 407
                     ? "Proxy-Authenticate: Basic realm=\"sandbox\"\r\n" : "",
                 answer->error, strlen(text) + 2, text);

    return n < 0 || (size_t) n >= size ? 0 : (size_t) n;
}


void
egress_answer_line(const egress_refusal_t *refusal, char *p, size_t size)
{
    size_t  n;

    n = snprintf(p, size, "refused: ");

    egress_answer_text(refusal, egress_answers[refusal->why].line, p + n,
                       size - n);
}


int
egress_answer_failed(egress_answer_e why)
{
    return why == EGRESS_ANSWER_BUSY || why >= EGRESS_ANSWER_UNKNOWN;
}


static void
egress_answer_text(const egress_refusal_t *refusal, const char *format,
    char *p, size_t size)
{
    size_t       at;
    char         port[16];
    const char  *f;

    at = 0;
    snprintf(port, sizeof(port), "%u", refusal->port);

    for (f = format; *f; f++) {

        if (*f != '%') {
            at = egress_answer_add(p, at, size, f, 1);
            continue;
        }

        switch (*++f) {

        case 'h':
            at = egress_answer_add(p, at, size, refusal->host,
                                   strlen(refusal->host));
            break;

        case 'p':
            at = egress_answer_add(p, at, size, port, strlen(port));
            break;

        case 'n':
            if (refusal->policy != NULL) {
                at = egress_answer_add(p, at, size, "\"", 1);
                at = egress_answer_add(p, at, size, refusal->policy,
                                       refusal->policy_length);
                at = egress_answer_add(p, at, size, "\"", 1);
            }

            break;

        default: /* 'd' */
            if (refusal->detail != NULL) {
                at = egress_answer_add(p, at, size, refusal->detail,
                                       strlen(refusal->detail));
            }
        }
    }

    p[at] = '\0';
}


/* where the text ends then; what has no room is left out */

static size_t
egress_answer_add(char *p, size_t at, size_t size, const char *text,
    size_t length)
{
    if (length > size - 1 - at) {
        length = size - 1 - at;
    }

    memcpy(p + at, text, length);

    return at + length;
}
