/*
 * What of a sandbox is in no file and in no process: System V memory, queues
 * and semaphores, which live on without anybody.  They go with it, as far as
 * this container has a place of its own for them.
 */

#include "agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_engine.h"


/* the first of all such namespaces, by the kernel's interface */

#define AGENT_IPC_FIRST  0xefffffffU
#define AGENT_IPC_MOST   65536           /* of a kind */
#define AGENT_IPC_LINE   512


static void agent_engine_ipc_list(const char *path, int (*end)(int id));
static int agent_engine_ipc_memory(int id);
static int agent_engine_ipc_queue(int id);
static int agent_engine_ipc_semaphores(int id);


int
agent_engine_ipc_own(void)
{
    struct stat  st;

    return stat("/proc/self/ns/ipc", &st) == 0
           && st.st_ino != AGENT_IPC_FIRST;
}


/*
 * Only their owner may, and root without the one great capability is not.
 * Nothing of the user's runs that could do anything to one of his name.
 */

void
agent_engine_ipc(void)
{
    if (!agent_engine_ipc_own()
        || syscall(SYS_setresuid, -1, AGENT_UID, -1) == -1)
    {
        return;
    }

    agent_engine_ipc_list("/proc/sysvipc/shm", agent_engine_ipc_memory);
    agent_engine_ipc_list("/proc/sysvipc/msg", agent_engine_ipc_queue);
    agent_engine_ipc_list("/proc/sysvipc/sem", agent_engine_ipc_semaphores);

    if (syscall(SYS_setresuid, -1, 0, -1) == -1
        || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1)
    {
        agent_log("the agent can't be root again");
        exit(1);
    }
}


/* Lines "KEY ID ...", after one that says so. */

static void
agent_engine_ipc_list(const char *path, int (*end)(int id))
{
    int        id;
    char       line[AGENT_IPC_LINE];
    FILE      *file;
    unsigned   n;

    file = fopen(path, "re");

    if (file == NULL) {
        return;
    }

    for (n = 0; n < AGENT_IPC_MOST; n++) {
        if (fgets(line, sizeof(line), file) == NULL) {
            break;
        }

        if (sscanf(line, "%*d %d", &id) == 1) {
            (void) end(id);
        }
    }

    fclose(file);
}


static int
agent_engine_ipc_memory(int id)
{
    return shmctl(id, IPC_RMID, NULL);
}


static int
agent_engine_ipc_queue(int id)
{
    return msgctl(id, IPC_RMID, NULL);
}


static int
agent_engine_ipc_semaphores(int id)
{
    return semctl(id, 0, IPC_RMID);
}
