/*
 * sandboxctl ls: the Files panel, the attachments, a folder of the container,
 * or the conversations.  A page at a time, so there may be any number.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "client.h"
#include "measure.h"
#include "name.h"
#include "place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define CTL_LIST_PAGE    "limit=1000"
#define CTL_LIST_PAGES   100000
#define CTL_LIST_CURSOR  4096                    /* bytes */


typedef struct {
    ctl_connection_t   connection;
    ctl_values_t       lengthy;
    ctl_values_t       json;

    ctl_client_t       client;
    const char        *conversation;
    const char        *what;                     /* the list it is, in JSON */
    int                terminal;
    int                gone;                     /* the reader of stdout */
} ctl_list_t;


static int ctl_list_both(ctl_list_t *list);
static int ctl_list_place(ctl_list_t *list, const ctl_place_t *place,
    const char *heading);
static json_t *ctl_list_page(ctl_list_t *list, const ctl_place_t *place,
    const char *cursor);
static int ctl_list_show(ctl_list_t *list, const json_t *entries);
static int ctl_list_line(ctl_list_t *list, const json_t *entry);
static void ctl_list_state(const json_t *entry);
static void ctl_list_time(const char *time);
static void ctl_list_facts(const json_t *entry);
static void ctl_list_mode(const char *type, const char *mode);
static int ctl_list_name(ctl_list_t *list, const json_t *entry,
    const char *name, const char *base64);


int
ctl_list(int argc, char **argv)
{
    int          rc;
    ctl_place_t  place;

    static ctl_list_t  list;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&list.connection),
        { "long", NULL, "with size, time, and what else there is", 1,
          &list.lengthy, 'l' },
        { "json", NULL, "JSON, an object a line, as it came; \"list\" tells of "
          "what", 1,
          &list.json, 0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "ls [options] [CONVERSATION [files | attachments | "
                 "fs[:PATH]]]",
        .about = "Lists the Files panel and the attachments, one of the two, "
                 "or a folder of the\ncontainer: fs is /home/sandbox, "
                 "fs:data is below it, fs:/tmp is elsewhere. On a\nterminal "
                 "names are quoted as a shell takes them. Without a "
                 "CONVERSATION: those that you have, the newest first.\n",
        .options = options,
        .min = 0,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    memset(&place, 0, sizeof(ctl_place_t));

    list.conversation = command.nargs > 0 ? command.args[0] : NULL;
    list.terminal = isatty(STDOUT_FILENO);

    if ((command.nargs > 0
         && ctl_conversation_check(list.conversation) == -1)
        || (command.nargs == 2
            && ctl_place_read(&place, command.args[1], CTL_WANT_PLACE) == -1))
    {
        ctl_place_free(&place);
        return CTL_USAGE;
    }

    if (command.nargs == 2 && place.kind != CTL_PLACE_FS
        && *place.name != '\0')
    {
        ctl_fault("\"%s\" is a file; the list is: ls %s %s", command.args[1],
                  list.conversation, ctl_place_kind(place.kind));
        ctl_place_free(&place);
        return CTL_USAGE;
    }

    rc = ctl_client_open(&list.client, &list.connection, 0);

    if (rc == 0) {
        rc = command.nargs == 0 ? ctl_list_place(&list, NULL, NULL)
             : command.nargs == 1 ? ctl_list_both(&list)
               : ctl_list_place(&list, &place, NULL);
    }

    ctl_place_free(&place);
    ctl_client_close(&list.client);

    if (rc == 0 && fflush(stdout) != 0) {
        list.gone = errno == EPIPE;
        rc = list.gone ? -1 : ctl_fault("can't write to stdout: %s",
                                        strerror(errno));
    }

    return rc == 0 ? CTL_OK : list.gone ? CTL_CLOSED : CTL_FAULT;
}


static int
ctl_list_both(ctl_list_t *list)
{
    ctl_place_t  place;

    memset(&place, 0, sizeof(ctl_place_t));
    place.name = (char *) "";
    place.kind = CTL_PLACE_FILES;

    if (ctl_list_place(list, &place, "files") == -1) {
        return -1;
    }

    if (list->json.n == 0) {
        putchar('\n');
    }

    place.kind = CTL_PLACE_ATTACHMENTS;

    return ctl_list_place(list, &place, "attachments");
}


/* All pages of it; without a place: the conversations. */

static int
ctl_list_place(ctl_list_t *list, const ctl_place_t *place,
    const char *heading)
{
    int            rc;
    char           cursor[CTL_LIST_CURSOR];
    json_t        *page;
    unsigned       pages;
    const char    *next;
    const json_t  *entries;

    cursor[0] = '\0';
    list->what = place == NULL ? "conversations" : ctl_place_kind(place->kind);

    for (pages = 0; pages < CTL_LIST_PAGES; pages++) {

        page = ctl_list_page(list, place, pages == 0 ? NULL : cursor);

        if (page == NULL) {
            return -1;
        }

        entries = json_object_get(page, place == NULL ? "conversations"
                                        : place->kind == CTL_PLACE_FS
                                          ? "entries"
                                          : ctl_place_kind(place->kind));

        if (!json_is_array(entries)) {
            json_decref(page);
            return ctl_fault("what the gateway answers is no list");
        }

        if (pages == 0 && heading != NULL && list->json.n == 0) {
            printf("%s:%s\n", heading,
                   json_array_size(entries) == 0 ? " none" : "");
        }

        rc = ctl_list_show(list, entries);
        next = json_string_value(json_object_get(page, "next"));

        /* a cursor that does not go on would never end */

        if (rc == 0 && next != NULL
            && (strlen(next) >= sizeof(cursor) || strcmp(next, cursor) == 0))
        {
            rc = ctl_fault("the gateway's list does not go on");
        }

        if (rc == 0 && next != NULL) {
            strcpy(cursor, next);
        }

        json_decref(page);

        if (rc == -1 || next == NULL) {
            return rc;
        }
    }

    return ctl_fault("the list has no end");
}


/* The caller's; NULL after a sentence. */

static json_t *
ctl_list_page(ctl_list_t *list, const ctl_place_t *place, const char *cursor)
{
    int           rc;
    char         *path, *query, *encoded, *label;
    json_t       *page;
    ctl_reply_t   reply;

    encoded = ctl_encode(cursor != NULL ? cursor : "", 0);

    rc = encoded == NULL ? -1
         : asprintf(&query, "%s" CTL_LIST_PAGE "%s%s%s",
                    place == NULL ? "v1/conversations?" : "",
                    place != NULL && place->kind == CTL_PLACE_FS ? "&list"
                                                                 : "",
                    cursor != NULL ? "&cursor=" : "", encoded);
    free(encoded);

    if (rc == -1) {
        ctl_fault("no memory");
        return NULL;
    }

    page = NULL;
    path = query;

    if (place != NULL) {
        path = ctl_place_path(place, list->conversation, query);
        free(query);
    }

    if (path == NULL) {
        return NULL;
    }

    label = place != NULL ? ctl_place_text(place) : strdup("the list");

    memset(&reply, 0, sizeof(ctl_reply_t));

    if (label != NULL
        && ctl_client_call(&list->client, "GET", path, NULL, CTL_REPLY_WAIT,
                           &reply)
           == 0
        && ctl_reply_check_of(&reply, label, NULL) == 0)
    {
        page = ctl_reply_object(&reply);
    }

    free(label);
    ctl_reply_free(&reply);
    free(path);

    return page;
}


static int
ctl_list_show(ctl_list_t *list, const json_t *entries)
{
    size_t  i;

    for (i = 0; i < json_array_size(entries); i++) {

        if (ctl_list_line(list, json_array_get(entries, i)) == -1) {
            return -1;
        }

        if (ferror(stdout)) {
            list->gone = errno == EPIPE;
            return list->gone ? -1 : ctl_fault("can't write to stdout: %s",
                                               strerror(errno));
        }
    }

    return 0;
}


static int
ctl_list_line(ctl_list_t *list, const json_t *entry)
{
    char        *text;
    json_t      *copy;
    const char  *type;

    if (list->json.n > 0) {
        copy = json_copy((json_t *) entry);
        text = NULL;

        if (copy != NULL
            && json_object_set_new(copy, "list", json_string(list->what))
               == 0)
        {
            text = json_dumps(copy, list->terminal
                                    ? JSON_COMPACT|JSON_ENSURE_ASCII
                                    : JSON_COMPACT);
        }

        json_decref(copy);

        if (text == NULL) {
            return ctl_fault("no memory");
        }

        printf("%s\n", text);
        free(text);

        return 0;
    }

    if (list->conversation == NULL) {

        if (list->lengthy.n > 0) {
            ctl_list_state(entry);
        }

        if (ctl_list_name(list, entry, "conversationId", "") == -1) {
            return -1;
        }

        putchar('\n');

        return 0;
    }

    if (list->lengthy.n > 0) {
        ctl_list_facts(entry);
    }

    if (ctl_list_name(list, entry, "name", "nameBase64") == -1) {
        return -1;
    }

    type = json_string_value(json_object_get(entry, "type"));

    if (type != NULL && strcmp(type, "directory") == 0) {
        putchar('/');
    }

    if (list->lengthy.n > 0 && type != NULL && strcmp(type, "link") == 0) {
        printf(" -> ");

        if (ctl_list_name(list, entry, "target", "targetBase64") == -1) {
            return -1;
        }
    }

    putchar('\n');

    return 0;
}


/* "running   12 commands  2026-11-29 21:24:24  " */

static void
ctl_list_state(const json_t *entry)
{
    const char    *state;
    const json_t  *commands;

    state = json_string_value(json_object_get(entry, "state"));
    commands = json_object_get(entry, "commands");

    /* a word, or nothing that a terminal should see */

    if (state == NULL || state[strspn(state, "abcdefghijklmnopqrstuvwxyz")]) {
        state = "-";
    }

    printf("%-8s  %5lld commands  ", state,
           (long long) json_integer_value(commands));

    ctl_list_time(json_string_value(json_object_get(entry, "lastUsedAt")));
}


/* "2026-11-29T21:03:11.123Z"; what is none might be for the terminal */

static void
ctl_list_time(const char *time)
{
    if (time != NULL && strspn(time, "0123456789-T:") >= 19) {
        printf("%.10s %.8s  ", time, time + 11);

    } else {
        printf("%-19s  ", "-");
    }
}


/* "-rw-r--r--  47.1 KiB  2026-11-29 21:24:24  "; the Files panel has no mode */

static void
ctl_list_facts(const json_t *entry)
{
    char           size[CTL_MEASURE_TEXT];
    const char    *mode, *time;
    const json_t  *bytes;

    mode = json_string_value(json_object_get(entry, "mode"));
    bytes = json_object_get(entry, "size");
    time = json_string_value(json_object_get(entry, "modifiedAt"));

    if (time == NULL) {
        time = json_string_value(json_object_get(entry, "createdAt"));
    }

    if (mode != NULL) {
        ctl_list_mode(json_string_value(json_object_get(entry, "type")),
                      mode);
    }

    printf("%8s  ", json_is_integer(bytes)
           ? ctl_size_text(size, (uint64_t) json_integer_value(bytes)) : "-");

    ctl_list_time(time);
}


static void
ctl_list_mode(const char *type, const char *mode)
{
    int       i;
    char      text[11];
    unsigned  bits;

    bits = (unsigned) strtoul(mode, NULL, 8);

    text[0] = type == NULL || strcmp(type, "file") == 0 ? '-'
              : strcmp(type, "directory") == 0 ? 'd'
                : strcmp(type, "link") == 0 ? 'l' : '?';

    for (i = 0; i < 9; i++) {
        text[1 + i] = bits & (0400u >> i) ? "rwx"[i % 3] : '-';
    }

    text[10] = '\0';

    printf("%s  ", text);
}


/* To the byte; on a terminal what that takes as text. */

static int
ctl_list_name(ctl_list_t *list, const json_t *entry, const char *name,
    const char *base64)
{
    char           *text;
    size_t          size;
    uint8_t        *exact;
    const char     *bytes;
    const json_t   *value;

    exact = NULL;
    value = json_object_get(entry, base64);

    if (json_is_string(value)) {
        exact = ctl_base64_decode(json_string_value(value),
                                  json_string_length(value), &size);
        bytes = (const char *) exact;

    } else {
        value = json_object_get(entry, name);
        bytes = json_string_value(value);
        size = bytes != NULL ? json_string_length(value) : 0;
    }

    if (bytes == NULL) {
        return ctl_fault("the gateway's list has no names; is it another "
                         "release?");
    }

    if (list->terminal) {
        text = ctl_name_shell(bytes, size);

        if (text == NULL) {
            free(exact);
            return ctl_fault("no memory");
        }

        fputs(text, stdout);
        free(text);

    } else {
        fwrite(bytes, 1, size, stdout);
    }

    free(exact);

    return 0;
}
