/*
 * sandboxctl doctor on the backend "dagger": whether engines answer, whether
 * the owner of their sessions does, and whether they can pull the image.
 */

#include "ctl.h"
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>
#include <jansson.h>

#include "sandbox_sha256.h"


#define CTL_DAGGER_WAIT      10                  /* seconds, of each question */
#define CTL_DAGGER_BODY      (64 * 1024)
#define CTL_DAGGER_URL       512
#define CTL_DAGGER_LAYERS    64
#define CTL_DAGGER_MANIFEST  "application/vnd.oci.image.manifest.v1+json"
#define CTL_DIGEST           (sizeof("sha256:") - 1 + 64)


/* an answer over HTTP */

typedef struct {
    long     status;                             /* 0: none */
    char     why[CURL_ERROR_SIZE + 128];         /* and what to do */
    char     type[128];
    int64_t  length;                             /* -1: not told */
    size_t   have;
    char     body[CTL_DAGGER_BODY + 1];
} ctl_dagger_answer_t;


static int ctl_dagger_engine(const char *engine, ctl_dagger_answer_t *answer);
static int ctl_dagger_owner(ctl_doctor_dagger_t *dagger, const char *state);
static const ctl_engine_t *ctl_dagger_told(const ctl_host_t *host,
    const char *engine);
static int ctl_dagger_image(const ctl_doctor_dagger_t *dagger,
    ctl_dagger_answer_t *answer);
static int ctl_dagger_digest(const ctl_doctor_dagger_t *dagger,
    char digest[CTL_DIGEST + 1]);
static int ctl_dagger_manifest(const char *base, const char *digest,
    ctl_dagger_answer_t *answer);
static int ctl_dagger_blob(const char *base, json_t *blob,
    ctl_dagger_answer_t *answer);
static void ctl_dagger_ask(const char *url, const char *socket,
    const char *body, int head, ctl_dagger_answer_t *answer);
static void ctl_dagger_silent(ctl_dagger_answer_t *answer, CURL *curl,
    CURLcode rc, const char *said);
static size_t ctl_dagger_body(char *data, size_t size, size_t n, void *user);


int
ctl_doctor_dagger_wanted(ctl_doctor_dagger_t *dagger)
{
    const char  *engine;

    engine = getenv(CTL_ENGINE_VARIABLE);

    if (dagger->engines.n == 0 && engine != NULL && engine[0] != '\0') {
        dagger->engines.value[dagger->engines.n++] = engine;
    }

    return dagger->engines.n != 0;
}


int
ctl_doctor_dagger(ctl_doctor_dagger_t *dagger, const char *state)
{
    int       failed;
    unsigned  i;

    static ctl_dagger_answer_t  answer;

    failed = 0;

    for (i = 0; i < dagger->engines.n; i++) {
        if (ctl_dagger_engine(dagger->engines.value[i], &answer) != 0) {
            failed = 1;
            continue;
        }

        failed |= ctl_doctor_route(dagger, dagger->engines.value[i]);
    }

    failed |= ctl_dagger_owner(dagger, state);
    failed |= ctl_dagger_image(dagger, &answer);

    return failed;
}


/* without a session it refuses, in words by which it is known */

static int
ctl_dagger_engine(const char *engine, ctl_dagger_answer_t *answer)
{
    char         url[CTL_DAGGER_URL];
    const char  *socket;

    socket = NULL;

    if (strncmp(engine, "unix:///", 8) == 0) {
        socket = engine + 7;
        snprintf(url, sizeof(url), "http://engine/query");

    } else if (strncmp(engine, "tcp://", 6) == 0
               && strlen(engine) < sizeof(url) - 32)
    {
        snprintf(url, sizeof(url), "http://%s/query", engine + 6);

    } else {
        return ctl_doctor_line(0, "engine: \"%s\" is neither tcp://HOST:PORT "
                               "nor unix:///PATH", engine);
    }

    ctl_dagger_ask(url, socket, "{}", 0, answer);

    if (answer->status == 0) {
        return ctl_doctor_line(0, "engine: %s does not answer: %s", engine,
                               answer->why);
    }

    if (strstr(answer->body, "client metadata") == NULL) {
        return ctl_doctor_line(0, "engine: what answers at %s is no Dagger "
                               "engine but a web server (HTTP status %ld); "
                               "give the address that the engine listens on",
                               engine, answer->status);
    }

    return ctl_doctor_line(1, "engine: %s answers", engine);
}


static int
ctl_dagger_owner(ctl_doctor_dagger_t *dagger, const char *state)
{
    int                  failed;
    unsigned             i;
    const char          *engine;
    const ctl_engine_t  *told;

    static ctl_host_t    host;

    if (geteuid() != 0) {
        return ctl_doctor_line(0, "owner of sessions: only root can read the "
                               "key that it wants; call doctor as root");
    }

    /* the usual place, unless a directory of `make run` has another */

    if (dagger->owner.socket.n == 0 && state == NULL
        && access("run/socket", R_OK) == -1)
    {
        dagger->owner.socket.value[dagger->owner.socket.n++] =
                                                           CTL_OWNER_SOCKET;
    }

    if (ctl_host_call(&dagger->owner, state, SANDBOX_OPERATION_PING, NULL,
                      CTL_DAGGER_WAIT, 0, &host)
        == -1)
    {
        return ctl_doctor_line(0, "owner of sessions: it does not answer, see "
                               "above; start it: systemctl start "
                               "sandbox-dagger, or sandbox-runner --dagger");
    }

    failed = 0;

    for (i = 0; i < dagger->engines.n; i++) {
        engine = dagger->engines.value[i];
        told = ctl_dagger_told(&host, engine);

        if (told == NULL) {
            failed |= ctl_doctor_line(0, "owner of sessions: it was not told "
                                      "of %s; start it with --dagger %s, in "
                                      "the same words as \"sandbox_dagger\"",
                                      engine, engine);

        } else if (told->ready) {
            ctl_doctor_line(1, "owner of sessions: has one on %s", engine);

        } else {
            failed |= ctl_doctor_line(0, "owner of sessions: none on %s: %s; "
                                      "its log says more", engine,
                                      told->detail);
        }
    }

    return failed;
}


static const ctl_engine_t *
ctl_dagger_told(const ctl_host_t *host, const char *engine)
{
    unsigned  i;

    for (i = 0; i < host->nengines; i++) {
        if (strcmp(host->engines[i].name, engine) == 0) {
            return &host->engines[i];
        }
    }

    return NULL;
}


/* as an engine pulls it, from here; the engine's own way may be another */

static int
ctl_dagger_image(const ctl_doctor_dagger_t *dagger,
    ctl_dagger_answer_t *answer)
{
    int          i, n;
    char         base[CTL_DAGGER_URL], digest[CTL_DIGEST + 1];
    json_t      *manifest, *layers;
    const char  *image, *slash;

    image = ctl_value(&dagger->image, CTL_IMAGE);
    slash = strchr(image, '/');

    if (slash == NULL || slash == image || slash[1] == '\0'
        || strlen(image) > CTL_DAGGER_URL - 128)
    {
        return ctl_doctor_line(0, "image: \"%s\" is no HOST:PORT/NAME", image);
    }

    if (ctl_dagger_digest(dagger, digest) != 0) {
        return 1;
    }

    snprintf(base, sizeof(base), "http://%.*s/v2/%s", (int) (slash - image),
             image, slash + 1);

    if (ctl_dagger_manifest(base, digest, answer) != 0) {
        return 1;
    }

    manifest = json_loadb(answer->body, answer->have, 0, NULL);
    layers = json_object_get(manifest, "layers");

    if (json_array_size(layers) == 0
        || json_array_size(layers) > CTL_DAGGER_LAYERS)
    {
        json_decref(manifest);
        return ctl_doctor_line(0, "image: %s at %s/ has no layers; make it "
                               "anew: make registry", digest, base);
    }

    n = (int) json_array_size(layers);

    if (ctl_dagger_blob(base, json_object_get(manifest, "config"), answer)
        != 0)
    {
        n = -1;
    }

    for (i = 0; i < n; i++) {
        if (ctl_dagger_blob(base, json_array_get(layers, (size_t) i), answer)
            != 0)
        {
            n = -1;
        }
    }

    json_decref(manifest);

    return n == -1 ? 1 : ctl_doctor_line(1, "image: %s@%s", image, digest);
}


/* a digest, or a file that holds one */

static int
ctl_dagger_digest(const ctl_doctor_dagger_t *dagger,
    char digest[CTL_DIGEST + 1])
{
    FILE        *file;
    size_t       n;
    const char  *name;

    name = ctl_value(&dagger->digest, CTL_IMAGE_DIGEST);

    if (strncmp(name, "sha256:", 7) == 0 && strlen(name) == CTL_DIGEST) {
        strcpy(digest, name);

    } else {
        file = fopen(name, "re");

        if (file == NULL) {
            return ctl_doctor_line(0, "image: can't read %s (%s); make it: "
                                   "make registry (as root)", name,
                                   strerror(errno));
        }

        n = fread(digest, 1, CTL_DIGEST, file);
        digest[n] = '\0';
        fclose(file);
    }

    if (strlen(digest) != CTL_DIGEST || strncmp(digest, "sha256:", 7) != 0
        || strspn(digest + 7, "0123456789abcdef") != 64)
    {
        return ctl_doctor_line(0, "image: %s holds no digest; make it anew: "
                               "make registry", name);
    }

    return 0;
}


static int
ctl_dagger_manifest(const char *base, const char *digest,
    ctl_dagger_answer_t *answer)
{
    int      i;
    char     url[2 * CTL_DAGGER_URL], hex[65];
    uint8_t  sum[32];

    snprintf(url, sizeof(url), "%s/manifests/%s", base, digest);

    ctl_dagger_ask(url, NULL, NULL, 0, answer);

    if (answer->status == 0) {
        return ctl_doctor_line(0, "image: nothing answers at %s: %s; nginx "
                               "serves it, see conf.d/sandbox-dagger.conf",
                               url, answer->why);
    }

    if (answer->status != 200) {
        return ctl_doctor_line(0, "image: %s: not there (HTTP status %ld); "
                               "nginx serves it, see "
                               "conf.d/sandbox-dagger.conf", url,
                               answer->status);
    }

    sandbox_sha256(answer->body, answer->have, sum);

    for (i = 0; i < 32; i++) {
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    }

    if (strcmp(hex, digest + 7) != 0) {
        return ctl_doctor_line(0, "image: what is at %s has another digest; "
                               "make it anew: make registry", url);
    }

    if (strcmp(answer->type, CTL_DAGGER_MANIFEST) != 0) {
        return ctl_doctor_line(0, "image: %s has the type \"%s\"; it must be "
                               "%s, see conf.d/sandbox-dagger.conf", url,
                               answer->type, CTL_DAGGER_MANIFEST);
    }

    return 0;
}


static int
ctl_dagger_blob(const char *base, json_t *blob, ctl_dagger_answer_t *answer)
{
    char         url[2 * CTL_DAGGER_URL];
    const char  *digest;

    digest = json_string_value(json_object_get(blob, "digest"));

    snprintf(url, sizeof(url), "%s/blobs/%.*s", base, (int) CTL_DIGEST,
             digest ? digest : "");

    ctl_dagger_ask(url, NULL, NULL, 1, answer);

    if (answer->status == 200
        && answer->length == json_integer_value(json_object_get(blob, "size")))
    {
        return 0;
    }

    if (answer->status == 0) {
        return ctl_doctor_line(0, "image: nothing answers at %s: %s", url,
                               answer->why);
    }

    return ctl_doctor_line(0, "image: %s is not there as a whole (HTTP status "
                           "%ld); make it anew: make registry", url,
                           answer->status);
}


static void
ctl_dagger_ask(const char *url, const char *socket, const char *body,
    int head, ctl_dagger_answer_t *answer)
{
    CURL        *curl;
    CURLcode     rc;
    char         said[CURL_ERROR_SIZE];
    const char  *type;
    curl_off_t   length;

    struct curl_slist  *headers;

    memset(answer, 0, sizeof(ctl_dagger_answer_t));
    answer->length = -1;
    said[0] = '\0';

    curl = curl_easy_init();
    headers = curl_slist_append(NULL, "Content-Type: application/json");

    if (curl == NULL || headers == NULL) {
        strcpy(answer->why, "no memory");
        curl_slist_free_all(headers);
        curl_easy_cleanup(curl);
        return;
    }

    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long) CTL_DAGGER_WAIT);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, said);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ctl_dagger_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);

    if (socket != NULL) {
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
    }

    if (body != NULL) {
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }

    if (head) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    }

    rc = curl_easy_perform(curl);

    /* an answer that is longer than any that is asked for is one, too */

    if (rc == CURLE_OK || rc == CURLE_WRITE_ERROR) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);

        if (curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type) == CURLE_OK
            && type != NULL)
        {
            snprintf(answer->type, sizeof(answer->type), "%s", type);
        }

        if (curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T,
                              &length)
            == CURLE_OK)
        {
            answer->length = length;
        }

    } else {
        ctl_dagger_silent(answer, curl, rc, said);
    }

    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
}


/* what failed, and what to do */

static void
ctl_dagger_silent(ctl_dagger_answer_t *answer, CURL *curl, CURLcode rc,
    const char *said)
{
    long         error;
    const char  *why;

    error = 0;
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &error);

    switch (rc) {

    case CURLE_COULDNT_RESOLVE_HOST:
        why = "this host knows no such name; give an address, or a name that "
              "it can look up";
        break;

    case CURLE_OPERATION_TIMEDOUT:
        why = "timed out; is there a route, does a firewall drop what is "
              "sent, or does it hang?";
        break;

    case CURLE_COULDNT_CONNECT:
        why = error == ECONNREFUSED
              ? "connection refused; nobody listens there: start it, or give "
                "the address that it listens on"
              : error == ENOENT ? "there is no such socket; start it, or give "
                                  "the path that it listens on"
              : error == EACCES || error == EPERM
              ? "its socket may not be connected to; call doctor as root"
              : error == EHOSTUNREACH || error == ENETUNREACH
                || error == ETIMEDOUT
              ? "it can't be reached; is there a route, is that host up?"
              : NULL;
        break;

    case CURLE_GOT_NOTHING:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        why = "it closes the connection, or speaks no HTTP; if another "
              "server has that port, give the address of the right one";
        break;

    default:
        why = NULL;
    }

    snprintf(answer->why, sizeof(answer->why), "%s",
             why ? why : said[0] != '\0' ? said : curl_easy_strerror(rc));
}


/* what is longer is no answer to any of our questions */

static size_t
ctl_dagger_body(char *data, size_t size, size_t n, void *user)
{
    ctl_dagger_answer_t  *answer;

    answer = user;
    n *= size;

    if (n > CTL_DAGGER_BODY - answer->have) {
        return 0;
    }

    memcpy(answer->body + answer->have, data, n);
    answer->have += n;
    answer->body[answer->have] = '\0';

    return n;
}
