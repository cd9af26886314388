/*
 * Staged files at their places, when the turn of their command has come:
 * renames only.  The manifest says before what will be there, so that after
 * an end in between it is known what is ours; and afterwards what is.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_file.h"
#include "agent_stage.h"


#define AGENT_STAGE_NUMBERS  1000        /* NAME (2), and so on */


static void agent_stage_load(void);
static void agent_stage_confirm(void);
static void agent_stage_save(void);
static int agent_stage_places(void);
static void agent_stage_close(void);
static int agent_stage_named(const agent_stage_t *stage,
    const agent_staged_t *entry);
static void agent_stage_plan(agent_stage_item_t *item);
static void agent_stage_put(agent_stage_t *stage, agent_stage_item_t *item);
static int agent_stage_skill(agent_stage_item_t *item);
static void agent_stage_known(agent_stage_item_t *item, const char *made);
static void agent_stage_remove(const agent_staged_t *entry);
static int agent_stage_same(const agent_staged_t *entry);
static int agent_stage_free_name(agent_stage_item_t *item);


static agent_manifest_t  agent_manifest;
static int               agent_manifest_loaded;
static int               agent_stage_attachments = -1;   /* while at work */
static int               agent_stage_skills = -1;


int
agent_stage_has(const agent_stage_item_t *item)
{
    agent_staged_t  *entry;

    agent_stage_load();
    entry = agent_manifest_find(&agent_manifest, item->kind, item->name);

    return entry != NULL
           && memcmp(entry->etag, item->etag, AGENT_STAGE_ETAG) == 0;
}


int
agent_stage_apply(agent_stage_t *stage)
{
    unsigned             i, count, work;
    agent_staged_t      *entry;
    agent_stage_item_t  *item;

    agent_stage_load();

    count = stage != NULL ? stage->count : 0;
    work = 0;

    for (i = 0; i < count; i++) {
        item = &stage->items[i];
        item->wanted = !agent_stage_has(item);

        if (item->wanted && !item->whole && item->code == NULL) {
            return -1;
        }

        work += item->wanted;
    }

    for (i = 0; i < agent_manifest.count; i++) {
        entry = &agent_manifest.list[i];

        if (!agent_stage_named(stage, entry)) {
            entry->state = AGENT_STAGED_GOING;
            work++;
        }
    }

    if (work == 0) {
        return 0;
    }

    if (agent_stage_places() == -1) {
        agent_log("the places of staged files can't be opened: error %d",
                  errno);
    }

    for (i = 0; i < count; i++) {
        if (stage->items[i].wanted && stage->items[i].code == NULL) {
            agent_stage_plan(&stage->items[i]);
        }
    }

    agent_stage_save();

    for (i = 0; i < agent_manifest.count; i++) {
        entry = &agent_manifest.list[i];

        if (entry->state == AGENT_STAGED_GOING) {
            agent_stage_remove(entry);
        }

        if (entry->state != AGENT_STAGED_THERE) {
            agent_manifest_remove(&agent_manifest, entry);
            i--;
        }
    }

    for (i = 0; i < count; i++) {
        if (stage->items[i].wanted) {
            agent_stage_put(stage, &stage->items[i]);
        }
    }

    agent_stage_save();
    agent_stage_close();
    agent_spool_tidy();

    return 0;
}


void
agent_stage_forget(void)
{
    agent_stage_load();
    agent_manifest.count = 0;
    agent_stage_save();
}


static void
agent_stage_load(void)
{
    int       fd;
    ssize_t   n;
    uint8_t  *p;

    if (agent_manifest_loaded) {
        return;
    }

    agent_manifest_loaded = 1;

    /* what an agent before us had not written to its end */

    (void) !unlink(AGENT_PLACE "/manifest.new");

    agent_manifest.list = malloc(AGENT_MANIFEST_MAX * sizeof(agent_staged_t));
    fd = open(AGENT_PLACE "/manifest", O_RDONLY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return;
    }

    p = malloc(AGENT_MANIFEST_BYTES);
    n = p != NULL ? read(fd, p, AGENT_MANIFEST_BYTES) : -1;
    close(fd);

    if (n < 0 || agent_manifest_decode(&agent_manifest, p, n) == -1) {
        agent_log("the manifest of staged files is not whole: all of them "
                  "are asked for anew");
    }

    free(p);
    agent_stage_confirm();
}


/*
 * An attachment that was about to be made counts if it is there, in place of
 * the old; of a skill nobody knows which of two it is, and it is asked for
 * anew.  What was about to go goes.
 */

static void
agent_stage_confirm(void)
{
    unsigned         i;
    agent_staged_t   entry, *old;

    if (agent_stage_places() == -1) {
        agent_stage_close();
        return;
    }

    for (i = 0; i < agent_manifest.count; i++) {
        entry = agent_manifest.list[i];

        if (entry.state == AGENT_STAGED_THERE) {
            continue;
        }

        agent_manifest_remove(&agent_manifest, &agent_manifest.list[i--]);

        if (entry.state == AGENT_STAGED_GOING) {
            agent_stage_remove(&entry);
            continue;
        }

        if (!agent_stage_same(&entry)) {
            continue;
        }

        entry.state = AGENT_STAGED_THERE;

        if (entry.kind == AGENT_STAGE_SKILL) {
            memset(entry.etag, 0, AGENT_STAGE_ETAG);
        }

        old = agent_manifest_find(&agent_manifest, entry.kind, entry.name);

        if (old == NULL) {
            old = agent_manifest_add(&agent_manifest);
        }

        *old = entry;
    }

    agent_stage_close();
}


/* As a whole, or as it was before. */

static void
agent_stage_save(void)
{
    int       fd, place, rc;
    size_t    size, at;
    ssize_t   n;
    uint8_t  *p;

    place = agent_spool_place();
    p = malloc(AGENT_MANIFEST_BYTES);

    if (place == -1 || p == NULL) {
        free(p);
        return;
    }

    size = agent_manifest_encode(&agent_manifest, p);
    fd = openat(place, "manifest.new", O_WRONLY|O_CREAT|O_TRUNC|O_NOFOLLOW
                                       |O_CLOEXEC, 0600);
    rc = fd == -1 ? -1 : 0;

    for (at = 0; at < size && rc == 0; at += n) {
        n = write(fd, p + at, size - at);

        if (n <= 0) {
            rc = -1;
            break;
        }
    }

    if (rc == -1 || renameat(place, "manifest.new", place, "manifest") == -1)
    {
        agent_log("the manifest of staged files can't be written: error %d",
                  errno);
    }

    if (fd != -1) {
        close(fd);
    }

    free(p);
}


static int
agent_stage_places(void)
{
    int  home;

    agent_directory_user(1);

    agent_stage_attachments = agent_root_open(AGENT_ROOT_HOME, "attachments",
                                              O_PATH|O_DIRECTORY|O_NOFOLLOW,
                                              0);

    if (agent_stage_attachments == -1 && errno == ENOENT) {
        home = agent_root_open(AGENT_ROOT_HOME, ".", O_PATH|O_DIRECTORY, 0);

        if (home != -1) {
            (void) !mkdirat(home, "attachments", 0755);
            close(home);
        }

        agent_stage_attachments = agent_root_open(AGENT_ROOT_HOME,
                                                  "attachments",
                                                  O_PATH|O_DIRECTORY
                                                  |O_NOFOLLOW, 0);
    }

    agent_directory_user(0);

    agent_stage_skills = agent_root_open(AGENT_ROOT_SKILLS, ".",
                                         O_PATH|O_DIRECTORY, 0);

    return agent_stage_attachments == -1 || agent_stage_skills == -1 ? -1 : 0;
}


static void
agent_stage_close(void)
{
    if (agent_stage_attachments != -1) {
        close(agent_stage_attachments);
        agent_stage_attachments = -1;
    }

    if (agent_stage_skills != -1) {
        close(agent_stage_skills);
        agent_stage_skills = -1;
    }
}


static int
agent_stage_named(const agent_stage_t *stage, const agent_staged_t *entry)
{
    unsigned  i;

    for (i = 0; stage != NULL && i < stage->count; i++) {
        if (stage->items[i].kind == entry->kind
            && strcmp(stage->items[i].name, entry->name) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* Under which name, and a record that it is about to be there. */

static void
agent_stage_plan(agent_stage_item_t *item)
{
    int              rc;
    struct stat      st;
    agent_staged_t  *entry, *coming;

    entry = agent_manifest_find(&agent_manifest, item->kind, item->name);
    strcpy(item->made, item->name);
    item->replace = 0;
    item->moved = 0;
    memset(&st, 0, sizeof(st));

    if (item->kind == AGENT_STAGE_ATTACHMENT) {

        rc = agent_spool_stat(&item->spool, &st);

        if (rc) {
            item->code = "not_staged";
            item->detail = "It was lost on its way.";
            return;
        }

        if (entry != NULL && entry->made[0] && agent_stage_same(entry)) {
            strcpy(item->made, entry->made);
            item->replace = 1;

        } else if (agent_stage_free_name(item) == -1) {
            item->code = "not_staged";
            item->detail = "There are too many files of that name.";
            return;
        }
    }

    coming = agent_manifest_add(&agent_manifest);

    if (coming == NULL) {
        item->code = "not_staged";
        item->detail = "The sandbox has too many files of this kind.";
        return;
    }

    coming->kind = item->kind;
    coming->state = AGENT_STAGED_COMING;
    memcpy(coming->etag, item->etag, AGENT_STAGE_ETAG);
    coming->size = st.st_size;
    coming->modified = agent_file_modified(&st);
    strcpy(coming->name, item->name);
    strcpy(coming->made, item->made);

    item->made_size = coming->size;
    item->made_modified = coming->modified;
}


/* Done as it was planned, or a NOTICE says why not. */

static void
agent_stage_put(agent_stage_t *stage, agent_stage_item_t *item)
{
    int          rc;
    char         text[SANDBOX_WIRE_MAX_NAME + 128];
    const char  *code;

    if (item->code != NULL) {
        agent_stage_notice(stage, item->code, item->name, item->detail);

        /* a tar that is refused once is refused always */

        if (strcmp(item->code, "skill_refused") == 0) {
            agent_stage_known(item, NULL);
        }

        return;
    }

    if (item->kind == AGENT_STAGE_SKILL) {
        rc = agent_stage_skill(item);

    } else if (agent_stage_attachments == -1) {
        rc = ENOTDIR;

    } else {
        rc = agent_spool_commit(&item->spool, agent_stage_attachments,
                                item->made, item->replace, NULL);
    }

    if (rc) {
        code = agent_root_code(rc, &item->detail);
        agent_stage_notice(stage, strcmp(code, "disk_full") == 0
                                  ? code : "not_staged",
                           item->name, item->detail);
        return;
    }

    agent_stage_known(item, item->made);

    if (item->moved) {
        snprintf(text, sizeof(text), "A file of that name was there; the "
                 "attachment is attachments/%s.", item->made);
        agent_stage_notice(stage, "renamed", item->name, text);
    }
}


/* Root's tree in place of the one before. */

static int
agent_stage_skill(agent_stage_item_t *item)
{
    int  spool;

    spool = agent_spool_trees();

    if (spool == -1 || agent_stage_skills == -1) {
        return ENOENT;
    }

    if (syscall(SYS_renameat2, spool, item->tree, agent_stage_skills,
                item->made, RENAME_NOREPLACE) == 0)
    {
        item->tree[0] = '\0';
        return 0;
    }

    if (errno != EEXIST) {
        return errno;
    }

    /* what is there now is discarded with the item */

    return syscall(SYS_renameat2, spool, item->tree, agent_stage_skills,
                   item->made, RENAME_EXCHANGE) == -1 ? errno : 0;
}


/* It is in the manifest from now on; made NULL: whatever was made before. */

static void
agent_stage_known(agent_stage_item_t *item, const char *made)
{
    agent_staged_t  *entry;

    entry = agent_manifest_find(&agent_manifest, item->kind, item->name);

    if (entry == NULL) {
        entry = agent_manifest_add(&agent_manifest);

        if (entry == NULL) {
            return;
        }
    }

    entry->kind = item->kind;
    entry->state = AGENT_STAGED_THERE;
    memcpy(entry->etag, item->etag, AGENT_STAGE_ETAG);
    strcpy(entry->name, item->name);

    if (made != NULL) {
        strcpy(entry->made, made);
        entry->size = item->made_size;
        entry->modified = item->made_modified;
    }
}


/* No longer wanted; what the user has changed is his. */

static void
agent_stage_remove(const agent_staged_t *entry)
{
    if (entry->made[0] == '\0') {
        return;
    }

    if (entry->kind == AGENT_STAGE_SKILL) {
        if (agent_stage_skills != -1
            && agent_spool_discard(agent_stage_skills, entry->made) != 0)
        {
            agent_log("a skill can't be removed: error %d", errno);
        }

        return;
    }

    if (agent_stage_same(entry)) {
        agent_directory_user(1);
        (void) !unlinkat(agent_stage_attachments, entry->made, 0);
        agent_directory_user(0);
    }
}


/* 1: what was made is there, as it was made. */

static int
agent_stage_same(const agent_staged_t *entry)
{
    int          rc;
    struct stat  st;

    if (entry->kind == AGENT_STAGE_SKILL) {
        return fstatat(agent_stage_skills, entry->made, &st,
                       AT_SYMLINK_NOFOLLOW) == 0;
    }

    agent_directory_user(1);
    rc = fstatat(agent_stage_attachments, entry->made, &st,
                 AT_SYMLINK_NOFOLLOW);
    agent_directory_user(0);

    return rc == 0 && S_ISREG(st.st_mode)
           && (uint64_t) st.st_size == entry->size
           && agent_file_modified(&st) == entry->modified;
}


/* NAME, or NAME (2) and so on if that one is the user's. */

static int
agent_stage_free_name(agent_stage_item_t *item)
{
    int          rc;
    unsigned     n;
    struct stat  st;

    agent_directory_user(1);
    rc = -1;

    for (n = 1; n < AGENT_STAGE_NUMBERS; n++) {
        if (n > 1) {
            agent_path_numbered(item->made, item->name, n);
            item->moved = 1;
        }

        if (fstatat(agent_stage_attachments, item->made, &st,
                    AT_SYMLINK_NOFOLLOW) == -1)
        {
            rc = 0;
            break;
        }
    }

    agent_directory_user(0);

    return rc;
}
