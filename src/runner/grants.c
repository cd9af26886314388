/*
 * Run slots and tenants.  Pure: knows no sandboxes, no sockets.
 */

#include <stdlib.h>
#include <string.h>

#include "grants.h"


static unsigned runner_tenant_bucket(const uint8_t *digest);
static void runner_turn_leave(runner_grants_t *grants,
    runner_tenant_t *tenant);


void
runner_grants_init(runner_grants_t *grants, unsigned total)
{
    memset(grants, 0, sizeof(*grants));
    grants->total = total;
}


static unsigned
runner_tenant_bucket(const uint8_t *digest)
{
    return (digest[0] ^ digest[7]) % RUNNER_TENANT_BUCKETS;
}


runner_tenant_t *
runner_tenant_find(runner_grants_t *grants, const uint8_t *digest)
{
    runner_tenant_t  *tenant;

    for (tenant = grants->tenants[runner_tenant_bucket(digest)];
         tenant != NULL;
         tenant = tenant->hash_next)
    {
        if (memcmp(tenant->digest, digest, SANDBOX_WIRE_TENANT_SIZE) == 0) {
            return tenant;
        }
    }

    return NULL;
}


runner_tenant_t *
runner_tenant_get(runner_grants_t *grants, const uint8_t *digest)
{
    runner_tenant_t  *tenant, **bucket;

    tenant = runner_tenant_find(grants, digest);

    if (tenant != NULL) {
        tenant->references++;
        return tenant;
    }

    bucket = &grants->tenants[runner_tenant_bucket(digest)];

    tenant = calloc(1, sizeof(*tenant));
    if (tenant == NULL) {
        return NULL;
    }

    memcpy(tenant->digest, digest, SANDBOX_WIRE_TENANT_SIZE);
    tenant->references = 1;
    tenant->last = &tenant->first;
    tenant->hash_next = *bucket;
    *bucket = tenant;

    return tenant;
}


void
runner_tenant_put(runner_grants_t *grants, runner_tenant_t *tenant)
{
    runner_tenant_t  **p;

    if (--tenant->references) {
        return;
    }

    p = &grants->tenants[runner_tenant_bucket(tenant->digest)];

    while (*p != tenant) {
        p = &(*p)->hash_next;
    }

    *p = tenant->hash_next;
    free(tenant);
}


int
runner_grants_take(runner_grants_t *grants)
{
    if (grants->waiting || grants->used >= grants->total) {
        return 0;
    }

    grants->used++;

    return 1;
}


void
runner_grants_hold(runner_grants_t *grants, unsigned n)
{
    grants->used += n;
}


void
runner_grants_give(runner_grants_t *grants, unsigned n)
{
    grants->used -= n < grants->used ? n : grants->used;
}


void
runner_grants_wait(runner_grants_t *grants, runner_waiter_t *waiter,
    runner_tenant_t *tenant, void *data)
{
    if (waiter->prev != NULL) {
        return;
    }

    waiter->tenant = tenant;
    waiter->data = data;
    waiter->next = NULL;
    waiter->prev = tenant->last;
    *tenant->last = waiter;
    tenant->last = &waiter->next;

    grants->waiting++;

    if (tenant->turn_next != NULL) {
        return;
    }

    /* a tenant that has not waited comes last in this round */

    if (grants->turn == NULL) {
        tenant->turn_next = tenant;
        tenant->turn_prev = tenant;
        grants->turn = tenant;
        return;
    }

    tenant->turn_next = grants->turn;
    tenant->turn_prev = grants->turn->turn_prev;
    tenant->turn_prev->turn_next = tenant;
    tenant->turn_next->turn_prev = tenant;
}


void
runner_grants_leave(runner_grants_t *grants, runner_waiter_t *waiter)
{
    runner_tenant_t  *tenant;

    if (waiter->prev == NULL) {
        return;
    }

    tenant = waiter->tenant;

    *waiter->prev = waiter->next;

    if (waiter->next != NULL) {
        waiter->next->prev = waiter->prev;

    } else {
        tenant->last = waiter->prev;
    }

    waiter->next = NULL;
    waiter->prev = NULL;
    grants->waiting--;

    if (tenant->first == NULL) {
        runner_turn_leave(grants, tenant);
    }
}


static void
runner_turn_leave(runner_grants_t *grants, runner_tenant_t *tenant)
{
    if (tenant->turn_next == tenant) {
        grants->turn = NULL;

    } else {
        tenant->turn_prev->turn_next = tenant->turn_next;
        tenant->turn_next->turn_prev = tenant->turn_prev;

        if (grants->turn == tenant) {
            grants->turn = tenant->turn_next;
        }
    }

    tenant->turn_next = NULL;
    tenant->turn_prev = NULL;
}


runner_waiter_t *
runner_grants_next(runner_grants_t *grants)
{
    runner_waiter_t  *waiter;
    runner_tenant_t  *tenant;

    tenant = grants->turn;

    if (tenant == NULL || grants->used >= grants->total) {
        return NULL;
    }

    waiter = tenant->first;

    /* its turn is over; it stays in the ring if it has more to run */

    grants->turn = tenant->turn_next;
    runner_grants_leave(grants, waiter);
    grants->used++;

    return waiter;
}
