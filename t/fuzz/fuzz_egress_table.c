/*
 * Foreign bytes as a table of egress policies: what is found good can be gone
 * through, and nothing of it leads outside of it.
 */

/* link: src/wire/sandbox_egress.c src/wire/sandbox_wire.c */
/* covers: src/wire/sandbox_egress.c */

#include <stdlib.h>
#include <string.h>

#include "sandbox_egress.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_within(const uint8_t *p, size_t size, const uint8_t *part,
    size_t length);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    int                       rc;
    unsigned                  n;
    sandbox_fields_t          table;
    sandbox_egress_policy_t   policy, found;

    if (sandbox_egress_check(p, size) != SANDBOX_OK) {
        return 0;
    }

    n = 0;
    sandbox_fields_init(&table, p, size);

    while ((rc = sandbox_egress_next(&table, &policy)) == SANDBOX_OK) {
        check(++n <= SANDBOX_EGRESS_MAX_POLICIES);
        check(policy.id != 0 && policy.hosts <= SANDBOX_EGRESS_MAX_HOSTS);
        check(policy.name_length >= 1
              && policy.name_length <= SANDBOX_WIRE_MAX_POLICY_NAME);

        fuzz_within(p, size, policy.name, policy.name_length);
        fuzz_within(p, size, policy.fields, policy.size);
        fuzz_within(p, size, policy.index, policy.index_length);
        fuzz_within(p, size, policy.ca, policy.ca_length);

        check(sandbox_egress_find(p, size, policy.id, &found));
        check(found.fields == policy.fields);

        (void) sandbox_egress_allows(&policy, (const uint8_t *) "x.b.test", 8);
        check(!sandbox_egress_allows(&policy, (const uint8_t *) "", 0));
    }

    check(rc == SANDBOX_END);

    return 0;
}


static void
fuzz_within(const uint8_t *p, size_t size, const uint8_t *part, size_t length)
{
    check(part == NULL || (part >= p && part + length <= p + size));
}
