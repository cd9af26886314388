/*
 * Foreign bytes as the head of an operation on commands: what is accepted is
 * within its bounds and within the head, and makes an environment.
 */

/* link: src/agent/agent_request.c src/agent/agent_environment.c */
/* link: src/wire/sandbox_wire.c src/wire/sandbox_utf8.c */
/* link: -no-pie -Wl,--unresolved-symbols=ignore-all */
/* covers: src/agent/agent_request.c */

#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "agent_request.h"


#define check(condition)  do { if (!(condition)) { abort(); } } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t size);

static void fuzz_within(const uint8_t *head, size_t size, const uint8_t *p,
    size_t length, unsigned text);
static void fuzz_environment(const agent_request_t *request);


void
agent_log(const char *format, ...)
{
    (void) format;
}


/* the first byte chooses the operation */

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t size)
{
    uint8_t          *head;
    unsigned          operation;
    const char       *code, *detail;
    agent_request_t   request;

    static const unsigned  operations[] = {
        SANDBOX_OPERATION_COMMAND, SANDBOX_OPERATION_COMMAND,
        SANDBOX_OPERATION_COMMAND, SANDBOX_OPERATION_ATTACH,
        SANDBOX_OPERATION_CANCEL, SANDBOX_OPERATION_STDIN,
        SANDBOX_OPERATION_HISTORY, SANDBOX_OPERATION_COMMAND
    };

    if (size < 1) {
        return 0;
    }

    operation = operations[p[0] & 7];
    size--;

    head = malloc(size + 1);
    check(head != NULL);
    memcpy(head, p + 1, size);

    detail = NULL;
    code = agent_request_read(&request, operation, head, size, &detail);

    if (code != NULL) {
        check(detail != NULL && sandbox_code_status(code, strlen(code)) != 500);
        free(head);
        return 0;
    }

    fuzz_within(head, size, request.command, request.command_size, 1);
    fuzz_within(head, size, request.cwd, request.cwd_size, 1);
    fuzz_within(head, size, request.id, request.id_size, 1);
    fuzz_within(head, size, request.label, request.label_size, 0);

    check(request.stream <= 1 && request.detach <= 1
          && request.stdin_open <= 1 && request.stdin_eof <= 1);

    if (operation == SANDBOX_OPERATION_COMMAND) {
        check(request.command != NULL);
        fuzz_environment(&request);
    }

    free(head);

    return 0;
}


static void
fuzz_within(const uint8_t *head, size_t size, const uint8_t *p, size_t length,
    unsigned text)
{
    if (p == NULL) {
        return;
    }

    check(p >= head && p <= head + size && length <= size
          && p + length <= head + size);
    check(!text || memchr(p, '\0', length) == NULL);
}


static void
fuzz_environment(const agent_request_t *request)
{
    size_t            bytes;
    unsigned          n;
    sandbox_field_t   field;
    sandbox_fields_t  fields;

    n = 0;
    bytes = 0;
    sandbox_fields_init(&fields, request->head, request->head_size);

    while (agent_request_env(&fields, &field)) {
        check(agent_request_env_valid(field.data, field.length));
        bytes += field.length + 1;
        n++;
    }

    check(n == request->env_count && bytes == request->env_size);
}
