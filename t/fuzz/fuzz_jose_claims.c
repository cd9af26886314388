/*
 * Fuzz target: the claims of a token that is signed well.  The first byte
 * chooses the policy and the paths that claims are looked up by.
 */

/* link: src/jose/sandbox_jose_algorithm.c src/jose/sandbox_jose_token.c */
/* link: src/jose/sandbox_jose_secret.c src/jose/sandbox_jose_key.c */
/* link: src/jose/sandbox_jose_verify.c src/jose/sandbox_jose_claims.c */
/* link: src/jose/sandbox_jose_path.c src/jose/sandbox_jose_session.c */
/* link: -ljansson -ljwt -lcrypto */
/* covers: src/jose/sandbox_jose_claims.c */

#include "fuzz_jose.h"


#define HEADER  "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"


static void fuzz_claims(const json_t *claims, int nested);
static void fuzz_session(const sandbox_jose_principal_t *principal,
    const char *conversation);
static void fuzz_name(const char *name, size_t max);


static sandbox_jose_key_t   *key;
static sandbox_jose_path_t  *tenants[2], *conversations[2], *roles[2];


int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char  error[SANDBOX_JOSE_ERROR_SIZE];

    key = fuzz_secret_key();
    tenants[0] = sandbox_jose_path("tenant", error);
    tenants[1] = sandbox_jose_path("org.id", error);
    conversations[0] = sandbox_jose_path("chat", error);
    conversations[1] = sandbox_jose_path("a.b\\.c.d", error);
    roles[0] = sandbox_jose_path("realm_access.roles", error);
    roles[1] = sandbox_jose_path("groups", error);

    return 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char                      *text;
    size_t                     n;
    sandbox_jose_token_t       token;
    sandbox_jose_policy_t      policy;
    sandbox_jose_status_t      status;
    const sandbox_jose_key_t  *keys[1];

    static const char *const  audiences[] = { "sandbox", "api" };

    if (size == 0) {
        return 0;
    }

    keys[0] = key;
    memset(&token, 0, sizeof(token));
    memset(&policy, 0, sizeof(policy));
    policy.audiences = audiences;

    if (data[0] & 1) {
        policy.issuer = "https://id.example";
    }

    if (data[0] & 2) {
        policy.naudiences = 2;
    }

    if (data[0] & 4) {
        policy.leeway = 60;
    }

    text = fuzz_sign(HEADER, strlen(HEADER), data + 1, size - 1, &n);
    status = sandbox_jose_verify(keys, 1, (const uint8_t *) text, n, &policy,
                                 FUZZ_NOW, &token);
    free(text);

    must(ERR_peek_error() == 0);

    if (status != SANDBOX_JOSE_OK) {
        must(token.claims == NULL);
        must(status != SANDBOX_JOSE_SIGNATURE && status != SANDBOX_JOSE_FAILED);
        return 0;
    }

    must(token.expires > FUZZ_NOW);
    must(policy.issuer == NULL
         || strcmp(json_string_value(json_object_get(token.claims, "iss")),
                   policy.issuer) == 0);

    fuzz_claims(token.claims, data[0] >> 3 & 1);
    json_decref(token.claims);

    return 0;
}


static void
fuzz_claims(const json_t *claims, int nested)
{
    const char                *conversation;
    sandbox_jose_principal_t   principal;

    (void) sandbox_jose_permitted(claims, NULL, 0, "sandbox:execute");
    (void) sandbox_jose_permitted(claims,
                                  (const sandbox_jose_path_t *const *) roles,
                                  2, "sandbox:execute");

    must(!sandbox_jose_permitted(claims, NULL, 0, ""));

    conversation = NULL;

    if (sandbox_jose_conversation(claims, conversations[nested],
                                  &conversation)
        == SANDBOX_JOSE_OK)
    {
        fuzz_name(conversation, 128);

    } else {
        must(conversation == NULL);
    }

    if (sandbox_jose_principal(claims, NULL, &principal) == SANDBOX_JOSE_OK) {
        must(principal.tenant == NULL);
        fuzz_name(principal.user, 255);
        fuzz_session(&principal, conversation);
    }

    if (sandbox_jose_principal(claims, tenants[nested], &principal)
        == SANDBOX_JOSE_OK)
    {
        fuzz_name(principal.user, 255);
        fuzz_name(principal.tenant, 255);
        fuzz_session(&principal, conversation);
    }
}


static void
fuzz_name(const char *name, size_t max)
{
    must(strlen(name) > 0 && strlen(name) <= max);
    must(strpbrk(name, "\n\r\t\x1b\x7f") == NULL);
}


static void
fuzz_session(const sandbox_jose_principal_t *principal,
    const char *conversation)
{
    size_t                  i;
    uint8_t                 name[SANDBOX_JOSE_SESSION_SIZE];
    sandbox_jose_bytes_t   *part;
    sandbox_jose_session_t  session;

    const char *const  values[] = {
        NULL, principal->issuer, principal->tenant, principal->user,
        conversation
    };

    memset(&session, 0, sizeof(session));
    part = &session.realm;

    for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        part[i].data = values[i];
        part[i].size = values[i] == NULL ? 0 : strlen(values[i]);
    }

    must(sandbox_jose_session_key(&session, name) == 0);
    must(sandbox_jose_tenant_digest(&session, name) == 0);
}
