/*
 * The store on a disk: files appear whole or not at all, whatever dies when;
 * quotas, free names, conditions, lists, the sweep.
 */

/* link: src/store/sandbox_store.c src/store/sandbox_store_type.c */
/* link: src/store/sandbox_store_disk.c src/store/sandbox_store_write.c */
/* link: src/store/sandbox_store_lock.c src/store/sandbox_store_sweep.c */
/* link: src/store/sandbox_store_conversations.c */
/* link: src/wire/sandbox_utf8.c -lcrypto -lpthread */

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"
#include "sandbox_store_disk.h"


#define BLOCK  SANDBOX_STORE_BLOCK       /* of a tenant's bytes, a file's */
#define THREADS  8


static void once(void);
static void conditions(void);
static void same_name(void);
static void expectations(void);
static void quotas(void);
static void lists(void);
static void notices(void);
static void dropped(void);
static void damaged(void);
static void crashes(void);
static void together(void);
static void counted(void);

static unsigned put(const char *name, const void *p, size_t n,
    sandbox_store_mode_e mode);
static unsigned get(const char *name, char *out, size_t size);
static unsigned entries(const char *folder);
static unsigned long long usage(void);
static int go_on(void);
static int stop_now(void);
static void *writer(void *data);


static char                       root[64] = "/tmp/sandbox-store.XXXXXX";
static sandbox_store_place_t      place;
static sandbox_store_quota_t      quota = { 1000, 1 << 20, 4 << 20 };
static sandbox_store_condition_t  condition;
static sandbox_store_fault_t      fault;
static sandbox_store_entry_t      entry;
static unsigned                   created;

static const uint8_t  tenant[SANDBOX_STORE_DIGEST] = { 1 };
static const uint8_t  user[SANDBOX_STORE_DIGEST] = { 2 };


int
main(void)
{
    char  command[128];

    if (mkdtemp(root) == NULL) {
        return 1;
    }

    ok(sandbox_store_place(&place, root, "https://i/", 10, tenant, user, "c",
                           1) == 0, "a place");

    once();
    conditions();
    same_name();
    quotas();
    lists();
    notices();
    dropped();
    damaged();
    crashes();
    together();
    counted();

    snprintf(command, sizeof(command), "rm -rf %s", root);
    ok(system(command) == 0, "nothing stays");

    return test_done();
}


static unsigned
put(const char *name, const void *p, size_t n, sandbox_store_mode_e mode)
{
    sandbox_store_writer_t  w;

    sandbox_store_writer_init(&w, 1 << 20);

    if (sandbox_store_write(&w, root, p, n / 2, &fault) != SANDBOX_STORE_OK
        || sandbox_store_write(&w, root, (const char *) p + n / 2, n - n / 2,
                               &fault)
           != SANDBOX_STORE_OK)
    {
        sandbox_store_writer_abort(&w);
        return fault.status;
    }

    memset(&entry, 0, sizeof(entry));
    entry.name_len = (unsigned) strlen(name);
    memcpy(entry.name, name, entry.name_len);

    return sandbox_store_commit(&w, &place, SANDBOX_STORE_ATTACHMENTS, &quota,
                                mode, &condition, &entry, &created, &fault);
}


static unsigned
get(const char *name, char *out, size_t size)
{
    int      fd;
    ssize_t  n;

    if (sandbox_store_lookup(&place, SANDBOX_STORE_ATTACHMENTS, name,
                             strlen(name), NULL, &entry, &fd, &fault)
        != SANDBOX_STORE_OK)
    {
        return fault.status;
    }

    n = pread(fd, out, size - 1, SANDBOX_STORE_BLOCK);
    out[n > 0 ? n : 0] = '\0';
    close(fd);

    return SANDBOX_STORE_OK;
}


static unsigned
entries(const char *folder)
{
    DIR            *dir;
    char            path[128];
    unsigned        n;
    struct dirent  *de;

    snprintf(path, sizeof(path), "%s/%s", root, folder);
    dir = opendir(path);
    n = 0;

    while (dir && (de = readdir(dir)) != NULL) {
        n += (de->d_name[0] != '.');
    }

    if (dir) {
        closedir(dir);
    }

    return n;
}


static unsigned long long
usage(void)
{
    FILE                *f;
    char                 path[SANDBOX_STORE_MAX_PATH];
    unsigned long long   n;

    snprintf(path, sizeof(path), "%s/usage", place.tenant);
    f = fopen(path, "r");
    n = 0;

    if (f == NULL || fscanf(f, "%llu", &n) != 1) {
        n = ~0ull;
    }

    if (f) {
        fclose(f);
    }

    return n;
}


static int
go_on(void)
{
    return 0;
}


static int
stop_now(void)
{
    return 1;
}


static void
once(void)
{
    char      text[64], etag[SANDBOX_STORE_ETAG_TEXT + 1];
    uint64_t  first;

    is_number(get("a.txt", text, sizeof(text)), SANDBOX_STORE_MISSING,
              "nothing is there");
    is_number(put("a.txt", "hello", 5, SANDBOX_STORE_REPLACE),
              SANDBOX_STORE_OK, "a file");
    is_number(created, 1, "it is new");
    is_number(entry.size, 5, "its size");
    is_number(entry.type, SANDBOX_STORE_TYPE_TEXT, "its type");
    sandbox_store_etag(entry.sha256, etag);
    is_string(etag, "\"2cf24dba5fb0a30e26e83b2ac5b9e29e\"", "its tag");
    first = entry.created_ms;

    is_number(get("a.txt", text, sizeof(text)), SANDBOX_STORE_OK, "is there");
    is_string(text, "hello", "files/roundtrip-bytes: whole");
    is_number(entries(".tmp"), 0, "no temporary file is left");

    is_number(put("a.txt", "", 0, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "files/roundtrip-bytes: an empty file");
    is_number(created, 0, "it was there");
    is_number(entry.created_ms, first, "made when it was made first");
    ok(entry.modified_ms >= first, "modified now");
    is_number(get("a.txt", text, sizeof(text)), SANDBOX_STORE_OK, "is there");
    is_string(text, "", "and empty");
    is_number(usage(), BLOCK, "the tenant has its block");
}


static void
conditions(void)
{
    char  text[64];

    condition.none_match = "*";
    condition.none_match_len = 1;
    is_number(put("a.txt", "x", 1, SANDBOX_STORE_REPLACE),
              SANDBOX_STORE_PRECONDITION, "files/overwrite-rules: if none");
    is_number(put("b.txt", "x", 1, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "there was none");
    memset(&condition, 0, sizeof(condition));

    condition.match = "\"00000000000000000000000000000000\"";
    condition.match_len = 34;
    is_number(put("b.txt", "y", 1, SANDBOX_STORE_REPLACE),
              SANDBOX_STORE_PRECONDITION, "files/overwrite-rules: an old tag");
    is_number(sandbox_store_remove(&place, SANDBOX_STORE_ATTACHMENTS, "b.txt",
                                   5, &condition, &fault),
              SANDBOX_STORE_PRECONDITION, "nor is it removed");
    memset(&condition, 0, sizeof(condition));

    is_number(put("b.txt", "y", 1, SANDBOX_STORE_CREATE),
              SANDBOX_STORE_EXISTS, "files/overwrite-rules: it exists");
    get("b.txt", text, sizeof(text));
    is_string(text, "x", "all of them left it alone");
    is_number(entries(".tmp"), 0, "and nothing behind");

    is_number(sandbox_store_remove(&place, SANDBOX_STORE_ATTACHMENTS, "b.txt",
                                   5, &condition, &fault),
              SANDBOX_STORE_OK, "removed");
    is_number(sandbox_store_remove(&place, SANDBOX_STORE_ATTACHMENTS, "b.txt",
                                   5, &condition, &fault),
              SANDBOX_STORE_MISSING, "it is gone");
    is_number(usage(), BLOCK, "and not counted");
}


static void
same_name(void)
{
    char  text[64];

    put("image.png", "one", 3, SANDBOX_STORE_FREE_NAME);
    is_bytes(entry.name, entry.name_len, "image.png", 9, "the first");
    put("image.png", "two", 3, SANDBOX_STORE_FREE_NAME);
    is_bytes(entry.name, entry.name_len, "image (2).png", 13,
             "files/attachments-same-name: the second");
    put("image.png", "three", 5, SANDBOX_STORE_FREE_NAME);
    is_bytes(entry.name, entry.name_len, "image (3).png", 13, "the third");
    get("image (2).png", text, sizeof(text));
    is_string(text, "two", "each is there");
    is_number(usage(), 4 * BLOCK + 11, "and counted");
}


/* before a byte is written; "big" has 1800 */

static void
expectations(void)
{
    char                    bytes[600];
    sandbox_store_quota_t   old;
    sandbox_store_writer_t  w;

    old = quota;
    quota.size = 3000;
    memset(bytes, 'x', sizeof(bytes));

    sandbox_store_writer_init(&w, 1 << 20);
    is_number(sandbox_store_expect(&w, &place, SANDBOX_STORE_ATTACHMENTS,
                                   &quota, SANDBOX_STORE_REPLACE, "new", 3,
                                   3000, &fault),
              SANDBOX_STORE_FULL, "a length without room");
    is_number(fault.limit, 3000, "the limit is told");
    is_number(sandbox_store_expect(&w, &place, SANDBOX_STORE_ATTACHMENTS,
                                   &quota, SANDBOX_STORE_REPLACE, "big", 3,
                                   2900, &fault),
              SANDBOX_STORE_OK, "of the file that it replaces, room is left");
    is_number(sandbox_store_expect(&w, &place, SANDBOX_STORE_ATTACHMENTS,
                                   &quota, SANDBOX_STORE_FREE_NAME, "big", 3,
                                   2900, &fault),
              SANDBOX_STORE_FULL, "not under another name");

    is_number(sandbox_store_expect(&w, &place, SANDBOX_STORE_ATTACHMENTS,
                                   &quota, SANDBOX_STORE_REPLACE, "new", 3,
                                   UINT64_MAX, &fault),
              SANDBOX_STORE_OK, "a length that is not known");
    is_number(sandbox_store_write(&w, place.root, bytes, 600, &fault),
              SANDBOX_STORE_OK, "as much as there is room for");
    is_number(sandbox_store_write(&w, place.root, bytes, 600, &fault),
              SANDBOX_STORE_FULL, "and no more");
    sandbox_store_writer_abort(&w);

    quota = old;
    quota.tenant_size = 2000;
    sandbox_store_writer_init(&w, 1 << 20);
    is_number(sandbox_store_expect(&w, &place, SANDBOX_STORE_ATTACHMENTS,
                                   &quota, SANDBOX_STORE_REPLACE, "new", 3,
                                   600, &fault),
              SANDBOX_STORE_TENANT_FULL, "a tenant's");
    quota = old;
}


static void
quotas(void)
{
    char                  *big;
    sandbox_store_quota_t  old;

    old = quota;
    big = calloc(1, 1 << 20);

    is_number(put("big", big, (1 << 20) + 0, SANDBOX_STORE_REPLACE),
              SANDBOX_STORE_FULL, "more than a conversation may have");
    is_number(fault.limit, 1 << 20, "says how much that is");

    quota.size = 2000;
    is_number(put("big", big, 1900, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "it fits");
    is_number(put("big", big, 1950, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "what is replaced is not counted twice");
    quota.size = 10;
    is_number(put("big", big, 1800, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "less than before is fine, whatever the limit is now");
    quota = old;

    quota.tenant_size = 1000;
    is_number(put("c", big, 2, SANDBOX_STORE_REPLACE),
              SANDBOX_STORE_TENANT_FULL, "a tenant's limit");
    quota = old;

    /* empty ones take room, too */

    quota.tenant_size = usage() + BLOCK - 1;
    is_number(put("e", "", 0, SANDBOX_STORE_REPLACE),
              SANDBOX_STORE_TENANT_FULL, "no room for one more's block");
    is_number(put("a.txt", "", 0, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "what is there has its own");
    quota.tenant_size++;
    is_number(put("e", "", 0, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "room for it");
    is_number(usage(), quota.tenant_size, "and counted");
    is_number(sandbox_store_remove(&place, SANDBOX_STORE_ATTACHMENTS, "e", 1,
                                   &condition, &fault),
              SANDBOX_STORE_OK, "removed");
    is_number(usage(), quota.tenant_size - BLOCK, "not counted any more");
    quota = old;

    expectations();

    quota.files = 5;
    is_number(put("d", "", 0, SANDBOX_STORE_REPLACE), SANDBOX_STORE_TOO_MANY,
              "too many files");
    is_number(put("a.txt", "", 0, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "replacing makes none more");
    quota = old;

    is_number(usage(), 5 * BLOCK + 1811, "the number is right");
    is_number(entries(".tmp"), 0, "refused ones leave nothing");

    sandbox_store_remove(&place, SANDBOX_STORE_ATTACHMENTS, "big", 3,
                         &condition, &fault);
    free(big);
}


static void
lists(void)
{
    char                  name[32], last[32];
    unsigned              i, seen, wrong;
    sandbox_store_list_t  list;

    sandbox_store_drop(&place, &fault);

    for (i = 0; i < 230; i++) {
        snprintf(name, sizeof(name), "file %u", i * 7919 % 230);
        put(name, "x", 1, SANDBOX_STORE_REPLACE);
    }

    last[0] = '\0';
    seen = 0;
    wrong = 0;

    do {
        if (sandbox_store_list(&place, SANDBOX_STORE_ATTACHMENTS, last,
                               strlen(last), 50, &list, &fault)
            != SANDBOX_STORE_OK)
        {
            break;
        }

        for (i = 0; i < list.n; i++) {
            memcpy(name, list.entries[i].name, list.entries[i].name_len);
            name[list.entries[i].name_len] = '\0';
            wrong += (strcmp(name, last) <= 0);
            strcpy(last, name);
            seen++;
        }

        i = list.more;
        sandbox_store_list_free(&list);

    } while (i);

    is_number(seen, 230, "files/list-large: each page, each file once");
    is_number(wrong, 0, "in order");

    sandbox_store_drop(&place, &fault);
    is_number(sandbox_store_list(&place, SANDBOX_STORE_ATTACHMENTS, NULL, 0,
                                 50, &list, &fault), SANDBOX_STORE_OK,
              "an empty list");
    is_number(list.n, 0, "has nothing");
}


static void
notices(void)
{
    char                  name[32];
    unsigned              i;
    sandbox_store_list_t  list;

    for (i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "%02u", i);
        sandbox_store_notice(&place, name, 2, 16 << 20, &fault);
    }

    put("03", "x", 1, SANDBOX_STORE_REPLACE);

    is_number(sandbox_store_take_notices(&place, &list, &fault),
              SANDBOX_STORE_OK, "notices");
    is_number(list.n, 31, "as many as may be, less what came after all");
    is_bytes(list.entries[3].name, list.entries[3].name_len, "04", 2, "names");
    is_number(list.entries[3].size, 16 << 20, "and limits");
    sandbox_store_list_free(&list);

    sandbox_store_take_notices(&place, &list, &fault);
    is_number(list.n, 0, "are told once");
    sandbox_store_list_free(&list);
}


static void
dropped(void)
{
    char  text[64];

    put("gone", "xyz", 3, SANDBOX_STORE_REPLACE);
    is_number(sandbox_store_drop(&place, &fault), SANDBOX_STORE_OK, "dropped");
    is_number(get("gone", text, sizeof(text)), SANDBOX_STORE_MISSING, "gone");
    is_number(usage(), 0, "not counted");
    ok(entries(".trash") > 0, "in the trash");
    is_number(sandbox_store_drop(&place, &fault), SANDBOX_STORE_OK, "again");

    sandbox_store_sweep(root, stop_now, &fault);
    ok(entries(".trash") > 0, "a sweep stops when it is told");
    sandbox_store_sweep(root, go_on, &fault);
    is_number(entries(".trash"), 0, "persistence/delete-all: swept");
}


static void
damaged(void)
{
    int                   fd;
    char                  path[SANDBOX_STORE_MAX_PATH], text[64];
    char                  id[SANDBOX_STORE_ID + 1];
    sandbox_store_list_t  list;

    put("torn", "0123456789", 10, SANDBOX_STORE_REPLACE);
    sandbox_store_id("torn", 4, id);
    snprintf(path, sizeof(path), "%s/attachments/%s", place.conversation, id);

    fd = open(path, O_RDWR);
    ok(fd != -1 && ftruncate(fd, SANDBOX_STORE_BLOCK + 5) == 0, "torn");
    close(fd);

    is_number(get("torn", text, sizeof(text)), SANDBOX_STORE_DAMAGED,
              "a file with another size than its block says is not served");
    sandbox_store_list(&place, SANDBOX_STORE_ATTACHMENTS, NULL, 0, 10, &list,
                       &fault);
    is_number(list.n, 0, "nor listed");
    sandbox_store_list_free(&list);

    is_number(put("torn", "new", 3, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "but replaced");
    get("torn", text, sizeof(text));
    is_string(text, "new", "by a whole one");

    unlink(path);
    is_number(symlink("/etc/passwd", path), 0, "a link in its place");
    ok(get("torn", text, sizeof(text)) != SANDBOX_STORE_OK, "is not followed");
    unlink(path);
}


/* a writer that is killed anywhere: the old file or the new one, never less */

static void
crashes(void)
{
    pid_t            pid;
    unsigned         i, j, bad, new_ones, in_between;
    static char      old[60000], new[60000], text[70000];
    struct timespec  pause = { 0, 0 };

    struct {
        volatile unsigned  begun;
        volatile unsigned  done;
    } *puts;

    puts = mmap(NULL, sizeof(*puts), PROT_READ|PROT_WRITE,
                MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    if (puts == MAP_FAILED) {
        ok(0, "memory");
        return;
    }

    memset(old, 'o', sizeof(old));
    memset(new, 'n', sizeof(new));

    bad = 0;
    new_ones = 0;
    in_between = 0;

    for (i = 0; i < 60; i++) {
        put("precious", old, sizeof(old), SANDBOX_STORE_REPLACE);
        puts->begun = 0;
        puts->done = 0;
        fflush(stdout);

        pid = fork();

        if (pid == 0) {
            for ( ;; ) {
                puts->begun++;
                put("precious", new, sizeof(new), SANDBOX_STORE_REPLACE);
                puts->done++;
            }
        }

        /* every other time not before the first one is there */

        pause.tv_nsec = 1000000;

        for (j = 0; i % 2 && !puts->done && j < 100000; j++) {
            nanosleep(&pause, NULL);
        }

        pause.tv_nsec = 50000 * (long) i;
        nanosleep(&pause, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        in_between += puts->begun != puts->done;

        if (get("precious", text, sizeof(text)) != SANDBOX_STORE_OK) {
            bad++;
            continue;
        }

        for (j = 1; j < sizeof(old); j++) {
            bad += (text[j] != text[0]);
        }

        new_ones += (text[0] == 'n');
    }

    is_number(bad, 0, "files/atomic-upload: the old one or the new one");
    ok(new_ones >= 30 && in_between > 0, "%u had it, %u died within",
       new_ones, in_between);
    munmap(puts, sizeof(*puts));

    sandbox_store_sweep(root, go_on, &fault);
    is_number(entries(".tmp"), 0, "what was begun is swept");
}


static void *
writer(void *data)
{
    char                       text[32];
    unsigned                   i, one, *wrong = data;
    sandbox_store_entry_t      e;
    sandbox_store_fault_t      f;
    sandbox_store_writer_t     w;
    sandbox_store_condition_t  none;

    memset(&none, 0, sizeof(none));

    for (i = 0; i < 20; i++) {
        sandbox_store_writer_init(&w, 100);
        snprintf(text, sizeof(text), "%u", i);

        memset(&e, 0, sizeof(e));
        memcpy(e.name, "same.txt", 8);
        e.name_len = 8;

        if (sandbox_store_write(&w, root, text, strlen(text), &f)
            != SANDBOX_STORE_OK
            || sandbox_store_commit(&w, &place, SANDBOX_STORE_ATTACHMENTS,
                                    &quota, i % 2 ? SANDBOX_STORE_FREE_NAME
                                                  : SANDBOX_STORE_REPLACE,
                                    &none, &e, &one, &f)
               != SANDBOX_STORE_OK)
        {
            (*wrong)++;
        }
    }

    return NULL;
}


static void
together(void)
{
    char                  path[SANDBOX_STORE_MAX_PATH];
    unsigned              i, wrong[THREADS];
    uint64_t              sum;
    pthread_t             threads[THREADS];
    sandbox_store_list_t  list;

    sandbox_store_drop(&place, &fault);
    memset(wrong, 0, sizeof(wrong));

    /* what other tests broke by hand was not told */

    snprintf(path, sizeof(path), "%s/usage", place.tenant);
    unlink(path);

    for (i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, writer, &wrong[i]);
    }

    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        wrong[0] += i ? wrong[i] : 0;
    }

    is_number(wrong[0], 0, "eight at once on one name");

    sandbox_store_list(&place, SANDBOX_STORE_ATTACHMENTS, NULL, 0, 1000,
                       &list, &fault);
    is_number(list.n, THREADS * 10 + 1, "each free name was given once");

    sum = 0;

    for (i = 0; i < list.n; i++) {
        sum += list.entries[i].size;
    }

    is_number(usage(), sum + list.n * BLOCK, "and all are counted");
    sandbox_store_list_free(&list);
}


static void
counted(void)
{
    int       fd;
    char      path[SANDBOX_STORE_MAX_PATH];
    uint64_t  before;

    before = usage();
    snprintf(path, sizeof(path), "%s/usage", place.tenant);

    fd = open(path, O_RDWR);
    ok(pwrite(fd, "garbage", 7, 0) == 7, "a number that is none");
    close(fd);

    put("one more", "x", 1, SANDBOX_STORE_REPLACE);
    is_number(usage(), before + BLOCK + 1, "is counted anew");

    fd = open(path, O_RDWR);
    ok(pwrite(fd, "00000000000000000009\n", 21, 0) == 21, "a wrong one");
    close(fd);

    snprintf(path, sizeof(path), "%s/.sweep", root);
    unlink(path);
    sandbox_store_sweep(root, go_on, &fault);
    is_number(usage(), before + BLOCK + 1, "is put right by a sweep");

    sandbox_store_drop(&place, &fault);
    unlink(path);
    sandbox_store_sweep(root, go_on, &fault);
    ok(access(place.user, F_OK) == -1, "an empty folder goes away");
    is_number(put("back", "x", 1, SANDBOX_STORE_REPLACE), SANDBOX_STORE_OK,
              "and comes back");
}
