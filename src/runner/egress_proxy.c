/*
 * The proxy as a child: started when the first sandbox needs it, told of all
 * of them, and started again when it ends.
 *
 * It is a process without rights that reads what sandboxes send: what it says
 * is checked like what an agent says.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "child.h"
#include "container.h"
#include "control.h"
#include "egress_channel.h"
#include "egress_core.h"
#include "file.h"
#include "idmap.h"


#define RUNNER_EGRESS_ROOT    RUNNER_SHARED_DIR "/empty"
#define RUNNER_EGRESS_USER    "sandbox-egress"
#define RUNNER_EGRESS_ID      0x6fff0000u        /* below those of sandboxes */
#define RUNNER_EGRESS_DIGITS  16
#define RUNNER_EGRESS_BUFFER  (16 * 1024 * 1024) /* bytes of messages */
#define RUNNER_EGRESS_TURN    64                 /* messages a turn */
#define RUNNER_EGRESS_PAUSE   100                /* ms, the first time */
#define RUNNER_EGRESS_LONGEST 10000
#define RUNNER_EGRESS_GOOD    60000              /* ms: it was no bad start */
#define RUNNER_EGRESS_WORDS   (16 + 2 * (RUNNER_EGRESS_MAX_ALLOW             \
                                         + RUNNER_EGRESS_MAX_PORTS))


static int runner_egress_spawn(runner_egress_t *egress, int channel);
static int runner_egress_arguments(const runner_options_t *options,
    const char **argv, char *path, char *uid, char *gid);
static int runner_egress_program(const runner_options_t *options, char *path);
static void runner_egress_child(const char **argv, int channel);
static void runner_egress_event(runner_event_t *event, uint32_t events);
static int runner_egress_message(runner_egress_t *egress,
    runner_message_t *message);
static void runner_egress_ready_now(runner_egress_t *egress);
static void runner_egress_lost(runner_egress_t *egress, const char *why);
static void runner_egress_again(void *data);
static void runner_egress_send(runner_egress_t *egress, uint8_t type,
    uint32_t serial, sandbox_writer_t *w, int fd);


void
runner_egress_proxy(runner_egress_t *egress)
{
    int                  pair[2], size;
    runner_t            *runner;
    runner_container_t  *container;

    runner = egress->runner;

    if (egress->channel.fd != -1 || egress->restart.index != 0
        || runner->mode != RUNNER_RUNNING)
    {
        return;
    }

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0,
                   pair) == -1)
    {
        runner_egress_lost(egress, strerror(errno));
        return;
    }

    /* all that there may be to tell at once has room */

    size = RUNNER_EGRESS_BUFFER;
    (void) setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size,
                      sizeof(size));

    egress->started = runner->loop.now;
    egress->process = runner_egress_spawn(egress, pair[1]);
    close(pair[1]);

    egress->channel.fd = pair[0];
    egress->channel.data = egress;
    egress->channel.handler = runner_egress_event;

    if (egress->process == -1
        || runner_event_add(&runner->loop, &egress->channel,
                            EPOLLIN|EPOLLRDHUP) == -1)
    {
        egress->channel.handler = NULL;
        runner_egress_lost(egress, "it can't be started");
        return;
    }

    runner_egress_send_table(egress);

    for (container = runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->egress_open) {
            runner_egress_send_open(egress, container);
        }
    }
}


/* its pidfd, or -1 */

static int
runner_egress_spawn(runner_egress_t *egress, int channel)
{
    int                 pidfd;
    char                path[PATH_MAX], uid[RUNNER_EGRESS_DIGITS];
    char                gid[RUNNER_EGRESS_DIGITS];
    pid_t               pid;
    const char         *argv[RUNNER_EGRESS_WORDS];
    struct clone_args   args;

    if (runner_mkdirs(RUNNER_EGRESS_ROOT, 0555) == -1
        || runner_egress_arguments(egress->runner->options, argv, path, uid,
                                   gid) == -1)
    {
        return -1;
    }

    if (access(argv[0], X_OK) == -1) {
        runner_log(RUNNER_LOG_ERROR, "the proxy \"%s\" can't be run: %s.  "
                   "Remedy: make, or --egress FILE", argv[0],
                   strerror(errno));
        return -1;
    }

    memset(&args, 0, sizeof(args));
    pidfd = -1;

    args.flags = CLONE_PIDFD;
    args.pidfd = (uintptr_t) &pidfd;
    args.exit_signal = SIGCHLD;

    /* nobody waits for it: its end is that of the channel, then it is reaped */

    pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0) {
        runner_egress_child(argv, channel);
        _exit(127);
    }

    return pid == -1 ? -1 : pidfd;
}


static int
runner_egress_arguments(const runner_options_t *options, const char **argv,
    char *path, char *uid, char *gid)
{
    unsigned        i, n;
    struct passwd  *user;

    if (runner_egress_program(options, path) == -1) {
        return -1;
    }

    user = getpwnam(options->egress_user ? options->egress_user
                                         : RUNNER_EGRESS_USER);

    snprintf(uid, RUNNER_EGRESS_DIGITS, "%u",
             user ? user->pw_uid : RUNNER_EGRESS_ID);
    snprintf(gid, RUNNER_EGRESS_DIGITS, "%u",
             user ? user->pw_gid : RUNNER_EGRESS_ID);

    n = 0;
    argv[n++] = path;
    argv[n++] = "--root";
    argv[n++] = RUNNER_EGRESS_ROOT;
    argv[n++] = "--uid";
    argv[n++] = uid;
    argv[n++] = "--gid";
    argv[n++] = gid;

    if (options->egress_resolver != NULL) {
        argv[n++] = "--resolver";
        argv[n++] = options->egress_resolver;
    }

    for (i = 0; i < options->negress_allow; i++) {
        argv[n++] = "--allow-address";
        argv[n++] = options->egress_allow[i];
    }

    for (i = 0; i < options->negress_ports; i++) {
        argv[n++] = "--allow-port";
        argv[n++] = options->egress_ports[i];
    }

    argv[n] = NULL;

    return 0;
}


/* beside the runner, unless an option says otherwise */

static int
runner_egress_program(const runner_options_t *options, char *path)
{
    char     *slash;
    ssize_t   n;

    static const char  name[] = "/sandbox-egress";

    if (options->egress[0]) {
        strcpy(path, options->egress);
        return 0;
    }

    n = readlink("/proc/self/exe", path, PATH_MAX - sizeof(name));
    if (n == -1) {
        return -1;
    }

    path[n] = '\0';
    slash = strrchr(path, '/');

    if (slash == NULL) {
        return -1;
    }

    strcpy(slash, name);

    return 0;
}


/* between clone and exec of a process with threads: system calls only */

static void
runner_egress_child(const char **argv, int channel)
{
    int       null, copy;
    sigset_t  set;

    static char  *none[] = { NULL };

    null = open("/dev/null", O_RDWR);
    copy = fcntl(channel, F_DUPFD, 32);

    if (null == -1 || copy == -1) {
        return;
    }

    dup2(null, 0);
    dup2(null, 1);
    dup2(copy, EGRESS_FD_CHANNEL);

    syscall(SYS_close_range, EGRESS_FD_CHANNEL + 1, ~0U, 0);

    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    setsid();

    execve(argv[0], (char **) argv, none);
}


static void
runner_egress_event(runner_event_t *event, uint32_t events)
{
    int               rc, n;
    runner_egress_t  *egress;
    runner_message_t  message;

    egress = event->data;

    for (n = 0; n < RUNNER_EGRESS_TURN; n++) {

        rc = runner_message_receive(event->fd, &message);

        if (rc == -1 && errno == EAGAIN) {
            return;
        }

        if (rc != 1) {
            runner_egress_lost(egress, "it ended");
            return;
        }

        rc = message.nfds ? -1 : runner_egress_message(egress, &message);
        runner_message_close(&message);

        /* it may be lost by what it was told in return */

        if (event->handler == NULL) {
            return;
        }

        if (rc == -1) {
            runner_egress_lost(egress, "it said what makes no sense");
            return;
        }
    }
}


static int
runner_egress_message(runner_egress_t *egress, runner_message_t *message)
{
    int                     rc;
    unsigned                i;
    uint64_t                numbers[7], *number;
    sandbox_field_t         field;
    runner_egress_count_t  *count;

    if (message->type == EGRESS_CHANNEL_READY) {
        runner_egress_ready_now(egress);
        return 0;
    }

    if (message->type != EGRESS_CHANNEL_COUNT) {
        return -1;
    }

    memset(numbers, 0, sizeof(numbers));

    while ((rc = sandbox_fields_next(&message->fields, &field))
           == SANDBOX_OK)
    {
        switch (field.tag) {
        case SANDBOX_TAG_EGRESS_TUNNELS:  number = &numbers[0];  break;
        case SANDBOX_TAG_EGRESS_REFUSED:  number = &numbers[1];  break;
        case SANDBOX_TAG_EGRESS_FAILED:   number = &numbers[2];  break;
        case SANDBOX_TAG_EGRESS_UP:       number = &numbers[3];  break;
        case SANDBOX_TAG_EGRESS_DOWN:     number = &numbers[4];  break;
        case SANDBOX_TAG_EGRESS_OPEN:     number = &numbers[5];  break;
        case SANDBOX_TAG_EGRESS_ID:       number = &numbers[6];  break;
        default:
            return -1;
        }

        if (sandbox_field_number(&field, UINT64_MAX, number) != SANDBOX_OK) {
            return -1;
        }
    }

    if (rc != SANDBOX_END || numbers[6] == 0 || numbers[6] > UINT32_MAX) {
        return -1;
    }

    for (i = 0; i < RUNNER_EGRESS_COUNTS; i++) {
        count = &egress->counts[i];

        if (count->id == 0 || count->id == numbers[6]) {
            count->id = (uint32_t) numbers[6];
            count->open = numbers[5];
            memcpy(count->now, numbers, sizeof(count->now));
            break;
        }
    }

    return 0;
}


static void
runner_egress_ready_now(runner_egress_t *egress)
{
    runner_container_t  *container;

    runner_log(RUNNER_LOG_INFO, "the egress proxy is ready");

    for (container = egress->runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->slot.record.egress && !container->egress_open
            && container->claimed && runner_container_usable(container))
        {
            runner_egress_open(container);
        }
    }
}


/* it is gone, or will be: its end of the channel is all that holds it */

static void
runner_egress_lost(runner_egress_t *egress, const char *why)
{
    unsigned                i, j;
    uint64_t                pause;
    runner_t               *runner;
    runner_container_t     *container;
    runner_egress_count_t  *count;

    runner = egress->runner;

    if (runner->loop.now - egress->started >= RUNNER_EGRESS_GOOD) {
        egress->attempts = 0;
    }

    pause = RUNNER_EGRESS_PAUSE << (egress->attempts < 7 ? egress->attempts
                                                         : 7);
    egress->attempts++;

    if (pause > RUNNER_EGRESS_LONGEST) {
        pause = RUNNER_EGRESS_LONGEST;
    }

    runner_log(RUNNER_LOG_ERROR, "the egress proxy is lost: %s.  All its "
               "tunnels ended; it is started again in %u ms", why,
               (unsigned) pause);

    runner_egress_proxy_end(egress);

    for (i = 0; i < RUNNER_EGRESS_COUNTS; i++) {
        count = &egress->counts[i];

        for (j = 0; j < 5; j++) {
            count->before[j] += count->now[j];
            count->now[j] = 0;
        }

        count->open = 0;
    }

    for (container = runner->containers;
         container != NULL && egress->attempts >= RUNNER_EGRESS_ATTEMPTS;
         container = container->next)
    {
        if (container->egress_open) {
            close(container->egress_fd);
            container->egress_open = 0;
        }
    }

    egress->restart.data = egress;
    egress->restart.handler = runner_egress_again;

    (void) runner_timer_start(&runner->loop, &egress->restart, pause);
}


static void
runner_egress_again(void *data)
{
    runner_egress_proxy(data);
}


void
runner_egress_proxy_end(runner_egress_t *egress)
{
    if (egress->channel.fd != -1) {
        runner_event_remove(&egress->runner->loop, &egress->channel);
        close(egress->channel.fd);
        egress->channel.fd = -1;
    }

    if (egress->process != -1) {
        (void) pidfd_send_signal(egress->process, SIGKILL, NULL, 0);
        close(egress->process);
        egress->process = -1;
    }
}


void
runner_egress_send_table(runner_egress_t *egress)
{
    int  fd;

    if (egress->channel.fd == -1 || egress->table == NULL) {
        return;
    }

    fd = runner_egress_memfd(egress->table, egress->table_size);

    if (fd == -1) {
        runner_egress_lost(egress, "no memory for the table");
        return;
    }

    runner_egress_send(egress, EGRESS_CHANNEL_TABLE, 0, NULL, fd);
    close(fd);
}


void
runner_egress_send_open(runner_egress_t *egress,
    runner_container_t *container)
{
    uint8_t           b[128];
    sandbox_writer_t  w;
    runner_record_t  *record;

    record = &container->slot.record;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_string(&w, SANDBOX_TAG_SANDBOX_ID, record->id);
    sandbox_write_number(&w, SANDBOX_TAG_EGRESS_ID, record->egress);

    runner_egress_send(egress, EGRESS_CHANNEL_OPEN, record->number, &w,
                       container->egress_fd);
}


void
runner_egress_send_policy(runner_egress_t *egress,
    runner_container_t *container)
{
    uint8_t           b[32];
    sandbox_writer_t  w;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_EGRESS_ID,
                         container->slot.record.egress);

    runner_egress_send(egress, EGRESS_CHANNEL_POLICY,
                       container->slot.record.number, &w, -1);
}


void
runner_egress_send_close(runner_egress_t *egress,
    runner_container_t *container)
{
    runner_egress_send(egress, EGRESS_CHANNEL_CLOSE,
                       container->slot.record.number, NULL, -1);
}


/* one that has no room for a message has not read thousands: it is stuck */

static void
runner_egress_send(runner_egress_t *egress, uint8_t type, uint32_t serial,
    sandbox_writer_t *w, int fd)
{
    if (egress->channel.fd == -1) {
        return;
    }

    if (runner_message_send(egress->channel.fd, type, 0, serial,
                            w ? w->start : NULL, w ? w->pos - w->start : 0,
                            &fd, fd != -1) == -1)
    {
        runner_egress_lost(egress, strerror(errno));
    }
}


int
runner_egress_memfd(const void *p, size_t size)
{
    int  fd;

    fd = memfd_create("egress", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd != -1
        && (write(fd, p, size) != (ssize_t) size
            || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL|F_SEAL_SHRINK|F_SEAL_GROW
                                      |F_SEAL_WRITE) == -1))
    {
        close(fd);
        fd = -1;
    }

    return fd;
}
