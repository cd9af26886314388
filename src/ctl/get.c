/*
 * sandboxctl get: a file of the Files panel, of the attachments or of the
 * container comes here, as a whole or not at all.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "live.h"
#include "local.h"
#include "measure.h"
#include "name.h"
#include "place.h"
#include "transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>


#define CTL_GET_KEY  16                          /* bytes of it, in hex */


typedef struct {
    ctl_connection_t   connection;
    ctl_values_t       output;
    ctl_values_t       force;
    ctl_values_t       resume;

    ctl_transfer_t     transfer;
    const char        *conversation;
    int                closed;                   /* nobody reads stdout */
} ctl_get_t;


static int ctl_get_all(ctl_get_t *get, const ctl_command_t *command);
static int ctl_get_word(ctl_get_t *get, const char *word, int several);
static int ctl_get_place(ctl_get_t *get, const ctl_place_t *place,
    int several, int quiet);
static char *ctl_get_target(ctl_get_t *get, const ctl_place_t *place,
    int several);
static int ctl_get_stdout(ctl_get_t *get, ctl_download_t *download);
static int ctl_get_file(ctl_get_t *get, ctl_download_t *download,
    const char *target);
static int ctl_get_key(ctl_get_t *get, ctl_download_t *download, char *key);
static int ctl_get_report(const char *label, const char *target,
    const ctl_local_t *local);
static int ctl_get_is_folder(const char *path);


int
ctl_get(int argc, char **argv)
{
    int  rc;

    static ctl_get_t  get;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&get.connection),
        { "output", "FILE", "where it goes; - is stdout (its name)", 1,
          &get.output, 'o' },
        { "force", NULL, "replace a file that is here", 1, &get.force, 'f' },
        { "continue", NULL, "keep what came when it is interrupted; go on "
          "there", 1, &get.resume, 'c' },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "get [options] CONVERSATION FILE...",
        .about = "Brings files here. FILE is a name: of the Files panel, "
                 "else of an attachment; or\nfiles:NAME, attachments:NAME; "
                 "or fs:PATH, a file of the container. It is here as a\n"
                 "whole or not at all, and never takes the place of another "
                 "one without -f. A lost\nconnection is made again, and what "
                 "has come need not come twice.\n",
        .options = options,
        .min = 2,
        .max = CTL_MAX_ARGS
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    get.conversation = command.args[0];

    if (ctl_conversation_check(get.conversation) == -1) {
        return CTL_USAGE;
    }

    if (get.output.n > 0 && command.nargs > 2
        && strcmp(get.output.value[0], "-") != 0
        && !ctl_get_is_folder(get.output.value[0]))
    {
        ctl_fault("for several files -o must be a folder that is there");
        return CTL_USAGE;
    }

    rc = ctl_transfer_open(&get.transfer, &get.connection);

    if (rc == 0) {
        rc = ctl_get_all(&get, &command);
    }

    ctl_transfer_close(&get.transfer);

    if (ctl_live_signal() != 0) {
        return 128 + ctl_live_signal();
    }

    return get.closed ? CTL_CLOSED : rc == 0 ? CTL_OK : CTL_FAULT;
}


static int
ctl_get_all(ctl_get_t *get, const ctl_command_t *command)
{
    int       rc;
    unsigned  i;

    rc = 0;

    for (i = 1; i < command->nargs; i++) {

        if (ctl_get_word(get, command->args[i], command->nargs > 2) == -1) {
            rc = -1;
        }

        if (ctl_live_signal() != 0 || get->closed) {
            return -1;
        }
    }

    return rc;
}


static int
ctl_get_word(ctl_get_t *get, const char *word, int several)
{
    int          rc;
    ctl_place_t  place;

    rc = ctl_place_read(&place, word, CTL_WANT_ANY);

    if (rc == -1 || place.kind != CTL_PLACE_NONE) {
        rc = rc == -1 ? -1 : ctl_get_place(get, &place, several, 0);
        ctl_place_free(&place);
        return rc;
    }

    /* 1: there is none */

    place.kind = CTL_PLACE_FILES;
    rc = ctl_get_place(get, &place, several, 1);

    if (rc == 1) {
        place.kind = CTL_PLACE_ATTACHMENTS;
        rc = ctl_get_place(get, &place, several, 1);
    }

    if (rc == 1) {
        rc = ctl_fault("there is no \"%s\" in the Files panel, and no such "
                       "attachment; one of the container is fs:%s (see ls)",
                       place.name, place.name);
    }

    ctl_place_free(&place);

    return rc;
}


/* 0, -1 after a sentence or a signal; 1: there is none, if that is `quiet`. */

static int
ctl_get_place(ctl_get_t *get, const ctl_place_t *place, int several,
    int quiet)
{
    int              rc;
    char            *path, *label, *target;
    ctl_download_t   download;

    if (ctl_place_check(place) == -1) {
        return -1;
    }

    memset(&download, 0, sizeof(ctl_download_t));

    rc = -1;
    target = NULL;
    path = ctl_place_path(place, get->conversation, NULL);
    label = ctl_place_text(place);

    if (path != NULL && label != NULL) {
        download.path = path;
        download.label = label;
        download.quiet = quiet;

        target = ctl_get_target(get, place, several);

        if (target != NULL) {
            rc = strcmp(target, "-") == 0
                 ? ctl_get_stdout(get, &download)
                 : ctl_get_file(get, &download, target);
        }
    }

    free(target);
    free(label);
    free(path);

    return rc == -1 && quiet && download.missing ? 1 : rc;
}


/* The file that it will be here: "-", or its path. */

static char *
ctl_get_target(ctl_get_t *get, const ctl_place_t *place, int several)
{
    int          rc;
    char        *target;
    const char  *output, *name;

    name = ctl_base_name(place->name);
    output = ctl_value(&get->output, NULL);

    if (output == NULL) {
        rc = asprintf(&target, "%s", name);

    } else if (strcmp(output, "-") != 0
               && (several || ctl_get_is_folder(output)))
    {
        rc = asprintf(&target, "%s/%s", output, name);

    } else {
        rc = asprintf(&target, "%s", output);
    }

    if (rc == -1) {
        ctl_fault("no memory");
        return NULL;
    }

    /* a file of that name, not stdout */

    if (output == NULL && strcmp(name, "-") == 0) {
        free(target);
        target = strdup("./-");
    }

    return target;
}


static int
ctl_get_stdout(ctl_get_t *get, ctl_download_t *download)
{
    int  rc;

    download->fd = STDOUT_FILENO;

    rc = ctl_download(&get->transfer, download);
    get->closed = download->closed;

    return rc;
}


static int
ctl_get_file(ctl_get_t *get, ctl_download_t *download, const char *target)
{
    int           rc, resume;
    char          key[2 * CTL_GET_KEY + 1];
    ctl_local_t   local;

    resume = get->resume.n > 0 && ctl_get_key(get, download, key) == 0;

    if (ctl_live_signal() != 0) {
        return -1;
    }

    rc = ctl_local_open(&local, target, get->force.n > 0,
                        resume ? key : NULL);

    if (rc == 0) {
        download->fd = local.fd;
        download->file = local.file;
        download->from = local.have;

        rc = ctl_download(&get->transfer, download);
    }

    if (rc == 0) {
        rc = ctl_local_commit(&local);
    }

    if (rc == 0) {
        rc = ctl_get_report(download->label, target, &local);

    } else if (resume && local.part != NULL && !download->missing) {
        ctl_fault("what has come of %s is kept in %s: the same line goes on",
                  download->label, local.part);
    }

    ctl_local_drop(&local, resume && !download->missing);

    return rc;
}


/*
 * Names the rest of an earlier time: it is of the same file, as it was then.
 * -1: there is nothing to go on with.
 */

static int
ctl_get_key(ctl_get_t *get, ctl_download_t *download, char *key)
{
    int        i;
    char      *text;
    int64_t    size;
    uint8_t    digest[EVP_MAX_MD_SIZE];
    unsigned   length;

    if (ctl_transfer_head(&get->transfer, download, &size) == -1
        || download->etag[0] == '\0')
    {
        return -1;
    }

    if (asprintf(&text, "%s/%s %s", get->transfer.client.url, download->path,
                 download->etag)
        == -1)
    {
        return -1;
    }

    i = EVP_Digest(text, strlen(text), digest, &length, EVP_sha256(), NULL);
    free(text);

    if (i != 1) {
        return -1;
    }

    for (i = 0; i < CTL_GET_KEY; i++) {
        sprintf(key + 2 * i, "%02x", digest[i]);
    }

    return 0;
}


static int
ctl_get_report(const char *label, const char *target,
    const ctl_local_t *local)
{
    char         *name;
    char          size[CTL_MEASURE_TEXT];
    struct stat   status;

    name = ctl_name_shell(target, strlen(target));

    if (name == NULL) {
        return ctl_fault("no memory");
    }

    if (local->file && fstat(local->fd, &status) == 0) {
        printf("%s -> %s (%s)\n", label, name,
               ctl_size_text(size, (uint64_t) status.st_size));
    }

    free(name);

    if (fflush(stdout) != 0) {
        return ctl_fault("can't write to stdout: %s", strerror(errno));
    }

    return 0;
}


static int
ctl_get_is_folder(const char *path)
{
    struct stat  status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}
