/*
 * sandboxctl wait: until a command has ended, with its exit status.  Ctrl-C
 * ends the waiting, not the command.
 */

#include "ctl.h"
#include "client.h"
#include "live.h"

#include <stdio.h>
#include <string.h>


static int ctl_wait_end(ctl_client_t *client, const char *conversation,
    const char *id);


int
ctl_wait(int argc, char **argv)
{
    int            rc;
    char           path[512];
    json_t        *object;
    ctl_reply_t    reply;
    ctl_client_t   client;

    static ctl_connection_t  connection;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "wait [options] CONVERSATION COMMANDID",
        .about = "Waits until the command has ended, and exits as run would "
                 "have: with its status, or\nwith 125 for whatever is not "
                 "its own. logs has what it wrote.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_SERVICE;
    }

    if (ctl_conversation_check(command.args[0]) == -1
        || ctl_command_check(command.args[1]) == -1)
    {
        return CTL_SERVICE;
    }

    snprintf(path, sizeof(path), "v1/conversations/%s/commands/%s",
             command.args[0], command.args[1]);

    memset(&reply, 0, sizeof(ctl_reply_t));
    object = NULL;

    if (ctl_client_open(&client, &connection, 0) == 0
        && ctl_client_call(&client, "GET", path, NULL, CTL_REPLY_WAIT, &reply)
           == 0)
    {
        object = ctl_reply_object(&reply);
    }

    ctl_reply_free(&reply);

    /* what ended long ago has a result, but no events any more */

    if (object == NULL) {
        rc = CTL_SERVICE;

    } else if (json_object_get(object, "outcome") != NULL) {
        rc = ctl_live_status(object);

    } else {
        rc = ctl_wait_end(&client, command.args[0], command.args[1]);
    }

    json_decref(object);
    ctl_client_close(&client);

    return rc;
}


static int
ctl_wait_end(ctl_client_t *client, const char *conversation, const char *id)
{
    int         rc;
    ctl_live_t  live;

    memset(&live, 0, sizeof(ctl_live_t));

    live.client = client;
    live.conversation = conversation;
    live.id = id;
    live.events = 1;
    live.silent = 1;
    live.input = -1;

    rc = ctl_live(&live) == -1 ? CTL_SERVICE : ctl_live_status(live.result);
    ctl_live_free(&live);

    return rc;
}
