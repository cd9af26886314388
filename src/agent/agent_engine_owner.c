/*
 * Who has the volumes of a session: the agent that has written the marker
 * last, unless one of a newer epoch was before it.  An older one sees that and
 * ends; only the lock, which it holds as long as it lives, says that it has.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "agent_engine.h"
#include "agent_store.h"


#define AGENT_OWNER_MAGIC  0x5342584f574e5231ULL /* "SBXOWNR1" */
#define AGENT_OWNER_NONCE  16
#define AGENT_OWNER_SIZE   (8 + 8 + AGENT_OWNER_NONCE + 8)
#define AGENT_OWNER_TRIES  1000          /* for a write of another one */
#define AGENT_OWNER_PAUSE  10            /* ms, between them */


static int agent_engine_owner_lock(int meta);
static int agent_engine_owner_read(int meta, uint8_t *p);


static uint8_t  agent_engine_owner[AGENT_OWNER_SIZE];    /* as we wrote it */


int
agent_engine_owner_take(int meta, uint64_t epoch)
{
    int      fd, rc;
    uint8_t  p[AGENT_OWNER_SIZE];

    sandbox_put64(p, AGENT_OWNER_MAGIC);
    sandbox_put64(p + 8, epoch);

    if (getrandom(p + 16, AGENT_OWNER_NONCE, 0) != AGENT_OWNER_NONCE) {
        return -1;
    }

    /* a bit of it tells which kind has it */

    p[16] = (uint8_t) ((p[16] & ~1) | agent.once);

    sandbox_put64(p + AGENT_OWNER_SIZE - 8,
                  agent_store_sum(AGENT_OWNER_MAGIC, p, AGENT_OWNER_SIZE - 8));

    /* two that come at a time: the epoch of one is what the other reads */

    fd = agent_engine_owner_lock(meta);

    if (fd == -1) {
        return -1;
    }

    rc = agent_engine_owner_read(meta, agent_engine_owner);

    if (rc == 0 && sandbox_get64(agent_engine_owner + 8) > epoch) {
        close(fd);
        return 1;
    }

    rc = agent_engine_file_write(meta, "owner", p, sizeof(p));
    memcpy(agent_engine_owner, p, sizeof(p));
    close(fd);

    return rc;
}


int
agent_engine_owner_is(int meta)
{
    uint8_t  p[AGENT_OWNER_SIZE];

    errno = 0;

    if (agent_engine_owner_read(meta, p) == 0) {
        return memcmp(p, agent_engine_owner, sizeof(p)) == 0;
    }

    /* not to be able to look says nothing */

    return errno == EMFILE || errno == ENFILE || errno == ENOMEM
           || errno == EINTR;
}


int
agent_engine_owner_once(int meta)
{
    uint8_t  p[AGENT_OWNER_SIZE];

    return agent_engine_owner_read(meta, p) == 0 && (p[16] & 1);
}


/* Held for the moment of a write, by nobody for longer. */

static int
agent_engine_owner_lock(int meta)
{
    int              fd, i;
    struct timespec  pause;

    fd = openat(meta, "owner.lock", O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0600);

    if (fd == -1) {
        return -1;
    }

    pause.tv_sec = 0;
    pause.tv_nsec = AGENT_OWNER_PAUSE * 1000000;

    for (i = 0; i < AGENT_OWNER_TRIES; i++) {
        if (flock(fd, LOCK_EX|LOCK_NB) == 0) {
            return fd;
        }

        nanosleep(&pause, NULL);
    }

    close(fd);
    errno = EBUSY;

    return -1;
}


/* What is not whole is nobody's. */

static int
agent_engine_owner_read(int meta, uint8_t *p)
{
    if (agent_engine_file_read(meta, "owner", p, AGENT_OWNER_SIZE) == -1) {
        return -1;
    }

    return sandbox_get64(p) == AGENT_OWNER_MAGIC
           && sandbox_get64(p + AGENT_OWNER_SIZE - 8)
              == agent_store_sum(AGENT_OWNER_MAGIC, p, AGENT_OWNER_SIZE - 8)
           ? 0 : -1;
}
