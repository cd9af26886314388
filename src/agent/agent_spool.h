/*
 * The agent's own place on the session's disk, and files on their way: whole
 * or not at all.  A file is the user's from its first byte, but has no name
 * that he could reach before it is complete.
 */

#ifndef AGENT_SPOOL_H
#define AGENT_SPOOL_H

#include <stdint.h>
#include <sys/stat.h>

#include "sandbox_wire.h"


#define AGENT_SPOOL_NAME   40            /* bytes, with a NUL */
#define AGENT_SPOOL_TREE   "tree."       /* and a number: one that is made */
#define AGENT_SPOOL_TREES  ".sandbox"    /* in /skills, of root's */


typedef struct {
    int       fd;                        /* -1: there is none */
    int       dir;                       /* where its name is; not ours */
    char      name[AGENT_SPOOL_NAME];    /* "": it has none */
} agent_spool_t;


/* Removes what an agent before this one has left, in its own time. */
void agent_spool_init(void);

/* Directories, or -1 and errno.  The first has root's things only. */
int agent_spool_place(void);
int agent_spool_dir(void);

/*
 * Where trees for /skills are made, so that they can be moved there; -1 and
 * errno.
 */
int agent_spool_trees(void);

/* Its directory in /skills goes, if nothing is in it. */
void agent_spool_tidy(void);

/* A name that is not in use, of at least AGENT_SPOOL_NAME bytes.  -1: no. */
int agent_spool_random(char *name, const char *prefix);

/*
 * A new file for something in directory `beside`, an O_PATH descriptor that
 * must stay; -1: in the spool.  0, or an errno.
 */
int agent_spool_create(agent_spool_t *spool, int beside);

/*
 * Gives it that name, in place of a file that has it, if `replace`.  0, or an
 * errno: it can be tried once more, or be dropped.
 */
int agent_spool_commit(agent_spool_t *spool, int directory, const char *name,
    int replace, const struct stat *old);

/* Closes it if it has a name; it can be committed all the same. */
void agent_spool_keep(agent_spool_t *spool);

/* 0, or an errno. */
int agent_spool_stat(const agent_spool_t *spool, struct stat *st);

/* Closes it, and removes it if it was not committed. */
void agent_spool_drop(agent_spool_t *spool);

/* Moves a name of a directory to where it is removed.  0, or an errno. */
int agent_spool_discard(int directory, const char *name);


#endif /* AGENT_SPOOL_H */
