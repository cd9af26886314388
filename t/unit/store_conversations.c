/*
 * A user's conversations by the folders of the store: names, their order,
 * pages, what else lies about there, and marks that are forgotten.
 */

/* link: src/store/sandbox_store.c src/store/sandbox_store_type.c */
/* link: src/store/sandbox_store_disk.c src/store/sandbox_store_write.c */
/* link: src/store/sandbox_store_lock.c src/store/sandbox_store_sweep.c */
/* link: src/store/sandbox_store_conversations.c */
/* link: src/store/sandbox_store_engine.c src/wire/sandbox_wire.c */
/* link: src/wire/sandbox_utf8.c -lcrypto */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "test.h"
#include "sandbox_store_conversations.h"
#include "sandbox_store_engine.h"


static void nobody(void);
static void names(void);
static void pages(void);
static void strangers(void);
static void forgotten(void);

static void full(void);
static void engine(void);

static unsigned long long usage(void);
static void mark(const char *name);
static void date(const char *name, time_t used, time_t created);
static unsigned list(const sandbox_store_conversation_t *after, size_t limit);
static const char *at(size_t n);
static int go_on(void);


static char                           root[64] = "/tmp/sandbox-store.XXXXXX";
static char                           longest[129];
static sandbox_store_place_t          place;
static sandbox_store_fault_t          fault;
static sandbox_store_conversations_t  found;

static const uint8_t  tenant[SANDBOX_STORE_DIGEST] = { 1 };
static const uint8_t  user[SANDBOX_STORE_DIGEST] = { 2 };


int
main(void)
{
    char  command[128];

    if (mkdtemp(root) == NULL) {
        return 1;
    }

    memset(longest, 'n', 128);

    nobody();
    names();
    pages();
    strangers();
    forgotten();
    full();
    engine();

    free(found.entries);
    snprintf(command, sizeof(command), "rm -rf %s", root);

    return system(command) == 0 ? test_done() : 1;
}


static void
nobody(void)
{
    (void) sandbox_store_place(&place, root, "r", 1, tenant, user, "-", 1);

    is_number(list(NULL, 0), 0, "nobody has none");
    is_number(fault.status, SANDBOX_STORE_OK, "which is no fault");
}


static void
names(void)
{
    mark("a");
    mark("b.c_d:e-f");
    mark(longest);
    mark(".hidden");
    mark("a");

    date("a", 0, 1000);
    date("b.c_d:e-f", 0, 4000);
    date(longest, 0, 2000);
    date(".hidden", 0, 3000);

    is_number(list(NULL, 0), 4, "each once");
    is_string(at(0), "b.c_d:e-f", "the newest");
    is_string(at(1), ".hidden", "a name that begins with a dot");
    is_string(at(2), longest, "the longest name");
    is_string(at(3), "a", "the oldest");
    ok(!found.entries[0].files && !found.more, "no files, no more");
}


static void
pages(void)
{
    sandbox_store_conversation_t  last;

    date(".hidden", 0, 2000);

    is_number(list(NULL, 2), 2, "a page");
    ok(found.more, "and there is more");
    is_string(at(1), ".hidden", "of one moment by the name");

    last = found.entries[1];

    is_number(list(&last, 2), 2, "the next one");
    ok(!found.more, "is the last");
    is_string(at(0), longest, "it goes on where the first ended");

    last = found.entries[1];
    is_number(list(&last, 2), 0, "and then nothing");

    memset(&last, 0, sizeof(last));
    last.created_ns = UINT64_MAX;
    is_number(list(&last, 1000), 4, "after a moment in the future");
    last.created_ns = 0;
    is_number(list(&last, 1000), 0, "after one before all");
}


/* what is no conversation's folder is nobody's conversation */

static void
strangers(void)
{
    int   fd;
    char  path[SANDBOX_STORE_MAX_PATH + 128];

    static const char  *folders[] = {
        "%41", "a%2E", "%2e", "=00", "%", "%2E%41", "x y", "..x/..",
        "%2E.x%"
    };

    size_t  i;

    for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", place.user, folders[i]);
        (void) mkdir(path, 0700);
    }

    snprintf(path, sizeof(path), "%s/file", place.user);
    fd = open(path, O_WRONLY|O_CREAT, 0600);
    close(fd);

    snprintf(path, sizeof(path), "%s/link", place.user);
    (void) !symlink(root, path);

    snprintf(path, sizeof(path), "%s/%s%s", place.user, longest, "n");
    (void) mkdir(path, 0700);

    is_number(list(NULL, 0), 4, "none of these");

    snprintf(path, sizeof(path), "%s/panel", place.user);
    (void) mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/panel/files", place.user);
    (void) mkdir(path, 0700);

    is_number(list(NULL, 0), 5, "one that has files and no mark");
    is_string(at(0), "panel", "is there");
    ok(found.entries[0].files, "with its files");
}


static void
forgotten(void)
{
    char         path[SANDBOX_STORE_MAX_PATH + 128];
    time_t       now;
    struct stat  st;

    now = time(NULL);
    date("a", now - 400 * 86400, now - 500 * 86400);
    date(longest, now - 300 * 86400, now - 500 * 86400);
    date(".hidden", now - 400 * 86400, now - 500 * 86400);
    date("b.c_d:e-f", now, now);

    /* used again: the time of its first use stays */

    mark(".hidden");
    snprintf(path, sizeof(path), "%s/%%2Ehidden/used", place.user);
    ok(stat(path, &st) == 0 && st.st_mtime == now - 500 * 86400
       && now - st.st_atime < 3600, "a use renews a mark");

    is_number(sandbox_store_sweep(root, go_on, &fault), SANDBOX_STORE_OK,
              "a sweep");
    is_number(list(NULL, 0), 3, "what nobody uses for a year is forgotten");
    is_string(at(0), "b.c_d:e-f", "others are not");

    mark("a");
    is_number(list(NULL, 0), 4, "until it is used again");
    is_string(at(0), "a", "then it is new");

    (void) sandbox_store_place(&place, root, "r", 1, tenant, user, "a", 1);
    is_number(sandbox_store_drop(&place, &fault), SANDBOX_STORE_OK,
              "it is dropped");
    is_number(list(NULL, 0), 3, "and no more there");
}


/* names of conversations are no way round a tenant's limit */

static void
full(void)
{
    uint64_t                before;
    volatile unsigned long  state;

    state = 7;

    before = usage();
    (void) sandbox_store_place(&place, root, "r", 1, tenant, user, "full", 4);

    is_number(sandbox_store_mark(&place, before + SANDBOX_STORE_BLOCK - 1,
                                 NULL, 0, &fault),
              SANDBOX_STORE_TENANT_FULL, "a tenant without room for a mark");
    is_number(list(NULL, 0), 3, "it is not listed");

    /* a thread that comes late, and finds that it was dropped meanwhile */

    is_number(sandbox_store_mark(&place, before + SANDBOX_STORE_BLOCK,
                                 &state, 7, &fault),
              SANDBOX_STORE_OK, "a mark that nobody wants any more");
    is_number(list(NULL, 0), 3, "it is not listed");
    is_number(usage(), before, "nor counted");

    /* what stands there is of another one, for all it can know */

    state = 8;

    is_number(sandbox_store_mark(&place, before + SANDBOX_STORE_BLOCK,
                                 &state, 7, &fault),
              SANDBOX_STORE_OK, "with room for one");
    is_number(list(NULL, 0), 4, "one that is wanted is listed");
    is_number(usage(), before + SANDBOX_STORE_BLOCK, "which is counted");
    is_number(sandbox_store_mark(&place, 0, NULL, 0, &fault), SANDBOX_STORE_OK,
              "one that is there takes no more");
    is_number(usage(), before + SANDBOX_STORE_BLOCK, "and is not counted twice");
    is_number(sandbox_store_drop(&place, &fault), SANDBOX_STORE_OK, "dropped");
    is_number(usage(), before, "and given back");
}


/* its record lies in the mark, and changes neither time nor bytes of it */

static void
engine(void)
{
    int                     fd;
    char                    path[SANDBOX_STORE_MAX_PATH + 8];
    uint64_t                before;
    struct stat             first, second;
    sandbox_store_engine_t  one, two;
    volatile unsigned long  state;

    (void) sandbox_store_place(&place, root, "r", 1, tenant, user, "e", 1);

    is_number(sandbox_store_engine_read(&place, &one, &fault),
              SANDBOX_STORE_MISSING, "no mark, no engine");

    mark("e");
    is_number(sandbox_store_engine_read(&place, &one, &fault),
              SANDBOX_STORE_MISSING, "a mark has none at first");

    snprintf(path, sizeof(path), "%s/used", place.conversation);
    date("e", 0, 1234);
    ok(stat(path, &first) == 0, "the mark is there");
    before = usage();

    memset(&one, 0, sizeof(one));
    one.instance = 0x0102030405060708;
    one.name_len = SANDBOX_STORE_MAX_ENGINE;
    memset(one.name, 'n', sizeof(one.name));

    is_number(sandbox_store_engine_write(&place, &one, 0, NULL, 0, &fault),
              SANDBOX_STORE_OK, "an engine is noted");
    is_number(sandbox_store_engine_read(&place, &two, &fault),
              SANDBOX_STORE_OK, "and read");
    is_bytes(&two, sizeof(two), &one, sizeof(one), "as it was written");

    one.instance = 2;
    one.name_len = 3;
    memset(one.name, 0, sizeof(one.name));
    memcpy(one.name, "e-2", 3);
    (void) sandbox_store_engine_write(&place, &one, 0, NULL, 0, &fault);
    (void) sandbox_store_engine_read(&place, &two, &fault);
    is_bytes(&two, sizeof(two), &one, sizeof(one), "another one likewise");

    ok(stat(path, &second) == 0, "the mark is there");
    is_number(second.st_mtim.tv_sec, first.st_mtim.tv_sec,
              "the order of conversations stays");
    is_number(usage(), before, "and what is counted");

    fd = open(path, O_WRONLY);
    ok(fd != -1 && pwrite(fd, "x", 1, 12) == 1, "a byte is damaged");
    close(fd);
    is_number(sandbox_store_engine_read(&place, &two, &fault),
              SANDBOX_STORE_MISSING, "then it says nothing");

    (void) sandbox_store_place(&place, root, "r", 1, tenant, user, "new", 3);
    is_number(sandbox_store_engine_write(&place, &one, before, NULL, 0,
                                         &fault),
              SANDBOX_STORE_TENANT_FULL, "nor without room for a mark");

    /* it was dropped, before the mark or behind it */

    state = 7;

    is_number(sandbox_store_engine_write(&place, &one, UINT64_MAX, &state, 7,
                                         &fault),
              SANDBOX_STORE_OK, "nobody wants it any more");
    is_number(sandbox_store_engine_read(&place, &two, &fault),
              SANDBOX_STORE_MISSING, "so it is not noted");
    is_number(usage(), before, "nor counted");

    state = 8;

    is_number(sandbox_store_engine_write(&place, &one, UINT64_MAX, &state, 7,
                                         &fault),
              SANDBOX_STORE_OK, "one that is wanted");
    is_number(sandbox_store_engine_read(&place, &two, &fault),
              SANDBOX_STORE_OK, "is noted");
    is_number(sandbox_store_drop(&place, &fault), SANDBOX_STORE_OK, "dropped");
}


static unsigned long long
usage(void)
{
    FILE                *f;
    char                 path[SANDBOX_STORE_MAX_PATH + 8];
    unsigned long long   n;

    snprintf(path, sizeof(path), "%s/usage", place.tenant);
    f = fopen(path, "r");
    n = ~0ull;

    if (f) {
        n = fscanf(f, "%llu", &n) == 1 ? n : ~0ull;
        fclose(f);
    }

    return n;
}


static void
mark(const char *name)
{
    (void) sandbox_store_place(&place, root, "r", 1, tenant, user, name,
                               strlen(name));
    is_number(sandbox_store_mark(&place, 1 << 20, NULL, 0, &fault),
              SANDBOX_STORE_OK, "a mark of %.20s", name);
}


/* 0: leaves the time of use */

static void
date(const char *name, time_t used, time_t created)
{
    char             path[SANDBOX_STORE_MAX_PATH + 128];
    struct timespec  times[2];

    (void) sandbox_store_place(&place, root, "r", 1, tenant, user, name,
                               strlen(name));
    snprintf(path, sizeof(path), "%s/used", place.conversation);

    times[0].tv_sec = used;
    times[0].tv_nsec = used ? 0 : UTIME_OMIT;
    times[1].tv_sec = created;
    times[1].tv_nsec = 0;

    ok(utimensat(AT_FDCWD, path, times, 0) == 0, "a date of %.20s", name);
}


static unsigned
list(const sandbox_store_conversation_t *after, size_t limit)
{
    free(found.entries);
    (void) sandbox_store_conversations(&place, after, limit, &found, &fault);

    return (unsigned) found.n;
}


static const char *
at(size_t n)
{
    static char  name[SANDBOX_STORE_MAX_CONVERSATION + 1];

    if (n >= found.n) {
        return NULL;
    }

    memcpy(name, found.entries[n].name, found.entries[n].name_len);
    name[found.entries[n].name_len] = '\0';

    return name;
}


static int
go_on(void)
{
    return 0;
}
