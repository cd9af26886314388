/*
 * Paths and names of files, as bytes.  A path that comes through here can
 * leave its root only by a symbolic link, which is the kernel's to refuse.
 */

#include "agent_path.h"

#include <stdio.h>
#include <string.h>

#include "sandbox_utf8.h"


#define AGENT_PATH_ENDING  16            /* longest ".xlsx" that is kept */


/* relative to "/", in the order of agent_root_e */

static const char  *agent_roots[] = {
    "/home/sandbox", "/tmp", "/dev/shm", "/skills", ""
};


static int agent_path_below(const char *path, const char *root);


const char *
agent_path_check(const uint8_t *path, size_t length, const char **detail)
{
    size_t          n;
    const uint8_t  *p, *end, *slash;

    if (length >= SANDBOX_WIRE_MAX_PATH) {
        *detail = "The path is longer than 4095 bytes.";
        return "bad_request";
    }

    if (length == 0) {
        return NULL;
    }

    if (memchr(path, '\0', length) != NULL) {
        *detail = "The path has a NUL in it.";
        return "bad_request";
    }

    end = path + length;

    for (p = path; p <= end; p = slash + 1) {
        slash = p < end ? memchr(p, '/', end - p) : NULL;

        if (slash == NULL) {
            slash = end;
        }

        n = slash - p;

        if (n == 0 || (n == 1 && p[0] == '.')) {
            *detail = "The path has an empty part, or one that is \".\".";
            return "bad_request";
        }

        if (n == 2 && p[0] == '.' && p[1] == '.') {
            *detail = "The path has a part that is \"..\".";
            return "path_outside";
        }

        if (n > SANDBOX_WIRE_MAX_NAME) {
            *detail = "The path has a name of more than 255 bytes.";
            return "bad_request";
        }
    }

    return NULL;
}


int
agent_path_name(const uint8_t *name, size_t length)
{
    const char  *detail;

    return length != 0 && memchr(name, '/', length) == NULL
           && agent_path_check(name, length, &detail) == NULL;
}


agent_root_e
agent_path_root(const char *path, const char **rest)
{
    unsigned     i;
    const char  *root;

    if (agent_path_below(path, &AGENT_PLACE[1])) {
        *rest = path;
        return AGENT_ROOT_LAST;
    }

    for (i = 0; i < AGENT_ROOT_ALL; i++) {
        root = agent_roots[i] + 1;

        if (agent_path_below(path, root)) {
            path += strlen(root);
            *rest = *path == '/' ? path + 1 : path;
            return i;
        }
    }

    *rest = path;

    return AGENT_ROOT_ALL;
}


const char *
agent_path_root_name(agent_root_e root)
{
    return agent_roots[root];
}


size_t
agent_path_parts(const char *path)
{
    size_t  n;

    if (*path == '\0') {
        return 0;
    }

    for (n = 1; *path; path++) {
        n += *path == '/';
    }

    return n;
}


size_t
agent_path_part(const char *path, size_t number)
{
    const char  *p;

    for (p = path; number && *p; p++) {
        number -= *p == '/';
    }

    return p - path;
}


void
agent_path_numbered(char *out, const char *name, unsigned number)
{
    char         middle[16];
    size_t       base, ending, room;
    const char  *dot;

    snprintf(middle, sizeof(middle), " (%u)", number);

    base = strlen(name);
    ending = 0;
    dot = strrchr(name, '.');

    if (dot != NULL && dot != name && strlen(dot) <= AGENT_PATH_ENDING) {
        ending = strlen(dot);
        base -= ending;
    }

    room = SANDBOX_WIRE_MAX_NAME - strlen(middle) - ending;

    if (base > room) {
        base = sandbox_utf8_head((const uint8_t *) name, room);
    }

    snprintf(out, SANDBOX_WIRE_MAX_NAME + 1, "%.*s%s%s", (int) base, name,
             middle, ending ? dot : "");
}


static int
agent_path_below(const char *path, const char *root)
{
    size_t  length;

    length = strlen(root);

    return strncmp(path, root, length) == 0
           && (path[length] == '\0' || path[length] == '/');
}
