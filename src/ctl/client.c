/*
 * Finds the gateway and makes one HTTP call.  Every wait has an end, no proxy
 * of the environment is used, and no redirection followed with the token.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>


#define CTL_MAX_URL    2048
#define CTL_MAX_TOKEN  (64 * 1024)
#define CTL_STATE      "run"


static char *ctl_setting(const ctl_connection_t *connection,
    const ctl_values_t *given, const char *name, const char *variable,
    size_t max, int quiet);
static char *ctl_setting_file(const char *state, const char *name, size_t max,
    int *missing);
static int ctl_url_check(char *url);
static int ctl_client_init(ctl_client_t *client, const char *token);
static int ctl_header_add(struct curl_slist **headers, const char *name,
    const char *value);


int
ctl_client_open(ctl_client_t *client, const ctl_connection_t *connection,
    int anonymous)
{
    int    rc;
    char  *token;

    memset(client, 0, sizeof(ctl_client_t));

    client->url = ctl_setting(connection, &connection->url, "url",
                              "SANDBOX_URL", CTL_MAX_URL, 0);

    if (client->url == NULL || ctl_url_check(client->url) == -1) {
        return -1;
    }

    token = NULL;

    if (!anonymous) {
        token = ctl_setting(connection, &connection->token, "token",
                            "SANDBOX_TOKEN", CTL_MAX_TOKEN, 0);

        if (token == NULL) {
            return -1;
        }

        if (token[strcspn(token, " \t\r\n")] != '\0') {
            free(token);
            return ctl_fault("the token has blanks in it");
        }
    }

    rc = ctl_client_init(client, token);
    free(token);

    return rc;
}


int
ctl_client_known(const ctl_connection_t *connection)
{
    char  *url;

    url = ctl_setting(connection, &connection->url, "url", "SANDBOX_URL",
                      CTL_MAX_URL, 1);
    free(url);

    return url != NULL;
}


int
ctl_client_token_known(const ctl_connection_t *connection)
{
    char  *token;

    token = ctl_setting(connection, &connection->token, "token",
                        "SANDBOX_TOKEN", CTL_MAX_TOKEN, 1);

    if (token == NULL) {
        return 0;
    }

    free(token);

    return 1;
}


void
ctl_client_close(ctl_client_t *client)
{
    if (client->curl != NULL) {
        curl_easy_cleanup(client->curl);
    }

    curl_slist_free_all(client->headers);
    free(client->url);
    memset(client, 0, sizeof(ctl_client_t));
}


/*
 * What was said on the command line wins: the value itself, then a state
 * directory; then the environment; then ./run.
 */

static char *
ctl_setting(const ctl_connection_t *connection, const ctl_values_t *given,
    const char *name, const char *variable, size_t max, int quiet)
{
    int          missing;
    char        *value;
    const char  *text, *state;

    text = ctl_value(given, NULL);

    if (text == NULL && connection->state.n == 0) {
        text = getenv(variable);
    }

    if (text != NULL && *text != '\0') {
        value = strlen(text) <= max ? strdup(text) : NULL;

        if (value == NULL && !quiet) {
            ctl_fault("the %s has more than %zu bytes", name, max);
        }

        return value;
    }

    missing = 0;
    state = ctl_value(&connection->state, CTL_STATE);
    value = ctl_setting_file(state, name, max, &missing);

    if (missing && !quiet) {
        if (strcmp(name, "url") == 0) {
            ctl_fault("which gateway? There is no file %s/url, as 'make run' "
                      "makes it: start that, or name one by --url or $%s",
                      state, variable);
        } else {
            ctl_fault("no %s: there is no file %s/%s, no --%s and no $%s; "
                      "'sandboxctl token' makes one", name, state, name, name,
                      variable);
        }
    }

    return value;
}


/* NULL: no such file (*missing is set), or a sentence was printed. */

static char *
ctl_setting_file(const char *state, const char *name, size_t max,
    int *missing)
{
    char     *path;
    size_t    size;
    uint8_t  *data;

    if (asprintf(&path, "%s/%s", state, name) == -1) {
        return NULL;
    }

    if (access(path, F_OK) == -1
        || ctl_file_read(path, max, &data, &size) == -1)
    {
        *missing = access(path, F_OK) == -1;
        free(path);
        return NULL;
    }

    size = strcspn((char *) data, "\r\n");
    data[size] = '\0';

    if (size == 0) {
        ctl_fault("the file %s is empty", path);
        free(path);
        free(data);
        return NULL;
    }

    free(path);

    return (char *) data;
}


static int
ctl_url_check(char *url)
{
    size_t  n;

    if (strncasecmp(url, "http://", 7) != 0
        && strncasecmp(url, "https://", 8) != 0)
    {
        return ctl_fault("the URL \"%s\" begins with neither http:// nor "
                         "https://", url);
    }

    if (url[strcspn(url, "?# \t")] != '\0') {
        return ctl_fault("the URL \"%s\" must be a prefix: no blanks, no ?, "
                         "no #", url);
    }

    for (n = strlen(url); url[n - 1] == '/'; n--) {
        url[n - 1] = '\0';
    }

    return 0;
}


static int
ctl_client_init(ctl_client_t *client, const char *token)
{
    char  *value;

    client->curl = curl_easy_init();

    if (client->curl == NULL) {
        return ctl_fault("no memory");
    }

    /* without it curl waits a second for a "100 Continue" */

    if (ctl_header_add(&client->headers, "Expect", NULL) == -1) {
        return -1;
    }

    if (token == NULL) {
        return 0;
    }

    if (asprintf(&value, "Bearer %s", token) == -1) {
        return ctl_fault("no memory");
    }

    if (ctl_header_add(&client->headers, "Authorization", value) == -1) {
        free(value);
        return -1;
    }

    free(value);

    return 0;
}


/* Without a value: one that curl must not send. */

static int
ctl_header_add(struct curl_slist **headers, const char *name,
    const char *value)
{
    char               *line;
    struct curl_slist  *list;

    if (asprintf(&line, "%s:%s%s", name, value == NULL ? "" : " ",
                 value == NULL ? "" : value)
        == -1)
    {
        return ctl_fault("no memory");
    }

    list = curl_slist_append(*headers, line);
    free(line);

    if (list == NULL) {
        return ctl_fault("no memory");
    }

    *headers = list;

    return 0;
}


int
ctl_client_prepare(ctl_client_t *client, CURL *curl, const ctl_call_t *call,
    struct curl_slist **headers)
{
    char               *url;
    struct curl_slist  *header, *list;

    *headers = NULL;

    for (header = client->headers; header != NULL; header = header->next) {
        list = curl_slist_append(*headers, header->data);

        if (list == NULL) {
            goto failed;
        }

        *headers = list;
    }

    if ((call->accept != NULL
         && ctl_header_add(headers, "Accept", call->accept) == -1)
        || (call->type != NULL
            && ctl_header_add(headers, "Content-Type", call->type) == -1))
    {
        goto failed;
    }

    if (asprintf(&url, "%s/%s", client->url, call->path) == -1) {
        goto failed;
    }

    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long) CTL_CONNECT_WAIT);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, call->wait);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "sandboxctl/" CTL_VERSION);

    free(url);

    if (call->body != NULL || strcmp(call->method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS,
                         call->body != NULL ? call->body : "");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t) call->size);
    }

    return 0;

failed:

    curl_slist_free_all(*headers);
    *headers = NULL;

    return ctl_fault("no memory");
}


int
ctl_client_call(ctl_client_t *client, const char *method, const char *path,
    const char *body, long wait, ctl_reply_t *reply)
{
    CURL               *curl;
    CURLcode            rc;
    ctl_call_t          call;
    struct curl_slist  *headers;

    memset(reply, 0, sizeof(ctl_reply_t));
    memset(&call, 0, sizeof(ctl_call_t));

    call.method = method;
    call.path = path;
    call.wait = wait;

    if (body != NULL) {
        call.type = "application/json";
        call.body = body;
        call.size = strlen(body);
    }

    curl = client->curl;

    if (ctl_client_prepare(client, curl, &call, &headers) == -1) {
        return -1;
    }

    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ctl_reply_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);

    rc = curl_easy_perform(curl);

    curl_slist_free_all(headers);

    if (rc != CURLE_OK) {
        return ctl_client_failed(client, curl, rc, wait, reply);
    }

    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply->status);

    return 0;
}


size_t
ctl_reply_write(char *data, size_t size, size_t n, void *context)
{
    char         *larger;
    ctl_reply_t  *reply;

    reply = context;
    n *= size;

    if (n > CTL_MAX_REPLY - reply->size) {
        return 0;
    }

    larger = realloc(reply->body, reply->size + n + 1);
    if (larger == NULL) {
        return 0;
    }

    memcpy(larger + reply->size, data, n);
    reply->body = larger;
    reply->size += n;
    reply->body[reply->size] = '\0';

    return n;
}


int
ctl_client_failed(const ctl_client_t *client, CURL *curl, CURLcode rc,
    long wait, ctl_reply_t *reply)
{
    long  written;

    written = 0;
    curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &written);
    reply->sent = written > 0;

    switch (rc) {

    case CURLE_COULDNT_CONNECT:
        return ctl_fault("nothing answers at %s: is the gateway running? "
                         "('make run', or nginx)", client->url);

    case CURLE_COULDNT_RESOLVE_HOST:
        return ctl_fault("the host of %s is not known", client->url);

    case CURLE_OPERATION_TIMEDOUT:
        return ctl_fault("%s did not answer within %ld s", client->url,
                         reply->sent ? wait : (long) CTL_CONNECT_WAIT);

    case CURLE_WRITE_ERROR:
        return ctl_fault("the answer of %s is too large", client->url);

    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
        return ctl_fault("the connection to %s broke (%s)", client->url,
                         curl_easy_strerror(rc));

    default:
        return ctl_fault("no answer from %s: %s", client->url,
                         curl_easy_strerror(rc));
    }
}


void
ctl_reply_free(ctl_reply_t *reply)
{
    free(reply->body);
    reply->body = NULL;
    reply->size = 0;
}


int
ctl_reply_check(const ctl_reply_t *reply)
{
    return ctl_reply_check_of(reply, NULL, NULL);
}


int
ctl_reply_check_of(const ctl_reply_t *reply, const char *what,
    const ctl_hint_t *hints)
{
    json_t      *problem;
    const char  *code, *detail;

    if (reply->status >= 200 && reply->status <= 299) {
        return 0;
    }

    problem = reply->size == 0 ? NULL
              : json_loadb(reply->body, reply->size, 0, NULL);

    code = json_string_value(json_object_get(problem, "code"));
    detail = json_string_value(json_object_get(problem, "detail"));

    if (detail == NULL) {
        detail = json_string_value(json_object_get(problem, "title"));
    }

    while (code != NULL && hints != NULL && hints->code != NULL
           && strcmp(hints->code, code) != 0)
    {
        hints++;
    }

    if (code != NULL && hints != NULL && hints->code != NULL) {
        ctl_fault("%s: %s (%s, HTTP %ld)", what, hints->text, code,
                  reply->status);

    } else if (code != NULL) {
        ctl_fault("%s%s%s (%s, HTTP %ld)", what != NULL ? what : "",
                  what != NULL ? ": " : "",
                  detail != NULL ? detail : "refused", code, reply->status);

    } else {
        ctl_fault("HTTP %ld from something that is not the gateway; "
                  "is the URL right?", reply->status);
    }

    json_decref(problem);

    return -1;
}


int
ctl_reply_code(const ctl_reply_t *reply, const char *code)
{
    int          same;
    json_t      *problem;
    const char  *text;

    problem = reply->size == 0 ? NULL
              : json_loadb(reply->body, reply->size, 0, NULL);

    text = json_string_value(json_object_get(problem, "code"));
    same = text != NULL && strcmp(text, code) == 0;

    json_decref(problem);

    return same;
}


json_t *
ctl_reply_object(const ctl_reply_t *reply)
{
    json_t        *object;
    json_error_t   error;

    if (ctl_reply_check(reply) == -1) {
        return NULL;
    }

    object = reply->size == 0 ? NULL
             : json_loadb(reply->body, reply->size, 0, &error);

    if (!json_is_object(object)) {
        json_decref(object);
        ctl_fault("the answer is not JSON; is the URL right?");
        return NULL;
    }

    return object;
}
