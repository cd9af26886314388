/*
 * sandboxctl ps and cancel: the commands of a conversation, and the end of
 * one of them.
 */

#include "ctl.h"
#include "client.h"
#include "name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define CTL_PS_LIMIT    "20"
#define CTL_PS_MOST     1000
#define CTL_PS_COMMAND  60                       /* bytes of it in a line */


static int ctl_ps_list(ctl_client_t *client, const char *conversation,
    long limit);
static void ctl_ps_line(const json_t *receipt);
static void ctl_ps_time(const json_t *receipt, const char *name);
static void ctl_ps_seconds(const json_t *receipt, const char *name);
static void ctl_ps_text(const char *text);
static int ctl_cancel_call(ctl_client_t *client, const char *conversation,
    const char *id);


int
ctl_ps(int argc, char **argv)
{
    int            rc;
    char          *end;
    long           limit;
    const char    *number;
    ctl_client_t   client;

    static ctl_connection_t  connection;
    static ctl_values_t      most;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { "limit", "N", "at most so many (" CTL_PS_LIMIT ")", 1, &most, 'n' },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "ps [options] CONVERSATION",
        .about = "Lists the commands of a conversation, the newest first: "
                 "those that wait, that run,\nand that have ended.\n",
        .options = options,
        .min = 1,
        .max = 1
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    if (ctl_conversation_check(command.args[0]) == -1) {
        return CTL_USAGE;
    }

    number = ctl_value(&most, CTL_PS_LIMIT);
    limit = strtol(number, &end, 10);

    if (end == number || *end != '\0' || limit < 1 || limit > CTL_PS_MOST) {
        ctl_fault("--limit \"%s\" is not a number from 1 to %d", number,
                  CTL_PS_MOST);
        return CTL_USAGE;
    }

    rc = ctl_client_open(&client, &connection, 0);

    if (rc == 0) {
        rc = ctl_ps_list(&client, command.args[0], limit);
    }

    ctl_client_close(&client);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


static int
ctl_ps_list(ctl_client_t *client, const char *conversation, long limit)
{
    size_t         i;
    char           path[256];
    json_t        *object;
    ctl_reply_t    reply;
    const json_t  *list;

    snprintf(path, sizeof(path), "v1/conversations/%s/commands?limit=%ld",
             conversation, limit);

    object = NULL;

    if (ctl_client_call(client, "GET", path, NULL, CTL_REPLY_WAIT, &reply)
        == 0)
    {
        object = ctl_reply_object(&reply);
    }

    ctl_reply_free(&reply);

    if (object == NULL) {
        return -1;
    }

    list = json_object_get(object, "commands");

    printf("%-24s  %-14s  %-19s  %8s  %8s  %s\n", "ID", "STATE",
           "STARTED (UTC)", "SECONDS", "CPU", "COMMAND");

    for (i = 0; i < json_array_size(list); i++) {
        ctl_ps_line(json_array_get(list, i));
    }

    json_decref(object);

    return 0;
}


/* "queued", "running", "exit 3", or how else it has ended. */

static void
ctl_ps_line(const json_t *receipt)
{
    char         text[64];
    const char  *id, *state, *outcome;

    id = ctl_word(json_string_value(json_object_get(receipt, "commandId")));
    state = ctl_word(json_string_value(json_object_get(receipt, "state")));
    outcome = ctl_word(json_string_value(json_object_get(receipt, "outcome")));

    if (outcome != NULL && strcmp(outcome, "exit") == 0) {
        snprintf(text, sizeof(text), "exit %lld", (long long)
                 json_integer_value(json_object_get(receipt, "exitCode")));

    } else {
        snprintf(text, sizeof(text), "%s",
                 outcome != NULL ? outcome : state != NULL ? state : "-");
    }

    printf("%-24s  %-14s  ", id != NULL ? id : "-", text);

    ctl_ps_time(receipt, "startedAt");
    ctl_ps_seconds(receipt, "durationMs");
    ctl_ps_seconds(receipt, "cpuMs");
    ctl_ps_text(json_string_value(json_object_get(receipt, "command")));
}


/* "2026-11-29T21:03:11.123Z"; what is none might be for the terminal */

static void
ctl_ps_time(const json_t *receipt, const char *name)
{
    const char  *text;

    text = json_string_value(json_object_get(receipt, name));

    if (text == NULL || strspn(text, "0123456789-T:") < 19) {
        printf("%-19s  ", "-");
        return;
    }

    printf("%.10s %.8s  ", text, text + 11);
}


static void
ctl_ps_seconds(const json_t *receipt, const char *name)
{
    const json_t  *value;

    value = json_object_get(receipt, name);

    if (json_is_integer(value)) {
        printf("%8.2f  ", (double) json_integer_value(value) / 1000);

    } else {
        printf("%8s  ", "-");
    }
}


/* A line of it; what it is made of is not for the terminal to obey. */

static void
ctl_ps_text(const char *text)
{
    int     whole;
    char   *line;
    size_t  n;

    if (text == NULL) {
        text = "-";
    }

    n = strlen(text);
    whole = n <= CTL_PS_COMMAND;

    if (!whole) {
        n = CTL_PS_COMMAND;

        /* not in the middle of a character */

        while (((unsigned char) text[n] & 0xc0) == 0x80) {
            n++;
        }

        whole = text[n] == '\0';
    }

    line = strndup(text, n);

    if (line != NULL) {
        ctl_name_blank(line);
        printf("%s%s\n", line, whole ? "" : " ...");
        free(line);
    }
}


int
ctl_cancel(int argc, char **argv)
{
    int            rc;
    ctl_client_t   client;

    static ctl_connection_t  connection;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "cancel [options] CONVERSATION COMMANDID",
        .about = "Ends a command that waits or runs, and every process that "
                 "it has started. One that\nhas ended stays as it is.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    if (ctl_conversation_check(command.args[0]) == -1
        || ctl_command_check(command.args[1]) == -1)
    {
        return CTL_USAGE;
    }

    rc = ctl_client_open(&client, &connection, 0);

    if (rc == 0) {
        rc = ctl_cancel_call(&client, command.args[0], command.args[1]);
    }

    ctl_client_close(&client);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


static int
ctl_cancel_call(ctl_client_t *client, const char *conversation,
    const char *id)
{
    int            rc;
    char           path[512];
    json_t        *receipt;
    const char    *outcome;
    ctl_reply_t    reply;

    snprintf(path, sizeof(path), "v1/conversations/%s/commands/%s",
             conversation, id);

    rc = ctl_client_call(client, "DELETE", path, NULL, CTL_REPLY_WAIT, &reply);

    if (rc == 0) {
        rc = ctl_reply_check(&reply);
    }

    /* what it is called when it was over before */

    if (rc == 0 && reply.size > 0) {
        receipt = json_loadb(reply.body, reply.size, 0, NULL);
        outcome = json_string_value(json_object_get(receipt, "outcome"));

        if (outcome != NULL && strcmp(outcome, "cancelled") != 0) {
            ctl_fault("it had ended before (%s)", outcome);
        }

        json_decref(receipt);
    }

    ctl_reply_free(&reply);

    return rc;
}
