/*
 * One engine: attach, ask it something simple, ready; whatever is lost begins
 * again with a new session, since an engine takes none up twice.  The one
 * before is ended as soon as the engine can be reached, which ends what ran
 * in it: two at a time would share files.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dagger.h"
#include "log.h"
#include "sandbox_utf8.h"


#define DAGGER_QUERY_WAIT     15000      /* ms: its first one asks us back */
#define DAGGER_SHUTDOWN_WAIT  10000      /* it stops services meanwhile */
#define DAGGER_RETRY_FIRST    100
#define DAGGER_RETRY_MOST     5000
#define DAGGER_WORDS          64         /* of what is no engine */


static void dagger_engine_again(void *data);
static void dagger_engine_begin(dagger_engine_t *engine);
static void dagger_engine_left(dagger_engine_t *engine, int status,
    const char *body);
static void dagger_engine_answered(dagger_engine_t *engine, int status,
    const char *body);
static void dagger_engine_close(dagger_engine_t *engine);
static void dagger_engine_ended(dagger_engine_t *engine, int status,
    const char *body);


void
dagger_engine_start(dagger_engine_t *engine)
{
    engine->timer.handler = dagger_engine_again;
    engine->timer.data = engine;
    strcpy(engine->detail, "it was not asked yet");

    runner_log(RUNNER_LOG_NOTICE, "engine %s: it is asked for a session",
               engine->name);

    dagger_engine_begin(engine);
}


static void
dagger_engine_again(void *data)
{
    dagger_engine_begin(data);
}


static void
dagger_engine_begin(dagger_engine_t *engine)
{
    dagger_t  *dagger;

    dagger = engine->dagger;

    if (engine->attached) {
        engine->state = DAGGER_LEAVING;
        engine->http = dagger_http_post(engine, "/shutdown", "",
                                        DAGGER_SHUTDOWN_WAIT,
                                        dagger_engine_left);

        if (engine->http == NULL) {
            dagger_engine_failed(engine, errno);
        }

        return;
    }

    engine->state = DAGGER_ATTACHING;

    if (dagger_session_make(&engine->session, dagger->generation) == -1) {
        dagger_engine_lost(engine, "there is no randomness");
        return;
    }

    dagger->generation = engine->session.generation;

    engine->attach = dagger_attach_start(engine);

    if (engine->attach == NULL) {
        dagger_engine_failed(engine, errno);
    }
}


/* whatever it says: it has heard of it, or does not know the session */

static void
dagger_engine_left(dagger_engine_t *engine, int status, const char *body)
{
    if (status == 0) {
        dagger_engine_lost(engine, body);
        return;
    }

    engine->attached = 0;
    dagger_engine_begin(engine);
}


void
dagger_engine_attached(dagger_engine_t *engine)
{
    engine->attached = 1;
    engine->state = DAGGER_ASKING;
    engine->http = dagger_http_post(engine, "/query",
                                    "{\"query\":\"{version}\"}",
                                    DAGGER_QUERY_WAIT,
                                    dagger_engine_answered);

    if (engine->http == NULL) {
        dagger_engine_failed(engine, errno);
    }
}


static void
dagger_engine_answered(dagger_engine_t *engine, int status, const char *body)
{
    size_t  n;
    char    why[DAGGER_MAX_DETAIL];

    if (status == 0) {
        dagger_engine_lost(engine, body);
        return;
    }

    if (dagger_engine_page(body)) {
        snprintf(why, sizeof(why), "HTTP/1.1 %d\r\n\r\n%.16s", status, body);
        dagger_engine_foreign(engine, why);
        return;
    }

    /* an engine's errors come with 200, too */

    if (status != 200 || strstr(body, "\"version\":") == NULL
        || strstr(body, "\"errors\"") != NULL)
    {
        n = snprintf(why, sizeof(why), "it answers %d, %.200s", status, body);
        sandbox_utf8_blank((uint8_t *) why, n < sizeof(why) ? n
                                                            : sizeof(why) - 1);
        dagger_engine_lost(engine, why);
        return;
    }

    engine->state = DAGGER_READY;
    engine->failures = 0;
    engine->detail[0] = '\0';

    runner_log(RUNNER_LOG_NOTICE, "engine %s is ready, session %s",
               engine->name, engine->session.session);
}


void
dagger_engine_lost(dagger_engine_t *engine, const char *why)
{
    char      detail[DAGGER_MAX_DETAIL];
    unsigned  ms;

    if (engine->dagger->ending) {

        /* the engine closes what is held, once it has ended the session */

        if (engine->attach != NULL) {
            dagger_attach_free(engine->attach);
            engine->attach = NULL;
        }

        return;
    }

    snprintf(detail, sizeof(detail), "%s", why);
    sandbox_utf8_blank((uint8_t *) detail, strlen(detail));

    /* each change once, when it is one that stays, and not each attempt */

    if (engine->state == DAGGER_READY || engine->failures == 0
        || (strcmp(detail, engine->detail) == 0
            && strcmp(detail, engine->told) != 0))
    {
        strcpy(engine->told, detail);

        runner_log(RUNNER_LOG_ERROR, "engine %s is not ready: %s.  "
                   "Conversations there start again when it is back.  "
                   "Remedy: is the engine running, and does it listen there?",
                   engine->name, detail);
    }

    strcpy(engine->detail, detail);

    dagger_engine_close(engine);

    engine->state = DAGGER_OFF;

    ms = DAGGER_RETRY_FIRST << (engine->failures < 6 ? engine->failures : 6);
    engine->failures++;

    /* without memory for a timer the others' will try: see dagger_tick() */

    (void) runner_timer_start(&engine->dagger->loop, &engine->timer,
                              ms < DAGGER_RETRY_MOST ? ms
                                                     : DAGGER_RETRY_MOST);
}


void
dagger_engine_failed(dagger_engine_t *engine, int error)
{
    char  why[DAGGER_MAX_DETAIL];

    snprintf(why, sizeof(why), "%s (%s)",
             error == ECONNREFUSED ? "nobody listens there"
             : error == ENOENT ? "there is no such socket"
             : error == EACCES || error == EPERM ? "it may not be connected to"
             : error == ETIMEDOUT || error == EHOSTUNREACH
               || error == ENETUNREACH ? "it can't be reached"
             : "the connection to it failed", strerror(error));

    dagger_engine_lost(engine, why);
}


/*
 * A status line, or the first words of whoever speaks no HTTP; its page would
 * go to nginx and into logs.
 */

void
dagger_engine_foreign(dagger_engine_t *engine, const char *answer)
{
    int          length;
    char         why[DAGGER_MAX_DETAIL];
    const char  *status;

    status = strchr(answer, ' ');

    if (strncmp(answer, "HTTP/", 5) == 0 && status != NULL) {
        length = (int) strspn(status + 1, "0123456789");

        snprintf(why, sizeof(why), "it answers, but is no Dagger engine: a "
                 "web server (HTTP status %.*s)", length > 3 ? 3 : length,
                 status + 1);

    } else {
        length = (int) strcspn(answer, "\r\n");

        snprintf(why, sizeof(why), "it answers, but is no Dagger engine: "
                 "\"%.*s\"", length > DAGGER_WORDS ? DAGGER_WORDS : length,
                 answer);
    }

    dagger_engine_lost(engine, why);
}


int
dagger_engine_page(const char *body)
{
    return body[strspn(body, " \t\r\n")] == '<';
}


static void
dagger_engine_close(dagger_engine_t *engine)
{
    runner_timer_stop(&engine->dagger->loop, &engine->timer);

    if (engine->attach != NULL) {
        dagger_attach_free(engine->attach);
        engine->attach = NULL;
    }

    if (engine->http != NULL) {
        dagger_http_free(engine->http);
        engine->http = NULL;
    }
}


int
dagger_engine_end(dagger_engine_t *engine)
{
    int  attached;

    attached = engine->attached;

    if (engine->http != NULL) {
        dagger_http_free(engine->http);
        engine->http = NULL;
    }

    runner_timer_stop(&engine->dagger->loop, &engine->timer);

    if (attached && engine->state != DAGGER_OFF) {

        /* the engine itself closes what is held, then */

        engine->state = DAGGER_LEAVING;
        engine->http = dagger_http_post(engine, "/shutdown", "",
                                        DAGGER_SHUTDOWN_WAIT,
                                        dagger_engine_ended);

        if (engine->http != NULL) {
            return 1;
        }
    }

    dagger_engine_close(engine);
    engine->state = DAGGER_OFF;

    return 0;
}


static void
dagger_engine_ended(dagger_engine_t *engine, int status, const char *body)
{
    if (status == 0) {
        runner_log(RUNNER_LOG_WARN, "engine %s: the session did not end: %s; "
                   "the engine ends it itself after some seconds",
                   engine->name, body);
    }

    engine->attached = 0;
    engine->state = DAGGER_OFF;
    dagger_engine_close(engine);
}
