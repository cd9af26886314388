/*
 * Control messages on a SOCK_SEQPACKET socket.
 * Knows their layout, not what they are for.  Trusts no byte of an agent.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "message.h"


int
runner_message_send(int fd, uint8_t type, uint8_t flags, uint32_t serial,
    const uint8_t *p, size_t size, const int *fds, unsigned nfds)
{
    ssize_t          n;
    uint8_t          start[SANDBOX_CONTROL_SIZE];
    struct iovec     iov[2];
    struct msghdr    m;
    struct cmsghdr  *c;

    union {
        char            data[CMSG_SPACE(SANDBOX_CONTROL_MAX_FDS
                                        * sizeof(int))];
        struct cmsghdr  align;
    } u;

    start[0] = type;
    start[1] = flags;
    sandbox_put16(start + 2, 0);
    sandbox_put32(start + 4, serial);

    iov[0].iov_base = start;
    iov[0].iov_len = sizeof(start);
    iov[1].iov_base = (void *) p;
    iov[1].iov_len = size;

    memset(&m, 0, sizeof(m));
    m.msg_iov = iov;
    m.msg_iovlen = size ? 2 : 1;

    if (nfds) {
        memset(&u, 0, sizeof(u));
        m.msg_control = u.data;
        m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));

        c = &u.align;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }

    do {
        n = sendmsg(fd, &m, MSG_DONTWAIT|MSG_NOSIGNAL);
    } while (n == -1 && errno == EINTR);

    return n == -1 ? -1 : 0;
}


int
runner_message_receive(int fd, runner_message_t *message)
{
    int              extra, *p;
    size_t           i, count;
    ssize_t          n;
    unsigned         reset;
    struct iovec     iov;
    struct msghdr    m;
    struct cmsghdr  *c;

    union {
        char            data[CMSG_SPACE((SANDBOX_CONTROL_MAX_FDS + 2)
                                        * sizeof(int))];
        struct cmsghdr  align;
    } u;

    message->nfds = 0;

    iov.iov_base = message->buf;
    iov.iov_len = sizeof(message->buf);

    memset(&m, 0, sizeof(m));
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = u.data;
    m.msg_controllen = sizeof(u.data);

    /*
     * A peer that died with messages of ours unread is reported before what
     * it sent, once; a TAKEN among that must not be lost.
     */

    reset = 0;

    do {
        n = recvmsg(fd, &m, MSG_DONTWAIT|MSG_CMSG_CLOEXEC);
    } while (n == -1
             && (errno == EINTR || (errno == ECONNRESET && !reset++)));

    if (n <= 0) {
        return n;
    }

    /* whatever else is wrong, no descriptor may stay open */

    extra = 0;

    for (c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }

        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        p = (int *) CMSG_DATA(c);

        for (i = 0; i < count; i++) {
            if (message->nfds < SANDBOX_CONTROL_MAX_FDS) {
                memcpy(&message->fds[message->nfds++], p + i, sizeof(int));
                continue;
            }

            memcpy(&extra, p + i, sizeof(int));
            close(extra);
            extra = 1;
        }
    }

    if (n < SANDBOX_CONTROL_SIZE || extra
        || (m.msg_flags & (MSG_TRUNC|MSG_CTRUNC))
        || sandbox_get16(message->buf + 2) != 0)
    {
        runner_message_close(message);
        errno = EPROTO;
        return -1;
    }

    message->type = message->buf[0];
    message->flags = message->buf[1];
    message->serial = sandbox_get32(message->buf + 4);
    sandbox_fields_init(&message->fields,
                        message->buf + SANDBOX_CONTROL_SIZE,
                        n - SANDBOX_CONTROL_SIZE);

    return 1;
}


void
runner_message_close(runner_message_t *message)
{
    unsigned  i;

    for (i = 0; i < message->nfds; i++) {
        if (message->fds[i] != -1) {
            close(message->fds[i]);
        }
    }

    message->nfds = 0;
}


int
runner_message_report(const runner_message_t *message,
    runner_report_t *report)
{
    int               rc;
    uint64_t         *value, max;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    memset(report, 0, sizeof(*report));
    fields = message->fields;

    for ( ;; ) {
        rc = sandbox_fields_next(&fields, &field);

        if (rc == SANDBOX_END) {
            return 0;
        }

        if (rc != SANDBOX_OK) {
            return -1;
        }

        max = 1000000;

        switch (field.tag) {

        case SANDBOX_TAG_VERSION_MIN:
            value = &report->version_min;
            max = 255;
            break;

        case SANDBOX_TAG_VERSION_MAX:
            value = &report->version_max;
            max = 255;
            break;

        case SANDBOX_TAG_SLOTS:
            value = &report->slots;
            break;

        case SANDBOX_TAG_WANTED:
            value = &report->wanted;
            max = 1;
            break;

        case SANDBOX_TAG_INSTANCE:
            value = &report->instance;
            max = UINT64_MAX;
            break;

        case SANDBOX_TAG_RUNNING:
            value = &report->running;
            break;

        case SANDBOX_TAG_QUEUED:
            value = &report->queued;
            break;

        case SANDBOX_TAG_BACKGROUND:
            value = &report->background;
            break;

        case SANDBOX_TAG_COMMANDS:
            value = &report->commands;
            max = RUNNER_MAX_COMMANDS;
            break;

        case SANDBOX_TAG_OPEN:
            value = &report->open;
            break;

        default:
            continue;
        }

        if (sandbox_field_number(&field, max, value) != SANDBOX_OK) {
            return -1;
        }
    }
}
