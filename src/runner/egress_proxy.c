/*
 * The proxy of the runner: started when the first sandbox needs it, and told
 * of all of them.
 */

#define _GNU_SOURCE
#include <unistd.h>

#include "container.h"
#include "control.h"
#include "egress_channel.h"
#include "egress_core.h"


static void runner_egress_all(void *data);
static void runner_egress_ready_now(void *data);
static void runner_egress_lost(void *data);
static int runner_egress_wanted(void *data);


void
runner_egress_proxy_init(runner_egress_t *egress)
{
    runner_egress_child_t  *child;

    child = &egress->child;

    runner_egress_child_init(child);

    child->loop = &egress->runner->loop;
    child->options = egress->runner->options;
    child->data = egress;
    child->tell = runner_egress_all;
    child->ready = runner_egress_ready_now;
    child->lost = runner_egress_lost;
    child->wanted = runner_egress_wanted;
}


void
runner_egress_proxy(runner_egress_t *egress)
{
    if (runner_egress_wanted(egress)) {
        runner_egress_child_start(&egress->child);
    }
}


static int
runner_egress_wanted(void *data)
{
    return ((runner_egress_t *) data)->runner->mode == RUNNER_RUNNING;
}


static void
runner_egress_all(void *data)
{
    runner_egress_t     *egress;
    runner_container_t  *container;

    egress = data;

    runner_egress_send_table(egress);

    for (container = egress->runner->containers;
         container != NULL;
         container = container->next)
    {
        if (container->egress_open) {
            runner_egress_send_open(egress, container);
        }
    }
}


static void
runner_egress_ready_now(void *data)
{
    runner_egress_t     *egress;
    runner_container_t  *container;

    egress = data;

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


static void
runner_egress_lost(void *data)
{
    runner_egress_t     *egress;
    runner_container_t  *container;

    egress = data;

    for (container = egress->runner->containers;
         container != NULL && egress->child.attempts >= RUNNER_EGRESS_ATTEMPTS;
         container = container->next)
    {
        if (container->egress_open) {
            close(container->egress_fd);
            container->egress_open = 0;
        }
    }
}


void
runner_egress_send_table(runner_egress_t *egress)
{
    runner_egress_child_table(&egress->child, egress->table,
                              egress->table_size);
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

    runner_egress_child_send(&egress->child, EGRESS_CHANNEL_OPEN,
                             record->number, &w, container->egress_fd);
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

    runner_egress_child_send(&egress->child, EGRESS_CHANNEL_POLICY,
                             container->slot.record.number, &w, -1);
}


void
runner_egress_send_close(runner_egress_t *egress,
    runner_container_t *container)
{
    runner_egress_child_send(&egress->child, EGRESS_CHANNEL_CLOSE,
                             container->slot.record.number, NULL, -1);
}
