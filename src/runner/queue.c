/*
 * Lines of connections.  Knows nothing of them but their link.
 */

#include "runner.h"


void
runner_queue_init(runner_queue_t *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
    queue->n = 0;
}


void
runner_queue_append(runner_queue_t *queue, runner_conn_t *conn)
{
    runner_queue_remove(conn);

    conn->link.next = NULL;
    conn->link.prev = queue->last;
    conn->link.queue = queue;

    *queue->last = conn;
    queue->last = &conn->link.next;
    queue->n++;
}


void
runner_queue_prepend(runner_queue_t *queue, runner_conn_t *conn)
{
    runner_queue_remove(conn);

    conn->link.next = queue->first;
    conn->link.prev = &queue->first;
    conn->link.queue = queue;

    if (queue->first != NULL) {
        queue->first->link.prev = &conn->link.next;

    } else {
        queue->last = &conn->link.next;
    }

    queue->first = conn;
    queue->n++;
}


void
runner_queue_remove(runner_conn_t *conn)
{
    runner_queue_t  *queue;

    queue = conn->link.queue;

    if (queue == NULL) {
        return;
    }

    *conn->link.prev = conn->link.next;

    if (conn->link.next != NULL) {
        conn->link.next->link.prev = conn->link.prev;

    } else {
        queue->last = conn->link.prev;
    }

    conn->link.queue = NULL;
    queue->n--;
}


void
runner_queue_move_before(runner_queue_t *to, runner_queue_t *from)
{
    runner_conn_t  *conn;

    if (from->first == NULL) {
        return;
    }

    for (conn = from->first; conn != NULL; conn = conn->link.next) {
        conn->link.queue = to;
    }

    *from->last = to->first;

    if (to->first != NULL) {
        to->first->link.prev = from->last;

    } else {
        to->last = from->last;
    }

    to->first = from->first;
    to->first->link.prev = &to->first;
    to->n += from->n;

    runner_queue_init(from);
}
