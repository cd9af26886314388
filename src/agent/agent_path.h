/*
 * Paths and names of files as clients give them: what may be one, and below
 * which root it is.  Knows bytes, no file system.
 */

#ifndef AGENT_PATH_H
#define AGENT_PATH_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox_wire.h"


/* outside the reach of every path, and of the commands' user */

#define AGENT_PLACE        "/var/lib/sandbox"


/* each is a mount of its own, or may be one; in the order of agent_roots */

typedef enum {
    AGENT_ROOT_HOME = 0,
    AGENT_ROOT_TMP,
    AGENT_ROOT_SHM,
    AGENT_ROOT_SKILLS,
    AGENT_ROOT_ALL,                      /* "/", and what is not above */
    AGENT_ROOT_LAST
} agent_root_e;


/*
 * NULL: parts divided by single slashes, none of them empty, "." or "..", or
 * nothing at all.  Else the code of the ERROR and a sentence (a constant).
 */
const char *agent_path_check(const uint8_t *path, size_t length,
    const char **detail);

/* 1: it can be the name of a file: not "", ".", "..", no slash, no NUL. */
int agent_path_name(const uint8_t *name, size_t length);

/*
 * The root of a path (relative to "/") and in *rest what is below it, "" for
 * the root itself.  AGENT_ROOT_LAST: it is the agent's own.
 */
agent_root_e agent_path_root(const char *path, const char **rest);

/* "/home/sandbox", ..., "" for "/". */
const char *agent_path_root_name(agent_root_e root);

/* How many parts it has, and where the part of that number begins. */
size_t agent_path_parts(const char *path);
size_t agent_path_part(const char *path, size_t number);

/*
 * "data.csv" and 2 make "data (2).csv", cut so that it is a name still.
 * Into at least SANDBOX_WIRE_MAX_NAME + 1 bytes.
 */
void agent_path_numbered(char *out, const char *name, unsigned number);


#endif /* AGENT_PATH_H */
