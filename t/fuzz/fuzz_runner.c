/*
 * Foreign bytes to the runner.  The first byte chooses: a message of an agent
 * that was taken over, with descriptors beside it, of which none may stay; the
 * numbers of its report; the text of a slot's record.
 */

/* link: src/runner/message.c src/runner/state.c src/runner/file.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* link: -no-pie -Wl,--unresolved-symbols=ignore-all */
/* covers: src/runner/state.c */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "message.h"
#include "state.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_message(const uint8_t *p, size_t size);
static void fuzz_send(int fd, const uint8_t *p, size_t size, unsigned fds);
static void fuzz_report(const runner_message_t *message);
static void fuzz_fields(const uint8_t *p, size_t size);
static void fuzz_record(const uint8_t *p, size_t size);
static int fuzz_free(void);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    if (size < 2) {
        return 0;
    }

    switch (p[0] % 4) {

    case 0:
    case 1:
        fuzz_message(p + 1, size - 1);
        break;

    case 2:
        fuzz_fields(p + 1, size - 1);
        break;

    default:
        fuzz_record(p + 1, size - 1);
    }

    return 0;
}


/* the first byte: how many descriptors; in the end all numbers are free */

static void
fuzz_message(const uint8_t *p, size_t size)
{
    int               before, rc;
    unsigned          fds;
    runner_message_t  message;

    static int  ends[2] = { -1, -1 };

    if (ends[0] == -1) {
        check(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC,
                         0, ends) == 0);
    }

    before = fuzz_free();
    fds = p[0] % 6;
    size--;

    if (size == 0) {
        return;                          /* would be the end of the channel */
    }

    fuzz_send(ends[1], p + 1, size, fds);

    memset(&message, 0xaa, sizeof(message));
    rc = runner_message_receive(ends[0], &message);

    if (rc == 1) {
        check(size >= SANDBOX_CONTROL_SIZE && size <= SANDBOX_CONTROL_MAX);
        check(message.nfds == fds && fds <= SANDBOX_CONTROL_MAX_FDS);
        check(message.type == p[1] && message.flags == p[2]);
        fuzz_report(&message);
        runner_message_close(&message);

    } else {
        check(rc == -1 && errno == EPROTO && message.nfds == 0);
    }

    check(runner_message_receive(ends[0], &message) == -1 && errno == EAGAIN);
    check(fuzz_free() == before);
}


static void
fuzz_send(int fd, const uint8_t *p, size_t size, unsigned fds)
{
    int              i, out[6];
    struct iovec     iov;
    struct msghdr    m;
    struct cmsghdr  *c;

    union {
        char            data[CMSG_SPACE(6 * sizeof(int))];
        struct cmsghdr  align;
    } u;

    memset(&m, 0, sizeof(m));
    iov.iov_base = (void *) p;
    iov.iov_len = size;
    m.msg_iov = &iov;
    m.msg_iovlen = 1;

    if (fds) {
        memset(&u, 0, sizeof(u));

        for (i = 0; i < (int) fds; i++) {
            out[i] = fd;
        }

        m.msg_control = u.data;
        m.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        c = &u.align;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fds * sizeof(int));
        memcpy(CMSG_DATA(c), out, fds * sizeof(int));
    }

    check(sendmsg(fd, &m, MSG_DONTWAIT|MSG_NOSIGNAL) == (ssize_t) size);
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


static void
fuzz_report(const runner_message_t *message)
{
    runner_report_t  report;

    if (runner_message_report(message, &report) == -1) {
        return;
    }

    check(report.version_min <= 255 && report.version_max <= 255);
    check(report.slots <= 1000000 && report.wanted <= 1);
    check(report.running <= 1000000 && report.queued <= 1000000);
    check(report.background <= 1000000 && report.open <= 1000000);
    check(report.commands <= RUNNER_MAX_COMMANDS);
}


/* bytes for tags and numbers: a report that comes far */

static void
fuzz_fields(const uint8_t *p, size_t size)
{
    size_t            i;
    sandbox_writer_t  w;
    runner_message_t  message;

    static const uint16_t  tags[] = {
        SANDBOX_TAG_VERSION_MIN, SANDBOX_TAG_VERSION_MAX, SANDBOX_TAG_SLOTS,
        SANDBOX_TAG_WANTED, SANDBOX_TAG_INSTANCE, SANDBOX_TAG_RUNNING,
        SANDBOX_TAG_QUEUED, SANDBOX_TAG_BACKGROUND, SANDBOX_TAG_COMMANDS,
        SANDBOX_TAG_OPEN, 999
    };

    memset(&message, 0, sizeof(message));
    sandbox_writer_init(&w, message.buf, sizeof(message.buf));

    for (i = 0; i + 10 <= size; i += 10) {
        sandbox_write_number(&w, tags[p[i] % (sizeof(tags) / sizeof(tags[0]))],
                             sandbox_get64(p + i + 2) >> (p[i + 1] & 63));
    }

    if (w.failed) {
        return;
    }

    sandbox_fields_init(&message.fields, message.buf, w.pos - message.buf);
    fuzz_report(&message);
}


/* what is read is written, and reads the same */

static void
fuzz_record(const uint8_t *p, size_t size)
{
    char             text[RUNNER_RECORD_SIZE], again[RUNNER_RECORD_SIZE];
    size_t           n;
    runner_record_t  record, other;

    n = size < sizeof(text) ? size : sizeof(text) - 1;
    memcpy(text, p, n);
    text[n] = '\0';

    if (runner_record_read(&record, text) == -1) {
        return;
    }

    check(record.pid >= 0 && (record.deleted == 0 || record.deleted == 1));
    check(strlen(record.id) == SANDBOX_WIRE_SANDBOX_ID_SIZE);
    check(record.base[0] == '/');

    n = runner_record_write(&record, again, sizeof(again));
    check(n > 0 && n == strlen(again));
    check(runner_record_read(&other, again) == 0);
    check(memcmp(record.session, other.session, sizeof(other.session)) == 0
          && strcmp(record.id, other.id) == 0
          && strcmp(record.base, other.base) == 0
          && strcmp(record.base_name, other.base_name) == 0
          && record.instance == other.instance && record.pid == other.pid
          && record.ids == other.ids && record.used_ms == other.used_ms
          && record.commands == other.commands);
}
