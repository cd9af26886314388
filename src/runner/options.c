/*
 * The command line.  Knows defaults and bounds of every setting, not what is
 * done with it.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "file.h"
#include "key.h"
#include "log.h"
#include "options.h"


enum {
    OPTION_SOCKET = 256, OPTION_KEY_FILE, OPTION_STATE, OPTION_BASE,
    OPTION_AGENT, OPTION_EPHEMERAL, OPTION_POOL, OPTION_RUNNING, OPTION_QUEUE,
    OPTION_PEER_USER, OPTION_SOCKET_GROUP, OPTION_RUNTIME, OPTION_RUNTIME_DIR,
    OPTION_MEMORY, OPTION_DISK, OPTION_PROCESSES, OPTION_LISTEN_FD,
    OPTION_LOG_LEVEL, OPTION_PROBE, OPTION_SANDBOXES, OPTION_PER_TENANT,
    OPTION_IDLE, OPTION_EXPIRE, OPTION_RUN_GRACE, OPTION_CPUS, OPTION_RESERVE,
    OPTION_EGRESS, OPTION_DAGGER, OPTION_MAKE_KEY, OPTION_HELP, OPTION_VERSION
};


static int runner_option(runner_options_t *options, int option,
    const char *name, runner_error_t *err);
static int runner_option_base(runner_options_t *options, runner_error_t *err);
static int runner_option_number(runner_options_t *options, int option,
    const char *name, runner_error_t *err);
static int runner_option_local(int option);
static int runner_options_activation(runner_options_t *options,
    runner_error_t *err);
static int runner_options_dagger(runner_options_t *options,
    runner_error_t *err);
static int runner_options_check(runner_options_t *options,
    runner_error_t *err);


static const struct option  runner_long_options[] = {
    { "socket",       required_argument, NULL, OPTION_SOCKET },
    { "key-file",     required_argument, NULL, OPTION_KEY_FILE },
    { "state",        required_argument, NULL, OPTION_STATE },
    { "base",         required_argument, NULL, OPTION_BASE },
    { "agent",        required_argument, NULL, OPTION_AGENT },
    { "ephemeral",    no_argument,       NULL, OPTION_EPHEMERAL },
    { "pool",         required_argument, NULL, OPTION_POOL },
    { "running",      required_argument, NULL, OPTION_RUNNING },
    { "queue",        required_argument, NULL, OPTION_QUEUE },
    { "peer-user",    required_argument, NULL, OPTION_PEER_USER },
    { "socket-group", required_argument, NULL, OPTION_SOCKET_GROUP },
    { "runtime",      required_argument, NULL, OPTION_RUNTIME },
    { "runtime-dir",  required_argument, NULL, OPTION_RUNTIME_DIR },
    { "memory",       required_argument, NULL, OPTION_MEMORY },
    { "disk",         required_argument, NULL, OPTION_DISK },
    { "processes",    required_argument, NULL, OPTION_PROCESSES },
    { "listen-fd",    required_argument, NULL, OPTION_LISTEN_FD },
    { "log-level",    required_argument, NULL, OPTION_LOG_LEVEL },
    { "probe",        no_argument,       NULL, OPTION_PROBE },
    { "sandboxes",    required_argument, NULL, OPTION_SANDBOXES },
    { "per-tenant",   required_argument, NULL, OPTION_PER_TENANT },
    { "idle",         required_argument, NULL, OPTION_IDLE },
    { "expire",       required_argument, NULL, OPTION_EXPIRE },
    { "run-grace",    required_argument, NULL, OPTION_RUN_GRACE },
    { "cpus",         required_argument, NULL, OPTION_CPUS },
    { "reserve",      required_argument, NULL, OPTION_RESERVE },
    { "dagger",       optional_argument, NULL, OPTION_DAGGER },
    { "egress",       required_argument, NULL, OPTION_EGRESS },
    { "egress-user",  required_argument, NULL, OPTION_EGRESS },
    { "egress-resolver", required_argument, NULL, OPTION_EGRESS },
    { "egress-allow-address", required_argument, NULL, OPTION_EGRESS },
    { "egress-allow-port", required_argument, NULL, OPTION_EGRESS },
    { "egress-listen", required_argument, NULL, OPTION_EGRESS },
    { "make-key",     required_argument, NULL, OPTION_MAKE_KEY },
    { "help",         no_argument,       NULL, OPTION_HELP },
    { "version",      no_argument,       NULL, OPTION_VERSION },
    { NULL,           0,                 NULL, 0 }
};


/* every option that is a number, with its bounds */

static const struct {
    int       option;
    unsigned  min;
    unsigned  max;
    size_t    offset;
} runner_numbers[] = {
    { OPTION_LISTEN_FD,  3, 1024, offsetof(runner_options_t, listen_fd) },
    { OPTION_POOL,       0, 256, offsetof(runner_options_t, pool) },
    { OPTION_RUNNING,    1, 10000, offsetof(runner_options_t, running) },
    { OPTION_QUEUE,      0, 100000, offsetof(runner_options_t, queue) },
    { OPTION_SANDBOXES,  1, RUNNER_MAX_SANDBOXES,
      offsetof(runner_options_t, sandboxes) },
    { OPTION_PER_TENANT, 1, RUNNER_MAX_SANDBOXES,
      offsetof(runner_options_t, per_tenant) },
    { OPTION_IDLE,       1, 2592000, offsetof(runner_options_t, idle) },
    { OPTION_EXPIRE,     0, 315360000, offsetof(runner_options_t, expire) },
    { OPTION_RUN_GRACE,  1, 3600, offsetof(runner_options_t, run_grace) },
    { OPTION_MEMORY,     SANDBOX_WIRE_MIN_MEMORY, SANDBOX_WIRE_MAX_MEMORY,
      offsetof(runner_options_t, memory) },
    { OPTION_DISK,       SANDBOX_WIRE_MIN_DISK, SANDBOX_WIRE_MAX_DISK,
      offsetof(runner_options_t, disk) },
    { OPTION_PROCESSES,  SANDBOX_WIRE_MIN_PROCESSES,
      SANDBOX_WIRE_MAX_PROCESSES, offsetof(runner_options_t, processes) },
    { OPTION_CPUS,       1, 1024, offsetof(runner_options_t, cpus) },
    { OPTION_RESERVE,    0, 1048576, offsetof(runner_options_t, reserve) }
};


static const char  runner_usage[] =
    "usage: sandbox-runner --socket PATH --key-file FILE --state DIR\n"
    "                      --base DIR --agent FILE [options]\n"
    "\n"
    "  --socket PATH        where nginx connects\n"
    "  --key-file FILE      64 hex digits, root's, mode 0600\n"
    "  --state DIR          disks and records of the sandboxes\n"
    "  --base DIR           root file system below every sandbox\n"
    "  --base NAME=DIR      another one, for \"sandbox_base NAME\" of nginx;\n"
    "                       may be repeated\n"
    "  --agent FILE         the static sandbox-agent\n"
    "  --listen-fd N        a listening socket that was passed, as systemd\n"
    "                       does by LISTEN_FDS; --socket then is its path\n"
    "  --peer-user NAME     who may connect besides root; may be repeated\n"
    "  --socket-group NAME  group of the socket, mode 0660\n"
    "  --runtime NAME       crun, runc, or a path     (crun, then runc)\n"
    "  --runtime-dir DIR    sockets and pids          (/run/sandbox/HASH)\n"
    "  --pool N             sandboxes kept ready      (4)\n"
    "  --running N          commands at once          (10)\n"
    "  --queue N            commands that wait        (200)\n"
    "  --sandboxes N        containers at once        (1000)\n"
    "  --per-tenant N       of them of one tenant     (100)\n"
    "  --idle SECONDS       then a container stops    (600)\n"
    "  --expire SECONDS     unused: removed, 0: never (0)\n"
    "  --run-grace SECONDS  beyond the longest command, then an agent that\n"
    "                       keeps its run slot is ended; longer with disks\n"
    "                       of more than 256 MiB      (60)\n"
    "  --dagger [ADDRESS]   makes no containers: holds the session of an\n"
    "                       engine, tcp://HOST:PORT or unix:///PATH; may be\n"
    "                       repeated; without any address that of\n"
    "                       " RUNNER_DAGGER_VARIABLE ";\n"
    "                       takes --socket (" RUNNER_DAGGER_SOCKET "),\n"
    "                       --key-file (" RUNNER_DAGGER_KEY "), who\n"
    "                       may connect, --egress..., --log-level, and\n"
    "                       nothing else\n"
    "  --memory MiB         of a sandbox              (1024)\n"
    "  --disk MiB           of a sandbox              (1024)\n"
    "  --processes N        of a sandbox              (256)\n"
    "  --cpus N             of a sandbox              (2, or all)\n"
    "  --reserve MiB        stays free below --state  (256)\n"
    "  --egress FILE        the proxy   (sandbox-egress beside the runner)\n"
    "  --egress-user NAME   whom it runs as           (sandbox-egress, or an\n"
    "                       id that nobody has)\n"
    "  --egress-resolver ADDRESS[:PORT][,...]         (/etc/resolv.conf)\n"
    "  --egress-allow-address ADDRESS[/BITS]  a private one that names may\n"
    "                       lead to, such as a mirror; may be repeated\n"
    "  --egress-allow-port N  beside 443; may be repeated\n"
    "  --egress-listen ADDRESS:PORT  with --dagger: where its containers\n"
    "                       reach the proxy; repeated: one for each engine\n"
    "  --ephemeral          everything ends with the runner\n"
    "  --make-key FILE      make the key file if it is not there, exit\n"
    "  --probe              check this host, run one container, exit\n"
    "  --log-level LEVEL    error, warn, notice, info, debug  (notice)\n";


int
runner_options_read(runner_options_t *options, int argc, char **argv,
    runner_error_t *err)
{
    int          option, index, rc;
    long         cpus;
    const char  *local;

    memset(options, 0, sizeof(*options));

    cpus = sysconf(_SC_NPROCESSORS_ONLN);
    local = NULL;

    options->listen_fd = -1;
    options->group = (gid_t) -1;
    options->pool = 4;
    options->running = 10;
    options->queue = 200;
    options->sandboxes = 1000;
    options->per_tenant = 100;
    options->idle = 600;
    options->run_grace = 60;
    options->memory = 1024;
    options->disk = 1024;
    options->processes = 256;
    options->reserve = 256;
    options->cpus = cpus < 2 ? 1 : 2;

    opterr = 0;
    optind = 1;

    for ( ;; ) {
        index = 0;
        option = getopt_long(argc, argv, "", runner_long_options, &index);

        if (option == -1) {
            break;
        }

        if (option == '?') {
            return runner_error(err, "bad_option", 0, "option \"%s\" is "
                                "unknown or has no value; see --help",
                                argv[optind - 1]);
        }

        /* "--dagger ADDRESS" as with other options, but also none */

        if (option == OPTION_DAGGER && optarg == NULL && optind < argc
            && strncmp(argv[optind], "--", 2) != 0)
        {
            optarg = argv[optind++];
        }

        if (local == NULL && runner_option_local(option)) {
            local = runner_long_options[index].name;
        }

        rc = runner_option(options, option, runner_long_options[index].name,
                           err);
        if (rc != 0) {
            return rc;
        }
    }

    if (optind != argc) {
        return runner_error(err, "bad_option", 0, "\"%s\" is not an option; "
                            "see --help", argv[optind]);
    }

    if (options->owner && local) {
        return runner_error(err, "bad_option", 0, "--%s is for sandboxes of "
                            "this host; with --dagger engines make them, and "
                            "it would have no effect.  Remedy: leave it out; "
                            "sandbox-runner without --dagger is another "
                            "daemon, with a socket of its own", local);
    }

    if (runner_options_activation(options, err) == -1
        || (options->owner && runner_options_dagger(options, err) == -1))
    {
        return -1;
    }

    return runner_options_check(options, err);
}


static int
runner_option(runner_options_t *options, int option, const char *name,
    runner_error_t *err)
{
    int             level;
    struct group   *group;
    struct passwd  *user;

    switch (option) {

    case OPTION_SOCKET:
        options->socket = optarg;
        return 0;

    case OPTION_KEY_FILE:
        options->key_file = optarg;
        return 0;

    case OPTION_STATE:
        options->state = optarg;
        return 0;

    case OPTION_BASE:
        return runner_option_base(options, err);

    case OPTION_AGENT:
        options->agent = optarg;
        return 0;

    case OPTION_RUNTIME:
        options->runtime = optarg;
        return 0;

    case OPTION_EPHEMERAL:
        options->ephemeral = 1;
        return 0;

    case OPTION_PROBE:
        options->probe = 1;
        return 0;

    case OPTION_RUNTIME_DIR:
        if (optarg[0] != '/' || strlen(optarg) >= PATH_MAX / 2) {
            return runner_error(err, "bad_option", 0, "--runtime-dir \"%s\" "
                                "must be an absolute path", optarg);
        }

        strcpy(options->runtime_dir, optarg);
        return 0;

    case OPTION_LOG_LEVEL:
        level = runner_log_level(optarg);

        if (level == -1) {
            return runner_error(err, "bad_option", 0, "--log-level \"%s\" is "
                                "none of error, warn, notice, info, debug",
                                optarg);
        }

        runner_log_set_level(level);
        return 0;

    case OPTION_PEER_USER:
        user = getpwnam(optarg);

        if (user == NULL || options->npeers == RUNNER_MAX_PEERS) {
            return runner_error(err, "bad_option", 0, "--peer-user \"%s\": %s",
                                optarg, user ? "too many of them"
                                             : "there is no such user");
        }

        options->peers[options->npeers++] = user->pw_uid;
        return 0;

    case OPTION_SOCKET_GROUP:
        group = getgrnam(optarg);

        if (group == NULL) {
            return runner_error(err, "bad_option", 0, "--socket-group "
                                "\"%s\": there is no such group", optarg);
        }

        options->group = group->gr_gid;
        return 0;

    case OPTION_EGRESS:
        return runner_option_egress(options, name, optarg, err);

    case OPTION_DAGGER:
        options->owner = 1;

        if (optarg == NULL) {
            return 0;
        }

        if (options->ndagger == DAGGER_MAX_ENGINES) {
            return runner_error(err, "bad_option", 0, "--dagger stands there "
                                "more than %d times", DAGGER_MAX_ENGINES);
        }

        options->dagger[options->ndagger++] = optarg;
        return 0;

    case OPTION_MAKE_KEY:
        return runner_key_make(optarg, err) == -1 ? -1 : 1;

    case OPTION_VERSION:
        printf("sandbox-runner " RUNNER_VERSION "\n");
        return 1;

    case OPTION_HELP:
        fputs(runner_usage, stdout);
        return 1;

    default:
        return runner_option_number(options, option, name, err);
    }
}


/* whether it says something about containers that this daemon makes */

static int
runner_option_local(int option)
{
    switch (option) {

    case OPTION_SOCKET:
    case OPTION_KEY_FILE:
    case OPTION_LISTEN_FD:
    case OPTION_PEER_USER:
    case OPTION_SOCKET_GROUP:
    case OPTION_LOG_LEVEL:
    case OPTION_EGRESS:
    case OPTION_DAGGER:
    case OPTION_MAKE_KEY:
    case OPTION_HELP:
    case OPTION_VERSION:
        return 0;

    default:
        return 1;
    }
}


/* DIR is that of "default"; what is before a "=" and no path is a name */

static int
runner_option_base(runner_options_t *options, runner_error_t *err)
{
    char                  *end;
    size_t                 length;
    unsigned               i, number;
    runner_option_base_t  *base, *other;

    if (options->nbases == RUNNER_MAX_BASES) {
        return runner_error(err, "bad_option", 0, "--base stands there more "
                            "than %d times", RUNNER_MAX_BASES);
    }

    base = &options->bases[options->nbases];
    end = strchr(optarg, '=');
    length = end ? (size_t) (end - optarg) : 0;

    if (end == NULL || memchr(optarg, '/', length) != NULL) {
        strcpy(base->name, "default");
        base->dir = optarg;

    } else if (sandbox_command_id_valid((uint8_t *) optarg, length)) {
        memcpy(base->name, optarg, length);
        base->name[length] = '\0';
        base->dir = end + 1;

    } else {
        return runner_error(err, "bad_option", 0, "the name in --base \"%s\" "
                            "must be 1 to %d of A-Z a-z 0-9 . _ -", optarg,
                            SANDBOX_WIRE_MAX_COMMAND_ID);
    }

    number = sandbox_base_number(base->name, strlen(base->name));

    for (i = 0; i < options->nbases; i++) {
        other = &options->bases[i];

        if (strcmp(other->name, base->name) == 0) {
            return runner_error(err, "bad_option", 0, "--base \"%s\": there "
                                "is another one of that name", base->name);
        }

        if (sandbox_base_number(other->name, strlen(other->name)) == number) {
            return runner_error(err, "bad_option", 0, "--base: nginx can't "
                                "tell \"%s\" from \"%s\", both names have "
                                "the number %u.  Remedy: rename one of them",
                                base->name, other->name, number);
        }
    }

    options->nbases++;

    return 0;
}


static int
runner_option_number(runner_options_t *options, int option, const char *name,
    runner_error_t *err)
{
    size_t    i;
    uint64_t  value;

    for (i = 0; runner_numbers[i].option != option; i++) { /* void */ }

    if (runner_number(optarg, runner_numbers[i].max, &value) == -1
        || value < runner_numbers[i].min)
    {
        return runner_error(err, "bad_option", 0, "--%s \"%s\" must be a "
                            "number from %u to %u", name, optarg,
                            runner_numbers[i].min, runner_numbers[i].max);
    }

    *(unsigned *) ((char *) options + runner_numbers[i].offset) = value;

    return 0;
}


/*
 * systemd's socket activation: LISTEN_PID is us, descriptor 3 is the one.
 * Variables that are for another process are none of our business.
 */

static int
runner_options_activation(runner_options_t *options, runner_error_t *err)
{
    char      *pid, *fds;
    uint64_t   n;

    pid = getenv("LISTEN_PID");
    fds = getenv("LISTEN_FDS");

    if (options->listen_fd != -1 || pid == NULL || fds == NULL) {
        return 0;
    }

    if (runner_number(pid, INT32_MAX, &n) == -1) {
        return runner_error(err, "bad_option", 0, "LISTEN_PID is \"%s\", not "
                            "a process", pid);
    }

    if ((pid_t) n != getpid()) {
        return 0;
    }

    if (strcmp(fds, "1") != 0) {
        return runner_error(err, "bad_option", 0, "LISTEN_FDS is \"%s\": the "
                            "socket unit must pass exactly one socket", fds);
    }

    options->listen_fd = 3;

    return 0;
}


/* what --dagger has without being told */

static int
runner_options_dagger(runner_options_t *options, runner_error_t *err)
{
    const char  *engine;

    if (options->socket == NULL && options->listen_fd == -1) {
        options->socket = RUNNER_DAGGER_SOCKET;
    }

    if (options->key_file == NULL) {
        options->key_file = RUNNER_DAGGER_KEY;
    }

    if (options->ndagger) {
        return 0;
    }

    engine = getenv(RUNNER_DAGGER_VARIABLE);

    if (engine == NULL || engine[0] == '\0') {
        return runner_error(err, "bad_option", 0, "--dagger names no engine, "
                            "and " RUNNER_DAGGER_VARIABLE " is not set: it is "
                            "tcp://HOST:PORT or unix:///PATH");
    }

    options->dagger[options->ndagger++] = engine;
    options->variable = 1;

    return 0;
}


static int
runner_options_check(runner_options_t *options, runner_error_t *err)
{
    unsigned     i;
    const char  *missing;

    for (i = 0; i < options->nbases; i++) {
        if (strcmp(options->bases[i].name, "default") == 0) {
            break;
        }
    }

    missing = options->owner ? NULL
              : options->state == NULL ? "--state"
              : options->nbases == 0 ? "--base"
              : i == options->nbases ? "--base DIR, that of \"default\","
              : options->agent == NULL ? "--agent"
              : options->probe ? NULL
              : options->key_file == NULL ? "--key-file"
              : options->socket == NULL && options->listen_fd == -1
              ? "--socket" : NULL;

    if (missing) {
        return runner_error(err, "bad_option", 0, "%s is missing; see --help",
                            missing);
    }

    if (options->negress_listen && options->ndagger == 0) {
        return runner_error(err, "bad_option", 0, "--egress-listen is for "
                            "--dagger: sandboxes of this host have a listener "
                            "of their own");
    }

    if (options->key_file == NULL) {
        return 0;
    }

    return runner_key_read(options->key_file, options->key, err);
}
