/*
 * src/jose: paths to claims, and the claims that are read through one: tenant,
 * conversation, permissions.
 */

/* link: src/jose/sandbox_jose_path.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_algorithm.c -ljansson -ljwt -lcrypto */

#include "test.h"
#include "sandbox_jose_core.h"

#include <stdlib.h>


#define ROLES  "{\"realm_access\":{\"roles\":[\"a\",\"sandbox:execute\"]}}"

#define count(array)  (sizeof(array) / sizeof((array)[0]))


static char  error[SANDBOX_JOSE_ERROR_SIZE];


static void
test_good(void)
{
    size_t                i, n;
    sandbox_jose_path_t  *path;

    static const struct {
        const char  *text;
        size_t       n;
        const char  *steps[8];
    } cases[] = {
        { "scope", 1, { "scope" } },
        { "realm_access.roles", 2, { "realm_access", "roles" } },
        { "https://example\\.com/perm", 1, { "https://example.com/perm" } },
        { "https://example.com/perm", 2, { "https://example", "com/perm" } },
        { "a\\\\b", 1, { "a\\b" } },
        { "a\\\\.b", 2, { "a\\", "b" } },
        { "a\\\\\\.b", 1, { "a\\.b" } },
        { "\\.", 1, { "." } },
        { "\\.\\..\\\\", 2, { "..", "\\" } },
        { "a.b.c.d.e.f.g.h", 8, { "a", "b", "c", "d", "e", "f", "g", "h" } },
        { " a . b ", 2, { " a ", " b " } },
        { "r\xc3\xb4les", 1, { "r\xc3\xb4les" } },
        { "\"a\"[0]", 1, { "\"a\"[0]" } }
    };

    for (i = 0; i < count(cases); i++) {
        path = sandbox_jose_path(cases[i].text, error);

        if (!ok(path != NULL, "auth/claim-path: %s", cases[i].text)) {
            continue;
        }

        is_number(path->n, cases[i].n, "its steps");

        for (n = 0; n < path->n; n++) {
            is_string(path->step[n], cases[i].steps[n], "step %zu", n);
        }

        sandbox_jose_path_free(path);
    }
}


static void
test_bad(void)
{
    char                  text[300], *copy;
    size_t                i;
    sandbox_jose_path_t  *path;

    static const struct {
        const char  *text;
        const char  *word;
    } cases[] = {
        { "", "path of the claim is empty" },
        { ".", "is empty" }, { "a.", "is empty" }, { ".a", "is empty" },
        { "a..b", "is empty" }, { "..", "is empty" },
        { "\\", "backslash" }, { "a\\", "backslash" }, { "a\\b", "backslash" },
        { "\\u0061", "backslash" }, { "\\\\\\", "backslash" },
        { "a.b.c.d.e.f.g.h.i", "more than 8" },
        { "a.b.c.d.e.f.g.h.", "is empty" },
        { "a\nb", "UTF-8" }, { "a\x7f", "UTF-8" }, { "\xff", "UTF-8" },
        { "\xc3", "UTF-8" }, { "\xc2\x80", "UTF-8" }
    };

    for (i = 0; i < count(cases); i++) {

        /* of its very size, for the sanitizer */

        copy = strdup(cases[i].text);
        path = sandbox_jose_path(copy, error);
        ok(path == NULL && strstr(error, cases[i].word) != NULL,
           "path %zu is refused: %s", i, error);
        sandbox_jose_path_free(path);
        free(copy);
    }

    for (i = 255; i <= 256; i++) {
        memset(text, 'x', i);
        text[i] = '\0';
        path = sandbox_jose_path(text, error);
        is_number(path != NULL, i == 255, "a path of %zu bytes", i);
        sandbox_jose_path_free(path);
    }

    sandbox_jose_path_free(NULL);
}


static void
test_find(void)
{
    json_t               *claims;
    size_t                i;
    const json_t         *found;
    sandbox_jose_path_t  *path;

    static const char  text[] =
        "{\"a\":{\"b\":{\"c\":1}},\"a.b\":2,\"l\":[{\"b\":3}],\"n\":null,"
        "\"s\":\"x\",\"a\\\\\":4,\"h\":{\"h\":{\"h\":{\"h\":{\"h\":{\"h\":"
        "{\"h\":{\"h\":5}}}}}}}}";

    static const struct {
        const char  *path;
        int          value;                      /* 0: nothing is there */
    } cases[] = {
        { "a.b.c", 1 }, { "a\\.b", 2 }, { "a.b", -1 }, { "n", -1 },
        { "a\\\\", 4 }, { "h.h.h.h.h.h.h.h", 5 }, { "h.h", -1 },
        { "l.0", 0 }, { "l.b", 0 }, { "l.0.b", 0 }, { "s.x", 0 },
        { "n.a", 0 }, { "A.b.c", 0 }, { "a.c", 0 }, { "a.b.c.d", 0 },
        { "x", 0 }, { "x.y.z", 0 }
    };

    claims = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

    for (i = 0; i < count(cases); i++) {
        path = sandbox_jose_path(cases[i].path, error);
        found = sandbox_jose_path_find(claims, path);
        is_number(found == NULL ? 0 : json_is_integer(found)
                  ? json_integer_value(found) : -1, cases[i].value,
                  "jwt-fault-27: %s", cases[i].path);
        sandbox_jose_path_free(path);
    }

    json_decref(claims);
}


static void
test_tenant(void)
{
    json_t                    *claims;
    size_t                     i;
    sandbox_jose_path_t       *path;
    sandbox_jose_status_t      status;
    sandbox_jose_principal_t   p;

    static const struct {
        const char  *claims;
        const char  *tenant;                     /* NULL: refused */
    } cases[] = {
        { "{\"sub\":\"a\",\"org\":{\"id\":\"acme\"}}", "acme" },
        { "{\"sub\":\"a\",\"org\":{}}", NULL },
        { "{\"sub\":\"a\",\"org\":\"acme\"}", NULL },
        { "{\"sub\":\"a\",\"org.id\":\"acme\"}", NULL },
        { "{\"sub\":\"a\",\"org\":[{\"id\":\"acme\"}]}", NULL },
        { "{\"sub\":\"a\",\"org\":{\"id\":\"\"}}", NULL },
        { "{\"sub\":\"a\",\"org\":{\"id\":7}}", NULL },
        { "{\"sub\":\"a\",\"org\":{\"id\":null}}", NULL },
        { "{\"sub\":\"a\",\"org\":{\"id\":[\"acme\"]}}", NULL },
        { "{\"sub\":\"a\",\"org\":{\"id\":\"a\\u0007b\"}}", NULL }
    };

    path = sandbox_jose_path("org.id", error);

    for (i = 0; i < count(cases); i++) {
        claims = json_loads(cases[i].claims, JSON_REJECT_DUPLICATES, NULL);
        memset(&p, 0, sizeof(p));
        status = sandbox_jose_principal(claims, path, &p);
        is_number(status, cases[i].tenant ? SANDBOX_JOSE_OK
                                          : SANDBOX_JOSE_CLAIMS,
                  "auth/claims-missing: %s", cases[i].claims);
        is_string(p.tenant, cases[i].tenant, "its tenant");
        json_decref(claims);
    }

    sandbox_jose_path_free(path);
}


static void
test_conversation(void)
{
    char                    text[300];
    json_t                 *claims;
    size_t                  i;
    const char             *conversation;
    sandbox_jose_path_t    *path;
    sandbox_jose_status_t   status;

    static const struct {
        const char  *claims;
        const char  *conversation;               /* NULL: refused */
    } cases[] = {
        { "{\"chat\":{\"id\":\"c-1\"}}", "c-1" },
        { "{\"chat\":{\"id\":\"\xc3\xbc \"}}", "\xc3\xbc " },
        { "{}", NULL }, { "{\"chat\":{}}", NULL },
        { "{\"chat\":{\"id\":null}}", NULL },
        { "{\"chat\":{\"id\":7}}", NULL },
        { "{\"chat\":{\"id\":{}}}", NULL },
        { "{\"chat\":{\"id\":[\"c-1\"]}}", NULL },
        { "{\"chat\":{\"id\":\"\"}}", NULL },
        { "{\"chat\":{\"id\":\"c\\n\"}}", NULL },
        { "{\"chat\":{\"ID\":\"c-1\"}}", NULL }
    };

    path = sandbox_jose_path("chat.id", error);

    for (i = 0; i < count(cases); i++) {
        claims = json_loads(cases[i].claims, JSON_REJECT_DUPLICATES, NULL);
        conversation = NULL;
        status = sandbox_jose_conversation(claims, path, &conversation);
        is_number(status, cases[i].conversation ? SANDBOX_JOSE_OK
                                                : SANDBOX_JOSE_CLAIMS,
                  "auth/claims-missing: %s", cases[i].claims);
        is_string(conversation, cases[i].conversation, "its conversation");
        json_decref(claims);
    }

    for (i = 128; i <= 129; i++) {
        sprintf(text, "{\"chat\":{\"id\":\"%0*d\"}}", (int) i, 0);
        claims = json_loads(text, 0, NULL);
        status = sandbox_jose_conversation(claims, path, &conversation);
        is_number(status, i == 128 ? SANDBOX_JOSE_OK : SANDBOX_JOSE_CLAIMS,
                  "a conversation of %zu bytes", i);
        json_decref(claims);
    }

    sandbox_jose_path_free(path);
}


static void
test_permitted(void)
{
    json_t                     *claims;
    size_t                      i;
    sandbox_jose_path_t        *roles, *perm;
    const sandbox_jose_path_t  *paths[2];

    static const struct {
        const char  *claims;
        int          permitted;
    } cases[] = {
        { ROLES, 1 },
        { "{\"https://example.com/perm\":\"x sandbox:execute\"}", 1 },
        { "{\"realm_access\":{\"roles\":[]},\"https://example.com/perm\":"
          "[\"sandbox:execute\"]}", 1 },
        { "{\"https://example\":{\"com/perm\":\"sandbox:execute\"}}", 0 },
        { "{\"realm_access.roles\":[\"sandbox:execute\"]}", 0 },
        { "{\"realm_access\":[{\"roles\":[\"sandbox:execute\"]}]}", 0 },
        { "{\"realm_access\":[\"sandbox:execute\"]}", 0 },
        { "{\"permissions\":[\"sandbox:execute\"]}", 0 },
        { "{}", 0 }
    };

    roles = sandbox_jose_path("realm_access.roles", error);
    perm = sandbox_jose_path("https://example\\.com/perm", error);
    paths[0] = roles;
    paths[1] = perm;

    for (i = 0; i < count(cases); i++) {
        claims = json_loads(cases[i].claims, JSON_REJECT_DUPLICATES, NULL);
        is_number(sandbox_jose_permitted(claims, paths, 2, "sandbox:execute"),
                  cases[i].permitted, "auth/claim-path, jwt-fault-27: %s",
                  cases[i].claims);
        json_decref(claims);
    }

    sandbox_jose_path_free(roles);
    sandbox_jose_path_free(perm);
}


int
main(void)
{
    test_good();
    test_bad();
    test_find();
    test_tenant();
    test_conversation();
    test_permitted();

    return test_done();
}
