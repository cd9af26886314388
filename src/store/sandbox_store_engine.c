/*
 * The record of an engine in a conversation's mark: 160 bytes, one write.  The
 * mark's time, which is the order of conversations, stays as it is.
 */

#include "sandbox_store_core.h"
#include "sandbox_store_conversations.h"
#include "sandbox_store_engine.h"
#include "sandbox_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>


/* magic, instance, length and name, then a checksum over all of it */

#define SANDBOX_STORE_ENGINE_MAGIC    "SBXENGN1"
#define SANDBOX_STORE_ENGINE_AT       17
#define SANDBOX_STORE_ENGINE_SUM      152
#define SANDBOX_STORE_ENGINE_SIZE     160


static uint64_t sandbox_store_engine_sum(const uint8_t *p);


unsigned
sandbox_store_engine_read(const sandbox_store_place_t *place,
    sandbox_store_engine_t *engine, sandbox_store_fault_t *fault)
{
    int      fd;
    char     path[SANDBOX_STORE_MAX_PATH];
    ssize_t  n;
    uint8_t  p[SANDBOX_STORE_ENGINE_SIZE];

    memset(engine, 0, sizeof(sandbox_store_engine_t));

    sandbox_store_path(path, place->conversation, SANDBOX_STORE_MARK);

    fd = open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1) {
        return errno == ENOENT || errno == ENOTDIR
               ? sandbox_store_refused(fault, SANDBOX_STORE_MISSING, 0)
               : sandbox_store_fault(fault, "open", path, errno);
    }

    n = pread(fd, p, sizeof(p), 0);
    close(fd);

    if (n != sizeof(p)
        || memcmp(p, SANDBOX_STORE_ENGINE_MAGIC, 8) != 0
        || sandbox_get64(p + SANDBOX_STORE_ENGINE_SUM)
           != sandbox_store_engine_sum(p)
        || p[16] == 0 || p[16] > SANDBOX_STORE_MAX_ENGINE)
    {
        return sandbox_store_refused(fault, SANDBOX_STORE_MISSING, 0);
    }

    engine->instance = sandbox_get64(p + 8);
    engine->name_len = p[16];
    memcpy(engine->name, p + SANDBOX_STORE_ENGINE_AT, engine->name_len);

    return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
}


unsigned
sandbox_store_engine_write(const sandbox_store_place_t *place,
    const sandbox_store_engine_t *engine, uint64_t limit,
    const volatile unsigned long *state, unsigned long dropped,
    sandbox_store_fault_t *fault)
{
    int              fd;
    char             path[SANDBOX_STORE_MAX_PATH];
    ssize_t          n;
    uint8_t          p[SANDBOX_STORE_ENGINE_SIZE];
    unsigned         status;
    struct stat      st;
    struct timespec  times[2];

    status = sandbox_store_mark(place, limit, state, dropped, fault);

    if (status != SANDBOX_STORE_OK) {
        return status;
    }

    memset(p, 0, sizeof(p));
    memcpy(p, SANDBOX_STORE_ENGINE_MAGIC, 8);
    sandbox_put64(p + 8, engine->instance);
    p[16] = (uint8_t) engine->name_len;
    memcpy(p + SANDBOX_STORE_ENGINE_AT, engine->name, engine->name_len);
    sandbox_put64(p + SANDBOX_STORE_ENGINE_SUM, sandbox_store_engine_sum(p));

    sandbox_store_path(path, place->conversation, SANDBOX_STORE_MARK);

    fd = open(path, O_WRONLY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1 && errno == ENOENT && state != NULL && *state == dropped) {
        return sandbox_store_refused(fault, SANDBOX_STORE_OK, 0);
    }

    if (fd == -1) {
        return sandbox_store_fault(fault, "open", path, errno);
    }

    if (fstat(fd, &st) == -1) {
        (void) sandbox_store_fault(fault, "fstat", path, errno);
        close(fd);
        return fault->status;
    }

    n = pwrite(fd, p, sizeof(p), 0);

    if (n != sizeof(p)) {
        (void) sandbox_store_fault(fault, "write", path,
                                   n == -1 ? errno : ENOSPC);
    }

    times[0].tv_sec = 0;
    times[0].tv_nsec = UTIME_NOW;
    times[1] = st.st_mtim;
    (void) futimens(fd, times);

    close(fd);

    return n == sizeof(p) ? sandbox_store_refused(fault, SANDBOX_STORE_OK, 0)
                          : fault->status;
}


/* FNV-1a: against what a crash left, not against malice */

static uint64_t
sandbox_store_engine_sum(const uint8_t *p)
{
    size_t    i;
    uint64_t  sum;

    sum = 0xcbf29ce484222325ULL;

    for (i = 0; i < SANDBOX_STORE_ENGINE_SUM; i++) {
        sum = (sum ^ p[i]) * 0x100000001b3ULL;
    }

    return sum;
}
