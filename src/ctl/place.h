/*
 * Where files of a conversation are: "files:NAME" of the Files panel,
 * "attachments:NAME", "fs:PATH" of the container; and what the gateway calls
 * it.
 */

#ifndef SANDBOX_CTL_PLACE_H
#define SANDBOX_CTL_PLACE_H


typedef enum {
    CTL_PLACE_NONE = 0,                          /* a bare name */
    CTL_PLACE_FILES,
    CTL_PLACE_ATTACHMENTS,
    CTL_PLACE_FS
} ctl_place_e;

typedef struct {
    ctl_place_e   kind;
    char         *name;                          /* or the path, in its
                                                    shortest form, without a
                                                    slash at its ends */
    int           root;                          /* the path began with / */
    int           folder;                        /* ... and ended with one, or
                                                    is a root */
} ctl_place_t;


typedef enum {
    CTL_WANT_NAME = 0,                           /* "files:NAME" */
    CTL_WANT_PLACE,                              /* "files" will do */
    CTL_WANT_ANY                                 /* a bare name, too */
} ctl_want_e;


/*
 * Reads "PLACE:NAME"; the place alone has an empty name.  0, or -1 after a
 * sentence.  ctl_place_free() is for both cases.
 */
int ctl_place_read(ctl_place_t *place, const char *word, ctl_want_e want);
void ctl_place_free(ctl_place_t *place);

/* 0: its name can be a file's; -1 after a sentence. */
int ctl_place_check(const ctl_place_t *place);

/* The name of a kind: "files". */
const char *ctl_place_kind(ctl_place_e kind);

/*
 * The path below the gateway's URL, `query` ("limit=1") and what the place
 * needs itself behind it.  The caller's; NULL: no memory.
 */
char *ctl_place_path(const ctl_place_t *place, const char *conversation,
    const char *query);

/* What it is called here: "files:NAME", fit for a terminal.  The caller's. */
char *ctl_place_text(const ctl_place_t *place);

/* Percent-encoded, but for slashes if they may stay.  The caller's. */
char *ctl_encode(const char *text, int slashes);

/* The last part of a path, of what has no slash at its end. */
const char *ctl_base_name(const char *path);


#endif /* SANDBOX_CTL_PLACE_H */
