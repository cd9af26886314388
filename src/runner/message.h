/*
 * Messages of the control channel as bytes and descriptors.
 */

#ifndef RUNNER_MESSAGE_H
#define RUNNER_MESSAGE_H

#include <stdint.h>

#include "sandbox_control.h"


/* more than one agent could ever end */

#define RUNNER_MAX_COMMANDS  1000000000000ULL


/* a message that was received; the descriptors are the receiver's to close */

typedef struct {
    uint8_t            type;
    uint8_t            flags;
    uint32_t           serial;
    sandbox_fields_t   fields;           /* within buf */
    int                fds[SANDBOX_CONTROL_MAX_FDS];
    unsigned           nfds;
    uint8_t            buf[SANDBOX_CONTROL_MAX];
} runner_message_t;


/* what a READY or STATE says; a number that was absent is 0 */

typedef struct {
    uint64_t  version_min;
    uint64_t  version_max;
    uint64_t  slots;
    uint64_t  wanted;
    uint64_t  instance;
    uint64_t  running;
    uint64_t  queued;
    uint64_t  background;
    uint64_t  commands;
    uint64_t  open;
} runner_report_t;


/*
 * Sends one message without waiting: `size` bytes of fields at p (NULL: none)
 * and `nfds` descriptors.  0, or -1 and errno (EAGAIN: the socket is full).
 */
int runner_message_send(int fd, uint8_t type, uint8_t flags, uint32_t serial,
    const uint8_t *p, size_t size, const int *fds, unsigned nfds);

/*
 * Receives one message without waiting.  1, 0 at the end of the channel, or
 * -1 and errno: EAGAIN, EPROTO for what is no message.
 */
int runner_message_receive(int fd, runner_message_t *message);

/* Closes the descriptors that nobody took (those not set to -1). */
void runner_message_close(runner_message_t *message);

/* Reads the numbers of a READY or STATE.  0, or -1 if it is malformed. */
int runner_message_report(const runner_message_t *message,
    runner_report_t *report);


#endif /* RUNNER_MESSAGE_H */
