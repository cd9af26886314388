/*
 * Moves the bytes of one file over HTTP.  Knows neither places nor names.
 *
 * A download whose connection is lost goes on behind the last byte that came,
 * if it is still the same file; an upload is made again, where that can't do
 * harm.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "live.h"
#include "progress.h"
#include "transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


#define CTL_MOVE_PIECE    (256 * 1024)           /* bytes */
#define CTL_MOVE_REPLY    (64 * 1024)            /* bytes of what is no file */
#define CTL_MOVE_AGAIN    5                      /* uploads, new beginnings */
#define CTL_MOVE_SILENCE  60                     /* seconds without a byte */
#define CTL_MOVE_DISK     300                    /* ... while it is written */

/* milliseconds */

#define CTL_MOVE_LOST     60000                  /* until it is given up */
#define CTL_MOVE_BUSY     15000                  /* nothing was started */
#define CTL_MOVE_FIRST    100                    /* between two attempts */
#define CTL_MOVE_MOST     2000


typedef struct {
    ctl_transfer_t     *transfer;
    ctl_upload_t       *up;
    ctl_download_t     *down;

    uint64_t            at;                      /* bytes sent, or written */
    uint64_t            moved;                   /* in this attempt */
    int64_t             total;                   /* -1: not known */
    ctl_reply_t         reply;                   /* what is not the file */
    int64_t             lost;                    /* since when; 0: it is not */
    int64_t             busy;                    /* since when; 0: it is not */
    int64_t             pause;
    int64_t             after;                   /* what the gateway says */
    unsigned            attempts;
    unsigned            again;                   /* begun anew */
    unsigned            looked:1;                /* at the status */
    unsigned            file:1;                  /* the body is the file */
    unsigned            head:1;                  /* only asks */
    unsigned            waits:1;                 /* for our own input */
    unsigned            bad:1;                   /* a sentence was said */
} ctl_move_t;


static int ctl_move(ctl_move_t *move);
static int ctl_move_prepare(ctl_move_t *move, struct curl_slist **headers);
static int ctl_move_header(struct curl_slist **headers, const char *line);
static void ctl_move_prepare_up(ctl_move_t *move, CURL *curl);
static int ctl_move_perform(ctl_move_t *move, CURLcode *rc);
static void ctl_move_poll(ctl_move_t *move);
static size_t ctl_move_read(char *data, size_t size, size_t n, void *context);
static int ctl_move_seek(void *context, curl_off_t offset, int origin);
static size_t ctl_move_write(char *data, size_t size, size_t n,
    void *context);
static void ctl_move_look(ctl_move_t *move);
static int ctl_move_whole(ctl_move_t *move);
static int ctl_move_part(ctl_move_t *move, const char *range);
static int ctl_move_done(ctl_move_t *move, CURLcode rc);
static int ctl_move_refused(ctl_move_t *move);
static int ctl_move_later(ctl_move_t *move);
static int ctl_move_broken(ctl_move_t *move, CURLcode rc);
static int ctl_move_pause(ctl_move_t *move, int64_t wait);
static const char *ctl_move_told(CURL *curl, const char *name);
static int64_t ctl_move_now(void);


int
ctl_transfer_open(ctl_transfer_t *transfer, const ctl_connection_t *connection)
{
    memset(transfer, 0, sizeof(ctl_transfer_t));

    if (ctl_client_open(&transfer->client, connection, 0) == -1
        || ctl_live_signals() == -1 || ctl_live_signal_also(SIGHUP) == -1)
    {
        return -1;
    }

    transfer->multi = curl_multi_init();
    transfer->curl = curl_easy_init();

    if (transfer->multi == NULL || transfer->curl == NULL) {
        return ctl_fault("no memory");
    }

    return 0;
}


void
ctl_transfer_close(ctl_transfer_t *transfer)
{
    curl_easy_cleanup(transfer->curl);
    curl_multi_cleanup(transfer->multi);
    ctl_client_close(&transfer->client);
}


int
ctl_upload(ctl_transfer_t *transfer, ctl_upload_t *upload)
{
    int         rc;
    ctl_move_t  move;

    memset(&move, 0, sizeof(ctl_move_t));

    move.transfer = transfer;
    move.up = upload;
    move.total = upload->size;

    ctl_progress_begin(upload->label, upload->size);
    rc = ctl_move(&move);
    ctl_progress_end();

    if (rc == 0) {
        upload->reply = move.reply;

    } else {
        ctl_reply_free(&move.reply);
    }

    return rc;
}


int
ctl_download(ctl_transfer_t *transfer, ctl_download_t *download)
{
    int         rc;
    ctl_move_t  move;

    memset(&move, 0, sizeof(ctl_move_t));

    move.transfer = transfer;
    move.down = download;
    move.at = download->from;
    move.total = -1;

    ctl_progress_begin(download->label, -1);
    rc = ctl_move(&move);
    ctl_progress_end();
    ctl_reply_free(&move.reply);

    return rc;
}


int
ctl_transfer_head(ctl_transfer_t *transfer, ctl_download_t *download,
    int64_t *size)
{
    int         rc;
    ctl_move_t  move;

    memset(&move, 0, sizeof(ctl_move_t));

    move.transfer = transfer;
    move.down = download;
    move.head = 1;

    rc = ctl_move(&move);
    *size = move.total;
    ctl_reply_free(&move.reply);

    return rc;
}


/* Attempts, until one is the last. */

static int
ctl_move(ctl_move_t *move)
{
    int                 rc;
    CURLcode            code;
    struct curl_slist  *headers;

    move->pause = CTL_MOVE_FIRST;

    for ( ;; ) {
        if (ctl_move_prepare(move, &headers) == -1) {
            return -1;
        }

        rc = ctl_move_perform(move, &code);
        curl_slist_free_all(headers);

        if (rc == -1 || move->bad) {
            return -1;
        }

        /* 1: once more */

        rc = ctl_move_done(move, code);

        if (rc != 1) {
            return rc;
        }
    }
}


static int
ctl_move_prepare(ctl_move_t *move, struct curl_slist **headers)
{
    int          rc;
    char        *line;
    CURL        *curl;
    ctl_call_t   call;

    memset(&call, 0, sizeof(ctl_call_t));

    curl = move->transfer->curl;
    call.method = move->up != NULL ? "PUT"
                  : move->head ? "HEAD" : "GET";
    call.path = move->up != NULL ? move->up->path : move->down->path;
    call.type = move->up != NULL ? "application/octet-stream" : NULL;

    move->attempts++;
    move->moved = 0;
    move->after = 0;
    move->looked = 0;
    move->file = 0;
    move->waits = 0;

    ctl_reply_free(&move->reply);
    memset(&move->reply, 0, sizeof(ctl_reply_t));

    if (ctl_client_prepare(&move->transfer->client, curl, &call, headers)
        == -1)
    {
        return -1;
    }

    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long) CTL_MOVE_SILENCE);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long) CTL_MOVE_PIECE);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ctl_move_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, move);

    rc = 0;

    if (move->up != NULL) {
        ctl_move_prepare_up(move, curl);

        if (move->up->fresh && strcmp(move->up->method, "PUT") == 0) {
            rc = ctl_move_header(headers, "If-None-Match: *");
        }

    } else if (move->head) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);

    } else if (move->at > 0) {
        rc = asprintf(&line, "Range: bytes=%" PRIu64 "-", move->at);

        if (rc != -1) {
            rc = ctl_move_header(headers, line);
            free(line);
        }

        if (rc == 0) {
            rc = asprintf(&line, "If-Range: %s", move->down->etag);
        }

        if (rc != -1) {
            rc = ctl_move_header(headers, line);
            free(line);
        }
    }

    if (rc != -1) {
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
        return 0;
    }

    curl_slist_free_all(*headers);
    *headers = NULL;

    return ctl_fault("no memory");
}


static int
ctl_move_header(struct curl_slist **headers, const char *line)
{
    struct curl_slist  *list;

    list = curl_slist_append(*headers, line);

    if (list == NULL) {
        return -1;
    }

    *headers = list;

    return 0;
}


static void
ctl_move_prepare_up(ctl_move_t *move, CURL *curl)
{
    move->at = 0;

    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, move->up->method);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, (long) CTL_MOVE_PIECE);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, ctl_move_read);
    curl_easy_setopt(curl, CURLOPT_READDATA, move);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, ctl_move_seek);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, move);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE,
                     (curl_off_t) move->up->size);

    /* what waits for our input is for the gateway to judge */

    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                     move->up->size < 0 ? 0L : (long) CTL_MOVE_DISK);

    /*
     * On a connection that was used before, curl would send it once more
     * when that one breaks, and it may have got there.
     */

    if (move->up->fresh || move->up->size < 0) {
        curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
    }
}


/* One exchange; -1: a signal came. */

static int
ctl_move_perform(ctl_move_t *move, CURLcode *rc)
{
    int       left, done;
    CURL     *curl;
    CURLM    *multi;
    CURLMsg  *message;

    curl = move->transfer->curl;
    multi = move->transfer->multi;
    *rc = CURLE_OUT_OF_MEMORY;

    if (curl_multi_add_handle(multi, curl) != CURLM_OK) {
        return 0;
    }

    for (done = 0; !done && ctl_live_signal() == 0; /* void */ ) {

        if (curl_multi_perform(multi, &left) != CURLM_OK) {
            break;
        }

        while ((message = curl_multi_info_read(multi, &left)) != NULL) {
            if (message->msg == CURLMSG_DONE) {
                *rc = message->data.result;
                done = 1;
            }
        }

        if (!done) {
            ctl_move_poll(move);
        }
    }

    curl_multi_remove_handle(multi, curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &move->reply.status);

    return ctl_live_signal() == 0 ? 0 : -1;
}


static void
ctl_move_poll(ctl_move_t *move)
{
    int                 n, wait;
    struct curl_waitfd  fds[2];

    memset(fds, 0, sizeof(fds));
    n = 1;

    fds[0].fd = ctl_live_signal_fd();
    fds[0].events = CURL_WAIT_POLLIN;

    if (move->waits) {
        fds[1].fd = move->up->fd;
        fds[1].events = CURL_WAIT_POLLIN;
        n = 2;
    }

    wait = ctl_progress_wait();

    (void) curl_multi_poll(move->transfer->multi, fds, n,
                           wait < 0 ? 1000 : wait, NULL);

    ctl_progress_tick();

    /* also at an end or an error of it, which read() tells */

    if (move->waits && fds[1].revents != 0) {
        move->waits = 0;
        (void) curl_easy_pause(move->transfer->curl, CURLPAUSE_CONT);
    }
}


static size_t
ctl_move_read(char *data, size_t size, size_t n, void *context)
{
    ssize_t         got;
    ctl_move_t     *move;
    ctl_upload_t   *up;
    struct pollfd   p;

    move = context;
    up = move->up;
    n *= size;

    if (up->size >= 0) {

        if (n > (uint64_t) up->size - move->at) {
            n = (size_t) ((uint64_t) up->size - move->at);
        }

        do {
            got = pread(up->fd, data, n, (off_t) move->at);
        } while (got == -1 && errno == EINTR && ctl_live_signal() == 0);

    } else {
        p.fd = up->fd;
        p.events = POLLIN;
        p.revents = 0;

        if (poll(&p, 1, 0) != 1) {
            move->waits = 1;
            return CURL_READFUNC_PAUSE;
        }

        got = read(up->fd, data, n);

        if (got == -1 && (errno == EINTR || errno == EAGAIN)) {
            move->waits = 1;
            return CURL_READFUNC_PAUSE;
        }
    }

    if (got == -1) {
        ctl_fault("can't read %s: %s", up->label, strerror(errno));
        move->bad = 1;
        return CURL_READFUNC_ABORT;
    }

    if (got == 0 && n > 0 && up->size >= 0) {
        ctl_fault("%s became shorter while it was read", up->label);
        move->bad = 1;
        return CURL_READFUNC_ABORT;
    }

    move->at += (size_t) got;
    move->moved += (size_t) got;
    ctl_progress_at(move->at);

    return (size_t) got;
}


static int
ctl_move_seek(void *context, curl_off_t offset, int origin)
{
    ctl_move_t  *move;

    move = context;

    if (move->up->size < 0 || origin != SEEK_SET || offset < 0
        || offset > move->up->size)
    {
        return CURL_SEEKFUNC_CANTSEEK;
    }

    move->at = (uint64_t) offset;

    return CURL_SEEKFUNC_OK;
}


static size_t
ctl_move_write(char *data, size_t size, size_t n, void *context)
{
    ctl_move_t  *move;

    move = context;
    n *= size;

    if (!move->looked) {
        ctl_move_look(move);
    }

    if (move->bad) {
        return 0;
    }

    if (!move->file) {
        return n > CTL_MOVE_REPLY - move->reply.size
               ? 0 : ctl_reply_write(data, 1, n, &move->reply);
    }

    if (ctl_write(move->down->fd, data, n) == -1) {

        /* a reader that has all it wants, as head, is no fault */

        if (errno == EPIPE && !move->down->file) {
            move->down->closed = 1;

        } else {
            ctl_fault("can't write %s: %s", move->down->label,
                      strerror(errno));
        }

        move->bad = 1;
        return 0;
    }

    move->at += n;
    move->moved += n;
    ctl_progress_at(move->at);

    return n;
}


/* The status is there: whether what comes is the file, and from where on. */

static void
ctl_move_look(ctl_move_t *move)
{
    int    rc;
    long   status;
    CURL  *curl;

    move->looked = 1;
    curl = move->transfer->curl;
    status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);

    if (move->down == NULL || (status != 200 && status != 206)) {
        return;
    }

    move->file = 1;

    rc = status == 200 ? ctl_move_whole(move)
                       : ctl_move_part(move, ctl_move_told(curl,
                                                           "Content-Range"));

    if (rc == -1) {
        move->bad = 1;
        return;
    }

    ctl_progress_total(move->total);
}


static int
ctl_move_whole(ctl_move_t *move)
{
    CURL            *curl;
    curl_off_t       length;
    const char      *etag, *type;
    ctl_download_t  *down;

    curl = move->transfer->curl;
    down = move->down;
    etag = ctl_move_told(curl, "ETag");

    /* every file has one, a listing has none */

    if (*etag == '\0') {
        type = ctl_move_told(curl, "Content-Type");

        return strncmp(type, "application/json", 16) == 0
               ? ctl_fault("%s is a folder: ls lists it, and run with 'tar "
                           "c' brings all of it", down->label)
               : ctl_fault("%s is not told by the gateway; is the URL right?",
                           down->label);
    }

    if (move->at > 0) {

        if (!down->file) {
            return ctl_fault("%s was changed while it was read: what came is "
                             "its beginning as it was before", down->label);
        }

        if (++move->again > CTL_MOVE_AGAIN) {
            return ctl_fault("%s changes again and again while it is read",
                             down->label);
        }

        if (ftruncate(down->fd, 0) == -1
            || lseek(down->fd, 0, SEEK_SET) == -1)
        {
            return ctl_fault("can't write %s: %s", down->label,
                             strerror(errno));
        }

        move->at = 0;
    }

    snprintf(down->etag, CTL_MAX_ETAG, "%s",
             strlen(etag) < CTL_MAX_ETAG ? etag : "");

    length = -1;
    curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    move->total = length;

    return 0;
}


/* "bytes 1000-1999/2000" */

static int
ctl_move_part(ctl_move_t *move, const char *range)
{
    uint64_t  first, last, total;

    if (sscanf(range, "bytes %20" SCNu64 "-%20" SCNu64 "/%20" SCNu64, &first,
               &last, &total)
        != 3
        || first != move->at || last < first || last + 1 != total
        || total > INT64_MAX)
    {
        return ctl_fault("the gateway sends another part of %s than was asked "
                         "for", move->down->label);
    }

    move->total = (int64_t) total;

    return 0;
}


/* 0, -1 after a sentence, 1: once more. */

static int
ctl_move_done(ctl_move_t *move, CURLcode rc)
{
    curl_off_t  after;

    if (move->moved > 0) {
        move->lost = 0;
        move->pause = CTL_MOVE_FIRST;
    }

    if (rc != CURLE_OK) {
        return ctl_move_broken(move, rc);
    }

    /* an empty file has no body to look at */

    if (!move->looked) {
        ctl_move_look(move);

        if (move->bad) {
            return -1;
        }
    }

    if (move->file
        || (move->up != NULL && move->reply.status >= 200
            && move->reply.status <= 299))
    {
        return 0;
    }

    after = 0;
    curl_easy_getinfo(move->transfer->curl, CURLINFO_RETRY_AFTER, &after);
    move->after = after;

    return ctl_move_refused(move);
}


static int
ctl_move_refused(ctl_move_t *move)
{
    long             status;
    uint64_t         size;
    ctl_download_t  *down;

    down = move->down;
    status = move->reply.status;

    /* the answer to HEAD does not say why */

    if (move->head) {
        return -1;
    }

    if (down != NULL && ctl_reply_code(&move->reply, "file_not_found")) {
        down->missing = 1;

        if (down->quiet) {
            return -1;
        }
    }

    /* what was kept of an earlier attempt is all of it */

    if (down != NULL && status == 416 && move->at > 0
        && sscanf(ctl_move_told(move->transfer->curl, "Content-Range"),
                  "bytes */%20" SCNu64, &size) == 1
        && size == move->at)
    {
        return 0;
    }

    /* it goes either up or down */

    if ((down != NULL || move->up->size >= 0)                   /* NOLINT */
        && (status == 429 || status >= 502) && ctl_move_later(move))
    {
        return ctl_move_pause(move, move->after * 1000) == -1 ? -1 : 1;
    }

    return down != NULL
           ? ctl_reply_check_of(&move->reply, down->label, NULL)
           : ctl_reply_check_of(&move->reply, move->up->label,
                                move->up->hints);
}


/* 1: nothing was started, and that may be otherwise soon. */

static int
ctl_move_later(ctl_move_t *move)
{
    int64_t  now;

    now = ctl_move_now();

    if (move->after < 1) {
        move->after = 1;
    }

    /* it was on its way already: the gateway comes up again */

    if (move->lost != 0) {
        return now - move->lost < CTL_MOVE_LOST
               && move->after < CTL_MOVE_LOST / 1000;
    }

    if (!ctl_reply_code(&move->reply, "runner_unreachable")
        && !ctl_reply_code(&move->reply, "runner_stopping")
        && !ctl_reply_code(&move->reply, "at_capacity"))
    {
        return 0;
    }

    if (move->busy == 0) {
        move->busy = now;
    }

    return move->after <= CTL_MOVE_BUSY / 1000
           && now + move->after * 1000 - move->busy <= CTL_MOVE_BUSY;
}


static int
ctl_move_broken(ctl_move_t *move, CURLcode rc)
{
    int      again;
    int64_t  now;

    now = ctl_move_now();
    again = 0;

    switch (rc) {

    case CURLE_COULDNT_CONNECT:
        again = move->attempts > 1;
        break;

    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        again = 1;
        break;

    default:
        break;
    }

    if (move->down != NULL) {
        again &= move->at == 0 || move->down->etag[0] != '\0';

    } else {
        again &= !move->up->fresh && move->up->size >= 0
                 && move->attempts < CTL_MOVE_AGAIN;
    }

    if (move->lost == 0) {
        move->lost = now;
    }

    if (!again || now - move->lost > CTL_MOVE_LOST) {
        return ctl_client_failed(&move->transfer->client,
                                 move->transfer->curl, rc,
                                 move->up != NULL ? CTL_MOVE_DISK
                                                  : CTL_MOVE_SILENCE,
                                 &move->reply);
    }

    if (ctl_move_pause(move, move->pause) == -1) {
        return -1;
    }

    move->pause *= 2;

    if (move->pause > CTL_MOVE_MOST) {
        move->pause = CTL_MOVE_MOST;
    }

    return 1;
}


/* -1: a signal came. */

static int
ctl_move_pause(ctl_move_t *move, int64_t wait)
{
    int             next;
    int64_t         until, left;
    struct pollfd   p;

    p.fd = ctl_live_signal_fd();
    p.events = POLLIN;
    until = ctl_move_now() + wait;

    for ( ;; ) {
        if (ctl_live_signal() != 0) {
            return -1;
        }

        left = until - ctl_move_now();

        if (left <= 0) {
            return 0;
        }

        next = ctl_progress_wait();

        if (next < 0 || next > left) {
            next = (int) left;
        }

        (void) poll(&p, 1, next);
        ctl_progress_tick();
    }
}


/* A header of the last answer, "" without one. */

static const char *
ctl_move_told(CURL *curl, const char *name)
{
    struct curl_header  *header;

    return curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &header)
           == CURLHE_OK ? header->value : "";
}


static int64_t
ctl_move_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
