/*
 * sandboxctl doctor: what this host lacks, and the remedy.  What a sandbox
 * needs of the kernel only the runner knows; it is asked to run one.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* nftw(), asprintf() */
#endif

#include "ctl.h"
#include "client.h"
#include "doctor.h"
#include "process.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>


#define CTL_BASE        "/var/cache/sandbox/base/current/rootfs"
#define CTL_PROBE_WAIT  120                      /* seconds */
#define CTL_NGINX_WAIT  20                       /* seconds */

#define CTL_NGINX_MAJOR  1
#define CTL_NGINX_MINOR  22


typedef struct {
    ctl_connection_t   connection;
    ctl_values_t       runner_value;
    ctl_values_t       agent_value;
    ctl_values_t       base_value;
    ctl_values_t       module_value;
    ctl_values_t       nginx_value;
    ctl_doctor_dagger_t  dagger;

    char               runner[PATH_MAX];
    char               agent[PATH_MAX];
    char               base[PATH_MAX];
    char               module[PATH_MAX];
    char               nginx[PATH_MAX];
    char               scratch[64];              /* a directory of ours */
} ctl_doctor_t;


static void ctl_doctor_paths(ctl_doctor_t *doctor);
static void ctl_doctor_find(char *path, const ctl_values_t *value,
    const char *name, const char *installed);
static int ctl_doctor_files(const ctl_doctor_t *doctor);
static int ctl_doctor_probe(const ctl_doctor_t *doctor);
static int ctl_doctor_nginx(const ctl_doctor_t *doctor);
static int ctl_doctor_module(const ctl_doctor_t *doctor);
static int ctl_doctor_gateway(const ctl_doctor_t *doctor);
static int ctl_doctor_egress(const ctl_doctor_t *doctor);
static void ctl_doctor_output(const char *output);
static int ctl_doctor_remove(const char *path, const struct stat *st, int type,
    struct FTW *where);


int
ctl_doctor(int argc, char **argv)
{
    int  rc, failed;

    static ctl_doctor_t  doctor;

    static const ctl_option_t  options[] = {
        CTL_CONNECTION(&doctor.connection),
        { "runner", "PATH", "sandbox-runner (the one beside sandboxctl)", 1,
          &doctor.runner_value, 0 },
        { "agent", "PATH", "sandbox-agent (the one beside sandboxctl)", 1,
          &doctor.agent_value, 0 },
        { "base", "DIR", "(" CTL_BASE ")", 1, &doctor.base_value, 0 },
        { "module", "PATH", "the nginx module (beside sandboxctl)", 1,
          &doctor.module_value, 0 },
        { "nginx", "PATH", "nginx (/usr/sbin/nginx)", 1, &doctor.nginx_value,
          0 },
        { "dagger", "ENGINE", "looks at an engine instead of a container here",
          CTL_HOST_ENGINES, &doctor.dagger.engines, 0 },
        { "socket", "PATH", "of sandbox-runner --dagger (" CTL_OWNER_SOCKET
          ")", 1, &doctor.dagger.owner.socket, 0 },
        { "key-file", "FILE", "its key (" CTL_HOST_KEY ")", 1,
          &doctor.dagger.owner.key, 0 },
        { "image", "NAME", "that engines pull (" CTL_IMAGE ")", 1,
          &doctor.dagger.image, 0 },
        { "digest", "FILE", "of the image (" CTL_IMAGE_DIGEST ")", 1,
          &doctor.dagger.digest, 0 },
        { "resolver", "ADDR", "as resolver= of \"sandbox_dagger\"", 1,
          &doctor.dagger.resolver, 0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "doctor [options]",
        .about = "Checks this host, runs one container, loads the module, "
                 "asks the gateway where\nits URL is known. A line each, ok "
                 "or FAIL with the remedy; exits with 1 on a FAIL.\n"
                 "With --dagger, or " CTL_ENGINE_VARIABLE ",\n"
                 "it asks engine, owner of sessions and registry instead of "
                 "running a container.\n",
        .options = options,
        .min = 0,
        .max = 0
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    ctl_doctor_paths(&doctor);

    strcpy(doctor.scratch, "/tmp/sandboxctl.XXXXXX");

    if (mkdtemp(doctor.scratch) == NULL) {
        ctl_fault("can't make a directory in /tmp: %s", strerror(errno));
        return CTL_FAULT;
    }

    if (ctl_doctor_dagger_wanted(&doctor.dagger)) {
        failed = ctl_doctor_dagger(&doctor.dagger,
                                   ctl_value(&doctor.connection.state, NULL));

    } else {
        failed = ctl_doctor_files(&doctor);

        /* without them the probe could only say so again */

        if (!failed) {
            failed |= ctl_doctor_probe(&doctor);
        }
    }

    failed |= ctl_doctor_nginx(&doctor);
    failed |= ctl_doctor_gateway(&doctor);

    nftw(doctor.scratch, ctl_doctor_remove, 8, FTW_DEPTH|FTW_PHYS|FTW_MOUNT);

    return failed ? CTL_FAULT : CTL_OK;
}


static void
ctl_doctor_paths(ctl_doctor_t *doctor)
{
    ctl_doctor_find(doctor->runner, &doctor->runner_value, "sandbox-runner",
                    "/usr/sbin/sandbox-runner");
    ctl_doctor_find(doctor->agent, &doctor->agent_value, "sandbox-agent",
                    "/usr/lib/sandbox/sandbox-agent");
    ctl_doctor_find(doctor->module, &doctor->module_value,
                    "ngx_http_sandbox_module.so",
                    "/usr/lib/nginx/modules/ngx_http_sandbox_module.so");

    snprintf(doctor->base, PATH_MAX, "%s",
             ctl_value(&doctor->base_value, CTL_BASE));
    snprintf(doctor->nginx, PATH_MAX, "%s",
             ctl_value(&doctor->nginx_value, "/usr/sbin/nginx"));
}


/*
 * As given, else beside this program, else where a package puts it; the
 * second where it is nowhere, for there `make` puts it.
 */

static void
ctl_doctor_find(char *path, const ctl_values_t *value, const char *name,
    const char *installed)
{
    char     *slash;
    ssize_t   n;

    if (value->n > 0) {
        if (realpath(value->value[0], path) == NULL) {
            snprintf(path, PATH_MAX, "%s", value->value[0]);
        }

        return;
    }

    n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');

    if (slash != NULL
        && (size_t) (slash + 1 - path) + strlen(name) < PATH_MAX)
    {
        strcpy(slash + 1, name);

        if (access(path, F_OK) == 0 || access(installed, F_OK) == -1) {
            return;
        }
    }

    snprintf(path, PATH_MAX, "%s", installed);
}


static int
ctl_doctor_files(const ctl_doctor_t *doctor)
{
    int          failed;
    struct stat  st;

    failed = 0;

    if (stat(doctor->base, &st) == -1 || !S_ISDIR(st.st_mode)) {
        failed |= ctl_doctor_line(0, "base image: there is no %s; make it: "
                                  "make base (as root)", doctor->base);

    } else {
        ctl_doctor_line(1, "base image: %s", doctor->base);
    }

    if (access(doctor->agent, X_OK) == -1) {
        failed |= ctl_doctor_line(0, "agent: there is no %s; build it (make) "
                                  "or name it (--agent)", doctor->agent);

    } else {
        ctl_doctor_line(1, "agent: %s", doctor->agent);
    }

    if (access(doctor->runner, X_OK) == -1) {
        failed |= ctl_doctor_line(0, "runner: there is no %s; build it (make) "
                                  "or name it (--runner)", doctor->runner);
    }

    return failed;
}


static int
ctl_doctor_probe(const ctl_doctor_t *doctor)
{
    int          status, failed;
    char        *output;
    const char  *argv[9];

    if (geteuid() != 0) {
        return ctl_doctor_line(0, "runner: only root can run a container; "
                               "call doctor as root");
    }

    argv[0] = doctor->runner;
    argv[1] = "--probe";
    argv[2] = "--base";
    argv[3] = doctor->base;
    argv[4] = "--agent";
    argv[5] = doctor->agent;
    argv[6] = "--state";
    argv[7] = doctor->scratch;
    argv[8] = NULL;

    status = ctl_process(argv, CTL_PROBE_WAIT, &output);

    if (status == 0) {
        ctl_doctor_line(1, "runner: a container ran");
        failed = 0;

    } else if (status == 124) {
        failed = ctl_doctor_line(0, "runner: the probe did not end within "
                                 "%d s; its last words are below",
                                 CTL_PROBE_WAIT);

    } else {
        failed = ctl_doctor_line(0, "runner: this host can't run a sandbox "
                                 "(status %d); the reason and the remedy:",
                                 status);
    }

    if (output != NULL) {
        ctl_doctor_output(output);
    }

    free(output);

    return failed;
}


static int
ctl_doctor_nginx(const ctl_doctor_t *doctor)
{
    int          status, good;
    char        *output, *p;
    unsigned     major, minor;
    const char  *argv[3];

    argv[0] = doctor->nginx;
    argv[1] = "-v";
    argv[2] = NULL;

    status = ctl_process(argv, CTL_NGINX_WAIT, &output);
    p = status == 0 ? strstr(output, "nginx/") : NULL;

    if (p == NULL) {
        free(output);
        return ctl_doctor_line(0, "nginx: %s does not run; install it: "
                               "apt-get install nginx", doctor->nginx);
    }

    p[strcspn(p, " \r\n")] = '\0';

    good = sscanf(p, "nginx/%u.%u", &major, &minor) == 2
           && (major > CTL_NGINX_MAJOR
               || (major == CTL_NGINX_MAJOR && minor >= CTL_NGINX_MINOR));

    if (!good) {
        ctl_doctor_line(0, "nginx: %s is too old, %d.%d or later is needed", p,
                        CTL_NGINX_MAJOR, CTL_NGINX_MINOR);
        free(output);
        return 1;
    }

    ctl_doctor_line(1, "nginx: %s", p);
    free(output);

    return ctl_doctor_module(doctor);
}


/* nginx itself says best whether it takes the module. */

static int
ctl_doctor_module(const ctl_doctor_t *doctor)
{
    int          status, failed;
    char         name[PATH_MAX], *output;
    FILE        *conf;
    const char  *argv[6], *dir;

    if (access(doctor->module, R_OK) == -1) {
        return ctl_doctor_line(0, "module: there is no %s; build it (make) or "
                               "name it (--module)", doctor->module);
    }

    dir = doctor->scratch;
    snprintf(name, sizeof(name), "%s/nginx.conf", dir);
    conf = fopen(name, "we");

    if (conf == NULL) {
        return ctl_doctor_line(0, "module: can't write %s: %s", name,
                               strerror(errno));
    }

    fprintf(conf, "load_module \"%s\";\n"
                  "pid %s/nginx.pid;\n"
                  "events { }\n"
                  "http {\n"
                  "    access_log off;\n"
                  "    client_body_temp_path %s/body;\n"
                  "    proxy_temp_path %s/proxy;\n"
                  "    fastcgi_temp_path %s/fastcgi;\n"
                  "    uwsgi_temp_path %s/uwsgi;\n"
                  "    scgi_temp_path %s/scgi;\n"
                  "}\n",
            doctor->module, dir, dir, dir, dir, dir, dir);
    fclose(conf);

    argv[0] = doctor->nginx;
    argv[1] = "-tq";
    argv[2] = "-c";
    argv[3] = name;
    argv[4] = "-gerror_log stderr;";
    argv[5] = NULL;

    status = ctl_process(argv, CTL_NGINX_WAIT, &output);

    if (status == 0) {
        ctl_doctor_line(1, "module: %s loads", doctor->module);
        failed = 0;

    } else {
        failed = ctl_doctor_line(0, "module: nginx does not load %s; build it "
                                 "against this nginx (make clean all)",
                                 doctor->module);

        if (output != NULL) {
            ctl_doctor_output(output);
        }
    }

    free(output);

    return failed;
}


static int
ctl_doctor_gateway(const ctl_doctor_t *doctor)
{
    int            failed;
    json_t        *health;
    const char    *status;
    ctl_reply_t    reply;
    ctl_client_t   client;

    if (!ctl_client_known(&doctor->connection)) {
        return 0;
    }

    memset(&reply, 0, sizeof(ctl_reply_t));
    health = NULL;

    if (ctl_client_open(&client, &doctor->connection, 1) == 0
        && ctl_client_call(&client, "GET", "health", NULL, CTL_REPLY_WAIT,
                           &reply) == 0)
    {
        health = ctl_reply_object(&reply);
    }

    status = json_string_value(json_object_get(health, "status"));

    if (status == NULL) {
        failed = ctl_doctor_line(0, "gateway: it does not answer, see above; "
                                 "start nginx, or give another --url");

    } else if (strcmp(status, "ready") == 0) {
        ctl_doctor_line(1, "gateway: %s is ready", client.url);
        failed = ctl_doctor_egress(doctor);

    } else if (strcmp(status, "disabled") == 0) {
        failed = ctl_doctor_line(0, "gateway: %s is disabled; \"sandbox on\", "
                                 "or ARCHESTRA_CODE_RUNTIME_ENABLED=true where "
                                 "it says \"sandbox env\"", client.url);

    } else {
        failed = ctl_doctor_line(0, "gateway: %s is %s; start sandbox-runner, "
                                 "and compare socket and key of both sides",
                                 client.url, status);
    }

    json_decref(health);
    ctl_reply_free(&reply);
    ctl_client_close(&client);

    return failed;
}


/* Where there is a token, whether the network it should have is there. */

static int
ctl_doctor_egress(const ctl_doctor_t *doctor)
{
    int            failed;
    json_t        *limits, *egress;
    const char    *policy, *route;
    ctl_reply_t    reply;
    ctl_client_t   client;

    if (!ctl_client_token_known(&doctor->connection)
        || ctl_client_open(&client, &doctor->connection, 0) == -1)
    {
        return 0;
    }

    memset(&reply, 0, sizeof(ctl_reply_t));
    limits = NULL;

    if (ctl_client_call(&client, "GET", "v1/limits", NULL, CTL_REPLY_WAIT,
                        &reply)
        == 0)
    {
        limits = ctl_reply_object(&reply);
    }

    egress = json_object_get(limits, "egress");
    policy = json_string_value(json_object_get(egress, "policy"));
    route = json_string_value(json_object_get(limits, "route"));
    failed = 0;

    if (route != NULL) {
        ctl_doctor_line(1, "route: the gateway uses \"%.16s\" now, as its "
                        "v1/limits says", route);
    }

    if (policy != NULL && json_is_true(json_object_get(egress, "inForce"))) {
        ctl_doctor_line(1, "network: policy \"%.64s\" is in force", policy);

    } else if (policy != NULL) {
        failed = ctl_doctor_line(0, "network: policy \"%.64s\" is not in "
                                 "force: the runner has not taken over the "
                                 "policies; the error log of nginx says why",
                                 policy);

    } else if (limits != NULL) {
        ctl_doctor_line(1, "network: none for the user of this token");
    }

    json_decref(limits);
    ctl_reply_free(&reply);
    ctl_client_close(&client);

    return failed;
}


int
ctl_doctor_line(int good, const char *fmt, ...)
{
    va_list  args;

    printf("%s  ", good ? "ok  " : "FAIL");

    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);

    putchar('\n');
    fflush(stdout);

    return !good;
}


/* What a program said, indented, without control characters. */

static void
ctl_doctor_output(const char *output)
{
    int  start;

    start = 1;

    for ( /* void */ ; *output != '\0'; output++) {
        if (start && *output != '\n') {
            fputs("        ", stdout);
            start = 0;
        }

        if (*output == '\n') {
            if (!start) {
                putchar('\n');
            }

            start = 1;
            continue;
        }

        putchar((unsigned char) *output < 0x20 || *output == 0x7f ? ' '
                                                                  : *output);
    }

    if (!start) {
        putchar('\n');
    }

    fflush(stdout);
}


static int
ctl_doctor_remove(const char *path, const struct stat *st, int type,
    struct FTW *where)
{
    if (remove(path) == -1 && errno != ENOENT) {
        ctl_fault("can't remove %s: %s", path, strerror(errno));
    }

    return 0;
}
