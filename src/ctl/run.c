/*
 * sandboxctl run: a command in a conversation's sandbox, as if it ran here.
 * Its streams come through to the byte and as they come, ours goes to it, the
 * exit status is the command's own, Ctrl-C ends it.
 */

#include "ctl.h"
#include "client.h"
#include "live.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/rand.h>


#define CTL_MAX_STDIN     (44 * 1024 * 1024)     /* 59 MiB of base64 */
#define CTL_MAX_AHEAD     (256 * 1024)           /* sent with the command */
#define CTL_MAX_TIMEOUT   86400                  /* seconds */

/*
 * A command may wait for those before it, and the gateway says nothing before
 * its end; longer than this is no waiting but a connection that got lost.
 */

#define CTL_RUN_WAIT      3600                   /* seconds */


typedef struct {
    ctl_connection_t   connection;
    ctl_values_t       timeout;
    ctl_values_t       cwd;
    ctl_values_t       env;
    ctl_values_t       stdin_file;
    ctl_values_t       interactive;
    ctl_values_t       no_stdin;
    ctl_values_t       background;
    ctl_values_t       fresh;
    ctl_values_t       id;
    ctl_values_t       json;
} ctl_run_t;


static json_t *ctl_run_request(const ctl_run_t *run, const char *text,
    long timeout);
static int ctl_run_env(json_t *request, const ctl_values_t *env);
static int ctl_run_stdin(json_t *request, const char *name);
static int ctl_run_input(json_t *request, const ctl_run_t *run);
static ssize_t ctl_run_ahead(int fd, uint8_t *data, size_t size, int *ended);
static int ctl_run_base64(json_t *request, const uint8_t *data, size_t size);
static int ctl_run_id(json_t *request, const ctl_run_t *run);
static int ctl_run_call(const ctl_run_t *run, const char *conversation,
    json_t *request, int input, long wait);
static int ctl_run_live(const ctl_run_t *run, ctl_live_t *live,
    const json_t *request);
static int ctl_run_plain(json_t *request, int input);
static int ctl_run_output(const json_t *result, const char *name, int fd);
static int ctl_run_answer(const ctl_run_t *run, const ctl_reply_t *reply);


int
ctl_run(int argc, char **argv)
{
    int         rc, input;
    long        timeout;
    json_t     *request;

    static ctl_run_t  run;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&run.connection),
        { "timeout", "TIME", "at most 30s, 5m, ... on the wall clock", 1,
          &run.timeout, 0 },
        { "cwd", "DIR", "where it runs (/home/sandbox)", 1, &run.cwd, 0 },
        { "env", "NAME=VALUE", "more environment; may be repeated",
          CTL_MAX_VALUES, &run.env, 0 },
        { "stdin", "FILE", "its standard input; - is ours", 1,
          &run.stdin_file, 0 },
        { "interactive", NULL, "it gets ours, even if that is a terminal", 1,
          &run.interactive, 'i' },
        { "no-stdin", NULL, "it gets none, even if ours is no terminal", 1,
          &run.no_stdin, 'n' },
        { "background", NULL, "print the command's id and leave it running",
          1, &run.background, 'b' },
        { "fresh", NULL, "in a new sandbox, the old one is thrown away", 1,
          &run.fresh, 0 },
        { "id", "COMMANDID", "the same id again gives the same result", 1,
          &run.id, 0 },
        { "json", NULL, "print the result as it is", 1, &run.json, 0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "run [options] CONVERSATION COMMAND",
        .hint = "quote a COMMAND of several words: 'ls -l'",
        .about = "Runs COMMAND with bash; what it writes comes as it is "
                 "written. It reads our standard\ninput, unless that is a "
                 "terminal (with --json or --background: what --stdin "
                 "names).\nExits with its status: 124 after a time-out, "
                 "128+N after signal N, 125 for whatever\nfailed on the way "
                 "to it, and instead of 0 when some of its output was left "
                 "out.\nCtrl-C cancels the command, once more leaves at once. "
                 "A lost connection is made\nagain; the command runs on "
                 "meanwhile.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_SERVICE;
    }

    if (ctl_conversation_check(command.args[0]) == -1) {
        return CTL_SERVICE;
    }

    if (run.id.n > 0 && ctl_command_check(run.id.value[0]) == -1) {
        return CTL_SERVICE;
    }

    timeout = 0;

    if (run.timeout.n > 0) {
        timeout = ctl_duration(run.timeout.value[0], CTL_MAX_TIMEOUT);

        if (timeout <= 0) {
            ctl_fault("--timeout \"%s\" is not a time such as 30s or 5m, at "
                      "most 1d", run.timeout.value[0]);
            return CTL_SERVICE;
        }
    }

    input = -1;
    rc = CTL_SERVICE;
    request = ctl_run_request(&run, command.args[1], timeout);

    if (request != NULL && ctl_run_id(request, &run) == 0) {

        if (run.json.n == 0 && run.background.n == 0) {
            input = ctl_run_input(request, &run);
        }

        if (input != -2) {
            rc = ctl_run_call(&run, command.args[0], request, input,
                              CTL_RUN_WAIT + timeout);
        }
    }

    json_decref(request);

    return rc;
}


static json_t *
ctl_run_request(const ctl_run_t *run, const char *text, long timeout)
{
    int          rc;
    json_t      *request;
    const char  *cwd;

    request = json_object();
    cwd = ctl_value(&run->cwd, NULL);

    if (json_object_set_new(request, "command", json_string(text)) == -1) {
        ctl_fault("the command is not UTF-8");
        goto failed;
    }

    if (cwd != NULL
        && json_object_set_new(request, "cwd", json_string(cwd)) == -1)
    {
        ctl_fault("--cwd is not UTF-8");
        goto failed;
    }

    rc = 0;

    if (timeout > 0) {
        rc |= json_object_set_new(request, "timeoutSeconds",
                                  json_integer(timeout));
    }

    /* or the gateway takes a stream to have more, later */

    if (run->json.n == 0) {
        rc |= json_object_set_new(request, "stdinOpen", json_false());
    }

    if (run->background.n > 0) {
        rc |= json_object_set_new(request, "background", json_true());
    }

    if (run->fresh.n > 0) {
        rc |= json_object_set_new(request, "fresh", json_true());
    }

    if (rc != 0) {
        ctl_fault("no memory");
        goto failed;
    }

    if (ctl_run_env(request, &run->env) == -1) {
        goto failed;
    }

    if (run->stdin_file.n > 0 && (run->json.n > 0 || run->background.n > 0)
        && ctl_run_stdin(request, run->stdin_file.value[0]) == -1)
    {
        goto failed;
    }

    return request;

failed:

    json_decref(request);

    return NULL;
}


static int
ctl_run_env(json_t *request, const ctl_values_t *env)
{
    char        *name;
    json_t      *object;
    unsigned     i;
    const char  *equals;

    if (env->n == 0) {
        return 0;
    }

    object = json_object();

    if (json_object_set_new(request, "env", object) == -1) {
        return ctl_fault("no memory");
    }

    for (i = 0; i < env->n; i++) {
        equals = strchr(env->value[i], '=');

        if (equals == NULL || equals == env->value[i]) {
            return ctl_fault("--env \"%s\" is not NAME=VALUE", env->value[i]);
        }

        name = strndup(env->value[i], (size_t) (equals - env->value[i]));

        if (name == NULL
            || json_object_set_new(object, name, json_string(equals + 1))
               == -1)
        {
            free(name);
            return ctl_fault("--env \"%s\" is not UTF-8", env->value[i]);
        }

        free(name);
    }

    return 0;
}


/* All of it at once, where nothing can follow. */

static int
ctl_run_stdin(json_t *request, const char *name)
{
    int       rc;
    size_t    size;
    uint8_t  *data;

    if (ctl_file_read(name, CTL_MAX_STDIN, &data, &size) == -1) {
        return -1;
    }

    rc = ctl_run_base64(request, data, size);
    free(data);

    return rc;
}


/*
 * The descriptor that is passed on while the command runs; -1: there is no
 * more than what goes with the request; -2 after a sentence.
 */

static int
ctl_run_input(json_t *request, const ctl_run_t *run)
{
    int           fd, rc, ended;
    ssize_t       n;
    uint8_t      *data;
    const char   *name;
    struct stat   status;

    name = ctl_value(&run->stdin_file, NULL);
    fd = STDIN_FILENO;

    if (name != NULL && strcmp(name, "-") != 0) {
        fd = open(name, O_RDONLY|O_CLOEXEC|O_NOCTTY);

        if (fd == -1) {
            ctl_fault("can't open %s: %s", name, strerror(errno));
            return -2;
        }

    } else if (run->no_stdin.n > 0
               || (name == NULL && run->interactive.n == 0
                   && (isatty(fd) || fstat(fd, &status) == -1)))
    {
        return -1;
    }

    data = malloc(CTL_MAX_AHEAD);

    if (data == NULL) {
        ctl_fault("no memory");
        return -2;
    }

    n = ctl_run_ahead(fd, data, CTL_MAX_AHEAD, &ended);
    rc = 0;

    if (n == -1) {
        rc = ctl_fault("can't read %s: %s", name != NULL ? name : "stdin",
                       strerror(errno));

    } else if (n > 0) {
        rc = ctl_run_base64(request, data, (size_t) n);
    }

    free(data);

    if (rc == -1) {
        return -2;
    }

    if (ended) {
        return -1;
    }

    if (json_object_set_new(request, "stdinOpen", json_true()) == -1) {
        ctl_fault("no memory");
        return -2;
    }

    return fd;
}


/*
 * What can be read without waiting for anybody: a file, or what a writer has
 * left behind.  Most inputs are small, and cost no call of their own then.
 */

static ssize_t
ctl_run_ahead(int fd, uint8_t *data, size_t size, int *ended)
{
    int             file;
    size_t          n;
    ssize_t         got;
    struct stat     status;
    struct pollfd   p;

    *ended = 0;

    file = fstat(fd, &status) == 0
           && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)
               || (S_ISCHR(status.st_mode) && !isatty(fd)));

    for (n = 0; n < size; n += (size_t) got) {
        p.fd = fd;
        p.events = POLLIN;
        p.revents = 0;

        if (!file && (poll(&p, 1, 0) != 1 || (p.revents & POLLHUP) == 0)) {
            break;
        }

        do {
            got = read(fd, data + n, size - n);
        } while (got == -1 && errno == EINTR);

        if (got == -1) {
            return -1;
        }

        if (got == 0) {
            *ended = 1;
            break;
        }
    }

    return (ssize_t) n;
}


static int
ctl_run_base64(json_t *request, const uint8_t *data, size_t size)
{
    int    rc;
    char  *text;

    text = ctl_base64_encode(data, size);

    if (text == NULL) {
        return ctl_fault("no memory");
    }

    rc = json_object_set_new(request, "stdinBase64", json_string(text));
    free(text);

    return rc == -1 ? ctl_fault("no memory") : 0;
}


/*
 * A command outlives a lost connection: by its id the result can still be
 * had, so there always is one.
 */

static int
ctl_run_id(json_t *request, const ctl_run_t *run)
{
    int          rc;
    char         id[32];
    uint8_t      random[10];
    unsigned     i;
    const char  *given;

    given = ctl_value(&run->id, NULL);

    if (given == NULL) {
        if (RAND_bytes(random, sizeof(random)) != 1) {
            return ctl_fault("no random bytes");
        }

        strcpy(id, "ctl-");

        for (i = 0; i < sizeof(random); i++) {
            sprintf(id + 4 + 2 * i, "%02x", random[i]);
        }

        given = id;
    }

    rc = json_object_set_new(request, "commandId", json_string(given));

    return rc == -1 ? ctl_fault("--id is not UTF-8") : 0;
}


static int
ctl_run_call(const ctl_run_t *run, const char *conversation, json_t *request,
    int input, long wait)
{
    int            rc;
    char           path[256];
    ctl_live_t     live;
    ctl_client_t   client;

    memset(&live, 0, sizeof(ctl_live_t));

    if (ctl_client_open(&client, &run->connection, 0) == -1
        || ctl_live_signals() == -1)
    {
        ctl_client_close(&client);
        return CTL_SERVICE;
    }

    snprintf(path, sizeof(path), "v1/conversations/%s/commands",
             conversation);

    live.client = &client;
    live.conversation = conversation;
    live.id = json_string_value(json_object_get(request, "commandId"));
    live.path = path;
    live.wait = wait;
    live.events = run->json.n == 0 && run->background.n == 0;
    live.input = input;

    rc = ctl_run_live(run, &live, request);

    if (live.refused) {

        /* as one answer, then: where there are no events, there is that */

        live.refused = 0;
        live.events = 0;
        live.input = -1;
        strcat(path, "?encoding=base64");

        rc = ctl_run_plain(request, input) == -1
             ? CTL_SERVICE : ctl_run_live(run, &live, request);
    }

    ctl_client_close(&client);

    return ctl_live_signal() == 0 ? rc : 128 + ctl_live_signal();
}


static int
ctl_run_live(const ctl_run_t *run, ctl_live_t *live, const json_t *request)
{
    int    rc;
    char  *body;

    body = json_dumps(request, JSON_COMPACT);

    if (body == NULL) {
        ctl_fault("no memory");
        return CTL_SERVICE;
    }

    live->body = body;
    rc = CTL_SERVICE;

    if (ctl_live(live) == 0 && !live->refused) {
        rc = live->events ? ctl_live_status(live->result)
                          : ctl_run_answer(run, &live->reply);

        /* all of its output is part of what success means */

        if (rc == CTL_OK && live->left_out) {
            rc = CTL_SERVICE;
        }

    } else if (live->closed) {
        rc = CTL_CLOSED;
    }

    ctl_live_free(live);
    live->body = NULL;
    free(body);

    return rc;
}


/* The same request with all of its input, for one answer. */

static int
ctl_run_plain(json_t *request, int input)
{
    int            rc;
    size_t         size, have;
    uint8_t       *data, *all, *larger;
    const json_t  *text;

    json_object_del(request, "stdinOpen");

    if (input == -1) {
        return 0;
    }

    all = NULL;
    have = 0;
    text = json_object_get(request, "stdinBase64");

    if (text != NULL) {
        all = ctl_base64_decode(json_string_value(text),
                                json_string_length(text), &have);
        if (all == NULL) {
            return ctl_fault("no memory");
        }
    }

    if (ctl_fd_read(input, "the standard input", CTL_MAX_STDIN - have, &data,
                    &size)
        == -1)
    {
        free(all);
        return -1;
    }

    larger = realloc(all, have + size + 1);

    if (larger == NULL) {
        rc = ctl_fault("no memory");

    } else {
        all = larger;
        memcpy(all + have, data, size);
        rc = ctl_run_base64(request, all, have + size);
    }

    free(data);
    free(all);

    return rc;
}


/* One answer: as it is, or the id of what goes on in the background. */

static int
ctl_run_answer(const ctl_run_t *run, const ctl_reply_t *reply)
{
    int          status, closed;
    json_t      *answer;
    const char  *id;

    answer = ctl_reply_object(reply);

    if (answer == NULL) {
        return CTL_SERVICE;
    }

    id = json_string_value(json_object_get(answer, "commandId"));
    status = CTL_OK;
    closed = 0;

    if (run->json.n > 0) {
        status = ctl_write(STDOUT_FILENO, reply->body, reply->size);

        if (status == 0 && reply->body[reply->size - 1] != '\n') {
            status = ctl_write(STDOUT_FILENO, "\n", 1);
        }

        closed = status == -1 && errno == EPIPE;

    } else if (run->background.n == 0) {
        status = ctl_run_output(answer, "stdoutBase64", STDOUT_FILENO);
        closed = status == -1 && errno == EPIPE;

        if (status == 0) {
            status = ctl_run_output(answer, "stderrBase64", STDERR_FILENO);
        }

    } else if (id == NULL || printf("%s\n", id) < 0 || fflush(stdout) != 0) {
        status = -1;
    }

    if (closed) {
        status = CTL_CLOSED;

    } else if (status == -1) {
        ctl_fault("can't write the answer: %s", strerror(errno));
        status = CTL_SERVICE;

    } else if (json_object_get(answer, "outcome") != NULL) {
        status = ctl_live_status(answer);

        if (run->json.n == 0 && run->background.n == 0
            && json_is_true(json_object_get(answer, "truncated")))
        {
            ctl_fault("some of the output is left out");

            if (status == CTL_OK) {
                status = CTL_SERVICE;
            }
        }
    }

    json_decref(answer);

    return status;
}


/* 0, or -1 with errno. */

static int
ctl_run_output(const json_t *result, const char *name, int fd)
{
    int            rc;
    size_t         size;
    uint8_t       *data;
    const json_t  *text;

    text = json_object_get(result, name);
    data = json_is_string(text)
           ? ctl_base64_decode(json_string_value(text),
                               json_string_length(text), &size)
           : NULL;

    if (data == NULL) {
        errno = EBADMSG;
        return -1;
    }

    rc = ctl_write(fd, data, size);
    free(data);

    return rc;
}
