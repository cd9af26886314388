/*
 * sandboxctl skills: a folder into the tar of a skill; the skills of a
 * conversation, and what the gateway's library offers.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "client.h"
#include "name.h"
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


#define CTL_SKILLS_WAIT      300                 /* seconds, for 64 MiB */
#define CTL_SKILLS_PAGES     100                 /* of a list, 1,000 each */
#define CTL_SKILLS_MAX_TIME  0x1ffffffffL        /* 11 digits of a tar */
#define CTL_SKILLS_COLUMNS   60                  /* of a description */


typedef struct {
    const char  *name;
    const char  *usage;
    int        (*run)(int argc, char **argv);
} ctl_skills_verb_t;


static int ctl_skills_help(int status);
static int ctl_skills_pack(int argc, char **argv);
static char *ctl_skills_output(const char *folder);
static int ctl_skills_inside(const char *output, const char *folder);
static int ctl_skills_save(const char *output, const uint8_t *data,
    size_t size);
static int ctl_skills_list(int argc, char **argv);
static int ctl_skills_pages(ctl_client_t *client, const char *conversation,
    int library, json_t *all);
static void ctl_skills_line(const json_t *skill);
static int ctl_skills_load(int argc, char **argv);
static int ctl_skills_put(int argc, char **argv);
static char *ctl_skills_name(const char *given, const char *source);
static int ctl_skills_send(ctl_client_t *client, const char *conversation,
    const char *name, const ctl_pack_t *pack);
static int ctl_skills_remove(int argc, char **argv);
static int ctl_skills_told(const ctl_reply_t *reply);


static const ctl_skills_verb_t  ctl_skills_verbs[] = {
    { "pack", "skills pack [-o FILE] DIR", ctl_skills_pack },
    { "ls", "skills ls [--library] CONVERSATION", ctl_skills_list },
    { "add", "skills add CONVERSATION NAME", ctl_skills_load },
    { "put", "skills put [--name NAME] CONVERSATION DIR|FILE.tar",
      ctl_skills_put },
    { "rm", "skills rm CONVERSATION NAME", ctl_skills_remove },
    { NULL, NULL, NULL }
};


int
ctl_skills(int argc, char **argv)
{
    unsigned     i;
    const char  *near;
    const char  *names[sizeof(ctl_skills_verbs) / sizeof(ctl_skills_verbs[0])];

    if (argc < 2) {
        ctl_fault("what of them? (see --help)");
        return CTL_USAGE;
    }

    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return ctl_skills_help(CTL_OK);
    }

    for (i = 0; ctl_skills_verbs[i].name != NULL; i++) {

        if (strcmp(argv[1], ctl_skills_verbs[i].name) == 0) {
            return ctl_skills_verbs[i].run(argc - 1, argv + 1);
        }

        names[i] = ctl_skills_verbs[i].name;
    }

    names[i] = NULL;
    near = ctl_nearest(argv[1], names);

    if (near != NULL) {
        ctl_fault("there is no \"%s\", did you mean \"%s\"?", argv[1], near);

    } else {
        ctl_fault("there is no \"%s\" (see --help)", argv[1]);
    }

    return CTL_USAGE;
}


static int
ctl_skills_help(int status)
{
    unsigned  i;

    for (i = 0; ctl_skills_verbs[i].name != NULL; i++) {
        printf("%s sandboxctl %s\n", i ? "      " : "usage:",
               ctl_skills_verbs[i].usage);
    }

    printf("\nA skill is a folder with a SKILL.md and what it needs: at "
           "/skills/NAME in the sandbox,\nread-only, its Python modules "
           "imported by their names. 'sandboxctl skills pack --help'\nsays "
           "more, and so with the others.\n");

    return status;
}


static int
ctl_skills_pack(int argc, char **argv)
{
    int          rc;
    char        *own, *end;
    long         mtime;
    ctl_pack_t   pack;
    const char  *output, *text;

    static ctl_values_t  file, time;

    static const ctl_option_t  options[] = {
        { "output", "FILE", "where to (NAME.tar; - is stdout)", 1, &file,
          'o' },
        { "mtime", "SECONDS", "the time of all of it, since 1970 (0)", 1,
          &time, 0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "skills pack [options] DIR",
        .about = "Makes the plain tar of a skill out of what is in the folder: "
                 "the same tar for the same\nfiles, with no owner and no time. "
                 ".git and __pycache__ are left out. It refuses what a\nskill "
                 "can't have: links that lead out, FIFOs, devices, sockets, "
                 "more than 20,000 files or\n64 MiB. In a folder of "
                 "\"sandbox_skills\" it is a skill of the library.\n",
        .options = options,
        .min = 1,
        .max = 1
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    text = ctl_value(&time, "0");
    errno = 0;
    mtime = strtol(text, &end, 10);

    if (end == text || *end != '\0' || errno || mtime < 0
        || mtime > CTL_SKILLS_MAX_TIME)
    {
        ctl_fault("--mtime \"%s\" is no number of seconds since 1970", text);
        return CTL_USAGE;
    }

    own = NULL;
    output = ctl_value(&file, NULL);

    if (output == NULL) {
        own = ctl_skills_output(command.args[0]);

        if (own == NULL) {
            return CTL_USAGE;
        }

        output = own;
    }

    if (ctl_skills_inside(output, command.args[0])) {
        ctl_fault("%s would be in the folder itself: choose another place "
                  "with -o", output);
        free(own);
        return CTL_USAGE;
    }

    rc = ctl_pack_folder(&pack, command.args[0], (uint64_t) mtime);

    if (rc == 0) {
        rc = ctl_skills_save(output, pack.data, pack.size);
    }

    if (rc == 0 && strcmp(output, "-") != 0) {
        printf("%s: %llu files, %zu bytes%s\n", output,
               (unsigned long long) pack.skill.files, pack.size,
               pack.skill.manual ? "" : "; it has no SKILL.md");
    }

    ctl_pack_free(&pack);
    free(own);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


/* NAME.tar, here */

static char *
ctl_skills_output(const char *folder)
{
    char  *name, *output;

    name = ctl_skills_name(NULL, folder);

    if (name == NULL) {
        return NULL;
    }

    if (asprintf(&output, "%s.tar", name) == -1) {
        ctl_fault("no memory");
        output = NULL;
    }

    free(name);

    return output;
}


/* it would be a part of the next one then */

static int
ctl_skills_inside(const char *output, const char *folder)
{
    int     inside;
    char   *copy, *parent, *top;
    size_t  n;

    if (strcmp(output, "-") == 0) {
        return 0;
    }

    copy = strdup(output);
    parent = copy == NULL ? NULL : realpath(dirname(copy), NULL);
    top = realpath(folder, NULL);
    inside = 0;

    if (parent != NULL && top != NULL) {
        n = strlen(top);
        inside = strncmp(parent, top, n) == 0
                 && (parent[n] == '/' || parent[n] == '\0');
    }

    free(copy);
    free(parent);
    free(top);

    return inside;
}


/* whole or not at all: somebody may be loading it */

static int
ctl_skills_save(const char *output, const uint8_t *data, size_t size)
{
    int   fd, error;
    char *name;

    if (strcmp(output, "-") == 0) {

        if (isatty(STDOUT_FILENO)) {
            return ctl_fault("a tar is nothing for a terminal");
        }

        if (ctl_write(STDOUT_FILENO, data, size) == -1) {
            return ctl_fault("can't write: %s", strerror(errno));
        }

        return 0;
    }

    if (asprintf(&name, "%s.%ld", output, (long) getpid()) == -1) {
        return ctl_fault("no memory");
    }

    fd = open(name, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0644);

    if (fd == -1) {
        error = errno;

    } else {
        error = ctl_write(fd, data, size) == -1 || fsync(fd) == -1 ? errno : 0;

        if (close(fd) == -1 && error == 0) {
            error = errno;
        }

        if (error == 0 && rename(name, output) == -1) {
            error = errno;
        }

        if (error) {
            (void) unlink(name);
        }
    }

    free(name);

    return error ? ctl_fault("can't write %s: %s", output, strerror(error))
                 : 0;
}


static int
ctl_skills_list(int argc, char **argv)
{
    int            rc;
    size_t         i;
    json_t        *all;
    ctl_client_t   client;

    static ctl_connection_t  connection;
    static ctl_values_t      library, plain;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { "library", NULL, "what the gateway's library offers", 1, &library,
          'l' },
        { "json", NULL, "all of it, as the gateway has it", 1, &plain, 0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "skills ls [options] CONVERSATION",
        .about = "Lists the skills of a conversation.\n",
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

    all = json_array();
    rc = ctl_client_open(&client, &connection, 0);

    if (rc == 0) {
        rc = ctl_skills_pages(&client, command.args[0], library.n != 0, all);
    }

    ctl_client_close(&client);

    if (rc == 0 && plain.n) {
        all = json_pack("{so,sn}", "skills", all, "next");
        json_dumpf(all, stdout, isatty(STDOUT_FILENO)
                                ? JSON_COMPACT|JSON_ENSURE_ASCII
                                : JSON_COMPACT);
        printf("\n");

    } else if (rc == 0) {
        printf("%-24s  %10s  %6s  %-8s  %s\n", "NAME", "BYTES", "FILES",
               "FROM", "DESCRIPTION");

        for (i = 0; i < json_array_size(all); i++) {
            ctl_skills_line(json_array_get(all, i));
        }
    }

    json_decref(all);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


static int
ctl_skills_pages(ctl_client_t *client, const char *conversation, int library,
    json_t *all)
{
    int           rc;
    char         *path;
    json_t       *object, *next;
    unsigned      page;
    ctl_reply_t   reply;

    next = NULL;

    for (page = 0; page < CTL_SKILLS_PAGES; page++) {

        rc = asprintf(&path, "v1/conversations/%s/skills?limit=1000%s%s%s",
                      conversation, library ? "&library=1" : "",
                      next == NULL ? "" : "&cursor=",
                      next == NULL ? "" : json_string_value(next));
        json_decref(next);

        if (rc == -1) {
            return ctl_fault("no memory");
        }

        object = NULL;

        if (ctl_client_call(client, "GET", path, NULL, CTL_REPLY_WAIT, &reply)
            == 0)
        {
            object = ctl_reply_object(&reply);
        }

        ctl_reply_free(&reply);
        free(path);

        if (object == NULL) {
            return -1;
        }

        json_array_extend(all, json_object_get(object, "skills"));
        next = json_object_get(object, "next");
        next = json_is_string(next) ? json_incref(next) : NULL;
        json_decref(object);

        if (next == NULL) {
            return 0;
        }
    }

    json_decref(next);

    return 0;
}


static void
ctl_skills_line(const json_t *skill)
{
    char          *text;
    const char    *name, *source, *description;
    const json_t  *files;

    name = ctl_word(json_string_value(json_object_get(skill, "name")));
    source = ctl_word(json_string_value(json_object_get(skill, "source")));
    files = json_object_get(skill, "files");
    description = json_string_value(json_object_get(
                            json_object_get(skill, "manifest"),
                            "description"));

    text = strdup(description != NULL ? description : "");

    if (text == NULL) {
        return;
    }

    ctl_name_blank(text);

    printf("%-24s  %10lld  ", name != NULL ? name : "-",
           json_integer_value(json_object_get(skill, "size")));

    if (files == NULL) {
        printf("%6s", "-");

    } else {
        printf("%6lld", json_integer_value(files));
    }

    printf("  %-8s  %.*s\n", source != NULL ? source : "-",
           (int) ctl_name_fit(text, CTL_SKILLS_COLUMNS), text);

    free(text);
}


static int
ctl_skills_load(int argc, char **argv)
{
    int            rc;
    char           path[256];
    char          *body;
    json_t        *object;
    ctl_reply_t    reply;
    ctl_client_t   client;

    static ctl_connection_t  connection;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "skills add [options] CONVERSATION NAME",
        .about = "Loads a skill of the gateway's library into the "
                 "conversation. The next command finds it.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    if (ctl_conversation_check(command.args[0]) == -1) {
        return CTL_USAGE;
    }

    object = json_pack("{ss}", "name", command.args[1]);
    body = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);

    if (body == NULL) {
        ctl_fault("the name is no text");
        return CTL_USAGE;
    }

    memset(&reply, 0, sizeof(ctl_reply_t));
    rc = CTL_FAULT;

    snprintf(path, sizeof(path), "v1/conversations/%s/skills",
             command.args[0]);

    if (ctl_client_open(&client, &connection, 0) == 0
        && ctl_client_call(&client, "POST", path, body, CTL_SKILLS_WAIT,
                           &reply)
           == 0
        && ctl_skills_told(&reply) == 0)
    {
        rc = CTL_OK;
    }

    free(body);
    ctl_reply_free(&reply);
    ctl_client_close(&client);

    return rc;
}


static int
ctl_skills_put(int argc, char **argv)
{
    int            rc;
    char          *name;
    ctl_pack_t     pack;
    const char    *source;
    struct stat    st;
    ctl_client_t   client;

    static ctl_connection_t  connection;
    static ctl_values_t      given;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { "name", "NAME", "what it is called there (that of DIR or FILE)", 1,
          &given, 'n' },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "skills put [options] CONVERSATION DIR|FILE.tar",
        .about = "Uploads a skill: a folder, which is packed, or a tar that "
                 "was. The next command finds\nit at /skills/NAME.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    source = command.args[1];

    if (ctl_conversation_check(command.args[0]) == -1) {
        return CTL_USAGE;
    }

    name = ctl_skills_name(ctl_value(&given, NULL), source);

    if (name == NULL) {
        return CTL_USAGE;
    }

    if (stat(source, &st) == 0 && S_ISDIR(st.st_mode)) {
        rc = ctl_pack_folder(&pack, source, 0);

    } else {
        memset(&pack, 0, sizeof(ctl_pack_t));
        rc = ctl_file_read(source, SANDBOX_SKILL_MAX_BYTES, &pack.data,
                           &pack.size);

        if (rc == 0) {
            rc = ctl_pack_check(pack.data, pack.size, source, &pack.skill);
        }
    }

    if (rc == 0) {
        rc = ctl_client_open(&client, &connection, 0);

        if (rc == 0) {
            rc = ctl_skills_send(&client, command.args[0], name, &pack);
        }

        ctl_client_close(&client);
    }

    ctl_pack_free(&pack);
    free(name);

    return rc == 0 ? CTL_OK : CTL_FAULT;
}


/* The one that was said, or the last part of the path without ".tar". */

static char *
ctl_skills_name(const char *given, const char *source)
{
    char        *path, *name;
    size_t       n;
    const char  *base, *wrong;

    path = NULL;

    if (given != NULL) {
        base = given;

    } else {
        path = realpath(source, NULL);

        if (path == NULL) {
            ctl_fault("%s: %s", source, strerror(errno));
            return NULL;
        }

        base = strrchr(path, '/') + 1;
    }

    n = strlen(base);

    if (given == NULL && n > 4 && strcmp(base + n - 4, ".tar") == 0) {
        n -= 4;
    }

    wrong = sandbox_skill_name_wrong(base, n);

    if (wrong != NULL) {
        ctl_fault("\"%.*s\": %s", (int) n, base, wrong);
        free(path);
        return NULL;
    }

    name = strndup(base, n);

    if (name == NULL) {
        ctl_fault("no memory");
    }

    free(path);

    return name;
}


static int
ctl_skills_send(ctl_client_t *client, const char *conversation,
    const char *name, const ctl_pack_t *pack)
{
    int                 rc;
    char                path[320];
    CURLcode            code;
    ctl_call_t          call;
    ctl_reply_t         reply;
    struct curl_slist  *headers;

    memset(&reply, 0, sizeof(ctl_reply_t));
    memset(&call, 0, sizeof(ctl_call_t));

    snprintf(path, sizeof(path), "v1/conversations/%s/skills/%s",
             conversation, name);

    call.method = "PUT";
    call.path = path;
    call.type = "application/x-tar";
    call.body = pack->data;
    call.size = pack->size;
    call.wait = CTL_SKILLS_WAIT;

    if (ctl_client_prepare(client, client->curl, &call, &headers) == -1) {
        return -1;
    }

    curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, ctl_reply_write);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &reply);

    code = curl_easy_perform(client->curl);
    curl_slist_free_all(headers);

    if (code != CURLE_OK) {
        rc = ctl_client_failed(client, client->curl, code, call.wait, &reply);

    } else {
        curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE,
                          &reply.status);
        rc = ctl_skills_told(&reply);
    }

    ctl_reply_free(&reply);

    return rc;
}


static int
ctl_skills_remove(int argc, char **argv)
{
    int            rc;
    char           path[320];
    const char    *wrong;
    ctl_reply_t    reply;
    ctl_client_t   client;

    static ctl_connection_t  connection;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&connection),
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "skills rm [options] CONVERSATION NAME",
        .about = "Removes a skill of a conversation; /skills/NAME is gone "
                 "when the next command begins.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    wrong = sandbox_skill_name_wrong(command.args[1],
                                     strlen(command.args[1]));

    if (wrong != NULL) {
        ctl_fault("\"%s\": %s", command.args[1], wrong);
        return CTL_USAGE;
    }

    if (ctl_conversation_check(command.args[0]) == -1) {
        return CTL_USAGE;
    }

    memset(&reply, 0, sizeof(ctl_reply_t));
    rc = CTL_FAULT;

    snprintf(path, sizeof(path), "v1/conversations/%s/skills/%s",
             command.args[0], command.args[1]);

    if (ctl_client_open(&client, &connection, 0) == 0
        && ctl_client_call(&client, "DELETE", path, NULL, CTL_REPLY_WAIT,
                           &reply)
           == 0
        && ctl_reply_check(&reply) == 0)
    {
        rc = CTL_OK;
    }

    ctl_reply_free(&reply);
    ctl_client_close(&client);

    return rc;
}


/* What became of it, and what there is to know. */

static int
ctl_skills_told(const ctl_reply_t *reply)
{
    char          *detail;
    size_t         i;
    json_t        *object;
    const char    *text;
    const json_t  *notes;

    object = ctl_reply_object(reply);

    if (object == NULL) {
        return -1;
    }

    text = json_string_value(json_object_get(object, "name"));

    printf("%s: %lld files, %lld bytes\n", text != NULL ? text : "-",
           json_integer_value(json_object_get(object, "files")),
           json_integer_value(json_object_get(object, "size")));

    notes = json_object_get(object, "notes");

    for (i = 0; i < json_array_size(notes); i++) {
        text = json_string_value(json_object_get(json_array_get(notes, i),
                                                 "detail"));
        detail = text == NULL ? NULL : strdup(text);

        if (detail != NULL) {
            ctl_name_blank(detail);
            printf("%s\n", detail);
            free(detail);
        }
    }

    json_decref(object);

    return 0;
}
