/*
 * Fetches by HTTP: libcurl's multi interface in nginx's own event loop.  Used
 * by one worker, after fork().  Knows nothing of keys, of the zone or of
 * requests.
 *
 * libcurl owns its sockets, nginx only watches them.  Nothing in here waits:
 * names are resolved in a thread of libcurl's, and with QUICK_EXIT nobody
 * joins that thread.
 */

#include "ngx_http_sandbox.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <openssl/err.h>
#include <signal.h>


#define NGX_HTTP_SANDBOX_FETCH_HEADER   (64 * 1024)    /* of one answer */
#define NGX_HTTP_SANDBOX_FETCH_PROBLEM  512


/* one fetch, from its start to its end */

typedef struct {
    ngx_queue_t                    queue;
    CURL                          *easy;
    struct curl_slist             *headers;
    ngx_http_sandbox_key_set_t    *set;
    ngx_http_sandbox_fetched_pt    handler;
    size_t                         len;
    size_t                         header_len;
    unsigned                       encoded:1;    /* Content-Encoding */
    unsigned                       too_big:1;
    char                           error[CURL_ERROR_SIZE];
    char                           problem[NGX_HTTP_SANDBOX_FETCH_PROBLEM];
    u_char                         body[SANDBOX_JOSE_MAX_JWKS];
} ngx_http_sandbox_fetch_t;


/* of this process */

typedef struct {
    CURLM                         *multi;        /* NULL: none yet */
    ngx_event_t                    timer;        /* libcurl's one time-out */
    ngx_connection_t               fake;         /* for the timer's log */
    ngx_queue_t                    fetches;
    ngx_log_t                     *log;
    unsigned                       global:1;     /* curl_global_init() */
    unsigned                       broken:1;     /* no multi any more */
} ngx_http_sandbox_fetcher_t;


static ngx_int_t ngx_http_sandbox_fetcher_init(ngx_log_t *log);
static void ngx_http_sandbox_fetcher_reset(void);
static void ngx_http_sandbox_fetcher_stay(ngx_log_t *log);
static ngx_int_t ngx_http_sandbox_fetch_options(
    ngx_http_sandbox_fetch_t *fetch);
static ngx_int_t ngx_http_sandbox_fetch_tls(ngx_http_sandbox_fetch_t *fetch);
static void ngx_http_sandbox_fetch_action(curl_socket_t s, int what);
static void ngx_http_sandbox_fetch_done(void);
static void ngx_http_sandbox_fetch_report(ngx_http_sandbox_fetch_t *fetch,
    CURLcode code);
static void ngx_http_sandbox_fetch_judge(ngx_http_sandbox_fetch_t *fetch,
    CURLcode code, ngx_http_sandbox_fetched_t *fetched);
static void ngx_http_sandbox_fetch_detail(ngx_http_sandbox_fetch_t *fetch,
    ngx_http_sandbox_fetched_t *fetched, const char *problem,
    const char *detail);
static void ngx_http_sandbox_fetch_free(ngx_http_sandbox_fetch_t *fetch);
static void ngx_http_sandbox_fetch_timer_handler(ngx_event_t *ev);
static void ngx_http_sandbox_fetch_socket_handler(ngx_event_t *ev);
static int ngx_http_sandbox_fetch_timer(CURLM *multi, long ms, void *data);
static int ngx_http_sandbox_fetch_socket(CURL *easy, curl_socket_t s, int what,
    void *data, void *socket_data);
static ngx_int_t ngx_http_sandbox_fetch_watch(ngx_event_t *ev,
    ngx_int_t event, ngx_uint_t wanted);
static void ngx_http_sandbox_fetch_forget(ngx_connection_t *c);
static size_t ngx_http_sandbox_fetch_header(char *p, size_t size, size_t n,
    void *data);
static size_t ngx_http_sandbox_fetch_body(char *p, size_t size, size_t n,
    void *data);


static ngx_http_sandbox_fetcher_t  ngx_http_sandbox_fetcher;


ngx_int_t
ngx_http_sandbox_fetch_start(ngx_http_sandbox_key_set_t *set,
    ngx_http_sandbox_fetched_pt handler, ngx_log_t *log)
{
    ngx_http_sandbox_fetch_t    *fetch;
    ngx_http_sandbox_fetcher_t  *f;

    if (ngx_http_sandbox_fetcher_init(log) != NGX_OK) {
        return NGX_ERROR;
    }

    f = &ngx_http_sandbox_fetcher;

    fetch = ngx_alloc(sizeof(ngx_http_sandbox_fetch_t), log);
    if (fetch == NULL) {
        return NGX_ERROR;
    }

    /* not the body: it stays untouched memory until something comes */

    ngx_memzero(fetch, offsetof(ngx_http_sandbox_fetch_t, body));

    fetch->set = set;
    fetch->handler = handler;

    ngx_queue_insert_tail(&f->fetches, &fetch->queue);

    fetch->easy = curl_easy_init();

    if (fetch->easy == NULL
        || ngx_http_sandbox_fetch_options(fetch) != NGX_OK
        || curl_multi_add_handle(f->multi, fetch->easy) != CURLM_OK)
    {
        ngx_http_sandbox_fetch_free(fetch);
        ERR_clear_error();
        return NGX_ERROR;
    }

    /* that only set the timer to 0; it begins from there */

    return NGX_OK;
}


void
ngx_http_sandbox_fetch_exit(void)
{
    ngx_http_sandbox_fetcher_t  *f;

    f = &ngx_http_sandbox_fetcher;

    if (!f->global) {
        return;
    }

    ngx_http_sandbox_fetcher_reset();

    curl_global_cleanup();
    f->global = 0;
}


static ngx_int_t
ngx_http_sandbox_fetcher_init(ngx_log_t *log)
{
    ngx_http_sandbox_fetcher_t  *f;

    f = &ngx_http_sandbox_fetcher;

    if (f->multi) {
        return NGX_OK;
    }

    f->log = log;

    if (!f->global) {
        if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
            ngx_log_error(NGX_LOG_ERR, log, 0, "curl_global_init() failed");
            return NGX_ERROR;
        }

        f->global = 1;
        ngx_queue_init(&f->fetches);
        ngx_http_sandbox_fetcher_stay(log);

        f->fake.fd = (ngx_socket_t) -1;

        f->timer.handler = ngx_http_sandbox_fetch_timer_handler;
        f->timer.data = &f->fake;
        f->timer.cancelable = 1;
    }

    f->timer.log = log;
    f->broken = 0;

    f->multi = curl_multi_init();
    if (f->multi == NULL) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "curl_multi_init() failed");
        return NGX_ERROR;
    }

    curl_multi_setopt(f->multi, CURLMOPT_SOCKETFUNCTION,
                      ngx_http_sandbox_fetch_socket);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERFUNCTION,
                      ngx_http_sandbox_fetch_timer);

    return NGX_OK;
}


/*
 * A worker that ends unloads its modules, and libcurl with this one, shortly
 * before its threads end; one that is in a lookup would return into nothing.
 */

static void
ngx_http_sandbox_fetcher_stay(ngx_log_t *log)
{
    Dl_info  info;

    if (dladdr((void *) curl_multi_init, &info) == 0
        || dlopen(info.dli_fname, RTLD_LAZY|RTLD_NOLOAD|RTLD_NODELETE) == NULL)
    {
        ngx_log_error(NGX_LOG_WARN, log, 0, "libcurl can't be kept loaded: a "
                      "worker that ends during a lookup of a name may crash, "
                      "which does no harm to others");
    }
}


/* every fetch ends here without a word */

static void
ngx_http_sandbox_fetcher_reset(void)
{
    ngx_queue_t                 *q;
    ngx_http_sandbox_fetch_t    *fetch;
    ngx_http_sandbox_fetcher_t  *f;

    f = &ngx_http_sandbox_fetcher;

    /* each takes itself out of the queue: NOLINT is for the analyzer */

    while (!ngx_queue_empty(&f->fetches)) {
        q = ngx_queue_head(&f->fetches);
        fetch = ngx_queue_data(q, ngx_http_sandbox_fetch_t, queue);

        ngx_http_sandbox_fetch_free(fetch);                     /* NOLINT */
    }

    if (f->multi) {
        curl_multi_cleanup(f->multi);
        f->multi = NULL;
    }

    if (f->timer.timer_set) {
        ngx_del_timer(&f->timer);
    }

    if (f->timer.posted) {
        ngx_delete_posted_event(&f->timer);
    }

    ERR_clear_error();
}


static ngx_int_t
ngx_http_sandbox_fetch_options(ngx_http_sandbox_fetch_t *fetch)
{
    CURL                        *easy;
    struct curl_slist           *list;
    ngx_http_sandbox_key_set_t  *set;

    easy = fetch->easy;
    set = fetch->set;

    list = curl_slist_append(NULL, "Accept-Encoding: identity");
    if (list == NULL) {
        return NGX_ERROR;
    }

    fetch->headers = list;

    if (curl_slist_append(list, "Accept: application/jwk-set+json, "
                                "application/json")
        == NULL)
    {
        return NGX_ERROR;
    }

    /* a proxy named in the environment would see, and could change, the keys */

    if (curl_easy_setopt(easy, CURLOPT_URL, (char *) set->url.data)
        || curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https")
        || curl_easy_setopt(easy, CURLOPT_NOPROXY, "*")
        || curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L)
        || curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                            (long) CURL_HTTP_VERSION_1_1)
        || curl_easy_setopt(easy, CURLOPT_HTTPHEADER, list)
        || curl_easy_setopt(easy, CURLOPT_USERAGENT, "nginx-sandbox"))
    {
        return NGX_ERROR;
    }

    /* no connection stays open, five minutes are too long for one */

    if (curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L)
        || curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L)
        || curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L)
        || curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long) set->timeout)
        || curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                            (long) set->timeout)
        || curl_easy_setopt(easy, CURLOPT_MAXFILESIZE,
                            (long) sizeof(fetch->body))
        || curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION,
                            ngx_http_sandbox_fetch_header)
        || curl_easy_setopt(easy, CURLOPT_HEADERDATA, fetch)
        || curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION,
                            ngx_http_sandbox_fetch_body)
        || curl_easy_setopt(easy, CURLOPT_WRITEDATA, fetch)
        || curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, fetch->error)
        || curl_easy_setopt(easy, CURLOPT_PRIVATE, fetch))
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_fetch_tls(fetch);
}


/*
 * Of the system's authorities only the one file is used: with a directory
 * beside it libcurl would read that file anew for every fetch.
 */

static ngx_int_t
ngx_http_sandbox_fetch_tls(ngx_http_sandbox_fetch_t *fetch)
{
    CURL              *easy;
    struct curl_blob   blob;

    easy = fetch->easy;

    if (curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L)
        || curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L)
        || curl_easy_setopt(easy, CURLOPT_SSLVERSION,
                            (long) CURL_SSLVERSION_TLSv1_2)
        || curl_easy_setopt(easy, CURLOPT_CAPATH, NULL))
    {
        return NGX_ERROR;
    }

    if (fetch->set->ca.len == 0) {
        return NGX_OK;
    }

    blob.data = fetch->set->ca.data;
    blob.len = fetch->set->ca.len;
    blob.flags = CURL_BLOB_NOCOPY;

    if (curl_easy_setopt(easy, CURLOPT_CAINFO, NULL)
        || curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob))
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * The one place where libcurl works.  A thread that it makes inherits the
 * mask: nginx's signals are for the worker itself.
 */

static void
ngx_http_sandbox_fetch_action(curl_socket_t s, int what)
{
    int                          running;
    sigset_t                     all, old;
    CURLMcode                    code;
    ngx_http_sandbox_fetcher_t  *f;

    f = &ngx_http_sandbox_fetcher;

    sigfillset(&all);
    (void) pthread_sigmask(SIG_BLOCK, &all, &old);

    code = curl_multi_socket_action(f->multi, s, what, &running);

    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);

    /* nginx would take what is left in there for its own */

    ERR_clear_error();

    if (code != CURLM_OK) {
        f->broken = 1;
    }

    ngx_http_sandbox_fetch_done();
}


static void
ngx_http_sandbox_fetch_done(void)
{
    int                          left;
    char                        *fetch;
    CURLMsg                     *msg;
    CURLcode                     code;
    ngx_queue_t                 *q;
    ngx_http_sandbox_fetcher_t  *f;

    f = &ngx_http_sandbox_fetcher;

    while ((msg = curl_multi_info_read(f->multi, &left)) != NULL) {

        if (msg->msg != CURLMSG_DONE) {
            continue;
        }

        /* msg is gone with its handle */

        code = msg->data.result;
        fetch = NULL;

        (void) curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &fetch);

        if (fetch == NULL) {
            continue;
        }

        ngx_http_sandbox_fetch_report((ngx_http_sandbox_fetch_t *) fetch,
                                      code);
    }

    if (!f->broken) {
        return;
    }

    /* a callback of ours failed: this multi does nothing any more */

    while (!ngx_queue_empty(&f->fetches)) {
        q = ngx_queue_head(&f->fetches);

        ngx_http_sandbox_fetch_report(ngx_queue_data(q,
                                                     ngx_http_sandbox_fetch_t,
                                                     queue),
                                      CURLE_OUT_OF_MEMORY);
    }

    ngx_http_sandbox_fetcher_reset();
}


static void
ngx_http_sandbox_fetch_report(ngx_http_sandbox_fetch_t *fetch, CURLcode code)
{
    ngx_http_sandbox_fetched_t  fetched;

    ngx_memzero(&fetched, sizeof(ngx_http_sandbox_fetched_t));

    ngx_http_sandbox_fetch_judge(fetch, code, &fetched);

    fetch->handler(fetch->set, &fetched);

    ngx_http_sandbox_fetch_free(fetch);
    ERR_clear_error();
}


/* what it came to, in words for an administrator */

static void
ngx_http_sandbox_fetch_judge(ngx_http_sandbox_fetch_t *fetch, CURLcode code,
    ngx_http_sandbox_fetched_t *fetched)
{
    long  status;

    status = 0;
    (void) curl_easy_getinfo(fetch->easy, CURLINFO_RESPONSE_CODE, &status);

    if (code == CURLE_OK && status == 200 && !fetch->encoded) {
        fetched->body.data = fetch->body;
        fetched->body.len = fetch->len;
        return;
    }

    fetched->kind = ((ngx_uint_t) code << 16) + (ngx_uint_t) status
                    + ((ngx_uint_t) fetch->encoded << 12);
    fetched->problem = fetch->problem;
    fetched->remedy = "look at the server";

    if (fetch->too_big || code == CURLE_FILESIZE_EXCEEDED) {
        (void) ngx_snprintf((u_char *) fetch->problem,
                            sizeof(fetch->problem),
                            "it sends more than %d bytes, or %d of headers%Z",
                            SANDBOX_JOSE_MAX_JWKS,
                            NGX_HTTP_SANDBOX_FETCH_HEADER);
        fetched->remedy = "is that the URL of a key set?";
        return;
    }

    if (status && status != 200 && status / 100 != 1) {
        (void) ngx_snprintf((u_char *) fetch->problem, sizeof(fetch->problem),
                            "it answers with status %l%Z", status);

        if (status / 100 == 3) {
            fetched->remedy = "redirects are not followed: configure the URL "
                              "that it leads to";
        } else {
            fetched->remedy = "look at the URL, and into the log of the "
                              "server";
        }

        return;
    }

    if (fetch->encoded) {
        fetched->problem = "it sends a Content-Encoding, though none was "
                           "asked for";
        fetched->remedy = "switch compression off there for this URL";
        return;
    }

    switch (code) {

    case CURLE_COULDNT_RESOLVE_HOST:
        ngx_http_sandbox_fetch_detail(fetch, fetched, "its name can't be "
                                      "resolved", NULL);
        fetched->remedy = "look at the URL and at /etc/resolv.conf";
        break;

    case CURLE_COULDNT_CONNECT:
        ngx_http_sandbox_fetch_detail(fetch, fetched, "it can't be connected "
                                      "to", fetch->error);
        fetched->remedy = "is the server running, and does a firewall let "
                          "nginx through?";
        break;

    case CURLE_OPERATION_TIMEDOUT:
        ngx_http_sandbox_fetch_detail(fetch, fetched, "there is no complete "
                                      "answer within \"timeout=\"",
                                      fetch->error);
        fetched->remedy = "look at the server, the network and "
                          "/etc/resolv.conf";
        break;

    case CURLE_PEER_FAILED_VERIFICATION:
        ngx_http_sandbox_fetch_detail(fetch, fetched, "its certificate is not "
                                      "trusted", fetch->error);
        fetched->remedy = "\"ca=FILE\" names who may vouch for it";
        break;

    case CURLE_SSL_CACERT_BADFILE:
        ngx_http_sandbox_fetch_detail(fetch, fetched, "the certificate "
                                      "authorities can't be read",
                                      fetch->error);
        fetched->remedy = "nginx's workers must be able to read that file";
        break;

    case CURLE_SSL_CONNECT_ERROR:
        ngx_http_sandbox_fetch_detail(fetch, fetched, "TLS fails",
                                      fetch->error);
        fetched->remedy = "it must speak TLS 1.2 or later on that port";
        break;

    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        ngx_http_sandbox_fetch_detail(fetch, fetched, "it closes the "
                                      "connection before the answer is "
                                      "complete", fetch->error);
        break;

    case CURLE_OUT_OF_MEMORY:
        fetched->problem = "nginx has no memory or no connection for it";
        fetched->remedy = "look at the memory of this host and at "
                          "\"worker_connections\"";
        break;

    default:
        ngx_http_sandbox_fetch_detail(fetch, fetched,
                                      curl_easy_strerror(code), fetch->error);
        break;
    }
}


/* libcurl's own words may quote the server: nothing for a terminal in them */

static void
ngx_http_sandbox_fetch_detail(ngx_http_sandbox_fetch_t *fetch,
    ngx_http_sandbox_fetched_t *fetched, const char *problem,
    const char *detail)
{
    u_char  *p;

    if (detail == NULL || *detail == '\0') {
        fetched->problem = problem;
        return;
    }

    (void) ngx_snprintf((u_char *) fetch->problem, sizeof(fetch->problem) - 1,
                        "%s (%s)%Z", problem, detail);

    fetch->problem[sizeof(fetch->problem) - 1] = '\0';

    for (p = (u_char *) fetch->problem; *p; p++) {
        if (*p < ' ' || *p > '~') {
            *p = '?';
        }
    }
}


static void
ngx_http_sandbox_fetch_free(ngx_http_sandbox_fetch_t *fetch)
{
    ngx_queue_remove(&fetch->queue);

    if (fetch->easy) {

        /* calls the socket callback, which forgets connections */

        (void) curl_multi_remove_handle(ngx_http_sandbox_fetcher.multi,
                                        fetch->easy);
        curl_easy_cleanup(fetch->easy);
    }

    curl_slist_free_all(fetch->headers);

    ngx_free(fetch);
}


static void
ngx_http_sandbox_fetch_timer_handler(ngx_event_t *ev)
{
    ngx_http_sandbox_fetch_action(CURL_SOCKET_TIMEOUT, 0);
}


static void
ngx_http_sandbox_fetch_socket_handler(ngx_event_t *ev)
{
    ngx_connection_t  *c;

    c = ev->data;

    /* c may be forgotten in there */

    ngx_http_sandbox_fetch_action(c->fd, ev->write ? CURL_CSELECT_OUT
                                                   : CURL_CSELECT_IN);
}


static int
ngx_http_sandbox_fetch_timer(CURLM *multi, long ms, void *data)
{
    ngx_http_sandbox_fetcher_t  *f;

    f = &ngx_http_sandbox_fetcher;

    if (f->timer.timer_set) {
        ngx_del_timer(&f->timer);
    }

    if (ms == 0) {

        /* this is inside of libcurl: not a call, but soon */

        ngx_post_event(&f->timer, &ngx_posted_events);

    } else if (ms > 0) {
        ngx_add_timer(&f->timer, (ngx_msec_t) ms);
    }

    return 0;
}


static int
ngx_http_sandbox_fetch_socket(CURL *easy, curl_socket_t s, int what,
    void *data, void *socket_data)
{
    ngx_connection_t *c = socket_data;

    ngx_http_sandbox_fetcher_t  *f;

    f = &ngx_http_sandbox_fetcher;

    if (what == CURL_POLL_REMOVE) {
        if (c) {
            (void) curl_multi_assign(f->multi, s, NULL);
            ngx_http_sandbox_fetch_forget(c);
        }

        return 0;
    }

    if (c == NULL) {
        c = ngx_get_connection(s, f->log);
        if (c == NULL) {
            return -1;
        }

        c->log = f->log;
        c->read->log = f->log;
        c->write->log = f->log;
        c->read->handler = ngx_http_sandbox_fetch_socket_handler;
        c->write->handler = ngx_http_sandbox_fetch_socket_handler;

        if (curl_multi_assign(f->multi, s, c) != CURLM_OK) {
            ngx_http_sandbox_fetch_forget(c);
            return -1;
        }
    }

    if (ngx_http_sandbox_fetch_watch(c->read, NGX_READ_EVENT,
                                     what & CURL_POLL_IN)
        != NGX_OK
        || ngx_http_sandbox_fetch_watch(c->write, NGX_WRITE_EVENT,
                                        what & CURL_POLL_OUT)
           != NGX_OK)
    {
        return -1;
    }

    return 0;
}


/* by level, since libcurl does not read until there is nothing left */

static ngx_int_t
ngx_http_sandbox_fetch_watch(ngx_event_t *ev, ngx_int_t event,
    ngx_uint_t wanted)
{
    if (wanted && !ev->active) {
        return ngx_add_event(ev, event, NGX_LEVEL_EVENT);
    }

    if (!wanted && ev->active) {
        return ngx_del_event(ev, event, 0);
    }

    return NGX_OK;
}


/* the descriptor is libcurl's to close */

static void
ngx_http_sandbox_fetch_forget(ngx_connection_t *c)
{
    if (c->read->posted) {
        ngx_delete_posted_event(c->read);
    }

    if (c->write->posted) {
        ngx_delete_posted_event(c->write);
    }

    (void) ngx_http_sandbox_fetch_watch(c->read, NGX_READ_EVENT, 0);
    (void) ngx_http_sandbox_fetch_watch(c->write, NGX_WRITE_EVENT, 0);

    ngx_free_connection(c);

    c->fd = (ngx_socket_t) -1;
}


static size_t
ngx_http_sandbox_fetch_header(char *p, size_t size, size_t n, void *data)
{
    ngx_http_sandbox_fetch_t *fetch = data;

    u_char  *value, *last;

    n *= size;

    if (n > NGX_HTTP_SANDBOX_FETCH_HEADER - fetch->header_len) {
        fetch->too_big = 1;
        return 0;
    }

    fetch->header_len += n;

    if (n >= 5 && ngx_strncmp(p, "HTTP/", 5) == 0) {
        fetch->encoded = 0;
        return n;
    }

    if (n < sizeof("Content-Encoding:") - 1
        || ngx_strncasecmp((u_char *) p, (u_char *) "Content-Encoding:",
                           sizeof("Content-Encoding:") - 1)
           != 0)
    {
        return n;
    }

    value = (u_char *) p + sizeof("Content-Encoding:") - 1;
    last = (u_char *) p + n;

    while (value < last && (*value == ' ' || *value == '\t')) {
        value++;
    }

    while (last > value && (last[-1] == ' ' || last[-1] == '\t'
                            || last[-1] == CR || last[-1] == LF))
    {
        last--;
    }

    if (last != value
        && (last - value != sizeof("identity") - 1
            || ngx_strncasecmp(value, (u_char *) "identity",
                               sizeof("identity") - 1)
               != 0))
    {
        fetch->encoded = 1;
    }

    return n;
}


static size_t
ngx_http_sandbox_fetch_body(char *p, size_t size, size_t n, void *data)
{
    ngx_http_sandbox_fetch_t *fetch = data;

    n *= size;

    if (n > sizeof(fetch->body) - fetch->len) {
        fetch->too_big = 1;
        return 0;
    }

    ngx_memcpy(fetch->body + fetch->len, p, n);
    fetch->len += n;

    return n;
}
