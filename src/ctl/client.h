/*
 * The gateway as seen from sandboxctl: where it is, one call, its errors.
 */

#ifndef SANDBOX_CTL_CLIENT_H
#define SANDBOX_CTL_CLIENT_H

#include "options.h"

#include <curl/curl.h>
#include <jansson.h>


#define CTL_MAX_REPLY      (256 * 1024 * 1024)   /* bytes */
#define CTL_CONNECT_WAIT   10                    /* seconds */
#define CTL_REPLY_WAIT     30                    /* seconds */


/* the options every verb that talks to a gateway has */

typedef struct {
    ctl_values_t        url;
    ctl_values_t        token;
    ctl_values_t        state;
} ctl_connection_t;

#define CTL_CONNECTION(c)                                                    \
    { "url", "URL", "where the gateway is ($SANDBOX_URL)", 1, &(c)->url, 0 },\
    { "token", "TOKEN", "the bearer token ($SANDBOX_TOKEN)", 1,              \
      &(c)->token, 0 },                                                      \
    { "state", "DIR", "of 'make run', has both of them (run)", 1,            \
      &(c)->state, 0 }


typedef struct {
    CURL               *curl;
    char               *url;                     /* without a slash behind */
    struct curl_slist  *headers;
} ctl_client_t;

typedef struct {
    long                status;                  /* HTTP */
    char               *body;                    /* has a NUL behind it */
    size_t              size;
    int                 sent;                    /* on failure: the gateway
                                                    may have the request */
} ctl_reply_t;


/*
 * Finds URL and, unless `anonymous`, token: from the options, the environment,
 * or the files `url` and `token` of the state directory.  0, or -1 after a
 * sentence.  ctl_client_close() may be called in both cases.
 */
int ctl_client_open(ctl_client_t *client, const ctl_connection_t *connection,
    int anonymous);
void ctl_client_close(ctl_client_t *client);

/* 1: ctl_client_open() would find a URL; says nothing. */
int ctl_client_known(const ctl_connection_t *connection);

/* The same of a token. */
int ctl_client_token_known(const ctl_connection_t *connection);

typedef struct {
    const char         *method;
    const char         *path;                    /* below the URL */
    const char         *accept;                  /* NULL: anything */
    const char         *type;                    /* of the body; NULL: none */
    const void         *body;                    /* kept until it is sent */
    size_t              size;
    long                wait;                    /* seconds; 0: for ever */
} ctl_call_t;


/*
 * Makes an easy handle ready for a call.  `*headers` are the handle's until
 * it is done, then the caller's.  0, or -1 after a sentence.
 */
int ctl_client_prepare(ctl_client_t *client, CURL *curl,
    const ctl_call_t *call, struct curl_slist **headers);

/* The sentence about a call that failed, and reply->sent.  Returns -1. */
int ctl_client_failed(const ctl_client_t *client, CURL *curl, CURLcode rc,
    long wait, ctl_reply_t *reply);

/* For CURLOPT_WRITEFUNCTION; the context is a ctl_reply_t. */
size_t ctl_reply_write(char *data, size_t size, size_t n, void *context);

/*
 * One call; `body` is JSON, or NULL.  `wait`: seconds until it must have
 * ended.  0 when any HTTP answer came, or -1 after a sentence.
 * ctl_reply_free() may be called in both cases.
 */
int ctl_client_call(ctl_client_t *client, const char *method,
    const char *path, const char *body, long wait, ctl_reply_t *reply);
void ctl_reply_free(ctl_reply_t *reply);

/*
 * The object of a 2xx reply, the caller's; NULL after a sentence made of the
 * problem the gateway reports.
 */
json_t *ctl_reply_object(const ctl_reply_t *reply);

/* A 2xx reply: 0; else -1 after that sentence. */
int ctl_reply_check(const ctl_reply_t *reply);

/* what to do here about a problem with that code; the last has none */

typedef struct {
    const char         *code;
    const char         *text;
} ctl_hint_t;

/* The same, in a sentence about one of several things. */
int ctl_reply_check_of(const ctl_reply_t *reply, const char *what,
    const ctl_hint_t *hints);

/* 1: it reports a problem with that code. */
int ctl_reply_code(const ctl_reply_t *reply, const char *code);


#endif /* SANDBOX_CTL_CLIENT_H */
