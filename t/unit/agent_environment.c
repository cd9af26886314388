/*
 * The environment of commands: which of defaults, base file, the agent's own
 * and the request's wins, and what never gets in.
 */

/* link: src/agent/agent_environment.c src/agent/agent_request.c */
/* link: src/agent/agent_log.c src/agent/agent_event.c */
/* link: src/wire/sandbox_wire.c */

#include <stdlib.h>
#include <unistd.h>

#include "agent.h"
#include "test.h"


static void without_file(void);
static void with_file(void);
static void of_request(void);
static void network(void);
static void own_way(void);
static void bad_files(void);
static const char *value(char **list, const char *name);
static void file(const char *text, size_t size);
static char **build(const agent_request_t *request);


static char  path[] = "/tmp/agent_environment.XXXXXX";
static char *nothing[] = { NULL };


int
main(void)
{
    int  fd;

    fd = mkstemp(path);
    close(fd);

    /* the log lines of refused files are not of interest */

    (void) !freopen("/dev/null", "w", stderr);

    without_file();
    with_file();
    of_request();
    network();
    own_way();
    bad_files();

    unlink(path);

    return test_done();
}


static void
without_file(void)
{
    char  **list;

    is_number(agent_environment_init("/nonexistent/env", nothing), 0,
              "no file is no failure");
    list = build(NULL);
    is_string(value(list, "HOME"), "/home/sandbox", "HOME");
    is_string(value(list, "USER"), "sandbox", "USER");
    is_string(value(list, "LOGNAME"), "sandbox", "LOGNAME");
    is_string(value(list, "SHELL"), "/bin/bash", "SHELL");
    is_string(value(list, "LANG"), "C.UTF-8", "LANG");
    is_string(value(list, "PATH"), "/usr/local/bin:/usr/bin:/bin", "PATH");
    free(list);
}


static void
with_file(void)
{
    char   *inherited[] = {
        "HOME=/root", "PATH=/sbin", "UV_OFFLINE=1", "OPENBLAS_NUM_THREADS=2",
        "container=crun", "LISTEN_FDS=4", "NOTIFY_SOCKET=/run/x", "PWD=/",
        "TERM=xterm", "HOSTNAME=h", "MPLBACKEND=Tk", "no equals sign",
        "WITH-DASH=1", "BASH_FUNC_x%%=() { :; }", "_=/agent", NULL
    };
    char  **list;

    static const char  text[] = "# comment\n\nPATH=/a:/b\nMPLBACKEND=Agg\n"
                                "BAD LINE\n=x\nEMPTY=\nEQ=a=b c\nLAST=1";

    file(text, sizeof(text) - 1);
    is_number(agent_environment_init(path, inherited), 0, "a file");
    list = build(NULL);
    is_string(value(list, "PATH"), "/a:/b", "the file wins over defaults");
    is_string(value(list, "HOME"), "/home/sandbox",
              "the runtime's HOME does not");
    is_string(value(list, "MPLBACKEND"), "Agg", "nor the agent's own");
    is_string(value(list, "UV_OFFLINE"), "1", "what is new gets in");
    is_string(value(list, "OPENBLAS_NUM_THREADS"), "2", "that, too");
    is_string(value(list, "EMPTY"), "", "an empty value");
    is_string(value(list, "EQ"), "a=b c", "a value with = and blank");
    is_string(value(list, "LAST"), "1", "a last line without its end");
    is_string(value(list, "container"), NULL, "no lower case names");
    is_string(value(list, "LISTEN_FDS"), NULL, "no LISTEN_FDS");
    is_string(value(list, "NOTIFY_SOCKET"), NULL, "no NOTIFY_SOCKET");
    is_string(value(list, "PWD"), NULL, "no PWD");
    is_string(value(list, "TERM"), NULL, "no TERM");
    is_string(value(list, "HOSTNAME"), NULL, "no HOSTNAME");
    is_string(value(list, "WITH-DASH"), NULL, "no bad names");
    is_string(value(list, "BAD LINE"), NULL, "no bad lines");
    free(list);
}


static void
of_request(void)
{
    int                 once;
    char              **list, **p;
    uint8_t             head[512];
    const char         *code, *detail;
    agent_request_t     request;
    sandbox_writer_t    w;

    sandbox_writer_init(&w, head, sizeof(head));
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND, "x");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "HOME=/tmp");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "HOM=short");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "NEW=1");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "NEW=2");
    code = agent_request_read(&request, SANDBOX_OPERATION_COMMAND, head,
                              w.pos - w.start, &detail);
    is_string(code, NULL, "a request with ENV");

    list = build(&request);
    is_string(value(list, "HOME"), "/tmp", "it replaces");
    is_string(value(list, "HOM"), "short", "a shorter name is another");
    is_string(value(list, "NEW"), "2", "the last one wins");
    once = 0;

    for (p = list; *p != NULL; p++) {
        once += strncmp(*p, "NEW=", 4) == 0 || strncmp(*p, "HOME=", 5) == 0;
    }

    is_number(once, 2, "each name once");
    free(list);

    list = build(NULL);
    is_string(value(list, "HOME"), "/home/sandbox", "and stays its own");
    free(list);
}


/* what the runner says of it replaces what was there, and goes again */

static void
network(void)
{
    char              **list, *inherited[] = { "SSL_CERT_FILE=/base", NULL };
    uint8_t             head[256];
    const char         *detail;
    agent_request_t     request;
    sandbox_writer_t    w;

    agent_environment_init("/nonexistent/env", inherited);

    agent_environment_network(0, "", NULL);
    list = build(NULL);
    is_string(value(list, "UV_OFFLINE"), "1", "no network: uv knows");
    is_string(value(list, "HTTPS_PROXY"), NULL, "and there is no proxy");
    is_string(value(list, "SSL_CERT_FILE"), "/base", "nor other certificates");
    free(list);

    agent_environment_network(1, "https://i/", "/ca");
    list = build(NULL);
    is_string(value(list, "UV_OFFLINE"), NULL, "a network");
    is_string(value(list, "HTTPS_PROXY"), "http://127.0.0.1:3128", "by proxy");
    is_string(value(list, "http_proxy"), "http://127.0.0.1:3128", "both ways");
    is_string(value(list, "NO_PROXY"), "localhost,127.0.0.1,::1", "but here");
    is_string(value(list, "ALL_PROXY"), NULL, "not for what is no https");
    is_string(value(list, "UV_DEFAULT_INDEX"), "https://i/", "its index");
    is_string(value(list, "SSL_CERT_FILE"), "/ca", "its certificates");
    is_string(value(list, "GIT_SSL_CAINFO"), "/ca", "for git, too");
    free(list);

    sandbox_writer_init(&w, head, sizeof(head));
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND, "x");
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "HTTPS_PROXY=mine");
    (void) agent_request_read(&request, SANDBOX_OPERATION_COMMAND, head,
                              w.pos - w.start, &detail);
    list = build(&request);
    is_string(value(list, "HTTPS_PROXY"), "mine", "a request's own wins");
    free(list);

    agent_environment_network(1, "", NULL);
    list = build(NULL);
    is_string(value(list, "UV_DEFAULT_INDEX"), NULL, "no index any more");
    is_string(value(list, "SSL_CERT_FILE"), "/base", "the base's certificates");
    free(list);

    agent_environment_network(0, "", NULL);
    list = build(NULL);
    is_string(value(list, "UV_OFFLINE"), "1", "and no network any more");
    free(list);
}


/* on an engine each command has its own, in place of what all others have */

static void
own_way(void)
{
    char              **list, index[SANDBOX_WIRE_MAX_INDEX + 1];
    char               *inherited[] = { "SSL_CERT_FILE=/base", NULL };
    uint8_t             head[4096];
    const char         *detail;
    agent_request_t     request;
    sandbox_writer_t    w;

    agent_environment_init("/nonexistent/env", inherited);
    agent_environment_network(0, "", NULL);

    sandbox_writer_init(&w, head, sizeof(head));
    sandbox_write_string(&w, SANDBOX_TAG_COMMAND, "x");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_PROXY, "10.87.0.1:3128");
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_TOKEN, "abc:123");
    is_string(agent_request_read(&request, SANDBOX_OPERATION_COMMAND, head,
                                 w.pos - w.start, &detail), NULL, "a way out");
    list = build(&request);
    is_string(value(list, "UV_OFFLINE"), NULL, "there is a network");
    is_string(value(list, "HTTPS_PROXY"), "http://abc:123@10.87.0.1:3128",
              "by this proxy");
    is_string(value(list, "http_proxy"), "http://abc:123@10.87.0.1:3128",
              "for all of them");
    is_string(value(list, "NO_PROXY"), "localhost,127.0.0.1,::1", "but here");
    is_string(value(list, "GIT_HTTP_PROXY_AUTHMETHOD"), "basic",
              "git does not ask first");
    is_string(value(list, "UV_DEFAULT_INDEX"), NULL, "no index");
    is_string(value(list, "SSL_CERT_FILE"), "/base", "the base's certificates");
    free(list);

    /* all as long as it may be, and what the request sets wins */

    memset(index, 'i', SANDBOX_WIRE_MAX_INDEX);
    index[SANDBOX_WIRE_MAX_INDEX] = '\0';
    sandbox_write_string(&w, SANDBOX_TAG_EGRESS_INDEX, index);
    sandbox_write_string(&w, SANDBOX_TAG_ENV, "http_proxy=mine");
    is_string(agent_request_read(&request, SANDBOX_OPERATION_COMMAND, head,
                                 w.pos - w.start, &detail), NULL, "with more");
    request.ca_file = "/etc/ssl/sandbox/ca-certificates.crt";
    list = build(&request);
    is_string(value(list, "UV_DEFAULT_INDEX"), index, "its index");
    is_string(value(list, "GIT_SSL_CAINFO"), request.ca_file,
              "its certificates");
    is_string(value(list, "http_proxy"), "mine", "a request's own wins");
    is_string(value(list, "HTTP_PROXY"), "http://abc:123@10.87.0.1:3128",
              "where it says something");
    free(list);

    list = build(NULL);
    is_string(value(list, "UV_OFFLINE"), "1", "another command has none");
    is_string(value(list, "HTTPS_PROXY"), NULL, "nor its proxy");
    free(list);
}


static void
bad_files(void)
{
    char   *text, **list;

    file("PATH=/x\0HOME=/y\n", 16);
    agent_environment_init(path, nothing);
    list = build(NULL);
    is_string(value(list, "PATH"), "/usr/local/bin:/usr/bin:/bin",
              "a file with NUL is ignored");
    free(list);

    text = malloc(70000);
    memset(text, 'x', 70000);
    memcpy(text, "PATH=/x\nA=", 10);
    file(text, 70000);
    free(text);
    agent_environment_init(path, nothing);
    list = build(NULL);
    is_string(value(list, "PATH"), "/usr/local/bin:/usr/bin:/bin",
              "a file over 64 KiB is ignored");
    free(list);

    text = malloc(8000);
    *text = '\0';

    for (int i = 0; i < 400; i++) {
        sprintf(text + strlen(text), "V%d=1\n", i);
    }

    file(text, strlen(text));
    free(text);
    is_number(agent_environment_init(path, nothing), 0, "400 names");
    list = build(NULL);
    is_string(value(list, "V0"), "1", "the first of them is there");
    is_string(value(list, "V399"), NULL, "beyond 256 there is no room");
    free(list);
}


static const char *
value(char **list, const char *name)
{
    size_t  n;

    n = strlen(name);

    for ( /* void */ ; *list != NULL; list++) {
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=') {
            return *list + n + 1;
        }
    }

    return NULL;
}


static void
file(const char *text, size_t size)
{
    FILE  *f;

    f = fopen(path, "w");
    fwrite(text, 1, size, f);
    fclose(f);
}


static char **
build(const agent_request_t *request)
{
    agent_request_t  none;

    memset(&none, 0, sizeof(none));

    return agent_environment_build(request != NULL ? request : &none);
}
