/*
 * sandboxctl token: a token to try things with, signed by the key file that
 * the gateway has (HS*) or by its private half (RS*, ES*).
 */

#include "ctl.h"
#include "options.h"
#include "sandbox_jose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jwt.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>


#define CTL_MAX_TTL     (3650 * 86400L)          /* seconds */
#define CTL_PERMISSION  "sandbox:execute"


typedef struct {
    ctl_values_t   key;
    ctl_values_t   sub;
    ctl_values_t   permission;
    ctl_values_t   tenant;
    ctl_values_t   claim;
    ctl_values_t   ttl;
    ctl_values_t   issuer;
    ctl_values_t   audience;
    ctl_values_t   algorithm;
} ctl_token_t;


static json_t *ctl_token_claims(const ctl_token_t *token, long ttl);
static json_t *ctl_token_permissions(const ctl_values_t *values);
static int ctl_token_more(json_t *claims, const ctl_values_t *values);
static int ctl_token_own(const char *name);
static int ctl_token_key_check(unsigned algorithm, const uint8_t *key,
    size_t size);
static sandbox_jose_key_t *ctl_token_public_half(const uint8_t *key,
    size_t size, char *error);
static int ctl_token_print(unsigned algorithm, const uint8_t *key, size_t size,
    const json_t *claims);


int
ctl_token(int argc, char **argv)
{
    int          rc;
    long         ttl;
    json_t      *claims;
    size_t       size;
    uint8_t     *key;
    unsigned     algorithm;
    const char  *name;

    static ctl_token_t  token;

    static const ctl_option_t  options[] = {
        { "key", "FILE", "the secret, raw bytes; a private PEM for RS*, ES*", 1,
          &token.key, 0 },
        { "sub", "S", "the user", 1, &token.sub, 0 },
        { "permission", "P", "may be repeated (" CTL_PERMISSION ")",
          CTL_MAX_VALUES, &token.permission, 0 },
        { "tenant", "T", "claim \"tenant\"", 1, &token.tenant, 0 },
        { "claim", "NAME=VALUE", "one more, a string; may be repeated",
          CTL_MAX_VALUES, &token.claim, 0 },
        { "ttl", "TIME", "valid for 30s, 5m, 1h, 2d (1h)", 1, &token.ttl, 0 },
        { "issuer", "I", "claim \"iss\"", 1, &token.issuer, 0 },
        { "audience", "A", "claim \"aud\"", 1, &token.audience, 0 },
        { "algorithm", "NAME", "HS256, RS384, ES512 and so on (HS256)", 1,
          &token.algorithm, 0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "token --key FILE --sub S [options]",
        .about = "Prints a token and nothing else.\n",
        .options = options,
        .min = 0,
        .max = 0
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    if (token.key.n == 0 || token.sub.n == 0) {
        ctl_fault("--%s is missing (usage: sandboxctl %s)",
                  token.key.n == 0 ? "key" : "sub", command.usage);
        return CTL_USAGE;
    }

    name = ctl_value(&token.algorithm, "HS256");
    algorithm = sandbox_jose_algorithm(name, strlen(name));

    if ((algorithm & (SANDBOX_JOSE_HS | SANDBOX_JOSE_RS | SANDBOX_JOSE_ES))
        == 0)
    {
        ctl_fault("--algorithm \"%s\" is not HS, RS or ES with 256, 384 or "
                  "512", name);
        return CTL_USAGE;
    }

    ttl = ctl_duration(ctl_value(&token.ttl, "1h"), CTL_MAX_TTL);

    if (ttl <= 0) {
        ctl_fault("--ttl \"%s\" is not a time such as 30s, 5m, 1h or 2d, at "
                  "most 3650d", token.ttl.value[0]);
        return CTL_USAGE;
    }

    claims = ctl_token_claims(&token, ttl);

    if (claims == NULL) {
        return CTL_USAGE;
    }

    if (ctl_file_read(token.key.value[0], SANDBOX_JOSE_MAX_PEM, &key, &size)
        == -1)
    {
        json_decref(claims);
        return CTL_FAULT;
    }

    rc = CTL_FAULT;

    if (ctl_token_key_check(algorithm, key, size) == 0
        && ctl_token_print(algorithm, key, size, claims) == 0)
    {
        rc = CTL_OK;
    }

    OPENSSL_cleanse(key, size);
    free(key);
    json_decref(claims);

    return rc;
}


static json_t *
ctl_token_claims(const ctl_token_t *token, long ttl)
{
    char                       error[SANDBOX_JOSE_ERROR_SIZE];
    json_t                    *claims;
    time_t                     now;
    const char                *issuer, *tenant, *audience;
    sandbox_jose_path_t       *path;
    sandbox_jose_status_t      status;
    sandbox_jose_principal_t   principal;

    now = time(NULL);
    issuer = ctl_value(&token->issuer, NULL);
    tenant = ctl_value(&token->tenant, NULL);
    audience = ctl_value(&token->audience, NULL);

    /* "*" leaves a claim out where there is no value */

    claims = json_pack("{s:s, s:I, s:I, s:s*, s:s*, s:s*}",
                       "sub", token->sub.value[0],
                       "iat", (json_int_t) now,
                       "exp", (json_int_t) now + ttl,
                       "iss", issuer, "tenant", tenant, "aud", audience);

    if (claims == NULL) {
        ctl_fault("an option is not UTF-8");
        return NULL;
    }

    /* what the gateway would refuse is refused here already */

    path = sandbox_jose_path("tenant", error);

    if (path == NULL) {
        ctl_fault("%s", error);
        json_decref(claims);
        return NULL;
    }

    status = sandbox_jose_principal(claims, tenant != NULL ? path : NULL,
                                    &principal);
    sandbox_jose_path_free(path);

    if (status != SANDBOX_JOSE_OK) {
        ctl_fault("--sub and --tenant have 1 to %d bytes, --issuer at most "
                  "%d, and none has control characters",
                  SANDBOX_JOSE_MAX_NAME, SANDBOX_JOSE_MAX_ISSUER);
        json_decref(claims);
        return NULL;
    }

    if (json_object_set_new(claims, "permissions",
                            ctl_token_permissions(&token->permission))
        == -1)
    {
        ctl_fault("--permission is a word of UTF-8 without blanks");
        json_decref(claims);
        return NULL;
    }

    if (ctl_token_more(claims, &token->claim) == -1) {
        json_decref(claims);
        return NULL;
    }

    return claims;
}


static json_t *
ctl_token_permissions(const ctl_values_t *values)
{
    json_t       *list;
    unsigned      i;
    const char   *word;

    list = json_array();

    if (values->n == 0) {
        json_array_append_new(list, json_string(CTL_PERMISSION));
        return list;
    }

    for (i = 0; i < values->n; i++) {
        word = values->value[i];

        if (*word == '\0' || word[strcspn(word, " \t\r\n")] != '\0'
            || json_array_append_new(list, json_string(word)) == -1)
        {
            json_decref(list);
            return NULL;
        }
    }

    return list;
}


/* The name is taken as it is: a dot in it makes no object of it. */

static int
ctl_token_more(json_t *claims, const ctl_values_t *values)
{
    int          rc;
    char        *name;
    unsigned     i;
    const char  *text, *equals;

    for (i = 0; i < values->n; i++) {
        text = values->value[i];
        equals = strchr(text, '=');

        if (equals == NULL || equals == text) {
            return ctl_fault("--claim \"%s\" is not NAME=VALUE", text);
        }

        name = strndup(text, (size_t) (equals - text));

        if (name == NULL) {
            return ctl_fault("no memory");
        }

        if (ctl_token_own(name)) {
            rc = ctl_fault("--claim can't set \"%s\": it has an option of "
                           "its own, or is a time", name);

        } else if (json_object_get(claims, name) != NULL) {
            rc = ctl_fault("--claim \"%s\" is there twice", name);

        } else if (json_object_set_new(claims, name, json_string(equals + 1))
                   == -1)
        {
            rc = ctl_fault("--claim \"%s\" is not UTF-8", text);

        } else {
            rc = 0;
        }

        free(name);

        if (rc == -1) {
            return -1;
        }
    }

    return 0;
}


/* also where this token has none of it; times are no strings */

static int
ctl_token_own(const char *name)
{
    int  i;

    static const char *const  names[] = {
        "sub", "iss", "aud", "tenant", "permissions", "iat", "exp", "nbf", NULL
    };

    for (i = 0; names[i] != NULL; i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }

    return 0;
}


/* The gateway refuses weak keys; a token it can't verify helps nobody. */

static int
ctl_token_key_check(unsigned algorithm, const uint8_t *key, size_t size)
{
    char                 error[SANDBOX_JOSE_ERROR_SIZE];
    unsigned             algorithms;
    sandbox_jose_key_t  *checked;

    if (algorithm & SANDBOX_JOSE_HS) {
        checked = sandbox_jose_key_secret(key, size, SANDBOX_JOSE_RAW, NULL,
                                          error);

    } else {
        checked = ctl_token_public_half(key, size, error);
    }

    if (checked == NULL) {
        return ctl_fault("the key file won't do: %s", error);
    }

    algorithms = sandbox_jose_key_algorithms(checked);
    sandbox_jose_key_free(checked);

    if ((algorithms & algorithm) == 0) {
        return ctl_fault("the key file won't do: %s needs %s",
                         sandbox_jose_algorithm_name(algorithm),
                         algorithm & SANDBOX_JOSE_HS
                         ? "a longer secret" : "a key of another type");
    }

    return 0;
}


static sandbox_jose_key_t *
ctl_token_public_half(const uint8_t *key, size_t size, char *error)
{
    BIO                 *bio, *half;
    char                *pem;
    long                 n;
    EVP_PKEY            *pkey;
    sandbox_jose_key_t  *checked;

    checked = NULL;
    bio = BIO_new_mem_buf(key, (int) size);
    half = BIO_new(BIO_s_mem());

    /* without a password there is nothing to ask for one */

    pkey = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, NULL, "");

    if (pkey == NULL || half == NULL || PEM_write_bio_PUBKEY(half, pkey) != 1) {
        snprintf(error, SANDBOX_JOSE_ERROR_SIZE,
                 "there is no private key in PEM in it");

    } else {
        n = BIO_get_mem_data(half, &pem);
        checked = sandbox_jose_key_pem((uint8_t *) pem, (size_t) n, NULL,
                                       error);
    }

    EVP_PKEY_free(pkey);
    BIO_free(half);
    BIO_free(bio);
    ERR_clear_error();

    return checked;
}


static int
ctl_token_print(unsigned algorithm, const uint8_t *key, size_t size,
    const json_t *claims)
{
    int     rc;
    char   *text, *token;
    jwt_t  *jwt;

    jwt = NULL;
    text = json_dumps(claims, JSON_COMPACT);
    token = NULL;

    if (text == NULL
        || jwt_new(&jwt) != 0
        || jwt_add_grants_json(jwt, text) != 0
        || jwt_set_alg(jwt, jwt_str_alg(sandbox_jose_algorithm_name(algorithm)),
                       key, (int) size) != 0
        || (token = jwt_encode_str(jwt)) == NULL)
    {
        rc = ctl_fault("the token could not be signed");

    } else if (printf("%s\n", token) < 0 || fflush(stdout) != 0) {
        rc = ctl_fault("can't write to stdout");

    } else {
        rc = 0;
    }

    free(text);
    free(token);
    jwt_free(jwt);

    return rc;
}
