/*
 * Connections in a line; one is in one line at most.
 */

#ifndef RUNNER_QUEUE_H
#define RUNNER_QUEUE_H

#include <stddef.h>


typedef struct runner_conn_s   runner_conn_t;
typedef struct runner_queue_s  runner_queue_t;


struct runner_queue_s {
    runner_conn_t   *first;
    runner_conn_t  **last;
    unsigned         n;
};


/* part of a connection */

typedef struct {
    runner_conn_t   *next;
    runner_conn_t  **prev;
    runner_queue_t  *queue;              /* NULL: in none */
} runner_queue_link_t;


void runner_queue_init(runner_queue_t *queue);

/* At the end; at the start. */
void runner_queue_append(runner_queue_t *queue, runner_conn_t *conn);
void runner_queue_prepend(runner_queue_t *queue, runner_conn_t *conn);

/* Out of the line it is in; no harm if it is in none. */
void runner_queue_remove(runner_conn_t *conn);

/* All of `from`, in their order, before those of `to`. */
void runner_queue_move_before(runner_queue_t *to, runner_queue_t *from);


#endif /* RUNNER_QUEUE_H */
