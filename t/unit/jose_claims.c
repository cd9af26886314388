/*
 * src/jose: times, issuer, audience, principal and permission.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_jwks.c src/jose/sandbox_jose_path.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: -ljansson -ljwt -lcrypto */

#include "jose_mint.h"


static sandbox_jose_key_t  *secret;


static void
test_exp(void)
{
    char    claims[128];
    size_t  i;

    static const struct {
        const char             *exp;
        sandbox_jose_status_t   status;
    } cases[] = {
        { "1700000001", SANDBOX_JOSE_OK },
        { "1700000000", SANDBOX_JOSE_EXPIRED },
        { "1699999999", SANDBOX_JOSE_EXPIRED },
        { "1700000000.5", SANDBOX_JOSE_OK },
        { "1700000000.0", SANDBOX_JOSE_EXPIRED },
        { "1699999999.9", SANDBOX_JOSE_EXPIRED },
        { "1.7000000001e9", SANDBOX_JOSE_OK },
        { "1.7e9", SANDBOX_JOSE_EXPIRED },
        { "4102444800", SANDBOX_JOSE_OK },
        { "4102444800.5", SANDBOX_JOSE_OK },
        { "9223372036854775807", SANDBOX_JOSE_OK },
        { "9223372036854775808", SANDBOX_JOSE_CLAIMS },
        { "18446744073709551617", SANDBOX_JOSE_CLAIMS },
        { "-9223372036854775808", SANDBOX_JOSE_EXPIRED },
        { "9223372036854775808.0", SANDBOX_JOSE_OK },
        { "1e300", SANDBOX_JOSE_OK },
        { "1e400", SANDBOX_JOSE_CLAIMS },
        { "-1e400", SANDBOX_JOSE_CLAIMS },
        { "-1e300", SANDBOX_JOSE_EXPIRED },
        { "-1", SANDBOX_JOSE_EXPIRED },
        { "0", SANDBOX_JOSE_EXPIRED },
        { "-0.0", SANDBOX_JOSE_EXPIRED },
        { "\"0\"", SANDBOX_JOSE_CLAIMS },
        { "\"4102444800\"", SANDBOX_JOSE_CLAIMS },
        { "\"abc\"", SANDBOX_JOSE_CLAIMS },
        { "\"\"", SANDBOX_JOSE_CLAIMS },
        { "null", SANDBOX_JOSE_CLAIMS },
        { "true", SANDBOX_JOSE_CLAIMS },
        { "[]", SANDBOX_JOSE_CLAIMS },
        { "[4102444800]", SANDBOX_JOSE_CLAIMS },
        { "{}", SANDBOX_JOSE_CLAIMS },
        { "NaN", SANDBOX_JOSE_CLAIMS },
        { "Infinity", SANDBOX_JOSE_CLAIMS },
        { "0x7fffffff", SANDBOX_JOSE_CLAIMS },
        { "+4102444800", SANDBOX_JOSE_CLAIMS },
        { "04102444800", SANDBOX_JOSE_CLAIMS }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sprintf(claims, "{\"sub\":\"alice\",\"exp\":%s}", cases[i].exp);
        is_number(mint_verify(secret, mint(claims)), cases[i].status,
                  "auth/exp-types, jwt-fault-10, jwt-fault-44: exp %s", cases[i].exp);
    }

    is_number(mint_verify(secret, mint("{\"sub\":\"alice\"}")),
              SANDBOX_JOSE_CLAIMS, "auth/claims-missing: exp");
    is_number(mint_verify(secret, mint("{}")), SANDBOX_JOSE_CLAIMS,
              "auth/claims-missing: all of them");
    is_number(mint_verify(secret, mint("{\"EXP\":1700000100}")),
              SANDBOX_JOSE_CLAIMS, "auth/claims-missing: EXP is not exp");
}


static void
test_other_times(void)
{
    char    claims[128];
    size_t  i;

    static const struct {
        const char             *more;
        sandbox_jose_status_t   status;
    } cases[] = {
        { "\"nbf\":1700000000", SANDBOX_JOSE_OK },
        { "\"nbf\":1699999999.5", SANDBOX_JOSE_OK },
        { "\"nbf\":1700000001", SANDBOX_JOSE_NOT_YET_VALID },
        { "\"nbf\":1700000000.1", SANDBOX_JOSE_NOT_YET_VALID },
        { "\"nbf\":1e300", SANDBOX_JOSE_NOT_YET_VALID },
        { "\"nbf\":-1e300", SANDBOX_JOSE_OK },
        { "\"nbf\":9223372036854775807", SANDBOX_JOSE_NOT_YET_VALID },
        { "\"nbf\":\"0\"", SANDBOX_JOSE_CLAIMS },
        { "\"nbf\":null", SANDBOX_JOSE_CLAIMS },
        { "\"nbf\":false", SANDBOX_JOSE_CLAIMS },
        { "\"iat\":1700000000", SANDBOX_JOSE_OK },
        { "\"iat\":0", SANDBOX_JOSE_OK },
        { "\"iat\":1700000001", SANDBOX_JOSE_NOT_YET_VALID },
        { "\"iat\":\"1700000000\"", SANDBOX_JOSE_CLAIMS },
        { "\"iat\":null", SANDBOX_JOSE_CLAIMS },
        { "\"iat\":{}", SANDBOX_JOSE_CLAIMS }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sprintf(claims, "{\"exp\":1700000100,%s}", cases[i].more);
        is_number(mint_verify(secret, mint(claims)), cases[i].status,
                  "times: %s", cases[i].more);
    }
}


static void
test_leeway(void)
{
    char                      *text, claims[64];
    size_t                     i;
    sandbox_jose_token_t       token;
    sandbox_jose_policy_t      policy;
    sandbox_jose_status_t      status;
    const sandbox_jose_key_t  *keys[1];

    static const struct {
        unsigned                leeway;
        const char             *claim;
        long                    value;
        sandbox_jose_status_t   status;
    } cases[] = {
        { 0, "exp", 1700000000, SANDBOX_JOSE_EXPIRED },
        { 5, "exp", 1699999996, SANDBOX_JOSE_OK },
        { 5, "exp", 1699999995, SANDBOX_JOSE_EXPIRED },
        { 60, "exp", 1699999941, SANDBOX_JOSE_OK },
        { 60, "exp", 1699999940, SANDBOX_JOSE_EXPIRED },
        { 4000000000u, "exp", 1699999940, SANDBOX_JOSE_EXPIRED },
        { 5, "nbf", 1700000005, SANDBOX_JOSE_OK },
        { 5, "nbf", 1700000006, SANDBOX_JOSE_NOT_YET_VALID },
        { 5, "iat", 1700000005, SANDBOX_JOSE_OK },
        { 5, "iat", 1700000006, SANDBOX_JOSE_NOT_YET_VALID }
    };

    keys[0] = secret;
    memset(&policy, 0, sizeof(policy));

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].claim, "exp") == 0) {
            sprintf(claims, "{\"exp\":%ld}", cases[i].value);

        } else {
            sprintf(claims, "{\"exp\":1700000100,\"%s\":%ld}", cases[i].claim,
                    cases[i].value);
        }

        policy.leeway = cases[i].leeway;
        text = mint(claims);
        is_number(mint_verify_with(keys, 1, text, strlen(text), &policy),
                  cases[i].status, "jwt-fault-35: leeway %u: %s", cases[i].leeway, claims);
    }

    /* what a cache may keep it for is exactly what is accepted */

    policy.leeway = 7;
    text = mint("{\"exp\":1700000010.25}");
    token.claims = NULL;
    status = sandbox_jose_verify(keys, 1, (uint8_t *) text, strlen(text),
                                 &policy, MINT_NOW, &token);
    is_number(status, SANDBOX_JOSE_OK, "auth/cache-outlives-exp: good");
    is_number(token.expires, 1700000018, "it says when it expires");
    json_decref(token.claims);

    status = sandbox_jose_verify(keys, 1, (uint8_t *) text, strlen(text),
                                 &policy, 1700000017, &token);
    is_number(status, SANDBOX_JOSE_OK, "good in the last second");
    json_decref(token.claims);

    status = sandbox_jose_verify(keys, 1, (uint8_t *) text, strlen(text),
                                 &policy, 1700000018, &token);
    is_number(status, SANDBOX_JOSE_EXPIRED, "refused from that second on");
    free(text);
}


static void
test_issuer_audience(void)
{
    char                      *text, claims[256];
    size_t                     i;
    sandbox_jose_policy_t      policy;
    const sandbox_jose_key_t  *keys[1];

    static const char *const  audience = "sandbox";

    static const struct {
        const char             *more;
        sandbox_jose_status_t   status;
    } cases[] = {
        { "\"iss\":\"https://id\",\"aud\":\"sandbox\"", SANDBOX_JOSE_OK },
        { "\"iss\":\"https://id\",\"aud\":[\"x\",\"sandbox\"]",
          SANDBOX_JOSE_OK },
        { "\"aud\":\"sandbox\"", SANDBOX_JOSE_ISSUER },
        { "\"iss\":\"https://id/\",\"aud\":\"sandbox\"", SANDBOX_JOSE_ISSUER },
        { "\"iss\":\"HTTPS://ID\",\"aud\":\"sandbox\"", SANDBOX_JOSE_ISSUER },
        { "\"iss\":\"\",\"aud\":\"sandbox\"", SANDBOX_JOSE_ISSUER },
        { "\"iss\":[\"https://id\"],\"aud\":\"sandbox\"",
          SANDBOX_JOSE_ISSUER },
        { "\"iss\":null,\"aud\":\"sandbox\"", SANDBOX_JOSE_ISSUER },
        { "\"iss\":\"https://id\"", SANDBOX_JOSE_AUDIENCE },
        { "\"iss\":\"https://id\",\"aud\":\"sandbox2\"",
          SANDBOX_JOSE_AUDIENCE },
        { "\"iss\":\"https://id\",\"aud\":\"x sandbox\"",
          SANDBOX_JOSE_AUDIENCE },
        { "\"iss\":\"https://id\",\"aud\":[]", SANDBOX_JOSE_AUDIENCE },
        { "\"iss\":\"https://id\",\"aud\":[\"Sandbox\"]",
          SANDBOX_JOSE_AUDIENCE },
        { "\"iss\":\"https://id\",\"aud\":[\"sandbox\",1]",
          SANDBOX_JOSE_CLAIMS },
        { "\"iss\":\"https://id\",\"aud\":[[\"sandbox\"]]",
          SANDBOX_JOSE_CLAIMS },
        { "\"iss\":\"https://id\",\"aud\":{\"sandbox\":1}",
          SANDBOX_JOSE_CLAIMS },
        { "\"iss\":\"https://id\",\"aud\":null", SANDBOX_JOSE_CLAIMS }
    };

    keys[0] = secret;
    memset(&policy, 0, sizeof(policy));
    policy.issuer = "https://id";
    policy.audiences = &audience;
    policy.naudiences = 1;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sprintf(claims, "{\"exp\":1700000100,%s}", cases[i].more);
        text = mint(claims);
        is_number(mint_verify_with(keys, 1, text, strlen(text), &policy),
                  cases[i].status, "jwt-fault-26: iss and aud: %s", cases[i].more);
    }

    is_number(mint_verify(secret, mint("{\"exp\":1700000100,\"aud\":\"x\","
                                       "\"iss\":\"y\"}")),
              SANDBOX_JOSE_OK, "iss and aud where none are asked for");
}


static sandbox_jose_status_t
principal(const char *claims, const char *tenant_claim,
    sandbox_jose_principal_t *p)
{
    sandbox_jose_path_t    *tenant;
    sandbox_jose_status_t   status;

    static json_t  *object;

    json_decref(object);
    object = NULL;

    if (claims == NULL) {
        return SANDBOX_JOSE_OK;
    }

    object = json_loads(claims, JSON_REJECT_DUPLICATES, NULL);
    memset(p, 0, sizeof(sandbox_jose_principal_t));

    tenant = tenant_claim == NULL ? NULL : mint_path(tenant_claim);
    status = sandbox_jose_principal(object, tenant, p);
    sandbox_jose_path_free(tenant);

    return status;
}


static void
test_principal(void)
{
    char                      claims[2400], name[1100];
    size_t                    i, n;
    sandbox_jose_principal_t  p;

    static const char *const  bad[] = {
        "{}", "{\"sub\":null}", "{\"sub\":7}", "{\"sub\":{}}",
        "{\"sub\":[\"alice\"]}", "{\"sub\":true}", "{\"sub\":\"\"}",
        "{\"sub\":\"a\\nb\"}", "{\"sub\":\"\\u001f\"}", "{\"sub\":\"a\\u007f\"}",
        "{\"sub\":\"a\\u0080\"}", "{\"sub\":\"a\\u009fb\"}",
        "{\"SUB\":\"alice\"}",
        "{\"sub\":\"alice\",\"iss\":1}", "{\"sub\":\"alice\",\"iss\":null}",
        "{\"sub\":\"alice\",\"iss\":\"a\\tb\"}"
    };

    static const char *const  tenants[] = {
        "{\"sub\":\"alice\"}", "{\"sub\":\"alice\",\"tenant\":null}",
        "{\"sub\":\"alice\",\"tenant\":\"\"}",
        "{\"sub\":\"alice\",\"tenant\":5}", "{\"sub\":\"alice\",\"tenant\":{}}",
        "{\"sub\":\"alice\",\"tenant\":\"a\\u0001\"}",
        "{\"sub\":\"alice\",\"Tenant\":\"a\"}"
    };

    is_number(principal("{\"sub\":\"alice\",\"tenant\":\"acme\"}", NULL, &p),
              SANDBOX_JOSE_OK, "a principal");
    is_string(p.user, "alice", "its user");
    is_string(p.tenant, NULL, "no tenant unless asked for");
    is_string(p.issuer, NULL, "no issuer");

    is_number(principal("{\"sub\":\"alice\",\"tenant\":\"acme\",\"iss\":\"\"}",
                        "tenant", &p), SANDBOX_JOSE_OK,
              "a principal of a tenant");
    is_string(p.tenant, "acme", "its tenant");
    is_string(p.issuer, "", "an empty issuer is not an absent one");

    is_number(principal("{\"sub\":\"J\\u00fcrgen \\u4f60\\u00a0@x\"}", NULL,
                        &p), SANDBOX_JOSE_OK, "letters of all kinds");
    is_string(p.user, "J\xc3\xbcrgen \xe4\xbd\xa0\xc2\xa0@x", "as UTF-8");

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        is_number(principal(bad[i], NULL, &p), SANDBOX_JOSE_CLAIMS,
                  "auth/claims-missing, jwt-fault-12: %s", bad[i]);
        ok(p.user == NULL, "nothing comes of it");
    }

    for (i = 0; i < sizeof(tenants) / sizeof(tenants[0]); i++) {
        is_number(principal(tenants[i], "tenant", &p), SANDBOX_JOSE_CLAIMS,
                  "auth/claims-missing: no default tenant: %s", tenants[i]);
    }

    for (n = 255; n <= 256; n++) {
        memset(name, 'n', n);
        name[n] = '\0';

        sprintf(claims, "{\"sub\":\"%s\"}", name);
        is_number(principal(claims, NULL, &p),
                  n == 255 ? SANDBOX_JOSE_OK : SANDBOX_JOSE_CLAIMS,
                  "a sub of %zu bytes", n);

        sprintf(claims, "{\"sub\":\"a\",\"tenant\":\"%s\"}", name);
        is_number(principal(claims, "tenant", &p),
                  n == 255 ? SANDBOX_JOSE_OK : SANDBOX_JOSE_CLAIMS,
                  "a tenant of %zu bytes", n);
    }

    for (n = 1024; n <= 1025; n++) {
        memset(name, 'n', n);
        name[n] = '\0';

        sprintf(claims, "{\"sub\":\"a\",\"iss\":\"%s\"}", name);
        is_number(principal(claims, NULL, &p),
                  n == 1024 ? SANDBOX_JOSE_OK : SANDBOX_JOSE_CLAIMS,
                  "an issuer of %zu bytes", n);
    }

    principal(NULL, NULL, &p);
}


static int
permitted(const char *claims, const char *const *names, size_t n)
{
    int                   granted;
    json_t               *object;
    size_t                i;
    sandbox_jose_path_t  *paths[4];

    for (i = 0; i < n; i++) {
        paths[i] = mint_path(names[i]);
    }

    object = json_loads(claims, JSON_REJECT_DUPLICATES, NULL);
    granted = sandbox_jose_permitted(object, names == NULL ? NULL
                                     : (const sandbox_jose_path_t *const *)
                                       paths, n, "sandbox:execute");
    json_decref(object);

    for (i = 0; i < n; i++) {
        sandbox_jose_path_free(paths[i]);
    }

    return granted;
}


static void
test_permission(void)
{
    char    *claims;
    size_t   i;
    json_t  *object, *list;

    static const char *const  roles[] = { "roles" };
    static const char *const  two[] = { "roles", "groups" };

    static const char *const  granted[] = {
        "{\"permissions\":[\"sandbox:execute\"]}",
        "{\"permissions\":\"sandbox:execute\"}",
        "{\"permissions\":[\"a\",\"sandbox:execute\",\"b\"]}",
        "{\"permissions\":\"a sandbox:execute b\"}",
        "{\"permissions\":\"a  sandbox:execute \"}",
        "{\"scope\":\"openid sandbox:execute\"}",
        "{\"scope\":[\"sandbox:execute\"]}",
        "{\"permissions\":[],\"scope\":\"sandbox:execute\"}",
        "{\"permissions\":7,\"scope\":\"sandbox:execute\"}"
    };

    static const char *const  refused[] = {
        "{}", "{\"permissions\":[]}", "{\"permissions\":\"\"}",
        "{\"permissions\":\" \"}", "{\"permissions\":null}",
        "{\"permissions\":true}", "{\"permissions\":1}",
        "{\"permissions\":{\"sandbox:execute\":true}}",
        "{\"permissions\":[[\"sandbox:execute\"]]}",
        "{\"permissions\":[\"sandbox:execute\",1]}",
        "{\"permissions\":[null,\"sandbox:execute\"]}",
        "{\"permissions\":[\"a sandbox:execute\"]}",
        "{\"permissions\":[\" sandbox:execute\"]}",
        "{\"permissions\":\"sandbox:executeX\"}",
        "{\"permissions\":\"xsandbox:execute\"}",
        "{\"permissions\":\"sandbox:execute:read\"}",
        "{\"permissions\":\"SANDBOX:EXECUTE\"}",
        "{\"permissions\":\"sandbox\"}", "{\"permissions\":\"sandbox:*\"}",
        "{\"permissions\":\"*\"}", "{\"permissions\":\"sandbox:\"}",
        "{\"permissions\":[\"sandbox:executeX\"]}",
        "{\"permissions\":[\"sandbox:execut\"]}",
        "{\"permissions\":\"a,sandbox:execute\"}",
        "{\"permissions\":\"a\\tsandbox:execute\"}",
        "{\"permissions\":\"a\\nsandbox:execute\"}",
        "{\"permissions\":\"a\\u00a0sandbox:execute\"}",
        "{\"Permissions\":\"sandbox:execute\"}",
        "{\"roles\":[\"sandbox:execute\"]}"
    };

    for (i = 0; i < sizeof(granted) / sizeof(granted[0]); i++) {
        ok(permitted(granted[i], NULL, 0), "auth/permission-shapes: %s",
           granted[i]);
    }

    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        ok(!permitted(refused[i], NULL, 0), "auth/permission-substring: %s",
           refused[i]);
    }

    ok(permitted("{\"roles\":[\"sandbox:execute\"]}", roles, 1),
       "a claim by another name");
    ok(!permitted("{\"permissions\":[\"sandbox:execute\"]}", roles, 1),
       "then the usual one does not count");
    ok(permitted("{\"roles\":[],\"groups\":\"sandbox:execute\"}", two, 2),
       "the second of two claims");
    ok(!permitted("{\"permissions\":[\"sandbox:execute\"]}", two, 0),
       "no claims at all");

    list = json_array();

    for (i = 0; i < 199; i++) {
        json_array_append_new(list, json_sprintf("permission:%zu", i));
    }

    json_array_append_new(list, json_string("sandbox:execute"));
    object = json_pack("{s:o}", "permissions", list);
    claims = json_dumps(object, 0);
    ok(permitted(claims, NULL, 0), "auth/permission-among-many: the last of 200");
    free(claims);
    json_decref(object);

    claims = malloc(4200);
    i = (size_t) sprintf(claims, "{\"scope\":\"");

    while (i < 4000) {
        i += (size_t) sprintf(claims + i, "%sword%zu ",
                              i > 1990 && i < 2000 ? "sandbox:execute " : "",
                              i);
    }

    strcpy(claims + i, "\"}");
    ok(permitted(claims, NULL, 0),
       "auth/permission-among-many: amid a scope of 4 kB");
    free(claims);

    object = json_pack("{s:[s]}", "permissions", "");
    ok(!sandbox_jose_permitted(object, NULL, 0, ""),
       "an empty permission is nobody's");
    json_decref(object);
}


int
main(void)
{
    secret = mint_secret_key(NULL);

    test_exp();
    test_other_times();
    test_leeway();
    test_issuer_audience();
    test_principal();
    test_permission();

    sandbox_jose_key_free(secret);

    return test_done();
}
