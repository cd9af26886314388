/*
 * What is known of the sandbox on the volumes, in one small file of the third:
 * which instance it is, and how far its making, or its end, has come.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent_engine.h"
#include "agent_store.h"


#define AGENT_STATE_MAGIC    0x5342585354415431ULL       /* "SBXSTAT1" */
#define AGENT_STATE_NUMBERS  11          /* with the magic */
#define AGENT_STATE_ID       (AGENT_STATE_NUMBERS * 8)   /* its offset */
#define AGENT_STATE_SESSION  (AGENT_STATE_ID + SANDBOX_WIRE_SANDBOX_ID_SIZE)
#define AGENT_STATE_SIZE     (AGENT_STATE_SESSION                             \
                              + SANDBOX_WIRE_SESSION_SIZE + 8)
#define AGENT_STATE_MARK     "user.sandbox"      /* of a volume: the id */


static agent_engine_volume_t agent_engine_volume(const char *path);
static void agent_engine_state_numbers(uint64_t **list);


agent_engine_state_t  agent_engine_state;

static uint64_t  agent_engine_state_phase;


int
agent_engine_state_read(int meta)
{
    char       *id;
    uint8_t     p[AGENT_STATE_SIZE];
    unsigned    i;
    uint64_t   *list[AGENT_STATE_NUMBERS - 1];

    id = agent_engine_state.id;
    memset(&agent_engine_state, 0, sizeof(agent_engine_state));

    if (agent_engine_file_read(meta, "state", p, sizeof(p)) == -1) {
        if (errno == ENOENT) {
            return 0;
        }

        if (errno != ENODATA) {
            return -1;
        }

        memset(p, 0, sizeof(p));
    }

    if (sandbox_get64(p) != AGENT_STATE_MAGIC
        || sandbox_get64(p + sizeof(p) - 8)
           != agent_store_sum(AGENT_STATE_MAGIC, p, sizeof(p) - 8))
    {
        agent_log("what is known of the sandbox is not whole: it becomes "
                  "another one, the files that are there stay");
        return 0;
    }

    agent_engine_state_numbers(list);

    for (i = 0; i < AGENT_STATE_NUMBERS - 1; i++) {
        *list[i] = sandbox_get64(p + 8 + 8 * i);
    }

    /* whoever mixes up volumes must not hand over what is on them */

    if (!sandbox_equal(p + AGENT_STATE_SESSION, agent.session,
                       SANDBOX_WIRE_SESSION_SIZE))
    {
        errno = EXDEV;
        return -1;
    }

    memcpy(id, p + AGENT_STATE_ID, SANDBOX_WIRE_SANDBOX_ID_SIZE);
    id[SANDBOX_WIRE_SANDBOX_ID_SIZE] = '\0';

    if (agent_engine_state_phase == AGENT_ENGINE_NONE
        || agent_engine_state_phase >= AGENT_ENGINE_LAST
        || agent_engine_state.instance == 0
        || strlen(id) != SANDBOX_WIRE_SANDBOX_ID_SIZE)
    {
        memset(&agent_engine_state, 0, sizeof(agent_engine_state));
        return 0;
    }

    agent_engine_state.phase
        = (agent_engine_phase_e) agent_engine_state_phase;

    return 0;
}


int
agent_engine_state_write(int meta)
{
    uint8_t    p[AGENT_STATE_SIZE];
    unsigned   i;
    uint64_t  *list[AGENT_STATE_NUMBERS - 1];

    agent_engine_state_phase = agent_engine_state.phase;
    agent_engine_state_numbers(list);
    sandbox_put64(p, AGENT_STATE_MAGIC);

    for (i = 0; i < AGENT_STATE_NUMBERS - 1; i++) {
        sandbox_put64(p + 8 + 8 * i, *list[i]);
    }

    memcpy(p + AGENT_STATE_ID, agent_engine_state.id,
           SANDBOX_WIRE_SANDBOX_ID_SIZE);
    memcpy(p + AGENT_STATE_SESSION, agent.session, SANDBOX_WIRE_SESSION_SIZE);
    sandbox_put64(p + sizeof(p) - 8,
                  agent_store_sum(AGENT_STATE_MAGIC, p, sizeof(p) - 8));

    return agent_engine_file_write(meta, "state", p, sizeof(p));
}


int
agent_engine_state_next(void)
{
    uint64_t  now;

    if (agent_sandbox_id(agent_engine_state.id) == -1) {
        return -1;
    }

    now = agent_history_now();

    agent_engine_state.instance = now > agent_engine_state.instance
                                  ? now : agent_engine_state.instance + 1;
    agent_engine_state.created_ms = now;
    agent_engine_state.used_ms = now;
    agent_engine_state.commands = 0;
    agent_engine_state.told = 0;

    return 0;
}


void
agent_engine_volume_mark(const char *path, agent_engine_volume_t *volume)
{
    *volume = agent_engine_volume(path);

    /* without it, its directory has to do */

    (void) !lsetxattr(path, AGENT_STATE_MARK, agent_engine_state.id,
                      SANDBOX_WIRE_SANDBOX_ID_SIZE, 0);
}


agent_engine_known_e
agent_engine_volume_known(const char *path,
    const agent_engine_volume_t *volume)
{
    char                   id[SANDBOX_WIRE_SANDBOX_ID_SIZE];
    ssize_t                n;
    agent_engine_volume_t  now;

    now = agent_engine_volume(path);

    if (now.inode == volume->inode && now.born == volume->born) {
        return AGENT_ENGINE_SAME;
    }

    /* an engine may have moved it; the mark is the user's, if he wants */

    n = lgetxattr(path, AGENT_STATE_MARK, id, sizeof(id));

    if (n != SANDBOX_WIRE_SANDBOX_ID_SIZE) {
        return AGENT_ENGINE_NEW;
    }

    return memcmp(id, agent_engine_state.id, sizeof(id)) == 0
           ? AGENT_ENGINE_SAME : AGENT_ENGINE_OTHER;
}


int
agent_engine_file_write(int meta, const char *name, const uint8_t *p,
    size_t size)
{
    int      fd, error;
    char     new[64];
    ssize_t  n;

    snprintf(new, sizeof(new), "%s.new", name);

    fd = openat(meta, new, O_WRONLY|O_CREAT|O_TRUNC|O_NOFOLLOW|O_CLOEXEC,
                0600);
    if (fd == -1) {
        return -1;
    }

    n = write(fd, p, size);
    error = n == -1 ? errno : ENOSPC;
    close(fd);

    if (n == (ssize_t) size && renameat(meta, new, meta, name) == 0) {
        return 0;
    }

    if (n == (ssize_t) size) {
        error = errno;
    }

    (void) !unlinkat(meta, new, 0);
    errno = error;

    return -1;
}


int
agent_engine_file_read(int meta, const char *name, uint8_t *p, size_t size)
{
    int      fd, error;
    uint8_t  more;
    ssize_t  n;

    fd = openat(meta, name, O_RDONLY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return -1;
    }

    n = read(fd, p, size);
    error = errno;

    if (n == (ssize_t) size && read(fd, &more, 1) != 0) {
        n = 0;
    }

    close(fd);

    if (n == (ssize_t) size) {
        return 0;
    }

    errno = n == -1 ? error : ENODATA;

    return -1;
}


static agent_engine_volume_t
agent_engine_volume(const char *path)
{
    struct statx           st;
    agent_engine_volume_t  volume;

    memset(&volume, 0, sizeof(volume));

    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_INO|STATX_BTIME, &st)
        == -1)
    {
        return volume;
    }

    volume.inode = st.stx_ino;

    if (st.stx_mask & STATX_BTIME) {
        volume.born = (uint64_t) st.stx_btime.tv_sec * 1000000000
                      + st.stx_btime.tv_nsec;
    }

    return volume;
}


/* In the order of the file. */

static void
agent_engine_state_numbers(uint64_t **list)
{
    agent_engine_state_t  *state;

    state = &agent_engine_state;

    *list++ = &agent_engine_state_phase;
    *list++ = &state->told;
    *list++ = &state->instance;
    *list++ = &state->created_ms;
    *list++ = &state->used_ms;
    *list++ = &state->commands;
    *list++ = &state->home.inode;
    *list++ = &state->home.born;
    *list++ = &state->skills.inode;
    *list = &state->skills.born;
}
