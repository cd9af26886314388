/*
 * Accept: whether a client wants events as they come, and of which kind, or
 * one JSON answer.  Knows nothing of either.
 */

#include "ngx_http_sandbox.h"


typedef struct {
    ngx_uint_t  quality;                         /* thousandths */
    ngx_uint_t  detail;                          /* 3 named, 1 any, 0 no word */
    ngx_uint_t  place;
} ngx_http_sandbox_liking_t;


static void ngx_http_sandbox_accept_header(ngx_str_t *value,
    ngx_http_sandbox_liking_t *liking, ngx_uint_t *place);
static u_char *ngx_http_sandbox_accept_end(u_char *p, u_char *last, u_char c);
static void ngx_http_sandbox_accept_range(u_char *p, u_char *last,
    ngx_http_sandbox_liking_t *liking, ngx_uint_t place);
static ngx_uint_t ngx_http_sandbox_accept_quality(u_char *p, u_char *last);
static ngx_uint_t ngx_http_sandbox_accept_detail(ngx_str_t *range,
    const ngx_str_t *type);


/* by format */

static const ngx_str_t  ngx_http_sandbox_types[] = {
    ngx_string("application/json"),
    ngx_string("text/event-stream"),
    ngx_string("application/x-ndjson")
};


/*
 * The highest quality wins, at equal quality a type that is named over one
 * that is only covered, then JSON, then the one that is named first.
 */

ngx_uint_t
ngx_http_sandbox_accept(ngx_http_request_t *r)
{
    ngx_uint_t                  i, best, place;
    ngx_list_part_t            *part;
    ngx_table_elt_t            *h;
    ngx_http_sandbox_liking_t   liking[3], *a, *b;

    ngx_memzero(liking, sizeof(liking));
    place = 1;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == 6
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Accept", 6) == 0)
        {
            ngx_http_sandbox_accept_header(&h[i].value, liking, &place);
        }
    }

    best = NGX_HTTP_SANDBOX_JSON;

    for (i = NGX_HTTP_SANDBOX_SSE; i <= NGX_HTTP_SANDBOX_NDJSON; i++) {

        a = &liking[i];
        b = &liking[best];

        if (a->quality != b->quality) {
            best = a->quality > b->quality ? i : best;

        } else if (a->detail != b->detail) {
            best = a->detail > b->detail ? i : best;

        } else if (best != NGX_HTTP_SANDBOX_JSON && a->place < b->place) {
            best = i;
        }
    }

    return liking[best].quality ? best : NGX_HTTP_SANDBOX_JSON;
}


static void
ngx_http_sandbox_accept_header(ngx_str_t *value,
    ngx_http_sandbox_liking_t *liking, ngx_uint_t *place)
{
    u_char  *p, *last, *next;

    p = value->data;
    last = p + value->len;

    while (p < last) {
        next = ngx_http_sandbox_accept_end(p, last, ',');

        ngx_http_sandbox_accept_range(p, next, liking, (*place)++);

        p = next + 1;
    }
}


/* the next c that is not in quotes, or last */

static u_char *
ngx_http_sandbox_accept_end(u_char *p, u_char *last, u_char c)
{
    ngx_uint_t  quoted;

    quoted = 0;

    for ( /* void */ ; p < last; p++) {

        if (*p == '"') {
            quoted = !quoted;

        } else if (quoted && *p == '\\' && last - p > 1) {
            p++;

        } else if (!quoted && *p == c) {
            break;
        }
    }

    return p;
}


static void
ngx_http_sandbox_accept_range(u_char *p, u_char *last,
    ngx_http_sandbox_liking_t *liking, ngx_uint_t place)
{
    u_char      *next;
    ngx_str_t    range;
    ngx_uint_t   i, quality, detail;

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    next = ngx_http_sandbox_accept_end(p, last, ';');

    range.data = p;
    range.len = next - p;

    while (range.len && (range.data[range.len - 1] == ' '
                         || range.data[range.len - 1] == '\t'))
    {
        range.len--;
    }

    quality = ngx_http_sandbox_accept_quality(next, last);

    for (i = 0; i < 3; i++) {

        detail = ngx_http_sandbox_accept_detail(&range,
                                                &ngx_http_sandbox_types[i]);

        if (detail > liking[i].detail) {
            liking[i].quality = quality;
            liking[i].detail = detail;
            liking[i].place = place;
        }
    }
}


/* of parameters, each with a ";" before it; what is no quality is 1 */

static ngx_uint_t
ngx_http_sandbox_accept_quality(u_char *p, u_char *last)
{
    u_char      *next;
    ngx_uint_t   quality, digit;

    for ( /* void */ ; p < last; p = next) {

        p++;
        next = ngx_http_sandbox_accept_end(p, last, ';');

        while (p < next && (*p == ' ' || *p == '\t')) {
            p++;
        }

        if (next - p < 3 || (p[0] | 0x20) != 'q' || p[1] != '='
            || p[2] < '0' || p[2] > '1')
        {
            continue;
        }

        quality = (p[2] - '0') * 1000;
        p += 3;

        if (p < next && *p == '.') {
            p++;
        }

        for (digit = 100; digit && p < next && *p >= '0' && *p <= '9'; p++) {
            quality += (*p - '0') * digit;
            digit /= 10;
        }

        return ngx_min(quality, 1000);
    }

    return 1000;
}


static ngx_uint_t
ngx_http_sandbox_accept_detail(ngx_str_t *range, const ngx_str_t *type)
{
    size_t  n;

    if (range->len == type->len
        && ngx_strncasecmp(range->data, type->data, type->len) == 0)
    {
        return 3;
    }

    if (range->len == 3 && ngx_strncmp(range->data, "*/*", 3) == 0) {
        return 1;
    }

    n = ngx_strlchr(type->data, type->data + type->len, '/') - type->data + 1;

    return range->len == n + 1
           && ngx_strncasecmp(range->data, type->data, n) == 0
           && range->data[n] == '*'
           ? 2 : 0;
}
