/*
 * Control messages as an agent might send them: also one that was taken over
 * by its own user.  No descriptor may stay with the runner by accident.
 */

/* link: src/runner/message.c src/wire/sandbox_wire.c */
/* flags: -U_GNU_SOURCE */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/socket.h>

#include "test.h"
#include "message.h"


static int  ends[2];


static int descriptors(void);
static void plain(void);
static void with_descriptors(void);
static void hostile(void);
static void full(void);


int
main(void)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, ends)
        == -1)
    {
        return 1;
    }

    plain();
    with_descriptors();
    hostile();
    full();

    return test_done();
}


static int
descriptors(void)
{
    int   n;
    DIR  *d;

    d = opendir("/proc/self/fd");

    for (n = 0; readdir(d) != NULL; n++) { /* void */ }

    closedir(d);

    return n;
}


static void
plain(void)
{
    uint8_t           b[256];
    runner_report_t   report;
    sandbox_writer_t  w;
    runner_message_t  message;

    sandbox_writer_init(&w, b, sizeof(b));
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MIN, 1);
    sandbox_write_number(&w, SANDBOX_TAG_VERSION_MAX, 2);
    sandbox_write_number(&w, SANDBOX_TAG_SLOTS, 3);
    sandbox_write_number(&w, SANDBOX_TAG_INSTANCE, UINT64_MAX);
    sandbox_write_string(&w, 999, "of a later version");

    is_number(runner_message_send(ends[0], SANDBOX_CONTROL_READY, 0, 77, b,
                                  w.pos - b, NULL, 0), 0, "sent");
    is_number(runner_message_receive(ends[1], &message), 1, "received");
    is_number(message.type, SANDBOX_CONTROL_READY, "its type");
    is_number(message.serial, 77, "its serial");
    is_number(runner_message_report(&message, &report), 0, "its fields");
    is_number(report.version_max * 10 + report.slots, 23, "two of them");
    ok(report.instance == UINT64_MAX, "a number of 64 bits");
    is_number(report.wanted, 0, "one that is absent");

    is_number(runner_message_receive(ends[1], &message), -1, "no more");
    is_number(errno, EAGAIN, "and it does not wait");
}


static void
with_descriptors(void)
{
    int               fds[2], before;
    runner_message_t  message;

    fds[0] = open("/dev/null", O_RDONLY);
    fds[1] = open("/dev/zero", O_RDONLY);
    before = descriptors();

    (void) runner_message_send(ends[0], SANDBOX_CONTROL_RETURN, 0, 1, NULL, 0,
                               fds, 2);
    is_number(runner_message_receive(ends[1], &message), 1, "with two");
    is_number(message.nfds, 2, "both came");
    ok(fcntl(message.fds[0], F_GETFD) & FD_CLOEXEC, "closed at an exec");

    runner_message_close(&message);
    is_number(descriptors(), before, "closed when nobody took them");

    close(fds[0]);
    close(fds[1]);
}


static void
hostile(void)
{
    int               before, i, many[8];
    uint8_t           b[2 * SANDBOX_CONTROL_MAX];
    struct iovec      iov;
    struct msghdr     m;
    struct cmsghdr   *c;
    runner_report_t   report;
    runner_message_t  message;

    union {
        char            data[CMSG_SPACE(sizeof(many))];
        struct cmsghdr  align;
    } u;

    memset(b, 0, sizeof(b));
    before = descriptors();

    (void) !send(ends[0], b, 7, 0);
    is_number(runner_message_receive(ends[1], &message), -1, "7 bytes");
    is_number(errno, EPROTO, "are no message");

    (void) !send(ends[0], b, SANDBOX_CONTROL_MAX + 1, 0);
    is_number(runner_message_receive(ends[1], &message), -1, "too long");
    is_number(errno, EPROTO, "is no message");

    b[2] = 1;
    (void) !send(ends[0], b, 8, 0);
    is_number(runner_message_receive(ends[1], &message), -1, "reserved bytes");

    b[2] = 0;
    b[8] = 0xff;
    (void) !send(ends[0], b, 13, 0);
    is_number(runner_message_receive(ends[1], &message), 1, "half a field");
    is_number(runner_message_report(&message, &report), -1, "is refused");

    /* a number of 4 bytes; one beyond its bound */

    b[8] = 0;
    b[9] = SANDBOX_TAG_SLOTS;
    b[13] = 4;
    (void) !send(ends[0], b, 18, 0);
    (void) runner_message_receive(ends[1], &message);
    is_number(runner_message_report(&message, &report), -1, "a short number");

    b[13] = 8;
    b[14] = 0xff;
    (void) !send(ends[0], b, 22, 0);
    (void) runner_message_receive(ends[1], &message);
    is_number(runner_message_report(&message, &report), -1, "a huge one");

    /* eight descriptors where two are the most */

    for (i = 0; i < 8; i++) {
        many[i] = ends[0];
    }

    memset(&m, 0, sizeof(m));
    memset(&u, 0, sizeof(u));
    iov.iov_base = b;
    iov.iov_len = 8;
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = u.data;
    m.msg_controllen = sizeof(u.data);
    c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(many));
    memcpy(CMSG_DATA(c), many, sizeof(many));

    (void) !sendmsg(ends[0], &m, 0);
    is_number(runner_message_receive(ends[1], &message), -1,
              "eight descriptors");
    is_number(descriptors(), before, "none of all these is left open");
}


static void
full(void)
{
    int               n, rc;
    runner_message_t  message;

    for (n = 0; n < 100000; n++) {
        rc = runner_message_send(ends[0], SANDBOX_CONTROL_GRANT, 0, n, NULL, 0,
                                 NULL, 0);
        if (rc == -1) {
            break;
        }
    }

    ok(rc == -1 && errno == EAGAIN, "a full socket says so, at once");

    (void) runner_message_receive(ends[1], &message);
    is_number(runner_message_send(ends[0], SANDBOX_CONTROL_GRANT, 0, n, NULL,
                                  0, NULL, 0), 0, "one read makes room");

    close(ends[0]);

    while (runner_message_receive(ends[1], &message) == 1) { /* void */ }

    is_number(runner_message_receive(ends[1], &message), 0, "the end is told");
}
