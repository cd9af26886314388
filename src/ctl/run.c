/*
 * sandboxctl run: a command in a conversation's sandbox, as if it ran here.
 * Streams come through to the byte, the exit status is the command's own.
 */

#include "ctl.h"
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/rand.h>


#define CTL_MAX_STDIN     (44 * 1024 * 1024)     /* 59 MiB of base64 */
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
    ctl_values_t       fresh;
    ctl_values_t       id;
    ctl_values_t       json;
} ctl_run_t;


static json_t *ctl_run_request(const ctl_run_t *run, const char *text,
    long timeout);
static int ctl_run_env(json_t *request, const ctl_values_t *env);
static int ctl_run_stdin(json_t *request, const char *name);
static int ctl_run_id(json_t *request, const ctl_run_t *run, char id[32]);
static int ctl_run_call(const ctl_run_t *run, const char *conversation,
    const char *body, long wait, const char *id);
static int ctl_run_result(const ctl_run_t *run, const ctl_reply_t *reply);
static int ctl_run_stream(const json_t *result, const char *name, int fd);
static int ctl_run_status(const json_t *result);


int
ctl_run(int argc, char **argv)
{
    int         rc;
    char        id[32], *body;
    long        timeout;
    json_t     *request;

    static ctl_run_t  run;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&run.connection),
        { "timeout", "TIME", "at most 30s, 5m, ... on the wall clock", 1,
          &run.timeout },
        { "cwd", "DIR", "where it runs (/home/sandbox)", 1, &run.cwd },
        { "env", "NAME=VALUE", "more environment; may be repeated",
          CTL_MAX_VALUES, &run.env },
        { "stdin", "FILE", "its standard input; - is ours", 1,
          &run.stdin_file },
        { "fresh", NULL, "in a new sandbox, the old one is thrown away", 1,
          &run.fresh },
        { "id", "COMMANDID", "the same id again gives the same result", 1,
          &run.id },
        { "json", NULL, "print the result as it is", 1, &run.json },
        { NULL, NULL, NULL, 0, NULL }
    };

    static ctl_command_t  command = {
        .usage = "run [options] CONVERSATION COMMAND",
        .about = "Runs COMMAND with bash. Exits with its status: 124 after "
                 "a time-out, 128+N after\nsignal N, 125 when the service "
                 "failed.\n",
        .options = options,
        .min = 2,
        .max = 2
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_SERVICE;
    }

    if (!ctl_conversation_valid(command.args[0])) {
        ctl_fault("\"%s\" is not a conversation: 1 to 128 letters, digits "
                  "and ._:-", command.args[0]);
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

    request = ctl_run_request(&run, command.args[1], timeout);

    if (request == NULL || ctl_run_id(request, &run, id) == -1) {
        json_decref(request);
        return CTL_SERVICE;
    }

    body = json_dumps(request, JSON_COMPACT);
    json_decref(request);

    if (body == NULL) {
        ctl_fault("no memory");
        return CTL_SERVICE;
    }

    rc = ctl_run_call(&run, command.args[0], body, CTL_RUN_WAIT + timeout, id);
    free(body);

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

    if (run->stdin_file.n > 0
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


static int
ctl_run_stdin(json_t *request, const char *name)
{
    int       rc;
    char     *text;
    size_t    size;
    uint8_t  *data;

    if (ctl_file_read(name, CTL_MAX_STDIN, &data, &size) == -1) {
        return -1;
    }

    text = ctl_base64_encode(data, size);
    free(data);

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
ctl_run_id(json_t *request, const ctl_run_t *run, char id[32])
{
    int          rc;
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

    } else {
        id[0] = '\0';
    }

    rc = json_object_set_new(request, "commandId", json_string(given));

    return rc == -1 ? ctl_fault("--id is not UTF-8") : 0;
}


static int
ctl_run_call(const ctl_run_t *run, const char *conversation, const char *body,
    long wait, const char *id)
{
    int            rc;
    char           path[256];
    ctl_reply_t    reply;
    ctl_client_t   client;

    memset(&reply, 0, sizeof(ctl_reply_t));
    rc = CTL_SERVICE;

    if (ctl_client_open(&client, &run->connection, 0) == -1) {
        goto done;
    }

    snprintf(path, sizeof(path), "v1/conversations/%s/commands%s",
             conversation, run->json.n > 0 ? "" : "?encoding=base64");

    if (ctl_client_call(&client, "POST", path, body, wait, &reply) == -1) {

        if (reply.sent) {
            ctl_fault("the command may run all the same; again with --id %s "
                      "gives its result", id[0] != '\0' ? id
                                          : ctl_value(&run->id, ""));
        }

        goto done;
    }

    rc = ctl_run_result(run, &reply);

done:

    ctl_reply_free(&reply);
    ctl_client_close(&client);

    return rc;
}


static int
ctl_run_result(const ctl_run_t *run, const ctl_reply_t *reply)
{
    int      status;
    json_t  *result;

    result = ctl_reply_object(reply);

    if (result == NULL) {
        return CTL_SERVICE;
    }

    if (run->json.n > 0) {
        if (ctl_write(STDOUT_FILENO, reply->body, reply->size) == -1
            || (reply->body[reply->size - 1] != '\n'
                && ctl_write(STDOUT_FILENO, "\n", 1) == -1))
        {
            ctl_fault("can't write to stdout: %s", strerror(errno));
            json_decref(result);
            return CTL_SERVICE;
        }

    } else if (ctl_run_stream(result, "stdoutBase64", STDOUT_FILENO) == -1
               || ctl_run_stream(result, "stderrBase64", STDERR_FILENO) == -1)
    {
        json_decref(result);
        return CTL_SERVICE;
    }

    status = ctl_run_status(result);
    json_decref(result);

    return status;
}


static int
ctl_run_stream(const json_t *result, const char *name, int fd)
{
    int            rc;
    size_t         size;
    uint8_t       *data;
    const json_t  *text;

    text = json_object_get(result, name);

    if (!json_is_string(text)) {
        return ctl_fault("the result has no %s", name);
    }

    data = ctl_base64_decode(json_string_value(text),
                             json_string_length(text), &size);

    if (data == NULL) {
        return ctl_fault("the result's %s is not base64", name);
    }

    rc = ctl_write(fd, data, size);
    free(data);

    return rc == -1 ? ctl_fault("can't write: %s", strerror(errno)) : 0;
}


/* What is not the command's own doing is said in a sentence. */

static int
ctl_run_status(const json_t *result)
{
    size_t         i;
    json_int_t     code;
    const char    *outcome, *name, *detail;
    const json_t  *status, *notices, *notice;

    notices = json_object_get(result, "stagingNotices");

    for (i = 0; i < json_array_size(notices); i++) {
        notice = json_array_get(notices, i);
        name = json_string_value(json_object_get(notice, "name"));
        detail = json_string_value(json_object_get(notice, "detail"));

        ctl_fault("attachment %s: %s", name != NULL ? name : "?",
                  detail != NULL ? detail : "was not staged");
    }

    outcome = json_string_value(json_object_get(result, "outcome"));
    status = json_object_get(result, "exitCode");
    code = json_is_integer(status) ? json_integer_value(status) : -1;

    if (outcome == NULL) {
        ctl_fault("the result has no outcome");
        return CTL_SERVICE;
    }

    if (strcmp(outcome, "runner_lost") == 0
        || strcmp(outcome, "sandbox_deleted") == 0)
    {
        ctl_fault("the sandbox was gone before the command had ended (%s)",
                  outcome);
        return CTL_SERVICE;
    }

    if (code < 0 || code > 255) {
        ctl_fault("the command has no exit status (%s)", outcome);
        return CTL_SERVICE;
    }

    if (strcmp(outcome, "exit") != 0 && strcmp(outcome, "signal") != 0) {
        ctl_fault("the command was ended early (%s)", outcome);
    }

    return (int) code;
}
