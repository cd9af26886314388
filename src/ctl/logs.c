/*
 * sandboxctl logs: what a command has written, and with -f what it goes on to
 * write.  Ctrl-C ends the looking, not the command.
 */

#include "ctl.h"
#include "client.h"
#include "live.h"

#include <stdio.h>
#include <string.h>


static int ctl_logs_show(const ctl_connection_t *connection,
    const char *conversation, const char *id, int follow, int status);
static int ctl_logs_last(ctl_client_t *client, const char *conversation,
    const char *id, uint64_t *last);


int
ctl_logs(int argc, char **argv)
{
    int  rc;

    static ctl_connection_t  connection;
    static ctl_values_t      follow, status;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { "follow", NULL, "go on until the command ends", 1, &follow, 'f' },
        { "status", NULL, "go on, and exit as run would have", 1, &status,
          's' },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "logs [options] CONVERSATION COMMANDID",
        .about = "Prints what the command has written so far, to stdout and "
                 "stderr as it did. The\nlast MiB of each of the last 32 "
                 "commands is kept. With --status it exits as run would "
                 "have, and with 125 for\nwhatever is not the command's "
                 "own.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc == CTL_READ_HELP) {
        return CTL_OK;
    }

    if (rc != CTL_READ_OK || ctl_conversation_check(command.args[0]) == -1
        || ctl_command_check(command.args[1]) == -1)
    {
        return status.n > 0 ? CTL_SERVICE : CTL_USAGE;
    }

    return ctl_logs_show(&connection, command.args[0], command.args[1],
                         follow.n > 0 || status.n > 0, status.n > 0);
}


static int
ctl_logs_show(const ctl_connection_t *connection, const char *conversation,
    const char *id, int follow, int status)
{
    int            rc;
    uint64_t       last;
    ctl_live_t     live;
    ctl_client_t   client;

    memset(&live, 0, sizeof(ctl_live_t));
    rc = ctl_client_open(&client, connection, 0);
    last = 0;

    if (rc == 0 && !follow) {
        rc = ctl_logs_last(&client, conversation, id, &last);
    }

    /* 1: it has not begun */

    if (rc == 0) {
        live.client = &client;
        live.conversation = conversation;
        live.id = id;
        live.events = 1;
        live.input = -1;
        live.last = last;

        rc = ctl_live(&live);
    }

    if (live.closed) {
        rc = CTL_CLOSED;

    } else if (rc == -1) {
        rc = status ? CTL_SERVICE : CTL_FAULT;

    } else {
        rc = status ? ctl_live_status(live.result) : CTL_OK;

        if (rc == CTL_OK && status && live.left_out) {
            rc = CTL_SERVICE;
        }
    }

    ctl_live_free(&live);
    ctl_client_close(&client);

    return rc;
}


/* The number of its last event so far; 0: it has ended.  1: it has none. */

static int
ctl_logs_last(ctl_client_t *client, const char *conversation, const char *id,
    uint64_t *last)
{
    int            rc;
    char           path[512];
    json_t        *object, *seq;
    const char    *state;
    ctl_reply_t    reply;

    snprintf(path, sizeof(path), "v1/conversations/%s/commands/%s",
             conversation, id);

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

    state = json_string_value(json_object_get(object, "state"));
    seq = json_object_get(object, "seq");
    rc = 0;

    if (state != NULL && strcmp(state, "ended") != 0) {
        *last = (uint64_t) json_integer_value(seq);
        rc = *last == 0;
    }

    json_decref(object);

    return rc;
}
