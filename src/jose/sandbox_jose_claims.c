/*
 * Claims of a token: its times, issuer and audience, whom it speaks of and
 * what they may do.  Knows no signatures and no clock.
 */

#include "sandbox_jose_core.h"

#include <math.h>
#include <string.h>


/* beyond it a time is simply far away; sums with a leeway stay in range */

#define SANDBOX_JOSE_MAX_TIME  ((int64_t) 1 << 62)


static int sandbox_jose_time(const json_t *claims, const char *name,
    int64_t *seconds);
static sandbox_jose_status_t sandbox_jose_audience(const json_t *claims,
    const sandbox_jose_policy_t *policy);
static int sandbox_jose_meant(const json_t *value,
    const sandbox_jose_policy_t *policy);
static int sandbox_jose_equals(const json_t *value, const char *s);
static int sandbox_jose_printable(const char *s);
static int sandbox_jose_grants(const json_t *claim, const char *permission);
static int sandbox_jose_has_word(const char *s, const char *word);


sandbox_jose_status_t
sandbox_jose_claims(const json_t *claims, const sandbox_jose_policy_t *policy,
    int64_t now, int64_t *expires)
{
    int64_t                leeway, exp, nbf, iat;
    const json_t          *iss;
    sandbox_jose_status_t  status;

    leeway = policy->leeway <= SANDBOX_JOSE_MAX_LEEWAY
             ? policy->leeway : SANDBOX_JOSE_MAX_LEEWAY;

    exp = 0;
    nbf = -SANDBOX_JOSE_MAX_TIME;
    iat = -SANDBOX_JOSE_MAX_TIME;

    if (json_object_get(claims, "exp") == NULL
        || !sandbox_jose_time(claims, "exp", &exp)
        || !sandbox_jose_time(claims, "nbf", &nbf)
        || !sandbox_jose_time(claims, "iat", &iat))
    {
        return SANDBOX_JOSE_CLAIMS;
    }

    if (now >= exp + leeway) {
        return SANDBOX_JOSE_EXPIRED;
    }

    if (now + leeway < nbf || now + leeway < iat) {
        return SANDBOX_JOSE_NOT_YET_VALID;
    }

    if (policy->issuer != NULL) {
        iss = json_object_get(claims, "iss");

        if (!sandbox_jose_equals(iss, policy->issuer)) {
            return SANDBOX_JOSE_ISSUER;
        }
    }

    if (policy->naudiences != 0) {
        status = sandbox_jose_audience(claims, policy);

        if (status != SANDBOX_JOSE_OK) {
            return status;
        }
    }

    *expires = exp + leeway;

    return SANDBOX_JOSE_OK;
}


sandbox_jose_status_t
sandbox_jose_principal(const json_t *claims, const sandbox_jose_path_t *tenant,
    sandbox_jose_principal_t *principal)
{
    const json_t              *iss;
    sandbox_jose_principal_t   p;

    memset(&p, 0, sizeof(sandbox_jose_principal_t));

    iss = json_object_get(claims, "iss");

    if (iss != NULL) {
        if (!json_is_string(iss)
            || json_string_length(iss) > SANDBOX_JOSE_MAX_ISSUER
            || !sandbox_jose_printable(json_string_value(iss)))
        {
            return SANDBOX_JOSE_CLAIMS;
        }

        p.issuer = json_string_value(iss);
    }

    p.user = sandbox_jose_text(json_object_get(claims, "sub"),
                               SANDBOX_JOSE_MAX_NAME);

    if (p.user == NULL) {
        return SANDBOX_JOSE_CLAIMS;
    }

    if (tenant != NULL) {
        p.tenant = sandbox_jose_text(sandbox_jose_path_find(claims, tenant),
                                     SANDBOX_JOSE_MAX_NAME);

        if (p.tenant == NULL) {
            return SANDBOX_JOSE_CLAIMS;
        }
    }

    *principal = p;

    return SANDBOX_JOSE_OK;
}


sandbox_jose_status_t
sandbox_jose_conversation(const json_t *claims,
    const sandbox_jose_path_t *path, const char **conversation)
{
    const char  *value;

    value = sandbox_jose_text(sandbox_jose_path_find(claims, path),
                              SANDBOX_JOSE_MAX_CONVERSATION);
    if (value == NULL) {
        return SANDBOX_JOSE_CLAIMS;
    }

    *conversation = value;

    return SANDBOX_JOSE_OK;
}


int
sandbox_jose_permitted(const json_t *claims,
    const sandbox_jose_path_t *const *paths, size_t n, const char *permission)
{
    size_t  i;

    if (permission[0] == '\0') {
        return 0;
    }

    if (paths == NULL) {
        return sandbox_jose_grants(json_object_get(claims, "permissions"),
                                   permission)
               || sandbox_jose_grants(json_object_get(claims, "scope"),
                                      permission);
    }

    for (i = 0; i < n; i++) {
        if (sandbox_jose_grants(sandbox_jose_path_find(claims, paths[i]),
                                permission))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * The first whole second at or after the claim's time; *seconds is left alone
 * where there is no such claim.  0: it is not a number.
 */

static int
sandbox_jose_time(const json_t *claims, const char *name, int64_t *seconds)
{
    double         real;
    json_int_t     integer;
    const json_t  *value;

    value = json_object_get(claims, name);

    if (value == NULL) {
        return 1;
    }

    if (json_is_integer(value)) {
        integer = json_integer_value(value);

        if (integer > SANDBOX_JOSE_MAX_TIME) {
            integer = SANDBOX_JOSE_MAX_TIME;

        } else if (integer < -SANDBOX_JOSE_MAX_TIME) {
            integer = -SANDBOX_JOSE_MAX_TIME;
        }

        *seconds = integer;
        return 1;
    }

    if (!json_is_real(value)) {
        return 0;
    }

    real = json_real_value(value);

    if (!isfinite(real)) {
        return 0;
    }

    if (real >= (double) SANDBOX_JOSE_MAX_TIME) {
        *seconds = SANDBOX_JOSE_MAX_TIME;

    } else if (real <= (double) -SANDBOX_JOSE_MAX_TIME) {
        *seconds = -SANDBOX_JOSE_MAX_TIME;

    } else {
        *seconds = (int64_t) real;

        /* rounded up by hand, since nginx need not be linked with libm */

        if ((double) *seconds < real) {
            (*seconds)++;
        }
    }

    return 1;
}


static sandbox_jose_status_t
sandbox_jose_audience(const json_t *claims,
    const sandbox_jose_policy_t *policy)
{
    size_t         i;
    const json_t  *aud, *item;

    aud = json_object_get(claims, "aud");

    if (aud == NULL) {
        return SANDBOX_JOSE_AUDIENCE;
    }

    if (json_is_string(aud)) {
        return sandbox_jose_meant(aud, policy) ? SANDBOX_JOSE_OK
                                               : SANDBOX_JOSE_AUDIENCE;
    }

    if (!json_is_array(aud)) {
        return SANDBOX_JOSE_CLAIMS;
    }

    for (i = 0; i < json_array_size(aud); i++) {
        if (!json_is_string(json_array_get(aud, i))) {
            return SANDBOX_JOSE_CLAIMS;
        }
    }

    json_array_foreach((json_t *) aud, i, item) {
        if (sandbox_jose_meant(item, policy)) {
            return SANDBOX_JOSE_OK;
        }
    }

    return SANDBOX_JOSE_AUDIENCE;
}


static int
sandbox_jose_meant(const json_t *value, const sandbox_jose_policy_t *policy)
{
    size_t  i;

    for (i = 0; i < policy->naudiences; i++) {
        if (sandbox_jose_equals(value, policy->audiences[i])) {
            return 1;
        }
    }

    return 0;
}


/* Strings of a token hold no NUL: jansson has refused them. */

static int
sandbox_jose_equals(const json_t *value, const char *s)
{
    return json_is_string(value) && strcmp(json_string_value(value), s) == 0;
}


const char *
sandbox_jose_text(const json_t *value, size_t max)
{
    if (!json_is_string(value)
        || json_string_length(value) == 0
        || json_string_length(value) > max
        || !sandbox_jose_printable(json_string_value(value)))
    {
        return NULL;
    }

    return json_string_value(value);
}


/* No control characters: C0, DEL, and C1 (U+0080 to U+009F in UTF-8). */

static int
sandbox_jose_printable(const char *s)
{
    const uint8_t  *p;

    for (p = (const uint8_t *) s; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            return 0;
        }

        if (*p == 0xc2 && p[1] < 0xa0) {
            return 0;
        }
    }

    return 1;
}


static int
sandbox_jose_grants(const json_t *claim, const char *permission)
{
    int            found;
    size_t         i;
    const json_t  *item;

    if (json_is_string(claim)) {
        return sandbox_jose_has_word(json_string_value(claim), permission);
    }

    if (!json_is_array(claim)) {
        return 0;
    }

    found = 0;

    for (i = 0; i < json_array_size(claim); i++) {
        item = json_array_get(claim, i);

        if (!json_is_string(item)) {
            return 0;
        }

        if (sandbox_jose_equals(item, permission)) {
            found = 1;
        }
    }

    return found;
}


static int
sandbox_jose_has_word(const char *s, const char *word)
{
    size_t  n, size;

    size = strlen(word);

    for ( ;; ) {
        s += strspn(s, " ");
        n = strcspn(s, " ");

        if (n == 0) {
            return 0;
        }

        if (n == size && memcmp(s, word, n) == 0) {
            return 1;
        }

        s += n;
    }
}
