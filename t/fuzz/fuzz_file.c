/*
 * Foreign bytes as the head of a request for a file: what is accepted keeps
 * below its root and within the file.
 */

/* link: src/agent/agent_file_request.c src/agent/agent_path.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* covers: src/agent/agent_file_request.c src/agent/agent_path.c */

#include <stdlib.h>
#include <string.h>

#include "agent_file.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_name(const uint8_t *p, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    char                  etag[AGENT_FILE_ETAG + 1];
    size_t                i, parts, length;
    uint64_t              first, last, bytes;
    unsigned              status;
    const char           *code, *detail, *rest;
    struct stat           st;
    agent_root_e          root;
    agent_file_request_t  request;

    if (size < 8) {
        return 0;
    }

    /* the size of a file, then the head */

    bytes = sandbox_get64(p) >> (p[0] & 63);
    detail = NULL;
    code = agent_file_request_read(&request, p + 8, size - 8, &detail);

    fuzz_name(p, size);

    if (code != NULL) {
        check(detail != NULL && sandbox_code_status(code, strlen(code)) != 500);
        return 0;
    }

    length = strlen(request.path);
    check(length == request.path_size && length < SANDBOX_WIRE_MAX_PATH);
    check(request.limit >= 1 && request.limit <= SANDBOX_WIRE_MAX_LISTING);
    check(request.mode <= 0777 && request.root < SANDBOX_ROOT_LAST);
    check(request.path[0] != '/');
    check(request.pattern_size <= SANDBOX_WIRE_MAX_PATTERN);
    check(request.globs <= SANDBOX_WIRE_MAX_GLOBS);

    for (i = 0; i < request.globs; i++) {
        check(request.glob[i].length > 0
              && request.glob[i].length <= SANDBOX_WIRE_MAX_GLOB
              && memchr(request.glob[i].data, '\0', request.glob[i].length)
                 == NULL);
    }

    parts = agent_path_parts(request.path);

    for (i = 0; i < parts; i++) {
        rest = request.path + agent_path_part(request.path, i);
        check(strcspn(rest, "/") > 0 && strcspn(rest, "/") <= 255);
        check(!(rest[0] == '.' && strcspn(rest, "/") == 1));
        check(!(rest[0] == '.' && rest[1] == '.' && strcspn(rest, "/") == 2));
    }

    root = agent_path_root(request.path, &rest);
    check(rest >= request.path && rest <= request.path + length);
    check(root == AGENT_ROOT_LAST || agent_path_root_name(root) != NULL);

    memset(&st, 0, sizeof(st));
    st.st_size = bytes;
    agent_file_etag(etag, &st);

    first = 0;
    last = 0;
    status = agent_file_status(&request, etag, bytes, &first, &last);
    check(status == 200 || status == 206 || status == 304 || status == 412
          || status == 416);
    check(status != 206 || (first <= last && last < bytes));
    check(!(agent_file_allowed(&request, etag) && status == 412));

    return 0;
}


static void
fuzz_name(const uint8_t *p, size_t size)
{
    char    name[SANDBOX_WIRE_MAX_NAME + 1], out[SANDBOX_WIRE_MAX_NAME + 1];
    char    other[SANDBOX_WIRE_MAX_NAME + 1];
    size_t  n;

    n = size < SANDBOX_WIRE_MAX_NAME ? size : SANDBOX_WIRE_MAX_NAME;

    if (!agent_path_name(p, n)) {
        return;
    }

    memcpy(name, p, n);
    name[n] = '\0';
    agent_path_numbered(out, name, 2);
    check(agent_path_name((uint8_t *) out, strlen(out)));

    /* one of full length may have that number already: then the next one */

    agent_path_numbered(other, name, 3);
    check(agent_path_name((uint8_t *) other, strlen(other)));
    check(strcmp(out, other) != 0);
}
