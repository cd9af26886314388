/*
 * sandboxctl save and link: a file of the container is kept in the Files
 * panel; one of the panel gets a URL that needs no token.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "client.h"
#include "measure.h"
#include "name.h"
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define CTL_SAVE_WAIT  600                       /* seconds */
#define CTL_LINK_MOST  600                       /* seconds */


typedef struct {
    ctl_connection_t   connection;
    ctl_values_t       name;
    ctl_values_t       overwrite;

    ctl_client_t       client;
    const char        *conversation;
} ctl_save_t;


static int ctl_save_file(ctl_save_t *save, const char *path);
static json_t *ctl_save_request(const ctl_save_t *save, const char *path);
static int ctl_save_report(const char *path, const json_t *file, int fresh);
static int ctl_link_call(ctl_client_t *client, const char *conversation,
    const ctl_place_t *place, long seconds);
static int ctl_link_print(const ctl_client_t *client, const char *url);


int
ctl_save(int argc, char **argv)
{
    int       rc;
    unsigned  i;

    static ctl_save_t  save;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&save.connection),
        { "name", "NAME", "what it is called there (its name)", 1, &save.name,
          0 },
        { "overwrite", NULL, "replace a file that is there", 1,
          &save.overwrite, 'f' },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "save [options] CONVERSATION PATH...",
        .about = "Saves files of the container to the Files panel, where "
                 "they stay when the container\ngoes. PATH is as a command "
                 "would have it: below /home/sandbox, or from / on.\n",
        .options = options,
        .min = 2,
        .max = CTL_MAX_ARGS
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    save.conversation = command.args[0];

    if (ctl_conversation_check(save.conversation) == -1) {
        return CTL_USAGE;
    }

    if (save.name.n > 0 && command.nargs > 2) {
        ctl_fault("--name is for one file, not for several");
        return CTL_USAGE;
    }

    rc = ctl_client_open(&save.client, &save.connection, 0);

    for (i = 1; rc != -1 && i < command.nargs; i++) {
        if (ctl_save_file(&save, command.args[i]) == -1) {
            rc = 1;
        }
    }

    ctl_client_close(&save.client);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


static int
ctl_save_file(ctl_save_t *save, const char *path)
{
    int           rc;
    char         *body, *label, where[256];
    json_t       *request, *file;
    ctl_reply_t   reply;

    static const ctl_hint_t  hints[] = {
        { "file_exists", "the Files panel has a file of that name: "
          "--overwrite replaces it, --name gives this one another" },
        { NULL, NULL }
    };

    if (strncmp(path, "fs:", 3) == 0) {
        path += 3;
    }

    request = ctl_save_request(save, path);

    if (request == NULL) {
        return -1;
    }

    body = json_dumps(request, JSON_COMPACT);
    label = ctl_name_shell(path, strlen(path));
    json_decref(request);

    snprintf(where, sizeof(where), "v1/conversations/%s/files",
             save->conversation);

    memset(&reply, 0, sizeof(ctl_reply_t));
    rc = body == NULL || label == NULL ? ctl_fault("no memory") : 0;

    if (rc == 0) {
        rc = ctl_client_call(&save->client, "POST", where, body,
                             CTL_SAVE_WAIT, &reply);
    }

    if (rc == 0) {
        rc = ctl_reply_check_of(&reply, label, hints);
    }

    file = NULL;

    if (rc == 0) {
        file = ctl_reply_object(&reply);
        rc = file == NULL ? -1 : ctl_save_report(label, file,
                                                 reply.status == 201);
    }

    json_decref(file);
    ctl_reply_free(&reply);
    free(label);
    free(body);

    return rc;
}


static json_t *
ctl_save_request(const ctl_save_t *save, const char *path)
{
    json_t      *request;
    const char  *name;

    request = json_object();
    name = ctl_value(&save->name, NULL);

    if (json_object_set_new(request, "path", json_string(path)) == -1
        || (name != NULL
            && json_object_set_new(request, "name", json_string(name)) == -1))
    {
        ctl_fault("only a name in UTF-8 can be saved: give the file another "
                  "one first");
        json_decref(request);
        return NULL;
    }

    if (save->overwrite.n > 0
        && json_object_set_new(request, "overwrite", json_true()) == -1)
    {
        ctl_fault("no memory");
        json_decref(request);
        return NULL;
    }

    return request;
}


/* "fs:out/chart.png -> files:chart.png (31.0 KiB, new)" */

static int
ctl_save_report(const char *path, const json_t *file, int fresh)
{
    char         *text;
    char          size[CTL_MEASURE_TEXT];
    const char   *name;
    ctl_place_t   place;

    name = json_string_value(json_object_get(file, "name"));

    memset(&place, 0, sizeof(ctl_place_t));
    place.kind = CTL_PLACE_FILES;
    place.name = (char *) (name != NULL ? name : "");

    text = ctl_place_text(&place);

    if (text == NULL) {
        return -1;
    }

    printf("%s -> %s (%s, %s)\n", path, text,
           ctl_size_text(size, (uint64_t) json_integer_value(
                                   json_object_get(file, "size"))),
           fresh ? "new" : "replaced");
    free(text);

    return fflush(stdout) == 0 ? 0 : ctl_fault("can't write to stdout");
}


int
ctl_link(int argc, char **argv)
{
    int            rc;
    long           seconds;
    ctl_place_t    place;
    ctl_client_t   client;

    static ctl_connection_t  connection;
    static ctl_values_t      life;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { "ttl", "TIME", "how long it is good, at most 10m (10m)", 1, &life,
          0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "link [options] CONVERSATION NAME",
        .about = "Prints a URL by which anybody can download that file of "
                 "the Files panel, without a\ntoken, until its time is over "
                 "or the file changes.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    seconds = ctl_duration(ctl_value(&life, "10m"), CTL_LINK_MOST);

    if (seconds < 1) {
        ctl_fault("--ttl \"%s\" is not a time such as 30s or 5m, at most 10m",
                  life.value[0]);
        return CTL_USAGE;
    }

    if (ctl_conversation_check(command.args[0]) == -1
        || ctl_place_read(&place, command.args[1], CTL_WANT_ANY) == -1)
    {
        return CTL_USAGE;
    }

    if (place.kind == CTL_PLACE_NONE) {
        place.kind = CTL_PLACE_FILES;
    }

    if (place.kind != CTL_PLACE_FILES) {
        rc = ctl_fault("only a file of the Files panel has a link; save it "
                       "there, or put it --to files");
    } else {
        rc = ctl_place_check(&place);
    }

    if (rc == 0) {
        rc = ctl_client_open(&client, &connection, 0);

        if (rc == 0) {
            rc = ctl_link_call(&client, command.args[0], &place, seconds);
        }

        ctl_client_close(&client);

    } else {
        rc = 1;
    }

    ctl_place_free(&place);

    return rc == 0 ? CTL_OK : rc == 1 ? CTL_USAGE : CTL_FAULT;
}


static int
ctl_link_call(ctl_client_t *client, const char *conversation,
    const ctl_place_t *place, long seconds)
{
    int           rc;
    char         *path, *name, *text;
    json_t       *object;
    const char   *url;
    ctl_reply_t   reply;

    name = ctl_encode(place->name, 0);

    rc = name == NULL ? -1
         : asprintf(&path, "v1/conversations/%s/files/%s/link?seconds=%ld",
                    conversation, name, seconds);
    free(name);

    if (rc == -1) {
        return ctl_fault("no memory");
    }

    memset(&reply, 0, sizeof(ctl_reply_t));
    text = ctl_place_text(place);

    if (text == NULL) {
        rc = -1;

    } else {
        rc = ctl_client_call(client, "POST", path, NULL, CTL_REPLY_WAIT,
                             &reply);
    }

    if (rc == 0) {
        rc = ctl_reply_check_of(&reply, text, NULL);
    }

    if (rc == 0) {
        object = ctl_reply_object(&reply);
        url = json_string_value(json_object_get(object, "url"));

        rc = url != NULL ? ctl_link_print(client, url)
                         : ctl_fault("the gateway's answer has no link");

        json_decref(object);
    }

    ctl_reply_free(&reply);
    free(text);
    free(path);

    return rc;
}


/* The answer is a path of the same server. */

static int
ctl_link_print(const ctl_client_t *client, const char *url)
{
    const char  *slash, *p;

    for (p = url; *p > ' ' && *p < 0x7f; p++) { /* void */ }

    if (*p != '\0') {
        return ctl_fault("the gateway's link is no URL");
    }

    slash = strstr(client->url, "://");
    slash = slash != NULL ? strchr(slash + 3, '/') : NULL;

    if (url[0] == '/') {
        printf("%.*s%s\n", (int) (slash != NULL
                                  ? (size_t) (slash - client->url)
                                  : strlen(client->url)), client->url, url);
    } else {
        printf("%s\n", url);
    }

    return fflush(stdout) == 0 ? 0 : ctl_fault("can't write to stdout");
}
