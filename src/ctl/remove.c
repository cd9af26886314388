/*
 * sandboxctl rm and reset: end a conversation, or give it a fresh sandbox.
 */

#include "ctl.h"
#include "client.h"

#include <stdio.h>
#include <string.h>


static int ctl_conversation_call(ctl_command_t *command,
    ctl_connection_t *connection, int argc, char **argv, const char *method,
    const char *tail);


int
ctl_remove(int argc, char **argv)
{
    static ctl_connection_t  connection;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "rm [options] CONVERSATION",
        .about = "Ends the conversation: its container, workspace, "
                 "attachments and files.\n",
        .options = options,
        .min = 1,
        .max = 1
    };

    return ctl_conversation_call(&command, &connection, argc, argv, "DELETE",
                                 "");
}


int
ctl_reset(int argc, char **argv)
{
    static ctl_connection_t  connection;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "reset [options] CONVERSATION",
        .about = "Ends what runs and gives the conversation a fresh sandbox. "
                 "Attachments and files\nstay.\n",
        .options = options,
        .min = 1,
        .max = 1
    };

    return ctl_conversation_call(&command, &connection, argc, argv, "POST",
                                 "/reset");
}


static int
ctl_conversation_call(ctl_command_t *command, ctl_connection_t *connection,
    int argc, char **argv, const char *method, const char *tail)
{
    int            rc;
    char           path[256];
    ctl_reply_t    reply;
    ctl_client_t   client;

    rc = ctl_options_read(command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    if (ctl_conversation_check(command->args[0]) == -1) {
        return CTL_USAGE;
    }

    memset(&reply, 0, sizeof(ctl_reply_t));
    rc = CTL_FAULT;

    snprintf(path, sizeof(path), "v1/conversations/%s%s", command->args[0],
             tail);

    if (ctl_client_open(&client, connection, 0) == 0
        && ctl_client_call(&client, method, path, NULL, CTL_REPLY_WAIT, &reply)
           == 0
        && ctl_reply_check(&reply) == 0)
    {
        rc = CTL_OK;
    }

    ctl_reply_free(&reply);
    ctl_client_close(&client);

    return rc;
}
