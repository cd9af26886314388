/*
 * Places of files, read and written.  Knows no gateway.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* asprintf() */
#endif

#include "ctl.h"
#include "name.h"
#include "options.h"
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define CTL_MAX_PATH  4095                       /* bytes */
#define CTL_MAX_NAME  255


static int ctl_place_normal(ctl_place_t *place, const char *path);
static int ctl_place_unknown(const char *word, ctl_want_e want);


static const char *const  ctl_places[] = {
    "files", "attachments", "fs", NULL
};


int
ctl_place_read(ctl_place_t *place, const char *word, ctl_want_e want)
{
    size_t       i, n;
    const char  *name;

    memset(place, 0, sizeof(ctl_place_t));
    name = word;

    for (i = 0; ctl_places[i] != NULL; i++) {
        n = strlen(ctl_places[i]);

        if (strncmp(word, ctl_places[i], n) == 0
            && (word[n] == ':'
                || (word[n] == '\0' && want != CTL_WANT_ANY)))
        {
            place->kind = (ctl_place_e) (CTL_PLACE_FILES + i);
            name = word + n + (word[n] == ':');
            break;
        }
    }

    if (place->kind == CTL_PLACE_NONE && want != CTL_WANT_ANY) {
        return ctl_place_unknown(word, want);
    }

    if (place->kind == CTL_PLACE_FS) {
        return ctl_place_normal(place, name);
    }

    place->name = strdup(name);

    return place->name == NULL ? ctl_fault("no memory") : 0;
}


/* A word that may have been meant as one. */

static int
ctl_place_unknown(const char *word, ctl_want_e want)
{
    char         start[16];
    size_t       n;
    const char  *near;

    n = strcspn(word, ":");
    near = NULL;

    if (n > 0 && n < sizeof(start)) {
        memcpy(start, word, n);
        start[n] = '\0';
        near = ctl_nearest(start, ctl_places);
    }

    if (near != NULL) {
        return ctl_fault("\"%s\" is no place of files; did you mean "
                         "\"%s%s\"?", word, near, word + n);
    }

    if (want == CTL_WANT_PLACE) {
        return ctl_fault("\"%s\" is no place of files: those are files, "
                         "attachments and fs:PATH (fs:%s?)", word, word);
    }

    return ctl_fault("\"%s\" does not say where it is: files:%s, "
                     "attachments:%s or fs:%s", word, word, word, word);
}


/* The gateway takes the shortest form of a path only. */

static int
ctl_place_normal(ctl_place_t *place, const char *path)
{
    size_t  n;
    char   *p;

    place->root = path[0] == '/';
    place->folder = 1;
    p = malloc(strlen(path) + 1);

    if (p == NULL) {
        return ctl_fault("no memory");
    }

    place->name = p;

    while (*path != '\0') {
        n = strcspn(path, "/");

        if (n == 2 && path[0] == '.' && path[1] == '.') {
            return ctl_fault("a path of the container has no \"..\" in it; "
                             "one that begins with / begins at its root");
        }

        if (n > 0 && !(n == 1 && path[0] == '.')) {

            if (p != place->name) {
                *p++ = '/';
            }

            memcpy(p, path, n);
            p += n;
            place->folder = path[n] == '/';

        } else if (n == 1) {
            place->folder = 1;
        }

        path += n + (path[n] == '/');
    }

    *p = '\0';

    return 0;
}


void
ctl_place_free(ctl_place_t *place)
{
    free(place->name);
    place->name = NULL;
}


int
ctl_place_check(const ctl_place_t *place)
{
    size_t  n;

    n = strlen(place->name);

    if (place->kind == CTL_PLACE_FS) {

        if (place->folder) {
            return ctl_fault("\"fs:%s%s\" is a folder, not a file",
                             place->root ? "/" : "", place->name);
        }

        return n <= CTL_MAX_PATH ? 0
               : ctl_fault("a path has at most %d bytes", CTL_MAX_PATH);
    }

    if (n == 0) {
        return ctl_fault("a file has a name: %s:NAME",
                         ctl_place_kind(place->kind));
    }

    if (n > CTL_MAX_NAME || strchr(place->name, '/') != NULL
        || strcmp(place->name, ".") == 0 || strcmp(place->name, "..") == 0)
    {
        return ctl_fault("\"%s\" can't be the name of a file there: up to %d "
                         "bytes, no slash%s%s", place->name, CTL_MAX_NAME,
                         strchr(place->name, '/') == NULL ? ""
                         : "; is it in the container? fs:",
                         strchr(place->name, '/') == NULL ? ""
                         : place->name);
    }

    return 0;
}


const char *
ctl_place_kind(ctl_place_e kind)
{
    return kind == CTL_PLACE_NONE ? ctl_places[0]
                                  : ctl_places[kind - CTL_PLACE_FILES];
}


char *
ctl_place_path(const ctl_place_t *place, const char *conversation,
    const char *query)
{
    int          rc;
    char        *name, *path;
    const char  *root, *mark, *and;

    name = ctl_encode(place->name, place->kind == CTL_PLACE_FS);

    if (name == NULL) {
        ctl_fault("no memory");
        return NULL;
    }

    root = place->root ? "root=/" : "";
    mark = place->root || query != NULL ? "?" : "";
    and = place->root && query != NULL ? "&" : "";

    rc = asprintf(&path, "v1/conversations/%s/%s%s%s%s%s%s%s", conversation,
                  ctl_place_kind(place->kind),
                  *name != '\0' || place->kind == CTL_PLACE_FS ? "/" : "",
                  name, mark, root, and, query != NULL ? query : "");
    free(name);

    if (rc == -1) {
        ctl_fault("no memory");
        return NULL;
    }

    return path;
}


char *
ctl_place_text(const ctl_place_t *place)
{
    int    rc;
    char  *raw, *text;

    rc = asprintf(&raw, "%s:%s%s%s", ctl_place_kind(place->kind),
                  place->root ? "/" : "", place->name,
                  place->folder && *place->name != '\0' ? "/" : "");

    if (rc == -1) {
        ctl_fault("no memory");
        return NULL;
    }

    text = ctl_name_shell(raw, strlen(raw));
    free(raw);

    if (text == NULL) {
        ctl_fault("no memory");
    }

    return text;
}


char *
ctl_encode(const char *text, int slashes)
{
    char           *encoded, *p;
    const uint8_t  *t;

    encoded = malloc(3 * strlen(text) + 1);

    if (encoded == NULL) {
        return NULL;
    }

    p = encoded;

    for (t = (const uint8_t *) text; *t != '\0'; t++) {

        if ((*t >= 'a' && *t <= 'z') || (*t >= 'A' && *t <= 'Z')
            || (*t >= '0' && *t <= '9') || strchr("-._~", *t) != NULL
            || (*t == '/' && slashes))
        {
            *p++ = (char) *t;

        } else {
            p += sprintf(p, "%%%02X", *t);
        }
    }

    *p = '\0';

    return encoded;
}


const char *
ctl_base_name(const char *path)
{
    const char  *slash;

    slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}
