/*
 * The runner's key file: 64 hex digits, and nobody else may read it.
 */

/* link: src/runner/key.c src/runner/file.c src/runner/error.c */
/* link: src/runner/log.c src/wire/sandbox_utf8.c */
/* flags: -U_GNU_SOURCE */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "test.h"
#include "key.h"
#include "sandbox_wire.h"


#define DIGITS  "00112233445566778899aabbccddeeffFFEEDDCCBBAA998877665544332211" \
                "00"


static void text(void);
static void file(void);
static void make(void);


int
main(void)
{
    text();
    file();
    make();

    return test_done();
}


static void
text(void)
{
    uint8_t  key[SANDBOX_WIRE_KEY_SIZE];

    is_number(runner_key_parse(DIGITS, 64, key), 0, "64 digits");
    is_number(key[1] << 8 | key[15], 0x11ff, "are 32 bytes");
    is_number(key[16] << 8 | key[31], 0xff00, "upper case, too");
    is_number(runner_key_parse(DIGITS "\n", 65, key), 0, "a newline");
    is_number(runner_key_parse(DIGITS "\n\n", 66, key), -1, "two of them");
    is_number(runner_key_parse(DIGITS, 63, key), -1, "63 digits");
    is_number(runner_key_parse(DIGITS "0", 65, key), -1, "65 digits");
    is_number(runner_key_parse("", 0, key), -1, "nothing");
    is_number(runner_key_parse("0x112233445566778899aabbccddeeff0011223344"
                               "5566778899aabbccddeeff00", 64, key), -1,
              "0x is no digit");
    is_number(runner_key_parse("-----BEGIN PRIVATE KEY-----\nabcdefabcdefabc"
                               "defabcdefabcdefabcdef", 64, key), -1, "a PEM");
}


static void
file(void)
{
    int             fd;
    char            path[] = "/tmp/runner-key-XXXXXX";
    uint8_t         key[SANDBOX_WIRE_KEY_SIZE];
    runner_error_t  err;

    fd = mkstemp(path);
    (void) !write(fd, DIGITS "\n", 65);
    close(fd);

    if (geteuid() == 0) {
        runner_error_init(&err);
        is_number(runner_key_read(path, key, &err), 0, "a file of root's");

        (void) !chown(path, 65534, 65534);
        runner_error_init(&err);
        is_number(runner_key_read(path, key, &err), -1, "of somebody else");
        (void) !chown(path, 0, 0);
    }

    chmod(path, 0640);
    runner_error_init(&err);
    is_number(runner_key_read(path, key, &err), -1, "a group may read it");
    ok(strstr(err.text, "chmod 600") != NULL, "the text says what to do");

    unlink(path);
    runner_error_init(&err);
    is_number(runner_key_read(path, key, &err), -1, "it is not there");
    ok(strstr(err.text, "openssl rand") != NULL, "the text says how to get it");

    runner_error_init(&err);
    is_number(runner_key_read("/tmp", key, &err), -1, "a directory");
}


static void
make(void)
{
    char            folder[] = "/tmp/runner-key-XXXXXX", path[64];
    uint8_t         key[SANDBOX_WIRE_KEY_SIZE], again[SANDBOX_WIRE_KEY_SIZE];
    struct stat     st;
    runner_error_t  err;

    (void) !mkdtemp(folder);
    snprintf(path, sizeof(path), "%s/key", folder);

    runner_error_init(&err);
    is_number(runner_key_make(path, &err), 0, "it is made");
    ok(stat(path, &st) == 0 && st.st_size == 65
       && (st.st_mode & 07777) == 0600, "64 digits, for its owner alone");

    if (geteuid() == 0) {
        is_number(runner_key_read(path, key, &err), 0, "and can be read");
        is_number(runner_key_make(path, &err), 0, "made again");
        is_number(runner_key_read(path, again, &err), 0, "and read");
        ok(memcmp(key, again, sizeof(key)) == 0, "it is the same");
    }

    chmod(path, 0644);
    runner_error_init(&err);
    is_number(runner_key_make(path, &err), -1, "one that is open stays, and "
              "is told");
    unlink(path);
    rmdir(folder);

    runner_error_init(&err);
    is_number(runner_key_make(path, &err), -1, "nowhere");
}
