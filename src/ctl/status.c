/*
 * sandboxctl status: the gateway's health and limits, or what a conversation
 * is doing, for people.  Prints whatever the gateway says, a line a value, so
 * it need not know the names.
 */

#include "ctl.h"
#include "client.h"
#include "measure.h"
#include "name.h"
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define CTL_MAX_DEPTH    8
#define CTL_STATUS_WAIT  5                       /* seconds */


static int ctl_status_gateway(ctl_client_t *client);
static void ctl_status_host(const ctl_host_options_t *options,
    const char *state);
static int ctl_status_object(ctl_client_t *client, const char *path);
static json_t *ctl_status_get(ctl_client_t *client, const char *path);
static void ctl_print(const json_t *value, const char *name, int depth);
static void ctl_print_list(const json_t *list, const char *name, int depth);
static void ctl_print_text(const char *text);
static void ctl_print_number(const char *name, json_int_t n);
static int ctl_ends(const char *name, const char *tail);


int
ctl_status(int argc, char **argv)
{
    int            rc;
    char           path[256];
    ctl_client_t   client;

    static ctl_connection_t    connection;
    static ctl_host_options_t  host;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        CTL_HOST(&host),
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "status [options] [CONVERSATION]",
        .about = "Health and limits of the gateway, and to root the numbers of "
                 "this host; or the\nstate of a conversation. Exits with 1 "
                 "where the gateway is not ready.\n",
        .options = options,
        .min = 0,
        .max = 1
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    if (command.nargs == 1 && ctl_conversation_check(command.args[0]) == -1) {
        return CTL_USAGE;
    }

    rc = ctl_client_open(&client, &connection, 0);

    if (rc == 0) {
        if (command.nargs == 0) {
            rc = ctl_status_gateway(&client);
            ctl_status_host(&host, ctl_value(&connection.state, NULL));

        } else {
            snprintf(path, sizeof(path), "v1/conversations/%s",
                     command.args[0]);
            rc = ctl_status_object(&client, path);
        }
    }

    ctl_client_close(&client);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


static int
ctl_status_gateway(ctl_client_t *client)
{
    int          ready;
    json_t      *health, *limits;
    const char  *status;

    health = ctl_status_get(client, "health");

    if (health == NULL) {
        return -1;
    }

    status = json_string_value(json_object_get(health, "status"));
    ready = status != NULL && strcmp(status, "ready") == 0;

    printf("%-28s %s\n", "gateway", client->url);

    /* the limits say the same and more, but not to everybody */

    limits = ctl_status_get(client, "v1/limits");
    ctl_print(limits != NULL ? limits : health, "", 0);

    if (limits == NULL) {
        ready = 0;
    }

    json_decref(health);
    json_decref(limits);

    return ready ? 0 : -1;
}


/* for those who may ask its runner; others are not told that they may not */

static void
ctl_status_host(const ctl_host_options_t *options, const char *state)
{
    ctl_host_t  host;

    if (ctl_host_call(options, state, SANDBOX_OPERATION_PING, NULL,
                      CTL_STATUS_WAIT,
                      options->socket.n == 0 && options->key.n == 0, &host)
        == 0)
    {
        ctl_host_print(&host);
    }
}


static int
ctl_status_object(ctl_client_t *client, const char *path)
{
    json_t  *object;

    object = ctl_status_get(client, path);

    if (object == NULL) {
        return -1;
    }

    ctl_print(object, "", 0);
    json_decref(object);

    return 0;
}


/* NULL after a sentence. */

static json_t *
ctl_status_get(ctl_client_t *client, const char *path)
{
    json_t        *object;
    ctl_reply_t    reply;

    object = NULL;

    if (ctl_client_call(client, "GET", path, NULL, CTL_REPLY_WAIT, &reply)
        == 0)
    {
        object = ctl_reply_object(&reply);
    }

    ctl_reply_free(&reply);

    return object;
}


/* "limits.memoryBytes" and its value, a line each. */

static void
ctl_print(const json_t *value, const char *name, int depth)
{
    char         path[256];
    json_t      *item;
    const char  *key;

    if (depth > CTL_MAX_DEPTH) {
        return;
    }

    switch (json_typeof(value)) {

    case JSON_OBJECT:
        json_object_foreach((json_t *) value, key, item) {
            snprintf(path, sizeof(path), "%s%s%s", name,
                     name[0] == '\0' ? "" : ".", key);
            ctl_name_blank(path);
            ctl_print(item, path, depth + 1);
        }

        return;

    case JSON_ARRAY:
        ctl_print_list(value, name, depth);
        return;

    case JSON_STRING:
        printf("%-28s ", name);
        ctl_print_text(json_string_value(value));
        putchar('\n');
        return;

    case JSON_INTEGER:
        ctl_print_number(name, json_integer_value(value));
        return;

    case JSON_REAL:
        printf("%-28s %.3f\n", name, json_real_value(value));
        return;

    case JSON_TRUE:
        printf("%-28s yes\n", name);
        return;

    case JSON_FALSE:
        printf("%-28s no\n", name);
        return;

    default:
        printf("%-28s -\n", name);
    }
}


/* Words in one line, anything else a line each. */

static void
ctl_print_list(const json_t *list, const char *name, int depth)
{
    size_t  i, words;

    words = 0;

    for (i = 0; i < json_array_size(list); i++) {
        words += json_is_string(json_array_get(list, i));
    }

    if (words < json_array_size(list)) {
        for (i = 0; i < json_array_size(list); i++) {
            ctl_print(json_array_get(list, i), name, depth + 1);
        }

        return;
    }

    printf("%-28s ", name);

    for (i = 0; i < words; i++) {
        printf("%s", i == 0 ? "" : ", ");
        ctl_print_text(json_string_value(json_array_get(list, i)));
    }

    printf("%s\n", words == 0 ? "-" : "");
}


/* It is not for the terminal to obey. */

static void
ctl_print_text(const char *text)
{
    char  *copy;

    copy = strdup(text);

    if (copy != NULL) {
        ctl_name_blank(copy);
        fputs(copy, stdout);
        free(copy);
    }
}


static void
ctl_print_number(const char *name, json_int_t n)
{
    char  size[CTL_MEASURE_TEXT];

    printf("%-28s ", name);

    if ((ctl_ends(name, "Bytes") || ctl_ends(name, ".bytes")) && n >= 0) {
        printf("%s\n", ctl_size_text(size, (uint64_t) n));

    } else if (ctl_ends(name, "Seconds")) {
        printf("%lld s\n", (long long) n);

    } else if (ctl_ends(name, "Ms")) {
        printf("%lld ms\n", (long long) n);

    } else {
        printf("%lld\n", (long long) n);
    }
}


static int
ctl_ends(const char *name, const char *tail)
{
    size_t  n, size;

    n = strlen(name);
    size = strlen(tail);

    return n >= size && strcmp(name + n - size, tail) == 0;
}
