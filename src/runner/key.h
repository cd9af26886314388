/*
 * The runner's key: 64 hex digits in a file that only root can read, the same
 * that nginx's master reads.
 */

#ifndef RUNNER_KEY_H
#define RUNNER_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"


/*
 * Reads the runner's key: 64 hex digits in a file that is root's and that
 * nobody else can read.
 */
int runner_key_read(const char *path, uint8_t *key, runner_error_t *err);

/* The text of a key file: 64 hex digits, one newline at most.  0, or -1. */
int runner_key_parse(const char *text, size_t size, uint8_t *key);

/* Makes such a file, whole or not at all, unless a good one is there. */
int runner_key_make(const char *path, runner_error_t *err);


#endif /* RUNNER_KEY_H */
