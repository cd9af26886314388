/*
 * The environment of commands: empty, plus the base image's file, plus what
 * the runner started the agent with, plus the way out if there is one, plus
 * the request's ENV.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define AGENT_ENVIRONMENT_FILE   (64 * 1024)
#define AGENT_ENVIRONMENT_NAMES  256
#define AGENT_ENVIRONMENT_NETWORK  16    /* entries */
#define AGENT_ENVIRONMENT_PROXY  "http://127.0.0.1:3128"
#define AGENT_ENVIRONMENT_LOCAL  "localhost,127.0.0.1,::1"
#define AGENT_ENVIRONMENT_URL    512     /* bytes, of a proxy with its token */
#define AGENT_ENVIRONMENT_OWN    (8 * AGENT_ENVIRONMENT_URL                  \
                                  + SANDBOX_WIRE_MAX_INDEX)


static int agent_environment_file(const char *path);
static void agent_environment_lines(char *text);
static int agent_environment_add(char *entry, int replace);
static int agent_environment_inheritable(const char *entry);
static size_t agent_environment_put(char **list, size_t count, char *entry);
static size_t agent_environment_name(const char *entry);
static size_t agent_environment_own(const agent_request_t *request,
    char **list, size_t count, char *p);


/* what a base without the file must have for a usable shell */

static char  *agent_environment_defaults[] = {
    "PATH=/usr/local/bin:/usr/bin:/bin",
    "HOME=" AGENT_HOME,
    "USER=sandbox",
    "LOGNAME=sandbox",
    "SHELL=/bin/bash",
    "LANG=C.UTF-8"
};


/* container runtimes and service managers set these for the agent itself */

static const char  *agent_environment_foreign[] = {
    "HOSTNAME", "LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "MAINPID",
    "NOTIFY_SOCKET", "OLDPWD", "PWD", "SHLVL", "TERM", "_"
};


static char    *agent_environment[AGENT_ENVIRONMENT_NAMES];
static size_t   agent_environment_count;
static char    *agent_environment_text;  /* of the file, its lines in use */

/*
 * ALL_PROXY is not among them: what is no https has no way out, and is better
 * told so by its own name service than by a proxy that it can't talk to.
 */

static char  *agent_environment_out[] = {
    "HTTP_PROXY=" AGENT_ENVIRONMENT_PROXY,
    "http_proxy=" AGENT_ENVIRONMENT_PROXY,
    "HTTPS_PROXY=" AGENT_ENVIRONMENT_PROXY,
    "https_proxy=" AGENT_ENVIRONMENT_PROXY,
    "NO_PROXY=" AGENT_ENVIRONMENT_LOCAL,
    "no_proxy=" AGENT_ENVIRONMENT_LOCAL,
    "NODE_USE_ENV_PROXY=1"
};

/* by programs that have a setting of their own for it */

static const char  *agent_environment_ca_names[] = {
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"
};

static char    *agent_environment_network_list[AGENT_ENVIRONMENT_NETWORK];
static size_t   agent_environment_network_count;
static char     agent_environment_index[SANDBOX_WIRE_MAX_INDEX + 32];
static char     agent_environment_ca[sizeof(agent_environment_ca_names)
                                     / sizeof(char *)][128];


int
agent_environment_init(const char *path, char **inherited)
{
    size_t  i, n;

    agent_environment_count = 0;
    free(agent_environment_text);
    agent_environment_text = NULL;

    n = sizeof(agent_environment_defaults)
        / sizeof(agent_environment_defaults[0]);

    for (i = 0; i < n; i++) {
        agent_environment_add(agent_environment_defaults[i], 1);
    }

    if (agent_environment_file(path) == -1) {
        return -1;
    }

    /* a runtime sets HOME and PATH for root: the base's own have priority */

    for (i = 0; inherited[i] != NULL; i++) {
        if (agent_environment_inheritable(inherited[i])) {
            agent_environment_add(inherited[i], 0);
        }
    }

    return 0;
}


void
agent_environment_network(int on, const char *index, const char *ca)
{
    size_t   i, n;
    char   **list;

    list = agent_environment_network_list;
    n = 0;

    if (!on) {
        list[n++] = "UV_OFFLINE=1";
    }

    for (i = 0; on && i < sizeof(agent_environment_out) / sizeof(char *); i++)
    {
        list[n++] = agent_environment_out[i];
    }

    if (on && index[0] != '\0') {
        snprintf(agent_environment_index, sizeof(agent_environment_index),
                 "UV_DEFAULT_INDEX=%s", index);
        list[n++] = agent_environment_index;
    }

    for (i = 0;
         on && ca != NULL
         && i < sizeof(agent_environment_ca_names) / sizeof(char *);
         i++)
    {
        snprintf(agent_environment_ca[i], sizeof(agent_environment_ca[i]),
                 "%s=%s", agent_environment_ca_names[i], ca);
        list[n++] = agent_environment_ca[i];
    }

    agent_environment_network_count = n;
}


char **
agent_environment_build(const agent_request_t *request)
{
    char              *p, **list;
    size_t             i, count;
    sandbox_field_t    field;
    sandbox_fields_t   fields;

    count = agent_environment_count;

    list = malloc((count + AGENT_ENVIRONMENT_NETWORK + request->env_count + 1)
                  * sizeof(char *)
                  + request->env_size + AGENT_ENVIRONMENT_OWN);
    if (list == NULL) {
        return NULL;
    }

    memcpy(list, agent_environment, count * sizeof(char *));
    p = (char *) (list + count + AGENT_ENVIRONMENT_NETWORK
                  + request->env_count + 1);

    if (request->proxy != NULL) {
        count = agent_environment_own(request, list, count,
                                      p + request->env_size);

    } else {
        for (i = 0; i < agent_environment_network_count; i++) {
            count = agent_environment_put(list, count,
                                          agent_environment_network_list[i]);
        }
    }

    if (request->env_count) {
        sandbox_fields_init(&fields, request->head, request->head_size);

        while (agent_request_env(&fields, &field)) {
            memcpy(p, field.data, field.length);
            p[field.length] = '\0';

            count = agent_environment_put(list, count, p);
            p += field.length + 1;
        }
    }

    list[count] = NULL;

    return list;
}


/*
 * A way out of the command's own; p has room for AGENT_ENVIRONMENT_OWN.  git
 * would ask without credentials first, and then once more.
 */

static size_t
agent_environment_own(const agent_request_t *request, char **list,
    size_t count, char *p)
{
    size_t  i, name;

    static char  git[] = "GIT_HTTP_PROXY_AUTHMETHOD=basic";

    for (i = 0; i < sizeof(agent_environment_out) / sizeof(char *); i++) {

        name = agent_environment_name(agent_environment_out[i]);

        if (strcmp(agent_environment_out[i] + name + 1,
                   AGENT_ENVIRONMENT_PROXY) != 0)
        {
            count = agent_environment_put(list, count,
                                          agent_environment_out[i]);
            continue;
        }

        snprintf(p, AGENT_ENVIRONMENT_URL, "%.*s=http://%.*s@%.*s", (int) name,
                 agent_environment_out[i], (int) request->token_size,
                 (const char *) request->token, (int) request->proxy_size,
                 (const char *) request->proxy);

        count = agent_environment_put(list, count, p);
        p += strlen(p) + 1;
    }

    count = agent_environment_put(list, count, git);

    if (request->index != NULL) {
        snprintf(p, SANDBOX_WIRE_MAX_INDEX + 32, "UV_DEFAULT_INDEX=%.*s",
                 (int) request->index_size, (const char *) request->index);
        count = agent_environment_put(list, count, p);
        p += strlen(p) + 1;
    }

    for (i = 0;
         request->ca_file != NULL
         && i < sizeof(agent_environment_ca_names) / sizeof(char *);
         i++)
    {
        snprintf(p, 128, "%s=%s", agent_environment_ca_names[i],
                 request->ca_file);
        count = agent_environment_put(list, count, p);
        p += strlen(p) + 1;
    }

    return count;
}


static int
agent_environment_file(const char *path)
{
    int      fd;
    char    *text;
    size_t   have;
    ssize_t  n;

    fd = open(path, O_RDONLY|O_CLOEXEC|O_NONBLOCK|O_NOFOLLOW);

    if (fd == -1) {
        if (errno != ENOENT) {
            agent_log("%s can't be opened: error %d", path, errno);
        }

        return 0;
    }

    text = malloc(AGENT_ENVIRONMENT_FILE + 1);
    if (text == NULL) {
        close(fd);
        return -1;
    }

    for (have = 0; have < AGENT_ENVIRONMENT_FILE; have += n) {
        n = read(fd, text + have, AGENT_ENVIRONMENT_FILE - have);
        if (n <= 0) {
            break;
        }
    }

    close(fd);

    if (have == AGENT_ENVIRONMENT_FILE) {
        agent_log("%s is longer than 64 KiB and is ignored; shorten it",
                  path);
        free(text);
        return 0;
    }

    text[have] = '\0';

    if (strlen(text) != have) {
        agent_log("%s has a NUL byte and is ignored", path);
        free(text);
        return 0;
    }

    agent_environment_text = text;
    agent_environment_lines(text);

    return 0;
}


static void
agent_environment_lines(char *text)
{
    char      *line, *end;
    unsigned   number;

    number = 0;

    for (line = text; *line != '\0'; line = end) {
        number++;
        end = strchr(line, '\n');

        if (end == NULL) {
            end = line + strlen(line);

        } else {
            *end++ = '\0';
        }

        if (*line == '\0' || *line == '#') {
            continue;
        }

        if (!agent_request_env_valid((uint8_t *) line, strlen(line))
            || agent_environment_add(line, 1) == -1)
        {
            agent_log("line %u of the base's environment is ignored",
                      number);
        }
    }
}


static int
agent_environment_add(char *entry, int replace)
{
    size_t  i, n;

    n = agent_environment_name(entry) + 1;

    for (i = 0; i < agent_environment_count; i++) {
        if (strncmp(agent_environment[i], entry, n) == 0) {
            if (replace) {
                agent_environment[i] = entry;
            }

            return 0;
        }
    }

    if (i == AGENT_ENVIRONMENT_NAMES) {
        return -1;
    }

    agent_environment[agent_environment_count++] = entry;

    return 0;
}


static int
agent_environment_inheritable(const char *entry)
{
    size_t  i, n;

    if (!agent_request_env_valid((const uint8_t *) entry, strlen(entry))) {
        return 0;
    }

    n = agent_environment_name(entry);

    for (i = 0; i < n; i++) {
        if (entry[i] >= 'a' && entry[i] <= 'z') {
            return 0;
        }
    }

    for (i = 0; i < sizeof(agent_environment_foreign) / sizeof(char *); i++) {
        if (strlen(agent_environment_foreign[i]) == n
            && memcmp(agent_environment_foreign[i], entry, n) == 0)
        {
            return 0;
        }
    }

    return 1;
}


/* in the place of one with that name, or at the end; how many there are */

static size_t
agent_environment_put(char **list, size_t count, char *entry)
{
    size_t  i, n;

    n = agent_environment_name(entry) + 1;

    for (i = 0; i < count; i++) {
        if (strncmp(list[i], entry, n) == 0) {
            list[i] = entry;
            return count;
        }
    }

    list[count] = entry;

    return count + 1;
}


/* Length of the name; entries without "=" don't get here. */

static size_t
agent_environment_name(const char *entry)
{
    return strchr(entry, '=') - entry;
}
