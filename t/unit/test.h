/*
 * Checks for the unit tests: each prints one TAP line, test_done() the plan.
 * A test file includes this once, and names in a comment what it links:
 * "link: FILE... -lLIBRARY..." (files from the top of the tree).
 */

#ifndef SANDBOX_TEST_H
#define SANDBOX_TEST_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>


static unsigned  test_count;
static unsigned  test_failed;


/* One check; the name is a format.  Gives back whether it was true. */
#define ok(condition, ...)                                                   \
    test_ok(!!(condition), #condition, __FILE__, __LINE__, __VA_ARGS__)

/* Two numbers are the same. */
#define is_number(got, expected, ...)                                        \
    test_number((int64_t) (got), (int64_t) (expected), __FILE__, __LINE__,   \
                __VA_ARGS__)

/* Two strings are the same; NULL equals only NULL. */
#define is_string(got, expected, ...)                                        \
    test_string(got, expected, __FILE__, __LINE__, __VA_ARGS__)

/* Two pieces of memory have the same length and bytes. */
#define is_bytes(got, got_size, expected, expected_size, ...)                \
    test_bytes(got, got_size, expected, expected_size, __FILE__, __LINE__,   \
               __VA_ARGS__)


static inline void
test_line(int good, const char *name)
{
    test_count++;

    if (!good) {
        test_failed++;
    }

    printf("%sok %u - %s\n", good ? "" : "not ", test_count, name);
}


#define test_name(name, format)                                              \
    do {                                                                     \
        va_list  test_args;                                                  \
                                                                             \
        va_start(test_args, format);                                         \
        vsnprintf(name, sizeof(name), format, test_args);                    \
        va_end(test_args);                                                   \
    } while (0)


__attribute__((format(printf, 5, 6), unused))
static int
test_ok(int good, const char *condition, const char *file, int line,
    const char *format, ...)
{
    char  name[256];

    test_name(name, format);
    test_line(good, name);

    if (!good) {
        printf("#   %s:%d: not true: %s\n", file, line, condition);
    }

    fflush(stdout);

    return good;
}


__attribute__((format(printf, 5, 6), unused))
static int
test_number(int64_t got, int64_t expected, const char *file, int line,
    const char *format, ...)
{
    char  name[256];

    test_name(name, format);
    test_line(got == expected, name);

    if (got != expected) {
        printf("#   %s:%d: got %lld, expected %lld\n", file, line,
               (long long) got, (long long) expected);
    }

    fflush(stdout);

    return got == expected;
}


__attribute__((format(printf, 5, 6), unused))
static int
test_string(const char *got, const char *expected, const char *file, int line,
    const char *format, ...)
{
    int   good;
    char  name[256];

    good = (got == NULL || expected == NULL) ? got == expected
                                             : strcmp(got, expected) == 0;

    test_name(name, format);
    test_line(good, name);

    if (!good) {
        printf("#   %s:%d: got \"%s\", expected \"%s\"\n", file, line,
               got ? got : "(NULL)", expected ? expected : "(NULL)");
    }

    fflush(stdout);

    return good;
}


__attribute__((format(printf, 7, 8), unused))
static int
test_bytes(const void *got, size_t got_size, const void *expected,
    size_t expected_size, const char *file, int line, const char *format, ...)
{
    int             good;
    char            name[256];
    size_t          i;
    const uint8_t  *a, *b;

    good = got_size == expected_size
           && (got_size == 0 || memcmp(got, expected, got_size) == 0);

    test_name(name, format);
    test_line(good, name);

    if (!good) {
        a = got;
        b = expected;

        for (i = 0; i < got_size && i < expected_size; i++) {
            if (a[i] != b[i]) {
                break;
            }
        }

        printf("#   %s:%d: %zu bytes, expected %zu; they differ at %zu\n",
               file, line, got_size, expected_size, i);
    }

    fflush(stdout);

    return good;
}


/* Prints the plan; the value for main() to return. */
__attribute__((unused))
static int
test_done(void)
{
    printf("1..%u\n", test_count);
    fflush(stdout);

    return test_failed || test_count == 0;
}


#endif /* SANDBOX_TEST_H */
