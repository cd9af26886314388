/*
 * sandboxctl put: files of here become attachments, files of the Files panel
 * or of the container.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "live.h"
#include "measure.h"
#include "name.h"
#include "place.h"
#include "transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


typedef struct {
    ctl_connection_t   connection;
    ctl_values_t       to;
    ctl_values_t       name;
    ctl_values_t       keep;
    ctl_values_t       unique;

    ctl_transfer_t     transfer;
    const char        *conversation;
    ctl_place_t        place;                    /* --to */
} ctl_put_t;


static int ctl_put_check(ctl_put_t *put, const ctl_command_t *command);
static int ctl_put_all(ctl_put_t *put, const ctl_command_t *command);
static int ctl_put_file(ctl_put_t *put, const char *file, int several);
static int ctl_put_place(ctl_put_t *put, const char *file, int several,
    ctl_place_t *place);
static int ctl_put_send(ctl_put_t *put, const ctl_place_t *place,
    const char *label, int fd, const struct stat *status);
static char *ctl_put_path(ctl_put_t *put, const ctl_place_t *place,
    const struct stat *status);
static int ctl_put_report(const ctl_place_t *place, const char *label,
    const ctl_reply_t *reply);


int
ctl_put(int argc, char **argv)
{
    int  rc;

    static ctl_put_t  put;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&put.connection),
        { "to", "PLACE", "attachments, files or fs:PATH (attachments)", 1,
          &put.to, 't' },
        { "name", "NAME", "what it is called there (its name)", 1, &put.name,
          0 },
        { "no-clobber", NULL, "never in place of a file that is there", 1,
          &put.keep, 'n' },
        { "unique", NULL, "an attachment takes a free name: NAME (2)", 1,
          &put.unique, 'u' },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "put [options] CONVERSATION FILE...",
        .about = "Attaches files to a conversation: commands find them in "
                 "~/attachments. Or puts them\ninto the Files panel (--to "
                 "files), or into the container (--to fs:PATH; a PATH that\n"
                 "ends with a slash is a folder). A file of that name is "
                 "replaced. FILE - is stdin,\nand has no --name of its own.\n",
        .options = options,
        .min = 2,
        .max = CTL_MAX_ARGS
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    put.conversation = command.args[0];

    if (ctl_put_check(&put, &command) == -1) {
        ctl_place_free(&put.place);
        return CTL_USAGE;
    }

    rc = ctl_transfer_open(&put.transfer, &put.connection);

    if (rc == 0) {
        rc = ctl_put_all(&put, &command);
    }

    ctl_transfer_close(&put.transfer);
    ctl_place_free(&put.place);

    if (ctl_live_signal() != 0) {
        return 128 + ctl_live_signal();
    }

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


static int
ctl_put_check(ctl_put_t *put, const ctl_command_t *command)
{
    unsigned      i;
    struct stat   status;

    if (ctl_conversation_check(put->conversation) == -1
        || ctl_place_read(&put->place, ctl_value(&put->to, "attachments"),
                          CTL_WANT_PLACE)
           == -1)
    {
        return -1;
    }

    if (put->place.kind != CTL_PLACE_FS && *put->place.name != '\0') {

        if (put->name.n > 0) {
            return ctl_fault("--to names the file already, so --name can't");
        }

        /* as in --to files:NAME */

        put->name.n = 1;
        put->name.value[0] = put->place.name;
    }

    if (put->name.n > 0 && strchr(put->name.value[0], '/') != NULL) {
        return ctl_fault("--name \"%s\" has a slash in it",
                         put->name.value[0]);
    }

    if (command->nargs > 2 && put->name.n > 0) {
        return ctl_fault("a name is for one file, not for several");
    }

    if (put->unique.n > 0 && put->place.kind != CTL_PLACE_ATTACHMENTS) {
        return ctl_fault("--unique is for attachments");
    }

    for (i = 1; i < command->nargs; i++) {

        /* as other programs would have it */

        if (strncmp(command->args[i], "fs:", 3) == 0 && i > 1
            && stat(command->args[i], &status) == -1)
        {
            return ctl_fault("\"%s\" is no file of here; to put the others "
                             "there: --to %s", command->args[i],
                             command->args[i]);
        }
    }

    return 0;
}


static int
ctl_put_all(ctl_put_t *put, const ctl_command_t *command)
{
    int       rc;
    unsigned  i;

    rc = 0;

    for (i = 1; i < command->nargs; i++) {

        if (ctl_put_file(put, command->args[i], command->nargs > 2) == -1) {
            rc = -1;
        }

        if (ctl_live_signal() != 0) {
            return -1;
        }
    }

    return rc;
}


static int
ctl_put_file(ctl_put_t *put, const char *file, int several)
{
    int           fd, rc;
    char         *label;
    ctl_place_t   place;
    struct stat   status;

    fd = strcmp(file, "-") == 0 ? STDIN_FILENO
                                : open(file, O_RDONLY|O_CLOEXEC|O_NOCTTY);

    label = strcmp(file, "-") == 0 ? strdup("stdin")
                                   : ctl_name_shell(file, strlen(file));
    memset(&place, 0, sizeof(ctl_place_t));
    memset(&status, 0, sizeof(struct stat));

    if (label == NULL) {
        rc = ctl_fault("no memory");

    } else if (fd == -1 || fstat(fd, &status) == -1) {
        rc = ctl_fault("can't read %s: %s", label, strerror(errno));

    } else if (S_ISDIR(status.st_mode)) {
        rc = ctl_fault("%s is a folder: put its files, or a tar of it",
                       label);
    } else {
        rc = ctl_put_place(put, file, several, &place);
    }

    if (rc == 0) {
        rc = ctl_put_send(put, &place, label, fd, &status);
    }

    ctl_place_free(&place);
    free(label);

    if (fd > STDIN_FILENO) {
        close(fd);
    }

    return rc;
}


/* Where that file goes. */

static int
ctl_put_place(ctl_put_t *put, const char *file, int several,
    ctl_place_t *place)
{
    int          rc;
    const char  *name;

    *place = put->place;
    place->name = NULL;

    name = ctl_value(&put->name, strcmp(file, "-") != 0 ? ctl_base_name(file)
                                                        : NULL);

    if (place->kind != CTL_PLACE_FS
        || put->place.folder || several || put->name.n > 0)
    {
        if (name == NULL) {
            return ctl_fault("what comes from stdin needs a --name");
        }

        rc = asprintf(&place->name, "%s%s%s",
                      place->kind == CTL_PLACE_FS ? put->place.name : "",
                      place->kind == CTL_PLACE_FS && *put->place.name != '\0'
                      ? "/" : "", name);
    } else {
        rc = asprintf(&place->name, "%s", put->place.name);
    }

    if (rc == -1) {
        place->name = NULL;
        return ctl_fault("no memory");
    }

    place->folder = 0;

    return ctl_place_check(place);
}


static int
ctl_put_send(ctl_put_t *put, const ctl_place_t *place, const char *label,
    int fd, const struct stat *status)
{
    int            rc;
    char          *path;
    ctl_upload_t   upload;

    static const ctl_hint_t  hints[] = {
        { "is_a_directory", "a folder of that name is there; with a slash "
          "behind PATH the file goes into it" },
        { "precondition_failed", "there is a file of that name, which stays "
          "as it is" },
        { NULL, NULL }
    };

    path = ctl_put_path(put, place, status);

    if (path == NULL) {
        return -1;
    }

    memset(&upload, 0, sizeof(ctl_upload_t));

    upload.hints = hints;
    upload.method = put->unique.n > 0 ? "POST" : "PUT";
    upload.path = path;
    upload.label = label;
    upload.fd = fd;
    upload.size = S_ISREG(status->st_mode) && fd != STDIN_FILENO
                  ? status->st_size : -1;
    upload.fresh = put->keep.n > 0 || put->unique.n > 0;

    rc = ctl_upload(&put->transfer, &upload);
    free(path);

    if (rc == 0) {
        rc = ctl_put_report(place, label, &upload.reply);
        ctl_reply_free(&upload.reply);
    }

    return rc;
}


/* NULL after a sentence. */

static char *
ctl_put_path(ctl_put_t *put, const ctl_place_t *place,
    const struct stat *status)
{
    int    rc;
    char  *name, *path;

    if (place->kind == CTL_PLACE_FS) {

        /* what can be run here can be run there */

        return ctl_place_path(place, put->conversation,
                              S_ISREG(status->st_mode)
                              && (status->st_mode & S_IXUSR)
                              ? "mode=755" : "mode=644");
    }

    if (put->unique.n == 0) {
        return ctl_place_path(place, put->conversation, NULL);
    }

    name = ctl_encode(place->name, 0);

    rc = name == NULL ? -1
         : asprintf(&path, "v1/conversations/%s/attachments?name=%s",
                    put->conversation, name);
    free(name);

    if (rc == -1) {
        ctl_fault("no memory");
        return NULL;
    }

    return path;
}


/* "q3.csv -> attachments:q3.csv (47.1 KiB, new)" */

static int
ctl_put_report(const ctl_place_t *place, const char *label,
    const ctl_reply_t *reply)
{
    char         *text;
    char          size[CTL_MEASURE_TEXT];
    json_t       *object;
    const char   *name;
    ctl_place_t   there;

    object = ctl_reply_object(reply);

    if (object == NULL) {
        return -1;
    }

    /* --unique gives it another one */

    there = *place;
    name = json_string_value(json_object_get(object, "name"));

    if (name != NULL && there.kind != CTL_PLACE_FS
        && json_object_get(object, "nameBase64") == NULL)
    {
        there.name = (char *) name;
    }

    text = ctl_place_text(&there);

    if (text != NULL) {
        printf("%s -> %s (%s, %s)\n", label, text,
               ctl_size_text(size, (uint64_t) json_integer_value(
                                       json_object_get(object, "size"))),
               reply->status == 201 ? "new" : "replaced");
    }

    free(text);
    json_decref(object);

    if (fflush(stdout) != 0) {
        return ctl_fault("can't write to stdout: %s", strerror(errno));
    }

    return text == NULL ? -1 : 0;
}
