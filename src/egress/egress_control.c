/*
 * The channel to the runner: which sandboxes there are, what they may, and
 * what was counted.  The runner is believed, but not to make no mistakes.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "egress.h"
#include "message.h"


#define EGRESS_CONTROL_TURN  64                  /* messages a turn */


static void egress_control_event(runner_event_t *event, uint32_t events);
static int egress_control_message(egress_t *egress,
    runner_message_t *message);
static int egress_control_read(runner_message_t *message, char *id,
    uint32_t *policy, uint8_t *key);
static int egress_control_table(egress_t *egress, int fd);
static void egress_control_check(egress_sandbox_t *sandbox);
static int egress_control_open(egress_t *egress, runner_message_t *message);
static egress_sandbox_t **egress_control_find(egress_t *egress,
    uint32_t number);
static void egress_control_close(egress_t *egress, uint32_t number);
static void egress_control_listen(void *data);
static void egress_control_report(void *data);


static egress_counter_t  egress_counter_none;    /* of no policy: lost */


int
egress_control_start(egress_t *egress, int fd)
{
    egress->channel.fd = fd;
    egress->channel.data = egress;
    egress->channel.handler = egress_control_event;
    egress->count_timer.data = egress;
    egress->count_timer.handler = egress_control_report;

    if (runner_event_add(&egress->loop, &egress->channel, EPOLLIN|EPOLLRDHUP)
        == -1)
    {
        return -1;
    }

    return runner_message_send(fd, EGRESS_CHANNEL_READY, 0, 0, NULL, 0, NULL,
                               0);
}


static void
egress_control_event(runner_event_t *event, uint32_t events)
{
    int               rc, n;
    egress_t         *egress;
    runner_message_t  message;

    egress = event->data;

    for (n = 0; n < EGRESS_CONTROL_TURN; n++) {

        rc = runner_message_receive(event->fd, &message);

        if (rc == -1 && errno == EAGAIN) {
            return;
        }

        if (rc != 1) {

            /* without the runner there is nobody to work for */

            egress->loop.done = 1;
            return;
        }

        if (egress_control_message(egress, &message) == -1) {
            runner_log(RUNNER_LOG_ERROR, "egress: message %u of the runner "
                       "is not understood", message.type);
        }

        runner_message_close(&message);
    }
}


void
egress_control_hear(egress_t *egress)
{
    egress_control_event(&egress->channel, EPOLLIN);
}


static int
egress_control_message(egress_t *egress, runner_message_t *message)
{
    uint32_t            policy;
    egress_sandbox_t  **sandbox;

    switch (message->type) {

    case EGRESS_CHANNEL_TABLE:
        return message->nfds == 1
               ? egress_control_table(egress, message->fds[0]) : -1;

    case EGRESS_CHANNEL_OPEN:
    case EGRESS_CHANNEL_GATE:
        return message->nfds == 1 ? egress_control_open(egress, message) : -1;

    case EGRESS_CHANNEL_POLICY:
        sandbox = egress_control_find(egress, message->serial);

        if (*sandbox == NULL
            || egress_control_read(message, NULL, &policy, NULL) == -1)
        {
            return -1;
        }

        (*sandbox)->policy = policy;
        egress_tunnel_check(*sandbox);
        return 0;

    case EGRESS_CHANNEL_CLOSE:
        egress_control_close(egress, message->serial);
        return 0;

    default:
        return -1;
    }
}


/* a key is wanted, or there may be none */

static int
egress_control_read(runner_message_t *message, char *id, uint32_t *policy,
    uint8_t *key)
{
    int              rc;
    uint64_t         n;
    sandbox_field_t  field;

    n = 0;

    while ((rc = sandbox_fields_next(&message->fields, &field))
           == SANDBOX_OK)
    {
        if (field.tag == SANDBOX_TAG_EGRESS_ID
            && sandbox_field_number(&field, UINT32_MAX, &n) != SANDBOX_OK)
        {
            return -1;
        }

        if (field.tag == SANDBOX_TAG_SANDBOX_ID && id != NULL) {
            if (field.length > SANDBOX_WIRE_SANDBOX_ID_SIZE) {
                return -1;
            }

            memcpy(id, field.data, field.length);
            id[field.length] = '\0';
        }

        if (field.tag == SANDBOX_TAG_EGRESS_KEY) {
            if (field.length != SANDBOX_WIRE_KEY_SIZE || key == NULL) {
                return -1;
            }

            memcpy(key, field.data, field.length);
            key = NULL;
        }
    }

    *policy = (uint32_t) n;

    return rc == SANDBOX_END && key == NULL ? 0 : -1;
}


static int
egress_control_table(egress_t *egress, int fd)
{
    uint8_t           *table;
    unsigned           i;
    struct stat        st;

    if (fstat(fd, &st) == -1 || st.st_size > SANDBOX_WIRE_MAX_TABLE) {
        return -1;
    }

    table = malloc(st.st_size + 1);

    if (table == NULL || pread(fd, table, st.st_size, 0) != st.st_size
        || sandbox_egress_check(table, st.st_size) != SANDBOX_OK)
    {
        free(table);
        return -1;
    }

    free(egress->table);
    egress->table = table;
    egress->table_size = st.st_size;

    for (i = 0; i < EGRESS_BUCKETS; i++) {
        egress_control_check(egress->sandboxes[i]);
        egress_control_check(egress->sessions[i]);
    }

    return 0;
}


static void
egress_control_check(egress_sandbox_t *sandbox)
{
    for ( /* void */ ; sandbox != NULL; sandbox = sandbox->next) {
        egress_tunnel_check(sandbox);
    }
}


static int
egress_control_open(egress_t *egress, runner_message_t *message)
{
    uint8_t           *key;
    egress_sandbox_t  *sandbox, **place;

    /* a listener that was made anew takes the place of the one before */

    egress_control_close(egress, message->serial);

    sandbox = calloc(1, sizeof(*sandbox));
    if (sandbox == NULL) {
        return -1;
    }

    sandbox->gate = message->type == EGRESS_CHANNEL_GATE;
    key = sandbox->gate ? egress->key : NULL;

    if (egress_control_read(message, sandbox->id, &sandbox->policy, key)
        == -1)
    {
        free(sandbox);
        return -1;
    }

    sandbox->egress = egress;
    sandbox->number = message->serial;
    sandbox->log_left = EGRESS_LOG_BURST;
    sandbox->log_at = egress->loop.now;
    sandbox->timer.data = sandbox;
    sandbox->timer.handler = egress_control_listen;
    sandbox->listener.fd = message->fds[0];
    sandbox->listener.data = sandbox;
    sandbox->listener.handler = egress_tunnel_accept;

    /* accept() must never wait */

    if (fcntl(message->fds[0], F_SETFL, O_RDWR|O_NONBLOCK) == -1
        || runner_event_add(&egress->loop, &sandbox->listener, EPOLLIN) == -1)
    {
        free(sandbox);
        return -1;
    }

    message->fds[0] = -1;

    if (sandbox->gate) {
        explicit_bzero(message->buf, sizeof(message->buf));
    }

    place = egress_control_find(egress, message->serial);
    *place = sandbox;

    return 0;
}


/* where it is, or would be */

static egress_sandbox_t **
egress_control_find(egress_t *egress, uint32_t number)
{
    egress_sandbox_t  **sandbox;

    for (sandbox = &egress->sandboxes[number % EGRESS_BUCKETS];
         *sandbox != NULL;
         sandbox = &(*sandbox)->next)
    {
        if ((*sandbox)->number == number) {
            break;
        }
    }

    return sandbox;
}


static void
egress_control_close(egress_t *egress, uint32_t number)
{
    egress_sandbox_t  *sandbox, **place;

    place = egress_control_find(egress, number);
    sandbox = *place;

    if (sandbox == NULL) {
        return;
    }

    *place = sandbox->next;

    runner_event_remove(&egress->loop, &sandbox->listener);
    runner_timer_stop(&egress->loop, &sandbox->timer);
    close(sandbox->listener.fd);

    while (sandbox->tunnels != NULL) {
        egress_tunnel_end(sandbox->tunnels, "the sandbox ended");
    }

    runner_loop_free_later(&egress->loop, &sandbox->later);
}


static void
egress_control_listen(void *data)
{
    egress_sandbox_t  *sandbox;

    sandbox = data;

    (void) runner_event_change(&sandbox->egress->loop, &sandbox->listener,
                               EPOLLIN);
}


int
egress_policy(egress_t *egress, uint32_t id, sandbox_egress_policy_t *policy)
{
    return id != 0 && egress->table != NULL
           && sandbox_egress_find(egress->table, egress->table_size, id,
                                  policy);
}


egress_counter_t *
egress_count(egress_t *egress, uint32_t id)
{
    unsigned           i;
    egress_counter_t  *counter;

    counter = NULL;

    for (i = 0; id != 0 && i < EGRESS_MAX_COUNTERS; i++) {

        if (egress->counters[i].id == id) {
            counter = &egress->counters[i];
            break;
        }

        if (counter == NULL && egress->counters[i].id == 0) {
            counter = &egress->counters[i];
        }
    }

    if (counter == NULL) {
        return &egress_counter_none;
    }

    counter->id = id;
    counter->dirty = 1;

    if (egress->count_timer.index == 0) {
        (void) runner_timer_start(&egress->loop, &egress->count_timer,
                                  EGRESS_COUNT_WAIT);
    }

    return counter;
}


static void
egress_control_report(void *data)
{
    uint8_t            b[256];
    unsigned           i;
    egress_t          *egress;
    sandbox_writer_t   w;
    egress_counter_t  *c;

    egress = data;

    for (i = 0; i < EGRESS_MAX_COUNTERS; i++) {
        c = &egress->counters[i];

        if (!c->dirty) {
            continue;
        }

        sandbox_writer_init(&w, b, sizeof(b));
        sandbox_write_number(&w, SANDBOX_TAG_EGRESS_ID, c->id);
        sandbox_write_number(&w, SANDBOX_TAG_EGRESS_OPEN, c->open);
        sandbox_write_number(&w, SANDBOX_TAG_EGRESS_TUNNELS, c->tunnels);
        sandbox_write_number(&w, SANDBOX_TAG_EGRESS_REFUSED, c->refused);
        sandbox_write_number(&w, SANDBOX_TAG_EGRESS_FAILED, c->failed);
        sandbox_write_number(&w, SANDBOX_TAG_EGRESS_UP, c->up);
        sandbox_write_number(&w, SANDBOX_TAG_EGRESS_DOWN, c->down);

        if (runner_message_send(egress->channel.fd, EGRESS_CHANNEL_COUNT, 0,
                                0, w.start, w.pos - w.start, NULL, 0)
            == -1)
        {
            /* the runner is busy; the next report says more anyway */

            (void) runner_timer_start(&egress->loop, &egress->count_timer,
                                      EGRESS_COUNT_WAIT);
            return;
        }

        c->dirty = 0;
    }
}


int
egress_log_allowed(egress_sandbox_t *sandbox)
{
    uint64_t  now, more;

    now = sandbox->egress->loop.now;
    more = (now - sandbox->log_at) * EGRESS_LOG_RATE / 1000;

    if (more) {
        sandbox->log_at = now;
        sandbox->log_left = sandbox->log_left + more < EGRESS_LOG_BURST
                            ? sandbox->log_left + more : EGRESS_LOG_BURST;
    }

    /* how many were left out is a line, too */

    if (sandbox->log_left < 1u + (sandbox->log_left_out != 0)) {
        sandbox->log_left_out++;
        return 0;
    }

    sandbox->log_left--;

    if (sandbox->log_left_out) {
        sandbox->log_left--;
        runner_log(RUNNER_LOG_WARN, "egress: %u lines of sandbox %s were left "
                   "out", sandbox->log_left_out, sandbox->id);
        sandbox->log_left_out = 0;
    }

    return 1;
}
