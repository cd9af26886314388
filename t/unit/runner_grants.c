/*
 * Run slots: never more than there are, and tenants take turns however much
 * one of them wants.
 */

/* link: src/runner/grants.c */
/* flags: -U_GNU_SOURCE */

#include "test.h"
#include "grants.h"


static runner_tenant_t *tenant(runner_grants_t *grants, char c);
static void free_slots(void);
static void turns(void);
static void leaving(void);
static void lowered(void);


int
main(void)
{
    free_slots();
    turns();
    leaving();
    lowered();

    return test_done();
}


static runner_tenant_t *
tenant(runner_grants_t *grants, char c)
{
    uint8_t  digest[SANDBOX_WIRE_TENANT_SIZE];

    memset(digest, c, sizeof(digest));

    return runner_tenant_get(grants, digest);
}


static void
free_slots(void)
{
    runner_tenant_t  *a, *b, *again;
    runner_waiter_t   w = { 0 };
    runner_grants_t   grants;

    runner_grants_init(&grants, 2);

    ok(runner_grants_take(&grants), "the first slot is free");
    ok(runner_grants_take(&grants), "the second, too");
    ok(!runner_grants_take(&grants), "there is no third");

    a = tenant(&grants, 'a');
    again = tenant(&grants, 'a');
    ok(a == again, "a digest is one tenant");
    b = tenant(&grants, 'b');
    ok(b != a, "another digest is another one");

    runner_grants_wait(&grants, &w, a, "w");
    runner_grants_wait(&grants, &w, a, "w");
    is_number(grants.waiting, 1, "who waits twice waits once");

    ok(runner_grants_next(&grants) == NULL, "nothing is free yet");
    runner_grants_give(&grants, 1);
    ok(!runner_grants_take(&grants), "nobody overtakes one that waits");
    ok(runner_grants_next(&grants) == &w, "it gets what was given back");
    is_number(grants.used, 2, "and holds it");
    is_number(grants.waiting, 0, "and waits no more");

    runner_grants_give(&grants, 9);
    is_number(grants.used, 0, "giving back too much is not a debt");

    runner_tenant_put(&grants, a);
    runner_tenant_put(&grants, a);
    runner_tenant_put(&grants, b);
}


/* A wants a hundred, B and C come late with one and two */

static void
turns(void)
{
    char              order[8] = "";
    unsigned          i;
    runner_tenant_t  *a, *b, *c;
    runner_waiter_t   wa[100], wb, wc[2], *w;
    runner_grants_t   grants;

    memset(wa, 0, sizeof(wa));
    memset(&wb, 0, sizeof(wb));
    memset(wc, 0, sizeof(wc));

    runner_grants_init(&grants, 1);
    a = tenant(&grants, 'a');
    b = tenant(&grants, 'b');
    c = tenant(&grants, 'c');

    (void) runner_grants_take(&grants);

    for (i = 0; i < 100; i++) {
        runner_grants_wait(&grants, &wa[i], a, "a");
    }

    runner_grants_wait(&grants, &wb, b, "b");
    runner_grants_wait(&grants, &wc[0], c, "c");
    runner_grants_wait(&grants, &wc[1], c, "c");

    for (i = 0; i < 7; i++) {
        runner_grants_give(&grants, 1);
        w = runner_grants_next(&grants);
        strcat(order, w->data);
    }

    is_string(order, "abcacaa", "one each, in turns, until they have enough");
    is_number(grants.waiting, 96, "the rest still waits");

    for (i = 4; i < 100; i++) {
        runner_grants_give(&grants, 1);
        w = runner_grants_next(&grants);
        if (w != &wa[i]) {
            break;
        }
    }

    is_number(i, 100, "within a tenant in their order");
    ok(runner_grants_next(&grants) == NULL, "until nobody waits");

    runner_tenant_put(&grants, a);
    runner_tenant_put(&grants, b);
    runner_tenant_put(&grants, c);
}


static void
leaving(void)
{
    runner_tenant_t  *a, *b;
    runner_waiter_t   w[3];
    runner_grants_t   grants;

    memset(w, 0, sizeof(w));
    runner_grants_init(&grants, 1);
    a = tenant(&grants, 'a');
    b = tenant(&grants, 'b');

    runner_grants_wait(&grants, &w[0], a, NULL);
    runner_grants_wait(&grants, &w[1], a, NULL);
    runner_grants_wait(&grants, &w[2], b, NULL);

    runner_grants_leave(&grants, &w[0]);
    runner_grants_leave(&grants, &w[0]);
    is_number(grants.waiting, 2, "who left twice left once");

    runner_grants_leave(&grants, &w[1]);
    ok(grants.turn == b, "a tenant without waiters has no turn");
    ok(runner_grants_next(&grants) == &w[2], "the other one has");
    ok(grants.turn == NULL, "nobody is left");

    runner_grants_wait(&grants, &w[1], a, NULL);
    runner_grants_leave(&grants, &w[1]);
    ok(grants.turn == NULL && grants.waiting == 0, "the last one may leave");

    runner_tenant_put(&grants, a);
    runner_tenant_put(&grants, b);
}


static void
lowered(void)
{
    runner_tenant_t  *a;
    runner_waiter_t   w = { 0 };
    runner_grants_t   grants;

    runner_grants_init(&grants, 4);
    runner_grants_hold(&grants, 5);
    a = tenant(&grants, 'a');

    runner_grants_wait(&grants, &w, a, NULL);
    runner_grants_give(&grants, 1);
    ok(runner_grants_next(&grants) == NULL, "adopted ones count");

    grants.total = 2;
    runner_grants_give(&grants, 2);
    ok(runner_grants_next(&grants) == NULL, "a lowered number holds");

    grants.total = 3;
    ok(runner_grants_next(&grants) == &w, "a raised one, too");

    runner_tenant_put(&grants, a);
}
