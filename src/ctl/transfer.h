/*
 * A file on its way to the gateway, or from it: in pieces, over connections
 * that are lost, with a bar on a terminal, until a signal says no.
 */

#ifndef SANDBOX_CTL_TRANSFER_H
#define SANDBOX_CTL_TRANSFER_H

#include "client.h"


#define CTL_MAX_ETAG  256


typedef struct {
    ctl_client_t    client;
    CURLM          *multi;
    CURL           *curl;
} ctl_transfer_t;

/* `label` is what sentences and the bar call it, fit for a terminal. */

typedef struct {
    const char     *method;                      /* PUT, POST */
    const char     *path;
    const char     *label;
    int             fd;
    int64_t         size;                        /* a file's; -1: up to its
                                                    end, whenever that is */
    int             fresh;                       /* never in place of one */
    const ctl_hint_t  *hints;
    ctl_reply_t     reply;                       /* of success */
} ctl_upload_t;

typedef struct {
    const char     *path;
    const char     *label;
    int             fd;
    int             file;                        /* it can be cut, begun anew */
    uint64_t        from;                        /* bytes that it has */
    char            etag[CTL_MAX_ETAG];          /* of those; "": none */
    int             quiet;                       /* about a file that is not
                                                    there */
    int             missing;                     /* there is none */
    int             closed;                      /* nobody reads any more */
} ctl_download_t;


/*
 * Finds the gateway, and catches SIGINT and SIGTERM from now on.  0, or -1
 * after a sentence; ctl_transfer_close() is for both cases.
 */
int ctl_transfer_open(ctl_transfer_t *transfer,
    const ctl_connection_t *connection);
void ctl_transfer_close(ctl_transfer_t *transfer);

/*
 * 0: all of it is there.  -1 after a sentence, or without one after a signal
 * (ctl_live_signal()).
 */
int ctl_upload(ctl_transfer_t *transfer, ctl_upload_t *upload);
int ctl_download(ctl_transfer_t *transfer, ctl_download_t *download);

/* Its ETag, and size (-1: not told), by HEAD.  -1: there is none to be had. */
int ctl_transfer_head(ctl_transfer_t *transfer, ctl_download_t *download,
    int64_t *size);


#endif /* SANDBOX_CTL_TRANSFER_H */
