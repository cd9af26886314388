/*
 * sandboxctl rm and reset: end a conversation, remove a file of it, or give
 * it a fresh sandbox.
 *
 * A file always says where it is, as in files:NAME: so a variable of a script
 * that is empty can't turn the removal of a file into that of all.
 */

#include "ctl.h"
#include "client.h"
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


typedef struct {
    ctl_connection_t   connection;
    ctl_values_t       force;
    ctl_values_t       recursive;

    ctl_client_t       client;
    const char        *conversation;
} ctl_remove_t;


static int ctl_remove_files(ctl_remove_t *rm, const ctl_command_t *command);
static int ctl_remove_check(const ctl_command_t *command);
static int ctl_remove_file(ctl_remove_t *rm, const char *word);
static int ctl_remove_all(ctl_remove_t *rm);
static int ctl_conversation_known(ctl_client_t *client,
    const char *conversation, int files);
static int ctl_conversation_has(ctl_client_t *client,
    const char *conversation, const char *kind);
static int ctl_conversation_call(ctl_client_t *client, const char *method,
    const char *conversation, const char *tail);


int
ctl_remove(int argc, char **argv)
{
    int  rc;

    static ctl_remove_t  rm;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&rm.connection),
        { "force", NULL, "what is not there is no error", 1, &rm.force, 'f' },
        { "recursive", NULL, "a folder of the container, with all in it", 1,
          &rm.recursive, 'r' },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "rm [options] CONVERSATION [PLACE:NAME...]",
        .about = "Without a file: ends the conversation, with its container, "
                 "workspace, attachments\nand files. With files, removes "
                 "those: files:NAME of the Files panel,\nattachments:NAME, or "
                 "fs:PATH of the container.\n",
        .options = options,
        .min = 1,
        .max = CTL_MAX_ARGS
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    rm.conversation = command.args[0];

    if (ctl_conversation_check(rm.conversation) == -1
        || ctl_remove_check(&command) == -1)
    {
        return CTL_USAGE;
    }

    rc = ctl_client_open(&rm.client, &rm.connection, 0);

    if (rc == 0) {
        rc = command.nargs == 1 ? ctl_remove_all(&rm)
                                : ctl_remove_files(&rm, &command);
    }

    ctl_client_close(&rm.client);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


/* All of them, before any is removed. */

static int
ctl_remove_check(const ctl_command_t *command)
{
    int          rc;
    unsigned     i;
    ctl_place_t  place;

    rc = 0;

    for (i = 1; rc == 0 && i < command->nargs; i++) {
        rc = ctl_place_read(&place, command->args[i], CTL_WANT_NAME);

        if (rc == 0 && place.kind == CTL_PLACE_FS && *place.name != '\0') {

            /* with a slash behind it it is a folder, which is fine here */

            place.folder = 0;
        }

        if (rc == 0) {
            rc = ctl_place_check(&place);
        }

        ctl_place_free(&place);
    }

    return rc;
}


static int
ctl_remove_files(ctl_remove_t *rm, const ctl_command_t *command)
{
    int       rc;
    unsigned  i;

    rc = 0;

    for (i = 1; i < command->nargs; i++) {
        if (ctl_remove_file(rm, command->args[i]) == -1) {
            rc = -1;
        }
    }

    return rc;
}


static int
ctl_remove_file(ctl_remove_t *rm, const char *word)
{
    int            rc;
    char          *path, *label;
    ctl_place_t    place;
    ctl_reply_t    reply;

    static const ctl_hint_t  hints[] = {
        { "not_empty", "a folder that is not empty is removed with -r" },
        { NULL, NULL }
    };

    if (ctl_place_read(&place, word, CTL_WANT_NAME) == -1) {
        ctl_place_free(&place);
        return -1;
    }

    rc = -1;
    memset(&reply, 0, sizeof(ctl_reply_t));

    path = ctl_place_path(&place, rm->conversation,
                          place.kind == CTL_PLACE_FS && rm->recursive.n > 0
                          ? "recursive=1" : NULL);
    label = ctl_place_text(&place);

    if (path != NULL && label != NULL) {
        rc = ctl_client_call(&rm->client, "DELETE", path, NULL,
                             CTL_REPLY_WAIT, &reply);
    }

    if (rc == 0 && !(rm->force.n > 0
                     && (ctl_reply_code(&reply, "file_not_found")
                         || ctl_reply_code(&reply, "no_sandbox"))))
    {
        rc = ctl_reply_check_of(&reply, label, hints);
    }

    ctl_reply_free(&reply);
    ctl_place_free(&place);
    free(label);
    free(path);

    return rc;
}


static int
ctl_remove_all(ctl_remove_t *rm)
{
    int  known;

    known = rm->force.n > 0
            ? 1 : ctl_conversation_known(&rm->client, rm->conversation, 1);

    if (known == -1) {
        return -1;
    }

    if (known == 0) {
        return ctl_fault("there is no conversation \"%s\": no sandbox, no "
                         "files, no attachments", rm->conversation);
    }

    return ctl_conversation_call(&rm->client, "DELETE", rm->conversation, "");
}


int
ctl_reset(int argc, char **argv)
{
    int            rc;
    ctl_client_t   client;

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

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    if (ctl_conversation_check(command.args[0]) == -1) {
        return CTL_USAGE;
    }

    rc = ctl_client_open(&client, &connection, 0);

    if (rc == 0) {
        rc = ctl_conversation_known(&client, command.args[0], 0);

        if (rc == 0) {
            rc = ctl_fault("conversation \"%s\" has no sandbox to reset; its "
                           "next command gets a fresh one", command.args[0]);

        } else if (rc == 1) {
            rc = ctl_conversation_call(&client, "POST", command.args[0],
                                       "/reset");
        }
    }

    ctl_client_close(&client);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


/*
 * 1: it has a sandbox, or with `files` anything else that its end would
 * remove; 0: it has not; -1 after a sentence.
 */

static int
ctl_conversation_known(ctl_client_t *client, const char *conversation,
    int files)
{
    int            known;
    char           path[256];
    json_t        *object;
    const char    *state;
    ctl_reply_t    reply;

    snprintf(path, sizeof(path), "v1/conversations/%s", conversation);

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
    known = state == NULL || strcmp(state, "none") != 0;
    json_decref(object);

    if (known || !files) {
        return known;
    }

    known = ctl_conversation_has(client, conversation, "files");

    return known != 0 ? known : ctl_conversation_has(client, conversation,
                                                     "attachments");
}


static int
ctl_conversation_has(ctl_client_t *client, const char *conversation,
    const char *kind)
{
    int            has;
    char           path[256];
    json_t        *object;
    ctl_reply_t    reply;

    snprintf(path, sizeof(path), "v1/conversations/%s/%s?limit=1",
             conversation, kind);

    has = -1;

    if (ctl_client_call(client, "GET", path, NULL, CTL_REPLY_WAIT, &reply)
        == 0)
    {
        /* where nothing is stored there is nothing */

        if (ctl_reply_code(&reply, "no_store")) {
            has = 0;

        } else {
            object = ctl_reply_object(&reply);

            if (object != NULL) {
                has = json_array_size(json_object_get(object, kind)) > 0;
                json_decref(object);
            }
        }
    }

    ctl_reply_free(&reply);

    return has;
}


static int
ctl_conversation_call(ctl_client_t *client, const char *method,
    const char *conversation, const char *tail)
{
    int           rc;
    char          path[256];
    ctl_reply_t   reply;

    snprintf(path, sizeof(path), "v1/conversations/%s%s", conversation, tail);

    rc = ctl_client_call(client, method, path, NULL, CTL_REPLY_WAIT, &reply);

    if (rc == 0) {
        rc = ctl_reply_check(&reply);
    }

    ctl_reply_free(&reply);

    return rc;
}
