/*
 * What a sandbox without a cgroup uses, as /proc and its file systems tell.
 */

#ifndef AGENT_MEASURE_H
#define AGENT_MEASURE_H

#include <stdint.h>
#include <sys/types.h>


/* of all processes of the commands' user; an upper bound of memory */

typedef struct {
    uint64_t  own;                       /* bytes: private, page tables */
    uint64_t  shared;                    /* memory that is mapped, each time */
    uint64_t  files;                     /* in file systems of memory */
    unsigned  processes;
    unsigned  tasks;                     /* threads of them all */
} agent_usage_t;


typedef enum {
    AGENT_MEASURE_MEMORY = 0,
    AGENT_MEASURE_DISK
} agent_measure_e;


/* the one write of a process that measures; its pipe takes it whole */

typedef struct {
    uint64_t  own;                       /* bytes: each page once */
    uint64_t  shared;
    uint64_t  files;
    uint64_t  nameless;                  /* in files without a name: memory */
    uint64_t  removed;                   /* and on a disk */
    uint64_t  disk;                      /* bytes below home, /tmp, /var/tmp */
} agent_measured_t;


/* At once; some 10 us for each process. */
void agent_measure_quick(agent_usage_t *usage);

/* What of the last quick look was below that keeper. */
void agent_measure_share(pid_t keeper, uint64_t *bytes, uint64_t *tasks);

/*
 * By a process of its own, for it takes longer: its pid, and in *fd where its
 * answer comes.  -1: can't.
 */
pid_t agent_measure_start(agent_measure_e what, int *fd);

/* Bytes below home, /tmp, /var/tmp, as far as so many ms reach; at once. */
uint64_t agent_measure_disk(uint64_t ms);

/* Bytes in the mounts that are memory; 1: one of them is on this device. */
uint64_t agent_measure_files(void);
int agent_measure_memory(dev_t device);

/* Calls it for the processes of /proc; until it says 0, or by then (ms). */
void agent_measure_each(int (*handler)(int proc, pid_t pid, void *data),
    void *data, uint64_t deadline);


/* Whose entries in /proc say what that process has: itself, or a thread. */
pid_t agent_measure_speaker(int proc, pid_t pid);


/* agent_measure_disk.c, in such a process */

/* Bytes of what is below a directory, on its own mount, whole in time. */
uint64_t agent_measure_walk(const char *path, uint64_t deadline);

/* Files that are open, or mapped, and have no name any more. */
void agent_measure_nameless(agent_measured_t *measured, uint64_t deadline);


#endif /* AGENT_MEASURE_H */
