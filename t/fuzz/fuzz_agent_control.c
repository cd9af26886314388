/*
 * Foreign bytes as a message of the runner, with descriptors beside it: what
 * is understood is within its bounds and within the message, it is done once,
 * and of what is refused nothing is done and no descriptor stays.
 */

/* link: src/agent/agent_control.c src/agent/agent_control_read.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* link: -no-pie -Wl,--unresolved-symbols=ignore-all */
/* covers: src/agent/agent_control_read.c */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent.h"
#include "agent_control.h"


#define FDS  4                           /* two more than there may be */
#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static int fuzz_read(agent_told_t *told, const uint8_t *p, size_t size,
    unsigned fds);
static void fuzz_within(const sandbox_field_t *field, const uint8_t *p,
    size_t size);
static void fuzz_connect(void);
static void fuzz_send(const uint8_t *p, size_t size, unsigned fds);
static void fuzz_drain(unsigned taken);
static int fuzz_free(void);


agent_t  agent;

static int                 runner = -1;  /* its end of the channel */
static agent_watch_t      *channel;      /* the agent's */
static unsigned            done[SANDBOX_CONTROL_EGRESS + 1];
static agent_told_t        wanted;       /* what must be done */
static agent_connection_t  connection;


/* the first byte: how many descriptors, and what the agent does just now */

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    int           rc, before;
    uint8_t      *copy;
    unsigned      i, fds;
    agent_told_t  told;

    if (size < 2) {
        return 0;
    }

    if (runner == -1) {
        fuzz_connect();
    }

    fds = p[0] % (FDS + 1);
    memset(&agent, 0, sizeof(agent));
    agent.stopping = (p[0] & 0x80) != 0;
    p++;
    size--;

    copy = malloc(size);
    check(copy != NULL);
    memcpy(copy, p, size);
    rc = fuzz_read(&told, copy, size, fds);

    if (fds > SANDBOX_CONTROL_MAX_FDS || size > SANDBOX_CONTROL_MAX) {
        rc = -1;
    }

    before = fuzz_free();
    wanted = told;
    memset(done, 0, sizeof(done));

    fuzz_send(copy, size, fds);
    channel->handler(channel, EPOLLIN);
    check(agent_control_connected());

    for (i = 0; i <= SANDBOX_CONTROL_EGRESS; i++) {
        check(done[i] == (rc == 0 && told.type == i
                          && !(i == SANDBOX_CONTROL_CONN && agent.stopping)));
    }

    check(agent.slots == done[SANDBOX_CONTROL_GRANT]
                         + (rc == 0 && told.type == SANDBOX_CONTROL_CONN
                            && (told.flags & SANDBOX_CONN_GRANTED)));
    fuzz_drain(done[SANDBOX_CONTROL_CONN]);
    check(fuzz_free() == before);
    free(copy);

    return 0;
}


static int
fuzz_read(agent_told_t *told, const uint8_t *p, size_t size, unsigned fds)
{
    memset(told, 0xaa, sizeof(*told));

    if (agent_control_read(told, p, size, fds) == -1) {
        return -1;
    }

    check(size >= SANDBOX_CONTROL_SIZE && told->type == p[0]);
    check(told->type >= SANDBOX_CONTROL_CLAIM
          && told->type <= SANDBOX_CONTROL_EGRESS);
    check(told->fds == fds && fds <= SANDBOX_CONTROL_MAX_FDS);
    check(fds <= 1 || told->type == SANDBOX_CONTROL_CONN);
    check(told->created <= 1 && told->outcome < SANDBOX_OUTCOME_LAST);
    check(told->policy <= UINT32_MAX);

    fuzz_within(&told->session, p, size);
    fuzz_within(&told->id, p, size);
    fuzz_within(&told->index, p, size);

    if (told->type == SANDBOX_CONTROL_CLAIM) {
        check(told->session.length == SANDBOX_WIRE_SESSION_SIZE
              && told->id.length >= 1);
    }

    check(told->index.length <= SANDBOX_WIRE_MAX_INDEX);

    return 0;
}


static void
fuzz_within(const sandbox_field_t *field, const uint8_t *p, size_t size)
{
    if (field->length) {
        check(field->data > p && field->length < size
              && (size_t) (field->data - p) <= size - field->length);
    }
}


static void
fuzz_connect(void)
{
    int                 listener;
    socklen_t           n;
    struct sockaddr_un  address;

    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;
    n = sizeof(address);

    listener = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);
    check(listener != -1
          && bind(listener, (struct sockaddr *) &address,
                  sizeof(sa_family_t)) == 0
          && listen(listener, 1) == 0
          && getsockname(listener, (struct sockaddr *) &address, &n) == 0);

    runner = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);
    check(runner != -1
          && connect(runner, (struct sockaddr *) &address, n) == 0);

    check(agent_control_init(listener) == 0);
    channel->handler(channel, EPOLLIN);
    check(agent_control_connected() && channel->fd != listener);
    fuzz_drain(0);
}


static void
fuzz_send(const uint8_t *p, size_t size, unsigned fds)
{
    int              out[FDS];
    unsigned         i;
    struct iovec     iov;
    struct msghdr    m;

    union {
        char            data[CMSG_SPACE(FDS * sizeof(int))];
        struct cmsghdr  align;
    } u;

    memset(&m, 0, sizeof(m));
    iov.iov_base = (void *) p;
    iov.iov_len = size;
    m.msg_iov = &iov;
    m.msg_iovlen = 1;

    if (fds) {
        memset(&u, 0, sizeof(u));

        for (i = 0; i < fds; i++) {
            out[i] = runner;
        }

        m.msg_control = u.data;
        m.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        u.align.cmsg_level = SOL_SOCKET;
        u.align.cmsg_type = SCM_RIGHTS;
        u.align.cmsg_len = CMSG_LEN(fds * sizeof(int));
        memcpy(CMSG_DATA(&u.align), out, fds * sizeof(int));
    }

    check(sendmsg(runner, &m, MSG_DONTWAIT|MSG_NOSIGNAL) == (ssize_t) size);
}


/* a TAKEN for each that was taken, and nothing else but of the beginning */

static void
fuzz_drain(unsigned taken)
{
    ssize_t  n;
    uint8_t  b[SANDBOX_CONTROL_MAX];

    while ((n = recv(runner, b, sizeof(b), MSG_DONTWAIT)) > 0) {
        check(n >= SANDBOX_CONTROL_SIZE);

        if (b[0] == SANDBOX_CONTROL_TAKEN) {
            check(taken-- == 1 && sandbox_get32(b + 4) == wanted.serial);

        } else {
            check(b[0] == SANDBOX_CONTROL_READY);
        }
    }

    check(n == -1 && errno == EAGAIN && taken == 0);
}


/* the lowest number that is free */

static int
fuzz_free(void)
{
    int  fd;

    fd = open("/dev/null", O_RDONLY|O_CLOEXEC);
    check(fd != -1);
    close(fd);

    return fd;
}


/* --- the others ---------------------------------------------------------- */

int
agent_sandbox_claim(const uint8_t *session, uint64_t instance,
    const uint8_t *id, size_t id_size, int created, uint64_t memory)
{
    check(memcmp(session, wanted.session.data, SANDBOX_WIRE_SESSION_SIZE)
          == 0);
    check(id_size == wanted.id.length
          && memcmp(id, wanted.id.data, id_size) == 0);
    check(instance == wanted.instance && created == (int) wanted.created
          && memory == wanted.memory);
    done[SANDBOX_CONTROL_CLAIM]++;

    return (instance & 1) ? -1 : 0;
}


void
agent_history_load(int before)
{
    check((before != -1) == (wanted.fds == 1));

    if (before != -1) {
        check(close(before) == 0);
    }
}


agent_connection_t *
agent_connection_new(int fd, int memfd, uint32_t serial, unsigned flags)
{
    done[SANDBOX_CONTROL_CONN]++;
    check(serial == wanted.serial && flags == wanted.flags);
    check((memfd != -1) == ((flags & SANDBOX_CONN_RETURNED) != 0));

    if (serial & 1) {
        return NULL;                     /* there is no room for it */
    }

    check(close(fd) == 0 && (memfd == -1 || close(memfd) == 0));

    return &connection;
}


void
agent_egress_set(uint32_t policy, const uint8_t *index, size_t size, int fd)
{
    check(policy == wanted.policy && size == wanted.index.length);
    check(size == 0
          || (memcmp(index, wanted.index.data, size) == 0
              && memchr(index, '\0', size) == NULL));
    check((fd != -1) == (wanted.fds == 1));
    done[SANDBOX_CONTROL_EGRESS]++;
}


void
agent_queue_stop(unsigned outcome)
{
    check(outcome == wanted.outcome);
    done[SANDBOX_CONTROL_STOP]++;
}


void
agent_queue_process(void)
{
    done[SANDBOX_CONTROL_GRANT] += wanted.type == SANDBOX_CONTROL_GRANT;
}


int
agent_watch_set(agent_watch_t *watch, uint32_t events)
{
    channel = watch;

    return 0;
}


void
agent_connection_begin(agent_connection_t *c)
{
    check(c == &connection);
}


void
agent_connection_refuse(int fd)
{
    check(fcntl(fd, F_GETFD) != -1);
}


void
agent_log(const char *format, ...)
{
    (void) format;
}
