/*
 * One loop for what goes on at once: the events of a command come, its stdin
 * goes, Ctrl-C cancels it, a lost connection is made again behind the last
 * event that came.  What is written to stdout is written at once, so a reader
 * that is slow slows this program down and never the command.
 */

#include "ctl.h"
#include "event.h"
#include "live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


#define CTL_LIVE_PIECE    (256 * 1024)           /* bytes of stdin in a call */
#define CTL_LIVE_PATH     512

/* milliseconds */

#define CTL_LIVE_LOST     60000                  /* until it is given up */
#define CTL_LIVE_SILENCE  30000                  /* the gateway says more */
#define CTL_LIVE_FIRST    100                    /* between two attempts */
#define CTL_LIVE_MOST     2000
#define CTL_LIVE_CANCEL   10000                  /* for the result after it */
#define CTL_LIVE_DOUBT    5000                   /* is it really lost? */
#define CTL_LIVE_BUSY     15000                  /* nothing was started */


/* one exchange with the gateway; all of them are done at once */

typedef struct {
    CURL               *curl;
    struct curl_slist  *headers;
    ctl_reply_t         reply;
    int                 active;
} ctl_exchange_t;

typedef struct {
    ctl_live_t         *live;
    CURLM              *multi;

    ctl_exchange_t      stream;
    ctl_lines_t         lines;
    uint64_t            seq;                     /* of the last event */
    int64_t             heard;                   /* when anything came */
    int64_t             lost;                    /* since when; 0: it is not */
    int64_t             again;                   /* when to ask again */
    int64_t             pause;
    int64_t             doubt;                   /* since when; 0: no doubt */
    int64_t             busy;                    /* since when; 0: it is not */
    uint64_t            left[2];                 /* bytes left out by gaps */
    unsigned            accepted:1;              /* the gateway has it */
    unsigned            later:1;                 /* nothing there until then */
    unsigned            events:1;                /* this answer has some */
    unsigned            bad:1;                   /* a sentence was said */
    unsigned            ended:1;

    ctl_exchange_t      input;
    uint8_t            *piece;                   /* read and not sent yet */
    size_t              size;
    int64_t             input_again;
    unsigned            eof:1;
    unsigned            open:1;                  /* there may be more */

    ctl_exchange_t      cancel;
    int64_t             cancelled;               /* when; 0: it is not */
    int64_t             cancel_again;
    unsigned            gone:1;                  /* DELETE has answered */
} ctl_work_t;


static int ctl_live_loop(ctl_work_t *work);
static int ctl_live_step(ctl_work_t *work);
static int ctl_live_poll(ctl_work_t *work);
static void ctl_live_done(ctl_work_t *work, ctl_exchange_t *exchange,
    CURLcode rc);
static int ctl_live_start(ctl_work_t *work, ctl_exchange_t *exchange,
    const ctl_call_t *call);
static void ctl_live_stop(ctl_work_t *work, ctl_exchange_t *exchange);
static int ctl_live_ask(ctl_work_t *work);
static size_t ctl_live_write(char *data, size_t size, size_t n,
    void *context);
static int ctl_live_line(void *context, const char *text, size_t size);
static void ctl_live_refused(ctl_work_t *work, const ctl_event_t *event);
static int ctl_live_later(ctl_work_t *work, const json_t *problem,
    int64_t after);
static int ctl_live_doubtful(ctl_work_t *work, const ctl_event_t *event);
static int ctl_live_output(ctl_work_t *work, const ctl_event_t *event);
static void ctl_live_answer(ctl_work_t *work, CURLcode rc);
static void ctl_live_retry(ctl_work_t *work);
static void ctl_live_read(ctl_work_t *work);
static void ctl_live_send(ctl_work_t *work);
static void ctl_live_sent(ctl_work_t *work, CURLcode rc);
static void ctl_live_cancel(ctl_work_t *work);
static void ctl_live_cancel_done(ctl_work_t *work, CURLcode rc);
static int64_t ctl_live_now(void);


int
ctl_live(ctl_live_t *live)
{
    int         i, rc;
    ctl_work_t  work;

    memset(&work, 0, sizeof(ctl_work_t));

    work.live = live;
    work.pause = CTL_LIVE_FIRST;
    work.heard = ctl_live_now();
    work.accepted = live->body == NULL;
    work.open = live->input != -1;

    work.multi = curl_multi_init();
    work.stream.curl = curl_easy_init();
    work.input.curl = curl_easy_init();
    work.cancel.curl = curl_easy_init();
    work.piece = malloc(CTL_LIVE_PIECE);

    if (work.multi == NULL || work.stream.curl == NULL
        || work.input.curl == NULL || work.cancel.curl == NULL
        || work.piece == NULL)
    {
        rc = ctl_fault("no memory");

    } else {
        rc = ctl_live_loop(&work);
    }

    for (i = 0; i < 2; i++) {
        if (work.left[i] != 0 && !live->closed) {
            live->left_out = 1;
            ctl_fault("%llu bytes of %s are left out",
                      (unsigned long long) work.left[i],
                      i == 0 ? "stdout" : "stderr");
        }
    }

    ctl_live_stop(&work, &work.stream);
    ctl_live_stop(&work, &work.input);
    ctl_live_stop(&work, &work.cancel);
    curl_easy_cleanup(work.stream.curl);
    curl_easy_cleanup(work.input.curl);
    curl_easy_cleanup(work.cancel.curl);
    curl_multi_cleanup(work.multi);
    ctl_lines_free(&work.lines);
    free(work.piece);

    return rc;
}


void
ctl_live_free(ctl_live_t *live)
{
    ctl_reply_free(&live->reply);
    json_decref(live->result);
    live->result = NULL;
}


static int
ctl_live_loop(ctl_work_t *work)
{
    int              left;
    CURLMsg         *message;
    ctl_exchange_t  *exchange;

    for ( ;; ) {
        if (ctl_live_step(work) == -1) {
            return -1;
        }

        if (curl_multi_perform(work->multi, &left) != CURLM_OK) {
            return ctl_fault("the connections can't be looked after");
        }

        while ((message = curl_multi_info_read(work->multi, &left)) != NULL) {
            if (message->msg != CURLMSG_DONE) {
                continue;
            }

            exchange = message->easy_handle == work->stream.curl
                       ? &work->stream
                       : message->easy_handle == work->input.curl
                         ? &work->input : &work->cancel;

            ctl_live_done(work, exchange, message->data.result);
        }

        if (work->bad && work->cancelled == 0) {
            return -1;
        }

        if (work->ended) {
            return work->bad ? -1 : 0;
        }

        if (ctl_live_poll(work) == -1) {
            return -1;
        }
    }
}


/* What is due is begun. */

static int
ctl_live_step(ctl_work_t *work)
{
    int64_t  now;

    now = ctl_live_now();

    /* nothing was started, so there is nothing to cancel */

    if (work->later && ctl_live_signal() != 0) {
        return -1;
    }

    if (work->stream.active && work->accepted && work->live->events
        && now - work->heard > CTL_LIVE_SILENCE)
    {
        ctl_live_stop(work, &work->stream);
        ctl_live_retry(work);
    }

    if (!work->stream.active && !work->bad && now >= work->again) {
        if (work->lost != 0 && now - work->lost > CTL_LIVE_LOST) {
            return ctl_fault("the connection is lost; the command may run on: "
                             "sandboxctl logs -f %s %s",
                             work->live->conversation, work->live->id);
        }

        if (ctl_live_ask(work) == -1) {
            return -1;
        }
    }

    if (ctl_live_signal() != 0 && work->cancelled == 0) {
        work->cancelled = now;
        work->cancel_again = now;
    }

    if (work->cancelled != 0) {
        work->open = 0;

        if (!work->gone && !work->cancel.active && now >= work->cancel_again) {
            ctl_live_cancel(work);
        }

        if (now - work->cancelled > CTL_LIVE_CANCEL) {
            return ctl_fault("no answer to the cancelling within %d s; the "
                             "command may run on", CTL_LIVE_CANCEL / 1000);
        }
    }

    return 0;
}


static int
ctl_live_poll(ctl_work_t *work)
{
    int                 n, fd, wait;
    char                byte[16];
    int64_t             now, until;
    struct curl_waitfd  fds[2];

    now = ctl_live_now();
    until = now + 1000;

    if (!work->stream.active && !work->bad && work->again < until) {
        until = work->again;
    }

    if (work->cancelled && !work->gone && !work->cancel.active
        && work->cancel_again < until)
    {
        until = work->cancel_again;
    }

    memset(fds, 0, sizeof(fds));
    n = 0;

    fd = ctl_live_signal_fd();

    if (fd != -1) {
        fds[n].fd = fd;
        fds[n++].events = CURL_WAIT_POLLIN;
    }

    /* what is not accepted yet has no stdin */

    if (work->open && work->accepted && !work->input.active) {

        if (work->size == 0 && !work->eof) {
            fds[n].fd = work->live->input;
            fds[n++].events = CURL_WAIT_POLLIN;

        } else if (now >= work->input_again) {
            ctl_live_send(work);
            until = now;

        } else if (work->input_again < until) {
            until = work->input_again;
        }
    }

    wait = until > now ? (int) (until - now) : 0;

    if (curl_multi_poll(work->multi, fds, n, wait, NULL) != CURLM_OK) {
        return ctl_fault("can't wait: %s", strerror(errno));
    }

    if (fd != -1) {
        (void) !read(fd, byte, sizeof(byte));
    }

    if (n > 0 && fds[n - 1].fd == work->live->input && fds[n - 1].revents) {
        ctl_live_read(work);
    }

    return 0;
}


static void
ctl_live_done(ctl_work_t *work, ctl_exchange_t *exchange, CURLcode rc)
{
    curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE,
                      &exchange->reply.status);
    curl_multi_remove_handle(work->multi, exchange->curl);
    exchange->active = 0;

    if (exchange == &work->stream) {
        ctl_live_answer(work, rc);

    } else if (exchange == &work->input) {
        ctl_live_sent(work, rc);

    } else {
        ctl_live_cancel_done(work, rc);
    }

    ctl_live_stop(work, exchange);
}


static int
ctl_live_start(ctl_work_t *work, ctl_exchange_t *exchange,
    const ctl_call_t *call)
{
    if (ctl_client_prepare(work->live->client, exchange->curl, call,
                           &exchange->headers)
        == -1)
    {
        return -1;
    }

    if (exchange == &work->stream) {
        curl_easy_setopt(exchange->curl, CURLOPT_WRITEFUNCTION,
                         ctl_live_write);
        curl_easy_setopt(exchange->curl, CURLOPT_WRITEDATA, work);

    } else {
        curl_easy_setopt(exchange->curl, CURLOPT_WRITEFUNCTION,
                         ctl_reply_write);
        curl_easy_setopt(exchange->curl, CURLOPT_WRITEDATA, &exchange->reply);
    }

    exchange->active = 1;

    if (curl_multi_add_handle(work->multi, exchange->curl) != CURLM_OK) {
        exchange->active = 0;
        return ctl_fault("no memory");
    }

    return 0;
}


/* May be called for one that has not begun, or is done. */

static void
ctl_live_stop(ctl_work_t *work, ctl_exchange_t *exchange)
{
    if (exchange->active) {
        curl_multi_remove_handle(work->multi, exchange->curl);
        exchange->active = 0;
    }

    curl_slist_free_all(exchange->headers);
    exchange->headers = NULL;
    ctl_reply_free(&exchange->reply);
    memset(&exchange->reply, 0, sizeof(ctl_reply_t));
}


/* For the events that have not come; the command runs once, whatever. */

static int
ctl_live_ask(ctl_work_t *work)
{
    char         path[CTL_LIVE_PATH];
    ctl_call_t   call;
    ctl_live_t  *live;

    live = work->live;
    memset(&call, 0, sizeof(ctl_call_t));

    call.accept = live->events ? "application/x-ndjson" : "application/json";

    /* the same POST again attaches, and its answer is that of the first */

    if (live->body != NULL && (!work->accepted || !live->events)) {
        call.method = "POST";
        call.path = live->path;
        call.type = "application/json";
        call.body = live->body;
        call.size = strlen(live->body);

    } else {
        snprintf(path, sizeof(path), "v1/conversations/%s/commands/%s?after=%"
                 "llu", live->conversation, live->id,
                 (unsigned long long) work->seq);
        call.method = "GET";
        call.path = path;
    }

    call.wait = live->events ? 0 : live->wait;

    work->later = 0;
    work->events = 0;
    work->lines.have = 0;
    work->heard = ctl_live_now();

    return ctl_live_start(work, &work->stream, &call);
}


static size_t
ctl_live_write(char *data, size_t size, size_t n, void *context)
{
    long         status;
    ctl_work_t  *work;
    const char  *type;

    work = context;
    n *= size;

    /* refusals and single answers are kept, events are written at once */

    if (!work->events) {
        status = 0;
        type = NULL;
        curl_easy_getinfo(work->stream.curl, CURLINFO_RESPONSE_CODE, &status);
        curl_easy_getinfo(work->stream.curl, CURLINFO_CONTENT_TYPE, &type);

        if (status != 200 || type == NULL
            || strncmp(type, "application/x-ndjson", 20) != 0)
        {
            return ctl_reply_write(data, 1, n, &work->stream.reply);
        }

        work->events = 1;
        work->accepted = 1;
    }

    work->heard = ctl_live_now();
    work->lost = 0;
    work->pause = CTL_LIVE_FIRST;

    if (ctl_lines_add(&work->lines, data, n, ctl_live_line, work) == -1) {
        if (!work->bad && !work->ended && !work->later) {
            work->bad = 1;
            ctl_fault("what the gateway sends are no events; is the URL "
                      "right?");
        }

        return 0;
    }

    /* a write() may have taken its time */

    work->heard = ctl_live_now();

    return n;
}


static int
ctl_live_line(void *context, const char *text, size_t size)
{
    int           rc;
    ctl_work_t   *work;
    ctl_event_t   event;

    work = context;

    if (work->ended) {
        return 0;
    }

    rc = ctl_event_read(&event, text, size);

    if (rc == 0 && event.type == CTL_EVENT_RESULT) {
        json_decref(work->live->result);
        work->live->result = json_incref(event.object);
        work->ended = !ctl_live_doubtful(work, &event);

    } else if (rc == 0 && event.type == CTL_EVENT_REFUSED) {
        ctl_live_refused(work, &event);
        rc = -1;

    } else if (rc == 0 && event.seq > work->seq) {

        /* after a lost connection nothing is written twice */

        rc = ctl_live_output(work, &event);
        work->seq = event.seq;

        if (work->live->last != 0 && work->seq >= work->live->last) {
            work->ended = 1;
        }
    }

    ctl_event_free(&event);

    return rc;
}


/* what would have been a problem, had it come at once */

static void
ctl_live_refused(ctl_work_t *work, const ctl_event_t *event)
{
    const char  *code, *detail;

    code = json_string_value(json_object_get(event->object, "code"));
    detail = json_string_value(json_object_get(event->object, "detail"));

    /* input that was sent meanwhile can't be had again */

    if (work->live->input == -1
        && ctl_live_later(work, event->object,
                          json_integer_value(json_object_get(event->object,
                                                             "retryAfter"))))
    {
        return;
    }

    ctl_fault("%s (%s, HTTP %d)", detail != NULL ? detail : "refused",
              code != NULL ? code : "no code",
              (int) json_integer_value(json_object_get(event->object,
                                                       "status")));
    work->bad = 1;
}


/*
 * 1: the gateway says that nothing was started and that it may be soon, so
 * the same request is made again; it has its id.
 */

static int
ctl_live_later(ctl_work_t *work, const json_t *problem, int64_t after)
{
    int64_t      now;
    const char  *code;

    code = json_string_value(json_object_get(problem, "code"));

    if (work->live->body == NULL || code == NULL
        || (strcmp(code, "runner_unreachable") != 0
            && strcmp(code, "runner_stopping") != 0
            && strcmp(code, "at_capacity") != 0))
    {
        return 0;
    }

    now = ctl_live_now();

    if (work->busy == 0) {
        work->busy = now;
    }

    after = after < 1 ? 1 : after;

    if (after > CTL_LIVE_BUSY / 1000
        || now + after * 1000 - work->busy > CTL_LIVE_BUSY)
    {
        return 0;
    }

    work->again = now + after * 1000;
    work->seq = 0;
    work->accepted = 0;
    work->later = 1;

    return 1;
}


/*
 * A result without a number of its own is the gateway's, which has lost the
 * command; the command itself may have another.
 */

static int
ctl_live_doubtful(ctl_work_t *work, const ctl_event_t *event)
{
    int64_t      now;
    const char  *outcome;

    outcome = json_string_value(json_object_get(event->object, "outcome"));

    if (outcome == NULL || strcmp(outcome, "runner_lost") != 0
        || event->seq > work->seq)
    {
        return 0;
    }

    now = ctl_live_now();

    if (work->doubt == 0) {
        work->doubt = now;
    }

    return now - work->doubt < CTL_LIVE_DOUBT;
}


static int
ctl_live_output(ctl_work_t *work, const ctl_event_t *event)
{
    const char  *name;

    if (work->live->silent) {
        return 0;
    }

    name = event->stream == 1 ? "stdout" : "stderr";

    if (event->type == CTL_EVENT_GAP) {

        /* where the first one is; there may be hundreds */

        if (work->left[event->stream - 1] == 0) {
            ctl_fault("%s comes faster than it can be passed on: some of it "
                      "is left out from here on", name);
        }

        work->left[event->stream - 1] += event->bytes;
        return 0;
    }

    if (event->type != CTL_EVENT_OUTPUT
        || ctl_write(event->stream, event->data, event->size) == 0)
    {
        return 0;
    }

    /* a reader that has all it wants, as head, is no fault */

    if (event->stream == 1 && errno == EPIPE) {
        work->live->closed = 1;

    } else {
        ctl_fault("can't write to %s: %s", name, strerror(errno));
    }

    work->bad = 1;

    /* it need not run on for that, unless we only look on */

    if (work->live->body != NULL) {
        work->cancelled = ctl_live_now();
        work->cancel_again = work->cancelled;
    }

    return -1;
}


/* The exchange of events, or the one answer, is over. */

static void
ctl_live_answer(ctl_work_t *work, CURLcode rc)
{
    int           later;
    long          status;
    json_t       *problem;
    curl_off_t    after;
    ctl_reply_t  *reply;

    if (work->ended || work->bad || work->later) {
        return;
    }

    reply = &work->stream.reply;
    status = reply->status;

    if (rc == CURLE_OK && !work->events) {

        if (status >= 200 && status <= 299 && !work->live->events) {
            work->live->reply = *reply;
            memset(reply, 0, sizeof(ctl_reply_t));
            work->ended = 1;
            return;
        }

        /* once more as one answer, where streams are not to be had */

        if (work->lost == 0 && work->live->body != NULL && work->live->events
            && (ctl_reply_code(reply, "not_on_this_backend")
                || ctl_reply_code(reply, "not_available")))
        {
            work->live->refused = 1;
            work->ended = 1;
            return;
        }

        if (work->lost == 0 && !work->accepted && status == 503) {
            after = 0;
            curl_easy_getinfo(work->stream.curl, CURLINFO_RETRY_AFTER, &after);
            problem = reply->size == 0 ? NULL
                      : json_loadb(reply->body, reply->size, 0, NULL);
            later = ctl_live_later(work, problem, after);
            json_decref(problem);

            if (later) {
                return;
            }
        }

        /* the service may be coming up again, but only after a loss */

        if (work->lost == 0 || (status != 429 && status < 502)) {

            if (work->doubt != 0) {
                work->ended = 1;
                return;
            }

            if (ctl_reply_check(reply) == 0) {
                ctl_fault("the gateway does not stream; is it an older one?");
            }

            work->bad = 1;
            return;
        }
    }

    if (rc != CURLE_OK && !work->accepted && work->lost == 0) {

        /* never got there: nothing to go on with */

        reply->sent = 0;
        curl_easy_getinfo(work->stream.curl, CURLINFO_REQUEST_SIZE, &status);

        if (status == 0 || rc == CURLE_OPERATION_TIMEDOUT) {
            ctl_client_failed(work->live->client, work->stream.curl, rc,
                              work->live->wait, reply);

            if (status != 0) {
                ctl_fault("the command may run on: sandboxctl logs -f %s %s",
                          work->live->conversation, work->live->id);
            }

            work->bad = 1;
            return;
        }
    }

    ctl_live_retry(work);
}


static void
ctl_live_retry(ctl_work_t *work)
{
    int64_t  now;

    now = ctl_live_now();

    if (work->lost == 0) {
        work->lost = now;
    }

    work->again = now + work->pause;
    work->pause *= 2;

    if (work->pause > CTL_LIVE_MOST) {
        work->pause = CTL_LIVE_MOST;
    }
}


/* There is something, so read() does not block. */

static void
ctl_live_read(ctl_work_t *work)
{
    ssize_t  n;

    n = read(work->live->input, work->piece, CTL_LIVE_PIECE);

    if (n == -1 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }

    if (n == -1) {
        ctl_fault("can't read stdin: %s", strerror(errno));
        n = 0;
    }

    work->size = (size_t) n;
    work->eof = n == 0;

    ctl_live_send(work);
}


static void
ctl_live_send(ctl_work_t *work)
{
    char         path[CTL_LIVE_PATH];
    ctl_call_t   call;
    ctl_live_t  *live;

    live = work->live;
    memset(&call, 0, sizeof(ctl_call_t));

    snprintf(path, sizeof(path), "v1/conversations/%s/commands/%s/stdin%s",
             live->conversation, live->id, work->eof ? "?eof=1" : "");

    call.method = "POST";
    call.path = path;
    call.type = "application/octet-stream";
    call.body = work->piece;
    call.size = work->size;

    if (ctl_live_start(work, &work->input, &call) == -1) {
        work->bad = 1;
        return;
    }

    /*
     * On a connection that was used before, curl would send it once more
     * when that one breaks, and it may have got there.
     */

    curl_easy_setopt(work->input.curl, CURLOPT_FRESH_CONNECT, 1L);
}


static void
ctl_live_sent(ctl_work_t *work, CURLcode rc)
{
    long          written;
    ctl_reply_t  *reply;

    reply = &work->input.reply;

    if (rc == CURLE_OK && reply->status >= 200 && reply->status <= 299) {
        work->size = 0;

        if (work->eof) {
            work->open = 0;
        }

        return;
    }

    work->open = 0;

    /* it has ended, or waits for no input: nobody misses what is left */

    if (work->ended || work->cancelled
        || (rc == CURLE_OK && (ctl_reply_code(reply, "command_ended")
                               || ctl_reply_code(reply, "stdin_closed"))))
    {
        return;
    }

    written = 0;
    curl_easy_getinfo(work->input.curl, CURLINFO_REQUEST_SIZE, &written);

    if (rc != CURLE_OK && written == 0) {

        /* nothing of it has left: once more when there is a connection */

        work->open = 1;
        work->input_again = ctl_live_now() + 2 * CTL_LIVE_FIRST;
        return;
    }

    if (rc != CURLE_OK) {
        ctl_client_failed(work->live->client, work->input.curl, rc, 0, reply);

    } else {
        ctl_reply_check(reply);
    }

    ctl_fault("the standard input may have got there in part only, so the "
              "command is cancelled");

    work->bad = 1;
    work->cancelled = ctl_live_now();
    work->cancel_again = work->cancelled;
}


static void
ctl_live_cancel(ctl_work_t *work)
{
    char         path[CTL_LIVE_PATH];
    ctl_call_t   call;

    memset(&call, 0, sizeof(ctl_call_t));

    snprintf(path, sizeof(path), "v1/conversations/%s/commands/%s",
             work->live->conversation, work->live->id);

    call.method = "DELETE";
    call.path = path;
    call.wait = CTL_LIVE_CANCEL / 1000;

    if (ctl_live_start(work, &work->cancel, &call) == -1) {
        work->bad = 1;
        work->gone = 1;
    }
}


static void
ctl_live_cancel_done(ctl_work_t *work, CURLcode rc)
{
    ctl_reply_t  *reply;

    reply = &work->cancel.reply;

    if (rc == CURLE_OK && reply->status >= 200 && reply->status <= 299) {
        work->gone = 1;

        /* whoever waits for the result gets it; who can't write does not */

        if (work->bad) {
            work->ended = 1;
        }

        return;
    }

    /* it may be on its way there: asked again until the time is over */

    if (rc == CURLE_OK && reply->status != 404 && reply->status < 502) {
        ctl_reply_check(reply);
        work->gone = 1;
        work->bad = 1;
        work->ended = 1;
        return;
    }

    work->cancel_again = ctl_live_now() + 2 * CTL_LIVE_FIRST;
}


static int64_t
ctl_live_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
